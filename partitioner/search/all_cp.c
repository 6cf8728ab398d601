/* SPDX-License-Identifier: Apache-2.0 */
/* all_cp.c - the best plan of all degrees of context parallelism
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include "base/clock.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>

/* Sequences of so many tokens are worth cutting; shorter ones only if memory is
 * short. */
#define LONG_SEQUENCE 8192

/* May it pay to cut sequences?  *best: the plan that does not, or NULL. */
static bool may_cut(const struct merak_search_input *input,
                    const struct merak_search_result *best)
{
    return best == NULL || input->seq >= LONG_SEQUENCE ||
           best->choice[0].plan.recompute != MERAK_RECOMPUTE_NONE;
}

/* Take a search's result if it is the best one so far, or as good with less cp.
 */
static void keep_better(struct merak_search_result **best_p,
                        struct merak_search_result *result)
{
    struct merak_search_result *best = *best_p;
    const struct merak_search_choice *old, *now = &result->choice[0];

    if (best == NULL) {
        *best_p = result;
        return;
    }
    old = &best->choice[0];
    best->bound_s = result->bound_s = fmin(best->bound_s, result->bound_s);
    if (old->step_s < now->step_s ||
        (old->step_s == now->step_s && old->plan.cp <= now->plan.cp)) {
        best->n_rated += result->n_rated;
        merak_search_destroy(result);
        return;
    }
    result->n_rated += best->n_rated;
    merak_search_destroy(best);
    *best_p = result;
}

/* The degrees that divide a node: from 1 on, but for long sequences the largest
 * first, which fit soonest. */
static int list_cp(const struct merak_search_input *input, int *cp)
{
    int all = input->ranks_per_node, n = 0;

    for (int i = 1; i <= all; i++) {
        int next = input->seq >= LONG_SEQUENCE ? all + 1 - i : i;

        if (all % next == 0)
            cp[n++] = next;
    }
    return n;
}

/* Search without cp and with every degree of it.  What is left of the time is
 * divided among those still to come; each has half of an equal share. */
enum merak_status merak_search_all_cp(const struct merak_search_input *input,
                                      struct merak_search_result **result_p,
                                      struct merak_error *err)
{
    struct merak_search_result *best = NULL;
    struct merak_search_input one = *input;
    int64_t start_ns = merak_clock_ns();
    enum merak_status rc = MERAK_OK;
    int *cp = calloc((size_t)input->ranks_per_node, sizeof(*cp)), n;

    if (cp == NULL)
        return merak_fail_nomem(err, sizeof(*cp));
    n = list_cp(input, cp);
    for (int i = 0; i < n; i++) {
        struct merak_search_result *result = NULL;
        double passed = (double)(merak_clock_ns() - start_ns) * 1e-9;
        enum merak_status found;

        if (cp[i] > 1 && !may_cut(input, best))
            continue;
        one.pin.cp = cp[i];
        one.pin.given[MERAK_CHOICE_CP] = true;
        if (input->seconds > 0)
            one.seconds = fmax((input->seconds - passed) / (n - i),
                               input->seconds / (2 * n));
        one.refusal = cp[i] == 1 ? input->refusal : NULL;
        found = merak_search_with_cp(&one, &result, cp[i] == 1 ? err : NULL);
        if (found == MERAK_OK)
            keep_better(&best, result);
        else if (cp[i] == 1)
            rc = found;
    }
    free(cp);
    if (best == NULL)
        return rc;
    best->took_s = (double)(merak_clock_ns() - start_ns) * 1e-9;
    *result_p = best;
    return MERAK_OK;
}
