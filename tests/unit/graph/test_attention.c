/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention.c - masks of attention in a model: what describes them, what
 * is refused, their cost, and what needs whole sequences for them */
#include "config.h"

#include "unit/graph/few_calls.h"

#include "partitioner/graph/letters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Positions of a second sequence. */
enum { S = 24 };

static struct merak_value *heads(struct merak_model *m, struct merak_value *x,
                                 const char *name, bool grouped)
{
    return grouped
               ? merak_linear(m, x,
                              MERAK_PARAM(m, name, MERAK_NORMAL(1), 2, 8, 32),
                              NULL, 1)
               : merak_linear(
                     m, x, MERAK_PARAM(m, name, MERAK_NORMAL(1), 2, 2, 8, 32),
                     NULL, 1);
}

static struct merak_value *second(struct merak_model *m)
{
    return merak_input(m, "other", MERAK_F32, "bsc", (size_t[]){2, S, 32});
}

static struct merak_value *counts(struct merak_model *m, const char *name)
{
    return merak_input(m, name, MERAK_I32, "b", (size_t[]){2});
}

struct described {
    struct merak_attention_options opt;
    bool documents, crossed, lengths, prefix;
    size_t buckets; /* of a bias; 0: there is none */
    bool sinks;
};

static struct merak_model *describe(const struct described *d)
{
    struct merak_model *m = create(MERAK_F32);
    struct merak_attention_options opt = d->opt;
    struct merak_value *x, *of, *q, *k, *v;

    if (d->documents)
        merak_documents(m);
    x = begin(m);
    of = d->crossed ? second(m) : x;
    if (d->lengths)
        opt.key_lengths = counts(m, "lengths");
    if (d->prefix)
        opt.prefix_lengths = counts(m, "prefixes");
    if (d->buckets > 0)
        opt.bias.table =
            MERAK_PARAM(m, "bias", MERAK_NORMAL(1), d->buckets, 2, 2);
    if (d->sinks)
        opt.sinks = MERAK_PARAM(m, "sinks", MERAK_NORMAL(1), 2, 2);
    q = heads(m, x, "q", false);
    k = heads(m, of, "k", true);
    v = heads(m, of, "v", true);
    x = merak_attention_with(m, q, k, v, &opt);
    x = merak_linear(m, x, MERAK_PARAM(m, "o", MERAK_NORMAL(1), 32, 2, 2, 8),
                     NULL, 3);
    end(m, x);
    return m;
}

static const struct merak_node *find(const struct merak_graph *graph,
                                     const char *op)
{
    for (int n = 0; n < graph->n_nodes; n++) {
        if (strcmp(graph->node[n]->op->name, op) == 0)
            return graph->node[n];
    }
    fail_msg("no %s", op);
    return NULL;
}

#define FULL .mask = MERAK_MASK_FULL
#define PREFIX .mask = MERAK_MASK_PREFIX

static void mistakes_are_told(void **state)
{
    static const struct {
        struct described d;
        const char *text;
    } rows[] = {
        {{.opt = {.mask = (enum merak_attention_mask)3}},
         "attention: mask 3, expected MERAK_MASK_CAUSAL, MERAK_MASK_FULL or "
         "MERAK_MASK_PREFIX"},
        {{.opt = {.window_after = 2}},
         "attention: a window of 2 keys after the query, expected mask "
         "MERAK_MASK_FULL with it"},
        {{.opt = {PREFIX}},
         "attention: mask MERAK_MASK_PREFIX without prefix_lengths, expected "
         "both or neither"},
        {{.prefix = true},
         "attention: prefix_lengths without mask MERAK_MASK_PREFIX, expected "
         "both or neither"},
        {{.opt = {PREFIX, .window = 3}, .prefix = true},
         "attention: a prefix and a window, expected either"},
        {{.opt = {FULL}, .documents = true},
         "attention: in a model with several documents per sequence "
         "(merak_documents) attention is causal: leave out documents, or the "
         "mask"},
        {{.opt = {PREFIX}, .documents = true, .prefix = true},
         "attention: in a model with several documents per sequence "
         "(merak_documents) attention is causal: leave out documents, or the "
         "mask"},
        {{.crossed = true},
         "attention: q (linear.1) and k (linear.2) are of two sequences, "
         "expected MERAK_MASK_FULL without a window"},
        {{.opt = {FULL, .window_after = 2}, .crossed = true},
         "attention: q (linear.1) and k (linear.2) are of two sequences, "
         "expected MERAK_MASK_FULL without a window"},
        {{.opt = {.bias = {.farthest = 9}}, .buckets = 7},
         "attention_biased: a bias of 7 buckets one way, expected a multiple "
         "of 2 of at most 128"},
        {{.opt = {FULL, .bias = {.farthest = 9, .both_ways = true}},
          .buckets = 6},
         "attention_biased: a bias of 6 buckets both ways, expected a multiple "
         "of 4 of at most 128"},
        {{.opt = {.bias = {.farthest = 900}}, .buckets = 130},
         "attention_biased: a bias of 130 buckets one way, expected a multiple "
         "of 2 of at most 128"},
        {{.opt = {.bias = {.farthest = 16}}, .buckets = 32},
         "attention_biased: the last of 32 buckets begins at distance 16, "
         "expected more than 16, below which each distance has its own"},
        {{.opt = {.soft_cap = 2, .bias = {.farthest = 16}}, .buckets = 8},
         "attention_biased: a bias and a soft cap, expected either"},
        {{.opt = {.bias = {.farthest = 16}}, .buckets = 8, .sinks = true},
         "attention: a bias and sinks, expected either"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_model *m = describe(&rows[i].d);
        struct merak_graph *graph;
        struct merak_error err;

        assert_int_not_equal(merak_model_graph(m, &graph, &err), MERAK_OK);
        assert_string_equal(err.text, rows[i].text);
        merak_model_destroy(m);
    }
}

/* 2 samples, 4 query heads of 8 channels; 2 products of 2 flops a pair and
 * channel forward, and 5 backward. */
static void costs_follow_the_closed_forms(void **state)
{
    static const double T = 16;
    const struct {
        struct described d;
        double pairs;
    } rows[] = {
        {{.opt = {.window = 0}}, T * T / 2},
        {{.opt = {FULL}}, T * T},
        {{.opt = {FULL}, .lengths = true}, T * T}, /* as if all were there */
        {{.opt = {FULL}, .crossed = true}, T * S},
        {{.opt = {FULL}, .crossed = true, .lengths = true}, T * S},
        {{.opt = {PREFIX}, .prefix = true}, T * T},
        /* T (a + b + 1) less the ends, of a keys before and b after */
        {{.opt = {FULL, .window = 2, .window_after = 1}}, T * 3 - 1 - 1},
        {{.opt = {FULL, .window = 4, .window_after = 5}}, T * 9 - 6 - 15},
        {{.opt = {FULL, .window = 1}}, T * (T + 1) / 2},
        {{.opt = {FULL, .window_after = 3}}, T * (T + 1) / 2 + T * 3 - 6},
        {{.opt = {FULL, .window = 100, .window_after = 100}}, T * T},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_model *m = describe(&rows[i].d);
        const struct merak_graph *graph = graph_of(m);
        double forward = merak_node_cost(find(graph, "attention")).flops;
        double backward = merak_node_cost(find(graph, "attention_dx")).flops;
        double each = 2. * 2 * 4 * 8 * rows[i].pairs;

        if (forward != 2 * each || backward != 5 * each)
            fail_msg("row %zu: %g and %g pairs, expected %g", i,
                     forward / (2 * each) * rows[i].pairs,
                     backward / (5 * each) * rows[i].pairs, rows[i].pairs);
        merak_model_destroy(m);
    }
}

/* Gradients have the inputs of their forward node, and none goes to these. */
static void gradients_take_the_same_inputs(void **state)
{
    const struct described d = {
        .opt = {PREFIX}, .lengths = true, .prefix = true};
    struct merak_model *m = describe(&d);
    const struct merak_graph *graph = graph_of(m);
    const struct merak_node *forward = find(graph, "attention");
    const struct merak_node *back = find(graph, "attention_dx");

    (void)state;
    assert_int_equal(forward->n_in, 5);
    assert_int_equal(back->n_in, 8);
    assert_string_equal(forward->in[3]->name, "lengths");
    assert_string_equal(forward->in[4]->name, "prefixes");
    assert_ptr_equal(back->in[6], forward->in[3]);
    assert_ptr_equal(back->in[7], forward->in[4]);
    merak_model_destroy(m);
}

/* But for sinks, whose own gradient is of what the forward left, and which no
 * decay of weights moves. */
static void sinks_have_a_gradient_of_their_own(void **state)
{
    const struct described d = {
        .opt = {.window = 3}, .lengths = true, .sinks = true};
    struct merak_model *m = describe(&d);
    const struct merak_graph *graph = graph_of(m);
    const struct merak_node *forward = find(graph, "attention");
    const struct merak_node *back = find(graph, "attention_dx");
    const struct merak_node *sinks = find(graph, "attention_sinks_dw");

    (void)state;
    assert_int_equal(forward->n_in, 5);
    assert_int_equal(back->n_in, 7);
    assert_ptr_equal(back->in[6], forward->in[3]);
    assert_int_equal(back->attrs.i[4], MERAK_ATTENTION_LENGTHS);
    assert_ptr_equal(sinks->in[1], forward->out[0]);
    assert_ptr_equal(sinks->in[2], forward->out[1]);
    assert_ptr_equal(sinks->in[3], forward->in[4]);
    assert_false(forward->in[4]->decay);
    merak_model_destroy(m);
}

/* A causal model reads nothing ahead; a model's numbers tell the others. */
static void what_reads_ahead_is_known(void **state)
{
    static const struct {
        struct described d;
        bool ahead;
        const char *number;
    } rows[] = {
        {{.opt = {.window = 3}}, false, "attention window=3"},
        {{.opt = {FULL}}, true, "attention keys after=-1"},
        {{.opt = {FULL, .window_after = 2}}, true, "attention keys after=2"},
        {{.opt = {FULL}, .crossed = true}, true, "attention keys after=-1"},
        {{.opt = {.window = 0}, .lengths = true}, true, "operations="},
        {{.opt = {PREFIX}, .prefix = true}, true, "operations="},
        {{.opt = {.bias = {.farthest = 9}}, .buckets = 8},
         true,
         "attention bias's farthest distance=9"},
        {{.opt = {FULL, .bias = {.farthest = 9, .both_ways = true}},
          .buckets = 8},
         true,
         "attention bias both ways=1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_model *m = describe(&rows[i].d);
        const struct merak_graph *graph = graph_of(m);
        char *text = NULL;

        bool biased = rows[i].d.buckets > 0;

        assert_int_equal(merak_node_mixes_positions(find(
                             graph, biased ? "attention_biased" : "attention")),
                         rows[i].ahead);
        assert_int_equal(
            merak_node_mixes_positions(
                find(graph, biased ? "attention_biased_dx" : "attention_dx")),
            rows[i].ahead);
        assert_int_equal(merak_graph_numbers(graph, &text, NULL), MERAK_OK);
        assert_non_null(strstr(text, rows[i].number));
        free(text);
        merak_model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(costs_follow_the_closed_forms),
        cmocka_unit_test(gradients_take_the_same_inputs),
        cmocka_unit_test(sinks_have_a_gradient_of_their_own),
        cmocka_unit_test(what_reads_ahead_is_known),
    };

    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
