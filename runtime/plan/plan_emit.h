/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/plan_emit.h - a plan as options of other trainers, and its cost
 */
#ifndef MERAK_RUNTIME_PLAN_PLAN_EMIT_H
#define MERAK_RUNTIME_PLAN_PLAN_EMIT_H

#include "io/hf_config.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/plan/plan.h"

#include <stdio.h>

enum plan_emit {
    PLAN_EMIT_NONE,
    PLAN_EMIT_MEGATRON,
    PLAN_EMIT_TORCHTITAN,
    PLAN_EMIT_DEEPSPEED
};

/* The layers of a plan's parts, in the model's order. */
struct plan_layers {
    int n;      /* parts */
    int *count; /* [n]; NULL: not known */
    int split;  /* layers that are cut */
};

struct plan_emitted {
    const struct merak_plan *plan;
    size_t seq, global_batch;
    const struct merak_hf_config *config; /* NULL: a program's own model */
    struct plan_layers layers;            /* of the plan */
    /* The plan that was wanted, where `plan` is already what the trainer runs
     * of it (plan_trainer_adapt()); NULL: `plan` is wanted. */
    const struct merak_plan *wanted;
    double wanted_s, step_s; /* predicted steps of both; 0: not known */
    /* What Merak would run, where another plan is better for the trainer. */
    const struct merak_plan *own;
    double own_s;
    const bool *given;    /* [MERAK_CHOICE_COUNT], by options: cannot be changed
                             without a word; NULL: all */
    const char *training; /* options of what is trained, which are in no
                             trainer's output; NULL or "": none */
    bool lays_out;        /* set by plan_emit(): parts are listed */
};

/* Those of a plan that was built; free count. */
enum merak_status plan_layers_of(const struct merak_planned *planned,
                                 struct plan_layers *layers,
                                 struct merak_error *err) MERAK_CHECKED;
/*
 * Write options or JSON to `out`, with comments; and to `errors` one line
 * for each given choice that the other trainer does not have, and for each of
 * its demands that is not met: *lost_p of these lines.
 */
enum merak_status plan_emit(enum plan_emit what,
                            const struct plan_emitted *emitted, FILE *out,
                            FILE *errors, int *lost_p,
                            struct merak_error *err) MERAK_CHECKED;

/* A run over `tokens` tokens, at `price` per hour of one rank's device. */
struct plan_cost {
    double tokens, price; /* 0: not given */
    const char *sbatch;   /* words for sbatch, start_time.h; NULL: not asked */
};

/* run_cost.c: a price needs tokens. */
enum merak_status plan_cost_check(const struct plan_cost *cost,
                                  struct merak_error *err) MERAK_CHECKED;
/* "\n1T tokens: 12.3 days, 18900 GPU-hours, 47250 at 2.5 an hour\n"; prints
 * nothing without tokens. */
void plan_cost_print(const struct plan_cost *cost, double tokens_per_s,
                     int ranks, FILE *out);

/*
 * For machines of increasing node count, the index of the last one up to which
 * each added node still brings at least half the tokens/s of each of the first
 * nodes.
 */
int plan_knee(const int *nodes, const double *tokens_per_s, int n);

#endif
