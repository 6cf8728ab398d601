/* SPDX-License-Identifier: Apache-2.0 */
/* test_pieces.c - sequences in pieces: which positions a rank has, and how much
 * attention that is */
#include "config.h"

#include "unit/near.h"

#include "kernels/geometry.h"

static void pieces_come_from_head_and_tail(void **state)
{
    static const size_t two[] = {0, 1, 2, 3, 12, 13, 14, 15,
                                 4, 5, 6, 7, 8,  9,  10, 11};
    static const size_t four[] = {0, 1, 14, 15, 2, 3, 12, 13,
                                  4, 5, 10, 11, 6, 7, 8,  9};

    (void)state;
    for (size_t i = 0; i < 16; i++) {
        assert_int_equal(merak_position(0, 16, i), i);
        assert_int_equal(merak_position_index(0, 16, i), i);
        assert_int_equal(merak_position(4, 16, i), two[i]);
        assert_int_equal(merak_position_index(4, 16, two[i]), i);
        assert_int_equal(merak_position(8, 16, i), four[i]);
        assert_int_equal(merak_position_index(8, 16, four[i]), i);
    }
}

/* Pairs of a query and a key that it sees, of 64 positions, for one rank. */
static size_t pairs_of(size_t ranks, size_t rank, size_t pieces)
{
    const struct merak_attrs attrs = {.i = {0}};
    struct merak_kernel_call call = {
        .attrs = &attrs, .n_in = 3, .n_out = 2, .pieces = pieces};
    struct merak_attention at;
    size_t pairs = 0;

    for (int o = 0; o < 5; o++) {
        size_t n = o == 1 || o == 2 ? 64 : 64 / ranks;

        call.operand[o] =
            (struct merak_operand){.local = {5, {1, n, 1, 1, 1}},
                                   .full = {5, {1, 64, 1, 1, 1}},
                                   .lo = {0, n < 64 ? rank * n : 0}};
    }
    merak_attention_view(&call, &at);
    do
        for (size_t t = at.first; t < at.end; t++)
            pairs += t + 1;
    while (merak_attention_next(&at));
    return pairs;
}

static void pieces_make_attention_even(void **state)
{
    static const size_t in_order[] = {136, 392, 648, 904};

    (void)state;
    for (size_t r = 0; r < 4; r++) {
        assert_int_equal(pairs_of(4, r, 0), in_order[r]);
        assert_int_equal(pairs_of(4, r, 8), 520);
        assert_int_equal(pairs_of(8, r, 16), 260);
        assert_int_equal(pairs_of(8, r + 4, 16), 260);
    }
    assert_int_equal(pairs_of(2, 0, 4), 1040);
    assert_int_equal(pairs_of(2, 1, 4), 1040);
    assert_int_equal(pairs_of(1, 0, 8), 2080); /* a rank with all positions */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_come_from_head_and_tail),
        cmocka_unit_test(pieces_make_attention_even),
    };

    return cmocka_run_group_tests_name("pieces", tests, NULL, NULL);
}
