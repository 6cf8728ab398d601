/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/plan/choice.h - the choices of a plan by users and the planner
 *
 * merak_choice[] has a row for each choice.  It is an option of `merak plan`
 * and, with few exceptions, of a run; a key of --what-if, as which a plan that
 * was found is also printed; a key of a saved plan, by which such a plan is
 * compared with the options of a run; and what a search keeps fixed, or tries
 * to change if it finds no plan.  A new choice needs a row, a field of struct
 * merak_choices and of struct merak_plan, and the code that implements it.
 */
#ifndef MERAK_PARTITIONER_PLAN_CHOICE_H
#define MERAK_PARTITIONER_PLAN_CHOICE_H

#include "base/options.h"
#include "partitioner/plan/list_text.h"
#include "partitioner/plan/neighbour.h"

/* In the order in which a plan's choices are printed for --what-if. */
enum merak_choice_id {
    MERAK_CHOICE_TP,
    MERAK_CHOICE_EP,
    MERAK_CHOICE_PP,
    MERAK_CHOICE_DP,
    MERAK_CHOICE_DP_IN,
    MERAK_CHOICE_CP,
    MERAK_CHOICE_CP_AXES,
    MERAK_CHOICE_CP_FORM,
    MERAK_CHOICE_CP_ORDER,
    MERAK_CHOICE_TP_AXES,
    MERAK_CHOICE_STAGES,
    MERAK_CHOICE_MICRO_BATCH,
    MERAK_CHOICE_SCHEDULE,
    MERAK_CHOICE_CHUNKS,
    MERAK_CHOICE_SUB_PIPELINE,
    MERAK_CHOICE_ZERO,
    MERAK_CHOICE_FETCH,
    MERAK_CHOICE_GRAD_SUM,
    MERAK_CHOICE_GRAD_DTYPE,
    MERAK_CHOICE_ZERO_HOME,
    MERAK_CHOICE_OFFLOAD,
    MERAK_CHOICE_ORDER,
    MERAK_CHOICE_SP,
    MERAK_CHOICE_RECOMPUTE,
    MERAK_CHOICE_CUT,
    MERAK_CHOICE_TP_BATCH,
    MERAK_CHOICE_SPLIT,
    MERAK_CHOICE_TP_PLAN,
    MERAK_CHOICE_EXPERT_ROOM,
    MERAK_CHOICE_EP_FORM,
    MERAK_CHOICE_LOSS_PIECES,
    MERAK_CHOICE_BOUNDARY,
    MERAK_CHOICE_LOSSY_HOPS,
    MERAK_CHOICE_BRANCHES,
    MERAK_CHOICE_COUNT
};

/* Values of the choices that are made.  Degrees, sizes and chunks that are not
 * are 0, schedule is NULL; `given` shows which of the others are made. */
struct merak_choices {
    int tp, pp, dp; /* an option may set MERAK_OPTION_AUTO */
    int dp_in;      /* likewise, and AUTO stays in a search */
    int cp;         /* likewise */
    int64_t tp_axes; /* likewise, and AUTO stays; or 0: by the heads */
    int ep; /* likewise, and AUTO stays in a search: 0 beside a tp is 1 */
    int64_t cp_axes; /* 0: those with the least to exchange */
    enum merak_cp_form cp_form;
    enum merak_cp_order cp_order;
    size_t micro_batch;   /* sequences; both halves of a sub-pipeline */
    const char *schedule; /* borrowed */
    int chunks;
    bool sub_pipeline, order_tp_pp_dp;
    int zero; /* an option may set MERAK_OPTION_AUTO */
    int fetch; /* likewise, for all; settled it is 0 */
    enum merak_grad_sum grad_sum;
    enum merak_dtype grad_dtype;
    enum merak_zero_home zero_home;
    enum merak_offload offload;
    enum merak_seq_parallel sp;
    enum merak_recompute recompute;
    struct merak_given_lists list; /* its drop precedes recompute */
    int tp_batch_percent, expert_room;
    int loss_pieces;
    enum merak_ep_form ep_form;
    struct merak_layer_split split; /* none: not given */
    struct merak_tp_plan tp_plan;   /* likewise */
    struct merak_lossy lossy;         /* likewise */
    enum merak_boundary boundary;
    enum merak_branches branches;
    bool given[MERAK_CHOICE_COUNT];
    bool has_zero1; /* zero was given by its older name, as: */
    int zero1;
    bool listed[MERAK_CHOICE_COUNT]; /* given in a list of KEY=VALUE, as "tp=4"
                                        of --what-if */
};

/* Plans that differ in what has a higher one only are alike to users: of the
 * runners-up those with other degrees come first, then other schedules. */
enum merak_differs {
    MERAK_DIFFERS_BY_REST,
    MERAK_DIFFERS_BY_SCHEDULE,
    MERAK_DIFFERS_BY_DEGREES
};

struct merak_choice {
    struct merak_option option; /* of `merak plan`, into struct merak_choices */
    struct merak_option run;    /* of a run; none if it has no name */
    struct merak_option alias;  /* an older name of both, likewise */
    const char *key;            /* of a saved plan; NULL: it has no key for
                                   just this value */
    const char *flag_key;       /* in its place for values 0 and 1, as false
                                  and true; NULL: none */
    enum merak_option_kind kind; /* of the value: INT, SIZE, GRID, BOOL or
                                    WORD, as
                                    `option` or else `run` stores it; TEXT: the
                                    schedule; CALL: it is a list */
    bool in_plan;                /* a plan has the same value at: */
    size_t plan_at;
    long usual;      /* if it is not given */
    int n_words;     /* that a plan can have; 0: all */
    bool is_implied; /* a saved plan leaves the usual value out */
    bool is_settled; /* --what-if's line leaves the usual value out: it is what
                        a search takes, too, where none is given */
    bool is_told;    /* printed if runners-up differ in it */
    bool is_narrowed; /* where a plan is looked for that is near to a request,
                         the usual value alone is tried if it is not given */
    enum merak_differs differs;
    int tie; /* of plans that take the same time, the turn at which this choice
                is compared; 0: after those; -1: never, it follows from others
              */
    /* The lowest level of ZeRO that has it: if it is given at all, and if its
     * value is not the usual one. */
    int least_zero[2];
    /* Other values to try if a request has no plan, or NULL: none.  The turn
     * at which it is tried if memory is short, and if numbers do not divide
     * (search/nearest_plan.c); 0: never. */
    merak_near_fn near;
    int near_memory, near_numbers;
    const struct merak_choice_struct *is; /* what its value is; NULL: a number,
                                             or a list of the plan's parts */
};

/* A value that is a struct of plain data, all 0 if it was not given. */
struct merak_choice_struct {
    size_t bytes, at, plan_at; /* in struct merak_choices, struct merak_plan */
    const char *key;           /* of a saved plan; left out if it is all 0 */
    const char *expected;      /* there, for errors */
    const char *between;       /* items of a list, in --what-if's line, where
                                  commas separate choices */
    enum merak_status (*parse)(const char *text, void *value,
                               struct merak_error *err);
    /* As the option takes it, with `between` for its commas; returns text. */
    const char *(*text)(const void *value, const char *between, char *text,
                        size_t bytes);
};
/* Is it anything but 0? */
bool merak_choice_struct_any(const struct merak_choice_struct *is,
                             const void *value);

/* By enum merak_choice_id. */
extern const struct merak_choice merak_choice[MERAK_CHOICE_COUNT];
/* All of them as options of `merak plan`, into a struct merak_choices. */
extern const struct merak_option_table merak_choice_table;

/* A row of a table of options: those from one choice to another, into the
 * struct merak_choices at `field` of the table's target.  `member` is option
 * or run, `heading` their group's or NULL. */
#define MERAK_CHOICE_GROUP(member, first, last, field, heading)           \
    {                                                                     \
        .kind = MERAK_OPTION_ROWS, .at = (field),                         \
        .rows = &merak_choice[MERAK_CHOICE_##first].member,               \
        .n_rows = (size_t)MERAK_CHOICE_##last - MERAK_CHOICE_##first + 1, \
        .stride = sizeof(struct merak_choice), .group = (heading)         \
    }
#define MERAK_CHOICE_ROWS(member, first, last, field) \
    MERAK_CHOICE_GROUP(member, first, last, field, NULL)

/* Of a choice's two options the one that stores the value itself. */
static inline const struct merak_option *
merak_choice_plain(const struct merak_choice *choice)
{
    return choice->option.kind == MERAK_OPTION_CALL ? &choice->run
                                                    : &choice->option;
}

/* A choice's number, or for WORD and BOOL the index of its word. */
long merak_choice_get(const struct merak_choice *choice,
                      const struct merak_choices *choices);
/* Of one that a plan has: its value there. */
long merak_choice_of(const struct merak_choice *choice,
                     const struct merak_plan *plan);
void merak_choice_set(const struct merak_choice *choice,
                      struct merak_choices *choices, long value);
/* The number of words that a plan can have; a word, "no" or "tp-dp-pp", by its
 * index; and the index of a word, or -1. */
#define MERAK_CHOICE_WORD 16
int merak_choice_words(const struct merak_choice *choice);
const char *merak_choice_word(const struct merak_choice *choice, long value,
                              char text[MERAK_CHOICE_WORD]);
int merak_choice_find_word(const struct merak_choice *choice, const char *text);
/* The key of a saved plan for this value of a choice that has one. */
const char *merak_choice_key(const struct merak_choice *choice, long value);
/* A choice's value as its option takes it; for lists of `parts` parts. */
#define MERAK_CHOICE_TEXT(parts) (MERAK_LIST_TEXT(parts) + MERAK_SPLIT_TEXT)
void merak_choice_text(const struct merak_choice *choice,
                       const struct merak_choices *choices, char *text,
                       size_t bytes);
/* Order two plans by one choice: the usual value comes first, then the lower
 * one; 0: they have the same, or it is not a single value. */
int merak_choice_compare(const struct merak_choice *choice,
                         const struct merak_plan *a,
                         const struct merak_plan *b);

/* Are tensor ranks to share out samples of a micro-batch? */
static inline bool
merak_choices_share_samples(const struct merak_choices *choices)
{
    return choices->tp_batch_percent > 0 || merak_split_any(&choices->split);
}
/* Sequences of the smallest micro-batch that these choices can divide over ep,
 * tp and the halves of a sub-pipeline: what is run if none is given. */
size_t merak_choices_least_samples(const struct merak_choices *choices);

/* May a choice that was given, or not, have this value? */
static inline bool merak_choice_allows(bool given, long wanted, long value)
{
    return !given || wanted == value;
}

/* The level that --zero1 means: yes or no; on or off are taken for these. */
enum merak_status merak_zero1_parse(const char *text, int *zero_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* MERAK_ERR_CONFIG if it was said how sequences are cut over ranks, with cp, 0
 * being 1, or MERAK_OPTION_AUTO, and they are not. */
enum merak_status merak_choices_check_cp(const struct merak_choices *choices,
                                         int cp,
                                         struct merak_error *err) MERAK_CHECKED;
/* What is given as auto to the planner alone counts as not given; zero, cp
 * and tp_axes stay auto.  Factors of tp decide tp, if it is not given.
 * MERAK_ERR_CONFIG if --zero1 and --zero have different levels, or what is
 * given needs a higher one. */
enum merak_status merak_choices_settle(struct merak_choices *choices,
                                       struct merak_error *err) MERAK_CHECKED;
/* Check a list of stages.  Equal ones are made tp, pp and dp, with the
 * micro-batch of a replica; for others the micro-batch is that of all replicas
 * and, if it is not given, the least.  Then check that stages have the hops
 * that are to be sent in part. */
enum merak_status
merak_choices_settle_stages(struct merak_choices *choices,
                            struct merak_error *err) MERAK_CHECKED;
/* The lowest level that has all that is given and not usual; MERAK_ERR_CONFIG if
 * a level is given that lacks something given: levels.c. */
int merak_choices_least_zero(const struct merak_choices *choices);
enum merak_status
merak_choices_check_levels(const struct merak_choices *choices,
                           struct merak_error *err) MERAK_CHECKED;
/* MERAK_ERR_CONFIG if --zero1 asks for another level than --zero. */
enum merak_status
merak_choices_check_zero1(const struct merak_choices *choices, int level,
                          struct merak_error *err) MERAK_CHECKED;
/* All choices of a plan, as given; name and lists are borrowed from it. */
void merak_choices_of(const struct merak_plan *plan,
                      struct merak_choices *choices);
/* Store them in a plan, with usual values for those not given; cuts,
 * recomputation by part and the boundary are not stored, a list of stages is
 * borrowed. */
void merak_choices_take(const struct merak_choices *choices,
                        struct merak_plan *plan);
/* "tp=2,pp=4,..", all choices of a plan, as --what-if takes them; freed by the
 * caller, NULL when out of memory. */
char *merak_choices_line(const struct merak_plan *plan);

#endif
