/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/boot/watch.h - noticing that a process of the same node has ended
 *
 * Two ranks of a node hold the two ends of a socket.  However a process ends
 * (killed, crashed, out of memory), the kernel closes its end, and whoever
 * polls the other one wakes up.  This needs no privilege, no process id that
 * is valid in both containers, and no recent kernel.  A stopped process keeps
 * its end open: it is not dead, and only a deadline detects it.
 */
#ifndef MERAK_RUNTIME_BOOT_WATCH_H
#define MERAK_RUNTIME_BOOT_WATCH_H

#include <stdint.h>

#include "runtime/boot/boot.h"

struct merak_watch;

/* How node peers find a rank, and show that they are its peers. */
struct merak_watch_card {
    uint64_t secret[2]; /* what they say to it; only the exchange tells */
    char name[40];      /* of its socket, for all to see; empty: it has none */
};

/*
 * Listen for node peers, and fill the card by which they find this rank.  A
 * rank that is alone on its node has nobody to watch.
 *
 *   boot     in   borrowed for the watch's life
 *   card     out  for all ranks of the node
 *
 * MERAK_OK or MERAK_ERR_NOMEM.  If no socket can be made, card is empty and
 * nobody is watched.
 */
enum merak_status merak_watch_open(struct merak_boot *boot,
                                   struct merak_watch **watch_p,
                                   struct merak_watch_card *card,
                                   struct merak_error *err) MERAK_CHECKED;
/*
 * Connect to the node peers of higher rank; cards[size] are `stride` bytes
 * apart.  Once all of them have done so (run a collective between the two
 * calls), take the connections of the lower ones.  A peer that cannot be
 * reached (another network namespace, or no place in its queue for half of the
 * boot's deadline) is not watched, which is logged in one line.
 */
void merak_watch_connect(struct merak_watch *watch, const void *cards,
                         size_t stride);
void merak_watch_accept(struct merak_watch *watch);

/* Readable when a watched process has ended; -1: there is none to watch. */
int merak_watch_fd(const struct merak_watch *watch);
/* The rank whose process has ended, or -1; each is returned once.  Never
 * blocks. */
int merak_watch_next_ended(struct merak_watch *watch);
/* Has this rank's process ended, as returned by merak_watch_next_ended()? */
bool merak_watch_has_ended(const struct merak_watch *watch, int rank);

/* The process id of a watched rank, in this process's namespace; 0: not
 * known. */
long merak_watch_pid(const struct merak_watch *watch, int rank);

/* The state letter of /proc/PID/stat, 0 where it cannot be read. */
char merak_process_state(long pid);
/* To peers that still watch this rank it then looks as if it has ended. */
void merak_watch_close(struct merak_watch *watch);

#endif
