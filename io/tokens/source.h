/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/source.h - one data set of a blend: its files laid end to end,
 * cut into a training and a validation stream
 *
 * The last floor(fraction * tokens) tokens of every file are for validation;
 * each split's stream is its parts of all files in order.
 */
#ifndef MERAK_IO_TOKENS_SOURCE_H
#define MERAK_IO_TOKENS_SOURCE_H

#include "io/tokens/tokens.h"
#include "io/tokens/token_file.h"

struct merak_source {
    struct merak_token_file *file;
    size_t n_files;
    uint64_t *end[2]; /* by enum merak_split: [n_files], running totals */
    uint64_t samples[2];
};

/*
 * opt gives seq, valid_fraction and vocab.  MERAK_ERR_MISMATCH tells the
 * tokens found and needed if a split that is asked for has no whole sample.
 */
enum merak_status merak_source_open(const char *path,
                                    const struct merak_data_options *opt,
                                    struct merak_source *src,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_source_close(struct merak_source *src);
/* Tokens of both splits. */
uint64_t merak_source_tokens(const struct merak_source *src);
/* Tokens [at, at + n) of a split's stream. */
enum merak_status merak_source_read(const struct merak_source *src,
                                    enum merak_split split, uint64_t at,
                                    size_t n, size_t vocab, int32_t *out,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
