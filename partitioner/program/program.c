/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - one rank's program: built and destroyed */
#include "config.h"

#include "partitioner/program/program.h"

#include "base/error.h"
#include "base/size.h"
#include "partitioner/program/build.h"
#include "partitioner/graph/dims.h"
#include "partitioner/graph/mem_pool.h"
#include "partitioner/program/offload.h"
#include "partitioner/schedule/time.h"

#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- what an instruction touches ------------------------------------------ */

int merak_instr_joined(const struct merak_program *program, int id)
{
    int n = 0;

    while (id + n + 1 < program->n_instrs && program->instr[id + n + 1].joined)
        n++;
    return n;
}

void merak_instr_access(const struct merak_instr *instr, unsigned *reads_p,
                        unsigned *writes_p)
{
    unsigned in = (1u << instr->n_in) - 1;
    unsigned out = ((1u << instr->n_out) - 1) << instr->n_in;
    bool updates = instr->accumulate;

    *writes_p = out;
    if (instr->kind == MERAK_INSTR_KERNEL) {
        updates = updates || instr->op->updates;
        /* A slice adds to the gradients of earlier ones; its own are new. */
        if (instr->op->back_out != 0)
            out = (unsigned)instr->op->back_out << instr->n_in;
    }
    *reads_p = updates ? in | out : in;
}

size_t merak_slot_room(const struct merak_slot *slot)
{
    size_t count = slot->flat_hi - slot->flat_lo;

    if (slot->ld == 0)
        return count;
    return count / slot->box.len[slot->box.ndim - 1] * slot->ld;
}

static void fill_operand(const struct merak_slot *slot,
                         struct merak_operand *op)
{
    size_t count = merak_box_count(&slot->box);

    *op = (struct merak_operand){.dtype = slot->dtype, .ld = slot->ld};
    if (slot->flat_hi - slot->flat_lo != count) { /* a flat range */
        op->local = (struct merak_shape){1, {slot->flat_hi - slot->flat_lo}};
        op->full = (struct merak_shape){1, {count}};
        op->lo[0] = slot->flat_lo;
        return;
    }
    op->local = merak_box_shape(&slot->box);
    op->full = merak_box_full_shape(&slot->box);
    for (int d = 0; d < slot->box.ndim; d++)
        op->lo[d] = slot->box.lo[d];
}

void merak_program_call(const struct merak_program *program,
                        const struct merak_instr *instr,
                        struct merak_kernel_call *call)
{
    *call = (struct merak_kernel_call){.attrs = instr->attrs,
                                       .n_in = instr->n_in,
                                       .n_out = instr->n_out,
                                       .accumulate = instr->accumulate,
                                       .first = instr->first,
                                       .pieces = instr->pieces};
    for (int i = 0; i < instr->n_in + instr->n_out; i++) {
        const struct merak_slot *slot = &program->slot[instr->slot[i]];

        fill_operand(slot, &call->operand[i]);
        call->narrow = call->narrow || (instr->node >= 0 && i >= instr->n_in &&
                                        slot->category == MERAK_CAT_GRAD &&
                                        slot->dtype == MERAK_BF16);
    }
    if (instr->scratch >= 0)
        call->scratch_bytes = program->slot[instr->scratch].bytes;
}

bool merak_instr_is_same_call(const struct merak_program *a_program,
                              const struct merak_instr *a,
                              const struct merak_program *b_program,
                              const struct merak_instr *b)
{
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out ||
        a->accumulate != b->accumulate || a->first != b->first ||
        a->pieces != b->pieces)
        return false;
    for (int i = 0; i < a->n_in + a->n_out; i++) {
        const struct merak_slot *x = &a_program->slot[a->slot[i]];
        const struct merak_slot *y = &b_program->slot[b->slot[i]];
        const struct merak_shape x_shape = merak_box_shape(&x->box);
        const struct merak_shape y_shape = merak_box_shape(&y->box);

        if (x->dtype != y->dtype || x->ld != y->ld ||
            !merak_shape_equal(&x_shape, &y_shape))
            return false;
    }
    return true;
}

/* --- building ------------------------------------------------------------- */

static int graph_passes(const struct merak_graph *graph)
{
    return graph->passes > 0 ? graph->passes : 1;
}

/* Does some part have as many blocks as are to be fetched? */
static enum merak_status check_fetch(const struct merak_stages *stages,
                                     const struct merak_plan *plan,
                                     struct merak_error *err)
{
    int longest = 0, has;

    for (int p = 1; p < stages->n; p++) {
        if (stages->n_blocks[p] > stages->n_blocks[longest])
            longest = p;
    }
    has = stages->n_blocks[longest];
    if (plan->fetch <= has)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--fetch %d: part %d has %d block%s%s; give 1 to %d, or "
                      "all",
                      plan->fetch, longest, has, has == 1 ? "" : "s",
                      stages->n > 1 ? ", and none has more" : "", has);
}

static enum merak_status check_plan(const struct merak_sharded *sharded,
                                    const struct merak_stages *stages,
                                    const struct merak_plan *plan, int rank,
                                    struct merak_error *err)
{
    int tp_index, dp_index, stage, planned, tp = 1, most;
    enum merak_status rc = merak_plan_check_degrees(plan, err);

    if (rc == MERAK_OK)
        rc = merak_plan_check_zero(plan, err);
    if (rc != MERAK_OK)
        return rc;
    if (rank < 0 || rank >= merak_plan_ranks(plan))
        return merak_fail(err, MERAK_ERR_PARAM, "no rank %d among %d", rank,
                          merak_plan_ranks(plan));
    merak_plan_coords(plan, rank, &tp_index, &dp_index, &stage);
    sharded = merak_sharded_of(sharded, stage);
    planned = merak_plan_mesh(plan, stage).tp;
    for (int a = 0; a < merak_sharded_tensor_axes(sharded); a++)
        tp *= sharded->mesh.axis[a].size;
    if (tp != planned || stages->n != merak_plan_parts(plan) ||
        sharded->n_shared != merak_plan_shared(plan))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "the plan has tp %d and pp %d with %d chunks, but "
                          "the graph is sharded for %d, with %d "
                          "vocabulary-parallel layers, and cut in %d",
                          planned, plan->pp, merak_plan_chunks(plan), tp,
                          sharded->n_shared, stages->n);
    if (merak_plan_passes(plan) != graph_passes(sharded->graph))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "the plan has %d forward passes, but the model runs "
                          "%d",
                          merak_plan_passes(plan),
                          graph_passes(sharded->graph));
    /* instructions are counted in ints */
    most = INT_MAX / 16 / sharded->graph->n_nodes / merak_plan_passes(plan);
    if (plan->microbatches > most)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d micro-batches a step: expected at most %d for "
                          "this model; use larger ones, or a smaller global "
                          "batch",
                          plan->microbatches, most);
    if (plan->sub_pipeline && plan->microbatches % 2 != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--sub-pipeline yes takes micro-batches in pairs; "
                          "%d is odd",
                          plan->microbatches);
    if (sharded->mesh.n_axes + merak_plan_dp_axes(plan, stage) > MERAK_MAX_AXES)
        return merak_fail(
            err, MERAK_ERR_UNSUPPORTED, "no room for %s besides %d tensor axes",
            plan->dp_in > 1 ? "two dp axes: leave out --dp-in" : "a dp axis",
            sharded->mesh.n_axes);
    return check_fetch(stages, plan, err);
}

/* The graph and stages of this rank's stage. */
static void take_stage(struct merak_build *b, const struct merak_stages *stages,
                       const struct merak_plan *plan, int rank)
{
    int tp_index, dp_index;

    merak_plan_coords(plan, rank, &tp_index, &dp_index, &b->stage);
    b->sharded = merak_sharded_of(b->all, b->stage);
    b->graph = b->sharded->graph;
    b->stages = merak_stages_of(stages, b->stage);
}

static void add_dp_axis(struct merak_build *b, const char *name, int size,
                        int at)
{
    struct merak_axis axis = {.size = size};

    strcpy(axis.name, name);
    b->coord[b->mesh.n_axes] = at;
    b->mesh.axis[b->mesh.n_axes++] = axis;
}

static void set_mesh(struct merak_build *b)
{
    struct merak_program *prog = b->prog;
    int in;

    b->mesh = b->sharded->mesh;
    merak_plan_coord(b->sharded, prog->tp_index, prog->stage, b->coord);
    b->pp_axis = -1;
    if (b->sharded->n_shared > 0)
        b->pp_axis = b->mesh.n_axes - 1;
    b->n_dp_axes = merak_plan_dp_axes(&prog->plan, prog->stage);
    in = merak_plan_dp_in(&prog->plan, prog->stage);
    if (b->n_dp_axes > 0)
        add_dp_axis(b, b->n_dp_axes > 1 ? "dp.in" : "dp", in,
                    prog->dp_index % in);
    if (b->n_dp_axes > 1)
        add_dp_axis(b, "dp.out", prog->mesh.dp / in, prog->dp_index / in);
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
    prog->direct = b->opt->direct;
    prog->plan.cut = NULL; /* borrowed, and in the stages by now */
    prog->plan.drop = NULL;
    if (plan->stage != NULL) {
        size_t bytes = (size_t)plan->pp * sizeof(*plan->stage);
        struct merak_stage_degrees *own = merak_pool_alloc(prog->pool, bytes);

        if (own == NULL)
            return merak_fail_nomem(err, bytes);
        memcpy(own, plan->stage, bytes);
        prog->plan.stage = own;
    }
    prog->links = b->cost->links;
    prog->sharded = b->sharded;
    prog->pieces = b->sharded->graph->position_pieces;
    prog->rank = rank;
    prog->ranks = merak_plan_ranks(plan);
    prog->norm = prog->loss = prog->reports = -1;
    merak_plan_coords(plan, rank, &prog->tp_index, &prog->dp_index,
                      &prog->stage);
    prog->mesh = merak_plan_mesh(plan, prog->stage);
    b->stage = prog->stage;
    set_mesh(b);
    return MERAK_OK;
}

/* Tables by value and by node. */
static void make_tables(struct merak_build *b)
{
    size_t values = (size_t)b->graph->n_values + 1;
    size_t nodes = (size_t)b->graph->n_nodes + 1;
    size_t kinds = (size_t)merak_build_slice_kinds(b);
    struct merak_program *prog = b->prog;

    b->flow = merak_build_alloc(b, values * sizeof(*b->flow));
    b->local = merak_build_alloc(b, values * sizeof(*b->local));
    b->may_pad = merak_build_alloc(b, values * sizeof(*b->may_pad));
    b->params.slot = merak_build_alloc(b, values * sizeof(*b->params.slot));
    b->params.higher = merak_build_alloc(b, values * sizeof(*b->params.higher));
    b->params.index = merak_build_alloc(b, values * sizeof(*b->params.index));
    b->params.uses_of =
        merak_build_alloc(b, values * sizeof(*b->params.uses_of));
    b->once.exchange =
        merak_build_alloc(b, nodes * kinds * sizeof(*b->once.exchange));
    b->once.join = merak_build_alloc(b, values * kinds * sizeof(*b->once.join));
    b->once.recompute_name =
        merak_build_alloc(b, nodes * sizeof(*b->once.recompute_name));
    b->once.first = merak_build_alloc(b, nodes * sizeof(*b->once.first));
    b->once.like = merak_build_alloc(b, nodes * sizeof(*b->once.like));
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
        make_tables,
        place_parts,
        merak_build_flow,
        merak_build_passes,
        merak_build_fold,
        merak_build_lists,
        merak_build_params,
        merak_build_uses,
        merak_build_gathers,
        merak_build_posts,
        merak_build_microbatches,
        merak_build_step,
        merak_build_place,
        merak_build_waits,
        merak_build_unit_costs,
    };

    for (size_t i = 0; i < sizeof(pass) / sizeof(*pass); i++) {
        if (b->rc == MERAK_OK)
            pass[i](b);
    }
}

/* What an action sends is kept for send_lag more actions, and the one after
 * them is the first that may have to wait for it.  If the schedule sends long
 * before the receiver's turn, that is more than one, or stages would wait for
 * each other. */
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
    b->lags.send_lag = lag > 2 ? lag - 1 : 1;
    merak_timetable_destroy(table);
    return rc;
}

static void build_fini(struct merak_build *b)
{
    int slots = b->prog == NULL ? 0 : b->prog->n_slots;

    for (int i = 0; i < slots; i++)
        free(b->use[i].span);
    free(b->use);
    free(b->lags.lag);
    free(b->room.shared);
    free(b->gates.gate);
    free(b->fetch.summed);
    merak_fold_fini(&b->fold);
    for (int i = 0;
         b->open != NULL && i < b->prog->plan.microbatches * b->passes; i++) {
        free(b->open[i].map);
        free(b->open[i].away);
        free(b->open[i].done);
    }
    merak_pool_destroy(b->pool);
}

static void *trimmed(void *array, int n, size_t size)
{
    void *fits = n > 0 ? realloc(array, (size_t)n * size) : NULL;

    return fits != NULL ? fits : array;
}

/* Give back the room that arrays had to grow: a simulation has the programs of
 * all stages. */
static void trim(struct merak_program *prog)
{
    prog->instr = trimmed(prog->instr, prog->n_instrs, sizeof(*prog->instr));
    prog->wait = trimmed(prog->wait, prog->n_waits, sizeof(*prog->wait));
    prog->slot = trimmed(prog->slot, prog->n_slots, sizeof(*prog->slot));
}

enum merak_status merak_program_build(const struct merak_sharded *sharded,
                                      const struct merak_stages *stages,
                                      const struct merak_plan *plan, int rank,
                                      const struct merak_program_options *opt,
                                      struct merak_program **program_p,
                                      struct merak_error *err)
{
    static const struct merak_program_options none = {0};
    struct merak_build b = {.all = sharded,
                            .opt = opt != NULL ? opt : &none,
                            .passes = merak_plan_passes(plan),
                            .fold.pieces = 1,
                            .now.piece = -1,
                            .fetch.turn = -1,
                            .fetch.microbatch = -1,
                            .fetch.bundle = -1,
                            .fetch.sum_unit = -1,
                            .err = err};
    enum merak_status rc;

    b.cost = b.opt->cost != NULL ? b.opt->cost : merak_cost_default();
    rc = check_plan(sharded, stages, plan, rank, err);
    if (rc == MERAK_OK)
        rc = merak_offload_check(plan, b.cost, err);
    if (rc == MERAK_OK)
        take_stage(&b, stages, plan, rank);
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
    trim(b.prog);
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
