/* SPDX-License-Identifier: Apache-2.0 */
/* tell.c - what a rank's engine does, for the report of a hang
 *
 * Both threads write records while this reads them: only records of complete
 * instructions are used.
 */
#include "config.h"

#include "runtime/engine/engine_impl.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 3, 4))) static void
append(char *text, size_t size, const char *fmt, ...)
{
    size_t n = strlen(text);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text + n, size - n, fmt, ap);
    va_end(ap);
}

static double seconds_ago(int64_t ns)
{
    return merak_clock_since_s(ns);
}

static void append_instr(const struct merak_engine *e, int id, char *text,
                         size_t size)
{
    char what[128];

    merak_engine_describe(e, &e->program->instr[id], what, sizeof(what));
    append(text, size, "%s", what);
}

/* The instruction that ended last, among receives from `peer` or all (-1); -1:
 * there is none. */
static int last_done(const struct merak_engine *e, int peer)
{
    int last = -1;

    for (int i = 0; i < e->program->n_instrs; i++) {
        const struct merak_instr *instr = &e->program->instr[i];

        if (peer >= 0 &&
            (instr->kind != MERAK_INSTR_RECV || instr->peer != peer))
            continue;
        if (peer < 0 && !instr_done(e, i))
            continue;
        if (e->record[i].end_ns > 0 &&
            (last < 0 || e->record[i].end_ns > e->record[last].end_ns))
            last = i;
    }
    return last;
}

static void tell_compute(const struct merak_engine *e, char *text, size_t size)
{
    int at = atomic_load_explicit(&e->compute_at, memory_order_relaxed);
    int pending;

    if (at < 0)
        return;
    pending = merak_engine_pending(e, &e->program->instr[at]);
    append(text, size, "%s",
           pending < 0 ? MERAK_TELL_COMPUTES : ", compute is at ");
    append_instr(e, at, text, size);
    append(text, size, " for %.1f s",
           seconds_ago(atomic_load_explicit(&e->compute_since_ns,
                                            memory_order_relaxed)));
    if (pending < 0)
        return;
    append(text, size, ", which waits for ");
    append_instr(e, pending, text, size);
}

/* Append the oldest transfer under way. */
static void tell_started(const struct merak_engine *e, char *text, size_t size)
{
    const struct merak_instr *instr;
    int last;

    if (e->comm.n_started == 0)
        return;
    instr = &e->program->instr[e->comm.started[0].instr];
    append(text, size, ", in flight ");
    append_instr(e, instr->id, text, size);
    append(text, size, " for %.1f s",
           seconds_ago(e->record[instr->id].start_ns + e->opt.epoch_ns));
    if (instr->kind != MERAK_INSTR_SEND && instr->kind != MERAK_INSTR_RECV)
        return;
    last = last_done(e, instr->peer);
    if (last >= 0)
        append(
            text, size, " (last received from rank %d %.1f s ago: step %d, %s)",
            instr->peer, seconds_ago(e->record[last].end_ns + e->opt.epoch_ns),
            (int)e->record[last].step, e->program->instr[last].name);
}

void merak_engine_tell(const struct merak_engine *e, char *text, size_t size)
{
    int last = last_done(e, -1);

    text[0] = '\0';
    append(text, size, "step %llu", (unsigned long long)e->at_step);
    tell_compute(e, text, size);
    tell_started(e, text, size);
    if (last < 0)
        return;
    append(text, size, ", last finished ");
    append_instr(e, last, text, size);
    append(text, size, " %.1f s ago",
           seconds_ago(e->record[last].end_ns + e->opt.epoch_ns));
}
