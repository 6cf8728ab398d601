/* SPDX-License-Identifier: Apache-2.0 */
/* added.c - added tokens, which are matched verbatim in a text */
#include "config.h"

#include "text/tokenizer/added.h"

#include "base/bisect.h"
#include "base/error.h"
#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

struct merak_added_set {
    const struct merak_added_token **token; /* by text */
    size_t n;
    size_t first[257]; /* tokens with first byte b: [first[b], first[b + 1]) */
};

/* Of equal texts the first in the file comes first. */
static int by_text(const void *a, const void *b)
{
    const struct merak_added_token *x = *(const void *const *)a;
    const struct merak_added_token *y = *(const void *const *)b;
    int by = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);

    if (by != 0)
        return by;
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    return x < y ? -1 : 1;
}

enum merak_status merak_added_set_create(const struct merak_added_token *tokens,
                                         size_t n, bool normalized,
                                         struct merak_added_set **set_p,
                                         struct merak_error *err)
{
    struct merak_added_set *set = calloc(1, sizeof(*set));
    size_t at = 0;

    if (set != NULL)
        set->token = calloc(n + 1, sizeof(const void *));
    if (set == NULL || set->token == NULL) {
        free(set);
        return merak_fail_nomem(err, (n + 1) * sizeof(const void *));
    }
    for (size_t i = 0; i < n; i++) {
        if (tokens[i].normalized == normalized && tokens[i].n > 0)
            set->token[set->n++] = &tokens[i];
    }
    qsort(set->token, set->n, sizeof(const void *), by_text);
    for (size_t b = 0; b <= 256; b++) {
        while (at < set->n && (unsigned char)set->token[at]->text[0] < b)
            at++;
        set->first[b] = at;
    }
    *set_p = set;
    return MERAK_OK;
}

void merak_added_set_destroy(struct merak_added_set *set)
{
    if (set == NULL)
        return;
    free(set->token);
    free(set);
}

/* The first of tokens [lo, hi), which agree up to byte `at`, whose byte there
 * is `byte` or a later one. */
static size_t find_byte(const struct merak_added_set *set, size_t lo, size_t hi,
                        size_t at, unsigned byte)
{
    const struct merak_added_token *const *t = set->token;
    size_t i;

    MERAK_BISECT(i, lo, hi,
                 t[i]->n > at && (unsigned char)t[i]->text[at] >= byte);
    return i;
}

/* The longest token that the text begins with.  The tokens that begin as it
 * does are a range, which each byte narrows: there may be 100000 with the same
 * first byte. */
static const struct merak_added_token *
match(const struct merak_added_set *set, const unsigned char *text, size_t n)
{
    size_t lo = set->first[text[0]], hi = set->first[text[0] + 1u];
    const struct merak_added_token *found = NULL;

    for (size_t at = 1; lo < hi; at++) {
        if (set->token[lo]->n == at)
            found = set->token[lo];
        if (at == n)
            break;
        lo = find_byte(set, lo, hi, at, text[at]);
        hi = find_byte(set, lo, hi, at, text[at] + 1u);
    }
    return found;
}

/* The beginning of the character that ends before text[end]. */
static size_t char_before(const unsigned char *text, size_t end)
{
    size_t from = end - 1;

    while (from > 0 && end - from < 4 && (text[from] & 0xc0) == 0x80)
        from--;
    return from;
}

static bool is_word_at(const unsigned char *text, size_t n)
{
    uint32_t cp;

    return n > 0 && merak_utf8_decode(text, n, &cp) > 0 && merak_is_word(cp);
}

static bool stands_alone(const unsigned char *text, size_t n, size_t from,
                         size_t end)
{
    size_t before = from > 0 ? char_before(text, from) : 0;

    return !is_word_at(text + before, from - before) &&
           !is_word_at(text + end, n - end);
}

static size_t strip_left(const unsigned char *text, size_t from)
{
    while (from > 0) {
        size_t before = char_before(text, from), bytes;

        if (merak_char_at(text + before, from - before, &bytes) !=
                MERAK_CHAR_SPACE ||
            before + bytes != from)
            break;
        from = before;
    }
    return from;
}

static size_t strip_right(const unsigned char *text, size_t n, size_t end)
{
    size_t bytes;

    while (end < n &&
           merak_char_at(text + end, n - end, &bytes) == MERAK_CHAR_SPACE)
        end += bytes;
    return end;
}

/* White space taken by rstrip may also be part of the next token's text, which
 * is searched in the original text: then no text is between them. */
enum merak_status merak_added_cut(const struct merak_added_set *set,
                                  const unsigned char *text, size_t n,
                                  merak_part_fn fn, void *arg,
                                  struct merak_error *err)
{
    struct merak_added_part part = {0};
    enum merak_status rc = MERAK_OK;
    size_t done = 0;

    for (size_t i = 0; set->n > 0 && i < n && rc == MERAK_OK;) {
        const struct merak_added_token *t = match(set, text + i, n - i);
        size_t from = i, end;

        if (t == NULL) {
            i++;
            continue;
        }
        i = end = from + t->n;
        if (t->single_word && !stands_alone(text, n, from, end))
            continue;
        if (t->lstrip) {
            from = strip_left(text, from);
            from = from > done ? from : done;
        }
        if (t->rstrip)
            end = strip_right(text, n, end);
        part = (struct merak_added_part){NULL, done, from};
        if (done < from)
            rc = fn(arg, &part, err);
        part = (struct merak_added_part){t, from, end};
        if (rc == MERAK_OK)
            rc = fn(arg, &part, err);
        done = end;
    }
    part = (struct merak_added_part){NULL, done, n};
    return rc == MERAK_OK && done < n ? fn(arg, &part, err) : rc;
}
