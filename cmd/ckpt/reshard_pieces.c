/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_pieces.c - what each rank of a training run would save
 *
 * The layout is found as in training: the model is described, sharded and cut
 * into stages, and a rank's program has the parts that its slots hold.
 */
#include "config.h"

#include "cmd/ckpt/reshard_pieces.h"

#include "base/error.h"
#include "base/log.h"
#include "io/ckpt/ckpt_impl.h"
#include "io/lora_record.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/plan/choice.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* A tensor of a parameter, and the slot of this rank's part of it. */
static const struct kind {
    const char *name;
    size_t slot; /* offset in merak_param_slots */
} kinds[] = {
    {"param", offsetof(struct merak_param_slots, master)},
    {"adam_m", offsetof(struct merak_param_slots, m)},
    {"adam_v", offsetof(struct merak_param_slots, v)},
};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static enum merak_status make_plan(const struct reshard_layout *layout,
                                   const struct merak_ckpt_state *state,
                                   struct merak_plan *plan,
                                   struct merak_error *err)
{
    struct merak_choices choices = {.tp = layout->tp,
                                    .pp = layout->pp,
                                    .dp = layout->dp,
                                    .zero = layout->zero};

    choices.given[MERAK_CHOICE_TP] = choices.given[MERAK_CHOICE_PP] =
        choices.given[MERAK_CHOICE_DP] = choices.given[MERAK_CHOICE_ZERO] =
            true;
    memset(plan, 0, sizeof(*plan));
    merak_choices_take(&choices, plan);
    plan->dtype = strcmp(state->dtype, merak_dtype_name(MERAK_BF16)) == 0
                      ? MERAK_BF16
                      : MERAK_F32;
    plan->threads = 1;
    return merak_plan_split_batch(
        plan, (size_t)layout->dp * (size_t)layout->pp * plan->micro_batch, err);
}

struct building {
    struct reshard_pieces *out;
    const struct merak_ckpt *from;
    const struct merak_ckpt_manifest *mf;
    const struct merak_planned *planned;
    bool *used;  /* by tensor of mf */
    size_t room; /* of out->piece */
};

static enum merak_status add_piece(struct building *b,
                                   const struct merak_param_slots *p,
                                   const struct kind *kind,
                                   const struct merak_slot *slots,
                                   struct merak_error *err)
{
    struct reshard_pieces *out = b->out;
    char name[MERAK_CKPT_MAX_TENSOR + 16];
    const struct merak_ckpt_tensor *t;
    struct merak_ckpt_piece *piece;
    bool weight = kind == &kinds[0];
    int slot;

    memcpy(&slot, (const char *)p + kind->slot, sizeof(slot));
    if (slot < 0 && weight)
        slot = p->home;
    snprintf(name, sizeof(name), "%s/%s", kind->name, p->name);
    t = merak_ckpt_tensor_find(b->mf, name);
    if (t == NULL && weight)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "%s has no tensor %s, which the model has",
                          merak_ckpt_path(b->from), name);
    if (t == NULL || slot < 0) /* imported, or frozen */
        return MERAK_OK;
    b->used[t - b->mf->tensor] = true;
    piece = &out->piece[out->n++];
    *piece = (struct merak_ckpt_piece){.name = t->name,
                                       .shape = p->shape,
                                       .box = slots[slot].box,
                                       .flat_lo = slots[slot].flat_lo,
                                       .flat_hi = slots[slot].flat_hi};
    if (merak_ckpt_piece_bytes(piece) > out->most_bytes)
        out->most_bytes = merak_ckpt_piece_bytes(piece);
    out->bytes += merak_ckpt_piece_bytes(piece);
    return MERAK_OK;
}

static enum merak_status make_room(struct building *b, size_t more,
                                   struct merak_error *err)
{
    size_t need = (size_t)b->out->n + more;
    struct merak_ckpt_piece *piece;

    if (need <= b->room)
        return MERAK_OK;
    need += need / 2;
    piece = realloc(b->out->piece, need * sizeof(*piece));
    if (piece == NULL)
        return merak_fail_nomem(err, need * sizeof(*piece));
    b->out->piece = piece;
    b->room = need;
    return MERAK_OK;
}

static enum merak_status add_rank(struct building *b, int rank,
                                  struct merak_error *err)
{
    const struct merak_planned *planned = b->planned;
    struct merak_program *program = NULL;
    enum merak_status rc;

    rc = merak_program_build(planned->sharded, planned->stages, &planned->plan,
                             rank, NULL, &program, err);
    if (rc == MERAK_OK)
        rc = make_room(b, (size_t)program->n_params * N_KINDS, err);
    for (int i = 0; rc == MERAK_OK && i < program->n_params; i++) {
        const struct merak_param_slots *p = &program->param[i];

        for (int k = 0; p->primary && k < N_KINDS && rc == MERAK_OK; k++)
            rc = add_piece(b, p, &kinds[k], program->slot, err);
    }
    b->out->first[rank + 1] = b->out->n;
    merak_program_destroy(program);
    return rc;
}

static enum merak_status add_ranks(struct building *b, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int r = 0; r < b->out->n_ranks && rc == MERAK_OK; r++)
        rc = add_rank(b, r, err);
    for (int i = 0; i < b->mf->n_tensors && rc == MERAK_OK; i++) {
        if (!b->used[i])
            rc = merak_fail(err, MERAK_ERR_MISMATCH,
                            "%s has tensor %s, which the model does not have",
                            merak_ckpt_path(b->from), b->mf->tensor[i].name);
    }
    return rc;
}

static enum merak_status check_model(const struct merak_ckpt *from,
                                     const struct merak_planned *planned,
                                     const char *model, struct merak_error *err)
{
    const struct merak_ckpt_state *state = merak_ckpt_state(from);
    char id[MERAK_FINGERPRINT_TEXT];

    merak_graph_fingerprint(planned->graph, id);
    if (strcmp(id, state->model_id) == 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "%.100s is of another model (%s) than %.80s (%s)",
                      merak_ckpt_path(from), state->model_id, model, id);
}

static size_t sequence(const struct merak_ckpt_state *state,
                       const struct merak_hf_config *config)
{
    if (state->seq > 0)
        return (size_t)state->seq;
    return merak_default_seq(config->positions);
}

enum merak_status reshard_pieces_init(struct reshard_pieces *pieces,
                                      const struct merak_ckpt *from,
                                      const struct reshard_layout *layout,
                                      struct merak_error *err)
{
    const struct merak_ckpt_state *state = merak_ckpt_state(from);
    struct building b = {
        .out = pieces, .from = from, .mf = merak_ckpt_manifest(from)};
    struct merak_planned *planned = NULL;
    struct merak_hf_config config;
    struct merak_lora_record record;
    struct merak_lora_model model = {&config, &record.lora};
    struct merak_plan plan;
    enum merak_status rc;

    (void)merak_lora_parse(state->recipe, &record);

    *pieces = (struct reshard_pieces){.n_ranks =
                                          layout->tp * layout->pp * layout->dp};
    pieces->first = calloc((size_t)pieces->n_ranks + 1, sizeof(*pieces->first));
    b.used = calloc((size_t)b.mf->n_tensors + 1, sizeof(*b.used));
    rc = pieces->first == NULL || b.used == NULL
             ? merak_fail_nomem(err, (size_t)pieces->n_ranks)
             : merak_error_as_config(merak_hf_config_read(layout->model,
                                                          layout->unknown,
                                                          &config, err),
                                     err);
    if (rc == MERAK_OK && config.note[0] != '\0')
        merak_info("io", "%s", config.note);
    if (rc == MERAK_OK)
        rc = make_plan(layout, state, &plan, err);
    if (rc == MERAK_OK)
        rc = merak_plan_build(&plan, sequence(state, &config),
                              merak_lora_describe, &model, MERAK_PLAN_NONE,
                              NULL, &planned, err);
    if (rc == MERAK_OK)
        rc = check_model(from, planned, layout->model, err);
    b.planned = planned;
    if (rc == MERAK_OK)
        rc = add_ranks(&b, err);
    merak_planned_destroy(planned);
    free(b.used);
    if (rc != MERAK_OK)
        reshard_pieces_fini(pieces);
    return rc;
}

void reshard_pieces_fini(struct reshard_pieces *pieces)
{
    free(pieces->piece);
    free(pieces->first);
    *pieces = (struct reshard_pieces){.n = 0};
}
