/* SPDX-License-Identifier: Apache-2.0 */
/* instance.c - small models on small machines, drawn by chance */
#include "config.h"

#include "unit/instance.h"

#include "base/rng.h"

#include <float.h>
#include <math.h>

#define SEQ 8

static struct merak_value *layer(struct merak_model *m, struct merak_value *x,
                                 size_t c, size_t wide, int l)
{
    struct merak_value *w, *h;

    w = MERAK_PARAM(m, merak_name(m, "h.%d.up", l), MERAK_NORMAL(0.02f), wide,
                    c);
    h = merak_gelu(m, merak_linear(m, x, w, NULL, 1), true);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.down", l), MERAK_NORMAL(0.02f), c,
                    wide);
    return merak_add(m, x, merak_linear(m, h, w, NULL, 1));
}

void instance_describe(struct merak_model *m, void *arg)
{
    const struct instance *it = arg;
    size_t c = it->hidden;
    struct merak_value *wte, *x, *first, *head;

    wte = MERAK_PARAM(m, "wte", MERAK_NORMAL(0.02f), it->vocab, c);
    x = first = merak_embedding(m, merak_tokens(m), wte);
    for (int l = 0; l < it->layers; l++)
        x = layer(m, x, c, l % 2 == 1 ? it->wide : 4 * c, l);
    if (it->skip)
        x = merak_add(m, x, first);
    head = it->tied ? wte
                    : MERAK_PARAM(m, "head", MERAK_NORMAL(0.02f), it->vocab, c);
    merak_cross_entropy(m, merak_linear(m, x, head, NULL, 1), merak_targets(m));
}

static uint64_t draw_key, draw_at;

static size_t draw(size_t n)
{
    return (size_t)(merak_rng_uniform(draw_key, draw_at++) * (float)n);
}

/* 10^low .. 10^high */
static double draw_scale(double low, double high)
{
    return pow(10, low + (high - low) *
                             (double)merak_rng_uniform(draw_key, draw_at++));
}

static void free_choice(struct instance *it, int what)
{
    static const char *const schedules[] = {"1f1b", "early", "scp", "last"};
    struct merak_choices *pin = &it->in.pin;

    pin->chunks = 1;
    pin->given[MERAK_CHOICE_SUB_PIPELINE] = true;
    pin->given[MERAK_CHOICE_RECOMPUTE] = true;
    pin->recompute = MERAK_RECOMPUTE_NONE;
    if (what == FREE_RECOMPUTE) {
        pin->given[MERAK_CHOICE_RECOMPUTE] = false;
        pin->schedule = schedules[draw(4)];
    } else if (what == FREE_CHUNKS) {
        pin->chunks = 0;
        pin->schedule = NULL;
        it->layers = 1; /* there are many ways to cut more */
    } else if (what == FREE_SUB_PIPELINE) {
        pin->given[MERAK_CHOICE_SUB_PIPELINE] = false;
    }
}

void instance_draw(struct instance *it, int seed)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "eager", NULL};
    static const int ranks[][2] = {{1, 2}, {2, 1}, {1, 4}, {2, 2},
                                   {4, 1}, {1, 2}, {1, 4}, {2, 4}};
    size_t shape;

    draw_key = merak_rng_key((uint64_t)seed, "instance");
    draw_at = 0;
    shape = draw(8);
    *it = (struct instance){.layers = 1 + (int)draw(3),
                            .hidden = 8 << draw(3),
                            .vocab = 32 << draw(4),
                            .wide = 8 << draw(5),
                            .tied = draw(2) == 0,
                            .skip = draw(4) == 0};
    it->device = (struct merak_device){
        .links.level[0].ranks = ranks[shape][1],
        .memory_bytes = (size_t)1 << 30,
        .bytes_per_s = draw_scale(9, 10),
        .kernel_s = draw_scale(-7, -5),
    };
    it->device.links.level[0].bytes_per_s = draw_scale(8, 10);
    it->device.links.level[0].latency_s = draw_scale(-7, -5);
    it->device.flops_per_s[MERAK_F32] = draw_scale(9.5, 11);
    it->device.peak_flops_per_s[MERAK_F32] = 1e12;
    it->device.links.level[1].bytes_per_s =
        it->device.links.level[0].bytes_per_s / draw_scale(0, 1);
    it->device.links.level[1].latency_s =
        it->device.links.level[0].latency_s * draw_scale(0, 1);
    it->in = (struct merak_search_input){.describe = instance_describe,
                                         .arg = it,
                                         .seq = SEQ,
                                         .dtype = MERAK_F32,
                                         .global_batch = 2 << draw(2),
                                         .nodes = ranks[shape][0],
                                         .ranks_per_node = ranks[shape][1],
                                         .threads = 1,
                                         .device = &it->device};
    if (ranks[shape][0] * ranks[shape][1] == 8) { /* keep the oracle short */
        it->layers = 1;
        it->in.global_batch = 4;
    }
    it->in.pin.schedule = schedules[draw(ranks[shape][1] == 4 ? 3 : 4)];
    it->in.pin.zero = draw(2) == 0;
    it->in.pin.given[MERAK_CHOICE_ZERO] = seed % 3 != 1;
    free_choice(it, seed % FREE_CHOICES);
}

double instance_step(const struct instance *it)
{
    struct merak_search_result *result = NULL;
    double step;

    if (merak_search(&it->in, &result, NULL) != MERAK_OK)
        return DBL_MAX;
    step = result->choice[0].step_s;
    merak_search_destroy(result);
    return step;
}
