/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/plan/list_text.h - a plan's lists as text
 *
 *   cut        "1-3-5": the cut points where all parts except the first begin
 *   stages     "2x4-8x1": dp x tp of each stage, where they are not alike
 *   recompute  "a-2-0": what each part recomputes: attention, or all inside
 *              its first 2 or 0 blocks
 *
 * They have the same form in reports, in errors and in options.
 */
#ifndef MERAK_PARTITIONER_PLAN_LIST_TEXT_H
#define MERAK_PARTITIONER_PLAN_LIST_TEXT_H

#include "partitioner/plan/plan.h"

/* Lists that were given; NULL if they are to be chosen. */
struct merak_given_lists {
    const int *cut; /* as in a plan, n_cut cut points */
    int n_cut;
    const struct merak_drop *drop; /* of n_drop parts, with room for the
                                      vocabulary-parallel layers */
    int n_drop;
    const struct merak_stage_degrees *stage; /* of n_stages stages */
    int n_stages;
    bool auto_stages; /* "auto" was given in its place */
};

/*
 * Parse "1-3-5" or auto, which is no list; and "a-2-0" or one of the words for
 * recompute.  They replace the former lists; merak_given_fini() frees them.
 *
 *   recompute_p  out  the word; for a list AUTO, or NONE if it drops nothing
 *
 * MERAK_ERR_CONFIG names the option, what was given and what was expected.
 */
enum merak_status merak_given_set_cut(const char *text,
                                      struct merak_given_lists *lists,
                                      struct merak_error *err) MERAK_CHECKED;
/* "2x4-8x1", also with commas between, or auto. */
enum merak_status merak_given_set_stages(const char *text,
                                         struct merak_given_lists *lists,
                                         struct merak_error *err) MERAK_CHECKED;
enum merak_status
merak_given_set_recompute(const char *text, struct merak_given_lists *lists,
                          enum merak_recompute *recompute_p,
                          struct merak_error *err) MERAK_CHECKED;
void merak_given_fini(struct merak_given_lists *lists);

/* Bytes that suffice for a list of n items. */
#define MERAK_LIST_TEXT(n) (12 * (size_t)(n) + 4)

/* Parts that cuts make: all except the vocabulary-parallel layers. */
int merak_plan_own_parts(const struct merak_plan *plan);
/* A list that does not fit ends with "..". */
void merak_stages_text(const struct merak_stage_degrees *stage, int n,
                       char *text, size_t bytes);
void merak_cut_text(const int *cut, int n, char *text, size_t bytes);
void merak_drop_text(const struct merak_drop *drop, int n, char *text,
                     size_t bytes);
/* Does any part drop something? */
bool merak_drops_any(const struct merak_drop *drop, int n);
/* What the host keeps in a plan whose parts drop this, be it found by that. */
enum merak_offload merak_drops_offload(const struct merak_plan *plan,
                                       const struct merak_drop *drop);
/* The number of parts that the lists are for; 0: none is given. */
int merak_given_parts(const struct merak_given_lists *lists);
/* MERAK_ERR_CONFIG if the lists are not for as many parts as the plan has; its
 * degrees, chunks and schedule are set. */
enum merak_status merak_given_check(const struct merak_given_lists *lists,
                                    const struct merak_plan *plan,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
