/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/mask.h - which tokens of a token file are to be predicted
 *
 * PREFIX.mask beside Megatron's PREFIX.bin and PREFIX.idx, whose other readers
 * need not know of it; a data set without one has all of its tokens predicted.
 */
#ifndef MERAK_IO_TOKENS_MASK_H
#define MERAK_IO_TOKENS_MASK_H

#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

struct merak_mask;

/*
 * Open PREFIX.mask and check all of it.
 *
 *   tokens, documents  of the pair beside it, which it must be of
 *   mask_p             out  yours to merak_mask_close; NULL: no such file
 *
 * MERAK_ERR_CORRUPT, MERAK_ERR_FORMAT and MERAK_ERR_MISMATCH tell what was
 * found and what was expected.
 */
enum merak_status merak_mask_open(const char *prefix, uint64_t tokens,
                                  uint64_t documents,
                                  struct merak_mask **mask_p,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_mask_close(struct merak_mask *mask);
/* How many are. */
uint64_t merak_mask_counted(const struct merak_mask *mask);
/* Of its bits. */
uint64_t merak_mask_checksum(const struct merak_mask *mask);
/* Of tokens [at, at + n): 1 for those that are to be predicted, else 0. */
enum merak_status merak_mask_read(const struct merak_mask *mask, uint64_t at,
                                  size_t n, unsigned char *out,
                                  struct merak_error *err) MERAK_CHECKED;

/* What is in front of the bits (mask.c), and how pack.c writes it. */
#define MERAK_MASK_HEADER_BYTES 48
void merak_mask_header(uint64_t tokens, uint64_t documents, uint64_t idx_sum,
                       uint64_t sum,
                       unsigned char head[MERAK_MASK_HEADER_BYTES]);

#endif
