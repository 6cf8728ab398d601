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
                         C = {29, 3, 89, 44}, G = {41, 5, 83, 41},
                         H = {31, 2, 71, 35};

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

/* The same q, k and v with scale 1 and a table [N, 2, 1] of H, as transformers
 * has it in T5. */
static const struct biased {
    size_t T, N;
    int64_t after;
    double farthest, both;
    double o0, o1, loss, dq, dk, dv, table, first, last;
} biased[] = {
    {3, 8, -1, 5, 1, 0.0107990380745, 0.154564742116, 0.507790328982,
     0.493418233038, 0.809378182664, 7.13524300484, 0.775657787052,
     0.0805574938702, 0.025348940287},
    {5, 6, 0, 4, 0, -0.931818181818, 0.434304270955, 1.63258013846,
     0.678879637738, 1.59174611585, 30.5337866514, 0.191857215012,
     -0.0984453679933, 0.138901670139},
};

/* Run gradient `op` of a call that has run, of the incoming gradient G. */
static void run_gradient(struct kc *grad, const char *op, const struct kc *c,
                         const char *backend, enum merak_dtype dtype)
{
    int g = 0;

    while (strcmp(kc_grads[g].op, op) != 0 || !kc_grad_fits(&kc_grads[g], c))
        g++;
    kc_create_grad(grad, &kc_grads[g], c, dtype, 5);
    grad->call.accumulate = false;
    if (grad->call.n_in > 1)
        fill(grad, 0, &G);
    kc_run(grad, backend);
}

static void check_biased(const struct biased *b, const char *backend,
                         enum merak_dtype dtype, double tolerance)
{
    const struct kc_row row = {
        .op = "attention_biased",
        .n_in = 4,
        .n_out = 2,
        .attrs = {.i = {0, 0, b->after}, .f = {0, 1, 0, b->farthest, b->both}},
        .operand = {{'c', 5, {2, b->T, 2, 1, 4}},
                    {'c', 4, {2, 5, 2, 4}},
                    {'c', 4, {2, 5, 2, 4}},
                    {'y', 3, {b->N, 2, 1}},
                    {'c', 5, {2, b->T, 2, 1, 4}},
                    {'f', 4, {2, b->T, 2, 1}}}};
    const struct ramp *ramps[] = {&A, &B, &C, &H};
    struct kc c, dx, dw;
    double loss = 0;

    kc_create(&c, &row, dtype, 1);
    for (int o = 0; o < 4; o++)
        fill(&c, o, ramps[o]);
    kc_run(&c, backend);
    run_gradient(&dx, "attention_biased_dx", &c, backend, dtype);
    run_gradient(&dw, "attention_biased_dw", &c, backend, dtype);
    for (size_t i = 0; i < kc_count(&dw, 0); i++) /* of this G */
        kc_set(&dw, 0, i, kc_get(&dx, 10, i));
    kc_run(&dw, backend);
    for (size_t i = 0; i < kc_count(&c, 4); i++)
        loss += kc_get(&c, 4, i) * kc_get(&dx, 0, i);
    {
        const double got[] = {kc_get(&c, 4, 0),
                              kc_get(&c, 4, kc_count(&c, 4) - 1),
                              loss,
                              square(&dx, 7),
                              square(&dx, 8),
                              square(&dx, 9),
                              square(&dw, 1),
                              kc_get(&dw, 1, 0),
                              kc_get(&dw, 1, b->N * 2 - 1)};
        const double want[] = {b->o0, b->o1,    b->loss,  b->dq,  b->dk,
                               b->dv, b->table, b->first, b->last};

        for (size_t i = 0; i < 9; i++) {
            if (!(fabs(got[i] - want[i]) <= tolerance * (1 + fabs(want[i]))))
                print_error("number %zu by %s: %.12g, want %.12g\n", i, backend,
                            got[i], want[i]);
            assert_true(fabs(got[i] - want[i]) <=
                        tolerance * (1 + fabs(want[i])));
        }
    }
    kc_destroy(&dw);
    kc_destroy(&dx);
    kc_destroy(&c);
}

static void biases_give_published_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(biased) / sizeof(*biased); i++) {
        check_biased(&biased[i], "ref", MERAK_F64, 1e-11);
        check_biased(&biased[i], "cpu", MERAK_F32, 2e-6);
    }
}

/* All distances of both kinds of 32 buckets up to 128, by where those of
 * transformers begin; others by a number of all of 6000 buckets. */
static void buckets_are_those_of_transformers(void **state)
{
    static const uint32_t both[] = {0, 1,  2,  3,  4,  5,  6,  7,
                                    8, 12, 16, 23, 32, 46, 64, 91};
    static const uint32_t causal[] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
        16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
    static const struct {
        size_t n;
        double farthest;
        uint32_t number;
    } others[] = {{32, 128, 3718463827}, {64, 1000, 1770051073},
                  {16, 20, 331663720},   {128, 5000, 219080895},
                  {8, 5, 2715286565},    {6, 4, 2135421634}};
    struct merak_operand table = {.local = {3, {32, 1, 1}}};
    struct merak_attrs attrs = {.f = {0, 0, 0, 128, 1}};
    struct merak_relative r = {0};

    (void)state;
    merak_relative_set(&r, &attrs, &table, 300, 300);
    assert_memory_equal(r.first, both, sizeof(both));
    for (size_t lag = 0; lag < 599; lag++) {
        size_t bucket = 15, distance = lag > 299 ? lag - 299 : 299 - lag;

        while (both[bucket] > distance)
            bucket--;
        assert_int_equal(merak_relative_bucket(&r, lag),
                         lag < 299 ? 16 + bucket : bucket);
    }
    attrs.f[4] = 0;
    merak_relative_set(&r, &attrs, &table, 300, 300);
    assert_memory_equal(r.first, causal, sizeof(causal));
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        uint32_t number = 0;

        table.local.dim[0] = others[i].n;
        attrs.f[3] = others[i].farthest;
        merak_relative_set(&r, &attrs, &table, 6000, 1);
        for (size_t d = 0; d < 6000; d++)
            number = number * 31 + (uint32_t)merak_relative_bucket(&r, d);
        assert_int_equal(number, others[i].number);
    }
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
        cmocka_unit_test(biases_give_published_numbers),
        cmocka_unit_test(buckets_are_those_of_transformers),
        cmocka_unit_test(hidden_keys_are_not_read),
        cmocka_unit_test(samples_are_as_alone),
        cmocka_unit_test(wrong_lengths_are_named),
    };

    return cmocka_run_group_tests_name("attention_masks", tests, open_cpu,
                                       NULL);
}
