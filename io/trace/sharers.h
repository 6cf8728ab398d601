/* SPDX-License-Identifier: Apache-2.0 */
/* io/trace/sharers.h - how many ranks of a node used its uplink at once */
#ifndef MERAK_IO_TRACE_SHARERS_H
#define MERAK_IO_TRACE_SHARERS_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* An exchange or a transfer, over all members. */
struct merak_trace_event {
    int64_t from, to;
    int members, class;
    double sharers; /* of the way with the most sharers; at least 1 */
};

/* A member's use of a way: its node's uplink, out of the node or into it. */
struct merak_trace_use {
    int way; /* arbitrary numbers */
    int event;
};

struct merak_trace_uses {
    struct merak_trace_use *use;
    size_t n, room;
};

enum merak_status merak_trace_use(struct merak_trace_uses *uses, int way,
                                  int event,
                                  struct merak_error *err) MERAK_CHECKED;
/*
 * Fill in the events' sharers.  While c members use a way each gets 1/c of it,
 * so an event from a to b has (b - a) / (the integral of 1/c from a to b)
 * sharers.  Sorts the uses.
 */
enum merak_status merak_trace_share(struct merak_trace_uses *uses,
                                    struct merak_trace_event *events, int n,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
