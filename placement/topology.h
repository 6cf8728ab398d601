/* SPDX-License-Identifier: Apache-2.0 */
/* placement/topology.h - the switch tree, from Slurm's text
 *
 * Reads topology.conf and what `scontrol -o show topology` prints, of the
 * tree and block plugins.  A node's place is its path, the names of the
 * switches from the root to the leaf, "root.leaf1"; "" where unknown.
 */
#ifndef MERAK_PLACEMENT_TOPOLOGY_H
#define MERAK_PLACEMENT_TOPOLOGY_H

#include <stddef.h>

#include "merak/status.h"

struct merak_topology;

/*
 * Parse lines "SwitchName=NAME Nodes=LIST | Switches=LIST ..." or
 * "BlockName=NAME Nodes=LIST"; other keys and comments are passed over.
 * MERAK_ERR_FORMAT names the line.
 */
enum merak_status merak_topology_parse(const char *text,
                                       struct merak_topology **topology_p,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_topology_destroy(struct merak_topology *topology);

/* The path of a node into path[size]; MERAK_ERR_NOT_FOUND (and "") for a
 * node that no leaf lists. */
enum merak_status merak_topology_path(const struct merak_topology *topology,
                                      const char *node, char *path,
                                      size_t size) MERAK_CHECKED;

#endif
