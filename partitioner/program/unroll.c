/* SPDX-License-Identifier: Apache-2.0 */
/* unroll.c - a schedule's actions, written out as instructions
 *
 * Receives stand one action before the one that uses them, so that a
 * transfer runs beside the compute before it.
 *
 * With a sub-pipeline an action is about two micro-batches, 2i and 2i + 1.
 * Their lists of nodes are cut behind every exchange and zipped: while one's
 * exchange is under way the other's next segment computes, across the layers
 * of the action, forward and backward.  Of the two the lower always comes
 * first, so that gradients are summed as without it, to the bit.  A forward
 * that begins with an exchange (of embeddings) would have nothing to hide it
 * behind: that much of it is run among the last segments of the action before.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct unroll {
    struct merak_build *b;
    struct merak_action *action;
    int n;
    int width;   /* micro-batches of an action */
    bool *early; /* by chunk and action's micro-batch: it has an R */
    int *made;   /* by chunk: micro-batches whose weight gradients are in */
    int led;     /* items of the current action that its forerunner ran */
};

/* Segments that a lead-in has behind it, the one it stands before counted. */
#define LEAD_SEGMENTS 2

static bool moves_in(const struct merak_build *b, int value,
                     const struct merak_action *a)
{
    bool forward = merak_build_is_forward(b, value);

    if (b->slices > 1 && a->slice < b->slices - 1 &&
        !merak_build_is_sliced(b, value))
        return false; /* with the last slice */
    return merak_build_reads(b, value) && b->flow[value].chunk == a->chunk &&
           a->kind == (forward ? MERAK_ACT_F : MERAK_ACT_B);
}

/* Everything another stage made that this action is the first to need. */
static void post_receives(const struct unroll *u, const struct merak_action *a)
{
    struct merak_build *b = u->b;

    b->slice = a->slice;
    merak_build_set_pass(b, a);
    for (int i = 0; i < b->n_local && b->rc == MERAK_OK; i++) {
        int v = b->local[i];

        for (int h = 0; h < u->width; h++) {
            if (b->flow[v].from >= 0 && moves_in(b, v, a) &&
                !merak_build_is_early(b, v))
                merak_build_transfer(b, v, a->microbatch * u->width + h, false);
        }
    }
}

/* What of it came in parts. */
static void gather_parts(const struct unroll *u, const struct merak_action *a)
{
    struct merak_build *b = u->b;

    for (int i = 0; i < b->n_local && b->rc == MERAK_OK; i++) {
        int v = b->local[i];

        for (int h = 0; h < u->width; h++) {
            if (b->flow[v].parts_from && moves_in(b, v, a))
                merak_build_gather(b, v, a->microbatch * u->width + h);
        }
    }
}

static bool was_here_before(const struct merak_build *b, int value)
{
    return b->flow[value].from >= 0 ||
           b->graph->value[value]->kind == MERAK_VALUE_RECYCLED;
}

/* Values on their way past this stage's last use of them go on at once, and
 * recycled ones from where they are read first. */
static void pass_on(const struct unroll *u, const struct merak_action *a)
{
    struct merak_build *b = u->b;

    for (int i = 0; i < b->n_local && b->rc == MERAK_OK; i++) {
        int v = b->local[i];

        for (int h = 0; h < u->width; h++) {
            if (was_here_before(b, v) && b->flow[v].to >= 0 &&
                moves_in(b, v, a))
                merak_build_transfer(b, v, a->microbatch * u->width + h, true);
        }
    }
}

/* What a pass begins with that nobody made: the first one's recycled values
 * are zeros. */
static bool is_loaded(const struct merak_build *b, int value)
{
    if (b->graph->value[value]->kind == MERAK_VALUE_RECYCLED)
        return b->pass == 0 && b->flow[value].from < 0;
    return b->graph->value[value]->kind == MERAK_VALUE_INPUT;
}

static void load_inputs(const struct unroll *u, const struct merak_action *a)
{
    struct merak_build *b = u->b;

    for (int i = 0; i < b->n_local && b->rc == MERAK_OK; i++) {
        int v = b->local[i];

        for (int h = 0; h < u->width; h++) {
            if (is_loaded(b, v) && moves_in(b, v, a))
                merak_build_load(b, v, a->microbatch * u->width + h);
        }
    }
}

/* The instruction that received a value, not long ago. */
static int find_receive(const struct merak_build *b, int slot, int microbatch)
{
    for (int i = b->prog->n_instrs - 1; i >= 0; i--) {
        const struct merak_instr *in = &b->prog->instr[i];

        if (in->kind == MERAK_INSTR_RECV && in->slot[0] == slot &&
            in->microbatch == microbatch)
            return i;
    }
    return -1;
}

/* Recomputation that is B's first half waits for B's gradient: it takes the
 * place that the schedule gives it. */
static void wait_for_gradient(const struct unroll *u,
                              const struct merak_action *a, int microbatch)
{
    struct merak_build *b = u->b;

    for (int i = 0; i < b->n_local && b->rc == MERAK_OK; i++) {
        int v = b->local[i], early;

        if (b->flow[v].from < 0 || !moves_in(b, v, a))
            continue;
        early = find_receive(b, merak_build_moved(b, v, microbatch, false),
                             microbatch);
        if (early >= 0 && merak_build_grow(b, (void **)&b->gate, &b->cap_gates,
                                           b->n_gates, sizeof(*b->gate)))
            b->gate[b->n_gates++] =
                (struct merak_gate){b->prog->n_instrs, early};
    }
}

static const struct merak_items *items_of(const struct unroll *u,
                                          const struct merak_action *a)
{
    const struct merak_chunk *chunk = &u->b->chunk[a->chunk];
    int m = u->b->prog->plan.microbatches / u->width;

    if (a->kind == MERAK_ACT_B && !u->early[a->chunk * m + a->microbatch])
        return &chunk->mixed;
    return &chunk->run[a->kind];
}

/* The first slice to give gradients reads what all before it computed: it
 * recomputes for all of them. */
static void run_again(struct merak_build *b, const struct merak_item *item,
                      int chunk, int microbatch)
{
    if (!merak_build_first_back(b))
        return;
    for (b->slice = 0; b->slice < b->slices; b->slice++)
        merak_build_node(b, item, chunk, microbatch);
    b->slice = b->slices - 1;
}

static bool is_exchange(const struct merak_build *b, int node)
{
    return b->sharded->hop[node].kind != MERAK_CONVERT_NONE &&
           b->sharded->hop[node].kind != MERAK_CONVERT_SLICE;
}

/* Where the segment that begins at `at` ends: behind its exchange. */
static int segment_end(const struct merak_build *b,
                       const struct merak_items *items, int at)
{
    while (at < items->n && !is_exchange(b, items->item[at].node))
        at++;
    return at < items->n ? at + 1 : at;
}

static void run_segment(const struct unroll *u, const struct merak_action *a,
                        const struct merak_items *items, int at, int end,
                        int microbatch)
{
    struct merak_build *b = u->b;

    for (; at < end && b->rc == MERAK_OK; at++) {
        const struct merak_item *item = &items->item[at];

        if (at == 0 && item->again && a->kind == MERAK_ACT_B &&
            merak_build_first_back(b))
            wait_for_gradient(u, a, microbatch);
        if (item->again)
            run_again(b, item, a->chunk, microbatch);
        else
            merak_build_node(b, item, a->chunk, microbatch);
    }
}

/* The items of `next` that can be run before it is its turn. */
static int lead_of(const struct unroll *u, const struct merak_action *next)
{
    const struct merak_items *items;
    int end;

    if (u->width == 1 || next == NULL || next->kind != MERAK_ACT_F ||
        u->b->chunk[next->chunk].part != 0)
        return 0;
    items = items_of(u, next);
    end = segment_end(u->b, items, 0);
    return end < items->n ? end : 0;
}

/* The segment that a lead-in stands before. */
static int lead_place(const struct unroll *u, const struct merak_items *items)
{
    int start[LEAD_SEGMENTS] = {0}, n = 0;

    for (int at = u->led; at < items->n; at = segment_end(u->b, items, at))
        start[n++ % LEAD_SEGMENTS] = at;
    return n <= LEAD_SEGMENTS ? u->led : start[n % LEAD_SEGMENTS];
}

static void run_items(struct unroll *u, const struct merak_action *a,
                      const struct merak_action *next)
{
    const struct merak_items *items = items_of(u, a);
    int lead = items->n > 0 ? lead_of(u, next) : 0;
    int place = lead_place(u, items), end;

    if (lead > 0)
        load_inputs(u, next);
    for (int at = u->led; at < items->n && u->b->rc == MERAK_OK; at = end) {
        end = segment_end(u->b, items, at);
        for (int h = 0; h < u->width; h++) {
            if (at == place && lead > 0)
                run_segment(u, next, items_of(u, next), 0, lead,
                            next->microbatch * u->width + h);
            run_segment(u, a, items, at, end, a->microbatch * u->width + h);
        }
    }
    u->led = lead;
}

/* The kinds of actions that need not come any more, as bits. */
static unsigned done_after(const struct merak_build *b,
                           enum merak_action_kind kind)
{
    unsigned done = 1u << kind;

    if (b->opt->forward_only || b->pass < b->passes - 1)
        return (1u << MERAK_ACTIONS) - 1;
    if (kind == MERAK_ACT_B) {
        done |= 1u << MERAK_ACT_R;
        if (!b->schedule->splits_w)
            done |= 1u << MERAK_ACT_W;
    }
    return done;
}

/* Weight gradients are summed in ascending order of micro-batches whatever
 * the schedule. */
static void check_order(const struct unroll *u, const struct merak_action *a)
{
    enum merak_action_kind kind =
        u->b->schedule->splits_w ? MERAK_ACT_W : MERAK_ACT_B;

    if (a->kind != kind || !merak_build_first_back(u->b) ||
        a->microbatch == u->made[a->chunk]++)
        return;
    merak_build_fail(u->b, merak_fail(u->b->err, MERAK_ERR_UNSUPPORTED,
                                      "schedule %s: weight gradients of "
                                      "micro-batch %d come out of order",
                                      u->b->schedule->name, a->microbatch));
}

static void run_action(struct unroll *u, const struct merak_action *a,
                       const struct merak_action *next)
{
    struct merak_build *b = u->b;

    b->slice = a->slice;
    merak_build_set_pass(b, a);
    check_order(u, a);
    if (a->kind == MERAK_ACT_F && a->slice == 0 && u->led == 0)
        load_inputs(u, a);
    pass_on(u, a);
    gather_parts(u, a);
    run_items(u, a, next);
    /* Slices share their micro-batch's slots. */
    if (b->rc == MERAK_OK &&
        a->slice == (a->kind == MERAK_ACT_F ? b->slices - 1 : 0))
        merak_build_release(b, a->chunk, done_after(b, a->kind),
                            a->microbatch * u->width, u->width);
}

static void run_actions(struct unroll *u)
{
    struct merak_build *b = u->b;

    for (int i = 0; i < u->n && b->rc == MERAK_OK; i++) {
        if (i == 0)
            post_receives(u, &u->action[0]);
        if (i + 1 < u->n)
            post_receives(u, &u->action[i + 1]);
        merak_build_arrive(b, u->action, i);
        run_action(u, &u->action[i], i + 1 < u->n ? &u->action[i + 1] : NULL);
    }
    merak_build_settle(b);
}

static bool unroll_init(struct unroll *u)
{
    struct merak_build *b = u->b;
    const struct merak_plan *plan = &b->prog->plan;
    struct merak_schedule_args args =
        merak_plan_schedule_args(plan, b->prog->stage);
    size_t m = (size_t)args.microbatches;

    u->width = plan->sub_pipeline ? 2 : 1;
    u->n = merak_schedule_count(b->schedule, &args);
    u->action = merak_build_alloc(b, ((size_t)u->n + 1) * sizeof(*u->action));
    u->early = merak_build_alloc(b, (size_t)b->n_chunks * m);
    u->made = merak_build_alloc(b, (size_t)b->n_chunks * sizeof(*u->made));
    if (b->rc != MERAK_OK)
        return false;
    merak_schedule_fill(b->schedule, &args, u->action);
    if (b->opt->forward_only) /* evaluation */
        u->n = merak_actions_forward(u->action, u->n);
    for (int i = 0; i < u->n; i++) {
        if (u->action[i].kind == MERAK_ACT_R)
            u->early[u->action[i].chunk * args.microbatches +
                     u->action[i].microbatch] = true;
    }
    return true;
}

void merak_build_microbatches(struct merak_build *b)
{
    struct unroll u = {.b = b};

    merak_build_loss(b);
    if (unroll_init(&u))
        run_actions(&u);
}
