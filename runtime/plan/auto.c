/* SPDX-License-Identifier: Apache-2.0 */
/* auto.c - `merak plan --device NAME`: the search */
#include "config.h"

#include "runtime/plan/auto.h"
#include "runtime/plan/draw.h"

#include "base/error.h"
#include "kernels/kernels.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/simulate/simulate.h"
#include "runtime/train/chosen.h"
#include "runtime/train/phases.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* What is given, but for degrees that are said to be auto. */
static struct merak_choices pins_of(const struct merak_choices *choice)
{
    struct merak_choices pin = *choice;

    pin.tp = pin.tp > 0 ? pin.tp : 0;
    pin.pp = pin.pp > 0 ? pin.pp : 0;
    pin.dp = pin.dp > 0 ? pin.dp : 0;
    return pin;
}

/* The kernels of a run on the device: `merak calibrate` begins a device's
 * name with theirs.  Without any, scratch is not counted. */
static enum merak_status fill_scratch(struct plan_auto *plan,
                                      struct merak_error *err)
{
    const struct merak_backend *backend = NULL;
    char name[sizeof(plan->device.name)];

    snprintf(name, sizeof(name), "%s", plan->device.name);
    name[strcspn(name, ",")] = '\0';
    if (plan->opt->given.backend) {
        if (merak_backend_find(plan->opt->backend, &backend, err) != MERAK_OK)
            return err->status;
    } else if (merak_backend_find(name, &backend, NULL) != MERAK_OK) {
        return MERAK_OK;
    }
    plan->in.scratch = merak_kernel_scratch;
    plan->in.scratch_arg = (void *)(uintptr_t)backend;
    return MERAK_OK;
}

static enum merak_status fill_input(struct plan_auto *plan,
                                    struct merak_error *err)
{
    const struct plan_options *opt = plan->opt;
    enum merak_status rc = merak_chosen_device(opt->device, &plan->device, err);

    if (rc == MERAK_OK)
        rc = plan_model_open(opt, &plan->model, err);
    if (rc != MERAK_OK)
        return rc;
    plan->in = (struct merak_search_input){
        .describe = plan->model.describe,
        .arg = plan->model.arg,
        .seq = plan_model_seq(&plan->model, opt),
        .dtype = opt->given.dtype ? opt->plan.dtype
                                  : merak_device_dtype(&plan->device),
        .global_batch = opt->global_batch,
        .nodes = opt->nodes,
        .ranks_per_node = opt->ranks_per_node > 0 ? opt->ranks_per_node
                                                  : plan->device.ranks_per_node,
        .memory_bytes = opt->plan.memory_bytes,
        .threads = 1,
        .device = &plan->device,
        .pin = pins_of(&opt->choice)};
    return fill_scratch(plan, err);
}

/* --- pictures ------------------------------------------------------------- */

/* Micro-batches that are drawn: enough to see the pipeline fill, settle and
 * drain.  Schedules in rounds take multiples of the stages, sub-pipelines even
 * numbers. */
static int drawn_microbatches(const struct merak_plan *p)
{
    int round = 2 * p->pp, few = (32 + round - 1) / round * round;

    return p->microbatches > few ? few : p->microbatches;
}

/* A rank of each stage, built and simulated to be seen. */
static enum merak_status build(const struct plan_auto *plan,
                               const struct merak_plan *drawn,
                               struct merak_planned **planned_p,
                               struct merak_timeline **timeline_p,
                               struct merak_error *err)
{
    struct merak_cost_model cost;
    const struct merak_program_options po = {.scratch = plan->in.scratch,
                                             .scratch_arg =
                                                 plan->in.scratch_arg,
                                             .cost = &cost};
    enum merak_status rc;

    merak_device_cost(&plan->device, plan->in.dtype, plan->in.ranks_per_node,
                      &cost);
    rc = merak_plan_build(drawn, plan->in.seq, plan->in.describe, plan->in.arg,
                          MERAK_PLAN_STAGES, &po, planned_p, err);
    if (rc == MERAK_OK)
        rc = merak_simulate((*planned_p)->program, (*planned_p)->n_programs,
                            &cost, timeline_p, err);
    return rc;
}

static enum merak_status draw(const struct plan_auto *plan,
                              const struct merak_search_result *result,
                              struct merak_error *err)
{
    const struct merak_search_choice *best = &result->choice[0];
    struct merak_planned *planned = NULL;
    struct merak_timeline *timeline = NULL;
    char heading[128];
    struct plan_drawing drawing = {
        .heading = heading,
        .plan = &best->plan,
        .stage = result->stage,
        .limit_bytes = result->memory_limit,
        .step_s = best->step_s,
        .tokens_per_s =
            (double)plan->in.global_batch * (double)plan->in.seq / best->step_s,
        .bubble = best->part_s[MERAK_PART_BUBBLE] / best->step_s,
        .utilisation = result->flop_utilisation,
        .result = result};
    struct merak_plan drawn = best->plan;
    enum merak_status rc;

    drawn.microbatches = drawn_microbatches(&best->plan);
    rc = build(plan, &drawn, &planned, &timeline, err);
    plan_report_heading(plan, result, heading, sizeof(heading));
    drawing.planned = planned;
    drawing.timeline = timeline;
    if (rc == MERAK_OK && plan->opt->svg != NULL)
        rc = plan_draw_svg(&drawing, plan->opt->svg, err);
    if (rc == MERAK_OK && plan->opt->html != NULL)
        rc = plan_draw_html(&drawing, plan->opt->html, err);
    merak_timeline_destroy(timeline);
    merak_planned_destroy(planned);
    return rc;
}

/* Of all micro-batches. */
static enum merak_status print_phases(const struct plan_auto *plan,
                                      const struct merak_search_result *result,
                                      struct merak_error *err)
{
    struct merak_planned *planned = NULL;
    struct merak_timeline *timeline = NULL;
    enum merak_status rc =
        build(plan, &result->choice[0].plan, &planned, &timeline, err);

    if (rc == MERAK_OK)
        rc = merak_phases_print(planned, plan->opt->phases, err);
    merak_timeline_destroy(timeline);
    merak_planned_destroy(planned);
    return rc;
}

enum merak_status merak_plan_auto(const struct plan_options *opt,
                                  struct merak_error *err)
{
    struct plan_auto plan = {.opt = opt};
    struct merak_search_result *result = NULL;
    struct merak_progress progress;
    enum merak_status rc = fill_input(&plan, err);

    merak_progress_init(&progress, stderr, "plan", "plans", 0);
    plan.in.progress = &progress;
    if (rc == MERAK_OK)
        rc = merak_search(&plan.in, &result, err);
    plan.in.progress = NULL;
    merak_progress_clear(&progress);
    plan.identified = rc == MERAK_OK && opt->json != NULL;
    if (plan.identified)
        rc = merak_chosen_file(&plan.in, result, &plan.file, err);
    if (rc == MERAK_OK && opt->json != NULL)
        rc = plan_report_save(&plan, result, err);
    if (rc == MERAK_OK && (opt->svg != NULL || opt->html != NULL))
        rc = draw(&plan, result, err);
    if (rc == MERAK_OK && plan_options_has_text(opt))
        plan_report_print(&plan, result);
    if (rc == MERAK_OK && plan_options_has_text(opt) && opt->phases != 0)
        rc = print_phases(&plan, result, err);
    merak_search_destroy(result);
    merak_device_fini(&plan.device);
    return rc;
}
