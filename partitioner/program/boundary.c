/* SPDX-License-Identifier: Apache-2.0 */
/* boundary.c - values replicated over tensor ranks, from stage to stage
 *
 * Sent whole, such a value crosses the link between two stages once for each
 * of the n tensor ranks.  If that link leaves a node, each sends 1/n of it
 * instead, a flat cut of its elements like one of optimizer state, and the
 * receiving stage gathers the parts: a conversion from a flat layout to a
 * replicated one inside a node.  Bytes are moved and nothing is computed, so
 * results are bitwise the same.  Cuts may be uneven.  A value of fewer than n
 * elements, or one that a tensor axis cuts already (sequence parallelism), is
 * sent as it is.
 *
 * The part is received at its offset in the value's slot, and gathered there
 * when it is the turn of the action that reads it: the collective queue must
 * never wait for a message that another stage may send later.
 */
#include "config.h"

#include "partitioner/program/boundary.h"
#include "partitioner/program/build.h"
#include "partitioner/program/instr_cost.h"

#include "partitioner/layout/cross.h"

int merak_boundary_ways(const struct merak_sharded *sharded,
                        const struct merak_layout *layout, int *axis_p)
{
    int axes = merak_sharded_tensor_axes(sharded);
    int ways = 1, replicated = 0, axis = -1;

    for (int a = 0; a < axes; a++) {
        if (layout->at[a].kind != MERAK_REPLICATED)
            continue;
        ways *= sharded->mesh.axis[a].size;
        axis = a;
        replicated++;
    }
    if (axis_p != NULL)
        *axis_p = replicated == axes ? MERAK_GROUP_TP : axis;
    return ways;
}

/* --- whether to ----------------------------------------------------------- */

/* Seconds until a boundary of this many bytes, sent over links of this level,
 * has arrived. */
static double seconds(const struct merak_links *links, int level, double bytes,
                      int n)
{
    double part = bytes / n;

    return merak_links_message_s(links, level, part) +
           merak_links_exchange_s(links, MERAK_CONVERT_ALL_GATHER, bytes - part,
                                  &(struct merak_spread){.n = {n}});
}

static int most_tensor_ranks(const struct merak_plan *plan)
{
    int most = 1;

    for (int s = 0; s < (plan->stage != NULL ? plan->pp : 1); s++) {
        int tp = merak_plan_mesh(plan, s).tp;

        most = tp > most ? tp : most;
    }
    return most;
}

int merak_boundary_choose(enum merak_boundary boundary,
                          const struct merak_cost_model *cost,
                          const struct merak_plan *plan, double bytes)
{
    const struct merak_links shared = merak_links_shared(&cost->links, plan, 0);
    int node = cost->links.level[0].ranks, tp = most_tensor_ranks(plan);
    int slices = merak_schedule_slices(plan->schedule), far;

    if (slices > 1)
        bytes /= slices; /* they cross one by one */
    if (tp == 1 || plan->pp == 1 || boundary == MERAK_BOUNDARY_WHOLE)
        return 0;
    if (boundary == MERAK_BOUNDARY_SCATTER)
        return 1;
    far = merak_links_level(&shared, 0, merak_plan_rank(plan, 0, 0, 1));
    far = far > 1 ? far : 1;
    if (plan->stage != NULL)
        return seconds(&shared, far, bytes, tp) <
               seconds(&shared, far, bytes, 1);
    if (node == 0 || node % tp != 0 || node >= merak_plan_ranks(plan))
        return 0;
    return seconds(&shared, far, bytes, tp) < seconds(&shared, far, bytes, 1)
               ? node
               : 0;
}

double merak_boundary_bytes(const struct merak_sharded *sharded,
                            const struct merak_stages *stages)
{
    const struct merak_graph *graph = sharded->graph;
    double most = 0;

    for (int n = 0; n < graph->n_nodes; n++) {
        for (int i = 0; i < graph->node[n]->n_in; i++) {
            const struct merak_value *v = graph->node[n]->in[i];
            double bytes = (double)merak_value_bytes(v);

            if (v->producer >= 0 &&
                stages->of_node[v->producer] != stages->of_node[n] &&
                merak_boundary_ways(sharded, &sharded->layout[v->id], NULL) >
                    1 &&
                bytes > most)
                most = bytes;
        }
    }
    return most;
}

/* Does a message between two stages leave a node, for any of their ranks?
 * All of them must agree. */
static bool leaves(const struct merak_build *b, int from, int to)
{
    const struct merak_plan *plan = &b->prog->plan;
    const struct merak_stage_mesh *mesh = &b->prog->mesh;
    int node = plan->scatter;

    for (int d = 0; d < mesh->dp; d++) {
        for (int t = 0; t < mesh->tp; t++) {
            if (merak_plan_rank(plan, t, d, from) / node !=
                merak_plan_rank(plan, t, d, to) / node)
                return true;
        }
    }
    return false;
}

/* Does a value go in parts from a stage to another? */
static bool scatters(const struct merak_build *b, int value, int from, int to)
{
    const struct merak_layout layout = merak_build_layout(b, value);
    int ways = merak_boundary_ways(b->sharded, &layout, NULL);
    struct merak_box box;

    if (b->prog->plan.scatter == 0 || from < 0 || to < 0 || ways == 1)
        return false;
    merak_layout_box(&b->mesh, &layout, &b->graph->value[value]->shape,
                     b->coord, &box);
    return merak_build_slice_least(b, merak_box_count(&box)) >= (size_t)ways &&
           leaves(b, from, to);
}

/* --- parts ---------------------------------------------------------------- */

/* The ranks that a value is replicated on: how many, this rank's index among
 * them, their group's key. */
struct replication {
    int n, me, key;
};

static struct replication replication_of(const struct merak_build *b, int value)
{
    const struct merak_layout layout = merak_build_layout(b, value);
    struct replication a = {0};

    a.n = merak_boundary_ways(b->sharded, &layout, &a.key);
    a.me = a.key == MERAK_GROUP_TP ? b->prog->tp_index : b->coord[a.key];
    return a;
}

/* --- messages ------------------------------------------------------------- */

/* This rank's message of a value to another stage, or from it, in parts or
 * whole.  Replicas are as many there and have the same sequences, so that only
 * tensor ranks of one replica meet.  `box`: where the value is cut into slices,
 * which are whole on every rank, that of a slice. */
static struct merak_cross_move message(struct merak_build *b, int value,
                                       const struct merak_box *box, bool send,
                                       bool parts)
{
    struct merak_cross_end end = {.mesh = b->mesh,
                                  .layout = merak_build_layout(b, value)};
    struct merak_shape shape = b->graph->value[value]->shape;
    struct merak_cross_move mine = {.from = -1, .to = -1};
    struct merak_cross cross;
    enum merak_status rc;

    end.mesh.n_axes = merak_sharded_tensor_axes(b->sharded);
    for (int d = 0; d < shape.ndim; d++) {
        bool cut = false;

        for (int a = 0; a < end.mesh.n_axes; a++)
            cut = cut || end.layout.at[a].dim == d;
        shape.dim[d] = cut ? shape.dim[d] : box->len[d];
    }
    rc = merak_cross_init(&cross, &end, &end, &shape, parts ? 0 : SIZE_MAX,
                          b->err);
    if (rc != MERAK_OK) {
        merak_build_fail(b, rc);
        return mine;
    }
    for (int i = 0; i < cross.n_moves; i++) {
        const struct merak_cross_move *m = &cross.move[i];

        if ((send ? m->from : m->to) == b->prog->tp_index)
            mine = *m;
    }
    merak_cross_fini(&cross);
    return mine;
}

/* The rank of another stage that a value goes to, or comes from. */
static int peer_of(struct merak_build *b, int value, int stage, bool send,
                   bool parts)
{
    const struct merak_layout layout = merak_build_layout(b, value);
    struct merak_cross_move mine;
    struct merak_box box;

    merak_layout_box(&b->mesh, &layout, &b->graph->value[value]->shape,
                     b->coord, &box);
    mine = message(b, value, &box, send, parts);
    if (mine.from < 0)
        return merak_build_peer(b, stage); /* it has no element */
    return merak_plan_rank(&b->prog->plan, send ? mine.to : mine.from,
                           b->prog->dp_index, stage);
}

void merak_build_crossings(struct merak_build *b, int value)
{
    struct merak_flow *f = &b->flow[value];
    const struct merak_plan *plan = &b->prog->plan;

    if (f->from >= 0 && merak_plan_is_unlike(plan, f->from, b->stage))
        f->in = merak_build_crossing(b, value, f->from, b->stage);
    if (f->to >= 0 && merak_plan_is_unlike(plan, b->stage, f->to))
        f->out = merak_build_crossing(b, value, b->stage, f->to);
    if (f->in == NULL)
        f->parts_from = scatters(b, value, f->from, b->stage);
    if (f->out == NULL)
        f->parts_to = scatters(b, value, b->stage, f->to);
    if (f->from >= 0 && f->in == NULL)
        f->peer_from = peer_of(b, value, f->from, false, f->parts_from);
    if (f->to >= 0 && f->out == NULL)
        f->peer_to = peer_of(b, value, f->to, true, f->parts_to);
}

/* The slot of this rank's part of a value that is sent in parts. */
static int scattered_slot(struct merak_build *b, int value, int slot)
{
    struct merak_cross_move mine;
    struct merak_slot part;
    int id;

    if (slot < 0 || b->use[slot].part >= 0)
        return slot < 0 ? -1 : b->use[slot].part;
    part = b->prog->slot[slot];
    mine = message(b, value, &part.box, false, true);
    part.flat_lo = mine.lo;
    part.flat_hi = mine.hi;
    part.bytes = 0;
    /* The offset is in the whole, also for a slice of a sequence. */
    id = merak_build_alias(
        b, part.whole,
        part.offset + part.flat_lo * merak_dtype_bytes(part.dtype), &part);
    if (id >= 0)
        b->use[slot].part = id;
    return id;
}

static int slot_of(struct merak_build *b, int value, int microbatch)
{
    return merak_build_slice_slot(b, NULL, 0,
                                  merak_build_value(b, value, microbatch));
}

int merak_build_moved(struct merak_build *b, int value, int microbatch,
                      bool send)
{
    const struct merak_flow *f = &b->flow[value];
    int slot = slot_of(b, value, microbatch);

    return (send ? f->parts_to : f->parts_from) ? scattered_slot(b, value, slot)
                                                : slot;
}

/* The exchange that gathers a value in a slot from its parts. */
static struct merak_exchange *gather_of(struct merak_build *b, int value,
                                        const struct replication *a, int slot)
{
    const struct merak_slot *s = &b->prog->slot[slot];
    struct merak_mesh mesh = {.n_axes = 1, .axis[0].size = a->n};
    struct merak_layout from = {.at[0] = {.kind = MERAK_FLAT, .dim = -1}};
    struct merak_hop hop = {.kind = MERAK_CONVERT_ALL_GATHER};
    struct merak_shape shape = merak_box_shape(&s->box);
    struct merak_exchange **ex =
        &b->once.join[value * merak_build_slice_kinds(b) +
                      merak_build_slice_kind(b)];

    if (*ex != NULL)
        return *ex;
    merak_layout_replicated(&hop.to);
    *ex = merak_build_exchange(b, &mesh, &a->me, &hop, &from, &shape, s->dtype);
    return *ex;
}

void merak_build_gather(struct merak_build *b, int value, int microbatch)
{
    const struct merak_flow *f = &b->flow[value];
    int slot = slot_of(b, value, microbatch);
    struct merak_instr in = {
        .kind = MERAK_INSTR_EXCHANGE,
        .phase =
            merak_build_is_forward(b, value) ? MERAK_PHASE_F : MERAK_PHASE_B,
        .microbatch = microbatch,
        .pass = b->now.pass,
        .chunk = f->chunk,
        .node = -1,
        .n_in = 1,
        .n_out = 1,
        .peer = -1,
        /* Its transfers have the same tag, but connect other ranks. */
        .tag = merak_build_tag(b, merak_build_turn(b, microbatch), value),
        .name = f->gather_name};
    struct replication a;

    if (f->in != NULL)
        merak_build_arrived(b, f->in, &in, slot);
    if (!f->parts_from || slot < 0)
        return;
    a = replication_of(b, value);
    in.slot[0] = scattered_slot(b, value, slot);
    in.slot[1] = slot;
    in.exchange = gather_of(b, value, &a, slot);
    in.group = merak_build_group(b, a.key);
    if (b->rc == MERAK_OK)
        merak_build_push(b, &in);
}
