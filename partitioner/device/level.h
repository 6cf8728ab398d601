/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/device/level.h - the links between ranks, level by level
 *
 * Levels are rows, inside out: 0 is that of a node, the next one that between
 * nodes.  A level divides the logical ranks, in order, into domains of equal
 * size; two ranks communicate over the links of the first level of which one
 * domain holds both.  Whoever asks what a message, an exchange or a conversion
 * takes, asks here.
 */
#ifndef MERAK_PARTITIONER_DEVICE_LEVEL_H
#define MERAK_PARTITIONER_DEVICE_LEVEL_H

#include <stdbool.h>

/* What an exchange does, with the layouts that it converts (layout.h). */
enum merak_convert_kind {
    MERAK_CONVERT_NONE,
    MERAK_CONVERT_ALL_REDUCE,     /* P -> R */
    MERAK_CONVERT_REDUCE_SCATTER, /* P -> S, P -> F */
    MERAK_CONVERT_ALL_GATHER,     /* S -> R, F -> R */
    MERAK_CONVERT_ALL_TO_ALL,     /* S(a) -> S(b) */
    MERAK_CONVERT_SLICE,          /* R -> S, R -> F: local */
};

enum { MERAK_LEVELS = 2 };

struct merak_level {
    char name[8];           /* as in device files: "link", "net" */
    int ranks;              /* of a domain; 0: all, and further levels are not
                               read, as in the last row always */
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
    /* Groups of level 0 that were measured, by ranks; a group of another size
     * uses the nearest of these and of level 0, which is that of two. */
    struct merak_link_group group[MERAK_LINK_GROUPS];
    int n_groups;
};

#endif
