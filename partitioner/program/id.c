/* SPDX-License-Identifier: Apache-2.0 */
/* id.c - a fingerprint of what a program does
 *
 * Two programs with the same id run the same instructions in the same order
 * with the same peers.  Slots' offsets are left out: scratch depends on the
 * kernels in use, and a run may keep gradients to write them out.
 */
#include "config.h"

#include "partitioner/program/program.h"

#include "base/rng.h"

static uint64_t mix_instr(uint64_t h, const struct merak_program *prog,
                          const struct merak_instr *in)
{
    h = merak_rng_mix(h, merak_rng_key((uint64_t)in->kind, in->name));
    h = merak_rng_mix(h, (uint64_t)in->queue << 32 | (uint64_t)in->phase);
    h = merak_rng_mix(h, (uint64_t)(in->microbatch + 1) << 32 |
                             (uint64_t)in->pass << 24 | (uint64_t)in->chunk);
    h = merak_rng_mix(h, (uint64_t)(in->node + 1) << 3 |
                             (uint64_t)in->recompute << 2 |
                             (uint64_t)in->accumulate << 1 | in->first);
    h = merak_rng_mix(h,
                      (uint64_t)(in->joined << 16 | in->n_in << 8 | in->n_out));
    if (in->op != NULL)
        h = merak_rng_mix(h, merak_rng_key(0, in->op->name));
    if (in->pieces > 0)
        h = merak_rng_mix(h, in->pieces);
    if (in->kind == MERAK_INSTR_EXCHANGE) {
        const struct merak_group *group = &prog->group[in->group];

        for (int i = 0; i < group->n; i++)
            h = merak_rng_mix(h, (uint64_t)group->rank[i]);
    }
    if (in->peer >= 0)
        h = merak_rng_mix(h, (uint64_t)in->peer);
    return merak_rng_mix(merak_rng_mix(h, in->tag), in->bytes);
}

uint64_t merak_program_id(const struct merak_program *program)
{
    uint64_t h =
        merak_rng_mix((uint64_t)program->rank, (uint64_t)program->ranks);

    for (int i = 0; i < program->n_instrs; i++)
        h = mix_instr(h, program, &program->instr[i]);
    return h;
}

uint64_t merak_program_ids(uint64_t before, uint64_t id)
{
    return merak_rng_mix(before, id);
}
