/* SPDX-License-Identifier: Apache-2.0 */
/* passes.c - several forward passes of a micro-batch
 *
 * A pass runs those of the graph's forward nodes that are needed: in the last
 * pass, what the loss and the gradients depend on; in the others, what the next
 * one's recycled values depend on.  Each pass of a micro-batch has its own
 * slots for its values and gives them back at its end, except for the last
 * pass, whose values are kept for the backward.
 *
 * A recycled value moves like one that is made where it is first read: its
 * output of the previous pass is copied there, or sent by the stage that
 * makes it, and goes on from there to other readers.  In the first pass it is
 * zeros.
 *
 * What is for the next pass arrives long before it is used: posts.c determines
 * when its receive is posted.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include <string.h>

/* Which passes read a value or run a node, as bits. */
enum { PASS_BEFORE = 1, PASS_LAST = 2, PASS_ALL = 3 };

static unsigned bit_of(const struct merak_build *b)
{
    return b->now.pass < b->passes - 1 ? PASS_BEFORE : PASS_LAST;
}

bool merak_build_reads(const struct merak_build *b, int value)
{
    return b->recycled.read_in[value] & bit_of(b);
}

bool merak_build_runs_now(const struct merak_build *b, int node)
{
    return b->recycled.run_in[node] & bit_of(b);
}

int merak_build_turn(const struct merak_build *b, int microbatch)
{
    int turn =
        (microbatch * b->passes + b->now.pass) * b->slice.n + b->now.slice;

    return turn * b->fold.pieces + (b->now.piece < 0 ? 0 : b->now.piece);
}

void merak_build_set_pass(struct merak_build *b, const struct merak_action *a)
{
    b->now.pass = a->kind == MERAK_ACT_F ? a->pass : b->passes - 1;
}

/* --- what is alive -------------------------------------------------------- */

static void read_inputs(struct merak_build *b, const struct merak_node *node,
                        unsigned in)
{
    for (int i = 0; i < node->n_in; i++)
        b->recycled.read_in[node->in[i]->id] |= (uint8_t)in;
}

static void mark_last(struct merak_build *b)
{
    for (int n = b->graph->n_nodes - 1; n >= 0; n--) {
        const struct merak_node *node = b->graph->node[n];
        bool runs = node->phase != MERAK_PHASE_F;

        for (int i = 0; i < node->n_out; i++)
            runs = runs || node->out[i] == b->graph->loss ||
                   node->out[i]->reported ||
                   (b->recycled.read_in[node->out[i]->id] & PASS_LAST);
        if (!runs)
            continue;
        b->recycled.run_in[n] |= PASS_LAST;
        read_inputs(b, node, PASS_LAST);
    }
}

static void mark_before(struct merak_build *b)
{
    bool *runs = merak_build_alloc(b, (size_t)b->graph->n_nodes + 1);

    if (runs == NULL)
        return;
    merak_graph_mark_recycling(b->graph, runs);
    for (int n = 0; n < b->graph->n_nodes; n++) {
        if (!runs[n])
            continue;
        b->recycled.run_in[n] |= PASS_BEFORE;
        read_inputs(b, b->graph->node[n], PASS_BEFORE);
    }
}

/* --- between passes ------------------------------------------------------- */

/* A copy of the whole value, seen as one row. */
static void make_copy(struct merak_build *b, struct merak_carry *c)
{
    const struct merak_value *value = b->graph->value[c->in];
    struct merak_shape row = {1, {merak_shape_count(&value->shape)}};
    struct merak_box *box = merak_build_alloc_kept(b, sizeof(*box));

    c->copy = merak_build_alloc_kept(b, sizeof(*c->copy));
    if (b->rc != MERAK_OK)
        return;
    *box = (struct merak_box){
        .ndim = 1, .full = {row.dim[0]}, .len = {row.dim[0]}};
    *c->copy = (struct merak_exchange){.kind = MERAK_CONVERT_SLICE,
                                       .dtype = value->dtype,
                                       .n = 1,
                                       .in = row,
                                       .out = row,
                                       .send = box,
                                       .recv = box};
}

static void name_carry(struct merak_build *b, struct merak_carry *c)
{
    const char *name = b->graph->value[c->in]->name;

    if (c->from == c->to)
        c->name = merak_build_name(b, "recycle %s", name);
    else if (c->from == b->stage)
        c->name = merak_build_name(b, "send %s -> stage %d", name, c->to);
    else
        c->name = merak_build_name(b, "recv %s <- stage %d", name, c->from);
}

void merak_build_passes(struct merak_build *b)
{
    size_t values = (size_t)b->graph->n_values + 1;
    size_t nodes = (size_t)b->graph->n_nodes + 1;

    b->recycled.read_in = merak_build_alloc(b, values);
    b->recycled.run_in = merak_build_alloc(b, nodes);
    b->recycled.carry =
        merak_build_alloc(b, MERAK_MAX_RECYCLED * sizeof(*b->recycled.carry));
    if (b->rc != MERAK_OK)
        return;
    if (b->graph->n_recycling == 0) {
        memset(b->recycled.read_in, PASS_ALL, values);
        memset(b->recycled.run_in, PASS_ALL, nodes);
        return;
    }
    mark_last(b);
    mark_before(b);
    for (int i = 0; i < b->graph->n_recycling && b->rc == MERAK_OK; i++) {
        struct merak_carry *c = &b->recycled.carry[b->recycled.n];
        int in = b->graph->recycling[i].in->id;
        int out = b->graph->recycling[i].out->id;

        *c = (struct merak_carry){.in = in,
                                  .out = out,
                                  .from = b->stage_of_part[b->flow[out].home],
                                  .to = b->stage_of_part[b->flow[in].home]};
        if (c->from != b->stage && c->to != b->stage)
            continue;
        b->recycled.n++;
        name_carry(b, c);
        if (c->from == c->to)
            make_copy(b, c);
        else if (merak_plan_is_unlike(&b->prog->plan, c->from, c->to))
            c->crossing = merak_build_carry_crossing(b, i, c->from, c->to);
    }
}

/* Does the next pass read it?  The current one is not the last. */
static bool is_read_next(const struct merak_build *b, int value)
{
    return b->recycled.read_in[value] &
           (b->now.pass + 1 < b->passes - 1 ? PASS_BEFORE : PASS_LAST);
}

bool merak_build_is_recycled(const struct merak_build *b, int value)
{
    bool left = false;

    for (int i = 0; i < b->recycled.n && b->now.pass < b->passes - 1; i++)
        left = left || (b->recycled.carry[i].out == value &&
                        b->recycled.carry[i].from == b->stage &&
                        is_read_next(b, b->recycled.carry[i].in));
    return left;
}

void merak_build_carry(struct merak_build *b, const struct merak_carry *c,
                       int microbatch, bool send)
{
    int v = send ? c->out : c->in;
    int reader = b->now.pass + (send ? 1 : 0);
    struct merak_instr in = {
        .phase = MERAK_PHASE_F,
        .microbatch = microbatch,
        .pass = b->now.pass,
        .chunk = b->flow[v].chunk,
        .tag = merak_build_tag(b, microbatch * b->passes + reader,
                               merak_build_crossing_id(b, c->in)),
        .name = c->name};

    if (c->crossing != NULL)
        merak_build_cross(b, c->crossing, &in,
                          merak_build_value(b, v, microbatch));
    else
        merak_build_message(b, &in, send, merak_build_value(b, v, microbatch),
                            merak_build_peer(b, send ? c->to : c->from));
}

void merak_build_carried(struct merak_build *b, const struct merak_action *a,
                         int microbatch)
{
    for (int i = 0; i < b->recycled.n && b->rc == MERAK_OK; i++) {
        const struct merak_carry *c = &b->recycled.carry[i];
        struct merak_instr like = {
            .phase = MERAK_PHASE_F,
            .microbatch = microbatch,
            .pass = b->now.pass,
            .chunk = b->flow[c->in].chunk,
            .tag = merak_build_tag(b, merak_build_turn(b, microbatch), c->in),
            .name = c->name};

        if (c->crossing != NULL && c->to == b->stage &&
            a->kind == MERAK_ACT_F && a->pass > 0 &&
            a->chunk == b->flow[c->in].chunk && merak_build_reads(b, c->in))
            merak_build_arrived(b, c->crossing, &like,
                                merak_build_value(b, c->in, microbatch));
    }
}

static void copy(struct merak_build *b, const struct merak_carry *c,
                 int microbatch)
{
    struct merak_instr in = {.kind = MERAK_INSTR_SLICE,
                             .phase = MERAK_PHASE_F,
                             .microbatch = microbatch,
                             .pass = b->now.pass,
                             .chunk = b->flow[c->out].chunk,
                             .node = -1,
                             .exchange = c->copy,
                             .n_in = 1,
                             .n_out = 1,
                             .peer = -1,
                             .name = c->name};

    in.slot[0] = merak_build_value(b, c->out, microbatch);
    b->now.pass++;
    in.slot[1] = merak_build_value(b, c->in, microbatch);
    b->now.pass--;
    if (in.slot[0] >= 0 && in.slot[1] >= 0)
        merak_build_push(b, &in);
}

void merak_build_recycle(struct merak_build *b, int value, int microbatch)
{
    for (int i = 0; i < b->recycled.n && b->now.pass < b->passes - 1; i++) {
        const struct merak_carry *c = &b->recycled.carry[i];

        if (c->out != value || c->from != b->stage || !is_read_next(b, c->in) ||
            b->rc != MERAK_OK)
            continue;
        if (c->from == c->to)
            copy(b, c, microbatch);
        else
            merak_build_carry(b, c, microbatch, true);
    }
}
