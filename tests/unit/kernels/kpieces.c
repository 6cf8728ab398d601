/* SPDX-License-Identifier: Apache-2.0 */
/* kpieces.c - kernels on sequences in pieces: those of a rank, and all */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kpieces.h"

#include <string.h>

/* Has operand o positions along dim 1?  Not all that read back have the index
 * that queries have. */
static bool has_positions(const struct kc *c, int o)
{
    const struct merak_op *op = merak_op_find(c->op);
    const struct merak_operand *x = &c->call.operand[o];
    size_t T = c->call.operand[0].local.dim[1];

    return kc_is_back(op, c->call.n_in, o) ||
           (x->local.ndim >= 2 &&
            x->local.dim[0] == c->call.operand[0].local.dim[0] &&
            x->local.dim[1] == T);
}

/* Take element rows from the order of positions to pieces. */
static void into_pieces(struct kc *to, const struct kc *from, size_t pieces)
{
    for (int o = 0; o < from->call.n_in + from->call.n_out; o++) {
        const struct merak_operand *x = &from->call.operand[o];
        size_t T = x->local.dim[1], row;

        if (!has_positions(from, o))
            continue;
        row = kc_count(from, o) / x->local.dim[0] / T;
        for (size_t i = 0; i < x->local.dim[0] * T; i++) {
            size_t at = i / T * T + merak_position(pieces, T, i % T);

            for (size_t d = 0; d < row; d++)
                kc_set(to, o, i * row + d, kc_get(from, o, at * row + d));
        }
    }
}

/* A rank's part of a call whose sequences are in pieces. */
static void run_rank(const struct kc_suite *suite, const struct kc *all,
                     size_t rank, size_t ranks, struct kc *part)
{
    const struct merak_op *op = merak_op_find(all->op);
    size_t n = all->call.operand[0].local.dim[1] / ranks;

    kc_copy(part, all);
    for (int o = 0; o < all->call.n_in + all->call.n_out; o++) {
        if (has_positions(all, o) && !kc_is_back(op, all->call.n_in, o))
            kc_slice(part, all, o, 1, rank * n, n);
    }
    suite->run(part);
}

/* Outputs of all ranks together, in `all`. */
static void join_rank(struct kc *all, const struct kc *part, size_t rank)
{
    const struct merak_op *op = merak_op_find(all->op);
    int n_in = all->call.n_in;

    for (int o = n_in; o < n_in + all->call.n_out; o++) {
        bool shared = kc_is_back(op, n_in, o) || !has_positions(all, o);
        size_t n = part->call.operand[o].local.dim[1];
        size_t row = kc_count(part, o) / part->call.operand[o].local.dim[0] / n;
        size_t T = all->call.operand[o].local.dim[1];

        for (size_t i = 0; i < kc_count(part, o); i++) {
            size_t at = (i / row / n * T + rank * n + i / row % n) * row;

            if (shared)
                kc_set(all, o, i,
                       (rank > 0 ? kc_get(all, o, i) : 0) + kc_get(part, o, i));
            else
                kc_set(all, o, at + i % row, kc_get(part, o, i));
        }
    }
}

/* Not what is packed, one tensor that is cut by heads only.  Sums over ranks
 * are of what was rounded. */
static bool is_for_ranks(const struct kc *c)
{
    unsigned back = merak_op_find(c->op)->back_in;

    return (back == 0 || (back & (back - 1)) != 0) &&
           c->call.operand[0].dtype != MERAK_BF16;
}

static void check(const struct kc_suite *suite, const struct kc *c,
                  size_t pieces)
{
    struct kc whole, want, all, joined;

    kc_copy(&whole, c);
    kc_copy(&all, c);
    into_pieces(&all, &whole, pieces);
    kc_run(&whole, "ref");
    kc_copy(&want, &all);
    into_pieces(&want, &whole, pieces);
    for (int o = c->call.n_in; o < c->call.n_in + c->call.n_out; o++)
        if (!has_positions(c, o))
            memcpy(want.call.operand[o].data, whole.call.operand[o].data,
                   merak_local_bytes(&whole.call.operand[o]));
    all.call.pieces = pieces;
    kc_copy(&joined, &all);
    for (size_t rank = 0; rank < pieces / 2 && is_for_ranks(c); rank++) {
        struct kc part;

        run_rank(suite, &all, rank, pieces / 2, &part);
        join_rank(&joined, &part, rank);
        kc_destroy(&part);
    }
    if (is_for_ranks(c))
        kc_check_outputs(suite, &joined, &want);
    suite->run(&all);
    kc_check_outputs(suite, &all, &want);
    kc_destroy(&joined);
    kc_destroy(&all);
    kc_destroy(&want);
    kc_destroy(&whole);
}

/* T positions, 2 samples; more than one tile of every backend in most. */
#define ATTENTION(T, ...)                         \
    {                                             \
        .op = "attention", .n_in = 3, .n_out = 2, \
        .operand = {{'c', 5, {2, T, 2, 2, 8}},    \
                    {'c', 4, {2, T, 2, 8}},       \
                    {'c', 4, {2, T, 2, 8}},       \
                    {'c', 5, {2, T, 2, 2, 8}},    \
                    {'f', 4, {2, T, 2, 2}}},      \
        .attrs = {                                \
            __VA_ARGS__                           \
        }                                         \
    }
#define DOCUMENTS(T, ...)                                               \
    {                                                                   \
        .op = "attention", .n_in = 4, .n_out = 2,                       \
        .operand = {{'c', 5, {2, T, 1, 2, 8}}, {'c', 4, {2, T, 1, 8}},  \
                    {'c', 4, {2, T, 1, 8}},    {'s', 2, {2, T}},        \
                    {'c', 5, {2, T, 1, 2, 8}}, {'f', 4, {2, T, 1, 2}}}, \
        .attrs = {                                                      \
            __VA_ARGS__                                                 \
        }                                                               \
    }
static const struct {
    struct kc_row row;
    size_t pieces;
} rows[] = {
    {ATTENTION(8, .i = {3}), 8},
    {ATTENTION(192, .i = {3}), 4},
    {ATTENTION(256, .i = {3}, .f = {0.2}), 4}, /* whole tiles */
    {ATTENTION(200, .i = {3, 70}, .f = {0.2}), 8},
    {ATTENTION(150, .i = {3, 5}, .f = {0, 0, 1.5}), 6},
    {DOCUMENTS(192, .i = {3}), 6},
    {DOCUMENTS(136, .i = {3, 20}, .f = {0.2}), 4},
    {ATTENTION(136, .i = {3, 0, -1}, .f = {0.2}), 4},
    {ATTENTION(192, .i = {3, 70, 20}), 4},
    {{.op = "attention",
      .n_in = 3,
      .n_out = 2,
      .operand = {{'c', 5, {2, 136, 1, 2, 8}},
                  {'c', 4, {2, 136, 1, 8}},
                  {'c', 4, {2, 136, 1, 5}},
                  {'c', 5, {2, 136, 1, 2, 5}},
                  {'f', 4, {2, 136, 1, 2}}},
      .attrs = {.i = {3}, .f = {0.2}}},
     4},
    {{.op = "attention",
      .n_in = 4,
      .n_out = 2,
      .vocab = 136,
      .operand = {{'c', 5, {2, 136, 1, 2, 8}},
                  {'c', 4, {2, 136, 1, 8}},
                  {'c', 4, {2, 136, 1, 8}},
                  {'l', 1, {2}},
                  {'c', 5, {2, 136, 1, 2, 8}},
                  {'f', 4, {2, 136, 1, 2}}},
      .attrs = {.i = {3, 0, -1}}},
     4},
    {{.op = "attention",
      .n_in = 4,
      .n_out = 2,
      .operand = {{'c', 5, {2, 136, 1, 2, 8}},
                  {'c', 4, {2, 136, 1, 8}},
                  {'c', 4, {2, 136, 1, 8}},
                  {'z', 2, {1, 2}},
                  {'c', 5, {2, 136, 1, 2, 8}},
                  {'f', 4, {2, 136, 1, 2}}},
      .attrs = {.i = {3, 40}}},
     4},
    {{.op = "attention_biased",
      .n_in = 4,
      .n_out = 2,
      .operand = {{'c', 5, {2, 136, 1, 2, 8}},
                  {'c', 4, {2, 136, 1, 8}},
                  {'c', 4, {2, 136, 1, 8}},
                  {'y', 3, {16, 1, 2}},
                  {'c', 5, {2, 136, 1, 2, 8}},
                  {'f', 4, {2, 136, 1, 2}}},
      .attrs = {.i = {3, 0, -1}, .f = {0, 0, 0, 30, 1}}},
     4},
    {{.op = "attention_packed",
      .n_in = 1,
      .n_out = 2,
      .operand = {{'c', 5, {2, 144, 3, 2, 8}},
                  {'c', 4, {2, 144, 2, 8}},
                  {'f', 3, {2, 144, 2}}},
      .attrs = {.i = {3}, .f = {0.2}}},
     8},
    {{.op = "rope",
      .n_in = 1,
      .n_out = 1,
      .operand = {{'c', 4, {2, 24, 3, 8}}, {'c', 4, {2, 24, 3, 8}}},
      .attrs = {.f = {10000}}},
     6},
    {{.op = "add_position",
      .n_in = 2,
      .n_out = 1,
      .operand = {{'c', 3, {2, 24, 9}},
                  {'c', 2, {24, 9}},
                  {'c', 3, {2, 24, 9}}}},
     4},
    {{.op = "add_position",
      .n_in = 3,
      .n_out = 1,
      .operand = {{'c', 3, {2, 24, 16}},
                  {'c', 2, {24, 16}},
                  {'s', 2, {2, 24}},
                  {'c', 3, {2, 24, 16}}}},
     4},
    {{.op = "dropout",
      .n_in = 1,
      .n_out = 1,
      .operand = {{'c', 3, {2, 24, 65}}, {'c', 3, {2, 24, 65}}},
      .attrs = {.i = {4}, .f = {0.3}}},
     8},
    {{.op = "dropout",
      .n_in = 1,
      .n_out = 1,
      .operand = {{'c', 3, {2, 8, 256}}, {'c', 3, {2, 8, 256}}},
      .attrs = {.i = {4}, .f = {0.3}}},
     4},
};

void kc_check_pieces(const struct kc_suite *suite, enum merak_dtype dtype)
{
    int gradients = 0;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct kc c;

        kc_create(&c, &rows[i].row, dtype, 1);
        check(suite, &c, rows[i].pieces);
        kc_run(&c, "ref");
        for (int g = 0; g < kc_n_grads; g++) {
            struct kc grad;

            /* none of sums, which have no positions */
            if (!kc_grad_fits(&kc_grads[g], &c) || kc_grads[g].after != NULL)
                continue;
            kc_create_grad(&grad, &kc_grads[g], &c, dtype, 5);
            check(suite, &grad, rows[i].pieces);
            kc_destroy(&grad);
            gradients++;
        }
        kc_destroy(&c);
    }
    assert_true(gradients >= 10);
}
