/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/conv.h - convolutions by oneDNN, in tiles fixed by shape
 *
 * Not of all shapes: few points are not worth the order that oneDNN wants of
 * weights, and it has no code for some windows.  window.c has products of
 * gathered rows for these, and for bf16 where there are no instructions for it.
 */
#ifndef MERAK_KERNELS_CPU_CONV_H
#define MERAK_KERNELS_CPU_CONV_H

#include "kernels/cpu/conv_primitive.h"
#include "kernels/windows.h"

struct merak_conv_call {
    enum merak_conv_kind kind;
    struct merak_windows windows;
    int dims; /* of space, the last ones of windows */
    size_t samples, I, O;
    bool bf16; /* input, output and weights are, but not these' gradient */
    /* Input and output, or their gradients: the kind's is written, and the
     * others are read. */
    const void *x, *w, *y;
    const float *bias; /* of y, or NULL */
    bool accumulate;   /* w: it is added to */
    void *scratch;     /* merak_conv_scratch() bytes, 64-byte aligned */
};

/* 0: not this shape.  The same on any processor. */
size_t merak_conv_scratch(const struct merak_conv_call *c);
/* *done_p: false if oneDNN has no code for it, or the processor no instructions
 * for bf16; nothing was written then.  The same result for any number of threads
 * and any address; the first call of a shape is set-up. */
enum merak_status merak_conv_compute(const struct merak_conv_call *c,
                                     bool *done_p,
                                     struct merak_error *err) MERAK_CHECKED;

#endif
