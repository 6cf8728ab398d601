/* SPDX-License-Identifier: Apache-2.0 */
/* kcase.c - kernel calls made from a table, for the tests of backends */
#include "config.h"

#include "unit/near.h"

#include "unit/kcase.h"

#include "base/rng.h"
#include "kernels/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 64

/* One size of every forward op: B sequences of T, C = G R D columns. */
struct size {
    size_t B, T, C, V, out, G, R, D;
};
static const struct size sizes[KC_SIZES] = {
    {1, 3, 3, 5, 2, 1, 1, 2},          {2, 5, 17, 17, 7, 2, 2, 4},
    {1, 1, 1, 1, 1, 1, 1, 2},          {2, 33, 65, 33, 130, 3, 1, 34},
    {1, 66, 260, 1031, 300, 1, 2, 64},
};

#define N(...)                                               \
    (int)(sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)), \
    {                                                        \
        __VA_ARGS__                                          \
    }

int kc_rows(int size, struct kc_row *row, int max)
{
    const struct size s = sizes[size];
    size_t B = s.B, T = s.T, C = s.C, V = s.V, O = s.out;
    size_t G = s.G, R = s.R, D = s.D;
    const struct kc_row all[] = {
        {.op = "embedding",
         .n_in = 2,
         .n_out = 1,
         .vocab = V,
         .operand = {{'i', N(B, T)}, {'c', N(V, C)}, {'c', N(B, T, C)}}},
        {.op = "add_position",
         .n_in = 2,
         .n_out = 1,
         .operand = {{'c', N(B, T, C)}, {'c', N(T + 2, C)}, {'c', N(B, T, C)}}},
        {.op = "linear",
         .n_in = 3,
         .n_out = 1,
         .attrs.i[0] = 1,
         .operand = {{'c', N(B, T, C)},
                     {'c', N(O, C)},
                     {'f', N(O)},
                     {'c', N(B, T, O)}}},
        {.op = "linear",
         .n_in = 2,
         .n_out = 1,
         .attrs.i[0] = 2,
         .operand = {{'c', N(B, T, G, D)},
                     {'c', N(O, 2, G, D)},
                     {'c', N(B, T, O, 2)}}},
        {.op = "layernorm",
         .n_in = 3,
         .n_out = 3,
         .attrs.f[0] = 1e-5,
         .operand = {{'c', N(B, T, C)},
                     {'p', N(C)},
                     {'f', N(C)},
                     {'c', N(B, T, C)},
                     {'f', N(B, T)},
                     {'f', N(B, T)}}},
        {.op = "rmsnorm",
         .n_in = 2,
         .n_out = 2,
         .attrs.f[0] = 1e-5,
         .operand = {{'c', N(B, T, C)},
                     {'p', N(C)},
                     {'c', N(B, T, C)},
                     {'f', N(B, T)}}},
        {.op = "rope",
         .n_in = 1,
         .n_out = 1,
         .attrs = {.i = {0, 2}, .f = {10000, 8, 0.01, 0.1, 1.25}},
         .operand = {{'c', N(B, T, G, R, D)}, {'c', N(B, T, G, R, D)}}},
        {.op = "rope",
         .n_in = 1,
         .n_out = 1,
         .attrs = {.i = {0, 0, 0, (int64_t)(D - D / 4 * 2)}, .f = {10000}},
         .operand = {{'c', N(B, T, G, R, D)}, {'c', N(B, T, G, R, D)}}},
        {.op = "attention",
         .n_in = 3,
         .n_out = 2,
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        {.op = "attention_packed",
         .n_in = 1,
         .n_out = 2,
         .operand = {{'c', N(B, T, 3, G, D)},
                     {'c', N(B, T, G, D)},
                     {'f', N(B, T, G)}}},
        {.op = "gelu",
         .n_in = 1,
         .n_out = 1,
         .attrs.i[0] = 1,
         .operand = {{'c', N(B, T, C)}, {'c', N(B, T, C)}}},
        {.op = "gelu",
         .n_in = 1,
         .n_out = 1,
         .operand = {{'c', N(B, T, C)}, {'c', N(B, T, C)}}},
        {.op = "relu2",
         .n_in = 1,
         .n_out = 1,
         .operand = {{'c', N(B, T, C)}, {'c', N(B, T, C)}}},
        {.op = "swiglu",
         .n_in = 2,
         .n_out = 1,
         .operand = {{'c', N(B, T, C)}, {'c', N(B, T, C)}, {'c', N(B, T, C)}}},
        {.op = "add",
         .n_in = 2,
         .n_out = 1,
         .operand = {{'c', N(B, T, C)}, {'c', N(B, T, C)}, {'c', N(B, T, C)}}},
        {.op = "dropout",
         .n_in = 1,
         .n_out = 1,
         .attrs.f[0] = 0.3,
         .attrs.i[0] = 5,
         .operand = {{'c', N(B, T, C)}, {'c', N(B, T, C)}}},
        {.op = "xent_max",
         .n_in = 1,
         .n_out = 1,
         .operand = {{'c', N(B, T, V)}, {'f', N(B, T)}}},
        {.op = "xent_sum",
         .n_in = 3,
         .n_out = 2,
         .vocab = V,
         .operand = {{'c', N(B, T, V)},
                     {'p', N(B, T)},
                     {'t', N(B, T)},
                     {'f', N(B, T)},
                     {'f', N(B, T)}}},
        {.op = "xent_loss",
         .n_in = 3,
         .n_out = 1,
         .operand =
             {{'f', N(B, T)}, {'p', N(B, T)}, {'f', N(B, T)}, {'f', N(B, T)}}},
        {.op = "mean_loss",
         .n_in = 1,
         .n_out = 1,
         .attrs.f[0] = 1.0 / (double)(B * T),
         .operand = {{'f', N(B, T)}, {'d', 0, {0}}}},
        {.op = "xent_dlogits",
         .n_in = 4,
         .n_out = 1,
         .vocab = V,
         .attrs.f[0] = 1.0 / (double)(B * T),
         .operand = {{'c', N(B, T, V)},
                     {'p', N(B, T)},
                     {'p', N(B, T)},
                     {'t', N(B, T)},
                     {'c', N(B, T, V)}}},
        {.op = "grad_add",
         .n_in = 1,
         .n_out = 1,
         .operand = {{'f', N(T * C)}, {'f', N(T * C)}}},
        {.op = "sumsq",
         .n_in = 1,
         .n_out = 1,
         .operand = {{'f', N(T * C)}, {'d', N(1)}}},
        {.op = "clip",
         .n_in = 1,
         .n_out = 1,
         .operand = {{'d', N(T)}, {'f', N(2)}}},
        {.op = "adamw",
         .n_in = 2,
         .n_out = 3,
         .attrs.i[0] = 1,
         .operand = {{'f', N(T * C)},
                     {'p', N(2)},
                     {'f', N(T * C)},
                     {'f', N(T * C)},
                     {'p', N(T * C)}}},
        {.op = "adamw",
         .n_in = 2,
         .n_out = 4,
         .attrs.f[0] = 0.25,
         .operand = {{'f', N(T * C)},
                     {'p', N(2)},
                     {'f', N(T * C)},
                     {'f', N(T * C)},
                     {'p', N(T * C)},
                     {'b', N(T * C)}}},
        {.op = "embedding",
         .n_in = 2,
         .n_out = 1,
         .vocab = V,
         .attrs.f[0] = 3.25,
         .operand = {{'i', N(B, T)}, {'c', N(V, C)}, {'c', N(B, T, C)}}},
        {.op = "rmsnorm",
         .n_in = 2,
         .n_out = 2,
         .attrs.f = {1e-5, 1},
         .operand = {{'c', N(B, T, C)},
                     {'p', N(C)},
                     {'c', N(B, T, C)},
                     {'f', N(B, T)}}},
        {.op = "swiglu",
         .n_in = 2,
         .n_out = 1,
         .attrs.i[0] = 1,
         .operand = {{'c', N(B, T, C)}, {'c', N(B, T, C)}, {'c', N(B, T, C)}}},
        {.op = "softcap",
         .n_in = 1,
         .n_out = 1,
         .attrs.f[0] = 1.5,
         .operand = {{'c', N(B, T, C)}, {'c', N(B, T, C)}}},
        {.op = "scale",
         .n_in = 1,
         .n_out = 1,
         .attrs.f[0] = -0.7,
         .operand = {{'c', N(B, T, C)}, {'c', N(B, T, C)}}},
        {.op = "attention",
         .n_in = 3,
         .n_out = 2,
         .attrs = {.i = {6, 3}, .f = {0.3, 0.4, 2.5}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        {.op = "attention_packed",
         .n_in = 1,
         .n_out = 2,
         .attrs = {.i = {1 << 20}, .f = {0.6}},
         .operand = {{'c', N(B, T, 3, G, D)},
                     {'c', N(B, T, G, D)},
                     {'f', N(B, T, G)}}},
        {.op = "attention",
         .n_in = 4,
         .n_out = 2,
         .attrs = {.i = {6, (int64_t)T / 2 + 1}, .f = {0.3, 0.4, 2.5}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, D)},
                     {'s', N(B, T)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        {.op = "attention_packed",
         .n_in = 2,
         .n_out = 2,
         .operand = {{'c', N(B, T, 3, G, D)},
                     {'s', N(B, T)},
                     {'c', N(B, T, G, D)},
                     {'f', N(B, T, G)}}},
        {.op = "add_position",
         .n_in = 3,
         .n_out = 1,
         .operand = {{'c', N(B, T, C)},
                     {'c', N(T + 2, C)},
                     {'s', N(B, T)},
                     {'c', N(B, T, C)}}},
    };
    int n = sizeof(all) / sizeof(*all);

    assert_true(n <= max);
    memcpy(row, all, sizeof(all));
    return n;
}

static enum merak_dtype dtype_of(char type, enum merak_dtype compute)
{
    switch (type) {
    case KC_COMPUTE:
        return compute;
    case KC_IDS:
    case KC_STARTS:
    case KC_TARGETS:
        return MERAK_I32;
    case KC_BF16:
        return MERAK_BF16;
    case KC_DOUBLE:
        return MERAK_F64;
    default:
        return compute == MERAK_F64 ? MERAK_F64 : MERAK_F32;
    }
}

double kc_document_starts = 0.2;

static void allocate(struct merak_operand *op, unsigned char guard)
{
    size_t bytes = merak_local_bytes(op);

    op->data = malloc(bytes + GUARD_BYTES);
    assert_non_null(op->data);
    memset((char *)op->data + bytes, guard, GUARD_BYTES);
}

static void shape_operand(struct merak_operand *op, const struct kc_operand *o,
                          enum merak_dtype compute)
{
    *op = (struct merak_operand){.dtype = dtype_of(o->type, compute)};
    op->local.ndim = o->ndim;
    memcpy(op->local.dim, o->dim, sizeof(o->dim));
    op->full = op->local;
}

double kc_get(const struct kc *c, int operand, size_t i)
{
    const struct merak_operand *op = &c->call.operand[operand];

    switch (op->dtype) {
    case MERAK_F64:
        return ((const double *)op->data)[i];
    case MERAK_BF16:
        return (double)merak_bf16_to_f32(((const uint16_t *)op->data)[i]);
    case MERAK_I32:
        return ((const int32_t *)op->data)[i];
    default:
        return (double)((const float *)op->data)[i];
    }
}

void kc_set(struct kc *c, int operand, size_t i, double value)
{
    struct merak_operand *op = &c->call.operand[operand];

    switch (op->dtype) {
    case MERAK_F64:
        ((double *)op->data)[i] = value;
        break;
    case MERAK_BF16:
        ((uint16_t *)op->data)[i] = merak_f32_to_bf16((float)value);
        break;
    case MERAK_I32:
        ((int32_t *)op->data)[i] = (int32_t)value;
        break;
    default:
        ((float *)op->data)[i] = (float)value;
    }
}

size_t kc_count(const struct kc *c, int operand)
{
    return merak_shape_count(&c->call.operand[operand].local);
}

static void fill(struct kc *c, int operand, char type, size_t vocab,
                 uint64_t seed)
{
    uint64_t key = merak_rng_mix(seed, (uint64_t)operand);
    size_t n = kc_count(c, operand);
    size_t T = c->call.operand[operand].local.dim[1], start = 0;

    for (size_t i = 0; i < n; i++) {
        double u = (double)merak_rng_uniform(key, i);

        if (type == KC_STARTS && (i % T == 0 || u < kc_document_starts))
            start = i % T;
        if (type == KC_STARTS)
            u = (double)start;
        else if (type == KC_IDS || type == KC_TARGETS)
            u = type == KC_TARGETS && i % 3 == 1 ? MERAK_NO_TARGET
                                                 : floor(u * (double)vocab);
        else if (type == KC_POSITIVE)
            u += 0.5;
        else
            u = 4 * u - 2;
        kc_set(c, operand, i, u);
    }
}

static void start(struct kc *c, const char *op, int n_in, int n_out)
{
    *c = (struct kc){.guard = 0xA5, .poison = 0xFF};
    memcpy(c->op, op, KC_NAME);
    c->call.n_in = n_in;
    c->call.n_out = n_out;
    c->call.first = true;
    c->step = (struct merak_step){.seed = 7,
                                  .step = 3,
                                  .sample = 11,
                                  .lr = 0.01f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f,
                                  .eps = 1e-8f,
                                  .weight_decay = 0.1f,
                                  .clip = 1.0f,
                                  .grad_scale = 0.25f,
                                  .train = true};
}

void kc_create(struct kc *c, const struct kc_row *row, enum merak_dtype dtype,
               uint64_t seed)
{
    start(c, row->op, row->n_in, row->n_out);
    c->attrs = row->attrs;
    for (int o = 0; o < row->n_in + row->n_out; o++) {
        shape_operand(&c->call.operand[o], &row->operand[o], dtype);
        allocate(&c->call.operand[o], c->guard);
        fill(c, o, row->operand[o].type, row->vocab, seed);
    }
}

bool kc_takes_starts(const char *op, int n_in)
{
    static const struct {
        const char *op;
        int n_in; /* at least: one is their starts */
    } row[] = {{"attention", 4},        {"attention_dx", 7},
               {"attention_packed", 2}, {"attention_packed_dx", 5},
               {"add_position", 3},     {"add_position_dw", 2}};

    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        if (strcmp(op, row[i].op) == 0)
            return n_in >= row[i].n_in;
    }
    return false;
}

bool kc_grad_fits(const struct kc_grad *grad, const struct kc *forward)
{
    if (strcmp(grad->op, "linear_db") == 0 && forward->call.n_in < 3)
        return false;
    return strcmp(grad->forward, forward->op) == 0 &&
           kc_takes_starts(grad->op, grad->n_in) == kc_has_documents(forward);
}

static void grad_attrs(struct kc *c, const struct kc *forward)
{
    c->attrs = forward->attrs;
    if (strcmp(c->op, "rope") == 0)
        c->attrs.i[0] = 1;
    if (strcmp(c->op, "linear_db") == 0)
        c->attrs.i[0] = forward->call.operand[2].local.ndim;
    if (strcmp(c->op, "add_position_dw") == 0)
        c->attrs.i[0] = (int64_t)forward->call.operand[1].local.dim[0];
}

void kc_create_grad(struct kc *c, const struct kc_grad *grad,
                    const struct kc *forward, enum merak_dtype dtype,
                    uint64_t seed)
{
    start(c, grad->op, grad->n_in, grad->n_out);
    grad_attrs(c, forward);
    for (int o = 0; o < grad->n_in + grad->n_out; o++) {
        int from = grad->from[o];
        int like =
            from >= 0 ? from : (from == KC_DY ? forward->call.n_in : -2 - from);
        struct merak_operand *op = &c->call.operand[o];

        *op = forward->call.operand[like];
        if (from <= KC_D(0))
            op->dtype = dtype_of(grad->weights ? KC_FLOAT : KC_COMPUTE, dtype);
        allocate(op, c->guard);
        if (from >= 0)
            memcpy(op->data, forward->call.operand[from].data,
                   merak_local_bytes(op));
        else
            fill(c, o, KC_FLOAT, 0, seed + 1000);
    }
}

void kc_copy(struct kc *to, const struct kc *from)
{
    *to = *from;
    for (int o = 0; o < from->call.n_in + from->call.n_out; o++) {
        allocate(&to->call.operand[o], to->guard);
        memcpy(to->call.operand[o].data, from->call.operand[o].data,
               merak_local_bytes(&from->call.operand[o]));
    }
}

void kc_destroy(struct kc *c)
{
    for (int o = 0; o < c->call.n_in + c->call.n_out; o++)
        free(c->call.operand[o].data);
}

static void check_guard(const void *end, unsigned char guard)
{
    for (size_t i = 0; i < GUARD_BYTES; i++)
        assert_int_equal(((const unsigned char *)end)[i], guard);
}

/* By its public name, or one of the cpu backend's instruction sets. */
static const struct merak_backend *find_backend(const char *name)
{
    const struct merak_backend *b = NULL;

#ifdef MERAK_CPU_X86
    if (strcmp(name, "cpu-avx2") == 0)
        return &merak_backend_cpu_avx2;
#endif
    if (strcmp(name, "cpu-base") == 0)
        return &merak_backend_cpu_base;
    assert_int_equal(merak_backend_find(name, &b, NULL), MERAK_OK);
    return b;
}

void kc_run(struct kc *c, const char *backend)
{
    kc_run_on(c, find_backend(backend));
}

void kc_run_on(struct kc *c, const struct merak_backend *b)
{
    const struct merak_kernel *k;
    struct merak_error err = {.text = ""};
    enum merak_status rc;
    size_t bytes;

    assert_int_equal(merak_kernel_find(b, c->op, &k, &err), MERAK_OK);
    c->call.attrs = &c->attrs;
    c->call.step = &c->step;
    c->call.scratch_bytes = k->scratch != NULL ? k->scratch(&c->call) : 0;
    bytes = (c->call.scratch_bytes + 63) / 64 * 64;
    c->call.scratch = aligned_alloc(64, bytes + GUARD_BYTES);
    assert_non_null(c->call.scratch);
    memset(c->call.scratch, c->poison, bytes);
    memset((char *)c->call.scratch + bytes, c->guard, GUARD_BYTES);
    rc = k->fn(&c->call, &err);
    if (rc != MERAK_OK)
        print_error("%s/%s: %s\n", b->name, c->op, err.text);
    assert_int_equal(rc, MERAK_OK);
    check_guard((char *)c->call.scratch + bytes, c->guard);
    free(c->call.scratch);
    for (int o = 0; o < c->call.n_in + c->call.n_out; o++)
        check_guard((char *)c->call.operand[o].data +
                        merak_local_bytes(&c->call.operand[o]),
                    c->guard);
}

void kc_slice(struct kc *part, const struct kc *whole, int operand, int dim,
              size_t lo, size_t len)
{
    const struct merak_operand *from = &whole->call.operand[operand];
    struct merak_operand *to = &part->call.operand[operand];
    size_t inner = merak_dtype_bytes(from->dtype), outer = 1;

    for (int d = 0; d < from->local.ndim; d++) {
        if (d < dim)
            outer *= from->local.dim[d];
        else if (d > dim)
            inner *= from->local.dim[d];
    }
    free(to->data);
    *to = *from;
    to->local.dim[dim] = len;
    to->lo[dim] += lo;
    allocate(to, part->guard);
    for (size_t i = 0; i < outer; i++)
        memcpy((char *)to->data + i * len * inner,
               (const char *)from->data +
                   (i * from->local.dim[dim] + lo) * inner,
               len * inner);
}
