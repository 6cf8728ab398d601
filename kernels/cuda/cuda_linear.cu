/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_linear.cu - y = x w' + bias and its gradients: products and their
 * preparation
 *
 * The fast kernels of libraries need bf16 rows at multiples of 16 bytes.
 * Programs leave room behind rows that are not (the logits of 50257 words), if
 * nothing but products and losses uses them; others are staged: copied to
 * scratch with a padded stride, or written there and copied back, some rows at
 * a time so that scratch stays small.  Stored tensors are never padded.
 *
 * A bias is f32 and enters the sum before it is rounded.  Libraries need it in
 * the output's type, so for bf16 outputs it is rounded first.
 */
#include "config.h"

#include "kernels/cuda/cuda_copy.cuh"
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_stage.cuh"

enum merak_form { FORM_Y, FORM_DX, FORM_DW };

/* x, dx [m, k] are the k side; y, dy [m, n] the n side; w, dw are [n, k]. */
struct merak_linear {
    enum merak_form form;
    enum merak_dtype dtype; /* of all except dw, which is f32 */
    struct merak_gemm_sizes s;
    size_t ld_k, ld_n; /* strides that products see */
    bool k_staged, n_staged;
    size_t rows; /* of m, at once */
    bool has_bias;
    size_t w_at, k_at, n_at, bias_at, work_at; /* offsets in scratch */
    size_t work_bytes, scratch_bytes;
};

/* Workspace of the largest part, so that all parts have the same. */
static size_t work_bytes(const merak_linear &l)
{
    switch (l.form) {
    case FORM_Y:
        return merak_cuda_work_bytes(l.rows, l.s.n);
    case FORM_DX:
        return merak_cuda_work_bytes(l.rows, l.s.k);
    case FORM_DW:
        break;
    }
    return merak_cuda_work_bytes(l.s.n, l.s.k);
}

/* The operand of the n side: y, or its gradient. */
static const struct merak_operand *
n_side_of(const struct merak_kernel_call *call, enum merak_form form)
{
    return &call->operand[form == FORM_Y    ? call->n_in
                          : form == FORM_DX ? 0
                                            : 1];
}

static merak_linear plan(const struct merak_kernel_call *call,
                         enum merak_form form)
{
    merak_linear l = {};
    size_t staged_row, elem;

    l.form = form;
    l.dtype = call->operand[0].dtype;
    l.s = form == FORM_Y    ? merak_linear_sizes(call)
          : form == FORM_DX ? merak_linear_dx_sizes(call)
                            : merak_linear_dw_sizes(call);
    elem = merak_dtype_bytes(l.dtype);
    l.ld_k = padded(l.dtype, l.s.k);
    l.k_staged = l.ld_k != l.s.k;
    l.ld_n = n_side_of(call, form)->ld;
    if (l.ld_n == 0) {
        l.ld_n = padded(l.dtype, l.s.n);
        l.n_staged = l.ld_n != l.s.n;
    }
    l.has_bias = form == FORM_Y && call->n_in > 2 && call->first;
    staged_row = ((l.k_staged ? l.ld_k : 0) + (l.n_staged ? l.ld_n : 0)) * elem;
    l.rows = l.s.m;
    if (staged_row > 0 && MERAK_STAGE_BYTES / staged_row < l.rows) {
        l.rows = MERAK_STAGE_BYTES / staged_row / STAGE_ROWS * STAGE_ROWS;
        if (l.rows == 0)
            l.rows = STAGE_ROWS;
    }
    if (l.k_staged) {
        l.k_at = reserve(&l.scratch_bytes, l.rows * l.ld_k * elem);
        if (form != FORM_DW)
            l.w_at = reserve(&l.scratch_bytes, l.s.n * l.ld_k * elem);
    }
    if (l.n_staged)
        l.n_at = reserve(&l.scratch_bytes, l.rows * l.ld_n * elem);
    if (form == FORM_Y && call->n_in > 2 && l.dtype == MERAK_BF16)
        l.bias_at = reserve(&l.scratch_bytes, l.s.n * elem);
    l.work_bytes = work_bytes(l);
    l.work_at = reserve(&l.scratch_bytes, l.work_bytes + MERAK_CUDA_WORK_ALIGN);
    return l;
}

/* A side of m, or w: where it is stored, and what is passed to products. */
struct merak_side {
    void *data;
    size_t columns;
    size_t stored_ld, ld; /* strides in memory, and in products */
    char *stage;          /* NULL: products use the stored one */
};

static merak_side side(const struct merak_kernel_call *call,
                       const struct merak_operand *op, size_t columns,
                       size_t ld, bool staged, size_t stage_at)
{
    merak_side s = {op->data, columns, staged ? columns : ld, ld, nullptr};

    if (staged)
        s.stage = static_cast<char *>(call->scratch) + stage_at;
    return s;
}

/* The address of row `row`, as stored. */
static void *row_of(const merak_linear &l, const merak_side &s, size_t row)
{
    return static_cast<char *>(s.data) +
           row * s.stored_ld * merak_dtype_bytes(l.dtype);
}

/* Rows [row, row + rows) in the form for products; `in`: they are read. */
static enum merak_status stage(const struct merak_kernel_call *call,
                               const merak_linear &l, const merak_side &s,
                               size_t row, size_t rows, bool in,
                               struct merak_cuda_matrix *matrix_p,
                               struct merak_error *err)
{
    void *stored = row_of(l, s, row);

    *matrix_p =
        merak_cuda_matrix{s.stage != nullptr ? s.stage : stored, l.dtype, s.ld};
    if (s.stage == nullptr || !in)
        return MERAK_OK;
    return merak_cuda_copy_rows(
        merak_cuda_context_of(call), "linear",
        merak_rows{rows, s.columns, s.ld, s.columns, s.ld},
        static_cast<const merak_bf16 *>(stored),
        reinterpret_cast<merak_bf16 *>(s.stage), err);
}

/* Copy staged output to where it is stored. */
static enum merak_status unstage(const struct merak_kernel_call *call,
                                 const merak_linear &l, const merak_side &s,
                                 size_t row, size_t rows,
                                 struct merak_error *err)
{
    if (s.stage == nullptr)
        return MERAK_OK;
    return merak_cuda_copy_rows(
        merak_cuda_context_of(call), "linear",
        merak_rows{rows, s.columns, s.columns, s.ld, s.columns},
        reinterpret_cast<const merak_bf16 *>(s.stage),
        static_cast<merak_bf16 *>(row_of(l, s, row)), err);
}

static void describe_product(const merak_linear &l, size_t rows,
                             const struct merak_cuda_matrix &k_side,
                             const struct merak_cuda_matrix &n_side,
                             const struct merak_cuda_matrix &w, float beta,
                             struct merak_cuda_product *p)
{
    p->alpha = 1;
    p->beta = beta;
    switch (l.form) {
    case FORM_Y: /* y = x w' */
        p->m = rows, p->n = l.s.n, p->k = l.s.k;
        p->a = k_side, p->b = w, p->d = n_side;
        p->b_transposed = true;
        break;
    case FORM_DX: /* dx = dy w */
        p->m = rows, p->n = l.s.k, p->k = l.s.n;
        p->a = n_side, p->b = w, p->d = k_side;
        break;
    case FORM_DW: /* dw = dy' x */
        p->m = l.s.n, p->n = l.s.k, p->k = rows;
        p->a = n_side, p->b = k_side, p->d = w;
        p->a_transposed = true;
    }
}

/* Compute the part of m that begins at `row`. */
static enum merak_status part(const struct merak_kernel_call *call,
                              const merak_linear &l, const merak_side &ks,
                              const merak_side &ns,
                              const struct merak_cuda_matrix &w,
                              const void *bias, size_t row,
                              struct merak_error *err)
{
    const struct merak_cuda_context *cx = merak_cuda_context_of(call);
    size_t rows = l.s.m - row < l.rows ? l.s.m - row : l.rows;
    float beta = l.form == FORM_DW && (row > 0 || call->accumulate) ? 1 : 0;
    struct merak_cuda_matrix k_side, n_side;
    struct merak_cuda_product p = {};
    enum merak_status rc;

    rc = stage(call, l, ks, row, rows, l.form != FORM_DX, &k_side, err);
    if (rc == MERAK_OK)
        rc = stage(call, l, ns, row, rows, l.form != FORM_Y, &n_side, err);
    if (rc != MERAK_OK)
        return rc;
    describe_product(l, rows, k_side, n_side, w, beta, &p);
    p.bias = bias;
    p.work = aligned_up(static_cast<char *>(call->scratch) + l.work_at);
    p.work_bytes = l.work_bytes;
    rc = cx->product(cx->product_arg, cx, &p, err);
    if (rc != MERAK_OK)
        return rc;
    if (l.form == FORM_Y)
        return unstage(call, l, ns, row, rows, err);
    return l.form == FORM_DX ? unstage(call, l, ks, row, rows, err) : MERAK_OK;
}

/* Rows of the n side are one dim, or contiguous. */
static bool n_is_matrix(const struct merak_kernel_call *call,
                        const merak_linear &l)
{
    const struct merak_operand *op = n_side_of(call, l.form);

    return op->ld == 0 || merak_local_last(op) == l.s.n;
}

static enum merak_status run(const struct merak_kernel_call *call,
                             enum merak_form form, struct merak_error *err)
{
    const struct merak_operand *op = call->operand;
    enum merak_status rc = check_dtype(call, 0, false, err);
    struct merak_cuda_matrix w = {};
    const void *bias = nullptr;
    merak_linear l;
    merak_side ks, ns;

    if (rc != MERAK_OK)
        return rc;
    l = plan(call, form);
    if (!n_is_matrix(call, l))
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "linear: padded rows of %zu elements are not the "
                          "columns of a product of %zu",
                          merak_local_last(n_side_of(call, form)), l.s.n);
    ks = side(call, &op[form == FORM_DX ? 2 : 0], l.s.k, l.ld_k, l.k_staged,
              l.k_at);
    ns = side(call, n_side_of(call, form), l.s.n, l.ld_n, l.n_staged, l.n_at);
    if (form == FORM_DW)
        w = merak_cuda_matrix{op[2].data, op[2].dtype, l.s.k};
    else
        rc = stage(call, l,
                   side(call, &op[1], l.s.k, l.ld_k, l.k_staged, l.w_at), 0,
                   l.s.n, true, &w, err);
    if (rc == MERAK_OK && form == FORM_Y)
        rc = prepare_bias(call, "linear", l.has_bias, l.s.n, l.bias_at, &bias,
                          err);
    for (size_t row = 0; row < l.s.m && rc == MERAK_OK; row += l.rows)
        rc = part(call, l, ks, ns, w, bias, row, err);
    return rc;
}

#define LINEAR_KERNEL(op, form)                \
    CUDA_KERNEL(op)                            \
    {                                          \
        return run(call, form, err);           \
    }                                          \
    CUDA_SCRATCH(op)                           \
    {                                          \
        return plan(call, form).scratch_bytes; \
    }

LINEAR_KERNEL(linear, FORM_Y)
LINEAR_KERNEL(linear_dx, FORM_DX)
LINEAR_KERNEL(linear_dw, FORM_DW)

/* One product adds to the accumulator in f32 and rounds once; parts of the rows
 * would each. */
bool merak_cuda_linear_dw_adds_bf16(const struct merak_kernel_call *call)
{
    merak_linear l = plan(call, FORM_DW);

    return l.rows >= l.s.m && !l.k_staged;
}
