/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/bigram.h - the cross-entropy of a bigram model, as a baseline
 *
 * Interpolated absolute discounting (Ney, Essen and Kneser 1994) over the
 * add-one-half unigram:
 *
 *   P(b|a) = max(c(ab) - D, 0) / c(a) + D n(a) / c(a) * U(b)
 *   U(b)   = (c(b) + 1/2) / (N + V/2)
 *
 * where n(a) counts the distinct successors of a, and P = U after an unseen a.
 * D is the best of 0.05, 0.10 .. 1 on every tenth training sample, with counts
 * from the others; then all samples are counted.
 */
#ifndef MERAK_IO_TOKENS_BIGRAM_H
#define MERAK_IO_TOKENS_BIGRAM_H

#include "io/tokens/tokens.h"

struct merak_bigram_result {
    double bigram;   /* nats per token on the validation split */
    double unigram;  /* of U, likewise */
    double discount; /* D */
    uint64_t train_tokens, valid_tokens; /* predicted once each */
};

/*
 * Train on one epoch of data's training split, evaluate on its validation
 * split: on the same tokens in the same contexts as a model's loss over all of
 * it.
 *   opt  the options of data; seq is required, vocab 0 means the largest
 *        id seen plus one
 */
enum merak_status merak_bigram_evaluate(const struct merak_data *data,
                                        const struct merak_data_options *opt,
                                        struct merak_bigram_result *result,
                                        struct merak_error *err) MERAK_CHECKED;

#endif
