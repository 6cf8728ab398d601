/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/boot/slurmd.h - noticing that this node's slurmd has ended
 *
 * Tasks outlive their slurmd, but Slurm can no longer signal them: no notice
 * before the time limit, no scancel; and it ends the job once it has missed
 * the node for SlurmdTimeout.
 */
#ifndef MERAK_RUNTIME_BOOT_SLURMD_H
#define MERAK_RUNTIME_BOOT_SLURMD_H

#include <stdbool.h>
#include <stdint.h>

struct merak_slurmd {
    char node[128]; /* its name for this node; "": nothing is watched */
    bool named;     /* by -N */
    long pid;
    int64_t next_ns;  /* when to look again */
    int64_t ended_ns; /* 0: it runs */
    bool told;        /* that it has ended */
};

enum merak_slurmd_news {
    MERAK_SLURMD_NO_NEWS,
    MERAK_SLURMD_GONE, /* for longer than a restart takes */
    MERAK_SLURMD_BACK, /* after it was told to be gone */
};

/* Look for the slurmd of node `name`, NULL: none, as for a process outside of
 * Slurm.  If processes are hidden, or it is unclear which is the node's,
 * nothing is watched. */
void merak_slurmd_watch(struct merak_slurmd *slurmd, const char *name);
/* To be called now and then; looks every few seconds. */
enum merak_slurmd_news merak_slurmd_check(struct merak_slurmd *slurmd,
                                          int64_t now_ns);

#endif
