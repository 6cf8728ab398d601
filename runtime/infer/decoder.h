/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/infer/decoder.h - forward passes of a model, token by token
 *
 * The graph is the one that training differentiates; its forward nodes are run
 * by the backend's own kernels on the new positions.  Kernels know positions
 * from the part of an operand they are given, as with slices of a sequence
 * (partitioner/program/slices.c).  The cache keeps keys and values of all
 * earlier positions for attention.  So nothing here depends on the model
 * family.
 *
 * One sequence at a time, one process; kernels share its threads.
 */
#ifndef MERAK_RUNTIME_INFER_DECODER_H
#define MERAK_RUNTIME_INFER_DECODER_H

#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"
#include "merak/train.h"

struct merak_decoder;
struct merak_weights_id;

struct merak_decoder_options {
    merak_describe_fn describe;
    void *arg;              /* of describe */
    const char *backend;    /* NULL: "cpu"; a host backend */
    enum merak_dtype dtype; /* MERAK_F32 or MERAK_BF16 */
    size_t positions;       /* the longest sequence */
    /* For models whose rotary positions depend on the sequence's length: up to
     * this many tokens the model is the one described for this length; beyond,
     * the one for `positions`, and all earlier positions are computed again.
     * 0, or >= positions: always the one for `positions`. */
    size_t early;
    int threads;
    /* What merak_decoder_load() will load: looked at before memory is taken for
     * it, since that of another model may not fit.  NULL: not yet known. */
    const char *weights;
};

/*
 * Build the graph and lay out its memory, without weights.
 * MERAK_ERR_UNSUPPORTED for a model that runs several passes, or has an op
 * other than attention that mixes positions.
 */
enum merak_status merak_decoder_create(const struct merak_decoder_options *opt,
                                       struct merak_decoder **decoder_p,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_decoder_destroy(struct merak_decoder *d);
/*
 * Load the weights of a Hugging Face folder, a checkpoint, or a run's newest
 * checkpoint, saved with any degrees.  MERAK_ERR_MISMATCH if they are of
 * another model: for a checkpoint by its description, else by names and
 * shapes.
 */
enum merak_status merak_decoder_load(struct merak_decoder *d, const char *dir,
                                     struct merak_error *err) MERAK_CHECKED;

/* Which weights were loaded (io/weights/weights_id.h). */
enum merak_status merak_decoder_identify(const struct merak_decoder *d,
                                         struct merak_weights_id *id,
                                         struct merak_error *err) MERAK_CHECKED;

size_t merak_decoder_vocab(const struct merak_decoder *d);
/* Tokens of the sequence so far. */
size_t merak_decoder_length(const struct merak_decoder *d);
/* Forget all but the first n tokens of the sequence. */
void merak_decoder_rewind(struct merak_decoder *d, size_t n);
/*
 * Append n >= 1 tokens to the sequence.
 *
 *   logits_p  out  f32 [vocab] of what follows the last, until the next call;
 *                  NULL: not wanted
 *
 * MERAK_ERR_PARAM for an id outside the vocabulary, or more tokens than
 * positions.
 */
enum merak_status merak_decoder_next(struct merak_decoder *d,
                                     const int32_t *tokens, size_t n,
                                     const float **logits_p,
                                     struct merak_error *err) MERAK_CHECKED;
/*
 * The same, where the token that follows each is known.
 *
 *   nll  out  f32 [n], minus the logarithm of the probability of targets[i]
 */
enum merak_status merak_decoder_score(struct merak_decoder *d,
                                      const int32_t *tokens,
                                      const int32_t *targets, size_t n,
                                      float *nll,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
