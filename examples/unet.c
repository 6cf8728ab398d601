/* SPDX-License-Identifier: Apache-2.0 */
/* unet.c - a model that is no chain: a U, whose way up reads the way down
 *
 *   ./unet --data PREFIX                            alone
 *   srun -n4 --merak-pp=4 ./unet --data PREFIX      on four stages
 *
 * Each level is half as wide as the one above it.  Described level by level,
 * down and up, such layers are hard to share out evenly; the run puts them in
 * a better order, and says so.
 */
#include <merak/merak.h>

#define LEVELS 2
#define WIDTH 128
#define HEADS 4
#define VOCAB 257
#define DROPOUT 0.1f

#define WEIGHT(name, ...) MERAK_PARAM(m, name, MERAK_NORMAL(0.05f), __VA_ARGS__)
#define NORM(x, name, width) \
    merak_rmsnorm(m, x, MERAK_PARAM(m, name, MERAK_ONES, width), 1e-6f)

/* in wide to out wide; beside what it adds to where these are the same. */
static struct merak_value *layer(struct merak_model *m, struct merak_value *x,
                                 const char *name, size_t in, size_t out)
{
    struct merak_value *h = NORM(x, merak_name(m, "%s.norm", name), in);

    h = merak_linear(m, h, WEIGHT(merak_name(m, "%s.in", name), 4 * out, in),
                     NULL, 1);
    h = merak_gelu(m, h, true);
    h = merak_linear(m, h, WEIGHT(merak_name(m, "%s.out", name), out, 4 * out),
                     NULL, 1);
    h = merak_dropout(m, h, DROPOUT);
    return in == out ? merak_add(m, x, h) : h;
}

static struct merak_value *bottom(struct merak_model *m, struct merak_value *x,
                                  size_t C)
{
    const size_t H = HEADS, D = C / HEADS;
    struct merak_value *h = NORM(x, "bottom.norm", C);

    h = merak_linear(m, h, WEIGHT("bottom.qkv", 3, H, D, C), NULL, 1);
    h = merak_linear(m, merak_attention_packed(m, h),
                     WEIGHT("bottom.proj", C, H, D), NULL, 2);
    return merak_add(m, x, merak_dropout(m, h, DROPOUT));
}

static void describe(struct merak_model *m, void *arg)
{
    struct merak_value *table = WEIGHT("embedding", VOCAB, WIDTH);
    struct merak_value *x = merak_embedding(m, merak_tokens(m), table);
    struct merak_value *skip[LEVELS];
    size_t C = WIDTH;

    (void)arg;
    x = merak_add_position(m, x, WEIGHT("position", merak_model_seq(m), C));
    for (int l = 0; l < LEVELS; l++, C /= 2) {
        skip[l] = layer(m, x, merak_name(m, "down.%d", l), C, C);
        x = layer(m, skip[l], merak_name(m, "narrow.%d", l), C, C / 2);
    }
    x = bottom(m, x, C);
    for (int l = LEVELS - 1; l >= 0; l--, C *= 2) {
        x = layer(m, x, merak_name(m, "widen.%d", l), C, 2 * C);
        x = merak_add(m, x, skip[l]);
        x = layer(m, x, merak_name(m, "up.%d", l), 2 * C, 2 * C);
    }
    x = NORM(x, "norm", C);
    merak_cross_entropy(m, merak_linear(m, x, table, NULL, 1),
                        merak_targets(m));
}

int main(int argc, char **argv)
{
    return merak_train(argc, argv, describe, NULL);
}
