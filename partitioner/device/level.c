/* SPDX-License-Identifier: Apache-2.0 */
/* level.c - what messages and exchanges take: rounds of latency, and bytes */
#include "config.h"

#include "partitioner/device/level.h"

#include "partitioner/device/island_ways.h"

#include <math.h>

int merak_convert_rounds(enum merak_convert_kind kind)
{
    return kind == MERAK_CONVERT_ALL_REDUCE ? 2 : 1;
}

int merak_links_last(const struct merak_links *links)
{
    int l = 1;

    while (l < MERAK_LEVELS - 1 && links->level[l].ranks > 0)
        l++;
    return l;
}

int merak_links_level(const struct merak_links *links, int a, int b)
{
    int l = 0;

    while (links->level[l].ranks > 0 &&
           a / links->level[l].ranks != b / links->level[l].ranks)
        l++;
    return l;
}

int merak_links_pair(const struct merak_links *links, int a, int b)
{
    int ranks;

    if (links->islands == NULL)
        return 0;
    ranks = links->level[merak_links_last(links) - 1].ranks;
    return ranks > 0 ? merak_islands_pair(links->islands, a / ranks, b / ranks)
                     : 0;
}

/* The island's place that a rank is in, as a bit; one for all that do not
 * exist. */
static unsigned island_of(const struct merak_links *links, int rank)
{
    int ranks = links->level[merak_links_last(links) - 1].ranks;
    int place = ranks > 0 ? rank / ranks : 0;

    return 1u << (place < MERAK_MOST_ISLANDS ? place : MERAK_MOST_ISLANDS);
}

/* The slowest pair of these. */
static int slowest_pair(const struct merak_links *links, unsigned in)
{
    int slowest = 0;

    for (int a = 0; a <= MERAK_MOST_ISLANDS; a++) {
        for (int b = a + 1; b <= MERAK_MOST_ISLANDS; b++) {
            if ((in >> a & 1) != 0 && (in >> b & 1) != 0)
                slowest = merak_islands_slower(
                    links->islands, slowest,
                    merak_islands_pair(links->islands, a, b));
        }
    }
    return slowest;
}

struct merak_spread merak_links_spread(const struct merak_links *links,
                                       int rank, const int *member, int n)
{
    struct merak_spread spread = {.n = {0}};

    for (int i = 0; i < n; i++)
        spread.n[merak_links_level(links, rank, member[i])]++;
    if (links->islands != NULL && spread.n[merak_links_last(links)] > 0) {
        unsigned in = 0;

        for (int i = 0; i < n; i++)
            in |= island_of(links, member[i]);
        spread.pair = slowest_pair(links, in);
    }
    return spread;
}

int merak_links_slowest_pair(const struct merak_links *links, int first,
                             int stride, int n)
{
    unsigned in = 0;

    if (links->islands == NULL)
        return 0;
    for (int i = 0; i < n; i++)
        in |= island_of(links, first + i * stride);
    return slowest_pair(links, in);
}

static struct merak_link_group two_of(const struct merak_links *links)
{
    return (struct merak_link_group){2, links->level[0].latency_s,
                                     links->level[0].bytes_per_s};
}

struct merak_link_group merak_links_group(const struct merak_links *links,
                                          int n)
{
    struct merak_link_group best = two_of(links);
    double least;

    if (links->n_groups == 0)
        return best;
    least = fabs(log((double)n / 2));
    for (int i = 0; i < links->n_groups; i++) {
        double off = fabs(log((double)n / links->group[i].ranks));

        if (off > least)
            continue;
        best = links->group[i];
        least = off;
    }
    return best;
}

struct merak_links merak_links_contended(const struct merak_links *links,
                                         const struct merak_spread *sharers)
{
    struct merak_links contended = *links;
    int last = merak_links_last(links);

    for (int l = 0; l < last; l++) {
        double way = links->level[l].way_bytes_per_s;

        contended.shared_bytes_per_s[l] = way > 0 ? way / sharers->n[l] : 0;
    }
    contended.way_sharers = sharers->n[last - 1];
    return contended;
}

/* The pair of islands whose way is taken by peers that are met at the last
 * level; 0: none are, or there are no islands. */
static int pair_of(const struct merak_links *links,
                   const struct merak_spread *peers)
{
    if (links->islands == NULL || peers->n[merak_links_last(links)] == 0)
        return 0;
    return peers->pair > 0 ? peers->pair
                           : merak_islands_slowest(links->islands);
}

static double latency_s(const struct merak_links *links, int level, int pair)
{
    return pair > 0 && level == merak_links_last(links)
               ? merak_islands_way(links->islands, pair)->latency_s
               : links->level[level].latency_s;
}

/* Rounds with `peer[l]` ranks that are met at level l, each of which gets the
 * same part of the bytes; `near` is level 0. */
static struct merak_demand demand_of(const struct merak_links *links,
                                     const struct merak_link_group *near,
                                     int rounds, double bytes,
                                     const struct merak_spread *peers)
{
    struct merak_demand demand = {.pair = pair_of(links, peers)};
    double latency = peers->n[0] * near->latency_s, each;
    int last = merak_links_last(links), far = 0, n;

    for (int l = 1; l <= last; l++) {
        far += peers->n[l];
        latency += peers->n[l] * latency_s(links, l, demand.pair);
    }
    n = peers->n[0] + far;
    each = bytes / n;
    demand.far_bytes = far * each;
    for (int l = 2; l <= last && far > 0; l++)
        demand.part[l - 2] = (float)peers->n[l] / (float)far;
    demand.fixed_s = rounds * latency;
    if (peers->n[0] > 0)
        demand.fixed_s +=
            (far == 0 ? bytes : peers->n[0] * each) / near->bytes_per_s;
    return demand;
}

static struct merak_demand message(const struct merak_links *links, int level,
                                   int pair, double bytes)
{
    const struct merak_link_group near = two_of(links);
    struct merak_spread peer = {.pair = pair};

    peer.n[level] = 1;
    return demand_of(links, &near, 1, bytes, &peer);
}

struct merak_demand merak_links_message(const struct merak_links *links,
                                        int level, double bytes)
{
    return message(links, level, 0, bytes);
}

struct merak_demand merak_links_transfer(const struct merak_links *links, int a,
                                         int b, double bytes)
{
    return message(links, merak_links_level(links, a, b),
                   merak_links_pair(links, a, b), bytes);
}

void merak_links_use_library(struct merak_links *links, bool sums)
{
    links->rings = 1u << MERAK_CONVERT_ALL_GATHER;
    if (sums)
        links->rings |=
            1u << MERAK_CONVERT_ALL_REDUCE | 1u << MERAK_CONVERT_REDUCE_SCATTER;
}

/* --- rings -----------------------------------------------------------------
 */

/* The domains of each level that a ring's members are in. */
struct ring {
    int last, n; /* the last level; the members */
    int domains[MERAK_LEVELS];
};

static struct ring ring_of(const struct merak_links *links,
                           const struct merak_spread *spread)
{
    struct ring ring = {.last = merak_links_last(links)};
    int size = 0;

    for (int l = 0; l <= ring.last; l++)
        ring.n += spread->n[l];
    for (int l = 0; l <= ring.last; l++) {
        size += spread->n[l];
        ring.domains[l] = (ring.n + size - 1) / size;
    }
    return ring;
}

/* Of a ring's n - 1 steps one less than there are nodes go from a node to the
 * next, and so on.  An all-reduce may go up and down a tree of nodes instead,
 * with less latency. */
static double ring_latency_s(const struct merak_links *links,
                             const struct merak_link_group *near,
                             enum merak_convert_kind kind,
                             const struct ring *ring, int pair)
{
    int n = ring->n, nodes = ring->domains[0];
    double along = (n - nodes) * near->latency_s;
    double tree = ((double)n / nodes - 1) * near->latency_s;

    for (int l = 1; l <= ring->last; l++) {
        int in = ring->domains[l - 1], out = ring->domains[l];

        along += (in - out) * latency_s(links, l, pair);
        tree += (ceil(log2(in)) - ceil(log2(out))) * latency_s(links, l, pair);
    }
    return merak_convert_rounds(kind) *
           (kind == MERAK_CONVERT_ALL_REDUCE ? fmin(along, tree) : along);
}

/* Which part of what a node sends to the next one leaves the domain of a level
 * from 0 on. */
static double leaves(const struct ring *ring, int level)
{
    return ring->domains[level] > 1
               ? (double)ring->domains[level] / ring->domains[0]
               : 0;
}

/* Over several nodes; a ring's hops at all levels are under way at the same
 * time, for different pieces: the slowest sets the pace. */
static struct merak_demand ring_demand(const struct merak_links *links,
                                       const struct merak_link_group *near,
                                       enum merak_convert_kind kind,
                                       double bytes,
                                       const struct merak_spread *spread)
{
    const struct ring ring = ring_of(links, spread);
    double far = bytes / spread->n[0];
    double slowest_s = (bytes - far) / near->bytes_per_s;
    struct merak_demand demand = {.far_bytes = far,
                                  .pair = pair_of(links, spread)};

    for (int l = 1; l <= ring.last && ring.domains[l - 1] > 1; l++) {
        if (l > 1)
            demand.part[l - 2] =
                (float)(leaves(&ring, l - 1) - leaves(&ring, l));
        slowest_s = fmax(slowest_s, far / links->level[l].bytes_per_s);
    }
    demand.fixed_s = ring_latency_s(links, near, kind, &ring, demand.pair) +
                     fmax(slowest_s - merak_links_demand_s(links, &demand), 0);
    return demand;
}

struct merak_demand merak_links_exchange(const struct merak_links *links,
                                         enum merak_convert_kind kind,
                                         double bytes,
                                         const struct merak_spread *spread)
{
    const struct merak_link_group near = merak_links_group(links, spread->n[0]);
    struct merak_spread peers = *spread;
    int far = 0, last = merak_links_last(links);

    peers.n[0]--;
    for (int l = 1; l <= last; l++)
        far += peers.n[l];
    if (peers.n[0] + far < 1)
        return (struct merak_demand){0};
    if (far > 0 && (links->rings >> kind & 1) != 0)
        return ring_demand(links, &near, kind, bytes, spread);
    return demand_of(links, &near, merak_convert_rounds(kind), bytes, &peers);
}

double merak_demand_part(const struct merak_demand *demand, int level)
{
    double first = 1;

    if (level > 1)
        return demand->part[level - 2];
    for (int l = 2; l < MERAK_LEVELS; l++)
        first -= demand->part[l - 2];
    return first;
}

double merak_links_way(const struct merak_links *links, int pair)
{
    return merak_islands_way(links->islands, pair)->bytes_per_s *
           (links->way_times > 0 ? links->way_times : 1);
}

double merak_links_demand_s(const struct merak_links *links,
                            const struct merak_demand *demand)
{
    double own_s = 0, way_s = 0, out = 0; /* bytes that leave the domain */

    if (!merak_demand_is_far(demand))
        return demand->fixed_s;
    for (int l = merak_links_last(links); l >= 1; l--) {
        double bytes = l > 1 ? demand->part[l - 2] * demand->far_bytes
                             : demand->far_bytes - out;
        double way = links->shared_bytes_per_s[l - 1];

        own_s += bytes / links->level[l].bytes_per_s;
        out = l > 1 ? out + bytes : demand->far_bytes;
        if (way > 0)
            way_s = fmax(way_s, out / way);
        if (demand->pair > 0 && l == merak_links_last(links))
            way_s = fmax(way_s, out * fmax(links->way_sharers, 1) /
                                    merak_links_way(links, demand->pair));
    }
    return demand->fixed_s + fmax(own_s, way_s);
}

double merak_links_message_s(const struct merak_links *links, int level,
                             double bytes)
{
    const struct merak_demand demand = merak_links_message(links, level, bytes);

    return merak_links_demand_s(links, &demand);
}

double merak_links_transfer_s(const struct merak_links *links, int a, int b,
                              double bytes)
{
    const struct merak_demand demand = merak_links_transfer(links, a, b, bytes);

    return merak_links_demand_s(links, &demand);
}

double merak_links_exchange_s(const struct merak_links *links,
                              enum merak_convert_kind kind, double bytes,
                              const struct merak_spread *spread)
{
    const struct merak_demand demand =
        merak_links_exchange(links, kind, bytes, spread);

    return merak_links_demand_s(links, &demand);
}
