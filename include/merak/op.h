/* SPDX-License-Identifier: Apache-2.0 */
/* merak/op.h - what an operation has to tell: shapes, cost, how it may be
 * cut, its gradient and its kernels
 *
 * The built-in operations are described by the same structs; a program adds
 * its own with merak_op_register() and merak_kernel_register() and applies
 * them with merak_apply().  Nothing here mentions ranks: how an op is spread
 * over ranks follows from its signature.
 */
#ifndef MERAK_OP_H
#define MERAK_OP_H

#include <stdbool.h>

#include "merak/status.h"
#include "merak/types.h"

#define MERAK_MAX_OPERANDS 10 /* inputs plus outputs of one node */
#define MERAK_MAX_INDICES 12

/* Numbers an op is parametrised with; each op documents its own slots. */
struct merak_attrs {
    int64_t i[4];
    double f[6];
    const double *list; /* NULL, or i[2] numbers; a node has a copy of them */
};

/*
 * The dimension signature: one index for each loop of the op's mathematics,
 * and for each operand the index that runs along each of its dims.
 *
 * Cutting the op along index x over a mesh axis means: an operand that has x
 * along a dim is split along that dim; an input without x is replicated; an
 * output without x is partial, to be combined by x's kind (sum or max).
 * An index of kind WHOLE cannot be cut.
 *
 * Names are letters, each once in a signature.  Two of them mean something:
 * 'b' is the samples of a micro-batch, 't' the places of a sequence, and
 * options say whether these may be cut.  A gradient node is cut along the
 * index that has the name of the one that its forward node is cut along.
 */
enum merak_index_kind {
    MERAK_INDEX_WHOLE, /* every shard needs all of it */
    MERAK_INDEX_SUM,   /* cuttable; outputs without it are partial sums */
    MERAK_INDEX_MAX,   /* cuttable; outputs without it are partial maxima */
};

struct merak_index {
    enum merak_index_kind kind;
    char name;   /* 'h', 'o', 'i', 'v', .. */
    bool uneven; /* shards may differ in size (a vocabulary) */
    size_t extent;
};

struct merak_signature {
    int n_index;
    struct merak_index index[MERAK_MAX_INDICES];
    /* operand_dim[o][d]: index along dim d of operand o (inputs first, then
     * outputs). */
    int8_t operand_dim[MERAK_MAX_OPERANDS][MERAK_MAX_DIMS];
    /* The op is linear in all its inputs together (add, convert): partial
     * inputs give a partial output without communication. */
    bool linear;
};

struct merak_cost {
    double flops;
    double bytes; /* read and written once each */
};

/* Shapes and dtypes an op sees and gives while the graph is built. */
struct merak_infer {
    const struct merak_attrs *attrs;
    int n_in, n_out;
    struct merak_shape shape[MERAK_MAX_OPERANDS]; /* inputs, then outputs */
    enum merak_dtype dtype[MERAK_MAX_OPERANDS];
};

/*
 * One operand of a kernel call: the part this rank holds.
 * data is contiguous row-major of shape `local`; element (i0,i1..) of it is
 * global element (lo[0]+i0, lo[1]+i1, ..) of a tensor of shape `full`.
 */
struct merak_operand {
    void *data;
    enum merak_dtype dtype;
    struct merak_shape local;
    struct merak_shape full;
    size_t lo[MERAK_MAX_DIMS];
};

/* What changes from step to step; borrowed by every kernel of the step. */
struct merak_step {
    uint64_t seed;   /* of the run: weights, dropout, order */
    uint64_t step;   /* from 0 */
    uint64_t sample; /* global index of this micro-batch's first sample */
    float lr;
    float beta1, beta2, eps, weight_decay;
    float clip;       /* 0: no clipping */
    float grad_scale; /* 1 / (micro-batches * dp) */
    bool train;       /* false: dropout is the identity */
    int pass;         /* 0 ..: which forward pass (merak_passes()); of a
                         gradient, the last */
};

struct merak_kernel_call {
    const struct merak_attrs *attrs;
    int n_in, n_out;
    struct merak_operand operand[MERAK_MAX_OPERANDS]; /* inputs, outputs */
    bool accumulate; /* outputs += instead of = (W-phase nodes) */
    bool first;      /* this shard is the first along every index that is cut
                        and reduced: it alone adds what must be added once
                        (a bias) */
    void *scratch;   /* of scratch_bytes(), 64-byte aligned, or NULL */
    size_t scratch_bytes;
    const struct merak_step *step;
    void *device; /* what a backend with queues launches into: of "cuda" a
                     struct merak_cuda_context.  NULL on hosts. */
};

typedef enum merak_status (*merak_kernel_fn)(
    const struct merak_kernel_call *call, struct merak_error *err);
/* Bytes of scratch for such a call (data pointers not set). */
typedef size_t (*merak_scratch_fn)(const struct merak_kernel_call *call);

struct merak_grad; /* a gradient being built */
struct merak_node;
struct merak_value;

enum merak_phase {
    MERAK_PHASE_F, /* forward */
    MERAK_PHASE_B, /* gradient of activations */
    MERAK_PHASE_W, /* gradient of parameters, accumulated in f32 */
};

/* What of merak_kernel_call.step an op's kernels look at. */
enum merak_step_use {
    MERAK_STEP_ANY,     /* it is not known: anything */
    MERAK_STEP_DROPOUT, /* nothing where attrs.f[0], what is dropped, is 0 */
    MERAK_STEP_NONE,    /* nothing: equal operands give equal results */
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
    /* Kernels may be given one memory for input 0 and output 0, which then are
     * of one shape and type: they read each element before they write it.
     * Programs do so where nobody needs input 0 afterwards. */
    bool in_place;
    /* A call that looks at nothing of its step may be recorded once and be
     * repeated in every step. */
    enum merak_step_use step_use;
};

/* --- for gradient builders ------------------------------------------- */

/* Input i / output i of a node in the graph being differentiated; both are the
 * graph's. */
struct merak_value *merak_node_in(const struct merak_node *node, int i);
struct merak_value *merak_node_out(const struct merak_node *node, int i);
/* How many inputs it has. */
int merak_node_in_count(const struct merak_node *node);
/* What it was applied with; the graph's, never NULL. */
const struct merak_attrs *merak_node_attrs(const struct merak_node *node);
/* A value's global dims; the graph's. */
const struct merak_shape *merak_value_shape(const struct merak_value *value);

/* Gradient that reached output i, or NULL if none did. */
struct merak_value *merak_grad_out(struct merak_grad *g,
                                   const struct merak_node *node, int i);
/* True if the loss's gradient with respect to v is wanted (v is a parameter
 * or depends on one). */
bool merak_grad_wanted(struct merak_grad *g, const struct merak_value *v);
/*
 * Add a gradient node of phase B or W.
 *   in[n_in]   values; out[op->n_out] receives the new values
 * W-phase outputs are f32 and are accumulated over micro-batches.
 */
enum merak_status merak_grad_node(struct merak_grad *g,
                                  const struct merak_node *forward,
                                  enum merak_phase phase, const char *op,
                                  const struct merak_attrs *attrs, int n_in,
                                  struct merak_value *const *in,
                                  struct merak_value **out,
                                  struct merak_error *err) MERAK_CHECKED;
/* Contribute `grad` to the gradient of value v.  Contributions to an
 * activation are summed last use first; contributions to a parameter are one
 * per use and stay apart, so that the order of sums does not depend on how
 * stages are cut. */
enum merak_status merak_grad_add(struct merak_grad *g, struct merak_value *v,
                                 struct merak_value *grad,
                                 struct merak_error *err) MERAK_CHECKED;

/* --- registration ------------------------------------------------------ */

/*
 * Make an op known by its name.  `op` is borrowed for the life of the
 * process.  MERAK_ERR_PARAM if the name is taken or a required function is
 * missing.  Call before building models; not thread-safe.
 */
enum merak_status merak_op_register(const struct merak_op *op,
                                    struct merak_error *err) MERAK_CHECKED;
/* The op of that name, built in or registered, or NULL. */
const struct merak_op *merak_op_find(const char *name);
/*
 * Give a backend ("cpu") a kernel for op `name`.
 *
 *   name     copied
 *   fn       called by one thread at a time, the engine's compute thread
 *   scratch  may be NULL: the kernel takes none
 *
 * MERAK_ERR_PARAM if the name has a kernel there already.  Call before
 * training; not thread-safe.
 */
enum merak_status merak_kernel_register(const char *backend, const char *name,
                                        merak_kernel_fn fn,
                                        merak_scratch_fn scratch,
                                        struct merak_error *err) MERAK_CHECKED;

#endif
