/* SPDX-License-Identifier: Apache-2.0 */
/* shard_leaves.c - layouts of what no node makes: parameters and inputs */
#include "config.h"

#include "partitioner/layout/shard_writer.h"

#include "partitioner/graph/letters.h"

/* A parameter has the layout that its first use needs. */
static void param_layout(const struct merak_shard_writer *w,
                         const struct merak_value *v,
                         struct merak_layout *layout)
{
    for (int n = 0; n < w->old->n_forward; n++) {
        const struct merak_node *node = w->old->node[n];

        for (int i = 0; i < node->n_in; i++) {
            if (node->in[i] != v)
                continue;
            merak_strategy_layout(&w->mesh, &w->sig[n], node->n_in,
                                  &w->strategy[n], i, layout);
            return;
        }
    }
}

/* Is a value cut by points of space, along an axis that is for them? */
static bool is_cut_in_space(const struct merak_shard_writer *w,
                            const struct merak_value *v,
                            const struct merak_layout *layout)
{
    for (int x = 0; x < w->mesh.n_axes; x++) {
        const struct merak_place *at = &layout->at[x];

        if (w->mesh.axis[x].role == MERAK_AXIS_SEQUENCE &&
            at->kind == MERAK_SPLIT &&
            merak_letter_is_space(v->letter[at->dim]))
            return true;
    }
    return false;
}

/* The layout that all readers of a value want, and the one with what windows
 * have of their neighbours' parts; false if they want several. */
static bool wanted_layout(const struct merak_shard_writer *w,
                          const struct merak_value *v, bool with_reach,
                          struct merak_layout *layout)
{
    bool first = true;

    for (int n = 0; n < w->old->n_nodes; n++) {
        const struct merak_node *node = w->old->node[n];
        struct merak_strategy strategy;
        struct merak_layout wants;

        for (int i = 0; i < node->n_in; i++) {
            if (node->in[i] != v)
                continue;
            merak_write_strategy(w, node, &strategy);
            merak_strategy_layout(&w->mesh, &w->sig[n], node->n_in, &strategy,
                                  i, &wants);
            if (with_reach)
                (void)merak_strategy_reach(&w->mesh, &w->sig[n], i, &wants);
            if (!first && !merak_layout_equal(&w->mesh, layout, &wants))
                return false;
            *layout = wants;
            first = false;
        }
    }
    return !first;
}

/* An input is whole, unless its readers want the same part of space: a rank
 * then reads that alone of its files, with what windows have beyond it. */
static void leaf_layout(const struct merak_shard_writer *w,
                        const struct merak_value *v,
                        struct merak_layout *layout)
{
    struct merak_layout wants;

    merak_layout_replicated(layout);
    if (v->kind == MERAK_VALUE_PARAM)
        param_layout(w, v, layout);
    if (v->kind == MERAK_VALUE_INPUT &&
        (wanted_layout(w, v, true, &wants) ||
         wanted_layout(w, v, false, &wants)) &&
        is_cut_in_space(w, v, &wants))
        *layout = wants;
}

void merak_write_leaves(struct merak_shard_writer *w)
{
    for (int i = 0; i < w->old->n_values && w->rc == MERAK_OK; i++) {
        const struct merak_value *old = w->old->value[i];
        struct merak_layout layout;
        struct merak_value *v;

        if (old->kind != MERAK_VALUE_INPUT && old->kind != MERAK_VALUE_PARAM &&
            old->kind != MERAK_VALUE_RECYCLED)
            continue;
        leaf_layout(w, old, &layout);
        w->rc = merak_graph_value(w->graph, old, &v, w->err);
        if (w->rc != MERAK_OK)
            return;
        merak_write_set_layout(w, v, &layout);
        merak_write_add_copy(w, i, v, MERAK_PHASE_F);
    }
}
