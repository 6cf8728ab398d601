/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/table.h - what each segment of a model costs */
#ifndef MERAK_PARTITIONER_SEARCH_TABLE_H
#define MERAK_PARTITIONER_SEARCH_TABLE_H

#include "partitioner/search/search.h"

/* Parameters of a segment, this rank's part. */
struct merak_param_state {
    double param_bytes; /* as kernels read them */
    double grad_bytes;  /* accumulators of all uses */
    double bf16_elems, f32_elems; /* elements with and without an f32 master */
    double convert_s;   /* gradients brought to the parameters' layout */
    double elements;    /* held by all tensor ranks together */
    int n;
    /* If tensor ranks share out the state of what they hold alike, as
     * merak_sharded_flat_axes() says: so much less of the above, and to gather
     * the parameters. */
    double bf16_elems_less, f32_elems_less, convert_less_s, gather_s;
};

/* What is kept of a forward for its backward.  Blocks are recompute.c's. */
enum merak_keep {
    MERAK_KEEP_ALL,
    MERAK_KEEP_NO_ATTENTION, /* all but what attention makes */
    MERAK_KEEP_LEAST,        /* what crosses blocks */
    MERAK_KEEPS
};

/* Something that an earlier segment (`prev`) has, too: a stage of both has
 * it once. */
struct merak_share {
    int segment, prev;
    double kept[MERAK_KEEPS];
    struct merak_param_state hold; /* grad_bytes is 0: every use has its own */
};

/* Of one micro-batch, or of a sub-pipeline's pair: see width below. */
struct merak_segment {
    double f_s, b_s; /* b_s with the weights' gradients */
    double x_s, w_s; /* the two parts of b_s, where a schedule parts them */
    double kernel_s; /* of f_s + b_s, in kernels */
    double flops;
    bool begins_block;
    double kept[MERAK_KEEPS];    /* bytes kept for the backward */
    double recompute_s[MERAK_KEEPS]; /* to have again what is not */
    double peak; /* bytes of one in work, what is kept included */
    double up_bytes, down_bytes; /* cross its lower end, there and back */
    double up_part, down_part;   /* of them, if each tensor rank sends a part of
                                    what all hold alike */
    double exchanged;            /* bytes sent to tensor peers */
    double largest;              /* elements of the largest parameter here */
    double shared_later_elems;   /* elements of those that a later segment has,
                                    too */
    /* Of a block that all stages run, f_s and b_s are a stage's kernels: from
     * when they begin, its exchanges between stages are over after so long. */
    double f_latency_s, b_latency_s;
    struct merak_param_state hold;
    int first_share, n_shares;
};

struct merak_table {
    int tp;
    enum merak_seq_parallel sp;
    int tp_batch_percent; /* plan.tp_batch_percent */
    size_t micro_batch;
    enum merak_branches branches; /* plan.branches */
    bool may_slice;               /* no tensor axis cuts sequences */
    int width;  /* 2: a unit of work is a sub-pipeline's pair of micro-batches,
                   exchanges of one behind compute of the other; else 1 */
    int slices; /* of a micro-batch, of which one is the unit of work: its
                   times are a mean one's, memory is the micro-batch's */
    int n;      /* segments */
    int n_shared; /* of them, the last: blocks that all stages run, first what
                     feeds the first stage, then what follows the last */
    struct merak_segment *segment;
    struct merak_share *share; /* by segment */
    int n_shares;
    int n_params;      /* of the model */
    double n_elements; /* of them */
    double total_s;    /* f_s + b_s of all segments */
    double flops;      /* of a unit, on one tensor rank */
    int n_nodes;       /* of the sharded graph, width times */
    int passes;        /* forwards of a unit */
};

/* With blocks that all stages run (sharded), `plan` says which ranks those
 * are. */
enum merak_status merak_table_create(const struct merak_search_input *in,
                                     const struct merak_cost_model *cost,
                                     const struct merak_sharded *sharded,
                                     const struct merak_plan *plan, int width,
                                     int slices, struct merak_table **table_p,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_table_destroy(struct merak_table *table);

#endif
