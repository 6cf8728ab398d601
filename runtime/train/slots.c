/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c - the memory of a run's programs, and the host's way to it
 *
 * Without an accelerator the arena is host memory.  With one it is the
 * device's, and host memory of the same size stands beside it for transfers
 * (engine/accel.c): address space, of which only what is sent and received is
 * touched.  All that the trainer reads and writes itself - initial weights,
 * checkpoints, the loss - comes through here.
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"

#include <string.h>

static enum merak_status allocate_accel(struct merak_trainer *t,
                                        struct merak_error *err)
{
    const struct merak_accel_ops *ops = t->backend->accel;
    enum merak_status rc;

    if (t->accel == NULL)
        return MERAK_OK;
    rc = ops->event_create(t->accel, &t->copied, err);
    if (rc == MERAK_OK)
        rc = ops->alloc(t->accel, t->arena_bytes, &t->accel_arena, err);
    return rc;
}

enum merak_status merak_slots_open(struct merak_trainer *t,
                                   struct merak_error *err)
{
    enum merak_status rc = allocate_accel(t, err);

    return rc == MERAK_OK ? merak_arena_create(t->arena_bytes, &t->arena, err)
                          : rc;
}

void merak_slots_close(struct merak_trainer *t)
{
    merak_arena_destroy(&t->arena);
    if (t->accel == NULL)
        return;
    if (t->copied != NULL)
        t->accel->ops->event_destroy(t->accel, t->copied);
    t->accel->ops->free(t->accel, t->accel_arena);
    t->accel->ops->close(t->accel);
    t->accel = NULL;
}

/* Between steps the queues are empty, and a copy is waited for at once, as long
 * as for anything else. */
static enum merak_status wait_for_copy(struct merak_trainer *t,
                                       enum merak_status rc,
                                       struct merak_error *err)
{
    if (rc == MERAK_OK)
        rc = t->accel->ops->record(t->accel, MERAK_QUEUE_COPY, t->copied, err);
    if (rc == MERAK_OK)
        rc =
            merak_accel_wait(t->accel, t->copied, t->opt.deadline_s, NULL, err);
    return rc;
}

enum merak_status merak_slots_clear(struct merak_trainer *t,
                                    struct merak_error *err)
{
    enum merak_status rc = merak_arena_clear(&t->arena, err);

    if (rc != MERAK_OK || t->accel == NULL)
        return rc;
    rc = t->accel->ops->fill(t->accel, MERAK_QUEUE_COPY, t->accel_arena, 0,
                             t->arena_bytes, err);
    return wait_for_copy(t, rc, err);
}

unsigned char *merak_slots_arena(const struct merak_trainer *t)
{
    return t->accel != NULL ? t->accel_arena : t->arena.base;
}

void *merak_slot_host(const struct merak_trainer *t,
                      const struct merak_program *program, int slot)
{
    return (unsigned char *)t->arena.base + program->slot[slot].offset;
}

enum merak_status merak_slots_results(struct merak_trainer *t,
                                      const struct merak_program *program,
                                      struct merak_error *err)
{
    const int result[] = {program->loss, program->norm};
    enum merak_status rc = MERAK_OK;

    for (int i = 0; t->accel != NULL && i < 2 && rc == MERAK_OK; i++) {
        if (result[i] >= 0)
            rc = merak_slot_read(t, program, result[i], 0,
                                 merak_slot_host(t, program, result[i]),
                                 program->slot[result[i]].bytes, err);
    }
    return rc;
}

enum merak_status merak_slot_read(struct merak_trainer *t,
                                  const struct merak_program *program, int slot,
                                  size_t lo_bytes, void *to, size_t bytes,
                                  struct merak_error *err)
{
    const unsigned char *from =
        merak_slots_arena(t) + program->slot[slot].offset + lo_bytes;
    enum merak_status rc;

    if (t->accel == NULL) {
        memcpy(to, from, bytes);
        return MERAK_OK;
    }
    rc = t->accel->ops->read(t->accel, MERAK_QUEUE_COPY, to, from, bytes, err);
    return wait_for_copy(t, rc, err);
}

enum merak_status merak_slot_write(struct merak_trainer *t,
                                   const struct merak_program *program,
                                   int slot, size_t lo_bytes, const void *from,
                                   size_t bytes, struct merak_error *err)
{
    unsigned char *to =
        merak_slots_arena(t) + program->slot[slot].offset + lo_bytes;
    enum merak_status rc;

    if (t->accel == NULL) {
        memcpy(to, from, bytes);
        return MERAK_OK;
    }
    rc = t->accel->ops->write(t->accel, MERAK_QUEUE_COPY, to, from, bytes, err);
    return wait_for_copy(t, rc, err);
}
