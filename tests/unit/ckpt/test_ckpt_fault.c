/* SPDX-License-Identifier: Apache-2.0 */
/* test_ckpt_fault.c - a save is killed at each of its calls, and each of them
 * fails
 *
 * The calls by which a save changes the disk, one after the other, of one rank
 * and of two, waited for and beside training: some of them, or all with
 * MERAK_TEST_ALL_CALLS=1.
 */
#include "config.h"

#include "unit/near.h"

#include "unit/ckpt/ckpt_world.h"
#include "unit/ckpt/fault_layer.h"
#include "unit/quiet.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct world_layout one = {1, 1, 1, false};
static const struct world_layout two = {1, 1, 2, true};
static char dir[128];

static int make_dir(void **state)
{
    (void)state;
    world_make_dir(dir, sizeof(dir));
    quiet_logs();
    return 0;
}

static int make_dir_async(void **state)
{
    world_async = true;
    return make_dir(state);
}

static int make_dir_node(void **state)
{
    world_async = world_one_node = true;
    return make_dir(state);
}

static int remove_dir(void **state)
{
    (void)state;
    world_async = world_one_node = false;
    fault_disarm();
    world_remove_dir(dir);
    return 0;
}

/* What loads must be sound to the last byte; its step, or -1. */
static int64_t load(struct merak_error *err)
{
    struct merak_ckpt *ckpt;
    char found[256] = "";

    if (merak_ckpt_open(dir, &ckpt, err) == MERAK_OK) {
        snprintf(found, sizeof(found), "%s", merak_ckpt_path(ckpt));
        merak_ckpt_close(ckpt);
    }
    if (found[0] == '\0' ||
        merak_ckpt_verify(found, NULL, NULL, err) != MERAK_OK)
        return -1;
    return world_check(dir, &one, err);
}

/* Calls of a save that removes an older checkpoint, as most do. */
static long begin(const struct world_layout *layout)
{
    struct merak_error err;

    for (uint64_t step = 1; step <= 2; step++)
        assert_int_equal(world_save(dir, layout, step, 2, &err), MERAK_OK);
    fault_arm(dir, NULL, 0, 0);
    assert_int_equal(world_save(dir, layout, 3, 2, &err), MERAK_OK);
    fault_disarm();
    return fault_calls();
}

/* --- kill -------------------------------------------------------------------
 */

static void save_until_killed(const struct world_layout *layout, uint64_t step)
{
    struct merak_error err;

    setpgid(0, 0);
    _exit(world_save(dir, layout, step, 2, &err) == MERAK_OK ? 0 : 1);
}

static void kill_at(const struct world_layout *layout, int64_t *step, long at)
{
    struct merak_error err = {.status = MERAK_OK};
    int64_t got;
    int status;
    pid_t pid;

    fault_arm(dir, NULL, at, FAULT_KILL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        save_until_killed(layout, (uint64_t)*step + 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    fault_disarm();
    if (WIFSIGNALED(status) != fault_struck() ||
        (WIFEXITED(status) && WEXITSTATUS(status) != 0))
        fail_msg("call %ld: status %x, struck %d", at, status, fault_struck());
    got = load(&err);
    if (got != *step + 1 && (!fault_struck() || got != *step))
        fail_msg("killed at call %ld: got step %lld after %lld: %s", at,
                 (long long)got, (long long)*step, err.text);
    *step = got;
}

/* Every so-manyth call is tried, other ones by each test: all take a minute. */
static long stride(void)
{
    return getenv("MERAK_TEST_ALL_CALLS") != NULL ? 1 : 12;
}

static long first_call(void)
{
    static long turn;

    return 1 + 5 * turn++ % stride();
}

static void kill_at_each(const struct world_layout *layout)
{
    long n = begin(layout), tried = 0;
    int64_t step = 3, first = step;

    for (long at = first_call(); at <= n; at += stride(), tried++)
        kill_at(layout, &step, at);
    print_message("# killed at %ld of %ld calls\n", tried, n);
    assert_true(n > 40);
    /* some kills come too late to cost the save, most do not */
    assert_true(step >= first && step <= first + tried / 2);
}

static void a_kill_at_any_call_leaves_the_last_committed(void **state)
{
    (void)state;
    kill_at_each(&one);
}

static void of_two_ranks_as_well(void **state)
{
    (void)state;
    kill_at_each(&two);
}

/* --- failure ----------------------------------------------------------------
 */

/* Does the error say what is wrong, and where? */
static bool names_it(const struct merak_error *err, int with)
{
    return strstr(err->text, dir) != NULL &&
           (strstr(err->text, strerror(with)) != NULL ||
            (with == ENOSPC && strstr(err->text, "no space left") != NULL));
}

static void fail_at(const struct world_layout *layout, int64_t *step, long at,
                    int with)
{
    struct merak_error err = {.status = MERAK_OK}, why = {.status = MERAK_OK};
    enum merak_status rc;
    int64_t got;

    fault_arm(dir, NULL, at, with);
    rc = world_save(dir, layout, (uint64_t)*step + 1, 2, &err);
    fault_disarm();
    got = load(&why);
    /* What fails behind the commit, or only cleans up, does not fail the
     * save. */
    if (got != *step + (rc == MERAK_OK))
        fail_msg("call %ld, %s: status %d, got step %lld after %lld: %s; %s",
                 at, strerror(with), rc, (long long)got, (long long)*step,
                 err.text, why.text);
    if (rc != MERAK_OK && !names_it(&err, with))
        fail_msg("call %ld, %s: %s", at, strerror(with), err.text);
    if (rc != MERAK_OK && with != EIO && rc != MERAK_ERR_NOSPACE)
        fail_msg("call %ld, %s: status %d", at, strerror(with), rc);
    *step = got;
}

static void fail_at_each(const struct world_layout *layout, int with)
{
    long n = begin(layout), tried = 0;
    int64_t step = 3, first = step;
    struct merak_error err;

    for (long at = first_call(); at <= n; at += stride(), tried++)
        fail_at(layout, &step, at, with);
    print_message("# failed at %ld of %ld calls\n", tried, n);
    assert_true(step >= first && step <= first + tried / 2);
    /* and nothing is left that would be in the way */
    assert_int_equal(world_save(dir, layout, (uint64_t)step + 1, 2, &err),
                     MERAK_OK);
    assert_int_equal(load(&err), step + 1);
}

static void no_space_at_any_call_costs_only_the_save(void **state)
{
    (void)state;
    fail_at_each(&one, ENOSPC);
}

static void a_bad_disk_at_any_call_costs_only_the_save(void **state)
{
    (void)state;
    fail_at_each(&one, EIO);
}

static void a_quota_at_any_call_costs_only_the_save(void **state)
{
    (void)state;
    fail_at_each(&two, EDQUOT);
}

int main(void)
{
#define FAULT_TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
#define FAULT_TEST_ASYNC(f)                               \
    {                                                     \
        "async: " #f, f, make_dir_async, remove_dir, NULL \
    }
#define FAULT_TEST_NODE(f)                              \
    {                                                   \
        "node: " #f, f, make_dir_node, remove_dir, NULL \
    }
    const struct CMUnitTest tests[] = {
        FAULT_TEST(a_kill_at_any_call_leaves_the_last_committed),
        FAULT_TEST(of_two_ranks_as_well),
        FAULT_TEST(no_space_at_any_call_costs_only_the_save),
        FAULT_TEST(a_bad_disk_at_any_call_costs_only_the_save),
        FAULT_TEST(a_quota_at_any_call_costs_only_the_save),
        FAULT_TEST_ASYNC(a_kill_at_any_call_leaves_the_last_committed),
        FAULT_TEST_ASYNC(of_two_ranks_as_well),
        FAULT_TEST_ASYNC(no_space_at_any_call_costs_only_the_save),
        FAULT_TEST_ASYNC(a_bad_disk_at_any_call_costs_only_the_save),
        FAULT_TEST_ASYNC(a_quota_at_any_call_costs_only_the_save),
        FAULT_TEST_NODE(of_two_ranks_as_well),
        FAULT_TEST_NODE(a_quota_at_any_call_costs_only_the_save),
    };

    /* Thousands of small files, and what is lost is not what a disk would
     * lose. */
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return cmocka_run_group_tests_name("ckpt_fault", tests, NULL, NULL);
}
