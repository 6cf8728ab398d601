/* SPDX-License-Identifier: Apache-2.0 */
/* fold.c - the nodes that run in pieces so that logits are never whole
 *
 * Logits are what a loss's parts read first.  Of their loop are
 *
 *   forward   the product that makes them, what is done to them before the loss
 *             (a cap), the loss's parts, and what these exchange in between:
 *             the maximum of each row over shards of the vocabulary
 *   backward  the gradient of logits, and all that reads it: the product's
 *             gradients
 *
 * Both are one loop where the second needs only what is there in the first, if
 * that exchanges sums of rows, too; else the second begins with logits again.
 *
 * What is made of a piece's logits and has their shape is only there in pieces;
 * all else is whole, and a piece reads and writes its rows of it.
 */
#include "config.h"

#include "partitioner/program/fold.h"

#include "base/arrays.h"
#include "base/error.h"
#include "partitioner/graph/dims.h"
#include "partitioner/graph/letters.h"
#include "partitioner/plan/plan.h"

#include <math.h>
#include <stdlib.h>

struct finder {
    const struct merak_sharded *sharded;
    const struct merak_graph *graph;
    struct merak_fold *fold;
    struct merak_error *err;
    enum merak_status rc;
};

static bool is_forward(const struct merak_node *node)
{
    return node->phase == MERAK_PHASE_F;
}

static bool converts(const struct finder *f, int node)
{
    return f->sharded->hop[node].kind != MERAK_CONVERT_NONE;
}

static bool is_weight(const struct merak_value *v)
{
    return v->kind == MERAK_VALUE_PARAM || v->kind == MERAK_VALUE_PARAM_GRAD;
}

int merak_fold_rows(const struct merak_graph *graph, int logits)
{
    return graph->value[logits]->shape.ndim - 1;
}

bool merak_fold_is_again(const struct merak_fold *fold,
                         const struct merak_node *node)
{
    return fold->pieces > 1 && is_forward(node) && fold->of[node->id] >= 0 &&
           fold->inner[node->out[0]->id] && !fold->early[node->id];
}

bool merak_fold_is_early(const struct merak_fold *fold,
                         const struct merak_node *node)
{
    return fold->pieces > 1 && !is_forward(node) && fold->early[node->id];
}

bool merak_fold_cut(int pieces, int rows, const size_t *len, size_t n[2])
{
    size_t all = (size_t)pieces;

    n[0] = all;
    n[1] = 1;
    if (len[0] == 0 || len[0] % all == 0)
        return len[0] > 0;
    n[0] = len[0];
    n[1] = all / len[0];
    return rows > 1 && all % len[0] == 0 && len[1] % n[1] == 0;
}

static void fail_read(struct finder *f, const struct merak_node *node,
                      const struct merak_value *v)
{
    if (f->rc == MERAK_OK)
        f->rc = merak_fail(f->err, MERAK_ERR_UNSUPPORTED,
                           "--loss-pieces %d: %s needs %s whole: use "
                           "--loss-pieces 1",
                           f->fold->pieces, node->name, v->name);
}

/* A node is of the loop of these logits, and of no other. */
static void take(struct finder *f, int node, int logits)
{
    int *of = &f->fold->of[node];

    if (*of >= 0 && *of != logits)
        fail_read(f, f->graph->node[node], f->graph->value[*of]);
    f->fold->n_nodes += *of < 0;
    *of = logits;
}

/* Logits, and what they are made of that has their shape, back to products. */
static void take_makers(struct finder *f, int v, int logits)
{
    const struct merak_value *value = f->graph->value[v];
    const struct merak_node *node;

    if (value->producer < 0) {
        f->rc = merak_fail(f->err, MERAK_ERR_UNSUPPORTED,
                           "--loss-pieces %d: no product makes the logits %s: "
                           "use --loss-pieces 1",
                           f->fold->pieces, value->name);
        return;
    }
    node = f->graph->node[value->producer];
    f->fold->inner[v] = true;
    take(f, node->id, logits);
    for (int i = 0; i < node->n_in && node->op->role != MERAK_ROLE_PRODUCT &&
                    f->rc == MERAK_OK;
         i++) {
        if (!is_weight(node->in[i]) &&
            merak_shape_equal(&node->in[i]->shape, &value->shape))
            take_makers(f, node->in[i]->id, logits);
    }
}

/* The parts of losses that read logits. */
static void take_losses(struct finder *f)
{
    for (int n = 0; n < f->graph->n_nodes && f->rc == MERAK_OK; n++) {
        const struct merak_node *node = f->graph->node[n];

        if (!is_forward(node) || converts(f, n) ||
            node->op->role != MERAK_ROLE_LOSS_PART)
            continue;
        if (!f->fold->inner[node->in[0]->id])
            take_makers(f, node->in[0]->id, node->in[0]->id);
        if (f->rc == MERAK_OK)
            take(f, n, f->fold->of[node->in[0]->producer]);
    }
}

/* What forward nodes of a loop exchange in between. */
static void take_between(struct finder *f)
{
    const struct merak_graph *graph = f->graph;

    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const struct merak_node *node = graph->node[n];

        if (!is_forward(node) || f->fold->of[n] < 0)
            continue;
        for (int i = 0; i < node->n_in; i++) {
            int from = node->in[i]->producer;

            while (from >= 0 && converts(f, from) && f->fold->of[from] < 0) {
                int before = graph->node[from]->in[0]->producer;

                if (before < 0 || f->fold->of[before] != f->fold->of[n])
                    break;
                take(f, from, f->fold->of[n]);
                from = before;
            }
        }
    }
}

/* Gradients of logits, and what reads these. */
static void take_gradients(struct finder *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        const struct merak_node *node = f->graph->node[n];

        for (int i = 0; i < node->n_in && !is_forward(node); i++) {
            const struct merak_value *v = node->in[i];

            if (!f->fold->inner[v->id])
                continue;
            take(f, n, f->fold->of[v->producer]);
            for (int o = 0; o < node->n_out; o++)
                f->fold->inner[node->out[o]->id] =
                    f->fold->inner[node->out[o]->id] ||
                    (!is_weight(node->out[o]) &&
                     merak_shape_equal(&node->out[o]->shape, &v->shape));
        }
    }
}

/* Do rows of a node's operands make rows of its outputs, or a sum of all? */
static bool runs_by_rows(const struct finder *f, const struct merak_node *node)
{
    int rows = merak_fold_rows(f->graph, f->fold->of[node->id]);
    struct merak_signature sig = {0};
    const struct merak_value *v;
    int index[2] = {-1, -1};

    if (converts(f, node->id))
        return f->sharded->hop[node->id].kind == MERAK_CONVERT_ALL_REDUCE;
    merak_node_signature(node, &sig);
    for (int o = 0; o < node->n_in + node->n_out; o++) {
        v = merak_node_operand(node, o);
        if (is_weight(v))
            continue;
        if (v->shape.ndim < rows)
            return false;
        for (int d = 0; d < rows && d < 2; d++) {
            if (index[d] < 0)
                index[d] = sig.operand_dim[o][d];
            if (index[d] < 0 || sig.operand_dim[o][d] != index[d] ||
                sig.index[index[d]].kind == MERAK_INDEX_WHOLE)
                return false;
        }
    }
    return true;
}

static void check_nodes(struct finder *f)
{
    for (int n = 0; n < f->graph->n_nodes && f->rc == MERAK_OK; n++) {
        const struct merak_node *node = f->graph->node[n];

        for (int i = 0; i < node->n_in && f->fold->of[n] < 0; i++) {
            if (f->fold->inner[node->in[i]->id])
                fail_read(f, node, node->in[i]);
        }
        if (f->fold->of[n] >= 0 && !runs_by_rows(f, node))
            fail_read(f, node, f->graph->value[f->fold->of[n]]);
    }
}

/* Is a node of the loop of logits, of one direction? */
static bool is_of(const struct finder *f, int node, int logits, bool forward)
{
    return f->fold->of[node] == logits &&
           is_forward(f->graph->node[node]) == forward;
}

/* Where the loop of logits runs, of one direction: with its last node, or
 * before the first other node that reads what it makes; -1: it has no nodes, or
 * is not ready there. */
static int find_place(const struct finder *f, int logits, bool forward)
{
    int last = -1, reader = f->graph->n_nodes, ready = -1, at;

    for (int n = 0; n < f->graph->n_nodes; n++) {
        const struct merak_node *node = f->graph->node[n];
        bool mine = is_of(f, n, logits, forward);

        last = mine ? n : last;
        for (int i = 0; i < node->n_in; i++) {
            int from = node->in[i]->producer;
            bool made = from >= 0 && is_of(f, from, logits, forward);

            if (mine && !made && from > ready)
                ready = from;
            if (!mine && made && n < reader && f->fold->of[n] != logits)
                reader = n;
        }
    }
    at = reader < last ? reader : last;
    return ready < at && (last < 0 || f->fold->at[at] < 0) ? at : -1;
}

static bool has_gradients(const struct finder *f, int logits)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        if (is_of(f, n, logits, false))
            return true;
    }
    return false;
}

static void place(struct finder *f, int logits, bool forward)
{
    int at = find_place(f, logits, forward);

    if (at >= 0)
        f->fold->at[at] = logits;
    else if (forward || has_gradients(f, logits))
        fail_read(f, f->graph->node[f->graph->value[logits]->producer],
                  f->graph->value[logits]);
}

/* Take the sums that ranks exchange of what a loop makes, for its gradients, or
 * leave them. */
static void take_sums(struct finder *f, int logits, bool leave)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        const struct merak_node *node = f->graph->node[n];

        for (int i = 0; i < node->n_in && is_of(f, n, logits, false); i++) {
            int from = node->in[i]->producer, before;

            if (from < 0 || !is_forward(f->graph->node[from]) ||
                f->sharded->hop[from].kind != MERAK_CONVERT_ALL_REDUCE)
                continue;
            before = f->graph->node[from]->in[0]->producer;
            if (leave && f->fold->early[from]) {
                f->fold->of[from] = -1;
                f->fold->early[from] = false;
                f->fold->n_nodes--;
            } else if (!leave && f->fold->of[from] < 0 && before >= 0 &&
                       f->fold->of[before] == logits) {
                take(f, from, logits);
                f->fold->early[from] = true;
            }
        }
    }
}

/* Does a loop's backward need nothing that is not there at node `at`? */
static bool is_ready(const struct finder *f, int logits, int at)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        const struct merak_node *node = f->graph->node[n];

        for (int i = 0; i < node->n_in && is_of(f, n, logits, false); i++) {
            int from = node->in[i]->producer;

            if (from >= at && f->fold->of[from] != logits)
                return false;
        }
    }
    return true;
}

/* Place both directions of a loop, in one if that is possible. */
static void place_both(struct finder *f, int logits)
{
    int at;

    take_sums(f, logits, false);
    at = find_place(f, logits, true);
    if (at < 0 || !has_gradients(f, logits) || !is_ready(f, logits, at)) {
        take_sums(f, logits, true);
        place(f, logits, true);
        place(f, logits, false);
        return;
    }
    f->fold->at[at] = logits;
    for (int n = 0; n < f->graph->n_nodes; n++)
        f->fold->early[n] = f->fold->early[n] || f->fold->of[n] == logits;
}

enum merak_status merak_fold_part(struct merak_fold *fold,
                                  const struct merak_sharded *sharded,
                                  int logits, struct merak_error *err)
{
    struct finder f = {sharded, sharded->graph, fold, err, MERAK_OK};

    for (int n = 0; n < f.graph->n_nodes; n++)
        fold->early[n] = fold->early[n] && fold->of[n] != logits;
    place(&f, logits, false);
    return f.rc;
}

static enum merak_status find(struct finder *f)
{
    struct merak_fold *fold = f->fold;

    take_losses(f);
    if (f->rc == MERAK_OK && fold->n_nodes == 0)
        f->rc = merak_fail(f->err, MERAK_ERR_CONFIG,
                           "--loss-pieces %d: the model has no cross-entropy, "
                           "whose logits would be in pieces: use "
                           "--loss-pieces 1",
                           fold->pieces);
    if (f->rc == MERAK_OK)
        take_between(f);
    if (f->rc == MERAK_OK)
        take_gradients(f);
    if (f->rc == MERAK_OK)
        check_nodes(f);
    for (int v = 0; v < f->graph->n_values && f->rc == MERAK_OK; v++) {
        int made = f->graph->value[v]->producer;

        if (made < 0 || !fold->inner[v] || fold->of[made] != v)
            continue;
        place_both(f, v);
    }
    return f->rc;
}

enum merak_status merak_fold_init(struct merak_fold *fold,
                                  const struct merak_sharded *sharded,
                                  int pieces, struct merak_error *err)
{
    struct finder f = {sharded, sharded->graph, fold, err, MERAK_OK};
    size_t nodes = (size_t)sharded->graph->n_nodes + 1;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(fold->of, nodes), MERAK_ARRAY(fold->at, nodes),
        MERAK_ARRAY(fold->inner, (size_t)sharded->graph->n_values + 1),
        MERAK_ARRAY(fold->early, nodes)};
    enum merak_status rc;

    *fold = (struct merak_fold){.pieces = pieces};
    if (pieces == 1)
        return MERAK_OK;
    rc = MERAK_ARRAYS(arrays, err);
    if (rc != MERAK_OK)
        return rc;
    for (size_t n = 0; n < nodes; n++)
        fold->of[n] = fold->at[n] = -1;
    return find(&f);
}

void merak_fold_fini(struct merak_fold *fold)
{
    free(fold->of);
    *fold = (struct merak_fold){.pieces = 1};
}

/* Of logits, those that the first rank has. */
static enum merak_status check_cut(const struct merak_sharded *sharded,
                                   int pieces, int logits,
                                   struct merak_error *err)
{
    const struct merak_value *v = sharded->graph->value[logits];
    const int coord[MERAK_MAX_AXES] = {0};
    struct merak_box box;
    size_t n[2];

    merak_layout_box(&sharded->mesh, &sharded->layout[logits], &v->shape, coord,
                     &box);
    if (merak_fold_cut(pieces, merak_fold_rows(sharded->graph, logits), box.len,
                       n))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--loss-pieces %d: a rank has %zu x %zu rows of %s, "
                      "samples by positions: expected a divisor of the former, "
                      "or that number times a divisor of the latter",
                      pieces, box.len[0], box.ndim > 2 ? box.len[1] : 1,
                      v->name);
}

enum merak_status merak_fold_check(const struct merak_sharded *sharded,
                                   int pieces, struct merak_error *err)
{
    struct merak_fold fold;
    enum merak_status rc = merak_fold_init(&fold, sharded, pieces, err);

    for (int n = 0; n < sharded->graph->n_nodes && pieces > 1 && rc == MERAK_OK;
         n++) {
        if (fold.of[n] >= 0)
            rc = check_cut(sharded, pieces, fold.of[n], err);
    }
    merak_fold_fini(&fold);
    return rc;
}

static double count(const struct merak_sharded *sharded, int v)
{
    const int coord[MERAK_MAX_AXES] = {0};
    struct merak_box box;

    merak_layout_box(&sharded->mesh, &sharded->layout[v],
                     &sharded->graph->value[v]->shape, coord, &box);
    return (double)merak_box_count(&box);
}

int merak_fold_most(const struct merak_sharded *sharded)
{
    const struct merak_graph *graph = sharded->graph;
    double times = 0; /* the elements of the input */
    struct merak_fold fold;
    int pieces = 1;

    if (merak_fold_init(&fold, sharded, 2, NULL) == MERAK_OK) {
        for (int n = 0; n < graph->n_nodes; n++) {
            const struct merak_node *node = graph->node[n];

            if (is_forward(node) && fold.of[n] >= 0 &&
                node->op->role == MERAK_ROLE_PRODUCT)
                times = fmax(times, count(sharded, node->out[0]->id) /
                                        count(sharded, node->in[0]->id));
        }
    }
    merak_fold_fini(&fold);
    while (times / pieces > 4 && pieces < MERAK_MAX_LOSS_PIECES / 2 &&
           merak_fold_check(sharded, 2 * pieces, NULL) == MERAK_OK)
        pieces *= 2;
    return pieces;
}
