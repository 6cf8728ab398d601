// SPDX-License-Identifier: Apache-2.0
/* cuda_host_attention.cc - as cuda_host.cc: what takes longest to compile */
#include "kernels/cuda/cuda_attention.cu"
