/* SPDX-License-Identifier: Apache-2.0 */
/* params.c - what a rank keeps from step to step: the persistent slots
 *
 * Parameters first, then optimizer state, then gradients, all from offset 0:
 * training and evaluation programs of one plan share this part of the arena.
 * Optimizer state that is the host's is from offset 0 there.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "base/size.h"

int merak_build_keep(struct merak_build *b, struct merak_slot *slot)
{
    int id = merak_build_slot(b, slot);
    struct merak_program *prog = b->prog;
    size_t *end;

    if (id < 0)
        return -1;
    b->use[id].persistent = true;
    end = slot->host ? &prog->host_bytes : &prog->persistent_bytes;
    prog->slot[id].offset = *end;
    *end += merak_size_align(prog->slot[id].bytes, MERAK_ALIGN);
    return id;
}

/* A slot for what has a parameter's dims, or a gradient's: `v` itself, its sum
 * or its optimizer state. */
static struct merak_slot slot_of(const struct merak_build *b, int v,
                                 const struct merak_layout *layout,
                                 enum merak_dtype dtype,
                                 enum merak_category category, const char *name)
{
    struct merak_slot slot = {
        .category = category, .name = name, .value = v, .dtype = dtype};

    merak_build_box(b, v, layout, &slot);
    return slot;
}

static struct merak_layout layout_over(const struct merak_build *b, int param,
                                       enum merak_held_over over)
{
    switch (over) {
    case MERAK_OVER_HOMES:
        return merak_build_home_layout(b, param);
    case MERAK_OVER_REPLICAS:
        return merak_build_state_layout(b, param);
    case MERAK_OVER_NONE:
        break;
    }
    return merak_build_layout(b, param);
}

/* Keep f32 state of a parameter. */
static int keep_state_of(struct merak_build *b, int v, const char *name)
{
    /* tensor ranks that replicate it divide it, too, with or without replicas
     */
    const struct merak_layout layout = merak_build_state_layout(b, v);
    struct merak_slot slot =
        slot_of(b, v, &layout, MERAK_F32, MERAK_CAT_OPTIMIZER, name);

    slot.host = merak_build_is_offloaded(b, v);
    return merak_build_keep(b, &slot);
}

static void keep_param(struct merak_build *b, struct merak_param_slots *p)
{
    const struct merak_value *value = b->graph->value[p->value];
    const struct merak_held held =
        merak_build_held(b, p->value, MERAK_HELD_PARAM);
    const struct merak_layout whole = merak_build_layout(b, p->value),
                              home = layout_over(b, p->value, held.over);
    struct merak_slot used = slot_of(b, p->value, &whole, value->dtype,
                                     MERAK_CAT_FETCHED, p->name),
                      kept = slot_of(b, p->value, &home, value->dtype,
                                     MERAK_CAT_PARAM, p->name);

    if (held.used > 0)
        p->param = merak_build_slot(b, &used);
    p->home = merak_build_keep(b, &kept);
    if (held.used == 0)
        p->param = p->home;
    b->params.slot[p->value] = p->param;
}

/* An f32 parameter is its own master; if it is flat, its flat range is. */
static int own_master(struct merak_build *b, struct merak_param_slots *p)
{
    return merak_build_state_part(b, p->value, p->home);
}

static void keep_state(struct merak_build *b, struct merak_param_slots *p)
{
    bool f32 = b->graph->value[p->value]->dtype == MERAK_F32;

    if (p->param < 0)
        return;
    if (b->graph->value[p->value]->frozen) {
        p->master = f32 ? p->home : -1;
        return;
    }
    p->master = f32 ? own_master(b, p)
                    : keep_state_of(b, p->value,
                                    merak_build_name(b, "%s.master", p->name));
    p->m = keep_state_of(b, p->value, merak_build_name(b, "%s.m", p->name));
    p->v = keep_state_of(b, p->value, merak_build_name(b, "%s.v", p->name));
}

static void describe(struct merak_build *b, int v)
{
    const struct merak_value *value = b->graph->value[v];
    struct merak_param_slots *p = &b->prog->param[b->prog->n_params++];

    *p = (struct merak_param_slots){.value = v,
                                    .name = value->name,
                                    .shape = value->shape,
                                    .param = -1,
                                    .home = -1,
                                    .master = -1,
                                    .m = -1,
                                    .v = -1,
                                    .grad = -1,
                                    .decay = value->decay,
                                    .frozen = value->frozen,
                                    .lr_scale = value->lr_scale,
                                    .primary = merak_build_is_primary(b, v),
                                    .init = value->init};
}

static bool is_param(const struct merak_build *b, int v)
{
    return b->graph->value[v]->kind == MERAK_VALUE_PARAM;
}

static void alloc_params(struct merak_build *b)
{
    struct merak_program *prog = b->prog;
    size_t n = 1;

    for (int v = 0; v < b->graph->n_values; v++)
        n += is_param(b, v) && b->flow[v].here;
    prog->param = merak_build_alloc_kept(b, n * sizeof(*prog->param));
}

/* What is kept of a gradient: `v`, in its layout or that of its sum, the
 * parameter's. */
static int keep_grad(struct merak_build *b, int v,
                     const struct merak_layout *layout, const char *name)
{
    struct merak_slot slot =
        slot_of(b, v, layout, merak_graph_grad_dtype(b->graph->value[v]),
                MERAK_CAT_GRAD, name);

    return merak_build_keep(b, &slot);
}

/* A gradient that is whole only while it is used. */
static int lend_grad(struct merak_build *b, int v,
                     const struct merak_layout *layout)
{
    const struct merak_value *value = b->graph->value[v];
    struct merak_slot slot =
        slot_of(b, v, layout, value->dtype, MERAK_CAT_GRAD, value->name);
    int id = merak_build_slot(b, &slot);

    if (id >= 0)
        b->use[id].brief = true;
    return id;
}

/* The slots of a gradient: of its accumulator, or of what is summed each
 * micro-batch. */
static void describe_grad(struct merak_build *b, int v)
{
    const struct merak_value *value = b->graph->value[v];
    const struct merak_held held =
        merak_build_held(b, value->of, MERAK_HELD_GRAD);
    const struct merak_layout layout = merak_build_layout(b, v),
                              home = merak_build_home_layout(b, value->of);

    if (held.used == 0) {
        b->params.slot[v] = keep_grad(b, v, &layout, value->name);
        return;
    }
    if (held.kept)
        b->fetch.inner_sum[value->of] =
            keep_grad(b, value->of, &home,
                      merak_build_name(b, "d/%s inside",
                                       b->graph->value[value->of]->name));
    b->params.slot[v] = lend_grad(b, v, &layout);
    if (b->prog->plan.sub_pipeline)
        b->params.higher[v] = lend_grad(b, v, &layout);
}

/* A sum that is not made in the accumulator. */
static void keep_sum(struct merak_build *b, struct merak_param_slots *p)
{
    const struct merak_held held =
        merak_build_held(b, p->value, MERAK_HELD_SUM);
    const struct merak_layout layout = layout_over(b, p->value, held.over);

    if (held.kept && !b->graph->value[p->value]->frozen)
        p->grad = keep_grad(b, p->value, &layout,
                            merak_build_name(b, "d/%s", p->name));
}

void merak_build_params(struct merak_build *b)
{
    struct merak_program *prog = b->prog;

    alloc_params(b);
    merak_build_readers(b);
    if (b->rc != MERAK_OK)
        return;
    for (int v = 0; v < b->graph->n_values; v++) {
        b->params.slot[v] = b->params.higher[v] = -1;
        if (!is_param(b, v))
            continue;
        b->params.index[v] = -1;
        if (!b->graph->value[v]->frozen)
            b->params.index[v] = b->params.n++;
        if (b->flow[v].here)
            describe(b, v);
    }
    for (int i = 0; i < prog->n_params; i++)
        keep_param(b, &prog->param[i]);
    merak_build_count_fetched(b);
    for (int i = 0; i < prog->n_params; i++)
        keep_state(b, &prog->param[i]);
    for (int i = 0; i < prog->n_params; i++)
        keep_sum(b, &prog->param[i]);
    for (int v = 0; v < b->graph->n_values; v++) {
        if (b->graph->value[v]->kind == MERAK_VALUE_PARAM_GRAD &&
            b->flow[v].here)
            describe_grad(b, v);
    }
}

bool merak_build_is_higher(const struct merak_build *b, int microbatch)
{
    return b->prog->plan.sub_pipeline && microbatch >= 0 && microbatch % 2 != 0;
}

int merak_build_param_slot(const struct merak_build *b, int value,
                           int microbatch)
{
    return merak_build_is_higher(b, microbatch) && b->params.higher[value] >= 0
               ? b->params.higher[value]
               : b->params.slot[value];
}
