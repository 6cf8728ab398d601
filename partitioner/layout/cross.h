/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/layout/cross.h - a tensor crosses from one mesh to another
 *
 * The two meshes are the ranks of two stages, with other numbers of replicas
 * and tensor ranks, and the tensor lies in one layout on the first and in
 * another on the second.  Each element is sent once to every node that wants
 * it: ranks of a node that want the same elements get a part of them each, and
 * gather the parts there.  Which of the ranks that hold an element sends it is
 * chosen so that none sends much more than the others.
 *
 * Source: the bounds and the local all-gather are those of Zhuang et al. 2022,
 * "On Optimizing the Communication of Model Parallelism" (arXiv:2211.05322),
 * sec. 3.
 */
#ifndef MERAK_PARTITIONER_LAYOUT_CROSS_H
#define MERAK_PARTITIONER_LAYOUT_CROSS_H

#include "partitioner/layout/layout.h"

/* One end.  Members are the ranks of the mesh, its last axis fastest. */
struct merak_cross_end {
    struct merak_mesh mesh;
    struct merak_layout layout; /* nothing flat */
    const int *node;            /* of each member; NULL: all are on one */
};

/* Elements [lo, hi) of a box, in row-major order, go from a member of the
 * first mesh to one of the second.  There is at most one such message for any
 * two members. */
struct merak_cross_move {
    int from, to;
    struct merak_box box; /* of the tensor */
    size_t lo, hi;
    int gather; /* index in cross->gather of what it is a part of, or -1 */
};

/* Members of the second mesh that each got a part of a box: member[i] has
 * elements from merak_cut(count, n, i) to merak_cut(count, n, i + 1). */
struct merak_cross_gather {
    struct merak_box box;
    int n;
    int *member; /* ascending */
};

struct merak_cross {
    struct merak_cross_move *move; /* in the order in which all members post */
    int n_moves;
    struct merak_cross_gather *gather;
    int n_gathers;
    int move_room, gather_room;
};

/*
 * Find the messages of a crossing.
 *
 *   least_part  elements: if parts of a box were smaller, it goes whole to each
 *               who wants it; 0: it never does; SIZE_MAX: always
 *
 * Both ends call it alike, and find the same.  Of a sum that is not
 * complete, the terms go each to a member that has the same place along the
 * partial axes; MERAK_ERR_PARAM if there are not as many on both sides, or if a
 * layout is flat.
 */
enum merak_status merak_cross_init(struct merak_cross *cross,
                                   const struct merak_cross_end *from,
                                   const struct merak_cross_end *to,
                                   const struct merak_shape *shape,
                                   size_t least_part,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_cross_fini(struct merak_cross *cross);
/* Members of an end. */
int merak_cross_members(const struct merak_cross_end *end);
/* The box that a member has, or is to have. */
void merak_cross_box(const struct merak_cross_end *end,
                     const struct merak_shape *shape, int member,
                     struct merak_box *box);

#endif
