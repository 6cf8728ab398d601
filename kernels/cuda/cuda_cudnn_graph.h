/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_cudnn_graph.h - attention as a graph of cuDNN's operations
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_CUDNN_GRAPH_H
#define MERAK_KERNELS_CUDA_CUDA_CUDNN_GRAPH_H

#include "kernels/cuda/cuda_cudnn_api.h"

#include <stdbool.h>

/* All that a graph depends on; compared as bytes, so made from zero.  Elements
 * (b, t, h, d) of q, and likewise of others, stand (b T + t) row + h D + d from
 * its first. */
struct merak_cudnn_shape {
    int64_t B, T, H, G, D; /* H query heads, G kv heads */
    int64_t window;        /* keys that a query sees at most; 0: all */
    int64_t q_row, k_row, v_row, o_row;
    int64_t d_o_row, dq_row, dk_row, dv_row; /* backward */
    double scale;                            /* of scores */
    int64_t backward;                        /* 0: forward */
};

/* What tensors of memory are called. */
enum merak_cudnn_uid {
    MERAK_CUDNN_UID_Q = 1,
    MERAK_CUDNN_UID_K,
    MERAK_CUDNN_UID_V,
    MERAK_CUDNN_UID_O,
    MERAK_CUDNN_UID_LSE,    /* f32 [B, T, H] */
    MERAK_CUDNN_UID_SCALE,  /* by value: f32 */
    MERAK_CUDNN_UID_HIDDEN, /* by value: the score of what is not seen */
    MERAK_CUDNN_UID_WINDOW, /* by value: f32, if there is a window */
    /* of the backward pass */
    MERAK_CUDNN_UID_DO,
    MERAK_CUDNN_UID_DQ,
    MERAK_CUDNN_UID_DK,
    MERAK_CUDNN_UID_DV,
    MERAK_CUDNN_UID_DELTA, /* f32 [B, H, T], scratch */
    MERAK_CUDNN_UID_ONE,   /* by value: f32 */
    MERAK_CUDNN_UIDS
};

#define MERAK_CUDNN_DESCRIPTORS 128 /* of a graph, more than there are */
#define MERAK_CUDNN_OPS 32

/* A graph, its operations and tensors. */
struct merak_cudnn_graph {
    const struct merak_cudnn_calls *call;
    void *desc[MERAK_CUDNN_DESCRIPTORS]; /* all, in the order they were made */
    int n_descs;
    void *op[MERAK_CUDNN_OPS];
    int n_ops;
    void *graph;
    int64_t next_uid;           /* of tensors that are in no memory */
    unsigned uids;              /* 1u << uid of those that are */
    int64_t batch, heads, rows; /* of scores */
    /* the first call that failed; MERAK_CUDNN_OK */
    int status;
    const char *what;
};

/*
 * Make a graph of a shape.
 *
 *   handle  cuDNN's; NULL where there is no device, and the plan's device is
 *           said otherwise
 *
 * Returns cuDNN's status; graph->what is what it refused.  Also after a failure
 * merak_cudnn_graph_fini() is called.
 */
int merak_cudnn_graph_init(struct merak_cudnn_graph *graph,
                           const struct merak_cudnn_calls *call, void *handle,
                           const struct merak_cudnn_shape *shape);
void merak_cudnn_graph_fini(struct merak_cudnn_graph *graph);

/* Is it one of those by value? */
bool merak_cudnn_is_scalar(enum merak_cudnn_uid uid);
/* A scalar's value; uid is one of those by value. */
float merak_cudnn_scalar(const struct merak_cudnn_shape *shape,
                         enum merak_cudnn_uid uid);

#endif
