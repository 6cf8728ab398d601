/* SPDX-License-Identifier: Apache-2.0 */
/* virtual.c - the ranks of a mesh as arrays in one process */
#include "config.h"

#include "unit/test_box.h"
#include "unit/near.h"
#include "unit/shard/virtual.h"

#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

int virtual_ranks(const struct merak_mesh *mesh)
{
    int n = 1;

    for (int x = 0; x < mesh->n_axes; x++)
        n *= mesh->axis[x].size;
    assert_true(n <= VIRTUAL_MAX_RANKS);
    return n;
}

void virtual_coord(const struct merak_mesh *mesh, int rank, int *coord)
{
    for (int x = 0; x < mesh->n_axes; x++) {
        coord[x] = rank % mesh->axis[x].size;
        rank /= mesh->axis[x].size;
    }
}

static int rank_at(const struct merak_mesh *mesh, const int *coord)
{
    int rank = 0;

    for (int x = mesh->n_axes - 1; x >= 0; x--)
        rank = rank * mesh->axis[x].size + coord[x];
    return rank;
}

double virtual_get(enum merak_dtype dtype, const void *data, size_t i)
{
    switch (dtype) {
    case MERAK_F32:
        return ((const float *)data)[i];
    case MERAK_BF16:
        return merak_bf16_to_f32(((const uint16_t *)data)[i]);
    case MERAK_F64:
        return ((const double *)data)[i];
    default:
        return ((const int32_t *)data)[i];
    }
}

void virtual_put(enum merak_dtype dtype, void *data, size_t i, double x)
{
    switch (dtype) {
    case MERAK_F32:
        ((float *)data)[i] = (float)x;
        break;
    case MERAK_BF16:
        ((uint16_t *)data)[i] = merak_f32_to_bf16((float)x);
        break;
    case MERAK_F64:
        ((double *)data)[i] = x;
        break;
    default:
        ((int32_t *)data)[i] = (int32_t)x;
    }
}

size_t virtual_count(const struct merak_mesh *mesh,
                     const struct merak_layout *layout,
                     const struct merak_shape *shape, int rank)
{
    int coord[MERAK_MAX_AXES];
    size_t lo, hi;

    virtual_coord(mesh, rank, coord);
    merak_layout_flat(mesh, layout, shape, coord, &lo, &hi);
    return hi - lo;
}

void virtual_copy(enum merak_dtype dtype, const void *src,
                  const struct merak_box *from, void *dst,
                  const struct merak_box *to, enum merak_combine combine)
{
    size_t n = merak_box_count(from);

    assert_int_equal(n, merak_box_count(to));
    for (size_t i = 0; i < n; i++) {
        size_t at = box_place(to, i);
        double x = virtual_get(dtype, src, box_place(from, i));
        double old = virtual_get(dtype, dst, at);

        if (combine == MERAK_SUM)
            x = old + x;
        else if (combine == MERAK_MAX)
            x = old > x ? old : x;
        virtual_put(dtype, dst, at, x);
    }
}

static void reduce_and_gather(const struct merak_exchange *ex,
                              const int *member, void *const *in,
                              void *const *out)
{
    int owner = ex->me;

    for (int q = 0; q < ex->n; q++)
        virtual_copy(ex->dtype, in[member[q]], &ex->send[owner],
                     out[member[owner]], &ex->recv[q],
                     q == 0 ? MERAK_STORE : ex->combine);
    for (int q = 0; q < ex->n; q++)
        if (q != owner)
            virtual_copy(ex->dtype, out[member[owner]], &ex->send[owner],
                         out[member[q]], &ex->send[owner], MERAK_STORE);
}

static void take_part(const struct merak_exchange *ex,
                      const struct merak_exchange *all, const int *member,
                      void *const *in, void *const *out)
{
    int me = member[ex->me];

    for (int q = 0; q < ex->n; q++)
        virtual_copy(ex->dtype, in[member[q]], &all[member[q]].send[ex->me],
                     out[me], &ex->recv[q], q == 0 ? MERAK_STORE : ex->combine);
}

static void run_member(const struct merak_mesh *mesh, int axis, int rank,
                       const struct merak_exchange *all, void *const *in,
                       void *const *out)
{
    const struct merak_exchange *ex = &all[rank];
    int coord[MERAK_MAX_AXES], member[VIRTUAL_MAX_RANKS];

    if (ex->kind == MERAK_CONVERT_SLICE) {
        virtual_copy(ex->dtype, in[rank], &ex->send[0], out[rank], &ex->recv[0],
                     MERAK_STORE);
        return;
    }
    virtual_coord(mesh, rank, coord);
    assert_int_equal(coord[axis], ex->me);
    for (int q = 0; q < ex->n; q++) {
        coord[axis] = q;
        member[q] = rank_at(mesh, coord);
    }
    if (ex->kind == MERAK_CONVERT_ALL_REDUCE)
        reduce_and_gather(ex, member, in, out);
    else
        take_part(ex, all, member, in, out);
}

void virtual_hop(const struct merak_mesh *mesh, const struct merak_hop *hop,
                 const struct merak_layout *from,
                 const struct merak_shape *shape, enum merak_dtype dtype,
                 void *const *in, void *const *out)
{
    struct merak_exchange ex[VIRTUAL_MAX_RANKS];
    int n = virtual_ranks(mesh), coord[MERAK_MAX_AXES];
    struct merak_error err;

    for (int r = 0; r < n; r++) {
        virtual_coord(mesh, r, coord);
        assert_int_equal(merak_exchange_init(&ex[r], mesh, hop, from, shape,
                                             dtype, coord, &err),
                         MERAK_OK);
        assert_int_equal(merak_shape_count(&ex[r].in),
                         virtual_count(mesh, from, shape, r));
        assert_int_equal(merak_shape_count(&ex[r].out),
                         virtual_count(mesh, &hop->to, shape, r));
    }
    for (int r = 0; r < n; r++)
        run_member(mesh, hop->axis, r, ex, in, out);
    for (int r = 0; r < n; r++)
        merak_exchange_fini(&ex[r]);
}

/* What this rank holds of a partial value: 1 it holds it, 0 it adds
 * nothing. */
static bool holds_value(const struct merak_mesh *mesh,
                        const struct merak_layout *layout, const int *coord)
{
    for (int x = 0; x < mesh->n_axes; x++)
        if ((layout->at[x].kind == MERAK_PARTIAL_SUM ||
             layout->at[x].kind == MERAK_PARTIAL_MAX) &&
            coord[x] != 0)
            return false;
    return true;
}

static double adds_nothing(const struct merak_mesh *mesh,
                           const struct merak_layout *layout)
{
    for (int x = 0; x < mesh->n_axes; x++)
        if (layout->at[x].kind == MERAK_PARTIAL_MAX)
            return -1e30;
    return 0;
}

void virtual_part(const struct merak_mesh *mesh,
                  const struct merak_layout *layout,
                  const struct merak_shape *shape, int rank,
                  enum merak_dtype dtype, const void *whole, void *part)
{
    int coord[MERAK_MAX_AXES];
    struct merak_box box;
    size_t lo, hi;
    bool holds;

    virtual_coord(mesh, rank, coord);
    merak_layout_box(mesh, layout, shape, coord, &box);
    merak_layout_flat(mesh, layout, shape, coord, &lo, &hi);
    holds = holds_value(mesh, layout, coord);
    for (size_t i = lo; i < hi; i++)
        virtual_put(dtype, part, i - lo,
                    holds ? virtual_get(dtype, whole, box_place(&box, i))
                          : adds_nothing(mesh, layout));
}
