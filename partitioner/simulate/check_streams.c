/* SPDX-License-Identifier: Apache-2.0 */
/* check_streams.c - prove that programs end in a device's queues, with NCCL
 *
 * A transport through host memory matches messages by tags, and operations may
 * end in any order.  In a device's queues neither holds.  Three proofs:
 *   exchanges  the programs' orders of exchanges, over all groups, are parts of
 *              one order: two ranks never wait for each other in different
 *              groups.
 *   messages   for each pair of ranks the sends of one are the receives of the
 *              other, in order, flow by flow.
 *   progress   the programs, played without time, all end, where
 *                - queues end in order: an instruction starts when the one
 *                  before it in its queue and those that it waits for are over;
 *                - transfers and exchanges of a rank start in program order,
 *                  whichever queue they are in;
 *                - one of these is over when all its members have started.
 *
 * The second rule of progress is what the engine does and what NCCL requires of
 * several communicators on one device: work is issued to them in one order.  It
 * also makes the depth of queues harmless: if a rank cannot queue more because
 * two transfers are in one queue, the first of them ends without what was not
 * queued, since the second could not have started before it otherwise.
 *
 * The play is monotone: nothing that starts keeps another from starting, so the
 * order in which ranks are visited does not matter.
 */
#include "config.h"

#include "partitioner/simulate/check_streams.h"

#include "base/error.h"
#include "partitioner/program/streams.h"
#include "partitioner/simulate/meet.h"

#include <stdlib.h>

static bool moves(const struct merak_instr *in)
{
    return in->kind == MERAK_INSTR_EXCHANGE || in->kind == MERAK_INSTR_SEND ||
           in->kind == MERAK_INSTR_RECV;
}

/* --- exchanges --------------------------------------------------------------
 */

static int next_exchange(const struct merak_program *prog, int from)
{
    while (from < prog->n_instrs &&
           prog->instr[from].kind != MERAK_INSTR_EXCHANGE)
        from++;
    return from;
}

static enum merak_status report_circle(struct merak_program *const *programs,
                                       const int *at, int n,
                                       struct merak_error *err)
{
    const struct merak_instr *x, *y;
    int p = 0, q;

    while (at[p] == programs[p]->n_instrs)
        p++;
    for (q = p + 1; q < n && at[q] == programs[q]->n_instrs;)
        q++;
    x = &programs[p]->instr[at[p]];
    if (q == n)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "rank %d runs exchange %d (%s) alone",
                          programs[p]->rank, x->id, x->name);
    y = &programs[q]->instr[at[q]];
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "exchanges have no common order: rank %d comes to "
                      "instruction %d (%s, micro-batch %d, group %s) and rank "
                      "%d to %d (%s, micro-batch %d, group %s)",
                      programs[p]->rank, x->id, x->name, x->microbatch,
                      programs[p]->group[x->group].name, programs[q]->rank,
                      y->id, y->name, y->microbatch,
                      programs[q]->group[y->group].name);
}

/* Have all its members among the programs arrived?  Each arrives once. */
static bool is_met(struct merak_meet *meet, int p, const struct merak_instr *in,
                   bool *arrived)
{
    const struct merak_match *met = merak_meet_find(meet, p, in);

    if (met == NULL)
        return true;
    if (!*arrived)
        (void)merak_meet_arrive(meet, p, in, 0.0);
    *arrived = true;
    return met->n_here == met->n_all;
}

static enum merak_status check_exchanges(struct merak_meet *meet,
                                         struct merak_program *const *programs,
                                         int n, int *at, bool *arrived,
                                         struct merak_error *err)
{
    bool moved = true;
    int left = 0;

    for (int p = 0; p < n; p++) {
        at[p] = next_exchange(programs[p], 0);
        arrived[p] = false;
    }
    while (moved) {
        moved = false;
        left = 0;
        for (int p = 0; p < n; p++) {
            while (at[p] < programs[p]->n_instrs &&
                   is_met(meet, p, &programs[p]->instr[at[p]], &arrived[p])) {
                at[p] = next_exchange(programs[p], at[p] + 1);
                arrived[p] = false;
                moved = true;
            }
            left += at[p] < programs[p]->n_instrs;
        }
    }
    return left == 0 ? MERAK_OK : report_circle(programs, at, n, err);
}

/* --- messages ---------------------------------------------------------------
 */

/* The next receive from a peer in a flow; NULL: there is none. */
static const struct merak_instr *next_from(const struct merak_program *prog,
                                           int from, int peer,
                                           enum merak_flow_kind flow)
{
    for (int i = from; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind == MERAK_INSTR_RECV && in->peer == peer &&
            merak_message_flow(in) == flow)
            return in;
    }
    return NULL;
}

static enum merak_status check_message(const struct merak_program *prog,
                                       const struct merak_program *other,
                                       const struct merak_instr *sent, int *at,
                                       struct merak_error *err)
{
    const struct merak_instr *got =
        next_from(other, *at, prog->rank, merak_message_flow(sent));

    if (got != NULL && got->tag == sent->tag &&
        other->slot[got->slot[0]].bytes == prog->slot[sent->slot[0]].bytes) {
        *at = got->id + 1;
        return MERAK_OK;
    }
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "rank %d sends %s (instruction %d, micro-batch %d) to "
                      "rank %d, which next receives %s (instruction %d, "
                      "micro-batch %d) from it",
                      prog->rank, sent->name, sent->id, sent->microbatch,
                      other->rank, got != NULL ? got->name : "nothing",
                      got != NULL ? got->id : -1,
                      got != NULL ? got->microbatch : -1);
}

/* Check what one rank sends; at[n * flows]: each peer's next receive. */
static enum merak_status check_sends(const struct merak_meet *meet,
                                     struct merak_program *const *programs,
                                     int n, int p, int *at,
                                     struct merak_error *err)
{
    const struct merak_program *prog = programs[p];
    enum merak_status rc = MERAK_OK;

    for (int q = 0; q < n * MERAK_FLOW_KINDS; q++)
        at[q] = 0;
    for (int i = 0; i < prog->n_instrs && rc == MERAK_OK; i++) {
        const struct merak_instr *in = &prog->instr[i];
        int q = in->kind == MERAK_INSTR_SEND
                    ? merak_meet_program(meet, in->peer)
                    : -1;

        if (q >= 0)
            rc = check_message(
                prog, programs[q], in,
                &at[q * MERAK_FLOW_KINDS + (int)merak_message_flow(in)], err);
    }
    return rc;
}

static enum merak_status check_messages(const struct merak_meet *meet,
                                        struct merak_program *const *programs,
                                        int n, int *at, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int p = 0; p < n && rc == MERAK_OK; p++)
        rc = check_sends(meet, programs, n, p, at, err);
    return rc;
}

/* --- progress ---------------------------------------------------------------
 */

struct player {
    const struct merak_program *prog;
    int *stream;             /* by instruction */
    int *follows;            /* by instruction: the next in its queue, or -1 */
    int head[MERAK_STREAMS]; /* first of each queue not over, or -1 */
    bool *started, *over;    /* by instruction */
    int next_move;           /* first not started that moves(), or n_instrs */
};

struct play {
    int n;
    struct player *player;
    struct merak_meet *meet;
    bool moved;
};

static void find_next_move(struct player *r)
{
    while (r->next_move < r->prog->n_instrs &&
           (!moves(&r->prog->instr[r->next_move]) || r->started[r->next_move]))
        r->next_move++;
}

static enum merak_status player_init(struct player *r,
                                     const struct merak_program *prog,
                                     struct merak_error *err)
{
    size_t n = (size_t)prog->n_instrs + 1;
    int last[MERAK_STREAMS];

    r->prog = prog;
    r->stream = calloc(n, sizeof(*r->stream));
    r->follows = calloc(n, sizeof(*r->follows));
    r->started = calloc(n, sizeof(*r->started));
    r->over = calloc(n, sizeof(*r->over));
    if (r->stream == NULL || r->follows == NULL || r->started == NULL ||
        r->over == NULL)
        return merak_fail_nomem(err, n * sizeof(*r->stream));
    merak_program_streams(prog, r->stream);
    for (int s = 0; s < MERAK_STREAMS; s++)
        r->head[s] = last[s] = -1;
    for (int i = 0; i < prog->n_instrs; i++) {
        int s = r->stream[i];

        r->follows[i] = -1;
        if (last[s] < 0)
            r->head[s] = i;
        else
            r->follows[last[s]] = i;
        last[s] = i;
    }
    find_next_move(r);
    return MERAK_OK;
}

static void player_fini(struct player *r)
{
    free(r->stream);
    free(r->follows);
    free(r->started);
    free(r->over);
}

/* May the head of a queue start?  All before it in the queue is over. */
static bool may_start(const struct player *r, const struct merak_instr *in)
{
    if (r->started[in->id] || (moves(in) && in->id != r->next_move))
        return false;
    for (int w = 0; w < in->n_wait; w++) {
        if (!r->over[r->prog->wait[in->first_wait + w]])
            return false;
    }
    return true;
}

static void end(struct player *r, int id)
{
    r->over[id] = true;
    r->head[r->stream[id]] = r->follows[id];
}

static void start(struct play *play, int p, const struct merak_instr *in)
{
    struct player *r = &play->player[p];
    const struct merak_match *met = merak_meet_arrive(play->meet, p, in, 0.0);

    r->started[in->id] = true;
    find_next_move(r);
    play->moved = true;
    if (met == NULL)
        end(r, in->id); /* nobody to wait for */
    else if (met->n_here == met->n_all)
        for (int i = 0; i < met->n_all; i++)
            end(&play->player[met->at[i].program], met->at[i].instr);
}

/* Start everything that one rank can start now. */
static void advance(struct play *play, int p)
{
    struct player *r = &play->player[p];
    bool moved = true;

    while (moved) {
        moved = false;
        for (int s = 0; s < MERAK_STREAMS; s++) {
            const struct merak_instr *in =
                r->head[s] < 0 ? NULL : &r->prog->instr[r->head[s]];

            if (in == NULL || !may_start(r, in))
                continue;
            start(play, p, in);
            moved = true;
        }
    }
}

static enum merak_status report_stuck(const struct play *play,
                                      struct merak_error *err)
{
    for (int p = 0; p < play->n; p++) {
        const struct player *r = &play->player[p];

        for (int i = 0; i < r->prog->n_instrs; i++) {
            const struct merak_instr *in = &r->prog->instr[i];

            if (r->over[i])
                continue;
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "in a device's queues the programs hang: rank %d "
                              "%s instruction %d (%s, micro-batch %d)",
                              r->prog->rank,
                              r->started[i] ? "never ends" : "never starts",
                              in->id, in->name, in->microbatch);
        }
    }
    return MERAK_OK;
}

static enum merak_status check_progress(struct merak_meet *meet,
                                        struct merak_program *const *programs,
                                        int n, struct merak_error *err)
{
    struct play play = {.n = n, .meet = meet, .moved = true};
    enum merak_status rc = MERAK_OK;

    play.player = calloc((size_t)n + 1, sizeof(*play.player));
    if (play.player == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*play.player));
    for (int p = 0; p < n && rc == MERAK_OK; p++)
        rc = player_init(&play.player[p], programs[p], err);
    merak_meet_restart(meet);
    while (rc == MERAK_OK && play.moved) {
        play.moved = false;
        for (int p = 0; p < n; p++)
            advance(&play, p);
    }
    if (rc == MERAK_OK)
        rc = report_stuck(&play, err);
    for (int p = 0; p < n; p++)
        player_fini(&play.player[p]);
    free(play.player);
    return rc;
}

enum merak_status
merak_program_check_streams(struct merak_program *const *programs, int n,
                            struct merak_error *err)
{
    int *at = calloc((size_t)n * MERAK_FLOW_KINDS + 1, sizeof(*at));
    bool *arrived = calloc((size_t)n + 1, sizeof(*arrived));
    struct merak_meet *meet = NULL;
    enum merak_status rc = MERAK_OK;

    if (at == NULL || arrived == NULL)
        rc = merak_fail_nomem(err, (size_t)n * sizeof(*at));
    if (rc == MERAK_OK)
        rc = merak_meet_create(programs, n, &meet, err);
    if (rc == MERAK_OK)
        rc = check_exchanges(meet, programs, n, at, arrived, err);
    if (rc == MERAK_OK)
        rc = check_messages(meet, programs, n, at, err);
    if (rc == MERAK_OK)
        rc = check_progress(meet, programs, n, err);
    merak_meet_destroy(meet);
    free(at);
    free(arrived);
    return rc;
}
