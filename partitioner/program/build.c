/* SPDX-License-Identifier: Apache-2.0 */
/* build.c - slots, instructions, groups and exchanges of a program that is
 * being made
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "base/error.h"
#include "base/grow.h"
#include "partitioner/program/staged.h"
#include "base/size.h"
#include "partitioner/graph/mem_pool.h"
#include "partitioner/program/instr_cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOOK                                                        \
    256 /* instructions after which the deadline is looked at again \
         */

void merak_build_fail(struct merak_build *b, enum merak_status rc)
{
    if (b->rc == MERAK_OK)
        b->rc = rc;
}

static void *alloc_from(struct merak_build *b, struct merak_pool *pool,
                        size_t bytes)
{
    void *p = merak_pool_alloc(pool, bytes);

    if (p == NULL)
        merak_build_fail(b, merak_fail_nomem(b->err, bytes));
    return p;
}

void *merak_build_alloc(struct merak_build *b, size_t bytes)
{
    return alloc_from(b, b->pool, bytes);
}

void *merak_build_alloc_kept(struct merak_build *b, size_t bytes)
{
    return alloc_from(b, b->prog->pool, bytes);
}

const char *merak_build_name(struct merak_build *b, const char *fmt, ...)
{
    const char *name;
    va_list ap;

    va_start(ap, fmt);
    name = merak_pool_vprintf(b->prog->pool, fmt, ap);
    va_end(ap);
    if (name == NULL)
        merak_build_fail(b, merak_fail_nomem(b->err, 64));
    return name == NULL ? "" : name;
}

bool merak_build_grow(struct merak_build *b, void *array_p, int *cap, int n,
                      size_t size)
{
    enum merak_status rc = merak_grow(array_p, cap, n, size, b->err);

    merak_build_fail(b, rc);
    return rc == MERAK_OK;
}

/* --- slots ---------------------------------------------------------------- */

struct merak_layout merak_build_layout(const struct merak_build *b, int value)
{
    struct merak_layout layout = b->sharded->layout[value];

    for (int a = b->sharded->mesh.n_axes; a < MERAK_MAX_AXES; a++)
        layout.at[a] =
            (struct merak_place){.kind = MERAK_REPLICATED, .dim = -1};
    return layout;
}

void merak_build_box(const struct merak_build *b, int value,
                     const struct merak_layout *layout, struct merak_slot *slot)
{
    const struct merak_shape *shape = &b->graph->value[value]->shape;

    merak_layout_box(&b->mesh, layout, shape, b->coord, &slot->box);
    merak_layout_flat(&b->mesh, layout, shape, b->coord, &slot->flat_lo,
                      &slot->flat_hi);
}

struct merak_slot merak_build_vector(enum merak_dtype dtype, size_t n,
                                     const char *name)
{
    return (struct merak_slot){.category = MERAK_CAT_TRANSIENT,
                               .name = name,
                               .value = -1,
                               .dtype = dtype,
                               .box = {.ndim = 1, .full = {n}, .len = {n}},
                               .flat_hi = n};
}

int merak_build_slot(struct merak_build *b, const struct merak_slot *proto)
{
    struct merak_program *prog = b->prog;
    int id = prog->n_slots, cap = b->room.cap_slots;
    struct merak_slot *slot;

    if (b->rc != MERAK_OK ||
        !merak_build_grow(b, &prog->slot, &b->room.cap_slots, id,
                          sizeof(*prog->slot)) ||
        !merak_build_grow(b, &b->use, &cap, id, sizeof(*b->use)))
        return -1;
    slot = &prog->slot[id];
    *slot = *proto;
    slot->offset = 0;
    slot->whole = id;
    if (slot->bytes == 0)
        slot->bytes = merak_slot_room(slot) * merak_dtype_bytes(slot->dtype);
    b->use[id] = (struct merak_use){
        .next_free = -1, .part = -1, .over = -1, .pieces = -1, .touched = -1};
    prog->n_slots++;
    return id;
}

int merak_build_alias(struct merak_build *b, int whole, size_t at,
                      const struct merak_slot *proto)
{
    int id = merak_build_slot(b, proto);

    if (id < 0)
        return -1;
    b->prog->slot[id].whole = whole;
    b->prog->slot[id].offset = at; /* within `whole`, until that is placed */
    return id;
}

void merak_build_begin(struct merak_build *b, int slot)
{
    struct merak_use *use = &b->use[slot];

    /* A part lives as long as its whole. */
    if (use->persistent || b->prog->slot[slot].whole != slot ||
        (use->n_spans > 0 && use->span[use->n_spans - 1].first < 0))
        return;
    if (merak_build_grow(b, &use->span, &use->cap_spans, use->n_spans,
                         sizeof(*use->span)))
        use->span[use->n_spans++] = (struct merak_span){-1, -1};
}

static void touch(struct merak_build *b, int slot, int at)
{
    struct merak_use *use = &b->use[b->prog->slot[slot].whole];
    struct merak_span *span;

    if (use->n_spans == 0)
        return;
    span = &use->span[use->n_spans - 1];
    if (span->first < 0)
        span->first = at;
    span->last = at;
}

void merak_build_extend(struct merak_build *b, int slot)
{
    touch(b, slot, b->prog->n_instrs - 1);
}

/* --- instructions --------------------------------------------------------- */

static size_t slot_bytes(const struct merak_build *b, int slot)
{
    return b->prog->slot[slot].bytes;
}

/*
 * Bytes touched since the inputs were: the mean of their logarithms, weighted
 * by size, rounded to a power of two.  So kernels of one size are distinguished
 * only where it matters to a cache.  What this step has not touched yet was
 * last touched at the end of the previous one, when the optimizer went over all
 * persistent memory.
 */
static float reuse_distance(const struct merak_build *b,
                            const struct merak_instr *in)
{
    double sum = 0, bytes = 0;

    for (int i = 0; i < in->n_in; i++) {
        int slot = b->prog->slot[in->slot[i]].whole;
        double size = (double)slot_bytes(b, in->slot[i]);
        double since = b->room.traffic - b->use[slot].touched;

        if (b->use[slot].touched < 0)
            since = b->room.traffic + (double)b->prog->persistent_bytes;
        sum += size * log2(since + (double)in->bytes);
        bytes += size;
    }
    return bytes > 0 ? (float)exp2(round(sum / bytes)) : 0;
}

static void measure_kernel(struct merak_build *b, struct merak_instr *in,
                           const struct merak_kernel_call *call)
{
    struct merak_infer inf = {.attrs = in->attrs,
                              .n_in = in->n_in,
                              .n_out = in->n_out,
                              .pieces = in->pieces};
    struct merak_cost cost = {0};

    for (int i = 0; i < in->n_in + in->n_out; i++) {
        inf.shape[i] = call->operand[i].local;
        inf.dtype[i] = call->operand[i].dtype;
        cost.bytes += (double)slot_bytes(b, in->slot[i]);
    }
    in->op->cost(&inf, &cost);
    in->flops = cost.flops;
    in->bytes = (size_t)cost.bytes;
    in->reuse = reuse_distance(b, in);
}

/* Bytes that belong to no tensor. */
static struct merak_slot plain_slot(enum merak_category category, size_t bytes)
{
    return (struct merak_slot){
        .category = category,
        .name = merak_category_name(category),
        .value = -1,
        .bytes = bytes,
        .box = {.ndim = 1, .full = {bytes / 4}, .len = {bytes / 4}},
        .flat_hi = bytes / 4};
}

/* The slot in which what runs in a queue has its scratch or stages, for this
 * size or, if there is one for all, grown to it; -1: none yet. */
static int find_shared(struct merak_build *b, enum merak_queue queue,
                       const struct merak_slot *proto, bool one)
{
    for (int i = 0; i < b->room.n_shared; i++) {
        const struct merak_shared_slot *shared = &b->room.shared[i];
        struct merak_slot *slot = &b->prog->slot[shared->slot];

        if (shared->queue != queue || (!one && slot->bytes != proto->bytes))
            continue;
        if (slot->bytes < proto->bytes) {
            slot->bytes = proto->bytes;
            slot->box = proto->box;
            slot->flat_hi = proto->flat_hi;
        }
        return shared->slot;
    }
    return -1;
}

/* A slot that lives for single instructions of a queue: of exactly this many
 * bytes, or one for all, which is as large as the largest of them needs. */
static int shared_slot(struct merak_build *b, enum merak_queue queue,
                       enum merak_category category, size_t bytes, bool one)
{
    struct merak_slot proto = plain_slot(category, bytes);
    int id;

    if (bytes == 0)
        return -1;
    id = find_shared(b, queue, &proto, one);
    if (id < 0 && merak_build_grow(b, &b->room.shared, &b->room.cap_shared,
                                   b->room.n_shared, sizeof(*b->room.shared))) {
        id = merak_build_slot(b, &proto);
        if (id >= 0)
            b->room.shared[b->room.n_shared++] =
                (struct merak_shared_slot){id, queue};
    }
    if (id >= 0)
        merak_build_begin(b, id);
    return id;
}

/* Do two slots hold parts of one value that have the same shape? */
static bool is_same_part(const struct merak_slot *x, const struct merak_slot *y)
{
    if (x->value < 0 || x->value != y->value || x->bytes != y->bytes ||
        x->dtype != y->dtype || x->ld != y->ld || x->flat_lo != y->flat_lo ||
        x->flat_hi != y->flat_hi)
        return false;
    for (int d = 0; d < x->box.ndim; d++) {
        if (x->box.len[d] != y->box.len[d] || x->box.lo[d] != y->box.lo[d])
            return false;
    }
    return true;
}

/* An earlier micro-batch's instruction for the same node, on parts of the same
 * shapes: what follows from these alone is the same.  NULL: there is none. */
static const struct merak_instr *find_like(const struct merak_build *b,
                                           const struct merak_instr *in)
{
    int at = in->node < 0 ? 0 : b->once.like[in->node];
    const struct merak_slot *slot = b->prog->slot;
    const struct merak_instr *like;

    if (at == 0)
        return NULL;
    like = &b->prog->instr[at - 1];
    if (like->kind != in->kind || like->op != in->op ||
        like->exchange != in->exchange || like->joined != in->joined ||
        like->accumulate != in->accumulate || like->n_in != in->n_in ||
        like->n_out != in->n_out)
        return NULL;
    for (int i = 0; i < in->n_in + in->n_out; i++) {
        if (in->slot[i] != like->slot[i] &&
            !is_same_part(&slot[in->slot[i]], &slot[like->slot[i]]))
            return NULL;
    }
    return like;
}

/* What measure() would find of one that is like an earlier one. */
static void measure_like(struct merak_build *b, struct merak_instr *in,
                         const struct merak_instr *like)
{
    in->flops = like->flops;
    in->bytes = like->bytes;
    in->scratch = like->scratch;
    if (in->scratch >= 0)
        merak_build_begin(b, in->scratch);
    if (in->kind == MERAK_INSTR_KERNEL) {
        in->reuse = reuse_distance(b, in);
        in->demand = merak_cost_demand(b->cost, b->prog, in);
        in->cost_s = in->demand.fixed_s;
        return;
    }
    in->demand = like->demand;
    in->cost_s = like->cost_s;
    in->interference = like->interference;
}

/* What an instruction does decides its queue. */
static enum merak_queue queue_of(const struct merak_build *b,
                                 const struct merak_instr *in)
{
    switch (in->kind) {
    case MERAK_INSTR_EXCHANGE:
        return b->prog->group[in->group].axis == MERAK_ALONG_DP
                   ? MERAK_QUEUE_REPLICAS
                   : MERAK_QUEUE_COLLECTIVE;
    case MERAK_INSTR_SEND:
    case MERAK_INSTR_RECV:
        return MERAK_QUEUE_P2P;
    case MERAK_INSTR_COPY:
        return MERAK_QUEUE_COPY;
    case MERAK_INSTR_LOAD:
    case MERAK_INSTR_KERNEL:
    case MERAK_INSTR_SLICE:
        break;
    }
    return MERAK_QUEUE_COMPUTE;
}

/* Sizes, cost and scratch of an instruction. */
static void measure(struct merak_build *b, struct merak_instr *in)
{
    const struct merak_kernel_memory *memory = &b->opt->memory;
    const struct merak_instr *like = find_like(b, in);
    struct merak_kernel_call call;
    size_t bytes;

    if (like != NULL) {
        measure_like(b, in, like);
        return;
    }
    switch (in->kind) {
    case MERAK_INSTR_KERNEL:
        merak_program_call(b->prog, in, &call);
        measure_kernel(b, in, &call);
        if (memory->scratch != NULL)
            in->scratch = shared_slot(
                b, in->queue, MERAK_CAT_SCRATCH,
                memory->scratch(memory->arg, in->op->name, &call), false);
        break;
    case MERAK_INSTR_EXCHANGE:
        in->bytes = merak_exchange_bytes(in->exchange);
        bytes = merak_exchange_room(in->exchange, b->opt->direct);
        in->scratch =
            shared_slot(b, in->queue, MERAK_CAT_COMM, bytes, b->opt->direct);
        break;
    case MERAK_INSTR_SLICE:
        in->bytes = 2 * slot_bytes(b, in->slot[1]);
        break;
    case MERAK_INSTR_LOAD:
    case MERAK_INSTR_SEND:
    case MERAK_INSTR_RECV:
    case MERAK_INSTR_COPY:
        in->bytes = slot_bytes(b, in->slot[0]);
        break;
    }
    in->demand = merak_cost_demand(b->cost, b->prog, in);
    in->cost_s = merak_demand_is_far(&in->demand)
                     ? merak_cost_instr(b->cost, b->prog, in)
                     : in->demand.fixed_s;
    in->interference = merak_cost_instr_interference(b->cost, b->prog, in);
}

/* Has it run out of time?  Only looked at now and then. */
static bool is_late(struct merak_build *b)
{
    if (b->prog->n_instrs % LOOK == 0 &&
        merak_deadline_is_past(b->opt->deadline))
        merak_build_fail(b, MERAK_ERR_TIMEOUT);
    return b->rc != MERAK_OK;
}

int merak_build_push(struct merak_build *b, struct merak_instr *in)
{
    struct merak_program *prog = b->prog;
    int id = prog->n_instrs;

    if (b->rc != MERAK_OK || is_late(b))
        return -1;
    in->id = id;
    in->queue = queue_of(b, in);
    in->scratch = -1;
    measure(b, in);
    if (b->rc != MERAK_OK ||
        !merak_build_grow(b, &prog->instr, &b->room.cap_instrs, id,
                          sizeof(*prog->instr)))
        return -1;
    prog->instr[id] = *in;
    prog->n_instrs++;
    if (in->node >= 0)
        b->once.like[in->node] = id + 1;
    for (int i = 0; i < in->n_in + in->n_out; i++)
        touch(b, in->slot[i], id);
    if (in->scratch >= 0)
        touch(b, in->scratch, id);
    b->room.traffic += (double)in->bytes;
    for (int i = 0; i < in->n_in + in->n_out; i++)
        b->use[prog->slot[in->slot[i]].whole].touched = b->room.traffic;
    return id;
}

int merak_build_ids(const struct merak_build *b)
{
    return b->all->n_ids > 0 ? b->all->n_ids
                             : b->graph->n_values + 2 * b->graph->n_nodes;
}

uint64_t merak_build_tag(const struct merak_build *b, int microbatch, int id)
{
    /* Every id of a step item is below this: optimizer_step.c. */
    uint64_t ids = (uint64_t)merak_build_ids(b);

    ids += ((uint64_t)b->params.n + 1) * 1024;
    return (uint64_t)(microbatch + 1) * ids + (uint64_t)id;
}

/* --- groups and exchanges ------------------------------------------------- */

static int group_size(const struct merak_build *b, int key)
{
    if (key == MERAK_GROUP_TP)
        return b->prog->mesh.tp;
    if (key == MERAK_GROUP_PP)
        return b->prog->plan.pp;
    return b->mesh.axis[key].size;
}

/* Member i of the group of this rank along an axis. */
static int member(const struct merak_build *b, int key, int i)
{
    const struct merak_program *prog = b->prog;
    int tp = prog->tp_index, dp = prog->dp_index, stage = prog->stage;
    int stride = 1, first_dp = merak_build_dp_axis(b);

    if (key == MERAK_GROUP_TP) {
        tp = i;
    } else if (key == MERAK_GROUP_PP) {
        if (prog->plan.stage != NULL)
            tp = dp = 0; /* of unlike stages, the first ranks */
        stage = i;
    } else if (merak_build_is_dp(b, key)) {
        if (key > first_dp) /* inner replicas count faster */
            stride = b->mesh.axis[first_dp].size;
        dp += (i - b->coord[key]) * stride;
    } else {
        for (int a = key + 1; a < merak_sharded_tensor_axes(b->sharded); a++)
            stride *= b->sharded->mesh.axis[a].size;
        tp += (i - b->coord[key]) * stride;
    }
    return merak_plan_rank(&prog->plan, tp, dp, stage);
}

int merak_build_group(struct merak_build *b, int key)
{
    struct merak_program *prog = b->prog;
    struct merak_group *group = &prog->group[prog->n_groups];

    /* With one tensor axis that is the whole tensor group. */
    if (key == MERAK_GROUP_TP && merak_sharded_tensor_axes(b->sharded) == 1)
        key = 0;
    if (b->pp_axis >= 0 && key == b->pp_axis)
        key = MERAK_GROUP_PP;
    if (b->group_of[key] >= 0)
        return b->group_of[key];
    group->n = group_size(b, key);
    group->rank = merak_build_alloc_kept(b, (size_t)group->n * sizeof(int));
    if (group->rank == NULL)
        return -1;
    for (int i = 0; i < group->n; i++) {
        group->rank[i] = member(b, key, i);
        if (group->rank[i] == prog->rank)
            group->me = i;
    }
    group->axis = key == MERAK_GROUP_PP       ? MERAK_ALONG_PP
                  : merak_build_is_dp(b, key) ? MERAK_ALONG_DP
                                              : MERAK_ALONG_TP;
    if (key != MERAK_GROUP_TP && key != MERAK_GROUP_PP)
        group->role = b->mesh.axis[key].role;
    strcpy(group->name, key == MERAK_GROUP_TP   ? "tp"
                        : key == MERAK_GROUP_PP ? "pp"
                                                : b->mesh.axis[key].name);
    b->group_of[key] = prog->n_groups;
    return prog->n_groups++;
}

/* Move an exchange's boxes from malloc to the program's pool. */
static bool adopt_boxes(struct merak_build *b, struct merak_exchange *to,
                        const struct merak_exchange *from)
{
    size_t bytes = (size_t)from->n * sizeof(struct merak_box);

    *to = *from;
    to->send = to->recv = NULL;
    if (from->send != NULL) {
        to->send = merak_build_alloc_kept(b, bytes);
        if (to->send == NULL)
            return false;
        memcpy(to->send, from->send, bytes);
    }
    if (from->recv != NULL) {
        to->recv = merak_build_alloc_kept(b, bytes);
        if (to->recv == NULL)
            return false;
        memcpy(to->recv, from->recv, bytes);
    }
    return true;
}

struct merak_exchange *
merak_build_exchange(struct merak_build *b, const struct merak_mesh *mesh,
                     const int *coord, const struct merak_hop *hop,
                     const struct merak_layout *from,
                     const struct merak_shape *shape, enum merak_dtype dtype)
{
    struct merak_exchange ex = {0};
    struct merak_exchange *kept = merak_build_alloc_kept(b, sizeof(*kept));
    bool ok;

    if (b->rc != MERAK_OK)
        return NULL;
    merak_build_fail(b, merak_exchange_init(&ex, mesh, hop, from, shape, dtype,
                                            coord, b->err));
    if (b->rc != MERAK_OK)
        return NULL;
    ok = adopt_boxes(b, kept, &ex);
    merak_exchange_fini(&ex);
    return ok ? kept : NULL;
}
