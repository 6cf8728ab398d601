/* SPDX-License-Identifier: Apache-2.0 */
/* experts_dx.c - gradients of gated MLPs of chosen rows; the equations are in
 * ref/ref_experts.c
 */
#include "config.h"

#include "kernels/cpu/experts_chunk.h"

static void layer_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;
    size_t end = cpu_range_end(item, GRAIN, c->rows), F = c->s.F;

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i++) {
        void *to = at(c, c->room.layer, i * 2 * F);

        for (size_t f = 0; f < F && i >= c->placed; f += LANES) {
            vf g = vload_n(c->room.gate + i * F, f, F - f, false);
            vf u = vload_n(c->room.up + i * F, f, F - f, false);

            vstore_n(to, f, F - f, with_bias(c, g, 0, f), c->bf16);
            vstore_n(to, F + f, F - f, with_bias(c, u, 1, f), c->bf16);
        }
    }
}

/* Make the layers of rows that have no place, in products of the same size as
 * in the forward, so that they have the same bits. */
static enum merak_status make_layers(struct chunk *c, struct merak_error *err)
{
    enum merak_status rc;

    if (c->placed == c->rows)
        return MERAK_OK;
    rc = first_products(c, err);
    if (rc == MERAK_OK)
        merak_pool_run(layer_item, c, cpu_range_count(c->rows, GRAIN));
    return rc;
}

/* The gradient of what the two layers make, to `up`. */
static enum merak_status back_product(struct chunk *c, struct merak_error *err)
{
    gather(c, c->dy);
    return multiply(c, c->rows, c->s.F, c->s.C, c->room.x, matrix(c, 2), false,
                    false, c->room.up, err);
}

/* The gradients of a row's gates and of what they are multiplied by, of that of
 * what they make. */
INLINE void slopes(const struct gates *by, vf g, vf u, vf d, vf *dg, vf *du)
{
    vf gate = bounded_gate(by, g), up = bounded_up(by, u);
    vf s = sigmoid(by->slope * gate);

    *dg = d * up * s * (1.0f + by->slope * gate * (1.0f - s));
    *du = d * gate * s;
    *dg = vselect(g > by->limit, vset(0), *dg);
    *du = vselect((u > by->limit) | (u < -by->limit), vset(0), *du);
}

/* From that, a row's gradients of the layers; returns that of its weight. */
INLINE float change_row(const struct chunk *c, size_t i, bool bf16)
{
    const void *layer = layer_of(c, c->pool, c->room.layer, i);
    void *change = layer_of(c, c->dpool, c->room.change, i);
    const float *w = c->call->operand[1].data;
    const struct gates by = gates_of(c);
    size_t F = c->s.F;
    vf sum = vset(0), dg, du;

    for (size_t f = 0; f < F; f += LANES) {
        size_t left = F - f;
        vf g = vload_n(layer, f, left, bf16), s = sigmoid(g);
        vf u = vload_n(layer, F + f, left, bf16);
        vf d = vload_n(c->room.up + i * F, f, left, false);

        sum += d * rounded(by.plain ? g * s * u : gated(&by, g, u), bf16);
        d *= w[c->row[i]];
        dg = d * u * s * (1.0f + g * (1.0f - s));
        du = d * g * s;
        if (!by.plain)
            slopes(&by, g, u, d, &dg, &du);
        vstore_n(change, f, left, dg, bf16);
        vstore_n(change, F + f, left, du, bf16);
    }
    return vsum(sum);
}

/* A row's gradients of the layers, as rows of two matrices. */
static void split_change(const struct chunk *c, size_t i, void *gate, void *up)
{
    size_t F = c->s.F, bytes = F * (c->bf16 ? 2 : 4);
    const void *change = layer_of(c, c->dpool, c->room.change, i);

    memcpy(at(c, gate, i * F), change, bytes);
    memcpy(at(c, up, i * F), at(c, change, F), bytes);
}

static void part_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;
    size_t end = cpu_range_end(item, GRAIN, c->rows);
    float *dw = merak_call_out(c->call, 1)->data;

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i++) {
        dw[c->row[i]] =
            c->bf16 ? change_row(c, i, true) : change_row(c, i, false);
        split_change(c, i, c->room.gate, c->room.h);
    }
}

static enum merak_status backward(struct chunk *c, struct merak_error *err)
{
    size_t C = c->s.C, F = c->s.F;
    struct room *r = &c->room;
    enum merak_status rc = make_layers(c, err);

    if (rc == MERAK_OK)
        rc = back_product(c, err);
    if (rc != MERAK_OK)
        return rc;
    merak_pool_run(part_item, c, cpu_range_count(c->rows, GRAIN));
    rc = multiply(c, c->rows, C, F, r->gate, matrix(c, 0), false, false, r->out,
                  err);
    if (rc == MERAK_OK)
        rc = multiply(c, c->rows, C, F, r->h, matrix(c, 1), false, true, r->out,
                      err);
    if (rc == MERAK_OK)
        merak_pool_run(add_plain_item, c, cpu_range_count(C, SLAB));
    return rc;
}

CPU_KERNEL(experts_dx)
{
    struct chunk c = {.dy = call->operand[0].data,
                      .pool = call->operand[6].data,
                      .x = call->operand[7].data,
                      .dpool = merak_call_out(call, 2)->data};
    const struct merak_operand *dw = merak_call_out(call, 1);

    memset(dw->data, 0, merak_local_bytes(dw)); /* of others' experts */
    return each_sum(call, &c, backward, err);
}

/* What the two layers make, and their gradients, as rows of matrices; gradients
 * of outputs times weights. */
INLINE void unfold_rows(const struct chunk *c, size_t item, bool bf16)
{
    size_t end = cpu_range_end(item, GRAIN, c->rows), F = c->s.F, C = c->s.C;
    const float *w = c->call->operand[1].data;
    const struct gates by = gates_of(c);

    for (size_t i = item * GRAIN; i < end; i++) {
        size_t row = c->row[i], token = row / c->s.K;
        const void *layer = layer_of(c, c->pool, c->room.layer, i);

        for (size_t f = 0; f < F; f += LANES) {
            vf g = vload_n(layer, f, F - f, bf16);
            vf u = vload_n(layer, F + f, F - f, bf16);

            vstore_n(c->room.h, i * F + f, F - f, gated(&by, g, u), bf16);
        }
        for (size_t k = 0; k < C; k += LANES)
            vstore_n(c->room.out, i * C + k, C - k,
                     w[row] * vload_n(c->dy, token * C + k, C - k, bf16), bf16);
        split_change(c, i, c->room.gate, c->room.up);
    }
}

static void unfold_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;

    (void)thread;
    if (c->bf16)
        unfold_rows(c, item, true);
    else
        unfold_rows(c, item, false);
}

static void change_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;
    size_t end = cpu_range_end(item, GRAIN, c->rows);

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i++) {
        if (i >= c->placed && c->bf16)
            (void)change_row(c, i, true);
        else if (i >= c->placed)
            (void)change_row(c, i, false);
    }
}

/* Make the gradients of layers of rows that have no place, again. */
static enum merak_status make_changes(struct chunk *c, struct merak_error *err)
{
    enum merak_status rc;

    if (c->placed == c->rows)
        return MERAK_OK;
    rc = back_product(c, err);
    if (rc == MERAK_OK)
        merak_pool_run(change_item, c, cpu_range_count(c->rows, GRAIN));
    return rc;
}

static enum merak_status weights(struct chunk *c, struct merak_error *err)
{
    size_t C = c->s.C, F = c->s.F, to = c->expert * F * C;
    struct room *r = &c->room;
    float *d[3];
    enum merak_status rc = make_layers(c, err);

    if (rc == MERAK_OK)
        rc = make_changes(c, err);
    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < 3; i++)
        d[i] = (float *)merak_call_out(c->call, i)->data + to;
    gather(c, c->x);
    merak_pool_run(unfold_item, c, cpu_range_count(c->rows, GRAIN));
    rc = add_outer(c, F, C, r->gate, r->x, d[0], err);
    if (rc == MERAK_OK)
        rc = add_outer(c, F, C, r->up, r->x, d[1], err);
    if (rc == MERAK_OK)
        rc = add_outer(c, C, F, r->out, r->h, d[2], err);
    return rc;
}

CPU_KERNEL(experts_dw)
{
    struct chunk c = {.x = call->operand[0].data,
                      .dy = call->operand[3].data,
                      .pool = call->operand[4].data,
                      .dpool = call->operand[5].data,
                      .matrices = &call->operand[6]};

    for (int i = 0; i < 3 && !call->accumulate; i++)
        memset(merak_call_out(call, i)->data, 0,
               merak_local_bytes(merak_call_out(call, i)));
    return each_chunk(call, &c, weights, err);
}

/* --- gradients of biases ---------------------------------------------------
 */

#define BIAS_SLAB ((size_t)64) /* numbers of an expert's 2 F per item */

/* Add the gradients of layers of a chunk's rows. */
static void bias_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;
    size_t N = 2 * c->s.F, end = cpu_range_end(item, BIAS_SLAB, N);
    float *to = (float *)merak_call_out(c->call, 0)->data + c->expert * N;

    (void)thread;
    for (size_t i = 0; i < c->rows; i++) {
        const void *change = layer_of(c, c->dpool, c->room.change, i);

        for (size_t f = item * BIAS_SLAB; f < end; f += LANES)
            vstore_n(to, f, end - f,
                     vload_n(to, f, end - f, false) +
                         vload_n(change, f, end - f, c->bf16),
                     false);
    }
}

static enum merak_status biases(struct chunk *c, struct merak_error *err)
{
    enum merak_status rc = make_layers(c, err);

    if (rc == MERAK_OK)
        rc = make_changes(c, err);
    if (rc == MERAK_OK)
        merak_pool_run(bias_item, c, cpu_range_count(2 * c->s.F, BIAS_SLAB));
    return rc;
}

CPU_KERNEL(experts_db)
{
    struct chunk c = {.x = call->operand[0].data,
                      .dy = call->operand[3].data,
                      .pool = call->operand[4].data,
                      .dpool = call->operand[5].data,
                      .matrices = &call->operand[6]};
    const struct merak_operand *db = merak_call_out(call, 0);

    if (!call->accumulate)
        memset(db->data, 0, merak_local_bytes(db));
    return each_chunk(call, &c, biases, err);
}

EXPERTS_SCRATCH(experts_dx)
EXPERTS_SCRATCH(experts_dw)
EXPERTS_SCRATCH(experts_db)
