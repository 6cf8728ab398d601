/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_model.c - the models that config.json files mean */
#include "config.h"

#include "unit/config_files.h"
#include "unit/near.h"

#include "partitioner/graph/graph.h"

#include <math.h>
#include <string.h>

/* Describe `text` and give the graph; the model owns it. */
static struct merak_graph *describe(const char *text, size_t seq,
                                    struct merak_model **m_p)
{
    struct merak_model_options opt = {
        .micro_batch = 1, .seq = seq, .dtype = MERAK_BF16};
    struct merak_graph *graph = NULL;
    struct merak_hf_config c;
    struct merak_error err;

    if (config_load(text, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(merak_model_create(&opt, m_p, NULL), MERAK_OK);
    merak_hf_describe(*m_p, &c);
    if (merak_model_graph(*m_p, &graph, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return graph;
}

/* The counts transformers gives for GPT2LMHeadModel, Llama-2-7b and
 * gemma-2-2b. */
static void models_have_as_many_parameters_as_published(void **state)
{
    struct merak_model *m;

    (void)state;
    assert_int_equal(merak_graph_param_count(describe(GPT2, 1024, &m)),
                     124439808);
    merak_model_destroy(m);
    assert_int_equal(merak_graph_param_count(describe(LLAMA, 4096, &m)),
                     6738415616);
    merak_model_destroy(m);
    assert_int_equal(merak_graph_param_count(describe(GEMMA2, 4096, &m)),
                     2614341888);
    merak_model_destroy(m);
}

/* Norms and biases, whatever their dims, are f32 and do not decay. */
static void only_matrices_decay(void **state)
{
    struct merak_model *m;
    const struct merak_graph *graph = describe(GPT2, 1024, &m);
    size_t decayed = 0;

    (void)state;
    for (int i = 0; i < graph->n_values; i++) {
        const struct merak_value *v = graph->value[i];

        if (v->kind != MERAK_VALUE_PARAM)
            continue;
        if (strstr(v->name, ".bias") != NULL ||
            strstr(v->name, "ln_") != NULL) {
            assert_false(v->decay);
            assert_int_equal(v->dtype, MERAK_F32);
        } else {
            assert_int_equal(v->dtype, MERAK_BF16);
            decayed += v->decay;
        }
    }
    assert_int_equal(decayed, 2 + 4 * 12);
    merak_model_destroy(m);
}

/* Gemma's embeddings are multiplied by the root of their width, as the compute
 * dtype has it: 59.87 is 59.75 in bf16. */
static void embeddings_are_scaled_as_rounded(void **state)
{
    const struct merak_graph *graph;
    char text[sizeof(GEMMA2)] = GEMMA2;
    struct merak_model *m;

    (void)state;
    memcpy(strstr(text, "2304"), "3584", 4);
    graph = describe(text, 64, &m);
    assert_string_equal(graph->node[0]->op->name, "embedding");
    assert_true(graph->node[0]->attrs.f[0] == 59.75);
    merak_model_destroy(m);
}

/*
 * 6 N T for the N elements of matrices that tokens are multiplied by, and
 * 7 T^2 C a layer for causal attention (2 products forward and 5 backward);
 * norms, activations and the loss stay below 3 % of it.
 */
static void flops_follow_the_closed_form(void **state)
{
    struct merak_model *m;
    const double T = 4096, C = 4096, F = 11008, L = 32, V = 32000;
    double want =
        6 * T * (L * (4 * C * C + 3 * C * F) + V * C) + L * 7 * T * T * C;
    double got = merak_graph_flops(describe(LLAMA, 4096, &m));

    (void)state;
    assert_true(got > want);
    assert_true(got < 1.03 * want);
    merak_model_destroy(m);
}

static double forward_flops(const char *text, size_t seq)
{
    struct merak_model *m;
    const struct merak_graph *graph = describe(text, seq, &m);
    double flops = 0;

    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->node[n]->phase == MERAK_PHASE_F)
            flops += merak_node_cost(graph->node[n]).flops;
    }
    merak_model_destroy(m);
    return flops;
}

/* Of 32768 tokens, to that of 65536, 131072 and 262144: 2 N + 2 T C L for a
 * token, whose products are the less of it the longer the sequence. */
static void work_of_a_token_grows_with_its_sequence(void **state)
{
#define LONG_LLAMA(h, l, heads, ffn)                                    \
    "{\"model_type\": \"llama\", \"hidden_size\": " h                   \
    ", \"num_hidden_layers\": " l ", \"num_attention_heads\": " heads   \
    ", \"num_key_value_heads\": 8, \"intermediate_size\": " ffn         \
    ", \"max_position_embeddings\": 262144, \"vocab_size\": 128256, "   \
    "\"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, "                \
    "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false}"
    static const struct {
        const char *text;
        double share[3];
    } rows[] = {
        {LONG_LLAMA("4096", "32", "32", "14336"), {0.733, 0.478, 0.282}},
        {LONG_LLAMA("16384", "126", "128", "53248"), {0.875, 0.699, 0.499}},
    };

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        double first = forward_flops(rows[r].text, 32768);

        for (int i = 0; i < 3; i++) {
            double times = 2 << i;
            double more = forward_flops(rows[r].text, (size_t)65536 << i);

            /* rounded; norms and activations are not in the closed form */
            assert_true(fabs(times * first / more - rows[r].share[i]) < 2e-3);
        }
    }
}

/* A window of a quarter of the sequence leaves W/T (2 - W/T) of the pairs. */
static void flops_of_windows_are_fewer(void **state)
{
    struct merak_model *m;
    const double T = 16384, W = 4096, C = 4096, L = 32;
    double whole = L * 7 * T * T * C, seen = W / T * (2 - W / T), full, cut;
    char text[sizeof(MISTRAL)] = MISTRAL;

    (void)state;
    cut = merak_graph_flops(describe(text, (size_t)T, &m));
    merak_model_destroy(m);
    strcpy(strstr(text, "4096}"), "null}");
    full = merak_graph_flops(describe(text, (size_t)T, &m));
    merak_model_destroy(m);
    assert_true(fabs((full - cut) / (whole * (1 - seen)) - 1) < 1e-9);
}

static void a_sequence_longer_than_the_model_is_refused(void **state)
{
    static const char *const text[] = {GPT2, LLAMA};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct merak_model_options opt = {
            .micro_batch = 1, .seq = 5000, .dtype = MERAK_F32};
        struct merak_model *m;
        struct merak_hf_config c;
        struct merak_error err;

        assert_int_equal(config_load(text[i], &c, &err), MERAK_OK);
        assert_int_equal(merak_model_create(&opt, &m, NULL), MERAK_OK);
        merak_hf_describe(m, &c);
        assert_int_not_equal(merak_model_status(m, &err), MERAK_OK);
        assert_non_null(strstr(err.text, "5000"));
        merak_model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_have_as_many_parameters_as_published),
        cmocka_unit_test(only_matrices_decay),
        cmocka_unit_test(embeddings_are_scaled_as_rounded),
        cmocka_unit_test(flops_follow_the_closed_form),
        cmocka_unit_test(work_of_a_token_grows_with_its_sequence),
        cmocka_unit_test(flops_of_windows_are_fewer),
        cmocka_unit_test(a_sequence_longer_than_the_model_is_refused),
    };

    return cmocka_run_group_tests_name("hf_model", tests, NULL, NULL);
}
