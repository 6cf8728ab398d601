/* SPDX-License-Identifier: Apache-2.0 */
/* finalist.c - building and simulating the programs of finalists
 *
 * A program of hundreds of micro-batches repeats itself, so a long one is
 * built with only as many as it takes to settle, and the time of the others is
 * estimated from the table.  The arena does not depend on them, except where
 * the schedule holds more forwards with more micro-batches, and on the stage
 * with the loss (a number for each): those are built in full for a report.
 */
#include "config.h"

#include "partitioner/program/offload.h"
#include "partitioner/program/recompute.h"
#include "partitioner/program/streams.h"
#include "partitioner/search/finalist.h"
#include "partitioner/search/need.h"
#include "partitioner/search/node_orders.h"
#include "partitioner/simulate/check_streams.h"
#include "partitioner/simulate/fetches.h"
#include "partitioner/simulate/simulate.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Instructions up to which a stage's program is built in full. */
#define WHOLE 20000

/* --- programs of a candidate ---------------------------------------------- */

void merak_built_fini(struct merak_built *b)
{
    for (int s = 0; b->program != NULL && s < b->plan.pp; s++)
        merak_program_destroy(b->program[s]);
    free(b->program);
    merak_stages_destroy(b->stages);
    merak_sharded_destroy(b->own);
}

enum merak_status merak_built_init(struct merak_built *b,
                                   const struct merak_search *s,
                                   const struct merak_candidate *cand,
                                   const struct merak_deadline *deadline,
                                   struct merak_error *err)
{
    size_t pp = (size_t)cand->plan.pp;
    size_t parts = (size_t)merak_plan_parts(&cand->plan);
    const struct merak_assembly_options ao = {.program = &b->opt};
    struct merak_graph *graph = NULL;
    int *place;
    enum merak_status rc;

    *b = (struct merak_built){
        .search = s,
        .schedule = cand->schedule,
        .plan = cand->plan,
        .limit = merak_search_limit(s, cand)};
    b->opt = (struct merak_program_options){.direct = s->in->direct,
                                            .memory = s->in->memory,
                                            .cost = &s->cost,
                                            .deadline = deadline};
    b->program = calloc(pp, sizeof(*b->program));
    place = calloc(parts, sizeof(*place));
    rc = place == NULL || b->program == NULL
             ? merak_fail_nomem(err, parts * sizeof(*place))
             : MERAK_OK;
    for (size_t p = 1; rc == MERAK_OK && p < parts; p++)
        place[p - 1] = cand->bound[p] - 1;
    if (rc == MERAK_OK)
        rc = merak_graphs_shard(s->graphs, &cand->plan, deadline, &b->sharded,
                                err);
    if (rc == MERAK_OK && merak_lossy_any(&cand->plan.lossy))
        rc = merak_graphs_describe(s->graphs, &cand->plan, &graph, err);
    if (rc == MERAK_OK) {
        struct merak_assembly assembly = {.plan = cand->plan,
                                          .sharded = b->sharded,
                                          .deadline = deadline};

        assembly.plan.cut = place;
        rc = merak_assemble(&assembly, graph, &ao, MERAK_ASSEMBLY_CUT, err);
        b->stages = assembly.stages;
        b->own = assembly.own;
        b->sharded = assembly.sharded;
        b->plan.lossy = assembly.plan.lossy;
        merak_graph_destroy(assembly.packed);
    }
    if (rc == MERAK_OK)
        memcpy(b->stages->drop, cand->drop, parts * sizeof(*cand->drop));
    free(place);
    return rc;
}

enum merak_status merak_built_stage(struct merak_built *b, int stage,
                                    struct merak_error *err)
{
    merak_program_destroy(b->program[stage]);
    b->program[stage] = NULL;
    merak_progress_add(b->search->in->progress, 0); /* shows the line */
    return merak_program_build(b->sharded, b->stages, &b->plan,
                               merak_plan_rank(&b->plan, 0, 0, stage), &b->opt,
                               &b->program[stage], err);
}

enum merak_status merak_built_enough(const struct merak_candidate *cand,
                                     int *microbatches_p,
                                     struct merak_error *err)
{
    const struct merak_plan *p = &cand->plan;
    int slices = merak_plan_slices(p), all = merak_plan_units(p) / slices;
    int width = p->sub_pipeline ? 2 : 1, most = 0;
    int follow = merak_lists_settled(p, all * slices);
    int chunks = merak_plan_chunks(p), round;
    struct merak_lists *lists = merak_plan_lists(cand->schedule, p, follow);

    if (lists == NULL)
        return merak_fail_nomem(err, (size_t)p->pp * sizeof(int));
    for (int i = 0; i < p->pp * chunks; i++) {
        if (lists->in_flight[i] > most)
            most = lists->in_flight[i];
    }
    merak_lists_destroy(lists);
    if (most == follow / slices)
        most = p->pp;
    most += (merak_plan_passes(p) - 1) * p->pp; /* on their way to the last */
    /* Chunks take turns in rounds of pp, slots in rounds of what is in flight:
     * of slices that is far less. */
    round = slices > 1 ? most : p->pp;
    *microbatches_p = width * all;
    if (all > most + 3 && (double)cand->table->n_nodes * slices * all > WHOLE)
        *microbatches_p = width * (most + 3 + (all - most - 3) % round);
    return MERAK_OK;
}

/* Rate the candidate's cut and drops with another number of micro-batches;
 * *bytes_p is that of the stage that takes most. */
static enum merak_status rate_with(const struct merak_cost_model *cost,
                                   const struct merak_candidate *cand,
                                   int microbatches, double *step_p,
                                   double *part_s, double *bytes_p,
                                   struct merak_error *err)
{
    size_t parts = (size_t)merak_plan_parts(&cand->plan);
    struct merak_candidate less = *cand;
    struct merak_rater rater;
    enum merak_status rc;
    int stage;

    less.plan.microbatches = microbatches;
    rc = merak_rater_init(&rater, cost, &less, 0, err);
    if (rc == MERAK_OK) {
        rater.fixed = true;
        memcpy(rater.drop, cand->drop, parts * sizeof(*cand->drop));
        *step_p = merak_rate(&rater, less.bound, part_s, bytes_p, &stage);
    }
    merak_rater_fini(&rater);
    return rc;
}

/* Is what stages drop to be chosen? */
static bool chooses_drops(const struct merak_built *b)
{
    return b->plan.recompute == MERAK_RECOMPUTE_AUTO &&
           b->search->in->pin.list.drop == NULL;
}

/* Memory of stages by the table, with the few micro-batches of the programs and
 * with all: under GPipe all are in flight. */
struct by_table {
    bool rated;
    struct merak_rater few, all;
    struct merak_candidate less; /* with few micro-batches */
};

static enum merak_status by_table_init(struct by_table *t,
                                       const struct merak_candidate *cand,
                                       const struct merak_built *b,
                                       struct merak_error *err)
{
    const struct merak_cost_model *cost = &b->search->cost;
    enum merak_status rc;

    *t = (struct by_table){.less = *cand};
    if (!chooses_drops(b))
        return MERAK_OK;
    t->less.plan.microbatches = b->plan.microbatches;
    rc = merak_rater_init(&t->all, cost, cand, 0, err);
    if (rc == MERAK_OK)
        rc = merak_rater_init(&t->few, cost, &t->less, 0, err);
    if (rc != MERAK_OK)
        return rc;
    t->rated = true;
    merak_rate(&t->all, cand->bound, NULL, NULL, NULL);
    merak_rate(&t->few, cand->bound, NULL, NULL, NULL);
    return MERAK_OK;
}

static void by_table_fini(struct by_table *t)
{
    merak_rater_fini(&t->all);
    merak_rater_fini(&t->few);
}

/* What a stage takes with all micro-batches: its program's arena, and what the
 * table has more for all of them. */
static double stage_bytes(struct by_table *t, const struct merak_built *b,
                          int stage)
{
    double bytes =
        merak_program_needs(b->program[stage], &b->search->cost.host);

    if (t->rated && t->less.plan.microbatches != t->all.plan->microbatches)
        bytes += merak_stage_need(&t->all, stage, b->stages->drop) -
                 merak_stage_need(&t->few, stage, b->stages->drop);
    return bytes;
}

/* --- what stages drop ----------------------------------------------------- */

/* The search for the least that a stage has to drop. */
struct settling {
    struct merak_built *b;
    struct by_table *table;
    int stage, blocks; /* blocks: total of the stage */
    bool again; /* all that is dropped is recomputed, if that is sought */
    double off;        /* bytes of the latest program less the table's */
    struct merak_program *program; /* the latest that fits, or NULL */
    struct merak_drop as;          /* what it drops */
    struct merak_error *err;
    enum merak_status rc;
};

static void set_drop(struct settling *t, struct merak_drop drop)
{
    struct merak_built *b = t->b;

    merak_recompute_set(b->stages, b->schedule, &b->plan, t->stage, drop);
    if (merak_plan_seeks_acts(&b->plan))
        merak_stage_find_again(&t->table->all, t->stage, t->again,
                               b->stages->drop);
}

/* Build the stage with these drops; does it fit? */
static bool fits(struct settling *t, bool attention, int blocks)
{
    const struct merak_drop drop = {.attention = attention, .blocks = blocks};
    struct merak_built *b = t->b;
    double bytes;

    if (t->rc != MERAK_OK)
        return true;
    set_drop(t, drop);
    t->rc = merak_built_stage(b, t->stage, t->err);
    if (t->rc != MERAK_OK)
        return true;
    bytes = stage_bytes(t->table, b, t->stage);
    t->off =
        bytes - merak_stage_need(&t->table->all, t->stage, b->stages->drop);
    if (bytes > b->limit)
        return false;
    merak_program_destroy(t->program);
    t->program = b->program[t->stage];
    t->as = drop;
    b->program[t->stage] = NULL;
    return true;
}

/* Leave the stage with these drops, and their program. */
static void leave(struct settling *t, struct merak_drop drop)
{
    bool is_built = t->program != NULL && t->as.attention == drop.attention &&
                    t->as.blocks == drop.blocks;

    if (t->rc != MERAK_OK)
        return;
    set_drop(t, drop);
    if (!is_built) { /* all blocks, which need not fit */
        t->rc = merak_built_stage(t->b, t->stage, t->err);
        return;
    }
    merak_program_destroy(t->b->program[t->stage]);
    t->b->program[t->stage] = t->program;
    t->program = NULL;
}

/* Would it fit in so many times the limit? */
static bool would_fit(struct settling *t, int blocks, double times)
{
    struct merak_built *b = t->b;

    set_drop(t, (struct merak_drop){.blocks = blocks});
    return merak_stage_need(&t->table->all, t->stage, b->stages->drop) +
               t->off <=
           b->limit * times;
}

/* Fewest blocks between lo and hi that would fit if the table were always as
 * far off as it was for the latest program. */
static int expected(struct settling *t, int lo, int hi)
{
    int blocks = lo + 1;

    while (blocks < hi - 1 && !would_fit(t, blocks, 1))
        blocks++;
    return blocks;
}

/* Find the fewest blocks; dropping lo does not fit, hi does or is all.  The
 * first that is built is what is expected, and then those beside it, unless one
 * block less needs more than the table may be off by. */
static void narrow(struct settling *t, int lo, int hi)
{
    int at = expected(t, lo, hi), by = 1;

    for (; hi - lo > 1 && t->rc == MERAK_OK; by *= 2) {
        if (at == hi - 1 && !would_fit(t, at, MERAK_SEARCH_SLACK))
            break;
        if (fits(t, false, at)) {
            hi = at;
            at -= by;
        } else {
            lo = at;
            at += by;
        }
        if (at <= lo || at >= hi)
            at = lo + (hi - lo) / 2;
    }
    leave(t, (struct merak_drop){.blocks = hi});
}

/* From the drops that the table estimates, find the least that fits. */
static void settle(struct settling *t, struct merak_drop drop)
{
    if (!fits(t, drop.attention, drop.blocks))
        narrow(t, drop.attention ? 0 : drop.blocks, t->blocks);
    else if (!drop.attention)
        narrow(t, -1, drop.blocks);
    else if (fits(t, false, 0))
        leave(t, (struct merak_drop){.blocks = 0});
    else
        leave(t, drop);
}

static enum merak_status settle_stage(struct merak_built *b,
                                      struct by_table *table, int stage,
                                      struct merak_error *err)
{
    struct settling t = {.b = b, .table = table, .stage = stage, .err = err};
    struct merak_drop drop = {0};
    int again = 0;

    if (!table->rated || !merak_plan_recomputes(b->schedule, &b->plan, stage))
        return merak_built_stage(b, stage, err);
    for (int c = 0; c < merak_plan_chunks(&b->plan); c++) {
        int part = merak_plan_part(b->schedule, &b->plan, stage, c);
        const struct merak_drop *of = &b->stages->drop[part];

        t.blocks += b->stages->n_blocks[part];
        drop.attention = of->attention;
        drop.blocks += of->blocks;
        again += of->again;
    }
    t.again = again >= (drop.attention ? 1 : drop.blocks);
    settle(&t, drop);
    merak_program_destroy(t.program);
    return t.rc;
}

/* --- trying one ----------------------------------------------------------- */

/* Check that training and evaluation do not deadlock in a device's queues. */
static enum merak_status prove_direct(struct merak_built *b,
                                      struct merak_error *err)
{
    struct merak_program_options eval = b->opt;
    enum merak_status rc =
        merak_program_check_streams(b->program, b->plan.pp, err);

    eval.forward_only = true;
    if (rc == MERAK_OK)
        rc = merak_stages_prove_streams(b->sharded, b->stages, &b->plan, &eval,
                                        err);
    if (rc == MERAK_ERR_CORRUPT)
        merak_error_wrap(err, MERAK_PLAN_NOT_DIRECT, b->plan.schedule);
    return rc;
}

/* Settle all stages, the one first that takes most by the table.  *left_p: the
 * others are left out, since one does not fit. */
static enum merak_status settle_stages(struct merak_built *b,
                                       struct by_table *table,
                                       struct merak_candidate *cand,
                                       bool *left_p, struct merak_error *err)
{
    const struct merak_search *search = b->search;
    int pp = b->plan.pp, first = cand->stage;

    for (int i = 0; i < pp; i++) {
        int s = (first + i) % pp;
        enum merak_status rc = settle_stage(b, table, s, err);
        double bytes;

        if (rc != MERAK_OK)
            return rc;
        bytes = stage_bytes(table, b, s);
        if (search->trials.leaves && bytes > b->limit) {
            cand->arena = bytes;
            cand->stage = s;
            *left_p = true;
            return MERAK_OK;
        }
        if (merak_deadline_is_past(&search->trials.deadline))
            return MERAK_ERR_TIMEOUT;
    }
    return MERAK_OK;
}

static enum merak_status simulate(struct merak_built *b,
                                  struct merak_candidate *cand,
                                  struct merak_error *err)
{
    struct merak_timeline *timeline = NULL;
    struct by_table table;
    bool left = false;
    enum merak_status rc = by_table_init(&table, cand, b, err);

    if (rc == MERAK_OK)
        rc = settle_stages(b, &table, cand, &left, err);
    by_table_fini(&table);
    if (left)
        return rc;
    if (rc == MERAK_OK)
        rc = merak_simulate(b->program, b->plan.pp, &b->search->cost,
                            &b->search->trials.deadline, &timeline, err);
    if (rc != MERAK_OK) {
        merak_timeline_destroy(timeline);
        return rc;
    }
    memcpy(cand->drop, b->stages->drop,
           (size_t)merak_plan_parts(&b->plan) * sizeof(*cand->drop));
    for (int s = 0; s < b->plan.pp && cand->tally != NULL; s++)
        cand->tally->instructions += b->program[s]->n_instrs;
    cand->step_s = timeline->step_s;
    cand->fetch_s = merak_fetches_exposed(b->program, timeline);
    cand->offload_s = merak_offload_exposed(b->program, timeline);
    cand->arena = cand->comms_bytes = 0;
    for (int s = 0; s < b->plan.pp; s++) {
        double bytes =
            merak_program_needs(b->program[s], &b->search->cost.host);

        if (b->opt.direct)
            cand->comms_bytes =
                fmax(cand->comms_bytes,
                     merak_comms_bytes(merak_program_comms(b->program[s]),
                                       &b->search->in->comms));

        if (bytes > cand->arena) {
            cand->arena = bytes;
            cand->stage = s;
        }
    }
    merak_timeline_destroy(timeline);
    return MERAK_OK;
}

enum merak_status merak_search_try(const struct merak_search *s,
                                   struct merak_candidate *cand,
                                   struct merak_error *err)
{
    double step = 0, bytes = 0;
    struct merak_built b;
    enum merak_status rc =
        merak_built_init(&b, s, cand, &s->trials.deadline, err);

    if (rc == MERAK_OK) {
        cand->plan.lossy = b.plan.lossy; /* found now, if it is auto */
        rc = merak_built_enough(cand, &b.plan.microbatches, err);
    }
    if (rc == MERAK_OK)
        rc = simulate(&b, cand, err);
    if (rc == MERAK_OK && cand->step_s > 0)
        rc = rate_with(&s->cost, cand, cand->plan.microbatches, &cand->rated_s,
                       cand->part_s, &cand->bytes, err);
    if (rc == MERAK_OK && cand->step_s > 0 &&
        b.plan.microbatches < cand->plan.microbatches) {
        rc = rate_with(&s->cost, cand, b.plan.microbatches, &step, NULL, &bytes,
                       err);
        cand->step_s += cand->rated_s - step;
        cand->fetch_s *= (double)cand->plan.microbatches / b.plan.microbatches;
        if (cand->bytes > bytes)
            cand->arena += cand->bytes - bytes;
    }
    /* What does not fit is no plan, whether it would end or not; nor is what
     * only seconds are asked of. */
    if (rc == MERAK_OK && b.opt.direct && cand->step_s > 0 &&
        cand->arena <= merak_search_limit(s, cand) && s->in->most_s == 0)
        rc = prove_direct(&b, err);
    merak_built_fini(&b);
    return rc;
}
