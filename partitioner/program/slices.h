/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/slices.h - the slices of a micro-batch's sequence */
#ifndef MERAK_PARTITIONER_PROGRAM_SLICES_H
#define MERAK_PARTITIONER_PROGRAM_SLICES_H

#include "merak/status.h"

#include <stdbool.h>
#include <stddef.h>

struct merak_build;
struct merak_node;

struct merak_build_slice {
    int n;       /* 1: it runs whole, and the rest is not set */
    size_t *at;  /* where each begins, and where the last one ends */
    bool unlike; /* they are not of one length */
};

/* Find where the slices of a sequence begin; an error if it cannot be cut. */
enum merak_status merak_build_slices(struct merak_build *b) MERAK_CHECKED;
/* Does a value consist of slices? */
bool merak_build_is_sliced(const struct merak_build *b, int value);
/* Of how many kinds are a micro-batch's slices, by their lengths, and of which
 * is the current one?  What depends on the length alone is made once for each. */
int merak_build_slice_kinds(const struct merak_build *b);
int merak_build_slice_kind(const struct merak_build *b);
/* Tokens of the current slice. */
size_t merak_build_slice_len(const struct merak_build *b);
/* The elements that the shortest slice has of a value of `elements`: all of
 * them if it runs whole. */
size_t merak_build_slice_least(const struct merak_build *b, size_t elements);
/* Slots for the slices of a value's new slot. */
void merak_build_cut(struct merak_build *b, int slot);
/* The slot of operand i of a node in the current slice, from the slot of the
 * whole value. */
int merak_build_slice_slot(const struct merak_build *b,
                           const struct merak_node *node, int i, int slot);
/* Does a node run in the current slice? */
bool merak_build_runs(const struct merak_build *b,
                      const struct merak_node *node);
/* Is the current slice of a micro-batch the first, or the last, to give
 * gradients?  These begin at the sequence's end. */
bool merak_build_first_back(const struct merak_build *b);
bool merak_build_last_back(const struct merak_build *b);

#endif
