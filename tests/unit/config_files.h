/* SPDX-License-Identifier: Apache-2.0 */
/* config_files.h - config.json files, as published but for what is no number */
#ifndef MERAK_UNIT_CONFIG_FILES_H
#define MERAK_UNIT_CONFIG_FILES_H

#include "unit/near.h"

#include "io/hf_config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPT2                                                        \
    "{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_embd\":768," \
    "\"n_layer\":12,\"n_head\":12,\"n_positions\":1024}"
#define LLAMA                                                              \
    "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":4096," \
    "\"intermediate_size\":11008,\"num_hidden_layers\":32,"                \
    "\"num_attention_heads\":32,\"max_position_embeddings\":4096}"

#define QWEN2                                                              \
    "{\"model_type\":\"qwen2\",\"vocab_size\":151936,\"hidden_size\":896," \
    "\"intermediate_size\":4864,\"num_hidden_layers\":24,"                 \
    "\"num_attention_heads\":14,\"num_key_value_heads\":2,"                \
    "\"max_position_embeddings\":32768,\"max_window_layers\":21,"          \
    "\"rope_theta\":1000000.0,\"sliding_window\":32768,"                   \
    "\"tie_word_embeddings\":true,\"use_mrope\":false,\"use_cache\":true," \
    "\"use_sliding_window\":false,\"bos_token_id\":151643}"
#define QWEN3                                                                \
    "{\"model_type\":\"qwen3\",\"vocab_size\":151936,\"hidden_size\":1024,"  \
    "\"intermediate_size\":3072,\"num_hidden_layers\":28,\"head_dim\":128,"  \
    "\"num_attention_heads\":16,\"num_key_value_heads\":8,"                  \
    "\"attention_bias\":false,\"max_position_embeddings\":40960,"            \
    "\"max_window_layers\":28,\"rope_theta\":1000000,\"rope_scaling\":null," \
    "\"sliding_window\":null,\"use_sliding_window\":false,"                  \
    "\"tie_word_embeddings\":true}"
#define MISTRAL                                                              \
    "{\"model_type\":\"mistral\",\"vocab_size\":32000,\"hidden_size\":4096," \
    "\"intermediate_size\":14336,\"num_hidden_layers\":32,"                  \
    "\"num_attention_heads\":32,\"num_key_value_heads\":8,"                  \
    "\"max_position_embeddings\":32768,\"rms_norm_eps\":1e-05,"              \
    "\"sliding_window\":4096}"
#define PHI3                                                                 \
    "{\"model_type\":\"phi3\",\"vocab_size\":32064,\"hidden_size\":3072,"    \
    "\"intermediate_size\":8192,\"num_hidden_layers\":32,"                   \
    "\"num_attention_heads\":32,\"num_key_value_heads\":32,"                 \
    "\"max_position_embeddings\":4096,\"attention_bias\":false,"             \
    "\"original_max_position_embeddings\":4096,\"embd_pdrop\":0.0,"          \
    "\"resid_pdrop\":0.0,\"attention_dropout\":0.0,\"sliding_window\":2047," \
    "\"auto_map\":{\"AutoConfig\":\"configuration_phi3.Phi3Config\"},"       \
    "\"_name_or_path\":\"phi\"}"
#define GEMMA2                                                               \
    "{\"model_type\":\"gemma2\",\"vocab_size\":256000,\"hidden_size\":2304," \
    "\"intermediate_size\":9216,\"num_hidden_layers\":26,\"head_dim\":256,"  \
    "\"num_attention_heads\":8,\"num_key_value_heads\":4,"                   \
    "\"max_position_embeddings\":8192,\"attention_bias\":false,"             \
    "\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0,"      \
    "\"cache_implementation\":\"hybrid\",\"query_pre_attn_scalar\":256,"     \
    "\"hidden_act\":\"gelu_pytorch_tanh\",\"sliding_window\":4096,"          \
    "\"hidden_activation\":\"gelu_pytorch_tanh\",\"pad_token_id\":0,"        \
    "\"rms_norm_eps\":1e-06,\"rope_theta\":10000.0,\"attention_dropout\":0}"

#define GEMMA "{\"model_type\":\"gemma\"}"
#define GEMMA3 "{\"model_type\":\"gemma3_text\"}"
#define ARCEE "{\"model_type\":\"arcee\"}"
#define GRANITE "{\"model_type\":\"granite\"}"
#define SMOLLM3 "{\"model_type\":\"smollm3\"}"
#define MIXTRAL "{\"model_type\":\"mixtral\""
#define GLM4_MOE "{\"model_type\":\"glm4_moe\""
#define DEEPSEEK_V3 "{\"model_type\":\"deepseek_v3\"}"
#define GPT_OSS "{\"model_type\":\"gpt_oss\"}"
#define DEEPSEEK_V2 "{\"model_type\":\"deepseek_v2\"}"
#define QWEN2_MOE "{\"model_type\":\"qwen2_moe\""
#define OLMO3 "{\"model_type\":\"olmo3\"}"
#define STABLELM "{\"model_type\":\"stablelm\"}"
#define STARCODER2 "{\"model_type\":\"starcoder2\"}"
#define PHI "{\"model_type\":\"phi\"}"
#define GPT_NEOX "{\"model_type\":\"gpt_neox\"}"

/* Load `text` as a file. */
static inline enum merak_status config_load(const char *text,
                                            struct merak_hf_config *config,
                                            struct merak_error *err)
{
    char path[] = "/tmp/merak-config-XXXXXX";
    int fd = mkstemp(path);
    enum merak_status rc;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    rc = merak_hf_config_load(path, config, err);
    unlink(path);
    return rc;
}

#endif
