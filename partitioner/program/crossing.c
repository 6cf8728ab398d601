/* SPDX-License-Identifier: Apache-2.0 */
/* crossing.c - tensors between stages of unlike ranks
 *
 * Both stages have a graph of their own, and in each a value, or a parameter,
 * that crosses has a layout of its own; layout/cross.c finds which box goes
 * from which rank to which.  A rank has several messages of one tensor then.  A
 * box that is not one run of memory is packed before it is sent, and unpacked
 * at the beginning of the action that reads it, as a value that comes in parts
 * is gathered then (boundary.c).
 *
 * What is replicated over the receiving stage's tensor ranks goes whole to each
 * of them; or, as between stages that are alike, each gets a part: the value in
 * a layout that cuts it along the first dim with as many elements, from which
 * it is gathered.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/letters.h"
#include "partitioner/layout/cross.h"

#include "base/error.h"

/* One end as this rank sees it: a stage's graph, and the value there. */
struct view {
    const struct merak_sharded *sharded;
    struct merak_stage_mesh mesh;
    const struct merak_value *value;
    struct merak_cross_end end;
    int part_dim; /* along which the end's tensor ranks get parts; -1: whole */
};

/* --- the other stage's value ---------------------------------------------- */

int merak_build_crossing_id(const struct merak_build *b, int value)
{
    return b->sharded->origin == NULL ? value : b->sharded->origin[value];
}

static const struct merak_value *same_value(const struct merak_sharded *there,
                                            int origin)
{
    for (int v = 0; v < there->graph->n_values; v++) {
        if (there->origin[v] == origin)
            return there->graph->value[v];
    }
    return NULL;
}

/* Do samples run along dim 0 of a value, or of the one that it is a gradient
 * of? */
static bool has_samples(const struct merak_graph *graph,
                        const struct merak_value *value)
{
    return value->letter[0] == MERAK_LETTER_SAMPLES ||
           (value->of >= 0 &&
            graph->value[value->of]->letter[0] == MERAK_LETTER_SAMPLES);
}

/* --- ends ----------------------------------------------------------------- */

/* Replicas, then the tensor axes; what has no samples is the same on all
 * replicas. */
static void set_end(struct view *v, bool samples)
{
    const struct merak_mesh *mesh = &v->sharded->mesh;
    struct merak_cross_end *end = &v->end;

    end->mesh = (struct merak_mesh){.n_axes = 1, .axis[0] = {"dp", v->mesh.dp}};
    merak_layout_replicated(&end->layout);
    if (samples)
        end->layout.at[0] = (struct merak_place){.kind = MERAK_SPLIT, .dim = 0};
    for (int a = 0; a < mesh->n_axes; a++) {
        end->mesh.axis[end->mesh.n_axes] = mesh->axis[a];
        end->layout.at[end->mesh.n_axes++] =
            v->sharded->layout[v->value->id].at[a];
    }
}

static bool is_whole(const struct view *v)
{
    for (int a = 1; a < v->end.mesh.n_axes; a++) {
        if (v->end.layout.at[a].kind != MERAK_REPLICATED)
            return false;
    }
    return true;
}

/* Let tensor ranks that all have the value get a part each. */
static void set_parts(struct view *v)
{
    const struct merak_shape *shape = &v->value->shape;
    struct merak_cross_end *end = &v->end;
    int d = 0;

    if (v->mesh.tp == 1 || !is_whole(v))
        return;
    while (d < shape->ndim && shape->dim[d] < (size_t)v->mesh.tp)
        d++;
    if (d == shape->ndim)
        return;
    v->part_dim = d;
    end->mesh.n_axes = 2;
    end->mesh.axis[1] = (struct merak_axis){.name = "tp", .size = v->mesh.tp};
    end->layout.at[1] =
        (struct merak_place){.kind = MERAK_SPLIT, .dim = (int8_t)d};
}

static void set_view(const struct merak_build *b, struct view *v, int stage)
{
    *v = (struct view){.sharded = merak_sharded_of(b->all, stage),
                       .mesh = merak_plan_mesh(&b->prog->plan, stage),
                       .part_dim = -1};
}

static bool init_view(struct merak_build *b, struct view *v, int stage,
                      int value)
{
    int origin = merak_build_crossing_id(b, value);

    set_view(b, v, stage);
    if (origin >= 0)
        v->value = same_value(v->sharded, origin);
    if (v->value != NULL)
        return true;
    merak_build_fail(b,
                     merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                                "value %s is needed on stage %d, whose ranks "
                                "are unlike those of stage %d, and has no "
                                "counterpart there",
                                b->graph->value[value]->name, stage, b->stage));
    return false;
}

/* The whole tensor's shape, the same at both ends; false: there is none. */
static bool whole_shape(struct merak_build *b, const struct view *from,
                        const struct view *to, bool samples,
                        struct merak_shape *shape)
{
    struct merak_shape other = to->value->shape;

    *shape = from->value->shape;
    if (samples) {
        shape->dim[0] *= (size_t)from->mesh.dp;
        other.dim[0] *= (size_t)to->mesh.dp;
    }
    if (merak_shape_equal(shape, &other))
        return true;
    merak_build_fail(
        b, merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                      "value %s has other extents on stages of other replicas: "
                      "expected samples along its first dim alone to differ",
                      from->value->name));
    return false;
}

/* --- this rank's messages ------------------------------------------------- */

/* All of a tensor that holds this box alone. */
static struct merak_box packed_box(const struct merak_box *box)
{
    struct merak_box packed = *box;

    for (int d = 0; d < box->ndim; d++) {
        packed.lo[d] = 0;
        packed.full[d] = box->len[d];
    }
    return packed;
}

/* A copy of a box of one slot to all of another, or back. */
static struct merak_exchange *copy_of(struct merak_build *b,
                                      const struct merak_box *box, bool send,
                                      enum merak_dtype dtype)
{
    struct merak_exchange *copy = merak_build_alloc_kept(b, sizeof(*copy));
    struct merak_box *ends = merak_build_alloc_kept(b, 2 * sizeof(*ends));

    if (b->rc != MERAK_OK)
        return NULL;
    ends[0] = send ? *box : packed_box(box);
    ends[1] = send ? packed_box(box) : *box;
    *copy = (struct merak_exchange){.kind = MERAK_CONVERT_SLICE,
                                    .dtype = dtype,
                                    .n = 1,
                                    .in = merak_box_full_shape(&ends[0]),
                                    .out = merak_box_full_shape(&ends[1]),
                                    .send = &ends[0],
                                    .recv = &ends[1]};
    return copy;
}

static void add_part(struct merak_build *b, struct merak_crossing *c,
                     const struct merak_cross_move *move,
                     const struct merak_box *own, int peer, bool send,
                     enum merak_dtype dtype)
{
    struct merak_crossed *part = &c->part[c->n++];

    *part = (struct merak_crossed){.peer = peer, .box = move->box};
    for (int d = 0; d < own->ndim; d++) {
        part->box.lo[d] -= own->lo[d];
        part->box.full[d] = own->len[d];
    }
    if (!merak_box_contiguous(&part->box, &part->at))
        part->copy = copy_of(b, &part->box, send, dtype);
}

static void add_parts(struct merak_build *b, struct merak_crossing *c,
                      const struct merak_cross *cross, const struct view *from,
                      const struct view *to, const struct merak_shape *shape,
                      bool send, enum merak_dtype dtype)
{
    const struct view *own = send ? from : to, *other = send ? to : from;
    int me = b->prog->rank - own->mesh.first;
    struct merak_box box;

    merak_cross_box(&own->end, shape, me, &box);
    c->part =
        merak_build_alloc(b, ((size_t)cross->n_moves + 1) * sizeof(*c->part));
    for (int i = 0; i < cross->n_moves && b->rc == MERAK_OK; i++) {
        const struct merak_cross_move *m = &cross->move[i];

        if ((send ? m->from : m->to) == me)
            add_part(b, c, m, &box,
                     other->mesh.first + (send ? m->to : m->from), send, dtype);
    }
}

/* How a part becomes the whole value of a rank. */
static void set_gather(struct merak_build *b, struct merak_crossing *c,
                       const struct view *to)
{
    const struct merak_mesh mesh = {.n_axes = 1,
                                    .axis[0] = {"tp", to->mesh.tp}};
    struct merak_layout from = {
        {{.kind = MERAK_SPLIT, .dim = (int8_t)to->part_dim}}};
    struct merak_hop hop = {.kind = MERAK_CONVERT_ALL_GATHER};

    merak_layout_replicated(&hop.to);
    c->gather = merak_build_exchange(b, &mesh, &b->prog->tp_index, &hop, &from,
                                     &to->value->shape, to->value->dtype);
    c->arrival = (struct merak_slot){.category = MERAK_CAT_TRANSIENT,
                                     .name = to->value->name,
                                     .value = to->value->id,
                                     .dtype = to->value->dtype};
    merak_layout_box(&mesh, &from, &to->value->shape, &b->prog->tp_index,
                     &c->arrival.box);
    c->arrival.flat_hi = merak_box_count(&c->arrival.box);
}

static struct merak_crossing *find(struct merak_build *b, struct view *from,
                                   struct view *to, bool send, bool samples,
                                   enum merak_dtype dtype)
{
    struct merak_crossing *c = merak_build_alloc(b, sizeof(*c));
    struct merak_cross cross;
    struct merak_shape shape;

    if (b->rc != MERAK_OK || !whole_shape(b, from, to, samples, &shape))
        return NULL;
    set_end(from, samples);
    set_end(to, samples);
    if (samples && b->prog->plan.scatter != 0)
        set_parts(to);
    merak_build_fail(b, merak_cross_init(&cross, &from->end, &to->end, &shape,
                                         SIZE_MAX, b->err));
    if (b->rc != MERAK_OK)
        return NULL;
    c->send = send;
    add_parts(b, c, &cross, from, to, &shape, send, dtype);
    merak_cross_fini(&cross);
    if (!send && to->part_dim >= 0 && b->rc == MERAK_OK)
        set_gather(b, c, to);
    return b->rc == MERAK_OK ? c : NULL;
}

static struct merak_crossing *
find_value(struct merak_build *b, struct view *from, struct view *to, bool send)
{
    if (!has_samples(from->sharded->graph, from->value) ||
        !has_samples(to->sharded->graph, to->value)) {
        merak_build_fail(
            b, merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                          "value %s crosses to a stage of unlike ranks: "
                          "expected samples along its first dim",
                          from->value->name));
        return NULL;
    }
    return find(b, from, to, send, true, from->value->dtype);
}

struct merak_crossing *merak_build_crossing(struct merak_build *b, int value,
                                            int from_stage, int to_stage)
{
    struct view from, to;

    if (b->rc != MERAK_OK || !init_view(b, &from, from_stage, value) ||
        !init_view(b, &to, to_stage, value))
        return NULL;
    return find_value(b, &from, &to, from_stage == b->stage);
}

struct merak_crossing *merak_build_carry_crossing(struct merak_build *b, int i,
                                                  int from_stage, int to_stage)
{
    struct view from, to;

    set_view(b, &from, from_stage);
    set_view(b, &to, to_stage);
    from.value = from.sharded->graph->recycling[i].out;
    to.value = to.sharded->graph->recycling[i].in;
    return b->rc == MERAK_OK ? find_value(b, &from, &to, from_stage == b->stage)
                             : NULL;
}

struct merak_crossing *merak_build_param_crossing(struct merak_build *b,
                                                  int param, int from_stage,
                                                  int to_stage)
{
    struct view from, to;

    if (b->rc != MERAK_OK || !init_view(b, &from, from_stage, param) ||
        !init_view(b, &to, to_stage, param))
        return NULL;
    return find(b, &from, &to, from_stage == b->stage, false,
                merak_graph_grad_dtype(from.value));
}

/* --- slots ---------------------------------------------------------------- */

/* Of the parts of what is in one slot, as one crossing has them; made once. */
struct merak_crossed_slots {
    const struct merak_crossing *crossing;
    int *id;  /* by part */
    int base; /* what the parts are of: the slot itself, or what is gathered */
    struct merak_crossed_slots *next;
};

/* The slot of a part of slot `base`: in its memory, or, if it has to be packed,
 * in memory of its own. */
static int part_slot(struct merak_build *b, int base,
                     const struct merak_crossed *part)
{
    struct merak_slot slot = b->prog->slot[base];
    size_t n = merak_box_count(&part->box);
    size_t item = merak_dtype_bytes(slot.dtype);
    size_t within = slot.whole == base ? 0 : slot.offset; /* of its whole */

    slot.bytes = n * item;
    slot.flat_lo = 0;
    slot.flat_hi = n;
    slot.box = part->box;
    if (part->copy == NULL)
        return merak_build_alias(b, slot.whole, within + part->at * item,
                                 &slot);
    slot.box = packed_box(&part->box);
    slot.category = MERAK_CAT_COMM;
    slot.value = -1;
    return merak_build_slot(b, &slot);
}

static const struct merak_crossed_slots *
slots_of(struct merak_build *b, const struct merak_crossing *c, int slot)
{
    struct merak_crossed_slots *made = b->use[slot].crossed;

    while (made != NULL && made->crossing != c)
        made = made->next;
    if (made != NULL)
        return made;
    made = merak_build_alloc(b, sizeof(*made));
    if (made == NULL)
        return NULL;
    *made = (struct merak_crossed_slots){c, NULL, slot, b->use[slot].crossed};
    made->id = merak_build_alloc(b, ((size_t)c->n + 1) * sizeof(int));
    if (c->gather != NULL)
        made->base = merak_build_slot(b, &c->arrival);
    for (int i = 0; i < c->n && b->rc == MERAK_OK; i++)
        made->id[i] = part_slot(b, made->base, &c->part[i]);
    b->use[slot].crossed = made;
    return b->rc == MERAK_OK ? made : NULL;
}

void merak_build_extend_sent(struct merak_build *b, int slot)
{
    const struct merak_crossed_slots *made = b->use[slot].crossed;

    for (; made != NULL; made = made->next) {
        for (int i = 0; i < made->crossing->n; i++) {
            if (made->crossing->send && made->crossing->part[i].copy != NULL)
                merak_build_extend(b, made->id[i]);
        }
    }
}

/* --- instructions --------------------------------------------------------- */

static void copy_part(struct merak_build *b, const struct merak_instr *like,
                      const struct merak_crossed *part, int from, int to)
{
    struct merak_instr in = *like;

    in.kind = MERAK_INSTR_SLICE;
    in.node = in.peer = -1;
    in.n_in = in.n_out = 1;
    in.tag = 0;
    in.exchange = part->copy;
    in.slot[0] = from;
    in.slot[1] = to;
    merak_build_push(b, &in);
}

void merak_build_cross(struct merak_build *b, const struct merak_crossing *c,
                       const struct merak_instr *like, int slot)
{
    const struct merak_crossed_slots *made =
        slot < 0 ? NULL : slots_of(b, c, slot);

    if (made == NULL)
        return;
    if (c->gather != NULL)
        merak_build_begin(b, made->base);
    for (int i = 0; i < c->n && b->rc == MERAK_OK; i++) {
        const struct merak_crossed *part = &c->part[i];
        struct merak_instr in = *like;

        if (part->copy != NULL)
            merak_build_begin(b, made->id[i]);
        if (part->copy != NULL && c->send)
            copy_part(b, like, part, slot, made->id[i]);
        merak_build_message(b, &in, c->send, made->id[i], part->peer);
    }
}

void merak_build_arrived(struct merak_build *b, const struct merak_crossing *c,
                         const struct merak_instr *like, int slot)
{
    const struct merak_crossed_slots *made =
        slot < 0 ? NULL : slots_of(b, c, slot);
    struct merak_instr in = *like;

    if (made == NULL)
        return;
    for (int i = 0; i < c->n && b->rc == MERAK_OK; i++) {
        if (c->part[i].copy != NULL)
            copy_part(b, like, &c->part[i], made->id[i], made->base);
    }
    if (c->gather == NULL || b->rc != MERAK_OK)
        return;
    in.kind = MERAK_INSTR_EXCHANGE;
    in.node = in.peer = -1;
    in.n_in = in.n_out = 1;
    in.slot[0] = made->base;
    in.slot[1] = slot;
    in.exchange = c->gather;
    in.group = merak_build_group(b, MERAK_GROUP_TP);
    if (b->rc == MERAK_OK)
        merak_build_push(b, &in);
}
