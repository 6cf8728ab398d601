/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/parts.h - packing in parts, by several tasks or in several runs
 *
 * The inputs are cut into parts, of which each is packed into files of its own
 * in the folder PREFIX.parts, and the last task joins them.  Tasks do not talk
 * to each other; what they agree on are files there:
 *
 *   plan.json      the inputs, options and parts; made by who comes first,
 *                  and compared by all others, also of later runs
 *   N-HOST-PID.*   the tokens of part N, if it has any (pack.h, Megatron's)
 *   N-PLAN.json    part N is complete: which files these are, and what was
 *                  counted in it
 *   here-RUN-I-N   task I of N has packed its parts in this run
 *   joining        who joins them
 *
 * A task of a step that was ended may live on beside the next step's: no file
 * that is complete is ever changed.  Part N is of task N modulo the number of
 * tasks.  A part that is complete is
 * not packed again, whoever did it: so a run goes on where an earlier one was
 * ended, with any number of tasks.  Which parts there are makes no difference
 * to what they are joined to.
 */
#ifndef MERAK_IO_TOKENS_PARTS_H
#define MERAK_IO_TOKENS_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/tokens/pack.h"
#include "merak/status.h"

struct merak_part {
    size_t input;        /* its number */
    uint64_t begin, end; /* lines that begin there; end 0: all of it */
};

struct merak_parts {
    char *folder, *id; /* of the plan */
    char *run;         /* what tells this run from others, a word */
    struct merak_part *part;
    size_t n;
    int64_t now; /* the time that the plan was made */
};

typedef uint64_t (*merak_parts_cut_fn)(const char *path, const char *key);

/*
 * Make the plan, or read it and compare.
 *
 *   facts   what has to be the same for all tasks and runs, an object; errors
 *           name its keys
 *   inputs  paths
 *   cut     how many bytes of an input can be cut into parts, 0: it is one;
 *           called with key, as merak_documents_cut_bytes() is
 *
 * MERAK_ERR_MISMATCH if the folder has a plan for something else.
 */
enum merak_status merak_parts_open(const char *prefix, const json_t *facts,
                                   size_t n_inputs, char *const *inputs,
                                   merak_parts_cut_fn cut, const char *key,
                                   int n_tasks, struct merak_parts *parts,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_parts_close(struct merak_parts *parts);
/* Where this process writes part i's token files: to be freed, NULL without
 * memory. */
char *merak_parts_prefix(const struct merak_parts *parts, size_t i);
/* What was counted in part i, a new reference; NULL: it is not complete. */
json_t *merak_parts_counts(const struct merak_parts *parts, size_t i);
/* Part i is complete, its files, if any, are on disk: adds "files" to the
 * counts. */
enum merak_status merak_parts_done(const struct merak_parts *parts, size_t i,
                                   json_t *counts,
                                   struct merak_error *err) MERAK_CHECKED;
/*
 * This task has packed its parts.  *joins_p: all are complete, all tasks have
 * come here, and nobody else joins them: the caller has to.
 *   *left_p  parts that are not complete
 */
enum merak_status merak_parts_arrive(const struct merak_parts *parts, int task,
                                     int n_tasks, bool *joins_p, size_t *left_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Append the documents of a part with these counts, and their mask if there is
 * one. */
enum merak_status merak_parts_join(const struct merak_parts *parts,
                                   const json_t *counts, size_t vocab,
                                   struct merak_pack *pack,
                                   struct merak_error *err) MERAK_CHECKED;
/* Has somebody else joined them meanwhile? */
bool merak_parts_are_joined(const struct merak_parts *parts);
/* After joining: remove the folder. */
enum merak_status merak_parts_remove(const struct merak_parts *parts,
                                     struct merak_error *err) MERAK_CHECKED;

#endif
