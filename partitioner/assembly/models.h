/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/assembly/models.h - a model, described once for each micro-batch
 * size, and form of experts, that is asked for
 */
#ifndef MERAK_PARTITIONER_ASSEMBLY_MODELS_H
#define MERAK_PARTITIONER_ASSEMBLY_MODELS_H

#include "merak/train.h"
#include "partitioner/program/program.h"

struct merak_models {
    size_t seq; /* tokens of a sequence */
    enum merak_dtype dtype, grad_dtype;
    merak_describe_fn describe; /* as for merak_train() */
    void *arg;
    struct merak_described *described;
    int n;
};

/* The model of this micro-batch size, described for experts as `form` says, and
 * its graph (or NULL); both live as long as `models`. */
enum merak_status merak_models_find(struct merak_models *models,
                                    size_t micro_batch,
                                    const struct merak_expert_form *form,
                                    struct merak_model **model_p,
                                    struct merak_graph **graph_p,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_models_fini(struct merak_models *models);

#endif
