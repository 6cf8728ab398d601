/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/streams.h - which queue of an accelerator runs what
 *
 * If a library moves data between accelerators (runtime/link), a transfer that
 * waits for its peer blocks what follows it in its queue.  So sends and
 * receives do not share one: each direction to or from a peer has a queue, a
 * lane, for each flow, as long as there are enough lanes.
 *
 * Messages are matched by their order, flow by flow: if a stage has parts on
 * both sides of another (zb-v), activations and gradients go the same way, and
 * which of them comes first is not the same at both ends.  Of what is packed,
 * elements and places have a flow each: in one queue the second message could
 * not start before the first is over, and what follows in the program not before
 * the second has started.
 */
#ifndef MERAK_PARTITIONER_PROGRAM_STREAMS_H
#define MERAK_PARTITIONER_PROGRAM_STREAMS_H

#include "partitioner/plan/comms.h"
#include "partitioner/program/program.h"

/* What a message is a part of; the same at both ends. */
enum merak_flow_kind {
    MERAK_FLOW_FORWARD,  /* activations */
    MERAK_FLOW_PLACES,   /* of these, where packed elements were */
    MERAK_FLOW_BACKWARD, /* their gradients */
    MERAK_FLOW_STEP,     /* sums over stages at a step's end */
    MERAK_FLOW_KINDS
};
enum merak_flow_kind merak_message_flow(const struct merak_instr *message);

#define MERAK_LANES 12
#define MERAK_STREAMS (MERAK_QUEUE_COUNT + MERAK_LANES)

/*
 * By instruction: MERAK_QUEUE_*, or MERAK_QUEUE_COUNT + lane.
 *   stream  out  [n_instrs]
 */
void merak_program_streams(const struct merak_program *program, int *stream);
/* How many that are: at least MERAK_QUEUE_COUNT. */
int merak_program_stream_count(const struct merak_program *program);
/* The communicators that the program uses. */
struct merak_comms merak_program_comms(const struct merak_program *program);

#endif
