/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/staged.h - what an exchange stages in a device's memory
 *
 * Hosts exchange in pieces that they test one by one, in a window of a
 * megabyte (merak_exchange_scratch()).  From device to device (runtime/link) a
 * queue does one thing after the other, so that whole pieces are moved at a
 * time, in chunks that keep the links busy.  Here is what is sent to whom, and
 * how much memory all that takes: the planner counts it, and the link lays it
 * out.
 */
#ifndef MERAK_PARTITIONER_PROGRAM_STAGED_H
#define MERAK_PARTITIONER_PROGRAM_STAGED_H

#include "partitioner/layout/layout.h"

/* Each staged piece begins at a multiple of so many bytes. */
#define MERAK_STAGED_ALIGN 64

/* Bytes of a member's piece that are combined at a time, of `n` members: the
 * same for all of them. */
size_t merak_staged_chunk(int n);
/* An all-reduce where everybody gets everything, and adds it all. */
bool merak_staged_is_short(const struct merak_exchange *ex);
/* What goes to member q, and what this one combines, of an exchange that
 * combines. */
struct merak_box merak_staged_sent(const struct merak_exchange *ex, int q);
struct merak_box merak_staged_combined(const struct merak_exchange *ex);
/* From where one member's chunk is received to where the next one's is. */
size_t merak_staged_stride(const struct merak_exchange *ex, size_t chunk);

/*
 * Bytes that an exchange from device to device stages.  Of one that combines:
 * chunks of the other members, then what has to be packed to be sent, then the
 * result if it is to be put in place.  Of others: pieces that are packed or put
 * in place.
 *
 *   chunk  0: merak_staged_chunk()
 */
size_t merak_staged_bytes(const struct merak_exchange *ex, size_t chunk);
/* What is planned for it: by way of hosts (direct false), or for either way, so
 * that exchanges may go by hosts after all. */
size_t merak_exchange_room(const struct merak_exchange *ex, bool direct);

#endif
