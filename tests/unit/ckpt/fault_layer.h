/* SPDX-License-Identifier: Apache-2.0 */
/* fault_layer.h - a file system that fails at one call, for tests
 *
 * fault_layer.c has open, write, fsync, rename and so on in front of libc's.
 * Linked into a program, fault_arm() says which call fails.  As a library to be
 * preloaded, the environment does:
 *
 *   MERAK_FAULT_DIR    calls on what is below this directory count
 *   MERAK_FAULT_CALLS  those alone whose names are in here ("write,fsync");
 *                      unset: all
 *   MERAK_FAULT_AT     the so-manyth of them fails, of all processes together
 *                      that began with one fork
 *   MERAK_FAULT_WITH   ENOSPC, EIO, EDQUOT, or KILL: the process group dies in
 *                      front of the call; or SLOW: each call takes a while, and
 *                      none fails
 *   MERAK_FAULT_LOG    a file that gets a line for each call that counts
 *
 * A write that fails first writes half of its bytes and says so, as a full disk
 * does; what is then written of the rest fails.
 */
#ifndef MERAK_TESTS_FAULT_LAYER_H
#define MERAK_TESTS_FAULT_LAYER_H

#include <stdbool.h>

enum { FAULT_KILL = -1, FAULT_SLOW = -2 };

/* calls NULL: all; at 0: none fails; with: an errno, or one of these. */
void fault_arm(const char *dir, const char *calls, long at, int with);
void fault_disarm(void);
/* Calls that counted since fault_arm(), of this process and its children. */
long fault_calls(void);
/* Did the call come?  Of whichever process. */
bool fault_struck(void);

#endif
