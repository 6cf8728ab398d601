/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/visits.h - an action's runs of nodes that read matrices
 * of one block: fetch.c
 */
#ifndef MERAK_PARTITIONER_PROGRAM_VISITS_H
#define MERAK_PARTITIONER_PROGRAM_VISITS_H

#include "partitioner/program/build.h"

struct merak_visits {
    struct merak_visit *visit;
    int n, cap;
    int *param;
    int n_params, cap_params;
    int at; /* the next to begin */
    int microbatch;
};

/* Find them, for the current pass; none below ZeRO-3. */
void merak_build_visits(struct merak_build *b, const struct merak_items *items,
                        struct merak_visits *visits);
void merak_visits_fini(struct merak_visits *visits);
/* Gather what has to be before an item; `next` are those of the next action. */
void merak_build_visit(struct merak_build *b, struct merak_visits *visits,
                       int item, const struct merak_visits *next);
void merak_build_visits_end(struct merak_build *b,
                            const struct merak_visits *visits);

#endif
