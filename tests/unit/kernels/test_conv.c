/* SPDX-License-Identifier: Apache-2.0 */
/* test_conv.c - convolutions that oneDNN computes in tiles: against the
 * reference, of parts of the points, with any number of threads
 */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kcase.h"

#include "kernels/cpu/conv.h"
#include "kernels/cpu/gemm_primitive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Equal along each dim but for the points of the first one. */
static const struct form {
    size_t dims, samples, first, points, I, O, size, stride, pad, dilation;
    bool bias;
} forms[] = {
    /* a tile has some rows */
    {3, 1, 18, 20, 8, 16, 3, 1, 1, 1, true},
    {3, 1, 9, 32, 1, 40, 3, 1, 1, 1, false},
    {2, 1, 100, 100, 16, 16, 3, 1, 1, 1, true},
    {2, 1, 201, 129, 3, 24, 7, 2, 3, 1, false},
    {2, 1, 128, 128, 24, 16, 3, 2, 1, 1, true}, /* points of no window */
    {2, 1, 160, 160, 16, 16, 2, 2, 0, 1, false},
    {2, 1, 60, 90, 16, 24, 3, 1, 2, 2, false},
    {1, 1, 18000, 0, 8, 24, 5, 1, 2, 1, true},
    {2, 1, 100, 70, 64, 3, 1, 1, 0, 1, false},
    {2, 1, 120, 120, 16, 24, 1, 2, 0, 1, false}, /* gaps: not oneDNN's */
    /* or some samples */
    {2, 9, 24, 24, 16, 24, 3, 1, 1, 1, true},
    {1, 70, 60, 0, 5, 7, 3, 1, 1, 1, false},
};
#define FORMS (sizeof(forms) / sizeof(*forms))

static void shape(struct kc_operand *op, size_t before, const struct form *f,
                  size_t first, size_t other, size_t after)
{
    op->type = 'c';
    op->dim[op->ndim++] = before;
    for (size_t d = 0; d < f->dims; d++)
        op->dim[op->ndim++] = d == 0 ? first : other;
    op->dim[op->ndim++] = after;
}

static size_t windows(const struct form *f, size_t points)
{
    return (points + 2 * f->pad - f->dilation * (f->size - 1) - 1) / f->stride +
           1;
}

/* What runs along operands: y, its gradient of x, or of w. */
static void make(const struct form *f, enum merak_conv_kind kind, double *list,
                 struct kc_row *row)
{
    static const char *const op[] = {"conv", "conv_dx", "conv_dw"};
    struct kc_operand x = {0}, w = {0}, y = {0};

    *row = (struct kc_row){.n_in = 2, .n_out = 1};
    strcpy(row->op, op[kind]);
    row->attrs.i[0] = (int64_t)f->dims;
    row->attrs.i[2] = MERAK_WINDOW_NUMBERS * (int64_t)f->dims;
    row->attrs.list = list;
    for (size_t d = 0; d < f->dims; d++, list += MERAK_WINDOW_NUMBERS) {
        size_t points = d == 0 ? f->first : f->points;

        list[MERAK_WINDOW_SIZE] = (double)f->size;
        list[MERAK_WINDOW_STRIDE] = (double)f->stride;
        list[MERAK_WINDOW_PAD] = (double)f->pad;
        list[MERAK_WINDOW_DILATION] = (double)f->dilation;
        list[MERAK_WINDOW_IN] = (double)points;
        list[MERAK_WINDOW_OUT] = (double)windows(f, points);
    }
    shape(&x, f->samples, f, f->first, f->points, f->I);
    shape(&w, f->O, f, f->size, f->size, f->I);
    shape(&y, f->samples, f, windows(f, f->first), windows(f, f->points), f->O);
    row->operand[0] = kind == MERAK_CONV_DX ? y : x;
    row->operand[1] = kind == MERAK_CONV_DW ? y : w;
    if (kind == MERAK_CONV_Y && f->bias)
        row->operand[row->n_in++] = (struct kc_operand){'f', 1, {f->O}};
    row->operand[row->n_in] = kind == MERAK_CONV_Y    ? y
                              : kind == MERAK_CONV_DX ? x
                                                      : w;
    if (kind == MERAK_CONV_DW)
        row->operand[row->n_in].type = 'f';
}

static void open_with(int threads)
{
    const struct merak_backend *b;

    assert_int_equal(merak_backend_find("cpu", &b, NULL), MERAK_OK);
    assert_int_equal(b->open(threads, NULL), MERAK_OK);
}

/* Sums of so many terms, which are up to 4, in f32; in bf16 rounded once, so
 * that one may be another's neighbour. */
static void check_near(const struct kc *got, const struct kc *want,
                       const char *what)
{
    int o = want->call.n_in;
    double most = 0;
    double ulp = want->call.operand[o].dtype == MERAK_BF16 ? 0x1p-7 : 0;

    for (size_t i = 0; i < kc_count(want, o); i++)
        most = fmax(most, fabs(kc_get(want, o, i)));
    for (size_t i = 0; i < kc_count(want, o); i++) {
        double g = kc_get(got, o, i), w = kc_get(want, o, i);

        if (!(fabs(g - w) <= 1e-5 * most + ulp * fabs(w)))
            fail_msg("%s %s: element %zu is %g, want %g", want->op, what, i, g,
                     w);
    }
}

static void check_bits(const struct kc *a, const struct kc *b, const char *what)
{
    int o = a->call.n_in;

    if (memcmp(a->call.operand[o].data, b->call.operand[o].data,
               merak_local_bytes(&a->call.operand[o])) != 0)
        fail_msg("%s has other bits with %s", a->op, what);
}

/* Where the outputs are sums, also added to what was there. */
static void check_form(const struct form *f, enum merak_conv_kind kind,
                       enum merak_dtype dtype)
{
    double list[3 * MERAK_WINDOW_NUMBERS];
    struct kc want, one, other;
    struct kc_row row;
    char what[80];

    snprintf(what, sizeof(what), "%s of %zux%zu to %zu, size %zu, stride %zu",
             merak_dtype_name(dtype), f->first, f->I, f->O, f->size, f->stride);
    make(f, kind, list, &row);
    kc_create(&want, &row, dtype, 1);
    want.call.accumulate = kind == MERAK_CONV_DW && f->dims == 2;
    kc_copy(&one, &want);
    kc_copy(&other, &want);
    kc_run(&want, "ref");
    open_with(1);
    kc_run(&one, "cpu");
    check_near(&one, &want, what);
    open_with(3);
    kc_run(&other, "cpu");
    check_bits(&other, &one, "three threads");
    kc_destroy(&want);
    kc_destroy(&one);
    kc_destroy(&other);
}

static void tiles_make_the_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMS; i++) {
        for (int kind = 0; kind < 3; kind++)
            check_form(&forms[i], (enum merak_conv_kind)kind, MERAK_F32);
    }
}

static void tiles_in_bf16_make_the_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMS; i += 5) {
        for (int kind = 0; kind < 3; kind++)
            check_form(&forms[i], (enum merak_conv_kind)kind, MERAK_BF16);
    }
}

/* Rows [from, from + n) of y, of the rows of x that its windows have: as a rank
 * with a part of the points has them. */
static void a_part_has_its_rows_of_the_whole(void **state)
{
    const struct form *f = &forms[0];
    const size_t ends[] = {0, 5, 12, f->first};
    double list[3 * MERAK_WINDOW_NUMBERS];
    struct kc whole, part;
    struct kc_row row;

    (void)state;
    make(f, MERAK_CONV_Y, list, &row);
    kc_create(&whole, &row, MERAK_F32, 1);
    open_with(2);
    kc_run(&whole, "cpu");
    for (int i = 0; i < 3; i++) {
        size_t from = ends[i], to = ends[i + 1], lo = from > 0 ? from - 1 : 0;
        size_t hi = to + 1 < f->first ? to + 1 : f->first;
        struct kc want;

        kc_copy(&part, &whole);
        kc_slice(&part, &whole, 0, 1, lo, hi - lo);
        kc_slice(&part, &whole, 3, 1, from, to - from);
        kc_copy(&want, &part);
        memset(part.call.operand[3].data, 0xff,
               merak_local_bytes(&part.call.operand[3]));
        kc_run(&part, "cpu");
        check_near(&part, &want, "of a part");
        kc_destroy(&part);
        kc_destroy(&want);
    }
    kc_destroy(&whole);
}

static int count_onednns(enum merak_dtype dtype)
{
    int n = 0;

    open_with(2);
    for (size_t i = 0; i < FORMS; i++) {
        double list[3 * MERAK_WINDOW_NUMBERS];
        struct kc_row row;
        struct kc c;
        bool done = false;

        make(&forms[i], MERAK_CONV_Y, list, &row);
        kc_create(&c, &row, dtype, 1);
        c.call.attrs = &c.attrs;
        struct merak_conv_call call = {
            .kind = MERAK_CONV_Y,
            .windows = merak_windows_of(&c.call, 0, c.call.n_in),
            .dims = (int)forms[i].dims,
            .samples = forms[i].samples,
            .I = forms[i].I,
            .O = forms[i].O,
            .bf16 = dtype == MERAK_BF16,
            .x = c.call.operand[0].data,
            .w = c.call.operand[1].data,
            .y = merak_call_out(&c.call, 0)->data};
        size_t bytes = merak_conv_scratch(&call);

        call.scratch = aligned_alloc(64, bytes + 64);
        assert_true(bytes > 0);
        assert_int_equal(merak_conv_compute(&call, &done, NULL), MERAK_OK);
        n += done;
        free(call.scratch);
        kc_destroy(&c);
    }
    print_message("# %s: oneDNN has %d of %zu\n", merak_dtype_name(dtype), n,
                  FORMS);
    return n;
}

/* Otherwise the rows above show nothing. */
static void most_forms_are_onednns(void **state)
{
    int f32 = count_onednns(MERAK_F32), bf16 = count_onednns(MERAK_BF16);

    (void)state;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && getenv("ONEDNN_MAX_CPU_ISA") == NULL)
        assert_true(f32 >= 8);
#else
    (void)f32; /* other processors may have none */
#endif
    if (merak_gemm_is_native())
        assert_true(bf16 >= 8);
    else
        assert_int_equal(bf16, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_make_the_whole),
        cmocka_unit_test(tiles_in_bf16_make_the_whole),
        cmocka_unit_test(a_part_has_its_rows_of_the_whole),
        cmocka_unit_test(most_forms_are_onednns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
