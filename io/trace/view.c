/* SPDX-License-Identifier: Apache-2.0 */
/* view.c - one traced step of all ranks, with transfers matched */
#include "config.h"

#include "io/trace/view.h"

#include "base/bisect.h"
#include "base/error.h"
#include "partitioner/program/program.h"

#include <stdlib.h>
#include <string.h>

/* --- steps -----------------------------------------------------------------
 */

/* The records of a step; records are in order of steps. */
struct range {
    const struct merak_trace_record *first, *end;
};

static size_t first_of(const struct merak_trace_rank *rank, int64_t step)
{
    size_t i;

    MERAK_BISECT(i, 0, rank->n, rank->records[i].step >= step);
    return i;
}

static struct range records_of(const struct merak_trace_rank *rank,
                               int32_t step)
{
    return (struct range){rank->records + first_of(rank, step),
                          rank->records + first_of(rank, (int64_t)step + 1)};
}

static bool has_step(const struct merak_trace_rank *rank, int32_t step)
{
    struct range range = records_of(rank, step);

    return range.first < range.end;
}

enum merak_status merak_trace_steps(const struct merak_trace_rank *ranks, int n,
                                    int32_t **steps_p, int *n_p,
                                    struct merak_error *err)
{
    int32_t *steps = calloc(ranks[0].n + 1, sizeof(*steps));
    int count = 0;

    if (steps == NULL)
        return merak_fail_nomem(err, (ranks[0].n + 1) * sizeof(*steps));
    for (size_t i = 0; i < ranks[0].n; i++) {
        int32_t step = ranks[0].records[i].step;
        bool everywhere = count == 0 || steps[count - 1] != step;

        for (int r = 1; r < n && everywhere; r++)
            everywhere = has_step(&ranks[r], step);
        if (everywhere)
            steps[count++] = step;
    }
    *steps_p = steps;
    *n_p = count;
    return MERAK_OK;
}

/* --- who meets whom --------------------------------------------------------
 */

/* A record that has peers, and the key of its event. */
struct seat {
    uint64_t tag;
    int first, second;
    int nth; /* of this rank's records with this tag, first, second */
    int rank;
    size_t span;
};

static int compare_events(const struct seat *x, const struct seat *y)
{
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->second != y->second)
        return x->second < y->second ? -1 : 1;
    return (x->tag > y->tag) - (x->tag < y->tag);
}

static int compare_places(const struct seat *x, const struct seat *y)
{
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->span > y->span) - (x->span < y->span);
}

/* Order for counting a rank's records with the same key. */
static int by_rank(const void *a, const void *b)
{
    int order = compare_events(a, b);

    return order != 0 ? order : compare_places(a, b);
}

/* Order in which the members of an event are adjacent. */
static int by_event(const void *a, const void *b)
{
    const struct seat *x = a, *y = b;
    int order = compare_events(x, y);

    if (order != 0)
        return order;
    if (x->nth != y->nth)
        return x->nth < y->nth ? -1 : 1;
    return compare_places(x, y);
}

/* False if the record has no peers, or they are not known. */
static bool take_seat(const struct merak_trace_rank *rank,
                      const struct merak_trace_record *rec, struct seat *seat)
{
    const struct merak_trace_planned *planned =
        rank->planned == NULL ? NULL : &rank->planned[rec->instr];
    bool sends = rec->kind == MERAK_INSTR_SEND;

    if (rec->kind == MERAK_INSTR_EXCHANGE && planned == NULL)
        return false;
    if (!sends && rec->kind != MERAK_INSTR_RECV &&
        rec->kind != MERAK_INSTR_EXCHANGE)
        return false;
    if (planned != NULL) {
        seat->tag = planned->tag;
        seat->first = planned->first;
        seat->second = planned->second;
        return true;
    }
    seat->tag = (uint64_t)(uint16_t)rec->microbatch << 16 |
                (uint64_t)rec->phase << 8 | rec->chunk;
    seat->first = sends ? rank->info.rank : rec->peer;
    seat->second = sends ? rec->peer : rank->info.rank;
    return true;
}

static size_t fill_seats(const struct merak_trace_rank *ranks,
                         const struct merak_trace_view *view,
                         struct seat *seats)
{
    size_t n = 0;

    for (int r = 0; r < view->n; r++) {
        for (size_t i = 0; i < view->rank[r].n; i++) {
            if (!take_seat(&ranks[r], view->rank[r].span[i].record, &seats[n]))
                continue;
            seats[n].rank = r;
            seats[n++].span = i;
        }
    }
    qsort(seats, n, sizeof(*seats), by_rank);
    for (size_t i = 0; i < n; i++)
        seats[i].nth = i > 0 && seats[i].rank == seats[i - 1].rank &&
                               compare_events(&seats[i], &seats[i - 1]) == 0
                           ? seats[i - 1].nth + 1
                           : 0;
    qsort(seats, n, sizeof(*seats), by_event);
    return n;
}

static struct merak_trace_span *span_of(const struct merak_trace_view *view,
                                        const struct seat *seat)
{
    return &view->rank[seat->rank].span[seat->span];
}

/* Not busy before `from`; clocks of two nodes agree only to microseconds. */
static void begin_at(struct merak_trace_span *span, int64_t from)
{
    if (from > span->start_ns)
        span->start_ns = from < span->end_ns ? from : span->end_ns;
}

/* Match all seats of one event. */
static void meet(const struct merak_trace_view *view, const struct seat *seat,
                 size_t n)
{
    struct merak_trace_span *a = span_of(view, &seat[0]), *b;
    int64_t latest = INT64_MIN;

    if (a->record->kind == MERAK_INSTR_EXCHANGE) {
        for (size_t i = 0; i < n; i++) {
            int64_t came = span_of(view, &seat[i])->record->start_ns;

            latest = came > latest ? came : latest;
        }
        for (size_t i = 0; i < n; i++)
            begin_at(span_of(view, &seat[i]), latest);
        return;
    }
    if (n != 2)
        return; /* the other end is not in the trace */
    b = span_of(view, &seat[1]);
    if (a->record->kind == b->record->kind)
        return;
    a->peer = seat[1].rank;
    a->peer_span = seat[1].span;
    b->peer = seat[0].rank;
    b->peer_span = seat[0].span;
    if (a->record->kind == MERAK_INSTR_RECV)
        begin_at(a, b->record->start_ns);
    else
        begin_at(b, a->record->start_ns);
}

static enum merak_status match(const struct merak_trace_rank *ranks,
                               struct merak_trace_view *view,
                               struct merak_error *err)
{
    struct seat *seats;
    size_t most = 1, n, end;

    for (int r = 0; r < view->n; r++)
        most += view->rank[r].n;
    seats = calloc(most, sizeof(*seats));
    if (seats == NULL)
        return merak_fail_nomem(err, most * sizeof(*seats));
    n = fill_seats(ranks, view, seats);
    for (size_t i = 0; i < n; i = end) {
        end = i + 1;
        while (end < n && seats[end].nth == seats[i].nth &&
               compare_events(&seats[end], &seats[i]) == 0)
            end++;
        for (size_t k = i; k < end; k++)
            span_of(view, &seats[k])->event = view->n_events;
        view->n_events++;
        meet(view, &seats[i], end - i);
    }
    free(seats);
    return MERAK_OK;
}

/* --- the view --------------------------------------------------------------
 */

static enum merak_status fill_rank(const struct merak_trace_rank *rank,
                                   struct merak_trace_view *view, int r,
                                   struct merak_error *err)
{
    struct range range = records_of(rank, view->step);
    size_t n = (size_t)(range.end - range.first);
    struct merak_trace_span *span = calloc(n + 1, sizeof(*span));

    if (span == NULL)
        return merak_fail_nomem(err, (n + 1) * sizeof(*span));
    for (size_t i = 0; i < n; i++) {
        const struct merak_trace_record *rec = &range.first[i];

        span[i] = (struct merak_trace_span){
            .record = rec,
            .start_ns = rec->start_ns,
            .end_ns = rec->end_ns,
            .peer = -1,
            .event = -1,
        };
        if (rec->start_ns < view->start_ns)
            view->start_ns = rec->start_ns;
        if (rec->end_ns > view->end_ns)
            view->end_ns = rec->end_ns;
    }
    view->rank[r] = (struct merak_trace_lane){span, n};
    return MERAK_OK;
}

enum merak_status merak_trace_view_create(const struct merak_trace_rank *ranks,
                                          int n, int32_t step,
                                          struct merak_trace_view **view_p,
                                          struct merak_error *err)
{
    struct merak_trace_view *view = calloc(1, sizeof(*view));
    enum merak_status rc = MERAK_OK;

    if (view == NULL)
        return merak_fail_nomem(err, sizeof(*view));
    view->step = step;
    view->start_ns = INT64_MAX;
    view->end_ns = INT64_MIN;
    view->rank = calloc((size_t)n, sizeof(*view->rank));
    if (view->rank == NULL) {
        rc = merak_fail_nomem(err, (size_t)n * sizeof(*view->rank));
        goto out;
    }
    view->n = n;
    for (int r = 0; r < n && rc == MERAK_OK; r++)
        rc = fill_rank(&ranks[r], view, r, err);
    if (rc == MERAK_OK && view->end_ns < view->start_ns)
        rc = merak_fail(err, MERAK_ERR_NOT_FOUND, "step %d is not in the trace",
                        step);
    if (rc == MERAK_OK)
        rc = match(ranks, view, err);
    if (rc != MERAK_OK)
        goto out;
    *view_p = view;
    view = NULL; /* now owned by the caller */
out:
    merak_trace_view_destroy(view);
    return rc;
}

void merak_trace_view_destroy(struct merak_trace_view *view)
{
    if (view == NULL)
        return;
    for (int r = 0; r < view->n; r++)
        free(view->rank[r].span);
    free(view->rank);
    free(view);
}
