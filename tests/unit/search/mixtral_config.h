/* SPDX-License-Identifier: Apache-2.0 */
/* mixtral_config.h - large Mixtrals, as the planner's tests have them */
#ifndef MERAK_UNIT_MIXTRAL_CONFIG_H
#define MERAK_UNIT_MIXTRAL_CONFIG_H

#include "unit/gpt2_config.h"

/* Jiang et al. 2024 (arXiv:2401.04088), sec. 2: two of eight experts for each
 * token, eight heads of keys. */
static inline struct merak_hf_config mixtral_config(size_t layers,
                                                    size_t hidden, size_t heads,
                                                    size_t ffn, size_t vocab)
{
    struct merak_hf_config config = gpt2_config(layers, hidden, heads, vocab);

    config.family = MERAK_MIXTRAL;
    config.kv_heads = 8;
    config.positions = 4096;
    config.rope.theta = 1e6f;
    config.tied = config.attn_bias = config.mlp_bias = false;
    config.act = MERAK_HF_SILU;
    config.mixture = (struct merak_hf_mixture){
        .experts = 8, .chosen = 2, .ffn = ffn, .normal = true};
    return config;
}

#endif
