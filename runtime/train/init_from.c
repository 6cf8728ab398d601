/* SPDX-License-Identifier: Apache-2.0 */
/* init_from.c - the first weights of a run: those of a Hugging Face folder or
 * of another run
 *
 * Rank 0 chooses the checkpoint of a run; then every rank reads the parts that
 * its slots hold, whatever layout the checkpoint was written in.
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/hub.h"
#include "base/log.h"
#include "io/ckpt/durable.h"
#include "io/lora_record.h"
#include "io/tokens/reference.h"
#include "io/weights/hf_weights.h"
#include "io/weights/transfer_impl.h"
#include "io/weights/weights_id.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

struct origin {
    char path[PATH_MAX];
    bool folder; /* of Hugging Face; else a checkpoint */
};

static enum merak_status find_ckpt(struct origin *origin,
                                   struct merak_error *err)
{
    struct merak_ckpt *ckpt = NULL;
    enum merak_status rc = merak_ckpt_open(origin->path, &ckpt, err);

    if (rc == MERAK_OK)
        snprintf(origin->path, sizeof(origin->path), "%s",
                 merak_ckpt_path(ckpt));
    else if (rc == MERAK_ERR_NOT_FOUND)
        rc = merak_fail(
            err, rc,
            "--init-from %.100s holds neither " MERAK_SAFETENSORS_FILE
            " or " MERAK_SAFETENSORS_INDEX " nor a checkpoint of a run",
            origin->path);
    merak_ckpt_close(ckpt);
    return rc;
}

/* Find on rank 0 what --init-from names. */
static enum merak_status find_origin(struct merak_trainer *t,
                                     struct origin *origin,
                                     struct merak_error *err)
{
    char room[PATH_MAX];
    const char *from = merak_hub_path(t->opt.ckpt.init_from, room);
    size_t n = strlen(from);
    enum merak_status rc = MERAK_OK;

    memset(origin, 0, sizeof(*origin));
    if (n >= MERAK_DIR_MAX)
        rc = merak_fail(err, MERAK_ERR_CONFIG, "--init-from: path too long");
    else
        memcpy(origin->path, from, n);
    while (n > 1 && origin->path[n - 1] == '/')
        origin->path[--n] = '\0';
    if (rc == MERAK_OK && t->program->rank == 0) {
        origin->folder = merak_safetensors_is_one(origin->path);
        if (!origin->folder)
            rc = find_ckpt(origin, err);
    }
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc != MERAK_OK)
        return rc;
    return merak_broadcast(t->tr, &t->world, origin, sizeof(*origin), 0, err);
}

/* Are there adapters to go on from?  They must be those of this run. */
static enum merak_status find_adapters(const struct merak_trainer *t,
                                       struct merak_weight_source *source,
                                       struct merak_error *err)
{
    const char *recipe =
        source->ckpt != NULL ? merak_ckpt_state(source->ckpt)->recipe : "";
    char theirs[MERAK_CKPT_RECIPE_BYTES], ours[sizeof(theirs)];
    struct merak_lora_record record;

    source->no_adapters = !merak_lora_parse(recipe, &record);
    if (source->no_adapters)
        return MERAK_OK;
    if (source->lora_from != NULL)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "%.80s has adapters of its own, and --lora-from "
                          "others: leave one of them out",
                          merak_ckpt_path(source->ckpt));
    merak_lora_print(&record.lora, theirs, sizeof(theirs));
    merak_lora_print(&t->opt.lora, ours, sizeof(ours));
    return strcmp(theirs, ours) == 0
               ? MERAK_OK
               : merak_fail(err, MERAK_ERR_MISMATCH,
                            "%.60s has adapters of%.110s: give the same "
                            "options",
                            merak_ckpt_path(source->ckpt), theirs);
}

/* Check that it has all parameters of the whole model and no others, though
 * this rank holds only a part. */
static enum merak_status open_source(struct merak_trainer *t,
                                     const struct origin *origin,
                                     struct merak_weight_source *source,
                                     struct merak_named **param_p,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    struct merak_graph *graph = NULL;
    int n = 0;

    if (!origin->folder)
        rc = merak_ckpt_open(origin->path, &source->ckpt, err);
    if (rc == MERAK_OK)
        rc = find_adapters(t, source, err);
    if (rc == MERAK_OK)
        rc = merak_model_graph(t->model, &graph, err);
    if (rc == MERAK_OK && source->lora_from != NULL)
        rc = merak_lora_from_check(t, graph, err);
    if (rc == MERAK_OK)
        rc = merak_named_params(graph, !source->no_adapters, param_p, &n, err);
    if (rc != MERAK_OK)
        return rc;
    if (!origin->folder)
        return merak_ckpt_has_params(source->ckpt, *param_p, n, err);
    rc = merak_hf_weights_open(origin->path, *param_p, n, &source->hf, err);
    if (rc == MERAK_OK && t->program->rank == 0)
        rc = merak_hf_weights_check_tied(source->hf, err);
    return rc;
}

/* --- the reference of pairs ------------------------------------------------
 */

static enum merak_status read_param(void *arg, const struct merak_value *v,
                                    const struct merak_ckpt_piece *piece,
                                    struct merak_error *err)
{
    return merak_weights_read(arg, v->name, v->adapter, piece, err);
}

/* The losses beside pairs are of the model that training starts from, or of
 * the one below its adapters. */
static enum merak_status check_reference(const struct merak_trainer *t,
                                         struct merak_weight_source *source,
                                         struct merak_error *err)
{
    bool adapters = !source->no_adapters || source->lora_from != NULL;
    const struct merak_reference *r;
    struct merak_graph *graph = NULL;
    struct merak_weights_id id;
    enum merak_status rc = MERAK_OK;

    if (merak_data_reference(t->data, 0) != NULL)
        rc = merak_model_graph(t->model, &graph, err);
    if (rc != MERAK_OK || graph == NULL)
        return rc;
    rc = merak_weights_identify(graph, adapters, read_param, source, &id, err);
    for (size_t i = 0;
         rc == MERAK_OK && (r = merak_data_reference(t->data, i)) != NULL;
         i++) {
        const struct merak_reference_model *m = merak_reference_model(r);

        if (m == NULL)
            merak_info("train",
                       "%s does not say of which model it is, an earlier "
                       "version wrote it",
                       merak_reference_path(r));
        else if (m->weights != id.whole && m->weights != id.base &&
                 !t->opt.ckpt.model_changed)
            rc = merak_fail(
                err, MERAK_ERR_MISMATCH,
                "%.100s has the weights %016" PRIx64 ", and %.100s was made "
                "with others, %016" PRIx64 " of %.100s: make it again with "
                "`merak eval --ckpt %.100s --reference`, or give "
                "--model-changed yes if that is intended",
                t->opt.ckpt.init_from, id.whole, merak_reference_path(r),
                m->weights, m->from, t->opt.ckpt.init_from);
    }
    return rc;
}

/* Rank 0 warns of what any rank has found, as an import does. */
static enum merak_status warn_not_finite(struct merak_trainer *t,
                                         const struct origin *origin,
                                         const char *name)
{
    struct merak_error found = {.text = ""};
    enum merak_status rc = MERAK_OK;

    if (name != NULL)
        rc = merak_fail(&found, MERAK_ERR_MISMATCH,
                        "%.80s of %.100s has numbers that are NaN or infinite; "
                        "a model computes nothing from those",
                        name, origin->path);
    rc = merak_agree(t->tr, &t->world, rc, &found);
    if (rc == MERAK_ERR_MISMATCH && t->program->rank == 0)
        merak_warn("train", "--init-from: %s", found.text);
    return rc == MERAK_ERR_MISMATCH ? MERAK_OK : rc;
}

static enum merak_status take(struct merak_trainer *t,
                              const struct origin *origin,
                              struct merak_error *err)
{
    const char *not_finite = NULL;
    struct merak_weight_source source = {.lora_from = t->source.lora_from,
                                         .not_finite_p = &not_finite};
    struct merak_named *param = NULL;
    enum merak_status rc = open_source(t, origin, &source, &param, err);

    if (rc == MERAK_OK && t->program->rank == 0)
        rc = check_reference(t, &source, err);
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc == MERAK_OK) {
        rc = merak_weights_take(t, &source, err);
        rc = merak_agree(t->tr, &t->world, rc, err);
    }
    if (rc == MERAK_OK)
        rc = warn_not_finite(t, origin, not_finite);
    merak_hf_weights_close(source.hf);
    merak_ckpt_close(source.ckpt);
    free(param);
    return rc;
}

enum merak_status merak_weights_init_from(struct merak_trainer *t,
                                          struct merak_error *err)
{
    struct origin *origin = malloc(sizeof(*origin));
    enum merak_status rc;

    if (origin == NULL)
        return merak_fail_nomem(err, sizeof(*origin));
    rc = find_origin(t, origin, err);
    if (rc == MERAK_OK) {
        rc = take(t, origin, err);
        if (rc != MERAK_OK)
            merak_error_wrap(err, "--init-from");
    }
    if (rc == MERAK_OK) {
        snprintf(t->lineage.init_from, sizeof(t->lineage.init_from), "%.*s",
                 (int)sizeof(t->lineage.init_from) - 1, origin->path);
        merak_info("train", "weights are those of %s", origin->path);
    }
    free(origin);
    return rc;
}
