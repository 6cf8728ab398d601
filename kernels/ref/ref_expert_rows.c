/* SPDX-License-Identifier: Apache-2.0 */
/* ref_expert_rows.c - rows that travel to their experts (reference) */
#include "config.h"

#include "kernels/expert_places.h"
#include "kernels/ref/ref.h"

#include "base/error.h"

#include <stdlib.h>

/* --- places ----------------------------------------------------------------
 */

struct placing {
    struct merak_places p;
    struct merak_place_map map;
    uint32_t *memory;
};

/* Free memory also where this fails. */
static enum merak_status open_places(const struct merak_kernel_call *call,
                                     struct placing *q, struct merak_error *err)
{
    size_t n;

    q->p = merak_places_view(call);
    n = merak_places_map(&q->p, NULL, NULL);
    q->memory = malloc((n + 1) * sizeof(*q->memory));
    if (q->memory == NULL)
        return merak_fail_nomem(err, n * sizeof(*q->memory));
    (void)merak_places_map(&q->p, q->memory, &q->map);
    return merak_places_find(&q->p, &q->map, err);
}

REF_KERNEL(experts_places)
{
    struct placing q;
    enum merak_status rc = open_places(call, &q, err);
    const struct merak_operand *place = merak_call_out(call, 0);
    int32_t *rest = merak_call_out(call, 1)->data;
    size_t R = q.p.R, rows = q.p.T * q.p.K;

    for (size_t i = 0; i < q.p.B * q.p.E && rc == MERAK_OK; i++) {
        ref_store(place, i * (R + 1), q.map.used[i]);
        for (size_t r = 0; r < R; r++) {
            uint32_t row = q.map.row_at[i * R + r];

            ref_store(place, i * (R + 1) + 1 + r,
                      row == MERAK_NO_PLACE ? 0
                                            : ref_load(&call->operand[0],
                                                       i / q.p.E * rows + row));
        }
    }
    for (size_t i = 0; i < q.p.B * rows && rc == MERAK_OK; i++)
        rest[i] =
            q.map.of_row[i] == MERAK_NO_PLACE ? q.p.ids[i] : MERAK_NO_EXPERT;
    free(q.memory);
    return rc;
}

REF_KERNEL(experts_places_dx)
{
    struct placing q;
    enum merak_status rc = open_places(call, &q, err);
    size_t rows = q.p.T * q.p.K, places = q.p.E * q.p.R;

    for (size_t i = 0; i < q.p.B * rows && rc == MERAK_OK; i++) {
        uint32_t at = q.map.of_row[i];

        ref_store(
            merak_call_out(call, 0), i,
            at == MERAK_NO_PLACE
                ? 0
                : ref_load(&call->operand[0],
                           merak_weight_at(i / rows * places + at, q.p.R)));
    }
    free(q.memory);
    return rc;
}

REF_KERNEL(experts_left)
{
    const int32_t *rest = call->operand[0].data;
    size_t n = merak_local_count(&call->operand[0]), left = 0;

    (void)err;
    for (size_t i = 0; i < n; i++)
        left += rest[i] != MERAK_NO_EXPERT;
    ref_store(merak_call_out(call, 0), 0, (double)left);
    return MERAK_OK;
}

REF_KERNEL(experts_capacity)
{
    struct placing q;
    enum merak_status rc = open_places(call, &q, err);

    if (rc == MERAK_OK)
        merak_places_keep(&q.p, &q.map, merak_call_out(call, 0)->data);
    free(q.memory);
    return rc;
}

REF_KERNEL(experts_dropped)
{
    (void)err;
    ref_store(merak_call_out(call, 0), 0, merak_rows_dropped(call));
    return MERAK_OK;
}

REF_KERNEL(experts_send)
{
    struct placing q;
    enum merak_status rc = open_places(call, &q, err);
    size_t places = q.p.E * q.p.R, C = q.p.C;

    for (size_t i = 0; i < q.p.B * places && rc == MERAK_OK; i++) {
        uint32_t row = q.map.row_at[i];
        size_t token = i / places * q.p.T + row / q.p.K;

        for (size_t c = 0; c < C; c++)
            ref_store(merak_call_out(call, 0), i * C + c,
                      row == MERAK_NO_PLACE
                          ? 0
                          : ref_load(&call->operand[0], token * C + c));
    }
    free(q.memory);
    return rc;
}

/* A channel of a token: its rows' sum, by ascending expert. */
static double join(const struct placing *q, const struct merak_operand *rows,
                   size_t token, size_t c)
{
    const struct merak_places *p = &q->p;
    size_t places = p->E * p->R;
    double sum = 0;

    for (size_t e = 0; e < p->E; e++) {
        for (size_t i = token * p->K; i < (token + 1) * p->K; i++) {
            if ((size_t)p->ids[i] == e && q->map.of_row[i] != MERAK_NO_PLACE)
                sum += ref_load(
                    rows,
                    (token / p->T * places + q->map.of_row[i]) * p->C + c);
        }
    }
    return sum;
}

REF_KERNEL(experts_join)
{
    struct placing q;
    enum merak_status rc = open_places(call, &q, err);
    size_t C = q.p.C;

    for (size_t i = 0; i < q.p.B * q.p.T * C && rc == MERAK_OK; i++) {
        double more = call->n_in > 2 ? ref_load(&call->operand[2], i) : 0;

        ref_store(merak_call_out(call, 0), i,
                  join(&q, &call->operand[0], i / C, i % C) + more);
    }
    free(q.memory);
    return rc;
}

/* --- experts ---------------------------------------------------------------
 */

typedef enum merak_status (*call_fn)(const struct merak_kernel_call *call,
                                     struct merak_error *err);

/* Of f32, or of doubles. */
static void *numbers(const struct merak_operand *like, size_t n)
{
    return calloc(n + 1, merak_dtype_bytes(like->dtype));
}

static void put_dplace(const struct merak_expert_calls *calls,
                       const struct merak_operand *dw)
{
    for (size_t i = 0; i < calls->rows; i++) {
        ref_store(calls->dplace, merak_weight_at(i, calls->R), ref_load(dw, i));
        ref_store(calls->dplace, merak_used_at(i, calls->R), 0);
    }
}

static enum merak_status run_calls(const struct merak_kernel_call *call,
                                   call_fn fn, struct merak_error *err)
{
    struct merak_expert_calls calls;
    struct merak_operand *w, *ids, dw = {.data = NULL};
    enum merak_status rc = MERAK_OK;

    merak_expert_split(call, &calls);
    w = &calls.placed.operand[1];
    ids = &calls.placed.operand[2];
    w->data = numbers(w, calls.rows);
    ids->data = numbers(ids, calls.rows);
    if (calls.dplace != NULL) {
        dw = calls.placed.operand[calls.dw];
        dw.data = calls.placed.operand[calls.dw].data =
            numbers(&dw, calls.rows);
    }
    if (w->data == NULL || ids->data == NULL ||
        (calls.dplace != NULL && dw.data == NULL))
        rc = merak_fail_nomem(err, calls.rows * sizeof(double));
    for (size_t i = 0; i < calls.rows && rc == MERAK_OK; i++) {
        double used = ref_load(calls.place, merak_used_at(i, calls.R));

        ref_store(w, i, ref_load(calls.place, merak_weight_at(i, calls.R)));
        ((int32_t *)ids->data)[i] =
            merak_expert_at(i, calls.E, calls.R, calls.from, used);
    }
    if (rc == MERAK_OK)
        rc = fn(&calls.placed, err);
    if (rc == MERAK_OK && calls.dplace != NULL)
        put_dplace(&calls, &dw);
    if (rc == MERAK_OK)
        rc = fn(&calls.rest, err);
    free(w->data);
    free(ids->data);
    free(dw.data);
    return rc;
}

REF_KERNEL(experts_rows)
{
    return run_calls(call, merak_ref_experts, err);
}

REF_KERNEL(experts_rows_dx)
{
    return run_calls(call, merak_ref_experts_dx, err);
}

REF_KERNEL(experts_rows_dw)
{
    return run_calls(call, merak_ref_experts_dw, err);
}

REF_KERNEL(experts_rows_db)
{
    return run_calls(call, merak_ref_experts_db, err);
}
