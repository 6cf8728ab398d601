/* SPDX-License-Identifier: Apache-2.0 */
/* listed.c - `merak plan --stages LIST --device NAME`: unlike stages on a
 * machine
 *
 * Unlike stages are not searched for, so that such a plan is built from the
 * choices that are given, like one without a device, but for the device's
 * speeds and memory, and with ranks that fill its nodes one after another.
 */
#include "config.h"

#include "runtime/plan/listed.h"

#include "base/error.h"
#include "base/size.h"
#include "partitioner/device/device.h"
#include "partitioner/plan/mesh.h"
#include "partitioner/program/offload.h"
#include "runtime/train/chosen.h"

#include <stdio.h>

/* Nodes that are given have exactly the ranks of the list; else they are as
 * many as its ranks need. */
static enum merak_status take_nodes(struct plan_options *opt,
                                    struct merak_error *err)
{
    int ranks =
        merak_stages_ranks(opt->choice.list.stage, opt->choice.list.n_stages);
    int s;

    if (opt->ranks_per_node == 0)
        opt->ranks_per_node = opt->machine.device.links.level[0].ranks;
    if (opt->ranks_per_node == 0)
        opt->ranks_per_node = ranks;
    s = merak_stages_leave_node(opt->choice.list.stage,
                                opt->choice.list.n_stages, opt->ranks_per_node);
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
    enum merak_status rc;

    if (opt->several.n_nodes > 1 || opt->several.n_devices > 1 ||
        opt->saved.n > 1)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--stages of unlike ranks are planned one list and "
                          "one machine at a time: give one --device, --nodes "
                          "and --plan");
    rc = merak_chosen_device(opt->device, device, err);
    opt->machine.is_known = rc == MERAK_OK;
    if (rc == MERAK_OK)
        rc = take_nodes(opt, err);
    if (rc != MERAK_OK)
        return rc;
    if (!opt->given.dtype)
        opt->plan.dtype = merak_device_dtype(device);
    if (opt->plan.memory_bytes == 0)
        opt->plan.memory_bytes = device->memory_bytes;
    merak_device_cost(device, opt->plan.dtype, opt->ranks_per_node, &opt->cost);
    return MERAK_OK;
}

void plan_listed_fini(struct plan_options *opt)
{
    merak_device_fini(&opt->machine.device);
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

        if (bytes <= (double)plan->memory_bytes)
            continue;
        merak_bytes_text(bytes, needed);
        merak_bytes_text((double)plan->memory_bytes, limit);
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
    const char *device = opt->machine.device.name;

    text[0] = '\0';
    if (opt->machine.is_known &&
        (long)opt->nodes * opt->ranks_per_node == ranks)
        snprintf(text, PLAN_MACHINE_TEXT, ", on %d x %d %s", opt->nodes,
                 opt->ranks_per_node, device);
    else if (opt->machine.is_known)
        snprintf(text, PLAN_MACHINE_TEXT, ", on %d of %d x %d %s", ranks,
                 opt->nodes, opt->ranks_per_node, device);
    return text;
}
