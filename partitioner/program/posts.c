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
 * Vocabulary-parallel layers of all stages are played as such: they start when
 * the last stage is ready.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "base/error.h"
#include "partitioner/schedule/time.h"

#include <stdlib.h>

/* A value that comes from another stage. */
struct merak_arrival {
    int value, from, part; /* stage and the part there that sends it */
    const struct merak_carry *carry; /* from the previous pass; or NULL */
    /* Receives, identified by the actions that read them: the first to be
     * posted before an action, and the next after each. */
    int *head, *next;
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

/* Post each receive before the last action that starts before the value is
 * sent and comes before the reader. */
static void find_posts(struct merak_build *b,
                       const struct merak_timetable *table, const double *end,
                       struct merak_arrival *v)
{
    const struct merak_timetable_row *here = &table->row[b->stage];
    enum merak_action_kind kind =
        merak_build_is_forward(b, v->value) ? MERAK_ACT_F : MERAK_ACT_B;

    for (int i = 0; i < here->n; i++)
        v->head[i] = -1;
    for (int k = here->n - 1; k >= 0; k--) {
        const struct merak_action *a = &here->action[k];
        int pass = v->carry != NULL ? a->pass - 1 : a->pass, post = k;
        double sent;

        if (!comes_for(b, v, a))
            continue;
        sent = end[place_of(table, kind, v->part, a, pass)];
        while (post > 0 && here->start[post - 1] >= sent)
            post--;
        if (post > 0)
            post--; /* overlapped with the action before */
        v->next[k] = v->head[post];
        v->head[post] = k;
    }
}

static void read_play(struct merak_build *b,
                      const struct merak_timetable *table)
{
    size_t n = (size_t)table->row[b->stage].n + 1;
    size_t places = merak_lists_places(table->lists, MERAK_ACT_B + 1);
    double *end = malloc(places * sizeof(*end));
    int of = -1;

    if (end == NULL) {
        merak_build_fail(b, merak_fail_nomem(b->err, places * sizeof(*end)));
        return;
    }
    for (int i = 0; i < b->arrivals.n && b->rc == MERAK_OK; i++) {
        struct merak_arrival *v = &b->arrivals.arrival[i];

        v->head = merak_build_alloc(b, n * sizeof(*v->head));
        v->next = merak_build_alloc(b, n * sizeof(*v->next));
        if (b->rc != MERAK_OK)
            break;
        if (v->from != of)
            list_ends(table, v->from, end);
        of = v->from;
        find_posts(b, table, end, v);
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

    b->arrivals.plays = args.stages > 1 && (b->passes > 1 || b->skips);
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

/* For both micro-batches of a pair. */
static void arrive(struct merak_build *b, const struct merak_arrival *v,
                   const struct merak_action *a)
{
    int width = b->prog->plan.sub_pipeline ? 2 : 1;

    b->now.slice = a->slice;
    merak_build_set_pass(b, a);
    for (int h = 0; h < width && merak_build_reads(b, v->value); h++) {
        int microbatch = a->microbatch * width + h;

        if (v->carry != NULL)
            merak_build_carry(b, v->carry, microbatch, false);
        else
            merak_build_transfer(b, v->value, microbatch, false);
    }
}

void merak_build_arrive(struct merak_build *b, const struct merak_action *list,
                        int at)
{
    for (int i = 0; i < b->arrivals.n; i++) {
        const struct merak_arrival *v = &b->arrivals.arrival[i];

        for (int k = v->head[at]; k >= 0 && b->rc == MERAK_OK; k = v->next[k])
            arrive(b, v, &list[k]);
    }
}
