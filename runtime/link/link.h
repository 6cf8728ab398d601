/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/link/link.h - moves data from accelerator to accelerator
 *
 * A device link puts a program's exchanges and messages into the accelerator's
 * queues through a library such as NCCL (link_ops.h), so that no byte of them
 * passes through host memory.  A transport still does what the host needs:
 * sums, agreement, reporting that a rank fails.
 *
 * At the start a communicator is made for each set of ranks that have
 * exchanges, and for each pair and flow of messages, in the same order on all
 * ranks.
 *
 * Sums are formed in member order, as in transports (transport.h), and give
 * the same bits: members exchange messages, and the accelerator adds them.
 * `fast` uses the library's reductions instead, whose order the library
 * chooses.
 */
#ifndef MERAK_RUNTIME_LINK_LINK_H
#define MERAK_RUNTIME_LINK_LINK_H

#include <stdatomic.h>

#include "kernels/accel.h"
#include "kernels/kernels.h"
#include "partitioner/program/streams.h"
#include "runtime/boot/boot.h"
#include "runtime/link/link_ops.h"
#include "runtime/transport/transport.h"

struct merak_link;

/* The least memory that the trial messages of merak_link_open() need. */
#define MERAK_LINK_TRIAL_BYTES 128

struct merak_link_options {
    const struct merak_link_ops *ops;
    struct merak_boot *boot;    /* borrowed for the call */
    struct merak_transport *tr; /* borrowed: it reports peers that abort */
    struct merak_accel *accel;  /* borrowed; MERAK_STREAMS queues */
    const int *transport_rank;  /* [ranks] of each logical rank; borrowed for
                                   the call */
    const struct merak_program *const *program; /* likewise */
    int n_programs;
    double deadline_s;     /* of any wait */
    size_t fragment_bytes; /* of a message that are combined at a time;
                           the same on all ranks; 0: merak_staged_fragment() */
    /* Device memory that is not in use yet, such as the arena: trial messages
     * write to it; MERAK_LINK_TRIAL_BYTES or more. */
    void *trial;
    size_t trial_bytes;
    bool fast;
};

/* Operands of one exchange, in device memory; as for merak_exchange(), except
 * that scratch has merak_link_scratch() bytes. */
struct merak_link_call {
    const struct merak_exchange *ex;
    const void *in;
    void *out, *scratch;
    int queue;
};

/* Should tasks of this backend use a link, if they can?
 *   by_default  with --transport auto
 *   insists     with --transport nccl */
bool merak_link_is_wanted(const struct merak_backend *backend, int tasks,
                          bool by_default, bool insists);
/* For --transport nccl: MERAK_ERR_CONFIG if it has no accelerators. */
enum merak_status
merak_link_check_backend(const struct merak_backend *backend,
                         struct merak_error *err) MERAK_CHECKED;
struct merak_link_tasks {
    struct merak_boot *boot;
    const struct merak_accel_ops *accel;
    const struct merak_accel_device *card; /* of this task */
    const int *rank_name; /* [size] numbers for error texts, or NULL */
};
/* Has every task its own accelerator, and is the library there?  Collective;
 * the same on all tasks. */
enum merak_status merak_link_look(const char *name,
                                  const struct merak_link_tasks *tasks,
                                  const struct merak_link_ops **ops_p,
                                  struct merak_error *err) MERAK_CHECKED;
/* The module merak_NAME.so (kernels/module.h). */
enum merak_status merak_link_load(const char *name,
                                  const struct merak_link_ops **ops_p,
                                  struct merak_error *err) MERAK_CHECKED;
/*
 * Make the communicators that the programs need, and send a little through
 * each, so that the first step has no set-up cost.  Collective; if a rank
 * fails, all do.
 */
enum merak_status merak_link_open(const struct merak_link_options *opt,
                                  struct merak_link **link_p,
                                  struct merak_error *err) MERAK_CHECKED;
/* Call it when queues are empty, or the link was aborted. */
void merak_link_close(struct merak_link *link);
/*
 * Device memory that the library takes beside the arena for the communicators
 * of these programs, as an estimate.
 *
 *   opt      in   transport_rank, program, n_programs
 *   comms_p  out  how many this rank joins
 *   bytes_p  out
 */
enum merak_status merak_link_memory(const struct merak_link_options *opt,
                                    int *comms_p, size_t *bytes_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* Of one, by which that is estimated. */
extern const struct merak_comms_cost merak_link_comms_cost;
/* "NCCL 2.28.9, 5 communicators, sums in member order" */
void merak_link_describe(const struct merak_link *link, char *text,
                         size_t size);

/* Bytes that an exchange stages; with the default fragment that is what
 * programs reserve for it (partitioner/program/staged.h). */
size_t merak_link_scratch(const struct merak_link *link,
                          const struct merak_exchange *ex);

/* The communicator of a team, or of a flow of messages from one transport rank
 * to another; -1: there is none. */
int merak_link_team(const struct merak_link *link,
                    const struct merak_team *team);
int merak_link_pair(const struct merak_link *link, int from, int to,
                    enum merak_flow_kind flow);

/*
 * Append exchanges or a message to a queue.  n exchanges that the members begin
 * in one call progress together if the library can do that: all begin the same
 * n. A team of one has no communicator: -1.  Blocks until the library has
 * queued them, at most until the deadline, a peer's abort, or *stop
 * (merak_link_stop()).
 */
enum merak_status merak_link_exchange(struct merak_link *link, int comm,
                                      const struct merak_link_call *call, int n,
                                      struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_link_message(struct merak_link *link, int comm,
                                     int queue,
                                     const struct merak_link_message *message,
                                     struct merak_error *err) MERAK_CHECKED;
/* Once *stop is not 0, calls that block give up; NULL: never. */
void merak_link_stop(struct merak_link *link, const atomic_int *stop);
/* Has a communicator failed asynchronously? */
enum merak_status merak_link_test(struct merak_link *link,
                                  struct merak_error *err) MERAK_CHECKED;
/* Abort all that is under way, including what is in queues; only close may be
 * called then. */
void merak_link_abort(struct merak_link *link);

#endif
