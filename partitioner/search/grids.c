/* SPDX-License-Identifier: Apache-2.0 */
/* grids.c - candidates whose tensor ranks are a grid that is asked for
 *
 * Tensor ranks as x by y cut a linear's weights along both of its sides: each
 * rank sends parts of its input and of its output, of which either may be few.
 * A grid never sends more than the one axis that it contains, but the search
 * over its layouts takes several times as long.  So grids are rated where they
 * may pay: for `--tp-axes auto`, on the tensor degrees and micro-batches of the
 * best plans found without.
 * Source: Singh et al. 2023 (arXiv:2305.13525), sec. IV, without their z, which
 * is ZeRO-3.
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include "base/factors.h"

#include <stddef.h>

#define BEST 3 /* plans whose tensor degrees are tried as grids */

static void rate_grids(struct merak_search *s, const struct merak_plan *like,
                       int n)
{
    struct merak_plan key = *like;

    key.tp_axes = 0;
    while (merak_search_goes_on(s) &&
           merak_factors_next(key.tp, n, &key.tp_axes)) {
        struct merak_table *table[2], *none[2] = {NULL, NULL};
        struct merak_shard_options shards = merak_plan_shards(&key, 0);

        if (merak_shard_check_axes(&shards, NULL) != MERAK_OK)
            continue;
        merak_search_tables(s, &key, table);
        merak_search_rate_tables(s, table, none);
    }
}

/* --- the best plans ------------------------------------------------------- */

static bool has_words(const struct merak_table *table)
{
    for (int i = 0; i < table->n; i++) {
        if (table->segment[i].exchanged > 0)
            return true;
    }
    return false;
}

/* The best candidate whose table is none of these; NULL: no other may gain. */
static const struct merak_table *
next_best(const struct merak_search *s,
          const struct merak_table *const before[BEST], int n)
{
    const struct merak_candidate *best = NULL;

    for (int i = 0; i < s->n_cands; i++) {
        const struct merak_candidate *c = &s->cand[i];
        bool again = c->table->n_shared > 0 || c->table->slices > 1 ||
                     c->plan.tp < 4 || !has_words(c->table);

        for (int k = 0; k < n; k++)
            again =
                again || (before[k]->plan.tp == c->plan.tp &&
                          before[k]->plan.micro_batch == c->plan.micro_batch);
        if (!again && (best == NULL || c->rated_s < best->rated_s))
            best = c;
    }
    return best != NULL ? best->table : NULL;
}

void merak_search_rate_grids(struct merak_search *s)
{
    const struct merak_table *best[BEST];
    int n = 0;

    if (s->in->pin.tp_axes != MERAK_OPTION_AUTO)
        return;
    for (; n < BEST; n++) {
        best[n] = next_best(s, best, n);
        if (best[n] == NULL)
            break;
    }
    for (int i = 0; i < n; i++) {
        for (int axes = 2; axes <= MERAK_MAX_FACTORS; axes++)
            rate_grids(s, &best[i]->plan, axes);
    }
}
