/* SPDX-License-Identifier: Apache-2.0 */
/* bench_gemm.c - which BLAS, and which tiles, are fastest on this CPU
 *
 * Measures the three products of a linear layer (F: y = x w', B: dx = dy w,
 * W: dw += dy' x) at GPT-2 124M's shapes for OpenBLAS's sgemm, oneDNN's
 * sgemm and oneDNN's matmul primitives in f32 and bf16, each called
 * single-threaded on tiles of the output that OpenMP threads take, much as
 * the cpu backend calls them.  The grid of tiles is the backend's, for 1
 * (the whole product in one call, by the library's own threads), 2, 4, 8 and
 * 16 tiles wanted.
 *
 * Reports GFLOP/s a thread, by CPU time, the best of several rounds that go
 * through all grids in turn: on a shared machine what is ours.
 *
 * usage: gemm [threads [rows [rounds]]]
 * OPENBLAS_CORETYPE chooses OpenBLAS's kernels (SkylakeX where AVX-512 is).
 */
#include "config.h"

#include "kernels/cpu/dnnl.h"

#include <dlfcn.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TILE_MAX 1024
#define GRIDS 5

typedef void (*cblas_sgemm_fn)(int order, int ta, int tb, int m, int n, int k,
                               float alpha, const float *a, int lda,
                               const float *b, int ldb, float beta, float *c,
                               int ldc);
static cblas_sgemm_fn cblas_sgemm;
static void (*openblas_threads)(int n);

/* c[m, n] (+)= op(a) op(b), row-major. */
struct product {
    size_t m, n, k;
    int ta, tb, accumulate;
    size_t tile_m, tile_n;
};

struct engine {
    const char *name;
    int bf16;
    int (*prepare)(const struct product *p, int bf16);
    void (*tile)(const struct product *p, const char *a, const char *b, char *c,
                 size_t m, size_t n);
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static size_t lda(const struct product *p)
{
    return p->ta ? p->m : p->k;
}

static size_t ldb(const struct product *p)
{
    return p->tb ? p->k : p->n;
}

static void openblas_tile(const struct product *p, const char *a, const char *b,
                          char *c, size_t m, size_t n)
{
    enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

    cblas_sgemm(ROW_MAJOR, p->ta ? TRANSPOSED : PLAIN,
                p->tb ? TRANSPOSED : PLAIN, (int)m, (int)n, (int)p->k, 1.0f,
                (const float *)a, (int)lda(p), (const float *)b, (int)ldb(p),
                p->accumulate ? 1.0f : 0.0f, (float *)c, (int)p->n);
}

static void sgemm_tile(const struct product *p, const char *a, const char *b,
                       char *c, size_t m, size_t n)
{
    dnnl_sgemm(p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', (dnnl_dim_t)m,
               (dnnl_dim_t)n, (dnnl_dim_t)p->k, 1.0f, (const float *)a,
               (dnnl_dim_t)lda(p), (const float *)b, (dnnl_dim_t)ldb(p),
               p->accumulate ? 1.0f : 0.0f, (float *)c, (dnnl_dim_t)p->n);
}

/* At most four tile shapes: inner, right edge, bottom edge, corner. */
struct primitive {
    size_t m, n;
    dnnl_primitive_t prim;
    struct merak_dnnl_md md[SLOT_COUNT];
};
static struct primitive cache[4];
static dnnl_engine_t cpu;
static dnnl_stream_t stream;

static void matrix(struct merak_dnnl_md *md, size_t rows, size_t cols, int bf16,
                   size_t row_stride, size_t col_stride)
{
    dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)cols};
    dnnl_dims_t strides = {(dnnl_dim_t)row_stride, (dnnl_dim_t)col_stride};

    merak_dnnl_md_init(md, dims, bf16 ? dnnl_bf16 : dnnl_f32, strides);
}

static int build(struct primitive *q, const struct product *p, int bf16)
{
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;
    dnnl_primitive_desc_t pd = NULL;
    const char *impl = "";

    matrix(&q->md[SLOT_A], q->m, p->k, bf16, p->ta ? 1 : lda(p),
           p->ta ? lda(p) : 1);
    matrix(&q->md[SLOT_B], p->k, q->n, bf16, p->tb ? 1 : ldb(p),
           p->tb ? ldb(p) : 1);
    matrix(&q->md[SLOT_C], q->m, q->n, bf16 && !p->accumulate, p->n, 1);
    dnnl_primitive_attr_create(&attr);
    dnnl_post_ops_create(&ops);
    if (p->accumulate)
        merak_dnnl_append_sum(ops);
    dnnl_primitive_attr_set_post_ops(attr, ops);
    if (merak_dnnl_matmul(&pd, cpu, q->md, 0, attr) != 0)
        return 0;
    dnnl_primitive_create(&q->prim, pd);
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &impl);
    if (getenv("GEMM_VERBOSE") != NULL)
        printf("# %zux%zux%zu %s\n", q->m, q->n, p->k, impl);
    dnnl_primitive_desc_destroy(pd);
    dnnl_post_ops_destroy(ops);
    dnnl_primitive_attr_destroy(attr);
    return 1;
}

static int matmul_prepare(const struct product *p, int bf16)
{
    size_t ms[2] = {p->tile_m, p->m % p->tile_m};
    size_t ns[2] = {p->tile_n, p->n % p->tile_n};

    for (int i = 0; i < 4; i++) {
        struct primitive *q = &cache[i];

        if (q->prim != NULL)
            dnnl_primitive_destroy(q->prim);
        for (int k = 0; k < SLOT_COUNT; k++)
            merak_dnnl_md_fini(&q->md[k]);
        *q = (struct primitive){.m = ms[i / 2], .n = ns[i % 2]};
        if (q->m > 0 && q->n > 0 && !build(q, p, bf16))
            return 0;
    }
    return 1;
}

static void matmul_tile(const struct product *p, const char *a, const char *b,
                        char *c, size_t m, size_t n)
{
    struct primitive *q = cache;
    dnnl_memory_t ma, mb, mc;

    (void)p;
    while (q->m != m || q->n != n)
        q++;
    merak_dnnl_memory(&ma, &q->md[SLOT_A], cpu);
    merak_dnnl_memory(&mb, &q->md[SLOT_B], cpu);
    merak_dnnl_memory(&mc, &q->md[SLOT_C], cpu);
    dnnl_memory_set_data_handle(ma, (void *)(uintptr_t)a);
    dnnl_memory_set_data_handle(mb, (void *)(uintptr_t)b);
    dnnl_memory_set_data_handle(mc, c);
    dnnl_exec_arg_t arg[3] = {
        {DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, mc}};
    dnnl_primitive_execute(q->prim, stream, 3, arg);
    dnnl_memory_destroy(ma);
    dnnl_memory_destroy(mb);
    dnnl_memory_destroy(mc);
}

static int no_prepare(const struct product *p, int bf16)
{
    (void)p;
    (void)bf16;
    return 1;
}

static void multiply(const struct engine *e, const struct product *p,
                     const char *a, const char *b, char *c, int threads)
{
    size_t rows = (p->m + p->tile_m - 1) / p->tile_m;
    size_t cols = (p->n + p->tile_n - 1) / p->tile_n;
    size_t in = e->bf16 ? 2 : 4, out = e->bf16 && !p->accumulate ? 2 : 4;

    if (rows * cols == 1) {
        e->tile(p, a, b, c, p->m, p->n);
        return;
    }
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (size_t i = 0; i < rows * cols; i++) {
        size_t m0 = i / cols * p->tile_m, n0 = i % cols * p->tile_n;
        size_t m = p->m - m0 < p->tile_m ? p->m - m0 : p->tile_m;
        size_t n = p->n - n0 < p->tile_n ? p->n - n0 : p->tile_n;

        e->tile(p, a + in * m0 * (p->ta ? 1 : p->k),
                b + in * n0 * (p->tb ? p->k : 1), c + out * (m0 * p->n + n0), m,
                n);
    }
}

static double seconds(const struct engine *e, const struct product *p,
                      const char *a, const char *b, char *c, int threads)
{
    double start = now();

    multiply(e, p, a, b, c, threads);
    return (now() - start) / threads;
}

static const struct engine engines[] = {
    {"openblas sgemm", 0, no_prepare, openblas_tile},
    {"onednn sgemm", 0, no_prepare, sgemm_tile},
    {"onednn matmul f32", 0, matmul_prepare, matmul_tile},
    {"onednn matmul bf16", 1, matmul_prepare, matmul_tile},
};

static size_t halve(size_t n)
{
    return ((n + 1) / 2 + 63) / 64 * 64;
}

/* As kernels/cpu/gemm.c does. */
static void cut_grid(struct product *p, size_t wanted)
{
    size_t count;

    p->tile_m = p->m;
    p->tile_n = p->n;
    for (;;) {
        int large = p->tile_m > TILE_MAX || p->tile_n > TILE_MAX;
        int wide = p->tile_n >= 512, tall = p->tile_m >= 256;

        count = (p->m + p->tile_m - 1) / p->tile_m *
                ((p->n + p->tile_n - 1) / p->tile_n);
        if (wanted == 1 || (!large && count >= wanted) || (!wide && !tall))
            return;
        if (wide && (!tall || p->tile_n >= p->tile_m))
            p->tile_n = halve(p->tile_n);
        else
            p->tile_m = halve(p->tile_m);
    }
}

/* One engine on one product: best GFLOP/s a thread of each grid. */
static void measure(const struct engine *e, struct product p, const char *a,
                    const char *b, char *c, int threads, int rounds)
{
    double best[GRIDS];

    for (int g = 0; g < GRIDS; g++)
        best[g] = 1e30;
    for (int round = 0; round < rounds; round++) {
        for (int g = 0; g < GRIDS; g++) {
            double t;

            cut_grid(&p, (size_t)1 << g);
            omp_set_num_threads(g == 0 ? threads : 1);
            if (openblas_threads != NULL)
                openblas_threads(g == 0 ? threads : 1);
            if (!e->prepare(&p, e->bf16))
                continue;
            t = seconds(e, &p, a, b, c, threads);
            best[g] = t < best[g] ? t : best[g];
        }
    }
    for (int g = 0; g < GRIDS; g++)
        printf(" %6.0f", 2e-9 * (double)p.m * (double)p.n * (double)p.k /
                             threads / best[g]);
    printf("\n");
    fflush(stdout);
}

static void report(const char *name, struct product p, int threads, int rounds)
{
    size_t elements = p.m * p.k + p.k * p.n + p.m * p.n;
    float *data = calloc(elements, sizeof(float));
    char *a = (char *)data, *b = (char *)(data + p.m * p.k);
    char *c = (char *)(data + p.m * p.k + p.k * p.n);

    if (data == NULL)
        return;
    for (size_t i = 0; i < elements - p.m * p.n; i++)
        data[i] = 1.0f / (float)(i % 97 + 1);
    for (size_t e = 0; e < sizeof(engines) / sizeof(*engines); e++) {
        if (engines[e].tile == openblas_tile && cblas_sgemm == NULL)
            continue;
        printf("%-21s %-18s", name, engines[e].name);
        measure(&engines[e], p, a, b, c, threads, rounds);
    }
    free(data);
}

static void open_libraries(void)
{
    void *blas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);

    if (blas != NULL) {
        *(void **)&cblas_sgemm = dlsym(blas, "cblas_sgemm");
        *(void **)&openblas_threads = dlsym(blas, "openblas_set_num_threads");
        char *(*core)(void);
        *(void **)&core = dlsym(blas, "openblas_get_corename");
        printf("# openblas core type %s\n", core());
    }
    printf("# onednn isa %#x\n", (unsigned)dnnl_get_effective_cpu_isa());
    dnnl_engine_create(&cpu, dnnl_cpu, 0);
    dnnl_stream_create(&stream, cpu, dnnl_stream_default_flags);
}

int main(int argc, char **argv)
{
    static const size_t shapes[][2] = {
        {768, 768}, {768, 2304}, {768, 3072}, {3072, 768}, {768, 50257}};
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    size_t M = argc > 2 ? (size_t)atoi(argv[2]) : 1024;
    int rounds = argc > 3 ? atoi(argv[3]) : 7;

    open_libraries();
    printf("# threads %d; GFLOP/s a thread\n%-21s %-18s      1      2      4 "
           "     8     16 tiles\n",
           threads, "# product", "");
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
        size_t in = shapes[s][0], out = shapes[s][1];
        char name[3][32];

        snprintf(name[0], 32, "F %zux%zu->%zu", M, in, out);
        snprintf(name[1], 32, "B %zux%zu->%zu", M, out, in);
        snprintf(name[2], 32, "W %zux%zu->%zu", M, in, out);
        report(name[0], (struct product){M, out, in, 0, 1, 0, 0, 0}, threads,
               rounds);
        report(name[1], (struct product){M, in, out, 0, 0, 0, 0, 0}, threads,
               rounds);
        report(name[2], (struct product){out, in, M, 1, 0, 1, 0, 0}, threads,
               rounds);
    }
    return 0;
}
