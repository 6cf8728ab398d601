/* SPDX-License-Identifier: Apache-2.0 */
/* io/hf_config.h - Hugging Face model folders and their config.json */
#ifndef MERAK_IO_HF_CONFIG_H
#define MERAK_IO_HF_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/model.h"
#include "merak/status.h"

enum merak_family {
    MERAK_GPT2,
    MERAK_LLAMA,
    MERAK_QWEN2,
    MERAK_QWEN3,
    MERAK_MISTRAL,
    MERAK_PHI3,
    MERAK_OLMO2,
    MERAK_GEMMA2,
    MERAK_GEMMA,
    MERAK_GEMMA3,
    MERAK_ARCEE,
    MERAK_GRANITE,
    MERAK_SMOLLM3,
    MERAK_OLMO3,
    MERAK_STABLELM,
    MERAK_STARCODER2,
    MERAK_PHI,
    MERAK_GPT_NEOX,
    MERAK_MIXTRAL,
    MERAK_QWEN2_MOE,
    MERAK_QWEN3_MOE,
    MERAK_OLMOE,
    MERAK_GLM4_MOE,
    MERAK_DEEPSEEK_V3,
    MERAK_DEEPSEEK_V2,
    MERAK_GPT_OSS,
    MERAK_BERT,
    MERAK_T5,
    MERAK_FAMILIES, /* how many */
};

/* The most layers: a model of that many takes seconds to plan. */
enum { MERAK_HF_LAYERS = 2048 };

/* The most channel pairs of a head: twice that of the largest known head. */
enum { MERAK_HF_PAIRS = 256 };

/* One line of notes about a file. */
enum { MERAK_HF_NOTE_BYTES = 240 };

/* Of an MLP: of its gate, or of itself where it has none. */
enum merak_hf_act {
    MERAK_HF_SILU,
    MERAK_HF_GELU, /* erf */
    MERAK_HF_GELU_TANH,
    MERAK_HF_RELU2, /* only without a gate, .. */
    MERAK_HF_RELU,  /* .. and this one */
};

/* Norms of a model. */
struct merak_hf_norms {
    float eps;
    bool has_mean; /* and a bias, or RMS norms .. */
    bool plus_1;   /* .. which may multiply by 1 + weight */
    bool is_post;  /* after attention and MLP, not before .. */
    bool is_both;  /* .. or both */
    bool is_one;   /* of a parallel layer: attention and MLP share it */
    bool of_qk;    /* of each query and key, per head .. */
    bool of_heads; /* .. or, instead, RMS of all heads of a token together */
};

/* Rotary positions of a model. */
struct merak_hf_rope {
    float theta;
    struct merak_rope_scaling scaling;
    bool is_off[MERAK_HF_LAYERS]; /* layers without positions */
    /* For kind PAIRS, whose `by` is one of these: for sequences of up to
     * short_positions, and for longer ones. */
    double by_short[MERAK_HF_PAIRS], by_long[MERAK_HF_PAIRS];
    size_t short_positions;
    /* Of layers with windows; theta 0: as of the others. */
    float slide_theta;
    struct merak_rope_scaling slide_scaling;
};

/* Queries, and keys with values, that are made of one vector each of a token,
 * with fewer channels than all heads have.  Keys have channels of their own,
 * and others that are rotated and the same in all heads. */
struct merak_hf_latent {
    size_t kv_rank;     /* of keys and values; 0: there is no such vector */
    size_t q_rank;      /* of queries; 0: they are made of the layer's input */
    size_t own, turned; /* channels of a key: head_dim in all */
    size_t value;       /* of a value */
    bool interleaved; /* tensors have pairs of rotated channels side by side */
};

/* Experts in the place of an MLP, but for some layers. */
struct merak_hf_mixture {
    size_t experts; /* 0: none */
    size_t chosen;  /* of each token (merak_route()) */
    size_t ffn;
    size_t shared_ffn; /* of one more MLP for all tokens; 0: none .. */
    bool shared_gate;  /* .. with a gate of one number a token */
    bool is_dense[MERAK_HF_LAYERS]; /* layers with an MLP all the same */
    /* Of scores and weights (struct merak_route_options). */
    bool sigmoid, normal, rounded;
    bool wide; /* logits are computed in fp32 */
    size_t groups, groups_kept;
    bool groups_by_best;
    float scale;
    float aux; /* coefficient of the loss by load (merak_balance()) */
    bool biased; /* the router and the experts have biases */
    /* Of struct merak_expert_options; plus_1: a shift of 1. */
    float limit, slope;
    bool plus_1;
    /* In the folder at hand, matrices of experts are in MXFP4, which has them
     * as [out, in] also where tensors are transposed. */
    bool packed;
    bool may_pack; /* by its config.json it has such */
};

/* What else models have that read a text as a whole. */
struct merak_hf_encoder {
    size_t types;          /* of texts in one, each with an embedding */
    size_t decoder_layers; /* behind the encoder, which has `layers`; 0: there
                              is no decoder */
    size_t buckets, farthest; /* of distances, struct merak_relative_bias */
    /* Tokens that the encoder reads where a decoder follows: --encoder-seq; 0:
     * what is left of a text of which spans are taken out that fill the
     * decoder's sequence (io/corrupt.h). */
    size_t seq;
};

/* The union of the fields of all families: hf_family.c reads them, hf_model.c
 * describes the model from them. */
struct merak_hf_config {
    enum merak_family family;
    size_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, positions;
    float init_std;
    float embd_dropout, attn_dropout, resid_dropout;
    bool tied; /* tie_word_embeddings */
    enum merak_hf_act act;
    bool plain_mlp; /* no gate */
    bool attn_bias, mlp_bias;
    bool qkv_bias;  /* of queries, keys and values, also without attn_bias */
    bool head_bias; /* of logits */
    bool sinks;     /* a logit of each head joins its softmax */
    struct merak_hf_norms norm;
    bool parallel;    /* attention and MLP both read the layer's input */
    bool embd_scaled; /* embeddings are multiplied by sqrt(hidden) */
    bool mlp_dropout; /* resid_dropout is of the MLP alone */
    /* Of embeddings, and of what a layer adds; logits are divided by the last.
     * 0: 1 */
    float embd_factor, resid_factor, logit_divisor;
    float attn_scale;          /* of scores; 0: 1/sqrt(head_dim) */
    float attn_cap, logit_cap; /* soft caps; 0: none */
    bool has_pad;              /* token `pad` is padding */
    size_t pad;
    struct merak_hf_rope rope;    /* not gpt2 */
    size_t window;                /* the most tokens that attention sees .. */
    bool slides[MERAK_HF_LAYERS]; /* .. in these layers */
    struct merak_hf_mixture mixture;
    struct merak_hf_latent latent;
    struct merak_hf_encoder encoder;
    /* For users: what was assumed or ignored, "" if nothing. */
    char note[MERAK_HF_NOTE_BYTES];
};

/*
 * The path of one file of a model: `path` itself, or file `name` in it if it
 * is a folder.  MERAK_ERR_CONFIG if that is too long.
 */
enum merak_status merak_hf_path(const char *path, const char *name, char *out,
                                size_t bytes,
                                struct merak_error *err) MERAK_CHECKED;

/* What to do with fields that transformers' code of the family does not read:
 * name them in the note, or refuse the file. */
enum merak_hf_unknown { MERAK_HF_UNKNOWN_IGNORE, MERAK_HF_UNKNOWN_REFUSE };

/* What an option for merak_hf_encoder.seq is about. */
#define MERAK_HF_ENCODER_SEQ_ABOUT \
    "tokens that an encoder reads where a decoder follows (what is left of " \
    "a text whose spans, taken out, fill the decoder's sequence)"

/* The words of an option for it, and what it is about. */
#define MERAK_HF_UNKNOWN_WORDS "ignore|refuse"
#define MERAK_HF_UNKNOWN_ABOUT \
    "fields of config.json that transformers does not read either (ignore)"

/*
 * Only model_type is required; other fields default to the values of
 * transformers.
 *
 *   path     a config.json, or a folder that has one
 *   unknown  for fields that transformers does not read for the family
 *
 * MERAK_ERR_CONFIG names a field that is missing or of the wrong type, or asks
 * for unsupported mathematics (such as an activation).
 */
enum merak_status merak_hf_config_read(const char *path,
                                       enum merak_hf_unknown unknown,
                                       struct merak_hf_config *config,
                                       struct merak_error *err) MERAK_CHECKED;
/* The same; such fields are named in the note. */
enum merak_status merak_hf_config_load(const char *path,
                                       struct merak_hf_config *config,
                                       struct merak_error *err) MERAK_CHECKED;
/* The model_type of a family. */
const char *merak_hf_family_name(enum merak_family family);
/* The class of transformers that it is the language model of. */
const char *merak_hf_family_class(enum merak_family family);
/* Does it continue texts?  Else what it is: "an encoder". */
bool merak_hf_is_causal(const struct merak_hf_config *config,
                        const char **what_p);
/* A merak_describe_fn: arg is a struct merak_hf_config. */
void merak_hf_describe(struct merak_model *m, void *config);

#endif
