/* SPDX-License-Identifier: Apache-2.0 */
/* padding.c - values whose rows are padded in memory */
#include "config.h"

#include "partitioner/graph/padding.h"

#include "base/size.h"

bool merak_op_observes_ld(const struct merak_op *op, int n_in, int operand)
{
    return (operand < n_in ? op->ld_in >> operand
                           : op->ld_out >> (operand - n_in)) &
           1;
}

void merak_graph_may_pad(const struct merak_graph *graph, bool *may_p)
{
    for (int v = 0; v < graph->n_values; v++)
        may_p[v] = graph->value[v]->producer >= 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct merak_node *node = graph->node[i];

        for (int k = 0; k < node->n_in + node->n_out; k++) {
            const struct merak_value *v = merak_node_operand(node, k);

            may_p[v->id] &= merak_op_observes_ld(node->op, node->n_in, k);
        }
    }
}

size_t merak_padded_ld(int ndim, const size_t *dim, enum merak_dtype dtype,
                       size_t row_bytes)
{
    size_t row, ld;

    if (row_bytes == 0 || dtype != MERAK_BF16 || ndim < 2)
        return 0;
    row = dim[ndim - 1];
    ld = merak_size_align(row * merak_dtype_bytes(dtype), row_bytes) /
         merak_dtype_bytes(dtype);
    return ld == row ? 0 : ld;
}
