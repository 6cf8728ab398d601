/* SPDX-License-Identifier: Apache-2.0 */
/* chat_answers.c - which parts of what a template made are answers
 *
 * What an answer says is marked in the text (jinja.h).  It begins behind what
 * the template puts out for an answer to come, and ends with the tokens behind
 * it; where marks do not tell, what the template makes of fewer messages does,
 * which takes a rendering for each such answer.
 */
#include "config.h"

#include "text/tokenizer/chat_impl.h"

#include "base/error.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* --- ends of answers -------------------------------------------------------
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
           (!merak_chat_is_empty(json_object_get(turn->whole, "tool_calls")) ||
            !merak_chat_is_empty(
                json_object_get(turn->whole, "function_call")));
}

/* Where a message is in the output, from its first mark to its last. */
struct place {
    size_t begin, end, parts;
    size_t first, last; /* marks */
    bool mixed;         /* with what another says */
};

static bool is_mixed(const struct merak_jinja_output *made,
                     const struct place *p, size_t i)
{
    for (size_t k = p->first; k < p->last; k++) {
        const struct merak_jinja_mark *m = &made->mark[k];

        if (m->message >= 0 && (size_t)m->message != i && m->begin > p->begin &&
            m->begin < p->end)
            return true;
    }
    return false;
}

static void widen(struct place *p, const struct merak_jinja_mark *m, size_t k)
{
    p->begin = m->begin < p->begin ? m->begin : p->begin;
    p->end = m->end > p->end ? m->end : p->end;
    p->first = p->parts == 0 ? k : p->first;
    p->last = k;
    p->parts++;
}

static void find_places(const struct merak_jinja_output *made,
                        struct place *place, size_t n)
{
    for (size_t i = 0; i < n; i++)
        place[i] = (struct place){.begin = SIZE_MAX};
    for (size_t k = 0; k < made->n_marks; k++) {
        const struct merak_jinja_mark *m = &made->mark[k];

        if (m->message >= 0 && (size_t)m->message < n)
            widen(&place[m->message], m, k);
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

/* --- what later messages quote ---------------------------------------------
 */

/* Was what mark k says put out before, by the marks from `first` on? */
static bool is_repeated(const struct merak_jinja_output *made, size_t first,
                        size_t k)
{
    const struct merak_jinja_mark *m = &made->mark[k];

    for (size_t i = first; i < k && m->source != NULL && m->end > m->begin; i++)
        if (made->mark[i].message == m->message &&
            made->mark[i].source == m->source &&
            made->mark[i].end > made->mark[i].begin)
            return true;
    return false;
}

/* Is the next one that speaks a later message? */
static bool is_before_later(const struct merak_jinja_output *made, size_t k)
{
    const int own = made->mark[k].message;

    while (k < made->n_marks && made->mark[k].message == own)
        k++;
    return k < made->n_marks && made->mark[k].message > own;
}

/* The place without what is put out a second time beside a later message, such
 * as a tool's name with its result.  False if that does not explain all. */
static bool leave_out_quotes(const struct merak_jinja_output *made, size_t i,
                             struct place *p)
{
    struct place own = {.begin = SIZE_MAX};
    bool quotes = false;

    for (size_t k = p->first; k <= p->last; k++) {
        if (made->mark[k].message != (int)i)
            continue;
        if (is_repeated(made, p->first, k) && is_before_later(made, k))
            quotes = true;
        else if (quotes || is_repeated(made, p->first, k))
            return false;
        else
            widen(&own, &made->mark[k], k);
    }
    own.mixed = is_mixed(made, &own, i);
    if (own.mixed)
        return false;
    *p = own;
    return true;
}

/* --- what the template makes of fewer messages -----------------------------
 */

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

/* What the template puts out for an answer that is still to come: once known it
 * is searched before an answer, behind what another message says. */
struct prompt {
    char *text;
    size_t n;
    bool differs; /* fewer messages did not tell where an answer ends */
};

/* How much of the prompt the text has at a place: whole tokens and lines. */
static size_t same_as_prompt(const struct prompt *prompt, const char *text,
                             size_t n)
{
    size_t same = 0;

    while (same < n && same < prompt->n && text[same] == prompt->text[same])
        same++;
    while (same > 0 && same < prompt->n &&
           memchr(">]\n", prompt->text[same - 1], 3) == NULL)
        same--;
    return same;
}

/* History may have only the beginning of the prompt: without the token that
 * begins thoughts, say. */
static size_t find_prompt(const struct merak_chat_renderer *r,
                          const struct prompt *prompt, const struct place *p)
{
    enum { FARTHEST = 4096, LEAST = 4 };
    const struct merak_jinja_output *made = &r->chat->made;
    const char *text = (const char *)r->out->text.text;
    size_t best = LEAST - 1, found = SIZE_MAX, from;

    if (prompt->n == 0 || p->parts == 0 || p->first == 0)
        return SIZE_MAX;
    from = made->mark[p->first - 1].end;
    if (from < p->begin && p->begin - from > FARTHEST)
        from = p->begin - FARTHEST;
    for (size_t at = from; at < p->begin; at++) {
        size_t same = same_as_prompt(prompt, text + at, p->begin - at);

        if (same < best || same < LEAST)
            continue;
        best = same;
        found = at + same;
    }
    return found;
}

/* Where an answer begins that has its first mark at p->begin, or none.
 * SIZE_MAX if the template has no prompt, or the text has not. */
static size_t begin_by_prompt(struct merak_chat_renderer *r,
                              const struct merak_jinja_input *in, size_t i,
                              const struct place *p, struct prompt *prompt)
{
    struct first before = {.same = 0};
    const size_t most = p->parts > 0 ? p->begin : SIZE_MAX;
    size_t plain, at = find_prompt(r, prompt, p);

    if (at != SIZE_MAX || i == 0)
        return at;
    render_first(r, *in, i, false, &before);
    plain = before.made.n;
    if (before.made_it && plain > 0)
        render_first(r, *in, i, true, &before);
    if (before.made_it && before.made.n > plain &&
        (before.same == before.made.n || before.same >= most))
        at = before.same < most ? before.same : most;
    if (before.made_it && before.made.n > plain && prompt->text == NULL) {
        prompt->n = before.made.n - plain;
        prompt->text = malloc(prompt->n);
        if (prompt->text != NULL)
            memcpy(prompt->text, before.made.text + plain, prompt->n);
        else
            prompt->n = 0;
        at = at == SIZE_MAX ? find_prompt(r, prompt, p) : at;
    }
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

/* The same behind what closes the last argument in JSON. */
static size_t end_of_json(const struct merak_chat_renderer *r, size_t at)
{
    const char *text = (const char *)r->out->text.text;
    size_t n = r->out->text.n, from = at, end;

    while (from < n && memchr("\"'}])", text[from], 5) != NULL)
        from++;
    end = end_of_calls(r->chat, text, n, from);
    return end > from ? end : at;
}

static void add_calls(struct merak_chat_renderer *r,
                      const struct merak_jinja_input *in, size_t i,
                      const struct place *p, struct prompt *prompt)
{
    const char *text = (const char *)r->out->text.text;
    size_t begin = begin_by_prompt(r, in, i, p, prompt);
    size_t end = end_of_calls(r->chat, text, r->out->text.n, p->end);

    if (end == p->end && prompt->differs)
        end = end_of_json(r, p->end);
    if (end == p->end) {
        end = end_by_text(r, in, i, p->end);
        prompt->differs = end == p->end;
    }
    if (end == p->end)
        end = end_of_json(r, p->end);
    merak_chat_add_answer(
        r, begin != SIZE_MAX ? begin : begin_of_answer(text, p->begin), end);
}

/* An answer that says nothing has only what the template puts around it.
 * Where that is not known there is nothing to learn. */
static void add_empty(struct merak_chat_renderer *r,
                      const struct merak_jinja_input *in, size_t i,
                      struct prompt *prompt)
{
    const char *text = (const char *)r->out->text.text;
    const struct place none = {.parts = 0};
    size_t begin = begin_by_prompt(r, in, i, &none, prompt), end;

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
        if ((strcmp(key, "content") == 0 || merak_chat_is_said(key)) &&
            !merak_chat_is_empty(each))
            return false;
    }
    return true;
}

static void find_answer(struct merak_chat_renderer *r,
                        const struct merak_jinja_input *in, size_t i,
                        const struct merak_chat_turn *turn, struct place p,
                        struct prompt *prompt)
{
    const char *text = (const char *)r->out->text.text;

    if (p.parts > 0 && (p.mixed || has_calls(turn)) &&
        !leave_out_quotes(&r->chat->made, i, &p))
        find_first_place(r, in, i, &p);
    if (p.parts == 0 && is_silent(turn))
        add_empty(r, in, i, prompt);
    else if (p.parts == 0 || p.mixed)
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "message %zu has role assistant, and its content is "
                           "not, or not in one piece, in the text that the "
                           "chat template makes",
                           i + 1);
    else if (has_calls(turn))
        add_calls(r, in, i, &p, prompt);
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
    size_t k = (size_t)(part - made->mark);

    while (k > 0 && made->mark[k - 1].begin == part->begin)
        k--;
    for (; k < made->n_marks && made->mark[k].begin <= part->end; k++) {
        const struct merak_jinja_mark *m = &made->mark[k];

        if (m->message >= 0 && m->end <= part->end)
            return talk->turn[m->message].context;
    }
    return false;
}

/* Use what the template itself marks as generated, or else the answers. */
void merak_chat_find_answers(struct merak_chat_renderer *r,
                             const struct merak_jinja_input *in,
                             const struct merak_chat_talk *talk)
{
    const struct merak_jinja_output *made = &r->chat->made;
    struct prompt prompt = {.n = 0};
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
            find_answer(r, in, i, &talk->turn[i], place[i], &prompt);
    }
    free(prompt.text);
    free(place);
}
