/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/plan/choice.h - what users and the planner choose of a plan
 *
 * merak_choice[] has a row for each choice.  It is an option of `merak plan`
 * and, but for few, of a run; what --what-if takes and a plan that was
 * searched for is printed as; a key of a saved plan; what such a plan is held
 * against the options of a run by; and what a search keeps to, or would change
 * where it finds no plan.  A new choice is a row, a field of struct
 * merak_choices and of struct merak_plan, and the code that means it.
 */
#ifndef MERAK_PARTITIONER_PLAN_CHOICE_H
#define MERAK_PARTITIONER_PLAN_CHOICE_H

#include "base/options.h"
#include "partitioner/plan/list_text.h"
#include "partitioner/plan/neighbour.h"

/* In the order in which a plan's choices are printed for --what-if. */
enum merak_choice_id {
    MERAK_CHOICE_TP,
    MERAK_CHOICE_PP,
    MERAK_CHOICE_DP,
    MERAK_CHOICE_MICRO_BATCH,
    MERAK_CHOICE_SCHEDULE,
    MERAK_CHOICE_CHUNKS,
    MERAK_CHOICE_SUB_PIPELINE,
    MERAK_CHOICE_ZERO1,
    MERAK_CHOICE_ORDER,
    MERAK_CHOICE_SP,
    MERAK_CHOICE_RECOMPUTE,
    MERAK_CHOICE_CUT,
    MERAK_CHOICE_TP_BATCH,
    MERAK_CHOICE_BOUNDARY,
    MERAK_CHOICE_BRANCHES,
    MERAK_CHOICE_COUNT
};

/* Values of choices, as far as they are made.  Degrees, sizes and chunks are 0,
 * and schedule is NULL, where they are not; of the others `given` says. */
struct merak_choices {
    int tp, pp, dp;       /* an option may say MERAK_OPTION_AUTO */
    size_t micro_batch;   /* sequences; of a sub-pipeline both halves */
    const char *schedule; /* borrowed */
    int chunks;
    bool sub_pipeline, zero1, order_tp_pp_dp;
    enum merak_seq_parallel sp;
    enum merak_recompute recompute;
    struct merak_given_lists list; /* its drop is before recompute */
    int tp_batch_percent;
    enum merak_boundary boundary;
    enum merak_branches branches;
    bool given[MERAK_CHOICE_COUNT];
};

struct merak_choice {
    struct merak_option option; /* of `merak plan`, into struct merak_choices */
    struct merak_option run;    /* of a run; without a name: it is none */
    const char *key;            /* of a saved plan; NULL: it has no key that is
                                   this value */
    enum merak_option_kind kind; /* of the value: INT, SIZE, BOOL or WORD, as
                                    `option` or else `run` stores it; TEXT: the
                                    schedule; CALL: it is a list */
    bool in_plan;                /* a plan has the same value at: */
    size_t plan_at;
    long usual;      /* where it is not given */
    int n_words;     /* that a plan can have; 0: all */
    bool is_implied; /* a saved plan leaves the usual value out */
    bool is_told;    /* where next best plans differ in it */
    /* Other values to try where a request has no plan, or NULL: none; and
     * after how many other changes, where memory is short and where numbers do
     * not divide: search/nearest_plan.c.  0: never. */
    merak_near_fn near;
    int near_memory, near_numbers;
};

/* By enum merak_choice_id. */
extern const struct merak_choice merak_choice[MERAK_CHOICE_COUNT];
/* All of them as `merak plan` has them, into a struct merak_choices. */
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

/* The number that choices have, or for WORD and BOOL the word's index. */
long merak_choice_get(const struct merak_choice *choice,
                      const struct merak_choices *choices);
void merak_choice_set(const struct merak_choice *choice,
                      struct merak_choices *choices, long value);
/* How many words a plan can have; "no", "tp-dp-pp": one by its index; and its
 * index, or -1. */
#define MERAK_CHOICE_WORD 16
int merak_choice_words(const struct merak_choice *choice);
const char *merak_choice_word(const struct merak_choice *choice, long value,
                              char text[MERAK_CHOICE_WORD]);
int merak_choice_find_word(const struct merak_choice *choice, const char *text);
/* A choice's value as its option takes it; lists are of so many parts. */
#define MERAK_CHOICE_TEXT(parts) (MERAK_LIST_TEXT(parts) + 32)
void merak_choice_text(const struct merak_choice *choice,
                       const struct merak_choices *choices, char *text,
                       size_t bytes);
/* Which of two plans comes first by one choice: that of the usual value, then
 * that of the lower; 0: they have the same, or it is no single value. */
int merak_choice_compare(const struct merak_choice *choice,
                         const struct merak_plan *a,
                         const struct merak_plan *b);

/* May a choice that was given, or not, have this value? */
static inline bool merak_choice_allows(bool given, bool wanted, bool value)
{
    return !given || wanted == value;
}

/* A schedule that is said to be auto is none that is given. */
void merak_choices_settle(struct merak_choices *choices);
/* All that a plan chooses, given; name and lists stay the plan's. */
void merak_choices_of(const struct merak_plan *plan,
                      struct merak_choices *choices);
/* Take them into a plan, and what is usual where none is given; lists, and how
 * boundaries are crossed, are not taken. */
void merak_choices_take(const struct merak_choices *choices,
                        struct merak_plan *plan);
/* "tp=2,pp=4,..", all that a plan chooses, as --what-if takes it; the caller's
 * to free, NULL when out of memory. */
char *merak_choices_line(const struct merak_plan *plan);

#endif
