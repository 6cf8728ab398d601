/* SPDX-License-Identifier: Apache-2.0 */
/* kcheck.c - what holds of a backend's kernels */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kcheck.h"

#include "partitioner/graph/padding.h"

#include <stdlib.h>
#include <string.h>

void kc_visit_gradients(const struct kc *forward, enum merak_dtype dtype,
                        kc_visit_fn visit)
{
    for (int g = 0; g < kc_n_grads; g++) {
        struct kc c;

        if (!kc_grad_fits(&kc_grads[g], forward))
            continue;
        kc_create_grad(&c, &kc_grads[g], forward, dtype, 5);
        visit(&c);
        if (kc_grads[g].weights) {
            c.call.accumulate = true;
            visit(&c);
        }
        kc_destroy(&c);
    }
}

void kc_visit_row(const struct kc_row *row, enum merak_dtype dtype,
                  kc_visit_fn visit)
{
    struct kc c;

    kc_create(&c, row, dtype, 1);
    visit(&c);
    if (row->weights) {
        c.call.accumulate = true;
        visit(&c);
    }
    kc_run(&c, "ref");
    kc_visit_gradients(&c, dtype, visit);
    kc_destroy(&c);
}

void kc_visit_all(int size, enum merak_dtype dtype, kc_visit_fn visit)
{
    struct kc_row row[KC_MAX_ROWS];
    int n = kc_rows(size, row, KC_MAX_ROWS);

    for (int r = 0; r < n; r++)
        kc_visit_row(&row[r], dtype, visit);
}

bool kc_goes_on;
int kc_failures;

void kc_fail_case(void)
{
    kc_failures++;
    if (!kc_goes_on)
        fail();
}

double kc_largest(const struct kc *c, int operand)
{
    double max = 0;

    for (size_t i = 0; i < kc_count(c, operand); i++) {
        if (isfinite(kc_get(c, operand, i))) /* lse without keys is not */
            max = fmax(max, fabs(kc_get(c, operand, i)));
    }
    return max;
}

void kc_check_near(const struct kc *got, const struct kc *want, int operand,
                   double abs, double rel)
{
    for (size_t i = 0; i < kc_count(want, operand); i++) {
        double g = kc_get(got, operand, i), w = kc_get(want, operand, i);

        if (g == w || (isfinite(w) && fabs(g - w) <= abs + rel * fabs(w)))
            continue;
        print_error("%s %s output %d element %zu of %zu (first operand [%zu, "
                    "..]): got %.9g, want %.9g\n",
                    want->op, merak_dtype_name(want->call.operand[0].dtype),
                    operand - want->call.n_in, i, kc_count(want, operand),
                    want->call.operand[0].local.dim[0], g, w);
        kc_fail_case();
        return;
    }
}

void kc_check_outputs(const struct kc_suite *suite, const struct kc *got,
                      const struct kc *want)
{
    for (int o = want->call.n_in; o < want->call.n_in + want->call.n_out; o++)
        suite->check(got, want, o);
}

void kc_check_same_bits(const struct kc *got, const struct kc *want,
                        const char *what)
{
    for (int o = want->call.n_in; o < want->call.n_in + want->call.n_out; o++) {
        const struct merak_operand *a = &got->call.operand[o];
        const struct merak_operand *b = &want->call.operand[o];

        if (memcmp(a->data, b->data,
                   kc_count(want, o) * merak_dtype_bytes(b->dtype)) == 0)
            continue;
        print_error("%s output %d changes with %s\n", want->op,
                    o - want->call.n_in, what);
        kc_fail_case();
    }
}

/* The operand one element behind the beginning of its memory. */
static void move_operand(struct merak_operand *op, size_t count,
                         unsigned char guard)
{
    size_t size = merak_dtype_bytes(op->dtype), bytes = count * size;
    char *base = malloc(bytes + size + 64);

    assert_non_null(base);
    memcpy(base + size, op->data, bytes);
    memset(base + size + bytes, guard, 64);
    free(op->data);
    op->data = base + size;
}

void kc_check_addresses(const struct kc_suite *suite, const struct kc *c)
{
    int n = c->call.n_in + c->call.n_out;
    struct kc even, odd;

    kc_copy(&even, c);
    kc_copy(&odd, c);
    suite->run(&even);
    for (int o = 0; o < n; o++)
        move_operand(&odd.call.operand[o], kc_count(c, o), odd.guard);
    suite->run(&odd);
    kc_check_same_bits(&odd, &even, "the address");
    kc_destroy(&even);
    for (int o = 0; o < n; o++)
        free((char *)odd.call.operand[o].data -
             merak_dtype_bytes(odd.call.operand[o].dtype));
}

/* --- gradients in bf16 ---------------------------------------------------- */

static bool makes_weights(const struct kc *c)
{
    bool any = false;

    for (int g = 0; g < kc_n_grads; g++)
        any =
            any || (kc_grads[g].weights && strcmp(kc_grads[g].op, c->op) == 0);
    return any;
}

/* An output of a call that added to `was` what another made. */
static void check_sum(const struct kc *got, const struct kc *was,
                      const struct kc *made, int o, bool itself)
{
    bool bf16 = got->call.operand[o].dtype == MERAK_BF16;

    for (size_t i = 0; i < kc_count(got, o); i++) {
        float made_f = (float)kc_get(made, o, i), sum = made_f;
        double g = kc_get(got, o, i), want;

        if (got->call.accumulate)
            sum += (float)kc_get(was, o, i);
        want = bf16 ? (double)merak_bf16_to_f32(merak_f32_to_bf16(sum))
                    : (double)sum;
        if (fabs(g - want) <=
            (itself ? fabs(want) / 128 + 1e-5 * fabs((double)made_f) : 0))
            continue;
        print_error("%s output %d element %zu%s: got %.9g, want %.9g\n",
                    got->op, o - got->call.n_in, i,
                    got->call.accumulate ? ", added" : "", g, want);
        kc_fail_case();
        return;
    }
}

int kc_check_narrow(const struct kc_suite *suite,
                    const struct merak_backend *backend, const struct kc *c)
{
    int n = c->call.n_in + c->call.n_out;
    const struct merak_kernel *kernel;
    struct kc made;

    if (!makes_weights(c) || merak_call_out(&c->call, 0)->local.ndim < 2)
        return 0;
    assert_int_equal(merak_kernel_find(backend, c->op, &kernel, NULL),
                     MERAK_OK);
    kc_copy(&made, c);
    made.call.accumulate = false;
    suite->run(&made);
    for (int add = 0; add < 2; add++) {
        struct kc was, got;

        kc_copy(&was, c);
        was.call.narrow = true;
        was.call.accumulate = add == 1;
        for (int o = c->call.n_in; o < n; o++)
            if (was.call.operand[o].local.ndim > 1)
                kc_round(&was, o);
        kc_copy(&got, &was);
        suite->run(&got);
        for (int o = c->call.n_in; o < n; o++)
            check_sum(&got, &was, &made, o,
                      !merak_kernel_widens(kernel, &was.call));
        kc_destroy(&was);
        kc_destroy(&got);
    }
    kc_destroy(&made);
    return 1;
}

/* --- padded rows -----------------------------------------------------------
 */

/* Copy the rows of an operand to memory where they are ld elements apart, or
 * with 0 contiguous. */
static void move_rows(struct merak_operand *op, size_t ld, unsigned char guard)
{
    size_t size = merak_dtype_bytes(op->dtype), row = merak_local_last(op);
    size_t from = merak_local_ld(op), to = ld != 0 ? ld : row;
    size_t rows = merak_local_count(op) / row;
    char *data = malloc(rows * to * size + 64);

    assert_non_null(data);
    memset(data, 0xff, rows * to * size);
    memset(data + rows * to * size, guard, 64);
    for (size_t i = 0; i < rows; i++)
        memcpy(data + i * to * size, (char *)op->data + i * from * size,
               row * size);
    free(op->data);
    op->data = data;
    op->ld = ld;
}

/* Products take padded rows as rows of a matrix: several dims are none. */
static bool is_matrix(const struct kc *c, const struct merak_operand *x)
{
    struct merak_gemm_sizes s;

    if (strcmp(c->op, "linear") == 0)
        s = merak_linear_sizes(&c->call);
    else if (strcmp(c->op, "linear_dx") == 0)
        s = merak_linear_dx_sizes(&c->call);
    else if (strcmp(c->op, "linear_dw") == 0)
        s = merak_linear_dw_sizes(&c->call);
    else
        return true;
    return s.n == merak_local_last(x);
}

int kc_check_padding(const struct kc_suite *suite, const struct kc *c)
{
    const struct merak_op *op = merak_op_find(c->op);
    struct kc want, padded;
    int n = 0, n_in = c->call.n_in;

    assert_non_null(op);
    kc_copy(&want, c);
    kc_copy(&padded, c);
    padded.call.attrs = &padded.attrs;
    for (int o = 0; o < n_in + c->call.n_out; o++) {
        struct merak_operand *x = &padded.call.operand[o];

        if (!merak_op_observes_ld(op, n_in, o) || !is_matrix(&padded, x))
            continue;
        move_rows(x, (merak_local_last(x) + 7) / 8 * 8 + 8, padded.guard);
        n++;
    }
    if (n > 0) {
        suite->run(&want);
        suite->run(&padded);
        for (int o = 0; o < n_in + c->call.n_out; o++) {
            if (padded.call.operand[o].ld != 0)
                move_rows(&padded.call.operand[o], 0, padded.guard);
        }
        kc_check_outputs(suite, &padded, &want);
    }
    kc_destroy(&want);
    kc_destroy(&padded);
    return n;
}

/* --- shards ----------------------------------------------------------------
 */

/* A cut along an index of the op's signature: which dim of each operand runs
 * along it (-1: none), and how the parts' outputs make the whole's where they
 * lack it. */
struct cut {
    int dim[MERAK_MAX_OPERANDS];
    char how; /* 's'ummed, 'm'aximum, 'c': all outputs are concatenated */
    /* Operands have so many times as many points along it as the index has; and
     * what a part reads of the others. */
    size_t times[MERAK_MAX_OPERANDS];
    struct merak_reach reach[MERAK_MAX_OPERANDS];
};

static void find_cut(const struct kc *c, const struct merak_signature *sig,
                     int index, struct cut *cut)
{
    cut->how = 'c';
    for (int o = 0; o < c->call.n_in + c->call.n_out; o++) {
        cut->dim[o] = -1;
        for (int d = 0; d < c->call.operand[o].local.ndim; d++) {
            if (sig->operand_dim[o][d] != index)
                continue;
            cut->dim[o] = d;
            cut->times[o] =
                sig->index[index].kind == MERAK_INDEX_WINDOW
                    ? c->call.operand[o].local.dim[d] / sig->index[index].extent
                    : 1;
            cut->reach[o] = sig->reach[o][d];
        }
        if (o >= c->call.n_in && cut->dim[o] < 0)
            cut->how = sig->index[index].kind == MERAK_INDEX_MAX ? 'm' : 's';
    }
}

/* Run the part [lo, lo + len). */
static void run_part(const struct kc_suite *suite, const struct kc *whole,
                     const struct cut *cut, size_t lo, size_t len,
                     struct kc *part)
{
    kc_copy(part, whole);
    part->call.first = lo == 0 || cut->how == 'c';
    for (int o = 0; o < whole->call.n_in + whole->call.n_out; o++) {
        size_t begin = lo * cut->times[o], end = begin + len * cut->times[o];
        size_t n;

        if (cut->dim[o] < 0)
            continue;
        n = whole->call.operand[o].local.dim[cut->dim[o]];
        begin -= cut->reach[o].before < begin ? cut->reach[o].before : begin;
        end += cut->reach[o].after < n - end ? cut->reach[o].after : n - end;
        kc_slice(part, whole, o, cut->dim[o], begin, end - begin);
    }
    suite->run(part);
}

static double join(double a, double b, char how)
{
    return how == 'm' ? fmax(a, b) : a + b;
}

/* An output that both parts have a share of. */
static void check_joined(const struct kc_suite *suite, struct kc part[2],
                         const struct kc *whole, int o, char how)
{
    for (size_t i = 0; i < kc_count(whole, o); i++)
        kc_set(&part[0], o, i,
               join(kc_get(&part[0], o, i), kc_get(&part[1], o, i), how));
    suite->check(&part[0], whole, o);
}

/* An output of which the part has [lo, lo + len). */
static void check_piece(const struct kc_suite *suite, const struct kc *part,
                        const struct kc *whole, int o, int dim, size_t lo,
                        size_t len)
{
    struct kc want;

    kc_copy(&want, part);
    kc_slice(&want, whole, o, dim, lo, len);
    suite->check(part, &want, o);
    kc_destroy(&want);
}

static void check_cut(const struct kc_suite *suite, const struct kc *whole,
                      const struct cut *cut)
{
    int n_in = whole->call.n_in, along = 0;
    size_t extent, at;
    struct kc part[2];

    while (cut->dim[along] < 0)
        along++;
    extent = whole->call.operand[along].local.dim[cut->dim[along]] /
             cut->times[along];
    if (extent < 2)
        return;
    /* rows kept for each expert beside positions: each part has its own */
    for (int o = along; o < n_in + whole->call.n_out; o++) {
        if (cut->dim[o] >= 0 && whole->call.operand[o].local.dim[cut->dim[o]] !=
                                    extent * cut->times[o])
            return;
    }
    at = extent * 2 / 3;
    run_part(suite, whole, cut, 0, at, &part[0]);
    run_part(suite, whole, cut, at, extent - at, &part[1]);
    for (int o = n_in; o < n_in + whole->call.n_out; o++) {
        if (cut->dim[o] < 0) {
            check_joined(suite, part, whole, o, cut->how);
            continue;
        }
        check_piece(suite, &part[0], whole, o, cut->dim[o], 0,
                    at * cut->times[o]);
        check_piece(suite, &part[1], whole, o, cut->dim[o], at * cut->times[o],
                    (extent - at) * cut->times[o]);
    }
    kc_destroy(&part[0]);
    kc_destroy(&part[1]);
}

/* Each part's gradients are of its own forward: what is in its pool is not a
 * part of what is in the whole one. */
static void check_expert_gradients(const struct kc_suite *suite,
                                   const struct kc *whole,
                                   const struct kc part[2], size_t at,
                                   size_t extent)
{
    enum merak_dtype dtype = whole->call.operand[0].dtype;

    for (int g = 0; g < kc_n_grads; g++) {
        int n_in = kc_grads[g].n_in;
        struct kc want, got[2];

        if (!kc_grad_fits(&kc_grads[g], whole))
            continue;
        kc_create_grad(&want, &kc_grads[g], whole, dtype, 5);
        kc_run(&want, "ref");
        for (int i = 0; i < 2; i++) {
            kc_create_grad(&got[i], &kc_grads[g], &part[i], dtype, 5);
            suite->run(&got[i]);
        }
        for (int o = n_in; o < n_in + kc_grads[g].n_out; o++) {
            if (kc_grads[g].weights) {
                check_piece(suite, &got[0], &want, o, 0, 0, at);
                check_piece(suite, &got[1], &want, o, 0, at, extent - at);
            } else if (o < n_in + 2) {
                check_joined(suite, got, &want, o, 's');
            }
        }
        kc_destroy(&want);
        kc_destroy(&got[0]);
        kc_destroy(&got[1]);
    }
}

/* Two ranks with a part of the experts each. */
static void check_experts(const struct kc_suite *suite, const struct kc *whole)
{
    struct cut cut = {.how = 's'};
    size_t extent = whole->call.operand[3].local.dim[0], at = extent * 2 / 3;
    int n_in = whole->call.n_in;
    struct kc part[2], sum[2];

    if (extent < 2)
        return;
    for (int o = 0; o < n_in + 2; o++) { /* parameters and the pool */
        cut.dim[o] = o < 3 || o == n_in ? -1 : 0;
        cut.times[o] = 1;
    }
    run_part(suite, whole, &cut, 0, at, &part[0]);
    run_part(suite, whole, &cut, at, extent - at, &part[1]);
    check_expert_gradients(suite, whole, part, at, extent);
    for (int i = 0; i < 2; i++)
        kc_copy(&sum[i], &part[i]);
    check_joined(suite, sum, whole, n_in, 's');
    for (int i = 0; i < 2; i++) {
        kc_destroy(&part[i]);
        kc_destroy(&sum[i]);
    }
}

int kc_check_cuts(const struct kc_suite *suite, const struct kc *c)
{
    const struct merak_op *op = merak_op_find(c->op);
    struct merak_infer inf = {
        .attrs = &c->attrs, .n_in = c->call.n_in, .n_out = c->call.n_out};
    struct merak_signature sig;
    struct kc whole;
    int seen = 0;

    /* What updates its outputs has run once before it is cut. */
    if (c->call.accumulate || op->updates)
        return 0;
    for (int o = 0; o < c->call.n_in + c->call.n_out; o++) {
        inf.shape[o] = c->call.operand[o].local;
        inf.dtype[o] = c->call.operand[o].dtype;
    }
    op->signature(&inf, &sig);
    kc_copy(&whole, c);
    kc_run(&whole, "ref");
    for (int i = 0; i < sig.n_index; i++) {
        struct cut cut;

        if (sig.index[i].kind == MERAK_INDEX_WHOLE)
            continue;
        if (sig.index[i].experts && merak_op_find(c->op)->rows_left_in == 0) {
            if (c->call.n_out == 2) /* gradients follow their forward */
                check_experts(suite, &whole);
            continue;
        }
        find_cut(c, &sig, i, &cut);
        check_cut(suite, &whole, &cut);
        seen++;
    }
    kc_destroy(&whole);
    return seen;
}

/* --- slices of sequences ---------------------------------------------------
 */

bool kc_is_back(const struct merak_op *op, int n_in, int o)
{
    return o < n_in ? op->back_in >> o & 1 : op->back_out >> (o - n_in) & 1;
}

/* Sinks have neither samples nor positions. */
static bool has_positions(const struct kc *c, int o)
{
    return !(c->attrs.i[4] & MERAK_ATTENTION_SINKS) || o != c->call.n_in - 1;
}

/* Run positions [lo, hi) and put what they give where it belongs in `all`. */
static void run_slice(const struct kc_suite *suite, struct kc *all, size_t lo,
                      size_t hi, bool accumulate)
{
    const struct merak_op *op = merak_op_find(all->op);
    int n_in = all->call.n_in, n = n_in + all->call.n_out;
    struct kc part;

    kc_copy(&part, all);
    part.call.accumulate = accumulate;
    for (int o = 0; o < n; o++)
        if (has_positions(all, o))
            kc_slice(&part, all, o, 1, kc_is_back(op, n_in, o) ? 0 : lo,
                     kc_is_back(op, n_in, o) ? hi : hi - lo);
    suite->run(&part);
    for (int o = n_in; o < n; o++) {
        size_t row = kc_count(all, o) / all->call.operand[o].local.dim[1];
        size_t at = kc_is_back(op, n_in, o) ? 0 : lo * row;

        for (size_t i = 0; i < kc_count(&part, o); i++)
            kc_set(all, o, at + i, kc_get(&part, o, i));
    }
    kc_destroy(&part);
}

int kc_check_slices(const struct kc_suite *suite, const struct kc *c)
{
    const struct merak_op *op = merak_op_find(c->op);
    size_t T = c->call.operand[0].local.dim[1], at[] = {0, T / 3, T - T / 4, T};
    struct kc one, all;

    if ((op->back_in | op->back_out) == 0 || T < 4 ||
        (op->looks_ahead != NULL && op->looks_ahead(&c->attrs)))
        return 0;
    kc_copy(&one, c);
    for (int o = 0; o < c->call.n_in + c->call.n_out; o++)
        if (has_positions(c, o))
            kc_slice(&one, c, o, 0, 0, 1);
    kc_copy(&all, &one);
    kc_run(&one, "ref");
    for (int k = 2; k >= 0; k--) /* as backwards come */
        run_slice(suite, &all, at[k], at[k + 1], k < 2);
    kc_check_outputs(suite, &all, &one);
    kc_destroy(&all);
    kc_destroy(&one);
    return 1;
}
