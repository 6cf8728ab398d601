/* SPDX-License-Identifier: Apache-2.0 */
/* base/half.h - 16-bit floats */
#ifndef MERAK_BASE_HALF_H
#define MERAK_BASE_HALF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* bf16 is the upper half of an f32. */
static inline float merak_bf16_to_f32(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* Round to nearest, ties to even; NaN stays NaN. */
static inline uint16_t merak_f32_to_bf16(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* IEEE 754 binary16, exact. */
float merak_f16_to_f32(uint16_t h);
/* Round to nearest, ties to even; overflow (above 65504) gives infinity. */
uint16_t merak_f32_to_f16(float f);

/* Is no number NaN or infinite? */
bool merak_all_finite(const float *x, size_t n);

#endif
