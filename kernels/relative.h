/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/relative.h - biases of attention by distance
 *
 * What is added to the score of a query and a key is a number of a table, by
 * the query's head and the bucket of the distance, key minus query.  A side has
 * n buckets: the first n / 2 have a distance each, from 0 on, and distance d
 * from there on is in
 *
 *     n / 2 + floor(n / 2 log(d / (n / 2)) / log(farthest / (n / 2))),
 *
 * at most n - 1; logarithms and quotients are f32.  Both ways, keys up to the
 * query's own have the first half of the table and keys after it the second;
 * one way, those after it are at distance 0.  (Raffel et al. 2020,
 * arXiv:1910.10683, sec. 2.1; buckets as in its published code.)
 */
#ifndef MERAK_KERNELS_RELATIVE_H
#define MERAK_KERNELS_RELATIVE_H

#include "merak/op.h"

struct merak_relative {
    const struct merak_operand *table; /* [N, G, R]; NULL: there is none */
    const struct merak_operand *sums;  /* f32 [B, N, G, R], gradients of scores
                                          by bucket; of the _dx form only */
    bool both;
    size_t n;    /* buckets of a side */
    size_t keys; /* T; lags, query minus key, are counted from 1 - T on */
    size_t lags; /* how many there are for all queries and keys of a sequence */
    uint32_t first[MERAK_MAX_BUCKETS]; /* the least distance of each bucket */
};

/* Buckets of the call's attributes and table, for so many queries and keys. */
void merak_relative_set(struct merak_relative *r,
                        const struct merak_attrs *attrs,
                        const struct merak_operand *table, size_t queries,
                        size_t keys);
/* The row of the table for lag number `lag`. */
MERAK_POSITION_FN size_t merak_relative_bucket(const struct merak_relative *r,
                                               size_t lag)
{
    size_t own = r->keys - 1,
           bucket = r->n - 1; /* the lag of equal positions */
    size_t distance = lag > own ? lag - own : r->both ? own - lag : 0;

    while (r->first[bucket] > distance)
        bucket--;
    return lag < own && r->both ? r->n + bucket : bucket;
}

/* The number of a query and a key among the lags. */
static inline size_t merak_lag(const struct merak_relative *r, size_t query,
                               size_t key)
{
    return query + r->keys - 1 - key;
}

/* The element of the table, or of a sample's sums, for a bucket and head h. */
static inline size_t merak_relative_at(const struct merak_relative *r,
                                       size_t bucket, size_t h)
{
    const size_t *dim = r->table->local.dim;

    return bucket * dim[1] * dim[2] + h;
}

#endif
