/* SPDX-License-Identifier: Apache-2.0 */
/* outputs.c - the files a run writes besides checkpoints: metrics, trace */
#include "config.h"

#include "runtime/train/metrics.h"
#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* What the trace contains about each instruction of the program. */
struct told {
    const char **name;
    struct merak_trace_planned *planned;
    struct merak_trace_cost *cost;
    char *plan; /* rank 0 */
};

/* Store the plan as `merak plan --json` does, so that a run can replay it, with
 * the cut, which another machine's costs may not lead to. */
static enum merak_status tell_plan(const struct merak_trainer *t,
                                   struct told *told, struct merak_error *err)
{
    struct merak_plan_file file = {.plan = t->plan,
                                   .seq = t->opt.seq,
                                   .global_batch = t->opt.global_batch,
                                   .program = t->program_id,
                                   .memory_bytes = t->program->arena_bytes};
    struct merak_parts *parts = NULL;
    json_t *object;

    if (file.plan.cut == NULL &&
        merak_stages_parts(t->sharded, t->stages, &parts, err) != MERAK_OK)
        return err->status;
    if (parts != NULL && parts->n > 1)
        file.plan.cut = parts->place + 1;
    if (t->chosen != NULL)
        file.sent = t->chosen->sent;
    memcpy(file.model, t->lineage.model_id, sizeof(t->lineage.model_id));
    snprintf(file.device, sizeof(file.device), "%s", t->cost.name);
    object = merak_plan_file_object(&file);
    told->plan = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    merak_parts_destroy(parts);
    return told->plan != NULL ? MERAK_OK : merak_fail_nomem(err, sizeof(file));
}

static enum merak_status tell(struct merak_trainer *t, struct told *told,
                              struct merak_error *err)
{
    size_t n = (size_t)t->program->n_instrs + 1;

    told->name = calloc(n, sizeof(*told->name));
    told->planned = calloc(n, sizeof(*told->planned));
    told->cost = calloc(n, sizeof(*told->cost));
    if (told->name == NULL || told->planned == NULL || told->cost == NULL)
        return merak_fail_nomem(err, n * sizeof(*told->planned));
    for (int i = 0; i < t->program->n_instrs; i++)
        told->name[i] = t->program->instr[i].name;
    merak_trainer_costs(t, told->cost);
    if (t->program->rank == 0 && tell_plan(t, told, err) != MERAK_OK)
        return err->status;
    return merak_trainer_predict(t, told->planned, err);
}

static enum merak_status create_trace(struct merak_trainer *t,
                                      const struct told *told,
                                      struct merak_error *err)
{
    struct merak_trace_info info = {
        .rank = t->program->rank,
        .ranks = t->program->ranks,
        .stage = t->program->stage,
        .stages = t->plan.pp,
        .tp = t->program->mesh.tp,
        .dp = t->program->mesh.dp,
        .cp = t->plan.cp,
        .ep = t->plan.ep,
        .degrees = t->plan.stage,
        .tp_index = t->program->tp_index,
        .dp_index = t->program->dp_index,
        .microbatches = t->plan.microbatches,
        .n_instrs = t->program->n_instrs,
        .instr_name = told->name,
        .planned = told->planned,
        .cost = told->cost,
        .threads = t->plan.threads,
        .ranks_per_node = t->cost.links.level[0].ranks,
        .plan = told->plan,
    };

    snprintf(info.backend, sizeof(info.backend), "%s", t->opt.backend);
    snprintf(info.dtype, sizeof(info.dtype), "%s",
             t->plan.dtype == MERAK_BF16 ? "bf16" : "fp32");
    memcpy(info.schedule, t->plan.schedule, sizeof(info.schedule));
    snprintf(info.transport, sizeof(info.transport), "%s",
             t->linked.link != NULL ? "nccl" : t->tr->ops->name);
    return merak_trace_create(t->opt.output.trace, &info,
                              t->opt.output.trace_every, &t->reports.trace,
                              err);
}

static enum merak_status open_trace(struct merak_trainer *t,
                                    struct merak_error *err)
{
    struct told told = {0};
    enum merak_status rc = tell(t, &told, err);

    if (rc == MERAK_OK)
        rc = create_trace(t, &told, err);
    free(told.plan);
    free(told.cost);
    free(told.planned);
    free(told.name);
    return rc;
}

enum merak_status merak_outputs_open(struct merak_trainer *t,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (t->program->rank == 0)
        rc = merak_metrics_open(t, err);
    if (rc != MERAK_OK)
        return rc;
    return t->opt.output.trace == NULL ? MERAK_OK : open_trace(t, err);
}

/* Rank 0 is last: it writes the master file over what the others closed. */
void merak_outputs_close_trace(struct merak_trainer *t)
{
    struct merak_error err = {.status = MERAK_OK};
    enum merak_status rc = MERAK_OK;

    if (t->opt.output.trace == NULL)
        return;
    if (t->program->rank != 0)
        rc = merak_trace_close(t->reports.trace, &err);
    rc = merak_agree(t->tr, &t->world, rc, &err);
    if (t->program->rank == 0 && rc == MERAK_OK)
        rc = merak_trace_close(t->reports.trace, &err);
    else if (t->program->rank == 0)
        (void)!merak_trace_close(t->reports.trace, NULL);
    t->reports.trace = NULL;
    if (rc != MERAK_OK && t->program->rank == 0)
        merak_warn("train", "the trace is incomplete: %s", err.text);
}
