/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/run_islands.h - the islands of a run's nodes (--links) */
#ifndef MERAK_RUNTIME_TRAIN_RUN_ISLANDS_H
#define MERAK_RUNTIME_TRAIN_RUN_ISLANDS_H

#include "io/plan_file.h"
#include "partitioner/device/island_ways.h"
#include "partitioner/search/search.h"

struct merak_boot;
struct merak_trainer;

/* Which island each node of a job is of, [boot->n_nodes], by the names of their
 * nodes.  MERAK_ERR_CONFIG: a node is in none or in two, or an island has no
 * names. */
enum merak_status merak_run_islands_find(const struct merak_boot *boot,
                                         const struct merak_islands *islands,
                                         int *island_of,
                                         struct merak_error *err) MERAK_CHECKED;

/* The islands that a job has nodes of. */
struct merak_run_islands {
    struct merak_islands ways; /* without hosts, which are here */
    char hosts[MERAK_MOST_ISLANDS][MERAK_ISLAND_HOSTS + 1];
};

/* Read --links for the nodes of this job: ranks->islands, whose
 * order is the file's; NULL if all nodes are on one.  MERAK_ERR_CONFIG names
 * what does not fit.  Collective. */
enum merak_status merak_run_islands_open(struct merak_trainer *t,
                                         struct merak_error *err) MERAK_CHECKED;
/* Give them to the run's device, before its costs are taken. */
enum merak_status merak_run_islands_set(struct merak_trainer *t,
                                        struct merak_error *err) MERAK_CHECKED;
/* Take the order of a plan's islands, "n[5-8];n[1-4]"; "" leaves it. */
enum merak_status
merak_run_islands_follow(struct merak_run_islands *islands, const char *plan,
                         struct merak_error *err) MERAK_CHECKED;
/* Their nodes in their order, as a plan has them. */
void merak_run_islands_text(const struct merak_run_islands *islands, char *text,
                            size_t bytes);
/* Search for a plan, with islands (or NULL) for their order, too; the file has
 * both. */
enum merak_status merak_run_islands_search(
    const struct merak_search_input *in, struct merak_run_islands *islands,
    struct merak_search_result **result_p, struct merak_plan_file *file,
    struct merak_error *err) MERAK_CHECKED;
void merak_run_islands_log(const struct merak_run_islands *islands);

#endif
