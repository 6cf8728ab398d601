/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels_loss.c - the reference kernels of losses: the gradient of logits
 * against finite differences, with pairs of answers and without; and pairs of
 * which one answer is out of all bounds */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kcase.h"

#include <string.h>

#define STEP 1e-4 /* of central differences: error about STEP^2, 1e-8 */

/* A call of a reference kernel. */
static void run_ref(const char *op, struct merak_kernel_call *call)
{
    const struct merak_kernel *kernel = NULL;
    const struct merak_backend *ref = NULL;
    struct merak_error err;

    assert_int_equal(merak_backend_find("ref", &ref, &err), MERAK_OK);
    assert_int_equal(merak_kernel_find(ref, op, &kernel, &err), MERAK_OK);
    assert_int_equal(kernel->fn(call, &err), MERAK_OK);
}

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

/* --- of elements, and several ------------------------------------------------
 */

/* Numbers that an independent implementation was given, too: PyTorch's losses
 * of these are below. */
static double golden(size_t i, size_t by, size_t from, size_t mod, double half)
{
    return (double)((by * i + from) % mod) / half - 1;
}
#define X(i) golden(i, 37, 11, 101, 50)
#define TARGET(i) golden(i, 53, 7, 97, 48)

static double mean_of(enum merak_point_loss kind, const double *x, double *t,
                      size_t n, double *dx)
{
    struct merak_attrs attrs = {.i = {0, kind}, .f = {1 / (double)n}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 2, .n_out = 1};
    double e[24], mean = 0;

    assert_true(n <= 24);
    for (int i = 0; i < 3; i++)
        call.operand[i] =
            (struct merak_operand){.data = i == 0   ? (void *)(uintptr_t)x
                                           : i == 1 ? t
                                                    : (void *)e,
                                   .dtype = MERAK_F64,
                                   .local = {1, {n}},
                                   .full = {1, {n}}};
    run_ref("point_loss", &call);
    for (size_t i = 0; i < n; i++)
        mean += e[i] / (double)n;
    call.operand[2].data = dx;
    run_ref("point_loss_dx", &call);
    return mean;
}

static void losses_of_elements_are_pytorchs(void **state)
{
    static const double want[] = {0.476154832176, 0.558993055556,
                                  0.618499372156};
    double x[24], t[24], dx[24], above[24];

    (void)state;
    for (int kind = 0; kind < MERAK_POINT_LOSSES; kind++) {
        double mean;

        for (size_t i = 0; i < 24; i++) {
            x[i] = X(i);
            t[i] = kind == MERAK_POINT_BCE ? TARGET(i) > 0 : TARGET(i);
        }
        mean = mean_of(kind, x, t, 24, dx);
        assert_near(&mean, &want[kind], 1, 0, 1e-12);
        for (size_t i = 0; i < 24; i++) {
            double slope, unused[24];

            memcpy(above, x, sizeof(x));
            above[i] += STEP;
            slope = mean_of(kind, above, t, 24, unused);
            above[i] -= 2 * STEP;
            slope = (slope - mean_of(kind, above, t, 24, unused)) / (2 * STEP);
            if (fabs(x[i] - t[i]) > 2 * STEP) /* |x - t| has a corner */
                assert_near(&dx[i], &slope, 1, 0, 1e-8);
        }
    }
}

/* Far from 0 nothing overflows. */
static void logits_may_be_large(void **state)
{
    double x[] = {1000, -1000}, t[] = {1, 1}, dx[2];
    double mean = mean_of(MERAK_POINT_BCE, x, t, 2, dx);

    (void)state;
    assert_near(&mean, (double[]){500}, 1, 0, 0);
    assert_near(dx, ((double[]){0, -0.5}), 2, 0, 1e-12);
}

/* Cross-entropy of two samples of three, with and without a target, beside half
 * of the mean square. */
static void several_losses_add_up(void **state)
{
    static const int32_t label[] = {1, MERAK_NO_TARGET, 3, 0,
                                    2, MERAK_NO_TARGET};
    double x[24], t[24], max[6], sum[12], nll[6], grad[24], dx[24], ce = 0;
    double total, square = 0;
    struct merak_step step = {.loss_scale = {6.0 / 4, 0.5}};
    struct merak_attrs attrs = {.i = {1}, .f = {1.0 / 6}};
    struct merak_kernel_call call = {
        .attrs = &attrs, .step = &step, .first = true};
    const struct merak_operand rows = {
        .dtype = MERAK_F64, .local = {1, {6}}, .full = {1, {6}}};
    struct merak_operand logits = {.data = x,
                                   .dtype = MERAK_F64,
                                   .local = {2, {6, 4}},
                                   .full = {2, {6, 4}}};
    struct merak_operand targets = rows, r[4] = {rows, rows, rows, rows};

    (void)state;
    for (size_t i = 0; i < 24; i++) {
        x[i] = X(i);
        t[i] = TARGET(i);
    }
    targets.data = (void *)(uintptr_t)label;
    targets.dtype = MERAK_I32;
    r[0].data = max;
    r[1].data = sum;
    r[2].data = sum + 6;
    r[3].data = nll;
    call.n_in = 1, call.n_out = 1;
    call.operand[0] = logits, call.operand[1] = r[0];
    run_ref("xent_max", &call);
    call.n_in = 3, call.n_out = 2;
    call.operand[2] = targets, call.operand[3] = r[1], call.operand[4] = r[2];
    run_ref("xent_sum", &call);
    call.n_out = 1;
    call.operand[0] = r[0], call.operand[1] = r[1], call.operand[2] = r[2];
    call.operand[3] = r[3];
    run_ref("xent_loss", &call);
    for (int i = 0; i < 6; i++)
        ce += nll[i];
    assert_near(&ce, (double[]){6.22274992392}, 1, 0, 1e-11);
    total = ce / 4 + 0.5 * mean_of(MERAK_POINT_MSE, x, t, 24, dx);
    assert_near(&total, (double[]){1.79376489707}, 1, 0, 1e-11);
    call.n_in = 4;
    call.operand[0] = logits, call.operand[1] = r[0], call.operand[2] = r[1];
    call.operand[3] = targets, call.operand[4] = logits;
    call.operand[4].data = grad;
    run_ref("xent_dlogits", &call);
    for (size_t i = 0; i < 24; i++) {
        grad[i] += 0.5 * dx[i];
        square += grad[i] * grad[i];
    }
    assert_near(&square, (double[]){0.281677576671}, 1, 0, 1e-12);
    assert_near(&grad[0], (double[]){0.0317919827202}, 1, 0, 1e-12);
    assert_near(&grad[4], (double[]){0.0266319444444}, 1, 0, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dlogits_match_finite_differences),
        cmocka_unit_test(dlogits_of_pairs_match_finite_differences),
        cmocka_unit_test(extreme_pairs_have_finite_losses),
        cmocka_unit_test(losses_of_elements_are_pytorchs),
        cmocka_unit_test(logits_may_be_large),
        cmocka_unit_test(several_losses_add_up),
    };

    return cmocka_run_group_tests_name("kernels_loss", tests, NULL, NULL);
}
