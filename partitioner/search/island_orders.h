/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/island_orders.h - plans over islands, and their order */
#ifndef MERAK_PARTITIONER_SEARCH_ISLAND_ORDERS_H
#define MERAK_PARTITIONER_SEARCH_ISLAND_ORDERS_H

#include "partitioner/device/island_ways.h"
#include "partitioner/search/search.h"

/*
 * merak_search() with islands in an order in which a pipeline's hops are
 * shortest, and again if the plan that was found asks for another one.
 *
 *   in       the links of its device have the islands
 *   islands  in, out  the same; in the order of the result
 *   hops     out  what the result sends between them
 */
enum merak_status merak_search_islands(const struct merak_search_input *in,
                                       struct merak_islands *islands,
                                       struct merak_island_hops *hops,
                                       struct merak_search_result **result_p,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
