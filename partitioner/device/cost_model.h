/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/device/cost_model.h - times of kernels: a roofline, measured
 * rates; those of links are in level.h
 */
#ifndef MERAK_PARTITIONER_DEVICE_COST_MODEL_H
#define MERAK_PARTITIONER_DEVICE_COST_MODEL_H

#include "merak/op.h"
#include "partitioner/device/level.h"
#include "partitioner/device/rates.h"

/* What a kernel loses to a concurrent exchange or transfer. */
struct merak_interference {
    double wake_s; /* unless communication is awake, as it stays for wake_s */
    double copy_s; /* in any case */
};

/* Memory of the host that a rank has beside its device's, and the link to it.
 */
struct merak_host {
    size_t bytes;       /* of a rank */
    double bytes_per_s; /* either way, one way at a time; 0: there is none */
    double latency_s;
};

struct merak_cost_model {
    char name[32];
    double flops_per_s;           /* of one rank, GEMM */
    double bytes_per_s;           /* memory, elementwise kernels */
    double kernel_s;              /* fixed cost of a kernel */
    double attention_flops_per_s; /* 0: as GEMM */
    bool sums_roofline; /* a kernel takes the sum of the times of its bytes and
                           FLOPs, not the longer of the two */
    struct merak_links links;
    struct merak_host host;
    const struct merak_rates *rates; /* of kernels, as measured; or NULL: all
                                        follow the roofline above */
    const struct merak_rates *tp_rates; /* of tensor ranks' kernels; ops not in
                                           it, or all if NULL, use rates */
    /* What a rank's compute loses to communication at the same time: for each
     * round, and for bytes (0: nothing). */
    double interference_latency_s, interference_bytes_per_s;
    double expert_load; /* rows of every rank's experts, as if all had those of
                           the fullest, times an even share; 0: 1 */
};
const struct merak_cost_model *merak_cost_default(void);
/* The width (rates.h) of a kernel whose first operand has these dims. */
double merak_kernel_width(int ndim, const size_t *dim);
/* A kernel's FLOPs and bytes at the rates that are reached on large ones, none
 * measured, without its fixed cost. */
double merak_cost_roofline(const struct merak_cost_model *model,
                           const struct merak_op *op,
                           const struct merak_kernel_size *size);
/* A kernel of an op, on one of tp tensor ranks. */
double merak_cost_kernel(const struct merak_cost_model *model,
                         const struct merak_op *op, int tp,
                         const struct merak_kernel_size *size);
/* A copy, which is not done by a kernel. */
double merak_cost_copy(const struct merak_cost_model *model, double bytes);
/* Until a host knows how many rows an accelerator's kernel has left, and what
 * it decides by that begins: a copy, and a launch.  0: ranks have no host
 * beside them. */
double merak_cost_read_back(const struct merak_cost_model *model);
/* A copy to the host's memory, or back. */
double merak_cost_host_copy(const struct merak_cost_model *model, double bytes);
/* What a concurrent kernel loses to a collective of n members, each sending
 * `bytes`, or to a message, with n = 2. */
struct merak_interference
merak_cost_interference(const struct merak_cost_model *model,
                        enum merak_convert_kind kind, double bytes, int n);

#endif
