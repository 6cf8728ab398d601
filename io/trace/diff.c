/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c - comparing two traced steps */
#include "config.h"

#include "io/trace/diff.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- sums ------------------------------------------------------------------
 */

struct sample {
    struct merak_trace_sum of; /* the sum that this call belongs to */
    double busy_s;
};

static int compare_sums(const struct merak_trace_sum *x,
                        const struct merak_trace_sum *y)
{
    if (x->stage != y->stage)
        return x->stage < y->stage ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->phase != y->phase)
        return x->phase < y->phase ? -1 : 1;
    if (x->again != y->again)
        return x->again < y->again ? -1 : 1;
    return strcmp(x->op, y->op);
}

static int compare_samples(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    int order = compare_sums(&x->of, &y->of);

    return order != 0 ? order
                      : (x->busy_s > y->busy_s) - (x->busy_s < y->busy_s);
}

static struct sample sample_of(const struct merak_trace_rank *rank,
                               const struct merak_trace_span *span)
{
    const struct merak_trace_record *rec = span->record;
    const struct merak_trace_planned *planned =
        rank->planned == NULL ? NULL : &rank->planned[rec->instr];

    return (struct sample){
        .of = {.op = planned != NULL && planned->op[0] != '\0'
                         ? planned->op
                         : rank->names[rec->instr],
               .stage = rank->info.stage,
               .kind = rec->kind,
               .phase = rec->phase,
               .again = planned != NULL && planned->again},
        .busy_s = (double)(span->end_ns - span->start_ns) * 1e-9};
}

static enum merak_status add_step(const struct merak_trace_rank *ranks, int n,
                                  int32_t step, struct sample *samples,
                                  size_t *count, struct merak_error *err)
{
    struct merak_trace_view *view;
    enum merak_status rc = merak_trace_view_create(ranks, n, step, &view, err);

    if (rc != MERAK_OK)
        return rc;
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < view->rank[r].n; i++)
            samples[(*count)++] = sample_of(&ranks[r], &view->rank[r].span[i]);
    }
    merak_trace_view_destroy(view);
    return MERAK_OK;
}

static int ranks_of_stage(const struct merak_trace_rank *ranks, int n,
                          int stage)
{
    int count = 0;

    for (int r = 0; r < n; r++)
        count += ranks[r].info.stage == stage;
    return count;
}

/* The samples of one sum, shortest first. */
static struct merak_trace_sum sum_up(const struct sample *s, size_t n,
                                     double steps_and_ranks)
{
    struct merak_trace_sum sum = s[0].of;

    sum.calls = n;
    sum.median_s = (s[(n - 1) / 2].busy_s + s[n / 2].busy_s) / 2;
    for (size_t i = 0; i < n; i++)
        sum.total_s += s[i].busy_s;
    sum.total_s /= steps_and_ranks;
    return sum;
}

enum merak_status merak_trace_sums(const struct merak_trace_rank *ranks, int n,
                                   const int32_t *steps, int n_steps,
                                   struct merak_trace_sum **sums_p, size_t *n_p,
                                   struct merak_error *err)
{
    struct merak_trace_sum *sums = NULL;
    struct sample *samples;
    size_t most = 1, count = 0, kept = 0, end;
    enum merak_status rc = MERAK_OK;

    for (int r = 0; r < n; r++)
        most += ranks[r].n;
    samples = malloc(most * sizeof(*samples));
    sums = malloc(most * sizeof(*sums));
    if (samples == NULL || sums == NULL)
        rc = merak_fail_nomem(err, most * sizeof(*samples));
    for (int i = 0; i < n_steps && rc == MERAK_OK; i++)
        rc = add_step(ranks, n, steps[i], samples, &count, err);
    if (rc != MERAK_OK) {
        free(samples);
        free(sums);
        return rc;
    }
    qsort(samples, count, sizeof(*samples), compare_samples);
    for (size_t i = 0; i < count; i = end) {
        int members = ranks_of_stage(ranks, n, samples[i].of.stage);

        for (end = i + 1; end < count; end++) {
            if (compare_sums(&samples[end].of, &samples[i].of) != 0)
                break;
        }
        sums[kept++] = sum_up(&samples[i], end - i, (double)n_steps * members);
    }
    free(samples);
    *sums_p = sums;
    *n_p = kept;
    return MERAK_OK;
}

/* --- the difference --------------------------------------------------------
 */

static int largest_first(const void *a, const void *b)
{
    const struct merak_trace_change *x = a, *y = b;
    double dx = fabs(x->delta_s), dy = fabs(y->delta_s);

    if (dx != dy)
        return dx > dy ? -1 : 1;
    return compare_sums(x->a != NULL ? x->a : x->b, y->a != NULL ? y->a : y->b);
}

enum merak_status merak_trace_diff(const struct merak_trace_sum *a, size_t n_a,
                                   const struct merak_trace_sum *b, size_t n_b,
                                   struct merak_trace_change **changes_p,
                                   size_t *n_p, struct merak_error *err)
{
    struct merak_trace_change *changes =
        calloc(n_a + n_b + 1, sizeof(*changes));
    size_t n = 0, i = 0, j = 0;

    if (changes == NULL)
        return merak_fail_nomem(err, (n_a + n_b + 1) * sizeof(*changes));
    while (i < n_a || j < n_b) {
        int order = i == n_a ? 1 : j == n_b ? -1 : compare_sums(&a[i], &b[j]);
        struct merak_trace_change *c = &changes[n++];
        double delta_s;

        c->a = order <= 0 ? &a[i++] : NULL;
        c->b = order >= 0 ? &b[j++] : NULL;
        delta_s = (c->b != NULL ? c->b->total_s : 0) -
                  (c->a != NULL ? c->a->total_s : 0);
        /* Round to nanoseconds, as in records: sums have rounding errors. */
        c->delta_s = (double)llround(delta_s * 1e9) * 1e-9;
    }
    qsort(changes, n, sizeof(*changes), largest_first);
    *changes_p = changes;
    *n_p = n;
    return MERAK_OK;
}
