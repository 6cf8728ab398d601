/* SPDX-License-Identifier: Apache-2.0 */
/* model_params.c - the parameters of a family's model, and of a checkpoint */
#include "config.h"

#include "io/weights/transfer_impl.h"

#include "base/error.h"
#include "io/lora_record.h"
#include "partitioner/graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "param/"

enum merak_status merak_hf_params_init(struct merak_hf_params *params,
                                       struct merak_hf_config *config,
                                       const struct merak_lora *lora,
                                       struct merak_error *err)
{
    const struct merak_model_options opt = {
        .micro_batch = 1, .seq = 1, .dtype = MERAK_F32};
    struct merak_lora_model adapted = {config, lora};
    struct merak_graph *graph = NULL;
    enum merak_status rc;

    *params = (struct merak_hf_params){.n = 0};
    rc = merak_model_create(&opt, &params->model, err);
    if (rc != MERAK_OK)
        return rc;
    merak_lora_describe(params->model, &adapted);
    rc = merak_model_graph(params->model, &graph, err);
    if (rc == MERAK_OK)
        rc = merak_named_params(graph, false, &params->param, &params->n, err);
    if (rc == MERAK_OK)
        rc = merak_named_params(graph, true, &params->whole, &params->n_whole,
                                err);
    if (rc == MERAK_OK)
        rc = merak_graph_numbers(graph, &params->numbers, err);
    if (rc == MERAK_OK)
        merak_graph_fingerprint(graph, params->model_id);
    else
        merak_hf_params_fini(params);
    return rc;
}

void merak_hf_params_fini(struct merak_hf_params *params)
{
    free(params->param);
    free(params->whole);
    free(params->numbers);
    merak_model_destroy(params->model);
    *params = (struct merak_hf_params){.n = 0};
}

struct merak_ckpt_piece merak_whole_piece(const char *name,
                                          const struct merak_shape *shape,
                                          float *data)
{
    struct merak_ckpt_piece piece = {.name = name,
                                     .shape = *shape,
                                     .box = {.ndim = shape->ndim},
                                     .flat_hi = merak_shape_count(shape),
                                     .data = data};

    memcpy(piece.box.full, shape->dim, sizeof(piece.box.full));
    memcpy(piece.box.len, shape->dim, sizeof(piece.box.len));
    return piece;
}

enum merak_status merak_ckpt_read_first(struct merak_ckpt *ckpt,
                                        const struct merak_named *param,
                                        size_t at, size_t n, float *data,
                                        struct merak_error *err)
{
    char name[512];
    struct merak_ckpt_piece piece;

    snprintf(name, sizeof(name), PREFIX "%s", param->name);
    piece = merak_whole_piece(name, &param->shape, data);
    piece.box.lo[0] = at;
    piece.box.len[0] = n;
    piece.flat_hi = merak_box_count(&piece.box);
    return merak_ckpt_read(ckpt, &piece, err);
}

enum merak_status merak_ckpt_read_param(struct merak_ckpt *ckpt,
                                        const struct merak_named *param,
                                        float *data, struct merak_error *err)
{
    return merak_ckpt_read_first(ckpt, param, 0, param->shape.dim[0], data,
                                 err);
}

enum merak_status merak_ckpt_has_params(const struct merak_ckpt *ckpt,
                                        const struct merak_named *param, int n,
                                        struct merak_error *err)
{
    struct merak_named *have;
    struct merak_shape shape;
    const char *name;
    size_t tensors = 0;
    int n_have = 0;
    enum merak_status rc;

    while (merak_ckpt_tensor(ckpt, (int)tensors, &shape) != NULL)
        tensors++;
    have = calloc(tensors + 1, sizeof(*have));
    if (have == NULL)
        return merak_fail_nomem(err, tensors * sizeof(*have));
    for (int i = 0; (name = merak_ckpt_tensor(ckpt, i, &shape)) != NULL; i++) {
        if (strncmp(name, PREFIX, strlen(PREFIX)) == 0)
            have[n_have++] = (struct merak_named){name + strlen(PREFIX), shape};
    }
    rc =
        merak_named_compare(param, n, have, n_have, merak_ckpt_path(ckpt), err);
    free(have);
    return rc;
}
