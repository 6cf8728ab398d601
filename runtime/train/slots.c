/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c - the memory of a run's programs, and host access to it
 *
 * Without an accelerator the arena is host memory.  With one it is device
 * memory, and transfers have host memory of the same size (engine/accel.c):
 * address space, of which only what is sent and received is touched.  All that
 * the trainer itself reads and writes (initial weights, checkpoints, the loss)
 * goes through here.
 *
 * What is offloaded is in host memory in either case, by itself, and pinned as
 * a whole.
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- pinned pages -----------------------------------------------------------
 */

/* Pages of the host arena that copies to and from the device use.  Pinning all
 * of it would take as much host memory as the device has. */
struct merak_pinned {
    size_t lo, hi;
    bool held;
};

static void add_pages(struct merak_trainer *t, const struct merak_slot *slot)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t end = (slot->offset + slot->bytes + page - 1) / page * page;

    if (slot->bytes > 0)
        t->memory.pinned[t->memory.n_pinned++] = (struct merak_pinned){
            .lo = slot->offset / page * page,
            .hi = end < t->memory.arena.bytes ? end : t->memory.arena.bytes};
}

/* Add the operands of a program's transfers, unless a device link moves them,
 * and its results. */
static void add_program(struct merak_trainer *t, const struct merak_program *p)
{
    const int result[] = {p->loss, p->norm, p->reports};

    for (int i = 0; t->linked.link == NULL && i < p->n_instrs; i++) {
        const struct merak_instr *in = &p->instr[i];

        if (in->kind != MERAK_INSTR_EXCHANGE && in->kind != MERAK_INSTR_SEND &&
            in->kind != MERAK_INSTR_RECV)
            continue;
        for (int k = 0; k < in->n_in + in->n_out; k++)
            add_pages(t, &p->slot[in->slot[k]]);
        if (in->scratch >= 0) {
            struct merak_slot used = p->slot[in->scratch];

            /* it may be larger, for a device link that could not be opened */
            used.bytes = merak_exchange_scratch(in->exchange);
            add_pages(t, &used);
        }
    }
    for (int i = 0; i < 3; i++) {
        if (result[i] >= 0)
            add_pages(t, &p->slot[result[i]]);
    }
}

static int lower_first(const void *a, const void *b)
{
    const struct merak_pinned *x = a, *y = b;

    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Merge adjacent ranges: memory is pinned only once, and a copy must not be
 * partly pinned. */
static void join_pages(struct merak_trainer *t)
{
    int n = 0;

    qsort(t->memory.pinned, (size_t)t->memory.n_pinned,
          sizeof(*t->memory.pinned), lower_first);
    for (int i = 0; i < t->memory.n_pinned; i++) {
        struct merak_pinned *last = n > 0 ? &t->memory.pinned[n - 1] : NULL;

        if (last != NULL && t->memory.pinned[i].lo <= last->hi)
            last->hi = last->hi > t->memory.pinned[i].hi
                           ? last->hi
                           : t->memory.pinned[i].hi;
        else
            t->memory.pinned[n++] = t->memory.pinned[i];
    }
    t->memory.n_pinned = n;
}

static size_t most_pages(const struct merak_program *p)
{
    return (size_t)p->n_instrs * (MERAK_MAX_OPERANDS + 1) + 3;
}

static enum merak_status pin_transfers(struct merak_trainer *t,
                                       struct merak_error *err)
{
    const struct merak_accel_ops *ops = t->compute.backend->accel;
    size_t most = most_pages(t->program) + most_pages(t->eval);
    size_t bytes = 0, held = 0;

    if (t->compute.accel == NULL || ops->pin == NULL)
        return MERAK_OK;
    t->memory.pinned = calloc(most, sizeof(*t->memory.pinned));
    if (t->memory.pinned == NULL)
        return merak_fail_nomem(err, most * sizeof(*t->memory.pinned));
    add_program(t, t->program);
    add_program(t, t->eval);
    join_pages(t);
    for (int i = 0; i < t->memory.n_pinned; i++) {
        struct merak_pinned *p = &t->memory.pinned[i];

        p->held = ops->pin(t->compute.accel,
                           (unsigned char *)t->memory.arena.base + p->lo,
                           p->hi - p->lo);
        bytes += p->hi - p->lo;
        held += p->held ? p->hi - p->lo : 0;
    }
    merak_debug("train",
                "pinned %.1f of %.1f MiB that copies to and from the "
                "accelerator go through",
                (double)held / 0x1p20, (double)bytes / 0x1p20);
    return MERAK_OK;
}

static void unpin_transfers(struct merak_trainer *t)
{
    for (int i = 0; i < t->memory.n_pinned; i++) {
        if (t->memory.pinned[i].held)
            t->compute.accel->ops->unpin(t->compute.accel,
                                         (unsigned char *)t->memory.arena.base +
                                             t->memory.pinned[i].lo);
    }
    free(t->memory.pinned);
    t->memory.pinned = NULL;
    t->memory.n_pinned = 0;
}

/* --- the arena --------------------------------------------------------------
 */

/* There was room when it was checked: libraries or other processes have taken
 * it, or it is fragmented. */
static enum merak_status fail_full(const struct merak_trainer *t,
                                   struct merak_error *err)
{
    size_t left = 0, all = 0;
    char table[160];

    if (t->compute.accel->ops->memory != NULL)
        (void)t->compute.accel->ops->memory(t->compute.accel, &left, &all,
                                            NULL);
    merak_report_categories(t, table, sizeof(table));
    return merak_fail(err, MERAK_ERR_NOMEM,
                      "the plan needs %.2f GiB of the GPU at once and %.2f of "
                      "%.2f are free; use more stages, a larger tp or a "
                      "smaller micro-batch (MiB: %s)",
                      (double)t->memory.arena_bytes / 0x1p30,
                      (double)left / 0x1p30, (double)all / 0x1p30, table);
}

static enum merak_status allocate_accel(struct merak_trainer *t,
                                        struct merak_error *err)
{
    const struct merak_accel_ops *ops = t->compute.backend->accel;
    enum merak_status rc;

    if (t->compute.accel == NULL)
        return MERAK_OK;
    rc = ops->event_create(t->compute.accel, &t->memory.copied, err);
    if (rc == MERAK_OK)
        rc = ops->alloc(t->compute.accel, t->memory.arena_bytes,
                        &t->memory.accel_arena, err);
    return rc == MERAK_ERR_NOMEM ? fail_full(t, err) : rc;
}

static void pin_host(struct merak_trainer *t)
{
    const struct merak_accel_ops *ops = t->compute.backend->accel;

    if (t->compute.accel != NULL && ops->pin != NULL &&
        t->memory.host.base != NULL)
        t->memory.host_pinned = ops->pin(t->compute.accel, t->memory.host.base,
                                         t->memory.host.bytes);
}

static void unpin_host(struct merak_trainer *t)
{
    if (t->memory.host_pinned)
        t->compute.accel->ops->unpin(t->compute.accel, t->memory.host.base);
    t->memory.host_pinned = false;
}

enum merak_status merak_slots_open(struct merak_trainer *t,
                                   struct merak_error *err)
{
    /* With an accelerator only pages of transfers are touched: huge pages
     * would take memory that is not accounted for. */
    bool shared = t->compute.accel != NULL || t->boot->local_size > 1;
    enum merak_status rc = allocate_accel(t, err);

    if (rc == MERAK_OK)
        rc = merak_arena_create(t->memory.arena_bytes, shared, &t->memory.arena,
                                err);
    if (rc == MERAK_OK && t->program->host_bytes > 0)
        rc = merak_arena_create(t->program->host_bytes, false, &t->memory.host,
                                err);
    return rc;
}

void merak_slots_close(struct merak_trainer *t)
{
    unpin_transfers(t);
    unpin_host(t);
    merak_arena_destroy(&t->memory.arena);
    merak_arena_destroy(&t->memory.host);
    if (t->compute.accel == NULL)
        return;
    if (t->memory.copied != NULL)
        t->compute.accel->ops->event_destroy(t->compute.accel,
                                             t->memory.copied);
    t->compute.accel->ops->free(t->compute.accel, t->memory.accel_arena);
    t->compute.accel->ops->close(t->compute.accel);
    t->compute.accel = NULL;
}

/* Between steps the queues are empty; wait for the copy now, with the usual
 * deadline. */
static enum merak_status wait_for_copy(struct merak_trainer *t,
                                       enum merak_status rc,
                                       struct merak_error *err)
{
    if (rc == MERAK_OK)
        rc = t->compute.accel->ops->record(t->compute.accel, MERAK_QUEUE_COPY,
                                           t->memory.copied, err);
    if (rc == MERAK_OK)
        rc = merak_accel_wait(t->compute.accel, t->memory.copied,
                              t->opt.deadline_s, NULL, err);
    return rc;
}

enum merak_status merak_slots_clear(struct merak_trainer *t,
                                    struct merak_error *err)
{
    enum merak_status rc;

    /* clearing replaces the arena's pages, so unpin the old ones */
    unpin_transfers(t);
    unpin_host(t);
    rc = merak_arena_clear(&t->memory.arena, err);
    if (rc == MERAK_OK && t->memory.host.base != NULL)
        rc = merak_arena_clear(&t->memory.host, err);
    pin_host(t);
    if (rc != MERAK_OK || t->compute.accel == NULL)
        return rc;
    rc = t->compute.accel->ops->fill(
        t->compute.accel, MERAK_QUEUE_COPY, t->memory.accel_arena, 0,
        t->memory.arena_bytes - t->memory.table_bytes, err);
    rc = wait_for_copy(t, rc, err);
    return rc == MERAK_OK ? pin_transfers(t, err) : rc;
}

unsigned char *merak_slots_arena(const struct merak_trainer *t)
{
    return t->compute.accel != NULL ? t->memory.accel_arena
                                    : t->memory.arena.base;
}

void *merak_slot_host(const struct merak_trainer *t,
                      const struct merak_program *program, int slot)
{
    const struct merak_slot *s = &program->slot[slot];
    const struct merak_arena *in = s->host ? &t->memory.host : &t->memory.arena;

    return (unsigned char *)in->base + s->offset;
}

/* Is a slot in memory that the host addresses? */
static bool is_addressed(const struct merak_trainer *t,
                         const struct merak_program *program, int slot)
{
    return t->compute.accel == NULL || program->slot[slot].host;
}

/* The length of the first part of a copy's host memory that is entirely pinned
 * or not at all: saved data is in the arena too, next to pages of
 * transfers. */
static size_t alike(const struct merak_trainer *t, const void *host,
                    size_t bytes)
{
    uintptr_t base = (uintptr_t)t->memory.arena.base,
              at = (uintptr_t)host - base;

    if ((uintptr_t)host < base || at >= t->memory.arena.bytes)
        return bytes;
    for (int i = 0; i < t->memory.n_pinned; i++) {
        const struct merak_pinned *p = &t->memory.pinned[i];

        if (p->held && p->lo > at && p->lo - at < bytes)
            bytes = p->lo - at;
        if (p->held && p->hi > at && p->hi - at < bytes)
            bytes = p->hi - at;
    }
    return bytes;
}

/* Queue what merak_slot_read() reads from an accelerator. */
static enum merak_status queue_read(struct merak_trainer *t,
                                    const struct merak_program *program,
                                    int slot, size_t lo_bytes, void *to,
                                    size_t bytes, struct merak_error *err)
{
    const unsigned char *from =
        merak_slots_arena(t) + program->slot[slot].offset + lo_bytes;
    enum merak_status rc = MERAK_OK;
    unsigned char *host = to;

    for (size_t n; bytes > 0 && rc == MERAK_OK; bytes -= n) {
        n = alike(t, host, bytes);
        rc = t->compute.accel->ops->read(t->compute.accel, MERAK_QUEUE_COPY,
                                         host, from, n, err);
        host += n;
        from += n;
    }
    return rc;
}

enum merak_status merak_slot_read(struct merak_trainer *t,
                                  const struct merak_program *program, int slot,
                                  size_t lo_bytes, void *to, size_t bytes,
                                  struct merak_error *err)
{
    enum merak_status rc;

    if (is_addressed(t, program, slot)) {
        memmove(to,
                (unsigned char *)merak_slot_host(t, program, slot) + lo_bytes,
                bytes);
        return MERAK_OK;
    }
    rc = queue_read(t, program, slot, lo_bytes, to, bytes, err);
    return wait_for_copy(t, rc, err);
}

enum merak_status merak_slots_results(struct merak_trainer *t,
                                      const struct merak_program *program,
                                      struct merak_error *err)
{
    const int result[] = {program->loss, program->norm, program->reports};
    enum merak_status rc = MERAK_OK;

    if (t->compute.accel == NULL)
        return MERAK_OK;
    for (int i = 0; i < 3 && rc == MERAK_OK; i++) {
        if (result[i] >= 0)
            rc = queue_read(t, program, result[i], 0,
                            merak_slot_host(t, program, result[i]),
                            program->slot[result[i]].bytes, err);
    }
    return wait_for_copy(t, rc, err); /* for all at once */
}

enum merak_status merak_slot_write(struct merak_trainer *t,
                                   const struct merak_program *program,
                                   int slot, size_t lo_bytes, const void *from,
                                   size_t bytes, struct merak_error *err)
{
    unsigned char *to =
        merak_slots_arena(t) + program->slot[slot].offset + lo_bytes;
    const unsigned char *host = from;
    enum merak_status rc = MERAK_OK;

    if (is_addressed(t, program, slot)) {
        memcpy((unsigned char *)merak_slot_host(t, program, slot) + lo_bytes,
               from, bytes);
        return MERAK_OK;
    }
    for (size_t n; bytes > 0 && rc == MERAK_OK; bytes -= n) {
        n = alike(t, host, bytes);
        rc = t->compute.accel->ops->write(t->compute.accel, MERAK_QUEUE_COPY,
                                          to, host, n, err);
        host += n;
        to += n;
    }
    return wait_for_copy(t, rc, err);
}
