/* SPDX-License-Identifier: Apache-2.0 */
/* fold_slots.c - slots of what runs in a loop over pieces of rows (fold.h)
 *
 * A value that is whole has a slot as ever, and behind it one for the rows of
 * each piece.  Of one that is only there in pieces the slot has the room of one
 * piece, and those of all pieces lie over each other.  Pieces are contiguous,
 * and kernels know their rows from the part they are given.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "base/error.h"

/* How a slot of a loop's value is cut. */
static bool find_cut(const struct merak_build *b, int logits,
                     const struct merak_box *box, size_t n[2])
{
    return merak_fold_cut(b->fold.pieces, merak_fold_rows(b->graph, logits),
                          box->len, n);
}

/* Make a box the one of a piece. */
static void cut(const size_t n[2], size_t piece, struct merak_box *box)
{
    const size_t at[2] = {piece / n[1], piece % n[1]};

    for (int d = 0; d < (n[1] > 1 ? 2 : 1); d++) {
        box->len[d] /= n[d];
        box->lo[d] += at[d] * box->len[d];
    }
}

/* Is a loop in one part?  So it has to be. */
static void check_part(struct merak_build *b, const struct merak_node *node)
{
    const struct merak_value *v = b->graph->value[b->fold.of[node->id]];

    if (b->stages->of_node[node->id] != b->stages->of_node[v->producer])
        merak_build_fail(
            b, merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                          "--loss-pieces %d: %s is cut from its loss (%s): "
                          "begin a part before it, or use --loss-pieces 1",
                          b->fold.pieces, v->name, node->name));
}

/* Does a gradient that is made with the forward go to another stage?  That
 * takes it with its backward. */
static bool is_sent(const struct merak_build *b, const struct merak_node *node)
{
    for (int i = 0; i < node->n_out && merak_fold_is_early(&b->fold, node);
         i++) {
        if (b->flow[node->out[i]->id].to >= 0)
            return true;
    }
    return false;
}

void merak_build_fold(struct merak_build *b)
{
    int pieces = merak_plan_loss_pieces(&b->prog->plan);
    enum merak_status rc = merak_fold_check(b->sharded, pieces, b->err);

    if (rc == MERAK_OK)
        rc = merak_fold_init(&b->fold, b->sharded, pieces, b->err);
    merak_build_fail(b, rc);
    for (int n = 0; n < b->graph->n_nodes && b->rc == MERAK_OK; n++) {
        if (pieces > 1 && b->fold.of[n] >= 0)
            check_part(b, b->graph->node[n]);
        if (b->rc == MERAK_OK && is_sent(b, b->graph->node[n]))
            merak_build_fail(b, merak_fold_part(&b->fold, b->sharded,
                                                b->fold.of[n], b->err));
    }
}

bool merak_build_is_inner(const struct merak_build *b, int value)
{
    return b->fold.pieces > 1 && b->fold.inner[value];
}

void merak_build_cut_inner(const struct merak_build *b, struct merak_slot *slot)
{
    int made = b->graph->value[slot->value]->producer;
    size_t n[2];

    if (!merak_build_is_inner(b, slot->value) ||
        !find_cut(b, b->fold.of[made], &slot->box, n))
        return;
    cut(n, 0, &slot->box);
    slot->flat_hi = merak_box_count(&slot->box);
}

/* The slots of all pieces, behind each other; the first one. */
static int make_pieces(struct merak_build *b, int logits, int slot)
{
    const struct merak_slot all = b->prog->slot[slot];
    bool inner = merak_build_is_inner(b, all.value);
    size_t at = all.whole == slot ? 0 : all.offset, n[2];
    struct merak_box box = all.box;
    int first = -1;

    if (inner) { /* of one piece: make it that of all */
        struct merak_layout layout = merak_build_layout(b, all.value);
        struct merak_slot whole = {.value = all.value};

        merak_build_box(b, all.value, &layout, &whole);
        box = whole.box;
    }
    if (!find_cut(b, logits, &box, n)) {
        merak_build_fail(b, merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                                       "--loss-pieces %d: %s has other rows "
                                       "than %s: use --loss-pieces 1",
                                       b->fold.pieces, all.name,
                                       b->graph->value[logits]->name));
        return -1;
    }
    for (int k = 0; k < b->fold.pieces && b->rc == MERAK_OK; k++) {
        struct merak_slot part = all;
        int id;

        part.box = box;
        cut(n, (size_t)k, &part.box);
        if (!inner)
            part.bytes = all.bytes / (size_t)b->fold.pieces;
        part.flat_lo = 0;
        part.flat_hi = merak_box_count(&part.box);
        id = merak_build_alias(
            b, all.whole, at + (inner ? 0 : (size_t)k * part.bytes), &part);
        first = k == 0 ? id : first;
    }
    return b->rc == MERAK_OK ? first : -1;
}

int merak_build_piece_slot(struct merak_build *b, const struct merak_node *node,
                           int i, int slot)
{
    const struct merak_value *value = merak_node_operand(node, i);

    if (b->now.piece < 0 || slot < 0 || value->kind == MERAK_VALUE_PARAM ||
        value->kind == MERAK_VALUE_PARAM_GRAD)
        return slot;
    if (b->use[slot].pieces < 0) {
        int first = make_pieces(b, b->fold.of[node->id], slot);

        if (first < 0)
            return -1;
        b->use[slot].pieces = first;
    }
    return b->use[slot].pieces + b->now.piece;
}

void merak_build_piece_shape(const struct merak_build *b,
                             const struct merak_node *node,
                             struct merak_shape *shape)
{
    int logits = b->fold.pieces > 1 ? b->fold.of[node->id] : -1;
    struct merak_layout layout;
    struct merak_slot slot;
    size_t n[2];

    if (b->now.piece < 0)
        return;
    layout = merak_build_layout(b, logits);
    merak_build_box(b, logits, &layout, &slot);
    if (!find_cut(b, logits, &slot.box, n))
        return;
    for (int d = 0; d < (n[1] > 1 ? 2 : 1); d++)
        shape->dim[d] /= n[d];
}
