/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.c - when each instruction of a set of programs runs
 *
 * Queues start their instructions in program order once what they wait for
 * is complete.  Compute and collective queues run one at a time.  A transfer
 * takes place when both ends have posted it; a collective when all members
 * have come.  Links are not shared out: transfers do not slow each other.
 *
 * Every time is the maximum of others plus a duration, so the order in which
 * programs are looked at does not matter, and one that gets stuck is one that
 * would hang: the checker uses this too.
 */
#include "config.h"

#include "partitioner/program/program.h"

#include "base/error.h"
#include "partitioner/simulate/meet.h"

#include <stdlib.h>
#include <string.h>

struct queue_state {
    int n, next;
    const int *instr;
    double free_s; /* when the next may start */
};

struct rank_state {
    const struct merak_program *prog;
    struct queue_state queue[MERAK_QUEUE_COUNT];
    int *order;                     /* storage of the queues */
    bool *done;                     /* by instruction: its end is known */
    bool posted[MERAK_QUEUE_COUNT]; /* the head waits for its peers */
    bool listed;                    /* in the work list */
};

struct sim {
    struct merak_program *const *programs;
    int n;
    const struct merak_cost_model *model;
    struct merak_timeline *tl;
    struct rank_state *rank;
    struct merak_meet *meet;
    int *work; /* programs that may advance */
    int n_work;
    long left;
};

static void list_rank(struct sim *s, int p)
{
    if (s->rank[p].listed)
        return;
    s->rank[p].listed = true;
    s->work[s->n_work++] = p;
}

static void finish(struct sim *s, int p, int id, double start, double end)
{
    struct rank_state *r = &s->rank[p];
    enum merak_queue q = r->prog->instr[id].queue;

    s->tl->start[p][id] = start;
    s->tl->end[p][id] = end;
    r->done[id] = true;
    s->left--;
    if (q == MERAK_QUEUE_COMPUTE)
        s->tl->busy_s[p] += end - start;
    if (q == MERAK_QUEUE_COMPUTE || q == MERAK_QUEUE_COLLECTIVE)
        r->queue[q].free_s = end;
    if (end > s->tl->step_s)
        s->tl->step_s = end;
    list_rank(s, p);
}

/* When may it start?  False if something it waits for has no end yet. */
static bool is_ready(const struct sim *s, int p, const struct merak_instr *in,
                     double *at_p)
{
    const struct rank_state *r = &s->rank[p];
    double at = r->queue[in->queue].free_s;

    for (int w = 0; w < in->n_wait; w++) {
        int id = r->prog->wait[in->first_wait + w];

        if (!r->done[id])
            return false;
        if (s->tl->end[p][id] > at)
            at = s->tl->end[p][id];
    }
    *at_p = at;
    return true;
}

/* Start an instruction at `at`; one with peers ends for all of them when the
 * last has come. */
static void start(struct sim *s, int p, const struct merak_instr *in, double at)
{
    struct rank_state *r = &s->rank[p];
    double cost =
        s->model != NULL ? merak_cost_instr(s->model, r->prog, in) : in->cost_s;
    const struct merak_party *party;

    if (in->queue == MERAK_QUEUE_P2P)
        r->queue[in->queue].free_s = at;
    party = merak_meet_arrive(s->meet, p, in, at);
    if (party == NULL) { /* nobody to wait for */
        finish(s, p, in->id, at, at + cost);
        return;
    }
    if (in->queue == MERAK_QUEUE_COLLECTIVE)
        r->posted[in->queue] = true;
    if (party->n_here < party->n_all)
        return;
    for (int i = 0; i < party->n_all; i++) {
        int q = party->at[i].program;

        s->rank[q].posted[in->queue] = false;
        finish(s, q, party->at[i].instr, party->latest_s,
               party->latest_s + cost);
    }
}

static bool advance_queue(struct sim *s, int p, enum merak_queue q)
{
    struct rank_state *r = &s->rank[p];
    struct queue_state *queue = &r->queue[q];
    const struct merak_instr *in;
    double at;

    if (queue->next == queue->n || r->posted[q])
        return false;
    in = &r->prog->instr[queue->instr[queue->next]];
    if (!is_ready(s, p, in, &at))
        return false;
    queue->next++;
    start(s, p, in, at);
    return true;
}

static void advance(struct sim *s)
{
    while (s->n_work > 0) {
        int p = s->work[--s->n_work];
        bool moved = true;

        s->rank[p].listed = false;
        while (moved) {
            moved = false;
            for (int q = 0; q < MERAK_QUEUE_COUNT; q++)
                moved = advance_queue(s, p, (enum merak_queue)q) || moved;
        }
    }
}

/* --- stuck ---------------------------------------------------------------- */

static const struct merak_instr *blocked_head(const struct sim *s, int p)
{
    const struct rank_state *r = &s->rank[p];

    /* The first unfinished instruction in program order is the culprit or
     * waits for another rank. */
    for (int i = 0; i < r->prog->n_instrs; i++) {
        if (!r->done[i])
            return &r->prog->instr[i];
    }
    return NULL;
}

static enum merak_status report_stuck(const struct sim *s,
                                      struct merak_error *err)
{
    for (int p = 0; p < s->n; p++) {
        const struct merak_instr *in = blocked_head(s, p);

        if (in == NULL)
            continue;
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "the programs hang: rank %d never ends instruction "
                          "%d (%s, micro-batch %d)",
                          s->programs[p]->rank, in->id, in->name,
                          in->microbatch);
    }
    return MERAK_OK;
}

/* --- set-up --------------------------------------------------------------- */

static enum merak_status rank_init(struct sim *s, int p,
                                   struct merak_error *err)
{
    struct rank_state *r = &s->rank[p];
    const struct merak_program *prog = s->programs[p];
    size_t n = (size_t)prog->n_instrs + 1;
    int at = 0;

    r->prog = prog;
    r->order = calloc(n, sizeof(*r->order));
    r->done = calloc(n, sizeof(*r->done));
    s->tl->start[p] = calloc(n, sizeof(double));
    s->tl->end[p] = calloc(n, sizeof(double));
    if (r->order == NULL || r->done == NULL || s->tl->start[p] == NULL ||
        s->tl->end[p] == NULL)
        return merak_fail_nomem(err, n * sizeof(double));
    for (int q = 0; q < MERAK_QUEUE_COUNT; q++) {
        r->queue[q].instr = r->order + at;
        for (int i = 0; i < prog->n_instrs; i++) {
            if ((int)prog->instr[i].queue != q)
                continue;
            r->order[at++] = i;
            r->queue[q].n++;
        }
    }
    s->left += prog->n_instrs;
    list_rank(s, p);
    return MERAK_OK;
}

static enum merak_status sim_init(struct sim *s, struct merak_error *err)
{
    size_t n = (size_t)s->n + 1;
    enum merak_status rc;

    s->tl = calloc(1, sizeof(*s->tl));
    s->rank = calloc(n, sizeof(*s->rank));
    s->work = calloc(n, sizeof(*s->work));
    if (s->tl == NULL || s->rank == NULL || s->work == NULL)
        return merak_fail_nomem(err, n * sizeof(*s->rank));
    s->tl->n = s->n;
    s->tl->start = calloc(n, sizeof(*s->tl->start));
    s->tl->end = calloc(n, sizeof(*s->tl->end));
    s->tl->busy_s = calloc(n, sizeof(*s->tl->busy_s));
    if (s->tl->start == NULL || s->tl->end == NULL || s->tl->busy_s == NULL)
        return merak_fail_nomem(err, n * sizeof(double *));
    rc = merak_meet_create(s->programs, s->n, &s->meet, err);
    for (int p = 0; p < s->n && rc == MERAK_OK; p++)
        rc = rank_init(s, p, err);
    return rc;
}

static void sim_fini(struct sim *s)
{
    for (int p = 0; s->rank != NULL && p < s->n; p++) {
        free(s->rank[p].order);
        free(s->rank[p].done);
    }
    free(s->rank);
    free(s->work);
    merak_meet_destroy(s->meet);
    merak_timeline_destroy(s->tl);
}

enum merak_status merak_simulate(struct merak_program *const *programs, int n,
                                 const struct merak_cost_model *model,
                                 struct merak_timeline **timeline_p,
                                 struct merak_error *err)
{
    struct sim s = {.programs = programs, .n = n, .model = model};
    enum merak_status rc;

    rc = sim_init(&s, err);
    if (rc != MERAK_OK)
        goto out;
    advance(&s);
    rc = report_stuck(&s, err);
    if (rc != MERAK_OK)
        goto out;
    *timeline_p = s.tl;
    s.tl = NULL; /* the caller's now */
out:
    sim_fini(&s);
    return rc;
}

void merak_timeline_destroy(struct merak_timeline *timeline)
{
    if (timeline == NULL)
        return;
    for (int p = 0; p < timeline->n; p++) {
        if (timeline->start != NULL)
            free(timeline->start[p]);
        if (timeline->end != NULL)
            free(timeline->end[p]);
    }
    free(timeline->start);
    free(timeline->end);
    free(timeline->busy_s);
    free(timeline);
}
