/* SPDX-License-Identifier: Apache-2.0 */
/* hf_lists.h - what the rows of hf_families.c, which alone includes it, point
 * to: options of families, and fields without effect */
#ifndef MERAK_IO_HF_LISTS_H
#define MERAK_IO_HF_LISTS_H

#include "io/hf_family.h"

/* --- latent attention
 * ------------------------------------------------------------------------- */

static const struct merak_hf_latent_family deepseek_v2_latent = {
    .kv_rank = 512,
    .q_rank = 1536,
    .own = 128,
    .turned = 64,
    .value = 128,
};

static const struct merak_hf_latent_family deepseek_v3_latent = {
    .kv_rank = 512,
    .q_rank = 1536,
    .own = 128,
    .turned = 64,
    .value = 128,
    .interleaves = true,
};

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

/* Padding has no row of its own. */
static const char *const gpt_neox_known[] = {"pad_token_id", NULL};

/* All of it attends both ways; and what other models of the class's code
 * have. */
static const char *const bert_known[] = {"embedding_size", "is_causal",
                                         "output_cross_attentions", NULL};
/* The encoder and the decoder of one model have their own; padding has no row
 * of its own; and what other models of the class's code have. */
static const char *const t5_known[] = {"init_std",
                                       "initializer_range",
                                       "is_decoder",
                                       "n_positions",
                                       "output_cross_attentions",
                                       "pad_token_id",
                                       NULL};

/* Of layers for predicting several tokens, which nothing here has. */
static const char *const glm4_moe_known[] = {"num_mtp_layers",
                                             "num_nextn_predict_layers", NULL};
static const char *const deepseek_v3_known[] = {
    "num_mtp_layers", "num_nextn_predict_layers", "pretraining_tp", NULL};

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
#define ZERO(field)                            \
    {                                          \
        .kind = MERAK_HF_ZERO, .name = (field) \
    }
#define ABSENT(field)                            \
    {                                            \
        .kind = MERAK_HF_ABSENT, .name = (field) \
    }
#define END                  \
    {                        \
        .kind = MERAK_HF_END \
    }

#define SILU (1u << MERAK_HF_SILU)
#define GELU (1u << MERAK_HF_GELU)
#define GELU_TANH (1u << MERAK_HF_GELU_TANH)
#define RELU2 (1u << MERAK_HF_RELU2)
#define RELU (1u << MERAK_HF_RELU)

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
    ALWAYS(norm.of_qk),
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
    ALWAYS(norm.of_heads),
    ALWAYS(norm.is_post),
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
    ALWAYS(norm.is_both),
    ALWAYS(norm.plus_1),
    ALWAYS(embd_scaled),
    END,
};

/* Gemma Team 2024 (arXiv:2403.08295), sec. 2.  Files have "gelu" for its tanh
 * form. */
static const struct merak_hf_option gemma_options[] = {
    FLAG("attention_bias", attn_bias, false),
    ACT("hidden_act", "gelu_pytorch_tanh", GELU_TANH | MERAK_HF_GELU_IS_TANH),
    NEVER("use_bidirectional_attention"),
    ALWAYS(norm.plus_1),
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
    ALWAYS(norm.is_both),
    ALWAYS(norm.plus_1),
    ALWAYS(embd_scaled),
    ALWAYS(norm.of_qk),
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

static const struct merak_hf_option stablelm_options[] = {
    ACT("hidden_act", "silu", SILU),
    FLAG("use_qkv_bias", qkv_bias, false),
    FLAG("use_parallel_residual", parallel, false),
    NUMBER(DROPOUT, "hidden_dropout", resid_dropout, 0),
    NEVER("qk_layernorm"),
    ALWAYS(mlp_dropout),
    ALWAYS(norm.has_mean),
    ALWAYS(norm.is_one),
    END,
};

static const struct merak_hf_option starcoder2_options[] = {
    ACT("hidden_act", "gelu_pytorch_tanh", GELU | GELU_TANH | RELU2),
    FLAG("use_bias", attn_bias, true),
    FLAG("use_bias", mlp_bias, true),
    NUMBER(DROPOUT, "residual_dropout", resid_dropout, 0),
    NUMBER(DROPOUT, "embedding_dropout", embd_dropout, 0),
    ALWAYS(norm.has_mean),
    ALWAYS(plain_mlp),
    END,
};

static const struct merak_hf_option phi_options[] = {
    ACT("hidden_act", "gelu_new", GELU | GELU_TANH | RELU2),
    FLAG("qk_layernorm", norm.of_qk, false),
    NUMBER(DROPOUT, "resid_pdrop", resid_dropout, 0),
    NUMBER(DROPOUT, "embd_pdrop", embd_dropout, 0),
    ALWAYS(attn_bias),
    ALWAYS(mlp_bias),
    ALWAYS(head_bias),
    ALWAYS(norm.has_mean),
    ALWAYS(plain_mlp),
    ALWAYS(parallel),
    ALWAYS(norm.is_one),
    END,
};

/* Black et al. 2022 (arXiv:2204.06745), sec. 2. */
static const struct merak_hf_option gpt_neox_options[] = {
    ACT("hidden_act", "gelu", GELU | GELU_TANH | RELU2),
    FLAG("attention_bias", attn_bias, true),
    FLAG("use_parallel_residual", parallel, true),
    NUMBER(DROPOUT, "hidden_dropout", resid_dropout, 0),
    NUMBER(DROPOUT, "hidden_dropout", embd_dropout, 0),
    ALWAYS(mlp_bias),
    ALWAYS(norm.has_mean),
    ALWAYS(plain_mlp),
    END,
};

static const struct merak_hf_option bert_options[] = {
    ACT("hidden_act", "gelu", GELU | GELU_TANH | RELU2 | RELU),
    NUMBER(DROPOUT, "hidden_dropout_prob", embd_dropout, 0.1),
    NUMBER(DROPOUT, "hidden_dropout_prob", resid_dropout, 0.1),
    NUMBER(DROPOUT, "attention_probs_dropout_prob", attn_dropout, 0.1),
    NEVER("is_decoder"),
    ALWAYS(norm.has_mean),
    ALWAYS(norm.is_post),
    ALWAYS(plain_mlp),
    ALWAYS(attn_bias),
    ALWAYS(mlp_bias),
    ALWAYS(head_bias),
    END,
};

static const struct merak_hf_option t5_options[] = {
    NUMBER(DROPOUT, "dropout_rate", embd_dropout, 0.1),
    NUMBER(DROPOUT, "dropout_rate", resid_dropout, 0.1),
    NUMBER(DROPOUT, "dropout_rate", attn_dropout, 0.1),
    END,
};

/* Jitter is noise on the router's input. */
static const struct merak_hf_option mixtral_options[] = {
    ACT("hidden_act", "silu", SILU),
    ZERO("router_jitter_noise"),
    END,
};

static const struct merak_hf_option qwen2_moe_options[] = {
    ACT("hidden_act", "silu", SILU),
    FLAG("qkv_bias", qkv_bias, true),
    NEVER("use_sliding_window"),
    END,
};

static const struct merak_hf_option qwen3_moe_options[] = {
    ACT("hidden_act", "silu", SILU),
    FLAG("attention_bias", attn_bias, false),
    NEVER("use_sliding_window"),
    ALWAYS(norm.of_qk),
    END,
};

static const struct merak_hf_option olmoe_options[] = {
    ACT("hidden_act", "silu", SILU),
    FLAG("attention_bias", attn_bias, false),
    ALWAYS(norm.of_heads),
    ABSENT("clip_qkv"),
    END,
};

/* OpenAI 2025 (arXiv:2508.10925), sec. 2.  No code reads hidden_act. */
static const struct merak_hf_option gpt_oss_options[] = {
    ACT("hidden_act", "silu", SILU),
    FLAG("attention_bias", attn_bias, true),
    NUMBER(POSITIVE, "swiglu_limit", mixture.limit, 7),
    NUMBER(POSITIVE, "swiglu_alpha", mixture.slope, 1.702),
    ALWAYS(mixture.plus_1),
    ALWAYS(mixture.biased),
    ALWAYS(sinks),
    END,
};

static const struct merak_hf_option deepseek_v3_options[] = {
    ACT("hidden_act", "silu", SILU),
    FLAG("attention_bias", attn_bias, false),
    END,
};

/* What norm_topk_prob changes, transformers does not compute. */
static const struct merak_hf_option deepseek_v2_options[] = {
    ACT("hidden_act", "silu", SILU),
    FLAG("attention_bias", attn_bias, false),
    NEVER("mlp_bias"),
    NEVER("norm_topk_prob"),
    END,
};

static const struct merak_hf_option glm4_moe_options[] = {
    ACT("hidden_act", "silu", SILU),
    FLAG("attention_bias", qkv_bias, false),
    FLAG("use_qk_norm", norm.of_qk, false),
    END,
};

#endif
