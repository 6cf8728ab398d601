/* SPDX-License-Identifier: Apache-2.0 */
/* hf_family.c - the model families and their fields in config.json
 *
 * Fields that determine what is computed are read or refused by name.  The
 * defaults of transformers are in the rows of the table.
 */
#include "config.h"

#include "io/hf_family.h"

#include "base/error.h"
#include "io/hf_rope.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/*
 * Within these bounds no product of sizes exceeds 2^63, up to the bytes of all
 * weights with gradients and moments.  Existing models are far below.
 */
#define MOST_LAYERS ((size_t)MERAK_HF_LAYERS)
#define MOST_HEADS ((size_t)1 << 14)
#define MOST_HEAD_DIM ((size_t)1 << 12)
#define MOST_WIDTH ((size_t)1 << 20)
#define MOST_FFN ((size_t)1 << 22)
#define MOST_VOCAB ((size_t)1 << 26)
#define MOST_POSITIONS ((size_t)INT32_MAX)

/* Summaries are for classification heads; GPT-2 has no padding row. */
static const char *const gpt2_known[] = {"n_ctx",
                                         "pad_token_id",
                                         "summary_activation",
                                         "summary_first_dropout",
                                         "summary_proj_to_labels",
                                         "summary_type",
                                         "summary_use_proj",
                                         NULL};

/* pretraining_tp only splits products into sums. */
static const char *const llama_known[] = {"is_llama_config", "pretraining_tp",
                                          NULL};

/* --- the families
 * ----------------------------------------------------------------- */

static bool gpt2_activation(struct merak_hf_reader *r)
{
    const char *name = merak_hf_word(r, "activation_function", "gelu_new");

    if (strcmp(name, "gelu") == 0)
        return false;
    if (strcmp(name, "gelu_new") != 0 && strcmp(name, "gelu_pytorch_tanh") != 0)
        merak_hf_refuse(r, "activation_function",
                        "gelu_new, gelu_pytorch_tanh or gelu");
    return true;
}

/* A size with two names, where transformers prefers `alias`; two different
 * values are an error. */
static size_t read_twin(struct merak_hf_reader *r, const char *name,
                        const char *alias, size_t most)
{
    bool by_alias = merak_hf_field(r, alias) != NULL;
    size_t n = 0, twin = 0;

    if (by_alias)
        twin = merak_hf_size(r, alias, most, 0);
    if (!by_alias || merak_hf_field(r, name) != NULL)
        n = merak_hf_size(r, name, most, 0);
    if (r->rc == MERAK_OK && by_alias && n != 0 && n != twin)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "fields %s %zu and %s %zu are two names of one "
                           "number; give it once",
                           name, n, alias, twin);
    return by_alias ? twin : n;
}

static size_t gpt2_positions(struct merak_hf_reader *r)
{
    if (merak_hf_field(r, "n_positions") == NULL &&
        merak_hf_field(r, "max_position_embeddings") == NULL &&
        merak_hf_field(r, "n_ctx") != NULL)
        return merak_hf_size(r, "n_ctx", MOST_POSITIONS, 0);
    return read_twin(r, "n_positions", "max_position_embeddings",
                     MOST_POSITIONS);
}

static void read_gpt2(struct merak_hf_reader *r,
                      const struct merak_hf_family *f,
                      struct merak_hf_config *c)
{
    (void)f;
    c->vocab = merak_hf_size(r, "vocab_size", MOST_VOCAB, 0);
    c->hidden = read_twin(r, "n_embd", "hidden_size", MOST_WIDTH);
    c->layers = read_twin(r, "n_layer", "num_hidden_layers", MOST_LAYERS);
    c->heads = read_twin(r, "n_head", "num_attention_heads", MOST_HEADS);
    c->positions = gpt2_positions(r);
    c->ffn = merak_hf_size(r, "n_inner", MOST_FFN, 4 * c->hidden);
    c->norm_eps = merak_hf_positive(r, "layer_norm_epsilon", 1e-5);
    c->init_std = merak_hf_positive(r, "initializer_range", 0.02);
    c->embd_dropout = merak_hf_dropout(r, "embd_pdrop", 0.1);
    c->resid_dropout = merak_hf_dropout(r, "resid_pdrop", 0.1);
    c->attn_dropout = merak_hf_dropout(r, "attn_pdrop", 0.1);
    c->tied = merak_hf_bool(r, "tie_word_embeddings", true);
    c->gelu_tanh = gpt2_activation(r);
    c->attn_bias = true;
    c->mlp_bias = true;
    merak_hf_require_bool(r, "scale_attn_weights", true);
    merak_hf_require_bool(r, "scale_attn_by_inverse_layer_idx", false);
    merak_hf_require_bool(r, "reorder_and_upcast_attn", false);
    c->kv_heads = c->heads;
    if (r->rc == MERAK_OK && c->hidden % c->heads != 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "n_embd %zu is not a multiple of n_head %zu",
                           c->hidden, c->heads);
    if (r->rc == MERAK_OK)
        c->head_dim = c->hidden / c->heads;
}

static void check_heads(struct merak_hf_reader *r,
                        const struct merak_hf_config *c)
{
    if (r->rc != MERAK_OK)
        return;
    if (c->head_dim == 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "hidden_size %zu is not a multiple of "
                           "num_attention_heads %zu, and head_dim is not given",
                           c->hidden, c->heads);
    else if (c->heads % c->kv_heads != 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "num_attention_heads %zu is not a multiple of "
                           "num_key_value_heads %zu",
                           c->heads, c->kv_heads);
    else if (c->head_dim % 2 != 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "head_dim %zu is odd; rotary positions turn pairs",
                           c->head_dim);
}

/* A null field follows from others; an absent one may have a fixed default. */
static void read_heads(struct merak_hf_reader *r,
                       const struct merak_hf_family *f,
                       struct merak_hf_config *c)
{
    c->heads = merak_hf_size(r, "num_attention_heads", MOST_HEADS, 0);
    c->kv_heads = merak_hf_size(r, "num_key_value_heads", MOST_HEADS, c->heads);
    if (r->rc == MERAK_OK && f->needs_kv_heads &&
        json_object_get(r->root, "num_key_value_heads") == NULL)
        merak_hf_missing(r, "num_key_value_heads");
    if (r->rc != MERAK_OK)
        return;
    if (merak_hf_field(r, "head_dim") != NULL || f->needs_head_dim)
        c->head_dim = merak_hf_size(r, "head_dim", MOST_HEAD_DIM, 0);
    else if (c->hidden % c->heads == 0)
        c->head_dim = c->hidden / c->heads;
    check_heads(r, c);
}

/* Which layers have windows, from the file's layer_types. */
static void read_layer_types(struct merak_hf_reader *r, const json_t *types,
                             struct merak_hf_config *c)
{
    const json_t *type;
    size_t i;

    if (!json_is_array(types) || json_array_size(types) != c->layers)
        merak_hf_refuse(r, "layer_types", "a word for each layer");
    json_array_foreach(types, i, type)
    {
        const char *word = json_string_value(type);

        if (r->rc != MERAK_OK)
            return;
        c->slides[i] = word != NULL && strcmp(word, "sliding_attention") == 0;
        if (word == NULL ||
            (!c->slides[i] && strcmp(word, "full_attention") != 0))
            merak_hf_refuse(r, "layer_types",
                            "full_attention or sliding_attention of each");
    }
}

/* Without layer_types: all layers, every other one from the first, or those
 * from max_window_layers on. */
static void read_layers_that_slide(struct merak_hf_reader *r,
                                   const struct merak_hf_family *f,
                                   struct merak_hf_config *c)
{
    const json_t *types = NULL;
    size_t first = 0, step = f->windows == EVERY_OTHER ? 2 : 1;

    if (f->windows != ALL_LAYERS)
        types = merak_hf_field(r, "layer_types");
    if (f->windows == IF_ASKED)
        first = merak_hf_size(r, "max_window_layers", MOST_LAYERS, 28);
    if (types != NULL)
        read_layer_types(r, types, c);
    for (size_t i = first; types == NULL && i < c->layers; i += step)
        c->slides[i] = true;
}

/* The window of attention; whether it is shorter than the sequences is known
 * later. */
static void read_window(struct merak_hf_reader *r,
                        const struct merak_hf_family *f,
                        struct merak_hf_config *c)
{
    bool may = f->windows != IF_ASKED, any = false;

    if (f->windows == NO_WINDOWS)
        return; /* a window would be an unknown field */
    if (f->windows == IF_ASKED)
        may = merak_hf_bool(r, "use_sliding_window", false);
    if (merak_hf_field(r, "sliding_window") != NULL)
        c->window = merak_hf_size(r, "sliding_window", MOST_POSITIONS, 0);
    else if (json_object_get(r->root, "sliding_window") == NULL)
        c->window = f->window;
    read_layers_that_slide(r, f, c);
    for (size_t i = 0; i < c->layers; i++)
        any = any || c->slides[i];
    if (!may || !any)
        c->window = 0;
}

/* A token id; as in PyTorch those below 0 count from the vocabulary's end. */
static void read_padding(struct merak_hf_reader *r,
                         const struct merak_hf_family *f,
                         struct merak_hf_config *c)
{
    const json_t *value = merak_hf_field(r, "pad_token_id");
    json_int_t id = json_integer_value(value), n = (json_int_t)c->vocab;

    if (json_object_get(r->root, "pad_token_id") == NULL && f->pads) {
        id = f->pad;
        c->has_pad = true;
    }
    c->has_pad |= value != NULL;
    if (r->rc != MERAK_OK || !c->has_pad)
        return;
    if ((value != NULL && !json_is_integer(value)) || id < -n || id >= n)
        merak_hf_refuse(r, "pad_token_id",
                        "a token of the vocabulary, or null");
    else
        c->pad = (size_t)(id < 0 ? id + n : id);
}

static void read_decoder(struct merak_hf_reader *r,
                         const struct merak_hf_family *f,
                         struct merak_hf_config *c)
{
    c->vocab = merak_hf_size(r, "vocab_size", MOST_VOCAB, 0);
    c->hidden = merak_hf_size(r, "hidden_size", MOST_WIDTH, 0);
    c->ffn = merak_hf_size(r, "intermediate_size", MOST_FFN, 0);
    c->layers = merak_hf_size(r, "num_hidden_layers", MOST_LAYERS, 0);
    c->positions =
        merak_hf_size(r, "max_position_embeddings", MOST_POSITIONS, 0);
    read_heads(r, f, c);
    c->norm_eps = merak_hf_positive(r, "rms_norm_eps", f->norm_eps);
    c->init_std = merak_hf_positive(r, "initializer_range", 0.02);
    merak_hf_rope_read(r, c);
    read_padding(r, f, c);
    read_window(r, f, c);
    c->tied = merak_hf_bool(r, "tie_word_embeddings", f->tied);
    c->attn_dropout = merak_hf_dropout(r, "attention_dropout", 0);
}

static void require_silu(struct merak_hf_reader *r)
{
    const char *act = merak_hf_word(r, "hidden_act", "silu");

    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        merak_hf_refuse(r, "hidden_act", "silu");
}

static void read_mistral(struct merak_hf_reader *r,
                         const struct merak_hf_family *f,
                         struct merak_hf_config *c)
{
    read_decoder(r, f, c);
    require_silu(r);
}

static void read_llama(struct merak_hf_reader *r,
                       const struct merak_hf_family *f,
                       struct merak_hf_config *c)
{
    read_decoder(r, f, c);
    require_silu(r);
    c->attn_bias = merak_hf_bool(r, "attention_bias", false);
    c->mlp_bias = merak_hf_bool(r, "mlp_bias", false);
    merak_hf_require_bool(r, "rope_interleaved", false);
}

static void read_qwen2(struct merak_hf_reader *r,
                       const struct merak_hf_family *f,
                       struct merak_hf_config *c)
{
    read_decoder(r, f, c);
    require_silu(r);
    c->qkv_bias = true;
    merak_hf_require_bool(r, "use_mrope", false);
}

static void read_qwen3(struct merak_hf_reader *r,
                       const struct merak_hf_family *f,
                       struct merak_hf_config *c)
{
    read_decoder(r, f, c);
    require_silu(r);
    c->attn_bias = merak_hf_bool(r, "attention_bias", false);
    c->qk_norm = true;
}

static void read_phi3(struct merak_hf_reader *r,
                      const struct merak_hf_family *f,
                      struct merak_hf_config *c)
{
    read_decoder(r, f, c);
    require_silu(r);
    c->resid_dropout = merak_hf_dropout(r, "resid_pdrop", 0);
    merak_hf_require_bool(r, "attention_bias", false);
    merak_hf_require_bool(r, "mlp_bias", false);
    merak_hf_require_bool(r, "lm_head_bias", false);
}

static void read_olmo2(struct merak_hf_reader *r,
                       const struct merak_hf_family *f,
                       struct merak_hf_config *c)
{
    read_decoder(r, f, c);
    require_silu(r);
    c->attn_bias = merak_hf_bool(r, "attention_bias", false);
    c->qk_whole = true;
    c->post_norm = true;
}

/* A number; null means off. */
static float read_cap(struct merak_hf_reader *r, const char *name,
                      double or_else)
{
    if (merak_hf_field(r, name) == NULL &&
        json_object_get(r->root, name) != NULL)
        return 0;
    return merak_hf_positive(r, name, or_else);
}

/* Gemma Team 2024 (arXiv:2408.00118), sec. 2. */
static void read_gemma2(struct merak_hf_reader *r,
                        const struct merak_hf_family *f,
                        struct merak_hf_config *c)
{
    const char *act;

    read_decoder(r, f, c);
    c->attn_bias = merak_hf_bool(r, "attention_bias", false);
    c->attn_cap = read_cap(r, "attn_logit_softcapping", 50);
    c->logit_cap = read_cap(r, "final_logit_softcapping", 30);
    c->attn_scale =
        1 / sqrtf(merak_hf_positive(r, "query_pre_attn_scalar", 256));
    act = merak_hf_word(r, "hidden_activation", "gelu_pytorch_tanh");
    if (strcmp(act, "gelu_pytorch_tanh") != 0 && strcmp(act, "gelu_new") != 0)
        merak_hf_refuse(r, "hidden_activation", "gelu_pytorch_tanh");
    merak_hf_require_bool(r, "use_bidirectional_attention", false);
    c->geglu = true;
    c->four_norms = true;
    c->norm_plus_1 = true;
    c->embd_scaled = true;
}

/* hidden_activation is read instead. */
static const char *const gemma2_known[] = {"hidden_act", NULL};

/* Phi-3's embd_pdrop and Phi-4-mini's full_attn_mod and interpolate_factor are
 * not read anywhere in transformers. */
static const char *const phi3_known[] = {
    "embd_pdrop", "full_attn_mod", "interpolate_factor",
    "original_max_position_embeddings", NULL};

static const struct merak_hf_family families[] = {
    {.type = "gpt2",
     .family = MERAK_GPT2,
     .read = read_gpt2,
     .known = gpt2_known},
    {.type = "llama",
     .family = MERAK_LLAMA,
     .read = read_llama,
     .known = llama_known,
     .norm_eps = 1e-6},
    {.type = "qwen2",
     .family = MERAK_QWEN2,
     .read = read_qwen2,
     .known = llama_known,
     .norm_eps = 1e-6,
     .needs_kv_heads = true,
     .window = 4096,
     .windows = IF_ASKED},
    {.type = "qwen3",
     .family = MERAK_QWEN3,
     .read = read_qwen3,
     .known = llama_known,
     .norm_eps = 1e-6,
     .needs_kv_heads = true,
     .needs_head_dim = true,
     .window = 4096,
     .windows = IF_ASKED},
    {.type = "mistral",
     .family = MERAK_MISTRAL,
     .read = read_mistral,
     .known = llama_known,
     .norm_eps = 1e-6,
     .needs_kv_heads = true,
     .window = 4096,
     .windows = ALL_LAYERS},
    {.type = "phi3",
     .family = MERAK_PHI3,
     .read = read_phi3,
     .known = phi3_known,
     .norm_eps = 1e-5,
     .pads = true,
     .pad = 32000,
     .windows = ALL_LAYERS},
    {.type = "olmo2",
     .family = MERAK_OLMO2,
     .read = read_olmo2,
     .known = llama_known,
     .norm_eps = 1e-5,
     .pads = true,
     .pad = 1},
    {.type = "gemma2",
     .family = MERAK_GEMMA2,
     .read = read_gemma2,
     .known = gemma2_known,
     .norm_eps = 1e-6,
     .needs_kv_heads = true,
     .needs_head_dim = true,
     .pads = true,
     .pad = 0,
     .window = 4096,
     .windows = EVERY_OTHER,
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

const char *merak_hf_family_name(enum merak_family family)
{
    for (int i = 0; i < N_FAMILIES; i++) {
        if (families[i].family == family)
            return families[i].type;
    }
    return "?";
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
