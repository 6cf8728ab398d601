/* SPDX-License-Identifier: Apache-2.0 */
/* io/samples/corrupted.h - samples of token files of which tokens are hidden
 *
 * They are arrays for inputs that a model has named, as FILE.json would have
 * them, and inputs are known by these names:
 *
 *     mask    ids [T]     the text, tokens hidden
 *             masked [T]  what was hidden, else MERAK_NO_TARGET
 *             types [T]   0: all is one text
 *             lengths []  T
 *     spans   source [S]  the text, sentinels in the place of spans
 *             lengths []  how many tokens of it there are
 *             labels [T]  the spans, MERAK_NO_TARGET behind their end
 *             decoder [T] the same one position later, behind a first token
 *
 * ids and masked, or source, decoder and labels, are required.
 */
#ifndef MERAK_IO_SAMPLES_CORRUPTED_H
#define MERAK_IO_SAMPLES_CORRUPTED_H

#include "io/samples/sample_set.h"
#include "io/special_ids.h"
#include "io/corrupt.h"

struct merak_corrupted_options {
    struct merak_corrupt corrupt; /* not AUTO, not NONE */
    uint64_t seed;
    const struct merak_special_ids *ids; /* borrowed, also by samples */
    int n_wishes;
    const struct merak_wish *wish; /* borrowed for the call */
    size_t vocab;                  /* ids are below it */
};

/* Are these inputs those of `mask`, or of `spans`?  Else NONE. */
enum merak_corrupt_kind merak_corrupted_kind(int n_wishes,
                                             const struct merak_wish *wish);
/* Whose vocabulary tokens of files are of: ids or source. */
int merak_corrupted_reader(int n_wishes, const struct merak_wish *wish);
/*
 * *raw_p: tokens of files that a sample is made of, the T that data are to be
 * opened with.
 *
 * MERAK_ERR_CONFIG: the model has other inputs, sequences are too short, an id
 * that is needed is not known or not below vocab.
 */
enum merak_status
merak_corrupted_check(const struct merak_corrupted_options *opt, size_t *raw_p,
                      struct merak_error *err) MERAK_CHECKED;
/* After that; data is borrowed, and was opened with that T and as a stream. */
enum merak_status merak_samples_corrupted(
    const struct merak_corrupted_options *opt, struct merak_data *data,
    struct merak_samples **samples_p, struct merak_error *err) MERAK_CHECKED;

#endif
