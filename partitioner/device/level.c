/* SPDX-License-Identifier: Apache-2.0 */
/* level.c - what messages and exchanges take: rounds of latency, and bytes */
#include "config.h"

#include "partitioner/device/level.h"

#include <assert.h>
#include <math.h>

int merak_convert_rounds(enum merak_convert_kind kind)
{
    return kind == MERAK_CONVERT_ALL_REDUCE ? 2 : 1;
}

int merak_links_level(const struct merak_links *links, int a, int b)
{
    int l = 0;

    while (links->level[l].ranks > 0 &&
           a / links->level[l].ranks != b / links->level[l].ranks)
        l++;
    return l;
}

struct merak_spread merak_links_spread(const struct merak_links *links,
                                       int rank, const int *member, int n)
{
    struct merak_spread spread = {{0}};

    for (int i = 0; i < n; i++)
        spread.n[merak_links_level(links, rank, member[i])]++;
    return spread;
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
                                         int sharers)
{
    struct merak_links contended = *links;
    double way = links->level[0].way_bytes_per_s;
    double *own = &contended.level[1].bytes_per_s;

    if (way > 0 && *own > way / sharers)
        *own = way / sharers;
    return contended;
}

/* Rounds with `peer[l]` ranks that are met at level l, each of which gets the
 * same part of the bytes; `near` is level 0. */
static struct merak_demand demand_of(const struct merak_links *links,
                                     const struct merak_link_group *near,
                                     int rounds, double bytes,
                                     const struct merak_spread *peers)
{
    struct merak_demand demand = {0};
    double latency = peers->n[0] * near->latency_s, each;
    int n = peers->n[0];

    for (int l = 1; l < MERAK_LEVELS; l++) {
        n += peers->n[l];
        latency += peers->n[l] * links->level[l].latency_s;
    }
    each = bytes / n;
    for (int l = 1; l < MERAK_LEVELS; l++)
        demand.far_bytes[l - 1] = peers->n[l] * each;
    demand.fixed_s = rounds * latency;
    if (peers->n[0] > 0)
        demand.fixed_s +=
            (peers->n[0] == n ? bytes : peers->n[0] * each) / near->bytes_per_s;
    return demand;
}

struct merak_demand merak_links_message(const struct merak_links *links,
                                        int level, double bytes)
{
    const struct merak_link_group near = two_of(links);
    struct merak_spread peer = {{0}};

    peer.n[level] = 1;
    return demand_of(links, &near, 1, bytes, &peer);
}

void merak_links_use_library(struct merak_links *links, bool sums)
{
    links->rings = 1u << MERAK_CONVERT_ALL_GATHER;
    if (sums)
        links->rings |=
            1u << MERAK_CONVERT_ALL_REDUCE | 1u << MERAK_CONVERT_REDUCE_SCATTER;
}

/* Of a ring's n - 1 steps nodes - 1 go from a node to the next.  An all-reduce
 * may go up and down a tree of nodes instead, with less latency. */
static double ring_latency_s(const struct merak_links *links,
                             const struct merak_link_group *near,
                             enum merak_convert_kind kind, int n, int nodes)
{
    double far_s = links->level[1].latency_s;
    double ring = (n - nodes) * near->latency_s + (nodes - 1) * far_s;
    double tree =
        ((double)n / nodes - 1) * near->latency_s + ceil(log2(nodes)) * far_s;

    return merak_convert_rounds(kind) *
           (kind == MERAK_CONVERT_ALL_REDUCE ? fmin(ring, tree) : ring);
}

static_assert(MERAK_LEVELS == 2, "rings have steps in nodes and between nodes");

/* Over several nodes; a ring's hops inside nodes and between them are under way
 * at the same time, for different pieces. */
static struct merak_demand ring_demand(const struct merak_links *links,
                                       const struct merak_link_group *near,
                                       enum merak_convert_kind kind,
                                       double bytes,
                                       const struct merak_spread *spread)
{
    int here = spread->n[0], n = here + spread->n[1];
    double far = bytes / here, near_s = (bytes - far) / near->bytes_per_s;
    double more_s = near_s - far / links->level[1].bytes_per_s;

    return (struct merak_demand){
        .fixed_s = ring_latency_s(links, near, kind, n, (n + here - 1) / here) +
                   fmax(more_s, 0),
        .far_bytes[0] = far};
}

struct merak_demand merak_links_exchange(const struct merak_links *links,
                                         enum merak_convert_kind kind,
                                         double bytes,
                                         const struct merak_spread *spread)
{
    const struct merak_link_group near = merak_links_group(links, spread->n[0]);
    struct merak_spread peers = *spread;
    int n = --peers.n[0];

    for (int l = 1; l < MERAK_LEVELS; l++)
        n += peers.n[l];
    if (n < 1)
        return (struct merak_demand){0};
    if (n > peers.n[0] && (links->rings >> kind & 1) != 0)
        return ring_demand(links, &near, kind, bytes, spread);
    return demand_of(links, &near, merak_convert_rounds(kind), bytes, &peers);
}

bool merak_demand_is_far(const struct merak_demand *demand)
{
    for (int l = 1; l < MERAK_LEVELS; l++)
        if (demand->far_bytes[l - 1] > 0)
            return true;
    return false;
}

double merak_links_demand_s(const struct merak_links *links,
                            const struct merak_demand *demand)
{
    double seconds = demand->fixed_s;

    for (int l = 1; l < MERAK_LEVELS; l++)
        if (demand->far_bytes[l - 1] > 0)
            seconds += demand->far_bytes[l - 1] / links->level[l].bytes_per_s;
    return seconds;
}

double merak_links_message_s(const struct merak_links *links, int level,
                             double bytes)
{
    const struct merak_demand demand = merak_links_message(links, level, bytes);

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
