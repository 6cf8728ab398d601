/* SPDX-License-Identifier: Apache-2.0 */
/* accel_fuse.c - instructions that an accelerator runs as one kernel
 *
 * Kernels that do little with much memory take the time of reading and writing
 * it.  Of a residual and the norm that follows it, say, a backend may have one
 * kernel that reads what they share once (merak_accel_ops.fusable), with the
 * bits of single kernels: what is fused depends on stages and memory.
 *
 * Instructions that may be fused are consecutive in the compute queue and of
 * one micro-batch, and read nothing of the step.  They are launched in place of
 * the first one: only that one waits for another queue, and other queues wait
 * only for the last.  A kernel that computes row by row writes outputs of later
 * instructions before it has read all inputs of earlier ones, so slots that
 * share memory prevent it (kernels/alias.c); then fewer are fused.
 *
 * What only these instructions read need not be stored.
 *
 * Off with MERAK_ACCEL_FUSE=0, and where MERAK_ACCEL_SYNC asks which
 * instruction fails.
 */
#include "config.h"

#include "runtime/engine/engine_impl.h"

#include "base/error.h"

#include <stdlib.h>

/* The kernel calls of some instructions. */
struct calls {
    struct merak_kernel_call call[MERAK_FUSED_MAX];
    struct merak_step step[MERAK_FUSED_MAX];
    const struct merak_kernel_call *list[MERAK_FUSED_MAX];
    const struct merak_kernel *kernel[MERAK_FUSED_MAX];
};

static void add_call(const struct merak_engine *e, int id, struct calls *c,
                     int i)
{
    merak_engine_call(e, &e->program->instr[id], &c->call[i], &c->step[i]);
    c->list[i] = &c->call[i];
    c->kernel[i] = e->kernel[id];
}

enum merak_status merak_engine_issue_fused(struct merak_engine *e,
                                           const struct engine_fused *fused,
                                           struct merak_error *err)
{
    struct calls c;

    for (int i = 0; i < fused->n; i++)
        add_call(e, fused->id[i], &c, i);
    return e->opt.accel->ops->launch_fused(e->opt.accel, MERAK_QUEUE_COMPUTE,
                                           c.kernel, c.list, fused->unread,
                                           fused->n, err);
}

/* --- what nobody else reads ------------------------------------------------
 */

/* By whole slot: is it read behind an instruction, before it is written again?
 * The caller may read parameters and results after the step. */
static void read_by_the_caller(const struct merak_program *p, bool *read)
{
    for (int s = 0; s < p->n_slots; s++) {
        const struct merak_slot *slot = &p->slot[s];

        if ((slot->category != MERAK_CAT_ACTIVATION &&
             slot->category != MERAK_CAT_TRANSIENT) ||
            slot->dtype == MERAK_F64)
            read[slot->whole] = true;
    }
    if (p->norm >= 0)
        read[p->slot[p->norm].whole] = true;
    for (int i = 0; i < p->n_params; i++) {
        if (p->param[i].grad >= 0)
            read[p->slot[p->param[i].grad].whole] = true;
    }
}

/* The same behind the instruction before this one. */
static void step_back(const struct merak_program *p,
                      const struct merak_instr *instr, bool *read)
{
    unsigned reads, writes;

    merak_instr_access(instr, &reads, &writes);
    for (int i = 0; i < instr->n_in + instr->n_out; i++) {
        const struct merak_slot *slot = &p->slot[instr->slot[i]];

        if ((writes & 1u << i) && slot->whole == instr->slot[i] &&
            (slot->category == MERAK_CAT_ACTIVATION ||
             slot->category == MERAK_CAT_TRANSIENT))
            read[slot->whole] = false;
    }
    for (int i = 0; i < instr->n_in + instr->n_out; i++) {
        if (reads & 1u << i)
            read[p->slot[instr->slot[i]].whole] = true;
    }
}

static void mark_unread(const struct merak_program *p, struct engine_fused *f,
                        const bool *read)
{
    for (int i = 0; i < f->n; i++) {
        const struct merak_instr *instr = &p->instr[f->id[i]];

        for (int o = 0; o < instr->n_out; o++) {
            if (!read[p->slot[instr->slot[instr->n_in + o]].whole])
                f->unread[i] |= 1u << o;
        }
    }
}

/* No instruction of another queue reads what these write before the last one
 * is done, so only those behind it count. */
static enum merak_status find_unread(struct merak_engine *e,
                                     struct merak_error *err)
{
    const struct merak_program *p = e->program;
    bool *read = calloc((size_t)p->n_slots + 1, sizeof(*read));

    if (read == NULL)
        return merak_fail_nomem(err, (size_t)p->n_slots);
    read_by_the_caller(p, read);
    for (int i = p->n_instrs - 1; i >= 0; i--) {
        struct engine_fused *f = e->accel.fused_of[i];

        if (f != NULL && i == f->id[f->n - 1])
            mark_unread(p, f, read);
        step_back(p, &p->instr[i], read);
    }
    free(read);
    return MERAK_OK;
}

/* --- what is fused ---------------------------------------------------------
 */

static bool may_be_fused(const struct merak_engine *e,
                         const struct merak_instr *instr)
{
    return instr->kind == MERAK_INSTR_KERNEL && instr->microbatch >= 0 &&
           merak_step_is_unread(instr->op->step_use, instr->attrs) &&
           e->accel.batch_of[instr->id] == NULL;
}

/* How many instructions, from the first on, an accelerator may run as one. */
static int count_joined(const struct merak_engine *e, const int *id, int most)
{
    const struct merak_program *p = e->program;
    const struct merak_instr *first = &p->instr[id[0]];
    int n = may_be_fused(e, first);

    for (; n > 0 && n < most; n++) {
        const struct merak_instr *next = &p->instr[id[n]];

        if (!may_be_fused(e, next) || next->microbatch != first->microbatch ||
            e->accel.event[id[n - 1]] != NULL || merak_accel_waits(p, next))
            break;
    }
    return n;
}

/* How many of these, from the first on, the accelerator does run as one. */
static int count_fused(const struct merak_engine *e, const int *id, int n)
{
    struct calls c;
    int fit = 1;

    for (int i = 0; i < n; i++)
        add_call(e, id[i], &c, i);
    while (fit < n && merak_calls_do_not_alias(c.list, fit + 1))
        fit++;
    return fit > 1 ? e->opt.accel->ops->fusable(c.kernel, c.list, fit) : 1;
}

static void find_fused(struct merak_engine *e)
{
    const struct engine_queue *q = &e->queue[MERAK_QUEUE_COMPUTE];

    for (int i = 0, n; i < q->n; i += n) {
        int left = q->n - i;

        n = count_joined(e, q->instr + i,
                         left < MERAK_FUSED_MAX ? left : MERAK_FUSED_MAX);
        if (n > 1)
            n = count_fused(e, q->instr + i, n);
        if (n < 2) {
            n = 1;
            continue;
        }
        e->accel.fused[e->accel.n_fused] =
            (struct engine_fused){.id = q->instr + i, .n = n};
        for (int k = 0; k < n; k++)
            e->accel.fused_of[q->instr[i + k]] =
                &e->accel.fused[e->accel.n_fused];
        e->accel.n_fused++;
    }
}

enum merak_status merak_engine_fused_init(struct merak_engine *e,
                                          struct merak_error *err)
{
    static const struct merak_step none; /* what is fused reads no step */
    const struct engine_queue *q = &e->queue[MERAK_QUEUE_COMPUTE];
    bool on = true;
    enum merak_status rc = merak_engine_switch("MERAK_ACCEL_FUSE", &on, err);

    if (rc != MERAK_OK || !on || e->accel.sync ||
        e->opt.accel->ops->fusable == NULL)
        return rc;
    e->accel.fused = calloc((size_t)q->n + 1, sizeof(*e->accel.fused));
    if (e->accel.fused == NULL)
        return merak_fail_nomem(err, (size_t)q->n * sizeof(*e->accel.fused));
    e->step = &none;
    find_fused(e);
    e->step = NULL;
    return find_unread(e, err);
}

void merak_engine_fused_fini(struct merak_engine *e)
{
    free(e->accel.fused);
}
