/* SPDX-License-Identifier: Apache-2.0 */
/* dag_models.c - see dag_models.h */
#include "config.h"

#include "unit/dag_models.h"

static struct merak_value *layer(struct merak_model *m, struct merak_value *x,
                                 const char *name, size_t in, size_t out,
                                 int wide)
{
    size_t mid = (size_t)wide * out;
    struct merak_value *up, *down, *h;

    up = MERAK_PARAM(m, merak_name(m, "%s.up", name), MERAK_NORMAL(0.1f), mid,
                     in);
    down = MERAK_PARAM(m, merak_name(m, "%s.down", name), MERAK_NORMAL(0.1f),
                       out, mid);
    h = merak_gelu(m, merak_linear(m, x, up, NULL, 1), true);
    h = merak_linear(m, h, down, NULL, 1);
    return in == out ? merak_add(m, x, h) : h;
}

static void finish(struct merak_model *m, struct merak_value *x, size_t c)
{
    struct merak_value *head =
        MERAK_PARAM(m, "head", MERAK_NORMAL(0.1f), 32, c);

    merak_cross_entropy(m, merak_linear(m, x, head, NULL, 1), merak_targets(m));
}

static struct merak_value *embed(struct merak_model *m, const char *name,
                                 size_t c)
{
    struct merak_value *table = MERAK_PARAM(m, name, MERAK_NORMAL(0.1f), 32, c);

    return merak_embedding(m, merak_tokens(m), table);
}

static void towers(struct merak_model *m, void *arg)
{
    struct merak_value *a = embed(m, "wte", 16), *b;

    (void)arg;
    for (int l = 0; l < 3; l++)
        a = layer(m, a, merak_name(m, "a.%d", l), 16, 16, 2);
    b = embed(m, "wte.b", 16);
    for (int l = 0; l < 3; l++)
        b = layer(m, b, merak_name(m, "b.%d", l), 16, 16, 4);
    finish(m, merak_add(m, a, b), 16);
}

/* As towers(), but a layer of each in turn. */
static void in_turns(struct merak_model *m, void *arg)
{
    struct merak_value *a = embed(m, "wte", 16), *b = embed(m, "wte.b", 16);

    (void)arg;
    for (int l = 0; l < 5; l++) {
        a = layer(m, a, merak_name(m, "a.%d", l), 16, 16, 3);
        b = layer(m, b, merak_name(m, "b.%d", l), 16, 16, 3);
    }
    finish(m, merak_add(m, a, b), 16);
}

/* A layer beside the trunk that is read at its end only. */
static void early_branch(struct merak_model *m, void *arg)
{
    struct merak_value *side = embed(m, "wte.side", 16), *x;

    (void)arg;
    side = layer(m, side, "side", 16, 16, 2);
    x = embed(m, "wte", 16);
    for (int l = 0; l < 8; l++)
        x = layer(m, x, merak_name(m, "h.%d", l), 16, 16, 2);
    finish(m, merak_add(m, x, side), 16);
}

/* 32 wide, then 16, then 8, and back; each half knows the other's values. */
static void u_net(struct merak_model *m, void *arg)
{
    struct merak_value *x = embed(m, "wte", 32), *outer, *inner;

    (void)arg;
    outer = layer(m, x, "down.0", 32, 32, 2);
    x = layer(m, outer, "down.1", 32, 16, 2);
    inner = layer(m, x, "down.2", 16, 16, 2);
    x = layer(m, inner, "down.3", 16, 8, 2);
    x = layer(m, x, "bottom", 8, 8, 4);
    x = merak_add(m, layer(m, x, "up.3", 8, 16, 2), inner);
    x = layer(m, x, "up.2", 16, 16, 2);
    x = merak_add(m, layer(m, x, "up.1", 16, 32, 2), outer);
    finish(m, layer(m, x, "up.0", 32, 32, 2), 32);
}

static void uneven(struct merak_model *m, void *arg)
{
    struct merak_value *x = embed(m, "wte", 16);

    (void)arg;
    for (int l = 0; l < 6; l++)
        x = layer(m, x, merak_name(m, "h.%d", l), 16, 16, l == 4 ? 16 : 2);
    finish(m, x, 16);
}

/* One branch of a module: so many layers one after the other, none of which
 * adds to what it reads. */
static struct merak_value *branch(struct merak_model *m, struct merak_value *x,
                                  const char *name, int deep)
{
    for (int l = 0; l < deep; l++) {
        struct merak_value *w = MERAK_PARAM(m, merak_name(m, "%s.%d", name, l),
                                            MERAK_NORMAL(0.2f), 16, 16);

        x = merak_gelu(m, merak_linear(m, x, w, NULL, 1), true);
    }
    return x;
}

/* Modules of four branches beside each other, of unlike depth. */
static void inception(struct merak_model *m, void *arg)
{
    struct merak_value *x = embed(m, "wte", 16);

    (void)arg;
    for (int l = 0; l < 2; l++) {
        struct merak_value *y[4];

        for (int k = 0; k < 4; k++)
            y[k] = branch(m, x, merak_name(m, "m.%d.%d", l, k), 2 + 3 * k);
        x = merak_add(m, merak_add(m, y[0], y[1]), merak_add(m, y[2], y[3]));
    }
    finish(m, x, 16);
}

const struct dag_model dag_models[N_DAG_MODELS] = {
    {"towers", towers},
    {"u-net", u_net},
    {"uneven", uneven},
    {"in turns", in_turns},
    {"early branch", early_branch},
    {"inception", inception}};
