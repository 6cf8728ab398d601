/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/ops.h - the ops that every backend with arithmetic has kernels for
 *
 * An X-macro for tables: OP(name, cpu, cuda) for each op.  PLAIN: the backend's
 * kernel takes no scratch; SCRATCH: it does; ADDS: likewise, and it may itself
 * add to bf16 (merak_kernel.adds_bf16); CUDNN: the library may run it instead,
 * and its scratch is for either.
 */
#ifndef MERAK_KERNELS_OPS_H
#define MERAK_KERNELS_OPS_H

#define MERAK_KERNEL_OPS(OP)                \
    OP(embedding, PLAIN, PLAIN)             \
    OP(embedding_dw, PLAIN, ADDS)           \
    OP(add_position, PLAIN, PLAIN)          \
    OP(add_position_dw, PLAIN, PLAIN)       \
    OP(linear, PLAIN, SCRATCH)              \
    OP(linear_dx, PLAIN, SCRATCH)           \
    OP(linear_dw, PLAIN, ADDS)              \
    OP(linear_db, PLAIN, SCRATCH)           \
    OP(conv, SCRATCH, SCRATCH)              \
    OP(conv_dx, SCRATCH, SCRATCH)           \
    OP(conv_dw, SCRATCH, SCRATCH)           \
    OP(pool, PLAIN, PLAIN)                  \
    OP(pool_dx, SCRATCH, PLAIN)             \
    OP(channel_sums, SCRATCH, SCRATCH)      \
    OP(channel_norm, SCRATCH, SCRATCH)      \
    OP(batch_norm, SCRATCH, SCRATCH)        \
    OP(batch_stats, PLAIN, PLAIN)           \
    OP(channel_norm_dx, SCRATCH, SCRATCH)   \
    OP(channel_norm_dw, PLAIN, PLAIN)       \
    OP(concat, PLAIN, PLAIN)                \
    OP(concat_dx, PLAIN, PLAIN)             \
    OP(concat_shared, PLAIN, PLAIN)         \
    OP(concat_shared_dx, PLAIN, PLAIN)      \
    OP(layernorm, PLAIN, PLAIN)             \
    OP(layernorm_dx, PLAIN, PLAIN)          \
    OP(layernorm_dw, PLAIN, SCRATCH)        \
    OP(rmsnorm, PLAIN, PLAIN)               \
    OP(rmsnorm_dx, PLAIN, PLAIN)            \
    OP(rmsnorm_dw, PLAIN, SCRATCH)          \
    OP(rope, PLAIN, PLAIN)                  \
    OP(attention, PLAIN, CUDNN)             \
    OP(attention_packed, PLAIN, CUDNN)      \
    OP(attention_dx, SCRATCH, CUDNN)        \
    OP(attention_packed_dx, SCRATCH, CUDNN) \
    OP(attention_biased, SCRATCH, SCRATCH)  \
    OP(attention_biased_dx, SCRATCH, SCRATCH) \
    OP(attention_biased_dw, PLAIN, SCRATCH) \
    OP(attention_sinks_dw, PLAIN, SCRATCH)  \
    OP(gelu, PLAIN, PLAIN)                  \
    OP(gelu_dx, PLAIN, PLAIN)               \
    OP(relu2, PLAIN, PLAIN)                 \
    OP(relu2_dx, PLAIN, PLAIN)              \
    OP(relu, PLAIN, PLAIN)                  \
    OP(relu_dx, PLAIN, PLAIN)               \
    OP(log1p, PLAIN, PLAIN)                 \
    OP(log1p_dx, PLAIN, PLAIN)              \
    OP(tanh, PLAIN, PLAIN)                  \
    OP(tanh_dx, PLAIN, PLAIN)               \
    OP(mean, PLAIN, PLAIN)                  \
    OP(mean_dx, PLAIN, PLAIN)               \
    OP(topk_pack, PLAIN, PLAIN)             \
    OP(topk_unpack, PLAIN, PLAIN)           \
    OP(topk_take, PLAIN, PLAIN)             \
    OP(widen, PLAIN, PLAIN)                 \
    OP(narrow, PLAIN, PLAIN)                \
    OP(swiglu, PLAIN, PLAIN)                \
    OP(swiglu_dx, PLAIN, PLAIN)             \
    OP(softcap, PLAIN, PLAIN)               \
    OP(softcap_dx, PLAIN, PLAIN)            \
    OP(add, PLAIN, PLAIN)                   \
    OP(scale, PLAIN, PLAIN)                 \
    OP(route, PLAIN, SCRATCH)               \
    OP(route_dx, PLAIN, PLAIN)              \
    OP(experts_overflow, PLAIN, PLAIN)      \
    OP(route_load, PLAIN, PLAIN)            \
    OP(balance, PLAIN, PLAIN)               \
    OP(balance_dx, PLAIN, PLAIN)            \
    OP(balance_count, PLAIN, PLAIN)         \
    OP(experts, SCRATCH, SCRATCH)           \
    OP(experts_dx, SCRATCH, SCRATCH)        \
    OP(experts_dw, SCRATCH, SCRATCH)        \
    OP(experts_db, SCRATCH, SCRATCH)        \
    OP(experts_bias, PLAIN, PLAIN)          \
    OP(experts_bias_dx, PLAIN, PLAIN)       \
    OP(experts_bias_db, PLAIN, SCRATCH)     \
    OP(experts_places, SCRATCH, SCRATCH)    \
    OP(experts_places_dx, SCRATCH, SCRATCH) \
    OP(experts_left, PLAIN, PLAIN)          \
    OP(experts_capacity, SCRATCH, SCRATCH)  \
    OP(experts_dropped, PLAIN, PLAIN)       \
    OP(experts_send, SCRATCH, SCRATCH)      \
    OP(experts_join, SCRATCH, SCRATCH)      \
    OP(experts_rows, SCRATCH, SCRATCH)      \
    OP(experts_rows_dx, SCRATCH, SCRATCH)   \
    OP(experts_rows_dw, SCRATCH, SCRATCH)   \
    OP(experts_rows_db, SCRATCH, SCRATCH)   \
    OP(dropout, PLAIN, PLAIN)               \
    OP(xent_max, PLAIN, PLAIN)              \
    OP(xent_sum, PLAIN, PLAIN)              \
    OP(xent_loss, PLAIN, PLAIN)             \
    OP(dice_sums, SCRATCH, SCRATCH)         \
    OP(dice_loss, PLAIN, PLAIN)             \
    OP(dice_dlogits, PLAIN, SCRATCH)        \
    OP(pair_loss, PLAIN, PLAIN)             \
    OP(point_loss, PLAIN, PLAIN)            \
    OP(point_loss_dx, PLAIN, PLAIN)         \
    OP(mean_loss, PLAIN, PLAIN)             \
    OP(losses, PLAIN, PLAIN)                \
    OP(xent_dlogits, PLAIN, PLAIN)          \
    OP(grad_add, PLAIN, PLAIN)              \
    OP(sumsq, SCRATCH, SCRATCH)             \
    OP(clip, PLAIN, PLAIN)                  \
    OP(adamw, PLAIN, PLAIN)                 \
    OP(sign_step, PLAIN, PLAIN)             \
    OP(mean_step, PLAIN, PLAIN)

#endif
