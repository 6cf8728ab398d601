/* SPDX-License-Identifier: Apache-2.0 */
/* memplan.c - places buffers in an arena by their lifetimes
 *
 * Greedy by size with best fit: within a few percent of the peak on training
 * programs, whose large buffers have nested lifetimes (Pisarchyk and Lee 2020,
 * arXiv:2001.03288, compare the strategies).
 */
#include "config.h"

#include "partitioner/program/memplan.h"

#include "base/error.h"
#include "base/size.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static size_t padded(const struct merak_life *life)
{
    return merak_size_align(life->bytes, MERAK_ALIGN);
}

static bool lives_overlap(const struct merak_life *a,
                          const struct merak_life *b)
{
    int i = 0, j = 0;

    if (a->n_spans == 0 || b->n_spans == 0 ||
        a->span[a->n_spans - 1].last < b->span[0].first ||
        b->span[b->n_spans - 1].last < a->span[0].first)
        return false;
    while (i < a->n_spans && j < b->n_spans) {
        if (a->span[i].last < b->span[j].first)
            i++;
        else if (b->span[j].last < a->span[i].first)
            j++;
        else
            return true;
    }
    return false;
}

static int larger_first(const void *a, const void *b)
{
    const struct merak_life *x = *(struct merak_life *const *)a;
    const struct merak_life *y = *(struct merak_life *const *)b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y; /* a stable order: plans are reproducible */
}

/* --- placed buffers ------------------------------------------------------- */

#define WORD 64
#define MOST_WORDS ((size_t)8 << 20) /* of all buffers together */

/* A bit for each period of the program in which a buffer lives. */
struct placed {
    const struct merak_life *life;
    const uint64_t *when; /* words of the row that are not 0: */
    int first, last;
};

/* Rows of periods, one per buffer.  A period is one instruction where there is
 * room for that; else a few, and a shared bit says nothing for sure. */
struct periods {
    int64_t span; /* instructions in a period */
    size_t words; /* of a row */
    uint64_t *row;
};

static int64_t last_moment(const struct merak_life *lives, int n)
{
    int64_t last = 0;

    for (int i = 0; i < n; i++) {
        if (lives[i].n_spans > 0 &&
            lives[i].span[lives[i].n_spans - 1].last > last)
            last = lives[i].span[lives[i].n_spans - 1].last;
    }
    return last;
}

static bool periods_init(struct periods *p, const struct merak_life *lives,
                         int n)
{
    int64_t moments = last_moment(lives, n) + 1, most;

    most = (int64_t)(MOST_WORDS / ((size_t)n + 1)) * WORD;
    most = most < WORD ? WORD : most;
    p->span = (moments + most - 1) / most;
    p->words = (size_t)((moments / p->span + WORD) / WORD);
    p->row = calloc(((size_t)n + 1) * p->words, sizeof(*p->row));
    return p->row != NULL;
}

/* Set bits [from, to]. */
static void mark(uint64_t *when, int64_t from, int64_t to)
{
    for (int64_t i = from / WORD; i <= to / WORD; i++) {
        uint64_t bits = UINT64_MAX;

        if (i == from / WORD)
            bits &= UINT64_MAX << from % WORD;
        if (i == to / WORD)
            bits &= UINT64_MAX >> (WORD - 1 - to % WORD);
        when[i] |= bits;
    }
}

static struct placed place_in_time(const struct periods *p, int row,
                                   const struct merak_life *life)
{
    uint64_t *when = p->row + (size_t)row * p->words;
    struct placed now = {.life = life, .when = when, .last = -1};

    for (int i = 0; i < life->n_spans; i++)
        mark(when, life->span[i].first / p->span,
             life->span[i].last / p->span);
    if (life->n_spans > 0) {
        now.first = (int)(life->span[0].first / p->span / WORD);
        now.last =
            (int)(life->span[life->n_spans - 1].last / p->span / WORD);
    }
    return now;
}

/* Do both live at some time? */
static bool meet(const struct periods *p, const struct placed *a,
                 const struct placed *b)
{
    int to = a->last < b->last ? a->last : b->last;

    for (int i = a->first > b->first ? a->first : b->first; i <= to; i++) {
        if ((a->when[i] & b->when[i]) != 0)
            return p->span == 1 || lives_overlap(a->life, b->life);
    }
    return false;
}

/* The smallest gap between placed buffers that live at the same time; placed[]
 * is sorted by offset. */
static size_t best_gap(const struct periods *periods, const struct placed *now,
                       const struct placed *placed, int n)
{
    size_t need = padded(now->life), end = 0, best = 0, best_size = SIZE_MAX;

    /* No gap is smaller than one that fits exactly. */
    for (int i = 0; i < n && best_size > need; i++) {
        const struct merak_life *p = placed[i].life;

        if (!meet(periods, now, &placed[i]))
            continue;
        if (p->offset >= end + need && p->offset - end < best_size) {
            best = end;
            best_size = p->offset - end;
        }
        if (p->offset + padded(p) > end)
            end = p->offset + padded(p);
    }
    return best_size == SIZE_MAX ? end : best;
}

/* After those at the same offset. */
static void insert_by_offset(struct placed *placed, int n,
                             const struct placed *now)
{
    int lo = 0, hi = n;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;

        if (placed[mid].life->offset > now->life->offset)
            hi = mid;
        else
            lo = mid + 1;
    }
    memmove(&placed[lo + 1], &placed[lo], (size_t)(n - lo) * sizeof(*placed));
    placed[lo] = *now;
}

enum merak_status merak_memplan(struct merak_life *lives, int n,
                                size_t *bytes_p, struct merak_error *err)
{
    size_t count = (size_t)n + 1, bytes = 0;
    struct merak_life **order = calloc(count, sizeof(struct merak_life *));
    struct placed *placed = calloc(count, sizeof(*placed));
    struct periods periods = {0};

    if (order == NULL || placed == NULL || !periods_init(&periods, lives, n)) {
        free(order);
        free(placed);
        return merak_fail_nomem(err, count * sizeof(*placed));
    }
    for (int i = 0; i < n; i++)
        order[i] = &lives[i];
    qsort(order, (size_t)n, sizeof(struct merak_life *), larger_first);
    for (int i = 0; i < n; i++) {
        struct placed now = place_in_time(&periods, i, order[i]);

        order[i]->offset = best_gap(&periods, &now, placed, i);
        insert_by_offset(placed, i, &now);
        if (order[i]->offset + padded(order[i]) > bytes)
            bytes = order[i]->offset + padded(order[i]);
    }
    free(order);
    free(placed);
    free(periods.row);
    *bytes_p = bytes;
    return MERAK_OK;
}
