/* SPDX-License-Identifier: Apache-2.0 */
/* memplan.c - places buffers in an arena by their lifetimes
 *
 * Greedy by size with best fit: within a few percent of the peak on training
 * programs, whose large buffers have nested lifetimes (Pisarchyk and Lee 2020,
 * arXiv:2001.03288, compare the strategies).
 */
#include "config.h"

#include "partitioner/program/memplan.h"

#include "base/arrays.h"
#include "base/bisect.h"
#include "base/error.h"
#include "base/size.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LOOK 256 /* buffers after which the deadline is looked at again */

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

/* A bit for each period of the program in which a buffer lives, and a bit for
 * each word of these that is not 0. */
struct placed {
    const struct merak_life *life;
    const uint64_t *when, *words;
    size_t end; /* where it ends in the arena */
};

/* Buffers that have a place, by offset.  A buffer meets few of them, so which
 * parts of the program each lives in lies by itself, a bit for each of WORD
 * parts: most are passed over without looking at them. */
struct all_placed {
    struct placed *at;
    uint64_t *parts;
    int n;
};

/* Rows of periods, one per buffer.  A period is one instruction where there is
 * room for that; else a few, and a shared bit says nothing for sure. */
struct periods {
    int64_t span; /* instructions in a period */
    int64_t part; /* instructions in a part */
    size_t words; /* of a row; bits for them are in */
    size_t marks; /* more words, in front of them */
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
    p->part = (moments + WORD - 1) / WORD;
    p->marks = (p->words + WORD - 1) / WORD;
    p->row = calloc(((size_t)n + 1) * (p->marks + p->words), sizeof(*p->row));
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
    uint64_t *words = p->row + (size_t)row * (p->marks + p->words);
    uint64_t *when = words + p->marks;

    for (int i = 0; i < life->n_spans; i++) {
        int64_t first = life->span[i].first / p->span;
        int64_t last = life->span[i].last / p->span;

        mark(when, first, last);
        mark(words, first / WORD, last / WORD);
    }
    return (struct placed){.life = life, .when = when, .words = words};
}

static uint64_t parts_of(const struct periods *p, const struct merak_life *life)
{
    uint64_t parts = 0;

    for (int i = 0; i < life->n_spans; i++)
        mark(&parts, life->span[i].first / p->part,
             life->span[i].last / p->part);
    return parts;
}

/* Do both live at some time?  Lives are many and brief: most words are 0. */
static bool meet(const struct periods *p, const struct placed *a,
                 const struct placed *b)
{
    for (size_t m = 0; m < p->marks; m++) {
        uint64_t both = a->words[m] & b->words[m];

        for (; both != 0; both &= both - 1) {
            size_t i = m * WORD + (size_t)__builtin_ctzll(both);

            if ((a->when[i] & b->when[i]) != 0)
                return p->span == 1 || lives_overlap(a->life, b->life);
        }
    }
    return false;
}

/* The first placed buffer from i on that lives in one of these parts. */
static int next_in(const struct all_placed *placed, uint64_t parts, int i)
{
    while (i < placed->n && (placed->parts[i] & parts) == 0)
        i++;
    return i;
}

/* The smallest gap between placed buffers that live at the same time. */
static size_t best_gap(const struct periods *periods, const struct placed *now,
                       uint64_t parts, const struct all_placed *placed)
{
    size_t need = padded(now->life), end = 0, best = 0, best_size = SIZE_MAX;

    /* No gap is smaller than one that fits exactly. */
    for (int i = next_in(placed, parts, 0); i < placed->n && best_size > need;
         i = next_in(placed, parts, i + 1)) {
        const struct placed *p = &placed->at[i];
        size_t offset = p->life->offset;

        /* one beside those before it ends no gap */
        if (p->end <= end || !meet(periods, now, p))
            continue;
        if (offset >= end + need && offset - end < best_size) {
            best = end;
            best_size = offset - end;
        }
        end = p->end;
    }
    return best_size == SIZE_MAX ? end : best;
}

/* After those at the same offset. */
static void insert_by_offset(struct all_placed *placed,
                             const struct placed *now, uint64_t parts)
{
    struct placed *at = placed->at;
    size_t behind;
    int i;

    MERAK_BISECT(i, 0, placed->n, at[i].life->offset > now->life->offset);
    behind = (size_t)(placed->n - i);
    memmove(&at[i + 1], &at[i], behind * sizeof(*at));
    memmove(&placed->parts[i + 1], &placed->parts[i],
            behind * sizeof(*placed->parts));
    at[i] = *now;
    placed->parts[i] = parts;
    placed->n++;
}

enum merak_status merak_memplan(struct merak_life *lives, int n,
                                const struct merak_deadline *deadline,
                                size_t *bytes_p, struct merak_error *err)
{
    size_t count = (size_t)n + 1, bytes = 0;
    struct merak_life **order;
    struct all_placed placed = {0};
    struct periods periods = {0};
    const struct merak_array arrays[] = {MERAK_ARRAY(order, count),
                                         MERAK_ARRAY(placed.at, count),
                                         MERAK_ARRAY(placed.parts, count)};
    enum merak_status rc = MERAK_ARRAYS(arrays, err);

    if (rc != MERAK_OK)
        return rc;
    if (!periods_init(&periods, lives, n)) {
        free(order);
        return merak_fail_nomem(err, count * sizeof(*placed.at));
    }
    for (int i = 0; i < n; i++)
        order[i] = &lives[i];
    qsort(order, (size_t)n, sizeof(struct merak_life *), larger_first);
    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        struct placed now = place_in_time(&periods, i, order[i]);
        uint64_t parts = parts_of(&periods, order[i]);

        order[i]->offset = best_gap(&periods, &now, parts, &placed);
        now.end = order[i]->offset + padded(order[i]);
        insert_by_offset(&placed, &now, parts);
        if (now.end > bytes)
            bytes = now.end;
        if (i % LOOK == 0 && merak_deadline_is_past(deadline))
            rc = MERAK_ERR_TIMEOUT;
    }
    free(order);
    free(periods.row);
    *bytes_p = bytes;
    return rc;
}
