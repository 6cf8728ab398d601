/* SPDX-License-Identifier: Apache-2.0 */
/* job_links.c - the levels of a device's links, and those that a job has */
#include "config.h"

#include "partitioner/device/level.h"

#include "partitioner/device/island_ways.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static bool is_as_fast(const struct merak_level *a, const struct merak_level *b)
{
    return a->bytes_per_s == b->bytes_per_s && a->latency_s == b->latency_s;
}

int merak_links_near(const struct merak_links *links)
{
    int n = 1, last = merak_links_last(links);

    while (n < last && is_as_fast(&links->level[n], &links->level[0]))
        n++;
    return n;
}

void merak_links_scale(struct merak_links *links, double near, double far)
{
    int n = merak_links_near(links), last = merak_links_last(links);

    for (int l = 0; l <= last; l++) {
        links->level[l].bytes_per_s *= l < n ? near : far;
        links->level[l].way_bytes_per_s *= far;
    }
    links->way_times = far * (links->way_times > 0 ? links->way_times : 1);
    for (int g = 0; g < links->n_groups; g++)
        links->group[g].bytes_per_s *= near;
}

int merak_links_tensor_ranks(const struct merak_links *links)
{
    const double most = 4; /* times as fast as level 0 */
    int last = merak_links_last(links), l = 0;

    while (l + 1 < last) {
        double rate = links->level[l + 1].bytes_per_s;
        double way = links->level[l].way_bytes_per_s;

        if (way > 0)
            rate = fmin(rate, way / links->level[l].ranks);
        if (rate * most < links->level[0].bytes_per_s)
            break;
        l++;
    }
    return links->level[l].ranks;
}

enum merak_status merak_links_check(const struct merak_links *links,
                                    struct merak_error *err)
{
    int last = merak_links_last(links);

    for (int l = 1; l < last; l++) {
        const struct merak_level *in = &links->level[l - 1];
        const struct merak_level *level = &links->level[l];
        int times = (2 * level->ranks + in->ranks) / (2 * in->ranks);

        if (level->ranks % in->ranks == 0)
            continue;
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "level \"%s\" of %d ranks is not a multiple of level "
                          "\"%s\", %d; nearest: %d",
                          level->name, level->ranks, in->name, in->ranks,
                          (times > 1 ? times : 1) * in->ranks);
    }
    return MERAK_OK;
}

enum merak_status merak_links_set_islands(struct merak_links *links,
                                          const struct merak_islands *islands,
                                          int ranks_per_node,
                                          struct merak_error *err)
{
    int last = merak_links_last(links), at = 1;
    int ranks = islands->island[0].nodes * ranks_per_node;
    const struct merak_level net = links->level[last];

    while (at < last && links->level[at].ranks < ranks)
        at++;
    if (at + 1 >= MERAK_LEVELS)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "islands would be level %d of links; %d and the one "
                          "between them are the most: leave a level out",
                          at + 1, MERAK_LEVELS - 1);
    memset(&links->level[at], 0,
           (size_t)(MERAK_LEVELS - at) * sizeof(*links->level));
    links->level[at] = links->level[at + 1] = net;
    memcpy(links->level[at].name, "island", sizeof("island"));
    links->level[at].ranks = ranks;
    links->islands = islands;
    return merak_links_check(links, err);
}

bool merak_links_may_have(const struct merak_links *device, int nodes)
{
    return device->islands == NULL ||
           nodes <= device->islands->island[0].nodes ||
           nodes == merak_islands_nodes(device->islands);
}

/* Drop the levels between a node's and the last one; what nodes can send to
 * others is then the least that they could. */
static void drop_between(struct merak_links *links)
{
    int last = merak_links_last(links);
    struct merak_level *node = &links->level[0];

    for (int l = 1; l < last; l++) {
        const struct merak_level *level = &links->level[l];
        double way = level->way_bytes_per_s * node->ranks / level->ranks;

        if (way > 0 &&
            (node->way_bytes_per_s == 0 || way < node->way_bytes_per_s))
            node->way_bytes_per_s = way;
    }
    links->level[1] = links->level[last];
    memset(&links->level[2], 0, (MERAK_LEVELS - 2) * sizeof(*node));
}

void merak_links_set_rack(struct merak_links *links, int nodes)
{
    struct merak_level *node = &links->level[0];

    drop_between(links);
    if (nodes <= 1)
        return;
    links->level[2] = links->level[1];
    links->level[1] = *node;
    memcpy(links->level[1].name, "rack", sizeof("rack"));
    links->level[1].ranks *= nodes;
    links->level[1].way_bytes_per_s *= nodes;
    node->way_bytes_per_s = 0;
}

/* Add a level to a job's, whose domains have so many ranks. */
static void add(struct merak_links *job, int *at, const struct merak_level *row,
                int ranks, double way)
{
    struct merak_level *inside = &job->level[*at];

    if (ranks == inside->ranks) {
        if (way > 0 &&
            (inside->way_bytes_per_s == 0 || way < inside->way_bytes_per_s))
            inside->way_bytes_per_s = way;
        return;
    }
    if (!is_as_fast(row, inside) || inside->way_bytes_per_s > 0)
        job->level[++*at] = *row;
    job->level[*at].ranks = ranks;
    job->level[*at].way_bytes_per_s = way;
}

struct merak_links merak_links_of_job(const struct merak_links *device,
                                      int nodes, int ranks_per_node)
{
    struct merak_links job = *device;
    int last = merak_links_last(device), at = 0;
    int node = device->level[0].ranks, inside = 1; /* nodes of a domain */

    if (job.islands != NULL && nodes <= job.islands->island[0].nodes)
        job.islands = NULL; /* all are in one */
    job.level[0].ranks = ranks_per_node;
    node = node > ranks_per_node ? node : ranks_per_node;
    for (int l = 1; l < last; l++) {
        const struct merak_level *row = &device->level[l];
        int most = row->ranks / node, n = most / inside, ranks;
        double way;

        while (n > 1 && nodes / inside % n != 0)
            n--;
        inside *= n > 1 ? n : 1;
        ranks = inside * ranks_per_node;
        way = row->way_bytes_per_s;
        if (most > inside)
            way = way * inside / most;
        if (way >= ranks * row[1].bytes_per_s) /* it limits nothing */
            way = 0;
        add(&job, &at, row, ranks, way);
    }
    if (at == 0 || !is_as_fast(&device->level[last], &job.level[at]) ||
        job.level[at].way_bytes_per_s > 0 || job.islands != NULL)
        job.level[++at] = device->level[last];
    job.level[at].ranks = 0;
    memset(&job.level[at + 1], 0,
           (size_t)(MERAK_LEVELS - 1 - at) * sizeof(*job.level));
    return job;
}
