/* SPDX-License-Identifier: Apache-2.0 */
/* ref_experts.c - gated MLPs of chosen rows, and their gradients (reference)
 *
 * y of a token is the sum over its rows, by ascending expert, of w down
 * (silu(gate x) * (up x)), of which what `down` multiplies is rounded to the
 * compute type, as are the gate and what it is multiplied by.  Rows of other
 * ranks' experts are zeros.  What the pool has no place for is computed again.
 * With a bias the two are gate x + b_0 and up x + b_1; with other numbers than
 * those of silu they are joined as struct merak_gating says, and where the limit
 * bounds one, it has a gradient of 0.
 */
#include "config.h"

#include "kernels/ref/ref.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A call; operands that it does not have are NULL. */
struct mlp {
    struct merak_experts s;
    const struct merak_operand *x, *w, *dy, *gate, *up, *down, *pool, *dpool;
    uint32_t *first, *order;
    size_t *place;          /* [n K], in the pool */
    double *layer, *change; /* [2, F]: a row's pool, and its gradient */
    double *inner;          /* [F]: what `down` multiplies, of a row's layers */
    double *sum;            /* [C] */
};

/* --- memory ----------------------------------------------------------------
 */

static void close_mlp(struct mlp *m)
{
    free(m->first);
    free(m->order);
    free(m->place);
    free(m->layer);
    free(m->sum);
}

/* The operands are set. */
static enum merak_status open_mlp(const struct merak_kernel_call *call,
                                  struct mlp *m, struct merak_error *err)
{
    enum merak_status rc;
    size_t rows, width;

    m->s = merak_experts_sizes(call);
    rows = m->s.n * m->s.K + 1;
    width = m->s.F + 1;
    rc = merak_experts_check(&m->s, err);
    if (rc != MERAK_OK)
        return rc;
    m->first = calloc(m->s.E + 1, sizeof(*m->first));
    m->order = calloc(rows, sizeof(*m->order));
    m->place = calloc(rows, sizeof(*m->place));
    m->layer = calloc(5 * width, sizeof(*m->layer));
    m->sum = calloc(m->s.C + 1, sizeof(*m->sum));
    if (m->first == NULL || m->order == NULL || m->place == NULL ||
        m->layer == NULL || m->sum == NULL)
        return merak_fail_nomem(err, rows * sizeof(*m->place));
    m->change = m->layer + 2 * width;
    m->inner = m->layer + 4 * width;
    merak_experts_sort(&m->s, m->first, m->order);
    for (size_t at = 0; at < m->first[m->s.E]; at++)
        m->place[m->order[at]] = merak_experts_place(&m->s, at, m->order[at]);
    return MERAK_OK;
}

/* --- a row -----------------------------------------------------------------
 */

/* sum over k of a[at + k] b[from + k step] */
static double dot(const struct merak_operand *a, size_t at,
                  const struct merak_operand *b, size_t from, size_t step,
                  size_t n)
{
    double sum = 0;

    for (size_t k = 0; k < n; k++)
        sum += ref_load(a, at + k) * ref_load(b, from + k * step);
    return sum;
}

/* A gate, and what it is multiplied by, within the limit; a missing number
 * stays one. */
static double bounded_gate(const struct merak_gating *by, double g)
{
    return g > by->limit ? by->limit : g;
}

static double bounded_up(const struct merak_gating *by, double u)
{
    double least = u < -by->limit ? -by->limit : u;

    return (u > by->limit ? by->limit : least) + by->shift;
}

static double activated(const struct merak_gating *by, double gate)
{
    return gate / (1 + exp(-by->slope * gate));
}

/* Of row i, the number among these experts, and the token. */
static size_t expert_of(const struct mlp *m, size_t i)
{
    return (size_t)m->s.ids[i] - m->s.from;
}

static size_t token_of(const struct mlp *m, size_t i)
{
    return i / m->s.K;
}

static void make_inner(const struct mlp *m)
{
    const struct merak_gating *by = &m->s.gating;

    for (size_t f = 0; f < m->s.F; f++) {
        double gate = bounded_gate(by, m->layer[f]);

        m->inner[f] =
            ref_round(m->pool, activated(by, gate) *
                                   bounded_up(by, m->layer[m->s.F + f]));
    }
}

/* Element f of one of the two biases of row i's expert. */
static double bias_of(const struct mlp *m, size_t i, size_t half, size_t f)
{
    size_t e = expert_of(m, i);

    return m->s.bias == NULL
               ? 0
               : ref_load(m->s.bias, (2 * e + half) * m->s.F + f);
}

/* A row's two layers from x. */
static void make_layers(const struct mlp *m, size_t i)
{
    size_t C = m->s.C, F = m->s.F, from = expert_of(m, i) * F * C;

    for (size_t f = 0; f < F; f++) {
        size_t x = token_of(m, i) * C, at = from + f * C;

        m->layer[f] = ref_round(
            m->pool, dot(m->x, x, m->gate, at, 1, C) + bias_of(m, i, 0, f));
        m->layer[F + f] = ref_round(
            m->pool, dot(m->x, x, m->up, at, 1, C) + bias_of(m, i, 1, f));
    }
}

/* Read a row's two numbers for each f from a pool; false: it has no place. */
static bool take(const struct mlp *m, const struct merak_operand *pool,
                 size_t i, double *row)
{
    size_t F = m->s.F, place = m->place[i];

    for (size_t f = 0; f < 2 * F && place < m->s.kept; f++)
        row[f] = ref_load(pool, place * 2 * F + f);
    return place < m->s.kept;
}

/* Write them, if it has a place. */
static void keep(const struct mlp *m, const struct merak_operand *pool,
                 size_t i, const double *row)
{
    size_t F = m->s.F, place = m->place[i];

    for (size_t f = 0; f < 2 * F && place < m->s.kept; f++)
        ref_store(pool, place * 2 * F + f, row[f]);
}

/* Their gradients, the layers being loaded; returns that of the row's weight.
 */
static double make_change(const struct mlp *m, size_t i)
{
    size_t C = m->s.C, F = m->s.F, from = expert_of(m, i) * C * F;
    const struct merak_gating *by = &m->s.gating;
    double dw = 0;

    make_inner(m);
    for (size_t f = 0; f < F; f++) {
        double d = dot(m->dy, token_of(m, i) * C, m->down, from + f, F, C);
        double g = bounded_gate(by, m->layer[f]), up = m->layer[F + f];
        double sigmoid = 1 / (1 + exp(-by->slope * g));

        dw += d * m->inner[f];
        d *= ref_load(m->w, i);
        m->change[f] =
            m->layer[f] > by->limit
                ? 0
                : ref_round(m->pool, d * bounded_up(by, up) * sigmoid *
                                         (1 + by->slope * g * (1 - sigmoid)));
        m->change[F + f] =
            fabs(up) > by->limit ? 0 : ref_round(m->pool, d * activated(by, g));
    }
    return dw;
}

/* --- calls -----------------------------------------------------------------
 */

/* Adds a row of a token to its sum. */
typedef void (*row_fn)(const struct merak_kernel_call *call,
                       const struct mlp *m, size_t i);

/* Output 0 of each token: its rows in the order of experts. */
static void each_token(const struct merak_kernel_call *call,
                       const struct mlp *m, row_fn add)
{
    const struct merak_experts *s = &m->s;

    for (size_t t = 0; t < s->n; t++) {
        memset(m->sum, 0, s->C * sizeof(*m->sum));
        for (size_t e = s->from; e < s->from + s->E; e++)
            for (size_t i = t * s->K; i < (t + 1) * s->K; i++)
                if ((size_t)s->ids[i] == e)
                    add(call, m, i);
        for (size_t c = 0; c < s->C; c++)
            ref_store(merak_call_out(call, 0), t * s->C + c, m->sum[c]);
    }
}

static void add_row(const struct merak_kernel_call *call, const struct mlp *m,
                    size_t i)
{
    size_t C = m->s.C, F = m->s.F, from = expert_of(m, i) * C * F;

    make_layers(m, i);
    make_inner(m);
    keep(m, merak_call_out(call, 1), i, m->layer);
    for (size_t c = 0; c < C; c++) {
        double sum = 0;

        for (size_t f = 0; f < F; f++)
            sum += m->inner[f] * ref_load(m->down, from + c * F + f);
        m->sum[c] += ref_load(m->w, i) * sum;
    }
}

REF_KERNEL(experts)
{
    struct mlp m = {.x = &call->operand[0],
                    .w = &call->operand[1],
                    .gate = &call->operand[3],
                    .up = &call->operand[4],
                    .down = &call->operand[5],
                    .pool = merak_call_out(call, 1)};
    enum merak_status rc = open_mlp(call, &m, err);

    if (rc == MERAK_OK)
        each_token(call, &m, add_row);
    close_mlp(&m);
    return rc;
}

static void add_gradient(const struct merak_kernel_call *call,
                         const struct mlp *m, size_t i)
{
    size_t C = m->s.C, F = m->s.F, from = expert_of(m, i) * F * C;

    if (!take(m, m->pool, i, m->layer))
        make_layers(m, i);
    ref_store(merak_call_out(call, 1), i, make_change(m, i));
    keep(m, merak_call_out(call, 2), i, m->change);
    for (size_t c = 0; c < C; c++) {
        for (size_t f = 0; f < F; f++)
            m->sum[c] += m->change[f] * ref_load(m->gate, from + f * C + c) +
                         m->change[F + f] * ref_load(m->up, from + f * C + c);
    }
}

REF_KERNEL(experts_dx)
{
    struct mlp m = {.dy = &call->operand[0],
                    .w = &call->operand[1],
                    .gate = &call->operand[3],
                    .up = &call->operand[4],
                    .down = &call->operand[5],
                    .pool = &call->operand[6],
                    .x = &call->operand[7]};
    enum merak_status rc = open_mlp(call, &m, err);

    for (size_t i = 0; rc == MERAK_OK && i < m.s.n * m.s.K; i++)
        ref_store(merak_call_out(call, 1), i, 0);
    if (rc == MERAK_OK)
        each_token(call, &m, add_gradient);
    close_mlp(&m);
    return rc;
}

/* Add a row's products to the gradients of its expert's matrices. */
static void add_products(const struct mlp *m, size_t i, double *d)
{
    size_t C = m->s.C, F = m->s.F, at = token_of(m, i) * C;

    if (!take(m, m->pool, i, m->layer))
        make_layers(m, i);
    if (!take(m, m->dpool, i, m->change))
        (void)make_change(m, i);
    make_inner(m);
    for (size_t c = 0; c < C; c++)
        m->sum[c] =
            ref_round(m->dy, ref_load(m->w, i) * ref_load(m->dy, at + c));
    for (size_t f = 0; f < F; f++) {
        double *sum = d + f * C;

        for (size_t c = 0; c < C; c++) {
            double x = ref_load(m->x, at + c);

            sum[c] += m->change[f] * x;
            sum[F * C + c] += m->change[F + f] * x;
            sum[2 * F * C + c] += m->sum[c] * m->inner[f];
        }
    }
}

/* The operands of gradients of weights, and of biases. */
static struct mlp gradient_of(const struct merak_kernel_call *call)
{
    return (struct mlp){
        .x = &call->operand[0],
        .w = &call->operand[1],
        .dy = &call->operand[3],
        .pool = &call->operand[4],
        .dpool = &call->operand[5],
        .gate = &call->operand[6], /* if they share the pool */
        .up = &call->operand[7],
        .down = &call->operand[8]};
}

REF_KERNEL(experts_dw)
{
    struct mlp m = gradient_of(call);
    enum merak_status rc = open_mlp(call, &m, err);
    size_t C = m.s.C, F = m.s.F, size = F * C;
    double *d = rc == MERAK_OK ? malloc((3 * size + 1) * sizeof(*d)) : NULL;

    if (rc == MERAK_OK && d == NULL)
        rc = merak_fail_nomem(err, 3 * size * sizeof(*d));
    for (size_t e = 0; e < m.s.E && rc == MERAK_OK; e++) {
        memset(d, 0, 3 * size * sizeof(*d));
        for (size_t at = m.first[e]; at < m.first[e + 1]; at++)
            add_products(&m, m.order[at], d);
        for (size_t k = 0; k < size; k++) {
            size_t f = k / C, c = k % C;

            ref_put(call, merak_call_out(call, 0), e * size + k, d[k]);
            ref_put(call, merak_call_out(call, 1), e * size + k, d[size + k]);
            ref_put(call, merak_call_out(call, 2), (e * C + c) * F + f,
                    d[2 * size + k]);
        }
    }
    free(d);
    close_mlp(&m);
    return rc;
}

REF_KERNEL(experts_db)
{
    struct mlp m = gradient_of(call);
    enum merak_status rc = open_mlp(call, &m, err);
    size_t N = 2 * m.s.F;

    for (size_t i = 0; rc == MERAK_OK && i < m.s.E * N; i++) {
        size_t e = i / N;
        double sum = 0;

        for (size_t at = m.first[e]; at < m.first[e + 1]; at++) {
            size_t row = m.order[at];

            if (!take(&m, m.dpool, row, m.change)) {
                make_layers(&m, row);
                (void)make_change(&m, row);
            }
            sum += m.change[i % N];
        }
        ref_put(call, merak_call_out(call, 0), i, sum);
    }
    close_mlp(&m);
    return rc;
}

/* --- what is added to experts' outputs -------------------------------------
 */

/* The element of [E, C] of row i of ids; false: it is of no expert. */
static bool finds_bias(const int32_t *ids, size_t i, size_t C, size_t *at_p)
{
    *at_p = (size_t)ids[i] * C;
    return ids[i] != MERAK_NO_EXPERT;
}

REF_KERNEL(experts_bias)
{
    const struct merak_operand *x = &call->operand[0], *w = &call->operand[1];
    const struct merak_operand *b = &call->operand[3];
    const int32_t *ids = call->operand[2].data;
    size_t K = merak_local_last(w), C = merak_local_last(b), at;
    enum merak_status rc = merak_experts_bias_check(call, err);

    for (size_t i = 0; i < merak_local_count(x) && rc == MERAK_OK; i++) {
        double sum = ref_load(x, i);

        for (size_t row = i / C * K; row < (i / C + 1) * K; row++) {
            if (finds_bias(ids, row, C, &at))
                sum += ref_load(w, row) * ref_load(b, at + i % C);
        }
        ref_store(merak_call_out(call, 0), i, sum);
    }
    return rc;
}

REF_KERNEL(experts_bias_dx)
{
    const struct merak_operand *dy = &call->operand[0], *b = &call->operand[1];
    const struct merak_operand *dw = merak_call_out(call, 0);
    const int32_t *ids = call->operand[2].data;
    size_t K = merak_local_last(dw), C = merak_local_last(b), at;
    enum merak_status rc = merak_experts_bias_check(call, err);

    for (size_t i = 0; i < merak_local_count(dw) && rc == MERAK_OK; i++)
        ref_store(dw, i,
                  finds_bias(ids, i, C, &at) ? dot(dy, i / K * C, b, at, 1, C)
                                             : 0);
    return rc;
}

REF_KERNEL(experts_bias_db)
{
    const struct merak_operand *dy = &call->operand[0], *w = &call->operand[1];
    const struct merak_operand *db = merak_call_out(call, 0);
    const int32_t *ids = call->operand[2].data;
    size_t K = merak_local_last(w), C = merak_local_last(dy), at;
    enum merak_status rc = merak_experts_bias_check(call, err);

    for (size_t i = 0; i < merak_local_count(db) && rc == MERAK_OK; i++) {
        double sum = 0;

        for (size_t row = 0; row < merak_local_count(w); row++) {
            if (finds_bias(ids, row, C, &at) && at == i / C * C)
                sum += ref_load(w, row) * ref_load(dy, row / K * C + i % C);
        }
        ref_put(call, db, i, sum);
    }
    return rc;
}
