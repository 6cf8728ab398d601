/* SPDX-License-Identifier: Apache-2.0 */
/* assembly.c - from a description and degrees to programs, in one call */
#include "config.h"

#include "partitioner/assembly/assembly.h"
#include "partitioner/program/recompute.h"
#include "partitioner/order/shard_order.h"

#include "base/error.h"

#include <stdlib.h>

static enum merak_status shard(struct merak_assembly *a,
                               const struct merak_graph *graph,
                               struct merak_error *err)
{
    struct merak_shard_options so = merak_plan_shards(&a->plan, 0);
    enum merak_status rc;

    so.deadline = a->deadline;
    rc = merak_shard(graph, &so, &a->own, err);
    if (rc != MERAK_OK)
        return rc;
    a->sharded = a->own;
    a->plan.branches = a->own->order; /* there may be no such order */
    return MERAK_OK;
}

/* --- unlike stages -------------------------------------------------------- */

/* How fast the ranks of each part are together: an array that the caller frees.
 */
static double *speed_of_parts(const struct merak_plan *plan,
                              const struct merak_program_options *opt)
{
    double *speed = calloc((size_t)merak_plan_parts(plan), sizeof(*speed));
    const struct merak_schedule *schedule;

    if (speed == NULL ||
        merak_schedule_find(plan->schedule, &schedule, NULL) != MERAK_OK)
        return speed;
    for (int s = 0; s < plan->pp; s++) {
        const struct merak_stage_mesh mesh = merak_plan_mesh(plan, s);

        for (int c = 0; c < merak_plan_chunks(plan); c++)
            speed[merak_plan_part(schedule, plan, s, c)] =
                merak_stage_ranks(&mesh) *
                (opt != NULL && opt->speed != NULL ? opt->speed[s] : 1);
    }
    return speed;
}

/* The parts, cut where the graph has no tensor ranks: its cut points are not
 * those of any stage's graph. */
static enum merak_status choose_parts(const struct merak_plan *plan,
                                      const struct merak_assembly_options *opt,
                                      struct merak_parts **parts_p,
                                      struct merak_error *err)
{
    struct merak_shard_options so = merak_plan_shards(plan, 0);
    struct merak_sharded *sharded = NULL;
    const struct merak_expert_form form = merak_plan_experts(plan);
    struct merak_stages *stages = NULL;
    struct merak_parts *parts = NULL;
    double *speed = speed_of_parts(plan, opt->program);
    int n = merak_plan_parts(plan);
    struct merak_graph *graph;
    enum merak_status rc;

    so.tp = 1;
    so.tp_batch_percent = 0;
    so.split = (struct merak_layer_split){{0}};
    so.sp = MERAK_SP_OFF;
    rc = merak_models_find(opt->models, merak_plan_mesh(plan, 0).batch, &form,
                           NULL, &graph, err);
    if (rc == MERAK_OK && speed == NULL)
        rc = merak_fail_nomem(err, (size_t)n * sizeof(*speed));
    if (rc == MERAK_OK)
        rc = merak_shard_described(graph, &so, &sharded, err);
    if (rc == MERAK_OK && plan->cut != NULL)
        rc = merak_stages_at(sharded, plan->cut, n, &stages, err);
    else if (rc == MERAK_OK)
        rc = merak_stages_cut(sharded, n, speed,
                              opt->program != NULL ? opt->program->cost : NULL,
                              &stages, err);
    if (rc == MERAK_OK)
        rc = merak_stages_parts(sharded, stages, &parts, err);
    if (rc == MERAK_OK && merak_parts_cut_loss(graph, parts))
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "--cut: part %d begins within the loss, which stages "
                        "of unlike ranks need in one part; expected cut points "
                        "before it",
                        n - 1);
    if (rc == MERAK_OK) {
        *parts_p = parts;
        parts = NULL;
    }
    merak_parts_destroy(parts);
    merak_stages_destroy(stages);
    merak_sharded_destroy(sharded);
    free(speed);
    return rc;
}

/* A stage's graph, or that of an earlier stage that is alike. */
static enum merak_status shard_stage(struct merak_assembly *a,
                                     const struct merak_assembly_options *opt,
                                     const struct merak_parts *parts, int stage,
                                     struct merak_error *err)
{
    const struct merak_expert_form form = merak_plan_experts(&a->plan);
    struct merak_shard_options so = merak_plan_shards(&a->plan, stage);
    struct merak_sharded *sharded = NULL;
    struct merak_graph *graph;
    int e = 0;
    enum merak_status rc;

    while (merak_plan_is_unlike(&a->plan, e, stage))
        e++;
    if (e < stage)
        return merak_sharded_add(a->own, a->own->by_stage[e], stage, a->plan.pp,
                                 err);
    so.parts = parts;
    rc = merak_models_find(opt->models, merak_plan_mesh(&a->plan, stage).batch,
                           &form, NULL, &graph, err);
    if (rc == MERAK_OK)
        rc = merak_shard_described(graph, &so, &sharded, err);
    if (rc != MERAK_OK)
        return rc;
    if (stage == 0)
        a->own = sharded;
    rc = merak_sharded_add(a->own, sharded, stage, a->plan.pp, err);
    if (rc != MERAK_OK && stage > 0)
        merak_sharded_destroy(sharded);
    return rc;
}

static enum merak_status shard_stages(struct merak_assembly *a,
                                      const struct merak_assembly_options *opt,
                                      struct merak_error *err)
{
    struct merak_parts *parts = NULL;
    enum merak_status rc;

    a->plan.branches = MERAK_BRANCHES_DESCRIBED;
    rc = choose_parts(&a->plan, opt, &parts, err);
    for (int s = 0; s < a->plan.pp && rc == MERAK_OK; s++)
        rc = shard_stage(a, opt, parts, s, err);
    merak_parts_destroy(parts);
    a->sharded = a->own;
    return rc;
}

/* --- from phase to phase -------------------------------------------------- */

/* Where the plan does not say it: by what stages take. */
static enum merak_status cut_evenly(struct merak_assembly *a,
                                    const struct merak_program_options *opt,
                                    struct merak_error *err)
{
    bool alike = opt == NULL || opt->speed == NULL;
    double *speed = alike ? NULL : speed_of_parts(&a->plan, opt);
    enum merak_status rc =
        merak_stages_cut(a->sharded, merak_plan_parts(&a->plan), speed,
                         opt != NULL ? opt->cost : NULL, &a->stages, err);

    free(speed);
    return rc;
}

static enum merak_status cut(struct merak_assembly *a,
                             const struct merak_graph *graph,
                             const struct merak_assembly_options *opt,
                             struct merak_error *err)
{
    const struct merak_cost_model *cost =
        opt->program != NULL && opt->program->cost != NULL
            ? opt->program->cost
            : merak_cost_default();
    int parts = merak_plan_parts(&a->plan);
    enum merak_status rc =
        a->plan.stage != NULL
            ? merak_stages_of_parts(a->sharded, &a->stages, err)
        : a->plan.cut != NULL
            ? merak_stages_at(a->sharded, a->plan.cut, parts, &a->stages, err)
            : cut_evenly(a, opt->program, err);

    if (rc == MERAK_OK && merak_lossy_any(&a->plan.lossy))
        rc = merak_assembly_pack(a, graph, cost, err);
    if (rc == MERAK_OK && opt->choose_boundary)
        a->plan.scatter = merak_boundary_choose(
            opt->boundary, cost, &a->plan,
            merak_boundary_bytes(a->sharded, a->stages));
    return rc;
}

enum merak_status merak_assemble(struct merak_assembly *a,
                                 const struct merak_graph *graph,
                                 const struct merak_assembly_options *opt,
                                 enum merak_assembly_phase last,
                                 struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (a->sharded == NULL)
        rc = a->plan.stage != NULL ? shard_stages(a, opt, err)
                                   : shard(a, graph, err);
    if (rc == MERAK_OK && last >= MERAK_ASSEMBLY_CUT && a->stages == NULL)
        rc = cut(a, graph, opt, err);
    if (rc == MERAK_OK && last >= MERAK_ASSEMBLY_RECOMPUTED)
        rc = merak_recompute_choose(a->sharded, &a->plan, opt->stage,
                                    opt->program, a->stages, err);
    return rc;
}

void merak_assembly_fini(struct merak_assembly *a)
{
    merak_stages_destroy(a->stages);
    merak_sharded_destroy(a->own);
    merak_graph_destroy(a->packed);
}

/* From the graph to recomputation; p owns the results. */
static enum merak_status assemble(struct merak_planned *p,
                                  const struct merak_program_options *opt,
                                  struct merak_error *err)
{
    const struct merak_assembly_options ao = {
        .program = opt, .stage = -1, .models = &p->models};
    struct merak_assembly a = {.sharded = NULL};
    const struct merak_expert_form form = merak_plan_experts(&p->plan);
    const struct merak_schedule *schedule;
    enum merak_status rc =
        merak_models_find(&p->models, merak_plan_mesh(&p->plan, 0).batch, &form,
                          NULL, &p->graph, err);

    if (rc == MERAK_OK) {
        p->plan.passes = p->graph->passes;
        rc = merak_plan_schedule(&p->plan, &schedule, err);
    }
    if (rc != MERAK_OK)
        return rc;
    a.plan = p->plan;
    rc = merak_assemble(&a, p->graph, &ao, MERAK_ASSEMBLY_RECOMPUTED, err);
    p->sharded = a.own;
    p->stages = a.stages;
    p->plan.lossy = a.plan.lossy;
    p->packed = a.packed;
    if (p->packed != NULL)
        p->graph = p->packed;
    return rc;
}

enum merak_status merak_planned_build(struct merak_planned *p,
                                      enum merak_plan_ranks ranks,
                                      const struct merak_program_options *opt,
                                      const int *kind, struct merak_error *err)
{
    const struct merak_plan *plan = &p->plan;
    int n = ranks == MERAK_PLAN_ALL ? merak_plan_ranks(plan) : plan->pp;
    enum merak_status rc = MERAK_OK;

    if (ranks == MERAK_PLAN_NONE)
        return MERAK_OK;

    p->program = calloc((size_t)n, sizeof(struct merak_program *));
    if (p->program == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(void *));
    p->n_programs = n;
    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        int rank = ranks == MERAK_PLAN_ALL ? i : merak_plan_rank(plan, 0, 0, i);
        int tp_index, dp_index, stage;

        merak_plan_coords(plan, rank, &tp_index, &dp_index, &stage);
        rc = merak_program_build(p->sharded, p->stages, plan, rank,
                                 kind != NULL ? &opt[kind[stage]] : opt,
                                 &p->program[i], err);
    }
    return rc;
}

enum merak_status merak_plan_build(const struct merak_plan *plan, size_t seq,
                                   merak_describe_fn describe, void *arg,
                                   enum merak_plan_ranks ranks,
                                   const struct merak_program_options *opt,
                                   struct merak_planned **planned_p,
                                   struct merak_error *err)
{
    struct merak_planned *p = calloc(1, sizeof(*p));
    enum merak_status rc;

    if (p == NULL)
        return merak_fail_nomem(err, sizeof(*p));
    p->plan = *plan;
    p->models = (struct merak_models){.seq = seq,
                                      .dtype = plan->dtype,
                                      .grad_dtype = plan->grad_dtype,
                                      .describe = describe,
                                      .arg = arg};
    rc = merak_plan_check_degrees(plan, err);
    if (rc == MERAK_OK)
        rc = assemble(p, opt, err);
    if (rc == MERAK_OK)
        rc = merak_planned_build(p, ranks, opt, NULL, err);
    if (rc != MERAK_OK)
        goto out;
    *planned_p = p;
    p = NULL; /* the caller's now */
out:
    merak_planned_destroy(p);
    return rc;
}

enum merak_status merak_plan_identify(const struct merak_plan *plan, size_t seq,
                                      merak_describe_fn describe, void *arg,
                                      const struct merak_program_options *opt,
                                      uint64_t *programs_p,
                                      struct merak_sent *sent_p,
                                      char model[MERAK_FINGERPRINT_TEXT],
                                      struct merak_error *err)
{
    uint64_t id = (uint64_t)plan->pp;
    struct merak_sent sent = {0};
    struct merak_planned *p = NULL;
    enum merak_status rc = merak_plan_build(plan, seq, describe, arg,
                                            MERAK_PLAN_NONE, opt, &p, err);

    for (int s = 0; s < plan->pp && rc == MERAK_OK; s++) {
        struct merak_program *program = NULL;

        rc = merak_program_build(p->sharded, p->stages, &p->plan,
                                 merak_plan_rank(plan, 0, 0, s), opt, &program,
                                 err);
        if (rc == MERAK_OK) {
            id = merak_program_ids(id, merak_program_id(program));
            merak_program_sent(program, &sent);
        }
        merak_program_destroy(program);
    }
    if (rc == MERAK_OK) {
        *programs_p = id;
        merak_sent_per_link(&sent, plan->pp);
        *sent_p = sent;
        merak_graph_fingerprint(p->graph, model);
    }
    merak_planned_destroy(p);
    return rc;
}

void merak_planned_keep(struct merak_planned *planned, const int *rank, int n)
{
    int kept = 0;

    for (int r = 0; r < planned->n_programs; r++) {
        if (kept < n && rank[kept] == r)
            planned->program[kept++] = planned->program[r];
        else
            merak_program_destroy(planned->program[r]);
    }
    planned->n_programs = kept;
}

void merak_planned_destroy(struct merak_planned *planned)
{
    if (planned == NULL)
        return;
    for (int i = 0; i < planned->n_programs; i++)
        merak_program_destroy(planned->program[i]);
    free(planned->program);
    merak_stages_destroy(planned->stages);
    merak_sharded_destroy(planned->sharded);
    merak_graph_destroy(planned->packed);
    merak_models_fini(&planned->models);
    free(planned);
}
