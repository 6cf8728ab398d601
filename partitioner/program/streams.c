/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c - which queue of an accelerator runs what */
#include "config.h"

#include "partitioner/program/streams.h"

#include <string.h>

/* Of a program; more communicators are not told apart. */
enum { MOST_COMMS = 64 };

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

static bool has_members(const struct merak_group *a,
                        const struct merak_group *b)
{
    return a->n == b->n &&
           memcmp(a->rank, b->rank, (size_t)a->n * sizeof(*a->rank)) == 0;
}

/* Of those that an instruction uses, groups of the same members are one. */
static int count_groups(const struct merak_program *program)
{
    const struct merak_group *used[MOST_COMMS];
    int n = 0;

    for (int i = 0; i < program->n_instrs && n < MOST_COMMS; i++) {
        const struct merak_instr *in = &program->instr[i];
        const struct merak_group *group = &program->group[in->group];
        int k = 0;

        if (in->kind != MERAK_INSTR_EXCHANGE || group->n < 2)
            continue;
        while (k < n && !has_members(used[k], group))
            k++;
        if (k == n)
            used[n++] = group;
    }
    return n;
}

static int count_ways(const struct merak_program *program)
{
    int way[MOST_COMMS], n = 0;

    for (int i = 0; i < program->n_instrs && n < MOST_COMMS; i++) {
        const struct merak_instr *in = &program->instr[i];
        int k = 0;

        if (in->kind != MERAK_INSTR_SEND && in->kind != MERAK_INSTR_RECV)
            continue;
        while (k < n && way[k] != way_of(in))
            k++;
        if (k == n)
            way[n++] = way_of(in);
    }
    return n;
}

struct merak_comms merak_program_comms(const struct merak_program *program)
{
    return (struct merak_comms){.groups = count_groups(program),
                                .pairs = count_ways(program)};
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
