/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_config.c - config.json files, good and bad, and the models they mean
 */
#include "config.h"

#include "unit/near.h"

#include "io/hf_config.h"
#include "partitioner/graph/graph.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPT2                                                        \
    "{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_embd\":768," \
    "\"n_layer\":12,\"n_head\":12,\"n_positions\":1024}"
#define LLAMA                                                              \
    "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":4096," \
    "\"intermediate_size\":11008,\"num_hidden_layers\":32,"                \
    "\"num_attention_heads\":32,\"max_position_embeddings\":4096}"

/* Files of the other families, as published but for what is no number. */
#define QWEN2                                                              \
    "{\"model_type\":\"qwen2\",\"vocab_size\":151936,\"hidden_size\":896," \
    "\"intermediate_size\":4864,\"num_hidden_layers\":24,"                 \
    "\"num_attention_heads\":14,\"num_key_value_heads\":2,"                \
    "\"max_position_embeddings\":32768,\"max_window_layers\":21,"          \
    "\"rope_theta\":1000000.0,\"sliding_window\":32768,"                   \
    "\"tie_word_embeddings\":true,\"use_mrope\":false,\"use_cache\":true," \
    "\"use_sliding_window\":false,\"bos_token_id\":151643}"
#define QWEN3                                                                \
    "{\"model_type\":\"qwen3\",\"vocab_size\":151936,\"hidden_size\":1024,"  \
    "\"intermediate_size\":3072,\"num_hidden_layers\":28,\"head_dim\":128,"  \
    "\"num_attention_heads\":16,\"num_key_value_heads\":8,"                  \
    "\"attention_bias\":false,\"max_position_embeddings\":40960,"            \
    "\"max_window_layers\":28,\"rope_theta\":1000000,\"rope_scaling\":null," \
    "\"sliding_window\":null,\"use_sliding_window\":false,"                  \
    "\"tie_word_embeddings\":true}"
#define MISTRAL                                                              \
    "{\"model_type\":\"mistral\",\"vocab_size\":32000,\"hidden_size\":4096," \
    "\"intermediate_size\":14336,\"num_hidden_layers\":32,"                  \
    "\"num_attention_heads\":32,\"num_key_value_heads\":8,"                  \
    "\"max_position_embeddings\":32768,\"rms_norm_eps\":1e-05,"              \
    "\"sliding_window\":4096}"
#define PHI3                                                                 \
    "{\"model_type\":\"phi3\",\"vocab_size\":32064,\"hidden_size\":3072,"    \
    "\"intermediate_size\":8192,\"num_hidden_layers\":32,"                   \
    "\"num_attention_heads\":32,\"num_key_value_heads\":32,"                 \
    "\"max_position_embeddings\":4096,\"attention_bias\":false,"             \
    "\"original_max_position_embeddings\":4096,\"embd_pdrop\":0.0,"          \
    "\"resid_pdrop\":0.0,\"attention_dropout\":0.0,\"sliding_window\":2047," \
    "\"auto_map\":{\"AutoConfig\":\"x.Y\"},\"_name_or_path\":\"phi\"}"
#define GEMMA2                                                               \
    "{\"model_type\":\"gemma2\",\"vocab_size\":256000,\"hidden_size\":2304," \
    "\"intermediate_size\":9216,\"num_hidden_layers\":26,\"head_dim\":256,"  \
    "\"num_attention_heads\":8,\"num_key_value_heads\":4,"                   \
    "\"max_position_embeddings\":8192,\"attention_bias\":false,"             \
    "\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0,"      \
    "\"cache_implementation\":\"hybrid\",\"query_pre_attn_scalar\":256,"     \
    "\"hidden_act\":\"gelu_pytorch_tanh\",\"sliding_window\":4096,"          \
    "\"hidden_activation\":\"gelu_pytorch_tanh\",\"pad_token_id\":0,"        \
    "\"rms_norm_eps\":1e-06,\"rope_theta\":10000.0,\"attention_dropout\":0}"

/* Load `text` as a file. */
static enum merak_status load(const char *text, struct merak_hf_config *config,
                              struct merak_error *err)
{
    char path[] = "/tmp/merak-config-XXXXXX";
    int fd = mkstemp(path);
    enum merak_status rc;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    rc = merak_hf_config_load(path, config, err);
    unlink(path);
    return rc;
}

/* `base` with the fields of `patch` put in or replaced. */
static enum merak_status load_patched(const char *base, const char *patch,
                                      struct merak_hf_config *config,
                                      struct merak_error *err)
{
    json_t *root = json_loads(base, 0, NULL),
           *more = json_loads(patch, 0, NULL);
    enum merak_status rc;
    char *text;

    assert_non_null(root);
    assert_non_null(more);
    json_object_update(root, more);
    text = json_dumps(root, 0);
    rc = load(text, config, err);
    free(text);
    json_decref(root);
    json_decref(more);
    return rc;
}

static void a_silent_gpt2_file_takes_these_defaults(void **state)
{
    struct merak_hf_config c;

    (void)state;
    assert_int_equal(load(GPT2, &c, NULL), MERAK_OK);
    assert_int_equal(c.family, MERAK_GPT2);
    assert_int_equal(c.ffn, 3072);
    assert_int_equal(c.kv_heads, 12);
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.positions, 1024);
    assert_true(c.tied && c.gelu_tanh && c.attn_bias && c.mlp_bias);
    assert_true(c.norm_eps == 1e-5f && c.init_std == 0.02f);
    assert_true(c.embd_dropout == 0.1f && c.resid_dropout == 0.1f);
    assert_true(c.attn_dropout == 0.1f);
}

static void a_silent_llama_file_takes_these_defaults(void **state)
{
    struct merak_hf_config c;

    (void)state;
    assert_int_equal(load(LLAMA, &c, NULL), MERAK_OK);
    assert_int_equal(c.family, MERAK_LLAMA);
    assert_int_equal(c.kv_heads, 32);
    assert_int_equal(c.head_dim, 128);
    assert_true(!c.tied && !c.attn_bias && !c.mlp_bias);
    assert_true(c.norm_eps == 1e-6f && c.rope_theta == 10000.0f);
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
                     "\"attn_pdrop\":0,\"n_positions\":null,\"n_ctx\":77,"
                     "\"tie_word_embeddings\":false,\"torch_dtype\":\"x\"}",
                     &c, NULL),
        MERAK_OK);
    assert_int_equal(c.ffn, 100);
    assert_int_equal(c.positions, 77);
    assert_true(!c.gelu_tanh && !c.tied && c.attn_dropout == 0);
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
    assert_true(c.attn_bias && c.rope_theta == 500000.0f);
    assert_true(c.attn_dropout == 0.25f);
}

/* A file that is refused, and what the message must name. */
static const struct {
    const char *base, *patch, *says;
} bad_rows[] = {
    {GPT2, "{\"model_type\":null}", "model_type is missing"},
    {GPT2, "{\"model_type\":\"bert\"}", "model_type is \"bert\""},
    {GPT2, "{\"model_type\":7}", "model_type is 7, expected a string"},
    {GPT2, "{\"vocab_size\":null}", "vocab_size is missing"},
    {GPT2, "{\"n_embd\":null}", "n_embd is missing"},
    {GPT2, "{\"n_layer\":null}", "n_layer is missing"},
    {GPT2, "{\"n_head\":null}", "n_head is missing"},
    {GPT2, "{\"n_positions\":null}", "n_positions is missing"},
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
    {LLAMA, "{\"rope_interleaved\":true}", "rope_interleaved is true"},
    {LLAMA, "{\"rope_parameters\":{\"type\":\"linear\"}}", "factor is missing"},
    {LLAMA, "{\"rope_scaling\":{\"type\":\"linear\"}}", "factor is missing"},
    {QWEN2, "{\"num_key_value_heads\":null,\"use_mrope\":true}",
     "use_mrope is true"},
    {QWEN2, "{\"layer_types\":[\"full_attention\"]}", "layer_types is"},
    {QWEN3, "{\"head_dim\":null}", "head_dim is missing; the qwen3"},
    {PHI3, "{\"attention_bias\":true}", "attention_bias is true"},
    {PHI3, "{\"partial_rotary_factor\":0.75}", "partial_rotary_factor is"},
    {LLAMA, "{\"hidden_size\":null}", "hidden_size is missing"},
    {LLAMA, "{\"intermediate_size\":null}", "intermediate_size is missing"},
    {LLAMA, "{\"num_hidden_layers\":null}", "num_hidden_layers is missing"},
    {LLAMA, "{\"num_attention_heads\":null}", "num_attention_heads is missing"},
    {LLAMA, "{\"max_position_embeddings\":null}",
     "max_position_embeddings is missing"},
    {LLAMA, "{\"rope_scaling\":{\"rope_type\":\"longrope\"}}",
     "rope_scaling is"},
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
    {LLAMA,
     "{\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2,"
     "\"phase\":1}}",
     "unknown in rope_scaling, and maybe mathematics: phase"},
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
    if (load(QWEN2, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.family, MERAK_QWEN2);
    assert_true(c.qkv_bias && !c.attn_bias && c.tied && c.window == 0);
    assert_true(c.rope_theta == 1e6f && c.head_dim == 64);
    if (load(QWEN3, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.family, MERAK_QWEN3);
    assert_true(!c.qkv_bias && !c.attn_bias && c.qk_norm && c.head_dim == 128);
    if (load(MISTRAL, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.family, MERAK_MISTRAL);
    assert_true(c.window == 4096 && !c.qkv_bias && !c.qk_norm);
    if (load(PHI3, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.family, MERAK_PHI3);
    assert_true(c.window == 2047 && c.norm_eps == 1e-5f && !c.tied);
    if (load(GEMMA2, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.family, MERAK_GEMMA2);
    assert_true(c.tied && c.has_pad && c.pad == 0 && c.geglu && c.four_norms);
    assert_true(c.attn_cap == 50 && c.logit_cap == 30 && c.embd_scaled);
    assert_true(c.attn_scale == 0.0625f && c.norm_plus_1);
    assert_true(c.window == 4096 && c.slides[0] && !c.slides[1]);
    assert_string_equal(c.note, "");
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
    assert_int_equal(c.rope_scaling.kind, MERAK_ROPE_LINEAR);
    assert_true(c.rope_scaling.factor == 4 && c.rope_theta == 5e5f);
    assert_true(c.has_pad && c.pad == 31999);
    assert_int_equal(load(PHI3, &c, &err), MERAK_OK);
    assert_true(c.has_pad && c.pad == 32000);
    assert_int_equal(load_patched(PHI3, "{\"pad_token_id\":null}", &c, &err),
                     MERAK_OK);
    assert_false(c.has_pad);
    if (load_patched(QWEN2,
                     "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
                     "\"original_max_position_embeddings\":32768}}",
                     &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.rope_scaling.kind, MERAK_ROPE_PAIR_RAMP);
    assert_true(c.rope_scaling.low == 11 && c.rope_scaling.high == 20);
    assert_true(fabs(c.rope_scaling.amplitude - 1.1386294361) < 1e-7);
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
    assert_int_equal(load(text, &c, NULL), MERAK_OK);
    assert_int_equal(c.window, 4096);
    assert_int_equal(
        load_patched(MISTRAL, "{\"sliding_window\":null}", &c, NULL), MERAK_OK);
    assert_int_equal(c.window, 0);
}

/* What nothing here knows of is refused by name, or named and ignored. */
static void unknown_fields_are_named(void **state)
{
    struct merak_hf_config c;
    struct merak_error err;
    char path[] = "/tmp/merak-config-XXXXXX";
    const char *text = "{\"attention_multiplier\":0.5,\"logits_scaling\":8,"
                       "\"mup\":null,";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    dprintf(fd, "%s%s", text, strchr(LLAMA, '{') + 1);
    close(fd);
    assert_int_equal(
        merak_hf_config_read(path, MERAK_HF_UNKNOWN_REFUSE, &c, &err),
        MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "attention_multiplier, logits_scaling;"));
    assert_non_null(strstr(err.text, "--config-unknown"));
    assert_int_equal(
        merak_hf_config_read(path, MERAK_HF_UNKNOWN_IGNORE, &c, &err),
        MERAK_OK);
    assert_non_null(strstr(c.note, "attention_multiplier, logits_scaling"));
    unlink(path);
}

/* Published files have these, which change nothing that is trained. */
static void harmless_fields_are_passed_over(void **state)
{
    static const char *const gpt2 =
        "{\"architectures\":[\"GPT2LMHeadModel\"],\"attn_pdrop\":0.1,"
        "\"bos_token_id\":50256,\"n_ctx\":1024,\"output_past\":true,"
        "\"pad_token_id\":50256,\"summary_activation\":null,"
        "\"summary_first_dropout\":0.1,\"summary_type\":\"cls_index\","
        "\"task_specific_params\":{\"text-generation\":{\"do_sample\":true}},"
        "\"num_attention_heads\":12,\"is_causal\":true}";
    static const char *const llama =
        "{\"_name_or_path\":\"x\",\"pretraining_tp\":1,\"use_cache\":true,"
        "\"rope_scaling\":{\"rope_type\":\"default\"},"
        "\"rope_interleaved\":false,\"dtype\":\"bfloat16\","
        "\"transformers.js_config\":{},\"is_llama_config\":true}";
    struct merak_hf_config c;
    struct merak_error err;

    (void)state;
    if (load_patched(GPT2, gpt2, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_string_equal(c.note, "");
    if (load_patched(LLAMA, llama, &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
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
    assert_int_equal(load("", &c, &err), MERAK_ERR_CONFIG);
    assert_int_equal(load("[1]", &c, &err), MERAK_ERR_CONFIG);
    assert_int_equal(load("{\"model_type\":\"gpt2\"", &c, &err),
                     MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "line 1"));
    assert_int_equal(load("{\"a\":1,\"a\":2}", &c, &err), MERAK_ERR_CONFIG);
    memset(nested, '[', 200000);
    nested[200000] = '\0';
    assert_int_equal(load(nested, &c, &err), MERAK_ERR_CONFIG);
    memset(huge, ' ', 1100000);
    huge[1100000] = '\0';
    assert_int_equal(load(huge, &c, &err), MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "more than"));
    assert_int_equal(merak_hf_config_load("/nonexistent/config.json", &c, &err),
                     MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nonexistent/config.json"));
    free(nested);
    free(huge);
}

/* Describe `text` and give the graph; the model owns it. */
static struct merak_graph *describe(const char *text, size_t seq,
                                    struct merak_model **m_p)
{
    struct merak_model_options opt = {
        .micro_batch = 1, .seq = seq, .dtype = MERAK_BF16};
    struct merak_graph *graph = NULL;
    struct merak_hf_config c;
    struct merak_error err;

    if (load(text, &c, &err) != MERAK_OK)
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
        struct merak_model_options opt = {1, 5000, MERAK_F32};
        struct merak_model *m;
        struct merak_hf_config c;
        struct merak_error err;

        assert_int_equal(load(text[i], &c, &err), MERAK_OK);
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
        cmocka_unit_test(a_silent_gpt2_file_takes_these_defaults),
        cmocka_unit_test(a_silent_llama_file_takes_these_defaults),
        cmocka_unit_test(fields_that_are_given_are_taken),
        cmocka_unit_test(bad_fields_are_named),
        cmocka_unit_test(other_families_are_read),
        cmocka_unit_test(rotary_positions_and_padding_are_read),
        cmocka_unit_test(windows_are_used_where_the_file_says),
        cmocka_unit_test(silence_of_windows_is_not_null),
        cmocka_unit_test(unknown_fields_are_named),
        cmocka_unit_test(harmless_fields_are_passed_over),
        cmocka_unit_test(a_folder_stands_for_its_config),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(models_have_as_many_parameters_as_published),
        cmocka_unit_test(only_matrices_decay),
        cmocka_unit_test(embeddings_are_scaled_as_rounded),
        cmocka_unit_test(flops_follow_the_closed_form),
        cmocka_unit_test(flops_of_windows_are_fewer),
        cmocka_unit_test(a_sequence_longer_than_the_model_is_refused),
    };

    return cmocka_run_group_tests_name("hf_config", tests, NULL, NULL);
}
