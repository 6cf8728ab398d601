/* SPDX-License-Identifier: Apache-2.0 */
/* packing.c - documents packed into sequences; packing.h has the rules */
#include "config.h"

#include "io/tokens/packing.h"

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NONE SIZE_MAX
#define WORD_BITS (sizeof(unsigned long) * CHAR_BIT)

/* --- pieces ------------------------------------------------------------ */

struct cutter {
    struct merak_packing *packing;
    const struct merak_packed_document *doc;
    size_t seq;
    uint64_t from, end; /* of the current piece; end 0: it is empty */
    struct merak_error *err;
    enum merak_status rc;
};

/* How many of tokens [from, to) are to be predicted. */
static uint64_t count(const struct merak_packed_document *doc, uint64_t from,
                      uint64_t to)
{
    uint64_t n = 0;

    if (doc->counted == NULL)
        return to - from;
    while (from < to)
        n += doc->counted[from++];
    return n;
}

static enum merak_status add_piece(struct merak_packing *p,
                                   struct merak_doc_piece piece,
                                   struct merak_error *err)
{
    if (p->n_pieces == p->room) {
        size_t room = p->room > 0 ? 2 * p->room : 256;
        struct merak_doc_piece *more = realloc(p->piece, room * sizeof(*more));

        if (more == NULL)
            return merak_fail_nomem(err, room * sizeof(*more));
        p->piece = more;
        p->room = room;
    }
    p->piece[p->n_pieces++] = piece;
    return MERAK_OK;
}

/* Add tokens [from, end) of the document as a piece. */
static void put_piece(struct cutter *c, uint64_t from, uint64_t end)
{
    const struct merak_doc_piece piece = {.at = c->doc->at + from,
                                          .file = c->doc->file,
                                          .n = (size_t)(end - from - 1),
                                          .counted =
                                              count(c->doc, from + 1, end)};

    if (c->rc == MERAK_OK)
        c->rc = add_piece(c->packing, piece, c->err);
}

/* Add another answer: tokens [begin, end), 1 <= begin. */
static void add_answer(struct cutter *c, uint64_t begin, uint64_t end)
{
    uint64_t most = (uint64_t)c->seq + 1;

    if (end - c->from > most && c->end > 0) {
        put_piece(c, c->from, c->end);
        c->from = c->end;
    }
    if (end - c->from > most) { /* alone, with as much before it as fits */
        c->from = end - begin < most ? end - most : begin - 1;
        for (; end - c->from > most; c->from += c->seq)
            put_piece(c, c->from, c->from + most);
    }
    c->end = end;
}

enum merak_status
merak_packing_add(struct merak_packing *packing,
                  const struct merak_packed_document *document, size_t seq,
                  struct merak_error *err)
{
    const unsigned char *counted = document->counted;
    struct cutter c = {.packing = packing,
                       .doc = document,
                       .seq = seq,
                       .err = err,
                       .rc = MERAK_OK};
    uint64_t at = 1, end;

    if (counted == NULL && document->n > 1)
        add_answer(&c, 1, document->n);
    while (counted != NULL && at < document->n) {
        for (end = at; end < document->n && counted[end];)
            end++;
        if (end > at)
            add_answer(&c, at, end);
        at = end + 1;
    }
    if (c.end > 0)
        put_piece(&c, c.from, c.end);
    return c.rc;
}

enum merak_status
merak_packing_add_pair(struct merak_packing *packing,
                       const struct merak_packed_document *pair, size_t second,
                       size_t seq, struct merak_error *err)
{
    const struct merak_doc_piece piece = {.at = pair->at,
                                          .file = pair->file,
                                          .n = (size_t)(pair->n - 1),
                                          .second = second,
                                          .counted = 1};

    if (pair->n - 1 <= seq)
        return add_piece(packing, piece, err);
    packing->too_long++;
    if (packing->longest < pair->n - 1)
        packing->longest = pair->n - 1;
    return MERAK_OK;
}

/* --- samples ----------------------------------------------------------- */

/* Samples that are not full, by the number of free positions. */
struct shelves {
    size_t seq;
    size_t *top;           /* [seq + 1]: the newest such sample, or NONE */
    size_t *next;          /* [pieces]: the one below it */
    unsigned long *filled; /* a bit for each entry of top[] that is not NONE */
};

static enum merak_status shelves_init(struct shelves *s, size_t seq,
                                      size_t pieces, struct merak_error *err)
{
    *s = (struct shelves){.seq = seq,
                          .top = malloc((seq + 1) * sizeof(*s->top)),
                          .next = calloc(pieces + 1, sizeof(*s->next)),
                          .filled =
                              calloc(seq / WORD_BITS + 1, sizeof(*s->filled))};
    if (s->top == NULL || s->next == NULL || s->filled == NULL)
        return merak_fail_nomem(err, (seq + pieces + 2) * sizeof(size_t));
    for (size_t i = 0; i <= seq; i++)
        s->top[i] = NONE;
    return MERAK_OK;
}

static void shelves_fini(struct shelves *s)
{
    free(s->top);
    free(s->next);
    free(s->filled);
}

static void put_back(struct shelves *s, size_t sample, size_t left)
{
    s->next[sample] = s->top[left];
    s->top[left] = sample;
    s->filled[left / WORD_BITS] |= 1UL << left % WORD_BITS;
}

/* Take a sample with the fewest free positions, at least n; or NONE. */
static size_t take_fullest(struct shelves *s, size_t n, size_t *left_p)
{
    size_t word = n / WORD_BITS, left, sample;
    unsigned long bits = s->filled[word] & ~0UL << n % WORD_BITS;

    while (bits == 0) {
        if (++word > s->seq / WORD_BITS)
            return NONE;
        bits = s->filled[word];
    }
    left = word * WORD_BITS + (size_t)__builtin_ctzl(bits);
    sample = s->top[left];
    s->top[left] = s->next[sample];
    if (s->top[left] == NONE)
        s->filled[word] &= ~(1UL << left % WORD_BITS);
    *left_p = left;
    return sample;
}

/* The indices of pieces, the longest first, equal ones in order of
 * addition. */
static enum merak_status sort_pieces(const struct merak_packing *p, size_t seq,
                                     size_t *order, struct merak_error *err)
{
    size_t *begin = calloc(seq + 2, sizeof(*begin));

    if (begin == NULL)
        return merak_fail_nomem(err, (seq + 2) * sizeof(*begin));
    for (size_t i = 0; i < p->n_pieces; i++)
        begin[seq - p->piece[i].n + 1]++;
    for (size_t i = 1; i <= seq; i++)
        begin[i] += begin[i - 1];
    for (size_t i = 0; i < p->n_pieces; i++)
        order[begin[seq - p->piece[i].n]++] = i;
    free(begin);
    return MERAK_OK;
}

/* Fill sample_of[piece]; returns the number of samples. */
static enum merak_status fit(const struct merak_packing *p, size_t seq,
                             const size_t *order, size_t *sample_of,
                             size_t *n_samples_p, struct merak_error *err)
{
    struct shelves s;
    enum merak_status rc = shelves_init(&s, seq, p->n_pieces, err);
    size_t n_samples = 0;

    for (size_t i = 0; rc == MERAK_OK && i < p->n_pieces; i++) {
        size_t n = p->piece[order[i]].n, left = seq;
        size_t sample = take_fullest(&s, n, &left);

        if (sample == NONE)
            sample = n_samples++;
        sample_of[order[i]] = sample;
        if (left > n)
            put_back(&s, sample, left - n);
    }
    shelves_fini(&s);
    *n_samples_p = n_samples;
    return rc;
}

/* Number samples in the order of their first pieces; number: scratch. */
static void renumber(struct merak_packing *p, size_t *sample_of, size_t *number)
{
    size_t n = 0;

    for (size_t s = 0; s < p->n_samples; s++)
        number[s] = NONE;
    for (size_t i = 0; i < p->n_pieces; i++) {
        if (number[sample_of[i]] == NONE)
            number[sample_of[i]] = n++;
        sample_of[i] = number[sample_of[i]];
        p->first[sample_of[i] + 1]++;
        p->counted[sample_of[i]] += p->piece[i].counted;
    }
    for (size_t s = 0; s < p->n_samples; s++)
        p->first[s + 1] += p->first[s];
}

/* Sort pieces in the order of their samples; next: scratch. */
static enum merak_status gather(struct merak_packing *p,
                                const size_t *sample_of, size_t *next,
                                struct merak_error *err)
{
    struct merak_doc_piece *sorted = calloc(p->n_pieces + 1, sizeof(*sorted));

    if (sorted == NULL)
        return merak_fail_nomem(err, p->n_pieces * sizeof(*sorted));
    memcpy(next, p->first, p->n_samples * sizeof(*next));
    for (size_t i = 0; i < p->n_pieces; i++)
        sorted[next[sample_of[i]]++] = p->piece[i];
    free(p->piece);
    p->piece = sorted;
    p->room = p->n_pieces;
    return MERAK_OK;
}

enum merak_status merak_packing_finish(struct merak_packing *packing,
                                       size_t seq, struct merak_error *err)
{
    struct merak_packing *p = packing;
    size_t n = p->n_pieces + 1;
    size_t *room = calloc(2 * n, sizeof(*room)), *sample_of = room + n;
    enum merak_status rc;

    if (room == NULL)
        return merak_fail_nomem(err, 2 * n * sizeof(*room));
    rc = sort_pieces(p, seq, room, err);
    if (rc == MERAK_OK)
        rc = fit(p, seq, room, sample_of, &p->n_samples, err);
    if (rc != MERAK_OK)
        goto out;
    p->first = calloc(p->n_samples + 1, sizeof(*p->first));
    p->counted = calloc(p->n_samples + 1, sizeof(*p->counted));
    if (p->first == NULL || p->counted == NULL) {
        rc = merak_fail_nomem(err, 2 * n * sizeof(*p->first));
        goto out;
    }
    renumber(p, sample_of, room);
    rc = gather(p, sample_of, room, err);
out:
    free(room);
    return rc;
}

void merak_packing_fini(struct merak_packing *packing)
{
    free(packing->piece);
    free(packing->first);
    free(packing->counted);
    *packing = (struct merak_packing){0};
}
