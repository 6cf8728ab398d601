/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - initial values, and weights from checkpoints and elsewhere
 *
 * A parameter's element is a function of (seed, name, global element index),
 * so its initial value does not depend on the layout.
 */
#include "config.h"

#include "runtime/train/fingerprint.h"
#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/half.h"
#include "base/rng.h"
#include "io/lora_record.h"
#include "io/weights/hf_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)1 << 20)

static size_t slot_count(const struct merak_slot *s)
{
    return s->flat_hi - s->flat_lo;
}

uint64_t merak_box_global(const struct merak_box *box, size_t i)
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
    case MERAK_INIT_UNIFORM:
        return init->std * (2 * merak_rng_uniform(key, index) - 1);
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
            &p->init, key, merak_box_global(&s->box, s->flat_lo + lo + i), row);

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

    if (t->compute.accel == NULL) {
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

/* On a device moments are zero since the arena was cleared. */
static void clear_moments(struct merak_trainer *t,
                          const struct merak_param_slots *p)
{
    const struct merak_slot *slot = t->program->slot;

    if (t->compute.accel != NULL || p->frozen)
        return;
    memset(merak_slot_host(t, t->program, p->m), 0, slot[p->m].bytes);
    memset(merak_slot_host(t, t->program, p->v), 0, slot[p->v].bytes);
}

static enum merak_status fill_param(struct merak_trainer *t,
                                    const struct merak_param_slots *p,
                                    float *buf, struct merak_error *err)
{
    enum merak_status rc = fill_slot(t, p->home, p, buf, err);

    if (rc == MERAK_OK && t->program->slot[p->home].dtype != MERAK_F32 &&
        !p->frozen)
        rc = fill_slot(t, p->master, p, buf, err);
    clear_moments(t, p);
    return rc;
}

enum merak_status merak_weights_init(struct merak_trainer *t,
                                     struct merak_error *err)
{
    float *buf = malloc(CHUNK * sizeof(*buf));
    enum merak_status rc = MERAK_OK;

    if (buf == NULL)
        return merak_fail_nomem(err, CHUNK * sizeof(*buf));
    for (int i = 0; i < t->program->n_params && rc == MERAK_OK; i++)
        rc = fill_param(t, &t->program->param[i], buf, err);
    free(buf);
    return rc;
}

/* --- pieces ----------------------------------------------------------------
 */

void merak_piece_of_slot(const struct merak_trainer *t,
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

/* Store n f32 elements in a slot from element lo on, in the slot's dtype;
 * overwrites buf. */
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

static bool is_adapter(const struct merak_trainer *t,
                       const struct merak_param_slots *p)
{
    return t->sharded->graph->value[p->value]->adapter;
}

enum merak_status merak_weights_read(const struct merak_weight_source *source,
                                     const char *param, bool adapter,
                                     const struct merak_ckpt_piece *piece,
                                     struct merak_error *err)
{
    return source->lora_from != NULL && adapter
               ? merak_lora_from_read(source->lora_from, param, piece, err)
           : source->hf != NULL
               ? merak_hf_weights_read(source->hf, param, piece, err)
               : merak_ckpt_read(source->ckpt, piece, err);
}

static enum merak_status read_piece(const struct merak_trainer *t,
                                    const struct merak_weight_source *source,
                                    const struct merak_param_slots *p,
                                    const struct merak_ckpt_piece *piece,
                                    struct merak_error *err)
{
    enum merak_status rc =
        merak_weights_read(source, p->name, is_adapter(t, p), piece, err);

    if (rc == MERAK_OK && source->not_finite_p != NULL &&
        *source->not_finite_p == NULL &&
        !merak_all_finite(piece->data, piece->flat_hi - piece->flat_lo))
        *source->not_finite_p = p->name;
    return rc;
}

/* Read a tensor of the source into a slot: in place, or through buf[CHUNK]. */
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
    merak_piece_of_slot(t, p, slot, name, &piece);
    if (t->compute.accel == NULL && t->program->slot[slot].dtype == MERAK_F32)
        return read_piece(t, source, p, &piece, err);
    first = piece.flat_lo;
    end = piece.flat_hi;
    piece.data = buf;
    for (size_t lo = first; lo < end && rc == MERAK_OK; lo += CHUNK) {
        piece.flat_lo = lo;
        piece.flat_hi = end - lo < CHUNK ? end : lo + CHUNK;
        rc = read_piece(t, source, p, &piece, err);
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

/* Moments of a parameter that was frozen are not saved: they start at 0. */
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

/* The weight and, if there is one, the master copy. */
static enum merak_status load_weight(struct merak_trainer *t,
                                     const struct merak_weight_source *source,
                                     const struct merak_param_slots *p,
                                     float *buf, struct merak_error *err)
{
    enum merak_status rc = read_slot(t, source, p, p->home, "param", buf, err);

    if (rc == MERAK_OK && t->program->slot[p->home].dtype != MERAK_F32 &&
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

/* Adapters begin from the seed where the source has none. */
static bool is_new(const struct merak_trainer *t,
                   const struct merak_weight_source *source,
                   const struct merak_param_slots *p)
{
    return source->no_adapters && source->lora_from == NULL && is_adapter(t, p);
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
        const struct merak_param_slots *p = &t->program->param[i];

        if (is_new(t, source, p)) {
            rc = fill_param(t, p, buf, err);
            continue;
        }
        rc = load_weight(t, source, p, buf, err);
        clear_moments(t, p);
    }
    free(buf);
    return rc;
}

/* Adapters are part of the model, and what they compute depends on more than
 * their shapes. */
static enum merak_status check_lora(const struct merak_trainer *t,
                                    const struct merak_ckpt *ckpt,
                                    struct merak_error *err)
{
    char then[MERAK_CKPT_RECIPE_BYTES], now[sizeof(then)];
    struct merak_lora_record record;

    (void)merak_lora_parse(merak_ckpt_state(ckpt)->recipe, &record);
    merak_lora_print(&record.lora, then, sizeof(then));
    merak_lora_print(&t->opt.lora, now, sizeof(now));
    if (strcmp(then, now) == 0)
        return MERAK_OK;
    if (then[0] == '\0')
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "checkpoint %.100s has no adapters, and --lora-rank "
                          "asks for them: give it as --init-from, and --ckpt "
                          "another directory",
                          merak_ckpt_path(ckpt));
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "checkpoint %.60s was trained with%.110s, and this run "
                      "has%.110s: give the same, or --ckpt another directory",
                      merak_ckpt_path(ckpt), then,
                      now[0] != '\0' ? now : " no adapters");
}

#define CUT_OTHERWISE                                                      \
    ": samples would repeat or be lost, and held-out ones be trained on; " \
    "give "                                                                \
    "--data-changed yes if that is intended"

static enum merak_status refuse(const struct merak_ckpt *ckpt,
                                const struct merak_difference *d,
                                struct merak_error *err)
{
    const char *path = merak_ckpt_path(ckpt);

    if (d->kind == MERAK_DIFFERENCE_MODEL)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "checkpoint %.60s is of a model with %s %.40s, this "
                          "run has %.40s: give the same config and options, "
                          "or --model-changed yes if that is intended",
                          path, d->key, d->then, d->now);
    if (strcmp(d->key, "data") == 0)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "checkpoint %.60s was trained on other data (%.60s) "
                          "than --data (%.60s); give --data-changed yes if "
                          "that is intended",
                          path, d->then, d->now);
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "checkpoint %.60s was trained with %s %.20s, not "
                      "%.20s" CUT_OTHERWISE,
                      path, d->key, d->then, d->now);
}

static enum merak_status check_fingerprint(const struct merak_trainer *t,
                                           const struct merak_ckpt *ckpt,
                                           struct merak_error *err)
{
    const struct merak_ckpt_state *state = merak_ckpt_state(ckpt);
    struct merak_difference d;

    for (int i = 0; merak_fingerprint_difference(state->fingerprint,
                                                 t->lineage.fingerprint, i, &d);
         i++) {
        if (state->seq != t->opt.seq && merak_number_follows_seq(d.key))
            continue;
        if ((d.kind == MERAK_DIFFERENCE_DATA && !t->opt.data.changed) ||
            (d.kind == MERAK_DIFFERENCE_MODEL && !t->opt.ckpt.model_changed))
            return refuse(ckpt, &d, err);
    }
    return MERAK_OK;
}

/* Only checkpoints of a run record its data and settings. */
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
    if (state->seq != 0 && state->seq != t->opt.seq && !t->opt.data.changed)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "checkpoint %.80s was trained with --seq %llu, not "
                          "%zu" CUT_OTHERWISE,
                          merak_ckpt_path(ckpt), (unsigned long long)state->seq,
                          t->opt.seq);
    /* Checkpoints of earlier versions know the data by their files' names. */
    if (strncmp(state->fingerprint, "data=", 5) != 0 &&
        strcmp(state->data_id, merak_samples_id(t->load.samples)) != 0 &&
        !t->opt.data.changed)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "checkpoint %s was trained on other data than "
                          "--data; give --data-changed yes if that is intended",
                          merak_ckpt_path(ckpt));
    return MERAK_OK;
}

/* Load all of a checkpoint, or only weights if it is an import. */
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
    enum merak_status rc = check_lora(t, ckpt, err);

    if (rc != MERAK_OK)
        return rc;
    if (strcmp(state->model_id, t->lineage.model_id) != 0)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "checkpoint %s is of another model (%s, this one "
                          "is %s); give --ckpt another directory",
                          merak_ckpt_path(ckpt), state->model_id,
                          t->lineage.model_id);
    if (!state->imported)
        rc = check_run(t, ckpt, err);
    if (rc == MERAK_OK)
        rc = check_fingerprint(t, ckpt, err);
    if (rc == MERAK_OK)
        rc = load_params(t, ckpt, err);
    if (rc == MERAK_OK) {
        t->step = state->step;
        t->consumed = state->consumed_samples;
        t->tokens = state->consumed_tokens;
        t->lineage.resumed = true;
        strcpy(t->lineage.branch, state->branch);
        memcpy(t->lineage.init_from, state->init_from,
               sizeof(t->lineage.init_from));
    }
    return rc;
}
