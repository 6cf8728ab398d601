/* SPDX-License-Identifier: Apache-2.0 */
/* away.c - activations that are in the host's memory until their backward
 *
 * Of what a part drops (action_nodes.c), the values that gradients read are
 * copied there after their last reader in the forward, and back while the block
 * behind theirs gives its gradients.  Copies are a queue of their own: kernels
 * wait for those of what they read, and for memory that a copy still reads.
 *
 * A value has as many slots of the host's as micro-batches have it there.
 */
#include "config.h"

#include "partitioner/program/build.h"
#include "partitioner/program/step.h"

#include "base/error.h"

#include <stdlib.h>

bool merak_build_is_brought(const struct merak_build *b,
                            const struct merak_node *node)
{
    for (int i = 0; i < node->n_out && node->phase == MERAK_PHASE_F; i++) {
        if (b->flow[node->out[i]->id].away_after >= 0)
            return true;
    }
    return false;
}

static void copy(struct merak_build *b, bool take, int v, int from, int to,
                 int microbatch)
{
    const char **name = take ? &b->flow[v].take_name : &b->flow[v].bring_name;
    struct merak_instr in = merak_step_instr(MERAK_INSTR_COPY, NULL);

    if (b->rc == MERAK_OK && *name == NULL)
        *name = merak_build_name(b, "%s %s", take ? "take" : "bring",
                                 b->graph->value[v]->name);
    if (b->rc != MERAK_OK)
        return;
    in.name = *name;
    in.phase = take ? MERAK_PHASE_F : MERAK_PHASE_B;
    in.microbatch = microbatch;
    in.n_in = in.n_out = 1;
    in.slot[0] = from;
    in.slot[1] = to;
    merak_build_push(b, &in);
}

/* A slot of the host's for what is in another. */
static int away_slot(struct merak_build *b, int v, int slot)
{
    struct merak_slot proto = b->prog->slot[slot];
    int id = b->flow[v].free_away;

    if (id >= 0) {
        b->flow[v].free_away = b->use[id].next_free;
        return id;
    }
    proto.host = true;
    return merak_build_keep(b, &proto);
}

static int *away_of(struct merak_build *b, struct merak_open *open)
{
    int n = b->graph->n_values;

    if (open == NULL || open->away != NULL)
        return open == NULL ? NULL : open->away;
    open->away = malloc(((size_t)n + 1) * sizeof(*open->away));
    if (open->away == NULL)
        merak_build_fail(b, merak_fail_nomem(b->err, (size_t)n * sizeof(int)));
    for (int v = 0; v < n && open->away != NULL; v++)
        open->away[v] = -1;
    return open->away;
}

static void take(struct merak_build *b, int v, int microbatch)
{
    struct merak_open *open = merak_build_open(b, microbatch);
    int *away = away_of(b, open);

    if (away == NULL || away[v] >= 0 || open->map[v] < 0)
        return;
    away[v] = away_slot(b, v, open->map[v]);
    copy(b, true, v, open->map[v], away[v], microbatch);
}

void merak_build_take_away(struct merak_build *b, const struct merak_node *node,
                           int microbatch)
{
    if (!merak_plan_offloads_acts(&b->prog->plan) ||
        b->now.pass < b->passes - 1 || b->now.slice < b->slice.n - 1)
        return; /* of slices all are there after the last one */
    for (int o = 0; o < node->n_in + node->n_out && b->rc == MERAK_OK; o++) {
        int v = merak_node_operand(node, o)->id;

        if (b->flow[v].away_after == node->id)
            take(b, v, microbatch);
    }
}

void merak_build_bring(struct merak_build *b, const struct merak_node *node,
                       int microbatch)
{
    struct merak_open *open = merak_build_open(b, microbatch);
    int *away = away_of(b, open);

    for (int i = 0; i < node->n_out && away != NULL; i++) {
        int v = node->out[i]->id, from = away[v], to;

        if (b->flow[v].away_after < 0 || from < 0)
            continue;
        to = merak_build_value(b, v, microbatch);
        copy(b, false, v, from, to, microbatch);
        if (b->rc != MERAK_OK)
            return;
        away[v] = -1;
        b->use[from].next_free = b->flow[v].free_away;
        b->flow[v].free_away = from;
    }
}
