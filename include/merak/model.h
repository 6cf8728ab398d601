/* SPDX-License-Identifier: Apache-2.0 */
/* merak/model.h - describe a model once, as if for one device
 *
 * A model is a graph of values.  The calls below add to it and never touch
 * data: the description of a model of any size takes a few megabytes.  The
 * model remembers the first mistake, later calls do nothing and return NULL,
 * and merak_model_status() returns it: a description needs no error checks
 * of its own.
 *
 * B is the micro-batch (sequences), T the sequence length, both given when
 * the model is created.  Activations are [B, T, ..], in the model's compute
 * dtype.  Weights are factored: a query projection of H heads of size D is
 * [H, D, C], so that cutting it by heads is cutting a dim.
 */
#ifndef MERAK_MODEL_H
#define MERAK_MODEL_H

#include <stdbool.h>

#include "merak/op.h"
#include "merak/status.h"
#include "merak/types.h"

struct merak_model;
struct merak_value;

struct merak_model_options {
    size_t micro_batch; /* B */
    size_t seq;         /* T */
    enum merak_dtype dtype; /* compute dtype: MERAK_F32 or MERAK_BF16 */
    enum merak_dtype grad_dtype; /* what gradients of parameters of that dtype
                                    are accumulated and summed in: MERAK_F32,
                                    or, of MERAK_BF16, MERAK_BF16 */
    /* Rows (a token for one of its experts) that are kept for the backward
     * pass, as a factor of what experts have if the router is balanced: 1.25 is
     * a quarter more.  The experts of a rank share this memory; rows beyond it
     * are recomputed, no token is dropped.  0: all rows are kept, and experts
     * cannot be divided among ranks. */
    double expert_room;
    /* With such a room, where experts are divided: of each sequence as many
     * rows as that factor allows travel to the rank of their expert, instead of
     * all tokens to all ranks, which only those beyond it need. */
    bool expert_exchange;
};

/*
 * Create an empty model.
 *
 *   opt      in   borrowed for the call
 *   model_p  out  owned by the caller; merak_model_destroy() frees it
 *
 * MERAK_ERR_PARAM if a size is 0, B * T exceeds INT32_MAX or the dtype is not
 * a compute dtype.  Only one thread may use a model at a time; several models
 * may be described at once.
 */
enum merak_status merak_model_create(const struct merak_model_options *opt,
                                     struct merak_model **model_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Free the model with its values, attributes and names.  NULL is allowed. */
void merak_model_destroy(struct merak_model *model);
/*
 * The first mistake made while describing, with its text; MERAK_OK if there
 * was none.
 *
 *   err  out  may be NULL
 */
enum merak_status merak_model_status(const struct merak_model *model,
                                     struct merak_error *err) MERAK_CHECKED;
/*
 * For a description's own checks: record a mistake, unless one is recorded
 * already.
 *
 *   status  a failure; MERAK_ERR_CONFIG for what a user can fix
 *   fmt     as for printf: what was given, what was expected, how to fix it
 */
void merak_model_fail(struct merak_model *m, enum merak_status status,
                      const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* B in sequences and T in tokens, as given when the model was created. */
size_t merak_model_micro_batch(const struct merak_model *model);
size_t merak_model_seq(const struct merak_model *model);
/* The compute dtype, likewise: what layers expect of inputs that are no ids. */
enum merak_dtype merak_model_dtype(const struct merak_model *model);

/* --- inputs and parameters --------------------------------------------- */

/* Token ids i32 [B, T], and the ids to be predicted from them i32 [B, T]. */
struct merak_value *merak_tokens(struct merak_model *m);
struct merak_value *merak_targets(struct merak_model *m);

/*
 * An input of the model's own, read of each sample from files that `--data
 * FILE.json` has under its name.
 *
 *   name     unique among inputs; borrowed for the call
 *   dtype    MERAK_F32, MERAK_BF16 or MERAK_I32: what files have is converted
 *   letters  what is counted along each dim, the first one 'b', samples: t
 *            and s for positions of a sequence and of a second one, z, y and x
 *            for space, c (channels) or . for anything else
 *   dim      an extent for each letter; for b and t the model's B and T
 */
struct merak_value *merak_input(struct merak_model *m, const char *name,
                                enum merak_dtype dtype, const char *letters,
                                const size_t *dim);
/* Labels i32 [B], letters "b", or [B, T], "bt": MERAK_NO_TARGET where there is
 * none.  Otherwise as merak_input(). */
struct merak_value *merak_labels(struct merak_model *m, const char *name,
                                 const char *letters);

/*
 * Sequences of this model hold several documents that do not attend to each
 * other: merak_attention() and its variants are limited to the query's own
 * document, and merak_add_position() counts from the document's start.
 * Rotary positions are relative and do not change.  Call it before the first
 * layer; `merak train --doc-mask` calls it for any model.
 */
void merak_documents(struct merak_model *m);
/*
 * The loss of this model is that of direct preference optimization (Rafailov
 * et al. 2023, arXiv:2305.18290) instead of its targets': sequences hold pairs
 * of documents, a chosen and a rejected answer to the same prompt, and it is
 * the mean over pairs of -log sigmoid(beta m), where m is how much more the
 * chosen answer's log-probability has risen above a reference model's than the
 * rejected one's.  merak_cross_entropy() then makes that loss, and
 * merak_documents() is implied.  Call it before the first layer; `merak train
 * --objective dpo` calls it for any model.
 */
void merak_preferences(struct merak_model *m, float beta);

enum merak_init_kind {
    MERAK_INIT_NORMAL,
    MERAK_INIT_ZEROS,
    MERAK_INIT_ONES,
    MERAK_INIT_UNIFORM,
};
struct merak_init {
    enum merak_init_kind kind;
    float std;       /* UNIFORM: between -std and std */
    size_t zero_row; /* 1-based row (dim 0) that starts as zeros; 0: none */
};
#define MERAK_NORMAL(s) ((struct merak_init){MERAK_INIT_NORMAL, (s), 0})
#define MERAK_UNIFORM(s) ((struct merak_init){MERAK_INIT_UNIFORM, (s), 0})
#define MERAK_ZEROS ((struct merak_init){MERAK_INIT_ZEROS, 0.0f, 0})
#define MERAK_ONES ((struct merak_init){MERAK_INIT_ONES, 0.0f, 0})

/*
 * A trainable parameter; name is unique in the model and names the tensor in
 * checkpoints.  Matrices (ndim >= 2) are kept in the compute dtype with an
 * f32 master copy and get weight decay; vectors, and biases of any number of
 * dims, stay f32 and get none.  Using the same value twice ties weights.  The
 * initial value depends only on (seed, name, element index).
 */
struct merak_value *merak_param(struct merak_model *m, const char *name,
                                int ndim, const size_t *dim,
                                struct merak_init init);
/* Shorthand: merak_param with the dims written out. */
#define MERAK_PARAM(m, name, init, ...)                                        \
    merak_param((m), (name),                                                   \
                (int)(sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)),       \
                (size_t[]){__VA_ARGS__}, (init))

/*
 * These change the parameters described so far whose names match a shell
 * pattern such as "h.*.ln_*.weight" (fnmatch(3)); a pattern that matches none
 * is a mistake.
 *
 *   merak_freeze()    they are not trained: no gradient, no optimizer state
 *   merak_no_decay()  they get no weight decay
 *   merak_lr_scale()  their learning rate is multiplied by x > 0; of several
 *                     calls for one parameter the last counts
 */
void merak_freeze(struct merak_model *m, const char *pattern);
void merak_no_decay(struct merak_model *m, const char *pattern);
void merak_lr_scale(struct merak_model *m, const char *pattern, float x);

/*
 * Train adapters instead of the model: beside merak_linear()s that are chosen
 * by name, y = W x + (alpha / rank) B A dropout(x), with A [rank, in..] and B
 * [out.., rank]; all other parameters are frozen.  Call it before the first
 * parameter; `merak train --lora-rank` calls it for any model.
 *
 *   targets  shell patterns (fnmatch(3)) with commas between; each is compared
 *            with the weight's name without ".weight", and with what follows
 *            any dot of it: "q_proj,v_proj", "h.0.*".  Borrowed
 *   dropout  of the adapters' inputs, as merak_dropout()
 *
 * Adapters are parameters NAME.lora_A.weight, which starts uniform between
 * -1/sqrt(in) and 1/sqrt(in), and NAME.lora_B.weight, which starts as zeros.
 * A weight that is also read by another op, as a tied embedding, gets none.
 * Source: Hu et al. 2021 (arXiv:2106.09685), sec. 4.1.  With `by_root`
 * alpha is divided by the rank's square root: Kalajdzievski 2023
 * (arXiv:2312.03732), rsLoRA.
 */
struct merak_lora {
    size_t rank;
    float alpha, dropout;
    const char *targets;
    bool by_root;
};
void merak_lora(struct merak_model *m, const struct merak_lora *lora);
/* What B A x is multiplied by. */
double merak_lora_factor(const struct merak_lora *lora);

/* --- layers ------------------------------------------------------------- */

/* tokens [B,T], table [V,C] -> [B,T,C].  The vocabulary may be cut. */
struct merak_value *merak_embedding(struct merak_model *m,
                                    struct merak_value *tokens,
                                    struct merak_value *table);
/* The same with a padding token `pad`: its row starts as zeros, and lookups
 * give it no gradient. */
struct merak_value *merak_embedding_padded(struct merak_model *m,
                                           struct merak_value *tokens,
                                           struct merak_value *table,
                                           size_t pad);
/* With optional padding, and with rows multiplied by `scale`, which is rounded
 * to the model's compute dtype as they are; 0: no scaling. */
struct merak_embedding_options {
    bool padded;
    size_t pad;
    float scale;
};
struct merak_value *
merak_embedding_with(struct merak_model *m, struct merak_value *tokens,
                     struct merak_value *table,
                     const struct merak_embedding_options *opt);
/* x [B,T,C] + table [P,C] row t, P >= T. */
struct merak_value *merak_add_position(struct merak_model *m,
                                       struct merak_value *x,
                                       struct merak_value *table);
/*
 * y = x w' + bias.  x [lead.., in..], w [out.., in..], bias [out..] or NULL.
 * n_contract is the number of trailing dims of x and w that are summed over;
 * the other dims of w replace them: y [lead.., out..].
 */
struct merak_value *merak_linear(struct merak_model *m, struct merak_value *x,
                                 struct merak_value *w,
                                 struct merak_value *bias, int n_contract);
/* Layer norm over the last dim; gamma, beta [C].  Ba et al. 2016
 * (arXiv:1607.06450). */
struct merak_value *merak_layernorm(struct merak_model *m,
                                    struct merak_value *x,
                                    struct merak_value *gamma,
                                    struct merak_value *beta, float eps);
/* RMS norm over the last dims of x together, as many as gamma has (one to
 * three).  Zhang and Sennrich 2019 (arXiv:1910.07467). */
struct merak_value *merak_rmsnorm(struct merak_model *m,
                                  struct merak_value *x,
                                  struct merak_value *gamma, float eps);
/* The same, multiplied by offset + gamma. */
struct merak_value *merak_rmsnorm_offset(struct merak_model *m,
                                         struct merak_value *x,
                                         struct merak_value *gamma,
                                         float offset, float eps);
/* Rotary positions over the last dim D (even), pairs (i, i + D/2), angle
 * t * theta^(-2i/D); x [B,T,..,D].  Su et al. 2021 (arXiv:2104.09864). */
struct merak_value *merak_rope(struct merak_model *m, struct merak_value *x,
                               float theta);
/*
 * Scaling of rotary frequencies for longer sequences.  The kind determines
 * which fraction of each frequency is divided by `factor`.
 *
 *   LINEAR          all of it.  Chen et al. 2023 (arXiv:2306.15595)
 *   FREQUENCY_RAMP  all of it up to `low` turns per position, none from `high`
 *                   on, linear between.  Llama 3 (arXiv:2407.21783)
 *   PAIR_RAMP       none of it up to pair `low`, all from pair `high` on,
 *                   linear between.  Peng et al. 2023 (arXiv:2309.00071), YaRN
 *   PAIRS           all of it, by a factor for each pair: by[i] for pair i of
 *                   D/2.  Ding et al. 2024 (arXiv:2402.13753), LongRoPE
 *
 * Cosines and sines are multiplied by `amplitude`; 0 means 1.
 *
 * If `turned` is not 0, only the first `turned` of the D channels are rotated,
 * in pairs (i, i + turned/2) by angles t * theta^(-2i/turned).  Black et al.
 * 2022 (arXiv:2204.06745), sec. 2.
 */
enum merak_rope_kind {
    MERAK_ROPE_PLAIN,
    MERAK_ROPE_LINEAR,
    MERAK_ROPE_FREQUENCY_RAMP,
    MERAK_ROPE_PAIR_RAMP,
    MERAK_ROPE_PAIRS,
};
struct merak_rope_scaling {
    enum merak_rope_kind kind;
    double factor, low, high, amplitude;
    const double *by; /* for PAIRS; copied */
    size_t n_by;
    size_t turned; /* even, at most D */
};
struct merak_value *merak_rope_scaled(struct merak_model *m,
                                      struct merak_value *x, float theta,
                                      const struct merak_rope_scaling *scaling);
/* Causal attention with grouped queries: q [B,T,G,R,D], k [B,T,G,D], v
 * [B,T,G,E] -> [B,T,G,R,E]; G kv heads with R query heads each; scale
 * 1/sqrt(D).  Memory is linear in T. */
struct merak_value *merak_attention(struct merak_model *m,
                                    struct merak_value *q,
                                    struct merak_value *k,
                                    struct merak_value *v);
/* The same with q, k, v packed: qkv [B,T,3,H,D] -> [B,T,H,D]. */
struct merak_value *merak_attention_packed(struct merak_model *m,
                                           struct merak_value *qkv);
/*
 * The same with options; a field of 0 means as above.
 *
 *   scale     factor of q . k
 *   soft_cap  c: scores s become c tanh(s / c).  Gemma Team 2024
 *             (arXiv:2408.00118), sec. 2
 *   window    the most keys that a query attends to, up to its own position.
 *             Beltagy et al. 2020 (arXiv:2004.05150), sec. 3.1
 *   dropout   of the probabilities, as merak_dropout()
 *   mask      MERAK_MASK_FULL: a query attends to all keys, which may be of
 *             another sequence than the queries and then of another length.
 *             MERAK_MASK_PREFIX: to those before its own and to the first ones,
 *             prefix_lengths of each sample.  Raffel et al. 2020
 *             (arXiv:1910.10683), sec. 3.2.1
 *   window_after    with MERAK_MASK_FULL the most keys after the query's own;
 *                   with `window`, the keys around it
 *   key_lengths     i32 [B], 1 .. T: the keys that each sample has.  What is
 *                   behind them is never read, and gets gradients of 0; a query
 *                   that sees no key has an output of 0
 *   prefix_lengths  i32 [B], 0 .. T
 *   bias      added to scaled scores: a number of the table [N,G,R] for each
 *             query head and bucket of distances, key minus query.  Half of the
 *             buckets of a direction have a distance each, the others get wider
 *             in equal ratios, up to the last one's, which has `farthest` and
 *             all beyond.  With `both_ways` the first half of the table is for
 *             keys up to the query's own and the second for those after it;
 *             without, those after have bucket 0.  Layers may share a table.
 *             Not with soft_cap.  Raffel et al. 2020, sec. 2.1
 *   sinks     a parameter [G,R] or NULL: a logit of each query head that joins
 *             the softmax of every query, with a value of 0, so that the
 *             probabilities of its keys add up to less than 1.  It is neither
 *             scaled nor capped.  Not with a bias, nor with q, k and v packed.
 *             Xiao et al. 2023 (arXiv:2309.17453), sec. 3.2, as in gpt-oss
 *             (OpenAI 2025, arXiv:2508.10925, sec. 2)
 *
 * Other numbers of keys end the run where a CPU computes; a GPU takes the
 * nearest.
 *
 * Other masks than MERAK_MASK_CAUSAL are not for models with several documents
 * per sequence, and neither they nor key_lengths nor a bias for schedules that
 * cut sequences or for generating text.
 */
enum merak_attention_mask {
    MERAK_MASK_CAUSAL,
    MERAK_MASK_FULL,
    MERAK_MASK_PREFIX,
};
struct merak_relative_bias {
    struct merak_value *table; /* a parameter; NULL: no bias */
    size_t farthest;
    bool both_ways;
};
struct merak_attention_options {
    float scale, soft_cap;
    size_t window;
    float dropout;
    enum merak_attention_mask mask;
    size_t window_after;
    struct merak_value *key_lengths, *prefix_lengths;
    struct merak_relative_bias bias;
    struct merak_value *sinks;
};
struct merak_value *
merak_attention_with(struct merak_model *m, struct merak_value *q,
                     struct merak_value *k, struct merak_value *v,
                     const struct merak_attention_options *opt);
struct merak_value *
merak_attention_packed_with(struct merak_model *m, struct merak_value *qkv,
                            const struct merak_attention_options *opt);
/* x of any shape -> the same shape; Hendrycks and Gimpel 2016
 * (arXiv:1606.08415), exact (erf) or in its tanh approximation. */
struct merak_value *merak_gelu(struct merak_model *m, struct merak_value *x,
                               bool tanh_approximation);
/* The mean along the dim that has a letter of merak_input(), 't' for instance,
 * which the result does not have. */
struct merak_value *merak_mean(struct merak_model *m, struct merak_value *x,
                               char letter);
/* max(x, 0) and tanh(x), x of any shape. */
struct merak_value *merak_relu(struct merak_model *m, struct merak_value *x);
/* x, but slope x where it is negative; slope 0: merak_relu().  Maas et al. 2013
 * (ICML workshop on deep learning for audio), eq. 2. */
struct merak_value *merak_leaky_relu(struct merak_model *m,
                                     struct merak_value *x, float slope);
struct merak_value *merak_tanh(struct merak_model *m, struct merak_value *x);
/* log(1 + x) of counts x, of any shape.  One that is -1 or less ends the run
 * where a CPU computes. */
struct merak_value *merak_log1p(struct merak_model *m, struct merak_value *x);
/* max(x, 0)^2, x of any shape.  So et al. 2021 (arXiv:2109.08668), sec. 4. */
struct merak_value *merak_relu2(struct merak_model *m, struct merak_value *x);
/* x in fp32, also where the model computes in bf16: what reads it does so in
 * fp32, and a product of it with a parameter that nothing else reads keeps that
 * parameter in fp32.  In an fp32 model it is x. */
struct merak_value *merak_widen(struct merak_model *m, struct merak_value *x);
/* silu(gate) * up.  Shazeer 2020 (arXiv:2002.05202). */
struct merak_value *merak_swiglu(struct merak_model *m,
                                 struct merak_value *gate,
                                 struct merak_value *up);
/* gelu(gate) * up, with GELU's tanh approximation.  Same source. */
struct merak_value *merak_geglu(struct merak_model *m, struct merak_value *gate,
                                struct merak_value *up);
/*
 * Choose k of E experts for each token by its logits [B,T,E], and the weights
 * with which their outputs are added.  Scores are a softmax over all experts;
 * Shazeer et al. 2017 (arXiv:1701.06538), sec. 2.1.  Of equal ones the expert
 * with the lower number is chosen.
 *
 *   bias   [E] or NULL: added to scores (of a softmax: to logits) for the
 *          choice only; it has no gradient
 *   weights_p, ids_p  receive f32 and i32 [B,T,k]
 */
struct merak_route_options {
    size_t k;
    bool sigmoid;   /* scores are sigmoids of logits */
    bool normalise; /* weights are divided by their sum */
    bool rounded;   /* weights are rounded to the type of the logits */
    size_t groups, groups_kept; /* choose only in this many of so many groups,
                                   the best by the sum of their two best
                                   experts; 0: no groups.  DeepSeek-AI 2024
                                   (arXiv:2412.19437), sec. 2.1.2 */
    bool groups_by_best;        /* by their best expert alone.  DeepSeek-AI 2024
                                   (arXiv:2405.04434), sec. 2.2.2 */
    float scale;    /* weights are multiplied by it; 0: 1 */
};
void merak_route(struct merak_model *m, struct merak_value *logits,
                 struct merak_value *bias,
                 const struct merak_route_options *opt,
                 struct merak_value **weights_p, struct merak_value **ids_p);
/*
 * Learn to load experts evenly: losses of the router whose gradients are added
 * to those of the model's own loss, which stays as it is; and a bias that each
 * step changes by the load.  With E experts of which each token chooses k, f the share of its tokens that choose an expert and P the mean of its
 * shares of scores:
 *
 *   aux        times the mean, over layers and sequences, of E sum f P; 1 times
 *              k if the load is even.  Fedus et al. 2021 (arXiv:2101.03961),
 *              eq. 4 to 6
 *   z          times the mean, over layers and tokens, of the square of the
 *              logarithm of the sum of exponentials of logits.  Zoph et al. 2022
 *              (arXiv:2202.08906), eq. 5
 *   bias_rate  a step adds it to the bias of experts with fewer rows in the
 *              global batch than the mean, and subtracts it of those with more.
 *              Wang et al. 2024 (arXiv:2408.15664)
 *
 *   logits, ids, bias, route   those of merak_route(), which comes before;
 *                              without a bias bias_rate has no effect
 *
 * A bias is trained by this alone; with a rate of 0 it is frozen.  Metrics of a
 * run have the loads of layers with this call.
 */
struct merak_balance_options {
    float aux, z, bias_rate;
};
void merak_balance(struct merak_model *m, struct merak_value *logits,
                   struct merak_value *ids, struct merak_value *bias,
                   const struct merak_route_options *route,
                   const struct merak_balance_options *opt);
/* Numbers for all later calls of merak_balance() in place of the given ones,
 * but for those below 0; `merak train --router-aux` calls it for any model. */
void merak_balance_as(struct merak_model *m,
                      const struct merak_balance_options *opt);
/* The sum over a token's experts of weight down (silu(gate x) * (up x)): x
 * [B,T,C], weights and ids of merak_route(), gate and up [E,F,C], down
 * [E,C,F] -> [B,T,C].  No token is dropped unless merak_expert_capacity() says
 * so, and memory does not depend on what is chosen
 * (merak_model_options.expert_room). */
struct merak_value *
merak_experts(struct merak_model *m, struct merak_value *x,
              struct merak_value *weights, struct merak_value *ids,
              struct merak_value *gate, struct merak_value *up,
              struct merak_value *down);
/* The same with biases, [E,2,F] of gate x and up x, and down_bias [E,C], both
 * parameters or NULL, and g sigmoid(slope g) (u + shift) in the place of
 * silu(g) u, g being gate x, at most limit, and u up x, at most limit and at
 * least -limit.  Numbers of 0 are none, and a slope of 1.  OpenAI 2025
 * (arXiv:2508.10925), sec. 2. */
struct merak_expert_options {
    struct merak_value *bias, *down_bias;
    float limit, slope, shift;
};
struct merak_value *
merak_experts_with(struct merak_model *m, struct merak_value *x,
                   struct merak_value *weights, struct merak_value *ids,
                   struct merak_value *const matrix[3], /* gate, up, down */
                   const struct merak_expert_options *opt);
/* Of later calls of merak_experts(): of a sequence an expert takes at most
 * ceil(T k x / E) rows, the first by position; what is more is left out of the
 * sums.  x is positive, or 0: all rows, the default.  Lepikhin et al. 2020
 * (arXiv:2006.16668), sec. 2.2. */
void merak_expert_capacity(struct merak_model *m, double x);
/* Logits x [B,T,V] -> cap tanh(x / cap), between -cap and cap; cap = 0 returns
 * x. */
struct merak_value *merak_softcap(struct merak_model *m, struct merak_value *x,
                                  float cap);
/* a + b, same shape: the residual connection. */
struct merak_value *merak_add(struct merak_model *m, struct merak_value *a,
                              struct merak_value *b);
/* factor * x, a finite factor other than 0; 1 returns x. */
struct merak_value *merak_scale(struct merak_model *m, struct merak_value *x,
                                float factor);
/* Keep with probability 1 - p, scaled by 1/(1-p); the mask is a function of
 * (seed, step, global sample, op, element), and of the pass if there are
 * several.  p = 0 returns x. */
struct merak_value *merak_dropout(struct merak_model *m,
                                  struct merak_value *x, float p);
/* Mean over all targets of -log softmax(logits)[target]; those that are
 * MERAK_NO_TARGET do not count.  targets i32 [B,T], or [B], or of any other
 * dims; logits have these dims, then V.  A loss, f64 []. */
struct merak_value *merak_cross_entropy(struct merak_model *m,
                                        struct merak_value *logits,
                                        struct merak_value *targets);
/* Means over all elements of (x - t)^2, of |x - t|, and, for logits x of
 * probabilities t, of log(1 + e^x) - t x.  Targets t are f32, of the shape of
 * x, and no gradient goes to them.  Losses, f64 []. */
struct merak_value *merak_mse(struct merak_model *m, struct merak_value *x,
                              struct merak_value *targets);
struct merak_value *merak_mae(struct merak_model *m, struct merak_value *x,
                              struct merak_value *targets);
struct merak_value *merak_bce(struct merak_model *m, struct merak_value *x,
                              struct merak_value *targets);
/*
 * A model has one of these losses, or several, at most 8, each with a name: it
 * is trained by the sum of weight times value, and a run reports each by its
 * name.  Each is a mean over what counts of it in the global batch, however
 * that is split.
 *
 *   name    unique among losses; borrowed for the call
 *   value   what a function above returned
 *   weight  finite and not 0
 */
void merak_loss(struct merak_model *m, const char *name,
                struct merak_value *value, double weight);
/* --- recycling ----------------------------------------------------------- */

/*
 * Run every micro-batch through the model n times; each pass reads recycled
 * values of the previous one.  Only the last pass has a loss and gradients,
 * which treat those values as constants; the others compute only what recycled
 * values depend on.  Evaluation runs n passes, too.
 *
 *   n   1 .. MERAK_MAX_PASSES
 *
 * Dropout masks differ between passes.
 * Source: Jumper et al. 2021 (doi:10.1038/s41586-021-03819-2), recycling.
 */
#define MERAK_MAX_PASSES 64
void merak_passes(struct merak_model *m, int n);
/* A value [dim[0], dim[1], ..] of the compute dtype that the previous pass of
 * the same micro-batch handed on with merak_recycle(); zeros in the first
 * pass. */
struct merak_value *merak_recycled(struct merak_model *m, int ndim,
                                   const size_t *dim);
/* Shorthand: merak_recycled with the dims written out. */
#define MERAK_RECYCLED(m, ...)                                              \
    merak_recycled((m),                                                     \
                   (int)(sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)), \
                   (size_t[]){__VA_ARGS__})
/* Hand `output`, made by an op, on to the next pass as its `recycled`; shapes
 * and dtypes must be the same.  Each recycled value needs one output. */
void merak_recycle(struct merak_model *m, struct merak_value *recycled,
                   struct merak_value *output);

/* --- ops by name --------------------------------------------------------- */

/*
 * Apply an op by its name, built in or registered (op.h).
 *
 *   attrs  the op's attributes, copied; NULL: all 0
 *   in     [n_in] values of this model
 *   out    receives the op's n_out values; untouched on failure
 *
 * MERAK_ERR_NOT_FOUND names an unknown op, MERAK_ERR_PARAM shapes that the op
 * does not accept; the model remembers either as its mistake.
 */
enum merak_status merak_apply(struct merak_model *m, const char *op,
                              const struct merak_attrs *attrs, int n_in,
                              struct merak_value *const *in,
                              struct merak_value **out) MERAK_CHECKED;

/* A name formatted as by printf, for use in a call: merak_param(m,
 * merak_name(m, "h.%d.ln.g", i), ..).  It lives as long as the model. */
const char *merak_name(struct merak_model *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#include "merak/space.h"

#endif
