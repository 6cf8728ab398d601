/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/source.h - one data set of a blend: its concatenated files,
 * divided into a training and a validation stream
 *
 * The last floor(fraction * tokens) tokens of every file are for validation;
 * each split's stream consists of its parts of all files in order.
 *
 * Samples are cut from the stream, or documents are packed into them
 * (packing.h): then documents that begin in the tail are for validation.
 */
#ifndef MERAK_IO_TOKENS_SOURCE_H
#define MERAK_IO_TOKENS_SOURCE_H

#include "io/tokens/packing.h"
#include "io/tokens/reference.h"
#include "io/tokens/token_file.h"
#include "io/tokens/tokens.h"

struct merak_source {
    struct merak_token_file *file;
    size_t n_files;
    uint64_t *end[2]; /* by enum merak_split: [n_files], running totals */
    uint64_t samples[2];
    size_t seq;
    bool packed;    /* by packing[2], not from streams */
    bool masked;    /* a file has a mask */
    bool documents; /* nothing is predicted across documents */
    bool pairs;     /* of answers are packed, for a loss of pairs */
    struct merak_reference **reference; /* [n_files], with pairs */
    struct merak_packing packing[2];
    uint64_t *counted[2]; /* [samples] for streams with masks */
    unsigned char *mark;  /* [seq + 1], used by source.c */
};

/*
 * opt gives seq, valid_fraction, packing and documents.  MERAK_ERR_MISMATCH
 * gives the tokens found and needed if a requested split does not have a whole
 * sample.
 */
enum merak_status merak_source_open(const char *path,
                                    const struct merak_data_options *opt,
                                    struct merak_source *src,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_source_close(struct merak_source *src);
/* Tokens of both splits. */
uint64_t merak_source_tokens(const struct merak_source *src);
/* Sample 0 .. samples[split] - 1, with arrays as in merak_data_sample(),
 * merak_data_starts() and merak_data_pairs(). */
enum merak_status merak_source_sample(const struct merak_source *src,
                                      enum merak_split split, uint64_t sample,
                                      size_t vocab, int32_t *tokens,
                                      int32_t *targets,
                                      struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_source_starts(const struct merak_source *src,
                                      enum merak_split split, uint64_t sample,
                                      int32_t *starts,
                                      struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_source_pairs(const struct merak_source *src,
                                     enum merak_split split, uint64_t sample,
                                     int32_t *pairs, float *reference,
                                     struct merak_error *err) MERAK_CHECKED;
/* The number of a sample's targets to be predicted, or of its pairs,
 * without reading it. */
uint64_t merak_source_counted(const struct merak_source *src,
                              enum merak_split split, uint64_t sample);

/* --- source_pairs.c, for source.c ------------------------------------------
 */

/* Every file has pairs, and their losses under the reference model, which are
 * opened. */
enum merak_status
merak_source_open_pairs(struct merak_source *src,
                        struct merak_error *err) MERAK_CHECKED;
/* Pack those of file f; pairs that begin in the tail are for validation. */
enum merak_status
merak_source_pack_pairs(struct merak_source *src, size_t f, double fraction,
                        struct merak_error *err) MERAK_CHECKED;

#endif
