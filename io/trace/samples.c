/* SPDX-License-Identifier: Apache-2.0 */
/* samples.c - measurements of the device from a traced run
 *
 * Records of the compute queue are consecutive without gaps, so a kernel's
 * time is its record's.  An exchange or a transfer costs a step more than its
 * record shows: the communication thread has to be woken before it, and
 * whatever waits for it after it.  So its time is counted
 *
 *   from  the end of what the rank did last before it was started; the latest
 *         of all members, and not before the end of the queue's previous
 *         exchange, as in the simulator;
 *   to    its end; or, if nothing was computed then and nothing else ended
 *         before, the start of what was computed next; the latest of all
 *         members.
 *
 * In a chain of kernels and exchanges these add up to the step, and waiting
 * for a late peer does not count.
 */
#include "config.h"

#include "io/trace/samples.h"

#include "base/bisect.h"
#include "base/error.h"
#include "io/trace/sharers.h"
#include "io/trace/view.h"
#include "partitioner/program/program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_AMOUNT 1e24 /* FLOPs or bytes of an instruction */

/* The counted time of a record with peers, on its rank. */
struct part {
    int64_t from, to;
};

struct sampling {
    const struct merak_trace_rank *ranks;
    int n;
    struct merak_refine *refine;
    struct merak_trace_uses uses; /* of a step */
    int **class; /* [rank][instr] number of its class, -1: not known yet */
    struct merak_error *err;
};

/* --- a rank's step -------------------------------------------------------- */

static bool computes(const struct merak_trace_span *span)
{
    return span->record->queue == MERAK_QUEUE_COMPUTE;
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The times of a lane, ascending. */
struct times {
    int64_t *end;   /* of all records */
    int64_t *begin; /* of those of the compute queue */
    int64_t *over;  /* their ends */
    size_t n, n_compute;
};

/* How many of n ascending times are at most t. */
static size_t upto(const int64_t *time, size_t n, int64_t t)
{
    size_t i;

    MERAK_BISECT(i, 0, n, time[i] > t);
    return i;
}

static bool times_init(const struct merak_trace_lane *lane, struct times *t)
{
    *t = (struct times){.end = calloc(3 * lane->n + 1, sizeof(int64_t))};
    if (t->end == NULL)
        return false;
    t->begin = t->end + lane->n;
    t->over = t->begin + lane->n;
    for (size_t i = 0; i < lane->n; i++) {
        const struct merak_trace_record *rec = lane->span[i].record;

        t->end[t->n++] = rec->end_ns;
        if (!computes(&lane->span[i]))
            continue;
        t->begin[t->n_compute] = rec->start_ns;
        t->over[t->n_compute++] = rec->end_ns;
    }
    qsort(t->end, t->n, sizeof(int64_t), compare_times);
    qsort(t->begin, t->n_compute, sizeof(int64_t), compare_times);
    qsort(t->over, t->n_compute, sizeof(int64_t), compare_times);
    return true;
}

static int64_t began(const struct times *t, int64_t start)
{
    size_t n = upto(t->end, t->n, start);

    return n == 0 ? start : t->end[n - 1];
}

static int64_t noticed(const struct times *t, int64_t end)
{
    size_t started = upto(t->begin, t->n_compute, end);
    size_t ended = upto(t->over, t->n_compute, end), all;

    if (started > ended || started == t->n_compute)
        return end; /* something is being computed, or nothing follows */
    all = upto(t->end, t->n, end);
    if (all < t->n && t->end[all] <= t->begin[started])
        return end; /* the next kernel waited for that instead */
    return t->begin[started];
}

/* --- classes -------------------------------------------------------------- */

static enum merak_convert_kind convert_of(const char *op)
{
    for (int k = MERAK_CONVERT_ALL_REDUCE; k <= MERAK_CONVERT_HALO; k++) {
        if (strcmp(op, merak_convert_name((enum merak_convert_kind)k)) == 0)
            return (enum merak_convert_kind)k;
    }
    return MERAK_CONVERT_ALL_GATHER;
}

static void fill_class(const struct merak_trace_rank *rank, int instr,
                       uint8_t kind, struct merak_sample_class *class)
{
    const struct merak_trace_planned *planned = &rank->planned[instr];
    const struct merak_trace_cost *cost = &rank->cost[instr];

    *class = (struct merak_sample_class){.kind = MERAK_SAMPLE_COPY,
                                         .size = {.bytes = cost->bytes},
                                         .inside = cost->inside};
    if (kind == MERAK_INSTR_KERNEL) {
        class->kind = MERAK_SAMPLE_KERNEL;
        class->size.flops = cost->flops;
        class->size.width = cost->width;
        class->size.reuse = cost->reuse;
        class->tp = cost->tp;
        memcpy(class->op, planned->op, sizeof(class->op));
    } else if (kind == MERAK_INSTR_EXCHANGE) {
        class->kind = MERAK_SAMPLE_EXCHANGE;
        class->convert = convert_of(planned->op);
        class->n = -planned->second;
    } else if (kind == MERAK_INSTR_SEND || kind == MERAK_INSTR_RECV) {
        class->kind = MERAK_SAMPLE_TRANSFER;
        class->n = 2;
    }
}

static enum merak_status class_of(struct sampling *s, int r,
                                  const struct merak_trace_record *rec,
                                  int *id_p)
{
    int *at = &s->class[r][rec->instr];
    struct merak_sample_class class;
    enum merak_status rc = MERAK_OK;

    if (*at < 0) {
        fill_class(&s->ranks[r], rec->instr, rec->kind, &class);
        rc = merak_refine_class(s->refine, &class, at, s->err);
    }
    *id_p = *at;
    return rc;
}

/* --- steps ---------------------------------------------------------------- */

static void join(struct merak_trace_event *event, const struct part *part,
                 int class)
{
    if (event->members == 0 || part->from > event->from)
        event->from = part->from;
    if (event->members == 0 || part->to > event->to)
        event->to = part->to;
    event->members++;
    event->class = class;
}

/* A transfer is over when it is received, and that is noticed. */
static void add_part(const struct merak_trace_span *span,
                     const struct times *times,
                     int64_t queue_free[MERAK_QUEUE_COUNT],
                     struct merak_trace_event *event, int class)
{
    const struct merak_trace_record *rec = span->record;
    int64_t *free_ns = &queue_free[rec->queue % MERAK_QUEUE_COUNT];
    struct part part = {began(times, rec->start_ns),
                        noticed(times, rec->end_ns)};

    if (rec->kind == MERAK_INSTR_SEND)
        part.to = INT64_MIN;
    if (rec->kind == MERAK_INSTR_EXCHANGE) {
        if (*free_ns > part.from)
            part.from = *free_ns;
        if (rec->end_ns > *free_ns)
            *free_ns = rec->end_ns;
    }
    join(event, &part, class);
}

/* Add its uses of its node's uplink, if data goes to other nodes. */
static enum merak_status add_uses(struct sampling *s, int r,
                                  const struct merak_trace_record *rec,
                                  int event, int class)
{
    const struct merak_trace_rank *rank = &s->ranks[r];
    int node = rank->info.ranks_per_node, members;
    enum merak_status rc = MERAK_OK;

    members = merak_refine_members(s->refine, class);
    if (node == 0 || rank->cost[rec->instr].inside >= members)
        return MERAK_OK;
    node = rank->info.rank / node;
    if (rec->kind != MERAK_INSTR_RECV)
        rc = merak_trace_use(&s->uses, 2 * node, event, s->err);
    if (rc == MERAK_OK && rec->kind != MERAK_INSTR_SEND)
        rc = merak_trace_use(&s->uses, 2 * node + 1, event, s->err);
    return rc;
}

static enum merak_status sample_lane(struct sampling *s, int r,
                                     const struct merak_trace_view *view,
                                     struct merak_trace_event *events)
{
    const struct merak_trace_lane *lane = &view->rank[r];
    int64_t queue_free[MERAK_QUEUE_COUNT];
    enum merak_status rc = MERAK_OK;
    struct times times;

    if (!times_init(lane, &times))
        return merak_fail_nomem(s->err, 3 * lane->n * sizeof(int64_t));
    for (int q = 0; q < MERAK_QUEUE_COUNT; q++)
        queue_free[q] = INT64_MIN;
    for (size_t i = 0; i < lane->n && rc == MERAK_OK; i++) {
        const struct merak_trace_span *span = &lane->span[i];
        const struct merak_trace_record *rec = span->record;
        int class;

        rc = class_of(s, r, rec, &class);
        if (rc != MERAK_OK)
            break;
        if (span->event >= 0) {
            add_part(span, &times, queue_free, &events[span->event], class);
            rc = add_uses(s, r, rec, span->event, class);
        } else if (rec->kind == MERAK_INSTR_KERNEL ||
                   rec->kind == MERAK_INSTR_LOAD ||
                   rec->kind == MERAK_INSTR_SLICE)
            merak_refine_add(s->refine, class,
                             (double)(rec->end_ns - rec->start_ns) * 1e-9, 1);
    }
    free(times.end);
    return rc;
}

/* Add the events of which the trace has all members. */
static void add_events(struct sampling *s,
                       const struct merak_trace_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        const struct merak_trace_event *e = &events[i];
        int all =
            e->members == 0 ? -1 : merak_refine_members(s->refine, e->class);

        if (e->members == all)
            merak_refine_add(s->refine, e->class,
                             fmax((double)(e->to - e->from) * 1e-9, 0),
                             e->sharers);
    }
}

static enum merak_status sample_step(struct sampling *s, int32_t number)
{
    struct merak_trace_view *view = NULL;
    struct merak_trace_event *events = NULL;
    enum merak_status rc =
        merak_trace_view_create(s->ranks, s->n, number, &view, s->err);

    if (rc != MERAK_OK)
        return rc;
    events = calloc((size_t)view->n_events + 1, sizeof(*events));
    if (events == NULL)
        rc = merak_fail_nomem(s->err, sizeof(*events));
    for (int r = 0; r < s->n && rc == MERAK_OK; r++)
        rc = sample_lane(s, r, view, events);
    if (rc == MERAK_OK)
        rc = merak_trace_share(&s->uses, events, view->n_events, s->err);
    s->uses.n = 0;
    if (rc == MERAK_OK)
        add_events(s, events, view->n_events);
    free(events);
    merak_trace_view_destroy(view);
    return rc;
}

/* --- which steps ---------------------------------------------------------- */

struct length {
    int32_t step;
    int64_t ns;
};

static int by_length(const void *a, const void *b)
{
    const struct length *x = a, *y = b;

    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

static enum merak_status measure_steps(const struct sampling *s,
                                       const int32_t *step, int n,
                                       struct length *length)
{
    struct merak_trace_view *view;

    for (int i = 0; i < n; i++) {
        enum merak_status rc =
            merak_trace_view_create(s->ranks, s->n, step[i], &view, s->err);

        if (rc != MERAK_OK)
            return rc;
        length[i] = (struct length){step[i], view->end_ns - view->start_ns};
        merak_trace_view_destroy(view);
    }
    qsort(length, (size_t)n, sizeof(*length), by_length);
    return MERAK_OK;
}

/* The middle third. */
static enum merak_status sample_steps(struct sampling *s, const int32_t *step,
                                      int n, struct merak_trace_samples *out)
{
    struct length *length = calloc((size_t)n, sizeof(*length));
    int low = n / 3;
    enum merak_status rc;

    if (length == NULL)
        return merak_fail_nomem(s->err, (size_t)n * sizeof(*length));
    rc = measure_steps(s, step, n, length);
    out->steps = n - 2 * low;
    out->step_s = 0;
    if (rc == MERAK_OK)
        rc = merak_refine_create(out->steps, &s->refine, s->err);
    for (int i = 0; i < out->steps && rc == MERAK_OK; i++) {
        out->step_s += (double)length[low + i].ns * 1e-9 / out->steps;
        rc = sample_step(s, length[low + i].step);
    }
    free(length);
    return rc;
}

/* --- checks of a trace --------------------------------------------- */

static bool is_amount(double x)
{
    return x >= 0 && x <= MOST_AMOUNT; /* false for NaN */
}

static bool makes_sense(const struct merak_trace_rank *rank, int instr)
{
    const struct merak_trace_cost *c = &rank->cost[instr];
    int second = rank->planned[instr].second;
    int most; /* ranks that meet; for a transfer, two */

    if (second < -rank->info.ranks)
        return false;
    most = second < -1 ? -second : 2;
    return is_amount(c->flops) && is_amount(c->bytes) && is_amount(c->width) &&
           is_amount(c->reuse) && c->tp >= 1 && c->inside <= most &&
           c->inside >= (second < -1);
}

static enum merak_status check_rank(const struct merak_trace_rank *rank,
                                    const char *dir, const char *backend,
                                    bool emulated, struct merak_error *err)
{
    int number = rank->info.rank;

    if (rank->planned == NULL || rank->cost == NULL ||
        rank->info.backend[0] == '\0')
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s: rank %d's trace does not record what its "
                          "instructions do: the run used an older merak; run "
                          "it again",
                          dir, number);
    if (strcmp(rank->info.backend, backend) != 0)
        return merak_fail(
            err, MERAK_ERR_CONFIG, "%s is of a run on backend %s, not %s%s",
            dir, rank->info.backend, backend,
            emulated ? ": its kernels take the times they are given" : "");
    if (strcmp(rank->info.dtype, "fp32") != 0 &&
        strcmp(rank->info.dtype, "bf16") != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s is of a run in %s; device files know fp32 and "
                          "bf16",
                          dir, rank->info.dtype);
    for (int i = 0; i < rank->info.n_instrs; i++) {
        if (!makes_sense(rank, i))
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "%s: rank %d's trace of instruction %d makes no "
                              "sense",
                              dir, number, i);
    }
    return MERAK_OK;
}

static enum merak_status check(const struct merak_trace_rank *ranks, int n,
                               const char *dir, const char *backend,
                               bool emulated, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (ranks[0].info.ranks != n)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s has traces of %d of the run's %d ranks", dir, n,
                          ranks[0].info.ranks);
    for (int r = 0; r < n && rc == MERAK_OK; r++) {
        rc = check_rank(&ranks[r], dir, backend, emulated, err);
        if (rc == MERAK_OK &&
            strcmp(ranks[r].info.dtype, ranks[0].info.dtype) != 0)
            rc = merak_fail(err, MERAK_ERR_CORRUPT,
                            "%s: rank 0 ran in %s, rank %d in %s", dir,
                            ranks[0].info.dtype, r, ranks[r].info.dtype);
    }
    return rc;
}

static enum merak_status make_tables(struct sampling *s)
{
    s->class = calloc((size_t)s->n, sizeof(*s->class));
    if (s->class == NULL)
        return merak_fail_nomem(s->err, (size_t)s->n * sizeof(*s->class));
    for (int r = 0; r < s->n; r++) {
        size_t bytes = ((size_t)s->ranks[r].info.n_instrs + 1) * sizeof(int);

        s->class[r] = malloc(bytes);
        if (s->class[r] == NULL)
            return merak_fail_nomem(s->err, bytes);
        memset(s->class[r], 0xff, bytes);
    }
    return MERAK_OK;
}

static void free_tables(struct sampling *s)
{
    for (int r = 0; s->class != NULL && r < s->n; r++)
        free(s->class[r]);
    free(s->class);
    free(s->uses.use);
}

enum merak_status merak_trace_samples(const struct merak_trace_rank *ranks,
                                      int n, const char *dir,
                                      const char *backend, bool emulated,
                                      struct merak_trace_samples *samples,
                                      struct merak_error *err)
{
    struct sampling s = {.ranks = ranks, .n = n, .err = err};
    struct merak_trace_samples out = {.refine = NULL};
    int32_t *step = NULL;
    int n_steps = 0;
    enum merak_status rc = check(ranks, n, dir, backend, emulated, err);

    if (rc == MERAK_OK)
        rc = merak_trace_steps(ranks, n, &step, &n_steps, err);
    if (rc == MERAK_OK && n_steps - 1 < MERAK_TRACE_LEAST_STEPS)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "%s has %d steps, of which the first does not count; "
                        "expected %d more: trace a run with --trace-every 1",
                        dir, n_steps, MERAK_TRACE_LEAST_STEPS);
    if (rc == MERAK_OK)
        rc = make_tables(&s);
    if (rc == MERAK_OK)
        rc = sample_steps(&s, step + 1, n_steps - 1, &out);
    if (rc == MERAK_OK) {
        out.refine = s.refine;
        out.dtype =
            strcmp(ranks[0].info.dtype, "bf16") == 0 ? MERAK_BF16 : MERAK_F32;
        *samples = out;
        s.refine = NULL;
    }
    merak_refine_destroy(s.refine);
    free_tables(&s);
    free(step);
    return rc;
}
