/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/gemm.h - matrix products on oneDNN, in tiles fixed by shape */
#ifndef MERAK_KERNELS_CPU_GEMM_H
#define MERAK_KERNELS_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

/* Conversions of bf16 before and after a product, in the instruction set of
 * the caller.  Pitches are elements between rows. */
struct merak_gemm_moves {
    /* [rows, cols] to [cols, rows] */
    void (*transpose)(const uint16_t *from, size_t from_pitch, size_t rows,
                      size_t cols, uint16_t *to, size_t to_pitch);
    void (*widen)(const uint16_t *from, size_t from_pitch, size_t rows,
                  size_t cols, float *to, size_t to_pitch);
    /* by round to nearest even */
    void (*narrow)(const float *from, size_t from_pitch, size_t rows,
                   size_t cols, uint16_t *to, size_t to_pitch);
};

/*
 * c[m, n] = op(a) op(b) + bias, or c += op(a) op(b); dense row-major.
 *   a     [m, k], or [k, m] if trans_a
 *   b     [k, n], or [n, k] if trans_b
 *   c     [m, n]
 *   bias  f32 [n] or NULL; not with accumulate
 * With trans_a, tiles of a are copied or transposed before they are multiplied:
 * oneDNN is slow on columns that are far apart.
 * a and b are both f32 or both bf16; c is f32 or (bf16_c) bf16.
 * Accumulation in f32, over k in an order fixed by the shape; the same
 * result for any number of threads and any address.
 */
struct merak_gemm {
    size_t m, n, k;
    bool trans_a, trans_b, bf16_ab, bf16_c, accumulate;
    const void *a, *b;
    void *c;
    const float *bias;
    const struct merak_gemm_moves *moves;
};

/* Call it before any other function, once per process: oneDNN then uses no
 * instruction set above this one ("base", "avx2", "avx512"; NULL: that of
 * ONEDNN_MAX_CPU_ISA, or all). */
void merak_gemm_narrow(const char *isa);
/* Call it after merak_pool_open(); drops caches for another thread count. */
enum merak_status merak_gemm_open(struct merak_error *err) MERAK_CHECKED;
/* Does the processor multiply bf16?  If not, bf16 is computed as f32 and is no
 * faster. */
bool merak_gemm_has_bf16(void);
/* "oneDNN 2.6.3 (AVX2)" */
void merak_gemm_library(char *text, size_t bytes);
/* The first call of a shape is set-up and allocates oneDNN's primitives and
 * room for its tiles.  The last 512 tile shapes are cached. */
enum merak_status merak_gemm(const struct merak_gemm *g,
                             struct merak_error *err) MERAK_CHECKED;

#endif
