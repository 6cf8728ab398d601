/* SPDX-License-Identifier: Apache-2.0 */
/* test_slurmd.c - a node's slurmd that ends, restarts, or cannot be told from
 * others; a script of that name plays it
 */
#include "config.h"

#include "unit/scratch_dir.h"

#include "runtime/boot/slurmd.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define S INT64_C(1000000000)

static char node[64];

/* Does the process have the arguments of a slurmd yet?  They are there later
 * than its name. */
static bool has_begun(pid_t pid)
{
    char path[64], args[256];
    FILE *f;
    size_t n;

    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    f = fopen(path, "re");
    assert_non_null(f);
    n = fread(args, 1, sizeof(args), f);
    fclose(f);
    return n > 0 && memmem(args, n, "\0-N", sizeof("\0-N")) != NULL;
}

/* It ends with the test, and does not hold the pipe that reads the output,
 * whatever becomes of the test. */
static pid_t start_slurmd(const char *name)
{
    const char *script = scratch_path("slurmd");
    pid_t pid = fork();

    if (pid == 0) {
        int none = open("/dev/null", O_RDWR);

        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || dup2(none, 1) < 0 ||
            dup2(none, 2) < 0)
            _exit(126);
        execl(script, script, "-D", "-N", name, (char *)NULL);
        _exit(127);
    }
    while (!has_begun(pid))
        usleep(1000);
    return pid;
}

static void end_slurmd(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void its_end_is_news_after_a_while(void **state)
{
    pid_t pid = start_slurmd(node);
    struct merak_slurmd w;

    (void)state;
    merak_slurmd_watch(&w, node);
    assert_string_equal(w.node, node);
    assert_int_equal(w.pid, pid);
    assert_int_equal(merak_slurmd_check(&w, 1 * S), MERAK_SLURMD_NO_NEWS);
    end_slurmd(pid);
    assert_int_equal(merak_slurmd_check(&w, 5 * S), MERAK_SLURMD_NO_NEWS);
    assert_int_equal(merak_slurmd_check(&w, 14 * S), MERAK_SLURMD_NO_NEWS);
    assert_int_equal(merak_slurmd_check(&w, 17 * S), MERAK_SLURMD_GONE);
    assert_int_equal(merak_slurmd_check(&w, 99 * S), MERAK_SLURMD_NO_NEWS);
    pid = start_slurmd(node);
    assert_int_equal(merak_slurmd_check(&w, 999 * S), MERAK_SLURMD_BACK);
    assert_int_equal(merak_slurmd_check(&w, 1999 * S), MERAK_SLURMD_NO_NEWS);
    end_slurmd(pid);
}

static void a_restart_is_no_news(void **state)
{
    pid_t pid = start_slurmd(node);
    struct merak_slurmd w;

    (void)state;
    merak_slurmd_watch(&w, node);
    end_slurmd(pid);
    assert_int_equal(merak_slurmd_check(&w, 1 * S), MERAK_SLURMD_NO_NEWS);
    pid = start_slurmd(node);
    for (int s = 2; s < 60; s++)
        assert_int_equal(merak_slurmd_check(&w, s * S), MERAK_SLURMD_NO_NEWS);
    assert_int_equal(w.pid, pid);
    end_slurmd(pid);
}

static void what_is_unclear_is_not_watched(void **state)
{
    pid_t one = start_slurmd(node), two = start_slurmd(node);
    struct merak_slurmd w;

    (void)state;
    merak_slurmd_watch(&w, node);
    assert_string_equal(w.node, "");
    assert_int_equal(merak_slurmd_check(&w, 1 * S), MERAK_SLURMD_NO_NEWS);
    end_slurmd(one);
    end_slurmd(two);
    assert_int_equal(merak_slurmd_check(&w, 99 * S), MERAK_SLURMD_NO_NEWS);
    merak_slurmd_watch(&w, NULL);
    assert_string_equal(w.node, "");
}

static int make_script(void **state)
{
    static const char script[] = "#!/bin/sh\nkill -STOP $$\n";

    if (scratch_make(state) != 0)
        return -1;
    snprintf(node, sizeof(node), "test%d", (int)getpid());
    scratch_write("slurmd", script, strlen(script));
    return chmod(scratch_path("slurmd"), 0755);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_end_is_news_after_a_while),
        cmocka_unit_test(a_restart_is_no_news),
        cmocka_unit_test(what_is_unclear_is_not_watched),
    };

    return cmocka_run_group_tests(tests, make_script, scratch_remove);
}
