/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_devices.c - which GPUs there are, and which Merak takes
 *
 * CUDA numbers the devices that CUDA_VISIBLE_DEVICES leaves.  What a node has
 * in common with other tasks is the PCI bus; sysfs knows what memory that is
 * next to.
 */
#include "config.h"

#include "kernels/cuda/cuda_gpu.h"

#include "base/error.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The least that there are kernels for, as PTX; newer ones have their own. */
#define LEAST_MAJOR 8

/* A driver that is older than the CUDA this was built with cannot load it:
 * CUDA 13's first is release 580. */
static enum merak_status check_driver(struct merak_error *err)
{
    int driver = 0, runtime = 0;
    cudaError_t code = cudaDriverGetVersion(&driver);

    if (code == cudaSuccess)
        code = cudaRuntimeGetVersion(&runtime);
    if (code != cudaSuccess)
        return merak_cuda_fail(err, -1, "ask for the driver's version", code);
    if (driver == 0)
        return merak_fail(
            err, MERAK_ERR_UNSUPPORTED,
            "there is no NVIDIA driver on this node (libcuda.so.1 "
            "was not found): install one, start the job on "
            "nodes with GPUs, or use --backend cpu");
    if (driver / 1000 < runtime / 1000)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "the NVIDIA driver on this node is for CUDA %d.%d, "
                          "and this Merak needs one for %d.0 or later: update "
                          "the driver, or use --backend cpu",
                          driver / 1000, driver % 1000 / 10, runtime / 1000);
    return MERAK_OK;
}

/* "0000:1b:00.0" as sysfs writes it. */
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

/* As nvidia-smi does. */
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
    struct cudaDeviceProp prop;
    cudaError_t code = cudaGetDeviceProperties(&prop, number);

    if (code == cudaSuccess)
        code = cudaDeviceGetPCIBusId(device->bus, (int)sizeof(device->bus),
                                     number);
    if (code != cudaSuccess)
        return merak_cuda_fail(err, number, "ask what there is", code);
    for (char *c = device->bus; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    device->number = number;
    write_uuid(&prop.uuid, device->uuid);
    snprintf(device->name, sizeof(device->name), "%.63s", prop.name);
    device->numa = numa_of(device->bus);
    return MERAK_OK;
}

enum merak_status merak_cuda_devices(struct merak_accel_device *device, int max,
                                     int *n_p, struct merak_error *err)
{
    enum merak_status rc = check_driver(err);
    cudaError_t code;
    int n = 0, fit = 0;

    /* Streams share so many ways to the GPU, 8 if nobody says more: one that
     * waits for another rank would hold up whoever shares its way.  Read when
     * a context is made. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (rc != MERAK_OK)
        return rc;
    code = cudaGetDeviceCount(&n);
    if (code == cudaSuccess && n == 0)
        code = cudaErrorNoDevice;
    if (code != cudaSuccess)
        return merak_cuda_fail(err, -1, "find a GPU", code);
    for (int i = 0; i < n && fit < max; i++) {
        rc = merak_cuda_check_device(i, err);
        if (rc == MERAK_OK)
            rc = look_at(i, &device[fit], err);
        fit += rc == MERAK_OK;
    }
    if (fit == 0)
        return rc; /* why the last one is not */
    *n_p = fit;
    return MERAK_OK;
}

enum merak_status merak_cuda_check_facts(int device,
                                         const struct merak_cuda_facts *facts,
                                         struct merak_error *err)
{
    if (strstr(facts->name, " MIG ") != NULL)
        return merak_fail(
            err, MERAK_ERR_UNSUPPORTED,
            "GPU %d (%s) is a MIG slice and Merak plans for whole "
            "GPUs: ask for one, or use --backend cpu",
            device, facts->name);
    if (facts->major < LEAST_MAJOR)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "GPU %d (%s) has compute capability %d.%d and Merak "
                          "needs %d.0 or later: use newer GPUs, or --backend "
                          "cpu",
                          device, facts->name, facts->major, facts->minor,
                          LEAST_MAJOR);
    if (facts->compute_mode == cudaComputeModeProhibited)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "GPU %d (%s) is in compute mode \"prohibited\": its "
                          "administrator sets that back by `nvidia-smi -c "
                          "DEFAULT`",
                          device, facts->name);
    return MERAK_OK;
}

enum merak_status merak_cuda_check_device(int device, struct merak_error *err)
{
    struct merak_cuda_facts facts = {.major = 0};
    struct cudaDeviceProp prop;
    cudaError_t code = cudaGetDeviceProperties(&prop, device);

    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&facts.compute_mode,
                                      cudaDevAttrComputeMode, device);
    if (code != cudaSuccess)
        return merak_cuda_fail(err, device, "ask what there is", code);
    snprintf(facts.name, sizeof(facts.name), "%.127s", prop.name);
    facts.major = prop.major;
    facts.minor = prop.minor;
    return merak_cuda_check_facts(device, &facts, err);
}

void merak_cuda_describe_device(int device, char *text, size_t bytes)
{
    struct cudaDeviceProp prop;
    int driver = 0, ecc = 0;
    char bus[16] = "?";

    text[0] = '\0';
    if (cudaGetDeviceProperties(&prop, device) != cudaSuccess)
        return;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaDeviceGetAttribute(&ecc, cudaDevAttrEccEnabled, device);
    (void)cudaDeviceGetPCIBusId(bus, (int)sizeof(bus), device);
    snprintf(text, bytes,
             "GPU %d at %s, %s, compute capability %d.%d, %d SMs, %.1f GiB, "
             "ECC %s, driver for CUDA %d.%d",
             device, bus, prop.name, prop.major, prop.minor,
             prop.multiProcessorCount, (double)prop.totalGlobalMem / 0x1p30,
             ecc ? "on" : "off", driver / 1000, driver % 1000 / 10);
}
