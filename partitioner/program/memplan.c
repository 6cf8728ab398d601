/* SPDX-License-Identifier: Apache-2.0 */
/* memplan.c - buffers into an arena, by when they are needed
 *
 * Greedy by size with best fit: within a few per cent of the peak on
 * training programs, whose large buffers have nested lives (Pisarchyk and
 * Lee 2020, arXiv:2001.03288, compare the strategies).
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

static bool lives_meet(const struct merak_life *a, const struct merak_life *b)
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

/* The smallest gap between placed neighbours in time; placed[] is sorted by
 * offset. */
static size_t best_gap(const struct merak_life *life,
                       struct merak_life *const *placed, int n)
{
    size_t need = padded(life), end = 0, best = 0, best_size = SIZE_MAX;

    for (int i = 0; i < n; i++) {
        const struct merak_life *p = placed[i];

        if (!lives_meet(life, p))
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

static void insert_by_offset(struct merak_life **placed, int n,
                             struct merak_life *life)
{
    int at = n;

    while (at > 0 && placed[at - 1]->offset > life->offset)
        at--;
    memmove(&placed[at + 1], &placed[at], (size_t)(n - at) * sizeof(*placed));
    placed[at] = life;
}

enum merak_status merak_memplan(struct merak_life *lives, int n,
                                size_t *bytes_p, struct merak_error *err)
{
    size_t count = (size_t)n + 1, bytes = 0;
    struct merak_life **order = calloc(2 * count, sizeof(struct merak_life *));
    struct merak_life **placed = order + count;

    if (order == NULL)
        return merak_fail_nomem(err, 2 * count * sizeof(*order));
    for (int i = 0; i < n; i++)
        order[i] = &lives[i];
    qsort(order, (size_t)n, sizeof(struct merak_life *), larger_first);
    for (int i = 0; i < n; i++) {
        order[i]->offset = best_gap(order[i], placed, i);
        insert_by_offset(placed, i, order[i]);
        if (order[i]->offset + padded(order[i]) > bytes)
            bytes = order[i]->offset + padded(order[i]);
    }
    free(order);
    *bytes_p = bytes;
    return MERAK_OK;
}
