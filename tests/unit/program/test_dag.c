/* SPDX-License-Identifier: Apache-2.0 */
/* test_dag.c - models that are no chains: planned, cut, run, and as on one rank
 *
 * The planner cuts them; the programs of its plan then run with the reference
 * kernels.
 */
#include "config.h"

#include "unit/dag_models.h"
#include "unit/execute.h"

#include "partitioner/search/search.h"
#include "partitioner/simulate/check.h"
#include "partitioner/order/shard_order.h"

#include <string.h>

#define SEQ 16
#define STEPS 2
#define AUTO MERAK_BRANCHES_AUTO

#define N_MODELS N_DAG_MODELS

/* --- planning and running ------------------------------------------------- */

struct shape {
    int tp, pp, chunks;
    const char *schedule;
    enum merak_recompute recompute;
    enum merak_branches branches;
    double link_bytes_per_s; /* 0: the device's */
};

static struct merak_search_result *planned_for(merak_describe_fn describe,
                                               const struct shape *shape,
                                               struct merak_device *device)
{
    struct merak_search_input in = {
        .describe = describe,
        .seq = SEQ,
        .dtype = MERAK_F32,
        .global_batch = 8,
        .nodes = 1,
        .ranks_per_node = shape->tp * shape->pp,
        .threads = 1,
        .device = device,
        .pin = {.tp = shape->tp,
                .pp = shape->pp,
                .dp = 1,
                .chunks = shape->chunks,
                .micro_batch = 2,
                .schedule = shape->schedule,
                .sub_pipeline = false,
                .given[MERAK_CHOICE_SUB_PIPELINE] = true,
                .given[MERAK_CHOICE_BRANCHES] = true,
                .branches = shape->branches,
                .given[MERAK_CHOICE_RECOMPUTE] = true,
                .recompute = shape->recompute}};
    struct merak_search_result *result = NULL;
    struct merak_error err = {0};

    assert_int_equal(merak_device_find("cpu", device, &err), MERAK_OK);
    if (shape->link_bytes_per_s > 0)
        device->links.level[0].bytes_per_s = shape->link_bytes_per_s;
    if (merak_search(&in, &result, &err) != MERAK_OK)
        fail_msg("pp %d, %s: %s", shape->pp, shape->schedule, err.text);
    return result;
}

struct numbers {
    double loss[STEPS];
    float norm;
    int stages_used; /* that hold parameters */
};

static struct numbers run(merak_describe_fn describe, const struct shape *shape)
{
    struct merak_device device;
    struct merak_search_result *result = planned_for(describe, shape, &device);
    struct merak_planned *planned = NULL;
    struct numbers got = {.norm = 0};
    struct merak_error err = {0};
    struct executed *ex;

    if (merak_plan_build(&result->choice[0].plan, SEQ, describe, NULL,
                         MERAK_PLAN_ALL, NULL, &planned, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    if (merak_program_check(planned->program, planned->n_programs, &err) !=
        MERAK_OK)
        fail_msg("%s", err.text);
    for (int r = 0; r < planned->n_programs; r++)
        got.stages_used += planned->program[r]->n_params > 0;
    ex = executed_create(planned);
    for (int step = 0; step < STEPS; step++) {
        executed_step(ex, (uint64_t)step + 7);
        got.loss[step] = executed_loss(ex);
        got.norm = executed_norm(ex, 0);
    }
    executed_destroy(ex);
    merak_search_destroy(result);
    return got;
}

/* To the bit where tp is 1, else to the rounding of sums in another order. */
static void plans_are_as_one_rank(void **state)
{
    static const struct shape one = {1,    1, 1, "1f1b", MERAK_RECOMPUTE_NONE,
                                     AUTO, 0};
    static const struct shape shapes[] = {
        {1, 2, 1, "1f1b", MERAK_RECOMPUTE_NONE, AUTO, 0},
        {1, 3, 1, "eager", MERAK_RECOMPUTE_FULL, AUTO, 0},
        {1, 4, 1, "scp", MERAK_RECOMPUTE_FULL, AUTO, 0},
        {1, 4, 1, "zb-h1", MERAK_RECOMPUTE_NONE, AUTO, 0},
        {1, 2, 2, "interleaved", MERAK_RECOMPUTE_NONE, AUTO, 0},
        {1, 2, 2, "zb-v", MERAK_RECOMPUTE_NONE, AUTO, 0},
        {1, 4, 2, "interleaved", MERAK_RECOMPUTE_NONE, MERAK_BRANCHES_BLOCKS,
         0},
        {1, 3, 2, "zb-v", MERAK_RECOMPUTE_FULL, MERAK_BRANCHES_BLOCKS, 0},
        {2, 2, 1, "1f1b", MERAK_RECOMPUTE_NONE, AUTO, 0},
    };

    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        struct numbers want = run(dag_models[i].describe, &one);

        assert_true(want.loss[1] < want.loss[0] * 1.1);
        for (size_t k = 0; k < sizeof(shapes) / sizeof(*shapes); k++) {
            const struct shape *s = &shapes[k];
            struct numbers got = run(dag_models[i].describe, s);
            double rtol = s->tp > 1 ? 1e-5 : 0;

            print_message("# %s: tp %d, pp %d, %s\n", dag_models[i].name, s->tp,
                          s->pp, s->schedule);
            assert_true(got.stages_used >= s->pp - 1);
            assert_near(got.loss, want.loss, STEPS, rtol, 0);
            assert_near(&got.norm, &want.norm, 1, rtol, 0);
        }
    }
}

/* Is there such an order? */
static bool has_order(merak_describe_fn describe,
                      const struct merak_shard_options *so)
{
    const struct merak_model_options mo = {
        .micro_batch = 2, .seq = SEQ, .dtype = MERAK_F32};
    struct merak_model *model = NULL;
    struct merak_graph *graph = NULL;
    struct merak_sharded *sharded = NULL;
    bool another;

    assert_int_equal(merak_model_create(&mo, &model, NULL), MERAK_OK);
    describe(model, NULL);
    assert_int_equal(merak_model_graph(model, &graph, NULL), MERAK_OK);
    assert_int_equal(merak_shard(graph, so, &sharded, NULL), MERAK_OK);
    another = sharded->order == so->branches;
    merak_sharded_destroy(sharded);
    merak_model_destroy(model);
    return another;
}

/* To the bit: also over tp, where layouts were found for the order in which
 * the model was described. */
static void another_order_changes_no_bit(void **state)
{
    int found = 0;

    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        for (int k = 0; k < 4; k++) {
            int tp = 1 + k % 2;
            struct shape s = {tp,
                              3,
                              1,
                              "1f1b",
                              MERAK_RECOMPUTE_NONE,
                              MERAK_BRANCHES_DESCRIBED,
                              0};
            struct merak_shard_options so = {.tp = tp,
                                             .branches =
                                                 k < 2 ? MERAK_BRANCHES_GATHERED
                                                       : MERAK_BRANCHES_BLOCKS};
            struct numbers want, got;

            if (!has_order(dag_models[i].describe, &so))
                continue;
            want = run(dag_models[i].describe, &s);
            s.branches = so.branches;
            got = run(dag_models[i].describe, &s);
            assert_near(got.loss, want.loss, STEPS, 0, 0);
            assert_near(&got.norm, &want.norm, 1, 0, 0);
            found++;
        }
    }
    assert_true(found >= 12);
}

static double step_of(merak_describe_fn describe, const struct shape *shape)
{
    struct merak_device device;
    struct merak_search_result *result = planned_for(describe, shape, &device);
    double step = result->choice[0].step_s;

    merak_search_destroy(result);
    return step;
}

/* Steps with each order of nodes, and with the one that the search takes. */
static void time_orders(merak_describe_fn describe, int pp, double link,
                        double step_s[AUTO + 1])
{
    for (int order = 0; order <= AUTO; order++) {
        const struct shape s = {.tp = 1,
                                .pp = pp,
                                .chunks = 1,
                                .schedule = "1f1b",
                                .recompute = MERAK_RECOMPUTE_NONE,
                                .branches = (enum merak_branches)order,
                                .link_bytes_per_s = link};

        step_s[order] = step_of(describe, &s);
    }
}

/* How many times as fast as the described order, at the best of the degrees:
 * over links at which what crosses a cut takes about as long as a layer, and
 * over fast ones, where it is all about even stages. */
static void another_order_is_never_slower(void **state)
{
    static const double link[] = {2e7, 1e10};
    static const struct {
        const char *name;
        double gain[2][AUTO]; /* at least, by link and order */
    } want[] = {{"in turns", {{1, 1.2, 1.2}}},
                {"u-net", {{1, 1, 1.3}}},
                {"early branch", {{1, 1.05, 1.1}}},
                {"inception", {{1, 1.04, 1}, {1, 1, 1.2}}}};
    double gain[N_MODELS][2][AUTO] = {{{0}}};

    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        for (int k = 0; k < 6; k++) {
            int pp = 2 + k % 3, fast = k / 3;
            double s[AUTO + 1];

            time_orders(dag_models[i].describe, pp, link[fast], s);
            print_message("# %s, pp %d, links of %g GB/s: %.4g ms as "
                          "described, %.4g ms gathered, %.4g ms in blocks; "
                          "%.4g ms\n",
                          dag_models[i].name, pp, link[fast] * 1e-9, 1e3 * s[0],
                          1e3 * s[1], 1e3 * s[2], 1e3 * s[AUTO]);
            for (int o = 0; o < AUTO; o++) {
                assert_true(s[AUTO] <= s[o] * (o == 0 ? 1 + 1e-9 : 1.05));
                if (s[0] / s[o] > gain[i][fast][o])
                    gain[i][fast][o] = s[0] / s[o];
            }
        }
    }
    for (size_t k = 0; k < sizeof(want) / sizeof(*want); k++) {
        size_t i = 0;

        while (strcmp(want[k].name, dag_models[i].name) != 0)
            i++;
        for (int o = 0; o < 2 * AUTO; o++)
            assert_true(gain[i][o / AUTO][o % AUTO] >=
                        want[k].gain[o / AUTO][o % AUTO]);
    }
}

/* Under a skip, and in the second tower, too. */
static void there_are_places_in_branches(void **state)
{
    static const int least[N_MODELS] = {8, 8, 8, 12, 12, 1};

    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        const struct merak_plan plan = {.tp = 1,
                                        .pp = 1,
                                        .dp = 1,
                                        .microbatches = 1,
                                        .micro_batch = 2,
                                        .schedule = "1f1b"};
        struct merak_planned *planned = NULL;
        int n = 0;

        assert_int_equal(merak_plan_build(&plan, SEQ, dag_models[i].describe,
                                          NULL, MERAK_PLAN_ALL, NULL, &planned,
                                          NULL),
                         MERAK_OK);
        assert_int_equal(merak_stages_count_points(planned->sharded, &n, NULL),
                         MERAK_OK);
        print_message("# %s: %d places\n", dag_models[i].name, n);
        assert_true(n >= least[i]);
        merak_planned_destroy(planned);
    }
}

/* Elements that cross the cut of two stages, and FLOPs of the longer one, where
 * links are so fast. */
static double cut_in_two(double link_bytes_per_s, double *longest)
{
    const struct merak_plan plan = {.tp = 1,
                                    .pp = 2,
                                    .dp = 1,
                                    .microbatches = 2,
                                    .micro_batch = 2,
                                    .schedule = "1f1b"};
    struct merak_cost_model cost = *merak_cost_default();
    const struct merak_program_options opt = {.cost = &cost};
    struct merak_planned *planned = NULL;
    const struct merak_program *first;
    double bytes = 0;

    cost.links.level[0].bytes_per_s = link_bytes_per_s;
    assert_int_equal(merak_plan_build(&plan, SEQ,
                                      dag_models[DAG_U_NET].describe, NULL,
                                      MERAK_PLAN_ALL, &opt, &planned, NULL),
                     MERAK_OK);
    first = planned->program[0];
    for (int i = 0; i < first->n_instrs; i++) {
        if (first->instr[i].kind == MERAK_INSTR_SEND)
            bytes += (double)first->instr[i].bytes;
    }
    for (int s = 0; s < 2; s++) {
        if (s == 0 || planned->stages->flops[s] > *longest)
            *longest = planned->stages->flops[s];
    }
    merak_planned_destroy(planned);
    return bytes;
}

/* A plan whose degrees are given is cut for the machine that it is for. */
static void slow_links_are_cut_where_little_crosses(void **state)
{
    double even, cheap, fast = cut_in_two(1e15, &even),
                        slow = cut_in_two(1e6, &cheap);

    (void)state;
    print_message("# sent %g and %g bytes, longer stages of %g and %g FLOP\n",
                  fast, slow, even, cheap);
    assert_true(slow < fast);
    assert_true(even < cheap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_places_in_branches),
        cmocka_unit_test(slow_links_are_cut_where_little_crosses),
        cmocka_unit_test(another_order_is_never_slower),
        cmocka_unit_test(another_order_changes_no_bit),
        cmocka_unit_test(plans_are_as_one_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
