/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/fold.h - losses whose logits are only there in pieces
 *
 * With --loss-pieces N the product that makes logits and all that reads them
 * run in a loop over pieces of their rows (samples, or positions of a sample).
 * The gradient of logits needs nothing but a piece's logits and sums, so that
 * it, and what it is multiplied with, follow at once: the gradient of the
 * product's input is kept in the place of that input.  Where it needs more,
 * such as weights of pairs of answers, or sums that tensor ranks cut by rows,
 * the forward keeps a piece's sums, and the backward makes logits again.  No
 * tensor has logits of more than one piece.  The rule that programs and the
 * planner's table share.
 */
#ifndef MERAK_PARTITIONER_PROGRAM_FOLD_H
#define MERAK_PARTITIONER_PROGRAM_FOLD_H

#include "partitioner/layout/shard.h"

struct merak_fold {
    int pieces; /* 1: all runs whole, and the rest is not set */
    int *of;    /* by node: the logits, a value, of whose loop it is; or -1 */
    int *at; /* by node: the logits whose loop of its phase runs in its place,
                or just before it if it is not of that loop; or -1 */
    bool *inner; /* by value: only a piece of it is there at a time */
    bool *early; /* by node: of a loop whose gradients are made forward */
    int n_nodes; /* of loops */
};

/*
 * Find the loops of a sharded graph for this many pieces; freed by fini, also
 * after a failure.  MERAK_ERR_CONFIG if the model has no cross-entropy of a
 * product, MERAK_ERR_UNSUPPORTED if something else reads its logits, or ranks
 * exchange more than maxima and sums of theirs.
 */
enum merak_status merak_fold_init(struct merak_fold *fold,
                                  const struct merak_sharded *sharded,
                                  int pieces,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_fold_fini(struct merak_fold *fold);
/* Make the gradients of a loop with the backward after all: some of what it
 * makes goes to another stage. */
enum merak_status merak_fold_part(struct merak_fold *fold,
                                  const struct merak_sharded *sharded,
                                  int logits,
                                  struct merak_error *err) MERAK_CHECKED;
/* Does a node make gradients, with the forward? */
bool merak_fold_is_early(const struct merak_fold *fold,
                         const struct merak_node *node);
/* Can a model run like that, sharded like this?  Else an error as of init, or
 * MERAK_ERR_CONFIG if a rank's part of the logits cannot be cut. */
enum merak_status merak_fold_check(const struct merak_sharded *sharded,
                                   int pieces,
                                   struct merak_error *err) MERAK_CHECKED;
/* The most pieces that a search tries, a power of two: with fewer the logits of
 * one have more than four times the elements of the product's input, or with
 * twice as many rows cannot be cut; 1: the model cannot run like that. */
int merak_fold_most(const struct merak_sharded *sharded);
/* Does a node make logits, or what becomes of them, so that the backward runs
 * it again? */
bool merak_fold_is_again(const struct merak_fold *fold,
                         const struct merak_node *node);
/* The leading dims of a loop's operands that are rows; of 2 or more, the first
 * two are cut. */
int merak_fold_rows(const struct merak_graph *graph, int logits);
/*
 * How a rank's part of a value is cut.
 *
 *   rows  dims of it that are rows
 *   len   its extents
 *   n     out: parts of the first dim, and of the second
 *
 * The parts are contiguous and equal, n[0] n[1] = pieces; false if there are no
 * such parts.
 */
bool merak_fold_cut(int pieces, int rows, const size_t *len, size_t n[2]);

#endif
