/* SPDX-License-Identifier: Apache-2.0 */
/* ref.c - the reference backend's table */
#include "config.h"

#include "kernels/ref/ref.h"
#include "kernels/backends.h"

#define ROW(op)                           \
    {                                     \
        .name = #op, .fn = merak_ref_##op \
    }

static const struct merak_kernel table[] = {
    ROW(embedding),
    ROW(embedding_dw),
    ROW(add_position),
    ROW(add_position_dw),
    ROW(linear),
    ROW(linear_dx),
    ROW(linear_dw),
    ROW(linear_db),
    ROW(layernorm),
    ROW(layernorm_dx),
    ROW(layernorm_dw),
    ROW(rmsnorm),
    ROW(rmsnorm_dx),
    ROW(rmsnorm_dw),
    ROW(rope),
    ROW(attention),
    ROW(attention_dx),
    ROW(attention_packed),
    ROW(gelu),
    ROW(attention_packed_dx),
    ROW(gelu_dx),
    ROW(swiglu),
    ROW(swiglu_dx),
    ROW(add),
    ROW(dropout),
    ROW(xent_max),
    ROW(xent_sum),
    ROW(xent_loss),
    ROW(mean_loss),
    ROW(xent_dlogits),
    ROW(grad_add),
    ROW(sumsq),
    ROW(clip),
    ROW(adamw),
    {0},
};

const struct merak_backend merak_backend_ref = {
    .name = "ref",
    .kernel = table,
};
