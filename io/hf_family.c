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

static const char *const none_known[] = {NULL};

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

/* A size with a fixed default, which null is not. */
static size_t read_size(struct merak_hf_reader *r, const char *name,
                        size_t most, size_t or_else)
{
    if (json_is_null(json_object_get(r->root, name)))
        merak_hf_refuse(r, name, "a number, or a file without this field");
    return merak_hf_size(r, name, most, or_else);
}

/* A size with two names, where transformers prefers `alias`; two different
 * values are an error. */
static size_t read_twin(struct merak_hf_reader *r, const char *name,
                        const char *alias, size_t most, size_t or_else)
{
    bool by_alias = merak_hf_field(r, alias) != NULL;
    size_t twin = by_alias ? merak_hf_size(r, alias, most, or_else) : or_else;
    size_t n = read_size(r, name, most, twin);

    if (r->rc == MERAK_OK && by_alias && n != twin)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "fields %s %zu and %s %zu are two names of one "
                           "number; give it once",
                           name, n, alias, twin);
    return n;
}

static void read_gpt2(struct merak_hf_reader *r,
                      const struct merak_hf_family *f,
                      struct merak_hf_config *c)
{
    c->vocab = read_size(r, "vocab_size", MOST_VOCAB, f->vocab);
    c->hidden = read_twin(r, "n_embd", "hidden_size", MOST_WIDTH, f->hidden);
    c->layers =
        read_twin(r, "n_layer", "num_hidden_layers", MOST_LAYERS, f->layers);
    c->heads =
        read_twin(r, "n_head", "num_attention_heads", MOST_HEADS, f->heads);
    c->positions = read_twin(r, "n_positions", "max_position_embeddings",
                             MOST_POSITIONS, f->positions);
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
    bool absent = json_object_get(r->root, "num_key_value_heads") == NULL;

    c->heads = read_size(r, "num_attention_heads", MOST_HEADS, f->heads);
    c->kv_heads =
        merak_hf_size(r, "num_key_value_heads", MOST_HEADS,
                      absent && f->kv_heads > 0 ? f->kv_heads : c->heads);
    if (f->head_dim > 0)
        c->head_dim = read_size(r, "head_dim", MOST_HEAD_DIM, f->head_dim);
    else if (merak_hf_field(r, "head_dim") != NULL)
        c->head_dim = merak_hf_size(r, "head_dim", MOST_HEAD_DIM, 0);
    else if (r->rc == MERAK_OK && c->hidden % c->heads == 0)
        c->head_dim = c->hidden / c->heads;
    check_heads(r, c);
}

/* Which layers have windows, from the file's layer_types. */
static void read_layer_types(struct merak_hf_reader *r, const json_t *types,
                             const struct merak_hf_config *c, bool *slides)
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
        slides[i] = word != NULL && strcmp(word, "sliding_attention") == 0;
        if (word == NULL || (!slides[i] && strcmp(word, "full_attention") != 0))
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
        read_layer_types(r, types, c, c->slides);
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
        return;
    if (f->windows == IF_ASKED)
        may = merak_hf_bool(r, "use_sliding_window", false);
    if (merak_hf_field(r, "sliding_window") != NULL)
        c->window = merak_hf_size(r, "sliding_window", MOST_POSITIONS, 0);
    else if (json_object_get(r->root, "sliding_window") == NULL)
        c->window = f->window;
    read_layers_that_slide(r, f, c);
    for (size_t i = 0; i < c->layers; i++)
        any = any || c->slides[i];
    if (may && any && c->window > 0)
        return;
    c->window = 0;
    memset(c->slides, 0, sizeof(c->slides));
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
    c->vocab = read_size(r, "vocab_size", MOST_VOCAB, f->vocab);
    c->hidden = read_size(r, "hidden_size", MOST_WIDTH, f->hidden);
    c->ffn = read_size(r, "intermediate_size", MOST_FFN, f->ffn);
    c->layers = read_size(r, "num_hidden_layers", MOST_LAYERS, f->layers);
    c->positions =
        read_size(r, "max_position_embeddings", MOST_POSITIONS, f->positions);
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
}

static void read_qwen2(struct merak_hf_reader *r,
                       const struct merak_hf_family *f,
                       struct merak_hf_config *c)
{
    read_decoder(r, f, c);
    require_silu(r);
    c->qkv_bias = true;
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

void merak_hf_family_check(struct merak_hf_reader *r,
                           const struct merak_hf_family *f,
                           const struct merak_hf_config *c)
{
    bool reads = f->windows == IF_ASKED || f->windows == EVERY_OTHER;
    const json_t *types = reads ? NULL : merak_hf_field(r, "layer_types");
    bool slides[MERAK_HF_LAYERS];

    if (f->windows == NO_WINDOWS)
        merak_hf_require_absent(r, "sliding_window");
    merak_hf_require_absent(r, "attention_chunk_size");
    merak_hf_require_absent(r, "kv_sharing_modes");
    if (types == NULL || r->rc != MERAK_OK)
        return;
    read_layer_types(r, types, c, slides);
    for (size_t i = 0; i < c->layers && r->rc == MERAK_OK; i++) {
        if (slides[i] != (c->window > 0))
            merak_hf_refuse(r, "layer_types",
                            c->window > 0 ? "sliding_attention of each"
                                          : "full_attention of each");
    }
}

static const struct merak_hf_family families[] = {
    {.type = "gpt2",
     .class = "GPT2",
     .model = "GPT2LMHeadModel",
     .family = MERAK_GPT2,
     .read = read_gpt2,
     .known = gpt2_known,
     .vocab = 50257,
     .hidden = 768,
     .layers = 12,
     .heads = 12,
     .positions = 1024},
    {.type = "llama",
     .class = "Llama",
     .model = "LlamaForCausalLM",
     .family = MERAK_LLAMA,
     .read = read_llama,
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
     .read = read_qwen2,
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
     .windows = IF_ASKED},
    {.type = "qwen3",
     .class = "Qwen3",
     .model = "Qwen3ForCausalLM",
     .family = MERAK_QWEN3,
     .read = read_qwen3,
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
     .windows = IF_ASKED},
    {.type = "mistral",
     .class = "Mistral",
     .model = "MistralForCausalLM",
     .family = MERAK_MISTRAL,
     .read = read_mistral,
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
     .windows = ALL_LAYERS},
    {.type = "phi3",
     .class = "Phi3",
     .model = "Phi3ForCausalLM",
     .family = MERAK_PHI3,
     .read = read_phi3,
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
     .windows = ALL_LAYERS},
    {.type = "olmo2",
     .class = "Olmo2",
     .model = "Olmo2ForCausalLM",
     .family = MERAK_OLMO2,
     .read = read_olmo2,
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
     .read = read_gemma2,
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
