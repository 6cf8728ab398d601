/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/mask.h - which tokens of a token file are to be predicted
 *
 * PREFIX.mask accompanies Megatron's PREFIX.bin and PREFIX.idx, whose other
 * readers can ignore it; without one, all tokens are predicted.
 */
#ifndef MERAK_IO_TOKENS_MASK_H
#define MERAK_IO_TOKENS_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

struct merak_mask;

/*
 * Open PREFIX.mask and check all of it.
 *
 *   tokens, documents  of its pair of files, which the mask must match
 *   mask_p             out  close it after use; NULL: no such file
 *
 * MERAK_ERR_CORRUPT, MERAK_ERR_FORMAT and MERAK_ERR_MISMATCH give what was
 * found and what was expected.
 */
enum merak_status merak_mask_open(const char *prefix, uint64_t tokens,
                                  uint64_t documents,
                                  struct merak_mask **mask_p,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_mask_close(struct merak_mask *mask);
/* The number of tokens to be predicted. */
uint64_t merak_mask_counted(const struct merak_mask *mask);
/* Are the documents pairs of a chosen and a rejected answer?  NULL: no. */
bool merak_mask_has_pairs(const struct merak_mask *mask);
/* The checksum of the bits. */
uint64_t merak_mask_checksum(const struct merak_mask *mask);
/* Read for tokens [at, at + n): 1 if it is to be predicted, else 0. */
enum merak_status merak_mask_read(const struct merak_mask *mask, uint64_t at,
                                  size_t n, unsigned char *out,
                                  struct merak_error *err) MERAK_CHECKED;

/* The header before the bits (mask.c), for pack.c to write. */
#define MERAK_MASK_HEADER_BYTES 48
void merak_mask_header(uint64_t tokens, uint64_t documents, bool pairs,
                       uint64_t idx_sum, uint64_t sum,
                       unsigned char head[MERAK_MASK_HEADER_BYTES]);

#endif
