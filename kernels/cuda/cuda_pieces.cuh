/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_pieces.cuh - attention over sequences in pieces
 * (merak_position())
 *
 * Keys and values are copied to scratch in the order of their positions; so are
 * queries where a rank has all of them (it exchanged heads).  Then the kernels
 * run as for slices of a sequence, once for each row of positions that the rank
 * has queries of, at most twice.  The copies are of what the ranks just sent
 * each other, so they take a fraction of that time.  Gradients of keys are
 * rounded to their type between the two.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_PIECES_CUH
#define MERAK_KERNELS_CUDA_CUDA_PIECES_CUH

#include "kernels/cuda/cuda_device.cuh"

/* Sizes of a copy of rows, in its units. */
struct merak_reorder {
    size_t B, T, pieces;
    size_t width, from_row, to_row;
    bool back; /* to pieces, else from them */
};

template <typename U>
static __global__ void __launch_bounds__(MAP_THREADS)
    reorder_rows(merak_reorder r, const U *from, U *to)
{
    for (size_t k = grid_thread(); k < r.B * r.T * r.width;
         k += grid_threads()) {
        size_t row = k / r.width, at = k % r.width, first = row / r.T * r.T;
        size_t i = r.back ? merak_position(r.pieces, r.T, row - first)
                          : merak_position_index(r.pieces, r.T, row - first);

        to[row * r.to_row + at] = from[(first + i) * r.from_row + at];
    }
}

template <typename U>
static enum merak_status reorder_as(const struct merak_cuda_context *cx,
                                    merak_reorder r, const void *from, void *to,
                                    struct merak_error *err)
{
    r.width /= sizeof(U);
    r.from_row /= sizeof(U);
    r.to_row /= sizeof(U);
    return launch(cx, map_launch("attention", r.B * r.T * r.width), err,
                  reorder_rows<U>, r, static_cast<const U *>(from),
                  static_cast<U *>(to));
}

/* Sizes in bytes. */
static enum merak_status reorder(const struct merak_cuda_context *cx,
                                 const merak_reorder &r, const void *from,
                                 void *to, struct merak_error *err)
{
    size_t places = r.width | r.from_row | r.to_row;

    if (places % 16 == 0 && is_aligned(from) && is_aligned(to))
        return reorder_as<uint4>(cx, r, from, to, err);
    return places % 4 == 0 ? reorder_as<merak_word>(cx, r, from, to, err)
                           : reorder_as<uint16_t>(cx, r, from, to, err);
}

/* A call whose operands are replaced, one after the other, by scratch in the
 * order of positions. */
struct merak_ordered {
    const struct merak_cuda_context *cx;
    const struct merak_attention *given;
    struct merak_attention at;
    struct merak_operand op[MERAK_MAX_OPERANDS];
    int n;
    char *room;
    enum merak_status rc;
    struct merak_error *err;
};

static size_t ordered_bytes(const struct merak_attention *at, size_t width,
                            size_t item)
{
    return (at->B * at->T * width * item + 15) / 16 * 16;
}

static void copy_heads(struct merak_ordered *o, const struct merak_heads *from,
                       const struct merak_heads *to, size_t width, bool back)
{
    size_t item = merak_dtype_bytes(from->op->dtype);
    const merak_reorder r = {o->given->B,  o->given->T,      o->given->pieces,
                             width * item, from->row * item, to->row * item,
                             back};

    if (o->rc == MERAK_OK)
        o->rc = reorder(
            o->cx, r, static_cast<char *>(from->op->data) + from->offset * item,
            static_cast<char *>(to->op->data) + to->offset * item, o->err);
}

/* Replace the `heads` heads of each row of x; `read`: by a copy. */
static void take(struct merak_ordered *o, struct merak_heads *x, size_t heads,
                 bool read)
{
    struct merak_operand *op = &o->op[o->n];
    size_t width = heads * x->D;
    const struct merak_heads mine = {op, 0, width, 0, o->given->T, x->D};

    if (x->op == nullptr)
        return;
    o->n++;
    *op = *x->op;
    op->data = o->room;
    o->room += ordered_bytes(o->given, width, merak_dtype_bytes(op->dtype));
    if (read)
        copy_heads(o, x, &mine, width, false);
    *x = mine;
}

/* Put back what the call wrote. */
static void give(struct merak_ordered *o, const struct merak_heads *from,
                 const struct merak_heads *to, size_t heads)
{
    if (to->op != nullptr)
        copy_heads(o, from, to, heads * to->D, true);
}

/* A row of numbers of each position, lse or starts, as heads. */
static struct merak_heads rows_of(const struct merak_attention *at,
                                  const struct merak_operand *op, size_t width)
{
    return {op, 0, width, 0, at->T, width};
}

static bool has_all_queries(const struct merak_attention *at)
{
    return at->o.n == at->T;
}

/* Scratch behind `own` bytes of the kernel's. */
static size_t pieces_scratch(const struct merak_attention *at, size_t own)
{
    size_t H = at->G * at->R, both = at->d_o.op != nullptr ? 2 : 1;
    size_t item = merak_dtype_bytes(at->q.op->dtype);
    size_t keys = ordered_bytes(at, at->G * at->D, item) +
                  ordered_bytes(at, at->G * at->E, item);
    size_t queries = ordered_bytes(at, H * at->D, item) +
                     ordered_bytes(at, H * at->E, item);

    if (at->pieces == 0)
        return own;
    own = (own + 15) / 16 * 16 + both * keys;
    if (!has_all_queries(at))
        return own;
    return own + both * queries + ordered_bytes(at, H, 4) +
           ordered_bytes(at, 1, 4);
}

static void take_queries(struct merak_ordered *o)
{
    struct merak_attention *at = &o->at;
    size_t H = at->G * at->R;
    bool backward = at->d_o.op != nullptr;
    struct merak_heads lse = rows_of(at, at->lse, H), starts = {};

    if (!has_all_queries(o->given))
        return;
    take(o, &at->q, H, true);
    take(o, &at->o, H, backward);
    take(o, &at->d_o, H, true);
    take(o, &at->dq, H, false);
    take(o, &lse, 1, backward);
    at->lse = lse.op;
    if (at->starts == nullptr)
        return;
    starts = rows_of(at, at->starts, 1);
    take(o, &starts, 1, true);
    at->starts = starts.op;
}

static void give_queries(struct merak_ordered *o)
{
    const struct merak_attention *at = &o->at, *to = o->given;
    size_t H = at->G * at->R;
    const struct merak_heads mine = rows_of(at, at->lse, H);
    const struct merak_heads theirs = rows_of(at, to->lse, H);

    if (!has_all_queries(to))
        return;
    give(o, &at->dq, &to->dq, H);
    if (at->d_o.op != nullptr)
        return;
    give(o, &at->o, &to->o, H);
    give(o, &mine, &theirs, 1);
}

/* Queries first to end - 1 lie one behind the other, from which row on? */
static void place_queries(struct merak_ordered *o,
                          const struct merak_attention *now)
{
    struct merak_attention *at = &o->at;
    size_t row =
        has_all_queries(now)
            ? now->first
            : merak_position_index(now->pieces, now->T, now->first) - now->o.t0;

    at->first = now->first;
    at->end = now->end;
    at->q.t0 = at->o.t0 = at->d_o.t0 = at->dq.t0 = now->first - row;
}

/*
 * Run the call by run(at, err), once for each row of positions.
 *
 *   own  bytes at the beginning of the call's scratch that run() uses
 */
template <typename F>
static enum merak_status in_order(const struct merak_kernel_call *call,
                                  const struct merak_attention *given,
                                  size_t own, const F &run,
                                  struct merak_error *err)
{
    struct merak_attention now = *given;
    struct merak_ordered o = {};

    if (given->d_o.op != nullptr && given->accumulate)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "gradients of sequences in pieces that are added to "
                          "others: the cuda backend has no such kernel");
    o.cx = merak_cuda_context_of(call);
    o.given = given;
    o.at = *given;
    o.at.pieces = 0;
    o.err = err;
    o.room = static_cast<char *>(call->scratch) + (own + 15) / 16 * 16;
    take(&o, &o.at.k, given->G, true);
    take(&o, &o.at.v, given->G, true);
    take(&o, &o.at.dk, given->G, false);
    take(&o, &o.at.dv, given->G, false);
    take_queries(&o);
    do {
        place_queries(&o, &now);
        if (o.rc == MERAK_OK)
            o.rc = run(&o.at, err);
        o.at.accumulate = true;
    } while (merak_attention_next(&now));
    give(&o, &o.at.dk, &given->dk, given->G);
    give(&o, &o.at.dv, &given->dv, given->G);
    give_queries(&o);
    return o.rc;
}

#endif
