/* SPDX-License-Identifier: Apache-2.0 */
/* hf_rows.h - the names of parameters and tensors, which hf_names.c alone
 * includes
 *
 * One row per parameter of a family; "*" is the layer's number.  If a tensor's
 * name is NULL, it is that of the parameter.
 */
#ifndef MERAK_IO_HF_ROWS_H
#define MERAK_IO_HF_ROWS_H

#include <stdbool.h>
#include <stddef.h>

/* The length of a parameter's dim. */
enum extent {
    ONE,
    HIDDEN,
    FFN,
    VOCAB,
    POSITIONS,
    QUERIES,
    KEYS,
    PACKED,
    Q_NORM, /* a head, or all of a token */
    K_NORM,
    EXPERTS,
    EXPERT_FFN,
    SHARED_FFN,
    Q_RANK,
    KV_RANK,
    OWN_KEYS, /* of latent attention: of all heads, .. */
    TURNED,   /* .. of a key what all heads share */
    VALUES,
    HEADS,
    EXPERT_PAIRS, /* gates, and what they are multiplied by */
    TYPES,
    BUCKETS,
};

/* Several parameters may be concatenated in a tensor: this determines the
 * tensor's rows and how many precede this one. */
enum part {
    WHOLE,
    FUSED_Q,
    FUSED_K,
    FUSED_V,
    FUSED_GATE,
    FUSED_UP,
    EXPERT_GATE,
    EXPERT_UP,
    MIXED_Q, /* of each head the query, the key and the value */
    MIXED_K,
    MIXED_V,
    TURNED_Q, /* of each head the rotated channels first */
    LATENT,   /* of a token's vector for keys and values, and of .. */
    SHARED_K, /* .. the rotated channels that heads share */
    LATENT_K, /* of each head the key's own channels, and the value */
    LATENT_V,
    EVEN, /* every other row */
    ODD,
    ALTERNATING, /* the first half of rows are the even ones */
};

struct row {
    const char *param, *tensor;
    enum extent rows, cols;
    bool transposed;
    enum part part;
    bool each;    /* a tensor of each expert, whose number is the second star */
    bool stacked; /* a tensor of all experts */
};

#define ROW(name, r, c)                           \
    {                                             \
        .param = (name), .rows = (r), .cols = (c) \
    }
#define IN_OUT(name, r, c)                                            \
    {                                                                 \
        .param = (name), .rows = (r), .cols = (c), .transposed = true \
    }
#define PART(name, in, r, c, which)                                \
    {                                                              \
        .param = (name), .tensor = (in), .rows = (r), .cols = (c), \
        .part = (which)                                            \
    }

#define EACH(name, in, r, c)                                       \
    {                                                              \
        .param = (name), .tensor = (in), .rows = (r), .cols = (c), \
        .each = true                                               \
    }
#define STACK(name, in, r, c, which)                               \
    {                                                              \
        .param = (name), .tensor = (in), .rows = (r), .cols = (c), \
        .part = (which), .stacked = true                           \
    }

/* GPT-2's matrices are stored by its Conv1D, as [in, out]. */
static const struct row gpt2_rows[] = {
    ROW("wte.weight", VOCAB, HIDDEN),
    ROW("wpe.weight", POSITIONS, HIDDEN),
    ROW("h.*.ln_1.weight", HIDDEN, ONE),
    ROW("h.*.ln_1.bias", HIDDEN, ONE),
    IN_OUT("h.*.attn.c_attn.weight", PACKED, HIDDEN),
    ROW("h.*.attn.c_attn.bias", PACKED, ONE),
    IN_OUT("h.*.attn.c_proj.weight", HIDDEN, QUERIES),
    ROW("h.*.attn.c_proj.bias", HIDDEN, ONE),
    ROW("h.*.ln_2.weight", HIDDEN, ONE),
    ROW("h.*.ln_2.bias", HIDDEN, ONE),
    IN_OUT("h.*.mlp.c_fc.weight", FFN, HIDDEN),
    ROW("h.*.mlp.c_fc.bias", FFN, ONE),
    IN_OUT("h.*.mlp.c_proj.weight", HIDDEN, FFN),
    ROW("h.*.mlp.c_proj.bias", HIDDEN, ONE),
    ROW("ln_f.weight", HIDDEN, ONE),
    ROW("ln_f.bias", HIDDEN, ONE),
    ROW("lm_head.weight", VOCAB, HIDDEN),
    {.param = NULL},
};

#define AT "model.layers.*."

/* Of all other families but GPT-NeoX: a parameter's name says how long it is.
 * Some have biases, norms of queries and keys, norms before and after each
 * part, or an MLP without a gate. */
static const struct row model_rows[] = {
    ROW("model.embed_tokens.weight", VOCAB, HIDDEN),
    ROW(AT "input_layernorm.weight", HIDDEN, ONE),
    ROW(AT "input_layernorm.bias", HIDDEN, ONE),
    ROW(AT "self_attn.q_proj.weight", QUERIES, HIDDEN),
    ROW(AT "self_attn.q_proj.bias", QUERIES, ONE),
    ROW(AT "self_attn.k_proj.weight", KEYS, HIDDEN),
    ROW(AT "self_attn.k_proj.bias", KEYS, ONE),
    ROW(AT "self_attn.v_proj.weight", KEYS, HIDDEN),
    ROW(AT "self_attn.v_proj.bias", KEYS, ONE),
    ROW(AT "self_attn.q_norm.weight", Q_NORM, ONE),
    ROW(AT "self_attn.k_norm.weight", K_NORM, ONE),
    ROW(AT "self_attn.o_proj.weight", HIDDEN, QUERIES),
    ROW(AT "self_attn.o_proj.bias", HIDDEN, ONE),
    ROW(AT "post_attention_layernorm.weight", HIDDEN, ONE),
    ROW(AT "post_attention_layernorm.bias", HIDDEN, ONE),
    ROW(AT "mlp.gate_proj.weight", FFN, HIDDEN),
    ROW(AT "mlp.gate_proj.bias", FFN, ONE),
    ROW(AT "mlp.up_proj.weight", FFN, HIDDEN),
    ROW(AT "mlp.up_proj.bias", FFN, ONE),
    ROW(AT "mlp.down_proj.weight", HIDDEN, FFN),
    ROW(AT "mlp.down_proj.bias", HIDDEN, ONE),
    ROW(AT "mlp.c_fc.weight", FFN, HIDDEN),
    ROW(AT "mlp.c_fc.bias", FFN, ONE),
    ROW(AT "mlp.c_proj.weight", HIDDEN, FFN),
    ROW(AT "mlp.c_proj.bias", HIDDEN, ONE),
    ROW(AT "mlp.gate.weight", EXPERTS, HIDDEN),
    ROW(AT "mlp.gate.e_score_correction_bias", EXPERTS, ONE),
    EACH(AT "mlp.experts.gate_proj.weight", AT "mlp.experts.*.gate_proj.weight",
         EXPERT_FFN, HIDDEN),
    EACH(AT "mlp.experts.up_proj.weight", AT "mlp.experts.*.up_proj.weight",
         EXPERT_FFN, HIDDEN),
    EACH(AT "mlp.experts.down_proj.weight", AT "mlp.experts.*.down_proj.weight",
         HIDDEN, EXPERT_FFN),
    ROW(AT "mlp.shared_expert_gate.weight", ONE, HIDDEN),
    ROW(AT "mlp.shared_expert.gate_proj.weight", SHARED_FFN, HIDDEN),
    ROW(AT "mlp.shared_expert.up_proj.weight", SHARED_FFN, HIDDEN),
    ROW(AT "mlp.shared_expert.down_proj.weight", HIDDEN, SHARED_FFN),
    ROW(AT "mlp.shared_experts.gate_proj.weight", SHARED_FFN, HIDDEN),
    ROW(AT "mlp.shared_experts.up_proj.weight", SHARED_FFN, HIDDEN),
    ROW(AT "mlp.shared_experts.down_proj.weight", HIDDEN, SHARED_FFN),
    ROW(AT "block_sparse_moe.gate.weight", EXPERTS, HIDDEN),
    EACH(AT "block_sparse_moe.experts.w1.weight",
         AT "block_sparse_moe.experts.*.w1.weight", EXPERT_FFN, HIDDEN),
    EACH(AT "block_sparse_moe.experts.w3.weight",
         AT "block_sparse_moe.experts.*.w3.weight", EXPERT_FFN, HIDDEN),
    EACH(AT "block_sparse_moe.experts.w2.weight",
         AT "block_sparse_moe.experts.*.w2.weight", HIDDEN, EXPERT_FFN),
    ROW("model.norm.weight", HIDDEN, ONE),
    ROW("model.norm.bias", HIDDEN, ONE),
    ROW("lm_head.weight", VOCAB, HIDDEN),
    ROW(AT "pre_feedforward_layernorm.weight", HIDDEN, ONE),
    ROW(AT "post_feedforward_layernorm.weight", HIDDEN, ONE),
    /* Phi's own */
    ROW(AT "self_attn.q_layernorm.weight", Q_NORM, ONE),
    ROW(AT "self_attn.q_layernorm.bias", Q_NORM, ONE),
    ROW(AT "self_attn.k_layernorm.weight", K_NORM, ONE),
    ROW(AT "self_attn.k_layernorm.bias", K_NORM, ONE),
    ROW(AT "self_attn.dense.weight", HIDDEN, QUERIES),
    ROW(AT "self_attn.dense.bias", HIDDEN, ONE),
    ROW(AT "mlp.fc1.weight", FFN, HIDDEN),
    ROW(AT "mlp.fc1.bias", FFN, ONE),
    ROW(AT "mlp.fc2.weight", HIDDEN, FFN),
    ROW(AT "mlp.fc2.bias", HIDDEN, ONE),
    ROW("model.final_layernorm.weight", HIDDEN, ONE),
    ROW("model.final_layernorm.bias", HIDDEN, ONE),
    ROW("lm_head.bias", VOCAB, ONE),
    {.param = NULL},
};

/* What is elsewhere, and in what form, in a folder with stacked experts. */
#define STACKED(gate, up, down)                                         \
    STACK(AT gate, AT "mlp.experts.gate_up_proj", EXPERT_FFN, HIDDEN,   \
          EXPERT_GATE),                                                 \
        STACK(AT up, AT "mlp.experts.gate_up_proj", EXPERT_FFN, HIDDEN, \
              EXPERT_UP),                                               \
        STACK(AT down, AT "mlp.experts.down_proj", HIDDEN, EXPERT_FFN, WHOLE)

static const struct row stacked_rows[] = {
    STACKED("mlp.experts.gate_proj.weight", "mlp.experts.up_proj.weight",
            "mlp.experts.down_proj.weight"),
    STACKED("block_sparse_moe.experts.w1.weight",
            "block_sparse_moe.experts.w3.weight",
            "block_sparse_moe.experts.w2.weight"),
    PART(AT "block_sparse_moe.gate.weight", AT "mlp.gate.weight", EXPERTS,
         HIDDEN, WHOLE),
    {.param = NULL},
};

/* Phi-3 has fused projections. */
static const struct row phi3_rows[] = {
    PART(AT "self_attn.q_proj.weight", AT "self_attn.qkv_proj.weight", QUERIES,
         HIDDEN, FUSED_Q),
    PART(AT "self_attn.k_proj.weight", AT "self_attn.qkv_proj.weight", KEYS,
         HIDDEN, FUSED_K),
    PART(AT "self_attn.v_proj.weight", AT "self_attn.qkv_proj.weight", KEYS,
         HIDDEN, FUSED_V),
    PART(AT "mlp.gate_proj.weight", AT "mlp.gate_up_proj.weight", FFN, HIDDEN,
         FUSED_GATE),
    PART(AT "mlp.up_proj.weight", AT "mlp.gate_up_proj.weight", FFN, HIDDEN,
         FUSED_UP),
    {.param = NULL},
};

#define ATTN AT "self_attn."

/* Latent attention has two matrices where a tensor has one. */
static const struct row latent_rows[] = {
    PART(ATTN "q_proj.weight", NULL, QUERIES, HIDDEN, TURNED_Q),
    ROW(ATTN "q_a_proj.weight", Q_RANK, HIDDEN),
    ROW(ATTN "q_a_proj.bias", Q_RANK, ONE),
    ROW(ATTN "q_a_layernorm.weight", Q_RANK, ONE),
    PART(ATTN "q_b_proj.weight", NULL, QUERIES, Q_RANK, TURNED_Q),
    PART(ATTN "kv_a_proj.weight", ATTN "kv_a_proj_with_mqa.weight", KV_RANK,
         HIDDEN, LATENT),
    PART(ATTN "kv_a_proj.bias", ATTN "kv_a_proj_with_mqa.bias", KV_RANK, ONE,
         LATENT),
    PART(ATTN "k_a_proj.weight", ATTN "kv_a_proj_with_mqa.weight", TURNED,
         HIDDEN, SHARED_K),
    PART(ATTN "k_a_proj.bias", ATTN "kv_a_proj_with_mqa.bias", TURNED, ONE,
         SHARED_K),
    ROW(ATTN "kv_a_layernorm.weight", KV_RANK, ONE),
    PART(ATTN "k_b_proj.weight", ATTN "kv_b_proj.weight", OWN_KEYS, KV_RANK,
         LATENT_K),
    PART(ATTN "v_b_proj.weight", ATTN "kv_b_proj.weight", VALUES, KV_RANK,
         LATENT_V),
    ROW(ATTN "o_proj.weight", HIDDEN, VALUES),
    {.param = NULL},
};

#define EXPERTS_IN AT "mlp.experts."
#define TURNED_STACK(name, in, r, c, which)                        \
    {                                                              \
        .param = (name), .tensor = (in), .rows = (r), .cols = (c), \
        .transposed = true, .part = (which), .stacked = true       \
    }

/* Experts are always stacked, as [in, out], and gates alternate with what they
 * are multiplied by. */
static const struct row gpt_oss_rows[] = {
    ROW(ATTN "sinks", HEADS, ONE),
    ROW(AT "mlp.router.weight", EXPERTS, HIDDEN),
    ROW(AT "mlp.router.bias", EXPERTS, ONE),
    TURNED_STACK(EXPERTS_IN "gate_proj.weight", EXPERTS_IN "gate_up_proj",
                 EXPERT_FFN, HIDDEN, EVEN),
    TURNED_STACK(EXPERTS_IN "up_proj.weight", EXPERTS_IN "gate_up_proj",
                 EXPERT_FFN, HIDDEN, ODD),
    TURNED_STACK(EXPERTS_IN "down_proj.weight", EXPERTS_IN "down_proj", HIDDEN,
                 EXPERT_FFN, WHOLE),
    STACK(EXPERTS_IN "gate_up_proj_bias", NULL, EXPERT_PAIRS, ONE, ALTERNATING),
    STACK(EXPERTS_IN "down_proj_bias", NULL, HIDDEN, ONE, WHOLE),
    {.param = NULL},
};

#define IN "layers.*."
#define MIXED(name, end, cols, which)                                  \
    PART(IN "attention." name end, IN "attention.query_key_value" end, \
         QUERIES, cols, which)

static const struct row gpt_neox_rows[] = {
    ROW("embed_in.weight", VOCAB, HIDDEN),
    ROW(IN "input_layernorm.weight", HIDDEN, ONE),
    ROW(IN "input_layernorm.bias", HIDDEN, ONE),
    MIXED("query", ".weight", HIDDEN, MIXED_Q),
    MIXED("query", ".bias", ONE, MIXED_Q),
    MIXED("key", ".weight", HIDDEN, MIXED_K),
    MIXED("key", ".bias", ONE, MIXED_K),
    MIXED("value", ".weight", HIDDEN, MIXED_V),
    MIXED("value", ".bias", ONE, MIXED_V),
    ROW(IN "attention.dense.weight", HIDDEN, QUERIES),
    ROW(IN "attention.dense.bias", HIDDEN, ONE),
    ROW(IN "post_attention_layernorm.weight", HIDDEN, ONE),
    ROW(IN "post_attention_layernorm.bias", HIDDEN, ONE),
    ROW(IN "mlp.dense_h_to_4h.weight", FFN, HIDDEN),
    ROW(IN "mlp.dense_h_to_4h.bias", FFN, ONE),
    ROW(IN "mlp.dense_4h_to_h.weight", HIDDEN, FFN),
    ROW(IN "mlp.dense_4h_to_h.bias", HIDDEN, ONE),
    ROW("final_layer_norm.weight", HIDDEN, ONE),
    ROW("final_layer_norm.bias", HIDDEN, ONE),
    ROW("embed_out.weight", VOCAB, HIDDEN),
    {.param = NULL},
};

#define BERT "bert.encoder.layer.*."
#define AFFINE(name, r, c) \
    ROW(name ".weight", r, c), ROW(name ".bias", r, ONE)
#define SCALES(name) AFFINE(name, HIDDEN, ONE)

static const struct row bert_rows[] = {
    ROW("bert.embeddings.word_embeddings.weight", VOCAB, HIDDEN),
    ROW("bert.embeddings.position_embeddings.weight", POSITIONS, HIDDEN),
    ROW("bert.embeddings.token_type_embeddings.weight", TYPES, HIDDEN),
    SCALES("bert.embeddings.LayerNorm"),
    AFFINE(BERT "attention.self.query", QUERIES, HIDDEN),
    AFFINE(BERT "attention.self.key", QUERIES, HIDDEN),
    AFFINE(BERT "attention.self.value", QUERIES, HIDDEN),
    AFFINE(BERT "attention.output.dense", HIDDEN, QUERIES),
    SCALES(BERT "attention.output.LayerNorm"),
    AFFINE(BERT "intermediate.dense", FFN, HIDDEN),
    AFFINE(BERT "output.dense", HIDDEN, FFN),
    SCALES(BERT "output.LayerNorm"),
    AFFINE("cls.predictions.transform.dense", HIDDEN, HIDDEN),
    SCALES("cls.predictions.transform.LayerNorm"),
    AFFINE("cls.predictions.decoder", VOCAB, HIDDEN),
    ROW("cls.predictions.bias", VOCAB, ONE),
    {.param = NULL},
};

/* As the first files of BERT have the scales of norms. */
#define GAMMA(name)                                               \
    PART(name ".weight", name ".gamma", HIDDEN, ONE, WHOLE),      \
        PART(name ".bias", name ".beta", HIDDEN, ONE, WHOLE)
static const struct row bert_old_rows[] = {
    GAMMA("bert.embeddings.LayerNorm"),
    GAMMA(BERT "attention.output.LayerNorm"),
    GAMMA(BERT "output.LayerNorm"),
    GAMMA("cls.predictions.transform.LayerNorm"),
    {.param = NULL},
};

/* Of the prediction of next sentences. */
static const char *const bert_spare[] = {"bert.embeddings.position_ids",
                                         "bert.pooler.dense.weight",
                                         "bert.pooler.dense.bias",
                                         "cls.seq_relationship.weight",
                                         "cls.seq_relationship.bias",
                                         NULL};

#define ENCODER "encoder.block.*.layer."
#define DECODER "decoder.block.*.layer."
#define T5_ATTENTION(at)                    \
    ROW(at ".q.weight", QUERIES, HIDDEN),   \
        ROW(at ".k.weight", QUERIES, HIDDEN), \
        ROW(at ".v.weight", QUERIES, HIDDEN), \
        ROW(at ".o.weight", HIDDEN, QUERIES)
#define T5_MLP(at)                               \
    ROW(at ".wi.weight", FFN, HIDDEN),           \
        ROW(at ".wi_0.weight", FFN, HIDDEN),     \
        ROW(at ".wi_1.weight", FFN, HIDDEN),     \
        ROW(at ".wo.weight", HIDDEN, FFN)
#define T5_NORM(at) ROW(at "layer_norm.weight", HIDDEN, ONE)
#define T5_BIAS "SelfAttention.relative_attention_bias.weight"

static const struct row t5_rows[] = {
    ROW("shared.weight", VOCAB, HIDDEN),
    ROW("encoder.block.0.layer.0." T5_BIAS, BUCKETS, HEADS),
    T5_NORM(ENCODER "0."),
    T5_ATTENTION(ENCODER "0.SelfAttention"),
    T5_NORM(ENCODER "1."),
    T5_MLP(ENCODER "1.DenseReluDense"),
    T5_NORM("encoder.final_"),
    ROW("decoder.block.0.layer.0." T5_BIAS, BUCKETS, HEADS),
    T5_NORM(DECODER "0."),
    T5_ATTENTION(DECODER "0.SelfAttention"),
    T5_NORM(DECODER "1."),
    T5_ATTENTION(DECODER "1.EncDecAttention"),
    T5_NORM(DECODER "2."),
    T5_MLP(DECODER "2.DenseReluDense"),
    T5_NORM("decoder.final_"),
    ROW("lm_head.weight", VOCAB, HIDDEN),
    {.param = NULL},
};

/* Copies of the table, and a bias that the first files have beside the
 * decoder's: no code reads it. */
static const char *const t5_spare[] = {
    "encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    NULL};

/* Computed buffers, which older files contain. */
static const char *const gpt2_spare[] = {"h.*.attn.bias",
                                         "h.*.attn.masked_bias", NULL};
static const char *const llama_spare[] = {AT "self_attn.rotary_emb.inv_freq",
                                          NULL};

static const char *const gpt_neox_spare[] = {
    IN "attention.bias", IN "attention.masked_bias",
    IN "attention.rotary_emb.inv_freq", NULL};

#endif
