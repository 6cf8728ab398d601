/* SPDX-License-Identifier: Apache-2.0 */
/* hf_model.c - describing models of Hugging Face families
 *
 * Parameters carry the names of the Hugging Face tensors they correspond to,
 * or would if those were not fused (hf_names.c); shapes are factored (a packed
 * gpt2 projection is [3, H, D, C]), and matrices are [out, in].
 */
#include "config.h"

#include "io/hf_describe.h"

#include <math.h>
#include <string.h>

/* --- all families
 * ------------------------------------------------------------------------- */

struct merak_value *merak_hf_head(struct merak_model *m,
                                  const struct merak_hf_config *c,
                                  struct merak_value *x,
                                  struct merak_value *table, const char *name)
{
    struct merak_value *bias = NULL;

    if (!c->tied)
        table = MERAK_PARAM(m, merak_name(m, "%s.weight", name),
                            MERAK_NORMAL(c->init_std), c->vocab, c->hidden);
    if (c->head_bias)
        bias = MERAK_PARAM(m, merak_name(m, "%s.bias", name), MERAK_ZEROS,
                           c->vocab);
    x = merak_softcap(m, merak_linear(m, x, table, bias, 1), c->logit_cap);
    return merak_cross_entropy(m, x, merak_targets(m));
}

bool merak_hf_check_seq(struct merak_model *m, const struct merak_hf_config *c)
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

/* --- llama, and families with the parts of its layers
 * ----------------------------------------------- */

/* The names of parameters, without ".weight" and ".bias"; but for the first
 * line they are of a layer.  Families leave out what they do not have. */
struct words {
    const char *table, *layer, *norm, *head;
    const char *attn_norm, *mlp_norm; /* of what attention and MLP read .. */
    const char *attn_post, *mlp_post; /* .. and of what they return */
    const char *q, *k, *v, *o, *q_norm, *k_norm;
    const char *gate, *up, *down;
    const char *router, *expert_gate, *expert_up, *expert_down;
};

#define LLAMA_ENDS                                           \
    .table = "model.embed_tokens", .layer = "model.layers.", \
    .head = "lm_head", .attn_norm = "input_layernorm"
#define LLAMA_QKV \
    .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj"
#define LLAMA_ATTENTION                                                   \
    LLAMA_ENDS, LLAMA_QKV, .norm = "model.norm", .o = "self_attn.o_proj", \
                           .q_norm = "self_attn.q_norm",                  \
                           .k_norm = "self_attn.k_norm"
#define LLAMA_MLP \
    .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj"

static const struct words pre_norm_words = {
    LLAMA_ATTENTION,
    LLAMA_MLP,
    .mlp_norm = "post_attention_layernorm",
    .router = "mlp.gate",
    .expert_gate = "mlp.experts.gate_proj",
    .expert_up = "mlp.experts.up_proj",
    .expert_down = "mlp.experts.down_proj"};
static const struct words mixtral_words = {
    LLAMA_ATTENTION,
    LLAMA_MLP,
    .mlp_norm = "post_attention_layernorm",
    .router = "block_sparse_moe.gate",
    .expert_gate = "block_sparse_moe.experts.w1",
    .expert_up = "block_sparse_moe.experts.w3",
    .expert_down = "block_sparse_moe.experts.w2"};
static const struct words gpt_oss_words = {
    LLAMA_ATTENTION,
    .mlp_norm = "post_attention_layernorm",
    .router = "mlp.router",
    .expert_gate = "mlp.experts.gate_proj",
    .expert_up = "mlp.experts.up_proj",
    .expert_down = "mlp.experts.down_proj"};
static const struct words post_norm_words = {
    LLAMA_ATTENTION, LLAMA_MLP, .mlp_norm = "pre_feedforward_layernorm",
    .attn_post = "post_attention_layernorm",
    .mlp_post = "post_feedforward_layernorm"};
static const struct words starcoder2_words = {
    LLAMA_ATTENTION, .mlp_norm = "post_attention_layernorm", .up = "mlp.c_fc",
    .down = "mlp.c_proj"};
static const struct words phi_words = {LLAMA_ENDS,
                                       LLAMA_QKV,
                                       .norm = "model.final_layernorm",
                                       .o = "self_attn.dense",
                                       .q_norm = "self_attn.q_layernorm",
                                       .k_norm = "self_attn.k_layernorm",
                                       .up = "mlp.fc1",
                                       .down = "mlp.fc2"};
static const struct words gpt_neox_words = {.table = "embed_in",
                                            .layer = "layers.",
                                            .norm = "final_layer_norm",
                                            .head = "embed_out",
                                            .attn_norm = "input_layernorm",
                                            .mlp_norm =
                                                "post_attention_layernorm",
                                            .q = "attention.query",
                                            .k = "attention.key",
                                            .v = "attention.value",
                                            .o = "attention.dense",
                                            .up = "mlp.dense_h_to_4h",
                                            .down = "mlp.dense_4h_to_h"};

/* Of families with names of their own. */
static const struct words *const own_words[MERAK_FAMILIES] = {
    [MERAK_STARCODER2] = &starcoder2_words,
    [MERAK_PHI] = &phi_words,
    [MERAK_GPT_NEOX] = &gpt_neox_words,
    [MERAK_MIXTRAL] = &mixtral_words,
    [MERAK_GPT_OSS] = &gpt_oss_words,
};

static const struct words *words_of(const struct merak_hf_config *c)
{
    if (own_words[c->family] != NULL)
        return own_words[c->family];
    return c->norm.is_post || c->norm.is_both ? &post_norm_words
                                              : &pre_norm_words;
}

/* A layer that is being described. */
struct layer {
    struct merak_model *m;
    const struct merak_hf_config *c;
    const struct words *words;
    size_t i;
};

/* The name of a parameter of the layer. */
static const char *name_in(const struct layer *l, const char *word)
{
    return merak_name(l->m, "%s%zu.%s", l->words->layer, l->i, word);
}

/* A norm over the last dim, which is `width`. */
static struct merak_value *layernorm(struct merak_model *m,
                                     const struct merak_hf_config *c,
                                     struct merak_value *x, size_t width,
                                     const char *name)
{
    struct merak_value *gamma =
        MERAK_PARAM(m, merak_name(m, "%s.weight", name), MERAK_ONES, width);
    struct merak_value *beta =
        MERAK_PARAM(m, merak_name(m, "%s.bias", name), MERAK_ZEROS, width);

    return merak_layernorm(m, x, gamma, beta, c->norm.eps);
}

struct merak_value *merak_hf_layernorm(struct merak_model *m,
                                       const struct merak_hf_config *c,
                                       struct merak_value *x, const char *name)
{
    return layernorm(m, c, x, c->hidden, name);
}

static struct merak_value *norm(struct merak_model *m,
                                const struct merak_hf_config *c,
                                struct merak_value *x, size_t width,
                                const char *name)
{
    if (c->norm.has_mean)
        return layernorm(m, c, x, width, name);
    return merak_rmsnorm_offset(
        m, x,
        MERAK_PARAM(m, merak_name(m, "%s.weight", name),
                    c->norm.plus_1 ? MERAK_ZEROS : MERAK_ONES, width),
        c->norm.plus_1 ? 1.0f : 0.0f, c->norm.eps);
}

static struct merak_value *norm_in(const struct layer *l, struct merak_value *x,
                                   size_t width, const char *word)
{
    return norm(l->m, l->c, x, width, name_in(l, word));
}

/* A norm over all heads of a token. */
static struct merak_value *whole_norm(const struct layer *l,
                                      struct merak_value *x, int ndim,
                                      const size_t *dim, const char *word)
{
    struct merak_value *gamma =
        merak_param(l->m, merak_name(l->m, "%s.weight", name_in(l, word)), ndim,
                    dim, MERAK_ONES);

    return merak_rmsnorm(l->m, x, gamma, l->c->norm.eps);
}

/* x W' (+ b) with a weight of dims [out.., in..]. */
static struct merak_value *linear(const struct layer *l, struct merak_value *x,
                                  const char *word, bool has_bias,
                                  int n_contract, int ndim, const size_t *dim)
{
    const char *name = name_in(l, word);
    struct merak_value *w, *b = NULL;

    w = merak_param(l->m, merak_name(l->m, "%s.weight", name), ndim, dim,
                    MERAK_NORMAL(l->c->init_std));
    if (has_bias)
        b = merak_param(l->m, merak_name(l->m, "%s.bias", name),
                        ndim - n_contract, dim, MERAK_ZEROS);
    return merak_linear(l->m, x, w, b, n_contract);
}

/* If pairs have their own factors, the sequence length selects the set, for
 * all positions. */
static struct merak_value *rope(const struct layer *l, struct merak_value *x)
{
    const struct merak_hf_config *c = l->c;
    struct merak_rope_scaling scaling = c->rope.scaling;

    if (c->rope.is_off[l->i])
        return x;
    if (c->slides[l->i] && c->rope.slide_theta > 0)
        return merak_rope_scaled(l->m, x, c->rope.slide_theta,
                                 &c->rope.slide_scaling);
    if (scaling.kind == MERAK_ROPE_PAIRS) {
        scaling.by = merak_model_seq(l->m) > c->rope.short_positions
                         ? c->rope.by_long
                         : c->rope.by_short;
        scaling.n_by = (scaling.turned > 0 ? scaling.turned : c->head_dim) / 2;
    }
    return merak_rope_scaled(l->m, x, c->rope.theta, &scaling);
}

/* What attention reads: queries [B,T,G,R,D], keys and values. */
struct qkv {
    struct merak_value *q, *k, *v;
};

static struct qkv project(const struct layer *l, struct merak_value *x)
{
    const struct merak_hf_config *c = l->c;
    size_t G = c->kv_heads, R = c->heads / G, D = c->head_dim, C = c->hidden;
    const size_t q_dim[] = {G, R, D, C}, kv_dim[] = {G, D, C};
    bool bias = c->attn_bias || c->qkv_bias;
    struct qkv to;

    to.q = linear(l, x, l->words->q, bias, 1, 4, q_dim);
    to.k = linear(l, x, l->words->k, bias, 1, 3, kv_dim);
    to.v = linear(l, x, l->words->v, bias, 1, 3, kv_dim);
    if (c->norm.of_heads) {
        to.q = whole_norm(l, to.q, 3, q_dim, l->words->q_norm);
        to.k = whole_norm(l, to.k, 2, kv_dim, l->words->k_norm);
    } else if (c->norm.of_qk) {
        to.q = norm_in(l, to.q, D, l->words->q_norm);
        to.k = norm_in(l, to.k, D, l->words->k_norm);
    }
    to.q = rope(l, to.q);
    to.k = rope(l, to.k);
    return to;
}

/* The vector of `rank` channels that heads are made of; its norm has an epsilon
 * of its own. */
static struct merak_value *compress(const struct layer *l,
                                    struct merak_value *x, size_t rank,
                                    const char *proj, const char *norm_word)
{
    const size_t dim[] = {rank, l->c->hidden};
    struct merak_value *gamma;

    x = linear(l, x, proj, l->c->attn_bias, 1, 2, dim);
    gamma =
        MERAK_PARAM(l->m, merak_name(l->m, "%s.weight", name_in(l, norm_word)),
                    MERAK_ONES, rank);
    return merak_rmsnorm(l->m, x, gamma, 1e-6f);
}

/* Liu et al. 2024 (arXiv:2405.04434), sec. 2.1: keys and values are made of one
 * vector, queries of another; all heads share the rotated channels of a key,
 * which come first in heads here (hf_names.c). */
static struct qkv project_latent(const struct layer *l, struct merak_value *x)
{
    const struct merak_hf_config *c = l->c;
    const struct merak_hf_latent *t = &c->latent;
    size_t H = c->heads, from = t->q_rank > 0 ? t->q_rank : c->hidden;
    const size_t q_dim[] = {H, 1, c->head_dim, from};
    const size_t shared_dim[] = {t->turned, c->hidden};
    const size_t k_dim[] = {H, t->own, t->kv_rank};
    const size_t v_dim[] = {H, t->value, t->kv_rank};
    struct merak_value *q = x, *kv, *shared;
    struct qkv to;

    if (t->q_rank > 0)
        q = compress(l, x, t->q_rank, "self_attn.q_a_proj",
                     "self_attn.q_a_layernorm");
    q = linear(l, q, t->q_rank > 0 ? "self_attn.q_b_proj" : "self_attn.q_proj",
               false, 1, 4, q_dim);
    kv = compress(l, x, t->kv_rank, "self_attn.kv_a_proj",
                  "self_attn.kv_a_layernorm");
    shared = linear(l, x, "self_attn.k_a_proj", c->attn_bias, 1, 2, shared_dim);
    to.q = rope(l, q);
    to.k = merak_concat_shared(
        l->m, rope(l, shared),
        linear(l, kv, "self_attn.k_b_proj", false, 1, 3, k_dim));
    to.v = linear(l, kv, "self_attn.v_b_proj", false, 1, 3, v_dim);
    return to;
}

static struct merak_value *attention(const struct layer *l,
                                     struct merak_value *x)
{
    const struct merak_hf_config *c = l->c;
    struct merak_attention_options opt = {
        .scale = c->attn_scale,
        .soft_cap = c->attn_cap,
        .window = c->slides[l->i] ? c->window : 0,
        .dropout = c->attn_dropout};
    bool latent = c->latent.kv_rank > 0;
    const size_t o_dim[] = {c->hidden, c->kv_heads, c->heads / c->kv_heads,
                            latent ? c->latent.value : c->head_dim};
    struct qkv of = latent ? project_latent(l, x) : project(l, x);

    if (c->sinks)
        opt.sinks =
            MERAK_PARAM(l->m, name_in(l, "self_attn.sinks"),
                        MERAK_NORMAL(c->init_std), c->kv_heads, o_dim[2]);
    x = merak_attention_with(l->m, of.q, of.k, of.v, &opt);
    x = linear(l, x, l->words->o, c->attn_bias, 3, 4, o_dim);
    return merak_dropout(l->m, x, c->mlp_dropout ? 0 : c->resid_dropout);
}

struct merak_value *merak_hf_activate(struct merak_model *m,
                                      const struct merak_hf_config *c,
                                      struct merak_value *x)
{
    return c->act == MERAK_HF_RELU2 ? merak_relu2(m, x)
           : c->act == MERAK_HF_RELU
               ? merak_relu(m, x)
               : merak_gelu(m, x, c->act == MERAK_HF_GELU_TANH);
}

static struct merak_value *mlp(const struct layer *l, struct merak_value *x)
{
    const struct merak_hf_config *c = l->c;
    const size_t up_dim[] = {c->ffn, c->hidden};
    const size_t down_dim[] = {c->hidden, c->ffn};
    struct merak_value *gate = NULL, *up;

    if (!c->plain_mlp)
        gate = linear(l, x, l->words->gate, c->mlp_bias, 1, 2, up_dim);
    up = linear(l, x, l->words->up, c->mlp_bias, 1, 2, up_dim);
    if (c->plain_mlp)
        x = merak_hf_activate(l->m, c, up);
    else
        x = c->act == MERAK_HF_GELU_TANH ? merak_geglu(l->m, gate, up)
                                         : merak_swiglu(l->m, gate, up);
    x = linear(l, x, l->words->down, c->mlp_bias, 1, 2, down_dim);
    return merak_dropout(l->m, x, c->resid_dropout);
}

/* --- experts
 * ------------------------------------------------------------------------- */

/* Rows of experts, by their matrices' names. */
static struct merak_value *experts(const struct layer *l, struct merak_value *x,
                                   struct merak_value *weights,
                                   struct merak_value *ids,
                                   const char *const word[3], size_t E,
                                   size_t F)
{
    const struct merak_hf_mixture *of = &l->c->mixture;
    struct merak_expert_options opt = {.limit = of->limit,
                                       .slope = of->slope,
                                       .shift = of->plus_1 ? 1 : 0};
    struct merak_value *w[3];
    size_t C = l->c->hidden;

    for (int i = 0; i < 3; i++)
        w[i] = MERAK_PARAM(
            l->m, merak_name(l->m, "%s.weight", name_in(l, word[i])),
            MERAK_NORMAL(l->c->init_std), E, i < 2 ? F : C, i < 2 ? C : F);
    if (of->biased) {
        opt.bias =
            MERAK_PARAM(l->m, name_in(l, "mlp.experts.gate_up_proj_bias"),
                        MERAK_ZEROS, E, 2, F);
        opt.down_bias =
            MERAK_PARAM(l->m, name_in(l, "mlp.experts.down_proj_bias"),
                        MERAK_ZEROS, E, C);
    }
    return merak_experts_with(l->m, x, weights, ids, w, &opt);
}

/* One MLP for all tokens, let through by a sigmoid of each: an expert that all
 * of them choose. */
static struct merak_value *gated_mlp(const struct layer *l,
                                     struct merak_value *x)
{
    static const char *const word[] = {"mlp.shared_expert.gate_proj",
                                       "mlp.shared_expert.up_proj",
                                       "mlp.shared_expert.down_proj"};
    const struct merak_route_options opt = {
        .k = 1, .sigmoid = true, .rounded = true};
    const size_t dim[] = {1, l->c->hidden};
    struct merak_value *weights, *ids, *z;

    z = linear(l, x, "mlp.shared_expert_gate", false, 1, 2, dim);
    merak_route(l->m, z, NULL, &opt, &weights, &ids);
    return experts(l, x, weights, ids, word, 1, l->c->mixture.shared_ffn);
}

static struct merak_value *shared_mlp(const struct layer *l,
                                      struct merak_value *x)
{
    const size_t up_dim[] = {l->c->mixture.shared_ffn, l->c->hidden};
    const size_t down_dim[] = {l->c->hidden, l->c->mixture.shared_ffn};
    struct merak_value *gate, *up;

    gate = linear(l, x, "mlp.shared_experts.gate_proj", false, 1, 2, up_dim);
    up = linear(l, x, "mlp.shared_experts.up_proj", false, 1, 2, up_dim);
    x = merak_swiglu(l->m, gate, up);
    return linear(l, x, "mlp.shared_experts.down_proj", false, 1, 2, down_dim);
}

/* What is added to scores for the choice alone, moved by nothing else than the
 * load. */
static struct merak_value *router_bias(const struct layer *l)
{
    const char *name = merak_name(l->m, "%s.e_score_correction_bias",
                                  name_in(l, l->words->router));

    return MERAK_PARAM(l->m, name, MERAK_ZEROS, l->c->mixture.experts);
}

static struct merak_value *mixture(const struct layer *l, struct merak_value *x)
{
    const struct merak_hf_mixture *c = &l->c->mixture;
    const struct merak_route_options opt = {.k = c->chosen,
                                            .sigmoid = c->sigmoid,
                                            .normalise = c->normal,
                                            .rounded = c->rounded,
                                            .groups = c->groups,
                                            .groups_kept = c->groups_kept,
                                            .groups_by_best = c->groups_by_best,
                                            .scale = c->scale};
    const char *const word[] = {l->words->expert_gate, l->words->expert_up,
                                l->words->expert_down};
    const size_t dim[] = {c->experts, l->c->hidden};
    const struct merak_balance_options balance = {.aux = c->aux};
    struct merak_value *weights, *ids, *z, *y, *bias = NULL;

    z = linear(l, c->wide ? merak_widen(l->m, x) : x, l->words->router,
               c->biased, 1, 2, dim);
    if (c->sigmoid)
        bias = router_bias(l);
    merak_route(l->m, z, bias, &opt, &weights, &ids);
    merak_balance(l->m, z, ids, bias, &opt, &balance);
    y = experts(l, x, weights, ids, word, c->experts, c->ffn);
    if (c->shared_ffn > 0)
        y = merak_add(l->m, y,
                      c->shared_gate ? gated_mlp(l, x) : shared_mlp(l, x));
    return y;
}

/* --- layers
 * ------------------------------------------------------------------------- */

/* x plus what a part of the layer makes of it. */
static struct merak_value *
add_part(const struct layer *l, struct merak_value *x, struct merak_value *part)
{
    if (l->c->resid_factor > 0)
        part = merak_scale(l->m, part, l->c->resid_factor);
    return merak_add(l->m, x, part);
}

static struct merak_value *serial_layer(const struct layer *l,
                                        struct merak_value *x)
{
    size_t C = l->c->hidden;
    struct merak_value *h;

    h = norm_in(l, x, C, l->words->attn_norm);
    x = add_part(l, x, attention(l, h));
    h = norm_in(l, x, C, l->words->mlp_norm);
    h = l->c->mixture.experts > 0 && !l->c->mixture.is_dense[l->i]
            ? mixture(l, h)
            : mlp(l, h);
    return add_part(l, x, h);
}

/* Black et al. 2022 (arXiv:2204.06745), sec. 2: both parts read the layer's
 * input, through norms of their own or one. */
static struct merak_value *parallel_layer(const struct layer *l,
                                          struct merak_value *x)
{
    size_t C = l->c->hidden;
    struct merak_value *h = norm_in(l, x, C, l->words->attn_norm), *g = h;
    struct merak_value *sum = add_part(l, x, attention(l, h));

    if (!l->c->norm.is_one)
        g = norm_in(l, x, C, l->words->mlp_norm);
    return add_part(l, sum, mlp(l, g));
}

/* Team OLMo 2024 (arXiv:2501.00656), sec. 2: norms after each part.  Gemma 2
 * (arXiv:2408.00118), sec. 2: also before it. */
static struct merak_value *post_norm_layer(const struct layer *l,
                                           struct merak_value *x)
{
    size_t C = l->c->hidden;
    struct merak_value *h = x;

    if (l->c->norm.is_both)
        h = norm_in(l, x, C, l->words->attn_norm);
    h = norm_in(l, attention(l, h), C, l->words->attn_post);
    h = x = add_part(l, x, h);
    if (l->c->norm.is_both)
        h = norm_in(l, x, C, l->words->mlp_norm);
    h = norm_in(l, mlp(l, h), C, l->words->mlp_post);
    return add_part(l, x, h);
}

/* The embedding of tokens; also returns its table. */
static struct merak_value *embed(struct merak_model *m,
                                 const struct merak_hf_config *c,
                                 const char *name, struct merak_value **table_p)
{
    const struct merak_embedding_options opt = {
        .padded = c->has_pad,
        .pad = c->pad,
        .scale = c->embd_scaled ? sqrtf((float)c->hidden) : 0};
    struct merak_value *table =
        MERAK_PARAM(m, merak_name(m, "%s.weight", name),
                    MERAK_NORMAL(c->init_std), c->vocab, c->hidden);
    struct merak_value *x =
        merak_embedding_with(m, merak_tokens(m), table, &opt);

    *table_p = table;
    if (c->embd_factor > 0)
        x = merak_scale(m, x, c->embd_factor);
    return merak_dropout(m, x, c->embd_dropout);
}

static void describe_llama(struct merak_model *m,
                           const struct merak_hf_config *c)
{
    const struct words *words = words_of(c);
    struct merak_value *table, *x;

    if (!merak_hf_check_seq(m, c))
        return;
    x = embed(m, c, words->table, &table);
    for (size_t i = 0; i < c->layers; i++) {
        const struct layer l = {m, c, words, i};

        x = c->parallel                          ? parallel_layer(&l, x)
            : c->norm.is_post || c->norm.is_both ? post_norm_layer(&l, x)
                                                 : serial_layer(&l, x);
    }
    x = norm(m, c, x, c->hidden, words->norm);
    /* instead of the logits, which are more */
    if (c->logit_divisor > 0)
        x = merak_scale(m, x, 1 / c->logit_divisor);
    merak_hf_head(m, c, x, table, words->head);
}

void merak_hf_describe(struct merak_model *m, void *config)
{
    typedef void (*describe_fn)(struct merak_model *,
                                const struct merak_hf_config *);
    static const describe_fn own[MERAK_FAMILIES] = {
        [MERAK_GPT2] = merak_hf_describe_gpt2,
        [MERAK_BERT] = merak_hf_describe_bert,
        [MERAK_T5] = merak_hf_describe_t5,
    };
    const struct merak_hf_config *c = config;

    (own[c->family] != NULL ? own[c->family] : describe_llama)(m, c);
}
