/* SPDX-License-Identifier: Apache-2.0 */
/* test_mixtures.c - published mixtures of experts: how many parameters they
 * have and use for a token, what a token costs, and how heads are cut that are
 * made of one vector
 */
#include "config.h"

#include "unit/config_files.h"
#include "unit/shard/shard_models.h"

#include "io/hf_config.h"
#include "partitioner/graph/graph.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
#define MIXTRAL_WITH                                             \
    "\"model_type\": \"mixtral\", \"num_key_value_heads\": 8, "  \
    "\"num_local_experts\": 8, \"num_experts_per_tok\": 2, "     \
    "\"tie_word_embeddings\": false, \"hidden_act\": \"silu\", " \
    "\"max_position_embeddings\": 4096, \"sliding_window\": null, "

static const struct {
    const char *config;
    size_t all, active;
    double flops; /* of a trained token of 4096, all pairs; 0: not checked */
} published[] = {
    {"{" MIXTRAL_WITH "\"hidden_size\": 4096, \"intermediate_size\": 14336, "
     "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
     "\"vocab_size\": 32000}",
     46702792704, 12879925248, 82933972992.0},
    {"{" MIXTRAL_WITH "\"hidden_size\": 6144, \"intermediate_size\": 16384, "
     "\"num_hidden_layers\": 56, \"num_attention_heads\": 48, "
     "\"vocab_size\": 32768}",
     140630071296, 0, 250668122112.0},
    {"{\"model_type\": \"qwen3_moe\", \"hidden_size\": 2048, "
     "\"num_hidden_layers\": 48, \"num_attention_heads\": 32, "
     "\"num_key_value_heads\": 4, \"head_dim\": 128, \"num_experts\": 128, "
     "\"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768, "
     "\"intermediate_size\": 6144, \"vocab_size\": 151936, "
     "\"tie_word_embeddings\": false}",
     30532122624, 3353032704, 0},
    {"{\"model_type\": \"olmoe\", \"hidden_size\": 2048, "
     "\"intermediate_size\": 1024, \"num_hidden_layers\": 16, "
     "\"num_attention_heads\": 16, \"num_key_value_heads\": 16, "
     "\"num_experts\": 64, \"num_experts_per_tok\": 8, "
     "\"vocab_size\": 50304, \"tie_word_embeddings\": false}",
     6919161856, 1282017280, 0},
    {"{\"model_type\": \"qwen2_moe\", \"hidden_size\": 2048, "
     "\"intermediate_size\": 5632, \"num_hidden_layers\": 24, "
     "\"num_attention_heads\": 16, \"num_key_value_heads\": 16, "
     "\"num_experts\": 60, \"num_experts_per_tok\": 4, "
     "\"moe_intermediate_size\": 1408, "
     "\"shared_expert_intermediate_size\": 5632, \"vocab_size\": 151936, "
     "\"tie_word_embeddings\": false}",
     14315784192, 2689173504, 0},
    /* DeepSeek-V3; scores of 192 channels and values of 128 take 1152 flops a
     * pair and head, forward and backward */
    {"{\"model_type\": \"deepseek_v3\", \"tie_word_embeddings\": false}",
     671026419200, 37552297472, 267342283776.0},
    /* Kimi-K2, DeepSeek-V2 and V2-Lite */
    {"{\"model_type\": \"kimi_k2\", \"num_attention_heads\": 64, "
     "\"n_routed_experts\": 384, \"n_group\": 1, \"topk_group\": 1, "
     "\"first_k_dense_replace\": 1, \"vocab_size\": 163840}",
     1026408232448, 32861500928, 0},
    {"{\"model_type\": \"deepseek_v2\", \"hidden_size\": 5120, "
     "\"intermediate_size\": 12288, \"num_hidden_layers\": 60, "
     "\"num_attention_heads\": 128, \"n_routed_experts\": 160, "
     "\"moe_intermediate_size\": 1536, \"num_experts_per_tok\": 6, "
     "\"first_k_dense_replace\": 1, \"max_position_embeddings\": 4096}",
     235741434880, 21375800320, 0},
    {"{\"model_type\": \"deepseek_v2\", \"hidden_size\": 2048, "
     "\"intermediate_size\": 10944, \"num_hidden_layers\": 27, "
     "\"num_attention_heads\": 16, \"q_lora_rank\": null, "
     "\"moe_intermediate_size\": 1408, \"num_experts_per_tok\": 6, "
     "\"first_k_dense_replace\": 1, \"max_position_embeddings\": 4096}",
     15706484224, 2661150208, 0},
    /* gpt-oss-20b and 120b; 3.6 and 5.1 thousand millions without embeddings */
    {"{\"model_type\": \"gpt_oss\", \"num_hidden_layers\": 24, "
     "\"num_local_experts\": 32}",
     20914757184, 4187440704, 0},
    {"{\"model_type\": \"gpt_oss\"}", 116829156672, 5711982912, 0},
};

static struct merak_hf_config config_of(const char *text)
{
    struct merak_hf_config c;
    struct merak_error err;

    if (config_load(text, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return c;
}

static struct merak_model *described(struct merak_hf_config *c,
                                     const struct merak_model_options *opt,
                                     struct merak_graph **graph_p)
{
    struct merak_model *m;
    struct merak_error err;

    assert_int_equal(merak_model_create(opt, &m, &err), MERAK_OK);
    merak_hf_describe(m, c);
    if (merak_model_graph(m, graph_p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return m;
}

/* Without the experts that a token does not choose. */
static size_t active(const struct merak_graph *graph,
                     const struct merak_hf_mixture *c)
{
    size_t n = merak_graph_param_count(graph);

    for (int i = 0; i < graph->n_values; i++) {
        const struct merak_value *v = graph->value[i];

        if (v->kind == MERAK_VALUE_PARAM && v->shape.ndim >= 2 &&
            strstr(v->name, ".experts.") != NULL)
            n -= merak_shape_count(&v->shape) / c->experts *
                 (c->experts - c->chosen);
    }
    return n;
}

static void published_mixtures_have_their_parameters(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(published); i++) {
        const struct merak_model_options opt = {
            .micro_batch = 1, .seq = 4096, .dtype = MERAK_BF16};
        struct merak_hf_config c = config_of(published[i].config);
        struct merak_graph *graph;
        struct merak_model *m = described(&c, &opt, &graph);
        double flops = merak_graph_flops(graph) / 4096;

        assert_int_equal(merak_graph_param_count(graph), published[i].all);
        if (published[i].active > 0)
            assert_int_equal(active(graph, &c.mixture), published[i].active);
        /* causal attention has half of the pairs; what is not in closed forms,
         * element by element, is less than 1 % */
        if (published[i].flops > 0) {
            double want =
                published[i].flops - 6.0 * 4096 * (double)(c.layers * c.hidden);

            assert_true(flops >= want && flops <= 1.01 * want);
        }
        merak_model_destroy(m);
    }
}

/* Layouts of values, over eight tensor ranks: S2 is cut by heads, P still to be
 * summed.  Only what heads are made of, with fewer channels, is exchanged. */
static void heads_of_latent_attention_are_cut(void **state)
{
    static const struct {
        const char *op;
        int input, output; /* either; -1: the other */
        const char *layout;
    } rows[] = {
        {"attention", 0, -1, "S2"},        {"attention", 1, -1, "S2"},
        {"attention", 2, -1, "S2"},        {"concat_shared", 1, -1, "S2"},
        {"concat_shared_dx", 0, -1, "S2"}, {"concat_shared_dx", -1, 0, "P"},
        {"concat_shared_dx", -1, 1, "S2"},
    };
    static const struct {
        const char *param, *layout;
    } weights[] = {{"q_b_proj", "S0"},
                   {"k_b_proj", "S0"},
                   {"v_b_proj", "S0"},
                   {"o_proj", "S1"},
                   {"q_a_layernorm", "R"}};
    const struct merak_shard_options opt = {.tp = 8};
    const struct merak_model_options model = {
        .micro_batch = 1, .seq = 4096, .dtype = MERAK_BF16};
    struct merak_hf_config c = config_of("{\"model_type\": \"deepseek_v3\", "
                                         "\"num_hidden_layers\": 1}");
    struct merak_sharded *s;
    struct merak_graph *graph;
    struct merak_model *m = described(&c, &model, &graph);
    char text[32], name[80];

    (void)state;
    s = spec_shard(graph, &opt);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct merak_node *node = spec_node(s->graph, rows[i].op, 0);
        const struct merak_value *v = rows[i].input >= 0
                                          ? node->in[rows[i].input]
                                          : node->out[rows[i].output];

        assert_string_equal(spec_layout(s, v->id, text), rows[i].layout);
    }
    for (size_t i = 0; i < COUNT(weights); i++) {
        snprintf(name, sizeof(name), "model.layers.0.self_attn.%s.weight",
                 weights[i].param);
        assert_string_equal(
            spec_layout(s, spec_param(s->graph, name)->id, text),
            weights[i].layout);
    }
    merak_sharded_destroy(s);
    merak_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_mixtures_have_their_parameters),
        cmocka_unit_test(heads_of_latent_attention_are_cut),
    };

    return cmocka_run_group_tests_name("mixtures", tests, NULL, NULL);
}
