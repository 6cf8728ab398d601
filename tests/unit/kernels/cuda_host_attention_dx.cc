// SPDX-License-Identifier: Apache-2.0
/* cuda_host_attention_dx.cc - as cuda_host_attention.cc: its backward */
#include "kernels/cuda/cuda_attention_dx.cu"
