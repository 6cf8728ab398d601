/* SPDX-License-Identifier: Apache-2.0 */
/* test_half.c - floats of 16 bits, every one of them */
#include "config.h"

#include "unit/near.h"

#include "base/half.h"

#include <float.h>

static uint32_t bits_of(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static void every_half_survives_being_a_float(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = merak_f16_to_f32((uint16_t)h);
        float b = merak_bf16_to_f32((uint16_t)h);

        assert_int_equal(merak_f32_to_f16(f), h);
        assert_int_equal(bits_of(b), h << 16);
        if (!isnan(b))
            assert_int_equal(merak_f32_to_bf16(b), h);
        else
            assert_true(isnan(merak_bf16_to_f32(merak_f32_to_bf16(b))));
    }
}

/* Between two neighbours the nearer one, of equally near ones the even one:
 * of positive numbers that is the order of their bits. */
static void what_lies_between_halves_goes_to_the_nearest(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double lo = (double)merak_f16_to_f32((uint16_t)h);
        double hi = h + 1 == 0x7c00
                        ? 65536.0
                        : (double)merak_f16_to_f32((uint16_t)(h + 1));
        float middle = (float)((lo + hi) / 2);
        float below = nextafterf(middle, 0), above = nextafterf(middle, 1e9f);

        assert_int_equal(merak_f32_to_f16(below), h);
        assert_int_equal(merak_f32_to_f16(middle), h + (h & 1));
        assert_int_equal(merak_f32_to_f16(above), h + 1);
        assert_int_equal(merak_f32_to_f16(-above), (h + 1) | 0x8000);
    }
}

/* IEEE 754 binary16: sign, 5 bits of exponent, 10 of mantissa. */
static void halves_are_those_of_the_standard(void **state)
{
    static const struct {
        float value;
        uint16_t half;
    } rows[] = {
        {0.0f, 0x0000},     {-0.0f, 0x8000},       {1.0f, 0x3c00},
        {-2.0f, 0xc000},    {65504.0f, 0x7bff},    {65520.0f, 0x7c00},
        {1e10f, 0x7c00},    {-1e10f, 0xfc00},      {0x1p-14f, 0x0400},
        {0x1p-24f, 0x0001}, {0x1p-25f, 0x0000},    {0x1.8p-25f, 0x0001},
        {FLT_MIN, 0x0000},  {1.0f / 3.0f, 0x3555}, {INFINITY, 0x7c00},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(merak_f32_to_f16(rows[i].value), rows[i].half);
    assert_true(isnan(merak_f16_to_f32(merak_f32_to_f16(NAN))));
    assert_int_equal(merak_f32_to_bf16(1.00390625f), 0x3f80); /* a tie */
    assert_int_equal(merak_f32_to_bf16(1.01171875f), 0x3f82); /* a tie */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_survives_being_a_float),
        cmocka_unit_test(what_lies_between_halves_goes_to_the_nearest),
        cmocka_unit_test(halves_are_those_of_the_standard),
    };

    return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
