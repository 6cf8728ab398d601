/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - a table of options: parsed, bounded, stored, documented */
#include "config.h"

#include "base/options.h"

#include "base/error.h"
#include "base/factors.h"
#include "base/nearest.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The help's second column, and where it ends. */
enum { ABOUT_COLUMN = 26, LAST_COLUMN = 78 };

static enum merak_status bad_value(const struct merak_option *row,
                                   const char *text, const char *expected,
                                   struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG, "--%s: expected %s, got \"%.60s\"",
                      row->name, expected, text);
}

/* --- rows ----------------------------------------------------------------- */

const struct merak_option *merak_options_next(struct merak_option_walk *w)
{
    while (w->rows == NULL || w->next_inner == w->rows->n_rows) {
        const struct merak_option *row;

        w->rows = NULL;
        w->base = 0;
        w->group = NULL;
        if (w->next == w->table->n)
            return NULL;
        row = &w->table->row[w->next++];
        w->group = row->group;
        if (row->kind != MERAK_OPTION_ROWS)
            return row;
        w->rows = row;
        w->next_inner = 0;
        w->base = row->at;
    }
    if (w->next_inner > 0)
        w->group = NULL;
    return (const void *)((const char *)w->rows->rows +
                          w->next_inner++ * w->rows->stride);
}

/* --- values --------------------------------------------------------------- */

static bool parse_unsigned(const char *text, unsigned long long *value_p)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *value_p = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static enum merak_status bad_number(const struct merak_option *row,
                                    const char *text, const char *expected,
                                    struct merak_error *err)
{
    char with_unit[128];

    if (row->of == NULL)
        return bad_value(row, text, expected, err);
    snprintf(with_unit, sizeof(with_unit), "%s (%s)", expected, row->of);
    return bad_value(row, text, with_unit, err);
}

static enum merak_status bad_integer(const struct merak_option *row,
                                     const char *text, struct merak_error *err)
{
    char expected[64];
    int n;

    if (row->most > 0)
        n = snprintf(expected, sizeof(expected), "an integer %.0f..%.0f",
                     row->least, row->most);
    else if (row->least == 1)
        n = snprintf(expected, sizeof(expected), "a positive integer");
    else
        n = snprintf(expected, sizeof(expected), "an integer from %.0f",
                     row->least);
    if (row->words != NULL)
        snprintf(expected + n, sizeof(expected) - (size_t)n, " or %s",
                 row->words);
    return bad_number(row, text, expected, err);
}

static enum merak_status store_integer(const struct merak_option *row,
                                       const char *text, void *field,
                                       struct merak_error *err)
{
    unsigned long long v;
    bool is_int = row->kind == MERAK_OPTION_INT;

    if (row->words != NULL && strcmp(text, row->words) == 0) {
        *(int *)field = MERAK_OPTION_AUTO;
        return MERAK_OK;
    }
    if (!parse_unsigned(text, &v) || (double)v < row->least ||
        (row->most > 0 && (double)v > row->most) || (is_int && v > INT_MAX) ||
        (row->kind == MERAK_OPTION_SIZE && v > SIZE_MAX / 2))
        return bad_integer(row, text, err);
    if (is_int)
        *(int *)field = (int)v;
    else if (row->kind == MERAK_OPTION_SIZE)
        *(size_t *)field = (size_t)v;
    else
        *(uint64_t *)field = v;
    return MERAK_OK;
}

static enum merak_status store_real(const struct merak_option *row,
                                    const char *text, void *field,
                                    struct merak_error *err)
{
    double unit = row->unit > 0 ? row->unit : 1, v;
    double most = row->kind == MERAK_OPTION_FLOAT ? FLT_MAX : DBL_MAX;
    /* Below this the value is stored as 0. */
    double zero =
        row->kind == MERAK_OPTION_FLOAT ? (double)FLT_TRUE_MIN / 2 : 0;
    char expected[64], *end;
    int n;

    if (row->words != NULL && strcmp(text, row->words) == 0) {
        *(double *)field = 0;
        return MERAK_OK;
    }
    errno = 0;
    v = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(v) || v < row->least ||
        (row->positive && v * unit <= zero) ||
        (row->most > 0 && v > row->most) || v * unit > most) {
        if (row->most > 0)
            n = snprintf(expected, sizeof(expected), "a number %s%g to %g",
                         row->positive ? "above " : "from ", row->least,
                         row->most);
        else
            n = snprintf(expected, sizeof(expected), "a %snumber%s",
                         row->positive ? "positive " : "",
                         row->positive ? "" : " from 0");
        if (row->words != NULL)
            snprintf(expected + n, sizeof(expected) - (size_t)n, " or %s",
                     row->words);
        return bad_number(row, text, expected, err);
    }
    if (row->kind == MERAK_OPTION_FLOAT)
        *(float *)field = (float)(v * unit);
    else
        *(double *)field = v * unit;
    return MERAK_OK;
}

/* The number of a word among a row's; -1: it is none of them. */
static int find_word(const struct merak_option *row, const char *text)
{
    const char *word = row->words;
    size_t n = strlen(text);

    for (int i = 0; *word != '\0'; i++) {
        size_t len = strcspn(word, "|");

        if (len == n && strncmp(word, text, n) == 0)
            return i;
        word += len + (word[len] == '|');
    }
    return -1;
}

/* What files of arrays and PyTorch call a dtype is the word for it. */
static const char *usual_word(const char *text)
{
    static const char *const also[][2] = {{"f32", "fp32"},
                                          {"float32", "fp32"},
                                          {"bfloat16", "bf16"},
                                          {"f16", "fp16"},
                                          {"float16", "fp16"}};

    for (size_t i = 0; i < sizeof(also) / sizeof(*also); i++) {
        if (strcmp(text, also[i][0]) == 0)
            return also[i][1];
    }
    return text;
}

static enum merak_status store_word(const struct merak_option *row,
                                    const char *text, void *field,
                                    struct merak_error *err)
{
    int i = find_word(row, text);

    if (i < 0)
        i = find_word(row, usual_word(text));
    if (i < 0)
        return bad_value(row, text, row->words, err);
    if (row->kind == MERAK_OPTION_BOOL)
        *(bool *)field = i != 0;
    else
        *(int *)field = i; /* enums are ints */
    return MERAK_OK;
}

static enum merak_status store_factors(const struct merak_option *row,
                                       const char *text, int64_t *field,
                                       struct merak_error *err)
{
    char expected[96];

    if (row->words != NULL && strcmp(text, row->words) == 0) {
        *field = MERAK_OPTION_AUTO;
        return MERAK_OK;
    }
    if (merak_factors_parse(text, field))
        return MERAK_OK;
    snprintf(expected, sizeof(expected),
             "up to %d factors 2..%d with x between, as in 2x4%s%s",
             MERAK_MAX_FACTORS, MERAK_MAX_FACTOR,
             row->words != NULL ? ", or " : "",
             row->words != NULL ? row->words : "");
    return bad_value(row, text, expected, err);
}

static enum merak_status store(const struct merak_option *row, const char *text,
                               void *target, struct merak_error *err)
{
    void *field = (char *)target + row->at;

    switch (row->kind) {
    case MERAK_OPTION_TEXT:
    case MERAK_OPTION_FILE:
        if (*text == '\0' && !row->may_be_empty)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--%s: its value is empty, as of a variable that "
                              "is not set: give one, or leave the option out",
                              row->name);
        *(const char **)field = text;
        return MERAK_OK;
    case MERAK_OPTION_NAME:
        if (*text == '\0' || strlen(text) >= MERAK_OPTION_NAME_BYTES)
            return bad_value(row, text, "a short name", err);
        strcpy(field, text);
        return MERAK_OK;
    case MERAK_OPTION_WORD:
    case MERAK_OPTION_BOOL:
        return store_word(row, text, field, err);
    case MERAK_OPTION_YES:
    case MERAK_OPTION_NO:
        *(bool *)field = row->kind == MERAK_OPTION_YES;
        return MERAK_OK;
    case MERAK_OPTION_REAL:
    case MERAK_OPTION_FLOAT:
        return store_real(row, text, field, err);
    case MERAK_OPTION_GRID:
        return store_factors(row, text, field, err);
    case MERAK_OPTION_CALL:
        return row->set(target, text, err);
    default:
        return store_integer(row, text, field, err);
    }
}

static enum merak_status store_given(const struct merak_option *row,
                                     const char *text, void *target,
                                     struct merak_error *err)
{
    enum merak_status rc = store(row, text, target, err);

    if (rc == MERAK_OK && row->given != 0)
        *(bool *)((char *)target + row->given) = true;
    return rc;
}

/* --- arguments ------------------------------------------------------------ */

static bool is_named(const struct merak_option *row, const char *name, size_t n)
{
    return (n == 1 && row->letter == *name) ||
           (strlen(row->name) == n && strncmp(row->name, name, n) == 0);
}

/* name may be a letter.  *base_p (or NULL) gets the offset of the row's part of
 * the target. */
static const struct merak_option *
find_row(const struct merak_option_table *table, const char *name, size_t n,
         size_t *base_p)
{
    struct merak_option_walk walk = {.table = table};
    const struct merak_option *row = merak_options_next(&walk);

    while (row != NULL && !is_named(row, name, n))
        row = merak_options_next(&walk);
    if (base_p != NULL)
        *base_p = walk.base;
    return row;
}

static bool is_flag(const struct merak_option *row)
{
    return row->kind == MERAK_OPTION_YES || row->kind == MERAK_OPTION_NO;
}

/* The row that an argument names, with or without a value attached. */
static const struct merak_option *row_of(const struct merak_option_table *table,
                                         const char *arg, size_t *base_p)
{
    size_t n = strncmp(arg, "--", 2) == 0 ? strcspn(arg + 2, "=") : 0;

    if (n > 0)
        return find_row(table, arg + 2, n, base_p);
    return arg[0] == '-' && isalpha((unsigned char)arg[1])
               ? find_row(table, arg + 1, 1, base_p)
               : NULL;
}

/* The value in the argument itself: --out=x, -ox; NULL: none. */
static const char *own_value(const char *arg)
{
    if (arg[0] != '-' || arg[1] == '\0')
        return NULL;
    if (arg[1] != '-')
        return arg[2] != '\0' ? arg + 2 : NULL;
    arg = strchr(arg, '=');
    return arg != NULL ? arg + 1 : NULL;
}

static void offer_names(const struct merak_option_table *table,
                        struct merak_nearest *nearest)
{
    struct merak_option_walk walk = {.table = table};
    const struct merak_option *row;

    for (row = merak_options_next(&walk); row != NULL;
         row = merak_options_next(&walk))
        merak_nearest_offer(nearest, row->name);
}

/* `others` may be NULL. */
static enum merak_status unknown_option(const struct merak_option_table *table,
                                        const struct merak_option_table *others,
                                        const char *arg,
                                        struct merak_error *err)
{
    struct merak_nearest nearest;
    char text[MERAK_NEAREST_TEXT];
    const char *word;
    size_t after = 0;

    merak_nearest_init(&nearest, arg);
    offer_names(table, &nearest);
    if (others != NULL)
        offer_names(others, &nearest);
    while (nearest.name == NULL &&
           (word = merak_option_word(arg, &after)) != NULL) {
        if (find_row(table, word, strlen(word), NULL) != NULL ||
            (others != NULL &&
             find_row(others, word, strlen(word), NULL) != NULL))
            nearest.name = word;
    }
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "unknown option \"%.60s\"%s; --help lists them", arg,
                      merak_nearest_text(&nearest, text, sizeof(text)));
}

/* Is the next argument, if there is one, the row's value?  A word that begins
 * with dashes is none for FILE, and for others if it is an option's name: the
 * value was forgotten, or stands after "=".  `others` may be NULL. */
static bool takes_next(const struct merak_option_table *table,
                       const struct merak_option_table *others,
                       const struct merak_option *row, int argc, char **argv,
                       int at)
{
    const char *next = at + 1 < argc ? argv[at + 1] : NULL;

    if (is_flag(row) || own_value(argv[at]) != NULL || next == NULL)
        return false;
    if (strncmp(next, "--", 2) != 0)
        return true;
    return row->kind != MERAK_OPTION_FILE &&
           row_of(table, next, NULL) == NULL &&
           (others == NULL || row_of(others, next, NULL) == NULL);
}

static enum merak_status needs_value(const struct merak_option *row,
                                     struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG, "--%s needs a value", row->name);
}

/* The option at argv[*at], and its value if that is the next argument. */
static enum merak_status parse_one(const struct merak_option_table *table,
                                   const struct merak_option_table *others,
                                   int argc, char **argv, int *at, void *target,
                                   struct merak_error *err)
{
    const char *arg = argv[*at], *value = own_value(arg);
    size_t base;
    const struct merak_option *row = row_of(table, arg, &base);

    if (row == NULL)
        return unknown_option(table, NULL, arg, err);
    if (is_flag(row) && value != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG, "--%s takes no value",
                          row->name);
    if (takes_next(table, others, row, argc, argv, *at))
        value = argv[++*at];
    else if (row->kind == MERAK_OPTION_FILE && value == NULL)
        value = "-";
    else if (!is_flag(row) && value == NULL)
        return needs_value(row, err);
    return store_given(row, value, (char *)target + base, err);
}

static bool is_help(const char *arg)
{
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

enum merak_status merak_options_parse(const struct merak_option_table *table,
                                      int argc, char **argv, void *target,
                                      bool *help_p, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 1; i < argc && rc == MERAK_OK; i++) {
        if (is_help(argv[i])) {
            *help_p = true;
            return MERAK_OK;
        }
        rc = parse_one(table, NULL, argc, argv, &i, target, err);
    }
    return rc;
}

enum merak_status merak_options_words(const struct merak_option_table *table,
                                      bool first_ends, int *argc, char **argv,
                                      void *target, bool *help_p,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    bool ended = false;
    int left = 1;

    for (int i = 1; i < *argc && rc == MERAK_OK && !*help_p; i++) {
        if (!ended && strcmp(argv[i], "--") == 0) {
            ended = true;
        } else if (ended || argv[i][0] != '-' || argv[i][1] == '\0') {
            argv[left++] = argv[i];
            ended = ended || first_ends;
        } else if (is_help(argv[i])) {
            *help_p = true;
        } else {
            rc = parse_one(table, NULL, *argc, argv, &i, target, err);
        }
    }
    if (rc == MERAK_OK) {
        argv[left] = NULL;
        *argc = left;
    }
    return rc;
}

enum merak_status merak_options_take(const struct merak_option_table *table,
                                     const struct merak_option_table *others,
                                     int *argc, char **argv, void *target,
                                     bool *help_p, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    int left = 1;

    for (int i = 1; i < *argc && rc == MERAK_OK; i++) {
        const struct merak_option *other = row_of(others, argv[i], NULL);

        if (is_help(argv[i])) {
            *help_p = true;
        } else if (row_of(table, argv[i], NULL) != NULL) {
            rc = parse_one(table, others, *argc, argv, &i, target, err);
        } else if (other == NULL) {
            rc = unknown_option(table, others, argv[i], err);
        } else {
            bool two = takes_next(table, others, other, *argc, argv, i);

            if (!two && !is_flag(other) && own_value(argv[i]) == NULL &&
                other->kind != MERAK_OPTION_FILE)
                rc = needs_value(other, err);
            argv[left++] = argv[i];
            if (two)
                argv[left++] = argv[++i];
        }
    }
    if (rc == MERAK_OK) {
        argv[left] = NULL;
        *argc = left;
    }
    return rc;
}

enum merak_status merak_options_set(const struct merak_option_table *table,
                                    const char *name, const char *text,
                                    void *target, struct merak_error *err)
{
    size_t base;
    const struct merak_option *row = find_row(table, name, strlen(name), &base);

    return row == NULL ? MERAK_ERR_NOT_FOUND
                       : store_given(row, text, (char *)target + base, err);
}

/* --- help ----------------------------------------------------------------- */

static const char *argument_of(const struct merak_option *row)
{
    if (row->arg != NULL)
        return row->arg;
    switch (row->kind) {
    case MERAK_OPTION_TEXT:
        return "TEXT";
    case MERAK_OPTION_NAME:
        return "NAME";
    case MERAK_OPTION_WORD:
    case MERAK_OPTION_BOOL:
        return row->words;
    case MERAK_OPTION_YES:
    case MERAK_OPTION_NO:
        return "";
    case MERAK_OPTION_FILE:
        return "[FILE]";
    case MERAK_OPTION_REAL:
    case MERAK_OPTION_FLOAT:
        return "X";
    case MERAK_OPTION_GRID:
        return "AxB";
    default:
        return "N";
    }
}

/* Print words between the second column and the last, from `column` on. */
static void print_about(const char *about, int column, FILE *out)
{
    while (*about != '\0') {
        int n = (int)strcspn(about, " ");

        if (column > ABOUT_COLUMN && column + 1 + n > LAST_COLUMN)
            column = fprintf(out, "\n%*s", ABOUT_COLUMN, "") - 1;
        else if (column > ABOUT_COLUMN)
            column += fprintf(out, " ");
        column += fprintf(out, "%.*s", n, about);
        about += n + (about[n] == ' ');
    }
    fputc('\n', out);
}

void merak_options_names(const struct merak_option_table *table, char *text,
                         size_t bytes)
{
    struct merak_option_walk walk = {.table = table};
    const struct merak_option *row;
    size_t at = 0;

    text[0] = '\0';
    for (row = merak_options_next(&walk); row != NULL && at < bytes;
         row = merak_options_next(&walk))
        at += (size_t)snprintf(text + at, bytes - at, "%s%s",
                               at > 0 ? ", " : "", row->name);
}

void merak_options_help(const struct merak_option_table *table, FILE *out)
{
    struct merak_option_walk walk = {.table = table};
    const struct merak_option *row;

    for (row = merak_options_next(&walk); row != NULL;
         row = merak_options_next(&walk)) {
        int column;

        if (walk.group != NULL)
            fprintf(out, "%s%s:\n", walk.next > 1 ? "\n" : "", walk.group);
        column = row->letter != 0 ? fprintf(out, "  -%c,", row->letter)
                                  : fprintf(out, " ");
        column += fprintf(out, " --%s %s", row->name, argument_of(row));
        if (column + 1 < ABOUT_COLUMN)
            column += fprintf(out, "%*s", ABOUT_COLUMN - column, "");
        else
            column = fprintf(out, "\n%*s", ABOUT_COLUMN, "") - 1;
        print_about(row->about, column, out);
    }
}
