/* SPDX-License-Identifier: Apache-2.0 */
/* rules.c - processing of a text before its pieces are merged */
#include "config.h"

#include "text/tokenizer/rules.h"

#include "text/tokenizer/nfc.h"
#include "text/tokenizer/unicode.h"

/* No character grows as much in any published form: the longest, U+FDFA, from
 * 3 bytes to 33, and to 39 with its blanks marked.  A rule that prepends is
 * within the rest. */
enum { MOST_GROWTH = 16, MOST_PREPENDED = 1024 };

void merak_rules_fini(struct merak_rules *rules)
{
    for (int i = 0; i < rules->n_steps; i++) {
        free(rules->step[i].from);
        free(rules->step[i].to);
    }
    rules->n_steps = 0;
    free(rules->spm.map);
    rules->spm.map = NULL;
}

static enum merak_status replace(const unsigned char *text, size_t n,
                                 const char *from, const char *to,
                                 struct merak_buffer *out,
                                 struct merak_error *err)
{
    size_t from_n = strlen(from), to_n = strlen(to), done = 0;
    enum merak_status rc = MERAK_OK;

    while (rc == MERAK_OK && done < n) {
        const unsigned char *at = memmem(text + done, n - done, from, from_n);

        if (at == NULL)
            break;
        rc =
            merak_buffer_add(out, text + done, (size_t)(at - text) - done, err);
        if (rc == MERAK_OK)
            rc = merak_buffer_add(out, to, to_n, err);
        done = (size_t)(at - text) + from_n;
    }
    return rc == MERAK_OK ? merak_buffer_add(out, text + done, n - done, err)
                          : rc;
}

static enum merak_status replace_blanks(const unsigned char *text, size_t n,
                                        const char *to,
                                        struct merak_buffer *out,
                                        struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0, run; i < n && rc == MERAK_OK; i += run) {
        for (run = 0; i + run < n && text[i + run] == ' ';)
            run++;
        if (run >= 2) {
            rc = merak_buffer_add(out, to, strlen(to), err);
            continue;
        }
        run = 1;
        rc = merak_buffer_add(out, text + i, run, err);
    }
    return rc;
}

/* Bytes of white space at the beginning of a text. */
static size_t blanks_before(const unsigned char *text, size_t n)
{
    size_t at = 0, bytes;

    while (at < n &&
           merak_char_at(text + at, n - at, &bytes) == MERAK_CHAR_SPACE)
        at += bytes;
    return at;
}

size_t merak_rules_word(const unsigned char *text, size_t n, size_t *from_p)
{
    size_t from = blanks_before(text, n), end = from, bytes;

    while (end < n &&
           merak_char_at(text + end, n - end, &bytes) != MERAK_CHAR_SPACE)
        end += bytes;
    *from_p = from;
    return end - from;
}

/* Where the last word ends. */
static size_t end_of_words(const unsigned char *text, size_t n)
{
    size_t end = 0;

    for (size_t at = 0, from, word; at < n; at += from + word) {
        word = merak_rules_word(text + at, n - at, &from);
        end = word > 0 ? at + from + word : end;
    }
    return end;
}

static enum merak_status do_step(const struct merak_rules *rules,
                                 const struct merak_normal_step *step,
                                 const unsigned char *text, size_t n,
                                 struct merak_buffer *out,
                                 struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    size_t from;

    switch (step->kind) {
    case MERAK_NORMAL_PREPEND:
        if (n > 0)
            rc = merak_buffer_add(out, step->to, strlen(step->to), err);
        return rc == MERAK_OK ? merak_buffer_add(out, text, n, err) : rc;
    case MERAK_NORMAL_REPLACE:
        return replace(text, n, step->from, step->to, out, err);
    case MERAK_NORMAL_BLANKS:
        return replace_blanks(text, n, step->to, out, err);
    case MERAK_NORMAL_STRIP:
        if (step->right)
            n = end_of_words(text, n);
        from = step->left ? blanks_before(text, n) : 0;
        return merak_buffer_add(out, text + from, n - from, err);
    case MERAK_NORMAL_SPM:
        return merak_spm_normalize(&rules->spm, text, n, out, err);
    case MERAK_NORMAL_MAP:
        return merak_spm_replace(&rules->spm, text, n, out, err);
    case MERAK_NORMAL_FORM:
        break;
    }
    return merak_normal_form(step->form, text, n, out, err);
}

static enum merak_status do_steps(const struct merak_rules *rules,
                                  const unsigned char *text, size_t n,
                                  size_t most, struct merak_buffer *out,
                                  struct merak_error *err)
{
    struct merak_buffer between = {0};
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i + 1 < rules->n_steps && rc == MERAK_OK; i++) {
        struct merak_buffer next = {.most = most};

        rc = do_step(rules, &rules->step[i], text, n, &next, err);
        free(between.text);
        between = next;
        text = between.text;
        n = between.n;
    }
    if (rc == MERAK_OK)
        rc = rules->n_steps > 0
                 ? do_step(rules, &rules->step[rules->n_steps - 1], text, n,
                           out, err)
                 : merak_buffer_add(out, text, n, err);
    free(between.text);
    return rc;
}

/* The rules are those of a file that is not trusted: a few that replace a
 * letter by many would make gigabytes of a line. */
enum merak_status merak_rules_normalize(const struct merak_rules *rules,
                                        const unsigned char *text, size_t n,
                                        struct merak_buffer *out,
                                        struct merak_error *err)
{
    size_t most = MOST_GROWTH * n + MOST_PREPENDED;
    enum merak_status rc;

    out->most = out->n + most;
    rc = do_steps(rules, text, n, most, out, err);
    out->most = 0;
    if (rc == MERAK_ERR_UNSUPPORTED)
        merak_error_wrap(err, "the tokenizer's normalizer, of %zu bytes", n);
    return rc;
}

bool merak_rules_prepares(const struct merak_rules *rules)
{
    return rules->marks || rules->prefix != MERAK_PREFIX_NEVER;
}

enum merak_status merak_rules_prepare(const struct merak_rules *rules,
                                      const unsigned char *text, size_t n,
                                      bool first, struct merak_buffer *out,
                                      struct merak_error *err)
{
    const char *blank = rules->marks ? MERAK_MARK : " ";
    size_t mark = strlen(MERAK_MARK);
    bool wanted = rules->prefix == MERAK_PREFIX_ALWAYS ||
                  (rules->prefix == MERAK_PREFIX_FIRST && first);
    bool there = text[0] == ' ' || (rules->marks && n >= mark &&
                                    memcmp(text, MERAK_MARK, mark) == 0);
    enum merak_status rc = MERAK_OK;

    if (wanted && !there)
        rc = merak_buffer_add(out, blank, strlen(blank), err);
    if (rc != MERAK_OK)
        return rc;
    return rules->marks ? replace(text, n, " ", MERAK_MARK, out, err)
                        : merak_buffer_add(out, text, n, err);
}

/* The piece up to the next mark after the first character. */
static size_t marked_piece(const unsigned char *text, size_t n)
{
    const unsigned char *next =
        n > 1 ? memmem(text + 1, n - 1, MERAK_MARK, strlen(MERAK_MARK)) : NULL;

    return next == NULL ? n : (size_t)(next - text);
}

static enum merak_status cut_split(enum merak_split split,
                                   const unsigned char *text, size_t n,
                                   merak_piece_fn fn, void *arg,
                                   struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    while (n > 0 && rc == MERAK_OK) {
        size_t piece = merak_piece(split, text, n);

        rc = fn(arg, text, piece, err);
        text += piece;
        n -= piece;
    }
    return rc;
}

static enum merak_status cut_digits(const struct merak_rules *rules,
                                    const unsigned char *text, size_t n,
                                    merak_piece_fn fn, void *arg,
                                    struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    while (n > 0 && rc == MERAK_OK) {
        size_t piece = merak_digits_piece(rules->digits, text, n);

        rc = cut_split(rules->split, text, piece, fn, arg, err);
        text += piece;
        n -= piece;
    }
    return rc;
}

/* The splits are nested, so that no text is scanned twice. */
enum merak_status merak_rules_cut(const struct merak_rules *rules,
                                  const unsigned char *text, size_t n,
                                  merak_piece_fn fn, void *arg,
                                  struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    while (n > 0 && rc == MERAK_OK) {
        size_t piece = rules->cut_marks ? marked_piece(text, n) : n;

        rc = cut_digits(rules, text, piece, fn, arg, err);
        text += piece;
        n -= piece;
    }
    return rc;
}
