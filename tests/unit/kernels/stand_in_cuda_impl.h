/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in_cuda_impl.h - internal to what plays CUDA */
#ifndef MERAK_TESTS_STAND_IN_CUDA_IMPL_H
#define MERAK_TESTS_STAND_IN_CUDA_IMPL_H

#include "unit/kernels/stand_in_cuda.h"

#include "kernels/accel.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

struct work {
    void (*run)(void *work);
    size_t bytes;
    _Alignas(16) unsigned char copy[];
};

struct CUgraph_st {
    struct work **work;
    size_t n;
};

struct CUgraphExec_st {
    struct CUgraph_st graph;
};

struct CUstream_st {
    struct stand_in_stream base;
    struct merak_fake_stream *under;
    int number; /* of the fake device's queue */
    int device;
    bool open;
    cudaGraph_t capture;         /* NULL: it runs what it is given */
    bool spoilt;                 /* the capture */
    struct merak_event *probe;   /* for cudaStreamQuery() */
    unsigned long given, probed; /* how much was put into it, and when probed */
};

struct CUevent_st {
    struct merak_event *event;
    bool has_time, recorded;
};

/* --- stand_in_cuda_device.c ------------------------------------------------
 */

_Noreturn void sc_die(const char *what);
/* Keep an error for cudaGetLastError(). */
cudaError_t sc_answer(cudaError_t code);
/* The number behind a word of MERAK_STAND_IN_CUDA. */
int sc_word(const char *name, int otherwise);
/* The thread's device. */
int sc_current(void);

/* --- stand_in_cuda_memory.c ------------------------------------------------
 */

/* Around work that may touch device memory. */
void sc_begin_work(void);
void sc_end_work(void);
bool sc_is_on_device(const void *at, size_t bytes);
/* Does it begin or end inside of pinned memory? */
bool sc_crosses_pinned(const unsigned char *at, size_t bytes);

/* --- stand_in_cuda.c -------------------------------------------------------
 */

void sc_start(void);
/* What the device died of; cudaSuccess: it lives. */
cudaError_t sc_failure(void);
/* For calls that a capture in this thread forbids: it is spoilt. */
cudaError_t sc_check_outside(void);
/* The stream is captured and cannot take this: the capture is spoilt. */
cudaError_t sc_forbid(cudaStream_t s);
void sc_check_stream(cudaStream_t s);
void sc_wait_for_all(void);
struct work *sc_make_work(void (*run)(void *work), const void *work,
                          size_t bytes);
int sc_queue(struct stand_in_stream *stream, void (*run)(void *work),
             const void *work, size_t bytes);

/* --- stand_in_cuda_graph.c -------------------------------------------------
 */

/* Streams that this thread captures. */
int sc_captures(void);

#endif
