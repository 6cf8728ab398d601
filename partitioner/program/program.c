/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - one rank's program: made, printed, destroyed */
#include "config.h"

#include "partitioner/program/program.h"

#include "base/error.h"
#include "base/size.h"
#include "partitioner/program/build.h"
#include "partitioner/graph/pool.h"
#include "partitioner/schedule/time.h"

#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

const char *merak_category_name(enum merak_category category)
{
    static const char *const name[MERAK_CAT_COUNT] = {
        [MERAK_CAT_PARAM] = "parameters",
        [MERAK_CAT_GRAD] = "gradients",
        [MERAK_CAT_OPTIMIZER] = "optimizer",
        [MERAK_CAT_ACTIVATION] = "activations",
        [MERAK_CAT_TRANSIENT] = "transient",
        [MERAK_CAT_COMM] = "communication",
        [MERAK_CAT_SCRATCH] = "scratch"};

    return (unsigned)category < MERAK_CAT_COUNT ? name[category] : "?";
}

int merak_plan_rank(const struct merak_plan *plan, int tp_index, int dp_index,
                    int stage)
{
    if (plan->order_tp_pp_dp)
        return tp_index + plan->tp * (stage + plan->pp * dp_index);
    return tp_index + plan->tp * (dp_index + plan->dp * stage);
}

void merak_plan_place(const struct merak_plan *plan, int rank, int *tp_index,
                      int *dp_index, int *stage)
{
    int rest = rank / plan->tp;

    *tp_index = rank % plan->tp;
    if (plan->order_tp_pp_dp) {
        *stage = rest % plan->pp;
        *dp_index = rest / plan->pp;
    } else {
        *dp_index = rest % plan->dp;
        *stage = rest / plan->dp;
    }
}

int merak_plan_chunks(const struct merak_plan *plan)
{
    const struct merak_schedule *schedule;

    if (plan->chunks > 0)
        return plan->chunks;
    if (merak_schedule_find(plan->schedule, &schedule, NULL) != MERAK_OK ||
        schedule->usual_chunks == 0)
        return 1;
    return schedule->usual_chunks;
}

int merak_plan_shared(const struct merak_plan *plan)
{
    struct merak_schedule_args args = merak_plan_schedule_args(plan, 0);
    const struct merak_schedule *schedule;
    int n = 0;

    if (merak_schedule_find(plan->schedule, &schedule, NULL) != MERAK_OK)
        return 0;
    for (int c = 0; c < args.chunks; c++)
        n += merak_schedule_shares(schedule, &args, c);
    return n;
}

int merak_plan_parts(const struct merak_plan *plan)
{
    int shared = merak_plan_shared(plan);

    return plan->pp * (merak_plan_chunks(plan) - shared) + shared;
}

struct merak_shard_options merak_plan_shards(const struct merak_plan *plan)
{
    return (struct merak_shard_options){.tp = plan->tp,
                                        .sp = plan->sp,
                                        .batch = plan->batch,
                                        .halved = plan->sub_pipeline,
                                        .branches = plan->branches,
                                        .stages = plan->pp,
                                        .shared = merak_plan_shared(plan)};
}

struct merak_schedule_args
merak_plan_schedule_args(const struct merak_plan *plan, int stage)
{
    return (struct merak_schedule_args){
        .stages = plan->pp,
        .microbatches = plan->microbatches / (plan->sub_pipeline ? 2 : 1),
        .chunks = merak_plan_chunks(plan),
        .slices = merak_schedule_slices(plan->schedule),
        .passes = plan->passes > 0 ? plan->passes : 1,
        .stage = stage};
}

void merak_plan_take_passes(struct merak_plan *plan, int passes, bool named)
{
    plan->passes = passes;
    if (passes > 1 && plan->pp > 1 && !named)
        snprintf(plan->schedule, sizeof(plan->schedule), "3f1b");
}

enum merak_status merak_plan_schedule(const struct merak_plan *plan,
                                      const struct merak_schedule **schedule_p,
                                      struct merak_error *err)
{
    struct merak_schedule_args args = merak_plan_schedule_args(plan, 0);
    const struct merak_schedule *schedule;
    enum merak_status rc = merak_schedule_find(plan->schedule, &schedule, err);

    if (rc == MERAK_OK)
        rc = merak_schedule_check(schedule, &args, err);
    if (rc != MERAK_OK)
        return rc;
    args = merak_schedule_defaults(schedule, &args);
    if (merak_plan_shared(plan) > MERAK_MAX_SHARED)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "schedule %s of %d chunks is for a model with an "
                          "encoder and a decoder: set chunks = 3 (embedding "
                          "and head over all stages) or 2 (embedding only)",
                          plan->schedule, args.chunks);
    if (merak_plan_shared(plan) > 0 && plan->sub_pipeline)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "schedule %s runs no sub-pipeline: leave one of "
                          "them out",
                          plan->schedule);
    if (args.passes > 1 && plan->sub_pipeline)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "a model of %d forward passes runs no sub-pipeline: "
                          "leave it out",
                          args.passes);
    if (args.slices > 1 && plan->sub_pipeline)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "schedule %s runs no sub-pipeline: leave one of "
                          "them out",
                          plan->schedule);
    *schedule_p = schedule;
    return MERAK_OK;
}

int merak_plan_part(const struct merak_schedule *schedule,
                    const struct merak_plan *plan, int stage, int chunk)
{
    struct merak_schedule_args args = merak_plan_schedule_args(plan, stage);

    return merak_schedule_part(schedule, &args, chunk);
}

bool merak_plan_recomputes(const struct merak_schedule *schedule,
                           const struct merak_plan *plan, int stage)
{
    struct merak_schedule_args args = merak_plan_schedule_args(plan, stage);

    return merak_schedule_recomputes(schedule, &args);
}

bool merak_plan_sums_behind(const struct merak_schedule *schedule,
                            const struct merak_plan *plan, int part)
{
    return plan->tp > 1 && part > 0 && !schedule->splits_w &&
           merak_plan_shared(plan) == 0;
}

void merak_plan_coord(const struct merak_sharded *sharded, int tp_index,
                      int stage, int *coord)
{
    const struct merak_mesh *mesh = &sharded->mesh;
    int n = merak_sharded_tensor_axes(sharded);

    for (int a = n - 1; a >= 0; a--) {
        coord[a] = tp_index % mesh->axis[a].size;
        tp_index /= mesh->axis[a].size;
    }
    if (mesh->n_axes > n)
        coord[n] = stage;
}

/* --- what an instruction touches ------------------------------------------ */

void merak_instr_access(const struct merak_instr *instr, unsigned *reads_p,
                        unsigned *writes_p)
{
    unsigned in = (1u << instr->n_in) - 1;
    unsigned out = ((1u << instr->n_out) - 1) << instr->n_in;
    bool updates = instr->accumulate;

    if (instr->kind == MERAK_INSTR_KERNEL)
        updates = updates || strcmp(instr->op->name, "adamw") == 0 ||
                  strcmp(instr->op->name, "grad_add") == 0;
    *writes_p = out;
    /* Of a slice: its queries' gradients are new. */
    if (instr->kind == MERAK_INSTR_KERNEL &&
        strcmp(instr->op->name, "attention_dx") == 0)
        out &= out - 1;
    *reads_p = updates ? in | out : in;
}

static void fill_operand(const struct merak_slot *slot,
                         struct merak_operand *op)
{
    size_t count = merak_box_count(&slot->box);

    *op = (struct merak_operand){.dtype = slot->dtype};
    if (slot->flat_hi - slot->flat_lo != count) { /* a flat range */
        op->local = (struct merak_shape){1, {slot->flat_hi - slot->flat_lo}};
        op->full = (struct merak_shape){1, {count}};
        op->lo[0] = slot->flat_lo;
        return;
    }
    op->local.ndim = op->full.ndim = slot->box.ndim;
    for (int d = 0; d < slot->box.ndim; d++) {
        op->local.dim[d] = slot->box.len[d];
        op->full.dim[d] = slot->box.full[d];
        op->lo[d] = slot->box.lo[d];
    }
}

void merak_program_call(const struct merak_program *program,
                        const struct merak_instr *instr,
                        struct merak_kernel_call *call)
{
    *call = (struct merak_kernel_call){.attrs = instr->attrs,
                                       .n_in = instr->n_in,
                                       .n_out = instr->n_out,
                                       .accumulate = instr->accumulate,
                                       .first = instr->first};
    for (int i = 0; i < instr->n_in + instr->n_out; i++)
        fill_operand(&program->slot[instr->slot[i]], &call->operand[i]);
    if (instr->scratch >= 0)
        call->scratch_bytes = program->slot[instr->scratch].bytes;
}

/* --- building ------------------------------------------------------------- */

static int plan_passes(const struct merak_plan *plan)
{
    return plan->passes > 0 ? plan->passes : 1;
}

static int graph_passes(const struct merak_graph *graph)
{
    return graph->passes > 0 ? graph->passes : 1;
}

static enum merak_status check_plan(const struct merak_sharded *sharded,
                                    const struct merak_stages *stages,
                                    const struct merak_plan *plan, int rank,
                                    struct merak_error *err)
{
    int tp = 1, most;

    for (int a = 0; a < merak_sharded_tensor_axes(sharded); a++)
        tp *= sharded->mesh.axis[a].size;
    if (plan->tp < 1 || plan->pp < 1 || plan->dp < 1 || plan->microbatches < 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "tp %d, pp %d, dp %d and %d micro-batches: each "
                          "must be at least 1",
                          plan->tp, plan->pp, plan->dp, plan->microbatches);
    if (tp != plan->tp || stages->n != merak_plan_parts(plan) ||
        sharded->n_shared != merak_plan_shared(plan))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "the plan says tp %d and pp %d with %d chunks, but "
                          "the graph is sharded for %d, with %d blocks over "
                          "all stages, and cut in %d",
                          plan->tp, plan->pp, merak_plan_chunks(plan), tp,
                          sharded->n_shared, stages->n);
    if (plan_passes(plan) != graph_passes(sharded->graph))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "the plan says %d forward passes, but the model "
                          "runs %d",
                          plan_passes(plan), graph_passes(sharded->graph));
    /* instructions are counted in ints */
    most = INT_MAX / 16 / sharded->graph->n_nodes / plan_passes(plan);
    if (plan->microbatches > most)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d micro-batches a step: expected at most %d for "
                          "this model; use larger ones, or a smaller global "
                          "batch",
                          plan->microbatches, most);
    if (plan->sub_pipeline && plan->microbatches % 2 != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "a sub-pipeline takes micro-batches in pairs; %d "
                          "are not even",
                          plan->microbatches);
    if (plan->dp > 1 && sharded->mesh.n_axes >= MERAK_MAX_AXES)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "no room for a dp axis beside %d tensor axes",
                          sharded->mesh.n_axes);
    if (rank < 0 || rank >= plan->tp * plan->pp * plan->dp)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "no rank %d among tp %d x pp %d x dp %d", rank,
                          plan->tp, plan->pp, plan->dp);
    return MERAK_OK;
}

static void set_mesh(struct merak_build *b)
{
    struct merak_program *prog = b->prog;

    b->mesh = b->sharded->mesh;
    merak_plan_coord(b->sharded, prog->tp_index, prog->stage, b->coord);
    b->dp_axis = b->pp_axis = -1;
    if (b->sharded->n_shared > 0)
        b->pp_axis = b->mesh.n_axes - 1;
    if (prog->plan.dp > 1) {
        b->dp_axis = b->mesh.n_axes++;
        b->mesh.axis[b->dp_axis] = (struct merak_axis){"dp", prog->plan.dp};
        b->coord[b->dp_axis] = prog->dp_index;
    }
    for (int g = 0; g < MERAK_MAX_AXES + 2; g++)
        b->group_of[g] = -1;
}

static enum merak_status create(struct merak_build *b,
                                const struct merak_plan *plan, int rank,
                                struct merak_error *err)
{
    struct merak_program *prog = calloc(1, sizeof(*prog));

    b->prog = prog;
    if (prog == NULL)
        return merak_fail_nomem(err, sizeof(*prog));
    b->pool = merak_pool_create();
    prog->pool = merak_pool_create();
    if (b->pool == NULL || prog->pool == NULL)
        return merak_fail_nomem(err, sizeof(*prog));
    prog->plan = *plan;
    prog->plan.cut = NULL; /* borrowed, and in the stages by now */
    prog->plan.drop = NULL;
    prog->net = merak_cost_net_rates(b->cost);
    prog->sharded = b->sharded;
    prog->rank = rank;
    prog->ranks = plan->tp * plan->pp * plan->dp;
    prog->norm = prog->loss = -1;
    merak_plan_place(plan, rank, &prog->tp_index, &prog->dp_index,
                     &prog->stage);
    b->stage = prog->stage;
    set_mesh(b);
    return MERAK_OK;
}

/* Tables by value and by node. */
static void make_tables(struct merak_build *b)
{
    size_t values = (size_t)b->graph->n_values + 1;
    size_t nodes = (size_t)b->graph->n_nodes + 1;
    struct merak_program *prog = b->prog;

    b->flow = merak_build_alloc(b, values * sizeof(*b->flow));
    b->local = merak_build_alloc(b, values * sizeof(*b->local));
    b->param_slot = merak_build_alloc(b, values * sizeof(*b->param_slot));
    b->param_index = merak_build_alloc(b, values * sizeof(*b->param_index));
    b->uses_of = merak_build_alloc(b, values * sizeof(*b->uses_of));
    b->exchange = merak_build_alloc(b, nodes * sizeof(*b->exchange));
    b->join = merak_build_alloc(b, values * sizeof(*b->join));
    b->again_name = merak_build_alloc(b, nodes * sizeof(*b->again_name));
    b->open = merak_build_alloc(b, ((size_t)prog->plan.microbatches + 1) *
                                       (size_t)b->passes * sizeof(*b->open));
    prog->group =
        merak_build_alloc_kept(b, (MERAK_MAX_AXES + 2) * sizeof(*prog->group));
}

/* The parts of the model, by stage and on this rank. */
static void place_parts(struct merak_build *b)
{
    const struct merak_plan *plan = &b->prog->plan;

    b->n_chunks = merak_plan_chunks(plan);
    b->n_chain = merak_plan_parts(plan) - merak_plan_shared(plan);
    b->chunk = merak_build_alloc(b, (size_t)b->n_chunks * sizeof(*b->chunk));
    b->stage_of_part = merak_build_alloc(b, (size_t)merak_plan_parts(plan) *
                                                sizeof(*b->stage_of_part));
    if (b->rc != MERAK_OK)
        return;
    for (int s = 0; s < plan->pp; s++) {
        for (int c = 0; c < b->n_chunks; c++) {
            int part = merak_plan_part(b->schedule, plan, s, c);

            b->stage_of_part[part] = part < b->n_chain ? s : b->stage;
            if (s == b->stage)
                b->chunk[c].part = part;
        }
    }
}

static void run_passes(struct merak_build *b)
{
    static void (*const pass[])(struct merak_build * b) = {
        make_tables,       place_parts,
        merak_build_flow,  merak_build_passes,
        merak_build_lists, merak_build_params,
        merak_build_uses,  merak_build_gathers,
        merak_build_posts, merak_build_microbatches,
        merak_build_step,  merak_build_place,
        merak_build_waits, merak_build_unit_costs,
    };

    for (size_t i = 0; i < sizeof(pass) / sizeof(*pass); i++) {
        if (b->rc == MERAK_OK)
            pass[i](b);
    }
}

/* An action's sends may be under way during the next; where the schedule
 * sends long before the receiver's turn, its buffers are kept for longer, or
 * stages would wait for each other. */
static enum merak_status find_send_lag(struct merak_build *b,
                                       const struct merak_plan *plan,
                                       struct merak_error *err)
{
    struct merak_schedule_args args = merak_plan_schedule_args(plan, 0);
    struct merak_timetable *table = NULL;
    int lag = 0;
    enum merak_status rc =
        merak_timetable_create(b->schedule, &args, &table, err);

    if (rc == MERAK_OK)
        rc = merak_timetable_send_lag(table, &lag, err);
    b->send_lag = lag > 2 ? lag - 1 : 1;
    merak_timetable_destroy(table);
    return rc;
}

static void build_fini(struct merak_build *b)
{
    int slots = b->prog == NULL ? 0 : b->prog->n_slots;

    for (int i = 0; i < slots; i++)
        free(b->use[i].span);
    free(b->use);
    free(b->lag);
    free(b->shared);
    free(b->gate);
    for (int i = 0;
         b->open != NULL && i < b->prog->plan.microbatches * b->passes; i++) {
        free(b->open[i].map);
        free(b->open[i].done);
    }
    merak_pool_destroy(b->pool);
}

enum merak_status merak_program_build(const struct merak_sharded *sharded,
                                      const struct merak_stages *stages,
                                      const struct merak_plan *plan, int rank,
                                      const struct merak_program_options *opt,
                                      struct merak_program **program_p,
                                      struct merak_error *err)
{
    static const struct merak_program_options none = {0};
    struct merak_build b = {.sharded = sharded,
                            .graph = sharded->graph,
                            .stages = stages,
                            .opt = opt != NULL ? opt : &none,
                            .passes = plan_passes(plan),
                            .err = err};
    enum merak_status rc;

    b.cost = b.opt->cost != NULL ? b.opt->cost : merak_cost_default();
    rc = check_plan(sharded, stages, plan, rank, err);
    if (rc == MERAK_OK)
        rc = merak_plan_schedule(plan, &b.schedule, err);
    if (rc == MERAK_OK && b.schedule->forward_only && !b.opt->forward_only)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "schedule %s has no backwards and trains nothing: it "
                        "is for evaluation",
                        plan->schedule);
    if (rc == MERAK_OK)
        rc = find_send_lag(&b, plan, err);
    if (rc == MERAK_OK)
        rc = create(&b, plan, rank, err);
    if (rc != MERAK_OK)
        goto out;
    rc = merak_build_slices(&b);
    if (rc != MERAK_OK)
        goto out;
    run_passes(&b);
    rc = b.rc;
    if (rc != MERAK_OK)
        goto out;
    *program_p = b.prog;
out:
    build_fini(&b);
    if (rc != MERAK_OK)
        merak_program_destroy(b.prog);
    return rc;
}

void merak_program_destroy(struct merak_program *program)
{
    if (program == NULL)
        return;
    free(program->instr);
    free(program->wait);
    free(program->slot);
    merak_pool_destroy(program->pool);
    free(program);
}

/* --- printing ------------------------------------------------------------- */

static const char *kind_name(enum merak_instr_kind kind)
{
    static const char *const name[] = {
        [MERAK_INSTR_LOAD] = "load",         [MERAK_INSTR_KERNEL] = "kernel",
        [MERAK_INSTR_EXCHANGE] = "exchange", [MERAK_INSTR_SLICE] = "slice",
        [MERAK_INSTR_SEND] = "send",         [MERAK_INSTR_RECV] = "recv"};

    return name[kind];
}

static void print_operand(FILE *out, const struct merak_program *prog, int s)
{
    fprintf(out, " %d@%zu+%zu", s, prog->slot[s].offset, prog->slot[s].bytes);
}

static void print_instr(FILE *out, const struct merak_program *prog,
                        const struct merak_instr *in)
{
    fprintf(out, "%5d %-8s %c", in->id, kind_name(in->kind), "cxps"[in->queue]);
    if (in->microbatch < 0)
        fprintf(out, " -   ");
    else if (in->phase == MERAK_PHASE_F && !in->again && prog->plan.passes > 1)
        fprintf(out, " F%d.%d ", in->microbatch, in->pass);
    else
        fprintf(out, " %c%-3d", in->again ? 'R' : "FBW"[in->phase],
                in -> microbatch);
    fprintf(out, " %s%s%s:", in->name, in->accumulate ? " +=" : "",
            in->first ? " first" : "");
    for (int i = 0; i < in->n_in; i++)
        print_operand(out, prog, in->slot[i]);
    fputs(" ->", out);
    for (int i = in->n_in; i < in->n_in + in->n_out; i++)
        print_operand(out, prog, in->slot[i]);
    if (in->kind == MERAK_INSTR_EXCHANGE)
        fprintf(out, " in %s", prog->group[in->group].name);
    if (in->peer >= 0)
        fprintf(out, " rank %d tag %llu", in->peer,
                (unsigned long long)in->tag);
    for (int w = 0; w < in->n_wait; w++)
        fprintf(out, "%s%d", w == 0 ? " after " : ",",
                prog->wait[in->first_wait + w]);
    fputc('\n', out);
}

enum merak_status merak_program_print(const struct merak_program *program,
                                      char **text_p, struct merak_error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL)
        return merak_fail_nomem(err, 1);
    fprintf(out,
            "rank %d of %d: stage %d tp %d dp %d, %d instructions, "
            "%zu bytes (%zu persistent)\n",
            program->rank, program->ranks, program->stage, program->tp_index,
            program->dp_index, program->n_instrs, program->arena_bytes,
            program->persistent_bytes);
    for (int i = 0; i < program->n_instrs; i++)
        print_instr(out, program, &program->instr[i]);
    if (fclose(out) != 0) {
        free(text);
        return merak_fail_nomem(err, size);
    }
    *text_p = text;
    return MERAK_OK;
}
