/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/packing.h - documents packed into sequences of T tokens
 *
 * A document of L tokens takes L - 1 positions: each token is an input whose
 * target is the next one, and the last has none.  Best fit decreasing (Johnson
 * et al. 1974, doi:10.1137/0203025): the longest first, each into the sequence
 * where it leaves the least room.  This needs at most 11/9 of the fewest
 * possible sequences; with documents much shorter than T, sequences are nearly
 * full.
 *
 * Documents longer than T + 1 tokens are cut into pieces.  Every token that is
 * to be predicted is predicted in exactly one of them.  An answer that fits is
 * not cut, nor is what precedes it, as long as that fits too: a piece ends
 * with an answer, and the next one begins after it, or as far before its first
 * answer's end as fits.  An answer longer than T is cut every T tokens.  What
 * follows the last answer is left out.
 *
 * A pair of answers, two documents behind one another, is a piece as it is,
 * both parts of it in one sequence; what is longer than T is left out.
 */
#ifndef MERAK_IO_TOKENS_PACKING_H
#define MERAK_IO_TOKENS_PACKING_H

#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

/* Tokens [at, at + n] of a file, all of one document or pair. */
struct merak_doc_piece {
    uint64_t at;
    size_t file, n;   /* n: positions taken */
    size_t second;    /* where a pair's second document begins, after `at`; 0:
                         it is no pair */
    uint64_t counted; /* targets to be predicted; of a pair 1 */
};

struct merak_packing {
    struct merak_doc_piece *piece; /* by sample, then in order of addition */
    size_t n_pieces, room;
    size_t n_samples;
    size_t *first;     /* [n_samples + 1]: a sample's pieces */
    uint64_t *counted; /* [n_samples] targets, or pairs */
    /* pairs that are longer than a sample, and positions of the longest */
    uint64_t too_long, longest;
};

/* A document: where it is, and counted[n], 1 for tokens to be predicted; NULL:
 * all are. */
struct merak_packed_document {
    size_t file;
    uint64_t at, n;
    const unsigned char *counted;
};

/* Initialize `packing` with zeros.  Adds the pieces of a document. */
enum merak_status
merak_packing_add(struct merak_packing *packing,
                  const struct merak_packed_document *document, size_t seq,
                  struct merak_error *err) MERAK_CHECKED;
/* Adds a pair: two documents of n tokens, the second from token `second` on. */
enum merak_status
merak_packing_add_pair(struct merak_packing *packing,
                       const struct merak_packed_document *pair, size_t second,
                       size_t seq, struct merak_error *err) MERAK_CHECKED;
/* Pack all pieces into samples, in the order of their first documents. */
enum merak_status merak_packing_finish(struct merak_packing *packing,
                                       size_t seq,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_packing_fini(struct merak_packing *packing);

#endif
