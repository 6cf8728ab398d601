/* SPDX-License-Identifier: Apache-2.0 */
/* test_reach.c - stages of unlike ranks against every way to make them */
#include "config.h"

#include "unit/near.h"

#include "base/rng.h"
#include "partitioner/search/reach.h"

#include <float.h>

#define MOST 16 /* segments, types */

/* Work of segments, speeds of types, and the memory of a rank. */
struct world {
    int n, n_types, node;
    double work[MOST], speed[MOST], keeps, memory;
    int ranks[MOST];
    long asked;
};

static double seconds(void *arg, int type, int flight, int from, int to)
{
    struct world *w = arg;
    double work = 0;

    w->asked++;
    for (int i = from; i < to; i++)
        work += w->work[i];
    if (w->memory > 0 &&
        work * (1 + w->keeps * flight) > w->memory * w->ranks[type])
        return DBL_MAX;
    return work / w->speed[type];
}

static bool may_be(const void *arg, int type, int first)
{
    const struct world *w = arg;
    int last = first + w->ranks[type] - 1;

    return w->node == 0 || first / w->node == last / w->node ||
           (first % w->node == 0 && w->ranks[type] % w->node == 0);
}

static struct merak_reach_input input_of(struct world *w, int ranks, int most)
{
    return (struct merak_reach_input){.n = w->n,
                                      .last = w->n - 1,
                                      .ranks = ranks,
                                      .most_stages = most,
                                      .n_types = w->n_types,
                                      .type_ranks = w->ranks,
                                      .may_be = may_be,
                                      .seconds = seconds,
                                      .arg = w};
}

/* --- every way -------------------------------------------------------------
 */

static double least_of_all(struct world *w, int stages, int ranks, int all,
                           int from, double so_far)
{
    double least = DBL_MAX;

    if (stages == 0)
        return ranks == 0 && from == w->n ? so_far : DBL_MAX;
    for (int t = 0; t < w->n_types; t++) {
        if (w->ranks[t] > ranks || !may_be(w, t, all - ranks))
            continue;
        for (int to = from + 1; to <= w->n; to++) {
            double took = seconds(w, t, stages, from, to);
            double rest =
                took == DBL_MAX
                    ? DBL_MAX
                    : least_of_all(w, stages - 1, ranks - w->ranks[t], all, to,
                                   took > so_far ? took : so_far);

            least = rest < least ? rest : least;
        }
    }
    return least;
}

static double found(struct world *w, int ranks, int stages)
{
    const struct merak_reach_input in = input_of(w, ranks, stages);
    struct merak_reach_stage stage[MOST];
    struct merak_reach *reach = NULL;
    double period, longest = 0;
    int used = 0;

    assert_int_equal(merak_reach_create(&in, &reach, NULL), MERAK_OK);
    period = merak_reach_least(reach, stages, stage);
    merak_reach_destroy(reach);
    if (period == DBL_MAX)
        return period;
    assert_int_equal(stage[0].from, 0);
    for (int s = 0; s < stages; s++) {
        int to = s + 1 < stages ? stage[s + 1].from : w->n;
        double took =
            seconds(w, stage[s].type, stages - s, stage[s].from, to);

        assert_true(to > stage[s].from);
        assert_true(may_be(w, stage[s].type, used));
        used += w->ranks[stage[s].type];
        longest = took > longest ? took : longest;
    }
    assert_int_equal(used, ranks);
    assert_true(longest == period);
    return period;
}

static void check_near(double got, double want, double rel)
{
    assert_near(&got, &want, 1, rel, 0.0);
}

/* --- tests ----------------------------------------------------------------
 */

/* The specification's golden values: the least period and its stages. */
static void golden_periods(void **state)
{
    static const struct {
        int ranks, stages;
        double period;
    } row[] = {{4, 1, 6.857143}, {6, 2, 4.571429}, {7, 3, 4.0}, {8, 2, 4.0}};
    struct world w = {.n = 6,
                      .n_types = 3,
                      .work = {8, 6, 4, 2, 2, 2},
                      .speed = {1, 1.9, 3.5},
                      .ranks = {1, 2, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        double least = DBL_MAX;
        int at = 0;

        for (int s = 1; s <= 6; s++) {
            double period = found(&w, row[i].ranks, s);

            if (period < least * 0.999) {
                least = period;
                at = s;
            }
        }
        assert_int_equal(at, row[i].stages);
        check_near(least, row[i].period, 1e-6);
    }
}

/* 12 equal segments on ranks of speeds 2 2 1 1: 4 4 2 2. */
static bool in_order(const void *arg, int type, int first)
{
    (void)arg;
    return (first >= 2) == (type == 1);
}

static void two_kinds(void **state)
{
    struct world w = {.n = 12, .n_types = 2, .speed = {2, 1}, .ranks = {1, 1}};
    struct merak_reach_input in = input_of(&w, 4, 4);
    struct merak_reach_stage stage[MOST];
    struct merak_reach *reach = NULL;

    (void)state;
    for (int i = 0; i < w.n; i++)
        w.work[i] = 1;
    in.may_be = in_order;
    assert_int_equal(merak_reach_create(&in, &reach, NULL), MERAK_OK);
    check_near(merak_reach_least(reach, 4, stage), 2.0, 1e-9);
    merak_reach_destroy(reach);
    assert_int_equal(stage[1].from, 4);
    assert_int_equal(stage[2].from, 8);
    assert_int_equal(stage[3].from, 10);
}

/* Work 3 : 1 on 4 ranks: replicas 3 and 1. */
static void replicas_by_stage(void **state)
{
    struct world w = {.n = 2,
                      .n_types = 3,
                      .work = {3, 1},
                      .speed = {1, 2, 3},
                      .ranks = {1, 2, 3}};

    (void)state;
    check_near(found(&w, 4, 2), 1.0, 1e-9);
}

static void draw(struct world *w, uint64_t key, int *ranks, int *stages)
{
    uint64_t at = 0;
#define DRAW(n) ((int)(merak_rng_mix(key, at++) % (uint64_t)(n)))

    *w = (struct world){.n = 2 + DRAW(7), .n_types = 1 + DRAW(4)};
    *ranks = 1 + DRAW(8);
    *stages = 1 + DRAW(4);
    for (int i = 0; i < w->n; i++)
        w->work[i] = 1 + DRAW(9);
    for (int t = 0; t < w->n_types; t++) {
        w->ranks[t] = t == 0 ? 1 : 1 + DRAW(4);
        w->speed[t] = w->ranks[t] * (1 - 0.05 * DRAW(6));
    }
    w->keeps = 0.2 * DRAW(4);
    w->memory = DRAW(2) == 0 ? 0 : 8 + DRAW(30);
    w->node = DRAW(3) == 0 ? 4 : 0;
#undef DRAW
}

static void random_instances(void **state)
{
    int feasible = 0, n = 400;

    (void)state;
    for (int i = 0; i < n; i++) {
        int ranks, stages;
        struct world w;
        double want, got;

        draw(&w, merak_rng_key((uint64_t)i, "reach"), &ranks, &stages);
        want = least_of_all(&w, stages, ranks, ranks, 0, 0);
        got = found(&w, ranks, stages);
        if (want == DBL_MAX) {
            assert_true(got == DBL_MAX);
            continue;
        }
        feasible++;
        if (got < want * (1 - 1e-12) || got > want * 1.0011)
            fail_msg("instance %d: %g, not %g", i, got, want);
    }
    print_message("# %d of %d instances have stages\n", feasible, n);
    assert_in_range(feasible, n / 5, n);
}

/* 64 ranks are little work. */
static void asks_little(void **state)
{
    struct world w = {.n = MOST, .n_types = 4, .ranks = {1, 2, 4, 8}};

    (void)state;
    for (int i = 0; i < w.n; i++)
        w.work[i] = 1 + i % 3;
    for (int t = 0; t < w.n_types; t++)
        w.speed[t] = w.ranks[t];
    found(&w, 64, 8);
    assert_in_range(w.asked, 1, 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_periods),
        cmocka_unit_test(two_kinds),
        cmocka_unit_test(replicas_by_stage),
        cmocka_unit_test(random_instances),
        cmocka_unit_test(asks_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
