/* SPDX-License-Identifier: Apache-2.0 */
/* unlike_build.c - lists of stages of unlike ranks, built and simulated
 *
 * The programs of all ranks are simulated: what a rank sends to the next stage
 * differs from rank to rank.  A long step is simulated with few micro-batches
 * and with some more, whose difference is the time of each of the others; in
 * full where stages hold all of them.
 */
#include "config.h"

#include "partitioner/assembly/assembly.h"
#include "partitioner/program/offload.h"
#include "partitioner/program/recompute.h"
#include "partitioner/schedule/action_lists.h"
#include "partitioner/search/unlike.h"
#include "partitioner/simulate/simulate.h"

#include "base/error.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Instructions of all ranks up to which a step is simulated in full, and of all
 * lists whose bounds are moved. */
#define WHOLE 40000
#define MOST_CLIMBED 100000
#define MAX_ROUNDS 8

/* --- the plan --------------------------------------------------------------
 */

/* Bytes that tensor ranks replicate at the cut where most of it crosses. */
static double boundary_bytes(const struct merak_unlike_list *list)
{
    double most = 0;

    for (int s = 1; s < list->pp; s++) {
        const struct merak_segment *seg =
            &list->table[s]->segment[list->bound[s]];

        if (seg->up_part < seg->up_bytes)
            most = fmax(most, seg->up_bytes);
    }
    return most;
}

enum merak_status merak_unlike_plan(const struct merak_unlike *u,
                                    const struct merak_unlike_list *list,
                                    int *cut, struct merak_plan *plan,
                                    struct merak_error *err)
{
    const struct merak_search_input *in = u->s.in;
    enum merak_status rc;

    *plan = list->table[0]->plan;
    plan->micro_batch = list->samples;
    rc = merak_plan_set_stages(plan, list->stage, list->pp, err);
    if (rc != MERAK_OK)
        return rc;
    plan->microbatches = (int)(in->global_batch / list->samples);
    plan->zero = list->zero;
    plan->offload = in->pin.offload < MERAK_OFFLOAD_AUTO
                        ? in->pin.offload
                        : merak_offload_settled(in->pin.offload, false);
    plan->recompute = MERAK_RECOMPUTE_NONE;
    plan->dtype = in->dtype;
    plan->grad_dtype = in->pin.grad_dtype;
    plan->threads = in->threads;
    snprintf(plan->schedule, sizeof(plan->schedule), "%s",
             list->schedule->name);
    plan->chunks = merak_plan_chunks(plan);
    for (int s = 1; s < list->pp; s++)
        cut[s - 1] = list->bound[s] - 1;
    plan->cut = list->pp > 1 ? cut : NULL;
    plan->scatter = merak_boundary_choose(in->pin.boundary, &u->cost[0], plan,
                                          boundary_bytes(list));
    return MERAK_OK;
}

/* --- programs --------------------------------------------------------------
 */

static struct merak_program_options options_of(const struct merak_unlike *u,
                                               int kind)
{
    return (struct merak_program_options){.memory = u->s.in->memory,
                                          .cost = &u->cost[kind],
                                          .deadline = &u->s.trials.deadline};
}

/* What each stage drops, to fit on its kind of nodes. */
static enum merak_status choose_drops(struct merak_unlike *u,
                                      struct merak_unlike_list *list,
                                      struct merak_planned *p,
                                      struct merak_error *err)
{
    const struct merak_choices *pin = &u->s.in->pin;
    struct merak_plan plan = p->plan;
    enum merak_status rc = MERAK_OK;

    plan.recompute = pin->given[MERAK_CHOICE_RECOMPUTE] ? pin->recompute
                                                        : MERAK_RECOMPUTE_AUTO;
    for (int s = 0; s < list->pp && rc == MERAK_OK; s++) {
        const struct merak_program_options po = options_of(u, list->kind[s]);

        plan.memory_bytes = (size_t)u->limit[list->kind[s]];
        rc = merak_recompute_choose(p->sharded, &plan, s, &po, p->stages, err);
        list->drop[s] = merak_stages_of(p->stages, s)->drop[s];
    }
    return rc;
}

static enum merak_status build(struct merak_unlike *u,
                               const struct merak_unlike_list *list, bool all,
                               struct merak_planned *p, struct merak_error *err)
{
    struct merak_program_options of[MERAK_MAX_KINDS];

    for (int k = 0; k < u->n_kinds; k++)
        of[k] = options_of(u, k);
    return merak_planned_build(p, all ? MERAK_PLAN_ALL : MERAK_PLAN_STAGES, of,
                               list->kind, err);
}

enum merak_status merak_unlike_programs(struct merak_unlike *u,
                                        struct merak_unlike_list *list,
                                        int microbatches, bool all,
                                        struct merak_planned **planned_p,
                                        struct merak_error *err)
{
    const struct merak_search_input *in = u->s.in;
    const struct merak_program_options po = options_of(u, 0);
    struct merak_planned *p = NULL;
    int cut[MERAK_UNLIKE_STAGES];
    struct merak_plan plan;
    enum merak_status rc = merak_unlike_plan(u, list, cut, &plan, err);

    plan.microbatches = microbatches;
    if (rc == MERAK_OK)
        rc = merak_plan_build(&plan, in->seq, in->describe, in->arg,
                              MERAK_PLAN_NONE, &po, &p, err);
    if (rc == MERAK_OK)
        rc = choose_drops(u, list, p, err);
    if (rc == MERAK_OK)
        rc = build(u, list, all, p, err);
    if (rc != MERAK_OK) {
        merak_planned_destroy(p);
        return rc;
    }
    p->plan.cut = NULL; /* it was this function's */
    *planned_p = p;
    return MERAK_OK;
}

/* --- trying one ------------------------------------------------------------
 */

/* Instructions of all ranks together, about. */
static double effort_of(const struct merak_unlike *u,
                        const struct merak_unlike_list *list, int microbatches)
{
    return (double)list->table[0]->n_nodes / list->pp * u->s.tasks *
           microbatches;
}

static void take_memory(const struct merak_unlike *u,
                        const struct merak_planned *p,
                        struct merak_unlike_list *list)
{
    double most = 0;

    list->fits = true;
    for (int i = 0; i < p->n_programs; i++) {
        int stage = p->program[i]->stage;
        double bytes = merak_program_needs(p->program[i], &u->s.cost.host);
        double limit = u->limit[list->kind[stage]];

        list->fits = list->fits && bytes <= limit;
        if (bytes / limit < most)
            continue;
        most = bytes / limit;
        list->bytes = bytes;
        list->fullest = stage;
    }
}

static void take_end(const struct merak_program *p, const double *start,
                     const double *end, struct merak_unlike_list *list)
{
    double last = 0, sums = 0, update = 0;

    for (int i = 0; i < p->n_instrs; i++) {
        if (p->instr[i].kind == MERAK_INSTR_KERNEL &&
            p->instr[i].microbatch >= 0)
            last = fmax(last, end[i]);
    }
    for (int i = 0; i < p->n_instrs; i++) {
        const struct merak_instr *instr = &p->instr[i];

        if (instr->microbatch >= 0)
            continue;
        if (instr->kind == MERAK_INSTR_KERNEL && start[i] >= last)
            update += end[i] - start[i];
        if (instr->kind == MERAK_INSTR_EXCHANGE &&
            p->group[instr->group].axis == MERAK_ALONG_DP)
            sums = fmax(sums, end[i] - last);
    }
    list->sums_s[p->stage] = fmax(list->sums_s[p->stage], sums);
    list->update_s[p->stage] = fmax(list->update_s[p->stage], update);
}

static enum merak_status simulate(struct merak_unlike *u,
                                  struct merak_unlike_list *list,
                                  int microbatches, double *step_p,
                                  struct merak_error *err)
{
    struct merak_timeline *timeline = NULL;
    struct merak_planned *p = NULL;
    enum merak_status rc =
        merak_unlike_programs(u, list, microbatches, true, &p, err);

    if (rc == MERAK_OK)
        rc = merak_simulate(p->program, p->n_programs, NULL,
                            &u->s.trials.deadline, &timeline, err);
    if (rc == MERAK_OK) {
        *step_p = timeline->step_s;
        take_memory(u, p, list);
        memset(list->sums_s, 0, sizeof(list->sums_s));
        memset(list->update_s, 0, sizeof(list->update_s));
        for (int i = 0; i < p->n_programs; i++) {
            take_end(p->program[i], timeline->start[i], timeline->end[i], list);
            u->s.tally.instructions += p->program[i]->n_instrs;
        }
    }
    merak_timeline_destroy(timeline);
    merak_planned_destroy(p);
    return rc;
}

/* Do stages hold as many micro-batches of `some` as of all?  Else a step of
 * `some` takes less memory (gpipe). */
static bool holds_as_many(const struct merak_unlike_list *list,
                          const char *warmups, int some, int all)
{
    struct merak_schedule_args args = {.stages = list->pp,
                                       .microbatches = some,
                                       .chunks = 1,
                                       .warmups = warmups};
    struct merak_lists *a = merak_lists_create(list->schedule, &args), *b;
    bool same = a != NULL;

    args.microbatches = all;
    b = same ? merak_lists_create(list->schedule, &args) : NULL;
    for (int s = 0; s < list->pp && b != NULL; s++)
        same = same &&
               merak_lists_in_flight(a, s, 0) == merak_lists_in_flight(b, s, 0);
    same = same && b != NULL;
    merak_lists_destroy(a);
    merak_lists_destroy(b);
    return same;
}

enum merak_status merak_unlike_try(struct merak_unlike *u,
                                   struct merak_unlike_list *list)
{
    int all = (int)(u->s.in->global_batch / list->samples);
    int few = 2 * list->pp + 1, more = 3 * list->pp + 1;
    const char *want = u->s.in->pin.schedule;
    const char *warmups = want != NULL ? merak_schedule_warmups(want) : NULL;
    double step = 0, longer = 0;
    enum merak_status rc;

    merak_progress_note(u->s.in->progress, "building unlike stages %d",
                        u->s.n_simulated + 1);
    merak_progress_add(u->s.in->progress, 1);
    merak_search_limit_trial(&u->s);
    u->s.n_simulated++;
    list->fits = false;
    if (more >= all || effort_of(u, list, all) <= WHOLE ||
        !holds_as_many(list, warmups, more, all)) {
        u->s.effort.done += effort_of(u, list, all);
        rc = simulate(u, list, all, &step, &u->s.run_error);
    } else {
        u->s.effort.done += effort_of(u, list, few + more);
        rc = simulate(u, list, few, &step, &u->s.run_error);
        if (rc == MERAK_OK)
            rc = simulate(u, list, more, &longer, &u->s.run_error);
        step += (longer - step) / (more - few) * (all - few);
    }
    /* A lack of memory is that of a stage with everything recomputed. */
    list->step_s = rc == MERAK_OK ? step : DBL_MAX;
    return MERAK_OK;
}

bool merak_unlike_is_better(const struct merak_unlike_list *a,
                            const struct merak_unlike_list *b)
{
    if (a->fits != b->fits)
        return a->fits;
    return a->fits && a->step_s < b->step_s * (1 - 1e-9);
}

/* --- other bounds, other schedules -----------------------------------------
 */

static bool try_other(struct merak_unlike *u, struct merak_unlike_list *list,
                      struct merak_unlike_list *other)
{
    if (u->s.rc != MERAK_OK || u->s.effort.done > MOST_CLIMBED ||
        merak_search_is_over(&u->s))
        return false;
    u->s.rc = merak_unlike_try(u, other);
    if (u->s.rc != MERAK_OK || !merak_unlike_is_better(other, list))
        return false;
    *list = *other;
    return true;
}

static bool move(struct merak_unlike *u, struct merak_unlike_list *list, int s,
                 int by)
{
    struct merak_unlike_list other = *list;
    int most = s == list->pp - 1 ? u->last : u->segments;

    other.bound[s] += by;
    return other.bound[s] > other.bound[s - 1] &&
           other.bound[s] < other.bound[s + 1] && other.bound[s] <= most &&
           try_other(u, list, &other);
}

bool merak_unlike_has(const struct merak_schedule *schedule)
{
    return !schedule->forward_only && schedule->feeds == NULL &&
           !schedule->takes_slices && schedule->min_chunks <= 1 &&
           schedule->usual_chunks <= 1 && schedule->passes == 0;
}

static void try_schedules(struct merak_unlike *u,
                          struct merak_unlike_list *list)
{
    const struct merak_schedule *const *all = merak_schedules();
    const struct merak_schedule *first = list->schedule;

    for (int i = 0; all[i] != NULL && u->s.in->pin.schedule == NULL; i++) {
        struct merak_unlike_list other = *list;

        other.schedule = all[i];
        if (all[i] != first && merak_unlike_has(all[i]) &&
            all[i]->min_stages <= list->pp)
            try_other(u, list, &other);
    }
}

enum merak_status merak_unlike_climb(struct merak_unlike *u,
                                     struct merak_unlike_list *list)
{
    bool moved = true;

    u->s.effort.done = 0;
    try_schedules(u, list);
    for (int round = 0; moved && round < MAX_ROUNDS; round++) {
        moved = false;
        for (int s = 1; s < list->pp; s++) {
            for (int by = -1; by <= 1; by += 2)
                moved = move(u, list, s, by) || moved;
        }
    }
    return u->s.rc;
}
