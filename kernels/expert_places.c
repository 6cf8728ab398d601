/* SPDX-License-Identifier: Apache-2.0 */
/* expert_places.c - places of rows that travel to their experts */
#include "config.h"

#include "kernels/expert_places.h"

#include "base/error.h"

#include <string.h>

struct merak_places merak_places_view(const struct merak_kernel_call *call)
{
    bool alone = call->n_in == 1; /* experts_capacity */
    const struct merak_operand *ids = &call->operand[alone ? 0 : 1];
    const struct merak_operand *out = merak_call_out(call, 0);
    bool first = call->n_out == 2; /* experts_places */
    bool to_places = out->local.ndim == 4 || first;
    const struct merak_operand *at = to_places ? out : &call->operand[0];
    size_t P = at->local.dim[2];

    if (alone)
        return (struct merak_places){.B = ids->local.dim[0],
                                     .T = ids->local.dim[1],
                                     .K = ids->local.dim[2],
                                     .E = (size_t)call->attrs->i[1],
                                     .R = (size_t)call->attrs->i[0],
                                     .ids = ids->data};
    return (struct merak_places){.B = ids->local.dim[0],
                                 .T = ids->local.dim[1],
                                 .K = ids->local.dim[2],
                                 .E = at->local.dim[1],
                                 .R = at->local.ndim == 4 ? P : P - 1,
                                 .C =
                                     at->local.ndim == 4 ? at->local.dim[3] : 0,
                                 .ids = ids->data};
}

size_t merak_places_map(const struct merak_places *p, uint32_t *memory,
                        struct merak_place_map *map)
{
    size_t rows = p->B * p->T * p->K, places = p->B * p->E * p->R;

    if (memory != NULL)
        *map = (struct merak_place_map){memory, memory + rows,
                                        memory + rows + places};
    return rows + places + p->B * p->E;
}

enum merak_status merak_places_find(const struct merak_places *p,
                                    const struct merak_place_map *map,
                                    struct merak_error *err)
{
    size_t rows = p->T * p->K;

    memset(map->row_at, 0xff, p->B * p->E * p->R * sizeof(*map->row_at));
    memset(map->used, 0, p->B * p->E * sizeof(*map->used));
    for (size_t i = 0; i < p->B * rows; i++) {
        size_t b = i / rows, e = (size_t)p->ids[i];
        uint32_t *used = &map->used[b * p->E + e];

        map->of_row[i] = MERAK_NO_PLACE;
        if (p->ids[i] == MERAK_NO_EXPERT)
            continue;
        if (e >= p->E)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "expert %d of token %zu, expected 0 to %zu",
                              p->ids[i], i / p->K, p->E - 1);
        if (*used == p->R)
            continue;
        map->of_row[i] = (uint32_t)(e * p->R + *used);
        map->row_at[b * p->E * p->R + map->of_row[i]] = (uint32_t)(i % rows);
        ++*used;
    }
    return MERAK_OK;
}

void merak_places_keep(const struct merak_places *p,
                       const struct merak_place_map *map, int32_t *kept)
{
    for (size_t i = 0; i < p->B * p->T * p->K; i++)
        kept[i] =
            map->of_row[i] == MERAK_NO_PLACE ? MERAK_NO_EXPERT : p->ids[i];
}

double merak_rows_dropped(const struct merak_kernel_call *call)
{
    const int32_t *kept = call->operand[0].data;
    size_t n = merak_local_count(&call->operand[0]), dropped = 0;

    for (size_t i = 0; i < n; i++)
        dropped += kept[i] == MERAK_NO_EXPERT;
    return (double)dropped;
}

/* --- experts in two calls --------------------------------------------------
 */

/* Which operands of a call those of the two are, and where their pools are;
 * PLACED: ids or weights made from places; NONE: a pool of no rows. */
enum { PLACED = -1, NONE = -2 };
#define OUT(i) (100 + (i)) /* output i of the call */
#define END (-3)

/* Operands of the two calls, inputs before outputs. */
struct split {
    int n_in, n_out; /* without a bias, which comes behind all inputs */
    int place, dplace;
    int placed_in[10], placed_out[4], rest_in[10], rest_out[4];
};

static const struct split forward = {9,
                                     3,
                                     1,
                                     -1,
                                     {0, PLACED, PLACED, 2, 3, 4, END},
                                     {OUT(0), OUT(2), END},
                                     {5, 6, 7, 2, 3, 4, END},
                                     {OUT(1), NONE, END}};
static const struct split back = {11,
                                  5,
                                  1,
                                  OUT(1),
                                  {0, PLACED, PLACED, 2, 3, 4, 5, END},
                                  {OUT(0), PLACED, OUT(4), END},
                                  {6, 7, 8, 2, 3, 4, NONE, 9, END},
                                  {OUT(2), OUT(3), NONE, END}};
static const struct split weights = {13,
                                     3,
                                     1,
                                     -1,
                                     {0, PLACED, PLACED, 2, 3, 4, END},
                                     {OUT(0), OUT(1), OUT(2), END},
                                     {5, 6, 7, 8, NONE, NONE, 9, 10, 11, END},
                                     {OUT(0), OUT(1), OUT(2), END}};

static void set_dims(struct merak_operand *op, int ndim, const size_t *dim)
{
    op->local.ndim = ndim;
    memcpy(op->local.dim, dim, (size_t)ndim * sizeof(*dim));
    op->full = op->local;
    memset(op->lo, 0, sizeof(op->lo));
}

/* Rows at their places as tokens: [B, E, R, ..] is [B E R, 1, ..]. */
static void flatten(struct merak_operand *op, size_t rows)
{
    const size_t *d = op->local.dim;

    if (op->local.ndim == 5) /* a pool */
        set_dims(op, 5, (size_t[]){1, rows, 1, d[3], d[4]});
    else
        set_dims(op, 3, (size_t[]){1, rows, d[3]});
}

/* What the calls have to tell each other. */
struct taking {
    const struct merak_kernel_call *call;
    const struct merak_expert_calls *calls;
    const struct merak_operand *gate;
    bool placed;
};

/* The operand that `from` says. */
static void take(const struct taking *t, int from, bool is_ids,
                 struct merak_operand *op)
{
    const struct merak_kernel_call *call = t->call;

    if (from >= 0) {
        *op = call->operand[from < OUT(0) ? from : call->n_in + from - OUT(0)];
        if (t->placed && op->local.ndim > 3)
            flatten(op, t->calls->rows);
    } else if (from == PLACED) {
        *op = (struct merak_operand){
            .dtype = is_ids ? MERAK_I32 : t->calls->place->dtype};
        set_dims(op, 3, (size_t[]){1, t->calls->rows, 1});
    } else {
        *op = (struct merak_operand){.dtype = call->operand[0].dtype};
        set_dims(
            op, 4,
            (size_t[]){t->gate->local.dim[0], 0, 2, t->gate->local.dim[1]});
    }
}

static void take_all(const struct taking *t, const int *in, const int *out,
                     int n_out, struct merak_kernel_call *to)
{
    int n = 0;

    for (; in[n] != END; n++)
        take(t, in[n], n == 2, &to->operand[n]);
    if (t->call->attrs->i[2] > 0) /* the bias */
        to->operand[n++] = t->call->operand[t->call->n_in - 1];
    to->n_in = n;
    for (n = 0; out[n] != END && n < n_out; n++)
        take(t, out[n], false, &to->operand[to->n_in + n]);
    to->n_out = n;
}

void merak_expert_split(const struct merak_kernel_call *call,
                        struct merak_expert_calls *calls)
{
    int n_in = call->n_in - (int)call->attrs->i[2];
    const struct split *s = n_in == forward.n_in ? &forward
                            : n_in == back.n_in  ? &back
                                                 : &weights;
    const struct merak_operand *place = &call->operand[s->place];
    struct taking t = {.call = call,
                       .calls = calls,
                       .gate = &call->operand[s == &weights ? 9 : 2]};

    *calls = (struct merak_expert_calls){
        .E = place->local.dim[1],
        .R = place->local.dim[2] - 1,
        .from = place->lo[1],
        .place = place,
        .dplace = s->dplace < 0
                      ? NULL
                      : &call->operand[call->n_in + s->dplace - OUT(0)],
        .placed = *call,
        .rest = *call};
    calls->rows = place->local.dim[0] * calls->E * calls->R;
    t.placed = true;
    take_all(&t, s->placed_in, s->placed_out, call->n_out, &calls->placed);
    t.placed = false;
    take_all(&t, s->rest_in, s->rest_out, call->n_out, &calls->rest);
    calls->dw = calls->placed.n_in + 1;
    if (s == &weights)
        calls->rest.accumulate = true;
}
