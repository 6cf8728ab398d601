/* SPDX-License-Identifier: Apache-2.0 */
/* test_placement.c - the rank map: literal maps, refusals, and what must hold
 * for every site */
#include "config.h"

#include "unit/near.h"
#include "unit/placement/sites.h"

#include "base/rng.h"
#include "placement/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- literal maps ----------------------------------------------------------
 */

static const struct {
    const char *site;
    bool cyclic;
    int tp, pp;
    enum merak_order order;
    int physical_of[12];
} maps[] = {
    /* block: the identity */
    {"a:2,2;b:2,2",
     false,
     2,
     2,
     MERAK_ORDER_TP_DP_PP,
     {0, 1, 2, 3, 4, 5, 6, 7}},
    /* cyclic: tasks 0 and 4 are on n1 */
    {"a:2,2;b:2,2", true, 2, 2, MERAK_ORDER_TP_DP_PP, {0, 4, 1, 5, 2, 6, 3, 7}},
    /* the launcher alternates between leaves: the walk does not */
    {"b:2;a:2;b:2;a:2",
     false,
     2,
     2,
     MERAK_ORDER_TP_DP_PP,
     {2, 3, 6, 7, 0, 1, 4, 5}},
    /* uneven nodes are fine while tp divides each */
    {"a:4,2", false, 2, 1, MERAK_ORDER_TP_DP_PP, {0, 1, 2, 3, 4, 5}},
    /* leaves of 3, 4 and 5 nodes, groups of 4: the whole leaf b and four of
     * c stay together, one group is put together from a and c */
    {"a:1,1,1;b:1,1,1,1;c:1,1,1,1,1",
     false,
     1,
     3,
     MERAK_ORDER_TP_DP_PP,
     {3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2, 11}},
};

static void maps_are_as_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(maps) / sizeof(*maps); i++) {
        struct merak_placement *p;
        struct merak_site s;

        make_site(&s, maps[i].site, maps[i].cyclic);
        p = must_compute(&s, maps[i].tp, maps[i].pp, maps[i].order);
        for (int l = 0; l < s.n_tasks; l++)
            assert_int_equal(merak_placement_physical_of(p, l),
                             maps[i].physical_of[l]);
        merak_placement_destroy(p);
        merak_site_fini(&s);
    }
}

static void orders_number_ranks_as_documented(void **state)
{
    struct merak_placement *p;
    struct merak_coords c;
    struct merak_site s;

    (void)state;
    make_site(&s, "a:4,4;b:4,4", false);
    p = must_compute(&s, 2, 2, MERAK_ORDER_TP_DP_PP);
    c = merak_placement_coords(p, 1 + 2 * (3 + 4 * 1));
    assert_int_equal(c.tp, 1);
    assert_int_equal(c.dp, 3);
    assert_int_equal(c.pp, 1);
    merak_placement_destroy(p);
    p = must_compute(&s, 2, 2, MERAK_ORDER_TP_PP_DP);
    c = merak_placement_coords(p, 1 + 2 * (1 + 2 * 3));
    assert_int_equal(c.tp, 1);
    assert_int_equal(c.dp, 3);
    assert_int_equal(c.pp, 1);
    merak_placement_destroy(p);
    merak_site_fini(&s);
}

static void levels_follow_the_tree(void **state)
{
    struct merak_placement *p;
    struct merak_site s;

    (void)state;
    make_site(&s, "a:2,2;b:2,2", false);
    p = must_compute(&s, 2, 2, MERAK_ORDER_TP_DP_PP);
    assert_int_equal(merak_placement_level(p, 0, 1), 0);
    assert_int_equal(merak_placement_level(p, 0, 2), 1);
    assert_int_equal(merak_placement_level(p, 0, 4), 2);
    assert_int_equal(merak_placement_groups_at(p, MERAK_AXIS_TP, 0), 4);
    assert_int_equal(merak_placement_groups_at(p, MERAK_AXIS_DP, 1), 4);
    assert_int_equal(merak_placement_groups_at(p, MERAK_AXIS_PP, 2), 4);
    merak_placement_destroy(p);
    merak_site_fini(&s);
}

static void auto_keeps_the_heavier_axis_low(void **state)
{
    const struct {
        uint64_t pp_bytes, dp_bytes;
        enum merak_order want;
    } rows[] = {
        {1, 100, MERAK_ORDER_TP_DP_PP},
        {100, 1, MERAK_ORDER_TP_PP_DP},
    };
    struct merak_site s;

    (void)state;
    make_site(&s, "a:1,1;b:1,1", false);
    for (size_t i = 0; i < 2; i++) {
        struct merak_placement_input in = {.site = &s,
                                           .tp = 1,
                                           .pp = 2,
                                           .order = MERAK_ORDER_AUTO,
                                           .pp_bytes = rows[i].pp_bytes,
                                           .dp_bytes = rows[i].dp_bytes};
        struct merak_placement *p;

        assert_int_equal(merak_placement_compute(&in, &p, NULL), MERAK_OK);
        assert_int_equal(merak_placement_order(p), rows[i].want);
        merak_placement_destroy(p);
    }
    merak_site_fini(&s);
}

/* --- refusals --------------------------------------------------------------
 */

static const struct {
    const char *site;
    int tp, pp, dp;
    const char *text;
} refusals[] = {
    {"a:4,4,4", 8, 1, 0,
     "12 tasks cannot be split into tp=8 x pp=1; nearest: 8 or 16 tasks"},
    {"a:1", 2, 2, 0,
     "1 task cannot be split into tp=2 x pp=2; nearest: 4 tasks"},
    {"a:4,4", 2, 2, 3,
     "tp=2 x pp=2 x dp=3 makes 12, not the 8 tasks of the step; nearest: "
     "dp=2, or 12 tasks"},
    {"a:3,1", 2, 1, 0,
     "node n1 has 3 tasks (of 3,1), not a multiple of tp=2; nearest: "
     "--ntasks-per-node=2"},
    {"a:2,2", 4, 1, 0,
     "tp=4 does not fit in node n1, which has 2 tasks; nearest: "
     "--ntasks-per-node=4, tp=2, or --merak-tp-domain=any"},
};

static void what_does_not_fit_is_refused_with_the_nearest(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
        struct merak_placement_input in = {
            .tp = refusals[i].tp, .pp = refusals[i].pp, .dp = refusals[i].dp};
        struct merak_placement *p = NULL;
        struct merak_error err;
        struct merak_site s;

        make_site(&s, refusals[i].site, false);
        in.site = &s;
        assert_int_equal(merak_placement_compute(&in, &p, &err),
                         MERAK_ERR_CONFIG);
        assert_string_equal(err.text, refusals[i].text);
        assert_null(p);
        merak_site_fini(&s);
    }
}

static void degrees_cannot_overflow(void **state)
{
    int tp = MERAK_MAX_DEGREE, pp = MERAK_MAX_DEGREE, dp = 0;

    (void)state;
    assert_int_equal(merak_degrees_resolve(4, 0, 0, &tp, &pp, &dp, NULL),
                     MERAK_ERR_CONFIG);
    tp = MERAK_MAX_DEGREE + 1;
    assert_int_equal(merak_degrees_resolve(4, 0, 0, &tp, &pp, &dp, NULL),
                     MERAK_ERR_PARAM);
    tp = 1;
    pp = -1;
    assert_int_equal(merak_degrees_resolve(4, 0, 0, &tp, &pp, &dp, NULL),
                     MERAK_ERR_PARAM);
}

static void given_degrees_have_to_divide_the_tasks_of_others(void **state)
{
    struct merak_placement_input in = {.tp = 8, .ep = 2, .dp = 2};
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_degrees_check_auto(&in, 64, &err), MERAK_OK);
    assert_int_equal(merak_degrees_check_auto(&in, 40, &err), MERAK_ERR_CONFIG);
    assert_string_equal(err.text, "40 tasks are not a multiple of the 32 of "
                                  "tp=8 x ep=2 x pp=auto x dp=2; nearest: 64 "
                                  "tasks");
    in = (struct merak_placement_input){.cp = MERAK_CP_CHOSEN, .pp = 4};
    assert_int_equal(merak_degrees_check_auto(&in, 6, &err), MERAK_ERR_CONFIG);
    assert_string_equal(err.text, "6 tasks are not a multiple of the 4 of "
                                  "tp=auto x pp=4 x dp=auto; nearest: 8 tasks");
    in.tp = in.ep = in.pp = in.dp = MERAK_MAX_DEGREE;
    assert_int_equal(merak_degrees_check_auto(&in, 64, &err), MERAK_ERR_CONFIG);
}

/* --- what must hold for every site ------------------------------------------
 */

static uint64_t draws;

static int draw(int n)
{
    return (int)(merak_rng_mix(4711, draws++) % (uint64_t)n);
}

/* Up to 12 nodes with multiples of tp tasks below random leaves, the tasks in
 * random order. */
static void random_site(struct merak_site *s, int tp)
{
    int n_nodes = 1 + draw(12), n_tasks = 0, task = 0, per[12];

    for (int i = 0; i < n_nodes; i++)
        n_tasks += per[i] = tp * (1 + draw(3));
    assert_int_equal(merak_site_init(s, n_nodes, n_tasks, NULL), MERAK_OK);
    for (int i = 0; i < n_nodes; i++) {
        char text[32];

        snprintf(text, sizeof(text), "n%d", i * 5 % 12);
        s->node_name[i] = strdup(text);
        snprintf(text, sizeof(text), "r.s%d.l%d", draw(2), draw(4));
        s->node_path[i] = strdup(draw(5) == 0 ? "" : text);
        for (int k = 0; k < per[i]; k++)
            s->node_of_task[task++] = i;
    }
    for (int i = n_tasks - 1; i > 0; i--) {
        int j = draw(i + 1), t = s->node_of_task[i];

        s->node_of_task[i] = s->node_of_task[j];
        s->node_of_task[j] = t;
    }
}

/* The same site with its nodes listed backwards. */
static void reverse_site(const struct merak_site *s, struct merak_site *r)
{
    assert_int_equal(merak_site_init(r, s->n_nodes, s->n_tasks, NULL),
                     MERAK_OK);
    for (int i = 0; i < s->n_nodes; i++) {
        r->node_name[i] = strdup(s->node_name[s->n_nodes - 1 - i]);
        r->node_path[i] = strdup(s->node_path[s->n_nodes - 1 - i]);
    }
    for (int i = 0; i < s->n_tasks; i++)
        r->node_of_task[i] = s->n_nodes - 1 - s->node_of_task[i];
}

static void check_map(const struct merak_placement *p,
                      const struct merak_site *s)
{
    for (int l = 0; l < s->n_tasks; l++) {
        int physical = merak_placement_physical_of(p, l);
        struct merak_coords c = merak_placement_coords(p, l);
        int first;

        assert_in_range(physical, 0, s->n_tasks - 1);
        assert_int_equal(merak_placement_logical_of(p, physical), l);
        assert_int_equal(merak_placement_rank(p, c), l);
        c.tp = 0;
        first = merak_placement_physical_of(p, merak_placement_rank(p, c));
        assert_int_equal(s->node_of_task[physical], s->node_of_task[first]);
    }
}

static void check_round_trip(const struct merak_placement *p,
                             const struct merak_site *s, int tp, int pp)
{
    struct merak_placement_plan plan = {.job = 7, .step = 3}, got;
    struct merak_placement *again;
    char *text;

    plan.site = *s;
    plan.id = merak_placement_id(p);
    merak_placement_resolved(p, &plan.input);
    assert_int_equal(plan.input.tp, tp);
    assert_int_equal(plan.input.pp, pp);
    assert_int_equal(merak_plan_encode(&plan, &text, NULL), MERAK_OK);
    assert_int_equal(merak_plan_decode(text, &got, NULL), MERAK_OK);
    assert_int_equal(got.job, 7);
    assert_int_equal(got.step, 3);
    assert_int_equal(merak_plan_placement(&got, &again, NULL), MERAK_OK);
    for (int l = 0; l < s->n_tasks; l++)
        assert_int_equal(merak_placement_physical_of(again, l),
                         merak_placement_physical_of(p, l));
    merak_placement_destroy(again);
    merak_plan_fini(&got);
    free(text);
}

static void every_map_is_a_bijection_within_nodes(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++) {
        int tp = 1 + draw(4), pp = 1;
        struct merak_placement *p, *q;
        struct merak_site s, r;
        enum merak_order order = (enum merak_order)draw(3);

        random_site(&s, tp);
        while (draw(3) != 0 && s.n_tasks / tp % (pp + 1) == 0)
            pp++;
        reverse_site(&s, &r);
        p = must_compute(&s, tp, pp, order);
        q = must_compute(&r, tp, pp, order);
        check_map(p, &s);
        /* who is listed first must not matter */
        for (int l = 0; l < s.n_tasks; l++)
            assert_int_equal(merak_placement_physical_of(p, l),
                             merak_placement_physical_of(q, l));
        check_round_trip(p, &s, tp, pp);
        merak_placement_destroy(p);
        merak_placement_destroy(q);
        merak_site_fini(&s);
        merak_site_fini(&r);
    }
}

/* --- what a map costs ------------------------------------------------------
 */

/* By the documented rule, links found one by one: 4 to the power of its level
 * for each, in a ring of replicas and a chain of stages.  task_of[] is by
 * coordinates, (stage * dp + replica) * tp + tensor rank. */
static double four_to(int level)
{
    return (double)(1u << 2 * level);
}

static double cost_of(const struct merak_placement *p, const int *task_of,
                      double pp_bytes, double dp_bytes)
{
    int tp = merak_placement_degree(p, MERAK_AXIS_TP);
    int pp = merak_placement_degree(p, MERAK_AXIS_PP);
    int dp = merak_placement_degree(p, MERAK_AXIS_DP);
    double cost = 0;

    for (int s = 0; s < pp; s++) {
        for (int d = 0; d < dp; d++) {
            for (int t = 0; t < tp; t++) {
                int here = task_of[(s * dp + d) * tp + t];
                int ring = task_of[(s * dp + (d + 1) % dp) * tp + t];
                int next =
                    s + 1 < pp ? task_of[((s + 1) * dp + d) * tp + t] : here;

                if (dp > 1)
                    cost += dp_bytes *
                            four_to(merak_placement_level(p, here, ring));
                if (s + 1 < pp)
                    cost += pp_bytes *
                            four_to(merak_placement_level(p, here, next));
            }
        }
    }
    return cost;
}

/* The map, or what arithmetic makes of tasks sorted along the switches, as they
 * are in these sites. */
static void lay_out(const struct merak_placement *p, bool sorted,
                    enum merak_order order, int *task_of)
{
    int tp = merak_placement_degree(p, MERAK_AXIS_TP);
    int pp = merak_placement_degree(p, MERAK_AXIS_PP);
    int dp = merak_placement_degree(p, MERAK_AXIS_DP);

    for (int s = 0; s < pp; s++) {
        for (int d = 0; d < dp; d++) {
            int nth = order == MERAK_ORDER_TP_DP_PP ? d + dp * s : s + pp * d;

            for (int t = 0; t < tp; t++) {
                struct merak_coords c = {.tp = t, .pp = s, .dp = d};

                task_of[(s * dp + d) * tp + t] =
                    sorted ? nth * tp + t
                           : merak_placement_physical_of(
                                 p, merak_placement_rank(p, c));
            }
        }
    }
}

/* Nodes with 1 to 4 times tp tasks, leaves of 1 to 5 nodes below two or three
 * spines, named so that the walk is the order they are listed in. */
static void uneven_site(struct merak_site *s, int tp)
{
    int per[24], n_nodes = 0, n_tasks = 0, task = 0, leaf = 0, left = 0;
    char path[24][32];

    for (n_nodes = 0; n_nodes < 4 + draw(3) * 8; n_nodes++) {
        if (left == 0) {
            left = 1 + draw(5);
            leaf++;
        }
        left--;
        snprintf(path[n_nodes], sizeof(path[0]), "r.s%d.l%d", leaf / 3, leaf);
        n_tasks += per[n_nodes] = tp * (1 + draw(4));
    }
    assert_int_equal(merak_site_init(s, n_nodes, n_tasks, NULL), MERAK_OK);
    for (int i = 0; i < n_nodes; i++) {
        char name[16];

        snprintf(name, sizeof(name), "n%d", i);
        s->node_name[i] = strdup(name);
        s->node_path[i] = strdup(path[i]);
        for (int k = 0; k < per[i]; k++)
            s->node_of_task[task++] = i;
    }
}

static const struct {
    enum merak_order order;
    uint64_t pp_bytes, dp_bytes;
    double pp_weight, dp_weight; /* that this stands for */
} weightings[] = {
    {MERAK_ORDER_AUTO, 0, 0, 1, 1},
    {MERAK_ORDER_AUTO, 1, 10, 1, 10},
    {MERAK_ORDER_AUTO, 10, 1, 10, 1},
    {MERAK_ORDER_AUTO, 3000, 1000000, 3000, 1000000},
    {MERAK_ORDER_AUTO, 0, 5, 0, 5},
    {MERAK_ORDER_TP_DP_PP, 7, 7, 7, 7},
    {MERAK_ORDER_TP_PP_DP, 1, 100, 1, 100},
    {MERAK_ORDER_TP_DP_PP, 0, 0, 1, MERAK_NEARER},
    {MERAK_ORDER_TP_PP_DP, 0, 0, MERAK_NEARER, 1},
};

/* Hold one map against sorted ranks in its order, or in both. */
static bool beats_sorted(const struct merak_site *s, int tp, int pp, size_t w)
{
    struct merak_placement_input in = {.site = s,
                                       .tp = tp,
                                       .pp = pp,
                                       .order = weightings[w].order,
                                       .pp_bytes = weightings[w].pp_bytes,
                                       .dp_bytes = weightings[w].dp_bytes};
    struct merak_placement *p;
    int *task_of = calloc((size_t)s->n_tasks, sizeof(*task_of));
    double mine, sorted = 1e300;

    assert_int_equal(merak_placement_compute(&in, &p, NULL), MERAK_OK);
    lay_out(p, false, in.order, task_of);
    mine =
        cost_of(p, task_of, weightings[w].pp_weight, weightings[w].dp_weight);
    for (int o = 0; o < 2; o++) {
        double cost;

        if (in.order != MERAK_ORDER_AUTO && (int)in.order != o)
            continue;
        lay_out(p, true, (enum merak_order)o, task_of);
        cost = cost_of(p, task_of, weightings[w].pp_weight,
                       weightings[w].dp_weight);
        sorted = cost < sorted ? cost : sorted;
    }
    if (mine > sorted)
        fail_msg("weighting %zu, tp %d, pp %d: %g, sorted ranks %g", w, tp, pp,
                 mine, sorted);
    free(task_of);
    merak_placement_destroy(p);
    return mine < sorted;
}

static void no_map_is_worse_than_sorted_ranks(void **state)
{
    int better = 0, n = 0;

    (void)state;
    for (int i = 0; i < 300; i++) {
        int tp = 1 << draw(3), pp = 1;
        struct merak_site s;

        uneven_site(&s, tp);
        for (int k = 2; k <= 12; k++)
            pp = s.n_tasks / tp % k == 0 && draw(3) != 0 ? k : pp;
        for (size_t w = 0; w < sizeof(weightings) / sizeof(*weightings); w++) {
            better += beats_sorted(&s, tp, pp, w);
            n += pp > 1 && s.n_tasks > tp * pp;
        }
        merak_site_fini(&s);
    }
    /* where there are two axes most maps can be improved on uneven nodes */
    assert_true(better > n / 2);
}

/* The least that any assignment of the tasks from `from` on costs; tp is 1. */
static double least_cost(const struct merak_placement *p, int *task_of,
                         int from, double pp_bytes, double dp_bytes)
{
    int n = merak_placement_n_tasks(p);
    double least = 1e300;

    if (from == n)
        return cost_of(p, task_of, pp_bytes, dp_bytes);
    for (int i = from; i < n; i++) {
        int task = task_of[i];
        double cost;

        task_of[i] = task_of[from];
        task_of[from] = task;
        cost = least_cost(p, task_of, from + 1, pp_bytes, dp_bytes);
        least = cost < least ? cost : least;
        task_of[from] = task_of[i];
        task_of[i] = task;
    }
    return least;
}

static void small_maps_are_the_best_there_are(void **state)
{
    static const char *const sites[] = {
        "a:1,2;b:1;c:2",   "a:1,1;b:1,1;c:1,1", "a:3;b:1;a:2", "a:2;b:2,1;c:1",
        "a:1;b:3;c:1;b:1", "a:5;b:1",           "a:1,1,1;b:3", "a:4;b:1,1",
    };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(sites) / sizeof(*sites); i++) {
        for (size_t w = 0; w < 5; w++) {
            struct merak_placement_input in = {
                .tp = 1,
                .pp = i % 2 == 0 ? 2 : 3,
                .order = MERAK_ORDER_AUTO,
                .pp_bytes = weightings[w].pp_bytes,
                .dp_bytes = weightings[w].dp_bytes};
            const double pp = weightings[w].pp_weight;
            const double dp = weightings[w].dp_weight;
            int task_of[6], any[] = {0, 1, 2, 3, 4, 5};
            struct merak_placement *p;
            struct merak_site s;

            make_site(&s, sites[i / 2], false);
            in.site = &s;
            assert_int_equal(merak_placement_compute(&in, &p, NULL), MERAK_OK);
            lay_out(p, false, in.order, task_of);
            assert_true(cost_of(p, task_of, pp, dp) ==
                        least_cost(p, any, 0, pp, dp));
            merak_placement_destroy(p);
            merak_site_fini(&s);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_as_written),
        cmocka_unit_test(orders_number_ranks_as_documented),
        cmocka_unit_test(levels_follow_the_tree),
        cmocka_unit_test(auto_keeps_the_heavier_axis_low),
        cmocka_unit_test(what_does_not_fit_is_refused_with_the_nearest),
        cmocka_unit_test(degrees_cannot_overflow),
        cmocka_unit_test(given_degrees_have_to_divide_the_tasks_of_others),
        cmocka_unit_test(small_maps_are_the_best_there_are),
        cmocka_unit_test(no_map_is_worse_than_sorted_ranks),
        cmocka_unit_test(every_map_is_a_bijection_within_nodes),
    };

    return cmocka_run_group_tests_name("placement", tests, NULL, NULL);
}
