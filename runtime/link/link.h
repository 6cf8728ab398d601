/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/link/link.h - what a program moves, from accelerator to accelerator
 *
 * A link puts a program's exchanges and messages into the accelerator's queues
 * by way of a library (link_ops.h), so that no byte of them comes to the host.
 * It stands beside a transport, which goes on to do what the host needs: sums,
 * agreement, telling that a rank fails.
 *
 * A communicator is made of each set of ranks that have exchanges, and of each
 * pair for each flow of messages, at the start and in an order that is the
 * same on all ranks.
 *
 * Sums are formed in member order, as transports do (transport.h) and to the
 * same bits: pieces are exchanged, and the accelerator adds them.  `fast` asks
 * for the library's own sums instead, whose order is its own.
 */
#ifndef MERAK_RUNTIME_LINK_LINK_H
#define MERAK_RUNTIME_LINK_LINK_H

#include <stdatomic.h>

#include "kernels/accel.h"
#include "partitioner/program/streams.h"
#include "runtime/boot/boot.h"
#include "runtime/link/link_ops.h"
#include "runtime/transport/transport.h"

struct merak_link;

/* What a rehearsal sends and receives at least, and where. */
#define MERAK_LINK_TRIAL_BYTES 128

struct merak_link_options {
    const struct merak_link_ops *ops;
    struct merak_boot *boot;    /* borrowed for the call */
    struct merak_transport *tr; /* borrowed: who aborts is learnt there */
    struct merak_accel *accel;  /* borrowed; MERAK_STREAMS queues */
    const int *transport_rank;  /* [ranks] of each logical rank; borrowed for
                                   the call */
    const struct merak_program *const *program; /* likewise */
    int n_programs;
    double deadline_s;  /* of any wait */
    size_t chunk_bytes; /* of a member's piece that are combined at a time; the
                           same on all ranks; 0: merak_staged_chunk() */
    /* Device memory that means nothing yet, such as the arena: rehearsals write
     * to it; MERAK_LINK_TRIAL_BYTES of it or more. */
    void *trial;
    size_t trial_bytes;
    bool fast;
};

/* What one exchange works on, in device memory; as merak_exchange()'s, but for
 * scratch, which has merak_link_scratch() bytes. */
struct merak_link_call {
    const struct merak_exchange *ex;
    const void *in;
    void *out, *scratch;
    int queue;
};

/* The module merak_NAME.so (kernels/module.h). */
enum merak_status merak_link_load(const char *name,
                                  const struct merak_link_ops **ops_p,
                                  struct merak_error *err) MERAK_CHECKED;
/*
 * Make the communicators that the programs need, and move a little by each so
 * that the first step pays for nothing.  Collective; a rank that fails tells
 * the others.
 */
enum merak_status merak_link_open(const struct merak_link_options *opt,
                                  struct merak_link **link_p,
                                  struct merak_error *err) MERAK_CHECKED;
/* Queues are empty, or the link was aborted. */
void merak_link_close(struct merak_link *link);
/* "NCCL 2.28.9, 5 communicators, sums in member order" */
void merak_link_describe(const struct merak_link *link, char *text,
                         size_t size);

/* What an exchange stages; of the default chunk, what programs reserve for it
 * (partitioner/program/staged.h). */
size_t merak_link_scratch(const struct merak_link *link,
                          const struct merak_exchange *ex);

/* The communicator of a team, or of a flow of messages from one transport rank
 * to another; -1: there is none. */
int merak_link_team(const struct merak_link *link,
                    const struct merak_team *team);
int merak_link_pair(const struct merak_link *link, int from, int to,
                    enum merak_flow_kind flow);

/*
 * Put an exchange or a message into a queue, behind what is in it.  A team of
 * one has no communicator: -1.  Blocks as long as the library takes to queue
 * it, at most until the deadline, a peer's abort, or *stop (merak_link_stop()).
 */
enum merak_status merak_link_exchange(struct merak_link *link, int comm,
                                      const struct merak_link_call *call,
                                      struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_link_message(struct merak_link *link, int comm,
                                     int queue,
                                     const struct merak_link_piece *message,
                                     struct merak_error *err) MERAK_CHECKED;
/* Not 0: what waits in a call gives up; NULL: nothing does. */
void merak_link_stop(struct merak_link *link, const atomic_int *stop);
/* Has a communicator failed behind our back? */
enum merak_status merak_link_test(struct merak_link *link,
                                  struct merak_error *err) MERAK_CHECKED;
/* End all that is under way, in queues too; the link is only good for close
 * then. */
void merak_link_abort(struct merak_link *link);

#endif
