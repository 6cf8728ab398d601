/* SPDX-License-Identifier: Apache-2.0 */
/* test_levels.c - links in more levels than nodes and what is between them */
#include "config.h"

#include "unit/search/gpt2_request.h"

#include "partitioner/program/instr_cost.h"
#include "partitioner/search/search_impl.h"

#include <math.h>
#include <string.h>

#define NVLINK                     \
    {                              \
        "node", 8, 8e-6, 3.6e11, 0 \
    }
#define NET                        \
    {                              \
        "net", 0, 15e-6, 4.5e10, 0 \
    }

static void assert_near_one(const char *what, double got, double want)
{
    if (fabs(got / want - 1) > 1e-9)
        fail_msg("%s: %.12g, not %.12g", what, got, want);
}

/* --- which levels a job has ------------------------------------------------
 */

/* Domains hold whole ones of the level inside and divide the job evenly; what
 * leaves them is as much of the whole as they have of its nodes. */
static void a_job_fills_its_domains(void **state)
{
    static const struct {
        struct merak_level level[MERAK_LEVELS];
        int nodes, ranks_per_node;
        int ranks[MERAK_LEVELS];
        double way[MERAK_LEVELS];
    } rows[] = {
        {{NVLINK, {"leaf", 64, 9e-6, 4.5e10, 32}, NET},
         16,
         8,
         {8, 64, 0},
         {0, 32, 0}},
        /* 12 nodes: two leaves of 6 */
        {{NVLINK, {"leaf", 64, 9e-6, 4.5e10, 32}, NET},
         12,
         8,
         {8, 48, 0},
         {0, 24, 0}},
        /* 7 nodes are below one leaf, 11 anywhere */
        {{NVLINK, {"leaf", 64, 9e-6, 4.5e10, 32}, NET},
         7,
         8,
         {8, 56, 0},
         {0, 28, 0}},
        {{NVLINK, {"leaf", 64, 9e-6, 4.5e10, 32}, NET}, 11, 8, {8, 0}, {4, 0}},
        /* the other GPUs of the nodes are not this job's */
        {{NVLINK, {"leaf", 64, 9e-6, 4.5e10, 32}, NET},
         16,
         4,
         {4, 32, 0},
         {0, 32, 0}},
        /* 16 of a rack's 18 nodes, 4 racks below a leaf */
        {{{"node", 4, 8e-6, 7e11, 0},
          {"nvl", 72, 9e-6, 7e11, 0},
          {"leaf", 288, 15e-6, 5e10, 0},
          {"net", 0, 20e-6, 5e10, 0}},
         128,
         4,
         {4, 64, 256, 0},
         {0, 0, 0, 0}},
        /* as fast as a node, as a rack with NVLink: one level */
        {{{"node", 4, 8e-6, 7e11, 0},
          {"nvl", 72, 8e-6, 7e11, 0},
          {"leaf", 288, 15e-6, 5e10, 0},
          {"net", 0, 15e-6, 5e10, 0}},
         128,
         4,
         {64, 0},
         {0, 0}},
        /* .. but not if what leaves a node is limited */
        {{{"node", 4, 8e-6, 7e11, 6}, {"nvl", 72, 8e-6, 7e11, 0}, NET},
         36,
         4,
         {4, 72, 0},
         {6, 0, 0}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_links device = {.n_groups = 0}, job;

        memcpy(device.level, rows[i].level, sizeof(device.level));
        job =
            merak_links_of_job(&device, rows[i].nodes, rows[i].ranks_per_node);
        for (int l = 0; l <= merak_links_last(&job); l++) {
            if (job.level[l].ranks != rows[i].ranks[l] ||
                fabs(job.level[l].way_bytes_per_s - rows[i].way[l]) > 1e-12)
                fail_msg("row %zu, level %d: %d ranks, %g, expected %d, %g", i,
                         l, job.level[l].ranks, job.level[l].way_bytes_per_s,
                         rows[i].ranks[l], rows[i].way[l]);
        }
    }
}

/* Nodes that a rack's links join have adapters of their own. */
static void a_rack_has_the_adapters_of_its_nodes(void **state)
{
    struct merak_links device = {.level = {{"link", 4, 8e-6, 7e11, 1e11}, NET}};
    struct merak_links job;

    (void)state;
    merak_links_set_rack(&device, 18);
    job = merak_links_of_job(&device, 32, 4);
    assert_int_equal(job.level[0].ranks, 64);
    assert_near_one("rack", job.level[0].way_bytes_per_s, 16e11);
    job = merak_links_of_job(&device, 19, 4);
    assert_int_equal(job.level[0].ranks, 4);
    assert_near_one("node", job.level[0].way_bytes_per_s, 1e11);
    merak_links_set_rack(&device, 1);
    assert_int_equal(merak_links_last(&device), 1);
    assert_near_one("no rack", device.level[0].way_bytes_per_s, 1e11);
}

/* --- what takes how long ----------------------------------------------------
 */

struct sum {
    struct merak_spread spread;
    enum merak_convert_kind kind;
    double bytes; /* that each member sends */
};

/* Sums of gradients done at once, or inside domains first: bytes by level, and
 * seconds, by hand.  4 bytes an element, of which 1 - 1 / n are sent. */
static void sums_are_as_by_hand(void **state)
{
    static const struct {
        const char *what;
        struct merak_level level[MERAK_LEVELS];
        struct sum sum[3];
        double bytes[MERAK_LEVELS - 1]; /* by level, from 1 on */
        double seconds;
        bool rings;
    } rows[] = {
#define RS MERAK_CONVERT_REDUCE_SCATTER
#define AG MERAK_CONVERT_ALL_GATHER
        {"3e9 elements over 8, then 8 nodes",
         {NVLINK, NET},
         {{{.n = {8}}, RS, 10.5e9}, {{.n = {1, 7}}, RS, 1.3125e9}},
         {1.3125e9},
         0.0584943,
         false},
        {"8 B over 8, then 2 nodes",
         {NVLINK, NET},
         {{{.n = {8}}, RS, 28.105914e9}, {{.n = {1, 1}}, RS, 2.007565e9}},
         {2.007565e9},
         0.122756,
         false},
        {"8 B over 8, then 16 nodes",
         {NVLINK, NET},
         {{{.n = {8}}, RS, 28.105914e9}, {{.n = {1, 15}}, RS, 3.764185e9}},
         {3.764185e9},
         0.162002,
         false},
        {"1e6 over 8, then 8 nodes",
         {NVLINK, NET},
         {{{.n = {8}}, RS, 3.5e6}, {{.n = {1, 7}}, RS, 437500}},
         {437500},
         180.444e-6,
         false},
        {"1e9 over 4, then 2 nodes",
         {NVLINK, NET},
         {{{.n = {4}}, RS, 3e9}, {{.n = {1, 1}}, RS, 0.5e9}},
         {0.5e9},
         19.4834e-3,
         false},
        {"1e9 over the 64 of a rack, then 2",
         {{"node", 64, 8e-6, 9e11, 0}, {"net", 0, 15e-6, 5e10, 0}},
         {{{.n = {64}}, RS, 3.9375e9}, {{.n = {1, 1}}, RS, 31.25e6}},
         {31.25e6},
         5.5190e-3,
         false},
        {"over 8, 8 below a leaf, then 8 leaves",
         {NVLINK, {"leaf", 64, 10e-6, 9e10, 0}, NET},
         {{{.n = {8}}, RS, 3.5e9},
          {{.n = {1, 7}}, RS, 437.5e6},
          {{.n = {1, 0, 7}}, RS, 54.6875e6}},
         {437.5e6, 54.6875e6},
         16.0296e-3,
         false},
        {"over 4, 16 of a rack as fast, then 8 racks",
         {{"node", 4, 8e-6, 9e11, 0},
          {"nvl", 64, 8e-6, 9e11, 0},
          {"net", 0, 15e-6, 5e10, 0}},
         {{{.n = {4}}, RS, 3e9},
          {{.n = {1, 15}}, RS, 937.5e6},
          {{.n = {1, 0, 7}}, RS, 54.6875e6}},
         {937.5e6, 54.6875e6},
         5.71775e-3,
         false},
        /* all 512 at once: 7, 56 and 448 peers of 1e9 / 128 each */
        {"at once over three levels",
         {NVLINK, {"leaf", 64, 10e-6, 9e10, 0}, NET},
         {{{.n = {8, 56, 448}}, RS, 511e9 / 128}},
         {56e9 / 128, 448e9 / 128},
         7 * 8e-6 + 56 * 10e-6 + 448 * 15e-6 + 7e9 / 128 / 3.6e11 +
             56e9 / 128 / 9e10 + 448e9 / 128 / 4.5e10,
         false},
        /* of 64 hops between nodes 56 are below a leaf; the others set the
         * pace: 448 hops in nodes, 56 and 7 between */
        {"along rings over three levels",
         {NVLINK, {"leaf", 64, 10e-6, 9e10, 0}, NET},
         {{{.n = {8, 56, 448}}, AG, 511e9 / 128}},
         {511e9 / 1024 * 7 / 8, 511e9 / 1024 / 8},
         448 * 8e-6 + 56 * 10e-6 + 7 * 15e-6 + 511e9 / 1024 / 4.5e10,
         true},
        /* up and down: 7 in a node, 3 of leaves and 3 of nodes below one */
        {"along trees over three levels",
         {NVLINK, {"leaf", 64, 10e-6, 9e10, 0}, NET},
         {{{.n = {8, 56, 448}}, MERAK_CONVERT_ALL_REDUCE, 8e4}},
         {1e4 * 7 / 8, 1e4 / 8},
         2 * (7 * 8e-6 + 3 * 10e-6 + 3 * 15e-6) + 1e4 / 4.5e10,
         true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_links links = {.n_groups = 0};
        double bytes[MERAK_LEVELS] = {0}, seconds = 0;

        memcpy(links.level, rows[i].level, sizeof(links.level));
        if (rows[i].rings)
            merak_links_use_library(&links, true);
        for (int k = 0; k < 3 && rows[i].sum[k].bytes > 0; k++) {
            const struct sum *sum = &rows[i].sum[k];
            const struct merak_demand demand = merak_links_exchange(
                &links, sum->kind, sum->bytes, &sum->spread);

            seconds += merak_links_demand_s(&links, &demand);
            for (int l = 1; l <= merak_links_last(&links); l++)
                bytes[l] += merak_demand_part(&demand, l) * demand.far_bytes;
        }
        if (fabs(seconds / rows[i].seconds - 1) > 5e-6)
            fail_msg("%s: %.9g s, not %.9g", rows[i].what, seconds,
                     rows[i].seconds);
        for (int l = 1; l <= merak_links_last(&links); l++) {
            if (fabs(bytes[l] / rows[i].bytes[l - 1] - 1) > 1e-6)
                fail_msg("%s: %.9g bytes at level %d, not %.9g", rows[i].what,
                         bytes[l], l, rows[i].bytes[l - 1]);
        }
    }
}

/* 1e11 bytes a second leave a node of 8, so 12.5e9 for each: at once 10.5e9
 * leave, or 1.3125e9 after a sum inside. */
static void a_way_out_is_shared(void **state)
{
    const struct merak_links links = {
        .level = {{"node", 8, 0, 3.6e11, 1e11}, {"net", 0, 0, 4.5e10, 0}}};
    const struct merak_plan plan = {.tp = 1, .pp = 1, .dp = 64};
    const struct merak_links shared = merak_links_shared(&links, &plan, 0);
    const struct merak_spread outer = {.n = {1, 7}};
    const struct merak_spread all = {.n = {8, 56}};

    (void)state;
    assert_near_one("at once",
                    merak_links_exchange_s(&shared, RS, 11.8125e9, &all) -
                        1.3125e9 / 3.6e11,
                    0.84);
    assert_near_one("inside first",
                    merak_links_exchange_s(&shared, RS, 1.3125e9, &outer),
                    0.105);
}

/* Below a leaf 4 nodes of 2 ranks, of 4 stages; what leaves the leaf is half of
 * what its ranks could send. */
static void a_leaf_has_a_way_out(void **state)
{
    const struct merak_links links = {.level = {{"node", 2, 0, 100, 0},
                                                {"leaf", 8, 0, 10, 40},
                                                {"net", 0, 0, 10, 0}}};
    const struct merak_plan plan = {.tp = 1, .pp = 4, .dp = 8};
    const struct merak_spread stage =
        merak_links_sharers(&links, &plan, 0, false);
    const struct merak_spread all = merak_links_sharers(&links, &plan, 0, true);
    const struct merak_links own = merak_links_shared(&links, &plan, 0);
    const struct merak_links full = merak_links_contended(&links, &all);
    const struct merak_spread spread = {.n = {2, 6, 8}};
    double sum_s;

    (void)state;
    /* ranks go tp, dp, pp: a leaf is one stage */
    assert_int_equal(stage.n[1], 8);
    assert_int_equal(all.n[1], 8);
    assert_true(merak_links_message_s(&own, 1, 40) == 4);
    assert_true(merak_links_message_s(&own, 2, 40) == 8);
    assert_true(merak_links_message_s(&full, 2, 40) == 8);
    /* 15 peers of 1 byte: 14 are sent in 1.4 s, 8 have to leave the leaf */
    sum_s = merak_links_exchange_s(&own, RS, 15, &spread);
    assert_true(fabs(sum_s - (1 / 100.0 + 8 / 5.0)) < 1e-6);
}

/* --- plans ------------------------------------------------------------------
 */

static struct merak_search_result *search(const struct request *request,
                                          const struct merak_level *level,
                                          bool fast_sums,
                                          struct merak_error *err)
{
    struct merak_search_result *result = NULL;
    struct merak_hf_config config;
    struct merak_search_input in;
    struct merak_device device;

    request_fill(request, &config, &device, &in);
    memcpy(device.links.level, level, sizeof(device.links.level));
    in.direct = in.fast_sums = fast_sums;
    if (merak_search(&in, &result, err) != MERAK_OK)
        assert_null(result);
    return result;
}

/* More levels that are as fast change no prediction by a bit. */
static void equal_levels_change_nothing(void **state)
{
    static const struct request request = {
        4,      1024,
        16,     50304,
        "h100", 8,
        8,      64,
        8,      .pin = {.tp = 2, .pp = 2, .chunks = 1, .micro_batch = 1}};
    static const struct merak_level level[][MERAK_LEVELS] = {
        {NVLINK, NET},
        {NVLINK, {"leaf", 32, 15e-6, 4.5e10, 0}, NET},
        {NVLINK,
         {"leaf", 16, 15e-6, 4.5e10, 0},
         {"pod", 32, 15e-6, 4.5e10, 0},
         NET},
    };

    (void)state;
    for (int sums = 0; sums < 2; sums++) {
        struct merak_search_result *result[3];

        for (int i = 0; i < 3; i++) {
            struct merak_error err;

            result[i] = search(&request, level[i], sums != 0, &err);
            if (result[i] == NULL)
                fail_msg("%s", err.text);
        }
        for (int i = 1; i < 3; i++) {
            assert_int_equal(result[i]->n_choices, result[0]->n_choices);
            for (int c = 0; c < result[0]->n_choices; c++) {
                assert_true(result[i]->choice[c].step_s ==
                            result[0]->choice[c].step_s);
                assert_int_equal(
                    merak_search_compare_plans(&result[i]->choice[c].plan,
                                               &result[0]->choice[c].plan),
                    0);
            }
        }
        for (int i = 0; i < 3; i++)
            merak_search_destroy(result[i]);
    }
}

/* Tensor groups leave nodes for links that are not much slower. */
static void groups_are_as_large_as_fast_domains(void **state)
{
    static const struct request request = {2, 2048, 16, 50304, "b200",
                                           4, 4,    8,  8,     .pin.tp = 8};
    static const struct {
        double rate, way;
        const char *refusal;
    } rows[] = {
        {7e11, 0, NULL},
        {2e11, 0, NULL},
        {1.6e11, 0, "tp must divide the 4 of a node"},
        {2e11, 6.4e11, "tp must divide the 4 of a node"}, /* 1.6e11 each */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct merak_level level[MERAK_LEVELS] = {
            {"node", 4, 8e-6, 7e11, rows[i].way},
            {"nvl", 8, 9e-6, rows[i].rate, 0},
            NET};
        struct merak_error err = {0};
        struct merak_search_result *result =
            search(&request, level, false, &err);

        if (rows[i].refusal == NULL && result == NULL)
            fail_msg("row %zu: %s", i, err.text);
        if (rows[i].refusal != NULL &&
            (result != NULL || strstr(err.text, rows[i].refusal) == NULL))
            fail_msg("row %zu: no \"%s\" in \"%s\"", i, rows[i].refusal,
                     err.text);
        merak_search_destroy(result);
    }
}

/* A narrower way out of a leaf never makes a step shorter, and one that is
 * narrow enough makes it longer. */
static void narrow_leaves_cost_time(void **state)
{
    static const struct request request = {
        4,      1024,
        16,     50304,
        "h100", 8,
        8,      64,
        8,      .pin = {.tp = 2, .pp = 2, .chunks = 1, .micro_batch = 1}};
    static const double way[] = {0, 32 * 4.5e10, 1e11, 1e10, 1e9};
    double before = 0, first = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(way) / sizeof(*way); i++) {
        const struct merak_level level[MERAK_LEVELS] = {
            NVLINK, {"leaf", 32, 15e-6, 4.5e10, way[i]}, NET};
        struct merak_error err;
        struct merak_search_result *result =
            search(&request, level, false, &err);
        double step_s;

        if (result == NULL)
            fail_msg("%s", err.text);
        step_s = result->choice[0].step_s;
        if (step_s < before)
            fail_msg("%g bytes/s out of a leaf: %.9g s, %.9g with more", way[i],
                     step_s, before);
        before = step_s;
        first = i == 0 ? step_s : first;
        merak_search_destroy(result);
    }
    assert_true(before > 1.05 * first);
}

/* Where a replica is a node, sums go over those below a leaf first, if little
 * can leave it. */
static void sums_stay_below_a_leaf(void **state)
{
    static const struct {
        double way;
        int dp_in; /* of 8 replicas */
    } rows[] = {{0, 1}, {1e11, 4}};
    struct request request = {
        4,      2048,
        16,     50304,
        "h100", 8,
        8,      64,
        8,      .pin = {.tp = 8, .pp = 1, .chunks = 1, .micro_batch = 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct merak_level level[MERAK_LEVELS] = {
            NVLINK, {"leaf", 32, 15e-6, 4.5e10, rows[i].way}, NET};
        double step_s[2];

        for (int summed = 0; summed < 2; summed++) {
            struct merak_error err;
            struct merak_search_result *result;

            request.pin.dp_in = summed ? MERAK_OPTION_AUTO : 1;
            request.pin.given[MERAK_CHOICE_DP_IN] = !summed;
            result = search(&request, level, false, &err);
            if (result == NULL)
                fail_msg("%s", err.text);
            step_s[summed] = result->choice[0].step_s;
            assert_int_equal(result->choice[0].plan.dp_in,
                             summed ? rows[i].dp_in : 1);
            merak_search_destroy(result);
        }
        assert_true(rows[i].dp_in == 1 ? step_s[1] == step_s[0]
                                       : step_s[1] < 0.8 * step_s[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_fills_its_domains),
        cmocka_unit_test(a_rack_has_the_adapters_of_its_nodes),
        cmocka_unit_test(sums_are_as_by_hand),
        cmocka_unit_test(a_way_out_is_shared),
        cmocka_unit_test(a_leaf_has_a_way_out),
        cmocka_unit_test(equal_levels_change_nothing),
        cmocka_unit_test(groups_are_as_large_as_fast_domains),
        cmocka_unit_test(narrow_leaves_cost_time),
        cmocka_unit_test(sums_stay_below_a_leaf),
    };

    return cmocka_run_group_tests_name("levels", tests, NULL, NULL);
}
