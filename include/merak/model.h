/* SPDX-License-Identifier: Apache-2.0 */
/* merak/model.h - describe a model once, as if for one device
 *
 * A model is a graph of values.  The calls below add to it and never touch
 * data: a model of any size is described in a few megabytes.  The first
 * mistake is remembered in the model, later calls do nothing and return
 * NULL, and merak_model_status() tells it: a description needs no error
 * checks of its own.
 *
 * B is the micro-batch (sequences), T the sequence length, both given when
 * the model is created.  Activations are [B, T, ..], in the model's compute
 * dtype.  Weights are factored as the mathematics is: a query projection of
 * H heads of D is [H, D, C], so that cutting it by heads is cutting a dim.
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
};

/*
 * An empty model, to be described.
 *
 *   opt      in   borrowed for the call
 *   model_p  out  the caller's, for merak_model_destroy()
 *
 * MERAK_ERR_PARAM if a size is 0 or the dtype is none to compute in.  A model
 * is one thread's at a time; several may be described at once.
 */
enum merak_status merak_model_create(const struct merak_model_options *opt,
                                     struct merak_model **model_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Free it with its values, attributes and names.  NULL is allowed. */
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
 * For a description's own checks: remember this as a mistake made, unless
 * there was one before.
 *
 *   status  a failure, MERAK_ERR_CONFIG for what a user can mend
 *   fmt     as of printf: what was given, what was expected, how to mend it
 */
void merak_model_fail(struct merak_model *m, enum merak_status status,
                      const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* B in sequences, T in tokens: what the model was created with. */
size_t merak_model_micro_batch(const struct merak_model *model);
size_t merak_model_seq(const struct merak_model *model);

/* --- inputs and parameters --------------------------------------------- */

/* Token ids i32 [B, T] and the ids they predict i32 [B, T]. */
struct merak_value *merak_tokens(struct merak_model *m);
struct merak_value *merak_targets(struct merak_model *m);

/*
 * Sequences of this model hold several documents which do not see each other:
 * merak_attention() and its like keep to a query's own document, and
 * merak_add_position() counts from where it starts.  Rotary positions are
 * relative and stay as they are.  Before the first layer; `merak train
 * --doc-mask` calls it for any model.
 */
void merak_documents(struct merak_model *m);

enum merak_init_kind { MERAK_INIT_NORMAL, MERAK_INIT_ZEROS, MERAK_INIT_ONES };
struct merak_init {
    enum merak_init_kind kind;
    float std;
    size_t zero_row; /* along the first dim, from 1: zeros at first; 0: none */
};
#define MERAK_NORMAL(s) ((struct merak_init){MERAK_INIT_NORMAL, (s), 0})
#define MERAK_ZEROS ((struct merak_init){MERAK_INIT_ZEROS, 0.0f, 0})
#define MERAK_ONES ((struct merak_init){MERAK_INIT_ONES, 0.0f, 0})

/*
 * A trainable parameter; name is unique in the model and names the tensor in
 * checkpoints.  Matrices (ndim >= 2) are kept in the compute dtype with an
 * f32 master and get weight decay; vectors, and biases of any dims, stay f32
 * and get none.  Using the same value twice ties weights.  The initial value
 * is a function of (seed, name, element index) alone.
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
 * Of the parameters described so far whose names match a pattern of the
 * shell, as "h.*.ln_*.weight" (fnmatch(3)); one that matches none is a
 * mistake.
 *
 *   merak_freeze()    they stay as they are: no gradient, no optimizer state
 *   merak_no_decay()  no weight decay
 *   merak_lr_scale()  x, above 0, times the learning rate; of several calls
 *                     for one parameter the last counts
 */
void merak_freeze(struct merak_model *m, const char *pattern);
void merak_no_decay(struct merak_model *m, const char *pattern);
void merak_lr_scale(struct merak_model *m, const char *pattern, float x);

/* --- layers ------------------------------------------------------------- */

/* tokens [B,T], table [V,C] -> [B,T,C].  The vocabulary may be cut. */
struct merak_value *merak_embedding(struct merak_model *m,
                                    struct merak_value *tokens,
                                    struct merak_value *table);
/* The same where token `pad` stands for nothing: its row is zeros at first,
 * and looking it up gives it no gradient. */
struct merak_value *merak_embedding_padded(struct merak_model *m,
                                           struct merak_value *tokens,
                                           struct merak_value *table,
                                           size_t pad);
/* Both of it, and rows multiplied by `scale`, rounded to the model's compute
 * dtype as they are; 0: not. */
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
 * n_contract is the number of trailing dims of x and w summed over; the
 * other dims of w replace them: y [lead.., out..].
 */
struct merak_value *merak_linear(struct merak_model *m, struct merak_value *x,
                                 struct merak_value *w,
                                 struct merak_value *bias, int n_contract);
/* Over the last dim.  gamma, beta [C]; Ba et al. 2016 (arXiv:1607.06450). */
struct merak_value *merak_layernorm(struct merak_model *m,
                                    struct merak_value *x,
                                    struct merak_value *gamma,
                                    struct merak_value *beta, float eps);
/* Over as many last dims of x as gamma has, one to three, all together.
 * Zhang and Sennrich 2019 (arXiv:1910.07467). */
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
 * Frequencies of rotary positions that were stretched for longer sequences:
 * a share of each is divided by `factor`.
 *
 *   LINEAR          all of it.  Chen et al. 2023 (arXiv:2306.15595)
 *   FREQUENCY_RAMP  all of it up to `low` turns a position, none from `high`
 *                   on, evenly between.  Llama 3 (arXiv:2407.21783)
 *   PAIR_RAMP       none of it up to pair `low`, all from pair `high` on,
 *                   evenly between.  Peng et al. 2023 (arXiv:2309.00071), YaRN
 *   PAIRS           all of it, and each by a factor of its own: by[i] of pair
 *                   i of D/2.  Ding et al. 2024 (arXiv:2402.13753), LongRoPE
 *
 * Cosines and sines are multiplied by `amplitude`; 0 means 1.
 *
 * Where `turned` is not 0 that many channels turn, the first of D, in pairs
 * (i, i + turned/2) by angles t * theta^(-2i/turned), and the others stay as
 * they are.  Black et al. 2022 (arXiv:2204.06745), sec. 2.
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
    const double *by; /* of PAIRS; copied */
    size_t n_by;
    size_t turned; /* even, at most D */
};
struct merak_value *merak_rope_scaled(struct merak_model *m,
                                      struct merak_value *x, float theta,
                                      const struct merak_rope_scaling *scaling);
/* Causal attention with grouped queries: q [B,T,G,R,D], k and v [B,T,G,D]
 * -> [B,T,G,R,D]; G kv heads, R queries each; scale 1/sqrt(D).  Memory is
 * linear in T. */
struct merak_value *merak_attention(struct merak_model *m,
                                    struct merak_value *q,
                                    struct merak_value *k,
                                    struct merak_value *v);
/* The same with q, k, v packed: qkv [B,T,3,H,D] -> [B,T,H,D]. */
struct merak_value *merak_attention_packed(struct merak_model *m,
                                           struct merak_value *qkv);
/*
 * The same, otherwise than above where a field is not 0.
 *
 *   scale     of q . k
 *   soft_cap  c: scores s are c tanh(s / c).  Gemma Team 2024
 *             (arXiv:2408.00118), sec. 2
 *   window    keys that a query sees at most, its own the last of them.
 *             Beltagy et al. 2020 (arXiv:2004.05150), sec. 3.1
 *   dropout   of the probabilities: as merak_dropout()
 */
struct merak_attention_options {
    float scale, soft_cap;
    size_t window;
    float dropout;
};
struct merak_value *
merak_attention_with(struct merak_model *m, struct merak_value *q,
                     struct merak_value *k, struct merak_value *v,
                     const struct merak_attention_options *opt);
struct merak_value *
merak_attention_packed_with(struct merak_model *m, struct merak_value *qkv,
                            const struct merak_attention_options *opt);
/* x of any shape -> the same; Hendrycks and Gimpel 2016 (arXiv:1606.08415),
 * exact by erf or by its tanh approximation. */
struct merak_value *merak_gelu(struct merak_model *m, struct merak_value *x,
                               bool tanh_approximation);
/* silu(gate) * up.  Shazeer 2020 (arXiv:2002.05202). */
struct merak_value *merak_swiglu(struct merak_model *m,
                                 struct merak_value *gate,
                                 struct merak_value *up);
/* gelu(gate) * up, by GELU's tanh approximation.  Same source. */
struct merak_value *merak_geglu(struct merak_model *m, struct merak_value *gate,
                                struct merak_value *up);
/* Logits x [B,T,V] -> cap tanh(x / cap), between -cap and cap; cap = 0 returns
 * x. */
struct merak_value *merak_softcap(struct merak_model *m, struct merak_value *x,
                                  float cap);
/* a + b, same shape: the residual connection. */
struct merak_value *merak_add(struct merak_model *m, struct merak_value *a,
                              struct merak_value *b);
/* Keep with probability 1 - p, scaled by 1/(1-p); the mask is a function of
 * (seed, step, global sample, op, element), and of the pass where there are
 * several.  p = 0 returns x. */
struct merak_value *merak_dropout(struct merak_model *m,
                                  struct merak_value *x, float p);
/* Mean over all tokens of -log softmax(logits)[target], 0 for those whose
 * target is MERAK_NO_TARGET; logits [B,T,V].  Declares the loss of the model.
 */
struct merak_value *merak_cross_entropy(struct merak_model *m,
                                        struct merak_value *logits,
                                        struct merak_value *targets);
/* --- recycling ----------------------------------------------------------- */

/*
 * Every micro-batch goes through the model n times, each time with what the
 * time before left.  Only the last pass has a loss and gradients; what came
 * from the pass before is a constant to them.  The others compute what
 * recycled values depend on and nothing else.  Evaluation runs n passes, too.
 *
 *   n   1 .. MERAK_MAX_PASSES
 *
 * Dropout's masks differ from pass to pass.
 * Source: Jumper et al. 2021 (doi:10.1038/s41586-021-03819-2), recycling.
 */
#define MERAK_MAX_PASSES 64
void merak_passes(struct merak_model *m, int n);
/* A value [dim[0], dim[1], ..], of the compute dtype, that is what the pass
 * before left of the same micro-batch: see merak_recycle(); zeros in the
 * first pass. */
struct merak_value *merak_recycled(struct merak_model *m, int ndim,
                                   const size_t *dim);
/* Shorthand: merak_recycled with the dims written out. */
#define MERAK_RECYCLED(m, ...)                                              \
    merak_recycled((m),                                                     \
                   (int)(sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)), \
                   (size_t[]){__VA_ARGS__})
/* Leave `output`, which an op made, for `recycled` of the next pass; their
 * shapes and dtypes are the same.  Each recycled value needs one. */
void merak_recycle(struct merak_model *m, struct merak_value *recycled,
                   struct merak_value *output);

/* --- ops by name --------------------------------------------------------- */

/*
 * Apply an op by its name, built in or registered (op.h).
 *
 *   attrs  what the op takes beside values, copied; NULL: all 0
 *   in     [n_in] values of this model
 *   out    receives the op's n_out values; untouched on failure
 *
 * MERAK_ERR_NOT_FOUND names the op, MERAK_ERR_PARAM the shapes that do not go
 * with it; the model remembers either.
 */
enum merak_status merak_apply(struct merak_model *m, const char *op,
                              const struct merak_attrs *attrs, int n_in,
                              struct merak_value *const *in,
                              struct merak_value **out) MERAK_CHECKED;

/* Names made up like printf for one call's use: merak_param(m,
 * merak_name(m, "h.%d.ln.g", i), ..).  Lives as long as the model. */
const char *merak_name(struct merak_model *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
