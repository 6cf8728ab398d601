/* SPDX-License-Identifier: Apache-2.0 */
/* test_printable.c - what a terminal would obey does not reach it; files that
 * others prepared are not opened; closed descriptors are */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "config.h"

#include "unit/near.h"

#include "base/error.h"
#include "base/log.h"
#include "base/open.h"
#include "base/printable.h"
#include "io/ckpt/durable.h"
#include "partitioner/simulate/svg.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARK "\xef\xbf\xbd" /* U+FFFD */

/* A text, as a screen, a line of an error or a log and a page show it. */
static const struct {
    const char *text, *screen, *line, *page;
} rows[] = {
    {"step 4, |g| 1", "step 4, |g| 1", "step 4, |g| 1", "step 4, |g| 1"},
    {"a\tb\n", "a\tb\n", "a b ", "a\tb\n"},
    {"\x1b]0;x\x07", "\\u001b]0;x\\u0007", "?]0;x?", MARK "]0;x" MARK},
    {"a\rb\x7f", "a\\u000db\\u007f", "a?b?", "a" MARK "b" MARK},
    /* C1: CSI as U+009B, and as the byte that terminals of one byte take */
    {"\xc2\x9b"
     "2J",
     "\\u009b2J", "??2J", MARK MARK "2J"},
    {"\xc2\x80\xc2\xa0", "\\u0080\xc2\xa0", "??\xc2\xa0", MARK MARK "\xc2\xa0"},
    {"\x9b"
     "2J",
     "\\x9b2J", "?2J", MARK "2J"},
    /* characters of two, three and four bytes stay */
    {"\xc3\xa9 \xe2\x96\x88 \xf0\x9f\x98\x80",
     "\xc3\xa9 \xe2\x96\x88 \xf0\x9f\x98\x80",
     "\xc3\xa9 \xe2\x96\x88 \xf0\x9f\x98\x80",
     "\xc3\xa9 \xe2\x96\x88 \xf0\x9f\x98\x80"},
    /* too long a form of ESC and of CSI, half of a pair, beyond the last, cut
     * off */
    {"\xc0\x9b", "\\xc0\\x9b", "??", MARK MARK},
    {"\xe0\x82\x9b", "\\xe0\\x82\\x9b", "???", MARK MARK MARK},
    {"\xed\xa0\x80", "\\xed\\xa0\\x80", "???", MARK MARK MARK},
    {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", "????", MARK MARK MARK MARK},
    {"a\xe2\x96", "a\\xe2\\x96", "a??", "a" MARK MARK},
    {"\xe2\x1b[", "\\xe2\\u001b[", "??[", MARK MARK "["},
};

static void keep_line(void *arg, enum merak_log_level level, const char *module,
                      const char *line)
{
    (void)level;
    (void)module;
    strcpy(arg, line);
}

/* What arrives if the stream's buffer ends after each `every` bytes. */
static void check_screen(const char *text, size_t every, const char *want)
{
    char got[128] = "";
    int end[2];
    FILE *screen;
    ssize_t n;

    assert_int_equal(pipe(end), 0);
    screen = merak_screen_open(end[1]);
    assert_non_null(screen);
    for (size_t i = 0; text[i] != '\0'; i++) {
        assert_int_equal(fputc(text[i], screen), (unsigned char)text[i]);
        if ((i + 1) % every == 0)
            assert_int_equal(fflush(screen), 0);
    }
    assert_int_equal(fclose(screen), 0);
    close(end[1]);
    n = read(end[0], got, sizeof(got) - 1);
    close(end[0]);
    got[n] = '\0';
    assert_string_equal(got, want);
}

static void no_control_character_gets_through(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char line[256], *page = NULL;
        struct merak_error err;
        size_t bytes;
        FILE *out = open_memstream(&page, &bytes);

        for (size_t every = 1; every < 6; every++)
            check_screen(rows[i].text, every, rows[i].screen);
        merak_fail(&err, MERAK_ERR_IO, "%s", rows[i].text);
        assert_string_equal(err.text, rows[i].line);
        merak_log_sink(keep_line, line);
        merak_warn("base", "%s", rows[i].text);
        merak_log_sink(NULL, NULL);
        assert_string_equal(line, rows[i].line);
        merak_svg_text(out, rows[i].text);
        fclose(out);
        assert_string_equal(page, rows[i].page);
        free(page);
    }
}

/* Longer than any buffer between. */
static void long_output_arrives_whole(void **state)
{
    enum { LINES = 20000 };
    FILE *file = tmpfile(), *screen;
    char line[64], want[64];

    (void)state;
    assert_non_null(file);
    screen = merak_screen_open(fileno(file));
    for (int i = 0; i < LINES; i++)
        fprintf(screen, "%d \xe2\x96\x88\x1b[m\n", i);
    assert_int_equal(fclose(screen), 0);
    rewind(file);
    for (int i = 0; i < LINES; i++) {
        snprintf(want, sizeof(want), "%d \xe2\x96\x88\\u001b[m\n", i);
        assert_non_null(fgets(line, sizeof(line), file));
        assert_string_equal(line, want);
    }
    assert_null(fgets(line, sizeof(line), file));
    fclose(file);
    file = fopen("/dev/full", "w");
    screen = merak_screen_open(fileno(file));
    fputs("text", screen);
    assert_int_equal(fclose(screen), EOF);
    fclose(file);
}

/* --- a folder that others can write to --------------------------------------
 */

static char dir[32];

static const char *at(const char *name)
{
    static char path[4][64];
    static int next;

    next = (next + 1) % 4;
    snprintf(path[next], sizeof(path[next]), "%s/%s", dir, name);
    return path[next];
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void assert_holds(const char *name, const char *want)
{
    char text[64] = "";
    FILE *f = fopen(at(name), "r");

    assert_non_null(f);
    assert_true(fread(text, 1, sizeof(text) - 1, f) == strlen(want));
    fclose(f);
    assert_string_equal(text, want);
}

/* Another's file, and what somebody puts in place of a run's. */
static int set_up_folder(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/merak-own-XXXXXX");
    assert_non_null(mkdtemp(dir));
    put("theirs", "theirs");
    assert_int_equal(symlink("theirs", at("link")), 0);
    assert_int_equal(symlink("nothing", at("dangling")), 0);
    assert_int_equal(link(at("theirs"), at("second")), 0);
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    assert_int_equal(mkdir(at("folder"), 0700), 0);
    return 0;
}

static int remove_folder(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", dir);
    return system(command);
}

static void what_others_prepared_is_neither_read_nor_appended_to(void **state)
{
    static const struct {
        const char *name, *why;
    } refused[] = {
        {"link", "a link, not a file of the run itself"},
        {"dangling", "a link, not a file of the run itself"},
        {"second", "a file with a second name, perhaps another's"},
        {"pipe", "a pipe, not a file"},
        {"folder", NULL},
    };
    FILE *f = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        const char *why =
            merak_fopen_own(at(refused[i].name), MERAK_ANY_OWNER, &f);

        assert_non_null(why);
        if (refused[i].why != NULL)
            assert_string_equal(why, refused[i].why);
        why = merak_fopen_append(at(refused[i].name), &f);
        assert_non_null(why);
        if (refused[i].why != NULL)
            assert_string_equal(why, refused[i].why);
    }
    assert_holds("theirs", "theirs");
    assert_int_equal(access(at("nothing"), F_OK), -1);
    put("mine", "mine");
    assert_string_equal(merak_fopen_own(at("mine"), getuid() + 1, &f),
                        "another user's, not of who started the run");
    assert_null(merak_fopen_own(at("mine"), getuid(), &f));
    fclose(f);
    assert_null(merak_fopen_append(at("mine"), &f));
    fputs(", more", f);
    fclose(f);
    assert_holds("mine", "mine, more");
}

static void a_new_file_takes_the_place_of_what_others_prepared(void **state)
{
    static const char *const names[] = {"link", "dangling", "second", "pipe",
                                        "none"};
    struct stat st;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        FILE *f = NULL;

        assert_null(merak_fopen_new(at(names[i]), &f));
        fputs("new", f);
        fclose(f);
        assert_int_equal(lstat(at(names[i]), &st), 0);
        assert_true(S_ISREG(st.st_mode));
        assert_holds(names[i], "new");
        /* as the files of a save are made */
        assert_int_equal(symlink("theirs", at("again")), 0);
        assert_int_equal(merak_durable_write(at("again"), "new", 3, NULL),
                         MERAK_OK);
        assert_holds("again", "new");
        unlink(at("again"));
    }
    assert_holds("theirs", "theirs");
    assert_int_equal(access(at("nothing"), F_OK), -1);
    assert_int_equal(merak_durable_write(at("folder"), "new", 3, NULL),
                     MERAK_ERR_IO);
}

/* In front of libc's: who races the removal of `raced` moves it away once it is
 * being read, and puts a link to "folder" in its place. */
static const char *raced;

struct dirent *readdir(DIR *stream)
{
    __typeof__(&readdir) real =
        (__typeof__(&readdir))dlsym(RTLD_NEXT, "readdir");

    if (raced != NULL) {
        char away[PATH_MAX];

        snprintf(away, sizeof(away), "%s.away", raced);
        assert_int_equal(rename(raced, away), 0);
        assert_int_equal(symlink("folder", raced), 0);
        raced = NULL;
    }
    return real(stream);
}

static void removing_keeps_to_the_directory_that_it_opened(void **state)
{
    char path[PATH_MAX];

    (void)state;
    put("folder/theirs", "theirs");
    snprintf(path, sizeof(path), "%s", at("step-00000001.tmp"));
    assert_int_equal(mkdir(path, 0700), 0);
    put("step-00000001.tmp/theirs", "of the save");
    raced = path;
    assert_int_not_equal(merak_dir_remove(path, NULL), MERAK_OK);
    assert_null(raced);
    assert_holds("folder/theirs", "theirs");
    assert_int_equal(access(at("step-00000001.tmp.away/theirs"), F_OK), -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(at("step-00000001.tmp.away")), 0);
    assert_int_equal(unlink(at("folder/theirs")), 0);
}

/* A link to a folder in place of an interrupted save, which runs remove. */
static void removing_follows_no_link(void **state)
{
    (void)state;
    put("folder/theirs", "theirs");
    assert_int_equal(symlink("folder", at("step-00000001.tmp")), 0);
    assert_int_equal(merak_dir_remove(at("step-00000001.tmp"), NULL), MERAK_OK);
    assert_holds("folder/theirs", "theirs");
    assert_int_equal(access(at("step-00000001.tmp"), F_OK), -1);
    put("step-00000002.tmp", "a file");
    assert_int_equal(merak_dir_remove(at("step-00000002.tmp"), NULL), MERAK_OK);
    assert_int_equal(access(at("step-00000002.tmp"), F_OK), -1);
    assert_int_equal(merak_dir_remove(at("step-00000002.tmp"), NULL), MERAK_OK);
    assert_int_equal(merak_dir_remove(at("folder"), NULL), MERAK_OK);
    assert_int_equal(access(at("folder"), F_OK), -1);
}

/* --- closed descriptors ----------------------------------------------------
 */

static void closed_descriptors_are_opened_and_open_ones_stay(void **state)
{
    (void)state;
    for (int closed = 0; closed < 8; closed++) {
        pid_t child = fork();
        int status;

        if (child == 0) {
            struct stat null, st;
            bool fine = stat("/dev/null", &null) == 0;
            ino_t was[3] = {0};

            for (int fd = 0; fd <= 2; fd++) {
                if (fstat(fd, &st) == 0)
                    was[fd] = st.st_ino;
                if ((closed & 1 << fd) != 0)
                    close(fd);
            }
            merak_open_std();
            for (int fd = 0; fd <= 2; fd++) {
                fine = fine && fstat(fd, &st) == 0;
                fine = fine &&
                       st.st_ino ==
                           ((closed & 1 << fd) != 0 ? null.st_ino : was[fd]);
            }
            fine = fine && open("/dev/null", O_RDONLY) > 2;
            if ((closed & 4) != 0)
                fine = fine && write(2, "x", 1) == 1;
            _exit(fine ? 0 : 1);
        }
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_control_character_gets_through),
        cmocka_unit_test(long_output_arrives_whole),
        cmocka_unit_test_setup_teardown(
            what_others_prepared_is_neither_read_nor_appended_to, set_up_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(
            a_new_file_takes_the_place_of_what_others_prepared, set_up_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(removing_follows_no_link, set_up_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(
            removing_keeps_to_the_directory_that_it_opened, set_up_folder,
            remove_folder),
        cmocka_unit_test(closed_descriptors_are_opened_and_open_ones_stay),
    };

    return cmocka_run_group_tests_name("printable", tests, NULL, NULL);
}
