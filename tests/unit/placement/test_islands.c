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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tp_may_leave_a_node_if_told_so),
        cmocka_unit_test(tp_stays_in_a_leaf_if_told_so),
    };

    return cmocka_run_group_tests_name("islands", tests, NULL, NULL);
}
