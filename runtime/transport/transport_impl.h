/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/transport/transport_impl.h - shared by the transports */
#ifndef MERAK_RUNTIME_TRANSPORT_INTERNAL_H
#define MERAK_RUNTIME_TRANSPORT_INTERNAL_H

#include <stdbool.h>

#include "runtime/transport/transport.h"

/* Tags from here up to 1 << (MERAK_TAG_BITS + 1) are reserved for the
 * library. */
#define MERAK_TAG_OWN (UINT64_C(1) << MERAK_TAG_BITS)
enum merak_own_tag {
    MERAK_TAG_AGREE, /* and barrier */
    MERAK_TAG_BROADCAST,
    MERAK_TAG_SUM,
    MERAK_TAG_WARM_UP,
};

/* The head of every transport's request. */
struct merak_request {
    enum merak_status status; /* what test() returns */
    struct merak_error err;   /* if it failed */
    const char *what;         /* "send", "recv", "exchange": for texts */
    int peer;                 /* -1: several */
    size_t bytes;
    uint64_t tag;
};

extern const struct merak_transport_ops merak_transport_self;
extern const struct merak_transport_ops merak_transport_ucx;

/* --- exchange.c ----------------------------------------------------------- */

/* Is it an all-reduce small enough to stage in memory of the run?  It then
 * needs no scratch. */
bool merak_exchange_is_small(const struct merak_exchange *ex);

/* An exchange under way, advanced by the transport's progress(). */
struct merak_exchange_run;

/* Arguments of a run; all borrowed until it is done. */
struct merak_exchange_args {
    struct merak_transport *tr;
    const struct merak_team *team;
    const struct merak_exchange *ex;
    const void *in;
    void *out;
    void *scratch;
    uint64_t tag;
};

struct merak_exchange_run *merak_exchange_run_create(void);
void merak_exchange_run_destroy(struct merak_exchange_run *run);
/* Allocate all that runs in teams of n members need. */
enum merak_status merak_exchange_run_reserve(struct merak_exchange_run *run,
                                             int n, struct merak_error *err)
    MERAK_CHECKED;
/* Post the first sends and receives.  A run can be started again once done,
 * and keeps its memory. */
enum merak_status merak_exchange_run_start(struct merak_exchange_run *run,
                                           const struct merak_exchange_args *a,
                                           struct merak_error *err)
    MERAK_CHECKED;
/* MERAK_IN_PROGRESS until done.  Never blocks. */
enum merak_status merak_exchange_run_advance(struct merak_exchange_run *run,
                                             struct merak_error *err)
    MERAK_CHECKED;
/* Has it local work to do?  Then advance it again without waiting for
 * events. */
bool merak_exchange_run_is_busy(const struct merak_exchange_run *run);

#endif
