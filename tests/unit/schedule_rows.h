/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_rows.h - every schedule, with the numbers that only it takes */
#ifndef MERAK_TESTS_SCHEDULE_ROWS_H
#define MERAK_TESTS_SCHEDULE_ROWS_H

#include "partitioner/schedule/schedule.h"

struct schedule_row {
    const char *name;
    int chunks, slices, passes;
    /* For how many actions a stage may have to keep what it sends, so that
     * synchronous sends do not deadlock (merak_timetable_send_lag()): the most
     * at p <= 16, m <= 64.  test_schedule_time.c checks it. */
    int send_lag;
};

static const struct schedule_row schedule_rows[] = {
    {.name = "1f1b", .chunks = 1, .send_lag = 1},
    {.name = "gpipe", .chunks = 1, .send_lag = 1},
    {.name = "early", .chunks = 1, .send_lag = 1},
    {.name = "last", .chunks = 1, .send_lag = 1},
    {.name = "scp", .chunks = 1, .send_lag = 1},
    {.name = "scp:drop-last", .chunks = 1, .send_lag = 1},
    {.name = "scp:third", .chunks = 1, .send_lag = 1},
    {.name = "scp:drop-last,third", .chunks = 1, .send_lag = 1},
    {.name = "scp:early,third", .chunks = 1, .send_lag = 1},
    {.name = "eager", .chunks = 1, .send_lag = 1},
    {.name = "interleaved", .chunks = 2, .send_lag = 1},
    {.name = "interleaved", .chunks = 3, .send_lag = 1},
    {.name = "zb-h1", .chunks = 1, .send_lag = 1},
    {.name = "zb-v", .chunks = 2, .send_lag = 45},
    {.name = "sliced", .chunks = 1, .send_lag = 1},
    {.name = "sliced", .chunks = 1, .slices = 4, .send_lag = 1},
    {.name = "interlaced", .chunks = 2, .send_lag = 2},
    {.name = "interlaced", .chunks = 3, .send_lag = 4},
    {.name = "interlaced", .chunks = 4, .send_lag = 6},
    {.name = "3f1b", .chunks = 1, .send_lag = 4},
    {.name = "3f1b", .chunks = 1, .passes = 5, .send_lag = 6},
    {.name = "forward", .chunks = 1, .send_lag = 1},
};
#define N_SCHEDULE_ROWS (sizeof(schedule_rows) / sizeof(schedule_rows[0]))

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
