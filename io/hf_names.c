/* SPDX-License-Identifier: Apache-2.0 */
/* hf_names.c - our parameters and the tensors of Hugging Face folders
 *
 * One row per parameter of a family; "*" is the layer's number.  If a tensor's
 * name is NULL, it is that of the parameter.
 */
#include "config.h"

#include "io/hf_names.h"

#include "base/error.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The length of a parameter's dim. */
enum extent {
    ONE,
    HIDDEN,
    FFN,
    VOCAB,
    POSITIONS,
    QUERIES,
    KEYS,
    PACKED,
    Q_NORM, /* a head, or all of a token */
    K_NORM,
    EXPERTS,
    EXPERT_FFN,
    SHARED_FFN,
    Q_RANK,
    KV_RANK,
    OWN_KEYS, /* of latent attention: of all heads, .. */
    TURNED,   /* .. of a key what all heads share */
    VALUES,
};

/* Several parameters may be concatenated in a tensor: this determines the
 * tensor's rows and how many precede this one. */
enum part {
    WHOLE,
    FUSED_Q,
    FUSED_K,
    FUSED_V,
    FUSED_GATE,
    FUSED_UP,
    EXPERT_GATE,
    EXPERT_UP,
    MIXED_Q, /* of each head the query, the key and the value */
    MIXED_K,
    MIXED_V,
    TURNED_Q, /* of each head the rotated channels first */
    LATENT,   /* of a token's vector for keys and values, and of .. */
    SHARED_K, /* .. the rotated channels that heads share */
    LATENT_K, /* of each head the key's own channels, and the value */
    LATENT_V,
};

struct row {
    const char *param, *tensor;
    enum extent rows, cols;
    bool transposed;
    enum part part;
    bool each;    /* a tensor of each expert, whose number is the second star */
    bool stacked; /* a tensor of all experts */
};

#define ROW(name, r, c)                           \
    {                                             \
        .param = (name), .rows = (r), .cols = (c) \
    }
#define IN_OUT(name, r, c)                                            \
    {                                                                 \
        .param = (name), .rows = (r), .cols = (c), .transposed = true \
    }
#define PART(name, in, r, c, which)                                \
    {                                                              \
        .param = (name), .tensor = (in), .rows = (r), .cols = (c), \
        .part = (which)                                            \
    }

#define EACH(name, in, r, c)                                       \
    {                                                              \
        .param = (name), .tensor = (in), .rows = (r), .cols = (c), \
        .each = true                                               \
    }
#define STACK(name, in, r, c, which)                               \
    {                                                              \
        .param = (name), .tensor = (in), .rows = (r), .cols = (c), \
        .part = (which), .stacked = true                           \
    }

/* GPT-2's matrices are stored by its Conv1D, as [in, out]. */
static const struct row gpt2_rows[] = {
    ROW("wte.weight", VOCAB, HIDDEN),
    ROW("wpe.weight", POSITIONS, HIDDEN),
    ROW("h.*.ln_1.weight", HIDDEN, ONE),
    ROW("h.*.ln_1.bias", HIDDEN, ONE),
    IN_OUT("h.*.attn.c_attn.weight", PACKED, HIDDEN),
    ROW("h.*.attn.c_attn.bias", PACKED, ONE),
    IN_OUT("h.*.attn.c_proj.weight", HIDDEN, QUERIES),
    ROW("h.*.attn.c_proj.bias", HIDDEN, ONE),
    ROW("h.*.ln_2.weight", HIDDEN, ONE),
    ROW("h.*.ln_2.bias", HIDDEN, ONE),
    IN_OUT("h.*.mlp.c_fc.weight", FFN, HIDDEN),
    ROW("h.*.mlp.c_fc.bias", FFN, ONE),
    IN_OUT("h.*.mlp.c_proj.weight", HIDDEN, FFN),
    ROW("h.*.mlp.c_proj.bias", HIDDEN, ONE),
    ROW("ln_f.weight", HIDDEN, ONE),
    ROW("ln_f.bias", HIDDEN, ONE),
    ROW("lm_head.weight", VOCAB, HIDDEN),
    {.param = NULL},
};

#define AT "model.layers.*."

/* Of all other families but GPT-NeoX: a parameter's name says how long it is.
 * Some have biases, norms of queries and keys, norms before and after each
 * part, or an MLP without a gate. */
static const struct row model_rows[] = {
    ROW("model.embed_tokens.weight", VOCAB, HIDDEN),
    ROW(AT "input_layernorm.weight", HIDDEN, ONE),
    ROW(AT "input_layernorm.bias", HIDDEN, ONE),
    ROW(AT "self_attn.q_proj.weight", QUERIES, HIDDEN),
    ROW(AT "self_attn.q_proj.bias", QUERIES, ONE),
    ROW(AT "self_attn.k_proj.weight", KEYS, HIDDEN),
    ROW(AT "self_attn.k_proj.bias", KEYS, ONE),
    ROW(AT "self_attn.v_proj.weight", KEYS, HIDDEN),
    ROW(AT "self_attn.v_proj.bias", KEYS, ONE),
    ROW(AT "self_attn.q_norm.weight", Q_NORM, ONE),
    ROW(AT "self_attn.k_norm.weight", K_NORM, ONE),
    ROW(AT "self_attn.o_proj.weight", HIDDEN, QUERIES),
    ROW(AT "self_attn.o_proj.bias", HIDDEN, ONE),
    ROW(AT "post_attention_layernorm.weight", HIDDEN, ONE),
    ROW(AT "post_attention_layernorm.bias", HIDDEN, ONE),
    ROW(AT "mlp.gate_proj.weight", FFN, HIDDEN),
    ROW(AT "mlp.gate_proj.bias", FFN, ONE),
    ROW(AT "mlp.up_proj.weight", FFN, HIDDEN),
    ROW(AT "mlp.up_proj.bias", FFN, ONE),
    ROW(AT "mlp.down_proj.weight", HIDDEN, FFN),
    ROW(AT "mlp.down_proj.bias", HIDDEN, ONE),
    ROW(AT "mlp.c_fc.weight", FFN, HIDDEN),
    ROW(AT "mlp.c_fc.bias", FFN, ONE),
    ROW(AT "mlp.c_proj.weight", HIDDEN, FFN),
    ROW(AT "mlp.c_proj.bias", HIDDEN, ONE),
    ROW(AT "mlp.gate.weight", EXPERTS, HIDDEN),
    ROW(AT "mlp.gate.e_score_correction_bias", EXPERTS, ONE),
    EACH(AT "mlp.experts.gate_proj.weight", AT "mlp.experts.*.gate_proj.weight",
         EXPERT_FFN, HIDDEN),
    EACH(AT "mlp.experts.up_proj.weight", AT "mlp.experts.*.up_proj.weight",
         EXPERT_FFN, HIDDEN),
    EACH(AT "mlp.experts.down_proj.weight", AT "mlp.experts.*.down_proj.weight",
         HIDDEN, EXPERT_FFN),
    ROW(AT "mlp.shared_expert_gate.weight", ONE, HIDDEN),
    ROW(AT "mlp.shared_expert.gate_proj.weight", SHARED_FFN, HIDDEN),
    ROW(AT "mlp.shared_expert.up_proj.weight", SHARED_FFN, HIDDEN),
    ROW(AT "mlp.shared_expert.down_proj.weight", HIDDEN, SHARED_FFN),
    ROW(AT "mlp.shared_experts.gate_proj.weight", SHARED_FFN, HIDDEN),
    ROW(AT "mlp.shared_experts.up_proj.weight", SHARED_FFN, HIDDEN),
    ROW(AT "mlp.shared_experts.down_proj.weight", HIDDEN, SHARED_FFN),
    ROW(AT "block_sparse_moe.gate.weight", EXPERTS, HIDDEN),
    EACH(AT "block_sparse_moe.experts.w1.weight",
         AT "block_sparse_moe.experts.*.w1.weight", EXPERT_FFN, HIDDEN),
    EACH(AT "block_sparse_moe.experts.w3.weight",
         AT "block_sparse_moe.experts.*.w3.weight", EXPERT_FFN, HIDDEN),
    EACH(AT "block_sparse_moe.experts.w2.weight",
         AT "block_sparse_moe.experts.*.w2.weight", HIDDEN, EXPERT_FFN),
    ROW("model.norm.weight", HIDDEN, ONE),
    ROW("model.norm.bias", HIDDEN, ONE),
    ROW("lm_head.weight", VOCAB, HIDDEN),
    ROW(AT "pre_feedforward_layernorm.weight", HIDDEN, ONE),
    ROW(AT "post_feedforward_layernorm.weight", HIDDEN, ONE),
    /* Phi's own */
    ROW(AT "self_attn.q_layernorm.weight", Q_NORM, ONE),
    ROW(AT "self_attn.q_layernorm.bias", Q_NORM, ONE),
    ROW(AT "self_attn.k_layernorm.weight", K_NORM, ONE),
    ROW(AT "self_attn.k_layernorm.bias", K_NORM, ONE),
    ROW(AT "self_attn.dense.weight", HIDDEN, QUERIES),
    ROW(AT "self_attn.dense.bias", HIDDEN, ONE),
    ROW(AT "mlp.fc1.weight", FFN, HIDDEN),
    ROW(AT "mlp.fc1.bias", FFN, ONE),
    ROW(AT "mlp.fc2.weight", HIDDEN, FFN),
    ROW(AT "mlp.fc2.bias", HIDDEN, ONE),
    ROW("model.final_layernorm.weight", HIDDEN, ONE),
    ROW("model.final_layernorm.bias", HIDDEN, ONE),
    ROW("lm_head.bias", VOCAB, ONE),
    {.param = NULL},
};

/* What is elsewhere, and in what form, in a folder with stacked experts. */
#define STACKED(gate, up, down)                                         \
    STACK(AT gate, AT "mlp.experts.gate_up_proj", EXPERT_FFN, HIDDEN,   \
          EXPERT_GATE),                                                 \
        STACK(AT up, AT "mlp.experts.gate_up_proj", EXPERT_FFN, HIDDEN, \
              EXPERT_UP),                                               \
        STACK(AT down, AT "mlp.experts.down_proj", HIDDEN, EXPERT_FFN, WHOLE)

static const struct row stacked_rows[] = {
    STACKED("mlp.experts.gate_proj.weight", "mlp.experts.up_proj.weight",
            "mlp.experts.down_proj.weight"),
    STACKED("block_sparse_moe.experts.w1.weight",
            "block_sparse_moe.experts.w3.weight",
            "block_sparse_moe.experts.w2.weight"),
    PART(AT "block_sparse_moe.gate.weight", AT "mlp.gate.weight", EXPERTS,
         HIDDEN, WHOLE),
    {.param = NULL},
};

/* Phi-3 has fused projections. */
static const struct row phi3_rows[] = {
    PART(AT "self_attn.q_proj.weight", AT "self_attn.qkv_proj.weight", QUERIES,
         HIDDEN, FUSED_Q),
    PART(AT "self_attn.k_proj.weight", AT "self_attn.qkv_proj.weight", KEYS,
         HIDDEN, FUSED_K),
    PART(AT "self_attn.v_proj.weight", AT "self_attn.qkv_proj.weight", KEYS,
         HIDDEN, FUSED_V),
    PART(AT "mlp.gate_proj.weight", AT "mlp.gate_up_proj.weight", FFN, HIDDEN,
         FUSED_GATE),
    PART(AT "mlp.up_proj.weight", AT "mlp.gate_up_proj.weight", FFN, HIDDEN,
         FUSED_UP),
    {.param = NULL},
};

#define ATTN AT "self_attn."

/* Latent attention has two matrices where a tensor has one. */
static const struct row latent_rows[] = {
    PART(ATTN "q_proj.weight", NULL, QUERIES, HIDDEN, TURNED_Q),
    ROW(ATTN "q_a_proj.weight", Q_RANK, HIDDEN),
    ROW(ATTN "q_a_proj.bias", Q_RANK, ONE),
    ROW(ATTN "q_a_layernorm.weight", Q_RANK, ONE),
    PART(ATTN "q_b_proj.weight", NULL, QUERIES, Q_RANK, TURNED_Q),
    PART(ATTN "kv_a_proj.weight", ATTN "kv_a_proj_with_mqa.weight", KV_RANK,
         HIDDEN, LATENT),
    PART(ATTN "kv_a_proj.bias", ATTN "kv_a_proj_with_mqa.bias", KV_RANK, ONE,
         LATENT),
    PART(ATTN "k_a_proj.weight", ATTN "kv_a_proj_with_mqa.weight", TURNED,
         HIDDEN, SHARED_K),
    PART(ATTN "k_a_proj.bias", ATTN "kv_a_proj_with_mqa.bias", TURNED, ONE,
         SHARED_K),
    ROW(ATTN "kv_a_layernorm.weight", KV_RANK, ONE),
    PART(ATTN "k_b_proj.weight", ATTN "kv_b_proj.weight", OWN_KEYS, KV_RANK,
         LATENT_K),
    PART(ATTN "v_b_proj.weight", ATTN "kv_b_proj.weight", VALUES, KV_RANK,
         LATENT_V),
    ROW(ATTN "o_proj.weight", HIDDEN, VALUES),
    {.param = NULL},
};

#define IN "layers.*."
#define MIXED(name, end, cols, which)                                  \
    PART(IN "attention." name end, IN "attention.query_key_value" end, \
         QUERIES, cols, which)

static const struct row gpt_neox_rows[] = {
    ROW("embed_in.weight", VOCAB, HIDDEN),
    ROW(IN "input_layernorm.weight", HIDDEN, ONE),
    ROW(IN "input_layernorm.bias", HIDDEN, ONE),
    MIXED("query", ".weight", HIDDEN, MIXED_Q),
    MIXED("query", ".bias", ONE, MIXED_Q),
    MIXED("key", ".weight", HIDDEN, MIXED_K),
    MIXED("key", ".bias", ONE, MIXED_K),
    MIXED("value", ".weight", HIDDEN, MIXED_V),
    MIXED("value", ".bias", ONE, MIXED_V),
    ROW(IN "attention.dense.weight", HIDDEN, QUERIES),
    ROW(IN "attention.dense.bias", HIDDEN, ONE),
    ROW(IN "post_attention_layernorm.weight", HIDDEN, ONE),
    ROW(IN "post_attention_layernorm.bias", HIDDEN, ONE),
    ROW(IN "mlp.dense_h_to_4h.weight", FFN, HIDDEN),
    ROW(IN "mlp.dense_h_to_4h.bias", FFN, ONE),
    ROW(IN "mlp.dense_4h_to_h.weight", HIDDEN, FFN),
    ROW(IN "mlp.dense_4h_to_h.bias", HIDDEN, ONE),
    ROW("final_layer_norm.weight", HIDDEN, ONE),
    ROW("final_layer_norm.bias", HIDDEN, ONE),
    ROW("embed_out.weight", VOCAB, HIDDEN),
    {.param = NULL},
};

/* Computed buffers, which older files contain. */
static const char *const gpt2_spare[] = {"h.*.attn.bias",
                                         "h.*.attn.masked_bias", NULL};
static const char *const llama_spare[] = {AT "self_attn.rotary_emb.inv_freq",
                                          NULL};

static const char *const gpt_neox_spare[] = {
    IN "attention.bias", IN "attention.masked_bias",
    IN "attention.rotary_emb.inv_freq", NULL};

struct names {
    const struct row *row, *fused; /* NULL: nothing is fused */
    const char *const *spare;
    const char *prefix; /* that may be in front of all names, or NULL */
    const char *head;   /* the output layer, which has none; NULL: lm_head */
    /* Before the numbers of layers of which a file may have more than the
     * model: those behind its own predict further tokens.  NULL: it has not. */
    const char *behind;
};

static const struct names usual = {model_rows, NULL, llama_spare,
                                   NULL,       NULL, NULL};
/* Those of other families; the rest have NULL for rows. */
static const struct names own[MERAK_FAMILIES] = {
    [MERAK_GPT2] = {gpt2_rows, NULL, gpt2_spare, "transformer.", NULL, NULL},
    [MERAK_PHI3] = {model_rows, phi3_rows, llama_spare, NULL, NULL, NULL},
    [MERAK_GPT_NEOX] = {gpt_neox_rows, NULL, gpt_neox_spare, "gpt_neox.",
                        "embed_out", NULL},
    [MERAK_GLM4_MOE] = {model_rows, NULL, llama_spare, NULL, NULL,
                        "model.layers."},
    [MERAK_DEEPSEEK_V2] = {model_rows, latent_rows, llama_spare, NULL, NULL,
                           NULL},
    [MERAK_DEEPSEEK_V3] = {model_rows, latent_rows, llama_spare, NULL, NULL,
                           "model.layers."},
};

static const struct names *names_of(const struct merak_hf_config *config)
{
    const struct names *names = &own[config->family];

    return names->row != NULL ? names : &usual;
}

/* Does the pattern match the name?  Also returns the digits that match "*". */
static bool matches(const char *pattern, const char *name,
                    const char **digits_p, int *n_p)
{
    const char *star = strchr(pattern, '*');
    size_t before = star == NULL ? strlen(pattern) : (size_t)(star - pattern);

    *n_p = 0;
    if (strncmp(pattern, name, before) != 0)
        return false;
    if (star == NULL)
        return name[before] == '\0';
    *digits_p = name + before;
    while (isdigit((unsigned char)(*digits_p)[*n_p]))
        ++*n_p;
    return *n_p > 0 && strcmp(star + 1, *digits_p + *n_p) == 0;
}

static size_t extent_of(const struct merak_hf_config *c, enum extent e)
{
    switch (e) {
    case HIDDEN:
        return c->hidden;
    case FFN:
        return c->ffn;
    case VOCAB:
        return c->vocab;
    case POSITIONS:
        return c->positions;
    case QUERIES:
        return c->heads * c->head_dim;
    case KEYS:
        return c->kv_heads * c->head_dim;
    case PACKED:
        return 3 * c->heads * c->head_dim;
    case Q_NORM:
        return c->norm.of_heads ? c->heads * c->head_dim : c->head_dim;
    case K_NORM:
        return c->norm.of_heads ? c->kv_heads * c->head_dim : c->head_dim;
    case EXPERTS:
        return c->mixture.experts;
    case EXPERT_FFN:
        return c->mixture.ffn;
    case SHARED_FFN:
        return c->mixture.shared_ffn;
    case Q_RANK:
        return c->latent.q_rank;
    case KV_RANK:
        return c->latent.kv_rank;
    case OWN_KEYS:
        return c->heads * c->latent.own;
    case TURNED:
        return c->latent.turned;
    case VALUES:
        return c->heads * c->latent.value;
    case ONE:
        break;
    }
    return 1;
}

/* The same for latent attention. */
static void place_latent(const struct merak_hf_config *c, enum part part,
                         struct merak_hf_tensor *t)
{
    const struct merak_hf_latent *of = &c->latent;

    if (part == TURNED_Q)
        t->run = t->step = c->head_dim;
    if (part == TURNED_Q || part == SHARED_K) {
        t->turned = of->turned;
        t->interleaved = of->interleaved;
    }
    if (part == LATENT || part == SHARED_K) {
        t->of_rows = of->kv_rank + of->turned;
        t->first_row = part == LATENT ? 0 : of->kv_rank;
    } else if (part == LATENT_K || part == LATENT_V) {
        t->run = part == LATENT_K ? of->own : of->value;
        t->step = of->own + of->value;
        t->of_rows = c->heads * t->step;
        t->first_row = part == LATENT_K ? 0 : of->own;
    }
}

static void place_part(const struct merak_hf_config *c, enum part part,
                       struct merak_hf_tensor *t)
{
    size_t q = extent_of(c, QUERIES), kv = extent_of(c, KEYS);

    t->first_row = 0;
    t->of_rows = t->rows;
    t->run = t->step = t->rows;
    t->turned = 0;
    t->interleaved = false;
    if (part == FUSED_Q || part == FUSED_K || part == FUSED_V) {
        t->of_rows = q + 2 * kv;
        t->first_row = part == FUSED_Q ? 0 : part == FUSED_K ? q : q + kv;
    } else if (part == FUSED_GATE || part == FUSED_UP) {
        t->of_rows = 2 * c->ffn;
        t->first_row = part == FUSED_GATE ? 0 : c->ffn;
    } else if (part == EXPERT_GATE || part == EXPERT_UP) {
        t->of_rows = 2 * t->rows;
        t->first_row = part == EXPERT_GATE ? 0 : t->rows;
    } else if (part == MIXED_Q || part == MIXED_K || part == MIXED_V) {
        t->run = c->head_dim;
        t->step = 3 * t->run;
        t->of_rows = c->heads * t->step;
        t->first_row = (part - MIXED_Q) * t->run;
    } else {
        place_latent(c, part, t);
    }
}

static void fill_tensor(const struct merak_hf_config *c, const struct row *row,
                        const char *digits, int n, struct merak_hf_tensor *t)
{
    const char *name = row->tensor != NULL ? row->tensor : row->param;
    const char *star = strchr(name, '*');

    if (star == NULL)
        snprintf(t->name, sizeof(t->name), "%s", name);
    else
        snprintf(t->name, sizeof(t->name), "%.*s%.*s%s", (int)(star - name),
                 name, n, digits, star + 1);
    t->transposed = row->transposed;
    t->vector = row->cols == ONE;
    t->rows = extent_of(c, row->rows);
    t->cols = extent_of(c, row->cols);
    t->count = row->each ? c->mixture.experts : 1;
    t->each = row->each;
    t->stack = row->stacked ? c->mixture.experts : 1;
    t->stacked = row->stacked;
    place_part(c, row->part, t);
}

static const struct row *find_row(const struct row *row, const char *param,
                                  const char **digits_p, int *n_p)
{
    for (; row != NULL && row->param != NULL; row++) {
        if (matches(row->param, param, digits_p, n_p))
            return row;
    }
    return NULL;
}

enum merak_status merak_hf_tensor_find(const struct merak_hf_config *config,
                                       const char *param, bool stacked,
                                       struct merak_hf_tensor *tensor,
                                       struct merak_error *err)
{
    const struct names *names = names_of(config);
    const struct row *row = NULL;
    const char *digits = NULL;
    int n;

    if (stacked)
        row = find_row(stacked_rows, param, &digits, &n);
    if (row == NULL)
        row = find_row(names->fused, param, &digits, &n);
    if (row == NULL)
        row = find_row(names->row, param, &digits, &n);
    if (row == NULL)
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "the %s family has no parameter %.120s",
                          merak_hf_family_name(config->family), param);
    fill_tensor(config, row, digits, n, tensor);
    return MERAK_OK;
}

bool merak_hf_tensor_is_stacked(const struct merak_hf_config *config,
                                const char *base)
{
    const char *digits;
    int n;

    for (const struct row *row = stacked_rows; row->param != NULL; row++) {
        if (row->stacked && config->mixture.experts > 0 &&
            matches(row->tensor, base, &digits, &n))
            return true;
    }
    return false;
}

void merak_hf_tensor_name(const struct merak_hf_tensor *tensor, size_t n,
                          char name[MERAK_HF_NAME_BYTES])
{
    const char *star = tensor->each ? strchr(tensor->name, '*') : NULL;

    if (star == NULL)
        memcpy(name, tensor->name, MERAK_HF_NAME_BYTES);
    else
        snprintf(name, MERAK_HF_NAME_BYTES, "%.*s%zu%s",
                 (int)(star - tensor->name), tensor->name, n, star + 1);
}

const char *merak_hf_tensor_base(const struct merak_hf_config *config,
                                 const char *name)
{
    const char *prefix = names_of(config)->prefix;
    size_t n = prefix == NULL ? 0 : strlen(prefix);

    return n > 0 && strncmp(name, prefix, n) == 0 ? name + n : name;
}

/* Is the name the output layer's weight or bias? */
static bool is_of_head(const struct merak_hf_config *config, const char *name)
{
    const char *head = names_of(config)->head;
    size_t n;

    if (head == NULL)
        head = "lm_head";
    n = strlen(head);
    return strncmp(name, head, n) == 0 && name[n] == '.';
}

bool merak_hf_tensor_is_head(const struct merak_hf_config *config,
                             const char *name)
{
    return is_of_head(config, name) &&
           strcmp(strchr(name, '.'), ".weight") == 0;
}

const char *merak_hf_tensor_prefix(const struct merak_hf_config *config,
                                   const char *base)
{
    const char *prefix = names_of(config)->prefix;

    return prefix == NULL || is_of_head(config, base) ? "" : prefix;
}

/* Is it of a layer behind the model's own? */
static bool is_behind(const struct merak_hf_config *c, const char *name)
{
    const char *layers = names_of(c)->behind;
    size_t n = layers != NULL ? strlen(layers) : 0;

    return n > 0 && strncmp(name, layers, n) == 0 &&
           strtoul(name + n, NULL, 10) >= c->layers;
}

bool merak_hf_tensor_is_spare(const struct merak_hf_config *config,
                              const char *name)
{
    const char *const *spare = names_of(config)->spare;
    const char *digits;
    int n;

    if (config->tied && merak_hf_tensor_is_head(config, name))
        return true;
    if (is_behind(config, name))
        return true;
    for (; *spare != NULL; spare++) {
        if (matches(*spare, name, &digits, &n))
            return true;
    }
    return false;
}
