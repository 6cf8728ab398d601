/* SPDX-License-Identifier: Apache-2.0 */
/* all_cp.c - the best plan of all degrees of context parallelism, and of those
 * of tensor parallelism beside one with which a group leaves a node
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include "partitioner/graph/letters.h"

#include "base/clock.h"
#include "base/error.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Of the time, to find a plan; the rest is for saying why there is none. */
#define FIND_SHARE 0.75
/* Of what is left, for the next of several tensor degrees beside a cp. */
#define NEAR_SHARE 0.6

/* May it pay to cut sequences, or, where there are none, space?  *best: the plan
 * that does not, or NULL. */
static bool may_cut(const struct merak_search_input *input,
                    const struct merak_search_result *best)
{
    return best == NULL || input->seq >= MERAK_SEARCH_LONG ||
           best->choice[0].plan.recompute != MERAK_RECOMPUTE_NONE ||
           (best->choice[0].cuts.letter != 0 &&
            best->choice[0].cuts.letter != MERAK_LETTER_POSITIONS);
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
    best->cut_short = result->cut_short = best->cut_short || result->cut_short;
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
    int all = merak_search_node(input), n = 0;

    for (int i = 1; i <= all; i++) {
        int next = input->seq >= MERAK_SEARCH_LONG ? all + 1 - i : i;

        if (all % next == 0)
            cp[n++] = next;
    }
    return n;
}

/* If none of these has a plan: the fewest nodes that sequences are cut over
 * whole; 0: no more. */
static int next_over_nodes(const struct merak_search_input *input, int cp)
{
    int node = merak_search_node(input);
    int all = input->nodes * input->ranks_per_node / node;

    for (int nodes = cp / node + 1; nodes <= all; nodes++) {
        if (all % nodes == 0 && nodes > 1)
            return nodes * node;
    }
    return 0;
}

/* A search with one degree of cp for as long as that. */
static struct merak_search_input with_cp(const struct merak_search_input *input,
                                         int cp, double seconds)
{
    struct merak_search_input one = *input;

    one.pin.cp = cp;
    one.pin.given[MERAK_CHOICE_CP] = true;
    one.any_cp = true;
    one.seconds = input->seconds > 0 ? seconds : 0;
    return one;
}

/* Why there is none with the degree that needs least memory, or, if memory is
 * not what binds, without cp. */
static enum merak_status refuse(const struct merak_search_input *input,
                                int64_t start_ns, int least_cp,
                                struct merak_search_result **result_p,
                                struct merak_error *err)
{
    struct merak_search_input one =
        with_cp(input, least_cp,
                fmax(input->seconds - merak_clock_since_s(start_ns),
                     (1 - FIND_SHARE) * input->seconds));

    enum merak_status rc = merak_search_all_means(&one, result_p, err);

    if (rc == MERAK_OK) /* with more time there is one after all */
        (*result_p)->took_s = merak_clock_since_s(start_ns);
    return rc;
}

/* No sequence fits that is cut over ranks of a node: cut it over more. */
static struct merak_search_result *
over_nodes(const struct merak_search_input *input, int64_t start_ns)
{
    struct merak_search_result *found = NULL;

    for (int cp = next_over_nodes(input, 0); found == NULL && cp > 0;
         cp = next_over_nodes(input, cp)) {
        double left =
            FIND_SHARE * input->seconds - merak_clock_since_s(start_ns);
        struct merak_search_input one = with_cp(input, cp, left);

        one.brief = true;
        if ((input->seconds > 0 && left <= 0) ||
            merak_search_all_means(&one, &found, NULL) != MERAK_OK)
            found = NULL;
    }
    return found;
}

/* --- tensor parallelism beside it ------------------------------------------
 */

/* May more tensor ranks beside this cp than a node has room for pay?  Which
 * they are is otherwise free. */
static bool may_leave(const struct merak_search_input *input)
{
    return input->pin.tp == 0 && input->pin.tp_axes <= 0 &&
           input->pin.ep <= 1 && input->pin.cp > 1 &&
           input->seq >= MERAK_SEARCH_LONG && !merak_search_leaves_node(input);
}

/* The next smaller tp whose groups fill nodes that cp's leave, which take least
 * memory; 0: no more. */
static int next_far(const struct merak_search_input *input, int tp)
{
    while (--tp > 1) {
        struct merak_search_input one = *input;

        one.pin.tp = tp;
        if (merak_search_leaves_node(&one) &&
            merak_search_fills_nodes(&one, tp))
            return tp;
    }
    return 0;
}

static int count_far(const struct merak_search_input *input)
{
    int n = 0;

    for (int tp = next_far(input, merak_search_node(input) + 1); tp > 0;
         tp = next_far(input, tp))
        n++;
    return n;
}

/* Also search with each of these; *best_p: the best plan so far, or NULL.  The
 * larger ones, which come first, have most of the time that is left. */
static void try_far(const struct merak_search_input *input, int64_t start_ns,
                    struct merak_search_result **best_p)
{
    int n = may_leave(input) ? count_far(input) : 0;
    int tp = merak_search_node(input) + 1;

    for (; n > 0 && (input->most_s == 0 || *best_p == NULL); n--) {
        struct merak_search_input one = *input;
        struct merak_search_result *result = NULL;
        struct merak_refusal why = {.need = 0};

        tp = next_far(input, tp);
        one.pin.tp = tp;
        one.any_cp = one.brief = true;
        one.refusal = &why;
        one.known_s = *best_p != NULL ? (*best_p)->choice[0].step_s : 0;
        if (input->seconds > 0)
            one.seconds = (input->seconds - merak_clock_since_s(start_ns)) *
                          (n > 1 ? NEAR_SHARE : 1);
        if ((input->seconds == 0 || one.seconds > 0) &&
            !merak_stop_is_set(input->stop) &&
            merak_search_all_means(&one, &result, NULL) == MERAK_OK)
            keep_better(best_p, result);
    }
}

enum merak_status merak_search_given_cp(const struct merak_search_input *input,
                                        struct merak_search_result **result_p,
                                        struct merak_error *err)
{
    struct merak_search_input near = *input;
    struct merak_search_result *best = NULL;
    int64_t start_ns = merak_clock_ns();
    enum merak_status rc;

    if (!may_leave(input) || count_far(input) == 0)
        return merak_search_all_means(input, result_p, err);
    near.seconds *= NEAR_SHARE;
    rc = merak_search_all_means(&near, &best, err);
    if (rc != MERAK_OK && rc != MERAK_ERR_CONFIG)
        return rc;
    try_far(input, start_ns, &best);
    if (best == NULL)
        return rc;
    best->took_s = merak_clock_since_s(start_ns);
    *result_p = best;
    return MERAK_OK;
}

/* --- all of them ---------------------------------------------------------- */

/* Search without cp and with every degree of it.  What is left of the time is
 * divided among those still to come; each has half of an equal share. */
enum merak_status merak_search_all_cp(const struct merak_search_input *input,
                                      struct merak_search_result **result_p,
                                      struct merak_error *err)
{
    struct merak_search_result *best = NULL;
    int64_t start_ns = merak_clock_ns();
    int *cp = calloc((size_t)merak_search_node(input), sizeof(*cp)), n;
    double least = DBL_MAX;
    int least_cp = 1, far;

    if (cp == NULL)
        return merak_fail_nomem(err, sizeof(*cp));
    n = list_cp(input, cp);
    /* more tensor ranks beside the best of them have a share, too */
    far = input->pin.tp == 0 && input->seq >= MERAK_SEARCH_LONG ? 1 : 0;
    for (int i = 0; i < n; i++) {
        double all_s = input->seconds * (best != NULL ? 1 : FIND_SHARE);
        struct merak_search_input one = with_cp(
            input, cp[i],
            fmax((all_s - merak_clock_since_s(start_ns)) / (n - i + far),
                 all_s / (2 * (n + far))));
        struct merak_search_result *result = NULL;
        struct merak_refusal why = {.need = 0};

        if (cp[i] > 1 && !may_cut(input, best))
            continue;
        one.refusal = &why;
        one.brief = true;
        one.known_s = best != NULL ? best->choice[0].step_s : 0;
        if (merak_search_all_means(&one, &result, NULL) == MERAK_OK) {
            keep_better(&best, result);
        } else if (why.constraint == MERAK_BINDS_MEMORY && why.need > 0 &&
                   why.need < least) {
            least = why.need;
            least_cp = cp[i];
        }
    }
    free(cp);
    if (best == NULL || best->choice[0].plan.cp > 1) {
        struct merak_search_input one = with_cp(
            input,
            best != NULL ? best->choice[0].plan.cp : merak_search_node(input),
            (best != NULL ? 1 : FIND_SHARE) * input->seconds);

        try_far(&one, start_ns, &best);
    }
    if (best == NULL && least < DBL_MAX && input->seq >= MERAK_SEARCH_LONG)
        best = over_nodes(input, start_ns);
    if (best == NULL)
        return refuse(input, start_ns, least_cp, result_p, err);
    best->took_s = merak_clock_since_s(start_ns);
    *result_p = best;
    return MERAK_OK;
}
