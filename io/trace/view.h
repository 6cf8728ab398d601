/* SPDX-License-Identifier: Apache-2.0 */
/* io/trace/view.h - one traced step of all ranks, with transfers matched */
#ifndef MERAK_IO_TRACE_VIEW_H
#define MERAK_IO_TRACE_VIEW_H

#include "io/trace/trace.h"

/* One record, with the time it was actually busy. */
struct merak_trace_span {
    const struct merak_trace_record *record; /* borrowed from the ranks */
    /* The record's start; for a receive, not before the peer began to send,
     * and for a collective, not before the last member began: until then it
     * only waited. */
    int64_t start_ns, end_ns;
    int peer; /* SEND, RECV: the other end's index in the ranks, or -1 */
    size_t peer_span; /* and in that rank's spans */
    int event;        /* the same for all that meet, 0 ..; -1: meets nobody */
};

struct merak_trace_view {
    int32_t step;
    int n; /* ranks */
    struct merak_trace_lane {
        struct merak_trace_span *span; /* in the order of the records */
        size_t n;
    } * rank;
    int64_t start_ns, end_ns; /* first and last over all ranks */
    int n_events;
};

/* The steps that every rank has, ascending; free() them. */
enum merak_status merak_trace_steps(const struct merak_trace_rank *ranks, int n,
                                    int32_t **steps_p, int *n_p,
                                    struct merak_error *err) MERAK_CHECKED;
/*
 * View a step.  The two ends of a transfer, and the members of a collective,
 * are matched by the planned instructions in the trace; if it has none,
 * collectives are not matched, and transfers of one micro-batch, phase and
 * chunk between two ranks are matched in order.
 *
 *   ranks  borrowed for the view's life
 *
 * MERAK_ERR_NOT_FOUND if no rank has the step.
 */
enum merak_status
merak_trace_view_create(const struct merak_trace_rank *ranks, int n,
                        int32_t step, struct merak_trace_view **view_p,
                        struct merak_error *err) MERAK_CHECKED;
void merak_trace_view_destroy(struct merak_trace_view *view);

/*
 * The predicted step as if it had been traced: ranks with the same names, one
 * record for each instruction, step 0.  To be freed by merak_trace_unload();
 * the names and the plan are copies.  MERAK_ERR_NOT_FOUND if the trace has no
 * prediction.
 */
enum merak_status merak_trace_predicted(const struct merak_trace_rank *ranks,
                                        int n,
                                        struct merak_trace_rank **predicted_p,
                                        struct merak_error *err) MERAK_CHECKED;

#endif
