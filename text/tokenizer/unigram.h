/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/unigram.h - the likeliest segmentation of a text into pieces
 *
 * Kudo 2018 (arXiv:1804.10959): every piece has a log probability, and the
 * segmentation with the largest sum is used.
 */
#ifndef MERAK_TEXT_TOKENIZER_UNIGRAM_H
#define MERAK_TEXT_TOKENIZER_UNIGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/tokenizer/token_index.h"
#include "merak/status.h"

struct merak_unigram;

struct merak_unigram_options {
    const struct merak_token_index *index; /* borrowed; of all pieces */
    const double *score;                   /* by id, copied */
    size_t vocab;
    size_t longest;       /* bytes of the longest piece */
    double unknown_score; /* of a character without a piece */
    int32_t unknown;      /* its id; adjacent ones become one */
    int32_t byte_id[256]; /* -1: no token; an unknown character becomes bytes
                             if all of its bytes have tokens */
    bool single;          /* sums are rounded to single precision */
    bool runs_are_pieces; /* adjacent unknown characters may form a piece */
};

enum merak_status merak_unigram_create(const struct merak_unigram_options *opt,
                                       struct merak_unigram **unigram_p,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_unigram_destroy(struct merak_unigram *u);
/* *ids_p [*n_p], valid until the next call; one thread at a time. */
enum merak_status merak_unigram_encode(struct merak_unigram *u,
                                       const unsigned char *text, size_t n,
                                       const int32_t **ids_p, size_t *n_p,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
