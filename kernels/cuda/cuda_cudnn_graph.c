/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_cudnn_graph.c - attention as a graph of cuDNN operations
 *
 * cuDNN has kernels for whole graphs that it knows; those of attention begin
 * with a product of queries and keys and are recognized by what follows.  So
 * operations are in the order that it expects, and a mask generates its own row
 * and column indices:
 *
 *   forward   s = scale Q K', masked;  m = max s;  l = sum exp(s - m)
 *             lse = m + log l;  O = (exp(s - m) / l) V
 *   backward  delta = sum dO O;  p = exp(scale Q K' - lse), masked
 *             dV = p' dO;  ds = scale p (dO V' - delta)
 *             dK = ds' Q;  dQ = ds K
 *
 * dQ is the product itself, without an accumulator that key blocks add to in
 * any order: this form keeps dO V' in the workspace and adds in a fixed order,
 * so two runs agree bit for bit.
 *
 * For cuDNN, tensors are [B, H, T, D] whatever their layout in memory; all
 * except those with an id (merak_cudnn_uid) are virtual, without memory.  The
 * first failure is kept, and no more calls are made.
 */
#include "config.h"

#include "kernels/cuda/cuda_cudnn_graph.h"

#include <math.h>
#include <string.h>

#define FIRST_VIRTUAL 100

/* The layout of a tensor. */
struct form {
    int64_t dim[4], stride[4];
    int type;
};

/* --- descriptors ------------------------------------------------------------
 */

static void note(struct merak_cudnn_graph *g, int status, const char *what)
{
    if (g->status == MERAK_CUDNN_OK && status != MERAK_CUDNN_OK) {
        g->status = status;
        g->what = what;
    }
}

static void *make(struct merak_cudnn_graph *g, int type)
{
    void *desc = NULL;

    if (g->status == MERAK_CUDNN_OK && g->n_descs == MERAK_CUDNN_DESCRIPTORS)
        note(g, MERAK_CUDNN_INTERNAL_ERROR, "that many descriptors");
    if (g->status != MERAK_CUDNN_OK)
        return NULL;
    note(g, g->call->desc_create(type, &desc), "a descriptor");
    if (g->status == MERAK_CUDNN_OK)
        g->desc[g->n_descs++] = desc;
    return desc;
}

static void set(struct merak_cudnn_graph *g, void *desc, int name, int type,
                int64_t n, const void *element, const char *what)
{
    if (g->status == MERAK_CUDNN_OK)
        note(g, g->call->desc_set(desc, name, type, n, element), what);
}

static void set_int(struct merak_cudnn_graph *g, void *desc, int name, int type,
                    int value, const char *what)
{
    set(g, desc, name, type, 1, &value, what); /* cuDNN's enums are ints */
}

static void set_desc(struct merak_cudnn_graph *g, void *desc, int name,
                     void *other, const char *what)
{
    set(g, desc, name, MERAK_CUDNN_TYPE_DESCRIPTOR, 1, &other, what);
}

static void finalize(struct merak_cudnn_graph *g, void *desc, const char *what)
{
    if (g->status == MERAK_CUDNN_OK)
        note(g, g->call->desc_finalize(desc), what);
}

/* Operations are in the graph in the order in which they are finalized. */
static void add_op(struct merak_cudnn_graph *g, void *op, const char *what)
{
    finalize(g, op, what);
    if (g->status == MERAK_CUDNN_OK && g->n_ops == MERAK_CUDNN_OPS)
        note(g, MERAK_CUDNN_INTERNAL_ERROR, "that many operations");
    if (g->status == MERAK_CUDNN_OK)
        g->op[g->n_ops++] = op;
}

/* --- tensors ----------------------------------------------------------------
 */

static void *tensor(struct merak_cudnn_graph *g, int64_t uid,
                    const struct form *form, bool by_value)
{
    /* lse of later samples may begin at any element */
    const int64_t alignment =
        form->type == MERAK_CUDNN_BFLOAT16 ? 16 : (int64_t)sizeof(float);
    void *t = make(g, MERAK_CUDNN_TENSOR);
    const bool is_virtual = uid >= FIRST_VIRTUAL;
    const char *what = "a tensor";

    set_int(g, t, MERAK_CUDNN_TENSOR_TYPE, MERAK_CUDNN_TYPE_DATA_TYPE,
            form->type, what);
    set(g, t, MERAK_CUDNN_TENSOR_DIMS, MERAK_CUDNN_TYPE_INT64, 4, form->dim,
        what);
    set(g, t, MERAK_CUDNN_TENSOR_STRIDES, MERAK_CUDNN_TYPE_INT64, 4,
        form->stride, what);
    set(g, t, MERAK_CUDNN_TENSOR_UID, MERAK_CUDNN_TYPE_INT64, 1, &uid, what);
    set(g, t, MERAK_CUDNN_TENSOR_ALIGNMENT, MERAK_CUDNN_TYPE_INT64, 1,
        &alignment, what);
    set(g, t, MERAK_CUDNN_TENSOR_VIRTUAL, MERAK_CUDNN_TYPE_BOOLEAN, 1,
        &is_virtual, what);
    set(g, t, MERAK_CUDNN_TENSOR_BY_VALUE, MERAK_CUDNN_TYPE_BOOLEAN, 1,
        &by_value, what);
    finalize(g, t, what);
    if (!is_virtual)
        g->uids |= 1u << uid;
    return t;
}

/* A virtual tensor, row-major. */
static void *inner(struct merak_cudnn_graph *g, int64_t heads, int64_t rows,
                   int64_t columns, int type)
{
    const struct form form = {
        {g->batch, heads, rows, columns},
        {heads * rows * columns, rows * columns, columns, 1},
        type};

    return tensor(g, g->next_uid++, &form, false);
}

/* A matrix of scores, or of values computed from them. */
static void *scores(struct merak_cudnn_graph *g, int type)
{
    return inner(g, g->heads, g->rows, g->rows, type);
}

/* A number for each row of scores. */
static void *column(struct merak_cudnn_graph *g)
{
    return inner(g, g->heads, g->rows, 1, MERAK_CUDNN_FLOAT);
}

static void *scalar(struct merak_cudnn_graph *g, enum merak_cudnn_uid uid)
{
    static const struct form form = {
        {1, 1, 1, 1}, {1, 1, 1, 1}, MERAK_CUDNN_FLOAT};

    return tensor(g, uid, &form, true);
}

/* bf16 [B, heads, T, D] in memory. */
static void *heads(struct merak_cudnn_graph *g, enum merak_cudnn_uid uid,
                   const struct merak_cudnn_shape *s, int64_t n, int64_t row)
{
    const struct form form = {{s->B, n, s->T, s->D},
                              {s->T * row, s->D, row, 1},
                              MERAK_CUDNN_BFLOAT16};

    return tensor(g, uid, &form, false);
}

/* The same, [B, heads, D, T]. */
static void *heads_turned(struct merak_cudnn_graph *g, enum merak_cudnn_uid uid,
                          const struct merak_cudnn_shape *s, int64_t n,
                          int64_t row)
{
    const struct form form = {{s->B, n, s->D, s->T},
                              {s->T * row, s->D, 1, row},
                              MERAK_CUDNN_BFLOAT16};

    return tensor(g, uid, &form, false);
}

/* lse is [B, T, H] in memory. */
static void *lse(struct merak_cudnn_graph *g, const struct merak_cudnn_shape *s)
{
    const struct form form = {
        {s->B, s->H, s->T, 1}, {s->T * s->H, 1, s->H, 1}, MERAK_CUDNN_FLOAT};

    return tensor(g, MERAK_CUDNN_UID_LSE, &form, false);
}

/* --- operations -------------------------------------------------------------
 */

/* y = a b */
static void matmul(struct merak_cudnn_graph *g, void *a, void *b, void *y)
{
    void *how = make(g, MERAK_CUDNN_MATMUL), *op;
    const char *what = "a product";

    set_int(g, how, MERAK_CUDNN_MATMUL_PREC, MERAK_CUDNN_TYPE_DATA_TYPE,
            MERAK_CUDNN_FLOAT, what);
    finalize(g, how, what);
    op = make(g, MERAK_CUDNN_OP_MATMUL);
    set_desc(g, op, MERAK_CUDNN_OP_MATMUL_A, a, what);
    set_desc(g, op, MERAK_CUDNN_OP_MATMUL_B, b, what);
    set_desc(g, op, MERAK_CUDNN_OP_MATMUL_C, y, what);
    set_desc(g, op, MERAK_CUDNN_OP_MATMUL_DESC, how, what);
    add_op(g, op, what);
}

/* axis -1: the mode has none; b and t may be NULL. */
static void pointwise_with(struct merak_cudnn_graph *g, int mode, int prec,
                           int64_t axis, void *x, void *b, void *t, void *y)
{
    void *how = make(g, MERAK_CUDNN_POINTWISE), *op;
    const char *what = "an operation on elements";

    set_int(g, how, MERAK_CUDNN_POINTWISE_MODE, MERAK_CUDNN_TYPE_POINTWISE_MODE,
            mode, what);
    set_int(g, how, MERAK_CUDNN_POINTWISE_PREC, MERAK_CUDNN_TYPE_DATA_TYPE,
            prec, what);
    if (axis >= 0)
        set(g, how, MERAK_CUDNN_POINTWISE_AXIS, MERAK_CUDNN_TYPE_INT64, 1,
            &axis, what);
    finalize(g, how, what);
    op = make(g, MERAK_CUDNN_OP_POINTWISE);
    set_desc(g, op, MERAK_CUDNN_OP_POINTWISE_DESC, how, what);
    set_desc(g, op, MERAK_CUDNN_OP_POINTWISE_X, x, what);
    if (b != NULL)
        set_desc(g, op, MERAK_CUDNN_OP_POINTWISE_B, b, what);
    if (t != NULL)
        set_desc(g, op, MERAK_CUDNN_OP_POINTWISE_T, t, what);
    set_desc(g, op, MERAK_CUDNN_OP_POINTWISE_Y, y, what);
    add_op(g, op, what);
}

static void *pointwise(struct merak_cudnn_graph *g, int mode, void *x, void *b,
                       void *y)
{
    pointwise_with(g, mode, MERAK_CUDNN_FLOAT, -1, x, b, NULL, y);
    return y;
}

static void *reduce(struct merak_cudnn_graph *g, int operator, void * x,
                    void *y)
{
    void *how = make(g, MERAK_CUDNN_REDUCTION), *op;
    const char *what = "a reduction";

    set_int(g, how, MERAK_CUDNN_REDUCTION_OPERATOR,
            MERAK_CUDNN_TYPE_REDUCTION, operator, what);
    set_int(g, how, MERAK_CUDNN_REDUCTION_PREC, MERAK_CUDNN_TYPE_DATA_TYPE,
            MERAK_CUDNN_FLOAT, what);
    finalize(g, how, what);
    op = make(g, MERAK_CUDNN_OP_REDUCTION);
    set_desc(g, op, MERAK_CUDNN_OP_REDUCTION_DESC, how, what);
    set_desc(g, op, MERAK_CUDNN_OP_REDUCTION_X, x, what);
    set_desc(g, op, MERAK_CUDNN_OP_REDUCTION_Y, y, what);
    add_op(g, op, what);
    return y;
}

/* y has x's elements with other strides. */
static void *reshape(struct merak_cudnn_graph *g, void *x, void *y)
{
    void *op = make(g, MERAK_CUDNN_OP_RESHAPE);
    const char *what = "a transposition";

    set_desc(g, op, MERAK_CUDNN_OP_RESHAPE_X, x, what);
    set_desc(g, op, MERAK_CUDNN_OP_RESHAPE_Y, y, what);
    add_op(g, op, what);
    return y;
}

/* --- masks ------------------------------------------------------------------
 */

/* The index of each score's row (2) or column (3). */
static void *index_of(struct merak_cudnn_graph *g, void *s, int64_t axis)
{
    void *y = scores(g, MERAK_CUDNN_INT32);

    pointwise_with(g, MERAK_CUDNN_GEN_INDEX, MERAK_CUDNN_FLOAT, axis, s, NULL,
                   NULL, y);
    return y;
}

/* s where `a mode b` holds, and the score of masked keys elsewhere. */
static void *keep_where(struct merak_cudnn_graph *g, void *s, int mode, void *a,
                        void *b, void *hidden)
{
    void *is_seen = scores(g, MERAK_CUDNN_BOOLEAN), *y;

    pointwise_with(g, mode, MERAK_CUDNN_BOOLEAN, -1, a, b, NULL, is_seen);
    y = scores(g, MERAK_CUDNN_FLOAT);
    pointwise_with(g, MERAK_CUDNN_SELECT, MERAK_CUDNN_FLOAT, -1, s, hidden,
                   is_seen, y);
    return y;
}

/* Query i sees keys max(0, i - window + 1) .. i. */
static void *mask(struct merak_cudnn_graph *g,
                  const struct merak_cudnn_shape *shape, void *s)
{
    void *hidden = scalar(g, MERAK_CUDNN_UID_HIDDEN);
    void *row = index_of(g, s, 2), *key = index_of(g, s, 3), *last;

    s = keep_where(g, s, MERAK_CUDNN_CMP_GE, row, key, hidden);
    if (shape->window == 0)
        return s;
    row = index_of(g, s, 2);
    key = index_of(g, s, 3);
    last = scores(g, MERAK_CUDNN_FLOAT);
    pointwise_with(g, MERAK_CUDNN_ADD, MERAK_CUDNN_FLOAT, -1, key,
                   scalar(g, MERAK_CUDNN_UID_WINDOW), NULL, last);
    return keep_where(g, s, MERAK_CUDNN_CMP_GT, last, row, hidden);
}

/* --- attention --------------------------------------------------------------
 */

static void forward(struct merak_cudnn_graph *g,
                    const struct merak_cudnn_shape *s)
{
    void *q = heads(g, MERAK_CUDNN_UID_Q, s, s->H, s->q_row);
    void *kt = heads_turned(g, MERAK_CUDNN_UID_K, s, s->G, s->k_row);
    void *x = scores(g, MERAK_CUDNN_FLOAT), *max, *sum, *p, *log;

    matmul(g, q, kt, x);
    x = pointwise(g, MERAK_CUDNN_MUL, x, scalar(g, MERAK_CUDNN_UID_SCALE),
                  scores(g, MERAK_CUDNN_FLOAT));
    x = mask(g, s, x);
    max = reduce(g, MERAK_CUDNN_REDUCE_MAX, x, column(g));
    x = pointwise(g, MERAK_CUDNN_SUB, x, max, scores(g, MERAK_CUDNN_FLOAT));
    x = pointwise(g, MERAK_CUDNN_EXP, x, NULL, scores(g, MERAK_CUDNN_FLOAT));
    sum = reduce(g, MERAK_CUDNN_REDUCE_ADD, x, column(g));
    log = pointwise(g, MERAK_CUDNN_LOG, sum, NULL, column(g));
    (void)pointwise(g, MERAK_CUDNN_ADD, max, log, lse(g, s));
    p = pointwise(g, MERAK_CUDNN_DIV, x, sum, scores(g, MERAK_CUDNN_BFLOAT16));
    matmul(g, p, heads(g, MERAK_CUDNN_UID_V, s, s->G, s->v_row),
           heads(g, MERAK_CUDNN_UID_O, s, s->H, s->o_row));
}

/* delta is in memory since the kernels read it again. */
static void *make_delta(struct merak_cudnn_graph *g,
                        const struct merak_cudnn_shape *s, void *d_o)
{
    const struct form form = {
        {s->B, s->H, s->T, 1}, {s->H * s->T, s->T, 1, 1}, MERAK_CUDNN_FLOAT};
    void *o = heads(g, MERAK_CUDNN_UID_O, s, s->H, s->o_row);
    void *x = inner(g, s->H, s->T, s->D, MERAK_CUDNN_FLOAT);

    x = pointwise(g, MERAK_CUDNN_MUL, d_o, o, x);
    x = reduce(g, MERAK_CUDNN_REDUCE_ADD, x, column(g));
    return pointwise(g, MERAK_CUDNN_MUL, x, scalar(g, MERAK_CUDNN_UID_ONE),
                     tensor(g, MERAK_CUDNN_UID_DELTA, &form, false));
}

static void *probabilities(struct merak_cudnn_graph *g,
                           const struct merak_cudnn_shape *s, void *q, void *kt,
                           void *scale)
{
    void *x = scores(g, MERAK_CUDNN_FLOAT);

    matmul(g, q, kt, x);
    x = pointwise(g, MERAK_CUDNN_MUL, x, scale, scores(g, MERAK_CUDNN_FLOAT));
    x = pointwise(g, MERAK_CUDNN_SUB, x, lse(g, s),
                  scores(g, MERAK_CUDNN_FLOAT));
    x = mask(g, s, x);
    return pointwise(g, MERAK_CUDNN_EXP, x, NULL, scores(g, MERAK_CUDNN_FLOAT));
}

/* y = x' z, where x has the shape of scores: gradients of keys or values for
 * each query head, summed if several share a kv head. */
static void turned_product(struct merak_cudnn_graph *g,
                           const struct merak_cudnn_shape *s, void *x, void *z,
                           void *y)
{
    const struct form form = {{s->B, s->H, s->T, s->T},
                              {s->H * s->T * s->T, s->T * s->T, 1, s->T},
                              MERAK_CUDNN_BFLOAT16};
    void *turned = reshape(g, x, tensor(g, g->next_uid++, &form, false));
    void *each = y;

    if (s->G != s->H)
        each = inner(g, s->H, s->T, s->D, MERAK_CUDNN_BFLOAT16);
    matmul(g, turned, z, each);
    if (s->G != s->H)
        (void)reduce(g, MERAK_CUDNN_REDUCE_ADD, each, y);
}

static void backward(struct merak_cudnn_graph *g,
                     const struct merak_cudnn_shape *s)
{
    const struct form k_form = {{s->B, s->G, s->T, s->D},
                                {s->T * s->k_row, s->D, s->k_row, 1},
                                MERAK_CUDNN_BFLOAT16};
    void *d_o = heads(g, MERAK_CUDNN_UID_DO, s, s->H, s->d_o_row);
    void *delta = make_delta(g, s, d_o), *p, *x;
    void *q = heads(g, MERAK_CUDNN_UID_Q, s, s->H, s->q_row);
    void *kt = heads_turned(g, MERAK_CUDNN_UID_K, s, s->G, s->k_row);
    void *scale = scalar(g, MERAK_CUDNN_UID_SCALE);

    p = probabilities(g, s, q, kt, scale);
    turned_product(g, s, p, d_o,
                   heads(g, MERAK_CUDNN_UID_DV, s, s->G, s->dv_row));
    x = scores(g, MERAK_CUDNN_FLOAT);
    matmul(g, d_o, heads_turned(g, MERAK_CUDNN_UID_V, s, s->G, s->v_row), x);
    x = pointwise(g, MERAK_CUDNN_SUB, x, delta, scores(g, MERAK_CUDNN_FLOAT));
    x = pointwise(g, MERAK_CUDNN_MUL, x, p, scores(g, MERAK_CUDNN_FLOAT));
    x = pointwise(g, MERAK_CUDNN_MUL, x, scale, scores(g, MERAK_CUDNN_FLOAT));
    turned_product(g, s, x, q,
                   heads(g, MERAK_CUDNN_UID_DK, s, s->G, s->dk_row));
    matmul(g, x, reshape(g, kt, tensor(g, g->next_uid++, &k_form, false)),
           heads(g, MERAK_CUDNN_UID_DQ, s, s->H, s->dq_row));
}

/* --- the graph --------------------------------------------------------------
 */

int merak_cudnn_graph_init(struct merak_cudnn_graph *g,
                           const struct merak_cudnn_calls *call, void *handle,
                           const struct merak_cudnn_shape *shape)
{
    memset(g, 0, sizeof(*g));
    g->call = call;
    g->next_uid = FIRST_VIRTUAL;
    g->batch = shape->B;
    g->heads = shape->H;
    g->rows = shape->T;
    if (shape->backward != 0)
        backward(g, shape);
    else
        forward(g, shape);
    g->graph = make(g, MERAK_CUDNN_GRAPH);
    if (handle != NULL)
        set(g, g->graph, MERAK_CUDNN_GRAPH_HANDLE, MERAK_CUDNN_TYPE_HANDLE, 1,
            &handle, "a graph's handle");
    set(g, g->graph, MERAK_CUDNN_GRAPH_OPS, MERAK_CUDNN_TYPE_DESCRIPTOR,
        g->n_ops, g->op, "a graph's operations");
    finalize(g, g->graph, "a graph of attention");
    return g->status;
}

void merak_cudnn_graph_fini(struct merak_cudnn_graph *g)
{
    while (g->n_descs > 0)
        (void)g->call->desc_destroy(g->desc[--g->n_descs]);
}

bool merak_cudnn_is_scalar(enum merak_cudnn_uid uid)
{
    return uid == MERAK_CUDNN_UID_SCALE || uid == MERAK_CUDNN_UID_HIDDEN ||
           uid == MERAK_CUDNN_UID_WINDOW || uid == MERAK_CUDNN_UID_ONE;
}

float merak_cudnn_scalar(const struct merak_cudnn_shape *shape,
                         enum merak_cudnn_uid uid)
{
    switch (uid) {
    case MERAK_CUDNN_UID_SCALE:
        return (float)shape->scale;
    case MERAK_CUDNN_UID_HIDDEN:
        return -INFINITY;
    case MERAK_CUDNN_UID_WINDOW:
        return (float)shape->window;
    default: /* MERAK_CUDNN_UID_ONE */
        return 1;
    }
}
