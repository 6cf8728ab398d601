/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in_cuda_device.c - devices, versions, errors */
#include "config.h"

#include "unit/kernels/stand_in_cuda_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread cudaError_t last;
static __thread int current; /* device */

_Noreturn void sc_die(const char *what)
{
    fprintf(stderr, "stand_in_cuda: %s\n", what);
    abort();
}

cudaError_t sc_answer(cudaError_t code)
{
    if (code != cudaSuccess)
        last = code;
    return code;
}

int sc_word(const char *name, int otherwise)
{
    const char *text = getenv("MERAK_STAND_IN_CUDA"), *at;

    at = text != NULL ? strstr(text, name) : NULL;
    return at != NULL ? atoi(at + strlen(name)) : otherwise;
}

int sc_current(void)
{
    return current;
}

/* --- devices ----------------------------------------------------------------
 */

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = sc_word("driver=", CUDART_VERSION);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* CUDA_VISIBLE_DEVICES: numbers alone, as Slurm sets it. */
static int number_of(int device)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");

    if (text == NULL)
        return device < sc_word("devices=", 1) ? device : -1;
    for (int i = 0; i < device && text != NULL; i++) {
        text = strchr(text, ',');
        text = text != NULL ? text + 1 : NULL;
    }
    if (text == NULL || *text < '0' || *text > '9')
        return -1;
    return atoi(text) < sc_word("devices=", 1) ? atoi(text) : -1;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 0;
    while (number_of(*n) >= 0)
        ++*n;
    return sc_answer(*n > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    if (number_of(device) < 0)
        return sc_answer(cudaErrorInvalidDevice);
    current = device;
    return sc_answer(sc_failure());
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    int number = number_of(device);

    if (number < 0)
        return sc_answer(cudaErrorInvalidDevice);
    memset(prop, 0, sizeof(*prop));
    snprintf(prop->name, sizeof(prop->name), "a stand-in for a GPU");
    memset(&prop->uuid, 0x10 + number, sizeof(prop->uuid));
    prop->major = 9;
    prop->multiProcessorCount = 132;
    prop->totalGlobalMem = (size_t)sc_word("memory=", 16384) << 20;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr,
                                   int device)
{
    if (number_of(device) < 0)
        return sc_answer(cudaErrorInvalidDevice);
    if (attr == cudaDevAttrComputeMode)
        *value = device == sc_word("prohibited=", -1)
                     ? cudaComputeModeProhibited
                     : cudaComputeModeDefault;
    else if (attr == cudaDevAttrEccEnabled)
        *value = 1;
    else
        return sc_answer(cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    int number = number_of(device);

    if (number < 0)
        return sc_answer(cudaErrorInvalidDevice);
    snprintf(text, (size_t)bytes, "0000:%02X:00.0", 0x1b + number);
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t code)
{
    switch (code) {
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorInvalidValue:
        return "invalid argument";
    default:
        return "unknown error";
    }
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t code = last;

    last = sc_failure();
    return code;
}
