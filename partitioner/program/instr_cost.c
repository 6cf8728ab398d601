/* SPDX-License-Identifier: Apache-2.0 */
/* instr_cost.c - how long an instruction of a program takes */
#include "config.h"

#include "partitioner/program/instr_cost.h"

#include <float.h>
#include <math.h>

/* Ranks of rank's domain of so many ranks that are of its stage, or of any. */
static int in_domain(const struct merak_plan *plan, int rank, int ranks,
                     bool stages)
{
    int tp_index, dp_index, stage, at, n = 0, all = merak_plan_ranks(plan);

    merak_plan_coords(plan, rank, &tp_index, &dp_index, &stage);
    for (int r = rank - rank % ranks; r < all && r / ranks == rank / ranks;
         r++) {
        merak_plan_coords(plan, r, &tp_index, &dp_index, &at);
        n += stages || at == stage;
    }
    return n;
}

struct merak_spread merak_links_sharers(const struct merak_links *links,
                                        const struct merak_plan *plan, int rank,
                                        bool stages)
{
    struct merak_spread sharers = {.n = {0}};
    int last = merak_links_last(links);

    for (int l = 0; l < last; l++) {
        const struct merak_level *level = &links->level[l];
        bool ways = level->way_bytes_per_s > 0 ||
                    (l == last - 1 && links->islands != NULL);

        sharers.n[l] = ways && level->ranks > 0
                           ? in_domain(plan, rank, level->ranks, stages)
                           : 1;
    }
    return sharers;
}

struct merak_links merak_links_shared(const struct merak_links *links,
                                      const struct merak_plan *plan, int rank)
{
    const struct merak_spread sharers =
        merak_links_sharers(links, plan, rank, false);

    return merak_links_contended(links, &sharers);
}

static struct merak_demand message_demand(const struct merak_links *links,
                                          const struct merak_program *program,
                                          const struct merak_instr *instr)
{
    return merak_links_transfer(links, program->rank, instr->peer,
                                (double)instr->bytes);
}

static struct merak_demand group_demand(const struct merak_links *links,
                                        const struct merak_program *program,
                                        const struct merak_instr *instr)
{
    const struct merak_group *group = &program->group[instr->group];
    const struct merak_spread spread =
        merak_links_spread(links, program->rank, group->rank, group->n);

    struct merak_demand demand = merak_links_exchange(
        links, instr->exchange->kind, (double)instr->bytes, &spread);

    if (instr->joined) /* the rounds of its bundle are counted already */
        demand.fixed_s -=
            merak_links_exchange(links, instr->exchange->kind, 0, &spread)
                .fixed_s;
    return demand;
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

bool merak_instr_may_run(const struct merak_cost_model *model,
                         const struct merak_instr *instr)
{
    return !merak_instr_needs_rows(instr) ||
           model->expert_load > instr->attrs->f[0];
}

/* Seconds until it is known whether an exchange takes place: the first that
 * depends on a number of rows waits for the host to have it. */
static double decided_s(const struct merak_cost_model *model,
                        const struct merak_program *program,
                        const struct merak_instr *instr)
{
    return merak_instr_needs_rows(instr) &&
                   merak_sharded_asks(program->sharded, instr->node)
               ? merak_cost_read_back(model)
               : 0;
}

/* How many times its usual FLOPs a kernel has at this load of experts. */
static double loaded(const struct merak_program *program,
                     const struct merak_instr *instr, double load)
{
    struct merak_infer local = {
        .attrs = instr->attrs, .n_in = instr->n_in, .n_out = instr->n_out};

    if (load <= 1 || instr->op->loaded == NULL)
        return 1;
    for (int o = 0; o < instr->n_in + instr->n_out; o++) {
        const struct merak_box *box = &program->slot[instr->slot[o]].box;

        local.shape[o].ndim = box->ndim;
        for (int d = 0; d < box->ndim; d++)
            local.shape[o].dim[d] = box->len[d];
    }
    return instr->op->loaded(&local, load);
}

double merak_program_most_load(const struct merak_program *program)
{
    double most = 1;

    for (int i = 0; i < program->n_instrs; i++) {
        const struct merak_instr *in = &program->instr[i];

        if (in->kind == MERAK_INSTR_KERNEL && in->phase == MERAK_PHASE_F)
            most = fmax(most, loaded(program, in, DBL_MAX));
    }
    return most;
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
    case MERAK_INSTR_COPY:
        demand.fixed_s = merak_cost_host_copy(model, (double)instr->bytes);
        break;
    case MERAK_INSTR_KERNEL:
        size = merak_instr_size(program, instr);
        size.flops *= loaded(program, instr, model->expert_load);
        demand.fixed_s =
            merak_cost_kernel(model, instr->op, program->mesh.tp, &size);
        break;
    case MERAK_INSTR_EXCHANGE:
        if (merak_instr_may_run(model, instr))
            demand = group_demand(&model->links, program, instr);
        demand.fixed_s += decided_s(model, program, instr);
        break;
    case MERAK_INSTR_SEND:
    case MERAK_INSTR_RECV:
        return message_demand(&model->links, program, instr);
    }
    return demand;
}

double merak_cost_instr(const struct merak_cost_model *model,
                        const struct merak_program *program,
                        const struct merak_instr *instr)
{
    const struct merak_demand demand = merak_cost_demand(model, program, instr);
    struct merak_links shared;

    if (!merak_demand_is_far(&demand))
        return demand.fixed_s;
    shared = merak_links_shared(&model->links, &program->plan, program->rank);
    return merak_links_demand_s(&shared, &demand);
}

/* Kernel times measured on tensor ranks include the effect of exchanges. */
static bool is_included(const struct merak_cost_model *model,
                        const struct merak_group *group)
{
    return model->tp_rates != NULL && group->axis == MERAK_ALONG_TP;
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
    if (!merak_instr_may_run(model, instr) || group->n < 2 ||
        is_included(model, group))
        return (struct merak_interference){0};
    return merak_cost_interference(model, instr->exchange->kind,
                                   (double)instr->bytes, group->n);
}
