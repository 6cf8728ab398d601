/* SPDX-License-Identifier: Apache-2.0 */
/* fewest.c - with ZeRO-3, how few blocks are fetched
 *
 * What is fetched is sent again for each use, and may have to be waited for.
 * So where a plan that fetches all blocks leaves memory, one that fetches the
 * fewest that fit, with the same cut and drops, is a candidate, too: which of
 * the two is faster their programs show.
 */
#include "config.h"

#include "partitioner/search/need.h"
#include "partitioner/search/search_impl.h"

#include "base/bisect.h"

#include <string.h>

static int most_blocks(const struct merak_rater *r)
{
    int most = 0;

    for (int p = 0; p < r->chain; p++)
        most = r->range[p].n_blocks > most ? r->range[p].n_blocks : most;
    return most;
}

/* The fewest first blocks of each part with which the candidate, whose plan
 * the rater has, takes `limit` bytes; 0: all are. */
static int fewest(struct merak_rater *r, struct merak_candidate *cand,
                  double limit)
{
    int *fetch = &cand->plan.fetch, most = most_blocks(r), stage;

    MERAK_BISECT(*fetch, 1, most, merak_stages_need(r, &stage) <= limit);
    return *fetch >= most ? 0 : *fetch;
}

/* Rate it, with the drops that it has. */
static enum merak_status rate(struct merak_search *s,
                              struct merak_candidate *cand, double limit)
{
    struct merak_rater rater;
    enum merak_status rc;

    cand->plan.fetch = 1; /* some */
    rc = merak_rater_init(&rater, &s->cost, cand, 0, s->err);
    if (rc == MERAK_OK) {
        rater.fixed = true;
        memcpy(rater.drop, cand->drop,
               (size_t)rater.parts * sizeof(*cand->drop));
        merak_rate(&rater, cand->bound, NULL, NULL, NULL);
        cand->plan.fetch = fewest(&rater, cand, limit);
        if (cand->plan.fetch > 0)
            cand->rated_s = merak_rate(&rater, cand->bound, cand->part_s,
                                       &cand->bytes, &cand->stage);
    }
    merak_rater_fini(&rater);
    return rc;
}

bool merak_search_fewest(struct merak_search *s,
                         const struct merak_candidate *like, double limit,
                         struct merak_candidate *fewer)
{
    if (s->in->pin.given[MERAK_CHOICE_FETCH] ||
        like->plan.zero < MERAK_ZERO_PARAMS ||
        !merak_search_copy(s, like, fewer))
        return false;
    fewer->step_s = fewer->arena = 0;
    fewer->settled = false;
    s->rc = rate(s, fewer, limit);
    return s->rc == MERAK_OK && fewer->plan.fetch > 0;
}
