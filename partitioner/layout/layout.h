/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/layout/layout.h - where the elements of a tensor are
 *
 * A mesh has named axes over the logical ranks of one stage.  A layout states,
 * for each axis, whether the tensor is replicated along it, split along a
 * dim, partial (to be summed or maxed), or flat: the rank's local tensor,
 * seen as one row of elements, is cut once more (ZeRO).  Axes that split the
 * same dim nest, lower axis outermost; so do flat ones.  Cuts follow
 * merak_cut(); they may be uneven, and padding is never stored.
 *
 * This is the one descriptor for activations, weights, gradients, optimizer
 * state and checkpoint shard files.
 */
#ifndef MERAK_PARTITIONER_LAYOUT_LAYOUT_H
#define MERAK_PARTITIONER_LAYOUT_LAYOUT_H

#include "merak/op.h"
#include "partitioner/device/level.h"

/* In this order: ep, cp, tp, stages, dp.  tp may be factored into two axes
 * (if there are fewer kv heads than tp), or as is asked for.  Stages are an
 * axis only if vocabulary-parallel layers are cut over them (shard.h).  More
 * than four at once are refused (shard.c). */
#define MERAK_MAX_AXES 4

/* What an axis within a stage is for. */
enum merak_axis_role {
    MERAK_AXIS_WEIGHTS,  /* to cut weights, and what they produce */
    MERAK_AXIS_SEQUENCE, /* to cut the sequence; weights are whole */
    MERAK_AXIS_EXPERTS,  /* to cut experts, and samples in all else */
};

struct merak_axis {
    char name[8]; /* "ep", "cp", "tp", "tp.0".. "tp.2", "pp", "dp" */
    int size;
    enum merak_axis_role role;
};

struct merak_mesh {
    int n_axes;
    struct merak_axis axis[MERAK_MAX_AXES];
};

enum merak_place_kind {
    MERAK_REPLICATED,
    MERAK_SPLIT,
    MERAK_PARTIAL_SUM,
    MERAK_PARTIAL_MAX,
    MERAK_FLAT,
};

struct merak_place {
    uint8_t kind; /* enum merak_place_kind */
    int8_t dim;   /* MERAK_SPLIT: the dim; else -1 */
    /* Elements of the neighbours' parts that a rank has, too: in copies that
     * windows read, which an exchange along each axis makes and nothing
     * converts. */
    uint8_t before, after;
};

struct merak_layout {
    struct merak_place at[MERAK_MAX_AXES];
};

/* A box of a row-major tensor: elements [lo, lo+len) in each dim of full. */
struct merak_box {
    int ndim;
    size_t full[MERAK_MAX_DIMS]; /* of the tensor the box is in */
    size_t lo[MERAK_MAX_DIMS];
    size_t len[MERAK_MAX_DIMS];
};

#define MERAK_FLAT_BOXES (2 * MERAK_MAX_DIMS) /* enough for a flat range */

/* Do terms of a sum, or of a maximum, remain to be combined? */
bool merak_place_is_partial(const struct merak_place *place);
bool merak_place_equal(const struct merak_place *a,
                       const struct merak_place *b);
/* Compares along the mesh's axes; later entries do not count. */
bool merak_layout_equal(const struct merak_mesh *mesh,
                        const struct merak_layout *a,
                        const struct merak_layout *b);
/* Does a rank have elements of its neighbours' parts? */
bool merak_layout_reaches(const struct merak_layout *layout);
/* Replicated along every axis of any mesh. */
void merak_layout_replicated(struct merak_layout *layout);
/* "R", "S1", "P", "M", "F" per axis: "S0,R"; "S1+2+1" with two elements more
 * before and one after. buf of at least 32 bytes. */
const char *merak_layout_print(const struct merak_mesh *mesh,
                               const struct merak_layout *layout, char *buf,
                               size_t size);
/*
 * The box that the rank at coord[n_axes] holds, ignoring flat axes.
 * box->full is the global shape.
 */
void merak_layout_box(const struct merak_mesh *mesh,
                      const struct merak_layout *layout,
                      const struct merak_shape *shape, const int *coord,
                      struct merak_box *box);
/* [lo, hi) of the box's elements that the rank holds: all of them unless some
 * axis is flat. */
void merak_layout_flat(const struct merak_mesh *mesh,
                       const struct merak_layout *layout,
                       const struct merak_shape *shape, const int *coord,
                       size_t *lo, size_t *hi);
/*
 * Elements [lo, hi) of a row-major tensor of shape `shape` as at most
 * MERAK_FLAT_BOXES boxes in order; returns how many.
 */
int merak_flat_boxes(const struct merak_shape *shape, size_t lo, size_t hi,
                     struct merak_box *boxes);

/* "all-reduce" */
const char *merak_convert_name(enum merak_convert_kind kind);

/*
 * One step of a conversion: exactly one axis changes, by one collective in
 * the groups along that axis (or by none).
 */
struct merak_hop {
    enum merak_convert_kind kind;
    int axis;
    struct merak_layout to;
    double words; /* elements one rank sends */
};

#define MERAK_MAX_HOPS 8

/*
 * The hop (words left 0) that changes one axis of `from` to `place`; false if
 * no single collective with one box per peer does so.  An axis with another
 * one nested inside it on the same dim cannot be changed: that would move the
 * inner cuts.  If another axis is flat, only P -> R is possible, and, if the
 * flat axis is a lower one, other changes between P, R and F.  Where a rank has
 * elements of its neighbours' along another axis, only a HALO, whose elements
 * are then of these, too, and a SLICE are possible.
 */
bool merak_layout_change(const struct merak_mesh *mesh,
                         const struct merak_layout *from, int axis,
                         struct merak_place place, struct merak_hop *hop);

/*
 * The cheapest path from one layout to another: Dijkstra over layouts, cost =
 * elements sent per rank with ring algorithms, plus one per hop.  Returns the
 * number of hops (0 if equal) or -1 if there is no path (R -> P).  Golden costs
 * are those of SuperScaler's RVD search.
 */
int merak_layout_path(const struct merak_mesh *mesh,
                      const struct merak_shape *shape,
                      const struct merak_layout *from,
                      const struct merak_layout *to, struct merak_hop *hops,
                      double *cost_p);

/*
 * What a collective moves, for one rank: for every member q of the group, it
 * sends the box `send[q]` of the input to q and puts what q sent into the box
 * `recv[q]` of the output, stored or combined in ascending member order.
 * All-reduce, reduce-scatter, all-gather and all-to-all all have this form, so
 * a transport implements one operation.  The boxes of an ALL_REDUCE are flat
 * cuts, which a transport reduces and then gathers.
 */
enum merak_combine { MERAK_STORE, MERAK_SUM, MERAK_MAX };

struct merak_exchange {
    enum merak_convert_kind kind;
    enum merak_combine combine;
    enum merak_dtype dtype;
    int n;                  /* members of the group */
    int me;                 /* position in it */
    struct merak_shape in;  /* local input */
    struct merak_shape out; /* local output */
    /* by member; full is the shape of `in` or `out`.  If any axis is flat, the
     * boxes and `in` and `out` are one-dimensional views.  ALL_REDUCE: also
     * one-dimensional; send[q] is the cut that member q sums, recv[q] this
     * rank's own cut, which it then sends to all.  SLICE: n is 1, send[0] is
     * the part of the input that is kept. */
    struct merak_box *send;
    struct merak_box *recv;
};

/* The exchange of one hop for the rank at coord; boxes from malloc. */
enum merak_status merak_exchange_init(struct merak_exchange *ex,
                                      const struct merak_mesh *mesh,
                                      const struct merak_hop *hop,
                                      const struct merak_layout *from,
                                      const struct merak_shape *shape,
                                      enum merak_dtype dtype, const int *coord,
                                      struct merak_error *err) MERAK_CHECKED;
void merak_exchange_fini(struct merak_exchange *ex);
/*
 * Staging bytes an exchange needs in the arena: room to pack each send box
 * that is not contiguous and to receive what is combined or unpacked.  Part
 * of the memory plan, so it depends on the exchange alone.  Pieces are
 * rounded up to 64 bytes each; nothing is staged for this rank itself.
 * Operands to be combined arrive in fragments of merak_exchange_fragment()
 * bytes, two at a time.
 */
size_t merak_exchange_scratch(const struct merak_exchange *ex);
/* The same for every member; SIZE_MAX if pieces move whole. */
size_t merak_exchange_fragment(const struct merak_exchange *ex);
/* Bytes this rank sends: what its boxes for the others hold; an all-reduce
 * counts as a reduce-scatter and an all-gather of its operand. */
size_t merak_exchange_bytes(const struct merak_exchange *ex);
/* True if the box is one contiguous run; *offset_p its first element. */
bool merak_box_contiguous(const struct merak_box *box, size_t *offset_p);
size_t merak_box_count(const struct merak_box *box);
/* Of the box on its own, and of the tensor that it is in. */
struct merak_shape merak_box_shape(const struct merak_box *box);
struct merak_shape merak_box_full_shape(const struct merak_box *box);

#endif
