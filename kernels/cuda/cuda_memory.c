/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_memory.c - a GPU's memory, and pinned host memory */
#include "config.h"

#include "kernels/cuda/cuda_queue.h"

#include "base/error.h"

#include <stdio.h>

enum merak_status merak_cuda_memory(struct merak_accel *accel, size_t *left_p,
                                    size_t *all_p, struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = merak_cuda_enter(c, err);

    return rc == MERAK_OK ? merak_cuda_check(c, "ask what memory is left",
                                             cudaMemGetInfo(left_p, all_p), err)
                          : rc;
}

enum merak_status merak_cuda_alloc(struct merak_accel *accel, size_t bytes,
                                   void **address_p, struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = merak_cuda_enter(c, err);
    size_t left = 0, all = 0;
    cudaError_t code;
    char what[128];

    if (rc != MERAK_OK)
        return rc;
    code = cudaMalloc(address_p, bytes > 0 ? bytes : 1);
    if (code == cudaSuccess) {
        accel->allocated += bytes;
        return MERAK_OK;
    }
    (void)cudaGetLastError(); /* the device is still usable */
    (void)cudaMemGetInfo(&left, &all);
    snprintf(what, sizeof(what),
             "allocate %zu bytes (%.2f GiB; %.2f of %.2f GiB are free)", bytes,
             (double)bytes / 0x1p30, (double)left / 0x1p30,
             (double)all / 0x1p30);
    return merak_cuda_fail(err, c->device, what, code);
}

void merak_cuda_free(struct merak_accel *accel, void *address)
{
    if (address != NULL &&
        merak_cuda_enter(merak_cuda_of(accel), NULL) == MERAK_OK)
        (void)cudaFree(address);
}

bool merak_cuda_pin(struct merak_accel *accel, void *host, size_t bytes)
{
    if (bytes == 0 || merak_cuda_enter(merak_cuda_of(accel), NULL) != MERAK_OK)
        return false;
    /* locked memory is limited in many jobs (ulimit -l) */
    if (cudaHostRegister(host, bytes, cudaHostRegisterPortable) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    return false;
}

void merak_cuda_unpin(struct merak_accel *accel, void *host)
{
    if (merak_cuda_enter(merak_cuda_of(accel), NULL) == MERAK_OK &&
        cudaHostUnregister(host) != cudaSuccess)
        (void)cudaGetLastError();
}
