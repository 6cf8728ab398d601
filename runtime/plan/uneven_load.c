/* SPDX-License-Identifier: Apache-2.0 */
/* uneven_load.c - the step of a plan where experts get rows unevenly
 *
 * Every layer waits for the fullest of the ranks that experts are divided over,
 * and which one that is may change from layer to layer: so it is as if all of
 * them had its rows.
 */
#include "config.h"

#include "runtime/plan/auto.h"
#include "runtime/plan/plan_options.h"

#include "base/error.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/program/instr_cost.h"
#include "partitioner/simulate/timeline.h"

#include <math.h>
#include <stdio.h>

enum merak_status plan_load_check(const struct plan_options *opt,
                                  struct merak_error *err)
{
    if (opt->expert_load == 0)
        return MERAK_OK;
    if (opt->expert_load < 1)
        return merak_fail(
            err, MERAK_ERR_CONFIG,
            "--expert-load %g: the fullest rank has an even share "
            "or more; expected 1 or more",
            opt->expert_load);
    if (opt->device == NULL || opt->several.n_devices > 1 ||
        opt->several.n_nodes > 1 || opt->saved.n > 1 ||
        opt->choice.list.stage != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--expert-load is for one plan of one machine: give "
                          "one --device, and no lists");
    return MERAK_OK;
}

enum merak_status plan_load_add(struct plan_auto *plan,
                                const struct merak_search_result *result,
                                struct merak_error *err)
{
    struct merak_planned *planned = NULL;
    struct merak_timeline *timeline = NULL;
    enum merak_status rc;

    if (plan->opt->expert_load == 0)
        return MERAK_OK;
    rc = plan_auto_build(plan, &result->choice[0].plan, result->stage,
                         plan->opt->expert_load, &planned, &timeline, err);
    plan->most_load = 1;
    for (int p = 0; rc == MERAK_OK && p < planned->n_programs; p++)
        plan->most_load =
            fmax(plan->most_load, merak_program_most_load(planned->program[p]));
    if (rc == MERAK_OK)
        plan->loaded_s = timeline->step_s;
    merak_timeline_destroy(timeline);
    merak_planned_destroy(planned);
    return rc;
}

void plan_load_print(const struct plan_auto *plan)
{
    char step[MERAK_SECONDS_TEXT];

    if (plan->loaded_s == 0)
        return;
    if (plan->most_load > 1)
        printf("with rows for the fullest rank of ep %g times an even share, "
               "of at most %g: %s\n",
               plan->opt->expert_load, plan->most_load,
               merak_seconds_text(plan->loaded_s, step));
    else
        printf("experts are not divided: the same at any --expert-load\n");
}
