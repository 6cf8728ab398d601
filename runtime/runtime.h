/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/runtime.h - exit codes, the same on all ranks, and
 * a default that commands share */
#ifndef MERAK_RUNTIME_RUNTIME_H
#define MERAK_RUNTIME_RUNTIME_H

#include <stddef.h>

enum merak_exit {
    MERAK_EXIT_DONE = 0,
    MERAK_EXIT_CRASH = 1,
    MERAK_EXIT_CONFIG = 66,   /* options, model, degrees */
    MERAK_EXIT_DATA = 67,     /* data or checkpoint does not fit */
    MERAK_EXIT_LAUNCH = 68,   /* no PMIx with more than one task */
    MERAK_EXIT_RESOURCE = 69, /* memory, disk */
    MERAK_EXIT_AGAIN = 75,    /* saved; resubmit to continue */
};

/* Tokens of a sequence, unless --seq is given. */
enum { MERAK_DEFAULT_SEQ = 256 };
/* .. for a model of so many positions; 0: not known. */
static inline size_t merak_default_seq(size_t positions)
{
    return positions > 0 && positions < MERAK_DEFAULT_SEQ ? positions
                                                          : MERAK_DEFAULT_SEQ;
}

#endif
