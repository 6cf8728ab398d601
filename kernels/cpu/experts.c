/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - gated MLPs of chosen rows, and their gradients; the equations are
 * in ref/ref_experts.c
 *
 * Rows are sorted by expert.  An expert's rows are taken CHUNK at a time from
 * its own first one, gathered, and multiplied as matrices (gemm.h).  A token's
 * rows are added by ascending expert, each rounded before it is added.
 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_moves.h"
#include "kernels/cpu/matvec.h"

#include "base/size.h"

#define CHUNK ((size_t)256)
#define GRAIN ((size_t)8)  /* rows per item */
#define SLAB ((size_t)128) /* channels per item, where rows are added */

/* Scratch of a call, from its beginning. */
struct room {
    uint32_t *first, *order;
    void *x, *h;      /* [CHUNK, C], [CHUNK, F] of the compute type */
    float *gate, *up; /* [CHUNK, F] */
    float *out;       /* [CHUNK, C] */
    float *sum;       /* [n, C], where output 0 is bf16 */
};

struct chunk {
    struct merak_experts s;
    const struct merak_kernel_call *call;
    struct room room;
    bool bf16;
    size_t expert, rows;
    const uint32_t *row; /* [rows] */
    const void *from;    /* [n, C], what is gathered */
    float *to;           /* [n, C], where rows are added */
};

/* --- memory ----------------------------------------------------------------
 */

static void *take(char *base, size_t *end_p, size_t bytes)
{
    char *at = base == NULL ? NULL : base + *end_p;

    *end_p += merak_size_align(bytes, 64);
    return at;
}

/* Divide scratch, or with `base` NULL only count; returns its bytes. */
static size_t lay_out(const struct merak_kernel_call *call, char *base,
                      struct room *room)
{
    const struct merak_experts s = merak_experts_sizes(call);
    size_t word = merak_dtype_bytes(call->operand[0].dtype), end = 0;
    size_t rows = s.n * s.K < CHUNK ? s.n * s.K : CHUNK;
    bool sums = merak_call_out(call, 0)->dtype == MERAK_BF16;

    room->first = take(base, &end, (s.E + 1) * sizeof(uint32_t));
    room->order = take(base, &end, s.n * s.K * sizeof(uint32_t));
    room->x = take(base, &end, rows * s.C * word);
    room->h = take(base, &end, rows * s.F * word);
    room->gate = take(base, &end, rows * s.F * sizeof(float));
    room->up = take(base, &end, rows * s.F * sizeof(float));
    room->out = take(base, &end, rows * s.C * sizeof(float));
    room->sum = take(base, &end, sums ? s.n * s.C * sizeof(float) : 0);
    return end;
}

#define SCRATCH(op)                        \
    CPU_SCRATCH(op)                        \
    {                                      \
        struct room room;                  \
                                           \
        return lay_out(call, NULL, &room); \
    }
SCRATCH(experts)
SCRATCH(experts_dx)
SCRATCH(experts_dw)

/* Element `at` of an array of the compute type. */
static void *at(const struct chunk *c, const void *array, size_t element)
{
    return (char *)(uintptr_t)array + element * (c->bf16 ? 2 : 4);
}

/* --- products --------------------------------------------------------------
 */

/* c[m, n] (+)= a[m, k] b'[n, k], or without `turned` b[k, n]. */
static enum merak_status multiply(const struct chunk *c, size_t m, size_t n,
                                  size_t k, const void *a, const void *b,
                                  bool turned, bool add, float *to,
                                  struct merak_error *err)
{
    const struct merak_gemm g = {.m = m,
                                 .n = n,
                                 .k = k,
                                 .trans_b = turned,
                                 .bf16_ab = c->bf16,
                                 .accumulate = add,
                                 .a = a,
                                 .b = b,
                                 .c = to,
                                 .moves = &gemm_moves};
    struct matvec one = {
        .n = n, .k = k, .bf16 = c->bf16, .w = b, .x = a, .y = to, .wide = true};

    if (m > 1 || !turned || add || k > MATVEC_MAX_K)
        return merak_gemm(&g, err);
    matvec(&one);
    return MERAK_OK;
}

/* c[m, n] += a[k, m]' b[k, n] over the chunk's rows k. */
static enum merak_status add_outer(const struct chunk *c, size_t m, size_t n,
                                   const void *a, const void *b, float *to,
                                   struct merak_error *err)
{
    const struct merak_gemm g = {.m = m,
                                 .n = n,
                                 .k = c->rows,
                                 .trans_a = true,
                                 .bf16_ab = c->bf16,
                                 .accumulate = true,
                                 .a = a,
                                 .b = b,
                                 .c = to,
                                 .moves = &gemm_moves};

    return merak_gemm(&g, err);
}

/* The expert's matrix in operand o. */
static void *matrix(const struct chunk *c, int o)
{
    return at(c, c->call->operand[o].data, c->expert * c->s.F * c->s.C);
}

/* --- rows ------------------------------------------------------------------
 */

static void gather_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;
    size_t end = cpu_range_end(item, GRAIN, c->rows), C = c->s.C;

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i++)
        memcpy(at(c, c->room.x, i * C), at(c, c->from, c->row[i] / c->s.K * C),
               C * (c->bf16 ? 2 : 4));
}

static void gather(struct chunk *c, const void *from)
{
    c->from = from;
    merak_pool_run(gather_item, c, cpu_range_count(c->rows, GRAIN));
}

/* Add the rows of `out`, each times its weight if there are any, to those of
 * their tokens.  A product is stored before it is added: no compiler fuses
 * them. */
INLINE void add_slab(const struct chunk *c, size_t item, const float *w)
{
    size_t C = c->s.C, end = cpu_range_end(item, SLAB, C);

    for (size_t i = 0; i < c->rows; i++) {
        float *out = c->room.out + i * C;
        float *to = c->to + c->row[i] / c->s.K * C;

        for (size_t k = item * SLAB; k < end && w != NULL; k += LANES)
            vstore_n(out, k, end - k,
                     vload_n(out, k, end - k, false) * w[c->row[i]], false);
        for (size_t k = item * SLAB; k < end; k += LANES)
            vstore_n(to, k, end - k,
                     vload_n(to, k, end - k, false) +
                         vload_n(out, k, end - k, false),
                     false);
    }
}

static void add_weighted_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;

    (void)thread;
    add_slab(c, item, c->call->operand[1].data);
}

static void add_plain_item(void *arg, size_t item, int thread)
{
    (void)thread;
    add_slab(arg, item, NULL);
}

INLINE vf sigmoid(vf x)
{
    return 1.0f / (1.0f + vexp(-x));
}

INLINE vf rounded(vf x, bool bf16)
{
    return bf16 ? from_bf16(to_bf16(x)) : x;
}

/* The gate's and the other layer's rows to the pool, and what they make. */
INLINE void join_rows(const struct chunk *c, size_t item, bool bf16)
{
    size_t end = cpu_range_end(item, GRAIN, c->rows), F = c->s.F;
    void *pool = merak_call_out(c->call, 1)->data;

    for (size_t i = item * GRAIN; i < end; i++) {
        size_t to = c->row[i] * 2 * F;

        for (size_t f = 0; f < F; f += LANES) {
            vf g = vload_n(c->room.gate + i * F, f, F - f, false), u;

            g = rounded(g, bf16);
            u = rounded(vload_n(c->room.up + i * F, f, F - f, false), bf16);
            vstore_n(pool, to + f, F - f, g, bf16);
            vstore_n(pool, to + F + f, F - f, u, bf16);
            vstore_n(c->room.h, i * F + f, F - f, g * sigmoid(g) * u, bf16);
        }
    }
}

static void join_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;

    (void)thread;
    if (c->bf16)
        join_rows(c, item, true);
    else
        join_rows(c, item, false);
}

/* --- calls -----------------------------------------------------------------
 */

/* What is done with a chunk of an expert's rows. */
typedef enum merak_status (*chunk_fn)(struct chunk *c, struct merak_error *err);

static enum merak_status each_chunk(const struct merak_kernel_call *call,
                                    struct chunk *c, chunk_fn fn,
                                    struct merak_error *err)
{
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    c->call = call;
    c->s = merak_experts_sizes(call);
    c->bf16 = call->operand[0].dtype == MERAK_BF16;
    (void)lay_out(call, call->scratch, &c->room);
    if (rc == MERAK_OK)
        rc = merak_experts_check(&c->s, err);
    if (rc != MERAK_OK)
        return rc;
    merak_experts_sort(&c->s, c->room.first, c->room.order);
    for (c->expert = 0; c->expert < c->s.E; c->expert++) {
        size_t end = c->room.first[c->expert + 1];

        for (size_t i = c->room.first[c->expert]; i < end && rc == MERAK_OK;
             i += CHUNK) {
            c->row = c->room.order + i;
            c->rows = end - i < CHUNK ? end - i : CHUNK;
            rc = fn(c, err);
        }
    }
    return rc;
}

static void round_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;
    size_t C = c->s.C, end = cpu_range_end(item, GRAIN, c->s.n);
    void *to = merak_call_out(c->call, 0)->data;

    (void)thread;
    for (size_t i = item * GRAIN * C; i < end * C; i += LANES)
        vstore_n(to, i, end * C - i, vload_n(c->to, i, end * C - i, false),
                 true);
}

/* The same where output 0 is a sum of each token's rows. */
static enum merak_status each_sum(const struct merak_kernel_call *call,
                                  chunk_fn fn, struct merak_error *err)
{
    const struct merak_operand *y = merak_call_out(call, 0);
    struct chunk c = {.to = y->data};
    enum merak_status rc;

    if (y->dtype == MERAK_BF16) {
        (void)lay_out(call, call->scratch, &c.room);
        c.to = c.room.sum;
    }
    memset(c.to, 0, merak_local_count(y) * sizeof(float));
    rc = each_chunk(call, &c, fn, err);
    if (rc == MERAK_OK && c.bf16)
        merak_pool_run(round_item, &c, cpu_range_count(c.s.n, GRAIN));
    return rc;
}

static enum merak_status forward(struct chunk *c, struct merak_error *err)
{
    size_t C = c->s.C, F = c->s.F;
    struct room *r = &c->room;
    enum merak_status rc;

    gather(c, c->call->operand[0].data);
    rc = multiply(c, c->rows, F, C, r->x, matrix(c, 3), true, false, r->gate,
                  err);
    if (rc == MERAK_OK)
        rc = multiply(c, c->rows, F, C, r->x, matrix(c, 4), true, false, r->up,
                      err);
    if (rc != MERAK_OK)
        return rc;
    merak_pool_run(join_item, c, cpu_range_count(c->rows, GRAIN));
    rc = multiply(c, c->rows, C, F, r->h, matrix(c, 5), true, false, r->out,
                  err);
    if (rc == MERAK_OK)
        merak_pool_run(add_weighted_item, c, cpu_range_count(C, SLAB));
    return rc;
}

CPU_KERNEL(experts)
{
    return each_sum(call, forward, err);
}

/* From the gradient of what the two layers make, in `up`: that of the weight,
 * and those of the layers, to the pool and, as rows of matrices, to gate_rows
 * and h. */
INLINE void part_rows(const struct chunk *c, size_t item, bool bf16)
{
    size_t end = cpu_range_end(item, GRAIN, c->rows), F = c->s.F;
    const void *pool = c->call->operand[6].data;
    const float *w = c->call->operand[1].data;
    float *dw = merak_call_out(c->call, 1)->data;
    void *dpool = merak_call_out(c->call, 2)->data;

    for (size_t i = item * GRAIN; i < end; i++) {
        size_t row = c->row[i], from = row * 2 * F;
        vf sum = vset(0);

        for (size_t f = 0; f < F; f += LANES) {
            size_t left = F - f;
            vf g = vload_n(pool, from + f, left, bf16), s = sigmoid(g);
            vf u = vload_n(pool, from + F + f, left, bf16);
            vf d = vload_n(c->room.up + i * F, f, left, false);

            sum += d * rounded(g * s * u, bf16);
            d *= w[row];
            vstore_n(dpool, from + f, left, d * u * s * (1.0f + g * (1.0f - s)),
                     bf16);
            vstore_n(dpool, from + F + f, left, d * g * s, bf16);
        }
        dw[row] = vsum(sum);
        memcpy(at(c, c->room.gate, i * F), at(c, dpool, from),
               F * (bf16 ? 2 : 4));
        memcpy(at(c, c->room.h, i * F), at(c, dpool, from + F),
               F * (bf16 ? 2 : 4));
    }
}

static void part_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;

    (void)thread;
    if (c->bf16)
        part_rows(c, item, true);
    else
        part_rows(c, item, false);
}

static enum merak_status backward(struct chunk *c, struct merak_error *err)
{
    size_t C = c->s.C, F = c->s.F;
    struct room *r = &c->room;
    enum merak_status rc;

    gather(c, c->call->operand[0].data);
    rc = multiply(c, c->rows, F, C, r->x, matrix(c, 5), false, false, r->up,
                  err);
    if (rc != MERAK_OK)
        return rc;
    merak_pool_run(part_item, c, cpu_range_count(c->rows, GRAIN));
    rc = multiply(c, c->rows, C, F, r->gate, matrix(c, 3), false, false, r->out,
                  err);
    if (rc == MERAK_OK)
        rc = multiply(c, c->rows, C, F, r->h, matrix(c, 4), false, true, r->out,
                      err);
    if (rc == MERAK_OK)
        merak_pool_run(add_plain_item, c, cpu_range_count(C, SLAB));
    return rc;
}

CPU_KERNEL(experts_dx)
{
    return each_sum(call, backward, err);
}

/* What the two layers make, from the pool, and their gradients, as rows of
 * matrices; gradients of outputs times weights. */
INLINE void unfold_rows(const struct chunk *c, size_t item, bool bf16)
{
    size_t end = cpu_range_end(item, GRAIN, c->rows), F = c->s.F, C = c->s.C;
    const struct merak_operand *op = c->call->operand;
    const float *w = op[1].data;

    for (size_t i = item * GRAIN; i < end; i++) {
        size_t row = c->row[i], from = row * 2 * F, token = row / c->s.K;

        for (size_t f = 0; f < F; f += LANES) {
            vf g = vload_n(op[4].data, from + f, F - f, bf16);
            vf u = vload_n(op[4].data, from + F + f, F - f, bf16);

            vstore_n(c->room.h, i * F + f, F - f, g * sigmoid(g) * u, bf16);
        }
        for (size_t k = 0; k < C; k += LANES)
            vstore_n(c->room.out, i * C + k, C - k,
                     w[row] * vload_n(op[3].data, token * C + k, C - k, bf16),
                     bf16);
        memcpy(at(c, c->room.gate, i * F), at(c, op[5].data, from),
               F * (bf16 ? 2 : 4));
        memcpy(at(c, c->room.up, i * F), at(c, op[5].data, from + F),
               F * (bf16 ? 2 : 4));
    }
}

static void unfold_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;

    (void)thread;
    if (c->bf16)
        unfold_rows(c, item, true);
    else
        unfold_rows(c, item, false);
}

static enum merak_status weights(struct chunk *c, struct merak_error *err)
{
    size_t C = c->s.C, F = c->s.F, to = c->expert * F * C;
    struct room *r = &c->room;
    float *d[3];
    enum merak_status rc;

    for (int i = 0; i < 3; i++)
        d[i] = (float *)merak_call_out(c->call, i)->data + to;
    gather(c, c->call->operand[0].data);
    merak_pool_run(unfold_item, c, cpu_range_count(c->rows, GRAIN));
    rc = add_outer(c, F, C, r->gate, r->x, d[0], err);
    if (rc == MERAK_OK)
        rc = add_outer(c, F, C, r->up, r->x, d[1], err);
    if (rc == MERAK_OK)
        rc = add_outer(c, C, F, r->out, r->h, d[2], err);
    return rc;
}

CPU_KERNEL(experts_dw)
{
    struct chunk c = {.to = NULL};

    for (int i = 0; i < 3 && !call->accumulate; i++)
        memset(merak_call_out(call, i)->data, 0,
               merak_local_bytes(merak_call_out(call, i)));
    return each_chunk(call, &c, weights, err);
}
