/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/device/level.h - the links between ranks, level by level
 *
 * Levels are rows, inside out: 0 is that of a node, or of nodes whose links are
 * as fast; the next ones are those between these, as inside a rack or below a
 * leaf switch; the last one is that between all.  A level divides the logical
 * ranks, in order, into domains of equal size; two ranks communicate over the
 * links of the first level of which one domain holds both.  Whoever asks what a
 * message, an exchange or a conversion takes, asks here.
 */
#ifndef MERAK_PARTITIONER_DEVICE_LEVEL_H
#define MERAK_PARTITIONER_DEVICE_LEVEL_H

#include "base/error.h"

#include <stdbool.h>

struct merak_islands; /* island_ways.h */

/* What an exchange does, with the layouts that it converts (layout.h). */
enum merak_convert_kind {
    MERAK_CONVERT_NONE,
    MERAK_CONVERT_ALL_REDUCE,     /* P -> R */
    MERAK_CONVERT_REDUCE_SCATTER, /* P -> S, P -> F */
    MERAK_CONVERT_ALL_GATHER,     /* S -> R, F -> R */
    MERAK_CONVERT_ALL_TO_ALL,     /* S(a) -> S(b) */
    MERAK_CONVERT_SLICE,          /* R -> S, R -> F: local */
    MERAK_CONVERT_HALO,           /* S -> S with parts of neighbours' */
};

enum { MERAK_LEVELS = 5 };

struct merak_level {
    char name[8];           /* as in device files: "link", "net" */
    int ranks;              /* of a domain; 0: all, as in the last row that is
                               used; there is always a row 1 */
    double latency_s;       /* of a round, for each peer */
    double bytes_per_s;     /* of one rank */
    double way_bytes_per_s; /* of all ranks of a domain together, to ranks
                               outside of it; 0: not limited */
};

/* Exchanges among `ranks` ranks of one node, whose communication threads may
 * have to share cores. */
struct merak_link_group {
    int ranks;
    double latency_s; /* of a round, for each peer */
    double bytes_per_s;
};

enum { MERAK_LINK_GROUPS = 8 };

struct merak_links {
    struct merak_level level[MERAK_LEVELS];
    double shared_bytes_per_s[MERAK_LEVELS]; /* what a rank has of its domain's
                                                way out; 0: not limited */
    /* Groups of level 0 that were measured, by ranks; a group of another size
     * uses the nearest of these and of level 0, which is that of two. */
    struct merak_link_group group[MERAK_LINK_GROUPS];
    int n_groups;
    unsigned rings; /* kinds of exchanges, a bit each, that a library does in
                       rings: its members send to the next one, not to all */
    /* Of the domains inside the last level: what joins each pair of them,
     * instead of what that level's row says but for the rate of a rank's own
     * link; borrowed.  NULL: all pairs are alike. */
    const struct merak_islands *islands;
    double way_sharers; /* ranks that use such a pair's way at once; 0: 1 */
    double way_times;   /* as fast as the islands' say; 0: 1 */
};

/* The members of an exchange, by the level at which one of them meets them;
 * itself counts at level 0. */
struct merak_spread {
    int n[MERAK_LEVELS];
    int pair; /* the slowest pair of islands among them; 0: not known */
};

/* The rate of the way between two islands. */
double merak_links_way(const struct merak_links *links, int pair);

/* What an exchange or a message takes of one rank: seconds that do not depend
 * on other traffic, and bytes over the links of levels 1 and up, whose rates
 * do.  Searches hold millions of them. */
struct merak_demand {
    double fixed_s;
    double far_bytes;             /* all that leave level 0's domain */
    float part[MERAK_LEVELS - 2]; /* of these, at levels 2 and up */
    int pair; /* of islands, whose way those of the last level take; 0: none */
};

/* An all-reduce reduces, then gathers: 2; else 1. */
int merak_convert_rounds(enum merak_convert_kind kind);
/* The last level that is used, at least 1. */
int merak_links_last(const struct merak_links *links);
/* The level at which two logical ranks meet; 0: on one node. */
int merak_links_level(const struct merak_links *links, int a, int b);
/* The pair of islands that they are in (island_ways.h); 0: one, or there are none.
 */
int merak_links_pair(const struct merak_links *links, int a, int b);
struct merak_spread merak_links_spread(const struct merak_links *links,
                                       int rank, const int *member, int n);
/* The slowest pair of islands among n ranks, each so far from the one before.
 */
int merak_links_slowest_pair(const struct merak_links *links, int first,
                             int stride, int n);
/* Level 0 as seen by an exchange among `n` ranks of a node. */
struct merak_link_group merak_links_group(const struct merak_links *links,
                                          int n);
/* The links of ranks of which sharers->n[l] leave their domain of level l at
 * once. */
struct merak_links merak_links_contended(const struct merak_links *links,
                                         const struct merak_spread *sharers);
/* How many levels from 0 on have the same rates, as inside nodes and between
 * the nodes of a rack; never the last one. */
int merak_links_near(const struct merak_links *links);
/* Make the rates of these, and of all others, so many times as high. */
void merak_links_scale(struct merak_links *links, double near, double far);
/* Let the links of a node join so many nodes, as NVLink does in a rack, instead
 * of what they join now; 1: none.  Other levels up to the last are dropped. */
void merak_links_set_rack(struct merak_links *links, int nodes);
/* Add islands, of nodes of so many ranks, as the outermost level but one; their
 * ranks are as far from each other as those of the last level were.  Borrowed.
 * MERAK_ERR_FORMAT if levels inside do not divide them, or are too many. */
enum merak_status
merak_links_set_islands(struct merak_links *links,
                        const struct merak_islands *islands, int ranks_per_node,
                        struct merak_error *err) MERAK_CHECKED;
/* May a job have so many of a device's nodes?  With islands those of all, or of
 * one at most. */
bool merak_links_may_have(const struct merak_links *device, int nodes);
/* The ranks of a domain whose links are not much slower than those of level 0,
 * so that tensor ranks may be anywhere in it. */
int merak_links_tensor_ranks(const struct merak_links *links);
/* MERAK_ERR_FORMAT if the domains of a level are not made of whole ones of the
 * level inside. */
enum merak_status merak_links_check(const struct merak_links *links,
                                    struct merak_error *err) MERAK_CHECKED;
/* The levels that a job of so many nodes has: those of a device, whose level 0
 * is a node, with domains that divide the job's nodes evenly, and with as much
 * of their way out as the job has of their nodes.  A level between whose
 * domains links are as fast as inside them is one with them. */
struct merak_links merak_links_of_job(const struct merak_links *device,
                                      int nodes, int ranks_per_node);
/* Gathers are the library's, and with `sums` sums, too, in its own order. */
void merak_links_use_library(struct merak_links *links, bool sums);
/* A message to a rank that is met at this level: also a hop, whose words a rank
 * sends along a ring.  Between islands that are not known it takes the slowest
 * way; so does an exchange. */
struct merak_demand merak_links_message(const struct merak_links *links,
                                        int level, double bytes);
/* A message from one logical rank to another. */
struct merak_demand merak_links_transfer(const struct merak_links *links, int a,
                                         int b, double bytes);
/* A collective whose members each send a total of `bytes`: evenly to all
 * others; or along rings, as many as a node has members, in each of which
 * another of these sends to the next node: its adapter has 1 part in so many of
 * the bytes, and links of the node move the others meanwhile.  Of the members
 * of a larger domain, too, one in each ring sends to the next domain. */
struct merak_demand merak_links_exchange(const struct merak_links *links,
                                         enum merak_convert_kind kind,
                                         double bytes,
                                         const struct merak_spread *spread);
static inline bool merak_demand_is_far(const struct merak_demand *demand)
{
    return demand->far_bytes > 0;
}
/* Which part of its far bytes goes over links of a level from 1 on. */
double merak_demand_part(const struct merak_demand *demand, int level);
/* The seconds of a demand with no other traffic, and of the two above.  Bytes
 * take the time that they need on a rank's own links, one after another, or
 * that of a way out of a domain if it is longer. */
double merak_links_demand_s(const struct merak_links *links,
                            const struct merak_demand *demand);
double merak_links_message_s(const struct merak_links *links, int level,
                             double bytes);
double merak_links_transfer_s(const struct merak_links *links, int a, int b,
                              double bytes);
double merak_links_exchange_s(const struct merak_links *links,
                              enum merak_convert_kind kind, double bytes,
                              const struct merak_spread *spread);

#endif
