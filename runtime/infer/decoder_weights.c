/* SPDX-License-Identifier: Apache-2.0 */
/* decoder_weights.c - the weights that a decoder computes with
 *
 * They are read into place: a Hugging Face folder needs no import, and no more
 * than one block of extra memory is used.
 */
#include "config.h"

#include "runtime/infer/decoder_impl.h"

#include "base/error.h"
#include "io/ckpt/ckpt.h"
#include "io/weights/hf_weights.h"
#include "io/weights/weights_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)1 << 20) /* elements that are rounded at a time */

/* The source of the weights: one of the two. */
struct source {
    struct merak_ckpt *ckpt;
    struct merak_hf_weights *hf;
    struct merak_named *param; /* of the model, for hf */
};

static void narrow(const float *from, size_t n, uint16_t *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = merak_f32_to_bf16(from[i]);
}

static enum merak_status read_piece(const struct source *source,
                                    const struct merak_value *v,
                                    const struct merak_ckpt_piece *piece,
                                    struct merak_error *err)
{
    return source->hf != NULL
               ? merak_hf_weights_read(source->hf, v->name, piece, err)
               : merak_ckpt_read(source->ckpt, piece, err);
}

/* Sources give f32; a parameter of another dtype is rounded part by part. */
static enum merak_status read_param(const struct source *source,
                                    const struct merak_value *v, void *data,
                                    float *room, struct merak_error *err)
{
    size_t n = merak_shape_count(&v->shape);
    size_t step = v->dtype == MERAK_F32 ? n : CHUNK;
    enum merak_status rc = MERAK_OK;
    char name[512];
    struct merak_ckpt_piece piece = {.name = name, .shape = v->shape};

    snprintf(name, sizeof(name), "param/%s", v->name);
    piece.box.ndim = v->shape.ndim;
    memcpy(piece.box.full, v->shape.dim, sizeof(piece.box.full));
    memcpy(piece.box.len, v->shape.dim, sizeof(piece.box.len));
    for (size_t lo = 0; lo < n && rc == MERAK_OK; lo += step) {
        piece.flat_lo = lo;
        piece.flat_hi = n - lo < step ? n : lo + step;
        piece.data = v->dtype == MERAK_F32 ? data : room;
        rc = read_piece(source, v, &piece, err);
        if (rc == MERAK_OK && v->dtype != MERAK_F32)
            narrow(room, piece.flat_hi - lo, (uint16_t *)data + lo);
    }
    return rc;
}

/* Is the checkpoint of this model? */
static enum merak_status check_model(const struct merak_decoder *d,
                                     const struct merak_ckpt *ckpt,
                                     struct merak_error *err)
{
    const char *theirs = merak_ckpt_state(ckpt)->model_id;
    char mine[MERAK_FINGERPRINT_TEXT];

    merak_graph_fingerprint(d->graph, mine);
    if (strcmp(mine, theirs) == 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "checkpoint %s is of another model (%s, this one is "
                      "%s): give the config.json that it was trained with",
                      merak_ckpt_path(ckpt), theirs, mine);
}

static enum merak_status open_ckpt(const struct merak_decoder *d,
                                   const char *dir, struct source *source,
                                   struct merak_error *err)
{
    enum merak_status rc = merak_ckpt_open(dir, &source->ckpt, err);

    if (rc == MERAK_ERR_NOT_FOUND)
        return merak_fail(err, rc,
                          "%.200s holds neither " MERAK_SAFETENSORS_FILE
                          " or " MERAK_SAFETENSORS_INDEX
                          " nor a checkpoint of a run",
                          dir);
    return rc == MERAK_OK ? check_model(d, source->ckpt, err) : rc;
}

/* A folder's tensors are identified by names and shapes. */
static enum merak_status open_folder(const struct merak_decoder *d,
                                     const char *dir, struct source *source,
                                     struct merak_error *err)
{
    int n = 0;
    enum merak_status rc =
        merak_named_params(d->graph, true, &source->param, &n, err);

    if (rc == MERAK_OK)
        rc = merak_hf_weights_open(dir, source->param, n, &source->hf, err);
    return rc == MERAK_OK ? merak_hf_weights_check_tied(source->hf, err) : rc;
}

static enum merak_status open_source(const struct merak_decoder *d,
                                     const char *dir, struct source *source,
                                     struct merak_error *err)
{
    return merak_safetensors_is_one(dir) ? open_folder(d, dir, source, err)
                                         : open_ckpt(d, dir, source, err);
}

static void close_source(struct source *source)
{
    merak_hf_weights_close(source->hf);
    merak_ckpt_close(source->ckpt);
    free(source->param);
}

enum merak_status merak_decoder_check(const struct merak_decoder *d,
                                      const char *dir, struct merak_error *err)
{
    struct source source = {.ckpt = NULL};
    enum merak_status rc = open_source(d, dir, &source, err);

    close_source(&source);
    return rc;
}

enum merak_status merak_decoder_load(struct merak_decoder *d, const char *dir,
                                     struct merak_error *err)
{
    const struct merak_graph *g = d->graph;
    struct source source = {.ckpt = NULL};
    float *room = malloc(CHUNK * sizeof(*room));
    enum merak_status rc;

    if (room == NULL)
        return merak_fail_nomem(err, CHUNK * sizeof(*room));
    rc = open_source(d, dir, &source, err);
    for (int v = 0; v < g->n_values && rc == MERAK_OK; v++) {
        if (g->value[v]->kind == MERAK_VALUE_PARAM)
            rc = read_param(&source, g->value[v], d->place[v].data, room, err);
    }
    close_source(&source);
    free(room);
    return rc;
}

static enum merak_status read_loaded(void *arg, const struct merak_value *v,
                                     const struct merak_ckpt_piece *piece,
                                     struct merak_error *err)
{
    const struct merak_decoder *d = arg;
    const void *data = d->place[v->id].data;
    size_t n = piece->flat_hi - piece->flat_lo;

    (void)err;
    if (v->dtype == MERAK_F32) {
        memcpy(piece->data, (const float *)data + piece->flat_lo,
               n * sizeof(float));
        return MERAK_OK;
    }
    for (size_t i = 0; i < n; i++)
        piece->data[i] =
            merak_bf16_to_f32(((const uint16_t *)data)[piece->flat_lo + i]);
    return MERAK_OK;
}

enum merak_status merak_decoder_identify(const struct merak_decoder *d,
                                         struct merak_weights_id *id,
                                         struct merak_error *err)
{
    return merak_weights_identify(d->graph, true, read_loaded, (void *)d, id,
                                  err);
}
