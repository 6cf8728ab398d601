/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_names.c - models and their tensors, as llama.cpp calls them */
#include "config.h"

#include "io/weights/gguf.h"

#include "base/error.h"
#include "io/hf_names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TWO_PI 6.283185307179586

/* Attention and MLP of a layer. */
enum order {
    IN_TURN,
    AS_SAID, /* a key says whether they are side by side */
    SIDE_BY_SIDE,
};

/* What llama.cpp computes for an architecture, and what its keys can say. */
struct arch {
    const char *name; /* NULL: llama.cpp, or this file, has none */
    bool pairs;       /* rotary pairs are (2i, 2i + 1) */
    bool learned;     /* positions: has no keys for rotary ones */
    bool mean;        /* norms subtract it, whatever the config says */
    bool partial;     /* rotary positions may be of a part of each head */
    bool ramp;        /* has a tensor of factors for rotary frequencies */
    bool window;      /* has a key for a window of attention */
    bool head_bias;   /* of logits */
    bool factors;     /* has keys for those of embeddings, scores, residuals and
                         logits */
    bool mixed;       /* queries, keys and values of a head are together in
                         files, and one after the other there */
    bool no_gate;     /* of the MLP */
    bool all_keys;    /* as many heads of keys as of queries */
    bool normal;      /* weights of experts are divided by their sum */
    bool shared;      /* beside experts is one MLP for all tokens */
    enum order order;
    enum merak_hf_act act; /* GELU: the tanh form is taken for it, too */
    size_t whole;      /* every so many-th layer has no window; 0: all have one,
                          or none */
    size_t unturned;   /* every so many-th layer has no positions; 0: none */
    float slide_theta; /* of layers with windows; 0: as of others */
};

static const struct arch archs[MERAK_FAMILIES] = {
    [MERAK_GPT2] = {.name = "gpt2",
                    .learned = true,
                    .mean = true,
                    .act = MERAK_HF_GELU_TANH},
    [MERAK_LLAMA] = {.name = "llama", .pairs = true, .ramp = true},
    [MERAK_MISTRAL] = {.name = "llama", .pairs = true, .ramp = true},
    [MERAK_QWEN2] = {.name = "qwen2", .ramp = true},
    [MERAK_QWEN3] = {.name = "qwen3", .ramp = true},
    [MERAK_PHI3] = {.name = "phi3", .partial = true, .window = true},
    [MERAK_OLMO2] = {.name = "olmo2"},
    [MERAK_GEMMA2] = {.name = "gemma2",
                      .window = true,
                      .act = MERAK_HF_GELU_TANH,
                      .whole = 2},
    [MERAK_MIXTRAL] = {.name = "llama", .pairs = true, .normal = true},
    [MERAK_QWEN2_MOE] = {.name = "qwen2moe", .shared = true},
    [MERAK_QWEN3_MOE] = {.name = "qwen3moe", .normal = true},
    [MERAK_OLMOE] = {.name = "olmoe", .all_keys = true},
    [MERAK_GEMMA] = {.name = "gemma", .act = MERAK_HF_GELU_TANH},
    [MERAK_GEMMA3] = {.name = "gemma3",
                      .window = true,
                      .act = MERAK_HF_GELU_TANH,
                      .whole = 6,
                      .slide_theta = 10000},
    [MERAK_ARCEE] = {.name = "arcee",
                     .pairs = true,
                     .ramp = true,
                     .no_gate = true,
                     .act = MERAK_HF_RELU2},
    [MERAK_GRANITE] = {.name = "granite", .pairs = true, .factors = true},
    [MERAK_SMOLLM3] = {.name = "smollm3",
                       .pairs = true,
                       .ramp = true,
                       .unturned = 4},
    [MERAK_STABLELM] = {.name = "stablelm", .partial = true, .order = AS_SAID},
    [MERAK_STARCODER2] = {.name = "starcoder2",
                          .ramp = true,
                          .no_gate = true,
                          .act = MERAK_HF_GELU_TANH},
    [MERAK_PHI] = {.name = "phi2",
                   .partial = true,
                   .head_bias = true,
                   .no_gate = true,
                   .order = SIDE_BY_SIDE,
                   .act = MERAK_HF_GELU_TANH},
    [MERAK_GPT_NEOX] = {.name = "gptneox",
                        .partial = true,
                        .mixed = true,
                        .no_gate = true,
                        .order = AS_SAID,
                        .act = MERAK_HF_GELU},
};

static const struct {
    const char *hf, *gguf;
} names[] = {
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"ln_f", "output_norm"},
    {"lm_head", "output"},
    {"h.*.ln_1", "blk.*.attn_norm"},
    {"h.*.attn.c_attn", "blk.*.attn_qkv"},
    {"h.*.attn.c_proj", "blk.*.attn_output"},
    {"h.*.ln_2", "blk.*.ffn_norm"},
    {"h.*.mlp.c_fc", "blk.*.ffn_up"},
    {"h.*.mlp.c_proj", "blk.*.ffn_down"},
    {"embed_in", "token_embd"},
    {"final_layer_norm", "output_norm"},
    {"embed_out", "output"},
    {"layers.*.input_layernorm", "blk.*.attn_norm"},
    {"layers.*.attention.query_key_value", "blk.*.attn_qkv"},
    {"layers.*.attention.dense", "blk.*.attn_output"},
    {"layers.*.post_attention_layernorm", "blk.*.ffn_norm"},
    {"layers.*.mlp.dense_h_to_4h", "blk.*.ffn_up"},
    {"layers.*.mlp.dense_4h_to_h", "blk.*.ffn_down"},
    {"model.final_layernorm", "output_norm"},
    {"model.layers.*.self_attn.dense", "blk.*.attn_output"},
    {"model.layers.*.mlp.fc1", "blk.*.ffn_up"},
    {"model.layers.*.mlp.fc2", "blk.*.ffn_down"},
    {"model.layers.*.mlp.c_fc", "blk.*.ffn_up"},
    {"model.layers.*.mlp.c_proj", "blk.*.ffn_down"},
    {"model.layers.*.mlp.gate", "blk.*.ffn_gate_inp"},
    {"model.layers.*.mlp.experts.gate_proj", "blk.*.ffn_gate_exps"},
    {"model.layers.*.mlp.experts.up_proj", "blk.*.ffn_up_exps"},
    {"model.layers.*.mlp.experts.down_proj", "blk.*.ffn_down_exps"},
    {"model.layers.*.mlp.shared_expert_gate", "blk.*.ffn_gate_inp_shexp"},
    {"model.layers.*.mlp.shared_expert.gate_proj", "blk.*.ffn_gate_shexp"},
    {"model.layers.*.mlp.shared_expert.up_proj", "blk.*.ffn_up_shexp"},
    {"model.layers.*.mlp.shared_expert.down_proj", "blk.*.ffn_down_shexp"},
    {"model.layers.*.block_sparse_moe.gate", "blk.*.ffn_gate_inp"},
    {"model.layers.*.block_sparse_moe.experts.w1", "blk.*.ffn_gate_exps"},
    {"model.layers.*.block_sparse_moe.experts.w3", "blk.*.ffn_up_exps"},
    {"model.layers.*.block_sparse_moe.experts.w2", "blk.*.ffn_down_exps"},
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"model.layers.*.input_layernorm", "blk.*.attn_norm"},
    {"model.layers.*.self_attn.q_proj", "blk.*.attn_q"},
    {"model.layers.*.self_attn.k_proj", "blk.*.attn_k"},
    {"model.layers.*.self_attn.v_proj", "blk.*.attn_v"},
    {"model.layers.*.self_attn.qkv_proj", "blk.*.attn_qkv"},
    {"model.layers.*.self_attn.q_norm", "blk.*.attn_q_norm"},
    {"model.layers.*.self_attn.k_norm", "blk.*.attn_k_norm"},
    {"model.layers.*.self_attn.o_proj", "blk.*.attn_output"},
    {"model.layers.*.pre_feedforward_layernorm", "blk.*.ffn_norm"},
    {"model.layers.*.post_feedforward_layernorm", "blk.*.post_ffw_norm"},
    {"model.layers.*.mlp.gate_proj", "blk.*.ffn_gate"},
    {"model.layers.*.mlp.up_proj", "blk.*.ffn_up"},
    {"model.layers.*.mlp.gate_up_proj", "blk.*.ffn_up"},
    {"model.layers.*.mlp.down_proj", "blk.*.ffn_down"},
    /* before the MLP, or with norms after each part after attention */
    {"model.layers.*.post_attention_layernorm", "blk.*.ffn_norm"},
    {"model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm"},
};
enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static bool is_multiple(size_t layer, size_t of)
{
    return of > 0 && (layer + 1) % of == 0;
}

static bool slides_as_known(const struct merak_hf_config *c,
                            const struct arch *a)
{
    for (size_t i = 0; i < c->layers; i++) {
        if (c->slides[i] !=
            (a->whole > 0 ? !is_multiple(i, a->whole) : c->slides[0]))
            return false;
    }
    return true;
}

static bool turns_as_known(const struct merak_hf_config *c,
                           const struct arch *a)
{
    const struct merak_hf_rope *r = &c->rope;

    for (size_t i = 0; i < c->layers; i++) {
        if (r->is_off[i] != is_multiple(i, a->unturned))
            return false;
    }
    return a->slide_theta == 0 || (r->slide_theta == a->slide_theta &&
                                   r->slide_scaling.kind == MERAK_ROPE_PLAIN);
}

/* Of experts: every layer has them, and their weights are made one way. */
static const char *unsaid_experts(const struct merak_hf_config *c,
                                  const struct arch *a)
{
    const struct merak_hf_mixture *m = &c->mixture;

    if (m->experts == 0)
        return NULL;
    for (size_t i = 0; i < c->layers; i++) {
        if (m->is_dense[i])
            return "a layer without experts";
    }
    if (m->sigmoid || m->groups > 1 || (m->scale != 0 && m->scale != 1) ||
        m->normal != a->normal)
        return "its way of weighing experts";
    return (m->shared_ffn > 0) != a->shared || m->shared_gate != a->shared
               ? "its MLP beside experts"
               : NULL;
}

/* What the keys of an architecture cannot say. */
static const char *unsaid(const struct merak_hf_config *c, const struct arch *a)
{
    const struct merak_rope_scaling *s = &c->rope.scaling;

    if (s->kind == MERAK_ROPE_PAIR_RAMP || s->kind == MERAK_ROPE_PAIRS ||
        (s->kind == MERAK_ROPE_FREQUENCY_RAMP && !a->ramp))
        return "its scaling of rotary positions";
    if (s->turned != 0 && s->turned != c->head_dim && !a->partial)
        return "rotary positions of a part of each head";
    if (!a->learned && !turns_as_known(c, a))
        return "its rotary positions of some layers";
    if (c->window > 0 && c->window < c->positions &&
        (!slides_as_known(c, a) || (c->slides[0] && !a->window)))
        return "its window of attention";
    if (c->act != a->act &&
        (a->act != MERAK_HF_GELU || c->act != MERAK_HF_GELU_TANH))
        return "its activation";
    if (c->plain_mlp != a->no_gate)
        return a->no_gate ? "an MLP with a gate" : "an MLP without a gate";
    if (a->all_keys && c->kv_heads != c->heads)
        return "a head of keys for several of queries";
    if (c->head_bias && !a->head_bias)
        return "a bias of logits";
    if (c->parallel ? a->order == IN_TURN : a->order == SIDE_BY_SIDE)
        return "the order of attention and MLP";
    if (!a->factors && c->attn_scale > 0 &&
        fabs((double)c->attn_scale * sqrt((double)c->head_dim) - 1) > 1e-6)
        return "its scale of attention scores";
    return unsaid_experts(c, a);
}

enum merak_status merak_gguf_model(const struct merak_hf_config *config,
                                   const char **name_p, struct merak_error *err)
{
    const struct arch *a = &archs[config->family];
    const char *what = unsaid(config, a);

    *name_p = a->name;
    if (*name_p == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--format gguf: the family %s cannot be written; "
                          "export it with --format hf, and convert that",
                          merak_hf_family_name(config->family));
    if (what != NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--format gguf: %s of this model cannot be written "
                          "for %s; export it with --format hf",
                          what, *name_p);
    return MERAK_OK;
}

/* --- keys -------------------------------------------------------------------
 */

static const char *key(char room[MERAK_GGUF_NAME],
                       const struct merak_hf_config *c, const char *end)
{
    snprintf(room, MERAK_GGUF_NAME, "%s.%s", archs[c->family].name, end);
    return room;
}

static void rope_keys(struct merak_gguf *g, const struct merak_hf_config *c)
{
    const struct merak_rope_scaling *s = &c->rope.scaling;
    char room[MERAK_GGUF_NAME];

    merak_gguf_real(g, key(room, c, "rope.freq_base"), (double)c->rope.theta);
    merak_gguf_number(g, key(room, c, "rope.dimension_count"),
                      s->turned != 0 ? s->turned : c->head_dim);
    if (s->kind != MERAK_ROPE_LINEAR)
        return;
    merak_gguf_text(g, key(room, c, "rope.scaling.type"), "linear");
    merak_gguf_real(g, key(room, c, "rope.scaling.factor"), s->factor);
}

/* A factor that is 0 is 1. */
static void factor_key(struct merak_gguf *g, const struct merak_hf_config *c,
                       const char *end, float x)
{
    char room[MERAK_GGUF_NAME];

    merak_gguf_real(g, key(room, c, end), x != 0 ? (double)x : 1);
}

static void factor_keys(struct merak_gguf *g, const struct merak_hf_config *c)
{
    float scale =
        c->attn_scale != 0 ? c->attn_scale : 1 / sqrtf((float)c->head_dim);

    factor_key(g, c, "attention.scale", scale);
    factor_key(g, c, "embedding_scale", c->embd_factor);
    factor_key(g, c, "residual_scale", c->resid_factor);
    factor_key(g, c, "logit_scale", c->logit_divisor);
}

static void attention_keys(struct merak_gguf *g,
                           const struct merak_hf_config *c)
{
    char room[MERAK_GGUF_NAME];

    merak_gguf_number(g, key(room, c, "attention.head_count"), c->heads);
    merak_gguf_number(g, key(room, c, "attention.head_count_kv"), c->kv_heads);
    merak_gguf_number(g, key(room, c, "attention.key_length"), c->head_dim);
    merak_gguf_number(g, key(room, c, "attention.value_length"), c->head_dim);
    merak_gguf_real(g,
                    key(room, c,
                        c->norm.has_mean || archs[c->family].mean
                            ? "attention.layer_norm_epsilon"
                            : "attention.layer_norm_rms_epsilon"),
                    (double)c->norm.eps);
    if (archs[c->family].window && c->window > 0)
        merak_gguf_number(g, key(room, c, "attention.sliding_window"),
                          c->window);
    if (c->attn_cap > 0)
        merak_gguf_real(g, key(room, c, "attn_logit_softcapping"),
                        (double)c->attn_cap);
    if (c->logit_cap > 0)
        merak_gguf_real(g, key(room, c, "final_logit_softcapping"),
                        (double)c->logit_cap);
}

static void expert_keys(struct merak_gguf *g, const struct merak_hf_config *c)
{
    char room[MERAK_GGUF_NAME];

    merak_gguf_number(g, key(room, c, "expert_count"), c->mixture.experts);
    merak_gguf_number(g, key(room, c, "expert_used_count"), c->mixture.chosen);
    merak_gguf_number(g, key(room, c, "expert_feed_forward_length"),
                      c->mixture.ffn);
    if (c->mixture.shared_ffn > 0)
        merak_gguf_number(g, key(room, c, "expert_shared_feed_forward_length"),
                          c->mixture.shared_ffn);
}

void merak_gguf_model_keys(struct merak_gguf *g,
                           const struct merak_hf_config *config)
{
    const struct merak_hf_config *c = config;
    char room[MERAK_GGUF_NAME];

    merak_gguf_text(g, "general.architecture", archs[c->family].name);
    merak_gguf_text(g, "general.type", "model");
    merak_gguf_number(g, key(room, c, "block_count"), c->layers);
    merak_gguf_number(g, key(room, c, "context_length"), c->positions);
    merak_gguf_number(g, key(room, c, "embedding_length"), c->hidden);
    merak_gguf_number(g, key(room, c, "feed_forward_length"), c->ffn);
    merak_gguf_number(g, key(room, c, "vocab_size"), c->vocab);
    if (c->mixture.experts > 0)
        expert_keys(g, c);
    attention_keys(g, c);
    if (archs[c->family].order == AS_SAID)
        merak_gguf_yes(g, key(room, c, "use_parallel_residual"), c->parallel);
    if (archs[c->family].factors)
        factor_keys(g, c);
    if (!archs[c->family].learned)
        rope_keys(g, c);
}

/* --- tensors ----------------------------------------------------------------
 */

/* Does the layer's name match, whose number is digits[n]? */
static bool matches(const char *pattern, const char *layer, size_t length,
                    const char **digits, int *n)
{
    const char *star = strchr(pattern, '*');
    size_t before = star != NULL ? (size_t)(star - pattern) : strlen(pattern);

    if (length < before || strncmp(pattern, layer, before) != 0)
        return false;
    *digits = layer + before;
    *n = (int)strspn(*digits, "0123456789");
    if (star == NULL)
        return length == before;
    return *n > 0 && strlen(star + 1) == length - before - (size_t)*n &&
           strncmp(star + 1, *digits + *n, strlen(star + 1)) == 0;
}

enum merak_status merak_gguf_name(const struct merak_hf_config *config,
                                  const char *tensor,
                                  char name[MERAK_GGUF_NAME],
                                  struct merak_error *err)
{
    const char *number = strstr(tensor, ".*."), *digits = NULL, *star, *end;
    bool after = config->norm.is_post || config->norm.is_both;
    char all[MERAK_HF_NAME_BYTES];
    int n = 0;

    /* all experts of a layer are one tensor */
    snprintf(all, sizeof(all), "%.*s%s",
             number != NULL ? (int)(number - tensor) : (int)strlen(tensor),
             tensor, number != NULL ? number + 2 : "");
    end = strrchr(all, '.');

    for (int i = 0; end != NULL && i < N_NAMES; i++) {
        if (!matches(names[i].hf, all, (size_t)(end - all), &digits, &n))
            continue;
        if (after && i == N_NAMES - 2)
            continue;
        star = strchr(names[i].gguf, '*');
        if (star == NULL)
            snprintf(name, MERAK_GGUF_NAME, "%s%s", names[i].gguf, end);
        else
            snprintf(name, MERAK_GGUF_NAME, "%.*s%.*s%s%s",
                     (int)(star - names[i].gguf), names[i].gguf, n, digits,
                     star + 1, end);
        return MERAK_OK;
    }
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "--format gguf: tensor %.100s has no name there", tensor);
}

bool merak_gguf_is_precise(const char *name)
{
    return strcmp(name, "position_embd.weight") == 0 ||
           strstr(name, ".ffn_gate_inp.") != NULL;
}

size_t merak_gguf_heads(const struct merak_hf_config *config,
                        const char *tensor)
{
    if (!archs[config->family].pairs)
        return 0;
    return strstr(tensor, ".q_proj.") != NULL   ? config->heads
           : strstr(tensor, ".k_proj.") != NULL ? config->kv_heads
                                                : 0;
}

size_t merak_gguf_mixed(const struct merak_hf_config *config,
                        const char *tensor)
{
    return archs[config->family].mixed &&
                   strstr(tensor, ".query_key_value.") != NULL
               ? config->heads
               : 0;
}

float merak_gguf_offset(const struct merak_hf_config *config,
                        const char *tensor)
{
    return config->norm.plus_1 && strstr(tensor, "norm.weight") != NULL ? 1.0f
                                                                        : 0.0f;
}

size_t merak_gguf_rope_factors(const struct merak_hf_config *config)
{
    return config->rope.scaling.kind == MERAK_ROPE_FREQUENCY_RAMP
               ? config->head_dim / 2
               : 0;
}

float merak_gguf_rope_factor(const struct merak_hf_config *config, size_t i)
{
    const struct merak_rope_scaling *s = &config->rope.scaling;
    double turns = pow((double)config->rope.theta,
                       -2.0 * (double)i / (double)config->head_dim) /
                   TWO_PI;
    double kept = (turns - s->low) / (s->high - s->low);

    kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return (float)(1 / ((1 - kept) / s->factor + kept));
}
