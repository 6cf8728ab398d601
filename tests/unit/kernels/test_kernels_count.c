/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels_count.c - the cpu kernels once each, for kernels_count.sh, which
 * counts their instructions
 *
 * One thread, one sample of 256 tokens; heads of 64 as GPT-2's, few of them.
 */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kcase.h"

#include <string.h>

#define T 256
#define C 128
#define HEADS 2
#define D (C / HEADS)
#define V 1024

static const struct kc_row rows[] = {
    {.op = "attention_packed",
     .n_in = 1,
     .n_out = 2,
     .operand = {{'c', 5, {1, T, 3, HEADS, D}},
                 {'c', 4, {1, T, HEADS, D}},
                 {'f', 3, {1, T, HEADS}}}},
    {.op = "attention",
     .n_in = 3,
     .n_out = 2,
     .operand = {{'c', 5, {1, 2 * T, HEADS, 1, D}},
                 {'c', 4, {1, 2 * T, HEADS, D}},
                 {'c', 4, {1, 2 * T, HEADS, D}},
                 {'c', 5, {1, 2 * T, HEADS, 1, D}},
                 {'f', 4, {1, 2 * T, HEADS, 1}}},
     .attrs = {.i = {0, 64}}},
    {.op = "layernorm",
     .n_in = 3,
     .n_out = 3,
     .operand = {{'c', 3, {1, T, C}},
                 {'f', 1, {C}},
                 {'f', 1, {C}},
                 {'c', 3, {1, T, C}},
                 {'f', 2, {1, T}},
                 {'f', 2, {1, T}}},
     .attrs = {.f = {1e-5}}},
    {.op = "gelu",
     .n_in = 1,
     .n_out = 1,
     .operand = {{'c', 3, {1, T, C}}, {'c', 3, {1, T, C}}},
     .attrs = {.i = {1}}},
    {.op = "xent_sum",
     .n_in = 3,
     .n_out = 2,
     .operand = {{'c', 3, {1, T, V}},
                 {'f', 2, {1, T}},
                 {'i', 2, {1, T}},
                 {'f', 2, {1, T}},
                 {'f', 2, {1, T}}},
     .vocab = V},
};

/* And the gradient of each that has one. */
static void run_gradients(const struct kc *forward)
{
    for (int g = 0; g < kc_n_grads; g++) {
        struct kc c;

        if (!kc_grad_fits(&kc_grads[g], forward))
            continue;
        kc_create_grad(&c, &kc_grads[g], forward, MERAK_F32, 2);
        kc_run(&c, "cpu");
        kc_destroy(&c);
    }
}

static void run_all(void **state)
{
    const struct merak_backend *b;

    (void)state;
    assert_int_equal(merak_backend_find("cpu", &b, NULL), MERAK_OK);
    assert_int_equal(b->open(1, NULL), MERAK_OK);
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        struct kc c;

        kc_create(&c, &rows[r], MERAK_F32, 1);
        kc_run(&c, "cpu");
        run_gradients(&c);
        kc_destroy(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(run_all)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
