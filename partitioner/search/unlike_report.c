/* SPDX-License-Identifier: Apache-2.0 */
/* unlike_report.c - the result of a search that chose unlike stages */
#include "config.h"

#include "partitioner/assembly/assembly.h"
#include "partitioner/search/finalist.h"
#include "partitioner/search/unlike.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the plan's lists ------------------------------------------------------
 */

static void *keep(struct merak_unlike *u, const void *what, size_t bytes)
{
    void *kept = merak_pool_alloc(u->s.pool, bytes);

    if (kept == NULL)
        u->s.rc = merak_fail_nomem(u->s.err, bytes);
    else
        memcpy(kept, what, bytes);
    return kept;
}

/* The plan, with lists that live as long as the result. */
static enum merak_status keep_plan(struct merak_unlike *u,
                                   const struct merak_unlike_list *list,
                                   struct merak_plan *plan)
{
    size_t n = (size_t)list->pp;
    int cut[MERAK_UNLIKE_STAGES] = {0};
    enum merak_status rc = merak_unlike_plan(u, list, cut, plan, u->s.err);

    if (rc != MERAK_OK)
        return rc;
    plan->recompute = merak_drops_any(list->drop, list->pp)
                          ? MERAK_RECOMPUTE_AUTO
                          : MERAK_RECOMPUTE_NONE;
    plan->cut = keep(u, cut, n * sizeof(*cut));
    plan->drop = keep(u, list->drop, n * sizeof(*list->drop));
    if (plan->stage != NULL)
        plan->stage = keep(u, list->stage, n * sizeof(*list->stage));
    return u->s.rc;
}

/* --- stages ----------------------------------------------------------------
 */

/* What the table says of a stage. */
static void fill_times(const struct merak_unlike_list *list, int s,
                       struct merak_search_stage *stage)
{
    const struct merak_segment *segment = list->table[s]->segment;

    stage->first_segment = list->bound[s];
    stage->n_segments = list->bound[s + 1] - list->bound[s];
    for (int i = list->bound[s]; i < list->bound[s + 1]; i++) {
        stage->forward_s += segment[i].f_s;
        stage->backward_s += segment[i].b_s;
        if (list->drop[s].attention)
            stage->recompute_s +=
                segment[i].recompute_s[MERAK_KEEP_NO_ATTENTION];
    }
    for (int i = list->bound[s], block = 0; i < list->bound[s + 1]; i++) {
        block += i > list->bound[s] && segment[i].begins_block;
        if (block < list->drop[s].blocks)
            stage->recompute_s += segment[i].recompute_s[MERAK_KEEP_LEAST];
    }
}

static enum merak_status fill_stage(struct merak_unlike *u,
                                    const struct merak_unlike_list *list,
                                    const struct merak_planned *p, int s,
                                    struct merak_search_result *r)
{
    const struct merak_stages *stages = merak_stages_of(p->stages, s);
    struct merak_search_stage *stage = &r->stage[s];

    fill_times(list, s, stage);
    stage->kind = list->kind[s];
    stage->limit_bytes = (size_t)u->limit[list->kind[s]];
    merak_search_stage_drops(&list->table[0]->plan, &list->drop[s], stage);
    stage->n_blocks = stages->n_blocks[s];
    stage->params = stages->params[s];
    stage->flops = stages->flops[s];
    r->flops_per_step +=
        stage->flops * p->plan.microbatches * list->stage[s].dp;
    merak_search_stage_fill(p->program[s], stage);
    return merak_search_stage_sent(p->program[s], &u->cost[list->kind[s]], 1,
                                   stage, u->s.err);
}

static double work_of(const struct merak_search_stage *stage)
{
    return stage->forward_s + stage->backward_s + stage->recompute_s;
}

/* What the step is spent on, for the stage with the most work. */
static void fill_parts(const struct merak_unlike_list *list,
                       struct merak_search_result *r)
{
    const struct merak_search_stage *stage = &r->stage[r->busiest];
    struct merak_search_choice *c = &r->choice[0];
    double kernels = 0, left = c->step_s, m = c->plan.microbatches;

    for (int i = list->bound[r->busiest]; i < list->bound[r->busiest + 1]; i++)
        kernels += list->table[r->busiest]->segment[i].kernel_s;
    kernels = fmin(kernels, stage->forward_s + stage->backward_s);
    c->part_s[MERAK_PART_COMPUTE] = m * kernels;
    c->part_s[MERAK_PART_RECOMPUTE] = m * stage->recompute_s;
    c->part_s[MERAK_PART_TP] =
        m * (stage->forward_s + stage->backward_s - kernels);
    c->part_s[MERAK_PART_DP] = list->sums_s[r->busiest];
    c->part_s[MERAK_PART_OPTIMIZER] = list->update_s[r->busiest];
    for (int i = 0; i < MERAK_PART_COUNT; i++)
        left -= c->part_s[i];
    c->part_s[MERAK_PART_BUBBLE] = fmax(left, 0);
    /* Where kernels take less than the table's mean of them. */
    for (int i = 0; i < MERAK_PART_COUNT && left < 0; i++)
        c->part_s[i] *= c->step_s / (c->step_s - left);
}

/* --- together --------------------------------------------------------------
 */

static enum merak_status fill(struct merak_unlike *u,
                              struct merak_unlike_list *list,
                              struct merak_search_result *r)
{
    struct merak_search_choice *c = &r->choice[0];
    struct merak_planned *p = NULL;
    enum merak_status rc = keep_plan(u, list, &c->plan);

    c->step_s = list->step_s;
    c->simulated = c->fits = true;
    c->memory_bytes = (size_t)list->bytes;
    c->memory_stage = list->fullest;
    c->cuts = list->table[0]->cuts;
    r->n_choices = 1;
    if (rc == MERAK_OK)
        rc = merak_unlike_programs(u, list, c->plan.microbatches, false, &p,
                                   u->s.err);
    for (int s = 0; s < list->pp && rc == MERAK_OK; s++) {
        rc = fill_stage(u, list, p, s, r);
        if (work_of(&r->stage[s]) > work_of(&r->stage[r->busiest]))
            r->busiest = s;
    }
    if (rc == MERAK_OK)
        rc = merak_search_count_in_flight(list->schedule, &c->plan, r->stage,
                                          u->s.err);
    merak_planned_destroy(p);
    fill_parts(list, r);
    return rc;
}

/* The plans of equal stages become runners-up. */
static void take_runners(const struct merak_search_result *equal,
                         struct merak_search_result *r)
{
    for (int i = 0; i < equal->n_choices && r->n_choices < MERAK_SEARCH_CHOICES;
         i++) {
        struct merak_search_choice *c = &r->choice[r->n_choices++];

        *c = equal->choice[i];
        c->plan.cut = NULL;
        c->plan.drop = NULL;
        if (c->fits)
            merak_search_explain_time(&r->choice[0], c);
    }
    r->n_rated += equal->n_rated;
    r->n_simulated += equal->n_simulated;
    r->cut_short = r->cut_short || equal->cut_short;
    r->took_s += equal->took_s;
}

/* What no plan takes less than, and how much of their FLOP/s the ranks use, if
 * every kind of them has its share. */
static void set_bounds(struct merak_unlike *u, struct merak_search_result *r)
{
    const struct merak_search_input *asked = u->s.in;
    struct merak_search_input in = *asked;
    double rate = 0, flops = 0;
    int tasks = u->s.tasks;

    u->s.in = &in;
    for (int k = 0; k < u->n_kinds; k++) {
        double least_s;

        if (asked->n_kinds > 0)
            in.device = asked->kind[k].device;
        u->s.cost = u->cost[k];
        u->s.tasks = u->ranks[k];
        merak_search_set_utilisation(&u->s, r);
        flops += r->flops_per_step / r->flop_utilisation;
        least_s = merak_search_least_step(&u->s);
        rate += least_s > 0 ? 1 / least_s : INFINITY;
    }
    r->least_s = isfinite(rate) && rate > 0 ? 1 / rate : 0;
    r->bound_s = r->least_s;
    r->flop_utilisation = r->flops_per_step / flops;
    u->s.in = asked;
    u->s.tasks = tasks;
}

enum merak_status merak_unlike_report(struct merak_unlike *u,
                                      struct merak_unlike_list *list,
                                      struct merak_search_result **result_p,
                                      struct merak_error *err)
{
    struct merak_search_result *r = calloc(1, sizeof(*r));
    enum merak_status rc;

    u->s.err = err;
    u->s.trials.deadline = (struct merak_deadline){.at_ns = INT64_MAX};
    if (r == NULL)
        return merak_fail_nomem(err, sizeof(*r));
    r->stage = calloc((size_t)list->pp, sizeof(*r->stage));
    rc = r->stage == NULL ? merak_fail_nomem(err, sizeof(*r->stage))
                          : fill(u, list, r);
    if (rc != MERAK_OK) {
        merak_search_destroy(r);
        return rc;
    }
    r->params = (size_t)list->table[0]->n_elements;
    set_bounds(u, r);
    r->memory_limit = (size_t)u->limit[list->kind[list->fullest]];
    r->n_rated = u->s.n_rated;
    r->n_simulated = u->s.n_simulated;
    r->cut_short = u->s.cut_short;
    r->took_s = merak_search_seconds(&u->s);
    r->tally = u->s.tally;
    merak_graphs_count(u->s.graphs, &r->tally);
    r->pool = u->s.pool; /* holds the lists */
    u->s.pool = NULL;
    if (*result_p != NULL)
        take_runners(*result_p, r);
    merak_search_destroy(*result_p);
    *result_p = r;
    return MERAK_OK;
}
