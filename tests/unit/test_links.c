/* SPDX-License-Identifier: Apache-2.0 */
/* test_links.c - what links of a node and between nodes take */
#include "config.h"

#include "unit/near.h"

#include "partitioner/device/device.h"
#include "partitioner/program/instr_cost.h"

/* The golden sums of the two levels of links. */
static void links_have_levels(void **state)
{
    const struct merak_cost_model m = {.links.level[0].bytes_per_s = 100,
                                       .links.level[0].latency_s = 1,
                                       .links.level[0].ranks = 4,
                                       .links.level[1].bytes_per_s = 10,
                                       .links.level[1].latency_s = 5};

    (void)state;
    assert_true(merak_cost_together(&m, 4, 7));
    assert_false(merak_cost_together(&m, 3, 4));
    assert_true(merak_cost_transfer(&m, 200, true) == 3);
    assert_true(merak_cost_transfer(&m, 200, false) == 25);
    /* 3 peers of 20 bytes inside */
    assert_true(merak_cost_exchange(&m, MERAK_CONVERT_ALL_GATHER, 60, 4, 4) ==
                3 * 1 + 0.6);
    /* 3 inside and 4 outside, of 10 bytes each, there and back */
    assert_near(&(float){(float)merak_cost_exchange(
                    &m, MERAK_CONVERT_ALL_REDUCE, 70, 8, 4)},
                &(float){2 * (3 * 1 + 4 * 5) + 0.3f + 4.0f}, 1, 1e-6f, 0);
    assert_true(merak_cost_exchange(&m, MERAK_CONVERT_ALL_REDUCE, 70, 1, 1) ==
                0);
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
    struct merak_cost_model m = {.links.level[1].bytes_per_s = 10};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct merak_plan plan = {
            .tp = rows[i].tp, .pp = rows[i].pp, .dp = rows[i].dp};
        double got;

        m.links.level[0].ranks = rows[i].node;
        m.links.level[0].way_bytes_per_s = rows[i].of_node;
        got = merak_cost_shared(&m, &plan, rows[i].rank)
                  .links.level[1]
                  .bytes_per_s;
        if (got != rows[i].want)
            fail_msg("row %zu: %g, not %g", i, got, rows[i].want);
    }
}

/* An exchange and a transfer of rank 0 with ranks of the other node: its tensor
 * peer on this node has the same to do. */
static void instructions_share_the_way_out(void **state)
{
    const struct merak_cost_model m = {.links.level[0].bytes_per_s = 100,
                                       .links.level[0].ranks = 2,
                                       .links.level[1].bytes_per_s = 10,
                                       .links.level[1].latency_s = 5,
                                       .links.level[0].way_bytes_per_s = 12};
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
        cmocka_unit_test(ranks_share_the_way_out),
        cmocka_unit_test(instructions_share_the_way_out),
    };

    return cmocka_run_group_tests_name("links", tests, NULL, NULL);
}
