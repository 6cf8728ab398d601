/* SPDX-License-Identifier: Apache-2.0 */
/* time.c - how long a schedule takes, by its actions
 *
 * Every action has a cell, found by what it is, not by where: kind, part,
 * micro-batch, slice, pass.  A stage's next action can be timed when the
 * cells it needs are, so stages are advanced in turn, each as far as it gets,
 * until all are through.  Where none gets any further, nothing ever will:
 * that is a deadlock, whatever the durations.
 */
#include "config.h"

#include "partitioner/schedule/time.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_NEEDS 5
#define N_KINDS 4

struct cell {
    int stage, at; /* where it is listed; a shared block: the last place */
    int listed;    /* times */
    int left;      /* of these, not timed yet */
    double end;    /* the latest */
    double met;    /* when all stages had come to it */
};

/* A stage, part of the way through its list. */
struct front {
    int at;     /* the next action */
    double now; /* end of the one before */
    int *sent;  /* actions whose output goes to another stage, in order */
    int n_sent;
    int n_taken;  /* of these, how many are known to be through */
    double taken; /* when */
};

struct run {
    struct merak_timetable *table;
    const struct merak_schedule_cost *cost;
    struct cell *cell;
    struct front *front;
};

/* --- cells ---------------------------------------------------------------- */

static int part_of(const struct merak_timetable *table, int stage, int chunk)
{
    return table->place[stage * table->args.chunks + chunk];
}

static struct cell *cell_of(const struct run *run, enum merak_action_kind kind,
                            int part, const struct merak_action *a)
{
    const struct merak_schedule_args *args = &run->table->args;
    size_t i = (size_t)kind * (size_t)run->table->n_parts + (size_t)part;

    i = i * (size_t)args->microbatches + (size_t)a->microbatch;
    i = i * (size_t)args->slices + (size_t)a->slice;
    return &run->cell[i * (size_t)args->passes + (size_t)a->pass];
}

static struct cell *cell_at(const struct run *run, enum merak_action_kind kind,
                            int part, const struct merak_action *a, int slice,
                            int pass)
{
    struct merak_action other = *a;

    other.slice = slice;
    other.pass = pass;
    return cell_of(run, kind, part, &other);
}

/* "B3", with what else tells it from others. */
static void name_action(const struct merak_timetable *table,
                        const struct merak_action *a, char *buf, size_t size)
{
    const struct merak_schedule_args *args = &table->args;
    size_t n =
        (size_t)snprintf(buf, size, "%c%d", "FBWR"[a->kind], a -> microbatch);

    if (args->chunks > 1 && n < size)
        n += (size_t)snprintf(buf + n, size - n, " chunk %d", a->chunk);
    if (args->slices > 1 && n < size)
        n += (size_t)snprintf(buf + n, size - n, " slice %d", a->slice);
    if (args->passes > 1 && n < size)
        snprintf(buf + n, size - n, " pass %d", a->pass);
}

static bool in_range(const struct merak_schedule_args *args,
                     const struct merak_action *a)
{
    return a->microbatch >= 0 && a->microbatch < args->microbatches &&
           a->chunk >= 0 && a->chunk < args->chunks && a->slice >= 0 &&
           a->slice < args->slices && a->pass >= 0 &&
           a->pass < (a->kind == MERAK_ACT_F ? args->passes : 1);
}

static enum merak_status list_cells(struct run *run, struct merak_error *err)
{
    const struct merak_timetable *table = run->table;

    for (int s = 0; s < table->args.stages; s++) {
        for (int i = 0; i < table->row[s].n; i++) {
            const struct merak_action *a = &table->row[s].action[i];
            struct cell *cell;

            if (!in_range(&table->args, a))
                return merak_fail(err, MERAK_ERR_CONFIG,
                                  "stage %d, action %d: micro-batch %d, chunk "
                                  "%d, slice %d, pass %d do not exist",
                                  s, i, a->microbatch, a->chunk, a->slice,
                                  a->pass);
            cell = cell_of(run, a->kind, part_of(table, s, a->chunk), a);
            cell->stage = s;
            cell->at = i;
            cell->listed++;
            cell->left++;
        }
    }
    return MERAK_OK;
}

/* How often each of the stages that have a part must run this on it: 0, 1,
 * or -1, as it likes but once at most. */
static int times_due(const struct merak_timetable *table,
                     const struct merak_action *a)
{
    switch (a->kind) {
    case MERAK_ACT_F:
        return 1;
    case MERAK_ACT_B:
        return !table->forward_only && a->pass == 0;
    case MERAK_ACT_W:
        return !table->forward_only && table->sched->splits_w && a->pass == 0;
    case MERAK_ACT_R:
        return table->forward_only || a->pass != 0 ? 0 : -1;
    }
    return 0;
}

static enum merak_status check_due(const struct run *run, int stage,
                                   const struct merak_action *a,
                                   struct merak_error *err)
{
    const struct merak_timetable *table = run->table;
    int part = part_of(table, stage, a->chunk);
    int due = times_due(table, a);
    int holders = table->part[part].shared ? table->args.stages : 1;
    int listed = cell_of(run, a->kind, part, a)->listed;
    char name[48];

    if (due < 0 ? listed <= holders : listed == due * holders)
        return MERAK_OK;
    name_action(table, a, name, sizeof(name));
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "%s of part %d (stage %d) is listed %d times, not %d",
                      name, part, stage, listed, abs(due) * holders);
}

/* Every forward and backward once, and what may be at most once. */
static enum merak_status check_complete(const struct run *run,
                                        struct merak_error *err)
{
    const struct merak_schedule_args *args = &run->table->args;
    int each = args->chunks * args->microbatches * args->slices * args->passes;
    enum merak_status rc = MERAK_OK;

    for (int s = 0; s < args->stages; s++) {
        for (int i = 0; i < N_KINDS * each && rc == MERAK_OK; i++) {
            int left = i / N_KINDS;
            struct merak_action a = {.kind = (enum merak_action_kind)(i % 4)};

            a.pass = left % args->passes;
            left /= args->passes;
            a.slice = left % args->slices;
            left /= args->slices;
            a.microbatch = left % args->microbatches;
            a.chunk = left / args->microbatches;
            rc = check_due(run, s, &a, err);
        }
    }
    return rc;
}

/* --- what an action needs, and who needs it ------------------------------- */

static int forward_needs(const struct run *run, int part,
                         const struct merak_action *a, struct cell **need)
{
    const struct merak_timetable_part *place = &run->table->part[part];
    int n = 0;

    if (place->before >= 0)
        need[n++] = cell_of(run, MERAK_ACT_F, place->before, a);
    if (place->block >= 0)
        need[n++] = cell_of(run, MERAK_ACT_F, place->block, a);
    if (part == 0 && a->pass > 0)
        need[n++] = cell_at(run, MERAK_ACT_F, run->table->chain - 1, a,
                            a->slice, a->pass - 1);
    if (a->slice > 0)
        need[n++] = cell_at(run, MERAK_ACT_F, part, a, a->slice - 1, a->pass);
    return n;
}

static int backward_needs(const struct run *run, int part,
                          const struct merak_action *a, struct cell **need)
{
    const struct merak_schedule_args *args = &run->table->args;
    const struct merak_timetable_part *place = &run->table->part[part];
    struct cell *again = cell_of(run, MERAK_ACT_R, part, a);
    int n = 0;

    need[n++] =
        cell_at(run, MERAK_ACT_F, part, a, args->slices - 1, args->passes - 1);
    if (a->slice < args->slices - 1)
        need[n++] = cell_at(run, MERAK_ACT_B, part, a, a->slice + 1, 0);
    if (place->after >= 0)
        need[n++] = cell_of(run, MERAK_ACT_B, place->after, a);
    if (place->tail >= 0)
        need[n++] = cell_of(run, MERAK_ACT_B, place->tail, a);
    if (again->listed > 0)
        need[n++] = again;
    return n;
}

static int list_needs(const struct run *run, int part,
                      const struct merak_action *a, struct cell **need)
{
    switch (a->kind) {
    case MERAK_ACT_F:
        return forward_needs(run, part, a, need);
    case MERAK_ACT_B:
        return backward_needs(run, part, a, need);
    case MERAK_ACT_W:
        need[0] = cell_of(run, MERAK_ACT_B, part, a);
        return 1;
    case MERAK_ACT_R:
        need[0] = cell_at(run, MERAK_ACT_F, part, a, a->slice,
                          run->table->args.passes - 1);
        return 1;
    }
    return 0;
}

/* The action on another stage that this one's output is sent to, or NULL.
 * What goes in and out of shared blocks is no point-to-point transfer. */
static const struct cell *receiver(const struct run *run, int stage,
                                   const struct merak_action *a)
{
    const struct merak_timetable *table = run->table;
    int part = part_of(table, stage, a->chunk);
    const struct merak_timetable_part *place = &table->part[part];
    const struct cell *to = NULL;

    if (place->shared)
        return NULL;
    if (a->kind == MERAK_ACT_F && place->after >= 0)
        to = cell_of(run, MERAK_ACT_F, place->after, a);
    else if (a->kind == MERAK_ACT_F && a->pass < table->args.passes - 1)
        to = cell_at(run, MERAK_ACT_F, 0, a, a->slice, a->pass + 1);
    else if (a->kind == MERAK_ACT_B && place->before >= 0)
        to = cell_of(run, MERAK_ACT_B, place->before, a);
    return to != NULL && to->stage != stage ? to : NULL;
}

/* --- time ----------------------------------------------------------------- */

static double share(const struct run *run, const double *by_part, int part)
{
    return by_part == NULL ? 0 : by_part[part] / run->table->args.slices;
}

static double duration(const struct run *run, int stage,
                       const struct merak_action *a)
{
    const struct merak_schedule_cost *cost = run->cost;
    int part = part_of(run->table, stage, a->chunk);
    double again =
        run->table->row[stage].recomputes ? share(run, cost->r, part) : 0;

    switch (a->kind) {
    case MERAK_ACT_F:
        return share(run, cost->f, part);
    case MERAK_ACT_B:
        return share(run, cost->b, part) +
               (run->table->sched->splits_w ? 0 : share(run, cost->w, part)) +
               (cell_of(run, MERAK_ACT_R, part, a)->listed > 0 ? 0 : again);
    case MERAK_ACT_W:
        return share(run, cost->w, part);
    case MERAK_ACT_R:
        return again;
    }
    return 0;
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* Has what this cell stands for come?  If so, no start before *start. */
static bool has_come(const struct run *run, int stage, const struct cell *cell,
                     double *start)
{
    double came = cell->end;

    if (cell->left > 0)
        return false;
    if (cell->listed == 1 && cell->stage != stage) {
        if (run->cost->send_lag > 0)
            came = later(came, run->front[stage].now);
        came += run->cost->hop;
    }
    *start = later(*start, came);
    return true;
}

/* Has what was sent been taken as far as it must?  If so, no start before
 * *start. */
static bool is_taken(const struct run *run, int stage, double *start)
{
    const struct merak_timetable_row *row = run->table->row;
    struct front *front = &run->front[stage];

    if (run->cost->send_lag == 0)
        return true;
    while (front->n_taken < front->n_sent &&
           front->sent[front->n_taken] <= front->at - run->cost->send_lag) {
        int at = front->sent[front->n_taken];
        const struct cell *to = receiver(run, stage, &row[stage].action[at]);
        double begun = row[stage].end[at];

        if (run->front[to->stage].at < to->at)
            return false;
        if (to->at > 0)
            begun = later(begun, row[to->stage].end[to->at - 1]);
        front->taken = later(front->taken, begun + run->cost->hop);
        front->n_taken++;
    }
    *start = later(*start, front->taken);
    return true;
}

/* May the stage's next action start?  If so, no start before *start. */
static bool is_ready(const struct run *run, int stage, double *start)
{
    const struct merak_timetable_row *row = &run->table->row[stage];
    const struct merak_action *a = &row->action[run->front[stage].at];
    struct cell *need[MAX_NEEDS];
    int part = part_of(run->table, stage, a->chunk);

    *start = later(*start, run->front[stage].now);
    if (!is_taken(run, stage, start))
        return false;
    for (int i = list_needs(run, part, a, need); i > 0; i--) {
        if (!has_come(run, stage, need[i - 1], start))
            return false;
    }
    return true;
}

/* Have the other stages that have yet to run this come to it, too? */
static bool all_meet(const struct run *run, const struct cell *cell,
                     double *start)
{
    const struct merak_timetable *table = run->table;
    int here = 0;

    for (int s = 0; s < table->args.stages; s++) {
        const struct merak_action *a;

        if (run->front[s].at == table->row[s].n)
            continue;
        a = &table->row[s].action[run->front[s].at];
        if (cell_of(run, a->kind, part_of(table, s, a->chunk), a) != cell)
            continue;
        if (!is_ready(run, s, start))
            return false;
        here++;
    }
    return here == cell->left;
}

/* Time the stage's next action; false if that is not possible yet. */
static bool advance(struct run *run, int stage)
{
    struct merak_timetable_row *row = &run->table->row[stage];
    struct front *front = &run->front[stage];
    const struct merak_action *a = &row->action[front->at];
    int part = part_of(run->table, stage, a->chunk);
    struct cell *cell = cell_of(run, a->kind, part, a);
    double start = 0;

    if (!is_ready(run, stage, &start))
        return false;
    if (run->cost->meet && run->table->part[part].shared) {
        /* The first of them to be timed looks, the others follow. */
        if (cell->left == cell->listed && !all_meet(run, cell, &start))
            return false;
        if (cell->left == cell->listed)
            cell->met = start;
        start = cell->met;
    }
    row->start[front->at] = start;
    front->now = row->end[front->at] = start + duration(run, stage, a);
    row->busy += front->now - start;
    cell->end = later(cell->end, front->now);
    cell->left--;
    if (receiver(run, stage, a) != NULL)
        front->sent[front->n_sent++] = front->at;
    front->at++;
    run->table->step = later(run->table->step, front->now);
    return true;
}

/* --- deadlock ------------------------------------------------------------- */

static size_t describe_wait(const struct run *run, int stage, char *buf,
                            size_t size)
{
    const struct merak_timetable_row *row = &run->table->row[stage];
    const struct front *front = &run->front[stage];
    const struct merak_action *a = &row->action[front->at];
    struct cell *need[MAX_NEEDS];
    const struct cell *cell = NULL;
    char name[48], other[48];
    double start;
    int n = list_needs(run, part_of(run->table, stage, a->chunk), a, need);

    name_action(run->table, a, name, sizeof(name));
    if (!is_taken(run, stage, &start)) {
        a = &row->action[front->sent[front->n_taken]];
        cell = receiver(run, stage, a);
        name_action(run->table, a, other, sizeof(other));
        return (size_t)snprintf(
            buf, size, "; stage %d before %s waits for stage %d to take %s",
            stage, name, cell->stage, other);
    }
    while (n > 0 && need[--n]->left == 0)
        continue;
    cell = need[n];
    name_action(run->table, &run->table->row[cell->stage].action[cell->at],
                other, sizeof(other));
    return (size_t)snprintf(buf, size,
                            "; stage %d before %s waits for %s of stage %d",
                            stage, name, other, cell->stage);
}

static enum merak_status fail_deadlock(const struct run *run,
                                       struct merak_error *err)
{
    char text[200] = "";
    size_t used = 0;

    for (int s = 0; s < run->table->args.stages; s++) {
        if (run->front[s].at < run->table->row[s].n && used < sizeof(text))
            used += describe_wait(run, s, text + used, sizeof(text) - used);
    }
    return merak_fail(err, MERAK_ERR_CONFIG, "deadlock:%s", text + 1);
}

static enum merak_status run_all(struct run *run, struct merak_error *err)
{
    const struct merak_timetable *table = run->table;
    bool moved = true, left = true;

    while (moved) {
        moved = left = false;
        for (int s = 0; s < table->args.stages; s++) {
            while (run->front[s].at < table->row[s].n && advance(run, s))
                moved = true;
            left = left || run->front[s].at < table->row[s].n;
        }
    }
    return left ? fail_deadlock(run, err) : MERAK_OK;
}

static enum merak_status init_run(struct run *run, struct merak_error *err)
{
    const struct merak_schedule_args *args = &run->table->args;
    size_t n = (size_t)N_KINDS * (size_t)run->table->n_parts *
               (size_t)args->microbatches * (size_t)args->slices *
               (size_t)args->passes;

    run->cell = calloc(n, sizeof(*run->cell));
    run->front = calloc((size_t)args->stages, sizeof(*run->front));
    if (run->cell == NULL || run->front == NULL)
        return merak_fail_nomem(err, n * sizeof(*run->cell));
    run->table->step = 0;
    for (int s = 0; s < args->stages; s++) {
        struct merak_timetable_row *row = &run->table->row[s];

        row->busy = 0;
        run->front[s].sent =
            calloc((size_t)row->n, sizeof(*run->front[s].sent));
        if (run->front[s].sent == NULL)
            return merak_fail_nomem(err, (size_t)row->n * sizeof(int));
    }
    return MERAK_OK;
}

enum merak_status merak_timetable_run(struct merak_timetable *table,
                                      const struct merak_schedule_cost *cost,
                                      struct merak_error *err)
{
    struct run run = {.table = table, .cost = cost};
    enum merak_status rc;

    rc = init_run(&run, err);
    if (rc == MERAK_OK)
        rc = list_cells(&run, err);
    if (rc == MERAK_OK)
        rc = check_complete(&run, err);
    if (rc == MERAK_OK)
        rc = run_all(&run, err);
    for (int s = 0; run.front != NULL && s < table->args.stages; s++)
        free(run.front[s].sent);
    free(run.front);
    free(run.cell);
    return rc;
}

enum merak_status merak_timetable_send_lag(struct merak_timetable *table,
                                           int *lag_p, struct merak_error *err)
{
    struct merak_schedule_cost cost = {.send_lag = 0};
    enum merak_status rc = merak_timetable_run(table, &cost, err);
    int low = 0, high = 1; /* low is too little */

    /* It ends with sends that are never waited for, so some lag will do. */
    if (rc != MERAK_OK)
        return rc;
    for (;; low = high, high *= 2) {
        cost.send_lag = high;
        rc = merak_timetable_run(table, &cost, err);
        if (rc != MERAK_ERR_CONFIG)
            break;
    }
    while (rc == MERAK_OK && high - low > 1) {
        cost.send_lag = low + (high - low) / 2;
        rc = merak_timetable_run(table, &cost, err);
        if (rc == MERAK_OK)
            high = cost.send_lag;
        else
            low = cost.send_lag;
        if (rc == MERAK_ERR_CONFIG)
            rc = MERAK_OK;
    }
    if (rc == MERAK_OK)
        *lag_p = high;
    return rc;
}
