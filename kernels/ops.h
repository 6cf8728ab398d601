/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/ops.h - the ops that every backend with arithmetic has kernels for
 *
 * An X-macro for tables: OP(name) for each op, OP_SCRATCH(name) for those whose
 * fast kernels need scratch.
 */
#ifndef MERAK_KERNELS_OPS_H
#define MERAK_KERNELS_OPS_H

#define MERAK_KERNEL_OPS(OP, OP_SCRATCH) \
    OP(embedding)                        \
    OP(embedding_dw)                     \
    OP(add_position)                     \
    OP(add_position_dw)                  \
    OP(linear)                           \
    OP(linear_dx)                        \
    OP(linear_dw)                        \
    OP(linear_db)                        \
    OP(layernorm)                        \
    OP(layernorm_dx)                     \
    OP(layernorm_dw)                     \
    OP(rmsnorm)                          \
    OP(rmsnorm_dx)                       \
    OP(rmsnorm_dw)                       \
    OP(rope)                             \
    OP(attention)                        \
    OP(attention_packed)                 \
    OP_SCRATCH(attention_dx)             \
    OP_SCRATCH(attention_packed_dx)      \
    OP(gelu)                             \
    OP(gelu_dx)                          \
    OP(relu2)                            \
    OP(relu2_dx)                         \
    OP(widen)                            \
    OP(narrow)                           \
    OP(swiglu)                           \
    OP(swiglu_dx)                        \
    OP(softcap)                          \
    OP(softcap_dx)                       \
    OP(add)                              \
    OP(scale)                            \
    OP(route)                            \
    OP(route_dx)                         \
    OP(experts_overflow)                 \
    OP(route_load)                       \
    OP(balance)                          \
    OP(balance_dx)                       \
    OP(balance_count)                    \
    OP_SCRATCH(experts)                  \
    OP_SCRATCH(experts_dx)               \
    OP_SCRATCH(experts_dw)               \
    OP(dropout)                          \
    OP(xent_max)                         \
    OP(xent_sum)                         \
    OP(xent_loss)                        \
    OP(pair_loss)                        \
    OP(mean_loss)                        \
    OP(xent_dlogits)                     \
    OP(grad_add)                         \
    OP_SCRATCH(sumsq)                    \
    OP(clip)                             \
    OP(adamw)                            \
    OP(sign_step)

#endif
