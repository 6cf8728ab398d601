/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_facts.h - facts about a GPU, and checks of them
 *
 * Facts are gathered by one file and checked by another, which needs neither
 * CUDA nor a GPU: tests can check machines that are not present.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_FACTS_H
#define MERAK_KERNELS_CUDA_CUDA_FACTS_H

#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"

struct merak_cuda_driver {
    int driver, runtime; /* CUDA versions of the driver and of this build,
                            13000; driver 0: there is none */
    char release[32];    /* of the driver, "580.95.05"; "": not known */
};

enum merak_cuda_ecc {
    MERAK_CUDA_ECC_UNKNOWN,
    MERAK_CUDA_ECC_OFF,
    MERAK_CUDA_ECC_ON
};

struct merak_cuda_facts {
    char name[128]; /* "NVIDIA H200" */
    char bus[16];   /* "0000:1b:00.0" */
    struct merak_cuda_driver driver;
    int major, minor; /* compute capability */
    int sms;
    size_t memory_bytes;
    bool prohibited; /* compute mode: prohibited */
    bool mig;        /* a MIG instance, or a GPU in MIG mode */
    enum merak_cuda_ecc ecc;
    /* 0: not known.  Present and highest clocks, present and default power
     * limits. */
    unsigned sm_mhz, sm_most_mhz, memory_mhz, memory_most_mhz;
    unsigned power_cap_w, power_usual_w;
};

/* --- cuda_facts.c ----------------------------------------------------------
 */

/* MERAK_ERR_UNSUPPORTED if there is no driver, or one that cannot load what
 * this was built with; names it and the one that is needed. */
enum merak_status
merak_cuda_check_driver(const struct merak_cuda_driver *d,
                        struct merak_error *err) MERAK_CHECKED;
/*
 * May this device be used?  It must be of a generation that the module has
 * kernels for, not be split by MIG, and not prohibit compute.
 *
 *   archs  "80 90a 100": what the module was built for; for the first there is
 *          also PTX, for later generations
 */
enum merak_status merak_cuda_check_facts(int device,
                                         const struct merak_cuda_facts *facts,
                                         const char *archs,
                                         struct merak_error *err) MERAK_CHECKED;
/* "GPU 0 at 0000:1b:00.0, NVIDIA H200, compute capability 9.0, .." */
void merak_cuda_describe_facts(int device, const struct merak_cuda_facts *facts,
                               char *text, size_t bytes);
/* Problems that do not prevent its use; "": none. */
void merak_cuda_warn_facts(int device, const struct merak_cuda_facts *facts,
                           char *text, size_t bytes);

/* --- cuda_nvml.c: facts that CUDA does not have -----------------------------
 */

/* The driver's management library.  Calls return 0 or an error. */
struct merak_nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *text, unsigned bytes);
    int (*find)(const char *bus, void **device_p);
    /* `which`: 1, the SMs, or 2, the memory */
    int (*clock)(void *device, int which, unsigned *mhz_p);
    int (*most_clock)(void *device, int which, unsigned *mhz_p);
    /* in milliwatts */
    int (*power_cap)(void *device, unsigned *mw_p);
    int (*power_usual)(void *device, unsigned *mw_p);
    int (*mig)(void *device, unsigned *now_p, unsigned *next_p);
    int (*ecc)(void *device, int *now_p, int *next_p);
};

/* Load the library's calls; false if it is missing.  It stays open. */
bool merak_nvml_open(const char *soname, struct merak_nvml *nvml);
/* Fill in what it knows about the device at facts->bus, and the release; other
 * fields are unchanged.  With bus "" only the release. */
void merak_nvml_gather(const struct merak_nvml *nvml,
                       struct merak_cuda_facts *facts);

#endif
