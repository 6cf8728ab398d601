/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_rows.h - every schedule, with numbers that it takes */
#ifndef MERAK_TESTS_SCHEDULE_ROWS_H
#define MERAK_TESTS_SCHEDULE_ROWS_H

#include "partitioner/schedule/schedule.h"

#include <string.h>

struct schedule_row {
    const char *name;
    int chunks, slices, passes;
    /* For how many actions a stage may have to keep what it sends, so that
     * synchronous sends do not deadlock (merak_timetable_send_lag()): the most
     * at p <= 16, m <= 64.  test_schedule_time.c checks it. */
    int send_lag;
};

/* Where lags are not 1, and chunks, slices and passes beside the usual. */
static const struct schedule_row special_schedules[] = {
    {.name = "scp:drop-last", .chunks = 1, .send_lag = 1},
    {.name = "scp:third", .chunks = 1, .send_lag = 1},
    {.name = "scp:drop-last,third", .chunks = 1, .send_lag = 1},
    {.name = "scp:early,third", .chunks = 1, .send_lag = 1},
    {.name = "interleaved", .chunks = 3, .send_lag = 1},
    {.name = "zb-v", .chunks = 2, .send_lag = 45},
    {.name = "sliced", .chunks = 1, .slices = 4, .send_lag = 1},
    {.name = "interlaced", .chunks = 2, .send_lag = 2},
    {.name = "interlaced", .chunks = 3, .send_lag = 4},
    {.name = "interlaced", .chunks = 4, .send_lag = 6},
    {.name = "3f1b", .chunks = 1, .send_lag = 4},
    {.name = "3f1b", .chunks = 1, .passes = 5, .send_lag = 6},
};
#define N_SPECIAL (sizeof(special_schedules) / sizeof(special_schedules[0]))

/* The special row of a schedule with its usual numbers, or NULL. */
static inline const struct schedule_row *special_of(const char *name,
                                                    int chunks)
{
    for (size_t i = 0; i < N_SPECIAL; i++) {
        const struct schedule_row *row = &special_schedules[i];

        if (strcmp(row->name, name) == 0 && row->chunks == chunks &&
            row->slices == 0 && row->passes == 0)
            return row;
    }
    return NULL;
}

/* Call it with every schedule of the registry, and with the special rows. */
static inline void for_each_schedule(void (*call)(const struct schedule_row *))
{
    bool done[N_SPECIAL] = {false};

    for (int i = 0; merak_schedules()[i] != NULL; i++) {
        const struct merak_schedule *s = merak_schedules()[i];
        int least = s->min_chunks > 0 ? s->min_chunks : 1;
        int chunks = s->usual_chunks > 0 ? s->usual_chunks : least;
        const struct schedule_row usual = {
            .name = s->name, .chunks = chunks, .send_lag = 1};
        const struct schedule_row *special = special_of(s->name, chunks);

        if (special != NULL)
            done[special - special_schedules] = true;
        call(special != NULL ? special : &usual);
    }
    for (size_t i = 0; i < N_SPECIAL; i++) {
        if (!done[i])
            call(&special_schedules[i]);
    }
}

static inline struct merak_schedule_args
schedule_row_args(const struct schedule_row *row, int stages, int microbatches)
{
    return (struct merak_schedule_args){.stages = stages,
                                        .microbatches = microbatches,
                                        .chunks = row->chunks,
                                        .slices = row->slices,
                                        .passes = row->passes};
}

#endif
