/* SPDX-License-Identifier: Apache-2.0 */
/* passes.c - several forward passes of a micro-batch
 *
 * Of the graph's forward nodes a pass runs those that somebody reads: all but
 * the last, what the next one's recycled values depend on; the last, what the
 * loss and the gradients do.  Each pass of a micro-batch has slots of its own
 * for its values, and gives them back when it is through, but for the last,
 * whose are kept for the backward.
 *
 * A recycled value moves like one that is made where it is first read: what
 * its output was in the pass before is copied there, or sent by the stage
 * that makes it, and goes on from there to other readers.  In the first pass
 * it is zeros.
 *
 * What comes from a stage that is no neighbour, up the pipeline or back, comes
 * long before it is used.  Were its receive posted then, the sender, who gives
 * up the slot sooner, would wait for the receiver, who waits for others, who
 * wait for the sender.  So it is posted where the schedule, played with
 * forwards of one unit of time and backwards of two, has the sender done; and
 * what goes to a neighbour is kept for as long as the play has it not received.
 * All waits are then along the time of that play, whatever times really are,
 * and cannot close a circle.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "base/error.h"
#include "partitioner/schedule/time.h"

#include <stdlib.h>
#include <string.h>

/* What passes read a value or run a node, as bits. */
enum { PASS_BEFORE = 1, PASS_LAST = 2, PASS_ALL = 3 };

/* What this stage leaves for the next pass, or has left for it. */
struct merak_carry {
    int in, out;  /* values */
    int from, to; /* stages: makes it, reads it first */
    const char *name;
    struct merak_exchange *copy; /* from == to */
};

/* A value that comes early. */
struct merak_early {
    int value, from;
    const struct merak_carry *carry; /* of the pass before; or NULL */
    /* Receives, as the actions that read them: the first to be posted before
     * an action, and the next after each. */
    int *head, *next;
};

static unsigned bit_of(const struct merak_build *b)
{
    return b->pass < b->passes - 1 ? PASS_BEFORE : PASS_LAST;
}

bool merak_build_reads(const struct merak_build *b, int value)
{
    return b->read_in[value] & bit_of(b);
}

bool merak_build_runs_now(const struct merak_build *b, int node)
{
    return b->run_in[node] & bit_of(b);
}

int merak_build_turn(const struct merak_build *b, int microbatch)
{
    return (microbatch * b->passes + b->pass) * b->slices + b->slice;
}

void merak_build_set_pass(struct merak_build *b, const struct merak_action *a)
{
    b->pass = a->kind == MERAK_ACT_F ? a->pass : b->passes - 1;
}

/* --- what is alive -------------------------------------------------------- */

static void read_inputs(struct merak_build *b, const struct merak_node *node,
                        unsigned in)
{
    for (int i = 0; i < node->n_in; i++)
        b->read_in[node->in[i]->id] |= (uint8_t)in;
}

static void mark_last(struct merak_build *b)
{
    for (int n = b->graph->n_nodes - 1; n >= 0; n--) {
        const struct merak_node *node = b->graph->node[n];
        bool runs = node->phase != MERAK_PHASE_F;

        for (int i = 0; i < node->n_out; i++)
            runs = runs || node->out[i] == b->graph->loss ||
                   (b->read_in[node->out[i]->id] & PASS_LAST);
        if (!runs)
            continue;
        b->run_in[n] |= PASS_LAST;
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
        b->run_in[n] |= PASS_BEFORE;
        read_inputs(b, b->graph->node[n], PASS_BEFORE);
    }
}

/* --- between passes ------------------------------------------------------- */

/* Whole to whole, seen as one row. */
static void make_copy(struct merak_build *b, struct merak_carry *c)
{
    const struct merak_value *value = b->graph->value[c->in];
    struct merak_shape row = {1, {merak_shape_count(&value->shape)}};
    struct merak_box *box = merak_build_alloc(b, sizeof(*box));

    c->copy = merak_build_alloc(b, sizeof(*c->copy));
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

    b->read_in = merak_build_alloc(b, values);
    b->run_in = merak_build_alloc(b, nodes);
    b->carry = merak_build_alloc(b, MERAK_MAX_RECYCLED * sizeof(*b->carry));
    if (b->rc != MERAK_OK)
        return;
    if (b->graph->n_recycling == 0) {
        memset(b->read_in, PASS_ALL, values);
        memset(b->run_in, PASS_ALL, nodes);
        return;
    }
    mark_last(b);
    mark_before(b);
    for (int i = 0; i < b->graph->n_recycling && b->rc == MERAK_OK; i++) {
        struct merak_carry *c = &b->carry[b->n_carries];
        int in = b->graph->recycling[i].in->id;
        int out = b->graph->recycling[i].out->id;

        *c = (struct merak_carry){.in = in,
                                  .out = out,
                                  .from = b->stage_of_part[b->flow[out].home],
                                  .to = b->stage_of_part[b->flow[in].home]};
        if (c->from != b->stage && c->to != b->stage)
            continue;
        b->n_carries++;
        name_carry(b, c);
        if (c->from == c->to)
            make_copy(b, c);
    }
}

/* Does the next pass, the one under way being no last one, read it? */
static bool is_read_next(const struct merak_build *b, int value)
{
    return b->read_in[value] &
           (b->pass + 1 < b->passes - 1 ? PASS_BEFORE : PASS_LAST);
}

bool merak_build_is_left(const struct merak_build *b, int value)
{
    bool left = false;

    for (int i = 0; i < b->n_carries && b->pass < b->passes - 1; i++)
        left =
            left || (b->carry[i].out == value && b->carry[i].from == b->stage &&
                     is_read_next(b, b->carry[i].in));
    return left;
}

static void move(struct merak_build *b, const struct merak_carry *c,
                 int microbatch, bool send)
{
    int v = send ? c->out : c->in;
    int reader = b->pass + (send ? 1 : 0);
    struct merak_instr in = {
        .kind = send ? MERAK_INSTR_SEND : MERAK_INSTR_RECV,
        .queue = MERAK_QUEUE_P2P,
        .phase = MERAK_PHASE_F,
        .microbatch = microbatch,
        .pass = b->pass,
        .chunk = b->flow[v].chunk,
        .node = -1,
        .n_in = send ? 1 : 0,
        .n_out = send ? 0 : 1,
        .slot = {merak_build_value(b, v, microbatch)},
        .peer = merak_plan_rank(&b->prog->plan, b->prog->tp_index,
                                b->prog->dp_index, send ? c->to : c->from),
        .tag = merak_build_tag(b, microbatch * b->passes + reader, c->in),
        .name = c->name};

    if (in.slot[0] >= 0)
        merak_build_push(b, &in);
}

static void copy(struct merak_build *b, const struct merak_carry *c,
                 int microbatch)
{
    struct merak_instr in = {.kind = MERAK_INSTR_SLICE,
                             .queue = MERAK_QUEUE_COMPUTE,
                             .phase = MERAK_PHASE_F,
                             .microbatch = microbatch,
                             .pass = b->pass,
                             .chunk = b->flow[c->out].chunk,
                             .node = -1,
                             .exchange = c->copy,
                             .n_in = 1,
                             .n_out = 1,
                             .peer = -1,
                             .name = c->name};

    in.slot[0] = merak_build_value(b, c->out, microbatch);
    b->pass++;
    in.slot[1] = merak_build_value(b, c->in, microbatch);
    b->pass--;
    if (in.slot[0] >= 0 && in.slot[1] >= 0)
        merak_build_push(b, &in);
}

void merak_build_leave(struct merak_build *b, int value, int microbatch)
{
    for (int i = 0; i < b->n_carries && b->pass < b->passes - 1; i++) {
        const struct merak_carry *c = &b->carry[i];

        if (c->out != value || c->from != b->stage || !is_read_next(b, c->in) ||
            b->rc != MERAK_OK)
            continue;
        if (c->from == c->to)
            copy(b, c, microbatch);
        else
            move(b, c, microbatch, true);
    }
}

/* --- when receives are posted --------------------------------------------- */

bool merak_build_is_early(const struct merak_build *b, int value)
{
    return b->passes > 1 && merak_build_is_forward(b, value) &&
           b->flow[value].from >= 0 && b->flow[value].from < b->stage - 1;
}

static void add_early(struct merak_build *b, int value, int from,
                      const struct merak_carry *carry)
{
    b->early[b->n_early++] =
        (struct merak_early){.value = value, .from = from, .carry = carry};
}

static void list_early(struct merak_build *b)
{
    size_t most = (size_t)b->n_local + MERAK_MAX_RECYCLED;

    b->early = merak_build_alloc(b, most * sizeof(*b->early));
    for (int i = 0; i < b->n_local && b->rc == MERAK_OK; i++) {
        if (merak_build_is_early(b, b->local[i]))
            add_early(b, b->local[i], b->flow[b->local[i]].from, NULL);
    }
    for (int i = 0; i < b->n_carries && b->rc == MERAK_OK; i++) {
        const struct merak_carry *c = &b->carry[i];

        if (c->from != c->to && c->to == b->stage)
            add_early(b, c->in, c->from, c);
    }
}

/* Where a stage's list has its actions of a kind:
 * at[microbatch * passes + pass]. */
static void index_actions(const struct merak_timetable_row *row,
                          enum merak_action_kind kind, int passes, int *at)
{
    for (int i = 0; i < row->n; i++) {
        const struct merak_action *a = &row->action[i];

        if (a->kind == kind)
            at[a->microbatch * passes + a->pass] = i;
    }
}

/* One action before the first that starts when the value is sent, or the one
 * that reads it. */
static void find_posts(const struct merak_build *b,
                       const struct merak_timetable *table, const int *at,
                       struct merak_early *e)
{
    const struct merak_timetable_row *from = &table->row[e->from];
    const struct merak_timetable_row *here = &table->row[b->stage];
    int shift = e->carry != NULL ? 1 : 0;

    for (int i = 0; i < here->n; i++)
        e->head[i] = -1;
    for (int k = here->n - 1; k >= 0; k--) {
        const struct merak_action *a = &here->action[k];
        int post = k;
        double sent;

        if (a->kind != MERAK_ACT_F || a->pass < shift)
            continue;
        sent = from->end[at[a->microbatch * b->passes + a->pass - shift]];
        while (post > 0 && here->start[post - 1] >= sent)
            post--;
        if (post > 0)
            post--; /* beside the action before */
        e->next[k] = e->head[post];
        e->head[post] = k;
    }
}

/* For how many actions of this stage what they send to a neighbour is not yet
 * received: that is posted two actions before the one that reads it ends. */
static int lag_to(const struct merak_build *b,
                  const struct merak_timetable *table, int neighbour,
                  enum merak_action_kind kind, int *at)
{
    const struct merak_timetable_row *here = &table->row[b->stage];
    const struct merak_timetable_row *there = &table->row[neighbour];
    int lag = 0;

    index_actions(there, kind, b->passes, at);
    for (int i = 0; i < here->n; i++) {
        const struct merak_action *a = &here->action[i];
        int k = a->kind == kind ? at[a->microbatch * b->passes + a->pass] : 0;
        int until = i + 1;

        while (k > 1 && until < here->n &&
               here->start[until] < there->end[k - 2])
            until++;
        lag = until - i - 1 > lag ? until - i - 1 : lag;
    }
    return lag;
}

static void set_lag(struct merak_build *b, const struct merak_timetable *table,
                    int *at)
{
    int up = 0, down = 0;

    if (b->stage + 1 < table->args.stages)
        up = lag_to(b, table, b->stage + 1, MERAK_ACT_F, at);
    if (b->stage > 0 && !b->opt->forward_only)
        down = lag_to(b, table, b->stage - 1, MERAK_ACT_B, at);
    b->send_lag = up > down ? up : down;
    if (b->send_lag < 1)
        b->send_lag = 1;
}

static void read_play(struct merak_build *b,
                      const struct merak_timetable *table)
{
    size_t turns = (size_t)table->args.microbatches * (size_t)b->passes;
    size_t n = (size_t)table->row[b->stage].n + 1;
    int *at = merak_build_alloc(b, turns * sizeof(*at));

    if (b->rc == MERAK_OK)
        set_lag(b, table, at);
    for (int i = 0; i < b->n_early && b->rc == MERAK_OK; i++) {
        struct merak_early *e = &b->early[i];

        e->head = merak_build_alloc(b, n * sizeof(*e->head));
        e->next = merak_build_alloc(b, n * sizeof(*e->next));
        if (b->rc != MERAK_OK)
            return;
        index_actions(&table->row[e->from], MERAK_ACT_F, b->passes, at);
        find_posts(b, table, at, e);
    }
}

static void play(struct merak_build *b, struct merak_timetable *table)
{
    size_t bytes = (size_t)table->n_parts * sizeof(double);
    double *f = merak_build_alloc(b, bytes);
    double *back = merak_build_alloc(b, bytes);
    struct merak_schedule_cost cost = {.f = f, .b = back};

    for (int p = 0; p < table->n_parts && b->rc == MERAK_OK; p++) {
        f[p] = 1;
        back[p] = 2;
    }
    if (b->rc == MERAK_OK)
        merak_build_fail(b, merak_timetable_run(table, &cost, b->err));
}

void merak_build_posts(struct merak_build *b)
{
    struct merak_schedule_args args =
        merak_plan_schedule_args(&b->prog->plan, 0);
    struct merak_timetable *table = NULL;

    if (b->passes == 1 || args.stages == 1)
        return;
    list_early(b);
    if (b->rc != MERAK_OK)
        return;
    merak_build_fail(
        b, merak_timetable_create(b->schedule, &args, &table, b->err));
    if (b->rc != MERAK_OK)
        return;
    if (b->opt->forward_only)
        merak_timetable_forward(table);
    play(b, table);
    if (b->rc == MERAK_OK)
        read_play(b, table);
    merak_timetable_destroy(table);
}

void merak_build_arrive(struct merak_build *b, const struct merak_action *list,
                        int at)
{
    for (int i = 0; i < b->n_early; i++) {
        const struct merak_early *e = &b->early[i];

        for (int k = e->head[at]; k >= 0 && b->rc == MERAK_OK; k = e->next[k]) {
            merak_build_set_pass(b, &list[k]);
            if (!merak_build_reads(b, e->value))
                continue;
            if (e->carry != NULL)
                move(b, e->carry, list[k].microbatch, false);
            else
                merak_build_transfer(b, e->value, list[k].microbatch, false);
        }
    }
}
