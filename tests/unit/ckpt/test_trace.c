/* SPDX-License-Identifier: Apache-2.0 */
/* test_trace.c - traces: which steps stay, what reads back, the master */
#include "config.h"

#include "unit/ckpt/own_dir.h"

#include "io/trace/summary.h"
#include "partitioner/program/program.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>

#define RANKS 3
#define INSTRS 5

static const char *const names[INSTRS] = {"tokens", "linear.12",
                                          "send x -> stage 1", "", "adamw"};

static struct merak_trace *create(int rank, int ranks, int keep_every)
{
    struct merak_trace_info info = {.rank = rank,
                                    .ranks = ranks,
                                    .stage = rank,
                                    .stages = ranks,
                                    .tp = 1,
                                    .dp = 1,
                                    .microbatches = 4,
                                    .schedule = "1f1b",
                                    .transport = "ucx",
                                    .n_instrs = INSTRS,
                                    .instr_name = names};
    struct merak_trace *trace;
    struct merak_error err;

    if (merak_trace_create(dir, &info, keep_every, &trace, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return trace;
}

static struct merak_trace_record record_of(int rank, int step, int i)
{
    struct merak_trace_record r;

    memset(&r, 0, sizeof(r));
    r.start_ns = step * 1000000000ll + rank * 1000 + i * 10;
    r.end_ns = r.start_ns + 7;
    r.bytes = (uint64_t)i << 40;
    r.instr = i;
    r.step = step;
    r.microbatch = (int16_t)(i - 1);
    r.peer = (int16_t)(i == 2 ? rank + 1 : -1);
    r.kind = (uint8_t)i;
    r.queue = (uint8_t)(i % 4);
    r.phase = (uint8_t)(i % 3);
    r.chunk = 200;
    return r;
}

static void write_steps(struct merak_trace *trace, int rank, int from, int to)
{
    static struct merak_trace_record r[INSTRS]; /* stay until the close */
    struct merak_error err;

    for (int step = from; step <= to; step++) {
        for (int i = 0; i < INSTRS; i++)
            r[i] = record_of(rank, step, i);
        assert_int_equal(merak_trace_step(trace, r, INSTRS, &err), MERAK_OK);
    }
}

static void assert_steps(const struct merak_trace_rank *rank, int r,
                         const int *steps, int n)
{
    assert_int_equal(rank->n, n * INSTRS);
    for (int s = 0; s < n; s++) {
        for (int i = 0; i < INSTRS; i++) {
            struct merak_trace_record want = record_of(r, steps[s], i);

            assert_memory_equal(&rank->records[s * INSTRS + i], &want,
                                sizeof(want));
        }
    }
}

static void write_all(void)
{
    struct merak_error err;

    for (int rank = RANKS - 1; rank >= 0; rank--) {
        struct merak_trace *trace = create(rank, RANKS, 10);

        write_steps(trace, rank, 3, 25);
        assert_int_equal(merak_trace_close(trace, &err), MERAK_OK);
    }
}

static void the_first_every_tenth_and_the_last_step_stay(void **state)
{
    static const int steps[] = {3, 10, 20, 25};
    struct merak_trace_rank *ranks;
    struct merak_error err;
    int n;

    (void)state;
    write_all();
    assert_int_equal(merak_trace_load(dir, &ranks, &n, &err), MERAK_OK);
    assert_int_equal(n, RANKS);
    for (int r = 0; r < RANKS; r++) {
        assert_steps(&ranks[r], r, steps, 4);
        assert_int_equal(ranks[r].info.rank, r);
        assert_int_equal(ranks[r].info.stage, r);
        assert_int_equal(ranks[r].info.microbatches, 4);
        assert_string_equal(ranks[r].info.schedule, "1f1b");
        assert_string_equal(ranks[r].info.transport, "ucx");
        assert_int_equal(ranks[r].info.n_instrs, INSTRS);
        for (int i = 0; i < INSTRS; i++)
            assert_string_equal(ranks[r].names[i], names[i]);
    }
    merak_trace_unload(ranks, n);
}

static void a_last_step_that_is_kept_anyway_stands_once(void **state)
{
    static const int steps[] = {3, 10, 20};
    struct merak_trace *trace = create(0, 1, 10);
    struct merak_trace_rank *ranks;
    struct merak_error err;
    int n;

    (void)state;
    write_steps(trace, 0, 3, 20);
    assert_int_equal(merak_trace_close(trace, &err), MERAK_OK);
    assert_int_equal(merak_trace_load(dir, &ranks, &n, &err), MERAK_OK);
    assert_int_equal(n, 1);
    assert_steps(&ranks[0], 0, steps, 3);
    merak_trace_unload(ranks, n);
}

/* What the process would leave behind if it were killed now. */
static void an_unfinished_trace_can_be_read(void **state)
{
    static const int steps[] = {3, 10};
    struct merak_trace *trace = create(0, 1, 10);
    struct merak_trace_rank *ranks;
    struct merak_error err;
    char command[600];
    int n;

    (void)state;
    write_steps(trace, 0, 3, 15);
    snprintf(command, sizeof(command), "mkdir %s/c && cp %s/*.h5 %s/c", dir,
             dir, dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(merak_trace_close(trace, &err), MERAK_OK);
    strcat(dir, "/c");
    assert_int_equal(merak_trace_load(dir, &ranks, &n, &err), MERAK_OK);
    dir[strlen(dir) - 2] = '\0';
    assert_steps(&ranks[0], 0, steps, 2);
    merak_trace_unload(ranks, n);
}

static void saves_are_kept_between_records(void **state)
{
    const struct merak_trace_save save[] = {{4, 1000, 10, 20, 50, 60},
                                            {8, 1000, 110, 125, 150, -1}};
    struct merak_trace *trace = create(0, 1, 10);
    struct merak_trace_rank *ranks;
    struct merak_error err;
    int n;

    (void)state;
    for (int i = 0; i < 2; i++) {
        write_steps(trace, 0, 3 + 4 * i, 6 + 4 * i);
        assert_int_equal(merak_trace_save(trace, &save[i], &err), MERAK_OK);
    }
    assert_int_equal(merak_trace_close(trace, &err), MERAK_OK);
    assert_int_equal(merak_trace_load(dir, &ranks, &n, &err), MERAK_OK);
    assert_int_equal(ranks[0].n_saves, 2);
    assert_memory_equal(ranks[0].saves, save, sizeof(save));
    merak_trace_unload(ranks, n);
}

/* By HDF5 alone, from a directory of its own. */
static void the_master_shows_all_ranks(void **state)
{
    uint64_t first[RANKS + 1];
    int64_t start[RANKS * 4 * INSTRS];
    hid_t file, set, type, rank;
    char path[256];

    (void)state;
    write_all();
    snprintf(path, sizeof(path), "%s/trace.h5", dir);
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    set = H5Dopen2(file, "first", H5P_DEFAULT);
    assert_true(H5Dread(set, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                        first) >= 0);
    H5Dclose(set);
    for (int r = 0; r <= RANKS; r++)
        assert_int_equal(first[r], r * 4 * INSTRS);
    type = H5Tcreate(H5T_COMPOUND, sizeof(int64_t));
    assert_true(H5Tinsert(type, "start_ns", 0, H5T_NATIVE_INT64) >= 0);
    set = H5Dopen2(file, "records", H5P_DEFAULT);
    assert_true(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, start) >= 0);
    H5Dclose(set);
    H5Tclose(type);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(start[first[r] + 1], record_of(r, 3, 1).start_ns);
        assert_int_equal(start[first[r + 1] - 1],
                         record_of(r, 25, INSTRS - 1).start_ns);
    }
    rank = H5Oopen(file, "rank/00002/names", H5P_DEFAULT);
    assert_true(rank >= 0);
    H5Oclose(rank);
    H5Fclose(file);
}

/* --- where the time went
 * ------------------------------------------------------ */

static struct merak_trace_record timed(int step, int instr, int kind, int queue,
                                       int peer, int64_t start, int64_t end)
{
    struct merak_trace_record r = {.start_ns = start,
                                   .end_ns = end,
                                   .instr = instr,
                                   .step = step,
                                   .peer = (int16_t)peer,
                                   .kind = (uint8_t)kind,
                                   .queue = (uint8_t)queue};
    return r;
}

enum { LOCAL = MERAK_QUEUE_COMPUTE, REDUCE = MERAK_QUEUE_COLLECTIVE };
#define P2P MERAK_QUEUE_P2P

/* Rank 0 computes 0-100 and sends 100-110, of which 5 are hidden; rank 1 posts
 * its receive at 0, but data moves only from 100 on. */
static void time_is_split_without_counting_waits_as_transfers(void **state)
{
    char *name[] = {"a", "b"};
    struct merak_trace_record first[] = {
        timed(1, 0, MERAK_INSTR_KERNEL, LOCAL, -1, 0, 60),
        timed(1, 0, MERAK_INSTR_KERNEL, LOCAL, -1, 50, 100),
        timed(1, 1, MERAK_INSTR_SEND, P2P, 1, 100, 110),
        timed(1, 0, MERAK_INSTR_KERNEL, LOCAL, -1, 105, 150),
        timed(2, 0, MERAK_INSTR_KERNEL, LOCAL, -1, 500, 900)};
    struct merak_trace_record second[] = {
        timed(1, 1, MERAK_INSTR_RECV, P2P, 0, 0, 110),
        timed(1, 0, MERAK_INSTR_KERNEL, LOCAL, -1, 110, 140),
        timed(1, 1, MERAK_INSTR_EXCHANGE, REDUCE, -1, 140, 200)};
    struct merak_trace_rank ranks[2] = {
        {.info = {.rank = 0, .ranks = 2, .n_instrs = 2},
         .names = name,
         .records = first,
         .n = 5},
        {.info = {.rank = 1, .ranks = 2, .n_instrs = 2},
         .names = name,
         .records = second,
         .n = 3}};
    struct merak_trace_split split[2];
    struct merak_trace_busy *busy;
    struct merak_error err;
    int32_t *steps;
    size_t n_busy;
    int n;

    (void)state;
    assert_int_equal(merak_trace_steps(ranks, 2, &steps, &n, &err), MERAK_OK);
    assert_int_equal(n, 1); /* rank 1 has no step 2 */
    assert_int_equal(steps[0], 1);
    assert_int_equal(merak_trace_split(ranks, 2, steps, n, split, &err),
                     MERAK_OK);
    for (int r = 0; r < 2; r++) {
        const double want[2][5] = {{200e-9, 145e-9, 5e-9, 5e-9, 50e-9},
                                   {200e-9, 30e-9, 70e-9, 0, 100e-9}};
        const double got[5] = {split[r].step_s, split[r].compute_s,
                               split[r].exposed_s, split[r].hidden_s,
                               split[r].idle_s};

        assert_near(got, want[r], 5, 0, 1e-15);
    }
    assert_int_equal(
        merak_trace_busiest(ranks, 2, steps, n, &busy, &n_busy, &err),
        MERAK_OK);
    assert_int_equal(n_busy, 2);
    assert_string_equal(busy[0].name, "a");
    assert_int_equal(busy[0].calls, 4);
    assert_near(&busy[0].total_s, &(double){185e-9}, 1, 0, 1e-15);
    assert_string_equal(busy[1].name, "b");
    assert_near(&busy[1].total_s, &(double){80e-9}, 1, 0, 1e-15);
    assert_int_equal(merak_trace_split(ranks, 2, &(int32_t){3}, 1, split, &err),
                     MERAK_ERR_NOT_FOUND);
    free(busy);
    free(steps);
}

/* Three ranks of which two make a group: its collective begins for both when
 * the second comes; who is in no event waits for nobody. */
static void a_collective_begins_when_its_last_member_comes(void **state)
{
    char *name[] = {"reduce", "reduce"};
    struct merak_trace_planned plan[3][2] = {
        {{.op = "all-reduce", .tag = 9, .first = 0, .second = -2},
         {.op = "all-reduce", .tag = 8, .first = 0, .second = -2}},
        {{.op = "all-reduce", .tag = 9, .first = 0, .second = -2},
         {.op = "all-reduce", .tag = 8, .first = 0, .second = -2}},
        {{.op = "all-reduce", .tag = 9, .first = 2, .second = -2},
         {.op = "all-reduce", .tag = 8, .first = 2, .second = -2}}};
    struct merak_trace_record records[3][2] = {
        {timed(1, 0, MERAK_INSTR_EXCHANGE, REDUCE, -1, 0, 50),
         timed(1, 1, MERAK_INSTR_EXCHANGE, REDUCE, -1, 50, 70)},
        {timed(1, 0, MERAK_INSTR_EXCHANGE, REDUCE, -1, 30, 50),
         timed(1, 1, MERAK_INSTR_EXCHANGE, REDUCE, -1, 51, 69)},
        {timed(1, 0, MERAK_INSTR_EXCHANGE, REDUCE, -1, 10, 20),
         timed(1, 1, MERAK_INSTR_EXCHANGE, REDUCE, -1, 40, 100)}};
    const double want[3][3] = {
        {39e-9, 31e-9, 30e-9}, {38e-9, 0, 62e-9}, {70e-9, 0, 30e-9}};
    struct merak_trace_rank ranks[3];
    struct merak_trace_split split[3];
    struct merak_error err;

    (void)state;
    for (int r = 0; r < 3; r++)
        ranks[r] = (struct merak_trace_rank){.info = {.rank = r, .n_instrs = 2},
                                             .names = name,
                                             .records = records[r],
                                             .n = 2,
                                             .planned = plan[r]};
    assert_int_equal(merak_trace_split(ranks, 3, &(int32_t){1}, 1, split, &err),
                     MERAK_OK);
    for (int r = 0; r < 3; r++) {
        const double got[3] = {split[r].exposed_s, split[r].wait_s,
                               split[r].idle_s};

        assert_near(got, want[r], 3, 0, 1e-15);
    }
}

/* Of one rank, with what it was told of its instructions. */
static void write_told(const struct merak_trace_planned *planned,
                       const struct merak_trace_cost *cost)
{
    const struct merak_trace_info info = {.ranks = 1,
                                          .tp = 1,
                                          .dp = 1,
                                          .stages = 1,
                                          .n_instrs = INSTRS,
                                          .instr_name = names,
                                          .planned = planned,
                                          .cost = cost};
    struct merak_trace *trace;
    struct merak_error err;

    assert_int_equal(merak_trace_create(dir, &info, 0, &trace, &err), MERAK_OK);
    write_steps(trace, 0, 5, 9);
    assert_int_equal(merak_trace_close(trace, &err), MERAK_OK);
}

/* The plan comes back with the records, and as a step of its own. */
static void the_prediction_is_in_the_trace(void **state)
{
    struct merak_trace_planned plan[INSTRS] = {{.op = ""}};
    struct merak_trace_rank *ranks, *predicted;
    struct merak_error err;
    int n;

    (void)state;
    for (int i = 0; i < INSTRS; i++) {
        snprintf(plan[i].op, sizeof(plan[i].op), "op%d", i);
        plan[i].tag = (uint64_t)i << 60;
        plan[i].first = -i;
        plan[i].second = i;
        plan[i].start_ns = i == 3 ? -1 : 100 * i; /* 3 is not predicted */
        plan[i].end_ns = i == 3 ? -1 : 100 * i + 40;
        plan[i].again = i == 2;
    }
    write_told(plan, NULL);
    assert_int_equal(merak_trace_load(dir, &ranks, &n, &err), MERAK_OK);
    assert_memory_equal(ranks[0].planned, plan, sizeof(plan));
    assert_int_equal(merak_trace_predicted(ranks, n, &predicted, &err),
                     MERAK_OK);
    assert_int_equal(predicted[0].n, INSTRS - 1);
    for (int i = 0; i < INSTRS - 1; i++) {
        int id = i < 3 ? i : 4;

        assert_int_equal(predicted[0].records[i].instr, id);
        assert_int_equal(predicted[0].records[i].step, 0);
        assert_int_equal(predicted[0].records[i].start_ns, 100 * id);
        assert_int_equal(predicted[0].records[i].end_ns, 100 * id + 40);
    }
    assert_string_equal(predicted[0].names[1], names[1]);
    merak_trace_unload(predicted, n);
    merak_trace_unload(ranks, n);
}

/* What older runs wrote of work: no reuse distance. */
static void drop_reuse(void)
{
    struct merak_trace_cost cost[INSTRS];
    hid_t file, set, type, space;
    char path[256];

    snprintf(path, sizeof(path), "%s/trace-00000.h5", dir);
    file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(file >= 0);
    set = H5Dopen2(file, "costs", H5P_DEFAULT);
    type = H5Tcreate(H5T_COMPOUND, sizeof(*cost));
    H5Tinsert(type, "flops", HOFFSET(struct merak_trace_cost, flops),
              H5T_NATIVE_DOUBLE);
    H5Tinsert(type, "bytes", HOFFSET(struct merak_trace_cost, bytes),
              H5T_NATIVE_DOUBLE);
    H5Tinsert(type, "width", HOFFSET(struct merak_trace_cost, width),
              H5T_NATIVE_DOUBLE);
    H5Tinsert(type, "inside", HOFFSET(struct merak_trace_cost, inside),
              H5T_NATIVE_INT32);
    H5Tinsert(type, "tp", HOFFSET(struct merak_trace_cost, tp),
              H5T_NATIVE_INT32);
    assert_true(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, cost) >= 0);
    space = H5Dget_space(set);
    H5Dclose(set);
    assert_true(H5Ldelete(file, "costs", H5P_DEFAULT) >= 0);
    set = H5Dcreate2(file, "costs", type, space, H5P_DEFAULT, H5P_DEFAULT,
                     H5P_DEFAULT);
    assert_true(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, cost) >= 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Tclose(type);
    assert_true(H5Fclose(file) >= 0);
}

static void costs_come_back_and_older_runs_have_no_reuse(void **state)
{
    const struct merak_trace_cost cost[INSTRS] = {{1e9, 2e6, 64, 3e8, 0, 2},
                                                  {0, 5e5, 0, 0, 1, 1},
                                                  {.tp = 1},
                                                  {2e9, 1e6, 32, 3e8, 0, 1},
                                                  {.flops = 7, .tp = 4}};
    struct merak_error err;

    (void)state;
    write_told(NULL, cost);
    for (int older = 0; older < 2; older++) {
        struct merak_trace_rank *ranks;
        int n;

        if (older)
            drop_reuse();
        assert_int_equal(merak_trace_load(dir, &ranks, &n, &err), MERAK_OK);
        for (int i = 0; i < INSTRS; i++) {
            struct merak_trace_cost want = cost[i];

            want.reuse = older ? 0 : want.reuse;
            assert_memory_equal(&ranks[0].cost[i], &want, sizeof(want));
        }
        merak_trace_unload(ranks, n);
    }
}

static void a_trace_without_a_plan_predicts_nothing(void **state)
{
    struct merak_trace_rank *ranks, *predicted;
    struct merak_error err;
    int n;

    (void)state;
    write_all();
    assert_int_equal(merak_trace_load(dir, &ranks, &n, &err), MERAK_OK);
    assert_null(ranks[0].planned);
    assert_int_equal(merak_trace_predicted(ranks, n, &predicted, &err),
                     MERAK_ERR_NOT_FOUND);
    merak_trace_unload(ranks, n);
}

static void what_is_no_trace_is_named(void **state)
{
    struct merak_trace_rank *ranks;
    struct merak_error err;
    char path[256];
    int n, fd;

    (void)state;
    assert_int_equal(merak_trace_load(dir, &ranks, &n, &err),
                     MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "trace-00000.h5 is not there"));
    snprintf(path, sizeof(path), "%s/trace-00000.h5", dir);
    fd = open(path, O_CREAT | O_WRONLY, 0666);
    assert_int_equal(write(fd, "not HDF5", 8), 8);
    close(fd);
    assert_int_equal(merak_trace_load(dir, &ranks, &n, &err), MERAK_ERR_IO);
    assert_non_null(strstr(err.text, path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OWN_DIR_TEST(the_first_every_tenth_and_the_last_step_stay),
        OWN_DIR_TEST(a_last_step_that_is_kept_anyway_stands_once),
        OWN_DIR_TEST(an_unfinished_trace_can_be_read),
        OWN_DIR_TEST(saves_are_kept_between_records),
        OWN_DIR_TEST(the_master_shows_all_ranks),
        cmocka_unit_test(time_is_split_without_counting_waits_as_transfers),
        cmocka_unit_test(a_collective_begins_when_its_last_member_comes),
        OWN_DIR_TEST(the_prediction_is_in_the_trace),
        OWN_DIR_TEST(costs_come_back_and_older_runs_have_no_reuse),
        OWN_DIR_TEST(a_trace_without_a_plan_predicts_nothing),
        OWN_DIR_TEST(what_is_no_trace_is_named),
    };

    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
