/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/geometry.h - sizes for loops from a kernel call's shapes
 *
 * Flattens operands to the few sizes that a loop nest needs.  No arithmetic on
 * data; shared by every backend that runs on the host.
 */
#ifndef MERAK_KERNELS_GEOMETRY_H
#define MERAK_KERNELS_GEOMETRY_H

#include "merak/op.h"

#include "kernels/relative.h"

/* Local elements along dims [from, to). */
static inline size_t merak_local_span(const struct merak_operand *op, int from,
                                      int to)
{
    size_t n = 1;

    for (int d = from; d < to; d++)
        n *= op->local.dim[d];
    return n;
}

static inline size_t merak_local_count(const struct merak_operand *op)
{
    return merak_local_span(op, 0, op->local.ndim);
}

static inline size_t merak_local_last(const struct merak_operand *op)
{
    return op->local.dim[op->local.ndim - 1];
}

/* Elements between the beginnings of two rows. */
static inline size_t merak_local_ld(const struct merak_operand *op)
{
    return op->ld != 0 ? op->ld : merak_local_last(op);
}

/* Bytes from the beginning of an operand to its end. */
static inline size_t merak_local_bytes(const struct merak_operand *op)
{
    size_t n = op->ld == 0
                   ? merak_local_count(op)
                   : merak_local_span(op, 0, op->local.ndim - 1) * op->ld;

    return n * merak_dtype_bytes(op->dtype);
}

/* Output o of a call. */
static inline const struct merak_operand *
merak_call_out(const struct merak_kernel_call *call, int o)
{
    return &call->operand[call->n_in + o];
}

/* The parts of operand `x` around dim i[0]: dims before it, its own, behind. */
struct merak_along {
    size_t outer, n, inner;
};
static inline struct merak_along
merak_along_of(const struct merak_kernel_call *call,
               const struct merak_operand *x)
{
    int d = (int)call->attrs->i[0];

    return (struct merak_along){merak_local_span(x, 0, d), x->local.dim[d],
                                merak_local_span(x, d + 1, x->local.ndim)};
}

/* What a gradient of loss number i[0] is multiplied by; 0: there is one loss.
 */
static inline double merak_loss_scale(const struct merak_kernel_call *call)
{
    int64_t number = call->attrs->i[0];

    return number == 0 ? call->attrs->f[0]
                       : call->attrs->f[0] * call->step->loss_scale[number - 1];
}

/* A matrix product's sizes: x [m, k], w [n, k], y [m, n]. */
struct merak_gemm_sizes {
    size_t m, n, k;
};
/* Sizes of a linear (x, w -> y), linear_dx (dy, w -> dx) or linear_dw
 * (x, dy -> dw) call, all in the notation of the forward product. */
struct merak_gemm_sizes
merak_linear_sizes(const struct merak_kernel_call *call);
struct merak_gemm_sizes
merak_linear_dx_sizes(const struct merak_kernel_call *call);
struct merak_gemm_sizes
merak_linear_dw_sizes(const struct merak_kernel_call *call);

/*
 * One of q, k, v, o, or a gradient of one, in memory.  Element (b, t, h, d)
 * is element offset + (b n + i - t0) row + h D + d of op, i being the place of
 * position t; h counts query heads for q and o, kv heads for k and v; D is that
 * of q and k, or E, the width of v and o.
 *
 * A call may be for part of the queries of a sequence, first .. end - 1, and
 * where sequences are in pieces for several such parts, one after the other
 * (merak_attention_next()); the keys are 0 .. T - 1, at least those that they
 * see.  Keys that no query sees are not read.  The backward call stores dq of
 * its queries, and stores, or if `accumulate` adds to, dk and dv of all its
 * keys.
 *
 * Query i sees keys max(s, i - window + 1) .. e - 1 with e the smaller one of
 * max(i + 1 + after, p) and the number of keys of the sample, T if that is not
 * given; s is 0, or the start of its document, and p is 0, or the sample's
 * prefix.  Neither end decreases for later queries.  Queries and keys may be of
 * two sequences, if all queries see all keys that there are.  A query that sees
 * no key has o = 0, gradients 0 and lse = -inf, or its sink.
 *
 * In a training step a fraction `drop` of the probabilities is dropped: see
 * merak_attention_key().
 */
struct merak_heads {
    const struct merak_operand *op;
    size_t offset, row;
    size_t t0; /* the place of the first position that op holds */
    size_t n;  /* how many it holds of each sample */
    size_t D;  /* channels of a head */
};
struct merak_attention {
    size_t B, T, G, R, D; /* T keys; G kv heads, R query heads each */
    size_t E;             /* channels of a value; D are those of a key */
    size_t first, end;    /* queries */
    size_t pieces;        /* of T positions; 0: they are in order */
    bool accumulate;
    size_t window;     /* at least 1; SIZE_MAX: all keys before */
    size_t after;      /* 0: causal; at most T: all keys */
    double scale, cap; /* scores are cap tanh(scale q . k / cap); cap 0:
                          scale q . k */
    double drop;
    int64_t stream; /* of the numbers that decide what is dropped */
    const struct merak_operand *starts; /* i32 [B, o.n], starts of the queries'
                                           documents; NULL: all 0 */
    const struct merak_operand *lengths; /* i32 [B], keys of the samples; NULL:
                                            T of each */
    const struct merak_operand *prefix; /* i32 [B], keys that all queries of the
                                           sample see; NULL: none */
    const struct merak_operand *sinks;  /* f32 [G, R], logits without a value;
                                           NULL: none */
    struct merak_relative bias;         /* added to scaled scores */
    const struct merak_step *step;
    struct merak_heads q, k, v, o;
    const struct merak_operand *lse;    /* [B, o.n, G, R] */
    struct merak_heads d_o, dq, dk, dv; /* set by the _dx form only */
};
/* The element of x at (b, t, h, 0). */
static inline size_t merak_heads_at(const struct merak_attention *at,
                                    const struct merak_heads *x, size_t b,
                                    size_t t, size_t h)
{
    size_t i = merak_position_index(at->pieces, at->T, t);

    return x->offset + (b * x->n + i - x->t0) * x->row + h * x->D;
}

/* The row of a query among those that the call has. */
static inline size_t merak_query_row(const struct merak_attention *at, size_t b,
                                     size_t t)
{
    return b * at->o.n + merak_position_index(at->pieces, at->T, t) - at->o.t0;
}

/* The element of lse of query (b, t) and query head h. */
static inline size_t merak_lse_at(const struct merak_attention *at, size_t b,
                                  size_t t, size_t h)
{
    return merak_query_row(at, b, t) * at->G * at->R + h;
}

/* Where the document of query (b, t) starts. */
static inline size_t merak_document_start(const struct merak_attention *at,
                                          size_t b, size_t t)
{
    if (at->starts == NULL)
        return 0;
    return (
        size_t)((const int32_t *)at->starts->data)[merak_query_row(at, b, t)];
}

/* The number of keys that a sample has. */
static inline size_t merak_key_count(const struct merak_attention *at, size_t b)
{
    return at->lengths == NULL
               ? at->T
               : (size_t)((const int32_t *)at->lengths->data)[b];
}

/* One past the last key that a query sees; at most merak_first_key() if it sees
 * none.  It never decreases for later queries. */
static inline size_t merak_end_key(const struct merak_attention *at, size_t b,
                                   size_t query)
{
    size_t end = query + 1 + at->after, keys = merak_key_count(at, b);

    if (at->prefix != NULL) {
        size_t seen = (size_t)((const int32_t *)at->prefix->data)[b];

        end = seen > end ? seen : end;
    }
    return end < keys ? end : keys;
}

/* The first key that a query sees; it never decreases for later queries. */
static inline size_t merak_first_key(const struct merak_attention *at, size_t b,
                                     size_t query)
{
    size_t start = merak_document_start(at, b, query);
    size_t first = query >= at->window ? query - at->window + 1 : 0;

    return first > start ? first : start;
}

/* Does each query see its own key, and none after it? */
static inline bool merak_attention_is_causal(const struct merak_attention *at)
{
    return at->after == 0 && at->lengths == NULL && at->prefix == NULL;
}

/* MERAK_ERR_PARAM naming the first sample whose number of keys is not 1 .. T,
 * or whose prefix is not 0 .. T; for backends that see the numbers. */
enum merak_status merak_attention_check(const struct merak_attention *at,
                                        struct merak_error *err) MERAK_CHECKED;

/* Set first and end to the next positions in a row, in ascending order, at
 * which the call has queries; at->end is 0 before the first.  False: there are
 * no more. */
bool merak_attention_next(struct merak_attention *at);

/*
 * Dropout: probability (query head h, query i, key j) of local sample b is kept
 * if merak_rng_uniform(merak_attention_key(at, b),
 * merak_attention_element(at, h, j) + i) >= drop.  Elements are numbered over
 * all heads as [H, T, Q'], keys before queries, with Q' the next multiple of 4
 * of the number of queries, so that a row of queries is whole Philox blocks.
 */
uint64_t merak_attention_key(const struct merak_attention *at, size_t b);
uint64_t merak_attention_element(const struct merak_attention *at, size_t h,
                                 size_t j);

/* Fill *at from a call of attention, with or without a bias, of
 * attention_packed, and of their gradients. */
void merak_attention_view(const struct merak_kernel_call *call,
                          struct merak_attention *at);
void merak_attention_packed_view(const struct merak_kernel_call *call,
                                 struct merak_attention *at);
void merak_attention_dx_view(const struct merak_kernel_call *call,
                             struct merak_attention *at);
void merak_attention_packed_dx_view(const struct merak_kernel_call *call,
                                    struct merak_attention *at);

/*
 * Walk an operand [B, ..] of a call in runs that are contiguous both in memory
 * and in the full tensor, with its positions in order.  Run r of
 * merak_run_count() is merak_run_length() elements from local element r *
 * length; merak_run_place() gives the sample it belongs to (global dim 0) and
 * its first element's index within the sample.
 */
size_t merak_run_length(const struct merak_operand *op, size_t pieces);
size_t merak_run_count(const struct merak_operand *op, size_t pieces);
void merak_run_place(const struct merak_operand *op, size_t pieces, size_t run,
                     size_t *sample_p, size_t *element_p);

/* The key of the random stream for dropout of a sample: its element e is kept
 * if merak_rng_uniform(key, e) >= p. */
uint64_t merak_dropout_key(const struct merak_step *step, size_t sample,
                           int64_t stream);

/* What a gate g and what it is multiplied by, u, make:
 *   g' sigmoid(slope g') (u' + shift),  g' = min(g, limit), u' likewise and
 * at least -limit.  Plain: silu(g) u. */
struct merak_gating {
    double limit; /* INFINITY: none */
    double slope, shift;
    bool plain;
};

/*
 * Sizes of a call of experts, experts_dx, experts_dw or experts_db: `n` tokens with K rows
 * each, row i being of token i / K; E experts, from number `from` on, of inner
 * width F, C channels.  ids[i] is the expert of row i; `all` is the number of
 * experts that there are, on all ranks.  The pool has [2, F] of each row: the
 * gate before its activation, and what it is multiplied by; of all rows at
 * their own places or, if it is `shared`, of the first `kept` ones of these
 * experts in the order of merak_experts_sort().
 */
struct merak_experts {
    size_t n, K, from, E, all, F, C, kept;
    bool shared;
    bool of_weights; /* it is a call of experts_dw or experts_db */
    const int32_t *ids;
    const struct merak_operand *bias; /* f32 [E, 2, F], added to the gate and to
                                         the other layer; NULL: none */
    struct merak_gating gating;
};
struct merak_experts merak_experts_sizes(const struct merak_kernel_call *call);
/* Is the row of one of these experts? */
static inline bool merak_experts_has(const struct merak_experts *x, size_t i)
{
    return (size_t)x->ids[i] - x->from < x->E;
}
/* Place in the pool of row i, which comes at position `at` of the sorted ones;
 * from `kept` on: none. */
static inline size_t merak_experts_place(const struct merak_experts *x,
                                         size_t at, size_t i)
{
    return x->shared ? at : i;
}
/* A row of no expert: another call has it. */
#define MERAK_NO_EXPERT (-1)
/* MERAK_ERR_PARAM naming the first row whose expert does not exist. */
enum merak_status merak_experts_check(const struct merak_experts *x,
                                      struct merak_error *err) MERAK_CHECKED;
/* The same of a call of experts_bias, experts_bias_dx or experts_bias_db. */
enum merak_status
merak_experts_bias_check(const struct merak_kernel_call *call,
                         struct merak_error *err) MERAK_CHECKED;
/*
 * These experts' rows, in ascending order by expert: those of the e-th are
 * order[first[e]] .. order[first[e + 1] - 1].
 *
 *   first  out  [E + 1]
 *   order  out  [n K]
 */
void merak_experts_sort(const struct merak_experts *x, uint32_t *first,
                        uint32_t *order);

/* What a call of experts_overflow counts: of n rows those of experts [from, from
 * + E), but for `kept`; this rank's part of each. */
struct merak_overflow {
    const int32_t *ids;
    size_t n, from, E, kept;
    double part;
};
struct merak_overflow merak_overflow_view(const struct merak_kernel_call *call);
/* Its result for so many rows. */
double merak_overflow_of(const struct merak_overflow *o, size_t rows);
/* All of it, on a host. */
double merak_overflow_count(const struct merak_kernel_call *call);

/* How a call of route chooses. */
struct merak_route {
    size_t n, E, K;
    bool sigmoid, normal; /* scores are sigmoids, not a softmax; weights are
                             divided by their sum */
    bool rounded;         /* weights, to the type of the logits */
    size_t groups, kept;  /* groups of experts, and how many of them count; 1:
                             there are none */
    bool by_best;         /* groups, by their best expert and not the two */
    double scale;
};
struct merak_route merak_route_view(const struct merak_kernel_call *call);
/* The operands of balance's ops, whose sequences this rank has B of. */
struct merak_balance {
    size_t B, T, E, K;     /* T: tokens of a sequence here */
    size_t L;              /* numbers of a sequence's load */
    double all_b, all_t;   /* of all ranks */
    bool sigmoid;          /* as merak_route's */
    double aux, square;    /* balance_dx: what a token's gradients of its shares
                              and of its squared logarithm are multiplied by */
    const struct merak_operand *z, *ids, *load;
};
struct merak_balance merak_load_view(const struct merak_kernel_call *call);
struct merak_balance
merak_balance_dx_view(const struct merak_kernel_call *call);
/* balance and balance_count. */
struct merak_balance merak_balance_view(const struct merak_kernel_call *call);
/* balance_count: by what rows, and by what tokens, are multiplied, so that
 * their difference is 0 at the mean and a whole number. */
void merak_balance_whole(const struct merak_balance *b, double *rows_p,
                         double *tokens_p);
/* With `normal`, what is added to the sum of sigmoids. */
#define MERAK_ROUTE_TINY 1e-20

/* MERAK_ERR_PARAM naming the first element that has no log1p. */
enum merak_status merak_check_log1p(const struct merak_operand *x,
                                    struct merak_error *err) MERAK_CHECKED;
/* MERAK_ERR_PARAM naming the first id of `ids` outside [0, n). */
enum merak_status merak_check_ids(const struct merak_operand *ids, size_t n,
                                  const char *what,
                                  struct merak_error *err) MERAK_CHECKED;
/* The same for targets, which may also be MERAK_NO_TARGET. */
enum merak_status merak_check_targets(const struct merak_operand *ids, size_t n,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
