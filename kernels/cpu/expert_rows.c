/* SPDX-License-Identifier: Apache-2.0 */
/* expert_rows.c - rows that travel to their experts; the equations are in
 * ref/ref_expert_rows.c
 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"
#include "kernels/expert_places.h"

#include "base/size.h"

#include <string.h>

#define GRAIN ((size_t)8)     /* rows of channels per item */
#define NUMBERS ((size_t)512) /* numbers per item */

/* --- places ----------------------------------------------------------------
 */

struct placing {
    struct merak_places p;
    struct merak_place_map map;
    bool bf16;
    const void *from, *more; /* more: or NULL */
    void *to;
    int32_t *rest;
};

static size_t map_bytes(const struct merak_kernel_call *call)
{
    const struct merak_places p = merak_places_view(call);

    return merak_places_map(&p, NULL, NULL) * sizeof(uint32_t);
}

#define PLACES_SCRATCH(op)      \
    CPU_SCRATCH(op)             \
    {                           \
        return map_bytes(call); \
    }
PLACES_SCRATCH(experts_places)
PLACES_SCRATCH(experts_places_dx)
PLACES_SCRATCH(experts_send)
PLACES_SCRATCH(experts_join)
PLACES_SCRATCH(experts_capacity)

static enum merak_status open_places(const struct merak_kernel_call *call,
                                     struct placing *q, struct merak_error *err)
{
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    q->p = merak_places_view(call);
    q->bf16 = call->operand[0].dtype == MERAK_BF16;
    q->from = call->operand[0].data;
    q->more = call->n_in > 2 ? call->operand[2].data : NULL;
    q->to = merak_call_out(call, 0)->data;
    (void)merak_places_map(&q->p, call->scratch, &q->map);
    return merak_places_find(&q->p, &q->map, err);
}

static void weights_item(void *arg, size_t item, int thread)
{
    const struct placing *q = arg;
    const float *w = q->from;
    size_t R = q->p.R, rows = q->p.T * q->p.K;
    float *place = (float *)q->to + item * (R + 1);

    (void)thread;
    place[0] = (float)q->map.used[item];
    for (size_t r = 0; r < R; r++) {
        uint32_t row = q->map.row_at[item * R + r];

        place[1 + r] =
            row == MERAK_NO_PLACE ? 0 : w[item / q->p.E * rows + row];
    }
}

CPU_KERNEL(experts_places)
{
    struct placing q;
    enum merak_status rc = open_places(call, &q, err);
    int32_t *rest = merak_call_out(call, 1)->data;

    if (rc != MERAK_OK)
        return rc;
    merak_pool_run(weights_item, &q, q.p.B * q.p.E);
    for (size_t i = 0; i < q.p.B * q.p.T * q.p.K; i++)
        rest[i] =
            q.map.of_row[i] == MERAK_NO_PLACE ? q.p.ids[i] : MERAK_NO_EXPERT;
    return MERAK_OK;
}

CPU_KERNEL(experts_places_dx)
{
    struct placing q;
    enum merak_status rc = open_places(call, &q, err);
    const float *dplace = call->operand[0].data;
    float *dw = merak_call_out(call, 0)->data;
    size_t rows, places;

    if (rc != MERAK_OK)
        return rc;
    rows = q.p.T * q.p.K;
    places = q.p.E * q.p.R;
    for (size_t i = 0; i < q.p.B * rows; i++) {
        uint32_t at = q.map.of_row[i];

        dw[i] = at == MERAK_NO_PLACE
                    ? 0
                    : dplace[merak_weight_at(i / rows * places + at, q.p.R)];
    }
    return MERAK_OK;
}

CPU_KERNEL(experts_left)
{
    const int32_t *rest = call->operand[0].data;
    size_t n = merak_local_count(&call->operand[0]), left = 0;

    (void)err;
    for (size_t i = 0; i < n; i++)
        left += rest[i] != MERAK_NO_EXPERT;
    *(double *)merak_call_out(call, 0)->data = (double)left;
    return MERAK_OK;
}

CPU_KERNEL(experts_capacity)
{
    struct merak_places p = merak_places_view(call);
    struct merak_place_map map;
    enum merak_status rc;

    (void)merak_places_map(&p, call->scratch, &map);
    rc = merak_places_find(&p, &map, err);
    if (rc == MERAK_OK)
        merak_places_keep(&p, &map, merak_call_out(call, 0)->data);
    return rc;
}

CPU_KERNEL(experts_dropped)
{
    (void)err;
    *(double *)merak_call_out(call, 0)->data = merak_rows_dropped(call);
    return MERAK_OK;
}

static void send_item(void *arg, size_t item, int thread)
{
    const struct placing *q = arg;
    size_t places = q->p.E * q->p.R, bytes = q->p.C * (q->bf16 ? 2 : 4);
    size_t end = cpu_range_end(item, GRAIN, q->p.B * places);

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i++) {
        uint32_t row = q->map.row_at[i];
        size_t token = i / places * q->p.T + row / q->p.K;

        if (row == MERAK_NO_PLACE)
            memset((char *)q->to + i * bytes, 0, bytes);
        else
            memcpy((char *)q->to + i * bytes,
                   (const char *)q->from + token * bytes, bytes);
    }
}

CPU_KERNEL(experts_send)
{
    struct placing q;
    enum merak_status rc = open_places(call, &q, err);

    if (rc == MERAK_OK)
        merak_pool_run(send_item, &q,
                       cpu_range_count(q.p.B * q.p.E * q.p.R, GRAIN));
    return rc;
}

/* Of a token's rows the one whose expert comes next after (expert, k) `last`;
 * K: there is none. */
static size_t next_row(const struct placing *q, size_t token, int64_t *last)
{
    size_t K = q->p.K, found = K;
    int64_t best = INT64_MAX;

    for (size_t k = 0; k < K; k++) {
        size_t i = token * K + k;
        int64_t key = (int64_t)q->p.ids[i] * (int64_t)K + (int64_t)k;

        if (q->map.of_row[i] != MERAK_NO_PLACE && key > *last && key < best) {
            best = key;
            found = k;
        }
    }
    *last = best;
    return found;
}

#define TURN 64       /* rows of a token that are added before the next */
#define CHANNELS 1024 /* whose sums wait for them */

/* Where the next rows of a token begin, of at most TURN. */
static size_t next_rows(const struct placing *q, size_t token, int64_t *last,
                        size_t *from)
{
    size_t at = token / q->p.T * q->p.E * q->p.R, n = 0;

    while (n < TURN) {
        size_t k = next_row(q, token, last);

        if (k == q->p.K)
            break;
        from[n++] = (at + q->map.of_row[token * q->p.K + k]) * q->p.C;
    }
    return n;
}

/* Channels from .. to - 1 of a token. */
INLINE void join_channels(const struct placing *q, size_t token, size_t from,
                          size_t to, bool bf16)
{
    float sums[CHANNELS + LANES];
    size_t row[TURN], n, C = q->p.C;
    bool first = true;
    int64_t last = -1;

    do {
        n = next_rows(q, token, &last, row);
        for (size_t c = from; c < to; c += LANES) {
            vf sum = first ? vset(0) : vload_f32(sums + (c - from));

            for (size_t i = 0; i < n; i++)
                sum += vload_n(q->from, row[i] + c, to - c, bf16);
            if (n == TURN) {
                vstore_f32(sums + (c - from), sum);
                continue;
            }
            if (q->more != NULL)
                sum += vload_n(q->more, token * C + c, to - c, bf16);
            vstore_n(q->to, token * C + c, to - c, sum, bf16);
        }
        first = false;
    } while (n == TURN);
}

INLINE void join_token(const struct placing *q, size_t token, bool bf16)
{
    for (size_t c = 0; c < q->p.C; c += CHANNELS)
        join_channels(q, token, c,
                      c + CHANNELS < q->p.C ? c + CHANNELS : q->p.C, bf16);
}

static void join_item(void *arg, size_t item, int thread)
{
    const struct placing *q = arg;
    size_t end = cpu_range_end(item, GRAIN, q->p.B * q->p.T);

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i++) {
        if (q->bf16)
            join_token(q, i, true);
        else
            join_token(q, i, false);
    }
}

CPU_KERNEL(experts_join)
{
    struct placing q;
    enum merak_status rc = open_places(call, &q, err);

    if (rc == MERAK_OK)
        merak_pool_run(join_item, &q, cpu_range_count(q.p.B * q.p.T, GRAIN));
    return rc;
}

/* --- experts ---------------------------------------------------------------
 */

/* Scratch of a call, from its beginning. */
struct room {
    float *w, *dw; /* of each place */
    int32_t *ids;
    size_t bytes; /* before that of the two calls */
};

/* With `base` NULL only its bytes count. */
static struct room lay_out(const struct merak_expert_calls *calls, char *base)
{
    size_t one = merak_size_align(calls->rows * sizeof(float), 64);
    struct room room = {.bytes = 3 * one};

    if (base == NULL)
        return room;
    room.w = (float *)(void *)base;
    room.dw = (float *)(void *)(base + one);
    room.ids = (int32_t *)(void *)(base + 2 * one);
    return room;
}

typedef size_t (*scratch_fn)(const struct merak_kernel_call *call);

static size_t scratch_of(const struct merak_kernel_call *call, scratch_fn fn)
{
    struct merak_expert_calls calls;
    size_t placed, rest;

    merak_expert_split(call, &calls);
    placed = fn(&calls.placed);
    rest = fn(&calls.rest);
    return lay_out(&calls, NULL).bytes + (placed > rest ? placed : rest);
}

static void unpack_item(void *arg, size_t item, int thread)
{
    const struct merak_expert_calls *c = arg;
    size_t end = cpu_range_end(item, NUMBERS, c->rows);
    const float *place = c->place->data;
    float *w = c->placed.operand[1].data;
    int32_t *ids = c->placed.operand[2].data;

    (void)thread;
    for (size_t i = item * NUMBERS; i < end; i++) {
        w[i] = place[merak_weight_at(i, c->R)];
        ids[i] = merak_expert_at(i, c->E, c->R, c->from,
                                 (double)place[merak_used_at(i, c->R)]);
    }
}

static void pack_item(void *arg, size_t item, int thread)
{
    const struct merak_expert_calls *c = arg;
    const float *dw = c->placed.operand[c->dw].data;
    float *dplace = (float *)c->dplace->data + item * (c->R + 1);

    (void)thread;
    dplace[0] = 0;
    memcpy(dplace + 1, dw + item * c->R, c->R * sizeof(*dw));
}

typedef enum merak_status (*call_fn)(const struct merak_kernel_call *call,
                                     struct merak_error *err);

static enum merak_status run_calls(const struct merak_kernel_call *call,
                                   call_fn fn, struct merak_error *err)
{
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);
    struct merak_expert_calls calls;
    struct room room;

    if (rc != MERAK_OK)
        return rc;
    merak_expert_split(call, &calls);
    room = lay_out(&calls, call->scratch);
    calls.placed.operand[1].data = room.w;
    calls.placed.operand[2].data = room.ids;
    if (calls.dplace != NULL)
        calls.placed.operand[calls.dw].data = room.dw;
    calls.placed.scratch = calls.rest.scratch =
        (char *)call->scratch + room.bytes;
    merak_pool_run(unpack_item, &calls, cpu_range_count(calls.rows, NUMBERS));
    rc = fn(&calls.placed, err);
    if (rc != MERAK_OK)
        return rc;
    if (calls.dplace != NULL)
        merak_pool_run(pack_item, &calls, calls.rows / calls.R);
    return fn(&calls.rest, err);
}

#define ROWS(op, of)                                     \
    CPU_SCRATCH(op)                                      \
    {                                                    \
        return scratch_of(call, CPU_NAME(of##_scratch)); \
    }                                                    \
    CPU_KERNEL(op)                                       \
    {                                                    \
        return run_calls(call, CPU_NAME(of), err);       \
    }
ROWS(experts_rows, experts)
ROWS(experts_rows_dx, experts_dx)
ROWS(experts_rows_dw, experts_dw)
ROWS(experts_rows_db, experts_db)
