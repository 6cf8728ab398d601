/* SPDX-License-Identifier: Apache-2.0 */
/* segment_memory.c - what each segment keeps for its backward, what it takes
 * while it runs, and the parameters it holds
 */
#include "config.h"

#include "partitioner/search/table/walker.h"

#include "base/grow.h"

#include <stdlib.h>

enum direction { FORWARD, BACKWARD };

/* --- live ranges ---------------------------------------------------------- */

/* A node's segment uses what it reads and makes; for vocabulary-parallel layers
 * this only counts for values that no other segment uses. */
static void spread_over(struct merak_walker *w, const struct merak_node *node)
{
    int seg = w->of_node[node->id], chain = w->table->n - w->table->n_shared;

    for (int o = 0; o < node->n_in + node->n_out; o++) {
        int v = merak_node_operand(node, o)->id;

        if (seg >= chain && w->low[v] < chain)
            continue;
        if (seg < w->low[v])
            w->low[v] = seg;
        if (seg > w->high[v])
            w->high[v] = seg;
    }
}

void merak_walker_find_spread(struct merak_walker *w)
{
    for (int v = 0; v < w->graph->n_values; v++) {
        w->low[v] = w->table->n;
        w->high[v] = -1;
    }
    for (int shared = 0; shared < 2; shared++) {
        for (int n = 0; n < w->graph->n_nodes; n++) {
            if (merak_walker_is_shared(w, w->of_node[n]) == (shared == 1))
                spread_over(w, w->graph->node[n]);
        }
    }
}

static bool is_activation(const struct merak_value *v)
{
    return v->kind != MERAK_VALUE_PARAM && v->kind != MERAK_VALUE_PARAM_GRAD;
}

/* Find where a segment's nodes of one direction touch values, by position. */
static int find_live_ranges(struct merak_walker *w, int seg, enum direction dir)
{
    int at = 0;

    for (int i = w->start[seg]; i < w->start[seg + 1]; i++) {
        const struct merak_node *node = w->graph->node[w->order[i]];

        if ((node->phase == MERAK_PHASE_F) != (dir == FORWARD))
            continue;
        w->live[at] = w->node_scratch[node->id];
        for (int o = 0; o < node->n_in + node->n_out; o++) {
            int v = merak_node_operand(node, o)->id;

            if (w->first[v] < 0)
                w->first[v] = at;
            w->last[v] = at;
        }
        at++;
    }
    return at;
}

static void add_bytes(struct merak_walker *w, int v, int from, int to)
{
    for (int at = from; at <= to; at++)
        w->live[at] += w->bytes[v];
}

/* Add the live range of a value that is touched. */
static void add_live_range(struct merak_walker *w, int seg, enum direction dir,
                           const struct merak_value *v, int n)
{
    int from = w->first[v->id], to = w->last[v->id];
    bool forward = merak_walker_forward(w, v);

    w->first[v->id] = w->last[v->id] = -1;
    if (!is_activation(v))
        return;
    if (merak_walker_is_inner(w, v->id)) { /* never kept */
        add_bytes(w, v->id, from, to);
        return;
    }
    if (dir == BACKWARD && forward)
        from = 0; /* kept since its forward */
    if (dir == FORWARD && (w->back[v->id] || w->high[v->id] > seg))
        to = n - 1;
    if (dir == FORWARD && w->low[v->id] < seg)
        from = 0;
    if (dir == BACKWARD && !forward && w->low[v->id] < seg)
        to = n - 1;
    if (dir == BACKWARD && !forward && w->high[v->id] > seg)
        from = 0;
    add_bytes(w, v->id, from, to);
}

/* Does a gradient node other than `but` read a value? */
static bool has_other_readers(const struct merak_walker *w,
                              const struct merak_node *but, int v)
{
    for (int n = 0; n < w->graph->n_nodes; n++) {
        const struct merak_node *node = w->graph->node[n];

        for (int k = 0;
             node != but && node->phase != MERAK_PHASE_F && k < node->n_in;
             k++) {
            if (node->in[k]->id == v)
                return true;
        }
    }
    return false;
}

/* A value that is overwritten by its gradient, as in programs if nothing else
 * reads it (program/values.c), lives until the node that overwrites it. */
static void overwrite(struct merak_walker *w, int seg)
{
    int at = 0;

    for (int i = w->start[seg]; i < w->start[seg + 1]; i++) {
        const struct merak_node *node = w->graph->node[w->order[i]];
        int from = node->in[0]->id, to = node->out[0]->id;

        if (node->phase == MERAK_PHASE_F)
            continue;
        if (node->op->in_place && w->table->slices == 1 &&
            w->last[from] == at && w->first[to] == at &&
            w->bytes[to] == w->bytes[from] && !has_other_readers(w, node, from))
            w->last[from] = at - 1;
        at++;
    }
}

static void mark_gradient_inputs(struct merak_walker *w, int seg, bool mark)
{
    for (int i = w->start[seg]; i < w->start[seg + 1]; i++) {
        const struct merak_node *node = w->graph->node[w->order[i]];

        for (int k = 0; node->phase != MERAK_PHASE_F && k < node->n_in; k++)
            w->back[node->in[k]->id] = mark;
    }
}

static double peak_of(struct merak_walker *w, int seg, enum direction dir)
{
    int n = find_live_ranges(w, seg, dir);
    double peak = 0;

    if (dir == BACKWARD)
        overwrite(w, seg);

    for (int i = w->start[seg]; i < w->start[seg + 1]; i++) {
        const struct merak_node *node = w->graph->node[w->order[i]];

        for (int o = 0; o < node->n_in + node->n_out; o++) {
            const struct merak_value *v = merak_node_operand(node, o);

            if (w->first[v->id] >= 0)
                add_live_range(w, seg, dir, v, n);
        }
    }
    for (int at = 0; at < n; at++)
        peak = w->live[at] > peak ? w->live[at] : peak;
    return peak;
}

static void measure_peaks(struct merak_walker *w)
{
    for (int s = 0; s < w->table->n; s++) {
        struct merak_segment *seg = &w->table->segment[s];
        double up, down;

        mark_gradient_inputs(w, s, true);
        up = peak_of(w, s, FORWARD);
        down = peak_of(w, s, BACKWARD);
        mark_gradient_inputs(w, s, false);
        seg->peak = w->table->width * (up > down ? up : down);
    }
}

/* Of what is only there in pieces, so that no cut is there. */
#define NEVER 1e30

static void add_crossing(struct merak_walker *w, int v, int segment)
{
    struct merak_segment *seg = &w->table->segment[segment];
    bool up = merak_walker_forward(w, w->graph->value[v]);
    int ways = merak_boundary_ways(w->sharded, &w->sharded->layout[v], NULL);
    double bytes = w->table->width * w->bytes[v];

    bytes = merak_walker_is_inner(w, v) ? NEVER : bytes / w->table->slices;
    *(up ? &seg->up_bytes : &seg->down_bytes) += bytes;
    *(up ? &seg->up_part : &seg->down_part) += bytes / ways;
}

/* Add what a vocabulary-parallel layer reads of others: each value once. */
static void measure_shared(struct merak_walker *w, int seg)
{
    for (int i = w->start[seg]; i < w->start[seg + 1]; i++) {
        const struct merak_node *node = w->graph->node[w->order[i]];

        for (int k = 0; k < node->n_in; k++) {
            const struct merak_value *v = node->in[k];

            if (v->producer < 0 || !is_activation(v) ||
                merak_walker_is_shared(w, w->of_node[v->producer]) ||
                w->last[v->id] == seg)
                continue;
            w->last[v->id] = seg;
            add_crossing(w, v->id, seg);
        }
    }
    for (int v = 0; v < w->graph->n_values; v++)
        w->last[v] = -1;
}

/* Add what crosses a segment's lower end, or what a vocabulary-parallel layer
 * reads. */
static void measure_crossings(struct merak_walker *w)
{
    for (int v = 0; v < w->graph->n_values; v++) {
        const struct merak_value *value = w->graph->value[v];

        if (value->producer < 0 || !is_activation(value) ||
            merak_walker_is_shared(w, w->high[v]))
            continue;
        for (int s = w->low[v] + 1; s <= w->high[v]; s++)
            add_crossing(w, v, s);
    }
    for (int s = w->table->n - w->table->n_shared; s < w->table->n; s++)
        measure_shared(w, s);
}

/* --- what is kept and held ------------------------------------------------ */

static int compare_shares(const void *a, const void *b)
{
    const struct merak_share *x = a, *y = b;

    return x->segment != y->segment ? x->segment - y->segment
                                    : x->prev - y->prev;
}

static void add_share(struct merak_walker *w, struct merak_share *share)
{
    struct merak_table *t = w->table;
    int n = 0;

    for (int s = 0; s < t->n; s++)
        n += t->segment[s].n_shares;
    w->rc = merak_grow(&t->share, &w->share_room, n, sizeof(*t->share), w->err);
    if (w->rc != MERAK_OK)
        return;
    t->share[n] = *share;
    t->segment[share->segment].n_shares++;
    t->segment[share->prev].shared_later_elems +=
        share->hold.bf16_elems + share->hold.f32_elems;
}

/* Count a value that the segment uses; an earlier one may hold it, too. */
static void count_use(struct merak_walker *w, int v, struct merak_share *share,
                      int keep)
{
    struct merak_segment *s = &w->table->segment[share->segment];

    share->prev = w->seen[keep][v];
    if (share->prev == share->segment || w->rc != MERAK_OK)
        return;
    w->seen[keep][v] = share->segment;
    if (share->prev >= 0) {
        add_share(w, share);
        return;
    }
    s->kept[keep] += share->kept[keep];
    s->n_kept += share->kept[MERAK_KEEP_ALL] > 0;
    merak_param_state_add(&s->hold, &share->hold);
}

/* Count a value that a gradient or a recomputed node reads: it is kept unless
 * its forward drops it. */
static void count_kept_value(struct merak_walker *w, int seg,
                             const struct merak_node *reader,
                             const struct merak_value *v)
{
    bool gradient =
        reader->phase != MERAK_PHASE_F || merak_fold_is_again(&w->fold, reader);

    for (int keep = 0; keep < MERAK_KEEPS; keep++) {
        struct merak_share share = {.segment = seg};
        bool dropped = v->producer >= 0 && w->recompute[keep][v->producer];

        if (dropped || (!gradient && !w->recompute[keep][reader->id]))
            continue;
        share.kept[keep] = w->table->width * w->bytes[v->id];
        count_use(w, v->id, &share, keep);
    }
}

/* The fraction of a parameter that is a tensor rank's, where those that
 * replicate it share it out. */
static double own_part(const struct merak_walker *w, int param)
{
    unsigned axes = merak_sharded_flat_axes(w->sharded, param);
    double part = 1;

    for (int a = 0; axes >> a != 0; a++) {
        if ((axes >> a & 1) != 0)
            part /= w->sharded->mesh.axis[a].size;
    }
    return part;
}

/* Under ZeRO-1 tensor ranks that replicate a parameter also divide its state:
 * count the elements that each of them saves, and the time to gather the
 * parameter, inner axes first. */
static void count_zero1_savings(const struct merak_walker *w,
                                const struct merak_value *v,
                                struct merak_param_state *hold)
{
    const struct merak_axis *axis = w->sharded->mesh.axis;
    unsigned axes = merak_sharded_flat_axes(w->sharded, v->id);
    double count = hold->bf16_elems + hold->f32_elems, part = count;

    for (int a = 0; axes >> a != 0; a++) {
        int n = axis[a].size;

        if ((axes >> a & 1) == 0)
            continue;
        part /= n;
        hold->gather_s += merak_links_exchange_s(
            &w->cost->links, MERAK_CONVERT_ALL_GATHER,
            (n - 1) * part * (double)merak_dtype_bytes(v->dtype),
            &(struct merak_spread){.n = {n}});
    }
    *(v->dtype == MERAK_F32 ? &hold->f32_elems_saved
                            : &hold->bf16_elems_saved) = count - part;
}

/* What a backward reads of matrices, counted apart. */
static void count_backward(struct merak_walker *w, int seg,
                           const struct merak_value *v)
{
    struct merak_share share = {.segment = seg};
    struct merak_param_state hold = {0};

    if (v->shape.ndim < 2)
        return;
    if (!v->frozen)
        count_zero1_savings(w, v, &hold);
    share.hold.lent_back_part = w->bytes[v->id] * own_part(w, v->id);
    share.hold.lent_back_gather_s = hold.gather_s;
    count_use(w, v->id, &share, 1);
}

static void count_param(struct merak_walker *w, int seg,
                        const struct merak_value *v)
{
    struct merak_segment *s = &w->table->segment[seg];
    double count = merak_walker_count(w, v->id);
    struct merak_share share = {
        .segment = seg,
        .hold = {.param_bytes = w->bytes[v->id],
                 .elements = (double)merak_shape_count(&v->shape),
                 .n = 1}};

    if (v->shape.ndim > 1) {
        share.hold.lent_bytes = share.hold.param_bytes;
        share.hold.lent_part = share.hold.param_bytes * own_part(w, v->id);
        share.hold.n_lent = 1;
    }
    if (v->frozen) {
        share.hold.n = 0; /* held, but neither reduced nor updated */
    } else {
        if (v->dtype == MERAK_F32)
            share.hold.f32_elems = count;
        else
            share.hold.bf16_elems = count;
        count_zero1_savings(w, v, &share.hold);
        if (v->shape.ndim > 1)
            share.hold.lent_gather_s = share.hold.gather_s;
        if (count > s->largest)
            s->largest = count;
    }
    count_use(w, v->id, &share, 0);
}

/* Of a gradient's words, in seconds. */
static double exchange_s(const struct merak_walker *w,
                         const struct merak_value *grad,
                         enum merak_convert_kind kind, double words, int axis)
{
    int n = w->sharded->mesh.axis[axis].size;

    return merak_links_exchange_s(
        &w->cost->links, kind, words * (double)merak_dtype_bytes(grad->dtype),
        &(struct merak_spread){.n = {n}});
}

/* Count the sums over tensor ranks that replicate a parameter: all-reduces, or
 * under ZeRO-1 reduce-scatters, each of the part that the last axis left. */
static void count_sums(const struct merak_walker *w,
                       struct merak_param_state *hold,
                       const struct merak_value *grad, unsigned axes,
                       double count, bool lent)
{
    const struct merak_layout *from = &w->sharded->layout[grad->id];
    double part = count;

    for (int a = 0; axes >> a != 0; a++) {
        double n = w->sharded->mesh.axis[a].size, whole_s, part_s;

        if ((axes >> a & 1) == 0)
            continue;
        if (from->at[a].kind == MERAK_PARTIAL_SUM) {
            whole_s = exchange_s(w, grad, MERAK_CONVERT_ALL_REDUCE,
                                 2 * (n - 1) / n * count, a);
            part_s = exchange_s(w, grad, MERAK_CONVERT_REDUCE_SCATTER,
                                (n - 1) / n * part, a);
            hold->convert_s += whole_s;
            hold->convert_saved_s += whole_s - part_s;
            hold->lent_sum_s += lent ? part_s : 0;
        }
        part /= n;
    }
}

/* Count the collectives that bring a gradient to its parameter's layout. */
static void count_grad(struct merak_walker *w, int seg,
                       const struct merak_value *v)
{
    struct merak_segment *s = &w->table->segment[seg];
    const struct merak_layout *from = &w->sharded->layout[v->id];
    struct merak_layout to = w->sharded->layout[v->of];
    unsigned axes = merak_sharded_flat_axes(w->sharded, v->of);
    struct merak_hop hop[MERAK_MAX_HOPS];
    bool lent = v->shape.ndim > 1 && w->n_grads[v->of] == 1;
    int n;

    for (int a = 0; axes >> a != 0; a++) {
        if ((axes >> a & 1) != 0 && from->at[a].kind == MERAK_PARTIAL_SUM)
            to.at[a] = from->at[a];
    }
    s->hold.grad_bytes += w->bytes[v->id];
    if (w->graph->value[v->of]->frozen)
        return;
    if (lent) {
        s->hold.lent_grad_bytes += w->bytes[v->id];
        s->hold.lent_grad_part += w->bytes[v->id] * own_part(w, v->of);
    }
    n = merak_layout_path(&w->sharded->mesh, &v->shape, from, &to, hop, NULL);
    for (int h = 0; h < n; h++)
        s->hold.convert_s +=
            exchange_s(w, v, hop[h].kind, hop[h].words, hop[h].axis);
    count_sums(w, &s->hold, v, axes, merak_walker_count(w, v->of), lent);
}

/* What a loop's gradients make with the forward is kept for the backward, and
 * what they read is not. */
static void count_early(struct merak_walker *w, int seg,
                        const struct merak_node *node)
{
    for (int k = 0; k < node->n_out; k++) {
        const struct merak_value *v = node->out[k];

        for (int keep = 0; keep < MERAK_KEEPS && is_activation(v) &&
                           !merak_walker_is_inner(w, v->id);
             keep++) {
            struct merak_share share = {.segment = seg};

            share.kept[keep] = w->table->width * w->bytes[v->id];
            count_use(w, v->id, &share, keep);
        }
    }
}

static void count_node(struct merak_walker *w, const struct merak_node *node)
{
    int seg = w->of_node[node->id];
    bool early = merak_fold_is_early(&w->fold, node);

    if (early)
        count_early(w, seg, node);
    for (int k = 0; k < node->n_in; k++) {
        const struct merak_value *v = node->in[k];

        if (v->kind == MERAK_VALUE_PARAM) {
            count_param(w, seg, v);
            if (node->phase == MERAK_PHASE_B)
                count_backward(w, seg, v);
        } else if (!early && merak_walker_forward(w, v) && is_activation(v) &&
                   !merak_walker_is_inner(w, v->id))
            count_kept_value(w, seg, node, v);
    }
    for (int k = 0; k < node->n_out; k++) {
        if (node->out[k]->kind == MERAK_VALUE_PARAM_GRAD)
            count_grad(w, seg, node->out[k]);
    }
}

static void count_kept(struct merak_walker *w)
{
    struct merak_table *t = w->table;
    int n = 0;

    for (int v = 0; v < w->graph->n_values; v++) {
        for (int keep = 0; keep < MERAK_KEEPS; keep++)
            w->seen[keep][v] = -1;
        if (w->graph->value[v]->kind == MERAK_VALUE_PARAM_GRAD)
            w->n_grads[w->graph->value[v]->of]++;
        if (w->graph->value[v]->kind != MERAK_VALUE_PARAM)
            continue;
        t->n_params += !w->graph->value[v]->frozen;
        t->n_elements += (double)merak_shape_count(&w->graph->value[v]->shape);
    }
    for (int i = 0; i < w->graph->n_nodes; i++)
        count_node(w, w->graph->node[w->order[i]]);
    for (int s = 0; s < t->n; s++) {
        t->segment[s].first_share = n;
        n += t->segment[s].n_shares;
    }
    t->n_shares = n;
    if (n > 0)
        qsort(t->share, (size_t)n, sizeof(*t->share), compare_shares);
}

/* Count what the weight gradients of each segment read, once. */
static void count_late(struct merak_walker *w)
{
    for (int i = 0; i < w->graph->n_nodes; i++) {
        const struct merak_node *node = w->graph->node[w->order[i]];
        int seg = w->of_node[node->id];

        for (int k = 0; node->phase == MERAK_PHASE_W && k < node->n_in; k++) {
            const struct merak_value *v = node->in[k];

            if (!is_activation(v) || merak_walker_folds(w, node->id) ||
                w->last[v->id] == seg)
                continue;
            w->last[v->id] = seg;
            w->table->segment[seg].late += w->table->width * w->bytes[v->id];
        }
    }
    for (int v = 0; v < w->graph->n_values; v++)
        w->last[v] = -1;
}

void merak_walker_memory(struct merak_walker *w)
{
    measure_peaks(w);
    measure_crossings(w);
    count_kept(w);
    count_late(w);
}
