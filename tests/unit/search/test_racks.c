/* SPDX-License-Identifier: Apache-2.0 */
/* test_racks.c - links that join the nodes of a rack */
#include "config.h"

#include "unit/search/gpt2_request.h"

#include <string.h>

/* A job's nodes are divided evenly over racks. */
static void nodes_are_divided_over_racks(void **state)
{
    static const struct {
        const char *device;
        int nodes, ranks_per_node, joined;
    } rows[] = {
        {"gb200", 1, 4, 1},   {"gb200", 16, 4, 16}, {"gb200", 18, 4, 18},
        {"gb200", 32, 4, 16}, {"gb200", 36, 4, 18}, {"gb200", 20, 4, 10},
        {"gb200", 19, 4, 1},  /* no even share */
        {"gb200", 36, 2, 18}, /* GPUs are left out */
        {"gb200", 2, 64, 1},  /* racks that are called nodes */
        {"gb200", 4, 36, 2},  /* .. and halves of them */
        {"h100", 16, 8, 1},   {"h100", 16, 4, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_device d;
        int joined;

        assert_int_equal(merak_device_find(rows[i].device, &d, NULL), MERAK_OK);
        joined =
            merak_links_of_job(&d.links, rows[i].nodes, rows[i].ranks_per_node)
                .level[0]
                .ranks /
            rows[i].ranks_per_node;
        if (joined != rows[i].joined)
            fail_msg("row %zu: %d, expected %d", i, joined, rows[i].joined);
    }
}

/* Two racks of 16 nodes with 4 ranks each are two nodes of 64. */
static void a_rack_is_planned_as_a_node(void **state)
{
    static const struct request of_nodes = {24, 2048, 16,  50304, "gb200",
                                            2,  64,   256, 8,     .pin.tp = 0};
    struct request of_racks = of_nodes;
    const struct request *request[] = {&of_nodes, &of_racks};
    double step[2];
    int tp[2];

    (void)state;
    of_racks.nodes = 32;
    of_racks.ranks_per_node = 4;
    for (int i = 0; i < 2; i++) {
        struct merak_search_result *result = NULL;
        struct merak_hf_config config;
        struct merak_search_input in;
        struct merak_device device;
        struct merak_error err;

        request_fill(request[i], &config, &device, &in);
        merak_links_set_rack(&device.links, 16);
        if (merak_search(&in, &result, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        step[i] = result->choice[0].step_s;
        tp[i] = result->choice[0].plan.tp;
        merak_search_destroy(result);
    }
    assert_true(step[0] == step[1]);
    assert_int_equal(tp[0], tp[1]);
}

/* Tensor groups may be as large as a rack, unless a launch keeps them in
 * nodes. */
static void groups_are_as_large_as_a_rack(void **state)
{
    static const struct request request = {2,  2048, 16, 50304, "gb200",
                                           16, 4,    8,  8,     .pin.tp = 8};

    (void)state;
    for (int stays = 0; stays < 2; stays++) {
        struct merak_search_result *result = NULL;
        struct merak_hf_config config;
        struct merak_search_input in;
        struct merak_device device;
        struct merak_error err;
        enum merak_status rc;

        request_fill(&request, &config, &device, &in);
        in.stays_on_node = stays != 0;
        rc = merak_search(&in, &result, &err);
        assert_int_equal(rc, stays ? MERAK_ERR_CONFIG : MERAK_OK);
        if (stays)
            assert_non_null(strstr(err.text, "tp must divide the 4 of a node"));
        else
            assert_int_equal(result->choice[0].plan.tp, 8);
        merak_search_destroy(result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_divided_over_racks),
        cmocka_unit_test(a_rack_is_planned_as_a_node),
        cmocka_unit_test(groups_are_as_large_as_a_rack),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
