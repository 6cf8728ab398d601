/* SPDX-License-Identifier: Apache-2.0 */
/* models.c - a model by micro-batch size and form of experts */
#include "config.h"

#include "partitioner/assembly/models.h"

#include "base/error.h"

#include <stdlib.h>

struct merak_described {
    size_t micro_batch;
    struct merak_expert_form form;
    struct merak_model *model;
};

static enum merak_status describe(struct merak_models *models,
                                  size_t micro_batch,
                                  const struct merak_expert_form *form,
                                  struct merak_error *err)
{
    const struct merak_model_options mo = {.micro_batch = micro_batch,
                                           .seq = models->seq,
                                           .dtype = models->dtype,
                                           .grad_dtype = models->grad_dtype,
                                           .expert_room = form->room,
                                           .expert_exchange = form->exchange};
    size_t n = (size_t)models->n + 1;
    struct merak_described *grown =
        realloc(models->described, n * sizeof(*grown));
    enum merak_status rc;

    if (grown == NULL)
        return merak_fail_nomem(err, n * sizeof(*grown));
    models->described = grown;
    grown[models->n].micro_batch = micro_batch;
    grown[models->n].form = *form;
    rc = merak_model_create(&mo, &grown[models->n].model, err);
    if (rc != MERAK_OK)
        return rc;
    models->describe(grown[models->n++].model, models->arg);
    return MERAK_OK;
}

enum merak_status merak_models_find(struct merak_models *models,
                                    size_t micro_batch,
                                    const struct merak_expert_form *form,
                                    struct merak_model **model_p,
                                    struct merak_graph **graph_p,
                                    struct merak_error *err)
{
    int at = 0;
    enum merak_status rc = MERAK_OK;

    while (at < models->n &&
           (models->described[at].micro_batch != micro_batch ||
            !merak_expert_form_equal(&models->described[at].form, form)))
        at++;
    if (at == models->n)
        rc = describe(models, micro_batch, form, err);
    if (rc != MERAK_OK)
        return rc;
    if (model_p != NULL)
        *model_p = models->described[at].model;
    return graph_p != NULL
               ? merak_model_graph(models->described[at].model, graph_p, err)
               : MERAK_OK;
}

void merak_models_fini(struct merak_models *models)
{
    for (int i = 0; i < models->n; i++)
        merak_model_destroy(models->described[i].model);
    free(models->described);
    models->described = NULL;
    models->n = 0;
}
