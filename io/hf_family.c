/* SPDX-License-Identifier: Apache-2.0 */
/* hf_family.c - the fields of model families in config.json
 *
 * Fields that determine what is computed are read or refused by name.  What
 * families differ in is in their rows (hf_families.c).
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

/* --- gpt2
 * ------------------------------------------------------------------------- */

/* A size with a fixed default, which null is not. */
static size_t read_size(struct merak_hf_reader *r, const char *name,
                        size_t most, size_t or_else)
{
    if (json_is_null(json_object_get(r->root, name)))
        merak_hf_refuse(r, name, "a number, or a file without this field");
    return merak_hf_size(r, name, most, or_else);
}

size_t merak_hf_twin(struct merak_hf_reader *r, const char *name,
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

void merak_hf_gpt2_read(struct merak_hf_reader *r,
                        const struct merak_hf_family *f,
                        struct merak_hf_config *c)
{
    c->vocab = read_size(r, "vocab_size", MOST_VOCAB, f->vocab);
    c->hidden =
        merak_hf_twin(r, "n_embd", "hidden_size", MOST_WIDTH, f->hidden);
    c->layers = merak_hf_twin(r, "n_layer", "num_hidden_layers", MOST_LAYERS,
                              f->layers);
    c->heads =
        merak_hf_twin(r, "n_head", "num_attention_heads", MOST_HEADS, f->heads);
    c->positions = merak_hf_twin(r, "n_positions", "max_position_embeddings",
                                 MOST_POSITIONS, f->positions);
    c->ffn = merak_hf_size(r, "n_inner", MOST_FFN, 4 * c->hidden);
    c->norm.eps = merak_hf_positive(r, "layer_norm_epsilon", f->norm_eps);
    c->init_std = merak_hf_positive(r, "initializer_range", 0.02);
    c->tied = merak_hf_bool(r, "tie_word_embeddings", f->tied);
    merak_hf_require_bool(r, "scale_attn_weights", true);
    merak_hf_options_read(r, f->options, c);
    c->kv_heads = c->heads;
    if (r->rc == MERAK_OK && c->hidden % c->heads != 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "n_embd %zu is not a multiple of n_head %zu",
                           c->hidden, c->heads);
    if (r->rc == MERAK_OK)
        c->head_dim = c->hidden / c->heads;
}

/* --- families with the fields of llama
 * ------------------------------------------------------------------------- */

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
    size_t split = 0;

    c->heads = read_size(r, "num_attention_heads", MOST_HEADS, f->heads);
    c->kv_heads = c->heads;
    if (f->has_heads != MERAK_HF_HEADS_MANY)
        c->kv_heads =
            merak_hf_size(r, "num_key_value_heads", MOST_HEADS,
                          absent && f->kv_heads > 0 ? f->kv_heads : c->heads);
    if (r->rc == MERAK_OK && c->hidden % c->heads == 0)
        split = c->hidden / c->heads;
    if (f->head_dim > 0)
        c->head_dim = read_size(r, "head_dim", MOST_HEAD_DIM, f->head_dim);
    else if (merak_hf_field(r, "head_dim") != NULL)
        c->head_dim = merak_hf_size(r, "head_dim", MOST_HEAD_DIM, 0);
    else
        c->head_dim = split;
    if (f->has_heads != MERAK_HF_HEADS && c->head_dim != split)
        merak_hf_refuse(r, "head_dim", "hidden_size / num_attention_heads");
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

/* Layers without positions. */
static void read_no_rope(struct merak_hf_reader *r,
                         const struct merak_hf_family *f,
                         struct merak_hf_config *c)
{
    const json_t *list, *rope;
    size_t n, i;

    if (f->no_rope_period == 0)
        return;
    n = merak_hf_size(r, "no_rope_layer_interval", MOST_LAYERS,
                      f->no_rope_period);
    list = merak_hf_field(r, "no_rope_layers");
    for (i = 0; list == NULL && i < c->layers; i++)
        c->rope.is_off[i] = (i + 1) % n == 0;
    if (list != NULL && json_array_size(list) < c->layers)
        merak_hf_refuse(r, "no_rope_layers", "0 or 1 for each layer");
    json_array_foreach(list, i, rope)
    {
        if (!json_is_integer(rope) || json_integer_value(rope) >> 1 != 0)
            merak_hf_refuse(r, "no_rope_layers", "0 or 1 for each layer");
        else if (i < c->layers)
            c->rope.is_off[i] = json_integer_value(rope) == 0;
    }
}

/* Without layer_types: all layers, all but some, or those from
 * max_window_layers on. */
static void read_layers_that_slide(struct merak_hf_reader *r,
                                   const struct merak_hf_family *f,
                                   struct merak_hf_config *c)
{
    const json_t *types = NULL;
    size_t first = 0, n = f->windows == MERAK_HF_ALL_BUT ? f->period : 0;

    if (f->period_field != NULL)
        n = merak_hf_size(r, f->period_field, MOST_LAYERS, n);
    if (f->windows != MERAK_HF_ALL_LAYERS)
        types = merak_hf_field(r, "layer_types");
    if (f->windows == MERAK_HF_IF_ASKED)
        first = merak_hf_size(r, "max_window_layers", MOST_LAYERS, 28);
    if (types != NULL)
        read_layer_types(r, types, c, c->slides);
    for (size_t i = first; types == NULL && i < c->layers; i++)
        c->slides[i] = f->windows == MERAK_HF_NO_ROPE
                           ? c->rope.is_off[i]
                           : n == 0 || (i + 1) % n != 0;
}

/* The window of attention; whether it is shorter than the sequences is known
 * later. */
static void read_window(struct merak_hf_reader *r,
                        const struct merak_hf_family *f,
                        struct merak_hf_config *c)
{
    bool may = true, any = false;
    const json_t *value;

    if (f->windows == MERAK_HF_NO_WINDOWS)
        return;
    if (f->windows == MERAK_HF_IF_ASKED || f->windows == MERAK_HF_NO_ROPE)
        may = merak_hf_bool(r, "use_sliding_window", false);
    value = merak_hf_field(r, "sliding_window");
    if (!may && json_is_integer(value) && json_integer_value(value) == 0)
        c->window = 0; /* as transformers writes what is not used */
    else if (value != NULL)
        c->window = merak_hf_size(r, "sliding_window", MOST_POSITIONS, 0);
    else if (json_object_get(r->root, "sliding_window") == NULL)
        c->window = f->window;
    read_layers_that_slide(r, f, c);
    for (size_t i = 0; i < c->layers; i++)
        any = any || c->slides[i];
    if (may && any && c->window > 0)
        return;
    /* there transformers has windows by layer_types, or fails */
    if (any && f->rope.slide_theta > 0)
        merak_hf_refuse(r, "sliding_window", "a number");
    else if (any && f->windows == MERAK_HF_NO_ROPE &&
             merak_hf_field(r, "layer_types") != NULL)
        merak_hf_refuse(r, "layer_types",
                        "full_attention of each, or use_sliding_window true "
                        "and a sliding_window");
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

/* What one stack of layers has, but for its heads. */
static void read_sizes(struct merak_hf_reader *r,
                       const struct merak_hf_family *f,
                       struct merak_hf_config *c)
{
    c->vocab = read_size(r, "vocab_size", MOST_VOCAB, f->vocab);
    c->hidden = read_size(r, "hidden_size", MOST_WIDTH, f->hidden);
    c->ffn = read_size(r, "intermediate_size", MOST_FFN, f->ffn);
    c->layers = read_size(r, "num_hidden_layers", MOST_LAYERS, f->layers);
    c->positions =
        read_size(r, "max_position_embeddings", MOST_POSITIONS, f->positions);
}

static void read_decoder(struct merak_hf_reader *r,
                         const struct merak_hf_family *f,
                         struct merak_hf_config *c)
{
    read_sizes(r, f, c);
    if (f->latent != NULL)
        merak_hf_latent_read(r, f, c);
    else
        read_heads(r, f, c);
    c->norm.eps = merak_hf_positive(
        r, f->eps_field != NULL ? f->eps_field : "rms_norm_eps", f->norm_eps);
    c->init_std = merak_hf_positive(r, "initializer_range",
                                    f->init_std > 0 ? f->init_std : 0.02);
    merak_hf_rope_read(r, f, c);
    if (!f->no_pads)
        read_padding(r, f, c);
    read_no_rope(r, f, c);
    read_window(r, f, c);
    c->tied = merak_hf_bool(r, "tie_word_embeddings", f->tied);
    c->attn_dropout = merak_hf_dropout(r, "attention_dropout", 0);
    merak_hf_options_read(r, f->options, c);
    if (f->experts != NULL)
        merak_hf_experts_read(r, f->experts, c);
}

/* --- encoders, and encoders with decoders
 * ------------------------------------------------------------------------- */

void merak_hf_bert_read(struct merak_hf_reader *r,
                        const struct merak_hf_family *f,
                        struct merak_hf_config *c)
{
    read_sizes(r, f, c);
    c->heads = read_size(r, "num_attention_heads", MOST_HEADS, f->heads);
    c->kv_heads = c->heads;
    c->encoder.types = read_size(r, "type_vocab_size", MOST_VOCAB, 2);
    c->norm.eps = merak_hf_positive(r, "layer_norm_eps", f->norm_eps);
    c->init_std = merak_hf_positive(r, "initializer_range", 0.02);
    c->tied = merak_hf_bool(r, "tie_word_embeddings", f->tied);
    if (strcmp(merak_hf_word(r, "position_embedding_type", "absolute"),
               "absolute") != 0)
        merak_hf_refuse(r, "position_embedding_type", "absolute");
    read_padding(r, f, c);
    merak_hf_options_read(r, f->options, c);
    if (r->rc == MERAK_OK && c->hidden % c->heads != 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "hidden_size %zu is not a multiple of "
                           "num_attention_heads %zu",
                           c->hidden, c->heads);
    if (r->rc == MERAK_OK)
        c->head_dim = c->hidden / c->heads;
}

/* feed_forward_proj: an activation, or "gated-" and that of the gate.  Shazeer
 * 2020 (arXiv:2002.05202).  What transformers makes of it may be in the file,
 * and must agree. */
static void read_t5_act(struct merak_hf_reader *r, struct merak_hf_config *c)
{
    static const struct {
        const char *word, *act;
        enum merak_hf_act as;
        bool gated;
    } known[] = {
        {"relu", "relu", MERAK_HF_RELU, false},
        {"gated-gelu", "gelu_new", MERAK_HF_GELU_TANH, true},
        {"gated-silu", "silu", MERAK_HF_SILU, true},
        {"gelu", "gelu", MERAK_HF_GELU, false},
        {"gelu_new", "gelu_new", MERAK_HF_GELU_TANH, false},
    };
    const char *word = merak_hf_word(r, "feed_forward_proj", "relu");
    size_t i = 0, n = sizeof(known) / sizeof(*known);

    while (i < n && strcmp(word, known[i].word) != 0)
        i++;
    if (i == n) {
        merak_hf_refuse(r, "feed_forward_proj",
                        "relu, gated-gelu, gated-silu, gelu or gelu_new");
        return;
    }
    c->act = known[i].as;
    c->plain_mlp = !known[i].gated;
    merak_hf_require_bool(r, "is_gated_act", known[i].gated);
    if (strcmp(merak_hf_word(r, "dense_act_fn", known[i].act), known[i].act) !=
        0)
        merak_hf_refuse(r, "dense_act_fn", known[i].act);
}

/* Version 1.1 has an output layer of its own, whose input is not scaled.
 * transformers 5 writes all files as tied, and "scale_decoder_outputs" of those
 * that are not so is false. */
static void read_t5_head(struct merak_hf_reader *r, struct merak_hf_config *c)
{
    bool tied = merak_hf_bool(r, "tie_word_embeddings", true);
    bool scaled = merak_hf_bool(r, "scale_decoder_outputs", tied);

    c->tied = tied && scaled;
    if (scaled)
        c->logit_divisor = sqrtf((float)c->hidden);
}

void merak_hf_t5_read(struct merak_hf_reader *r,
                      const struct merak_hf_family *f,
                      struct merak_hf_config *c)
{
    c->vocab = read_size(r, "vocab_size", MOST_VOCAB, f->vocab);
    c->hidden =
        merak_hf_twin(r, "d_model", "hidden_size", MOST_WIDTH, f->hidden);
    c->ffn = read_size(r, "d_ff", MOST_FFN, f->ffn);
    c->layers = merak_hf_twin(r, "num_layers", "num_hidden_layers", MOST_LAYERS,
                              f->layers);
    c->encoder.decoder_layers =
        merak_hf_size(r, "num_decoder_layers", MOST_LAYERS, c->layers);
    c->heads = merak_hf_twin(r, "num_heads", "num_attention_heads", MOST_HEADS,
                             f->heads);
    c->kv_heads = c->heads;
    c->head_dim =
        merak_hf_twin(r, "d_kv", "head_dim", MOST_HEAD_DIM, f->head_dim);
    c->encoder.buckets =
        read_size(r, "relative_attention_num_buckets", MOST_WIDTH, 32);
    c->encoder.farthest =
        read_size(r, "relative_attention_max_distance", MOST_POSITIONS, 128);
    c->norm.eps = merak_hf_positive(r, "layer_norm_epsilon", f->norm_eps);
    c->init_std = 1;
    if (merak_hf_real(r, "initializer_factor", 1) != 1)
        merak_hf_refuse(r, "initializer_factor", "1");
    read_t5_act(r, c);
    read_t5_head(r, c);
    merak_hf_options_read(r, f->options, c);
}

/* --- any family
 * ------------------------------------------------------------------------- */

void merak_hf_family_read(struct merak_hf_reader *r,
                          const struct merak_hf_family *f,
                          struct merak_hf_config *c)
{
    if (f->read != NULL)
        f->read(r, f, c);
    else
        read_decoder(r, f, c);
}

void merak_hf_family_check(struct merak_hf_reader *r,
                           const struct merak_hf_family *f,
                           const struct merak_hf_config *c)
{
    bool reads =
        f->windows != MERAK_HF_NO_WINDOWS && f->windows != MERAK_HF_ALL_LAYERS;
    const json_t *types = reads ? NULL : merak_hf_field(r, "layer_types");
    bool slides[MERAK_HF_LAYERS];

    if (f->windows == MERAK_HF_NO_WINDOWS)
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
