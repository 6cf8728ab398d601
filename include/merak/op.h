/* SPDX-License-Identifier: Apache-2.0 */
/* merak/op.h - what defines an operation: shapes, cost, how it may be cut,
 * its gradient and its kernels
 *
 * The built-in operations are described by the same structs; a program adds
 * its own with merak_op_register() and merak_kernel_register() and applies
 * them with merak_apply().  Nothing here mentions ranks: how an op is
 * distributed over ranks follows from its signature.
 */
#ifndef MERAK_OP_H
#define MERAK_OP_H

#include <stdbool.h>

#include "merak/status.h"
#include "merak/types.h"

#define MERAK_MAX_OPERANDS 18 /* inputs plus outputs of one node */
#define MERAK_MAX_INDICES 12

/* Numbers that parameterize an op; each op documents its own slots. */
struct merak_attrs {
    int64_t i[5];
    double f[6];
    const double *list; /* NULL, or i[2] numbers, which a node copies */
};

/* What a window's list has of each dim of space, in this order: kernels of such
 * ops have i[0] of them, 1 to 3 (kernels/windows.h). */
enum merak_window_number {
    MERAK_WINDOW_SIZE,     /* points of a window */
    MERAK_WINDOW_STRIDE,   /* from one window to the next */
    MERAK_WINDOW_PAD,      /* zeros before the first point; after the last one
                              as many as `out` windows need */
    MERAK_WINDOW_DILATION, /* from a window's point to the next */
    MERAK_WINDOW_IN,       /* points of the input */
    MERAK_WINDOW_OUT,      /* windows: points of the output */
    MERAK_WINDOW_NUMBERS
};

/* What pooling, i[1], makes of a window's points: their largest; their mean, in
 * which padding counts; the mean of those inside; their sum. */
enum merak_pooling {
    MERAK_POOL_MAX,
    MERAK_POOL_MEAN,
    MERAK_POOL_MEAN_INSIDE,
    MERAK_POOL_SUM
};

/* The inputs that attention has beside queries, keys and values, a bit of i[4]
 * each; they follow in this order. */
enum merak_attention_input {
    MERAK_ATTENTION_STARTS = 1,  /* documents, by query */
    MERAK_ATTENTION_LENGTHS = 2, /* keys that there are, by sample */
    MERAK_ATTENTION_PREFIX = 4,  /* keys that all queries see, by sample */
    MERAK_ATTENTION_BIAS = 8,    /* a table of biases; of attention_biased */
    MERAK_ATTENTION_SINKS = 16,  /* a logit of each head; of attention */
};

/* The most buckets of distances that a bias of attention has. */
#define MERAK_MAX_BUCKETS 128

/*
 * The dimension signature: one index for each loop of the op's mathematics
 * (as in einsum), and for each operand the index that runs along each dim.
 *
 * Cutting the op along index x over a mesh axis means: an operand that has x
 * along a dim is split along that dim; an input without x is replicated; an
 * output without x is partial, to be combined by x's kind (sum or max).
 * An index of kind WHOLE cannot be cut.  One of kind WINDOW runs along points
 * that windows move over, and is cut only along an axis of Merak's that is for
 * sequences or space: dims that have it may differ by a factor, which is whole,
 * extent is that of the smallest, and a shard reads `reach` points more of an
 * input than its part has.
 *
 * Names are lower-case letters, each used once in a signature.  A gradient node
 * is cut along the index with the same name as the one its forward node is cut
 * along.  What an index means does not depend on its name: Merak knows which
 * dims of the operands count samples of a micro-batch or positions of a
 * sequence, because inputs do and each op's outputs inherit it along the op's
 * indices.  Options determine whether these may be cut.
 */
enum merak_index_kind {
    MERAK_INDEX_WHOLE, /* every shard needs all of it */
    MERAK_INDEX_SUM,   /* cuttable; outputs without it are partial sums */
    MERAK_INDEX_MAX,   /* cuttable; outputs without it are partial maxima */
    MERAK_INDEX_WINDOW, /* cuttable with what neighbours have; outputs without
                           it are partial sums */
};

/* Points before and after a shard's part of a dim, as far as there are any. */
struct merak_reach {
    uint8_t before, after;
};

struct merak_index {
    enum merak_index_kind kind;
    char name;       /* 'h', 'o', 'i', 'v', .. */
    bool uneven;     /* shards may differ in size (a vocabulary) */
    bool vocabulary; /* what tokens are looked up in, and losses sum over */
    bool experts;    /* what tokens are routed to; operands of which it is a dim
                        may hold rows in an order that only kernels know */
    size_t extent;
};

struct merak_signature {
    int n_index;
    struct merak_index index[MERAK_MAX_INDICES];
    /* operand_dim[o][d]: index along dim d of operand o (inputs first, then
     * outputs). */
    int8_t operand_dim[MERAK_MAX_OPERANDS][MERAK_MAX_DIMS];
    /* Of dims whose index is a WINDOW. */
    struct merak_reach reach[MERAK_MAX_OPERANDS][MERAK_MAX_DIMS];
    /* The op is jointly linear in its inputs (add, convert): partial inputs
     * give a partial output without communication. */
    bool linear;
};

/* What the loss of pairs of answers consists of, each a mean. */
enum merak_loss_part {
    MERAK_LOSS,
    MERAK_LOSS_CHOSEN, /* the reward of the chosen answer */
    MERAK_LOSS_REJECTED,
    MERAK_LOSS_ACCURACY, /* 1 where the chosen answer's is the larger one */
    MERAK_LOSS_PARTS
};

/* Losses of an element and its target, attrs.i[1] of point_loss. */
enum merak_point_loss {
    MERAK_POINT_MSE, /* (x - t)^2 */
    MERAK_POINT_MAE, /* |x - t| */
    MERAK_POINT_BCE, /* of the logit x of a probability t: log(1 + e^x) - t x */
    MERAK_POINT_LOSSES
};

/* The most losses of a model. */
#define MERAK_MAX_LOSSES 8

struct merak_cost {
    double flops;
    double bytes; /* read and written once each */
};

/* Shapes and dtypes of an op's operands while the graph is built; the op fills
 * in those of its outputs. */
struct merak_infer {
    const struct merak_attrs *attrs;
    int n_in, n_out;
    struct merak_shape shape[MERAK_MAX_OPERANDS]; /* inputs, then outputs */
    enum merak_dtype dtype[MERAK_MAX_OPERANDS];
    size_t pieces; /* for costs of a rank's part: as in merak_kernel_call */
};

/*
 * One operand of a kernel call: the part this rank holds.
 * data is row-major of shape `local`; element (i0,i1..) of it is global element
 * (lo[0]+i0, lo[1]+i1, ..) of a tensor of shape `full`.  It is contiguous,
 * except that an op with ld_in or ld_out set for the operand has to observe
 * `ld`.
 */
struct merak_operand {
    void *data;
    enum merak_dtype dtype;
    struct merak_shape local;
    struct merak_shape full;
    size_t lo[MERAK_MAX_DIMS];
    size_t ld; /* leading dimension: elements between the beginnings of two
                  rows, a row being the last dim; 0: contiguous.  Elements
                  behind a row are undefined and may be written. */
};

/* What changes from step to step; borrowed by every kernel of the step. */
struct merak_step {
    uint64_t seed;   /* of the run: initial weights, dropout, data order */
    uint64_t step;   /* from 0 */
    uint64_t sample; /* global index of this micro-batch's first sample */
    float lr;
    float beta1, beta2, eps, weight_decay;
    float clip;       /* 0: no clipping */
    float grad_scale; /* 1 / (micro-batches * dp) */
    float token_share; /* what grad_scale does not divide a mean over all tokens
                          of this rank's replica by: 1, or less where not every
                          target counts; times its sequences over those of a
                          replica that computes the loss */
    /* Of a model with several losses: what the gradient of each is multiplied
     * by, weight included, beside grad_scale. */
    double loss_scale[MERAK_MAX_LOSSES];
    bool train;       /* false: dropout is the identity */
    int pass;         /* which forward pass (merak_passes()), from 0; the last
                         one for gradients */
};

struct merak_kernel_call {
    const struct merak_attrs *attrs;
    int n_in, n_out;
    struct merak_operand operand[MERAK_MAX_OPERANDS]; /* inputs, outputs */
    bool accumulate; /* outputs += instead of = (W-phase nodes) */
    bool narrow; /* outputs are gradients of parameters, kept in bf16; only for
                    kernels that say so, others make them in f32 */
    bool first;      /* this shard has coordinate 0 on every mesh axis that is
                        reduced over: it alone adds what must be added once
                        (a bias) */
    size_t pieces;   /* where dim 1 of operands is positions of a sequence: how
                        many pieces it is in, see merak_position(); 0: it is in
                        order */
    void *scratch;   /* scratch_bytes bytes, 64-byte aligned, or NULL */
    size_t scratch_bytes;
    const struct merak_step *step;
    void *device; /* where a backend with queues launches kernels; for "cuda"
                     a struct merak_cuda_context, NULL on hosts */
};

/*
 * Ranks that share a sequence may hold a piece of it each from its head and one
 * from its tail, so that causal attention is even work.  Of an even number of
 * pieces a tensor then has, in this order, the first, the last, the second, the
 * last but one, and so on, and boxes of it (`lo`) count in that order.
 *
 *   pieces  of a sequence, dividing T; 0: it is in order
 *   T       positions of a sequence
 *   i       an element along dim 1 of the full tensor
 *
 * The position that it has.
 */
#ifdef __CUDACC__ /* kernels on devices ask, too */
#define MERAK_POSITION_FN static inline __host__ __device__
#else
#define MERAK_POSITION_FN static inline
#endif
MERAK_POSITION_FN size_t merak_position(size_t pieces, size_t T, size_t i)
{
    size_t n, place;

    if (pieces == 0)
        return i;
    n = T / pieces;
    place = i / n;
    return (place % 2 == 0 ? place / 2 : pieces - 1 - place / 2) * n + i % n;
}

/* The element that a position has. */
MERAK_POSITION_FN size_t merak_position_index(size_t pieces, size_t T,
                                              size_t position)
{
    size_t n, piece, place;

    if (pieces == 0)
        return position;
    n = T / pieces;
    piece = position / n;
    place = piece < pieces / 2 ? 2 * piece : 2 * (pieces - 1 - piece) + 1;
    return place * n + position % n;
}

typedef enum merak_status (*merak_kernel_fn)(
    const struct merak_kernel_call *call, struct merak_error *err);
/* Bytes of scratch that such a call needs; its data pointers are not set. */
typedef size_t (*merak_scratch_fn)(const struct merak_kernel_call *call);

/* What a backend's kernels ask of the memory they are given; all zeros:
 * nothing. */
struct merak_kernel_memory {
    size_t (*scratch)(void *arg, const char *op,
                      const struct merak_kernel_call *call);
    void *arg;
    size_t row_bytes; /* rows of bf16 should begin this many bytes apart, or a
                         multiple, where every op that has the value allows
                         (ld_in, ld_out); 0: contiguous */
};

struct merak_grad; /* a gradient being built */
struct merak_node;
struct merak_value;

enum merak_phase {
    MERAK_PHASE_F, /* forward */
    MERAK_PHASE_B, /* gradient of activations */
    MERAK_PHASE_W, /* gradient of parameters, accumulated in f32 */
};

/* Which part of merak_kernel_call.step an op's kernels read. */
enum merak_step_use {
    MERAK_STEP_ANY,     /* unknown: possibly anything */
    MERAK_STEP_DROPOUT, /* nothing if attrs.f[0], the dropout rate, is 0 */
    MERAK_STEP_LOSS,    /* nothing if attrs.i[0], the loss's number, is 0 */
    MERAK_STEP_NONE,    /* nothing: equal operands give equal results */
};

/* What Merak treats apart; nothing compares an op's name. */
enum merak_op_role {
    MERAK_ROLE_NONE,
    MERAK_ROLE_ATTENTION, /* forward or backward: selective recomputation drops
                             it, and devices have a rate for it */
    MERAK_ROLE_PRODUCT,   /* of matrices: backends know several ways */
    MERAK_ROLE_SUM,       /* of its inputs: gradients of several uses */
    MERAK_ROLE_CONVERT,   /* of layouts; no model has it */
    MERAK_ROLE_WIDEN,     /* to fp32: the model is the same without it */
    MERAK_ROLE_LOSS_PART, /* of a loss, together with its reader; the first
                             one's input 0 are the logits */
    MERAK_ROLE_LOSS,      /* output 0 is the loss of each position */
    MERAK_ROLE_LOSSES,    /* several losses, with which their gradients begin */
    MERAK_ROLE_OTHER_LOSS, /* the gradients of losses beside the model's own
                              begin with it: it is reached without a reader */
    MERAK_ROLE_ROWS,       /* of rows that travel to their experts, which others
                              compute at once; */
    MERAK_ROLE_ROWS_END,   /* their sums, the last of these */
    MERAK_ROLE_DROP,       /* leaves rows of experts out: of the same weights,
                              and not a part of the model */
    MERAK_ROLE_DROPPED,    /* counts these */
    MERAK_ROLE_PACK,       /* of what crosses to the next stage the elements that
                              are sent; */
    MERAK_ROLE_UNPACK,     /* there the whole again, with zeros for others */
    MERAK_ROLE_PARAM,      /* once per parameter at the end of a step,
                              independent of other parameters */
};

/* Does a call of an op with these read nothing of its step? */
static inline bool merak_step_is_unread(enum merak_step_use use,
                                        const struct merak_attrs *attrs)
{
    return use == MERAK_STEP_NONE ||
           (use == MERAK_STEP_DROPOUT && !(attrs->f[0] > 0)) ||
           (use == MERAK_STEP_LOSS && attrs->i[0] == 0);
}

/* An attribute that makes another model of the same weights: attrs.i[at] for
 * kind 'i', attrs.f[at] for 'f', attrs.list for 'l', and for 's' if models may
 * have one for short and another for long sequences. */
struct merak_number {
    const char *key; /* as users know it, "rope theta"; NULL ends a list */
    char kind;
    int at;
};

struct merak_op {
    const char *name; /* also the kernel's name in every backend */
    int min_in, max_in, n_out;
    /* Fill shape[] and dtype[] of the outputs from those of the inputs.
     * Errors name the op and both shapes. */
    enum merak_status (*infer)(struct merak_infer *inf,
                               struct merak_error *err);
    void (*signature)(const struct merak_infer *inf,
                      struct merak_signature *sig);
    void (*cost)(const struct merak_infer *inf, struct merak_cost *cost);
    /* Emit the gradient nodes; NULL: the op has no gradient (inputs get
     * none). */
    enum merak_status (*grad)(struct merak_grad *g,
                              const struct merak_node *node,
                              struct merak_error *err);
    /* Input 0 and output 0 may share one buffer if they have the same shape
     * and type: kernels read each element before they write it.  Programs
     * share it where input 0 is not needed afterwards. */
    bool in_place;
    /* Inputs and outputs, a bit each, for which the kernels of all backends
     * whose memory has row_bytes observe merak_operand.ld. */
    uint8_t ld_in, ld_out;
    /* A call that reads nothing of its step may be recorded once and replayed
     * in every step. */
    enum merak_step_use step_use;
    enum merak_op_role role;
    /* Outputs are read as well as written. */
    bool updates;
    /* Inputs and outputs, a bit each, of which a part of the sequence needs
     * all from position 0 on: keys and values, which it reads, and their
     * gradients, to which it adds. */
    uint16_t back_in, back_out;
    /* Of such an op: does a position need more of the sequence than that?
     * NULL: it does not. */
    bool (*looks_ahead)(const struct merak_attrs *attrs);
    /* Operands that count only where rows are left: the input that is their
     * number (0: there is none), inputs that are not read where it is 0, and
     * outputs that are zeros then, a bit each.  What is exchanged for them
     * alone need not be. */
    uint8_t rows_left_in;
    uint16_t rows_left_reads, rows_left_makes;
    /* The numbers of kv heads and of query heads, which ranks can divide; NULL:
     * it has none. */
    void (*heads)(const struct merak_infer *inf, size_t *kv_p, size_t *query_p);
    /* Of rows that go to experts: how many times its usual FLOPs a call with
     * operands of a rank's shapes has, where the rank's experts have `load`
     * times an even share of the rows; NULL: as many. */
    double (*loaded)(const struct merak_infer *local, double load);
    /* The attributes by which a resumed run knows that its model is another
     * one; ops of the same mathematics share a list.  NULL: all of them. */
    const struct merak_number *numbers;
};

/* --- for gradient builders ------------------------------------------- */

/* Input i / output i of a node in the graph being differentiated; both are
 * owned by the graph. */
struct merak_value *merak_node_in(const struct merak_node *node, int i);
struct merak_value *merak_node_out(const struct merak_node *node, int i);
/* The node's number of inputs. */
int merak_node_in_count(const struct merak_node *node);
/* The node's attributes; owned by the graph, never NULL. */
const struct merak_attrs *merak_node_attrs(const struct merak_node *node);
/* A value's global dims; owned by the graph. */
const struct merak_shape *merak_value_shape(const struct merak_value *value);

/* Gradient that reached output i, or NULL if none did. */
struct merak_value *merak_grad_out(struct merak_grad *g,
                                   const struct merak_node *node, int i);
/* True if the loss's gradient with respect to v is wanted (v is a parameter
 * that is trained or depends on one). */
bool merak_grad_wanted(struct merak_grad *g, const struct merak_value *v);
/*
 * Add a gradient node of phase B or W.
 *   in[n_in]   values; out[op->n_out] receives the new values
 * W-phase outputs are f32 and are accumulated over micro-batches; a run may
 * keep what they add up to in bf16 (merak_model_options.grad_dtype), which
 * kernels need not know.
 */
enum merak_status merak_grad_node(struct merak_grad *g,
                                  const struct merak_node *forward,
                                  enum merak_phase phase, const char *op,
                                  const struct merak_attrs *attrs, int n_in,
                                  struct merak_value *const *in,
                                  struct merak_value **out,
                                  struct merak_error *err) MERAK_CHECKED;
/* Contribute `grad` to the gradient of value v.  Contributions to an
 * activation are summed last use first; a parameter has one contribution per
 * use, and these stay separate, so that the order of sums does not depend on
 * how stages are cut. */
enum merak_status merak_grad_add(struct merak_grad *g, struct merak_value *v,
                                 struct merak_value *grad,
                                 struct merak_error *err) MERAK_CHECKED;

/* --- registration ------------------------------------------------------ */

/*
 * Register an op under its name.  `op` is borrowed for the life of the
 * process.  MERAK_ERR_PARAM if the name is taken or a required function is
 * missing.  Call before building models; not thread-safe.
 */
enum merak_status merak_op_register(const struct merak_op *op,
                                    struct merak_error *err) MERAK_CHECKED;
/* The op of that name, built in or registered, or NULL. */
const struct merak_op *merak_op_find(const char *name);
/*
 * Register a kernel for op `name` with a backend ("cpu").
 *
 *   name     copied
 *   fn       called by one thread at a time, the engine's compute thread
 *   scratch  NULL: the kernel needs none
 *
 * MERAK_ERR_PARAM if the backend already has a kernel for the op.  Call before
 * training; not thread-safe.
 */
enum merak_status merak_kernel_register(const char *backend, const char *name,
                                        merak_kernel_fn fn,
                                        merak_scratch_fn scratch,
                                        struct merak_error *err) MERAK_CHECKED;

#endif
