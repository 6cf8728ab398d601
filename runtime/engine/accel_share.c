/* SPDX-License-Identifier: Apache-2.0 */
/* accel_share.c - one copy to staging for all transfers that send the same
 * buffer
 *
 * A tied weight's gradient is sent to another stage and summed over replicas
 * at the same time.  Both only read the arena, so neither waits for the other,
 * but each would write staging, while the transport or a node peer reads there
 * what the other wrote.  So the first to start copies from the device, and the
 * others wait for its event.  The groups are found once: transfers of one slot
 * with no instruction between them that writes it.
 */
#include "config.h"

#include "runtime/engine/engine_impl.h"

#include "base/error.h"

#include <stdlib.h>

static bool overlap(const struct merak_slot *a, const struct merak_slot *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Does the instruction write the slot, in the arena or in staging, which has
 * the same layout (accel.c)? */
static bool changes(const struct merak_program *p,
                    const struct merak_instr *instr, int slot)
{
    const struct merak_slot *s = &p->slot[slot];
    unsigned reads, writes;

    merak_instr_access(instr, &reads, &writes);
    for (int i = 0; i < instr->n_in + instr->n_out; i++) {
        if ((writes & (1u << i)) && overlap(&p->slot[instr->slot[i]], s))
            return true;
    }
    return instr->scratch >= 0 && overlap(&p->slot[instr->scratch], s);
}

/* Does instruction `late` send the same contents as `early`? */
static bool send_the_same(const struct merak_program *p, int early, int late)
{
    int slot = p->instr[late].slot[0];

    for (int i = early; i < late; i++) {
        if (changes(p, &p->instr[i], slot))
            return false;
    }
    return true;
}

static bool sends(const struct merak_instr *instr)
{
    return instr->kind == MERAK_INSTR_SEND ||
           instr->kind == MERAK_INSTR_EXCHANGE;
}

enum merak_status merak_engine_share_init(struct merak_engine *e,
                                          struct merak_error *err)
{
    const struct merak_program *p = e->program;
    size_t n = (size_t)p->n_instrs + 1, n_slots = (size_t)p->n_slots + 1;
    int *last = calloc(n_slots, sizeof(*last)); /* 1 + the last sender */

    e->accel.share = calloc(n, sizeof(*e->accel.share));
    e->accel.stager = calloc(n, sizeof(*e->accel.stager));
    if (last == NULL || e->accel.share == NULL || e->accel.stager == NULL) {
        free(last);
        return merak_fail_nomem(err, n * sizeof(*e->accel.stager));
    }
    for (int i = 0; i < p->n_instrs; i++) {
        int *before = &last[p->instr[i].slot[0]];

        if (!sends(&p->instr[i]))
            continue;
        e->accel.share[i] = *before > 0 && send_the_same(p, *before - 1, i)
                                ? e->accel.share[*before - 1]
                                : i;
        *before = i + 1;
    }
    free(last);
    return MERAK_OK;
}

void merak_engine_share_fini(struct merak_engine *e)
{
    free(e->accel.share);
    free(e->accel.stager);
}

int merak_engine_stager(struct merak_engine *e, const struct merak_instr *instr)
{
    struct engine_stager *s = &e->accel.stager[e->accel.share[instr->id]];

    if (s->run != e->run)
        *s = (struct engine_stager){.run = e->run, .instr = instr->id};
    return s->instr;
}
