/* SPDX-License-Identifier: Apache-2.0 */
/* instr_cost.c - how long an instruction of a program takes */
#include "config.h"

#include "partitioner/program/instr_cost.h"

#include <string.h>

int merak_cost_sharers(const struct merak_cost_model *model,
                       const struct merak_plan *plan, int rank, bool stages)
{
    int node = model->links.level[0].ranks,
        all = plan->tp * plan->dp * plan->pp;
    int tp_index, dp_index, stage, at, sharers = 0;

    if (model->links.level[0].way_bytes_per_s <= 0 || node == 0)
        return 1;
    merak_plan_place(plan, rank, &tp_index, &dp_index, &stage);
    for (int r = rank - rank % node; r < all && r / node == rank / node; r++) {
        merak_plan_place(plan, r, &tp_index, &dp_index, &at);
        sharers += stages || at == stage;
    }
    return sharers;
}

struct merak_cost_model merak_cost_shared(const struct merak_cost_model *model,
                                          const struct merak_plan *plan,
                                          int rank)
{
    return merak_cost_contended(model,
                                merak_cost_sharers(model, plan, rank, false));
}

static struct merak_demand transfer_demand(const struct merak_cost_model *model,
                                           const struct merak_program *program,
                                           const struct merak_instr *instr)
{
    double bytes = (double)instr->bytes;

    if (merak_cost_together(model, program->rank, instr->peer))
        return (struct merak_demand){merak_cost_transfer(model, bytes, true),
                                     0};
    return (struct merak_demand){model->links.level[1].latency_s, bytes};
}

static struct merak_demand group_demand(const struct merak_cost_model *model,
                                        const struct merak_program *program,
                                        const struct merak_instr *instr)
{
    const struct merak_group *group = &program->group[instr->group];
    int inside = 0;

    for (int i = 0; i < group->n; i++)
        inside += merak_cost_together(model, program->rank, group->rank[i]);
    return merak_cost_exchange_demand(model, instr->exchange->kind,
                                      (double)instr->bytes, group->n, inside);
}

struct merak_kernel_size merak_instr_size(const struct merak_program *program,
                                          const struct merak_instr *instr)
{
    struct merak_kernel_size size = {.flops = instr->flops,
                                     .bytes = (double)instr->bytes};

    if (instr->microbatch >= 0 && instr->n_in > 0) {
        const struct merak_box *box = &program->slot[instr->slot[0]].box;

        size.width = merak_kernel_width(box->ndim, box->len);
        size.reuse = instr->reuse;
    }
    return size;
}

struct merak_demand merak_cost_demand(const struct merak_cost_model *model,
                                      const struct merak_program *program,
                                      const struct merak_instr *instr)
{
    struct merak_demand demand = {0};
    struct merak_kernel_size size;

    switch (instr->kind) {
    case MERAK_INSTR_LOAD:
    case MERAK_INSTR_SLICE:
        demand.fixed_s = merak_cost_copy(model, (double)instr->bytes);
        break;
    case MERAK_INSTR_KERNEL:
        size = merak_instr_size(program, instr);
        demand.fixed_s =
            merak_cost_kernel(model, instr->op->name, program->plan.tp, &size);
        break;
    case MERAK_INSTR_EXCHANGE:
        return group_demand(model, program, instr);
    case MERAK_INSTR_SEND:
    case MERAK_INSTR_RECV:
        return transfer_demand(model, program, instr);
    }
    return demand;
}

double merak_cost_instr(const struct merak_cost_model *model,
                        const struct merak_program *program,
                        const struct merak_instr *instr)
{
    const struct merak_demand demand = merak_cost_demand(model, program, instr);
    struct merak_cost_model shared;

    if (demand.net_bytes == 0)
        return demand.fixed_s;
    shared = merak_cost_shared(model, &program->plan, program->rank);
    return merak_cost_demand_s(&demand, shared.links.level[1].bytes_per_s);
}

/* Kernel times measured on tensor ranks include the effect of exchanges. */
static bool is_included(const struct merak_cost_model *model,
                        const struct merak_group *group)
{
    return model->tp_rates != NULL && strncmp(group->name, "tp", 2) == 0;
}

struct merak_interference
merak_cost_instr_interference(const struct merak_cost_model *model,
                              const struct merak_program *program,
                              const struct merak_instr *instr)
{
    const struct merak_group *group;

    if (instr->kind == MERAK_INSTR_SEND || instr->kind == MERAK_INSTR_RECV)
        return merak_cost_interference(model, MERAK_CONVERT_ALL_GATHER,
                                       (double)instr->bytes, 2);
    if (instr->kind != MERAK_INSTR_EXCHANGE)
        return (struct merak_interference){0};
    group = &program->group[instr->group];
    if (group->n < 2 || is_included(model, group))
        return (struct merak_interference){0};
    return merak_cost_interference(model, instr->exchange->kind,
                                   (double)instr->bytes, group->n);
}
