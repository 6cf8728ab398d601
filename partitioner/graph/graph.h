/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/graph/graph.h - the proxy graph: what is computed, without data
 *
 * SSA: every value has one producer (or is an input or a parameter); nodes
 * are in execution order.  Shapes are global, as on one device.  After
 * merak_graph_differentiate() the gradient nodes follow the forward nodes;
 * `forward` of a gradient node names the node it differentiates.
 *
 * The same struct holds the sharded graph (shard.h), which has a layout per
 * value and a strategy per node besides, and into which "convert" nodes have
 * been inserted.
 *
 * Built-in ops (operands; indices; attrs).  dtype "c" is the compute dtype.
 *   forward
 *     embedding     tokens i32[B,T], table c[V,C] -> c[B,T,C]
 *                   b t c; v summed (rows of another shard give zeros);
 *                   i[0] - 1: the row that gets no gradient, unless i[0] is
 *                   0; f[0] = factor of the rows, 0: 1
 *     add_position  x c[B,T,C], table c[P,C] -> c[B,T,C]    P whole
 *     linear        x c[lead..,in..], w c[out..,in..], (bias f32[out..])
 *                   -> c[lead..,out..]; i[0] = contracted dims; in summed.
 *                   The bias is added where call->first.
 *     conv          x c[B,in..,I], w c[O,size..,I], (bias f32[O])
 *                   -> c[B,out..,O]; 1 to 3 dims of space, windows over them
 *                   as enum merak_window_number has it: output p is of points
 *                   p stride - pad + k dilation; I and the size summed.  The
 *                   bias is added where call->first.
 *     pool          x c[B,in..,C] -> c[B,out..,C]; windows as conv; i[1] = enum
 *                   merak_pooling
 *     conv_dx       x c[B,out..,O], w -> c[B,in..,I]: conv with its sides
 *                   exchanged
 *     layernorm     x c[..,C], gamma f32[C], beta f32[C]
 *                   -> y c[..,C], mean f32[..], rstd f32[..]; f[0] = eps
 *     rmsnorm       x, gamma -> y, rstd; f[0] = eps; over the last i[0]
 *                   dims, as many as gamma has (0: 1); f[1] is added to
 *                   gamma
 *     rope          x c[B,T,..,D] -> same; f[0] = theta, i[0] = 1: inverse
 *                   rotation (the gradient); i[1], f[1..4]: kind, factor,
 *                   low, high and amplitude of struct merak_rope_scaling,
 *                   list: by; i[3] = channels that are rotated, 0: D
 *     attention     q c[B,T,G,R,D], k c[B,T,G,D], v c[B,T,G,E]
 *                   -> o c[B,T,G,R,E], lse f32[B,T,G,R]; T of k, D, E whole;
 *                   f[0] = p of dropout of probabilities, i[0] = its stream,
 *                   as for dropout; i[1] = the most keys a query attends to,
 *                   up to its own position, 0: all; i[3] = the same as the
 *                   model has it, also where the sequence is not longer;
 *                   f[1] = factor of the scores q . k, 0: 1/sqrt(D);
 *                   f[2] = c of their soft cap c tanh(s / c), 0: none;
 *                   i[2] = the most keys after its own that a query attends
 *                   to, -1: all, and if i[1] is 0 k may have another T than q;
 *                   i[4] = which inputs follow, of enum merak_attention_input:
 *                   (starts i32[B,T]: the position at which the query's
 *                   document starts and before which it attends to no key;
 *                   never decreases along T)
 *                   (lengths i32[B]: how many keys there are)
 *                   (prefix i32[B]: how many keys all queries attend to)
 *                   (sinks f32[G,R]: a logit of each head that is one more in
 *                   every sum of exponentials, and so in lse; not of
 *                   attention_packed)
 *     attention_biased  attention with (table c[N,G,R]) behind the other
 *                   inputs: N buckets of distances, of both sides if f[4] is 1,
 *                   the last one's from f[3] on (kernels/relative.h); f[2] is 0
 *     attention_packed  qkv c[B,T,3,H,D] -> o c[B,T,H,D], lse f32[B,T,H];
 *                   otherwise the same
 *     gelu          x -> y; i[0] = 1: tanh form
 *     relu2         x -> max(x, 0)^2
 *     widen         x c[..] -> y f32[..]
 *     swiglu        gate, up -> y; i[0] = 1: gelu(gate), tanh form, instead
 *                   of silu(gate)
 *     relu, tanh, log1p  x -> y; of relu f[0] = factor of x below 0
 *     channel_sums  x c[B,..,C], (y c[B,..,C]) -> f64[B,C,2]: sums of x, and
 *                   of products with y, or else of squares; all between summed
 *     channel_norm  x c[B,..,C], sums f64[B,C,2], gamma f32[C], beta f32[C] ->
 *                   y; i[0] = channels of a group, i[1] = 1, f[0] = eps
 *     batch_norm    as channel_norm, mean f32[C], variance f32[C] behind beta;
 *                   i[0] = 1, i[1] = samples of a group; not in training the
 *                   last two are taken in the place of a group's
 *     concat        x c[..,C1], .., 2 to 4 of them -> y c[..,sum of C]; C whole
 *     concat_shared shared c[B,T,C1], x c[B,T,H,C2] -> y c[B,T,H,C1+C2]: the
 *                   same channels in front of each head's
 *     mean          x c[b,..] -> y c[b,..]: along dim i[0], which y lacks
 *     topk_pack     x c[lead..,C] -> v c[lead..,K], at i32[lead..,W]; of a row
 *                   the i[0] = K largest |x| of i[1] = C, by ascending index;
 *                   of equal ones the first, NaN is the largest; bit i % 32 of
 *                   word i / 32: element i is one of them
 *     topk_unpack   v, at -> y c[lead..,C]; zeros elsewhere; as above
 *     softcap       x c[B,T,V] -> y = c tanh(x / c); f[0] = c
 *     add           a, b -> a + b; linear in both
 *     scale         x -> f[0] x
 *     dropout       x -> y; f[0] = p, i[0] = stream (unique in the model)
 *     route         z c[B,T,E], (bias f32[E]) -> w f32[B,T,K], ids i32[B,T,K];
 *                   E whole; i[0] = K, i[1] = 1: scores are sigmoids, i[2] =
 *                   1: weights are divided by their sum, i[3] = groups, i[4]
 *                   = 1: those by their best expert, not the two best, f[0]
 *                   = factor of the weights, 0: 1, f[1] = groups kept, f[2]
 *                   = 1: weights are rounded to the type of z
 *     experts       x c[B,T,C], w f32[B,T,K], ids i32[B,T,K], gate c[E,F,C],
 *                   up c[E,F,C], down c[E,C,F] -> y c[B,T,C], pool
 *                   c[B,T,K,2,F]: of each row gate x and up x; f summed; C, E
 *                   whole; i[2] = 1: (bias f32[E,2,F]) of the two follows all
 *                   inputs, here and in gradients; f[1..3]: limit, slope and
 *                   shift of struct merak_gating (kernels/geometry.h)
 *     experts_bias  x c[B,T,C], w, ids, bias f32[E,C] -> y: x and each row's
 *                   weight times its expert's bias; E, C whole
 *     route_load    z c[B,T,E], ids i32[B,T,K], (bias f32[E]) -> load
 *                   f32[B,2E+1]: of each sequence, rows of each expert; the sum
 *                   over tokens of each expert's share, its score divided by
 *                   the token's sum of scores; the sum of squares of the
 * logarithm of tokens' sums of exponentials.  t summed; i[1] as route; f[0],
 * f[1] = coefficients of the losses that balance has balance       load ->
 * tally f64[2+E]: with f the share of a sequence's tokens that choose an expert
 * and P the mean of its shares, the mean over sequences of E sum f P; the mean
 * over tokens of those squares; rows of each expert.  b summed; i[0] = E, i[1]
 * = T experts_overflow  ids, pool of experts that share it -> f64[1]: rows of
 *                   these experts that have no place in it; e, f summed: of a
 *                   part of f that part of the rows
 *     experts_places  w, ids -> place f32[B,E,1+R]: of each sequence and expert
 *                   how many of its first R rows there are, then their weights;
 *                   rest i32[B,T,K]: experts of rows that have no place, -1 for
 *                   others; T, E, R whole; i[0] = R, i[1] = E
 *     experts_left  rest -> f64[1]: how many of these there are; all whole
 *     experts_capacity  ids -> kept i32[B,T,K]: of each sequence and expert its
 *                   first R rows, -1 for others; T, K whole; i[0] = R,
 *                   i[1] = E
 *     experts_dropped  kept -> f64[1]: how many are -1; b, t summed
 *     experts_send  x c[B,T,C], ids -> rows c[B,E,R,C]: rows at their places,
 *                   zeros elsewhere; as experts_places
 *     experts_rows  rows, place, gate, up, down, x, w, rest, left -> y
 *                   c[B,E,R,C], more c[B,T,C], pool c[B,E,R,2,F]: rows by
 *                   experts, times their weights; sums over a token's rows that
 *                   have no place, as experts has them; e, f summed for more, f
 *                   for y; all else whole; i[0] = E, f[0] = load of experts
 *                   up to which none are left.  Nothing of the latter is read,
 *                   or made, where left is 0
 *     experts_join  rows, ids, (more) -> y c[B,T,C]: sums of a token's rows,
 *                   and of more
 *     xent_max      logits c[B,T,V] -> f32[B,T]; v by max
 *     xent_sum      logits, max, targets i32[B,T]
 *                   -> sum f32[B,T] of exp(l - max), z f32[B,T] the target's
 *                   logit; v summed.  For MERAK_NO_TARGET sum is 1 and z is
 *                   max where call->first, both are 0 elsewhere: nll is 0
 *     xent_loss     max, sum, z -> nll f32[B,T]
 *     pair_loss     nll f32[B,T], pairs i32[B,T], reference f32[B,T]
 *                   -> loss f32[B,T], weight f32[B,T], reward f32[B,T]; T
 *                   whole.  Positions
 *                   of a pair of answers have in `pairs` the position at
 *                   which the second, the rejected one begins, others 0.
 *                   Of reference - nll, the logarithm of how much likelier
 *                   the answers have become, m is the sum over the first one
 *                   minus that over the second.  loss has log(1 + exp(-f[0]
 *                   m)) where the pair begins, elsewhere 0; weight has its
 *                   derivatives by nll; f[0] = beta of DPO.  reward has f[0]
 *                   times either sum where its answer begins, elsewhere 0
 *     dice_sums     logits c[B,..,V], targets i32[B,..] -> f64[B,V,3]: sums of
 *                   p t, p and t over points that have a target (kernels/dice.h)
 *     dice_loss     sums f64[B,V,3] -> e f32[B,V]
 *     point_loss    x c[..], t f32[..] -> e f32[..]; i[1] = enum
 *                   merak_point_loss
 *     losses        n times f64[] -> f64[n]; list: weights
 *     mean_loss     nll f32[B,T] -> loss f64[] ; f[0] = 1/(B T) of the whole
 *                   micro-batch; b, t summed; fixed order.  Of pairs: loss,
 *                   reward, pairs -> f64[4], enum merak_loss_part
 *   backward (B: activations; W: parameters, f32, accumulated over
 *   micro-batches; `call->accumulate` means += ; they may be kept in bf16:
 *   kernels/narrow.c)
 *     embedding_dw  W  tokens, dy -> dtable f32[V,C]; i[0] = V; v parallel;
 *                   b t summed; i[1], f[0] as embedding's i[0], f[0]
 *     add_position_dw W  dy, (starts) -> dtable f32[P,C]; i[0] = P
 *     linear_dx     B  dy, w -> dx; i[0] as forward; out summed
 *     linear_dw     W  x, dy -> dw f32[out..,in..]; i[0] as forward; lead
 *                   summed
 *     linear_db     W  dy -> db f32[out..]; i[0] = dims of out
 *     conv_dx       B  dy, w -> dx; as forward
 *     conv_dw       W  x, dy -> dw f32[O,size..,I]; as forward; B and space
 *                   summed
 *     pool_dx       B  dy, (x, if the largest is asked for) -> dx; as forward
 *     layernorm_dx  B  dy, x, gamma, mean, rstd -> dx
 *     layernorm_dw  W  dy, x, mean, rstd -> dgamma, dbeta
 *     rmsnorm_dx    B  dy, x, gamma, rstd -> dx; as forward
 *     rmsnorm_dw    W  dy, x, rstd -> dgamma
 *     attention_dx  B  do, q, k, v, o, lse, (optional inputs as forward) ->
 *                   dq, dk, dv; as forward
 *     attention_biased_dx  B  the same -> dq, dk, dv, sums f32[B,N,G,R]: of the
 *                   gradients of scores by bucket
 *     attention_biased_dw  W  sums -> dtable f32[N,G,R]
 *     attention_sinks_dw  W  do, o, lse, sinks -> dsinks f32[G,R]
 *     attention_packed_dx  B  do, qkv, o, lse, (optional inputs as forward) ->
 *                   dqkv; as forward
 *     relu2_dx      B  dy, x -> dx
 *     mean_dx       B  dy -> dx; i[0] as forward, i[1] = extent of that dim
 *     relu_dx       B  dy, x -> dx; as forward
 *     channel_norm_dx  B  dy, x, sums, dsums, gamma -> dx; as forward; dsums
 *                   are channel_sums of dy and x
 *     channel_norm_dw  W  sums, dsums -> dgamma, dbeta; as forward, i[3] =
 *                   points of a sample; B summed
 *     batch_stats   W  sums -> mean f32[C], variance f32[C]; as channel_norm_dw;
 *                   means over groups, of variances without bias
 *     concat_dx     B  dy -> dx; i[0] = its first channel, i[1] = channels
 *     concat_shared_dx  B  dy -> dshared, dx; i[0] = channels of dshared, for
 *                   which H is summed
 *     tanh_dx       B  dy, y -> dx
 *     log1p_dx      B  dy, x -> dx
 *     gelu_dx       B  dy, x -> dx
 *     narrow        B  dy f32[..], x c[..] -> dx c[..]: dy, in the type of x
 *     swiglu_dx     B  dy, gate, up -> dgate, dup; as forward
 *     topk_take     B  dy c[lead..,C], at -> dv c[lead..,K]: what places at have;
 *                   as topk_pack
 *     softcap_dx    B  dy, y -> dx; f[0] as forward
 *     route_dx      B  dw, z, ids -> dz; as forward
 *     balance_dx    B  z, load -> dz c[B,T,E], times step.token_share; as
 *                   route_load, coefficients divided by the number of layers
 *     balance_count W  load -> dbias f32[E]: rows less their mean, both times
 *                   what makes them whole; i[0] = E, i[1] = T, i[2] = K
 *     experts_dx    B  dy, w, ids, gate, up, down, pool -> dx, dw, dpool
 *     experts_dw    W  x, w, ids, dy, pool, dpool -> dgate, dup,
 *                   ddown; i[0] = E
 *     experts_db    W  as experts_dw -> dbias; as experts_dw
 *     experts_bias_dx  B  dy, bias, ids -> dw
 *     experts_bias_db  W  dy, w, ids -> dbias f32[E,C]; i[0] = E
 *     experts_places_dx  B  dplace, ids -> dw
 *     experts_rows_dx    B  dy, place, gate, up, down, pool, dmore, w, rest, x,
 *                   left -> dx, dplace, dx of rest, dw of rest, dpool; as
 *                   forward
 *     experts_rows_dw    W  rows, place, dy, pool, dpool, x, w, rest, dmore,
 *                   gate, up, down, left -> dgate, dup, ddown; as forward
 *     experts_rows_db    W  the same -> dbias; as forward
 *     (experts_send and experts_join are each other's gradient;)
 *     (topk_unpack is also the gradient of topk_pack;)
 *     (rope, add, scale, dropout reuse their forward ops in phase B, conv_dx
 *     conv and conv_dw)
 *     dice_dlogits  B  logits, targets, sums -> dlogits c[B,..,V]; i[0], f[0]
 *                   as xent_dlogits; zeros where there is no target
 *     point_loss_dx B  x, t -> dx c[..]; i[0], f[0] as xent_dlogits, i[1] as
 *                   forward
 *     xent_dlogits  B  logits, max, sum, targets, (weight) -> dlogits
 *                   c[B,T,V]; f[0] = 1/(B T), times step.loss_scale[i[0] - 1]
 *                   unless i[0] is 0; its forward node is xent_sum,
 *                   whose cut of v it inherits; zeros where there is no
 *                   target
 *   inserted by sharding
 *     convert       x in one layout, (rows left f64[1]) -> x in another
 *                   (layout.h); zeros where none are; f[0] = load of experts
 *                   from which on there are some
 *   step ops, after the last micro-batch (program.h); local, elementwise
 *     (gradients g, a and sums of them may be in bf16; f32 is added to either)
 *     grad_add      a f32[n] -> out f32[n] += a
 *     sumsq         g f32[n] -> f64[1], fp64 over fixed blocks of 1024
 *     clip          sumsq f64[P] -> f32[2]: {scale, norm}.  norm =
 *                   grad_scale * sqrt(sum in order); scale = grad_scale *
 *                   (clip > 0 ? min(1, clip / norm) : 1)
 *     adamw         g f32[n], scale f32[2] -> master f32[n], m f32[n],
 *                   v f32[n], (param bf16[n]); all outputs read and written;
 *                   i[0] = 1: decoupled weight decay; f[0] = factor of the
 *                   learning rate, 0: 1
 *     mean_step     g f32[n] -> master f32[n] += f[0] (f[1] g - master); read
 *                   and written
 *     sign_step     g f32[n] -> master f32[n] -= f[0] sign(g); read and written
 */
#ifndef MERAK_PARTITIONER_GRAPH_GRAPH_H
#define MERAK_PARTITIONER_GRAPH_GRAPH_H

#include "merak/model.h"
#include "merak/op.h"

enum merak_value_kind {
    MERAK_VALUE_INPUT, /* tokens, targets, ..: loaded where used */
    MERAK_VALUE_PARAM,
    MERAK_VALUE_ACTIVATION, /* forward */
    MERAK_VALUE_GRADIENT,   /* of an activation (phase B) */
    MERAK_VALUE_PARAM_GRAD, /* of one use of a parameter (phase W) */
    MERAK_VALUE_RECYCLED,   /* made in the previous pass: graph->recycling */
};

/* What fills an input. */
enum merak_input_class {
    MERAK_INPUT_TOKENS,
    MERAK_INPUT_TARGETS,
    MERAK_INPUT_STARTS, /* by token: where its document starts */
    /* of pairs of answers: by token, where its pair's second answer begins,
     * and f32, the loss of its target under the reference model */
    MERAK_INPUT_PAIRS,
    MERAK_INPUT_REFERENCE,
    MERAK_INPUT_NAMED, /* a program's own, found by its name */
};

/* What a model reads of each micro-batch. */
struct merak_input {
    const char *name; /* of its value */
    enum merak_input_class class;
    enum merak_dtype dtype;
    struct merak_shape shape;
    char letter[MERAK_MAX_DIMS]; /* by dim: letters.h */
};

/* What a model is trained by. */
struct merak_loss {
    const char *name;  /* merak_loss(); NULL: it is the only one */
    double weight;     /* of it in the sum of all */
    int input;         /* its targets, index in graph->input; -1: they are none,
                          and each element counts */
    size_t per_sample; /* elements of a sample that may count */
};

#define MERAK_MAX_INPUTS 16
#define MERAK_NO_INPUT (-1) /* zeros: recycled values of a first pass */

struct merak_value {
    int id; /* index in graph->value */
    enum merak_value_kind kind;
    const char *name; /* unique: a parameter's own; an output has its node's,
                         the second "layernorm.3:1" */
    enum merak_dtype dtype;
    struct merak_shape shape;
    char letter[MERAK_MAX_DIMS]; /* by dim: letters.h */
    int producer;                /* node id, or -1 */
    int out;                     /* which output of it */
    struct merak_init init;      /* PARAM */
    bool decay;                  /* PARAM: weight decay applies */
    bool frozen;                 /* PARAM: it is not trained */
    bool adapter;                /* PARAM: made by merak_lora() */
    float lr_scale;              /* PARAM: factor of the learning rate; 0: 1 */
    float mean_rate; /* PARAM: a step moves it by this part of the way to the
                        mean of its gradients of micro-batches, which are in no
                        norm; 0: another rule */
    float sign_rate; /* PARAM: a step changes it by this against the sign of its
                        gradient, which is in no norm; 0: by AdamW */
    bool reported;   /* f64: each micro-batch's is read after the step, and the
                        sum of all ranks' parts is its value */
    int input; /* INPUT: index in graph->input; RECYCLED: MERAK_NO_INPUT */
    int of;    /* GRADIENT, PARAM_GRAD: value it is the gradient of (the first,
                  where an op such as add passes one on); else -1 */
    int use;   /* PARAM_GRAD: which use of the parameter, 0.. in graph order */
    struct merak_graph *graph;
};

struct merak_node {
    int id; /* index in graph->node; also execution order */
    const struct merak_op *op;
    struct merak_attrs attrs;
    enum merak_phase phase;
    int forward; /* the node this one differentiates; itself in phase F */
    int n_in, n_out;
    struct merak_value *in[MERAK_MAX_OPERANDS];
    struct merak_value *out[MERAK_MAX_OPERANDS];
    const char *name; /* unique: "linear.12" by its id; gradients by their
                         forward node's: "linear_dx.12", "add_dx.12", a sum
                         first needed there, "add_dx.12+1" another */
};

/* What a pass leaves for the next one. */
struct merak_recycling {
    struct merak_value *in;  /* RECYCLED: how the next pass reads it */
    struct merak_value *out; /* forward activation, in the layout of `in` */
};

#define MERAK_MAX_RECYCLED 8

struct merak_graph {
    struct merak_value **value;
    int n_values, value_room;
    struct merak_node **node;
    int n_nodes, node_room;
    int n_forward;               /* nodes [0, n_forward) are phase F */
    struct merak_value *loss;    /* f64[], of pairs f64[MERAK_LOSS_PARTS], of
                                    losses with names f64[n_losses], or NULL */
    struct merak_loss losses[MERAK_MAX_LOSSES];
    int n_losses;
    enum merak_dtype dtype;      /* compute dtype */
    enum merak_dtype grad_dtype; /* of gradients of parameters of that dtype */
    size_t micro_batch, seq;
    struct merak_input input[MERAK_MAX_INPUTS];
    int n_inputs;
    size_t position_pieces; /* of a sharded graph: as in merak_kernel_call */
    bool documents;  /* several per sequence, with no attention between them */
    int passes;      /* forwards of a micro-batch, the last with gradients */
    int n_recycling; /* 0: passes is 1 */
    struct merak_recycling recycling[MERAK_MAX_RECYCLED];
    struct merak_pool *pool; /* owns nodes, values, names */
};

enum merak_status merak_graph_create(struct merak_graph **graph_p,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_graph_destroy(struct merak_graph *graph);
/* What balance reports of a router begins with: its losses, means over the
 * sequences of a micro-batch; and all of it, with the rows of E experts. */
enum { MERAK_TALLY_LOSSES = 2 };
static inline size_t merak_balance_tally(size_t E)
{
    return MERAK_TALLY_LOSSES + E;
}
/* Append a value (no producer) or a node; a node's outputs are made from
 * op->infer.  Used by the builder, by gradients and by sharding. */
enum merak_status merak_graph_value(struct merak_graph *graph,
                                    const struct merak_value *proto,
                                    struct merak_value **value_p,
                                    struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_graph_node(struct merak_graph *graph,
                                   const struct merak_op *op,
                                   const struct merak_attrs *attrs,
                                   enum merak_phase phase, int forward,
                                   int n_in, struct merak_value *const *in,
                                   struct merak_node **node_p,
                                   struct merak_error *err) MERAK_CHECKED;
/* A node's inputs, then its outputs; o < n_in + n_out. */
static inline struct merak_value *
merak_node_operand(const struct merak_node *node, int o)
{
    return o < node->n_in ? node->in[o] : node->out[o - node->n_in];
}

/* What a gradient of a parameter is kept in, and all sums of it; of a gradient
 * its own dtype.  Parameters that are f32 beside bf16 ones, vectors, have
 * gradients of few bytes. */
static inline enum merak_dtype
merak_graph_grad_dtype(const struct merak_value *value)
{
    if (value->kind != MERAK_VALUE_PARAM)
        return value->dtype;
    return value->dtype == MERAK_BF16 ? value->graph->grad_dtype : MERAK_F32;
}
/* Does a node make gradients of parameters that are kept in bf16? */
static inline bool merak_node_is_narrow(const struct merak_node *node)
{
    bool any = false;

    for (int i = 0; i < node->n_out; i++)
        any = any || (node->out[i]->kind == MERAK_VALUE_PARAM_GRAD &&
                      node->out[i]->dtype == MERAK_BF16);
    return any;
}
/* Shapes and dtypes of a node's operands, as infer/signature/cost see them. */
void merak_node_infer(const struct merak_node *node, struct merak_infer *inf);
/* What a node costs on one device. */
struct merak_cost merak_node_cost(const struct merak_node *node);
/* The input that a value is; NULL: it is none. */
static inline const struct merak_input *
merak_value_input(const struct merak_value *value)
{
    return value->kind == MERAK_VALUE_INPUT ? &value->graph->input[value->input]
                                            : NULL;
}
/* Is it an input of that class? */
static inline bool merak_value_is(const struct merak_value *value,
                                  enum merak_input_class class)
{
    const struct merak_input *input = merak_value_input(value);

    return input != NULL && input->class == class;
}
/* Bytes of a whole value. */
size_t merak_value_bytes(const struct merak_value *value);

/* The graph a model describes: differentiates and checks it on first use.
 * Borrowed from the model.  Fails with the model's first mistake, or if no
 * loss was declared. */
enum merak_status merak_model_graph(struct merak_model *model,
                                    struct merak_graph **graph_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* The graph described so far, to be changed; NULL if it may not be changed any
 * more, and the model remembers why. */
struct merak_graph *merak_model_open_for(struct merak_model *model,
                                         const char *what);
/* Does the model balance routers so far, and do any of their biases move? */
void merak_model_balances(const struct merak_model *model, bool *any_p,
                          bool *moves_p);
/* Does merak_expert_capacity() leave rows of its experts out? */
bool merak_model_limits_experts(const struct merak_model *model);
/* Append the gradient nodes for graph->loss. */
enum merak_status
merak_graph_differentiate(struct merak_graph *graph,
                          struct merak_error *err) MERAK_CHECKED;
/* Mark the forward nodes that a pass without gradients runs: those that
 * recycled values are computed from.  node[graph->n_nodes]. */
void merak_graph_mark_recycling(const struct merak_graph *graph, bool *node);
/* Elements of all parameters, each counted once, and flops of one micro-batch
 * with all passes and the backward. */
size_t merak_graph_param_count(const struct merak_graph *graph);
double merak_graph_flops(const struct merak_graph *graph);
/* 16 hex digits that change with any parameter's name or shape, and with
 * nothing else: neither micro-batch nor dtype. */
#define MERAK_FINGERPRINT_TEXT 17
void merak_graph_fingerprint(const struct merak_graph *graph,
                             char hex[MERAK_FINGERPRINT_TEXT]);
/*
 * What the model computes besides these shapes, for which the same weights give
 * another model: entries KEY=VALUE, separated by "; ".  A key is an op and what
 * its attribute means, or "OP i[2]", "OP f[0]" for ops of the user's; its value
 * the attribute's by node in the order of the graph, "512 x 5, 0", long ones
 * ended by a checksum.  Attributes that are 0 in all nodes have no entry.  Then
 * "passes", where there are several, and last "operations": the number of
 * forward nodes, with a checksum of their ops and of what they read.
 *
 * Not in it, and so without effect: batch, length, dtype (and so what is
 * widened to fp32), which parameters are trained, whether documents are masked.
 *
 *   text   out  to be freed by the caller
 */
enum merak_status merak_graph_numbers(const struct merak_graph *graph,
                                      char **text_p,
                                      struct merak_error *err) MERAK_CHECKED;
/* May the number with this key be another one for sequences of another length,
 * in the same model? */
bool merak_number_follows_seq(const char *key);
/* One line per node, for people and tests. */
enum merak_status merak_graph_print(const struct merak_graph *graph,
                                    char **text_p,
                                    struct merak_error *err) MERAK_CHECKED;

/* Does a node of a sharded graph bring a value into another layout? */
bool merak_node_is_convert(const struct merak_node *node);
/* What a converted copy was made of; any other value itself. */
const struct merak_value *merak_value_origin(const struct merak_graph *graph,
                                             const struct merak_value *value);

/* Operand i (inputs, then outputs) holds keys, values, their gradients, or
 * what they are packed with: a slice of the sequence needs it from position 0
 * on. */
bool merak_node_reads_back(const struct merak_node *node, int i);
/* In how many pieces the sequences are whose positions run along dim 1 of the
 * node's operands; 0: they are in order, or it has none. */
size_t merak_node_pieces(const struct merak_graph *graph,
                         const struct merak_node *node);

#endif
