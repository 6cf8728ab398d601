/* SPDX-License-Identifier: Apache-2.0 */
/* hf_family.h - the model families of config.json files
 *
 * A family is a row of data (hf_families.c): the defaults that transformers
 * has for its fields, and the options of the model that more fields, or none,
 * determine.
 */
#ifndef MERAK_IO_HF_FAMILY_H
#define MERAK_IO_HF_FAMILY_H

#include "io/hf_config.h"
#include "io/hf_reader.h"

/* How a field determines a member of struct merak_hf_config. */
enum merak_hf_option_kind {
    MERAK_HF_END,      /* of a list */
    MERAK_HF_ALWAYS,   /* bool: true, without a field */
    MERAK_HF_FLAG,     /* bool */
    MERAK_HF_NEVER,    /* no member: the field must be false .. */
    MERAK_HF_ZERO,     /* .. or 0 .. */
    MERAK_HF_ABSENT,   /* .. or null */
    MERAK_HF_POSITIVE, /* float: a number above 0 */
    MERAK_HF_CAP,      /* the same; null is 0 */
    MERAK_HF_RSQRT,    /* float: 1 / sqrt(a number above 0) */
    MERAK_HF_DROPOUT,  /* float: a probability */
    MERAK_HF_ACT,      /* enum merak_hf_act: a word */
};

/* Of an ACT: files of the family have "gelu" for the tanh form. */
#define MERAK_HF_GELU_IS_TANH (1u << 31)

struct merak_hf_option {
    enum merak_hf_option_kind kind;
    const char *name; /* of the field */
    size_t at;        /* of the member */
    double or_else;   /* if the field is absent; of a FLAG 0 or 1 .. */
    const char *word; /* .. and of an ACT this */
    unsigned acts; /* those that are supported: bits 1 << enum merak_hf_act */
};

/* Which layers have windows, unless layer_types is given. */
enum merak_hf_windows {
    MERAK_HF_NO_WINDOWS,
    MERAK_HF_ALL_LAYERS,
    MERAK_HF_IF_ASKED, /* by use_sliding_window, from max_window_layers on */
    MERAK_HF_ALL_BUT,  /* each that `period` divides, counted from 1 */
    MERAK_HF_NO_ROPE,  /* those without positions, by use_sliding_window */
};

/* The fields of heads. */
enum merak_hf_heads {
    MERAK_HF_HEADS,       /* num_key_value_heads and head_dim */
    MERAK_HF_HEADS_SPLIT, /* head_dim is hidden / heads */
    MERAK_HF_HEADS_MANY,  /* so it is, and each has keys and values */
};

/* Rotary positions of a family. */
struct merak_hf_rope_family {
    double theta;            /* default; 0: 10000 .. */
    const char *theta_field; /* .. of this; NULL: rope_theta */
    /* The share of a head's channels that is rotated; 0: all, and no code of
     * transformers knows of a share. */
    double share;
    const char *share_field; /* NULL: partial_rotary_factor */
    bool is_long; /* the only scaling is longrope, which has older names */
    const char *object; /* rope_parameters of files that have none, as JSON */
    /* Layers with windows have rotary positions of their own: default of
     * theta, and the field of older files, or NULL; 0: as the others. */
    double slide_theta;
    const char *slide_theta_field;
};

/* Experts of a family: fields and defaults.  A field that is NULL does not
 * exist. */
struct merak_hf_experts {
    const char *count_field, *width_field; /* width NULL: as other MLPs */
    const char *count_alias; /* that transformers writes; NULL: the same */
    size_t count, chosen, width; /* chosen 0: there is no default */
    const char *normal_field;
    bool is_normal; /* weights are divided by their sum, or its default */
    bool sigmoid;   /* scores, which have biases and groups */
    bool rounded;   /* weights, to the type of activations */
    bool wide;      /* logits are computed in fp32, of a matrix in fp32 */
    /* One more MLP for all tokens, of a width of its own and with a gate, or as
     * wide as so many experts. */
    const char *shared_width_field, *shared_count_field;
    size_t shared_width, shared_count; /* count 0: 1 */
    bool sparse_fields; /* decoder_sparse_step and mlp_only_layers */
    const char *dense_first_field;
    size_t dense_first;         /* its default */
    size_t groups, groups_kept; /* defaults of those of sigmoids; 0: 1 */
    double scale;               /* likewise, of routed_scaling_factor */
    bool groups_by_method;      /* scores have groups if topk_method says so */
    double aux; /* default of router_aux_loss_coef; 0: 0.001 */
};
/* Latent attention of a family: defaults of its fields. */
struct merak_hf_latent_family {
    size_t kv_rank, q_rank, own, turned, value;
    bool interleaves; /* has rope_interleave; else pairs are interleaved */
};
extern const struct merak_hf_experts merak_hf_mixtral_experts;
extern const struct merak_hf_experts merak_hf_qwen2_experts;
extern const struct merak_hf_experts merak_hf_qwen3_experts;
extern const struct merak_hf_experts merak_hf_olmoe_experts;
extern const struct merak_hf_experts merak_hf_glm4_experts;
extern const struct merak_hf_experts merak_hf_deepseek_v3_experts;
extern const struct merak_hf_experts merak_hf_deepseek_v2_experts;
extern const struct merak_hf_experts merak_hf_gpt_oss_experts;

/* What predicts a token. */
enum merak_hf_reads {
    MERAK_HF_CAUSAL,       /* those before it */
    MERAK_HF_BOTH_WAYS,    /* all others of its text */
    MERAK_HF_ANOTHER_TEXT, /* those before it, and all of a text that an encoder
                              reads */
};

struct merak_hf_family {
    const char *type;  /* model_type */
    const char *class; /* of transformers: what its names begin with */
    const char *model; /* and that of a language model */
    enum merak_family family;
    enum merak_hf_reads reads;
    /* NULL: the fields that most families have, and `options`. */
    void (*read)(struct merak_hf_reader *r, const struct merak_hf_family *f,
                 struct merak_hf_config *c);
    const struct merak_hf_option *options;
    const char *const *known; /* fields without effect on results, or NULL */
    /* The defaults of transformers. */
    size_t vocab, hidden, ffn, layers, heads, positions;
    size_t kv_heads; /* 0: as heads */
    size_t head_dim; /* 0: hidden / heads */
    enum merak_hf_heads has_heads;
    double norm_eps;
    const char *eps_field; /* NULL: rms_norm_eps */
    double init_std;       /* 0: 0.02 */
    bool pads;             /* has padding .. */
    json_int_t pad;
    bool no_pads;  /* pad_token_id has no row of its own */
    size_t window; /* 0: none */
    enum merak_hf_windows windows;
    size_t period;
    const char *period_field; /* or NULL */
    /* Layers that this divides, counted from 1, have no positions, unless
     * fields no_rope_layer_interval or no_rope_layers say otherwise; 0: all
     * have. */
    size_t no_rope_period;
    bool tied; /* default of tie_word_embeddings */
    struct merak_hf_rope_family rope;
    const struct merak_hf_experts *experts; /* NULL: none */
    const struct merak_hf_latent_family *latent; /* NULL: attention of heads */
    bool packs; /* experts may be in MXFP4 */
};

/* The family of a model_type; NULL if there is none. */
const struct merak_hf_family *merak_hf_family_find(const char *type);
/* Read the fields of family f. */
void merak_hf_family_read(struct merak_hf_reader *r,
                          const struct merak_hf_family *f,
                          struct merak_hf_config *c);
void merak_hf_options_read(struct merak_hf_reader *r,
                           const struct merak_hf_option *options,
                           struct merak_hf_config *c);
/* A size with two names, where transformers prefers `alias`; two different
 * values are an error. */
size_t merak_hf_twin(struct merak_hf_reader *r, const char *name,
                     const char *alias, size_t most, size_t or_else);
void merak_hf_experts_read(struct merak_hf_reader *r,
                           const struct merak_hf_experts *f,
                           struct merak_hf_config *c);
/* For families with latent attention: heads, in the place of the usual fields.
 */
void merak_hf_latent_read(struct merak_hf_reader *r,
                          const struct merak_hf_family *f,
                          struct merak_hf_config *c);
/* For the row of gpt2, whose fields have other names. */
void merak_hf_gpt2_read(struct merak_hf_reader *r,
                        const struct merak_hf_family *f,
                        struct merak_hf_config *c);
/* For those of bert and of t5, likewise. */
void merak_hf_bert_read(struct merak_hf_reader *r,
                        const struct merak_hf_family *f,
                        struct merak_hf_config *c);
void merak_hf_t5_read(struct merak_hf_reader *r,
                      const struct merak_hf_family *f,
                      struct merak_hf_config *c);
/* The fields that transformers reads for any family, where only a cache of keys
 * and values depends on them: they must agree with what the family computes. */
void merak_hf_family_check(struct merak_hf_reader *r,
                           const struct merak_hf_family *f,
                           const struct merak_hf_config *c);
/* The families' model_types, "a, b or c". */
void merak_hf_family_list(char *text, size_t bytes);

#endif
