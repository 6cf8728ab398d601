/* SPDX-License-Identifier: Apache-2.0 */
/* time.c - how long a schedule takes, by its actions
 *
 * Lists that are complete and in order (list_check.h) are played (player.h).
 * If no stage can continue, none ever will: that is a deadlock, whatever the
 * durations.
 */
#include "config.h"

#include "partitioner/schedule/time.h"

#include "base/arrays.h"
#include "base/bisect.h"
#include "base/error.h"
#include "partitioner/schedule/list_check.h"
#include "partitioner/schedule/player.h"

#include <stdio.h>
#include <stdlib.h>

static enum merak_status row_alloc(struct merak_timetable_row *row, size_t n,
                                   struct merak_error *err)
{
    const struct merak_array arrays[] = {MERAK_ARRAY(row->action, n),
                                         MERAK_ARRAY(row->start, n),
                                         MERAK_ARRAY(row->end, n)};

    return MERAK_ARRAYS(arrays, err);
}

static enum merak_status fill_row(struct merak_timetable *table, int stage,
                                  struct merak_error *err)
{
    struct merak_timetable_row *row = &table->row[stage];
    struct merak_schedule_args args = table->args;
    enum merak_status rc;

    args.stage = stage;
    row->n = merak_schedule_count(table->sched, &args);
    rc = row_alloc(row, (size_t)row->n, err);
    if (rc == MERAK_OK)
        merak_schedule_fill(table->sched, &args, row->action);
    return rc;
}

enum merak_status merak_timetable_create(const struct merak_schedule *sched,
                                         const struct merak_schedule_args *args,
                                         struct merak_timetable **table_p,
                                         struct merak_error *err)
{
    struct merak_timetable *table = NULL;
    enum merak_status rc = merak_schedule_check(sched, args, err);

    if (rc != MERAK_OK)
        return rc;
    table = calloc(1, sizeof(*table));
    if (table == NULL)
        return merak_fail_nomem(err, sizeof(*table));
    table->sched = sched;
    table->forward_only = sched->forward_only;
    table->args = merak_schedule_defaults(sched, args);
    table->lists = merak_lists_create(sched, args);
    table->row = calloc((size_t)args->stages, sizeof(*table->row));
    if (table->lists == NULL || table->row == NULL)
        rc = merak_fail_nomem(err, sizeof(*table->row));
    for (int s = 0; s < args->stages && rc == MERAK_OK; s++)
        rc = fill_row(table, s, err);
    if (rc == MERAK_OK)
        *table_p = table;
    else
        merak_timetable_destroy(table);
    return rc;
}

void merak_timetable_destroy(struct merak_timetable *table)
{
    if (table == NULL)
        return;
    for (int s = 0; table->row != NULL && s < table->args.stages; s++)
        free(table->row[s].action);
    free(table->row);
    merak_lists_destroy(table->lists);
    free(table);
}

void merak_timetable_forward(struct merak_timetable *table)
{
    for (int s = 0; s < table->args.stages; s++)
        table->row[s].n =
            merak_actions_forward(table->row[s].action, table->row[s].n);
    table->forward_only = true;
}

/* --- the play ------------------------------------------------------------- */

/* One or several plays of a timetable's lists. */
struct run {
    struct merak_timetable *table;
    struct merak_player player;
    struct merak_sends sends;
    struct merak_part_cost *cost; /* by part; player.cost points to it */
    double *hop;                  /* [block][stage]; likewise */
};

/* Does an action of the same kind in another stage's list read what this one
 * sends?  *part_p, *pass_p: which it is.  Values into and out of blocks of all
 * stages are not transfers. */
static bool find_reader(const struct merak_lists *lists, int part,
                        const struct merak_step_action *a, int *part_p,
                        int *pass_p)
{
    *part_p = a->kind == MERAK_ACT_F ? part + 1 : part - 1;
    *pass_p = a->pass;
    if (part >= lists->chain ||
        (a->kind != MERAK_ACT_F && a->kind != MERAK_ACT_B))
        return false;
    if (*part_p == lists->chain && a->pass < lists->passes - 1) {
        *part_p = 0;
        *pass_p = a->pass + 1;
    }
    return *part_p >= 0 && *part_p < lists->chain &&
           lists->stage_of[*part_p] != lists->stage_of[part];
}

/* The position of each single stage's forwards and backwards in its list. */
static void find_places(const struct merak_lists *lists, int *at)
{
    for (int s = 0; s < lists->stages; s++) {
        const struct merak_step_action *list = merak_lists_of(lists, s);

        for (int i = 0; i < lists->n[s]; i++) {
            const struct merak_step_action *a = &list[i];
            int part = lists->part[s * lists->chunks + a->chunk];

            if (a->kind == MERAK_ACT_F || a->kind == MERAK_ACT_B)
                at[merak_lists_place(lists, a->kind, part, a->unit, a->pass)] =
                    i;
        }
    }
}

static void find_takers(struct run *run, const int *at, double hop)
{
    const struct merak_lists *lists = run->table->lists;

    for (int s = 0; s < lists->stages; s++) {
        const struct merak_step_action *list = merak_lists_of(lists, s);

        for (int i = 0; i < lists->n[s]; i++) {
            struct merak_taker *to = &run->sends.taker[s * lists->room + i];
            int part = lists->part[s * lists->chunks + list[i].chunk], pass;

            *to = (struct merak_taker){.stage = -1, .hop = hop};
            if (!find_reader(lists, part, &list[i], &part, &pass))
                continue;
            to->stage = lists->stage_of[part];
            to->at = at[merak_lists_place(lists, list[i].kind, part,
                                          list[i].unit, pass)];
        }
    }
}

static double share(const struct merak_timetable *table, const double *by_part,
                    int part)
{
    return by_part == NULL ? 0 : by_part[part] / table->args.slices;
}

/* Blocks of all stages drop nothing. */
static void set_costs(struct run *run, const struct merak_schedule_cost *cost)
{
    const struct merak_timetable *table = run->table;
    const struct merak_lists *lists = table->lists;
    int parts = lists->n_parts, chain = lists->chain;

    for (int k = 0; k < parts; k++) {
        bool recomputes = k < chain && lists->recomputes[lists->stage_of[k]];
        struct merak_part_cost *c = &run->cost[k];

        c->f = c->f_latency = share(table, cost->f, k);
        c->w = share(table, cost->w, k);
        c->r = recomputes ? share(table, cost->r, k) : 0;
        c->b = share(table, cost->b, k);
        c->b += table->sched->splits_w ? 0 : c->w;
        c->b_latency = c->b;
        c->b_recomputing = c->b + c->r;
        c->up = c->down = cost->hop;
    }
    for (int i = 0; i < (parts - chain) * lists->stages; i++)
        run->hop[i] = cost->hop;
    run->player.cost = (struct merak_play_cost){.part = run->cost,
                                                .recycled = cost->hop,
                                                .hop = run->hop,
                                                .unposted = cost->send_lag == 0,
                                                .all_meet = cost->meet};
}

static enum merak_status init_sends(struct run *run, double hop,
                                    struct merak_error *err)
{
    const struct merak_lists *lists = run->table->lists;
    size_t stages = (size_t)lists->stages;
    size_t places = merak_lists_places(lists, MERAK_ACT_B + 1);
    struct merak_sends *sends = &run->sends;
    int *at;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(sends->taker, stages * (size_t)lists->room),
        MERAK_ARRAY(sends->n_taken, stages), MERAK_ARRAY(sends->taken, stages),
        MERAK_ARRAY(at, places)};
    enum merak_status rc = MERAK_ARRAYS(arrays, err);

    if (rc != MERAK_OK)
        return rc;
    find_places(lists, at);
    find_takers(run, at, hop);
    run->player.sends = sends;
    return MERAK_OK;
}

static enum merak_status run_init(struct run *run,
                                  const struct merak_schedule_cost *cost,
                                  bool sends, struct merak_error *err)
{
    struct merak_timetable *table = run->table;
    const struct merak_lists *lists = table->lists;
    size_t stages = (size_t)lists->stages, parts = (size_t)lists->n_parts;
    size_t blocks = parts - (size_t)lists->chain;
    size_t actions = stages * (size_t)lists->room;
    double *start, *finish;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(run->cost, parts), MERAK_ARRAY(run->hop, blocks * stages),
        MERAK_ARRAY(start, actions), MERAK_ARRAY(finish, actions)};
    enum merak_status rc = merak_timetable_check(table, err);
    bool ok = true;

    for (int s = 0; s < lists->stages && rc == MERAK_OK && ok; s++)
        ok = merak_lists_set(table->lists, s, table->row[s].action,
                             table->row[s].n);
    if (rc == MERAK_OK)
        rc = MERAK_ARRAYS(arrays, err);
    if (rc != MERAK_OK)
        return rc;
    if (!merak_player_init(&run->player, lists) || !ok)
        return merak_fail_nomem(err, actions * sizeof(*start));
    run->player.start = start;
    run->player.finish = finish;
    set_costs(run, cost);
    return sends ? init_sends(run, cost->hop, err) : MERAK_OK;
}

static void run_fini(struct run *run)
{
    free(run->cost);
    free(run->sends.taker);
    merak_player_fini(&run->player);
}

/* --- deadlock ------------------------------------------------------------- */

/* Does an action of stage `s` wait for `b`, which has not started yet?  In
 * blocks of all stages, it also waits for the other stages' shares. */
static bool awaits(const struct merak_lists *lists, int s,
                   const struct merak_step_action *a, int other,
                   const struct merak_step_action *b)
{
    int part = lists->part[s * lists->chunks + a->chunk];
    int from = lists->part[other * lists->chunks + b->chunk], next, pass;

    if (a->unit != b->unit || a->kind != b->kind)
        return false;
    if (find_reader(lists, from, b, &next, &pass))
        return next == part && pass == a->pass;
    if (from >= lists->chain)
        return from == part ||
               from == (a->kind == MERAK_ACT_F ? lists->fed_by[part]
                                               : lists->followed_by[part]);
    return part >= lists->chain &&
           (lists->follows[part] == from || lists->feeds[part] == from);
}

/* The position in stage *other_p's list of an action that this stage waits for;
 * -1: there is none. */
static int find_awaited(const struct run *run, int stage, int *other_p)
{
    const struct merak_lists *lists = run->table->lists;
    const struct merak_step_action *a =
        &merak_lists_of(lists, stage)[run->player.next[stage]];

    for (int s = 0; s < lists->stages; s++) {
        const struct merak_step_action *list = merak_lists_of(lists, s);

        for (int i = run->player.next[s]; i < lists->n[s] && s != stage; i++) {
            if (awaits(lists, stage, a, s, &list[i])) {
                *other_p = s;
                return i;
            }
        }
    }
    return -1;
}

static size_t describe_wait(const struct run *run, int stage, char *buf,
                            size_t size)
{
    const struct merak_timetable *table = run->table;
    const struct merak_timetable_row *row = table->row;
    char name[48], what[48];
    int other = 0, at = find_awaited(run, stage, &other);

    merak_action_name(table, &row[stage].action[run->player.next[stage]], name,
                      sizeof(name));
    if (at >= 0) {
        merak_action_name(table, &row[other].action[at], what, sizeof(what));
        return (size_t)snprintf(buf, size,
                                "; stage %d before %s waits for %s of stage %d",
                                stage, name, what, other);
    }
    at = run->sends.n_taken[stage];
    other = run->sends.taker[stage * table->lists->room + at].stage;
    merak_action_name(table, &row[stage].action[at], what, sizeof(what));
    return (size_t)snprintf(
        buf, size, "; stage %d before %s waits for stage %d to take %s", stage,
        name, other, what);
}

static enum merak_status fail_deadlock(const struct run *run,
                                       struct merak_error *err)
{
    char text[200] = "";
    size_t used = 0;

    for (int s = 0; s < run->table->args.stages; s++) {
        if (run->player.next[s] < run->table->row[s].n && used < sizeof(text))
            used += describe_wait(run, s, text + used, sizeof(text) - used);
    }
    return merak_fail(err, MERAK_ERR_CONFIG, "deadlock:%s", text + 1);
}

/* --- runs ----------------------------------------------------------------- */

static enum merak_status play(struct run *run, struct merak_error *err)
{
    merak_play(&run->player);
    return merak_play_is_over(&run->player) ? MERAK_OK
                                            : fail_deadlock(run, err);
}

static void take_times(const struct run *run)
{
    struct merak_timetable *table = run->table;

    table->step = 0;
    for (int s = 0; s < table->args.stages; s++) {
        struct merak_timetable_row *row = &table->row[s];
        size_t first = (size_t)s * (size_t)table->lists->room;

        row->busy = 0;
        for (int i = 0; i < row->n; i++) {
            row->start[i] = run->player.start[first + (size_t)i];
            row->end[i] = run->player.finish[first + (size_t)i];
            row->busy += row->end[i] - row->start[i];
        }
        if (run->player.end[s] > table->step)
            table->step = run->player.end[s];
    }
}

enum merak_status merak_timetable_run(struct merak_timetable *table,
                                      const struct merak_schedule_cost *cost,
                                      struct merak_error *err)
{
    struct run run = {.table = table, .sends = {.lag = cost->send_lag}};
    enum merak_status rc = run_init(&run, cost, cost->send_lag > 0, err);

    if (rc == MERAK_OK)
        rc = play(&run, err);
    if (rc == MERAK_OK)
        take_times(&run);
    run_fini(&run);
    return rc;
}

static bool ends(struct run *run)
{
    merak_play(&run->player);
    return merak_play_is_over(&run->player);
}

enum merak_status merak_timetable_send_lag(struct merak_timetable *table,
                                           int *lag_p, struct merak_error *err)
{
    struct merak_schedule_cost cost = {.send_lag = 0};
    struct run run = {.table = table};
    enum merak_status rc = run_init(&run, &cost, true, err);
    int low = 0, high = 1; /* low is too little */

    if (rc == MERAK_OK)
        rc = play(&run, err);
    if (rc != MERAK_OK)
        goto out;
    /* The play ends if no send is waited for, so some lag is enough. */
    for (;; low = high, high *= 2) {
        run.sends.lag = high;
        if (ends(&run))
            break;
    }
    MERAK_BISECT(run.sends.lag, low + 1, high, ends(&run));
    *lag_p = run.sends.lag;
out:
    run_fini(&run);
    return rc;
}
