/* SPDX-License-Identifier: Apache-2.0 */
/* cost_model.c - times of kernels: a roofline for those not measured */
#include "config.h"

#include "partitioner/device/cost_model.h"

#include "merak/op.h"

#include <math.h>

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

/* FLOPs of an op, at the rate that is reached on large ones. */
static double compute_s(const struct merak_cost_model *model,
                        const struct merak_op *op, double flops)
{
    bool attends =
        model->attention_flops_per_s > 0 && op->role == MERAK_ROLE_ATTENTION;

    return flops /
           (attends ? model->attention_flops_per_s : model->flops_per_s);
}

double merak_cost_roofline(const struct merak_cost_model *model,
                           const struct merak_op *op,
                           const struct merak_kernel_size *size)
{
    double compute = compute_s(model, op, size->flops);
    double memory = size->bytes / model->bytes_per_s;

    return model->sums_roofline ? compute + memory : fmax(compute, memory);
}

double merak_cost_kernel(const struct merak_cost_model *model,
                         const struct merak_op *op, int tp,
                         const struct merak_kernel_size *size)
{
    double seconds = -1;

    if (tp > 1 && size->flops + size->bytes > 0)
        seconds = measured(model, model->tp_rates, op->name, size);
    if (seconds < 0 && size->flops + size->bytes > 0)
        seconds = measured(model, model->rates, op->name, size);
    if (seconds >= 0)
        return seconds;
    return model->kernel_s + merak_cost_roofline(model, op, size);
}

double merak_cost_copy(const struct merak_cost_model *model, double bytes)
{
    const struct merak_kernel_size size = {.bytes = bytes};
    double seconds =
        bytes > 0 ? measured(model, model->rates, MERAK_RATE_COPY, &size) : -1;

    return seconds >= 0 ? seconds
                        : model->kernel_s + bytes / model->bytes_per_s;
}

double merak_cost_read_back(const struct merak_cost_model *model)
{
    return model->host.bytes_per_s > 0
               ? merak_cost_host_copy(model, sizeof(double)) + model->kernel_s
               : 0;
}

double merak_cost_host_copy(const struct merak_cost_model *model, double bytes)
{
    return model->host.latency_s + bytes / model->host.bytes_per_s;
}

struct merak_interference
merak_cost_interference(const struct merak_cost_model *model,
                        enum merak_convert_kind kind, double bytes, int n)
{
    struct merak_interference interference = {
        .wake_s = merak_convert_rounds(kind) * (n - 1) *
                  model->interference_latency_s};

    if (model->interference_bytes_per_s > 0)
        interference.copy_s = bytes / model->interference_bytes_per_s;
    return interference;
}
