/* SPDX-License-Identifier: Apache-2.0 */
/* test_option_table.c - tables of options: every kind, bounds, forms and help
 */
#include "config.h"

#include "unit/near.h"

#include "base/options.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ARGS 8

struct target {
    const char *text;
    char name[MERAK_OPTION_NAME_BYTES];
    int degree, count, word;
    size_t size;
    uint64_t samples;
    double real, share;
    float rate;
    bool yes, on, off, has_degree;
    const char *file;
    int calls;
};

#define AT(field) offsetof(struct target, field)

static enum merak_status count_call(void *target, const char *text,
                                    struct merak_error *err)
{
    (void)err;
    ((struct target *)target)->calls += (int)strlen(text);
    return MERAK_OK;
}

static const struct merak_option rows[] = {
    {"text", MERAK_OPTION_TEXT, AT(text), .about = "a text", .arg = "PATH"},
    {"name", MERAK_OPTION_NAME, AT(name), .about = "a name"},
    {"degree", MERAK_OPTION_INT, AT(degree), .about = "a degree", .least = 1,
     .most = 65535, .words = "auto", .given = AT(has_degree)},
    {"count", MERAK_OPTION_INT, AT(count), .about = "from nought"},
    {"size", MERAK_OPTION_SIZE, AT(size), .about = "a size", .least = 1},
    {"samples", MERAK_OPTION_COUNT, AT(samples), .about = "samples"},
    {"real", MERAK_OPTION_REAL, AT(real), .about = "in thousands",
     .positive = true, .unit = 1e3},
    {"share", MERAK_OPTION_REAL, AT(share), .about = "a share", .most = 1},
    {"rate", MERAK_OPTION_FLOAT, AT(rate), .about = "a rate"},
    {"word", MERAK_OPTION_WORD, AT(word), .about = "a word",
     .words = "red|green|blue"},
    {"yes", MERAK_OPTION_BOOL, AT(yes), .about = "a choice", .words = "no|yes"},
    {"on", MERAK_OPTION_YES, AT(on), .about = "set"},
    {"off", MERAK_OPTION_NO, AT(off), .about = "not set"},
    {"file", MERAK_OPTION_FILE, AT(file), .about = "a file"},
    {"call", MERAK_OPTION_CALL, 0,
     .about = "counts the letters that it gets, "
              "however many there are of them "
              "on the line",
     .set = count_call},
};

static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

static enum merak_status parse(const char *const *args, struct target *target,
                               bool *help_p, struct merak_error *err)
{
    char *argv[MAX_ARGS + 1] = {(char *)(uintptr_t) "program"};
    int argc = 1;

    while (argc <= MAX_ARGS && args[argc - 1] != NULL) {
        argv[argc] = (char *)(uintptr_t)args[argc - 1];
        argc++;
    }
    *target = (struct target){.off = true};
    return merak_options_parse(&table, argc, argv, target, help_p, err);
}

static const struct {
    const char *args[MAX_ARGS];
    const char *text;
} bad_rows[] = {
    {{"--none"}, "unknown option \"--none\""},
    {{"--realms"}, "unknown option \"--realms\" (did you mean --real?)"},
    {{"--degre", "2"}, "\"--degre\" (did you mean --degree?); --help"},
    {{"--smaples=3"}, "\"--smaples=3\" (did you mean --samples?)"},
    {{"-siez", "1"}, "\"-siez\" (did you mean --size?)"},
    {{"--xyz"}, "\"--xyz\"; --help"},
    {{"--"}, "unknown option \"--\""},
    {{"--=1"}, "unknown option"},
    {{"loose"}, "unknown option \"loose\""},
    {{"--text"}, "--text needs a value"},
    {{"--text", ""}, "--text: its value is empty, as of a variable that is not"},
    {{"--name", ""}, "a short name"},
    {{"--name", "a-name-that-is-longer-than-31-characters"}, "a short name"},
    {{"--degree", "0"}, "an integer 1..65535 or auto, got \"0\""},
    {{"--degree", "65536"}, "1..65535"},
    {{"--degree", "Auto"}, "or auto, got \"Auto\""},
    {{"--degree="}, "got \"\""},
    {{"--count", "2147483648"}, "an integer from 0"},
    {{"--count", "+1"}, "got \"+1\""},
    {{"--count", " 1"}, "got \" 1\""},
    {{"--count", "auto"}, "an integer from 0, got \"auto\""},
    {{"--size", "0"}, "a positive integer, got \"0\""},
    {{"--size", "18446744073709551615"}, "a positive integer"},
    {{"--samples", "18446744073709551616"}, "an integer from 0"},
    {{"--samples", "1e3"}, "got \"1e3\""},
    {{"--real", "0"}, "a positive number, got \"0\""},
    {{"--real", "inf"}, "a positive number"},
    {{"--share", "1.5"}, "a number from 0 to 1, got \"1.5\""},
    {{"--rate", "-1"}, "a number from 0"},
    {{"--rate", "nan"}, "a number from 0"},
    {{"--rate", "1x"}, "a number from 0"},
    {{"--rate", "1e39"}, "a number from 0"},
    {{"--real", "1e308"}, "a positive number"},
    {{"--word", "gree"}, "expected red|green|blue, got \"gree\""},
    {{"--word", "greens"}, "expected red|green|blue"},
    {{"--word", ""}, "expected red|green|blue"},
    {{"--yes", "true"}, "expected no|yes"},
    {{"--on=1"}, "--on takes no value"},
};

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_rows) / sizeof(bad_rows[0]); i++) {
        struct merak_error err = {.text = ""};
        struct target target;
        bool help = false;

        assert_int_equal(parse(bad_rows[i].args, &target, &help, &err),
                         MERAK_ERR_CONFIG);
        if (strstr(err.text, bad_rows[i].text) == NULL)
            fail_msg("row %zu says \"%s\", not \"%s\"", i, err.text,
                     bad_rows[i].text);
    }
}

/* Options of one table among those of another. */
struct outer {
    const char *text;
    bool on;
};

static const struct merak_option outer_rows[] = {
    {"outer", MERAK_OPTION_TEXT, offsetof(struct outer, text), .about = "a"},
    {"outer-on", MERAK_OPTION_YES, offsetof(struct outer, on), .about = "b"},
};
static const struct merak_option_table outer_table = {outer_rows, 2};

static void options_are_taken_from_among_others(void **state)
{
    /* a word with dashes is a value, the name of an option behind "=" alone */
    char *argv[] = {"program", "--text", "--dashes",   "--outer=--size", "--on",
                    "--size",  "3",      "--outer-on", "--word=red",     NULL};
    static const char *const left[] = {"program", "--text", "--dashes", "--on",
                                       "--size",  "3",      "--word=red"};
    struct outer outer = {.text = NULL};
    struct merak_error err;
    bool help = false;
    int argc = 9;

    (void)state;
    assert_int_equal(merak_options_take(&outer_table, &table, &argc, argv,
                                        &outer, &help, &err),
                     MERAK_OK);
    assert_string_equal(outer.text, "--size");
    assert_true(outer.on);
    assert_false(help);
    assert_int_equal(argc, 7);
    for (int i = 0; i < argc; i++)
        assert_string_equal(argv[i], left[i]);
    assert_null(argv[argc]);
}

/* Of both tables the nearest name is told. */
static void what_neither_table_has_is_named(void **state)
{
    static const char *const args[][2] = {
        {"--ouetr", "\"--ouetr\" (did you mean --outer?)"},
        {"--wrod", "\"--wrod\" (did you mean --word?)"},
        {"loose", "unknown option \"loose\"; --help"},
        {"--outer", "--outer needs a value"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(args) / sizeof(args[0]); i++) {
        char *argv[] = {"program", (char *)(uintptr_t)args[i][0], NULL};
        struct outer outer = {.text = NULL};
        struct merak_error err = {.text = ""};
        bool help = false;
        int argc = 2;

        assert_int_equal(merak_options_take(&outer_table, &table, &argc, argv,
                                            &outer, &help, &err),
                         MERAK_ERR_CONFIG);
        if (strstr(err.text, args[i][1]) == NULL)
            fail_msg("%s says \"%s\"", args[i][0], err.text);
    }
}

static const struct merak_option letter_rows[] = {
    {"text", MERAK_OPTION_TEXT, offsetof(struct outer, text), .about = "a",
     .letter = 't'},
    {"on", MERAK_OPTION_YES, offsetof(struct outer, on), .about = "b"},
};
static const struct merak_option_table letter_table = {letter_rows, 2};

/* What is left of a line, "a b ", or what went wrong. */
static const char *words_of(const char *line, bool first_ends,
                            struct outer *outer)
{
    static char text[256], said[256];
    char *argv[12] = {"program"}, *at = NULL;
    struct merak_error err;
    bool help = false;
    int argc = 1;

    snprintf(text, sizeof(text), "%s", line);
    for (char *word = strtok_r(text, " ", &at); word != NULL;
         word = strtok_r(NULL, " ", &at))
        argv[argc++] = word;
    *outer = (struct outer){.text = ""};
    if (merak_options_words(&letter_table, first_ends, &argc, argv, outer,
                            &help, &err) != MERAK_OK)
        return strcpy(said, err.text);
    assert_null(argv[argc]);
    strcpy(said, help ? "help" : "");
    for (int i = 1; i < argc && !help; i++)
        strcat(strcat(said, argv[i]), " ");
    return said;
}

static void words_stand_among_options(void **state)
{
    static const struct {
        const char *line, *words, *text;
        bool first_ends, on;
    } row[] = {
        {"a --text x b --on c", "a b c ", "x", false, true},
        {"a --text x b --on c", "a --text x b --on c ", "", true, false},
        {"--on a --text=x b", "a --text=x b ", "", true, true},
        {"--on -- --text b", "--text b ", "", true, true},
        {"--on a -- --text b", "a --text b ", "", false, true},
        {"-t x - -ty", "- ", "y", false, false},
        {"a --help --what", "help", "", false, false},
        {"", "", "", false, false},
        {"a --txet b",
         "unknown option \"--txet\" (did you mean --text?); "
         "--help lists them",
         "", false, false},
        {"-x a", "unknown option \"-x\"; --help lists them", "", false, false},
        {"a --text", "--text needs a value", "", false, false},
        {"a -t", "--text needs a value", "", false, false},
        {"a --on=x", "--on takes no value", "", false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct outer outer;

        assert_string_equal(words_of(row[i].line, row[i].first_ends, &outer),
                            row[i].words);
        assert_string_equal(outer.text, row[i].text);
        assert_int_equal(outer.on, row[i].on);
    }
}

/* Rows that are part of something larger, about a part of the target. */
struct wide {
    bool before;
    struct outer outer;
};

static const struct {
    const char *other;
    struct merak_option option;
} parts[] = {
    {"a",
     {"part", MERAK_OPTION_TEXT, offsetof(struct outer, text), .about = "a"}},
    {"b",
     {"part-on", MERAK_OPTION_YES, offsetof(struct outer, on), .about = "b"}},
};
static const struct merak_option wide_rows[] = {
    {"before", MERAK_OPTION_YES, offsetof(struct wide, before), .about = "c"},
    {.kind = MERAK_OPTION_ROWS,
     .at = offsetof(struct wide, outer),
     .rows = &parts[0].option,
     .n_rows = 2,
     .stride = sizeof(parts[0])},
    {"behind", MERAK_OPTION_YES, offsetof(struct wide, before), .about = "d"},
};
static const struct merak_option_table wide_table = {wide_rows, 3};

static void rows_may_stand_elsewhere(void **state)
{
    char *argv[] = {"program", "--part=x", "--part-on", "--behind", NULL};
    char *wrong[] = {"program", "--aprt=x", NULL};
    struct wide wide = {.before = false};
    struct merak_error err = {.text = ""};
    char names[64];
    bool help = false;

    (void)state;
    assert_int_equal(
        merak_options_parse(&wide_table, 4, argv, &wide, &help, &err),
        MERAK_OK);
    assert_string_equal(wide.outer.text, "x");
    assert_true(wide.outer.on);
    assert_true(wide.before);
    assert_int_equal(merak_options_set(&wide_table, "part", "y", &wide, &err),
                     MERAK_OK);
    assert_string_equal(wide.outer.text, "y");
    merak_options_names(&wide_table, names, sizeof(names));
    assert_string_equal(names, "before, part, part-on, behind");
    assert_int_equal(
        merak_options_parse(&wide_table, 2, wrong, &wide, &help, &err),
        MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "did you mean --part?"));
}

static void every_kind_is_stored(void **state)
{
    const char *const numbers[MAX_ARGS] = {
        "--degree=7", "--count", "2147483647", "--size=9223372036854775807",
        "--real",     "2.5",     "--samples",  "18446744073709551615"};
    const char *const words[MAX_ARGS] = {"--text", "a=b",   "--name=n",
                                         "--on",   "--off", "--call=abc",
                                         "--word", "blue"};
    const char *const more[MAX_ARGS] = {
        "--yes", "yes", "--rate=0.5", "--share", "1", "--degree", "auto"};
    struct merak_error err = {.text = ""};
    struct target t;
    bool help = false;

    (void)state;
    assert_int_equal(parse(numbers, &t, &help, &err), MERAK_OK);
    assert_int_equal(t.degree, 7);
    assert_true(t.has_degree);
    assert_int_equal(t.count, 2147483647);
    assert_int_equal(t.size, (size_t)9223372036854775807);
    assert_true(t.samples == UINT64_MAX);
    assert_true(t.real == 2500);
    assert_int_equal(parse(words, &t, &help, &err), MERAK_OK);
    assert_string_equal(t.text, "a=b");
    assert_string_equal(t.name, "n");
    assert_true(t.on);
    assert_false(t.off);
    assert_false(t.has_degree);
    assert_int_equal(t.calls, 3);
    assert_int_equal(t.word, 2);
    assert_int_equal(parse(more, &t, &help, &err), MERAK_OK);
    assert_true(t.yes);
    assert_true(t.rate == 0.5f);
    assert_true(t.share == 1);
    assert_int_equal(t.degree, MERAK_OPTION_AUTO);
    assert_false(help);
}

/* A file may be left out, before another option and at the end. */
static void files_may_be_left_out(void **state)
{
    static const struct {
        const char *args[MAX_ARGS];
        const char *file;
    } row[] = {
        {{"--file", "x.json"}, "x.json"},
        {{"--file=x"}, "x"},
        {{"--file"}, "-"},
        {{"--file", "--on"}, "-"},
        {{"--file", "-"}, "-"},
        {{"--on"}, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct merak_error err = {.text = ""};
        struct target t;
        bool help = false;

        assert_int_equal(parse(row[i].args, &t, &help, &err), MERAK_OK);
        if (row[i].file == NULL)
            assert_null(t.file);
        else
            assert_string_equal(t.file, row[i].file);
    }
}

static void help_ends_the_line(void **state)
{
    const char *const args[MAX_ARGS] = {"--size", "4", "-h", "--none"};
    struct merak_error err = {.text = ""};
    struct target t;
    bool help = false;

    (void)state;
    assert_int_equal(parse(args, &t, &help, &err), MERAK_OK);
    assert_true(help);
    assert_int_equal(t.size, 4);
}

static void values_are_stored_by_name(void **state)
{
    struct merak_error err = {.text = "as it was"};
    struct target t = {0};

    (void)state;
    assert_int_equal(merak_options_set(&table, "word", "green", &t, &err),
                     MERAK_OK);
    assert_int_equal(t.word, 1);
    assert_int_equal(merak_options_set(&table, "wor", "green", &t, &err),
                     MERAK_ERR_NOT_FOUND);
    assert_string_equal(err.text, "as it was");
    assert_int_equal(merak_options_set(&table, "size", "x", &t, &err),
                     MERAK_ERR_CONFIG);
}

/* Every option has a line, none is longer than a terminal's. */
static void help_has_every_option(void **state)
{
    char *text = NULL;
    size_t bytes = 0, column = 0;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(out);
    merak_options_help(&table, out);
    fclose(out);
    for (size_t i = 0; i < table.n; i++) {
        char want[64];

        snprintf(want, sizeof(want), "  --%s ", rows[i].name);
        assert_non_null(strstr(text, want));
        if (strlen(rows[i].about) < 40)
            assert_non_null(strstr(text, rows[i].about));
    }
    assert_non_null(strstr(text, "--text PATH"));
    for (size_t i = 0; i < bytes; i++) {
        column = text[i] == '\n' ? 0 : column + 1;
        assert_true(column < 80);
    }
    free(text);
}

/* --- files ---------------------------------------------------------------- */

static const struct merak_option_table *const tables[] = {&table};

/* Options of a file with this text, and behind it `last`; the target. */
static enum merak_status from_file(const char *text, const char *last,
                                   struct target *target,
                                   struct merak_error *err)
{
    static char path[] = "/tmp/merak-options-XXXXXX";
    char *args[] = {(char *)(uintptr_t) "program",
                    (char *)(uintptr_t) "--config", path,
                    (char *)(uintptr_t)last, NULL};
    char **argv = args, *made = NULL;
    int argc = last != NULL ? 4 : 3, fd;
    bool help = false;
    enum merak_status rc;

    strcpy(path + strlen(path) - 6, "XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    *target = (struct target){.off = true};
    rc = merak_options_expand(tables, 1, &argc, &argv, &made, err);
    if (rc == MERAK_OK)
        rc = merak_options_parse(&table, argc, argv, target, &help, err);
    unlink(path);
    if (rc == MERAK_OK && target->text != NULL)
        target->text =
            strcmp(target->text, "a \"b\" # c\\") == 0 ? "as given" : "other";
    free(made);
    return rc;
}

static void a_file_has_options_and_the_command_line_wins(void **state)
{
    const char *text = "# of a run\n"
                       "[data]\n"
                       "text = \"a \\\"b\\\" # c\\\\\"   # behind it\r\n"
                       "\n"
                       "degree = \"auto\"\n"
                       "size=1_000\n"
                       "  samples = 5 # five\n"
                       "real = 2.5\n"
                       "word = 'blue'\n"
                       "yes = true\n"
                       "on = true\n"
                       "off = false\n"
                       "[rest]";
    struct merak_error err = {.text = ""};
    struct target t;

    (void)state;
    assert_int_equal(from_file(text, "--samples=7", &t, &err), MERAK_OK);
    assert_string_equal(t.text, "as given");
    assert_int_equal(t.degree, MERAK_OPTION_AUTO);
    assert_int_equal(t.size, 1000);
    assert_int_equal(t.samples, 7);
    assert_true(t.real == 2500);
    assert_int_equal(t.word, 2);
    assert_true(t.yes && t.on && t.off);
}

static const struct {
    const char *file, *text;
} bad_files[] = {
    {"size = 1\nsiez = 2", ":2: no option \"siez\" (did you mean --size?)"},
    {"config = x", "no option \"config\""},
    {"size", ":1: expected NAME = VALUE"},
    {"\n\nsize = ", ":3: expected a number"},
    {"size = 1 2", "a value of several words goes in quotes"},
    {"text = \"open", "the string has no end"},
    {"text = \"a\" b", "expected nothing after the string"},
    {"text = [1, 2]", "expected a number, a word, or a string"},
    {"[table", "expected [NAME]"},
    {"on = 1", "expected true or false"},
    {"size = 0", "--size: expected a positive integer, got \"0\""},
};

static void what_is_wrong_in_a_file_is_named_by_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_files) / sizeof(bad_files[0]); i++) {
        struct merak_error err = {.text = ""};
        struct target t;

        assert_int_equal(from_file(bad_files[i].file, NULL, &t, &err),
                         MERAK_ERR_CONFIG);
        if (strstr(err.text, bad_files[i].text) == NULL)
            fail_msg("row %zu says \"%s\", not \"%s\"", i, err.text,
                     bad_files[i].text);
    }
}

/* What is saved says the same when it is read. */
static void options_are_saved_as_they_are_read(void **state)
{
    struct target was = {.text = "a \"b\" # c\\",
                         .degree = MERAK_OPTION_AUTO,
                         .count = 3,
                         .word = 1,
                         .size = 7,
                         .samples = UINT64_MAX,
                         .real = 1234.5,
                         .share = 0.1,
                         .rate = 1e-3f,
                         .yes = true,
                         .on = true,
                         .off = true},
                  t;
    struct merak_error err = {.text = ""};
    size_t bytes;
    char *text;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    strcpy(was.name, "short");
    merak_options_save(&table, &was, out);
    fclose(out);
    if (from_file(text, NULL, &t, &err) != MERAK_OK)
        fail_msg("%s in:\n%s", err.text, text);
    free(text);
    assert_string_equal(t.text, "as given");
    assert_string_equal(t.name, was.name);
    assert_int_equal(t.degree, was.degree);
    assert_int_equal(t.count, was.count);
    assert_int_equal(t.word, was.word);
    assert_int_equal(t.size, was.size);
    assert_true(t.samples == was.samples && t.real == was.real &&
                t.share == was.share && t.rate == was.rate);
    assert_true(t.yes && t.on && t.off);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(options_are_taken_from_among_others),
        cmocka_unit_test(words_stand_among_options),
        cmocka_unit_test(what_neither_table_has_is_named),
        cmocka_unit_test(rows_may_stand_elsewhere),
        cmocka_unit_test(every_kind_is_stored),
        cmocka_unit_test(files_may_be_left_out),
        cmocka_unit_test(a_file_has_options_and_the_command_line_wins),
        cmocka_unit_test(what_is_wrong_in_a_file_is_named_by_line),
        cmocka_unit_test(options_are_saved_as_they_are_read),
        cmocka_unit_test(help_ends_the_line),
        cmocka_unit_test(values_are_stored_by_name),
        cmocka_unit_test(help_has_every_option),
    };

    return cmocka_run_group_tests_name("option_table", tests, NULL, NULL);
}
