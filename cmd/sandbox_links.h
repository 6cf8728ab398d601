/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/sandbox_links.h - `merak sandbox --links FILE`: islands of nodes */
#ifndef MERAK_CMD_SANDBOX_LINKS_H
#define MERAK_CMD_SANDBOX_LINKS_H

#include "base/error.h"

enum { SANDBOX_MOST_NODES = 60 };

/* What the script is told of the file. */
struct sandbox_links {
    int nodes;                            /* of all islands */
    char islands[4 * SANDBOX_MOST_NODES]; /* numbers of nodes: "1 2;3 4" */
    char ways[8192]; /* each pair of islands, from 0 on, with bytes per second
                        and microseconds: "0 1 12500000 20000;.." */
};

/* Read a file of links between islands (partitioner/device/island_ways.h).
 * MERAK_ERR_CONFIG: what the file has cannot be had here; err says why. */
enum merak_status sandbox_links_read(const char *path,
                                     struct sandbox_links *links,
                                     struct merak_error *err) MERAK_CHECKED;

#endif
