/* SPDX-License-Identifier: Apache-2.0 */
/* bench_windows.c - how fast the cpu backend's convolutions are
 *
 * usage: windows DTYPE THREADS REPEAT DIMS SAMPLES POINTS IN OUT SIZE STRIDE
 *
 * Prints the least seconds, of processor time over threads, of each: the
 * output, the gradient of the input, that of the weights, the latter f32, all
 * else of the dtype, with as much padding as keeps the points.  Called by windows.py.
 */
#include "config.h"

#include "base/half.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct shape {
    size_t dims, samples, points, in, out, size, stride;
};

static double busy_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct merak_operand make(const struct shape *s, enum merak_dtype dtype,
                                 size_t before, size_t points, size_t after)
{
    struct merak_operand op = {.dtype = dtype};
    size_t n = before * after;

    op.local.dim[op.local.ndim++] = before;
    for (size_t d = 0; d < s->dims; d++) {
        op.local.dim[op.local.ndim++] = points;
        n *= points;
    }
    op.local.dim[op.local.ndim++] = after;
    op.full = op.local;
    op.data = aligned_alloc(64, (n * merak_dtype_bytes(dtype) + 63) / 64 * 64);
    if (op.data == NULL) {
        fprintf(stderr, "windows: no memory for %zu numbers\n", n);
        exit(1);
    }
    for (size_t i = 0; i < n; i++) {
        float x = (float)(i % 17) * 0.1f - 0.8f;

        if (dtype == MERAK_BF16)
            ((uint16_t *)op.data)[i] = merak_f32_to_bf16(x);
        else
            ((float *)op.data)[i] = x;
    }
    return op;
}

/* The least of so many runs, after one that is not counted. */
static double time_of(const struct merak_backend *b, const char *op,
                      struct merak_kernel_call *call, int repeat, int threads)
{
    const struct merak_kernel *k;
    struct merak_error err;
    double best = 1e9;

    if (merak_kernel_find(b, op, &k, &err) != MERAK_OK) {
        fprintf(stderr, "windows: %s\n", err.text);
        exit(1);
    }
    call->scratch_bytes = (merak_kernel_call_scratch(k, call) + 63) / 64 * 64;
    call->scratch = aligned_alloc(64, call->scratch_bytes + 64);
    for (int i = 0; i <= repeat; i++) {
        double from = busy_seconds(), took;

        if (merak_kernel_run(b, k, call, &err) != MERAK_OK) {
            fprintf(stderr, "windows: %s\n", err.text);
            exit(1);
        }
        took = (busy_seconds() - from) / threads;
        best = i > 0 && took < best ? took : best;
    }
    free(call->scratch);
    return best;
}

int main(int argc, char **argv)
{
    double list[3 * MERAK_WINDOW_NUMBERS], *at = list;
    struct merak_attrs attrs = {.list = list};
    struct merak_kernel_call call = {
        .attrs = &attrs, .n_in = 2, .n_out = 1, .first = true};
    size_t n[7], pad, out;
    const struct merak_backend *b;
    struct merak_operand x, w, y, dw;
    enum merak_dtype dtype;
    struct shape s;
    int repeat, threads;

    if (argc != 11) {
        fprintf(stderr, "usage: windows DTYPE THREADS REPEAT DIMS SAMPLES "
                        "POINTS IN OUT SIZE STRIDE\n");
        return 64;
    }
    for (int i = 0; i < 7; i++)
        n[i] = strtoul(argv[4 + i], NULL, 10);
    memcpy(&s, n, sizeof(s));
    dtype = strcmp(argv[1], "bf16") == 0 ? MERAK_BF16 : MERAK_F32;
    threads = atoi(argv[2]);
    repeat = atoi(argv[3]);
    if (merak_backend_find("cpu", &b, NULL) != MERAK_OK ||
        b->open(threads, NULL) != MERAK_OK)
        return 1;
    pad = (s.size - 1) / 2;
    out = (s.points + 2 * pad - s.size) / s.stride + 1;
    attrs.i[0] = (int64_t)s.dims;
    attrs.i[2] = MERAK_WINDOW_NUMBERS * (int64_t)s.dims;
    for (size_t d = 0; d < s.dims; d++, at += MERAK_WINDOW_NUMBERS) {
        at[MERAK_WINDOW_SIZE] = (double)s.size;
        at[MERAK_WINDOW_STRIDE] = (double)s.stride;
        at[MERAK_WINDOW_PAD] = (double)pad;
        at[MERAK_WINDOW_DILATION] = 1;
        at[MERAK_WINDOW_IN] = (double)s.points;
        at[MERAK_WINDOW_OUT] = (double)out;
    }
    x = make(&s, dtype, s.samples, s.points, s.in);
    w = make(&s, dtype, s.out, s.size, s.in);
    dw = make(&s, MERAK_F32, s.out, s.size, s.in);
    y = make(&s, dtype, s.samples, out, s.out);
    memcpy(call.operand, (struct merak_operand[]){x, w, y}, 3 * sizeof(x));
    printf("%.9g", time_of(b, "conv", &call, repeat, threads));
    memcpy(call.operand, (struct merak_operand[]){y, w, x}, 3 * sizeof(x));
    printf(" %.9g", time_of(b, "conv_dx", &call, repeat, threads));
    memcpy(call.operand, (struct merak_operand[]){x, y, dw}, 3 * sizeof(x));
    printf(" %.9g\n", time_of(b, "conv_dw", &call, repeat, threads));
    return 0;
}
