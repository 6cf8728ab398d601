/* SPDX-License-Identifier: Apache-2.0 */
/* virtual.h - the ranks of a mesh as arrays in one process
 *
 * What a transport does between ranks, done by plain copies: the oracle for
 * exchanges and for sharded graphs.
 */
#ifndef MERAK_TESTS_VIRTUAL_H
#define MERAK_TESTS_VIRTUAL_H

#include "partitioner/layout/layout.h"

#define VIRTUAL_MAX_RANKS 64

int virtual_ranks(const struct merak_mesh *mesh);
void virtual_coord(const struct merak_mesh *mesh, int rank, int *coord);
double virtual_get(enum merak_dtype dtype, const void *data, size_t i);
void virtual_put(enum merak_dtype dtype, void *data, size_t i, double x);
/* Elements that a rank holds. */
size_t virtual_count(const struct merak_mesh *mesh,
                     const struct merak_layout *layout,
                     const struct merak_shape *shape, int rank);
/* Copy (or add to) box `to` from box `from`; boxes hold equally many. */
void virtual_copy(enum merak_dtype dtype, const void *src,
                  const struct merak_box *from, void *dst,
                  const struct merak_box *to, enum merak_combine combine);
/* Take one hop on all ranks: in[rank] to out[rank], both allocated. */
void virtual_hop(const struct merak_mesh *mesh, const struct merak_hop *hop,
                 const struct merak_layout *from,
                 const struct merak_shape *shape, enum merak_dtype dtype,
                 void *const *in, void *const *out);
/*
 * The part of a whole tensor that a rank holds.  Partial layouts: the first
 * rank of a partial group holds the value, the others what adds nothing.
 */
void virtual_part(const struct merak_mesh *mesh,
                  const struct merak_layout *layout,
                  const struct merak_shape *shape, int rank,
                  enum merak_dtype dtype, const void *whole, void *part);

#endif
