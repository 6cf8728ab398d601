/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/step.h - what follows the last micro-batch: for
 * grad_uses.c and optimizer_step.c
 */
#ifndef MERAK_PARTITIONER_PROGRAM_STEP_H
#define MERAK_PARTITIONER_PROGRAM_STEP_H

#include "partitioner/program/build.h"

#define MERAK_MAX_USES 64

/* Tags of step items: each parameter has a range of them. */
enum {
    MERAK_TAG_NORM_TP,
    MERAK_TAG_NORM_DP, /* the first axis of replicas */
    MERAK_TAG_NORM_PP,
    MERAK_TAG_LOSS, /* + tensor axis; + second axis of replicas: norm */
    MERAK_TAG_STEP_FIXED = MERAK_TAG_LOSS + MERAK_MAX_AXES,

    MERAK_TAG_TIE = 0,                /* + use: running sum to that use */
    MERAK_TAG_TOTAL = MERAK_MAX_USES, /* + stage's first use: total back */
    MERAK_TAG_CONVERT = 2 * MERAK_MAX_USES, /* + use * hops + hop */
    MERAK_TAG_REDUCE =
        MERAK_TAG_CONVERT + MERAK_MAX_HOPS * (MERAK_MAX_USES + 1), /* + axis */
    MERAK_TAG_GATHER = MERAK_TAG_REDUCE + MERAK_MAX_AXES,          /* + axis */
    MERAK_TAG_PER_PARAM = MERAK_TAG_GATHER + MERAK_MAX_AXES
};

/* The uses of a parameter, each with its own gradient, in graph order. */
struct merak_uses {
    struct merak_param_slots *param;
    int n;
    struct {
        int value; /* PARAM_GRAD */
        int stage;
    } at[MERAK_MAX_USES];
    int last;         /* value added last */
    bool same_layout; /* all uses' gradients are in one layout */
    bool spread;      /* over several stages */
    bool finished;    /* its summed gradient is emitted */
    int left;         /* this stage's uses whose gradient is still to come */
    int here;         /* this stage's uses */
    /* fetch.c, grad_sync.c: made once */
    int n_fetches;
    int part[2];  /* of a micro-batch's sum, or -1; of a pair's higher */
    bool is_here; /* it is gathered */
    struct merak_step_hop {
        struct merak_exchange *ex;
        const char *name;
        int slot; /* of a part of the parameter or gradient; 0: none yet */
    } hop[2][MERAK_MAX_AXES]; /* reduce, gather */
};

/* --- optimizer_step.c --- */

/* The tag of a step item for one parameter, or for all (-1). */
uint64_t merak_step_tag(const struct merak_build *b, int param_index, int what);
struct merak_instr merak_step_instr(enum merak_instr_kind kind,
                                    const char *name);
/* Add what is in one slot to a sum of the gradients of the parameter of this
 * name. */
void merak_step_add_grad(struct merak_build *b, const char *param, int from,
                         int sum);
void merak_step_exchange(struct merak_build *b, struct merak_exchange *ex,
                         int group, int from, int to, uint64_t tag,
                         const char *name);

/* AdamW of a parameter, or of a part of it, in these slots: its gradient, the
 * norm, the master copy, both moments, and the parameter if it is not its own
 * master. */
void merak_step_adamw(struct merak_build *b, const struct merak_param_slots *p,
                      const int slot[6]);

/* --- offload.c --- */

/* A piece of a parameter whose state is in the arena while it is updated: its
 * master copy and both moments. */
struct merak_away {
    const struct merak_param_slots *param; /* NULL: none */
    size_t lo, n;                          /* elements of the state */
    struct merak_away_state {
        int home, here; /* slots; the same: it is not the host's */
    } state[3];
    int n_states;
};

/* Update a parameter; what is left to be done of its last piece, as of the
 * parameter before, is in *last. */
void merak_step_update_away(struct merak_build *b, struct merak_away *last,
                            const struct merak_param_slots *p);
void merak_step_settle_away(struct merak_build *b, struct merak_away *last);

/* --- grad_uses.c --- */

/* Sum the gradients that are not summed yet. */
void merak_build_finish_grads(struct merak_build *b);

#endif
