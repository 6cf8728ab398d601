/* SPDX-License-Identifier: Apache-2.0 */
/* angles.c - see angles.h */
#include "config.h"

#include "kernels/cpu/angles.h"

#include "base/error.h"
#include "base/size.h"
#include "kernels/rope.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The angles of one theta, scaling and R. */
struct table {
    struct table *next;
    struct merak_attrs attrs; /* attrs.list is list[] */
    size_t R, positions;
    float *row;
    double list[];
};

/* Global until the process ends, since kernels have no object to keep them in.
 * A model has one or two. */
static struct table *tables;

static void compute(struct table *t, size_t position)
{
    double m = merak_rope_amplitude(&t->attrs);
    float *row = t->row + position * t->R;

    for (size_t i = 0; i < t->R / 2; i++) {
        double angle =
            (double)position * merak_rope_frequency(&t->attrs, t->R, i);

        row[i] = (float)(m * cos(angle));
        row[t->R / 2 + i] = (float)(m * sin(angle));
    }
}

/* Compare all that tables depend on, which excludes the direction, i[0]. */
static bool is_alike(const struct merak_attrs *a, const struct merak_attrs *b)
{
    bool alike = a->i[1] == b->i[1] && a->i[2] == b->i[2];
    size_t n = a->list == NULL ? 0 : (size_t)a->i[2];

    for (size_t i = 0; i < sizeof(a->f) / sizeof(a->f[0]); i++)
        alike = alike && a->f[i] == b->f[i];
    if (!alike || n == 0 || b->list == NULL)
        return alike && n == 0 && b->list == NULL;
    return memcmp(a->list, b->list, n * sizeof(*a->list)) == 0;
}

static struct table *find(const struct merak_attrs *attrs, size_t R)
{
    size_t bytes = attrs->list == NULL ? 0 : (size_t)attrs->i[2];
    struct table *t = tables;

    while (t != NULL && (t->R != R || !is_alike(&t->attrs, attrs)))
        t = t->next;
    if (t != NULL)
        return t;
    bytes *= sizeof(*t->list);
    t = aligned_alloc(64, merak_size_align(sizeof(*t) + bytes, 64));
    if (t == NULL)
        return NULL;
    *t = (struct table){.next = tables, .attrs = *attrs, .R = R};
    if (bytes > 0) {
        memcpy(t->list, attrs->list, bytes);
        t->attrs.list = t->list;
    }
    tables = t;
    return t;
}

/* Uses aligned_alloc, not malloc or realloc: the first call of a shape is
 * set-up, as in gemm.c. */
static enum merak_status grow(struct table *t, size_t positions,
                              struct merak_error *err)
{
    size_t bytes = SIZE_MAX;
    float *row = NULL;

    if (merak_size_mul(positions, t->R * sizeof(*row), &bytes))
        row = aligned_alloc(64, merak_size_align(bytes, 64));
    if (row == NULL)
        return merak_fail_nomem(err, bytes);
    free(t->row);
    t->row = row;
    for (t->positions = 0; t->positions < positions; t->positions++)
        compute(t, t->positions);
    return MERAK_OK;
}

enum merak_status merak_angles(const struct merak_attrs *attrs, size_t R,
                               size_t positions, const float **rows_p,
                               struct merak_error *err)
{
    struct table *t = find(attrs, R);
    enum merak_status rc = MERAK_OK;

    if (t == NULL)
        return merak_fail_nomem(err, sizeof(*t));
    if (positions > t->positions)
        rc = grow(t, positions, err);
    *rows_p = t->row;
    return rc;
}
