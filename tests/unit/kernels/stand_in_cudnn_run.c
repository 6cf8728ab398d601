/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in_cudnn_run.c - runs graphs of cuDNN's operations on the host
 *
 * Element by element in double; tensors of bf16 round what is written to them,
 * also those that are in no memory.
 */
#include "config.h"

#include "unit/kernels/stand_in_cudnn.h"
#ifdef MERAK_STAND_IN_STREAMS
#include "unit/kernels/stand_in_cuda.h"
#endif

#include "base/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TENSORS 64

/* A tensor while a graph runs; a virtual one has numbers, [dims] row-major. */
struct place {
    const struct si_desc *desc;
    int64_t dim[4], stride[4];
    int type;
    void *data;
    double *number;
};

struct run {
    struct place place[MOST_TENSORS];
    int n;
    const struct si_call *call;
};

/* --- reading ----------------------------------------------------------------
 */

size_t si_bytes_of(int type)
{
    switch (type) {
    case MERAK_CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case MERAK_CUDNN_TYPE_INT64:
        return sizeof(int64_t);
    case MERAK_CUDNN_TYPE_HANDLE:
    case MERAK_CUDNN_TYPE_VOID_PTR:
    case MERAK_CUDNN_TYPE_DESCRIPTOR:
        return sizeof(void *);
    default:
        return sizeof(int);
    }
}

static void *data_of(const struct si_call *call, int64_t uid)
{
    for (int i = 0; i < call->n; i++) {
        if (call->uid[i] == uid)
            return call->pointer[i];
    }
    return NULL;
}

static const struct si_attribute *find(const struct si_desc *d, int name)
{
    for (int i = 0; i < d->n; i++) {
        if (d->attribute[i].name == name)
            return &d->attribute[i];
    }
    return NULL;
}

bool si_has(const struct si_desc *d, int name)
{
    return find(d, name) != NULL;
}

int64_t si_count(const struct si_desc *d, int name)
{
    return si_has(d, name) ? find(d, name)->n : 0;
}

const void *si_element(const struct si_desc *d, int name, int64_t i)
{
    const struct si_attribute *a = find(d, name);

    return (const char *)a->element + (size_t)i * si_bytes_of(a->type);
}

struct si_desc *si_desc(const struct si_desc *d, int name, int64_t i)
{
    return si_has(d, name) ? *(struct si_desc *const *)si_element(d, name, i)
                           : NULL;
}

int64_t si_int64(const struct si_desc *d, int name, int64_t i)
{
    return *(const int64_t *)si_element(d, name, i);
}

int si_int(const struct si_desc *d, int name)
{
    return *(const int *)si_element(d, name, 0);
}

bool si_bool(const struct si_desc *d, int name)
{
    return si_has(d, name) && *(const bool *)si_element(d, name, 0);
}

struct si_ends si_ends_of(const struct si_desc *op)
{
    switch (op->type) {
    case MERAK_CUDNN_OP_MATMUL:
        return (struct si_ends){{si_desc(op, MERAK_CUDNN_OP_MATMUL_A, 0),
                                 si_desc(op, MERAK_CUDNN_OP_MATMUL_B, 0)},
                                si_desc(op, MERAK_CUDNN_OP_MATMUL_C, 0)};
    case MERAK_CUDNN_OP_POINTWISE:
        return (struct si_ends){{si_desc(op, MERAK_CUDNN_OP_POINTWISE_X, 0),
                                 si_desc(op, MERAK_CUDNN_OP_POINTWISE_B, 0),
                                 si_desc(op, MERAK_CUDNN_OP_POINTWISE_T, 0)},
                                si_desc(op, MERAK_CUDNN_OP_POINTWISE_Y, 0)};
    case MERAK_CUDNN_OP_REDUCTION:
        return (struct si_ends){{si_desc(op, MERAK_CUDNN_OP_REDUCTION_X, 0)},
                                si_desc(op, MERAK_CUDNN_OP_REDUCTION_Y, 0)};
    default:
        return (struct si_ends){{si_desc(op, MERAK_CUDNN_OP_RESHAPE_X, 0)},
                                si_desc(op, MERAK_CUDNN_OP_RESHAPE_Y, 0)};
    }
}

static int64_t dim(const struct si_desc *t, int d)
{
    return si_int64(t, MERAK_CUDNN_TENSOR_DIMS, d);
}

static int64_t stride(const struct si_desc *t, int d)
{
    return si_int64(t, MERAK_CUDNN_TENSOR_STRIDES, d);
}

/* --- what goes together -----------------------------------------------------
 */

static const char *check_matmul(const struct si_ends *e)
{
    const struct si_desc *a = e->in[0], *b = e->in[1], *y = e->out;

    if (dim(a, 2) != dim(y, 2) || dim(b, 3) != dim(y, 3) ||
        dim(a, 3) != dim(b, 2))
        return "a product's sizes";
    for (int d = 0; d < 2; d++) {
        if (dim(y, d) % dim(a, d) != 0 || dim(y, d) % dim(b, d) != 0)
            return "a product's batches";
    }
    return NULL;
}

static const char *check_pointwise(const struct si_ends *e)
{
    for (int i = 0; i < 3; i++) {
        for (int d = 0; d < 4 && e->in[i] != NULL; d++) {
            if (dim(e->in[i], d) != dim(e->out, d) && dim(e->in[i], d) != 1)
                return "an operand of elements";
        }
    }
    return NULL;
}

/* Along what is left out; heads may be added up in groups. */
static const char *check_reduction(const struct si_ends *e)
{
    for (int d = 0; d < 4; d++) {
        if (dim(e->in[0], d) % dim(e->out, d) != 0 ||
            (d != 1 && dim(e->in[0], d) != dim(e->out, d) &&
             dim(e->out, d) != 1))
            return "a reduction's sizes";
    }
    return NULL;
}

/* Of rows and columns; an element stays where it is. */
static const char *check_reshape(const struct si_ends *e)
{
    const struct si_desc *x = e->in[0], *y = e->out;

    if (dim(x, 0) != dim(y, 0) || dim(x, 1) != dim(y, 1) ||
        dim(x, 2) != dim(y, 3) || dim(x, 3) != dim(y, 2))
        return "a transposition's sizes";
    if (stride(x, 0) != stride(y, 0) || stride(x, 1) != stride(y, 1) ||
        stride(x, 2) != stride(y, 3) || stride(x, 3) != stride(y, 2))
        return "a transposition's strides";
    return NULL;
}

const char *si_check_op(const struct si_desc *op)
{
    const struct si_ends e = si_ends_of(op);

    switch (op->type) {
    case MERAK_CUDNN_OP_MATMUL:
        return check_matmul(&e);
    case MERAK_CUDNN_OP_POINTWISE:
        return check_pointwise(&e);
    case MERAK_CUDNN_OP_REDUCTION:
        return check_reduction(&e);
    default:
        return check_reshape(&e);
    }
}

/* --- elements ---------------------------------------------------------------
 */

static struct place *place_of(struct run *r, const struct si_desc *t)
{
    struct place *p = r->place;
    size_t count = 1;

    for (int i = 0; i < r->n; i++, p++) {
        if (p->desc == t)
            return p;
    }
    *p = (struct place){.desc = t, .type = si_int(t, MERAK_CUDNN_TENSOR_TYPE)};
    for (int d = 0; d < 4; d++) {
        p->dim[d] = dim(t, d);
        p->stride[d] = stride(t, d);
        count *= (size_t)p->dim[d];
    }
    r->n++;
    if (!si_bool(t, MERAK_CUDNN_TENSOR_VIRTUAL)) {
        p->data = data_of(r->call, si_int64(t, MERAK_CUDNN_TENSOR_UID, 0));
        return p;
    }
    p->number = calloc(count, sizeof(double));
    return p;
}

static double rounded(int type, double x)
{
    if (type == MERAK_CUDNN_BFLOAT16)
        return (double)merak_bf16_to_f32(merak_f32_to_bf16((float)x));
    return type == MERAK_CUDNN_FLOAT ? (double)(float)x : x;
}

/* Where element i is, of which a dimension of 1 has one. */
static int64_t offset(const struct place *p, const int64_t i[4])
{
    int64_t at = 0;

    for (int d = 0; d < 4; d++) {
        int64_t k = p->dim[d] == 1 ? 0 : i[d];

        at = p->data != NULL ? at + k * p->stride[d] : at * p->dim[d] + k;
    }
    return at;
}

static double load(const struct place *p, const int64_t i[4])
{
    int64_t at = offset(p, i);

    if (p->number != NULL)
        return p->number[at];
    if (p->type == MERAK_CUDNN_BFLOAT16)
        return (double)merak_bf16_to_f32(((const uint16_t *)p->data)[at]);
    return (double)((const float *)p->data)[at];
}

static void store(const struct place *p, const int64_t i[4], double x)
{
    int64_t at = offset(p, i);

    if (p->number != NULL)
        p->number[at] = rounded(p->type, x);
    else if (p->type == MERAK_CUDNN_BFLOAT16)
        ((uint16_t *)p->data)[at] = merak_f32_to_bf16((float)x);
    else
        ((float *)p->data)[at] = (float)x;
}

/* --- operations -------------------------------------------------------------
 */

/* A head of y has that of its group in x. */
static int64_t group_of(const struct place *x, const struct place *y, int d,
                        int64_t i)
{
    return i / (y->dim[d] / x->dim[d]);
}

static double product(const struct place *a, const struct place *b,
                      const struct place *y, const int64_t i[4])
{
    int64_t ai[4] = {group_of(a, y, 0, i[0]), group_of(a, y, 1, i[1]), i[2], 0};
    int64_t bi[4] = {group_of(b, y, 0, i[0]), group_of(b, y, 1, i[1]), 0, i[3]};
    double sum = 0;

    for (int64_t k = 0; k < a->dim[3]; k++) {
        ai[3] = bi[2] = k;
        sum += load(a, ai) * load(b, bi);
    }
    return sum;
}

static double point(const struct si_desc *op, struct place *const in[3],
                    const int64_t i[4])
{
    const struct si_desc *how = si_desc(op, MERAK_CUDNN_OP_POINTWISE_DESC, 0);
    double x = load(in[0], i), b = in[1] != NULL ? load(in[1], i) : 0;

    switch (si_int(how, MERAK_CUDNN_POINTWISE_MODE)) {
    case MERAK_CUDNN_ADD:
        return x + b;
    case MERAK_CUDNN_SUB:
        return x - b;
    case MERAK_CUDNN_MUL:
        return x * b;
    case MERAK_CUDNN_DIV:
        return x / b;
    case MERAK_CUDNN_EXP:
        return exp(x);
    case MERAK_CUDNN_LOG:
        return log(x);
    case MERAK_CUDNN_CMP_GE:
        return x >= b;
    case MERAK_CUDNN_CMP_GT:
        return x > b;
    case MERAK_CUDNN_GEN_INDEX:
        return (double)i[si_int64(how, MERAK_CUDNN_POINTWISE_AXIS, 0)];
    default: /* MERAK_CUDNN_SELECT */
        return load(in[2], i) != 0 ? x : b;
    }
}

static double reduced(const struct si_desc *op, const struct place *x,
                      const struct place *y, const int64_t i[4])
{
    const struct si_desc *how = si_desc(op, MERAK_CUDNN_OP_REDUCTION_DESC, 0);
    bool adds =
        si_int(how, MERAK_CUDNN_REDUCTION_OPERATOR) == MERAK_CUDNN_REDUCE_ADD;
    double all = adds ? 0 : -INFINITY;
    int64_t heads = x->dim[1] / y->dim[1];
    int64_t columns = x->dim[3] / y->dim[3];

    for (int64_t h = 0; h < heads; h++) {
        for (int64_t k = 0; k < columns; k++) {
            const int64_t xi[4] = {i[0], i[1] * heads + h, i[2],
                                   i[3] * columns + k};
            double one = load(x, xi);

            all = adds ? all + one : fmax(all, one);
        }
    }
    return all;
}

static double value(const struct si_desc *op, struct place *const in[3],
                    const struct place *y, const int64_t i[4])
{
    const int64_t turned[4] = {i[0], i[1], i[3], i[2]};

    switch (op->type) {
    case MERAK_CUDNN_OP_MATMUL:
        return product(in[0], in[1], y, i);
    case MERAK_CUDNN_OP_POINTWISE:
        return point(op, in, i);
    case MERAK_CUDNN_OP_REDUCTION:
        return reduced(op, in[0], y, i);
    default:
        return load(in[0], turned);
    }
}

static void run_op(struct run *r, const struct si_desc *op)
{
    const struct si_ends e = si_ends_of(op);
    struct place *in[3] = {NULL, NULL, NULL}, *y = place_of(r, e.out);
    int64_t i[4];

    for (int k = 0; k < 3; k++)
        in[k] = e.in[k] != NULL ? place_of(r, e.in[k]) : NULL;
    for (i[0] = 0; i[0] < y->dim[0]; i[0]++)
        for (i[1] = 0; i[1] < y->dim[1]; i[1]++)
            for (i[2] = 0; i[2] < y->dim[2]; i[2]++)
                for (i[3] = 0; i[3] < y->dim[3]; i[3]++)
                    store(y, i, value(op, in, y, i));
}

static void run_graph(void *work)
{
    const struct si_call *c = work;
    struct run r = {.call = c};
    int64_t n = si_count(c->graph, MERAK_CUDNN_GRAPH_OPS);

    memset(c->workspace, 0xff, c->workspace_bytes);
    for (int64_t i = 0; i < n; i++)
        run_op(&r, si_desc(c->graph, MERAK_CUDNN_GRAPH_OPS, i));
    for (int i = 0; i < r.n; i++)
        free(r.place[i].number);
    if (c->jitter_at != NULL)
        ++*c->jitter_at;
}

int si_put(const struct si_call *call, void *stream)
{
#ifdef MERAK_STAND_IN_STREAMS
    struct stand_in_stream *s = stream;

    return s == NULL ? -1 : s->queue(s, run_graph, call, sizeof(*call));
#else
    struct si_call now = *call;

    (void)stream;
    run_graph(&now);
    return 0;
#endif
}
