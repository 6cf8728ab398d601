/* SPDX-License-Identifier: Apache-2.0 */
/* warm.c - pay the one-time cost of each kernel before the first step
 *
 * Libraries are loaded, code is generated for the shapes of products, threads
 * touch their stacks: memory that belongs to no tensor.  Done before the first
 * step, this counts in the baseline that a run's memory is compared with, and
 * the first step takes as long as the others.
 */
#include "config.h"

#include "runtime/engine/engine_impl.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static bool was_seen(const struct merak_program *p,
                     const struct merak_instr *instr, const int *seen, int n)
{
    for (int i = 0; i < n; i++) {
        if (merak_instr_is_same_call(p, instr, p, &p->instr[seen[i]]))
            return true;
    }
    return false;
}

/* Zeros are indices that any kernel may use; calls before this one may have
 * left others in the memory that it shares. */
static void clear_indices(struct merak_engine *e,
                          const struct merak_instr *instr)
{
    for (int i = 0; i < instr->n_in + instr->n_out; i++) {
        const struct merak_slot *slot = &e->program->slot[instr->slot[i]];

        if (slot->dtype == MERAK_I32)
            memset(merak_engine_slot(e, instr->slot[i]), 0, slot->bytes);
    }
}

enum merak_status merak_engine_warm_up(struct merak_engine *e,
                                       struct merak_error *err)
{
    const struct merak_program *p = e->program;
    const struct merak_step step = {.train = true};
    enum merak_status rc = MERAK_OK;
    int *seen, n = 0;

    if (e->opt.backend->emulated)
        return MERAK_OK;
    seen = calloc((size_t)p->n_instrs + 1, sizeof(*seen));
    if (seen == NULL)
        return merak_fail_nomem(err, (size_t)p->n_instrs * sizeof(*seen));
    e->step = &step;
    for (int i = 0; i < p->n_instrs && rc == MERAK_OK; i++) {
        const struct merak_instr *instr = &p->instr[i];

        if (instr->kind != MERAK_INSTR_KERNEL || was_seen(p, instr, seen, n))
            continue;
        seen[n++] = i;
        if (e->opt.accel != NULL)
            rc = merak_engine_accel_warm(e, instr, err);
        else { /* the result does not matter, nor whether the op rejects */
            clear_indices(e, instr);
            (void)!merak_engine_local(e, instr, NULL);
        }
    }
    if (rc == MERAK_OK)
        rc = merak_engine_accel_finish(e, err);
    e->step = NULL;
    free(seen);
    return rc;
}
