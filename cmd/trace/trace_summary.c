/* SPDX-License-Identifier: Apache-2.0 */
/* trace_summary.c - `merak trace summary`: how a step spent its time */
#include "config.h"

#include "cmd/trace/trace_verbs.h"

#include "base/error.h"
#include "io/json_real.h"
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

/* What there is to say about the steps; summary_fini(). */
struct summary {
    const struct trace *trace;
    struct trace_steps steps;
    struct merak_trace_split *split; /* by rank */
    struct merak_trace_split plan;   /* of the mean rank */
    bool has_plan;
    char bound[MERAK_BOUND_BYTES];
    struct merak_trace_busy *busy;
    size_t n_busy;
};

/* No error if the trace has no prediction. */
static enum merak_status take_plan(struct summary *sum, struct merak_error *err)
{
    const struct trace *trace = sum->trace;
    struct merak_trace_rank *predicted;
    const int32_t step = 0;
    struct merak_trace_split *plan;
    enum merak_status rc;

    if (merak_trace_predicted(trace->rank, trace->n, &predicted, err) !=
        MERAK_OK)
        return MERAK_OK;
    plan = calloc((size_t)trace->n, sizeof(*plan));
    rc = plan == NULL
             ? merak_fail_nomem(err, (size_t)trace->n * sizeof(*plan))
             : merak_trace_split(predicted, trace->n, &step, 1, plan, err);
    if (rc == MERAK_OK)
        merak_trace_split_mean(plan, trace->n, &sum->plan);
    sum->has_plan = rc == MERAK_OK;
    free(plan);
    merak_trace_unload(predicted, trace->n);
    return rc;
}

static enum merak_status take(struct summary *sum, struct merak_error *err)
{
    const struct merak_trace_rank *rank = sum->trace->rank;
    const int32_t *step = sum->steps.step;
    int n = sum->trace->n, n_steps = sum->steps.n;
    enum merak_status rc;

    sum->split = calloc((size_t)n, sizeof(*sum->split));
    if (sum->split == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*sum->split));
    rc = merak_trace_split(rank, n, step, n_steps, sum->split, err);
    if (rc == MERAK_OK)
        rc = take_plan(sum, err);
    if (rc == MERAK_OK)
        rc = merak_trace_bound(rank, n, step, n_steps, sum->split, sum->bound,
                               err);
    if (rc == MERAK_OK)
        rc = merak_trace_busiest(rank, n, step, n_steps, &sum->busy,
                                 &sum->n_busy, err);
    return rc;
}

static void summary_fini(struct summary *sum)
{
    free(sum->split);
    free(sum->busy);
}

/* How many times as long as predicted the step took. */
static double over_plan(const struct summary *sum)
{
    return sum->plan.step_s > 0 ? sum->split[0].step_s / sum->plan.step_s : 0;
}

static void print_plan(const struct summary *sum)
{
    print_row("plan", "", &sum->plan);
    printf("the step took %.3f times as long as predicted; see `merak "
           "trace diff %s --predicted`\n",
           over_plan(sum), sum->trace->dir);
}

static void print_busiest(const struct summary *sum, int top)
{
    double total = 0;

    for (size_t i = 0; i < sum->n_busy; i++)
        total += sum->busy[i].total_s;
    printf("\n%-40s %12s %6s %8s %12s\n", "BUSIEST INSTRUCTIONS", "ms A STEP",
           "SHARE", "CALLS", "MEAN us");
    for (size_t i = 0; i < sum->n_busy && i < (size_t)top; i++) {
        const struct merak_trace_busy *busy = &sum->busy[i];

        printf("%-40s %12.3f %5.1f%% %8zu %12.1f\n", busy->name,
               busy->total_s * 1e3 / sum->steps.n,
               total > 0 ? 100 * busy->total_s / total : 0, busy->calls,
               busy->total_s * 1e6 / (double)busy->calls);
    }
}

/* --- saves ------------------------------------------------------------- */

/* A step is saved by all ranks or none. */
struct saved {
    int64_t step;
    uint64_t bytes;
    double stall_s, write_s, committed_s;
    int slowest; /* rank */
};

/* The saves that all ranks know of. */
static size_t count_saves(const struct trace *trace)
{
    size_t n = trace->rank[0].n_saves;

    for (int r = 1; r < trace->n; r++)
        n = trace->rank[r].n_saves < n ? trace->rank[r].n_saves : n;
    return n;
}

static struct saved take_save(const struct trace *trace, size_t i)
{
    struct saved saved = {.step = trace->rank[0].saves[i].step};

    for (int r = 0; r < trace->n; r++) {
        const struct merak_trace_save *s = &trace->rank[r].saves[i];
        double stall = (double)(s->resumed_ns - s->start_ns) * 1e-9;
        double write = (double)(s->written_ns - s->start_ns) * 1e-9;

        saved.bytes += s->bytes;
        saved.stall_s = stall > saved.stall_s ? stall : saved.stall_s;
        if (write > saved.write_s) {
            saved.write_s = write;
            saved.slowest = trace->rank[r].info.rank;
        }
        if (s->committed_ns >= 0)
            saved.committed_s = (double)(s->committed_ns - s->start_ns) * 1e-9;
    }
    return saved;
}

static void print_saves(const struct trace *trace)
{
    size_t n = count_saves(trace);

    if (n == 0)
        return;
    printf("\n%8s %10s %10s %10s %8s %12s\n", "SAVED AT", "MB", "STALL ms",
           "WRITE s", "SLOWEST", "COMMITTED s");
    for (size_t i = 0; i < n; i++) {
        struct saved s = take_save(trace, i);

        printf("%8lld %10.1f %10.3f %10.3f %8d %12.3f\n", (long long)s.step,
               (double)s.bytes * 1e-6, s.stall_s * 1e3, s.write_s, s.slowest,
               s.committed_s);
    }
}

static void print(const struct summary *sum, int top)
{
    print_header(sum->trace, &sum->steps);
    print_ranks(sum->trace, sum->split);
    if (sum->has_plan)
        print_plan(sum);
    if (sum->bound[0] != '\0')
        printf("%s\n", sum->bound);
    print_busiest(sum, top);
    print_saves(sum->trace);
}

/* --- JSON -------------------------------------------------------------- */

static json_t *json_ranks(const struct summary *sum)
{
    json_t *all = json_array();

    for (int r = 0; r < sum->trace->n; r++) {
        const struct merak_trace_info *info = &sum->trace->rank[r].info;
        json_t *one =
            json_pack("{s:i, s:i}", "rank", info->rank, "stage", info->stage);

        json_object_update_new(one, trace_json_split(&sum->split[r]));
        json_array_append_new(all, one);
    }
    return all;
}

static json_t *json_busiest(const struct summary *sum, int top)
{
    json_t *all = json_array();

    for (size_t i = 0; i < sum->n_busy && i < (size_t)top; i++) {
        const struct merak_trace_busy *busy = &sum->busy[i];
        double ms = busy->total_s * 1e3;

        json_array_append_new(
            all, json_pack("{s:s, s:o, s:I, s:o}", "name", busy->name,
                           "step_ms", merak_json_real(ms / sum->steps.n),
                           "calls", (json_int_t)busy->calls, "mean_ms",
                           merak_json_real(ms / (double)busy->calls)));
    }
    return all;
}

static json_t *json_saves(const struct trace *trace)
{
    json_t *all = json_array();

    for (size_t i = 0; i < count_saves(trace); i++) {
        struct saved s = take_save(trace, i);

        json_array_append_new(
            all,
            json_pack("{s:I, s:I, s:o, s:o, s:i, s:o}", "step",
                      (json_int_t)s.step, "bytes", (json_int_t)s.bytes,
                      "stall_ms", merak_json_real(s.stall_s * 1e3), "write_s",
                      merak_json_real(s.write_s), "slowest", s.slowest,
                      "committed_s", merak_json_real(s.committed_s)));
    }
    return all;
}

static json_t *json_of(const struct summary *sum, int top)
{
    const struct trace *trace = sum->trace;
    struct merak_trace_split mean;
    json_t *root = trace_json_run(trace);

    merak_trace_split_mean(sum->split, trace->n, &mean);
    json_object_update_new(
        root, json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "kept",
                        trace_json_steps(trace->step, trace->n_steps), "steps",
                        trace_json_steps(sum->steps.step, sum->steps.n),
                        "by_rank", json_ranks(sum), "mean",
                        trace_json_split(&mean), "bound", sum->bound, "busiest",
                        json_busiest(sum, top), "saves", json_saves(trace)));
    if (sum->has_plan)
        json_object_update_new(
            root, json_pack("{s:o, s:o}", "plan", trace_json_split(&sum->plan),
                            "over_plan", merak_json_real(over_plan(sum))));
    return root;
}

int trace_run_summary(const struct trace_options *opt,
                      const struct trace *trace)
{
    struct summary sum = {.trace = trace};
    struct merak_error err;
    enum merak_status rc;
    int code;

    if (!trace_choose_steps(opt, trace, &sum.steps))
        return MERAK_EXIT_CONFIG;
    rc = take(&sum, &err);
    if (rc != MERAK_OK) {
        code = trace_failed(opt, rc, &err);
    } else if (opt->json) {
        code = trace_flushed_json(opt, json_of(&sum, opt->top));
    } else {
        print(&sum, opt->top);
        code = trace_flushed(opt);
    }
    summary_fini(&sum);
    return code;
}
