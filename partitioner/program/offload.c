/* SPDX-License-Identifier: Apache-2.0 */
/* offload.c - optimizer state that is kept in the host's memory
 *
 * Only updates read it.  They go over the parameters in pieces: while one is
 * updated the next is brought, and then the first is taken back, so that two
 * pieces are in the arena at a time.  The copies are a queue of their own, in
 * this order: a link that goes one way at a time is never idle.
 *
 * AdamW is element by element, and pieces change nothing in its results.
 */
#include "config.h"

#include "partitioner/plan/choice.h"
#include "partitioner/program/offload.h"
#include "partitioner/program/step.h"

#include "base/error.h"

enum merak_status merak_offload_check(const struct merak_plan *plan,
                                      const struct merak_cost_model *cost,
                                      struct merak_error *err)
{
    char word[MERAK_CHOICE_WORD];

    if (plan->offload == MERAK_OFFLOAD_NONE || cost->host.bytes_per_s > 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--offload %s needs \"host\" in the device file, and "
                      "device %s has none: add its memory_bytes, bytes_per_s "
                      "and latency_s (merak calibrate measures an "
                      "accelerator's), or leave out --offload",
                      merak_choice_word(&merak_choice[MERAK_CHOICE_OFFLOAD],
                                        (long)plan->offload, word),
                      cost->name);
}

bool merak_build_is_offloaded(const struct merak_build *b, int param)
{
    const struct merak_value *value = b->graph->value[param];

    return merak_build_held(b, param, MERAK_HELD_STATE).host &&
           !value->frozen && value->sign_rate == 0 && value->mean_rate == 0;
}

/* The slot of n elements of another's, from element lo of it on. */
static int piece_of(struct merak_build *b, int slot, size_t lo, size_t n)
{
    struct merak_slot part = b->prog->slot[slot];
    size_t at = part.whole == slot ? 0 : part.offset;

    if (n == part.flat_hi - part.flat_lo)
        return slot;
    part.flat_lo += lo;
    part.flat_hi = part.flat_lo + n;
    part.bytes = 0;
    return merak_build_alias(b, part.whole,
                             at + lo * merak_dtype_bytes(part.dtype), &part);
}

static void copy(struct merak_build *b, const char *what, int from, int to)
{
    struct merak_instr in = merak_step_instr(MERAK_INSTR_COPY, NULL);

    if (b->rc != MERAK_OK)
        return;
    in.name = merak_build_name(b, "%s %s", what, b->prog->slot[from].name);
    in.n_in = in.n_out = 1;
    in.slot[0] = from;
    in.slot[1] = to;
    merak_build_push(b, &in);
}

/* Bring a piece of the host's, unless it is in the arena. */
static void bring(struct merak_build *b, int slot, size_t lo, size_t n,
                  struct merak_away *away)
{
    struct merak_slot here = b->prog->slot[slot];
    struct merak_away_state *state = &away->state[away->n_states++];

    state->home = piece_of(b, slot, lo, n);
    state->here = state->home;
    if (!here.host || b->rc != MERAK_OK)
        return;
    here = b->prog->slot[state->home];
    here.host = false;
    state->here = merak_build_slot(b, &here);
    if (b->rc != MERAK_OK)
        return;
    merak_build_begin(b, state->here);
    copy(b, "bring", state->home, state->here);
}

void merak_step_settle_away(struct merak_build *b, struct merak_away *away)
{
    const struct merak_param_slots *p = away->param;
    const struct merak_away_state *s = away->state;
    int slot[6] = {-1, b->prog->norm, s[0].here, s[1].here, s[2].here, -1};

    if (p == NULL || b->rc != MERAK_OK)
        return;
    slot[0] = piece_of(b, p->grad, away->lo, away->n);
    if (s[0].here != s[0].home) /* else it is its own master */
        slot[5] = piece_of(b, merak_build_own_part(b, p), away->lo, away->n);
    merak_step_adamw(b, p, slot);
    for (int i = 0; i < away->n_states; i++) {
        if (s[i].here != s[i].home)
            copy(b, "return", s[i].here, s[i].home);
    }
    away->param = NULL;
}

void merak_step_update_away(struct merak_build *b, struct merak_away *last,
                            const struct merak_param_slots *p)
{
    const struct merak_slot *m = &b->prog->slot[p->m];
    const size_t all = m->flat_hi - m->flat_lo;

    for (size_t lo = 0; lo < all && b->rc == MERAK_OK;
         lo += MERAK_OFFLOAD_PIECE) {
        size_t left = all - lo;
        struct merak_away next = {
            .param = p,
            .lo = lo,
            .n = left < MERAK_OFFLOAD_PIECE ? left : MERAK_OFFLOAD_PIECE};

        bring(b, p->master, next.lo, next.n, &next);
        bring(b, p->m, next.lo, next.n, &next);
        bring(b, p->v, next.lo, next.n, &next);
        merak_step_settle_away(b, last);
        *last = next;
    }
}

double merak_program_needs(const struct merak_program *program,
                           const struct merak_host *host)
{
    double over = (double)program->host_bytes - (double)host->bytes;

    return (double)program->arena_bytes + (over > 0 ? over : 0);
}

double merak_offload_bytes(const struct merak_program *program, double repeat)
{
    double bytes = 0;

    for (int i = 0; i < program->n_instrs; i++) {
        if (program->instr[i].kind == MERAK_INSTR_COPY)
            bytes += (double)program->instr[i].bytes *
                     (program->instr[i].microbatch >= 0 ? repeat : 1);
    }
    return bytes;
}
