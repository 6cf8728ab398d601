/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels_cuda.c - the bodies of the CUDA kernels, run on the host,
 * against the reference: every op, odd sizes, f32 and bf16, threads in any
 * order, any address, shards against the whole
 */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/cuda_calls.h"
#include "unit/kernels/cuda_case.h"
#include "unit/kernels/cuda_host.h"

#include "kernels/cuda/cuda_ops.h"
#include "kernels/geometry.h"
#include "kernels/ops.h"

#include <stdlib.h>
#include <string.h>

static int seen;

static void compare_slices(const struct kc *c)
{
    seen += kc_check_slices(&cuda_suite, c);
}

static void every_op_agrees_with_the_reference_in_f32(void **state)
{
    (void)state;
    for (int size = 0; size < KC_SIZES; size++)
        kc_visit_all(size, MERAK_F32, cuda_compare_with_ref);
}

static void every_op_agrees_with_the_reference_in_bf16(void **state)
{
    (void)state;
    for (int size = 0; size < KC_SIZES; size++)
        kc_visit_all(size, MERAK_BF16, cuda_compare_with_ref);
}

static void every_op_has_a_kernel(void **state)
{
#define NAME(op, cpu, cuda) #op,
    static const char *const ops[] = {MERAK_KERNEL_OPS(NAME)};
#undef NAME
    const size_t n = sizeof(ops) / sizeof(*ops);
    size_t rows = 0;

    (void)state;
    while (merak_cuda_kernels[rows].name != NULL)
        rows++;
    assert_int_equal(rows, n);
    for (size_t i = 0; i < n; i++) {
        const struct merak_kernel *k;

        assert_int_equal(merak_kernel_find(&cuda_host, ops[i], &k, NULL),
                         MERAK_OK);
        assert_string_equal(k->name, ops[i]);
    }
}

/* Rows that blocks share and not warps, of an odd length and an even; more
 * rows than gradients of weights take at once; more tokens than are sorted at
 * once. */
static void long_rows_and_columns_agree_with_the_reference(void **state)
{
    static const size_t lengths[] = {2051, 2304};

    (void)state;
    for (int i = 0; i < 4; i++) {
        enum merak_dtype dtype = i % 2 == 0 ? MERAK_F32 : MERAK_BF16;
        size_t C = lengths[i / 2], n = 3;
        const struct kc_row rows[] = {
            {.op = "layernorm",
             .n_in = 3,
             .n_out = 3,
             .attrs.f[0] = 1e-5,
             .operand = {{'c', 2, {n, C}},
                         {'p', 1, {C}},
                         {'f', 1, {C}},
                         {'c', 2, {n, C}},
                         {'f', 1, {n}},
                         {'f', 1, {n}}}},
            {.op = "rmsnorm",
             .n_in = 2,
             .n_out = 2,
             .attrs.f[0] = 1e-5,
             .operand = {{'c', 2, {n, C}},
                         {'p', 1, {C}},
                         {'c', 2, {n, C}},
                         {'f', 1, {n}}}},
            {.op = "xent_max",
             .n_in = 1,
             .n_out = 1,
             .operand = {{'c', 2, {n, C}}, {'f', 1, {n}}}},
            {.op = "xent_sum",
             .n_in = 3,
             .n_out = 2,
             .vocab = C,
             .operand = {{'c', 2, {n, C}},
                         {'p', 1, {n}},
                         {'i', 1, {n}},
                         {'f', 1, {n}},
                         {'f', 1, {n}}}},
            {.op = "xent_dlogits",
             .n_in = 4,
             .n_out = 1,
             .vocab = C,
             .attrs.f[0] = 0.5,
             .operand = {{'c', 2, {n, C}},
                         {'p', 1, {n}},
                         {'p', 1, {n}},
                         {'i', 1, {n}},
                         {'c', 2, {n, C}}}},
            {.op = "linear",
             .n_in = 3,
             .n_out = 1,
             .attrs.i[0] = 1,
             .operand = {{'c', 2, {301, 5}},
                         {'c', 2, {9, 5}},
                         {'f', 1, {9}},
                         {'c', 2, {301, 9}}}},
            {.op = "embedding",
             .n_in = 2,
             .n_out = 1,
             .vocab = 50,
             .operand = {{'i', 2, {1, 1500}},
                         {'c', 2, {60, 3}},
                         {'c', 3, {1, 1500, 3}}}}};

        for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
            kc_visit_row(&rows[r], dtype, cuda_compare_with_ref);
    }
}

static void compare_orders(const struct kc *c)
{
    struct kc one, other;

    kc_copy(&one, c);
    cuda_host_seed(1);
    cuda_run(&one);
    for (uint64_t seed = 2; seed < 5; seed++) {
        cuda_host_seed(seed);
        kc_copy(&other, c);
        cuda_run(&other);
        kc_check_same_bits(&other, &one, "the order of threads");
        kc_destroy(&other);
    }
    kc_destroy(&one);
}

static void orders_of_threads_give_the_same_bits(void **state)
{
    (void)state;
    for (int size = 1; size < KC_SIZES; size += 2) {
        kc_visit_all(size, MERAK_F32, compare_orders);
        kc_visit_all(size, MERAK_BF16, compare_orders);
    }
}

static void compare_addresses(const struct kc *c)
{
    kc_check_addresses(&cuda_suite, c);
}

static void addresses_give_the_same_bits(void **state)
{
    (void)state;
    kc_visit_all(KC_SIZES - 1, MERAK_F32, compare_addresses);
    kc_visit_all(KC_SIZES - 1, MERAK_BF16, compare_addresses);
}

static void compare_narrow(const struct kc *c)
{
    seen += kc_check_narrow(&cuda_suite, &cuda_host, c);
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
    seen += kc_check_cuts(&cuda_suite, c);
}

#define SAME(...)        \
    {'c', __VA_ARGS__},  \
    {                    \
        'c', __VA_ARGS__ \
    }

/* Sizes of which 16-byte pieces go together: several loads of a thread, strips
 * of runs and what is left of them, tokens of one row by hundreds, blocks of
 * columns, samples that share sines.  At other addresses the same is done
 * element by element, with the same bits. */
static void whole_pieces_agree_with_the_reference(void **state)
{
    static const struct kc_row rows[] = {
        {.op = "embedding",
         .n_in = 2,
         .n_out = 1,
         .vocab = 6,
         .operand = {{'i', 2, {1, 2500}},
                     {'c', 2, {10, 16}},
                     {'c', 3, {1, 2500, 16}}}},
        {.op = "embedding",
         .n_in = 2,
         .n_out = 1,
         .vocab = 90,
         .attrs.f[0] = 2.5,
         .operand = {{'i', 2, {2, 65}},
                     {'c', 2, {90, 1040}},
                     {'c', 3, {2, 65, 1040}}}},
        {.op = "add_position",
         .n_in = 2,
         .n_out = 1,
         .operand = {{'c', 3, {6, 3, 24}},
                     {'c', 2, {5, 24}},
                     {'c', 3, {6, 3, 24}}}},
        {.op = "add_position",
         .n_in = 3,
         .n_out = 1,
         .operand = {{'c', 3, {6, 7, 24}},
                     {'c', 2, {9, 24}},
                     {'s', 2, {6, 7}},
                     {'c', 3, {6, 7, 24}}}},
        {.op = "rope",
         .n_in = 1,
         .n_out = 1,
         .attrs.f[0] = 10000,
         .operand = {SAME(5, {5, 7, 2, 3, 32})}},
        {.op = "rope", /* half of the channels; a piece of f32, none of bf16 */
         .n_in = 1,
         .n_out = 1,
         .attrs = {.i[3] = 24, .f[0] = 10000},
         .operand = {SAME(5, {3, 2, 2, 1, 48})}},
        {.op = "rope",
         .n_in = 1,
         .n_out = 1,
         .attrs = {.i[3] = 16, .f[0] = 10000},
         .operand = {SAME(5, {3, 2, 2, 1, 48})}},
        {.op = "rope", /* by two launches */
         .n_in = 1,
         .n_out = 1,
         .attrs.f[0] = 10000,
         .operand = {SAME(5, {3, 2, 1, 1, 272})}},
        {.op = "dropout",
         .n_in = 1,
         .n_out = 1,
         .attrs = {.i[0] = 5, .f[0] = 0.3},
         .operand = {SAME(3, {2, 3, 1040})}},
        {.op = "dropout", /* cut at 64, 30 and 15 of the channels */
         .n_in = 1,
         .n_out = 1,
         .attrs = {.i[0] = 5, .f[0] = 0.3},
         .operand = {SAME(3, {3, 5, 96})}},
        {.op = "dropout",
         .n_in = 1,
         .n_out = 1,
         .attrs = {.i[0] = 5, .f[0] = 0.3},
         .operand = {SAME(3, {3, 5, 45})}},
        {.op = "dropout",
         .n_in = 1,
         .n_out = 1,
         .attrs = {.i[0] = 5, .f[0] = 0.3},
         .operand = {SAME(3, {3, 5, 23})}},
        {.op = "gelu", .n_in = 1, .n_out = 1, .operand = {SAME(2, {5, 1003})}},
        {.op = "softcap",
         .n_in = 1,
         .n_out = 1,
         .attrs.f[0] = 1.5,
         .operand = {SAME(2, {7, 1208})}},
        {.op = "scale",
         .n_in = 1,
         .n_out = 1,
         .attrs.f[0] = -0.7,
         .operand = {SAME(2, {7, 1208})}},
        {.op = "swiglu",
         .n_in = 2,
         .n_out = 1,
         .operand = {SAME(2, {9, 1024}), {'c', 2, {9, 1024}}}},
        {.op = "sumsq",
         .n_in = 1,
         .n_out = 1,
         .operand = {{'f', 1, {5003}}, {'d', 1, {1}}}},
        {.op = "adamw",
         .n_in = 2,
         .n_out = 4,
         .attrs.i[0] = 1,
         .operand = {{'f', 1, {9001}},
                     {'p', 1, {2}},
                     {'f', 1, {9001}},
                     {'f', 1, {9001}},
                     {'p', 1, {9001}},
                     {'b', 1, {9001}}}}};

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        for (int d = 0; d < 2; d++) {
            enum merak_dtype dtype = d == 0 ? MERAK_F32 : MERAK_BF16;

            kc_visit_row(&rows[r], dtype, cuda_compare_with_ref);
            kc_visit_row(&rows[r], dtype, compare_addresses);
            kc_visit_row(&rows[r], dtype, compare_cuts);
        }
    }
}

static void shards_make_the_whole(void **state)
{
    (void)state;
    seen = 0;
    for (int size = 1; size < KC_SIZES; size++)
        kc_visit_all(size, MERAK_F32, compare_cuts);
    assert_true(seen >= 4 * 21);
}

static void slices_of_sequences_make_the_whole(void **state)
{
    (void)state;
    seen = 0;
    for (int size = 0; size < KC_SIZES; size++)
        kc_visit_all(size, MERAK_F32, compare_slices);
    assert_true(seen >= 4 * 3);
}

/* Elements written over logits, as where both have one slot. */
static void gradients_of_logits_are_made_in_place(void **state)
{
    struct kc_row row[KC_MAX_ROWS];
    struct kc c, want;
    int r = 0;

    (void)state;
    (void)kc_rows(KC_SIZES - 1, row, KC_MAX_ROWS);
    while (strcmp(row[r].op, "xent_dlogits") != 0)
        r++;
    for (int d = 0; d < 2; d++) {
        void *out;

        kc_create(&c, &row[r], d == 0 ? MERAK_F32 : MERAK_BF16, 1);
        kc_copy(&want, &c);
        cuda_run(&want);
        out = c.call.operand[4].data;
        c.call.operand[4].data = c.call.operand[0].data;
        cuda_run(&c);
        kc_check_same_bits(&c, &want, "the place");
        c.call.operand[4].data = out;
        kc_destroy(&want);
        kc_destroy(&c);
    }
}

/* Rows of which the vocabulary's rest is staged do so in parts. */
static void staged_rows_are_few_at_once(void **state)
{
    const struct kc_row row = {.op = "linear",
                               .n_in = 2,
                               .n_out = 1,
                               .attrs.i[0] = 1,
                               .operand = {{'c', 2, {301, 8}},
                                           {'c', 2, {21, 8}},
                                           {'c', 2, {301, 21}}}};
    struct kc c;

    (void)state;
    kc_create(&c, &row, MERAK_BF16, 1);
    cuda_run(&c);
    assert_int_equal(cuda_products, 3); /* 128 rows each */
    kc_destroy(&c);
    kc_create(&c, &row, MERAK_F32, 1);
    cuda_run(&c);
    assert_int_equal(cuda_products, 1);
    kc_destroy(&c);
}

/* An id that no shard has is reported, and its row is zeros. */
static void ids_outside_the_vocabulary_are_reported(void **state)
{
    static const struct {
        const char *op;
        int ids;
    } ops[] = {{"embedding", 0}, {"xent_sum", 2}};
    static const double bad[] = {-2, 17, 1e9};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct kc_row row[KC_MAX_ROWS];
        const struct merak_kernel *k;
        struct merak_error err, same;
        struct kc c;
        int r = 0;

        (void)kc_rows(1, row, KC_MAX_ROWS);
        while (strcmp(row[r].op, ops[i / 3].op) != 0)
            r++;
        kc_create(&c, &row[r], MERAK_F32, 1);
        kc_set(&c, ops[i / 3].ids, 3, bad[i % 3]);
        c.call.attrs = &c.attrs;
        c.call.step = &c.step;
        c.call.device = (void *)(uintptr_t)&cuda_context;
        cuda_fault.raised = 0;
        assert_int_equal(merak_cuda_check_fault(&cuda_fault, &err), MERAK_OK);
        assert_int_equal(merak_kernel_find(&cuda_host, c.op, &k, NULL),
                         MERAK_OK);
        assert_int_equal(k->fn(&c.call, &err), MERAK_OK);
        assert_int_equal(merak_cuda_check_fault(&cuda_fault, &err),
                         MERAK_ERR_PARAM);
        assert_int_equal(
            i < 3 ? merak_check_ids(&c.call.operand[0], 17, "token", &same)
                  : merak_check_targets(&c.call.operand[2], 17, &same),
            MERAK_ERR_PARAM);
        assert_string_equal(err.text, same.text);
        kc_destroy(&c);
    }
    cuda_fault.raised = 0;
}

static void evaluation_drops_nothing(void **state)
{
    struct kc_row row[KC_MAX_ROWS];
    struct kc c;
    int r = 0;

    (void)state;
    (void)kc_rows(1, row, KC_MAX_ROWS);
    while (strcmp(row[r].op, "dropout") != 0)
        r++;
    kc_create(&c, &row[r], MERAK_F32, 1);
    c.step.train = false;
    cuda_run(&c);
    for (size_t i = 0; i < kc_count(&c, 0); i++)
        assert_true(kc_get(&c, 1, i) == kc_get(&c, 0, i));
    kc_destroy(&c);
}

/* Each pass drops others, those that the reference drops. */
static void passes_drop_what_the_reference_drops(void **state)
{
    struct kc_row row[KC_MAX_ROWS];
    int r = 0;

    (void)state;
    (void)kc_rows(3, row, KC_MAX_ROWS);
    while (strcmp(row[r].op, "dropout") != 0)
        r++;
    for (int pass = 0; pass < 3; pass++) {
        struct kc c, want;

        kc_create(&c, &row[r], MERAK_F32, 1);
        c.step.pass = pass;
        kc_copy(&want, &c);
        cuda_run(&c);
        kc_run(&want, "ref");
        for (size_t i = 0; i < kc_count(&c, 1); i++)
            assert_int_equal(kc_get(&c, 1, i) == 0, kc_get(&want, 1, i) == 0);
        kc_destroy(&want);
        kc_destroy(&c);
    }
}

static void other_dtypes_are_refused(void **state)
{
    struct kc_row row[KC_MAX_ROWS];
    int n = kc_rows(0, row, KC_MAX_ROWS);

    (void)state;
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
        assert_int_equal(merak_kernel_find(&cuda_host, row[r].op, &k, &err),
                         MERAK_OK);
        assert_int_equal(k->fn(&c.call, &err), MERAK_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.text, "f64"));
        kc_destroy(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_kernel),
        cmocka_unit_test(every_op_agrees_with_the_reference_in_f32),
        cmocka_unit_test(every_op_agrees_with_the_reference_in_bf16),
        cmocka_unit_test(long_rows_and_columns_agree_with_the_reference),
        cmocka_unit_test(orders_of_threads_give_the_same_bits),
        cmocka_unit_test(addresses_give_the_same_bits),
        cmocka_unit_test(gradients_in_bf16_are_rounded_once),
        cmocka_unit_test(whole_pieces_agree_with_the_reference),
        cmocka_unit_test(shards_make_the_whole),
        cmocka_unit_test(slices_of_sequences_make_the_whole),
        cmocka_unit_test(gradients_of_logits_are_made_in_place),
        cmocka_unit_test(staged_rows_are_few_at_once),
        cmocka_unit_test(cuda_many_tensors_give_the_bits_of_each),
        cmocka_unit_test(cuda_boxes_are_packed),
        cmocka_unit_test(cuda_pieces_are_combined_in_member_order),
        cmocka_unit_test(ids_outside_the_vocabulary_are_reported),
        cmocka_unit_test(evaluation_drops_nothing),
        cmocka_unit_test(passes_drop_what_the_reference_drops),
        cmocka_unit_test(other_dtypes_are_refused),
    };

    return cmocka_run_group_tests_name("kernels_cuda", tests, NULL, NULL);
}
