/* SPDX-License-Identifier: Apache-2.0 */
/* hazard.c - the waits of a program
 *
 * The arena is cut into intervals at every offset where a slot begins or ends,
 * and the host's memory likewise.
 * For each of them the last writer and the readers since are kept, so one rule
 * covers data and the reuse of memory: read after write, write after read,
 * write after write.  Neighbours that were written together and read alike
 * since are one run: a large slot over many small ones has thousands of
 * intervals and few runs.  Waits that the compute queue's order or another wait
 * implies are left out.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "base/arrays.h"
#include "base/error.h"
#include "partitioner/program/instr_order.h"

#include <stdint.h>
#include <stdlib.h>

#define WORD 64 /* bits */

struct interval {
    int writer;  /* or -1 */
    int compute; /* latest compute instruction that read since, or -1 */
    int readers; /* head of a list of others that did, or -1 */
};

struct reader {
    int instr;
    int next;
};

struct range {
    int lo, hi; /* intervals [lo, hi) */
};

struct hazards {
    struct merak_build *b;
    struct merak_instr_order order;
    size_t *offset; /* sorted */
    int n_offsets;
    struct interval *interval; /* valid where a run begins: */
    uint64_t *begins;          /* bits, by interval */
    struct range *range;       /* by slot */
    struct reader *reader;
    int n_readers, cap_readers, free_reader;
    int *found; /* candidates of one instruction */
    int n_found, cap_found;
    int gate;   /* next of the build's gates: waits that no memory causes */
    int *stamp; /* by instruction: last instruction that found it */
};

static int compare_sizes(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;

    return x < y ? -1 : x > y;
}

static int find_offset(const struct hazards *h, size_t offset)
{
    const size_t *e = bsearch(&offset, h->offset, (size_t)h->n_offsets,
                              sizeof(*h->offset), compare_sizes);

    return (int)(e - h->offset);
}

static void cut_arena(struct hazards *h)
{
    const struct merak_program *prog = h->b->prog;
    int n = 0, unique = 0;

    for (int s = 0; s < prog->n_slots; s++) {
        h->offset[n++] = merak_slot_at(&prog->slot[s]);
        h->offset[n++] = merak_slot_at(&prog->slot[s]) + prog->slot[s].bytes;
    }
    qsort(h->offset, (size_t)n, sizeof(*h->offset), compare_sizes);
    for (int i = 0; i < n; i++) {
        if (unique == 0 || h->offset[i] != h->offset[unique - 1])
            h->offset[unique++] = h->offset[i];
    }
    h->n_offsets = unique;
    for (int s = 0; s < prog->n_slots; s++)
        h->range[s] =
            (struct range){find_offset(h, merak_slot_at(&prog->slot[s])),
                           find_offset(h, merak_slot_at(&prog->slot[s]) +
                                              prog->slot[s].bytes)};
    h->begins[0] = 1;
    h->interval[0] = (struct interval){-1, -1, -1};
}

static bool hazards_init(struct hazards *h, struct merak_build *b)
{
    size_t slots = (size_t)b->prog->n_slots + 1;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(h->offset, 2 * slots), MERAK_ARRAY(h->interval, 2 * slots),
        MERAK_ARRAY(h->begins, 2 * slots / WORD + 1),
        MERAK_ARRAY(h->range, slots),
        MERAK_ARRAY(h->stamp, (size_t)b->prog->n_instrs + 1)};

    *h = (struct hazards){.b = b, .free_reader = -1};
    merak_build_fail(b, MERAK_ARRAYS(arrays, b->err));
    if (b->rc == MERAK_OK)
        merak_build_fail(b, merak_instr_order_init(&h->order, b->prog, b->err));
    if (b->rc == MERAK_OK)
        cut_arena(h);
    return b->rc == MERAK_OK;
}

static void hazards_fini(struct hazards *h)
{
    merak_instr_order_fini(&h->order);
    free(h->offset);
    free(h->reader);
    free(h->found);
}

static bool is_compute(const struct hazards *h, int instr)
{
    return h->b->prog->instr[instr].queue == MERAK_QUEUE_COMPUTE;
}

static void find(struct hazards *h, int early, int late)
{
    if (early < 0 || early == late || h->stamp[early] == late + 1 ||
        (is_compute(h, early) && is_compute(h, late)))
        return;
    h->stamp[early] = late + 1;
    if (merak_build_grow(h->b, &h->found, &h->cap_found, h->n_found,
                         sizeof(*h->found)))
        h->found[h->n_found++] = early;
}

static void add_reader(struct hazards *h, struct interval *interval, int instr)
{
    int r = h->free_reader;

    if (r >= 0) {
        h->free_reader = h->reader[r].next;
    } else {
        if (!merak_build_grow(h->b, &h->reader, &h->cap_readers, h->n_readers,
                              sizeof(*h->reader)))
            return;
        r = h->n_readers++;
    }
    h->reader[r] = (struct reader){instr, interval->readers};
    interval->readers = r;
}

/* --- runs ----------------------------------------------------------------- */

/* Where the run that holds an interval begins. */
static int run_of(const struct hazards *h, int p)
{
    int w = p / WORD;
    uint64_t bits = h->begins[w] << (WORD - 1 - p % WORD);

    if (bits != 0)
        return p - __builtin_clzll(bits);
    while (h->begins[--w] == 0)
        ; /* bit 0 is set */
    return w * WORD + WORD - 1 - __builtin_clzll(h->begins[w]);
}

/* Where the next run begins, or hi. */
static int next_run(const struct hazards *h, int p, int hi)
{
    int w = ++p / WORD;
    uint64_t bits;

    if (p >= hi)
        return hi;
    bits = h->begins[w] >> p % WORD;
    if (bits != 0) {
        p += __builtin_ctzll(bits);
        return p < hi ? p : hi;
    }
    while (++w * WORD < hi) {
        if (h->begins[w] != 0) {
            p = w * WORD + __builtin_ctzll(h->begins[w]);
            return p < hi ? p : hi;
        }
    }
    return hi;
}

/* Make a run begin here. */
static void split(struct hazards *h, int p)
{
    int from = run_of(h, p);

    if (from == p || p >= h->n_offsets)
        return;
    h->begins[p / WORD] |= UINT64_C(1) << p % WORD;
    h->interval[p] = h->interval[from];
    h->interval[p].readers = -1;
    for (int r = h->interval[from].readers; r >= 0; r = h->reader[r].next)
        add_reader(h, &h->interval[p], h->reader[r].instr);
}

/* Make runs begin and end where a slot does. */
static void split_at(struct hazards *h, int slot)
{
    split(h, h->range[slot].lo);
    split(h, h->range[slot].hi);
}

/* --- accesses ------------------------------------------------------------- */

static void drop_readers(struct hazards *h, struct interval *interval)
{
    while (interval->readers >= 0) {
        int r = interval->readers;

        interval->readers = h->reader[r].next;
        h->reader[r].next = h->free_reader;
        h->free_reader = r;
    }
}

static void after_write(struct hazards *h, int slot, int instr)
{
    int hi = h->range[slot].hi;

    split_at(h, slot);
    for (int p = h->range[slot].lo; p < hi; p = next_run(h, p, hi))
        find(h, h->interval[p].writer, instr);
}

static void after_reads(struct hazards *h, int slot, int instr)
{
    int hi = h->range[slot].hi;

    split_at(h, slot);
    for (int p = h->range[slot].lo; p < hi; p = next_run(h, p, hi)) {
        find(h, h->interval[p].writer, instr);
        find(h, h->interval[p].compute, instr);
        for (int r = h->interval[p].readers; r >= 0; r = h->reader[r].next)
            find(h, h->reader[r].instr, instr);
    }
}

static void note_read(struct hazards *h, int slot, int instr)
{
    int hi = h->range[slot].hi;

    for (int p = h->range[slot].lo; p < hi; p = next_run(h, p, hi)) {
        if (is_compute(h, instr))
            h->interval[p].compute = instr;
        else
            add_reader(h, &h->interval[p], instr);
    }
}

static void note_write(struct hazards *h, int slot, int instr)
{
    int lo = h->range[slot].lo, hi = h->range[slot].hi;

    for (int p = lo; p < hi; p = next_run(h, p, hi)) {
        drop_readers(h, &h->interval[p]);
        if (p > lo)
            h->begins[p / WORD] &= ~(UINT64_C(1) << p % WORD);
    }
    if (lo < hi)
        h->interval[lo] = (struct interval){instr, -1, -1};
}

/* What an instruction has to wait for, to be found for `late`, which is it or
 * the first of its bundle. */
static void find_hazards(struct hazards *h, const struct merak_instr *in,
                         int late)
{
    unsigned reads, writes;

    merak_instr_access(in, &reads, &writes);
    for (; h->gate < h->b->gates.n && h->b->gates.gate[h->gate].instr == in->id;
         h->gate++)
        find(h, h->b->gates.gate[h->gate].early, late);
    for (int i = 0; i < in->n_in + in->n_out; i++) {
        if (reads & (1u << i))
            after_write(h, in->slot[i], late);
        if (writes & (1u << i))
            after_reads(h, in->slot[i], late);
    }
    if (in->scratch >= 0)
        after_reads(h, in->scratch, late);
}

static void note_accesses(struct hazards *h, const struct merak_instr *in)
{
    unsigned reads, writes;

    merak_instr_access(in, &reads, &writes);
    for (int i = 0; i < in->n_in + in->n_out; i++) {
        if (reads & (1u << i))
            note_read(h, in->slot[i], in->id);
    }
    for (int i = 0; i < in->n_in + in->n_out; i++) {
        if (writes & (1u << i))
            note_write(h, in->slot[i], in->id);
    }
    if (in->scratch >= 0)
        note_write(h, in->scratch, in->id);
}

static int later_first(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return x > y ? -1 : x < y;
}

/* Is a found hazard implied by the compute order or a wait already kept? */
static bool is_implied(const struct hazards *h, const struct merak_instr *in,
                       int early)
{
    const struct merak_program *prog = h->b->prog;
    int before = h->order.last_compute;

    if (in->queue == MERAK_QUEUE_COMPUTE && before >= 0 &&
        merak_instr_order_implies(&h->order, before, early))
        return true;
    for (int i = 0; i < in->n_wait; i++) {
        if (merak_instr_order_implies(&h->order, prog->wait[in->first_wait + i],
                                      early))
            return true;
    }
    return false;
}

/* Later hazards first: they imply the most. */
static void keep_waits(struct hazards *h, struct merak_instr *in)
{
    struct merak_program *prog = h->b->prog;

    in->first_wait = prog->n_waits;
    if (h->n_found == 0)
        return;
    qsort(h->found, (size_t)h->n_found, sizeof(*h->found), later_first);
    for (int i = 0; i < h->n_found; i++) {
        if (is_implied(h, in, h->found[i]))
            continue;
        if (!merak_build_grow(h->b, &prog->wait, &h->b->room.cap_waits,
                              prog->n_waits, sizeof(*prog->wait)))
            return;
        prog->wait[prog->n_waits++] = h->found[i];
        in->n_wait++;
    }
}

/* An instruction and those that join it: all wait for what any of them has to
 * wait for.  Returns how many they are. */
static int take_bundle(struct hazards *h, int id)
{
    struct merak_instr *first = &h->b->prog->instr[id];
    int n = 1 + merak_instr_joined(h->b->prog, id);

    h->n_found = 0;
    for (int i = 0; i < n; i++)
        find_hazards(h, &first[i], id);
    for (int i = 0; i < n; i++)
        note_accesses(h, &first[i]);
    keep_waits(h, first);
    for (int i = 0; i < n; i++) {
        first[i].first_wait = first->first_wait;
        first[i].n_wait = first->n_wait;
        merak_instr_order_next(&h->order);
    }
    return n;
}

void merak_build_waits(struct merak_build *b)
{
    struct hazards h;

    if (hazards_init(&h, b)) {
        for (int i = 0; i < b->prog->n_instrs && b->rc == MERAK_OK;)
            i += take_bundle(&h, i);
    }
    hazards_fini(&h);
}
