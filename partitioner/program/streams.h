/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/streams.h - which queue of an accelerator runs what
 *
 * Where a library moves data between accelerators (runtime/link), a transfer
 * that waits for its peer holds up what stands behind it in its queue.  So
 * sends and receives do not share one: each peer has a queue for each way, a
 * lane, as far as there are lanes.
 */
#ifndef MERAK_PARTITIONER_PROGRAM_STREAMS_H
#define MERAK_PARTITIONER_PROGRAM_STREAMS_H

#include "partitioner/program/program.h"

#define MERAK_LANES 12
#define MERAK_STREAMS (MERAK_QUEUE_COUNT + MERAK_LANES)

/*
 * By instruction: MERAK_QUEUE_*, or MERAK_QUEUE_COUNT + lane.
 *   stream  out  [n_instrs]
 */
void merak_program_streams(const struct merak_program *program, int *stream);

#endif
