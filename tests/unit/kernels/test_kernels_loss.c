/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels_loss.c - the reference kernels of losses: the gradient of logits
 * against finite differences, with pairs of answers and without; and pairs of
 * which one answer is out of all bounds */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kcase.h"

#include <string.h>

#define STEP 1e-4 /* of central differences: error about STEP^2, 1e-8 */

static const struct kc_row *find_row(const struct kc_row *row, const char *op)
{
    while (strcmp(row->op, op) != 0)
        row++;
    return row;
}

/* The kernels from logits to the loss of each position, and the gradient's. */
struct losses {
    struct kc max, sum, loss, pair, grad;
    bool pairs;
};

/* max, sum and nll of logits f, through the three kernels, and the loss of
 * pairs. */
static double nll_total(struct losses *l)
{
    struct kc *max = &l->max, *sum = &l->sum, *loss = &l->loss;
    size_t rows = kc_count(max, 1);
    double total = 0;

    memcpy(sum->call.operand[0].data, max->call.operand[0].data,
           kc_count(max, 0) * sizeof(double));
    kc_run(max, "ref");
    memcpy(sum->call.operand[1].data, max->call.operand[1].data,
           rows * sizeof(double));
    kc_run(sum, "ref");
    memcpy(loss->call.operand[0].data, max->call.operand[1].data,
           rows * sizeof(double));
    memcpy(loss->call.operand[1].data, sum->call.operand[3].data,
           rows * sizeof(double));
    memcpy(loss->call.operand[2].data, sum->call.operand[4].data,
           rows * sizeof(double));
    kc_run(loss, "ref");
    memcpy(l->pair.call.operand[0].data, loss->call.operand[3].data,
           rows * sizeof(double));
    kc_run(&l->pair, "ref");
    for (size_t i = 0; i < rows; i++)
        total += l->pairs ? kc_get(&l->pair, 3, i) : kc_get(loss, 3, i);
    return total;
}

static void check_dlogits(bool pairs)
{
    struct kc_row row[KC_MAX_ROWS];
    const struct kc_row *grad_row;
    struct losses l = {.pairs = pairs};
    size_t rows, moved = 0;

    (void)kc_rows(1, row, KC_MAX_ROWS);
    grad_row = find_row(row, "xent_dlogits");
    kc_create(&l.max, find_row(row, "xent_max"), MERAK_F64, 1);
    kc_create(&l.sum, find_row(row, "xent_sum"), MERAK_F64, 1);
    kc_create(&l.loss, find_row(row, "xent_loss"), MERAK_F64, 1);
    kc_create(&l.pair, find_row(row, "pair_loss"), MERAK_F64, 1);
    kc_create(&l.grad,
              pairs ? find_row(grad_row + 1, "xent_dlogits") : grad_row,
              MERAK_F64, 1);
    rows = kc_count(&l.max, 1);
    (void)nll_total(&l);
    memcpy(l.grad.call.operand[0].data, l.max.call.operand[0].data,
           kc_count(&l.max, 0) * sizeof(double));
    memcpy(l.grad.call.operand[1].data, l.max.call.operand[1].data,
           rows * sizeof(double));
    memcpy(l.grad.call.operand[2].data, l.sum.call.operand[3].data,
           rows * sizeof(double));
    memcpy(l.grad.call.operand[3].data, l.sum.call.operand[2].data,
           rows * sizeof(int32_t));
    if (pairs)
        memcpy(l.grad.call.operand[4].data, l.pair.call.operand[4].data,
               rows * sizeof(double));
    kc_run(&l.grad, "ref");
    for (size_t i = 0; i < kc_count(&l.max, 0); i++) {
        double x = kc_get(&l.max, 0, i), want;

        kc_set(&l.max, 0, i, x + STEP);
        want = nll_total(&l);
        kc_set(&l.max, 0, i, x - STEP);
        want -= nll_total(&l);
        want *= l.grad.attrs.f[0] / (2 * STEP);
        kc_set(&l.max, 0, i, x);
        moved += fabs(want) > 1e-5;
        assert_true(fabs(kc_get(&l.grad, pairs ? 5 : 4, i) - want) < 1e-8);
    }
    assert_true(moved > 0);
    kc_destroy(&l.max);
    kc_destroy(&l.sum);
    kc_destroy(&l.loss);
    kc_destroy(&l.pair);
    kc_destroy(&l.grad);
}

static void dlogits_match_finite_differences(void **state)
{
    (void)state;
    check_dlogits(false);
}

static void dlogits_of_pairs_match_finite_differences(void **state)
{
    (void)state;
    check_dlogits(true);
}

/* The loss is linear on one side, 0 on the other, without an overflow. */
static void extreme_pairs_have_finite_losses(void **state)
{
    static const char *const backend[] = {"ref", "cpu"};
    struct kc_row row[KC_MAX_ROWS];
    struct kc c;

    (void)state;
    (void)kc_rows(1, row, KC_MAX_ROWS);
    for (int k = 0; k < 4; k++) {
        double beta, loss = 0, want = 0;
        bool worse = k / 2 == 0; /* the chosen answer has become unlikely */

        kc_create(&c, find_row(row, "pair_loss"), MERAK_F32, 1);
        beta = c.attrs.f[0];
        for (size_t i = 0; i < kc_count(&c, 0); i++) {
            int32_t second = ((const int32_t *)c.call.operand[1].data)[i];
            size_t at = i % merak_local_last(&c.call.operand[1]);
            bool chosen = at < (size_t)second;
            bool bad = second != 0 && chosen == worse;

            kc_set(&c, 0, i, bad ? 1e6 : 0);
            kc_set(&c, 2, i, 0);
            want += worse && bad ? beta * 1e6 : 0;
        }
        kc_run(&c, backend[k % 2]);
        for (size_t i = 0; i < kc_count(&c, 0); i++) {
            int32_t second = ((const int32_t *)c.call.operand[1].data)[i];
            double slope = second != 0 && worse ? beta : 0;

            loss += kc_get(&c, 3, i);
            assert_true(fabs(fabs(kc_get(&c, 4, i)) - slope) < 1e-7);
        }
        assert_true(!worse || want > 0);
        assert_true(fabs(loss - want) <= 1e-6 * want);
        kc_destroy(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dlogits_match_finite_differences),
        cmocka_unit_test(dlogits_of_pairs_match_finite_differences),
        cmocka_unit_test(extreme_pairs_have_finite_losses),
    };

    return cmocka_run_group_tests_name("kernels_loss", tests, NULL, NULL);
}
