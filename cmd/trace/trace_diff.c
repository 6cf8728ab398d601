/* SPDX-License-Identifier: Apache-2.0 */
/* trace_diff.c - `merak trace diff`: where two runs' steps differ */
#include "config.h"

#include "cmd/trace/trace_verbs.h"

#include "io/json_real.h"
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

/* --- JSON -------------------------------------------------------------- */

static json_t *json_side(const struct side *side)
{
    json_t *root = trace_json_run(side->trace);

    json_object_update_new(
        root,
        json_pack("{s:b, s:o, s:o}", "predicted", side->name[0] != '\0',
                  "steps", trace_json_steps(side->steps.step, side->steps.n),
                  "mean", trace_json_split(&side->mean)));
    return root;
}

/* The median of a call; null where a side has none. */
static json_t *json_median(const struct merak_trace_sum *sum)
{
    return sum == NULL ? json_null() : merak_json_real(sum->median_s * 1e3);
}

static json_t *json_change(const struct merak_trace_change *c)
{
    const struct merak_trace_sum *any = c->a != NULL ? c->a : c->b;

    return json_pack("{s:i, s:s, s:s, s:o, s:o, s:o}", "stage", any->stage,
                     "kind", kind_of(any), "op", any->op, "a_median_ms",
                     json_median(c->a), "b_median_ms", json_median(c->b),
                     "delta_ms", merak_json_real(c->delta_s * 1e3));
}

static json_t *json_of(const struct side *a, const struct side *b,
                       const struct merak_trace_change *changes, size_t shown)
{
    json_t *all = json_array();

    for (size_t i = 0; i < shown; i++)
        json_array_append_new(all, json_change(&changes[i]));
    return json_pack("{s:o, s:o, s:o}", "a", json_side(a), "b", json_side(b),
                     "changes", all);
}

/* --- comparing --------------------------------------------------------- */

static void print(const struct side *a, const struct side *b,
                  const struct merak_trace_change *changes, size_t n,
                  size_t shown)
{
    print_parts(a, b);
    printf("\n%5s %-9s %-24s %10s %10s %7s %11s\n", "STAGE", "KIND", "OP",
           "A med us", "B med us", "B / A", "B - A ms");
    for (size_t i = 0; i < shown; i++)
        print_change(&changes[i]);
    if (n > shown)
        printf("%zu more; --top N shows N\n", n - shown);
}

static int compare(const struct trace_options *opt, struct side *a,
                   struct side *b)
{
    struct merak_error err = {.status = MERAK_ERR_NOMEM,
                              .text = "out of memory"};
    struct merak_trace_change *changes = NULL;
    size_t n = 0, shown;
    enum merak_status rc = take_side(a, &err);
    int code;

    if (rc == MERAK_OK)
        rc = take_side(b, &err);
    if (rc == MERAK_OK)
        rc = merak_trace_diff(a->sums, a->n_sums, b->sums, b->n_sums, &changes,
                              &n, &err);
    shown = n < (size_t)opt->top ? n : (size_t)opt->top;
    if (rc != MERAK_OK) {
        code = trace_failed(opt, rc, &err);
    } else if (opt->json) {
        code = trace_flushed_json(opt, json_of(a, b, changes, shown));
    } else {
        print(a, b, changes, n, shown);
        code = trace_flushed(opt);
    }
    free(changes);
    free(a->sums);
    free(b->sums);
    return code;
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
