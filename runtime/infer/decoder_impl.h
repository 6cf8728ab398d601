/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/infer/decoder_impl.h - what the parts of a decoder share
 *
 * Three lists of nodes serve three wishes: keys and values alone (all but the
 * last token of a prompt), the logits too, or the loss of known targets.
 */
#ifndef MERAK_RUNTIME_INFER_DECODER_IMPL_H
#define MERAK_RUNTIME_INFER_DECODER_IMPL_H

#include "runtime/infer/decoder.h"

#include "kernels/kernels.h"
#include "partitioner/graph/graph.h"

#define MERAK_DECODER_ALIGN 64 /* bytes, as kernels like their operands */

enum merak_wish {
    MERAK_WISH_CACHE,
    MERAK_WISH_LOGITS,
    MERAK_WISH_LOSS,
    MERAK_WISHES
};

/* Where a value lies. */
struct merak_decoder_place {
    char *data;
    size_t row;     /* bytes of a position, or all bytes of what has none */
    bool positions; /* it is [1, T, ..] */
    bool kept;      /* for all positions */
    bool owned;     /* data is to be freed here */
    int last;       /* node that reads it last */
};

struct merak_decoder {
    struct merak_model *model, *early_model;
    const struct merak_graph *graph, *early; /* early: NULL if there is none */
    int32_t *told; /* tokens so far, where there is one */
    bool is_late;  /* keys and values are those of the graph */
    const struct merak_backend *backend;
    const struct merak_kernel **kernel; /* [n_forward]; NULL: never run */
    struct merak_decoder_place *place;  /* by value */
    bool *wanted[MERAK_WISHES];         /* by node */
    const struct merak_value *logits, *nll;
    char *weights;       /* of all parameters */
    size_t part, length; /* tokens computed at once, at most; so far */
    char *scratch;
    size_t scratch_bytes;
    float *wide; /* logits as f32, where they are not */
};

/* decoder_nodes.c: logits, nll, wanted, kernel; of place, positions and what
 * is kept. */
enum merak_status
merak_decoder_find_nodes(struct merak_decoder *d,
                         struct merak_error *err) MERAK_CHECKED;
/* decoder_memory.c: the rest of place, and wide. */
enum merak_status
merak_decoder_place_values(struct merak_decoder *d,
                           struct merak_error *err) MERAK_CHECKED;

#endif
