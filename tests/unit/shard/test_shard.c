/* SPDX-License-Identifier: Apache-2.0 */
/* test_shard.c - what the search over layouts finds */
#include "config.h"

#include "unit/near.h"
#include "unit/shard/shard_models.h"

#include "partitioner/graph/letters.h"
#include "partitioner/layout/shard_impl.h"
#include "partitioner/order/shard_order.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

#define GPT(layers, vocab, tied)                                          \
    {                                                                     \
        false, 2, 8, (layers), 32, 4, 4, (vocab), (tied), 0.1f, BLOCK_PRE \
    }
#define LLAMA(kv, vocab)                                         \
    {                                                            \
        true, 2, 8, 2, 32, 4, (kv), (vocab), false, 0, BLOCK_PRE \
    }

static struct merak_sharded *shard(const struct merak_graph *graph, int tp,
                                   enum merak_seq_parallel sp)
{
    const struct merak_shard_options opt = {.tp = tp, .sp = sp};

    return spec_shard(graph, &opt);
}

/* --- what moves -------------------------------------------------------------
 */

/* Per layer: Megatron's two operators f and g (two all-reduces a pass, or a
 * reduce-scatter and an all-gather for each).  Outside the layers: the
 * embedding's sum, the head's gradient, and three small reductions of the
 * loss, of which SP leaves one or two scattered. */
static const struct {
    struct spec spec;
    int tp;
    enum merak_seq_parallel sp;
    int count[3][6]; /* by phase, by enum merak_convert_kind */
} move_rows[] = {
    /* F: none, AR, RS, AG, A2A, slice; B; W */
    {GPT(2, 64, true), 1, MERAK_SP_ON, {{0}}},
    {LLAMA(2, 61), 1, MERAK_SP_AUTO, {{0}}},
    {GPT(2, 64, true), 2, MERAK_SP_OFF, {{0, 5 + 3}, {0, 5}}},
    {GPT(2, 61, true), 2, MERAK_SP_OFF, {{0, 5 + 3}, {0, 5}}},
    {GPT(2, 61, false), 2, MERAK_SP_OFF, {{0, 5 + 3}, {0, 5}}},
    {GPT(3, 64, false), 4, MERAK_SP_OFF, {{0, 7 + 3}, {0, 7}}},
    /* three projections share a gather, their gradients one reduction */
    {LLAMA(4, 61), 2, MERAK_SP_OFF, {{0, 5 + 3}, {0, 5}}},
    {LLAMA(2, 61), 2, MERAK_SP_OFF, {{0, 5 + 3}, {0, 5}}},
    {LLAMA(4, 61), 4, MERAK_SP_OFF, {{0, 5 + 3}, {0, 5}}},
    /* attention and MLP are summed in parts, then once for both */
    {{false, 2, 8, 2, 32, 4, 4, 64, true, 0.1f, BLOCK_PARALLEL},
     2,
     MERAK_SP_OFF,
     {{0, 3 + 3}, {0, 3}}},
    /* a residual that is normed: the sum of the partial contributions is
     * reduced, then added to the whole one */
    {{false, 2, 8, 2, 32, 4, 4, 64, true, 0.1f, BLOCK_POST},
     2,
     MERAK_SP_OFF,
     {{0, 5 + 3}, {0, 5}}},
    /* W: what is gathered for a weight's gradient is gathered again */
    {GPT(2, 61, true),
     2,
     MERAK_SP_ON,
     {{0, 3, 5, 5}, {0, 0, 5, 4}, {0, 0, 0, 6}}},
    {LLAMA(2, 61), 2, MERAK_SP_ON, {{0, 3, 5, 5}, {0, 0, 5, 5}, {0, 0, 0, 5}}},
};

static void a_transformer_layer_communicates_as_megatrons(void **state)
{
    (void)state;
    for (size_t r = 0; r < COUNT(move_rows); r++) {
        struct merak_graph *graph;
        struct merak_model *m =
            spec_model(&move_rows[r].spec, MERAK_F32, &graph);
        struct merak_sharded *s =
            shard(graph, move_rows[r].tp, move_rows[r].sp);
        int count[3][6] = {{0}};

        for (int i = 0; i < s->graph->n_nodes; i++)
            count[s->graph->node[i]->phase][s->hop[i].kind]++;
        for (int p = 0; p < 3; p++) {
            for (int k = 1; k < 6; k++)
                if (count[p][k] != move_rows[r].count[p][k])
                    fail_msg("row %zu: phase %d has %d of kind %d, want %d", r,
                             p, count[p][k], k, move_rows[r].count[p][k]);
        }
        merak_sharded_destroy(s);
        merak_model_destroy(m);
    }
}

/* --- layouts
 * ------------------------------------------------------------------ */

static const struct {
    struct spec spec;
    int tp;
    enum merak_seq_parallel sp;
    const char *param, *layout;
} param_rows[] = {
    /* columns, then rows */
    {GPT(2, 64, true), 2, MERAK_SP_OFF, "h.0.qkv.w", "S1"},
    {GPT(2, 64, true), 2, MERAK_SP_OFF, "h.0.qkv.b", "S1"},
    {GPT(2, 64, true), 2, MERAK_SP_OFF, "h.0.o.w", "S1"},
    {GPT(2, 64, true), 2, MERAK_SP_OFF, "h.0.o.b", "R"},
    {GPT(2, 64, true), 2, MERAK_SP_OFF, "h.1.up.w", "S0"},
    {GPT(2, 64, true), 2, MERAK_SP_OFF, "h.1.down.w", "S1"},
    {GPT(2, 64, true), 2, MERAK_SP_OFF, "h.1.n1.g", "R"},
    {GPT(2, 64, true), 2, MERAK_SP_ON, "h.1.n1.g", "R"},
    /* the vocabulary, even or not, tied or not */
    {GPT(2, 61, true), 2, MERAK_SP_OFF, "wte", "S0"},
    {GPT(2, 61, false), 2, MERAK_SP_OFF, "wte", "S0"},
    {GPT(2, 61, false), 2, MERAK_SP_OFF, "head", "S0"},
    {GPT(2, 61, false), 4, MERAK_SP_ON, "head", "S0"},
    {GPT(2, 61, true), 2, MERAK_SP_OFF, "wpe", "R"},
    /* more ranks than kv heads: kv heads times queries of each */
    {LLAMA(2, 61), 2, MERAK_SP_OFF, "h.0.q.w", "S0"},
    {LLAMA(2, 61), 2, MERAK_SP_OFF, "h.0.k.w", "S0"},
    {LLAMA(2, 61), 4, MERAK_SP_OFF, "h.0.q.w", "S0,S1"},
    {LLAMA(2, 61), 4, MERAK_SP_OFF, "h.0.o.w", "S1,S2"},
    {LLAMA(2, 61), 4, MERAK_SP_OFF, "h.0.gate.w", "S0,S0"},
    {LLAMA(2, 61), 4, MERAK_SP_OFF, "head", "S0,S0"},
    {LLAMA(1, 61), 4, MERAK_SP_OFF, "h.0.q.w", "S1"},
};

static void tensor_parallel_parameters_are_split(void **state)
{
    (void)state;
    for (size_t r = 0; r < COUNT(param_rows); r++) {
        struct merak_graph *graph;
        struct merak_model *m =
            spec_model(&param_rows[r].spec, MERAK_F32, &graph);
        struct merak_sharded *s =
            shard(graph, param_rows[r].tp, param_rows[r].sp);
        const struct merak_value *v = spec_param(s->graph, param_rows[r].param);
        char text[32];

        assert_string_equal(spec_layout(s, v->id, text), param_rows[r].layout);
        merak_sharded_destroy(s);
        merak_model_destroy(m);
    }
}

/* Attention is cut by groups along tp.0 and by queries along tp.1. */
static void heads_are_cut_on_both_axes(void **state)
{
    const struct spec spec = LLAMA(2, 61);
    struct merak_graph *graph;
    struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);

    (void)state;
    for (int sp = MERAK_SP_AUTO; sp <= MERAK_SP_ON; sp++) {
        struct merak_sharded *s = shard(graph, 4, (enum merak_seq_parallel)sp);
        const struct merak_node *node = spec_node(s->graph, "attention", 0);
        char text[32];

        assert_int_equal(s->mesh.n_axes, 2);
        assert_string_equal(s->mesh.axis[0].name, "tp.0");
        assert_string_equal(s->mesh.axis[1].name, "tp.1");
        assert_int_equal(s->mesh.axis[0].size, 2);
        assert_int_equal(s->mesh.axis[1].size, 2);
        assert_string_equal(spec_layout(s, node->in[0]->id, text), "S2,S3");
        assert_string_equal(spec_layout(s, node->in[1]->id, text), "S2,R");
        node = spec_node(s->graph, "attention_dx", 0);
        assert_string_equal(spec_layout(s, node->out[1]->id, text), "S2,P");
        merak_sharded_destroy(s);
    }
    merak_model_destroy(m);
}

/* Between blocks everything is split along the sequence, or nothing. */
static void residual_values_follow_sp(void **state)
{
    static const char *const ops[] = {"add", "layernorm", "dropout",
                                      "add_position"};
    const struct spec spec = GPT(2, 61, true);
    struct merak_graph *graph;
    struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);

    (void)state;
    for (int on = 0; on < 2; on++) {
        struct merak_sharded *s =
            shard(graph, 2, on ? MERAK_SP_ON : MERAK_SP_OFF);
        char text[32];

        for (int i = 0; i < s->graph->n_nodes; i++) {
            const struct merak_node *node = s->graph->node[i];

            for (size_t o = 0; o < COUNT(ops); o++)
                if (strcmp(node->op->name, ops[o]) == 0)
                    assert_string_equal(spec_layout(s, node->out[0]->id, text),
                                        on ? "S1" : "R");
        }
        merak_sharded_destroy(s);
    }
    merak_model_destroy(m);
}

/* --- structure
 * ------------------------------------------------------------------ */

/* What a node's cut asks of its operands is what they have. */
static void check_layouts(const struct merak_sharded *s,
                          const struct merak_node *node)
{
    struct merak_signature sig;

    merak_node_signature(node, &sig);
    for (int o = 0; o < node->n_in + node->n_out; o++) {
        const struct merak_value *v = merak_node_operand(node, o);
        struct merak_layout want;

        merak_strategy_layout(&s->mesh, &sig, node->n_in,
                              &s->strategy[node->id], o, &want);
        if (!merak_layout_equal(&s->mesh, &want, &s->layout[v->id]))
            fail_msg("%s: operand %d", node->name, o);
    }
}

static void check_node(const struct merak_sharded *s,
                       const struct merak_node *node, int id)
{
    const struct merak_graph *graph = s->graph;
    bool convert = strcmp(node->op->name, "convert") == 0;

    assert_int_equal(node->id, id);
    assert_int_equal(convert, s->hop[id].kind != MERAK_CONVERT_NONE);
    assert_int_equal(node->phase == MERAK_PHASE_F, id < graph->n_forward);
    assert_in_range(node->forward, 0, graph->n_forward - 1);
    if (node->phase == MERAK_PHASE_F && !convert)
        assert_int_equal(node->forward, id);
    for (int i = 0; i < node->n_in; i++)
        assert_true(node->in[i]->producer < id);
    for (int i = 0; i < node->n_out; i++) {
        assert_int_equal(node->out[i]->producer, id);
        assert_int_equal(node->out[i]->out, i);
    }
    if (convert)
        assert_true(merak_layout_equal(&s->mesh, &s->layout[node->out[0]->id],
                                       &s->hop[id].to));
    else
        check_layouts(s, node);
}

/* Ids agree; layouts follow from cuts; inputs and the loss are whole; nothing
 * is shared with the graph it came from. */
static void a_sharded_graph_is_sound(void **state)
{
    const struct spec specs[] = {GPT(2, 61, true), LLAMA(2, 61), LLAMA(1, 61)};

    (void)state;
    for (size_t r = 0; r < COUNT(specs) * 6; r++) {
        struct merak_graph *graph;
        struct merak_model *m =
            spec_model(&specs[r / 6], r % 2 ? MERAK_BF16 : MERAK_F32, &graph);
        struct merak_sharded *s =
            shard(graph, 4, (enum merak_seq_parallel)(r / 2 % 3));
        char text[32];

        merak_model_destroy(m);
        for (int i = 0; i < s->graph->n_nodes; i++)
            check_node(s, s->graph->node[i], i);
        for (int i = 0; i < s->graph->n_values; i++) {
            const struct merak_value *v = s->graph->value[i];

            assert_int_equal(v->id, i);
            assert_ptr_equal(v->graph, s->graph);
            if (v->kind == MERAK_VALUE_PARAM_GRAD)
                assert_int_equal(s->graph->value[v->of]->kind,
                                 MERAK_VALUE_PARAM);
            if (v->kind == MERAK_VALUE_INPUT)
                assert_null(strpbrk(spec_layout(s, i, text), "SPMF"));
        }
        assert_null(strpbrk(spec_layout(s, s->graph->loss->id, text), "SPMF"));
        merak_sharded_destroy(s);
    }
}

static void the_result_is_a_function_of_the_graph(void **state)
{
    const struct spec spec = LLAMA(2, 61);
    char *text[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct merak_graph *graph;
        struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);
        struct merak_sharded *s = shard(graph, 4, MERAK_SP_AUTO);
        struct merak_error err;

        assert_int_equal(merak_sharded_print(s, &text[i], &err), MERAK_OK);
        merak_sharded_destroy(s);
        merak_model_destroy(m);
    }
    assert_string_equal(text[0], text[1]);
    assert_non_null(strstr(text[0], "tp.0:g tp.1:r"));
    free(text[0]);
    free(text[1]);
}

/* --- errors
 * ------------------------------------------------------------------------ */

static const struct {
    size_t heads, kv, seq;
    bool llama;
    int tp;
    enum merak_seq_parallel sp;
    int cp;
    enum merak_cp_form form;
    enum merak_status status;
    const char *text;
} error_rows[] = {
    {24, 24, 8, false, 5, MERAK_SP_OFF, 1, MERAK_CP_AUTO, MERAK_ERR_CONFIG,
     "24 heads cannot be cut over tp=5; tp must divide the number of heads "
     "(nearest: 4 or 6)"},
    {24, 8, 8, true, 5, MERAK_SP_OFF, 1, MERAK_CP_AUTO, MERAK_ERR_CONFIG,
     "24 heads cannot be cut over tp=5; tp must divide the number of heads "
     "(nearest: 4 or 6)"},
    {4, 2, 8, true, 8, MERAK_SP_OFF, 1, MERAK_CP_AUTO, MERAK_ERR_CONFIG,
     "4 heads cannot be cut over tp=8; tp must divide the number of heads "
     "(nearest: 4)"},
    {4, 4, 7, false, 2, MERAK_SP_ON, 1, MERAK_CP_AUTO, MERAK_ERR_CONFIG,
     "a sequence of 7 tokens cannot be cut over tp=2; sequence parallelism "
     "needs a length that tp divides (nearest: 8)"},
    {4, 4, 8, false, 0, MERAK_SP_OFF, 1, MERAK_CP_AUTO, MERAK_ERR_PARAM,
     "tp is 0, expected at least 1"},
    {4, 2, 9, true, 1, MERAK_SP_OFF, 2, MERAK_CP_AUTO, MERAK_ERR_CONFIG,
     "a sequence of 9 tokens cannot be cut over cp=2 (nearest: 8 or 10)"},
    {4, 2, 1, true, 1, MERAK_SP_OFF, 2, MERAK_CP_AUTO, MERAK_ERR_CONFIG,
     "a sequence of 1 tokens cannot be cut over cp=2 (nearest: 2)"},
    {4, 2, 6, true, 2, MERAK_SP_ON, 2, MERAK_CP_AUTO, MERAK_ERR_CONFIG,
     "a sequence of 6 tokens cannot be cut over cp=2 x tp=2; sequence "
     "parallelism needs a length that both divide (nearest: 8)"},
    {4, 4, 12, false, 1, MERAK_SP_OFF, 3, MERAK_CP_AUTO, MERAK_ERR_CONFIG,
     "the heads of attention_packed.4, 4 kv heads x 1 queries each, cannot be "
     "cut over cp=3 x tp=1 (nearest: cp 2 or 4)"},
    {24, 8, 20, true, 1, MERAK_SP_OFF, 5, MERAK_CP_HEADS, MERAK_ERR_CONFIG,
     "the heads of attention.7, 8 kv heads x 3 queries each, cannot be cut "
     "over cp=5 x tp=1 (nearest: cp 4 or 6)"},
    {4, 4, 8, false, 1, MERAK_SP_OFF, 2, MERAK_CP_GATHER, MERAK_ERR_CONFIG,
     "--cp-form gather: attention_packed.4 packs q, k and v, and can only be "
     "cut by heads: use --cp-form heads"},
};

static void what_cannot_be_cut_is_refused(void **state)
{
    (void)state;
    for (size_t r = 0; r < COUNT(error_rows); r++) {
        const struct spec spec = {error_rows[r].llama,
                                  1,
                                  error_rows[r].seq,
                                  1,
                                  error_rows[r].heads * 2,
                                  error_rows[r].heads,
                                  error_rows[r].kv,
                                  32,
                                  true,
                                  0,
                                  BLOCK_PRE};
        const struct merak_shard_options opt = {.tp = error_rows[r].tp,
                                                .cp = error_rows[r].cp,
                                                .cp_form = error_rows[r].form,
                                                .sp = error_rows[r].sp};
        struct merak_sharded *s = NULL;
        struct merak_graph *graph;
        struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);
        struct merak_error err;

        assert_int_equal(merak_shard(graph, &opt, &s, &err),
                         error_rows[r].status);
        assert_string_equal(err.text, error_rows[r].text);
        assert_null(s);
        merak_model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transformer_layer_communicates_as_megatrons),
        cmocka_unit_test(tensor_parallel_parameters_are_split),
        cmocka_unit_test(heads_are_cut_on_both_axes),
        cmocka_unit_test(residual_values_follow_sp),
        cmocka_unit_test(a_sharded_graph_is_sound),
        cmocka_unit_test(the_result_is_a_function_of_the_graph),
        cmocka_unit_test(what_cannot_be_cut_is_refused),
    };

    return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
