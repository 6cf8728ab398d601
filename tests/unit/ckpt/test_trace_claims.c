/* SPDX-License-Identifier: Apache-2.0 */
/* test_trace_claims.c - traces that claim of themselves what cannot be */
#include "config.h"

#include "unit/ckpt/own_dir.h"

#include "io/trace/trace.h"

#include <stdio.h>
#include <string.h>

#include <hdf5.h>

#define INSTRS 5

static const char *const names[INSTRS] = {"tokens", "linear.12",
                                          "send x -> stage 1", "", "adamw"};

static struct merak_trace_record record_of(int i)
{
    return (struct merak_trace_record){.start_ns = i * 10,
                                       .end_ns = i * 10 + 7,
                                       .instr = i,
                                       .microbatch = -1,
                                       .peer = -1};
}

/* What a damaged file says of itself is not believed. */
static void what_makes_no_sense_is_refused(void **state)
{
    static const struct {
        int ranks, tp, stages, dp, at[3]; /* along tp, stages, dp */
        int64_t start_ns, end_ns;
        const char *text;
    } row[] = {
        {0, 1, 1, 1, {0}, 0, 0, "is of rank 0 of 0, not of rank 0"},
        {1, 1, 1, 1, {0}, 500, 400, "1 makes no sense: 500 to 400 ns"},
        {1, 1, 1, 1, {0}, -2, 400, "1 makes no sense: -2 to 400 ns"},
        {1, 1, 1, 1, {0}, 0, INT64_MAX, "sense: 0 to 9223372036854775807 ns"},
        {1,
         1,
         2,
         1,
         {0},
         0,
         0,
         "rank 0 of 1 cannot be number 0, 0 and 0 of tp "
         "1, pp 2, dp 1"},
        {1, 1, 2000000000, 1, {0}, 0, 0, "pp 2000000000, dp 1"},
        {1, 65536, 65536, 65536, {0}, 0, 0, "tp 65536, pp 65536, dp 65536"},
        {1, 0, 1, 1, {0}, 0, 0, "of tp 0, pp 1, dp 1"},
        {4, 1, 2, 2, {0, 2, 0}, 0, 0, "cannot be number 0, 2 and 0"},
        {4, 2, 1, 2, {2, 0, 0}, 0, 0, "cannot be number 2, 0 and 0"},
        {4, 2, 1, 2, {0, 0, 2}, 0, 0, "cannot be number 0, 0 and 2"},
        {4, 2, 1, 2, {1, 0, 0}, 0, 0, "cannot be number 1, 0 and 0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct merak_trace_planned plan[INSTRS] = {{.op = ""}};
        struct merak_trace_info info = {.ranks = row[i].ranks,
                                        .tp = row[i].tp,
                                        .stages = row[i].stages,
                                        .dp = row[i].dp,
                                        .tp_index = row[i].at[0],
                                        .stage = row[i].at[1],
                                        .dp_index = row[i].at[2],
                                        .n_instrs = INSTRS,
                                        .instr_name = names,
                                        .planned = plan};
        struct merak_trace_rank *ranks;
        struct merak_trace *trace;
        struct merak_error err;
        int n;

        plan[1].start_ns = row[i].start_ns;
        plan[1].end_ns = row[i].end_ns;
        assert_int_equal(merak_trace_create(dir, &info, 0, &trace, &err),
                         MERAK_OK);
        (void)!merak_trace_close(trace, NULL);
        assert_int_equal(merak_trace_load(dir, &ranks, &n, &err),
                         MERAK_ERR_CORRUPT);
        if (strstr(err.text, row[i].text) == NULL)
            fail_msg("row %zu says \"%s\"", i, err.text);
    }
}

/* A trace with the files of another run beside its own. */
static void ranks_of_two_runs_are_refused(void **state)
{
    struct merak_trace_info info = {.ranks = 4,
                                    .tp = 1,
                                    .stages = 4,
                                    .dp = 1,
                                    .n_instrs = INSTRS,
                                    .instr_name = names};
    struct merak_trace_rank *ranks;
    struct merak_trace *trace;
    struct merak_error err;
    int n;

    (void)state;
    for (int r = 0; r < 2; r++) {
        info.rank = r;
        info.stage = r > 0 ? 0 : r;
        info.dp_index = r;
        info.stages = r > 0 ? 1 : 4;
        info.dp = r > 0 ? 4 : 1;
        assert_int_equal(merak_trace_create(dir, &info, 0, &trace, &err),
                         MERAK_OK);
        (void)!merak_trace_close(trace, NULL);
    }
    assert_int_equal(merak_trace_load(dir, &ranks, &n, &err),
                     MERAK_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "trace-00001.h5 is of tp 1, pp 1, dp 4"));
    assert_non_null(strstr(err.text, "of two runs"));
}

static void a_list_that_cannot_be_is_refused(void **state)
{
    static const struct {
        struct merak_stage_degrees list[2];
        int ranks, stage, dp;
        const char *text;
    } row[] = {
        {{{2, 1}, {1, 1}}, 3, 1, 1, "0 of 3 cannot be number 0, 1 and 0 of "},
        {{{2, 1}, {1, 1}}, 3, 0, 1, "of 3 cannot be number 0, 0 and 0 of "},
        {{{2, 1}, {1, 1}}, 4, 0, 2, "of 4 cannot be number 0, 0 and 0 of "},
        {{{2, 1}, {0, 1}}, 2, 0, 2, " of stages 2x1-0x1"},
        {{{1 << 30, 1}, {1 << 30, 1}}, 2, 0, 1 << 30, " of stages 1073741824"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct merak_trace_info info = {.ranks = row[i].ranks,
                                        .stages = 2,
                                        .stage = row[i].stage,
                                        .tp = 1,
                                        .dp = row[i].dp,
                                        .degrees = row[i].list,
                                        .n_instrs = INSTRS,
                                        .instr_name = names};
        struct merak_trace_rank *ranks;
        struct merak_trace *trace;
        struct merak_error err;
        int n;

        assert_int_equal(merak_trace_create(dir, &info, 0, &trace, &err),
                         MERAK_OK);
        (void)!merak_trace_close(trace, NULL);
        assert_int_equal(merak_trace_load(dir, &ranks, &n, &err),
                         MERAK_ERR_CORRUPT);
        if (strstr(err.text, row[i].text) == NULL)
            fail_msg("row %zu says \"%s\"", i, err.text);
    }
}

/* Ranks of unlike stages are numbered stage by stage. */
static void a_list_of_stages_is_kept(void **state)
{
    static const struct merak_stage_degrees list[] = {{2, 1}, {1, 2}};
    static const int at[4][3] = {{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 0, 1}};
    char text[MERAK_TRACE_DEGREES];
    struct merak_trace_rank *ranks;
    struct merak_trace *trace;
    struct merak_error err;
    int n;

    (void)state;
    for (int r = 0; r < 4; r++) {
        struct merak_trace_info info = {.rank = r,
                                        .ranks = 4,
                                        .stages = 2,
                                        .stage = at[r][0],
                                        .dp_index = at[r][1],
                                        .tp_index = at[r][2],
                                        .dp = list[at[r][0]].dp,
                                        .tp = list[at[r][0]].tp,
                                        .degrees = list,
                                        .n_instrs = INSTRS,
                                        .instr_name = names};

        assert_int_equal(merak_trace_create(dir, &info, 0, &trace, &err),
                         MERAK_OK);
        (void)!merak_trace_close(trace, NULL);
    }
    assert_int_equal(merak_trace_load(dir, &ranks, &n, &err), MERAK_OK);
    assert_int_equal(n, 4);
    assert_memory_equal(ranks[3].info.degrees, list, sizeof(list));
    assert_string_equal(merak_trace_degrees(&ranks[0].info, text),
                        "stages 2x1-1x2");
    merak_trace_unload(ranks, n);
}

/* Of four tensor ranks: those that sequences and experts are cut over. */
static void all_degrees_are_kept(void **state)
{
    static const struct {
        int cp, ep;
        const char *text; /* NULL: refused */
    } row[] = {{0, 0, "tp 4, pp 1, dp 1"},
               {1, 1, "tp 4, pp 1, dp 1"},
               {2, 1, "tp 2, cp 2, pp 1, dp 1"},
               {1, 4, "tp 1, ep 4, pp 1, dp 1"},
               {2, 2, "tp 1, cp 2, ep 2, pp 1, dp 1"},
               {3, 1, NULL},
               {4, 2, NULL}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        char text[MERAK_TRACE_DEGREES];
        struct merak_trace_rank *ranks;
        struct merak_trace *trace;
        struct merak_error err;
        int n;

        for (int r = 0; r < 4; r++) {
            struct merak_trace_info info = {.rank = r,
                                            .ranks = 4,
                                            .stages = 1,
                                            .tp = 4,
                                            .tp_index = r,
                                            .dp = 1,
                                            .cp = row[i].cp,
                                            .ep = row[i].ep,
                                            .n_instrs = INSTRS,
                                            .instr_name = names};

            assert_int_equal(merak_trace_create(dir, &info, 0, &trace, &err),
                             MERAK_OK);
            (void)!merak_trace_close(trace, NULL);
        }
        if (row[i].text == NULL) {
            assert_int_equal(merak_trace_load(dir, &ranks, &n, &err),
                             MERAK_ERR_CORRUPT);
            continue;
        }
        assert_int_equal(merak_trace_load(dir, &ranks, &n, &err), MERAK_OK);
        assert_string_equal(merak_trace_degrees(&ranks[3].info, text),
                            row[i].text);
        merak_trace_unload(ranks, n);
    }
}

/* A file whose dataset or attribute is larger than it says elsewhere, than the
 * whole file, or is another file. */
static bool put_many_texts(hid_t file)
{
    static const char text[4096] = "merak-trace";
    const hsize_t n = 128;
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &n, NULL), at;
    bool ok;

    ok = H5Adelete(file, "schedule") >= 0 && H5Tset_size(type, 32) >= 0;
    at = H5Acreate2(file, "schedule", type, space, H5P_DEFAULT, H5P_DEFAULT);
    ok = ok && at >= 0 && H5Awrite(at, type, text) >= 0;
    H5Aclose(at);
    H5Sclose(space);
    H5Tclose(type);
    return ok;
}

static bool put_names(hid_t file, hsize_t n, const char *from)
{
    const hsize_t chunk = 1;
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &n, NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), set;
    bool ok = H5Ldelete(file, "names", H5P_DEFAULT) >= 0 &&
              H5Tset_size(type, 16) >= 0;

    if (from == NULL)
        ok = ok && H5Pset_chunk(dcpl, 1, &chunk) >= 0;
    else
        ok = ok && H5Pset_external(dcpl, from, 0, n * 16) >= 0;
    set =
        H5Dcreate2(file, "names", type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    ok = ok && set >= 0;
    H5Dclose(set);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Tclose(type);
    return ok;
}

static void sizes_that_the_file_cannot_have_are_refused(void **state)
{
    const struct merak_trace_info info = {.ranks = 1,
                                          .tp = 1,
                                          .stages = 1,
                                          .dp = 1,
                                          .n_instrs = INSTRS,
                                          .instr_name = names};
    char path[160];

    (void)state;
    snprintf(path, sizeof(path), "%s/trace-00000.h5", dir);
    for (int i = 0; i < 3; i++) {
        struct merak_trace_rank *ranks;
        struct merak_trace *trace;
        struct merak_error err;
        hid_t file;
        int n;

        assert_int_equal(merak_trace_create(dir, &info, 0, &trace, &err),
                         MERAK_OK);
        (void)!merak_trace_close(trace, NULL);
        file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
        assert_true(file >= 0);
        assert_true(i == 0   ? put_many_texts(file)
                    : i == 1 ? put_names(file, (hsize_t)1 << 24, NULL)
                             : put_names(file, 4, "/etc/hostname"));
        assert_true(H5Fclose(file) >= 0);
        assert_int_not_equal(merak_trace_load(dir, &ranks, &n, &err), MERAK_OK);
    }
}

/* Times whose differences are no numbers. */
static void times_out_of_reach_are_refused(void **state)
{
    static const int64_t time[][2] = {
        {INT64_MIN, 0}, {0, INT64_MAX}, {INT64_MIN, INT64_MAX}};
    struct merak_trace_info info = {.ranks = 1,
                                    .tp = 1,
                                    .stages = 1,
                                    .dp = 1,
                                    .n_instrs = INSTRS,
                                    .instr_name = names};

    (void)state;
    for (size_t i = 0; i < sizeof(time) / sizeof(time[0]); i++) {
        struct merak_trace_record r[INSTRS];
        struct merak_trace_rank *ranks;
        struct merak_trace *trace;
        struct merak_error err;
        char want[80];
        int n;

        for (int k = 0; k < INSTRS; k++)
            r[k] = record_of(k);
        r[1].start_ns = time[i][0];
        r[1].end_ns = time[i][1];
        assert_int_equal(merak_trace_create(dir, &info, 0, &trace, &err),
                         MERAK_OK);
        assert_int_equal(merak_trace_step(trace, r, INSTRS, &err), MERAK_OK);
        (void)!merak_trace_close(trace, NULL);
        assert_int_equal(merak_trace_load(dir, &ranks, &n, &err),
                         MERAK_ERR_CORRUPT);
        snprintf(want, sizeof(want), "record 1 makes no sense");
        if (strstr(err.text, want) == NULL)
            fail_msg("row %zu says \"%s\"", i, err.text);
        snprintf(want, sizeof(want), "%lld to %lld ns", (long long)time[i][0],
                 (long long)time[i][1]);
        if (strstr(err.text, want) == NULL)
            fail_msg("row %zu says \"%s\"", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OWN_DIR_TEST(times_out_of_reach_are_refused),
        OWN_DIR_TEST(what_makes_no_sense_is_refused),
        OWN_DIR_TEST(ranks_of_two_runs_are_refused),
        OWN_DIR_TEST(a_list_that_cannot_be_is_refused),
        OWN_DIR_TEST(a_list_of_stages_is_kept),
        OWN_DIR_TEST(all_degrees_are_kept),
        OWN_DIR_TEST(sizes_that_the_file_cannot_have_are_refused),
    };

    return cmocka_run_group_tests_name("trace_claims", tests, NULL, NULL);
}
