/* SPDX-License-Identifier: Apache-2.0 */
/* io/file.h - reading, writing and publishing files; failures name the file
 *
 * A full disk or quota is MERAK_ERR_NOSPACE, an absent file
 * MERAK_ERR_NOT_FOUND, a file shorter than what is read from it
 * MERAK_ERR_CORRUPT, anything else MERAK_ERR_IO with the system's reason.
 */
#ifndef MERAK_IO_FILE_H
#define MERAK_IO_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

/*
 * Open a regular file for reading.
 *   fd_p, bytes_p  out  descriptor, yours to close; size
 * If the soft limit of open files is reached, raises it: a blend may have more
 * files than the usual 1024.
 */
enum merak_status merak_file_open(const char *path, int *fd_p,
                                  uint64_t *bytes_p,
                                  struct merak_error *err) MERAK_CHECKED;
/* Read exactly n bytes from offset `at`.  Thread-safe. */
enum merak_status merak_file_read(int fd, const char *path, void *buf, size_t n,
                                  uint64_t at,
                                  struct merak_error *err) MERAK_CHECKED;
/* Write exactly n bytes at the descriptor's position. */
enum merak_status merak_file_write(int fd, const char *path, const void *buf,
                                   size_t n,
                                   struct merak_error *err) MERAK_CHECKED;
/* The same at offset `at`; the position is unchanged. */
enum merak_status merak_file_write_at(int fd, const char *path, const void *buf,
                                      size_t n, uint64_t at,
                                      struct merak_error *err) MERAK_CHECKED;
/* Flush to stable storage and close; fd is closed also on failure. */
enum merak_status merak_file_sync_close(int fd, const char *path,
                                        struct merak_error *err) MERAK_CHECKED;
/* Make the names in path's directory durable. */
enum merak_status merak_file_sync_dir(const char *path,
                                      struct merak_error *err) MERAK_CHECKED;
/* Fail since the steps that a run does again stay in a file, with the reason;
 * errno may say that there is no room. */
enum merak_status merak_file_fail_redone(struct merak_error *err,
                                         const char *path,
                                         const char *why) MERAK_CHECKED;
/* Fail with the reason in errno: "cannot VERB PATH: REASON". */
enum merak_status merak_file_fail(struct merak_error *err, const char *verb,
                                  const char *path);

#endif
