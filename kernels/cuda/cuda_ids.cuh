/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_ids.cuh - tokens and targets in a vocabulary that may be
 * split */
#ifndef MERAK_KERNELS_CUDA_CUDA_IDS_CUH
#define MERAK_KERNELS_CUDA_CUDA_IDS_CUH

#include "kernels/cuda/cuda_device.cuh"

struct merak_ids {
    const int32_t *id;
    size_t lo, here, all; /* ids [lo, lo + here) of `all` are on this rank */
    struct merak_cuda_fault *fault;
    int what; /* MERAK_CUDA_FAULT_* */
};

/* Operand o of a call; the vocabulary is dim d of `table`. */
static inline merak_ids view_ids(const struct merak_kernel_call *call, int o,
                                 const struct merak_operand *table, int d,
                                 int what)
{
    merak_ids ids = {};

    ids.id = static_cast<const int32_t *>(call->operand[o].data);
    ids.lo = table->lo[d];
    ids.here = table->local.dim[d];
    ids.all = table->full.dim[d];
    ids.fault = merak_cuda_context_of(call)->fault;
    ids.what = what;
    return ids;
}

/* The local index of id i; not below `here` if another rank has it. */
static __device__ __forceinline__ size_t quiet_local_id(const merak_ids &ids,
                                                        size_t i)
{
    int32_t id = ids.id[i];

    if (id < 0 || (size_t)id < ids.lo)
        return SIZE_MAX;
    return (size_t)id - ids.lo;
}

/* Is id i MERAK_NO_TARGET? */
static __device__ __forceinline__ bool has_none(const merak_ids &ids, size_t i)
{
    return ids.what == MERAK_CUDA_FAULT_TARGET && ids.id[i] == MERAK_NO_TARGET;
}

/* Report id i if it is outside the vocabulary. */
static __device__ __forceinline__ void check_id(const merak_ids &ids, size_t i)
{
    int32_t id = ids.id[i];

    if ((id < 0 || (size_t)id >= ids.all) && ids.fault != nullptr &&
        !has_none(ids, i)) {
        ids.fault->id = id;
        ids.fault->vocabulary = ids.all;
        __threadfence_system(); /* the host reads them if it sees `raised` */
        ids.fault->raised = ids.what;
    }
}

/* Like quiet_local_id(), but ids outside the vocabulary are reported. */
static __device__ __forceinline__ size_t local_id(const merak_ids &ids,
                                                  size_t i)
{
    check_id(ids, i);
    return quiet_local_id(ids, i);
}

#endif
