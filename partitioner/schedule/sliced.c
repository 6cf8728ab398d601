/* SPDX-License-Identifier: Apache-2.0 */
/* sliced.c - 1F1B over slices of sequences
 *
 * A causal model can run a sequence in K slices, each reading the keys and
 * values of those before it; the pipeline then fills and drains in slices.
 * Stage s of p has K + p - 1 - s slices in flight, 1 + (p - 1 - s)/K
 * micro-batches: less than 1F1B.  With slices that take equal times t/K the
 * step takes (m + (p - 1)/K) t.  Attention of i tokens after j takes
 * i (2j + i) c, all else i b: where attention is a large share P = cT/(b + cT)
 * of the time of T tokens, slices of equal length take longer and longer, and
 * it is the last one that the pipeline fills and drains with.  Those of equal
 * time end where (1 - P) x T + P x^2 is k/K of T^2; they are multiples of
 * UNIT tokens, and the arithmetic is of integers, so that all ranks cut alike.
 * Gradients are summed in descending order of slices within a micro-batch.
 * Source: Li et al. 2021 (TeraPipe, arXiv:2102.07988), whose order is all
 * forwards, then all backwards.
 */
#include "config.h"

#include "partitioner/schedule/kinds.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Tokens: what kernels like to be given; and how much longer the mean slice is,
 * at least. */
enum { UNIT = 16, LEAST_UNITS = 4 };
#define MOST_UNITS ((size_t)1 << 22) /* the integers below fit in 64 bits */

/* "sliced:N" or "sliced:N/P"; percent is -1 without one. */
static bool parse(const char *name, int *slices, int *percent)
{
    char *end;
    long n, p = -1;

    if (strncmp(name, "sliced:", 7) != 0 || !isdigit((unsigned char)name[7]))
        return false;
    n = strtol(name + 7, &end, 10);
    if (end[0] == '/' && isdigit((unsigned char)end[1])) {
        p = strtol(end + 1, &end, 10);
        if (p > 100)
            return false;
    }
    *slices = (int)n;
    *percent = (int)p;
    return *end == '\0' && n > 0 && n <= MERAK_MAX_SLICES;
}

int merak_schedule_slices(const char *name)
{
    int slices, percent;

    return parse(name, &slices, &percent) ? slices : 0;
}

/* 100 / T of the time of the first x of T units, in that of one of them. */
static uint64_t prefix(uint64_t x, uint64_t t, uint64_t percent)
{
    return (100 - percent) * x * t + percent * x * x;
}

/* The end of slice k of n, from 1, that follows `before`: what is nearest to
 * k/n of the time, and leaves a unit for each slice after it. */
static uint64_t end_of(uint64_t before, uint64_t t, uint64_t percent,
                       uint64_t k, uint64_t n)
{
    uint64_t want = k * prefix(t, t, percent), x = before + 1;

    while (x < t - (n - k) &&
           n * (prefix(x, t, percent) + prefix(x + 1, t, percent)) < 2 * want)
        x++;
    return x;
}

bool merak_schedule_slice(const char *name, size_t seq, size_t *at)
{
    int n, percent;
    size_t unit = 1, t;

    if (!parse(name, &n, &percent))
        return false;
    if (percent >= 0 && seq % UNIT == 0 &&
        seq / UNIT / LEAST_UNITS >= (size_t)n)
        unit = UNIT;
    t = seq / unit;
    if (percent < 0 ? seq % (size_t)n != 0 : t < (size_t)n || t > MOST_UNITS)
        return false;
    if (at == NULL)
        return true;
    at[0] = 0;
    for (int k = 1; k <= n; k++) {
        if (percent < 0)
            at[k] = seq / (size_t)n * (size_t)k;
        else
            at[k] = unit * end_of(at[k - 1] / unit, t, (uint64_t)percent,
                                  (uint64_t)k, (uint64_t)n);
    }
    return true;
}

static void sliced_fill(const struct merak_schedule_args *args,
                        struct merak_action *actions)
{
    merak_schedule_warmup_fill(
        args, args->slices + args->stages - 1 - args->stage, actions);
}

/* 1f1b over slices of sequences (causal models); bubble 1/slices */
const struct merak_schedule merak_schedule_sliced = {
    .name = "sliced",
    .max_chunks = 1,
    .takes_slices = true,
    .count = merak_schedule_pairs,
    .fill = sliced_fill,
};
