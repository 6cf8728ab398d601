/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/table/walker.h - shared by the files that fill a table */
#ifndef MERAK_PARTITIONER_SEARCH_TABLE_WALKER_H
#define MERAK_PARTITIONER_SEARCH_TABLE_WALKER_H

#include "partitioner/program/fold.h"
#include "partitioner/search/range.h"

/* A sharded graph that is being measured; arrays by node or value id. */
struct merak_walker {
    const struct merak_search_input *in;
    const struct merak_cost_model *cost;
    const struct merak_sharded *sharded;
    const struct merak_graph *graph;
    const struct merak_plan *plan; /* for vocabulary-parallel layers, or NULL */
    struct merak_links contended;  /* all stages communicate at once */
    struct merak_links filled;     /* so do all ranks of a domain */
    struct merak_table *table;
    int share_room;     /* of table->share */
    const int *of_node; /* segment */
    const int *block;   /* by forward node, for the model as one part */
    struct merak_fold fold; /* what runs in pieces of rows */
    int coord[MERAK_MAX_AXES];
    double *bytes;                 /* by value: this rank's part */
    bool *may_pad;                 /* by value: merak_graph_may_pad() */
    double *node_s, *node_scratch; /* by node */
    double *lost_s; /* by node: what a concurrent kernel loses to it */
    bool *runs;                    /* by node: it is in the current walk */
    double *ready;                 /* by half and value: end of its producer */
    int *low, *high;   /* by value: first and last segment that uses it */
    int *first, *last; /* by value: touched in the current segment */
    double *live;      /* by position in the current segment */
    int *n_grads;      /* by value: of a parameter, its uses */
    bool *back;        /* by value: used by gradients of the current segment */
    int *order;        /* nodes by segment */
    int *start;        /* of each segment, in order[] */
    /* By what is kept: */
    bool *recompute[MERAK_KEEPS]; /* by node: it is recomputed */
    int *seen[MERAK_KEEPS];       /* by value: latest segment that keeps it; for
                                     parameters, [0]: that holds it */
    struct merak_error *err;
    enum merak_status rc;
};

static inline bool merak_walker_converts(const struct merak_walker *w, int node)
{
    return w->sharded->hop[node].kind != MERAK_CONVERT_NONE;
}

static inline bool merak_walker_forward(const struct merak_walker *w,
                                        const struct merak_value *v)
{
    return v->producer < 0 ||
           w->graph->node[v->producer]->phase == MERAK_PHASE_F;
}

/* Is a node of a loop over pieces? */
static inline bool merak_walker_folds(const struct merak_walker *w, int node)
{
    return w->fold.pieces > 1 && w->fold.of[node] >= 0;
}

static inline bool merak_walker_is_inner(const struct merak_walker *w, int v)
{
    return w->fold.pieces > 1 && w->fold.inner[v];
}

/* node_costs.c: fill bytes, node_s and lost_s. */
void merak_walker_measure_nodes(struct merak_walker *w);

/* recompute_cost.c: fill recompute[]. */
void merak_walker_find_recomputed(struct merak_walker *w);

/* segment_memory.c: fill peaks, crossings, what is kept and held. */
void merak_walker_find_spread(struct merak_walker *w);
void merak_walker_memory(struct merak_walker *w);

/* Is a segment a vocabulary-parallel layer? */
static inline bool merak_walker_is_shared(const struct merak_walker *w, int seg)
{
    return seg >= w->table->n - w->table->n_shared;
}

/* A value's elements on this rank. */
double merak_walker_count(const struct merak_walker *w, int value);

#endif
