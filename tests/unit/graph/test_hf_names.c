/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_names.c - which tensor of a Hugging Face folder a parameter is */
#include "config.h"

#include "unit/config_files.h"
#include "unit/near.h"

#include "io/hf_names.h"
#include "partitioner/graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A small model; families have names of their own for some of the fields. */
static struct merak_hf_config shape_of(enum merak_family family)
{
    struct merak_hf_config c = {.family = family};
    struct merak_error err;
    char text[512];

    snprintf(text, sizeof(text),
             "{\"model_type\":\"%s\",\"hidden_size\":32,\"n_inner\":40,"
             "\"intermediate_size\":40,\"num_hidden_layers\":2,"
             "\"num_attention_heads\":4,\"num_key_value_heads\":%d,"
             "\"first_k_dense_replace\":1,\"num_experts_per_tok\":2,\"qk_rope_"
             "head_dim\":8,"
             "\"head_dim\":8,\"vocab_size\":31,\"pad_token_id\":null,"
             "\"max_position_embeddings\":16}",
             merak_hf_family_name(family),
             family == MERAK_DEEPSEEK_V3 || family == MERAK_DEEPSEEK_V2 ? 4
                                                                        : 2);
    if (config_load(text, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return c;
}

enum { MOST_ROWS = 6144 };

/* Rows of a fused tensor that parameters were found for. */
struct cover {
    char name[MERAK_HF_NAME_BYTES];
    size_t covered, of;
    bool row[MOST_ROWS];
};

static void add_cover(struct cover *c, int *n, const struct merak_hf_tensor *t)
{
    int i = 0;

    while (i < *n && strcmp(c[i].name, t->name) != 0)
        i++;
    if (i == *n) {
        assert_in_range(i, 0, 62);
        c[*n] = (struct cover){.of = t->of_rows};
        memcpy(c[(*n)++].name, t->name, sizeof(t->name));
    }
    assert_int_equal(c[i].of, t->of_rows);
    assert_in_range(t->of_rows, 1, MOST_ROWS);
    for (size_t k = 0; k < t->rows; k++) {
        size_t row = merak_hf_tensor_row(t, k);

        assert_in_range(row, 0, t->of_rows - 1);
        assert_false(c[i].row[row]);
        c[i].row[row] = true;
        c[i].covered++;
    }
}

/* Each parameter is as large as its part, and the parts of a tensor are the
 * whole of it. */
static void check_elements(bool stacked)
{
    for (int f = 0; f < MERAK_FAMILIES; f++) {
        struct merak_model_options opt = {
            .micro_batch = 1, .seq = 8, .dtype = MERAK_F32};
        struct merak_hf_config c = shape_of((enum merak_family)f);
        struct merak_model *m;
        struct merak_graph *graph;
        struct merak_error err;
        struct cover cover[64];
        int n = 0;

        assert_int_equal(merak_model_create(&opt, &m, NULL), MERAK_OK);
        merak_hf_describe(m, &c);
        if (merak_model_graph(m, &graph, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        for (int i = 0; i < graph->n_values; i++) {
            const struct merak_value *v = graph->value[i];
            struct merak_hf_tensor t;

            if (v->kind != MERAK_VALUE_PARAM)
                continue;
            if (merak_hf_tensor_find(&c, v->name, stacked, &t, &err) !=
                MERAK_OK)
                fail_msg("%s", err.text);
            assert_int_equal(t.count * t.stack * t.rows * t.cols,
                             merak_shape_count(&v->shape));
            assert_true(!t.vector || t.cols == 1);
            add_cover(cover, &n, &t);
        }
        for (int i = 0; i < n; i++)
            assert_int_equal(cover[i].covered, cover[i].of);
        merak_model_destroy(m);
    }
}

static void parameters_and_tensors_are_the_same_elements(void **state)
{
    (void)state;
    check_elements(false);
    check_elements(true);
}

/* As the folders that people have name and shape them. */
static const struct {
    enum merak_family family;
    const char *param;
    struct merak_hf_tensor want;
} rows[] = {
    {MERAK_GPT2,
     "h.1.attn.c_attn.weight",
     {"h.1.attn.c_attn.weight", true, false, 96, 32, 0, 96, 96, 96, false, 1,
      false, 1, 0, false}},
    {MERAK_GPT2,
     "h.0.mlp.c_proj.weight",
     {"h.0.mlp.c_proj.weight", true, false, 32, 40, 0, 32, 32, 32, false, 1,
      false, 1, 0, false}},
    {MERAK_GPT2,
     "h.0.attn.c_attn.bias",
     {"h.0.attn.c_attn.bias", false, true, 96, 1, 0, 96, 96, 96, false, 1,
      false, 1, 0, false}},
    {MERAK_QWEN2,
     "model.layers.1.self_attn.k_proj.bias",
     {"model.layers.1.self_attn.k_proj.bias", false, true, 16, 1, 0, 16, 16, 16,
      false, 1, false, 1, 0, false}},
    {MERAK_QWEN3,
     "model.layers.0.self_attn.q_norm.weight",
     {"model.layers.0.self_attn.q_norm.weight", false, true, 8, 1, 0, 8, 8, 8,
      false, 1, false, 1, 0, false}},
    {MERAK_OLMO2,
     "model.layers.0.self_attn.k_norm.weight",
     {"model.layers.0.self_attn.k_norm.weight", false, true, 16, 1, 0, 16, 16,
      16, false, 1, false, 1, 0, false}},
    {MERAK_GEMMA2,
     "model.layers.1.pre_feedforward_layernorm.weight",
     {"model.layers.1.pre_feedforward_layernorm.weight", false, true, 32, 1, 0,
      32, 32, 32, false, 1, false, 1, 0, false}},
    {MERAK_PHI3,
     "model.layers.1.self_attn.v_proj.weight",
     {"model.layers.1.self_attn.qkv_proj.weight", false, false, 16, 32, 48, 64,
      16, 16, false, 1, false, 1, 0, false}},
    {MERAK_PHI3,
     "model.layers.0.mlp.up_proj.weight",
     {"model.layers.0.mlp.gate_up_proj.weight", false, false, 40, 32, 40, 80,
      40, 40, false, 1, false, 1, 0, false}},
    {MERAK_GPT_NEOX,
     "layers.1.attention.key.bias",
     {"layers.1.attention.query_key_value.bias", false, true, 32, 1, 8, 96, 8,
      24, false, 1, false, 1, 0, false}},
    {MERAK_GPT_NEOX,
     "embed_out.weight",
     {"embed_out.weight", false, false, 31, 32, 0, 31, 31, 31, false, 1, false,
      1, 0, false}},
    {MERAK_PHI,
     "model.layers.0.self_attn.dense.weight",
     {"model.layers.0.self_attn.dense.weight", false, false, 32, 32, 0, 32, 32,
      32, false, 1, false, 1, 0, false}},
    {MERAK_STARCODER2,
     "model.layers.0.mlp.c_fc.bias",
     {"model.layers.0.mlp.c_fc.bias", false, true, 40, 1, 0, 40, 40, 40, false,
      1, false, 1, 0, false}},
    {MERAK_MIXTRAL,
     "model.layers.1.block_sparse_moe.experts.w2.weight",
     {"model.layers.1.block_sparse_moe.experts.*.w2.weight", false, false, 32,
      40, 0, 32, 32, 32, true, 8, false, 1, 0, false}},
    {MERAK_QWEN2_MOE,
     "model.layers.0.mlp.shared_expert_gate.weight",
     {"model.layers.0.mlp.shared_expert_gate.weight", false, false, 1, 32, 0, 1,
      1, 1, false, 1, false, 1, 0, false}},
    {MERAK_OLMOE,
     "model.layers.0.self_attn.q_norm.weight",
     {"model.layers.0.self_attn.q_norm.weight", false, true, 32, 1, 0, 32, 32,
      32, false, 1, false, 1, 0, false}},
    {MERAK_GLM4_MOE,
     "model.layers.1.mlp.gate.e_score_correction_bias",
     {"model.layers.1.mlp.gate.e_score_correction_bias", false, true, 128, 1, 0,
      128, 128, 128, false, 1, false, 1, 0, false}},
    {MERAK_MIXTRAL,
     "model.layers.1.block_sparse_moe.experts.w3.weight",
     {"model.layers.1.mlp.experts.gate_up_proj", false, false, 40, 32, 40, 80,
      40, 40, false, 1, true, 8, 0, false}},
    {MERAK_MIXTRAL,
     "model.layers.1.block_sparse_moe.gate.weight",
     {"model.layers.1.block_sparse_moe.gate.weight", false, false, 8, 32, 0, 8,
      8, 8, false, 1, false, 1, 0, false}},
    {MERAK_QWEN3_MOE,
     "model.layers.0.mlp.experts.gate_proj.weight",
     {"model.layers.0.mlp.experts.gate_up_proj", false, false, 768, 32, 0, 1536,
      768, 768, false, 1, true, 128, 0, false}},
    {MERAK_GLM4_MOE,
     "model.layers.1.mlp.experts.down_proj.weight",
     {"model.layers.1.mlp.experts.down_proj", false, false, 32, 1408, 0, 32, 32,
      32, false, 1, true, 128, 0, false}},
    {MERAK_GPT_OSS,
     "model.layers.1.self_attn.sinks",
     {"model.layers.1.self_attn.sinks", false, true, 4, 1, 0, 4, 4, 4, false, 1,
      false, 1, 0, false}},
    {MERAK_GPT_OSS,
     "model.layers.1.mlp.experts.up_proj.weight",
     {"model.layers.1.mlp.experts.gate_up_proj", true, false, 40, 32, 1, 80, 1,
      2, false, 1, true, 128, 0, false}},
    {MERAK_GPT_OSS,
     "model.layers.0.mlp.experts.down_proj.weight",
     {"model.layers.0.mlp.experts.down_proj", true, false, 32, 40, 0, 32, 32,
      32, false, 1, true, 128, 0, false}},
    {MERAK_GPT_OSS,
     "model.layers.0.mlp.experts.gate_up_proj_bias",
     {"model.layers.0.mlp.experts.gate_up_proj_bias", false, true, 80, 1, 0, 80,
      80, 80, false, 1, true, 128, 80, true}},
    {MERAK_DEEPSEEK_V3,
     "model.layers.1.self_attn.q_b_proj.weight",
     {"model.layers.1.self_attn.q_b_proj.weight", false, false, 544, 1536, 0,
      544, 136, 136, false, 1, false, 1, 8, true}},
    {MERAK_DEEPSEEK_V3,
     "model.layers.0.self_attn.kv_a_proj.weight",
     {"model.layers.0.self_attn.kv_a_proj_with_mqa.weight", false, false, 512,
      32, 0, 520, 512, 512, false, 1, false, 1, 0, false}},
    {MERAK_DEEPSEEK_V3,
     "model.layers.0.self_attn.k_a_proj.weight",
     {"model.layers.0.self_attn.kv_a_proj_with_mqa.weight", false, false, 8, 32,
      512, 520, 8, 8, false, 1, false, 1, 8, true}},
    {MERAK_DEEPSEEK_V3,
     "model.layers.0.self_attn.v_b_proj.weight",
     {"model.layers.0.self_attn.kv_b_proj.weight", false, false, 512, 512, 128,
      1024, 128, 256, false, 1, false, 1, 0, false}},
};

/* Rotated channels come first, the first of each pair before the second ones;
 * in files they are the last ones, pair by pair. */
static void rotated_channels_come_first(void **state)
{
    static const size_t want[] = {4,  6,  8,  5,  7,  9,  0,  1,  2,  3,
                                  14, 16, 18, 15, 17, 19, 10, 11, 12, 13};
    struct merak_hf_tensor t = {
        .rows = 20, .run = 10, .step = 10, .turned = 6, .interleaved = true};

    (void)state;
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(merak_hf_tensor_row(&t, i), want[i]);
    t.interleaved = false;
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(merak_hf_tensor_row(&t, i), (i + 4) % 10);
    assert_false(merak_hf_tensor_is_run(&t));
}

static void parameters_are_found_where_files_have_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct merak_hf_config c = shape_of(rows[i].family);
        const struct merak_hf_tensor *want = &rows[i].want;
        struct merak_hf_tensor t;

        assert_int_equal(merak_hf_tensor_find(&c, rows[i].param,
                                              rows[i].want.stacked, &t, NULL),
                         MERAK_OK);
        assert_string_equal(t.name, want->name);
        assert_int_equal(t.transposed, want->transposed);
        assert_int_equal(t.vector, want->vector);
        assert_int_equal(t.rows, want->rows);
        assert_int_equal(t.cols, want->cols);
        assert_int_equal(t.first_row, want->first_row);
        assert_int_equal(t.of_rows, want->of_rows);
        assert_int_equal(t.run, want->run);
        assert_int_equal(t.step, want->step);
        assert_int_equal(t.each, want->each);
        assert_int_equal(t.count, want->count);
        assert_int_equal(t.stacked, want->stacked);
        assert_int_equal(t.stack, want->stack);
        assert_int_equal(t.turned, want->turned);
        assert_int_equal(t.interleaved, want->interleaved);
    }
}

static void other_names_are_not_found(void **state)
{
    static const char *const names[] = {
        "h.attn.c_attn.weight", "h.x.ln_1.weight", "h.1.ln_1.weights",
        "model.norm.weight",    "wte.weight2",     ""};
    struct merak_hf_config c = shape_of(MERAK_GPT2);

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct merak_hf_tensor t;
        struct merak_error err;

        assert_int_equal(merak_hf_tensor_find(&c, names[i], false, &t, &err),
                         MERAK_ERR_NOT_FOUND);
        assert_non_null(strstr(err.text, names[i]));
    }
}

static void prefixes_and_spare_tensors_are_known(void **state)
{
    struct merak_hf_config gpt2 = shape_of(MERAK_GPT2);
    struct merak_hf_config llama = shape_of(MERAK_LLAMA);
    struct merak_hf_config neox = shape_of(MERAK_GPT_NEOX);

    (void)state;
    assert_string_equal(
        merak_hf_tensor_base(&gpt2, "transformer.h.0.ln_1.weight"),
        "h.0.ln_1.weight");
    assert_string_equal(merak_hf_tensor_base(&gpt2, "lm_head.weight"),
                        "lm_head.weight");
    assert_string_equal(merak_hf_tensor_base(&llama, "transformer.x"),
                        "transformer.x");
    assert_string_equal(merak_hf_tensor_prefix(&neox, "layers.0.x"),
                        "gpt_neox.");
    assert_string_equal(merak_hf_tensor_prefix(&neox, "embed_out.weight"), "");
    assert_true(merak_hf_tensor_is_head(&neox, "embed_out.weight"));
    assert_false(merak_hf_tensor_is_head(&gpt2, "lm_head.bias"));
    assert_true(merak_hf_tensor_is_spare(&neox, "layers.2.attention.bias"));
    assert_true(merak_hf_tensor_is_spare(&gpt2, "h.11.attn.bias"));
    assert_false(merak_hf_tensor_is_spare(&gpt2, "h.11.attn.c_attn.bias"));
    assert_true(merak_hf_tensor_is_spare(
        &llama, "model.layers.3.self_attn.rotary_emb.inv_freq"));
    assert_false(merak_hf_tensor_is_spare(&llama, "lm_head.weight"));
    llama.tied = true;
    assert_true(merak_hf_tensor_is_spare(&llama, "lm_head.weight"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_and_tensors_are_the_same_elements),
        cmocka_unit_test(parameters_are_found_where_files_have_them),
        cmocka_unit_test(rotated_channels_come_first),
        cmocka_unit_test(other_names_are_not_found),
        cmocka_unit_test(prefixes_and_spare_tensors_are_known),
    };

    return cmocka_run_group_tests_name("hf_names", tests, NULL, NULL);
}
