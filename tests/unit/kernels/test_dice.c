/* SPDX-License-Identifier: Apache-2.0 */
/* test_dice.c - the overlap of classes of points: a published number, the
 * gradient of all its ops together against finite differences
 */
#include "config.h"

#include "unit/near.h"

#include "kernels/kernels.h"
#include "merak/model.h"
#include "unit/kernels/raw_call.h"

#include <string.h>

enum { B = 2, POINTS = 4, V = 3, N = B * POINTS * V };

static const struct merak_attrs mean = {.f = {1.0 / (B * V)}};

static void fill(double *z)
{
    for (size_t i = 0; i < N; i++)
        z[i] = (double)((37 * i + 11) % 101) / 50 - 1;
}

static void run(const char *op, int n_in, const struct merak_operand *operand)
{
    const struct merak_step step = {.train = true};
    struct merak_kernel_call call = {
        .attrs = &mean, .step = &step, .n_in = n_in, .n_out = 1};
    const struct merak_backend *ref;
    const struct merak_kernel *k;

    memcpy(call.operand, operand, (size_t)(n_in + 1) * sizeof(*call.operand));
    assert_int_equal(merak_backend_find("ref", &ref, NULL), MERAK_OK);
    assert_int_equal(merak_kernel_find(ref, op, &k, NULL), MERAK_OK);
    assert_int_equal(k->fn(&call, NULL), MERAK_OK);
}

/* The mean over the first `samples`. */
static double loss(double *z, int32_t *target, size_t samples, double *sums)
{
    double e[B * V], total = 0;

    run("dice_sums", 2,
        (struct merak_operand[]){F64(z, samples, POINTS, V),
                                 I32(target, samples, POINTS),
                                 F64(sums, samples, V, 3)});
    run("dice_loss", 1,
        (struct merak_operand[]){F64(sums, samples, V, 3), F64(e, samples, V)});
    for (size_t i = 0; i < samples * V; i++)
        total += e[i] / (double)(samples * V);
    return total;
}

/* [1,2,2,3]. */
static void dice_has_the_published_number(void **state)
{
    static const double want = 0.588424270974;
    int32_t target[] = {0, 2, 1, 1};
    double z[N], sums[B * V * 3], got;

    (void)state;
    fill(z);
    got = loss(z, target, 1, sums);
    assert_near(&got, &want, 1, 1e-11, 0);
}

/* Points without a target are as if they were not there. */
static void gradients_match_finite_differences(void **state)
{
    const double step = 1e-5;
    int32_t target[] = {0, 2, 1, 1, 2, MERAK_NO_TARGET, 0, 2};
    double z[N], dz[N], sums[B * V * 3], unused[B * V * 3];

    (void)state;
    fill(z);
    (void)loss(z, target, B, sums);
    run("dice_dlogits", 3,
        (struct merak_operand[]){F64(z, B, POINTS, V), I32(target, B, POINTS),
                                 F64(sums, B, V, 3), F64(dz, B, POINTS, V)});
    for (size_t i = 0; i < N; i++) {
        double was = z[i], slope;

        z[i] = was + step;
        slope = loss(z, target, B, unused);
        z[i] = was - step;
        slope = (slope - loss(z, target, B, unused)) / (2 * step);
        z[i] = was;
        assert_near(&dz[i], &slope, 1, 1e-7, 1e-9);
        if (i / V == 5)
            assert_true(dz[i] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dice_has_the_published_number),
        cmocka_unit_test(gradients_match_finite_differences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
