/* SPDX-License-Identifier: Apache-2.0 */
/* test_letters.c - values know which index runs along each dim */
#include "config.h"

#include "unit/graph/few_calls.h"
#include "unit/near.h"

#include "partitioner/assembly/assembly.h"
#include "partitioner/graph/letters.h"
#include "partitioner/layout/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- by value -------------------------------------------------------------
 */

static const struct merak_value *find(const struct merak_graph *graph,
                                      const char *name)
{
    for (int i = 0; i < graph->n_values; i++) {
        if (strcmp(graph->value[i]->name, name) == 0)
            return graph->value[i];
    }
    fail_msg("no value %s", name);
    return NULL;
}

struct row {
    const char *value, *letters; /* '.': none */
};

static void check(struct merak_model *m, const struct row *row)
{
    const struct merak_graph *graph = graph_of(m);

    for (; row->value != NULL; row++) {
        const struct merak_value *v = find(graph, row->value);
        char text[MERAK_MAX_DIMS + 1] = "";

        for (int d = 0; d < v->shape.ndim; d++)
            text[d] = v->letter[d] == 0 ? '.' : v->letter[d];
        if (strcmp(text, row->letters) != 0)
            fail_msg("%s: \"%s\", expected \"%s\"", row->value, text,
                     row->letters);
    }
    merak_model_destroy(m);
}

static struct merak_value *norm(struct merak_model *m, struct merak_value *x,
                                const char *name)
{
    return merak_rmsnorm(m, x, MERAK_PARAM(m, name, MERAK_ONES, 32), 1e-5f);
}

static void letters_flow_from_inputs_to_gradients(void **state)
{
    static const struct row rows[] = {
        {"tokens", "bt"},
        {"in", ".."},
        {"embedding.0", "bt."},
        {"rmsnorm.1", "bt."},
        {"rmsnorm.1:1", "bt"},
        {"linear.2", "bt..."},
        {"rope.3", "bt..."},
        {"attention_packed.4", "bt.."},
        {"linear.5", "bt."},
        {"xent_sum.8:1", "bt"},
        {"mean_loss.10", ""},
        {"xent_dlogits.8", "bt."},
        {"linear_dx.5", "bt.."},
        {"linear_dw.5", "..."},
        {"attention_packed_dx.4", "bt..."},
        {"linear_dw.2", "...."},
        {NULL, NULL},
    };
    struct merak_model *m = create(MERAK_F32);
    struct merak_value *h = norm(m, begin(m), "g");

    (void)state;
    h = merak_linear(m, h, MERAK_PARAM(m, "qkv", MERAK_NORMAL(1), 3, 4, 8, 32),
                     NULL, 1);
    h = merak_attention_packed(m, merak_rope(m, h, 1e4f));
    h = merak_linear(m, h, MERAK_PARAM(m, "o", MERAK_NORMAL(1), 32, 4, 8), NULL,
                     2);
    end(m, h);
    check(m, rows);
}

/* What is mixed over positions has the shape of a sequence again, and its rows
 * are no positions. */
static void describe_mixed(struct merak_model *m)
{
    struct merak_value *x = begin(m);

    x = merak_linear(
        m, x, MERAK_PARAM(m, "mix", MERAK_NORMAL(1), 16, 32, 16, 32), NULL, 2);
    end(m, merak_gelu(m, x, true));
}

static void extents_decide_nothing(void **state)
{
    static const struct row rows[] = {
        {"linear.1", "b.."},    {"gelu.2", "b.."},       {"gelu_dx.2", "b.."},
        {"linear_dx.1", "bt."}, {"linear_dw.1", "...."}, {NULL, NULL},
    };
    struct merak_model *m = create(MERAK_F32);

    (void)state;
    describe_mixed(m);
    check(m, rows);
}

/* The indices of a node by the dims of its operands. */
static void print_indices(const struct merak_graph *graph, const char *name,
                          char *text)
{
    const struct merak_node *node = graph->node[find(graph, name)->producer];
    struct merak_signature sig;

    merak_node_signature(node, &sig);
    for (int o = 0; o < node->n_in + node->n_out; o++) {
        const struct merak_value *v = merak_node_operand(node, o);

        if (o > 0)
            *text++ = ' ';
        for (int d = 0; d < v->shape.ndim; d++)
            *text++ = sig.index[sig.operand_dim[o][d]].name;
    }
    *text = '\0';
}

static void indices_are_named_by_letters(void **state)
{
    static const struct {
        const char *value, *indices;
    } rows[] = {
        {"embedding.0", "bt vc btc"},
        {"linear.1", "btj optj bop"}, /* positions are mixed */
        {"gelu.2", "bTe bTe"},
        {"gelu_dx.2", "bTe bTe bTe"},
        {"linear_dx.1", "bop optj btj"},
        {"linear_dw.1", "btj bop optj"},
        {"xent_max.4", "bTv bT"}, /* the op's own names are but names */
    };
    struct merak_model *m = create(MERAK_F32);
    const struct merak_graph *graph;

    (void)state;
    describe_mixed(m);
    graph = graph_of(m);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[128];

        print_indices(graph, rows[i].value, text);
        if (strcmp(text, rows[i].indices) != 0)
            fail_msg("%s: \"%s\", expected \"%s\"", rows[i].value, text,
                     rows[i].indices);
    }
    merak_model_destroy(m);
}

/* Whether positions are mixed follows from the dims that they run along, of
 * whichever operand, and not from the name that an index has. */
static void mixed_positions_are_found_by_letters(void **state)
{
    struct merak_model *m = create(MERAK_F32);
    struct merak_value *x = begin(m), *y = merak_gelu(m, x, true);
    const struct merak_graph *graph;
    const struct merak_node *sum, *linear;
    char was;

    (void)state;
    y = merak_add(m, y, merak_gelu(m, x, true));
    y = merak_linear(
        m, y, MERAK_PARAM(m, "mix", MERAK_NORMAL(1), 16, 32, 16, 32), NULL, 2);
    end(m, y);
    graph = graph_of(m);
    sum = graph->node[find(graph, "add.3")->producer];
    linear = graph->node[find(graph, "linear.4")->producer];
    assert_true(merak_node_mixes_positions(linear));
    assert_false(merak_node_mixes_positions(sum));
    /* a second sequence, added to the first: a slice of one is not enough */
    was = sum->in[0]->letter[1];
    sum->in[0]->letter[1] = 's';
    assert_true(merak_node_mixes_positions(sum));
    sum->in[0]->letter[1] = was;
    assert_false(merak_node_mixes_positions(sum));
    merak_model_destroy(m);
}

/* Nothing says what a recycled value is until the end of the description. */
static void recycled_values_are_what_is_handed_on(void **state)
{
    static const struct row rows[] = {
        {"recycled.0", "bt."}, {"rmsnorm.0", "bt."}, {"rmsnorm.0:1", "bt"},
        {"recycled.1", "bt."}, {"gelu.1", "bt."},    {NULL, NULL},
    };
    struct merak_model *m = create(MERAK_F32);
    struct merak_value *old = MERAK_RECYCLED(m, 2, 16, 32);
    struct merak_value *older = MERAK_RECYCLED(m, 2, 16, 32), *x, *h;

    (void)state;
    merak_passes(m, 2);
    h = norm(m, old, "g");
    x = merak_gelu(m, older, true);
    merak_recycle(m, older, h);
    x = merak_add(m, begin(m), merak_add(m, x, h));
    merak_recycle(m, old, x);
    end(m, x);
    check(m, rows);
}

/* --- in the sharded graph ------------------------------------------------ */

static void sharding_keeps_letters(void **state)
{
    struct merak_model *m = create(MERAK_F32);
    struct merak_shard_options opt = {.tp = 2, .sp = MERAK_SP_ON};
    struct merak_value *x = begin(m);
    struct merak_sharded *sharded = NULL;
    const struct merak_graph *graph;
    int converted = 0;

    (void)state;
    x = merak_linear(m, norm(m, x, "g"),
                     MERAK_PARAM(m, "w", MERAK_NORMAL(1), 32, 32), NULL, 1);
    end(m, norm(m, x, "h"));
    graph = graph_of(m);
    assert_int_equal(merak_shard_described(graph, &opt, &sharded, NULL),
                     MERAK_OK);
    for (int i = 0; i < sharded->graph->n_values; i++) {
        const struct merak_value *v = sharded->graph->value[i];
        const struct merak_value *of = merak_value_origin(sharded->graph, v);

        of = find(graph, of->name);
        if (memcmp(v->letter, of->letter, sizeof(v->letter)) != 0)
            fail_msg("%s: not as %s", v->name, of->name);
        converted += v->producer >= 0 &&
                     merak_node_is_convert(sharded->graph->node[v->producer]);
    }
    assert_true(converted > 0);
    merak_sharded_destroy(sharded);
    merak_model_destroy(m);
}

/* --- in programs ----------------------------------------------------------
 */

static void describe_small_mixed(struct merak_model *m, void *arg)
{
    (void)arg;
    describe_mixed(m);
}

/* A slice has no more than its own positions. */
static void what_mixes_positions_runs_whole_sequences(void **state)
{
    struct merak_plan plan = {.tp = 1,
                              .pp = 1,
                              .dp = 1,
                              .microbatches = 1,
                              .micro_batch = 1,
                              .threads = 1,
                              .schedule = "sliced:4",
                              .dtype = MERAK_F32};
    struct merak_planned *planned = NULL;
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_plan_build(&plan, 16, describe_small_mixed, NULL,
                                      MERAK_PLAN_ALL, NULL, &planned, &err),
                     MERAK_ERR_UNSUPPORTED);
    assert_string_equal(err.text,
                        "schedule sliced:4 cuts sequences, and linear.1 needs "
                        "whole ones: use --schedule 1f1b");
    snprintf(plan.schedule, sizeof(plan.schedule), "1f1b");
    assert_int_equal(merak_plan_build(&plan, 16, describe_small_mixed, NULL,
                                      MERAK_PLAN_ALL, NULL, &planned, &err),
                     MERAK_OK);
    merak_planned_destroy(planned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_flow_from_inputs_to_gradients),
        cmocka_unit_test(extents_decide_nothing),
        cmocka_unit_test(indices_are_named_by_letters),
        cmocka_unit_test(mixed_positions_are_found_by_letters),
        cmocka_unit_test(recycled_values_are_what_is_handed_on),
        cmocka_unit_test(sharding_keeps_letters),
        cmocka_unit_test(what_mixes_positions_runs_whole_sequences),
    };

    return cmocka_run_group_tests_name("letters", tests, NULL, NULL);
}
