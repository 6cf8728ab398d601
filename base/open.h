/* SPDX-License-Identifier: Apache-2.0 */
/* base/open.h - opening a file that a user named */
#ifndef MERAK_BASE_OPEN_H
#define MERAK_BASE_OPEN_H

#include <stddef.h>
#include <stdio.h>

/*
 * Open a regular file for reading, at once: opening a pipe that nobody writes
 * to would wait for ever, reading a device may not end.
 *
 * NULL, and a descriptor in *fd_p; else why not, to stand behind "FILE: ".
 * errno is then the system's, or 0 for "a pipe, not a file" and its like.
 */
const char *merak_open_regular(const char *path, int *fd_p);
/* The same for a stream. */
const char *merak_fopen_regular(const char *path, FILE **file_p);
/* The first line of a file of the system's, without its end; "" if there is
 * none. */
void merak_first_line(const char *path, char *line, size_t size);

#endif
