/* SPDX-License-Identifier: Apache-2.0 */
/* blend.c - the order in which weighted sources take turns */
#include "config.h"

#include "io/tokens/blend.h"

#include "base/error.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* In turns; decimal weights like 0.7 are off by 1e-16 of the period. */
#define WHOLE_TOLERANCE 1e-9

static bool period_fits(const double *share, size_t n, uint32_t period)
{
    for (size_t k = 0; k < n; k++) {
        double turns = share[k] * period;

        if (turns < 0.5 || fabs(turns - round(turns)) > WHOLE_TOLERANCE)
            return false;
    }
    return true;
}

/* Counts that sum to the longest period, by largest remainder. */
static void round_counts(const double *share, size_t n, uint32_t *count)
{
    uint32_t given = 0;

    for (size_t k = 0; k < n; k++) {
        count[k] = (uint32_t)(share[k] * MERAK_BLEND_MAX_PERIOD);
        given += count[k];
    }
    for (; given < MERAK_BLEND_MAX_PERIOD; given++) {
        double largest = -1.0;
        size_t at = 0;

        for (size_t k = 0; k < n; k++) {
            double rest = share[k] * MERAK_BLEND_MAX_PERIOD - count[k];

            if (rest > largest) {
                largest = rest;
                at = k;
            }
        }
        count[at]++;
    }
}

static enum merak_status set_counts(struct merak_blend *blend,
                                    const double *share,
                                    struct merak_error *err)
{
    uint32_t period = 1;

    while (period < MERAK_BLEND_MAX_PERIOD &&
           !period_fits(share, blend->n, period))
        period++;
    blend->period = period;
    if (!period_fits(share, blend->n, period)) {
        round_counts(share, blend->n, blend->count);
    } else {
        for (size_t k = 0; k < blend->n; k++)
            blend->count[k] = (uint32_t)lround(share[k] * period);
    }
    for (size_t k = 0; k < blend->n; k++) {
        if (blend->count[k] == 0)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "weight %zu of the blend is %g of the whole, "
                              "expected at least 1/%d",
                              k + 1, share[k], MERAK_BLEND_MAX_PERIOD);
    }
    return MERAK_OK;
}

/* had[k]: scratch, zero. */
static void fill_period(struct merak_blend *blend, uint32_t *had)
{
    for (uint32_t i = 0; i < blend->period; i++) {
        int64_t largest = INT64_MIN;
        size_t at = 0;

        for (size_t k = 0; k < blend->n; k++) {
            /* P times the deficit, as an integer. */
            int64_t deficit = (int64_t)blend->count[k] * (i + 1) -
                              (int64_t)had[k] * blend->period;

            if (deficit > largest) {
                largest = deficit;
                at = k;
            }
        }
        blend->source[i] = (uint16_t)at;
        blend->before[i] = (uint16_t)had[at]++;
    }
}

static enum merak_status normalise(const double *weights, size_t n,
                                   double *share, struct merak_error *err)
{
    double sum = 0.0;

    if (n > MERAK_BLEND_MAX_SOURCES)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "a blend of %zu data sets, at most %d can be", n,
                          MERAK_BLEND_MAX_SOURCES);
    for (size_t k = 0; k < n; k++) {
        if (!isfinite(weights[k]) || weights[k] <= 0.0)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "weight %zu of the blend is %g, expected a "
                              "positive number",
                              k + 1, weights[k]);
        sum += weights[k];
    }
    for (size_t k = 0; k < n; k++)
        share[k] = weights[k] / sum;
    return MERAK_OK;
}

enum merak_status merak_blend_init(struct merak_blend *blend,
                                   const double *weights, size_t n,
                                   struct merak_error *err)
{
    struct merak_blend b = {.n = n};
    double *share = calloc(n, sizeof(*share));
    uint32_t *had = calloc(n, sizeof(*had));
    enum merak_status rc;

    b.count = calloc(n, sizeof(*b.count));
    if (share == NULL || had == NULL || b.count == NULL) {
        rc = merak_fail_nomem(err, n * sizeof(*share));
        goto out;
    }
    rc = normalise(weights, n, share, err);
    if (rc == MERAK_OK)
        rc = set_counts(&b, share, err);
    if (rc != MERAK_OK)
        goto out;
    b.source = calloc(b.period, sizeof(*b.source));
    b.before = calloc(b.period, sizeof(*b.before));
    if (b.source == NULL || b.before == NULL) {
        rc = merak_fail_nomem(err, b.period * sizeof(*b.source));
        goto out;
    }
    fill_period(&b, had);
    *blend = b;
    b = (struct merak_blend){0}; /* now owned by the caller */
out:
    merak_blend_fini(&b);
    free(share);
    free(had);
    return rc;
}

void merak_blend_fini(struct merak_blend *blend)
{
    free(blend->count);
    free(blend->source);
    free(blend->before);
}

size_t merak_blend_at(const struct merak_blend *blend, uint64_t index,
                      uint64_t *number_p)
{
    uint64_t rounds = index / blend->period;
    size_t at = (size_t)(index % blend->period);
    size_t k = blend->source[at];

    *number_p = rounds * blend->count[k] + blend->before[at];
    return k;
}
