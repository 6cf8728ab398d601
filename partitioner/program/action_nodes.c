/* SPDX-License-Identifier: Apache-2.0 */
/* action_nodes.c - which nodes each action of a part runs, and what is
 * recomputed
 *
 * A block is what lies between two neighbouring points where the graph may
 * be cut: in a transformer the attention or the MLP of a layer with its norm
 * and residual addition.  If a block is recomputed, a value that stays inside
 * is dropped after the forward.  One that another block's forward also uses is
 * kept with all outputs of its node, and so is the result of a collective that
 * is no larger than its input: to recompute it would repeat the collective and
 * save nothing.  So only gathers among a block's collectives are ever run
 * again.
 *
 * Of what was dropped, the nodes that gradients need, directly or through
 * other dropped values, run again: the same kernels on the same inputs, with
 * dropout masks that are functions of counters, so the bits are the same.  The
 * last linear of a block, for example, is not among them.
 *
 * An action R runs all of these nodes of a part again.  Without one, B runs
 * a block's just before the first gradient that reads any of it: at most one
 * block is held recomputed at a time.
 */
#include "config.h"

#include "partitioner/program/build.h"
#include "partitioner/program/closure.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* What of one part is dropped and recomputed. */
struct recomputed {
    struct merak_build *b;
    const struct merak_chunk *chunk;
    int first_block;   /* of the part */
    bool *node; /* by node: runs again, or what it made is brought back */
    const bool *moves; /* by node: a conversion for weight gradients of other
                          parts, too */
};

static const struct merak_node *producer_of(const struct merak_build *b,
                                            const struct merak_value *value)
{
    return value->producer < 0 ? NULL : b->graph->node[value->producer];
}

static bool is_here(const struct merak_build *b,
                    const struct merak_chunk *chunk, int node)
{
    return b->stages->of_node[node] == chunk->part;
}

static bool closure_is_here(const void *arg, int node)
{
    const struct recomputed *a = arg;

    return is_here(a->b, a->chunk, node) &&
           !merak_fold_is_early(&a->b->fold, a->b->graph->node[node]);
}

static bool closure_drops(const void *arg, int node)
{
    const struct recomputed *a = arg;
    const struct merak_drop *drop = &a->b->stages->drop[a->chunk->part];
    const struct merak_fold *fold = &a->b->fold;
    int block = a->b->stages->block[node] - a->first_block;

    if (fold->pieces > 1 && fold->of[node] >= 0)
        return merak_fold_is_again(fold, a->b->graph->node[node]);
    return block < drop->blocks ||
           (drop->attention &&
            merak_op_is_attention(a->b->graph->node[node]->op));
}

/* Where does a forward last read a value, or else make it? */
static void note_last_reader(struct recomputed *a, int v)
{
    const struct merak_graph *graph = a->b->graph;
    int *after = &a->b->flow[v].away_after;

    *after = graph->value[v]->producer;
    for (int n = *after + 1; n < graph->n_nodes; n++) {
        const struct merak_node *node = graph->node[n];

        for (int i = 0; i < node->n_in && node->phase == MERAK_PHASE_F; i++)
            *after = node->in[i]->id == v ? n : *after;
    }
}

/* Is what a node made run again, not brought back? */
static bool runs_again(const struct recomputed *a, int node)
{
    const struct merak_build *b = a->b;

    return b->sharded->hop[node].kind != MERAK_CONVERT_NONE ||
           merak_fold_is_again(&b->fold, b->graph->node[node]) ||
           merak_drop_is_again(&b->stages->drop[a->chunk->part],
                               b->stages->block[node] - a->first_block);
}

/* What is dropped is brought back from the host's memory, that is what
 * gradients read of it, and only exchanges that they need, and blocks that are
 * not offloaded, run again: of `dropped` leave such values, of nodes such. */
static void leave_brought(struct recomputed *a, bool *dropped)
{
    const struct merak_build *b = a->b;
    size_t values = (size_t)b->graph->n_values + 1;
    bool *read = merak_build_alloc(a->b, values * sizeof(*read));

    for (int n = b->graph->n_nodes - 1; n >= 0 && read != NULL; n--) {
        const struct merak_node *node = b->graph->node[n];
        bool runs = node->phase != MERAK_PHASE_F, made = false, again;

        if (!closure_is_here(a, n))
            continue;
        again = !runs && runs_again(a, n);
        for (int i = 0; i < node->n_out; i++)
            made = made || read[node->out[i]->id];
        a->node[n] = a->node[n] && made;
        for (int i = 0; i < node->n_out && a->node[n] && !again; i++) {
            if (read[node->out[i]->id])
                note_last_reader(a, node->out[i]->id);
        }
        for (int i = 0; i < node->n_in && (runs || (a->node[n] && again)); i++)
            read[node->in[i]->id] = dropped[node->in[i]->id];
    }
    for (int v = 0; v < b->graph->n_values && read != NULL; v++)
        dropped[v] = read[v];
}

static void find_recomputed(struct recomputed *a)
{
    struct merak_build *b = a->b;
    size_t values = (size_t)b->graph->n_values + 1;
    struct merak_closure closure = {
        .sharded = b->sharded,
        .block = b->stages->block,
        .crosses = merak_build_alloc(b, values * sizeof(bool)),
        .is_here = closure_is_here,
        .drops = closure_drops,
        .arg = a,
        .recompute = a->node,
        .dropped = merak_build_alloc(b, values * sizeof(bool))};

    if (b->rc != MERAK_OK)
        return;
    merak_closure_find_crossings(&closure);
    for (int v = 0; v < b->graph->n_values && b->fold.pieces > 1; v++)
        closure.crosses[v] = closure.crosses[v] && !b->fold.inner[v];
    merak_closure_find(&closure);
    if (merak_plan_offloads_acts(&b->prog->plan))
        leave_brought(a, closure.dropped);
    for (int v = 0; v < b->graph->n_values; v++)
        b->flow[v].dropped = b->flow[v].dropped || closure.dropped[v];
}

static void add_item(struct merak_items *items, int node, bool recompute)
{
    items->item[items->n++] = (struct merak_item){node, recompute, -1};
}

static bool is_folded(const struct merak_build *b, int node)
{
    return b->fold.pieces > 1 && b->fold.of[node] >= 0;
}

/*
 * Values go from stage to stage only with F and B.  A conversion for the weight
 * gradients of several parts therefore runs in B: the W of its own part may be
 * deferred by the schedule until long after the others' B and W.  So does one
 * for weight gradients that are made piece by piece.
 */
static const bool *find_moving(struct merak_build *b)
{
    const struct merak_graph *graph = b->graph;
    bool *moves = merak_build_alloc(b, (size_t)graph->n_nodes + 1);

    for (int n = graph->n_nodes - 1; n >= 0 && moves != NULL; n--) {
        const struct merak_node *node = graph->node[n];

        for (int i = 0; i < node->n_in; i++) {
            const struct merak_node *from = producer_of(b, node->in[i]);

            if (from != NULL && from->phase == MERAK_PHASE_W &&
                b->sharded->hop[from->id].kind != MERAK_CONVERT_NONE &&
                (moves[n] || is_folded(b, n) ||
                 b->stages->of_node[from->id] != b->stages->of_node[n]))
                moves[from->id] = true;
        }
    }
    return moves;
}

static enum merak_action_kind action_of(const struct recomputed *a,
                                        const struct merak_node *node)
{
    if (node->phase == MERAK_PHASE_F)
        return MERAK_ACT_F;
    /* what a piece has is gone when the next one runs */
    return node->phase == MERAK_PHASE_W && a->b->schedule->splits_w &&
                   !a->moves[node->id] && !is_folded(a->b, node->id)
               ? MERAK_ACT_W
               : MERAK_ACT_B;
}

static void note_uses(struct merak_chunk *chunk, const struct merak_node *node,
                      enum merak_action_kind kind)
{
    for (int i = 0; i < node->n_in; i++)
        chunk->use[node->in[i]->id] |= (uint8_t)(1u << kind);
}

/* Add the nodes of the loop that runs in the place of this one, for each
 * piece. */
static void add_loop(const struct recomputed *a, struct merak_chunk *chunk,
                     const struct merak_node *place)
{
    const struct merak_build *b = a->b;
    const bool forward = place->phase == MERAK_PHASE_F;
    const int logits = b->fold.at[place->id];
    const enum merak_action_kind kind = forward ? MERAK_ACT_F : MERAK_ACT_B;
    struct merak_items *items = &chunk->run[kind];

    for (int piece = 0; piece < b->fold.pieces; piece++) {
        for (int n = 0; n < b->graph->n_nodes; n++) {
            const struct merak_node *node = b->graph->node[n];
            bool again = !forward && merak_fold_is_again(&b->fold, node);
            bool early = merak_fold_is_early(&b->fold, node);

            if (b->fold.of[n] != logits ||
                (early ? b->opt->forward_only
                       : (node->phase == MERAK_PHASE_F) != forward && !again))
                continue;
            items->item[items->n++] = (struct merak_item){n, again, piece};
            note_uses(chunk, node, kind);
        }
    }
}

static void fill_lists(struct recomputed *a, struct merak_chunk *chunk)
{
    const struct merak_build *b = a->b;

    for (int n = 0; n < b->graph->n_nodes; n++) {
        const struct merak_node *node = b->graph->node[n];
        enum merak_action_kind kind = action_of(a, node);

        if (!is_here(b, chunk, n))
            continue;
        if (b->fold.pieces > 1 && b->fold.at[n] >= 0)
            add_loop(a, chunk, node);
        if (is_folded(b, n))
            continue;
        add_item(&chunk->run[kind], n, false);
        note_uses(chunk, node, kind);
        if (a->node[n]) {
            add_item(&chunk->run[MERAK_ACT_R], n, true);
            if (!merak_build_is_brought(b, node))
                note_uses(chunk, node, MERAK_ACT_R);
        }
    }
}

/* Add the nodes of a block that run again, unless that was done. */
static void mix_block(const struct recomputed *a, struct merak_chunk *chunk,
                      int block, bool *mixed)
{
    const struct merak_items *dropped = &chunk->run[MERAK_ACT_R];

    if (mixed[block - a->first_block])
        return;
    mixed[block - a->first_block] = true;
    for (int i = 0; i < dropped->n; i++) {
        if (a->b->stages->block[dropped->item[i].node] == block)
            add_item(&chunk->mixed, dropped->item[i].node, true);
    }
}

/* Bring what the block before that of a gradient made. */
static void mix_next(const struct recomputed *a, struct merak_chunk *chunk,
                     const struct merak_node *node, bool *mixed)
{
    int of = node->forward, next;

    if (of < 0 || a->b->graph->node[of]->phase != MERAK_PHASE_F ||
        !is_here(a->b, a->chunk, of))
        return;
    next = a->b->stages->block[of] - 1;
    if (next >= a->first_block &&
        !merak_drop_is_again(&a->b->stages->drop[a->chunk->part],
                             next - a->first_block))
        mix_block(a, chunk, next, mixed);
}

static void mix_lists(const struct recomputed *a, struct merak_chunk *chunk,
                      bool *mixed)
{
    const struct merak_build *b = a->b;
    const struct merak_items *list = &chunk->run[MERAK_ACT_B];
    const int *block = b->stages->block;

    for (int i = 0; i < list->n; i++) {
        const struct merak_node *node = b->graph->node[list->item[i].node];

        for (int k = 0; k < node->n_in; k++) {
            if (b->flow[node->in[k]->id].dropped &&
                !merak_build_is_inner(b, node->in[k]->id))
                mix_block(a, chunk, block[node->in[k]->producer], mixed);
        }
        if (merak_plan_offloads_acts(&b->prog->plan)) /* copied meanwhile */
            mix_next(a, chunk, node, mixed);
        chunk->mixed.item[chunk->mixed.n++] = list->item[i];
    }
    /* What only a later action W needs. */
    for (int i = 0; i < chunk->run[MERAK_ACT_R].n; i++)
        mix_block(a, chunk, block[chunk->run[MERAK_ACT_R].item[i].node], mixed);
}

static bool recomputed_init(struct recomputed *a)
{
    struct merak_build *b = a->b;
    size_t nodes = (size_t)b->graph->n_nodes + 1;

    a->node = merak_build_alloc(b, nodes * sizeof(*a->node));
    if (b->rc != MERAK_OK)
        return false;
    for (int p = 0; p < a->chunk->part; p++)
        a->first_block += b->stages->n_blocks[p];
    return true;
}

static void make_lists(struct merak_build *b, struct merak_chunk *chunk,
                       const bool *moves)
{
    size_t nodes = (size_t)b->graph->n_nodes + 1;
    size_t pieces = (size_t)b->fold.pieces * (size_t)b->fold.n_nodes;
    size_t bytes = (nodes + pieces) * sizeof(struct merak_item);
    struct recomputed a = {.b = b, .chunk = chunk, .moves = moves};
    bool *mixed =
        merak_build_alloc(b, (size_t)b->stages->n_blocks[chunk->part] + 1);

    chunk->use = merak_build_alloc(b, (size_t)b->graph->n_values + 1);
    for (int k = 0; k < MERAK_ACTIONS; k++)
        chunk->run[k].item = merak_build_alloc(b, bytes);
    chunk->mixed.item = merak_build_alloc(b, 2 * bytes);
    if (!recomputed_init(&a))
        return;
    if (!b->opt->forward_only)
        find_recomputed(&a);
    if (b->rc != MERAK_OK)
        return;
    fill_lists(&a, chunk);
    mix_lists(&a, chunk, mixed);
}

void merak_build_lists(struct merak_build *b)
{
    const bool *moves = find_moving(b);

    for (int c = 0; c < b->n_chunks && b->rc == MERAK_OK; c++)
        make_lists(b, &b->chunk[c], moves);
}
