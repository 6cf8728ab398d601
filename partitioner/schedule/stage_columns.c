/* SPDX-License-Identifier: Apache-2.0 */
/* stage_columns.c - the lists of all stages, side by side */
#include "config.h"

#include "partitioner/schedule/time.h"

#include "base/error.h"

#include <stdlib.h>

static enum merak_status fill_row(struct merak_timetable *table, int stage,
                                  struct merak_error *err)
{
    struct merak_timetable_row *row = &table->row[stage];
    struct merak_schedule_args args = table->args;
    size_t n;

    args.stage = stage;
    row->n = merak_schedule_count(table->sched, &args);
    n = (size_t)row->n;
    row->action = calloc(n, sizeof(*row->action));
    row->start = calloc(n, sizeof(*row->start));
    row->end = calloc(n, sizeof(*row->end));
    if (row->action == NULL || row->start == NULL || row->end == NULL)
        return merak_fail_nomem(err, n * sizeof(*row->action));
    merak_schedule_fill(table->sched, &args, row->action);
    row->recomputes = merak_schedule_recomputes(table->sched, &args);
    for (int c = 0; c < args.chunks; c++)
        table->place[stage * args.chunks + c] =
            merak_schedule_part(table->sched, &args, c);
    return MERAK_OK;
}

/* Own chunks stand on all stages alike, so stage 0's tell which are own. */
static void count_parts(struct merak_timetable *table)
{
    struct merak_schedule_args args = table->args;

    args.stage = 0;
    for (int c = 0; c < args.chunks; c++) {
        bool shared = merak_schedule_shares(table->sched, &args, c);

        table->chain += shared ? 0 : args.stages;
        table->n_parts += shared ? 1 : args.stages;
    }
}

static void link_parts(struct merak_timetable *table)
{
    struct merak_schedule_args args = table->args;

    for (int i = 0; i < table->n_parts; i++)
        table->part[i] = (struct merak_timetable_part){
            .before = i < table->chain ? i - 1 : -1,
            .after = i < table->chain - 1 ? i + 1 : -1,
            .block = -1,
            .tail = -1,
            .shared = i >= table->chain};
    args.stage = 0;
    for (int c = 0; c < args.chunks; c++) {
        int fed = merak_schedule_feeds(table->sched, &args, c);
        int followed = merak_schedule_follows(table->sched, &args, c);
        int block = merak_schedule_part(table->sched, &args, c);

        if (fed >= 0) {
            table->part[block].after = fed;
            table->part[fed].block = block;
        }
        if (followed >= 0) {
            table->part[block].before = followed;
            table->part[followed].tail = block;
        }
    }
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
    count_parts(table);
    table->part = calloc((size_t)table->n_parts, sizeof(*table->part));
    table->place =
        calloc((size_t)(args->stages * args->chunks), sizeof(*table->place));
    table->row = calloc((size_t)args->stages, sizeof(*table->row));
    if (table->part == NULL || table->place == NULL || table->row == NULL) {
        rc = merak_fail_nomem(err, sizeof(*table->row));
        goto out;
    }
    link_parts(table);
    for (int s = 0; s < args->stages && rc == MERAK_OK; s++)
        rc = fill_row(table, s, err);
    if (rc != MERAK_OK)
        goto out;
    *table_p = table;
    table = NULL; /* the caller's now */
out:
    merak_timetable_destroy(table);
    return rc;
}

void merak_timetable_destroy(struct merak_timetable *table)
{
    if (table == NULL)
        return;
    for (int s = 0; table->row != NULL && s < table->args.stages; s++) {
        free(table->row[s].action);
        free(table->row[s].start);
        free(table->row[s].end);
    }
    free(table->row);
    free(table->place);
    free(table->part);
    free(table);
}

void merak_timetable_forward(struct merak_timetable *table)
{
    for (int s = 0; s < table->args.stages; s++)
        table->row[s].n =
            merak_actions_forward(table->row[s].action, table->row[s].n);
    table->forward_only = true;
}
