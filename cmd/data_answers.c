/* SPDX-License-Identifier: Apache-2.0 */
/* data_answers.c - prompts and messages as tokens, and which of them are
 * answers */
#include "config.h"

#include "cmd/data_answers.h"

#include "base/error.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* --- ids ------------------------------------------------------------------ */

static enum merak_status reserve(struct merak_answer_ids *ids, size_t n,
                                 struct merak_error *err)
{
    size_t room = 2 * (ids->n + n);
    int32_t *id;
    bool *counted;

    if (n <= ids->room - ids->n)
        return MERAK_OK;
    id = realloc(ids->id, room * sizeof(*id));
    if (id != NULL)
        ids->id = id;
    counted = realloc(ids->counted, room * sizeof(*counted));
    if (counted != NULL)
        ids->counted = counted;
    if (id == NULL || counted == NULL)
        return merak_fail_nomem(err, room * sizeof(*id));
    ids->room = room;
    return MERAK_OK;
}

/* A merak_ids_fn; ids are initially not to be predicted. */
static enum merak_status add_ids(void *arg, const int32_t *id, size_t n,
                                 struct merak_error *err)
{
    struct merak_answer_ids *ids = arg;
    enum merak_status rc = reserve(ids, n, err);

    if (rc != MERAK_OK || n == 0)
        return rc;
    memcpy(ids->id + ids->n, id, n * sizeof(*id));
    memset(ids->counted + ids->n, 0, n * sizeof(*ids->counted));
    ids->n += n;
    return MERAK_OK;
}

/* Tokenize a text separately, as an answer or not. */
static enum merak_status add_text(struct merak_answers *a, const char *text,
                                  size_t n, bool counted,
                                  struct merak_error *err)
{
    size_t from = a->ids.n;
    enum merak_status rc =
        merak_tokenizer_encode(a->tokenizer, text, n, add_ids, &a->ids, err);

    for (size_t i = from; i < a->ids.n; i++)
        a->ids.counted[i] = counted;
    return rc;
}

/* Add runs of ids that are all predicted or all not. */
static enum merak_status put_document(struct merak_answers *a,
                                      const struct merak_answer_ids *ids,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0, end; i < ids->n && rc == MERAK_OK; i = end) {
        for (end = i + 1; end < ids->n && ids->counted[end] == ids->counted[i];)
            end++;
        merak_pack_set_counted(a->pack, ids->counted[i]);
        rc = merak_pack_tokens(a->pack, ids->id + i, end - i, err);
    }
    merak_pack_set_counted(a->pack, true);
    return rc == MERAK_OK ? merak_pack_end_document(a->pack, err) : rc;
}

/* --- a prompt and its completion -------------------------------------------
 */

/* Find the ids that the tokenizer's template puts before and after a text,
 * whose own ids are ids[0 .. n). */
static enum merak_status find_template(struct merak_answers *a,
                                       const struct merak_chat_turn *prompt,
                                       struct merak_answer_ids *whole,
                                       size_t *begin_p, struct merak_error *err)
{
    const struct merak_answer_ids *ids = &a->ids;
    enum merak_status rc = merak_tokenizer_encode_whole(
        a->tokenizer, prompt->text, prompt->n, add_ids, whole, err);
    size_t begin = 0;

    if (rc != MERAK_OK)
        return rc;
    while (begin + ids->n <= whole->n &&
           (ids->n > 0 &&
            memcmp(whole->id + begin, ids->id, ids->n * sizeof(*ids->id)) != 0))
        begin++;
    if (begin + ids->n > whole->n)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--special-tokens: the tokenizer's template changes "
                          "the text that it is applied to");
    *begin_p = begin;
    return MERAK_OK;
}

static enum merak_status add_prompt(struct merak_answers *a,
                                    const struct merak_chat_turn *prompt,
                                    struct merak_answer_ids *behind,
                                    struct merak_error *err)
{
    struct merak_answer_ids whole = {0};
    size_t begin = 0, end;
    enum merak_status rc = add_text(a, prompt->text, prompt->n, false, err);

    if (rc != MERAK_OK || !a->special)
        return rc;
    rc = find_template(a, prompt, &whole, &begin, err);
    if (rc == MERAK_OK) {
        end = begin + a->ids.n;
        a->ids.n = 0;
        rc = add_ids(&a->ids, whole.id, end, err);
        if (rc == MERAK_OK)
            rc = add_ids(behind, whole.id + end, whole.n - end, err);
    }
    free(whole.id);
    free(whole.counted);
    return rc;
}

static enum merak_status take_pair(struct merak_answers *a,
                                   const struct merak_chat_turn turn[2],
                                   struct merak_error *err)
{
    struct merak_answer_ids behind = {0};
    int32_t eod = merak_tokenizer_eod(a->tokenizer);
    enum merak_status rc = add_prompt(a, &turn[0], &behind, err);
    size_t from = a->ids.n;

    if (rc == MERAK_OK)
        rc = add_text(a, turn[1].text, turn[1].n, true, err);
    if (rc == MERAK_OK)
        rc = add_ids(&a->ids, behind.id, behind.n, err);
    if (rc == MERAK_OK && eod >= 0 &&
        (a->ids.n == 0 || a->ids.id[a->ids.n - 1] != eod))
        rc = add_ids(&a->ids, &eod, 1, err);
    for (size_t i = from; rc == MERAK_OK && i < a->ids.n; i++)
        a->ids.counted[i] = true;
    free(behind.id);
    free(behind.counted);
    return rc;
}

/* --- messages ---------------------------------------------------------------
 */

/* Search a token's bytes from `at` on: returns their end, or SIZE_MAX;
 * *begin_p is their beginning.  A blank that encoding prepended is not in the
 * text, and white space that a special token absorbs is in no token. */
static size_t match(const struct merak_buffer *text, size_t at,
                    const char *bytes, size_t n, size_t *begin_p)
{
    const char *from = (const char *)text->text;

    for (; at <= text->n; at++) {
        *begin_p = at;
        if (n <= text->n - at && memcmp(from + at, bytes, n) == 0)
            return at + n;
        if (n > 0 && bytes[0] == ' ' && n - 1 <= text->n - at &&
            memcmp(from + at, bytes + 1, n - 1) == 0)
            return at + n - 1;
        if (at == text->n || !isspace((unsigned char)from[at]))
            break;
    }
    return SIZE_MAX;
}

/* Mark the ids that contain a part of an answer; false if they do not spell
 * the text. */
static bool mark_answers(struct merak_answers *a)
{
    const struct merak_chat_text *t = &a->text;
    size_t at = 0, k = 0;

    for (size_t i = 0; i < a->ids.n; i++) {
        const char *bytes;
        size_t n, begin;

        if (merak_tokenizer_decode(a->tokenizer, a->ids.id[i], &bytes, &n,
                                   NULL) != MERAK_OK)
            return false;
        at = match(&t->text, at, bytes, n, &begin);
        if (at == SIZE_MAX)
            return false;
        while (k < t->n_answers && t->answer[k].end <= begin)
            k++;
        a->ids.counted[i] =
            k < t->n_answers && begin < at && at > t->answer[k].begin;
    }
    return true;
}

static enum merak_status add_parts(struct merak_answers *a,
                                   struct merak_error *err)
{
    const struct merak_chat_text *t = &a->text;
    const char *text = (const char *)t->text.text;
    enum merak_status rc = MERAK_OK;
    size_t at = 0;

    a->ids.n = 0;
    for (size_t k = 0; k < t->n_answers && rc == MERAK_OK; k++) {
        const struct merak_chat_span *s = &t->answer[k];

        rc = add_text(a, text + at, s->begin - at, false, err);
        if (rc == MERAK_OK)
            rc = add_text(a, text + s->begin, s->end - s->begin, true, err);
        at = s->end;
    }
    return rc == MERAK_OK ? add_text(a, text + at, t->text.n - at, false, err)
                          : rc;
}

static enum merak_status take_messages(struct merak_answers *a,
                                       const struct merak_chat_talk *talk,
                                       struct merak_error *err)
{
    int32_t eod = merak_tokenizer_eod(a->tokenizer);
    enum merak_status rc = merak_chat_render(a->chat, talk, &a->text, err);

    if (rc == MERAK_OK)
        rc = merak_tokenizer_encode(a->tokenizer, a->text.text.text,
                                    a->text.text.n, add_ids, &a->ids, err);
    if (rc == MERAK_OK && !mark_answers(a))
        rc = add_parts(a, err);
    return rc == MERAK_OK && a->append_eod ? add_ids(&a->ids, &eod, 1, err)
                                           : rc;
}

/* A template puts the beginning of a text in front, and a message or a
 * tokenizer does, too. */
static void count_twice(struct merak_answers *a)
{
    const struct merak_answer_ids *ids = &a->ids;

    if (ids->n < 2 || ids->id[0] != ids->id[1] ||
        !merak_tokenizer_is_special(a->tokenizer, ids->id[0]))
        return;
    if (a->twice++ == 0)
        a->twice_id = ids->id[0];
}

/* What a pair's answer is compared by. */
static enum merak_status check_learned(const struct merak_answer_ids *ids,
                                       struct merak_error *err)
{
    for (size_t i = 1; i < ids->n; i++) {
        if (ids->counted[i])
            return MERAK_OK;
    }
    return merak_fail(err, MERAK_ERR_FORMAT,
                      "the answer has no token behind the first to compare");
}

/* The first of a pair waits for the second: a line of which one is refused
 * leaves nothing. */
static enum merak_status put_side(struct merak_answers *a,
                                  enum merak_chat_side side,
                                  struct merak_error *err)
{
    struct merak_answer_ids first = a->chosen;
    enum merak_status rc = check_learned(&a->ids, err);

    if (rc == MERAK_OK && side == MERAK_CHAT_CHOSEN) {
        a->chosen = a->ids;
        a->ids = first;
        return MERAK_OK;
    }
    if (rc == MERAK_OK)
        rc = put_document(a, &a->chosen, err);
    return rc == MERAK_OK ? put_document(a, &a->ids, err) : rc;
}

enum merak_status merak_answers_take(struct merak_answers *answers,
                                     bool is_chat,
                                     const struct merak_chat_talk *talk,
                                     struct merak_error *err)
{
    enum merak_status rc;

    answers->ids.n = 0;
    rc = is_chat ? take_messages(answers, talk, err)
                 : take_pair(answers, talk->turn, err);
    if (rc == MERAK_OK)
        count_twice(answers);
    if (rc == MERAK_OK && talk->side != MERAK_CHAT_ALONE)
        return put_side(answers, talk->side, err);
    return rc == MERAK_OK ? put_document(answers, &answers->ids, err) : rc;
}

void merak_answers_fini(struct merak_answers *answers)
{
    merak_chat_text_fini(&answers->text);
    free(answers->ids.id);
    free(answers->ids.counted);
    free(answers->chosen.id);
    free(answers->chosen.counted);
    memset(&answers->ids, 0, sizeof(answers->ids));
    memset(&answers->chosen, 0, sizeof(answers->chosen));
}
