/* SPDX-License-Identifier: Apache-2.0 */
/* base/options.h - a table of options: parsed, bounded, stored, documented
 *
 * A program's options are one const table; a row gives the offset of its value
 * in the program's own struct.  `--name value` and `--name=value` are the same.
 * A mistake is MERAK_ERR_CONFIG with the option, what was given and what was
 * expected, in one line.
 */
#ifndef MERAK_BASE_OPTIONS_H
#define MERAK_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "merak/status.h"

enum merak_option_kind {
    MERAK_OPTION_TEXT,  /* const char *: the argument itself, not a copy */
    MERAK_OPTION_NAME,  /* char[MERAK_OPTION_NAME_BYTES] */
    MERAK_OPTION_INT,   /* int */
    MERAK_OPTION_SIZE,  /* size_t */
    MERAK_OPTION_COUNT, /* uint64_t */
    MERAK_OPTION_REAL,  /* double */
    MERAK_OPTION_FLOAT, /* float */
    MERAK_OPTION_WORD,  /* int or an enum: index in `words`, "a|b|c"; dtypes
                           also as PyTorch and safetensors call them */
    MERAK_OPTION_GRID,  /* int64_t: a product, "2x4" (base/factors.h) */
    MERAK_OPTION_BOOL,  /* bool: index in `words`, which are two */
    MERAK_OPTION_YES,   /* bool, set to true: no value */
    MERAK_OPTION_NO,    /* bool, set to false: no value */
    MERAK_OPTION_FILE,  /* const char *; without a value (the end, or another
                           option follows) it is "-" */
    MERAK_OPTION_CALL,  /* `set` stores it */
    MERAK_OPTION_ROWS,  /* not an option: stands for `rows`, whose values are in
                           the part of the target that begins at `at` */
};

enum { MERAK_OPTION_NAME_BYTES = 32 };
/* What INT and GRID store for their word. */
enum { MERAK_OPTION_AUTO = -1 };

struct merak_option {
    const char *name;
    enum merak_option_kind kind;
    size_t at;         /* of the value in the target */
    const char *about; /* in the help: one sentence without a period */
    const char *words; /* WORD, BOOL; INT, GRID: NULL or one, as "auto"; REAL:
                          NULL or one that is stored as 0, as "none" */
    double least;      /* bounds of numbers; reals with least 0 have to be */
    double most;       /* positive if `positive`; most 0: that of the type */
    bool positive;
    /* TEXT: "" is a value. */
    bool may_be_empty;
    double unit;     /* REAL: stored times this; 0: 1 */
    size_t given;    /* offset of a bool in the target, set if the option is
                        given; 0: none */
    const char *arg; /* in the help: "N", "FILE"; NULL: by kind */
    const char *of;  /* what a number counts, for messages: "GiB"; or NULL */
    /* CALL: store text, which lives as long as argv, in the target. */
    enum merak_status (*set)(void *target, const char *text,
                             struct merak_error *err);
    const struct merak_option *rows; /* ROWS: the first of n_rows rows, */
    size_t n_rows, stride;           /* `stride` bytes apart; none of them is
                                        ROWS */
    const char *group; /* the help's heading above this row, or NULL */
    char letter;       /* 'o': -o is the same; 0: none */
};

struct merak_option_table {
    const struct merak_option *row;
    size_t n;
};

/* An iterator over a table's rows, and over those that ROWS stand for.  To
 * begin, set the table and all other fields to 0. */
struct merak_option_walk {
    const struct merak_option_table *table;
    const struct merak_option *rows; /* one of ROWS, or NULL */
    size_t next, next_inner;
    size_t base; /* offset of the part of the target that has the values */
    const char *group; /* whose first row this is, or NULL */
};
/* The next row; NULL after the last. */
const struct merak_option *merak_options_next(struct merak_option_walk *w);

/*
 * Parse argv[1..argc) into *target.  --help and -h set *help_p and end parsing.
 * An argument that is not an option is an error.
 */
enum merak_status merak_options_parse(const struct merak_option_table *table,
                                      int argc, char **argv, void *target,
                                      bool *help_p,
                                      struct merak_error *err) MERAK_CHECKED;
/*
 * The same with words among the options: arguments that do not begin with a -,
 * or are a single -, and all after a "--".  They are left in argv[1 .. *argc),
 * in their order.
 *
 *   first_ends  all after the first word, a command, are words, too
 */
enum merak_status merak_options_words(const struct merak_option_table *table,
                                      bool first_ends, int *argc, char **argv,
                                      void *target, bool *help_p,
                                      struct merak_error *err) MERAK_CHECKED;
/*
 * The same for options among those of another table: they are stored and
 * removed from argv, the others stay in their order.  An option in neither
 * table is an error; values of `others` are not checked.
 */
enum merak_status merak_options_take(const struct merak_option_table *table,
                                     const struct merak_option_table *others,
                                     int *argc, char **argv, void *target,
                                     bool *help_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Store one value, given as name and text: for "name=value" lists.
 * MERAK_ERR_NOT_FOUND, err untouched, if there is no such row. */
enum merak_status merak_options_set(const struct merak_option_table *table,
                                    const char *name, const char *text,
                                    void *target,
                                    struct merak_error *err) MERAK_CHECKED;
/* "tp, pp, dp": the names of all options, truncated to `bytes`. */
void merak_options_names(const struct merak_option_table *table, char *text,
                         size_t bytes);
/*
 * Put options of a file before those of argv, which override them: `--config
 * FILE` is removed, and each line `name = value` of FILE, in a subset of TOML
 * (see option_file.c), becomes `--name=value` after argv[0].  Names are those
 * of the tables, with _ allowed for -.
 *
 *   argc, argv  in, out   unchanged if there is no --config
 *   text_p      out       storage of the new values; free() it when the options
 *                         are no longer used; NULL: none
 *
 * MERAK_ERR_CONFIG names the file and the line.
 */
enum merak_status
merak_options_expand(const struct merak_option_table *const *tables, int n,
                     int *argc, char ***argv, char **text_p,
                     struct merak_error *err) MERAK_CHECKED;
/* Write the table's options as such a file, with their values in target; those
 * that are not set, and those of kind CALL, are left out. */
void merak_options_save(const struct merak_option_table *table,
                        const void *target, FILE *out);
/* Print two columns: the options with their arguments, and what they do. */
void merak_options_help(const struct merak_option_table *table, FILE *out);

#endif
