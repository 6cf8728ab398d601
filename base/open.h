/* SPDX-License-Identifier: Apache-2.0 */
/* base/open.h - opening files: those that a user named, and those of a folder
 * that others can write to, too */
#ifndef MERAK_BASE_OPEN_H
#define MERAK_BASE_OPEN_H

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

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

/*
 * A run's folder may be one that a group shares.  Who can write to it can put
 * there a link, or a second name, of a file of somebody else's, which whoever
 * starts the run may write to and whoever reads it may read.  So these files
 * are opened only if they are regular, are no link and have no other name.
 * Returned is NULL or the reason, as above.
 */
/* For reading, and only if it is that user's; MERAK_ANY_OWNER: anyone's. */
#define MERAK_ANY_OWNER ((uid_t)-1)
const char *merak_fopen_own(const char *path, uid_t owner, FILE **file_p);
/* For writing at its end; made if there is none. */
const char *merak_fopen_append(const char *path, FILE **file_p);
/* A new file; what has this name is removed, and not written to. */
const char *merak_open_new(const char *path, mode_t mode, int *fd_p);
const char *merak_fopen_new(const char *path, FILE **file_p);

/*
 * What a path that the user gave leads to, in to[PATH_MAX]: the user may have
 * put a link there, which renaming a file to this name would replace.  The path
 * itself if there is nothing; it has less than PATH_MAX bytes.
 */
void merak_follow_links(const char *path, char *to);

/*
 * Open /dev/null in place of standard input, output and error where they are
 * closed, as some daemons have them: the next file that is opened would take
 * the place, and messages would be written into it.  To be called before
 * anything is opened.
 */
void merak_open_std(void);

/* The first line of a system file, without its newline; "" if there is none. */
void merak_first_line(const char *path, char *line, size_t size);

#endif
