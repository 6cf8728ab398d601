/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in_cuda_graph.c - captured work, and graphs of it */
#include "config.h"

#include "unit/kernels/stand_in_cuda_impl.h"

#include <stdlib.h>

static __thread int captures; /* of this thread */

int sc_captures(void)
{
    return captures;
}

/* --- graphs -----------------------------------------------------------------
 */

cudaError_t cudaStreamBeginCapture(cudaStream_t s,
                                   enum cudaStreamCaptureMode mode)
{
    sc_check_stream(s);
    if (mode != cudaStreamCaptureModeThreadLocal || s->capture != NULL)
        return sc_answer(cudaErrorIllegalState);
    s->capture = calloc(1, sizeof(*s->capture));
    if (s->capture == NULL)
        sc_die("out of memory");
    s->spoilt = false;
    captures++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    cudaGraph_t g = s->capture;

    sc_check_stream(s);
    if (g == NULL)
        return sc_answer(cudaErrorIllegalState);
    s->capture = NULL;
    captures--;
    if (s->spoilt) {
        (void)cudaGraphDestroy(g);
        *graph = NULL;
        return sc_answer(cudaErrorStreamCaptureInvalidated);
    }
    *graph = g;
    return cudaSuccess;
}

static void free_all(struct CUgraph_st *g)
{
    for (size_t i = 0; i < g->n; i++)
        free(g->work[i]);
    free(g->work);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    free_all(graph);
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags)
{
    cudaGraphExec_t e = calloc(1, sizeof(*e));

    if (e == NULL || flags != 0 || captures > 0)
        sc_die("a graph cannot be made");
    e->graph.work = calloc(graph->n + 1, sizeof(struct work *));
    if (e->graph.work == NULL)
        sc_die("out of memory");
    for (size_t i = 0; i < graph->n; i++)
        e->graph.work[e->graph.n++] = sc_make_work(
            graph->work[i]->run, graph->work[i]->copy, graph->work[i]->bytes);
    *exec = e;
    return sc_answer(sc_failure());
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    free_all(&exec->graph);
    free(exec);
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s)
{
    (void)exec;
    sc_check_stream(s);
    return sc_answer(sc_failure());
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    int code = cudaSuccess;

    sc_check_stream(s);
    if (s->capture != NULL)
        return sc_forbid(s);
    for (size_t i = 0; i < exec->graph.n && code == cudaSuccess; i++)
        code = sc_queue(&s->base, exec->graph.work[i]->run,
                        exec->graph.work[i]->copy, exec->graph.work[i]->bytes);
    return sc_answer((cudaError_t)code);
}
