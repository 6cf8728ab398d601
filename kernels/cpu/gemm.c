/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - matrix products on oneDNN, in tiles fixed by shape
 *
 * In measurements oneDNN is faster than OpenBLAS in f32, and it has bf16
 * (bench/results/gemm.md).  The output is cut into a grid of tiles that
 * depends on m and n alone; k is never cut.  Threads of the pool take tiles and
 * each calls oneDNN with one thread, so results do not depend on which thread
 * computed a tile.
 *
 * f32 uses dnnl_sgemm.  bf16 uses matmul primitives (gemm_primitive.c) if the
 * processor multiplies bf16.  Otherwise oneDNN has no bf16, or an emulation
 * slower than f32, so that bf16 also uses dnnl_sgemm.
 *
 * Before dnnl_sgemm a tile's operands are copied if they are bf16 or in a
 * layout that oneDNN reads slowly, K_STEP of k at a time so that the copies
 * stay in the cache.
 */
#include "config.h"

#include "kernels/cpu/gemm.h"

#include "base/error.h"
#include "base/size.h"
#include "kernels/cpu/gemm_primitive.h"
#include "kernels/cpu/thread_pool.h"

#include <string.h>

#include <omp.h>

#define TILE_MAX 1024  /* larger tiles gain nothing and cannot be shared */
#define TILES_WANTED 8 /* for threads to share */
#define TILE_MIN_M 128 /* below, packing the operands dominates */
#define TILE_MIN_N 256
#define TILE_ROUND 64
#define K_STEP 512    /* of k, if operands are copied */
#define COPY_MIN_M 32 /* with fewer rows of a, copying b does not pay */
#define PAGE 4096
#define LINE 64 /* bytes of a cache line */

/* --- tiles ---------------------------------------------------------------- */

/* An operand as oneDNN reads it. */
struct side {
    bool copied;  /* to the thread's scratch, k_step of k at a time */
    size_t pitch; /* elements between its rows */
    size_t rows;  /* of the copy */
    size_t at;    /* offset in the scratch, after oneDNN's part */
};

/* One product being computed: its grid, and the (at most four) primitives of
 * inner, right, lower and corner tiles. */
struct job {
    const struct merak_gemm *g;
    size_t tile_m, tile_n, rows, cols;
    bool native; /* oneDNN multiplies bf16, not as f32 */
    size_t k_step;
    struct side a, b;
    size_t wide_c_at; /* offset of an f32 tile of c, if c is bf16 */
    size_t scratch_bytes;
    struct merak_gemm_primitive *edge[2][2];
    _Atomic int failed; /* a dnnl_status_t */
};

static size_t halve(size_t n)
{
    return ((n + 1) / 2 + TILE_ROUND - 1) / TILE_ROUND * TILE_ROUND;
}

/* Halve the longer side of the tile until there are enough tiles; rows first if
 * tiles of a are transposed, which happens once for every column of tiles. */
static void cut_grid(struct job *job)
{
    size_t m = job->g->m, n = job->g->n;

    job->tile_m = m;
    job->tile_n = n;
    for (;;) {
        bool large = job->tile_m > TILE_MAX || job->tile_n > TILE_MAX;
        bool wide = job->tile_n >= 2 * TILE_MIN_N;
        bool tall = job->tile_m >= 2 * TILE_MIN_M;

        job->rows = (m + job->tile_m - 1) / job->tile_m;
        job->cols = (n + job->tile_n - 1) / job->tile_n;
        if ((!large && job->rows * job->cols >= TILES_WANTED) ||
            (!wide && !tall))
            return;
        if (wide && (!tall || job->tile_n > TILE_MAX ||
                     (!job->g->trans_a && job->tile_n >= job->tile_m)))
            job->tile_n = halve(job->tile_n);
        else
            job->tile_m = halve(job->tile_m);
    }
}

static size_t extent(size_t i, size_t tile, size_t n)
{
    return n - i * tile < tile ? n - i * tile : tile;
}

static enum merak_status find_tiles(struct job *job, struct merak_error *err)
{
    const struct merak_gemm *g = job->g;
    struct merak_gemm_key key;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < 4 && rc == MERAK_OK; i++) {
        size_t row = i / 2 ? job->rows - 1 : 0;
        size_t col = i % 2 ? job->cols - 1 : 0;

        memset(&key, 0, sizeof(key));
        key.m = extent(row, job->tile_m, g->m);
        key.n = extent(col, job->tile_n, g->n);
        key.k = g->k;
        key.lda = job->a.pitch;
        key.ldb = job->b.pitch;
        key.ldc = g->n;
        key.trans_b = g->trans_b;
        key.bf16_c = g->bf16_c;
        key.accumulate = g->accumulate;
        key.bias = g->bias != NULL;
        rc = merak_gemm_primitive_find(&key, &job->edge[i / 2][i % 2], err);
    }
    return rc;
}

/* Where tile (row, col) of an operand begins. */
struct tile_place {
    size_t m, n;
    const char *a, *b;
    char *c;
    const float *bias;
};

/* Bytes of an element of a and b. */
static size_t input_bytes(const struct merak_gemm *g)
{
    return g->bf16_ab ? 2 : 4;
}

static struct tile_place place(const struct job *job, size_t row, size_t col)
{
    const struct merak_gemm *g = job->g;
    size_t m0 = row * job->tile_m, n0 = col * job->tile_n;
    size_t in = input_bytes(g), out = g->bf16_c ? 2 : 4;

    return (struct tile_place){
        .m = extent(row, job->tile_m, g->m),
        .n = extent(col, job->tile_n, g->n),
        .a = (const char *)g->a + in * m0 * (g->trans_a ? 1 : g->k),
        .b = (const char *)g->b + in * n0 * (g->trans_b ? g->k : 1),
        .c = (char *)g->c + out * (m0 * g->n + n0),
        .bias = g->bias != NULL ? g->bias + n0 : NULL,
    };
}

/* Copy [rows, cols] of a matrix as f32. */
static void copy(const struct merak_gemm *g, const char *from, size_t pitch,
                 size_t rows, size_t cols, float *to, size_t to_pitch)
{
    if (g->bf16_ab) {
        g->moves->widen((const uint16_t *)from, pitch, rows, cols, to,
                        to_pitch);
        return;
    }
    for (size_t i = 0; i < rows; i++, from += pitch * sizeof(*to))
        memcpy(to + i * to_pitch, from, cols * sizeof(*to));
}

/* The tile's rows of a, for k0 .. k0 + depth - 1 of k. */
static const float *take_a(const struct job *job, const struct tile_place *p,
                           size_t k0, size_t depth, char *scratch)
{
    const struct merak_gemm *g = job->g;
    const char *from = p->a + k0 * input_bytes(g) * (g->trans_a ? g->m : 1);
    float *to = (float *)(scratch + job->a.at);

    if (!job->a.copied)
        return (const float *)from;
    if (g->trans_a)
        copy(g, from, g->m, depth, p->m, to, job->a.pitch);
    else
        copy(g, from, g->k, p->m, depth, to, job->a.pitch);
    return to;
}

/* The tile's columns of b. */
static const float *take_b(const struct job *job, const struct tile_place *p,
                           size_t k0, size_t depth, char *scratch)
{
    const struct merak_gemm *g = job->g;
    const char *from = p->b + k0 * input_bytes(g) * (g->trans_b ? 1 : g->n);
    float *to = (float *)(scratch + job->b.at);

    if (!job->b.copied)
        return (const float *)from;
    if (g->trans_b)
        copy(g, from, g->k, p->n, depth, to, job->b.pitch);
    else
        copy(g, from, g->n, depth, p->n, to, job->b.pitch);
    return to;
}

static dnnl_status_t multiply_f32(const struct job *job,
                                  const struct tile_place *p, int thread)
{
    const struct merak_gemm *g = job->g;
    char *scratch = merak_gemm_scratch(thread);
    float *c = g->bf16_c ? (float *)(scratch + job->wide_c_at) : (float *)p->c;
    size_t ldc = g->bf16_c ? job->tile_n : g->n;
    float beta = g->accumulate || p->bias != NULL ? 1.0f : 0.0f;

    if (g->bf16_c && g->accumulate)
        g->moves->widen((const uint16_t *)p->c, g->n, p->m, p->n, c, ldc);
    for (size_t i = 0; p->bias != NULL && i < p->m; i++)
        memcpy(c + i * ldc, p->bias, p->n * sizeof(*c));
    for (size_t k0 = 0; k0 < g->k; k0 += job->k_step, beta = 1.0f) {
        size_t depth = g->k - k0 < job->k_step ? g->k - k0 : job->k_step;
        const float *a = take_a(job, p, k0, depth, scratch);
        const float *b = take_b(job, p, k0, depth, scratch);
        dnnl_status_t rc;

        rc = dnnl_sgemm(g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N',
                        (dnnl_dim_t)p->m, (dnnl_dim_t)p->n, (dnnl_dim_t)depth,
                        1.0f, a, (dnnl_dim_t)job->a.pitch, b,
                        (dnnl_dim_t)job->b.pitch, beta, c, (dnnl_dim_t)ldc);
        if (rc != dnnl_success)
            return rc;
    }
    if (g->bf16_c)
        g->moves->narrow(c, ldc, p->m, p->n, (uint16_t *)p->c, g->n);
    return dnnl_success;
}

static dnnl_status_t multiply_bf16(const struct job *job, size_t row,
                                   size_t col, struct tile_place *p, int thread)
{
    const struct merak_gemm *g = job->g;
    void *turned = merak_gemm_scratch(thread) + job->a.at;

    if (g->trans_a) {
        g->moves->transpose((const uint16_t *)p->a, g->m, g->k, p->m, turned,
                            job->a.pitch);
        p->a = turned;
    }
    return merak_gemm_primitive_run(
        job->edge[row + 1 == job->rows][col + 1 == job->cols], thread, p->a,
        p->b, p->c, p->bias);
}

static void multiply_tile(void *arg, size_t item, int thread)
{
    struct job *job = arg;
    size_t row = item / job->cols, col = item % job->cols;
    struct tile_place p = place(job, row, col);
    dnnl_status_t rc;

    /* oneDNN uses the OpenMP runtime's setting, which is per thread */
    omp_set_num_threads(1);
    if (job->native)
        rc = multiply_bf16(job, row, col, &p, thread);
    else
        rc = multiply_f32(job, &p, thread);
    if (rc != dnnl_success)
        job->failed = (int)rc;
}

/* Elements between copied rows of `k`: an odd number of cache lines, which
 * spreads columns over all sets of a cache.  With a power of two they would
 * share a few sets, and products would take a fifth longer. */
static size_t spread_pitch(size_t k, size_t bytes)
{
    size_t lines = (k * bytes + LINE - 1) / LINE;

    return (lines | 1) * LINE / bytes;
}

/* Are rows of n f32 a multiple of a page apart?  All of a column is then in the
 * same sets of the L1 cache, and oneDNN's packing of it misses each time. */
static bool shares_sets(size_t n)
{
    return n * sizeof(float) % PAGE == 0;
}

/* Operands if oneDNN multiplies bf16: a may be transposed, for all of k. */
static void find_native_sides(struct job *job)
{
    const struct merak_gemm *g = job->g;

    job->k_step = g->k;
    job->a.copied = g->trans_a;
    job->a.pitch = g->trans_a ? spread_pitch(g->k, 2) : g->k;
    job->a.rows = job->tile_m;
    job->b.pitch = g->trans_b ? g->k : g->n;
}

static void find_side(struct side *side, bool copied, size_t row, size_t rows,
                      size_t cols)
{
    side->copied = copied;
    side->rows = rows;
    side->pitch = copied ? spread_pitch(cols, sizeof(float)) : row;
}

static void find_sides(struct job *job)
{
    const struct merak_gemm *g = job->g;
    size_t a_row = g->trans_a ? g->m : g->k, b_row = g->trans_b ? g->k : g->n;
    bool copy_a = g->bf16_ab || g->trans_a || shares_sets(a_row);
    bool copy_b = g->bf16_ab || (g->m >= COPY_MIN_M && shares_sets(b_row));
    size_t step = copy_a || copy_b ? K_STEP : g->k;

    job->k_step = step = step < g->k ? step : g->k;
    if (g->trans_a)
        find_side(&job->a, copy_a, a_row, step, job->tile_m);
    else
        find_side(&job->a, copy_a, a_row, job->tile_m, step);
    if (g->trans_b)
        find_side(&job->b, copy_b, b_row, job->tile_n, step);
    else
        find_side(&job->b, copy_b, b_row, step, job->tile_n);
}

/* Lay out a thread's copies of a tile in its scratch. */
static void place_scratch(struct job *job)
{
    size_t bytes = job->native ? 2 : sizeof(float);
    size_t end = merak_gemm_dnnl_bytes();

    job->a.at = end;
    if (job->a.copied)
        end += job->a.rows * job->a.pitch * bytes;
    job->b.at = end = merak_size_align(end, LINE);
    if (job->b.copied)
        end += job->b.rows * job->b.pitch * bytes;
    job->wide_c_at = end = merak_size_align(end, LINE);
    if (!job->native && job->g->bf16_c)
        end += job->tile_m * job->tile_n * sizeof(float);
    job->scratch_bytes = end;
}

enum merak_status merak_gemm(const struct merak_gemm *g,
                             struct merak_error *err)
{
    struct job job = {.g = g, .native = g->bf16_ab && merak_gemm_is_native()};
    enum merak_status rc = MERAK_OK;
    int threads;

    if (!merak_gemm_is_open())
        return merak_fail(err, MERAK_ERR_PARAM,
                          "the cpu backend has not been opened");
    cut_grid(&job);
    if (job.native)
        find_native_sides(&job);
    else
        find_sides(&job);
    if (job.native)
        rc = find_tiles(&job, err);
    if (rc != MERAK_OK)
        return rc;
    place_scratch(&job);
    /* for every thread; grows until the largest shape was called once */
    rc = merak_gemm_scratch_grow(job.scratch_bytes, err);
    if (rc != MERAK_OK)
        return rc;
    threads = omp_get_max_threads();
    merak_pool_run(multiply_tile, &job, job.rows * job.cols);
    omp_set_num_threads(threads);
    if (job.failed != 0)
        return merak_gemm_fail(err, "multiply", (dnnl_status_t)job.failed);
    return MERAK_OK;
}
