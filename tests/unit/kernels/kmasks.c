/* SPDX-License-Identifier: Apache-2.0 */
/* kmasks.c - what holds of attention with key lengths in every backend */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kmasks.h"

#include <math.h>
#include <string.h>

/* Samples of T keys at most, fewer in both; several tiles. */
enum { T = 150, HEADS = 2, D = 8 };
static const size_t lengths[] = {97, 64};

static struct kc_row row_of(size_t B, size_t queries, size_t keys,
                            int64_t after)
{
    return (struct kc_row){.op = "attention",
                           .n_in = 4,
                           .n_out = 2,
                           .vocab = keys,
                           .attrs.i = {0, 0, after},
                           .operand = {{'c', 5, {B, queries, 1, HEADS, D}},
                                       {'c', 4, {B, keys, 1, D}},
                                       {'c', 4, {B, keys, 1, D}},
                                       {'l', 1, {B}},
                                       {'c', 5, {B, queries, 1, HEADS, D}},
                                       {'f', 4, {B, queries, 1, HEADS}}}};
}

static void set_lengths(struct kc *c, int operand)
{
    for (size_t b = 0; b < 2; b++)
        kc_set(c, operand, b, (double)lengths[b]);
}

static const struct kc_grad *gradient(void)
{
    for (int g = 0; g < kc_n_grads; g++) {
        if (strcmp(kc_grads[g].op, "attention_dx") == 0 &&
            kc_grads[g].n_in == 7)
            return &kc_grads[g];
    }
    fail();
    return NULL;
}

/* Set what no query sees of k or v to `value`. */
static void set_hidden(struct kc *c, int operand, double value)
{
    for (size_t b = 0; b < 2; b++) {
        for (size_t i = lengths[b] * D; i < T * D; i++)
            kc_set(c, operand, b * T * D + i, value);
    }
}

static void check_zeros(const struct kc *grad, int operand)
{
    for (size_t b = 0; b < 2; b++) {
        for (size_t i = lengths[b] * D; i < T * D; i++)
            assert_true(kc_get(grad, operand, b * T * D + i) == 0);
    }
}

static void compare_hidden(const struct kc_suite *suite, const struct kc *c,
                           int k)
{
    struct kc plain, other;

    kc_copy(&plain, c);
    kc_copy(&other, c);
    set_hidden(&other, k, NAN);
    set_hidden(&other, k + 1, NAN);
    suite->run(&plain);
    suite->run(&other);
    kc_check_same_bits(&other, &plain, "keys that no query sees");
    if (c->call.n_out == 3) {
        check_zeros(&other, c->call.n_in + 1);
        check_zeros(&other, c->call.n_in + 2);
    }
    kc_destroy(&plain);
    kc_destroy(&other);
}

void kc_check_hidden_keys(const struct kc_suite *suite, enum merak_dtype dtype)
{
    for (int64_t after = -1; after <= 0; after++) {
        struct kc_row row = row_of(2, T, T, after);
        struct kc c, grad;

        kc_create(&c, &row, dtype, 1);
        set_lengths(&c, 3);
        compare_hidden(suite, &c, 1);
        kc_run(&c, "ref");
        kc_create_grad(&grad, gradient(), &c, dtype, 5);
        compare_hidden(suite, &grad, 2);
        kc_destroy(&grad);
        kc_destroy(&c);
    }
}

/* What a sample has at its first positions, in both. */
static void check_same(const struct kc *all, const struct kc *one, int operand,
                       size_t b)
{
    const struct merak_operand *a = &all->call.operand[operand];
    const struct merak_operand *o = &one->call.operand[operand];
    size_t each = kc_count(all, operand) / a->local.dim[0];
    size_t bytes = merak_dtype_bytes(a->dtype);

    assert_memory_equal((const char *)a->data + b * each * bytes, o->data,
                        kc_count(one, operand) * bytes);
}

/* Sample b of operand `from` as operand `to` of a call of its own. */
static void take_sample(const struct kc *all, struct kc *one, int operand,
                        size_t b)
{
    const struct merak_operand *a = &all->call.operand[operand];
    size_t each = kc_count(all, operand) / a->local.dim[0];

    for (size_t i = 0; i < kc_count(one, operand); i++)
        kc_set(one, operand, i, kc_get(all, operand, b * each + i));
}

/* Positions behind a sample's own have no gradient. */
static void clear_behind(struct kc *grad)
{
    const size_t row = HEADS * D;

    for (size_t b = 0; b < 2; b++) {
        for (size_t i = lengths[b] * row; i < T * row; i++)
            kc_set(grad, 0, b * T * row + i, 0);
    }
}

static void compare_alone(const struct kc_suite *suite, const struct kc *all,
                          const struct kc *grads, size_t b, int64_t after)
{
    struct kc_row row = row_of(1, lengths[b], lengths[b], after);
    struct kc one, grad;

    kc_create(&one, &row, all->call.operand[0].dtype, 1);
    for (int o = 0; o < 3; o++)
        take_sample(all, &one, o, b);
    kc_set(&one, 3, 0, (double)lengths[b]);
    suite->run(&one);
    for (int o = 4; o < 6; o++)
        check_same(all, &one, o, b);
    kc_create_grad(&grad, gradient(), &one, all->call.operand[0].dtype, 5);
    take_sample(grads, &grad, 0, b);
    suite->run(&grad);
    for (int o = 7; o < 10; o++)
        check_same(grads, &grad, o, b);
    kc_destroy(&grad);
    kc_destroy(&one);
}

void kc_check_alone(const struct kc_suite *suite, enum merak_dtype dtype)
{
    for (int64_t after = -1; after <= 0; after++) {
        struct kc_row row = row_of(2, T, T, after);
        struct kc all, grads;

        kc_create(&all, &row, dtype, 1);
        set_lengths(&all, 3);
        suite->run(&all);
        kc_create_grad(&grads, gradient(), &all, dtype, 5);
        clear_behind(&grads);
        suite->run(&grads);
        for (size_t b = 0; b < 2; b++)
            compare_alone(suite, &all, &grads, b, after);
        kc_destroy(&grads);
        kc_destroy(&all);
    }
}
