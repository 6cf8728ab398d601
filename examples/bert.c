/* SPDX-License-Identifier: Apache-2.0 */
/* bert.c - an encoder that fills in masked words
 *
 *   ./bert base --data books --seq 128 --mask-id 103    alone
 *   srun -n4 --merak-tp=2 --merak-pp=2 ./bert base --data masked.json --seq 128
 *   ./bert large plan --nodes 2 --ranks-per-node 8 --device h100 --seq 512 \
 *       --global-batch 4096
 *
 * books is a token file: 15 % of the words of a sample are hidden by the mask,
 * id 103 in the vocabulary of 30522 (--corrupt in merak-train(1)).  In
 * masked.json they are hidden already, integers in npy or HDF5 files:
 *
 *   {"ids": "ids.npy", "types": "types.npy", "lengths": "lengths.npy",
 *    "masked": "masked.npy"}
 *
 * ids is [samples, seq], with the mask's id where a word is hidden; types has
 * 0 or 1, which of two texts a word is of; lengths [samples] how many words a
 * sample has, behind which nothing is read; masked the words that were hidden,
 * and -1 elsewhere.  The model is that of Devlin et al. 2019 (arXiv:1810.04805)
 * without the prediction of next sentences.
 */
#include <merak/merak.h>

#include <stdio.h>
#include <string.h>

static struct bert {
    const char *name;
    int layers;
    size_t width, heads, vocabulary, positions;
} sizes[] = {
    {"tiny", 2, 64, 4, 258, 128},
    {"base", 12, 768, 12, 30522, 512},
    {"large", 24, 1024, 16, 30522, 512},
};
enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

#define WEIGHT(name, ...) MERAK_PARAM(m, name, MERAK_NORMAL(0.02f), __VA_ARGS__)
#define BIAS(name, ...) MERAK_PARAM(m, name, MERAK_ZEROS, __VA_ARGS__)

static struct merak_value *norm(struct merak_model *m, struct merak_value *x,
                                const char *name, size_t C)
{
    return merak_layernorm(
        m, x, MERAK_PARAM(m, merak_name(m, "%s.weight", name), MERAK_ONES, C),
        MERAK_PARAM(m, merak_name(m, "%s.bias", name), MERAK_ZEROS, C), 1e-12f);
}

static struct merak_value *layer(struct merak_model *m, struct merak_value *x,
                                 struct merak_value *lengths,
                                 const struct bert *c, int i)
{
    const size_t C = c->width, H = c->heads, D = C / H;
    const struct merak_attention_options all = {
        .mask = MERAK_MASK_FULL, .dropout = 0.1f, .key_lengths = lengths};
    struct merak_value *h;

    h = merak_linear(m, x,
                     WEIGHT(merak_name(m, "h.%d.qkv.weight", i), 3, H, D, C),
                     BIAS(merak_name(m, "h.%d.qkv.bias", i), 3, H, D), 1);
    h = merak_attention_packed_with(m, h, &all);
    h = merak_linear(m, h, WEIGHT(merak_name(m, "h.%d.out.weight", i), C, H, D),
                     BIAS(merak_name(m, "h.%d.out.bias", i), C), 2);
    x = merak_add(m, x, merak_dropout(m, h, 0.1f));
    x = norm(m, x, merak_name(m, "h.%d.norm_1", i), C);
    h = merak_linear(m, x, WEIGHT(merak_name(m, "h.%d.up.weight", i), 4 * C, C),
                     BIAS(merak_name(m, "h.%d.up.bias", i), 4 * C), 1);
    h = merak_linear(m, merak_gelu(m, h, false),
                     WEIGHT(merak_name(m, "h.%d.down.weight", i), C, 4 * C),
                     BIAS(merak_name(m, "h.%d.down.bias", i), C), 1);
    x = merak_add(m, x, merak_dropout(m, h, 0.1f));
    return norm(m, x, merak_name(m, "h.%d.norm_2", i), C);
}

static void describe(struct merak_model *m, void *arg)
{
    const struct bert *c = arg;
    const size_t C = c->width;
    const size_t dim[] = {merak_model_micro_batch(m), merak_model_seq(m)};
    struct merak_value *words = WEIGHT("words", c->vocabulary, C);
    struct merak_value *ids = merak_input(m, "ids", MERAK_I32, "bt", dim);
    struct merak_value *types = merak_input(m, "types", MERAK_I32, "bt", dim);
    struct merak_value *lengths =
        merak_input(m, "lengths", MERAK_I32, "b", dim);
    struct merak_value *x = merak_embedding(m, ids, words);

    x = merak_add(m, x, merak_embedding(m, types, WEIGHT("types.table", 2, C)));
    x = merak_add_position(m, x, WEIGHT("positions", c->positions, C));
    x = merak_dropout(m, norm(m, x, "norm", C), 0.1f);
    for (int i = 0; i < c->layers; i++)
        x = layer(m, x, lengths, c, i);
    x = merak_linear(m, x, WEIGHT("head.weight", C, C), BIAS("head.bias", C),
                     1);
    x = norm(m, merak_gelu(m, x, false), "head.norm", C);
    x = merak_linear(m, x, words, BIAS("words.bias", c->vocabulary), 1);
    merak_cross_entropy(m, x, merak_labels(m, "masked", "bt"));
}

/* The size is the first word; all others are the run's. */
int main(int argc, char **argv)
{
    int i = 0;

    while (i < SIZES && (argc < 2 || strcmp(argv[1], sizes[i].name) != 0))
        i++;
    if (i == SIZES) {
        fprintf(stderr, "bert: expected a size first: tiny, base or large\n");
        return 64;
    }
    argv[1] = argv[0];
    return merak_train(argc - 1, argv + 1, describe, &sizes[i]);
}
