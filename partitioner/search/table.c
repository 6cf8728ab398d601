/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - what each segment of a sharded graph costs
 *
 * A segment is what lies between two neighbouring places where the graph may
 * be cut.  Its nodes are walked once in program order with a compute and a
 * collective queue, as the program will run them, so that an exchange which
 * kernels of the segment hide costs nothing; at the segment's end both queues
 * meet.  Sizes are those of tensor rank 0, whose programs are built later.
 */
#include "config.h"

#include "partitioner/search/impl.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum direction { UP, DOWN, DIRECTIONS }; /* forward; gradients */

struct walker {
    const struct merak_search_input *in;
    const struct merak_cost_model *cost;
    const struct merak_sharded *sharded;
    const struct merak_graph *graph;
    struct merak_table *table;
    const int *of_node; /* segment */
    int coord[MERAK_MAX_AXES];
    double *bytes;                 /* by value: this rank's part */
    double *node_s, *node_scratch; /* by node */
    double *ready;                 /* by value: end of its producer */
    int *low, *high;   /* by value: first and last segment that uses it */
    int *first, *last; /* by value: touched in the segment at hand */
    double *live;      /* by position in the segment at hand */
    bool *back;        /* by value and the segment at hand: used by gradients */
    int *order;        /* nodes by segment */
    int *start;        /* of a segment in order */
    int *seen;         /* by value: latest segment that keeps or holds it */
    struct merak_error *err;
    enum merak_status rc;
};

static bool is_convert(const struct walker *w, int node)
{
    return w->sharded->hop[node].kind != MERAK_CONVERT_NONE;
}

/* --- single nodes --------------------------------------------------------- */

static double local_count(const struct walker *w, int value)
{
    struct merak_box box;

    merak_layout_box(&w->sharded->mesh, &w->sharded->layout[value],
                     &w->graph->value[value]->shape, w->coord, &box);
    return (double)merak_box_count(&box);
}

static void local_operand(const struct walker *w, const struct merak_value *v,
                          struct merak_operand *op)
{
    struct merak_box box;

    merak_layout_box(&w->sharded->mesh, &w->sharded->layout[v->id], &v->shape,
                     w->coord, &box);
    *op = (struct merak_operand){.dtype = v->dtype, .full = v->shape};
    op->local.ndim = box.ndim;
    for (int d = 0; d < box.ndim; d++) {
        op->local.dim[d] = box.len[d];
        op->lo[d] = box.lo[d];
    }
}

static void measure_kernel(struct walker *w, const struct merak_node *node)
{
    struct merak_kernel_call call = {
        .attrs = &node->attrs, .n_in = node->n_in, .n_out = node->n_out};
    struct merak_infer inf = {
        .attrs = &node->attrs, .n_in = node->n_in, .n_out = node->n_out};
    struct merak_cost cost = {0};

    for (int o = 0; o < node->n_in + node->n_out; o++) {
        local_operand(w,
                      o < node->n_in ? node->in[o] : node->out[o - node->n_in],
                      &call.operand[o]);
        inf.shape[o] = call.operand[o].local;
        inf.dtype[o] = call.operand[o].dtype;
    }
    if (node->op->cost != NULL)
        node->op->cost(&inf, &cost);
    w->node_s[node->id] = merak_cost_kernel(w->cost, cost.flops, cost.bytes);
    w->table->segment[w->of_node[node->id]].flops += cost.flops;
    if (w->in->scratch != NULL)
        w->node_scratch[node->id] =
            (double)w->in->scratch(w->in->scratch_arg, node->op->name, &call);
}

static void measure_convert(struct walker *w, const struct merak_node *node)
{
    const struct merak_hop *hop = &w->sharded->hop[node->id];
    const struct merak_value *from = node->in[0];
    struct merak_exchange ex;
    double bytes;

    if (hop->kind == MERAK_CONVERT_SLICE) {
        w->node_s[node->id] =
            merak_cost_kernel(w->cost, 0, 2 * w->bytes[node->out[0]->id]);
        return;
    }
    w->rc = merak_exchange_init(&ex, &w->sharded->mesh, hop,
                                &w->sharded->layout[from->id], &from->shape,
                                from->dtype, w->coord, w->err);
    if (w->rc != MERAK_OK)
        return;
    bytes = (double)merak_exchange_bytes(&ex);
    w->node_scratch[node->id] = (double)merak_exchange_scratch(&ex);
    /* Tensor groups never leave a node. */
    w->node_s[node->id] =
        merak_cost_exchange(w->cost, hop->kind, bytes, ex.n, ex.n);
    w->table->segment[w->of_node[node->id]].exchanged += bytes;
    merak_exchange_fini(&ex);
}

static void measure_nodes(struct walker *w)
{
    for (int v = 0; v < w->graph->n_values; v++)
        w->bytes[v] = local_count(w, v) *
                      (double)merak_dtype_bytes(w->graph->value[v]->dtype);
    for (int n = 0; n < w->graph->n_nodes && w->rc == MERAK_OK; n++) {
        if (is_convert(w, n))
            measure_convert(w, w->graph->node[n]);
        else
            measure_kernel(w, w->graph->node[n]);
    }
}

/* --- time ----------------------------------------------------------------- */

/* Nodes of a segment whose phase is in `phases`, on two queues. */
static double walk_time(struct walker *w, int seg, unsigned phases,
                        double *kernel_s)
{
    double compute = 0, collective = 0;

    for (int i = w->start[seg]; i < w->start[seg + 1]; i++) {
        const struct merak_node *node = w->graph->node[w->order[i]];
        bool exchange = is_convert(w, node->id) &&
                        w->sharded->hop[node->id].kind != MERAK_CONVERT_SLICE;
        double *queue = exchange ? &collective : &compute;
        double at = *queue;

        if (!(phases & (1u << node->phase)))
            continue;
        for (int k = 0; k < node->n_in; k++) {
            const struct merak_value *in = node->in[k];

            /* What other segments or phases made is there. */
            if (in->producer >= 0 && w->of_node[in->producer] == seg &&
                (phases & (1u << w->graph->node[in->producer]->phase)) &&
                w->ready[in->id] > at)
                at = w->ready[in->id];
        }
        *queue = at + w->node_s[node->id];
        for (int k = 0; k < node->n_out; k++)
            w->ready[node->out[k]->id] = *queue;
        if (!exchange)
            *kernel_s += w->node_s[node->id];
    }
    return compute > collective ? compute : collective;
}

static void load_times(struct walker *w)
{
    for (int v = 0; v < w->graph->n_values; v++) {
        double seconds = merak_cost_kernel(w->cost, 0, w->bytes[v]);

        if (w->graph->value[v]->kind != MERAK_VALUE_INPUT || w->high[v] < 0)
            continue;
        w->table->segment[w->low[v]].f_s += seconds;
        w->table->segment[w->low[v]].kernel_s += seconds;
    }
}

static void measure_times(struct walker *w)
{
    const unsigned f = 1u << MERAK_PHASE_F, b = 1u << MERAK_PHASE_B;
    const unsigned wt = 1u << MERAK_PHASE_W;

    load_times(w);
    for (int s = 0; s < w->table->n; s++) {
        struct merak_segment *seg = &w->table->segment[s];
        double unused = 0;

        seg->f_s += walk_time(w, s, f, &seg->kernel_s);
        seg->b_s = walk_time(w, s, b | wt, &seg->kernel_s);
        seg->x_s = walk_time(w, s, b, &unused);
        seg->w_s = walk_time(w, s, wt, &unused);
        w->table->total_s += seg->f_s + seg->b_s;
        w->table->flops += seg->flops;
    }
}

/* --- memory of activations ------------------------------------------------ */

static void find_spread(struct walker *w)
{
    for (int v = 0; v < w->graph->n_values; v++) {
        w->low[v] = w->table->n;
        w->high[v] = -1;
    }
    for (int n = 0; n < w->graph->n_nodes; n++) {
        const struct merak_node *node = w->graph->node[n];
        int seg = w->of_node[n];

        for (int o = 0; o < node->n_in + node->n_out; o++) {
            int v = o < node->n_in ? node->in[o]->id
                                   : node->out[o - node->n_in]->id;

            if (seg < w->low[v])
                w->low[v] = seg;
            if (seg > w->high[v])
                w->high[v] = seg;
        }
    }
}

static bool is_forward(const struct walker *w, const struct merak_value *v)
{
    return v->producer < 0 ||
           w->graph->node[v->producer]->phase == MERAK_PHASE_F;
}

static bool is_activation(const struct merak_value *v)
{
    return v->kind != MERAK_VALUE_PARAM && v->kind != MERAK_VALUE_PARAM_GRAD;
}

/* Lives of values among a segment's nodes of one direction, as positions. */
static int find_lives(struct walker *w, int seg, enum direction dir)
{
    int at = 0;

    for (int i = w->start[seg]; i < w->start[seg + 1]; i++) {
        const struct merak_node *node = w->graph->node[w->order[i]];

        if ((node->phase == MERAK_PHASE_F) != (dir == UP))
            continue;
        w->live[at] = w->node_scratch[node->id];
        for (int o = 0; o < node->n_in + node->n_out; o++) {
            int v = o < node->n_in ? node->in[o]->id
                                   : node->out[o - node->n_in]->id;

            if (w->first[v] < 0)
                w->first[v] = at;
            w->last[v] = at;
        }
        at++;
    }
    return at;
}

static void spread_life(struct walker *w, int v, int from, int to)
{
    for (int at = from; at <= to; at++)
        w->live[at] += w->bytes[v];
}

/* The value is touched; when does it live? */
static void add_life(struct walker *w, int seg, enum direction dir,
                     const struct merak_value *v, int n)
{
    int from = w->first[v->id], to = w->last[v->id];
    bool forward = is_forward(w, v);

    w->first[v->id] = w->last[v->id] = -1;
    if (!is_activation(v))
        return;
    if (dir == DOWN && forward)
        from = 0; /* kept since its forward */
    if (dir == UP && (w->back[v->id] || w->high[v->id] > seg))
        to = n - 1;
    if (dir == UP && w->low[v->id] < seg)
        from = 0;
    if (dir == DOWN && !forward && w->low[v->id] < seg)
        to = n - 1;
    if (dir == DOWN && !forward && w->high[v->id] > seg)
        from = 0;
    spread_life(w, v->id, from, to);
}

static void mark_back(struct walker *w, int seg, bool mark)
{
    for (int i = w->start[seg]; i < w->start[seg + 1]; i++) {
        const struct merak_node *node = w->graph->node[w->order[i]];

        for (int k = 0; node->phase != MERAK_PHASE_F && k < node->n_in; k++)
            w->back[node->in[k]->id] = mark;
    }
}

static double peak_of(struct walker *w, int seg, enum direction dir)
{
    int n = find_lives(w, seg, dir);
    double peak = 0;

    for (int i = w->start[seg]; i < w->start[seg + 1]; i++) {
        const struct merak_node *node = w->graph->node[w->order[i]];

        for (int o = 0; o < node->n_in + node->n_out; o++) {
            const struct merak_value *v =
                o < node->n_in ? node->in[o] : node->out[o - node->n_in];

            if (w->first[v->id] >= 0)
                add_life(w, seg, dir, v, n);
        }
    }
    for (int at = 0; at < n; at++)
        peak = w->live[at] > peak ? w->live[at] : peak;
    return peak;
}

static void measure_peaks(struct walker *w)
{
    for (int s = 0; s < w->table->n; s++) {
        struct merak_segment *seg = &w->table->segment[s];
        double up, down;

        mark_back(w, s, true);
        up = peak_of(w, s, UP);
        down = peak_of(w, s, DOWN);
        mark_back(w, s, false);
        seg->peak = up > down ? up : down;
    }
}

/* Everything that crosses a segment's lower end. */
static void measure_crossings(struct walker *w)
{
    for (int v = 0; v < w->graph->n_values; v++) {
        const struct merak_value *value = w->graph->value[v];
        bool up = is_forward(w, value);

        if (value->producer < 0 || !is_activation(value))
            continue;
        for (int s = w->low[v] + 1; s <= w->high[v]; s++) {
            struct merak_segment *seg = &w->table->segment[s];
            double *bytes = up ? &seg->up_bytes : &seg->down_bytes;

            *bytes += w->bytes[v];
        }
    }
}

/* --- what is kept and held ------------------------------------------------ */

static int compare_shares(const void *a, const void *b)
{
    const struct merak_share *x = a, *y = b;

    return x->segment != y->segment ? x->segment - y->segment
                                    : x->prev - y->prev;
}

static void add_share(struct walker *w, struct merak_share *share)
{
    struct merak_table *t = w->table;
    size_t n = 0;
    void *grown;

    for (int s = 0; s < t->n; s++)
        n += (size_t)t->segment[s].n_shares;
    if ((n & (n - 1)) == 0) { /* room for a power of two */
        grown = realloc(t->share, (n == 0 ? 1 : 2 * n) * sizeof(*t->share));
        if (grown == NULL) {
            w->rc = merak_fail_nomem(w->err, n * sizeof(*t->share));
            return;
        }
        t->share = grown;
    }
    t->share[n] = *share;
    t->segment[share->segment].n_shares++;
    t->segment[share->prev].lent += share->hold.low + share->hold.full;
}

static void hold_add(struct merak_hold *to, const struct merak_hold *what)
{
    to->param_bytes += what->param_bytes;
    to->grad_bytes += what->grad_bytes;
    to->low += what->low;
    to->full += what->full;
    to->convert_s += what->convert_s;
    to->elements += what->elements;
    to->n += what->n;
}

/* The value is used in the segment; has an earlier one it, too? */
static void count_use(struct walker *w, int seg, int v, double kept,
                      const struct merak_hold *hold)
{
    struct merak_segment *s = &w->table->segment[seg];
    struct merak_share share = {
        .segment = seg, .prev = w->seen[v], .kept = kept};

    if (w->seen[v] == seg || w->rc != MERAK_OK)
        return;
    w->seen[v] = seg;
    if (hold != NULL)
        share.hold = *hold;
    if (share.prev >= 0) {
        add_share(w, &share);
        return;
    }
    s->kept += kept;
    if (hold != NULL)
        hold_add(&s->hold, hold);
}

static void count_param(struct walker *w, int seg, const struct merak_value *v)
{
    struct merak_segment *s = &w->table->segment[seg];
    double count = local_count(w, v->id);
    struct merak_hold hold = {.param_bytes = w->bytes[v->id],
                              .elements = (double)merak_shape_count(&v->shape),
                              .n = 1};

    if (v->dtype == MERAK_F32)
        hold.full = count;
    else
        hold.low = count;
    if (count > s->largest)
        s->largest = count;
    count_use(w, seg, v->id, 0, &hold);
}

/* The collectives that bring a gradient to its parameter's layout. */
static void count_grad(struct walker *w, int seg, const struct merak_value *v)
{
    struct merak_segment *s = &w->table->segment[seg];
    const struct merak_mesh *mesh = &w->sharded->mesh;
    struct merak_hop hop[MERAK_MAX_HOPS];
    int n = merak_layout_path(mesh, &v->shape, &w->sharded->layout[v->id],
                              &w->sharded->layout[v->of], NULL, hop, NULL);

    s->hold.grad_bytes += w->bytes[v->id];
    for (int h = 0; h < n; h++) {
        int size = mesh->axis[hop[h].axis].size;

        s->hold.convert_s += merak_cost_exchange(
            w->cost, hop[h].kind, hop[h].words * sizeof(float), size, size);
    }
}

static void count_node(struct walker *w, const struct merak_node *node)
{
    int seg = w->of_node[node->id];

    for (int k = 0; k < node->n_in; k++) {
        const struct merak_value *v = node->in[k];

        if (v->kind == MERAK_VALUE_PARAM)
            count_param(w, seg, v);
        else if (node->phase != MERAK_PHASE_F && is_forward(w, v) &&
                 is_activation(v))
            count_use(w, seg, v->id, w->bytes[v->id], NULL);
    }
    for (int k = 0; k < node->n_out; k++) {
        if (node->out[k]->kind == MERAK_VALUE_PARAM_GRAD)
            count_grad(w, seg, node->out[k]);
    }
}

static void count_kept(struct walker *w)
{
    struct merak_table *t = w->table;
    int n = 0;

    for (int v = 0; v < w->graph->n_values; v++) {
        w->seen[v] = -1;
        if (w->graph->value[v]->kind != MERAK_VALUE_PARAM)
            continue;
        t->n_params++;
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

/* --- the table ------------------------------------------------------------ */

static void sort_nodes(struct walker *w)
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

static enum merak_status walker_init(struct walker *w)
{
    size_t nodes = (size_t)w->graph->n_nodes + 2;
    size_t values = (size_t)w->graph->n_values + 1;
    size_t n = nodes + values;

    w->bytes = calloc(values, sizeof(double));
    w->ready = calloc(values, sizeof(double));
    w->node_s = calloc(nodes, sizeof(double));
    w->node_scratch = calloc(nodes, sizeof(double));
    w->live = calloc(nodes, sizeof(double));
    w->low = malloc(values * sizeof(int));
    w->high = malloc(values * sizeof(int));
    w->first = malloc(values * sizeof(int));
    w->last = malloc(values * sizeof(int));
    w->seen = malloc(values * sizeof(int));
    w->back = calloc(values, sizeof(bool));
    w->order = calloc(nodes, sizeof(int));
    w->start = calloc((size_t)w->table->n + 2, sizeof(int));
    if (w->bytes == NULL || w->ready == NULL || w->node_s == NULL ||
        w->node_scratch == NULL || w->live == NULL || w->low == NULL ||
        w->high == NULL || w->first == NULL || w->last == NULL ||
        w->seen == NULL || w->back == NULL || w->order == NULL ||
        w->start == NULL)
        return merak_fail_nomem(w->err, n * sizeof(double));
    for (size_t v = 0; v < values; v++)
        w->first[v] = w->last[v] = -1;
    merak_plan_coord(&w->sharded->mesh, 0, w->coord);
    sort_nodes(w);
    return MERAK_OK;
}

static void walker_fini(struct walker *w)
{
    free(w->bytes);
    free(w->ready);
    free(w->node_s);
    free(w->node_scratch);
    free(w->live);
    free(w->low);
    free(w->high);
    free(w->first);
    free(w->last);
    free(w->seen);
    free(w->back);
    free(w->order);
    free(w->start);
}

/* Stages of one segment each: they tell the segment of every node. */
static enum merak_status cut_everywhere(const struct merak_sharded *sharded,
                                        struct merak_stages **stages_p,
                                        struct merak_error *err)
{
    int n = 0, *place;
    enum merak_status rc = merak_stages_places(sharded, &n, err);

    if (rc != MERAK_OK)
        return rc;
    place = calloc((size_t)n + 1, sizeof(*place));
    if (place == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*place));
    for (int i = 0; i < n; i++)
        place[i] = i;
    rc = merak_stages_at(sharded, place, n + 1, stages_p, err);
    free(place);
    return rc;
}

static enum merak_status fill(struct walker *w)
{
    enum merak_status rc = walker_init(w);

    if (rc != MERAK_OK)
        return rc;
    find_spread(w);
    measure_nodes(w);
    if (w->rc == MERAK_OK) {
        measure_times(w);
        measure_peaks(w);
        measure_crossings(w);
        count_kept(w);
    }
    return w->rc;
}

enum merak_status merak_table_create(const struct merak_search_input *in,
                                     const struct merak_cost_model *cost,
                                     const struct merak_sharded *sharded,
                                     struct merak_table **table_p,
                                     struct merak_error *err)
{
    struct merak_table *t = calloc(1, sizeof(*t));
    struct walker w = {.in = in,
                       .cost = cost,
                       .sharded = sharded,
                       .graph = sharded->graph,
                       .table = t,
                       .err = err};
    struct merak_stages *stages = NULL;
    enum merak_status rc;

    if (t == NULL)
        return merak_fail_nomem(err, sizeof(*t));
    rc = cut_everywhere(sharded, &stages, err);
    if (rc != MERAK_OK)
        goto out;
    t->n = stages->n;
    t->n_nodes = sharded->graph->n_nodes;
    w.of_node = stages->of_node;
    t->segment = calloc((size_t)t->n, sizeof(*t->segment));
    rc = t->segment == NULL
             ? merak_fail_nomem(err, (size_t)t->n * sizeof(*t->segment))
             : fill(&w);
    if (rc != MERAK_OK)
        goto out;
    *table_p = t;
    t = NULL; /* the caller's now */
out:
    walker_fini(&w);
    merak_stages_destroy(stages);
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

/* --- ranges --------------------------------------------------------------- */

void merak_range_start(struct merak_range *range, int from)
{
    *range = (struct merak_range){.from = from, .to = from};
}

void merak_range_add(const struct merak_table *table, struct merak_range *range)
{
    const struct merak_segment *s = &table->segment[range->to];

    range->f_s += s->f_s;
    range->b_s += s->b_s;
    range->x_s += s->x_s;
    range->w_s += s->w_s;
    range->kernel_s += s->kernel_s;
    range->flops += s->flops;
    range->exchanged += s->exchanged;
    if (range->kept + s->peak > range->peak)
        range->peak = range->kept + s->peak;
    if (s->largest > range->largest)
        range->largest = s->largest;
    range->kept += s->kept;
    range->lent += s->lent;
    hold_add(&range->hold, &s->hold);
    for (int i = 0; i < s->n_shares; i++) {
        const struct merak_share *share = &table->share[s->first_share + i];

        if (share->prev >= range->from) { /* both in here */
            range->lent -= share->hold.low + share->hold.full;
            continue;
        }
        range->kept += share->kept;
        hold_add(&range->hold, &share->hold);
        range->tied += share->hold.low + share->hold.full;
    }
    range->to++;
}
