/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/transport/tensor_box.h - copying and combining boxes of tensors
 *
 * A view is a box of a tensor in memory, walked in row-major order by its
 * contiguous runs.  Two views with the same number of elements can be copied
 * into each other whatever their shapes: the n-th element goes to the n-th.
 */
#ifndef MERAK_RUNTIME_TRANSPORT_BOX_H
#define MERAK_RUNTIME_TRANSPORT_BOX_H

#include "partitioner/layout/layout.h"

struct merak_view {
    char *base;      /* the tensor's first element */
    size_t elem;     /* bytes of one */
    size_t left;     /* elements not yet walked */
    size_t run;      /* elements of one contiguous run */
    size_t in_run;   /* walked in the current run */
    size_t offset;   /* of the current run, in elements */
    int n_outer;     /* dims outside a run */
    size_t len[MERAK_MAX_DIMS], stride[MERAK_MAX_DIMS], at[MERAK_MAX_DIMS];
};

/* A view of the whole box of the tensor at base. */
void merak_view_box(struct merak_view *v, const void *base,
                    enum merak_dtype dtype, const struct merak_box *box);
/* A view of `count` packed elements at base. */
void merak_view_flat(struct merak_view *v, const void *base,
                     enum merak_dtype dtype, size_t count);

/* Copy at most the next max elements; returns how many (0: the end). */
size_t merak_view_copy(struct merak_view *to, struct merak_view *from,
                       size_t max);
/*
 * Combine at most the next max elements of n views, in ascending order, into
 * each of n_to views; returns how many.  bf16 is summed in f32 and rounded
 * once.  A destination may be one of the sources, but must not partly overlap
 * one.
 */
size_t merak_view_combine(struct merak_view *to, int n_to,
                          struct merak_view *from, int n,
                          enum merak_combine combine, enum merak_dtype dtype,
                          size_t max);

#endif
