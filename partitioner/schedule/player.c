/* SPDX-License-Identifier: Apache-2.0 */
/* player.c - when each action of a schedule's lists ends */
#include "config.h"

#include "partitioner/schedule/player.h"

#include "base/arrays.h"

#include <stdlib.h>

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* When a part finishes the action of this kind on a unit. */
static double *end_of(const struct merak_player *p, int part,
                      const struct merak_step_action *a, int pass)
{
    size_t turn = (size_t)part * (size_t)p->lists->units + (size_t)a->unit;

    if (a->kind == MERAK_ACT_B)
        return &p->b_end[turn];
    return &p->f_end[turn * (size_t)p->lists->passes + (size_t)pass];
}

bool merak_player_init(struct merak_player *p, const struct merak_lists *l)
{
    size_t parts = (size_t)l->n_parts, stages = (size_t)l->stages;
    size_t turns = parts * (size_t)l->units;
    size_t blocks = (parts - (size_t)l->chain) * (size_t)l->units;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(p->end, stages),
        MERAK_ARRAY(p->before, stages),
        MERAK_ARRAY(p->made, parts),
        MERAK_ARRAY(p->b_end, turns),
        MERAK_ARRAY(p->f_end, turns * (size_t)l->passes),
        MERAK_ARRAY(p->came, blocks * stages),
        MERAK_ARRAY(p->next, stages),
        MERAK_ARRAY(p->waits, stages),
        MERAK_ARRAY(p->meeting, 2 * blocks)};

    *p = (struct merak_player){.lists = l};
    return MERAK_ARRAYS(arrays, NULL) == MERAK_OK;
}

void merak_player_fini(struct merak_player *p)
{
    free(p->end);
}

/* --- blocks that all stages run ------------------------------------------- */

static bool is_block(const struct merak_lists *lists, int part)
{
    return part >= lists->chain;
}

static struct merak_meeting *meeting_of(const struct merak_player *p, int part,
                                        const struct merak_step_action *a)
{
    int turn = (part - p->lists->chain) * p->lists->units + a->unit;

    return &p->meeting[2 * turn + (a->kind == MERAK_ACT_B)];
}

/* Does an action of a block read what a stage's own part makes: a head's
 * forward, an embedding's backward? */
static bool reads_part(const struct merak_lists *lists, int block,
                       enum merak_action_kind kind)
{
    return kind == (lists->follows[block] >= 0 ? MERAK_ACT_F : MERAK_ACT_B);
}

/* When a block has the input of an action on a stage: the stage that makes it
 * sends it to its neighbours, which pass it on. */
static double input_comes(const struct merak_player *p, int s, int block,
                          const struct merak_step_action *a)
{
    const struct merak_lists *l = p->lists;
    int part = l->follows[block] >= 0 ? l->follows[block] : l->feeds[block];
    int at = block - l->chain, home = l->stage_of[part];
    double *came = p->came + ((size_t)at * (size_t)l->units + (size_t)a->unit) *
                                 (size_t)l->stages;
    double sent;

    if (!reads_part(l, block, a->kind))
        return 0;
    if (s == home) {
        came[s] = *end_of(p, part, a, 0);
        return came[s];
    }
    sent = came[s < home ? s + 1 : s - 1];
    if (sent < 0)
        return -1;
    came[s] = later(sent, p->before[s]) + p->cost.hop[at * l->stages + s];
    return came[s];
}

/* When a block's result for its part is ready; negative: not known yet. */
static double block_made(const struct merak_player *p, int block,
                         const struct merak_step_action *a)
{
    const struct merak_meeting *m = meeting_of(p, block, a);
    const struct merak_part_cost *cost = &p->cost.part[block];

    if (m->n < p->lists->stages)
        return -1;
    return m->at + (a->kind == MERAK_ACT_B ? cost->b_latency : cost->f_latency);
}

/* A stage has reached a block's action and could start it at `at`.  Returns
 * when it starts; negative: not known yet. */
static double meet(struct merak_player *p, int s, int block,
                   const struct merak_step_action *a, double at)
{
    struct merak_meeting *m = meeting_of(p, block, a);
    bool *waits = &p->waits[s];

    if (a->kind != MERAK_ACT_F && a->kind != MERAK_ACT_B)
        return at;
    if (!*waits) {
        m->at = later(m->at, at);
        m->n++;
    }
    if (!p->cost.all_meet &&
        (a->kind != MERAK_ACT_F || p->lists->follows[block] < 0))
        return at;
    *waits = m->n < p->lists->stages;
    return *waits ? -1 : m->at;
}

/* --- what an action waits for --------------------------------------------- */

/* Has what was sent `lag` actions ago been taken?  If so, *at is no earlier. */
static bool is_taken(const struct merak_player *p, int s, double *at)
{
    const struct merak_sends *sends = p->sends;
    size_t room = (size_t)p->lists->room;
    int *n = &sends->n_taken[s];

    for (; *n <= p->next[s] - sends->lag; ++*n) {
        const struct merak_taker *to =
            &sends->taker[(size_t)s * room + (size_t)*n];
        double begun;

        if (to->stage < 0)
            continue;
        if (p->next[to->stage] < to->at - 1)
            return false; /* its receive is not posted */
        begun = p->finish[(size_t)s * room + (size_t)*n];
        if (to->at > 1)
            begun =
                later(begun,
                      p->finish[(size_t)to->stage * room + (size_t)to->at - 2]);
        sends->taken[s] = later(sends->taken[s], begun + to->hop);
    }
    *at = later(*at, sends->taken[s]);
    return true;
}

/* When another part's result arrives, sent or not; negative: not known yet. */
static double crosses(const struct merak_player *p, int s, int from,
                      const struct merak_step_action *a, int pass, double took)
{
    double sent = *end_of(p, from, a, pass);

    if (took < 0)
        return 0; /* nothing crosses there */
    if (sent < 0 || p->lists->stage_of[from] == s)
        return sent;
    return later(sent, p->before[s]) + took;
}

/* When an action's inputs have arrived; negative: not known yet. */
static double arrival(const struct merak_player *p, int s, int part,
                      const struct merak_step_action *a)
{
    const struct merak_lists *l = p->lists;
    bool up = a->kind == MERAK_ACT_F;
    int from = up ? part - 1 : part + 1, block;
    double at = 0, made;

    if (!up && a->kind != MERAK_ACT_B)
        return 0;
    if (is_block(l, part))
        return input_comes(p, s, part, a);
    if (from >= 0 && from < l->chain)
        at = crosses(p, s, from, a, a->pass,
                     up ? p->cost.part[part].up : p->cost.part[from].down);
    else if (up && a->pass > 0)
        at = crosses(p, s, l->chain - 1, a, a->pass - 1, p->cost.recycled);
    block = up ? l->fed_by[part] : l->followed_by[part];
    if (block < 0 || at < 0)
        return at;
    made = block_made(p, block, a);
    return made < 0 ? made : later(at, made);
}

/* The time to gather what another stage sent in parts, before the action that
 * reads it: programs gather when it is the action's turn. */
static double gather(const struct merak_player *p, int s, int part,
                     const struct merak_step_action *a)
{
    bool up = a->kind == MERAK_ACT_F;
    int from = up ? part - 1 : part + 1;

    if ((!up && a->kind != MERAK_ACT_B) || from < 0 ||
        from >= p->lists->chain || is_block(p->lists, part) ||
        p->lists->stage_of[from] == s)
        return 0;
    return up ? p->cost.part[part].up_gather : p->cost.part[from].down_gather;
}

/* --- actions -------------------------------------------------------------- */

static double duration(const struct merak_part_cost *cost,
                       const struct merak_step_action *a)
{
    switch (a->kind) {
    case MERAK_ACT_F:
        return cost->f;
    case MERAK_ACT_B:
        return a->recompute ? cost->b_recomputing : cost->b;
    case MERAK_ACT_W:
        return cost->w;
    case MERAK_ACT_R:
        return cost->r;
    }
    return 0;
}

/* When a stage's next action starts; negative: not known yet. */
static double start_of(struct merak_player *p, int s, int part,
                       const struct merak_step_action *a)
{
    double at = arrival(p, s, part, a);

    if (at < 0)
        return at;
    at = later(at, p->end[s]);
    if (p->sends != NULL && p->sends->lag > 0 && !is_taken(p, s, &at))
        return -1;
    at += gather(p, s, part, a);
    return is_block(p->lists, part) ? meet(p, s, part, a, at) : at;
}

static void note(struct merak_player *p, int s, int part,
                 const struct merak_step_action *a, double start, double end)
{
    size_t i = (size_t)s * (size_t)p->lists->room + (size_t)p->next[s];

    if (p->start != NULL) {
        p->start[i] = start;
        p->finish[i] = end;
    }
    if ((a->kind == MERAK_ACT_F || a->kind == MERAK_ACT_B) &&
        !is_block(p->lists, part))
        *end_of(p, part, a, a->pass) = end;
    if (a->kind == MERAK_ACT_B || a->kind == MERAK_ACT_W)
        p->made[part] = end;
    p->before[s] = p->cost.unposted ? 0 : p->end[s];
    p->end[s] = end;
    p->next[s]++;
}

/* Play as many actions of a stage as possible; true if there were any. */
static bool play_stage(struct merak_player *p, int s)
{
    const struct merak_lists *lists = p->lists;
    const struct merak_step_action *list = merak_lists_of(lists, s);
    int first = p->next[s];

    while (p->next[s] < lists->n[s]) {
        const struct merak_step_action *a = &list[p->next[s]];
        int part = lists->part[s * lists->chunks + a->chunk];
        double start = start_of(p, s, part, a), end;

        if (start < 0)
            break;
        end = start + duration(&p->cost.part[part], a);
        if (a->kind == MERAK_ACT_F && a->unit == 0 &&
            p->cost.first_more != NULL)
            end += p->cost.first_more(p->cost.arg, s, part, start);
        note(p, s, part, a, start, end);
    }
    return p->next[s] > first;
}

static void rewind_all(struct merak_player *p)
{
    const struct merak_lists *l = p->lists;
    size_t turns = (size_t)l->n_parts * (size_t)l->units;
    size_t blocks = (size_t)(l->n_parts - l->chain) * (size_t)l->units;

    for (size_t i = 0; i < turns; i++)
        p->b_end[i] = -1;
    for (size_t i = 0; i < turns * (size_t)l->passes; i++)
        p->f_end[i] = -1;
    for (size_t i = 0; i < 2 * blocks; i++)
        p->meeting[i] = (struct merak_meeting){0, 0};
    for (size_t i = 0; i < blocks * (size_t)l->stages; i++)
        p->came[i] = -1;
    for (int k = 0; k < l->n_parts; k++)
        p->made[k] = 0;
    for (int s = 0; s < l->stages; s++) {
        p->end[s] = p->before[s] = 0;
        p->next[s] = 0;
        p->waits[s] = false;
        if (p->sends != NULL) {
            p->sends->n_taken[s] = 0;
            p->sends->taken[s] = 0;
        }
    }
}

void merak_play(struct merak_player *p)
{
    int stages = p->lists->stages;
    bool moved = true;

    rewind_all(p);
    while (moved) {
        moved = false;
        for (int s = 0; s < stages; s++)
            moved = play_stage(p, s) || moved;
        for (int s = stages - 1; s >= 0; s--)
            moved = play_stage(p, s) || moved;
    }
}

bool merak_play_is_over(const struct merak_player *p)
{
    for (int s = 0; s < p->lists->stages; s++) {
        if (p->next[s] < p->lists->n[s])
            return false;
    }
    return true;
}
