/* SPDX-License-Identifier: Apache-2.0 */
/* uneven_load.c - what a plan keeps of experts' rows, and its step where they
 * get rows unevenly
 *
 * Every layer waits for the fullest of the ranks that experts are divided over,
 * and which one that is may change from layer to layer: so it is as if all of
 * them had its rows.
 */
#include "config.h"

#include "runtime/plan/auto.h"
#include "runtime/plan/plan_options.h"

#include "base/error.h"
#include "base/size.h"
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

/* A rank's part of a value. */
static double local_bytes(const struct merak_sharded *s, int value)
{
    double bytes = (double)merak_value_bytes(s->graph->value[value]);

    for (int a = 0; a < s->mesh.n_axes; a++) {
        if (s->layout[value].at[a].kind == MERAK_SPLIT)
            bytes /= s->mesh.axis[a].size;
    }
    return bytes;
}

/* Of the layer that keeps the most.  A node of experts has their matrices, and
 * numbers of those of each token; what it keeps is its last output. */
static void find_kept(struct plan_auto *plan, const struct merak_sharded *s,
                      size_t ep)
{
    for (int n = 0; n < s->graph->n_forward; n++) {
        const struct merak_node *node = s->graph->node[n];
        size_t all = 0, chosen = 0;
        double bytes, own;

        if (node->op->loaded == NULL)
            continue;
        for (int i = 0; i < node->n_in; i++) {
            const struct merak_value *v = node->in[i];

            if (v->kind == MERAK_VALUE_PARAM && v->shape.ndim == 3)
                all = v->shape.dim[0];
            else if (v->dtype == MERAK_I32 && v->shape.ndim == 3)
                chosen = v->shape.dim[2];
        }
        bytes = local_bytes(s, node->out[node->n_out - 1]->id);
        if (all <= 1 || chosen == 0 || bytes <= plan->experts.layer)
            continue;
        own = (double)all / (double)ep;
        plan->experts.n = all;
        plan->experts.layer = bytes;
        plan->experts.most =
            fmin((double)chosen, own) / (double)chosen * (double)ep;
    }
}

static enum merak_status add_kept(struct plan_auto *plan,
                                  const struct merak_plan *built,
                                  struct merak_error *err)
{
    struct merak_planned *planned = NULL;
    enum merak_status rc = MERAK_OK;

    if (built->ep > 1)
        rc = merak_plan_build(built, plan->in.seq, plan->in.describe,
                              plan->in.arg, MERAK_PLAN_NONE, NULL, &planned,
                              err);
    if (rc == MERAK_OK && built->ep > 1)
        find_kept(plan, planned->sharded, (size_t)built->ep);
    merak_planned_destroy(planned);
    return rc;
}

enum merak_status plan_load_add(struct plan_auto *plan,
                                const struct merak_search_result *result,
                                struct merak_error *err)
{
    struct merak_planned *planned = NULL;
    struct merak_timeline *timeline = NULL;
    enum merak_status rc = add_kept(plan, &result->choice[0].plan, err);

    if (rc != MERAK_OK || plan->opt->expert_load == 0)
        return rc;
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

/* "experts: 8 over ep 8, 1 a rank; rows exchanged; 560 MiB .." */
static void print_kept(const struct plan_auto *plan, const struct merak_plan *p)
{
    double capacity = plan->opt->objective.capacity;
    char bytes[MERAK_BYTES_TEXT];

    if (plan->experts.n == 0)
        return;
    merak_bytes_text(plan->experts.layer, bytes);
    printf("experts: %zu over ep %d, %zu a rank; %s; %s of activations a "
           "layer and micro-batch for %d %% of an even share of rows, of at "
           "most %.4g %%; more is computed again, ",
           plan->experts.n, p->ep, plan->experts.n / (size_t)p->ep,
           p->ep_form == MERAK_EP_EXCHANGE ? "rows exchanged"
                                           : "tokens gathered",
           bytes, p->expert_room > 0 ? p->expert_room : MERAK_EXPERT_ROOM,
           100 * plan->experts.most);
    if (capacity > 0)
        printf("rows beyond %g times the share of an expert are dropped\n",
               capacity);
    else
        printf("nothing is dropped\n");
}

void plan_load_print(const struct plan_auto *plan, const struct merak_plan *p)
{
    char step[MERAK_SECONDS_TEXT];

    print_kept(plan, p);
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
