/* SPDX-License-Identifier: Apache-2.0 */
/* placement/placement_impl.h - internal to this folder */
#ifndef MERAK_PLACEMENT_INTERNAL_H
#define MERAK_PLACEMENT_INTERNAL_H

#include "placement/placement.h"

/* What is requested as the codec has it, up to the domain and its slash. */
void merak_input_write(FILE *out, const struct merak_placement_input *input);
/* "tp=2 x pp=4", with cp and ep only where they are more than 1; 0: "auto". */
#define MERAK_GROUP_TEXT 80
void merak_group_text(int tp, int cp, int ep, int pp,
                      char text[MERAK_GROUP_TEXT]);

/*
 * Nodes in tree order, and how much of their paths they share.
 *
 * prefix[place * depth + d] numbers the distinct path prefixes of d + 1
 * switches: two nodes have the same switch at depth d if and only if the
 * numbers are equal.  Below the end of a shorter path numbers are unique.
 */
struct merak_walk {
    int n_nodes, depth;
    int *node;     /* [n_nodes]: node at each place in the walk */
    int *place_of; /* [n_nodes]: place of each node in the walk */
    int *prefix;   /* [n_nodes * depth] */
};

enum merak_status merak_walk_init(struct merak_walk *walk,
                                  const struct merak_site *site,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_walk_fini(struct merak_walk *walk);
/* The level of two places: how far apart their nodes are. */
int merak_walk_level(const struct merak_walk *walk, int a, int b);

/*
 * Divide islands into groups of `group` so that few groups span switches.
 *
 *   count  in   islands of the node at each place in the walk
 *   order  out  [sum of count] island numbers (numbered along the walk);
 *               group g is order[g * group .. (g + 1) * group)
 */
enum merak_status merak_pack_islands(const struct merak_walk *walk,
                                     const int *count, int group, int *order,
                                     struct merak_error *err) MERAK_CHECKED;

/* The grid of stages and replicas, and the weights of links between islands. */
struct merak_grid {
    const struct merak_walk *walk;
    const int *place; /* [pp * dp][width]: of each island's members */
    int width;        /* 1 if all members of an island are on one node */
    int pp, dp;
    int64_t pp_weight, dp_weight; /* at most MERAK_MAX_WEIGHT */
};

/* Sums over MERAK_MAX_TASKS links of the highest level stay below 2^62. */
enum { MERAK_MAX_WEIGHT = 1 << 20 };

/*
 * Find a cheap map; `order` gives the axis that is kept close first.
 *
 *   count      in   as for merak_pack_islands()
 *   island_of  out  [pp * dp] island of each cell, stage * dp + replica
 *   cost_p     out  to compare maps of one grid
 */
enum merak_status merak_arrange(const struct merak_grid *grid,
                                enum merak_order order, const int *count,
                                int *island_of, int64_t *cost_p,
                                struct merak_error *err) MERAK_CHECKED;

struct merak_placement {
    int n_tasks, n_nodes;
    int degree[MERAK_AXIS_COUNT];
    int cp, ep; /* of degree[MERAK_AXIS_TP] */
    enum merak_order order;
    enum merak_domain tp_domain;
    uint64_t pp_bytes, dp_bytes; /* both 0: weights follow from the order */
    uint64_t id;
    struct merak_walk walk;
    int *place_of_task; /* [n_tasks], by physical rank */
    int *logical_of, *physical_of;
    char **node_name, **node_path; /* [n_nodes], the launcher's order */
    int *groups_at;                /* [axis][level] */
};

/* Is every tensor group made of all tasks of several nodes?  tasks[]: of each.
 */
bool merak_tensor_groups_are_nodes(const struct merak_placement *p,
                                   const int *tasks);

/* What computing the map needs in addition to the result. */
struct merak_placing {
    const struct merak_site *site;
    struct merak_placement *p;
    int *tasks;   /* all tasks along the walk, by id within a node */
    int *count;   /* tasks, later islands, of each place */
    int *islands; /* island of each cell of the grid */
    bool leaves;  /* islands may leave their node */
};

/* List tasks along the walk, and count them per place. */
enum merak_status merak_placing_list(struct merak_placing *b,
                                     struct merak_error *err) MERAK_CHECKED;
/*
 * Turn tasks per place into islands per place.  If islands may leave their
 * node, they are cut along the walk and count for the place of their first
 * task.
 */
enum merak_status merak_placing_cut(struct merak_placing *b,
                                    struct merak_error *err) MERAK_CHECKED;

/* The fingerprint of a site and resolved degrees. */
enum merak_status merak_plan_id(const struct merak_site *site,
                                const struct merak_placement_input *input,
                                uint64_t *id_p,
                                struct merak_error *err) MERAK_CHECKED;

#endif
