/* SPDX-License-Identifier: Apache-2.0 */
/* hop_boxes.c - one hop of a conversion as boxes, member by member
 *
 * Every collective here follows one rule: a member sends to q what it has and
 * q needs, and receives from q what q has and it needs.  Both are intersections
 * of two boxes of the same global tensor, relative to the sender's and the
 * receiver's local tensor.  Hops to and from flat layouts work the same way in
 * one dim, with the local box as a row of elements.
 */
#include "config.h"

#include "partitioner/layout/layout.h"

#include "base/error.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

#define STAGING_ALIGN 64
/* What a reduction receives at a time from all others together, one half while
 * the other is combined: enough to keep a link busy, and little compared to
 * what is reduced. */
#define WINDOW_BYTES ((size_t)1 << 20)
/* Smaller messages would not be worth their latency. */
#define MIN_FRAGMENT_BYTES ((size_t)16 << 10)

/* The hop, so that boxes can be computed member by member. */
struct view {
    const struct merak_mesh *mesh;
    const struct merak_shape *shape;
    const struct merak_layout *from, *to;
    int axis;
    int coord[MERAK_MAX_AXES];
    bool flat; /* either side has a flat axis */
};

static bool has_flat(const struct merak_mesh *mesh,
                     const struct merak_layout *layout)
{
    for (int x = 0; x < mesh->n_axes; x++)
        if (layout->at[x].kind == MERAK_FLAT)
            return true;
    return false;
}

/* The part that the member at position q of the axis holds; in a flat view, a
 * one-dimensional box in the row of local elements. */
static void member_box(const struct view *v, const struct merak_layout *layout,
                       int q, struct merak_box *part)
{
    int coord[MERAK_MAX_AXES];
    struct merak_box box;
    size_t lo, hi;

    memcpy(coord, v->coord, sizeof(coord));
    coord[v->axis] = q;
    merak_layout_box(v->mesh, layout, v->shape, coord, &box);
    if (!v->flat) {
        *part = box;
        return;
    }
    merak_layout_flat(v->mesh, layout, v->shape, coord, &lo, &hi);
    *part = (struct merak_box){.ndim = 1,
                               .full = {merak_box_count(&box)},
                               .lo = {lo},
                               .len = {hi - lo}};
}

/* The intersection of a and b, relative to the start of `holder`, the local
 * tensor it is in. */
static void common_part(const struct merak_box *a, const struct merak_box *b,
                        const struct merak_box *holder, struct merak_box *out)
{
    *out = (struct merak_box){.ndim = holder->ndim};
    for (int d = 0; d < holder->ndim; d++) {
        size_t a_end = a->lo[d] + a->len[d], b_end = b->lo[d] + b->len[d];
        size_t lo = a->lo[d] > b->lo[d] ? a->lo[d] : b->lo[d];
        size_t hi = a_end < b_end ? a_end : b_end;

        out->full[d] = holder->len[d];
        if (lo < hi) {
            out->lo[d] = lo - holder->lo[d];
            out->len[d] = hi - lo;
        }
    }
}

/* An all-reduce is cut flat, whatever the layout of its operand: member q
 * sums cut q. */
static void fill_all_reduce(struct merak_exchange *ex)
{
    size_t count = merak_shape_count(&ex->in), n = (size_t)ex->n;

    for (size_t q = 0; q < n; q++) {
        size_t lo = merak_cut(count, n, q), hi = merak_cut(count, n, q + 1);

        ex->send[q] = (struct merak_box){
            .ndim = 1, .full = {count}, .lo = {lo}, .len = {hi - lo}};
    }
    for (size_t q = 0; q < n; q++)
        ex->recv[q] = ex->send[ex->me];
}

static void fill(const struct view *v, struct merak_exchange *ex)
{
    int me = v->coord[v->axis];
    /* a slice has no peers: one box, the part of the input that is kept */
    int first = ex->kind == MERAK_CONVERT_SLICE ? me : 0;
    struct merak_box had, wanted, theirs;

    member_box(v, v->from, me, &had);
    member_box(v, v->to, me, &wanted);
    ex->in = merak_box_shape(&had);
    ex->out = merak_box_shape(&wanted);
    if (ex->kind == MERAK_CONVERT_ALL_REDUCE) {
        fill_all_reduce(ex);
        return;
    }
    for (int q = 0; q < ex->n; q++) {
        member_box(v, v->to, first + q, &theirs);
        common_part(&had, &theirs, &had, &ex->send[q]);
        member_box(v, v->from, first + q, &theirs);
        common_part(&theirs, &wanted, &wanted, &ex->recv[q]);
    }
}

static enum merak_combine combine_of(const struct merak_place *place)
{
    if (place->kind == MERAK_PARTIAL_SUM)
        return MERAK_SUM;
    if (place->kind == MERAK_PARTIAL_MAX)
        return MERAK_MAX;
    return MERAK_STORE;
}

static enum merak_status refuse(const struct merak_mesh *mesh,
                                const struct merak_layout *from,
                                const struct merak_layout *to, int axis,
                                struct merak_error *err)
{
    char a[32], b[32];

    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "no single collective converts layout %s to %s along "
                      "axis %d; take the hops merak_layout_path() gives",
                      merak_layout_print(mesh, from, a, sizeof(a)),
                      merak_layout_print(mesh, to, b, sizeof(b)), axis);
}

enum merak_status merak_exchange_init(struct merak_exchange *ex,
                                      const struct merak_mesh *mesh,
                                      const struct merak_hop *hop,
                                      const struct merak_layout *from,
                                      const struct merak_shape *shape,
                                      enum merak_dtype dtype, const int *coord,
                                      struct merak_error *err)
{
    struct merak_exchange e = {.kind = hop->kind, .dtype = dtype};
    struct view v = {.mesh = mesh,
                     .shape = shape,
                     .from = from,
                     .to = &hop->to,
                     .axis = hop->axis};
    struct merak_hop valid_hop;
    size_t bytes;

    if (hop->axis < 0 || hop->axis >= mesh->n_axes ||
        !merak_layout_change(mesh, from, hop->axis, hop->to.at[hop->axis],
                             &valid_hop) ||
        valid_hop.kind != hop->kind ||
        !merak_layout_equal(mesh, &valid_hop.to, &hop->to))
        return refuse(mesh, from, &hop->to, hop->axis, err);
    memcpy(v.coord, coord, sizeof(*coord) * (size_t)mesh->n_axes);
    v.flat = has_flat(mesh, from) || has_flat(mesh, &hop->to);
    e.combine = combine_of(&from->at[hop->axis]);
    if (hop->kind == MERAK_CONVERT_SLICE) {
        e.n = 1;
    } else {
        e.n = mesh->axis[hop->axis].size;
        e.me = coord[hop->axis];
    }
    bytes = (size_t)e.n * 2 * sizeof(*e.send);
    e.send = calloc(1, bytes);
    if (e.send == NULL)
        return merak_fail_nomem(err, bytes);
    e.recv = e.send + e.n; /* one allocation holds both */
    fill(&v, &e);
    *ex = e;
    return MERAK_OK;
}

void merak_exchange_fini(struct merak_exchange *ex)
{
    if (ex == NULL)
        return;
    free(ex->send);
    ex->send = ex->recv = NULL;
}

size_t merak_exchange_fragment(const struct merak_exchange *ex)
{
    size_t fragment;

    if (ex->combine == MERAK_STORE || ex->n < 2)
        return SIZE_MAX;
    fragment = WINDOW_BYTES / 2 / (size_t)(ex->n - 1);
    return fragment < MIN_FRAGMENT_BYTES
               ? MIN_FRAGMENT_BYTES
               : fragment / STAGING_ALIGN * STAGING_ALIGN;
}

/* Two fragments at most. */
static size_t staged_bytes(const struct merak_box *box, size_t item,
                           size_t fragment)
{
    size_t bytes = merak_size_align(merak_box_count(box) * item, STAGING_ALIGN);

    return bytes / 2 < fragment ? bytes : 2 * fragment;
}

size_t merak_exchange_scratch(const struct merak_exchange *ex)
{
    size_t item = merak_dtype_bytes(ex->dtype), total = 0;
    size_t fragment = merak_exchange_fragment(ex);

    if (ex->kind == MERAK_CONVERT_SLICE || ex->kind == MERAK_CONVERT_NONE)
        return 0;
    for (int q = 0; q < ex->n; q++) {
        if (q == ex->me)
            continue;
        if (!merak_box_contiguous(&ex->send[q], NULL))
            total += staged_bytes(&ex->send[q], item, fragment);
        if (ex->combine != MERAK_STORE ||
            !merak_box_contiguous(&ex->recv[q], NULL))
            total += staged_bytes(&ex->recv[q], item, fragment);
    }
    return total;
}

size_t merak_exchange_bytes(const struct merak_exchange *ex)
{
    size_t item = merak_dtype_bytes(ex->dtype), count = 0;

    if (ex->kind == MERAK_CONVERT_ALL_REDUCE)
        return 2 * merak_shape_count(&ex->in) * item / (size_t)ex->n *
               (size_t)(ex->n - 1);
    for (int q = 0; q < ex->n; q++) {
        if (q != ex->me)
            count += merak_box_count(&ex->send[q]);
    }
    return count * item;
}
