/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_devices.c - list the GPUs that Merak can use
 *
 * CUDA numbers the devices that CUDA_VISIBLE_DEVICES leaves.  A GPU's PCI
 * address is the same for all tasks of a node; sysfs has its NUMA node.
 */
#include "config.h"

#include "kernels/cuda/cuda_gpu.h"

#include "base/error.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of configure's --with-cuda-arch. */
#ifndef MERAK_CUDA_ARCHS
#define MERAK_CUDA_ARCHS "80"
#endif
#define NVML "libnvidia-ml.so.1"

static void gather_by_nvml(struct merak_cuda_facts *facts)
{
    struct merak_nvml nvml;

    if (merak_nvml_open(NVML, &nvml))
        merak_nvml_gather(&nvml, facts);
}

static enum merak_status check_driver(struct merak_error *err)
{
    struct merak_cuda_facts facts = {.major = 0};
    struct merak_cuda_driver *d = &facts.driver;
    cudaError_t code = cudaDriverGetVersion(&d->driver);

    if (code == cudaSuccess)
        code = cudaRuntimeGetVersion(&d->runtime);
    if (code != cudaSuccess)
        return merak_cuda_fail(err, -1, "ask for the driver's version", code);
    if (d->driver != 0 && d->driver < d->runtime)
        gather_by_nvml(&facts);
    return merak_cuda_check_driver(d, err);
}

enum merak_status merak_cuda_gather(int device, struct merak_cuda_facts *facts,
                                    struct merak_error *err)
{
    struct cudaDeviceProp prop;
    int mode = 0, ecc = 0;
    cudaError_t code = cudaGetDeviceProperties(&prop, device);

    *facts = (struct merak_cuda_facts){.major = 0};
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&ecc, cudaDevAttrEccEnabled, device);
    if (code == cudaSuccess)
        code =
            cudaDeviceGetPCIBusId(facts->bus, (int)sizeof(facts->bus), device);
    if (code != cudaSuccess)
        return merak_cuda_fail(err, device, "ask for its properties", code);
    for (char *c = facts->bus; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    snprintf(facts->name, sizeof(facts->name), "%.127s", prop.name);
    facts->major = prop.major;
    facts->minor = prop.minor;
    facts->sms = prop.multiProcessorCount;
    facts->memory_bytes = prop.totalGlobalMem;
    facts->prohibited = mode == cudaComputeModeProhibited;
    facts->ecc = ecc ? MERAK_CUDA_ECC_ON : MERAK_CUDA_ECC_OFF;
    (void)cudaDriverGetVersion(&facts->driver.driver);
    (void)cudaRuntimeGetVersion(&facts->driver.runtime);
    gather_by_nvml(facts);
    return MERAK_OK;
}

/* The NUMA node of "0000:1b:00.0", by sysfs. */
static int numa_of(const char *bus)
{
    char path[64];
    FILE *f;
    int node = -1;

    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", bus);
    f = fopen(path, "re");
    if (f == NULL)
        return -1;
    if (fscanf(f, "%d", &node) != 1)
        node = -1;
    fclose(f);
    return node;
}

enum merak_status merak_cuda_check_device(int device, struct merak_error *err)
{
    struct merak_cuda_facts facts;
    enum merak_status rc = merak_cuda_gather(device, &facts, err);

    return rc == MERAK_OK
               ? merak_cuda_check_facts(device, &facts, MERAK_CUDA_ARCHS, err)
               : rc;
}

/* Write it like nvidia-smi. */
static void write_uuid(const cudaUUID_t *uuid, char text[48])
{
    size_t n = (size_t)snprintf(text, 48, "GPU");

    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;

        n += (size_t)snprintf(text + n, 48 - n, "%s%02x", dash ? "-" : "",
                              (unsigned char)uuid->bytes[i]);
    }
}

static enum merak_status look_at(int number, struct merak_accel_device *device,
                                 struct merak_error *err)
{
    struct merak_cuda_facts facts;
    struct cudaDeviceProp prop;
    enum merak_status rc = merak_cuda_gather(number, &facts, err);

    if (rc == MERAK_OK)
        rc = merak_cuda_check_facts(number, &facts, MERAK_CUDA_ARCHS, err);
    if (rc != MERAK_OK)
        return rc;
    device->number = number;
    device->uuid[0] = '\0';
    if (cudaGetDeviceProperties(&prop, number) == cudaSuccess)
        write_uuid(&prop.uuid, device->uuid);
    snprintf(device->name, sizeof(device->name), "%.63s", facts.name);
    memcpy(device->bus, facts.bus, sizeof(device->bus));
    device->numa = numa_of(device->bus);
    return MERAK_OK;
}

enum merak_status merak_cuda_devices(struct merak_accel_device *device, int max,
                                     int *n_p, struct merak_error *err)
{
    struct merak_error why = {.text = ""};
    enum merak_status rc = check_driver(err);
    cudaError_t code;
    int n = 0, fit = 0;

    /* Streams share this number of hardware queues, 8 by default: a stream that
     * waits for another rank would block those on the same queue, for good with
     * 1, which other trainers ask for.  Read when a context is created. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    if (rc != MERAK_OK)
        return rc;
    code = cudaGetDeviceCount(&n);
    if (code == cudaSuccess && n == 0)
        code = cudaErrorNoDevice;
    if (code != cudaSuccess)
        return merak_cuda_fail(err, -1, "find a GPU", code);
    for (int i = 0; i < n && fit < max; i++) {
        rc = look_at(i, &device[fit], &why);
        fit += rc == MERAK_OK;
    }
    why.status = fit > 0 ? MERAK_OK : why.status;
    if (err != NULL)
        *err = why;
    if (fit == 0)
        return rc;
    *n_p = fit;
    return MERAK_OK;
}

void merak_cuda_facts_text(int device, char *text, size_t bytes, char *warning,
                           size_t warning_bytes)
{
    struct merak_cuda_facts facts;

    text[0] = warning[0] = '\0';
    if (merak_cuda_gather(device, &facts, NULL) != MERAK_OK)
        return;
    merak_cuda_describe_facts(device, &facts, text, bytes);
    merak_cuda_warn_facts(device, &facts, warning, warning_bytes);
}
