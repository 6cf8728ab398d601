/* SPDX-License-Identifier: Apache-2.0 */
/* chat_template.c - conversations as text by the tokenizer's own template, and
 * which parts of that are answers */
#include "config.h"

#include "io/tokenizer/chat_impl.h"

#include "base/error.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- fields that made no difference ----------------------------------------
 */

/* Flags say what is learned and are honoured before (json_lines.c). */
static bool is_known(const char *key)
{
    static const char *const known[] = {
        "role", "content", "weight", "train", "training", "loss", "masked"};

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (strcmp(known[i], key) == 0)
            return true;
    }
    return false;
}

static bool is_said(const char *key)
{
    static const char *const said[] = {"reasoning_content", "reasoning",
                                       "thinking", "tool_calls",
                                       "function_call"};

    for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++) {
        if (strcmp(said[i], key) == 0)
            return true;
    }
    return false;
}

static bool is_empty(const json_t *value)
{
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

enum merak_status merak_chat_note_unread(struct merak_chat *chat,
                                         const struct merak_chat_turn *turn,
                                         size_t i, const char *key,
                                         struct merak_error *err)
{
    size_t n = strlen(chat->unread), bytes = strlen(key);
    const char *at = chat->unread;

    if (is_known(key) || is_empty(json_object_get(turn->whole, key)))
        return MERAK_OK;
    if (turn->role == MERAK_CHAT_ANSWER && !turn->context && is_said(key))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "message %zu of the assistant has \"%.30s\", which "
                          "the chat %s does not put out: the answer would be "
                          "learned without it; remove it, or give \"weight\": "
                          "0",
                          i + 1, key,
                          chat->template != NULL ? "template" : "format");
    while ((at = strstr(at, key)) != NULL) {
        if ((at == chat->unread || at[-1] == ' ') &&
            (at[bytes] == ',' || at[bytes] == '\0'))
            return MERAK_OK;
        at += bytes;
    }
    if (n + bytes + 3 < sizeof(chat->unread))
        snprintf(chat->unread + n, sizeof(chat->unread) - n, "%s%s",
                 n > 0 ? ", " : "", key);
    return MERAK_OK;
}

const char *merak_chat_unread(const struct merak_chat *chat)
{
    return chat->unread;
}

void merak_chat_forget_unread(struct merak_chat *chat)
{
    chat->unread[0] = '\0';
}

static void count(json_t *counts, const char *key)
{
    json_object_set_new(
        counts, key,
        json_integer(json_integer_value(json_object_get(counts, key)) + 1));
}

/* How many messages have a field that the template did not look at in any. */
static json_t *count_unread(const struct merak_jinja_output *made,
                            const struct merak_chat_talk *talk)
{
    json_t *counts = json_object(), *with = json_object(), *each;
    const char *key;
    void *next;

    for (size_t k = 0; k < made->n_unread; k++)
        count(counts, made->unread[k].key);
    for (size_t i = 0; json_object_size(counts) > 0 && i < talk->n; i++) {
        json_object_foreach((json_t *)talk->turn[i].whole, key, each)
            count(with, key);
    }
    json_object_foreach_safe(counts, next, key, each)
    {
        if (json_integer_value(json_object_get(with, key)) >
            json_integer_value(each))
            json_object_del(counts, key);
    }
    json_decref(with);
    return counts;
}

/* A template that looks at a field in any message knows it. */
static enum merak_status note_unread(struct merak_chat *chat,
                                     const struct merak_chat_talk *talk,
                                     struct merak_error *err)
{
    const struct merak_jinja_output *made = &chat->made;
    json_t *counts = count_unread(made, talk);
    enum merak_status rc = MERAK_OK;

    for (size_t k = 0; k < made->n_unread && rc == MERAK_OK; k++) {
        const struct merak_jinja_unread *u = &made->unread[k];

        if (json_object_get(counts, u->key) != NULL)
            rc = merak_chat_note_unread(chat, &talk->turn[u->message],
                                        (size_t)u->message, u->key, err);
    }
    json_decref(counts);
    return rc;
}

/* --- running the tokenizer's template -----------------------------------
 */

/* The token that ends an answer belongs to it, such as "</s>" or "<|im_end|>"
 * after it, with blanks before that; but not one that begins a text. */
static size_t end_of_answer(const struct merak_chat *chat, const char *text,
                            size_t n, size_t at)
{
    size_t eos = strlen(chat->eos), bos = strlen(chat->bos), end = at, begin;

    while (at < n && isspace((unsigned char)text[at]))
        at++;
    if (eos > 0 && n - at >= eos && memcmp(text + at, chat->eos, eos) == 0)
        return at + eos;
    if ((bos > 0 && n - at >= bos && memcmp(text + at, chat->bos, bos) == 0) ||
        at >= n || (text[at] != '<' && strncmp(text + at, "[|", 2) != 0))
        return end;
    for (begin = at++; at < n && at - begin < 64; at++) {
        if (isspace((unsigned char)text[at]) || text[at] == '<')
            break;
        if (text[at] == (text[begin] == '<' ? '>' : ']'))
            return at + 1;
    }
    return end;
}

/* Thoughts before the answer belong to it, including the token that begins
 * them. */
static size_t begin_of_answer(const char *text, size_t at)
{
    static const char *const token[] = {"<think>", "[THINK]"};
    size_t end = at;

    while (end > 0 && isspace((unsigned char)text[end - 1]))
        end--;
    for (size_t i = 0; i < sizeof(token) / sizeof(*token); i++) {
        size_t n = strlen(token[i]);

        if (end >= n && memcmp(text + end - n, token[i], n) == 0)
            return end - n;
    }
    return at;
}

/* Tokens that end a call of tools, and what is behind it. */
static bool closes(const char *text, size_t n)
{
    const char *end = memchr(text, text[0] == '<' ? '>' : ']', n);
    size_t bytes = end == NULL ? 0 : (size_t)(end - text);

    return bytes > 1 && bytes < 64 &&
           (text[1] == '/' || memmem(text, bytes, "end", 3) != NULL ||
            memmem(text, bytes, "eo", 2) != NULL);
}

/* Calls of tools end with tokens of their own, before the one that ends the
 * answer. */
static size_t end_of_calls(const struct merak_chat *chat, const char *text,
                           size_t n, size_t at)
{
    size_t eos = strlen(chat->eos), from,
           end = end_of_answer(chat, text, n, at);

    while (end > at) {
        if (eos > 0 && end - at >= eos &&
            memcmp(text + end - eos, chat->eos, eos) == 0)
            break;
        for (from = end; from < n && isspace((unsigned char)text[from]);)
            from++;
        if (from >= n || !(closes(text + from, n - from) ||
                           (eos > 0 && n - from >= eos &&
                            memcmp(text + from, chat->eos, eos) == 0)))
            break;
        at = end;
        end = end_of_answer(chat, text, n, at);
    }
    return end > at ? end : at;
}

static bool has_calls(const struct merak_chat_turn *turn)
{
    return turn->whole != NULL &&
           (!is_empty(json_object_get(turn->whole, "tool_calls")) ||
            !is_empty(json_object_get(turn->whole, "function_call")));
}

/* Where a message is in the output, from its first mark to its last. */
struct place {
    size_t begin, end, parts;
    bool mixed; /* with what another says */
};

static void find_places(const struct merak_jinja_output *made,
                        struct place *place, size_t n)
{
    for (size_t i = 0; i < n; i++)
        place[i] = (struct place){.begin = SIZE_MAX};
    for (size_t k = 0; k < made->n_marks; k++) {
        const struct merak_jinja_mark *m = &made->mark[k];
        struct place *p;

        if (m->message < 0 || (size_t)m->message >= n)
            continue;
        p = &place[m->message];
        p->begin = m->begin < p->begin ? m->begin : p->begin;
        p->end = m->end > p->end ? m->end : p->end;
        p->parts++;
    }
    /* Marks are ordered: the next one after a message's first is its own, or
     * begins behind its end. */
    for (size_t k = 0; k + 1 < made->n_marks; k++) {
        const struct merak_jinja_mark *m = &made->mark[k], *next = m + 1;

        if (m->message >= 0 && next->message >= 0 &&
            next->message != m->message &&
            next->begin > place[m->message].begin &&
            next->begin < place[m->message].end)
            place[m->message].mixed = true;
    }
}

/* What the template makes of the first messages, and how many bytes of it begin
 * the text, too. */
struct first {
    struct merak_jinja_output made;
    size_t same;
    bool made_it;
};

static void render_first(struct merak_chat_renderer *r,
                         struct merak_jinja_input in, size_t n, bool prompt,
                         struct first *to)
{
    const char *text = (const char *)r->out->text.text;
    size_t most = r->out->text.n;

    in.n_messages = n;
    in.add_generation_prompt = prompt;
    to->same = 0;
    to->made_it =
        merak_jinja_render(r->chat->template, &in, &to->made, NULL) == MERAK_OK;
    if (!to->made_it)
        return;
    most = to->made.n < most ? to->made.n : most;
    while (to->same < most && to->made.text[to->same] == text[to->same])
        to->same++;
}

/* Where an answer begins: behind what the template puts out for one that is
 * still to come.  SIZE_MAX if it has no such thing, or the text has not. */
static size_t begin_by_prompt(struct merak_chat_renderer *r,
                              const struct merak_jinja_input *in, size_t i,
                              size_t most)
{
    struct first before = {.same = 0};
    size_t plain, at = SIZE_MAX;

    render_first(r, *in, i, false, &before);
    plain = before.made.n;
    if (i > 0 && before.made_it && plain > 0)
        render_first(r, *in, i, true, &before);
    if (i > 0 && before.made_it && before.made.n > plain &&
        (before.same == before.made.n || before.same >= most))
        at = before.same < most ? before.same : most;
    merak_jinja_output_fini(&before.made);
    return at;
}

/* The place of an answer that later messages quote, such as the name in a call
 * of tools: only what the template makes of the messages up to it counts.  All
 * that the answer says has to be in that. */
static void find_first_place(struct merak_chat_renderer *r,
                             const struct merak_jinja_input *in, size_t i,
                             struct place *p)
{
    struct first upto = {.same = 0};
    struct place *own = NULL;

    render_first(r, *in, i + 1, false, &upto);
    if (upto.made_it)
        own = calloc(i + 1, sizeof(*own));
    if (own != NULL) {
        find_places(&upto.made, own, i + 1);
        if (own[i].parts > 0 && own[i].end <= upto.same)
            *p = own[i];
    }
    free(own);
    merak_jinja_output_fini(&upto.made);
}

/* Where an answer ends whose last mark is at `at`, and that no token ends:
 * with what the template makes of the messages up to it. */
static size_t end_by_text(struct merak_chat_renderer *r,
                          const struct merak_jinja_input *in, size_t i,
                          size_t at)
{
    const char *text = (const char *)r->out->text.text;
    struct first upto = {.same = 0};
    size_t end;

    render_first(r, *in, i + 1, false, &upto);
    end = upto.same > at ? upto.same : at;
    while (end > at && isspace((unsigned char)text[end - 1]))
        end--;
    merak_jinja_output_fini(&upto.made);
    return end;
}

static void add_calls(struct merak_chat_renderer *r,
                      const struct merak_jinja_input *in, size_t i,
                      const struct place *p)
{
    const char *text = (const char *)r->out->text.text;
    size_t begin = begin_by_prompt(r, in, i, p->begin);
    size_t end = end_of_calls(r->chat, text, r->out->text.n, p->end);

    merak_chat_add_answer(
        r, begin != SIZE_MAX ? begin : begin_of_answer(text, p->begin),
        end > p->end ? end : end_by_text(r, in, i, p->end));
}

/* An answer that says nothing has only what the template puts around it.
 * Where that is not known there is nothing to learn. */
static void add_empty(struct merak_chat_renderer *r,
                      const struct merak_jinja_input *in, size_t i)
{
    const char *text = (const char *)r->out->text.text;
    size_t begin = begin_by_prompt(r, in, i, SIZE_MAX), end;

    if (begin == SIZE_MAX)
        return;
    end = end_of_calls(r->chat, text, r->out->text.n, begin);
    merak_chat_add_answer(r, begin,
                          end > begin ? end : end_by_text(r, in, i, begin));
}

/* Has the message nothing to say? */
static bool is_silent(const struct merak_chat_turn *turn)
{
    json_t *each;
    const char *key;

    if (turn->whole == NULL)
        return turn->n == 0;
    json_object_foreach((json_t *)turn->whole, key, each)
    {
        if ((strcmp(key, "content") == 0 || is_said(key)) && !is_empty(each))
            return false;
    }
    return true;
}

static void find_answer(struct merak_chat_renderer *r,
                        const struct merak_jinja_input *in, size_t i,
                        const struct merak_chat_turn *turn, struct place p)
{
    const char *text = (const char *)r->out->text.text;

    if (p.mixed || has_calls(turn))
        find_first_place(r, in, i, &p);
    if (p.parts == 0 && is_silent(turn))
        add_empty(r, in, i);
    else if (p.parts == 0 || p.mixed)
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "message %zu has role assistant, and its content is "
                           "not, or not in one piece, in the text that the "
                           "chat template makes",
                           i + 1);
    else if (has_calls(turn))
        add_calls(r, in, i, &p);
    else
        merak_chat_add_answer(
            r, p.parts > 1 ? begin_of_answer(text, p.begin) : p.begin,
            end_of_answer(r->chat, text, r->out->text.n, p.end));
}

/* The message that a generated part belongs to: what it says is in it. */
static bool is_context(const struct merak_jinja_output *made,
                       const struct merak_jinja_mark *part,
                       const struct merak_chat_talk *talk)
{
    for (size_t k = 0; k < made->n_marks; k++) {
        const struct merak_jinja_mark *m = &made->mark[k];

        if (m->message >= 0 && m->begin >= part->begin && m->end <= part->end)
            return talk->turn[m->message].context;
    }
    return false;
}

/* Use what the template itself marks as generated, or else the answers. */
static void find_answers(struct merak_chat_renderer *r,
                         const struct merak_jinja_input *in,
                         const struct merak_chat_talk *talk)
{
    const struct merak_jinja_output *made = &r->chat->made;
    struct place *place;
    bool generated = false;

    for (size_t k = 0; k < made->n_marks; k++) {
        if (made->mark[k].message >= 0)
            continue;
        generated = true;
        if (!is_context(made, &made->mark[k], talk))
            merak_chat_add_answer(r, made->mark[k].begin, made->mark[k].end);
    }
    if (generated)
        return;
    place = calloc(talk->n, sizeof(*place));
    if (place == NULL) {
        r->rc = merak_fail_nomem(r->err, talk->n * sizeof(*place));
        return;
    }
    find_places(made, place, talk->n);
    for (size_t i = 0; i < talk->n && r->rc == MERAK_OK; i++) {
        if (talk->turn[i].role == MERAK_CHAT_ANSWER && !talk->turn[i].context)
            find_answer(r, in, i, &talk->turn[i], place[i]);
    }
    free(place);
}

enum merak_status merak_chat_run_template(struct merak_chat *chat,
                                          const struct merak_chat_talk *talk,
                                          struct merak_chat_text *out,
                                          struct merak_error *err)
{
    static const char *const role[] = {"system", "user", "assistant", "tool"};
    struct merak_chat_renderer r = {
        .chat = chat, .out = out, .err = err, .rc = MERAK_OK};
    struct merak_jinja_message *message = calloc(talk->n, sizeof(*message));
    const struct merak_jinja_input in = {.message = message,
                                         .n_messages = talk->n,
                                         .word = chat->word,
                                         .n_words = chat->n_words,
                                         .more = talk->more,
                                         .now = chat->now};

    if (message == NULL)
        return merak_fail_nomem(err, talk->n * sizeof(*message));
    for (size_t i = 0; i < talk->n; i++)
        message[i] = (struct merak_jinja_message){
            role[talk->turn[i].role], talk->turn[i].text, talk->turn[i].n,
            talk->turn[i].whole};
    r.rc = merak_jinja_render(chat->template, &in, &chat->made, err);
    if (r.rc == MERAK_ERR_UNSUPPORTED)
        merak_error_wrap(err, "the chat template, which is run");
    if (r.rc == MERAK_OK) {
        chat->has_date |= chat->made.has_date;
        merak_chat_put(&r, chat->made.text, chat->made.n);
    }
    if (r.rc == MERAK_OK)
        r.rc = note_unread(chat, talk, err);
    if (r.rc == MERAK_OK)
        find_answers(&r, &in, talk);
    free(message);
    return r.rc;
}
