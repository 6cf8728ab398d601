/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/device/device.h - what a planner has to know of a machine
 *
 * A device is one rank's: a GPU, or the share of a node's cores that a task
 * gets.  Rates are sustained ones, as a training step sees them; `peak` is
 * the data sheet's and serves to tell utilisation.  A device file is a JSON
 * object with the names of the fields below:
 *
 *   {"name": "h200", "ranks_per_node": 8, "memory_bytes": 142000000000,
 *    "peak_flops_per_s": {"f32": 6.7e13, "bf16": 9.9e14},
 *    "flops_per_s": {"f32": 4.5e13, "bf16": 6.0e14},
 *    "bytes_per_s": 3.8e12, "kernel_s": 5e-6,
 *    "link": {"bytes_per_s": 3.6e11, "latency_s": 8e-6},
 *    "net": {"bytes_per_s": 4.5e10, "latency_s": 1.5e-5}}
 *
 * All are required but `peak_flops_per_s` (then utilisation is of flops_per_s)
 * and `net` (then `link`: one node).  A field that is not known is refused, and
 * `notes` may hold anything.  Ranks of a node that use one way out at the same
 * time share it where `net` has a "node_bytes_per_s", which is of all together.
 * And there may be what kernels lose to exchanges and transfers that run
 * beside them, for each round and for bytes (without: nothing):
 *
 *    "beside": {"latency_s": 6e-5, "bytes_per_s": 4e9}
 *
 * Attention may be slower than other products, and bytes take their time on top
 * of that of FLOPs ("sum"; without: the longer of the two, "max"):
 *
 *    "attention_flops_per_s": {"f32": 4.5e13, "bf16": 3.46e14},
 *    "roofline": "sum"
 *
 * Kernels that were timed may be there, by the dtype that models compute in and
 * by op, each as FLOPs, bytes, seconds, width and reuse distance, of which the
 * last two may be left out or 0 for what is not known (rates.h); and another
 * time as tensor ranks ran them, whose operands peers wrote and who answer
 * peers meanwhile:
 *
 *    "kernels": {"f32": {"linear": [[2.7e8, 3.1e6, 1.8e-3, 256, 4.2e6], ..],
 *                        ..}, ..}
 *    "tp_kernels": {"f32": ..}
 *
 * `link` may have the field `groups`, of exchanges among more ranks of a node
 * than two, whose communication threads may have to share cores (cost_model.h):
 *
 *    "groups": [{"ranks": 4, "latency_s": 2e-5, "bytes_per_s": 2e11}, ..]
 *
 * An accelerator's choices among ways to compute a shape, made by timing them,
 * in lines that its backend wrote, and what they are good for:
 *
 *    "tuned": {"for": "NVIDIA H200, 132 SMs, cuBLASLt 13.1.0",
 *              "choices": ["..", ..]}
 *
 * What moves what ranks exchange, if nobody says otherwise: "nccl", from device
 * to device, or "ucx", by way of hosts (without: nccl where the name begins
 * with "cuda", as calibrations of GPUs do):
 *
 *    "transport": "nccl"
 *
 * Numbers are 0 or from 1e-30 to 1e30.
 *
 * `merak calibrate` writes such a file.
 */
#ifndef MERAK_PARTITIONER_DEVICE_DEVICE_H
#define MERAK_PARTITIONER_DEVICE_DEVICE_H

#include "partitioner/device/cost_model.h"

struct merak_device {
    char name[32];
    int ranks_per_node;  /* usual; a request may say otherwise */
    size_t memory_bytes; /* that an arena may take */
    double peak_flops_per_s[MERAK_DTYPE_COUNT];      /* 0: not known */
    double flops_per_s[MERAK_DTYPE_COUNT];           /* GEMM */
    double attention_flops_per_s[MERAK_DTYPE_COUNT]; /* 0: as GEMM */
    double bytes_per_s; /* of memory, elementwise kernels */
    double kernel_s;    /* fixed cost of a kernel */
    bool sums_roofline; /* cost_model.h */
    bool direct; /* ranks exchange from device to device, by NCCL, if nobody
                    says otherwise */
    double link_bytes_per_s, link_latency_s; /* inside a node */
    double net_bytes_per_s, net_latency_s;   /* of one rank, across nodes */
    double node_bytes_per_s; /* of all ranks of a node together, across; 0: as
                                many times one's as there are */
    struct merak_link_group group[MERAK_LINK_GROUPS]; /* inside a node */
    int n_groups;
    double interference_latency_s,
        interference_bytes_per_s; /* 0: nothing is lost */
    /* From a file; or NULL. */
    struct merak_rates *rates[MERAK_DTYPE_COUNT];
    struct merak_rates *tp_rates[MERAK_DTYPE_COUNT];
    char *tuned_for; /* NULL: nothing is tuned */
    char **tuned;    /* [n_tuned] */
    int n_tuned;
};

/* One that is built in ("a100", "h100", "h200", "rtx3090", "cpu", in letters of
 * either case), or a file if the word has a '/' or ends in ".json".
 * MERAK_ERR_NOT_FOUND names what there is; MERAK_ERR_FORMAT the field that is
 * missing or wrong. */
enum merak_status merak_device_find(const char *word,
                                    struct merak_device *device,
                                    struct merak_error *err) MERAK_CHECKED;
/* Products of this dtype take as long as f32's. */
void merak_device_as_f32(struct merak_device *device, enum merak_dtype dtype);
/* The dtype that products are fastest in; f32 where bf16 is no faster. */
enum merak_dtype merak_device_dtype(const struct merak_device *device);
/* Free what a file brought.  Copies of a device share it. */
void merak_device_fini(struct merak_device *device);
/* Add a line to what is tuned; copied. */
enum merak_status merak_device_add_tuned(struct merak_device *device,
                                         const char *line,
                                         struct merak_error *err) MERAK_CHECKED;
/* Path "-" is standard output. */
enum merak_status merak_device_save(const struct merak_device *device,
                                    const char *path,
                                    struct merak_error *err) MERAK_CHECKED;
/* The cost model of ranks on it: one dtype, so many ranks on a node.  The
 * device's rates are borrowed. */
void merak_device_cost(const struct merak_device *device,
                       enum merak_dtype dtype, int ranks_per_node,
                       struct merak_cost_model *model);

#endif
