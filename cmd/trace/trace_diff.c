/* SPDX-License-Identifier: Apache-2.0 */
/* trace_diff.c - `merak trace diff`: where two runs' steps differ */
#include "config.h"

#include "cmd/trace/trace_verbs.h"

#include "io/trace/diff.h"
#include "partitioner/program/program.h"

#include <stdlib.h>

/* One of the two runs. */
struct side {
    const char *name; /* before the run's own line */
    const struct trace *trace;
    struct trace_steps steps;
    struct merak_trace_split mean; /* over ranks and steps */
    struct merak_trace_sum *sums;
    size_t n_sums;
};

static enum merak_status take_side(struct side *side, struct merak_error *err)
{
    const struct trace *t = side->trace;
    struct merak_trace_split *split = calloc((size_t)t->n, sizeof(*split));
    enum merak_status rc = MERAK_ERR_NOMEM;

    if (split != NULL)
        rc = merak_trace_split(t->rank, t->n, side->steps.step, side->steps.n,
                               split, err);
    if (rc == MERAK_OK) {
        merak_trace_split_mean(split, t->n, &side->mean);
        rc = merak_trace_sums(t->rank, t->n, side->steps.step, side->steps.n,
                              &side->sums, &side->n_sums, err);
    }
    free(split);
    return rc;
}

static void print_part(const char *what, double a, double b, double of)
{
    printf("%-10s %11.3f %11.3f %+11.3f", what, a * 1e3, b * 1e3,
           (b - a) * 1e3);
    if (a > 0)
        printf(" %7.3f", b / a);
    else
        printf(" %7s", "-");
    if (of != 0)
        printf(" %6.1f%%", 100 * (b - a) / of);
    putchar('\n');
}

/* Print the parts of a step's difference, which add up to it. */
static void print_parts(const struct side *a, const struct side *b)
{
    const struct merak_trace_split *x = &a->mean, *y = &b->mean;
    double of = y->step_s - x->step_s;

    printf("A: %s", a->name);
    trace_print_run(a->trace);
    printf("B: %s", b->name);
    trace_print_run(b->trace);
    printf("\n%-10s %11s %11s %11s %7s %7s\n", "mean rank", "A ms", "B ms",
           "B - A ms", "B / A", "SHARE");
    print_part("step", x->step_s, y->step_s, of);
    print_part("  compute", x->compute_s, y->compute_s, of);
    print_part("  exposed", x->exposed_s, y->exposed_s, of);
    print_part("  wait", x->wait_s, y->wait_s, of);
    print_part("  idle", x->idle_s, y->idle_s, of);
    print_part("(hidden)", x->hidden_s, y->hidden_s, 0);
}

static const char *kind_of(const struct merak_trace_sum *sum)
{
    if (sum->kind != MERAK_INSTR_KERNEL)
        return merak_trace_kind_name(sum->kind);
    return sum->again ? "recompute" : merak_trace_phase_name(sum->phase);
}

static void print_change(const struct merak_trace_change *c)
{
    const struct merak_trace_sum *any = c->a != NULL ? c->a : c->b;

    printf("%5d %-9s %-24.24s", any->stage, kind_of(any), any->op);
    if (c->a != NULL)
        printf(" %10.1f", c->a->median_s * 1e6);
    else
        printf(" %10s", "-");
    if (c->b != NULL)
        printf(" %10.1f", c->b->median_s * 1e6);
    else
        printf(" %10s", "-");
    if (c->a != NULL && c->b != NULL && c->a->median_s > 0)
        printf(" %7.3f", c->b->median_s / c->a->median_s);
    else
        printf(" %7s", "-");
    printf(" %+11.3f\n", c->delta_s * 1e3);
}

static enum merak_status print_changes(const struct trace_options *opt,
                                       const struct side *a,
                                       const struct side *b,
                                       struct merak_error *err)
{
    struct merak_trace_change *changes = NULL;
    size_t n = 0;
    enum merak_status rc = merak_trace_diff(a->sums, a->n_sums, b->sums,
                                            b->n_sums, &changes, &n, err);

    if (rc != MERAK_OK)
        return rc;
    printf("\n%5s %-9s %-24s %10s %10s %7s %11s\n", "STAGE", "KIND", "OP",
           "A med us", "B med us", "B / A", "B - A ms");
    for (size_t i = 0; i < n && i < (size_t)opt->top; i++)
        print_change(&changes[i]);
    if (n > (size_t)opt->top)
        printf("%zu more; --top N shows N\n", n - (size_t)opt->top);
    free(changes);
    return MERAK_OK;
}

static int compare(const struct trace_options *opt, struct side *a,
                   struct side *b)
{
    struct merak_error err = {.status = MERAK_ERR_NOMEM,
                              .text = "out of memory"};
    enum merak_status rc = take_side(a, &err);

    if (rc == MERAK_OK)
        rc = take_side(b, &err);
    if (rc == MERAK_OK) {
        print_parts(a, b);
        rc = print_changes(opt, a, b, &err);
    }
    free(a->sums);
    free(b->sums);
    return rc == MERAK_OK ? trace_flushed(opt) : trace_failed(opt, rc, &err);
}

/* A is the plan, or the first run given; B is the other run. */
int trace_run_diff(const struct trace_options *opt, const struct trace *trace)
{
    struct trace other = {0};
    struct side first = {.name = "", .trace = trace};
    struct side second = {.name = "", .trace = &other};
    int code;

    code = opt->predicted ? trace_load_predicted(opt, trace, &other)
                          : trace_load(opt, opt->other, &other);
    if (code != MERAK_EXIT_DONE)
        goto out;
    code = MERAK_EXIT_CONFIG;
    if (!trace_choose_steps(opt, trace, &first.steps))
        goto out;
    if (opt->predicted) {
        second.name = "predicted for ";
        second.steps = (struct trace_steps){other.step, other.n_steps, 0};
        code = compare(opt, &second, &first);
    } else if (trace_choose_steps(opt, &other, &second.steps)) {
        code = compare(opt, &first, &second);
    }
out:
    trace_unload(&other);
    return code;
}
