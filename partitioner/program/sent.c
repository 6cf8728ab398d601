/* SPDX-License-Identifier: Apache-2.0 */
/* sent.c - what a plan sends along its axes, for the rank map */
#include "config.h"

#include "partitioner/program/program.h"

void merak_program_sent(const struct merak_program *program,
                        struct merak_sent *sent)
{
    for (int i = 0; i < program->n_instrs; i++) {
        const struct merak_instr *in = &program->instr[i];
        enum merak_group_axis axis = in->kind == MERAK_INSTR_EXCHANGE
                                         ? program->group[in->group].axis
                                         : MERAK_ALONG_PP;

        if (in->kind != MERAK_INSTR_EXCHANGE && in->kind != MERAK_INSTR_SEND)
            continue;
        if (axis == MERAK_ALONG_PP)
            sent->pp_bytes += in->bytes;
        else if (axis == MERAK_ALONG_DP)
            sent->dp_bytes += in->bytes;
    }
}

void merak_sent_per_link(struct merak_sent *sent, int stages)
{
    sent->pp_bytes /= (uint64_t)(stages > 1 ? stages - 1 : 1);
    sent->dp_bytes /= (uint64_t)stages;
}
