/* SPDX-License-Identifier: Apache-2.0 */
/* serial_exchange.c - what an exchange must come to, worked out alone
 *
 * What every member brings is a function of its number, so each rank can work
 * out alone, element by element, what it must get.
 */
#include "config.h"

/* Millions of elements, one by one, and ./check does not optimize tests. */
#ifndef __clang__ /* has no such pragma */
#pragma GCC optimize("O2")
#endif

#include "unit/near.h"
#include "unit/serial_exchange.h"
#include "unit/test_ranks.h"

#include "base/size.h"

#define REPLICATED                          \
    {                                       \
        .kind = MERAK_REPLICATED, .dim = -1 \
    }
#define SPLIT(d)                        \
    {                                   \
        .kind = MERAK_SPLIT, .dim = (d) \
    }
#define HALO(d, b, a)                                                \
    {                                                                \
        .kind = MERAK_SPLIT, .dim = (d), .before = (b), .after = (a) \
    }
#define SUM                                  \
    {                                        \
        .kind = MERAK_PARTIAL_SUM, .dim = -1 \
    }
#define MAX                                  \
    {                                        \
        .kind = MERAK_PARTIAL_MAX, .dim = -1 \
    }
#define FLAT                          \
    {                                 \
        .kind = MERAK_FLAT, .dim = -1 \
    }

const struct exchange_row exchange_rows[] = {
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
    /* halo: whole neighbours, inner dims, parts that are thinner than it */
    {SPLIT(0), HALO(0, 1, 1), MERAK_F32, {2, {64, 301}}},
    {SPLIT(1), HALO(1, 3, 0), MERAK_BF16, {3, {5, 61, 17}}},
    {SPLIT(2), HALO(2, 0, 2), MERAK_F32, {4, {3, 2, 40, 7}}},
    {SPLIT(0), HALO(0, 3, 4), MERAK_F32, {2, {8, 33}}},
    /* reductions in fragments: many, two, packed ones, uneven ones */
    {SUM, REPLICATED, MERAK_F32, {1, {1200011}}},
    {MAX, REPLICATED, MERAK_BF16, {2, {1001, 701}}},
    {SUM, SPLIT(0), MERAK_F32, {2, {7, 150001}}},
    {SUM, SPLIT(1), MERAK_F32, {3, {8, 91, 1600}}},
    {SUM, FLAT, MERAK_F32, {2, {1010, 503}}},
};
const size_t n_exchange_rows = sizeof(exchange_rows) / sizeof(*exchange_rows);

/* --- the serial one: naive on purpose --------------------------------------
 */

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
    static const double scale[8] = {0x1p-12, 0x1p-9, 0x1p-6, 0x1p-3,
                                    1,       0x1p3,  0x1p6,  0x1p9};
    uint64_t h = ((uint64_t)i * 6364136223846793005u + (uint64_t)member) *
                 1442695040888963407u;

    h ^= h >> 29;
    return ((double)(h % 20001) - 10000) * scale[h >> 32 & 7];
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
void exchange_make(struct merak_exchange *ex, const struct exchange_row *row,
                   int n, int me)
{
    struct merak_mesh mesh = {.n_axes = 1, .axis = {{.name = "tp", .size = n}}};
    struct merak_layout from = {.at = {row->from}};
    struct merak_hop hop;

    CHECK(merak_layout_change(&mesh, &from, 0, row->to, &hop));
    CHECK_OK(merak_exchange_init(ex, &mesh, &hop, &from, &row->shape,
                                 row->dtype, &me, ERR));
}

void exchange_bring(void *in, const struct merak_exchange *ex, int member)
{
    for (size_t i = 0; i < merak_shape_count(&ex->in); i++)
        put(in, i, ex->dtype, value(member, i));
}

bool exchange_in_place(const struct merak_exchange *ex)
{
    return ex->kind == MERAK_CONVERT_ALL_REDUCE ||
           (ex->kind == MERAK_CONVERT_REDUCE_SCATTER &&
            merak_box_contiguous(&ex->send[ex->me], NULL));
}

size_t exchange_out_at(const struct merak_exchange *ex, bool in_place)
{
    size_t es = merak_dtype_bytes(ex->dtype), at = 0;

    if (!in_place)
        return merak_size_align(merak_shape_count(&ex->in) * es, 64);
    if (ex->kind == MERAK_CONVERT_REDUCE_SCATTER)
        CHECK(merak_box_contiguous(&ex->send[ex->me], &at));
    return at * es;
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
                        const struct exchange_row *row)
{
    size_t covered = 0;

    for (int m = 0; m < ex->n; m++) {
        struct merak_exchange theirs;
        const struct merak_box *from;

        exchange_make(&theirs, row, ex->n, m);
        from = &theirs.send[ex->me];
        for (size_t k = 0; k < merak_box_count(&ex->recv[m]); k++) {
            size_t at = place_of(&ex->recv[m], k);
            double want = brought(&theirs, m, place_of(from, k)), cell = 0;

            if (ex->combine != MERAK_STORE) {
                if (m > 0)
                    break; /* member 0's turn does all members */
                for (int q = 1; q < ex->n; q++)
                    want = combine(want, brought(&theirs, q, place_of(from, k)),
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

void exchange_check(const struct merak_exchange *ex, const void *out,
                    const struct exchange_row *row)
{
    if (ex->kind == MERAK_CONVERT_ALL_REDUCE)
        check_all_reduce(ex, out);
    else
        check_boxes(ex, out, row);
}
