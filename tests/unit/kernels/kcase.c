/* SPDX-License-Identifier: Apache-2.0 */
/* kcase.c - kernel calls made from a table, for the tests of backends */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kcase.h"

#include "base/rng.h"
#include "kernels/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 64

static enum merak_dtype dtype_of(char type, enum merak_dtype compute)
{
    switch (type) {
    case KC_COMPUTE:
    case KC_COUNTS:
    case KC_TABLE:
        return compute;
    case KC_IDS:
    case KC_STARTS:
    case KC_LENGTHS:
    case KC_PREFIX:
    case KC_PAIRS:
    case KC_REST:
    case KC_BITS:
    case KC_TARGETS:
        return MERAK_I32;
    case KC_BF16:
        return MERAK_BF16;
    case KC_DOUBLE:
    case KC_SUMS:
    case KC_SHARES:
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

/* Pairs of answers of 1 to 4 tokens, now and then a token between them; what
 * does not fit is in none. */
static void fill_pairs(struct kc *c, int operand, uint64_t key)
{
    size_t T = c->call.operand[operand].local.dim[1];
    size_t n = kc_count(c, operand), end;

    for (size_t at = 0; at < n; at = end) {
        uint64_t u = merak_rng_mix(key, at);
        size_t second = at + 1 + u % 4;

        end = second + 1 + u / 4 % 4;
        if (u / 16 % 4 == 0 || end > at - at % T + T)
            end = second = at + 1;
        for (size_t i = at; i < end; i++)
            kc_set(c, operand, i, second < end ? (double)(second % T) : 0);
    }
}

/* Word i of stream key as merak_rng_uniform() has it: a block is four. */
static double draw(struct merak_rng_block *block, uint64_t key, size_t i)
{
    const uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};

    if (i % 4 == 0)
        *block = merak_philox(k, (uint32_t[4]){(uint32_t)(i / 4)});
    return (double)(block->word[i % 4] >> 8) * 0x1p-24;
}

/* Of each row as many places as are kept, evenly spread, other ones in the
 * next. */
static void fill_bits(struct kc *c, int operand)
{
    struct merak_operand *op = &c->call.operand[operand];
    size_t K = (size_t)c->attrs.i[0], C = (size_t)c->attrs.i[1];
    size_t W = merak_local_last(op);

    memset(op->data, 0, merak_local_bytes(op));
    for (size_t r = 0; r < kc_count(c, operand) / W; r++) {
        for (size_t k = 0; k < K; k++) {
            size_t i = (k * C / K + r) % C;

            ((uint32_t *)op->data)[r * W + i / 32] |= (uint32_t)1 << i % 32;
        }
    }
}

static void fill(struct kc *c, int operand, char type, size_t vocab,
                 uint64_t seed)
{
    struct merak_rng_block block;
    uint64_t key = merak_rng_mix(seed, (uint64_t)operand);
    size_t n = kc_count(c, operand);
    size_t T = c->call.operand[operand].local.dim[1], start = 0;
    size_t P = c->call.operand[operand].local.dim[2];

    if (type == KC_PAIRS || type == KC_BITS) {
        if (type == KC_PAIRS)
            fill_pairs(c, operand, key);
        else
            fill_bits(c, operand);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double u = draw(&block, key, i);

        if (type == KC_STARTS && (i % T == 0 || u < kc_document_starts))
            start = i % T;
        if (type == KC_STARTS)
            u = (double)start;
        else if (type == KC_LENGTHS)
            u = 1 + floor(u * (double)vocab);
        else if (type == KC_PREFIX)
            u = i + 1 == n ? (double)(vocab - vocab / 4)
                           : floor(u * (double)(vocab + 1));
        else if (type == KC_TARGETS && i % 3 == 1)
            u = MERAK_NO_TARGET;
        else if (type == KC_REST && i % 3 == 1)
            u = MERAK_NO_EXPERT;
        else if (type == KC_IDS || type == KC_TARGETS || type == KC_REST)
            u = floor(u * (double)vocab);
        else if (type == KC_PLACES && i % P == 0)
            u = floor(u * (double)P);
        else if (type == KC_POSITIVE || type == KC_SHARES || type == KC_COUNTS)
            u += 0.5;
        else if (type == KC_SUMS && i % 2 == 1)
            u = 8 + 4 * u;
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
                                  .token_share = 1,
                                  .train = true};
}

/* The bit of one of attention's optional inputs. */
static int64_t attention_input(char type)
{
    return type == KC_STARTS    ? MERAK_ATTENTION_STARTS
           : type == KC_LENGTHS ? MERAK_ATTENTION_LENGTHS
           : type == KC_PREFIX  ? MERAK_ATTENTION_PREFIX
           : type == KC_TABLE   ? MERAK_ATTENTION_BIAS
           : type == KC_SINKS   ? MERAK_ATTENTION_SINKS
                                : 0;
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
        if (strncmp(row->op, "attention", 9) == 0)
            c->attrs.i[4] |= attention_input(row->operand[o].type);
    }
}

/* The inputs that a gradient has of its forward call's optional ones, of those
 * ops that have any. */
static int optional_inputs(const char *op, int n_in)
{
    static const struct {
        const char *op;
        int n_in; /* without */
    } row[] = {{"attention", 3},        {"attention_dx", 6},
               {"attention_packed", 1}, {"attention_packed_dx", 4},
               {"add_position", 2},     {"add_position_dw", 1}};

    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        if (strcmp(op, row[i].op) == 0)
            return n_in - row[i].n_in;
    }
    return 0;
}

/* Has an attention sinks, which its other gradients do not read? */
static bool has_sinks(const struct kc *c)
{
    return strcmp(c->op, "attention") == 0 &&
           c->attrs.i[4] & MERAK_ATTENTION_SINKS;
}

bool kc_shares_pool(const struct kc *c)
{
    return strcmp(c->op, "experts") == 0 && c->attrs.i[0] > 0;
}

/* The pool, and whether there are biases, are those of the forward. */
static bool fits_experts(const struct kc_grad *grad, const struct kc *forward)
{
    bool rows = strcmp(grad->forward, "experts_rows") == 0;
    bool back = strcmp(grad->op, "experts_dx") == 0;
    int biased = (int)forward->attrs.i[2], n_in = forward->call.n_in;

    if (strcmp(grad->forward, "experts") != 0 && !rows)
        return true;
    if (rows) {
        back = strcmp(grad->op, "experts_rows_dx") == 0;
        return strcmp(forward->op, "experts_rows") == 0 &&
               grad->from[back ? 5 : 3] == n_in + 2;
    }
    return grad->from[back ? 6 : 4] == n_in + 1 &&
           (grad->n_in - biased > 7) == kc_shares_pool(forward);
}

bool kc_grad_fits(const struct kc_grad *grad, const struct kc *forward)
{
    if (strcmp(grad->op, "linear_db") == 0 && forward->call.n_in < 3)
        return false;
    if (grad->forward_in > 0 && forward->call.n_in != grad->forward_in)
        return false;
    if (strncmp(grad->forward, "experts", 7) == 0 && !fits_experts(grad, forward))
        return false;
    if (strcmp(grad->op, "pool_dx") == 0 &&
        (grad->n_in == 2) != (forward->attrs.i[1] == MERAK_POOL_MAX))
        return false;
    if (strcmp(grad->op, "attention_sinks_dw") == 0)
        return has_sinks(forward);
    return strcmp(grad->forward, forward->op) == 0 &&
           (strcmp(grad->op, "attention_dx") != 0 ||
            grad->from[4] == forward->call.n_in) && /* o */
           optional_inputs(grad->op, grad->n_in) ==
               optional_inputs(forward->op, forward->call.n_in) -
                   has_sinks(forward);
}

static void grad_attrs(struct kc *c, const struct kc *forward)
{
    c->attrs = forward->attrs;
    if (has_sinks(forward))
        c->attrs.i[4] &= ~(int64_t)MERAK_ATTENTION_SINKS;
    if (strcmp(c->op, "mean_dx") == 0)
        c->attrs.i[1] =
            (int64_t)forward->call.operand[0].local.dim[forward->attrs.i[0]];
    if (strcmp(c->op, "concat_dx") == 0) /* of input 0, or of 1 of three */
        c->attrs.i[0] =
            forward->call.n_in == 3
                ? (int64_t)merak_local_last(&forward->call.operand[0])
                : 0;
    if (strcmp(c->op, "concat_shared_dx") == 0)
        c->attrs.i[0] = (int64_t)merak_local_last(&forward->call.operand[0]);
    if (strcmp(c->op, "rope") == 0)
        c->attrs.i[0] = 1;
    if (strcmp(c->op, "experts_dw") == 0 || strcmp(c->op, "experts_db") == 0) {
        c->attrs.i[0] = (int64_t)forward->call.operand[3].full.dim[0];
        c->attrs.i[1] = forward->attrs.i[0];
    }
    if (strcmp(c->op, "experts_bias_db") == 0)
        c->attrs.i[0] = (int64_t)forward->call.operand[3].full.dim[0];
    if (strcmp(c->op, "experts_send") == 0)
        c->attrs = (struct merak_attrs){
            .i = {(int64_t)forward->call.operand[0].full.dim[2],
                  (int64_t)forward->call.operand[0].full.dim[1]}};
    if (strcmp(c->op, "linear_db") == 0)
        c->attrs.i[0] = forward->call.operand[2].local.ndim;
    if (strcmp(c->op, "add_position_dw") == 0)
        c->attrs.i[0] = (int64_t)forward->call.operand[1].local.dim[0];
}

/* Is it a gradient that comes in? */
static bool comes_in(int from)
{
    return from == KC_DY || (from <= KC_DY_OF(0) && from > KC_MADE(0));
}

/* Give `first` the gradients that come in of `c`. */
static void copy_incoming(struct kc *first, const struct kc_grad *after,
                          const struct kc *c, const struct kc_grad *grad)
{
    for (int o = 0; o < grad->n_in; o++) {
        for (int i = 0; comes_in(grad->from[o]) && i < after->n_in; i++) {
            if (after->from[i] == grad->from[o])
                memcpy(first->call.operand[i].data, c->call.operand[o].data,
                       merak_local_bytes(&c->call.operand[o]));
        }
    }
}

/* Fill operand o with output k of gradient `after`, of the same dy. */
static void fill_made(struct kc *c, const struct kc_grad *grad,
                      const struct kc *forward, enum merak_dtype dtype, int o)
{
    const struct kc_grad *after = kc_grads;
    struct merak_operand *made;
    struct kc first;

    while (strcmp(after->op, grad->after) != 0 || !kc_grad_fits(after, forward))
        after++;
    kc_create_grad(&first, after, forward, dtype, 0);
    copy_incoming(&first, after, c, grad);
    kc_run(&first, "ref");
    made = &first.call.operand[after->n_in + KC_MADE(0) - grad->from[o]];
    c->call.operand[o] = *made;
    allocate(&c->call.operand[o], c->guard);
    memcpy(c->call.operand[o].data, made->data, merak_local_bytes(made));
    kc_destroy(&first);
}

/* One of a gradient's outputs that is not the gradient of an operand yet. */
static void shape_by_sample(struct merak_operand *op, const struct kc *forward,
                            int from, enum merak_dtype dtype)
{
    const struct merak_shape *of =
        &forward->call.operand[KC_BY_SAMPLE(0) - from].local;

    *op = (struct merak_operand){.dtype = dtype_of(KC_FLOAT, dtype)};
    op->local.ndim = of->ndim + 1;
    op->local.dim[0] = forward->call.operand[0].local.dim[0];
    memcpy(op->local.dim + 1, of->dim, (size_t)of->ndim * sizeof(*of->dim));
    op->full = op->local;
}

/* What operand of the forward call this one of a gradient is like. */
static int like(const struct kc *forward, int from)
{
    if (from >= 0)
        return from;
    if (from == KC_DY)
        return forward->call.n_in;
    return comes_in(from) ? forward->call.n_in + KC_DY_OF(0) - from : -2 - from;
}

/* First what comes in, then what another gradient makes of it. */
static int order(const struct kc_grad *grad, int i)
{
    int n = grad->n_in + grad->n_out, seen = 0;

    for (int o = 0; o < n; o++) {
        if (grad->from[o] > KC_MADE(0) && seen++ == i)
            return o;
    }
    for (int o = 0; o < n; o++) {
        if (grad->from[o] <= KC_MADE(0) && seen++ == i)
            return o;
    }
    return n;
}

void kc_create_grad(struct kc *c, const struct kc_grad *grad,
                    const struct kc *forward, enum merak_dtype dtype,
                    uint64_t seed)
{
    start(c, grad->op, grad->n_in, grad->n_out);
    grad_attrs(c, forward);
    for (int i = 0; i < grad->n_in + grad->n_out; i++) {
        int o = order(grad, i), from = grad->from[o];
        struct merak_operand *op = &c->call.operand[o];

        if (from <= KC_BY_SAMPLE(0)) {
            shape_by_sample(op, forward, from, dtype);
            allocate(op, c->guard);
            continue;
        }
        if (from <= KC_MADE(0)) {
            fill_made(c, grad, forward, dtype, o);
            continue;
        }
        *op = forward->call.operand[like(forward, from)];
        if (o >= grad->n_in && grad->weights)
            op->dtype = dtype_of(KC_FLOAT, dtype);
        allocate(op, c->guard);
        if (from >= 0)
            memcpy(op->data, forward->call.operand[from].data,
                   merak_local_bytes(op));
        else
            fill(c, o, KC_FLOAT, 0, seed + 1000);
    }
}

void kc_create_before(struct kc *c, const struct kc_grad *grad,
                      const struct kc *forward, enum merak_dtype dtype)
{
    const struct kc_grad *after = kc_grads;

    memset(c, 0, sizeof(*c));
    if (grad->n_in > 1 || grad->after == NULL)
        return;
    while (strcmp(after->op, grad->after) != 0 || !kc_grad_fits(after, forward))
        after++;
    assert_int_equal(after->from[0], KC_DY);
    kc_create_grad(c, after, forward, dtype, 0);
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

void kc_round(struct kc *c, int operand)
{
    struct merak_operand *op = &c->call.operand[operand];
    size_t n = merak_local_count(op);
    const float *from = op->data;

    assert_int_equal(op->dtype, MERAK_F32);
    op->dtype = MERAK_BF16;
    allocate(op, c->guard);
    for (size_t i = 0; i < n; i++)
        ((uint16_t *)op->data)[i] = merak_f32_to_bf16(from[i]);
    free((void *)(uintptr_t)from);
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
    c->call.scratch_bytes = merak_kernel_call_scratch(k, &c->call);
    bytes = (c->call.scratch_bytes + 63) / 64 * 64;
    c->call.scratch = aligned_alloc(64, bytes + GUARD_BYTES);
    assert_non_null(c->call.scratch);
    memset(c->call.scratch, c->poison, bytes);
    memset((char *)c->call.scratch + bytes, c->guard, GUARD_BYTES);
    rc = merak_kernel_run(b, k, &c->call, &err);
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
