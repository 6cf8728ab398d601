/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels_fused.c - calls that one CUDA kernel computes, run by its body
 * on the host, against single calls: the same bits in every shape
 */
#include "config.h"

#include "unit/all_rows.h"
#include "unit/near.h"

#include "unit/kernels/cuda_case.h"
#include "unit/kernels/cuda_host.h"
#include "unit/small_plans.h"

#include "base/half.h"
#include "kernels/geometry.h"

#include <stdlib.h>
#include <string.h>

#define BUFFERS 20
#define GUARD 64

/* Some calls on buffers, which are found by their numbers. */
struct group {
    int n;
    const struct merak_kernel *kernel[MERAK_FUSED_MAX];
    struct merak_kernel_call call[MERAK_FUSED_MAX];
    struct merak_attrs attrs[MERAK_FUSED_MAX];
    unsigned unread[MERAK_FUSED_MAX];
    unsigned char *buffer[BUFFERS];
    size_t bytes[BUFFERS];
    int buffers;
};

static const struct merak_step step = {.train = true};

/* --- groups -----------------------------------------------------------------
 */

static float number(size_t i, int key)
{
    uint64_t h =
        (i * 6364136223846793005u + (uint64_t)key * 977) * 1442695040888963407u;

    return (float)(h >> 40 & 0xffff) / 16384.0f - 2.0f;
}

/* A buffer of `n` elements; rows of V ids for i32. */
static int add_buffer(struct group *g, enum merak_dtype dtype, size_t n,
                      size_t vocab)
{
    size_t bytes = n * merak_dtype_bytes(dtype);
    int b = g->buffers++;
    unsigned char *p = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);

    memset(p, 0x5a, bytes + GUARD);
    for (size_t i = 0; i < n; i++) {
        float x = number(i, b);

        if (dtype == MERAK_F32)
            ((float *)p)[i] = x;
        else if (dtype == MERAK_BF16)
            ((uint16_t *)p)[i] = merak_f32_to_bf16(x);
        else if (dtype == MERAK_I32)
            ((int32_t *)p)[i] =
                i % 5 == 4 ? MERAK_NO_TARGET : (int32_t)(i * 7919 % vocab);
    }
    g->buffer[b] = p;
    g->bytes[b] = bytes;
    return b;
}

static void add_operand(struct merak_kernel_call *call, int i,
                        const struct group *g, int buffer,
                        enum merak_dtype dtype, int ndim, size_t rows, size_t C)
{
    const struct merak_shape shape = {
        ndim, {ndim == 1 ? rows : 1, ndim == 1 ? 1 : rows, C}};
    /* [rows], or [1, rows, C] */
    call->operand[i] = (struct merak_operand){.data = g->buffer[buffer],
                                              .dtype = dtype,
                                              .local = shape,
                                              .full = shape};
}

static struct merak_kernel_call *add_call(struct group *g, const char *op,
                                          int n_in, int n_out)
{
    int i = g->n++;

    assert_int_equal(merak_kernel_find(&cuda_host, op, &g->kernel[i], NULL),
                     MERAK_OK);
    g->call[i] =
        (struct merak_kernel_call){.attrs = &g->attrs[i],
                                   .n_in = n_in,
                                   .n_out = n_out,
                                   .first = true,
                                   .step = &step,
                                   .device = (void *)(uintptr_t)&cuda_context};
    return &g->call[i];
}

/* Once all operands are known. */
static void add_scratch(struct group *g)
{
    for (int i = 0; i < g->n; i++) {
        struct merak_kernel_call *call = &g->call[i];

        if (g->kernel[i]->scratch == NULL)
            continue;
        call->scratch_bytes = g->kernel[i]->scratch(call);
        call->scratch = aligned_alloc(64, call->scratch_bytes / 64 * 64 + 64);
        memset(call->scratch, 0xff, call->scratch_bytes);
    }
}

static void destroy(struct group *g)
{
    for (int i = 0; i < g->n; i++)
        free(g->call[i].scratch);
    for (int b = 0; b < g->buffers; b++)
        free(g->buffer[b]);
}

static void run_single(const struct group *g)
{
    for (int i = 0; i < g->n; i++)
        assert_int_equal(g->kernel[i]->fn(&g->call[i], NULL), MERAK_OK);
}

/* 1: nothing is. */
static int fusable(const struct group *g)
{
    const struct merak_kernel_call *call[MERAK_FUSED_MAX];
    int n;

    for (int i = 0; i < g->n; i++)
        call[i] = &g->call[i];
    assert_true(merak_calls_do_not_alias(call, g->n));
    n = merak_cuda_fusable(g->kernel, call, g->n);
    return n > 1 ? n : 1;
}

static void run_fused(const struct group *g)
{
    const struct merak_kernel_call *call[MERAK_FUSED_MAX];

    for (int i = 0; i < g->n; i++)
        call[i] = &g->call[i];
    assert_int_equal(
        merak_cuda_run_fused(g->kernel, call, g->unread, g->n, NULL), MERAK_OK);
}

/* Compare but for buffer `skipped`; what is behind buffers stays. */
static void assert_same(const struct group *got, const struct group *want,
                        int skipped, const char *what, size_t rows, size_t C)
{
    for (int b = 0; b < want->buffers; b++) {
        for (int k = 0; k < GUARD; k++)
            assert_int_equal(got->buffer[b][got->bytes[b] + (size_t)k], 0x5a);
        if (b != skipped &&
            memcmp(got->buffer[b], want->buffer[b], want->bytes[b]) != 0)
            fail_msg("%s, [%zu, %zu]: buffer %d differs", what, rows, C, b);
    }
}

/* --- a sum and its norm -----------------------------------------------------
 */

static void build_forward(struct group *g, enum merak_dtype dtype, bool center,
                          size_t rows, size_t C, bool in_place)
{
    int a = add_buffer(g, dtype, rows * C, 0);
    int b = add_buffer(g, dtype, rows * C, 0);
    int y = in_place ? a : add_buffer(g, dtype, rows * C, 0);
    int out = in_place ? b : add_buffer(g, dtype, rows * C, 0);
    int gamma = add_buffer(g, MERAK_F32, C, 0);
    int beta = add_buffer(g, MERAK_F32, C, 0);
    int mean = add_buffer(g, MERAK_F32, rows, 0);
    int rstd = add_buffer(g, MERAK_F32, rows, 0);
    struct merak_kernel_call *add = add_call(g, "add", 2, 1), *norm;
    int i = 0;

    add_operand(add, 0, g, a, dtype, 3, rows, C);
    add_operand(add, 1, g, b, dtype, 3, rows, C);
    add_operand(add, 2, g, y, dtype, 3, rows, C);
    norm = add_call(g, center ? "layernorm" : "rmsnorm", center ? 3 : 2,
                    center ? 3 : 2);
    g->attrs[1].f[0] = 1e-5;
    g->attrs[1].f[1] = center ? 0 : 1;
    add_operand(norm, i++, g, y, dtype, 3, rows, C);
    add_operand(norm, i++, g, gamma, MERAK_F32, 1, C, 1);
    if (center)
        add_operand(norm, i++, g, beta, MERAK_F32, 1, C, 1);
    add_operand(norm, i++, g, out, dtype, 3, rows, C);
    if (center)
        add_operand(norm, i++, g, mean, MERAK_F32, 1, rows, 1);
    add_operand(norm, i++, g, rstd, MERAK_F32, 1, rows, 1);
}

/* Rows of a warp and of 2, 4 and 8, with pieces for all lanes and for some, of
 * odd lengths; and longer ones. */
static const size_t lengths[] = {1,    7,    8,    61,   100,  384,
                                 385,  768,  769,  1000, 1024, 1537,
                                 1600, 2048, 3072, 3079, 4096};
static const size_t heights[] = {1, 7, 33, 150};
#define N_LENGTHS (sizeof(lengths) / sizeof(*lengths))
#define LONG 6152 /* in bf16 not held in registers, in f32 neither */

static void sums_are_normalised(void **state)
{
    (void)state;
    for (size_t k = 0; k < (N_LENGTHS + 1) * 8; k++) {
        enum merak_dtype dtype = k & 1 ? MERAK_BF16 : MERAK_F32;
        bool center = (k & 2) != 0, in_place = (k & 4) != 0;
        size_t C = k / 8 < N_LENGTHS ? lengths[k / 8] : LONG;
        size_t rows = C > 2000 ? 3 : heights[k / 8 % 3];
        struct group want = {.n = 0}, got = {.n = 0};

        build_forward(&want, dtype, center, rows, C, in_place);
        build_forward(&got, dtype, center, rows, C, in_place);
        cuda_host_seed(k);
        run_single(&want);
        assert_int_equal(fusable(&got), 2);
        run_fused(&got);
        assert_same(&got, &want, -1, "forward", rows, C);
        destroy(&want);
        destroy(&got);
    }
}

/* --- gradients of a norm ----------------------------------------------------
 */

enum { ADD = 1, DW = 2, SWAP = 4, GROW = 8 };

/* Buffer 2 is dx. */
static void build_backward(struct group *g, enum merak_dtype dtype, bool center,
                           size_t rows, size_t C, unsigned how)
{
    int dy = add_buffer(g, dtype, rows * C, 0);
    int x = add_buffer(g, dtype, rows * C, 0);
    int out = add_buffer(g, dtype, rows * C, 0);
    int other = add_buffer(g, dtype, rows * C, 0);
    int sum = how & GROW ? other : add_buffer(g, dtype, rows * C, 0);
    int gamma = add_buffer(g, MERAK_F32, C, 0);
    int mean = add_buffer(g, MERAK_F32, rows, 0);
    int rstd = add_buffer(g, MERAK_F32, rows, 0);
    int dgamma = add_buffer(g, MERAK_F32, C, 0);
    int dbeta = add_buffer(g, MERAK_F32, C, 0);
    struct merak_kernel_call *c =
        add_call(g, center ? "layernorm_dx" : "rmsnorm_dx", center ? 5 : 4, 1);
    int i = 0;

    g->attrs[0].f[1] = center ? 0 : 1;
    add_operand(c, i++, g, dy, dtype, 3, rows, C);
    add_operand(c, i++, g, x, dtype, 3, rows, C);
    add_operand(c, i++, g, gamma, MERAK_F32, 1, C, 1);
    if (center)
        add_operand(c, i++, g, mean, MERAK_F32, 1, rows, 1);
    add_operand(c, i++, g, rstd, MERAK_F32, 1, rows, 1);
    add_operand(c, i++, g, out, dtype, 3, rows, C);
    if (how & ADD) {
        c = add_call(g, "add", 2, 1);
        add_operand(c, how & SWAP ? 1 : 0, g, out, dtype, 3, rows, C);
        add_operand(c, how & SWAP ? 0 : 1, g, other, dtype, 3, rows, C);
        add_operand(c, 2, g, sum, dtype, 3, rows, C);
    }
    if (how & DW) {
        i = 0;
        c = add_call(g, center ? "layernorm_dw" : "rmsnorm_dw", center ? 4 : 3,
                     center ? 2 : 1);
        c->accumulate = (how & GROW) != 0;
        add_operand(c, i++, g, dy, dtype, 3, rows, C);
        add_operand(c, i++, g, x, dtype, 3, rows, C);
        if (center)
            add_operand(c, i++, g, mean, MERAK_F32, 1, rows, 1);
        add_operand(c, i++, g, rstd, MERAK_F32, 1, rows, 1);
        add_operand(c, i++, g, dgamma, MERAK_F32, 1, C, 1);
        if (center)
            add_operand(c, i++, g, dbeta, MERAK_F32, 1, C, 1);
    }
    add_scratch(g);
}

static void compare_backward(enum merak_dtype dtype, bool center, size_t rows,
                             size_t C, unsigned how)
{
    struct group want = {.n = 0}, got = {.n = 0}, kept = {.n = 0};
    bool fits = C <= (dtype == MERAK_BF16 ? 6144 : 3072);

    build_backward(&want, dtype, center, rows, C, how);
    build_backward(&got, dtype, center, rows, C, how);
    run_single(&want);
    if ((how & DW) && !fits) {
        assert_int_equal(fusable(&got), how & ADD ? 2 : 1);
    } else {
        assert_int_equal(fusable(&got), got.n);
        run_fused(&got);
        assert_same(&got, &want, -1, "backward", rows, C);
        if (how & ADD) { /* without dx, which stays as it is */
            build_backward(&kept, dtype, center, rows, C, how);
            kept.unread[0] = 1;
            run_fused(&kept);
            assert_same(&kept, &want, 2, "backward", rows, C);
            destroy(&got);
            got = (struct group){.n = 0};
            build_backward(&got, dtype, center, rows, C, how);
            assert_memory_equal(kept.buffer[2], got.buffer[2], got.bytes[2]);
            destroy(&kept);
        }
    }
    destroy(&want);
    destroy(&got);
}

/* What is fused does not depend on the size: by day, large rows take each part
 * alone, and all of them. */
static bool is_for_the_night(size_t rows, size_t C, unsigned how)
{
    return rows * C > 50000 && how != ADD && how != (DW | GROW) &&
           how != (ADD | DW) && how != (ADD | DW | SWAP | GROW) &&
           !test_all_rows();
}

static void gradients_of_norms_are_added(void **state)
{
    (void)state;
    for (size_t k = 0; k < (N_LENGTHS + 1) * 4; k++) {
        size_t C = k / 4 < N_LENGTHS ? lengths[k / 4] : LONG;
        size_t rows = C > 2000 ? 35 : heights[k / 4 % 4];

        cuda_host_seed(k);
        for (unsigned how = ADD; how < 2 * GROW; how++) {
            if (((how & SWAP) && !(how & ADD)) ||
                is_for_the_night(rows, C, how))
                continue;
            if (how & (ADD | DW))
                compare_backward(k & 1 ? MERAK_BF16 : MERAK_F32, (k & 2) != 0,
                                 rows, C, how);
        }
    }
}

/* --- cross-entropy ----------------------------------------------------------
 */

static struct merak_kernel_call *add_rows_call(struct group *g, const char *op,
                                               int n_in, int n_out,
                                               enum merak_dtype dtype,
                                               size_t rows, size_t V, size_t ld)
{
    struct merak_kernel_call *c = add_call(g, op, n_in, n_out);

    add_operand(c, 0, g, 0, dtype, 3, rows, V);
    c->operand[0].ld = ld;
    return c;
}

/* Buffers: logits, targets, maxima, sums, z, losses, the mean, gradients. */
static void build_loss(struct group *g, enum merak_dtype dtype, size_t rows,
                       size_t V, size_t ld, bool between, bool gradient,
                       bool in_place)
{
    struct merak_kernel_call *c;

    (void)add_buffer(g, dtype, rows * (ld > 0 ? ld : V), 0);
    (void)add_buffer(g, MERAK_I32, rows, V);
    for (int i = 0; i < 4; i++)
        (void)add_buffer(g, MERAK_F32, rows, 0);
    (void)add_buffer(g, MERAK_F64, 1, 0);
    (void)add_buffer(g, dtype, rows * (ld > 0 ? ld : V), 0);
    c = add_rows_call(g, "xent_max", 1, 1, dtype, rows, V, ld);
    add_operand(c, 1, g, 2, MERAK_F32, 1, rows, 1);
    c = add_rows_call(g, "xent_sum", 3, 2, dtype, rows, V, ld);
    add_operand(c, 1, g, 2, MERAK_F32, 1, rows, 1);
    add_operand(c, 2, g, 1, MERAK_I32, 1, rows, 1);
    add_operand(c, 3, g, 3, MERAK_F32, 1, rows, 1);
    add_operand(c, 4, g, 4, MERAK_F32, 1, rows, 1);
    if (between) {
        c = add_call(g, "xent_loss", 3, 1);
        for (int i = 0; i < 4; i++)
            add_operand(c, i, g, 2 + i, MERAK_F32, 1, rows, 1);
        c = add_call(g, "mean_loss", 1, 1);
        g->attrs[3].f[0] = 1.0 / (double)rows;
        add_operand(c, 0, g, 5, MERAK_F32, 1, rows, 1);
        add_operand(c, 1, g, 6, MERAK_F64, 1, 1, 1);
    }
    if (!gradient)
        return;
    g->attrs[g->n].f[0] = 0.37;
    c = add_rows_call(g, "xent_dlogits", 4, 1, dtype, rows, V, ld);
    add_operand(c, 1, g, 2, MERAK_F32, 1, rows, 1);
    add_operand(c, 2, g, 3, MERAK_F32, 1, rows, 1);
    add_operand(c, 3, g, 1, MERAK_I32, 1, rows, 1);
    add_operand(c, 4, g, in_place ? 0 : 7, dtype, 3, rows, V);
    c->operand[4].ld = ld;
}

/* What is behind a row is not defined. */
static void clear_padding(struct group *g, enum merak_dtype dtype, size_t rows,
                          size_t V, size_t ld, unsigned char byte)
{
    size_t elem = merak_dtype_bytes(dtype);

    for (size_t r = 0; ld > V && r < rows; r++) {
        memset(g->buffer[0] + (r * ld + V) * elem, byte, (ld - V) * elem);
        memset(g->buffer[7] + (r * ld + V) * elem, byte, (ld - V) * elem);
    }
}

static void losses_and_gradients_are_computed_at_once(void **state)
{
    static const struct {
        size_t rows, V, ld;
    } sizes[] = {
        {3, 8, 0},     {9, 16, 0},        {17, 61, 64},    {5, 257, 264},
        {7, 320, 0},   {4, 2040, 0},      {3, 2047, 2048}, {3, 2051, 2056},
        {2, 4096, 0},  {2, 8184, 0},      {2, 8197, 8200}, {2, 12345, 12352},
        {2, 33000, 0}, {2, 65537, 65544},
    };

    (void)state;
    for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes) * 16; k++) {
        size_t rows = sizes[k / 16].rows, V = sizes[k / 16].V;
        size_t ld = sizes[k / 16].ld;
        enum merak_dtype dtype = k & 1 ? MERAK_BF16 : MERAK_F32;
        bool between = (k & 2) != 0, gradient = (k & 4) != 0;
        bool in_place = (k & 8) != 0;
        struct group want = {.n = 0}, got = {.n = 0};

        if ((V > 3000 && !(between && gradient)) || (in_place && !gradient))
            continue;
        build_loss(&want, dtype, rows, V, ld, between, gradient, in_place);
        build_loss(&got, dtype, rows, V, ld, between, gradient, in_place);
        clear_padding(&want, dtype, rows, V, ld, 0xff);
        clear_padding(&got, dtype, rows, V, ld, 0xff);
        cuda_host_seed(k);
        cuda_fault.raised = 0;
        run_single(&want);
        assert_int_equal(fusable(&got), gradient ? got.n : 2);
        got.n = gradient ? got.n : 2;
        run_fused(&got);
        for (int i = got.n; i < want.n; i++)
            assert_int_equal(got.kernel[i]->fn(&got.call[i], NULL), MERAK_OK);
        assert_int_equal(cuda_fault.raised, 0);
        clear_padding(&want, dtype, rows, V, ld, 0);
        clear_padding(&got, dtype, rows, V, ld, 0);
        assert_same(&got, &want, -1, "loss", rows, V);
        destroy(&want);
        destroy(&got);
    }
}

/* --- what is left alone -----------------------------------------------------
 */

static void rows_off_their_boundaries_are_left_alone(void **state)
{
    struct group g = {.n = 0};

    (void)state;
    build_loss(&g, MERAK_BF16, 4, 61, 0, true, true, true);
    assert_int_equal(fusable(&g), 1);
    destroy(&g);
}

/* A part of the vocabulary: others' maxima come first. */
static void parts_of_a_vocabulary_are_left_alone(void **state)
{
    struct group g = {.n = 0};

    (void)state;
    build_loss(&g, MERAK_F32, 4, 64, 0, true, true, true);
    for (int i = 0; i < g.n; i++)
        g.call[i].operand[0].full.dim[2] = 128;
    assert_int_equal(fusable(&g), 1);
    destroy(&g);
}

static void other_values_are_left_alone(void **state)
{
    struct group g = {.n = 0};
    float *elsewhere = calloc(33 * 64, sizeof(*elsewhere));

    (void)state;
    build_forward(&g, MERAK_F32, true, 33, 64, false);
    g.call[1].operand[0].data = elsewhere;
    assert_int_equal(fusable(&g), 1);
    destroy(&g);
    g = (struct group){.n = 0};
    build_backward(&g, MERAK_F32, true, 33, 64, ADD | DW);
    g.call[2].operand[1].data = elsewhere; /* weights of another norm */
    assert_int_equal(fusable(&g), 2);
    g.call[1].operand[0].data = g.call[1].operand[1].data;
    assert_int_equal(fusable(&g), 1);
    destroy(&g);
    g = (struct group){.n = 0};
    build_backward(&g, MERAK_F32, true, 33, 64, ADD | DW);
    /* the sum replaces the gradient that the weights' is made from */
    g.call[1].operand[2].data = g.call[0].operand[0].data;
    assert_int_equal(fusable(&g), 2);
    destroy(&g);
    free(elsewhere);
}

/* --- programs ---------------------------------------------------------------
 */

/* What an engine finds in a program (runtime/engine/accel_fuse.c), by length;
 * waits are not looked at. */
static void count_in_program(const struct merak_program *p, char *arena,
                             int count[MERAK_FUSED_MAX + 1], bool overlap)
{
    for (int i = 0, n; i<p->n_instrs; i += n> 1 ? n : 1) {
        struct merak_kernel_call call[MERAK_FUSED_MAX];
        const struct merak_kernel_call *list[MERAK_FUSED_MAX];
        const struct merak_kernel *kernel[MERAK_FUSED_MAX];

        for (n = 0; n < MERAK_FUSED_MAX && i + n < p->n_instrs; n++) {
            const struct merak_instr *in = &p->instr[i + n];

            if (in->kind != MERAK_INSTR_KERNEL || in->microbatch < 0)
                break;
            merak_program_call(p, in, &call[n]);
            for (int k = 0; k < in->n_in + in->n_out; k++)
                call[n].operand[k].data = arena + p->slot[in->slot[k]].offset;
            call[n].scratch =
                in->scratch < 0 ? NULL : arena + p->slot[in->scratch].offset;
            list[n] = &call[n];
            assert_int_equal(
                merak_kernel_find(&cuda_host, in->op->name, &kernel[n], NULL),
                MERAK_OK);
        }
        while (!overlap && n > 1 && !merak_calls_do_not_alias(list, n))
            n--;
        n = n > 1 ? merak_cuda_fusable(kernel, list, n) : 1;
        if (n > 1)
            count[n]++;
    }
}

static void programs_have_them(void **state)
{
    static const struct {
        int layers;
        size_t vocab;
        int want[MERAK_FUSED_MAX + 1]; /* by length */
    } rows[] = {
        /* of a layer and micro-batch: a sum with its norm, and a norm's
         * gradients with a sum; the last norm's gradients; the loss */
        {2, 64, {0, 0, 2 * (2 + 1), 2 * 2, 0, 2}},
        {3, 61, {0, 0, 2 * (3 + 1), 2 * 3, 0, 2}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct merak_program_options opt = {
            .memory = {.scratch = merak_kernel_scratch,
                       .arg = (void *)(uintptr_t)&cuda_host,
                       .row_bytes = 16}};
        const struct small_model model = {.layers = rows[i].layers,
                                          .vocab = rows[i].vocab,
                                          .hidden = 24,
                                          .heads = 6,
                                          .dtype = MERAK_BF16};
        struct merak_plan plan = planned_plan(1, 1, 1, 2, "1f1b", false);
        struct merak_planned *planned = planned_build(&model, &plan, &opt);
        const struct merak_program *p = planned->program[0];
        char *arena = aligned_alloc(256, (p->arena_bytes + 255) / 256 * 256);
        int got[MERAK_FUSED_MAX + 1] = {0}, all[MERAK_FUSED_MAX + 1] = {0};

        count_in_program(p, arena, got, false);
        count_in_program(p, arena, all, true);
        for (int n = 2; n <= MERAK_FUSED_MAX; n++)
            if (got[n] != rows[i].want[n] || all[n] != rows[i].want[n])
                fail_msg("row %zu: %d of length %d (%d but for memory), "
                         "expected %d",
                         i, got[n], n, all[n], rows[i].want[n]);
        free(arena);
        merak_planned_destroy(planned);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_normalised),
        cmocka_unit_test(gradients_of_norms_are_added),
        cmocka_unit_test(losses_and_gradients_are_computed_at_once),
        cmocka_unit_test(rows_off_their_boundaries_are_left_alone),
        cmocka_unit_test(parts_of_a_vocabulary_are_left_alone),
        cmocka_unit_test(other_values_are_left_alone),
        cmocka_unit_test(programs_have_them),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("kernels_fused", tests, NULL, NULL);
}
