/* SPDX-License-Identifier: Apache-2.0 */
/* option_file.c - options from a file, and into one
 *
 * The file is a subset of TOML: a line is empty, a comment, a [table] (whose
 * name is ignored), or `name = value`, where the value is a number, true or
 * false, a word, or a string in "" or ''.  Strings in "" may have \" and \\.
 * Numbers may have _ between digits.
 */
#include "config.h"

#include "base/options.h"

#include "base/error.h"
#include "base/factors.h"
#include "base/nearest.h"
#include "base/open.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((size_t)1 << 20)

struct reader {
    const char *path;
    const struct merak_option_table *const *tables;
    int n_tables, line;
    char *out; /* "--name=value" strings, one after the other */
    size_t used;
    int n;
    struct merak_error *err;
};

static enum merak_status bad(const struct reader *r, const char *what)
{
    return merak_fail(r->err, MERAK_ERR_CONFIG, "%.120s:%d: %s", r->path,
                      r->line, what);
}

static bool same_name(const char *option, const char *name, size_t n)
{
    if (strlen(option) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (option[i] != (name[i] == '_' ? '-' : name[i]))
            return false;
    }
    return true;
}

static const struct merak_option *find(const struct reader *r, const char *name,
                                       size_t n)
{
    for (int t = 0; t < r->n_tables; t++) {
        struct merak_option_walk walk = {.table = r->tables[t]};
        const struct merak_option *row = merak_options_next(&walk);

        while (row != NULL && !same_name(row->name, name, n))
            row = merak_options_next(&walk);
        if (row != NULL)
            return row;
    }
    return NULL;
}

static enum merak_status unknown(const struct reader *r, const char *name,
                                 size_t n)
{
    char arg[64], text[MERAK_NEAREST_TEXT];
    struct merak_nearest nearest;

    snprintf(arg, sizeof(arg), "--%.*s", n < 40 ? (int)n : 40, name);
    merak_nearest_init(&nearest, arg);
    for (int t = 0; t < r->n_tables; t++) {
        struct merak_option_walk walk = {.table = r->tables[t]};
        const struct merak_option *row;

        for (row = merak_options_next(&walk); row != NULL;
             row = merak_options_next(&walk))
            merak_nearest_offer(&nearest, row->name);
    }
    return merak_fail(r->err, MERAK_ERR_CONFIG, "%.120s:%d: no option \"%s\"%s",
                      r->path, r->line, arg + 2,
                      merak_nearest_text(&nearest, text, sizeof(text)));
}

/* Is only what a line may have after its value left? */
static bool is_end(const char *at)
{
    at += strspn(at, " \t\r");
    return *at == '\0' || *at == '#';
}

static enum merak_status read_string(struct reader *r, const char *at)
{
    char quote = *at++;

    for (; *at != quote; at++) {
        if (*at == '\0')
            return bad(r, "the string has no end");
        if (quote == '"' && *at == '\\' && (at[1] == '"' || at[1] == '\\'))
            at++;
        r->out[r->used++] = *at;
    }
    return is_end(at + 1) ? MERAK_OK
                          : bad(r, "expected nothing after the string");
}

static enum merak_status read_word(struct reader *r, const char *at)
{
    size_t n = strcspn(at, " \t\r#");

    if (n == 0 || strchr("[{", *at) != NULL)
        return bad(r, "expected a number, a word, or a string in quotes");
    if (!is_end(at + n))
        return bad(r, "a value of several words goes in quotes");
    for (size_t i = 0; i < n; i++) {
        if (at[i] == '_' && i > 0 && at[0] >= '0' && at[0] <= '9')
            continue;
        r->out[r->used++] = at[i];
    }
    return MERAK_OK;
}

/* A flag that is true becomes an option without a value. */
static enum merak_status read_flag(struct reader *r, size_t start,
                                   const char *at)
{
    if (strncmp(at, "true", 4) == 0 && is_end(at + 4)) {
        r->out[r->used++] = '\0';
        r->n++;
        return MERAK_OK;
    }
    r->used = start;
    return strncmp(at, "false", 5) == 0 && is_end(at + 5)
               ? MERAK_OK
               : bad(r, "expected true or false");
}

/* Map TOML's true and false to the words yes and no. */
static const char *plain(const struct merak_option *row, const char *at)
{
    if (row->words == NULL || strncmp(row->words, "no|yes", 6) != 0)
        return at;
    if (strncmp(at, "true", 4) == 0 && is_end(at + 4))
        return "yes";
    return strncmp(at, "false", 5) == 0 && is_end(at + 5) ? "no" : at;
}

static enum merak_status read_line(struct reader *r, const char *line)
{
    size_t n, start = r->used;
    const struct merak_option *row;
    const char *at = line + strspn(line, " \t\r");
    enum merak_status rc;

    if (is_end(at))
        return MERAK_OK;
    if (*at == '[')
        return strchr(at, ']') != NULL && is_end(strchr(at, ']') + 1)
                   ? MERAK_OK
                   : bad(r, "expected [NAME]");
    n = strcspn(at, " \t\r=#");
    row = find(r, at, n);
    if (row == NULL || strcmp(row->name, "config") == 0)
        return unknown(r, at, n);
    at += n + strspn(at + n, " \t");
    if (*at != '=')
        return bad(r, "expected NAME = VALUE");
    at = plain(row, at + 1 + strspn(at + 1, " \t"));
    r->used += (size_t)sprintf(r->out + r->used, "--%s", row->name);
    if (row->kind == MERAK_OPTION_YES || row->kind == MERAK_OPTION_NO)
        return read_flag(r, start, at);
    r->out[r->used++] = '=';
    rc = *at == '"' || *at == '\'' ? read_string(r, at) : read_word(r, at);
    r->out[r->used++] = '\0';
    r->n++;
    return rc;
}

/* A line grows at most by the dashes, the = and its terminator, and by one word
 * replacing another. */
static size_t room_for(const char *text)
{
    size_t lines = 1;

    for (const char *at = text; *at != '\0'; at++)
        lines += *at == '\n';
    return strlen(text) + 8 * lines + 1;
}

static enum merak_status read_lines(struct reader *r, char *text)
{
    enum merak_status rc = MERAK_OK;
    char *next;

    r->out = malloc(room_for(text));
    if (r->out == NULL)
        return merak_fail_nomem(r->err, room_for(text));
    for (char *line = text; line != NULL && rc == MERAK_OK; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        r->line++;
        rc = read_line(r, line);
    }
    return rc;
}

static enum merak_status read_file(struct reader *r)
{
    char *text = malloc(MOST_BYTES);
    FILE *file = NULL;
    const char *why = merak_fopen_regular(r->path, &file);
    enum merak_status rc;
    size_t n;

    if (text == NULL || why != NULL) {
        rc = why != NULL ? merak_fail(r->err, MERAK_ERR_CONFIG,
                                      "--config %.150s: %s", r->path, why)
                         : merak_fail_nomem(r->err, MOST_BYTES);
        goto out;
    }
    n = fread(text, 1, MOST_BYTES - 1, file);
    text[n] = '\0';
    if (ferror(file) || n == MOST_BYTES - 1 || strlen(text) != n)
        rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                        "--config %.150s: cannot be read, or is not text",
                        r->path);
    else
        rc = read_lines(r, text);
out:
    if (file != NULL)
        fclose(file);
    free(text);
    return rc;
}

/* The file that --config names, removed from argv; NULL: none.  `missing`: the
 * option has no value. */
static const char *take_config(int *argc, char **argv, bool *missing)
{
    const char *path = NULL;
    int left = 1;

    for (int i = 1; i < *argc; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0) {
            path = argv[i] + 9;
        } else if (strcmp(argv[i], "--config") == 0) {
            *missing = i + 1 == *argc;
            path = *missing ? NULL : argv[++i];
        } else {
            argv[left++] = argv[i];
        }
    }
    argv[left] = NULL;
    *argc = left;
    return path;
}

/* Join argv[0], the file's options and the others. */
static enum merak_status join(const struct reader *r, int *argc, char ***argv,
                              char **text_p)
{
    size_t pointers = (size_t)(*argc + r->n + 1) * sizeof(char *);
    char *block = malloc(pointers + r->used + 1), **all, *at;

    if (block == NULL)
        return merak_fail_nomem(r->err, pointers + r->used);
    all = (char **)(void *)block;
    at = block + pointers;
    memcpy(at, r->out, r->used);
    all[0] = (*argv)[0];
    for (int i = 0; i < r->n; i++, at += strlen(at) + 1)
        all[1 + i] = at;
    memcpy(all + 1 + r->n, *argv + 1, (size_t)*argc * sizeof(*all));
    *argc += r->n;
    *argv = all;
    *text_p = block;
    return MERAK_OK;
}

enum merak_status
merak_options_expand(const struct merak_option_table *const *tables, int n,
                     int *argc, char ***argv, char **text_p,
                     struct merak_error *err)
{
    struct reader r = {.tables = tables, .n_tables = n, .err = err};
    bool missing = false;
    enum merak_status rc;

    *text_p = NULL;
    r.path = take_config(argc, *argv, &missing);
    if (missing)
        return merak_fail(err, MERAK_ERR_CONFIG, "--config needs a value");
    if (r.path == NULL)
        return MERAK_OK;
    rc = read_file(&r);
    if (rc == MERAK_OK)
        rc = join(&r, argc, argv, text_p);
    free(r.out);
    return rc;
}

/* --- saving --------------------------------------------------------------- */

static void save_string(const char *text, FILE *out)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void save_word(const struct merak_option *row, int index, FILE *out)
{
    const char *word = row->words;

    for (; index > 0; index--)
        word += strcspn(word, "|") + 1;
    fprintf(out, "\"%.*s\"", (int)strcspn(word, "|"), word);
}

/* Write the shortest text that reads as the same number. */
static void save_real(double value, bool narrow, FILE *out)
{
    char text[40];

    for (int digits = 1; digits <= 17; digits++) {
        double back;

        snprintf(text, sizeof(text), "%.*g", digits, value);
        back = strtod(text, NULL);
        if (narrow ? (float)back == (float)value : back == value)
            break;
    }
    fputs(text, out);
}

static void save_value(const struct merak_option *row, const void *field,
                       FILE *out)
{
    double unit = row->unit > 0 ? row->unit : 1;
    char factors[MERAK_FACTORS_TEXT];

    switch (row->kind) {
    case MERAK_OPTION_TEXT:
    case MERAK_OPTION_FILE:
        save_string(*(const char *const *)field, out);
        break;
    case MERAK_OPTION_NAME:
        save_string(field, out);
        break;
    case MERAK_OPTION_INT:
        if (*(const int *)field == MERAK_OPTION_AUTO)
            fprintf(out, "\"%s\"", row->words);
        else
            fprintf(out, "%d", *(const int *)field);
        break;
    case MERAK_OPTION_GRID:
        if (*(const int64_t *)field == MERAK_OPTION_AUTO)
            fprintf(out, "\"%s\"", row->words);
        else
            fprintf(out, "\"%s\"",
                    merak_factors_text(*(const int64_t *)field, "x", factors));
        break;
    case MERAK_OPTION_SIZE:
        fprintf(out, "%zu", *(const size_t *)field);
        break;
    case MERAK_OPTION_REAL:
        save_real(*(const double *)field / unit, false, out);
        break;
    case MERAK_OPTION_FLOAT:
        save_real((double)*(const float *)field / unit, true, out);
        break;
    case MERAK_OPTION_WORD:
        save_word(row, *(const int *)field, out);
        break;
    case MERAK_OPTION_BOOL:
        save_word(row, *(const bool *)field, out);
        break;
    case MERAK_OPTION_YES:
    case MERAK_OPTION_NO:
        fputs("true", out);
        break;
    default:
        fprintf(out, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    }
}

/* Is it not set: no text, a flag that was not given, a number below the
 * option's bounds? */
static bool is_unset(const struct merak_option *row, const void *field)
{
    switch (row->kind) {
    case MERAK_OPTION_CALL:
        return true;
    case MERAK_OPTION_TEXT:
    case MERAK_OPTION_FILE:
        return *(const char *const *)field == NULL;
    case MERAK_OPTION_NAME:
        return *(const char *)field == '\0';
    case MERAK_OPTION_YES:
        return !*(const bool *)field;
    case MERAK_OPTION_NO:
        return *(const bool *)field;
    case MERAK_OPTION_INT:
        return *(const int *)field == 0 && row->least > 0;
    case MERAK_OPTION_SIZE:
        return *(const size_t *)field == 0 && row->least > 0;
    case MERAK_OPTION_GRID:
        return *(const int64_t *)field == 0;
    case MERAK_OPTION_REAL:
        return *(const double *)field == 0 && row->positive;
    case MERAK_OPTION_FLOAT:
        return (*(const float *)field == 0 && row->positive) ||
               (double)*(const float *)field < row->least;
    default:
        return false;
    }
}

void merak_options_save(const struct merak_option_table *table,
                        const void *target, FILE *out)
{
    struct merak_option_walk walk = {.table = table};
    const struct merak_option *row;

    for (row = merak_options_next(&walk); row != NULL;
         row = merak_options_next(&walk)) {
        const void *field = (const char *)target + walk.base + row->at;

        if (walk.group != NULL)
            fprintf(out, "%s[%s]\n", walk.next > 1 ? "\n" : "", walk.group);
        if (is_unset(row, field))
            continue;
        fprintf(out, "%s = ", row->name);
        save_value(row, field, out);
        fputc('\n', out);
    }
}
