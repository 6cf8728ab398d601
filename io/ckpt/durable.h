/* SPDX-License-Identifier: Apache-2.0 */
/* io/ckpt/durable.h - files that survive a power loss */
#ifndef MERAK_IO_CKPT_DURABLE_H
#define MERAK_IO_CKPT_DURABLE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

/* 32 hex digits of xxh3-128, as `xxhsum -H2` prints it, and the end. */
#define MERAK_HASH_TEXT 33
/* Names below a directory are ours and short: if the directory has at most
 * MERAK_DIR_MAX bytes, no path made here is truncated. */
#define MERAK_DIR_MAX (PATH_MAX - 256)

/* "dir/name" in buf[PATH_MAX]; returns buf. */
char *merak_path(char *buf, const char *dir, const char *name);

/* An incremental hash; NULL: no memory. */
struct merak_hasher;
struct merak_hasher *merak_hasher_create(void);
void merak_hasher_destroy(struct merak_hasher *hasher);
void merak_hasher_add(struct merak_hasher *hasher, const void *data,
                      size_t bytes);
/* The hash of all bytes since the hasher was created or this was last
 * called. */
void merak_hasher_take(struct merak_hasher *hasher, char hash[MERAK_HASH_TEXT]);

void merak_hash(const void *data, size_t bytes, char hash[MERAK_HASH_TEXT]);
/* Size and hash of a file. */
enum merak_status merak_durable_hash(const char *path, uint64_t *bytes_p,
                                     char hash[MERAK_HASH_TEXT],
                                     struct merak_error *err) MERAK_CHECKED;
/* Read a whole file, and append a null byte; free() it. */
enum merak_status merak_durable_read(const char *path, char **text_p,
                                     size_t *bytes_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Create (or truncate) a file, write, fsync.  On failure the file is
 * removed. */
enum merak_status merak_durable_write(const char *path, const void *data,
                                      size_t bytes,
                                      struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_dir_sync(const char *path,
                                 struct merak_error *err) MERAK_CHECKED;
/* Make a directory and its parents, durably; one may exist, but if it is not a
 * directory: MERAK_ERR_CONFIG. */
enum merak_status merak_dir_make(const char *path,
                                 struct merak_error *err) MERAK_CHECKED;
/* The length of the longest beginning of a path that exists. */
size_t merak_dir_existing(const char *path);
/* Remove a directory and those above it as far as they are empty, down to what
 * merak_dir_existing() had found before they were made. */
void merak_dir_remove_made(const char *path, size_t there);
/* Remove a directory of files; it may be absent.  Callers that only clean up
 * ignore the result. */
enum merak_status merak_dir_remove(const char *path, struct merak_error *err);

#endif
