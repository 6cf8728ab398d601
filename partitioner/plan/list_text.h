/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/plan/list_text.h - a plan's lists as text
 *
 *   cut        "1-3-5": the places where parts but the first begin
 *   recompute  "a-2-0": what each part computes again: attention, or all of so
 *              many of its first blocks
 *
 * The same in reports, in errors and in what `merak plan` is told.
 */
#ifndef MERAK_PARTITIONER_PLAN_LIST_TEXT_H
#define MERAK_PARTITIONER_PLAN_LIST_TEXT_H

#include "partitioner/plan/plan.h"

/* Lists that were given; NULL where they are to be chosen. */
struct merak_given_lists {
    const int *cut; /* as of a plan, n_cut places */
    int n_cut;
    const struct merak_drop *drop; /* of n_drop parts, and room for the blocks
                                      that all stages run */
    int n_drop;
};

/*
 * "1-3-5" or auto, which is none; and "a-2-0" or one of the words for
 * recompute.  They replace what the lists were; merak_given_fini() frees them.
 *
 *   recompute_p  out  the word; AUTO, or NONE of nothing, beside a list
 *
 * MERAK_ERR_CONFIG names the option, what was given and what was expected.
 */
enum merak_status merak_given_set_cut(const char *text,
                                      struct merak_given_lists *lists,
                                      struct merak_error *err) MERAK_CHECKED;
enum merak_status
merak_given_set_recompute(const char *text, struct merak_given_lists *lists,
                          enum merak_recompute *recompute_p,
                          struct merak_error *err) MERAK_CHECKED;
void merak_given_fini(struct merak_given_lists *lists);

/* A list of so many has this room at most. */
#define MERAK_LIST_TEXT(n) (12 * (size_t)(n) + 4)

/* Parts that cuts make: those but for the blocks that all stages run. */
int merak_plan_own_parts(const struct merak_plan *plan);
/* What does not fit ends with "..". */
void merak_cut_text(const int *cut, int n, char *text, size_t bytes);
void merak_drop_text(const struct merak_drop *drop, int n, char *text,
                     size_t bytes);
/* Does any part drop something? */
bool merak_drops_any(const struct merak_drop *drop, int n);
/* Parts that the lists are of; 0: none is given. */
int merak_given_parts(const struct merak_given_lists *lists);
/* MERAK_ERR_CONFIG if the lists are not of as many parts as the plan, which
 * has its degrees, chunks and schedule. */
enum merak_status merak_given_check(const struct merak_given_lists *lists,
                                    const struct merak_plan *plan,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
