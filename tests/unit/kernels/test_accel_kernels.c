/* SPDX-License-Identifier: Apache-2.0 */
/* test_accel_kernels.c - an accelerator's kernels against the reference
 *
 * MERAK_TEST_BACKEND is the backend; without it "fake", whose kernels are the
 * cpu's, so that what is tested everywhere is this.  MERAK_TEST_SEED draws
 * other shapes, MERAK_TEST_OP runs the cases of one op.  Each case runs twice,
 * from memory that is all NaNs, and has
 * to give the same bits; nothing may be written behind an operand.
 */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kcheck.h"
#include "unit/with_accel.h"

#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY ((size_t)192 << 20)
#define ALIGN 256
#define GUARD 64 /* bytes that kcase.c keeps behind each operand */
#define DRAWN 3  /* shapes of each kind; 16 where a seed is given */
#define DRAWN_SEEDED 16

/* The reference computes in double and rounds once; kernels sum in f32, in
 * another order.  A bf16 result may round to the neighbour of the reference's,
 * and attention rounds probabilities, and a bias, to bf16 on the way. */
#define F32_TOLERANCE 2e-5
#define BF16_TOLERANCE (1.0 / 128)
#define BF16_TERMS (1.0 / 128)
#define CANCELLED 1e-4 /* a norm over one column */

static struct with_accel device;
static uint64_t seed;
static const char *only_op; /* NULL: all */
static int drawn_shapes = DRAWN;

/* --- one call -------------------------------------------------------------
 */

/* The next piece of the device's memory. */
static void *take(size_t *used, size_t bytes)
{
    void *at = (char *)device.memory + *used;

    *used = (*used + bytes + ALIGN - 1) / ALIGN * ALIGN;
    assert_true(*used <= device.bytes);
    return at;
}

/* Named when the device fails, which nothing outlives. */
static void name_task(const struct kc *c)
{
    const struct merak_shape *x = &c->call.operand[0].local;
    size_t size = sizeof(with_accel_task);
    int at = snprintf(with_accel_task, size, "%s %s [", c->op,
                      merak_dtype_name(c->call.operand[0].dtype));

    for (int i = 0; i < x->ndim && (size_t)at < size; i++)
        at += snprintf(with_accel_task + at, size - (size_t)at, "%s%zu",
                       i > 0 ? ", " : "", x->dim[i]);
    if ((size_t)at < size)
        snprintf(with_accel_task + at, size - (size_t)at, "]");
}

static void check_guard(const struct kc *c, const unsigned char *guard)
{
    for (int i = 0; i < GUARD; i++) {
        if (guard[i] == c->guard)
            continue;
        print_error("%s writes behind an operand\n", with_accel_task);
        kc_fail_case();
        return;
    }
}

static void run_on_device(struct kc *c)
{
    const struct merak_accel_ops *ops = device.a->ops;
    int n = c->call.n_in + c->call.n_out;
    struct merak_kernel_call call;
    const struct merak_kernel *k;
    struct merak_error err;
    size_t used = 0;

    c->call.attrs = &c->attrs;
    c->call.step = &c->step;
    name_task(c);
    call = c->call;
    with_accel_check(merak_kernel_find(device.backend, c->op, &k, &err), &err);
    for (int o = 0; o < n; o++) {
        size_t bytes = merak_local_bytes(&call.operand[o]) + GUARD;

        call.operand[o].data = take(&used, bytes);
        with_accel_put(&device, call.operand[o].data, c->call.operand[o].data,
                       bytes);
    }
    call.scratch_bytes =
        merak_kernel_scratch((void *)(uintptr_t)device.backend, c->op, &call);
    call.scratch = take(&used, call.scratch_bytes + 1);
    with_accel_check(ops->fill(device.a, 0, call.scratch, 0xff,
                               call.scratch_bytes + 1, &err),
                     &err);
    with_accel_check(ops->launch(device.a, 0, k, &call, &err), &err);
    for (int o = 0; o < n; o++) {
        size_t bytes = merak_local_bytes(&call.operand[o]);
        unsigned char guard[GUARD];

        with_accel_get(&device, c->call.operand[o].data, call.operand[o].data,
                       bytes);
        with_accel_get(&device, guard, (char *)call.operand[o].data + bytes,
                       GUARD);
        check_guard(c, guard);
    }
}

/* --- what is right --------------------------------------------------------
 */

static bool is_bf16(const struct kc *c, int operand)
{
    return c->call.operand[operand].dtype == MERAK_BF16;
}

static double slack(const struct kc *want, int o)
{
    const struct merak_shape *x = &want->call.operand[0].local;
    double largest = kc_largest(want, o);
    bool cancels = strncmp(want->op, "attention", 9) == 0 &&
                   strstr(want->op, "_dx") != NULL;

    /* of differences of terms near 1, whose result may be 0 */
    if (cancels && largest < 0.5)
        largest = 0.5;
    if (strstr(want->op, "norm_dx") != NULL && x->dim[x->ndim - 1] == 1)
        return CANCELLED;
    if (is_bf16(want, 0) && (strncmp(want->op, "attention", 9) == 0 ||
                             strncmp(want->op, "experts", 7) == 0 ||
                             strcmp(want->op, "linear") == 0 ||
                             strcmp(want->op, "conv") == 0))
        return BF16_TERMS * largest;
    return F32_TOLERANCE * largest;
}

static void check_output(const struct kc *got, const struct kc *want, int o)
{
    kc_check_near(got, want, o, slack(want, o),
                  is_bf16(want, o) ? BF16_TOLERANCE : F32_TOLERANCE);
}

static const struct kc_suite suite = {run_on_device, check_output};

static bool is_left_out(const struct kc *c)
{
    return only_op != NULL && strcmp(only_op, c->op) != 0;
}

static void compare_with_ref(const struct kc *c)
{
    struct kc want, got, again;

    if (is_left_out(c))
        return;
    kc_copy(&want, c);
    kc_copy(&got, c);
    kc_copy(&again, c);
    kc_run(&want, "ref");
    run_on_device(&got);
    run_on_device(&again);
    kc_check_outputs(&suite, &got, &want);
    kc_check_same_bits(&again, &got, "the run");
    kc_destroy(&want);
    kc_destroy(&got);
    kc_destroy(&again);
}

static void check_cuts(const struct kc *c)
{
    if (!is_left_out(c))
        (void)kc_check_cuts(&suite, c);
}

static void check_slices(const struct kc *c)
{
    if (!is_left_out(c))
        (void)kc_check_slices(&suite, c);
}

static void check_padding(const struct kc *c)
{
    if (!is_left_out(c))
        (void)kc_check_padding(&suite, c);
}

/* --- cases ----------------------------------------------------------------
 */

/* All cases run whatever came of those before: the end of a test. */
static void count_failures(void)
{
    int n = kc_failures;

    kc_failures = 0;
    if (n > 0)
        fail_msg("%d wrong results", n);
}

static void visit_all(enum merak_dtype dtype, kc_visit_fn visit)
{
    for (int size = 0; size < KC_SIZES; size++)
        kc_visit_all(size, dtype, visit);
}

static void every_op_in_f32(void **state)
{
    (void)state;
    visit_all(MERAK_F32, compare_with_ref);
    count_failures();
}

static void every_op_in_bf16(void **state)
{
    (void)state;
    visit_all(MERAK_BF16, compare_with_ref);
    count_failures();
}

static void shards_make_the_whole(void **state)
{
    (void)state;
    visit_all(MERAK_F32, check_cuts);
    count_failures();
}

static void slices_make_the_whole(void **state)
{
    (void)state;
    visit_all(MERAK_F32, check_slices);
    count_failures();
}

static void rows_may_be_padded(void **state)
{
    (void)state;
    if (device.backend->row_bytes == 0)
        skip();
    visit_all(MERAK_F32, check_padding);
    visit_all(MERAK_BF16, check_padding);
    count_failures();
}

/* 1 .. most, small ones as often as large. */
static size_t draw(size_t most)
{
    static uint64_t drawn;
    double u = (double)merak_rng_uniform(seed, drawn++);
    size_t n = (size_t)exp(u * log((double)most + 1));

    return n < 1 ? 1 : n > most ? most : n;
}

static void draw_linear(struct kc_row *row)
{
    size_t m = draw(300), n = draw(700), k = draw(700);

    *row = (struct kc_row){.op = "linear",
                           .n_in = 3,
                           .n_out = 1,
                           .attrs.i[0] = 1,
                           .operand = {{'c', 2, {m, k}},
                                       {'c', 2, {n, k}},
                                       {'f', 1, {n}},
                                       {'c', 2, {m, n}}}};
}

/* The gradient of a norm over a few columns is what is left of large terms;
 * the sizes of kcase_rows.c have some. */
static void draw_layernorm(struct kc_row *row)
{
    size_t n = draw(100), C = 31 + draw(3000);

    *row = (struct kc_row){.op = "layernorm",
                           .n_in = 3,
                           .n_out = 3,
                           .attrs.f[0] = 1e-5,
                           .operand = {{'c', 2, {n, C}},
                                       {'p', 1, {C}},
                                       {'f', 1, {C}},
                                       {'c', 2, {n, C}},
                                       {'f', 1, {n}},
                                       {'f', 1, {n}}}};
}

static void draw_attention(struct kc_row *row)
{
    size_t B = draw(2), T = draw(200), G = draw(3), R = draw(3);
    size_t D = 2 * draw(64);

    *row = (struct kc_row){.op = "attention",
                           .n_in = 3,
                           .n_out = 2,
                           .operand = {{'c', 5, {B, T, G, R, D}},
                                       {'c', 4, {B, T, G, D}},
                                       {'c', 4, {B, T, G, D}},
                                       {'c', 5, {B, T, G, R, D}},
                                       {'f', 4, {B, T, G, R}}}};
}

/* What libraries take, too: heads of whole eights, windows of the first so many
 * keys, no dropout. */
static void attention_that_libraries_have(void **state)
{
    static const size_t D[] = {64, 128, 8, 80};
    const size_t longest = drawn_shapes == DRAWN ? 50 : 300;

    (void)state;
    for (int i = 0; i < 2 * drawn_shapes; i++) {
        bool packed = i % 3 == 2;
        size_t B = draw(3), T = 1 + draw(longest), G = draw(3), R = draw(3);
        size_t d = i < 4 ? D[i] : 8 * draw(16);
        struct kc_row row = {.op = "attention",
                             .n_in = 3,
                             .n_out = 2,
                             .operand = {{'c', 5, {B, T, G, R, d}},
                                         {'c', 4, {B, T, G, d}},
                                         {'c', 4, {B, T, G, d}},
                                         {'c', 5, {B, T, G, R, d}},
                                         {'f', 4, {B, T, G, R}}}};

        if (packed)
            row = (struct kc_row){.op = "attention_packed",
                                  .n_in = 1,
                                  .n_out = 2,
                                  .operand = {{'c', 5, {B, T, 3, G, d}},
                                              {'c', 4, {B, T, G, d}},
                                              {'f', 3, {B, T, G}}}};
        row.attrs.i[1] = i % 4 == 3 ? (int64_t)draw(T) : 0;
        kc_visit_row(&row, MERAK_BF16, compare_with_ref);
    }
    count_failures();
}

static void draw_embedding(struct kc_row *row)
{
    size_t T = draw(2000), V = draw(300), C = draw(300);

    *row = (struct kc_row){
        .op = "embedding",
        .n_in = 2,
        .n_out = 1,
        .vocab = V,
        .operand = {{'i', 2, {1, T}}, {'c', 2, {V, C}}, {'c', 3, {1, T, C}}}};
}

/* One of the ops on logits; vocabularies that a warp has, and a block. */
static void draw_xent(struct kc_row *row)
{
    static const char *const op[] = {"xent_max", "xent_sum", "xent_dlogits"};
    size_t n = draw(40), V = draw(9000), which = draw(1000) % 3;

    *row = (struct kc_row){
        .n_in = which == 0   ? 1
                : which == 1 ? 3
                             : 4,
        .n_out = which == 1 ? 2 : 1,
        .vocab = V,
        .attrs.f[0] = 1.0 / (double)n,
        .operand = {{'c', 3, {1, n, V}}, {'p', 2, {1, n}}, {'p', 2, {1, n}}}};
    snprintf(row->op, sizeof(row->op), "%s", op[which]);
    if (which == 0)
        row->operand[1].type = 'f';
    if (which == 1) {
        row->operand[2].type = 't';
        row->operand[3] = row->operand[4] = (struct kc_operand){'f', 2, {1, n}};
    }
    if (which == 2) {
        row->operand[3] = (struct kc_operand){'t', 2, {1, n}};
        row->operand[4] = row->operand[0];
    }
}

static void shapes_that_were_drawn(void **state)
{
    static void (*const kind[])(struct kc_row * row) = {
        draw_linear, draw_layernorm, draw_attention, draw_embedding, draw_xent};
    const int n = sizeof(kind) / sizeof(*kind);

    (void)state;
    for (int i = 0; i < drawn_shapes * n; i++) {
        struct kc_row row;

        kind[i % n](&row);
        kc_visit_row(&row, MERAK_F32, compare_with_ref);
        kc_visit_row(&row, MERAK_BF16, compare_with_ref);
    }
    count_failures();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_in_f32),
        cmocka_unit_test(every_op_in_bf16),
        cmocka_unit_test(shards_make_the_whole),
        cmocka_unit_test(slices_make_the_whole),
        cmocka_unit_test(rows_may_be_padded),
        cmocka_unit_test(shapes_that_were_drawn),
        cmocka_unit_test(attention_that_libraries_have),
    };
    const char *text = getenv("MERAK_TEST_SEED");
    const struct merak_backend *backend = NULL;
    struct merak_error err;
    int rc;

    only_op = getenv("MERAK_TEST_OP");
    kc_goes_on = true;
    seed = text != NULL ? strtoull(text, NULL, 10) : 1;
    if (text != NULL)
        drawn_shapes = DRAWN_SEEDED;
    with_accel_check(
        merak_backend_find(with_accel_name("fake"), &backend, &err), &err);
    with_accel_open(&device, backend, MEMORY);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    rc = cmocka_run_group_tests_name("accel_kernels", tests, NULL, NULL);
    with_accel_close(&device);
    return rc;
}
