/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/ckpt/ckpt_verbs.h - the verbs of `merak ckpt`, and their shared
 * functions
 *
 * Each ckpt_run_VERB() gets argv from its name on, prints its own errors, one
 * line, and returns the exit code.
 */
#ifndef MERAK_CMD_CKPT_CKPT_VERBS_H
#define MERAK_CMD_CKPT_CKPT_VERBS_H

#include "base/options.h"
#include "base/progress.h"
#include "io/ckpt/ckpt_impl.h"
#include "runtime/runtime.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Exit code of diff, as in diff(1). */
enum { CKPT_EXIT_DIFFERENT = 1 };

struct ckpt_verb {
    const char *name;
    const char *arguments; /* after the verb in the usage */
    const char *about;
    const struct merak_option_table *options;
    int (*run)(int argc, char **argv);
};
extern const struct ckpt_verb ckpt_verb[];
extern const int ckpt_n_verbs;

extern const struct merak_option_table ckpt_ls_options, ckpt_show_options,
    ckpt_verify_options, ckpt_diff_options, ckpt_reshard_options,
    ckpt_prune_options, ckpt_import_options, ckpt_export_options;
int ckpt_run_ls(int argc, char **argv);
int ckpt_run_show(int argc, char **argv);
int ckpt_run_verify(int argc, char **argv);
int ckpt_run_diff(int argc, char **argv);
int ckpt_run_reshard(int argc, char **argv);
int ckpt_run_prune(int argc, char **argv);
int ckpt_run_import(int argc, char **argv);
int ckpt_run_export(int argc, char **argv);

/* --- command lines ------------------------------------------------------- */

/* The words of a command line that are neither options nor their values. */
enum { CKPT_MOST_WORDS = 2 };
struct ckpt_words {
    const char *word[CKPT_MOST_WORDS]; /* NULL: not given */
};
/*
 * Parse argv, whose words may be anywhere among its options.
 *
 *   least, most  the number of words
 *   what         what they are, for messages: "a directory"
 *
 * MERAK_EXIT_DONE, or the exit code after printing what is wrong.
 */
int ckpt_parse(const struct merak_option_table *table, void *target, int argc,
               char **argv, int least, int most, const char *what,
               struct ckpt_words *words);

/* --- output -------------------------------------------------------------- */

/* Print the error as one line; returns the exit code of its status. */
int ckpt_failed(const char *verb, enum merak_status rc,
                const struct merak_error *err);
/* Flush output, as the last thing: returns `code`, or that of a failure. */
int ckpt_flushed(const char *verb, int code);
/* The same after printing one line of JSON, whose reference it takes; NULL:
 * out of memory. */
int ckpt_flushed_json(const char *verb, json_t *root, int code);

/* "1.2 GB"; buf of 16. */
const char *ckpt_size_text(char *buf, uint64_t bytes);
uint64_t ckpt_total_bytes(const struct merak_ckpt_manifest *mf);
/* When a checkpoint was committed: in local time, or in UTC as ISO 8601; "?"
 * if unknown. buf of 32. */
const char *ckpt_time_text(char *buf, const char *dir, bool iso);

#endif
