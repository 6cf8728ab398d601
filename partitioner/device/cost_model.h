/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/device/cost_model.h - what kernels and links take: a roofline,
 * measured rates, latency plus bytes
 */
#ifndef MERAK_PARTITIONER_DEVICE_COST_MODEL_H
#define MERAK_PARTITIONER_DEVICE_COST_MODEL_H

#include "partitioner/device/rates.h"
#include "partitioner/layout/layout.h"

/* What a kernel that runs beside an exchange or a transfer loses to it. */
struct merak_interference {
    double wake_s; /* unless communication was awake, as it is for so long */
    double copy_s; /* in any case */
};

/* What an exchange or a transfer takes: seconds that nothing else changes, and
 * bytes that go to other nodes, as fast as what goes there at the same time
 * lets them. */
struct merak_demand {
    double fixed_s, net_bytes;
};

/* What ranks have of the net; struct merak_cost_model has the same. */
struct merak_net_rates {
    int ranks_per_node;
    double rank_bytes_per_s, node_bytes_per_s;
};

/* Exchanges among so many ranks of one node, whose communication threads may
 * have to share cores. */
struct merak_link_group {
    int ranks;
    double latency_s; /* of a round, for each peer */
    double bytes_per_s;
};

enum { MERAK_LINK_GROUPS = 8 };

struct merak_cost_model {
    char name[32];
    double flops_per_s;           /* of one rank, GEMM */
    double bytes_per_s;           /* memory, elementwise kernels */
    double kernel_s;              /* fixed cost of a kernel */
    double attention_flops_per_s; /* 0: as GEMM */
    bool sums_roofline; /* a kernel's bytes and its FLOPs take one's time and
                           the other's, not the longer of the two */
    double link_bytes_per_s, link_latency_s; /* between ranks of a node */
    /* Of groups that were measured, by ranks; others take the nearest of these
     * and of the link's, which is that of two. */
    struct merak_link_group group[MERAK_LINK_GROUPS];
    int n_groups;
    int ranks_per_node; /* logical ranks fill nodes in order; 0: one node
                           holds them all, and the next two are not read */
    double net_bytes_per_s, net_latency_s; /* of a rank, to other nodes */
    double node_bytes_per_s; /* of all ranks of a node together; 0: as many
                                times one's as there are */
    const struct merak_rates *rates; /* of kernels, as measured; or NULL: they
                                        take what the above says */
    const struct merak_rates *tp_rates; /* of tensor ranks' kernels; or NULL,
                                           or not of all ops: as others */
    /* What communication takes from a rank's compute, where that runs at the
     * same time: for each round, and for bytes (0: nothing). */
    double interference_latency_s, interference_bytes_per_s;
};
const struct merak_cost_model *merak_cost_default(void);
/* The width (rates.h) of a kernel whose first operand has these dims. */
double merak_kernel_width(int ndim, const size_t *dim);
/* A kernel of an op, on one of tp tensor ranks. */
double merak_cost_kernel(const struct merak_cost_model *model, const char *op,
                         int tp, const struct merak_kernel_size *size);
/* What no kernel does. */
double merak_cost_copy(const struct merak_cost_model *model, double bytes);
/* The link as `n` ranks of a node meet it in an exchange. */
struct merak_link_group merak_cost_group(const struct merak_cost_model *model,
                                         int n);
/* A collective of n members, `inside` of them (this one counted) on this
 * rank's node, each sending `bytes` in all, to every other alike. */
double merak_cost_exchange(const struct merak_cost_model *model,
                           enum merak_convert_kind kind, double bytes, int n,
                           int inside);
double merak_cost_transfer(const struct merak_cost_model *model, double bytes,
                           bool inside);
/* What a kernel beside it loses to a collective, as above, or to a transfer,
 * of n = 2. */
struct merak_interference
merak_cost_interference(const struct merak_cost_model *model,
                        enum merak_convert_kind kind, double bytes, int n);
/* The model of ranks so many of which share their node's link to others. */
struct merak_cost_model
merak_cost_contended(const struct merak_cost_model *model, int sharers);
/* What a collective as above asks for, and the seconds of what is asked for
 * where net bytes go so fast. */
struct merak_demand
merak_cost_exchange_demand(const struct merak_cost_model *model,
                           enum merak_convert_kind kind, double bytes, int n,
                           int inside);
double merak_cost_demand_s(const struct merak_demand *demand,
                           double net_bytes_per_s);
/* Do two logical ranks share a node? */
bool merak_cost_together(const struct merak_cost_model *model, int a, int b);
struct merak_net_rates
merak_cost_net_rates(const struct merak_cost_model *model);

#endif
