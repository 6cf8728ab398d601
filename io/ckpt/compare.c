/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - compare the tensors of two checkpoints */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements of each that are in memory at a time. */
#define CHUNK ((size_t)4 << 20)

struct comparing {
    struct merak_ckpt *a, *b;
    float *x, *y; /* [CHUNK] of a's and of b's */
    struct merak_progress *progress;
};

static void compare_elements(struct merak_ckpt_difference *d, size_t first,
                             const float *x, const float *y, size_t n)
{
    if (memcmp(x, y, n * sizeof(*x)) == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        double apart = fabs((double)x[i] - (double)y[i]);
        double larger = fmax(fabs((double)x[i]), fabs((double)y[i]));

        if (memcmp(&x[i], &y[i], sizeof(*x)) == 0)
            continue;
        d->n++;
        if (!isfinite(x[i]) || !isfinite(y[i])) {
            d->n_not_finite++;
            continue;
        }
        if (apart > d->max_abs || d->n - d->n_not_finite == 1) {
            d->max_abs = apart;
            d->at = first + i;
            d->a_at = x[i];
            d->b_at = y[i];
        }
        if (larger > 0) /* 0 and -0 differ only in their bits */
            d->max_rel = fmax(d->max_rel, apart / larger);
    }
}

static enum merak_status compare_tensor(struct comparing *c,
                                        struct merak_ckpt_difference *d,
                                        struct merak_error *err)
{
    struct merak_ckpt_piece piece = {.name = d->name, .shape = d->a};
    enum merak_status rc = MERAK_OK;

    piece.box.ndim = d->a.ndim;
    memcpy(piece.box.full, d->a.dim, sizeof(piece.box.full));
    memcpy(piece.box.len, d->a.dim, sizeof(piece.box.len));
    d->elements = merak_shape_count(&d->a);
    for (size_t lo = 0; lo < d->elements && rc == MERAK_OK; lo += CHUNK) {
        size_t n = d->elements - lo < CHUNK ? d->elements - lo : CHUNK;

        piece.flat_lo = lo;
        piece.flat_hi = lo + n;
        piece.data = c->x;
        rc = merak_ckpt_read(c->a, &piece, err);
        piece.data = c->y;
        if (rc == MERAK_OK)
            rc = merak_ckpt_read(c->b, &piece, err);
        if (rc == MERAK_OK)
            compare_elements(d, lo, c->x, c->y, n);
        merak_progress_add(c->progress, (double)(n * sizeof(float)));
    }
    d->relation = d->n > 0 ? MERAK_CKPT_DIFFERENT : MERAK_CKPT_EQUAL;
    return rc;
}

static bool same_shape(const struct merak_shape *a, const struct merak_shape *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof(*a->dim)) == 0;
}

static enum merak_status compare_pair(struct comparing *c,
                                      const struct merak_ckpt_tensor *a,
                                      const struct merak_ckpt_tensor *b,
                                      struct merak_ckpt_difference *d,
                                      struct merak_error *err)
{
    *d = (struct merak_ckpt_difference){.name = a != NULL ? a->name : b->name};
    if (a != NULL)
        d->a = a->shape;
    if (b != NULL)
        d->b = b->shape;
    if (a == NULL || b == NULL) {
        d->relation = a == NULL ? MERAK_CKPT_ONLY_B : MERAK_CKPT_ONLY_A;
        return MERAK_OK;
    }
    d->relation = MERAK_CKPT_OTHER_SHAPE;
    return same_shape(&d->a, &d->b) ? compare_tensor(c, d, err) : MERAK_OK;
}

static double bytes_to_compare(const struct merak_ckpt_manifest *mf)
{
    double bytes = 0;

    for (int i = 0; i < mf->n_tensors; i++)
        bytes +=
            (double)merak_shape_count(&mf->tensor[i].shape) * sizeof(float);
    return bytes;
}

enum merak_status merak_ckpt_compare(
    struct merak_ckpt *a, struct merak_ckpt *b,
    void (*tell)(void *arg, const struct merak_ckpt_difference *difference),
    void *arg, bool *same_p, struct merak_progress *progress,
    struct merak_error *err)
{
    const struct merak_ckpt_manifest *ma = merak_ckpt_manifest(a);
    const struct merak_ckpt_manifest *mb = merak_ckpt_manifest(b);
    struct comparing c = {.a = a, .b = b, .progress = progress};
    enum merak_status rc = MERAK_OK;
    int i = 0, k = 0;
    bool same = true;

    c.x = malloc(2 * CHUNK * sizeof(*c.x));
    if (c.x == NULL)
        return merak_fail_nomem(err, 2 * CHUNK * sizeof(*c.x));
    c.y = c.x + CHUNK;
    if (progress != NULL)
        progress->total = bytes_to_compare(ma);
    while ((i < ma->n_tensors || k < mb->n_tensors) && rc == MERAK_OK) {
        struct merak_ckpt_difference d;
        int order = i >= ma->n_tensors ? 1
                    : k >= mb->n_tensors
                        ? -1
                        : strcmp(ma->tensor[i].name, mb->tensor[k].name);

        rc = compare_pair(&c, order <= 0 ? &ma->tensor[i] : NULL,
                          order >= 0 ? &mb->tensor[k] : NULL, &d, err);
        i += order <= 0;
        k += order >= 0;
        same = same && rc == MERAK_OK && d.relation == MERAK_CKPT_EQUAL;
        if (rc == MERAK_OK)
            tell(arg, &d);
    }
    free(c.x);
    if (rc == MERAK_OK)
        *same_p = same;
    return rc;
}
