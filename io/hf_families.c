/* SPDX-License-Identifier: Apache-2.0 */
/* hf_families.c - the model families, a row each
 *
 * Defaults are those of transformers' configuration classes.
 */
#include "config.h"

#include "io/hf_family.h"
#include "io/hf_lists.h"

#include <stdio.h>
#include <string.h>

/* Its model_type, what names of classes of transformers begin with, that of a
 * language model, and our family. */
#define FAMILY(name, classes, lm, ours) \
    .type = name, .class = classes, .model = lm, .family = MERAK_##ours
#define SIZES(words, channels, inner, blocks, n_heads, length)          \
    .vocab = words, .hidden = channels, .ffn = inner, .layers = blocks, \
    .heads = n_heads, .positions = length

static const struct merak_hf_family families[] = {
    {FAMILY("gpt2", "GPT2", "GPT2LMHeadModel", GPT2),
     .read = merak_hf_gpt2_read, .options = gpt2_options, .known = gpt2_known,
     SIZES(50257, 768, 0, 12, 12, 1024), .norm_eps = 1e-5, .tied = true},
    {FAMILY("llama", "Llama", "LlamaForCausalLM", LLAMA),
     .options = llama_options, .known = llama_known,
     SIZES(32000, 4096, 11008, 32, 32, 2048), .norm_eps = 1e-6},
    {FAMILY("qwen2", "Qwen2", "Qwen2ForCausalLM", QWEN2),
     .options = qwen2_options, SIZES(151936, 4096, 22016, 32, 32, 32768),
     .kv_heads = 32, .norm_eps = 1e-6, .window = 4096,
     .windows = MERAK_HF_IF_ASKED},
    {FAMILY("qwen3", "Qwen3", "Qwen3ForCausalLM", QWEN3),
     .options = qwen3_options, SIZES(151936, 4096, 22016, 32, 32, 32768),
     .kv_heads = 32, .head_dim = 128, .norm_eps = 1e-6, .window = 4096,
     .windows = MERAK_HF_IF_ASKED},
    {FAMILY("mistral", "Mistral", "MistralForCausalLM", MISTRAL),
     .options = mistral_options, SIZES(32000, 4096, 14336, 32, 32, 131072),
     .kv_heads = 8, .norm_eps = 1e-6, .window = 4096,
     .windows = MERAK_HF_ALL_LAYERS},
    {FAMILY("phi3", "Phi3", "Phi3ForCausalLM", PHI3), .options = phi3_options,
     .known = phi3_known, SIZES(32064, 3072, 8192, 32, 32, 4096),
     .norm_eps = 1e-5, .pads = true, .pad = 32000,
     .windows = MERAK_HF_ALL_LAYERS, .rope = {.share = 1, .is_long = true}},
    {FAMILY("olmo2", "Olmo2", "Olmo2ForCausalLM", OLMO2),
     .options = olmo2_options, SIZES(50304, 4096, 11008, 32, 32, 2048),
     .norm_eps = 1e-5, .pads = true, .pad = 1},
    {FAMILY("gemma2", "Gemma2", "Gemma2ForCausalLM", GEMMA2),
     .options = gemma2_options, SIZES(256000, 2304, 9216, 26, 8, 8192),
     .kv_heads = 4, .head_dim = 256, .norm_eps = 1e-6, .pads = true, .pad = 0,
     .window = 4096, .windows = MERAK_HF_ALL_BUT, .period = 2, .tied = true},
    {FAMILY("gemma", "Gemma", "GemmaForCausalLM", GEMMA),
     .options = gemma_options, SIZES(256000, 3072, 24576, 28, 16, 8192),
     .kv_heads = 16, .head_dim = 256, .norm_eps = 1e-6, .pads = true, .pad = 0,
     .tied = true},
    {FAMILY("gemma3_text", "Gemma3Text", "Gemma3ForCausalLM", GEMMA3),
     .options = gemma3_options, .known = gemma3_known,
     SIZES(262208, 2304, 9216, 26, 8, 131072), .kv_heads = 4, .head_dim = 256,
     .norm_eps = 1e-6, .pads = true, .pad = 0, .window = 4096,
     .windows = MERAK_HF_ALL_BUT, .period = 6,
     .period_field = "sliding_window_pattern",
     .rope = {.theta = 1e6,
              .slide_theta = 1e4,
              .slide_theta_field = "rope_local_base_freq"},
     .tied = true},
    {FAMILY("arcee", "Arcee", "ArceeForCausalLM", ARCEE),
     .options = arcee_options, SIZES(32000, 2560, 18432, 32, 32, 4096),
     .norm_eps = 1e-5},
    {FAMILY("granite", "Granite", "GraniteForCausalLM", GRANITE),
     .options = granite_options, SIZES(32000, 4096, 11008, 32, 32, 2048),
     .norm_eps = 1e-6},
    {FAMILY("smollm3", "SmolLM3", "SmolLM3ForCausalLM", SMOLLM3),
     .options = llama_options, SIZES(128256, 2048, 11008, 36, 16, 32768),
     .kv_heads = 4, .norm_eps = 1e-6, .pads = true, .pad = 128004,
     .windows = MERAK_HF_NO_ROPE, .no_rope_period = 4, .rope = {.theta = 2e6},
     .tied = true},
    {FAMILY("olmo3", "Olmo3", "Olmo3ForCausalLM", OLMO3),
     .options = olmo2_options, SIZES(50304, 4096, 11008, 32, 32, 2048),
     .norm_eps = 1e-5, .pads = true, .pad = 1, .window = 4096,
     .windows = MERAK_HF_ALL_BUT, .period = 4,
     .rope = {.theta = 5e5, .slide_theta = 5e5}},
    {FAMILY("stablelm", "StableLm", "StableLmForCausalLM", STABLELM),
     .options = stablelm_options, SIZES(50304, 2560, 6912, 32, 32, 4096),
     .kv_heads = 32, .has_heads = MERAK_HF_HEADS_SPLIT, .norm_eps = 1e-5,
     .eps_field = "layer_norm_eps", .rope = {.share = 0.25}},
    {FAMILY("starcoder2", "Starcoder2", "Starcoder2ForCausalLM", STARCODER2),
     .options = starcoder2_options, SIZES(49152, 3072, 12288, 30, 24, 4096),
     .kv_heads = 2, .norm_eps = 1e-5, .eps_field = "norm_epsilon",
     .init_std = 0.018042, .windows = MERAK_HF_ALL_LAYERS, .tied = true},
    {FAMILY("phi", "Phi", "PhiForCausalLM", PHI), .options = phi_options,
     SIZES(51200, 2048, 8192, 24, 32, 2048), .norm_eps = 1e-5,
     .eps_field = "layer_norm_eps", .rope = {.share = 0.5}},
    {FAMILY("gpt_neox", "GPTNeoX", "GPTNeoXForCausalLM", GPT_NEOX),
     .options = gpt_neox_options, .known = gpt_neox_known,
     SIZES(50432, 6144, 24576, 44, 64, 2048), .has_heads = MERAK_HF_HEADS_MANY,
     .norm_eps = 1e-5, .eps_field = "layer_norm_eps", .no_pads = true,
     .rope = {.theta_field = "rotary_emb_base",
              .share = 0.25,
              .share_field = "rotary_pct"}},
    {FAMILY("mixtral", "Mixtral", "MixtralForCausalLM", MIXTRAL),
     .options = mixtral_options, SIZES(32000, 4096, 14336, 32, 32, 131072),
     .kv_heads = 8, .norm_eps = 1e-5, .windows = MERAK_HF_ALL_LAYERS,
     .rope = {.theta = 1e6}, .experts = &merak_hf_mixtral_experts},
    {FAMILY("qwen2_moe", "Qwen2Moe", "Qwen2MoeForCausalLM", QWEN2_MOE),
     .options = qwen2_moe_options, SIZES(151936, 2048, 5632, 24, 16, 32768),
     .kv_heads = 16, .norm_eps = 1e-6, .window = 4096,
     .windows = MERAK_HF_IF_ASKED, .experts = &merak_hf_qwen2_experts},
    {FAMILY("qwen3_moe", "Qwen3Moe", "Qwen3MoeForCausalLM", QWEN3_MOE),
     .options = qwen3_moe_options, SIZES(151936, 2048, 6144, 24, 32, 32768),
     .kv_heads = 4, .norm_eps = 1e-6, .window = 4096,
     .windows = MERAK_HF_IF_ASKED, .experts = &merak_hf_qwen3_experts},
    {FAMILY("olmoe", "Olmoe", "OlmoeForCausalLM", OLMOE),
     .options = olmoe_options, SIZES(50304, 2048, 2048, 16, 16, 4096),
     .norm_eps = 1e-5, .pads = true, .pad = 1,
     .experts = &merak_hf_olmoe_experts},
    {FAMILY("glm4_moe", "Glm4Moe", "Glm4MoeForCausalLM", GLM4_MOE),
     .options = glm4_moe_options, .known = glm4_moe_known,
     SIZES(151552, 4096, 10944, 46, 96, 131072), .kv_heads = 8,
     .norm_eps = 1e-5, .rope = {.share = 0.5},
     .experts = &merak_hf_glm4_experts},
    {FAMILY("deepseek_v3", "DeepseekV3", "DeepseekV3ForCausalLM", DEEPSEEK_V3),
     .options = deepseek_v3_options, .known = deepseek_v3_known,
     SIZES(129280, 7168, 18432, 61, 128, 4096), .norm_eps = 1e-6,
     .experts = &merak_hf_deepseek_v3_experts, .latent = &deepseek_v3_latent},
    {FAMILY("kimi_k2", "DeepseekV3", "DeepseekV3ForCausalLM", DEEPSEEK_V3),
     .options = deepseek_v3_options, .known = deepseek_v3_known,
     SIZES(129280, 7168, 18432, 61, 128, 4096), .norm_eps = 1e-6,
     .experts = &merak_hf_deepseek_v3_experts, .latent = &deepseek_v3_latent},
    {FAMILY("deepseek_v2", "DeepseekV2", "DeepseekV2ForCausalLM", DEEPSEEK_V2),
     .options = deepseek_v2_options, .known = llama_known,
     SIZES(102400, 4096, 11008, 32, 32, 2048), .norm_eps = 1e-6,
     .experts = &merak_hf_deepseek_v2_experts, .latent = &deepseek_v2_latent},
    {FAMILY("gpt_oss", "GptOss", "GptOssForCausalLM", GPT_OSS),
     .options = gpt_oss_options, SIZES(201088, 2880, 2880, 36, 64, 131072),
     .kv_heads = 8, .head_dim = 64, .norm_eps = 1e-5, .window = 128,
     .windows = MERAK_HF_ALL_BUT, .period = 2,
     .rope = {.theta = 1.5e5,
              .object = "{\"rope_type\":\"yarn\",\"factor\":32,"
                        "\"truncate\":false,"
                        "\"original_max_position_embeddings\":4096}"},
     .experts = &merak_hf_gpt_oss_experts, .packs = true},
    {FAMILY("bert", "Bert", "BertForMaskedLM", BERT),
     .reads = MERAK_HF_BOTH_WAYS, .read = merak_hf_bert_read,
     .options = bert_options, .known = bert_known,
     SIZES(30522, 768, 3072, 12, 12, 512), .norm_eps = 1e-12, .pads = true,
     .pad = 0, .tied = true},
    {FAMILY("t5", "T5", "T5ForConditionalGeneration", T5),
     .reads = MERAK_HF_ANOTHER_TEXT, .read = merak_hf_t5_read,
     .options = t5_options, .known = t5_known,
     SIZES(32128, 512, 2048, 6, 8, 0), .head_dim = 64, .norm_eps = 1e-6,
     .tied = true},
};

enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

const struct merak_hf_family *merak_hf_family_find(const char *type)
{
    for (int i = 0; i < N_FAMILIES; i++) {
        if (strcmp(families[i].type, type) == 0)
            return &families[i];
    }
    return NULL;
}

static const struct merak_hf_family *row_of(enum merak_family family)
{
    int i = 0;

    while (i < N_FAMILIES - 1 && families[i].family != family)
        i++;
    return &families[i];
}

const char *merak_hf_family_name(enum merak_family family)
{
    return row_of(family)->type;
}

bool merak_hf_is_causal(const struct merak_hf_config *config,
                        const char **what_p)
{
    static const char *const what[] = {
        [MERAK_HF_CAUSAL] = "a language model",
        [MERAK_HF_BOTH_WAYS] = "an encoder",
        [MERAK_HF_ANOTHER_TEXT] = "an encoder with a decoder"};
    enum merak_hf_reads reads = row_of(config->family)->reads;

    *what_p = what[reads];
    return reads == MERAK_HF_CAUSAL;
}

const char *merak_hf_family_class(enum merak_family family)
{
    return row_of(family)->model;
}

void merak_hf_family_list(char *text, size_t bytes)
{
    size_t at = 0;

    for (int i = 0; i < N_FAMILIES && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%s",
                               i == 0                ? ""
                               : i == N_FAMILIES - 1 ? " or "
                                                     : ", ",
                               families[i].type);
}
