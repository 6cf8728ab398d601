/* SPDX-License-Identifier: Apache-2.0 */
/* check_program.c - prove that a program by itself uses memory as it should
 *
 * Its instructions are walked in order over the arena, cut at slot edges.  A
 * read must find what was last written there, through the same slot; an
 * instruction that touches memory another one used must start after that one is
 * complete, by the compute queue's order and the waits alone.
 */
#include "config.h"

#include "partitioner/graph/padding.h"
#include "partitioner/program/instr_order.h"
#include "partitioner/program/staged.h"
#include "partitioner/simulate/check_impl.h"

#include "base/bisect.h"
#include "base/error.h"
#include "base/grow.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* --- slots and waits ------------------------------------------------------ */

enum merak_status merak_check_fail(const struct merak_program *prog,
                                   const struct merak_instr *in,
                                   struct merak_error *err, const char *fmt,
                                   ...)
{
    char what[sizeof(err->text)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "rank %d instruction %d (%s, micro-batch %d)%s",
                      prog->rank, in->id, in->name, in->microbatch, what);
}

static enum merak_status check_slot(const struct merak_program *prog, int s,
                                    struct merak_error *err)
{
    const struct merak_slot *slot = &prog->slot[s];
    const struct merak_slot *whole;
    size_t need = merak_slot_room(slot) * merak_dtype_bytes(slot->dtype), all;

    if (slot->bytes < need || slot->flat_hi > merak_box_count(&slot->box))
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "rank %d slot %d (%s): %zu bytes, its part of the "
                          "tensor takes %zu",
                          prog->rank, s, slot->name, slot->bytes, need);
    all = slot->host ? prog->host_bytes : prog->arena_bytes;
    if (slot->offset + slot->bytes > all)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "rank %d slot %d (%s): ends at byte %zu of an arena "
                          "of %zu",
                          prog->rank, s, slot->name, slot->offset + slot->bytes,
                          all);
    whole = &prog->slot[slot->whole];
    if (slot->host != whole->host || slot->offset < whole->offset ||
        slot->offset + slot->bytes > whole->offset + whole->bytes)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "rank %d slot %d (%s): not inside slot %d",
                          prog->rank, s, slot->name, slot->whole);
    return MERAK_OK;
}

static enum merak_status check_slots(const struct merak_program *prog,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    size_t sum = 0;

    for (int s = 0; s < prog->n_slots && rc == MERAK_OK; s++)
        rc = check_slot(prog, s, err);
    for (int c = 0; c < MERAK_CAT_COUNT; c++)
        sum += prog->category_bytes[c];
    if (rc == MERAK_OK && sum != prog->arena_bytes)
        rc = merak_fail(err, MERAK_ERR_CORRUPT,
                        "rank %d: the categories sum to %zu bytes, the arena "
                        "has %zu",
                        prog->rank, sum, prog->arena_bytes);
    return rc;
}

/* The bytes an exchange reads and writes must be those of its slots. */
static bool exchange_fits(const struct merak_program *prog,
                          const struct merak_instr *in)
{
    const struct merak_exchange *ex = in->exchange;
    size_t item = merak_dtype_bytes(ex->dtype);
    size_t scratch = merak_exchange_room(ex, prog->direct);

    return prog->slot[in->slot[0]].bytes == merak_shape_count(&ex->in) * item &&
           prog->slot[in->slot[in->n_in]].bytes ==
               merak_shape_count(&ex->out) * item &&
           (scratch == 0 ||
            (in->scratch >= 0 && prog->slot[in->scratch].bytes >= scratch));
}

static bool may_use(const struct merak_program *prog,
                    const struct merak_instr *in, int operand)
{
    return prog->slot[in->slot[operand]].ld == 0 ||
           in->kind == MERAK_INSTR_COPY || /* with its padding */
           (in->kind == MERAK_INSTR_KERNEL &&
            merak_op_observes_ld(in->op, in->n_in, operand));
}

/* Does it copy as much as there is room for, to the host's memory or from it?
 */
static bool copy_fits(const struct merak_program *prog,
                      const struct merak_instr *in)
{
    const struct merak_slot *from = &prog->slot[in->slot[0]];
    const struct merak_slot *to = &prog->slot[in->slot[1]];

    return in->n_in == 1 && in->n_out == 1 && from->bytes == to->bytes &&
           from->host != to->host;
}

/* May an exchange join the one before it: does it start as that does? */
static bool may_join(const struct merak_program *prog, int i)
{
    const struct merak_instr *in = &prog->instr[i], *before = in - 1;

    return i > 0 && in->kind == MERAK_INSTR_EXCHANGE &&
           before->kind == in->kind && before->queue == in->queue &&
           before->group == in->group &&
           before->exchange->kind == in->exchange->kind &&
           before->first_wait == in->first_wait && before->n_wait == in->n_wait;
}

static enum merak_status check_instr(const struct merak_program *prog, int i,
                                     struct merak_error *err)
{
    const struct merak_instr *in = &prog->instr[i];

    if (in->id != i)
        return merak_check_fail(prog, in, err, ": its id is not its index");
    if (in->joined && !may_join(prog, i))
        return merak_check_fail(prog, in, err,
                                ": does not start with the exchange before it");
    if (in->n_in + in->n_out > MERAK_MAX_OPERANDS ||
        in->scratch >= prog->n_slots)
        return merak_check_fail(prog, in, err,
                                ": names a slot that does not exist");
    for (int o = 0; o < in->n_in + in->n_out; o++) {
        if (in->slot[o] < 0 || in->slot[o] >= prog->n_slots)
            return merak_check_fail(prog, in, err,
                                    ": names a slot that does not exist");
        if (prog->slot[in->slot[o]].host && in->kind != MERAK_INSTR_COPY)
            return merak_check_fail(prog, in, err,
                                    ": cannot use the host's memory");
        if (!may_use(prog, in, o))
            return merak_check_fail(prog, in, err,
                                    ": cannot use a slot of padded rows");
    }
    for (int w = 0; w < in->n_wait; w++) {
        int at = prog->wait[in->first_wait + w];

        if (at < 0 || at >= i)
            return merak_check_fail(
                prog, in, err,
                ": waits for an instruction that is not before it");
    }
    if (in->kind == MERAK_INSTR_COPY && !copy_fits(prog, in))
        return merak_check_fail(prog, in, err,
                                ": its slots are not of one size, one of them "
                                "the host's");
    if ((in->kind == MERAK_INSTR_EXCHANGE || in->kind == MERAK_INSTR_SLICE) &&
        !exchange_fits(prog, in))
        return merak_check_fail(prog, in, err,
                                ": its slots are not of its exchange's size");
    return MERAK_OK;
}

/* --- memory --------------------------------------------------------------- */

/* A range of the arena between two adjacent slot edges. */
struct cell {
    int whole;   /* its contents: a slot that is its own whole, or -1 */
    int value;   /* of the slot through which it was written, or -1 */
    int writer;  /* instruction, or -1: from before the step */
    int compute; /* its latest reader since on the compute queue, which ends in
                    order; or -1 */
    int *reader; /* readers on other queues */
    int n_readers, reader_room;
};

struct memory {
    const struct merak_program *prog;
    struct merak_instr_order order;
    size_t *edge;
    int n_edges;
    struct cell *cell;
    int *lo, *hi; /* cells of each slot */
    int *proven;  /* by instruction: 1 + the latest one known to follow it */
};

static int compare_sizes(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;

    return x < y ? -1 : x > y;
}

static int cell_at(const struct memory *m, size_t offset)
{
    int i;

    MERAK_BISECT(i, 0, m->n_edges - 1, m->edge[i] >= offset);
    return i;
}

/* Parameters and optimizer state exist when a step begins. */
static void fill_memory(struct memory *m)
{
    const struct merak_program *prog = m->prog;

    for (int s = 0; s < prog->n_slots; s++) {
        const struct merak_slot *slot = &prog->slot[s];

        m->lo[s] = cell_at(m, merak_slot_at(slot));
        m->hi[s] = cell_at(m, merak_slot_at(slot) + slot->bytes);
        if (slot->whole != s ||
            (!slot->host &&
             slot->offset + slot->bytes > prog->persistent_bytes) ||
            (slot->category != MERAK_CAT_PARAM &&
             slot->category != MERAK_CAT_OPTIMIZER))
            continue;
        for (int c = m->lo[s]; c < m->hi[s]; c++) {
            m->cell[c].whole = s;
            m->cell[c].value = slot->value;
        }
    }
}

static enum merak_status memory_init(struct memory *m,
                                     const struct merak_program *prog,
                                     struct merak_error *err)
{
    size_t n = 2 * (size_t)prog->n_slots + 1;
    enum merak_status rc;

    *m = (struct memory){.prog = prog};
    m->edge = calloc(n, sizeof(*m->edge));
    m->cell = calloc(n, sizeof(*m->cell));
    m->lo = calloc(n, sizeof(*m->lo));
    m->hi = calloc(n, sizeof(*m->hi));
    m->proven = calloc((size_t)prog->n_instrs + 1, sizeof(*m->proven));
    if (m->edge == NULL || m->cell == NULL || m->lo == NULL || m->hi == NULL ||
        m->proven == NULL)
        return merak_fail_nomem(err, n * sizeof(*m->cell));
    rc = merak_instr_order_init(&m->order, prog, err);
    if (rc != MERAK_OK)
        return rc;
    for (int s = 0; s < prog->n_slots; s++) {
        const struct merak_slot *slot = &prog->slot[s];

        m->edge[m->n_edges++] = merak_slot_at(slot);
        m->edge[m->n_edges++] = merak_slot_at(slot) + slot->bytes;
    }
    qsort(m->edge, (size_t)m->n_edges, sizeof(*m->edge), compare_sizes);
    for (int i = 0; i < m->n_edges; i++)
        m->cell[i] = (struct cell){
            .whole = -1, .value = -1, .writer = -1, .compute = -1};
    fill_memory(m);
    return MERAK_OK;
}

static void memory_fini(struct memory *m)
{
    for (int i = 0; m->cell != NULL && i < m->n_edges; i++)
        free(m->cell[i].reader);
    merak_instr_order_fini(&m->order);
    free(m->edge);
    free(m->cell);
    free(m->lo);
    free(m->hi);
    free(m->proven);
}

static enum merak_status must_follow(struct memory *m,
                                     const struct merak_instr *in, int early,
                                     const char *why, struct merak_error *err)
{
    const struct merak_instr *e;

    if (early < 0 || early == in->id || m->proven[early] == in->id + 1)
        return MERAK_OK;
    if (merak_instr_order_before(&m->order, early, in->id)) {
        m->proven[early] = in->id + 1;
        return MERAK_OK;
    }
    e = &m->prog->instr[early];
    return merak_check_fail(m->prog, in, err,
                            " does not wait for %d (%s, micro-batch %d), %s",
                            early, e->name, e->microbatch, why);
}

static enum merak_status check_read(struct memory *m,
                                    const struct merak_instr *in, int slot,
                                    struct merak_error *err)
{
    const struct merak_slot *s = &m->prog->slot[slot];
    int writer = -1; /* of the last cell: those of a slot are often the same */
    enum merak_status rc = MERAK_OK;

    for (int c = m->lo[slot]; c < m->hi[slot] && rc == MERAK_OK; c++) {
        struct cell *cell = &m->cell[c];

        if (cell->whole != s->whole)
            return merak_check_fail(
                m->prog, in, err, " reads slot %d (%s), %s%s", slot, s->name,
                cell->whole < 0 ? "which nothing wrote"
                                : "which was overwritten by ",
                cell->whole < 0 ? "" : m->prog->slot[cell->whole].name);
        /* One slot may hold a value, and then another over it. */
        if (cell->value >= 0 && s->value >= 0 && cell->value != s->value)
            return merak_check_fail(
                m->prog, in, err,
                " reads slot %d (%s), which was overwritten by %s", slot,
                s->name, m->prog->sharded->graph->value[cell->value]->name);
        if (cell->writer == writer)
            continue;
        writer = cell->writer;
        rc = must_follow(m, in, writer, "which writes what it reads", err);
    }
    return rc;
}

static enum merak_status check_write(struct memory *m,
                                     const struct merak_instr *in, int slot,
                                     struct merak_error *err)
{
    int writer = -1, compute = -1; /* of the last cell */
    enum merak_status rc = MERAK_OK;

    for (int c = m->lo[slot]; c < m->hi[slot] && rc == MERAK_OK; c++) {
        struct cell *cell = &m->cell[c];

        if (cell->writer != writer)
            rc = must_follow(m, in, cell->writer, "which wrote there before",
                             err);
        if (cell->compute != compute && rc == MERAK_OK)
            rc = must_follow(m, in, cell->compute,
                             "which reads what it overwrites", err);
        for (int r = 0; r < cell->n_readers && rc == MERAK_OK; r++)
            rc = must_follow(m, in, cell->reader[r],
                             "which reads what it overwrites", err);
        writer = cell->writer;
        compute = cell->compute;
    }
    return rc;
}

static enum merak_status note_read(struct memory *m,
                                   const struct merak_instr *in, int slot,
                                   struct merak_error *err)
{
    for (int c = m->lo[slot]; c < m->hi[slot]; c++) {
        struct cell *cell = &m->cell[c];
        enum merak_status rc;

        if (in->queue == MERAK_QUEUE_COMPUTE) {
            cell->compute = in->id;
            continue;
        }
        rc = merak_grow(&cell->reader, &cell->reader_room, cell->n_readers,
                        sizeof(*cell->reader), err);
        if (rc != MERAK_OK)
            return rc;
        cell->reader[cell->n_readers++] = in->id;
    }
    return MERAK_OK;
}

static void note_write(struct memory *m, const struct merak_instr *in, int slot)
{
    for (int c = m->lo[slot]; c < m->hi[slot]; c++) {
        m->cell[c].whole = m->prog->slot[slot].whole;
        m->cell[c].value = m->prog->slot[slot].value;
        m->cell[c].writer = in->id;
        m->cell[c].compute = -1;
        m->cell[c].n_readers = 0;
    }
}

/* Check and note an instruction's reads and writes. */
static enum merak_status check_access(struct memory *m,
                                      const struct merak_instr *in,
                                      struct merak_error *err)
{
    unsigned reads, writes;
    int n = in->n_in + in->n_out;
    enum merak_status rc = MERAK_OK;

    merak_instr_access(in, &reads, &writes);
    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        if (reads & (1u << i))
            rc = check_read(m, in, in->slot[i], err);
        if (rc == MERAK_OK && (writes & (1u << i)))
            rc = check_write(m, in, in->slot[i], err);
    }
    if (rc == MERAK_OK && in->scratch >= 0)
        rc = check_write(m, in, in->scratch, err);
    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        if (reads & (1u << i))
            rc = note_read(m, in, in->slot[i], err);
    }
    for (int i = 0; i < n; i++) {
        if (writes & (1u << i))
            note_write(m, in, in->slot[i]);
    }
    if (in->scratch >= 0)
        note_write(m, in, in->scratch);
    return rc;
}

/* Results that are read after the step must still be there. */
static enum merak_status check_results(struct memory *m,
                                       struct merak_error *err)
{
    const struct merak_program *prog = m->prog;
    const int result[] = {prog->loss, prog->norm, prog->reports};

    for (size_t i = 0; i < sizeof(result) / sizeof(*result); i++) {
        int slot = result[i];

        for (int c = slot < 0 ? 0 : m->lo[slot]; slot >= 0 && c < m->hi[slot];
             c++) {
            if (m->cell[c].whole != prog->slot[slot].whole)
                return merak_fail(err, MERAK_ERR_CORRUPT,
                                  "rank %d: %s is overwritten before the step "
                                  "ends",
                                  prog->rank, prog->slot[slot].name);
        }
    }
    return MERAK_OK;
}

enum merak_status merak_check_program(const struct merak_program *prog,
                                      struct merak_error *err)
{
    struct memory m = {0};
    enum merak_status rc = check_slots(prog, err);

    for (int i = 0; i < prog->n_instrs && rc == MERAK_OK; i++)
        rc = check_instr(prog, i, err);
    if (rc != MERAK_OK)
        return rc;
    rc = memory_init(&m, prog, err);
    for (int i = 0; i < prog->n_instrs && rc == MERAK_OK; i++) {
        merak_instr_order_next(&m.order);
        rc = check_access(&m, &prog->instr[i], err);
    }
    if (rc == MERAK_OK)
        rc = check_results(&m, err);
    memory_fini(&m);
    return rc;
}
