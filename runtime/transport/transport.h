/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/transport/transport.h - moving data between logical ranks
 *
 * Whatever moves data is posted, then tested until it is no longer
 * MERAK_IN_PROGRESS; its buffers stay valid and untouched until then.  One
 * thread at a time uses a transport (the engine's communication thread).
 * Requests are the transport's; a finished one goes back to it in test().
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

/* Members of a collective, as transport ranks in member order. */
struct merak_team {
    int n;
    int me;
    const int *rank;
};

/* What a rank answers when one that has waited too long asks it. */
#define MERAK_TELL_BYTES 768
struct merak_told {
    bool heard;                  /* it answered */
    char text[MERAK_TELL_BYTES]; /* if not: what is known of its process */
};

/* Say in one line what this rank does; called by the thread that uses the
 * transport. */
typedef void (*merak_tell_fn)(void *arg, char *text, size_t size);

struct merak_transport_options {
    double deadline_s; /* of a wait; 0: 300 */
    /* The arena transfers come from and go to, if shared with node peers:
     * base, bytes and a file descriptor that can be mapped; fd -1: none. */
    void *arena;
    size_t arena_bytes;
    int arena_fd;
    /* [size] the rank by which messages call each transport rank; borrowed;
     * NULL: its own. */
    const int *rank_name;
    merak_tell_fn tell; /* or NULL */
    void *tell_arg;
};

struct merak_transport_ops {
    const char *name; /* the word users type: "self", "ucx", "nccl" */
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
    /* Have memory for so many messages and exchanges of `members` in flight;
     * optional. */
    enum merak_status (*reserve)(struct merak_transport *tr, int messages,
                                 int exchanges, int members,
                                 struct merak_error *err);
    enum merak_status (*test)(struct merak_transport *tr,
                              struct merak_request *req,
                              struct merak_error *err);
    /* Advance everything posted; returns the number of events (0: idle). */
    unsigned (*progress)(struct merak_transport *tr);
    /* A descriptor that becomes readable when progress would do something
     * after arm() returned MERAK_OK; arm() returns MERAK_IN_PROGRESS if
     * there are events already.  -1: the transport has none. */
    int (*event_fd)(struct merak_transport *tr);
    enum merak_status (*arm)(struct merak_transport *tr);
    /* A descriptor beside event_fd(), which needs no arming: it is readable
     * when a peer's process has ended, and find_lost() then says in aborted()
     * which; -1: none.  Both optional. */
    int (*lost_fd)(struct merak_transport *tr);
    void (*find_lost)(struct merak_transport *tr);
    /* Tell every peer, out of band, that this rank fails; optional. */
    void (*abort)(struct merak_transport *tr, const char *why);
    /* Ask all ranks what they do, for three seconds at most: told[size].
     * False, once they have been answered, if others asked before, or a lower
     * rank at the same time, whose business the report then is; optional. */
    bool (*survey)(struct merak_transport *tr, struct merak_told *told);
    /* Why no peer is to be waited for, or NULL: MERAK_ERR_PEER with the text
     * of one that aborted, MERAK_ERR_LOST for one that is gone, of which
     * nobody else may tell; optional. */
    const struct merak_error *(*aborted)(struct merak_transport *tr);
};

struct merak_transport {
    const struct merak_transport_ops *ops;
    int rank, size;       /* transport ranks */
    double deadline_s;    /* of a wait */
    int64_t spin_ns;      /* ahead of a sleep; 0 where tasks share cores */
    const int *rank_name; /* of the options, as the next two */
    merak_tell_fn tell;
    void *tell_arg;
    const struct merak_request *waiting; /* of merak_request_wait() */
    int64_t waiting_since_ns;
    bool timed_out; /* a wait did: whoever did not come will not now, either */
    void *sum_scratch;    /* of merak_sum(), NULL until it needs some */
    size_t sum_scratch_bytes;
};

/* "self" (one rank) or "ucx"; MERAK_ERR_NOT_FOUND lists what there is. */
enum merak_status merak_transport_open(const char *name,
                                       struct merak_boot *boot,
                                       const struct merak_transport_options *o,
                                       struct merak_transport **tr_p,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_transport_close(struct merak_transport *tr);

/*
 * Wrappers: check the arguments once, then call the table.  peer is a
 * transport rank; bytes and tag are equal at both ends, and messages of one
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
 * Every member of the team calls it with the same tag and kind.  team, ex and
 * the buffers are borrowed until the request is done; scratch has
 * merak_exchange_scratch(ex) bytes (NULL if 0).  in == out is allowed for an
 * all-reduce only.
 * All-reduce sums are formed in ascending member order whatever the size, so
 * they are the same on every run and for every algorithm.
 */
enum merak_status merak_exchange(struct merak_transport *tr,
                                 const struct merak_team *team,
                                 const struct merak_exchange *ex,
                                 const void *in, void *out, void *scratch,
                                 uint64_t tag, struct merak_request **req_p,
                                 struct merak_error *err) MERAK_CHECKED;
/*
 * Starting transfers allocates only when more are in flight than ever before,
 * or than were reserved here: messages that the caller sends and receives, and
 * exchanges in teams of up to `members`.
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
/* What merak_request_wait() waits for, and how long; empty: nothing. */
void merak_transport_describe_wait(const struct merak_transport *tr, char *text,
                                   size_t size);
/* Advance the transport, so that who asks gets an answer. */
void merak_transport_linger(struct merak_transport *tr, int64_t ns);
/* The number by which messages call a transport rank. */
int merak_transport_rank_name(const struct merak_transport *tr, int rank);
/* Progress, spin at most 20 us (not at all where a node has fewer cores than
 * tasks), then block on the descriptor, until the
 * request is done, a peer aborts (MERAK_ERR_PEER) or is gone (MERAK_ERR_LOST),
 * or the deadline passes (MERAK_ERR_TIMEOUT; a transport that timed out is only
 * good for abort and close). */
enum merak_status merak_request_wait(struct merak_transport *tr,
                                     struct merak_request *req,
                                     struct merak_error *err) MERAK_CHECKED;

/*
 * Fill what the transport and its library keep for short messages once, with
 * messages to the next member of the team and from the one before: memory
 * that the first steps would take otherwise.  Collective.
 */
enum merak_status merak_transport_rehearse(struct merak_transport *tr,
                                           const struct merak_team *team,
                                           struct merak_error *err)
    MERAK_CHECKED;

/* Blocking collectives over whole buffers, for set-up and the end of a step;
 * built on exchange. */
enum merak_status merak_barrier(struct merak_transport *tr,
                                const struct merak_team *team,
                                struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_broadcast(struct merak_transport *tr,
                                  const struct merak_team *team, void *buf,
                                  size_t bytes, int root,
                                  struct merak_error *err) MERAK_CHECKED;
/* Elementwise sum of n doubles, member order.  Allocates only if it needs
 * more scratch than any sum before. */
enum merak_status merak_sum(struct merak_transport *tr,
                            const struct merak_team *team, double *inout,
                            size_t n, struct merak_error *err) MERAK_CHECKED;
/*
 * Every member brings its status; all get the same one back: the first
 * failure in member order, with its text and "rank N: " in front.
 */
enum merak_status merak_agree(struct merak_transport *tr,
                              const struct merak_team *team,
                              enum merak_status mine, struct merak_error *err)
    MERAK_CHECKED;

#endif
