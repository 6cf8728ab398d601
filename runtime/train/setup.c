/* SPDX-License-Identifier: Apache-2.0 */
/* setup.c - from a described model to engines that are ready to run */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/graph/letters.h"
#include "partitioner/search/node_orders.h"
#include "partitioner/simulate/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TABLE_ALIGN 256

static enum merak_status describe_model(struct merak_trainer *t,
                                        struct merak_graph **graph_p,
                                        struct merak_error *err)
{
    const struct merak_expert_form form = merak_plan_experts(&t->plan);
    enum merak_status rc;

    t->models = (struct merak_models){.seq = t->opt.seq,
                                      .dtype = t->plan.dtype,
                                      .grad_dtype = t->plan.grad_dtype,
                                      .describe = t->source.describe,
                                      .arg = t->source.describe_arg};
    rc = merak_models_find(&t->models, merak_plan_mesh(&t->plan, 0).batch,
                           &form, &t->model, graph_p, err);
    if (rc == MERAK_OK)
        merak_graph_fingerprint(*graph_p, t->lineage.model_id);
    free(t->lineage.numbers);
    t->lineage.numbers = NULL;
    return rc == MERAK_OK
               ? merak_graph_numbers(*graph_p, &t->lineage.numbers, err)
               : rc;
}

enum merak_status merak_trainer_threads(struct merak_trainer *t,
                                        struct merak_error *err)
{
    t->threads = t->opt.threads;
    return t->threads > 0
               ? MERAK_OK
               : merak_boot_threads(t->boot->local_size, &t->threads, err);
}

/* The plan from the options. */
static enum merak_status plan_from_options(struct merak_trainer *t,
                                           struct merak_error *err)
{
    struct merak_choices choices = t->opt.choice;
    struct merak_plan *plan = &t->plan;
    enum merak_status rc;

    if (choices.list.stage == NULL) {
        choices.tp = t->ranks.tp;
        choices.ep = t->ranks.ep;
        choices.pp = t->ranks.pp;
        choices.dp = t->ranks.dp;
        choices.cp = t->ranks.cp;
        choices.order_tp_pp_dp = t->ranks.order_tp_pp_dp;
        choices.given[MERAK_CHOICE_TP] = choices.given[MERAK_CHOICE_PP] =
            choices.given[MERAK_CHOICE_DP] = choices.given[MERAK_CHOICE_ORDER] =
                true;
        choices.given[MERAK_CHOICE_CP] = t->ranks.cp > 0;
        choices.given[MERAK_CHOICE_EP] = t->ranks.ep > 0;
    }
    merak_choices_take(&choices, plan);
    plan->memory_bytes = t->memory_bytes;
    plan->dtype = t->opt.dtype;
    rc = merak_choices_check_cp(&choices, plan->cp, err);
    if (rc == MERAK_OK)
        rc = merak_plan_split_batch(plan, t->opt.global_batch, err);
    return rc == MERAK_OK ? merak_plan_check_degrees(plan, err) : rc;
}

/* What the model determines of the plan. */
static void take_model(struct merak_trainer *t, const struct merak_graph *graph)
{
    merak_plan_take_passes(&t->plan, graph->passes,
                           t->chosen != NULL || t->opt.choice.schedule != NULL);
}

static enum merak_status fill_plan(struct merak_trainer *t,
                                   struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (t->chosen != NULL)
        t->plan = t->chosen->plan;
    else
        rc = plan_from_options(t, err);
    t->plan.threads = t->threads;
    return rc;
}

struct merak_program_options
merak_trainer_program_options(const struct merak_trainer *t)
{
    return (struct merak_program_options){
        .dump_grads = t->opt.output.dump_grads != NULL,
        .direct = t->linked.direct,
        .cost = &t->cost,
        .memory = merak_backend_memory(t->compute.backend),
        .unit_s = t->opt.emu_unit_ms * 1e-3,
    };
}

/* Sizes of the one allocation: the arena of both programs, then the tables of
 * an accelerator's engine.  Evaluation has none. */
static enum merak_status place_tables(struct merak_trainer *t,
                                      struct merak_error *err)
{
    size_t bytes = t->program->arena_bytes > t->eval->arena_bytes
                       ? t->program->arena_bytes
                       : t->eval->arena_bytes;
    enum merak_status rc = merak_engine_table_bytes(
        t->program, t->compute.backend, &t->memory.table_bytes, err);

    if (t->memory.table_bytes > 0)
        bytes = merak_size_align(bytes, TABLE_ALIGN);
    t->memory.arena_bytes = bytes + t->memory.table_bytes;
    return rc;
}

static enum merak_status build_programs(struct merak_trainer *t,
                                        struct merak_error *err)
{
    struct merak_program_options opt = merak_trainer_program_options(t);
    enum merak_status rc;

    rc = merak_program_build(t->sharded, t->stages, &t->plan, t->ranks.logical,
                             &opt, &t->program, err);
    if (rc != MERAK_OK)
        return rc;
    opt.forward_only = true;
    rc = merak_program_build(t->sharded, t->stages, &t->plan, t->ranks.logical,
                             &opt, &t->eval, err);
    if (rc != MERAK_OK)
        return rc;
    return place_tables(t, err);
}

/* A plan is valid for one model. */
static enum merak_status check_model(const struct merak_trainer *t,
                                     const struct merak_graph *graph,
                                     struct merak_error *err)
{
    if (t->chosen == NULL || strcmp(t->chosen->model, t->lineage.model_id) == 0)
        return merak_graph_check_seq(
            graph, t->opt.given.seq ? t->opt.seq : 0, err);
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "the plan is for another model: its parameters have "
                      "fingerprint %s, this model's %s; plan again for "
                      "this model, with `merak plan --json` or, of a program "
                      "of its own, `PROGRAM plan --json`",
                      t->chosen->model, t->lineage.model_id);
}

enum merak_status merak_trainer_shard(struct merak_trainer *t,
                                      enum merak_branches order,
                                      struct merak_error *err)
{
    const struct merak_program_options po = merak_trainer_program_options(t);
    const struct merak_assembly_options opt = {.program = &po,
                                               .models = &t->models};
    struct merak_assembly a = {.plan = t->plan};
    struct merak_graph *graph;
    enum merak_status rc = merak_model_graph(t->model, &graph, err);

    if (rc != MERAK_OK)
        return rc;
    a.plan.branches = t->plan.branches = order;
    rc = merak_assemble(&a, graph, &opt, MERAK_ASSEMBLY_SHARDED, err);
    merak_sharded_destroy(t->sharded);
    t->sharded = a.own;
    if (rc == MERAK_OK) /* there may be no such order */
        t->plan.branches = a.plan.branches;
    return rc;
}

/* Choose cuts, what crosses them, and what this rank's stage recomputes.  A
 * chosen plan already determines what crosses whole and what in parts. */
static enum merak_status cut_model(struct merak_trainer *t,
                                   struct merak_error *err)
{
    const struct merak_program_options po = merak_trainer_program_options(t);
    struct merak_assembly_options opt = {.program = &po,
                                         .choose_boundary = t->chosen == NULL,
                                         .boundary = t->opt.choice.boundary};
    struct merak_assembly a = {.plan = t->plan, .sharded = t->sharded};
    struct merak_graph *graph;
    int tp_index, dp_index;
    enum merak_status rc = merak_model_graph(t->model, &graph, err);

    if (rc != MERAK_OK)
        return rc;
    merak_plan_coords(&t->plan, t->ranks.logical, &tp_index, &dp_index,
                      &opt.stage);
    rc = merak_assemble(&a, graph, &opt, MERAK_ASSEMBLY_RECOMPUTED, err);
    t->stages = a.stages;
    t->plan = a.plan;
    if (a.own != NULL) { /* of packed hops */
        merak_sharded_destroy(t->sharded);
        t->sharded = a.own;
    }
    merak_graph_destroy(a.packed);
    return rc;
}

/* Could the stages' programs, each valid alone, deadlock together?  Not for a
 * chain of blocks whose stages pass whole values, with any schedule. */
static bool needs_proof(const struct merak_trainer *t)
{
    return t->plan.pp > 1 && (t->sharded->branches || t->plan.scatter > 0 ||
                              t->sharded->n_shared > 0);
}

static enum merak_status prove_together(struct merak_trainer *t,
                                        struct merak_error *err)
{
    const struct merak_program_options opt = merak_trainer_program_options(t);
    struct merak_played played;
    enum merak_status rc =
        merak_stages_play(t->sharded, t->stages, &t->plan, &opt, &played, err);

    if (rc == MERAK_ERR_CORRUPT) {
        merak_error_wrap(err,
                         "schedule %s does not go with this model's branches "
                         "on %d stages: use 1f1b",
                         t->plan.schedule, t->plan.pp);
        rc = err->status = MERAK_ERR_CONFIG;
    }
    return rc;
}

enum merak_status merak_trainer_describe(struct merak_trainer *t,
                                         struct merak_error *err)
{
    const struct merak_schedule *schedule;
    struct merak_graph *graph;
    enum merak_status rc = fill_plan(t, err);

    if (rc == MERAK_OK)
        rc = describe_model(t, &graph, err);
    if (rc == MERAK_OK) {
        take_model(t, graph);
        rc = merak_plan_schedule(&t->plan, &schedule, err);
    }
    if (rc == MERAK_OK)
        rc = merak_backend_find(t->opt.backend, &t->compute.backend, err);
    if (rc == MERAK_OK)
        rc = merak_backend_check_dtype(t->compute.backend, t->plan.dtype, err);
    if (rc == MERAK_OK && t->compute.backend->open != NULL)
        rc = t->compute.backend->open(t->plan.threads, err);
    if (rc == MERAK_OK)
        rc = check_model(t, graph, err);
    if (rc == MERAK_OK)
        rc = merak_trainer_shard(t, t->plan.branches, err);
    return rc;
}

/* The memory limit for recomputation includes the staging of exchanges: cut
 * again if NCCL turns out not to be used. */
static enum merak_status cut_direct(struct merak_trainer *t,
                                    struct merak_error *err)
{
    const struct merak_plan plan = t->plan;
    enum merak_status rc = cut_model(t, err);

    if (rc != MERAK_OK || !t->linked.direct)
        return rc;
    rc = merak_link_prove(t, err);
    if (rc != MERAK_OK || t->linked.direct)
        return rc;
    merak_stages_destroy(t->stages);
    t->stages = NULL;
    t->plan = plan;
    if (merak_lossy_any(&plan.lossy)) /* begin where nothing is packed */
        rc = merak_trainer_shard(t, plan.branches, err);
    return rc == MERAK_OK ? cut_model(t, err) : rc;
}

enum merak_status merak_trainer_plan(struct merak_trainer *t,
                                     struct merak_error *err)
{
    enum merak_status rc = cut_direct(t, err);

    if (rc == MERAK_OK)
        rc = build_programs(t, err);
    if (rc == MERAK_OK && needs_proof(t))
        rc = prove_together(t, err);
    /* Each rank checks its own program; `merak plan` checks all together. */
    if (rc == MERAK_OK)
        rc = merak_program_check(&t->program, 1, err);
    if (rc == MERAK_OK)
        rc = merak_program_check(&t->eval, 1, err);
    return rc;
}

/* Of an accelerator's rank: is there room for what is offloaded? */
static enum merak_status check_host(const struct merak_trainer *t,
                                    struct merak_error *err)
{
    size_t need = t->program->host_bytes;
    size_t have = need > 0 ? merak_memory_available(t->boot) : 0;

    if (need <= have)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_NOMEM,
                      "--offload keeps %.1f GiB a task in the host's "
                      "memory and %.1f GiB are available; use more tasks, a "
                      "node with more memory or --offload none",
                      (double)need / 0x1p30, (double)have / 0x1p30);
}

enum merak_status merak_memory_check(struct merak_trainer *t,
                                     struct merak_error *err)
{
    bool on_host =
        t->compute.accel == NULL || t->compute.accel->ops->memory == NULL;
    size_t have = merak_task_memory(t), need;
    enum merak_status rc = merak_link_estimate(t, err);
    char table[160], nccl[32] = "";

    need = t->memory.arena_bytes + t->linked.bytes;
    if (on_host)
        need += t->program->host_bytes;
    else if (rc == MERAK_OK)
        rc = check_host(t, err);
    if (rc != MERAK_OK || need <= have)
        return rc;
    merak_report_categories(t, table, sizeof(table));
    if (t->linked.bytes > 0)
        snprintf(nccl, sizeof(nccl), "NCCL about %.0f, ",
                 (double)t->linked.bytes / 0x1p20);
    return merak_fail(err, MERAK_ERR_NOMEM,
                      "the plan needs %.1f GiB a task and %.1f GiB are "
                      "available%s; use more stages, a larger tp%s or a "
                      "smaller micro-batch (MiB: %s%s)",
                      (double)need / 0x1p30, (double)have / 0x1p30,
                      on_host ? "" : " on its GPU",
                      t->linked.bytes > 0 ? ", --transport ucx" : "", nccl,
                      table);
}

/* Use a calibration's choices if they are for this kind of device. */
static enum merak_status use_tuned(const struct merak_trainer *t,
                                   struct merak_error *err)
{
    const struct merak_accel_ops *ops =
        t->compute.accel == NULL ? NULL : t->compute.accel->ops;
    enum merak_status rc = MERAK_OK;
    char here[128];

    if (ops == NULL || ops->use_tuned == NULL || t->device.tuned_for == NULL)
        return MERAK_OK;
    ops->tuned_for(t->compute.accel, here, sizeof(here));
    if (strcmp(here, t->device.tuned_for) != 0) {
        merak_warn("train",
                   "the %d choices in device file %.100s are for %s, this is "
                   "%s: they are not used; calibrate here",
                   t->device.n_tuned, t->opt.device, t->device.tuned_for, here);
        return MERAK_OK;
    }
    for (int i = 0; i < t->device.n_tuned && rc == MERAK_OK; i++)
        rc = ops->use_tuned(t->compute.accel, t->device.tuned[i], err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "device file %.100s", t->opt.device);
    else
        merak_info("train", "%d choices of device file %s, for %s",
                   t->device.n_tuned, t->opt.device, here);
    return rc;
}

static enum merak_status open_engines(struct merak_trainer *t,
                                      struct merak_error *err)
{
    struct merak_engine_options eo = {
        .backend = t->compute.backend,
        .tr = t->tr,
        .transport_rank = t->ranks.transport_rank,
        .arena = merak_slots_arena(t),
        .accel = t->compute.accel,
        .staging = t->memory.arena.base,
        .host = t->memory.host.base,
        .device_times = t->opt.output.trace != NULL,
        .link = t->linked.link,
        .load = merak_trainer_load,
        .load_arg = t,
        .deadline_s = t->opt.deadline_s,
        .epoch_ns = t->start.epoch_ns,
    };
    enum merak_status rc;

    rc = use_tuned(t, err);
    if (rc != MERAK_OK)
        return rc;
    if (t->memory.table_bytes > 0)
        eo.tables = eo.arena + (t->memory.arena_bytes - t->memory.table_bytes);
    rc = merak_engine_create(t->program, &eo, &t->engine, err);
    eo.tables = NULL;
    eo.device_times = false; /* evaluation is not traced */
    eo.skip = merak_trainer_stop_flag();
    if (rc == MERAK_OK)
        rc = merak_engine_create(t->eval, &eo, &t->eval_engine, err);
    return rc;
}

enum merak_status merak_trainer_transport(struct merak_trainer *t,
                                          struct merak_error *err)
{
    const char *transport = t->boot->size > 1 ? "ucx" : "self";
    const struct merak_transport_options to = {
        .deadline_s = t->opt.deadline_s,
        .arena = t->memory.arena.base,
        .arena_bytes = t->memory.arena.bytes,
        .arena_fd = t->memory.arena.fd,
        .rank_name = t->ranks.logical_rank,
        .tell = merak_trainer_tell,
        .tell_arg = t,
    };
    enum merak_status rc;

    if (t->opt.transport == MERAK_TRANSPORT_SELF)
        transport = "self";
    else if (t->opt.transport == MERAK_TRANSPORT_UCX)
        transport = "ucx";
    rc = merak_transport_open(transport, t->boot, &to, &t->tr, err);
    return merak_boot_agree(t->boot, rc, err);
}

enum merak_status merak_trainer_connect(struct merak_trainer *t,
                                        struct merak_error *err)
{
    enum merak_status rc = merak_memory_check(t, err);

    /* no task allocates before all that share its accelerator have checked */
    if (t->compute.backend->accel != NULL)
        rc = merak_boot_agree(t->boot, rc, err);
    if (rc == MERAK_OK)
        rc = merak_slots_open(t, err);
    /* Stages need different amounts of memory: a rank that lacks it must not
     * leave the others waiting for its address. */
    rc = merak_boot_agree(t->boot, rc, err);
    if (rc == MERAK_OK)
        rc = merak_trainer_transport(t, err);
    if (rc == MERAK_OK)
        rc = merak_link_choose(t, err);
    if (rc == MERAK_OK)
        rc = merak_trainer_epoch(t, err);
    return rc == MERAK_OK ? open_engines(t, err) : rc;
}
