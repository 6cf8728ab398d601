/* SPDX-License-Identifier: Apache-2.0 */
/* test_rates.c - what a kernel takes, by others of its op that were timed
 *
 * Kernels that took what a law says of their sizes are points; others of the
 * same law are asked for.  FLOPs, bytes and widths are drawn each from two
 * decades.
 */
#include "config.h"

#include "unit/near.h"

#include "base/rng.h"
#include "partitioner/device/rates.h"

#include <math.h>
#include <stdlib.h>

#define FLOPS_PER_S 1e11
#define BYTES_PER_S 2e10
#define POINTS 30

typedef double law_fn(const struct merak_kernel_size *size);

static double roofline(const struct merak_kernel_size *size)
{
    return fmax(size->flops / FLOPS_PER_S, size->bytes / BYTES_PER_S);
}

/* Narrow kernels are slow, and so are those of few FLOPs for their bytes. */
static double power_law(const struct merak_kernel_size *s)
{
    return 3 * pow(s->flops / s->bytes, -0.1) * pow(s->width / 64, -0.3) *
           roofline(s);
}

/* What was touched long before is no longer in a cache. */
static double reuse_law(const struct merak_kernel_size *s)
{
    return 2 * pow(s->reuse / 1e6, 0.08) * pow(s->width / 64, -0.2) *
           roofline(s);
}

/* Twice as long once operands are too much for a cache. */
static double cache_law(const struct merak_kernel_size *s)
{
    return (1 + 1 / (1 + pow(4e6 / s->bytes, 4))) * roofline(s);
}

/* Two decades from `least` on. */
static double draw(uint64_t key, uint64_t i, double least)
{
    return least * pow(100, (double)(merak_rng_mix(key, i) % 1000) / 1000);
}

static struct merak_kernel_size draw_size(uint64_t i)
{
    return (struct merak_kernel_size){.flops = draw(1, i, 1e7),
                                      .bytes = draw(2, i, 3e5),
                                      .width = draw(3, i, 16),
                                      .reuse = draw(4, i, 1e6)};
}

static double ask(const struct merak_rates *rates,
                  const struct merak_kernel_size *size)
{
    return merak_rates_seconds(rates, "op", size, FLOPS_PER_S, BYTES_PER_S);
}

static void fill(struct merak_rates *rates, law_fn *law)
{
    for (uint64_t i = 0; i < POINTS; i++) {
        struct merak_rate_point p = {.size = draw_size(i)};

        p.seconds = law(&p.size);
        assert_true(merak_rates_add(rates, "op", &p));
    }
}

/* Least and most of their rooflines that points take. */
static void range_of_points(law_fn *law, double *least, double *most)
{
    *least = INFINITY;
    *most = 0;
    for (uint64_t i = 0; i < POINTS; i++) {
        struct merak_kernel_size size = draw_size(i);
        double times = law(&size) / roofline(&size);

        *least = fmin(*least, times);
        *most = fmax(*most, times);
    }
}

/* Of kernels that were not timed, but inside that range: what they are off by
 * at most, and in the mean of squares, as logarithms. */
static void errors(const struct merak_rates *rates, law_fn *law, double *most,
                   double *mean)
{
    double squares = 0, lo, hi;
    int n = 0;

    range_of_points(law, &lo, &hi);
    *most = 0;
    for (uint64_t i = 0; i < 400; i++) {
        struct merak_kernel_size size = draw_size(1000 + i);
        double times = law(&size) / roofline(&size);
        double e = fabs(log(ask(rates, &size) / law(&size)));

        if (times < lo || times > hi)
            continue;
        *most = fmax(*most, e);
        squares += e * e;
        n++;
    }
    assert_true(n > 200);
    *mean = sqrt(squares / n);
}

static void rates_go_through_measured_points(void **state)
{
    struct merak_rates *rates = calloc(1, sizeof(*rates));

    (void)state;
    assert_non_null(rates);
    fill(rates, cache_law);
    for (uint64_t i = 0; i < POINTS; i++) {
        struct merak_kernel_size size = draw_size(i);
        double seconds = cache_law(&size);

        assert_true(fabs(ask(rates, &size) / seconds - 1) < 1e-3);
    }
    free(rates);
}

/* A mean of near points has no slope: with the inverse fourth power of
 * distances for its weights it was 21 % off the first law, and 67 % at most. */
static void rates_follow_slopes_between_points(void **state)
{
    struct merak_rates *rates = calloc(1, sizeof(*rates));
    double most, mean;

    (void)state;
    assert_non_null(rates);
    fill(rates, power_law);
    errors(rates, power_law, &most, &mean);
    print_message("power law: %.1f %% in the mean, %.1f %% at most\n",
                  100 * mean, 100 * most);
    assert_true(mean < 0.03 && most < 0.10);
    *rates = (struct merak_rates){.n = 0};
    fill(rates, reuse_law);
    errors(rates, reuse_law, &most, &mean);
    print_message("reuse law: %.1f %% in the mean, %.1f %% at most\n",
                  100 * mean, 100 * most);
    assert_true(mean < 0.03 && most < 0.10);
    *rates = (struct merak_rates){.n = 0};
    fill(rates, cache_law);
    errors(rates, cache_law, &most, &mean);
    print_message("cache law: %.1f %% in the mean, %.1f %% at most\n",
                  100 * mean, 100 * most);
    assert_true(mean < 0.12 && most < 0.35);
    free(rates);
}

/* Far from all that was timed a slope would soon say what cannot be. */
static void no_rate_is_better_than_all_measured_points(void **state)
{
    static const double far[] = {1e-6, 1e-3, 1e3, 1e6};
    struct merak_rates *rates = calloc(1, sizeof(*rates));
    double least, most;

    (void)state;
    assert_non_null(rates);
    fill(rates, power_law);
    range_of_points(power_law, &least, &most);
    for (int i = 0; i < 64; i++) {
        struct merak_kernel_size size = {.flops = 1e8 * far[i % 4],
                                         .bytes = 3e6 * far[i / 4 % 4],
                                         .width = 160 * far[i / 16]};
        double times = ask(rates, &size) / roofline(&size);

        assert_true(times >= least * (1 - 1e-9) && times <= most * (1 + 1e-9));
    }
    free(rates);
}

/* One, two, and any number on a line: no plane is known, no slope invented. */
static void one_or_two_measured_points_are_enough(void **state)
{
    struct merak_rates *rates = calloc(1, sizeof(*rates));
    const struct merak_kernel_size other = {
        .flops = 2e8, .bytes = 7e5, .width = 640, .reuse = 5e6};

    (void)state;
    assert_non_null(rates);
    assert_true(ask(rates, &other) < 0);
    for (int i = 0; i < 8; i++) {
        struct merak_rate_point p = {.size = {.flops = 1e7 * (i + 1),
                                              .bytes = 1e6 * (i + 1),
                                              .width = 64,
                                              .reuse = 1e8}};
        double times;

        p.seconds = 1.5 * roofline(&p.size);
        assert_true(merak_rates_add(rates, "op", &p));
        times = ask(rates, &other) / roofline(&other);
        assert_true(fabs(times - 1.5) < 1e-6);
    }
    free(rates);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_go_through_measured_points),
        cmocka_unit_test(rates_follow_slopes_between_points),
        cmocka_unit_test(no_rate_is_better_than_all_measured_points),
        cmocka_unit_test(one_or_two_measured_points_are_enough),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
