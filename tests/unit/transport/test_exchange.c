/* SPDX-License-Identifier: Apache-2.0 */
/* test_exchange.c - collectives against a serial one, to the bit */
#include "config.h"

/* Millions of elements, one by one, and ./check does not optimize tests. */
#ifndef __clang__ /* has no such pragma */
#pragma GCC optimize("O2")
#endif

#include "unit/near.h"
#include "unit/serial_exchange.h"
#include "unit/test_ranks.h"

#include "base/size.h"

static const int two_nodes[] = {0, 0, 1, 1, 1};

static const struct setup setups[] = {
    {NULL, 2, NULL, true, 0},      {NULL, 3, NULL, true, 0},
    {NULL, 3, NULL, false, 0},     {NULL, 5, two_nodes, true, 0},
    {"tcp,self", 2, NULL, true, 0}, {"tcp,self", 3, NULL, false, 0},
};
#define N_SETUPS (sizeof(setups) / sizeof(*setups))

/* --- the real one --------------------------------------------------------- */

struct buffers {
    char *in, *out, *scratch;
};

static void place_buffers(struct rank *me, const struct merak_exchange *ex,
                          bool in_place, struct buffers *b)
{
    size_t es = merak_dtype_bytes(ex->dtype);
    size_t in = merak_size_align(merak_shape_count(&ex->in) * es, 64);
    size_t out = merak_size_align(merak_shape_count(&ex->out) * es, 64);

    b->in = me->arena.base;
    b->out = b->in + exchange_out_at(ex, in_place);
    b->scratch = b->in + in + out;
    CHECK(in + out + merak_exchange_scratch(ex) + 64 <= me->arena.bytes);
    memset(b->scratch + merak_exchange_scratch(ex), 0x5a, 64);
}

/* What this member has to get is worked out alone once, and then kept in *want,
 * which is NULL until then: each later way of making the same exchange has to
 * come to it. */
static void run_row(struct rank *me, const struct exchange_row *row,
                    bool in_place, char **want)
{
    struct merak_request *req;
    struct merak_exchange ex;
    struct buffers b;
    size_t bytes;

    exchange_make(&ex, row, me->all.n, me->all.me);
    bytes = merak_shape_count(&ex.out) * merak_dtype_bytes(ex.dtype);
    place_buffers(me, &ex, in_place, &b);
    for (int again = 0; again < 2; again++) {
        exchange_bring(b.in, &ex, me->all.me);
        CHECK_OK(merak_exchange(me->tr, &me->all, &ex, b.in, b.out, b.scratch,
                                3, &req, ERR));
        CHECK_OK(merak_request_wait(me->tr, req, ERR));
        if (*want == NULL) {
            exchange_check(&ex, b.out, row);
            *want = malloc(bytes + 1);
            CHECK(*want != NULL);
            memcpy(*want, b.out, bytes);
        }
        CHECK(memcmp(b.out, *want, bytes) == 0);
        if (!in_place) /* nothing of it is there the next time */
            memset(b.out, 0xa5, bytes);
    }
    for (int i = 0; i < 64; i++)
        CHECK(b.scratch[merak_exchange_scratch(&ex) + (size_t)i] == 0x5a);
    merak_exchange_fini(&ex);
}

static void run_rows(struct rank *me, const void *arg)
{
    (void)arg;
    for (size_t i = 0; i < n_exchange_rows; i++) {
        struct merak_exchange ex;
        char *want = NULL;
        bool may;

        exchange_make(&ex, &exchange_rows[i], me->all.n, me->all.me);
        may = exchange_in_place(&ex);
        merak_exchange_fini(&ex);
        run_row(me, &exchange_rows[i], false, &want);
        if (may)
            run_row(me, &exchange_rows[i], true, &want);
        free(want);
    }
}

static void exchanges_match_the_serial_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SETUPS; i++) {
        int failed = run_ranks(&setups[i], run_rows, NULL);

        if (failed != 0)
            print_error("set-up %zu: %d ranks failed\n", i, failed);
        assert_int_equal(failed, 0);
    }
}

/* Many at once, in a team that is not everyone and not in rank order. */
static void many_at_once(struct rank *me, const void *arg)
{
    enum { N = 8 };
    struct merak_team team = {.n = 2, .me = me->all.me == 2 ? 0 : 1,
                              .rank = (int[]){2, 0}};
    struct merak_exchange ex[N];
    struct merak_request *req[N];
    char *at = me->arena.base, *out[N];

    (void)arg;
    if (me->all.me == 1)
        return;
    for (int i = 0; i < N; i++) {
        const struct exchange_row *row = &exchange_rows[i % 2 == 0 ? 5 : 20];

        exchange_make(&ex[i], row, 2, team.me);
        exchange_bring(at, &ex[i], team.me);
        out[i] = at + (2 << 20);
        CHECK_OK(merak_exchange(me->tr, &team, &ex[i], at, out[i],
                                out[i] + (1 << 21) - 4096 * 160, (uint64_t)i,
                                &req[i], ERR));
        at += 4 << 20;
    }
    for (int i = N - 1; i >= 0; i--) {
        CHECK_OK(merak_request_wait(me->tr, req[i], ERR));
        exchange_check(&ex[i], out[i], &exchange_rows[i % 2 == 0 ? 5 : 20]);
        merak_exchange_fini(&ex[i]);
    }
}

static void exchanges_run_side_by_side(void **state)
{
    static const struct setup here = {NULL, 3, NULL, true, 0};
    static const int third_apart[] = {0, 0, 1};
    static const struct setup apart = {NULL, 3, third_apart, true, 0};

    (void)state;
    assert_int_equal(run_ranks(&here, many_at_once, NULL), 0);
    assert_int_equal(run_ranks(&apart, many_at_once, NULL), 0);
}

/* One member's operands are not in its arena: all take another way, alike. */
static void one_outside(struct rank *me, const void *arg)
{
    static const size_t which[] = {5, 12, 18};

    (void)arg;
    for (size_t i = 0; i < 3; i++) {
        const struct exchange_row *row = &exchange_rows[which[i]];
        void *arena = me->arena.base, *heap = malloc(TEST_ARENA_BYTES);
        char *want = NULL;

        if (me->all.me == 1)
            me->arena.base = heap;
        run_row(me, row, false, &want);
        me->arena.base = arena;
        free(want);
        free(heap);
    }
}

static void operands_may_lie_outside_the_arena(void **state)
{
    static const struct setup here = {NULL, 3, NULL, true, 0};

    (void)state;
    assert_int_equal(run_ranks(&here, one_outside, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanges_match_the_serial_one),
        cmocka_unit_test(exchanges_run_side_by_side),
        cmocka_unit_test(operands_may_lie_outside_the_arena),
    };

    return cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
}
