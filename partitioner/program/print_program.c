/* SPDX-License-Identifier: Apache-2.0 */
/* print_program.c - a program, one line per instruction */
#include "config.h"

#include "partitioner/program/program.h"

#include "base/text_writer.h"

#include <stdio.h>

const char *merak_category_name(enum merak_category category)
{
    static const char *const name[MERAK_CAT_COUNT] = {
        [MERAK_CAT_PARAM] = "parameters",
        [MERAK_CAT_GRAD] = "gradients",
        [MERAK_CAT_OPTIMIZER] = "optimizer",
        [MERAK_CAT_ACTIVATION] = "activations",
        [MERAK_CAT_TRANSIENT] = "temporary",
        [MERAK_CAT_FETCHED] = "fetched",
        [MERAK_CAT_COMM] = "communication",
        [MERAK_CAT_SCRATCH] = "scratch"};

    return (unsigned)category < MERAK_CAT_COUNT ? name[category] : "?";
}

static const char *kind_name(enum merak_instr_kind kind)
{
    static const char *const name[] = {
        [MERAK_INSTR_LOAD] = "load",         [MERAK_INSTR_KERNEL] = "kernel",
        [MERAK_INSTR_EXCHANGE] = "exchange", [MERAK_INSTR_SLICE] = "slice",
        [MERAK_INSTR_SEND] = "send",         [MERAK_INSTR_RECV] = "recv",
        [MERAK_INSTR_COPY] = "copy"};

    return name[kind];
}

static void print_operand(FILE *out, const struct merak_program *prog, int s)
{
    fprintf(out, " %d@%s%zu+%zu", s, prog->slot[s].host ? "host " : "",
            prog->slot[s].offset, prog->slot[s].bytes);
}

static void print_instr(FILE *out, const struct merak_program *prog,
                        const struct merak_instr *in)
{
    fprintf(out, "%5d %-8s %c", in->id, kind_name(in->kind),
            "cxpsr"[in->queue]);
    if (in->microbatch < 0)
        fprintf(out, " -   ");
    else if (in->phase == MERAK_PHASE_F && !in->recompute &&
             prog->plan.passes > 1)
        fprintf(out, " F%d.%d ", in->microbatch, in->pass);
    else
        fprintf(out, " %c%-3d", in->recompute ? 'R' : "FBW"[in->phase],
                in -> microbatch);
    fprintf(out, " %s%s%s%s:", in->joined ? "and " : "", in->name,
            in->accumulate ? " +=" : "", in->first ? " first" : "");
    for (int i = 0; i < in->n_in; i++)
        print_operand(out, prog, in->slot[i]);
    fputs(" ->", out);
    for (int i = in->n_in; i < in->n_in + in->n_out; i++)
        print_operand(out, prog, in->slot[i]);
    if (in->kind == MERAK_INSTR_EXCHANGE)
        fprintf(out, " in %s", prog->group[in->group].name);
    if (in->peer >= 0)
        fprintf(out, " rank %d tag %llu", in->peer,
                (unsigned long long)in->tag);
    for (int w = 0; w < in->n_wait; w++)
        fprintf(out, "%s%d", w == 0 ? " after " : ",",
                prog->wait[in->first_wait + w]);
    fputc('\n', out);
}

enum merak_status merak_program_print(const struct merak_program *program,
                                      char **text_p, struct merak_error *err)
{
    struct merak_text_writer writer;
    FILE *out = merak_text_open(&writer);

    if (out == NULL)
        return merak_text_close(&writer, text_p, err);
    fprintf(out,
            "rank %d of %d: stage %d tp %d dp %d, %d instructions, "
            "%zu bytes (%zu persistent)\n",
            program->rank, program->ranks, program->stage, program->tp_index,
            program->dp_index, program->n_instrs, program->arena_bytes,
            program->persistent_bytes);
    for (int i = 0; i < program->n_instrs; i++)
        print_instr(out, program, &program->instr[i]);
    return merak_text_close(&writer, text_p, err);
}
