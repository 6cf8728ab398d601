/* SPDX-License-Identifier: Apache-2.0 */
/* test_pace.c - which ranks are slower than their peers, by the times they
 * have
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "runtime/train/pace.h"

enum { MOST = 8 };

/* A rank's quartiles: a tenth below and above its median, unless said. */
struct at {
    int stage;
    double median, spread; /* 0: a tenth */
};

static int fill(const struct at *at, struct merak_pace_rank *rank)
{
    int n = 0;

    for (; n < MOST && at[n].median > 0; n++) {
        double spread = at[n].spread > 0 ? at[n].spread : 0.1;

        rank[n].stage = at[n].stage;
        rank[n].quarter_s = at[n].median * (1 - spread);
        rank[n].median_s = at[n].median;
        rank[n].three_quarters_s = at[n].median * (1 + spread);
    }
    return n;
}

static const struct {
    const char *what;
    struct at at[MOST];
    unsigned slow; /* bits of the ranks that are */
    int rank;      /* that is so much longer, */
    double percent;
} rows[] = {
    {"alike", {{0, 1, 0}, {0, 1.05, 0}, {0, 0.97, 0}}, 0, 1, 6.6},
    {"one of four", {{0, 1, 0}, {0, 1, 0}, {0, 1.6, 0}, {0, 1, 0}}, 4, 2, 60},
    {"one of two", {{0, 2, 0}, {0, 1, 0}}, 1, 0, 100},
    {"two of five",
     {{0, 1, 0}, {0, 2, 0}, {0, 1, 0}, {0, 2, 0}, {0, 1, 0}},
     10,
     1,
     100},
    {"below the limit", {{0, 1, 0}, {0, 1.2, 0}, {0, 1, 0}}, 0, 1, 20},
    /* others of the machine took something now and then */
    {"noise", {{0, 1, 0}, {0, 1.5, 0.4}, {0, 1, 0}}, 0, 1, 50},
    {"noise of the peers",
     {{0, 1, 0.8}, {0, 1.6, 0.1}, {0, 1, 0.8}, {0, 1, 0.8}},
     0,
     1,
     60},
    /* stages have different work */
    {"stages", {{0, 1, 0}, {0, 1, 0}, {1, 3, 0}, {1, 3, 0}}, 0, 2, 0},
    {"in a stage", {{0, 1, 0}, {0, 1, 0}, {1, 3, 0}, {1, 6, 0}}, 8, 3, 100},
    {"one rank", {{0, 1, 0}}, 0, 0, 0},
    /* nothing was seen of these before: no peers, no claim */
    {"pipeline", {{0, 1, 0}, {1, 5, 0}, {2, 1, 0}}, 0, 1, 0},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct merak_pace_rank rank[MOST] = {{0}};
        int n = fill(rows[i].at, rank);
        unsigned slow = 0;

        merak_pace_find(rank, n, 25);
        for (int r = 0; r < n; r++)
            assert_false(rank[r].slow); /* once may be chance */
        merak_pace_find(rank, n, 25);
        for (int r = 0; r < n; r++)
            slow |= (unsigned)rank[r].slow << r;
        if (slow != rows[i].slow)
            fail_msg("%s: slow %x, expected %x", rows[i].what, slow,
                     rows[i].slow);
        if (rank[rows[i].rank].percent < rows[i].percent - 0.1 ||
            rank[rows[i].rank].percent > rows[i].percent + 0.1)
            fail_msg("%s: rank %d is %g %% longer, expected %g", rows[i].what,
                     rows[i].rank, rank[rows[i].rank].percent, rows[i].percent);
    }
}

/* Without peers a rank is held against itself, as all are. */
static void test_alone(void **state)
{
    static const struct at usual[MOST] = {{0, 1, 0}, {1, 5, 0}, {2, 2, 0}};
    static const struct at one[MOST] = {{0, 1, 0}, {1, 10, 0}, {2, 2, 0}};
    static const struct at all[MOST] = {{0, 2, 0}, {1, 10, 0}, {2, 4, 0}};
    struct merak_pace_rank rank[MOST] = {{0}};
    int n = fill(usual, rank);

    (void)state;
    merak_pace_find(rank, n, 25);
    fill(all, rank); /* the whole machine */
    merak_pace_find(rank, n, 25);
    assert_false(rank[0].slow || rank[1].slow || rank[2].slow);
    fill(one, rank);
    merak_pace_find(rank, n, 25);
    assert_false(rank[1].slow);
    merak_pace_find(rank, n, 25);
    assert_true(!rank[0].slow && rank[1].slow && !rank[2].slow);
    assert_true(rank[1].percent > 99 && rank[1].percent < 101);
    fill(usual, rank);
    merak_pace_find(rank, n, 25);
    assert_false(rank[1].slow);
}

/* Who is slow stays so until it is half as much. */
static void test_between(void **state)
{
    struct at at[MOST] = {{0, 1, 0.01}, {0, 1.5, 0.01}, {0, 1, 0.01}};
    struct merak_pace_rank rank[MOST] = {{0}};
    int n = fill(at, rank);

    (void)state;
    merak_pace_find(rank, n, 25);
    merak_pace_find(rank, n, 25);
    assert_true(rank[1].slow);
    at[1].median = 1.2;
    fill(at, rank);
    merak_pace_find(rank, n, 25);
    assert_true(rank[1].slow);
    at[1].median = 1.1;
    fill(at, rank);
    merak_pace_find(rank, n, 25);
    assert_false(rank[1].slow);
    at[1].median = 1.2;
    fill(at, rank);
    merak_pace_find(rank, n, 25);
    assert_false(rank[1].slow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_between),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
