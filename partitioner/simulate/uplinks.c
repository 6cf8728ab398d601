/* SPDX-License-Identifier: Apache-2.0 */
/* uplinks.c - which programs share the uplinks of domains, as of nodes
 *
 * Every rank has its own uplink, and a domain of each level has one for all its
 * ranks, if that is limited; an island has one for each other island.  Logical
 * ranks fill domains in order.
 */
#include "config.h"

#include "partitioner/simulate/net.h"

#include "base/error.h"
#include "base/grow.h"
#include "partitioner/device/island_ways.h"

#include <stdlib.h>

/* Programs by stage, and a domain's ranks by stage. */
struct tally {
    const struct merak_program *const *programs;
    int n, stages;
    int level, domain; /* the domain's number */
    int pair;          /* as in an uplink */
    int domain_ranks;
    double way_bytes_per_s;
    int *first;   /* [stages] a program, or -1 */
    int *next;    /* [n] another of its stage, or -1 */
    int *ranks;   /* [stages] number in the domain */
    int *touched; /* [stages] stages in the domain, by first rank */
    int n_touched;
};

static enum merak_status tally_init(struct tally *t, struct merak_error *err)
{
    size_t stages = (size_t)t->stages, n = (size_t)t->n;

    t->first = calloc(3 * stages + n + 1, sizeof(*t->first));
    if (t->first == NULL)
        return merak_fail_nomem(err, (3 * stages + n) * sizeof(*t->first));
    t->ranks = t->first + stages;
    t->touched = t->ranks + stages;
    t->next = t->touched + stages;
    for (int s = 0; s < t->stages; s++)
        t->first[s] = -1;
    for (int p = t->n - 1; p >= 0; p--) {
        int *first = &t->first[t->programs[p]->stage];

        t->next[p] = *first;
        *first = p;
    }
    return MERAK_OK;
}

static void count_domain(struct tally *t, const struct merak_plan *plan)
{
    int from = t->domain * t->domain_ranks, all = merak_plan_ranks(plan);
    int tp_index, dp_index, stage;

    while (t->n_touched > 0)
        t->ranks[t->touched[--t->n_touched]] = 0;
    for (int r = from; r < from + t->domain_ranks && r < all; r++) {
        merak_plan_coords(plan, r, &tp_index, &dp_index, &stage);
        if (t->ranks[stage]++ == 0)
            t->touched[t->n_touched++] = stage;
    }
}

static bool is_here(const struct tally *t, int program)
{
    return t->programs[program]->rank / t->domain_ranks == t->domain;
}

static enum merak_status add_share(struct merak_uplinks *w, int program,
                                   double ranks, struct merak_error *err)
{
    enum merak_status rc = merak_grow(&w->share, &w->share_room, w->n_shares,
                                      sizeof(*w->share), err);

    if (rc == MERAK_OK)
        w->share[w->n_shares++] = (struct merak_uplink_share){program, ranks};
    return rc;
}

/* Add the shares of the domain's ranks of one stage. */
static enum merak_status add_stage(struct merak_uplinks *w,
                                   const struct tally *t, int stage,
                                   struct merak_error *err)
{
    int here = 0, all = 0;
    enum merak_status rc = MERAK_OK;

    for (int p = t->first[stage]; p >= 0; p = t->next[p]) {
        here += is_here(t, p);
        all++;
    }
    for (int p = t->first[stage]; p >= 0 && rc == MERAK_OK; p = t->next[p]) {
        if (here == 0 || is_here(t, p))
            rc = add_share(w, p, (double)t->ranks[stage] / (here ? here : all),
                           err);
    }
    return rc;
}

static bool is_alike(const struct merak_uplinks *w,
                     const struct merak_uplink *a, const struct merak_uplink *b)
{
    const struct merak_uplink_share *of_a = &w->share[a->first];
    const struct merak_uplink_share *of_b = &w->share[b->first];

    if (a->n != b->n || a->level != b->level || a->pair != b->pair)
        return false;
    for (int i = 0; i < a->n; i++) {
        if (of_a[i].program != of_b[i].program ||
            of_a[i].ranks != of_b[i].ranks)
            return false;
    }
    return true;
}

/* Make an uplink of the shares added last, or drop them if one has the same. */
static enum merak_status add_uplink(struct merak_uplinks *w,
                                    const struct tally *t, int first,
                                    struct merak_error *err)
{
    const struct merak_uplink added = {first, w->n_shares - first, t->level,
                                       t->pair, t->way_bytes_per_s};
    enum merak_status rc;

    for (int i = w->n - 1; i >= 0; i--) {
        if (is_alike(w, &w->uplink[i], &added)) {
            w->n_shares = first;
            return MERAK_OK;
        }
    }
    rc = merak_grow(&w->uplink, &w->room, w->n, sizeof(*w->uplink), err);
    if (rc == MERAK_OK)
        w->uplink[w->n++] = added;
    return rc;
}

/* With two levels, a domain that only one program uses limits that program's
 * own rate and is not listed as an uplink. */
static enum merak_status add_domain(struct merak_uplinks *w,
                                    const struct tally *t,
                                    struct merak_error *err)
{
    int first = w->n_shares;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < t->n_touched && rc == MERAK_OK; i++)
        rc = add_stage(w, t, t->touched[i], err);
    if (rc != MERAK_OK)
        return rc;
    if (w->n_shares - first > 1 ||
        (w->n_shares > first && (w->last > 1 || t->pair > 0)))
        return add_uplink(w, t, first, err);
    if (w->n_shares > first) {
        const struct merak_uplink_share *share = &w->share[first];
        double *own = &w->own[share->program].bytes_per_s[1];
        double most = t->way_bytes_per_s / share->ranks;

        if (*own > most)
            *own = most;
    }
    w->n_shares = first;
    return MERAK_OK;
}

/* Add the uplinks of a level's domains. */
static enum merak_status add_level(struct merak_uplinks *w, struct tally *t,
                                   const struct merak_level *level,
                                   struct merak_error *err)
{
    const struct merak_plan *plan = &t->programs[0]->plan;
    int all = merak_plan_ranks(plan);
    enum merak_status rc = MERAK_OK;

    t->domain_ranks = level->ranks;
    t->way_bytes_per_s = level->way_bytes_per_s;
    for (t->domain = 0; t->domain * t->domain_ranks < all && rc == MERAK_OK;
         t->domain++) {
        count_domain(t, plan);
        rc = add_domain(w, t, err);
    }
    return rc;
}

/* Add the ways of the pairs of islands, as uplinks of both: a flow from one to
 * the other leaves the one and enters the other. */
static enum merak_status add_pairs(struct merak_uplinks *w, struct tally *t,
                                   const struct merak_links *links,
                                   struct merak_error *err)
{
    const struct merak_islands *islands = links->islands;
    enum merak_status rc = MERAK_OK;

    t->level = w->last - 1;
    t->domain_ranks = links->level[t->level].ranks;
    for (int a = 0; a < islands->n && t->domain_ranks > 0; a++) {
        for (int b = 0; b < islands->n && rc == MERAK_OK; b++) {
            if (a == b)
                continue;
            t->domain = a;
            t->pair = merak_islands_pair(islands, a, b);
            t->way_bytes_per_s = merak_links_way(links, t->pair);
            count_domain(t, &t->programs[0]->plan);
            rc = add_domain(w, t, err);
        }
    }
    return rc;
}

static enum merak_status add_levels(struct merak_uplinks *w, struct tally *t,
                                    const struct merak_links *links,
                                    struct merak_error *err)
{
    enum merak_status rc = tally_init(t, err);

    for (t->level = 0; t->level < w->last && rc == MERAK_OK; t->level++) {
        const struct merak_level *level = &links->level[t->level];

        if (level->ranks > 0 && level->way_bytes_per_s > 0)
            rc = add_level(w, t, level, err);
    }
    if (rc == MERAK_OK && links->islands != NULL)
        rc = add_pairs(w, t, links, err);
    free(t->first);
    return rc;
}

/* Index the uplinks by program. */
static enum merak_status turn(struct merak_uplinks *w, int n,
                              struct merak_error *err)
{
    w->of = calloc((size_t)w->n_shares + 1, sizeof(*w->of));
    w->first_of = calloc((size_t)n + 2, sizeof(*w->first_of));
    if (w->of == NULL || w->first_of == NULL)
        return merak_fail_nomem(err, ((size_t)n + 2) * sizeof(*w->of));
    for (int i = 0; i < w->n_shares; i++)
        w->first_of[w->share[i].program + 2]++;
    for (int p = 2; p <= n; p++)
        w->first_of[p] += w->first_of[p - 1];
    for (int i = 0; i < w->n; i++) {
        for (int k = 0; k < w->uplink[i].n; k++) {
            int program = w->share[w->uplink[i].first + k].program;

            w->of[w->first_of[program + 1]++] = i;
        }
    }
    return MERAK_OK;
}

enum merak_status merak_uplinks_init(struct merak_uplinks *uplinks,
                                     struct merak_program *const *programs,
                                     int n, const struct merak_links *links,
                                     struct merak_error *err)
{
    struct tally t = {.programs = (const struct merak_program *const *)programs,
                      .n = n};
    enum merak_status rc = MERAK_OK;

    *uplinks = (struct merak_uplinks){.last = merak_links_last(links)};
    uplinks->own = calloc((size_t)n + 1, sizeof(*uplinks->own));
    if (uplinks->own == NULL)
        return merak_fail_nomem(err, ((size_t)n + 1) * sizeof(*uplinks->own));
    for (int p = 0; p < n; p++) {
        for (int l = 1; l <= uplinks->last; l++)
            uplinks->own[p].bytes_per_s[l] = links->level[l].bytes_per_s;
    }
    if (n > 0) {
        t.stages = programs[0]->plan.pp;
        rc = add_levels(uplinks, &t, links, err);
    }
    return rc == MERAK_OK ? turn(uplinks, n, err) : rc;
}

void merak_uplinks_fini(struct merak_uplinks *uplinks)
{
    free(uplinks->own);
    free(uplinks->uplink);
    free(uplinks->share);
    free(uplinks->of);
    free(uplinks->first_of);
    *uplinks = (struct merak_uplinks){.n = 0};
}
