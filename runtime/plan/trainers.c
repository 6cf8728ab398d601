/* SPDX-License-Identifier: Apache-2.0 */
/* trainers.c - what other trainers run of a plan */
#include "config.h"

#include "runtime/plan/trainers.h"

#include "partitioner/plan/list_text.h"

#include <stdio.h>
#include <string.h>

static const struct plan_trainer trainers[] = {
    [PLAN_EMIT_MEGATRON] = {.name = "Megatron-LM",
                            .version = "d98e8a6, August 2026",
                            .schedule = {{"1f1b", "1f1b", PLAN_1F1B},
                                         {"interleaved", "virtual stages",
                                          PLAN_INTERLEAVED}},
                            .cuts_layers = true,
                            .has_order = true,
                            .has_experts = true,
                            .has_bf16_grads = true,
                            .least_zero = MERAK_ZERO_STATE,
                            .pipeline_zero = MERAK_MAX_ZERO,
                            .offload_ranks = 1},
    [PLAN_EMIT_TORCHTITAN] =
        {.name = "torchtitan",
         .version = "0.3.0",
         .schedule = {{"1f1b", "1F1B", PLAN_1F1B},
                      {"gpipe", "GPipe", PLAN_OTHER},
                      {"interleaved", "Interleaved1F1B", PLAN_INTERLEAVED},
                      {"zb-v", "ZBVZeroBubble", PLAN_OTHER}},
         .cuts_layers = true,
         .lists_even = true,
         .has_experts = true,
         .least_zero = MERAK_ZERO_GRADS,
         .pipeline_zero = MERAK_MAX_ZERO,
         .offload_ranks = 2}, /* FSDP does it */
    [PLAN_EMIT_DEEPSPEED] = {.name = "DeepSpeed",
                             .version = "of August 2026",
                             .schedule = {{"1f1b", "1f1b", PLAN_1F1B}},
                             .has_bf16_grads = true,
                             .least_zero = MERAK_ZERO_STATE,
                             .pipeline_zero = MERAK_ZERO_STATE,
                             .offload_ranks = 1},
};

const struct plan_trainer *plan_trainer_of(enum plan_emit what)
{
    return what == PLAN_EMIT_NONE ? NULL : &trainers[what];
}

const struct plan_trainer_schedule *
plan_trainer_schedule(const struct plan_trainer *t, const struct merak_plan *p)
{
    for (int i = 0; i < PLAN_TRAINER_SCHEDULES; i++) {
        if (t->schedule[i].ours != NULL &&
            strcmp(p->schedule, t->schedule[i].ours) == 0)
            return &t->schedule[i];
    }
    return NULL;
}

enum merak_recompute plan_recompute_of(const struct merak_plan *p)
{
    int n = p->drop != NULL ? merak_plan_own_parts(p) : 0;
    bool attention = n > 0;

    if (n == 0)
        return p->recompute;
    if (!merak_drops_any(p->drop, n))
        return MERAK_RECOMPUTE_NONE;
    for (int i = 0; i < n; i++)
        attention = attention && p->drop[i].attention && p->drop[i].blocks == 0;
    return attention ? MERAK_RECOMPUTE_SELECTIVE : MERAK_RECOMPUTE_FULL;
}

static const struct plan_trainer_schedule *
find_order(const struct plan_trainer *t, enum plan_order order)
{
    for (int i = 0; i < PLAN_TRAINER_SCHEDULES; i++) {
        if (t->schedule[i].ours != NULL && t->schedule[i].order == order)
            return &t->schedule[i];
    }
    return NULL;
}

static void adapt_schedule(const struct plan_trainer *t, struct merak_plan *p)
{
    const struct plan_trainer_schedule *its = plan_trainer_schedule(t, p);

    if (p->pp > 1 && its == NULL && p->chunks > 1)
        its = find_order(t, PLAN_INTERLEAVED);
    if (p->pp == 1 || its == NULL ||
        (its->order == PLAN_INTERLEAVED && p->microbatches % p->pp != 0)) {
        its = &t->schedule[0];
        p->chunks = 1;
    }
    snprintf(p->schedule, sizeof(p->schedule), "%s", its->ours);
}

struct merak_plan plan_trainer_adapt(const struct plan_trainer *t,
                                     const struct merak_plan *plan)
{
    struct merak_plan p = *plan;

    p.recompute = plan_recompute_of(plan);
    p.cut = NULL;
    p.drop = NULL;
    p.tp_batch_percent = 0;
    p.split = (struct merak_layer_split){{0}};
    p.tp_plan = (struct merak_tp_plan){""};
    p.lossy = (struct merak_lossy){0};
    p.tp_axes = 0;
    if (p.ep > 1 &&
        !t->has_experts) { /* whose ranks have samples each, as replicas have */
        p.dp *= p.ep;
        p.micro_batch /= (size_t)p.ep;
        p.ep = 1;
    }
    if (p.sub_pipeline) {
        p.sub_pipeline = false;
        p.micro_batch *= 2;
        p.microbatches /= 2;
    }
    adapt_schedule(t, &p);
    if (!t->has_order)
        p.order_tp_pp_dp = false;
    if (!t->has_bf16_grads)
        p.grad_dtype = MERAK_F32;
    if (merak_plan_offloads_acts(&p)) /* they recompute */
        p.offload = merak_plan_offloads_state(&p) ? MERAK_OFFLOAD_STATE
                                                  : MERAK_OFFLOAD_NONE;
    if (merak_plan_mesh(&p, 0).dp < t->offload_ranks ||
        (p.zero == MERAK_ZERO_NONE && t->offload_ranks > 1))
        p.offload = MERAK_OFFLOAD_NONE;
    if (!merak_plan_shares(&p))
        return p;
    p.fetch = 0;  /* these fetch all blocks, or none, and sum as they do */
    p.grad_sum = MERAK_SUM_MICRO;
    if (p.zero > 0 && p.zero < t->least_zero)
        p.zero = t->least_zero;
    if (p.pp > 1 && p.zero > t->pipeline_zero)
        p.zero = t->pipeline_zero;
    return p;
}

/* --- in numbers ------------------------------------------------------------
 */

static size_t ep_of(const struct merak_plan *p)
{
    return p->ep > 1 ? (size_t)p->ep : 1;
}

size_t plan_trainer_replicas(const struct merak_plan *p)
{
    return (size_t)p->dp * ep_of(p);
}

size_t plan_trainer_micro_batch(const struct merak_plan *p)
{
    return p->micro_batch * (p->sub_pipeline ? 2 : 1) / ep_of(p);
}

bool plan_has_counts(const struct plan_emitted *e)
{
    return e->layers.count != NULL &&
           e->layers.n == merak_plan_own_parts(e->plan);
}

struct plan_numbers plan_numbers_of(const struct plan_trainer *t,
                                    const struct plan_emitted *e)
{
    const struct merak_plan *p = e->plan;
    const struct merak_hf_config *c = e->config;
    const struct plan_trainer_schedule *its = plan_trainer_schedule(t, p);
    struct plan_numbers n = {
        .tp = (size_t)p->tp,
        .pp = (size_t)p->pp,
        .dp = plan_trainer_replicas(p),
        .cp = p->cp > 1 ? (size_t)p->cp : 1,
        .ep = ep_of(p),
        .micro_batch = plan_trainer_micro_batch(p),
        .microbatches = (size_t)p->microbatches / (p->sub_pipeline ? 2 : 1),
        .global_batch = e->global_batch,
        .chunks = (size_t)merak_plan_chunks(p),
        .laid_out = plan_has_counts(e) && p->pp > 1 && e->lays_out,
        .seq = e->seq,
        .zero = p->zero,
        .order = p->pp == 1    ? PLAN_NO_PIPELINE
                 : its != NULL ? its->order
                               : PLAN_OTHER,
        .sp = p->tp > 1 && p->sp != MERAK_SP_OFF,
        .bf16_grads = p->grad_dtype == MERAK_BF16,
        .has_model = c != NULL};

    for (int i = 0; n.laid_out && i < e->layers.n; i++)
        n.counted += (size_t)e->layers.count[i];
    for (int i = 1; n.laid_out && i + 1 < e->layers.n; i++)
        n.empty += e->layers.count[i] == 0;
    n.parts = n.laid_out ? (size_t)e->layers.n : n.pp * n.chunks;
    if (c == NULL)
        return n;
    n.layers = c->layers;
    n.hidden = c->hidden;
    n.heads = c->heads;
    n.kv_heads = c->kv_heads;
    n.head_dim = c->head_dim;
    n.positions = c->positions;
    n.tied = c->tied;
    n.experts = c->mixture.experts;
    return n;
}
