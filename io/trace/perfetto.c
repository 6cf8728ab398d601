/* SPDX-License-Identifier: Apache-2.0 */
/* perfetto.c - a trace as events for ui.perfetto.dev
 *
 * Chrome's trace event format: "X" is a slice with a duration, "M" names a
 * process or thread, "s" and "f" are the ends of an arrow, each bound to the
 * slice around its time on its thread.  Slices of one thread must not overlap
 * unless they nest, so a queue with overlapping transfers gets more threads,
 * its lanes.  Source: "Trace Event Format", Google, 2016.
 */
#include "config.h"

#include "io/trace/perfetto.h"

#include "base/error.h"
#include "partitioner/program/program.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_LANES 64 /* per queue; further transfers share the last */

struct writer {
    FILE *out;
    const struct merak_trace_rank *ranks;
    int n;
    int64_t zero_ns;
    uint64_t *arrow;  /* by rank: id of its first span in the step */
    uint64_t n_spans; /* of all ranks and steps so far */
    bool comma;       /* the next event needs a comma before it */
    uint8_t *n_lanes; /* [n * MERAK_QUEUE_COUNT] named so far */
};

struct placed {
    const struct merak_trace_span *span;
    size_t index; /* in the rank's spans */
};

/* --- JSON ------------------------------------------------------------------
 */

static void put_text(FILE *out, const char *text)
{
    putc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0';
         c++) {
        if (*c == '"' || *c == '\\')
            putc('\\', out);
        if (*c < ' ')
            fprintf(out, "\\u%04x", *c);
        else
            putc(*c, out);
    }
    putc('"', out);
}

/* Nanoseconds as microseconds, exactly. */
static void put_us(FILE *out, const char *name, int64_t ns)
{
    fprintf(out, ",\"%s\":%" PRId64 ".%03d", name, ns / 1000, (int)(ns % 1000));
}

static void begin_event(struct writer *w, char type, int rank, int thread)
{
    fprintf(w->out, "%s\n{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d",
            w->comma ? "," : "", type, w->ranks[rank].info.rank, thread);
    w->comma = true;
}

static void name_event(struct writer *w, int rank, int thread, const char *what,
                       const char *name)
{
    begin_event(w, 'M', rank, thread);
    fprintf(w->out, ",\"name\":\"%s\",\"args\":{\"name\":", what);
    put_text(w->out, name);
    fputs("}}", w->out);
}

/* --- processes and threads -------------------------------------------------
 */

static int thread_of(int queue, int lane)
{
    return 1 + queue * MAX_LANES + lane;
}

static void name_rank(struct writer *w, int rank)
{
    const struct merak_trace_info *info = &w->ranks[rank].info;
    char name[96];

    snprintf(name, sizeof(name), "rank %d: stage %d, dp %d, tp %d", info->rank,
             info->stage, info->dp_index, info->tp_index);
    name_event(w, rank, 0, "process_name", name);
    begin_event(w, 'M', rank, 0);
    fprintf(w->out,
            ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
            info->rank);
}

/* Name a queue's lanes up to this one. */
static void name_lanes(struct writer *w, int rank, int queue, int lane)
{
    uint8_t *named = &w->n_lanes[rank * MERAK_QUEUE_COUNT + queue];
    char name[48];

    while (*named <= lane) {
        int thread = thread_of(queue, *named);

        if (*named == 0)
            snprintf(name, sizeof(name), "%s",
                     merak_trace_queue_name((uint8_t)queue));
        else
            snprintf(name, sizeof(name), "%s, concurrent (%d)",
                     merak_trace_queue_name((uint8_t)queue), *named);
        name_event(w, rank, thread, "thread_name", name);
        begin_event(w, 'M', rank, thread);
        fprintf(w->out,
                ",\"name\":\"thread_sort_index\",\"args\":"
                "{\"sort_index\":%d}}",
                thread);
        (*named)++;
    }
}

/* --- slices and arrows -----------------------------------------------------
 */

static int64_t length_ns(const struct merak_trace_span *span)
{
    int64_t ns = span->end_ns - span->record->start_ns;

    return ns > 0 ? ns : 1; /* an arrow needs a slice of nonzero length */
}

static void put_args(struct writer *w, int rank,
                     const struct merak_trace_span *span)
{
    const struct merak_trace_record *rec = span->record;
    const struct merak_trace_planned *planned =
        w->ranks[rank].planned == NULL ? NULL
                                       : &w->ranks[rank].planned[rec->instr];

    fprintf(w->out,
            ",\"args\":{\"instruction\":%d,\"step\":%d,\"phase\":\"%s\"",
            rec->instr, rec->step, merak_trace_phase_name(rec->phase));
    if (planned != NULL && planned->op[0] != '\0') {
        fputs(",\"op\":", w->out);
        put_text(w->out, planned->op);
    }
    if (rec->microbatch >= 0)
        fprintf(w->out, ",\"micro_batch\":%d,\"chunk\":%d", rec->microbatch,
                rec->chunk);
    if (rec->bytes > 0)
        fprintf(w->out, ",\"bytes\":%" PRIu64, rec->bytes);
    if (rec->peer >= 0)
        fprintf(w->out, ",\"peer\":%d", rec->peer);
    if (span->start_ns > rec->start_ns)
        put_us(w->out, "waited_us", span->start_ns - rec->start_ns);
    if (planned != NULL && planned->start_ns >= 0)
        put_us(w->out, "predicted_us", planned->end_ns - planned->start_ns);
    fputs("}", w->out);
}

static void put_slice(struct writer *w, int rank, int thread,
                      const struct merak_trace_span *span)
{
    const struct merak_trace_record *rec = span->record;

    begin_event(w, 'X', rank, thread);
    fputs(",\"name\":", w->out);
    put_text(w->out, w->ranks[rank].names[rec->instr]);
    fprintf(w->out, ",\"cat\":\"%s\"", merak_trace_kind_name(rec->kind));
    put_us(w->out, "ts", rec->start_ns - w->zero_ns);
    put_us(w->out, "dur", length_ns(span));
    put_args(w, rank, span);
    fputs("}", w->out);
}

/* The id of a transfer's arrow is the index of its receive among all spans. */
static void put_arrow(struct writer *w, int rank, int thread,
                      const struct placed *at)
{
    bool sends = at->span->record->kind == MERAK_INSTR_SEND;
    uint64_t id;

    if (at->span->peer < 0)
        return;
    id = sends ? w->arrow[at->span->peer] + at->span->peer_span
               : w->arrow[rank] + at->index;
    begin_event(w, sends ? 's' : 'f', rank, thread);
    fprintf(w->out,
            ",\"name\":\"transfer\",\"cat\":\"transfer\",\"id\":%" PRIu64 "%s",
            id, sends ? "" : ",\"bp\":\"e\"");
    put_us(w->out, "ts",
           at->span->record->start_ns - w->zero_ns +
               (sends ? 0 : length_ns(at->span) - 1));
    fputs("}", w->out);
}

static int compare_starts(const void *a, const void *b)
{
    const struct merak_trace_record
        *x = ((const struct placed *)a)->span->record,
        *y = ((const struct placed *)b)->span->record;

    if (x->queue != y->queue)
        return x->queue < y->queue ? -1 : 1;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return (x->instr > y->instr) - (x->instr < y->instr);
}

/* The first free lane; lane i is free from busy[i] on. */
static int find_lane(const struct merak_trace_span *span, int64_t *busy)
{
    int lane = 0;

    while (lane < MAX_LANES - 1 && busy[lane] > span->record->start_ns)
        lane++;
    busy[lane] = span->record->start_ns + length_ns(span);
    return lane;
}

static enum merak_status put_rank(struct writer *w,
                                  const struct merak_trace_view *view, int rank,
                                  struct merak_error *err)
{
    const struct merak_trace_lane *of = &view->rank[rank];
    struct placed *at = calloc(of->n + 1, sizeof(*at));
    int64_t busy[MAX_LANES];
    int queue = -1;

    if (at == NULL)
        return merak_fail_nomem(err, (of->n + 1) * sizeof(*at));
    for (size_t i = 0; i < of->n; i++)
        at[i] = (struct placed){&of->span[i], i};
    qsort(at, of->n, sizeof(*at), compare_starts);
    for (size_t i = 0; i < of->n; i++) {
        int lane;

        if (at[i].span->record->queue != queue) {
            queue = at[i].span->record->queue;
            for (int k = 0; k < MAX_LANES; k++)
                busy[k] = INT64_MIN;
        }
        lane = find_lane(at[i].span, busy);
        name_lanes(w, rank, queue % MERAK_QUEUE_COUNT, lane);
        put_slice(w, rank, thread_of(queue, lane), at[i].span);
        put_arrow(w, rank, thread_of(queue, lane), &at[i]);
    }
    free(at);
    return MERAK_OK;
}

static enum merak_status put_step(struct writer *w, int32_t step, bool is_first,
                                  struct merak_error *err)
{
    struct merak_trace_view *view;
    enum merak_status rc =
        merak_trace_view_create(w->ranks, w->n, step, &view, err);

    if (rc != MERAK_OK)
        return rc;
    if (is_first)
        w->zero_ns = view->start_ns;
    for (int r = 0; r < w->n; r++) {
        w->arrow[r] = w->n_spans;
        w->n_spans += view->rank[r].n;
    }
    for (int r = 0; r < w->n && rc == MERAK_OK; r++)
        rc = put_rank(w, view, r, err);
    merak_trace_view_destroy(view);
    return rc;
}

enum merak_status merak_trace_perfetto(const struct merak_trace_rank *ranks,
                                       int n, const int32_t *steps, int n_steps,
                                       FILE *out, struct merak_error *err)
{
    struct writer w = {.out = out, .ranks = ranks, .n = n};
    enum merak_status rc = MERAK_OK;

    w.n_lanes = calloc((size_t)n * MERAK_QUEUE_COUNT, 1);
    w.arrow = calloc((size_t)n + 1, sizeof(*w.arrow));
    if (w.n_lanes == NULL || w.arrow == NULL) {
        rc = merak_fail_nomem(err, (size_t)n * sizeof(*w.arrow));
        goto out;
    }
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", out);
    for (int r = 0; r < n; r++)
        name_rank(&w, r);
    for (int i = 0; i < n_steps && rc == MERAK_OK; i++)
        rc = put_step(&w, steps[i], i == 0, err);
    fputs("\n]}\n", out);
out:
    free(w.n_lanes);
    free(w.arrow);
    return rc;
}
