/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/plan/mesh.h - the ranks of each stage
 *
 * A stage is run by dp replicas of tp tensor ranks each, among them those that
 * a plan's cp cuts sequences over, or its ep experts: a mesh's tp is the plan's
 * tp x cp x ep, the plan's tp counting fastest.  The logical rank of tensor
 * index t of replica d is first + d * stride + t.  In order tp-dp-pp a stage's
 * ranks follow one another (stride tp); in order tp-pp-dp those of a replica's
 * other stages lie between them (stride tp x pp).  This is the only place that
 * numbers ranks; whoever wants a stage's degrees, or a rank's neighbours, asks
 * here.
 *
 * Stages may have unlike degrees: then the plan has a list of them, the ranks
 * of a stage follow those of the one before, and each stage divides a
 * micro-batch of all replicas among its own.
 */
#ifndef MERAK_PARTITIONER_PLAN_MESH_H
#define MERAK_PARTITIONER_PLAN_MESH_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct merak_plan;

/* An item of a plan's list of stages. */
struct merak_stage_degrees {
    int dp, tp;
};

struct merak_stage_mesh {
    int first; /* logical rank of tensor index 0 of replica 0 */
    int dp, tp;
    int stride;   /* from a replica's first rank to the next one's */
    size_t batch; /* sequences of a micro-batch on each replica */
};

/*
 * Give a plan stages of these degrees, and its pp.
 *
 *   plan  its micro_batch: in: sequences of all replicas together; out: of one
 *         replica, if all stages are alike: then the plan has no list, but tp
 *         and dp
 *
 * The list is borrowed.  MERAK_ERR_CONFIG if a stage's replicas cannot divide
 * the micro-batch, or a degree is below 1.
 */
enum merak_status merak_plan_set_stages(struct merak_plan *plan,
                                        const struct merak_stage_degrees *stage,
                                        int n,
                                        struct merak_error *err) MERAK_CHECKED;
/* Have two stages, or any two of them, other degrees? */
bool merak_plan_is_unlike(const struct merak_plan *plan, int a, int b);
/* What the sequences of a micro-batch have to be a multiple of: the least
 * common multiple of all stages' replicas; 0 if that is too large. */
size_t merak_stages_least_samples(const struct merak_stage_degrees *stage,
                                  int n);

/* The first stage of a list whose tensor ranks are not all on one node, where
 * ranks fill nodes of so many in order; -1: there is none. */
int merak_stages_leave_node(const struct merak_stage_degrees *stage, int n,
                            int ranks_per_node);

/* The ranks of n stages together; INT_MAX: as many or more. */
int merak_stages_ranks(const struct merak_stage_degrees *stage, int n);

/* Tensor ranks of a replica of a stage, where all stages are alike: of axes of
 * all roles together, tp x cp x ep. */
int merak_plan_tensor_ranks(const struct merak_plan *plan);
/* Logical ranks of a plan, all stages together. */
int merak_plan_ranks(const struct merak_plan *plan);
/* The ranks of a stage. */
struct merak_stage_mesh merak_plan_mesh(const struct merak_plan *plan,
                                        int stage);
/* Sequences of a micro-batch, of all replicas together: of any stage the
 * same. */
size_t merak_plan_samples(const struct merak_plan *plan);
/* The ranks that stand for all of them where programs are played together: as
 * others of a stage do the same at the same time, one of each stage, with these
 * coordinates; of unlike stages, all.  How many, and the logical rank of one.
 */
int merak_plan_players(const struct merak_plan *plan);
int merak_plan_player(const struct merak_plan *plan, int tp_index, int dp_index,
                      int player);
/* Logical rank at these coordinates, and back. */
int merak_plan_rank(const struct merak_plan *plan, int tp_index, int dp_index,
                    int stage);
void merak_plan_coords(const struct merak_plan *plan, int rank, int *tp_index,
                       int *dp_index, int *stage);

/* Of the sequences of a step, the first one of a replica's micro-batch. */
static inline uint64_t merak_stage_sample(const struct merak_stage_mesh *mesh,
                                          int microbatch, int dp_index)
{
    return ((uint64_t)microbatch * (uint64_t)mesh->dp + (uint64_t)dp_index) *
           mesh->batch;
}

/* A stage's number of ranks, and one of them. */
static inline int merak_stage_ranks(const struct merak_stage_mesh *mesh)
{
    return mesh->dp * mesh->tp;
}

static inline int merak_stage_rank(const struct merak_stage_mesh *mesh,
                                   int tp_index, int dp_index)
{
    return mesh->first + mesh->stride * dp_index + tp_index;
}

#endif
