/* SPDX-License-Identifier: Apache-2.0 */
/* io/trace/perfetto.h - a trace as events for ui.perfetto.dev */
#ifndef MERAK_IO_TRACE_PERFETTO_H
#define MERAK_IO_TRACE_PERFETTO_H

#include "io/trace/view.h"

#include <stdio.h>

/*
 * Write steps in Chrome's trace event format (JSON): a process for each rank,
 * a thread for each queue (more where transfers of a queue overlap), one event
 * for each instruction, an arrow from each send to its receive.  Times are
 * microseconds since the start of the first given step.  One step is in memory
 * at a time.
 *
 *   out  to be flushed and checked by the caller
 */
enum merak_status merak_trace_perfetto(const struct merak_trace_rank *ranks,
                                       int n, const int32_t *steps, int n_steps,
                                       FILE *out,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
