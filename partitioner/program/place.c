/* SPDX-License-Identifier: Apache-2.0 */
/* place.c - offsets of a program's slots, and what the arena is spent on
 *
 * The persistent part is at offset 0, laid out by params.c; the rest follows
 * it, placed by lifetimes.  Persistent bytes count for their category.  The
 * rest is divided among categories as it is used at the instruction where most
 * of it is in use; what is idle even then (gaps in the packing) counts as
 * transient, so that the categories add up to the arena.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "base/arrays.h"
#include "base/bisect.h"
#include "base/error.h"
#include "base/size.h"

#include <stdlib.h>

/* Extend the lifetime of `slot` that includes instruction `at` to `until`, or
 * to where its next lifetime begins. */
static void extend_life(struct merak_build *b, int slot, int at, int until)
{
    struct merak_use *use = &b->use[b->prog->slot[slot].whole];
    struct merak_span *span;
    int i, n = use->n_spans;

    /* The last lifetime may not have begun. */
    if (n > 0 && use->span[n - 1].first < 0)
        n--;
    /* The first that ends at `at` or later. */
    MERAK_BISECT(i, 0, n, use->span[i].last >= at);
    if (i == use->n_spans || use->span[i].first < 0 || use->span[i].first > at)
        return;
    span = &use->span[i];
    if (i + 1 < use->n_spans && span[1].first >= 0 && until >= span[1].first)
        until = span[1].first - 1;
    if (until > span->last)
        span->last = until;
}

/*
 * What an exchange reads or stages in stays in use until its result is needed.
 * If a kernel in between were given the memory, it would wait for the exchange
 * that it is supposed to overlap with.
 */
static void keep_for_exchanges(struct merak_build *b)
{
    const struct merak_program *prog = b->prog;
    int *next = malloc(((size_t)prog->n_slots + 1) * sizeof(*next));

    if (next == NULL) {
        merak_build_fail(b, merak_fail_nomem(b->err, (size_t)prog->n_slots));
        return;
    }
    for (int s = 0; s < prog->n_slots; s++)
        next[s] = prog->n_instrs;
    for (int i = prog->n_instrs - 1; i >= 0; i--) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind == MERAK_INSTR_EXCHANGE) {
            int until = next[prog->slot[in->slot[1]].whole] - 1;

            if (!b->use[prog->slot[in->slot[0]].whole].brief)
                extend_life(b, in->slot[0], i, until);
            if (in->scratch >= 0)
                extend_life(b, in->scratch, i, until);
        }
        for (int k = 0; k < in->n_in + in->n_out; k++)
            next[prog->slot[in->slot[k]].whole] = i;
    }
    free(next);
}

static bool is_planned(const struct merak_build *b, int slot)
{
    return b->prog->slot[slot].whole == slot && !b->use[slot].persistent &&
           b->use[slot].n_spans > 0 && b->use[slot].span[0].first >= 0;
}

static int collect_lives(struct merak_build *b, struct merak_life *lives,
                         int *slot)
{
    int n = 0;

    for (int s = 0; s < b->prog->n_slots; s++) {
        struct merak_use *use = &b->use[s];

        if (!is_planned(b, s))
            continue;
        /* A life that was begun and never used. */
        if (use->span[use->n_spans - 1].first < 0)
            use->n_spans--;
        lives[n] = (struct merak_life){.bytes = b->prog->slot[s].bytes,
                                       .span = use->span,
                                       .n_spans = use->n_spans};
        slot[n++] = s;
    }
    return n;
}

/* used[at][category] becomes the bytes in use at each instruction. */
static void sum_lives(const struct merak_build *b,
                      const struct merak_life *lives, const int *slot, int n,
                      int64_t (*used)[MERAK_CAT_COUNT])
{
    for (int i = 0; i < n; i++) {
        int c = (int)b->prog->slot[slot[i]].category;
        int64_t bytes = (int64_t)merak_size_align(lives[i].bytes, MERAK_ALIGN);

        for (int k = 0; k < lives[i].n_spans; k++) {
            used[lives[i].span[k].first][c] += bytes;
            used[lives[i].span[k].last + 1][c] -= bytes;
        }
    }
    for (int at = 1; at <= b->prog->n_instrs; at++) {
        for (int c = 0; c < MERAK_CAT_COUNT; c++)
            used[at][c] += used[at - 1][c];
    }
}

static void sum_categories(struct merak_build *b,
                           const int64_t (*used)[MERAK_CAT_COUNT])
{
    struct merak_program *prog = b->prog;
    size_t rest = prog->arena_bytes - prog->persistent_bytes;
    int64_t best = -1;
    int peak = 0;

    for (int at = 0; at <= prog->n_instrs; at++) {
        int64_t sum = 0;

        for (int c = 0; c < MERAK_CAT_COUNT; c++)
            sum += used[at][c];
        if (sum > best) {
            best = sum;
            peak = at;
        }
    }
    for (int c = 0; c < MERAK_CAT_COUNT; c++) {
        prog->category_bytes[c] += (size_t)used[peak][c];
        rest -= (size_t)used[peak][c];
    }
    prog->category_bytes[MERAK_CAT_TRANSIENT] += rest;
}

static void place_slots(struct merak_build *b, const struct merak_life *lives,
                        const int *slot, int n)
{
    struct merak_program *prog = b->prog;

    for (int i = 0; i < n; i++)
        prog->slot[slot[i]].offset = prog->persistent_bytes + lives[i].offset;
    for (int s = 0; s < prog->n_slots; s++) {
        struct merak_slot *sl = &prog->slot[s];

        if (b->use[s].persistent && !sl->host)
            prog->category_bytes[sl->category] +=
                merak_size_align(sl->bytes, MERAK_ALIGN);
        if (sl->whole != s)
            sl->offset += prog->slot[sl->whole].offset;
    }
}

void merak_build_place(struct merak_build *b)
{
    struct merak_program *prog = b->prog;
    size_t n_slots = (size_t)prog->n_slots + 1;
    struct merak_life *lives;
    int64_t(*used)[MERAK_CAT_COUNT];
    int *slot, n;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(lives, n_slots), MERAK_ARRAY(slot, n_slots),
        MERAK_ARRAY(used, (size_t)prog->n_instrs + 2)};
    size_t bytes = 0;

    merak_build_fail(b, MERAK_ARRAYS(arrays, b->err));
    if (lives == NULL)
        return;
    keep_for_exchanges(b);
    n = collect_lives(b, lives, slot);
    merak_build_fail(b,
                     merak_memplan(lives, n, b->opt->deadline, &bytes, b->err));
    if (b->rc != MERAK_OK)
        goto out;
    prog->arena_bytes = prog->persistent_bytes + bytes;
    place_slots(b, lives, slot, n);
    sum_lives(b, lives, slot, n, used);
    sum_categories(b, (const int64_t(*)[MERAK_CAT_COUNT])used);
out:
    free(lives);
}
