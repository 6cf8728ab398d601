/* SPDX-License-Identifier: Apache-2.0 */
/* values.c - slots of a micro-batch's values
 *
 * Each micro-batch, and each of its forward passes, has its own slots for its
 * values, reused from earlier micro-batches that no longer need them: as many
 * sets as are in flight.  A value that the forward drops gives its slot back
 * then and takes one again when it is recomputed.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "partitioner/graph/padding.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static enum merak_category category_of(const struct merak_build *b,
                                       const struct merak_value *value)
{
    if (value->kind == MERAK_VALUE_GRADIENT)
        return MERAK_CAT_TRANSIENT;
    if (value->producer >= 0 &&
        b->sharded->hop[value->producer].kind != MERAK_CONVERT_NONE)
        return MERAK_CAT_TRANSIENT;
    return MERAK_CAT_ACTIVATION;
}

static bool is_loss(const struct merak_build *b, int value)
{
    return b->prog->loss >= 0 && b->graph->loss->id == value;
}

void merak_build_loss(struct merak_build *b)
{
    const struct merak_value *loss = b->graph->loss;
    struct merak_slot slot;

    if (loss == NULL || !b->flow[loss->id].here)
        return;
    /* If all stages have it, the last one reports it. */
    if (b->flow[loss->id].home >= b->n_chain ? b->stage != b->prog->plan.pp - 1
                                             : !b->flow[loss->id].first)
        return;
    slot = merak_build_vector(MERAK_F64,
                              (size_t)b->prog->plan.microbatches *
                                  merak_shape_count(&loss->shape),
                              "loss");
    slot.value = loss->id;
    b->prog->loss = merak_build_slot(b, &slot);
    if (b->prog->loss >= 0)
        merak_build_begin(b, b->prog->loss);
}

/* What is read after the step, of all its micro-batches. */
static bool is_result(const struct merak_build *b, int value)
{
    return is_loss(b, value) ||
           (b->graph->value[value]->reported && b->prog->reports >= 0);
}

/* Is this rank's part its own?  Of what an axis does not divide all have the
 * whole, and the first one's counts. */
static bool counts(const struct merak_build *b, int value)
{
    const struct merak_layout *layout = &b->sharded->layout[value];

    for (int a = 0; a < b->sharded->mesh.n_axes; a++) {
        if (a != b->pp_axis && layout->at[a].kind != MERAK_PARTIAL_SUM &&
            b->coord[a] > 0)
            return false;
    }
    return true;
}

void merak_build_reports(struct merak_build *b)
{
    struct merak_program *prog = b->prog;
    struct merak_slot slot;
    size_t at = 0;
    int n = 0;

    for (int v = 0; v < b->graph->n_values; v++)
        n += b->graph->value[v]->reported && b->flow[v].here;
    if (n == 0)
        return;
    prog->report = merak_build_alloc_kept(b, (size_t)n * sizeof(*prog->report));
    for (int v = 0; v < b->graph->n_values && prog->report != NULL; v++) {
        size_t each = merak_shape_count(&b->graph->value[v]->shape);

        if (!b->graph->value[v]->reported || !b->flow[v].here)
            continue;
        prog->report[prog->n_reports++] = (struct merak_report){
            .value = v, .at = at, .n = each, .counts = counts(b, v)};
        at += (size_t)prog->plan.microbatches * each;
    }
    slot = merak_build_vector(MERAK_F64, at, "reports");
    prog->reports = b->rc == MERAK_OK ? merak_build_slot(b, &slot) : -1;
    if (prog->reports >= 0)
        merak_build_begin(b, prog->reports);
}

/* Where in its slot a micro-batch's result is. */
static int result_slot(struct merak_build *b, int value, int microbatch,
                       const struct merak_slot *slot)
{
    const struct merak_report *r = b->prog->report;

    if (is_loss(b, value))
        return merak_build_alias(
            b, b->prog->loss,
            (size_t)microbatch *
                merak_shape_count(&b->graph->value[value]->shape) *
                sizeof(double),
            slot);
    while (r->value != value)
        r++;
    return merak_build_alias(
        b, b->prog->reports,
        (r->at + (size_t)microbatch * r->n) * sizeof(double), slot);
}

/* Leave room behind each row if the backend's kernels want it. */
static void pad_rows(const struct merak_build *b, struct merak_slot *slot)
{
    if (b->may_pad[slot->value] &&
        slot->flat_hi - slot->flat_lo == merak_box_count(&slot->box))
        slot->ld = merak_padded_ld(slot->box.ndim, slot->box.len, slot->dtype,
                                   b->opt->memory.row_bytes);
}

static int new_slot(struct merak_build *b, int v, int microbatch)
{
    const struct merak_value *value = b->graph->value[v];
    struct merak_layout layout = merak_build_layout(b, v);
    struct merak_slot slot = {.category = category_of(b, value),
                              .name = value->name,
                              .value = v,
                              .dtype = value->dtype};

    merak_build_box(b, v, &layout, &slot);
    merak_build_cut_inner(b, &slot);
    pad_rows(b, &slot);
    if (b->slice.n > 1 && merak_build_is_sliced(b, v)) {
        int whole = merak_build_slot(b, &slot);

        merak_build_cut(b, whole);
        return b->rc == MERAK_OK ? whole : -1;
    }
    if (is_result(b, v))
        return result_slot(b, v, microbatch, &slot);
    return merak_build_slot(b, &slot);
}

struct merak_open *merak_build_open(struct merak_build *b, int microbatch)
{
    struct merak_open *open = &b->open[microbatch * b->passes + b->now.pass];
    size_t values = (size_t)b->graph->n_values;

    if (open->map != NULL)
        return open;
    open->map = malloc((values + 1) * sizeof(*open->map));
    open->done = calloc((size_t)b->n_chunks, sizeof(*open->done));
    if (open->map == NULL || open->done == NULL) {
        merak_build_fail(b, merak_fail_nomem(b->err, values * sizeof(int)));
        return NULL;
    }
    memcpy(open->map, b->params.slot, values * sizeof(*open->map));
    for (int v = 0; v < b->graph->n_values && b->prog->plan.sub_pipeline; v++)
        open->map[v] = merak_build_param_slot(b, v, microbatch);
    return open;
}

int merak_build_value(struct merak_build *b, int value, int microbatch)
{
    struct merak_open *open = merak_build_open(b, microbatch);
    struct merak_flow *f = &b->flow[value];
    int slot;

    if (open == NULL || open->map[value] >= 0)
        return open == NULL ? -1 : open->map[value];
    slot = f->free_slot;
    if (slot >= 0)
        f->free_slot = b->use[slot].next_free;
    else
        slot = new_slot(b, value, microbatch);
    if (slot >= 0)
        merak_build_begin(b, slot);
    open->map[value] = slot;
    return slot;
}

/* A value that was written over another gives that one's slot back. */
static void give_back(struct merak_build *b, int v, int slot)
{
    int whole = b->prog->slot[slot].whole;

    if (whole != slot && b->use[whole].over == slot) {
        v = b->prog->slot[whole].value;
        slot = whole;
    }
    b->use[slot].next_free = b->flow[v].free_slot;
    b->flow[v].free_slot = slot;
}

/* A slot that a send reads is not reused for one more action, or for as many as
 * the schedule needs: the send may still be in progress when the compute queue
 * has moved on. */
static void give_back_later(struct merak_build *b, int v, int slot)
{
    if (!merak_build_grow(b, &b->lags.lag, &b->lags.cap, b->lags.n,
                          sizeof(*b->lags.lag)))
        return;
    b->lags.lag[b->lags.n++] = (struct merak_lag){
        .slot = slot, .value = v, .since = b->lags.n_released};
}

static void settle(struct merak_build *b, int n)
{
    for (int i = 0; i < n; i++) {
        merak_build_extend(b, b->lags.lag[i].slot);
        merak_build_extend_sent(b, b->lags.lag[i].slot);
        give_back(b, b->lags.lag[i].value, b->lags.lag[i].slot);
    }
    for (int i = n; i < b->lags.n; i++)
        b->lags.lag[i - n] = b->lags.lag[i];
    b->lags.n -= n;
}

void merak_build_settle(struct merak_build *b)
{
    settle(b, b->lags.n);
}

/* Does an action that is still to come read it without recomputing it? */
static bool is_kept(const struct merak_build *b, const struct merak_open *open,
                    int v)
{
    const struct merak_flow *f = &b->flow[v];

    if (f->dropped && !(open->done[f->chunk] & 1u << MERAK_ACT_R))
        return false;
    for (int c = 0; c < b->n_chunks; c++) {
        if (b->chunk[c].use[v] & ~open->done[c])
            return true;
    }
    return false;
}

static void release_values(struct merak_build *b, struct merak_open *open)
{
    for (int i = 0; i < b->n_local; i++) {
        int v = b->local[i], slot = open->map[v];

        if (slot < 0 || is_result(b, v) || is_kept(b, open, v))
            continue;
        if (b->flow[v].to >= 0 || merak_build_is_recycled(b, v))
            give_back_later(b, v, slot);
        else
            give_back(b, v, slot);
        /* Received, and read by other passes only. */
        if (b->flow[v].from >= 0 && b->passes > 1)
            merak_build_extend(b, slot);
        open->map[v] = -1;
    }
}

/* --- one value over another ----------------------------------------------- */

static bool reads(const struct merak_node *node, int v)
{
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i]->id == v)
            return true;
    }
    return false;
}

/* Does anything after this item read a value, in this action or a later one?
 * Of what is only there in pieces: anything with the same piece. */
static bool is_read_after(const struct merak_build *b,
                          const struct merak_open *open,
                          const struct merak_item *item, int v)
{
    const struct merak_item *end = b->now.items->item + b->now.items->n;
    const int piece = item->piece;

    while (++item < end) {
        if (item->piece == piece && reads(b->graph->node[item->node], v))
            return true;
    }
    for (int c = 0; c < b->n_chunks; c++) {
        /* kinds that end with this action end for the whole chunk */
        unsigned done = open->done[c] | (c == b->now.chunk ? b->now.ends : 0u);

        if (b->chunk[c].use[v] & ~done)
            return true;
    }
    return false;
}

/* Is it made by a kernel and read only by kernels, on this rank and in this
 * pass? */
static bool stays(const struct merak_build *b, int v)
{
    const struct merak_flow *f = &b->flow[v];

    return f->from < 0 && f->to < 0 && !merak_build_is_recycled(b, v) &&
           b->params.slot[v] < 0 && !is_result(b, v) &&
           b->graph->value[v]->producer >= 0;
}

/* The slot of `to`, made once, in the memory of `slot`; or -1. */
static int slot_over(struct merak_build *b, int slot, int to)
{
    const struct merak_value *value = b->graph->value[to];
    struct merak_layout layout = merak_build_layout(b, to);
    const struct merak_slot *from = &b->prog->slot[slot];
    struct merak_slot proto = {.category = category_of(b, value),
                               .name = value->name,
                               .value = to,
                               .dtype = value->dtype};
    int id = b->use[slot].over;

    if (id >= 0)
        return b->prog->slot[id].value == to ? id : -1;
    merak_build_box(b, to, &layout, &proto);
    merak_build_cut_inner(b, &proto);
    pad_rows(b, &proto);
    if (from->whole != slot || proto.dtype != from->dtype ||
        proto.ld != from->ld ||
        memcmp(&proto.box, &from->box, sizeof(proto.box)) != 0 ||
        proto.flat_lo != from->flat_lo || proto.flat_hi != from->flat_hi)
        return -1;
    id = merak_build_alias(b, slot, 0, &proto);
    if (id >= 0)
        b->use[slot].over = id;
    return id;
}

void merak_build_overwrite(struct merak_build *b, const struct merak_item *item,
                           int microbatch)
{
    const struct merak_node *node = b->graph->node[item->node];
    int from = node->in[0]->id, to = node->out[0]->id, slot;
    bool last = item->piece < 0 || item->piece == b->fold.pieces - 1;
    struct merak_open *open;

    /* Slices of a sequence share their micro-batch's slots.  Pieces of rows
     * share those of what is only there in pieces, and no others. */
    if (!node->op->in_place || item->recompute || b->slice.n > 1 ||
        !stays(b, from) || !stays(b, to) ||
        (item->piece >= 0 && !merak_build_is_inner(b, from)))
        return;
    open = merak_build_open(b, microbatch);
    if (open == NULL || open->map[from] < 0 ||
        (open->map[to] >= 0 && item->piece <= 0) ||
        is_read_after(b, open, item, from))
        return;
    slot = slot_over(b, open->map[from], to);
    if (slot < 0 || (open->map[to] >= 0 && open->map[to] != slot))
        return;
    open->map[to] = slot;
    if (last)
        open->map[from] = -1;
}

/* --- at an action's end --------------------------------------------------- */

static bool is_finished(const struct merak_build *b,
                        const struct merak_open *open)
{
    for (int c = 0; c < b->n_chunks; c++) {
        if (open->done[c] != (1u << MERAK_ACTIONS) - 1)
            return false;
    }
    return true;
}

void merak_build_release(struct merak_build *b, int chunk, unsigned done,
                         int microbatch, int n)
{
    int due = 0;

    /* The lower one's slots are released last and reused first, by the next
     * lower one: the higher one's last exchange needs its input longest. */
    for (int i = microbatch + n - 1; i >= microbatch && b->rc == MERAK_OK;
         i--) {
        struct merak_open *open = merak_build_open(b, i);

        if (open == NULL)
            return;
        open->done[chunk] |= (uint8_t)done;
        release_values(b, open);
        if (is_finished(b, open)) {
            free(open->map);
            free(open->away);
            free(open->done);
            *open = (struct merak_open){NULL};
        }
    }
    while (due < b->lags.n &&
           b->lags.lag[due].since + b->lags.send_lag <= b->lags.n_released)
        due++;
    settle(b, due);
    b->lags.n_released++;
}
