/* SPDX-License-Identifier: Apache-2.0 */
/* list_check.c - are a schedule's lists complete and in order? */
#include "config.h"

#include "partitioner/schedule/list_check.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

#define N_KINDS 4

/* How often each action is listed on all stages, and which ones have been seen
 * on the stage that is being checked. */
struct ledger {
    const struct merak_timetable *table;
    int *listed, *seen_on;
};

static int part_of(const struct merak_timetable *table, int stage, int chunk)
{
    return table->lists->part[stage * table->args.chunks + chunk];
}

static size_t cell_of(const struct merak_timetable *table, int stage,
                      const struct merak_action *a)
{
    return merak_lists_place(
        table->lists, a->kind, part_of(table, stage, a->chunk),
        a->microbatch * table->args.slices + a->slice, a->pass);
}

void merak_action_name(const struct merak_timetable *table,
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

static enum merak_status count_listed(struct ledger *ledger,
                                      struct merak_error *err)
{
    const struct merak_timetable *table = ledger->table;

    for (int s = 0; s < table->args.stages; s++) {
        for (int i = 0; i < table->row[s].n; i++) {
            const struct merak_action *a = &table->row[s].action[i];

            if (!in_range(&table->args, a))
                return merak_fail(err, MERAK_ERR_CONFIG,
                                  "stage %d, action %d: micro-batch %d, chunk "
                                  "%d, slice %d, pass %d do not exist",
                                  s, i, a->microbatch, a->chunk, a->slice,
                                  a->pass);
            ledger->listed[cell_of(table, s, a)]++;
        }
    }
    return MERAK_OK;
}

/* How often each stage that has a part must run an action on it: 0 or 1, or -1
 * if it may run it once. */
static int required_count(const struct merak_timetable *table,
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

static enum merak_status check_count(const struct ledger *ledger, int stage,
                                     const struct merak_action *a,
                                     struct merak_error *err)
{
    const struct merak_timetable *table = ledger->table;
    int part = part_of(table, stage, a->chunk);
    int required = required_count(table, a);
    int holders = part >= table->lists->chain ? table->args.stages : 1;
    int listed = ledger->listed[cell_of(table, stage, a)];
    char name[48];

    if (required < 0 ? listed <= holders : listed == required * holders)
        return MERAK_OK;
    merak_action_name(table, a, name, sizeof(name));
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "%s of part %d (stage %d) is listed %d times, not %d",
                      name, part, stage, listed, abs(required) * holders);
}

/* Every forward and backward once, and optional actions at most once. */
static enum merak_status check_complete(const struct ledger *ledger,
                                        struct merak_error *err)
{
    const struct merak_schedule_args *args = &ledger->table->args;
    int each = args->chunks * args->microbatches * args->slices * args->passes;
    enum merak_status rc = MERAK_OK;

    for (int s = 0; s < args->stages; s++) {
        for (int i = 0; i < N_KINDS * each && rc == MERAK_OK; i++) {
            int left = i / N_KINDS;
            struct merak_action a = {.kind =
                                         (enum merak_action_kind)(i % N_KINDS)};

            a.pass = left % args->passes;
            left /= args->passes;
            a.slice = left % args->slices;
            left /= args->slices;
            a.microbatch = left % args->microbatches;
            a.chunk = left / args->microbatches;
            rc = check_count(ledger, s, &a, err);
        }
    }
    return rc;
}

/* The most actions of its own stage that an action needs. */
#define MOST_NEEDS 3

static int list_needs(const struct ledger *ledger, int stage,
                      const struct merak_action *a, struct merak_action *need)
{
    const struct merak_schedule_args *args = &ledger->table->args;
    int n = 0;

    for (int i = 0; i < MOST_NEEDS; i++)
        need[i] = *a;
    if (a->kind == MERAK_ACT_F) {
        if (a->slice > 0)
            need[n++].slice = a->slice - 1;
        return n;
    }
    if (a->kind == MERAK_ACT_W) {
        need[0].kind = MERAK_ACT_B;
        return 1;
    }
    need[0].kind = MERAK_ACT_F;
    need[0].pass = args->passes - 1;
    if (a->kind == MERAK_ACT_R)
        return 1;
    need[n++].slice = args->slices - 1;
    if (a->slice < args->slices - 1)
        need[n++].slice = a->slice + 1;
    need[n].kind = MERAK_ACT_R;
    return n + (ledger->listed[cell_of(ledger->table, stage, &need[n])] > 0);
}

static enum merak_status check_order(struct ledger *ledger, int stage,
                                     struct merak_error *err)
{
    const struct merak_timetable *table = ledger->table;
    const struct merak_timetable_row *row = &table->row[stage];

    for (int i = 0; i < row->n; i++) {
        const struct merak_action *a = &row->action[i];
        struct merak_action need[MOST_NEEDS];
        int n = list_needs(ledger, stage, a, need);
        char name[48], other[48];

        while (n > 0 && ledger->seen_on[cell_of(table, stage, &need[n - 1])] ==
                            stage + 1)
            n--;
        if (n > 0) {
            merak_action_name(table, a, name, sizeof(name));
            merak_action_name(table, &need[n - 1], other, sizeof(other));
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "stage %d, action %d: %s comes before %s", stage,
                              i, name, other);
        }
        ledger->seen_on[cell_of(table, stage, a)] = stage + 1;
    }
    return MERAK_OK;
}

enum merak_status merak_timetable_check(const struct merak_timetable *table,
                                        struct merak_error *err)
{
    const struct merak_schedule_args *args = &table->args;
    size_t n = merak_lists_places(table->lists, N_KINDS);
    struct ledger ledger = {.table = table,
                            .listed = calloc(n, sizeof(*ledger.listed)),
                            .seen_on = calloc(n, sizeof(*ledger.seen_on))};
    enum merak_status rc = MERAK_OK;

    if (ledger.listed == NULL || ledger.seen_on == NULL)
        rc = merak_fail_nomem(err, n * sizeof(*ledger.listed));
    if (rc == MERAK_OK)
        rc = count_listed(&ledger, err);
    if (rc == MERAK_OK)
        rc = check_complete(&ledger, err);
    for (int s = 0; s < args->stages && rc == MERAK_OK; s++)
        rc = check_order(&ledger, s, err);
    free(ledger.listed);
    free(ledger.seen_on);
    return rc;
}
