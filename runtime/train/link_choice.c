/* SPDX-License-Identifier: Apache-2.0 */
/* link_choice.c - whether NCCL is the transport between GPUs
 *
 * With --transport nccl, anything that prevents it ends the run with a reason.
 * By default NCCL is used if the backend is cuda, every task has its own GPU,
 * the library is found, its communicators can be made and the programs are
 * proved not to deadlock in its queues; else data goes through host memory, and
 * the log gives the reason.  The choice is the same on all tasks.
 *
 * The proof is part of planning, since programs for NCCL reserve memory for
 * its staging; the library is looked for later, once memory is allocated.
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/log.h"
#include "partitioner/search/node_orders.h"
#include "partitioner/simulate/check_streams.h"

#include <stdio.h>
#include <stdlib.h>

_Static_assert((int)MERAK_STREAMS <= (int)MERAK_ACCEL_QUEUES,
               "an accelerator has a queue for each");

bool merak_trainer_wants_link(const struct merak_trainer *t)
{
    return merak_link_is_wanted(t->compute.backend, t->boot->size,
                                t->opt.transport == MERAK_TRANSPORT_AUTO,
                                t->opt.transport == MERAK_TRANSPORT_NCCL);
}

int merak_link_queues(const struct merak_trainer *t)
{
    return t->linked.direct ? MERAK_STREAMS : MERAK_QUEUE_COUNT;
}

/* --- the choice -------------------------------------------------------------
 */

enum merak_status merak_link_prove(struct merak_trainer *t,
                                   struct merak_error *err)
{
    const struct merak_program_options opt = merak_trainer_program_options(t);
    struct merak_error why = {.status = MERAK_OK};
    enum merak_status rc =
        merak_stages_check_streams(t->sharded, t->stages, &t->plan, &opt, &why);

    if (rc == MERAK_OK)
        return MERAK_OK;
    if (rc == MERAK_ERR_CORRUPT) {
        merak_error_wrap(&why, MERAK_PLAN_NOT_DIRECT, t->plan.schedule);
        rc = why.status = MERAK_ERR_CONFIG;
        if (t->opt.transport == MERAK_TRANSPORT_AUTO) {
            t->linked.direct = false;
            snprintf(t->linked.why, sizeof(t->linked.why), "%s", why.text);
            return MERAK_OK;
        }
    }
    if (err != NULL)
        *err = why;
    return rc;
}

enum merak_status merak_link_estimate(struct merak_trainer *t,
                                      struct merak_error *err)
{
    const struct merak_program *program[] = {t->program, t->eval};
    const struct merak_link_options opt = {
        .transport_rank = t->ranks.transport_rank,
        .program = program,
        .n_programs = 2,
    };

    t->linked.comms = 0;
    t->linked.bytes = 0;
    if (!t->linked.direct || t->compute.accel == NULL ||
        t->compute.accel->ops->memory == NULL)
        return MERAK_OK;
    return merak_link_memory(&opt, &t->linked.comms, &t->linked.bytes, err);
}

static enum merak_status open_link(struct merak_trainer *t,
                                   const struct merak_link_ops *ops,
                                   struct merak_error *err)
{
    const struct merak_program *program[] = {t->program, t->eval};
    const struct merak_link_options opt = {
        .ops = ops,
        .boot = t->boot,
        .tr = t->tr,
        .accel = t->compute.accel,
        .transport_rank = t->ranks.transport_rank,
        .program = program,
        .n_programs = 2,
        .deadline_s = t->opt.deadline_s,
        .trial = merak_slots_arena(t),
        .trial_bytes = t->memory.arena_bytes,
        .fast = t->opt.reduce_fast,
    };

    return merak_link_open(&opt, &t->linked.link, err);
}

/* If --reduce fast is impossible, fail rather than sum in another order. */
static enum merak_status check_reduce(const struct merak_trainer *t,
                                      struct merak_error *err)
{
    if (!t->opt.reduce_fast || t->linked.link != NULL || t->boot->size == 1)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--reduce fast needs --transport nccl%s%.400s",
                      t->linked.why[0] != '\0' ? ": "
                                               : ", which backend and "
                                                 "tasks here do not have",
                      t->linked.why);
}

/* Go on through host memory; all tasks do.  If opening the device link failed,
 * the transport has told the ranks that waited to give up: open it anew. */
static enum merak_status do_without(struct merak_trainer *t, bool opened,
                                    const struct merak_error *why,
                                    struct merak_error *err)
{
    enum merak_status rc;

    snprintf(t->linked.why, sizeof(t->linked.why), "%s", why->text);
    rc = check_reduce(t, err);
    if (rc != MERAK_OK || !opened)
        return rc;
    rc = merak_transport_abandon(&t->tr, t->boot, err);
    return rc == MERAK_OK ? merak_trainer_transport(t, err) : rc;
}

/* A rank may be gone, or not answer: the others would wait for it again. */
static bool is_of_a_peer(enum merak_status rc)
{
    return rc == MERAK_ERR_LOST || rc == MERAK_ERR_TIMEOUT;
}

/* Streams of this rank's GPU: the engines', and NCCL's own. */
static int streams_of(const struct merak_trainer *t)
{
    int train = merak_program_stream_count(t->program);
    int eval = merak_program_stream_count(t->eval);

    return (train > eval ? train : eval) + 2 * t->linked.comms + 1;
}

/* CUDA gives a process at most 32 hardware queues; streams beyond that share
 * one, and then wait for each other. */
static enum merak_status warn_of_streams(const struct merak_trainer *t,
                                         struct merak_error *err)
{
    int mine = streams_of(t), most = 0, *all;
    enum merak_status rc = MERAK_OK;

    all = calloc((size_t)t->boot->size, sizeof(*all));
    if (all == NULL)
        rc = merak_fail_nomem(err, (size_t)t->boot->size * sizeof(*all));
    rc = merak_boot_allgather(t->boot, rc, &mine, sizeof(mine), all, err);
    for (int r = 1; r < t->boot->size && rc == MERAK_OK; r++)
        most = all[r] > all[most] ? r : most;
    if (rc == MERAK_OK && t->boot->rank == 0 && all[most] > MERAK_ACCEL_QUEUES)
        merak_warn("train",
                   "rank %d uses %d streams of its GPU, with NCCL's, and CUDA "
                   "runs %d independently: transfers may wait for others",
                   t->ranks.logical_rank[most], all[most], MERAK_ACCEL_QUEUES);
    free(all);
    return rc;
}

enum merak_status merak_link_choose(struct merak_trainer *t,
                                    struct merak_error *err)
{
    bool insists = t->opt.transport == MERAK_TRANSPORT_NCCL;
    struct merak_error why = {.status = MERAK_OK};
    const struct merak_link_ops *ops;
    struct merak_link_tasks tasks;
    enum merak_status rc = MERAK_OK;
    bool opened;

    if (insists)
        rc = merak_link_check_backend(t->compute.backend, err);
    if (rc != MERAK_OK)
        return rc;
    if (!t->linked.direct)
        return check_reduce(t, err);
    tasks = (struct merak_link_tasks){t->boot, t->compute.accel->ops,
                                      &t->compute.card, t->ranks.logical_rank};
    rc = merak_link_look("nccl", &tasks, &ops, &why);
    opened = rc == MERAK_OK;
    if (opened)
        rc = open_link(t, ops, &why);
    if (rc == MERAK_OK)
        return warn_of_streams(t, err);
    if (!insists && !is_of_a_peer(rc))
        return do_without(t, opened, &why, err);
    if (err != NULL)
        *err = why;
    return rc;
}
