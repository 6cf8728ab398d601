// SPDX-License-Identifier: Apache-2.0
/* cuda_host.cc - the CUDA kernels over kernels/cuda/cuda_sim.h, as one text */
#include "unit/kernels/cuda_host.h"

/* so that rows are staged in parts */
#define MERAK_STAGE_BYTES 4096
/* so that a block has several samples */
#define MERAK_ROPE_BLOCKS 8

#include "kernels/cuda/cuda_balance.cu"
#include "kernels/cuda/cuda_channels.cu"
#include "kernels/cuda/cuda_columns.cu"
#include "kernels/cuda/cuda_copy.cu"
#include "kernels/cuda/cuda_dice.cu"
#include "kernels/cuda/cuda_embed.cu"
#include "kernels/cuda/cuda_expert_bias.cu"
#include "kernels/cuda/cuda_expert_rows.cu"
#include "kernels/cuda/cuda_experts.cu"
#include "kernels/cuda/cuda_linear.cu"
#include "kernels/cuda/cuda_loss.cu"
#include "kernels/cuda/cuda_norm.cu"
#include "kernels/cuda/cuda_pointwise.cu"
#include "kernels/cuda/cuda_mean.cu"
#include "kernels/cuda/cuda_pool.cu"
#include "kernels/cuda/cuda_position.cu"
#include "kernels/cuda/cuda_rope.cu"
#include "kernels/cuda/cuda_route.cu"
#include "kernels/cuda/cuda_sinks.cu"
#include "kernels/cuda/cuda_step.cu"
#include "kernels/cuda/cuda_topk.cu"
#include "kernels/cuda/cuda_window.cu"
#include "kernels/cuda/cuda_xent.cu"

void cuda_host_seed(uint64_t seed)
{
    merak_sim_seed(seed);
}
