/* SPDX-License-Identifier: Apache-2.0 */
/* fetches.c - how long compute waits for parameters to be gathered for their
 * uses, and for optimizer state to come from the host's memory
 */
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

/* What an instruction may be waited for as. */
typedef bool is_one_fn(const struct merak_program *program,
                       const struct merak_instr *instr);

static bool brings(const struct merak_program *program,
                   const struct merak_instr *instr)
{
    (void)program;
    return instr->kind == MERAK_INSTR_COPY;
}

/* How long an instruction of the compute queue, free since free_s, waited for
 * such ones when all else was there. */
static double waited(const struct merak_program *program,
                     const struct merak_instr *in, is_one_fn *is_one,
                     const double *end, double free_s, double start_s)
{
    double one_s = 0, else_s = free_s;

    for (int w = 0; w < in->n_wait; w++) {
        int id = program->wait[in->first_wait + w];

        if (is_one(program, &program->instr[id]))
            one_s = fmax(one_s, end[id]);
        else
            else_s = fmax(else_s, end[id]);
    }
    return fmax(0, fmin(one_s, start_s) - else_s);
}

/* .. with what of them is left when all else is over. */
static double exposed(const struct merak_program *program, is_one_fn *is_one,
                      const double *start, const double *end)
{
    double free_s = 0, sum = 0, ones_s = 0, else_s = 0;

    for (int i = 0; i < program->n_instrs; i++) {
        const struct merak_instr *in = &program->instr[i];

        if (is_one(program, in))
            ones_s = fmax(ones_s, end[i]);
        else
            else_s = fmax(else_s, end[i]);
        if (in->queue != MERAK_QUEUE_COMPUTE)
            continue;
        sum += waited(program, in, is_one, end, free_s, start[i]);
        free_s = end[i];
    }
    return sum + fmax(0, ones_s - else_s);
}

static double most_exposed(struct merak_program *const *programs,
                           const struct merak_timeline *timeline,
                           is_one_fn *is_one)
{
    double most = 0;

    for (int p = 0; p < timeline->n; p++)
        most = fmax(most, exposed(programs[p], is_one, timeline->start[p],
                                  timeline->end[p]));
    return most;
}

double merak_fetches_exposed(struct merak_program *const *programs,
                             const struct merak_timeline *timeline)
{
    for (int p = 0; p < timeline->n; p++) {
        if (programs[p]->category_bytes[MERAK_CAT_FETCHED] > 0)
            return most_exposed(programs, timeline, merak_instr_fetches);
    }
    return 0;
}

double merak_offload_exposed(struct merak_program *const *programs,
                             const struct merak_timeline *timeline)
{
    for (int p = 0; p < timeline->n; p++) {
        if (programs[p]->host_bytes > 0)
            return most_exposed(programs, timeline, brings);
    }
    return 0;
}
