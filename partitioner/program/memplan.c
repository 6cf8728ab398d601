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

#define PERIODS 64 /* bits of struct placed's `when` */

/* Most buffers are short-lived and never live at the same time: one bit per
 * period rules out most of these pairs. */
struct placed {
    uint64_t when;
    const struct merak_life *life;
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

static uint64_t periods_of(const struct merak_life *life, int64_t last)
{
    uint64_t when = 0;

    for (int i = 0; i < life->n_spans; i++) {
        int64_t to = life->span[i].last * PERIODS / (last + 1);

        for (int64_t k = life->span[i].first * PERIODS / (last + 1); k <= to;
             k++)
            when |= UINT64_C(1) << k;
    }
    return when;
}

/* The smallest gap between placed buffers that live at the same time; placed[]
 * is sorted by offset. */
static size_t best_gap(const struct placed *now, const struct placed *placed,
                       int n)
{
    size_t need = padded(now->life), end = 0, best = 0, best_size = SIZE_MAX;

    /* No gap is smaller than one that fits exactly. */
    for (int i = 0; i < n && best_size > need; i++) {
        const struct merak_life *p = placed[i].life;

        if ((placed[i].when & now->when) == 0 || !lives_overlap(now->life, p))
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
    int64_t last = last_moment(lives, n);

    if (order == NULL || placed == NULL) {
        free(order);
        free(placed);
        return merak_fail_nomem(err, count * sizeof(*placed));
    }
    for (int i = 0; i < n; i++)
        order[i] = &lives[i];
    qsort(order, (size_t)n, sizeof(struct merak_life *), larger_first);
    for (int i = 0; i < n; i++) {
        struct placed now = {periods_of(order[i], last), order[i]};

        order[i]->offset = best_gap(&now, placed, i);
        insert_by_offset(placed, i, &now);
        if (order[i]->offset + padded(order[i]) > bytes)
            bytes = order[i]->offset + padded(order[i]);
    }
    free(order);
    free(placed);
    *bytes_p = bytes;
    return MERAK_OK;
}
