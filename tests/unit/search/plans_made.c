/* SPDX-License-Identifier: Apache-2.0 */
/* plans_made.c - prints what the planner makes of random models and requests
 *
 *   unit/plans_made [GRAPHS [SEARCHES]]
 *
 * A line each for GRAPHS, a fourth of them again with state that replicas share
 * out (ZeRO) or the host has, and SEARCHES: what was drawn, and a digest of all
 * programs as printed, with the memory and the time of each; or of the plan
 * that a search finds.  Two builds that are to plan alike print the same
 * (tests/README.md).
 */
#include "config.h"

#include "unit/instance.h"

#include "base/rng.h"
#include "partitioner/simulate/check.h"
#include "partitioner/simulate/simulate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- drawing --------------------------------------------------------------
 */

struct draws {
    uint64_t key, at;
};

static int draw(struct draws *d, int n)
{
    return (int)(merak_rng_mix(d->key, d->at++) % (uint64_t)n);
}

struct graph {
    uint64_t seed;
    bool recycles, experts;
};

#define MOST_VALUES 12

static struct merak_value *weight(struct merak_model *m, const char *name,
                                  size_t out, size_t in)
{
    return MERAK_PARAM(m, name, MERAK_NORMAL(0.1f), out, in);
}

static struct merak_value *attention(struct merak_model *m,
                                     struct merak_value *x, int l, size_t c)
{
    struct merak_value *w = MERAK_PARAM(m, merak_name(m, "h.%d.qkv", l),
                                        MERAK_NORMAL(0.1f), 3, 4, c / 4, c);
    struct merak_value *h =
        merak_attention_packed(m, merak_linear(m, x, w, NULL, 1));

    w = MERAK_PARAM(m, merak_name(m, "h.%d.proj", l), MERAK_NORMAL(0.1f), c, 4,
                    c / 4);
    return merak_linear(m, h, w, NULL, 2);
}

static struct merak_value *mlp(struct merak_model *m, struct draws *d,
                               struct merak_value *x, int l, size_t c)
{
    size_t wide = c * (size_t)(1 + draw(d, 4));
    struct merak_value *up = weight(m, merak_name(m, "h.%d.up", l), wide, c);
    struct merak_value *h = merak_linear(m, x, up, NULL, 1);

    if (draw(d, 3) == 0)
        h = merak_swiglu(
            m,
            merak_linear(m, x,
                         weight(m, merak_name(m, "h.%d.gate", l), wide, c),
                         NULL, 1),
            h);
    else
        h = merak_gelu(m, h, draw(d, 2) == 0);
    return merak_linear(m, h, weight(m, merak_name(m, "h.%d.down", l), c, wide),
                        NULL, 1);
}

/* Experts in place of an MLP. */
static struct merak_value *mixture(struct merak_model *m, struct draws *d,
                                   struct merak_value *x, int l, size_t c)
{
    size_t n = (size_t)4 << draw(d, 2), wide = c * (size_t)(1 + draw(d, 2));
    const struct merak_route_options route = {.k = (size_t)(1 + draw(d, 3)),
                                              .normalise = draw(d, 2) == 0};
    struct merak_value *weights, *ids, *gate, *up, *down;

    merak_route(m,
                merak_linear(m, x,
                             weight(m, merak_name(m, "h.%d.router", l), n, c),
                             NULL, 1),
                NULL, &route, &weights, &ids);
    gate = MERAK_PARAM(m, merak_name(m, "h.%d.gate", l), MERAK_NORMAL(0.1f), n,
                       wide, c);
    up = MERAK_PARAM(m, merak_name(m, "h.%d.up", l), MERAK_NORMAL(0.1f), n,
                     wide, c);
    down = MERAK_PARAM(m, merak_name(m, "h.%d.down", l), MERAK_NORMAL(0.1f), n,
                       c, wide);
    return merak_experts(m, x, weights, ids, gate, up, down);
}

static struct merak_value *layer(struct merak_model *m, struct draws *d,
                                 struct merak_value *x, int l, size_t c,
                                 bool experts)
{
    struct merak_value *one, *h = x;

    one = MERAK_PARAM(m, merak_name(m, "h.%d.norm", l), MERAK_ONES, c);
    if (draw(d, 4) > 0)
        h = merak_rmsnorm(m, x, one, 1e-5f);
    else
        h = merak_layernorm(
            m, x, one,
            MERAK_PARAM(m, merak_name(m, "h.%d.bias", l), MERAK_ZEROS, c),
            1e-5f);
    if (draw(d, 3) == 0)
        h = attention(m, h, l, c);
    else if (experts && draw(d, 3) > 0)
        h = mixture(m, d, h, l, c);
    else
        h = mlp(m, d, h, l, c);
    if (draw(d, 4) == 0)
        h = merak_dropout(m, h, 0.1f);
    return draw(d, 5) == 0 ? h : merak_add(m, x, h);
}

/* Layers that read any of the latest values; what nothing read is added up in
 * the end. */
static void describe(struct merak_model *m, void *arg)
{
    const struct graph *g = arg;
    struct draws d = {merak_rng_key(g->seed, "graph"), 0};
    size_t c = (size_t)16 << draw(&d, 2), vocab = (size_t)32 << draw(&d, 3);
    int n = 1, layers = 2 + draw(&d, MOST_VALUES - 3), reach = 1 + draw(&d, 4);
    bool read[MOST_VALUES] = {false}, tied = draw(&d, 2) == 0;
    struct merak_value *value[MOST_VALUES], *x, *old = NULL, *head;
    struct merak_value *wte = weight(m, "wte", vocab, c);

    value[0] = merak_embedding(m, merak_tokens(m), wte);
    if (g->recycles) {
        merak_passes(m, 3);
        old = MERAK_RECYCLED(m, merak_model_micro_batch(m), merak_model_seq(m),
                             c);
        value[0] = merak_add(m, value[0], old);
    }
    for (int l = 0; l < layers; l++) {
        int from = n - 1 - draw(&d, reach < n ? reach : n);

        value[n++] = layer(m, &d, value[from], l, c, g->experts);
        read[from] = true;
    }
    x = value[n - 1];
    for (int i = 0; i < n - 1; i++)
        x = read[i] ? x : merak_add(m, x, value[i]);
    if (old != NULL)
        merak_recycle(m, old, x);
    head = tied ? wte : weight(m, "head", vocab, c);
    merak_cross_entropy(m, merak_linear(m, x, head, NULL, 1), merak_targets(m));
}

static void draw_plan(uint64_t seed, const struct graph *g,
                      struct merak_plan *plan)
{
    const struct merak_schedule *const *all = merak_schedules();
    struct draws d = {merak_rng_key(seed, "plan"), 0};
    const struct merak_schedule *schedule;
    int n = 0;

    while (all[n] != NULL)
        n++;
    schedule = g->recycles ? NULL : all[draw(&d, n)];
    *plan = (struct merak_plan){.tp = 1 << draw(&d, 3),
                                .pp = 1 + draw(&d, 4),
                                .dp = 1 + draw(&d, 2),
                                .microbatches = 4 + 2 * draw(&d, 3),
                                .micro_batch = 4,
                                .threads = 1};
    snprintf(plan->schedule, sizeof(plan->schedule), "%s",
             schedule != NULL ? schedule->name : "3f1b");
    if (schedule != NULL && schedule->min_chunks > 1)
        plan->chunks = schedule->min_chunks;
    else if (schedule != NULL && schedule->max_chunks != 1 && draw(&d, 2) == 0)
        plan->chunks = 2;
    plan->zero = draw(&d, 2) == 0;
    plan->order_tp_pp_dp = draw(&d, 2) == 0;
    plan->branches = (enum merak_branches)draw(&d, MERAK_BRANCHES_AUTO);
    plan->sp = (enum merak_seq_parallel)draw(&d, 3);
    plan->recompute = (enum merak_recompute)draw(&d, 4);
    plan->memory_bytes =
        plan->recompute == MERAK_RECOMPUTE_AUTO ? (size_t)1 << 20 : 0;
    plan->sub_pipeline = draw(&d, 4) == 0;
    plan->tp_batch_percent = draw(&d, 3) == 0 ? 50 * (1 + draw(&d, 2)) : 0;
    plan->scatter = draw(&d, 3);
    plan->dtype = draw(&d, 2) == 0 ? MERAK_F32 : MERAK_BF16;
}

/* How replicas share out what they hold, and what is the host's; 0: as it is.
 */
static void draw_replicas(uint64_t seed, struct merak_plan *plan)
{
    struct draws d = {merak_rng_key(seed, "replicas"), 0};

    plan->dp = 2 << draw(&d, 2);
    plan->dp_in = draw(&d, 2) == 0 ? 2 : 1;
    plan->zero = draw(&d, MERAK_MAX_ZERO + 1);
    if (plan->zero == MERAK_ZERO_PARAMS)
        plan->fetch = draw(&d, 3);
    if (plan->zero == MERAK_ZERO_PARAMS && draw(&d, 3) == 0)
        plan->grad_sum = MERAK_SUM_STEP;
    else if (plan->zero >= MERAK_ZERO_GRADS && plan->dp_in > 1 &&
             draw(&d, 2) == 0)
        plan->zero_home = MERAK_HOME_IN;
    if (draw(&d, 4) == 0)
        plan->offload = MERAK_OFFLOAD_STATE;
}

/* How experts are divided. */
static void draw_experts(uint64_t seed, struct merak_plan *plan)
{
    struct draws d = {merak_rng_key(seed, "experts"), 0};

    plan->tp = 1 + draw(&d, 2);
    plan->ep = 2 << draw(&d, 2);
    plan->ep_form = (enum merak_ep_form)draw(&d, MERAK_EP_AUTO);
    plan->expert_room = 50 + 50 * draw(&d, 4);
    plan->tp_batch_percent = 0;
}

/* --- what is made ---------------------------------------------------------
 */

static uint64_t add_text(uint64_t digest, const char *text)
{
    return merak_rng_key(digest, text);
}

static uint64_t add(uint64_t digest, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return add_text(digest, text);
}

static uint64_t digest_programs(const struct merak_planned *all,
                                const struct merak_cost_model *cost,
                                struct merak_error *err)
{
    struct merak_timeline *timeline = NULL;
    uint64_t digest = 0;

    for (int i = 0; i < all->n_programs; i++) {
        char *text = NULL;

        if (merak_program_print(all->program[i], &text, err) != MERAK_OK)
            return 0;
        digest = add(add_text(digest, text), "%zu %llu",
                     all->program[i]->arena_bytes,
                     (unsigned long long)merak_program_id(all->program[i]));
        free(text);
    }
    if (merak_program_check(all->program, all->n_programs, err) != MERAK_OK ||
        merak_simulate(all->program, all->n_programs, cost, NULL, &timeline,
                       err) != MERAK_OK)
        return 0;
    for (int i = 0; i < timeline->n; i++) {
        for (int k = 0; k < all->program[i]->n_instrs; k++)
            digest = add(digest, "%a %a", timeline->start[i][k],
                         timeline->end[i][k]);
    }
    merak_timeline_destroy(timeline);
    return digest;
}

enum kind { GRAPH, SHARED, EXPERTS };

static void make_graph(uint64_t seed, enum kind kind)
{
    static const char *const name[] = {"graph", "shared", "experts"};
    struct graph g = {seed, seed % 8 == 7 && kind != EXPERTS, kind == EXPERTS};
    struct merak_planned *all = NULL;
    struct merak_error err = {0};
    struct merak_plan plan;
    struct merak_cost_model cost = *merak_cost_default();
    struct merak_program_options opt = {.cost = &cost};
    uint64_t digest = 0;

    cost.host = (struct merak_host){1 << 30, 1e9, 1e-6};
    draw_plan(seed, &g, &plan);
    if (kind != GRAPH)
        draw_replicas(seed, &plan);
    if (kind == EXPERTS)
        draw_experts(seed, &plan);
    if (merak_plan_build(&plan, 16, describe, &g, MERAK_PLAN_ALL,
                         kind != GRAPH ? &opt : NULL, &all, &err) == MERAK_OK)
        digest = digest_programs(all, kind != GRAPH ? &cost : NULL, &err);
    merak_planned_destroy(all);
    printf("%s %llu: tp %d pp %d dp %d zero %d %s: %016llx %s\n", name[kind],
           (unsigned long long)seed, plan.tp, plan.pp, plan.dp, plan.zero,
           plan.schedule, (unsigned long long)digest, err.text);
}

static uint64_t digest_choice(uint64_t digest,
                              const struct merak_search_choice *c)
{
    const struct merak_plan *p = &c->plan;

    digest = add(digest, "%d %d %d %d %d %zu %d %s %d %d", p->tp, p->pp, p->dp,
                 p->chunks, p->microbatches, p->micro_batch, p->sub_pipeline,
                 p->schedule, (int)p->recompute, p->zero);
    digest = add(digest, "%d %d %d %d %d", p->order_tp_pp_dp, (int)p->branches,
                 p->scatter, (int)p->sp, p->tp_batch_percent);
    for (int i = 0; i < MERAK_PART_COUNT; i++)
        digest = add(digest, "%a", c->part_s[i]);
    return add(digest, "%a %zu %d %s", c->step_s, c->memory_bytes, c->fits,
               c->why);
}

static uint64_t digest_stage(uint64_t digest,
                             const struct merak_search_stage *s)
{
    digest = add(digest, "%d %d %d %d %d %zu %zu %d", s->first_segment,
                 s->n_segments, s->attention, s->blocks_recomputed, s->n_blocks,
                 s->params, s->arena_bytes, s->in_flight);
    return add(digest, "%s %s %s %a %a %a %a %a %a", s->first_param,
               s->last_param, s->layers, s->flops, s->forward_s, s->backward_s,
               s->recompute_s, s->sent_bytes[0], s->sent_bytes[1]);
}

static void make_search(int seed)
{
    struct merak_search_result *r = NULL;
    struct merak_error err = {0};
    struct instance it;
    uint64_t digest = 0;

    instance_draw(&it, seed);
    if (seed % 4 == 3) /* too little, now and then */
        it.in.memory_bytes = (size_t)4096 << seed % 16;
    if (merak_search(&it.in, &r, &err) == MERAK_OK) {
        for (int i = 0; i < r->n_choices; i++)
            digest = digest_choice(digest, &r->choice[i]);
        for (int s = 0; s < r->choice[0].plan.pp; s++)
            digest = digest_stage(digest, &r->stage[s]);
        digest = add(digest, "%d %d %a", r->n_rated, r->n_simulated,
                     r->flop_utilisation);
        merak_search_destroy(r);
    }
    printf("search %d: %016llx %s\n", seed, (unsigned long long)digest,
           err.text);
}

int main(int argc, char **argv)
{
    int graphs = argc > 1 ? atoi(argv[1]) : 600;
    int searches = argc > 2 ? atoi(argv[2]) : 60;

    for (int i = 0; i < graphs; i++)
        make_graph((uint64_t)i, GRAPH);
    for (int i = 0; i < graphs / 4; i++)
        make_graph((uint64_t)i, SHARED);
    for (int i = 0; i < searches; i++)
        make_search(i);
    for (int i = 0; i < graphs / 8; i++)
        make_graph((uint64_t)i, EXPERTS);
    return 0;
}
