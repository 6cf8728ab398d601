/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - building models, their gradients, and the mistakes on the way */
#include "config.h"

#include "unit/near.h"

#include "partitioner/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct merak_model *create(enum merak_dtype dtype)
{
    struct merak_model_options opt = {.micro_batch = 2, .seq = 16,
                                      .dtype = dtype};
    struct merak_model *m = NULL;

    assert_int_equal(merak_model_create(&opt, &m, NULL), MERAK_OK);
    return m;
}

static struct merak_graph *graph_of(struct merak_model *m)
{
    struct merak_graph *graph = NULL;
    struct merak_error err;

    if (merak_model_graph(m, &graph, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return graph;
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_and_its_gradients_are_these_nodes),
        cmocka_unit_test(each_use_of_a_tied_weight_has_its_gradient),
    };

    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
