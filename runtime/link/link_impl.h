/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/link/link_impl.h - shared by the files of runtime/link */
#ifndef MERAK_RUNTIME_LINK_LINK_IMPL_H
#define MERAK_RUNTIME_LINK_LINK_IMPL_H

#include "partitioner/program/streams.h"
#include "runtime/link/link.h"

/* The communicator of a team, or of a flow of messages from rank[0] to
 * rank[1]. */
struct link_comm {
    bool pair;
    int flow; /* enum merak_flow_kind of a pair, else 0 */
    int n, me;
    int *rank; /* [n] transport ranks in member order */
    struct merak_link_id id;
    struct merak_link_comm *comm; /* NULL: not yet joined */
};

struct merak_link {
    const struct merak_link_ops *ops;
    struct merak_link_library *library;
    char about[256];
    struct merak_transport *tr;
    struct merak_accel *accel;
    double deadline_s;
    int64_t spin_ns; /* before naps in a wait */
    bool fast;
    size_t fragment;        /* bytes; 0: by the number of members */
    struct link_comm *comm; /* [n_comms] in the order of merak_link_order() */
    int n_comms;
    struct merak_link_comm **joined; /* [n_comms] for merak_link_abort() */
    struct merak_link_message *message; /* [2 * the largest team] */
    const atomic_int *stop;
    unsigned char *trial; /* borrowed by merak_link_open() */
    size_t trials;        /* trial messages it has room for */
};

/* link_comms.c: the communicators that programs need, in an order that is the
 * same on all ranks. */
enum merak_status merak_link_find_comms(struct merak_link *link,
                                        const struct merak_link_options *opt,
                                        struct merak_error *err) MERAK_CHECKED;
void merak_link_free_comms(struct merak_link *link);
/* Get their ids from the members that made them; collective. */
enum merak_status merak_link_share_ids(struct merak_link *link,
                                       struct merak_boot *boot,
                                       struct merak_error *err) MERAK_CHECKED;

/* Wait until the library has queued what it was given. */
enum merak_status merak_link_settle(struct merak_link *link, int comm,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
