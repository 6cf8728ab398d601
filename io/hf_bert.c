/* SPDX-License-Identifier: Apache-2.0 */
/* hf_bert.c - describing BERT, which predicts masked tokens
 *
 * Devlin et al. 2019 (arXiv:1810.04805), without the prediction of next
 * sentences, for which nothing here makes samples.
 */
#include "config.h"

#include "io/hf_describe.h"

/* x W' + b, with a weight of dims [out.., in..] of which n_contract are in. */
static struct merak_value *linear(struct merak_model *m,
                                  const struct merak_hf_config *c,
                                  struct merak_value *x, const char *name,
                                  int n_contract, int ndim, const size_t *dim)
{
    struct merak_value *w = merak_param(m, merak_name(m, "%s.weight", name),
                                        ndim, dim, MERAK_NORMAL(c->init_std));
    struct merak_value *b = merak_param(m, merak_name(m, "%s.bias", name),
                                        ndim - n_contract, dim, MERAK_ZEROS);

    return merak_linear(m, x, w, b, n_contract);
}

static struct merak_value *
attention(struct merak_model *m, const struct merak_hf_config *c,
          struct merak_value *x, struct merak_value *lengths, const char *at)
{
    const struct merak_attention_options opt = {.mask = MERAK_MASK_FULL,
                                                .dropout = c->attn_dropout,
                                                .key_lengths = lengths};
    const size_t q_dim[] = {c->heads, 1, c->head_dim, c->hidden};
    const size_t kv_dim[] = {c->heads, c->head_dim, c->hidden};
    const size_t o_dim[] = {c->hidden, c->heads, 1, c->head_dim};
    struct merak_value *q, *k, *v;

    q = linear(m, c, x, merak_name(m, "%s.self.query", at), 1, 4, q_dim);
    k = linear(m, c, x, merak_name(m, "%s.self.key", at), 1, 3, kv_dim);
    v = linear(m, c, x, merak_name(m, "%s.self.value", at), 1, 3, kv_dim);
    x = merak_attention_with(m, q, k, v, &opt);
    return linear(m, c, x, merak_name(m, "%s.output.dense", at), 3, 4, o_dim);
}

/* Norms are behind the sums. */
static struct merak_value *layer(struct merak_model *m,
                                 const struct merak_hf_config *c,
                                 struct merak_value *x,
                                 struct merak_value *lengths, const char *at)
{
    const size_t up_dim[] = {c->ffn, c->hidden};
    const size_t down_dim[] = {c->hidden, c->ffn};
    struct merak_value *h =
        attention(m, c, x, lengths, merak_name(m, "%s.attention", at));

    x = merak_add(m, x, merak_dropout(m, h, c->resid_dropout));
    x = merak_hf_layernorm(m, c, x,
                           merak_name(m, "%s.attention.output.LayerNorm", at));
    h = linear(m, c, x, merak_name(m, "%s.intermediate.dense", at), 1, 2,
               up_dim);
    h = merak_hf_activate(m, c, h);
    h = linear(m, c, h, merak_name(m, "%s.output.dense", at), 1, 2, down_dim);
    x = merak_add(m, x, merak_dropout(m, h, c->resid_dropout));
    return merak_hf_layernorm(m, c, x,
                              merak_name(m, "%s.output.LayerNorm", at));
}

/* The sum of three embeddings; also returns the tokens' table. */
static struct merak_value *embed(struct merak_model *m,
                                 const struct merak_hf_config *c,
                                 struct merak_value **table_p)
{
    const size_t dim[] = {merak_model_micro_batch(m), merak_model_seq(m)};
    const struct merak_embedding_options opt = {.padded = c->has_pad,
                                                .pad = c->pad};
    const struct merak_init init = MERAK_NORMAL(c->init_std);
    struct merak_value *ids = merak_input(m, "ids", MERAK_I32, "bt", dim);
    struct merak_value *types = merak_input(m, "types", MERAK_I32, "bt", dim);
    struct merak_value *x, *of_types, *of_places;

    *table_p = MERAK_PARAM(m, "bert.embeddings.word_embeddings.weight", init,
                           c->vocab, c->hidden);
    of_types = MERAK_PARAM(m, "bert.embeddings.token_type_embeddings.weight",
                           init, c->encoder.types, c->hidden);
    of_places = MERAK_PARAM(m, "bert.embeddings.position_embeddings.weight",
                            init, c->positions, c->hidden);
    x = merak_embedding_with(m, ids, *table_p, &opt);
    x = merak_add(m, x, merak_embedding(m, types, of_types));
    x = merak_add_position(m, x, of_places);
    x = merak_hf_layernorm(m, c, x, "bert.embeddings.LayerNorm");
    return merak_dropout(m, x, c->embd_dropout);
}

void merak_hf_describe_bert(struct merak_model *m,
                            const struct merak_hf_config *c)
{
    const size_t B = merak_model_micro_batch(m);
    const size_t square[] = {c->hidden, c->hidden};
    struct merak_value *table, *bias, *x, *lengths;

    if (!merak_hf_check_seq(m, c))
        return;
    x = embed(m, c, &table);
    lengths = merak_input(m, "lengths", MERAK_I32, "b", &B);
    for (size_t i = 0; i < c->layers; i++)
        x = layer(m, c, x, lengths, merak_name(m, "bert.encoder.layer.%zu", i));
    x = linear(m, c, x, "cls.predictions.transform.dense", 1, 2, square);
    x = merak_hf_layernorm(m, c, merak_hf_activate(m, c, x),
                           "cls.predictions.transform.LayerNorm");
    if (!c->tied)
        table = MERAK_PARAM(m, "cls.predictions.decoder.weight",
                            MERAK_NORMAL(c->init_std), c->vocab, c->hidden);
    bias = MERAK_PARAM(m,
                       c->tied ? "cls.predictions.bias"
                               : "cls.predictions.decoder.bias",
                       MERAK_ZEROS, c->vocab);
    x = merak_linear(m, x, table, bias, 1);
    merak_cross_entropy(m, x, merak_labels(m, "masked", "bt"));
}
