/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_facts.c - which GPUs are refused, and warnings about others */
#include "config.h"

#include "kernels/cuda/cuda_facts.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the kernels' bf16 products need, whatever the module is built for. */
#define LEAST_MAJOR 8

/* The first driver release for a CUDA version; it serves all of a major one. */
static int first_release(int cuda)
{
    return cuda >= 13000 ? 580 : cuda >= 12000 ? 525 : 450;
}

enum merak_status merak_cuda_check_driver(const struct merak_cuda_driver *d,
                                          struct merak_error *err)
{
    if (d->driver == 0)
        return merak_fail(
            err, MERAK_ERR_UNSUPPORTED,
            "there is no NVIDIA driver on this node (libcuda.so.1 "
            "was not found): install one, start the job on "
            "nodes with GPUs, or use --backend cpu");
    if (d->driver / 1000 < d->runtime / 1000)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "the NVIDIA driver on this node is %s%sfor CUDA "
                          "%d.%d, and this Merak needs one for %d.0 or later, "
                          "release %d: update the driver, or use --backend cpu",
                          d->release, d->release[0] != '\0' ? ", " : "",
                          d->driver / 1000, d->driver % 1000 / 10,
                          d->runtime / 1000, first_release(d->runtime));
    return MERAK_OK;
}

/* Is there code for a device in `arch`?  `later`: it is not the first of archs,
 * so without PTX.  An "a" is for its own generation only. */
static bool serves(const char *arch, bool later, int capability)
{
    char *end;
    int built = (int)strtol(arch, &end, 10);

    if (*end == 'a')
        return built == capability;
    if (built / 10 == capability / 10 && built <= capability)
        return true;
    return !later && built <= capability; /* as PTX */
}

static bool is_built_for(const char *archs, int capability)
{
    char list[128], *rest = NULL;
    bool later = false;

    snprintf(list, sizeof(list), "%s", archs);
    for (char *arch = strtok_r(list, " ", &rest); arch != NULL;
         arch = strtok_r(NULL, " ", &rest)) {
        if (serves(arch, later, capability))
            return true;
        later = true;
    }
    return false;
}

enum merak_status merak_cuda_check_facts(int device,
                                         const struct merak_cuda_facts *facts,
                                         const char *archs,
                                         struct merak_error *err)
{
    if (facts->mig || strstr(facts->name, " MIG ") != NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "GPU %d (%.60s) is divided into MIG instances and "
                          "Merak plans for whole GPUs: ask for a whole one, or "
                          "use --backend cpu",
                          device, facts->name);
    if (facts->major < LEAST_MAJOR)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "GPU %d (%.60s) has compute capability %d.%d and "
                          "Merak needs %d.0 or later: use newer GPUs, or "
                          "--backend cpu",
                          device, facts->name, facts->major, facts->minor,
                          LEAST_MAJOR);
    if (!is_built_for(archs, 10 * facts->major + facts->minor))
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "GPU %d (%.60s) has compute capability %d.%d, and "
                          "this Merak was built for %s: build it with "
                          "--with-cuda-arch=\"%s %d\", or use --backend cpu",
                          device, facts->name, facts->major, facts->minor,
                          archs, archs, 10 * facts->major + facts->minor);
    if (facts->prohibited)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "GPU %d (%.60s) is in compute mode \"prohibited\": "
                          "its administrator sets that back by `nvidia-smi -c "
                          "DEFAULT`",
                          device, facts->name);
    return MERAK_OK;
}

static size_t add_clocks(const struct merak_cuda_facts *f, char *text,
                         size_t bytes)
{
    int n = 0;

    if (f->sm_most_mhz > 0)
        n += snprintf(text, bytes, ", SMs at %u of %u MHz", f->sm_mhz,
                      f->sm_most_mhz);
    if (f->memory_most_mhz > 0 && (size_t)n < bytes)
        n += snprintf(text + n, bytes - (size_t)n, ", memory at %u of %u MHz",
                      f->memory_mhz, f->memory_most_mhz);
    if (f->power_cap_w > 0 && (size_t)n < bytes)
        n += snprintf(text + n, bytes - (size_t)n, ", power cap %u W",
                      f->power_cap_w);
    return (size_t)n < bytes ? (size_t)n : bytes;
}

void merak_cuda_describe_facts(int device, const struct merak_cuda_facts *f,
                               char *text, size_t bytes)
{
    static const char *const ecc[] = {"unknown", "off", "on"};
    int n = snprintf(text, bytes,
                     "GPU %d at %s, %s, compute capability %d.%d, %d SMs, %.1f "
                     "GiB, ECC %s, driver %s%sfor CUDA %d.%d",
                     device, f->bus, f->name, f->major, f->minor, f->sms,
                     (double)f->memory_bytes / 0x1p30, ecc[f->ecc],
                     f->driver.release, f->driver.release[0] != '\0' ? " " : "",
                     f->driver.driver / 1000, f->driver.driver % 1000 / 10);

    if (n > 0 && (size_t)n < bytes)
        (void)add_clocks(f, text + n, bytes - (size_t)n);
}

/* Append a part to the line. */
static void add_warning(char *text, size_t bytes, const char *part)
{
    size_t n = strlen(text);

    snprintf(text + n, bytes - n, "%s%s", n > 0 ? "; " : "", part);
}

void merak_cuda_warn_facts(int device, const struct merak_cuda_facts *f,
                           char *text, size_t bytes)
{
    char part[160];

    text[0] = '\0';
    if (f->ecc == MERAK_CUDA_ECC_OFF) {
        snprintf(
            part, sizeof(part),
            "GPU %d has ECC off: a flipped bit goes unnoticed (nvidia-smi -e 1 "
            "and a reset turn it on)",
            device);
        add_warning(text, bytes, part);
    }
    if (f->power_cap_w > 0 && f->power_cap_w < f->power_usual_w) {
        snprintf(part, sizeof(part),
                 "GPU %d may take %u W of its usual %u: it will be slower "
                 "(nvidia-smi -pl %u sets it back)",
                 device, f->power_cap_w, f->power_usual_w, f->power_usual_w);
        add_warning(text, bytes, part);
    }
}
