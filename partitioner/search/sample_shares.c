/* SPDX-License-Identifier: Apache-2.0 */
/* sample_shares.c - candidates whose tensor ranks split samples
 *
 * Layers split by samples (and tables by columns) are considered if the search
 * over layouts finds them cheaper and some weights stay split over tensor
 * ranks: with next to none it would be plain data parallelism, which other
 * degrees already cover.  For a small model no estimate is trusted, and all are
 * rated.
 *
 * The whole model is tried first, then, if memory is too small for that, its
 * latter half: late stages of a pipeline hold fewer activations and have room
 * for whole weights.
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include <float.h>

#define MIN_SAVED 0.01 /* of a layout's seconds */
/* Of the weights, the fraction that stays split over tensor ranks. */
#define MIN_SPLIT 0.05

bool merak_search_may_pay(const struct merak_search *s,
                          const struct merak_plan *key,
                          const struct merak_sharded *sharded)
{
    if (key->tp_batch_percent == 0 || s->in->pin.given[MERAK_CHOICE_TP_BATCH])
        return true;
    return sharded->saved > 0 &&
           (merak_search_is_small(s) ||
            (sharded->saved >= MIN_SAVED &&
             merak_sharded_split_fraction(sharded) >= MIN_SPLIT));
}

/* Rate with samples split in `percent` of the model, with larger micro-batches
 * until two in a row bring nothing; twice as large ones while they are hopeless
 * beside other plans.  False if there is no table to rate with.
 * At 100 percent sequences are not split: the search over layouts then finds
 * nearly the same result sooner. */
static bool rate_samples(struct merak_search *s, int tp, int percent)
{
    const struct merak_choices *pin = &s->in->pin;
    struct merak_table *table[2] = {NULL, NULL}, *none[2] = {NULL, NULL};
    struct merak_plan key = merak_search_key(s, tp, 0);
    double before = DBL_MAX;
    int first = s->n_cands, all = first + s->n_bigs;
    bool rated = false;

    key.tp_batch_percent = percent;
    if (percent == 100 && !merak_search_is_small(s) &&
        !pin->given[MERAK_CHOICE_SP])
        key.sp = MERAK_SP_OFF;
    if (pin->given[MERAK_CHOICE_BRANCHES] &&
        pin->branches != MERAK_BRANCHES_AUTO)
        key.branches = pin->branches;
    for (size_t b = (size_t)tp, more = b, no_gain = 0;
         b <= s->in->global_batch && no_gain < 2 && merak_search_goes_on(s);
         b += more) {
        more = (size_t)tp;
        if (!merak_search_is_size(s, tp, b))
            continue;
        key.micro_batch = b;
        merak_search_tables(s, &key, table);
        if (table[0] == NULL && table[1] == NULL && !merak_search_is_small(s))
            break;
        rated = true;
        merak_search_rate_tables(s, table, none);
        if (s->n_cands + s->n_bigs == all) {
            more = b;
            continue;
        }
        no_gain = merak_search_shortest(s, first) < before ? 0 : no_gain + 1;
        before = merak_search_shortest(s, first);
    }
    return rated;
}

void merak_search_rate_samples(struct merak_search *s, int tp)
{
    int first = s->n_cands;
    bool rated = rate_samples(s, tp, 100);

    if (merak_search_is_small(s) || (rated && s->n_cands == first))
        rate_samples(s, tp, 50);
}
