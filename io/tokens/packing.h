/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/packing.h - documents packed into sequences of T tokens
 *
 * A document of L tokens takes L - 1 places: each is an input whose target is
 * the next, and the last one has none.  Best fit decreasing (Johnson et al.
 * 1974, doi:10.1137/0203025): the longest first, each into the sequence that it
 * leaves the least room in.  At most 11/9 of the fewest sequences there can be;
 * of documents much shorter than T nearly none of a sequence is left.
 *
 * What is longer than T + 1 tokens is cut into pieces.  Every token that is to
 * be predicted is in just one of them.  An answer that fits is not cut, nor is
 * what comes before it while that fits too: a piece ends with an answer, and
 * the next one begins behind it, or as far before its first answer's end as
 * fits.  An answer longer than T is cut every T tokens.  What comes behind the
 * last answer is left out.
 */
#ifndef MERAK_IO_TOKENS_PACKING_H
#define MERAK_IO_TOKENS_PACKING_H

#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

/* Tokens [at, at + n] of a file, all of one document. */
struct merak_doc_piece {
    uint64_t at;
    size_t file, n;   /* n: places taken */
    uint64_t counted; /* targets to be predicted */
};

struct merak_packing {
    struct merak_doc_piece *piece; /* by sample, then as they came */
    size_t n_pieces, room;
    size_t n_samples;
    size_t *first;     /* [n_samples + 1]: a sample's pieces */
    uint64_t *counted; /* [n_samples] targets */
};

/* A document: where it is, and counted[n], 1 for tokens that are to be
 * predicted; NULL: all are. */
struct merak_packed_document {
    size_t file;
    uint64_t at, n;
    const unsigned char *counted;
};

/* To zeros.  Add what of a document is to be predicted. */
enum merak_status
merak_packing_add(struct merak_packing *packing,
                  const struct merak_packed_document *document, size_t seq,
                  struct merak_error *err) MERAK_CHECKED;
/* Put all into samples, which come in the order of their first documents. */
enum merak_status merak_packing_finish(struct merak_packing *packing,
                                       size_t seq,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_packing_fini(struct merak_packing *packing);

#endif
