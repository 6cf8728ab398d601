/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_bench.c - tests of choosing between cuDNN and the own kernel: the
 * reference is the latter, and the test says what everything takes
 */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/cudnn_tests.h"
#include "unit/kernels/kcheck.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct times {
    float own, cudnn; /* milliseconds of all runs */
    float less;       /* the latter's, for each measurement after the first */
    int measured;     /* the own kernel comes first */
    bool other;       /* the own kernel gives other numbers */
    int held;         /* pieces of memory */
};

static enum merak_status own(void *arg, const struct merak_kernel_call *call,
                             struct merak_error *err)
{
    const struct times *t = arg;
    const struct merak_backend *ref;
    const struct merak_kernel *kernel;
    bool packed = call->operand[0].local.ndim == 5 && call->n_in == 1;
    struct merak_kernel_call mine = *call;
    const char *op = packed            ? "attention_packed"
                     : call->n_in == 3 ? "attention"
                                       : "attention_dx";
    enum merak_status rc;

    assert_int_equal(merak_backend_find("ref", &ref, err), MERAK_OK);
    assert_int_equal(merak_kernel_find(ref, op, &kernel, err), MERAK_OK);
    mine.scratch_bytes = kernel->scratch != NULL ? kernel->scratch(&mine) : 0;
    mine.scratch = malloc(mine.scratch_bytes + 1);
    rc = kernel->fn(&mine, err);
    free(mine.scratch);
    if (t->other) /* the largest numbers of bf16 */
        memset(call->operand[call->n_in].data, 0x7e, 32);
    return rc;
}

static void *hold(void *arg, size_t bytes)
{
    struct times *t = arg;

    t->held++;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void let_go(void *arg, void *memory)
{
    struct times *t = arg;

    t->held--;
    free(memory);
}

static enum merak_status read_back(void *arg, void *to, const void *from,
                                   size_t bytes, struct merak_error *err)
{
    (void)arg;
    (void)err;
    memcpy(to, from, bytes);
    return MERAK_OK;
}

static enum merak_status begin(void *arg, struct merak_error *err)
{
    (void)arg;
    (void)err;
    return MERAK_OK;
}

static enum merak_status end(void *arg, float *ms_p, struct merak_error *err)
{
    struct times *t = arg;

    (void)err;
    *ms_p = t->own;
    if (t->measured > 0)
        *ms_p = t->cudnn - t->less * (float)(t->measured - 1);
    t->measured++;
    return MERAK_OK;
}

/* Measure a case; is there a choice? */
static bool measure(struct kc *c, struct times *t,
                    struct merak_cudnn_choice *choice)
{
    const struct merak_cudnn_bench bench = {t,      NULL,      own,   hold,
                                            let_go, read_back, begin, end};
    struct merak_error err = {.text = ""};
    bool is_choice = false;

    unsetenv("MERAK_CUDA_ATTENTION");
    c->call.attrs = &c->attrs;
    c->call.step = &c->step;
    assert_int_equal(merak_cudnn_tune(cudnn, &bench, c->op, &c->call, choice,
                                      &is_choice, &err),
                     MERAK_OK);
    assert_int_equal(t->held, 0);
    return is_choice;
}

static const char *wanted_op;
static struct kc found;

static void keep_case(const struct kc *c)
{
    if (strcmp(c->op, wanted_op) == 0)
        kc_copy(&found, c);
}

/* The gradient of a row, whose inputs the reference wrote. */
static struct kc *gradient(const struct kc_row *row, const char *op)
{
    wanted_op = op;
    kc_visit_row(row, MERAK_BF16, keep_case);
    return &found;
}

void the_faster_kernel_is_chosen(void **state)
{
    struct kc_row row = cudnn_packed(2, 8, 2, 8);
    struct merak_cudnn_choice choice;
    struct kc c;

    (void)state;
    kc_create(&c, &row, MERAK_BF16, 1);
    for (int faster = 0; faster < 2; faster++) {
        struct times t = {.own = 1, .cudnn = faster ? 0.9f : 0.99f};

        assert_true(measure(&c, &t, &choice));
        assert_int_equal(choice.own, !faster);
        assert_int_equal(t.measured, 3); /* its two exact answers */
        /* from now on */
        assert_int_equal(cudnn_runs(&c), faster);
    }
    assert_int_equal(choice.way.engine, 6);
    assert_int_equal(choice.way.version, 91900);
    assert_int_equal(choice.way.n_knobs, 1);
    assert_int_equal(choice.way.knob[0].value, 21);
    kc_destroy(&c);
}

/* 1, 2 and 4 samples at once, two ways each. */
void few_samples_are_chosen_unless_more_are_faster(void **state)
{
    struct kc_row row = cudnn_grouped(4, 8, 2, 1, 8);
    struct kc *c = gradient(&row, "attention_dx");
    struct merak_cudnn_choice choice;
    struct times same = {.own = 1, .cudnn = 0.5f};
    struct times less = {.own = 1, .cudnn = 0.9f, .less = 0.1f};

    (void)state;
    assert_true(measure(c, &same, &choice));
    assert_int_equal(same.measured, 7);
    assert_false(choice.own);
    assert_int_equal(choice.way.samples, 1);
    assert_true(measure(c, &less, &choice));
    assert_int_equal(choice.way.samples, 4);
    assert_int_equal(choice.way.engine, 7);
    assert_true(cudnn_runs(c));
    kc_destroy(c);
}

void what_is_not_the_own_kernels_is_not_chosen(void **state)
{
    struct kc_row row = cudnn_packed(1, 8, 1, 8);
    struct merak_cudnn_choice choice;
    struct times other = {.own = 1, .cudnn = 0.1f, .other = true};
    struct times t = {.own = 1, .cudnn = 0.1f};
    struct kc c;

    (void)state;
    kc_create(&c, &row, MERAK_BF16, 1);
    assert_true(measure(&c, &other, &choice));
    assert_true(choice.own);
    assert_int_equal(other.measured, 1);
    assert_non_null(strstr(cudnn_line, "results that differ"));
    setenv("MERAK_STAND_IN_CUDNN", "jitter", 1);
    t = (struct times){.own = 1, .cudnn = 0.1f};
    assert_true(measure(&c, &t, &choice));
    assert_true(choice.own);
    assert_non_null(strstr(cudnn_line, "different bits"));
    setenv("MERAK_STAND_IN_CUDNN", "execute", 1);
    t = (struct times){.own = 1, .cudnn = 0.1f};
    assert_true(measure(&c, &t, &choice));
    assert_true(choice.own);
    assert_non_null(strstr(cudnn_line, "an error"));
    assert_int_equal(cudnn_told, 6); /* of two ways each */
    kc_destroy(&c);
}

void where_nothing_can_be_chosen_nothing_is(void **state)
{
    struct kc_row row = cudnn_packed(1, 8, 1, 8),
                  odd = cudnn_packed(1, 8, 1, 9);
    struct merak_cudnn_choice choice;
    struct times t = {.own = 1, .cudnn = 0.1f};
    struct kc c;

    (void)state;
    kc_create(&c, &odd, MERAK_BF16, 1);
    assert_false(measure(&c, &t, &choice));
    kc_destroy(&c);
    setenv("MERAK_STAND_IN_CUDNN", "create", 1);
    kc_create(&c, &row, MERAK_BF16, 1);
    assert_false(measure(&c, &t, &choice));
    assert_int_equal(t.measured, 0);
    kc_destroy(&c);
}
