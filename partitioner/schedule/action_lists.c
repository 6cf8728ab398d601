/* SPDX-License-Identifier: Apache-2.0 */
/* action_lists.c - the actions of all stages of a schedule */
#include "config.h"

#include "partitioner/schedule/action_lists.h"

#include "base/arrays.h"

#include <stdlib.h>

/* Which actions do the recomputation: R, or B if there is no R. */
static void mark_recompute(struct merak_lists *lists, int stage, bool *has)
{
    struct merak_step_action *a =
        &lists->action[(size_t)stage * (size_t)lists->room];

    for (int i = 0; i < lists->chunks * lists->units; i++)
        has[i] = false;
    lists->early[stage] = false;
    for (int i = 0; i < lists->n[stage]; i++) {
        bool *mine = &has[a[i].chunk * lists->units + a[i].unit];

        if (a[i].kind == MERAK_ACT_R)
            *mine = lists->early[stage] = true;
        a[i].recompute =
            a[i].kind == MERAK_ACT_R || (a[i].kind == MERAK_ACT_B && !*mine);
    }
}

/* Micro-batches, or pairs, that each chunk holds at once.  Backwards of slices
 * run in descending order. */
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

/* Micro-batches whose weight gradients each chunk puts off at once. */
static void find_waiting(const struct merak_lists *lists,
                         const struct merak_action *actions, int n, int *open,
                         int *most)
{
    for (int c = 0; c < lists->chunks; c++)
        open[c] = most[c] = 0;
    for (int i = 0; i < n && lists->schedule->splits_w; i++) {
        int c = actions[i].chunk;

        open[c] += actions[i].kind == MERAK_ACT_B;
        most[c] = open[c] > most[c] ? open[c] : most[c];
        open[c] -= actions[i].kind == MERAK_ACT_W;
    }
}

bool merak_lists_set(struct merak_lists *lists, int stage,
                     const struct merak_action *actions, int n)
{
    struct merak_step_action *to =
        &lists->action[(size_t)stage * (size_t)lists->room];
    size_t cells = (size_t)lists->chunks * (size_t)lists->units;
    bool *has = malloc(cells * sizeof(*has));
    int *open = malloc((size_t)lists->chunks * sizeof(*open));
    bool ok = has != NULL && open != NULL;

    lists->n[stage] = n;
    for (int i = 0; i < n; i++)
        to[i] = (struct merak_step_action){
            .kind = actions[i].kind,
            .chunk = actions[i].chunk,
            .unit = actions[i].microbatch * lists->slices + actions[i].slice,
            .pass = actions[i].pass};
    if (ok) {
        mark_recompute(lists, stage, has);
        find_in_flight(lists, actions, n, open,
                       &lists->in_flight[stage * lists->chunks]);
        find_waiting(lists, actions, n, open,
                     &lists->waiting[stage * lists->chunks]);
    }
    free(has);
    free(open);
    return ok;
}

static bool fill_lists(struct merak_lists *lists,
                       struct merak_schedule_args args)
{
    struct merak_action *actions =
        malloc((size_t)lists->room * sizeof(*actions));
    bool ok = actions != NULL;

    for (args.stage = 0; ok && args.stage < lists->stages; args.stage++) {
        int n = merak_schedule_count(lists->schedule, &args);

        merak_schedule_fill(lists->schedule, &args, actions);
        ok = merak_lists_set(lists, args.stage, actions, n);
    }
    free(actions);
    return ok;
}

static void place_parts(struct merak_lists *lists,
                        struct merak_schedule_args args)
{
    for (args.stage = 0; args.stage < lists->stages; args.stage++) {
        lists->recomputes[args.stage] =
            merak_schedule_recomputes(lists->schedule, &args);
        for (int c = 0; c < lists->chunks; c++) {
            int part = merak_schedule_part(lists->schedule, &args, c);

            lists->part[args.stage * lists->chunks + c] = part;
            lists->stage_of[part] = part < lists->chain ? args.stage : -1;
        }
    }
}

static void link_blocks(struct merak_lists *lists,
                        const struct merak_schedule_args *args)
{
    for (int i = 0; i < lists->chain; i++)
        lists->fed_by[i] = lists->followed_by[i] = -1;
    for (int c = 0; c < lists->chunks; c++) {
        int block = lists->part[c];

        if (block < lists->chain)
            continue;
        lists->feeds[block] = merak_schedule_feeds(lists->schedule, args, c);
        lists->follows[block] =
            merak_schedule_follows(lists->schedule, args, c);
        if (lists->feeds[block] >= 0)
            lists->fed_by[lists->feeds[block]] = block;
        if (lists->follows[block] >= 0)
            lists->followed_by[lists->follows[block]] = block;
    }
}

static bool lists_alloc(struct merak_lists *lists)
{
    size_t stages = (size_t)lists->stages, parts = (size_t)lists->n_parts;
    size_t chunks = stages * (size_t)lists->chunks;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(lists->action, stages * (size_t)lists->room),
        MERAK_ARRAY(lists->n, stages),
        MERAK_ARRAY(lists->part, chunks),
        MERAK_ARRAY(lists->in_flight, chunks),
        MERAK_ARRAY(lists->waiting, chunks),
        MERAK_ARRAY(lists->stage_of, parts),
        MERAK_ARRAY(lists->fed_by, parts),
        MERAK_ARRAY(lists->followed_by, parts),
        MERAK_ARRAY(lists->feeds, parts),
        MERAK_ARRAY(lists->follows, parts),
        MERAK_ARRAY(lists->early, stages),
        MERAK_ARRAY(lists->recomputes, stages)};

    return MERAK_ARRAYS(arrays, NULL) == MERAK_OK;
}

struct merak_lists *merak_lists_create(const struct merak_schedule *schedule,
                                       const struct merak_schedule_args *given)
{
    struct merak_schedule_args args = merak_schedule_defaults(schedule, given);
    struct merak_lists *lists = calloc(1, sizeof(*lists));

    if (lists == NULL)
        return NULL;
    *lists = (struct merak_lists){.schedule = schedule,
                                  .stages = args.stages,
                                  .chunks = args.chunks,
                                  .units = args.microbatches * args.slices,
                                  .slices = args.slices,
                                  .passes = args.passes};
    args.stage = 0;
    /* A chunk is one stage's part or a block of all, the same on all stages. */
    for (int c = 0; c < args.chunks; c++) {
        bool shared = merak_schedule_shares(lists->schedule, &args, c);

        lists->chain += shared ? 0 : args.stages;
        lists->n_parts += shared ? 1 : args.stages;
    }
    for (; args.stage < args.stages; args.stage++) {
        int n = merak_schedule_count(schedule, &args);

        lists->room = n > lists->room ? n : lists->room;
    }
    args.stage = 0;
    if (lists_alloc(lists)) {
        place_parts(lists, args);
        link_blocks(lists, &args);
        if (fill_lists(lists, args))
            return lists;
    }
    merak_lists_destroy(lists);
    return NULL;
}

void merak_lists_destroy(struct merak_lists *lists)
{
    if (lists == NULL)
        return;
    free(lists->action);
    free(lists);
}

/* The next action of a list from *at on that is not R; NULL at the end. */
static const struct merak_step_action *next_of(const struct merak_lists *lists,
                                               int stage, int *at)
{
    const struct merak_step_action *a = merak_lists_of(lists, stage);

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

bool merak_lists_recompute_alike(const struct merak_lists *a,
                                 const struct merak_lists *b)
{
    for (int s = 0; s < a->stages; s++) {
        const struct merak_step_action *x = merak_lists_of(a, s);
        const struct merak_step_action *y = merak_lists_of(b, s);

        if (a->n[s] != b->n[s] || a->recomputes[s] != b->recomputes[s])
            return false;
        for (int i = 0; i < a->n[s]; i++) {
            if (x[i].kind != y[i].kind || x[i].recompute != y[i].recompute)
                return false;
        }
    }
    return true;
}

int merak_lists_in_flight(const struct merak_lists *lists, int stage, int chunk)
{
    return lists->in_flight[stage * lists->chunks + chunk];
}

int merak_lists_waiting(const struct merak_lists *lists, int stage, int chunk)
{
    return lists->waiting[stage * lists->chunks + chunk];
}
