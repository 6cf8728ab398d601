/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c - transfers that go from accelerator to accelerator
 *
 * The communication thread puts exchanges and messages into the accelerator's
 * queues as soon as what they wait for is issued, and does not wait for them:
 * what depends on one is ordered after its event.  Exchanges over replicas
 * share a queue, and all others one; messages have a lane (a queue) for each
 * peer and flow (partitioner/program/streams.h), since a message holds up its
 * queue until its peer is there.
 *
 * Exchanges and messages are issued in program order, as one sequence.  NCCL
 * requires the same order on all ranks, and with it queues may have any
 * length: a rank whose queue is full waits for what is ahead, which has been
 * proved to complete without what comes later (partitioner/simulate/
 * check_streams.c).
 */
#include "config.h"

#include "runtime/engine/engine_impl.h"

#include "base/error.h"

#include <stdlib.h>

static int comm_of(const struct merak_engine *e,
                   const struct merak_instr *instr)
{
    const int *rank = e->opt.transport_rank;
    int me = rank[e->program->rank];

    switch (instr->kind) {
    case MERAK_INSTR_EXCHANGE:
        return merak_link_team(e->opt.link, &e->team[instr->group]);
    case MERAK_INSTR_SEND:
        return merak_link_pair(e->opt.link, me, rank[instr->peer],
                               merak_message_flow(instr));
    case MERAK_INSTR_RECV:
        return merak_link_pair(e->opt.link, rank[instr->peer], me,
                               merak_message_flow(instr));
    default:
        return -1;
    }
}

/* Check that the planned arena has room for what an exchange stages. */
static enum merak_status check_scratch(const struct merak_engine *e,
                                       const struct merak_instr *instr,
                                       struct merak_error *err)
{
    size_t need = merak_link_scratch(e->opt.link, instr->exchange);
    size_t have =
        instr->scratch < 0 ? 0 : e->program->slot[instr->scratch].bytes;

    if (need <= have)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "instruction %d (%s) stages %zu bytes, and %zu were "
                      "planned",
                      instr->id, instr->name, need, have);
}

static int longest_bundle(const struct merak_program *p)
{
    int longest = 1, n;

    for (int i = 0; i < p->n_instrs; i += n) {
        n = 1 + merak_instr_joined(p, i);
        longest = n > longest ? n : longest;
    }
    return longest;
}

enum merak_status merak_engine_direct_init(struct merak_engine *e,
                                           struct merak_error *err)
{
    const struct merak_program *p = e->program;
    size_t longest = (size_t)longest_bundle(p);
    enum merak_status rc = MERAK_OK;

    if (e->opt.link == NULL)
        return MERAK_OK;
    e->accel.comm = calloc((size_t)p->n_instrs + 1, sizeof(*e->accel.comm));
    if (e->accel.comm == NULL)
        return merak_fail_nomem(err,
                                (size_t)p->n_instrs * sizeof(*e->accel.comm));
    e->accel.call = calloc(longest, sizeof(*e->accel.call));
    if (e->accel.call == NULL)
        return merak_fail_nomem(err, longest * sizeof(*e->accel.call));
    e->accel.n_streams = merak_program_stream_count(p);
    merak_program_streams(p, e->accel.stream);
    for (int i = 0; i < p->n_instrs && rc == MERAK_OK; i++) {
        const struct merak_instr *instr = &p->instr[i];
        bool alone = instr->kind == MERAK_INSTR_EXCHANGE &&
                     p->group[instr->group].n == 1;

        e->accel.comm[i] = comm_of(e, instr);
        if (merak_instr_moves(instr) && !alone && e->accel.comm[i] < 0)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "instruction %d (%s) has no communicator", i,
                              instr->name);
        if (instr->kind == MERAK_INSTR_EXCHANGE)
            rc = check_scratch(e, instr, err);
    }
    return rc;
}

static enum merak_status queue_message(struct merak_engine *e,
                                       const struct merak_instr *instr,
                                       struct merak_error *err)
{
    const struct merak_link_message message = {
        .send = instr->kind == MERAK_INSTR_SEND,
        .at = merak_engine_slot(e, instr->slot[0]),
        .bytes = e->program->slot[instr->slot[0]].bytes,
    };

    return merak_link_message(e->opt.link, e->accel.comm[instr->id],
                              e->accel.stream[instr->id], &message, err);
}

/* The exchanges that join one are queued with it. */
static enum merak_status queue_exchange(struct merak_engine *e,
                                        const struct merak_instr *instr,
                                        struct merak_error *err)
{
    int comm = e->accel.comm[instr->id], queue = e->accel.stream[instr->id];
    int n = 1 + merak_instr_joined(e->program, instr->id);

    if (instr->joined)
        return MERAK_OK;
    for (int i = 0; i < n; i++)
        e->accel.call[i] = (struct merak_link_call){
            .ex = instr[i].exchange,
            .in = merak_engine_slot(e, instr[i].slot[0]),
            .out = merak_engine_slot(e, instr[i].slot[instr[i].n_in]),
            .scratch = instr[i].scratch < 0
                           ? NULL
                           : merak_engine_slot(e, instr[i].scratch),
            .queue = queue};
    return merak_link_exchange(e->opt.link, comm, e->accel.call, n, err);
}

enum merak_status merak_engine_move(struct merak_engine *e,
                                    const struct merak_instr *instr,
                                    struct merak_error *err)
{
    enum merak_status rc = merak_engine_begin_instr(e, instr, err);

    if (rc == MERAK_OK)
        rc = instr->kind == MERAK_INSTR_EXCHANGE ? queue_exchange(e, instr, err)
                                                 : queue_message(e, instr, err);
    return rc == MERAK_OK ? merak_engine_mark_issued(e, instr, err) : rc;
}
