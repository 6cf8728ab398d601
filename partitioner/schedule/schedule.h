/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/schedule/schedule.h - the order of forwards and backwards on a
 * stage
 *
 * A schedule is a pure function of its arguments: for one stage, the list of
 * actions in the order in which the stage starts them; one small file each.
 * It does not mention transfers: an action's input is received before it, its
 * output is sent as soon as it is ready.
 *
 * Parts.  The model is cut into stages * chunks parts; merak_schedule_part()
 * maps a chunk of a stage to its part.  Part k's F needs part k - 1's F of
 * that micro-batch, its B needs part k + 1's B and its own F.  A part's
 * backwards, and its Ws, run in ascending order of micro-batches, so that
 * all schedules give bitwise the same gradient sums.  A chunk with `feeds` or
 * `follows` is the exception: a vocabulary-parallel layer that all stages run
 * together (its weights are cut over them), in the chain just before the part
 * that it feeds, or just after the part that it follows.
 *
 * Recomputation.  F drops what the stage's recompute mode asks for, and all of
 * it is recomputed before B of that micro-batch.  R(i) determines when: it
 * starts as soon as the stage comes to it, whether or not B's gradient has
 * arrived, and the recomputed values are held until B is done.  If a list has
 * no R(i), recomputation is the first half of B(i) and waits for its gradient
 * like the rest of it: recomputed values are held for the shortest time.  On a
 * stage that dropped nothing R does nothing.  If recomputes() is false for a
 * stage it drops nothing, whatever the plan's mode.
 *
 * Passes.  A model may run `passes` forwards before its backward, each on the
 * last one's output (recycling): part 0's F of pass q needs the last part's F
 * of pass q - 1.  Only the last pass has gradients and holds activations.
 * On a single stage any schedule of one chunk runs a micro-batch's passes one
 * after the other; several stages need one that is made for passes.
 *
 * Slices.  A micro-batch may go through in slices along the sequence, where
 * slice k reads the earlier ones' keys and values: F in ascending order, B
 * in descending order, after all of the micro-batch's Fs.
 */
#ifndef MERAK_PARTITIONER_SCHEDULE_SCHEDULE_H
#define MERAK_PARTITIONER_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"

enum merak_action_kind {
    MERAK_ACT_F, /* forward */
    MERAK_ACT_B, /* gradient of the input (and, unless split, W) */
    MERAK_ACT_W, /* gradient of the weights, if the schedule separates it */
    MERAK_ACT_R, /* recompute what the forward dropped */
};

struct merak_action {
    enum merak_action_kind kind;
    int microbatch;
    int chunk;
    int slice; /* 0 .. slices - 1 */
    int pass;  /* F: 0 .. passes - 1; others: 0 */
};

struct merak_schedule_args {
    int stages;       /* p >= 1 */
    int microbatches; /* m >= 1 */
    int chunks;       /* v >= 1 model chunks per rank */
    int stage;        /* 0 .. p-1 */
    /* What only some schedules read; 0: the schedule's own default. */
    int slices;     /* sliced: pieces of a sequence; 1 */
    int passes;     /* the model's forwards before a backward; 1 (3f1b: 3) */
    const char *warmups; /* eager: "W" or "W-W-.." of eager:W; NULL */
    unsigned moves; /* the schedule's own; callers leave it 0 */
};

/* One row of the registry.  The functions are called through those below,
 * which replace zeros by defaults and put the row's moves into args. */
struct merak_schedule {
    const char *name;  /* the word users type: "gpipe", "1f1b" */
    bool splits_w;     /* B and W are separate actions */
    bool forward_only; /* no backwards: for evaluation, never for training */
    int max_chunks;    /* largest v; 0: no limit */
    int min_chunks;    /* smallest v; 0: 1 */
    int usual_chunks;  /* default of v; 0: 1 */
    int min_stages;    /* 0: 1 */
    bool takes_slices;
    int passes;     /* default of args->passes; 0: one, or more on one stage */
    unsigned moves; /* which of shifted critical path's */
    /* Number of actions of a stage. */
    int (*count)(const struct merak_schedule_args *args);
    /* Fill actions[count]. */
    void (*fill)(const struct merak_schedule_args *args,
                 struct merak_action *actions);
    /* Conditions that the other fields do not express; NULL: none. */
    enum merak_status (*check)(const struct merak_schedule_args *args,
                               struct merak_error *err);
    /* Does this stage follow the plan's recompute mode?  NULL: yes. */
    bool (*recomputes)(const struct merak_schedule_args *args);
    /* The part that is this stage's chunk; NULL: chunk * p + stage. */
    int (*part)(const struct merak_schedule_args *args, int chunk);
    /* The part that a chunk run by all stages feeds, -1 for a stage's own
     * chunk; NULL: every chunk is a stage's own. */
    int (*feeds)(const struct merak_schedule_args *args, int chunk);
    /* The part that a chunk run by all stages follows, or -1; NULL: none
     * does. */
    int (*follows)(const struct merak_schedule_args *args, int chunk);
};

/* By name; MERAK_ERR_NOT_FOUND lists the known names.  "scp:MOVE,..." is
 * shifted critical path with these moves only: drop-last, early, third;
 * "sliced:N" and "sliced:N/P" are sliced for args with N slices, "eager:W" is
 * eager for args with warmups. */
enum merak_status merak_schedule_find(const char *name,
                                      const struct merak_schedule **sched_p,
                                      struct merak_error *err) MERAK_CHECKED;
/* The most slices that a name may have and a search tries. */
enum { MERAK_MAX_SLICES = 1024 };
/* N of "sliced:N" and "sliced:N/P"; 0: the name has no number of slices. */
int merak_schedule_slices(const char *name);
/* Where its slices of a sequence of `seq` tokens begin, and where the last one
 * ends: N + 1 positions, or NULL to ask whether it can be cut.  The slices of
 * sliced:N are of equal length, those of sliced:N/P take equal times if P
 * percent of a sequence's time grow with the square of its length: sliced.c. */
bool merak_schedule_slice(const char *name, size_t seq, size_t *at);
/* W of "eager:W", which is a number of micro-batches in flight, of the first
 * stage, or one of each stage with dashes between; part of the name, NULL if it
 * has none. */
const char *merak_schedule_warmups(const char *name);
/* All of them, NULL-terminated. */
const struct merak_schedule *const *merak_schedules(void);

/* MERAK_ERR_CONFIG if it cannot run with these numbers: names them, the
 * rule, and what to do.  All stages of a plan get the same answer.  The
 * functions below are for numbers that have passed. */
enum merak_status merak_schedule_check(const struct merak_schedule *sched,
                                       const struct merak_schedule_args *args,
                                       struct merak_error *err) MERAK_CHECKED;

/* The list of a stage: its length, then the actions. */
int merak_schedule_count(const struct merak_schedule *sched,
                         const struct merak_schedule_args *args);
void merak_schedule_fill(const struct merak_schedule *sched,
                         const struct merak_schedule_args *args,
                         struct merak_action *actions);
bool merak_schedule_recomputes(const struct merak_schedule *sched,
                               const struct merak_schedule_args *args);
int merak_schedule_part(const struct merak_schedule *sched,
                        const struct merak_schedule_args *args, int chunk);
int merak_schedule_feeds(const struct merak_schedule *sched,
                         const struct merak_schedule_args *args, int chunk);
int merak_schedule_follows(const struct merak_schedule *sched,
                           const struct merak_schedule_args *args, int chunk);
/* Is a chunk run by all stages together? */
bool merak_schedule_shares(const struct merak_schedule *sched,
                           const struct merak_schedule_args *args, int chunk);
/* args with zeros replaced by defaults. */
struct merak_schedule_args
merak_schedule_defaults(const struct merak_schedule *sched,
                        const struct merak_schedule_args *args);

/* For each chunk the most forwards (of slices, if there are any) that are open
 * at once in this list: begun, and their last action, W or else B, not done
 * yet.  open[chunks] is scratch. */
void merak_actions_in_flight_each(const struct merak_action *actions, int n,
                                  int chunks, int *open, int *most);
/* Remove all but the forwards: the order that evaluation runs in, with the
 * schedule's placement of parts.  Returns how many are left. */
int merak_actions_forward(struct merak_action *actions, int n);

/*
 * A forward while fewer than `warmup` are in flight, else the oldest open
 * backward: GPipe is m, 1F1B p - stage, eager 1F1B 2(p - stage) - 1.  One
 * chunk; 2 * m * slices actions.  warmup >= slices, and it must not increase
 * along the pipeline, or the stages deadlock.
 */
void merak_schedule_warmup_fill(const struct merak_schedule_args *args,
                                int warmup, struct merak_action *actions);

#endif
