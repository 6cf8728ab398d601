/* SPDX-License-Identifier: Apache-2.0 */
/* placement/placement.h - which task is which rank of the DP/PP/TP mesh
 *
 * Slurm has placed the tasks; nothing here moves one.  A placement names
 * them: logical rank l, whose coordinates follow from the degrees and the
 * order, is run by physical rank (task id, PMIx rank) physical_of(l).
 *
 *   1. Nodes are put in the order of a walk through the switch tree.
 *   2. Each node's tasks are cut into islands of tp; an island never leaves
 *      its node unless MERAK_DOMAIN_ANY was asked for.
 *   3. Islands are dealt out so that the links of rings of replicas and of
 *      pipelines cost little: their bytes, by the level that they span.
 *      Never more than by arithmetic on ranks in the order of the walk.
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

/* What a TP group may not leave. */
enum merak_domain {
    MERAK_DOMAIN_NODE,
    MERAK_DOMAIN_ANY,
};

/* The words users type; parse gives MERAK_ERR_PARAM for any other. */
const char *merak_order_name(enum merak_order order);
enum merak_status merak_order_parse(const char *word,
                                    enum merak_order *order) MERAK_CHECKED;
const char *merak_domain_name(enum merak_domain domain);
enum merak_status merak_domain_parse(const char *word,
                                     enum merak_domain *domain) MERAK_CHECKED;

/* --- the facts: where the tasks are -------------------------------------- */

struct merak_site {
    int n_nodes, n_tasks;
    char **node_name;  /* [n_nodes], in the launcher's order */
    char **node_path;  /* [n_nodes], "root.leaf1"; "" where unknown */
    int *node_of_task; /* [n_tasks], by physical rank */
};

/* Arrays of these sizes, zeroed, names to be strdup()ed into them. */
enum merak_status merak_site_init(struct merak_site *site, int n_nodes,
                                  int n_tasks,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_site_fini(struct merak_site *site);

/* --- the wish: the degrees ----------------------------------------------- */

struct merak_placement_input {
    const struct merak_site *site; /* borrowed for the call */
    int tp, pp, dp; /* 0: not said (tp, pp: 1; dp: what is left), or auto */
    enum merak_order order;
    enum merak_domain tp_domain;
    /* Bytes that a rank sends in a step along either axis, to weigh links by.
     * Both 0, not known: of a given order the nearer axis counts
     * MERAK_NEARER times the other, of MERAK_ORDER_AUTO both count alike. */
    uint64_t pp_bytes, dp_bytes;
};

/*
 * Fill in the degrees that were not said, and check that tp * pp * dp is the
 * number of tasks.  MERAK_ERR_CONFIG has one line with the numbers and the
 * nearest that would fit.
 */
enum merak_status merak_degrees_resolve(int n_tasks, int *tp, int *pp, int *dp,
                                        struct merak_error *err) MERAK_CHECKED;

/* --- the map ------------------------------------------------------------- */

struct merak_placement;

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
int merak_placement_degree(const struct merak_placement *placement,
                           enum merak_parallel_axis axis);
enum merak_order merak_placement_order(const struct merak_placement *placement);
/* Two placements have the same id just if all ranks would agree on every
 * coordinate and on every node: a fingerprint of site and degrees. */
uint64_t merak_placement_id(const struct merak_placement *placement);
/* What it was computed from, all of it resolved, as a plan carries it; the
 * site is left alone. */
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
 * How far two physical ranks are apart: 0 one node, 1 one leaf switch (or
 * nothing known), 2 one switch above that, and so on.
 */
int merak_placement_level(const struct merak_placement *placement, int a,
                          int b);
/* Number of groups along the axis whose members are at most, and somewhere
 * exactly, `level` apart. */
int merak_placement_groups_at(const struct merak_placement *placement,
                              enum merak_parallel_axis axis, int level);
/* One more than the highest level there is. */
int merak_placement_levels(const struct merak_placement *placement);

/* The text of --merak-map=show: a summary, then a line a node; no more than
 * max_nodes of these. */
void merak_placement_print(const struct merak_placement *placement, FILE *out,
                           int max_nodes);

/* --- the plan: facts and wish as one line of text ------------------------ */

struct merak_placement_plan {
    uint32_t job, step; /* it was made for; others do not apply it */
    uint64_t id;        /* the placement's; 0 while a degree is auto */
    struct merak_site site;
    /* site unset; degrees resolved, or tp = 0: auto, chosen by the program */
    struct merak_placement_input input;
};

/* Write the plan as text without spaces; free() it.  MERAK_ERR_UNSUPPORTED if
 * a name does not fit in (it has a character beyond A-Z a-z 0-9 . _ -). */
enum merak_status merak_plan_encode(const struct merak_placement_plan *plan,
                                    char **text_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* Read it back.  text may be hostile: sizes are bounded, everything is
 * checked, MERAK_ERR_FORMAT on any doubt. */
enum merak_status merak_plan_decode(const char *text,
                                    struct merak_placement_plan *plan,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_plan_fini(struct merak_placement_plan *plan);
/* The map of a decoded plan whose degrees are known; MERAK_ERR_CORRUPT if its
 * id is not the plan's. */
enum merak_status merak_plan_placement(const struct merak_placement_plan *plan,
                                       struct merak_placement **placement_p,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
