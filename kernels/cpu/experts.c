/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - gated MLPs of chosen rows, and their gradients; the equations are
 * in ref/ref_experts.c
 *
 * Rows are sorted by expert.  An expert's rows are taken CHUNK at a time from
 * its own first one, gathered, and multiplied as matrices (gemm.h).  A token's
 * rows are added by ascending expert, each rounded before it is added.  Rows
 * that have no place in the pool are the last of a chunk, or all of it; what
 * the pool would have is then made again in scratch.
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
    bool again = call->n_out == 3 && s.kept < s.n * s.K;
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

/* The expert's gate (0), up (1) or down (2). */
static void *matrix(const struct chunk *c, int i)
{
    return at(c, c->matrices[i].data, c->expert * c->s.F * c->s.C);
}

/* The [2, F] of row i in a pool or, if it has no place there, in `made`. */
static void *layer_of(const struct chunk *c, const void *pool, const void *made,
                      size_t i)
{
    size_t row = 2 * c->s.F;

    if (i >= c->placed)
        return at(c, made, i * row);
    return at(c, pool, merak_experts_place(&c->s, c->at + i, c->row[i]) * row);
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

    for (size_t i = item * GRAIN; i < end; i++) {
        void *to = i < c->placed ? layer_of(c, c->pool, NULL, i) : NULL;

        for (size_t f = 0; f < F; f += LANES) {
            vf g = vload_n(c->room.gate + i * F, f, F - f, false), u;

            g = rounded(g, bf16);
            u = rounded(vload_n(c->room.up + i * F, f, F - f, false), bf16);
            if (to != NULL) {
                vstore_n(to, f, F - f, g, bf16);
                vstore_n(to, F + f, F - f, u, bf16);
            }
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
static enum merak_status first_products(struct chunk *c,
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

static enum merak_status forward(struct chunk *c, struct merak_error *err)
{
    size_t C = c->s.C, F = c->s.F;
    struct room *r = &c->room;
    enum merak_status rc = first_products(c, err);

    if (rc != MERAK_OK)
        return rc;
    merak_pool_run(join_item, c, cpu_range_count(c->rows, GRAIN));
    rc = multiply(c, c->rows, C, F, r->h, matrix(c, 2), true, false, r->out,
                  err);
    if (rc == MERAK_OK)
        merak_pool_run(add_weighted_item, c, cpu_range_count(C, SLAB));
    return rc;
}

CPU_KERNEL(experts)
{
    struct chunk c = {.x = call->operand[0].data,
                      .pool = merak_call_out(call, 1)->data};

    return each_sum(call, &c, forward, err);
}

/* --- gradients -------------------------------------------------------------
 */

static void layer_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;
    size_t end = cpu_range_end(item, GRAIN, c->rows), F = c->s.F;

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i++) {
        void *to = at(c, c->room.layer, i * 2 * F);

        for (size_t f = 0; f < F && i >= c->placed; f += LANES) {
            vstore_n(to, f, F - f,
                     vload_n(c->room.gate + i * F, f, F - f, false), c->bf16);
            vstore_n(to, F + f, F - f,
                     vload_n(c->room.up + i * F, f, F - f, false), c->bf16);
        }
    }
}

/* Make the layers of rows that have no place, in products of the same size as
 * in the forward, so that they have the same bits. */
static enum merak_status make_layers(struct chunk *c, struct merak_error *err)
{
    enum merak_status rc;

    if (c->placed == c->rows)
        return MERAK_OK;
    rc = first_products(c, err);
    if (rc == MERAK_OK)
        merak_pool_run(layer_item, c, cpu_range_count(c->rows, GRAIN));
    return rc;
}

/* The gradient of what the two layers make, to `up`. */
static enum merak_status back_product(struct chunk *c, struct merak_error *err)
{
    gather(c, c->dy);
    return multiply(c, c->rows, c->s.F, c->s.C, c->room.x, matrix(c, 2), false,
                    false, c->room.up, err);
}

/* From that, a row's gradients of the layers; returns that of its weight. */
INLINE float change_row(const struct chunk *c, size_t i, bool bf16)
{
    const void *layer = layer_of(c, c->pool, c->room.layer, i);
    void *change = layer_of(c, c->dpool, c->room.change, i);
    const float *w = c->call->operand[1].data;
    size_t F = c->s.F;
    vf sum = vset(0);

    for (size_t f = 0; f < F; f += LANES) {
        size_t left = F - f;
        vf g = vload_n(layer, f, left, bf16), s = sigmoid(g);
        vf u = vload_n(layer, F + f, left, bf16);
        vf d = vload_n(c->room.up + i * F, f, left, false);

        sum += d * rounded(g * s * u, bf16);
        d *= w[c->row[i]];
        vstore_n(change, f, left, d * u * s * (1.0f + g * (1.0f - s)), bf16);
        vstore_n(change, F + f, left, d * g * s, bf16);
    }
    return vsum(sum);
}

/* A row's gradients of the layers, as rows of two matrices. */
static void split_change(const struct chunk *c, size_t i, void *gate, void *up)
{
    size_t F = c->s.F, bytes = F * (c->bf16 ? 2 : 4);
    const void *change = layer_of(c, c->dpool, c->room.change, i);

    memcpy(at(c, gate, i * F), change, bytes);
    memcpy(at(c, up, i * F), at(c, change, F), bytes);
}

static void part_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;
    size_t end = cpu_range_end(item, GRAIN, c->rows);
    float *dw = merak_call_out(c->call, 1)->data;

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i++) {
        dw[c->row[i]] =
            c->bf16 ? change_row(c, i, true) : change_row(c, i, false);
        split_change(c, i, c->room.gate, c->room.h);
    }
}

static enum merak_status backward(struct chunk *c, struct merak_error *err)
{
    size_t C = c->s.C, F = c->s.F;
    struct room *r = &c->room;
    enum merak_status rc = make_layers(c, err);

    if (rc == MERAK_OK)
        rc = back_product(c, err);
    if (rc != MERAK_OK)
        return rc;
    merak_pool_run(part_item, c, cpu_range_count(c->rows, GRAIN));
    rc = multiply(c, c->rows, C, F, r->gate, matrix(c, 0), false, false, r->out,
                  err);
    if (rc == MERAK_OK)
        rc = multiply(c, c->rows, C, F, r->h, matrix(c, 1), false, true, r->out,
                      err);
    if (rc == MERAK_OK)
        merak_pool_run(add_plain_item, c, cpu_range_count(C, SLAB));
    return rc;
}

CPU_KERNEL(experts_dx)
{
    struct chunk c = {.dy = call->operand[0].data,
                      .pool = call->operand[6].data,
                      .x = call->operand[7].data,
                      .dpool = merak_call_out(call, 2)->data};
    const struct merak_operand *dw = merak_call_out(call, 1);

    memset(dw->data, 0, merak_local_bytes(dw)); /* of others' experts */
    return each_sum(call, &c, backward, err);
}

/* What the two layers make, and their gradients, as rows of matrices; gradients
 * of outputs times weights. */
INLINE void unfold_rows(const struct chunk *c, size_t item, bool bf16)
{
    size_t end = cpu_range_end(item, GRAIN, c->rows), F = c->s.F, C = c->s.C;
    const float *w = c->call->operand[1].data;

    for (size_t i = item * GRAIN; i < end; i++) {
        size_t row = c->row[i], token = row / c->s.K;
        const void *layer = layer_of(c, c->pool, c->room.layer, i);

        for (size_t f = 0; f < F; f += LANES) {
            vf g = vload_n(layer, f, F - f, bf16);
            vf u = vload_n(layer, F + f, F - f, bf16);

            vstore_n(c->room.h, i * F + f, F - f, g * sigmoid(g) * u, bf16);
        }
        for (size_t k = 0; k < C; k += LANES)
            vstore_n(c->room.out, i * C + k, C - k,
                     w[row] * vload_n(c->dy, token * C + k, C - k, bf16), bf16);
        split_change(c, i, c->room.gate, c->room.up);
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

static void change_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;
    size_t end = cpu_range_end(item, GRAIN, c->rows);

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i++) {
        if (i >= c->placed && c->bf16)
            (void)change_row(c, i, true);
        else if (i >= c->placed)
            (void)change_row(c, i, false);
    }
}

/* Make the gradients of layers of rows that have no place, again. */
static enum merak_status make_changes(struct chunk *c, struct merak_error *err)
{
    enum merak_status rc;

    if (c->placed == c->rows)
        return MERAK_OK;
    rc = back_product(c, err);
    if (rc == MERAK_OK)
        merak_pool_run(change_item, c, cpu_range_count(c->rows, GRAIN));
    return rc;
}

static enum merak_status weights(struct chunk *c, struct merak_error *err)
{
    size_t C = c->s.C, F = c->s.F, to = c->expert * F * C;
    struct room *r = &c->room;
    float *d[3];
    enum merak_status rc = make_layers(c, err);

    if (rc == MERAK_OK)
        rc = make_changes(c, err);
    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < 3; i++)
        d[i] = (float *)merak_call_out(c->call, i)->data + to;
    gather(c, c->x);
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
    struct chunk c = {.x = call->operand[0].data,
                      .dy = call->operand[3].data,
                      .pool = call->operand[4].data,
                      .dpool = call->operand[5].data,
                      .matrices = &call->operand[6]};

    for (int i = 0; i < 3 && !call->accumulate; i++)
        memset(merak_call_out(call, i)->data, 0,
               merak_local_bytes(merak_call_out(call, i)));
    return each_chunk(call, &c, weights, err);
}
