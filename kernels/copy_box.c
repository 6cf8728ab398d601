/* SPDX-License-Identifier: Apache-2.0 */
/* copy_box.c - copy a part of a tensor, and reduce several terms to one */
#include "config.h"

#include "kernels/accel.h"

#include "base/half.h"

#include <string.h>

/* A walk over a box, row by row of its last dim. */
struct walk {
    const struct merak_accel_box *box;
    size_t at[MERAK_MAX_DIMS];
    bool over;
};

static void start(struct walk *w, const struct merak_accel_box *box)
{
    *w = (struct walk){.box = box};
    for (int d = 0; d < box->ndim; d++)
        w->over = w->over || box->len[d] == 0;
}

/* Offset of the row, in bytes. */
static size_t row_at(const struct walk *w)
{
    const struct merak_accel_box *box = w->box;
    size_t first = 0;

    for (int d = 0; d < box->ndim; d++)
        first = first * box->full[d] + box->lo[d] + w->at[d];
    return first * box->elem_bytes;
}

static void next_row(struct walk *w)
{
    for (int d = w->box->ndim - 2; d >= 0; d--) {
        if (++w->at[d] < w->box->len[d])
            return;
        w->at[d] = 0;
    }
    w->over = true;
}

void merak_pack_box(void *to, const void *from,
                    const struct merak_accel_box *box)
{
    size_t row = box->len[box->ndim - 1] * box->elem_bytes;
    const unsigned char *in = from;
    unsigned char *out = to;
    struct walk w;

    for (start(&w, box); !w.over; next_row(&w)) {
        memcpy(out, in + row_at(&w), row);
        out += row;
    }
}

void merak_unpack_box(void *to, const struct merak_accel_box *box,
                      const void *from)
{
    size_t row = box->len[box->ndim - 1] * box->elem_bytes;
    const unsigned char *in = from;
    unsigned char *out = to;
    struct walk w;

    for (start(&w, box); !w.over; next_row(&w)) {
        memcpy(out + row_at(&w), in, row);
        in += row;
    }
}

/* --- terms ---------------------------------------------------------------- */

static const void *term(const struct merak_accel_terms *p, int q)
{
    const char *staged = p->staged;

    if (q == p->me)
        return p->mine;
    return staged + (size_t)(q < p->me ? q : q - 1) * p->stride;
}

static double take(double a, double b, bool max)
{
    if (!max)
        return a + b;
    return a >= b || a != a ? a : b;
}

static float take_f32(float a, float b, bool max)
{
    if (!max)
        return a + b;
    return a >= b || a != a ? a : b;
}

static float load_f32(const void *from, size_t i, enum merak_dtype dtype)
{
    return dtype == MERAK_BF16 ? merak_bf16_to_f32(((const uint16_t *)from)[i])
                               : ((const float *)from)[i];
}

static void combine_floats(void *to, const struct merak_accel_terms *p)
{
    for (size_t i = 0; i < p->count; i++) {
        float acc = load_f32(term(p, 0), i, p->dtype);

        for (int q = 1; q < p->n; q++)
            acc = take_f32(acc, load_f32(term(p, q), i, p->dtype), p->max);
        if (p->dtype == MERAK_BF16)
            ((uint16_t *)to)[i] = merak_f32_to_bf16(acc);
        else
            ((float *)to)[i] = acc;
    }
}

static void combine_doubles(double *to, const struct merak_accel_terms *p)
{
    for (size_t i = 0; i < p->count; i++) {
        double acc = ((const double *)term(p, 0))[i];

        for (int q = 1; q < p->n; q++)
            acc = take(acc, ((const double *)term(p, q))[i], p->max);
        to[i] = acc;
    }
}

static void combine_ints(int32_t *to, const struct merak_accel_terms *p)
{
    for (size_t i = 0; i < p->count; i++) {
        int32_t acc = ((const int32_t *)term(p, 0))[i];

        for (int q = 1; q < p->n; q++) {
            int32_t x = ((const int32_t *)term(p, q))[i];

            acc = p->max ? (acc >= x ? acc : x)
                         : (int32_t)((uint32_t)acc + (uint32_t)x);
        }
        to[i] = acc;
    }
}

void merak_combine_terms(void *to, const struct merak_accel_terms *terms)
{
    if (terms->dtype == MERAK_F64)
        combine_doubles(to, terms);
    else if (terms->dtype == MERAK_I32)
        combine_ints(to, terms);
    else
        combine_floats(to, terms);
}
