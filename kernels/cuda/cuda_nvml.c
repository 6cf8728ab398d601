/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_nvml.c - the driver's management library, opened at run time
 *
 * It comes with the driver, not with the toolkit, and only provides facts:
 * without it fewer are shown.
 */
#include "config.h"

#include "kernels/cuda/cuda_facts.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define CLOCK_SM 1
#define CLOCK_MEMORY 2

bool merak_nvml_open(const char *soname, struct merak_nvml *nvml)
{
    const struct {
        const char *name;
        void *place;
    } want[] = {
        {"nvmlInit_v2", &nvml->init},
        {"nvmlShutdown", &nvml->shutdown},
        {"nvmlSystemGetDriverVersion", &nvml->driver_version},
        {"nvmlDeviceGetHandleByPciBusId_v2", &nvml->find},
        {"nvmlDeviceGetClockInfo", &nvml->clock},
        {"nvmlDeviceGetMaxClockInfo", &nvml->most_clock},
        {"nvmlDeviceGetPowerManagementLimit", &nvml->power_cap},
        {"nvmlDeviceGetPowerManagementDefaultLimit", &nvml->power_usual},
        {"nvmlDeviceGetMigMode", &nvml->mig},
        {"nvmlDeviceGetEccMode", &nvml->ecc},
    };
    void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return false;
    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        void *symbol = dlsym(library, want[i].name);

        if (symbol == NULL) {
            dlclose(library);
            return false;
        }
        memcpy(want[i].place, &symbol, sizeof(symbol));
    }
    return true;
}

static void gather_clocks(const struct merak_nvml *nvml, void *device,
                          struct merak_cuda_facts *f)
{
    unsigned most = 0, now = 0;

    if (nvml->most_clock(device, CLOCK_SM, &most) == 0 &&
        nvml->clock(device, CLOCK_SM, &now) == 0) {
        f->sm_most_mhz = most;
        f->sm_mhz = now;
    }
    if (nvml->most_clock(device, CLOCK_MEMORY, &most) == 0 &&
        nvml->clock(device, CLOCK_MEMORY, &now) == 0) {
        f->memory_most_mhz = most;
        f->memory_mhz = now;
    }
}

static void gather_power(const struct merak_nvml *nvml, void *device,
                         struct merak_cuda_facts *f)
{
    unsigned mw = 0;

    if (nvml->power_cap(device, &mw) == 0)
        f->power_cap_w = mw / 1000;
    if (nvml->power_usual(device, &mw) == 0)
        f->power_usual_w = mw / 1000;
}

void merak_nvml_gather(const struct merak_nvml *nvml,
                       struct merak_cuda_facts *f)
{
    unsigned mig = 0, next = 0;
    void *device = NULL;
    int ecc = 0, later = 0;

    if (nvml->init() != 0)
        return;
    if (nvml->driver_version(f->driver.release, sizeof(f->driver.release)) != 0)
        f->driver.release[0] = '\0';
    if (f->bus[0] != '\0' && nvml->find(f->bus, &device) == 0) {
        gather_clocks(nvml, device, f);
        gather_power(nvml, device, f);
        if (nvml->mig(device, &mig, &next) == 0)
            f->mig = f->mig || mig != 0;
        if (nvml->ecc(device, &ecc, &later) == 0)
            f->ecc = ecc != 0 ? MERAK_CUDA_ECC_ON : MERAK_CUDA_ECC_OFF;
    }
    (void)nvml->shutdown();
}
