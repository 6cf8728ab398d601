/* SPDX-License-Identifier: Apache-2.0 */
/* window.c - convolution as products of gathered rows
 *
 * What oneDNN's convolutions do faster is theirs: conv.h.
 *
 * Rows of taps are gathered for as many points at once as CHUNK bytes hold, and
 * multiplied: kernels/windows.h.  Chunks are a function of shapes, so that
 * sums of gradients have one order.
 */
#include "config.h"

#include "kernels/cpu/conv.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_moves.h"
#include "kernels/windows.h"

#include <string.h>

#define CHUNK ((size_t)32 << 20)
#define ITEM ((size_t)64 << 10) /* bytes that a thread gathers at once */
#define ROWS 64                 /* of which a chunk has a multiple */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t rows_at_once(size_t rows, size_t row_bytes)
{
    size_t n = CHUNK / row_bytes / ROWS * ROWS;

    return n > rows ? rows : larger(n, ROWS);
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* --- gathering ------------------------------------------------------------ */

struct gather {
    struct merak_patches g;
    const char *from; /* points of `bytes` */
    size_t bytes;
    char *to; /* rows of g.taps such points, from row `row` on */
    size_t row, rows, each;
};

/* The taps of the last dim, side by side. */
static void gather_line(const struct merak_patch_dim *d, size_t row,
                        const char *line, size_t bytes, char *to)
{
    int64_t at = d->first + (int64_t)row * d->row_step, n = (int64_t)d->source;
    int64_t taps = (int64_t)d->taps, before, inside;

    if (d->tap_step != 1) {
        for (size_t k = 0; k < d->taps; k++, to += bytes) {
            int64_t p = merak_patch_point(d, row, k);

            if (p < 0)
                memset(to, 0, bytes);
            else
                memcpy(to, line + (size_t)p * bytes, bytes);
        }
        return;
    }
    before = at >= 0 ? 0 : at + taps <= 0 ? taps : -at;
    inside = at + taps <= n ? taps - before : n - at - before;
    inside = inside > 0 ? inside : 0;
    memset(to, 0, (size_t)before * bytes);
    memcpy(to + (size_t)before * bytes, line + (size_t)(at + before) * bytes,
           (size_t)inside * bytes);
    memset(to + (size_t)(before + inside) * bytes, 0,
           (size_t)(taps - before - inside) * bytes);
}

static void gather_row(const struct gather *w, size_t row, char *to)
{
    const struct merak_patch_dim *d = w->g.dim;
    size_t x = row % d[2].rows, y = row / d[2].rows % d[1].rows;
    size_t z = row / d[2].rows / d[1].rows % d[0].rows;
    size_t line = d[2].taps * w->bytes;
    const char *sample = w->from + row / w->g.rows * d[0].source * d[1].source *
                                       d[2].source * w->bytes;

    for (size_t i = 0; i < d[0].taps; i++) {
        int64_t at_z = merak_patch_point(&d[0], z, i);

        for (size_t j = 0; j < d[1].taps; j++, to += line) {
            int64_t at_y = merak_patch_point(&d[1], y, j);
            size_t at = (size_t)at_z * d[1].source + (size_t)at_y;

            if (at_z < 0 || at_y < 0)
                memset(to, 0, line);
            else
                gather_line(&d[2], x, sample + at * d[2].source * w->bytes,
                            w->bytes, to);
        }
    }
}

static void gather_item(void *arg, size_t item, int thread)
{
    const struct gather *w = arg;
    size_t end = cpu_range_end(item, w->each, w->rows);

    (void)thread;
    for (size_t r = item * w->each; r < end; r++)
        gather_row(w, w->row + r, w->to + r * w->g.taps * w->bytes);
}

static void gather_rows(struct gather *w, size_t row, size_t rows)
{
    w->row = row;
    w->rows = rows;
    w->each = larger(ITEM / (w->g.taps * w->bytes), 1);
    merak_pool_run(gather_item, w, cpu_range_count(rows, w->each));
}

/* --- convolution ---------------------------------------------------------- */

/* The call as oneDNN may compute it; x, w, y: numbers of operands. */
static struct merak_conv_call conv_of(const struct merak_kernel_call *call,
                                      enum merak_conv_kind kind, int x, int w,
                                      int y)
{
    const struct merak_operand *op = call->operand;

    return (struct merak_conv_call){
        .kind = kind,
        .windows = merak_windows_of(call, x, y),
        .dims = (int)call->attrs->i[0],
        .samples = op[x].local.dim[0],
        .I = merak_local_last(&op[x]),
        .O = merak_local_last(&op[y]),
        .bf16 = op[y].dtype == MERAK_BF16,
        .x = op[x].data,
        .w = op[w].data,
        .y = op[y].data,
        .accumulate = call->accumulate,
        .scratch = call->scratch};
}

static size_t conv_bytes(const struct merak_kernel_call *call,
                         enum merak_conv_kind kind, int x, int w, int y)
{
    struct merak_conv_call c = conv_of(call, kind, x, w, y);

    return merak_conv_scratch(&c);
}

/* *done_p: false if it is left to products of gathered rows. */
static enum merak_status try_conv(const struct merak_conv_call *c,
                                  bool *done_p, struct merak_error *err)
{
    *done_p = false;
    if (merak_conv_scratch(c) == 0)
        return MERAK_OK;
    return merak_conv_compute(c, done_p, err);
}

/* y: the operand that is the output, or its gradient. */
static struct gather forward_of(const struct merak_kernel_call *call, int y)
{
    const struct merak_operand *x = &call->operand[0];
    struct merak_windows windows = merak_windows_of(call, 0, y);

    return (struct gather){
        .g = merak_patches_forward(&windows, x->local.dim[0]),
        .from = x->data,
        .bytes = merak_local_last(x) * merak_dtype_bytes(x->dtype),
        .to = call->scratch};
}

static size_t forward_scratch(const struct merak_kernel_call *call, int y)
{
    struct gather w = forward_of(call, y);
    size_t row = w.g.taps * w.bytes;

    return rows_at_once(w.g.samples * w.g.rows, row) * row;
}

CPU_SCRATCH(conv)
{
    return larger(forward_scratch(call, call->n_in),
                  conv_bytes(call, MERAK_CONV_Y, 0, 1, call->n_in));
}

CPU_KERNEL(conv)
{
    const struct merak_operand *w = &call->operand[1];
    const struct merak_operand *y = merak_call_out(call, 0);
    struct gather from = forward_of(call, call->n_in);
    size_t rows = from.g.samples * from.g.rows;
    size_t some = rows_at_once(rows, from.g.taps * from.bytes);
    bool bf16 = y->dtype == MERAK_BF16;
    struct merak_gemm g = {.n = merak_local_last(y),
                           .k = from.g.taps * merak_local_last(w),
                           .moves = &gemm_moves,
                           .trans_b = true,
                           .bf16_ab = bf16,
                           .bf16_c = bf16,
                           .a = call->scratch,
                           .b = w->data};
    struct merak_conv_call c = conv_of(call, MERAK_CONV_Y, 0, 1, call->n_in);
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);
    bool done = false;

    if (call->n_in > 2 && call->first)
        c.bias = g.bias = call->operand[2].data;
    if (rc == MERAK_OK)
        rc = try_conv(&c, &done, err);
    for (size_t row = 0; row < rows && rc == MERAK_OK && !done; row += some) {
        g.m = rows - row < some ? rows - row : some;
        g.c = (char *)y->data + row * g.n * merak_dtype_bytes(y->dtype);
        gather_rows(&from, row, g.m);
        rc = merak_gemm(&g, err);
    }
    return rc;
}

CPU_SCRATCH(conv_dw)
{
    return larger(forward_scratch(call, 1),
                  conv_bytes(call, MERAK_CONV_DW, 0, 2, 1));
}

CPU_KERNEL(conv_dw)
{
    const struct merak_operand *dy = &call->operand[1];
    struct gather from = forward_of(call, 1);
    size_t rows = from.g.samples * from.g.rows, O = merak_local_last(dy);
    size_t some = rows_at_once(rows, from.g.taps * from.bytes);
    struct merak_gemm g = {.m = O,
                           .n = from.g.taps *
                                merak_local_last(&call->operand[0]),
                           .trans_a = true,
                           .moves = &gemm_moves,
                           .bf16_ab = dy->dtype == MERAK_BF16,
                           .accumulate = call->accumulate,
                           .b = call->scratch,
                           .c = merak_call_out(call, 0)->data};
    struct merak_conv_call c = conv_of(call, MERAK_CONV_DW, 0, 2, 1);
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);
    bool done = false;

    if (rc == MERAK_OK)
        rc = try_conv(&c, &done, err);
    for (size_t row = 0; row < rows && rc == MERAK_OK && !done; row += some) {
        g.k = rows - row < some ? rows - row : some;
        g.a = (const char *)dy->data + row * O * merak_dtype_bytes(dy->dtype);
        gather_rows(&from, row, g.k);
        rc = merak_gemm(&g, err);
        g.accumulate = true;
    }
    return rc;
}

/* A class of points of the input: rows are gathered from dy, weights are put in
 * the order of their taps, and what comes out is put at its points. */
struct back {
    struct gather from;
    struct merak_windows windows;
    const char *w;
    char *weights, *out, *dx;
    size_t O, I, elem;
    size_t some, row, rows, each;
};

static struct back back_of(const struct merak_kernel_call *call, size_t class)
{
    const struct merak_operand *dy = &call->operand[0];
    const struct merak_operand *dx = merak_call_out(call, 0);
    struct back b = {.windows = merak_windows_of(call, 2, 0),
                     .w = call->operand[1].data,
                     .dx = dx->data,
                     .O = merak_local_last(dy),
                     .I = merak_local_last(dx),
                     .elem = merak_dtype_bytes(dy->dtype)};

    b.from.g = merak_patches_backward(&b.windows, dx->local.dim[0], class);
    b.from.from = dy->data;
    b.from.bytes = b.O * b.elem;
    b.rows = b.from.g.samples * b.from.g.rows;
    b.some = rows_at_once(b.rows, larger(b.from.g.taps, 1) * b.from.bytes);
    return b;
}

/* Puts a class's parts at their places in scratch; their bytes. */
static size_t back_places(const struct merak_kernel_call *call, struct back *b)
{
    size_t taps = b->from.g.taps;
    size_t gathered = aligned(b->some * taps * b->from.bytes);
    size_t weights = aligned(taps * b->O * b->I * b->elem);

    b->from.to = call->scratch;
    b->weights = (char *)call->scratch + gathered;
    b->out = b->weights + weights;
    return gathered + weights + aligned(b->some * b->I * b->elem);
}

CPU_SCRATCH(conv_dx)
{
    struct merak_windows windows = merak_windows_of(call, 2, 0);
    size_t most = conv_bytes(call, MERAK_CONV_DX, 2, 1, 0);

    for (size_t c = 0; c < merak_windows_classes(&windows); c++) {
        struct merak_kernel_call sized = *call;
        struct back b = back_of(call, c);

        sized.scratch = &b; /* any; what follows it is not touched */
        most = larger(most, back_places(&sized, &b));
    }
    return most;
}

/* weights[k, o, i] = w[o, tap k, i], of tap `item`. */
static void weights_item(void *arg, size_t item, int thread)
{
    const struct back *b = arg;
    const size_t size[] = {b->windows.dim[0].size, b->windows.dim[1].size,
                           b->windows.dim[2].size};
    size_t tap = merak_patch_tap(&b->from.g, size, item);
    size_t all = merak_windows_taps(&b->windows), row = b->I * b->elem;

    (void)thread;
    for (size_t o = 0; o < b->O; o++)
        memcpy(b->weights + (item * b->O + o) * row,
               b->w + (o * all + tap) * row, row);
}

static void scatter_item(void *arg, size_t item, int thread)
{
    const struct back *b = arg;
    const size_t in[] = {b->windows.dim[0].in, b->windows.dim[1].in,
                         b->windows.dim[2].in};
    size_t end = cpu_range_end(item, b->each, b->rows), row = b->I * b->elem;

    (void)thread;
    for (size_t r = item * b->each; r < end; r++) {
        char *to = b->dx + merak_patch_to(&b->from.g, in, b->row + r) * row;

        if (b->from.g.taps == 0)
            memset(to, 0, row);
        else
            memcpy(to, b->out + r * row, row);
    }
}

static enum merak_status back_rows(struct back *b, size_t row, size_t rows,
                                   struct merak_error *err)
{
    bool bf16 = b->elem == 2,
         in_place = merak_windows_classes(&b->windows) == 1;
    struct merak_gemm g = {.m = rows,
                           .n = b->I,
                           .k = b->from.g.taps * b->O,
                           .moves = &gemm_moves,
                           .bf16_ab = bf16,
                           .bf16_c = bf16,
                           .a = b->from.to,
                           .b = b->weights,
                           .c = in_place ? b->dx + row * b->I * b->elem
                                         : b->out};
    enum merak_status rc = MERAK_OK;

    b->row = row;
    b->rows = rows;
    b->each = larger(ITEM / (b->I * b->elem), 1);
    if (g.k > 0) {
        gather_rows(&b->from, row, rows);
        rc = merak_gemm(&g, err);
    }
    if (rc == MERAK_OK && (!in_place || g.k == 0))
        merak_pool_run(scatter_item, b, cpu_range_count(rows, b->each));
    return rc;
}

CPU_KERNEL(conv_dx)
{
    struct merak_windows windows = merak_windows_of(call, 2, 0);
    struct merak_conv_call direct = conv_of(call, MERAK_CONV_DX, 2, 1, 0);
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);
    bool done = false;

    if (rc == MERAK_OK)
        rc = try_conv(&direct, &done, err);
    for (size_t c = 0;
         c < merak_windows_classes(&windows) && rc == MERAK_OK && !done; c++) {
        struct back b = back_of(call, c);
        size_t rows = b.rows;

        (void)back_places(call, &b);
        merak_pool_run(weights_item, &b, b.from.g.taps);
        for (size_t row = 0; row < rows && rc == MERAK_OK; row += b.some)
            rc = back_rows(&b, row, rows - row < b.some ? rows - row : b.some,
                           err);
    }
    return rc;
}
