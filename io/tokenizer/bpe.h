/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokenizer/bpe.h - byte-pair merges
 *
 * Sennrich et al. 2016 (arXiv:1508.07909): a text is cut into pieces, and
 * within each the adjacent pair with the lowest rank, the leftmost of equals,
 * is merged until no pair has a rank.  The first symbols are bytes, as in
 * Radford et al. 2019, or characters.
 */
#ifndef MERAK_IO_TOKENIZER_BPE_H
#define MERAK_IO_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/tokenizer/token_index.h"
#include "merak/status.h"

struct merak_bpe;

struct merak_bpe_options {
    /* The token of each byte: the first symbols, or of `chars` those of a
     * character that has none; -1: there is none. */
    int32_t byte_id[256];
    bool chars;         /* the first symbols are characters */
    bool ignore_merges; /* a piece that is a token is that token */
    int32_t unknown;    /* of `chars`: where bytes have no token; -1: nothing */
    bool fuse_unknown;  /* unknown ones side by side are one */
    const struct merak_token_index *index; /* borrowed; of chars and of
                                              ignore_merges */
};

/* For max_merges merges. */
enum merak_status merak_bpe_create(const struct merak_bpe_options *opt,
                                   size_t max_merges, struct merak_bpe **bpe_p,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_bpe_destroy(struct merak_bpe *bpe);
/* left right -> id, in rank order; of a pair given twice the later counts. */
void merak_bpe_merge(struct merak_bpe *bpe, int32_t left, int32_t right,
                     int32_t id);
/* The same where ranks are given, from 0; equal ones go from left to right. */
void merak_bpe_merge_ranked(struct merak_bpe *bpe, int32_t left, int32_t right,
                            int32_t id, uint32_t rank);
/*
 * Tokens of one piece: *ids_p [*n_p], good until the next call.
 * Uses scratch and a cache of its own: one thread at a time.
 */
enum merak_status merak_bpe_encode(struct merak_bpe *bpe,
                                   const unsigned char *piece, size_t n,
                                   const int32_t **ids_p, size_t *n_p,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
