/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - a small GPT, described as for one device
 *
 *   ./train --data PREFIX                                   alone
 *   srun -n4 --merak-tp=2 --merak-pp=2 ./train --data PREFIX   on four tasks
 *
 * Nothing here mentions ranks, groups or stages.
 */
#include <merak/merak.h>

struct gpt {
    int layers;
    size_t heads, head_dim, vocab, positions;
};

static struct merak_value *norm(struct merak_model *m, struct merak_value *x,
                                size_t width, const char *name)
{
    return merak_layernorm(
        m, x, MERAK_PARAM(m, merak_name(m, "%s.weight", name), MERAK_ONES, width),
        MERAK_PARAM(m, merak_name(m, "%s.bias", name), MERAK_ZEROS, width),
        1e-5f);
}

static struct merak_value *layer(struct merak_model *m, struct merak_value *x,
                                 const struct gpt *g, int i)
{
    const size_t H = g->heads, D = g->head_dim, C = H * D;
    const struct merak_init init = MERAK_NORMAL(0.02f);
    struct merak_value *h;

    /* attention; queries, keys and values from one matrix */
    h = norm(m, x, C, merak_name(m, "h.%d.ln_1", i));
    h = merak_linear(
        m, h, MERAK_PARAM(m, merak_name(m, "h.%d.qkv", i), init, 3, H, D, C),
        NULL, 1);
    h = merak_attention_packed(m, h);
    h = merak_linear(
        m, h, MERAK_PARAM(m, merak_name(m, "h.%d.proj", i), init, C, H, D),
        NULL, 2);
    x = merak_add(m, x, h);

    /* the feed-forward part */
    h = norm(m, x, C, merak_name(m, "h.%d.ln_2", i));
    h = merak_linear(
        m, h, MERAK_PARAM(m, merak_name(m, "h.%d.fc", i), init, 4 * C, C),
        NULL, 1);
    h = merak_gelu(m, h, true);
    h = merak_linear(
        m, h, MERAK_PARAM(m, merak_name(m, "h.%d.out", i), init, C, 4 * C),
        NULL, 1);
    return merak_add(m, x, h);
}

static void describe(struct merak_model *m, void *arg)
{
    const struct gpt *g = arg;
    const size_t C = g->heads * g->head_dim;
    const struct merak_init init = MERAK_NORMAL(0.02f);
    struct merak_value *table, *x;

    table = MERAK_PARAM(m, "wte", init, g->vocab, C);
    x = merak_embedding(m, merak_tokens(m), table);
    x = merak_add_position(m, x, MERAK_PARAM(m, "wpe", init, g->positions, C));
    for (int i = 0; i < g->layers; i++)
        x = layer(m, x, g, i);
    x = norm(m, x, C, "ln_f");
    merak_cross_entropy(m, merak_linear(m, x, table, NULL, 1),
                        merak_targets(m));
}

int main(int argc, char **argv)
{
    struct gpt g = {4, 4, 32, 257, 1024}; /* 0.9 million parameters, bytes */

    return merak_train(argc, argv, describe, &g);
}
