/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/out_file.h - a file that is written under a temporary name, with a
 * buffer and, if asked for, a checksum, and renamed when it is whole
 */
#ifndef MERAK_IO_TOKENS_OUT_FILE_H
#define MERAK_IO_TOKENS_OUT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <xxhash.h>

#include "merak/status.h"

struct merak_out {
    char *path, *temporary;
    int fd;    /* -1: not open */
    bool made; /* the temporary file exists */
    unsigned char *buffer;
    size_t used;
    XXH3_state_t *sum; /* of what is written; NULL: not needed */
};

/* Remove the temporary files of PREFIX that killed processes of this host left.
 * This process has none yet. */
void merak_out_remove_leftovers(const char *prefix);
/* PREFIX with the suffix; out is zero, with fd -1.  Whether it succeeds or
 * not, merak_out_close() it. */
enum merak_status merak_out_open(struct merak_out *out, const char *prefix,
                                 const char *suffix,
                                 struct merak_error *err) MERAK_CHECKED;
/* The same with room for a header, which merak_out_finish() writes and which is
 * not in the checksum. */
enum merak_status merak_out_open_headed(struct merak_out *out,
                                        const char *prefix, const char *suffix,
                                        size_t header_bytes,
                                        struct merak_error *err) MERAK_CHECKED;
/* Have a checksum of what is put from now on. */
enum merak_status merak_out_start_sum(struct merak_out *out,
                                      struct merak_error *err) MERAK_CHECKED;
/* At most 65536 bytes at a time. */
enum merak_status merak_out_put(struct merak_out *out, const void *bytes,
                                size_t n,
                                struct merak_error *err) MERAK_CHECKED;
/* Write what was put; then the checksum is of all of it. */
enum merak_status merak_out_flush(struct merak_out *out,
                                  struct merak_error *err) MERAK_CHECKED;
/* Flush to stable storage. */
enum merak_status merak_out_sync(struct merak_out *out,
                                 struct merak_error *err) MERAK_CHECKED;
/* Write a flushed file's header, then the same. */
enum merak_status merak_out_finish(struct merak_out *out,
                                   const unsigned char *header, size_t n,
                                   struct merak_error *err) MERAK_CHECKED;
/* Rename a synced file into its place. */
enum merak_status merak_out_publish(struct merak_out *out,
                                    struct merak_error *err) MERAK_CHECKED;
/* What was not published is removed. */
void merak_out_close(struct merak_out *out);

#endif
