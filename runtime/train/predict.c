/* SPDX-License-Identifier: Apache-2.0 */
/* predict.c - what the plan predicts for each instruction, for the trace */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "partitioner/program/recompute.h"
#include "partitioner/simulate/simulate.h"
#include "partitioner/program/instr_cost.h"

#include <stdlib.h>
#include <string.h>

static const char *op_of(const struct merak_instr *in)
{
    switch (in->kind) {
    case MERAK_INSTR_KERNEL:
        return in->op->name;
    case MERAK_INSTR_EXCHANGE:
        return merak_convert_name(in->exchange->kind);
    case MERAK_INSTR_LOAD:
    case MERAK_INSTR_SLICE:
    case MERAK_INSTR_COPY:
    case MERAK_INSTR_SEND:
    case MERAK_INSTR_RECV:
        break;
    }
    return merak_trace_kind_name((uint8_t)in->kind);
}

/* Which ranks meet: as in the simulator and the checker (meet.c). */
static void fill_one(const struct merak_program *prog,
                     const struct merak_instr *in,
                     struct merak_trace_planned *planned)
{
    snprintf(planned->op, sizeof(planned->op), "%s", op_of(in));
    planned->again = in->recompute;
    planned->first = planned->second = -1;
    planned->start_ns = planned->end_ns = -1;
    if (in->kind == MERAK_INSTR_EXCHANGE) {
        planned->tag = in->tag;
        planned->first = prog->group[in->group].rank[0];
        planned->second = -prog->group[in->group].n;
    } else if (in->kind == MERAK_INSTR_SEND || in->kind == MERAK_INSTR_RECV) {
        bool sends = in->kind == MERAK_INSTR_SEND;

        planned->tag = in->tag;
        planned->first = sends ? prog->rank : in->peer;
        planned->second = sends ? in->peer : prog->rank;
    }
}

/* How many of the ranks that meet in an instruction are on this rank's
 * node. */
static int near(const struct merak_trainer *t, const struct merak_instr *in)
{
    const struct merak_program *prog = t->program;
    const struct merak_links *links = &t->cost.links;
    const struct merak_group *group;

    if (in->kind == MERAK_INSTR_SEND || in->kind == MERAK_INSTR_RECV)
        return merak_links_level(links, prog->rank, in->peer) == 0 ? 2 : 1;
    if (in->kind != MERAK_INSTR_EXCHANGE)
        return 0;
    group = &prog->group[in->group];
    return merak_links_spread(links, prog->rank, group->rank, group->n).n[0];
}

void merak_trainer_costs(const struct merak_trainer *t,
                         struct merak_trace_cost *cost)
{
    const struct merak_program *prog = t->program;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];
        struct merak_kernel_size size = {.bytes = (double)in->bytes};

        if (in->kind == MERAK_INSTR_KERNEL)
            size = merak_instr_size(prog, in);
        cost[i] = (struct merak_trace_cost){.flops = size.flops,
                                            .bytes = size.bytes,
                                            .width = size.width,
                                            .reuse = size.reuse,
                                            .inside = near(t, in),
                                            .tp = prog->mesh.tp};
    }
}

/* One rank per stage, as its tensor and data peers do the same at the same
 * time; or all. */
enum merak_status merak_trainer_pipeline(struct merak_trainer *t,
                                         struct merak_program **programs,
                                         struct merak_error *err)
{
    struct merak_program_options opt = merak_trainer_program_options(t);
    enum merak_status rc =
        merak_recompute_choose(t->sharded, &t->plan, -1, &opt, t->stages, err);

    for (int k = 0; k < merak_plan_players(&t->plan) && rc == MERAK_OK; k++)
        rc = merak_program_build(t->sharded, t->stages, &t->plan,
                                 merak_plan_player(&t->plan,
                                                   t->program->tp_index,
                                                   t->program->dp_index, k),
                                 &opt, &programs[k], err);
    return rc;
}

static enum merak_status add_times(struct merak_trainer *t,
                                   struct merak_program **programs,
                                   struct merak_trace_planned *planned,
                                   struct merak_error *err)
{
    struct merak_timeline *timeline = NULL;
    int s = t->plan.stage != NULL ? t->program->rank : t->program->stage;
    enum merak_status rc = merak_simulate(
        programs, merak_plan_players(&t->plan), NULL, NULL, &timeline, err);

    if (rc != MERAK_OK)
        return rc;
    if (programs[s]->n_instrs != t->program->n_instrs)
        rc = merak_fail(err, MERAK_ERR_PARAM,
                        "stage %d was planned with %d instructions, and again "
                        "with %d",
                        s, t->program->n_instrs, programs[s]->n_instrs);
    for (int i = 0; i < t->program->n_instrs && rc == MERAK_OK; i++) {
        planned[i].start_ns = (int64_t)(timeline->start[s][i] * 1e9);
        planned[i].end_ns = (int64_t)(timeline->end[s][i] * 1e9);
    }
    merak_timeline_destroy(timeline);
    return rc;
}

enum merak_status merak_trainer_predict(struct merak_trainer *t,
                                        struct merak_trace_planned *planned,
                                        struct merak_error *err)
{
    int n = merak_plan_players(&t->plan);
    struct merak_program **programs =
        calloc((size_t)n, sizeof(struct merak_program *));
    enum merak_status rc;

    if (programs == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(void *));
    for (int i = 0; i < t->program->n_instrs; i++)
        fill_one(t->program, &t->program->instr[i], &planned[i]);
    rc = merak_trainer_pipeline(t, programs, err);
    if (rc == MERAK_OK)
        rc = add_times(t, programs, planned, err);
    for (int k = 0; k < n; k++)
        merak_program_destroy(programs[k]);
    free(programs);
    return rc;
}
