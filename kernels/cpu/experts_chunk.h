/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/experts_chunk.h - rows of an expert, a chunk at a time: common
 * code of the forward of experts and of its gradients
 *
 * Rows are sorted by expert.  An expert's rows are taken CHUNK at a time from
 * its own first one, gathered, and multiplied as matrices (gemm.h).  A token's
 * rows are added by ascending expert, each rounded before it is added.  Rows
 * that have no place in the pool are the last of a chunk, or all of it; what
 * the pool would have is then made again in scratch.
 */
#ifndef MERAK_KERNELS_CPU_EXPERTS_CHUNK_H
#define MERAK_KERNELS_CPU_EXPERTS_CHUNK_H

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
    void *x, *h;          /* [CHUNK, C], [CHUNK, F] of the compute type */
    float *gate, *up;     /* [CHUNK, F] */
    float *out;           /* [CHUNK, C] */
    float *sum;           /* [n, C], where output 0 is bf16 */
    void *layer, *change; /* [CHUNK, 2, F]: a pool, and its gradient, of rows
                             that have no place */
};

struct chunk {
    struct merak_experts s;
    const struct merak_kernel_call *call;
    const struct merak_operand *matrices; /* gate, up and down */
    const void *x, *dy;
    void *pool, *dpool;
    struct room room;
    bool bf16;
    size_t expert, rows;
    size_t at;           /* of the first row, among all sorted ones */
    size_t placed;       /* rows that have a place in the pool */
    const uint32_t *row; /* [rows] */
    const void *from;    /* [n, C], what is gathered */
    float *to;           /* [n, C], where rows are added */
};

/* --- memory ----------------------------------------------------------------
 */

static inline void *take(char *base, size_t *end_p, size_t bytes)
{
    char *at = base == NULL ? NULL : base + *end_p;

    *end_p += merak_size_align(bytes, 64);
    return at;
}

/* Divide scratch, or with `base` NULL only count; returns its bytes. */
static inline size_t lay_out(const struct merak_kernel_call *call, char *base,
                      struct room *room)
{
    const struct merak_experts s = merak_experts_sizes(call);
    size_t word = merak_dtype_bytes(call->operand[0].dtype), end = 0;
    size_t rows = s.n * s.K < CHUNK ? s.n * s.K : CHUNK;
    bool sums = merak_call_out(call, 0)->dtype == MERAK_BF16;
    bool again = call->n_out != 2 && s.kept < s.n * s.K; /* gradients */
    size_t made = again ? rows * 2 * s.F * word : 0;

    room->first = take(base, &end, (s.E + 1) * sizeof(uint32_t));
    room->order = take(base, &end, s.n * s.K * sizeof(uint32_t));
    room->x = take(base, &end, rows * s.C * word);
    room->h = take(base, &end, rows * s.F * word);
    room->gate = take(base, &end, rows * s.F * sizeof(float));
    room->up = take(base, &end, rows * s.F * sizeof(float));
    room->out = take(base, &end, rows * s.C * sizeof(float));
    room->sum = take(base, &end, sums ? s.n * s.C * sizeof(float) : 0);
    room->layer = take(base, &end, made);
    room->change = take(base, &end, made);
    return end;
}

/* Element `at` of an array of the compute type. */
static inline void *at(const struct chunk *c, const void *array, size_t element)
{
    return (char *)(uintptr_t)array + element * (c->bf16 ? 2 : 4);
}

/* --- products --------------------------------------------------------------
 */

/* c[m, n] (+)= a[m, k] b'[n, k], or without `turned` b[k, n]. */
static inline enum merak_status multiply(const struct chunk *c, size_t m, size_t n,
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
static inline enum merak_status add_outer(const struct chunk *c, size_t m, size_t n,
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

/* The expert's gate (0), up (1) or down (2). */
static inline void *matrix(const struct chunk *c, int i)
{
    return at(c, c->matrices[i].data, c->expert * c->s.F * c->s.C);
}

/* The [2, F] of row i in a pool or, if it has no place there, in `made`. */
static inline void *layer_of(const struct chunk *c, const void *pool, const void *made,
                      size_t i)
{
    size_t row = 2 * c->s.F;

    if (i >= c->placed)
        return at(c, made, i * row);
    return at(c, pool, merak_experts_place(&c->s, c->at + i, c->row[i]) * row);
}

/* --- rows ------------------------------------------------------------------
 */

static inline void gather_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;
    size_t end = cpu_range_end(item, GRAIN, c->rows), C = c->s.C;

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i++)
        memcpy(at(c, c->room.x, i * C), at(c, c->from, c->row[i] / c->s.K * C),
               C * (c->bf16 ? 2 : 4));
}

static inline void gather(struct chunk *c, const void *from)
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

static inline void add_weighted_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;

    (void)thread;
    add_slab(c, item, c->call->operand[1].data);
}

static inline void add_plain_item(void *arg, size_t item, int thread)
{
    (void)thread;
    add_slab(arg, item, NULL);
}

INLINE vf rounded(vf x, bool bf16)
{
    return bf16 ? from_bf16(to_bf16(x)) : x;
}

/* --- what the two layers make ----------------------------------------------
 */

INLINE vf sigmoid(vf x)
{
    return 1.0f / (1.0f + vexp(-x));
}

/* The numbers of struct merak_gating. */
struct gates {
    float limit, slope, shift;
    bool plain;
};
static inline struct gates gates_of(const struct chunk *c)
{
    const struct merak_gating *g = &c->s.gating;

    return (struct gates){(float)g->limit, (float)g->slope, (float)g->shift,
                          g->plain};
}

/* A gate, and what it is multiplied by, within the limit; a missing number
 * stays one. */
INLINE vf bounded_gate(const struct gates *by, vf g)
{
    return vmin(vset(by->limit), g);
}

INLINE vf bounded_up(const struct gates *by, vf u)
{
    return vmax(vset(-by->limit), vmin(vset(by->limit), u)) + by->shift;
}

INLINE vf gated(const struct gates *by, vf g, vf u)
{
    if (by->plain)
        return g * sigmoid(g) * u;
    g = bounded_gate(by, g);
    return g * sigmoid(by->slope * g) * bounded_up(by, u);
}

/* Element f and those behind it of a row's layer `half`, with the bias. */
INLINE vf with_bias(const struct chunk *c, vf x, size_t half, size_t f)
{
    const float *bias;

    if (c->s.bias == NULL)
        return x;
    bias = (const float *)c->s.bias->data + (2 * c->expert + half) * c->s.F;
    return x + vload_n(bias, f, c->s.F - f, false);
}

/* --- calls -----------------------------------------------------------------
 */

/* What is done with a chunk of an expert's rows. */
typedef enum merak_status (*chunk_fn)(struct chunk *c, struct merak_error *err);

static inline enum merak_status each_chunk(const struct merak_kernel_call *call,
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
            c->at = i;
            c->row = c->room.order + i;
            c->rows = end - i < CHUNK ? end - i : CHUNK;
            c->placed = c->rows;
            if (c->s.shared && i + c->rows > c->s.kept)
                c->placed = i < c->s.kept ? c->s.kept - i : 0;
            rc = fn(c, err);
        }
    }
    return rc;
}

static inline void round_item(void *arg, size_t item, int thread)
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
static inline enum merak_status each_sum(const struct merak_kernel_call *call,
                                  struct chunk *c, chunk_fn fn,
                                  struct merak_error *err)
{
    const struct merak_operand *y = merak_call_out(call, 0);
    enum merak_status rc;

    c->to = y->data;
    c->matrices = &call->operand[3];
    if (y->dtype == MERAK_BF16) {
        (void)lay_out(call, call->scratch, &c->room);
        c->to = c->room.sum;
    }
    memset(c->to, 0, merak_local_count(y) * sizeof(float));
    rc = each_chunk(call, c, fn, err);
    if (rc == MERAK_OK && c->bf16)
        merak_pool_run(round_item, c, cpu_range_count(c->s.n, GRAIN));
    return rc;
}

/* The rows of x by `gate` and `up`. */
static inline enum merak_status first_products(struct chunk *c,
                                        struct merak_error *err)
{
    size_t C = c->s.C, F = c->s.F;
    struct room *r = &c->room;
    enum merak_status rc;

    gather(c, c->x);
    rc = multiply(c, c->rows, F, C, r->x, matrix(c, 0), true, false, r->gate,
                  err);
    if (rc == MERAK_OK)
        rc = multiply(c, c->rows, F, C, r->x, matrix(c, 1), true, false, r->up,
                      err);
    return rc;
}

#define EXPERTS_SCRATCH(op)                \
    CPU_SCRATCH(op)                        \
    {                                      \
        struct room room;                  \
                                           \
        return lay_out(call, NULL, &room); \
    }

#endif
