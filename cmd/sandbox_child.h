/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/sandbox_child.h - waiting for a command, and killing it with all that it
 * started
 */
#ifndef MERAK_CMD_SANDBOX_CHILD_H
#define MERAK_CMD_SANDBOX_CHILD_H

#include <signal.h>
#include <sys/types.h>

/*
 * Wait for pid; returns its exit code.  Meanwhile TERM and HUP are passed on
 * to it; the terminal itself sends it INT and QUIT, which are ignored here.
 * With grace: if it has not ended `grace` seconds after the first signal, it
 * is killed with all that it started; a second signal kills at once.
 */
int merak_child_wait(pid_t pid, const sigset_t *signals, int grace);
/* In a child: run argv with default signal handling. */
void merak_child_run(const sigset_t *signals, char *const *argv);

#endif
