/* SPDX-License-Identifier: Apache-2.0 */
/* test_owner.c - one run at a time has a directory, and the dead give it up */
#include "config.h"

#include "unit/near.h"

#include "unit/ckpt/ckpt_world.h"

#include "io/ckpt/owner.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[128], path[160];

static int make_dir(void **state)
{
    (void)state;
    world_make_dir(dir, sizeof(dir));
    snprintf(path, sizeof(path), "%s/OWNER", dir);
    setenv("SLURM_CLUSTER_NAME", "c", 1);
    setenv("SLURM_JOB_ID", "17", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_RESTART_COUNT", "1", 1);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    world_remove_dir(dir);
    return 0;
}

static struct merak_ckpt_owner *create(void)
{
    struct merak_ckpt_owner *owner = NULL;
    struct merak_error err;

    assert_int_equal(merak_ckpt_owner_create(dir, &owner, &err), MERAK_OK);
    return owner;
}

static void claims(struct merak_ckpt_owner *owner, enum merak_status want,
                   const char *text)
{
    struct merak_error err = {.status = MERAK_OK};
    enum merak_status rc = merak_ckpt_owner_claim(owner, &err);

    if (rc != want || strstr(err.text, text) == NULL)
        fail_msg("status %d, \"%s\"; expected %d, \"%s\"", rc, err.text, want,
                 text);
}

static bool exists(const char *name)
{
    return access(name, F_OK) == 0;
}

/* A record as another process would write it: ours, with some fields changed;
 * touched so many seconds ago. */
static void plant(const char *changes, int age_s)
{
    struct merak_ckpt_owner *owner = create();
    const struct timespec times[2] = {{0, UTIME_OMIT}, {time(NULL) - age_s, 0}};
    json_t *record, *other = json_loads(changes, 0, NULL);

    assert_non_null(other);
    claims(owner, MERAK_OK, "");
    record = json_load_file(path, 0, NULL);
    assert_non_null(record);
    merak_ckpt_owner_destroy(owner);
    json_object_update(record, other);
    assert_int_equal(json_dump_file(record, path, JSON_COMPACT), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    json_decref(other);
    json_decref(record);
}

#define ELSEWHERE "\"host\": \"n9\", \"boot\": \"another\", \"pid\": 4711"

static void a_directory_has_one_owner_until_it_ends(void **state)
{
    struct merak_ckpt_owner *first = create(), *second = create();
    struct merak_error err;
    char text[64];

    (void)state;
    claims(first, MERAK_OK, "");
    snprintf(text, sizeof(text), "in use by process %d on ", (int)getpid());
    claims(second, MERAK_ERR_CONFIG, text);
    claims(second, MERAK_ERR_CONFIG, "(job 17.0)");
    assert_int_equal(merak_ckpt_owner_probe(dir, 3, &err), MERAK_OK);
    assert_int_equal(merak_ckpt_owner_check(first, &err), MERAK_OK);
    merak_ckpt_owner_destroy(first);
    assert_false(exists(path));
    assert_int_equal(merak_ckpt_owner_probe(dir, 3, &err), MERAK_ERR_CONFIG);
    claims(second, MERAK_OK, "");
    merak_ckpt_owner_destroy(second);
}

static void one_that_was_refused_leaves_the_record(void **state)
{
    struct merak_ckpt_owner *first = create(), *second = create();
    struct merak_error err;

    (void)state;
    claims(first, MERAK_OK, "");
    claims(second, MERAK_ERR_CONFIG, "in use");
    merak_ckpt_owner_destroy(second);
    assert_int_equal(merak_ckpt_owner_check(first, &err), MERAK_OK);
    merak_ckpt_owner_destroy(first);
}

static void a_dead_process_gives_it_up(void **state)
{
    struct merak_ckpt_owner *owner = create();
    pid_t pid = fork();
    int status;

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        claims(create(), MERAK_OK, "");
        raise(SIGKILL);
    }
    /* A zombie is as dead. */
    assert_int_equal(waitid(P_PID, (id_t)pid, NULL, WEXITED | WNOWAIT), 0);
    assert_true(exists(path));
    claims(owner, MERAK_OK, "");
    assert_int_equal(waitpid(pid, &status, 0), pid);
    merak_ckpt_owner_destroy(owner);
}

static void a_number_that_went_to_another_process_is_seen(void **state)
{
    struct merak_ckpt_owner *owner = create();

    (void)state;
    plant("{\"started\": 1}", 0);
    claims(owner, MERAK_OK, "");
    merak_ckpt_owner_destroy(owner);
}

static void a_restarted_job_takes_over_from_itself(void **state)
{
    struct merak_ckpt_owner *owner = create();

    (void)state;
    plant("{" ELSEWHERE ", \"restart\": 0}", 0);
    claims(owner, MERAK_OK, "");
    merak_ckpt_owner_destroy(owner);
    /* Another cluster's job of that number is another. */
    owner = create();
    plant("{" ELSEWHERE ", \"restart\": 0, \"cluster\": \"d\"}", 0);
    claims(owner, MERAK_IN_PROGRESS, "process 4711 on n9 (job 17.0)");
    merak_ckpt_owner_destroy(owner);
}

/* Same job and restart: another step of it, say. */
static void of_another_machine_the_time_tells(void **state)
{
    struct merak_ckpt_owner *owner = create();
    const struct timespec now[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};

    (void)state;
    plant("{" ELSEWHERE "}", 300);
    claims(owner, MERAK_OK, "");
    merak_ckpt_owner_destroy(owner);

    owner = create();
    plant("{" ELSEWHERE "}", 5);
    claims(owner, MERAK_IN_PROGRESS, "n9");
    claims(owner, MERAK_IN_PROGRESS, "n9");
    assert_int_equal(utimensat(AT_FDCWD, path, now, 0), 0);
    claims(owner, MERAK_ERR_CONFIG, "in use by process 4711 on n9");
    merak_ckpt_owner_destroy(owner);
    assert_true(exists(path));
}

/* As after a disk that was full. */
static void a_record_that_says_nothing_goes_by_its_time(void **state)
{
    struct merak_ckpt_owner *owner = create();

    (void)state;
    plant("{}", 0);
    assert_int_equal(truncate(path, 0), 0);
    claims(owner, MERAK_IN_PROGRESS, "cannot be read");
    merak_ckpt_owner_destroy(owner);
    owner = create();
    utimensat(AT_FDCWD, path,
              (const struct timespec[2]){{0, UTIME_OMIT}, {1000, 0}}, 0);
    claims(owner, MERAK_OK, "");
    merak_ckpt_owner_destroy(owner);
}

static void who_lost_it_finds_out_and_leaves_it_alone(void **state)
{
    struct merak_ckpt_owner *owner = create();
    struct merak_error err;
    json_t *record;

    (void)state;
    claims(owner, MERAK_OK, "");
    record = json_load_file(path, 0, NULL);
    json_object_set_new(record, "host", json_string("n3"));
    json_dump_file(record, path, JSON_COMPACT);
    json_decref(record);
    assert_int_equal(merak_ckpt_owner_check(owner, &err), MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "was taken over by process "));
    assert_non_null(strstr(err.text, " on n3 "));
    merak_ckpt_owner_destroy(owner);
    assert_true(exists(path));
}

int main(void)
{
#define OWNER_TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        OWNER_TEST(a_directory_has_one_owner_until_it_ends),
        OWNER_TEST(one_that_was_refused_leaves_the_record),
        OWNER_TEST(a_dead_process_gives_it_up),
        OWNER_TEST(a_number_that_went_to_another_process_is_seen),
        OWNER_TEST(a_restarted_job_takes_over_from_itself),
        OWNER_TEST(of_another_machine_the_time_tells),
        OWNER_TEST(a_record_that_says_nothing_goes_by_its_time),
        OWNER_TEST(who_lost_it_finds_out_and_leaves_it_alone),
    };

    return cmocka_run_group_tests_name("owner", tests, NULL, NULL);
}
