/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/plan/neighbour.h - other values of a choice, the nearest first
 *
 * What to try if there is no plan that meets a request.
 */
#ifndef MERAK_PARTITIONER_PLAN_NEIGHBOUR_H
#define MERAK_PARTITIONER_PLAN_NEIGHBOUR_H

#include <stdbool.h>
#include <stddef.h>

#define MERAK_MAX_NEAR 12 /* values of one choice that are tried */
#define MERAK_NEAR_PLACES \
    10 /* cut points of a cut that is moved: it has to fit in a line */

struct merak_choice;
struct merak_choices;

/* Why another value is needed, and room for it. */
struct merak_near {
    bool memory; /* to need less memory; else so that numbers divide */
    size_t global_batch;
    int place[MERAK_NEAR_PLACES];
};

/* Change a choice of *to, which is the request, to its i-th nearest other
 * value, 0 the nearest; false if there is none.  *to may borrow from near. */
typedef bool (*merak_near_fn)(const struct merak_choice *choice,
                              struct merak_near *near, int i,
                              struct merak_choices *to);
/* The usual value. */
bool merak_near_usual(const struct merak_choice *choice,
                      struct merak_near *near, int i, struct merak_choices *to);
/* Sizes that divide the batch. */
bool merak_near_size(const struct merak_choice *choice, struct merak_near *near,
                     int i, struct merak_choices *to);
/* More that is shared out. */
bool merak_near_zero(const struct merak_choice *choice, struct merak_near *near,
                     int i, struct merak_choices *to);
bool merak_near_offload(const struct merak_choice *choice,
                        struct merak_near *near, int i,
                        struct merak_choices *to);
bool merak_near_schedule(const struct merak_choice *choice,
                         struct merak_near *near, int i,
                         struct merak_choices *to);
bool merak_near_chunks(const struct merak_choice *choice,
                       struct merak_near *near, int i,
                       struct merak_choices *to);
/* The least that fits. */
bool merak_near_recompute(const struct merak_choice *choice,
                          struct merak_near *near, int i,
                          struct merak_choices *to);
/* For memory, one cut point moved a little; then any cut. */
bool merak_near_cut(const struct merak_choice *choice, struct merak_near *near,
                    int i, struct merak_choices *to);

/* Insert a number into a list sorted by the distance from `to`, which itself is
 * not inserted; of two at the same distance the larger comes first. */
void merak_near_insert(size_t list[MERAK_MAX_NEAR], int *n, size_t value,
                       size_t to);

#endif
