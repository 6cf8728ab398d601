/* SPDX-License-Identifier: Apache-2.0 */
/* play.c - when each action of a candidate's lists ends */
#include "config.h"

#include "partitioner/search/play.h"

/* When a part is through with what this action does of a unit. */
static double *end_of(const struct merak_player *p, int part,
                      const struct merak_step_action *a, int pass)
{
    size_t turn = (size_t)part * (size_t)p->lists->units + (size_t)a->unit;

    if (a->kind == MERAK_ACT_B)
        return &p->b_end[turn];
    return &p->f_end[turn * (size_t)p->lists->passes + (size_t)pass];
}

/* The next pass begins when the last part is through with this one. */
static double recycled(const struct merak_player *p, int s,
                       const struct merak_step_action *a)
{
    double sent;

    if (a->pass == 0)
        return 0;
    sent = *end_of(p, p->r->parts - 1, a, a->pass - 1);
    return sent < 0 || sent > p->before[s] ? sent : p->before[s];
}

/* When what an action needs is there; negative: not known yet. */
static double arrival(const struct merak_player *p, int s, int part,
                      const struct merak_step_action *a)
{
    bool up = a->kind == MERAK_ACT_F;
    int from = up ? part - 1 : part + 1;
    double sent, took;

    if (up && from < 0)
        return recycled(p, s, a);
    if ((!up && a->kind != MERAK_ACT_B) || from == p->r->parts)
        return 0;
    took = up ? p->up_s[part] : p->down_s[from];
    sent = *end_of(p, from, a, a->pass);
    if (took < 0)
        return 0; /* nothing crosses there */
    if (sent < 0)
        return -1;
    if (p->lists->stage_of[from] == s)
        return sent;
    return (sent > p->before[s] ? sent : p->before[s]) + took;
}

/* Of transfers over both ends of a part; outermost there are none. */
static double lost(const struct merak_player *p, const double *lost_s, int part)
{
    return lost_s[part] + (part + 1 < p->r->parts ? lost_s[part + 1] : 0);
}

static double duration(const struct merak_player *p, int part,
                       const struct merak_step_action *a)
{
    const struct merak_range *g = &p->r->range[part];
    double again = a->again ? p->r->keeps[part].again_s : 0;

    switch (a->kind) {
    case MERAK_ACT_F:
        return g->f_s + lost(p, p->up_lost_s, part);
    case MERAK_ACT_B:
        return again + lost(p, p->down_lost_s, part) +
               (p->lists->schedule->splits_w ? g->x_s : g->b_s);
    case MERAK_ACT_W:
        return g->w_s;
    case MERAK_ACT_R:
        return again;
    }
    return 0;
}

/* Before an action that another stage's parts come to: programs gather them
 * when it is its turn. */
static double join_s(const struct merak_player *p, int s, int part,
                     const struct merak_step_action *a)
{
    bool up = a->kind == MERAK_ACT_F;
    int from = up ? part - 1 : part + 1;

    if ((!up && a->kind != MERAK_ACT_B) || from < 0 || from == p->r->parts ||
        p->lists->stage_of[from] == s)
        return 0;
    return up ? p->up_gather_s[part] : p->down_gather_s[from];
}

/* As many actions of a stage as can be; true if there were any. */
static bool play_stage(struct merak_player *p, int s)
{
    int first = p->next[s];

    while (p->next[s] < p->lists->n[s]) {
        const struct merak_step_action *a =
            &p->lists->action[(size_t)s * (size_t)p->lists->room +
                              (size_t)p->next[s]];
        int part = p->lists->part[s * p->lists->chunks + a->chunk];
        double at = arrival(p, s, part, a), end;

        if (at < 0)
            break;
        at = (at > p->end[s] ? at : p->end[s]) + join_s(p, s, part, a);
        end = at + duration(p, part, a);
        if (a->kind == MERAK_ACT_F && a->unit == 0)
            end += merak_first_forward(p->r, part, at) - at -
                   p->r->range[part].f_s;
        if (a->kind == MERAK_ACT_F || a->kind == MERAK_ACT_B)
            *end_of(p, part, a, a->pass) = end;
        if (a->kind == MERAK_ACT_B || a->kind == MERAK_ACT_W)
            p->made[part] = end;
        p->before[s] = p->end[s];
        p->end[s] = end;
        p->next[s]++;
    }
    return p->next[s] > first;
}

void merak_play(struct merak_player *p)
{
    int stages = p->lists->stages;
    size_t units = (size_t)p->r->parts * (size_t)p->lists->units;
    bool moved = true;

    for (size_t i = 0; i < units; i++)
        p->b_end[i] = -1;
    for (size_t i = 0; i < units * (size_t)p->lists->passes; i++)
        p->f_end[i] = -1;
    for (int s = 0; s < stages; s++) {
        p->end[s] = p->before[s] = 0;
        p->next[s] = 0;
    }
    while (moved) {
        moved = false;
        for (int s = 0; s < stages; s++)
            moved = play_stage(p, s) || moved;
        for (int s = stages - 1; s >= 0; s--)
            moved = play_stage(p, s) || moved;
    }
}
