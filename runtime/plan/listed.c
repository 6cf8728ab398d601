/* SPDX-License-Identifier: Apache-2.0 */
/* listed.c - `merak plan --stages LIST --device NAME`: stages that are listed,
 * on a machine
 *
 * There is nothing to search for: such a plan is built from the choices that
 * are given, like one without a device, but for the device's speeds and memory,
 * and with ranks that fill its nodes one after another.  Those may be of
 * several kinds, as of a saved plan.
 */
#include "config.h"

#include "runtime/plan/listed.h"

#include "base/error.h"
#include "base/size.h"
#include "partitioner/device/device.h"
#include "partitioner/plan/mesh.h"
#include "partitioner/program/offload.h"
#include "runtime/plan/node_kinds.h"

#include <stdio.h>
#include <stdlib.h>

bool plan_listed_has_kinds(const struct plan_options *opt)
{
    return opt->several.kinds.n > 1;
}

static int count_ranks(const struct plan_options *opt)
{
    struct merak_plan plan = opt->plan;

    merak_choices_take(&opt->choice, &plan);
    return merak_plan_ranks(&plan);
}

/* Nodes that are given have exactly the ranks of the list; else they are as
 * many as its ranks need. */
static enum merak_status take_nodes(struct plan_options *opt,
                                    struct merak_error *err)
{
    int ranks = count_ranks(opt), s;

    if (opt->ranks_per_node == 0)
        opt->ranks_per_node = opt->machine.device.links.level[0].ranks;
    if (opt->ranks_per_node == 0)
        opt->ranks_per_node = ranks;
    s = opt->choice.list.stage == NULL
            ? -1
            : merak_stages_leave_node(opt->choice.list.stage,
                                      opt->choice.list.n_stages,
                                      opt->ranks_per_node);
    if (s >= 0) {
        const struct merak_stage_degrees *at = &opt->choice.list.stage[s];

        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--stages: stage %d, %d x %d, does not fit whole "
                          "nodes of %d behind stage %d: its tensor ranks would "
                          "leave a node; change the order of stages, or their "
                          "tensor ranks",
                          s, at->dp, at->tp, opt->ranks_per_node,
                          s > 0 ? s - 1 : 0);
    }
    if (!opt->given.nodes)
        opt->nodes = (ranks - 1) / opt->ranks_per_node + 1;
    else if ((long)opt->nodes * opt->ranks_per_node != ranks)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--stages of %d rank%s on %d node%s of %d: expected "
                          "as many ranks as these nodes have, %ld; change the "
                          "list, --nodes or --gpus-per-node",
                          ranks, merak_plural(ranks), opt->nodes,
                          merak_plural(opt->nodes), opt->ranks_per_node,
                          (long)opt->nodes * opt->ranks_per_node);
    return MERAK_OK;
}

enum merak_status plan_listed_take(struct plan_options *opt,
                                   struct merak_error *err)
{
    struct merak_device *device = &opt->machine.device;
    struct merak_search_input in;
    enum merak_status rc;

    if (opt->several.n_nodes > 1 || opt->several.n_devices > 1 ||
        opt->saved.n > 1)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--stages of unlike ranks are planned one list and "
                          "one machine at a time: give one --device, --nodes "
                          "and --plan");
    rc = plan_kinds_load(opt, opt->machine.kind, device, err);
    opt->machine.is_known = rc == MERAK_OK;
    if (rc == MERAK_OK)
        rc = take_nodes(opt, err);
    if (rc != MERAK_OK)
        return rc;
    if (!opt->given.dtype)
        opt->plan.dtype = merak_device_dtype(device);
    if (opt->plan.memory_bytes == 0)
        opt->plan.memory_bytes = device->memory_bytes;
    plan_listed_request(opt, &in);
    merak_search_cost(&in, &opt->cost);
    return MERAK_OK;
}

void plan_listed_fini(struct plan_options *opt)
{
    merak_device_fini(&opt->machine.device);
    plan_kinds_fini(opt->machine.kind);
}

/* --- nodes of several kinds ------------------------------------------------
 */

void plan_listed_request(const struct plan_options *opt,
                         struct merak_search_input *in)
{
    *in = (struct merak_search_input){.dtype = opt->plan.dtype,
                                      .seq = opt->seq,
                                      .global_batch = opt->global_batch,
                                      .nodes = opt->nodes,
                                      .ranks_per_node = opt->ranks_per_node,
                                      .device = &opt->machine.device};
    plan_kinds_fill(opt, opt->machine.kind, in);
}

static int kind_of_rank(const struct plan_options *opt, int rank)
{
    int k = 0, node = rank / opt->ranks_per_node;

    while (k + 1 < opt->several.kinds.n && node >= opt->several.kinds.nodes[k])
        node -= opt->several.kinds.nodes[k++];
    return k;
}

int plan_listed_kind(const struct plan_options *opt,
                     const struct merak_plan *plan, int stage)
{
    return plan_listed_has_kinds(opt)
               ? kind_of_rank(opt, merak_plan_mesh(plan, stage).first)
               : 0;
}

size_t plan_listed_memory(const struct plan_options *opt,
                          const struct merak_plan *plan, int stage)
{
    if (opt->memory_bytes > 0 || !plan_listed_has_kinds(opt))
        return opt->plan.memory_bytes;
    return opt->machine.kind[plan_listed_kind(opt, plan, stage)].memory_bytes;
}

static enum merak_status find_kinds(const struct plan_options *opt, int *kind,
                                    struct merak_error *err)
{
    const struct merak_plan *plan = &opt->plan;

    for (int s = 0; s < plan->pp; s++) {
        const struct merak_stage_mesh mesh = merak_plan_mesh(plan, s);
        int last = kind_of_rank(opt, mesh.first + merak_stage_ranks(&mesh) - 1);

        kind[s] = plan_listed_kind(opt, plan, s);
        if (kind[s] != last)
            return merak_fail(
                err, MERAK_ERR_CONFIG,
                "--stages: stage %d, %d x %d, would be on nodes of %s and of "
                "%s: expected stages on one kind each, whose ranks fill the "
                "nodes in the order of --nodes; change the list or the order",
                s, mesh.dp, mesh.tp, opt->several.kinds.name[kind[s]],
                opt->several.kinds.name[last]);
    }
    return MERAK_OK;
}

static enum merak_status
build_kinds(const struct plan_options *opt, const struct plan_model *model,
            struct merak_program_options po, int *kind, double *speed,
            struct merak_planned **planned_p, struct merak_error *err)
{
    struct merak_cost_model cost[MERAK_MAX_KINDS];
    struct merak_program_options of[MERAK_MAX_KINDS];
    struct merak_search_input in;
    enum merak_status rc = find_kinds(opt, kind, err);

    if (rc != MERAK_OK)
        return rc;
    plan_listed_request(opt, &in);
    for (int k = 0; k < in.n_kinds; k++) {
        merak_search_kind_cost(&in, &in.kind[k], &cost[k]);
        of[k] = po;
        of[k].cost = &cost[k];
    }
    for (int s = 0; s < opt->plan.pp; s++)
        speed[s] = cost[kind[s]].flops_per_s / opt->cost.flops_per_s;
    po.speed = speed;
    rc = merak_plan_build(&opt->plan, opt->seq, model->describe, model->arg,
                          MERAK_PLAN_NONE, &po, planned_p, err);
    return rc == MERAK_OK
               ? merak_planned_build(*planned_p, MERAK_PLAN_ALL, of, kind, err)
               : rc;
}

enum merak_status plan_listed_build(const struct plan_options *opt,
                                    const struct plan_model *model,
                                    const struct merak_program_options *po,
                                    struct merak_planned **planned_p,
                                    struct merak_error *err)
{
    size_t pp = (size_t)opt->plan.pp;
    double *speed;
    int *kind;
    enum merak_status rc;

    if (!plan_listed_has_kinds(opt))
        return merak_plan_build(
            &opt->plan, opt->seq, model->describe, model->arg,
            opt->plan.stage != NULL ? MERAK_PLAN_ALL : MERAK_PLAN_STAGES, po,
            planned_p, err);
    speed = calloc(pp, sizeof(*speed));
    kind = calloc(pp, sizeof(*kind));
    rc = speed == NULL || kind == NULL
             ? merak_fail_nomem(err, pp * sizeof(*speed))
             : build_kinds(opt, model, *po, kind, speed, planned_p, err);
    free(speed);
    free(kind);
    return rc;
}

enum merak_status plan_listed_check_memory(const struct plan_options *opt,
                                           const struct merak_planned *planned,
                                           struct merak_error *err)
{
    const struct merak_plan *plan = &planned->plan;
    char needed[MERAK_BYTES_TEXT], limit[MERAK_BYTES_TEXT];

    for (int p = 0; p < planned->n_programs && opt->machine.is_known; p++) {
        const struct merak_program *prog = planned->program[p];
        double bytes = merak_program_needs(prog, &opt->cost.host);
        double most = (double)plan_listed_memory(opt, plan, prog->stage);

        if (bytes <= most)
            continue;
        merak_bytes_text(bytes, needed);
        merak_bytes_text(most, limit);
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--stages: stage %d, %d x %d, does not fit: its rank "
                          "%d needs %s, and the limit is %s; give it more "
                          "tensor ranks or, with --cut, fewer layers, or "
                          "--recompute auto or --zero 3",
                          prog->stage, prog->mesh.dp, prog->mesh.tp, prog->rank,
                          needed, limit);
    }
    return MERAK_OK;
}

const char *plan_listed_text(const struct plan_options *opt, int ranks,
                             char text[PLAN_MACHINE_TEXT])
{
    char nodes[PLAN_KINDS_TEXT];
    struct merak_search_input in;

    text[0] = '\0';
    if (!opt->machine.is_known)
        return text;
    plan_listed_request(opt, &in);
    plan_kinds_text(&in, nodes);
    if ((long)opt->nodes * opt->ranks_per_node == ranks)
        snprintf(text, PLAN_MACHINE_TEXT, ", on %s", nodes);
    else
        snprintf(text, PLAN_MACHINE_TEXT, ", on %d of %.150s", ranks, nodes);
    return text;
}
