/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/tokens.h - token files and the order samples are drawn in
 *
 * Reads Megatron's .bin/.idx (given by prefix or either file), llm.c token
 * files, patterns of either, and weighted blends of several.  Sample s of a
 * data set is tokens [s*T, s*T + T] of its concatenated documents (T inputs
 * and T targets share T-1), or some whole documents (packing.h).  Both are
 * stateless, so the position in the data is a single number.
 */
#ifndef MERAK_IO_TOKENS_TOKENS_H
#define MERAK_IO_TOKENS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

struct merak_data;

enum merak_packing_kind {
    MERAK_PACKING_AUTO, /* best fit if a file has a mask, else a stream */
    MERAK_PACKING_STREAM,
    MERAK_PACKING_BEST_FIT,
};

struct merak_data_options {
    const char *spec;   /* "PATH" or "W1 PATH1 W2 PATH2 .." */
    size_t seq;         /* T */
    uint64_t seed;      /* of the shuffle, which is a function of (seed,
                           epoch) */
    double valid_fraction; /* tail of every file kept for validation */
    size_t vocab;       /* ids must be below it; 0: not checked */
    enum merak_packing_kind packing;
    bool in_order;  /* training samples, too, come in the files' order, each
                       data set of a blend once, one after the other */
    bool documents; /* merak_data_starts() will be called, and nothing is
                       predicted across documents */
    bool pairs;     /* merak_data_pairs() will be called: pairs of answers are
                       packed, each in one sample, whatever `packing` is */
};

enum merak_split { MERAK_TRAIN, MERAK_VALID };

/*
 * Open all files of a data set, and check their sizes and pointers; tokens are
 * checked when read.  opt is borrowed for the call.
 *
 * MERAK_ERR_CORRUPT or MERAK_ERR_FORMAT names a file, MERAK_ERR_MISMATCH: a
 * split has no sample.
 */
enum merak_status merak_data_open(const struct merak_data_options *opt,
                                  struct merak_data **data_p,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_data_close(struct merak_data *data);
/* Samples in one epoch of a split; for a blend, the total of its data sets
 * (each goes through its own epochs, at its own pace). */
uint64_t merak_data_samples(const struct merak_data *data,
                            enum merak_split split);
uint64_t merak_data_tokens(const struct merak_data *data);
/* 64 hex digits: fingerprint of what is read (names, sizes, weights). */
const char *merak_data_id(const struct merak_data *data);
/* What the data are, whatever their files are called: "23893 tokens in 1 file,
 * 0123456789abcdef", a checksum of types, sizes, weights and of ids at places
 * throughout each file. */
enum { MERAK_DATA_CONTENT = 96 };
void merak_data_content(const struct merak_data *data,
                        char text[MERAK_DATA_CONTENT]);
/*
 * Sample number `index` (0.., beyond an epoch it continues with the next
 * epoch's order; the validation split is not shuffled).
 *   tokens, targets  out  i32[T]; a target is MERAK_NO_TARGET if it is not
 *                    to be predicted
 * MERAK_ERR_CORRUPT names file and position of an id >= vocab.  For data with
 * masks or documents one thread at a time, here and below.
 */
enum merak_status merak_data_sample(const struct merak_data *data,
                                    enum merak_split split, uint64_t index,
                                    int32_t *tokens, int32_t *targets,
                                    struct merak_error *err) MERAK_CHECKED;

/* The start of the document of each of its tokens: i32[T], from 0.  For data
 * that was opened with `documents`. */
enum merak_status merak_data_starts(const struct merak_data *data,
                                    enum merak_split split, uint64_t index,
                                    int32_t *starts,
                                    struct merak_error *err) MERAK_CHECKED;
/*
 * The pairs of answers of a sample, for data that was opened with `pairs`.
 *   pairs      out  i32[T]: for each position of a pair the position at which
 *                   its second answer begins, 0 for others
 *   reference  out  f32[T]: the loss of the target under the reference model
 */
enum merak_status merak_data_pairs(const struct merak_data *data,
                                   enum merak_split split, uint64_t index,
                                   int32_t *pairs, float *reference,
                                   struct merak_error *err) MERAK_CHECKED;
struct merak_reference;
/* The losses beside the i-th file, for data that was opened with `pairs`;
 * NULL: it has no such file, or data is NULL: there are no tokens. */
const struct merak_reference *
merak_data_reference(const struct merak_data *data, size_t i);
/* Does a file of it have pairs of answers? */
bool merak_data_has_pairs(const struct merak_data *data);
/* May a target be MERAK_NO_TARGET? */
bool merak_data_is_masked(const struct merak_data *data);
/* How many targets are not, or with `pairs` how many pairs there are, in
 * samples [index, index + n), without reading. */
uint64_t merak_data_counted(const struct merak_data *data,
                            enum merak_split split, uint64_t index, uint64_t n);
/* Of the packed training samples: their positions, those filled by documents,
 * the targets to be predicted, the number of documents, or pieces of long
 * ones, or pairs; of all pairs those that were too long, and the positions that
 * the longest of them would take.  False if samples are not packed, or data is
 * NULL. */
struct merak_data_packed {
    uint64_t places, filled, counted, pieces, too_long, longest;
};
bool merak_data_is_packed(const struct merak_data *data,
                          struct merak_data_packed *packed);

#endif
