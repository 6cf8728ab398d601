/* SPDX-License-Identifier: Apache-2.0 */
/* test_refine_links.c - links are corrected by what went over them */
#include "config.h"

#include "unit/near.h"

#include "partitioner/device/device.h"
#include "partitioner/refine/refine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_near_one(const char *what, double got, double want)
{
    if (fabs(got - want) > 0.01 * want)
        fail_msg("%s: %g, not %g", what, got, want);
}

static const struct merak_change *find(const struct merak_change *changes,
                                       int n, const char *what)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(changes[i].what, what) == 0)
            return &changes[i];
    }
    fail_msg("nothing is said of %s", what);
    return NULL;
}

/* A link of no latency gets one from exchanges of no bytes. */
static void links_without_latency_get_one_from_a_trace(void **state)
{
    const struct merak_sample_class class = {.kind = MERAK_SAMPLE_EXCHANGE,
                                             .convert =
                                                 MERAK_CONVERT_ALL_GATHER,
                                             .n = 2,
                                             .inside = 2};
    struct merak_refine *refine;
    struct merak_change *changes;
    struct merak_device d = {.n_tuned = 0};
    struct merak_cost_model cost;
    struct merak_error err = {.status = MERAK_OK};
    int id, n;

    (void)state;
    assert_int_equal(merak_device_find("cpu", &d, &err), MERAK_OK);
    d.links.level[0].latency_s = 0;
    assert_int_equal(merak_refine_create(1, &refine, &err), MERAK_OK);
    assert_int_equal(merak_refine_class(refine, &class, &id, &err), MERAK_OK);
    merak_refine_add(refine, id, 3e-5, 1);
    assert_int_equal(merak_refine_device(refine, MERAK_F32, 2, false, &d,
                                         &changes, &n, &err),
                     MERAK_OK);
    merak_device_cost(&d, MERAK_F32, 0, &cost);
    assert_near_one("exchange",
                    merak_links_exchange_s(&cost.links,
                                           MERAK_CONVERT_ALL_GATHER, 0,
                                           &(struct merak_spread){.n = {2}}),
                    3e-5);
    assert_true(cost.links.group[0].bytes_per_s == 5e9);
    free(changes);
    merak_refine_destroy(refine);
}

/* Transfers to other nodes: bytes, sharers and how many, and what each took. */
struct crossing {
    double bytes, sharers;
    int n;
    double seconds;
};

static struct merak_device cross(double net, double node,
                                 const struct crossing *of, int n)
{
    struct merak_refine *refine;
    struct merak_change *changes;
    struct merak_device d = {.n_tuned = 0};
    struct merak_error err = {.status = MERAK_OK};
    int id, n_changes;

    assert_int_equal(merak_device_find("cpu", &d, &err), MERAK_OK);
    d.links.level[1].bytes_per_s = net;
    d.links.level[0].way_bytes_per_s = node;
    d.links.level[1].latency_s = 1e-4;
    assert_int_equal(merak_refine_create(1, &refine, &err), MERAK_OK);
    for (int i = 0; i < n; i++) {
        const struct merak_sample_class class = {.kind = MERAK_SAMPLE_TRANSFER,
                                                 .size = {.bytes = of[i].bytes},
                                                 .n = 2,
                                                 .inside = 1};

        assert_int_equal(merak_refine_class(refine, &class, &id, &err),
                         MERAK_OK);
        for (int k = 0; k < of[i].n; k++)
            merak_refine_add(refine, id, of[i].seconds, of[i].sharers);
    }
    assert_int_equal(merak_refine_device(refine, MERAK_F32, 4, false, &d,
                                         &changes, &n_changes, &err),
                     MERAK_OK);
    assert_near_one("noted", find(changes, n_changes, "net, bandwidth")->after,
                    d.links.level[1].bytes_per_s);
    if (node > 0)
        assert_near_one("noted",
                        find(changes, n_changes, "net, of a node")->after,
                        d.links.level[0].way_bytes_per_s);
    free(changes);
    merak_refine_destroy(refine);
    return d;
}

/* What ranks of a node took together is the node's, not each one's. */
static void bandwidth_of_a_node_is_corrected_by_its_ranks(void **state)
{
    /* two at a time through a node of 4e8, 2e-4 before each */
    static const struct crossing two[] = {{1e6, 2, 3, 2e-4 + 2e6 / 4e8},
                                          {1e7, 2, 2, 2e-4 + 2e7 / 4e8}};
    /* one at a time, of 3e8 */
    static const struct crossing one[] = {{1e6, 1, 3, 2e-4 + 1e6 / 3e8},
                                          {1e7, 1, 2, 2e-4 + 1e7 / 3e8}};
    /* three at a time through a node of 6e8, and one of 5e8 */
    static const struct crossing both[] = {{1e7, 3, 3, 3e7 / 6e8},
                                           {2e7, 3, 3, 6e7 / 6e8},
                                           {3e7, 1, 3, 3e7 / 5e8},
                                           {4e7, 1, 3, 4e7 / 5e8}};
    /* a rank seems to have more than its node: it has not */
    static const struct crossing odd[] = {{1e7, 2, 3, 2e7 / 4e8},
                                          {3e7, 1, 2, 3e7 / 6e8}};
    struct merak_device d;

    (void)state;
    d = cross(1e9, 1e9, two, 2);
    assert_near_one("rank", d.links.level[1].bytes_per_s, 4e8);
    assert_near_one("node", d.links.level[0].way_bytes_per_s, 4e8);
    assert_near_one("latency", d.links.level[1].latency_s, 2e-4);
    d = cross(1e9, 1.25e9, two, 2); /* in proportion: it does not tell */
    assert_near_one("rank", d.links.level[1].bytes_per_s, 3.2e8);
    assert_near_one("node", d.links.level[0].way_bytes_per_s, 4e8);
    d = cross(1e9, 4e9, one, 2);
    assert_near_one("rank", d.links.level[1].bytes_per_s, 3e8);
    assert_near_one("node", d.links.level[0].way_bytes_per_s, 12e8);
    d = cross(1e9, 2e9, both, 4);
    assert_near_one("rank", d.links.level[1].bytes_per_s, 5e8);
    assert_near_one("node", d.links.level[0].way_bytes_per_s, 6e8);
    d = cross(1e9, 1e9, odd, 2);
    assert_near_one("rank", d.links.level[1].bytes_per_s, 12e7 / (0.15 + 0.1));
    assert_near_one("node", d.links.level[0].way_bytes_per_s,
                    12e7 / (0.15 + 0.1));
    /* nothing is known of nodes, and nothing learnt */
    d = cross(1e9, 0, two, 2);
    assert_near_one("rank", d.links.level[1].bytes_per_s, 2e8);
    assert_true(d.links.level[0].way_bytes_per_s == 0);
}

/* A rack stays as fast as its nodes, and the network beyond it is corrected;
 * with a level between it is not known which of them a transfer used. */
static void levels_are_corrected_as_far_as_known(void **state)
{
    static const struct merak_level level[2][3] = {
        {{"link", 2, 1e-5, 1e9, 0},
         {"rack", 8, 1e-5, 1e9, 0},
         {"net", 0, 1e-4, 1e8, 0}},
        {{"link", 2, 1e-5, 1e9, 0},
         {"leaf", 8, 1e-4, 2e8, 0},
         {"net", 0, 1e-4, 1e8, 0}},
    };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct merak_refine *refine;
        struct merak_change *changes;
        struct merak_device d = {.n_tuned = 0};
        struct merak_error err = {.status = MERAK_OK};
        int id, n_changes;

        assert_int_equal(merak_device_find("cpu", &d, &err), MERAK_OK);
        memcpy(d.links.level, level[i], sizeof(level[i]));
        assert_int_equal(merak_refine_create(1, &refine, &err), MERAK_OK);
        for (int inside = 1; inside <= 2; inside++) {
            for (int k = 1; k <= 2; k++) {
                const struct merak_sample_class class = {
                    .kind = MERAK_SAMPLE_TRANSFER,
                    .size = {.bytes = k * 1e7},
                    .n = 2,
                    .inside = inside};

                assert_int_equal(merak_refine_class(refine, &class, &id, &err),
                                 MERAK_OK);
                /* half as fast as the device says */
                merak_refine_add(refine, id,
                                 inside == 2 ? 2e-5 + k * 1e7 / 5e8
                                             : 2e-4 + k * 1e7 / 5e7,
                                 1);
            }
        }
        assert_int_equal(merak_refine_device(refine, MERAK_F32, 2, false, &d,
                                             &changes, &n_changes, &err),
                         MERAK_OK);
        assert_near_one("link", d.links.level[0].bytes_per_s, 5e8);
        if (i == 0) {
            assert_true(d.links.level[1].bytes_per_s ==
                        d.links.level[0].bytes_per_s);
            assert_true(d.links.level[1].latency_s ==
                        d.links.level[0].latency_s);
            assert_near_one("net", d.links.level[2].bytes_per_s, 5e7);
        } else {
            assert_true(d.links.level[1].bytes_per_s == 2e8);
            assert_true(d.links.level[2].bytes_per_s == 1e8);
        }
        free(changes);
        merak_refine_destroy(refine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_without_latency_get_one_from_a_trace),
        cmocka_unit_test(bandwidth_of_a_node_is_corrected_by_its_ranks),
        cmocka_unit_test(levels_are_corrected_as_far_as_known),
    };

    return cmocka_run_group_tests_name("refine_links", tests, NULL, NULL);
}
