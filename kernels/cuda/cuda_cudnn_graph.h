/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_cudnn_graph.h - attention as a graph of cuDNN operations */
#ifndef MERAK_KERNELS_CUDA_CUDA_CUDNN_GRAPH_H
#define MERAK_KERNELS_CUDA_CUDA_CUDNN_GRAPH_H

#include "kernels/cuda/cuda_cudnn_api.h"

#include <stdbool.h>

/* All that a graph depends on; compared as bytes, so it has to be zeroed first.
 * Element (b, t, h, d) of q, and of the others, is at (b T + t) row + h D + d
 * from its first. */
struct merak_cudnn_shape {
    int64_t B, T, H, G, D; /* H query heads, G kv heads */
    int64_t window;        /* most keys that a query sees; 0: all */
    int64_t q_row, k_row, v_row, o_row;
    int64_t d_o_row, dq_row, dk_row, dv_row; /* backward */
    double scale;                            /* of scores */
    int64_t backward;                        /* 0: forward */
};

/* The ids of tensors in memory. */
enum merak_cudnn_uid {
    MERAK_CUDNN_UID_Q = 1,
    MERAK_CUDNN_UID_K,
    MERAK_CUDNN_UID_V,
    MERAK_CUDNN_UID_O,
    MERAK_CUDNN_UID_LSE,    /* f32 [B, T, H] */
    MERAK_CUDNN_UID_SCALE,  /* by value: f32 */
    MERAK_CUDNN_UID_HIDDEN, /* by value: the score of masked keys */
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

#define MERAK_CUDNN_DESCRIPTORS 128 /* more than a graph has */
#define MERAK_CUDNN_OPS 32

/* A graph, its operations and tensors. */
struct merak_cudnn_graph {
    const struct merak_cudnn_calls *call;
    void *desc[MERAK_CUDNN_DESCRIPTORS]; /* all, in order of creation */
    int n_descs;
    void *op[MERAK_CUDNN_OPS];
    int n_ops;
    void *graph;
    int64_t next_uid;           /* of virtual tensors */
    unsigned uids;              /* 1u << uid of tensors in memory */
    int64_t batch, heads, rows; /* of scores */
    /* status of the first call that failed, or MERAK_CUDNN_OK */
    int status;
    const char *what;
};

/*
 * Make a graph of a shape.
 *
 *   handle  cuDNN's; NULL without a device, if the plan's device is described
 *           otherwise
 *
 * Returns cuDNN's status; graph->what is what it refused.
 * merak_cudnn_graph_fini() has to be called even after a failure.
 */
int merak_cudnn_graph_init(struct merak_cudnn_graph *graph,
                           const struct merak_cudnn_calls *call, void *handle,
                           const struct merak_cudnn_shape *shape);
void merak_cudnn_graph_fini(struct merak_cudnn_graph *graph);

/* Is it one of the tensors by value? */
bool merak_cudnn_is_scalar(enum merak_cudnn_uid uid);
/* The value of a tensor by value. */
float merak_cudnn_scalar(const struct merak_cudnn_shape *shape,
                         enum merak_cudnn_uid uid);

#endif
