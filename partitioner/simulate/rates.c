/* SPDX-License-Identifier: Apache-2.0 */
/* rates.c - efficiencies of kernels by size, interpolated */
#include "config.h"

#include "partitioner/simulate/rates.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ALIKE 0.02 /* of logarithms: sizes so near are the same */

static const struct merak_op_rates *find(const struct merak_rates *rates,
                                         const char *op)
{
    for (int i = 0; i < rates->n; i++) {
        if (strcmp(rates->op[i].op, op) == 0)
            return &rates->op[i];
    }
    return NULL;
}

/* Of sizes; what is 0 is far from what is not. */
static double distance(double a, double b)
{
    return fabs(log((a + 1) / (b + 1)));
}

static double distance2(const struct merak_kernel_size *x,
                        const struct merak_kernel_size *y)
{
    double f = distance(x->flops, y->flops), b = distance(x->bytes, y->bytes);
    double w = 0;

    if (x->width > 0 && y->width > 0)
        w = log(x->width / y->width);
    return f * f + b * b + w * w;
}

static struct merak_op_rates *add_op(struct merak_rates *rates, const char *op)
{
    struct merak_op_rates *r;

    if (rates->n == MERAK_RATE_OPS)
        return NULL;
    r = &rates->op[rates->n++];
    *r = (struct merak_op_rates){.n = 0};
    snprintf(r->op, sizeof(r->op), "%s", op);
    return r;
}

bool merak_rates_add(struct merak_rates *rates, const char *op,
                     const struct merak_rate_point *point)
{
    struct merak_op_rates *r =
        (struct merak_op_rates *)(uintptr_t)find(rates, op);

    if (r == NULL)
        r = add_op(rates, op);
    if (r == NULL)
        return false;
    for (int i = 0; i < r->n; i++) {
        struct merak_rate_point *p = &r->point[i];

        if (distance2(&p->size, &point->size) > ALIKE * ALIKE)
            continue;
        p->seconds = sqrt(p->seconds * point->seconds);
        return true;
    }
    if (r->n == MERAK_RATE_POINTS)
        return false;
    r->point[r->n++] = *point;
    return true;
}

static struct merak_rate_point *nearest(struct merak_op_rates *r,
                                        const struct merak_kernel_size *size)
{
    struct merak_rate_point *best = &r->point[0];

    for (int i = 1; i < r->n; i++) {
        if (distance2(&r->point[i].size, size) < distance2(&best->size, size))
            best = &r->point[i];
    }
    return best;
}

void merak_rates_set(struct merak_rates *rates, const char *op,
                     const struct merak_rate_point *point)
{
    struct merak_op_rates *r =
        (struct merak_op_rates *)(uintptr_t)find(rates, op);
    struct merak_rate_point *old;

    if (r == NULL || r->n == 0) {
        merak_rates_add(rates, op, point);
        return;
    }
    old = nearest(r, &point->size);
    if (r->n == MERAK_RATE_POINTS ||
        distance2(&old->size, &point->size) <= ALIKE * ALIKE)
        *old = *point;
    else
        r->point[r->n++] = *point;
}

void merak_rates_scale(struct merak_rates *rates, const char *op, double factor)
{
    struct merak_op_rates *r =
        (struct merak_op_rates *)(uintptr_t)find(rates, op);

    for (int i = 0; r != NULL && i < r->n; i++)
        r->point[i].seconds *= factor;
}

bool merak_rates_has(const struct merak_rates *rates, const char *op)
{
    const struct merak_op_rates *r = find(rates, op);

    return r != NULL && r->n > 0;
}

static double roofline(const struct merak_kernel_size *size, double flops_per_s,
                       double bytes_per_s)
{
    double compute = size->flops / flops_per_s;
    double memory = size->bytes / bytes_per_s;

    return compute > memory ? compute : memory;
}

double merak_rates_seconds(const struct merak_rates *rates, const char *op,
                           const struct merak_kernel_size *size,
                           double flops_per_s, double bytes_per_s)
{
    const struct merak_op_rates *r = find(rates, op);
    double sum = 0, weights = 0;

    if (r == NULL || r->n == 0)
        return -1;
    for (int i = 0; i < r->n; i++) {
        const struct merak_rate_point *p = &r->point[i];
        double d2 = distance2(&p->size, size) + 1e-9;
        double weight = 1 / (d2 * d2);

        sum += weight *
               log(p->seconds / roofline(&p->size, flops_per_s, bytes_per_s));
        weights += weight;
    }
    return roofline(size, flops_per_s, bytes_per_s) * exp(sum / weights);
}
