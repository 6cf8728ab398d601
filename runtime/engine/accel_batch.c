/* SPDX-License-Identifier: Apache-2.0 */
/* accel_batch.c - instructions that an accelerator runs as one launch
 *
 * A step ends with a sum of squares and an update for each parameter, most of
 * them tiny.  Those that are consecutive in the compute queue are put in a
 * table when the engine is created, and launched in place of the last one: a
 * batch waits for all that its instructions wait for.  Other queues may wait
 * only for the last instruction, so a batch never waits for a queue that waits
 * for one of its earlier instructions.
 *
 * Tables are in memory after the arena that nothing else uses.
 */
#include "config.h"

#include "runtime/engine/engine_impl.h"

#include "base/error.h"
#include "base/size.h"

#include <stdlib.h>

#define TABLE_ALIGN 256

/* The kernel calls of a batch; data pointers are set if there is an engine. */
struct calls {
    struct merak_kernel_call *call;
    const struct merak_kernel_call **list;
    struct merak_step step;
};

void merak_accel_awaited(const struct merak_program *p, bool *awaited)
{
    for (int i = 0; i < p->n_instrs; i++) {
        const struct merak_instr *instr = &p->instr[i];

        for (int w = 0; w < instr->n_wait; w++) {
            int other = p->wait[instr->first_wait + w];

            if (p->instr[other].queue != instr->queue)
                awaited[other] = true;
        }
    }
}

bool merak_accel_waits(const struct merak_program *p,
                       const struct merak_instr *instr)
{
    for (int w = 0; w < instr->n_wait; w++) {
        if (p->instr[p->wait[instr->first_wait + w]].queue != instr->queue)
            return true;
    }
    return false;
}

static bool is_of_one_parameter(const struct merak_instr *instr)
{
    return instr->kind == MERAK_INSTR_KERNEL && instr->microbatch < 0 &&
           instr->op->role == MERAK_ROLE_PARAM;
}

/* May `next`, after `instr` in the compute queue, be in its batch? */
static bool joins(const struct merak_instr *instr,
                  const struct merak_instr *next)
{
    return is_of_one_parameter(instr) && is_of_one_parameter(next) &&
           next->op == instr->op;
}

static void calls_fini(struct calls *c)
{
    free(c->call);
    free(c->list);
}

static enum merak_status calls_init(const struct merak_engine *e,
                                    const struct merak_program *p,
                                    const int *id, int n, struct calls *c,
                                    struct merak_error *err)
{
    c->call = calloc((size_t)n, sizeof(*c->call));
    c->list = calloc((size_t)n, sizeof(*c->list));
    if (c->call == NULL || c->list == NULL) {
        calls_fini(c);
        return merak_fail_nomem(err, (size_t)n * sizeof(*c->call));
    }
    for (int i = 0; i < n; i++) {
        if (e != NULL)
            merak_engine_call(e, &p->instr[id[i]], &c->call[i], &c->step);
        else
            merak_program_call(p, &p->instr[id[i]], &c->call[i]);
        c->list[i] = &c->call[i];
    }
    return MERAK_OK;
}

/* Add the batch of n instructions, if the backend has such a kernel. */
static enum merak_status add(struct engine_batches *b,
                             const struct merak_program *p,
                             const struct merak_backend *backend, const int *id,
                             int n, struct merak_error *err)
{
    const struct merak_kernel *kernel = NULL;
    struct calls calls = {.list = NULL};
    enum merak_status rc =
        merak_kernel_find(backend, p->instr[id[0]].op->name, &kernel, err);
    size_t bytes = 0;

    if (rc == MERAK_OK)
        rc = calls_init(NULL, p, id, n, &calls, err);
    if (rc != MERAK_OK)
        return rc;
    bytes = backend->accel->table_bytes(kernel, calls.list, n);
    calls_fini(&calls);
    if (bytes == 0)
        return MERAK_OK;
    b->batch[b->n++] = (struct engine_batch){
        .kernel = kernel, .id = id, .n = n, .at = b->bytes};
    b->bytes += merak_size_align(bytes, TABLE_ALIGN);
    return MERAK_OK;
}

static int list_compute(const struct merak_program *p, int *id)
{
    int n = 0;

    for (int i = 0; i < p->n_instrs; i++) {
        if (p->instr[i].queue == MERAK_QUEUE_COMPUTE)
            id[n++] = i;
    }
    return n;
}

static void batches_fini(struct engine_batches *b)
{
    free(b->batch);
    free(b->id);
    *b = (struct engine_batches){.n = 0};
}

static enum merak_status find_batches(const struct merak_program *p,
                                      const struct merak_backend *backend,
                                      struct engine_batches *b,
                                      struct merak_error *err)
{
    size_t n = (size_t)p->n_instrs + 1;
    bool *awaited = calloc(n, sizeof(*awaited));
    enum merak_status rc = MERAK_OK;
    int count;

    *b = (struct engine_batches){.n = 0};
    b->id = calloc(n, sizeof(*b->id));
    b->batch = calloc(n, sizeof(*b->batch));
    if (awaited == NULL || b->id == NULL || b->batch == NULL) {
        free(awaited);
        batches_fini(b);
        return merak_fail_nomem(err, n * sizeof(*b->batch));
    }
    merak_accel_awaited(p, awaited);
    count = list_compute(p, b->id);
    for (int i = 0, end; i < count && rc == MERAK_OK; i = end) {
        for (end = i + 1; end < count && !awaited[b->id[end - 1]] &&
                          joins(&p->instr[b->id[i]], &p->instr[b->id[end]]);)
            end++;
        if (end - i > 1)
            rc = add(b, p, backend, &b->id[i], end - i, err);
    }
    free(awaited);
    if (rc != MERAK_OK)
        batches_fini(b);
    return rc;
}

enum merak_status merak_engine_table_bytes(const struct merak_program *p,
                                           const struct merak_backend *backend,
                                           size_t *bytes_p,
                                           struct merak_error *err)
{
    struct engine_batches b;
    enum merak_status rc;

    *bytes_p = 0;
    if (backend->accel == NULL || backend->accel->table_bytes == NULL)
        return MERAK_OK;
    rc = find_batches(p, backend, &b, err);
    if (rc != MERAK_OK)
        return rc;
    *bytes_p = b.bytes;
    batches_fini(&b);
    return MERAK_OK;
}

static enum merak_status create_table(struct merak_engine *e,
                                      struct engine_batch *batch,
                                      struct merak_error *err)
{
    static const struct merak_step none; /* tables are the same in all steps */
    struct calls calls = {.list = NULL};
    enum merak_status rc;

    e->step = &none;
    rc = calls_init(e, e->program, batch->id, batch->n, &calls, err);
    e->step = NULL;
    if (rc != MERAK_OK)
        return rc;
    rc = e->opt.accel->ops->table_create(
        e->opt.accel, batch->kernel, calls.list, batch->n,
        e->opt.tables + batch->at, &batch->table, err);
    calls_fini(&calls);
    return rc;
}

/* No batches if MERAK_ACCEL_SYNC asks which instruction fails. */
enum merak_status merak_engine_batches_init(struct merak_engine *e,
                                            struct merak_error *err)
{
    enum merak_status rc;

    if (e->opt.tables == NULL || e->accel.sync ||
        e->opt.accel->ops->table_bytes == NULL)
        return MERAK_OK;
    rc = find_batches(e->program, e->opt.backend, &e->accel.batches, err);
    for (int i = 0; i < e->accel.batches.n && rc == MERAK_OK; i++) {
        struct engine_batch *batch = &e->accel.batches.batch[i];

        rc = create_table(e, batch, err);
        for (int k = 0; k < batch->n; k++)
            e->accel.batch_of[batch->id[k]] = batch;
    }
    return rc;
}

void merak_engine_batches_fini(struct merak_engine *e)
{
    for (int i = 0; i < e->accel.batches.n; i++) {
        if (e->accel.batches.batch[i].table != NULL)
            e->opt.accel->ops->table_destroy(e->opt.accel,
                                             e->accel.batches.batch[i].table);
    }
    batches_fini(&e->accel.batches);
}
