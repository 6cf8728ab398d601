/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels_cuda_attention.c - the bodies of attention's CUDA kernels, run
 * on the host, against the reference: tiles, windows, documents, dropout
 */
#include "config.h"

#include "unit/all_rows.h"
#include "unit/near.h"

#include "unit/kernels/cuda_case.h"
#include "unit/kernels/kmasks.h"
#include "unit/kernels/kpieces.h"

#include "kernels/kernels.h"

#include <string.h>

static void compare_slices(const struct kc *c)
{
    (void)kc_check_slices(&cuda_suite, c);
}

/* Among others by queries, which then end before the keys do. */
static void compare_cuts(const struct kc *c)
{
    (void)kc_check_cuts(&cuda_suite, c);
}

/* Sequences of several tiles: edges of windows inside them and between, and
 * windows of more than there is; with dropout, and with a soft cap. */
static void windows_and_dropout_agree_with_the_reference(void **state)
{
    static const int64_t windows[] = {1, 5, 31, 32, 63, 64, 65, 100, 500};
    struct kc_row row = {.op = "attention",
                         .n_in = 3,
                         .n_out = 2,
                         .operand = {{'c', 5, {1, 150, 1, 2, 4}},
                                     {'c', 4, {1, 150, 1, 4}},
                                     {'c', 4, {1, 150, 1, 4}},
                                     {'c', 5, {1, 150, 1, 2, 4}},
                                     {'f', 4, {1, 150, 1, 2}}}};

    (void)state;
    for (size_t i = 0; i < sizeof(windows) / sizeof(*windows); i++) {
        row.attrs = (struct merak_attrs){
            .i = {3, windows[i]},
            .f = {i % 2 == 0 ? 0.2 : 0, 0, i % 3 == 0 ? 1.5 : 0}};
        kc_visit_row(&row, MERAK_F32, cuda_compare_with_ref);
        kc_visit_row(&row, MERAK_BF16, cuda_compare_with_ref);
        kc_visit_row(&row, MERAK_F32, compare_slices);
        kc_visit_row(&row, MERAK_F32, compare_cuts);
    }
}

/* Heads of every padded width, several tiles, groups of queries. */
static void tiles_of_attention_agree_with_the_reference(void **state)
{
    static const struct {
        size_t T, G, R, D;
    } sizes[] = {{150, 1, 2, 16}, {70, 2, 1, 80},  {65, 1, 1, 128},
                 {129, 1, 1, 65}, {40, 1, 2, 136}, {35, 1, 1, 256},
                 {300, 1, 2, 64}, {257, 2, 1, 40}, {33, 1, 3, 64}};
    /* fewer tiles, with as many rows in the last one */
    const size_t less = test_all_rows() ? 0 : 128;

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t T = sizes[i].T > 256 ? sizes[i].T - less : sizes[i].T;
        size_t G = sizes[i].G, R = sizes[i].R, D = sizes[i].D;
        const struct kc_row row = {.op = "attention",
                                   .n_in = 3,
                                   .n_out = 2,
                                   .operand = {{'c', 5, {1, T, G, R, D}},
                                               {'c', 4, {1, T, G, D}},
                                               {'c', 4, {1, T, G, D}},
                                               {'c', 5, {1, T, G, R, D}},
                                               {'f', 4, {1, T, G, R}}}};

        kc_visit_row(&row, MERAK_F32, cuda_compare_with_ref);
        kc_visit_row(&row, MERAK_BF16, cuda_compare_with_ref);
    }
}

/* Values narrower than keys, which is how tiles are sized, and wider ones. */
static void values_may_be_of_another_width(void **state)
{
    static const struct {
        size_t T, D, E;
    } sizes[] = {{70, 192, 128}, {70, 24, 16},  {70, 96, 64},
                 {40, 64, 136},  {100, 12, 20}, {70, 72, 9}};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(*sizes); i++) {
        size_t T = sizes[i / 2].T, D = sizes[i / 2].D, E = sizes[i / 2].E;
        const struct kc_row row = {
            .op = "attention",
            .n_in = 3,
            .n_out = 2,
            .attrs = {.i = {3}, .f = {i % 2 == 0 ? 0 : 0.2}},
            .operand = {{'c', 5, {2, T, 1, 2, D}},
                        {'c', 4, {2, T, 1, D}},
                        {'c', 4, {2, T, 1, E}},
                        {'c', 5, {2, T, 1, 2, E}},
                        {'f', 4, {2, T, 1, 2}}}};

        kc_visit_row(&row, MERAK_F32, cuda_compare_with_ref);
        kc_visit_row(&row, MERAK_BF16, cuda_compare_with_ref);
    }
}

/* What has neither dropout nor a soft cap has kernels of its own in bf16:
 * windows and documents there, which end inside a warp's rows and behind the
 * sequence's. */
static void plain_attention_agrees_with_the_reference(void **state)
{
    static const struct {
        size_t T, D;
        int64_t window;
        double starts; /* documents, as a fraction of tokens; 0: one */
    } sizes[] = {{300, 8, 33, 0},   {200, 64, 128, 0},   {290, 8, 0, 0.01},
                 {200, 8, 40, 0.2}, {150, 72, 70, 0.01}, {70, 136, 9, 0.1}};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t T = sizes[i].T, D = sizes[i].D;
        bool documents = sizes[i].starts > 0;
        struct kc_row row = {.op = "attention",
                             .n_in = 3,
                             .n_out = 2,
                             .attrs.i = {3, sizes[i].window},
                             .operand = {{'c', 5, {1, T, 1, 2, D}},
                                         {'c', 4, {1, T, 1, D}},
                                         {'c', 4, {1, T, 1, D}},
                                         {'c', 5, {1, T, 1, 2, D}},
                                         {'f', 4, {1, T, 1, 2}}}};

        if (documents) {
            memmove(&row.operand[4], &row.operand[3],
                    2 * sizeof(row.operand[0]));
            row.operand[3] = (struct kc_operand){'s', 2, {1, T}};
            row.n_in = 4;
            kc_document_starts = sizes[i].starts;
        }
        kc_visit_row(&row, MERAK_BF16, cuda_compare_with_ref);
    }
    kc_document_starts = 0.2;
}

static void heads_beyond_256_channels_are_refused(void **state)
{
    const struct kc_row row = {.op = "attention",
                               .n_in = 3,
                               .n_out = 2,
                               .operand = {{'c', 5, {1, 1, 1, 1, 258}},
                                           {'c', 4, {1, 1, 1, 258}},
                                           {'c', 4, {1, 1, 1, 258}},
                                           {'c', 5, {1, 1, 1, 1, 258}},
                                           {'f', 4, {1, 1, 1, 1}}}};
    const struct merak_kernel *k;
    struct merak_error err;
    struct kc c;

    (void)state;
    kc_create(&c, &row, MERAK_F32, 1);
    c.call.attrs = &c.attrs;
    c.call.step = &c.step;
    assert_int_equal(merak_kernel_find(&cuda_host, "attention", &k, NULL),
                     MERAK_OK);
    assert_int_equal(k->fn(&c.call, &err), MERAK_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "heads of 258 channels"));
    kc_destroy(&c);
}

/* Documents that begin in a tile and at its edge, of one token and of many;
 * with windows that end before and behind their starts, dropout, a soft cap;
 * samples that have others; wide heads. */
static void documents_agree_with_the_reference(void **state)
{
    static const struct {
        size_t T, G, R, D;
        int64_t window; /* 1: gradients of wide heads are rounding errors */
    } sizes[] = {{130, 1, 2, 4, 0},  {130, 1, 2, 4, 1}, {130, 1, 2, 4, 40},
                 {130, 1, 2, 4, 64}, {70, 2, 1, 80, 0}, {40, 1, 1, 136, 5}};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(*sizes); i++) {
        size_t T = sizes[i / 2].T, G = sizes[i / 2].G, R = sizes[i / 2].R;
        size_t D = sizes[i / 2].D;
        const struct kc_row row = {
            .op = "attention",
            .n_in = 4,
            .n_out = 2,
            .attrs = {.i = {3, sizes[i / 2].window},
                      .f = {i % 2 == 0 ? 0.2 : 0, 0, i % 4 == 3 ? 1.5 : 0}},
            .operand = {{'c', 5, {2, T, G, R, D}},
                        {'c', 4, {2, T, G, D}},
                        {'c', 4, {2, T, G, D}},
                        {'s', 2, {2, T}},
                        {'c', 5, {2, T, G, R, D}},
                        {'f', 4, {2, T, G, R}}}};

        kc_document_starts = i % 2 == 0 ? 0.2 : 0.02;
        if (i % 4 < 2)
            kc_visit_row(&row, MERAK_F32, cuda_compare_with_ref);
        else
            kc_visit_row(&row, MERAK_BF16, cuda_compare_with_ref);
        if (D == 4)
            kc_visit_row(&row, MERAK_F32, compare_slices);
        if (D == 4 && sizes[i / 2].window != 1)
            kc_visit_row(&row, MERAK_F32, compare_cuts);
    }
    kc_document_starts = 0.2;
}

/* A part of the keys is not read by blocks of keys either, and a row without
 * any has no sum to divide by. */
static void masks_agree_with_the_reference(void **state)
{
    struct kc_row row;

    (void)state;
    for (int i = 0; i < kc_mask_row(i, &row); i++) {
        kc_visit_row(&row, MERAK_F32, cuda_compare_with_ref);
        kc_visit_row(&row, MERAK_BF16, cuda_compare_with_ref);
        kc_visit_row(&row, MERAK_F32, compare_cuts);
    }
}

static void hidden_keys_are_not_read(void **state)
{
    (void)state;
    kc_check_hidden_keys(&cuda_suite, MERAK_F32);
    kc_check_hidden_keys(&cuda_suite, MERAK_BF16);
}

static void sequences_in_pieces_make_the_whole(void **state)
{
    (void)state;
    kc_check_pieces(&cuda_suite, MERAK_F32);
    kc_check_pieces(&cuda_suite, MERAK_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_in_pieces_make_the_whole),
        cmocka_unit_test(windows_and_dropout_agree_with_the_reference),
        cmocka_unit_test(tiles_of_attention_agree_with_the_reference),
        cmocka_unit_test(values_may_be_of_another_width),
        cmocka_unit_test(plain_attention_agrees_with_the_reference),
        cmocka_unit_test(heads_beyond_256_channels_are_refused),
        cmocka_unit_test(documents_agree_with_the_reference),
        cmocka_unit_test(masks_agree_with_the_reference),
        cmocka_unit_test(hidden_keys_are_not_read),
    };

    return cmocka_run_group_tests_name("kernels_cuda_attention", tests, NULL,
                                       NULL);
}
