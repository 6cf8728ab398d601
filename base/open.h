/* SPDX-License-Identifier: Apache-2.0 */
/* base/open.h - opening a file that a user named */
#ifndef MERAK_BASE_OPEN_H
#define MERAK_BASE_OPEN_H

#include <stddef.h>
#include <stdio.h>

/*
 * Open a regular file for reading, without blocking: opening a pipe without a
 * writer would wait forever, and reading a device may not end.
 *
 * Returns NULL, with a descriptor in *fd_p, or the reason, to follow "FILE: ".
 * errno is then the system's, or 0 for "a pipe, not a file" and the like.
 */
const char *merak_open_regular(const char *path, int *fd_p);
/* The same for a stream. */
const char *merak_fopen_regular(const char *path, FILE **file_p);
/* The first line of a system file, without its newline; "" if there is none. */
void merak_first_line(const char *path, char *line, size_t size);

#endif
