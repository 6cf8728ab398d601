/* SPDX-License-Identifier: Apache-2.0 */
/* flow.c - which values a stage has, gets and passes on
 *
 * A value that several stages use goes hop by hop along them, forward values
 * up the parts of the model and gradients down, so what a stage computes
 * never depends on where the other cuts are.  A stage with several parts gets
 * a value once, with the first of them on the value's way, even if only a later
 * one needs it: if the stage received it with the later part, the sender, which
 * keeps sent values for a few actions only, might be a stage that this part
 * waits for.  Nothing moves between parts of one stage.
 *
 * A shared block, a vocabulary-parallel layer of all stages, makes its values
 * on each of them.  What it takes from one stage's part goes on from there
 * along all the others, the nearest first.
 *
 * In an evaluation, values that only gradients would read do not move.  They
 * would be useless, and their slots free as soon as the receive is posted: the
 * next user of the memory would wait for a sender that may wait for it
 * (posts.c).
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "partitioner/graph/padding.h"

#include "base/error.h"

#include <limits.h>
#include <stdlib.h>

/* When a value comes to each stage: at[value * stages + stage] is the position
 * of the first part there that has it, counted along the value's way; INT_MAX:
 * never. */
struct reach {
    struct merak_build *b;
    int stages;
    int *at;
};

bool merak_build_is_forward(const struct merak_build *b, int value)
{
    int producer = b->graph->value[value]->producer;

    return producer < 0 || b->graph->node[producer]->phase == MERAK_PHASE_F;
}

static bool is_shared(const struct merak_build *b, int part)
{
    return part >= b->n_chain;
}

/* How far a stage is from the one that makes a value; of two at the same
 * distance the later one is nearer. */
static int distance(const struct merak_build *b, int value, int stage)
{
    int home = b->flow[value].home;
    int from = home < 0 || is_shared(b, home) ? 0 : b->stage_of_part[home];

    return stage < from ? 2 * (from - stage) : 2 * (stage - from) - 1;
}

/* Shared blocks come after all other parts. */
static int place_of(const struct merak_build *b, int value, int part, int stage)
{
    if (is_shared(b, part))
        return b->n_chain + (part - b->n_chain) * 2 * b->prog->plan.pp + 1 +
               distance(b, value, stage);
    return merak_build_is_forward(b, value) ? part : b->n_chain - 1 - part;
}

static void touch_on(struct reach *r, int value, int part, int stage)
{
    int *at = &r->at[value * r->stages + stage];
    int place = place_of(r->b, value, part, stage);

    if (place < *at)
        *at = place;
}

static void touch(struct reach *r, int value, int part)
{
    if (!is_shared(r->b, part))
        touch_on(r, value, part, r->b->stage_of_part[part]);
    for (int s = 0; s < r->stages && is_shared(r->b, part); s++)
        touch_on(r, value, part, s);
}

/* Values only move with their phase: up in F, down in B. */
static void check_direction(struct merak_build *b,
                            const struct merak_value *value, int part)
{
    int home = b->flow[value->id].home;

    if (b->rc != MERAK_OK || home < 0 || is_shared(b, home) ||
        is_shared(b, part) ||
        place_of(b, value->id, part, 0) >= place_of(b, value->id, home, 0))
        return;
    merak_build_fail(b, merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                                   "value %s of part %d is needed in part "
                                   "%d, against the pipeline's direction",
                                   value->name, home, part));
}

/* A recycled value's home is the first part that reads it. */
static void find_homes(struct merak_build *b)
{
    for (int n = 0; n < b->graph->n_nodes; n++) {
        const struct merak_node *node = b->graph->node[n];
        int part = b->stages->of_node[n];

        for (int i = 0; i < node->n_in; i++) {
            struct merak_flow *f = &b->flow[node->in[i]->id];

            if (node->in[i]->kind == MERAK_VALUE_RECYCLED &&
                (f->home < 0 || part < f->home))
                f->home = part;
        }
    }
}

/* Is a node's value of no use in a program that leaves the node out?  What is
 * kept from step to step stays where it is. */
static bool is_left_out(const struct merak_build *b,
                        const struct merak_node *node,
                        const struct merak_value *value)
{
    return b->opt->forward_only && node->phase != MERAK_PHASE_F &&
           value->kind != MERAK_VALUE_PARAM &&
           value->kind != MERAK_VALUE_PARAM_GRAD;
}

static void touch_all(struct reach *r)
{
    struct merak_build *b = r->b;

    for (int n = 0; n < b->graph->n_nodes; n++) {
        const struct merak_node *node = b->graph->node[n];
        int part = b->stages->of_node[n];

        for (int i = 0; i < node->n_out; i++) {
            if (is_left_out(b, node, node->out[i]))
                continue;
            b->flow[node->out[i]->id].home = part;
            touch(r, node->out[i]->id, part);
        }
    }
    find_homes(b);
    for (int n = 0; n < b->graph->n_nodes; n++) {
        const struct merak_node *node = b->graph->node[n];

        for (int i = 0; i < node->n_in; i++) {
            if (is_left_out(b, node, node->in[i]))
                continue;
            touch(r, node->in[i]->id, b->stages->of_node[n]);
            check_direction(b, node->in[i], b->stages->of_node[n]);
        }
    }
}

/* A stage that has a value gets it with its first part on the value's way. */
static void receive_with_first_part(struct reach *r)
{
    const struct merak_build *b = r->b;

    for (int v = 0; v < b->graph->n_values && b->n_chunks > 1; v++) {
        int home = b->flow[v].home;

        if (home < 0 || is_shared(b, home))
            continue;
        for (int part = 0; part < b->n_chain; part++) {
            int *at = &r->at[v * r->stages + b->stage_of_part[part]];
            int place = place_of(b, v, part, 0);

            if (place > place_of(b, v, home, 0) && place < *at && *at < INT_MAX)
                *at = place;
        }
    }
}

/* The chunk of this rank at a position on a value's way. */
static int chunk_at(const struct merak_build *b, int value, int place)
{
    for (int c = 0; c < b->n_chunks; c++) {
        if (place_of(b, value, b->chunk[c].part, b->stage) == place)
            return c;
    }
    return 0;
}

/* The part at a position on a value's way. */
static int part_at(const struct merak_build *b, int value, int place)
{
    if (place >= b->n_chain)
        return b->n_chain + (place - b->n_chain) / (2 * b->prog->plan.pp);
    return merak_build_is_forward(b, value) ? place : b->n_chain - 1 - place;
}

/* Does a value go from one stage's part to another's that is not the next?
 * Shared blocks take what they need all at once. */
static bool skips(const struct reach *r, int value)
{
    const int *at = &r->at[value * r->stages];
    const struct merak_build *b = r->b;

    if (b->flow[value].home < 0 || is_shared(b, b->flow[value].home))
        return false;
    for (int s = 0; s < r->stages; s++) {
        int before = -1;

        if (at[s] >= b->n_chain) /* most stages never have it */
            continue;
        for (int o = 0; o < r->stages; o++)
            before = at[o] < at[s] && at[o] > before ? at[o] : before;
        if (before >= 0 && at[s] > before + 1)
            return true;
    }
    return false;
}

/* This stage's neighbours on a value's way. */
static void find_neighbours(const struct reach *r, int value)
{
    struct merak_build *b = r->b;
    struct merak_flow *f = &b->flow[value];
    const int *at = &r->at[value * r->stages];
    int mine = at[b->stage];

    if (mine == INT_MAX)
        return;
    f->here = true;
    f->chunk = chunk_at(b, value, mine);
    for (int s = 0; s < r->stages; s++) {
        if (at[s] < mine && (f->from < 0 || at[s] > at[f->from]))
            f->from = s;
        if (at[s] > mine && at[s] < INT_MAX && (f->to < 0 || at[s] < at[f->to]))
            f->to = s;
    }
    f->first = f->from < 0;
    if (f->from >= 0)
        f->part_from = part_at(b, value, at[f->from]);
    if (f->home < 0 || is_shared(b, f->home)) /* each stage has its own */
        f->from = f->to = -1;
    merak_build_crossings(b, value);
}

static void name_transfers(struct merak_build *b,
                           const struct merak_value *value)
{
    struct merak_flow *f = &b->flow[value->id];

    if (f->to >= 0)
        f->send_name =
            merak_build_name(b, "send %s -> stage %d", value->name, f->to);
    if (f->from >= 0)
        f->recv_name =
            merak_build_name(b, "recv %s <- stage %d", value->name, f->from);
    if (f->parts_from || f->in != NULL)
        f->gather_name = merak_build_name(b, "gather %s", value->name);
}

static void collect_local(struct merak_build *b)
{
    for (int v = 0; v < b->graph->n_values; v++) {
        const struct merak_value *value = b->graph->value[v];

        if (!b->flow[v].here || value->kind == MERAK_VALUE_PARAM ||
            value->kind == MERAK_VALUE_PARAM_GRAD)
            continue;
        b->local[b->n_local++] = v;
        name_transfers(b, value);
    }
}

/* What is sent or carried to the next pass is contiguous. */
static void find_padded(struct merak_build *b)
{
    merak_graph_may_pad(b->graph, b->may_pad);
    for (int v = 0; v < b->graph->n_values; v++) {
        if (b->flow[v].from >= 0 || b->flow[v].to >= 0)
            b->may_pad[v] = false;
    }
    for (int i = 0; i < b->graph->n_recycling; i++)
        b->may_pad[b->graph->recycling[i].out->id] = false;
}

void merak_build_flow(struct merak_build *b)
{
    struct reach r = {.b = b, .stages = b->prog->plan.pp};
    size_t count = (size_t)b->graph->n_values * (size_t)r.stages;

    r.at = malloc((count + 1) * sizeof(*r.at));
    if (r.at == NULL) {
        merak_build_fail(b, merak_fail_nomem(b->err, count * sizeof(*r.at)));
        return;
    }
    for (size_t i = 0; i < count; i++)
        r.at[i] = INT_MAX;
    for (int v = 0; v < b->graph->n_values; v++)
        b->flow[v] = (struct merak_flow){.home = -1,
                                         .from = -1,
                                         .to = -1,
                                         .peer_from = -1,
                                         .peer_to = -1,
                                         .free_slot = -1,
                                         .free_away = -1,
                                         .away_after = -1};
    touch_all(&r);
    receive_with_first_part(&r);
    for (int v = 0; v < b->graph->n_values; v++) {
        b->skips = b->skips || skips(&r, v);
        find_neighbours(&r, v);
    }
    collect_local(b);
    find_padded(b);
    free(r.at);
}
