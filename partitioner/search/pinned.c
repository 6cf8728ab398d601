/* SPDX-License-Identifier: Apache-2.0 */
/* pinned.c - runners-up get a search of their own
 *
 * A search of all plans tries a few cuts of each.  One with a runner-up's
 * choices given tries more of them, and may find one that is faster than what
 * was chosen: of small models, whose stages are a few segments and whose
 * estimates are furthest from what is simulated.  So the runners-up of these
 * are searched for like that, the nearest first, while there is effort left.
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include <string.h>

#define MOST_EFFORT 6000 /* instructions of a runner-up */
#define NEAR 1.12        /* times the chosen plan's step, by its estimate */
#define MOST_SEARCHES 3

/* The request with all choices of a candidate, but for its lists. */
static struct merak_search_input pinned(const struct merak_search *s,
                                        const struct merak_candidate *c)
{
    struct merak_search_input in = *s->in;

    merak_choices_of(&c->plan, &in.pin);
    in.pin.list = s->in->pin.list;
    if (!s->in->pin.given[MERAK_CHOICE_RECOMPUTE]) {
        in.pin.recompute = s->in->pin.recompute;
        in.pin.given[MERAK_CHOICE_RECOMPUTE] = false;
    }
    in.refusal = NULL;
    return in;
}

/* Search with its choices; if that finds another cut, *bound becomes it. */
static bool find_cut(struct merak_search *s, const struct merak_candidate *c,
                     int *bound)
{
    struct merak_search_input in = pinned(s, c);
    struct merak_search sub;
    bool found = false;

    if (merak_search_init_like(&sub, &in, s) == MERAK_OK) {
        merak_search_find(&sub);
        found = sub.rc == MERAK_OK && sub.n_cands > 0 && sub.cand[0].settled &&
                sub.cand[0].step_s < s->cand[0].step_s &&
                merak_search_compare_plans(&sub.cand[0].plan, &c->plan) == 0;
    }
    if (found)
        memcpy(bound, sub.cand[0].bound,
               ((size_t)merak_plan_parts(&c->plan) + 1) * sizeof(*bound));
    s->n_rated += sub.n_rated;
    s->n_simulated += sub.n_simulated;
    s->effort.done += sub.effort.done;
    merak_search_fini(&sub);
    return found;
}

void merak_search_try_pinned(struct merak_search *s)
{
    struct merak_candidate *near[MERAK_SEARCH_CHOICES];
    int n = 0, tried = 0;

    if (s->in->pin.list.cut != NULL)
        return;
    for (int simulated = 1; simulated >= 0; simulated--) {
        n = merak_search_near(s, simulated == 1, NEAR, near);
        for (int i = 0;
             i < n && tried < MOST_SEARCHES && merak_search_goes_on(s); i++) {
            struct merak_candidate like = *near[i];

            if (merak_plan_parts(&like.plan) == 1 ||
                merak_search_effort(&like) > MOST_EFFORT ||
                !merak_search_room(s, &like))
                continue;
            tried++;
            if (find_cut(s, near[i], like.bound))
                merak_search_try_cut(s, near[i], like.bound);
        }
    }
}
