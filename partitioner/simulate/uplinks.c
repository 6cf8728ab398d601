/* SPDX-License-Identifier: Apache-2.0 */
/* uplinks.c - which programs share the uplinks of nodes
 *
 * Every rank has its own uplink, and a node has one for all its ranks.
 * Logical ranks fill nodes in order.
 */
#include "config.h"

#include "partitioner/simulate/net.h"

#include "base/error.h"
#include "base/grow.h"

#include <stdlib.h>

/* Programs by stage, and a node's ranks by stage. */
struct tally {
    const struct merak_program *const *programs;
    int n, stages, node; /* the node's number */
    int ranks_per_node;
    int *first;   /* [stages] a program, or -1 */
    int *next;    /* [n] another of its stage, or -1 */
    int *ranks;   /* [stages] number on the node */
    int *touched; /* [stages] stages on the node, by first rank */
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

static void count_node(struct tally *t, const struct merak_plan *plan)
{
    int from = t->node * t->ranks_per_node, all = merak_plan_ranks(plan);
    int tp_index, dp_index, stage;

    while (t->n_touched > 0)
        t->ranks[t->touched[--t->n_touched]] = 0;
    for (int r = from; r < from + t->ranks_per_node && r < all; r++) {
        merak_plan_coords(plan, r, &tp_index, &dp_index, &stage);
        if (t->ranks[stage]++ == 0)
            t->touched[t->n_touched++] = stage;
    }
}

static bool is_here(const struct tally *t, int program)
{
    return t->programs[program]->rank / t->ranks_per_node == t->node;
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

/* Add the shares of the node's ranks of one stage. */
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
                     const struct merak_uplink *uplink, int first, int n)
{
    const struct merak_uplink_share *a = &w->share[uplink->first];
    const struct merak_uplink_share *b = &w->share[first];

    for (int i = 0; i < n && uplink->n == n; i++) {
        if (a[i].program != b[i].program || a[i].ranks != b[i].ranks)
            return false;
    }
    return uplink->n == n;
}

/* Make an uplink of the shares added last, or drop them if one has the same. */
static enum merak_status add_uplink(struct merak_uplinks *w, int first,
                                    struct merak_error *err)
{
    int n = w->n_shares - first;
    enum merak_status rc;

    for (int i = w->n - 1; i >= 0; i--) {
        if (is_alike(w, &w->uplink[i], first, n)) {
            w->n_shares = first;
            return MERAK_OK;
        }
    }
    rc = merak_grow(&w->uplink, &w->room, w->n, sizeof(*w->uplink), err);
    if (rc == MERAK_OK)
        w->uplink[w->n++] = (struct merak_uplink){first, n};
    return rc;
}

/* A node that only one program uses limits that program's own rate and is not
 * listed as an uplink. */
static enum merak_status add_node(struct merak_uplinks *w,
                                  const struct tally *t,
                                  struct merak_error *err)
{
    int first = w->n_shares;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < t->n_touched && rc == MERAK_OK; i++)
        rc = add_stage(w, t, t->touched[i], err);
    if (rc != MERAK_OK)
        return rc;
    if (w->n_shares - first > 1)
        return add_uplink(w, first, err);
    if (w->n_shares > first) {
        const struct merak_uplink_share *share = &w->share[first];
        double *own = &w->own_bytes_per_s[share->program];

        if (*own > w->node_bytes_per_s / share->ranks)
            *own = w->node_bytes_per_s / share->ranks;
    }
    w->n_shares = first;
    return MERAK_OK;
}

static enum merak_status add_nodes(struct merak_uplinks *w, struct tally *t,
                                   struct merak_error *err)
{
    const struct merak_plan *plan = &t->programs[0]->plan;
    int all = merak_plan_ranks(plan);
    enum merak_status rc = tally_init(t, err);

    for (; t->node * t->ranks_per_node < all && rc == MERAK_OK; t->node++) {
        count_node(t, plan);
        rc = add_node(w, t, err);
    }
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
    const struct merak_level *node = &links->level[0];
    struct tally t = {.programs = (const struct merak_program *const *)programs,
                      .n = n,
                      .ranks_per_node = node->ranks};
    enum merak_status rc = MERAK_OK;

    *uplinks =
        (struct merak_uplinks){.node_bytes_per_s = node->way_bytes_per_s};
    uplinks->own_bytes_per_s = calloc((size_t)n + 1, sizeof(double));
    if (uplinks->own_bytes_per_s == NULL)
        return merak_fail_nomem(err, ((size_t)n + 1) * sizeof(double));
    for (int p = 0; p < n; p++)
        uplinks->own_bytes_per_s[p] = links->level[1].bytes_per_s;
    if (n > 0 && node->ranks > 0 && node->way_bytes_per_s > 0) {
        t.stages = programs[0]->plan.pp;
        rc = add_nodes(uplinks, &t, err);
    }
    return rc == MERAK_OK ? turn(uplinks, n, err) : rc;
}

void merak_uplinks_fini(struct merak_uplinks *uplinks)
{
    free(uplinks->own_bytes_per_s);
    free(uplinks->uplink);
    free(uplinks->share);
    free(uplinks->of);
    free(uplinks->first_of);
    *uplinks = (struct merak_uplinks){.n = 0};
}
