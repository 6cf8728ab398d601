/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c - which queue of an accelerator runs what */
#include "config.h"

#include "partitioner/program/streams.h"

struct lanes {
    int n;
    int way[MERAK_LANES]; /* peer, flow, and whether it is received */
};

enum merak_flow_kind merak_message_flow(const struct merak_instr *message)
{
    if (message->microbatch < 0)
        return MERAK_FLOW_STEP;
    if (message->places)
        return MERAK_FLOW_PLACES;
    return message->phase == MERAK_PHASE_F ? MERAK_FLOW_FORWARD
                                           : MERAK_FLOW_BACKWARD;
}

static int way_of(const struct merak_instr *message)
{
    int flow =
        message->peer * MERAK_FLOW_KINDS + (int)merak_message_flow(message);

    return 2 * flow + (message->kind == MERAK_INSTR_RECV ? 1 : 0);
}

/* The first ways have their own lanes, others share them. */
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

int merak_program_stream_count(const struct merak_program *program)
{
    struct lanes lanes = {.n = 0};

    for (int i = 0; i < program->n_instrs; i++) {
        const struct merak_instr *in = &program->instr[i];

        if (in->kind == MERAK_INSTR_SEND || in->kind == MERAK_INSTR_RECV)
            (void)lane_of(&lanes, way_of(in));
    }
    return MERAK_QUEUE_COUNT + lanes.n;
}

void merak_program_streams(const struct merak_program *program, int *stream)
{
    struct lanes lanes = {.n = 0};

    for (int i = 0; i < program->n_instrs; i++) {
        const struct merak_instr *in = &program->instr[i];

        stream[i] = (int)in->queue;
        if (in->kind == MERAK_INSTR_SEND || in->kind == MERAK_INSTR_RECV)
            stream[i] = MERAK_QUEUE_COUNT + lane_of(&lanes, way_of(in));
    }
}
