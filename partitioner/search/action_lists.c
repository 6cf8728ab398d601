/* SPDX-License-Identifier: Apache-2.0 */
/* action_lists.c - the actions of all stages of a schedule */
#include "config.h"

#include "partitioner/search/actions.h"

#include <stdlib.h>

int merak_plan_slices(const struct merak_plan *plan)
{
    int slices = merak_schedule_slices(plan->schedule);

    return slices > 1 ? slices : 1;
}

int merak_plan_units(const struct merak_plan *plan)
{
    return plan->microbatches / (plan->sub_pipeline ? 2 : 1) *
           merak_plan_slices(plan);
}

int merak_plan_passes(const struct merak_plan *plan)
{
    return plan->passes > 0 ? plan->passes : 1;
}

int merak_lists_settled(const struct merak_plan *plan, int units)
{
    int stages = plan->pp, slices = merak_plan_slices(plan);
    int least = (merak_plan_passes(plan) + 2) * stages + 4;
    int all = units / slices; /* micro-batches or pairs */

    if (stages < 2 || all < least + stages)
        return units;
    return slices * (least + (all - least) % stages);
}

/* Which actions do the recomputation: an R, or B where there is none. */
static void mark_again(struct merak_lists *lists, int stage, bool *has)
{
    struct merak_step_action *a =
        &lists->action[(size_t)stage * (size_t)lists->room];

    for (int i = 0; i < lists->chunks * lists->units; i++)
        has[i] = false;
    for (int i = 0; i < lists->n[stage]; i++) {
        bool *mine = &has[a[i].chunk * lists->units + a[i].unit];

        if (a[i].kind == MERAK_ACT_R)
            *mine = lists->early[stage] = true;
        a[i].recompute =
            a[i].kind == MERAK_ACT_R || (a[i].kind == MERAK_ACT_B && !*mine);
    }
}

/* Micro-batches that each chunk holds at once, or pairs.  Of slices,
 * backwards come in descending order. */
static void find_in_flight(const struct merak_lists *lists,
                           const struct merak_action *actions, int n, int *open,
                           int *most)
{
    if (lists->slices == 1) {
        merak_actions_in_flight_each(actions, n, lists->chunks, open, most);
        return;
    }
    for (int c = 0; c < lists->chunks; c++)
        open[c] = most[c] = 0;
    for (int i = 0; i < n; i++) {
        int c = actions[i].chunk;

        if (actions[i].slice > 0)
            continue;
        open[c] += actions[i].kind == MERAK_ACT_F;
        most[c] = open[c] > most[c] ? open[c] : most[c];
        open[c] -= actions[i].kind == MERAK_ACT_B;
    }
}

static void fill_stage(struct merak_lists *lists,
                       const struct merak_schedule_args *args,
                       struct merak_action *actions, int *open)
{
    int s = args->stage, n = merak_schedule_count(lists->schedule, args);
    struct merak_step_action *to =
        &lists->action[(size_t)s * (size_t)lists->room];

    merak_schedule_fill(lists->schedule, args, actions);
    lists->n[s] = n;
    lists->recomputes[s] = merak_schedule_recomputes(lists->schedule, args);
    for (int i = 0; i < n; i++)
        to[i] = (struct merak_step_action){
            .kind = actions[i].kind,
            .chunk = actions[i].chunk,
            .unit = actions[i].microbatch * lists->slices + actions[i].slice,
            .pass = actions[i].pass};
    for (int c = 0; c < lists->chunks; c++) {
        int part = merak_schedule_part(lists->schedule, args, c);

        lists->part[s * lists->chunks + c] = part;
        lists->stage_of[part] = part < lists->chain ? s : -1;
    }
    find_in_flight(lists, actions, n, open,
                   &lists->in_flight[s * lists->chunks]);
}

static bool fill_lists(struct merak_lists *lists,
                       struct merak_schedule_args *args)
{
    size_t cells = (size_t)lists->chunks * (size_t)lists->units;
    struct merak_action *actions =
        calloc((size_t)lists->room + 1, sizeof(*actions));
    bool *has = calloc(cells, sizeof(*has));
    int *open = calloc((size_t)lists->chunks + 1, sizeof(*open));
    bool ok = actions != NULL && has != NULL && open != NULL;

    for (args->stage = 0; ok && args->stage < lists->stages; args->stage++) {
        fill_stage(lists, args, actions, open);
        mark_again(lists, args->stage, has);
    }
    free(actions);
    free(has);
    free(open);
    return ok;
}

static bool lists_alloc(struct merak_lists *lists)
{
    size_t stages = (size_t)lists->stages;
    size_t parts = stages * (size_t)lists->chunks;

    lists->action =
        calloc(stages * (size_t)lists->room, sizeof(*lists->action));
    lists->n = calloc(stages, sizeof(*lists->n));
    lists->part = calloc(parts, sizeof(*lists->part));
    lists->in_flight = calloc(parts, sizeof(*lists->in_flight));
    lists->stage_of = calloc(parts, sizeof(*lists->stage_of));
    lists->early = calloc(stages, sizeof(*lists->early));
    lists->recomputes = calloc(stages, sizeof(*lists->recomputes));
    return lists->action != NULL && lists->n != NULL && lists->part != NULL &&
           lists->in_flight != NULL && lists->stage_of != NULL &&
           lists->early != NULL && lists->recomputes != NULL;
}

struct merak_lists *merak_lists_create(const struct merak_schedule *schedule,
                                       const struct merak_plan *plan, int units)
{
    int slices = merak_plan_slices(plan);
    struct merak_schedule_args args = {.stages = plan->pp,
                                       .microbatches = units / slices,
                                       .chunks = merak_plan_chunks(plan),
                                       .slices = slices > 1 ? slices : 0,
                                       .passes = merak_plan_passes(plan)};
    struct merak_lists *lists = calloc(1, sizeof(*lists));

    if (lists == NULL)
        return NULL;
    lists->schedule = schedule;
    lists->stages = args.stages;
    lists->chunks = args.chunks;
    lists->chain = merak_plan_parts(plan) - merak_plan_shared(plan);
    lists->slices = slices;
    lists->units = units;
    lists->passes = args.passes;
    for (; args.stage < args.stages; args.stage++) {
        int n = merak_schedule_count(schedule, &args);

        lists->room = n > lists->room ? n : lists->room;
    }
    if (!lists_alloc(lists) || !fill_lists(lists, &args)) {
        merak_lists_destroy(lists);
        return NULL;
    }
    return lists;
}

void merak_lists_destroy(struct merak_lists *lists)
{
    if (lists == NULL)
        return;
    free(lists->action);
    free(lists->n);
    free(lists->part);
    free(lists->in_flight);
    free(lists->stage_of);
    free(lists->early);
    free(lists->recomputes);
    free(lists);
}

bool merak_follow_init(struct merak_follow *follow,
                       const struct merak_schedule *schedule,
                       const struct merak_plan *plan)
{
    int units = merak_plan_units(plan);
    int some = merak_lists_settled(plan, units);

    *follow = (struct merak_follow){
        .lists = merak_lists_create(schedule, plan, some)};
    if (some < units)
        follow->less = merak_lists_create(
            schedule, plan, some - plan->pp * merak_plan_slices(plan));
    return follow->lists != NULL && (some == units || follow->less != NULL);
}

void merak_follow_fini(struct merak_follow *follow)
{
    merak_lists_destroy(follow->lists);
    merak_lists_destroy(follow->less);
    *follow = (struct merak_follow){.lists = NULL};
}

/* The next action of a list from *at on that is no R; NULL at the end. */
static const struct merak_step_action *next_of(const struct merak_lists *lists,
                                               int stage, int *at)
{
    const struct merak_step_action *a =
        &lists->action[(size_t)stage * (size_t)lists->room];

    while (*at < lists->n[stage] && a[*at].kind == MERAK_ACT_R)
        ++*at;
    return *at < lists->n[stage] ? &a[(*at)++] : NULL;
}

static bool same_stage(const struct merak_lists *a, const struct merak_lists *b,
                       int stage)
{
    const struct merak_step_action *x, *y;
    int i = 0, k = 0;

    do {
        x = next_of(a, stage, &i);
        y = next_of(b, stage, &k);
        if (x != NULL && y != NULL &&
            (x->kind != y->kind || x->unit != y->unit || x->chunk != y->chunk ||
             x->pass != y->pass))
            return false;
    } while (x != NULL && y != NULL);
    return x == NULL && y == NULL;
}

bool merak_lists_equal(const struct merak_lists *a, const struct merak_lists *b)
{
    if (a->schedule->splits_w != b->schedule->splits_w ||
        a->chunks != b->chunks || a->stages != b->stages ||
        a->units != b->units || a->passes != b->passes)
        return false;
    for (int s = 0; s < a->stages * a->chunks; s++) {
        if (a->part[s] != b->part[s])
            return false;
    }
    for (int s = 0; s < a->stages; s++) {
        if (!same_stage(a, b, s))
            return false;
    }
    return true;
}

int merak_lists_in_flight(const struct merak_lists *lists, int stage, int chunk)
{
    return lists->in_flight[stage * lists->chunks + chunk];
}
