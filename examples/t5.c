/* SPDX-License-Identifier: Apache-2.0 */
/* t5.c - an encoder and a decoder, from one text to another
 *
 *   ./t5 small 512 --data books --seq 114 --sentinel-id 32099      alone
 *   srun -n8 --merak-tp=2 --merak-pp=4 ./t5 small 512 --data spans.json --seq
 * 114
 *   ./t5 3b 512 plan --nodes 4 --ranks-per-node 8 --device h100 --seq 114 \
 *       --global-batch 2048
 *
 * with texts of 512 tokens in and --seq out.  books is a token file, of which
 * spans are hidden: 114 tokens to be predicted for 512 that are left, sentinels
 * included (--corrupt in merak-train(1)).  spans.json has any texts, of integers
 * in npy or HDF5 files:
 *
 *   {"source": "source.npy", "lengths": "lengths.npy",
 *    "decoder": "decoder.npy", "labels": "labels.npy"}
 *
 * source is [samples, 512], and lengths [samples] how many of its tokens a
 * sample has, behind which nothing is read; labels [samples, seq] is the text
 * to be predicted, -1 behind its end; decoder the same one position later,
 * behind the padding token, 0.  The model is that of Raffel et al. 2020
 * (arXiv:1910.10683), and parameters are named as in published weights.
 */
#include <merak/merak.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct t5 {
    const char *name;
    int layers; /* of each half */
    size_t width, heads, channels, inner, vocabulary;
    float dropout;
    size_t source; /* tokens of a text in */
} sizes[] = {
    {"tiny", 2, 64, 4, 16, 128, 258, 0.1f, 0},
    {"small", 6, 512, 8, 64, 2048, 32128, 0.1f, 0},
    {"base", 12, 768, 12, 64, 3072, 32128, 0.1f, 0},
    {"large", 24, 1024, 16, 64, 4096, 32128, 0.1f, 0},
    {"3b", 24, 1024, 32, 128, 16384, 32128, 0.1f, 0},
    {"11b", 24, 1024, 128, 128, 65536, 32128, 0.1f, 0},
};
enum { SIZES = sizeof(sizes) / sizeof(*sizes), BUCKETS = 32, FARTHEST = 128 };

/* Weights begin so that scores need no scale. */
#define WEIGHT(n, ...) \
    MERAK_PARAM(m, name, MERAK_NORMAL(1 / sqrtf((float)(n))), __VA_ARGS__)

static struct merak_value *norm(struct merak_model *m, struct merak_value *x,
                                const struct t5 *c, const char *name)
{
    return merak_rmsnorm(m, x, MERAK_PARAM(m, name, MERAK_ONES, c->width),
                         1e-6f);
}

/* What queries of x make of keys and values of `of`. */
static struct merak_value *attend(struct merak_model *m, const struct t5 *c,
                                  struct merak_value *x, struct merak_value *of,
                                  const char *part,
                                  const struct merak_attention_options *opt)
{
    const size_t C = c->width, H = c->heads, D = c->channels;
    struct merak_value *q, *k, *v;
    const char *name = merak_name(m, "%s.q.weight", part);

    q = merak_linear(m, x, WEIGHT(C * D, H, 1, D, C), NULL, 1);
    name = merak_name(m, "%s.k.weight", part);
    k = merak_linear(m, of, WEIGHT(C, H, D, C), NULL, 1);
    name = merak_name(m, "%s.v.weight", part);
    v = merak_linear(m, of, WEIGHT(C, H, D, C), NULL, 1);
    name = merak_name(m, "%s.o.weight", part);
    return merak_linear(m, merak_attention_with(m, q, k, v, opt),
                        WEIGHT(H * D, C, H, 1, D), NULL, 3);
}

static struct merak_value *feed(struct merak_model *m, const struct t5 *c,
                                struct merak_value *x, const char *part)
{
    const char *name = merak_name(m, "%s.wi.weight", part);
    struct merak_value *h =
        merak_linear(m, x, WEIGHT(c->width, c->inner, c->width), NULL, 1);

    h = merak_dropout(m, merak_relu(m, h), c->dropout);
    name = merak_name(m, "%s.wo.weight", part);
    return merak_linear(m, h, WEIGHT(c->inner, c->width, c->inner), NULL, 1);
}

/* All layers of a half; `of`: what the encoder made, or NULL in the encoder.
 * lengths are of its text. */
static struct merak_value *half(struct merak_model *m, const struct t5 *c,
                                struct merak_value *x, struct merak_value *of,
                                struct merak_value *lengths)
{
    const char *side = of == NULL ? "encoder" : "decoder";
    const char *name =
        merak_name(m,
                   "%s.block.0.layer.0.SelfAttention.relative_attention_bias"
                   ".weight",
                   side);
    const struct merak_attention_options own = {
        .scale = 1,
        .dropout = c->dropout,
        .mask = of == NULL ? MERAK_MASK_FULL : MERAK_MASK_CAUSAL,
        .key_lengths = of == NULL ? lengths : NULL,
        .bias = {WEIGHT(c->width, BUCKETS, c->heads, 1), FARTHEST,
                 .both_ways = of == NULL}};
    const struct merak_attention_options other = {.scale = 1,
                                                  .dropout = c->dropout,
                                                  .mask = MERAK_MASK_FULL,
                                                  .key_lengths = lengths};

    x = merak_dropout(m, x, c->dropout);
    for (int i = 0; i < c->layers; i++) {
        const char *layer = merak_name(m, "%s.block.%d.layer.", side, i);
        int n = 0;
        struct merak_value *h =
            norm(m, x, c, merak_name(m, "%s%d.layer_norm.weight", layer, n));

        h = attend(m, c, h, h, merak_name(m, "%s%d.SelfAttention", layer, n++),
                   &own);
        x = merak_add(m, x, merak_dropout(m, h, c->dropout));
        if (of != NULL) {
            h = norm(m, x, c,
                     merak_name(m, "%s%d.layer_norm.weight", layer, n));
            h = attend(m, c, h, of,
                       merak_name(m, "%s%d.EncDecAttention", layer, n++),
                       &other);
            x = merak_add(m, x, merak_dropout(m, h, c->dropout));
        }
        h = norm(m, x, c, merak_name(m, "%s%d.layer_norm.weight", layer, n));
        h = feed(m, c, h, merak_name(m, "%s%d.DenseReluDense", layer, n));
        x = merak_add(m, x, merak_dropout(m, h, c->dropout));
    }
    name = merak_name(m, "%s.final_layer_norm.weight", side);
    return merak_dropout(m, norm(m, x, c, name), c->dropout);
}

static void describe(struct merak_model *m, void *arg)
{
    const struct t5 *c = arg;
    const size_t B = merak_model_micro_batch(m), T = merak_model_seq(m);
    struct merak_value *words = MERAK_PARAM(m, "shared.weight", MERAK_NORMAL(1),
                                            c->vocabulary, c->width);
    struct merak_value *source = merak_input(m, "source", MERAK_I32, "bs",
                                             (const size_t[]){B, c->source});
    struct merak_value *lengths = merak_input(m, "lengths", MERAK_I32, "b", &B);
    struct merak_value *decoder =
        merak_input(m, "decoder", MERAK_I32, "bt", (const size_t[]){B, T});
    struct merak_value *x = merak_embedding(m, source, words);

    x = half(m, c, x, NULL, lengths);
    x = half(m, c, merak_embedding(m, decoder, words), x, lengths);
    x = merak_scale(m, x, 1 / sqrtf((float)c->width));
    merak_cross_entropy(m, merak_linear(m, x, words, NULL, 1),
                        merak_labels(m, "labels", "bt"));
}

/* The first words are the size and the tokens of a text in; all others are the
 * run's. */
int main(int argc, char **argv)
{
    int i = 0;

    while (i < SIZES && (argc < 3 || strcmp(argv[1], sizes[i].name) != 0))
        i++;
    if (i == SIZES || atoi(argv[2]) < 1) {
        fprintf(stderr, "t5: expected a size first, tiny, small, base, large, "
                        "3b or 11b, then the tokens of a text in: small 512\n");
        return 64;
    }
    sizes[i].source = (size_t)atoi(argv[2]);
    argv[2] = argv[0];
    return merak_train(argc - 2, argv + 2, describe, &sizes[i]);
}
