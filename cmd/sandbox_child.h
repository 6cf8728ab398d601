/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/sandbox_child.h - a command that is waited for, and ended with all that
 * it started
 */
#ifndef MERAK_CMD_SANDBOX_CHILD_H
#define MERAK_CMD_SANDBOX_CHILD_H

#include <signal.h>
#include <sys/types.h>

/*
 * Wait for pid; its exit code.  Meanwhile TERM and HUP go on to it.  INT and
 * QUIT reach it from the terminal by itself and are not ours to act on.  With
 * grace: when it has not ended so many seconds after the first of them it is
 * killed, and what it started; a second one does that at once.
 */
int merak_child_wait(pid_t pid, const sigset_t *signals, int grace);
/* In a child: run argv with the signals of an ordinary process. */
void merak_child_run(const sigset_t *signals, char *const *argv);

#endif
