/* SPDX-License-Identifier: Apache-2.0 */
/* nfc.c - the normalization forms (UAX #15)
 *
 * In form C nothing below U+0300 changes or combines with what precedes it, in
 * the others nothing below U+0080.  So a text is copied up to the character
 * before the first one from there on; then a stretch is normalized that ends
 * before the next lower one: decomposed, marks sorted by their combining
 * classes, and in the forms C and KC composed again.
 */
#include "config.h"

#include "text/tokenizer/nfc.h"

#include "text/tokenizer/unicode.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct combining {
    uint32_t lo, hi, class;
};
struct decomposition {
    uint32_t cp, first, second;
};
struct composition {
    uint32_t first, second, cp;
};

/* The first has parts compatible_part[at .. at + n), the next those after; n 0:
 * each has one part, compatible_part[at] and what follows it. */
struct compatible {
    uint32_t lo, hi, at, n;
};

#include "text/tokenizer/nfc_table.h"
#include "text/tokenizer/nfkc_table.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* Hangul syllables are numbered, not listed: lead, vowel and tail jamo. */
#define S_BASE 0xac00u
#define L_BASE 0x1100u
#define V_BASE 0x1161u
#define T_BASE 0x11a7u
#define L_COUNT 19u
#define V_COUNT 21u
#define T_COUNT 28u
#define S_COUNT (L_COUNT * V_COUNT * T_COUNT)

#define RAW 0x110000u /* plus a byte that is not UTF-8 */

struct mark {
    uint32_t cp, class;
    size_t order; /* position in the stretch */
};

/* A stretch, decomposed. */
struct stretch {
    enum merak_form form;
    struct mark *mark;
    size_t n, room;
};

/* Of a key and a row, by the row's first `n` numbers. */
static int compare(const void *key, const void *row, int n)
{
    const uint32_t *x = key, *y = row;

    for (int i = 0; i < n; i++) {
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    }
    return 0;
}

static int compare_first(const void *key, const void *row)
{
    return compare(key, row, 1);
}

static int compare_two(const void *key, const void *row)
{
    return compare(key, row, 2);
}

static int compare_range(const void *key, const void *row)
{
    const uint32_t *lo_hi = row;
    uint32_t cp = *(const uint32_t *)key;

    return cp < lo_hi[0] ? -1 : cp > lo_hi[1];
}

#define FIND(key, table, compares) \
    bsearch(key, table, COUNT(table), sizeof(*(table)), compares)

static uint32_t class_of(uint32_t cp)
{
    const struct combining *c = FIND(&cp, combining, compare_range);

    return c != NULL ? c->class : 0;
}

/* The composition of two characters, or 0. */
static uint32_t compose(uint32_t first, uint32_t second)
{
    const uint32_t both[] = {first, second};
    const struct composition *c;

    if (first - L_BASE < L_COUNT && second - V_BASE < V_COUNT)
        return S_BASE +
               ((first - L_BASE) * V_COUNT + (second - V_BASE)) * T_COUNT;
    if (first - S_BASE < S_COUNT && (first - S_BASE) % T_COUNT == 0 &&
        second - T_BASE - 1 < T_COUNT - 1)
        return first + (second - T_BASE);
    c = FIND(both, compositions, compare_two);
    return c != NULL ? c->cp : 0;
}

static enum merak_status put(struct stretch *s, uint32_t cp,
                             struct merak_error *err)
{
    if (s->n == s->room) {
        size_t room = 2 * s->room + 32;
        struct mark *more = realloc(s->mark, room * sizeof(*more));

        if (more == NULL)
            return merak_fail_nomem(err, room * sizeof(*more));
        s->mark = more;
        s->room = room;
    }
    s->mark[s->n] = (struct mark){cp, class_of(cp), s->n};
    s->n++;
    return MERAK_OK;
}

static enum merak_status put_compatible(struct stretch *s,
                                        const struct compatible *c, uint32_t cp,
                                        struct merak_error *err)
{
    const uint32_t *part = &compatible_part[c->at + (cp - c->lo) * c->n];
    enum merak_status rc = MERAK_OK;

    if (c->n == 0)
        return put(s, *part + (cp - c->lo), err);
    for (uint32_t i = 0; i < c->n && rc == MERAK_OK; i++)
        rc = put(s, part[i], err);
    return rc;
}

static enum merak_status decompose(struct stretch *s, uint32_t cp,
                                   struct merak_error *err)
{
    const struct decomposition *parts;
    const struct compatible *compatible_parts = NULL;
    uint32_t syllable = cp - S_BASE;
    enum merak_status rc;

    if (s->form == MERAK_NFKC || s->form == MERAK_NFKD)
        compatible_parts = FIND(&cp, compatible, compare_range);
    if (compatible_parts != NULL)
        return put_compatible(s, compatible_parts, cp, err);

    if (syllable < S_COUNT) {
        uint32_t tail = syllable % T_COUNT;

        rc = put(s, L_BASE + syllable / (V_COUNT * T_COUNT), err);
        if (rc == MERAK_OK)
            rc = put(s, V_BASE + syllable / T_COUNT % V_COUNT, err);
        return rc == MERAK_OK && tail > 0 ? put(s, T_BASE + tail, err) : rc;
    }
    parts = FIND(&cp, decompositions, compare_first);
    if (parts == NULL)
        return put(s, cp, err);
    rc = decompose(s, parts->first, err);
    return rc == MERAK_OK && parts->second != 0
               ? decompose(s, parts->second, err)
               : rc;
}

static int by_class(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;

    if (x->class != y->class)
        return x->class < y->class ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* Sort the marks between two starters by their classes. */
static void sort_marks(struct stretch *s)
{
    for (size_t i = 0; i < s->n; i++) {
        size_t end = i;

        while (end < s->n && s->mark[end].class > 0)
            end++;
        if (end > i + 1)
            qsort(s->mark + i, end - i, sizeof(*s->mark), by_class);
        i = end > i ? end - 1 : i;
    }
}

/* Compose in place: a mark combines with its starter unless one of the same
 * class or a higher one is between them. */
static void compose_all(struct stretch *s)
{
    size_t starter = SIZE_MAX, out = 0;
    uint32_t last = 0; /* class of the previous mark after the starter */

    for (size_t i = 0; i < s->n; i++) {
        struct mark m = s->mark[i];
        bool next = starter != SIZE_MAX && out == starter + 1;
        uint32_t whole = 0;

        if (starter != SIZE_MAX && (next || last < m.class))
            whole = compose(s->mark[starter].cp, m.cp);
        if (whole != 0) {
            s->mark[starter].cp = whole;
            continue;
        }
        if (m.class == 0)
            starter = out;
        last = m.class;
        s->mark[out++] = m;
    }
    s->n = out;
}

static enum merak_status write_out(const struct stretch *s,
                                   struct merak_buffer *out,
                                   struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0; i < s->n && rc == MERAK_OK; i++) {
        uint32_t cp = s->mark[i].cp;
        unsigned char bytes[4] = {(unsigned char)(cp - RAW)};
        size_t n = cp >= RAW ? 1 : merak_utf8_encode(cp, bytes);

        rc = merak_buffer_add(out, bytes, n, err);
    }
    return rc;
}

/* Could a character that begins with this byte change or combine? */
static bool may_change(enum merak_form form, unsigned char lead)
{
    return lead >= (form == MERAK_NFC ? 0xcc : 0xc2);
}

/* The beginning of the character that ends before text[at]. */
static size_t before(const unsigned char *text, size_t at)
{
    size_t from = at;

    while (from > 0 && at - from < 4) {
        from--;
        if ((text[from] & 0xc0) != 0x80)
            break;
    }
    return from;
}

static enum merak_status normalize(const unsigned char *text, size_t n,
                                   struct merak_buffer *out, struct stretch *s,
                                   struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    uint32_t cp;

    s->n = 0;
    for (size_t i = 0; i < n && rc == MERAK_OK;) {
        size_t bytes = merak_utf8_decode(text + i, n - i, &cp);

        rc = decompose(s, bytes == 0 ? RAW + text[i] : cp, err);
        i += bytes == 0 ? 1 : bytes;
    }
    if (rc != MERAK_OK)
        return rc;
    sort_marks(s);
    if (s->form == MERAK_NFC || s->form == MERAK_NFKC)
        compose_all(s);
    return write_out(s, out, err);
}

enum merak_status merak_normal_form(enum merak_form form,
                                    const unsigned char *text, size_t n,
                                    struct merak_buffer *out,
                                    struct merak_error *err)
{
    struct stretch s = {.form = form};
    enum merak_status rc = MERAK_OK;
    size_t done = 0;

    for (size_t i = 0; i < n && rc == MERAK_OK;) {
        size_t from, end;

        if (!may_change(form, text[i])) {
            i++;
            continue;
        }
        from = before(text, i) >= done && i > done ? before(text, i) : i;
        for (end = i + 1; end < n; end++) {
            if ((text[end] & 0xc0) != 0x80 && !may_change(form, text[end]))
                break;
        }
        rc = merak_buffer_add(out, text + done, from - done, err);
        if (rc == MERAK_OK)
            rc = normalize(text + from, end - from, out, &s, err);
        done = i = end;
    }
    if (rc == MERAK_OK)
        rc = merak_buffer_add(out, text + done, n - done, err);
    free(s.mark);
    return rc;
}
