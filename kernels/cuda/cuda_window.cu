/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_window.cu - convolution as products of gathered patches
 *
 * Patches of as many points as MERAK_STAGE_BYTES hold are gathered and
 * multiplied (kernels/windows.h).  As in cuda_linear.cu, bf16 rows that
 * libraries multiply are multiples of 16 bytes apart; operands that are not so
 * are copied.
 */
#include "config.h"

#include "kernels/cuda/cuda_copy.cuh"
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_stage.cuh"

extern "C" {
#include "kernels/windows.h"
}

/* --- patches -------------------------------------------------------------- */

template <typename T> struct merak_patch_call {
    struct merak_patches patches;
    const T *from; /* points of C channels */
    T *to;         /* rows of taps, `ld` apart, from row `row` on */
    size_t C, ld, row, rows;
};

/* A thread copies N neighbouring channels of a tap. */
template <typename T, int N>
static __global__ void __launch_bounds__(MAP_THREADS)
    gather_patches(const __grid_constant__ merak_patch_call<T> p)
{
    size_t pieces = p.C / N, taps = p.patches.taps;

    for (size_t i = grid_thread(); i < p.rows * taps * pieces;
         i += grid_threads()) {
        size_t c = i % pieces * N, tap = i / pieces % taps;
        size_t row = i / pieces / taps;
        int64_t at = merak_patch_from(&p.patches, p.row + row, tap);
        const T *from = p.from + (at < 0 ? 0 : (size_t)at * p.C + c);
        T *to = p.to + row * p.ld + tap * p.C + c;

        if constexpr (N > 1) {
            store_16(to, load_16_if(at >= 0, from));
        } else if (at >= 0) {
            *to = *from;
        } else {
            from_f32(to, 0.0f);
        }
    }
}

template <typename T>
static enum merak_status gather(const struct merak_kernel_call *call,
                                const char *op, const merak_patch_call<T> &p,
                                struct merak_error *err)
{
    constexpr int N = merak_piece<T>::N;
    const struct merak_cuda_context *cx = merak_cuda_context_of(call);
    size_t n = p.rows * p.patches.taps * p.C;

    if (p.C % N == 0 && p.ld % N == 0 && is_aligned(p.from) &&
        is_aligned(p.to))
        return launch(cx, map_launch(op, n / N), err, gather_patches<T, N>, p);
    return launch(cx, map_launch(op, n), err, gather_patches<T, 1>, p);
}

/* --- the products of a convolution ---------------------------------------- */

enum merak_window_form { WINDOW_Y, WINDOW_DX, WINDOW_DW };

/* One class of rows: patches [rows, taps C] times weights, and what comes out,
 * [rows, D]; for gradients of weights what comes in. */
struct merak_window_product {
    struct merak_patches patches;
    size_t C, D, O, I;
    size_t elem, all, some; /* rows */
    size_t ld_patch, ld_out, ld_w;
    bool out_staged, w_staged;
    size_t patch_at, out_at, w_at, bias_at, work_at; /* offsets in scratch */
    size_t work_bytes, scratch_bytes;
};

static size_t window_work(const merak_window_product &p,
                          enum merak_window_form form)
{
    return form == WINDOW_DW
               ? merak_cuda_work_bytes(p.O, p.patches.taps * p.I)
               : merak_cuda_work_bytes(p.some, p.D);
}

/* The operand that is the output, or its gradient. */
static int window_y(const struct merak_kernel_call *call,
                    enum merak_window_form form)
{
    return form == WINDOW_DX ? 0 : form == WINDOW_DW ? 1 : call->n_in;
}

static struct merak_windows window_of(const struct merak_kernel_call *call,
                                      enum merak_window_form form)
{
    return merak_windows_of(call, form == WINDOW_DX ? 2 : 0,
                            window_y(call, form));
}

static merak_window_product window_plan(const struct merak_kernel_call *call,
                                        enum merak_window_form form, size_t c)
{
    const struct merak_operand *op = call->operand;
    const struct merak_operand *x = form == WINDOW_DX ? &op[2] : &op[0];
    const struct merak_operand *y = &op[window_y(call, form)];
    struct merak_windows w = window_of(call, form);
    merak_window_product p = {};
    bool back = form == WINDOW_DX;

    p.patches = back ? merak_patches_backward(&w, x->local.dim[0], c)
                     : merak_patches_forward(&w, x->local.dim[0]);
    p.I = merak_local_last(x);
    p.O = merak_local_last(y);
    p.C = back ? p.O : p.I;
    p.D = back ? p.I : p.O;
    p.elem = merak_dtype_bytes(x->dtype);
    p.ld_patch = padded(x->dtype, p.patches.taps * p.C);
    p.ld_out = padded(x->dtype, p.D);
    /* transposed weights have rows of D */
    p.ld_w = back ? p.ld_out : p.ld_patch;
    p.out_staged =
        p.ld_out != p.D || (back && merak_windows_classes(&w) > 1);
    p.w_staged = back || (form == WINDOW_Y && p.ld_w != p.patches.taps * p.C);
    p.all = p.patches.samples * p.patches.rows;
    p.some = p.ld_patch == 0 ? p.all
                             : MERAK_STAGE_BYTES / (p.ld_patch * p.elem) /
                                   STAGE_ROWS * STAGE_ROWS;
    p.some = p.some == 0 ? STAGE_ROWS : p.some;
    p.some = p.some > p.all ? p.all : p.some;
    p.patch_at = reserve(&p.scratch_bytes, p.some * p.ld_patch * p.elem);
    if (p.out_staged)
        p.out_at = reserve(&p.scratch_bytes, p.some * p.ld_out * p.elem);
    if (p.w_staged)
        p.w_at = reserve(&p.scratch_bytes,
                         (back ? p.patches.taps * p.O : p.O) * p.ld_w * p.elem);
    if (form == WINDOW_Y && call->n_in > 2 && p.elem == 2)
        p.bias_at = reserve(&p.scratch_bytes, p.O * p.elem);
    p.work_bytes = window_work(p, form);
    p.work_at = reserve(&p.scratch_bytes, p.work_bytes + MERAK_CUDA_WORK_ALIGN);
    return p;
}

static size_t window_scratch(const struct merak_kernel_call *call,
                             enum merak_window_form form)
{
    struct merak_windows w = window_of(call, form);
    size_t classes = form == WINDOW_DX ? merak_windows_classes(&w) : 1;
    size_t most = 0;

    for (size_t c = 0; c < classes; c++) {
        size_t bytes = window_plan(call, form, c).scratch_bytes;

        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Weights for products with a class's patches of dy: to[(k O + o) ld + i] =
 * w[o, tap k, i]. */
template <typename T> struct merak_turned {
    struct merak_patches patches;
    size_t size[MERAK_WINDOW_DIMS];
    const T *w;
    T *to;
    size_t O, I, ld, all;
};

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    turn_weights(const __grid_constant__ merak_turned<T> t)
{
    for (size_t i = grid_thread(); i < t.patches.taps * t.O * t.ld;
         i += grid_threads()) {
        size_t at = i % t.ld, o = i / t.ld % t.O, k = i / t.ld / t.O;
        size_t tap = merak_patch_tap(&t.patches, t.size, k);

        if (at < t.I)
            t.to[i] = t.w[(o * t.all + tap) * t.I + at];
        else
            from_f32(&t.to[i], 0.0f);
    }
}

/* Rows of a class of points to these: zeros where there is no tap. */
template <typename T> struct merak_put {
    struct merak_patches patches;
    size_t points[MERAK_WINDOW_DIMS];
    const T *from;
    T *to;
    size_t row, rows, D, ld;
};

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    put_rows(const __grid_constant__ merak_put<T> p)
{
    for (size_t i = grid_thread(); i < p.rows * p.D; i += grid_threads()) {
        size_t row = i / p.D, d = i % p.D;
        size_t to = merak_patch_to(&p.patches, p.points, p.row + row);

        if (p.patches.taps > 0)
            p.to[to * p.D + d] = p.from[row * p.ld + d];
        else
            from_f32(&p.to[to * p.D + d], 0.0f);
    }
}

template <typename T> struct merak_window_run {
    const struct merak_kernel_call *call;
    const char *op;
    enum merak_window_form form;
    merak_window_product p;
    struct merak_windows windows;
    char *scratch;

    T *at(size_t offset) const
    {
        return reinterpret_cast<T *>(scratch + offset);
    }
    const struct merak_cuda_context *cx() const
    {
        return merak_cuda_context_of(call);
    }
};

template <typename T>
static enum merak_status copy_window_rows(const merak_window_run<T> &r,
                                          size_t rows, size_t columns,
                                          size_t to_columns, size_t from_ld,
                                          size_t to_ld, const T *from, T *to,
                                          struct merak_error *err)
{
    return merak_cuda_copy_rows(
        r.cx(), r.op, merak_rows{rows, columns, to_columns, from_ld, to_ld},
        from, to, err);
}

/* The weights as products see them. */
template <typename T>
static enum merak_status window_weights(const merak_window_run<T> &r,
                                        struct merak_cuda_matrix *w,
                                        struct merak_error *err)
{
    const struct merak_operand *own = &r.call->operand[r.form == WINDOW_DW ? 2
                                                                           : 1];
    const merak_window_product &p = r.p;
    size_t columns = p.patches.taps * p.C;

    *w = merak_cuda_matrix{p.w_staged ? (void *)r.at(p.w_at) : own->data,
                           own->dtype,
                           r.form == WINDOW_DW ? columns : p.ld_w};
    if (!p.w_staged)
        return MERAK_OK;
    if (r.form == WINDOW_Y)
        return copy_window_rows(r, p.O, columns, p.ld_w, columns, p.ld_w,
                                static_cast<const T *>(own->data),
                                r.at(p.w_at), err);
    merak_turned<T> t = {p.patches,
                         {r.windows.dim[0].size, r.windows.dim[1].size,
                          r.windows.dim[2].size},
                         static_cast<const T *>(own->data),
                         r.at(p.w_at),
                         p.O,
                         p.I,
                         p.ld_w,
                         merak_windows_taps(&r.windows)};
    return launch(r.cx(), map_launch(r.op, p.patches.taps * p.O * p.ld_w), err,
                  turn_weights<T>, t);
}

/* Rows [row, row + rows) of dy, of the output, or of the gradient of the
 * input. */
template <typename T>
static enum merak_status window_rows(const merak_window_run<T> &r, size_t row,
                                     size_t rows,
                                     const struct merak_cuda_matrix &w,
                                     const void *bias, struct merak_error *err)
{
    const merak_window_product &p = r.p;
    const struct merak_operand *op = r.call->operand;
    const struct merak_operand *other =
        r.form == WINDOW_DW ? &op[1] : merak_call_out(r.call, 0);
    T *stored = static_cast<T *>(other->data) + row * p.D;
    enum merak_dtype dtype = op[0].dtype;
    struct merak_cuda_matrix patches = {r.at(p.patch_at), dtype, p.ld_patch};
    struct merak_cuda_matrix out = {p.out_staged ? r.at(p.out_at) : stored,
                                    dtype, p.ld_out};
    struct merak_cuda_product product = {};
    merak_patch_call<T> from = {p.patches, static_cast<const T *>(op[0].data),
                                r.at(p.patch_at), p.C, p.ld_patch, row, rows};
    enum merak_status rc = gather(r.call, r.op, from, err);

    if (rc == MERAK_OK && r.form == WINDOW_DW && p.out_staged)
        rc = copy_window_rows(r, rows, p.D, p.ld_out, p.D, p.ld_out,
                              static_cast<const T *>(stored), r.at(p.out_at),
                              err);
    if (rc != MERAK_OK)
        return rc;
    product.alpha = 1;
    product.a = patches;
    product.b = w;
    product.d = out;
    product.m = rows;
    product.n = p.D;
    product.k = p.patches.taps * p.C;
    product.b_transposed = r.form == WINDOW_Y;
    if (r.form == WINDOW_DW) { /* dw = dy' patches */
        product.a = out;
        product.b = patches;
        product.d = w;
        product.m = p.O;
        product.n = p.patches.taps * p.C;
        product.k = rows;
        product.a_transposed = true;
        product.beta = row > 0 || r.call->accumulate ? 1 : 0;
    }
    product.bias = bias;
    product.work = aligned_up(r.scratch + p.work_at);
    product.work_bytes = p.work_bytes;
    return r.cx()->product(r.cx()->product_arg, r.cx(), &product, err);
}

/* What a product staged, to where it belongs. */
template <typename T>
static enum merak_status window_put(const merak_window_run<T> &r, size_t row,
                                    size_t rows, struct merak_error *err)
{
    const merak_window_product &p = r.p;
    const struct merak_operand *out = merak_call_out(r.call, 0);
    T *to = static_cast<T *>(out->data);

    if (r.form == WINDOW_Y && p.out_staged)
        return copy_window_rows(r, rows, p.D, p.D, p.ld_out, p.D,
                                static_cast<const T *>(r.at(p.out_at)),
                                to + row * p.D, err);
    if (r.form != WINDOW_DX || (!p.out_staged && p.patches.taps > 0))
        return MERAK_OK;
    merak_put<T> put = {p.patches,
                        {r.windows.dim[0].in, r.windows.dim[1].in,
                         r.windows.dim[2].in},
                        r.at(p.out_at),
                        to,
                        row,
                        rows,
                        p.D,
                        p.ld_out};
    return launch(r.cx(), map_launch(r.op, rows * p.D), err, put_rows<T>, put);
}

template <typename T>
static enum merak_status window_class(merak_window_run<T> &r, size_t c,
                                      struct merak_error *err)
{
    struct merak_cuda_matrix w = {};
    const void *bias = nullptr;
    enum merak_status rc = MERAK_OK;

    r.p = window_plan(r.call, r.form, c);
    if (r.p.patches.taps > 0 && r.p.all > 0)
        rc = window_weights(r, &w, err);
    if (rc == MERAK_OK)
        rc = prepare_bias(
            r.call, r.op,
            r.form == WINDOW_Y && r.call->n_in > 2 && r.call->first, r.p.O,
            r.p.bias_at, &bias, err);
    for (size_t row = 0; row < r.p.all && rc == MERAK_OK; row += r.p.some) {
        size_t rows = r.p.all - row < r.p.some ? r.p.all - row : r.p.some;

        if (r.p.patches.taps > 0)
            rc = window_rows(r, row, rows, w, bias, err);
        if (rc == MERAK_OK)
            rc = window_put(r, row, rows, err);
    }
    return rc;
}

static enum merak_status window_run(const struct merak_kernel_call *call,
                                    const char *op, enum merak_window_form form,
                                    struct merak_error *err)
{
    return by_dtype(call, 0, err, [&](auto of) {
        merak_window_run<decltype(of)> r = {
            call, op, form, {}, window_of(call, form),
            static_cast<char *>(call->scratch)};
        size_t classes =
            form == WINDOW_DX ? merak_windows_classes(&r.windows) : 1;
        enum merak_status rc = MERAK_OK;

        for (size_t c = 0; c < classes && rc == MERAK_OK; c++)
            rc = window_class(r, c, err);
        return rc;
    });
}

#define WINDOW_KERNEL(op, form)                  \
    CUDA_KERNEL(op)                              \
    {                                            \
        return window_run(call, #op, form, err); \
    }                                            \
    CUDA_SCRATCH(op)                             \
    {                                            \
        return window_scratch(call, form);       \
    }

WINDOW_KERNEL(conv, WINDOW_Y)
WINDOW_KERNEL(conv_dx, WINDOW_DX)
WINDOW_KERNEL(conv_dw, WINDOW_DW)
