/* SPDX-License-Identifier: Apache-2.0 */
/* auto.c - `merak plan --device NAME`: the search */
#include "config.h"

#include "runtime/plan/advice.h"
#include "runtime/plan/auto.h"
#include "runtime/plan/draw.h"
#include "runtime/plan/node_kinds.h"
#include "runtime/plan/plan_islands.h"
#include "runtime/plan/plan_saved.h"

#include "base/error.h"
#include "base/size.h"
#include "base/text_writer.h"
#include "kernels/kernels.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/simulate/simulate.h"
#include "runtime/link/link.h"
#include "runtime/plan/trainers.h"
#include "runtime/train/chosen.h"
#include "runtime/train/phases.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void pin_no(struct merak_choices *pin, enum merak_choice_id id)
{
    if (pin->given[id])
        return;
    merak_choice_set(&merak_choice[id], pin, 0);
    pin->given[id] = true;
}

/* The given choices, except degrees given as auto; for another trainer's plan
 * (NULL: for Merak's), features that it does not have are off. */
static struct merak_choices pins_of(const struct merak_choices *choice,
                                    const struct plan_trainer *other)
{
    struct merak_choices pin = *choice;

    if (other != NULL) { /* none has these */
        pin_no(&pin, MERAK_CHOICE_TP_BATCH);
        pin_no(&pin, MERAK_CHOICE_SUB_PIPELINE);
    }

    if (other != NULL && !other->has_experts && pin.ep <= 0)
        pin.ep = 1;
    pin.tp = pin.tp > 0 ? pin.tp : 0;
    pin.pp = pin.pp > 0 ? pin.pp : 0;
    pin.dp = pin.dp > 0 ? pin.dp : 0;
    return pin;
}

enum merak_status plan_device_backend(const struct plan_options *opt,
                                      const struct merak_device *device,
                                      const struct merak_backend **backend_p,
                                      struct merak_error *err)
{
    const struct merak_backend *backend = NULL;
    char name[sizeof(device->name)];

    *backend_p = NULL;
    snprintf(name, sizeof(name), "%s", device->name);
    name[strcspn(name, ",")] = '\0';
    if (opt->given.backend) {
        if (merak_backend_find(opt->backend, &backend, err) != MERAK_OK)
            return err->status;
    } else if (merak_backend_find(name, &backend, NULL) != MERAK_OK) {
        return MERAK_OK;
    }
    *backend_p = backend;
    if (backend->use_choices == NULL)
        return MERAK_OK;
    return backend->use_choices((const char *const *)device->tuned,
                                device->n_tuned, err);
}

static enum merak_status fill_scratch(struct plan_auto *plan,
                                      struct merak_error *err)
{
    const struct merak_backend *backend;
    enum merak_status rc =
        plan_device_backend(plan->opt, &plan->device, &backend, err);

    if (rc != MERAK_OK || backend == NULL)
        return rc;
    plan->in.memory = merak_backend_memory(backend);
    if (plan->opt->given.backend)
        plan->in.direct = merak_backend_is_direct(backend);
    return MERAK_OK;
}

/* Choose the transport as a run would. */
static enum merak_status fill_transport(struct plan_auto *plan,
                                        struct merak_error *err)
{
    int transport = plan->opt->transport;

    plan->in.insists_direct = transport == PLAN_TRANSPORT_NCCL;
    if (transport != PLAN_TRANSPORT_AUTO)
        plan->in.direct = plan->in.insists_direct;
    plan->in.comms = merak_link_comms_cost;
    plan->in.fast_sums = plan->opt->reduce_fast;
    return plan_options_check_reduce(plan->opt, plan->in.direct, err);
}

enum merak_status plan_auto_fill(struct plan_auto *plan,
                                 struct merak_error *err)
{
    const struct plan_options *opt = plan->opt;
    enum merak_status rc = plan_kinds_load(opt, plan->kind, &plan->device, err);
    size_t seq = 0;

    if (rc == MERAK_OK)
        rc = plan_model_open(opt, &plan->model, err);
    if (rc == MERAK_OK)
        rc = plan_model_seq(&plan->model, opt, &seq, err);
    if (rc != MERAK_OK)
        return rc;
    plan->in = (struct merak_search_input){
        .describe = plan->model.describe,
        .arg = plan->model.arg,
        .seq = seq,
        .dtype = opt->given.dtype ? opt->plan.dtype
                                  : merak_device_dtype(&plan->device),
        .global_batch = opt->global_batch,
        .nodes = opt->nodes,
        .ranks_per_node = opt->ranks_per_node > 0
                              ? opt->ranks_per_node
                              : plan->device.links.level[0].ranks,
        .memory_bytes = opt->plan.memory_bytes,
        .threads = 1,
        .device = &plan->device,
        .direct = plan->device.direct,
        .unlike = opt->emit == PLAN_EMIT_NONE, /* no other trainer has them */
        .pin =
            pins_of(&opt->choice, plan_trainer_of((enum plan_emit)opt->emit))};
    plan_kinds_fill(opt, plan->kind, &plan->in);
    rc = fill_scratch(plan, err);
    if (rc == MERAK_OK)
        rc = fill_transport(plan, err);
    return rc == MERAK_OK
               ? plan_saved_check(opt, &plan->model, plan->in.seq, err)
               : rc;
}

/* --- pictures ------------------------------------------------------------- */

/* Micro-batches that are drawn: enough to see the pipeline fill, settle and
 * drain.  Schedules in rounds need multiples of the stages, sub-pipelines even
 * numbers. */
static int drawn_microbatches(const struct merak_plan *p)
{
    int round = 2 * p->pp, few = (32 + round - 1) / round * round;

    return p->microbatches > few ? few : p->microbatches;
}

/* Build programs with the rates of their stages' nodes. */
static enum merak_status build_by_kinds(const struct plan_auto *plan,
                                        const struct merak_search_stage *stage,
                                        struct merak_planned *planned,
                                        struct merak_error *err)
{
    struct merak_cost_model cost[MERAK_MAX_KINDS];
    struct merak_program_options of[MERAK_MAX_KINDS];
    int pp = planned->plan.pp, *kind = calloc((size_t)pp, sizeof(*kind));
    enum merak_status rc;

    if (kind == NULL)
        return merak_fail_nomem(err, (size_t)pp * sizeof(*kind));
    for (int k = 0; k < plan->in.n_kinds; k++) {
        merak_search_kind_cost(&plan->in, &plan->in.kind[k], &cost[k]);
        of[k] = (struct merak_program_options){.memory = plan->in.memory,
                                               .cost = &cost[k]};
    }
    for (int s = 0; s < pp; s++)
        kind[s] = stage[s].kind;
    rc = merak_planned_build(planned, MERAK_PLAN_ALL, of, kind, err);
    free(kind);
    return rc;
}

enum merak_status plan_auto_build(const struct plan_auto *plan,
                                  const struct merak_plan *built,
                                  const struct merak_search_stage *stage,
                                  double load, struct merak_planned **planned_p,
                                  struct merak_timeline **timeline_p,
                                  struct merak_error *err)
{
    struct merak_cost_model cost;
    const struct merak_program_options po = {
        .direct = plan->in.direct, .memory = plan->in.memory, .cost = &cost};
    bool of_kinds = plan->in.n_kinds > 1 && stage[0].limit_bytes > 0;
    bool all = built->stage != NULL || of_kinds;
    enum merak_status rc;

    merak_search_cost(&plan->in, &cost);
    cost.expert_load = load;
    rc = merak_plan_build(built, plan->in.seq, plan->in.describe, plan->in.arg,
                          of_kinds ? MERAK_PLAN_NONE
                          : all    ? MERAK_PLAN_ALL
                                   : MERAK_PLAN_STAGES,
                          &po, planned_p, err);
    if (rc == MERAK_OK && of_kinds)
        rc = build_by_kinds(plan, stage, *planned_p, err);
    /* of lists as the search has them: an instruction takes what it says */
    if (rc == MERAK_OK)
        rc = merak_simulate((*planned_p)->program, (*planned_p)->n_programs,
                            all ? NULL : &cost, NULL, timeline_p, err);
    if (rc == MERAK_OK && all)
        rc = plan_keep_firsts(*planned_p, *timeline_p, err);
    return rc;
}

/* What the report says of islands; "" without them. */
static enum merak_status islands_text(const struct plan_auto *plan,
                                      const struct merak_search_result *result,
                                      char **text_p, struct merak_error *err)
{
    struct merak_text_writer writer;
    FILE *out = merak_text_open(&writer);

    if (out != NULL)
        plan_islands_print(out, plan, result);
    return merak_text_close(&writer, text_p, err);
}

static enum merak_status draw(const struct plan_auto *plan,
                              const struct merak_search_result *result,
                              const struct plan_advice *advice,
                              struct merak_error *err)
{
    const struct merak_search_choice *best = &result->choice[0];
    struct merak_planned *planned = NULL;
    struct merak_timeline *timeline = NULL;
    char heading[128], *islands = NULL;
    struct plan_drawing drawing = {
        .heading = heading,
        .plan = &best->plan,
        .stage = result->stage,
        .kind = plan->in.n_kinds > 1 && result->stage[0].limit_bytes > 0
                    ? plan->in.kind
                    : NULL,
        .near = merak_search_near_word(&plan->in),
        .limit_bytes = result->memory_limit,
        .step_s = best->step_s,
        .rate = plan_rate_of(best->cuts.letter, plan->in.global_batch,
                             plan->in.seq, best->step_s),
        .utilisation = result->flop_utilisation,
        .fetch_s = best->fetch_s,
        .offload_s = best->offload_s,
        .result = result,
        .advice = advice};
    struct merak_plan drawn = best->plan;
    enum merak_status rc;

    drawn.microbatches = drawn_microbatches(&best->plan);
    rc = plan_auto_build(plan, &drawn, result->stage, 0, &planned, &timeline,
                         err);
    plan_report_heading(plan, result, heading, sizeof(heading));
    if (rc == MERAK_OK)
        rc = islands_text(plan, result, &islands, err);
    drawing.islands = islands;
    drawing.planned = planned;
    drawing.timeline = timeline;
    if (rc == MERAK_OK && plan->opt->svg != NULL)
        rc = plan_draw_svg(&drawing, plan->opt->svg, err);
    if (rc == MERAK_OK && plan->opt->html != NULL)
        rc = plan_draw_html(&drawing, plan->opt->html, err);
    free(islands);
    merak_timeline_destroy(timeline);
    merak_planned_destroy(planned);
    return rc;
}

/* For all micro-batches. */
static enum merak_status print_phases(const struct plan_auto *plan,
                                      const struct merak_search_result *result,
                                      struct merak_error *err)
{
    struct merak_planned *planned = NULL;
    struct merak_timeline *timeline = NULL;
    enum merak_status rc =
        plan_auto_build(plan, &result->choice[0].plan, result->stage, 0,
                        &planned, &timeline, err);

    if (rc == MERAK_OK)
        rc = merak_phases_print(planned, plan->opt->phases, err);
    merak_timeline_destroy(timeline);
    merak_planned_destroy(planned);
    return rc;
}

/* --- one machine ---------------------------------------------------------- */

static enum merak_status plan_one(const struct plan_options *opt,
                                  struct merak_error *err)
{
    struct plan_auto plan = {.opt = opt};
    struct merak_search_result *result = NULL;
    struct merak_progress progress;
    struct plan_advice advice = {.n_changes = 0};
    char text[PLAN_SEARCH_TEXT];
    enum merak_status rc = plan_auto_fill(&plan, err);

    merak_progress_init(&progress, stderr, "plan", "plans", 0);
    plan.in.progress = &progress;
    if (rc == MERAK_OK)
        rc = plan_search(&plan, &result, err);
    plan.by_hosts = rc == MERAK_OK && plan.in.direct && !result->direct;
    plan.in.direct = rc == MERAK_OK && result->direct;
    plan.in.fast_sums = plan.in.fast_sums && plan.in.direct;
    if (rc == MERAK_OK &&
        (plan_options_has_text(opt) || opt->html != NULL || opt->json != NULL))
        rc = plan_advice_make(&plan, result, &advice, err);
    if (rc == MERAK_OK)
        rc = plan_load_add(&plan, result, err);
    plan.in.progress = NULL;
    merak_progress_clear(&progress);
    if (rc == MERAK_OK && !plan_options_has_text(opt) &&
        plan_search_text(result, text) != NULL)
        fprintf(stderr, "%s\n", text);
    plan.identified = rc == MERAK_OK && (opt->json != NULL || opt->saved.n > 0);
    if (plan.identified)
        rc = merak_chosen_file(&plan.in, result, &plan.file, err);
    if (rc == MERAK_OK && plan.identified)
        plan_islands_name(&plan);
    if (rc == MERAK_OK && opt->json != NULL)
        rc = plan_report_save(&plan, result, &advice, err);
    if (rc == MERAK_OK && (opt->svg != NULL || opt->html != NULL))
        rc = draw(&plan, result, &advice, err);
    if (rc == MERAK_OK && plan_options_has_text(opt)) {
        plan_report_print(&plan, result, &advice);
        plan_cost_print(&opt->run,
                        (double)plan.in.global_batch * (double)plan.in.seq /
                            result->choice[0].step_s,
                        plan.in.nodes * plan.in.ranks_per_node, stdout);
    }
    if (rc == MERAK_OK && opt->emit != PLAN_EMIT_NONE)
        rc = plan_emit_rated(&plan, result, err);
    if (rc == MERAK_OK && plan_options_has_text(opt) && opt->phases != 0)
        rc = print_phases(&plan, result, err);
    plan_advice_fini(&advice);
    merak_search_destroy(result);
    plan_kinds_fini(plan.kind);
    merak_device_fini(&plan.device);
    return rc;
}

enum merak_status merak_plan_auto(const struct plan_options *opt,
                                  struct merak_error *err)
{
    bool table = opt->saved.n > 1 || opt->several.n_nodes > 1 ||
                 opt->several.n_devices > 1;

    return table ? plan_table_print(opt, err) : plan_one(opt, err);
}
