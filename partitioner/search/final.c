/* SPDX-License-Identifier: Apache-2.0 */
/* final.c - finalists as programs: simulated, and reported on
 *
 * A program of hundreds of micro-batches repeats itself, so a long one is
 * built with as many as it takes to settle; the table's rating says what the
 * others add.  The arena does not depend on them, but where the schedule
 * holds more forwards with more micro-batches, and on the stage with the
 * loss (a number for each): those are built in full for a report.
 */
#include "config.h"

#include "partitioner/search/impl.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Instructions up to which a stage's program is built whole. */
#define WHOLE 20000

/* --- graphs --------------------------------------------------------------- */

struct merak_graphs {
    const struct merak_search_input *in;
    struct described {
        size_t micro_batch;
        struct merak_model *model;
    } * model;
    int n;
};

enum merak_status merak_graphs_create(const struct merak_search_input *in,
                                      struct merak_graphs **graphs_p,
                                      struct merak_error *err)
{
    struct merak_graphs *graphs = calloc(1, sizeof(*graphs));

    if (graphs == NULL)
        return merak_fail_nomem(err, sizeof(*graphs));
    graphs->in = in;
    *graphs_p = graphs;
    return MERAK_OK;
}

void merak_graphs_destroy(struct merak_graphs *graphs)
{
    if (graphs == NULL)
        return;
    for (int i = 0; i < graphs->n; i++)
        merak_model_destroy(graphs->model[i].model);
    free(graphs->model);
    free(graphs);
}

static enum merak_status describe(struct merak_graphs *graphs,
                                  size_t micro_batch, struct merak_error *err)
{
    const struct merak_model_options mo = {.micro_batch = micro_batch,
                                           .seq = graphs->in->seq,
                                           .dtype = graphs->in->dtype};
    size_t n = (size_t)graphs->n + 1;
    struct described *grown = realloc(graphs->model, n * sizeof(*grown));
    enum merak_status rc;

    if (grown == NULL)
        return merak_fail_nomem(err, n * sizeof(*grown));
    graphs->model = grown;
    grown[graphs->n].micro_batch = micro_batch;
    rc = merak_model_create(&mo, &grown[graphs->n].model, err);
    if (rc != MERAK_OK)
        return rc;
    graphs->in->describe(grown[graphs->n++].model, graphs->in->arg);
    return MERAK_OK;
}

enum merak_status merak_graphs_shard(struct merak_graphs *graphs, int tp,
                                     enum merak_seq_parallel sp,
                                     size_t micro_batch,
                                     struct merak_sharded **sharded_p,
                                     struct merak_error *err)
{
    /* As the trainer calls it: the program that runs is the one planned. */
    const struct merak_shard_options so = {.tp = tp, .sp = sp};
    struct merak_graph *graph;
    int at = 0;
    enum merak_status rc = MERAK_OK;

    while (at < graphs->n && graphs->model[at].micro_batch != micro_batch)
        at++;
    if (at == graphs->n)
        rc = describe(graphs, micro_batch, err);
    if (rc == MERAK_OK)
        rc = merak_model_graph(graphs->model[at].model, &graph, err);
    if (rc == MERAK_OK)
        rc = merak_shard(graph, &so, sharded_p, err);
    return rc;
}

/* --- programs of a candidate ---------------------------------------------- */

struct built {
    const struct merak_search_input *in;
    struct merak_program_options opt;
    struct merak_sharded *sharded;
    struct merak_stages *stages;
    struct merak_plan plan;
    struct merak_program **program; /* [pp] */
};

static void built_fini(struct built *b)
{
    for (int s = 0; b->program != NULL && s < b->plan.pp; s++)
        merak_program_destroy(b->program[s]);
    free(b->program);
    merak_stages_destroy(b->stages);
    merak_sharded_destroy(b->sharded);
}

static enum merak_status
built_init(struct built *b, const struct merak_search_input *in,
           const struct merak_cost_model *cost, struct merak_graphs *graphs,
           const struct merak_candidate *cand, struct merak_error *err)
{
    size_t pp = (size_t)cand->plan.pp;
    int *place;
    enum merak_status rc;

    *b = (struct built){.in = in, .plan = cand->plan};
    b->opt = (struct merak_program_options){
        .scratch = in->scratch, .scratch_arg = in->scratch_arg, .cost = cost};
    b->program = calloc(pp, sizeof(*b->program));
    place = calloc(pp, sizeof(*place));
    rc = place == NULL || b->program == NULL
             ? merak_fail_nomem(err, pp * sizeof(*place))
             : MERAK_OK;
    for (size_t s = 1; rc == MERAK_OK && s < pp; s++)
        place[s - 1] = cand->bound[s] - 1;
    if (rc == MERAK_OK)
        rc = merak_graphs_shard(graphs, cand->plan.tp, cand->plan.sp,
                                cand->plan.micro_batch, &b->sharded, err);
    if (rc == MERAK_OK)
        rc = merak_stages_at(b->sharded, place, (int)pp, &b->stages, err);
    free(place);
    return rc;
}

static enum merak_status build_stage(struct built *b, int stage,
                                     struct merak_error *err)
{
    return merak_program_build(b->sharded, b->stages, &b->plan,
                               merak_plan_rank(&b->plan, 0, 0, stage), &b->opt,
                               &b->program[stage], err);
}

/* Micro-batches to build it with: a few more than are in flight at once, if
 * that is settled, else a few more than there are stages. */
static enum merak_status enough(const struct merak_candidate *cand,
                                int *microbatches_p, struct merak_error *err)
{
    const struct merak_plan *p = &cand->plan;
    int all = p->microbatches, follow = merak_rate_settled(p->pp), most = 0;
    struct merak_lists *lists;

    follow = follow < all ? follow : all;
    lists = merak_lists_create(cand->schedule, p->pp, follow);
    if (lists == NULL)
        return merak_fail_nomem(err, (size_t)p->pp * sizeof(int));
    for (int s = 0; s < p->pp; s++) {
        int n = merak_lists_in_flight(lists, s);

        most = n > most ? n : most;
    }
    merak_lists_destroy(lists);
    if (most == follow)
        most = p->pp;
    *microbatches_p = all;
    if (all > most + 3 && (double)cand->table->n_nodes * all > WHOLE)
        *microbatches_p = most + 3;
    return MERAK_OK;
}

/* What the table says with so many micro-batches; *bytes_p of the stage that
 * takes most. */
static enum merak_status rate_with(const struct merak_cost_model *cost,
                                   const struct merak_candidate *cand,
                                   int microbatches, double *step_p,
                                   double *bytes_p, struct merak_error *err)
{
    struct merak_candidate less = *cand;
    struct merak_rater rater;
    enum merak_status rc;
    int stage;

    less.plan.microbatches = microbatches;
    rc = merak_rater_init(&rater, cost, &less, err);
    if (rc == MERAK_OK)
        *step_p = merak_rate(&rater, less.bound, NULL, bytes_p, &stage);
    merak_rater_fini(&rater);
    return rc;
}

static enum merak_status simulate(struct built *b,
                                  const struct merak_cost_model *cost,
                                  struct merak_candidate *cand,
                                  struct merak_error *err)
{
    struct merak_timeline *timeline = NULL;
    enum merak_status rc = MERAK_OK;

    for (int s = 0; s < b->plan.pp && rc == MERAK_OK; s++)
        rc = build_stage(b, s, err);
    if (rc == MERAK_OK)
        rc = merak_simulate(b->program, b->plan.pp, cost, &timeline, err);
    if (rc != MERAK_OK)
        return rc;
    cand->step_s = timeline->step_s;
    cand->arena = 0;
    for (int s = 0; s < b->plan.pp; s++) {
        double bytes = (double)b->program[s]->arena_bytes;

        if (bytes > cand->arena) {
            cand->arena = bytes;
            cand->stage = s;
        }
    }
    merak_timeline_destroy(timeline);
    return MERAK_OK;
}

enum merak_status merak_search_try(const struct merak_search_input *in,
                                   const struct merak_cost_model *cost,
                                   struct merak_graphs *graphs,
                                   struct merak_candidate *cand,
                                   struct merak_error *err)
{
    double step = 0, bytes = 0;
    struct built b;
    enum merak_status rc = built_init(&b, in, cost, graphs, cand, err);

    if (rc == MERAK_OK)
        rc = enough(cand, &b.plan.microbatches, err);
    if (rc == MERAK_OK)
        rc = simulate(&b, cost, cand, err);
    if (rc == MERAK_OK && b.plan.microbatches < cand->plan.microbatches) {
        rc = rate_with(cost, cand, b.plan.microbatches, &step, &bytes, err);
        cand->step_s += cand->rated_s - step;
        if (cand->bytes > bytes)
            cand->arena += cand->bytes - bytes;
    }
    built_fini(&b);
    return rc;
}

/* --- the report ----------------------------------------------------------- */

static void name_params(const struct merak_program *prog,
                        struct merak_search_stage *stage)
{
    const char *first = "-", *last = "-";

    if (prog->n_params > 0) {
        first = prog->param[0].name;
        last = prog->param[prog->n_params - 1].name;
    }
    snprintf(stage->first_param, sizeof(stage->first_param), "%s", first);
    snprintf(stage->last_param, sizeof(stage->last_param), "%s", last);
}

/* Bytes sent by level; a micro-batch's count as often as there are some. */
static void count_bytes(const struct merak_program *prog,
                        const struct merak_cost_model *cost, double repeat,
                        struct merak_search_stage *stage)
{
    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];
        double bytes = (double)in->bytes, far = 0;

        if (in->kind == MERAK_INSTR_EXCHANGE) {
            const struct merak_group *g = &prog->group[in->group];

            for (int k = 0; k < g->n; k++)
                far += !merak_cost_together(cost, prog->rank, g->rank[k]);
            far = g->n > 1 ? far / (g->n - 1) * bytes : 0;
        } else if (in->kind == MERAK_INSTR_SEND) {
            if (!merak_cost_together(cost, prog->rank, in->peer))
                far = bytes;
        } else {
            continue;
        }
        if (in->microbatch >= 0) {
            bytes *= repeat;
            far *= repeat;
        }
        stage->net_bytes += far;
        stage->link_bytes += bytes - far;
    }
}

static void fill_stage(const struct built *b,
                       const struct merak_candidate *cand,
                       const struct merak_cost_model *cost, int s,
                       struct merak_search_stage *stage)
{
    const struct merak_program *prog = b->program[s];
    struct merak_range range;

    merak_range_start(&range, cand->bound[s]);
    while (range.to < cand->bound[s + 1])
        merak_range_add(cand->table, &range);
    stage->first_segment = cand->bound[s];
    stage->n_segments = cand->bound[s + 1] - cand->bound[s];
    stage->params = b->stages->params[s];
    stage->flops = b->stages->flops[s];
    stage->forward_s = range.f_s;
    stage->backward_s = range.b_s;
    stage->arena_bytes = prog->arena_bytes;
    memcpy(stage->category_bytes, prog->category_bytes,
           sizeof(stage->category_bytes));
    name_params(prog, stage);
    count_bytes(prog, cost,
                (double)cand->plan.microbatches / prog->plan.microbatches,
                stage);
}

/* The program that tells a stage's arena: of few micro-batches if more do not
 * change it.  Slots are used in turn by as many micro-batches as are in
 * flight, and packing sees whose turn is last: few and all must leave the
 * same remainder. */
static enum merak_status
report_stage(struct built *b, const struct merak_cost_model *cost,
             const struct merak_candidate *cand, int few, int s,
             struct merak_search_stage *stage, struct merak_error *err)
{
    int all = cand->plan.microbatches;
    enum merak_status rc;

    b->plan.microbatches = all;
    if (stage->in_flight < few)
        b->plan.microbatches = few + (all - few) % stage->in_flight;
    rc = build_stage(b, s, err);
    if (rc == MERAK_OK && b->program[s]->loss >= 0 &&
        b->plan.microbatches < all) {
        merak_program_destroy(b->program[s]);
        b->program[s] = NULL;
        b->plan.microbatches = all;
        rc = build_stage(b, s, err);
    }
    if (rc != MERAK_OK)
        return rc;
    fill_stage(b, cand, cost, s, stage);
    merak_program_destroy(b->program[s]); /* one at a time */
    b->program[s] = NULL;
    return MERAK_OK;
}

enum merak_status merak_search_report(const struct merak_search_input *in,
                                      const struct merak_cost_model *cost,
                                      struct merak_graphs *graphs,
                                      const struct merak_candidate *cand,
                                      struct merak_search_result *result,
                                      struct merak_error *err)
{
    const struct merak_plan *p = &cand->plan;
    struct merak_lists *lists =
        merak_lists_create(cand->schedule, p->pp, p->microbatches);
    struct built b;
    int few = p->microbatches;
    enum merak_status rc = built_init(&b, in, cost, graphs, cand, err);

    if (rc == MERAK_OK && lists == NULL)
        rc = merak_fail_nomem(err, (size_t)p->pp * sizeof(int));
    if (rc == MERAK_OK)
        rc = enough(cand, &few, err);
    for (int s = 0; s < p->pp && rc == MERAK_OK; s++) {
        struct merak_search_stage *stage = &result->stage[s];

        stage->in_flight = merak_lists_in_flight(lists, s);
        rc = report_stage(&b, cost, cand, few, s, stage, err);
        result->flops_per_step += stage->flops * p->microbatches * p->dp;
    }
    merak_lists_destroy(lists);
    built_fini(&b);
    return rc;
}
