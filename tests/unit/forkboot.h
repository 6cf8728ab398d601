/* SPDX-License-Identifier: Apache-2.0 */
/* forkboot.h - a boot for N forked ranks, without a launcher
 *
 * The parent collects every rank's card over a socket pair and hands all of
 * them to all.  A rank that dies closes its socket; the others then fail
 * instead of waiting.
 */
#ifndef MERAK_TESTS_FORKBOOT_H
#define MERAK_TESTS_FORKBOOT_H

#include "runtime/boot/boot.h"

/* What a rank does; 0 if all went well. */
typedef int (*fork_fn)(struct merak_boot *boot, void *arg);

/*
 * Run fn on n ranks, each killed after timeout_s seconds.  node_of[n] says on
 * which node each pretends to be (NULL: all on one).  Returns the number of
 * ranks that did not return 0.
 */
int fork_ranks(int n, const int *node_of, unsigned timeout_s, fork_fn fn,
               void *arg);

#endif
