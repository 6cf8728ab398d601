/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/infer/decoder_impl.h - shared by the files of the decoder
 *
 * There are three lists of nodes: to compute only keys and values (all but the
 * last token of a prompt), the logits too, or the loss of known targets.
 */
#ifndef MERAK_RUNTIME_INFER_DECODER_IMPL_H
#define MERAK_RUNTIME_INFER_DECODER_IMPL_H

#include "runtime/infer/decoder.h"

#include "kernels/kernels.h"
#include "partitioner/graph/graph.h"

#define MERAK_DECODER_ALIGN 64 /* bytes; aligned operands are faster */

enum merak_wish {
    MERAK_WISH_CACHE,
    MERAK_WISH_LOGITS,
    MERAK_WISH_LOSS,
    MERAK_WISHES
};

/* Where a value is in memory. */
struct merak_decoder_place {
    char *data;
    size_t row;     /* bytes per position, or of all if it has no positions */
    bool positions; /* it is [1, T, ..] */
    bool kept;      /* for all positions */
    bool owned;     /* free data with the decoder */
    int last;       /* last node that reads it */
};

struct merak_decoder {
    struct merak_model *model, *early_model;
    const struct merak_graph *graph, *early; /* early: NULL if there is none */
    int32_t *told; /* tokens so far, if `early` is not NULL */
    bool is_late;  /* keys and values are of `graph`, not of `early` */
    const struct merak_backend *backend;
    const struct merak_kernel **kernel; /* [n_forward]; NULL: never run */
    struct merak_decoder_place *place;  /* by value */
    bool *wanted[MERAK_WISHES];         /* by node */
    const struct merak_value *logits, *nll;
    char *weights;       /* of all parameters */
    size_t part, length; /* the most tokens computed at once; tokens so far */
    char *scratch;
    size_t scratch_bytes;
    float *wide; /* logits as f32, if they are bf16 */
};

/* decoder_nodes.c: fills logits, nll, wanted, kernel and, of place, positions
 * and kept. */
enum merak_status
merak_decoder_find_nodes(struct merak_decoder *d,
                         struct merak_error *err) MERAK_CHECKED;
/* decoder_memory.c: fills the rest of place, and wide. */
enum merak_status
merak_decoder_place_values(struct merak_decoder *d,
                           struct merak_error *err) MERAK_CHECKED;
/* decoder_weights.c: are the weights there of this model? */
enum merak_status merak_decoder_check(const struct merak_decoder *d,
                                      const char *dir,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
