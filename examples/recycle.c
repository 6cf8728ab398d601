/* SPDX-License-Identifier: Apache-2.0 */
/* recycle.c - a model that reads its own output again, as AlphaFold does
 *
 *   ./recycle 3 --data PREFIX                                    alone
 *   srun -n4 --merak-tp=2 --merak-pp=2 ./recycle 3 --data PREFIX on four tasks
 *
 * The number is that of forward passes: of 3, two without gradients, then one
 * with.  Without a number there is one pass, and nothing is recycled.
 */
#include <merak/merak.h>

#include <stdio.h>
#include <stdlib.h>

struct recycler {
    int passes, layers;
    size_t heads, head_dim, width, vocab;
    float dropout;
};

#define WEIGHT(name, ...) MERAK_PARAM(m, name, MERAK_NORMAL(0.05f), __VA_ARGS__)
#define NORM(x, name) \
    merak_rmsnorm(m, x, MERAK_PARAM(m, name, MERAK_ONES, r->width), 1e-6f)

static struct merak_value *layer(struct merak_model *m, struct merak_value *x,
                                 const struct recycler *r, int i)
{
    const size_t C = r->width, H = r->heads, D = r->head_dim;
    struct merak_value *h = NORM(x, merak_name(m, "h.%d.norm_1", i));

    h = merak_linear(m, h, WEIGHT(merak_name(m, "h.%d.qkv", i), 3, H, D, C),
                     NULL, 1);
    h = merak_linear(m, merak_attention_packed(m, h),
                     WEIGHT(merak_name(m, "h.%d.proj", i), C, H, D), NULL, 2);
    x = merak_add(m, x, merak_dropout(m, h, r->dropout));
    h = NORM(x, merak_name(m, "h.%d.norm_2", i));
    h = merak_gelu(m,
                   merak_linear(m, h,
                                WEIGHT(merak_name(m, "h.%d.up", i), 4 * C, C),
                                NULL, 1),
                   true);
    h = merak_linear(m, h, WEIGHT(merak_name(m, "h.%d.down", i), C, 4 * C),
                     NULL, 1);
    return merak_add(m, x, merak_dropout(m, h, r->dropout));
}

static void describe(struct merak_model *m, void *arg)
{
    const struct recycler *r = arg;
    const size_t B = merak_model_micro_batch(m), T = merak_model_seq(m);
    struct merak_value *table = WEIGHT("embedding", r->vocab, r->width);
    struct merak_value *x = merak_embedding(m, merak_tokens(m), table);
    struct merak_value *before = NULL;

    x = merak_add_position(m, x, WEIGHT("position", T, r->width));
    if (r->passes > 1) {
        merak_passes(m, r->passes);
        before = MERAK_RECYCLED(m, B, T, r->width);
        x = merak_add(m, x, NORM(before, "recycled"));
    }
    for (int i = 0; i < r->layers; i++)
        x = layer(m, x, r, i);
    if (r->passes > 1)
        merak_recycle(m, before, x);
    x = NORM(x, "norm");
    merak_cross_entropy(m, merak_linear(m, x, table, NULL, 1),
                        merak_targets(m));
}

int main(int argc, char **argv)
{
    struct recycler r = {1, 4, 4, 16, 64, 257, 0.1f};

    if (argc > 1 && argv[1][0] != '-') {
        char *end;

        r.passes = (int)strtol(argv[1], &end, 10);
        if (*end != '\0' || r.passes < 1) {
            fprintf(stderr, "recycle: %s passes given, expected a number of 1 "
                            "or more: recycle 3 --data ...\n",
                    argv[1]);
            return 66;
        }
        argv[1] = argv[0];
        argc--;
        argv++;
    }
    return merak_train(argc, argv, describe, &r);
}
