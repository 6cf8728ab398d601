/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/thread_pool.h - the threads that share a kernel's work
 *
 * This is not an OpenMP team, because a team's threads spin between parallel
 * regions for a time set by an environment variable read before main()
 * (milliseconds by default), which starves the communication thread and the
 * other ranks on a shared core.  These spin for 20 us, then sleep.
 *
 * Work is divided into items by shape alone; threads take items in any order
 * and each item writes its own elements, so results do not depend on the number
 * of threads.  One kernel runs at a time in a process.
 */
#ifndef MERAK_KERNELS_CPU_POOL_H
#define MERAK_KERNELS_CPU_POOL_H

#include <stddef.h>

#include "merak/status.h"

/* Bytes of working memory each thread has from merak_pool_open() on. */
#define MERAK_POOL_WORKSPACE ((size_t)1 << 20)

/* Open with a total of `threads`, including the caller.  If opened again with
 * another count, the old threads end first. */
enum merak_status merak_pool_open(int threads,
                                  struct merak_error *err) MERAK_CHECKED;
/* 0 before merak_pool_open(). */
int merak_pool_threads(void);
/* Workspace of thread 0 .. threads - 1; 64-byte aligned. */
void *merak_pool_workspace(int thread);

/* Call fn(arg, item, thread) for item 0 .. n - 1; returns when all are done. */
typedef void (*merak_item_fn)(void *arg, size_t item, int thread);
void merak_pool_run(merak_item_fn fn, void *arg, size_t n);

#endif
