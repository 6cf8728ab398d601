/* SPDX-License-Identifier: Apache-2.0 */
/* rates.c - efficiencies of kernels by size, interpolated */
#include "config.h"

#include "partitioner/device/rates.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ALIKE 0.02 /* of logarithms: sizes this close are the same */
#define AXES MERAK_RATE_AXES
#define REUSE 3    /* of the axes, the last */
#define RIDGE 0.01 /* of the points' variance: flattens uncertain slopes */

static const struct merak_op_rates *find(const struct merak_rates *rates,
                                         const char *op)
{
    for (int i = 0; i < rates->n; i++) {
        if (strcmp(rates->op[i].op, op) == 0)
            return &rates->op[i];
    }
    return NULL;
}

/* FLOPs and bytes of 0 are far from others; a width or reuse distance of 0 is
 * unknown and near all. */
static struct merak_rate_logs logs_of(const struct merak_kernel_size *size,
                                      double seconds)
{
    return (struct merak_rate_logs){
        .axis = {log(size->flops + 1), log(size->bytes + 1),
                 size->width >= 1 ? log(size->width) : -1,
                 size->reuse >= 1 ? log(size->reuse) : -1},
        .flops = log(size->flops),
        .bytes = log(size->bytes),
        .seconds = log(seconds)};
}

/* The vector from y to x. */
static void difference(const struct merak_rate_logs *x,
                       const struct merak_rate_logs *y, double d[AXES])
{
    for (int i = 0; i < AXES; i++)
        d[i] = x->axis[i] >= 0 && y->axis[i] >= 0 ? x->axis[i] - y->axis[i] : 0;
}

static double length2(const double d[AXES])
{
    double sum = 0;

    for (int i = 0; i < AXES; i++)
        sum += d[i] * d[i];
    return sum;
}

static double distance2(const struct merak_rate_logs *x,
                        const struct merak_rate_logs *y)
{
    double d[AXES];

    difference(x, y, d);
    return length2(d);
}

/* The op's point nearest to a size; the op has at least one. */
static int nearest(const struct merak_op_rates *r,
                   const struct merak_rate_logs *at)
{
    int best = 0;

    for (int i = 1; i < r->n; i++) {
        if (distance2(&r->logs[i], at) < distance2(&r->logs[best], at))
            best = i;
    }
    return best;
}

static bool is_alike(const struct merak_op_rates *r, int i,
                     const struct merak_rate_logs *at)
{
    return distance2(&r->logs[i], at) <= ALIKE * ALIKE;
}

static void put(struct merak_op_rates *r, int i,
                const struct merak_rate_point *point)
{
    r->point[i] = *point;
    r->logs[i] = logs_of(&point->size, point->seconds);
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
    struct merak_rate_logs at = logs_of(&point->size, 1);

    if (r == NULL)
        r = add_op(rates, op);
    if (r == NULL)
        return false;
    for (int i = 0; i < r->n; i++) {
        struct merak_rate_point mean = r->point[i];

        if (!is_alike(r, i, &at))
            continue;
        mean.seconds = sqrt(mean.seconds * point->seconds);
        put(r, i, &mean);
        return true;
    }
    if (r->n == MERAK_RATE_POINTS)
        return false;
    put(r, r->n++, point);
    return true;
}

void merak_rates_set(struct merak_rates *rates, const char *op,
                     const struct merak_rate_point *point)
{
    struct merak_op_rates *r =
        (struct merak_op_rates *)(uintptr_t)find(rates, op);
    struct merak_rate_logs at = logs_of(&point->size, 1);
    int i;

    if (r == NULL || r->n == 0) {
        merak_rates_add(rates, op, point);
        return;
    }
    i = nearest(r, &at);
    if (r->n < MERAK_RATE_POINTS && !is_alike(r, i, &at))
        i = r->n++;
    put(r, i, point);
}

void merak_rates_scale(struct merak_rates *rates, const char *op, double factor)
{
    struct merak_op_rates *r =
        (struct merak_op_rates *)(uintptr_t)find(rates, op);

    for (int i = 0; r != NULL && i < r->n; i++) {
        r->point[i].seconds *= factor;
        r->logs[i].seconds += log(factor);
    }
}

/* Weighted sums over the points of an op: x is a point's distance from the size
 * to be predicted, y the logarithm of its time over its roofline. */
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

/* Gaussian elimination, a positive definite; overwrites a, b gets a^-1 b. */
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

/* y at x = 0: the points' mean y minus the slopes times their mean x. */
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

/* Clamp a reuse distance to the range of the points: those of real models are
 * orders of magnitude larger than a calibration's, but the same to caches. */
static double reuse_in_range(const struct merak_op_rates *r, double reuse)
{
    double least = INFINITY, most = -1;

    for (int i = 0; i < r->n; i++) {
        double x = r->logs[i].axis[REUSE];

        least = x >= 0 ? fmin(least, x) : least;
        most = fmax(most, x);
    }
    return most >= 0 && reuse >= 0 ? fmin(fmax(reuse, least), most) : -1;
}

double merak_rates_seconds(const struct merak_rates *rates, const char *op,
                           const struct merak_kernel_size *size,
                           double flops_per_s, double bytes_per_s)
{
    const struct merak_op_rates *r = find(rates, op);
    struct plane plane = {.least = INFINITY, .most = -INFINITY};
    double flops = log(flops_per_s), bytes = log(bytes_per_s);
    struct merak_rate_logs at;

    if (r == NULL || r->n == 0)
        return -1;
    at = logs_of(size, 1);
    at.axis[REUSE] = reuse_in_range(r, at.axis[REUSE]);
    for (int i = 0; i < r->n; i++) {
        const struct merak_rate_logs *p = &r->logs[i];
        double x[AXES];

        difference(p, &at, x);
        add_point(&plane, x,
                  p->seconds - fmax(p->flops - flops, p->bytes - bytes));
    }
    return exp(fmax(at.flops - flops, at.bytes - bytes) + at_origin(&plane));
}
