/* SPDX-License-Identifier: Apache-2.0 */
/* weights_id.c - a checksum of some elements of every parameter
 *
 * Training moves nearly every element of what it trains, so few of each
 * parameter tell two models apart.  Parameters are added up, so that their
 * order, in which adapters may be among the others, does not count.
 */
#include "config.h"

#include "io/weights/weights_id.h"

#include "base/half.h"
#include "partitioner/graph/dims.h"
#include "partitioner/graph/graph.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* Ranges of a parameter, one at each end, and elements of each. */
enum { RANGES = 4, RANGE = 64 };

static enum merak_status add_param(const struct merak_value *v,
                                   merak_weights_read_fn read, void *arg,
                                   uint64_t *sum, struct merak_error *err)
{
    size_t count = merak_shape_count(&v->shape);
    size_t n = count < RANGE ? count : RANGE;
    uint64_t h = XXH3_64bits(v->name, strlen(v->name));
    enum merak_status rc = MERAK_OK;
    uint16_t half[RANGE];
    float x[RANGE];
    char name[512];
    struct merak_ckpt_piece piece = {
        .name = name, .shape = v->shape, .data = x};

    snprintf(name, sizeof(name), "param/%s", v->name);
    piece.box.ndim = v->shape.ndim;
    memcpy(piece.box.full, v->shape.dim, sizeof(piece.box.full));
    memcpy(piece.box.len, v->shape.dim, sizeof(piece.box.len));
    for (size_t i = 0; i < RANGES && rc == MERAK_OK; i++) {
        piece.flat_lo = (count - n) / (RANGES - 1) * i;
        if (i == RANGES - 1)
            piece.flat_lo = count - n;
        piece.flat_hi = piece.flat_lo + n;
        rc = read(arg, v, &piece, err);
        for (size_t k = 0; k < n && rc == MERAK_OK; k++)
            half[k] = htole16(merak_f32_to_bf16(x[k]));
        if (rc == MERAK_OK)
            h = XXH3_64bits_withSeed(half, n * sizeof(*half), h);
    }
    *sum += h;
    return rc;
}

enum merak_status merak_weights_identify(const struct merak_graph *graph,
                                         bool adapters,
                                         merak_weights_read_fn read, void *arg,
                                         struct merak_weights_id *id,
                                         struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    uint64_t sum[2] = {0, 0}; /* by whether they are adapters */

    for (int i = 0; i < graph->n_values && rc == MERAK_OK; i++) {
        const struct merak_value *v = graph->value[i];

        if (v->kind == MERAK_VALUE_PARAM && (adapters || !v->adapter))
            rc = add_param(v, read, arg, &sum[v->adapter], err);
    }
    id->base = sum[0];
    id->whole = sum[0] + sum[1];
    return rc;
}
