/* SPDX-License-Identifier: Apache-2.0 */
/* outputs.c - the files a run writes beside its checkpoints: metrics, trace */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum merak_status create_trace(struct merak_trainer *t,
                                      const char **names,
                                      struct merak_trace_planned *planned,
                                      struct merak_error *err)
{
    struct merak_trace_info info = {
        .rank = t->program->rank,
        .ranks = t->program->ranks,
        .stage = t->program->stage,
        .stages = t->plan.pp,
        .tp = t->plan.tp,
        .dp = t->plan.dp,
        .tp_index = t->program->tp_index,
        .dp_index = t->program->dp_index,
        .microbatches = t->plan.microbatches,
        .n_instrs = t->program->n_instrs,
        .instr_name = names,
        .planned = planned,
    };

    for (int i = 0; i < info.n_instrs; i++)
        names[i] = t->program->instr[i].name;
    memcpy(info.schedule, t->plan.schedule, sizeof(info.schedule));
    snprintf(info.transport, sizeof(info.transport), "%s", t->tr->ops->name);
    return merak_trace_create(t->opt.trace, &info, 0, &t->trace, err);
}

static enum merak_status open_trace(struct merak_trainer *t,
                                    struct merak_error *err)
{
    size_t n = (size_t)t->program->n_instrs + 1;
    const char **names = calloc(n, sizeof(*names));
    struct merak_trace_planned *planned = calloc(n, sizeof(*planned));
    enum merak_status rc;

    if (names == NULL || planned == NULL)
        rc = merak_fail_nomem(err, n * sizeof(*planned));
    else
        rc = merak_trainer_predict(t, planned, err);
    if (rc == MERAK_OK)
        rc = create_trace(t, names, planned, err);
    free(planned);
    free(names);
    return rc;
}

enum merak_status merak_outputs_open(struct merak_trainer *t,
                                     struct merak_error *err)
{
    if (t->opt.metrics != NULL && t->program->rank == 0) {
        t->metrics = fopen(t->opt.metrics, "ae");
        if (t->metrics == NULL)
            return merak_fail(err, MERAK_ERR_IO, "cannot write %s: %s",
                              t->opt.metrics, strerror(errno));
    }
    return t->opt.trace == NULL ? MERAK_OK : open_trace(t, err);
}

/* Rank 0 comes last: it draws up the master of what the others closed. */
void merak_outputs_close_trace(struct merak_trainer *t)
{
    struct merak_error err = {.status = MERAK_OK};
    enum merak_status rc = MERAK_OK;

    if (t->opt.trace == NULL)
        return;
    if (t->program->rank != 0)
        rc = merak_trace_close(t->trace, &err);
    rc = merak_agree(t->tr, &t->world, rc, &err);
    if (t->program->rank == 0 && rc == MERAK_OK)
        rc = merak_trace_close(t->trace, &err);
    else if (t->program->rank == 0)
        (void)merak_trace_close(t->trace, NULL);
    t->trace = NULL;
    if (rc != MERAK_OK && t->program->rank == 0)
        merak_warn("train", "the trace is incomplete: %s", err.text);
}
