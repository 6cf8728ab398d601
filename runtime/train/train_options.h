/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/train_options.h - the trainer's options */
#ifndef MERAK_RUNTIME_TRAIN_OPTIONS_H
#define MERAK_RUNTIME_TRAIN_OPTIONS_H

#include "io/corrupt.h"
#include "io/tokens/tokens.h"
#include "partitioner/plan/choice.h"
#include "runtime/runtime.h"
#include "runtime/train/param_rules.h"

enum merak_lr_shape {
    MERAK_LR_COSINE,
    MERAK_LR_LINEAR,
    MERAK_LR_CONSTANT,
    MERAK_LR_WSD
};
enum merak_resume { MERAK_RESUME_AUTO, MERAK_RESUME_MUST, MERAK_RESUME_NO };

/* Who writes a file of a checkpoint. */
enum merak_ckpt_writers { MERAK_CKPT_WRITERS_RANK, MERAK_CKPT_WRITERS_NODE };

enum merak_ckpt_async_wish {
    MERAK_CKPT_ASYNC_AUTO,
    MERAK_CKPT_ASYNC_NO,
    MERAK_CKPT_ASYNC_YES
};

/* --transport. */
enum merak_transport_wish {
    MERAK_TRANSPORT_AUTO, /* nccl if possible, ucx, or self for one task */
    MERAK_TRANSPORT_SELF,
    MERAK_TRANSPORT_UCX,
    MERAK_TRANSPORT_NCCL,
};

/* Token files and what is read of them. */
struct merak_train_data {
    const char *files;
    double valid_fraction;
    enum merak_packing_kind packing;
    bool doc_mask;
    const char *corrupt_as; /* as given, or NULL */
    struct merak_corrupt corrupt;
    int mask_id, sentinel_id; /* MERAK_OPTION_AUTO: the tokenizer's */
    bool changed; /* resume although they have */
    int eval_every;
    uint64_t eval_samples;
};

struct merak_train_optimizer {
    float lr, min_lr, beta1, beta2, eps, weight_decay, clip;
    uint64_t warmup;
    enum merak_lr_shape lr_shape;
    double decay_share; /* of the steps, at their end: WSD */
    struct merak_objective objective;
    struct merak_param_rules rules;
};

/* Checkpoints that are written and resumed from. */
struct merak_train_ckpt {
    const char *dir; /* NULL: none */
    uint64_t every;
    int keep;
    uint64_t keep_every; /* steps; these are kept. 0: none */
    enum merak_ckpt_async_wish async;
    enum merak_ckpt_writers writers;
    enum merak_resume resume;
    const char *init_from; /* of the first weights; NULL: the seed */
    const char *lora_from; /* PEFT's folder of the first adapters, or NULL */
    bool model_changed;    /* resume although it has */
};

/* Files that a run writes beside checkpoints, and its lines. */
struct merak_train_output {
    const char *trace;
    int trace_every; /* steps between those that are traced */
    const char *metrics, *openmetrics;
    const char *tensorboard; /* a directory or "yes"; NULL: none */
    const char *print;       /* --print */
    unsigned phases;         /* that it asks for */
    const char *dump_grads;  /* directory for gradients of selected steps */
    uint64_t log_every;
};

/* A field for each option: the table in train_options.c points to them. */
struct merak_train_options {
    struct merak_train_data data;
    struct merak_train_optimizer optimizer;
    struct merak_train_ckpt ckpt;
    struct merak_train_output output;
    struct merak_lora lora;
    /* batch and length */
    size_t seq, global_batch;
    uint64_t steps;
    double max_seconds; /* then save and exit for a resubmit; 0: never */
    uint64_t seed;
    /* parallelism as given; degrees of 0 are taken from the environment, else
     * 1; MERAK_OPTION_AUTO is the planner's choice */
    struct merak_choices choice;
    double memory_gib;     /* of a rank, for auto; 0: what is available */
    const char *plan;      /* a file to replay, or NULL */
    const char *links;     /* file of islands; NULL: MERAK_LINKS, or none */
    double search_seconds; /* for a plan; 0: as long as it takes */
    const char *device;    /* to plan for, and to emulate; or NULL */
    char *own_device;      /* that of this task's node, of a list of kinds */
    enum merak_dtype dtype;
    const char *backend;
    double emu_unit_ms; /* 0: the cost model's times */
    enum merak_transport_wish transport;
    bool reduce_fast; /* NCCL's reductions */
    int threads;      /* 0: from the allocation */
    double deadline_s;
    double straggler_percent; /* 0: stragglers are not reported */
    int straggler_steps;
    const char *config; /* taken out of argv before it is parsed */
    bool help;
    /* Given on the command line: a planner may not change these. */
    struct {
        bool seq, global_batch, dtype;
    } given;
};

/*
 * Parse argv into opt.  MERAK_ERR_CONFIG names the option, what was given
 * and what was expected.
 */
enum merak_status
merak_train_options_parse(int argc, char **argv, size_t positions,
                          struct merak_train_options *opt,
                          struct merak_error *err) MERAK_CHECKED;
/* The table of all options, for programs that add their own. */
const struct merak_option_table *merak_train_options_table(void);
/* The options' part of --help, and the exit codes. */
void merak_train_options_help(void);

/* Learning rate of step `step` (0..) of `steps`: linear warm-up to lr over
 * warmup steps, then the shape down to min_lr at the last step.  WSD stays at
 * lr until the last decay_share of all steps, then decays linearly. */
float merak_learning_rate(const struct merak_train_optimizer *opt,
                          uint64_t steps, uint64_t step);
/* The options on learning rate, reduction, document mask and parameters, as
 * text; if it is very long, a part of it and a digest. */
enum { MERAK_RECIPE_BYTES = 512 };
void merak_train_recipe(const struct merak_train_options *opt,
                        char text[MERAK_RECIPE_BYTES]);

#endif
