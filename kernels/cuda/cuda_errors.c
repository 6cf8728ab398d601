/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_errors.c - CUDA's error codes as Merak's, with fixes */
#include "config.h"

#include "kernels/cuda/cuda_gpu.h"

#include "base/error.h"

#include <stdio.h>

struct remedy {
    cudaError_t code;
    enum merak_status status;
    const char *text;
};

static const struct remedy remedies[] = {
    {cudaErrorMemoryAllocation, MERAK_ERR_NOMEM,
     "use more stages, a larger tp, a smaller micro-batch, or end other "
     "processes on the GPU (nvidia-smi shows them)"},
    {cudaErrorInsufficientDriver, MERAK_ERR_UNSUPPORTED,
     "no NVIDIA driver, or one older than this module's CUDA, is loaded on "
     "this node: install one of release 580 or later, or use --backend cpu"},
    {cudaErrorNoDevice, MERAK_ERR_UNSUPPORTED,
     "this task was given no GPU: ask for as many per node as it has tasks "
     "(--gpus-per-node=N --gpu-bind=none), see that CUDA_VISIBLE_DEVICES names "
     "them, or use --backend cpu"},
    {cudaErrorStubLibrary, MERAK_ERR_UNSUPPORTED,
     "libcuda.so.1 is the toolkit's stub, not a driver: take lib64/stubs out "
     "of LD_LIBRARY_PATH"},
    {cudaErrorSystemDriverMismatch, MERAK_ERR_UNSUPPORTED,
     "the driver in the kernel and libcuda.so.1 are of different releases: "
     "reboot the node, or install the one that is loaded"},
    {cudaErrorSystemNotReady, MERAK_ERR_UNSUPPORTED,
     "the node's GPU services are not up: see nvidia-fabricmanager and "
     "nvidia-persistenced"},
    {cudaErrorDevicesUnavailable, MERAK_ERR_UNSUPPORTED,
     "another process holds it in exclusive mode: end it, or start one task "
     "per GPU"},
    {cudaErrorNoKernelImageForDevice, MERAK_ERR_UNSUPPORTED,
     "the module has no kernels for its compute capability: build Merak for "
     "it (configure --with-cuda-arch)"},
    {cudaErrorECCUncorrectable, MERAK_ERR_SYSTEM,
     "the GPU's memory has an uncorrectable ECC error: drain the node and "
     "reset the GPU; results since the last checkpoint cannot be trusted"},
    {cudaErrorHardwareStackError, MERAK_ERR_SYSTEM,
     "the GPU failed: drain the node"},
    {cudaErrorNvlinkUncorrectable, MERAK_ERR_SYSTEM,
     "an NVLink has an uncorrectable error: drain the node"},
    {cudaErrorIllegalAddress, MERAK_ERR_SYSTEM,
     "a kernel touched memory that is not its own; MERAK_ACCEL_SYNC=1 makes "
     "the message name it"},
    {cudaErrorLaunchFailure, MERAK_ERR_SYSTEM,
     "a kernel ended badly; MERAK_ACCEL_SYNC=1 makes the message name it"},
    {cudaErrorMisalignedAddress, MERAK_ERR_SYSTEM,
     "a kernel's operand is not aligned; MERAK_ACCEL_SYNC=1 makes the message "
     "name it"},
};

enum merak_status merak_cuda_fail(struct merak_error *err, int device,
                                  const char *what, cudaError_t code)
{
    enum merak_status status = MERAK_ERR_SYSTEM;
    const char *remedy = "";
    char where[24] = "";

    for (size_t i = 0; i < sizeof(remedies) / sizeof(*remedies); i++) {
        if (remedies[i].code == code) {
            status = remedies[i].status;
            remedy = remedies[i].text;
        }
    }
    if (device >= 0)
        snprintf(where, sizeof(where), " on GPU %d", device);
    return merak_fail(err, status, "cannot %s%s: %s%s%s", what, where,
                      cudaGetErrorString(code), *remedy != '\0' ? "; " : "",
                      remedy);
}
