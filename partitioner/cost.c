/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - how long an instruction takes: a roofline for kernels, latency
 * plus bytes for links
 */
#include "config.h"

#include "partitioner/program.h"

const struct merak_cost_model *merak_cost_default(void)
{
    /* One core of a current server CPU in f32; peers inside a node. */
    static const struct merak_cost_model model = {
        .name = "cpu",
        .flops_per_s = 1.5e11,
        .bytes_per_s = 1e10,
        .kernel_s = 2e-6,
        .link_bytes_per_s = 5e9,
        .link_latency_s = 5e-6,
    };

    return &model;
}

static double kernel_seconds(const struct merak_cost_model *model,
                             const struct merak_instr *instr)
{
    double compute = instr->flops / model->flops_per_s;
    double memory = (double)instr->bytes / model->bytes_per_s;

    return model->kernel_s + (compute > memory ? compute : memory);
}

static double link_seconds(const struct merak_cost_model *model, size_t bytes,
                           int messages)
{
    return messages * model->link_latency_s +
           (double)bytes / model->link_bytes_per_s;
}

double merak_cost_instr(const struct merak_cost_model *model,
                        const struct merak_instr *instr)
{
    int messages;

    switch (instr->kind) {
    case MERAK_INSTR_LOAD:
    case MERAK_INSTR_KERNEL:
    case MERAK_INSTR_SLICE:
        return kernel_seconds(model, instr);
    case MERAK_INSTR_EXCHANGE:
        messages = instr->exchange->n - 1;
        if (instr->exchange->kind == MERAK_CONVERT_ALL_REDUCE)
            messages *= 2; /* reduce, then gather */
        return link_seconds(model, instr->bytes, messages);
    case MERAK_INSTR_SEND:
    case MERAK_INSTR_RECV:
        return link_seconds(model, instr->bytes, 1);
    }
    return 0.0;
}
