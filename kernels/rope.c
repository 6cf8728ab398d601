/* SPDX-License-Identifier: Apache-2.0 */
/* rope.c - frequencies of rotary position embeddings */
#include "config.h"

#include "kernels/rope.h"

#include "merak/model.h"

#include <math.h>

/* 0 at `low` and below, 1 at `high` and above. */
static double ramp(double x, double low, double high)
{
    return fmin(1, fmax(0, (x - low) / (high - low)));
}

/* The fraction of a frequency that is not divided. */
static double kept(const struct merak_attrs *attrs, double frequency, size_t i)
{
    double low = attrs->f[2], high = attrs->f[3];

    switch (attrs->i[1]) {
    case MERAK_ROPE_LINEAR:
        return 0;
    case MERAK_ROPE_FREQUENCY_RAMP:
        return ramp(frequency / (2 * M_PI), low, high);
    case MERAK_ROPE_PAIR_RAMP:
        return 1 - ramp((double)i, low, high);
    default:
        return 1;
    }
}

double merak_rope_frequency(const struct merak_attrs *attrs, size_t R, size_t i)
{
    double frequency = pow(attrs->f[0], -2.0 * (double)i / (double)R);
    double keep = kept(attrs, frequency, i);

    if (attrs->i[1] == MERAK_ROPE_PAIRS)
        return frequency / attrs->list[i];
    return keep == 1 ? frequency
                     : frequency * (keep + (1 - keep) / attrs->f[1]);
}

double merak_rope_amplitude(const struct merak_attrs *attrs)
{
    return attrs->f[4] > 0 ? attrs->f[4] : 1;
}
