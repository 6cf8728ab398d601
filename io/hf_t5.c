/* SPDX-License-Identifier: Apache-2.0 */
/* hf_t5.c - describing T5: an encoder, and a decoder that also reads what it
 * makes
 *
 * Raffel et al. 2020 (arXiv:1910.10683); version 1.1 has gates and an output
 * layer of its own.
 */
#include "config.h"

#include "io/corrupt.h"
#include "io/hf_describe.h"

#include <math.h>

/* A side of the model that is being described. */
struct side {
    struct merak_model *m;
    const struct merak_hf_config *c;
    const char *name; /* encoder or decoder */
    size_t layers;
    struct merak_value *of;      /* what the encoder made; NULL: it is this */
    struct merak_value *lengths; /* of the text that the encoder reads */
};

static struct merak_value *norm(const struct side *s, struct merak_value *x,
                                const char *name)
{
    struct merak_value *gamma = MERAK_PARAM(
        s->m, merak_name(s->m, "%s.weight", name), MERAK_ONES, s->c->hidden);

    return merak_rmsnorm(s->m, x, gamma, s->c->norm.eps);
}

/* Weights begin such that scores need no scale: `of` channels are summed. */
static struct merak_value *linear(const struct side *s, struct merak_value *x,
                                  const char *name, size_t of, int n_contract,
                                  int ndim, const size_t *dim)
{
    struct merak_value *w =
        merak_param(s->m, merak_name(s->m, "%s.weight", name), ndim, dim,
                    MERAK_NORMAL(1 / sqrtf((float)of)));

    return merak_linear(s->m, x, w, NULL, n_contract);
}

/* What queries of x make of keys and values of `of`. */
static struct merak_value *attend(const struct side *s, struct merak_value *x,
                                  struct merak_value *of, const char *at,
                                  const struct merak_attention_options *opt)
{
    const size_t C = s->c->hidden, H = s->c->heads, D = s->c->head_dim;
    const size_t q_dim[] = {H, 1, D, C}, kv_dim[] = {H, D, C};
    const size_t o_dim[] = {C, H, 1, D};
    struct merak_value *q, *k, *v;

    q = linear(s, x, merak_name(s->m, "%s.q", at), C * D, 1, 4, q_dim);
    k = linear(s, of, merak_name(s->m, "%s.k", at), C, 1, 3, kv_dim);
    v = linear(s, of, merak_name(s->m, "%s.v", at), C, 1, 3, kv_dim);
    x = merak_attention_with(s->m, q, k, v, opt);
    return linear(s, x, merak_name(s->m, "%s.o", at), H * D, 3, 4, o_dim);
}

static struct merak_value *feed(const struct side *s, struct merak_value *x,
                                const char *at)
{
    const struct merak_hf_config *c = s->c;
    const size_t up_dim[] = {c->ffn, c->hidden};
    const size_t down_dim[] = {c->hidden, c->ffn};
    struct merak_value *gate, *up;

    if (c->plain_mlp) {
        up = linear(s, x, merak_name(s->m, "%s.wi", at), c->hidden, 1, 2,
                    up_dim);
        x = merak_hf_activate(s->m, c, up);
    } else {
        gate = linear(s, x, merak_name(s->m, "%s.wi_0", at), c->hidden, 1, 2,
                      up_dim);
        up = linear(s, x, merak_name(s->m, "%s.wi_1", at), c->hidden, 1, 2,
                    up_dim);
        x = c->act == MERAK_HF_GELU_TANH ? merak_geglu(s->m, gate, up)
                                         : merak_swiglu(s->m, gate, up);
    }
    x = merak_dropout(s->m, x, c->resid_dropout);
    return linear(s, x, merak_name(s->m, "%s.wo", at), c->ffn, 1, 2, down_dim);
}

/* The table of what is added to scores by distance, which all layers share. */
static struct merak_value *distances(const struct side *s)
{
    return MERAK_PARAM(
        s->m,
        merak_name(s->m,
                   "%s.block.0.layer.0.SelfAttention.relative_attention_bias"
                   ".weight",
                   s->name),
        MERAK_NORMAL(1 / sqrtf((float)s->c->hidden)), s->c->encoder.buckets,
        s->c->heads, 1);
}

/* x and what part `make` of a layer makes of its norm. */
static struct merak_value *add(const struct side *s, struct merak_value *x,
                               struct merak_value *part)
{
    return merak_add(s->m, x, merak_dropout(s->m, part, s->c->resid_dropout));
}

static struct merak_value *layer(const struct side *s, struct merak_value *x,
                                 size_t i,
                                 const struct merak_attention_options *own)
{
    const struct merak_attention_options other = {.scale = 1,
                                                  .dropout = s->c->attn_dropout,
                                                  .mask = MERAK_MASK_FULL,
                                                  .key_lengths = s->lengths};
    const char *at = merak_name(s->m, "%s.block.%zu.layer", s->name, i);
    int n = 0;
    struct merak_value *h;

    h = norm(s, x, merak_name(s->m, "%s.%d.layer_norm", at, n));
    h = attend(s, h, h, merak_name(s->m, "%s.%d.SelfAttention", at, n++), own);
    x = add(s, x, h);
    if (s->of != NULL) {
        h = norm(s, x, merak_name(s->m, "%s.%d.layer_norm", at, n));
        h = attend(s, h, s->of,
                   merak_name(s->m, "%s.%d.EncDecAttention", at, n++), &other);
        x = add(s, x, h);
    }
    h = norm(s, x, merak_name(s->m, "%s.%d.layer_norm", at, n));
    h = feed(s, h, merak_name(s->m, "%s.%d.DenseReluDense", at, n));
    return add(s, x, h);
}

static struct merak_value *describe_side(const struct side *s,
                                         struct merak_value *x)
{
    bool encodes = s->of == NULL;
    const struct merak_attention_options own = {
        .scale = 1,
        .dropout = s->c->attn_dropout,
        .mask = encodes ? MERAK_MASK_FULL : MERAK_MASK_CAUSAL,
        .key_lengths = encodes ? s->lengths : NULL,
        .bias = {distances(s), s->c->encoder.farthest, .both_ways = encodes}};

    x = merak_dropout(s->m, x, s->c->embd_dropout);
    for (size_t i = 0; i < s->layers; i++)
        x = layer(s, x, i, &own);
    x = norm(s, x, merak_name(s->m, "%s.final_layer_norm", s->name));
    return merak_dropout(s->m, x, s->c->resid_dropout);
}

/* Tokens that the encoder reads: as given, or what is left of a text of which
 * the spans of --corrupt's default fill the decoder's sequence, in eights. */
static size_t source_tokens(const struct merak_model *m,
                            const struct merak_hf_config *c)
{
    const struct merak_corrupt usual = {MERAK_CORRUPT_SPANS, 0.15, 3};
    struct merak_spans spans;

    if (c->encoder.seq > 0)
        return c->encoder.seq;
    if (!merak_spans_fit_target(&usual, merak_model_seq(m), &spans))
        return merak_model_seq(m);
    return spans.source < 8 ? spans.source : spans.source / 8 * 8;
}

void merak_hf_describe_t5(struct merak_model *m,
                          const struct merak_hf_config *c)
{
    const size_t B = merak_model_micro_batch(m);
    const size_t text[] = {B, source_tokens(m, c)};
    const size_t answer[] = {B, merak_model_seq(m)};
    struct merak_value *words =
        MERAK_PARAM(m, "shared.weight", MERAK_NORMAL(1), c->vocab, c->hidden);
    struct merak_value *source =
        merak_input(m, "source", MERAK_I32, "bs", text);
    struct merak_value *lengths = merak_input(m, "lengths", MERAK_I32, "b", &B);
    struct merak_value *decoder =
        merak_input(m, "decoder", MERAK_I32, "bt", answer);
    struct side side = {m, c, "encoder", c->layers, NULL, lengths};
    struct merak_value *x;

    side.of = describe_side(&side, merak_embedding(m, source, words));
    side.name = "decoder";
    side.layers = c->encoder.decoder_layers;
    x = describe_side(&side, merak_embedding(m, decoder, words));
    if (c->logit_divisor > 0)
        x = merak_scale(m, x, 1 / c->logit_divisor);
    if (!c->tied)
        words = MERAK_PARAM(m, "lm_head.weight", MERAK_NORMAL(1), c->vocab,
                            c->hidden);
    merak_cross_entropy(m, merak_linear(m, x, words, NULL, 1),
                        merak_labels(m, "labels", "bt"));
}
