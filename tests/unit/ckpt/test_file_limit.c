/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_limit.c - checkpoints and traces where `ulimit -f` cuts files short
 *
 * Each case is a process of its own that ends by exit(): HDF5 is through with
 * its files there at the latest, and has crashed on one that it could not
 * write.
 */
#include "config.h"

#include "unit/ckpt/own_dir.h"

#include "unit/quiet.h"

#include "io/ckpt/ckpt_impl.h"
#include "io/file.h"
#include "io/h5.h"
#include "io/trace/trace.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_limit(rlim_t bytes)
{
    struct rlimit lim;

    getrlimit(RLIMIT_FSIZE, &lim);
    lim.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &lim);
}

/* NULL: all is as it should be. */
typedef const char *(*case_fn)(rlim_t limit);

static void in_child(case_fn fn, rlim_t limit)
{
    const char *wrong;
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGXFSZ, SIG_IGN);
        quiet_logs();
        wrong = fn(limit);
        if (wrong != NULL)
            fprintf(stderr, "limit %llu: %s\n", (unsigned long long)limit,
                    wrong);
        exit(wrong != NULL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("limit %llu: status %x", (unsigned long long)limit, status);
}

static bool tells_limit(enum merak_status rc, const struct merak_error *err)
{
    return rc == MERAK_ERR_IO && strstr(err->text, "File too large") != NULL &&
           strstr(err->text, "ulimit -f") != NULL;
}

static const char *within(const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

/* --- checkpoints ------------------------------------------------------------
 */

static const char *save(rlim_t limit)
{
    struct merak_error err = {.status = MERAK_OK};
    enum merak_status rc;

    set_limit(limit);
    rc = world_save_here(dir, 1, 0, &err);
    set_limit(RLIM_INFINITY);
    if (!tells_limit(rc, &err))
        return rc == MERAK_OK ? "saved" : "another failure than the limit";
    if (access(within("step-00000001.tmp"), F_OK) == 0 ||
        access(within("step-00000001"), F_OK) == 0)
        return "something is left of the save";
    return NULL;
}

static void a_save_fails_and_leaves_nothing(void **state)
{
    static const rlim_t limits[] = {1, 4096, 5000, 65536, 200000, 250000};
    static const struct world_layout one = {1, 1, 1, false};
    struct merak_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
        in_child(save, limits[i]);
    assert_int_equal(world_save_here(dir, 1, 0, &err), MERAK_OK);
    assert_int_equal(world_check(dir, &one, &err), 1);
}

/* In the process that a limited save was in. */
static const char *save_again(rlim_t limit)
{
    static const struct world_layout one = {1, 1, 1, false};
    struct merak_error err;
    const char *wrong = save(limit);

    if (wrong != NULL)
        return wrong;
    return world_save_here(dir, 1, 0, &err) == MERAK_OK &&
                   world_check(dir, &one, &err) == 1
               ? NULL
               : "the next save is not sound";
}

static void the_next_save_of_the_process_is_sound(void **state)
{
    (void)state;
    in_child(save_again, 100000);
}

static const char *repair(rlim_t limit)
{
    enum merak_ckpt_repair found = MERAK_CKPT_REPAIR_SOUND;
    char ckpt[256], master[300];
    struct merak_error err;
    enum merak_status rc;

    snprintf(ckpt, sizeof(ckpt), "%s/step-00000001", dir);
    snprintf(master, sizeof(master), "%s/master.h5", ckpt);
    set_limit(limit);
    rc = merak_ckpt_repair_master(ckpt, &found, &err);
    set_limit(RLIM_INFINITY);
    if (!tells_limit(rc, &err))
        return "repaired, or another failure than the limit";
    if (access(within("step-00000001/master.h5.new"), F_OK) == 0)
        return "half a master is left";
    return merak_ckpt_repair_master(ckpt, &found, &err) == MERAK_OK &&
                   found == MERAK_CKPT_REPAIR_SAME
               ? NULL
               : "the master could not be repaired afterwards";
}

static void a_master_is_not_repaired_by_half(void **state)
{
    struct merak_error err;

    (void)state;
    for (rlim_t limit = 1; limit < 16384; limit = limit * 100 + 500) {
        assert_int_equal(world_save_here(dir, 1, 0, &err), MERAK_OK);
        assert_int_equal(unlink(within("step-00000001/master.h5")), 0);
        in_child(repair, limit);
    }
}

/* --- traces -----------------------------------------------------------------
 */

/* Some 40 kB a step. */
static const char *trace_until_full(rlim_t limit)
{
    static struct merak_trace_record record[800];
    static const char *const names[] = {"work"};
    const struct merak_trace_info info = {.ranks = 1,
                                          .stages = 1,
                                          .tp = 1,
                                          .dp = 1,
                                          .microbatches = 1,
                                          .n_instrs = 1,
                                          .instr_name = names};
    struct merak_trace *trace = NULL;
    struct merak_error err;
    enum merak_status rc;
    int steps = 0;

    set_limit(limit);
    rc = merak_trace_create(dir, &info, 1, &trace, &err);
    for (; rc == MERAK_OK && steps < 1000; steps++) {
        for (int i = 0; i < 800; i++)
            record[i].step = steps;
        rc = merak_trace_step(trace, record, 800, &err);
    }
    if (!tells_limit(rc, &err))
        return "no failure, or another than the limit";
    if (trace != NULL && steps < 10)
        return "nothing was traced";
    rc = merak_trace_close(trace, &err);
    return trace == NULL || rc == MERAK_OK ? NULL : "not closed";
}

static void a_trace_ends_before_its_file_would_be_cut(void **state)
{
    (void)state;
    in_child(trace_until_full, 1000);
    in_child(trace_until_full, 200000);
    in_child(trace_until_full, 5000000);
}

/* --- the image --------------------------------------------------------------
 */

/* Metadata of many pages, small raw data that is written, and large that is
 * not. */
static bool make_contents(hid_t file, void *arg)
{
    const hsize_t few = 10, many = 1 << 20;
    hid_t small = H5Screate_simple(1, &few, NULL);
    hid_t large = H5Screate_simple(1, &many, NULL);
    bool ok = small >= 0 && large >= 0;
    char name[64];

    (void)arg;
    for (int i = 0; i < 300 && ok; i++) {
        float data[10] = {(float)i};
        hid_t set;

        snprintf(name, sizeof(name), "layer/%d/weight", i);
        set = merak_h5_dataset(file, name, H5T_IEEE_F32LE,
                               i % 100 == 0 ? large : small);
        ok = set >= 0 && merak_h5_put_text(set, "tensor", name) &&
             (i % 100 == 0 || H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL,
                                       H5P_DEFAULT, data) >= 0);
        merak_h5_drop(set);
    }
    merak_h5_drop(small);
    merak_h5_drop(large);
    return ok;
}

static char *read_all(const char *path, size_t *bytes_p)
{
    FILE *file = fopen(path, "r");
    char *text;

    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes_p = (size_t)ftell(file);
    rewind(file);
    text = malloc(*bytes_p + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *bytes_p, file), *bytes_p);
    fclose(file);
    return text;
}

static void a_file_laid_out_in_memory_is_what_hdf5_writes(void **state)
{
    char *own, *theirs;
    struct merak_error err;
    size_t n, bytes;
    hid_t file;

    (void)state;
    if (merak_h5_write(within("own.h5"), make_contents, NULL, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    own = read_all(within("own.h5"), &n);
    file = merak_h5_create(within("theirs.h5"));
    assert_true(file >= 0 && make_contents(file, NULL));
    assert_true(H5Fclose(file) >= 0);
    theirs = read_all(within("theirs.h5"), &bytes);
    assert_in_range(n, 3 * (4 << 20), 16 << 20);
    assert_int_equal(n, bytes);
    assert_int_equal(memcmp(own, theirs, n), 0);
    free(own);
    free(theirs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OWN_DIR_TEST(a_file_laid_out_in_memory_is_what_hdf5_writes),
        OWN_DIR_TEST(a_save_fails_and_leaves_nothing),
        OWN_DIR_TEST(the_next_save_of_the_process_is_sound),
        OWN_DIR_TEST(a_master_is_not_repaired_by_half),
        OWN_DIR_TEST(a_trace_ends_before_its_file_would_be_cut),
    };

    /* what is freed is overwritten, that nobody can go on with it */
    (void)mallopt(M_PERTURB, 0xa5);
    return cmocka_run_group_tests_name("file_limit", tests, NULL, NULL);
}
