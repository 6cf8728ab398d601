/* SPDX-License-Identifier: Apache-2.0 */
/* unroll.c - a schedule's actions, written out as instructions
 *
 * Receives are posted one action before the one that uses them, so that a
 * transfer overlaps with the compute before it; or earlier (posts.c).
 *
 * With a sub-pipeline an action runs two micro-batches, 2i and 2i + 1.  Their
 * lists of nodes are interleaved (pairs.c): while one communicates the other
 * computes, across the layers of the action, forward and backward.  Of the two
 * the lower always comes first, so that gradients are summed bitwise as without
 * a sub-pipeline.  A forward that begins with an exchange (of embeddings) would
 * have nothing to overlap it with: that much of it is run towards the end of
 * the previous action.
 */
#include "config.h"

#include "partitioner/program/build.h"
#include "partitioner/program/pairs.h"
#include "partitioner/program/visits.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* The order of a pair's halves in a list of items, from `from` on. */
struct interleaving {
    const struct merak_items *items;
    int from, lead;
    struct merak_pair_step *order;
    struct interleaving *next;
};

struct unroll {
    struct merak_build *b;
    struct interleaving *interleaving; /* those made so far */
    struct merak_action *action;
    int n;
    int width;   /* micro-batches of an action */
    bool *early; /* by chunk and action's micro-batch: it has an R */
    int *made;   /* by chunk: micro-batches whose weight gradients are made */
    int lead;    /* items of part 0's F that can run ahead; -1: not known */
    int led;     /* items of the current action that the previous one ran */
    struct merak_visits visits, next; /* of the current action; of the next */
};

bool merak_build_moves_in(const struct merak_build *b, int value,
                          const struct merak_action *a)
{
    bool forward = merak_build_is_forward(b, value);

    if (b->slice.n > 1 && a->slice < b->slice.n - 1 &&
        !merak_build_is_sliced(b, value))
        return false; /* with the last slice */
    return merak_build_reads(b, value) && b->flow[value].chunk == a->chunk &&
           a->kind == (forward ? MERAK_ACT_F : MERAK_ACT_B);
}

/* Move the values that an action needs and that `wants` names, for all its
 * micro-batches. */
static void move_each(const struct unroll *u, const struct merak_action *a,
                      bool (*wants)(const struct merak_build *b, int value),
                      void (*move)(struct merak_build *b, int value,
                                   int microbatch))
{
    struct merak_build *b = u->b;

    for (int i = 0; i < b->n_local && b->rc == MERAK_OK; i++) {
        int v = b->local[i];

        if (!wants(b, v) || !merak_build_moves_in(b, v, a))
            continue;
        for (int h = 0; h < u->width; h++)
            move(b, v, a->microbatch * u->width + h);
    }
}

static bool comes(const struct merak_build *b, int value)
{
    return b->flow[value].from >= 0;
}

static void receive(struct merak_build *b, int value, int microbatch)
{
    merak_build_transfer(b, value, microbatch, false);
}

/* Receive all that another stage made and this action is the first to need. */
static void post_receives(const struct unroll *u, const struct merak_action *a)
{
    u->b->now.slice = a->slice;
    merak_build_set_pass(u->b, a);
    move_each(u, a, comes, receive);
}

static bool comes_in_parts(const struct merak_build *b, int value)
{
    return b->flow[value].parts_from || b->flow[value].in != NULL;
}

/* What came from the previous pass. */
static void take_carried(const struct unroll *u, const struct merak_action *a)
{
    for (int h = 0; h < u->width; h++)
        merak_build_carried(u->b, a, a->microbatch * u->width + h);
}

/* Received values that other stages need go on at once, and recycled ones from
 * where they are read first. */
static bool goes_on(const struct merak_build *b, int value)
{
    return b->flow[value].to >= 0 &&
           (b->flow[value].from >= 0 ||
            b->graph->value[value]->kind == MERAK_VALUE_RECYCLED);
}

static void pass_on(struct merak_build *b, int value, int microbatch)
{
    merak_build_transfer(b, value, microbatch, true);
}

/* Does a pass begin with this value, which no node makes?  The first pass's
 * recycled values are zeros. */
static bool is_loaded(const struct merak_build *b, int value)
{
    if (b->graph->value[value]->kind == MERAK_VALUE_RECYCLED)
        return b->now.pass == 0 && b->flow[value].from < 0;
    return b->graph->value[value]->kind == MERAK_VALUE_INPUT;
}

/* The latest instruction that received a value. */
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

/* Recomputation that is the first half of B waits for B's gradient, as the
 * schedule assumes. */
static void wait_for_gradient(const struct unroll *u,
                              const struct merak_action *a, int microbatch)
{
    struct merak_build *b = u->b;

    for (int i = 0; i < b->n_local && b->rc == MERAK_OK; i++) {
        int v = b->local[i], early;

        if (b->flow[v].from < 0 || !merak_build_moves_in(b, v, a))
            continue;
        early = find_receive(b, merak_build_moved(b, v, microbatch, false),
                             microbatch);
        if (early >= 0 && merak_build_grow(b, &b->gates.gate, &b->gates.cap,
                                           b->gates.n, sizeof(*b->gates.gate)))
            b->gates.gate[b->gates.n++] =
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

/* The first slice to give gradients reads what all slices before it computed,
 * so it recomputes for all of them. */
static void run_again(struct merak_build *b, const struct merak_item *item,
                      int chunk, int microbatch)
{
    const struct merak_node *node = b->graph->node[item->node];

    if (!merak_build_first_back(b))
        return;
    if (merak_build_is_brought(b, node)) {
        merak_build_bring(b, node, microbatch);
        return;
    }
    for (b->now.slice = 0; b->now.slice < b->slice.n; b->now.slice++)
        merak_build_node(b, item, chunk, microbatch);
    b->now.slice = b->slice.n - 1;
}

/* The kinds of actions that do not come any more, as bits. */
static unsigned done_after(const struct merak_build *b,
                           enum merak_action_kind kind)
{
    unsigned done = 1u << kind;

    if (b->opt->forward_only || b->now.pass < b->passes - 1)
        return (1u << MERAK_ACTIONS) - 1;
    if (kind == MERAK_ACT_B) {
        done |= 1u << MERAK_ACT_R;
        if (!b->schedule->splits_w)
            done |= 1u << MERAK_ACT_W;
    }
    return done;
}

/* Item `at` of the action's list, for one of its micro-batches. */
static void run_item(const struct unroll *u, const struct merak_action *a,
                     int at, int half)
{
    struct merak_build *b = u->b;
    const struct merak_item *item = &items_of(u, a)->item[at];
    int microbatch = a->microbatch * u->width + half;

    if (b->rc != MERAK_OK)
        return;
    b->now.items = items_of(u, a);
    b->now.chunk = a->chunk;
    b->now.ends = done_after(b, a->kind);
    if (at == 0 && item->recompute && a->kind == MERAK_ACT_B &&
        merak_build_first_back(b))
        wait_for_gradient(u, a, microbatch);
    if (item->recompute)
        run_again(b, item, a->chunk, microbatch);
    else
        merak_build_node(b, item, a->chunk, microbatch);
}

/* The nodes of items [from, to). */
static int *nodes_of(struct merak_build *b, const struct merak_items *items,
                     int from, int to)
{
    int *node = merak_build_alloc(b, ((size_t)(to - from) + 1) * sizeof(*node));

    for (int i = from; i < to && node != NULL; i++)
        node[i - from] = items->item[i].node;
    return node;
}

/* How many items of `next` can run before it is its turn. */
static int lead_of(struct unroll *u, const struct merak_action *next)
{
    struct merak_build *b = u->b;
    const struct merak_items *items;

    if (u->width == 1 || next == NULL || next->kind != MERAK_ACT_F ||
        b->chunk[next->chunk].part != 0)
        return 0;
    items = items_of(u, next);
    if (u->lead < 0) {
        int *node = nodes_of(b, items, 0, items->n);

        u->lead =
            b->rc != MERAK_OK ? 0 : merak_pair_lead(b->sharded, node, items->n);
        if (u->lead == items->n)
            u->lead = 0;
    }
    return u->lead;
}

/* The order of a pair's halves in a list from its item `from` on, and in the
 * first `lead` of the next; made once. */
static const struct merak_pair_step *
order_of(struct unroll *u, const struct merak_items *items, int from,
         const struct merak_items *next, int lead)
{
    struct merak_build *b = u->b;
    struct merak_pair_list list = {.n = items->n - from, .n_lead = lead};
    struct interleaving *z;

    for (z = u->interleaving; z != NULL; z = z->next) {
        if (z->items == items && z->from == from && z->lead == lead)
            return z->order;
    }
    z = merak_build_alloc(b, sizeof(*z));
    list.node = nodes_of(b, items, from, items->n);
    list.lead = lead > 0 ? nodes_of(b, next, 0, lead) : NULL;
    if (b->rc != MERAK_OK)
        return NULL;
    *z = (struct interleaving){items, from, lead, NULL, u->interleaving};
    z->order = merak_build_alloc(b, (2 * (size_t)(list.n + lead) + 1) *
                                        sizeof(*z->order));
    if (z->order != NULL)
        merak_build_fail(b,
                         merak_pair_order(b->sharded, &list, z->order, b->err));
    u->interleaving = z;
    return z->order;
}

/* The visits of a pair's items, in their order. */
static void find_visits(struct unroll *u, const struct merak_action *a,
                        const struct merak_action *next,
                        const struct merak_pair_step *order, int n)
{
    struct merak_items items = {.n = n};

    if (u->b->prog->plan.zero < MERAK_ZERO_PARAMS)
        return;
    items.item = merak_build_alloc(u->b, ((size_t)n + 1) * sizeof(*items.item));
    if (items.item == NULL)
        return;
    for (int i = 0; i < n; i++)
        items.item[i] = order[i].next
                            ? items_of(u, next)->item[order[i].at]
                            : items_of(u, a)->item[u->led + order[i].at];
    merak_build_visits(u->b, &items, &u->visits);
}

/* Run two micro-batches, and the first `lead` items of the next two. */
static void run_pair(struct unroll *u, const struct merak_action *a,
                     const struct merak_action *next, int lead)
{
    const struct merak_items *items = items_of(u, a);
    const struct merak_pair_step *order =
        order_of(u, items, u->led, lead > 0 ? items_of(u, next) : NULL, lead);
    int n = 2 * (items->n - u->led + lead);

    if (u->b->rc == MERAK_OK)
        find_visits(u, a, next, order, n);
    for (int i = 0; i < n && u->b->rc == MERAK_OK; i++) {
        merak_build_visit(u->b, &u->visits, i, &u->next);
        if (order[i].next)
            run_item(u, next, order[i].at, order[i].half);
        else
            run_item(u, a, u->led + order[i].at, order[i].half);
    }
}

/* What the next action reads; the current one's slice and pass stay. */
static void look_ahead(struct unroll *u, const struct merak_action *a,
                       const struct merak_action *next)
{
    struct merak_visits now = u->visits;

    u->visits = u->next;
    u->next = now;
    u->visits.at = u->next.n = 0;
    if (next == NULL)
        return;
    merak_build_set_pass(u->b, next);
    merak_build_visits(u->b, items_of(u, next), &u->next);
    u->next.microbatch = next->microbatch * u->width;
    merak_build_set_pass(u->b, a);
}

static void run_items(struct unroll *u, const struct merak_action *a,
                      const struct merak_action *next)
{
    const struct merak_items *items = items_of(u, a);
    int lead = items->n > 0 ? lead_of(u, next) : 0;

    if (lead > 0)
        move_each(u, next, is_loaded, merak_build_load);
    if (u->width > 1)
        run_pair(u, a, next, lead);
    for (int at = 0; at < items->n && u->width == 1; at++) {
        merak_build_visit(u->b, &u->visits, at, &u->next);
        run_item(u, a, at, 0);
    }
    merak_build_visits_end(u->b, &u->visits);
    u->led = lead;
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

    b->now.slice = a->slice;
    merak_build_set_pass(b, a);
    check_order(u, a);
    if (a->kind == MERAK_ACT_F && a->slice == 0 && u->led == 0)
        move_each(u, a, is_loaded, merak_build_load);
    take_carried(u, a);
    move_each(u, a, comes_in_parts,
              merak_build_gather); /* what is passed on from here is sent whole,
     or in parts that nothing overwrites */
    move_each(u, a, goes_on, pass_on);
    look_ahead(u, a, next);
    run_items(u, a, next);
    merak_build_delayed_reduces(b);
    /* Slices share their micro-batch's slots. */
    if (b->rc == MERAK_OK &&
        a->slice == (a->kind == MERAK_ACT_F ? b->slice.n - 1 : 0))
        merak_build_release(b, a->chunk, done_after(b, a->kind),
                            a->microbatch * u->width, u->width);
}

static void run_actions(struct unroll *u)
{
    struct merak_build *b = u->b;

    for (int i = 0; i < u->n && b->rc == MERAK_OK; i++) {
        if (i == 0)
            look_ahead(u, &u->action[0], &u->action[0]);
        if (i == 0 && !b->arrivals.plays)
            post_receives(u, &u->action[0]);
        if (i + 1 < u->n && !b->arrivals.plays)
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
    u->lead = -1;
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
    merak_build_reports(b);
    if (unroll_init(&u))
        run_actions(&u);
    merak_visits_fini(&u.visits);
    merak_visits_fini(&u.next);
}
