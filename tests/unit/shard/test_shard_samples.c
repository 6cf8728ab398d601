/* SPDX-License-Identifier: Apache-2.0 */
/* test_shard_samples.c - layouts where tensor ranks may split samples */
#include "config.h"

#include "unit/near.h"
#include "unit/shard/shard_models.h"

#include "partitioner/layout/shard_impl.h"
#include "partitioner/order/shard_order.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static struct merak_sharded *shard_samples(const struct merak_graph *graph,
                                           int tp, int batch)
{
    const struct merak_shard_options opt = {
        .tp = tp, .sp = MERAK_SP_OFF, .tp_batch_percent = batch};

    return spec_shard(graph, &opt);
}

/* A few tokens for a large vocabulary, many for what a layer's weights are. */
#define LARGE_VOCABULARY(vocab)                                    \
    {                                                              \
        false, 4, 16, 4, 32, 4, 4, (vocab), false, 0.1f, BLOCK_PRE \
    }

static const struct {
    size_t vocab;
    int tp, batch;
    const char *param, *layout;
} sample_rows[] = {
    /* SplitBrain: what has most weights is cut, what is computed with them
     * most is replicated */
    {8192, 2, 100, "wte", "S1"},
    {8192, 2, 100, "head", "S0"},
    {8192, 2, 100, "h.0.qkv.w", "R"},
    {8192, 2, 100, "h.0.o.w", "R"},
    {8192, 2, 100, "h.3.up.w", "R"},
    {8192, 4, 100, "head", "S0"},
    {8192, 4, 100, "h.3.down.w", "R"},
    /* a small vocabulary is replicated, too */
    {64, 2, 100, "head", "R"},
    {64, 2, 100, "h.0.up.w", "R"},
    /* the latter half, and none */
    {8192, 2, 50, "h.0.up.w", "S0"},
    {8192, 2, 50, "h.3.up.w", "R"},
    {8192, 2, 50, "wte", "S0"},
    {8192, 2, 50, "head", "S0"},
    {8192, 2, 0, "h.0.up.w", "S0"},
    {8192, 2, 0, "h.3.up.w", "S0"},
};

static void samples_are_cut_where_weights_are_few(void **state)
{
    (void)state;
    for (size_t r = 0; r < COUNT(sample_rows); r++) {
        const struct spec spec = LARGE_VOCABULARY(sample_rows[r].vocab);
        struct merak_graph *graph;
        struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);
        struct merak_sharded *s =
            shard_samples(graph, sample_rows[r].tp, sample_rows[r].batch);
        const struct merak_value *v =
            spec_param(s->graph, sample_rows[r].param);
        char text[32];

        if (strcmp(spec_layout(s, v->id, text), sample_rows[r].layout) != 0)
            fail_msg("row %zu: %s is %s, want %s", r, v->name, text,
                     sample_rows[r].layout);
        assert_int_equal(s->saved > 0, sample_rows[r].batch > 0);
        merak_sharded_destroy(s);
        merak_model_destroy(m);
    }
}

/* Inside the layers nothing moves but gradients of weights, once a step:
 * what is left is the vocabulary's at both ends. */
static void shared_samples_move_weight_gradients_alone(void **state)
{
    const struct spec spec = LARGE_VOCABULARY(8192);
    struct merak_graph *graph;
    struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);
    struct merak_sharded *s = shard_samples(graph, 2, 100);
    const struct merak_node *first = spec_node(s->graph, "layernorm", 0);
    const struct merak_node *last = spec_node(s->graph, "layernorm", 8);

    (void)state;
    for (int i = first->id; i < last->id; i++)
        assert_false(merak_sharded_exchanges(s, i));
    for (int i = s->graph->n_forward; i < s->graph->n_nodes; i++) {
        const struct merak_node *node = s->graph->node[i];

        if (node->forward > first->id && node->forward < last->id)
            assert_false(merak_sharded_exchanges(s, i));
    }
    merak_sharded_destroy(s);
    merak_model_destroy(m);
}

/* Elements that all ranks send of what the token table gives, and of its
 * gradient. */
static double table_words(const struct merak_sharded *s)
{
    const struct merak_graph *graph = s->graph;
    const struct merak_node *from = spec_node(graph, "embedding", 0);
    int to = spec_node(graph, "embedding_dw", 0)->in[1]->producer;
    double words = 0;

    for (int i = from->id + 1; i < graph->n_forward; i++)
        if (graph->node[i]->in[0] == from->out[0])
            words += s->hop[i].words; /* 0 where nothing is converted */
    for (; s->hop[to].kind != MERAK_CONVERT_NONE;
         to = graph->node[to]->in[0]->producer)
        words += s->hop[to].words;
    return words * s->mesh.axis[0].size;
}

/* Where samples are cut, columns of a table take 2 (N - 1) / N n C words (n
 * tokens, C channels, N ranks), rows of it N times as many; a tied table is
 * cut for the head, too. */
static void tables_are_cut_by_columns_where_samples_are_cut(void **state)
{
    static const struct {
        bool tied;
        int batch;
        const char *layout;
        double words;
        size_t channels, vocab;
    } rows[] = {
        {false, 100, "S1", 14680064, 4096, 262144},
        {true, 100, "S0", 117440512, 4096, 262144},
        {false, 50, "S0", 117440512, 4096, 262144},
        {false, 0, "S0", 117440512, 4096, 262144},
        /* EmbRace's: over replicas a whole table would be 90 060 544 words */
        {false, 100, "S1", 3670016, 1024, 50257},
    };

    (void)state;
    for (size_t r = 0; r < COUNT(rows); r++) {
        const struct spec spec = {
            true,          8,            256, 2, rows[r].channels, 32, 8,
            rows[r].vocab, rows[r].tied, 0,   BLOCK_PRE};
        struct merak_graph *graph;
        struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);
        struct merak_sharded *s = shard_samples(graph, 8, rows[r].batch);
        char text[32];

        assert_string_equal(
            spec_layout(s, spec_param(s->graph, "wte")->id, text),
            rows[r].layout);
        assert_true(table_words(s) == rows[r].words);
        merak_sharded_destroy(s);
        merak_model_destroy(m);
    }
}

/* VGG-11 for images of 32 points a side: eight convolutions, of which five halve
 * the image, three linears. */
static struct merak_model *vgg(size_t B, struct merak_graph **graph_p)
{
    static const size_t channels[] = {64, 128, 256, 256, 512, 512, 512, 512};
    static const size_t width[] = {512, 4096, 4096, 10};
    const struct merak_window half = {.stride = 2};
    const struct merak_model_options opt = {
        .micro_batch = B, .seq = 1, .dtype = MERAK_F32};
    struct merak_value *x;
    struct merak_model *m;
    struct merak_error err;
    size_t in = 3;

    assert_int_equal(merak_model_create(&opt, &m, &err), MERAK_OK);
    x = merak_input(m, "pixels", MERAK_F32, "byxc",
                    (const size_t[]){B, 32, 32, 3});
    for (int i = 0; i < 8; i++) {
        size_t out = channels[i];

        x = merak_conv(m, x,
                       MERAK_PARAM(m, merak_name(m, "conv.%d.w", i),
                                   MERAK_ZEROS, out, 3, 3, in),
                       MERAK_PARAM(m, merak_name(m, "conv.%d.b", i),
                                   MERAK_ZEROS, out),
                       NULL);
        x = merak_relu(m, x);
        if (i < 2 || i % 2 == 1)
            x = merak_pool(m, x, MERAK_POOL_MAX, 2, &half);
        in = out;
    }
    x = merak_mean(m, merak_mean(m, x, 'y'), 'x'); /* of one point */
    for (int i = 0; i < 3; i++) {
        x = merak_linear(
            m, i > 0 ? merak_relu(m, x) : x,
            MERAK_PARAM(m, merak_name(m, "linear.%d.w", i), MERAK_ZEROS,
                        width[i + 1], width[i]),
            MERAK_PARAM(m, merak_name(m, "linear.%d.b", i), MERAK_ZEROS,
                        width[i + 1]),
            1);
    }
    merak_cross_entropy(m, x, merak_labels(m, "label", "b"));
    if (merak_model_graph(m, graph_p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return m;
}

/*
 * SplitBrain's network: convolutions have a third of the parameters and are cut
 * by samples, linears by features.  On g ranks that leaves 9 220 480 + 18 923 530
 * / g of 28 144 010 parameters: 58.8 % less on 8, 63.0 % on 16, at most 67.2 %,
 * but for biases where a linear is cut by its inputs.  Nothing says which layers
 * are which: of 128 samples the last convolutions are cut by weights, too, and
 * of 768 all is cut by samples.
 */
static void linears_of_vgg_are_cut_by_features(void **state)
{
    static const struct {
        int tp;
        size_t samples;
        double saved;
    } rows[] = {{8, 256, 0.588}, {8, 512, 0.588}, {16, 512, 0.630}};

    (void)state;
    for (size_t r = 0; r < COUNT(rows); r++) {
        double all = 0, held = 0, want;
        struct merak_graph *graph;
        struct merak_model *m = vgg(rows[r].samples, &graph);
        struct merak_sharded *s = shard_samples(graph, rows[r].tp, 100);

        for (int i = 0; i < s->graph->n_values; i++) {
            const struct merak_value *v = s->graph->value[i];
            double count = (double)merak_shape_count(&v->shape), here;

            if (v->kind != MERAK_VALUE_PARAM)
                continue;
            here = merak_layout_words(&s->mesh, &s->layout[i], &v->shape);
            want = strncmp(v->name, "linear", 6) == 0 ? count / rows[r].tp : count;
            if (v->shape.ndim > 1 && here != want)
                fail_msg("%s has %g words on a rank, want %g", v->name, here,
                         want);
            all += count;
            held += here;
        }
        assert_true(all == 28144010);
        assert_true(fabs(1 - held / all - rows[r].saved) < 0.0005);
        for (int i = 0; i < 8; i++)
            assert_false(
                merak_sharded_exchanges(s, spec_node(s->graph, "conv", i)->id));
        merak_sharded_destroy(s);
        merak_model_destroy(m);
    }
}

static void samples_that_tp_does_not_divide_are_refused(void **state)
{
    static const struct {
        size_t micro_batch;
        int batch;
        bool halved;
        enum merak_status status;
        const char *text;
    } rows[] = {
        {2, 100, true, MERAK_ERR_CONFIG,
         "half of a micro-batch of 4 cannot be cut over tp=4; --tp-batch 100 "
         "needs a --micro-batch that twice tp divides (nearest: 8)"},
        {3, 100, false, MERAK_ERR_CONFIG,
         "a micro-batch of 3 cannot be cut over tp=4; --tp-batch 100 needs a "
         "--micro-batch that tp divides (nearest: 4)"},
        {6, 1, false, MERAK_ERR_CONFIG,
         "a micro-batch of 6 cannot be cut over tp=4; --tp-batch 1 needs a "
         "--micro-batch that tp divides (nearest: 8)"},
        {4, 101, false, MERAK_ERR_PARAM,
         "batch is 101, expected a percentage, 0..100"},
        {4, -1, false, MERAK_ERR_PARAM,
         "batch is -1, expected a percentage, 0..100"},
    };

    (void)state;
    for (size_t r = 0; r < COUNT(rows); r++) {
        const struct spec spec = {
            false, rows[r].micro_batch, 8, 1, 8, 4, 4, 32, true, 0, BLOCK_PRE};
        const struct merak_shard_options opt = {.tp = 4,
                                                .tp_batch_percent =
                                                    rows[r].batch,
                                                .halved = rows[r].halved};
        struct merak_sharded *s = NULL;
        struct merak_graph *graph;
        struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);
        struct merak_error err;

        assert_int_equal(merak_shard(graph, &opt, &s, &err), rows[r].status);
        assert_string_equal(err.text, rows[r].text);
        assert_null(s);
        merak_model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_cut_where_weights_are_few),
        cmocka_unit_test(shared_samples_move_weight_gradients_alone),
        cmocka_unit_test(tables_are_cut_by_columns_where_samples_are_cut),
        cmocka_unit_test(linears_of_vgg_are_cut_by_features),
        cmocka_unit_test(samples_that_tp_does_not_divide_are_refused),
    };

    return cmocka_run_group_tests_name("shard_samples", tests, NULL, NULL);
}
