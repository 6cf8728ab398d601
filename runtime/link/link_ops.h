/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/link/link_ops.h - a library that moves data between accelerators
 *
 * The interface that a module such as merak_nccl.so implements and
 * runtime/link uses.  A communicator is a set of ranks that move data among
 * themselves; its members are numbered in member order.  Moves are appended to
 * an accelerator's queue and run there in order: a call returns before they
 * ran, and a move that waits for another rank holds up what comes after it in
 * its queue.
 *
 * Nothing blocks.  A call may still be under way when it returns: until test()
 * returns something else than MERAK_IN_PROGRESS, nothing else may be put into
 * the queue or asked of the communicator.  One thread at a time uses a
 * communicator.
 */
#ifndef MERAK_RUNTIME_LINK_LINK_OPS_H
#define MERAK_RUNTIME_LINK_LINK_OPS_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/accel.h"
#include "merak/op.h"
#include "merak/status.h"

#define MERAK_LINK_ID_BYTES 128

struct merak_link_library;
struct merak_link_comm;

/* By this the members of a communicator find each other: one of them makes it
 * and sends it to the others. */
struct merak_link_id {
    unsigned char bytes[MERAK_LINK_ID_BYTES];
};

struct merak_link_join {
    struct merak_link_id id;
    int n, me;     /* members */
    int most_ctas; /* thread blocks that a move may use; 0: no limit */
};

/* One message of a group: all messages of a group progress together, and those
 * between two members are matched in order. */
struct merak_link_message {
    bool send; /* else it is received */
    void *at;  /* device memory */
    size_t bytes;
    int peer; /* a member */
};

struct merak_link_sum {
    const void *in;
    void *out;
    size_t count; /* elements of `out` */
    enum merak_dtype dtype;
    bool max;
    bool scatter; /* `in` has count elements for each member; else count */
};

/* An allgather of `bytes` from each member, in member order. */
struct merak_link_gather {
    void *out;
    const void *in;
    size_t bytes;
};

struct merak_link_ops {
    const char *name; /* as in options: "nccl" */
    /*
     * Open the library, for queues of this kind of handle
     * (merak_accel_ops.streams).  about out  256 bytes, for people to read.
     */
    enum merak_status (*open)(enum merak_streams streams,
                              struct merak_link_library **library_p,
                              char *about, struct merak_error *err);
    void (*close)(struct merak_link_library *library);
    enum merak_status (*make_id)(struct merak_link_library *library,
                                 struct merak_link_id *id,
                                 struct merak_error *err);
    /* Begin to join; test() returns MERAK_OK once all members have. */
    enum merak_status (*join)(struct merak_link_library *library,
                              const struct merak_link_join *how,
                              struct merak_link_comm **comm_p,
                              struct merak_error *err);
    /* MERAK_OK: nothing is under way; MERAK_IN_PROGRESS; or what has failed,
     * including asynchronous failures. */
    enum merak_status (*test)(struct merak_link_comm *comm,
                              struct merak_error *err);
    /* Put a group of messages into a queue, given by its handle. */
    enum merak_status (*move)(struct merak_link_comm *comm, void *stream,
                              const struct merak_link_message *message, int n,
                              struct merak_error *err);
    /* A sum or maximum in an order of the library's choice, with the same bits
     * on all members. */
    enum merak_status (*sum)(struct merak_link_comm *comm, void *stream,
                             const struct merak_link_sum *sum,
                             struct merak_error *err);
    /* Allgathers that progress together. */
    enum merak_status (*gather)(struct merak_link_comm *comm, void *stream,
                                const struct merak_link_gather *gather, int n,
                                struct merak_error *err);
    /* Abort what is under way, including what is in queues, and the
     * communicators: all at once, since moves of one may wait in a queue for
     * those of another. */
    void (*abort)(struct merak_link_comm *const *comm, int n);
    /* Destroy a communicator whose moves are over, or that was aborted. */
    void (*leave)(struct merak_link_comm *comm);
};

/* The symbol that the module exports. */
#define MERAK_LINK_SYMBOL "merak_link_module"
#define MERAK_LINK_ABI 2

struct merak_link_module {
    unsigned abi;        /* MERAK_LINK_ABI */
    const char *version; /* PACKAGE_VERSION */
    size_t ops_bytes;    /* sizeof(struct merak_link_ops) */
    const struct merak_link_ops *ops;
};

#endif
