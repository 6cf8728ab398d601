/* SPDX-License-Identifier: Apache-2.0 */
/* refuse_islands.c - degrees that leave no whole stages or replicas in islands
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include "base/error.h"
#include "partitioner/device/island_ways.h"

#include <stdio.h>
#include <string.h>

/* "a (n[1-3]), b (n[4-6])", as far as there is room */
static void islands_text(const struct merak_islands *islands, char text[96])
{
    size_t n = 0;

    for (int i = 0; i < islands->n && n < 56; i++) {
        const struct merak_island *island = &islands->island[i];

        n += (size_t)snprintf(text + n, 96 - n, "%s%.12s", i > 0 ? ", " : "",
                              island->name);
        if (island->hosts != NULL)
            n += (size_t)snprintf(text + n, 96 - n, " (%.20s)", island->hosts);
        if (i + 1 < islands->n && n >= 56)
            snprintf(text + n, 96 - n, ", ..");
    }
}

/* Is there an order of ranks with which either is whole? */
static bool has_order(const struct merak_search *s,
                      const struct merak_plan *plan)
{
    return merak_search_has_order(s, plan, false) ||
           merak_search_has_order(s, plan, true);
}

/* The degrees that are given, with this tp and pp; false: they do not divide
 * the ranks. */
static bool fill_degrees(const struct merak_search *s, int tp, int pp,
                         struct merak_plan *plan)
{
    const struct merak_choices *pin = &s->in->pin;
    int ep = merak_search_ep(s) > 0 ? merak_search_ep(s) : 1;
    int others = tp * ep * pp;

    *plan = (struct merak_plan){
        .tp = tp, .ep = ep, .pp = pp, .cp = merak_search_cp(s->in)};
    if ((pin->tp > 0 && tp != pin->tp) || (pin->pp > 0 && pp != pin->pp) ||
        s->spread % others != 0)
        return false;
    plan->dp = s->spread / others;
    return pin->dp <= 0 || plan->dp == pin->dp;
}

bool merak_search_has_no_islands(const struct merak_search *s,
                                 struct merak_refusal *r)
{
    const struct merak_links *links = &s->cost.links;
    bool any = false;
    char text[96] = "";

    if (links->islands == NULL)
        return false;
    for (int tp = 1; tp <= s->spread; tp++) {
        for (int pp = 1; pp <= s->spread / tp; pp++) {
            struct merak_plan plan;

            if (!fill_degrees(s, tp, pp, &plan))
                continue;
            if (has_order(s, &plan))
                return false;
            if (!any)
                r->plan = plan;
            any = true;
        }
    }
    if (!any)
        return false;
    islands_text(links->islands, text);
    r->need = links->level[merak_links_last(links) - 1].ranks;
    r->have = merak_plan_tensor_ranks(&r->plan) *
              (s->in->pin.order_tp_pp_dp ? r->plan.pp : r->plan.dp);
    merak_fail(
        &r->why, MERAK_ERR_CONFIG,
        "--links: with pp %d a %s has %.0f ranks, each of the islands %s "
        "%.0f; it has to be whole in one, or to fill several",
        r->plan.pp, s->in->pin.order_tp_pp_dp ? "replica" : "stage", r->have,
        text, r->need);
    return true;
}
