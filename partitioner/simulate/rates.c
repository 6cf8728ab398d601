/* SPDX-License-Identifier: Apache-2.0 */
/* rates.c - efficiencies of kernels by size, interpolated */
#include "config.h"

#include "partitioner/simulate/rates.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ALIKE 0.02 /* of logarithms: sizes so near are the same */
#define AXES 3     /* FLOPs, bytes, width */
#define RIDGE 0.01 /* of the points' variance: slopes that few tell are flat \
                    */

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
    return log((a + 1) / (b + 1));
}

/* From y to x. */
static void difference(const struct merak_kernel_size *x,
                       const struct merak_kernel_size *y, double d[AXES])
{
    d[0] = distance(x->flops, y->flops);
    d[1] = distance(x->bytes, y->bytes);
    d[2] = x->width > 0 && y->width > 0 ? log(x->width / y->width) : 0;
}

static double length2(const double d[AXES])
{
    return d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
}

static double distance2(const struct merak_kernel_size *x,
                        const struct merak_kernel_size *y)
{
    double d[AXES];

    difference(x, y, d);
    return length2(d);
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

/* Weighted sums over the points of an op: x is how far a point is from the size
 * that is asked for, y the logarithm of how it did. */
struct plane {
    double w, x[AXES], y, xx[AXES][AXES], xy[AXES];
    double least, most; /* y of any point */
};

static void add_point(struct plane *p, const double x[AXES], double y)
{
    double w = 1 / (length2(x) + 1e-9);

    p->w += w;
    p->y += w * y;
    for (int i = 0; i < AXES; i++) {
        p->x[i] += w * x[i];
        p->xy[i] += w * x[i] * y;
        for (int j = 0; j < AXES; j++)
            p->xx[i][j] += w * x[i] * x[j];
    }
    p->least = y < p->least ? y : p->least;
    p->most = y > p->most ? y : p->most;
}

/* Gauss, of a positive definite matrix, which is lost; b becomes a^-1 b. */
static void solve(double a[AXES][AXES], double b[AXES])
{
    for (int i = 0; i < AXES; i++) {
        for (int k = i + 1; k < AXES; k++) {
            double f = a[k][i] / a[i][i];

            for (int j = i; j < AXES; j++)
                a[k][j] -= f * a[i][j];
            b[k] -= f * b[i];
        }
    }
    for (int i = AXES - 1; i >= 0; i--) {
        for (int j = i + 1; j < AXES; j++)
            b[i] -= a[i][j] * b[j];
        b[i] /= a[i][i];
    }
}

/* y where x is 0: the points' mean, less their slopes times their mean x. */
static double at_origin(const struct plane *p)
{
    double a[AXES][AXES], slope[AXES], variance = 0, y = p->y / p->w;

    for (int i = 0; i < AXES; i++) {
        slope[i] = p->xy[i] / p->w - p->x[i] * p->y / (p->w * p->w);
        for (int j = 0; j < AXES; j++)
            a[i][j] = p->xx[i][j] / p->w - p->x[i] * p->x[j] / (p->w * p->w);
        variance += a[i][i];
    }
    for (int i = 0; i < AXES; i++)
        a[i][i] += RIDGE * variance + 1e-12;
    solve(a, slope);
    for (int i = 0; i < AXES; i++)
        y -= slope[i] * p->x[i] / p->w;
    return fmin(fmax(y, p->least), p->most);
}

double merak_rates_seconds(const struct merak_rates *rates, const char *op,
                           const struct merak_kernel_size *size,
                           double flops_per_s, double bytes_per_s)
{
    const struct merak_op_rates *r = find(rates, op);
    struct plane plane = {.least = INFINITY, .most = -INFINITY};

    if (r == NULL || r->n == 0)
        return -1;
    for (int i = 0; i < r->n; i++) {
        const struct merak_rate_point *p = &r->point[i];
        double roof = roofline(&p->size, flops_per_s, bytes_per_s);
        double x[AXES];

        difference(&p->size, size, x);
        add_point(&plane, x, log(p->seconds / roof));
    }
    return roofline(size, flops_per_s, bytes_per_s) * exp(at_origin(&plane));
}
