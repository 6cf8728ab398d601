/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/trace/trace_verbs.h - shared by the verbs of `merak trace`
 *
 * Each run_VERB() prints its own errors, one line, and returns the exit code.
 */
#ifndef MERAK_CMD_TRACE_TRACE_H
#define MERAK_CMD_TRACE_TRACE_H

#include "io/trace/summary.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct trace_options {
    const char *verb, *dir, *other; /* other: diff's second run, or NULL */
    const char *out;
    bool text, has_step, predicted, json;
    int step, top;
};

struct trace {
    const char *dir; /* borrowed */
    struct merak_trace_rank *rank;
    int n;
    int32_t *step; /* in all ranks */
    int n_steps;
};

/* The steps to examine: part of a trace's list, or a single one. */
struct trace_steps {
    const int32_t *step;
    int n;
    int32_t one;
};

int trace_run_summary(const struct trace_options *opt,
                      const struct trace *trace);
int trace_run_svg(const struct trace_options *opt, const struct trace *trace);
int trace_run_perfetto(const struct trace_options *opt,
                       const struct trace *trace);
int trace_run_plan(const struct trace_options *opt, const struct trace *trace);
int trace_run_diff(const struct trace_options *opt, const struct trace *trace);

/* Load a run's trace, or the prediction in it.  Returns MERAK_EXIT_DONE, or
 * the exit code after printing the error.  Unload it either way. */
int trace_load(const struct trace_options *opt, const char *dir,
               struct trace *trace);
int trace_load_predicted(const struct trace_options *opt,
                         const struct trace *from, struct trace *trace);
void trace_unload(struct trace *trace);

/* The requested step, or all kept ones except the first, which includes page
 * faults and first touches.  If it was not kept, prints a line and returns
 * false. */
bool trace_choose_steps(const struct trace_options *opt,
                        const struct trace *trace, struct trace_steps *steps);
/* The requested step, or the last. */
bool trace_choose_one(const struct trace_options *opt,
                      const struct trace *trace, int32_t *step_p);
/* " 1, 2, .. 100" */
void trace_print_steps(FILE *out, const int32_t *step, int n);
/* "run: 4 ranks, tp 1, .." and a newline. */
void trace_print_run(const struct trace *trace);

int trace_failed(const struct trace_options *opt, enum merak_status rc,
                 const struct merak_error *err);
/* Flush standard output; returns the exit code. */
int trace_flushed(const struct trace_options *opt);
/* The same after printing one line of JSON, whose reference it takes. */
int trace_flushed_json(const struct trace_options *opt, json_t *root);

/* New references: the run's degrees and so on; steps; a split in ms. */
json_t *trace_json_run(const struct trace *trace);
json_t *trace_json_steps(const int32_t *step, int n);
json_t *trace_json_split(const struct merak_trace_split *split);

#endif
