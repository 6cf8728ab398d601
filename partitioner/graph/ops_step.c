/* SPDX-License-Identifier: Apache-2.0 */
/* ops_step.c - ops at the end of a step: gradient norm, clipping, optimizer
 *
 * Programs call them on flat local arrays; they are never in a model.
 */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/op_tables.h"

/* The last output of adamw, the compute-dtype copy, exists only in bf16 runs:
 * a call may have three outputs. */
MERAK_DIMS(grad_add, "a=f:n > out=f:n")
MERAK_DIMS(sumsq, "g=f:n > sum=d:1")
MERAK_DIMS(clip, "sumsq=d:P > scale=f:2")
MERAK_DIMS(adamw, "g=f:n scale=f:2 > master=f:n m=f:n v=f:n param=h:n")

MERAK_DIMS(sign_step, "g=f:n > master=f:n")

MERAK_DIMS(mean_step, "g=f:n > master=f:n")

MERAK_COST(sumsq, 2)
MERAK_COST(mean_step, 3)
MERAK_COST(sign_step, 1)
MERAK_COST(clip, 1)

/* An accumulator is read as well as written. */
static void grad_add_cost(const struct merak_infer *inf,
                          struct merak_cost *cost)
{
    merak_cost_elementwise(inf, 1, cost);
    cost->bytes += (double)merak_shape_count(&inf->shape[1]) *
                   (double)merak_dtype_bytes(inf->dtype[1]);
}

/* Master and moments are read as well as written. */
static void adamw_cost(const struct merak_infer *inf, struct merak_cost *cost)
{
    merak_cost_elementwise(inf, 14, cost);
    for (int o = 2; o < 5 && o < inf->n_in + inf->n_out; o++)
        cost->bytes += (double)merak_shape_count(&inf->shape[o]) *
                       (double)merak_dtype_bytes(inf->dtype[o]);
}

const struct merak_op merak_ops_step[] = {
    MERAK_OP_WITH(grad_add, 1, 1, 1, NULL, .step_use = MERAK_STEP_NONE,
                  .updates = true),
    MERAK_OP_WITH(sumsq, 1, 1, 1, NULL, .step_use = MERAK_STEP_NONE,
                  .role = MERAK_ROLE_PARAM),
    MERAK_OP_WITH(clip, 1, 1, 1, NULL, .step_use = MERAK_STEP_ANY),
    MERAK_OP_WITH(adamw, 2, 2, 4, NULL, .step_use = MERAK_STEP_ANY,
                  .role = MERAK_ROLE_PARAM, .updates = true),
    MERAK_OP_WITH(sign_step, 1, 1, 1, NULL, .step_use = MERAK_STEP_NONE,
                  .updates = true),
    MERAK_OP_WITH(mean_step, 1, 1, 1, NULL, .step_use = MERAK_STEP_NONE,
                  .updates = true),
    {.name = NULL},
};
