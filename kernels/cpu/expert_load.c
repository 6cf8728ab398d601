/* SPDX-License-Identifier: Apache-2.0 */
/* expert_load.c - how evenly experts are loaded, and what that costs; the
 * equations are in ref/ref_balance.c */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/scores.h"

#define GRAIN 16 /* tokens per item */

struct balancing {
    struct merak_balance b;
    bool bf16;
    const float *load;
    void *out;
};

/* A token's shares, to s; returns the logarithm of its sum of exponentials, for
 * which a router of sigmoids uses `more`. */
static float find_shares(const struct balancing *q, size_t token, float *s,
                         float *more)
{
    size_t E = q->b.E, at = token * E;
    const void *z = q->b.z->data;
    float scale;

    if (!q->b.sigmoid)
        return find_softmax(z, q->bf16, at, E, s);
    scale = 1.0f / find_sigmoids(z, q->bf16, at, E, s);
    for (size_t e = 0; e < E; e += LANES)
        vstore_f32(s + e, vload_f32(s + e) * scale);
    return find_softmax(z, q->bf16, at, E, more);
}

/* One sequence. */
static void load_item(void *arg, size_t item, int thread)
{
    const struct balancing *q = arg;
    size_t E = q->b.E, T = q->b.T, K = q->b.K, room = score_room(E);
    float *s = merak_pool_workspace(thread), *sum = s + room;
    float *rows = (float *)q->out + item * q->b.L;
    const int32_t *id = (const int32_t *)q->b.ids->data + item * T * K;
    double squares = 0;

    memset(sum, 0, room * sizeof(*sum));
    memset(rows, 0, E * sizeof(*rows));
    for (size_t t = 0; t < T; t++) {
        double x = (double)find_shares(q, item * T + t, s, sum + room);

        squares += x * x;
        for (size_t e = 0; e < E; e += LANES)
            vstore_f32(sum + e, vload_f32(sum + e) + vload_f32(s + e));
    }
    for (size_t i = 0; i < T * K; i++)
        rows[id[i]]++;
    memcpy(rows + E, sum, E * sizeof(*sum));
    rows[2 * E] = (float)squares;
}

/* Three arrays of floats. */
static enum merak_status check(const struct merak_kernel_call *call,
                               const struct balancing *q,
                               struct merak_error *err)
{
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc == MERAK_OK && score_room(q->b.E) * 12 > MERAK_POOL_WORKSPACE)
        rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                        "%zu experts, the cpu backend has room for %zu", q->b.E,
                        MERAK_POOL_WORKSPACE / 12 - LANES);
    return rc;
}

CPU_KERNEL(route_load)
{
    struct balancing q = {.b = merak_load_view(call),
                          .bf16 = call->operand[0].dtype == MERAK_BF16,
                          .out = merak_call_out(call, 0)->data};
    enum merak_status rc = check(call, &q, err);

    if (rc == MERAK_OK)
        rc = merak_check_ids(q.b.ids, q.b.E, "expert", err);
    if (rc == MERAK_OK)
        merak_pool_run(load_item, &q, q.b.B);
    return rc;
}

CPU_KERNEL(balance)
{
    struct merak_balance b = merak_balance_view(call);
    const float *load = b.load->data;
    double *tally = merak_call_out(call, 0)->data;
    enum merak_status rc = cpu_check_dtype(call, 0, true, err);

    if (rc != MERAK_OK)
        return rc;
    memset(tally, 0, (2 + b.E) * sizeof(*tally));
    for (size_t s = 0; s < b.B; s++, load += b.L) {
        for (size_t e = 0; e < b.E; e++) {
            tally[0] += (double)load[e] * (double)load[b.E + e];
            tally[2 + e] += (double)load[e];
        }
        tally[1] += (double)load[2 * b.E];
    }
    tally[0] *= (double)b.E / (b.all_t * b.all_t * b.all_b);
    tally[1] /= b.all_t * b.all_b;
    return MERAK_OK;
}

/* The gradient of a token's logits. */
static void put_token(const struct balancing *q, size_t token, float *s,
                      float *more)
{
    size_t E = q->b.E;
    const float *rows = q->load + token / q->b.T * q->b.L;
    float log_sum = find_shares(q, token, s, more), mean, aux, square;
    const float *soft = q->b.sigmoid ? more : s;
    vf sum = vset(0);

    for (size_t e = 0; e < E; e += LANES)
        sum +=
            vkeep(vload_f32(s + e), E - e, 0) * vload_n(rows, e, E - e, false);
    mean = vsum(sum);
    aux = (float)q->b.aux;
    square = (float)q->b.square * log_sum;
    for (size_t e = 0; e < E; e += LANES) {
        vf p = vload_f32(s + e);
        vf d = (vload_n(rows, e, E - e, false) - mean) * p * aux;

        if (q->b.sigmoid)
            d *= 1.0f -
                 sigmoid(vload_n(q->b.z->data, token * E + e, E - e, q->bf16));
        vstore_n(q->out, token * E + e, E - e, d + vload_f32(soft + e) * square,
                 q->bf16);
    }
}

static void dx_item(void *arg, size_t item, int thread)
{
    const struct balancing *q = arg;
    size_t n = q->b.B * q->b.T, end = cpu_range_end(item, GRAIN, n);
    float *s = merak_pool_workspace(thread);

    for (size_t i = item * GRAIN; i < end; i++)
        put_token(q, i, s, s + score_room(q->b.E));
}

CPU_KERNEL(balance_dx)
{
    struct balancing q = {.b = merak_balance_dx_view(call),
                          .bf16 = call->operand[0].dtype == MERAK_BF16,
                          .load = call->operand[1].data,
                          .out = merak_call_out(call, 0)->data};
    enum merak_status rc = check(call, &q, err);

    if (rc == MERAK_OK)
        merak_pool_run(dx_item, &q, cpu_range_count(q.b.B * q.b.T, GRAIN));
    return rc;
}

CPU_KERNEL(experts_overflow)
{
    enum merak_status rc = cpu_check_dtype(call, 1, false, err);

    if (rc == MERAK_OK)
        *(double *)merak_call_out(call, 0)->data = merak_overflow_count(call);
    return rc;
}

CPU_KERNEL(balance_count)
{
    struct merak_balance b = merak_balance_view(call);
    const float *load = b.load->data;
    float *out = merak_call_out(call, 0)->data;
    enum merak_status rc = cpu_check_dtype(call, 0, true, err);
    double by_rows, by_tokens;

    if (rc != MERAK_OK)
        return rc;
    merak_balance_whole(&b, &by_rows, &by_tokens);
    for (size_t e = 0; e < b.E; e++) {
        double rows = 0;

        for (size_t s = 0; s < b.B; s++)
            rows += (double)load[s * b.L + e];
        rows = by_rows * rows - by_tokens * (double)b.B;
        out[e] = (call->accumulate ? out[e] : 0) + (float)rows;
    }
    return MERAK_OK;
}
