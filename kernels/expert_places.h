/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/expert_places.h - places of rows that travel to their experts
 *
 * Each of B sequences has R places for each of E experts, which its first rows
 * of an expert have, by position; `place` of the ops has of these the number in
 * use, then the weight of each.
 */
#ifndef MERAK_KERNELS_EXPERT_PLACES_H
#define MERAK_KERNELS_EXPERT_PLACES_H

#include "kernels/geometry.h"
#include "kernels/kernels.h"

/* A call of experts_places, experts_places_dx, experts_send, experts_join or
 * experts_capacity: sequences of T tokens with K rows each. */
struct merak_places {
    size_t B, T, K, E, R;
    size_t C; /* channels here, of experts_send and experts_join */
    const int32_t *ids;
};
struct merak_places merak_places_view(const struct merak_kernel_call *call);

/* What merak_places_find() fills, in this order, of 32-bit numbers. */
struct merak_place_map {
    uint32_t *of_row; /* [B, T, K]: e R + r, or MERAK_NO_PLACE */
    uint32_t *row_at; /* [B, E, R]: t K + k, or MERAK_NO_PLACE */
    uint32_t *used;   /* [B, E] */
};
#define MERAK_NO_PLACE UINT32_MAX
/* The map in `memory`, and how many numbers it has; NULL: only count. */
size_t merak_places_map(const struct merak_places *p, uint32_t *memory,
                        struct merak_place_map *map);
/* Rows of MERAK_NO_EXPERT have no place.  MERAK_ERR_PARAM naming the first row
 * whose expert does not exist. */
enum merak_status merak_places_find(const struct merak_places *p,
                                    const struct merak_place_map *map,
                                    struct merak_error *err) MERAK_CHECKED;
/* The experts of rows that have a place; of others, MERAK_NO_EXPERT. */
void merak_places_keep(const struct merak_places *p,
                       const struct merak_place_map *map, int32_t *kept);
/* How many of the call's rows are of no expert. */
double merak_rows_dropped(const struct merak_kernel_call *call);

/*
 * A call of experts_rows or its gradients is two of experts or its gradients:
 *
 *   placed  of rows at their places, each a token with one row and its own
 *           place in the pool; those not in use are of no expert.  Its ids and
 *           weights are not an operand's: `rows` of each, which the caller
 *           makes from `place` with the functions below for data of operands 1
 *           (weights) and 2
 *   rest    of rows that have no place, by token; nothing of them is kept.  Of
 *           experts_dw it accumulates
 */
struct merak_expert_calls {
    size_t rows; /* B E R, experts being those of this rank */
    size_t E, R;
    size_t from; /* number of the first expert */
    const struct merak_operand *place;
    const struct merak_operand *dplace; /* of experts_rows_dx, else NULL; from
                                           operand `dw` of placed, [rows] */
    int dw;
    struct merak_kernel_call placed, rest;
};
void merak_expert_split(const struct merak_kernel_call *call,
                        struct merak_expert_calls *calls);
#ifdef __CUDACC__ /* kernels on devices ask, too */
#define MERAK_PLACE_FN static inline __host__ __device__
#else
#define MERAK_PLACE_FN static inline
#endif
/* Where `place` has the weight of place i, and the number in use of its expert.
 */
MERAK_PLACE_FN size_t merak_weight_at(size_t i, size_t R)
{
    return i / R * (R + 1) + 1 + i % R;
}
MERAK_PLACE_FN size_t merak_used_at(size_t i, size_t R)
{
    return i / R * (R + 1);
}
/* The expert of place i if that number is `used`, or MERAK_NO_EXPERT. */
MERAK_PLACE_FN int32_t merak_expert_at(size_t i, size_t E, size_t R,
                                       size_t from, double used)
{
    return (double)(i % R) + 0.5 < used ? (int32_t)(from + i / R % E)
                                        : MERAK_NO_EXPERT;
}

#endif
