/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - initial values, and the pieces a checkpoint is made of
 *
 * A parameter's element is a function of (seed, name, global element index),
 * so what a rank fills in does not depend on the layout.
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/log.h"
#include "base/rng.h"
#include "io/weights/hf_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)1 << 20)

static size_t slot_count(const struct merak_slot *s)
{
    return s->flat_hi - s->flat_lo;
}

/* Global row-major index of element `i` of a box. */
static uint64_t global_index(const struct merak_box *box, size_t i)
{
    size_t at[MERAK_MAX_DIMS];
    uint64_t index = 0;

    for (int d = box->ndim - 1; d >= 0; d--) {
        at[d] = i % box->len[d];
        i /= box->len[d];
    }
    for (int d = 0; d < box->ndim; d++)
        index = index * box->full[d] + box->lo[d] + at[d];
    return index;
}

/* `row`: elements of a row of the first dim. */
static float initial_value(const struct merak_init *init, uint64_t key,
                           uint64_t index, uint64_t row)
{
    if (init->zero_row > 0 && index / row == init->zero_row - 1)
        return 0.0f;
    switch (init->kind) {
    case MERAK_INIT_NORMAL:
        return init->std * merak_rng_normal(key, index);
    case MERAK_INIT_ONES:
        return 1.0f;
    case MERAK_INIT_ZEROS:
        break;
    }
    return 0.0f;
}

/* Initial values of elements [lo, lo + n) of a slot. */
static void fill_values(const struct merak_trainer *t,
                        const struct merak_slot *s,
                        const struct merak_param_slots *p, size_t lo, size_t n,
                        void *out)
{
    uint64_t key = merak_rng_key(t->opt.seed, p->name);
    uint64_t row = merak_shape_count(&p->shape) / p->shape.dim[0];
    uint16_t *b = out;
    float *f = out;
    int threads = t->plan.threads;

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; i++) {
        float x = initial_value(
            &p->init, key, global_index(&s->box, s->flat_lo + lo + i), row);

        if (s->dtype == MERAK_BF16)
            b[i] = merak_f32_to_bf16(x);
        else
            f[i] = x;
    }
}

static enum merak_status fill_slot(struct merak_trainer *t, int slot,
                                   const struct merak_param_slots *p,
                                   float *buf, struct merak_error *err)
{
    const struct merak_slot *s = &t->program->slot[slot];
    size_t n = slot_count(s), elem = merak_dtype_bytes(s->dtype);
    enum merak_status rc = MERAK_OK;

    if (t->accel == NULL) {
        fill_values(t, s, p, 0, n, merak_slot_host(t, t->program, slot));
        return MERAK_OK;
    }
    for (size_t lo = 0; lo < n && rc == MERAK_OK; lo += CHUNK) {
        size_t part = n - lo < CHUNK ? n - lo : CHUNK;

        fill_values(t, s, p, lo, part, buf);
        rc = merak_slot_write(t, t->program, slot, lo * elem, buf, part * elem,
                              err);
    }
    return rc;
}

/* A device's moments are zero since it was cleared. */
static void clear_moments(struct merak_trainer *t,
                          const struct merak_param_slots *p)
{
    const struct merak_slot *slot = t->program->slot;

    if (t->accel != NULL || p->frozen)
        return;
    memset(merak_slot_host(t, t->program, p->m), 0, slot[p->m].bytes);
    memset(merak_slot_host(t, t->program, p->v), 0, slot[p->v].bytes);
}

enum merak_status merak_weights_init(struct merak_trainer *t,
                                     struct merak_error *err)
{
    const struct merak_slot *slot = t->program->slot;
    float *buf = malloc(CHUNK * sizeof(*buf));
    enum merak_status rc = MERAK_OK;

    if (buf == NULL)
        return merak_fail_nomem(err, CHUNK * sizeof(*buf));
    for (int i = 0; i < t->program->n_params && rc == MERAK_OK; i++) {
        const struct merak_param_slots *p = &t->program->param[i];

        rc = fill_slot(t, p->param, p, buf, err);
        if (rc == MERAK_OK && slot[p->param].dtype != MERAK_F32 && !p->frozen)
            rc = fill_slot(t, p->master, p, buf, err);
        clear_moments(t, p);
    }
    free(buf);
    return rc;
}

/* --- pieces ----------------------------------------------------------------
 */

static void piece_of_slot(const struct merak_trainer *t,
                          const struct merak_param_slots *p, int slot,
                          const char *name, struct merak_ckpt_piece *piece)
{
    const struct merak_slot *s = &t->program->slot[slot];

    piece->name = name;
    piece->shape = p->shape;
    piece->box = s->box;
    piece->flat_lo = s->flat_lo;
    piece->flat_hi = s->flat_hi;
    piece->data = merak_slot_host(t, t->program, slot);
}

/* n elements of f32 into a slot from its element lo on, as the slot's dtype;
 * buf is used up. */
static enum merak_status store(struct merak_trainer *t, int slot, size_t lo,
                               float *buf, size_t n, struct merak_error *err)
{
    const struct merak_slot *s = &t->program->slot[slot];
    size_t elem = merak_dtype_bytes(s->dtype);

    for (size_t i = 0; s->dtype == MERAK_BF16 && i < n; i++) {
        uint16_t half = merak_f32_to_bf16(buf[i]);

        memcpy((char *)buf + i * elem, &half, elem);
    }
    return merak_slot_write(t, t->program, slot, lo * elem, buf, n * elem, err);
}

static enum merak_status read_piece(const struct merak_weight_source *source,
                                    const struct merak_param_slots *p,
                                    const struct merak_ckpt_piece *piece,
                                    struct merak_error *err)
{
    return source->hf != NULL
               ? merak_hf_weights_read(source->hf, p->name, piece, err)
               : merak_ckpt_read(source->ckpt, piece, err);
}

/* A tensor from elsewhere into a slot: in place, or through buf[CHUNK]. */
static enum merak_status read_slot(struct merak_trainer *t,
                                   const struct merak_weight_source *source,
                                   const struct merak_param_slots *p, int slot,
                                   const char *kind, float *buf,
                                   struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    struct merak_ckpt_piece piece;
    size_t first, end;
    char name[512];

    snprintf(name, sizeof(name), "%s/%s", kind, p->name);
    piece_of_slot(t, p, slot, name, &piece);
    if (t->accel == NULL && t->program->slot[slot].dtype == MERAK_F32)
        return read_piece(source, p, &piece, err);
    first = piece.flat_lo;
    end = piece.flat_hi;
    piece.data = buf;
    for (size_t lo = first; lo < end && rc == MERAK_OK; lo += CHUNK) {
        piece.flat_lo = lo;
        piece.flat_hi = end - lo < CHUNK ? end : lo + CHUNK;
        rc = read_piece(source, p, &piece, err);
        if (rc == MERAK_OK)
            rc = store(t, slot, lo - first, buf, piece.flat_hi - lo, err);
    }
    return rc;
}

static enum merak_status clear_slot(struct merak_trainer *t, int slot,
                                    float *buf, struct merak_error *err)
{
    size_t n = t->program->slot[slot].bytes, most = CHUNK * sizeof(*buf);
    enum merak_status rc = MERAK_OK;

    memset(buf, 0, n < most ? n : most);
    for (size_t lo = 0; lo < n && rc == MERAK_OK; lo += most)
        rc = merak_slot_write(t, t->program, slot, lo, buf,
                              n - lo < most ? n - lo : most, err);
    return rc;
}

/* A parameter that was frozen has none there: they start at 0. */
static enum merak_status load_moments(struct merak_trainer *t,
                                      const struct merak_weight_source *source,
                                      const struct merak_param_slots *p,
                                      float *buf, struct merak_error *err)
{
    enum merak_status rc;
    char name[512];

    snprintf(name, sizeof(name), "adam_m/%s", p->name);
    if (merak_ckpt_has(source->ckpt, name)) {
        rc = read_slot(t, source, p, p->m, "adam_m", buf, err);
        return rc != MERAK_OK
                   ? rc
                   : read_slot(t, source, p, p->v, "adam_v", buf, err);
    }
    if (strstr(merak_ckpt_state(source->ckpt)->recipe, "--freeze ") == NULL)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "checkpoint %s has no tensor %s, and nothing was "
                          "frozen in its run",
                          merak_ckpt_path(source->ckpt), name);
    rc = clear_slot(t, p->m, buf, err);
    return rc != MERAK_OK ? rc : clear_slot(t, p->v, buf, err);
}

/* The weight, and the master copy where there is one. */
static enum merak_status load_weight(struct merak_trainer *t,
                                     const struct merak_weight_source *source,
                                     const struct merak_param_slots *p,
                                     float *buf, struct merak_error *err)
{
    enum merak_status rc = read_slot(t, source, p, p->param, "param", buf, err);

    if (rc == MERAK_OK && t->program->slot[p->param].dtype != MERAK_F32 &&
        !p->frozen)
        rc = read_slot(t, source, p, p->master, "param", buf, err);
    return rc;
}

static enum merak_status load_param(struct merak_trainer *t,
                                    const struct merak_weight_source *source,
                                    const struct merak_param_slots *p,
                                    float *buf, struct merak_error *err)
{
    enum merak_status rc = load_weight(t, source, p, buf, err);

    return rc != MERAK_OK || p->frozen ? rc
                                       : load_moments(t, source, p, buf, err);
}

enum merak_status merak_weights_take(struct merak_trainer *t,
                                     const struct merak_weight_source *source,
                                     struct merak_error *err)
{
    float *buf = malloc(CHUNK * sizeof(*buf));
    enum merak_status rc = MERAK_OK;

    if (buf == NULL)
        return merak_fail_nomem(err, CHUNK * sizeof(*buf));
    for (int i = 0; i < t->program->n_params && rc == MERAK_OK; i++) {
        rc = load_weight(t, source, &t->program->param[i], buf, err);
        clear_moments(t, &t->program->param[i]);
    }
    free(buf);
    return rc;
}

/* Only a run's own checkpoints know what was trained on, and with what. */
static enum merak_status check_run(const struct merak_trainer *t,
                                   const struct merak_ckpt *ckpt,
                                   struct merak_error *err)
{
    const struct merak_ckpt_state *state = merak_ckpt_state(ckpt);

    if (state->seed != t->opt.seed)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "checkpoint %s was made with --seed %llu, not "
                          "%llu: the data would repeat",
                          merak_ckpt_path(ckpt),
                          (unsigned long long)state->seed,
                          (unsigned long long)t->opt.seed);
    if (strcmp(state->data_id, merak_data_id(t->data)) != 0 &&
        !t->opt.data_changed)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "checkpoint %s was trained on other data than "
                          "--data; say --data-changed yes if that is meant",
                          merak_ckpt_path(ckpt));
    return MERAK_OK;
}

/* All of a checkpoint, or the weights that an import made one of. */
static enum merak_status load_params(struct merak_trainer *t,
                                     struct merak_ckpt *ckpt,
                                     struct merak_error *err)
{
    const struct merak_weight_source source = {.ckpt = ckpt};
    enum merak_status rc = MERAK_OK;
    float *buf;

    if (merak_ckpt_state(ckpt)->imported)
        return merak_weights_take(t, &source, err);
    buf = malloc(CHUNK * sizeof(*buf));
    if (buf == NULL)
        return merak_fail_nomem(err, CHUNK * sizeof(*buf));
    for (int i = 0; i < t->program->n_params && rc == MERAK_OK; i++)
        rc = load_param(t, &source, &t->program->param[i], buf, err);
    free(buf);
    return rc;
}

enum merak_status merak_weights_load(struct merak_trainer *t,
                                     struct merak_ckpt *ckpt,
                                     struct merak_error *err)
{
    const struct merak_ckpt_state *state = merak_ckpt_state(ckpt);
    enum merak_status rc = MERAK_OK;

    if (strcmp(state->model_id, t->model_id) != 0)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "checkpoint %s is of another model (%s, this one "
                          "is %s); give --ckpt another directory",
                          merak_ckpt_path(ckpt), state->model_id, t->model_id);
    if (!state->imported)
        rc = check_run(t, ckpt, err);
    if (rc == MERAK_OK)
        rc = load_params(t, ckpt, err);
    if (rc == MERAK_OK) {
        t->step = state->step;
        t->consumed = state->consumed_samples;
        t->tokens = state->consumed_tokens;
        memcpy(t->init_from, state->init_from, sizeof(t->init_from));
    }
    return rc;
}

/* --- saving -----------------------------------------------------------------
 */

static enum merak_status agree(void *arg, enum merak_status mine,
                               struct merak_error *err)
{
    struct merak_trainer *t = arg;

    return merak_agree(t->tr, &t->world, mine, err);
}

static void fill_state(const struct merak_trainer *t,
                       struct merak_ckpt_state *state)
{
    memset(state, 0, sizeof(*state));
    state->step = t->step;
    state->consumed_samples = t->consumed;
    state->consumed_tokens = t->tokens;
    state->seed = t->opt.seed;
    state->seq = t->opt.seq;
    state->global_batch = t->opt.global_batch;
    snprintf(state->model_id, sizeof(state->model_id), "%s", t->model_id);
    snprintf(state->data_id, sizeof(state->data_id), "%s",
             merak_data_id(t->data));
    snprintf(state->dtype, sizeof(state->dtype), "%s",
             merak_dtype_name(t->opt.dtype));
    memcpy(state->init_from, t->init_from, sizeof(state->init_from));
    merak_train_recipe(&t->opt, state->recipe);
    state->tp = t->plan.tp;
    state->pp = t->plan.pp;
    state->dp = t->plan.dp;
}

/* What a parameter gives to a checkpoint: the tensor's name in front of the
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
    float **own; /* of a frozen parameter that is no f32: its elements as f32;
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

/* A frozen parameter has but itself to give. */
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
        slot = p->param;
    if (slot < 0)
        return MERAK_OK;
    snprintf(out->name[out->n], sizeof(*out->name), "%s/%s", kind->name,
             p->name);
    out->slot[out->n] = slot;
    piece_of_slot(t, p, slot, out->name[out->n], piece);
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

/* The pieces this rank answers for: of its primary parameters. */
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

/* A slot of bf16 as f32: read into the second half, widened from the front. */
static enum merak_status fetch_wide(struct merak_trainer *t, int slot,
                                    float *out, struct merak_error *err)
{
    size_t n = slot_count(&t->program->slot[slot]);
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

/* Bring an accelerator's pieces to the host, where their data is, and others
 * to f32. */
static enum merak_status fetch(struct merak_trainer *t,
                               const struct merak_pieces *pieces,
                               struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < pieces->n && rc == MERAK_OK; i++) {
        if (pieces->own[i] != NULL)
            rc = fetch_wide(t, pieces->slot[i], pieces->own[i], err);
        else if (t->accel != NULL)
            rc = merak_slot_read(t, t->program, pieces->slot[i], 0,
                                 pieces->piece[i].data,
                                 t->program->slot[pieces->slot[i]].bytes, err);
    }
    return rc;
}

/* Where a piece's first element that is infinite or no number is, of its n;
 * n if there is none. */
static size_t find_non_finite(const float *data, size_t n)
{
    size_t block = 4096;

    for (size_t lo = 0; lo < n; lo += block) {
        size_t hi = n - lo < block ? n : lo + block;
        float zero = 0; /* times 0, what is not finite is no number */

        for (size_t i = lo; i < hi; i++)
            zero += data[i] * 0.0f;
        for (size_t i = lo; zero != 0 && i < hi; i++) {
            if (!isfinite(data[i]))
                return i;
        }
    }
    return n;
}

/* A checkpoint of a run that diverged would push out those before. */
static enum merak_status check_finite(const struct merak_trainer *t,
                                      const struct merak_pieces *pieces,
                                      struct merak_error *err)
{
    for (int i = 0; !t->backend->emulated && i < pieces->n; i++) {
        const struct merak_ckpt_piece *piece = &pieces->piece[i];
        size_t n = piece->flat_hi - piece->flat_lo;
        size_t at = find_non_finite(piece->data, n);

        if (at < n)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "step %llu: %s has an element that is %g: not "
                              "finite; the step was not saved",
                              (unsigned long long)t->step, piece->name,
                              (double)piece->data[at]);
    }
    return MERAK_OK;
}

static struct merak_ckpt_comm comm_of(struct merak_trainer *t)
{
    return (struct merak_ckpt_comm){t->program->rank, t->program->ranks, t,
                                    agree};
}

static bool run_saves_while_training(const struct merak_trainer *t)
{
    return t->opt.ckpt_async != MERAK_CKPT_ASYNC_NO && t->opt.ckpt_every > 0 &&
           t->opt.ckpt_every < t->opt.steps;
}

/* The arena's pages are not there yet, and neither are the copy's.  All ranks
 * have one, or none. */
static enum merak_status open_async(struct merak_trainer *t,
                                    struct merak_error *err)
{
    size_t bytes = merak_saving_bytes(t);
    size_t have = merak_memory_available(t->boot);
    double lack = t->arena_bytes > have || bytes > have - t->arena_bytes;
    enum merak_status rc = merak_sum(t->tr, &t->world, &lack, 1, err);

    if (rc == MERAK_OK && lack == 0)
        rc = merak_ckpt_async_create(t->pieces->piece, t->pieces->n, &t->async,
                                     err);
    else if (rc == MERAK_OK && t->opt.ckpt_async == MERAK_CKPT_ASYNC_YES)
        rc =
            merak_fail(err, MERAK_ERR_NOMEM,
                       "--ckpt-async yes: a task needs %.3f GiB for the plan "
                       "and %.3f GiB for the copy, and not all have that; "
                       "leave the option out, or use more tasks",
                       (double)t->arena_bytes / 0x1p30, (double)bytes / 0x1p30);
    else if (rc == MERAK_OK)
        merak_info("train", "no memory for a copy of what is saved: steps wait "
                            "for checkpoints");
    if (t->async == NULL)
        return rc;
    t->copy_bytes = bytes;
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
    t->pieces = calloc(1, sizeof(*t->pieces));
    if (t->pieces == NULL)
        rc = merak_fail_nomem(err, sizeof(*t->pieces));
    else
        rc = collect(t, weight_kinds, N_KINDS(weight_kinds), t->pieces, err);
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc == MERAK_OK && run_saves_while_training(t)) {
        rc = open_async(t, err);
        rc = merak_agree(t->tr, &t->world, rc, err);
    }
    return rc;
}

void merak_saving_close(struct merak_trainer *t)
{
    merak_ckpt_async_destroy(t->async);
    t->async = NULL;
    if (t->pieces != NULL)
        free_pieces(t->pieces);
    free(t->pieces);
    t->pieces = NULL;
}

size_t merak_saving_bytes(const struct merak_trainer *t)
{
    size_t bytes = 0;

    for (int i = 0; i < t->pieces->n; i++)
        bytes += (t->pieces->piece[i].flat_hi - t->pieces->piece[i].flat_lo) *
                 sizeof(float);
    return bytes;
}

bool merak_saving_is_busy(const struct merak_trainer *t)
{
    return t->async != NULL && merak_ckpt_async_is_busy(t->async);
}

enum merak_status merak_saving_advance(struct merak_trainer *t,
                                       struct merak_error *err)
{
    if (t->async == NULL || !merak_ckpt_async_is_active(t->async))
        return MERAK_OK;
    return merak_ckpt_async_advance(t->async, err);
}

enum merak_status merak_saving_settle(struct merak_trainer *t,
                                      struct merak_error *err)
{
    return t->async == NULL ? MERAK_OK : merak_ckpt_async_wait(t->async, err);
}

enum merak_status merak_weights_save(struct merak_trainer *t, bool last,
                                     struct merak_error *err)
{
    const struct merak_ckpt_keep keep = {.newest = t->opt.keep,
                                         .every = t->opt.ckpt_keep_every};
    struct merak_ckpt_comm comm = comm_of(t);
    struct merak_ckpt_state state;
    enum merak_status rc = merak_saving_settle(t, err);

    if (rc != MERAK_OK)
        return rc;
    rc = fetch(t, t->pieces, err);
    if (rc == MERAK_OK)
        rc = check_finite(t, t->pieces, err);
    if (rc == MERAK_OK && t->owner != NULL)
        rc = merak_ckpt_owner_check(t->owner, err);
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc != MERAK_OK)
        return rc;
    fill_state(t, &state);
    if (t->async != NULL && !last)
        return merak_ckpt_async_start(t->async, t->run_dir, &state, keep, &comm,
                                      err);
    return merak_ckpt_save(t->run_dir, &state, t->pieces->piece, t->pieces->n,
                           keep, &comm, err);
}

/* Point a piece to memory of its own, scaled. */
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
    struct merak_ckpt_comm comm = comm_of(t);
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
        fill_state(t, &state);
        rc = merak_ckpt_save(t->opt.dump_grads, &state, pieces.piece, pieces.n,
                             keep_all, &comm, err);
    }
    for (int i = 0; i < copied; i++)
        free(pieces.piece[i].data);
    free_pieces(&pieces);
    return rc;
}
