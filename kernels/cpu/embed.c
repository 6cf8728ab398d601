/* SPDX-License-Identifier: Apache-2.0 */
/* embed.c - token and position embeddings, rotary positions */
#include "config.h"

#include "kernels/cpu/angles.h"
#include "kernels/rope.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#define ROWS 16 /* rows of activations per item */
#define SLAB 64 /* columns of a gradient per item */
#define ZERO_GRAIN ((size_t)1 << 16)

struct embed {
    const struct merak_operand *tokens, *table;
    const int32_t *starts; /* of tokens' documents; NULL: all 0 */
    const void *x;         /* activation read: dy, or x of add_position */
    void *y;
    size_t rows, C, T;
    size_t all, t0, pieces; /* positions of a whole sequence, which place among
                               them the first one has, merak_position() */
    size_t skip;            /* row that gets no gradient; SIZE_MAX: none */
    float scale;            /* multiplies a token's row */
    bool bf16, accumulate;
};

/* Local row of the table for token i, or -1 if another rank has it. */
static ptrdiff_t local_row(const struct embed *e, size_t i)
{
    size_t id = (size_t)((const int32_t *)e->tokens->data)[i];
    size_t lo = e->table->lo[0];

    if (id < lo || id >= lo + e->table->local.dim[0])
        return -1;
    return (ptrdiff_t)(id - lo);
}

INLINE void scale_row(const struct embed *e, size_t from, size_t to, bool bf16)
{
    for (size_t c = 0; c < e->C; c += LANES)
        vstore_n(e->y, to + c, e->C - c,
                 vload_n(e->table->data, from + c, e->C - c, bf16) * e->scale,
                 bf16);
}

static void gather_rows(void *arg, size_t item, int thread)
{
    const struct embed *e = arg;
    size_t end = cpu_range_end(item, ROWS, e->rows);
    size_t bytes = e->C * merak_dtype_bytes(e->table->dtype);

    (void)thread;
    for (size_t i = item * ROWS; i < end; i++) {
        ptrdiff_t row = local_row(e, i);
        char *to = (char *)e->y + i * bytes;

        if (row < 0)
            memset(to, 0, bytes);
        else if (e->scale != 1 && e->bf16)
            scale_row(e, (size_t)row * e->C, i * e->C, true);
        else if (e->scale != 1)
            scale_row(e, (size_t)row * e->C, i * e->C, false);
        else
            memcpy(to, (const char *)e->table->data + (size_t)row * bytes,
                   bytes);
    }
}

static float scale_of(const struct merak_kernel_call *call)
{
    return call->attrs->f[0] > 0 ? (float)call->attrs->f[0] : 1;
}

CPU_KERNEL(embedding)
{
    struct embed e = {.tokens = &call->operand[0],
                      .table = &call->operand[1],
                      .y = merak_call_out(call, 0)->data,
                      .scale = scale_of(call),
                      .bf16 = call->operand[1].dtype == MERAK_BF16};
    enum merak_status rc = cpu_check_dtype(call, 1, false, err);

    if (rc == MERAK_OK)
        rc = merak_check_ids(e.tokens, e.table->full.dim[0], "token", err);
    if (rc != MERAK_OK)
        return rc;
    e.rows = merak_local_count(e.tokens);
    e.C = merak_local_last(e.table);
    merak_pool_run(gather_rows, &e, cpu_range_count(e.rows, ROWS));
    return MERAK_OK;
}

INLINE void scatter(const struct embed *e, size_t at, size_t end, bool bf16)
{
    float *dw = e->y;

    for (size_t i = 0; i < e->rows; i++) {
        ptrdiff_t row = local_row(e, i);

        if (row < 0 || (size_t)row + e->table->lo[0] == e->skip)
            continue;
        for (size_t c = at; c < end; c += LANES) {
            size_t to = (size_t)row * e->C + c;

            vstore_n(dw, to, end - c,
                     vload_n(dw, to, end - c, false) +
                         vload_n(e->x, i * e->C + c, end - c, bf16) * e->scale,
                     false);
        }
    }
}

/* Add a slab of columns over all tokens in order; no two threads share one. */
static void scatter_slab(void *arg, size_t item, int thread)
{
    const struct embed *e = arg;
    size_t end = cpu_range_end(item, SLAB, e->C);

    (void)thread;
    if (e->bf16)
        scatter(e, item * SLAB, end, true);
    else
        scatter(e, item * SLAB, end, false);
}

static void zero_range(void *arg, size_t item, int thread)
{
    const struct embed *e = arg;
    size_t n = e->table->local.dim[0] * e->C;
    size_t from = item * ZERO_GRAIN;

    (void)thread;
    memset((float *)e->y + from, 0,
           (cpu_range_end(item, ZERO_GRAIN, n) - from) * sizeof(float));
}

CPU_KERNEL(embedding_dw)
{
    const struct merak_operand *dw = merak_call_out(call, 0);
    struct embed e = {.tokens = &call->operand[0],
                      .table = dw,
                      .x = call->operand[1].data,
                      .y = dw->data,
                      .skip = (size_t)call->attrs->i[1] - 1,
                      .scale = scale_of(call),
                      .bf16 = call->operand[1].dtype == MERAK_BF16};
    enum merak_status rc = cpu_check_dtype(call, 1, false, err);

    if (rc == MERAK_OK)
        rc = merak_check_ids(e.tokens, dw->full.dim[0], "token", err);
    if (rc != MERAK_OK)
        return rc;
    e.rows = merak_local_count(e.tokens);
    e.C = merak_local_last(dw);
    if (!call->accumulate)
        merak_pool_run(zero_range, &e,
                       cpu_range_count(merak_local_count(dw), ZERO_GRAIN));
    merak_pool_run(scatter_slab, &e, cpu_range_count(e.C, SLAB));
    return MERAK_OK;
}

/* The position of token i in its document. */
static size_t position(const struct embed *e, size_t i)
{
    size_t t = merak_position(e->pieces, e->all, e->t0 + i % e->T);

    return e->starts == NULL ? t : t - (size_t)e->starts[i];
}

INLINE void add_row(const struct embed *e, size_t i, bool bf16)
{
    size_t row = position(e, i);

    for (size_t c = 0; c < e->C; c += LANES) {
        size_t n = e->C - c;

        vstore_n(e->y, i * e->C + c, n,
                 vload_n(e->x, i * e->C + c, n, bf16) +
                     vload_n(e->table->data, row * e->C + c, n, bf16),
                 bf16);
    }
}

static void add_rows(void *arg, size_t item, int thread)
{
    const struct embed *e = arg;
    size_t end = cpu_range_end(item, ROWS, e->rows);

    (void)thread;
    for (size_t i = item * ROWS; i < end; i++) {
        if (e->bf16)
            add_row(e, i, true);
        else
            add_row(e, i, false);
    }
}

CPU_KERNEL(add_position)
{
    const struct merak_operand *x = &call->operand[0];
    struct embed e = {.table = &call->operand[1],
                      .x = x->data,
                      .y = merak_call_out(call, 0)->data,
                      .T = x->local.dim[1],
                      .all = x->full.dim[1],
                      .t0 = x->lo[1],
                      .pieces = call->pieces,
                      .C = x->local.dim[2],
                      .bf16 = x->dtype == MERAK_BF16};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    if (call->n_in > 2)
        e.starts = call->operand[2].data;
    e.rows = x->local.dim[0] * e.T;
    merak_pool_run(add_rows, &e, cpu_range_count(e.rows, ROWS));
    return MERAK_OK;
}

/* Row p of the table's gradient: the sum over the batch at position p. */
INLINE void position_row(const struct embed *e, size_t p, bool bf16)
{
    size_t B = e->rows / e->T;
    size_t t = merak_position_index(e->pieces, e->all, p) - e->t0;
    bool is_here = p < e->all && t < e->T;
    float *dw = (float *)e->y + p * e->C;

    for (size_t c = 0; c < e->C; c += LANES) {
        size_t n = e->C - c;
        vf sum = {0};

        for (size_t b = 0; is_here && b < B; b++)
            sum += vload_n(e->x, (b * e->T + t) * e->C + c, n, bf16);
        if (e->accumulate)
            sum += vload_n(dw, c, n, false);
        vstore_n(dw, c, n, sum, false);
    }
}

static void position_rows(void *arg, size_t item, int thread)
{
    const struct embed *e = arg;
    size_t end = cpu_range_end(item, ROWS, e->table->local.dim[0]);

    (void)thread;
    for (size_t p = item * ROWS; p < end; p++) {
        if (e->bf16)
            position_row(e, p, true);
        else
            position_row(e, p, false);
    }
}

INLINE void scatter_positions(const struct embed *e, size_t at, size_t end,
                              bool bf16)
{
    float *dw = e->y;

    for (size_t i = 0; i < e->rows; i++) {
        size_t row = position(e, i) * e->C;

        for (size_t c = at; c < end; c += LANES)
            vstore_n(dw, row + c, end - c,
                     vload_n(dw, row + c, end - c, false) +
                         vload_n(e->x, i * e->C + c, end - c, bf16),
                     false);
    }
}

/* Add a slab of columns over all tokens in order, like scatter_slab(). */
static void scatter_position_slab(void *arg, size_t item, int thread)
{
    const struct embed *e = arg;
    size_t end = cpu_range_end(item, SLAB, e->C);

    (void)thread;
    if (e->bf16)
        scatter_positions(e, item * SLAB, end, true);
    else
        scatter_positions(e, item * SLAB, end, false);
}

/* With documents, positions repeat, so rows are added token by token. */
static enum merak_status add_by_document(struct embed *e)
{
    if (!e->accumulate)
        merak_pool_run(
            zero_range, e,
            cpu_range_count(e->table->local.dim[0] * e->C, ZERO_GRAIN));
    merak_pool_run(scatter_position_slab, e, cpu_range_count(e->C, SLAB));
    return MERAK_OK;
}

CPU_KERNEL(add_position_dw)
{
    const struct merak_operand *dy = &call->operand[0];
    const struct merak_operand *dw = merak_call_out(call, 0);
    struct embed e = {.table = dw,
                      .x = dy->data,
                      .y = dw->data,
                      .T = dy->local.dim[1],
                      .all = dy->full.dim[1],
                      .t0 = dy->lo[1],
                      .pieces = call->pieces,
                      .C = dy->local.dim[2],
                      .bf16 = dy->dtype == MERAK_BF16,
                      .accumulate = call->accumulate};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    e.rows = dy->local.dim[0] * e.T;
    if (call->n_in > 1) {
        e.starts = call->operand[1].data;
        return add_by_document(&e);
    }
    merak_pool_run(position_rows, &e, cpu_range_count(dw->local.dim[0], ROWS));
    return MERAK_OK;
}

struct rope {
    const void *x;
    void *y;
    const float *angles;      /* of position 0 */
    size_t B, T, inner, D, R; /* R channels are rotated */
    size_t all, t0, pieces;   /* as in struct embed */
    float sign;
    bool bf16;
};

INLINE void turn(const struct rope *r, size_t at, const float *c,
                 const float *s, bool bf16)
{
    size_t half = r->R / 2;

    for (size_t i = 0; i < half; i += LANES) {
        size_t n = half - i;
        vf a = vload_n(r->x, at + i, n, bf16);
        vf b = vload_n(r->x, at + half + i, n, bf16);
        vf vc = vload_n(c, i, n, false);
        vf vs = vload_n(s, i, n, false) * r->sign;

        vstore_n(r->y, at + i, n, a * vc - b * vs, bf16);
        vstore_n(r->y, at + half + i, n, b * vc + a * vs, bf16);
    }
    for (size_t i = r->R; i < r->D; i += LANES)
        vstore_n(r->y, at + i, r->D - i, vload_n(r->x, at + i, r->D - i, bf16),
                 bf16);
}

/* Rotate all samples and heads at one position. */
static void turn_position(void *arg, size_t t, int thread)
{
    const struct rope *r = arg;
    const float *c =
        r->angles + merak_position(r->pieces, r->all, r->t0 + t) * r->R;
    const float *s = c + r->R / 2;

    (void)thread;
    for (size_t b = 0; b < r->B; b++) {
        for (size_t h = 0; h < r->inner; h++) {
            size_t at = ((b * r->T + t) * r->inner + h) * r->D;

            if (r->bf16)
                turn(r, at, c, s, true);
            else
                turn(r, at, c, s, false);
        }
    }
}

CPU_KERNEL(rope)
{
    const struct merak_operand *x = &call->operand[0];
    struct rope r = {.x = x->data,
                     .y = merak_call_out(call, 0)->data,
                     .B = x->local.dim[0],
                     .T = x->local.dim[1],
                     .all = x->full.dim[1],
                     .t0 = x->lo[1],
                     .pieces = call->pieces,
                     .inner = merak_local_span(x, 2, x->local.ndim - 1),
                     .D = merak_local_last(x),
                     .sign = call->attrs->i[0] == 1 ? -1 : 1,
                     .bf16 = x->dtype == MERAK_BF16};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    r.R = merak_rope_turned(call->attrs, r.D);
    if (rc == MERAK_OK)
        rc = merak_angles(call->attrs, r.R, x->full.dim[1], &r.angles, err);
    if (rc != MERAK_OK)
        return rc;
    merak_pool_run(turn_position, &r, r.T);
    return MERAK_OK;
}
