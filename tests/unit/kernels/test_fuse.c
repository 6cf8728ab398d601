/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuse.c - which calls do not alias, so that they may be run as one
 * (kernels/alias.c)
 */
#include "config.h"

#include "unit/near.h"

#include "kernels/accel.h"
#include "kernels/geometry.h"

#include <string.h>

#define ROWS 6
#define C 8

static char memory[4096];

/* An operand of ROWS rows of C elements; rows of statistics have one. */
static struct merak_operand at(size_t offset, enum merak_dtype dtype,
                               size_t rows, size_t length)
{
    return (struct merak_operand){.data = memory + offset,
                                  .dtype = dtype,
                                  .local = {2, {rows, length}},
                                  .full = {2, {rows, length}}};
}

/* add: a, b -> y; norm: y, gamma -> out, rstd. */
static struct pair {
    struct merak_kernel_call add, norm;
} disjoint_pair(void)
{
    struct pair p = {.add = {.n_in = 2, .n_out = 1},
                     .norm = {.n_in = 2, .n_out = 2}};
    size_t bytes = ROWS * C * 4;

    for (int i = 0; i < 3; i++)
        p.add.operand[i] = at((size_t)i * bytes, MERAK_F32, ROWS, C);
    p.norm.operand[0] = p.add.operand[2];
    p.norm.operand[1] = at(3 * bytes, MERAK_F32, 1, C);
    p.norm.operand[2] = at(4 * bytes, MERAK_F32, ROWS, C);
    p.norm.operand[3] = at(5 * bytes, MERAK_F32, ROWS, 1);
    return p;
}

static bool do_not_alias(const struct pair *p)
{
    const struct merak_kernel_call *const call[] = {&p->add, &p->norm};
    const struct merak_kernel_call *const turned[] = {&p->norm, &p->add};

    /* their order does not matter */
    assert_int_equal(merak_calls_do_not_alias(call, 2),
                     merak_calls_do_not_alias(turned, 2));
    return merak_calls_do_not_alias(call, 2);
}

static void values_may_be_handed_on(void **state)
{
    struct pair p = disjoint_pair();

    (void)state;
    assert_true(do_not_alias(&p));
    assert_true(merak_calls_do_not_alias(NULL, 0));
    /* inputs may share memory in any way */
    p.norm.operand[1].data = (char *)p.add.operand[0].data + 4;
    assert_true(do_not_alias(&p));
}

static void outputs_may_replace_equal_rows(void **state)
{
    struct pair p = disjoint_pair();

    (void)state;
    p.norm.operand[2].data = p.add.operand[1].data;
    assert_true(do_not_alias(&p));
    p.norm.operand[2].ld = C; /* says the same, but is not looked into */
    assert_false(do_not_alias(&p));
}

static void other_overlaps_are_refused(void **state)
{
    size_t bytes = ROWS * C * 4;

    (void)state;
    for (int o = 2; o < 4; o++) {        /* of the norm's outputs */
        for (size_t i = 0; i < 3; i++) { /* of the sum's operands */
            for (size_t skew = 0; skew < bytes; skew += 4) {
                struct pair p = disjoint_pair();
                bool same = o == 2 && skew == 0;

                p.norm.operand[o].data = memory + i * bytes + skew;
                assert_int_equal(do_not_alias(&p), same);
            }
        }
    }
}

static void rows_of_another_kind_are_refused(void **state)
{
    struct pair p = disjoint_pair();

    (void)state;
    /* the same bytes: other rows, another type */
    p.norm.operand[2] = at(0, MERAK_F32, ROWS * 2, C / 2);
    assert_false(do_not_alias(&p));
    p.norm.operand[2] = at(0, MERAK_BF16, ROWS, C * 2);
    assert_false(do_not_alias(&p));
    p.norm.operand[2] = at(0, MERAK_I32, ROWS, C);
    assert_false(do_not_alias(&p));
    /* a beginning of it */
    p.norm.operand[2] = at(0, MERAK_F32, ROWS - 1, C);
    assert_false(do_not_alias(&p));
}

static void scratch_may_not_alias(void **state)
{
    size_t bytes = ROWS * C * 4;

    (void)state;
    for (size_t i = 0; i < 6 * bytes; i += 32) {
        struct pair p = disjoint_pair();

        p.add.scratch = memory + i;
        p.add.scratch_bytes = 32;
        /* that of a call and its own operands are not looked at; the norm has
         * y, gamma, out, rstd */
        assert_int_equal(do_not_alias(&p),
                         i < 2 * bytes ||
                             (i >= 3 * bytes + C * 4 && i < 4 * bytes) ||
                             i >= 5 * bytes + ROWS * 4);
    }
}

static void every_pair_of_calls_counts(void **state)
{
    struct pair p = disjoint_pair();
    struct merak_kernel_call third = {.n_in = 1, .n_out = 1};
    const struct merak_kernel_call *const call[] = {&p.add, &p.norm, &third};

    (void)state;
    third.operand[0] = p.norm.operand[2];
    third.operand[1] = at(2048, MERAK_F32, ROWS, C);
    assert_true(merak_calls_do_not_alias(call, 3));
    third.operand[1] = at(16, MERAK_F32, ROWS, C); /* what the first reads */
    assert_false(merak_calls_do_not_alias(call, 3));
    assert_true(merak_calls_do_not_alias(call, 2));
}

static void nothing_is_in_nobodys_way(void **state)
{
    struct pair p = disjoint_pair();

    (void)state;
    p.norm.operand[2] = at(4, MERAK_F32, 0, C);
    assert_true(do_not_alias(&p));
    /* a number: no dims */
    p.norm.operand[3] = at(5, MERAK_F64, 1, 1);
    p.norm.operand[3].local.ndim = p.norm.operand[3].full.ndim = 0;
    assert_false(do_not_alias(&p));
    p.norm.operand[3].data = memory + 2048;
    assert_true(do_not_alias(&p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_may_be_handed_on),
        cmocka_unit_test(outputs_may_replace_equal_rows),
        cmocka_unit_test(other_overlaps_are_refused),
        cmocka_unit_test(rows_of_another_kind_are_refused),
        cmocka_unit_test(scratch_may_not_alias),
        cmocka_unit_test(every_pair_of_calls_counts),
        cmocka_unit_test(nothing_is_in_nobodys_way),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("fuse", tests, NULL, NULL);
}
