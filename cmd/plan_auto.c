/* SPDX-License-Identifier: Apache-2.0 */
/* plan_auto.c - `merak plan --device NAME`: the search */
#include "config.h"

#include "cmd/plan_auto.h"

#include "base/error.h"

#include <string.h>

static enum merak_pin pin_of(bool given, bool value)
{
    return !given ? MERAK_PIN_FREE : value ? MERAK_PIN_YES : MERAK_PIN_NO;
}

/* Degrees that were given, or said to be auto. */
static int degree_of(bool given, int degree)
{
    return given && degree > 0 ? degree : 0;
}

static void fill_pins(const struct plan_options *opt,
                      struct merak_search_pins *pin)
{
    const struct merak_plan *plan = &opt->plan;

    *pin = (struct merak_search_pins){
        .tp = degree_of(opt->given.tp, plan->tp),
        .pp = degree_of(opt->given.pp, plan->pp),
        .dp = degree_of(opt->given.dp, plan->dp),
        .micro_batch = opt->given.micro_batch ? plan->micro_batch : 0,
        .schedule = opt->given.schedule ? plan->schedule : NULL,
        .chunks = opt->given.chunks ? plan->chunks : 0,
        .sub_pipeline = pin_of(opt->given.sub_pipeline, plan->sub_pipeline),
        .fix_recompute = opt->given.recompute,
        .recompute = plan->recompute,
        .zero1 = pin_of(opt->given.zero1, plan->zero1),
        .order_tp_pp_dp = pin_of(opt->given.order, plan->order_tp_pp_dp),
        .fix_sp = opt->given.sp,
        .sp = plan->sp};
}

static enum merak_status fill_input(struct plan_auto *plan,
                                    struct merak_error *err)
{
    const struct plan_options *opt = plan->opt;
    enum merak_status rc = merak_device_find(opt->device, &plan->device, err);

    if (rc == MERAK_OK)
        rc = merak_hf_config_load(opt->model, &plan->config, err);
    if (rc != MERAK_OK)
        return rc;
    plan->in = (struct merak_search_input){
        .describe = merak_hf_describe,
        .arg = &plan->config,
        .seq = opt->seq > 0 ? opt->seq : plan->config.positions,
        .dtype = opt->given.dtype ? opt->plan.dtype : MERAK_BF16,
        .global_batch = opt->global_batch,
        .nodes = opt->nodes,
        .ranks_per_node = opt->ranks_per_node > 0 ? opt->ranks_per_node
                                                  : plan->device.ranks_per_node,
        .memory_bytes = opt->plan.memory_bytes,
        .threads = 1,
        .device = &plan->device};
    fill_pins(opt, &plan->in.pin);
    return MERAK_OK;
}

enum merak_status merak_plan_auto(const struct plan_options *opt,
                                  struct merak_error *err)
{
    struct plan_auto plan = {.opt = opt};
    struct merak_search_result *result = NULL;
    enum merak_status rc = fill_input(&plan, err);

    if (rc == MERAK_OK)
        rc = merak_search(&plan.in, &result, err);
    if (rc == MERAK_OK && opt->json != NULL)
        rc = plan_report_save(&plan, result, err);
    if (rc == MERAK_OK && (opt->json == NULL || strcmp(opt->json, "-") != 0))
        plan_report_print(&plan, result);
    merak_search_destroy(result);
    return rc;
}
