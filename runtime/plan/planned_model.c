/* SPDX-License-Identifier: Apache-2.0 */
/* planned_model.c - the model to plan: a program's own, or that of a
 * config.json
 */
#include "config.h"

#include "runtime/plan/planned_model.h"

#include "base/log.h"
#include "partitioner/graph/graph.h"
#include "partitioner/graph/letters.h"
#include "runtime/plan/plan_run.h"
#include "runtime/train/train_options.h"

#include <string.h>

const char *plan_model_planner(const struct merak_plan_program *own)
{
    const char *name = own != NULL ? own->name : "merak";
    const char *slash = strrchr(name, '/');

    return slash != NULL ? slash + 1 : name;
}

enum merak_status plan_model_open(const struct plan_options *opt,
                                  struct plan_model *model,
                                  struct merak_error *err)
{
    const struct merak_plan_program *own = opt->own;
    enum merak_status rc;

    *model = (struct plan_model){.describe = merak_ruled_describe,
                                 .arg = &model->ruled,
                                 .ruled.rules = &opt->rules,
                                 .ruled.lora = &opt->lora,
                                 .ruled.documents = opt->doc_mask,
                                 .ruled.objective = opt->objective,
                                 .ruled.balance = &opt->objective.balance};
    if (own != NULL) {
        model->source = own->name;
        model->name = plan_model_planner(own);
        model->ruled.describe = own->describe;
        model->ruled.arg = own->arg;
        return MERAK_OK;
    }
    model->source = opt->model;
    model->ruled.describe = merak_hf_describe;
    model->ruled.arg = &model->config;
    rc = merak_hf_config_read(opt->model, (enum merak_hf_unknown)opt->config.unknown,
                              &model->config, err);
    if (rc != MERAK_OK)
        return rc;
    if (model->config.note[0] != '\0')
        merak_info("io", "%s", model->config.note);
    model->config.encoder.seq = opt->config.encoder_seq;
    model->name = merak_hf_family_name(model->config.family);
    model->positions = model->config.positions;
    model->layers = model->config.layers;
    return MERAK_OK;
}

const struct merak_hf_config *plan_model_config(const struct plan_model *model)
{
    return model->ruled.arg == &model->config ? &model->config : NULL;
}

/* Describe the model; the graph is `described_p`'s. */
static enum merak_status describe(const struct plan_model *model, size_t seq,
                                  struct merak_model **described_p,
                                  struct merak_graph **graph_p,
                                  struct merak_error *err)
{
    const struct merak_model_options mo = {
        .micro_batch = 1, .seq = seq, .dtype = MERAK_F32};
    enum merak_status rc = merak_model_create(&mo, described_p, err);

    if (rc != MERAK_OK)
        return rc;
    model->describe(*described_p, model->arg);
    return merak_model_graph(*described_p, graph_p, err);
}

enum merak_status plan_model_seq(struct plan_model *model,
                                 const struct plan_options *opt, size_t *seq_p,
                                 struct merak_error *err)
{
    struct merak_model *described = NULL;
    struct merak_graph *graph;
    enum merak_status rc;

    *seq_p = opt->seq > 0 ? opt->seq : merak_default_seq(model->positions);
    rc = describe(model, *seq_p, &described, &graph, err);
    if (rc == MERAK_OK) {
        model->letter = merak_graph_sequence_letter(graph);
        model->arrays = plan_model_config(model) == NULL &&
                        merak_graph_input(graph, MERAK_INPUT_NAMED) >= 0;
        rc = merak_graph_check_seq(graph, opt->seq, err);
        if (rc == MERAK_OK)
            rc = merak_tp_plan_check(&opt->choice.tp_plan, graph, err);
    }
    merak_model_destroy(described);
    return rc;
}

enum merak_status plan_model_passes(const struct plan_model *model, size_t seq,
                                    int *passes_p, struct merak_error *err)
{
    struct merak_model *described = NULL;
    struct merak_graph *graph;
    enum merak_status rc = describe(model, seq, &described, &graph, err);

    if (rc == MERAK_OK)
        *passes_p = graph->passes;
    merak_model_destroy(described);
    return rc;
}

enum merak_status plan_model_fingerprint(const struct plan_model *model,
                                         size_t seq,
                                         char id[MERAK_FINGERPRINT_TEXT],
                                         struct merak_error *err)
{
    struct merak_model *described = NULL;
    struct merak_graph *graph;
    enum merak_status rc = describe(model, seq, &described, &graph, err);

    if (rc == MERAK_OK)
        merak_graph_fingerprint(graph, id);
    merak_model_destroy(described);
    return rc;
}
