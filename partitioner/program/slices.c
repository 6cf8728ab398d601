/* SPDX-License-Identifier: Apache-2.0 */
/* slices.c - micro-batches that run in slices of their sequence
 *
 * The graph has no slices.  A node's instruction is repeated for each, on parts
 * of its operands' slots: in a single sequence, [1, T, ..], a slice of
 * positions is contiguous, and kernels know positions from the part they are
 * given, as under sequence parallelism.  Only attention looks beyond its slice:
 * forward it reads keys and values from position 0 on; backward, where slices
 * come in descending order, it adds to the gradients of all of them, so that a
 * slice's gradients are complete when its own turn comes.
 *
 * The first slice of a backward recomputes what was dropped for all slices.
 *
 * What has no positions, the loss, is computed with the last slice, for the
 * whole micro-batch: bitwise as without slices.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "base/error.h"
#include "partitioner/graph/letters.h"

static const struct merak_value *an_input(const struct merak_graph *graph)
{
    for (int v = 0; v < graph->n_values; v++) {
        if (graph->value[v]->kind == MERAK_VALUE_INPUT &&
            merak_value_has_positions(graph->value[v]))
            return graph->value[v];
    }
    return NULL;
}

bool merak_build_is_sliced(const struct merak_build *b, int value)
{
    return merak_value_has_positions(b->graph->value[value]);
}

/* A value whose positions a tensor axis cuts, or NULL. */
static const struct merak_value *cut_already(const struct merak_sharded *s)
{
    for (int v = 0; v < s->graph->n_values; v++) {
        for (int a = 0; a < s->mesh.n_axes; a++) {
            if (merak_value_has_positions(s->graph->value[v]) &&
                s->layout[v].at[a].kind == MERAK_SPLIT &&
                s->layout[v].at[a].dim == 1)
                return s->graph->value[v];
        }
    }
    return NULL;
}

static const struct merak_node *find_mixing(const struct merak_graph *graph)
{
    for (int n = 0; n < graph->n_nodes; n++) {
        if (merak_node_mixes_positions(graph->node[n]))
            return graph->node[n];
    }
    return NULL;
}

bool merak_sharded_may_slice(const struct merak_sharded *sharded)
{
    return cut_already(sharded) == NULL &&
           find_mixing(sharded->graph) == NULL &&
           merak_graph_second_sequence(sharded->graph) == NULL;
}

static enum merak_status check_cuts(const struct merak_build *b)
{
    const struct merak_value *cut = cut_already(b->sharded);
    const struct merak_node *mixing = find_mixing(b->graph);
    const struct merak_value *second = merak_graph_second_sequence(b->graph);

    if (b->prog->plan.cp > 1)
        return merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                          "schedule %s cuts sequences, and so does cp %d: use "
                          "--cp 1, or --schedule 1f1b",
                          b->prog->plan.schedule, b->prog->plan.cp);
    if (cut != NULL)
        return merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                          "schedule %s cuts sequences, and so has tp %d (%s): "
                          "use --sp off or a smaller tp",
                          b->prog->plan.schedule, b->prog->mesh.tp, cut->name);
    if (mixing != NULL)
        return merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                          "schedule %s cuts sequences, and %s needs whole "
                          "ones: use --schedule 1f1b",
                          b->prog->plan.schedule, mixing->name);
    if (second != NULL)
        return merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                          "schedule %s cuts sequences, and this model has a "
                          "second one (%s): use --schedule 1f1b",
                          b->prog->plan.schedule, second->name);
    return MERAK_OK;
}

static size_t len_of(const struct merak_build *b, int slice)
{
    return b->slice.at[slice + 1] - b->slice.at[slice];
}

enum merak_status merak_build_slices(struct merak_build *b)
{
    struct merak_schedule_args args =
        merak_plan_schedule_args(&b->prog->plan, b->stage);
    const struct merak_value *input = an_input(b->graph);

    b->slice.n = args.slices > 1 ? args.slices : 1;
    if (b->slice.n == 1)
        return MERAK_OK;
    if (b->prog->plan.ep > 1)
        return merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                          "schedule %s cuts micro-batches of 1 sequence, and "
                          "ep=%d needs one for each of its ranks: use --ep 1, "
                          "or --schedule 1f1b",
                          b->prog->plan.schedule, b->prog->plan.ep);
    if (input == NULL || input->shape.dim[0] != 1)
        return merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                          "schedule %s cuts micro-batches of 1 sequence, not "
                          "%zu: use --micro-batch 1",
                          b->prog->plan.schedule,
                          input == NULL ? 0 : input->shape.dim[0]);
    b->slice.at =
        merak_build_alloc(b, ((size_t)b->slice.n + 1) * sizeof(*b->slice.at));
    if (b->slice.at == NULL)
        return b->rc;
    if (!merak_schedule_slice(b->prog->plan.schedule, input->shape.dim[1],
                              b->slice.at))
        return merak_fail(b->err, MERAK_ERR_CONFIG,
                          "schedule %s: a sequence of %zu tokens cannot be cut "
                          "into %d slices",
                          b->prog->plan.schedule, input->shape.dim[1],
                          b->slice.n);
    for (int k = 1; k < b->slice.n; k++)
        b->slice.unlike = b->slice.unlike || len_of(b, k) != len_of(b, 0);
    return check_cuts(b);
}

int merak_build_slice_kinds(const struct merak_build *b)
{
    return b->slice.unlike ? b->slice.n : 1;
}

int merak_build_slice_kind(const struct merak_build *b)
{
    return b->slice.unlike ? b->now.slice : 0;
}

size_t merak_build_slice_least(const struct merak_build *b, size_t elements)
{
    size_t least = SIZE_MAX;

    for (int k = 0; k < b->slice.n && b->slice.n > 1; k++)
        least = len_of(b, k) < least ? len_of(b, k) : least;
    return b->slice.n > 1 ? elements / b->slice.at[b->slice.n] * least
                          : elements;
}

size_t merak_build_slice_len(const struct merak_build *b)
{
    return len_of(b, b->now.slice);
}

static void cut(struct merak_build *b, int whole, size_t from, size_t to)
{
    struct merak_slot part = b->prog->slot[whole];
    size_t row = part.bytes / b->slice.at[b->slice.n];

    part.bytes = (to - from) * row;
    part.box.lo[1] = from;
    part.box.len[1] = to - from;
    part.flat_lo = 0;
    part.flat_hi = merak_box_count(&part.box);
    merak_build_alias(b, whole, from * row, &part);
}

/* Slots after the whole one: its slices, then for each but the last all up to
 * its end. */
void merak_build_cut(struct merak_build *b, int slot)
{
    const size_t *at = b->slice.at;

    for (int k = 0; k < b->slice.n; k++)
        cut(b, slot, at[k], at[k + 1]);
    for (int k = 1; k < b->slice.n; k++)
        cut(b, slot, 0, at[k]);
}

static bool has_positions(const struct merak_build *b,
                          const struct merak_node *node)
{
    return merak_build_is_sliced(b, node->out[0]->id) ||
           node->out[0]->kind == MERAK_VALUE_PARAM_GRAD;
}

int merak_build_slice_slot(const struct merak_build *b,
                           const struct merak_node *node, int i, int slot)
{
    const struct merak_value *value =
        node == NULL ? b->graph->value[b->prog->slot[slot].value]
                     : merak_node_operand(node, i);

    if (b->slice.n == 1 || slot < 0 || !merak_build_is_sliced(b, value->id) ||
        (node != NULL && !has_positions(b, node)))
        return slot;
    if (node == NULL || !merak_node_reads_back(node, i))
        return slot + 1 + b->now.slice;
    return b->now.slice == b->slice.n - 1
               ? slot
               : slot + 1 + b->slice.n + b->now.slice;
}

bool merak_build_runs(const struct merak_build *b,
                      const struct merak_node *node)
{
    return b->now.slice == b->slice.n - 1 || has_positions(b, node);
}

bool merak_build_first_back(const struct merak_build *b)
{
    return b->now.slice == b->slice.n - 1;
}

bool merak_build_last_back(const struct merak_build *b)
{
    return b->now.slice == 0;
}
