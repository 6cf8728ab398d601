/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/link/link_ops.h - a library that moves data between accelerators
 *
 * What a module such as merak_nccl.so fills and runtime/link drives.  A
 * communicator is a set of ranks that move data among themselves; its members
 * are numbered in member order.  Moves are put into an accelerator's queue and
 * run there behind what is in it: a call returns before they ran, and a move
 * that waits for another rank holds up what comes behind it in its queue.
 *
 * Nothing blocks.  Whatever is called may still be under way when it returns:
 * until test() says otherwise nothing else may be put into the queue, or asked
 * of the communicator.  One thread at a time uses a communicator.
 */
#ifndef MERAK_RUNTIME_LINK_LINK_OPS_H
#define MERAK_RUNTIME_LINK_LINK_OPS_H

#include <stdbool.h>
#include <stddef.h>

#include "merak/op.h"
#include "merak/status.h"

#define MERAK_LINK_ID_BYTES 128

struct merak_link_library;
struct merak_link_comm;

/* By which the members of one communicator find each other: one of them makes
 * it and tells the others. */
struct merak_link_id {
    unsigned char bytes[MERAK_LINK_ID_BYTES];
};

struct merak_link_join {
    struct merak_link_id id;
    int n, me;     /* members */
    int most_ctas; /* blocks of the device that a move may take; 0: any */
};

/* One message of a group: they all progress together, and those between two
 * members are matched in order. */
struct merak_link_piece {
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

struct merak_link_ops {
    const char *name; /* the word users type: "nccl" */
    /*
     * Open the library, for queues whose handles are of a kind
     * (merak_accel_ops.streams).  about  out  256 bytes, for people to read.
     */
    enum merak_status (*open)(const char *streams,
                              struct merak_link_library **library_p,
                              char *about, struct merak_error *err);
    void (*close)(struct merak_link_library *library);
    enum merak_status (*make_id)(struct merak_link_library *library,
                                 struct merak_link_id *id,
                                 struct merak_error *err);
    /* Begin to join; test() says when all members have. */
    enum merak_status (*join)(struct merak_link_library *library,
                              const struct merak_link_join *how,
                              struct merak_link_comm **comm_p,
                              struct merak_error *err);
    /* MERAK_OK: nothing is under way; MERAK_IN_PROGRESS; or what has failed,
     * also behind the caller's back. */
    enum merak_status (*test)(struct merak_link_comm *comm,
                              struct merak_error *err);
    /* Put a group of messages into a queue, given by its handle. */
    enum merak_status (*move)(struct merak_link_comm *comm, void *stream,
                              const struct merak_link_piece *piece, int n,
                              struct merak_error *err);
    /* A sum or maximum in whatever order the library likes, the same bits on
     * all members. */
    enum merak_status (*sum)(struct merak_link_comm *comm, void *stream,
                             const struct merak_link_sum *sum,
                             struct merak_error *err);
    /* Every member's `bytes`, in member order, to all. */
    enum merak_status (*gather)(struct merak_link_comm *comm, void *stream,
                                void *out, const void *in, size_t bytes,
                                struct merak_error *err);
    /* End what is under way, in queues too, and the communicators: all at
     * once, since moves of one may stand behind those of another. */
    void (*abort)(struct merak_link_comm *const *comm, int n);
    /* End a communicator whose moves are over; after abort() nothing. */
    void (*leave)(struct merak_link_comm *comm);
};

/* What the module shows. */
#define MERAK_LINK_SYMBOL "merak_link_module"
#define MERAK_LINK_ABI 1

struct merak_link_module {
    unsigned abi;        /* MERAK_LINK_ABI */
    const char *version; /* PACKAGE_VERSION */
    size_t ops_bytes;    /* sizeof(struct merak_link_ops) */
    const struct merak_link_ops *ops;
};

#endif
