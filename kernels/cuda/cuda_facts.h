/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_facts.h - what is known of a GPU, and what follows from it
 *
 * Facts are gathered by one file and judged by another, which needs neither
 * CUDA nor a GPU: tests judge machines that are not there.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_FACTS_H
#define MERAK_KERNELS_CUDA_CUDA_FACTS_H

#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"

struct merak_cuda_driver {
    int driver, runtime; /* the CUDA that the driver is for and that this was
                            built with, 13000; driver 0: there is none */
    char release[32];    /* the driver's, "580.95.05"; "": not known */
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
    bool prohibited; /* its compute mode lets nobody in */
    bool mig;        /* a slice, or a GPU that is cut in slices */
    enum merak_cuda_ecc ecc;
    /* 0: not known.  Clocks now and at most, the power that it may take and
     * takes as it was delivered. */
    unsigned sm_mhz, sm_most_mhz, memory_mhz, memory_most_mhz;
    unsigned power_cap_w, power_usual_w;
};

/* --- cuda_facts.c ----------------------------------------------------------
 */

/* MERAK_ERR_UNSUPPORTED where there is no driver, or one that cannot load what
 * this was built with: it says which it is, and which is needed. */
enum merak_status
merak_cuda_check_driver(const struct merak_cuda_driver *d,
                        struct merak_error *err) MERAK_CHECKED;
/*
 * May this device be used?  It must be of a generation that the module has
 * kernels for, whole, and open to computation.
 *
 *   archs  "80 90a 100": what the module was built for; of the first there is
 *          PTX, too, for later generations
 */
enum merak_status merak_cuda_check_facts(int device,
                                         const struct merak_cuda_facts *facts,
                                         const char *archs,
                                         struct merak_error *err) MERAK_CHECKED;
/* "GPU 0 at 0000:1b:00.0, NVIDIA H200, compute capability 9.0, .." */
void merak_cuda_describe_facts(int device, const struct merak_cuda_facts *facts,
                               char *text, size_t bytes);
/* What is wrong with it that is no reason to refuse it; "": nothing. */
void merak_cuda_warn_facts(int device, const struct merak_cuda_facts *facts,
                           char *text, size_t bytes);

/* --- cuda_nvml.c: what CUDA does not tell -----------------------------------
 */

/* The driver's management library.  Calls return 0, or what failed. */
struct merak_nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *text, unsigned bytes);
    int (*find)(const char *bus, void **device_p);
    /* of 1, the SMs, or 2, the memory, in MHz */
    int (*clock)(void *device, int which, unsigned *mhz_p);
    int (*most_clock)(void *device, int which, unsigned *mhz_p);
    /* in milliwatts */
    int (*power_cap)(void *device, unsigned *mw_p);
    int (*power_usual)(void *device, unsigned *mw_p);
    int (*mig)(void *device, unsigned *now_p, unsigned *next_p);
    int (*ecc)(void *device, int *now_p, int *next_p);
};

/* The library's calls; false where it is not there.  It stays open. */
bool merak_nvml_open(const char *soname, struct merak_nvml *nvml);
/* Fill in what it knows of the device at facts->bus, and the release; what it
 * does not know stays as it is.  With bus "" the release alone. */
void merak_nvml_gather(const struct merak_nvml *nvml,
                       struct merak_cuda_facts *facts);

#endif
