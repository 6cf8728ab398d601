/* SPDX-License-Identifier: Apache-2.0 */
/* hf_families.c - the model families, a row each
 *
 * Defaults are those of transformers' configuration classes.
 */
#include "config.h"

#include "io/hf_family.h"

#include <stdio.h>
#include <string.h>

/* --- fields without effect on results
 * ------------------------------------------------------------------------- */

/* Of heads for classes, and of GPT-2's padding, which has no row. */
static const char *const gpt2_known[] = {"output_cross_attentions",
                                         "pad_token_id",
                                         "summary_activation",
                                         "summary_first_dropout",
                                         "summary_last_dropout",
                                         "summary_proj_to_labels",
                                         "summary_type",
                                         "summary_use_proj",
                                         NULL};

/* It only splits products into sums. */
static const char *const llama_known[] = {"pretraining_tp", NULL};

/* A field of the class that no code reads. */
static const char *const phi3_known[] = {"embd_pdrop", NULL};

/* Of the family's models that see. */
static const char *const gemma3_known[] = {"image_token_id",
                                           "mm_tokens_per_image", "text_config",
                                           "vision_config", NULL};

static const char *const none_known[] = {NULL};

/* --- options
 * ------------------------------------------------------------------------- */

#define AT(member) offsetof(struct merak_hf_config, member)
#define ALWAYS(member)                            \
    {                                             \
        .kind = MERAK_HF_ALWAYS, .at = AT(member) \
    }
#define FLAG(field, member, otherwise)                            \
    {                                                             \
        .kind = MERAK_HF_FLAG, .name = (field), .at = AT(member), \
        .or_else = (otherwise)                                    \
    }
#define NEVER(field)                            \
    {                                           \
        .kind = MERAK_HF_NEVER, .name = (field) \
    }
#define NUMBER(what, field, member, otherwise)                      \
    {                                                               \
        .kind = MERAK_HF_##what, .name = (field), .at = AT(member), \
        .or_else = (otherwise)                                      \
    }
#define ACT(field, otherwise, supported)                      \
    {                                                         \
        .kind = MERAK_HF_ACT, .name = (field), .at = AT(act), \
        .word = (otherwise), .acts = (supported)              \
    }
#define END                  \
    {                        \
        .kind = MERAK_HF_END \
    }

#define SILU (1u << MERAK_HF_SILU)
#define GELU (1u << MERAK_HF_GELU)
#define GELU_TANH (1u << MERAK_HF_GELU_TANH)
#define RELU2 (1u << MERAK_HF_RELU2)

static const struct merak_hf_option gpt2_options[] = {
    NUMBER(DROPOUT, "embd_pdrop", embd_dropout, 0.1),
    NUMBER(DROPOUT, "resid_pdrop", resid_dropout, 0.1),
    NUMBER(DROPOUT, "attn_pdrop", attn_dropout, 0.1),
    ACT("activation_function", "gelu_new", GELU | GELU_TANH),
    ALWAYS(attn_bias),
    ALWAYS(mlp_bias),
    NEVER("scale_attn_by_inverse_layer_idx"),
    NEVER("reorder_and_upcast_attn"),
    END,
};

static const struct merak_hf_option llama_options[] = {
    ACT("hidden_act", "silu", SILU),
    FLAG("attention_bias", attn_bias, false),
    FLAG("mlp_bias", mlp_bias, false),
    END,
};

static const struct merak_hf_option qwen2_options[] = {
    ACT("hidden_act", "silu", SILU),
    ALWAYS(qkv_bias),
    END,
};

static const struct merak_hf_option qwen3_options[] = {
    ACT("hidden_act", "silu", SILU),
    FLAG("attention_bias", attn_bias, false),
    ALWAYS(qk_norm),
    END,
};

static const struct merak_hf_option mistral_options[] = {
    ACT("hidden_act", "silu", SILU),
    END,
};

static const struct merak_hf_option phi3_options[] = {
    ACT("hidden_act", "silu", SILU),
    NUMBER(DROPOUT, "resid_pdrop", resid_dropout, 0),
    END,
};

static const struct merak_hf_option olmo2_options[] = {
    ACT("hidden_act", "silu", SILU),
    FLAG("attention_bias", attn_bias, false),
    ALWAYS(qk_whole),
    ALWAYS(post_norm),
    END,
};

/* Gemma Team 2024 (arXiv:2408.00118), sec. 2. */
static const struct merak_hf_option gemma2_options[] = {
    FLAG("attention_bias", attn_bias, false),
    NUMBER(CAP, "attn_logit_softcapping", attn_cap, 50),
    NUMBER(CAP, "final_logit_softcapping", logit_cap, 30),
    NUMBER(RSQRT, "query_pre_attn_scalar", attn_scale, 256),
    ACT("hidden_activation", "gelu_pytorch_tanh", GELU_TANH),
    NEVER("use_bidirectional_attention"),
    ALWAYS(four_norms),
    ALWAYS(norm_plus_1),
    ALWAYS(embd_scaled),
    END,
};

/* Gemma Team 2024 (arXiv:2403.08295), sec. 2.  Files have "gelu" for its tanh
 * form. */
static const struct merak_hf_option gemma_options[] = {
    FLAG("attention_bias", attn_bias, false),
    ACT("hidden_act", "gelu_pytorch_tanh", GELU_TANH | MERAK_HF_GELU_IS_TANH),
    NEVER("use_bidirectional_attention"),
    ALWAYS(norm_plus_1),
    ALWAYS(embd_scaled),
    END,
};

/* Gemma Team 2025 (arXiv:2503.19786), sec. 2. */
static const struct merak_hf_option gemma3_options[] = {
    FLAG("attention_bias", attn_bias, false),
    NUMBER(CAP, "attn_logit_softcapping", attn_cap, 0),
    NUMBER(CAP, "final_logit_softcapping", logit_cap, 0),
    NUMBER(RSQRT, "query_pre_attn_scalar", attn_scale, 256),
    ACT("hidden_activation", "gelu_pytorch_tanh", GELU_TANH),
    NEVER("use_bidirectional_attention"),
    ALWAYS(four_norms),
    ALWAYS(norm_plus_1),
    ALWAYS(embd_scaled),
    ALWAYS(qk_norm),
    END,
};

static const struct merak_hf_option arcee_options[] = {
    ACT("hidden_act", "relu2", GELU | GELU_TANH | RELU2),
    FLAG("attention_bias", attn_bias, false),
    FLAG("mlp_bias", mlp_bias, false),
    ALWAYS(plain_mlp),
    END,
};

static const struct merak_hf_option granite_options[] = {
    ACT("hidden_act", "silu", SILU),
    FLAG("attention_bias", attn_bias, false),
    FLAG("mlp_bias", mlp_bias, false),
    NUMBER(POSITIVE, "embedding_multiplier", embd_factor, 1),
    NUMBER(POSITIVE, "residual_multiplier", resid_factor, 1),
    NUMBER(POSITIVE, "attention_multiplier", attn_scale, 1),
    NUMBER(POSITIVE, "logits_scaling", logit_divisor, 1),
    END,
};

/* --- the families
 * ------------------------------------------------------------------------- */

static const struct merak_hf_family families[] = {
    {.type = "gpt2",
     .class = "GPT2",
     .model = "GPT2LMHeadModel",
     .family = MERAK_GPT2,
     .read = merak_hf_gpt2_read,
     .options = gpt2_options,
     .known = gpt2_known,
     .vocab = 50257,
     .hidden = 768,
     .layers = 12,
     .heads = 12,
     .positions = 1024,
     .norm_eps = 1e-5,
     .tied = true},
    {.type = "llama",
     .class = "Llama",
     .model = "LlamaForCausalLM",
     .family = MERAK_LLAMA,
     .options = llama_options,
     .known = llama_known,
     .vocab = 32000,
     .hidden = 4096,
     .ffn = 11008,
     .layers = 32,
     .heads = 32,
     .positions = 2048,
     .norm_eps = 1e-6},
    {.type = "qwen2",
     .class = "Qwen2",
     .model = "Qwen2ForCausalLM",
     .family = MERAK_QWEN2,
     .options = qwen2_options,
     .known = none_known,
     .vocab = 151936,
     .hidden = 4096,
     .ffn = 22016,
     .layers = 32,
     .heads = 32,
     .kv_heads = 32,
     .positions = 32768,
     .norm_eps = 1e-6,
     .window = 4096,
     .windows = MERAK_HF_IF_ASKED},
    {.type = "qwen3",
     .class = "Qwen3",
     .model = "Qwen3ForCausalLM",
     .family = MERAK_QWEN3,
     .options = qwen3_options,
     .known = none_known,
     .vocab = 151936,
     .hidden = 4096,
     .ffn = 22016,
     .layers = 32,
     .heads = 32,
     .kv_heads = 32,
     .head_dim = 128,
     .positions = 32768,
     .norm_eps = 1e-6,
     .window = 4096,
     .windows = MERAK_HF_IF_ASKED},
    {.type = "mistral",
     .class = "Mistral",
     .model = "MistralForCausalLM",
     .family = MERAK_MISTRAL,
     .options = mistral_options,
     .known = none_known,
     .vocab = 32000,
     .hidden = 4096,
     .ffn = 14336,
     .layers = 32,
     .heads = 32,
     .kv_heads = 8,
     .positions = 131072,
     .norm_eps = 1e-6,
     .window = 4096,
     .windows = MERAK_HF_ALL_LAYERS},
    {.type = "phi3",
     .class = "Phi3",
     .model = "Phi3ForCausalLM",
     .family = MERAK_PHI3,
     .options = phi3_options,
     .known = phi3_known,
     .vocab = 32064,
     .hidden = 3072,
     .ffn = 8192,
     .layers = 32,
     .heads = 32,
     .positions = 4096,
     .norm_eps = 1e-5,
     .pads = true,
     .pad = 32000,
     .windows = MERAK_HF_ALL_LAYERS,
     .rope = {.share = 1, .is_long = true}},
    {.type = "olmo2",
     .class = "Olmo2",
     .model = "Olmo2ForCausalLM",
     .family = MERAK_OLMO2,
     .options = olmo2_options,
     .known = none_known,
     .vocab = 50304,
     .hidden = 4096,
     .ffn = 11008,
     .layers = 32,
     .heads = 32,
     .positions = 2048,
     .norm_eps = 1e-5,
     .pads = true,
     .pad = 1},
    {.type = "gemma2",
     .class = "Gemma2",
     .model = "Gemma2ForCausalLM",
     .family = MERAK_GEMMA2,
     .options = gemma2_options,
     .known = none_known,
     .vocab = 256000,
     .hidden = 2304,
     .ffn = 9216,
     .layers = 26,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .positions = 8192,
     .norm_eps = 1e-6,
     .pads = true,
     .pad = 0,
     .window = 4096,
     .windows = MERAK_HF_ALL_BUT,
     .period = 2,
     .tied = true},
    {.type = "gemma",
     .class = "Gemma",
     .model = "GemmaForCausalLM",
     .family = MERAK_GEMMA,
     .options = gemma_options,
     .known = none_known,
     .vocab = 256000,
     .hidden = 3072,
     .ffn = 24576,
     .layers = 28,
     .heads = 16,
     .kv_heads = 16,
     .head_dim = 256,
     .positions = 8192,
     .norm_eps = 1e-6,
     .pads = true,
     .pad = 0,
     .tied = true},
    {.type = "gemma3_text",
     .class = "Gemma3Text",
     .model = "Gemma3ForCausalLM",
     .family = MERAK_GEMMA3,
     .options = gemma3_options,
     .known = gemma3_known,
     .vocab = 262208,
     .hidden = 2304,
     .ffn = 9216,
     .layers = 26,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .positions = 131072,
     .norm_eps = 1e-6,
     .pads = true,
     .pad = 0,
     .window = 4096,
     .windows = MERAK_HF_ALL_BUT,
     .period = 6,
     .period_field = "sliding_window_pattern",
     .rope = {.theta = 1e6,
              .slide_theta = 1e4,
              .slide_theta_field = "rope_local_base_freq"},
     .tied = true},
    {.type = "arcee",
     .class = "Arcee",
     .model = "ArceeForCausalLM",
     .family = MERAK_ARCEE,
     .options = arcee_options,
     .known = none_known,
     .vocab = 32000,
     .hidden = 2560,
     .ffn = 18432,
     .layers = 32,
     .heads = 32,
     .positions = 4096,
     .norm_eps = 1e-5},
    {.type = "granite",
     .class = "Granite",
     .model = "GraniteForCausalLM",
     .family = MERAK_GRANITE,
     .options = granite_options,
     .known = none_known,
     .vocab = 32000,
     .hidden = 4096,
     .ffn = 11008,
     .layers = 32,
     .heads = 32,
     .positions = 2048,
     .norm_eps = 1e-6},
    {.type = "smollm3",
     .class = "SmolLM3",
     .model = "SmolLM3ForCausalLM",
     .family = MERAK_SMOLLM3,
     .options = llama_options,
     .known = none_known,
     .vocab = 128256,
     .hidden = 2048,
     .ffn = 11008,
     .layers = 36,
     .heads = 16,
     .kv_heads = 4,
     .positions = 32768,
     .norm_eps = 1e-6,
     .pads = true,
     .pad = 128004,
     .windows = MERAK_HF_NO_ROPE,
     .no_rope_period = 4,
     .rope = {.theta = 2e6},
     .tied = true},
    {.type = "olmo3",
     .class = "Olmo3",
     .model = "Olmo3ForCausalLM",
     .family = MERAK_OLMO3,
     .options = olmo2_options,
     .known = none_known,
     .vocab = 50304,
     .hidden = 4096,
     .ffn = 11008,
     .layers = 32,
     .heads = 32,
     .positions = 2048,
     .norm_eps = 1e-5,
     .pads = true,
     .pad = 1,
     .window = 4096,
     .windows = MERAK_HF_ALL_BUT,
     .period = 4,
     .rope = {.theta = 5e5, .slide_theta = 5e5}},
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
