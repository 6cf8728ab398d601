/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/plan_islands.h - `merak plan --links FILE`: islands of nodes */
#ifndef MERAK_RUNTIME_PLAN_PLAN_ISLANDS_H
#define MERAK_RUNTIME_PLAN_PLAN_ISLANDS_H

#include "partitioner/device/island_ways.h"

#include <jansson.h>
#include <stdio.h>

struct merak_device;
struct merak_search_result;
struct plan_auto;
struct plan_options;

/* Load the file that the options name, if any; its nodes are those of the plan.
 * MERAK_ERR_CONFIG if they do not fit the other options. */
enum merak_status plan_islands_open(struct plan_options *opt,
                                    struct merak_error *err) MERAK_CHECKED;
/* Give a device the islands, as its outermost level but one. */
enum merak_status plan_islands_set(const struct plan_options *opt,
                                   struct merak_device *device,
                                   struct merak_error *err) MERAK_CHECKED;
/* Search with islands in an order in which a pipeline's hops are shortest, and
 * again if the plan that was found asks for another one.  Fills in plan->hops;
 * without islands it only searches. */
enum merak_status plan_islands_search(struct plan_auto *plan,
                                      struct merak_search_result **result_p,
                                      struct merak_error *err) MERAK_CHECKED;
/* Write the names of their nodes into the plan's file, if all are known. */
void plan_islands_name(struct plan_auto *plan);
/* Which island runs which stages, the hops between them, and what bounds the
 * step; nothing without islands. */
void plan_islands_print(FILE *out, const struct plan_auto *plan,
                        const struct merak_search_result *result);
/* The same for a plan file: islands in their order, and hops; NULL without
 * islands. */
json_t *plan_islands_object(const struct plan_auto *plan,
                            const struct merak_search_result *result);
json_t *plan_hops_object(const struct plan_auto *plan);

#endif
