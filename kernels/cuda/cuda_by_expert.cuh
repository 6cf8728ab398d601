/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_by_expert.cuh - the order in which a token's rows are added
 */
#ifndef MERAK_KERNELS_CUDA_BY_EXPERT_CUH
#define MERAK_KERNELS_CUDA_BY_EXPERT_CUH

#include "kernels/cuda/cuda_device.cuh"

/* Of a token's K rows that has(k) takes, pass each to add(k), by ascending
 * expert, then k. */
template <typename H, typename A>
static __device__ __forceinline__ void
by_expert(const int32_t *id, size_t K, const H &has, const A &add)
{
    int64_t last = -1; /* expert and row of what was added last */

    for (size_t done = 0; done < K; done++) {
        int64_t next = INT64_MAX;

        for (size_t k = 0; k < K; k++) {
            int64_t key = (int64_t)id[k] * (int64_t)K + (int64_t)k;

            if (key > last && key < next && has(k))
                next = key;
        }
        if (next == INT64_MAX)
            return;
        last = next;
        add((size_t)(next % (int64_t)K));
    }
}

#endif
