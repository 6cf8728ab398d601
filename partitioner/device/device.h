/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/device/device.h - what a planner has to know about a machine
 *
 * A device is that of one rank: a GPU, or the share of a node's cores that a
 * task gets.  Rates are sustained ones, as in a training step; `peak` is that
 * of the data sheet, for utilization.  A device file is a JSON object:
 *
 *   {"name": "h200", "ranks_per_node": 8, "memory_bytes": 142000000000,
 *    "peak_flops_per_s": {"f32": 6.7e13, "bf16": 9.9e14},
 *    "flops_per_s": {"f32": 4.5e13, "bf16": 6.0e14},
 *    "bytes_per_s": 3.8e12, "kernel_s": 5e-6,
 *    "link": {"bytes_per_s": 3.6e11, "latency_s": 8e-6},
 *    "net": {"bytes_per_s": 4.5e10, "latency_s": 1.5e-5}}
 *
 * All are required except `peak_flops_per_s` (by default utilization is of
 * flops_per_s) and `net` (by default that of `link`: one node).  An unknown
 * field is an error; `notes` may hold anything.  `link` and `net` are the
 * levels of level.h.  With a "node_bytes_per_s" in `net`, the rate of all ranks
 * of a node together (level 0's way_bytes_per_s), these share their node's
 * uplink.  "beside" is what kernels lose to exchanges and transfers that run at
 * the same time, for each round and for bytes (default: nothing):
 *
 *    "beside": {"latency_s": 6e-5, "bytes_per_s": 4e9}
 *
 * Attention may be slower than other products, and the time of a kernel's bytes
 * may add to that of its FLOPs ("sum"; default: the longer of the two, "max"):
 *
 *    "attention_flops_per_s": {"f32": 4.5e13, "bf16": 3.46e14},
 *    "roofline": "sum"
 *
 * "kernels" has kernels that were timed, by the dtype that models compute in
 * and by op, each as FLOPs, bytes, seconds, width and reuse distance; the last
 * two may be missing, or 0 if not known (rates.h).  "tp_kernels" has the same
 * as timed on tensor ranks, whose operands peers wrote and which answer peers
 * meanwhile:
 *
 *    "kernels": {"f32": {"linear": [[2.7e8, 3.1e6, 1.8e-3, 256, 4.2e6], ..],
 *                        ..}, ..}
 *    "tp_kernels": {"f32": ..}
 *
 * "host" is the host's memory that a rank may keep optimizer state in, and the
 * link to it, one way at a time (default: none):
 *
 *    "host": {"memory_bytes": 2.4e11, "bytes_per_s": 5e10, "latency_s": 1e-5}
 *
 * `link` may join several nodes, as NVLink does in a rack (default: 1):
 *
 *    "nodes": 18
 *
 * `link` may have `groups`, for exchanges among more than two ranks of a node,
 * whose communication threads may have to share cores (cost_model.h):
 *
 *    "groups": [{"ranks": 4, "latency_s": 2e-5, "bytes_per_s": 2e11}, ..]
 *
 * Instead of `link` and `net` there may be all levels, from a node outwards;
 * the last one joins all ranks:
 *
 *    "levels": [{"name": "node", "ranks": 8, "latency_s": 8e-6,
 *                "bytes_per_s": 3.6e11},
 *               {"name": "leaf", "ranks": 256, "latency_s": 1.5e-5,
 *                "bytes_per_s": 4.5e10, "way_bytes_per_s": 5.8e12},
 *               {"name": "net", "ranks": 0, "latency_s": 1.8e-5,
 *                "bytes_per_s": 4.5e10}]
 *
 * "tuned" has the algorithms that an accelerator's backend chose by timing, in
 * lines that it wrote, and the hardware and library they are valid for:
 *
 *    "tuned": {"for": "NVIDIA H200, 132 SMs, cuBLASLt 13.1.0",
 *              "choices": ["..", ..]}
 *
 * The default transport: "nccl", from device to device, or "ucx", through host
 * memory (if missing: nccl if the name begins with "cuda", for calibrations of
 * GPUs that do not have it yet):
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
    size_t memory_bytes;                             /* limit of an arena */
    double peak_flops_per_s[MERAK_DTYPE_COUNT];      /* 0: not known */
    double flops_per_s[MERAK_DTYPE_COUNT];           /* GEMM */
    double attention_flops_per_s[MERAK_DTYPE_COUNT]; /* 0: as GEMM */
    double bytes_per_s; /* of memory, elementwise kernels */
    double kernel_s;    /* fixed cost of a kernel */
    bool sums_roofline; /* cost_model.h */
    bool direct; /* by default ranks communicate from device to device, by
                    NCCL */
    struct merak_host host;
    struct merak_links links; /* level[0].ranks: the ranks of a node, unless a
                                 request says otherwise; domains are as large
                                 as they may be: merak_links_of_job() */
    double interference_latency_s,
        interference_bytes_per_s; /* 0: nothing is lost */
    /* From a file; or NULL. */
    struct merak_rates *rates[MERAK_DTYPE_COUNT];
    struct merak_rates *tp_rates[MERAK_DTYPE_COUNT];
    char *tuned_for; /* NULL: nothing is tuned */
    char **tuned;    /* [n_tuned] */
    int n_tuned;
};

/* The built-in device of a kind of hardware ("h100" of "NVIDIA H100 PCIe"), or
 * NULL. */
const char *merak_device_of_hardware(const char *hardware);
/* Is it the path of a device file?  It has a '/' or ends in ".json". */
bool merak_device_is_file(const char *word);
/* Find a built-in device ("a100", "h100", "h200", "rtx3090", "cpu", in upper or
 * lower case), or load a file.
 * MERAK_ERR_NOT_FOUND names the built-in ones; MERAK_ERR_FORMAT the field that
 * is missing or wrong. */
enum merak_status merak_device_find(const char *word,
                                    struct merak_device *device,
                                    struct merak_error *err) MERAK_CHECKED;
/* Set the rates of products in this dtype to those in f32. */
void merak_device_as_f32(struct merak_device *device, enum merak_dtype dtype);
/* The dtype with the fastest products; f32 if bf16 is not faster. */
enum merak_dtype merak_device_dtype(const struct merak_device *device);
/* Free what was loaded from a file.  Copies of a device share it. */
void merak_device_fini(struct merak_device *device);
/* Add a line to the tuned choices; copied. */
enum merak_status merak_device_add_tuned(struct merak_device *device,
                                         const char *line,
                                         struct merak_error *err) MERAK_CHECKED;
/* Path "-" is standard output. */
enum merak_status merak_device_save(const struct merak_device *device,
                                    const char *path,
                                    struct merak_error *err) MERAK_CHECKED;
/* The cost model of ranks on this device, for one dtype; `ranks` of them share
 * the links of level 0, 0: all, and those of the last level join all of these.
 * The device's rates are borrowed. */
void merak_device_cost(const struct merak_device *device,
                       enum merak_dtype dtype, int ranks,
                       struct merak_cost_model *model);
/* The same for the ranks of a job, with all levels that it has. */
void merak_device_job_cost(const struct merak_device *device,
                           enum merak_dtype dtype, int nodes,
                           int ranks_per_node, struct merak_cost_model *model);

#endif
