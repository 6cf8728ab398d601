/* SPDX-License-Identifier: Apache-2.0 */
/* means.c - the best plan of all ways to have again what stages drop
 *
 * With --offload auto each part recomputes some of what it drops and has the
 * rest copied, as much as the table says saves time (keeps.c).  Programs may
 * say otherwise, and then other plans are best.  So plans that only recompute,
 * and plans that only copy, are searched for, too, unless none of those that
 * were rated drops anything: the step is never longer than with one of both
 * given.
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include "base/clock.h"

#include <math.h>

bool merak_search_may_offload(const struct merak_search *s,
                              struct merak_search_input *away)
{
    *away = *s->in;
    away->pin.offload = s->in->pin.offload == MERAK_OFFLOAD_AUTO
                            ? MERAK_OFFLOAD_AUTO_ALL
                            : MERAK_OFFLOAD_STATE;
    return !s->in->pin.given[MERAK_CHOICE_OFFLOAD] &&
           (s->in->most_s == 0 || s->n_cands == 0) &&
           s->cost.host.bytes_per_s > 0;
}

/* The same search with one way given, in its share of the time; state may be
 * the host's if nothing fits otherwise. */
static void search_one(const struct merak_search_input *input,
                       enum merak_offload offload, int64_t start_ns, int left,
                       struct merak_search_result **best_p)
{
    struct merak_search_input one = *input;
    struct merak_search_result *result = NULL;
    struct merak_refusal why = {.need = 0};

    one.pin.offload = offload;
    one.brief = true;
    one.refusal = &why;
    if (input->seconds > 0)
        one.seconds = (input->seconds - merak_clock_since_s(start_ns)) / left;
    if (one.seconds < 0 ||
        merak_search_given_means(&one, &result, NULL) != MERAK_OK)
        return;
    (*best_p)->n_rated += result->n_rated;
    if (result->choice[0].step_s < (*best_p)->choice[0].step_s) {
        result->n_rated = (*best_p)->n_rated;
        merak_search_destroy(*best_p);
        *best_p = result;
    } else {
        merak_search_destroy(result);
    }
}

enum merak_status merak_search_all_means(const struct merak_search_input *input,
                                         struct merak_search_result **result_p,
                                         struct merak_error *err)
{
    const bool all =
        input->pin.offload == MERAK_OFFLOAD_AUTO && input->most_s == 0;
    struct merak_search_input mixed = *input;
    int64_t start_ns = merak_clock_ns();
    double bound_s;
    enum merak_status rc;

    if (all)
        mixed.seconds /= 2;
    rc = merak_search_given_means(&mixed, result_p, err);
    if (rc != MERAK_OK || !all || !(*result_p)->drops)
        return rc;
    bound_s = (*result_p)->bound_s; /* of all of them */
    search_one(input, MERAK_OFFLOAD_NONE, start_ns, 2, result_p);
    search_one(input, MERAK_OFFLOAD_ACTS, start_ns, 1, result_p);
    (*result_p)->bound_s = fmin((*result_p)->bound_s, bound_s);
    (*result_p)->took_s = merak_clock_since_s(start_ns);
    return rc;
}
