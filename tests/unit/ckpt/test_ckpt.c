/* SPDX-License-Identifier: Apache-2.0 */
/* test_ckpt.c - checkpoints: any layout to any other, damage, keeping, bad
 * input */
#include "config.h"

#include "unit/near.h"

#include "unit/ckpt/ckpt_world.h"

#include "base/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct merak_ckpt_keep keep_two = {.newest = 2};
static char dir[128];
static int warnings;
static char last_warning[1024];

static void take_warning(void *arg, enum merak_log_level level,
                         const char *module, const char *line)
{
    (void)arg;
    (void)module;
    if (level == MERAK_LOG_WARN) {
        warnings++;
        snprintf(last_warning, sizeof(last_warning), "%s", line);
    }
}

static int make_dir(void **state)
{
    (void)state;
    world_make_dir(dir, sizeof(dir));
    merak_log_sink(take_warning, NULL);
    warnings = 0;
    last_warning[0] = '\0';
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    merak_log_sink(NULL, NULL);
    world_remove_dir(dir);
    return 0;
}

static const struct world_layout layouts[] = {
    {1, 1, 1, false}, {2, 1, 1, false}, {1, 2, 1, false}, {1, 1, 3, true},
    {2, 2, 2, true},  {2, 1, 2, false}, {3, 1, 2, true},
};
#define N_LAYOUTS ((int)(sizeof(layouts) / sizeof(*layouts)))

static void any_layout_reads_what_any_other_wrote(void **state)
{
    struct merak_error err;
    char sub[160];

    (void)state;
    for (int i = 0; i < N_LAYOUTS; i++) {
        snprintf(sub, sizeof(sub), "%s/%d", dir, i);
        if (world_save(sub, &layouts[i], 20 + (uint64_t)i, 2, &err) != MERAK_OK)
            fail_msg("layout %d: %s", i, err.text);
        for (int k = 0; k < N_LAYOUTS; k++) {
            if (world_check(sub, &layouts[k], &err) != 20 + i)
                fail_msg("from layout %d to %d: %s", i, k, err.text);
        }
    }
    assert_int_equal(warnings, 0);
}

static enum merak_status save_state(const struct merak_ckpt_state *state,
                                    struct merak_ckpt_keep keep)
{
    const struct world_layout one = {1, 1, 1, false};
    struct merak_ckpt_piece *pieces;
    struct merak_error err;
    int n = world_pieces(&one, 0, false, state->step, &pieces);
    enum merak_status rc =
        merak_ckpt_save(dir, state, pieces, n, keep, NULL, &err);

    world_free(pieces, n);
    return rc;
}

static void the_state_comes_back(void **state)
{
    const struct world_layout one = {1, 1, 1, false};
    struct merak_ckpt_state want = world_state(&one, 7);
    const struct merak_ckpt_state *got;
    char by[MERAK_DEGREES_TEXT];
    struct merak_ckpt *ckpt;
    struct merak_error err;

    (void)state;
    assert_int_equal(world_save_here(dir, 7, 0, &err), MERAK_OK);
    assert_int_equal(merak_ckpt_open(dir, &ckpt, &err), MERAK_OK);
    got = merak_ckpt_state(ckpt);
    assert_int_equal(got->step, want.step);
    assert_int_equal(got->consumed_samples, want.consumed_samples);
    assert_int_equal(got->consumed_tokens, want.consumed_tokens);
    assert_true(got->seed == want.seed);
    assert_string_equal(got->model_id, want.model_id);
    assert_string_equal(got->data_id, want.data_id);
    assert_string_equal(got->dtype, want.dtype);
    assert_int_equal(got->tp * 100 + got->pp * 10 + got->dp, 111);
    assert_string_equal(merak_ckpt_degrees(got, ", ", by),
                        "tp 1, pp 1, dp 1");
    assert_non_null(strstr(merak_ckpt_path(ckpt), "/step-00000007"));
    merak_ckpt_close(ckpt);

    want.step++;
    want.cp = 4;
    assert_int_equal(save_state(&want, keep_two), MERAK_OK);
    assert_int_equal(merak_ckpt_open(dir, &ckpt, &err), MERAK_OK);
    assert_string_equal(merak_ckpt_degrees(merak_ckpt_state(ckpt), " x ", by),
                        "tp 1 x cp 4 x pp 1 x dp 1");
    merak_ckpt_close(ckpt);
}

/* --- what stays --------------------------------------------------------------
 */

static bool exists(const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static int count_entries(void)
{
    DIR *d = opendir(dir);
    int n = 0;

    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n - 2;
}

static void older_checkpoints_go_when_enough_are_kept(void **state)
{
    const struct world_layout one = {1, 1, 1, false};
    struct merak_error err;
    char latest[32] = "";
    FILE *file;
    char path[256];

    (void)state;
    for (uint64_t step = 10; step <= 50; step += 10)
        assert_int_equal(world_save_here(dir, step, 3, &err), MERAK_OK);
    assert_true(exists("step-00000030") && exists("step-00000040") &&
                exists("step-00000050"));
    assert_int_equal(count_entries(), 4); /* and LATEST */
    assert_int_equal(world_check(dir, &one, &err), 50);
    snprintf(path, sizeof(path), "%s/LATEST", dir);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(latest, sizeof(latest), file));
    fclose(file);
    assert_string_equal(latest, "step-00000050\n");
}

static void fewer_than_two_are_never_kept(void **state)
{
    struct merak_error err;

    (void)state;
    assert_int_equal(world_save_here(dir, 1, 1, &err), MERAK_ERR_PARAM);
    assert_non_null(strstr(err.text, "at least 2"));
    assert_int_equal(count_entries(), 0);
}

static void a_step_saved_again_replaces_the_first(void **state)
{
    const struct world_layout one = {1, 1, 1, false};
    const struct world_layout two = {2, 1, 1, false};
    struct merak_ckpt *ckpt;
    struct merak_error err;

    (void)state;
    assert_int_equal(world_save_here(dir, 20, 2, &err), MERAK_OK);
    assert_int_equal(world_save(dir, &two, 20, 2, &err), MERAK_OK);
    assert_int_equal(count_entries(), 2);
    assert_int_equal(world_check(dir, &one, &err), 20);
    assert_int_equal(merak_ckpt_open(dir, &ckpt, &err), MERAK_OK);
    assert_int_equal(merak_ckpt_state(ckpt)->tp, 2);
    merak_ckpt_close(ckpt);
}

static void one_saved_after_going_back_stays(void **state)
{
    struct merak_error err;

    (void)state;
    for (uint64_t step = 60; step <= 80; step += 10)
        assert_int_equal(world_save_here(dir, step, 2, &err), MERAK_OK);
    assert_int_equal(world_save_here(dir, 50, 2, &err), MERAK_OK);
    assert_true(exists("step-00000050") && exists("step-00000080"));
    assert_false(exists("step-00000060"));
}

static enum merak_status save_keeping(uint64_t step,
                                      struct merak_ckpt_keep keep)
{
    const struct world_layout one = {1, 1, 1, false};
    const struct merak_ckpt_state st = world_state(&one, step);

    return save_state(&st, keep);
}

static void multiples_of_a_step_stay(void **state)
{
    const struct merak_ckpt_keep keep = {.newest = 2, .every = 30};

    (void)state;
    for (uint64_t step = 10; step <= 90; step += 10)
        assert_int_equal(save_keeping(step, keep), MERAK_OK);
    assert_true(exists("step-00000030") && exists("step-00000060") &&
                exists("step-00000080") && exists("step-00000090"));
    assert_int_equal(count_entries(), 5); /* and LATEST */
}

/* 80 is damaged, and the run went back behind it. */
static void later_ones_neither_go_nor_count(void **state)
{
    (void)state;
    assert_int_equal(save_keeping(20, keep_two), MERAK_OK);
    assert_int_equal(save_keeping(80, keep_two), MERAK_OK);
    assert_int_equal(save_keeping(30, keep_two), MERAK_OK);
    assert_true(exists("step-00000020") && exists("step-00000030") &&
                exists("step-00000080"));
    assert_int_equal(save_keeping(40, keep_two), MERAK_OK);
    assert_true(exists("step-00000030") && exists("step-00000040") &&
                exists("step-00000080"));
    assert_false(exists("step-00000020"));
    assert_int_equal(save_keeping(90, keep_two), MERAK_OK);
    assert_false(exists("step-00000040"));
}

static void debris_of_dead_saves_is_removed(void **state)
{
    struct merak_error err;
    char path[256];

    (void)state;
    snprintf(path, sizeof(path), "%s/step-00000010.tmp", dir);
    assert_int_equal(mkdir(path, 0777), 0);
    strcat(path, "/shard-00000.h5");
    close(open(path, O_CREAT | O_WRONLY, 0666));
    assert_int_equal(world_save_here(dir, 20, 2, &err), MERAK_OK);
    assert_int_equal(count_entries(), 2);
}

/* --- damage ------------------------------------------------------------------
 */

static off_t size_of(const char *path)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static char verify_lines[4096];

static void take_line(void *arg, const char *line)
{
    (void)arg;
    strncat(verify_lines, line,
            sizeof(verify_lines) - strlen(verify_lines) - 2);
    strcat(verify_lines, "\n");
}

static enum merak_status verify(const char *path, struct merak_error *err)
{
    verify_lines[0] = '\0';
    return merak_ckpt_verify(path, take_line, NULL, err);
}

static void a_flipped_byte_is_named_and_never_loaded(void **state)
{
    static const char *const files[] = {"COMMITTED", "manifest.json",
                                        "shard-00000.h5", "shard-00001.h5",
                                        "master.h5"};
    const struct world_layout two = {2, 1, 1, false};
    const int tries = 23;
    char ckpt_dir[160], path[256];
    struct merak_error err;

    (void)state;
    assert_int_equal(world_save(dir, &two, 20, 2, &err), MERAK_OK);
    snprintf(ckpt_dir, sizeof(ckpt_dir), "%s/step-00000020", dir);
    assert_int_equal(verify(ckpt_dir, &err), MERAK_OK);
    assert_string_equal(verify_lines, "");
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        snprintf(path, sizeof(path), "%s/%s", ckpt_dir, files[i]);
        for (int k = 0; k < tries; k++) {
            off_t at = (size_of(path) - 1) * k / (tries - 1);

            world_flip(path, at);
            assert_int_equal(verify(ckpt_dir, &err), MERAK_ERR_CORRUPT);
            if (strstr(verify_lines, files[i]) == NULL)
                fail_msg("byte %jd of %s: %s", (intmax_t)at, files[i],
                         verify_lines);
            /* The master is for people; resume does not read it. */
            if (strcmp(files[i], "master.h5") != 0)
                assert_int_equal(world_check(dir, &two, &err), -1);
            world_flip(path, at);
        }
    }
    assert_int_equal(verify(ckpt_dir, &err), MERAK_OK);
    assert_int_equal(world_check(dir, &two, &err), 20);
}

static void verify_names_the_tensor_that_is_hit(void **state)
{
    char ckpt_dir[160], path[256];
    float want = world_value("adam_v/big", 5000, 20), got;
    struct merak_error err;
    off_t at = 0;
    FILE *file;

    (void)state;
    assert_int_equal(world_save_here(dir, 20, 2, &err), MERAK_OK);
    snprintf(ckpt_dir, sizeof(ckpt_dir), "%s/step-00000020", dir);
    snprintf(path, sizeof(path), "%s/shard-00000.h5", ckpt_dir);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fread(&got, sizeof(got), 1, file) == 1 && got != want)
        at += (off_t)sizeof(got);
    fclose(file);
    world_flip(path, at + 1);
    assert_int_equal(verify(ckpt_dir, &err), MERAK_ERR_CORRUPT);
    assert_non_null(
        strstr(verify_lines, "shard-00000.h5: tensor adam_v/big is damaged\n"));
    assert_null(strstr(verify_lines, "param/"));
}

static void a_damaged_one_is_named_and_the_one_before_is_loaded(void **state)
{
    const struct world_layout one = {1, 1, 1, false};
    struct merak_error err;
    char path[256];

    (void)state;
    assert_int_equal(world_save_here(dir, 10, 2, &err), MERAK_OK);
    assert_int_equal(world_save_here(dir, 20, 2, &err), MERAK_OK);
    snprintf(path, sizeof(path), "%s/step-00000020/shard-00000.h5", dir);
    assert_int_equal(truncate(path, size_of(path) - 1), 0);
    assert_int_equal(world_check(dir, &one, &err), 10);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, "step-00000020 skipped: "
                                         "shard-00000.h5 has"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(world_check(dir, &one, &err), 10);
    assert_non_null(strstr(last_warning, "shard-00000.h5 is missing"));
    snprintf(path, sizeof(path), "%s/step-00000020", dir);
    assert_int_equal(world_check(path, &one, &err), -1);
    assert_int_equal(err.status, MERAK_ERR_CORRUPT);
    assert_int_equal(verify(path, &err), MERAK_ERR_CORRUPT);
    assert_non_null(strstr(verify_lines, "shard-00000.h5 is missing"));
}

static void all_damaged_is_not_the_same_as_none(void **state)
{
    struct merak_ckpt *ckpt;
    struct merak_error err;
    char path[256];

    (void)state;
    assert_int_equal(merak_ckpt_open(dir, &ckpt, &err), MERAK_ERR_NOT_FOUND);
    assert_int_equal(world_save_here(dir, 10, 2, &err), MERAK_OK);
    snprintf(path, sizeof(path), "%s/step-00000010/COMMITTED", dir);
    world_flip(path, 0);
    assert_int_equal(merak_ckpt_open(dir, &ckpt, &err), MERAK_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "step-00000010: COMMITTED is damaged"));
    snprintf(path, sizeof(path), "%s/none", dir);
    assert_int_equal(merak_ckpt_open(path, &ckpt, &err), MERAK_ERR_NOT_FOUND);
}

/* --- bad input
 * ---------------------------------------------------------------- */

/* Two pieces of a [4, 6] tensor, rows [0, a) and [b, 4). */
static enum merak_status save_rows(size_t a, size_t b, struct merak_error *err)
{
    static float data[24];
    const struct world_layout one = {1, 1, 1, false};
    struct merak_ckpt_state st = world_state(&one, 5);
    struct merak_ckpt_piece piece[2] = {
        {"param/w", {2, {4, 6}}, {2, {4, 6}, {0, 0}, {a, 6}}, 0, a * 6, data},
        {"param/w",
         {2, {4, 6}},
         {2, {4, 6}, {b, 0}, {4 - b, 6}},
         0,
         (4 - b) * 6,
         data}};

    return merak_ckpt_save(dir, &st, piece, 2, keep_two, NULL, err);
}

static void pieces_must_tile_their_tensor(void **state)
{
    struct merak_error err;

    (void)state;
    assert_int_equal(save_rows(3, 2, &err), MERAK_ERR_PARAM);
    assert_non_null(strstr(err.text, "tensor param/w: elements 0:3,0:6 in "
                                     "shard-00000.h5 and 2:4,0:6 in "
                                     "shard-00000.h5 overlap"));
    assert_int_equal(save_rows(1, 2, &err), MERAK_ERR_PARAM);
    assert_non_null(
        strstr(err.text, "tensor param/w: 6 of its 24 elements are in no"));
    assert_int_equal(count_entries(), 0);
    assert_int_equal(save_rows(2, 2, &err), MERAK_OK);
}

static void wrong_pieces_are_refused(void **state)
{
    static float data[24];
    const struct merak_ckpt_piece good = {
        "param/w", {2, {4, 6}}, {2, {4, 6}, {0, 0}, {4, 6}}, 0, 24, data};
    const struct world_layout one = {1, 1, 1, false};
    struct merak_ckpt_state st = world_state(&one, 5);
    struct merak_ckpt_piece bad[8];
    struct merak_error err;

    (void)state;
    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].name = "";
    bad[1].name = "param//w";
    bad[2].name = "/param/w";
    bad[3].name = "param/./w";
    bad[4].flat_hi = 25;
    bad[5].box.len[1] = 7;
    bad[6].box.lo[0] = 1;
    bad[7].data = NULL;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(
            merak_ckpt_save(dir, &st, &bad[i], 1, keep_two, NULL, &err),
            MERAK_ERR_PARAM);
        assert_int_equal(count_entries(), 0);
    }
    assert_int_equal(merak_ckpt_save(dir, &st, &good, 1, keep_two, NULL, &err),
                     MERAK_OK);
}

static void another_model_is_a_mismatch(void **state)
{
    static float data[64];
    struct merak_ckpt_piece piece = {
        "param/wte", {2, {38, 12}}, {2, {38, 12}, {0, 0}, {1, 12}}, 0,
        12,          data};
    struct merak_ckpt *ckpt;
    struct merak_error err;

    (void)state;
    assert_int_equal(world_save_here(dir, 5, 2, &err), MERAK_OK);
    assert_int_equal(merak_ckpt_open(dir, &ckpt, &err), MERAK_OK);
    assert_int_equal(merak_ckpt_read(ckpt, &piece, &err), MERAK_ERR_MISMATCH);
    assert_non_null(strstr(err.text, "tensor param/wte is [37, 12] in "));
    assert_non_null(strstr(err.text, "and [38, 12] here"));
    piece.name = "param/none";
    assert_int_equal(merak_ckpt_read(ckpt, &piece, &err), MERAK_ERR_MISMATCH);
    assert_non_null(strstr(err.text, "no tensor param/none"));
    merak_ckpt_close(ckpt);
}

static void a_failure_of_one_rank_is_returned_by_all(void **state)
{
    const struct world_layout two = {1, 1, 2, true};
    struct merak_error err;
    char path[256];

    (void)state;
    assert_int_equal(world_save(dir, &two, 10, 2, &err), MERAK_OK);
    /* A directory that cannot be made fails on rank 0, returned by all. */
    snprintf(path, sizeof(path), "%s/LATEST", dir);
    assert_int_equal(world_save(path, &two, 20, 2, &err), MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "LATEST is not a directory"));
    assert_int_equal(world_check(dir, &two, &err), 10);
}

int main(void)
{
#define CKPT_TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        CKPT_TEST(any_layout_reads_what_any_other_wrote),
        CKPT_TEST(the_state_comes_back),
        CKPT_TEST(older_checkpoints_go_when_enough_are_kept),
        CKPT_TEST(fewer_than_two_are_never_kept),
        CKPT_TEST(a_step_saved_again_replaces_the_first),
        CKPT_TEST(one_saved_after_going_back_stays),
        CKPT_TEST(multiples_of_a_step_stay),
        CKPT_TEST(later_ones_neither_go_nor_count),
        CKPT_TEST(debris_of_dead_saves_is_removed),
        CKPT_TEST(a_flipped_byte_is_named_and_never_loaded),
        CKPT_TEST(verify_names_the_tensor_that_is_hit),
        CKPT_TEST(a_damaged_one_is_named_and_the_one_before_is_loaded),
        CKPT_TEST(all_damaged_is_not_the_same_as_none),
        CKPT_TEST(pieces_must_tile_their_tensor),
        CKPT_TEST(wrong_pieces_are_refused),
        CKPT_TEST(another_model_is_a_mismatch),
        CKPT_TEST(a_failure_of_one_rank_is_returned_by_all),
    };

    return cmocka_run_group_tests_name("ckpt", tests, NULL, NULL);
}
