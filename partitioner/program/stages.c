/* SPDX-License-Identifier: Apache-2.0 */
/* stages.c - where a graph is cut into pipeline stages
 *
 * Among the positions of cut_points.c a dynamic program minimizes the longest
 * stage (forward, backward and sending its boundary), then the bytes that
 * cross.
 *
 * Shared blocks, the vocabulary-parallel layers of all stages, are separate
 * parts, after the others, and take as long on every stage: only what lies
 * between them is cut.
 */
#include "config.h"

#include "partitioner/program/balance.h"
#include "partitioner/program/program.h"

#include "base/arrays.h"
#include "base/error.h"

#include <assert.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

struct cutter {
    const struct merak_sharded *sharded;
    const struct merak_graph *graph;
    const struct merak_cost_model *cost;
    int n_stages;     /* parts without shared blocks */
    const double *speed; /* by part; NULL: all alike */
    int *counted;     /* by value: whose parameters it is counted among */
    double *seconds;  /* by forward node: with its gradient nodes, prefix sum */
    double *flops;    /* by forward node: with its gradient nodes */
    struct merak_cut_point *cut; /* candidates, in order; [0] is the graph's
                                    start, [n_cuts - 1] its end */
    int n_cuts;
    double stream_bytes; /* that cross at the median candidate */
};

static bool is_shared(const struct merak_sharded *sharded, int node)
{
    return sharded->n_shared > 0 && sharded->shared[node] > 0;
}

/* A forward node's time includes that of all nodes that differentiate it. */
static void sum_costs(struct cutter *c)
{
    double sum = 0;

    for (int n = 0; n < c->graph->n_nodes; n++) {
        const struct merak_node *node = c->graph->node[n];

        if (!merak_node_is_convert(node))
            c->flops[node->forward] += merak_node_cost(node).flops;
    }
    for (int n = 0; n < c->graph->n_nodes; n++) {
        if (!is_shared(c->sharded, n))
            sum += c->flops[n] / c->cost->flops_per_s;
        c->seconds[n + 1] = sum;
    }
}

/* Seconds of a stage between two candidates: its nodes and its sends, the
 * boundary forward and its gradient back. */
static double stage_seconds(const struct cutter *c, int part, int from, int to)
{
    double link = c->cost->links.level[0].bytes_per_s;
    double speed = c->speed == NULL ? 1 : c->speed[part];

    return (c->seconds[c->cut[to].node] - c->seconds[c->cut[from].node]) /
               speed +
           (c->cut[from].bytes + c->cut[to].bytes) / link;
}

/* Segments are between candidates.  Among stages of equal time those that send
 * the fewest bytes are taken. */
static void extend(struct merak_balance *balance, int part, int from,
                   double most)
{
    const struct cutter *c = balance->arg;

    (void)most; /* not a limit here */
    for (int to = from + 1; to <= merak_balance_last_end(balance, part); to++)
        merak_balance_join(balance, part, from, to,
                           stage_seconds(c, part, from, to),
                           c->cut[from].bytes);
}

/* The node that a converted copy belongs to. */
static int owner_of(const struct merak_graph *g, const struct merak_node *node)
{
    if (node->forward != node->id)
        return node->forward;
    /* A copy whose node does not name its consumer belongs to the first. */
    for (int n = node->id + 1; n < g->n_nodes; n++) {
        for (int i = 0; i < g->node[n]->n_in; i++) {
            if (g->node[n]->in[i] == node->out[0])
                return n;
        }
    }
    return node->id;
}

static int compare_bytes(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* What crosses at the median candidate: in a transformer the residual stream,
 * despite logits and sums of losses at its end. */
static enum merak_status find_stream(struct cutter *c, struct merak_error *err)
{
    int n = c->n_cuts - 2;
    double *bytes = calloc((size_t)n + 1, sizeof(*bytes));

    if (bytes == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*bytes));
    for (int i = 0; i < n; i++)
        bytes[i] = c->cut[i + 1].bytes;
    qsort(bytes, (size_t)n, sizeof(*bytes), compare_bytes);
    c->stream_bytes = bytes[n / 2];
    free(bytes);
    return MERAK_OK;
}

/* A block ends where a part does and wherever no more than the stream
 * crosses. */
static void number_blocks(const struct cutter *c, struct merak_stages *stages)
{
    int block = -1;

    for (int i = 0; i < c->n_cuts - 1; i++) {
        int node = c->cut[i].node;
        int part = stages->of_node[node];

        if (i == 0 || c->cut[i].bytes <= c->stream_bytes ||
            stages->of_node[node - 1] != part) {
            block++;
            stages->n_blocks[part]++;
        }
        for (; node < c->cut[i + 1].node; node++)
            stages->block[node] = block;
    }
}

/* Shared blocks have numbers after those of all others, and are not recomputed:
 * their backward follows at once. */
static void assign_shared(const struct cutter *c, struct merak_stages *stages)
{
    int blocks = 0;

    for (int s = 0; s < c->n_stages; s++)
        blocks += stages->n_blocks[s];
    for (int n = 0; n < c->graph->n_nodes; n++) {
        if (!is_shared(c->sharded, n))
            continue;
        stages->of_node[n] = c->n_stages + c->sharded->shared[n] - 1;
        stages->block[n] = blocks + c->sharded->shared[n] - 1;
    }
}

/* Stages begin at candidates bound[0] = 0, bound[1], ..; bound[n] ends the
 * last. */
static void assign(const struct cutter *c, const int *bound,
                   struct merak_stages *stages)
{
    const struct merak_graph *g = c->graph;

    for (int s = 0; s < c->n_stages; s++) {
        for (int n = c->cut[bound[s]].node; n < c->cut[bound[s + 1]].node; n++)
            stages->of_node[n] = s;
    }
    number_blocks(c, stages);
    /* Copies of copies: the later one first, so that it is assigned. */
    for (int n = g->n_nodes - 1; n >= 0; n--) {
        int owner;

        if (g->node[n]->phase != MERAK_PHASE_F ||
            !merak_node_is_convert(g->node[n]))
            continue;
        owner = owner_of(g, g->node[n]);
        stages->of_node[n] = stages->of_node[owner];
        stages->block[n] = stages->block[owner];
    }
    for (int n = 0; n < g->n_nodes; n++) {
        if (g->node[n]->phase != MERAK_PHASE_F)
            stages->of_node[n] = stages->of_node[g->node[n]->forward];
    }
    assign_shared(c, stages);
}

/* What several shared blocks use is counted for the first of them. */
static void count_params(const struct cutter *c, struct merak_stages *stages,
                         int *counted)
{
    const struct merak_graph *g = c->graph;

    for (int s = 0; s < stages->n; s++) {
        for (int n = 0; n < g->n_nodes; n++) {
            for (int i = 0; i < g->node[n]->n_in; i++) {
                const struct merak_value *v = g->node[n]->in[i];

                if (stages->of_node[n] != s || v->kind != MERAK_VALUE_PARAM ||
                    counted[v->id] == s + 1 ||
                    (counted[v->id] > c->n_stages && s > c->n_stages))
                    continue;
                counted[v->id] = s + 1;
                stages->params[s] += merak_shape_count(&v->shape);
            }
        }
    }
}

static enum merak_status cutter_init(struct cutter *c,
                                     const struct merak_sharded *sharded, int n,
                                     const double *speed,
                                     const struct merak_cost_model *cost,
                                     struct merak_error *err)
{
    const struct merak_graph *graph = sharded->graph;
    size_t nodes = (size_t)graph->n_nodes + 2;
    size_t values = (size_t)graph->n_values + 1;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(c->cut, nodes), MERAK_ARRAY(c->counted, values),
        MERAK_ARRAY(c->seconds, nodes), MERAK_ARRAY(c->flops, nodes)};
    enum merak_status rc;

    if (n < 1)
        return merak_fail(err, MERAK_ERR_PARAM, "%d stages: at least 1", n);
    *c = (struct cutter){.sharded = sharded,
                         .graph = graph,
                         .cost = cost != NULL ? cost : merak_cost_default(),
                         .speed = speed,
                         .n_stages = n};
    rc = MERAK_ARRAYS(arrays, err);
    if (rc != MERAK_OK)
        return rc;
    sum_costs(c);
    rc = merak_cut_points_find(sharded, speed != NULL, c->cut, &c->n_cuts, err);
    if (rc != MERAK_OK)
        return rc;
    if (c->n_cuts - 2 < n - 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "the model has %d cut points, %d stages need %d; use "
                          "a smaller pp or more layers",
                          c->n_cuts - 2, n, n - 1);
    return find_stream(c, err);
}

static void cutter_fini(struct cutter *c)
{
    free(c->cut);
}

static enum merak_status stages_alloc(struct merak_stages *stages, size_t nodes,
                                      struct merak_error *err)
{
    size_t n = (size_t)stages->n;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(stages->of_node, nodes), MERAK_ARRAY(stages->block, nodes),
        MERAK_ARRAY(stages->n_blocks, n),    MERAK_ARRAY(stages->drop, n),
        MERAK_ARRAY(stages->flops, n),       MERAK_ARRAY(stages->params, n)};

    return MERAK_ARRAYS(arrays, err);
}

static enum merak_status stages_create(const struct merak_graph *graph, int n,
                                       struct merak_stages **stages_p,
                                       struct merak_error *err)
{
    struct merak_stages *stages = calloc(1, sizeof(*stages));

    if (stages == NULL)
        return merak_fail_nomem(err, sizeof(*stages));
    *stages_p = stages;
    stages->n = n;
    return stages_alloc(stages, (size_t)graph->n_nodes + 1, err);
}

/* FLOPs and parameters of stages whose nodes are known. */
static void count_work(const struct cutter *c, struct merak_stages *stages)
{
    const struct merak_graph *graph = c->graph;

    for (int i = 0; i < graph->n_nodes; i++)
        stages->flops[stages->of_node[i]] += c->flops[i];
    count_params(c, stages, c->counted);
}

/* Stages from bounds among the candidates. */
static enum merak_status finish(const struct cutter *c, const int *bound,
                                struct merak_stages **stages_p,
                                struct merak_error *err)
{
    struct merak_stages *stages = NULL;
    enum merak_status rc = stages_create(
        c->graph, c->n_stages + c->sharded->n_shared, &stages, err);

    if (rc != MERAK_OK) {
        merak_stages_destroy(stages);
        return rc;
    }
    assign(c, bound, stages);
    count_work(c, stages);
    *stages_p = stages;
    return MERAK_OK;
}

enum merak_status merak_stages_cut(const struct merak_sharded *sharded, int n,
                                   const double *speed,
                                   const struct merak_cost_model *cost,
                                   struct merak_stages **stages_p,
                                   struct merak_error *err)
{
    struct cutter c = {0};
    struct merak_balance balance = {0};
    int *bound = NULL;
    enum merak_status rc;

    n -= sharded->n_shared;
    rc = cutter_init(&c, sharded, n, speed, cost, err);
    if (rc != MERAK_OK)
        goto out;
    bound = calloc((size_t)n + 1, sizeof(*bound));
    if (!merak_balance_init(&balance, c.n_cuts - 1, n) || bound == NULL) {
        rc = merak_fail_nomem(err, (size_t)n * (size_t)c.n_cuts);
        goto out;
    }
    balance.extend = extend;
    balance.arg = &c;
    if (!merak_balance_within(&balance, DBL_MAX, bound))
        assert(!"there are as many places as stages need");
    rc = finish(&c, bound, stages_p, err);
out:
    merak_balance_fini(&balance);
    free(bound);
    cutter_fini(&c);
    return rc;
}

enum merak_status merak_stages_assigned(const struct merak_sharded *sharded,
                                        int n, merak_assign_fn assign_to,
                                        struct merak_stages **stages_p,
                                        struct merak_error *err)
{
    struct cutter c = {0};
    struct merak_stages *stages = NULL;
    enum merak_status rc = cutter_init(&c, sharded, 1, NULL, NULL, err);

    if (rc == MERAK_OK)
        rc = stages_create(sharded->graph, n, &stages, err);
    if (rc == MERAK_OK) {
        c.n_stages = n;
        assign_to(sharded, stages);
        count_work(&c, stages);
        *stages_p = stages;
        stages = NULL;
    }
    merak_stages_destroy(stages);
    cutter_fini(&c);
    return rc;
}

enum merak_status merak_stages_count_points(const struct merak_sharded *sharded,
                                            int *n_p, struct merak_error *err)
{
    struct merak_cut_point *place = NULL;
    enum merak_status rc = merak_stages_list(sharded, &place, n_p, err);

    free(place);
    return rc;
}

enum merak_status merak_stages_list(const struct merak_sharded *sharded,
                                    struct merak_cut_point **place_p, int *n_p,
                                    struct merak_error *err)
{
    struct cutter c = {0};
    enum merak_status rc = cutter_init(&c, sharded, 1, NULL, NULL, err);

    if (rc == MERAK_OK) {
        *place_p = c.cut;
        *n_p = c.n_cuts - 2;
        c.cut = NULL; /* the caller's now, with what lies behind it */
    }
    cutter_fini(&c);
    return rc;
}

enum merak_status merak_stages_at(const struct merak_sharded *sharded,
                                  const int *place, int n,
                                  struct merak_stages **stages_p,
                                  struct merak_error *err)
{
    struct cutter c = {0};
    int *bound = NULL;
    enum merak_status rc;

    n -= sharded->n_shared;
    rc = cutter_init(&c, sharded, n, NULL, NULL, err);
    if (rc != MERAK_OK)
        goto out;
    bound = calloc((size_t)n + 1, sizeof(*bound));
    if (bound == NULL) {
        rc = merak_fail_nomem(err, (size_t)n * sizeof(*bound));
        goto out;
    }
    bound[n] = c.n_cuts - 1;
    for (int s = 1; s < n; s++) {
        bound[s] = place[s - 1] + 1;
        if (bound[s] <= bound[s - 1] || bound[s] >= bound[n]) {
            rc = merak_fail(err, MERAK_ERR_PARAM,
                            "stage %d begins at cut point %d: expected "
                            "ascending ones from 0 to %d",
                            s, place[s - 1], c.n_cuts - 3);
            goto out;
        }
    }
    rc = finish(&c, bound, stages_p, err);
out:
    free(bound);
    cutter_fini(&c);
    return rc;
}

void merak_stages_destroy(struct merak_stages *stages)
{
    if (stages == NULL)
        return;
    for (int s = 1; s < stages->n_stages; s++) {
        bool again = stages->by_stage[s] == stages;

        for (int e = 0; e < s; e++)
            again = again || stages->by_stage[e] == stages->by_stage[s];
        if (!again)
            merak_stages_destroy(stages->by_stage[s]);
    }
    free(stages->by_stage);
    free(stages->of_node);
    free(stages);
}
