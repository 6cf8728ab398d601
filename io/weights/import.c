/* SPDX-License-Identifier: Apache-2.0 */
/* import.c - a Hugging Face folder's weights to a run's first checkpoint */
#include "config.h"

#include "io/weights/transfer.h"

#include "base/error.h"
#include "base/half.h"
#include "io/ckpt/ckpt_impl.h"
#include "io/ckpt/owner.h"
#include "io/weights/peft.h"
#include "io/weights/peft_config.h"
#include "io/weights/run_model.h"
#include "io/weights/transfer_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The most bytes of a shard file, except for a single tensor. */
#define SHARD_BYTES ((uint64_t)4 << 30)

struct importing {
    const struct merak_import *import;
    char base[PATH_MAX]; /* with the weights: import->dir, or beside adapters */
    struct merak_hf_config config;
    struct merak_hf_params params;
    struct merak_hf_weights *weights;
    struct merak_peft *peft;        /* NULL: no adapters */
    struct merak_ckpt_piece *piece; /* [params.n_whole], with data `buf` */
    char (*name)[512];              /* of the pieces */
    int *first;                     /* of a shard; [n_shards + 1] */
    int n_shards;
    float *buf;
    uint64_t done, all;
    int not_finite;       /* parameters with such numbers .. */
    int first_not_finite; /* .. and the first of them */
};

/* --- pieces and shards -----------------------------------------------------
 */

static uint64_t bytes_of(const struct importing *im, int i)
{
    return (uint64_t)merak_ckpt_piece_bytes(&im->piece[i]);
}

static enum merak_status make_pieces(struct importing *im,
                                     struct merak_error *err)
{
    size_t n = (size_t)im->params.n_whole, most = 1;

    im->piece = calloc(n + 1, sizeof(*im->piece));
    im->name = calloc(n + 1, sizeof(*im->name));
    im->first = calloc(n + 2, sizeof(*im->first));
    if (im->piece == NULL || im->name == NULL || im->first == NULL)
        return merak_fail_nomem(err, n * sizeof(*im->name));
    for (size_t i = 0; i < n; i++) {
        size_t count = merak_shape_count(&im->params.whole[i].shape);

        most = count > most ? count : most;
    }
    im->buf = malloc(most * sizeof(*im->buf));
    if (im->buf == NULL)
        return merak_fail_nomem(err, most * sizeof(*im->buf));
    for (size_t i = 0; i < n; i++) {
        snprintf(im->name[i], sizeof(*im->name), "param/%s",
                 im->params.whole[i].name);
        im->piece[i] =
            merak_whole_piece(im->name[i], &im->params.whole[i].shape, im->buf);
        im->all += bytes_of(im, (int)i);
    }
    return MERAK_OK;
}

static void cut_shards(struct importing *im)
{
    uint64_t bytes = 0;

    im->n_shards = 1;
    for (int i = 0; i < im->params.n_whole; i++) {
        if (bytes > 0 && bytes + bytes_of(im, i) > SHARD_BYTES) {
            im->first[im->n_shards++] = i;
            bytes = 0;
        }
        bytes += bytes_of(im, i);
    }
    im->first[im->n_shards] = im->params.n_whole;
}

static enum merak_status fill(void *arg, int i, struct merak_error *err)
{
    struct importing *im = arg;
    const struct merak_named *param = &im->params.whole[i];
    enum merak_status rc;

    if (im->peft != NULL && merak_peft_has(im->peft, param->name))
        rc = merak_peft_read(im->peft, param, im->buf, err);
    else
        rc =
            merak_hf_weights_read(im->weights, param->name, &im->piece[i], err);
    if (rc == MERAK_OK &&
        !merak_all_finite(im->buf, merak_shape_count(&param->shape)) &&
        im->not_finite++ == 0)
        im->first_not_finite = i;
    im->done += bytes_of(im, i);
    if (rc == MERAK_OK && im->import->progress != NULL)
        rc = im->import->progress(im->import->arg, im->done, im->all, err);
    return rc;
}

/* --- the run's directory ----------------------------------------------------
 */

static enum merak_status write_run(struct importing *im,
                                   struct merak_error *err)
{
    const char *dir = im->base, *run = im->import->run;
    struct merak_ckpt_state state = {
        .imported = true, .dtype = "f32", .tp = 1, .pp = 1, .dp = 1};
    char model[PATH_MAX];
    bool was_there = access(merak_path(model, run, MERAK_RUN_MODEL), F_OK) == 0;
    enum merak_status rc;

    snprintf(state.model_id, sizeof(state.model_id), "%s", im->params.model_id);
    snprintf(state.fingerprint, sizeof(state.fingerprint), "%s",
             im->params.numbers);
    snprintf(state.init_from, sizeof(state.init_from), "%.*s",
             (int)sizeof(state.init_from) - 1, dir);
    if (im->peft != NULL)
        merak_lora_print(merak_peft_lora(im->peft), state.recipe,
                         sizeof(state.recipe));
    rc = merak_run_model_record(run, dir, err);
    if (rc == MERAK_OK)
        rc = merak_run_model_put_weights(run, dir, im->weights, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_write(run, &state, im->piece, im->first, im->n_shards,
                              fill, im, err);
    if (rc != MERAK_OK && !was_there)
        (void)merak_dir_remove(model, NULL);
    return rc;
}

static enum merak_status import_to_run(struct importing *im,
                                       struct merak_error *err)
{
    bool was_there = access(im->import->run, F_OK) == 0;
    struct merak_ckpt_owner *owner = NULL;
    enum merak_status rc;

    if (strlen(im->import->run) >= MERAK_DIR_MAX ||
        strlen(im->import->dir) >= MERAK_DIR_MAX)
        return merak_fail(err, MERAK_ERR_PARAM, "path too long");
    rc = merak_ckpt_owner_take(im->import->run, &owner, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_check_none(im->import->run, err);
    if (rc == MERAK_OK)
        rc = write_run(im, err);
    merak_ckpt_owner_destroy(owner);
    if (rc != MERAK_OK && !was_there)
        (void)rmdir(im->import->run);
    return rc;
}

/* --- all of it ---------------------------------------------------------------
 */

static void summarize(const struct importing *im,
                      struct merak_transfer_summary *summary)
{
    const struct merak_safetensors *st = merak_hf_weights_files(im->weights);

    *summary = (struct merak_transfer_summary){
        .family = merak_hf_family_name(im->config.family),
        .files = st->n_files,
        .not_finite = im->not_finite};
    if (im->not_finite > 0)
        snprintf(summary->first_not_finite, sizeof(summary->first_not_finite),
                 "%s", im->params.whole[im->first_not_finite].name);
    if (im->peft != NULL)
        summary->tensors = merak_peft_count(im->peft);
    for (int i = 0; i < st->n; i++) {
        if (!merak_hf_weights_has(im->weights, &st->tensor[i]))
            continue;
        summary->tensors++;
        summary->bytes += st->tensor[i].bytes;
    }
}

/* Where the weights are: adapters are beside those of another folder. */
static enum merak_status find_base(struct importing *im,
                                   struct merak_error *err)
{
    const char *dir = im->import->dir, *base = im->import->base;
    struct merak_peft_config config = {.root = NULL};
    enum merak_status rc = MERAK_OK;

    if (strlen(dir) >= MERAK_DIR_MAX ||
        (base != NULL && strlen(base) >= MERAK_DIR_MAX))
        return merak_fail(err, MERAK_ERR_PARAM, "path too long");
    snprintf(im->base, sizeof(im->base), "%s", base != NULL ? base : dir);
    if (!merak_peft_is_one(dir))
        return base == NULL
                   ? MERAK_OK
                   : merak_fail(err, MERAK_ERR_CONFIG,
                                "%.100s has no " MERAK_PEFT_CONFIG
                                ", and a base model is only for adapters",
                                dir);
    if (base == NULL)
        rc = merak_peft_config_read(dir, &config, err);
    if (config.base != NULL)
        snprintf(im->base, sizeof(im->base), "%s", config.base);
    if (rc == MERAK_OK && !merak_safetensors_is_one(im->base))
        rc = merak_fail(err, MERAK_ERR_NOT_FOUND,
                        "%.80s has adapters, and their base model %.80s is no "
                        "folder with safetensors: give it with --init-from DIR",
                        dir,
                        config.base != NULL || base != NULL ? im->base : "");
    merak_peft_config_fini(&config);
    return rc;
}

static enum merak_status open_all(struct importing *im, struct merak_error *err)
{
    enum merak_status rc = find_base(im, err);

    if (rc == MERAK_OK)
        rc = merak_hf_config_read(im->base, im->import->unknown, &im->config,
                                  err);
    if (rc == MERAK_OK && merak_peft_is_one(im->import->dir))
        rc = merak_peft_open(im->import->dir, &im->config, &im->peft, err);
    if (rc == MERAK_OK)
        rc = merak_hf_params_init(
            &im->params, &im->config,
            im->peft != NULL ? merak_peft_lora(im->peft) : NULL, err);
    if (rc == MERAK_OK && im->peft != NULL &&
        merak_peft_count(im->peft) != im->params.n_whole - im->params.n)
        rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                        "%.100s: there are adapters beside a weight that is "
                        "used otherwise, too",
                        im->import->dir);
    if (rc == MERAK_OK)
        rc = merak_hf_weights_open(im->base, im->params.param, im->params.n,
                                   &im->weights, err);
    return rc == MERAK_OK ? merak_hf_weights_check_tied(im->weights, err) : rc;
}

static void close_all(struct importing *im)
{
    free(im->buf);
    free(im->first);
    free(im->name);
    free(im->piece);
    merak_hf_weights_close(im->weights);
    merak_hf_params_fini(&im->params);
    merak_peft_close(im->peft);
    free(im);
}

enum merak_status merak_weights_import(const struct merak_import *import,
                                       char *note,
                                       struct merak_transfer_summary *summary,
                                       struct merak_error *err)
{
    struct importing *im = calloc(1, sizeof(*im));
    enum merak_status rc;

    if (im == NULL)
        return merak_fail_nomem(err, sizeof(*im));
    im->import = import;
    rc = open_all(im, err);
    if (rc == MERAK_OK)
        rc = make_pieces(im, err);
    if (rc == MERAK_OK) {
        cut_shards(im);
        rc = import_to_run(im, err);
    }
    if (rc == MERAK_OK) {
        memcpy(note, im->config.note, sizeof(im->config.note));
        summarize(im, summary);
    }
    close_all(im);
    return rc;
}
