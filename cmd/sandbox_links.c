/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_links.c - `merak sandbox --links FILE`: the file that plans read
 *
 * Nodes of a sandbox are called n1, n2, ..: islands have these, by their names
 * or, where a file has only numbers of nodes, one island's after another's.
 */
#include "config.h"

#include "cmd/sandbox_links.h"

#include "partitioner/device/island_ways.h"
#include "placement/hostlist.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a way, in bytes per second: those of --link-gbit. */
#define LEAST_RATE 1.25e5
#define MOST_RATE 1.25e10

/* The number in a node's name; 0: it is none of a sandbox's. */
static int number_of(const char *name, int nodes)
{
    char *end;
    long n = name[0] == 'n' && name[1] >= '1' && name[1] <= '9'
                 ? strtol(name + 1, &end, 10)
                 : 0;

    return n >= 1 && n <= nodes && *end == '\0' ? (int)n : 0;
}

static void add_node(struct sandbox_links *links, int node)
{
    size_t n = strlen(links->islands);

    snprintf(links->islands + n, sizeof(links->islands) - n, "%d ", node);
}

static enum merak_status add_named(struct sandbox_links *links,
                                   const struct merak_island *island,
                                   bool *taken, struct merak_error *err)
{
    struct merak_hostlist list = {0};
    enum merak_status rc =
        merak_hostlist_expand(island->hosts, links->nodes, &list, err);

    for (int i = 0; rc == MERAK_OK && i < list.n; i++) {
        int node = number_of(list.name[i], links->nodes);

        if (node == 0)
            rc = merak_fail(err, MERAK_ERR_CONFIG,
                            "island \"%s\" has node %.60s, and a sandbox has "
                            "n[1-%d]: give these names, or each island's "
                            "number of nodes",
                            island->name, list.name[i], links->nodes);
        else if (taken[node])
            rc = merak_fail(err, MERAK_ERR_CONFIG,
                            "node n%d is in two islands, or twice in \"%s\"",
                            node, island->name);
        if (rc != MERAK_OK)
            break;
        taken[node] = true;
        add_node(links, node);
    }
    merak_hostlist_fini(&list);
    return rc;
}

static enum merak_status add_islands(struct sandbox_links *links,
                                     const struct merak_islands *islands,
                                     struct merak_error *err)
{
    bool taken[SANDBOX_MOST_NODES + 1] = {false};
    enum merak_status rc = MERAK_OK;
    int named = 0;

    for (int i = 0; i < islands->n; i++)
        named += islands->island[i].hosts != NULL;
    if (named > 0 && named < islands->n)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d of %d islands have names of nodes: give those "
                          "of all, or only numbers",
                          named, islands->n);
    for (int i = 0, next = 1; i < islands->n && rc == MERAK_OK; i++) {
        if (i > 0)
            strcat(links->islands, ";");
        if (named > 0)
            rc = add_named(links, &islands->island[i], taken, err);
        for (int k = 0; named == 0 && k < islands->island[i].nodes; k++)
            add_node(links, next++);
    }
    return rc;
}

static enum merak_status add_ways(struct sandbox_links *links,
                                  const struct merak_islands *islands,
                                  struct merak_error *err)
{
    size_t n = 0;

    for (int a = 0; a < islands->n; a++) {
        for (int b = a + 1; b < islands->n; b++) {
            const struct merak_island_way *way = &islands->way[a][b];

            if (way->bytes_per_s < LEAST_RATE || way->bytes_per_s > MOST_RATE ||
                way->latency_s > 10)
                return merak_fail(
                    err, MERAK_ERR_CONFIG,
                    "between \"%s\" and \"%s\": %g bytes/s and %g s; a sandbox "
                    "has links of %g to %g bytes/s, and of 10 s at most",
                    islands->island[a].name, islands->island[b].name,
                    way->bytes_per_s, way->latency_s, LEAST_RATE, MOST_RATE);
            n += (size_t)snprintf(links->ways + n, sizeof(links->ways) - n,
                                  "%s%d %d %.0f %.0f", n > 0 ? ";" : "", a, b,
                                  way->bytes_per_s, way->latency_s * 1e6);
        }
    }
    return MERAK_OK;
}

enum merak_status sandbox_links_read(const char *path,
                                     struct sandbox_links *links,
                                     struct merak_error *err)
{
    struct merak_islands *islands = NULL;
    enum merak_status rc = merak_islands_load(path, &islands, err);

    if (rc != MERAK_OK)
        return rc;
    memset(links, 0, sizeof(*links));
    links->nodes = merak_islands_nodes(islands);
    if (links->nodes > SANDBOX_MOST_NODES)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "%s: %d nodes together; a sandbox has %d at most", path,
                        links->nodes, SANDBOX_MOST_NODES);
    if (rc == MERAK_OK)
        rc = add_islands(links, islands, err);
    if (rc == MERAK_OK)
        rc = add_ways(links, islands, err);
    merak_islands_destroy(islands);
    return rc;
}
