/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels_cpu.c - the cpu backend against the reference: every op, odd
 * sizes, f32 and bf16, any thread count, any address, shards against the whole
 */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kcheck.h"
#include "unit/kernels/kpieces.h"

#include "kernels/cpu/angles.h"
#include "kernels/ops.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * The reference computes in double and rounds once; the fast kernels in f32.
 * Sums here have at most 1031 terms below 16, so an f32 result is off by some
 * 1e-6 of the terms' size; 2e-5 of the largest element leaves a margin for
 * chains of such sums (attention, norms).  A bf16 result may round to the
 * neighbour of the reference's, 2^-7 relative at worst.
 */
#define F32_TOLERANCE 2e-5
#define BF16_TOLERANCE (1.0 / 128)
/* A norm over one column has a gradient near 0, here the difference of terms
 * that 1/sqrt(eps) = 316 makes large. */
#define CANCELLED 1e-4
/* Where queries see one key each, or dropout keeps one, the gradient of a score
 * is the difference of two equal sums of D terms, in orders of their own: a few
 * roundings, 2^-24, of partial sums below 16. */
#define ONE_KEY 4e-6
/* Between two products experts round to bf16: each term may be the neighbour
 * of the reference's. */
#define BF16_TERMS (1.0 / 256)

static void open_cpu(int threads)
{
    const struct merak_backend *b;

    assert_int_equal(merak_backend_find("cpu", &b, NULL), MERAK_OK);
    assert_int_equal(b->open(threads, NULL), MERAK_OK);
}

static bool one_column_norm(const struct kc *c)
{
    const struct merak_shape *x = &c->call.operand[0].local;

    return strstr(c->op, "norm_dx") != NULL && x->dim[x->ndim - 1] == 1;
}

static void check_output(const struct kc *got, const struct kc *want, int o)
{
    bool bf16 = want->call.operand[o].dtype == MERAK_BF16;
    double rel = bf16 ? BF16_TOLERANCE : F32_TOLERANCE;
    double size = kc_largest(want, o);
    double abs = one_column_norm(want) ? CANCELLED : F32_TOLERANCE * size;

    if (strncmp(want->op, "attention", 9) == 0)
        abs = fmax(abs, ONE_KEY);
    if (strncmp(want->op, "experts", 7) == 0 &&
        want->call.operand[0].dtype == MERAK_BF16)
        abs = fmax(abs, BF16_TERMS * size);
    kc_check_near(got, want, o, abs, rel);
}

static void run_cpu(struct kc *c)
{
    kc_run(c, "cpu");
}

static const struct kc_suite suite = {run_cpu, check_output};

static void compare_backend(const struct kc *c, const char *backend)
{
    struct kc want, got;

    kc_copy(&want, c);
    kc_copy(&got, c);
    kc_run(&want, "ref");
    kc_run(&got, backend);
    kc_check_outputs(&suite, &got, &want);
    kc_destroy(&want);
    kc_destroy(&got);
}

static void compare_with_ref(const struct kc *c)
{
    compare_backend(c, "cpu");
}

static void compare_older_sets(const struct kc *c)
{
    compare_backend(c, "cpu-base");
#ifdef MERAK_CPU_X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        compare_backend(c, "cpu-avx2");
#endif
}

static void every_op_agrees_with_the_reference_in_f32(void **state)
{
    (void)state;
    open_cpu(2);
    for (int size = 0; size < KC_SIZES; size++)
        kc_visit_all(size, MERAK_F32, compare_with_ref);
}

static void every_op_agrees_with_the_reference_in_bf16(void **state)
{
    (void)state;
    open_cpu(2);
    for (int size = 0; size < KC_SIZES; size++)
        kc_visit_all(size, MERAK_BF16, compare_with_ref);
}

/* The machine's own set is "cpu"; the others it can run must be right too. */
static void every_op_and_older_set_agree_with_the_reference(void **state)
{
    (void)state;
    open_cpu(2);
    for (int size = 1; size < KC_SIZES; size += 2) {
        kc_visit_all(size, MERAK_F32, compare_older_sets);
        kc_visit_all(size, MERAK_BF16, compare_older_sets);
    }
}

static void compare_threads(const struct kc *c);

/* Products whose operands are copied a part of k at a time: bf16 as f32, and
 * f32 with rows that are pages apart.  Few rows copy less;
 * one row is no product of matrices. */
static void wide_products_agree_with_the_reference(void **state)
{
    static const struct {
        size_t M, C, O;
    } sizes[] = {{35, 1024, 60}, {35, 60, 1024}, {2, 2048, 30},
                 {40, 1100, 60}, {1, 1100, 70},  {1, 37, 131}};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t M = sizes[i].M, C = sizes[i].C, O = sizes[i].O;
        const struct kc_row row = {.op = "linear",
                                   .n_in = 3,
                                   .n_out = 1,
                                   .attrs.i[0] = 1,
                                   .operand = {{'c', 2, {M, C}},
                                               {'c', 2, {O, C}},
                                               {'f', 1, {O}},
                                               {'c', 2, {M, O}}}};

        for (int d = 0; d < 2; d++) {
            enum merak_dtype dtype = d == 0 ? MERAK_F32 : MERAK_BF16;
            struct kc c;

            open_cpu(2);
            kc_create(&c, &row, dtype, 1);
            compare_with_ref(&c);
            kc_run(&c, "ref");
            kc_visit_gradients(&c, dtype, compare_with_ref);
            kc_visit_gradients(&c, dtype, compare_threads);
            kc_destroy(&c);
        }
    }
}

static void compare_threads(const struct kc *c)
{
    struct kc one, more;

    open_cpu(1);
    kc_copy(&one, c);
    kc_run(&one, "cpu");
    for (int threads = 2; threads <= 3; threads++) {
        open_cpu(threads);
        kc_copy(&more, c);
        kc_run(&more, "cpu");
        kc_check_same_bits(&more, &one, "the thread count");
        kc_destroy(&more);
    }
    kc_destroy(&one);
}

static void thread_counts_give_the_same_bits(void **state)
{
    (void)state;
    kc_visit_all(KC_SIZES - 1, MERAK_F32, compare_threads);
    kc_visit_all(KC_SIZES - 1, MERAK_BF16, compare_threads);
}

static void compare_addresses(const struct kc *c)
{
    kc_check_addresses(&suite, c);
}

static void addresses_give_the_same_bits(void **state)
{
    (void)state;
    open_cpu(2);
    kc_visit_all(KC_SIZES - 1, MERAK_F32, compare_addresses);
    kc_visit_all(KC_SIZES - 1, MERAK_BF16, compare_addresses);
}

static int seen;

static void compare_narrow(const struct kc *c)
{
    const struct merak_backend *cpu = NULL;

    assert_int_equal(merak_backend_find("cpu", &cpu, NULL), MERAK_OK);
    seen += kc_check_narrow(&suite, cpu, c);
}

static void gradients_in_bf16_are_rounded_once(void **state)
{
    (void)state;
    seen = 0;
    for (int size = 0; size < KC_SIZES; size++)
        kc_visit_all(size, MERAK_BF16, compare_narrow);
    assert_true(seen > 5 * KC_SIZES);
}

static void compare_cuts(const struct kc *c)
{
    seen += kc_check_cuts(&suite, c);
}

static void shards_make_the_whole(void **state)
{
    (void)state;
    open_cpu(2);
    seen = 0;
    for (int size = 1; size < KC_SIZES; size++)
        kc_visit_all(size, MERAK_F32, compare_cuts);
    assert_true(seen >= 4 * 100);
}

static void compare_slices(const struct kc *c)
{
    seen += kc_check_slices(&suite, c);
}

static void slices_of_sequences_make_the_whole(void **state)
{
    (void)state;
    open_cpu(2);
    seen = 0;
    for (int size = 0; size < KC_SIZES; size++)
        kc_visit_all(size, MERAK_F32, compare_slices);
    assert_true(seen >= 4 * 3);
}

static void run_ref(struct kc *c)
{
    kc_run(c, "ref");
}

static void sequences_in_pieces_make_the_whole(void **state)
{
    const struct kc_suite reference = {run_ref, suite.check};

    (void)state;
    open_cpu(2);
    kc_check_pieces(&reference, MERAK_F32);
    kc_check_pieces(&suite, MERAK_F32);
    kc_check_pieces(&suite, MERAK_BF16);
}

/* Sequences of several tiles: edges of windows inside them and between, and
 * windows of more than there is. */
static void windows_and_dropout_agree_with_the_reference(void **state)
{
    static const int64_t windows[] = {1, 5, 63, 64, 65, 100, 129, 192, 500};
    struct kc_row row = {.op = "attention",
                         .n_in = 3,
                         .n_out = 2,
                         .operand = {{'c', 5, {1, 198, 1, 2, 4}},
                                     {'c', 4, {1, 198, 1, 4}},
                                     {'c', 4, {1, 198, 1, 4}},
                                     {'c', 5, {1, 198, 1, 2, 4}},
                                     {'f', 4, {1, 198, 1, 2}}}};

    (void)state;
    for (size_t i = 0; i < sizeof(windows) / sizeof(*windows); i++) {
        struct kc c;

        row.attrs = (struct merak_attrs){
            .i = {3, windows[i]},
            .f = {i % 2 == 0 ? 0.2 : 0, 0, i % 3 == 0 ? 1.5 : 0}};
        open_cpu(2);
        kc_create(&c, &row, MERAK_F32, 1);
        compare_with_ref(&c);
        compare_older_sets(&c);
        compare_slices(&c);
        compare_cuts(&c);
        kc_run(&c, "ref");
        kc_visit_gradients(&c, MERAK_F32, compare_with_ref);
        kc_visit_gradients(&c, MERAK_F32, compare_older_sets);
        kc_visit_gradients(&c, MERAK_F32, compare_slices);
        kc_visit_gradients(&c, MERAK_F32, compare_cuts);
        kc_visit_gradients(&c, MERAK_F32, compare_threads);
        kc_destroy(&c);
    }
}

static void compare_mask(const struct kc *c)
{
    open_cpu(2);
    compare_with_ref(c);
    compare_older_sets(c);
    compare_cuts(c);
    compare_threads(c);
}

static void masks_agree_with_the_reference(void **state)
{
    struct kc_row row;

    (void)state;
    for (int i = 0; i < kc_mask_row(i, &row); i++) {
        kc_visit_row(&row, MERAK_F32, compare_mask);
        kc_visit_row(&row, MERAK_BF16, compare_with_ref);
    }
}

/* Tasks of this process, by the kernel's count. */
static int task_count(void)
{
    DIR *dir = opendir("/proc/self/task");
    int n = -2; /* . and .. */

    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static void run_alone(const struct kc *c)
{
    struct kc copy;

    kc_copy(&copy, c);
    kc_run(&copy, "cpu");
    kc_destroy(&copy);
}

/* oneDNN called on a worker would else start an OpenMP team of its own there,
 * as large as the machine. */
static void products_start_no_threads_of_their_own(void **state)
{
    int before;

    (void)state;
    open_cpu(2);
    before = task_count();
    kc_visit_all(KC_SIZES - 1, MERAK_F32, run_alone);
    kc_visit_all(KC_SIZES - 1, MERAK_BF16, run_alone);
    assert_int_equal(task_count(), before);
    open_cpu(1);
    /* what was joined may be listed a little longer, most of all by qemu */
    for (int i = 0; i < 1000 && task_count() != before - 1; i++)
        usleep(5000);
    assert_int_equal(task_count(), before - 1);
}

#define NAME(op, cpu, cuda) #op,
static const char *const ops[] = {MERAK_KERNEL_OPS(NAME)};
#undef NAME
static bool has_case[sizeof(ops) / sizeof(*ops)];

static void note_case(const struct kc *c)
{
    size_t i = 0;

    while (i < sizeof(ops) / sizeof(*ops) && strcmp(ops[i], c->op) != 0)
        i++;
    if (i == sizeof(ops) / sizeof(*ops))
        fail_msg("%s is not in kernels/ops.h", c->op);
    has_case[i] = true;
}

static void every_op_has_a_case(void **state)
{
    (void)state;
    kc_visit_all(0, MERAK_F32, note_case);
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
        if (!has_case[i])
            fail_msg("no row of kcase_rows.c runs %s", ops[i]);
}

static void evaluation_drops_nothing(void **state)
{
    struct kc_row row[KC_MAX_ROWS];
    struct kc c, whole;
    int r = 0;

    (void)state;
    open_cpu(1);
    (void)kc_rows(1, row, KC_MAX_ROWS);
    while (strcmp(row[r].op, "dropout") != 0)
        r++;
    kc_create(&c, &row[r], MERAK_F32, 1);
    c.step.train = false;
    kc_run(&c, "cpu");
    for (size_t i = 0; i < kc_count(&c, 0); i++)
        assert_true(kc_get(&c, 1, i) == kc_get(&c, 0, i));
    kc_destroy(&c);
    while (row[r].attrs.f[0] == 0 || strcmp(row[r].op, "attention_packed") != 0)
        r++;
    kc_create(&c, &row[r], MERAK_F32, 1);
    kc_copy(&whole, &c);
    whole.attrs.f[0] = 0;
    c.step.train = false;
    kc_run(&c, "cpu");
    kc_run(&whole, "cpu");
    kc_check_same_bits(&c, &whole, "evaluation");
    kc_destroy(&whole);
    kc_destroy(&c);
}

static void other_dtypes_are_refused(void **state)
{
    struct kc_row row[KC_MAX_ROWS];
    const struct merak_backend *b;
    int n = kc_rows(0, row, KC_MAX_ROWS);

    (void)state;
    open_cpu(1);
    assert_int_equal(merak_backend_find("cpu", &b, NULL), MERAK_OK);
    for (int r = 0; r < n; r++) {
        const struct merak_kernel *k;
        struct merak_error err;
        struct kc c;

        if (row[r].operand[0].type == KC_DOUBLE ||
            row[r].operand[0].type == KC_BF16 ||
            (row[r].n_in == 1 && row[r].operand[0].type == KC_REST))
            continue; /* it reads f64 in any case, or a gradient in bf16, or
                         numbers of experts only */
        kc_create(&c, &row[r], MERAK_F64, 1);
        c.call.attrs = &c.attrs;
        c.call.step = &c.step;
        assert_int_equal(merak_kernel_find(b, row[r].op, &k, &err), MERAK_OK);
        assert_int_equal(k->fn(&c.call, &err), MERAK_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.text, "f64"));
        kc_destroy(&c);
    }
}

/* Before a step is run, of a backend as a whole. */
static void dtypes_are_checked_before_a_run(void **state)
{
    const struct merak_backend narrow = {.name = "narrow",
                                         .dtypes = 1u << MERAK_F32};
    const struct merak_backend *b;
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_backend_check_dtype(&narrow, MERAK_F32, &err),
                     MERAK_OK);
    assert_int_equal(merak_backend_check_dtype(&narrow, MERAK_BF16, &err),
                     MERAK_ERR_CONFIG);
    assert_string_equal(err.text, "backend \"narrow\" does not compute in "
                                  "bf16 here: use --dtype fp32");
    assert_int_equal(merak_backend_find("cpu", &b, NULL), MERAK_OK);
    assert_int_equal(merak_backend_check_dtype(b, MERAK_BF16, &err), MERAK_OK);
    assert_int_equal(merak_backend_check_dtype(b, MERAK_F64, &err),
                     MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "use --dtype fp32 or bf16"));
    assert_int_equal(merak_backend_find("ref", &b, NULL), MERAK_OK);
    assert_int_equal(merak_backend_check_dtype(b, MERAK_F64, &err), MERAK_OK);
}

/* bf16 is told to be a detour where it is one, and there alone. */
static void what_computes_is_said(void **state)
{
    const struct merak_backend *b;
    char f32[160], bf16[160];

    (void)state;
    assert_int_equal(merak_backend_find("cpu", &b, NULL), MERAK_OK);
    merak_backend_describe(b, MERAK_F32, f32, sizeof(f32));
    merak_backend_describe(b, MERAK_BF16, bf16, sizeof(bf16));
    assert_non_null(strstr(f32, " kernels, products by oneDNN "));
    assert_null(strstr(f32, "as fp32"));
    assert_true(merak_backend_is_native(b, MERAK_F32));
    assert_int_equal(strstr(bf16, "bf16 as fp32") == NULL,
                     merak_backend_is_native(b, MERAK_BF16));
    if (strncmp(f32, "avx512", 6) != 0)
        assert_false(merak_backend_is_native(b, MERAK_BF16));
    assert_int_equal(merak_backend_find("emu", &b, NULL), MERAK_OK);
    merak_backend_describe(b, MERAK_F32, f32, sizeof(f32));
    assert_string_equal(f32, "");
}

static void thread_counts_are_checked(void **state)
{
    const struct merak_backend *b;
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_backend_find("cpu", &b, NULL), MERAK_OK);
    assert_int_equal(b->open(0, &err), MERAK_ERR_PARAM);
    assert_non_null(strstr(err.text, "threads is 0"));
}

/* Rows of all that was asked for stay what they are, and grow. */
static void angles_are_kept_apart(void **state)
{
    static const struct {
        double theta, factor;
        size_t D, positions;
    } asked[] = {{1e4, 1, 8, 5}, {5e5, 1, 8, 5}, {1e4, 1, 32, 3},
                 {1e4, 3, 8, 5}, {1e4, 1, 8, 4}, {1e4, 1, 8, 9},
                 {5e5, 1, 8, 2}, {1e4, 3, 8, 9}, {1e4, 1, 32, 7}};
    const float *row;

    (void)state;
    for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
        size_t D = asked[i].D;
        const struct merak_attrs attrs = {
            .i = {(int64_t)i % 2, 1}, .f = {asked[i].theta, asked[i].factor}};

        assert_int_equal(
            merak_angles(&attrs, D, asked[i].positions, &row, NULL), MERAK_OK);
        for (size_t t = 0; t < asked[i].positions; t++) {
            for (size_t k = 0; k < D / 2; k++) {
                double angle =
                    (double)t / asked[i].factor *
                    pow(asked[i].theta, -2.0 * (double)k / (double)D);

                assert_true(fabs(row[t * D + k] - cos(angle)) < 1e-7);
                assert_true(fabs(row[t * D + D / 2 + k] - sin(angle)) < 1e-7);
            }
        }
    }
}

/* An argument is a pattern of the tests to run, or with - before it of those to
 * leave out. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_start_no_threads_of_their_own),
        cmocka_unit_test(every_op_has_a_case),
        cmocka_unit_test(every_op_agrees_with_the_reference_in_f32),
        cmocka_unit_test(every_op_agrees_with_the_reference_in_bf16),
        cmocka_unit_test(every_op_and_older_set_agree_with_the_reference),
        cmocka_unit_test(wide_products_agree_with_the_reference),
        cmocka_unit_test(thread_counts_give_the_same_bits),
        cmocka_unit_test(addresses_give_the_same_bits),
        cmocka_unit_test(gradients_in_bf16_are_rounded_once),
        cmocka_unit_test(shards_make_the_whole),
        cmocka_unit_test(slices_of_sequences_make_the_whole),
        cmocka_unit_test(sequences_in_pieces_make_the_whole),
        cmocka_unit_test(windows_and_dropout_agree_with_the_reference),
        cmocka_unit_test(masks_agree_with_the_reference),
        cmocka_unit_test(evaluation_drops_nothing),
        cmocka_unit_test(other_dtypes_are_refused),
        cmocka_unit_test(dtypes_are_checked_before_a_run),
        cmocka_unit_test(what_computes_is_said),
        cmocka_unit_test(thread_counts_are_checked),
        cmocka_unit_test(angles_are_kept_apart),
    };

    if (argc > 1 && argv[1][0] == '-')
        cmocka_set_skip_filter(argv[1] + 1);
    else if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("kernels_cpu", tests, NULL, NULL);
}
