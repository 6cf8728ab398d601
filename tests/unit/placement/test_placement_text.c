/* SPDX-License-Identifier: Apache-2.0 */
/* test_placement_text.c - a placement as text: written, read, shown */
#include "config.h"

#include "unit/placement/sites.h"

#include "base/rng.h"

static int draw(int n)
{
    static uint64_t draws;

    return (int)(merak_rng_mix(4711, draws++) % (uint64_t)n);
}

static char *encoded(const char *site, bool cyclic)
{
    struct merak_placement_plan plan = {.job = 12, .step = 0};
    struct merak_placement *p;
    char *text;

    make_site(&plan.site, site, cyclic);
    p = must_compute(&plan.site, 2, 1, MERAK_ORDER_TP_DP_PP);
    plan.id = merak_placement_id(p);
    plan.input.tp = 2;
    plan.input.pp = 1;
    plan.input.dp = plan.site.n_tasks / 2;
    assert_int_equal(merak_plan_encode(&plan, &text, NULL), MERAK_OK);
    merak_placement_destroy(p);
    merak_plan_fini(&plan);
    return text;
}

static void plans_are_written_as_documented(void **state)
{
    char *block = encoded("a:2,2;b:2,2", false);
    char *cyclic = encoded("b:2;a:2;b:2", true);

    (void)state;
    assert_string_equal(strchr(strchr(block, '/') + 1, '/'),
                        "/12.0/2x1x4/tp-dp-pp/node/n[1-4]/"
                        "root(a(0-1),b(2-3))/0+4*2");
    assert_string_equal(strchr(strchr(cyclic, '/') + 1, '/'),
                        "/12.0/2x1x3/tp-dp-pp/node/n[1-3]/"
                        "root(a(1),b(0,2))/0+3*1,0+3*1");
    free(block);
    free(cyclic);
}

/* Ranks of a sequence are with those of a layer, which count faster. */
static void sequences_are_cut_within_nodes(void **state)
{
    struct merak_placement_plan plan = {.job = 12}, got;
    struct merak_placement *p = NULL;
    struct merak_placement_input in = {.tp = 2, .cp = 2, .pp = 1};
    struct merak_error err;
    char *text;

    (void)state;
    make_site(&plan.site, "a:4;b:4", false);
    in.site = &plan.site;
    assert_int_equal(merak_placement_compute(&in, &p, &err), MERAK_OK);
    assert_int_equal(merak_placement_cp(p), 2);
    assert_int_equal(merak_placement_degree(p, MERAK_AXIS_TP), 4);
    assert_int_equal(merak_placement_coords(p, 3).tp, 3);
    assert_int_equal(merak_placement_coords(p, 4).dp, 1);
    merak_placement_resolved(p, &plan.input);
    assert_int_equal(plan.input.tp, 2);
    plan.id = merak_placement_id(p);
    assert_int_equal(merak_plan_encode(&plan, &text, NULL), MERAK_OK);
    assert_string_equal(strchr(strchr(text, '/') + 1, '/'),
                        "/12.0/2c2x1x2/tp-dp-pp/node/n[1-2]/"
                        "root(a(0),b(1))/0+2*4");
    assert_int_equal(merak_plan_decode(text, &got, &err), MERAK_OK);
    assert_int_equal(got.input.cp, 2);
    merak_plan_fini(&got);
    free(text);
    plan.input.cp = MERAK_CP_CHOSEN;
    plan.input.order = MERAK_ORDER_AUTO;
    assert_int_equal(merak_plan_encode(&plan, &text, NULL), MERAK_OK);
    assert_non_null(strstr(text, "/2c0e1x1x2/auto/"));
    assert_int_equal(merak_plan_decode(text, &got, &err), MERAK_OK);
    assert_int_equal(got.input.cp, MERAK_CP_CHOSEN);
    assert_true(merak_degrees_auto(&got.input));
    merak_plan_fini(&got);
    free(text);
    plan.input.cp = 1;
    plan.input.ep = MERAK_EP_CHOSEN;
    assert_int_equal(merak_plan_encode(&plan, &text, NULL), MERAK_OK);
    assert_non_null(strstr(text, "/2e0x1x2/auto/"));
    assert_int_equal(merak_plan_decode(text, &got, &err), MERAK_OK);
    assert_int_equal(got.input.ep, MERAK_EP_CHOSEN);
    assert_true(merak_degrees_auto(&got.input));
    merak_plan_fini(&got);
    free(text);
    merak_placement_destroy(p);
    in.cp = 3;
    assert_int_equal(merak_placement_compute(&in, &p, &err), MERAK_ERR_CONFIG);
    assert_string_equal(err.text,
                        "8 tasks cannot be split into tp=2 x cp=3 x pp=1; "
                        "nearest: 6 or 12 tasks");
    merak_plan_fini(&plan);
}

/* Of more ranks than a node has: over whole nodes, near each other, with tp in
 * one; else within a node, where any does not allow more. */
static void sequences_are_cut_over_whole_nodes(void **state)
{
    struct merak_site site;
    struct merak_placement *p = NULL;
    struct merak_placement_input in = {.tp = 2, .cp = 4, .pp = 1};
    struct merak_error err;

    (void)state;
    make_site(&site, "a:4;b:4;a:4;b:4", false);
    in.site = &site;
    assert_int_equal(merak_placement_compute(&in, &p, &err), MERAK_OK);
    for (int l = 0; l < 16; l++) {
        int node = site.node_of_task[merak_placement_physical_of(p, l)];

        assert_int_equal(merak_placement_coords(p, l).dp, l / 8);
        assert_int_equal(
            node, site.node_of_task[merak_placement_physical_of(p, l / 4 * 4)]);
        assert_int_equal(node % 2, l / 8); /* below one switch */
    }
    merak_placement_destroy(p);
    in.tp = 4;
    assert_int_equal(merak_placement_compute(&in, &p, &err), MERAK_OK);
    merak_placement_destroy(p);
    in.tp = 8;
    in.cp = 2;
    assert_int_equal(merak_placement_compute(&in, &p, &err), MERAK_ERR_CONFIG);
    assert_string_equal(err.text,
                        "tp x cp=16 does not fit in node n1, which has 4 "
                        "tasks; nearest: --ntasks-per-node=16, tp x cp=4, or "
                        "--merak-tp-domain=any");
    merak_site_fini(&site);
    make_site(&site, "a:4;b:6;a:6", false);
    in.tp = 2;
    in.cp = 4;
    assert_int_equal(merak_placement_compute(&in, &p, &err), MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "tp x cp=8 does not fit in node n1"));
    merak_site_fini(&site);
}

static void a_large_cluster_s_plan_is_small(void **state)
{
    struct merak_placement_plan plan = {.job = 1}, got;
    char *text;

    (void)state;
    assert_int_equal(merak_site_init(&plan.site, 2000, 16000, NULL), 0);
    for (int i = 0; i < 2000; i++) {
        char name[32];

        snprintf(name, sizeof(name), "gpu%04d", i);
        plan.site.node_name[i] = strdup(name);
        snprintf(name, sizeof(name), "core.s%d.l%d", i % 7, i % 50);
        plan.site.node_path[i] = strdup(name);
    }
    for (int i = 0; i < 16000; i++)
        plan.site.node_of_task[i] = i % 2000; /* cyclic */
    assert_int_equal(merak_plan_encode(&plan, &text, NULL), MERAK_OK);
    assert_true(strlen(text) < 16 * 1024);
    assert_int_equal(merak_plan_decode(text, &got, NULL), MERAK_OK);
    for (int i = 0; i < 16000; i++)
        assert_int_equal(got.site.node_of_task[i], i % 2000);
    merak_plan_fini(&got);
    merak_plan_fini(&plan);
    free(text);
}

static const char *const bad_plans[] = {
    "",
    "merak2/",
    "merak1/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/0/0+1*1",
    "merak2/000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/0/0+1*1",
    "merak2/0000000000000000/1/1x1x1/tp-dp-pp/node/n1/0/0+1*1",
    "merak2/0000000000000000/4294967296.0/1x1x1/tp-dp-pp/node/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1/tp-dp-pp/node/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/70000x1x1/tp-dp-pp/node/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/2x1x1/tp-dp-pp/node/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x2/tp-dp-pp/node/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp:/node/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp:1/node/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp:1:/node/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp:1:2x/node/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp:1:-2/node/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp:1:99999999999999999999/node/n1/"
    "0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/auto/node/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/pp/node/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/numa/n1/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n[1/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1;x/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n[1-99999]/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/1/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n[1-2]/0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/0,0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/a(0/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/a(0))/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/a.b(0)/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/a(b..(0))/0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/(0)/0+1*1",
    ("merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/"
     "a(a(a(a(a(a(a(a(a(0)))))))))/0+1*1"),
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/0/",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/0/0+1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/0/0+2*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/0/1+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/0/0+1*0",
    "merak2/0000000000000000/1.0/0x0x0/tp-dp-pp/node/n1/0/0+1*9999999",
    "merak2/0000000000000000/1.0/0x0x0/tp-dp-pp/node/n1/0/0+1*1048576,0+1*1",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/0/0+1*1 ",
    "merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/0/0+1*1,",
};

static void malformed_plans_are_refused(void **state)
{
    struct merak_placement_plan plan;

    (void)state;
    for (size_t i = 0; i < sizeof(bad_plans) / sizeof(*bad_plans); i++) {
        if (merak_plan_decode(bad_plans[i], &plan, NULL) != MERAK_ERR_FORMAT)
            fail_msg("\"%s\" was not refused", bad_plans[i]);
    }
}

/* Whatever is done to the text: it is refused, or its id tells, or it is
 * another way to write the same plan ("2,3" for "2-3"). */
static void check_changed(const char *text, const struct merak_site *site,
                          const struct merak_placement *old)
{
    struct merak_placement_plan plan;
    struct merak_placement *p;

    if (merak_plan_decode(text, &plan, NULL) != MERAK_OK)
        return;
    if (merak_plan_placement(&plan, &p, NULL) == MERAK_OK) {
        assert_int_equal(plan.site.n_tasks, site->n_tasks);
        assert_memory_equal(plan.site.node_of_task, site->node_of_task,
                            (size_t)site->n_tasks * sizeof(int));
        for (int i = 0; i < site->n_nodes; i++)
            assert_string_equal(plan.site.node_path[i], site->node_path[i]);
        for (int l = 0; l < site->n_tasks; l++)
            assert_int_equal(merak_placement_physical_of(p, l),
                             merak_placement_physical_of(old, l));
        merak_placement_destroy(p);
    }
    merak_plan_fini(&plan);
}

static void a_changed_plan_never_passes_for_the_old_one(void **state)
{
    char *text = encoded("a:2,4;b:2,2", true);
    size_t len = strlen(text);
    struct merak_placement_plan plan;
    struct merak_placement *old;

    (void)state;
    assert_int_equal(merak_plan_decode(text, &plan, NULL), MERAK_OK);
    assert_int_equal(merak_plan_placement(&plan, &old, NULL), MERAK_OK);
    for (int i = 0; i < 20000; i++) {
        size_t place = (size_t)draw((int)len);
        char *copy = strdup(text);

        for (int k = 1 + draw(2); k > 0; k--)
            copy[(place + (size_t)k) % len] =
                "0123456789abx/(),+*-[].\n"[draw(24)];
        if (draw(4) == 0)
            copy[draw((int)len)] = '\0';
        check_changed(copy, &plan.site, old);
        free(copy);
    }
    merak_placement_destroy(old);
    merak_plan_fini(&plan);
    free(text);
}

static void names_that_do_not_fit_in_are_said(void **state)
{
    struct merak_placement_plan plan = {.job = 1};
    struct merak_error err;
    char *text;

    (void)state;
    make_site(&plan.site, "a:2", false);
    free(plan.site.node_name[0]);
    plan.site.node_name[0] = strdup("n/1");
    assert_int_equal(merak_plan_encode(&plan, &text, &err),
                     MERAK_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "\"n/1\""));
    merak_plan_fini(&plan);
}

/* What is printed of a placement on two nodes of two; yours. */
static char *shown(int tp, int pp, const char *stages, int nodes)
{
    struct merak_placement *p;
    struct merak_site s;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    make_site(&s, "a:2;b:2", false);
    p = must_compute(&s, tp, pp, MERAK_ORDER_TP_DP_PP);
    merak_placement_print(p, out, stages, nodes);
    fclose(out);
    merak_placement_destroy(p);
    merak_site_fini(&s);
    return text;
}

static void a_plan_can_be_shown(void **state)
{
    char *text = shown(2, 2, "", 1);

    (void)state;
    assert_non_null(strstr(text,
                           ": 4 tasks on 2 nodes, tp=2 x pp=2 x dp=1, "
                           "order tp-dp-pp\n"
                           "  tp groups of 2: 2 in a node\n"
                           "  pp groups of 2: 2 across 2 switch levels\n"));
    assert_non_null(strstr(text, "\n  root.a n1: 0=t0.p0.d0 1=t1.p0.d0\n"
                                 "  and 1 more nodes\n"));
    free(text);
}

static void unlike_stages_can_be_shown(void **state)
{
    char *text = shown(1, 1, "1x2-1x1", 2);

    (void)state;
    assert_non_null(strstr(text, ": 4 tasks on 2 nodes, stages of unlike ranks "
                                 "1x2-1x1 (replicas x tp), tasks in order\n"));
    assert_non_null(strstr(text, " n1: 0=t0.p0.d0 1=t1.p0.d0\n"));
    /* The program refuses the number of tasks. */
    assert_non_null(strstr(text, ": 2=t0.p1.d0 3=none\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_written_as_documented),
        cmocka_unit_test(sequences_are_cut_within_nodes),
        cmocka_unit_test(sequences_are_cut_over_whole_nodes),
        cmocka_unit_test(a_large_cluster_s_plan_is_small),
        cmocka_unit_test(malformed_plans_are_refused),
        cmocka_unit_test(a_changed_plan_never_passes_for_the_old_one),
        cmocka_unit_test(names_that_do_not_fit_in_are_said),
        cmocka_unit_test(a_plan_can_be_shown),
        cmocka_unit_test(unlike_stages_can_be_shown),
    };

    return cmocka_run_group_tests_name("placement_text", tests, NULL, NULL);
}
