/* SPDX-License-Identifier: Apache-2.0 */
/* test_planning.c - how much the planner does to find a plan
 *
 * Counted, not timed: the figures are the same on any machine, under any load
 * and any sanitizer.  20 billion parameters on 64 take 1.6 s, and a trillion on
 * 4096, of which a part is planned here, 30 s (bench/results/planning.md).
 * Orders of nodes are rated in a second or two, for which all ranks wait.
 *
 * What changes the planner's choices changes the figures.  They may then be
 * set again, if what it now takes longer for is worth it: say so in the
 * commit.
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "partitioner/search/node_orders.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/search/search.h"

#define MORE 1.05 /* of what it took when this was written */

struct row {
    const char *name;
    size_t layers, hidden, heads, batch;
    int nodes;
    struct merak_choices pin;
    struct merak_search_tally most;
};

static void assert_at_most(const char *name, const char *what, long got,
                           long most)
{
    if (got <= 0 || (double)got > MORE * (double)most)
        fail_msg("%s: %ld %s, more than %ld", name, got, what, most);
}

static void assert_no_more(const char *name,
                           const struct merak_search_tally *got,
                           const struct merak_search_tally *most)
{
    print_message("# %s: %ld rated, %ld actions, %ld parts, %ld "
                  "instructions; %ld sharded, %ld records\n",
                  name, got->rated, got->actions, got->parts, got->instructions,
                  got->sharded, got->records);
    assert_at_most(name, "plans rated", got->rated, most->rated);
    assert_at_most(name, "actions", got->actions, most->actions);
    assert_at_most(name, "parts", got->parts, most->parts);
    assert_at_most(name, "instructions", got->instructions, most->instructions);
    assert_at_most(name, "models sharded", got->sharded, most->sharded);
    assert_at_most(name, "records", got->records, most->records);
}

/* --- searches ------------------------------------------------------------- */

static void plan_row(const struct row *row)
{
    struct merak_hf_config config =
        gpt2_config(row->layers, row->hidden, row->heads, 50257);
    struct merak_search_result *result = NULL;
    struct merak_device device;
    struct merak_error err;
    struct merak_search_input in = {.describe = merak_hf_describe,
                                    .arg = &config,
                                    .seq = 2048,
                                    .dtype = MERAK_BF16,
                                    .global_batch = row->batch,
                                    .nodes = row->nodes,
                                    .ranks_per_node = 8,
                                    .threads = 1,
                                    .device = &device,
                                    .pin = row->pin};
    struct merak_search_tally tally;

    assert_int_equal(merak_device_find("h200", &device, NULL), MERAK_OK);
    if (merak_search(&in, &result, &err) != MERAK_OK)
        fail_msg("%s: %s", row->name, err.text);
    tally = result->tally;
    for (int i = 1; i < result->n_choices; i++) {
        const struct merak_search_choice *c = &result->choice[i];

        if (!c->simulated && c->fits && c->step_s < result->choice[0].step_s)
            fail_msg("%s: a runner-up is estimated faster than the chosen "
                     "plan, and was not simulated",
                     row->name);
    }
    merak_search_destroy(result);
    assert_no_more(row->name, &tally, &row->most);
}

static void plans_take_no_more_work(void **state)
{
    static const struct row rows[] = {
        {"20 B on 64",
         44,
         6144,
         64,
         1024,
         8,
         {0},
         {18514, 19242186, 1594231, 378054, 62, 2448160}},
        {"1 T on 4096, tp 8, one chunk",
         128,
         25600,
         160,
         4096,
         512,
         {.tp = 8, .micro_batch = 1, .chunks = 1},
         {1813, 76297604, 320207, 984864, 4, 470727}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        plan_row(&rows[i]);
}

/* --- orders of nodes, for given degrees ----------------------------------- */

#define DEEP 10 /* layers of a level, each of which is read on the way up */

static struct merak_value *layer(struct merak_model *m, struct merak_value *x,
                                 const char *name, size_t in, size_t out)
{
    struct merak_value *up = MERAK_PARAM(m, merak_name(m, "%s.up", name),
                                         MERAK_NORMAL(0.1f), 4 * out, in);
    struct merak_value *down = MERAK_PARAM(m, merak_name(m, "%s.down", name),
                                           MERAK_NORMAL(0.1f), out, 4 * out);
    struct merak_value *h =
        merak_gelu(m, merak_linear(m, x, up, NULL, 1), true);

    h = merak_linear(m, h, down, NULL, 1);
    return in == out ? merak_add(m, x, h) : h;
}

/* 256 wide, then 128, then 64, and back: 30 values skip over the bottom. */
static void deep_u(struct merak_model *m, void *arg)
{
    struct merak_value *table =
        MERAK_PARAM(m, "table", MERAK_NORMAL(0.1f), 64, 256);
    struct merak_value *x = merak_embedding(m, merak_tokens(m), table);
    struct merak_value *skip[3 * DEEP];
    size_t c = 256;
    int n = 0;

    (void)arg;
    for (int l = 0; l < 3; l++, c /= 2) {
        for (int i = 0; i < DEEP; i++, n++)
            x = skip[n] = layer(m, x, merak_name(m, "down.%d", n), c, c);
        x = layer(m, x, merak_name(m, "narrow.%d", l), c, c / 2);
    }
    for (int l = 0; l < 3; l++, c *= 2) {
        x = layer(m, x, merak_name(m, "widen.%d", l), c, 2 * c);
        for (int i = 0; i < DEEP; i++) {
            x = merak_add(m, x, skip[--n]);
            x = layer(m, x, merak_name(m, "up.%d", n), 2 * c, 2 * c);
        }
    }
    merak_cross_entropy(m, merak_linear(m, x, table, NULL, 1),
                        merak_targets(m));
}

static void add_tally(struct merak_search_tally *to,
                      const struct merak_search_tally *what)
{
    to->rated += what->rated;
    to->actions += what->actions;
    to->parts += what->parts;
    to->instructions += what->instructions;
    to->sharded += what->sharded;
    to->records += what->records;
}

/* Each order is sharded once for itself and once for all cuts that the search
 * tries.  For each cut anew that is 25 times, and with every live value looked
 * at where a node changes two or three, 138 million records. */
static void orders_take_no_more_work(void **state)
{
    const struct merak_search_tally most = {55, 12320, 2761, 275810, 5, 3713790};
    const struct merak_plan one = {.tp = 1,
                                   .pp = 1,
                                   .dp = 1,
                                   .microbatches = 1,
                                   .micro_batch = 1,
                                   .schedule = "1f1b"};
    const struct merak_plan plan = {.tp = 4,
                                    .pp = 4,
                                    .dp = 1,
                                    .chunks = 1,
                                    .microbatches = 64,
                                    .micro_batch = 1,
                                    .zero = 1,
                                    .schedule = "1f1b"};
    struct merak_node_order order[MERAK_NODE_ORDERS];
    struct merak_search_tally tally = {0};
    struct merak_planned *planned = NULL;
    struct merak_cost_model cost;
    struct merak_device device;
    struct merak_error err;
    const struct merak_program_options opt = {.cost = &cost};
    const struct merak_search_input in = {
        .describe = deep_u,
        .seq = 64,
        .global_batch = 64,
        .nodes = 2,
        .ranks_per_node = 8,
        .threads = 1,
        .device = &device,
        .pin = {.tp = 4,
                .pp = 4,
                .dp = 1,
                .chunks = 1,
                .micro_batch = 1,
                .schedule = "1f1b",
                .zero = 1,
                .given[MERAK_CHOICE_ZERO] = true,
                .order_tp_pp_dp = false,
                .given[MERAK_CHOICE_ORDER] = true,
                .sub_pipeline = false,
                .given[MERAK_CHOICE_SUB_PIPELINE] = true,
                .given[MERAK_CHOICE_SP] = true,
                .given[MERAK_CHOICE_TP_BATCH] = true,
                .given[MERAK_CHOICE_RECOMPUTE] = true}};

    (void)state;
    assert_int_equal(merak_device_find("cpu", &device, &err), MERAK_OK);
    merak_device_cost(&device, MERAK_F32, 8, &cost);
    assert_int_equal(merak_plan_build(&one, 64, deep_u, NULL, MERAK_PLAN_NONE,
                                      NULL, &planned, &err),
                     MERAK_OK);
    if (merak_node_orders_rate(planned->graph, &plan, &in, MERAK_BOUNDARY_AUTO,
                               &opt, order, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < MERAK_NODE_ORDERS; i++)
        add_tally(&tally, &order[i].tally);
    assert_true(order[merak_node_orders_best(order, 0)].played.step_s > 0);
    merak_node_orders_fini(order);
    merak_planned_destroy(planned);
    assert_no_more("U-net, tp 4, pp 4", &tally, &most);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_take_no_more_work),
        cmocka_unit_test(orders_take_no_more_work),
    };

    return cmocka_run_group_tests_name("planning", tests, NULL, NULL);
}
