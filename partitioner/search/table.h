/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/table.h - what each segment of a model costs */
#ifndef MERAK_PARTITIONER_SEARCH_TABLE_H
#define MERAK_PARTITIONER_SEARCH_TABLE_H

#include "partitioner/search/search.h"

/* Parameters of a segment, as one rank holds them. */
struct merak_param_state {
    double param_bytes;           /* as kernels read them */
    double grad_bytes;            /* accumulators of all uses */
    double bf16_elems, f32_elems; /* elements with and without an f32 master */
    double convert_s; /* to bring gradients to the parameters' layout */
    double elements;  /* held by all tensor ranks together */
    int n;
    /* Where ZeRO-1 also splits state over tensor ranks that replicate a
     * parameter (merak_sharded_flat_axes()): what that saves of the above, and
     * the time to gather the parameters. */
    double bf16_elems_saved, f32_elems_saved, convert_saved_s, gather_s;
    /* Of the above, what is whole only while it is used: parameters with
     * ZeRO-3, accumulators with ZeRO-2; the number of parameters. */
    double lent_bytes, lent_grad_bytes;
    int n_lent;
    /* Of these bytes what is a tensor rank's, where those that replicate a
     * matrix share it out, too; the time to gather it from them, and to sum its
     * gradient over them. */
    double lent_part, lent_grad_part, lent_gather_s, lent_sum_s;
    /* What of them backwards read: not a table that only forwards look up. */
    double lent_back_part, lent_back_gather_s;
};

/* What a forward keeps for its backward.  Blocks are those of recompute.c. */
enum merak_keep {
    MERAK_KEEP_ALL,
    MERAK_KEEP_NO_ATTENTION, /* all but what attention makes */
    MERAK_KEEP_LEAST,        /* what crosses blocks */
    MERAK_KEEPS
};

/* Something that an earlier segment (`prev`) holds, too, kept activations or
 * tied parameters: a stage that runs both holds it once. */
struct merak_share {
    int segment, prev;
    double kept[MERAK_KEEPS];
    struct merak_param_state hold; /* grad_bytes is 0: every use has its own */
};

/* Costs of one micro-batch, or of a sub-pipeline's pair: see width below. */
struct merak_segment {
    double f_s, b_s; /* b_s includes the weight gradients */
    double x_s, w_s; /* dgrad and wgrad, if the schedule splits b_s */
    double kernel_s; /* of f_s + b_s, in kernels */
    bool begins_block;
    double kept[MERAK_KEEPS]; /* bytes kept for the backward */
    int n_kept;               /* values, if nothing is dropped */
    double late; /* bytes that weight gradients read, if they are put off */
    double recompute_s[MERAK_KEEPS]; /* to recompute what is not kept */
    double peak; /* bytes while it runs, including what is kept */
    double up_bytes, down_bytes; /* crossing its lower end, F and B */
    double up_part, down_part;   /* the same if each tensor rank sends a part of
                                    what is replicated */
    double exchanged;            /* bytes sent to tensor peers */
    double largest;              /* elements of the largest parameter here */
    double shared_later_elems;   /* elements of parameters that a later segment
                                    holds, too */
    /* For a vocabulary-parallel layer f_s and b_s are a stage's kernels; its
     * collectives between stages end this long after those begin. */
    double f_latency_s, b_latency_s;
    struct merak_param_state hold;
    int first_share, n_shares;
};

struct merak_table {
    struct merak_plan
        plan; /* tp, ep, ep_form, expert_room, cp, cp_axes, cp_form, cp_order,
                 tp_axes, sp,
                 tp_batch_percent, micro_batch, loss_pieces and branches of
                 the plans it is for; the rest is 0 */
    bool may_slice;         /* merak_sharded_may_slice() */
    struct merak_sequence_cuts cuts;
    int n_axes; /* tensor axes, with those of vocabulary-parallel layers */
    int width;  /* 2: a unit of work is a sub-pipeline's pair of micro-batches,
                   one communicates while the other computes; else 1 */
    int slices; /* of a micro-batch, one being the unit of work: times are those
                   of a mean slice, memory is the micro-batch's */
    double square_s; /* of whole micro-batches' seconds those that grow with the
                        square of a sequence's length, if slices > 1 */
    int n;           /* segments */
    int n_shared; /* the last segments: vocabulary-parallel layers, first what
                     feeds the first stage, then what follows the last */
    int shared_pp;     /* stages that run these; 0: there are none */
    bool shared_pp_dp; /* order_tp_pp_dp of their ranks */
    struct merak_segment *segment;
    struct merak_share *share; /* by segment */
    int n_shares;
    int n_params;      /* of the model */
    double n_elements; /* of them */
    double total_s;    /* f_s + b_s of all segments */
    int n_nodes;       /* of the sharded graph, times width */
    int passes;        /* forwards of a unit */
};

/* With logits in `pieces` pieces (program/fold.h), 1: whole; such a table is of
 * width 1 and whole sequences.  `plan` gives the ranks that run the
 * vocabulary-parallel layers of sharded, and is not read if there are none. */
enum merak_status merak_table_create(const struct merak_search_input *in,
                                     const struct merak_cost_model *cost,
                                     const struct merak_sharded *sharded,
                                     const struct merak_plan *plan, int width,
                                     int slices, int pieces,
                                     struct merak_table **table_p,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_table_destroy(struct merak_table *table);

#endif
