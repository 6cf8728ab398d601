/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention_masks.c - attention with a full mask, key lengths, a prefix,
 * a window on both sides and values of another width, against numbers of
 * another implementation (PyTorch, in f64), and what holds of key lengths on
 * hosts */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kmasks.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

/* Element i is ((times i + add) mod by) / half - 1. */
struct ramp {
    size_t times, add, by, half;
};
static const struct ramp A = {37, 11, 101, 50}, B = {53, 7, 97, 48},
                         C = {29, 3, 89, 44}, G = {41, 5, 83, 41};

static void fill(struct kc *c, int operand, const struct ramp *r)
{
    for (size_t i = 0; i < kc_count(c, operand); i++)
        kc_set(c, operand, i,
               (double)((r->times * i + r->add) % r->by) / (double)r->half - 1);
}

/* q [2, T, 2, 4] of A, k and v [2, 5, 2, 4] of B and C, v with E channels if
 * that is given; the loss is the sum of o G. */
static const struct golden {
    const char *what;
    size_t T;
    int64_t window, after;
    char input; /* lengths 5 and 2, or prefixes of 3 */
    double o0;
    size_t last; /* element of the second number */
    double o1, loss, dq, dk, dv;
    size_t E;
} golden[] = {
    {"full", 3, 0, -1, 0, -0.0864526186529, 47, 0.19025431735, 0.532215837857,
     0.182748872291, 0.267942444656, 5.52231063273, 0},
    {"key lengths", 3, 0, -1, 'l', -0.0864526186529, 47, 0.39115168798,
     -0.168591040516, 0.513524364656, 0.384777082283, 12.3720275835, 0},
    {"prefix", 5, 0, 0, 'x', -0.308670201983, 63, 0.344919691326, 1.09658515016,
     0.337096587904, 0.707700097855, 18.8530963904, 0},
    {"one key before and after", 5, 2, 1, 0, -0.219770328018, 63,
     0.266594577393, 0.4048011995, 0.51537202615, 0.734180770268, 21.9101484687,
     0},
    {"narrow values", 5, 0, 0, 0, -0.931818181818, 59, -0.314149302861,
     1.90705716281, 0.283939082253, 0.407893126159, 20.0717014427, 3},
    {"wide values", 3, 0, -1, 0, 0.3686264727, 71, 0.22443194829,
     0.0539992746403, 0.219161488662, 0.0584586960036, 7.10541137537, 6},
};

static struct kc_row golden_row(const struct golden *g)
{
    struct kc_row row = {.op = "attention",
                         .n_in = g->input != 0 ? 4 : 3,
                         .n_out = 2,
                         .vocab = 5,
                         .attrs.i = {0, g->window, g->after},
                         .operand = {{'c', 5, {2, g->T, 2, 1, 4}},
                                     {'c', 4, {2, 5, 2, 4}},
                                     {'c', 4, {2, 5, 2, 4}}}};

    if (g->input != 0)
        row.operand[3] = (struct kc_operand){g->input, 1, {2}};
    row.operand[row.n_in] = row.operand[0];
    if (g->E > 0)
        row.operand[2].dim[3] = row.operand[row.n_in].dim[4] = g->E;
    row.operand[row.n_in + 1] = (struct kc_operand){'f', 4, {2, g->T, 2, 1}};
    return row;
}

static double square(const struct kc *c, int operand)
{
    double sum = 0;

    for (size_t i = 0; i < kc_count(c, operand); i++)
        sum += kc_get(c, operand, i) * kc_get(c, operand, i);
    return sum;
}

static const struct kc_grad *gradient_of(const struct kc *c)
{
    int g = 0;

    while (!kc_grad_fits(&kc_grads[g], c))
        g++;
    return &kc_grads[g];
}

static void create_golden(const struct golden *g, enum merak_dtype dtype,
                          struct kc *c)
{
    const struct kc_row row = golden_row(g);

    kc_create(c, &row, dtype, 1);
    fill(c, 0, &A);
    fill(c, 1, &B);
    fill(c, 2, &C);
    for (size_t b = 0; b < 2 && g->input != 0; b++)
        kc_set(c, 3, b, g->input == 'x' ? 3 : b == 0 ? 5 : 2);
}

static void check_golden(const struct golden *g, const char *backend,
                         enum merak_dtype dtype, double tolerance)
{
    struct kc c, grad;
    double loss = 0;
    int o, dq;

    create_golden(g, dtype, &c);
    kc_run(&c, backend);
    o = c.call.n_in;
    kc_create_grad(&grad, gradient_of(&c), &c, dtype, 5);
    fill(&grad, 0, &G);
    kc_run(&grad, backend);
    dq = grad.call.n_in;
    for (size_t i = 0; i < kc_count(&c, o); i++)
        loss += kc_get(&c, o, i) * kc_get(&grad, 0, i);
    {
        const double got[] = {
            kc_get(&c, o, 0),  kc_get(&c, o, g->last), loss,
            square(&grad, dq), square(&grad, dq + 1),  square(&grad, dq + 2)};
        const double want[] = {g->o0, g->o1, g->loss, g->dq, g->dk, g->dv};

        for (size_t i = 0; i < 6; i++) {
            if (fabs(got[i] - want[i]) > tolerance * (1 + fabs(want[i])))
                print_error("%s, number %zu by %s: %.12g, want %.12g\n",
                            g->what, i, backend, got[i], want[i]);
            assert_true(fabs(got[i] - want[i]) <=
                        tolerance * (1 + fabs(want[i])));
        }
    }
    if (g == golden) /* to what was printed of it */
        assert_true(fabs(kc_get(&c, o + 1, 0) - 1.71534494533) < tolerance);
    kc_destroy(&grad);
    kc_destroy(&c);
}

/* To the digits that were printed, and as f32 rounds. */
static void masks_give_published_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(golden) / sizeof(*golden); i++) {
        check_golden(&golden[i], "ref", MERAK_F64, 1e-11);
        check_golden(&golden[i], "cpu", MERAK_F32, 2e-6);
    }
}

static void run_ref(struct kc *c)
{
    kc_run(c, "ref");
}

static void run_cpu(struct kc *c)
{
    kc_run(c, "cpu");
}

static const struct kc_suite ref = {run_ref, NULL}, cpu = {run_cpu, NULL};

static void hidden_keys_are_not_read(void **state)
{
    (void)state;
    kc_check_hidden_keys(&ref, MERAK_F32);
    kc_check_hidden_keys(&cpu, MERAK_F32);
    kc_check_hidden_keys(&cpu, MERAK_BF16);
}

static void samples_are_as_alone(void **state)
{
    (void)state;
    kc_check_alone(&ref, MERAK_F32);
    kc_check_alone(&cpu, MERAK_F32);
    kc_check_alone(&cpu, MERAK_BF16);
}

static void wrong_lengths_are_named(void **state)
{
    static const struct {
        const char *backend;
        char input;
        double number;
        const char *text;
    } rows[] = {
        {"ref", 'l', 0,
         "the key length of sample 1 of the micro-batch is 0, expected 1 to 5"},
        {"cpu", 'l', 6,
         "the key length of sample 1 of the micro-batch is 6, expected 1 to 5"},
        {"cpu", 'l', -1, "the key length of sample 1 of the micro-batch is -1"},
        {"cpu", 'x', 6,
         "the prefix length of sample 1 of the micro-batch is 6, expected 0 to "
         "5"},
        {"ref", 'x', -1,
         "the prefix length of sample 1 of the micro-batch is -1"}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct golden g = {.T = 5, .input = rows[i].input};
        const struct merak_backend *backend;
        const struct merak_kernel *k;
        struct merak_error err;
        struct kc c;

        create_golden(&g, MERAK_F32, &c);
        kc_set(&c, 3, 1, rows[i].number);
        c.call.attrs = &c.attrs;
        c.call.step = &c.step;
        assert_int_equal(merak_backend_find(rows[i].backend, &backend, NULL),
                         MERAK_OK);
        assert_int_equal(merak_kernel_find(backend, "attention", &k, NULL),
                         MERAK_OK);
        assert_int_equal(k->fn(&c.call, &err), MERAK_ERR_PARAM);
        assert_non_null(strstr(err.text, rows[i].text));
        kc_destroy(&c);
    }
}

static int open_cpu(void **state)
{
    const struct merak_backend *b;

    (void)state;
    assert_int_equal(merak_backend_find("cpu", &b, NULL), MERAK_OK);
    assert_int_equal(b->open(2, NULL), MERAK_OK);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_give_published_numbers),
        cmocka_unit_test(hidden_keys_are_not_read),
        cmocka_unit_test(samples_are_as_alone),
        cmocka_unit_test(wrong_lengths_are_named),
    };

    return cmocka_run_group_tests_name("attention_masks", tests, open_cpu,
                                       NULL);
}
