/* SPDX-License-Identifier: Apache-2.0 */
/* placement/topology.h - the switch tree, from Slurm's text
 *
 * Reads topology.conf and the output of `scontrol -o show topology`, for the
 * tree and block plugins.  A node's location is its path, the names of the
 * switches from the root to the leaf, "root.leaf1"; "" if unknown.
 */
#ifndef MERAK_PLACEMENT_TOPOLOGY_H
#define MERAK_PLACEMENT_TOPOLOGY_H

#include <stddef.h>

#include "merak/status.h"

struct merak_topology;

/*
 * Parse lines "SwitchName=NAME Nodes=LIST | Switches=LIST ..." or
 * "BlockName=NAME Nodes=LIST"; other keys and comments are ignored.
 * MERAK_ERR_FORMAT names the line.
 */
enum merak_status merak_topology_parse(const char *text,
                                       struct merak_topology **topology_p,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_topology_destroy(struct merak_topology *topology);

/* Write the path of a node to path[size]; MERAK_ERR_NOT_FOUND (and "") for a
 * node that no leaf lists. */
enum merak_status merak_topology_path(const struct merak_topology *topology,
                                      const char *node, char *path,
                                      size_t size) MERAK_CHECKED;

#endif
