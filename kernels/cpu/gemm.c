/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - matrix products on oneDNN, in tiles fixed by shape
 *
 * oneDNN measured faster than OpenBLAS in f32 and is the one with bf16
 * (bench/results/gemm.md).  The output is cut into a grid of tiles that
 * depends on m and n alone; k is never cut.  Our threads take tiles and each
 * calls oneDNN with one thread, so who computed a tile leaves no trace.
 *
 * f32 goes through dnnl_sgemm.  bf16 goes through matmul primitives where the
 * processor multiplies bf16; they are made once a tile shape and kept, with
 * their memory objects and scratchpads for every thread.  Elsewhere oneDNN has
 * no bf16, or an imitation slower than f32: there it goes through dnnl_sgemm,
 * too.
 *
 * Before dnnl_sgemm a tile's operands are copied where they are bf16 or lie so
 * that oneDNN is slow to read them, K_STEP of k at a time
 * so that the copies stay in the cache.
 */
#include "config.h"

#include "kernels/cpu/gemm.h"

#include "base/error.h"
#include "base/size.h"
#include "kernels/cpu/dnnl.h"
#include "kernels/cpu/thread_pool.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>

#define CACHE_MAX 512
#define TILE_MAX 1024  /* larger tiles gain nothing and cannot be shared */
#define TILES_WANTED 8 /* for threads to share */
#define TILE_MIN_M 128 /* below, packing the operands dominates */
#define TILE_MIN_N 256
#define TILE_ROUND 64
#define K_STEP 512    /* of k, where operands are copied */
#define COPY_MIN_M 32 /* fewer rows of a are not worth a copy of b */
#define PAGE 4096
#define LINE 64 /* bytes of a cache line */

/* What tells one primitive from another; compared as bytes, so made from
 * zero. */
struct tile_key {
    size_t m, n, k, lda, ldb, ldc;
    int trans_b, bf16_c, accumulate, bias;
};

/* A thread's memory objects of one primitive. */
struct slot {
    dnnl_memory_t memory[SLOT_COUNT];
};

struct tile {
    struct tile_key key;
    dnnl_primitive_t primitive;
    struct slot *slot; /* [threads] */
};

struct gemm_state {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int threads;
    bool has_bf16;
    size_t count, oldest;
    struct tile *tile[CACHE_MAX];
    char **scratch; /* [threads]: for oneDNN, then copies */
    size_t scratch_bytes;
    size_t dnnl_bytes; /* as large as any primitive's needs, 64-aligned */
};

/* Beside the pool: one set of primitives a process. */
static struct gemm_state gemm;

static enum merak_status fail_dnnl(struct merak_error *err, const char *what,
                                   dnnl_status_t status)
{
    return merak_fail(err,
                      status == dnnl_out_of_memory ? MERAK_ERR_NOMEM
                                                   : MERAK_ERR_UNSUPPORTED,
                      "oneDNN cannot %s: %s", what, dnnl_status2str(status));
}

/* --- primitives ---------------------------------------------------------- */

static void tile_destroy(struct tile *t)
{
    if (t == NULL)
        return;
    for (int i = 0; t->slot != NULL && i < gemm.threads; i++)
        for (int m = 0; m < SLOT_COUNT; m++)
            dnnl_memory_destroy(t->slot[i].memory[m]);
    dnnl_primitive_destroy(t->primitive);
    free(t->slot);
    free(t);
}

static dnnl_status_t describe(struct merak_dnnl_md *md, size_t rows,
                              size_t cols, dnnl_data_type_t type, size_t row,
                              size_t col)
{
    dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)cols};
    dnnl_dims_t strides = {(dnnl_dim_t)row, (dnnl_dim_t)col};

    return merak_dnnl_md_init(md, dims, type, strides);
}

static dnnl_status_t describe_all(const struct tile_key *k,
                                  struct merak_dnnl_md md[SLOT_COUNT])
{
    dnnl_data_type_t c = k->bf16_c ? dnnl_bf16 : dnnl_f32;
    dnnl_status_t rc;

    rc = describe(&md[SLOT_A], k->m, k->k, dnnl_bf16, k->lda, 1);
    if (rc == dnnl_success)
        rc = describe(&md[SLOT_B], k->k, k->n, dnnl_bf16,
                      k->trans_b ? 1 : k->ldb, k->trans_b ? k->ldb : 1);
    if (rc == dnnl_success)
        rc = describe(&md[SLOT_C], k->m, k->n, c, k->ldc, 1);
    if (rc == dnnl_success)
        rc = describe(&md[SLOT_BIAS], 1, k->n, dnnl_f32, k->n, 1);
    return rc;
}

static dnnl_status_t make_attr(const struct tile_key *k,
                               dnnl_primitive_attr_t *attr_p)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t rc;

    rc = dnnl_primitive_attr_create(attr_p);
    if (rc == dnnl_success)
        rc = dnnl_primitive_attr_set_scratchpad_mode(*attr_p,
                                                     dnnl_scratchpad_mode_user);
    if (rc != dnnl_success || !k->accumulate)
        return rc;
    rc = dnnl_post_ops_create(&ops);
    if (rc == dnnl_success)
        rc = merak_dnnl_append_sum(ops);
    if (rc == dnnl_success)
        rc = dnnl_primitive_attr_set_post_ops(*attr_p, ops);
    dnnl_post_ops_destroy(ops);
    return rc;
}

/* The primitive of a key, made as for one thread, and its scratchpad. */
static dnnl_status_t make_primitive(const struct tile_key *k,
                                    dnnl_primitive_t *primitive_p,
                                    struct merak_dnnl_md md[SLOT_COUNT])
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    int threads = omp_get_max_threads();
    dnnl_status_t rc;

    omp_set_num_threads(1);
    rc = describe_all(k, md);
    if (rc == dnnl_success)
        rc = make_attr(k, &attr);
    if (rc == dnnl_success)
        rc = merak_dnnl_matmul(&pd, gemm.engine, md, k->bias, attr);
    if (rc == dnnl_success)
        rc = dnnl_primitive_create(primitive_p, pd);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    omp_set_num_threads(threads);
    return rc;
}

static enum merak_status grow_scratch(size_t bytes, struct merak_error *err)
{
    if (bytes <= gemm.scratch_bytes)
        return MERAK_OK;
    bytes = (bytes + 4095) & ~(size_t)4095;
    for (int i = 0; i < gemm.threads; i++) {
        char *more = aligned_alloc(4096, bytes);

        if (more == NULL)
            return merak_fail_nomem(err, bytes);
        free(gemm.scratch[i]);
        gemm.scratch[i] = more;
    }
    gemm.scratch_bytes = bytes;
    return MERAK_OK;
}

static dnnl_status_t make_slots(struct tile *t,
                                const struct merak_dnnl_md md[SLOT_COUNT])
{
    for (int i = 0; i < gemm.threads; i++) {
        for (int m = 0; m < SLOT_COUNT; m++) {
            dnnl_status_t rc =
                merak_dnnl_memory(&t->slot[i].memory[m], &md[m], gemm.engine);

            if (rc != dnnl_success)
                return rc;
        }
    }
    return dnnl_success;
}

static enum merak_status tile_create(const struct tile_key *key,
                                     struct tile **tile_p,
                                     struct merak_error *err)
{
    struct merak_dnnl_md md[SLOT_COUNT] = {0};
    struct tile *t = calloc(1, sizeof(*t));
    enum merak_status rc = MERAK_OK;
    dnnl_status_t status;
    size_t bytes;

    if (t != NULL)
        t->slot = calloc((size_t)gemm.threads, sizeof(*t->slot));
    if (t == NULL || t->slot == NULL) {
        rc = merak_fail_nomem(err, sizeof(*t));
        goto out;
    }
    t->key = *key;
    status = make_primitive(key, &t->primitive, md);
    if (status == dnnl_success)
        status = make_slots(t, md);
    if (status != dnnl_success) {
        rc = fail_dnnl(err, "multiply bf16 matrices on this machine", status);
        goto out;
    }
    bytes = merak_size_align(merak_dnnl_md_bytes(&md[SLOT_SCRATCH]), 64);
    if (bytes > gemm.dnnl_bytes)
        gemm.dnnl_bytes = bytes;
    *tile_p = t;
    t = NULL;
out:
    for (int m = 0; m < SLOT_COUNT; m++)
        merak_dnnl_md_fini(&md[m]);
    tile_destroy(t);
    return rc;
}

static enum merak_status tile_find(const struct tile_key *key,
                                   struct tile **tile_p,
                                   struct merak_error *err)
{
    enum merak_status rc;
    struct tile *t = NULL;

    for (size_t i = 0; i < gemm.count; i++) {
        if (memcmp(&gemm.tile[i]->key, key, sizeof(*key)) == 0) {
            *tile_p = gemm.tile[i];
            return MERAK_OK;
        }
    }
    rc = tile_create(key, &t, err);
    if (rc != MERAK_OK)
        return rc;
    if (gemm.count < CACHE_MAX) {
        gemm.tile[gemm.count++] = t;
    } else {
        tile_destroy(gemm.tile[gemm.oldest]);
        gemm.tile[gemm.oldest] = t;
        gemm.oldest = (gemm.oldest + 1) % CACHE_MAX;
    }
    *tile_p = t;
    return MERAK_OK;
}

static void forget(void)
{
    for (size_t i = 0; i < gemm.count; i++)
        tile_destroy(gemm.tile[i]);
    for (int i = 0; gemm.scratch != NULL && i < gemm.threads; i++)
        free(gemm.scratch[i]);
    free(gemm.scratch);
    gemm.count = gemm.oldest = gemm.scratch_bytes = gemm.dnnl_bytes = 0;
    gemm.scratch = NULL;
    gemm.threads = 0;
}

void merak_gemm_narrow(const char *isa)
{
    static const struct {
        const char *name;
        dnnl_cpu_isa_t isa;
    } known[] = {{"base", dnnl_cpu_isa_sse41},
                 {"avx2", dnnl_cpu_isa_avx2},
                 {"avx512", dnnl_cpu_isa_avx512_core},
                 {"avx512_bf16", dnnl_cpu_isa_avx512_core_bf16}};

    for (size_t i = 0; isa != NULL && i < sizeof(known) / sizeof(*known); i++)
        if (strcmp(isa, known[i].name) == 0)
            dnnl_set_max_cpu_isa(known[i].isa);
}

bool merak_gemm_has_bf16(void)
{
    /* every set has the bits of those that it contains */
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
           dnnl_cpu_isa_avx512_core_bf16;
}

void merak_gemm_library(char *text, size_t bytes)
{
    const dnnl_version_t *v = dnnl_version();
    const char *isa = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());

    if (strncmp(isa, "cpu_isa_", 8) == 0)
        isa += 8;
    snprintf(text, bytes, "oneDNN %d.%d.%d (%s)", v->major, v->minor, v->patch,
             isa);
}

enum merak_status merak_gemm_open(struct merak_error *err)
{
    dnnl_status_t rc = dnnl_success;

    if (gemm.threads == merak_pool_threads())
        return MERAK_OK;
    forget();
    if (gemm.engine == NULL)
        rc = dnnl_engine_create(&gemm.engine, dnnl_cpu, 0);
    if (rc == dnnl_success && gemm.stream == NULL)
        rc = dnnl_stream_create(&gemm.stream, gemm.engine,
                                dnnl_stream_default_flags);
    if (rc != dnnl_success)
        return fail_dnnl(err, "open a CPU engine", rc);
    gemm.scratch = calloc((size_t)merak_pool_threads(), sizeof(*gemm.scratch));
    if (gemm.scratch == NULL)
        return merak_fail_nomem(err, sizeof(*gemm.scratch));
    gemm.has_bf16 = merak_gemm_has_bf16();
    gemm.threads = merak_pool_threads();
    return MERAK_OK;
}

/* --- tiles ---------------------------------------------------------------- */

/* An operand as oneDNN reads it. */
struct side {
    bool copied;  /* to the thread's scratch, k_step of k at a time */
    size_t pitch; /* elements between its rows */
    size_t rows;  /* of the copy */
    size_t at;    /* in the scratch, behind oneDNN's */
};

/* One product being computed: its grid, and the (at most four) primitives of
 * inner, right, lower and corner tiles. */
struct job {
    const struct merak_gemm *g;
    size_t tile_m, tile_n, rows, cols;
    bool native; /* bf16 by oneDNN, not as f32 */
    size_t k_step;
    struct side a, b;
    size_t wide_c_at; /* f32 of a tile of c that is bf16 */
    size_t scratch_bytes;
    struct tile *edge[2][2];
    _Atomic int failed; /* a dnnl_status_t */
};

static size_t halve(size_t n)
{
    return ((n + 1) / 2 + TILE_ROUND - 1) / TILE_ROUND * TILE_ROUND;
}

/* Halve the longer side of the tile until there are enough of them; rows
 * first where a's tiles are turned, once for every column of tiles. */
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
    struct tile_key key;
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
        rc = tile_find(&key, &job->edge[i / 2][i % 2], err);
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

/* Of an element of a and b. */
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

/* [rows, cols] of a matrix, as f32. */
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

/* The tile's rows of a, k0 .. k0 + depth - 1 of k. */
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
    char *scratch = gemm.scratch[thread];
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

/* With a primitive; a that is transposed has been turned. */
static dnnl_status_t run_primitive(const struct tile *t, int thread,
                                   const struct tile_place *p)
{
    static const int id[SLOT_COUNT] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS,
                                       DNNL_ARG_DST, DNNL_ARG_BIAS,
                                       DNNL_ARG_SCRATCHPAD};
    const void *data[SLOT_COUNT] = {p->a, p->b, p->c, p->bias,
                                    gemm.scratch[thread]};
    dnnl_exec_arg_t arg[SLOT_COUNT];
    int n = 0;

    for (int m = 0; m < SLOT_COUNT; m++) {
        dnnl_status_t rc;

        if (data[m] == NULL)
            continue;
        rc = dnnl_memory_set_data_handle(t->slot[thread].memory[m],
                                         (void *)(uintptr_t)data[m]);
        if (rc != dnnl_success)
            return rc;
        arg[n++] = (dnnl_exec_arg_t){id[m], t->slot[thread].memory[m]};
    }
    return dnnl_primitive_execute(t->primitive, gemm.stream, n, arg);
}

static dnnl_status_t multiply_bf16(const struct job *job, size_t row,
                                   size_t col, struct tile_place *p, int thread)
{
    const struct merak_gemm *g = job->g;
    void *turned = gemm.scratch[thread] + job->a.at;

    if (g->trans_a) {
        g->moves->transpose((const uint16_t *)p->a, g->m, g->k, p->m, turned,
                            job->a.pitch);
        p->a = turned;
    }
    return run_primitive(job->edge[row + 1 == job->rows][col + 1 == job->cols],
                         thread, p);
}

static void multiply_tile(void *arg, size_t item, int thread)
{
    struct job *job = arg;
    size_t row = item / job->cols, col = item % job->cols;
    struct tile_place p = place(job, row, col);
    dnnl_status_t rc;

    /* oneDNN asks the OpenMP runtime, where this is a thread's own setting */
    omp_set_num_threads(1);
    if (job->native)
        rc = multiply_bf16(job, row, col, &p, thread);
    else
        rc = multiply_f32(job, &p, thread);
    if (rc != dnnl_success)
        job->failed = (int)rc;
}

/* Elements between rows of `k` that are copied: an odd number of cache lines,
 * which spreads columns over all sets of a cache.  Where k is a power of two
 * they would share a few, and products take a fifth longer. */
static size_t spread_pitch(size_t k, size_t bytes)
{
    size_t lines = (k * bytes + LINE - 1) / LINE;

    return (lines | 1) * LINE / bytes;
}

/* Rows of n f32 are a multiple of a page apart: all of a column is in the same
 * sets of the first cache, and oneDNN's packing of it misses each time. */
static bool shares_sets(size_t n)
{
    return n * sizeof(float) % PAGE == 0;
}

/* Of bf16 that oneDNN multiplies itself: a may be turned, all of k. */
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

/* Where a thread keeps what of a tile is copied. */
static void place_scratch(struct job *job)
{
    size_t bytes = job->native ? 2 : sizeof(float);
    size_t end = gemm.dnnl_bytes;

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
    struct job job = {.g = g, .native = g->bf16_ab && gemm.has_bf16};
    enum merak_status rc = MERAK_OK;
    int threads;

    if (gemm.threads == 0)
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
    /* for every thread, from the first call of the largest shape on */
    rc = grow_scratch(job.scratch_bytes, err);
    if (rc != MERAK_OK)
        return rc;
    threads = omp_get_max_threads();
    merak_pool_run(multiply_tile, &job, job.rows * job.cols);
    omp_set_num_threads(threads);
    if (job.failed != 0)
        return fail_dnnl(err, "multiply", (dnnl_status_t)job.failed);
    return MERAK_OK;
}
