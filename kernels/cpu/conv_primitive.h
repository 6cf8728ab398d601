/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/conv_primitive.h - cache of oneDNN's convolutions, each for one
 * thread */
#ifndef MERAK_KERNELS_CPU_CONV_PRIMITIVE_H
#define MERAK_KERNELS_CPU_CONV_PRIMITIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

enum merak_conv_kind { MERAK_CONV_Y, MERAK_CONV_DX, MERAK_CONV_DW };

/* The key of a primitive; compared as bytes, so it has to be zeroed first.
 * Tensors are f32 or, but for biases and gradients of weights, bf16, channels
 * last; weights [O, size.., I]. */
struct merak_conv_key {
    int64_t kind, dims, bias, bf16, samples, I, O;
    int64_t in[3], out[3], size[3], stride[3], dilation[3];
    int64_t before[3], after[3]; /* padding */
};

struct merak_conv_primitive;

/* The primitive of a key, owned by the cache; NULL where oneDNN has none that
 * is worth it.  The last 256 are cached. */
enum merak_status
merak_conv_primitive_find(const struct merak_conv_key *key,
                          struct merak_conv_primitive **primitive_p,
                          struct merak_error *err) MERAK_CHECKED;
/* One that was found before, with no new one since but such as came with it. */
struct merak_conv_primitive *
merak_conv_primitive_cached(const struct merak_conv_key *key);
/* Weights have an order of the primitive's own: their bytes, and whether two
 * have the same. */
size_t merak_conv_weights(const struct merak_conv_primitive *p);
bool merak_conv_alike(const struct merak_conv_primitive *a,
                      const struct merak_conv_primitive *b);
/* To that order, and from it; on the calling thread. */
enum merak_status merak_conv_pack(const struct merak_conv_primitive *p,
                                  const void *plain, void *packed,
                                  struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_conv_unpack(const struct merak_conv_primitive *p,
                                    const void *packed, float *plain,
                                    struct merak_error *err) MERAK_CHECKED;
/* x, weights, or y or its gradient is written, by the key's kind.  bias may be
 * NULL.  A dnnl_status_t. */
int merak_conv_primitive_run(const struct merak_conv_primitive *p, int thread,
                             const void *x, const void *w, const void *y,
                             const float *bias);

#endif
