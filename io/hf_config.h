/* SPDX-License-Identifier: Apache-2.0 */
/* io/hf_config.h - Hugging Face config.json of the gpt2 and llama families */
#ifndef MERAK_IO_HF_CONFIG_H
#define MERAK_IO_HF_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "merak/model.h"
#include "merak/status.h"

enum merak_family { MERAK_GPT2, MERAK_LLAMA };

struct merak_hf_config {
    enum merak_family family;
    size_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, positions;
    float norm_eps, rope_theta, init_std; /* rope_theta: llama */
    float embd_dropout, attn_dropout, resid_dropout; /* attn_dropout is 0 */
    bool tied;        /* tie_word_embeddings */
    bool gelu_tanh;   /* gelu_new; false: erf */
    bool attn_bias, mlp_bias;
};

/*
 * Required: model_type ("gpt2", "llama"), and of gpt2 vocab_size, n_embd,
 * n_layer, n_head, n_positions (or n_ctx); of llama vocab_size, hidden_size,
 * intermediate_size, num_hidden_layers, num_attention_heads,
 * max_position_embeddings.  Where the file is silent the other fields take
 * the defaults of transformers, with one exception: dropout of attention
 * probabilities (attn_pdrop, attention_dropout) is not there, so it is 0
 * unless the file asks for it, and refused if it does.
 *
 * Parse a file.  MERAK_ERR_CONFIG names a missing field, a field of the wrong
 * type, or mathematics that is not there ("rope_scaling", an activation),
 * each by name.
 */
enum merak_status merak_hf_config_load(const char *path,
                                       struct merak_hf_config *config,
                                       struct merak_error *err) MERAK_CHECKED;
/* A merak_describe_fn: arg is a struct merak_hf_config. */
void merak_hf_describe(struct merak_model *m, void *config);

#endif
