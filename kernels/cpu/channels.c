/* SPDX-License-Identifier: Apache-2.0 */
/* channels.c - norms of groups of channels with their gradients, and channels
 * beside one another; the equations are in ref/ref_channels.c
 *
 * Sums are in double, so that squares lose nothing where a mean is large.  They
 * are of blocks of points that follow from the shape; blocks are added in
 * order.
 */
#include "config.h"

#include "kernels/channels.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#define BLOCK 512        /* points, at least, that are summed at a time */
#define MOST_BLOCKS 256  /* of a sample */
#define PAIR (LANES / 2) /* doubles in a vector */
#define WIDE 4           /* vectors of channels that are summed at once */

typedef float vf_half __attribute__((vector_size(VECTOR_BYTES / 2)));

/* --- sums ------------------------------------------------------------------
 */

struct sums {
    const void *x, *by;
    double *part; /* [B, blocks, C, 2] */
    size_t points, C, block, blocks;
    bool bf16;
};

/* Elements i .. i + PAIR - 1 of p, of which n exist: the others are zero. */
INLINE vd load_pair(const void *p, size_t i, size_t n, bool bf16)
{
    float x[PAIR] = {0};
    vf_half half;

    n = n < PAIR ? n : PAIR;
    if (bf16) {
        for (size_t k = 0; k < n; k++)
            x[k] = merak_bf16_to_f32(((const uint16_t *)p)[i + k]);
    } else if (n == PAIR) {
        half = *(const vf_half_mem *)((const float *)p + i);
        return __builtin_convertvector(half, vd);
    } else {
        memcpy(x, (const float *)p + i, n * sizeof(*x));
    }
    memcpy(&half, x, sizeof(half));
    return __builtin_convertvector(half, vd);
}

/* Points [from, to) of `vectors` vectors of channels from c on. */
INLINE void sum_vectors(const struct sums *s, size_t from, size_t to, size_t c,
                        int vectors, double *out, bool bf16)
{
    vd sum[WIDE] = {{0}}, product[WIDE] = {{0}};

    for (size_t p = from; p < to; p++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            size_t at = c + (size_t)v * PAIR;
            vd x = load_pair(s->x, p * s->C + at, s->C - at, bf16);

            sum[v] += x;
            product[v] += x * load_pair(s->by, p * s->C + at, s->C - at, bf16);
        }
    }
    for (int v = 0; v < vectors; v++) {
        for (size_t k = 0; k < PAIR; k++) {
            size_t at = c + (size_t)v * PAIR + k;

            if (at >= s->C)
                break;
            out[2 * at] = sum[v][k];
            out[2 * at + 1] = product[v][k];
        }
    }
}

INLINE void sum_block(const struct sums *s, size_t item, bool bf16)
{
    size_t sample = item / s->blocks * s->points;
    size_t from = item % s->blocks * s->block, c = 0;
    size_t to = cpu_range_end(item % s->blocks, s->block, s->points);
    double *out = s->part + item * s->C * 2;

    for (; c + WIDE * PAIR <= s->C; c += WIDE * PAIR)
        sum_vectors(s, sample + from, sample + to, c, WIDE, out, bf16);
    for (; c < s->C; c += PAIR)
        sum_vectors(s, sample + from, sample + to, c, 1, out, bf16);
}

static void sum_item(void *arg, size_t item, int thread)
{
    const struct sums *s = arg;

    (void)thread;
    if (s->bf16)
        sum_block(s, item, true);
    else
        sum_block(s, item, false);
}

static struct sums sums_view(const struct merak_kernel_call *call)
{
    const struct merak_operand *x = &call->operand[0];
    struct sums s = {.x = x->data,
                     .by = call->operand[call->n_in - 1].data,
                     .points = merak_local_span(x, 1, x->local.ndim - 1),
                     .C = merak_local_last(x),
                     .bf16 = x->dtype == MERAK_BF16};

    s.block = cpu_range_count(s.points, MOST_BLOCKS);
    s.block = s.block < BLOCK ? BLOCK : s.block;
    s.blocks = cpu_range_count(s.points, s.block);
    return s;
}

CPU_SCRATCH(channel_sums)
{
    struct sums s = sums_view(call);

    return call->operand[0].local.dim[0] * s.blocks * s.C * 2 * sizeof(double);
}

CPU_KERNEL(channel_sums)
{
    struct sums s = sums_view(call);
    size_t B = call->operand[0].local.dim[0], n = 2 * s.C;
    double *out = merak_call_out(call, 0)->data;
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    s.part = call->scratch;
    merak_pool_run(sum_item, &s, B * s.blocks);
    for (size_t i = 0; i < B * n; i++) {
        const double *part = s.part + i / n * s.blocks * n + i % n;
        double sum = 0;

        for (size_t k = 0; k < s.blocks; k++)
            sum += part[k * n];
        out[i] = sum;
    }
    return MERAK_OK;
}

/* --- norms -----------------------------------------------------------------
 */

/* What each channel of each sample is shifted and multiplied by. */
enum { SHIFT, FACTOR, BY, LESS, TERMS };

struct norm {
    struct merak_channels q;
    const void *x, *dy; /* dy: of a gradient */
    void *out;
    float *term;       /* [B, TERMS, C] */
    const float *beta; /* [C], of the norm itself */
    size_t block, blocks;
    bool bf16;
};

/* Points of an item: a few thousand elements. */
static void divide(struct norm *nm, const struct merak_kernel_call *call)
{
    const struct merak_operand *x = &call->operand[0];

    nm->bf16 = x->dtype == MERAK_BF16;
    nm->block = 16384 / (nm->q.C < 16384 ? nm->q.C : 16384);
    nm->blocks = cpu_range_count(nm->q.points, nm->block);
    nm->out = merak_call_out(call, 0)->data;
    nm->term = call->scratch;
}

INLINE void norm_points(const struct norm *nm, size_t item, bool bf16)
{
    size_t C = nm->q.C, b = item / nm->blocks, block = item % nm->blocks;
    size_t end = cpu_range_end(block, nm->block, nm->q.points);
    const float *term = nm->term + b * TERMS * C;

    for (size_t p = block * nm->block; p < end; p++) {
        size_t at = (b * nm->q.points + p) * C;

        for (size_t c = 0; c < C; c += LANES) {
            size_t n = C - c;
            vf x = vload_n(nm->x, at + c, n, bf16) -
                   vload_n(term, SHIFT * C + c, n, false);
            vf y = vload_n(term, FACTOR * C + c, n, false);

            if (nm->dy == NULL)
                y = x * y + vload_n(nm->beta, c, n, false);
            else
                y = vload_n(nm->dy, at + c, n, bf16) * y -
                    x * vload_n(term, BY * C + c, n, false) -
                    vload_n(term, LESS * C + c, n, false);
            vstore_n(nm->out, at + c, n, y, bf16);
        }
    }
}

static void norm_item(void *arg, size_t item, int thread)
{
    const struct norm *nm = arg;

    (void)thread;
    if (nm->bf16)
        norm_points(nm, item, true);
    else
        norm_points(nm, item, false);
}

static size_t norm_scratch(const struct merak_kernel_call *call)
{
    const struct merak_operand *x = &call->operand[0];

    return x->local.dim[0] * TERMS * merak_local_last(x) * sizeof(float);
}

CPU_SCRATCH(channel_norm)
{
    return norm_scratch(call);
}

/* running: the mean and the variance to take, or NULL. */
static enum merak_status norm(const struct merak_kernel_call *call,
                              const struct merak_operand *running,
                              struct merak_error *err)
{
    const float *gamma = call->operand[2].data;
    struct norm nm = {.q = merak_channels_norm_view(call),
                      .x = call->operand[0].data,
                      .beta = call->operand[3].data};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);
    size_t C = nm.q.C;

    if (rc != MERAK_OK)
        return rc;
    divide(&nm, call);
    for (size_t i = 0; i < nm.q.B * C; i++) {
        size_t c = i % C;
        struct merak_moments m = merak_channels_moments(&nm.q, i / C, c);
        float *term = nm.term + i / C * TERMS * C + c;

        if (running != NULL) {
            m.mean = (double)((const float *)running[0].data)[c];
            m.rstd = 1 / sqrt((double)((const float *)running[1].data)[c] +
                              nm.q.eps);
        }
        term[SHIFT * C] = (float)m.mean;
        term[FACTOR * C] = (float)(m.rstd * (double)gamma[c]);
    }
    merak_pool_run(norm_item, &nm, nm.q.B * nm.blocks);
    return MERAK_OK;
}

CPU_KERNEL(channel_norm)
{
    return norm(call, NULL, err);
}

CPU_SCRATCH(batch_norm)
{
    return norm_scratch(call);
}

CPU_KERNEL(batch_norm)
{
    return norm(call, call->step->train ? NULL : &call->operand[4], err);
}

CPU_KERNEL(batch_stats)
{
    struct merak_channels q = merak_channels_stats_view(call);
    float *mean = merak_call_out(call, 0)->data;
    float *variance = merak_call_out(call, 1)->data;
    enum merak_status rc = cpu_check_dtype(call, 1, true, err);

    for (size_t c = 0; rc == MERAK_OK && c < q.C; c++) {
        double m, v;

        merak_channels_stats(&q, c, &m, &v);
        mean[c] = (float)(m + (call->accumulate ? (double)mean[c] : 0));
        variance[c] = (float)(v + (call->accumulate ? (double)variance[c] : 0));
    }
    return rc;
}

CPU_SCRATCH(channel_norm_dx)
{
    return norm_scratch(call);
}

CPU_KERNEL(channel_norm_dx)
{
    struct norm nm = {.q = merak_channels_dx_view(call),
                      .dy = call->operand[0].data,
                      .x = call->operand[1].data};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);
    size_t C = nm.q.C;

    if (rc != MERAK_OK)
        return rc;
    divide(&nm, call);
    for (size_t i = 0; i < nm.q.B * C; i++) {
        size_t b = i / C, c = i % C;
        struct merak_moments m = merak_channels_moments(&nm.q, b, c);
        struct merak_slopes s = merak_channels_slopes(&nm.q, b, c, m);
        float *term = nm.term + b * TERMS * C + c;

        term[SHIFT * C] = (float)m.mean;
        term[FACTOR * C] = (float)(m.rstd * (double)nm.q.gamma[nm.q.first + c]);
        term[BY * C] = (float)s.by;
        term[LESS * C] = (float)s.less;
    }
    merak_pool_run(norm_item, &nm, nm.q.B * nm.blocks);
    return MERAK_OK;
}

CPU_KERNEL(channel_norm_dw)
{
    struct merak_channels q = merak_channels_dw_view(call);
    float *dgamma = merak_call_out(call, 0)->data;
    float *dbeta = merak_call_out(call, 1)->data;
    enum merak_status rc = cpu_check_dtype(call, 2, true, err);

    if (rc != MERAK_OK)
        return rc;
    for (size_t c = 0; c < q.C; c++) {
        struct merak_channels_dw dw = {0, 0};

        if (call->accumulate)
            dw = (struct merak_channels_dw){dgamma[c], dbeta[c]};
        dw = merak_channels_dw_add(&q, c, dw);
        dgamma[c] = (float)dw.gamma;
        dbeta[c] = (float)dw.beta;
    }
    return MERAK_OK;
}

/* --- beside one another ----------------------------------------------------
 */

/* Rows of n bytes, that are so far apart. */
struct copy {
    const char *from;
    char *to;
    size_t rows, n, from_row, to_row, grain;
};

static void copy_rows(void *arg, size_t item, int thread)
{
    const struct copy *c = arg;
    size_t end = cpu_range_end(item, c->grain, c->rows);

    (void)thread;
    for (size_t row = item * c->grain; row < end; row++)
        memcpy(c->to + row * c->to_row, c->from + row * c->from_row, c->n);
}

/* Channels [at, at + n) of the wide operand to or from all of the narrow one.
 */
static void copy_channels(const struct merak_operand *narrow,
                          const struct merak_operand *wide, size_t at,
                          bool widen)
{
    size_t elem = merak_dtype_bytes(narrow->dtype);
    size_t n = merak_local_last(narrow) * elem;
    size_t N = merak_local_last(wide) * elem;
    char *part = (char *)wide->data + at * elem, *all = narrow->data;
    struct copy c = {.from = widen ? all : part,
                     .to = widen ? part : all,
                     .rows = merak_local_bytes(narrow) / n,
                     .n = n,
                     .from_row = widen ? n : N,
                     .to_row = widen ? N : n};

    c.grain = 65536 / (n < 65536 ? n : 65536);
    merak_pool_run(copy_rows, &c, cpu_range_count(c.rows, c.grain));
}

CPU_KERNEL(concat)
{
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);
    size_t at = 0;

    for (int o = 0; rc == MERAK_OK && o < call->n_in; o++) {
        copy_channels(&call->operand[o], merak_call_out(call, 0), at, true);
        at += merak_local_last(&call->operand[o]);
    }
    return rc;
}

CPU_KERNEL(concat_dx)
{
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc == MERAK_OK)
        copy_channels(merak_call_out(call, 0), &call->operand[0],
                      (size_t)call->attrs->i[0], false);
    return rc;
}

/* Channels that all heads of a token share, in front of those of each. */
struct shared {
    const char *shared, *x;
    char *y;
    size_t tokens, heads, shared_row, x_row, grain; /* rows in bytes */
};

static void share_rows(void *arg, size_t item, int thread)
{
    const struct shared *s = arg;
    size_t end = cpu_range_end(item, s->grain, s->tokens) * s->heads;
    size_t row = s->shared_row + s->x_row;

    (void)thread;
    for (size_t i = item * s->grain * s->heads; i < end; i++) {
        memcpy(s->y + i * row, s->shared + i / s->heads * s->shared_row,
               s->shared_row);
        memcpy(s->y + i * row + s->shared_row, s->x + i * s->x_row, s->x_row);
    }
}

/* Tokens of about 64 KiB. */
static size_t tokens_at_once(size_t bytes)
{
    return bytes < 65536 ? 65536 / bytes : 1;
}

CPU_KERNEL(concat_shared)
{
    const struct merak_operand *in = call->operand;
    size_t elem = merak_dtype_bytes(in[0].dtype);
    struct shared s = {.shared = in[0].data,
                       .x = in[1].data,
                       .y = merak_call_out(call, 0)->data,
                       .tokens = merak_local_span(&in[1], 0, 2),
                       .heads = in[1].local.dim[2],
                       .shared_row = merak_local_last(&in[0]) * elem,
                       .x_row = merak_local_last(&in[1]) * elem};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    s.grain = tokens_at_once(s.heads * (s.shared_row + s.x_row));
    merak_pool_run(share_rows, &s, cpu_range_count(s.tokens, s.grain));
    return MERAK_OK;
}

/* Sums over heads of their first n channels, and copies of the others. */
struct head_sums {
    const void *dy;
    void *sum, *dx;
    size_t tokens, heads, n, N, grain;
    bool bf16;
};

static void sum_heads(void *arg, size_t item, int thread)
{
    const struct head_sums *s = arg;
    size_t end = cpu_range_end(item, s->grain, s->tokens);
    size_t elem = s->bf16 ? sizeof(uint16_t) : sizeof(float);
    size_t rest = (s->N - s->n) * elem;

    (void)thread;
    for (size_t t = item * s->grain; t < end; t++) {
        for (size_t c = 0; c < s->n; c += LANES) {
            vf sum = {0};

            for (size_t h = 0; h < s->heads; h++)
                sum += vload_n(s->dy, (t * s->heads + h) * s->N + c, s->n - c,
                               s->bf16);
            vstore_n(s->sum, t * s->n + c, s->n - c, sum, s->bf16);
        }
        for (size_t i = t * s->heads; i < (t + 1) * s->heads; i++)
            memcpy((char *)s->dx + i * rest,
                   (const char *)s->dy + (i * s->N + s->n) * elem, rest);
    }
}

CPU_KERNEL(concat_shared_dx)
{
    const struct merak_operand *dy = &call->operand[0];
    const struct merak_operand *out = merak_call_out(call, 0);
    struct head_sums s = {.dy = dy->data,
                          .sum = out->data,
                          .dx = merak_call_out(call, 1)->data,
                          .tokens = merak_local_span(dy, 0, 2),
                          .heads = dy->local.dim[2],
                          .n = merak_local_last(out),
                          .N = merak_local_last(dy),
                          .bf16 = dy->dtype == MERAK_BF16};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    s.grain = tokens_at_once(s.heads * s.N * sizeof(float));
    merak_pool_run(sum_heads, &s, cpu_range_count(s.tokens, s.grain));
    return MERAK_OK;
}
