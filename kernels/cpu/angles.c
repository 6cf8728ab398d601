/* SPDX-License-Identifier: Apache-2.0 */
/* angles.c - see angles.h */
#include "config.h"

#include "kernels/cpu/angles.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

/* Of one theta and D. */
struct table {
    struct table *next;
    double theta;
    size_t D, positions;
    float *row;
};

static struct table *tables; /* a model has one or two */

static void compute(struct table *t, size_t position)
{
    float *row = t->row + position * t->D;

    for (size_t i = 0; i < t->D / 2; i++) {
        double angle =
            (double)position * pow(t->theta, -2.0 * (double)i / (double)t->D);

        row[i] = (float)cos(angle);
        row[t->D / 2 + i] = (float)sin(angle);
    }
}

static struct table *find(double theta, size_t D)
{
    struct table *t = tables;

    while (t != NULL && (t->theta != theta || t->D != D))
        t = t->next;
    if (t != NULL)
        return t;
    t = malloc(sizeof(*t));
    if (t != NULL) {
        *t = (struct table){.next = tables, .theta = theta, .D = D};
        tables = t;
    }
    return t;
}

enum merak_status merak_angles(double theta, size_t D, size_t positions,
                               const float **rows_p, struct merak_error *err)
{
    struct table *t = find(theta, D);
    size_t bytes = positions * D * sizeof(float);

    if (t == NULL)
        return merak_fail_nomem(err, sizeof(*t));
    if (positions > t->positions) {
        float *row = realloc(t->row, bytes);

        if (row == NULL)
            return merak_fail_nomem(err, bytes);
        t->row = row;
        while (t->positions < positions)
            compute(t, t->positions++);
    }
    *rows_p = t->row;
    return MERAK_OK;
}
