/* SPDX-License-Identifier: Apache-2.0 */
/* fetches.c - what gathering parameters for their uses takes */
#include "config.h"

#include "partitioner/simulate/fetches.h"

#include <math.h>

bool merak_instr_fetches(const struct merak_program *program,
                         const struct merak_instr *instr)
{
    const struct merak_slot *to;

    if (instr->kind != MERAK_INSTR_EXCHANGE)
        return false;
    to = &program->slot[program->slot[instr->slot[instr->n_in]].whole];
    return to->category == MERAK_CAT_FETCHED;
}

bool merak_instr_joins(const struct merak_program *prog, int i)
{
    const struct merak_instr *in = &prog->instr[i], *before = in - 1;

    return i > 0 && in->kind == MERAK_INSTR_EXCHANGE &&
           before->kind == in->kind && before->queue == in->queue &&
           before->group == in->group &&
           before->exchange->kind == in->exchange->kind &&
           before->first_wait == in->first_wait && before->n_wait == in->n_wait;
}

/* How long an instruction of the compute queue, free since free_s, waited for
 * fetches when all else was there. */
static double waited(const struct merak_program *program,
                     const struct merak_instr *in, const double *end,
                     double free_s, double start_s)
{
    double fetched_s = 0, else_s = free_s;

    for (int w = 0; w < in->n_wait; w++) {
        int id = program->wait[in->first_wait + w];

        if (merak_instr_fetches(program, &program->instr[id]))
            fetched_s = fmax(fetched_s, end[id]);
        else
            else_s = fmax(else_s, end[id]);
    }
    return fmax(0, fmin(fetched_s, start_s) - else_s);
}

static double exposed(const struct merak_program *program, const double *start,
                      const double *end)
{
    double free_s = 0, sum = 0;

    for (int i = 0; i < program->n_instrs; i++) {
        const struct merak_instr *in = &program->instr[i];

        if (in->queue != MERAK_QUEUE_COMPUTE)
            continue;
        sum += waited(program, in, end, free_s, start[i]);
        free_s = end[i];
    }
    return sum;
}

double merak_fetches_exposed(struct merak_program *const *programs,
                             const struct merak_timeline *timeline)
{
    double most = 0;

    for (int p = 0; p < timeline->n; p++) {
        if (programs[p]->category_bytes[MERAK_CAT_FETCHED] > 0)
            most = fmax(most, exposed(programs[p], timeline->start[p],
                                      timeline->end[p]));
    }
    return most;
}
