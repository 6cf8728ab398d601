/* SPDX-License-Identifier: Apache-2.0 */
/* small_plans.h - small models and all programs of their plans, for tests */
#ifndef MERAK_TESTS_PLANNED_H
#define MERAK_TESTS_PLANNED_H

#include "unit/near.h"

#include "partitioner/assembly/assembly.h"

/* Positions of another sequence. */
enum { PLANNED_OTHER = 24 };

struct small_model {
    int layers;
    size_t vocab;
    size_t hidden, heads;
    size_t kv_heads;   /* of grouped-query attention; 0: packed heads */
    size_t experts, chosen; /* of a layer, and of a token; 0: an MLP */
    bool biased; /* experts, whose gates have a limit */
    bool skewed;            /* all tokens choose the same experts */
    struct merak_balance_options balance;
    double capacity; /* merak_expert_capacity() */
    bool common;     /* one more, which all tokens choose, with a gate */
    bool untied;       /* a head of its own instead of the embedding table */
    float dropout;     /* behind every projection */
    bool shared_proj;  /* all layers use one output projection */
    int passes;        /* > 1: what layer `leaves` makes is read by `reads`, and
                          as it is by `also`, in the next pass */
    int reads, leaves, also;
    int pair[4];       /* ratio at which what layer l makes is packed and
                          unpacked; 0: it is not */
    enum merak_dtype dtype;
    struct merak_attention_options attention;
    bool lengths, prefix; /* inputs of these names tell attention's */
    size_t biases; /* buckets of a table of attention's that all layers share
                      (kv_heads) */
    bool sinks;   /* of attention, that all layers share (kv_heads) */
    bool crossed; /* keys are of another sequence, an input (kv_heads) */
    struct merak_value *other; /* that one; the description sets it */
    /* Another model in place of all that, and its argument. */
    void (*describe)(struct merak_model *m, void *arg);
    void *arg;
    size_t tokens; /* of its sequences; 0: 16 */
};

/* The programs of all ranks; fails the test on any error.  opt may be NULL;
 * micro-batch 2 unless the plan says another, 16 tokens, dtype as the model's.
 */
struct merak_planned *planned_build(const struct small_model *model,
                                    const struct merak_plan *plan,
                                    const struct merak_program_options *opt);
/* How building it ends, and why. */
enum merak_status planned_try(const struct small_model *model,
                              const struct merak_plan *plan,
                              struct merak_error *err);
/* So many micro-batches, and what zeros stand for. */
struct merak_plan planned_plan(int tp, int pp, int dp, int microbatches,
                               const char *schedule, int zero);
/* A program's nth instruction of a kind, from 0. */
struct merak_instr *planned_find(struct merak_program *prog,
                                 enum merak_instr_kind kind, int nth);
/* What a step and its 2 x 16 ids may be where numbers do not matter; below
 * 61. */
extern const struct merak_step planned_step;
void planned_ids(int microbatch, int32_t *ids);
/* The checker finds nothing. */
void planned_assert_sound(const struct merak_planned *planned);

#endif
