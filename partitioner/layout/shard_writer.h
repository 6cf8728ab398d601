/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/layout/shard_writer.h - a sharded graph being written: for
 * shard_copies.c, shard_leaves.c and shard_write.c
 *
 * The first failure is kept in `rc` and `err`; after it, calls do nothing, and
 * what they return must not be used.
 */
#ifndef MERAK_PARTITIONER_LAYOUT_SHARD_WRITER_H
#define MERAK_PARTITIONER_LAYOUT_SHARD_WRITER_H

#include "partitioner/layout/shard_impl.h"

/* A value of the new graph that holds an old one's elements. */
struct merak_copy {
    struct merak_value *value;
    enum merak_phase phase;
    int part;                /* of the node that was being written */
    const struct merak_value
        *rows_left;          /* it is zeros where that is 0; or NULL */
    struct merak_copy *next; /* in the order they were made */
};

/* The copies of a value of the old graph; the first is the value itself. */
struct merak_copies {
    struct merak_copy *copies;
};

struct merak_grad_chain; /* of shard_write.c */

struct merak_shard_writer {
    const struct merak_graph *old;
    const struct merak_signature *sig;     /* by old node */
    const struct merak_strategy *strategy; /* by old forward node */
    struct merak_graph *graph;             /* the new one */
    struct merak_sharded *out;
    struct merak_mesh mesh;
    struct merak_copies *entry; /* by old value */
    /* By old value: while contributions come in. */
    struct merak_grad_chain **chain;
    bool *is_part;         /* by old value: read by a sum of its own chain */
    bool *crosses;         /* by old value: parts -> another part reads it */
    int *node;             /* old node -> new node */
    size_t layouts, nodes; /* room in out's arrays */
    size_t origins;
    const struct merak_parts *parts; /* or NULL */
    int part;                        /* of the node that is being written */
    /* What is converted now counts only where this is not 0; or NULL, and the
     * load of experts from which on it is not. */
    struct merak_value *rows_left;
    double rows_left_load;

    enum merak_status rc;
    struct merak_error *err;
};

/* Text in the new graph's memory. */
const char *merak_write_name(struct merak_shard_writer *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Set a new value's layout. */
void merak_write_set_layout(struct merak_shard_writer *w,
                            const struct merak_value *v,
                            const struct merak_layout *layout);
/* What value of the old graph a new one is, where it crosses parts. */
void merak_write_set_origin(struct merak_shard_writer *w,
                            const struct merak_value *v, int old);
/* That layout; valid until the next value is made. */
const struct merak_layout *
merak_write_layout(const struct merak_shard_writer *w,
                   const struct merak_value *v);
/* Append a node like `proto`, whose operands are new values, or NULL.  A hop
 * (else NULL) is what a conversion does, and gives its name. */
struct merak_node *merak_write_node(struct merak_shard_writer *w,
                                    const struct merak_node *proto,
                                    const struct merak_strategy *strategy,
                                    const struct merak_hop *hop);
/* Record a new value as a copy of an old one, made in this phase. */
void merak_write_add_copy(struct merak_shard_writer *w, int old,
                          struct merak_value *value, enum merak_phase phase);
/* Convert a new value to another layout, with one node per hop. */
struct merak_value *merak_write_convert(struct merak_shard_writer *w,
                                        struct merak_value *src,
                                        const struct merak_layout *to,
                                        enum merak_phase phase, int forward);
/* An old value in a layout, converted from the cheapest copy if need be. */
struct merak_value *merak_write_get(struct merak_shard_writer *w, int old,
                                    const struct merak_layout *layout,
                                    enum merak_phase phase, int forward);
/* The same in `wide`, which is the layout and what windows read of neighbours'
 * parts. */
struct merak_value *merak_write_halo(struct merak_shard_writer *w, int old,
                                     const struct merak_layout *layout,
                                     const struct merak_layout *wide,
                                     enum merak_phase phase, int forward);
/* How an old node is cut. */
void merak_write_strategy(const struct merak_shard_writer *w,
                          const struct merak_node *old,
                          struct merak_strategy *strategy);
/* Parameters, inputs and recycled values. */
void merak_write_leaves(struct merak_shard_writer *w);

#endif
