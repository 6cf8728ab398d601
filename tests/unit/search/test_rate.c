/* SPDX-License-Identifier: Apache-2.0 */
/* test_rate.c - a candidate's step by the planner's table, against published
 * figures and times worked out by hand
 */
#include "config.h"

#include "unit/near.h"

#include "partitioner/search/cut.h"

#include <float.h>
#include <math.h>

/* What cost models say of losses: of a round, and of a byte. */
static struct merak_interference beside;

static struct merak_cost_model with_losses(struct merak_cost_model cost)
{
    cost.interference_latency_s = beside.wake_s;
    cost.interference_bytes_per_s = beside.copy_s > 0 ? 1 / beside.copy_s : 0;
    return cost;
}

/* Bytes of a value of 1 that a tensor rank sends; 0: all of it. */
static double sent_part;

/* Rate a pipeline of one segment a stage that takes f forward, twice that
 * backward, and hops of c seconds; no parameters. */
static double rate_pipeline(const char *schedule, int m, const double *f,
                            double c)
{
    struct merak_segment segment[4] = {{0}};
    struct merak_table table = {.n = 4, .width = 1, .segment = segment};
    struct merak_candidate cand = {.table = &table,
                                   .plan = {.tp = 1,
                                            .pp = 4,
                                            .dp = 1,
                                            .microbatches = m,
                                            .micro_batch = 1,
                                            .scatter = sent_part > 0},
                                   .bound = (int[]){0, 1, 2, 3, 4},
                                   .drop = (struct merak_drop[4]){{0}}};
    const struct merak_cost_model cost = with_losses(
        (struct merak_cost_model){.flops_per_s = 1,
                                  .bytes_per_s = 1,
                                  .links.level[0].bytes_per_s = 1 / c});

    for (int s = 0; s < 4; s++)
        segment[s] = (struct merak_segment){.f_s = f[s],
                                            .b_s = 2 * f[s],
                                            .up_bytes = 1,
                                            .down_bytes = 1,
                                            .up_part = sent_part,
                                            .down_part = sent_part};
    assert_int_equal(merak_schedule_find(schedule, &cand.schedule, NULL),
                     MERAK_OK);
    assert_int_equal(merak_search_rate(&cost, &cand, DBL_MAX, NULL), MERAK_OK);
    return cand.rated_s;
}

/* The golden table of the pipeline notes: simulated there by other code. */
static void pipelines_take_the_golden_times(void **state)
{
    static const double even[] = {1, 1, 1, 1}, hump[] = {1, 1.5, 1, 0.5};
    static const double slope[] = {1.5, 1, 1, 0.5};
    static const struct {
        const char *schedule;
        int m;
        const double *f;
        double c, want;
    } rows[] = {
        {"1f1b", 8, even, 0, 33},       {"1f1b", 8, even, 0.15, 35.4},
        {"eager", 8, even, 0.15, 33.9}, {"1f1b", 8, even, 0.6, 42.6},
        {"eager", 8, even, 0.6, 36.6},  {"1f1b", 16, even, 0.6, 73.8},
        {"eager", 16, even, 0.6, 60.6}, {"1f1b", 8, hump, 0, 40.5},
        {"eager", 8, hump, 0, 39},      {"gpipe", 8, hump, 0, 43.5},
        {"1f1b", 16, slope, 0.3, 78},   {"eager", 16, slope, 0.3, 73.2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        double got =
            rate_pipeline(rows[i].schedule, rows[i].m, rows[i].f, rows[i].c);

        if (fabs(got - rows[i].want) > 1e-9)
            fail_msg("%s, %d micro-batches, hops of %g: %.9g, not %g",
                     rows[i].schedule, rows[i].m, rows[i].c, got, rows[i].want);
    }
}

/* Stages of f forward and backward, blocks of f' and b' that they run together
 * and whose input takes `hop` from stage to stage. */
static double rate_blocks(int pp, int m, double f, const double *block,
                          double hop)
{
    struct merak_segment segment[10] = {{0}};
    struct merak_table table = {
        .n = pp + 2, .n_shared = 2, .width = 1, .segment = segment};
    struct merak_candidate cand = {
        .table = &table,
        .plan = {.tp = 1,
                 .pp = pp,
                 .dp = 1,
                 .chunks = 3,
                 .schedule = "interlaced",
                 .microbatches = m,
                 .micro_batch = 1},
        .bound = (int[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
        .drop = (struct merak_drop[10]){{0}}};
    const struct merak_cost_model cost = {
        .flops_per_s = 1, .bytes_per_s = 1, .links.level[0].bytes_per_s = 1};

    for (int s = 0; s < pp + 2; s++)
        segment[s] = (struct merak_segment){
            .f_s = f, .b_s = f, .up_bytes = 1e-30, .down_bytes = 1e-30};
    for (int k = 0; k < 2; k++) {
        struct merak_segment *seg = &segment[pp + k];

        seg->f_s = seg->f_latency_s = block[2 * k];
        seg->b_s = seg->b_latency_s = block[2 * k + 1];
        *(k == 0 ? &seg->down_bytes : &seg->up_bytes) = hop;
    }
    assert_int_equal(merak_schedule_find("interlaced", &cand.schedule, NULL),
                     MERAK_OK);
    assert_int_equal(merak_search_rate(&cost, &cand, DBL_MAX, NULL), MERAK_OK);
    return cand.rated_s;
}

/* (m + p - 1)(f + b) + m(f' + b'): schedule/interlaced.c.  A head's input is
 * waited for on its way from the last stage to the first, each time. */
static void blocks_of_all_stages_take_the_closed_form(void **state)
{
    static const double none[4] = {0, 0, 0, 0};
    static const double both[] = {0.25, 0.125, 1, 0.5};
    static const struct {
        int pp, m;
        const double *block;
        double hop, want;
    } rows[] = {
        {2, 4, none, 0, 5 * 2},
        {4, 8, none, 0, 11 * 2},
        {4, 8, both, 0, 11 * 2 + 8 * 1.875},
        {4, 64, both, 0, 67 * 2 + 64 * 1.875},
        {8, 100, both, 0, 107 * 2 + 100 * 1.875},
        {3, 6, both, 0, 8 * 2 + 6 * 1.875},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        double got = rate_blocks(rows[i].pp, rows[i].m, 1, rows[i].block,
                                 rows[i].hop > 0 ? rows[i].hop : 1e-30);

        if (fabs(got - rows[i].want) > 1e-9)
            fail_msg("row %zu: %.9g, not %g", i, got, rows[i].want);
    }
}

/* Kernels that run beside a hop lose a tenth of a second to it: each has one
 * in front of it and one behind, but for those of the model's ends. */
static void hops_take_from_kernels(void **state)
{
    static const double even[] = {1, 1, 1, 1};

    (void)state;
    beside = (struct merak_interference){0.06, 0.04};
    /* A stage in the middle does 8 forwards of 1.2 and backwards of 2.2; what
     * the stages around it add to fill and drain it are 1.1, 2.1 and so on. */
    assert_true(fabs(rate_pipeline("gpipe", 8, even, 0) -
                     (1.1 + 8 * 1.2 + 1.2 + 1.1 + 2.1 + 8 * 2.2 + 2.2 + 2.1)) <
                1e-9);
    /* of which half the bytes, where a tensor rank sends half the value */
    sent_part = 0.5;
    assert_true(fabs(rate_pipeline("gpipe", 8, even, 0) -
                     (1.08 + 8 * 1.16 + 1.16 + 1.08 + 2.08 + 8 * 2.16 + 2.16 +
                      2.08)) < 1e-9);
    sent_part = 0;
    beside = (struct merak_interference){0};
}

/* One micro-batch of n segments, as many on each stage, that take 1 s forward
 * and 2 s backward, half of it for the weights' gradients; over two replicas
 * whose links send an element in 4 s. */
struct replicas {
    const char *schedule;
    int pp, n;
    int zero;
    bool exchanges; /* between tensor ranks: take no time */
    double elements[4], want;
};

/* > 0: a replica's two stages share a node, and ranks move a byte a second to
 * the other replica's. */
static double node_bytes_per_s;

static double rate_replicas(const struct replicas *row)
{
    struct merak_segment segment[4] = {{0}};
    struct merak_table table = {.n = row->n, .width = 1, .segment = segment};
    struct merak_candidate cand = {
        .table = &table,
        .plan = {.tp = 1,
                 .pp = row->pp,
                 .dp = 2,
                 .microbatches = 1,
                 .micro_batch = 1,
                 .order_tp_pp_dp = node_bytes_per_s > 0,
                 .zero = row->zero},
        .bound =
            row->pp == 1 ? (int[]){0, row->n} : (int[]){0, row->n / 2, row->n},
        .drop = (struct merak_drop[2]){{0}}};
    const struct merak_cost_model cost = with_losses((struct merak_cost_model){
        .flops_per_s = 1e30,
        .bytes_per_s = 1e30,
        .links.level[0].bytes_per_s = 1,
        .links.level[0].ranks = node_bytes_per_s > 0 ? 2 : 0,
        .links.level[1].bytes_per_s = 1,
        .links.level[0].way_bytes_per_s = node_bytes_per_s});

    for (int s = 0; s < row->n; s++)
        segment[s] = (struct merak_segment){
            .f_s = 1,
            .b_s = 2,
            .x_s = 1,
            .w_s = 1,
            .kernel_s = 3,
            .up_bytes = 1e-12,
            .down_bytes = 1e-12,
            .exchanged = row->exchanges,
            .hold = {.f32_elems = row->elements[s], .n = row->elements[s] > 0}};
    assert_int_equal(merak_schedule_find(row->schedule, &cand.schedule, NULL),
                     MERAK_OK);
    assert_int_equal(merak_search_rate(&cost, &cand, DBL_MAX, NULL), MERAK_OK);
    return cand.rated_s;
}

static void assert_rated(const struct replicas *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double got = rate_replicas(&rows[i]);

        if (fabs(got - rows[i].want) > 1e-9)
            fail_msg("row %zu: %.9g, not %g", i, got, rows[i].want);
    }
}

/* With ZeRO-1 forwards wait for the parameters that they read, and hide the
 * gathers of the others; without, the reduction takes twice as long. */
static void gathers_hide_behind_the_first_forwards(void **state)
{
    static const struct replicas rows[] = {
        {"1f1b", 1, 2, true, false, {0, 0}, 6},
        /* Gathered at 0.5 and 1; forwards to 1.5 and 2.5; reduced in 0.5, the
         * second segment's behind the first's backward. */
        {"1f1b", 1, 2, true, false, {0.25, 0.25}, 2.5 + 4 + 0.5},
        {"1f1b", 1, 2, false, false, {0.25, 0.25}, 2 + 4 + 1},
        /* At 0.5 and 4.5; reduced 2 s after the backwards. */
        {"1f1b", 1, 2, true, false, {0.25, 2}, 5.5 + 4 + 2 + 0.5},
        {"1f1b", 1, 2, true, false, {2, 0}, 6 + 4 + 4},
        /* Stages gather at once: the second is done at 1, or at 4, when what
         * the first sent at 1.5 has long come. */
        {"1f1b", 2, 2, true, false, {0.25, 0.5}, 2.5 + 2 + 2 + 0.5},
        {"1f1b", 2, 2, true, false, {0.25, 2}, 5 + 2 + 4},
        /* The second is done at 4.5, its first segment's part at 0.5; its
         * exchanges wait for both. */
        {"1f1b", 2, 4, true, false, {0, 0, 0.25, 2}, 5.5 + 4 + 4},
        {"1f1b", 2, 4, true, true, {0, 0, 0.25, 2}, 6.5 + 4 + 4},
        /* On the first stage they do not. */
        {"1f1b", 1, 2, true, true, {0.25, 0.25}, 2.5 + 4 + 0.5},
    };

    (void)state;
    assert_rated(rows, sizeof(rows) / sizeof(*rows));
}

static void reductions_hide_behind_the_last_backward(void **state)
{
    static const struct replicas rows[] = {
        {"1f1b", 1, 3, false, false, {0, 0, 0}, 9},
        /* The last segment's from 5 on, the first's from 9 on. */
        {"1f1b", 1, 3, false, false, {0, 0, 1}, 9},
        {"1f1b", 1, 3, false, false, {1, 0, 0}, 9 + 4},
        {"1f1b", 1, 3, false, false, {0, 0, 2}, 5 + 8},
        {"1f1b", 1, 3, false, false, {0.5, 0.5, 2}, 5 + 8 + 2 + 2},
        {"1f1b", 1, 3, false, false, {0.5, 0.5, 0.5}, 9 + 2},
        /* Exchanges of the backward do not wait for it. */
        {"1f1b", 1, 3, false, true, {0, 0, 1}, 9},
        {"1f1b", 1, 3, false, true, {0, 0, 2}, 5 + 8},
        {"1f1b", 1, 3, false, true, {0.25, 0, 2}, 5 + 8 + 1},
        {"1f1b", 2, 4, false, true, {0, 0, 0, 1}, 6 + 2 + 4},
        {"1f1b", 2, 4, false, false, {0, 0, 0, 1}, 6 + 2 + 4},
        /* Gradients of weights apart, behind those of all activations. */
        {"zb-h1", 1, 3, false, false, {0, 0, 0}, 9},
        {"zb-h1", 1, 3, false, false, {0, 0, 1}, 7 + 4},
        {"zb-h1", 1, 3, false, true, {0.25, 0, 1}, 7 + 4 + 1},
    };

    (void)state;
    assert_rated(rows, sizeof(rows) / sizeof(*rows));
}

/* As below.  A gather takes nothing from a stage that still waits. */
static void gathers_take_from_kernels(void **state)
{
    static const struct replicas rows[] = {
        /* half an element is there at 1: beside the first segment's forward,
         * and is reduced beside its backward */
        {"1f1b", 1, 2, true, false, {0, 0.5}, 2 + 4 + 2 * (0.125 + 0.0625)},
        /* an element of the second stage at 2; the first is through at 1;
         * what follows has a hop each */
        {"1f1b", 2, 2, true, false, {0, 1}, 2 + 1 + 2 + 2 + 3 * 0.125},
    };

    (void)state;
    beside = (struct merak_interference){0.125, 1.0 / 16};
    assert_rated(rows, sizeof(rows) / sizeof(*rows));
    beside = (struct merak_interference){0};
}

/* Kernels lose 1/8 s a round, and 1/16 s to the 2 bytes in which half an
 * element goes to the other replica. */
static void reductions_take_from_kernels(void **state)
{
    static const struct replicas rows[] = {
        /* none runs behind the first segment's */
        {"1f1b", 1, 3, false, false, {0.25, 0, 0}, 9 + 1},
        /* an all-reduce goes round twice, with twice the bytes */
        {"1f1b", 1, 3, false, false, {0, 0, 0.5}, 9 + 2 * (0.125 + 0.0625)},
        {"1f1b", 1, 3, false, false, {0, 0.5, 0.5}, 9 + 4 * (0.125 + 0.0625)},
        /* what the reduction takes is over before the link is */
        {"1f1b", 1, 3, false, false, {0, 0, 2}, 5 + 8},
    };

    (void)state;
    beside = (struct merak_interference){0.125, 1.0 / 16};
    assert_rated(rows, sizeof(rows) / sizeof(*rows));
    beside = (struct merak_interference){0};
}

static void stages_of_a_node_share_its_ways(void **state)
{
    static const struct replicas roomy[] = {
        /* From 4 on the second stage reduces for 4 s, from 6 on the first. */
        {"1f1b", 2, 2, false, false, {1, 1}, 6 + 4},
        {"1f1b", 2, 2, true, false, {0.25, 0.25}, 0.5 + 6 + 0.5},
    };
    static const struct replicas tight[] = {
        {"1f1b", 2, 2, false, false, {1, 1}, 4 + 4 + 4},
        {"1f1b", 2, 2, false, false, {0.5, 2}, 4 + 2 + 8},
        /* The second is through before the first begins. */
        {"1f1b", 2, 2, false, false, {1, 0.5}, 6 + 4},
        /* Both gather until 1. */
        {"1f1b", 2, 2, true, false, {0.25, 0.25}, 1 + 6 + 0.5},
    };

    (void)state;
    node_bytes_per_s = 2;
    assert_rated(roomy, sizeof(roomy) / sizeof(*roomy));
    node_bytes_per_s = 1;
    assert_rated(tight, sizeof(tight) / sizeof(*tight));
    node_bytes_per_s = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_take_the_golden_times),
        cmocka_unit_test(blocks_of_all_stages_take_the_closed_form),
        cmocka_unit_test(hops_take_from_kernels),
        cmocka_unit_test(gathers_hide_behind_the_first_forwards),
        cmocka_unit_test(reductions_hide_behind_the_last_backward),
        cmocka_unit_test(gathers_take_from_kernels),
        cmocka_unit_test(reductions_take_from_kernels),
        cmocka_unit_test(stages_of_a_node_share_its_ways),
    };

    return cmocka_run_group_tests_name("rate", tests, NULL, NULL);
}
