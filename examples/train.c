/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - a small GPT with rotary positions, described as for one device
 *
 *   ./train --data PREFIX                                      alone
 *   srun -n32 --merak-tp=8 --merak-pp=4 ./train --data PREFIX  on 32 tasks
 *
 * Nothing here mentions ranks, groups or stages.
 */
#include <merak/merak.h>

struct gpt {
    int layers;
    size_t heads, head_dim, width, vocab;
};

/* A parameter called "h.LAYER.NAME", normally distributed. */
#define WEIGHT(layer, name, ...)                                               \
    MERAK_PARAM(m, merak_name(m, "h.%d." name, layer), MERAK_NORMAL(0.05f),    \
                __VA_ARGS__)
#define NORM(x, layer, name)                                                   \
    merak_rmsnorm(m, x,                                                        \
                  MERAK_PARAM(m, merak_name(m, "h.%d." name, layer),           \
                              MERAK_ONES, g->width),                           \
                  1e-6f)

static struct merak_value *attention(struct merak_model *m,
                                     struct merak_value *x,
                                     const struct gpt *g, int i)
{
    const size_t H = g->heads, D = g->head_dim, C = g->width;
    struct merak_value *q, *k, *v, *h = NORM(x, i, "norm_1");

    /* queries [H, 1, D]: one for each of H key-value heads */
    q = merak_linear(m, h, WEIGHT(i, "q", H, 1, D, C), NULL, 1);
    k = merak_linear(m, h, WEIGHT(i, "k", H, D, C), NULL, 1);
    v = merak_linear(m, h, WEIGHT(i, "v", H, D, C), NULL, 1);
    h = merak_attention(m, merak_rope(m, q, 1e4f), merak_rope(m, k, 1e4f), v);
    h = merak_linear(m, h, WEIGHT(i, "proj", C, H, 1, D), NULL, 3);
    return merak_add(m, x, h);
}

static struct merak_value *feed_forward(struct merak_model *m,
                                        struct merak_value *x,
                                        const struct gpt *g, int i)
{
    const size_t C = g->width;
    struct merak_value *h = NORM(x, i, "norm_2");

    h = merak_swiglu(
        m, merak_linear(m, h, WEIGHT(i, "gate", 3 * C, C), NULL, 1),
        merak_linear(m, h, WEIGHT(i, "up", 3 * C, C), NULL, 1));
    h = merak_linear(m, h, WEIGHT(i, "down", C, 3 * C), NULL, 1);
    return merak_add(m, x, h);
}

static void describe(struct merak_model *m, void *arg)
{
    const struct gpt *g = arg;
    struct merak_value *x, *table = MERAK_PARAM(
        m, "embedding", MERAK_NORMAL(0.05f), g->vocab, g->width);

    x = merak_embedding(m, merak_tokens(m), table);
    for (int i = 0; i < g->layers; i++)
        x = feed_forward(m, attention(m, x, g, i), g, i);
    x = NORM(x, g->layers, "norm");
    merak_cross_entropy(m, merak_linear(m, x, table, NULL, 1),
                        merak_targets(m));
}

int main(int argc, char **argv)
{
    struct gpt g = {8, 16, 8, 96, 257}; /* 1.1 million parameters, bytes */

    return merak_train(argc, argv, describe, &g);
}
