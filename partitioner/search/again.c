/* SPDX-License-Identifier: Apache-2.0 */
/* again.c - rounds of a search: what an earlier one rated is not rated again
 *
 * If no plan fits, a search goes over all candidates once more, with others
 * beside them: slower ones, other levels of ZeRO, state on the host.
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include "base/error.h"
#include "base/grow.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_of(const struct merak_candidate *c)
{
    const struct merak_plan *p = &c->plan;
    const int by[] = {p->pp,      p->microbatches,   p->chunks,   p->zero,
                      p->dp_in,   p->order_tp_pp_dp, p->grad_sum, p->fetch,
                      p->offload, p->zero_home};
    uint64_t hash = merak_rng_mix((uintptr_t)c->table, (uintptr_t)c->schedule);

    for (size_t i = 0; i < sizeof(by) / sizeof(*by); i++)
        hash = merak_rng_mix(hash, (uint64_t)(unsigned)by[i]);
    return hash;
}

bool merak_search_is_same(const struct merak_candidate *a,
                          const struct merak_candidate *b)
{
    return a->table == b->table && a->schedule == b->schedule &&
           a->given.cut == b->given.cut && a->given.drop == b->given.drop &&
           a->plan.microbatches == b->plan.microbatches &&
           a->plan.scatter == b->plan.scatter &&
           merak_search_compare_plans(&a->plan, &b->plan) == 0;
}

/* The place of a candidate's number in the index, or where it would be. */
static int *place_of(const struct merak_rounds *r,
                     const struct merak_candidate *c)
{
    size_t mask = r->places - 1, at = hash_of(c) & mask;

    while (r->place[at] > 0 &&
           !merak_search_is_same(&r->list[r->place[at] - 1].cand, c))
        at = (at + 1) & mask;
    return &r->place[at];
}

/* Has it a rating that nothing changed since?  Of cheap ones there are two. */
static bool is_rating(const struct merak_candidate *c)
{
    return c->arena == 0 && c->step_s == 0 &&
           merak_search_effort(c) >= MERAK_SEARCH_CHEAP;
}

static void add(struct merak_search *s, const struct merak_candidate *cand,
                int n, bool fits)
{
    struct merak_rounds *r = &s->trials.earlier;

    for (int i = 0; i < n && s->rc == MERAK_OK; i++) {
        if (!is_rating(&cand[i]))
            continue;
        s->rc = merak_grow(&r->list, &r->room, r->n, sizeof(*r->list), s->err);
        if (s->rc == MERAK_OK)
            r->list[r->n++] =
                (struct merak_earlier){.cand = cand[i], .fits = fits};
    }
}

static void make_index(struct merak_search *s)
{
    struct merak_rounds *r = &s->trials.earlier;
    size_t places = 64;

    while (places < 2 * (size_t)r->n)
        places *= 2;
    free(r->place);
    r->place = calloc(places, sizeof(*r->place));
    r->places = places;
    if (r->place == NULL) {
        s->rc = merak_fail_nomem(s->err, places * sizeof(int));
        return;
    }
    for (int i = 0; i < r->n; i++)
        *place_of(r, &r->list[i].cand) = i + 1;
}

void merak_search_start_again(struct merak_search *s)
{
    if (s->rc == MERAK_OK && s->in->most_s == 0) {
        add(s, s->cand, s->n_cands, true);
        add(s, s->big, s->n_bigs, false);
    }
    if (s->rc == MERAK_OK)
        make_index(s);
    s->n_cands = s->n_bigs = 0;
    s->effort.done = 0;
}

bool merak_search_recall(const struct merak_search *s,
                         struct merak_candidate *cand, bool *fits_p)
{
    size_t parts = (size_t)merak_plan_parts(&cand->plan);
    const struct merak_rounds *r = &s->trials.earlier;
    const struct merak_earlier *e;
    int at = r->n == 0 ? 0 : *place_of(r, cand);

    if (at == 0)
        return false;
    e = &r->list[at - 1];
    cand->rated_s = e->cand.rated_s;
    cand->bytes = e->cand.bytes;
    cand->stage = e->cand.stage;
    memcpy(cand->part_s, e->cand.part_s, sizeof(cand->part_s));
    memcpy(cand->bound, e->cand.bound, (parts + 1) * sizeof(*cand->bound));
    memcpy(cand->drop, e->cand.drop, parts * sizeof(*cand->drop));
    *fits_p = e->fits;
    return true;
}
