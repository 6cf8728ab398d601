/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/planned_model.h - the model to plan: a program's own, or that
 * of a config.json */
#ifndef MERAK_RUNTIME_PLAN_MODEL_H
#define MERAK_RUNTIME_PLAN_MODEL_H

#include "io/hf_config.h"
#include "merak/train.h"
#include "runtime/plan/plan_options.h"
#include "runtime/train/param_rules.h"

struct plan_model {
    const char *source; /* as given: the file, or the program */
    const char *name;   /* for people */
    merak_describe_fn describe;
    void *arg;                      /* .. which is: */
    struct merak_ruled_model ruled; /* with the options about parameters */
    size_t positions; /* the most tokens of a sequence; 0: not known */
    size_t layers;    /* 0: not known */
    /* By plan_model_seq(): merak_graph_sequence_letter(); is it trained on
     * arrays, for inputs that a program has named? */
    char letter;
    bool arrays;
    struct merak_hf_config config; /* what arg points to, unless `own` */
};

/* The name to print: that of the program without its folder, or merak. */
const char *plan_model_planner(const struct merak_plan_program *own);
/* MERAK_ERR_CONFIG if --model is not such a file. *model must not be
 * copied. */
enum merak_status plan_model_open(const struct plan_options *opt,
                                  struct plan_model *model,
                                  struct merak_error *err) MERAK_CHECKED;
/* The contents of config.json; NULL for a program's own model. */
const struct merak_hf_config *plan_model_config(const struct plan_model *model);
/* *seq_p: tokens of a sequence, from the options or the model.  Describes it;
 * MERAK_ERR_CONFIG if --seq is given and the model has no sequences, or
 * --tp-plan for parameters that it has not. */
enum merak_status plan_model_seq(struct plan_model *model,
                                 const struct plan_options *opt, size_t *seq_p,
                                 struct merak_error *err) MERAK_CHECKED;
/* Describe the model and return only its number of forward passes. */
enum merak_status plan_model_passes(const struct plan_model *model, size_t seq,
                                    int *passes_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* .. and only its fingerprint, merak_graph_fingerprint(). */
enum merak_status plan_model_fingerprint(const struct plan_model *model,
                                         size_t seq,
                                         char id[MERAK_FINGERPRINT_TEXT],
                                         struct merak_error *err) MERAK_CHECKED;

#endif
