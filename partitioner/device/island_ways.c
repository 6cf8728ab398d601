/* SPDX-License-Identifier: Apache-2.0 */
/* island_ways.c - ways between islands, and the order of islands in a pipeline
 */
#include "config.h"

#include "partitioner/device/island_ways.h"

#include <float.h>
#include <string.h>

int merak_islands_nodes(const struct merak_islands *islands)
{
    int nodes = 0;

    for (int i = 0; i < islands->n; i++)
        nodes += islands->island[i].nodes;
    return nodes;
}

/* --- pairs ---------------------------------------------------------------- */

static int number_of(int a, int b)
{
    return a < b ? a * MERAK_MOST_ISLANDS + b + 1
                 : b * MERAK_MOST_ISLANDS + a + 1;
}

const struct merak_island_way *
merak_islands_way(const struct merak_islands *islands, int pair)
{
    int a = (pair - 1) / MERAK_MOST_ISLANDS;
    int b = (pair - 1) % MERAK_MOST_ISLANDS;

    return &islands->way[islands->at[a]][islands->at[b]];
}

int merak_islands_slower(const struct merak_islands *islands, int a, int b)
{
    const struct merak_island_way *of_a, *of_b;

    if (a == 0 || b == 0)
        return a > b ? a : b;
    of_a = merak_islands_way(islands, a);
    of_b = merak_islands_way(islands, b);
    if (of_a->bytes_per_s != of_b->bytes_per_s)
        return of_a->bytes_per_s < of_b->bytes_per_s ? a : b;
    return of_a->latency_s >= of_b->latency_s ? a : b;
}

int merak_islands_slowest(const struct merak_islands *islands)
{
    int slowest = 0;

    for (int a = 0; a < islands->n; a++) {
        for (int b = a + 1; b < islands->n; b++)
            slowest = merak_islands_slower(islands, slowest, number_of(a, b));
    }
    return slowest;
}

int merak_islands_pair(const struct merak_islands *islands, int a, int b)
{
    if (a == b)
        return 0;
    return a < islands->n && b < islands->n ? number_of(a, b)
                                            : merak_islands_slowest(islands);
}

/* --- order ---------------------------------------------------------------- */

enum { FEW = 7 }; /* islands of which all orders are tried */

/* A search for an order. */
struct arranging {
    const struct merak_islands *islands;
    const struct merak_island_hops *hops;
    struct merak_island_order best;
    int *best_at;
    int at[MERAK_MOST_ISLANDS]; /* that is tried */
};

double merak_islands_hop_s(const struct merak_islands *islands,
                           const struct merak_island_hops *hops, const int *at,
                           int from, int to)
{
    const struct merak_island_way *way = &islands->way[at[from]][at[to]];
    double bytes = hops->bytes[from][to];

    return bytes > 0 ? way->latency_s + bytes / way->bytes_per_s : 0;
}

/* Add the hops between a place and those before it. */
static void add_hops(const struct merak_islands *islands,
                     const struct merak_island_hops *hops, const int *at,
                     int place, struct merak_island_order *order)
{
    for (int k = 0; k < place; k++) {
        const double hop_s[] = {
            merak_islands_hop_s(islands, hops, at, k, place),
            merak_islands_hop_s(islands, hops, at, place, k)};

        for (int w = 0; w < 2; w++) {
            order->sum_s += hop_s[w];
            if (hop_s[w] > order->most_s)
                order->most_s = hop_s[w];
        }
    }
}

struct merak_island_order
merak_islands_rate(const struct merak_islands *islands,
                   const struct merak_island_hops *hops, const int *at)
{
    struct merak_island_order order = {0, 0};

    for (int place = 0; place < islands->n; place++)
        add_hops(islands, hops, at, place, &order);
    return order;
}

static bool is_less(const struct merak_island_order *a,
                    const struct merak_island_order *b)
{
    return a->most_s < b->most_s ||
           (a->most_s == b->most_s && a->sum_s < b->sum_s);
}

static void swap(int *a, int *b)
{
    int was = *a;

    *a = *b;
    *b = was;
}

/* Try all orders of the places from k on, after hops between those before. */
static void try_all(struct arranging *a, int k, struct merak_island_order order)
{
    int n = a->islands->n;

    if (!is_less(&order, &a->best))
        return;
    if (k == n) {
        a->best = order;
        memcpy(a->best_at, a->at, (size_t)n * sizeof(*a->at));
        return;
    }
    for (int i = k; i < n; i++) {
        struct merak_island_order with = order;

        swap(&a->at[k], &a->at[i]);
        add_hops(a->islands, a->hops, a->at, k, &with);
        try_all(a, k + 1, with);
        swap(&a->at[k], &a->at[i]);
    }
}

/* From each island on to the one with the fastest way. */
static void follow_fastest(struct arranging *a, int first)
{
    int n = a->islands->n;

    for (int i = 0; i < n; i++)
        a->at[i] = i;
    swap(&a->at[0], &a->at[first]);
    for (int k = 1; k < n; k++) {
        const struct merak_island_way *way = a->islands->way[a->at[k - 1]];
        int best = k;

        for (int i = k + 1; i < n; i++) {
            if (way[a->at[i]].bytes_per_s > way[a->at[best]].bytes_per_s)
                best = i;
        }
        swap(&a->at[k], &a->at[best]);
    }
}

static void reverse(int *at, int from, int to)
{
    for (; from < to; from++, to--)
        swap(&at[from], &at[to]);
}

/* Reverse runs of places while that is better. */
static struct merak_island_order two_opt(struct arranging *a)
{
    struct merak_island_order best =
        merak_islands_rate(a->islands, a->hops, a->at);
    bool better = true;
    int n = a->islands->n;

    while (better) {
        better = false;
        for (int from = 0; from < n; from++) {
            for (int to = from + 1; to < n; to++) {
                struct merak_island_order now;

                reverse(a->at, from, to);
                now = merak_islands_rate(a->islands, a->hops, a->at);
                if (is_less(&now, &best)) {
                    best = now;
                    better = true;
                } else {
                    reverse(a->at, from, to);
                }
            }
        }
    }
    return best;
}

struct merak_island_order
merak_islands_arrange(const struct merak_islands *islands,
                      const struct merak_island_hops *hops, int *at)
{
    struct arranging a = {.islands = islands,
                          .hops = hops,
                          .best = {DBL_MAX, DBL_MAX},
                          .best_at = at};
    int n = islands->n;

    for (int i = 0; i < n; i++)
        a.at[i] = at[i] = i;
    if (n <= FEW)
        try_all(&a, 0, (struct merak_island_order){0, 0});
    for (int first = 0; n > FEW && first < n; first++) {
        struct merak_island_order order;

        follow_fastest(&a, first);
        order = two_opt(&a);
        if (!is_less(&order, &a.best))
            continue;
        a.best = order;
        memcpy(at, a.at, (size_t)n * sizeof(*at));
    }
    return a.best;
}
