/* SPDX-License-Identifier: Apache-2.0 */
/* trace_summary.c - `merak trace summary`: how a step spent its time */
#include "config.h"

#include "cmd/trace/trace_verbs.h"

#include "io/trace/bound.h"

#include <stdlib.h>

static void print_header(const struct trace *trace,
                         const struct trace_steps *steps)
{
    trace_print_run(trace);
    printf("steps kept:");
    trace_print_steps(stdout, trace->step, trace->n_steps);
    printf("\nmean of steps:");
    trace_print_steps(stdout, steps->step, steps->n);
    printf("\n\n");
}

static void print_row(const char *rank, const char *stage,
                      const struct merak_trace_split *s)
{
    double percent = s->step_s > 0 ? 100.0 / s->step_s : 0;

    printf("%6s %5s %9.3f %9.3f %3.0f%% %8.3f %3.0f%% %8.3f %8.3f %3.0f%% "
           "%8.3f %3.0f%%\n",
           rank, stage, s->step_s * 1e3, s->compute_s * 1e3,
           s->compute_s * percent, s->exposed_s * 1e3, s->exposed_s * percent,
           s->hidden_s * 1e3, s->wait_s * 1e3, s->wait_s * percent,
           s->idle_s * 1e3, s->idle_s * percent);
}

static void print_ranks(const struct trace *trace,
                        const struct merak_trace_split *split)
{
    struct merak_trace_split mean;
    char rank[16], stage[16];

    printf("%6s %5s %9s %14s %13s %8s %13s %13s\n", "RANK", "STAGE", "STEP ms",
           "COMPUTE ms", "EXPOSED ms", "HIDDEN", "WAIT ms", "IDLE ms");
    for (int r = 0; r < trace->n; r++) {
        snprintf(rank, sizeof(rank), "%d", trace->rank[r].info.rank);
        snprintf(stage, sizeof(stage), "%d", trace->rank[r].info.stage);
        print_row(rank, stage, &split[r]);
    }
    merak_trace_split_mean(split, trace->n, &mean);
    if (trace->n > 1)
        print_row("mean", "", &mean);
}

/* Prints nothing if the trace has no prediction. */
static enum merak_status print_predicted(const struct trace *trace,
                                         const struct merak_trace_split *split,
                                         struct merak_error *err)
{
    struct merak_trace_rank *predicted;
    const int32_t step = 0;
    struct merak_trace_split mean, *plan;
    enum merak_status rc;

    if (merak_trace_predicted(trace->rank, trace->n, &predicted, err) !=
        MERAK_OK)
        return MERAK_OK;
    plan = calloc((size_t)trace->n, sizeof(*plan));
    rc = plan == NULL
             ? MERAK_ERR_NOMEM
             : merak_trace_split(predicted, trace->n, &step, 1, plan, err);
    if (rc == MERAK_OK) {
        merak_trace_split_mean(plan, trace->n, &mean);
        print_row("plan", "", &mean);
        printf("the step took %.3f times as long as predicted; see `merak "
               "trace diff %s --predicted`\n",
               mean.step_s > 0 ? split[0].step_s / mean.step_s : 0, trace->dir);
    }
    free(plan);
    merak_trace_unload(predicted, trace->n);
    return rc;
}

static enum merak_status print_bound(const struct trace *trace,
                                     const struct trace_steps *steps,
                                     const struct merak_trace_split *split,
                                     struct merak_error *err)
{
    char text[MERAK_BOUND_BYTES];
    enum merak_status rc = merak_trace_bound(trace->rank, trace->n, steps->step,
                                             steps->n, split, text, err);

    if (rc == MERAK_OK && text[0] != '\0')
        printf("%s\n", text);
    return rc;
}

static enum merak_status print_busiest(const struct trace_options *opt,
                                       const struct trace *trace,
                                       const struct trace_steps *steps,
                                       struct merak_error *err)
{
    struct merak_trace_busy *busy = NULL;
    double total = 0;
    size_t n;
    enum merak_status rc = merak_trace_busiest(
        trace->rank, trace->n, steps->step, steps->n, &busy, &n, err);

    if (rc != MERAK_OK)
        return rc;
    for (size_t i = 0; i < n; i++)
        total += busy[i].total_s;
    printf("\n%-40s %12s %6s %8s %12s\n", "BUSIEST INSTRUCTIONS", "ms A STEP",
           "SHARE", "CALLS", "MEAN us");
    for (size_t i = 0; i < n && i < (size_t)opt->top; i++)
        printf("%-40s %12.3f %5.1f%% %8zu %12.1f\n", busy[i].name,
               busy[i].total_s * 1e3 / steps->n,
               total > 0 ? 100 * busy[i].total_s / total : 0, busy[i].calls,
               busy[i].total_s * 1e6 / (double)busy[i].calls);
    free(busy);
    return MERAK_OK;
}

/* A step is saved by all ranks or none; the table names the slowest. */
static void print_save(const struct trace *trace, size_t i)
{
    double stall_s = 0, write_s = 0, committed_s = 0;
    uint64_t bytes = 0;
    int slowest = 0;

    for (int r = 0; r < trace->n; r++) {
        const struct merak_trace_save *s = &trace->rank[r].saves[i];
        double stall = (double)(s->resumed_ns - s->start_ns) * 1e-9;
        double write = (double)(s->written_ns - s->start_ns) * 1e-9;

        bytes += s->bytes;
        stall_s = stall > stall_s ? stall : stall_s;
        if (write > write_s) {
            write_s = write;
            slowest = trace->rank[r].info.rank;
        }
        if (s->committed_ns >= 0)
            committed_s = (double)(s->committed_ns - s->start_ns) * 1e-9;
    }
    printf("%8lld %10.1f %10.3f %10.3f %8d %12.3f\n",
           (long long)trace->rank[0].saves[i].step, (double)bytes * 1e-6,
           stall_s * 1e3, write_s, slowest, committed_s);
}

static void print_saves(const struct trace *trace)
{
    size_t n = trace->rank[0].n_saves;

    for (int r = 1; r < trace->n; r++)
        n = trace->rank[r].n_saves < n ? trace->rank[r].n_saves : n;
    if (n == 0)
        return;
    printf("\n%8s %10s %10s %10s %8s %12s\n", "SAVED AT", "MB", "STALL ms",
           "WRITE s", "SLOWEST", "COMMITTED s");
    for (size_t i = 0; i < n; i++)
        print_save(trace, i);
}

int trace_run_summary(const struct trace_options *opt,
                      const struct trace *trace)
{
    struct merak_trace_split *split;
    struct merak_error err = {.status = MERAK_ERR_NOMEM,
                              .text = "out of memory"};
    enum merak_status rc = MERAK_ERR_NOMEM;
    struct trace_steps steps;

    if (!trace_choose_steps(opt, trace, &steps))
        return MERAK_EXIT_CONFIG;
    split = calloc((size_t)trace->n, sizeof(*split));
    if (split != NULL)
        rc = merak_trace_split(trace->rank, trace->n, steps.step, steps.n,
                               split, &err);
    if (rc == MERAK_OK) {
        print_header(trace, &steps);
        print_ranks(trace, split);
        rc = print_predicted(trace, split, &err);
    }
    if (rc == MERAK_OK)
        rc = print_bound(trace, &steps, split, &err);
    if (rc == MERAK_OK)
        rc = print_busiest(opt, trace, &steps, &err);
    if (rc == MERAK_OK)
        print_saves(trace);
    free(split);
    return rc == MERAK_OK ? trace_flushed(opt) : trace_failed(opt, rc, &err);
}
