/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/transport/transport.h - moving data between logical ranks
 *
 * Operations are posted, then tested until the result is no longer
 * MERAK_IN_PROGRESS; buffers must stay valid and untouched until then.  One
 * thread at a time uses a transport (the engine's communication thread).  The
 * transport owns requests; test() takes back a finished one.
 */
#ifndef MERAK_RUNTIME_TRANSPORT_TRANSPORT_H
#define MERAK_RUNTIME_TRANSPORT_TRANSPORT_H

#include <stdint.h>

#include "merak/status.h"
#include "partitioner/layout/layout.h"
#include "runtime/boot/boot.h"

struct merak_transport;
struct merak_request;

/* Tags of send, recv and exchange are below 1 << MERAK_TAG_BITS. */
#define MERAK_TAG_BITS 40

/* Members of a collective, as transport ranks in member order: UCC's team,
 * MPI's communicator. */
struct merak_team {
    int n;
    int me;
    const int *rank;
};

/* A rank's answer to one whose wait has timed out. */
#define MERAK_TELL_BYTES 768
struct merak_told {
    bool heard;                  /* it answered */
    char text[MERAK_TELL_BYTES]; /* if not: what is known about its process */
};

/* Describe in one line what this rank does; called by the thread that uses the
 * transport. */
typedef void (*merak_tell_fn)(void *arg, char *text, size_t size);

struct merak_transport_options {
    double deadline_s; /* of a wait; 0: 300 */
    /* The arena that transfers read and write, if shared with node peers:
     * base, bytes and a file descriptor to map it by; fd -1: not shared. */
    void *arena;
    size_t arena_bytes;
    int arena_fd;
    /* [size] the number of each transport rank in texts; borrowed; NULL: its
     * own. */
    const int *rank_name;
    merak_tell_fn tell; /* or NULL */
    void *tell_arg;
};

struct merak_transport_ops {
    const char *name; /* as in options: "self", "ucx" */
    enum merak_status (*open)(struct merak_boot *boot,
                              const struct merak_transport_options *opt,
                              struct merak_transport **tr_p,
                              struct merak_error *err);
    void (*close)(struct merak_transport *tr);
    enum merak_status (*send)(struct merak_transport *tr, const void *buf,
                              size_t bytes, int peer, uint64_t tag,
                              struct merak_request **req_p,
                              struct merak_error *err);
    enum merak_status (*recv)(struct merak_transport *tr, void *buf,
                              size_t bytes, int peer, uint64_t tag,
                              struct merak_request **req_p,
                              struct merak_error *err);
    enum merak_status (*exchange)(struct merak_transport *tr,
                                  const struct merak_team *team,
                                  const struct merak_exchange *ex,
                                  const void *in, void *out, void *scratch,
                                  uint64_t tag, struct merak_request **req_p,
                                  struct merak_error *err);
    /* Allocate memory for this many messages and exchanges (of `members`
     * ranks) in flight; optional. */
    enum merak_status (*reserve)(struct merak_transport *tr, int messages,
                                 int exchanges, int members,
                                 struct merak_error *err);
    enum merak_status (*test)(struct merak_transport *tr,
                              struct merak_request *req,
                              struct merak_error *err);
    /* Advance everything posted; returns the number of events (0: idle). */
    unsigned (*progress)(struct merak_transport *tr);
    /* After arm() has returned MERAK_OK, a descriptor that becomes readable
     * when progress() has work; arm() returns MERAK_IN_PROGRESS if there are
     * events already.  -1: the transport has none. */
    int (*event_fd)(struct merak_transport *tr);
    enum merak_status (*arm)(struct merak_transport *tr);
    /* A second descriptor, which needs no arming: it is readable when a peer's
     * process has ended, and after find_lost() aborted() names that peer; -1:
     * none.  Both optional. */
    int (*lost_fd)(struct merak_transport *tr);
    void (*find_lost)(struct merak_transport *tr);
    /* Notify every peer, out of band, that this rank fails; optional. */
    void (*abort)(struct merak_transport *tr, const char *why);
    /* Ask all ranks what they do, for at most three seconds: told[size].  If
     * another rank asked before, or a lower one at the same time, that rank
     * makes the report: returns false once its questions are answered.
     * Optional. */
    bool (*survey)(struct merak_transport *tr, struct merak_told *told);
    /* Why waiting for peers is useless, or NULL: MERAK_ERR_PEER with the text
     * of a peer that aborted, MERAK_ERR_LOST for one that is gone, which no
     * other rank may have noticed; optional. */
    const struct merak_error *(*aborted)(struct merak_transport *tr);
};

struct merak_transport {
    const struct merak_transport_ops *ops;
    int rank, size;       /* transport ranks */
    double deadline_s;    /* of a wait */
    int64_t spin_ns;      /* before a sleep; 0 where tasks share cores */
    const int *rank_name; /* from the options, as are the next two */
    merak_tell_fn tell;
    void *tell_arg;
    const struct merak_request *waiting; /* in merak_request_wait() */
    int64_t waiting_since_ns;
    bool timed_out; /* a wait has: do not wait for the missing peer again */
    bool abandoned; /* set before close: not to wait for peers then */
    void *sum_scratch; /* of merak_all_reduce_sum(), NULL until needed */
    size_t sum_scratch_bytes;
};

/* "self" (one rank) or "ucx"; MERAK_ERR_NOT_FOUND lists the names. */
enum merak_status merak_transport_open(const char *name,
                                       struct merak_boot *boot,
                                       const struct merak_transport_options *o,
                                       struct merak_transport **tr_p,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_transport_close(struct merak_transport *tr);
/* Close a transport on which ranks were told to give up, before another is
 * opened in its place: none does that before all ranks have closed it.  *tr_p
 * is then NULL.  Collective. */
enum merak_status merak_transport_abandon(struct merak_transport **tr_p,
                                          struct merak_boot *boot,
                                          struct merak_error *err)
    MERAK_CHECKED;

/*
 * Wrappers: check the arguments once, then call the table.  peer is a
 * transport rank; bytes and tag must be equal at both ends; messages of one
 * tag between two ranks arrive in the order they were sent.
 */
enum merak_status merak_send(struct merak_transport *tr, const void *buf,
                             size_t bytes, int peer, uint64_t tag,
                             struct merak_request **req_p,
                             struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_recv(struct merak_transport *tr, void *buf,
                             size_t bytes, int peer, uint64_t tag,
                             struct merak_request **req_p,
                             struct merak_error *err) MERAK_CHECKED;
/*
 * Collective in the team, with the same tag and kind.  team, ex and the
 * buffers are borrowed until the request is done; scratch has
 * merak_exchange_scratch(ex) bytes (NULL if 0).  in == out is allowed for an
 * all-reduce only.  All-reduce sums are formed in ascending member order for
 * every size, so they are the same on every run and with every algorithm.
 */
enum merak_status merak_exchange(struct merak_transport *tr,
                                 const struct merak_team *team,
                                 const struct merak_exchange *ex,
                                 const void *in, void *out, void *scratch,
                                 uint64_t tag, struct merak_request **req_p,
                                 struct merak_error *err) MERAK_CHECKED;
/*
 * Reserve memory: starting a transfer then allocates only when more are in
 * flight than ever before and than reserved here: messages that the caller
 * sends and receives, and exchanges in teams of up to `members`.
 */
enum merak_status merak_transport_reserve(struct merak_transport *tr,
                                          int messages, int exchanges,
                                          int members,
                                          struct merak_error *err)
    MERAK_CHECKED;
enum merak_status merak_request_test(struct merak_transport *tr,
                                     struct merak_request *req,
                                     struct merak_error *err) MERAK_CHECKED;
/* As the table's aborted(); NULL also where the transport has none. */
const struct merak_error *merak_transport_aborted(struct merak_transport *tr);
/* As the table's lost_fd(). */
int merak_transport_lost_fd(struct merak_transport *tr);
/* Once that is readable: note which peer has ended, unless what it sent before
 * says why.  A rank that had no core meanwhile finds both at once. */
void merak_transport_find_lost(struct merak_transport *tr);
/* Describe what merak_request_wait() waits for, and since when; empty:
 * nothing. */
void merak_transport_describe_wait(const struct merak_transport *tr, char *text,
                                   size_t size);
/* Advance the transport for `ns`, so that ranks that ask get an answer. */
void merak_transport_linger(struct merak_transport *tr, int64_t ns);
/* The number of a transport rank in texts. */
int merak_transport_rank_name(const struct merak_transport *tr, int rank);
/* Progress, spin at most 20 us (not at all if a node has fewer cores than
 * tasks), then block on the descriptor, until the request is done, a peer
 * aborts (MERAK_ERR_PEER) or is gone (MERAK_ERR_LOST), or the deadline passes
 * (MERAK_ERR_TIMEOUT; after that only abort and close may be called). */
enum merak_status merak_request_wait(struct merak_transport *tr,
                                     struct merak_request *req,
                                     struct merak_error *err) MERAK_CHECKED;

/*
 * Exchange short messages with the neighbours in the team, so that the
 * transport and its library allocate their pools now and not in the first
 * steps.  Collective.
 */
enum merak_status
merak_transport_warm_up(struct merak_transport *tr,
                        const struct merak_team *team,
                        struct merak_error *err) MERAK_CHECKED;

/* Blocking collectives over whole buffers, for set-up and the end of a step;
 * built on send and recv, except for sums in small teams, or of many numbers,
 * which are exchanges. */
enum merak_status merak_barrier(struct merak_transport *tr,
                                const struct merak_team *team,
                                struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_broadcast(struct merak_transport *tr,
                                  const struct merak_team *team, void *buf,
                                  size_t bytes, int root,
                                  struct merak_error *err) MERAK_CHECKED;
/* Elementwise sum of n doubles, member order.  Allocates only if it needs
 * more scratch than any sum before. */
enum merak_status merak_all_reduce_sum(struct merak_transport *tr,
                                       const struct merak_team *team,
                                       double *inout, size_t n,
                                       struct merak_error *err) MERAK_CHECKED;
/*
 * Allgather of status: all members return the first failure in member order,
 * with its text and "rank N: " in front.
 */
enum merak_status merak_agree(struct merak_transport *tr,
                              const struct merak_team *team,
                              enum merak_status mine, struct merak_error *err)
    MERAK_CHECKED;

#endif
