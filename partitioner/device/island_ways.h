/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/device/island_ways.h - links by pair of islands, as of sites
 *
 * An island is a domain of the outermost level but one (level.h): nodes with
 * fast links between them, and a way of its own to each other island, which all
 * ranks that send along it share, each direction for itself.  A file of them is
 * a JSON object; each pair is given once, for both directions:
 *
 *   {"islands": [{"name": "a", "nodes": "n[1-4]"}, {"name": "b", "nodes": 4}],
 *    "between": [["a", "b", {"bytes_per_s": 1.25e7, "latency_s": 0.02}]]}
 *
 * "nodes" is a number, or Slurm's expression for their names.  Islands fill the
 * logical ranks one after another, in an order that a planner chooses: that in
 * which a pipeline passes them.
 */
#ifndef MERAK_PARTITIONER_DEVICE_ISLAND_WAYS_H
#define MERAK_PARTITIONER_DEVICE_ISLAND_WAYS_H

#include "base/error.h"

#include <stdbool.h>

enum { MERAK_MOST_ISLANDS = 16, MERAK_ISLAND_NAME = 24 };
enum { MERAK_ISLAND_HOSTS = 120 }; /* characters of its nodes' names */

/* From one island to another, or back. */
struct merak_island_way {
    double latency_s;
    double bytes_per_s; /* of all ranks together; 0: not given */
};

struct merak_island {
    char name[MERAK_ISLAND_NAME];
    int nodes;
    char *hosts; /* their names; NULL: only the number was given */
};

struct merak_islands {
    int n;
    struct merak_island island[MERAK_MOST_ISLANDS]; /* as in the file */
    struct merak_island_way way[MERAK_MOST_ISLANDS][MERAK_MOST_ISLANDS];
    int at[MERAK_MOST_ISLANDS]; /* which of these has each place in the order
                                   of logical ranks */
};

/* MERAK_ERR_FORMAT names what is missing or wrong: a field, a pair. */
enum merak_status merak_islands_load(const char *path,
                                     struct merak_islands **islands_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* The same of a file that need not have "between": ways without a row are 0. */
enum merak_status
merak_islands_load_bare(const char *path, struct merak_islands **islands_p,
                        struct merak_error *err) MERAK_CHECKED;
/* Write such a file; "-" is standard output. */
enum merak_status merak_islands_save(const struct merak_islands *islands,
                                     const char *path,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_islands_destroy(struct merak_islands *islands);
/* All nodes together. */
int merak_islands_nodes(const struct merak_islands *islands);

/* A number from 1 on for the pair of the islands at two places, in any order;
 * 0: they are the same.  Places behind the last one have the slowest pair. */
int merak_islands_pair(const struct merak_islands *islands, int a, int b);
/* The slowest pair of all, and the slower of two pairs, or 0s. */
int merak_islands_slowest(const struct merak_islands *islands);
int merak_islands_slower(const struct merak_islands *islands, int a, int b);
const struct merak_island_way *
merak_islands_way(const struct merak_islands *islands, int pair);

/* What a pipeline sends from one place to another of a micro-batch, all ranks
 * together; 0: nothing. */
struct merak_island_hops {
    double bytes[MERAK_MOST_ISLANDS][MERAK_MOST_ISLANDS]; /* [from][to] */
};

/* How long hops take: the longest one, and all together. */
struct merak_island_order {
    double most_s, sum_s;
};

/*
 * Find the order in which a pipeline passes islands with the shortest longest
 * hop, and of those the shortest sum of hops: of up to seven islands the best
 * of all orders, of more a good one.  at, out: [n] as islands->at.
 */
struct merak_island_order
merak_islands_arrange(const struct merak_islands *islands,
                      const struct merak_island_hops *hops, int *at);
/* The same for an order that is given. */
struct merak_island_order
merak_islands_rate(const struct merak_islands *islands,
                   const struct merak_island_hops *hops, const int *at);
/* Seconds of one of the hops in this order. */
double merak_islands_hop_s(const struct merak_islands *islands,
                           const struct merak_island_hops *hops, const int *at,
                           int from, int to);

#endif
