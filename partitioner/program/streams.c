/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c - which queue of an accelerator runs what */
#include "config.h"

#include "partitioner/program/streams.h"

struct lanes {
    int n;
    int way[MERAK_LANES]; /* 2 * peer, and 1 more of what is received */
};

/* The first ones have lanes of their own, others share them. */
static int lane_of(struct lanes *lanes, int way)
{
    for (int i = 0; i < lanes->n; i++) {
        if (lanes->way[i] == way)
            return i;
    }
    if (lanes->n == MERAK_LANES)
        return way % MERAK_LANES;
    lanes->way[lanes->n] = way;
    return lanes->n++;
}

void merak_program_streams(const struct merak_program *program, int *stream)
{
    struct lanes lanes = {.n = 0};

    for (int i = 0; i < program->n_instrs; i++) {
        const struct merak_instr *in = &program->instr[i];
        bool receives = in->kind == MERAK_INSTR_RECV;

        stream[i] = (int)in->queue;
        if (in->kind == MERAK_INSTR_SEND || receives)
            stream[i] = MERAK_QUEUE_COUNT +
                        lane_of(&lanes, 2 * in->peer + (receives ? 1 : 0));
    }
}
