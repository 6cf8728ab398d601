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
#include "base/log.h"
#include "io/ckpt/durable.h"
#include "io/weights/hf_weights.h"
#include "io/weights/transfer_impl.h"

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
    size_t n = strlen(t->opt.init_from);
    enum merak_status rc = MERAK_OK;

    memset(origin, 0, sizeof(*origin));
    if (n >= MERAK_DIR_MAX)
        rc = merak_fail(err, MERAK_ERR_CONFIG, "--init-from: path too long");
    else
        memcpy(origin->path, t->opt.init_from, n);
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

/* Check that it has all parameters of the whole model and no others, though
 * this rank holds only a part. */
static enum merak_status open_source(struct merak_trainer *t,
                                     const struct origin *origin,
                                     const struct merak_named *param, int n,
                                     struct merak_weight_source *source,
                                     struct merak_error *err)
{
    enum merak_status rc;

    if (!origin->folder) {
        rc = merak_ckpt_open(origin->path, &source->ckpt, err);
        return rc == MERAK_OK
                   ? merak_ckpt_has_params(source->ckpt, param, n, err)
                   : rc;
    }
    rc = merak_hf_weights_open(origin->path, param, n, &source->hf, err);
    if (rc == MERAK_OK && t->program->rank == 0)
        rc = merak_hf_weights_check_tied(source->hf, err);
    return rc;
}

static enum merak_status take(struct merak_trainer *t,
                              const struct origin *origin,
                              struct merak_error *err)
{
    struct merak_weight_source source = {.ckpt = NULL};
    struct merak_named *param = NULL;
    struct merak_graph *graph = NULL;
    enum merak_status rc;
    int n = 0;

    rc = merak_model_graph(t->model, &graph, err);
    if (rc == MERAK_OK)
        rc = merak_named_params(graph, &param, &n, err);
    if (rc == MERAK_OK)
        rc = open_source(t, origin, param, n, &source, err);
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc == MERAK_OK) {
        rc = merak_weights_take(t, &source, err);
        rc = merak_agree(t->tr, &t->world, rc, err);
    }
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
        snprintf(t->init_from, sizeof(t->init_from), "%.*s",
                 (int)sizeof(t->init_from) - 1, origin->path);
        merak_info("train", "weights are those of %s", origin->path);
    }
    free(origin);
    return rc;
}
