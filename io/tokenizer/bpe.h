/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokenizer/bpe.h - GPT-2's pieces and byte-pair merges
 *
 * Sennrich et al. 2016 (arXiv:1508.07909), over bytes as in Radford et al.
 * 2019: a text is cut into pieces, and within each the adjacent pair with
 * the lowest rank, the leftmost of equals, is merged until no pair has a
 * rank.
 */
#ifndef MERAK_IO_TOKENIZER_BPE_H
#define MERAK_IO_TOKENIZER_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

/*
 * Length of the first piece of text[0 .. n), n >= 1, by GPT-2's pattern
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * A run of bytes that are not UTF-8 is a piece of its own, and the text
 * before it ends there.
 */
size_t merak_piece(const unsigned char *text, size_t n);

struct merak_bpe;

/* byte_id: the token of every single byte; for max_merges merges. */
enum merak_status merak_bpe_create(const int32_t byte_id[256],
                                   size_t max_merges, struct merak_bpe **bpe_p,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_bpe_destroy(struct merak_bpe *bpe);
/* left right -> id, in rank order; of a pair given twice the later counts. */
void merak_bpe_merge(struct merak_bpe *bpe, int32_t left, int32_t right,
                     int32_t id);
/*
 * Tokens of one piece: *ids_p [*n_p], good until the next call.
 * Uses scratch and a cache of its own: one thread at a time.
 */
enum merak_status merak_bpe_encode(struct merak_bpe *bpe,
                                   const unsigned char *piece, size_t n,
                                   const int32_t **ids_p, size_t *n_p,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
