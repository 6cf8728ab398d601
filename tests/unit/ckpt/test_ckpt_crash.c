/* SPDX-License-Identifier: Apache-2.0 */
/* test_ckpt_crash.c - a save that is killed, loses power or runs out of space
 *
 * Whatever happens in the middle of a save, what was committed before it can
 * be loaded, or what it was committing, whole.
 */
#include "config.h"

#include "unit/near.h"

#include "unit/ckpt/ckpt_disk.h"
#include "unit/ckpt/ckpt_world.h"
#include "unit/quiet.h"

#include "base/open.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <hdf5.h>

static const struct world_layout one = {1, 1, 1, false};
static char dir[128], image[160];

static int make_dir(void **state)
{
    (void)state;
    world_make_dir(dir, sizeof(dir));
    snprintf(image, sizeof(image), "%s.image", dir);
    quiet_logs();
    return 0;
}

/* The same for a save while training goes on. */
static int make_dir_async(void **state)
{
    world_async = true;
    return make_dir(state);
}

static int remove_dir(void **state)
{
    (void)state;
    world_async = false;
    disk_limit("", SIZE_MAX, false);
    disk_free();
    world_remove_dir(dir);
    world_remove_dir(image);
    return 0;
}

/* What loads from path must be sound to the last byte. */
static int64_t load(const char *path, struct merak_error *err)
{
    struct merak_ckpt *ckpt;
    char found[256] = "";

    if (merak_ckpt_open(path, &ckpt, err) == MERAK_OK) {
        snprintf(found, sizeof(found), "%s", merak_ckpt_path(ckpt));
        merak_ckpt_close(ckpt);
    }
    if (found[0] == '\0' ||
        merak_ckpt_verify(found, NULL, NULL, err) != MERAK_OK)
        return -1;
    return world_check(path, &one, err);
}

/* --- power loss
 * ------------------------------------------------------------------- */

static void check_images(int n_ops, int *n_images_p)
{
    struct merak_error err = {.status = MERAK_OK};

    for (int n = 1; n <= n_ops; n++) { /* the first is a mark */
        int64_t done = disk_last_mark(n);

        for (int loss = 0; loss < DISK_LOSSES; loss++) {
            int64_t got;

            if (!disk_image(n, (enum disk_loss)loss, image))
                continue;
            ++*n_images_p;
            got = load(image, &err);
            /* Marks are 100 * (step before) + step being saved; the step
             * itself once saved. */
            if (got < 0 ||
                (done < 100 ? got != done
                            : got != done / 100 && got != done % 100))
                fail_msg("loss %d before operation %d (%s): got %lld, mark "
                         "%lld: %s",
                         loss, n, disk_describe(n), (long long)got,
                         (long long)done, err.text);
        }
    }
}

static void recorded_save(int before, int step)
{
    struct merak_error err;

    disk_mark(100 * before + step);
    if (world_save_here(dir, (uint64_t)step, 2, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    disk_mark(step);
}

/* The second save of 30 goes through step-30.old; the first removes 10. */
static void every_crash_leaves_the_last_committed(void **state)
{
    struct merak_error err;
    int n_ops, n_images = 0;

    (void)state;
    assert_int_equal(world_save_here(dir, 10, 2, &err), MERAK_OK);
    assert_int_equal(world_save_here(dir, 20, 2, &err), MERAK_OK);
    disk_record(dir);
    recorded_save(20, 30);
    recorded_save(30, 30);
    recorded_save(30, 40);
    n_ops = disk_stop();
    check_images(n_ops, &n_images);
    print_message("# %d operations, %d crash images\n", n_ops, n_images);
    assert_true(n_ops > 150 && n_images > n_ops);
}

/* The model of the disk must be able to lose something, or it shows nothing:
 * the same save without its syncs has to fail. */
static void without_syncs_the_images_would_be_bad(void **state)
{
    struct merak_error err;
    int n_ops, bad = 0;

    (void)state;
    assert_int_equal(world_save_here(dir, 20, 2, &err), MERAK_OK);
    disk_record(dir);
    recorded_save(20, 30);
    disk_stop();
    n_ops = disk_forget_syncs();
    for (int n = 1; n <= n_ops; n++) {
        for (int loss = 0; loss < DISK_LOSSES; loss++) {
            if (disk_image(n, (enum disk_loss)loss, image) &&
                disk_last_mark(n) == 30)
                bad += load(image, &err) != 30;
        }
    }
    assert_true(bad > 0);
}

/* --- going back
 * ------------------------------------------------------------------- */

/* Go on from step 10 of the run, whose newest is 30, as who typed that. */
static void go_back(const char *run)
{
    const struct merak_ckpt_state from = world_state(&one, 10);
    char branch[MERAK_CKPT_BRANCH];
    struct merak_error err;
    bool again;

    if (merak_ckpt_branch_at(run, "step-00000010", &again, &err) != MERAK_OK ||
        merak_ckpt_branch_choose(run, !again, &from, branch, &err) !=
            MERAK_OK ||
        merak_ckpt_branch_enter(run, branch, &from, &err) != MERAK_OK)
        fail_msg("%s", err.text);
}

static void read_latest(const char *run, char *line, size_t size)
{
    char path[200];

    snprintf(path, sizeof(path), "%s/LATEST", run);
    merak_first_line(path, line, size);
}

/* After a crash the old branch goes on or the new one; and who goes back once
 * more is on the new one, as is LATEST. */
static void every_crash_while_going_back_leaves_a_branch(void **state)
{
    int n_ops, of_old = 0, of_new = 0;
    struct merak_error err;
    char latest[64];

    (void)state;
    for (uint64_t step = 10; step <= 30; step += 10)
        assert_int_equal(world_save_here(dir, step, 0, &err), MERAK_OK);
    disk_record(dir);
    disk_mark(0);
    go_back(dir);
    disk_mark(10);
    n_ops = disk_stop();
    for (int n = 1; n <= n_ops; n++) {
        for (int loss = 0; loss < DISK_LOSSES; loss++) {
            int64_t got;

            if (!disk_image(n, (enum disk_loss)loss, image))
                continue;
            got = load(image, &err);
            of_old += got == 30;
            of_new += got == 10;
            if (got != 10 && (got != 30 || disk_last_mark(n) == 10))
                fail_msg("loss %d before operation %d (%s): got %lld: %s", loss,
                         n, disk_describe(n), (long long)got, err.text);
            go_back(image);
            read_latest(image, latest, sizeof(latest));
            if (load(image, &err) != 10 || strcmp(latest, "step-00000010") != 0)
                fail_msg("loss %d before operation %d (%s): once more, LATEST "
                         "is %s: %s",
                         loss, n, disk_describe(n), latest, err.text);
        }
    }
    assert_true(of_old > 0 && of_new > 0);
}

/* --- kill
 * -----------------------------------------------------------------------------
 */

static void save_on_and_on(const struct world_layout *layout, uint64_t step,
                           volatile uint64_t *done)
{
    struct merak_error err;

    setpgid(0, 0);
    for (;; step++) {
        if (world_save(dir, layout, step, 2, &err) != MERAK_OK)
            _exit(1);
        *done = step;
    }
}

static void sleep_us(long us)
{
    const struct timespec t = {0, us * 1000};

    nanosleep(&t, NULL);
}

static void twenty_kills_leave_the_last_committed(void **state)
{
    const struct world_layout two = {1, 1, 2, true};
    volatile uint64_t *done = mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct merak_error err = {.status = MERAK_OK};

    (void)state;
    assert_int_equal(world_save(dir, &two, 1, 2, &err), MERAK_OK);
    *done = 1;
    srand((unsigned)time(NULL));
    for (int i = 0; i < 20; i++) {
        uint64_t from = *done;
        pid_t pid = fork();
        int64_t got;

        assert_true(pid >= 0);
        if (pid == 0)
            save_on_and_on(&two, from + 1, done);
        setpgid(pid, pid);
        sleep_us(1000 + rand() % 60000);
        assert_int_equal(kill(-pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        got = load(dir, &err);
        if (got != (int64_t)*done && got != (int64_t)*done + 1)
            fail_msg("kill %d: got %lld after %llu: %s", i, (long long)got,
                     (unsigned long long)*done, err.text);
        *done = (uint64_t)got;
    }
    munmap((void *)done, sizeof(*done));
}

/* --- no space
 * ---------------------------------------------------------------------------
 */

static int count_tmp(void)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    int n = 0;

    assert_non_null(d);
    while ((entry = readdir(d)) != NULL)
        n += strncmp(entry->d_name, "step-", 5) == 0 &&
             strstr(entry->d_name, ".tmp") != NULL;
    closedir(d);
    return n;
}

static void fill_disk(size_t limit, bool reserves)
{
    struct merak_error err;
    enum merak_status rc;

    disk_limit(dir, limit, reserves);
    rc = world_save_here(dir, 20, 0, &err);
    disk_limit("", SIZE_MAX, false);
    if (rc != MERAK_ERR_NOSPACE || strstr(err.text, dir) == NULL ||
        strstr(err.text, "o space left") == NULL)
        fail_msg("with %zu bytes: status %d, %s", limit, rc, err.text);
    if (reserves)
        assert_non_null(strstr(err.text, " bytes needed, "));
    assert_int_equal(count_tmp(), 0);
    assert_int_equal(load(dir, &err), 10);
}

/* With and without a file system that can say so before. */
static void a_full_disk_costs_only_the_save(void **state)
{
    const size_t tries = 40;
    struct merak_error err;
    size_t need;

    (void)state;
    disk_limit(dir, SIZE_MAX - 1, false);
    assert_int_equal(world_save_here(dir, 10, 0, &err), MERAK_OK);
    need = disk_used();
    assert_true(need > 400000);
    for (size_t i = 0; i < tries; i++)
        fill_disk(need * i / tries, false);
    /* From the shard's last metadata on, in small steps. */
    for (size_t left = 200; left < 20000; left += 700)
        fill_disk(need - left, false);
    fill_disk(need / 2, true);
    assert_int_equal(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
    assert_int_equal(world_save_here(dir, 20, 0, &err), MERAK_OK);
    assert_int_equal(load(dir, &err), 20);
}

int main(void)
{
#define CRASH_TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
#define CRASH_TEST_ASYNC(f)                               \
    {                                                     \
        "async: " #f, f, make_dir_async, remove_dir, NULL \
    }
    const struct CMUnitTest tests[] = {
        CRASH_TEST(every_crash_leaves_the_last_committed),
        CRASH_TEST(without_syncs_the_images_would_be_bad),
        CRASH_TEST(every_crash_while_going_back_leaves_a_branch),
        CRASH_TEST(twenty_kills_leave_the_last_committed),
        CRASH_TEST(a_full_disk_costs_only_the_save),
        CRASH_TEST_ASYNC(every_crash_leaves_the_last_committed),
        CRASH_TEST_ASYNC(twenty_kills_leave_the_last_committed),
        CRASH_TEST_ASYNC(a_full_disk_costs_only_the_save),
    };

    /* Thousands of small files, and no disk is needed to lose them. */
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return cmocka_run_group_tests_name("ckpt_crash", tests, NULL, NULL);
}
