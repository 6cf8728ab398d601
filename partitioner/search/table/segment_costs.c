/* SPDX-License-Identifier: Apache-2.0 */
/* segment_costs.c - what each segment of a sharded graph costs
 *
 * A segment is what lies between two adjacent cut points of the graph.  Its
 * nodes are walked once in program order with a compute and a collective queue,
 * as the program will run them, so that a collective which overlaps with the
 * segment's kernels costs nothing; both queues are joined at the segment's end.
 * In a sub-pipeline's pair nearly all collectives are overlapped, also those
 * at a segment's end, so pairs are walked through all segments at once.  Sizes
 * are those of tensor rank 0, whose programs are built later.
 */
#include "config.h"

#include "partitioner/program/pairs.h"
#include "partitioner/search/table/walker.h"
#include "partitioner/graph/padding.h"
#include "partitioner/program/instr_cost.h"

#include "base/arrays.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* --- time ----------------------------------------------------------------- */

/* When a micro-batch's node may start: when its inputs from the walk's nodes in
 * segment `from` and later ones are there. */
static double inputs_at(const struct merak_walker *w,
                        const struct merak_node *node, int from,
                        const double *ready)
{
    double at = 0;

    for (int k = 0; k < node->n_in; k++) {
        const struct merak_value *in = node->in[k];

        if (in->producer >= 0 && w->runs[in->producer] &&
            (from < 0 || w->of_node[in->producer] == from) &&
            ready[in->id] > at)
            at = ready[in->id];
    }
    return at;
}

/* Run a segment's nodes on two queues; *met_s is when both are done, and so is
 * the result, except for a vocabulary-parallel layer: when its kernels are. */
static double walk_segment(struct merak_walker *w, int seg, double *kernel_s,
                           double *met_s)
{
    double compute = 0, collective = 0;

    for (int i = w->start[seg]; i < w->start[seg + 1]; i++) {
        const struct merak_node *node = w->graph->node[w->order[i]];
        bool exchange = merak_sharded_exchanges(w->sharded, node->id);
        double *queue = exchange ? &collective : &compute, at;

        if (!w->runs[node->id])
            continue;
        at = inputs_at(w, node, seg, w->ready);
        *queue = (at > *queue ? at : *queue) + w->node_s[node->id];
        for (int k = 0; k < node->n_out; k++)
            w->ready[node->out[k]->id] = *queue;
        if (!exchange)
            *kernel_s += w->node_s[node->id];
    }
    *met_s = compute > collective ? compute : collective;
    return merak_walker_is_shared(w, seg) ? compute : *met_s;
}

/* List the walk's nodes by segment, from the first up or from the last down. */
static int list_nodes(const struct merak_walker *w, bool backward, int *node)
{
    int n = 0;

    for (int i = 0; i < w->table->n; i++) {
        int seg = backward ? w->table->n - 1 - i : i;

        for (int at = w->start[seg]; at < w->start[seg + 1]; at++) {
            if (w->runs[w->order[at]])
                node[n++] = w->order[at];
        }
    }
    return n;
}

/* Two queues.  A collective that begins while a kernel runs slows it; `begun`
 * is the start of the last one that began while no kernel ran. */
struct pair_clock {
    double compute, collective;
    double begun, lost_s;
};

static void run_exchange(struct pair_clock *clock, double at, double s,
                         double lost_s)
{
    if (at < clock->collective)
        at = clock->collective;
    clock->collective = at + s;
    if (at < clock->compute) {
        clock->compute += lost_s;
        return;
    }
    clock->begun = at;
    clock->lost_s = lost_s;
}

static void run_kernel(struct pair_clock *clock, double at, double s)
{
    if (at < clock->compute)
        at = clock->compute;
    if (at <= clock->begun && clock->begun < at + s) {
        s += clock->lost_s;
        clock->lost_s = 0;
    }
    clock->compute = at + s;
}

static void walk_step(struct merak_walker *w, const struct merak_node *node,
                      int half, struct pair_clock *clock)
{
    double *ready = w->ready + (size_t)half * ((size_t)w->graph->n_values + 1);
    bool exchange = merak_sharded_exchanges(w->sharded, node->id);
    double at = inputs_at(w, node, -1, ready);

    if (exchange)
        run_exchange(clock, at, w->node_s[node->id], w->lost_s[node->id]);
    else
        run_kernel(clock, at, w->node_s[node->id]);
    for (int k = 0; k < node->n_out; k++)
        ready[node->out[k]->id] = exchange ? clock->collective : clock->compute;
}

/* Run both halves of a list in the order of programs.  What a segment adds to
 * the time of those before it, until half 1 has left it, is added to the field
 * at `of`, and the kernels' part to kernel_s if `counts`. */
static void walk_order(struct merak_walker *w, const int *node, int n,
                       const struct merak_pair_step *order, size_t of,
                       bool counts)
{
    struct pair_clock clock = {0};
    double before = 0, *field = NULL;

    for (int i = 0; i < 2 * n; i++) {
        int at = order[i].at, seg = w->of_node[node[at]];

        walk_step(w, w->graph->node[node[at]], order[i].half, &clock);
        if (counts && !merak_sharded_exchanges(w->sharded, node[at]))
            w->table->segment[seg].kernel_s += w->node_s[node[at]];
        if (order[i].half == 0 ||
            (at + 1 < n && w->of_node[node[at + 1]] == seg))
            continue;
        field = (double *)((char *)&w->table->segment[seg] + of);
        *field += clock.compute - before;
        before = clock.compute;
    }
    if (field != NULL && clock.collective > clock.compute)
        *field += clock.collective - clock.compute;
}

/* Walk a pair of micro-batches, interleaved as in programs, through all. */
static void walk_pairs(struct merak_walker *w, bool backward, size_t of,
                       bool counts)
{
    size_t nodes = (size_t)w->graph->n_nodes + 1;
    int *node = malloc(nodes * sizeof(*node));
    struct merak_pair_step *order = malloc(2 * nodes * sizeof(*order));

    memset(w->ready, 0,
           2 * ((size_t)w->graph->n_values + 1) * sizeof(*w->ready));
    if (node == NULL || order == NULL) {
        w->rc = merak_fail_nomem(w->err, nodes * sizeof(*order));
    } else {
        struct merak_pair_list list = {.node = node,
                                       .n = list_nodes(w, backward, node)};

        w->rc = merak_pair_order(w->sharded, &list, order, w->err);
        if (w->rc == MERAK_OK)
            walk_order(w, node, list.n, order, of, counts);
    }
    free(node);
    free(order);
}

static void load_times(struct merak_walker *w)
{
    for (int v = 0; v < w->graph->n_values; v++) {
        double seconds =
            w->table->width *
            merak_cost_copy(w->cost, w->bytes[v] / w->table->slices);

        if (w->graph->value[v]->kind != MERAK_VALUE_INPUT || w->high[v] < 0)
            continue;
        w->table->segment[w->low[v]].f_s += seconds;
        w->table->segment[w->low[v]].kernel_s += seconds;
    }
}

/* Add up, for each segment, what its nodes of these phases take. */
static void walk(struct merak_walker *w, unsigned phases, size_t of,
                 bool counts)
{
    struct merak_table *t = w->table;

    /* The walk's nodes are those of these phases (bits). */
    for (int n = 0; n < w->graph->n_nodes; n++)
        w->runs[n] = (phases & (1u << w->graph->node[n]->phase)) != 0;
    if (w->rc != MERAK_OK)
        return;
    if (t->width > 1) {
        walk_pairs(w, (phases & (1u << MERAK_PHASE_F)) == 0, of, counts);
        return;
    }
    for (int s = 0; s < t->n; s++) {
        struct merak_segment *seg = &t->segment[s];
        double kernel_s = 0, met_s, before = *(double *)((char *)seg + of);

        *(double *)((char *)seg + of) += walk_segment(w, s, &kernel_s, &met_s);
        seg->kernel_s += counts ? kernel_s : 0;
        if (phases & (1u << MERAK_PHASE_F))
            seg->f_latency_s = before + met_s;
        else if (counts)
            seg->b_latency_s = before + met_s;
    }
}

/* Recomputation has few collectives: interleaving halves is not worth it. */
static void measure_recomputed(struct merak_walker *w)
{
    struct merak_table *t = w->table;

    for (int keep = 1; keep < MERAK_KEEPS; keep++) {
        memcpy(w->runs, w->recompute[keep],
               (size_t)w->graph->n_nodes * sizeof(*w->runs));
        for (int s = 0; s < t->n; s++) {
            double unused = 0, met_s;

            t->segment[s].recompute_s[keep] =
                t->width * walk_segment(w, s, &unused, &met_s);
        }
    }
}

static void measure_times(struct merak_walker *w)
{
    const unsigned f = 1u << MERAK_PHASE_F, b = 1u << MERAK_PHASE_B;
    const unsigned wt = 1u << MERAK_PHASE_W;
    struct merak_table *t = w->table;

    load_times(w);
    walk(w, f, offsetof(struct merak_segment, f_s), true);
    walk(w, b | wt, offsetof(struct merak_segment, b_s), true);
    walk(w, b, offsetof(struct merak_segment, x_s), false);
    walk(w, wt, offsetof(struct merak_segment, w_s), false);
    measure_recomputed(w);
    for (int s = 0; s < t->n; s++) {
        double stages = merak_walker_is_shared(w, s) ? w->plan->pp : 1;

        t->total_s += stages * (t->segment[s].f_s + t->segment[s].b_s);
    }
}

/* --- the table ------------------------------------------------------------ */

static void sort_nodes(struct merak_walker *w)
{
    for (int n = 0; n < w->graph->n_nodes; n++)
        w->start[w->of_node[n] + 1]++;
    for (int s = 0; s < w->table->n; s++)
        w->start[s + 1] += w->start[s];
    for (int n = w->graph->n_nodes - 1; n >= 0; n--)
        w->order[--w->start[w->of_node[n] + 1]] = n;
    /* start[s + 1] has become the start of s. */
    memmove(w->start, w->start + 1, (size_t)w->table->n * sizeof(*w->start));
    w->start[w->table->n] = w->graph->n_nodes;
}

static enum merak_status walker_init(struct merak_walker *w)
{
    size_t nodes = (size_t)w->graph->n_nodes + 2;
    size_t values = (size_t)w->graph->n_values + 1;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(w->bytes, values),
        MERAK_ARRAY(w->may_pad, values),
        MERAK_ARRAY(w->n_grads, values),
        MERAK_ARRAY(w->ready, 2 * values),
        MERAK_ARRAY(w->runs, nodes),
        MERAK_ARRAY(w->node_s, nodes),
        MERAK_ARRAY(w->node_scratch, nodes),
        MERAK_ARRAY(w->lost_s, nodes),
        MERAK_ARRAY(w->live, nodes),
        MERAK_ARRAY(w->low, values),
        MERAK_ARRAY(w->high, values),
        MERAK_ARRAY(w->first, values),
        MERAK_ARRAY(w->last, values),
        MERAK_ARRAY(w->back, values),
        MERAK_ARRAY(w->order, nodes),
        MERAK_ARRAY(w->start, (size_t)w->table->n + 2),
        MERAK_ARRAY(w->recompute[MERAK_KEEP_ALL], nodes),
        MERAK_ARRAY(w->recompute[MERAK_KEEP_NO_ATTENTION], nodes),
        MERAK_ARRAY(w->recompute[MERAK_KEEP_LEAST], nodes),
        MERAK_ARRAY(w->seen[MERAK_KEEP_ALL], values),
        MERAK_ARRAY(w->seen[MERAK_KEEP_NO_ATTENTION], values),
        MERAK_ARRAY(w->seen[MERAK_KEEP_LEAST], values)};
    enum merak_status rc = MERAK_ARRAYS(arrays, w->err);

    if (rc != MERAK_OK)
        return rc;
    for (size_t v = 0; v < values; v++)
        w->first[v] = w->last[v] = -1;
    merak_graph_may_pad(w->graph, w->may_pad);
    merak_plan_coord(w->sharded, 0, 0, w->coord);
    sort_nodes(w);
    return merak_fold_init(&w->fold, w->sharded, w->fold.pieces, w->err);
}

static void walker_fini(struct merak_walker *w)
{
    free(w->bytes); /* and all others */
    merak_fold_fini(&w->fold);
}

/* Cut into stages of one segment each, which gives the segment of each node. */
static enum merak_status cut_everywhere(const struct merak_sharded *sharded,
                                        struct merak_stages **stages_p,
                                        struct merak_error *err)
{
    int n = 0, *place;
    enum merak_status rc = merak_stages_count_points(sharded, &n, err);

    if (rc != MERAK_OK)
        return rc;
    place = calloc((size_t)n + 1, sizeof(*place));
    if (place == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*place));
    for (int i = 0; i < n; i++)
        place[i] = i;
    rc = merak_stages_at(sharded, place, n + 1 + sharded->n_shared, stages_p,
                         err);
    free(place);
    return rc;
}

/* A segment begins a block if its first node does, in the model as a whole. */
static void mark_blocks(struct merak_walker *w)
{
    int block = -1;

    for (int s = 0; s < w->table->n; s++) {
        for (int i = w->start[s]; i < w->start[s + 1]; i++) {
            const struct merak_node *node = w->graph->node[w->order[i]];

            if (node->phase == MERAK_PHASE_F && w->block[node->id] > block) {
                block = w->block[node->id];
                w->table->segment[s].begins_block = true;
            }
        }
    }
}

static enum merak_status fill(struct merak_walker *w)
{
    enum merak_status rc = walker_init(w);

    if (rc != MERAK_OK)
        return rc;
    mark_blocks(w);
    merak_walker_find_spread(w);
    merak_walker_find_recomputed(w);
    merak_walker_measure_nodes(w);
    if (w->rc == MERAK_OK) {
        measure_times(w);
        merak_walker_memory(w);
    }
    return w->rc;
}

static void set_contention(struct merak_walker *w)
{
    const struct merak_links *links = &w->cost->links;
    struct merak_spread all;

    if (w->sharded->n_shared > 0) {
        all = merak_links_sharers(links, w->plan, 0, true);
        w->contended = merak_links_contended(links, &all);
    }
    for (int l = 0; l < MERAK_LEVELS; l++)
        all.n[l] = links->level[l].ranks;
    w->filled = merak_links_contended(links, &all);
}

enum merak_status merak_table_create(const struct merak_search_input *in,
                                     const struct merak_cost_model *cost,
                                     const struct merak_sharded *sharded,
                                     const struct merak_plan *plan, int width,
                                     int slices, int pieces,
                                     struct merak_table **table_p,
                                     struct merak_error *err)
{
    struct merak_table *t = calloc(1, sizeof(*t));
    struct merak_walker w = {.in = in,
                             .cost = cost,
                             .sharded = sharded,
                             .graph = sharded->graph,
                             .plan = plan,
                             .table = t,
                             .fold.pieces = pieces,
                             .err = err};
    struct merak_stages *stages = NULL, *whole = NULL;
    enum merak_status rc;

    if (t == NULL)
        return merak_fail_nomem(err, sizeof(*t));
    t->width = width;
    t->slices = slices;
    rc = cut_everywhere(sharded, &stages, err);
    if (rc == MERAK_OK)
        rc = merak_stages_at(sharded, NULL, 1 + sharded->n_shared, &whole, err);
    if (rc != MERAK_OK)
        goto out;
    t->n = stages->n;
    t->n_shared = sharded->n_shared;
    set_contention(&w);
    t->n_nodes = width * sharded->graph->n_nodes;
    w.of_node = stages->of_node;
    w.block = whole->block;
    t->segment = calloc((size_t)t->n, sizeof(*t->segment));
    rc = t->segment == NULL
             ? merak_fail_nomem(err, (size_t)t->n * sizeof(*t->segment))
             : fill(&w);
    if (rc != MERAK_OK)
        goto out;
    *table_p = t;
    t = NULL; /* now owned by the caller */
out:
    walker_fini(&w);
    merak_stages_destroy(stages);
    merak_stages_destroy(whole);
    merak_table_destroy(t);
    return rc;
}

void merak_table_destroy(struct merak_table *table)
{
    if (table == NULL)
        return;
    free(table->segment);
    free(table->share);
    free(table);
}
