/* SPDX-License-Identifier: Apache-2.0 */
/* test_orders.c - the order of nodes where degrees are given
 *
 * No order changes a bit of what is computed, on several stages, tensor ranks
 * and replicas, with dropout and a table that is read at both ends; the order
 * and the cuts that are chosen are those whose programs are played fastest and
 * fit.
 */
#include "config.h"

#include "unit/dag_models.h"
#include "unit/execute.h"

#include "partitioner/search/node_orders.h"
#include "partitioner/simulate/check.h"
#include "partitioner/simulate/simulate.h"

#include <stdio.h>
#include <string.h>

#define SEQ 16
#define STEPS 2
#define LEVELS 2
#define WIDTH 32
#define ORDERS MERAK_NODE_ORDERS

/* --- models --------------------------------------------------------------- */

static struct merak_value *weight(struct merak_model *m, const char *name,
                                  const char *part, size_t out, size_t in)
{
    return MERAK_PARAM(m, merak_name(m, "%s.%s", name, part),
                       MERAK_NORMAL(0.1f), out, in);
}

static struct merak_value *layer(struct merak_model *m, struct merak_value *x,
                                 const char *name, size_t in, size_t out)
{
    struct merak_value *h =
        merak_linear(m, x, weight(m, name, "up", 2 * out, in), NULL, 1);

    h = merak_gelu(m, h, true);
    h = merak_linear(m, h, weight(m, name, "down", out, 2 * out), NULL, 1);
    h = merak_dropout(m, h, 0.1f);
    return in == out ? merak_add(m, x, h) : h;
}

static void u_net(struct merak_model *m, void *arg)
{
    struct merak_value *table =
        MERAK_PARAM(m, "table", MERAK_NORMAL(0.1f), 32, WIDTH);
    struct merak_value *x = merak_embedding(m, merak_tokens(m), table);
    struct merak_value *skip[LEVELS];
    size_t c = WIDTH;

    (void)arg;
    for (int l = 0; l < LEVELS; l++, c /= 2) {
        skip[l] = layer(m, x, merak_name(m, "down.%d", l), c, c);
        x = layer(m, skip[l], merak_name(m, "narrow.%d", l), c, c / 2);
    }
    x = layer(m, x, "bottom", c, c);
    for (int l = LEVELS - 1; l >= 0; l--, c *= 2) {
        x = layer(m, x, merak_name(m, "widen.%d", l), c, 2 * c);
        x = merak_add(m, x, skip[l]);
        x = layer(m, x, merak_name(m, "up.%d", l), 2 * c, 2 * c);
    }
    merak_cross_entropy(m, merak_linear(m, x, table, NULL, 1),
                        merak_targets(m));
}

static void chain(struct merak_model *m, void *arg)
{
    struct merak_value *table =
        MERAK_PARAM(m, "table", MERAK_NORMAL(0.1f), 32, WIDTH);
    struct merak_value *x = merak_embedding(m, merak_tokens(m), table);

    (void)arg;
    for (int l = 0; l < 8; l++)
        x = layer(m, x, merak_name(m, "h.%d", l), WIDTH, WIDTH);
    merak_cross_entropy(m, merak_linear(m, x, table, NULL, 1),
                        merak_targets(m));
}

static struct merak_plan plan_of(int tp, int pp, int dp)
{
    return (struct merak_plan){.tp = tp,
                               .pp = pp,
                               .dp = dp,
                               .chunks = 1,
                               .microbatches = 8,
                               .micro_batch = 2,
                               .zero = 1,
                               .schedule = "1f1b"};
}

static struct merak_planned *build(const struct merak_plan *plan,
                                   merak_describe_fn describe,
                                   enum merak_plan_ranks ranks)
{
    struct merak_planned *planned = NULL;
    struct merak_error err;

    if (merak_plan_build(plan, SEQ, describe, NULL, ranks, NULL, &planned,
                         &err) != MERAK_OK)
        fail_msg("tp %d, pp %d, dp %d: %s", plan->tp, plan->pp, plan->dp,
                 err.text);
    return planned;
}

/* --- no bit changes ------------------------------------------------------- */

struct numbers {
    double loss[STEPS];
    float norm[STEPS];
    enum merak_branches order; /* that nodes stood in */
};

static struct numbers run(const struct merak_plan *plan,
                          merak_describe_fn describe)
{
    struct merak_planned *planned = build(plan, describe, MERAK_PLAN_ALL);
    struct numbers got = {.order = planned->sharded->order};
    struct executed *ex;
    struct merak_error err;

    if (merak_program_check(planned->program, planned->n_programs, &err) !=
        MERAK_OK)
        fail_msg("%s", err.text);
    ex = executed_create(planned);
    for (int step = 0; step < STEPS; step++) {
        executed_step(ex, (uint64_t)step + 3);
        got.loss[step] = executed_loss(ex);
        got.norm[step] = executed_norm(ex, 0);
    }
    executed_destroy(ex);
    return got;
}

/* The second step's loss is of weights that were updated: all gradients take
 * part in it. */
static void no_node_order_changes_a_bit(void **state)
{
    const merak_describe_fn model[] = {u_net,
                                       dag_models[DAG_IN_TURNS].describe};
    static const struct {
        int tp, pp, dp;
        int zero;
        const char *schedule;
        enum merak_recompute recompute;
    } rows[] = {
        {1, 4, 1, false, "1f1b", MERAK_RECOMPUTE_NONE},
        {1, 2, 2, true, "1f1b", MERAK_RECOMPUTE_FULL},
        {1, 3, 2, false, "zb-h1", MERAK_RECOMPUTE_NONE},
        {2, 2, 1, true, "gpipe", MERAK_RECOMPUTE_NONE},
        {2, 3, 2, true, "eager", MERAK_RECOMPUTE_FULL},
    };
    int found = 0;

    (void)state;
    for (size_t k = 0; k < 2 * sizeof(rows) / sizeof(*rows); k++) {
        size_t i = k / 2;
        struct merak_plan plan = plan_of(rows[i].tp, 1, rows[i].dp);
        struct numbers want = run(&plan, model[k % 2]);

        plan.pp = rows[i].pp;
        plan.zero = rows[i].zero;
        plan.recompute = rows[i].recompute;
        snprintf(plan.schedule, sizeof(plan.schedule), "%s", rows[i].schedule);
        for (int order = 0; order < MERAK_BRANCHES_AUTO; order++) {
            struct numbers got;

            plan.branches = (enum merak_branches)order;
            got = run(&plan, model[k % 2]);
            found += order > 0 && got.order == plan.branches;
            assert_memory_equal(got.loss, want.loss, sizeof(got.loss));
            assert_memory_equal(got.norm, want.norm, sizeof(got.norm));
        }
    }
    print_message("# %d runs in another order\n", found);
    assert_true(found >= 15);
}

/* --- which is chosen ------------------------------------------------------ */

/* A plan, what the search is asked beside it, and the costs of both. */
struct asked {
    struct merak_plan plan;
    struct merak_device device;
    struct merak_cost_model cost;
    struct merak_search_input in;
};

static void ask(struct asked *a, merak_describe_fn describe, int pp,
                double link_bytes_per_s)
{
    const struct merak_plan *p = &a->plan;
    struct merak_error err;

    *a = (struct asked){.plan = plan_of(1, pp, 1)};
    a->plan.microbatches = 4;
    assert_int_equal(merak_device_find("cpu", &a->device, &err), MERAK_OK);
    a->device.links.level[0].bytes_per_s = link_bytes_per_s;
    merak_device_cost(&a->device, MERAK_F32, pp, &a->cost);
    a->in = (struct merak_search_input){
        .describe = describe,
        .seq = SEQ,
        .dtype = MERAK_F32,
        .global_batch = p->micro_batch * (size_t)p->microbatches,
        .nodes = 1,
        .ranks_per_node = pp,
        .threads = 1,
        .device = &a->device,
        .pin = {.tp = 1,
                .pp = pp,
                .dp = 1,
                .chunks = 1,
                .micro_batch = p->micro_batch,
                .schedule = p->schedule,
                .zero = 1,
                .given[MERAK_CHOICE_ZERO] = true,
                .order_tp_pp_dp = false,
                .given[MERAK_CHOICE_ORDER] = true,
                .sub_pipeline = false,
                .given[MERAK_CHOICE_SUB_PIPELINE] = true,
                .given[MERAK_CHOICE_SP] = true,
                .given[MERAK_CHOICE_TP_BATCH] = true,
                .given[MERAK_CHOICE_RECOMPUTE] = true}};
}

static void rate(const struct asked *a, merak_describe_fn describe,
                 const struct merak_search_input *in,
                 struct merak_node_order order[ORDERS])
{
    const struct merak_program_options opt = {.cost = &a->cost};
    const struct merak_plan one = plan_of(1, 1, 1);
    struct merak_planned *planned = build(&one, describe, MERAK_PLAN_NONE);
    struct merak_error err;

    if (merak_node_orders_rate(planned->graph, &a->plan, in,
                               MERAK_BOUNDARY_AUTO, &opt, order,
                               &err) != MERAK_OK)
        fail_msg("%s", err.text);
    merak_planned_destroy(planned);
}

/* Of the programs, as a run with this order and these cuts builds them. */
static double step_of(const struct asked *a, merak_describe_fn describe,
                      const struct merak_node_order *order)
{
    const struct merak_program_options opt = {.cost = &a->cost};
    struct merak_plan plan = a->plan;
    struct merak_planned *planned = NULL;
    struct merak_timeline *timeline = NULL;
    struct merak_error err;
    double step_s;

    plan.branches = order->branches;
    plan.cut = order->cut;
    assert_int_equal(merak_plan_build(&plan, SEQ, describe, NULL,
                                      MERAK_PLAN_ALL, &opt, &planned, &err),
                     MERAK_OK);
    assert_int_equal(
        merak_program_check(planned->program, planned->n_programs, &err),
        MERAK_OK);
    assert_int_equal(merak_simulate(planned->program, planned->n_programs,
                                    &a->cost, NULL, &timeline, &err),
                     MERAK_OK);
    step_s = timeline->step_s;
    merak_timeline_destroy(timeline);
    merak_planned_destroy(planned);
    return step_s;
}

/* How many times as fast as nodes as described that are cut evenly, with the
 * best of orders and cuts; each was rated as it runs, and none is faster. */
static double gain(int model, int pp, double link_bytes_per_s)
{
    merak_describe_fn describe = dag_models[model].describe;
    struct merak_node_order order[ORDERS];
    struct asked a;
    double least;
    int best;

    ask(&a, describe, pp, link_bytes_per_s);
    rate(&a, describe, &a.in, order);
    best = merak_node_orders_best(order, 0);
    least = order[best].played.step_s;
    for (int i = 0; i < ORDERS; i++) {
        double step_s = order[i].played.step_s, built;

        if (step_s <= 0)
            continue;
        built = step_of(&a, describe, &order[i]);
        assert_near(&step_s, &built, 1, 1e-9, 0);
        assert_true(least <= step_s * (best == 0 ? 1 / 0.99 : 1));
    }
    print_message("# %s, pp %d, links of %g GB/s: %.4g ms evenly, %.4g ms by "
                  "time; order %d %s, %.4g ms\n",
                  dag_models[model].name, pp, link_bytes_per_s * 1e-9,
                  1e3 * order[0].played.step_s, 1e3 * order[1].played.step_s,
                  order[best].branches, order[best].cut != NULL ? "cut" : "",
                  1e3 * least);
    least = order[0].played.step_s / least;
    merak_node_orders_fini(order);
    return least;
}

/* Over links at which what crosses a cut takes about as long as a layer, and
 * over fast ones. */
static void the_fastest_node_order_is_chosen(void **state)
{
    static const struct {
        int model, pp;
        double link_bytes_per_s, gain;
    } rows[] = {
        {DAG_U_NET, 4, 2e7, 1.45},     {DAG_U_NET, 4, 1e10, 1},
        {DAG_INCEPTION, 4, 1e10, 1.4}, {DAG_INCEPTION, 2, 2e7, 1},
        {DAG_IN_TURNS, 4, 2e7, 1.25},  {DAG_IN_TURNS, 3, 1e10, 1},
        {DAG_EARLY_BRANCH, 3, 2e7, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        double times =
            gain(rows[i].model, rows[i].pp, rows[i].link_bytes_per_s);

        if (times < rows[i].gain)
            fail_msg("row %zu: %.3f times as fast", i, times);
    }
}

/* Without a search, the orders themselves. */
static void node_orders_are_rated_without_a_search(void **state)
{
    merak_describe_fn describe = dag_models[DAG_INCEPTION].describe;
    struct merak_node_order order[ORDERS];
    struct asked a;

    (void)state;
    ask(&a, describe, 4, 1e10);
    rate(&a, describe, NULL, order);
    for (int i = 0; i < ORDERS; i++) {
        assert_int_equal(order[i].branches, i / 2);
        assert_null(order[i].cut);
        assert_true((order[i].played.step_s > 0) == (i % 2 == 0));
    }
    assert_int_equal(merak_node_orders_best(order, 0),
                     2 * MERAK_BRANCHES_BLOCKS);
    merak_node_orders_fini(order);
}

static void a_chain_has_one_node_order(void **state)
{
    struct merak_node_order order[ORDERS];
    struct asked a;

    (void)state;
    ask(&a, chain, 4, 1e10);
    rate(&a, chain, &a.in, order);
    for (int i = 0; i < ORDERS; i++)
        assert_true((order[i].played.step_s > 0) == (i < 2));
    merak_node_orders_fini(order);
}

/* More parts than there are places to cut it: the run says so. */
static void what_cannot_run_is_no_choice(void **state)
{
    struct merak_node_order order[ORDERS];
    struct asked a;

    (void)state;
    ask(&a, u_net, 100, 1e10);
    rate(&a, u_net, &a.in, order);
    for (int i = 0; i < ORDERS; i++)
        assert_true(order[i].played.step_s <= 0);
    assert_int_equal(merak_node_orders_best(order, 0), 0);
    merak_node_orders_fini(order);
}

static void the_chosen_node_order_fits_in_memory(void **state)
{
    static const struct {
        struct {
            double step_s;
            size_t bytes;
        } played[3];
        size_t limit;
        int want;
    } rows[] = {
        {{{3, 10}, {2, 10}, {1, 10}}, 0, 2},
        {{{3, 10}, {1, 10}, {2, 10}}, 0, 1},
        {{{1, 10}, {2, 10}, {3, 10}}, 0, 0},
        {{{1, 10}, {0, 0}, {0, 0}}, 0, 0},
        {{{1, 10}, {1, 10}, {1, 10}}, 0, 0},
        {{{1, 10}, {0.995, 10}, {0, 0}}, 0, 0}, /* not worth it */
        {{{1, 10}, {0.98, 10}, {0.979, 10}}, 0, 2},
        {{{3, 10}, {2, 10}, {1, 21}}, 20, 1}, /* one is too large */
        {{{3, 10}, {2, 21}, {1, 21}}, 20, 0},
        {{{3, 30}, {4, 20}, {2, 21}}, 20, 1}, /* one fits */
        {{{3, 30}, {2, 31}, {1, 30}}, 20, 2}, /* no more than it would be */
        {{{3, 30}, {2, 31}, {1, 32}}, 20, 0},
        {{{0, 0}, {2, 31}, {1, 32}}, 20, 2}, /* it cannot run */
        {{{0, 0}, {2, 19}, {1, 32}}, 20, 1},
        {{{0, 0}, {0, 0}, {0, 0}}, 20, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_node_order order[ORDERS] = {{.cut = NULL}};
        int got;

        for (int k = 0; k < 3; k++)
            order[k].played =
                (struct merak_played){.step_s = rows[i].played[k].step_s,
                                      .arena_bytes = rows[i].played[k].bytes};
        got = merak_node_orders_best(order, rows[i].limit);
        if (got != rows[i].want)
            fail_msg("row %zu: %d, not %d", i, got, rows[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_node_order_changes_a_bit),
        cmocka_unit_test(the_fastest_node_order_is_chosen),
        cmocka_unit_test(node_orders_are_rated_without_a_search),
        cmocka_unit_test(a_chain_has_one_node_order),
        cmocka_unit_test(what_cannot_run_is_no_choice),
        cmocka_unit_test(the_chosen_node_order_fits_in_memory),
    };

    return cmocka_run_group_tests_name("orders", tests, NULL, NULL);
}
