/* SPDX-License-Identifier: Apache-2.0 */
/* posts.c - when receives are posted, if one action ahead does not work
 *
 * Between neighbours a receive is posted one action before the one that uses
 * it, and what is sent is kept that long.  What skips stages, or is for another
 * pass, is sent long before it is used.  If its receive were posted that late,
 * the sender, which gives up the slot sooner, would wait for the receiver,
 * which waits for others, which wait for the sender.
 *
 * So the schedule is played, with one unit of time for forwards, two for
 * backwards and none for transfers, and every receive is posted one action
 * before the first that starts when the sender is done.  In the play it is then
 * posted before the value is sent: no sender ever waits for a receive.  The
 * remaining waits are for what was computed, and for memory that earlier
 * actions give back, and all of them point forward in the time of that play.
 * Whatever the real times are, they cannot form a cycle.
 *
 * So are receives under eager:W, whose hops may take longer than an action: a
 * receive that is posted when the value is sent gives it all the time that the
 * warm-ups leave.
 *
 * A pair's halves are sent one after the other.  Where a device's queues run in
 * order, the second is not received before the first is over, nor anything
 * started that follows in the program: posted with the first, it would keep
 * this stage's sends from neighbours that wait for them.  It is posted when the
 * first action starts that finds it sent, and by then the first is over.
 *
 * Vocabulary-parallel layers of all stages are played as such: they start when
 * the last stage is ready.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "base/error.h"
#include "partitioner/program/streams.h"
#include "partitioner/schedule/time.h"

#include <stdlib.h>
#include <string.h>

/* A value that comes from another stage. */
struct merak_arrival {
    int value, from, part; /* stage and the part there that sends it */
    const struct merak_carry *carry; /* from the previous pass; or NULL */
    /* Receives, identified by the micro-batches of a pair and the actions that
     * read them: the first to be posted before an action, and the next after
     * each. */
    int *head, *next;
    int now; /* of the action before which receives are posted */
};

static void add_arrival(struct merak_build *b, int value, int from, int part,
                        const struct merak_carry *carry)
{
    b->arrivals.arrival[b->arrivals.n++] = (struct merak_arrival){
        .value = value, .from = from, .part = part, .carry = carry};
}

static void list_arrivals(struct merak_build *b)
{
    size_t most = (size_t)b->n_local + MERAK_MAX_RECYCLED;

    b->arrivals.arrival =
        merak_build_alloc(b, most * sizeof(*b->arrivals.arrival));
    for (int i = 0; i < b->n_local && b->rc == MERAK_OK; i++) {
        const struct merak_flow *f = &b->flow[b->local[i]];

        if (f->from >= 0)
            add_arrival(b, b->local[i], f->from, f->part_from, NULL);
    }
    for (int i = 0; i < b->recycled.n && b->rc == MERAK_OK; i++) {
        const struct merak_carry *c = &b->recycled.carry[i];

        if (c->from != c->to && c->to == b->stage)
            add_arrival(b, c->in, c->from, b->flow[c->out].home, c);
    }
}

/* --- a stage's actions by what they are ----------------------------------- */

static size_t place_of(const struct merak_timetable *table,
                       enum merak_action_kind kind, int part,
                       const struct merak_action *a, int pass)
{
    return merak_lists_place(table->lists, kind, part,
                             a->microbatch * table->args.slices + a->slice,
                             pass);
}

/* end[]: when forwards and backwards of a stage end. */
static void list_ends(const struct merak_timetable *table, int stage,
                      double *end)
{
    const struct merak_timetable_row *row = &table->row[stage];

    for (int i = 0; i < row->n; i++) {
        const struct merak_action *a = &row->action[i];
        int part = table->lists->part[stage * table->args.chunks + a->chunk];

        if (a->kind == MERAK_ACT_F || a->kind == MERAK_ACT_B)
            end[place_of(table, a->kind, part, a, a->pass)] = row->end[i];
    }
}

/* --- posts ---------------------------------------------------------------- */

static int width(const struct merak_build *b)
{
    return b->prog->plan.sub_pipeline ? 2 : 1;
}

/* Is an action the one that a value has to come for? */
static bool comes_for(struct merak_build *b, const struct merak_arrival *v,
                      const struct merak_action *a)
{
    b->now.slice = a->slice;
    merak_build_set_pass(b, a);
    if (v->carry != NULL)
        return a->kind == MERAK_ACT_F && a->pass > 0 &&
               a->chunk == b->flow[v->value].chunk;
    return merak_build_moves_in(b, v->value, a);
}

static void post(struct merak_arrival *v, int receive, int at)
{
    v->next[receive] = v->head[at];
    v->head[at] = receive;
}

/* The first action that starts when a value is sent, or k, which reads it. */
static int starts_after(const struct merak_timetable_row *here, int k,
                        double sent)
{
    while (k > 0 && here->start[k - 1] >= sent)
        k--;
    return k;
}

/* Where what a stage sends is posted first, by flow: what later actions read,
 * and with the current one. */
struct posted {
    int later[MERAK_FLOW_KINDS], now[MERAK_FLOW_KINDS];
};

/* Post what action k reads before the action ahead of the first that starts
 * when the value is sent; a pair's second half before that one, unless more is
 * sent until then. */
static void post_one(struct merak_build *b, const struct merak_timetable *table,
                     const double *end, struct merak_arrival *v, int k,
                     struct posted *posted)
{
    const struct merak_timetable_row *here = &table->row[b->stage];
    const struct merak_action *a = &here->action[k];
    bool forward = merak_build_is_forward(b, v->value);
    int flow = forward ? MERAK_FLOW_FORWARD : MERAK_FLOW_BACKWARD;
    int pass = v->carry != NULL ? a->pass - 1 : a->pass, at;

    at = starts_after(here, k,
                      end[place_of(table, forward ? MERAK_ACT_F : MERAK_ACT_B,
                                   v->part, a, pass)]);
    if (width(b) == 2) {
        at = at < posted->later[flow] ? at : posted->later[flow];
        post(v, 2 * k + 1, at);
    }
    at -= at > 0; /* overlapped with the action before */
    post(v, width(b) * k, at);
    if (at < posted->now[flow])
        posted->now[flow] = at;
}

/* Of all values that come from a stage. */
static void find_posts(struct merak_build *b,
                       const struct merak_timetable *table, const double *end,
                       int from)
{
    const struct merak_timetable_row *here = &table->row[b->stage];
    struct posted posted;

    for (int f = 0; f < MERAK_FLOW_KINDS; f++)
        posted.now[f] = here->n;
    for (int k = here->n - 1; k >= 0; k--) {
        memcpy(posted.later, posted.now, sizeof(posted.later));
        for (int i = 0; i < b->arrivals.n; i++) {
            struct merak_arrival *v = &b->arrivals.arrival[i];

            if (v->from == from && comes_for(b, v, &here->action[k]))
                post_one(b, table, end, v, k, &posted);
        }
    }
}

static void read_play(struct merak_build *b,
                      const struct merak_timetable *table)
{
    size_t n = (size_t)table->row[b->stage].n + 1;
    size_t places = merak_lists_places(table->lists, MERAK_ACT_B + 1);
    double *end = malloc(places * sizeof(*end));

    if (end == NULL) {
        merak_build_fail(b, merak_fail_nomem(b->err, places * sizeof(*end)));
        return;
    }
    for (int i = 0; i < b->arrivals.n && b->rc == MERAK_OK; i++) {
        struct merak_arrival *v = &b->arrivals.arrival[i];

        v->head = merak_build_alloc(b, n * sizeof(*v->head));
        v->next = merak_build_alloc(b, (size_t)width(b) * n * sizeof(*v->next));
        for (size_t k = 0; k < n && b->rc == MERAK_OK; k++)
            v->head[k] = -1;
    }
    for (int from = 0; from < b->prog->plan.pp && b->rc == MERAK_OK; from++) {
        if (from == b->stage)
            continue;
        list_ends(table, from, end);
        find_posts(b, table, end, from);
    }
    free(end);
}

static void play(struct merak_build *b, struct merak_timetable *table)
{
    size_t bytes = (size_t)table->lists->n_parts * sizeof(double);
    double *f = merak_build_alloc(b, bytes);
    double *back = merak_build_alloc(b, bytes);
    struct merak_schedule_cost cost = {.f = f, .b = back, .meet = true};

    for (int p = 0; p < table->lists->n_parts && b->rc == MERAK_OK; p++) {
        f[p] = 1;
        back[p] = 2;
    }
    if (b->rc == MERAK_OK)
        merak_build_fail(b, merak_timetable_run(table, &cost, b->err));
}

void merak_build_posts(struct merak_build *b)
{
    struct merak_schedule_args args =
        merak_plan_schedule_args(&b->prog->plan, 0);
    struct merak_timetable *table = NULL;

    b->arrivals.plays =
        args.stages > 1 &&
        (b->passes > 1 || b->skips || width(b) == 2 || args.warmups != NULL);
    if (!b->arrivals.plays)
        return;
    b->lags.send_lag = 1;
    list_arrivals(b);
    if (b->rc == MERAK_OK)
        merak_build_fail(
            b, merak_timetable_create(b->schedule, &args, &table, b->err));
    if (b->rc != MERAK_OK)
        return;
    if (b->opt->forward_only)
        merak_timetable_forward(table);
    play(b, table);
    if (b->rc == MERAK_OK)
        read_play(b, table);
    merak_timetable_destroy(table);
}

static void arrive(struct merak_build *b, const struct merak_arrival *v,
                   const struct merak_action *a, int half)
{
    int microbatch = a->microbatch * width(b) + half;

    b->now.slice = a->slice;
    merak_build_set_pass(b, a);
    if (!merak_build_reads(b, v->value))
        return;
    if (v->carry != NULL)
        merak_build_carry(b, v->carry, microbatch, false);
    else
        merak_build_transfer(b, v->value, microbatch, false);
}

/* The arrival whose receive is posted next: of pairs all come in the order of
 * what they are for, else value by value. */
static struct merak_arrival *next_arrival(const struct merak_build *b)
{
    struct merak_arrival *found = NULL;

    for (int i = 0; i < b->arrivals.n; i++) {
        struct merak_arrival *v = &b->arrivals.arrival[i];

        if (v->now >= 0 &&
            (found == NULL || (width(b) == 2 && v->now < found->now)))
            found = v;
    }
    return found;
}

void merak_build_arrive(struct merak_build *b, const struct merak_action *list,
                        int at)
{
    struct merak_arrival *v;

    for (int i = 0; i < b->arrivals.n; i++)
        b->arrivals.arrival[i].now = b->arrivals.arrival[i].head[at];
    while (b->rc == MERAK_OK && (v = next_arrival(b)) != NULL) {
        arrive(b, v, &list[v->now / width(b)], v->now % width(b));
        v->now = v->next[v->now];
    }
}
