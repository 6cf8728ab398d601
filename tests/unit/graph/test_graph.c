/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph.c - building models, and their gradients */
#include "config.h"

#include "unit/graph/few_calls.h"
#include "unit/near.h"

#include "partitioner/graph/graph.h"
#include "partitioner/graph/letters.h"

#include <stdlib.h>
#include <string.h>

/* One block with every kind of use: a tied table, a residual, dropout. */
static void describe_block(struct merak_model *m)
{
    struct merak_value *wte =
        MERAK_PARAM(m, "wte", MERAK_NORMAL(0.02f), 61, 32);
    struct merak_value *x = merak_embedding(m, merak_tokens(m), wte), *h;

    x = merak_add_position(m, x,
                           MERAK_PARAM(m, "wpe", MERAK_NORMAL(0.02f), 16, 32));
    x = merak_dropout(m, x, 0.1f);
    h = merak_layernorm(m, x, MERAK_PARAM(m, "ln.g", MERAK_ONES, 32),
                        MERAK_PARAM(m, "ln.b", MERAK_ZEROS, 32), 1e-5f);
    h = merak_linear(m, h,
                     MERAK_PARAM(m, "qkv.w", MERAK_NORMAL(0.02f), 3, 4, 8, 32),
                     MERAK_PARAM(m, "qkv.b", MERAK_ZEROS, 3, 4, 8), 1);
    h = merak_attention_packed(m, h);
    h = merak_linear(m, h, MERAK_PARAM(m, "o.w", MERAK_NORMAL(0.02f), 32, 4, 8),
                     NULL, 2);
    x = merak_gelu(m, merak_add(m, x, h), true);
    merak_cross_entropy(m, merak_linear(m, x, wte, NULL, 1), merak_targets(m));
}

static const char block_text[] =
    "F embedding.0 = embedding(tokens, wte) -> bf16[2,16,32]\n"
    "F add_position.1 = add_position(embedding.0, wpe) -> bf16[2,16,32]\n"
    "F dropout.2 = dropout(add_position.1) -> bf16[2,16,32]\n"
    "F layernorm.3 = layernorm(dropout.2, ln.g, ln.b)"
    " -> bf16[2,16,32] f32[2,16] f32[2,16]\n"
    "F linear.4 = linear(layernorm.3, qkv.w, qkv.b) -> bf16[2,16,3,4,8]\n"
    "F attention_packed.5 = attention_packed(linear.4)"
    " -> bf16[2,16,4,8] f32[2,16,4]\n"
    "F linear.6 = linear(attention_packed.5, o.w) -> bf16[2,16,32]\n"
    "F add.7 = add(dropout.2, linear.6) -> bf16[2,16,32]\n"
    "F gelu.8 = gelu(add.7) -> bf16[2,16,32]\n"
    "F linear.9 = linear(gelu.8, wte) -> bf16[2,16,61]\n"
    "F xent_max.10 = xent_max(linear.9) -> f32[2,16]\n"
    "F xent_sum.11 = xent_sum(linear.9, xent_max.10, targets)"
    " -> f32[2,16] f32[2,16]\n"
    "F xent_loss.12 = xent_loss(xent_max.10, xent_sum.11, xent_sum.11:1)"
    " -> f32[2,16]\n"
    "F mean_loss.13 = mean_loss(xent_loss.12) -> f64[]\n"
    "B xent_dlogits.11 = xent_dlogits(linear.9, xent_max.10, xent_sum.11,"
    " targets) -> bf16[2,16,61]\n"
    "B linear_dx.9 = linear_dx(xent_dlogits.11, wte) -> bf16[2,16,32]\n"
    "W linear_dw.9 = linear_dw(gelu.8, xent_dlogits.11) -> f32[61,32]\n"
    "B gelu_dx.8 = gelu_dx(linear_dx.9, add.7) -> bf16[2,16,32]\n"
    "B linear_dx.6 = linear_dx(gelu_dx.8, o.w) -> bf16[2,16,4,8]\n"
    "W linear_dw.6 = linear_dw(attention_packed.5, gelu_dx.8)"
    " -> f32[32,4,8]\n"
    "B attention_packed_dx.5 = attention_packed_dx(linear_dx.6, linear.4,"
    " attention_packed.5, attention_packed.5:1) -> bf16[2,16,3,4,8]\n"
    "B linear_dx.4 = linear_dx(attention_packed_dx.5, qkv.w)"
    " -> bf16[2,16,32]\n"
    "W linear_dw.4 = linear_dw(layernorm.3, attention_packed_dx.5)"
    " -> f32[3,4,8,32]\n"
    "W linear_db.4 = linear_db(attention_packed_dx.5) -> f32[3,4,8]\n"
    "B layernorm_dx.3 = layernorm_dx(linear_dx.4, dropout.2, ln.g,"
    " layernorm.3:1, layernorm.3:2) -> bf16[2,16,32]\n"
    "B add_dx.3 = add(gelu_dx.8, layernorm_dx.3) -> bf16[2,16,32]\n"
    "W layernorm_dw.3 = layernorm_dw(linear_dx.4, dropout.2, layernorm.3:1,"
    " layernorm.3:2) -> f32[32] f32[32]\n"
    "B dropout_dx.2 = dropout(add_dx.3) -> bf16[2,16,32]\n"
    "W add_position_dw.1 = add_position_dw(dropout_dx.2) -> f32[16,32]\n"
    "W embedding_dw.0 = embedding_dw(tokens, dropout_dx.2) -> f32[61,32]\n";

static void a_block_and_its_gradients_are_these_nodes(void **state)
{
    struct merak_model *m = create(MERAK_BF16);
    struct merak_graph *graph;
    char *text = NULL;

    (void)state;
    describe_block(m);
    graph = graph_of(m);
    assert_int_equal(graph->n_forward, 14);
    assert_int_equal(merak_graph_print(graph, &text, NULL), MERAK_OK);
    assert_string_equal(text, block_text);
    free(text);
    merak_model_destroy(m);
}

static const struct merak_value *find_value(const struct merak_graph *graph,
                                            const char *name)
{
    for (int i = 0; i < graph->n_values; i++) {
        if (strcmp(graph->value[i]->name, name) == 0)
            return graph->value[i];
    }
    fail_msg("no value %s", name);
    return NULL;
}

static void each_use_of_a_tied_weight_has_its_gradient(void **state)
{
    struct merak_model *m = create(MERAK_F32);
    const struct merak_value *wte, *first, *second;
    struct merak_graph *graph;

    (void)state;
    describe_block(m);
    graph = graph_of(m);
    wte = find_value(graph, "wte");
    first = find_value(graph, "embedding_dw.0");
    second = find_value(graph, "linear_dw.9");
    assert_int_equal(first->kind, MERAK_VALUE_PARAM_GRAD);
    assert_int_equal(first->of, wte->id);
    assert_int_equal(first->use, 0);
    assert_int_equal(second->of, wte->id);
    assert_int_equal(second->use, 1);
    merak_model_destroy(m);
}

/* --- gradients, further
 * ---------------------------------------------------------- */

static const struct merak_node *find_node(const struct merak_graph *graph,
                                          const char *name)
{
    for (int i = 0; i < graph->n_nodes; i++) {
        if (strcmp(graph->node[i]->name, name) == 0)
            return graph->node[i];
    }
    return NULL;
}

static void a_gradient_is_summed_last_use_first(void **state)
{
    struct merak_model *m = create(MERAK_F32);
    struct merak_value *x = begin(m), *a, *b, *c;
    const struct merak_node *first, *second;
    struct merak_graph *graph;

    (void)state;
    a = merak_gelu(m, x, false); /* 1 */
    b = merak_gelu(m, x, false); /* 2 */
    c = merak_gelu(m, x, false); /* 3 */
    end(m, merak_add(m, merak_add(m, a, b), c));
    graph = graph_of(m);
    /* (c + b) + a, each as soon as both are there */
    first = find_node(graph, "add_dx.2");
    second = find_node(graph, "add_dx.1");
    assert_non_null(first);
    assert_non_null(second);
    assert_string_equal(first->in[0]->name, "gelu_dx.3");
    assert_string_equal(first->in[1]->name, "gelu_dx.2");
    assert_ptr_equal(second->in[0], first->out[0]);
    assert_string_equal(second->in[1]->name, "gelu_dx.1");
    assert_int_equal(second->out[0]->of, x->id);
    assert_string_equal(graph->node[first->id - 1]->name, "gelu_dx.2");
    assert_int_equal(first->phase, MERAK_PHASE_B);
    merak_model_destroy(m);
}

static void a_value_added_to_itself_gets_its_gradient_twice(void **state)
{
    struct merak_model *m = create(MERAK_F32);
    struct merak_value *x = begin(m);
    const struct merak_node *sum;

    (void)state;
    end(m, merak_add(m, x, x));
    sum = find_node(graph_of(m), "add_dx.1");
    assert_non_null(sum);
    assert_ptr_equal(sum->in[0], sum->in[1]);
    merak_model_destroy(m);
}

/* The gradients of one rope and one dropout: same attributes, but the
 * rotation is turned back. */
static void ops_that_are_their_own_gradients_keep_attributes(void **state)
{
    struct merak_model *m = create(MERAK_F32);
    const struct merak_node *rope, *dropout;
    struct merak_graph *graph;
    struct merak_value *x;

    (void)state;
    x = merak_dropout(m, begin(m), 0.25f);
    x = merak_dropout(m, x, 0.5f);
    end(m, merak_rope(m, x, 1e4f));
    graph = graph_of(m);
    rope = find_node(graph, "rope_dx.3");
    dropout = find_node(graph, "dropout_dx.2");
    assert_non_null(rope);
    assert_non_null(dropout);
    assert_int_equal(rope->attrs.i[0], 1);
    assert_true(rope->attrs.f[0] == 1e4);
    assert_int_equal(dropout->attrs.i[0], 1);
    assert_true(dropout->attrs.f[0] == 0.5);
    assert_int_equal(find_node(graph, "dropout.1")->attrs.i[0], 0);
    merak_model_destroy(m);
}

/* Nothing before the first parameter asks for gradients. */
static void what_depends_on_no_parameter_gets_no_gradient(void **state)
{
    struct merak_model *m = create(MERAK_F32);
    struct merak_value *x = begin(m);
    struct merak_graph *graph;
    int b = 0;

    (void)state;
    end(m, x);
    graph = graph_of(m);
    for (int i = 0; i < graph->n_nodes; i++)
        b += graph->node[i]->phase == MERAK_PHASE_B;
    assert_int_equal(b, 2); /* dlogits, and dx of the head; no embedding_dx */
    for (int i = 0; i < graph->n_values; i++) {
        const struct merak_value *v = graph->value[i];

        if (v->kind == MERAK_VALUE_GRADIENT ||
            v->kind == MERAK_VALUE_PARAM_GRAD)
            assert_true(v->of >= 0);
    }
    merak_model_destroy(m);
}

/* Attention on rotary q and k with few kv heads, SwiGLU, RMS norm. */
static void describe_llama_block(struct merak_model *m)
{
    struct merak_init n = MERAK_NORMAL(0.02f);
    struct merak_value *x = begin(m), *h, *q, *k, *v;

    h = merak_rmsnorm(m, x, MERAK_PARAM(m, "g1", MERAK_ONES, 32), 1e-5f);
    q = merak_linear(m, h, MERAK_PARAM(m, "q", n, 2, 2, 8, 32), NULL, 1);
    k = merak_linear(m, h, MERAK_PARAM(m, "k", n, 2, 8, 32), NULL, 1);
    v = merak_linear(m, h, MERAK_PARAM(m, "v", n, 2, 8, 32), NULL, 1);
    h = merak_attention(m, merak_rope(m, q, 1e4f), merak_rope(m, k, 1e4f), v);
    h = merak_linear(m, h, MERAK_PARAM(m, "o", n, 32, 2, 2, 8), NULL, 3);
    x = merak_add(m, x, h);
    h = merak_rmsnorm(m, x, MERAK_PARAM(m, "g2", MERAK_ONES, 32), 1e-5f);
    h = merak_swiglu(
        m, merak_linear(m, h, MERAK_PARAM(m, "gate", n, 48, 32), NULL, 1),
        merak_linear(m, h, MERAK_PARAM(m, "up", n, 48, 32), NULL, 1));
    h = merak_linear(m, h, MERAK_PARAM(m, "down", n, 32, 48), NULL, 1);
    end(m, merak_add(m, x, h));
}

static const struct merak_index *find_index(const struct merak_signature *sig,
                                            char name)
{
    for (int i = 0; i < sig->n_index; i++) {
        if (sig->index[i].name == name)
            return &sig->index[i];
    }
    return NULL;
}

/* Strategies carry over to gradients by the names of indices: the same name
 * must mean the same loop. */
static void check_indices_agree(const struct merak_graph *graph)
{
    for (int n = graph->n_forward; n < graph->n_nodes; n++) {
        const struct merak_node *node = graph->node[n];
        struct merak_signature back, forth;

        if (strcmp(node->op->name, "add") == 0)
            continue; /* a sum takes its operands' layout */
        merak_node_signature(node, &back);
        merak_node_signature(graph->node[node->forward], &forth);
        for (int i = 0; i < back.n_index; i++) {
            const struct merak_index *b = &back.index[i];
            const struct merak_index *f = find_index(&forth, b->name);

            if (f == NULL)
                fail_msg("%s: index %c is not in %s", node->name, b->name,
                         graph->node[node->forward]->name);
            assert_int_equal(b->extent, f->extent);
            assert_int_equal(b->kind, f->kind);
            assert_int_equal(b->uneven, f->uneven);
        }
    }
}

static void check_names_are_unique(const struct merak_graph *graph)
{
    for (int i = 0; i < graph->n_values; i++) {
        assert_int_equal(graph->value[i]->id, i);
        for (int j = 0; j < i; j++) {
            if (strcmp(graph->value[i]->name, graph->value[j]->name) == 0)
                fail_msg("two values %s", graph->value[i]->name);
        }
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        assert_int_equal(graph->node[i]->id, i);
        assert_string_equal(graph->node[i]->name, graph->node[i]->out[0]->name);
    }
}

/* Every operand comes before its use; backward follows forward, in reverse. */
static void check_order(const struct merak_graph *graph)
{
    int last = graph->n_forward;

    for (int n = 0; n < graph->n_nodes; n++) {
        const struct merak_node *node = graph->node[n];

        for (int i = 0; i < node->n_in; i++)
            assert_true(node->in[i]->producer < n);
        if (n < graph->n_forward) {
            assert_int_equal(node->phase, MERAK_PHASE_F);
            assert_int_equal(node->forward, n);
            continue;
        }
        assert_true(node->forward <= last);
        last = node->forward;
    }
}

static void graphs_keep_their_invariants(void **state)
{
    static void (*const describe[])(struct merak_model *) = {
        describe_block, describe_llama_block};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct merak_model *m = create(MERAK_BF16);
        struct merak_graph *graph;

        describe[i](m);
        graph = graph_of(m);
        check_indices_agree(graph);
        check_names_are_unique(graph);
        check_order(graph);
        merak_model_destroy(m);
    }
}

/* --- an op of a program's own
 * ------------------------------------------------------------ */

/* y = x * w, elementwise; dx = dy * w is the op itself, dw = dy * x in f32. */
static enum merak_status scale_infer(struct merak_infer *inf,
                                     struct merak_error *err)
{
    (void)err;
    inf->shape[2] = inf->shape[0];
    inf->dtype[2] = inf->dtype[0];
    return MERAK_OK;
}

static enum merak_status scale_dw_infer(struct merak_infer *inf,
                                        struct merak_error *err)
{
    (void)err;
    inf->shape[2] = inf->shape[0];
    inf->dtype[2] = inf->attrs->i[0] ? inf->dtype[0] : MERAK_F32;
    return MERAK_OK;
}

static void scale_signature(const struct merak_infer *inf,
                            struct merak_signature *sig)
{
    memset(sig, 0, sizeof(*sig));
    sig->n_index = inf->shape[0].ndim;
    for (int d = 0; d < sig->n_index; d++) {
        sig->index[d].name = (char)('a' + d);
        sig->index[d].kind = MERAK_INDEX_SUM;
        sig->index[d].extent = inf->shape[0].dim[d];
        for (int o = 0; o < 3; o++)
            sig->operand_dim[o][d] = (int8_t)d;
    }
}

static void scale_cost(const struct merak_infer *inf, struct merak_cost *cost)
{
    cost->flops = (double)merak_shape_count(&inf->shape[0]);
    cost->bytes = 0;
}

static enum merak_status scale_grad(struct merak_grad *g,
                                    const struct merak_node *node,
                                    struct merak_error *err)
{
    struct merak_value *dy = merak_grad_out(g, node, 0);
    struct merak_value *x = merak_node_in(node, 0), *dx;
    struct merak_value *w = merak_node_in(node, 1), *dw;
    enum merak_status rc = MERAK_OK;

    if (merak_grad_wanted(g, x)) {
        struct merak_value *in[] = {dy, w};

        rc = merak_grad_node(g, node, MERAK_PHASE_B, "test_scale", NULL, 2, in,
                             &dx, err);
        if (rc == MERAK_OK)
            rc = merak_grad_add(g, x, dx, err);
    }
    if (rc == MERAK_OK && merak_grad_wanted(g, w)) {
        struct merak_value *in[] = {dy, x};

        rc = merak_grad_node(g, node, MERAK_PHASE_W, "test_scale_dw",
                             merak_node_attrs(node), 2, in, &dw, err);
        if (rc == MERAK_OK)
            rc = merak_grad_add(g, w, dw, err);
    }
    return rc;
}

static const struct merak_op scale_op = {.name = "test_scale",
                                         .min_in = 2,
                                         .max_in = 2,
                                         .n_out = 1,
                                         .infer = scale_infer,
                                         .signature = scale_signature,
                                         .cost = scale_cost,
                                         .grad = scale_grad};
static const struct merak_op scale_dw_op = {.name = "test_scale_dw",
                                            .min_in = 2,
                                            .max_in = 2,
                                            .n_out = 1,
                                            .infer = scale_dw_infer,
                                            .signature = scale_signature,
                                            .cost = scale_cost};

static struct merak_model *describe_scaled(int64_t bad)
{
    struct merak_model *m = create(MERAK_BF16);
    struct merak_attrs attrs = {.i = {bad}};
    struct merak_value *in[] = {begin(m),
                                MERAK_PARAM(m, "s", MERAK_ONES, 2, 16, 32)};
    struct merak_value *y = NULL;

    assert_int_equal(merak_apply(m, "test_scale", &attrs, 2, in, &y), MERAK_OK);
    end(m, y);
    return m;
}

static void a_registered_op_is_differentiated(void **state)
{
    struct merak_model *m = describe_scaled(0);
    struct merak_graph *graph = graph_of(m);
    const struct merak_node *dx = find_node(graph, "test_scale_dx.1");
    const struct merak_node *dw = find_node(graph, "test_scale_dw.1");

    (void)state;
    assert_non_null(dx);
    assert_non_null(dw);
    assert_int_equal(dw->id, dx->id + 1);
    assert_int_equal(dw->out[0]->dtype, MERAK_F32);
    assert_string_equal(dx->in[0]->name, "linear_dx.2");
    merak_model_destroy(m);
}

/* A failing builder leaves the graph as it was. */
static void a_parameter_gradient_must_be_f32(void **state)
{
    struct merak_model *m = describe_scaled(1);
    struct merak_graph *graph;
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_model_graph(m, &graph, &err), MERAK_ERR_PARAM);
    assert_non_null(
        strstr(err.text, "test_scale_dw: output 0 is of type bf16"));
    merak_model_destroy(m);
}

static void ops_that_are_incomplete_or_taken_are_refused(void **state)
{
    struct merak_op rows[] = {scale_op, scale_op, scale_op,
                              scale_op, scale_op, scale_op};

    (void)state;
    for (int i = 0; i < 5; i++)
        rows[i].name = "test_other";
    rows[0].infer = NULL;
    rows[1].signature = NULL;
    rows[2].cost = NULL;
    rows[3].max_in = MERAK_MAX_OPERANDS;
    rows[4].name = "linear";
    for (int i = 0; i < 6; i++)
        assert_int_equal(merak_op_register(&rows[i], NULL), MERAK_ERR_PARAM);
    assert_null(merak_op_find("test_other"));
}

static int register_ops(void **state)
{
    (void)state;
    return merak_op_register(&scale_op, NULL) != MERAK_OK ||
           merak_op_register(&scale_dw_op, NULL) != MERAK_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_and_its_gradients_are_these_nodes),
        cmocka_unit_test(each_use_of_a_tied_weight_has_its_gradient),
        cmocka_unit_test(a_gradient_is_summed_last_use_first),
        cmocka_unit_test(a_value_added_to_itself_gets_its_gradient_twice),
        cmocka_unit_test(ops_that_are_their_own_gradients_keep_attributes),
        cmocka_unit_test(what_depends_on_no_parameter_gets_no_gradient),
        cmocka_unit_test(graphs_keep_their_invariants),
        cmocka_unit_test(a_registered_op_is_differentiated),
        cmocka_unit_test(a_parameter_gradient_must_be_f32),
        cmocka_unit_test(ops_that_are_incomplete_or_taken_are_refused),
    };

    return cmocka_run_group_tests_name("graph", tests, register_ops, NULL);
}
