/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/beside.h - what the files beside a token file share: little-endian
 * headers, and checksums that tie them to the index they were made with */
#ifndef MERAK_IO_TOKENS_BESIDE_H
#define MERAK_IO_TOKENS_BESIDE_H

#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

void merak_put_u64(unsigned char *to, uint64_t value);
uint64_t merak_get_u64(const unsigned char *from);
/* Read the header, of n bytes, of an opened file; it begins with 8 bytes of
 * magic, or the file is "not_one". */
enum merak_status merak_beside_header(int fd, const char *path, uint64_t bytes,
                                      const char *magic, const char *not_one,
                                      unsigned char *head, size_t n,
                                      struct merak_error *err) MERAK_CHECKED;
/* XXH3 (64 bits) of bytes [at, bytes) of a file has to be `sum`; *ones_p: how
 * many bits of them are 1. */
enum merak_status merak_beside_check(int fd, const char *path, uint64_t at,
                                     uint64_t bytes, uint64_t sum,
                                     uint64_t *ones_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* XXH3 of PREFIX.idx. */
enum merak_status merak_beside_index(const char *prefix, uint64_t *sum_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* A path with this suffix; NULL: no memory. */
char *merak_beside_path(const char *prefix, const char *suffix);

#endif
