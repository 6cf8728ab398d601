/* SPDX-License-Identifier: Apache-2.0 */
/* padding.h - values whose rows are padded in memory
 *
 * Matrix products on GPUs are slow unless rows begin at multiples of 16 bytes.
 * The logits of a vocabulary of 50257 do not; kernels could copy them, but they
 * are the largest activation.  Instead memory has room behind each row, if all
 * ops that have the value can skip it (merak_operand.ld).
 */
#ifndef MERAK_GRAPH_PADDING_H
#define MERAK_GRAPH_PADDING_H

#include "partitioner/graph/graph.h"

/* Does an op observe the leading dimension of an operand, an input if it is
 * below n_in, else an output? */
bool merak_op_observes_ld(const struct merak_op *op, int n_in, int operand);
/* may_p[v], by value id: may the rows of value v be padded? */
void merak_graph_may_pad(const struct merak_graph *graph, bool *may_p);
/* The leading dimension, in elements, of a part with these dims for rows of
 * row_bytes; 0 if it should be contiguous. */
size_t merak_padded_ld(int ndim, const size_t *dim, enum merak_dtype dtype,
                       size_t row_bytes);

#endif
