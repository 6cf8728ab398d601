/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_sim_queue.h - streams for kernels that run on the host
 *
 * With cuda_sim.h a kernel has run when its launch returns, unless somebody
 * has streams: then the launch is put into one.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_SIM_QUEUE_H
#define MERAK_KERNELS_CUDA_CUDA_SIM_QUEUE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queue run() of a copy of `work`; not 0: it was not queued.  NULL: there are
 * no streams.  Kernels run one at a time, which the owner sees to. */
extern int (*merak_sim_queue)(void *stream, void (*run)(void *work),
                              const void *work, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
