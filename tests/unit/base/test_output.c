/* SPDX-License-Identifier: Apache-2.0 */
/* test_output.c - what cannot be written whole leaves what was there */
#include "config.h"

#include "unit/near.h"

#include "base/error.h"
#include "base/output.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = 4096, MORE = 1 << 20 }; /* bytes that fit, and that do not */

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/merak-output-XXXXXX");
    return mkdtemp(dir) == NULL || chdir(dir) != 0;
}

static int drop_dir(void **state)
{
    (void)state;
    return chdir("/") != 0 || rmdir(dir) != 0;
}

/* Write n bytes there; no file may have more than ROOM. */
static enum merak_status write_bytes(const char *path, size_t n,
                                     struct merak_error *err)
{
    struct rlimit usual, small;
    struct merak_output out;
    enum merak_status rc;
    bool fine = true;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small = (struct rlimit){ROOM, usual.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    rc = merak_output_open(&out, path, err);
    if (rc == MERAK_OK) {
        for (size_t i = 0; i < n && fine; i++)
            fine = fputc('n', out.file) != EOF;
        rc = merak_output_close(&out, fine, err);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    return rc;
}

static void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* The first bytes of a file, and how many files there are beside it. */
static void check_file(const char *path, const char *text, int files)
{
    char got[64] = "";
    FILE *file = fopen(path, "r");
    DIR *here = opendir(".");
    int n = -2; /* . and .. */

    assert_non_null(file);
    assert_non_null(here);
    (void)fread(got, 1, strlen(text) + 1, file);
    assert_string_equal(got, text);
    fclose(file);
    while (readdir(here) != NULL)
        n++;
    closedir(here);
    assert_int_equal(n, files);
}

static void what_does_not_fit_leaves_the_earlier(void **state)
{
    struct merak_error err;

    (void)state;
    put_file("plan.json", "earlier");
    assert_int_equal(write_bytes("plan.json", MORE, &err), MERAK_ERR_IO);
    assert_non_null(strstr(err.text, "cannot write plan.json: "));
    check_file("plan.json", "earlier", 1);
    assert_int_equal(unlink("plan.json"), 0);
    /* and nothing where there was nothing */
    assert_int_equal(write_bytes("new.json", MORE, &err), MERAK_ERR_IO);
    assert_int_equal(access("new.json", F_OK), -1);
}

static void what_fits_replaces_the_earlier(void **state)
{
    struct merak_error err;
    struct stat st;

    (void)state;
    put_file("plan.json", "earlier and longer");
    assert_int_equal(chmod("plan.json", 0640), 0);
    assert_int_equal(write_bytes("plan.json", 3, &err), MERAK_OK);
    check_file("plan.json", "nnn", 1);
    assert_int_equal(stat("plan.json", &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(unlink("plan.json"), 0);
}

static void links_and_devices_are_written_in_place(void **state)
{
    struct merak_error err;
    struct stat st;

    (void)state;
    put_file("plan.json", "earlier");
    assert_int_equal(symlink("plan.json", "latest"), 0);
    assert_int_equal(write_bytes("latest", 3, &err), MERAK_OK);
    check_file("plan.json", "nnn", 2);
    assert_int_equal(lstat("latest", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(unlink("latest") | unlink("plan.json"), 0);
    assert_int_equal(write_bytes("/dev/null", 3, &err), MERAK_OK);
    assert_int_equal(write_bytes("/dev/full", 3, &err), MERAK_ERR_NOSPACE);
    assert_int_equal(write_bytes("/nowhere/at/all", 3, &err), MERAK_ERR_IO);
    assert_non_null(strstr(err.text, "cannot write /nowhere/at/all: No such"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_leaves_the_earlier),
        cmocka_unit_test(what_fits_replaces_the_earlier),
        cmocka_unit_test(links_and_devices_are_written_in_place),
    };

    return cmocka_run_group_tests_name("output", tests, make_dir, drop_dir);
}
