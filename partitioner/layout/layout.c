/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - the part of a tensor that a rank holds */
#include "config.h"

#include "partitioner/layout/layout.h"

#include "base/size.h"

#include <assert.h>
#include <stdio.h>

const char *merak_convert_name(enum merak_convert_kind kind)
{
    static const char *const name[] = {
        "none",  "all-reduce", "reduce-scatter", "all-gather", "all-to-all",
        "slice", "halo"};

    return name[kind];
}

bool merak_place_is_partial(const struct merak_place *place)
{
    return place->kind == MERAK_PARTIAL_SUM || place->kind == MERAK_PARTIAL_MAX;
}

bool merak_place_equal(const struct merak_place *a, const struct merak_place *b)
{
    return a->kind == b->kind &&
           (a->kind != MERAK_SPLIT ||
            (a->dim == b->dim && a->before == b->before &&
             a->after == b->after));
}

bool merak_layout_equal(const struct merak_mesh *mesh,
                        const struct merak_layout *a,
                        const struct merak_layout *b)
{
    for (int x = 0; x < mesh->n_axes; x++) {
        if (!merak_place_equal(&a->at[x], &b->at[x]))
            return false;
    }
    return true;
}

bool merak_layout_reaches(const struct merak_layout *layout)
{
    for (int x = 0; x < MERAK_MAX_AXES; x++) {
        if (layout->at[x].before > 0 || layout->at[x].after > 0)
            return true;
    }
    return false;
}

void merak_layout_replicated(struct merak_layout *layout)
{
    for (int x = 0; x < MERAK_MAX_AXES; x++)
        layout->at[x] =
            (struct merak_place){.kind = MERAK_REPLICATED, .dim = -1};
}

const char *merak_layout_print(const struct merak_mesh *mesh,
                               const struct merak_layout *layout, char *buf,
                               size_t size)
{
    static const char letter[] = {[MERAK_REPLICATED] = 'R',
                                  [MERAK_SPLIT] = 'S',
                                  [MERAK_PARTIAL_SUM] = 'P',
                                  [MERAK_PARTIAL_MAX] = 'M',
                                  [MERAK_FLAT] = 'F'};
    size_t at = 0;

    assert(size >= 32);
    if (mesh->n_axes == 0)
        snprintf(buf, size, "R");
    for (int x = 0; x < mesh->n_axes; x++) {
        const struct merak_place *place = &layout->at[x];

        if (x > 0)
            buf[at++] = ',';
        buf[at++] = letter[place->kind];
        if (place->kind == MERAK_SPLIT)
            buf[at++] = (char)('0' + place->dim);
        if (place->before > 0 || place->after > 0)
            at += (size_t)snprintf(buf + at, size - at, "+%d+%d", place->before,
                                   place->after);
        buf[at] = '\0';
    }
    return buf;
}

/* By elements of the neighbours' parts, as far as there are any. */
static void widen(struct merak_box *box, int d, size_t before, size_t after)
{
    size_t behind = box->full[d] - box->lo[d] - box->len[d];

    before = before < box->lo[d] ? before : box->lo[d];
    after = after < behind ? after : behind;
    box->lo[d] -= before;
    box->len[d] += before + after;
}

void merak_layout_box(const struct merak_mesh *mesh,
                      const struct merak_layout *layout,
                      const struct merak_shape *shape, const int *coord,
                      struct merak_box *box)
{
    *box = (struct merak_box){.ndim = shape->ndim};
    for (int d = 0; d < shape->ndim; d++)
        box->full[d] = box->len[d] = shape->dim[d];
    for (int x = 0; x < mesh->n_axes; x++) {
        size_t parts = (size_t)mesh->axis[x].size, i = (size_t)coord[x];
        int d = layout->at[x].dim;
        size_t lo;

        if (layout->at[x].kind != MERAK_SPLIT)
            continue;
        assert(d >= 0 && d < shape->ndim);
        lo = merak_cut(box->len[d], parts, i);
        box->len[d] = merak_cut(box->len[d], parts, i + 1) - lo;
        box->lo[d] += lo;
        widen(box, d, layout->at[x].before, layout->at[x].after);
    }
}

void merak_layout_flat(const struct merak_mesh *mesh,
                       const struct merak_layout *layout,
                       const struct merak_shape *shape, const int *coord,
                       size_t *lo, size_t *hi)
{
    struct merak_box box;

    merak_layout_box(mesh, layout, shape, coord, &box);
    *lo = 0;
    *hi = merak_box_count(&box);
    for (int x = 0; x < mesh->n_axes; x++) {
        size_t parts = (size_t)mesh->axis[x].size, i = (size_t)coord[x];
        size_t count = *hi - *lo;

        if (layout->at[x].kind != MERAK_FLAT)
            continue;
        *hi = *lo + merak_cut(count, parts, i + 1);
        *lo += merak_cut(count, parts, i);
    }
}

/*
 * The largest box that starts at element lo and ends by hi: whole rows of the
 * outermost dim that lo is aligned to, up to the end of that dim.  Returns
 * its size.  Along a range, sizes first rise and then fall, with each dim used
 * at most twice: hence MERAK_FLAT_BOXES.
 */
static size_t largest_box_at(const struct merak_shape *shape, size_t lo,
                             size_t hi, struct merak_box *box)
{
    size_t stride = merak_shape_count(shape), rest = lo;
    bool found = false;
    size_t size = 1;

    *box = (struct merak_box){.ndim = shape->ndim};
    for (int d = 0; d < shape->ndim; d++) {
        size_t i;

        stride /= shape->dim[d];
        i = rest / stride;
        rest %= stride;
        box->full[d] = shape->dim[d];
        box->lo[d] = i;
        if (found) {
            box->len[d] = shape->dim[d];
        } else if (rest == 0 && lo + stride <= hi) {
            size_t rows = (hi - lo) / stride;

            box->len[d] = rows < shape->dim[d] - i ? rows : shape->dim[d] - i;
            found = true;
        } else {
            box->len[d] = 1;
        }
        size *= box->len[d];
    }
    return size;
}

int merak_flat_boxes(const struct merak_shape *shape, size_t lo, size_t hi,
                     struct merak_box *boxes)
{
    int n = 0;

    assert(hi <= merak_shape_count(shape));
    while (lo < hi) {
        assert(n < MERAK_FLAT_BOXES);
        lo += largest_box_at(shape, lo, hi, &boxes[n++]);
    }
    return n;
}

size_t merak_box_count(const struct merak_box *box)
{
    size_t n = 1;

    for (int d = 0; d < box->ndim; d++)
        n *= box->len[d];
    return n;
}

struct merak_shape merak_box_shape(const struct merak_box *box)
{
    struct merak_shape shape = {.ndim = box->ndim};

    for (int d = 0; d < box->ndim; d++)
        shape.dim[d] = box->len[d];
    return shape;
}

struct merak_shape merak_box_full_shape(const struct merak_box *box)
{
    struct merak_shape shape = {.ndim = box->ndim};

    for (int d = 0; d < box->ndim; d++)
        shape.dim[d] = box->full[d];
    return shape;
}

/*
 * From the innermost dim out: whole dims, then one that may be cut, then only
 * dims of length 1.
 */
bool merak_box_contiguous(const struct merak_box *box, size_t *offset_p)
{
    bool cut = false, contiguous = true;
    size_t stride = 1, offset = 0;

    for (int d = box->ndim - 1; d >= 0; d--) {
        if (cut && box->len[d] > 1)
            contiguous = false;
        if (box->len[d] < box->full[d])
            cut = true;
        offset += box->lo[d] * stride;
        stride *= box->full[d];
    }
    if (merak_box_count(box) == 0)
        contiguous = true;
    if (contiguous && offset_p != NULL)
        *offset_p = offset;
    return contiguous;
}
