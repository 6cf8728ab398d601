/* SPDX-License-Identifier: Apache-2.0 */
/* test_progress.c - the line that tells how far something is */
#include "config.h"

#include "unit/near.h"

#include "base/progress.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct row {
    const char *unit;
    double total, done, seconds;
    const char *note, *text;
};

static const struct row rows[] = {
    {"B", 4.0 * (1 << 30), 1 << 30, 10, "",
     "work: 1 GiB of 4 GiB, 102.4 MiB/s, 0:30 left"},
    {"B", 0, 1 << 20, 1, "", "work: 1 MiB, 1 MiB/s"},
    {"plans", 0, 1200, 4, "best 1.2 s a step",
     "work: 1200 plans, 300 plans/s, best 1.2 s a step"},
    {"models", 40, 2, 8, "",
     "work: 2 models of 40 models, 0.2 models/s, 2:32 left"},
    {"models", 40, 0, 0, "", "work: 0 models of 40 models, 0 models/s"},
    {"models", 40, 50, 10, "",
     "work: 50 models of 40 models, 5 models/s, 0:00 left"},
};

static void the_line_has_amount_rate_and_what_is_left(void **state)
{
    char text[MERAK_PROGRESS_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct merak_progress p = {.what = "work",
                                   .unit = rows[i].unit,
                                   .total = rows[i].total,
                                   .done = rows[i].done};

        strcpy(p.note, rows[i].note);
        merak_progress_text(&p, rows[i].seconds, text);
        assert_string_equal(text, rows[i].text);
    }
}

/* Half a second and more of work, a line of output in between. */
static void work(FILE *out)
{
    struct merak_progress p;

    merak_progress_init(&p, out, "work", "steps", 10);
    for (int i = 0; i < 10; i++) {
        usleep(100000);
        merak_progress_add(&p, 1);
    }
    merak_progress_clear(&p);
    fflush(out);
}

static void nothing_is_said_into_a_pipe(void **state)
{
    FILE *out = tmpfile();

    (void)state;
    assert_non_null(out);
    work(out);
    assert_int_equal(ftell(out), 0);
    fclose(out);
    merak_progress_add(NULL, 1); /* nobody watches */
    merak_progress_note(NULL, "x");
    merak_progress_phase(NULL, "x");
    merak_progress_clear(NULL);
}

static size_t on_terminal(const char *term, char *text, size_t size)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY), slave;
    size_t all = 0;
    ssize_t n;
    FILE *out;

    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    setenv("TERM", term, 1);
    out = fdopen(slave, "w");
    work(out);
    assert_int_equal(fcntl(master, F_SETFL, O_NONBLOCK), 0);
    while ((n = read(master, text + all, size - 1 - all)) > 0)
        all += (size_t)n;
    fclose(out);
    close(master);
    text[all] = '\0';
    return all;
}

static void a_terminal_gets_lines_over_each_other(void **state)
{
    char text[4096];
    int lines = 0;

    (void)state;
    on_terminal("xterm", text, sizeof(text));
    for (const char *at = text; (at = strstr(at, "\rwork: ")) != NULL; at++)
        lines++;
    assert_in_range(lines, 1, 5);
    assert_null(strchr(text, '\n'));
    assert_string_equal(text + strlen(text) - 4, "\r\033[K"); /* all gone */
    assert_int_equal(on_terminal("dumb", text, sizeof(text)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_has_amount_rate_and_what_is_left),
        cmocka_unit_test(nothing_is_said_into_a_pipe),
        cmocka_unit_test(a_terminal_gets_lines_over_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
