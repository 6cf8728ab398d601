/* SPDX-License-Identifier: Apache-2.0 */
/* test_topk.c - which elements of a row are packed, and that they come back to
 * their places; finite differences are in test_kernels_ref.c */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/raw_call.h"

#include "base/error.h"
#include "base/rng.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

#define MOST 512

static void run(const char *backend, const char *op, size_t rows, size_t K,
                size_t C, enum merak_dtype dtype, void *x, uint32_t *at,
                void *to)
{
    struct merak_attrs attrs = {.i = {(int64_t)K, (int64_t)C}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 2, .n_out = 1};
    const size_t whole[] = {rows, C}, part[] = {rows, K},
                 bits[] = {rows, (C + 31) / 32};
    bool packs = strcmp(op, "topk_pack") == 0;
    const struct merak_backend *b;
    const struct merak_kernel *k;

    if (packs)
        call.n_in = 1, call.n_out = 2;
    call.operand[0] =
        raw_operand(x, dtype, 2, strcmp(op, "topk_unpack") == 0 ? part : whole);
    call.operand[packs ? 2 : 1] = raw_operand(at, MERAK_I32, 2, bits);
    call.operand[packs ? 1 : 2] = raw_operand(
        to, dtype, 2, strcmp(op, "topk_unpack") == 0 ? whole : part);
    assert_int_equal(merak_backend_find(backend, &b, NULL), MERAK_OK);
    assert_int_equal(merak_kernel_find(b, op, &k, NULL), MERAK_OK);
    assert_int_equal(k->fn(&call, NULL), MERAK_OK);
}

static const char *const backends[] = {"ref", "cpu"};

struct row {
    size_t C, K;
    float x[8];
    uint32_t at;
    float v[8];
};

static void the_largest_are_packed_in_their_order(void **state)
{
    static const struct row rows[] = {
        /* 0.6 comes before -0.6 */
        {8,
         3,
         {.3f, -.9f, .05f, .9f, -.2f, .6f, -.6f, .1f},
         1u << 1 | 1u << 3 | 1u << 5,
         {-.9f, .9f, .6f}},
        {4, 1, {1, -2, INFINITY, NAN}, 1u << 3, {NAN}},
        {4, 2, {NAN, -INFINITY, -NAN, 3}, 1u << 0 | 1u << 2, {NAN, -NAN}},
        {5, 2, {0, -0.0f, 0, 0, 0}, 3, {0, -0.0f}},
        {3, 3, {2, 0, -1}, 7, {2, 0, -1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        for (size_t b = 0; b < 2; b++) {
            struct row r = rows[i];
            float v[8], y[8];
            uint32_t at;

            run(backends[b], "topk_pack", 1, r.K, r.C, MERAK_F32, r.x, &at, v);
            assert_int_equal(at, r.at);
            assert_memory_equal(v, r.v, r.K * sizeof(*v));
            run(backends[b], "topk_unpack", 1, r.K, r.C, MERAK_F32, v, &at, y);
            for (size_t e = 0; e < r.C; e++) {
                float want = at >> e & 1 ? r.x[e] : 0;

                assert_memory_equal(&y[e], &want, sizeof(want));
            }
        }
    }
}

/* Of the sum of squares, 2.4825. */
static void what_is_kept_is_most_of_a_row(void **state)
{
    float x[] = {.3f, -.9f, .05f, .9f, -.2f, .6f, -.6f, .1f}, v[3];
    double all = 0, kept = 0, want = .797583;
    uint32_t at;

    (void)state;
    run("cpu", "topk_pack", 1, 3, 8, MERAK_F32, x, &at, v);
    for (int i = 0; i < 8; i++)
        all += (double)x[i] * (double)x[i];
    for (int i = 0; i < 3; i++)
        kept += (double)v[i] * (double)v[i];
    kept /= all;
    assert_near(&kept, &want, 1, 0, 1e-6);
}

/* Rows of few different magnitudes, so that some of the equal ones are left
 * out; backends agree to the bit, and what was packed is packed again as it
 * was. */
static void fill(uint64_t key, size_t n, enum merak_dtype dtype, int levels,
                 void *x)
{
    for (size_t i = 0; i < n; i++) {
        int level = (int)(merak_rng_uniform(key, i) * (float)levels);
        float f = ldexpf((float)(level - levels / 2), level % 5 - 2);

        if (dtype == MERAK_BF16)
            ((uint16_t *)x)[i] = merak_f32_to_bf16(f);
        else
            ((float *)x)[i] = f;
    }
}

static void backends_choose_alike(void **state)
{
    static const struct {
        size_t rows, C, K;
        int levels;
    } shapes[] = {{37, 100, 13, 5},  {3, 65, 64, 7}, {2, 512, 64, 1000},
                  {1, 31, 1, 3},     {5, 96, 12, 2}, {4, 33, 5, 1},
                  {1, 512, 511, 40}, {2, 64, 64, 10}};

    (void)state;
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            enum merak_dtype dtype = bf16 ? MERAK_BF16 : MERAK_F32;
            size_t R = shapes[s].rows, C = shapes[s].C, K = shapes[s].K;
            size_t W = (C + 31) / 32, bytes = merak_dtype_bytes(dtype);
            static float x[37 * MOST], v[3][37 * MOST], y[37 * MOST];
            static uint32_t at[3][37 * MOST / 32];

            fill(s, R * C, dtype, shapes[s].levels, x);
            for (int b = 0; b < 2; b++)
                run(backends[b], "topk_pack", R, K, C, dtype, x, at[b], v[b]);
            assert_memory_equal(at[0], at[1], R * W * sizeof(**at));
            assert_memory_equal(v[0], v[1], R * K * bytes);
            run("cpu", "topk_unpack", R, K, C, dtype, v[1], at[1], y);
            run("cpu", "topk_take", R, K, C, dtype, y, at[1], v[2]);
            assert_memory_equal(v[2], v[1], R * K * bytes);
            run("cpu", "topk_pack", R, K, C, dtype, y, at[2], v[2]);
            run("cpu", "topk_unpack", R, K, C, dtype, v[2], at[2], x);
            assert_memory_equal(x, y, R * C * bytes);
        }
    }
}

static void numbers_of_elements_are_checked(void **state)
{
    static const struct {
        const char *op;
        int64_t K, C;
        const char *text;
    } rows[] = {
        {"topk_pack", 0, 8, "keeps 0 of 8 elements of a row"},
        {"topk_pack", 9, 8, "keeps 9 of 8 elements of a row"},
        {"topk_pack", 2, 9, "x is [2,8], but dim 1 must be 9"},
        {"topk_take", 2, 9, "dy is [2,8], but dim 1 must be 9"},
        {"topk_unpack", 3, 8, "v is [2,8], but dim 1 must be 3"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct merak_op *op = merak_op_find(rows[i].op);
        struct merak_attrs attrs = {.i = {rows[i].K, rows[i].C}};
        struct merak_infer inf = {.attrs = &attrs,
                                  .n_in = op->min_in,
                                  .n_out = op->n_out,
                                  .shape = {{2, {2, 8}}, {2, {2, 1}}},
                                  .dtype = {MERAK_F32, MERAK_I32}};
        struct merak_error err = {.text = ""};

        assert_int_equal(op->infer(&inf, &err), MERAK_ERR_PARAM);
        assert_non_null(strstr(err.text, rows[i].text));
    }
}

static int open_cpu(void **state)
{
    const struct merak_backend *b;

    (void)state;
    return merak_backend_find("cpu", &b, NULL) != MERAK_OK ||
           b->open(2, NULL) != MERAK_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_are_packed_in_their_order),
        cmocka_unit_test(what_is_kept_is_most_of_a_row),
        cmocka_unit_test(backends_choose_alike),
        cmocka_unit_test(numbers_of_elements_are_checked),
    };

    return cmocka_run_group_tests_name("topk", tests, open_cpu, NULL);
}
