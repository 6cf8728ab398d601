/* SPDX-License-Identifier: Apache-2.0 */
/* test_links.c - what links of a node and between nodes take */
#include "config.h"

#include "unit/near.h"

#include "partitioner/device/device.h"
#include "partitioner/program/instr_cost.h"

#include <math.h>
#include <string.h>

/* The golden sums of the two levels of links. */
static void links_have_levels(void **state)
{
    const struct merak_links m = {
        .level = {{"link", 4, 1, 100, 0}, {"net", 0, 5, 10, 0}}};
    const struct merak_spread node = {.n = {4}}, both = {.n = {4, 4}},
                              alone = {.n = {1}};
    const int group[] = {1, 3, 4, 7, 8};
    struct merak_spread spread;

    (void)state;
    assert_int_equal(merak_links_level(&m, 4, 7), 0);
    assert_int_equal(merak_links_level(&m, 3, 4), 1);
    spread = merak_links_spread(&m, 4, group, 5);
    assert_int_equal(spread.n[0], 2);
    assert_int_equal(spread.n[1], 3);
    assert_true(merak_links_message_s(&m, 0, 200) == 3);
    assert_true(merak_links_message_s(&m, 1, 200) == 25);
    /* 3 peers of 20 bytes inside */
    assert_true(merak_links_exchange_s(&m, MERAK_CONVERT_ALL_GATHER, 60,
                                       &node) == 3 * 1 + 0.6);
    /* 3 inside and 4 outside, of 10 bytes each, there and back */
    assert_near(&(float){(float)merak_links_exchange_s(
                    &m, MERAK_CONVERT_ALL_REDUCE, 70, &both)},
                &(float){2 * (3 * 1 + 4 * 5) + 0.3f + 4.0f}, 1, 1e-6f, 0);
    assert_true(
        merak_links_exchange_s(&m, MERAK_CONVERT_ALL_REDUCE, 70, &alone) == 0);
}

/* One reduce-scatter of f32 gradients over replicas, some of them on a node:
 * bytes that leave it, and seconds, by hand. */
static void gradients_leave_the_node(void **state)
{
    static const struct {
        double elements, far_bytes, seconds;
        int replicas, inside;
        struct merak_level level[MERAK_LEVELS];
    } rows[] = {
#define H100 {{"link", 8, 8e-6, 3.6e11, 0}, {"net", 0, 15e-6, 4.5e10, 0}}
        {3e9, 10.5e9, 0.237875, 64, 8, H100},
        {8030261248, 16.0605e9, 0.396112, 16, 8, H100},
        {8030261248, 30.1135e9, 0.675924, 128, 8, H100},
        {1e6, 3.5e6, 974.993e-6, 64, 8, H100},
        {1e9, 2e9, 48.6951e-3, 8, 4, H100},
        {1e9, 2e9, 51.3772e-3, 128, 64, H100},
        {1e9,
         2e9,
         43.6515e-3,
         128,
         64,
         {{"link", 64, 8e-6, 9e11, 0}, {"net", 0, 15e-6, 5e10, 0}}},
        {1e9,
         3.5e9,
         11.4415e-3,
         64,
         8,
         {{"link", 8, 8e-6, 3.6e11, 0}, {"net", 0, 8e-6, 3.6e11, 0}}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_links links = {.n_groups = 0};
        const struct merak_spread spread = {
            .n = {rows[i].inside, rows[i].replicas - rows[i].inside}};
        double bytes =
            4 * rows[i].elements * (rows[i].replicas - 1) / rows[i].replicas;
        struct merak_demand demand;
        double got;

        memcpy(links.level, rows[i].level, sizeof(links.level));
        demand = merak_links_exchange(&links, MERAK_CONVERT_REDUCE_SCATTER,
                                      bytes, &spread);
        got = merak_links_demand_s(&links, &demand);
        if (fabs(demand.far_bytes / rows[i].far_bytes - 1) > 5e-6 ||
            fabs(got / rows[i].seconds - 1) > 5e-6)
            fail_msg("row %zu: %g bytes, %g s, not %g and %g", i,
                     demand.far_bytes, got, rows[i].far_bytes,
                     rows[i].seconds);
    }
}

/* As a library does it: of `inside` members on a node one in each of as many
 * rings sends to another node, while links of the node carry the rest; steps of
 * a ring are as many as members, but for a sum that all get, which may go up
 * and down a tree of nodes. */
static void rings_leave_a_node_once(void **state)
{
    static const struct {
        enum merak_convert_kind kind;
        int replicas, inside;
        double bytes, far_bytes, seconds;
    } rows[] = {
        /* 56 hops inside nodes, 7 between: 0.448 + 0.105 ms; then the slower
         * of 0.875 x 11.8125e9 / 3.6e11 and 1.4765625e9 / 4.5e10. */
        {MERAK_CONVERT_REDUCE_SCATTER, 64, 8, 11.8125e9, 1.4765625e9,
         553e-6 + 1.4765625e9 / 4.5e10},
        {MERAK_CONVERT_ALL_GATHER, 64, 8, 11.8125e9, 1.4765625e9,
         553e-6 + 1.4765625e9 / 4.5e10},
        /* up and down: 2 x (7 x 8 us + 3 x 15 us) */
        {MERAK_CONVERT_ALL_REDUCE, 64, 8, 8e4, 1e4, 202e-6 + 1e4 / 4.5e10},
        /* a ring of two nodes has the same two hops as a tree */
        {MERAK_CONVERT_ALL_REDUCE, 2, 1, 8e4, 8e4, 30e-6 + 8e4 / 4.5e10},
        /* nothing is shared: all bytes leave */
        {MERAK_CONVERT_REDUCE_SCATTER, 16, 1, 3e9, 3e9,
         15 * 15e-6 + 3e9 / 4.5e10},
        /* one node, and what is no ring, are as without a library */
        {MERAK_CONVERT_REDUCE_SCATTER, 8, 8, 7e9, 0, 56e-6 + 7e9 / 3.6e11},
        {MERAK_CONVERT_ALL_TO_ALL, 16, 8, 15e8, 8e8,
         7 * 8e-6 + 8 * 15e-6 + 7e8 / 3.6e11 + 8e8 / 4.5e10},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_links links = {.level = {{"link", 8, 8e-6, 3.6e11, 0},
                                              {"net", 0, 15e-6, 4.5e10, 0}}};
        const struct merak_spread spread = {
            .n = {rows[i].inside, rows[i].replicas - rows[i].inside}};
        struct merak_demand demand;
        double got;

        merak_links_use_library(&links, true);
        demand = merak_links_exchange(&links, rows[i].kind, rows[i].bytes,
                                      &spread);
        got = merak_links_demand_s(&links, &demand);
        if (fabs(demand.far_bytes - rows[i].far_bytes) > 1 ||
            fabs(got / rows[i].seconds - 1) > 1e-9)
            fail_msg("row %zu: %.9g bytes, %.9g s, not %.9g and %.9g", i,
                     demand.far_bytes, got, rows[i].far_bytes,
                     rows[i].seconds);
    }
}

/* Sums are the library's only if that was asked for: their order changes. */
static void sums_in_order_are_direct(void **state)
{
    struct merak_links links = {.level = {{"link", 8, 8e-6, 3.6e11, 0},
                                          {"net", 0, 15e-6, 4.5e10, 0}}};
    const struct merak_spread spread = {.n = {8, 56}};

    (void)state;
    merak_links_use_library(&links, false);
    assert_true(merak_links_exchange(&links, MERAK_CONVERT_REDUCE_SCATTER, 63,
                                     &spread)
                    .far_bytes == 56);
    assert_true(
        merak_links_exchange(&links, MERAK_CONVERT_ALL_GATHER, 64, &spread)
            .far_bytes == 8);
}

/* Ranks of a stage that share a node send at the same time: each gets its part
 * of the node's way out, and no more than its own. */
static void ranks_share_the_way_out(void **state)
{
    static const struct {
        int tp, pp, dp, node, rank;
        double of_node, want;
    } rows[] = {
        {2, 2, 2, 4, 0, 20, 5}, /* all of a node are of one stage */
        {2, 2, 2, 4, 7, 20, 5},
        {2, 4, 1, 4, 2, 20, 10}, /* two stages on a node */
        {2, 4, 1, 4, 2, 16, 8},
        {1, 8, 1, 4, 5, 4, 4},
        {1, 8, 1, 4, 5, 40, 10}, /* no more than its own */
        {2, 2, 1, 3, 2, 8, 8},   /* nodes that hold one and a half stages */
        {2, 2, 1, 3, 1, 8, 4},
        {4, 1, 2, 4, 0, 0, 10}, /* nothing is known of the node */
    };
    struct merak_links m = {.level[1].bytes_per_s = 10};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct merak_plan plan = {
            .tp = rows[i].tp, .pp = rows[i].pp, .dp = rows[i].dp};
        struct merak_links shared;
        double got;

        m.level[0].ranks = rows[i].node;
        m.level[0].way_bytes_per_s = rows[i].of_node;
        shared = merak_links_shared(&m, &plan, rows[i].rank);
        got = 40 / merak_links_message_s(&shared, 1, 40);
        if (got != rows[i].want)
            fail_msg("row %zu: %g, not %g", i, got, rows[i].want);
    }
}

/* An exchange and a transfer of rank 0 with ranks of the other node: its tensor
 * peer on this node has the same to do. */
static void instructions_share_the_way_out(void **state)
{
    const struct merak_cost_model m = {
        .links.level = {{"link", 2, 0, 100, 12}, {"net", 0, 5, 10, 0}}};
    struct merak_exchange ex = {.kind = MERAK_CONVERT_REDUCE_SCATTER};
    struct merak_group group = {.n = 2, .rank = (int[]){0, 2}, .name = "dp"};
    const struct merak_program prog = {
        .plan = {.tp = 2, .pp = 1, .dp = 2}, .group = &group, .n_groups = 1};
    struct merak_instr in = {
        .kind = MERAK_INSTR_EXCHANGE, .exchange = &ex, .bytes = 60};

    (void)state;
    assert_true(merak_cost_instr(&m, &prog, &in) == 5 + 60 / 6.0);
    in.kind = MERAK_INSTR_SEND;
    in.peer = 2;
    assert_true(merak_cost_instr(&m, &prog, &in) == 5 + 60 / 6.0);
    in.peer = 1; /* on this node */
    assert_true(merak_cost_instr(&m, &prog, &in) == 0.6);
    group.rank[1] = 1;
    in.kind = MERAK_INSTR_EXCHANGE;
    assert_true(merak_cost_instr(&m, &prog, &in) == 0.6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_have_levels),
        cmocka_unit_test(gradients_leave_the_node),
        cmocka_unit_test(rings_leave_a_node_once),
        cmocka_unit_test(sums_in_order_are_direct),
        cmocka_unit_test(ranks_share_the_way_out),
        cmocka_unit_test(instructions_share_the_way_out),
    };

    return cmocka_run_group_tests_name("links", tests, NULL, NULL);
}
