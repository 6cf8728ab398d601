/* SPDX-License-Identifier: Apache-2.0 */
/* cost_model.c - times of kernels and messages: a roofline for kernels that
 * were not measured, latency plus bytes for links, intra- and inter-node
 */
#include "config.h"

#include "partitioner/device/cost_model.h"

#include <math.h>
#include <string.h>

const struct merak_cost_model *merak_cost_default(void)
{
    /* One core of a current server CPU in f32; peers inside a node. */
    static const struct merak_cost_model model = {
        .name = "cpu",
        .flops_per_s = 1.5e11,
        .bytes_per_s = 1e10,
        .kernel_s = 2e-6,
        .links.level[0] = {"link", 0, 5e-6, 5e9, 0},
    };

    return &model;
}

double merak_kernel_width(int ndim, const size_t *dim)
{
    return ndim >= 3 ? (double)dim[ndim - 1] : 0;
}

static double measured(const struct merak_cost_model *model,
                       const struct merak_rates *rates, const char *op,
                       const struct merak_kernel_size *size)
{
    return rates == NULL
               ? -1
               : merak_rates_seconds(rates, op, size, model->flops_per_s,
                                     model->bytes_per_s);
}

static double roofline(const struct merak_cost_model *model, const char *op,
                       const struct merak_kernel_size *size)
{
    bool attends =
        model->attention_flops_per_s > 0 && strncmp(op, "attention", 9) == 0;
    double compute = size->flops / (attends ? model->attention_flops_per_s
                                            : model->flops_per_s);
    double memory = size->bytes / model->bytes_per_s;

    return model->sums_roofline ? compute + memory : fmax(compute, memory);
}

double merak_cost_kernel(const struct merak_cost_model *model, const char *op,
                         int tp, const struct merak_kernel_size *size)
{
    double seconds = -1;

    if (tp > 1 && size->flops + size->bytes > 0)
        seconds = measured(model, model->tp_rates, op, size);
    if (seconds < 0 && size->flops + size->bytes > 0)
        seconds = measured(model, model->rates, op, size);
    if (seconds >= 0)
        return seconds;
    return model->kernel_s + roofline(model, op, size);
}

double merak_cost_copy(const struct merak_cost_model *model, double bytes)
{
    const struct merak_kernel_size size = {.bytes = bytes};
    double seconds =
        bytes > 0 ? measured(model, model->rates, MERAK_RATE_COPY, &size) : -1;

    return seconds >= 0 ? seconds
                        : model->kernel_s + bytes / model->bytes_per_s;
}

struct merak_link_group merak_cost_group(const struct merak_cost_model *model,
                                         int n)
{
    struct merak_link_group best = {2, model->links.level[0].latency_s,
                                    model->links.level[0].bytes_per_s};
    double least;

    if (model->links.n_groups == 0)
        return best;
    least = fabs(log((double)n / 2));
    for (int i = 0; i < model->links.n_groups; i++) {
        double off = fabs(log((double)n / model->links.group[i].ranks));

        if (off > least)
            continue;
        best = model->links.group[i];
        least = off;
    }
    return best;
}

/* An all-reduce reduces, then gathers. */
static int rounds_of(enum merak_convert_kind kind)
{
    return kind == MERAK_CONVERT_ALL_REDUCE ? 2 : 1;
}

/* Rounds and bytes are split between peers on this node and others. */
struct merak_demand
merak_cost_exchange_demand(const struct merak_cost_model *model,
                           enum merak_convert_kind kind, double bytes, int n,
                           int inside)
{
    int rounds = rounds_of(kind);
    double near = inside - 1, far = n - inside, each;
    struct merak_demand demand = {0};
    struct merak_link_group link;

    if (n < 2)
        return demand;
    each = bytes / (n - 1);
    link = merak_cost_group(model, inside);
    if (far == 0) {
        demand.fixed_s =
            rounds * near * link.latency_s + bytes / link.bytes_per_s;
        return demand;
    }
    demand.fixed_s = rounds * (near * link.latency_s +
                               far * model->links.level[1].latency_s) +
                     near * each / link.bytes_per_s;
    demand.net_bytes = far * each;
    return demand;
}

double merak_cost_demand_s(const struct merak_demand *demand,
                           double net_bytes_per_s)
{
    if (demand->net_bytes == 0)
        return demand->fixed_s;
    return demand->fixed_s + demand->net_bytes / net_bytes_per_s;
}

double merak_cost_exchange(const struct merak_cost_model *model,
                           enum merak_convert_kind kind, double bytes, int n,
                           int inside)
{
    const struct merak_demand demand =
        merak_cost_exchange_demand(model, kind, bytes, n, inside);

    return merak_cost_demand_s(&demand, model->links.level[1].bytes_per_s);
}

double merak_cost_transfer(const struct merak_cost_model *model, double bytes,
                           bool inside)
{
    if (inside)
        return model->links.level[0].latency_s +
               bytes / model->links.level[0].bytes_per_s;
    return model->links.level[1].latency_s +
           bytes / model->links.level[1].bytes_per_s;
}

struct merak_interference
merak_cost_interference(const struct merak_cost_model *model,
                        enum merak_convert_kind kind, double bytes, int n)
{
    struct merak_interference interference = {
        .wake_s = rounds_of(kind) * (n - 1) * model->interference_latency_s};

    if (model->interference_bytes_per_s > 0)
        interference.copy_s = bytes / model->interference_bytes_per_s;
    return interference;
}

bool merak_cost_together(const struct merak_cost_model *model, int a, int b)
{
    int ranks = model->links.level[0].ranks;

    return ranks == 0 || a / ranks == b / ranks;
}

struct merak_cost_model
merak_cost_contended(const struct merak_cost_model *model, int sharers)
{
    struct merak_cost_model contended = *model;
    double way = model->links.level[0].way_bytes_per_s;
    double *own = &contended.links.level[1].bytes_per_s;

    if (way > 0 && *own > way / sharers)
        *own = way / sharers;
    return contended;
}
