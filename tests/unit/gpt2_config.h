/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2_config.h - large GPT-2s, as the planner's tests have them */
#ifndef MERAK_UNIT_GPT2_CONFIG_H
#define MERAK_UNIT_GPT2_CONFIG_H

#include "io/hf_config.h"

static inline struct merak_hf_config gpt2_config(size_t layers, size_t hidden,
                                                 size_t heads, size_t vocab)
{
    return (struct merak_hf_config){.family = MERAK_GPT2,
                                    .layers = layers,
                                    .hidden = hidden,
                                    .heads = heads,
                                    .kv_heads = heads,
                                    .head_dim = hidden / heads,
                                    .ffn = 4 * hidden,
                                    .vocab = vocab,
                                    .positions = 2048,
                                    .norm.eps = 1e-5f,
                                    .init_std = 0.02f,
                                    .tied = true,
                                    .act = MERAK_HF_GELU_TANH,
                                    .attn_bias = true,
                                    .mlp_bias = true};
}

#endif
