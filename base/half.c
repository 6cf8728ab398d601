/* SPDX-License-Identifier: Apache-2.0 */
/* half.c - 16-bit floats: IEEE 754 binary16 */
#include "config.h"

#include "base/half.h"

#include <math.h>

/* Exponents are biased by 15, and by 127 in an f32; mantissas have 10 bits,
 * and 23. */
float merak_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu, bits;
    float f;

    if (exponent == 0) { /* subnormal: a multiple of 2^-24 */
        f = ldexpf((float)mantissa, -24);
        return sign != 0 ? -f : f;
    }
    exponent = exponent == 31 ? 255 : exponent + 127 - 15;
    bits = sign | exponent << 23 | mantissa << 13;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

uint16_t merak_f32_to_f16(float f)
{
    uint32_t bits, rest, half, sign;
    int exponent, shift = 13;

    memcpy(&bits, &f, sizeof(bits));
    sign = (bits >> 16) & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) { /* NaN: keep its upper bits, not all 0 */
        half = (bits >> 13) & 0x3ffu;
        return (uint16_t)(sign | 0x7c00u | (half == 0 ? 0x200u : half));
    }
    exponent = (int)(bits >> 23) - 127 + 15;
    if (exponent >= 31)
        return (uint16_t)(sign | 0x7c00u);
    if (exponent < -10)
        return (uint16_t)sign;
    if (exponent <= 0) { /* subnormal: the leading one becomes explicit */
        bits = (bits & 0x7fffffu) | 0x800000u;
        shift = 14 - exponent;
        half = bits >> shift;
    } else {
        half = (uint32_t)exponent << 10 | ((bits >> 13) & 0x3ffu);
    }
    rest = bits & ((UINT32_C(1) << shift) - 1);
    bits = UINT32_C(1) << (shift - 1);
    /* a carry runs into the exponent, up to infinity, as it should */
    half += rest > bits || (rest == bits && (half & 1u) != 0);
    return (uint16_t)(sign | half);
}

bool merak_all_finite(const float *x, size_t n)
{
    while (n > 0 && isfinite(x[n - 1]))
        n--;
    return n == 0;
}
