/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/param_rules.h - --freeze, --no-decay, --lr-scale: options that
 * select parameters by name */
#ifndef MERAK_RUNTIME_TRAIN_PARAM_RULES_H
#define MERAK_RUNTIME_TRAIN_PARAM_RULES_H

#include "merak/model.h"
#include "merak/train.h"

enum merak_param_rule_kind { MERAK_FREEZE, MERAK_NO_DECAY, MERAK_LR_SCALE };

enum { MERAK_PARAM_RULES = 64, MERAK_PATTERN_BYTES = 200 };

struct merak_param_rules {
    int n;
    struct merak_param_rule {
        enum merak_param_rule_kind kind;
        char pattern[MERAK_PATTERN_BYTES];
        float x; /* LR_SCALE */
    } rule[MERAK_PARAM_RULES];
};

/* Add the rule of an option: "PATTERN", or for a scale "PATTERN=X".
 * MERAK_ERR_CONFIG names the option. */
enum merak_status merak_param_rules_add(struct merak_param_rules *rules,
                                        enum merak_param_rule_kind kind,
                                        const char *text,
                                        struct merak_error *err) MERAK_CHECKED;
/* Print the rules as options, " --freeze wte.*" each, truncated to `bytes`;
 * returns the length of all. */
size_t merak_param_rules_print(const struct merak_param_rules *rules,
                               char *text, size_t bytes);

/* Rows of a table of options; `at` is the offset of a struct merak_lora. */
#define MERAK_LORA_OPTIONS(at)                                                 \
    {"lora-rank",                                                              \
     MERAK_OPTION_SIZE,                                                        \
     (at) + offsetof(struct merak_lora, rank),                                 \
     .about = "train adapters of this rank beside linear layers, and nothing " \
              "else (none)",                                                   \
     .least = 1,                                                               \
     .most = 65535},                                                           \
        {"lora-alpha", MERAK_OPTION_FLOAT,                                     \
         (at) + offsetof(struct merak_lora, alpha),                            \
         .about = "their output is multiplied by alpha / rank (the rank)",     \
         .positive = true},                                                    \
        {"lora-scale", MERAK_OPTION_BOOL,                                      \
         (at) + offsetof(struct merak_lora, by_root),                          \
         .about =                                                              \
             "what alpha is divided by: the rank, or its root, as rsLoRA "     \
             "does (rank)",                                                    \
         .words = "rank|sqrt"},                                                \
        {"lora-dropout", MERAK_OPTION_FLOAT,                                   \
         (at) + offsetof(struct merak_lora, dropout),                          \
         .about = "of their input, below 1 (0)"},                              \
    {                                                                          \
        "lora-targets", MERAK_OPTION_TEXT,                                     \
            (at) + offsetof(struct merak_lora, targets),                       \
            .about = "layers that have them, as q_proj,v_proj or h.0.* (*.*: " \
                     "all but lm_head)",                                       \
            .arg = "PATTERNS"                                                  \
    }
/* Fill in what is not given; MERAK_ERR_CONFIG names what does not fit. */
enum merak_status merak_lora_settle(struct merak_lora *lora,
                                    struct merak_error *err) MERAK_CHECKED;

/* What is minimized: the cross-entropy of targets, or of which of two answers
 * is preferred (DPO). */
struct merak_objective {
    enum { MERAK_CROSS_ENTROPY, MERAK_DPO } kind;
    float beta; /* of DPO; 0: not given */
    double capacity; /* merak_expert_capacity(); 0: none */
    struct merak_balance_options balance; /* of routers, below 0: not given */
};

/* Rows of a table of options; `at` is the offset of a struct
 * merak_objective. */
#define MERAK_OBJECTIVE_OPTIONS(at)                                         \
    {"objective", MERAK_OPTION_WORD,                                        \
     (at) + offsetof(struct merak_objective, kind),                         \
     .about = "dpo: prefer the chosen of two answers to the rejected one "  \
              "(cross-entropy)",                                            \
     .words = "cross-entropy|dpo"},                                         \
    {                                                                       \
        "dpo-beta", MERAK_OPTION_FLOAT,                                     \
            (at) + offsetof(struct merak_objective, beta),                  \
            .about = "how much log-ratios weigh that should stay near the " \
                     "reference (0.1)",                                     \
            .positive = true                                                \
    }
/* Fill in what is not given; MERAK_ERR_CONFIG names what does not fit. */
enum merak_status merak_objective_settle(struct merak_objective *objective,
                                         struct merak_error *err) MERAK_CHECKED;

/* Rows of a table of options; `at` is the offset of a struct merak_objective,
 * whose numbers for routers are below 0 if they are not given. */
#define MERAK_ROUTER_OPTIONS(at)                                               \
    {"router-aux", MERAK_OPTION_FLOAT,                                         \
     (at) + offsetof(struct merak_objective, balance.aux),                     \
     .about = "coefficient of the routers' loss by how uneven their load is "  \
              "(the model's)"},                                                \
        {"router-z", MERAK_OPTION_FLOAT,                                       \
         (at) + offsetof(struct merak_objective, balance.z),                   \
         .about = "coefficient of their loss by how large their logits are "   \
                  "(0)"},                                                      \
        {"expert-capacity", MERAK_OPTION_REAL,                                 \
         (at) + offsetof(struct merak_objective, capacity),                    \
         .about = "rows that an expert takes of a sequence, times an even "    \
                  "share; later positions are dropped (none)",                 \
         .positive = true,                                                     \
         .words = "none"},                                                     \
    {                                                                          \
        "router-bias-rate", MERAK_OPTION_FLOAT,                                \
            (at) + offsetof(struct merak_objective, balance.bias_rate),        \
            .about = "what a step adds to or subtracts from the bias of each " \
                     "expert by its load, where routers have biases (0)"       \
    }
/* As if none was given. */
#define MERAK_BALANCE_OF_MODEL ((struct merak_balance_options){-1, -1, -1})
/* " --router-aux 0.01 ..", those that are given; returns the length of all. */
size_t merak_balance_print(const struct merak_balance_options *balance,
                           char *text, size_t bytes);

/* A model with the options about its parameters and sequences. */
struct merak_ruled_model {
    merak_describe_fn describe;
    void *arg;
    const struct merak_param_rules *rules;
    bool documents; /* --doc-mask: sequences hold several documents */
    struct merak_objective objective;
    const struct merak_lora *lora; /* rank 0, or NULL: no adapters */
    const struct merak_balance_options *balance; /* NULL: as the model's */
};
/* A merak_describe_fn: arg is a struct merak_ruled_model. */
void merak_ruled_describe(struct merak_model *m, void *arg);

#endif
