/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.c - when each instruction of a set of programs runs
 *
 * Queues start their instructions in program order once what they wait for
 * is complete.  All but point-to-point run one at a time.  A transfer
 * begins when both ends have posted it, a collective when all members have
 * arrived.  Either makes a kernel that runs then longer (struct
 * merak_interference).  Bytes between nodes share uplinks (net.c), and two
 * exchanges of a rank that stay in the node share its links there.
 *
 * Time advances from one end of an instruction to the next.  All that ends at
 * an instant ends before anything starts, and kernels start before what might
 * slow them, so the order in which programs are visited does not matter.  A
 * program that gets stuck here would hang in a run; check.c uses this, too.
 */
#include "config.h"

#include "partitioner/program/program.h"

#include "base/error.h"
#include "partitioner/simulate/agenda.h"
#include "partitioner/simulate/meet.h"
#include "partitioner/simulate/net.h"
#include "partitioner/simulate/simulate.h"
#include "partitioner/program/instr_cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOOK 1024 /* instants from one look at the deadline to the next */

struct queue_state {
    int n, next;
    const int *instr;
    bool busy;       /* the one before `next` is running */
    double shared_s; /* it is longer by that: another shares the node's links */
};

struct rank_state {
    const struct merak_program *prog;
    struct queue_state queue[MERAK_QUEUE_COUNT];
    int *order;     /* storage of the queues */
    bool *done;     /* by instruction */
    bool listed;    /* in the work list */
    int under_way;  /* exchanges and transfers in flight */
    double awake_s; /* until when communication is awake without any */
};

struct sim {
    struct merak_program *const *programs;
    int n;
    const struct merak_cost_model *model;
    struct merak_timeline *tl;
    struct rank_state *rank;
    struct merak_meet *meet;
    struct merak_agenda agenda; /* ends of what has begun, except flows */
    struct merak_net *net;      /* flows: communication between nodes */
    double now_s;
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

static bool one_at_a_time(enum merak_queue q)
{
    return q != MERAK_QUEUE_P2P;
}

static bool communicates(enum merak_queue q)
{
    return merak_queue_exchanges(q) || q == MERAK_QUEUE_P2P;
}

/* --- what begins and ends ------------------------------------------------- */

static struct merak_demand demand_of(const struct sim *s, int p,
                                     const struct merak_instr *in)
{
    if (s->model != NULL)
        return merak_cost_demand(s->model, s->programs[p], in);
    if (merak_demand_is_far(&in->demand))
        return in->demand;
    return (struct merak_demand){.fixed_s = in->cost_s};
}

/* Slow the kernel that runs while an exchange or a transfer begins.  While one
 * is in flight, communication is awake. */
static void slow_down(struct sim *s, int p, const struct merak_instr *in)
{
    struct rank_state *r = &s->rank[p];
    const struct queue_state *compute = &r->queue[MERAK_QUEUE_COMPUTE];
    struct merak_interference interference =
        s->model != NULL ? merak_cost_instr_interference(s->model, r->prog, in)
                         : in->interference;
    double lost = interference.copy_s;

    if (r->under_way++ == 0 && s->now_s > r->awake_s)
        lost += interference.wake_s;
    r->awake_s = fmax(r->awake_s, s->now_s + interference.wake_s);
    if (compute->busy && lost > 0)
        s->tl->end[p][compute->instr[compute->next - 1]] += lost;
}

/* The exchange of a queue that moves bytes inside the node now, and for how
 * long still at this rank; NULL: there is none. */
static const struct merak_instr *inside_node(const struct sim *s, int p,
                                             enum merak_queue q, double *left_p)
{
    const struct queue_state *queue = &s->rank[p].queue[q];
    const struct merak_instr *in;
    struct merak_demand demand;

    if (!queue->busy)
        return NULL;
    in = &s->programs[p]->instr[queue->instr[queue->next - 1]];
    demand = demand_of(s, p, in);
    *left_p =
        s->tl->start[p][in->id] + demand.fixed_s + queue->shared_s - s->now_s;
    return s->tl->end[p][in->id] > s->now_s && !merak_demand_is_far(&demand)
               ? in
               : NULL;
}

/* An exchange is longer by what it is at the member where it is longest. */
static double longest(const struct sim *s, const struct merak_member *member,
                      int n, enum merak_queue q)
{
    double most = 0;

    for (int i = 0; i < n; i++)
        most = fmax(most, s->rank[member[i].program].queue[q].shared_s);
    return most;
}

/* What moves inside the node is so much longer at this rank. */
static void lengthen(struct sim *s, int p, const struct merak_instr *in,
                     double seconds)
{
    const struct merak_member alone = {.program = p, .instr = in->id};
    const struct merak_match *met = merak_meet_find(s->meet, p, in);
    const struct merak_member *member = met != NULL ? met->at : &alone;
    int n = met != NULL ? met->n_all : 1;
    double before = longest(s, member, n, in->queue), more;

    s->rank[p].queue[in->queue].shared_s += seconds;
    more = longest(s, member, n, in->queue) - before;
    for (int i = 0; i < n; i++)
        s->tl->end[member[i].program][member[i].instr] += more;
}

/* An exchange inside the node takes `seconds` alone.  While another of a
 * member does, too, each has half of the rate.  Returns by how much it is
 * longer. */
static double share_node(struct sim *s, const struct merak_member *member,
                         int n, double seconds)
{
    enum merak_queue q =
        s->programs[member->program]->instr[member->instr].queue;
    enum merak_queue beside = q == MERAK_QUEUE_REPLICAS ? MERAK_QUEUE_COLLECTIVE
                                                        : MERAK_QUEUE_REPLICAS;

    for (int i = 0; i < n; i++) {
        double left = 0,
               *shared_s = &s->rank[member[i].program].queue[q].shared_s;
        const struct merak_instr *other =
            inside_node(s, member[i].program, beside, &left);

        *shared_s = other != NULL ? fmax(fmin(seconds, left), 0) : 0;
        if (other != NULL)
            lengthen(s, member[i].program, other, *shared_s);
    }
    return longest(s, member, n, q);
}

/* Begin an instruction for all its members at once. */
static void begin(struct sim *s, const struct merak_demand *demand,
                  const struct merak_member *member, int n)
{
    double end_s = s->now_s + demand->fixed_s;
    bool far = merak_demand_is_far(demand);

    if (!far && merak_queue_exchanges(
                    s->programs[member->program]->instr[member->instr].queue))
        end_s += share_node(s, member, n, demand->fixed_s);
    for (int i = 0; i < n; i++) {
        int p = member[i].program, id = member[i].instr;
        const struct merak_instr *in = &s->programs[p]->instr[id];

        s->tl->start[p][id] = s->now_s;
        s->tl->end[p][id] = end_s;
        if (!far)
            merak_agenda_add(&s->agenda, (struct merak_event){end_s, p, id});
        if (communicates(in->queue))
            slow_down(s, p, in);
    }
    if (far)
        merak_net_begin(s->net, s->now_s, demand, member, n);
}

static void finish(struct sim *s, int p, int id)
{
    struct rank_state *r = &s->rank[p];
    enum merak_queue q = r->prog->instr[id].queue;

    r->done[id] = true;
    s->left--;
    if (q == MERAK_QUEUE_COMPUTE)
        s->tl->busy_s[p] += s->tl->end[p][id] - s->tl->start[p][id];
    if (one_at_a_time(q))
        r->queue[q].busy = false;
    if (communicates(q)) {
        r->under_way--;
        r->awake_s = fmax(r->awake_s, s->now_s);
    }
    s->tl->step_s = s->now_s;
    list_rank(s, p);
}

static bool is_ready(const struct rank_state *r, const struct merak_instr *in)
{
    for (int w = 0; w < in->n_wait; w++) {
        if (!r->done[r->prog->wait[in->first_wait + w]])
            return false;
    }
    return true;
}

/* An instruction with peers begins for all of them when the last arrives. */
static void start(struct sim *s, int p, const struct merak_instr *in)
{
    struct rank_state *r = &s->rank[p];
    const struct merak_member alone = {.program = p, .instr = in->id};
    const struct merak_match *met = merak_meet_arrive(s->meet, p, in, s->now_s);
    struct merak_demand demand;

    r->queue[in->queue].busy = one_at_a_time(in->queue);
    if (met != NULL && met->n_here < met->n_all)
        return;
    demand = demand_of(s, p, in);
    if (met == NULL) /* nobody to wait for */
        begin(s, &demand, &alone, 1);
    else
        begin(s, &demand, met->at, met->n_all);
}

static void advance_queue(struct sim *s, int p, enum merak_queue q)
{
    struct rank_state *r = &s->rank[p];
    struct queue_state *queue = &r->queue[q];

    while (queue->next < queue->n && !queue->busy) {
        const struct merak_instr *in =
            &r->prog->instr[queue->instr[queue->next]];

        if (!is_ready(r, in))
            return;
        queue->next++;
        start(s, p, in);
    }
}

/* Start everything that can start now. */
static void start_listed(struct sim *s)
{
    for (int i = 0; i < s->n_work; i++)
        advance_queue(s, s->work[i], MERAK_QUEUE_COMPUTE);
    for (int i = 0; i < s->n_work; i++) {
        for (int q = MERAK_QUEUE_COMPUTE + 1; q < MERAK_QUEUE_COUNT; q++)
            advance_queue(s, s->work[i], (enum merak_queue)q);
        s->rank[s->work[i]].listed = false;
    }
    s->n_work = 0;
}

/* A kernel that was slowed meanwhile ends later than its event. */
static void end_one(struct sim *s, const struct merak_event *event)
{
    double end = s->tl->end[event->program][event->instr];

    merak_agenda_drop(&s->agenda);
    if (end > event->at_s)
        merak_agenda_add(&s->agenda, (struct merak_event){end, event->program,
                                                          event->instr});
    else
        finish(s, event->program, event->instr);
}

/* End the flows that are due. */
static void end_flows(struct sim *s)
{
    const struct merak_member *member = NULL;
    double at_s;

    while (merak_net_next(s->net, &at_s) && !(at_s > s->now_s)) {
        int n = merak_net_take(s->net, s->now_s, &member);

        for (int i = 0; i < n; i++) {
            s->tl->end[member[i].program][member[i].instr] = s->now_s;
            finish(s, member[i].program, member[i].instr);
        }
    }
    merak_net_settle(s->net, s->now_s);
}

/* End everything that is due at the next instant, and at least one event, even
 * if a time is NaN. */
static bool end_next(struct sim *s)
{
    struct merak_event event;
    double at_s = 0;
    bool ends = merak_agenda_first(&s->agenda, &event);
    bool flows = merak_net_next(s->net, &at_s);

    if (!ends && !flows)
        return false;
    if (ends && !(flows && event.at_s > at_s)) {
        s->now_s = event.at_s;
        do
            end_one(s, &event);
        while (merak_agenda_first(&s->agenda, &event) &&
               event.at_s <= s->now_s);
    } else {
        s->now_s = at_s;
    }
    end_flows(s);
    return true;
}

/* Until nothing more ends, or the deadline, which is looked at rarely. */
static enum merak_status advance(struct sim *s,
                                 const struct merak_deadline *deadline,
                                 struct merak_error *err)
{
    unsigned events = 0;

    do {
        if (events++ % LOOK == 0 && merak_deadline_is_past(deadline))
            return merak_fail(err, MERAK_ERR_TIMEOUT,
                              "no time to simulate the programs");
        start_listed(s);
    } while (end_next(s));
    return MERAK_OK;
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
    r->awake_s = -1;
    list_rank(s, p);
    return MERAK_OK;
}

static enum merak_status sim_init(struct sim *s, struct merak_error *err)
{
    size_t n = (size_t)s->n + 1;
    struct merak_links links = {.n_groups = 0};
    enum merak_status rc;

    if (s->model != NULL)
        links = s->model->links;
    else if (s->n > 0)
        links = s->programs[0]->links;
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
    if (rc == MERAK_OK)
        rc = merak_agenda_init(&s->agenda, (size_t)s->left, err);
    if (rc == MERAK_OK)
        rc = merak_net_create(s->programs, s->n, &links, &s->net, err);
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
    merak_agenda_fini(&s->agenda);
    merak_net_destroy(s->net);
    merak_timeline_destroy(s->tl);
}

enum merak_status merak_simulate(struct merak_program *const *programs, int n,
                                 const struct merak_cost_model *model,
                                 const struct merak_deadline *deadline,
                                 struct merak_timeline **timeline_p,
                                 struct merak_error *err)
{
    struct sim s = {.programs = programs, .n = n, .model = model};
    enum merak_status rc;

    rc = sim_init(&s, err);
    if (rc != MERAK_OK)
        goto out;
    rc = advance(&s, deadline, err);
    if (rc == MERAK_OK)
        rc = report_stuck(&s, err);
    if (rc != MERAK_OK)
        goto out;
    *timeline_p = s.tl;
    s.tl = NULL; /* now owned by the caller */
out:
    sim_fini(&s);
    return rc;
}

void merak_timeline_keep(struct merak_timeline *timeline, const int *row, int n)
{
    int kept = 0;

    for (int p = 0; p < timeline->n; p++) {
        if (kept == n || row[kept] != p) {
            free(timeline->start[p]);
            free(timeline->end[p]);
            continue;
        }
        timeline->start[kept] = timeline->start[p];
        timeline->end[kept] = timeline->end[p];
        timeline->busy_s[kept++] = timeline->busy_s[p];
    }
    timeline->n = kept;
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
