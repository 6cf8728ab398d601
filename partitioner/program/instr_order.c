/* SPDX-License-Identifier: Apache-2.0 */
/* instr_order.c - what is known to be complete when an instruction starts
 *
 * Compute instructions end in order, so one number is enough for them.  For
 * the others it is enough to remember the first compute instruction that
 * starts after they are complete, and to follow the few waits between them.
 */
#include "config.h"

#include "partitioner/program/instr_order.h"

#include "base/arrays.h"
#include "base/error.h"

#include <stdlib.h>

enum merak_status merak_instr_order_init(struct merak_instr_order *order,
                                         const struct merak_program *program,
                                         struct merak_error *err)
{
    size_t n = (size_t)program->n_instrs + 1;
    const struct merak_array arrays[] = {MERAK_ARRAY(order->compute, n),
                                         MERAK_ARRAY(order->seen, n),
                                         MERAK_ARRAY(order->asked, n)};

    *order = (struct merak_instr_order){.program = program, .last_compute = -1};
    return MERAK_ARRAYS(arrays, err);
}

void merak_instr_order_fini(struct merak_instr_order *order)
{
    free(order->compute);
    *order = (struct merak_instr_order){.program = NULL};
}

static bool is_compute(const struct merak_instr_order *order, int id)
{
    return order->program->instr[id].queue == MERAK_QUEUE_COMPUTE;
}

/* Compute instruction `at` starts after `id` and all that it waited for. */
static void mark_seen(struct merak_instr_order *order, int id, int at)
{
    const struct merak_instr *in = &order->program->instr[id];

    if (is_compute(order, id) || order->seen[id] >= 0)
        return;
    order->seen[id] = at;
    for (int i = 0; i < in->n_wait; i++)
        mark_seen(order, order->program->wait[in->first_wait + i], at);
}

void merak_instr_order_next(struct merak_instr_order *order)
{
    int id = order->n++;
    const struct merak_instr *in = &order->program->instr[id];
    bool compute = is_compute(order, id);
    int latest = compute ? order->last_compute : -1;

    order->seen[id] = -1;
    for (int i = 0; i < in->n_wait; i++) {
        int w = order->program->wait[in->first_wait + i];
        int via = is_compute(order, w) ? w : order->compute[w];

        if (via > latest)
            latest = via;
        if (compute)
            mark_seen(order, w, id);
    }
    order->compute[id] = latest;
    if (compute)
        order->last_compute = id;
}

/* Is `early` complete when `late` starts?  What a question has followed once
 * without finding it is not followed again: there are many ways through a chain
 * of copies, or of gathers. */
static bool is_before(const struct merak_instr_order *order, int early,
                      int late, unsigned question)
{
    const struct merak_instr *in = &order->program->instr[late];
    int upto = order->compute[late];

    if (is_compute(order, early))
        return early <= upto;
    if (is_compute(order, late))
        upto = late;
    if (order->seen[early] >= 0 && order->seen[early] <= upto)
        return true;
    for (int i = 0; i < in->n_wait; i++) {
        int w = order->program->wait[in->first_wait + i];

        if (w == early)
            return true;
        if (w < early || is_compute(order, w) || order->asked[w] == question)
            continue;
        order->asked[w] = question;
        if (is_before(order, early, w, question))
            return true;
    }
    return false;
}

bool merak_instr_order_before(const struct merak_instr_order *order, int early,
                              int late)
{
    return is_before(order, early, late,
                     ++order->asked[order->program->n_instrs]);
}

bool merak_instr_order_implies(const struct merak_instr_order *order, int late,
                               int early)
{
    return early == late || merak_instr_order_before(order, early, late);
}
