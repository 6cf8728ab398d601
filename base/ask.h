/* SPDX-License-Identifier: Apache-2.0 */
/* base/ask.h - what a command prints, within a time limit */
#ifndef MERAK_BASE_ASK_H
#define MERAK_BASE_ASK_H

#include <stddef.h>

/* Run a command; text[size] is what it prints on stdout and stderr, truncated.
 * Returns its exit status, or -1: not found, killed, or not over within
 * `seconds`. */
int merak_ask(char *const *argv, double seconds, char *text, size_t size);

#endif
