/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_config.c - config.json files, good and bad */
#include "config.h"

#include "unit/graph/config_patch.h"
#include "unit/near.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void a_silent_gpt2_file_takes_these_defaults(void **state)
{
    struct merak_hf_config c;

    (void)state;
    assert_int_equal(config_load(GPT2, &c, NULL), MERAK_OK);
    assert_int_equal(c.family, MERAK_GPT2);
    assert_int_equal(c.ffn, 3072);
    assert_int_equal(c.kv_heads, 12);
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.positions, 1024);
    assert_true(c.tied && c.act == MERAK_HF_GELU_TANH && c.attn_bias &&
                c.mlp_bias);
    assert_true(c.norm.eps == 1e-5f && c.init_std == 0.02f);
    assert_true(c.embd_dropout == 0.1f && c.resid_dropout == 0.1f);
    assert_true(c.attn_dropout == 0.1f);
}

static void a_silent_llama_file_takes_these_defaults(void **state)
{
    struct merak_hf_config c;

    (void)state;
    assert_int_equal(config_load(LLAMA, &c, NULL), MERAK_OK);
    assert_int_equal(c.family, MERAK_LLAMA);
    assert_int_equal(c.kv_heads, 32);
    assert_int_equal(c.head_dim, 128);
    assert_true(!c.tied && !c.attn_bias && !c.mlp_bias);
    assert_true(c.norm.eps == 1e-6f && c.rope.theta == 10000.0f);
    assert_true(c.embd_dropout == 0.0f && c.resid_dropout == 0.0f);
    assert_true(c.attn_dropout == 0.0f && c.window == 0);
}

static void fields_that_are_given_are_taken(void **state)
{
    struct merak_hf_config c;

    (void)state;
    assert_int_equal(
        load_patched(GPT2,
                     "{\"n_inner\":100,\"activation_function\":\"gelu\","
                     "\"attn_pdrop\":0,\"n_positions\":77,\"n_ctx\":77,"
                     "\"tie_word_embeddings\":false,\"torch_dtype\":\"x\"}",
                     &c, NULL),
        MERAK_OK);
    assert_int_equal(c.ffn, 100);
    assert_int_equal(c.positions, 77);
    assert_true(c.act == MERAK_HF_GELU && !c.tied && c.attn_dropout == 0);
    assert_int_equal(
        load_patched(LLAMA,
                     "{\"num_key_value_heads\":8,\"head_dim\":64,"
                     "\"attention_bias\":true,\"rope_scaling\":null,"
                     "\"attention_dropout\":0.25,"
                     "\"rope_parameters\":{\"rope_type\":\"default\","
                     "\"rope_theta\":500000.0}}",
                     &c, NULL),
        MERAK_OK);
    assert_int_equal(c.kv_heads, 8);
    assert_int_equal(c.head_dim, 64);
    assert_true(c.attn_bias && c.rope.theta == 500000.0f);
    assert_true(c.attn_dropout == 0.25f);
}

/* A file that is refused, and what the message must name. */
static const struct {
    const char *base, *patch, *says;
} bad_rows[] = {
    {GPT2, "{\"model_type\":null}", "model_type is missing"},
    {GPT2, "{\"model_type\":\"mamba\"}", "model_type is \"mamba\""},
    {GPT2, "{\"model_type\":7}", "model_type is 7, expected a string"},
    {GPT2, "{\"vocab_size\":null}", "vocab_size is null, which is not"},
    {GPT2, "{\"n_embd\":null}", "n_embd is null, which is not supported"},
    {GPT2, "{\"layer_types\":[\"sliding_attention\"],\"n_layer\":1}",
     "expected full_attention of each"},
    {GPT2, "{\"sliding_window\":64}", "sliding_window is 64"},
    {LLAMA, "{\"sliding_window\":64}", "sliding_window is 64"},
    {LLAMA, "{\"attention_chunk_size\":64}", "attention_chunk_size is 64"},
    {LLAMA, "{\"kv_sharing_modes\":[]}", "kv_sharing_modes is []"},
    {LLAMA, "{\"per_layer_config\":{\"0\":{}}}", "per_layer_config is"},
    {LLAMA, "{\"transformers_weights\":\"x\"}", "transformers_weights is"},
    {LLAMA, "{\"intermediate_size\":null}", "intermediate_size is null"},
    {LLAMA, "{\"rope_parameters\":{\"full_attention\":{}}}",
     "full_attention is {}"},
    {MISTRAL,
     "{\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\","
     "\"sliding_attention\"]}",
     "expected sliding_attention of each"},
    {LLAMA,
     "{\"auto_map\":{\"AutoConfig\":\"c.LlamaConfig\","
     "\"AutoModelForCausalLM\":\"modeling_x.XForCausalLM\"}}",
     "auto_map has the model computed by code of its own, "
     "modeling_x.XForCausalLM, which"},
    {LLAMA, "{\"auto_map\":{\"AutoConfig\":\"c.XConfig\"}}",
     "transformers' LlamaConfig does"},
    {GPT2, "{\"n_layer\":\"12\"}", "n_layer is \"12\", expected a whole"},
    {GPT2, "{\"n_layer\":0}", "n_layer is 0, expected a whole"},
    {GPT2, "{\"n_layer\":-3}", "n_layer is -3"},
    {GPT2, "{\"n_layer\":2.5}", "n_layer is 2.5"},
    {GPT2, "{\"n_embd\":99999999999}", "n_embd is 99999999999"},
    {GPT2, "{\"n_head\":7}", "n_embd 768 is not a multiple of n_head 7"},
    {GPT2, "{\"attn_pdrop\":1}", "attn_pdrop is 1"},
    {GPT2, "{\"resid_pdrop\":1.5}", "resid_pdrop is 1.5, expected"},
    {GPT2, "{\"embd_pdrop\":[]}", "embd_pdrop is [], expected a number"},
    {GPT2, "{\"layer_norm_epsilon\":0}", "layer_norm_epsilon is 0"},
    {GPT2, "{\"activation_function\":\"relu\"}", "activation_function"},
    {GPT2, "{\"scale_attn_weights\":false}", "scale_attn_weights is false"},
    {GPT2, "{\"scale_attn_by_inverse_layer_idx\":true}",
     "scale_attn_by_inverse_layer_idx is true"},
    {GPT2, "{\"reorder_and_upcast_attn\":true}", "reorder_and_upcast_attn"},
    {GPT2, "{\"add_cross_attention\":true}", "add_cross_attention is true"},
    {GPT2, "{\"tie_word_embeddings\":1}", "expected true or false"},
    {GPT2, "{\"quantization_config\":{}}", "quantization_config"},
    {GPT2, "{\"num_attention_heads\":2}",
     "n_head 12 and num_attention_heads 2"},
    {GPT2, "{\"hidden_size\":96}", "n_embd 768 and hidden_size 96"},
    {GPT2, "{\"num_hidden_layers\":3}", "n_layer 12 and num_hidden_layers 3"},
    {GPT2, "{\"max_position_embeddings\":99}", "n_positions 1024 and max_pos"},
    {GPT2, "{\"is_causal\":false}", "is_causal is false"},
    {GPT2, "{\"is_encoder_decoder\":true}", "is_encoder_decoder is true"},
    {GPT2, "{\"pruned_heads\":{\"0\":[1]}}", "pruned_heads is"},
    {GPT2, "{\"n_layer\":1000000}", "n_layer is 1000000, expected a whole"},
    {GPT2, "{\"n_head\":16385}", "n_head is 16385"},
    {GPT2, "{\"n_embd\":1048577}", "n_embd is 1048577"},
    {GPT2, "{\"n_inner\":2147483647}", "n_inner is 2147483647"},
    {GPT2, "{\"vocab_size\":2147483647}", "vocab_size is 2147483647"},
    {LLAMA, "{\"head_dim\":4098}", "head_dim is 4098"},
    {LLAMA, "{\"is_causal\":false}", "is_causal is false"},
    {LLAMA, "{\"rope_parameters\":{\"type\":\"linear\"}}", "factor is missing"},
    {LLAMA, "{\"rope_scaling\":{\"type\":\"linear\"}}", "factor is missing"},
    {QWEN2, "{\"layer_types\":[\"full_attention\"]}", "layer_types is"},
    {QWEN3, "{\"head_dim\":null}", "head_dim is null, which is not supported"},
    {PHI3, "{\"partial_rotary_factor\":0}", "partial_rotary_factor is 0"},
    {PHI3, "{\"partial_rotary_factor\":1.5}", "partial_rotary_factor is"},
    {PHI3, "{\"partial_rotary_factor\":0.01}", "partial_rotary_factor is"},
    {LLAMA, "{\"rope_scaling\":{\"rope_type\":\"proportional\"}}",
     "rope_scaling is"},
    {LLAMA, "{\"rope_scaling\":{\"rope_type\":\"longrope\"}}",
     "short_factor is missing"},
    {PHI3,
     "{\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,2],"
     "\"long_factor\":[1,2]}}",
     "short_factor is [1,2], which is not supported; expected a list of 48 "
     "positive numbers"},
    {PHI3, "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
     "expected rope_type default or longrope"},
    {LLAMA, "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":0}}",
     "factor is 0"},
    {LLAMA,
     "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"beta_fast\":1,"
     "\"beta_slow\":32}}",
     "expected a rise"},
    {LLAMA,
     "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
     "\"low_freq_factor\":4,\"high_freq_factor\":1}}",
     "high_freq_factor is 1"},
    {LLAMA, "{\"pad_token_id\":32000}", "pad_token_id is 32000"},
    {LLAMA, "{\"pad_token_id\":-32001}", "pad_token_id is -32001"},
    {LLAMA, "{\"pad_token_id\":\"x\"}", "pad_token_id is \"x\""},
    {LLAMA, "{\"rope_parameters\":{\"rope_type\":\"llama3\"}}",
     "factor is missing"},
    {LLAMA, "{\"rope_parameters\":{\"rope_theta\":-1}}", "rope_theta is -1"},
    {LLAMA, "{\"rope_parameters\":3}", "rope_parameters is 3"},
    {LLAMA, "{\"rope_theta\":0}", "rope_theta is 0"},
    {LLAMA, "{\"hidden_act\":\"gelu\"}", "hidden_act is \"gelu\""},
    {LLAMA, "{\"attention_dropout\":-1}", "attention_dropout is -1"},
    {GEMMA2, "{\"hidden_activation\":\"gelu\"}", "hidden_activation is"},
    {GEMMA2, "{\"attn_logit_softcapping\":0}", "attn_logit_softcapping is 0"},
    {GEMMA2, "{\"query_pre_attn_scalar\":-1}", "query_pre_attn_scalar is -1"},
    {GEMMA2, "{\"use_bidirectional_attention\":true}", "bidirectional"},
    {GEMMA2, "{\"layer_types\":[\"full_attention\"]}", "layer_types is"},
    {GEMMA2, "{\"num_key_value_heads\":null,\"head_dim\":null}", "head_dim"},
    {LLAMA, "{\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
    {LLAMA, "{\"num_key_value_heads\":5}",
     "32 is not a multiple of num_key_value_heads 5"},
    {LLAMA, "{\"num_attention_heads\":7}", "hidden_size 4096 is not"},
    {LLAMA, "{\"head_dim\":33}", "head_dim 33 is odd"},
    {DEEPSEEK_V3, "{\"num_key_value_heads\":64}",
     "num_key_value_heads is 64, which is not supported; expected 128"},
    {DEEPSEEK_V3, "{\"kv_lora_rank\":null,\"q_lora_rank\":0}",
     "q_lora_rank is 0, expected a whole number from 1"},
    {DEEPSEEK_V3, "{\"kv_lora_rank\":0}", "kv_lora_rank is 0, expected a"},
    {DEEPSEEK_V3, "{\"qk_rope_head_dim\":63}",
     "qk_rope_head_dim is 63, which is not supported; expected an even"},
    {DEEPSEEK_V3, "{\"head_dim\":192}", "head_dim is 192, which is not"},
    {DEEPSEEK_V3, "{\"qk_head_dim\":128}", "qk_head_dim is 128, which is not"},
    {DEEPSEEK_V3, "{\"v_head_dim\":-1}", "v_head_dim is -1, expected a whole"},
    {DEEPSEEK_V3, "{\"rope_interleave\":1}", "rope_interleave is 1, expected"},
    {DEEPSEEK_V3, "{\"n_routed_experts\":100}",
     "4 of 8 groups of 100 experts cannot have the 8 of a token"},
    {DEEPSEEK_V2, "{}", "num_experts_per_tok is missing"},
    {DEEPSEEK_V2,
     "{\"num_experts_per_tok\":2,\"topk_method\":\"group_limited_greedy\"}",
     "n_group is missing"},
    {DEEPSEEK_V2, "{\"num_experts_per_tok\":2,\"topk_method\":\"noaux_tc\"}",
     "expected greedy or group_limited_greedy"},
    {DEEPSEEK_V2, "{\"num_experts_per_tok\":2,\"norm_topk_prob\":true}",
     "norm_topk_prob is true"},
    {GPT_OSS, "{\"swiglu_limit\":0}", "swiglu_limit is 0"},
    {GPT_OSS, "{\"hidden_act\":\"gelu\"}", "hidden_act is"},
    {GPT_OSS, "{\"quantization_config\":{\"quant_method\":\"awq\"}}",
     "quantization_config is"},
    {MIXTRAL "}", "{\"quantization_config\":{\"quant_method\":\"mxfp4\"}}",
     "quantization_config is"},
    {DEEPSEEK_V3, "{\"quantization_config\":{\"quant_method\":\"awq\"}}",
     "quantization_config is"},
};

static void bad_fields_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_rows) / sizeof(*bad_rows); i++) {
        struct merak_hf_config c;
        struct merak_error err = {0};

        if (load_patched(bad_rows[i].base, bad_rows[i].patch, &c, &err) !=
                MERAK_ERR_CONFIG ||
            strstr(err.text, bad_rows[i].says) == NULL)
            fail_msg("%s: got \"%s\", expected \"%s\"", bad_rows[i].patch,
                     err.text, bad_rows[i].says);
    }
}

static void other_families_are_read(void **state)
{
    struct merak_hf_config c;
    struct merak_error err;

    (void)state;
    if (config_load(QWEN2, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.family, MERAK_QWEN2);
    assert_true(c.qkv_bias && !c.attn_bias && c.tied && c.window == 0);
    assert_true(c.rope.theta == 1e6f && c.head_dim == 64);
    if (config_load(QWEN3, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.family, MERAK_QWEN3);
    assert_true(!c.qkv_bias && !c.attn_bias && c.norm.of_qk &&
                c.head_dim == 128);
    if (config_load(MISTRAL, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.family, MERAK_MISTRAL);
    assert_true(c.window == 4096 && !c.qkv_bias && !c.norm.of_qk);
    if (config_load(PHI3, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.family, MERAK_PHI3);
    assert_true(c.window == 2047 && c.norm.eps == 1e-5f && !c.tied);
    if (config_load(GEMMA2, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.family, MERAK_GEMMA2);
    assert_true(c.tied && c.has_pad && c.pad == 0 &&
                c.act == MERAK_HF_GELU_TANH && c.norm.is_both);
    assert_true(c.attn_cap == 50 && c.logit_cap == 30 && c.embd_scaled);
    assert_true(c.attn_scale == 0.0625f && c.norm.plus_1);
    assert_true(c.window == 4096 && c.slides[0] && !c.slides[1]);
    assert_non_null(strstr(c.note, "are ignored: hidden_act"));
}

/* Of two spellings transformers takes the older; tokens count from the end,
 * too; null is no padding, and silence may be a number of the family's. */
static void rotary_positions_and_padding_are_read(void **state)
{
    struct merak_hf_config c;
    struct merak_error err;

    (void)state;
    if (load_patched(LLAMA,
                     "{\"rope_theta\":5e5,\"pad_token_id\":-1,"
                     "\"rope_parameters\":{\"rope_type\":\"yarn\"},"
                     "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}",
                     &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.rope.scaling.kind, MERAK_ROPE_LINEAR);
    assert_true(c.rope.scaling.factor == 4 && c.rope.theta == 5e5f);
    assert_true(c.has_pad && c.pad == 31999);
    assert_int_equal(config_load(PHI3, &c, &err), MERAK_OK);
    assert_true(c.has_pad && c.pad == 32000);
    assert_int_equal(load_patched(PHI3, "{\"pad_token_id\":null}", &c, &err),
                     MERAK_OK);
    assert_false(c.has_pad);
    if (load_patched(QWEN2,
                     "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
                     "\"original_max_position_embeddings\":32768}}",
                     &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.rope.scaling.kind, MERAK_ROPE_PAIR_RAMP);
    assert_true(c.rope.scaling.low == 11 && c.rope.scaling.high == 20);
    assert_true(fabs(c.rope.scaling.amplitude - 1.1386294361) < 1e-7);
}

/* What frequencies were made for: a field of the file itself comes first. */
static void the_files_own_original_positions_come_first(void **state)
{
    struct merak_hf_config c, d;

    (void)state;
    assert_int_equal(
        load_patched(LLAMA,
                     "{\"original_max_position_embeddings\":1024,"
                     "\"rope_scaling\":{},\"rope_parameters\":{\"rope_type\":"
                     "\"yarn\",\"factor\":4,"
                     "\"original_max_position_embeddings\":2048}}",
                     &c, NULL),
        MERAK_OK);
    assert_int_equal(
        load_patched(LLAMA,
                     "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
                     "\"original_max_position_embeddings\":1024}}",
                     &d, NULL),
        MERAK_OK);
    assert_int_equal(c.rope.scaling.kind, MERAK_ROPE_PAIR_RAMP);
    assert_true(c.rope.scaling.low == d.rope.scaling.low &&
                c.rope.scaling.high == d.rope.scaling.high);
    assert_string_equal(c.note, "");
}

#define SIX "1,1.5,2,3,4.25,5"
#define FACTORS SIX "," SIX "," SIX "," SIX "," SIX "," SIX "," SIX "," SIX

/* Of phi3: what pairs are divided by, two lists, and how much longer than the
 * sequences of before those of now are; older files say it otherwise. */
static void factors_of_pairs_are_read(void **state)
{
    static const char *const types[] = {"longrope", "su", "yarn"};
    struct merak_hf_config c;
    struct merak_error err;
    char patch[1024];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        snprintf(patch, sizeof(patch),
                 "{\"max_position_embeddings\":131072,\"rope_scaling\":{"
                 "\"type\":\"%s\",\"short_factor\":[" FACTORS "],"
                 "\"long_factor\":[" FACTORS "]}}",
                 types[i]);
        if (load_patched(PHI3, patch, &c, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        assert_int_equal(c.rope.scaling.kind, MERAK_ROPE_PAIRS);
        assert_int_equal(c.rope.short_positions, 4096);
        assert_true(c.rope.by_long[4] == 4.25 && c.rope.by_short[47] == 5);
        /* sqrt(1 + log(32) / log(4096)) */
        assert_true(fabs(c.rope.scaling.amplitude - 1.1902380714) < 1e-7);
    }
}

static size_t window_of(const char *patch)
{
    struct merak_hf_config c;
    struct merak_error err;

    if (load_patched(QWEN2, patch, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return c.window;
}

/* Of 24 layers those from max_window_layers on have windows. */
static void windows_are_used_where_the_file_says(void **state)
{
    struct merak_hf_config c;

    (void)state;
    assert_int_equal(window_of("{\"use_sliding_window\":true}"), 32768);
    assert_int_equal(window_of("{\"use_sliding_window\":true,"
                               "\"max_window_layers\":24}"),
                     0);
    assert_int_equal(window_of("{\"use_sliding_window\":true,"
                               "\"sliding_window\":null}"),
                     0);
    assert_int_equal(
        load_patched(QWEN2, "{\"use_sliding_window\":true}", &c, NULL),
        MERAK_OK);
    assert_true(!c.slides[20] && c.slides[21] && c.slides[23]);
    assert_int_equal(load_patched(GEMMA2,
                                  "{\"num_hidden_layers\":2,\"layer_types\":"
                                  "[\"full_attention\",\"sliding_attention\"],"
                                  "\"final_logit_softcapping\":null}",
                                  &c, NULL),
                     MERAK_OK);
    assert_true(!c.slides[0] && c.slides[1] && c.logit_cap == 0);
}

/* Silence is transformers' own number, null is none. */
static void silence_of_windows_is_not_null(void **state)
{
    char text[sizeof(MISTRAL)] = MISTRAL;
    struct merak_hf_config c;

    (void)state;
    strcpy(strstr(text, ",\"sliding_window\""), "}");
    assert_int_equal(config_load(text, &c, NULL), MERAK_OK);
    assert_int_equal(c.window, 4096);
    assert_int_equal(
        load_patched(MISTRAL, "{\"sliding_window\":null}", &c, NULL), MERAK_OK);
    assert_int_equal(c.window, 0);
}

/* What transformers does not read either is named and ignored, or refused. */
static void fields_that_nobody_reads_are_named(void **state)
{
    struct merak_hf_config c;
    struct merak_error err;
    char path[] = "/tmp/merak-config-XXXXXX";
    const char *text = "{\"attention_multiplier\":0.5,\"rotary_emb_base\":8,"
                       "\"use_mrope\":true,\"mup\":null,\"_own\":1,"
                       "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
                       "\"attn_factor\":1,\"finetuned\":true},";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    dprintf(fd, "%s%s", text, strchr(LLAMA, '{') + 1);
    close(fd);
    assert_int_equal(
        merak_hf_config_read(path, MERAK_HF_UNKNOWN_REFUSE, &c, &err),
        MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "rope_scaling.attn_factor, "));
    assert_non_null(strstr(err.text, "--config-unknown"));
    if (merak_hf_config_read(path, MERAK_HF_UNKNOWN_IGNORE, &c, &err) !=
        MERAK_OK)
        fail_msg("%s", err.text);
    assert_string_equal(
        c.note, "fields that transformers does not read for llama are ignored: "
                "rope_scaling.attn_factor, rope_scaling.finetuned, "
                "attention_multiplier, rotary_emb_base, use_mrope");
    assert_true(c.rope.scaling.factor == 4);
    unlink(path);
}

/* Of more than a line holds, how many there are besides. */
static void many_fields_that_nobody_reads_are_counted(void **state)
{
    char patch[1024] = "{";
    struct merak_hf_config c;
    size_t n = 1;

    (void)state;
    for (int i = 0; i < 40; i++)
        n += (size_t)snprintf(patch + n, sizeof(patch) - n,
                              "\"unread_%d\":%d%s", i, i, i < 39 ? "," : "}");
    assert_int_equal(load_patched(GPT2, patch, &c, NULL), MERAK_OK);
    assert_non_null(strstr(c.note, ", unread_11 and 28 more"));
}

/* Published files have these, which change nothing that is trained. */
static void harmless_fields_are_passed_over(void **state)
{
    static const char *const gpt2 =
        "{\"architectures\":[\"GPT2LMHeadModel\"],\"attn_pdrop\":0.1,"
        "\"bos_token_id\":50256,\"output_past\":true,"
        "\"pad_token_id\":50256,\"summary_activation\":null,"
        "\"summary_first_dropout\":0.1,\"summary_type\":\"cls_index\","
        "\"task_specific_params\":{\"text-generation\":{\"do_sample\":true}},"
        "\"num_attention_heads\":12,\"is_causal\":true}";
    static const char *const llama =
        "{\"_name_or_path\":\"x\",\"pretraining_tp\":1,\"use_cache\":true,"
        "\"rope_scaling\":{\"rope_type\":\"default\"},"
        "\"auto_map\":{\"AutoConfig\":\"c.LlamaConfig\",\"AutoModel\":"
        "\"m.LlamaModel\",\"AutoTokenizer\":[\"t.XTokenizer\",null],"
        "\"AutoModelForCausalLM\":\"org/name--m.LlamaForCausalLM\"},"
        "\"dtype\":\"bfloat16\",\"num_labels\":1,\"classifier_dropout\":0,"
        "\"layer_types\":null,\"sliding_window\":null}";
    struct merak_hf_config c;
    struct merak_error err;

    (void)state;
    if (load_patched(GPT2, gpt2, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_string_equal(c.note, "");
    if (load_patched(LLAMA, llama, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_string_equal(c.note, "");
}

/* Null is not the default; what is absent follows from other fields. */
static void latent_attention_is_read(void **state)
{
    static const char *const patch =
        "{\"num_attention_heads\":16,\"num_key_value_heads\":null,"
        "\"q_lora_rank\":null,\"kv_lora_rank\":96,\"qk_nope_head_dim\":24,"
        "\"qk_rope_head_dim\":8,\"v_head_dim\":20,\"rope_interleave\":false,"
        "\"quantization_config\":{\"quant_method\":\"fp8\"},"
        "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
        "\"mscale_all_dim\":1,\"original_max_position_embeddings\":128}}";
    const double m = 0.1 * log(40) + 1;
    struct merak_hf_config c;
    struct merak_error err;

    (void)state;
    if (load_patched(DEEPSEEK_V3, patch, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.heads, 16);
    assert_int_equal(c.kv_heads, 16);
    assert_int_equal(c.head_dim, 32);
    assert_int_equal(c.latent.q_rank, 0);
    assert_int_equal(c.latent.kv_rank, 96);
    assert_int_equal(c.latent.value, 20);
    assert_int_equal(c.rope.scaling.turned, 8);
    assert_false(c.latent.interleaved);
    assert_true(fabs((double)c.attn_scale - m * m / sqrt(32)) < 1e-6);
    assert_string_equal(c.note, "quantization_config: computed without fp8");
    assert_int_equal(load_patched(DEEPSEEK_V3, "{}", &c, &err), MERAK_OK);
    assert_int_equal(c.latent.q_rank, 1536);
    assert_int_equal(c.mixture.groups_kept, 4);
    assert_true(c.latent.interleaved && c.attn_scale == 0);
    assert_true(c.mixture.is_dense[2] && !c.mixture.is_dense[3]);
}

/* The file in a folder, and nothing that would have to be waited for. */
static void a_folder_stands_for_its_config(void **state)
{
    char folder[] = "/tmp/merak-model-XXXXXX", path[64], fifo[64];
    struct merak_hf_config c;
    struct merak_error err;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/config.json", folder);
    snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
    assert_int_equal(merak_hf_config_load(folder, &c, &err),
                     MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, path));
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(LLAMA, f);
    fclose(f);
    assert_int_equal(merak_hf_config_load(folder, &c, &err), MERAK_OK);
    assert_int_equal(c.family, MERAK_LLAMA);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_not_equal(merak_hf_config_load(fifo, &c, &err), MERAK_OK);
    assert_non_null(strstr(err.text, "not a file"));
    unlink(fifo);
    unlink(path);
    rmdir(folder);
}

static void bad_files_are_refused(void **state)
{
    char *nested = malloc(200001), *huge = malloc(1100001);
    struct merak_hf_config c;
    struct merak_error err;

    (void)state;
    assert_int_equal(config_load("", &c, &err), MERAK_ERR_CONFIG);
    assert_int_equal(config_load("[1]", &c, &err), MERAK_ERR_CONFIG);
    assert_int_equal(config_load("{\"model_type\":\"gpt2\"", &c, &err),
                     MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "line 1"));
    assert_int_equal(config_load("{\"a\":1,\"a\":2}", &c, &err),
                     MERAK_ERR_CONFIG);
    memset(nested, '[', 200000);
    nested[200000] = '\0';
    assert_int_equal(config_load(nested, &c, &err), MERAK_ERR_CONFIG);
    memset(huge, ' ', 1100000);
    huge[1100000] = '\0';
    assert_int_equal(config_load(huge, &c, &err), MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "more than"));
    assert_int_equal(merak_hf_config_load("/nonexistent/config.json", &c, &err),
                     MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "/nonexistent/config.json"));
    free(nested);
    free(huge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_gpt2_file_takes_these_defaults),
        cmocka_unit_test(a_silent_llama_file_takes_these_defaults),
        cmocka_unit_test(fields_that_are_given_are_taken),
        cmocka_unit_test(bad_fields_are_named),
        cmocka_unit_test(other_families_are_read),
        cmocka_unit_test(rotary_positions_and_padding_are_read),
        cmocka_unit_test(the_files_own_original_positions_come_first),
        cmocka_unit_test(factors_of_pairs_are_read),
        cmocka_unit_test(windows_are_used_where_the_file_says),
        cmocka_unit_test(silence_of_windows_is_not_null),
        cmocka_unit_test(fields_that_nobody_reads_are_named),
        cmocka_unit_test(many_fields_that_nobody_reads_are_counted),
        cmocka_unit_test(harmless_fields_are_passed_over),
        cmocka_unit_test(latent_attention_is_read),
        cmocka_unit_test(a_folder_stands_for_its_config),
        cmocka_unit_test(bad_files_are_refused),
    };

    return cmocka_run_group_tests_name("hf_config", tests, NULL, NULL);
}
