/* SPDX-License-Identifier: Apache-2.0 */
/* test_islands.c - the domains that tensor groups stay in */
#include "config.h"

#include "unit/placement/sites.h"

static void tp_may_leave_a_node_if_told_so(void **state)
{
    struct merak_placement_input in = {.tp = 4, .tp_domain = MERAK_DOMAIN_ANY};
    struct merak_placement *p;
    struct merak_site s;

    (void)state;
    make_site(&s, "a:2,2;b:2,2", false);
    in.site = &s;
    assert_int_equal(merak_placement_compute(&in, &p, NULL), MERAK_OK);
    assert_int_equal(merak_placement_groups_at(p, MERAK_AXIS_TP, 1), 2);
    merak_placement_destroy(p);
    merak_site_fini(&s);
}

static void tp_stays_in_a_leaf_if_told_so(void **state)
{
    static const struct {
        const char *site;
        int tp;
        const char *text; /* why not; or NULL */
    } rows[] = {
        {"a:2,2;b:2,2", 4, NULL},
        {"a:2,2,2,2;b:2,2", 4, NULL},
        {"a:2,2,2;b:2", 2, NULL},
        {"a:2,2,2;b:2", 4,
         "leaf a has 6 tasks, not a multiple of tp=4; give each leaf whole "
         "groups, as sbatch --segment=2 gives, or --merak-tp-domain=any"},
        {"a:3,1,2;b:2", 8,
         "leaf a has 6 tasks, not a multiple of tp=8; give each leaf whole "
         "groups, as sbatch --segment=4 gives, or --merak-tp-domain=any"},
        {".:2,2", 4,
         "--merak-tp-domain=leaf: Slurm names no leaf switch or block of node "
         "n1; give node or any"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_placement_input in = {.tp = rows[i].tp,
                                           .tp_domain = MERAK_DOMAIN_LEAF};
        struct merak_placement *p = NULL;
        struct merak_error err = {0};
        struct merak_site s;

        make_site(&s, rows[i].site, false);
        in.site = &s;
        assert_int_equal(merak_placement_compute(&in, &p, &err),
                         rows[i].text != NULL ? MERAK_ERR_CONFIG : MERAK_OK);
        if (rows[i].text != NULL)
            assert_string_equal(err.text, rows[i].text);
        else /* no group spans leaves */
            assert_int_equal(merak_placement_groups_at(p, MERAK_AXIS_TP, 2), 0);
        merak_placement_destroy(p);
        merak_site_fini(&s);
    }
}

/* --- islands of nodes, of a plan ------------------------------------------ */

/* Of islands of two nodes each, in a plan's order. */
static void ranks_fill_islands_in_their_order(void **state)
{
    static const int want[] = {4, 5, 6, 7, 0, 1, 2, 3};
    struct merak_placement *p;
    struct merak_site s;

    (void)state;
    make_site(&s, "a:2,2;b:2,2", false);
    assert_int_equal(merak_site_take_islands(&s, "n[3-4];n1,n2", true, NULL),
                     MERAK_OK);
    assert_string_equal(s.node_path[0], "island1.root.a");
    assert_string_equal(s.node_path[3], "island0.root.b");
    p = must_compute(&s, 2, 4, MERAK_ORDER_TP_DP_PP);
    for (int l = 0; l < s.n_tasks; l++)
        assert_int_equal(merak_placement_physical_of(p, l), want[l]);
    merak_placement_destroy(p);
    merak_site_fini(&s);
    make_site(&s, ".:2,2", false); /* no tree is known */
    assert_int_equal(merak_site_take_islands(&s, "n2;n1", true, NULL),
                     MERAK_OK);
    assert_string_equal(s.node_path[0], "island1");
    merak_site_fini(&s);
}

static void nodes_that_are_no_islands_are_refused(void **state)
{
    static const struct {
        const char *islands, *says;
        enum merak_status rc;
    } rows[] = {
        {"n[1-2];n3", "node n4 is in none of the islands n[1-2];n3",
         MERAK_ERR_CONFIG},
        {"n[1-3];n4", "island 1 of 2, n[1-3];n4, has 6 of 8 tasks",
         MERAK_ERR_CONFIG},
        {"n[1-4];n5", "island 1 of 2", MERAK_ERR_CONFIG},
        {"n[1-", "", MERAK_ERR_FORMAT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_error err;
        struct merak_site s;

        make_site(&s, "a:2,2;b:2,2", false);
        assert_int_equal(
            merak_site_take_islands(&s, rows[i].islands, true, &err),
            rows[i].rc);
        assert_non_null(strstr(err.text, rows[i].says));
        assert_string_equal(s.node_path[0], "root.a");
        merak_site_fini(&s);
    }
}

static void islands_may_have_no_nodes_of_a_job(void **state)
{
    struct merak_site s;
    struct merak_error err;

    (void)state;
    make_site(&s, "a:2,2;b:2,2", false);
    assert_int_equal(
        merak_site_take_islands(&s, "n[5-9];n[3-4];n[1-2]", false, &err),
        MERAK_OK);
    assert_string_equal(s.node_path[0], "island2.root.a");
    assert_string_equal(s.node_path[3], "island1.root.b");
    merak_site_fini(&s);
    make_site(&s, "a:2,2;b:2,2", false);
    assert_int_equal(
        merak_site_take_islands(&s, "n[5-9];n[2-4];n1", false, &err),
        MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "island 2 of 3"));
    merak_site_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tp_may_leave_a_node_if_told_so),
        cmocka_unit_test(tp_stays_in_a_leaf_if_told_so),
        cmocka_unit_test(ranks_fill_islands_in_their_order),
        cmocka_unit_test(nodes_that_are_no_islands_are_refused),
        cmocka_unit_test(islands_may_have_no_nodes_of_a_job),
    };

    return cmocka_run_group_tests_name("islands", tests, NULL, NULL);
}
