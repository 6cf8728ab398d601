/* SPDX-License-Identifier: Apache-2.0 */
/* placement/placement.h - which task is which rank of the DP/PP/TP mesh
 *
 * Slurm has placed the tasks; nothing here moves them.  A placement numbers
 * them: logical rank l, whose coordinates follow from the degrees and the
 * order, is run by physical rank (task id, PMIx rank) physical_of(l).
 *
 *   1. Nodes are put in the order of a walk through the switch tree.
 *   2. Each node's tasks are divided into islands of tp x cp x ep tasks (tensor
 *      groups: of those that share a layer, a sequence, or experts);
 *      an island never leaves its node unless a larger domain is requested.
 *   3. Islands are assigned to stages and replicas so that the links of
 *      pipelines and of rings of replicas cost little: their bytes, weighted by
 *      the level they span.  This never costs more than ranks numbered in the
 *      order of the walk.
 *
 * Pure: no I/O, no clock, no environment; the same input gives the same map
 * everywhere.  Safe from any thread.  Loaded into slurmstepd: libc only.
 */
#ifndef MERAK_PLACEMENT_PLACEMENT_H
#define MERAK_PLACEMENT_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "merak/status.h"

enum {
    MERAK_MAX_TASKS = 1 << 20,
    MERAK_MAX_NODES = 1 << 16,
    MERAK_MAX_DEGREE = 65535,
    MERAK_MAX_SWITCH_DEPTH = 8,
    MERAK_NEARER = 16,
};

enum merak_parallel_axis {
    MERAK_AXIS_TP,
    MERAK_AXIS_PP,
    MERAK_AXIS_DP,
    MERAK_AXIS_COUNT
};

/* From the fastest to the slowest varying axis. */
enum merak_order {
    MERAK_ORDER_TP_DP_PP, /* rank = tp + TP * (dp + DP * stage) */
    MERAK_ORDER_TP_PP_DP, /* rank = tp + TP * (stage + PP * dp) */
    MERAK_ORDER_AUTO,     /* the cheaper one; never in a placement */
};

/* The domain that a TP group may not leave. */
enum merak_domain {
    MERAK_DOMAIN_NODE,
    MERAK_DOMAIN_LEAF, /* nodes of a leaf switch, or of a block: a rack */
    MERAK_DOMAIN_ANY,
};

/* The words users type; parse gives MERAK_ERR_PARAM for any other. */
const char *merak_order_name(enum merak_order order);
enum merak_status merak_order_parse(const char *word,
                                    enum merak_order *order) MERAK_CHECKED;
enum merak_status merak_domain_parse(const char *word,
                                     enum merak_domain *domain) MERAK_CHECKED;

/* --- facts: where the tasks are ------------------------------------------ */

struct merak_site {
    int n_nodes, n_tasks;
    char **node_name;  /* [n_nodes], in the launcher's order */
    char **node_path;  /* [n_nodes], "root.leaf1"; "" where unknown */
    int *node_of_task; /* [n_tasks], by physical rank */
};

/* Allocate zeroed arrays of these sizes, to be filled with strdup()ed names. */
enum merak_status merak_site_init(struct merak_site *site, int n_nodes,
                                  int n_tasks,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_site_fini(struct merak_site *site);
/*
 * Put nodes in the order of their islands: "n[5-8];n[1-4]".  MERAK_ERR_CONFIG if
 * a node is in none of them, or they have unlike numbers of tasks, of all
 * islands or of those that have any; MERAK_ERR_FORMAT if that is no such text.
 */
enum merak_status
merak_site_take_islands(struct merak_site *site, const char *islands, bool all,
                        struct merak_error *err) MERAK_CHECKED;

/* --- request: the degrees ------------------------------------------------ */

enum { MERAK_CP_CHOSEN = -1, MERAK_EP_CHOSEN = -1 }; /* by the program: auto */

struct merak_placement_input {
    const struct merak_site *site; /* borrowed for the call */
    int tp, pp, dp; /* 0: not given (tp, pp: 1; dp: the rest), or auto */
    int cp, ep;     /* 0: not given, 1; or, of ep, auto as tp or pp; or
                       MERAK_CP_CHOSEN, MERAK_EP_CHOSEN */
    enum merak_order order;
    enum merak_domain tp_domain;
    /* Bytes that a rank sends in a step along each axis, to weight links.  Both
     * 0: not known; a given order's nearer axis then counts MERAK_NEARER times
     * the other, and with MERAK_ORDER_AUTO they are equal. */
    uint64_t pp_bytes, dp_bytes;
};

/* Are degrees left to the program, so that there is no map yet? */
bool merak_degrees_auto(const struct merak_placement_input *input);
/* Then those that are given have to divide the tasks: MERAK_ERR_CONFIG. */
enum merak_status
merak_degrees_check_auto(const struct merak_placement_input *input, int n_tasks,
                         struct merak_error *err) MERAK_CHECKED;

/*
 * Fill in the degrees that are not given, and check that cp * ep * tp * pp * dp
 * is the number of tasks; cp or ep 0 is 1.  MERAK_ERR_CONFIG has one line with
 * the numbers and the nearest that fit.
 */
enum merak_status merak_degrees_resolve(int n_tasks, int cp, int ep, int *tp,
                                        int *pp, int *dp,
                                        struct merak_error *err) MERAK_CHECKED;

/* --- the map ------------------------------------------------------------- */

struct merak_placement;

/* tp: within the tensor group, of tp x cp x ep tasks, tp counting fastest. */
struct merak_coords {
    int tp, pp, dp;
};

/*
 * Compute the map.  MERAK_ERR_CONFIG: degrees that do not fit the tasks or
 * the nodes, in one line with the fix; MERAK_ERR_PARAM: a malformed site.
 */
enum merak_status
merak_placement_compute(const struct merak_placement_input *input,
                        struct merak_placement **placement_p,
                        struct merak_error *err) MERAK_CHECKED;
void merak_placement_destroy(struct merak_placement *placement);

int merak_placement_n_tasks(const struct merak_placement *placement);
/* The degrees that a tensor group has, for messages: "tp", or "tp x cp". */
const char *merak_tensor_group_word(int cp, int ep);
/* Does a tensor group of so many tasks, which sequences are cut over, have all
 * tasks of several nodes, each with whole groups of tp? */
bool merak_tensor_group_is_nodes(int group, int cp, int ep, int per_node);
/* Along MERAK_AXIS_TP: of a tensor group, tp x cp x ep. */
int merak_placement_degree(const struct merak_placement *placement,
                           enum merak_parallel_axis axis);
int merak_placement_cp(const struct merak_placement *placement);
int merak_placement_ep(const struct merak_placement *placement);
enum merak_order merak_placement_order(const struct merak_placement *placement);
/* A fingerprint of site and degrees: two placements have the same id if and
 * only if they agree on the coordinates and the node of every rank. */
uint64_t merak_placement_id(const struct merak_placement *placement);
/* The input it was computed from, resolved as in a plan; input->site is
 * unchanged. */
void merak_placement_resolved(const struct merak_placement *placement,
                              struct merak_placement_input *input);

/* Ranks must be in [0, n_tasks). */
int merak_placement_logical_of(const struct merak_placement *placement,
                               int physical);
int merak_placement_physical_of(const struct merak_placement *placement,
                                int logical);
struct merak_coords
merak_placement_coords(const struct merak_placement *placement, int logical);
int merak_placement_rank(const struct merak_placement *placement,
                         struct merak_coords coords);

/*
 * How far apart two physical ranks are: 0 on one node, 1 on one leaf switch (or
 * not known), 2 on one switch above that, and so on.
 */
int merak_placement_level(const struct merak_placement *placement, int a,
                          int b);
/* Number of groups along the axis whose most distant members are `level`
 * apart. */
int merak_placement_groups_at(const struct merak_placement *placement,
                              enum merak_parallel_axis axis, int level);
/* One more than the highest level. */
int merak_placement_levels(const struct merak_placement *placement);

/* The text of --merak-map=show: a summary, then one line for each node, up to
 * max_nodes.  stages: of unlike ranks, "2x4-8x1", whose ranks are the tasks in
 * order; or "". */
void merak_placement_print(const struct merak_placement *placement, FILE *out,
                           const char *stages, int max_nodes);

/* --- the plan: facts and request as one line of text --------------------- */

struct merak_placement_plan {
    uint32_t job, step; /* it was made for; other steps do not apply it */
    uint64_t id;        /* of the placement; 0 while a degree is auto */
    struct merak_site site;
    /* site not set; degrees resolved, or tp = 0: auto, chosen by the program */
    struct merak_placement_input input;
};

/* Write the plan as text without spaces; free() it.  MERAK_ERR_UNSUPPORTED if
 * a name has a character other than A-Z a-z 0-9 . _ -. */
enum merak_status merak_plan_encode(const struct merak_placement_plan *plan,
                                    char **text_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* Read it back.  text may be hostile: sizes are bounded and everything is
 * checked; MERAK_ERR_FORMAT if anything is invalid. */
enum merak_status merak_plan_decode(const char *text,
                                    struct merak_placement_plan *plan,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_plan_fini(struct merak_placement_plan *plan);
/* The map of a decoded plan whose degrees are known; MERAK_ERR_CORRUPT if its
 * id differs from the plan's. */
enum merak_status merak_plan_placement(const struct merak_placement_plan *plan,
                                       struct merak_placement **placement_p,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
