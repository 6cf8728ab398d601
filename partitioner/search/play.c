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

/* --- blocks that all stages run ------------------------------------------- */

static struct merak_meeting *meeting_of(const struct merak_player *p, int part,
                                        const struct merak_step_action *a)
{
    int block = part - p->lists->chain;
    int turn = block * p->lists->units + a->unit;

    return &p->meetings->meeting[turn * MERAK_MEETS + (a->kind == MERAK_ACT_B
                                                           ? MERAK_MEET_B
                                                           : MERAK_MEET_F)];
}

static bool is_block(const struct merak_player *p, int part)
{
    return part >= p->lists->chain;
}

/* The block behind the last stage, up to the loss. */
static bool is_head(const struct merak_player *p, int part)
{
    return part == p->lists->chain + 1;
}

/* When a block has the input of an action on a stage: a head's comes down from
 * the last stage, an embedding's gradient up from the first. */
static double input_comes(const struct merak_player *p, int s, int part,
                          const struct merak_step_action *a)
{
    int block = part - p->lists->chain, stages = p->lists->stages;
    double *came = p->meetings->came +
                   ((size_t)block * (size_t)p->lists->units + (size_t)a->unit) *
                       (size_t)stages;
    bool head = is_head(p, part);
    double before;

    if (a->kind != (head ? MERAK_ACT_F : MERAK_ACT_B))
        return 0;
    if (s == (head ? stages - 1 : 0)) {
        came[s] = *end_of(p, head ? p->lists->chain - 1 : 0, a, 0);
        return came[s];
    }
    before = came[head ? s + 1 : s - 1];
    if (before < 0)
        return -1;
    came[s] = (before > p->before[s] ? before : p->before[s]) +
              p->meetings->hop_s[block * stages + s];
    return came[s];
}

/* What the block next to a part makes for it; negative: not known yet. */
static double block_made(const struct merak_player *p, int part,
                         const struct merak_step_action *a)
{
    const struct merak_range *g = &p->r->range[part];
    const struct merak_meeting *m = meeting_of(p, part, a);
    const struct merak_segment *seg = &p->r->table->segment[g->from];

    if (m->n < p->lists->stages)
        return -1;
    return m->at +
           (a->kind == MERAK_ACT_B ? seg->b_latency_s : seg->f_latency_s);
}

/* A stage that could begin at `at` has come to it; when it does, or negative:
 * not known yet. */
static double meet(struct merak_player *p, int s, int part,
                   const struct merak_step_action *a, double at)
{
    struct merak_meeting *m = meeting_of(p, part, a);
    bool *waits = &p->meetings->waits[s];

    if (!*waits) {
        m->at = at > m->at ? at : m->at;
        m->n++;
    }
    if (a->kind != MERAK_ACT_F || !is_head(p, part))
        return at;
    *waits = m->n < p->lists->stages;
    return *waits ? -1 : m->at;
}

static void start_meetings(struct merak_player *p)
{
    size_t blocks = (size_t)(p->r->parts - p->lists->chain);
    size_t turns = blocks * (size_t)p->lists->units;

    for (size_t i = 0; i < turns * MERAK_MEETS; i++)
        p->meetings->meeting[i] = (struct merak_meeting){0, 0};
    for (size_t i = 0; i < turns * (size_t)p->lists->stages; i++)
        p->meetings->came[i] = -1;
    for (int s = 0; s < p->lists->stages; s++)
        p->meetings->waits[s] = false;
}

/* --- actions -------------------------------------------------------------- */

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
    int from = up ? part - 1 : part + 1, blocks = p->r->parts - p->r->chain;
    double sent, took;

    if (is_block(p, part))
        return input_comes(p, s, part, a);
    if (up && from < 0 && blocks > 0)
        return block_made(p, p->r->chain, a);
    if (up && from < 0)
        return recycled(p, s, a);
    if (a->kind == MERAK_ACT_B && from == p->r->chain && blocks > 1)
        return block_made(p, from + 1, a);
    if ((!up && a->kind != MERAK_ACT_B) || from == p->r->chain)
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
    if (is_block(p, part))
        return 0;
    return lost_s[part] + (part + 1 < p->r->chain ? lost_s[part + 1] : 0);
}

static double duration(const struct merak_player *p, int part,
                       const struct merak_step_action *a)
{
    const struct merak_range *g = &p->r->range[part];
    double again = a->recompute ? p->r->keeps[part].recompute_s : 0;

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

    if ((!up && a->kind != MERAK_ACT_B) || from < 0 || from >= p->r->chain ||
        is_block(p, part) || p->lists->stage_of[from] == s)
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
        if (is_block(p, part))
            at = meet(p, s, part, a, at);
        if (at < 0)
            break;
        end = at + duration(p, part, a);
        if (a->kind == MERAK_ACT_F && a->unit == 0)
            end += merak_first_forward(p->r, s, part, at) - at -
                   p->r->range[part].f_s;
        if ((a->kind == MERAK_ACT_F || a->kind == MERAK_ACT_B) &&
            !is_block(p, part))
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
    if (p->meetings != NULL)
        start_meetings(p);
    while (moved) {
        moved = false;
        for (int s = 0; s < stages; s++)
            moved = play_stage(p, s) || moved;
        for (int s = stages - 1; s >= 0; s--)
            moved = play_stage(p, s) || moved;
    }
}
