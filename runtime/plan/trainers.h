/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/trainers.h - other trainers: what they run, and what they refuse
 *
 * What a trainer has is a row of trainers[] in trainers.c; what its own checks
 * of arguments demand is a row of rules[] in trainer_rules.c each, with its
 * source.
 */
#ifndef MERAK_RUNTIME_PLAN_TRAINERS_H
#define MERAK_RUNTIME_PLAN_TRAINERS_H

#include "runtime/plan/plan_emit.h"

#define PLAN_TRAINER_SCHEDULES 4

/* PLAN_INTERLEAVED: of several parts a rank, in rounds of pp micro-batches. */
enum plan_order { PLAN_NO_PIPELINE, PLAN_1F1B, PLAN_INTERLEAVED, PLAN_OTHER };

struct plan_trainer {
    const char *name;
    const char *version; /* that the rules are of */
    /* Of our schedules those that it runs, and its names for them; the first
     * has one part a rank.  The rest are NULL. */
    struct plan_trainer_schedule {
        const char *ours, *its;
        enum plan_order order;
    } schedule[PLAN_TRAINER_SCHEDULES];
    bool cuts_layers; /* it takes any numbers of whole layers */
    bool lists_even;  /* equal numbers have to be listed, too: it would divide
                         the layers otherwise */
    bool has_order;   /* ranks may be tp-pp-dp */
    bool has_experts; /* its options divide experts among ranks */
    bool has_bf16_grads;
    int least_zero;    /* if replicas share out anything */
    int pipeline_zero; /* the most with several stages */
    int offload_ranks; /* the fewest that share a parameter's state, if the
                          host is to keep it */
};

/* NULL for PLAN_EMIT_NONE. */
const struct plan_trainer *plan_trainer_of(enum plan_emit what);
/* Its row for the plan's schedule, or NULL. */
const struct plan_trainer_schedule *
plan_trainer_schedule(const struct plan_trainer *trainer,
                      const struct merak_plan *plan);
/* The plan as the trainer can run it: of each choice that it does not have, the
 * nearest that it has.  Lists are left out: it recomputes alike everywhere. */
struct merak_plan plan_trainer_adapt(const struct plan_trainer *trainer,
                                     const struct merak_plan *plan);
/* What all parts recompute, as far as others can say it: everything where any
 * part does more than its attention. */
enum merak_recompute plan_recompute_of(const struct merak_plan *plan);

/* As other trainers count them: ranks that divide experts have sequences each,
 * as replicas have; and sequences of a micro-batch. */
size_t plan_trainer_replicas(const struct merak_plan *plan);
size_t plan_trainer_micro_batch(const struct merak_plan *plan);
/* Are a part's layers written?  Not unless all parts of the plan as it is run
 * are known. */
bool plan_has_counts(const struct plan_emitted *emitted);

/* What rules are about; 0 where the model is not known.  Ranks of ep are among
 * those of dp. */
struct plan_numbers {
    size_t tp, pp, dp, cp, ep, micro_batch, microbatches, global_batch;
    size_t chunks, parts, counted; /* layers of all parts together */
    bool laid_out;                 /* parts are listed with their layers */
    size_t empty; /* .. of which so many have none, nor embedding or output */
    size_t seq, layers, hidden, heads, kv_heads, head_dim, positions;
    size_t experts; /* 0: none */
    int zero;
    enum plan_order order;
    bool sp;
    bool bf16_grads;
    bool has_model;
    bool tied; /* the output layer has the embedding's weights */
};
struct plan_numbers plan_numbers_of(const struct plan_trainer *trainer,
                                    const struct plan_emitted *emitted);
/* The rules that do not hold: how many; `broken` is called for each. */
typedef void (*plan_broken_fn)(void *arg, const char *rule, const char *source);
int plan_rules_check(enum plan_emit what, const struct plan_numbers *numbers,
                     plan_broken_fn broken, void *arg);

/* What is said beside the options. */
struct plan_notes {
    const struct plan_trainer *trainer;
    FILE *comments; /* a line each */
    FILE *errors;
    int lost; /* lines of errors */
};
/* What its reader has to know. */
void plan_hint(struct plan_notes *n, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* What was asked for, and is not in the output or not accepted. */
void plan_lose(struct plan_notes *n, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Merak's states come to the GPU to be updated; there the CPU updates them. */
void plan_note_offload(struct plan_notes *n);
/* emit_megatron.c */
void plan_emit_megatron(const struct plan_emitted *emitted, FILE *out,
                        struct plan_notes *n);

#endif
