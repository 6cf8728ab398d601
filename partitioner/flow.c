/* SPDX-License-Identifier: Apache-2.0 */
/* flow.c - which values a stage has, gets and passes on
 *
 * A value that several stages use goes hop by hop along them, forward values
 * up and gradients down, so what a stage computes never depends on where the
 * other cuts are.
 */
#include "config.h"

#include "partitioner/build.h"

#include "base/error.h"

static void touch(struct merak_build *b, const struct merak_value *value,
                  int stage)
{
    struct merak_flow *f = &b->flow[value->id];

    if (stage == b->stage)
        f->here = true;
    if (stage < b->stage && stage > f->lower)
        f->lower = stage;
    if (stage > b->stage && (f->upper < 0 || stage < f->upper))
        f->upper = stage;
}

static enum merak_phase phase_of(const struct merak_build *b,
                                 const struct merak_value *value)
{
    return value->producer < 0 ? MERAK_PHASE_F
                               : b->graph->node[value->producer]->phase;
}

/* Values only move with their phase: up in F, down in B. */
static void check_direction(struct merak_build *b,
                            const struct merak_value *value, int stage)
{
    int home = b->flow[value->id].home;
    bool forward = phase_of(b, value) == MERAK_PHASE_F;

    if (b->rc != MERAK_OK || home < 0 || home == stage ||
        (forward ? stage > home : stage < home))
        return;
    merak_build_fail(b, merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                                   "value %s of stage %d is needed on stage "
                                   "%d, against the pipeline's direction",
                                   value->name, home, stage));
}

static void touch_inputs(struct merak_build *b, const struct merak_node *node)
{
    int stage = b->stages->of_node[node->id];

    for (int i = 0; i < node->n_in; i++) {
        const struct merak_value *value = node->in[i];

        touch(b, value, stage);
        check_direction(b, value, stage);
        if (stage == b->stage && node->phase != MERAK_PHASE_F)
            b->flow[value->id].back = true;
    }
}

static void name_transfers(struct merak_build *b,
                           const struct merak_value *value)
{
    struct merak_flow *f = &b->flow[value->id];
    bool forward = phase_of(b, value) == MERAK_PHASE_F;
    int to = forward ? f->upper : f->lower;
    int from = forward ? f->lower : f->upper;

    if (to >= 0)
        f->send_name =
            merak_build_name(b, "send %s -> stage %d", value->name, to);
    if (from >= 0 && f->home != b->stage)
        f->recv_name =
            merak_build_name(b, "recv %s <- stage %d", value->name, from);
}

static void collect_local(struct merak_build *b)
{
    for (int v = 0; v < b->graph->n_values; v++) {
        const struct merak_value *value = b->graph->value[v];

        if (!b->flow[v].here || value->kind == MERAK_VALUE_PARAM ||
            value->kind == MERAK_VALUE_PARAM_GRAD)
            continue;
        b->local[b->n_local++] = v;
        if (value->kind != MERAK_VALUE_INPUT)
            name_transfers(b, value);
    }
}

void merak_build_flow(struct merak_build *b)
{
    const struct merak_graph *graph = b->graph;

    for (int v = 0; v < graph->n_values; v++)
        b->flow[v] = (struct merak_flow){
            .home = -1, .lower = -1, .upper = -1, .free_slot = -1};
    for (int n = 0; n < graph->n_nodes; n++) {
        const struct merak_node *node = graph->node[n];

        for (int i = 0; i < node->n_out; i++) {
            b->flow[node->out[i]->id].home = b->stages->of_node[n];
            touch(b, node->out[i], b->stages->of_node[n]);
        }
    }
    for (int n = 0; n < graph->n_nodes; n++)
        touch_inputs(b, graph->node[n]);
    collect_local(b);
}
