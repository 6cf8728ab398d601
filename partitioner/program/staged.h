/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/staged.h - what an exchange stages in a device's memory
 *
 * Through host memory, exchanges move pieces that are tested one by one, in a
 * window of a megabyte (merak_exchange_scratch()).  From device to device
 * (runtime/link) a queue does one thing after the other, so that whole pieces
 * are moved at a time, in fragments that keep the links busy.  Here is what is
 * sent to whom, and how much memory that takes: the planner counts it, and the
 * link lays it out.
 */
#ifndef MERAK_PARTITIONER_PROGRAM_STAGED_H
#define MERAK_PARTITIONER_PROGRAM_STAGED_H

#include "partitioner/layout/layout.h"

/* Each staged piece begins at a multiple of this many bytes. */
#define MERAK_STAGED_ALIGN 64

/* Bytes of a member's piece that are combined at a time, with `n` members: the
 * same for all of them. */
size_t merak_staged_fragment(int n);
/* Is it an all-reduce in which every member receives everything and adds it? */
bool merak_staged_is_short(const struct merak_exchange *ex);
/* In an exchange that combines: what goes to member q, and what this member
 * combines. */
struct merak_box merak_staged_sent(const struct merak_exchange *ex, int q);
struct merak_box merak_staged_combined(const struct merak_exchange *ex);
/* The distance between where two members' fragments are received. */
size_t merak_staged_stride(const struct merak_exchange *ex, size_t fragment);

/*
 * Bytes that an exchange from device to device stages.  If it combines:
 * fragments of the other members, then what has to be packed before it is sent,
 * then the result if it has to be unpacked.  If not: pieces that are packed or
 * unpacked.
 *
 *   fragment  0: merak_staged_fragment()
 */
size_t merak_staged_bytes(const struct merak_exchange *ex, size_t fragment);
/* What is planned for it: through host memory (direct false), or for either
 * way, so that exchanges may still go through host memory. */
size_t merak_exchange_room(const struct merak_exchange *ex, bool direct);

#endif
