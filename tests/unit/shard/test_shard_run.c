/* SPDX-License-Identifier: Apache-2.0 */
/* test_shard_run.c - a sharded graph computes what the graph computes
 *
 * Both are run with the reference kernels, every float in double: the graph
 * as it is, the sharded one on all ranks of its mesh in one process.  Only
 * the order of sums differs between them, so that they agree to the rounding
 * of double.
 */
#include "config.h"

#include "unit/near.h"
#include "unit/shard/shard_models.h"
#include "unit/shard/virtual.h"

#include "partitioner/layout/shard.h"
#include "partitioner/order/shard_order.h"

#include "base/rng.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* A graph being run; one rank and no layouts for one that is not sharded. */
struct run {
    const struct merak_graph *graph;
    const struct merak_sharded *sharded; /* or NULL */
    struct merak_mesh mesh;
    int ranks;
    void ***data; /* [value][rank] */
    struct merak_step step;
};

static const struct merak_layout whole = {
    {{.kind = MERAK_REPLICATED, .dim = -1},
     {.kind = MERAK_REPLICATED, .dim = -1},
     {.kind = MERAK_REPLICATED, .dim = -1},
     {.kind = MERAK_REPLICATED, .dim = -1}}};

static const struct merak_layout *layout_of(const struct run *run, int value)
{
    return run->sharded == NULL ? &whole : &run->sharded->layout[value];
}

static enum merak_dtype dtype_of(const struct merak_value *v)
{
    return v->dtype == MERAK_I32 ? MERAK_I32 : MERAK_F64;
}

static void fill_leaf(const struct merak_value *v, size_t vocab, void *data)
{
    uint64_t key = merak_rng_key(3, v->name);
    size_t n = merak_shape_count(&v->shape);

    for (size_t i = 0; i < n; i++) {
        double x = 0.4 * (double)merak_rng_normal(key, i);

        if (v->dtype == MERAK_I32)
            x = (double)(merak_rng_mix(key, i) % vocab);
        else if (v->shape.ndim == 1)
            x += 1;
        virtual_put(dtype_of(v), data, i, x);
    }
}

static void run_init(struct run *run, const struct merak_graph *graph,
                     const struct merak_sharded *sharded, size_t vocab)
{
    *run = (struct run){.graph = graph, .sharded = sharded};
    run->step = (struct merak_step){
        .seed = 11, .step = 5, .sample = 40, .grad_scale = 1, .train = true};
    if (sharded != NULL)
        run->mesh = sharded->mesh;
    run->ranks = virtual_ranks(&run->mesh);
    run->data = calloc((size_t)graph->n_values, sizeof(*run->data));
    assert_non_null(run->data);
    for (int i = 0; i < graph->n_values; i++) {
        const struct merak_value *v = graph->value[i];
        size_t full = merak_shape_count(&v->shape) * sizeof(double);
        void *all = malloc(full);

        assert_non_null(all);
        run->data[i] = calloc((size_t)run->ranks, sizeof(void *));
        assert_non_null(run->data[i]);
        if (v->producer < 0)
            fill_leaf(v, vocab, all);
        for (int r = 0; r < run->ranks; r++) {
            run->data[i][r] = malloc(full);
            assert_non_null(run->data[i][r]);
            memset(run->data[i][r], 0xff, full); /* NaN until written */
            if (v->producer < 0)
                virtual_part(&run->mesh, layout_of(run, i), &v->shape, r,
                             dtype_of(v), all, run->data[i][r]);
        }
        free(all);
    }
}

static void run_fini(struct run *run)
{
    for (int i = 0; i < run->graph->n_values; i++) {
        for (int r = 0; r < run->ranks; r++)
            free(run->data[i][r]);
        free(run->data[i]);
    }
    free(run->data);
}

static void fill_operand(const struct run *run, const struct merak_value *v,
                         int rank, struct merak_operand *op)
{
    int coord[MERAK_MAX_AXES];
    struct merak_box box;

    virtual_coord(&run->mesh, rank, coord);
    merak_layout_box(&run->mesh, layout_of(run, v->id), &v->shape, coord, &box);
    op->data = run->data[v->id][rank];
    op->dtype = dtype_of(v);
    op->full = op->local = v->shape;
    memcpy(op->local.dim, box.len, sizeof(box.len));
    memcpy(op->lo, box.lo, sizeof(box.lo));
}

/* First along every index that is cut and that the output lacks. */
static bool is_first(const struct run *run, const struct merak_node *node,
                     int rank)
{
    int coord[MERAK_MAX_AXES];

    virtual_coord(&run->mesh, rank, coord);
    for (int x = 0; x < run->mesh.n_axes; x++) {
        int kind = layout_of(run, node->out[0]->id)->at[x].kind;

        if (run->sharded->strategy[node->id].cut[x] >= 0 &&
            (kind == MERAK_PARTIAL_SUM || kind == MERAK_PARTIAL_MAX) &&
            coord[x] != 0)
            return false;
    }
    return true;
}

static void run_kernel(const struct run *run, const struct merak_node *node,
                       int rank)
{
    const struct merak_backend *backend;
    const struct merak_kernel *kernel;
    struct merak_kernel_call call = {.attrs = &node->attrs,
                                     .n_in = node->n_in,
                                     .n_out = node->n_out,
                                     .step = &run->step};
    struct merak_error err = {0};

    assert_int_equal(merak_backend_find("ref", &backend, &err), MERAK_OK);
    assert_int_equal(merak_kernel_find(backend, node->op->name, &kernel, &err),
                     MERAK_OK);
    call.first = is_first(run, node, rank);
    for (int o = 0; o < node->n_in + node->n_out; o++)
        fill_operand(run, merak_node_operand(node, o), rank, &call.operand[o]);
    if (kernel->fn(&call, &err) != MERAK_OK)
        fail_msg("%s: %s", node->name, err.text);
}

static void run_all(struct run *run)
{
    for (int i = 0; i < run->graph->n_nodes; i++) {
        const struct merak_node *node = run->graph->node[i];
        const struct merak_value *in = node->in[0];

        if (run->sharded != NULL &&
            run->sharded->hop[i].kind != MERAK_CONVERT_NONE) {
            virtual_hop(&run->mesh, &run->sharded->hop[i],
                        layout_of(run, in->id), &in->shape, dtype_of(in),
                        run->data[in->id], run->data[node->out[0]->id]);
            continue;
        }
        for (int r = 0; r < run->ranks; r++)
            run_kernel(run, node, r);
    }
}

/* --- comparing
 * ------------------------------------------------------------------ */

static bool counts(const struct run *run, const struct merak_layout *layout,
                   const int *coord)
{
    for (int x = 0; x < run->mesh.n_axes; x++)
        if (layout->at[x].kind == MERAK_REPLICATED && coord[x] != 0)
            return false;
    return true;
}

/* Add a value's parts to a whole tensor: partial ones summed, replicated
 * ones once. */
static void add_whole(const struct run *run, const struct merak_value *v,
                      double *sum)
{
    const struct merak_layout *layout = layout_of(run, v->id);

    for (int r = 0; r < run->ranks; r++) {
        struct merak_box to, from;
        int coord[MERAK_MAX_AXES];

        virtual_coord(&run->mesh, r, coord);
        if (!counts(run, layout, coord))
            continue;
        merak_layout_box(&run->mesh, layout, &v->shape, coord, &to);
        from = to;
        memcpy(from.full, to.len, sizeof(to.len));
        memset(from.lo, 0, sizeof(from.lo));
        virtual_copy(MERAK_F64, run->data[v->id][r], &from, sum, &to,
                     MERAK_SUM);
    }
}

static double *param_grad(const struct run *run, const struct merak_value *p)
{
    double *sum = calloc(merak_shape_count(&p->shape), sizeof(*sum));
    int uses = 0;

    assert_non_null(sum);
    for (int i = 0; i < run->graph->n_values; i++) {
        const struct merak_value *v = run->graph->value[i];

        if (v->kind != MERAK_VALUE_PARAM_GRAD || v->of != p->id)
            continue;
        add_whole(run, v, sum);
        uses++;
    }
    assert_true(uses > 0);
    return sum;
}

static const struct merak_value *same_param(const struct run *run,
                                            const char *name)
{
    for (int i = 0; i < run->graph->n_values; i++)
        if (run->graph->value[i]->kind == MERAK_VALUE_PARAM &&
            strcmp(run->graph->value[i]->name, name) == 0)
            return run->graph->value[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static void compare(const struct run *one, const struct run *many)
{
    const double *want = one->data[one->graph->loss->id][0];

    for (int r = 0; r < many->ranks; r++)
        assert_near((double *)many->data[many->graph->loss->id][r], want, 1,
                    1e-13, 0.0);
    for (int i = 0; i < one->graph->n_values; i++) {
        const struct merak_value *p = one->graph->value[i];
        size_t n = merak_shape_count(&p->shape);
        double *a, *b, largest = 0;

        if (p->kind != MERAK_VALUE_PARAM)
            continue;
        a = param_grad(one, p);
        b = param_grad(many, same_param(many, p->name));
        for (size_t k = 0; k < n; k++)
            largest = fmax(largest, fabs(a[k]));
        assert_true(largest > 0);
        /* a few thousand terms, rounded at 1e-16 each */
        assert_near(b, a, n, 0.0, 1e-12 * largest);
        free(a);
        free(b);
    }
}

/* --- what is run
 * ------------------------------------------------------------------ */

static const struct {
    struct spec spec;
    int tp;
} run_rows[] = {
    {{false, 2, 8, 2, 16, 4, 4, 61, true, 0.2f, BLOCK_PRE}, 2},
    {{false, 2, 8, 2, 16, 4, 4, 61, true, 0.2f, BLOCK_PRE}, 4},
    {{false, 3, 8, 1, 16, 4, 4, 64, false, 0.2f, BLOCK_PRE}, 2},
    {{false, 1, 8, 1, 16, 4, 4, 63, false, 0, BLOCK_PRE}, 4},
    {{true, 2, 8, 2, 16, 4, 4, 61, false, 0, BLOCK_PRE}, 2},
    {{true, 2, 8, 2, 16, 4, 2, 61, false, 0, BLOCK_PRE}, 2},
    {{true, 2, 8, 2, 16, 4, 2, 61, false, 0, BLOCK_PRE}, 4},
    {{true, 2, 8, 1, 16, 4, 1, 61, true, 0, BLOCK_PRE}, 4},
    {{true, 3, 8, 1, 24, 6, 3, 61, true, 0.1f, BLOCK_PRE}, 6},
    {{true, 1, 8, 1, 32, 8, 4, 130, true, 0.1f, BLOCK_PRE}, 8},
    {{false, 2, 8, 2, 16, 4, 4, 61, true, 0.1f, BLOCK_POST}, 2},
    {{true, 2, 8, 2, 16, 4, 2, 61, false, 0, BLOCK_POST}, 4},
    {{false, 2, 8, 2, 16, 4, 4, 61, true, 0.1f, BLOCK_PARALLEL}, 4},
    {{true, 2, 8, 2, 16, 4, 2, 61, false, 0, BLOCK_PARALLEL}, 4},
    /* few tokens for the vocabulary, and tp divides the samples */
    {{false, 2, 8, 2, 16, 4, 4, 509, true, 0.2f, BLOCK_PRE}, 2},
    {{true, 4, 8, 2, 16, 4, 2, 509, false, 0.2f, BLOCK_PRE}, 4},
    {{false, 4, 8, 2, 16, 4, 4, 1021, false, 0, BLOCK_POST}, 4},
};

/* Sharded so, they compute what one rank does. */
static void run_sharded(const struct merak_graph *graph,
                        const struct spec *spec,
                        const struct merak_shard_options *opt,
                        const struct run *one)
{
    struct merak_sharded *s = NULL;
    struct merak_error err = {0};
    struct run many;

    if (merak_shard(graph, opt, &s, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    run_init(&many, s->graph, s, spec->vocab);
    run_all(&many);
    compare(one, &many);
    run_fini(&many);
    merak_sharded_destroy(s);
}

static void ranks_together_compute_the_same(void **state)
{
    (void)state;
    for (size_t r = 0; r < COUNT(run_rows); r++) {
        const struct spec *spec = &run_rows[r].spec;
        size_t tp = (size_t)run_rows[r].tp;
        struct merak_graph *graph;
        struct merak_model *m = spec_model(spec, MERAK_F32, &graph);
        struct run one;

        run_init(&one, graph, NULL, spec->vocab);
        run_all(&one);
        for (int i = 0; i < 9; i++) {
            const struct merak_shard_options opt = {
                .tp = run_rows[r].tp,
                .sp = (enum merak_seq_parallel)(i % 3),
                .tp_batch_percent = 50 * (i / 3)};

            if ((opt.sp == MERAK_SP_ON && spec->seq % tp != 0) ||
                (opt.tp_batch_percent > 0 && spec->batch % tp != 0))
                continue;
            run_sharded(graph, spec, &opt, &one);
        }
        run_fini(&one);
        merak_model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_together_compute_the_same),
    };

    return cmocka_run_group_tests_name("shard_run", tests, NULL, NULL);
}
