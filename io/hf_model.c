/* SPDX-License-Identifier: Apache-2.0 */
/* hf_model.c - describing models of Hugging Face families
 *
 * Parameters carry the names of the Hugging Face tensors they correspond to,
 * or would if those were not fused (hf_names.c); shapes are factored (a packed
 * gpt2 projection is [3, H, D, C]), and matrices are [out, in].
 */
#include "config.h"

#include "io/hf_config.h"

#include <math.h>
#include <string.h>

/* --- gpt2
 * ---------------------------------------------------------------------- */

static struct merak_value *gpt2_norm(struct merak_model *m,
                                     const struct merak_hf_config *c,
                                     struct merak_value *x, const char *name)
{
    struct merak_value *gamma =
        MERAK_PARAM(m, merak_name(m, "%s.weight", name), MERAK_ONES, c->hidden);
    struct merak_value *beta =
        MERAK_PARAM(m, merak_name(m, "%s.bias", name), MERAK_ZEROS, c->hidden);

    return merak_layernorm(m, x, gamma, beta, c->norm_eps);
}

/* Radford et al. 2019: the initial values of projections onto the residual are
 * divided by the square root of their number. */
static struct merak_init residual_init(const struct merak_hf_config *c)
{
    return MERAK_NORMAL(c->init_std / sqrtf(2 * (float)c->layers));
}

static struct merak_value *gpt2_attention(struct merak_model *m,
                                          const struct merak_hf_config *c,
                                          struct merak_value *x, const char *at)
{
    const struct merak_attention_options opt = {.dropout = c->attn_dropout};
    size_t H = c->heads, D = c->head_dim, C = c->hidden;
    struct merak_value *w, *b;

    w = MERAK_PARAM(m, merak_name(m, "%s.attn.c_attn.weight", at),
                    MERAK_NORMAL(c->init_std), 3, H, D, C);
    b = MERAK_PARAM(m, merak_name(m, "%s.attn.c_attn.bias", at), MERAK_ZEROS, 3,
                    H, D);
    x = merak_attention_packed_with(m, merak_linear(m, x, w, b, 1), &opt);
    w = MERAK_PARAM(m, merak_name(m, "%s.attn.c_proj.weight", at),
                    residual_init(c), C, H, D);
    b = MERAK_PARAM(m, merak_name(m, "%s.attn.c_proj.bias", at), MERAK_ZEROS,
                    C);
    return merak_dropout(m, merak_linear(m, x, w, b, 2), c->resid_dropout);
}

static struct merak_value *gpt2_mlp(struct merak_model *m,
                                    const struct merak_hf_config *c,
                                    struct merak_value *x, const char *at)
{
    size_t C = c->hidden, F = c->ffn;
    struct merak_value *w, *b;

    w = MERAK_PARAM(m, merak_name(m, "%s.mlp.c_fc.weight", at),
                    MERAK_NORMAL(c->init_std), F, C);
    b = MERAK_PARAM(m, merak_name(m, "%s.mlp.c_fc.bias", at), MERAK_ZEROS, F);
    x = merak_gelu(m, merak_linear(m, x, w, b, 1),
                   c->act == MERAK_HF_GELU_TANH);
    w = MERAK_PARAM(m, merak_name(m, "%s.mlp.c_proj.weight", at),
                    residual_init(c), C, F);
    b = MERAK_PARAM(m, merak_name(m, "%s.mlp.c_proj.bias", at), MERAK_ZEROS, C);
    return merak_dropout(m, merak_linear(m, x, w, b, 1), c->resid_dropout);
}

static struct merak_value *head(struct merak_model *m,
                                const struct merak_hf_config *c,
                                struct merak_value *x,
                                struct merak_value *table)
{
    if (!c->tied)
        table = MERAK_PARAM(m, "lm_head.weight", MERAK_NORMAL(c->init_std),
                            c->vocab, c->hidden);
    x = merak_softcap(m, merak_linear(m, x, table, NULL, 1), c->logit_cap);
    return merak_cross_entropy(m, x, merak_targets(m));
}

/* False if the run's sequences are longer than the model's positions. */
static bool check_seq(struct merak_model *m, const struct merak_hf_config *c)
{
    size_t seq = merak_model_seq(m);

    if (seq > c->positions)
        merak_model_fail(m, MERAK_ERR_CONFIG,
                         "--seq %zu is longer than the model's sequences: its "
                         "%s is %zu; give --seq %zu or less",
                         seq,
                         c->family == MERAK_GPT2 ? "n_positions"
                                                 : "max_position_embeddings",
                         c->positions, c->positions);
    return seq <= c->positions;
}

static void describe_gpt2(struct merak_model *m,
                          const struct merak_hf_config *c)
{
    struct merak_init init = MERAK_NORMAL(c->init_std);
    struct merak_value *wte, *wpe, *x, *h;

    if (!check_seq(m, c))
        return;
    wte = MERAK_PARAM(m, "wte.weight", init, c->vocab, c->hidden);
    wpe = MERAK_PARAM(m, "wpe.weight", init, c->positions, c->hidden);
    x = merak_embedding(m, merak_tokens(m), wte);
    x = merak_dropout(m, merak_add_position(m, x, wpe), c->embd_dropout);
    for (size_t i = 0; i < c->layers; i++) {
        const char *at = merak_name(m, "h.%zu", i);

        h = gpt2_norm(m, c, x, merak_name(m, "%s.ln_1", at));
        x = merak_add(m, x, gpt2_attention(m, c, h, at));
        h = gpt2_norm(m, c, x, merak_name(m, "%s.ln_2", at));
        x = merak_add(m, x, gpt2_mlp(m, c, h, at));
    }
    head(m, c, gpt2_norm(m, c, x, "ln_f"), wte);
}

/* --- llama, and families with its layers
 * ----------------------------------------------- */

/* A norm over the last dim, which is `width`. */
static struct merak_value *llama_norm(struct merak_model *m,
                                      const struct merak_hf_config *c,
                                      struct merak_value *x, size_t width,
                                      const char *name)
{
    struct merak_value *gamma =
        MERAK_PARAM(m, merak_name(m, "%s.weight", name),
                    c->norm_plus_1 ? MERAK_ZEROS : MERAK_ONES, width);

    return merak_rmsnorm_offset(m, x, gamma, c->norm_plus_1 ? 1.0f : 0.0f,
                                c->norm_eps);
}

/* A norm over all heads of a token. */
static struct merak_value *whole_norm(struct merak_model *m,
                                      const struct merak_hf_config *c,
                                      struct merak_value *x, int ndim,
                                      const size_t *dim, const char *name)
{
    struct merak_value *gamma =
        merak_param(m, merak_name(m, "%s.weight", name), ndim, dim, MERAK_ONES);

    return merak_rmsnorm(m, x, gamma, c->norm_eps);
}

/* x W' (+ b) with a weight of dims [out.., in..]. */
static struct merak_value *llama_linear(struct merak_model *m,
                                        const struct merak_hf_config *c,
                                        struct merak_value *x, const char *name,
                                        bool has_bias, int n_contract, int ndim,
                                        const size_t *dim)
{
    struct merak_value *w, *b = NULL;

    w = merak_param(m, merak_name(m, "%s.weight", name), ndim, dim,
                    MERAK_NORMAL(c->init_std));
    if (has_bias)
        b = merak_param(m, merak_name(m, "%s.bias", name), ndim - n_contract,
                        dim, MERAK_ZEROS);
    return merak_linear(m, x, w, b, n_contract);
}

/* If pairs have their own factors, the sequence length selects the set, for
 * all positions. */
static struct merak_value *llama_rope(struct merak_model *m,
                                      const struct merak_hf_config *c,
                                      struct merak_value *x)
{
    struct merak_rope_scaling scaling = c->rope_scaling;

    if (scaling.kind == MERAK_ROPE_PAIRS) {
        scaling.by = merak_model_seq(m) > c->rope_short_positions
                         ? c->rope_long
                         : c->rope_short;
        scaling.n_by = (scaling.turned > 0 ? scaling.turned : c->head_dim) / 2;
    }
    return merak_rope_scaled(m, x, c->rope_theta, &scaling);
}

/* The attention of layer i. */
static struct merak_value *llama_attention(struct merak_model *m,
                                           const struct merak_hf_config *c,
                                           struct merak_value *x, size_t i,
                                           const char *at)
{
    const struct merak_attention_options opt = {
        .scale = c->attn_scale,
        .soft_cap = c->attn_cap,
        .window = c->slides[i] ? c->window : 0,
        .dropout = c->attn_dropout};
    size_t G = c->kv_heads, R = c->heads / G, D = c->head_dim, C = c->hidden;
    const size_t q_dim[] = {G, R, D, C}, kv_dim[] = {G, D, C};
    const size_t o_dim[] = {C, G, R, D};
    bool bias = c->attn_bias || c->qkv_bias;
    struct merak_value *q, *k, *v;

    q = llama_linear(m, c, x, merak_name(m, "%s.self_attn.q_proj", at), bias, 1,
                     4, q_dim);
    k = llama_linear(m, c, x, merak_name(m, "%s.self_attn.k_proj", at), bias, 1,
                     3, kv_dim);
    v = llama_linear(m, c, x, merak_name(m, "%s.self_attn.v_proj", at), bias, 1,
                     3, kv_dim);
    if (c->qk_whole) {
        q = whole_norm(m, c, q, 3, q_dim,
                       merak_name(m, "%s.self_attn.q_norm", at));
        k = whole_norm(m, c, k, 2, kv_dim,
                       merak_name(m, "%s.self_attn.k_norm", at));
    } else if (c->qk_norm) {
        q = llama_norm(m, c, q, D, merak_name(m, "%s.self_attn.q_norm", at));
        k = llama_norm(m, c, k, D, merak_name(m, "%s.self_attn.k_norm", at));
    }
    q = llama_rope(m, c, q);
    k = llama_rope(m, c, k);
    x = merak_attention_with(m, q, k, v, &opt);
    x = llama_linear(m, c, x, merak_name(m, "%s.self_attn.o_proj", at),
                     c->attn_bias, 3, 4, o_dim);
    return merak_dropout(m, x, c->resid_dropout);
}

static struct merak_value *llama_mlp(struct merak_model *m,
                                     const struct merak_hf_config *c,
                                     struct merak_value *x, const char *at)
{
    const size_t up_dim[] = {c->ffn, c->hidden};
    const size_t down_dim[] = {c->hidden, c->ffn};
    struct merak_value *gate, *up;

    gate = llama_linear(m, c, x, merak_name(m, "%s.mlp.gate_proj", at),
                        c->mlp_bias, 1, 2, up_dim);
    up = llama_linear(m, c, x, merak_name(m, "%s.mlp.up_proj", at), c->mlp_bias,
                      1, 2, up_dim);
    x = c->act == MERAK_HF_GELU_TANH ? merak_geglu(m, gate, up)
                                     : merak_swiglu(m, gate, up);
    x = llama_linear(m, c, x, merak_name(m, "%s.mlp.down_proj", at),
                     c->mlp_bias, 1, 2, down_dim);
    return merak_dropout(m, x, c->resid_dropout);
}

static struct merak_value *pre_norm_layer(struct merak_model *m,
                                          const struct merak_hf_config *c,
                                          struct merak_value *x, size_t i,
                                          const char *at)
{
    struct merak_value *h;
    size_t C = c->hidden;

    h = llama_norm(m, c, x, C, merak_name(m, "%s.input_layernorm", at));
    x = merak_add(m, x, llama_attention(m, c, h, i, at));
    h = llama_norm(m, c, x, C,
                   merak_name(m, "%s.post_attention_layernorm", at));
    return merak_add(m, x, llama_mlp(m, c, h, at));
}

/* Team OLMo 2024 (arXiv:2501.00656), sec. 2: norms after each part.  Gemma 2
 * (arXiv:2408.00118), sec. 2: also before it. */
static struct merak_value *post_norm_layer(struct merak_model *m,
                                           const struct merak_hf_config *c,
                                           struct merak_value *x, size_t i,
                                           const char *at)
{
    struct merak_value *h = x;
    size_t C = c->hidden;

    if (c->four_norms)
        h = llama_norm(m, c, x, C, merak_name(m, "%s.input_layernorm", at));
    h = llama_norm(m, c, llama_attention(m, c, h, i, at), C,
                   merak_name(m, "%s.post_attention_layernorm", at));
    h = x = merak_add(m, x, h);
    if (c->four_norms)
        h = llama_norm(m, c, x, C,
                       merak_name(m, "%s.pre_feedforward_layernorm", at));
    h = llama_norm(m, c, llama_mlp(m, c, h, at), C,
                   merak_name(m, "%s.post_feedforward_layernorm", at));
    return merak_add(m, x, h);
}

static void describe_llama(struct merak_model *m,
                           const struct merak_hf_config *c)
{
    const struct merak_embedding_options opt = {
        .padded = c->has_pad,
        .pad = c->pad,
        .scale = c->embd_scaled ? sqrtf((float)c->hidden) : 0};
    struct merak_value *table, *x;

    if (!check_seq(m, c))
        return;
    table = MERAK_PARAM(m, "model.embed_tokens.weight",
                        MERAK_NORMAL(c->init_std), c->vocab, c->hidden);
    x = merak_embedding_with(m, merak_tokens(m), table, &opt);
    for (size_t i = 0; i < c->layers; i++) {
        const char *at = merak_name(m, "model.layers.%zu", i);

        x = c->post_norm || c->four_norms ? post_norm_layer(m, c, x, i, at)
                                          : pre_norm_layer(m, c, x, i, at);
    }
    head(m, c, llama_norm(m, c, x, c->hidden, "model.norm"), table);
}

void merak_hf_describe(struct merak_model *m, void *config)
{
    const struct merak_hf_config *c = config;

    if (c->family == MERAK_GPT2)
        describe_gpt2(m, c);
    else
        describe_llama(m, c);
}
