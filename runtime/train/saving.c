/* SPDX-License-Identifier: Apache-2.0 */
/* saving.c - what a rank gives to a checkpoint, and when
 *
 * Pieces (flat ranges of tensors) are collected once; those of an accelerator
 * are fetched for each save.
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- pieces
 * ------------------------------------------------------------------------- */

static enum merak_status agree(void *arg, enum merak_status mine,
                               struct merak_error *err)
{
    struct merak_trainer *t = arg;

    return merak_agree(t->tr, &t->world, mine, err);
}

/* A tensor that a parameter has in a checkpoint: its name, a prefix of the
 * parameter's, and the slot. */
struct kind {
    const char *name;
    size_t slot; /* offset of the slot's number in merak_param_slots */
};

static const struct kind weight_kinds[] = {
    {"param", offsetof(struct merak_param_slots, master)},
    {"adam_m", offsetof(struct merak_param_slots, m)},
    {"adam_v", offsetof(struct merak_param_slots, v)},
};

static const struct kind grad_kinds[] = {
    {"grad", offsetof(struct merak_param_slots, grad)},
};

#define N_KINDS(kinds) ((int)(sizeof(kinds) / sizeof((kinds)[0])))

struct merak_pieces {
    struct merak_ckpt_piece *piece;
    char (*name)[512];
    int *slot;
    float **own; /* of a frozen parameter that is not f32: its elements as f32;
                    else NULL */
    int n;
};

static void free_pieces(struct merak_pieces *pieces)
{
    for (int i = 0; pieces->own != NULL && i < pieces->n; i++)
        free(pieces->own[i]);
    free(pieces->own);
    free(pieces->slot);
    free(pieces->name);
    free(pieces->piece);
}

/* A frozen parameter has only its weight to save. */
static enum merak_status add_piece(const struct merak_trainer *t,
                                   const struct merak_param_slots *p,
                                   const struct kind *kind,
                                   struct merak_pieces *out,
                                   struct merak_error *err)
{
    struct merak_ckpt_piece *piece = &out->piece[out->n];
    int slot;

    memcpy(&slot, (const char *)p + kind->slot, sizeof(slot));
    if (slot < 0 && strcmp(kind->name, "param") == 0)
        slot = p->home;
    if (slot < 0)
        return MERAK_OK;
    snprintf(out->name[out->n], sizeof(*out->name), "%s/%s", kind->name,
             p->name);
    out->slot[out->n] = slot;
    merak_piece_of_slot(t, p, slot, out->name[out->n], piece);
    if (t->program->slot[slot].dtype != MERAK_F32) {
        size_t n = piece->flat_hi - piece->flat_lo;

        out->own[out->n] = malloc((n + 1) * sizeof(float));
        if (out->own[out->n] == NULL)
            return merak_fail_nomem(err, n * sizeof(float));
        piece->data = out->own[out->n];
    }
    out->n++;
    return MERAK_OK;
}

/* The pieces this rank saves: of its primary parameters. */
static enum merak_status collect(const struct merak_trainer *t,
                                 const struct kind *kinds, int n_kinds,
                                 struct merak_pieces *out,
                                 struct merak_error *err)
{
    size_t max = (size_t)n_kinds * (size_t)t->program->n_params + 1;

    out->piece = calloc(max, sizeof(*out->piece));
    out->name = calloc(max, sizeof(*out->name));
    out->slot = calloc(max, sizeof(*out->slot));
    out->own = calloc(max, sizeof(*out->own));
    if (out->piece == NULL || out->name == NULL || out->slot == NULL ||
        out->own == NULL)
        return merak_fail_nomem(err, max * sizeof(*out->name));
    for (int i = 0; i < t->program->n_params; i++) {
        const struct merak_param_slots *p = &t->program->param[i];
        enum merak_status rc = MERAK_OK;

        for (int k = 0; p->primary && k < n_kinds && rc == MERAK_OK; k++)
            rc = add_piece(t, p, &kinds[k], out, err);
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

/* Read a bf16 slot as f32: into the second half of `out`, then widen in place
 * from the front. */
static enum merak_status fetch_wide(struct merak_trainer *t, int slot,
                                    float *out, struct merak_error *err)
{
    const struct merak_slot *s = &t->program->slot[slot];
    size_t n = s->flat_hi - s->flat_lo;
    char *from = (char *)(out + n) - n * sizeof(uint16_t);
    enum merak_status rc = merak_slot_read(t, t->program, slot, 0, from,
                                           n * sizeof(uint16_t), err);

    for (size_t i = 0; rc == MERAK_OK && i < n; i++) {
        uint16_t half;

        memcpy(&half, from + i * sizeof(half), sizeof(half));
        out[i] = merak_bf16_to_f32(half);
    }
    return rc;
}

/* Copy an accelerator's pieces to the host, into their data, and widen bf16
 * ones to f32. */
static enum merak_status fetch(struct merak_trainer *t,
                               const struct merak_pieces *pieces,
                               struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < pieces->n && rc == MERAK_OK; i++) {
        if (pieces->own[i] != NULL)
            rc = fetch_wide(t, pieces->slot[i], pieces->own[i], err);
        else if (t->compute.accel != NULL)
            rc = merak_slot_read(t, t->program, pieces->slot[i], 0,
                                 pieces->piece[i].data,
                                 t->program->slot[pieces->slot[i]].bytes, err);
    }
    return rc;
}

/* The index of the first infinite or NaN element; n if there is none. */
static size_t find_non_finite(const float *data, size_t n)
{
    size_t block = 4096;

    for (size_t lo = 0; lo < n; lo += block) {
        size_t hi = n - lo < block ? n : lo + block;
        uint32_t most = 0; /* infinite or NaN: an exponent of all ones */

#pragma omp simd reduction(max : most)
        for (size_t i = lo; i < hi; i++) {
            uint32_t bits;

            memcpy(&bits, &data[i], sizeof(bits));
            bits &= 0x7f800000;
            most = bits > most ? bits : most;
        }
        for (size_t i = lo; most == 0x7f800000 && i < hi; i++) {
            if (!isfinite(data[i]))
                return i;
        }
    }
    return n;
}

/* A checkpoint of a diverged run would cause good ones to be pruned. */
static enum merak_status check_piece(void *arg,
                                     const struct merak_ckpt_state *state,
                                     const struct merak_ckpt_piece *piece,
                                     struct merak_error *err)
{
    size_t n = piece->flat_hi - piece->flat_lo;
    size_t at = find_non_finite(piece->data, n);

    (void)arg;
    if (at == n)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "step %llu: %s has an element that is %g: not finite; "
                      "the step was not saved",
                      (unsigned long long)state->step, piece->name,
                      (double)piece->data[at]);
}

/* For blocking saves; in asynchronous ones the writing thread checks. */
static enum merak_status check_finite(const struct merak_trainer *t,
                                      const struct merak_ckpt_state *state,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; !t->compute.backend->emulated && i < t->save.pieces->n;
         i++) {
        rc = check_piece(NULL, state, &t->save.pieces->piece[i], err);
        if (rc != MERAK_OK)
            break;
    }
    return rc;
}

/* --- who writes -------------------------------------------------------------
 */

static bool writes_by_node(const struct merak_trainer *t)
{
    return t->opt.ckpt.writers == MERAK_CKPT_WRITERS_NODE;
}

static struct merak_ckpt_comm comm_of(struct merak_trainer *t)
{
    struct merak_ckpt_comm comm = {.rank = t->program->rank,
                                   .size = t->program->ranks,
                                   .arg = t,
                                   .agree = agree,
                                   .progress = &t->save.saved};

    if (writes_by_node(t)) {
        comm.files = t->boot->n_nodes;
        comm.file = t->save.node.me == 0 ? t->boot->node_of[t->boot->rank] : -1;
    }
    return comm;
}

static enum merak_status broadcast(void *arg, void *data, size_t bytes,
                                   int root, struct merak_error *err)
{
    struct merak_trainer *t = arg;

    return merak_broadcast(t->tr, &t->save.node, data, bytes, root, err);
}

/* The node's ranks, in the launcher's order. */
static enum merak_status find_node(struct merak_trainer *t,
                                   struct merak_error *err)
{
    const struct merak_boot *boot = t->boot;
    struct merak_trainer_save *s = &t->save;

    s->node = (struct merak_team){.n = 0};
    s->node_ranks = malloc((size_t)boot->size * sizeof(*s->node_ranks));
    if (s->node_ranks == NULL)
        return merak_fail_nomem(err, (size_t)boot->size);
    for (int r = 0; r < boot->size; r++) {
        if (boot->node_of[r] != boot->node_of[boot->rank])
            continue;
        if (r == boot->rank)
            s->node.me = s->node.n;
        s->node_ranks[s->node.n++] = r;
    }
    s->node.rank = s->node_ranks;
    return MERAK_OK;
}

static bool run_saves_while_training(const struct merak_trainer *t)
{
    return t->opt.ckpt.async != MERAK_CKPT_ASYNC_NO && t->opt.ckpt.every > 0 &&
           t->opt.ckpt.every < t->opt.steps;
}

/* The option that requires a copy, or NULL. */
static const char *needs_copy(const struct merak_trainer *t)
{
    if (writes_by_node(t))
        return "--ckpt-writers node";
    return t->opt.ckpt.async == MERAK_CKPT_ASYNC_YES ? "--ckpt-async yes"
                                                     : NULL;
}

static enum merak_status create_async(struct merak_trainer *t,
                                      struct merak_error *err)
{
    const struct merak_ckpt_node node = {.rank = t->save.node.me,
                                         .size = t->save.node.n,
                                         .arg = t,
                                         .broadcast = broadcast};

    return merak_ckpt_async_create(
        t->save.pieces->piece, t->save.pieces->n,
        t->compute.backend->emulated ? NULL : check_piece, NULL,
        writes_by_node(t) ? &node : NULL, &t->save.async, err);
}

/* Neither the arena's pages nor the copy's are allocated yet.  Either all
 * ranks have a copy or none. */
static enum merak_status open_async(struct merak_trainer *t,
                                    struct merak_error *err)
{
    size_t bytes = merak_saving_bytes(t);
    size_t have = merak_memory_available(t->boot);
    size_t need = t->memory.arena_bytes + t->program->host_bytes;
    double lack = need > have || bytes > have - need;
    enum merak_status rc =
        merak_all_reduce_sum(t->tr, &t->world, &lack, 1, err);

    if (rc == MERAK_OK && lack == 0)
        rc = create_async(t, err);
    else if (rc == MERAK_OK && needs_copy(t) != NULL)
        rc = merak_fail(err, MERAK_ERR_NOMEM,
                        "%s: a task needs %.3f GiB for the plan and %.3f GiB "
                        "for the copy, and not all have that; leave the option "
                        "out, or use more tasks",
                        needs_copy(t), (double)need / 0x1p30,
                        (double)bytes / 0x1p30);
    else if (rc == MERAK_OK)
        merak_info("train", "no memory for a copy of what is saved: steps wait "
                            "for checkpoints");
    if (t->save.async == NULL)
        return rc;
    t->save.copy_bytes = bytes;
    merak_info("train",
               "memory of rank %d: %zu bytes more, %.1f MiB, for the copy that "
               "is saved while training goes on",
               t->ranks.logical, bytes, (double)bytes / 0x1p20);
    return rc;
}

enum merak_status merak_saving_open(struct merak_trainer *t,
                                    struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (t->run_dir == NULL)
        return MERAK_OK;
    t->save.pieces = calloc(1, sizeof(*t->save.pieces));
    if (t->save.pieces == NULL)
        rc = merak_fail_nomem(err, sizeof(*t->save.pieces));
    else
        rc = collect(t, weight_kinds, N_KINDS(weight_kinds), t->save.pieces,
                     err);
    if (rc == MERAK_OK)
        rc = find_node(t, err);
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc == MERAK_OK && (run_saves_while_training(t) || writes_by_node(t))) {
        rc = open_async(t, err);
        rc = merak_agree(t->tr, &t->world, rc, err);
    }
    return rc;
}

void merak_saving_begin(struct merak_trainer *t)
{
    if (t->save.async != NULL)
        merak_ckpt_async_touch(t->save.async);
}

void merak_saving_close(struct merak_trainer *t)
{
    struct merak_trainer_save *s = &t->save;

    merak_ckpt_async_destroy(s->async);
    s->async = NULL;
    if (s->pieces != NULL)
        free_pieces(s->pieces);
    free(s->pieces);
    s->pieces = NULL;
    free(s->node_ranks);
    s->node_ranks = NULL;
}

size_t merak_saving_bytes(const struct merak_trainer *t)
{
    size_t bytes = 0;

    for (int i = 0; i < t->save.pieces->n; i++)
        bytes += (t->save.pieces->piece[i].flat_hi -
                  t->save.pieces->piece[i].flat_lo) *
                 sizeof(float);
    return bytes;
}

bool merak_saving_is_busy(const struct merak_trainer *t)
{
    return t->save.async != NULL && merak_ckpt_async_is_busy(t->save.async);
}

int merak_saving_percent(const struct merak_trainer *t)
{
    size_t of, written;

    if (t->save.async == NULL || !merak_ckpt_async_is_active(t->save.async) ||
        !merak_ckpt_async_is_busy(t->save.async))
        return -1;
    written = merak_ckpt_async_written(t->save.async, &of);
    return of == 0 ? 0 : (int)(100 * (double)written / (double)of);
}

/* Record the times of a save in the trace. */
static enum merak_status trace_save(struct merak_trainer *t,
                                    const struct merak_ckpt_times *times,
                                    struct merak_error *err)
{
    const struct merak_trace_save save = {
        .step = (int64_t)times->step,
        .bytes = times->bytes,
        .start_ns = times->start_ns - t->start.epoch_ns,
        .resumed_ns = times->resumed_ns - t->start.epoch_ns,
        .written_ns = times->written_ns - t->start.epoch_ns,
        .committed_ns = times->committed_ns == 0
                            ? -1
                            : times->committed_ns - t->start.epoch_ns,
    };

    return t->reports.trace == NULL
               ? MERAK_OK
               : merak_trace_save(t->reports.trace, &save, err);
}

/* At a terminal, show rank 0's progress, which is about that of all ranks. */
static void begin_line(struct merak_trainer *t)
{
    if (t->program->ranks > 1)
        snprintf(t->save.saved_what, sizeof(t->save.saved_what),
                 "save, rank 0 of %d", t->program->ranks);
    else
        strcpy(t->save.saved_what, "save");
    merak_progress_init(&t->save.saved, t->program->rank == 0 ? stderr : NULL,
                        t->save.saved_what, "B", 0);
}

static enum merak_status wait_for_async(struct merak_trainer *t,
                                        struct merak_error *err)
{
    enum merak_status rc;

    begin_line(t);
    rc = merak_ckpt_async_wait(t->save.async, err);
    merak_progress_clear(&t->save.saved);
    return rc;
}

/* If a save has just been completed, report it. */
static enum merak_status settled(struct merak_trainer *t, enum merak_status rc,
                                 bool was_active, struct merak_error *err)
{
    if (rc == MERAK_OK && was_active &&
        !merak_ckpt_async_is_active(t->save.async)) {
        rc = trace_save(t, merak_ckpt_async_times(t->save.async), err);
        rc = merak_agree(t->tr, &t->world, rc, err);
        merak_report_save(t, merak_ckpt_async_times(t->save.async));
    }
    return rc;
}

enum merak_status merak_saving_advance(struct merak_trainer *t,
                                       struct merak_error *err)
{
    if (t->save.async == NULL || !merak_ckpt_async_is_active(t->save.async))
        return MERAK_OK;
    return settled(t, merak_ckpt_async_advance(t->save.async, err), true, err);
}

enum merak_status merak_saving_settle(struct merak_trainer *t,
                                      struct merak_error *err)
{
    bool was_active;

    if (t->save.async == NULL)
        return MERAK_OK;
    was_active = merak_ckpt_async_is_active(t->save.async);
    return settled(t, wait_for_async(t, err), was_active, err);
}

/* Save from the copy, but wait for it. */
static enum merak_status
save_by_node(struct merak_trainer *t, const struct merak_ckpt_state *state,
             struct merak_ckpt_keep keep, const struct merak_ckpt_comm *comm,
             struct merak_ckpt_times *times, struct merak_error *err)
{
    enum merak_status rc = merak_ckpt_async_start(t->save.async, t->run_dir,
                                                  state, keep, comm, err);

    if (rc == MERAK_OK)
        rc = wait_for_async(t, err);
    *times = *merak_ckpt_async_times(t->save.async);
    times->resumed_ns = merak_clock_ns();
    return rc;
}

enum merak_status merak_weights_save(struct merak_trainer *t, bool last,
                                     struct merak_error *err)
{
    const struct merak_ckpt_keep keep = {.newest = t->opt.ckpt.keep,
                                         .every = t->opt.ckpt.keep_every};
    struct merak_ckpt_comm comm = comm_of(t);
    struct merak_ckpt_times times;
    struct merak_ckpt_state state;
    bool wait = t->save.async == NULL || last || !run_saves_while_training(t);
    enum merak_status rc = merak_saving_settle(t, err);

    if (rc != MERAK_OK)
        return rc;
    merak_resume_state(t, &state);
    rc = fetch(t, t->save.pieces, err);
    if (rc == MERAK_OK && wait)
        rc = check_finite(t, &state, err);
    if (rc == MERAK_OK && t->save.owner != NULL)
        rc = merak_ckpt_owner_check(t->save.owner, err);
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc != MERAK_OK)
        return rc;
    if (!wait)
        return merak_ckpt_async_start(t->save.async, t->run_dir, &state, keep,
                                      &comm, err);
    begin_line(t);
    rc = writes_by_node(t)
             ? save_by_node(t, &state, keep, &comm, &times, err)
             : merak_ckpt_save_timed(t->run_dir, &state, t->save.pieces->piece,
                                     t->save.pieces->n, keep, &comm, &times,
                                     err);
    merak_progress_clear(&t->save.saved);
    if (rc != MERAK_OK)
        return rc;
    merak_report_save(t, &times);
    rc = trace_save(t, &times, err);
    return merak_agree(t->tr, &t->world, rc, err);
}

/* Point a piece to a scaled copy of its data. */
static enum merak_status copy_scaled(struct merak_ckpt_piece *piece,
                                     float scale, struct merak_error *err)
{
    size_t n = piece->flat_hi - piece->flat_lo;
    const float *from = piece->data;
    float *copy = malloc((n + 1) * sizeof(*copy));

    if (copy == NULL)
        return merak_fail_nomem(err, n * sizeof(*copy));
    for (size_t i = 0; i < n; i++)
        copy[i] = from[i] * scale;
    piece->data = copy;
    return MERAK_OK;
}

enum merak_status merak_grads_dump(struct merak_trainer *t, float scale,
                                   struct merak_error *err)
{
    const struct merak_ckpt_keep keep_all = {.newest = 0};
    struct merak_ckpt_comm comm = {.rank = t->program->rank,
                                   .size = t->program->ranks,
                                   .arg = t,
                                   .agree = agree};
    struct merak_pieces pieces = {.n = 0};
    struct merak_ckpt_state state;
    enum merak_status rc =
        collect(t, grad_kinds, N_KINDS(grad_kinds), &pieces, err);
    int copied = 0;

    if (rc == MERAK_OK)
        rc = fetch(t, &pieces, err);
    while (rc == MERAK_OK && copied < pieces.n) {
        rc = copy_scaled(&pieces.piece[copied], scale, err);
        copied += rc == MERAK_OK;
    }
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc == MERAK_OK) {
        merak_resume_state(t, &state);
        rc = merak_ckpt_save(t->opt.output.dump_grads, &state, pieces.piece,
                             pieces.n, keep_all, &comm, err);
    }
    for (int i = 0; i < copied; i++)
        free(pieces.piece[i].data);
    free_pieces(&pieces);
    return rc;
}
