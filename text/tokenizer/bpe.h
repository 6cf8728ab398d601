/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/bpe.h - byte-pair merges
 *
 * Sennrich et al. 2016 (arXiv:1508.07909): a text is cut into pieces, and
 * within each the adjacent pair with the lowest rank (the leftmost of equals)
 * is merged until no pair has a rank.  The first symbols are bytes, as in
 * Radford et al. 2019, or characters.
 */
#ifndef MERAK_TEXT_TOKENIZER_BPE_H
#define MERAK_TEXT_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/tokenizer/token_index.h"
#include "merak/status.h"

struct merak_bpe;

struct merak_bpe_options {
    /* The token of each byte: the first symbols, or with `chars` those of a
     * character without a token; -1: there is none. */
    int32_t byte_id[256];
    bool chars;         /* the first symbols are characters */
    bool ignore_merges; /* a piece that is a token is not merged */
    int32_t unknown;    /* for what has no token; -1: it is left out */
    bool fuse_unknown;  /* adjacent unknown tokens become one */
    const struct merak_token_index *index; /* borrowed; for chars and
                                              ignore_merges */
};

/* For max_merges merges. */
enum merak_status merak_bpe_create(const struct merak_bpe_options *opt,
                                   size_t max_merges, struct merak_bpe **bpe_p,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_bpe_destroy(struct merak_bpe *bpe);
/* Bytes that were left out so far. */
uint64_t merak_bpe_left_out(const struct merak_bpe *bpe);
/* left right -> id, in rank order; if a pair is given twice the later one
 * counts. */
void merak_bpe_merge(struct merak_bpe *bpe, int32_t left, int32_t right,
                     int32_t id);
/* The same with given ranks, from 0; equal ranks are merged from left to
 * right. */
void merak_bpe_merge_ranked(struct merak_bpe *bpe, int32_t left, int32_t right,
                            int32_t id, uint32_t rank);
/*
 * The tokens of one piece: *ids_p [*n_p], valid until the next call.  Uses
 * scratch and a cache: one thread at a time.
 */
enum merak_status merak_bpe_encode(struct merak_bpe *bpe,
                                   const unsigned char *piece, size_t n,
                                   const int32_t **ids_p, size_t *n_p,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
