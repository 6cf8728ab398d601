/* SPDX-License-Identifier: Apache-2.0 */
/* test_exchange.c - collectives against a serial one, to the bit
 *
 * What every member brings is a function of its number, so each rank can work
 * out alone, element by element, what it must get.
 */
#include "config.h"

#include "unit/near.h"
#include "unit/test_ranks.h"

#include "base/size.h"

static const int two_nodes[] = {0, 0, 1, 1, 1};

static const struct setup setups[] = {
    {NULL, 2, NULL, true, 0},      {NULL, 3, NULL, true, 0},
    {NULL, 3, NULL, false, 0},     {NULL, 5, two_nodes, true, 0},
    {"tcp,self", 2, NULL, true, 0}, {"tcp,self", 3, NULL, false, 0},
};
#define N_SETUPS (sizeof(setups) / sizeof(*setups))

#define REPLICATED {MERAK_REPLICATED, -1}
#define SPLIT(d) {MERAK_SPLIT, (d)}
#define SUM {MERAK_PARTIAL_SUM, -1}
#define MAX {MERAK_PARTIAL_MAX, -1}
#define FLAT {MERAK_FLAT, -1}

static const struct row {
    struct merak_place from, to;
    enum merak_dtype dtype;
    struct merak_shape shape;
} rows[] = {
    /* all-reduce, one element to more than any threshold */
    {SUM, REPLICATED, MERAK_F32, {0, {0}}},
    {SUM, REPLICATED, MERAK_F32, {1, {7}}},
    {SUM, REPLICATED, MERAK_F32, {1, {1024}}},
    {SUM, REPLICATED, MERAK_F32, {1, {1025}}},
    {SUM, REPLICATED, MERAK_F32, {2, {37, 211}}},
    {SUM, REPLICATED, MERAK_F32, {1, {300007}}},
    {SUM, REPLICATED, MERAK_BF16, {1, {513}}},
    {SUM, REPLICATED, MERAK_BF16, {1, {70001}}},
    {SUM, REPLICATED, MERAK_F64, {1, {9001}}},
    {SUM, REPLICATED, MERAK_I32, {1, {9001}}},
    {MAX, REPLICATED, MERAK_F32, {1, {9001}}},
    {MAX, REPLICATED, MERAK_BF16, {1, {100}}},
    /* reduce-scatter: even, uneven, inner dim, flat */
    {SUM, SPLIT(0), MERAK_F32, {2, {60, 128}}},
    {SUM, SPLIT(0), MERAK_BF16, {2, {61, 33}}},
    {SUM, SPLIT(1), MERAK_F32, {3, {8, 91, 16}}},
    {SUM, SPLIT(2), MERAK_F32, {3, {4, 3, 2001}}},
    {SUM, SPLIT(0), MERAK_F32, {1, {1}}},
    {SUM, FLAT, MERAK_F32, {2, {101, 503}}},
    {MAX, SPLIT(0), MERAK_F32, {2, {50, 101}}},
    /* all-gather */
    {SPLIT(0), REPLICATED, MERAK_F32, {2, {61, 700}}},
    {SPLIT(1), REPLICATED, MERAK_BF16, {3, {8, 91, 16}}},
    {SPLIT(2), REPLICATED, MERAK_F32, {3, {16, 3, 2001}}},
    {SPLIT(0), REPLICATED, MERAK_F32, {1, {2}}},
    {FLAT, REPLICATED, MERAK_F32, {2, {101, 503}}},
    /* all-to-all */
    {SPLIT(0), SPLIT(1), MERAK_F32, {2, {67, 301}}},
    {SPLIT(2), SPLIT(0), MERAK_F32, {3, {7, 5, 900}}},
    {SPLIT(1), SPLIT(0), MERAK_BF16, {4, {9, 8, 3, 5}}},
    /* reductions in chunks: many, two, packed ones, uneven ones */
    {SUM, REPLICATED, MERAK_F32, {1, {1200011}}},
    {MAX, REPLICATED, MERAK_BF16, {2, {1001, 701}}},
    {SUM, SPLIT(0), MERAK_F32, {2, {7, 150001}}},
    {SUM, SPLIT(1), MERAK_F32, {3, {8, 91, 1600}}},
    {SUM, FLAT, MERAK_F32, {2, {1010, 503}}},
};
#define N_ROWS (sizeof(rows) / sizeof(*rows))

/* --- the serial one: naive on purpose ------------------------------------- */

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* The nearer of the two bf16 values around f; the even one in a tie. */
static uint16_t to_bf16(float f)
{
    uint32_t bits;
    uint16_t down, up;
    double below, above;

    memcpy(&bits, &f, sizeof(bits));
    down = (uint16_t)(bits >> 16);
    up = (uint16_t)(down + 1);
    below = fabs((double)f - (double)from_bf16(down));
    above = fabs((double)from_bf16(up) - (double)f);
    if (below == above)
        return down % 2 == 0 ? down : up;
    return below < above ? down : up;
}

/* A number whose sums depend on their order. */
static double value(int member, size_t i)
{
    uint64_t h = ((uint64_t)i * 6364136223846793005u + (uint64_t)member) *
                 1442695040888963407u;

    h ^= h >> 29;
    return ldexp((double)(h % 20001) - 10000, (int)(h >> 32 & 7) * 3 - 12);
}

static void put(void *p, size_t at, enum merak_dtype dtype, double x)
{
    if (dtype == MERAK_F32)
        ((float *)p)[at] = (float)x;
    else if (dtype == MERAK_BF16)
        ((uint16_t *)p)[at] = to_bf16((float)x);
    else if (dtype == MERAK_F64)
        ((double *)p)[at] = x;
    else
        ((int32_t *)p)[at] = (int32_t)x;
}

static double get(const void *p, size_t at, enum merak_dtype dtype)
{
    if (dtype == MERAK_F32)
        return (double)((const float *)p)[at];
    if (dtype == MERAK_BF16)
        return (double)from_bf16(((const uint16_t *)p)[at]);
    if (dtype == MERAK_F64)
        return ((const double *)p)[at];
    return (double)((const int32_t *)p)[at];
}

/* Where element k of a box is in its tensor. */
static size_t place_of(const struct merak_box *box, size_t k)
{
    size_t at = 0, stride = 1;

    for (int d = box->ndim - 1; d >= 0; d--) {
        at += (box->lo[d] + k % box->len[d]) * stride;
        k /= box->len[d];
        stride *= box->full[d];
    }
    return at;
}

static double combine(double a, double b, enum merak_combine how,
                      enum merak_dtype dtype)
{
    if (how == MERAK_MAX)
        return a > b ? a : b;
    if (dtype == MERAK_F64 || dtype == MERAK_I32)
        return a + b;
    return (double)((float)a + (float)b);
}

/* The exchange as member `me` of n sees it. */
static void make_exchange(struct merak_exchange *ex, const struct row *row,
                          int n, int me)
{
    struct merak_mesh mesh = {.n_axes = 1, .axis = {{.name = "tp", .size = n}}};
    struct merak_layout from = {.at = {row->from}};
    struct merak_hop hop;

    CHECK(merak_layout_change(&mesh, &from, 0, row->to, &hop));
    CHECK_OK(merak_exchange_init(ex, &mesh, &hop, &from, &row->shape,
                                 row->dtype, &me, ERR));
}

static void bring(void *in, const struct merak_exchange *ex, int member)
{
    for (size_t i = 0; i < merak_shape_count(&ex->in); i++)
        put(in, i, ex->dtype, value(member, i));
}

/* Element `at` of what a member brings, as stored. */
static double brought(const struct merak_exchange *ex, int member, size_t at)
{
    double cell = 0;

    put(&cell, 0, ex->dtype, value(member, at));
    return get(&cell, 0, ex->dtype);
}

static void check_all_reduce(const struct merak_exchange *ex, const void *out)
{
    for (size_t i = 0; i < merak_shape_count(&ex->in); i++) {
        double want = brought(ex, 0, i), cell = 0;

        for (int m = 1; m < ex->n; m++)
            want = combine(want, brought(ex, m, i), ex->combine, ex->dtype);
        put(&cell, 0, ex->dtype, want);
        CHECK(get(out, i, ex->dtype) == get(&cell, 0, ex->dtype));
    }
}

/* Every element that lands in the output came from the right place. */
static void check_boxes(const struct merak_exchange *ex, const void *out,
                        const struct row *row)
{
    size_t covered = 0;

    for (int m = 0; m < ex->n; m++) {
        struct merak_exchange theirs;
        const struct merak_box *from;

        make_exchange(&theirs, row, ex->n, m);
        from = &theirs.send[ex->me];
        for (size_t k = 0; k < merak_box_count(&ex->recv[m]); k++) {
            size_t at = place_of(&ex->recv[m], k);
            double want = brought(&theirs, m, place_of(from, k)), cell = 0;

            if (ex->combine != MERAK_STORE) {
                if (m > 0)
                    break; /* member 0's turn does all members */
                for (int q = 1; q < ex->n; q++)
                    want = combine(want,
                                   brought(&theirs, q, place_of(from, k)),
                                   ex->combine, ex->dtype);
            }
            put(&cell, 0, ex->dtype, want);
            CHECK(get(out, at, ex->dtype) == get(&cell, 0, ex->dtype));
            covered++;
        }
        merak_exchange_fini(&theirs);
    }
    CHECK(covered == merak_shape_count(&ex->out));
}

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
    b->out = in_place ? b->in : b->in + in;
    b->scratch = b->in + in + out;
    CHECK(in + out + merak_exchange_scratch(ex) + 64 <= me->arena.bytes);
    memset(b->scratch + merak_exchange_scratch(ex), 0x5a, 64);
}

static void run_row(struct rank *me, const struct row *row, bool in_place)
{
    struct merak_request *req;
    struct merak_exchange ex;
    struct buffers b;

    make_exchange(&ex, row, me->all.n, me->all.me);
    place_buffers(me, &ex, in_place, &b);
    for (int again = 0; again < 2; again++) {
        bring(b.in, &ex, me->all.me);
        CHECK_OK(merak_exchange(me->tr, &me->all, &ex, b.in, b.out, b.scratch,
                                3, &req, ERR));
        CHECK_OK(merak_request_wait(me->tr, req, ERR));
        if (ex.kind == MERAK_CONVERT_ALL_REDUCE)
            check_all_reduce(&ex, b.out);
        else
            check_boxes(&ex, b.out, row);
    }
    for (int i = 0; i < 64; i++)
        CHECK(b.scratch[merak_exchange_scratch(&ex) + (size_t)i] == 0x5a);
    merak_exchange_fini(&ex);
}

static void run_rows(struct rank *me, const void *arg)
{
    (void)arg;
    for (size_t i = 0; i < N_ROWS; i++) {
        run_row(me, &rows[i], false);
        if (rows[i].to.kind == MERAK_REPLICATED &&
            rows[i].from.kind >= MERAK_PARTIAL_SUM &&
            rows[i].from.kind <= MERAK_PARTIAL_MAX)
            run_row(me, &rows[i], true);
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
        const struct row *row = &rows[i % 2 == 0 ? 5 : 20];

        make_exchange(&ex[i], row, 2, team.me);
        bring(at, &ex[i], team.me);
        out[i] = at + (2 << 20);
        CHECK_OK(merak_exchange(me->tr, &team, &ex[i], at, out[i],
                                out[i] + (1 << 21) - 4096 * 160, (uint64_t)i,
                                &req[i], ERR));
        at += 4 << 20;
    }
    for (int i = N - 1; i >= 0; i--) {
        CHECK_OK(merak_request_wait(me->tr, req[i], ERR));
        if (i % 2 == 0)
            check_all_reduce(&ex[i], out[i]);
        else
            check_boxes(&ex[i], out[i], &rows[20]);
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
        const struct row *row = &rows[which[i]];
        void *arena = me->arena.base, *heap = malloc(TEST_ARENA_BYTES);

        if (me->all.me == 1)
            me->arena.base = heap;
        run_row(me, row, false);
        me->arena.base = arena;
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
