/* SPDX-License-Identifier: Apache-2.0 */
/* unlike_types.c - what a stage of unlike ranks can be, and what it costs
 *
 * A stage is on ranks of one node, or of whole nodes; its tensor ranks are a
 * divisor of a node's, or a power of two.  What it costs comes from the table
 * of its tensor ranks with its replicas' part of the micro-batch.  A type's
 * rater is one for a pipeline in which all stages are like it; only what parts
 * take of memory, and communication over replicas, is asked of it.
 */
#include "config.h"

#include "partitioner/search/ends.h"
#include "partitioner/search/need.h"
#include "partitioner/search/unlike.h"

#include "base/error.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- tables ----------------------------------------------------------------
 */

/* The table of a kind's tensor ranks for replicas of b sequences; NULL: the
 * model cannot be sharded like that, there are enough tables, or the search has
 * failed.  One that has other cut points than the model without tensor ranks is
 * of no use. */
static const struct merak_table *table_of(struct merak_unlike *u, int kind,
                                          int tp, size_t b)
{
    const struct merak_plan key = merak_search_key(&u->s, tp, b);
    const struct merak_sharded *sharded = NULL;
    struct merak_unlike_table *t = &u->table[u->n_tables];
    enum merak_status rc;

    for (int i = 0; i < u->n_tables; i++) {
        const struct merak_table *at = u->table[i].table;

        if (u->table[i].kind == kind && at->plan.tp == tp &&
            at->plan.micro_batch == b)
            return at->n == u->segments ? at : NULL;
    }
    if (u->n_tables == MERAK_UNLIKE_TABLES || !merak_search_goes_on(&u->s))
        return NULL;
    rc = merak_search_shard(&u->s, &key, &sharded, NULL);
    if (rc == MERAK_ERR_NOMEM)
        u->s.rc = merak_fail_nomem(u->s.err, sizeof(*sharded));
    if (rc != MERAK_OK)
        return NULL;
    u->s.cost = u->cost[kind];
    t->table = merak_search_make_table(&u->s, sharded, &key, NULL, 1, 1);
    t->kind = kind;
    if (t->table == NULL)
        return NULL;
    u->n_tables++;
    return t->table->n == u->segments ? t->table : NULL;
}

/* The segment at which the last stage begins at the latest. */
static int find_last(const struct merak_sharded *sharded,
                     const struct merak_cut_point *place, int n)
{
    const struct merak_graph *graph = sharded->graph;
    int first = 0, last = 0;

    while (first < graph->n_nodes && !merak_node_is_of_loss(graph->node[first]))
        first++;
    for (int i = 1; i <= n; i++)
        last = place[i].node <= first ? i : last;
    return last;
}

enum merak_status merak_unlike_init(struct merak_unlike *u,
                                    const struct merak_search_input *in,
                                    struct merak_error *err)
{
    const struct merak_sharded *sharded = NULL;
    struct merak_cut_point *place = NULL;
    struct merak_search_kind own = {.device = in->device, .nodes = in->nodes};
    const struct merak_search_kind *kind = in->n_kinds > 0 ? in->kind : &own;
    struct merak_plan key;
    int n = 0;

    *u = (struct merak_unlike){.n_kinds = in->n_kinds > 0 ? in->n_kinds : 1};
    if (merak_search_init(&u->s, in, err) != MERAK_OK)
        return u->s.rc;
    for (int k = 0; k < u->n_kinds; k++) {
        merak_search_kind_cost(in, &kind[k], &u->cost[k]);
        u->limit[k] =
            (double)(in->memory_bytes > 0 ? in->memory_bytes
                                          : kind[k].device->memory_bytes);
        u->limit[k] = fmax(u->limit[k] - in->spare_bytes, 1);
        u->ranks[k] = kind[k].nodes * in->ranks_per_node;
        u->order[k] = k;
    }
    u->s.rc = merak_schedule_find(in->pin.schedule != NULL ? in->pin.schedule
                                                           : "1f1b",
                                  &u->schedule, err);
    if (u->s.rc != MERAK_OK)
        return u->s.rc;
    key = merak_search_key(&u->s, 1, 1);
    u->s.rc = merak_search_shard(&u->s, &key, &sharded, err);
    if (u->s.rc == MERAK_OK)
        u->s.rc = merak_stages_list(sharded, &place, &n, err);
    if (u->s.rc == MERAK_OK) {
        u->segments = n + 1;
        u->last = find_last(sharded, place, n);
    }
    free(place);
    return u->s.rc;
}

void merak_unlike_fini(struct merak_unlike *u)
{
    merak_search_fini(&u->s);
}

static void swap(int *a, int *b)
{
    int kept = *a;

    *a = *b;
    *b = kept;
}

static void reverse(int *order, int n)
{
    for (int i = 0; i < n / 2; i++)
        swap(&order[i], &order[n - 1 - i]);
}

bool merak_unlike_reorder(struct merak_unlike *u)
{
    int *order = u->order, n = u->n_kinds, at = n - 2, with = n - 1;

    if (n > 3) {
        reverse(order, n);
        return order[0] != 0;
    }
    while (at >= 0 && order[at] > order[at + 1])
        at--;
    if (at >= 0) { /* the next one in the order of the alphabet */
        while (order[with] < order[at])
            with--;
        swap(&order[at], &order[with]);
    }
    reverse(order + at + 1, n - at - 1);
    return at >= 0;
}

/* The kind of the node of a rank. */
static int kind_of(const struct merak_unlike *u, int rank)
{
    int at = 0;

    while (rank >= u->ranks[u->order[at]])
        rank -= u->ranks[u->order[at++]];
    return u->order[at];
}

/* --- types -----------------------------------------------------------------
 */

static bool may_have_tp(const struct merak_unlike *u, int tp)
{
    int node = u->s.in->ranks_per_node, given = u->s.in->pin.tp;

    return tp <= node && (given <= 0 || tp == given) &&
           (node % tp == 0 || (tp & (tp - 1)) == 0);
}

/* Some ranks of a node, or some nodes of a kind. */
static bool may_have_ranks(const struct merak_unlike *u, int kind, int ranks)
{
    int node = u->s.in->ranks_per_node;

    return ranks <= u->ranks[kind] &&
           (ranks <= node || ranks % node == 0);
}

/* What the rater takes of a plan of which all stages are like this one. */
static struct merak_plan plan_of(const struct merak_unlike_types *types,
                                 const struct merak_unlike_type *t)
{
    const struct merak_search_input *in = types->u->s.in;
    const struct merak_choices *pin = &in->pin;
    struct merak_plan plan = t->cand.table->plan;

    plan.pp = types->pp;
    plan.dp = t->degrees.dp;
    plan.chunks = 1;
    plan.microbatches = types->microbatches;
    plan.passes = t->cand.table->passes;
    plan.zero = types->zero;
    plan.offload = pin->offload < MERAK_OFFLOAD_AUTO
                       ? pin->offload
                       : merak_offload_settled(pin->offload, false);
    plan.dtype = in->dtype;
    plan.grad_dtype = in->pin.grad_dtype;
    plan.threads = in->threads;
    plan.recompute = pin->given[MERAK_CHOICE_RECOMPUTE] ? pin->recompute
                                                        : MERAK_RECOMPUTE_AUTO;
    snprintf(plan.schedule, sizeof(plan.schedule), "%s",
             t->cand.schedule->name);
    return plan;
}

static enum merak_status add_type(struct merak_unlike_types *types, int kind,
                                  int dp, int tp)
{
    struct merak_unlike *u = types->u;
    struct merak_unlike_type *t = &types->type[types->n];
    const struct merak_table *table;

    if (types->n == MERAK_UNLIKE_TYPES)
        return MERAK_OK;
    table = table_of(u, kind, tp, types->samples / (size_t)dp);
    if (table == NULL)
        return u->s.rc;
    if (table->passes > 1) /* a schedule of its own, for equal stages */
        return MERAK_OK;
    *t = (struct merak_unlike_type){.degrees = {.dp = dp, .tp = tp},
                                    .kind = kind};
    t->cand =
        (struct merak_candidate){.table = table, .schedule = u->schedule};
    types->ranks[types->n++] = dp * tp;
    return MERAK_OK;
}

enum merak_status merak_unlike_types_init(struct merak_unlike_types *types,
                                          struct merak_unlike *u,
                                          size_t samples, int zero)
{
    int all = u->s.tasks, most = u->segments;

    most = all < most ? all : most;
    most = MERAK_UNLIKE_STAGES < most ? MERAK_UNLIKE_STAGES : most;
    memset(types, 0, sizeof(*types));
    types->u = u;
    types->samples = samples;
    types->zero = zero;
    types->most_stages = most;
    types->more_memory = 1;
    types->microbatches = (int)(u->s.in->global_batch / samples);
    /* Those of few tensor ranks first: there are most of them. */
    for (int tp = 1; tp <= u->s.in->ranks_per_node; tp++) {
        for (int dp = 1; may_have_tp(u, tp) && dp * tp <= all; dp++) {
            for (int k = 0; k < u->n_kinds && samples % (size_t)dp == 0; k++) {
                if (may_have_ranks(u, k, dp * tp) &&
                    add_type(types, k, dp, tp) != MERAK_OK)
                    return u->s.rc;
            }
        }
    }
    return MERAK_OK;
}

static void forget(struct merak_unlike_type *t)
{
    for (int i = 0; i <= MERAK_UNLIKE_STAGES; i++) {
        free(t->seconds[i]);
        t->seconds[i] = NULL;
    }
}

static void forget_raters(struct merak_unlike_types *types)
{
    for (int t = 0; t < types->n && types->pp > 0; t++) {
        forget(&types->type[t]);
        merak_rater_fini(&types->type[t].rater);
    }
    types->pp = 0;
}

void merak_unlike_types_fini(struct merak_unlike_types *types)
{
    forget_raters(types);
}

static bool may_have(const struct merak_unlike_types *types, int pp)
{
    const char *want = types->u->s.in->pin.schedule;
    const struct merak_schedule_args args = {
        .stages = pp,
        .microbatches = types->microbatches,
        .chunks = 1,
        .warmups = want != NULL ? merak_schedule_warmups(want) : NULL};

    return merak_schedule_check(types->u->schedule, &args, NULL) == MERAK_OK;
}

bool merak_unlike_set_stages(struct merak_unlike_types *types, int pp)
{
    struct merak_unlike *u = types->u;
    bool any = u->s.in->pin.schedule == NULL;

    if (!may_have(types, pp))
        return false;
    if (any && types->pp > 0) /* of 1f1b: a stage so far from the end holds
                                 the same, however many precede it */
        return true;
    forget_raters(types);
    types->pp = any ? types->most_stages : pp;
    for (int i = 0; i < types->n; i++) {
        struct merak_unlike_type *t = &types->type[i];
        enum merak_status rc;

        t->cand.plan = plan_of(types, t);
        rc = merak_rater_init(&t->rater, &u->cost[t->kind], &t->cand,
                              u->limit[t->kind], u->s.err);
        if (u->s.rc == MERAK_OK)
            u->s.rc = rc;
    }
    return u->s.rc == MERAK_OK;
}

void merak_unlike_set_memory(struct merak_unlike_types *types, double more)
{
    types->more_memory = more;
    for (int t = 0; t < types->n; t++)
        forget(&types->type[t]);
}

bool merak_unlike_may_be(const void *arg, int type, int first_rank)
{
    const struct merak_unlike_types *types = arg;
    const struct merak_unlike *u = types->u;
    int node = u->s.in->ranks_per_node, ranks = types->ranks[type];
    int last = first_rank + ranks - 1;

    return kind_of(u, first_rank) == types->type[type].kind &&
           kind_of(u, last) == types->type[type].kind &&
           (first_rank / node == last / node ||
            (first_rank % node == 0 && ranks % node == 0));
}

/* --- seconds of segments ---------------------------------------------------
 */

static double seconds_of(struct merak_unlike_types *types,
                         struct merak_unlike_type *t, int flight, int from,
                         int to)
{
    double limit =
        types->u->limit[t->kind] * MERAK_SEARCH_SLACK * types->more_memory;
    const struct merak_rater *r = &t->rater;
    struct merak_range range;
    struct merak_need need;

    merak_range_start(&range, from, &t->rater.marks);
    while (range.to < to)
        merak_range_add(t->cand.table, &range);
    need = merak_part_need(&t->rater, &range, r->plan->pp - flight, limit, 0);
    return need.bytes > limit
               ? DBL_MAX
               : r->work_s[to] - r->work_s[from] + need.recompute_s;
}

double merak_unlike_seconds(void *arg, int type, int flight, int from, int to)
{
    struct merak_unlike_types *types = arg;
    struct merak_unlike_type *t = &types->type[type];
    int n = types->u->segments;
    size_t all = (size_t)n * (size_t)(n + 1);
    double **known;

    if (flight > types->microbatches) /* as many are in flight as there are */
        flight = types->microbatches;
    if (flight > types->pp)
        flight = types->pp;
    known = &t->seconds[flight];
    if (*known == NULL) {
        *known = malloc(all * sizeof(**known));
        for (size_t i = 0; *known != NULL && i < all; i++)
            (*known)[i] = -1;
    }
    if (*known == NULL) { /* slower, but as good */
        return seconds_of(types, t, flight, from, to);
    }
    known = &(double *){*known + from * (n + 1) + to};
    if (**known < 0)
        **known = seconds_of(types, t, flight, from, to);
    return **known;
}

/* --- a step ----------------------------------------------------------------
 */

/* What comes after the last backward, and what the first forward waits for:
 * communication over replicas, and the update. */
static double ends_s(const struct merak_unlike_type *t, int from, int to)
{
    const struct merak_rater *r = &t->rater;
    const struct merak_held held = merak_rater_held(r, MERAK_HELD_STATE, false);
    double took = 0, touched = 0, state = 0, update_s, parts;

    for (int i = from; i < to; i++) {
        const struct merak_param_state *hold = &r->table->segment[i].hold;

        took += r->ends.reduce_s[i] + r->ends.gather_s[i];
        touched += merak_param_state_touched(hold, r->plan);
        state += merak_param_state_optimizer(hold);
    }
    parts = merak_rater_parts(r, held);
    update_s = touched / parts / r->cost->bytes_per_s;
    if (held.host)
        update_s =
            fmax(update_s, 2 * state / parts / r->cost->host.bytes_per_s);
    return took + update_s;
}

/* A micro-batch's values from one stage to the next, in parts that the fewer
 * ranks of the two send or receive. */
static double hop_s(const struct merak_unlike_types *types,
                    const struct merak_unlike_type *a,
                    const struct merak_unlike_type *b, int first_rank,
                    int segment)
{
    const struct merak_links *links = &types->u->cost[b->kind].links;
    const struct merak_segment *seg = &b->cand.table->segment[segment];
    int n = a->degrees.dp * a->degrees.tp, m = b->degrees.dp * b->degrees.tp;
    double bytes = seg->up_bytes * b->degrees.dp / (n < m ? n : m);

    return merak_links_transfer_s(links, first_rank - 1, first_rank, bytes);
}

double merak_unlike_rate(struct merak_unlike_types *types,
                         const struct merak_reach_stage *stage, int pp)
{
    double longest = 0, fill = 0, ends = 0;
    int rank = 0;

    for (int s = 0; s < pp; s++) {
        const struct merak_unlike_type *t = &types->type[stage[s].type];
        int to = s + 1 < pp ? stage[s + 1].from : types->u->segments;
        double took = merak_unlike_seconds(types, stage[s].type, pp - s,
                                           stage[s].from, to);

        longest = fmax(longest, took);
        fill += took;
        ends = fmax(ends, ends_s(t, stage[s].from, to));
        if (s > 0)
            fill += 2 * hop_s(types, &types->type[stage[s - 1].type], t, rank,
                              stage[s].from);
        rank += types->ranks[stage[s].type];
    }
    return (types->microbatches - 1) * longest + fill + ends;
}
