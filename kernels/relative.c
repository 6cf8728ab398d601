/* SPDX-License-Identifier: Apache-2.0 */
/* relative.c - buckets of distances */
#include "config.h"

#include "kernels/relative.h"

#include <math.h>

/* The bucket of a side that a distance is in. */
static size_t bucket_of(const struct merak_relative *r, uint32_t distance,
                        double farthest)
{
    size_t own = r->n / 2, bucket;
    float ratio;

    if (distance < own)
        return distance;
    ratio =
        logf((float)distance / (float)own) / (float)log(farthest / (double)own);
    bucket = own + (size_t)(ratio * (float)(r->n - own));
    return bucket < r->n ? bucket : r->n - 1;
}

/* The least distance whose bucket is `bucket` or later; buckets never decrease
 * with distance.  One that none is in begins where the next one does. */
static uint32_t least(const struct merak_relative *r, size_t bucket,
                      double farthest)
{
    uint32_t from = 0, to = (uint32_t)farthest + 1;

    while (from < to) {
        uint32_t middle = from + (to - from) / 2;

        if (bucket_of(r, middle, farthest) < bucket)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

void merak_relative_set(struct merak_relative *r,
                        const struct merak_attrs *attrs,
                        const struct merak_operand *table, size_t queries,
                        size_t keys)
{
    r->table = table;
    r->both = attrs->f[4] > 0;
    r->n = table->local.dim[0] / (r->both ? 2 : 1);
    r->keys = keys;
    r->lags = queries + keys - 1;
    for (size_t i = 0; i < r->n; i++)
        r->first[i] = least(r, i, attrs->f[3]);
}
