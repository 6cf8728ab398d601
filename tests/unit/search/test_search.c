/* SPDX-License-Identifier: Apache-2.0 */
/* test_search.c - the planner: what it refuses, what it keeps to, and full size
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/instance.h"
#include "unit/search/mixtral_config.h"

#include "io/hf_config.h"
#include "partitioner/simulate/simulate.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static void pinned_choices_are_kept(void **state)
{
    struct merak_search_result *result = NULL;
    struct instance it;
    double best;

    (void)state;
    instance_draw(&it, 7);
    it.layers = 3;
    it.in.nodes = 2;
    it.in.ranks_per_node = 4;
    it.in.global_batch = 8;
    it.in.pin = (struct merak_choices){.chunks = 1};
    best = instance_step(&it);
    it.in.pin = (struct merak_choices){.tp = 2,
                                       .pp = 2,
                                       .micro_batch = 2,
                                       .schedule = "gpipe",
                                       .sub_pipeline = false,
                                       .given[MERAK_CHOICE_SUB_PIPELINE] = true,
                                       .zero = 0,
                                       .given[MERAK_CHOICE_ZERO] = true,
                                       .order_tp_pp_dp = true,
                                       .given[MERAK_CHOICE_ORDER] = true,
                                       .given[MERAK_CHOICE_SP] = true,
                                       .sp = MERAK_SP_OFF};
    assert_int_equal(merak_search(&it.in, &result, NULL), MERAK_OK);
    for (int i = 0; i < result->n_choices; i++) {
        const struct merak_plan *plan = &result->choice[i].plan;

        assert_int_equal(plan->tp, 2);
        assert_int_equal(plan->pp, 2);
        assert_int_equal(plan->dp, 2);
        assert_int_equal(plan->micro_batch, 2);
        assert_int_equal(plan->microbatches, 2);
        assert_string_equal(plan->schedule, "gpipe");
        assert_int_equal(plan->zero, 0);
        assert_true(plan->order_tp_pp_dp);
        assert_int_equal(plan->sp, MERAK_SP_OFF);
    }
    assert_true(result->choice[0].step_s >= best * (1 - 1e-9));
    merak_search_destroy(result);
}

static void refusals_say_what_binds(void **state)
{
    static const struct {
        struct merak_choices pin;
        size_t batch, memory;
        const char *says[2];
    } rows[] = {
        {{0}, 8, 1000, {"no plan fits", "nearest: "}},
        {{0}, 2147483647, 0, {"a global batch of 2147483647", "at most"}},
        {{.dp = 4}, 6, 0, {"not a multiple of dp 4 x micro-batch 1", "8"}},
        {{.tp = 3},
         8,
         0,
         {"tp 3: tp x pp x dp", "the 4 of a node; nearest: --tp 4"}},
        {{.tp = 2, .pp = 2, .dp = 4},
         8,
         0,
         {"must be the 8 ranks", "nearest: --tp 1 --pp 2 --dp 4"}},
        {{.tp = 2,
          .micro_batch = 1,
          .given[MERAK_CHOICE_TP_BATCH] = true,
          .tp_batch_percent = 50},
         8,
         0,
         {"micro-batch 1 cannot be split over tensor-parallel ranks, which "
          "--tp-batch 50 requires",
          "nearest: --micro-batch 2"}},
        {{.pp = 2,
          .dp = 2,
          .micro_batch = 2,
          .given[MERAK_CHOICE_TP_BATCH] = true,
          .tp_batch_percent = 9,
          .sub_pipeline = true,
          .given[MERAK_CHOICE_SUB_PIPELINE] = true},
         8,
         0,
         {"micro-batch 2 cannot be split over tensor-parallel ranks, which "
          "--tp-batch 9 requires",
          "nearest: "}},
        {{.tp = 4,
          .given[MERAK_CHOICE_TP_BATCH] = true,
          .tp_batch_percent = 100},
         6,
         0,
         {"not a multiple of dp 1 x micro-batch 4", "--global-batch 8"}},
        {{.tp = 2,
          .schedule = "sliced:2",
          .given[MERAK_CHOICE_TP_BATCH] = true,
          .tp_batch_percent = 100},
         8,
         0,
         {"schedule sliced:2 runs micro-batches of 1", "--tp-batch 100"}},
        {{.schedule = "no such"}, 8, 0, {"no schedule 'no such'", "1f1b"}},
        {{.schedule = "interlaced", .pp = 1},
         8,
         0,
         {"schedule interlaced: 1 stage given", "nearest: "}},
        {{.schedule = "interlaced", .pp = 2, .chunks = 4},
         8,
         0,
         {"of 4 chunks is for a model with an encoder", "nearest: --chunks 2"}},
        {{.schedule = "interlaced", .pp = 2, .chunks = 3},
         8,
         0,
         {"besides 2 vocabulary-parallel layers the model cannot be cut for "
          "pp 2",
          "nearest: --chunks 2"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_search_result *result = NULL;
        struct merak_error err = {0};
        struct instance it;

        instance_draw(&it, 11);
        it.in.nodes = 2;
        it.in.ranks_per_node = 4;
        it.in.pin = rows[i].pin;
        it.in.global_batch = rows[i].batch;
        it.in.memory_bytes = rows[i].memory;
        assert_true(merak_search(&it.in, &result, &err) != MERAK_OK);
        assert_null(result);
        for (int k = 0; k < 2; k++) {
            if (strstr(err.text, rows[i].says[k]) == NULL)
                fail_msg("\"%s\" does not say \"%s\"", err.text,
                         rows[i].says[k]);
        }
    }
}

static void cp_that_does_not_divide_is_named(void **state)
{
    struct merak_search_result *result = NULL;
    struct merak_error err = {0};
    struct instance it;

    (void)state;
    instance_draw(&it, 11);
    it.in.nodes = 1;
    it.in.ranks_per_node = 4;
    it.in.seq--;
    it.in.pin = (struct merak_choices){.cp = 2, .given[MERAK_CHOICE_CP] = true};
    assert_int_equal(merak_search(&it.in, &result, &err), MERAK_ERR_CONFIG);
    assert_null(result);
    assert_non_null(strstr(err.text, "cannot be cut over cp=2; nearest: "
                                     "--cp 1"));
}

/* --- full size ------------------------------------------------------------ */

/* 44 layers of 6144: 20 billion parameters. */
static struct merak_hf_config gpt20b;

static void input_20b(struct merak_search_input *in,
                      struct merak_device *device)
{
    gpt20b = gpt2_config(44, 6144, 64, 50257);
    assert_int_equal(merak_device_find("h200", device, NULL), MERAK_OK);
    *in = (struct merak_search_input){.describe = merak_hf_describe,
                                      .arg = &gpt20b,
                                      .seq = 2048,
                                      .dtype = MERAK_BF16,
                                      .global_batch = 1024,
                                      .nodes = 8,
                                      .ranks_per_node = 8,
                                      .threads = 1,
                                      .device = device};
}

/* Processor time, so that neighbours do not count; 2 s is the goal on a
 * processor of its own, the rest is for sanitizers and slow machines. */
static void twenty_billion_on_64_in_seconds(void **state)
{
    struct merak_search_result *result = NULL;
    struct merak_search_input in;
    struct merak_device device;
    struct rusage before, after;
    double sum = 0, seconds;
    clock_t start = clock();

    (void)state;
    input_20b(&in, &device);
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(merak_search(&in, &result, NULL), MERAK_OK);
    getrusage(RUSAGE_SELF, &after);
    seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    print_message("# 20 B on 64: %.2f s, %ld MiB more, %d rated, %d "
                  "simulated\n",
                  seconds, (after.ru_maxrss - before.ru_maxrss) / 1024,
                  result->n_rated, result->n_simulated);
    /* sanitizers keep what is freed, or have as much of their own, and time */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* an emulator's time says nothing of a processor's: tests/cross.sh */
    assert_true(getenv("MERAK_TEST_EMULATED") || seconds < 10);
    assert_true(after.ru_maxrss - before.ru_maxrss < 100 * 1024);
#endif
    assert_int_equal(result->n_choices, MERAK_SEARCH_CHOICES);
    assert_true(result->flop_utilisation > 0.3);
    assert_true(result->flop_utilisation < 0.65); /* sustained over peak */
    for (int i = 0; i < MERAK_PART_COUNT; i++) {
        assert_true(result->choice[0].part_s[i] >= -1e-9);
        sum += result->choice[0].part_s[i];
    }
    assert_true(fabs(sum - result->choice[0].step_s) <
                1e-9 * result->choice[0].step_s);
    for (int i = 1; i < result->n_choices; i++)
        assert_true(result->choice[i].why[0] != '\0');
    merak_search_destroy(result);
}

/* What is printed is what a run reserves: programs with all micro-batches,
 * as a trainer makes them of the plan, who does not know the machine. */
static void memory_is_the_arena_s(void **state)
{
    static const struct {
        const char *schedule;
        int chunks, batch, gib;
        bool sub_pipeline;
    } rows[] = {
        {"1f1b", 1, 192, 400, false},       {"gpipe", 1, 192, 400, false},
        {"eager", 1, 192, 400, false},      {"interleaved", 2, 128, 400, false},
        {"zb-v", 2, 96, 45, false},         {"scp", 1, 96, 40, false},
        {"1f1b", 1, 96, 50, true},          {"sliced:4", 1, 8, 60, false},
        {"interlaced", 3, 192, 400, false}, {"interlaced", 3, 96, 32, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_search_result *result = NULL;
        struct merak_planned *planned = NULL;
        struct merak_search_input in;
        struct merak_device device;
        struct merak_error err = {0};
        bool sliced = merak_schedule_slices(rows[i].schedule) > 1;

        input_20b(&in, &device);
        in.global_batch = (size_t)rows[i].batch;
        in.memory_bytes = (size_t)rows[i].gib << 30;
        in.pin =
            (struct merak_choices){.tp = 2,
                                   .pp = 4,
                                   .micro_batch = sliced ? 1 : 2,
                                   .given[MERAK_CHOICE_SP] = sliced,
                                   .sp = MERAK_SP_OFF,
                                   .chunks = rows[i].chunks,
                                   .schedule = rows[i].schedule,
                                   .given[MERAK_CHOICE_SUB_PIPELINE] = true,
                                   .sub_pipeline = rows[i].sub_pipeline};
        if (merak_search(&in, &result, &err) != MERAK_OK)
            fail_msg("%s: %s", rows[i].schedule, err.text);
        assert_int_equal(
            merak_plan_build(&result->choice[0].plan, in.seq, in.describe,
                             in.arg, MERAK_PLAN_STAGES, NULL, &planned, &err),
            MERAK_OK);
        for (int s = 0; s < 4; s++) {
            assert_int_equal(result->stage[s].arena_bytes,
                             planned->program[s]->arena_bytes);
            assert_true(result->stage[s].arena_bytes <= in.memory_bytes);
            for (int c = 0; c < MERAK_CAT_COUNT; c++)
                assert_int_equal(result->stage[s].category_bytes[c],
                                 planned->program[s]->category_bytes[c]);
        }
        print_message("# %s: %d of %d blocks of stage 0 again%s\n",
                      rows[i].schedule, result->stage[0].blocks_recomputed,
                      result->stage[0].n_blocks,
                      result->stage[0].attention ? ", attention" : "");
        merak_planned_destroy(planned);
        merak_search_destroy(result);
    }
}

/* Seconds of a step of the programs that a plan makes. */
static double step_of(const struct merak_plan *plan,
                      const struct merak_search_input *in,
                      const struct merak_device *device)
{
    struct merak_program_options opt = {0};
    struct merak_cost_model cost;
    struct merak_planned *planned = NULL;
    struct merak_timeline *timeline = NULL;
    struct merak_error err;
    double step;

    merak_device_cost(device, in->dtype, in->ranks_per_node, &cost);
    opt.cost = &cost;
    if (merak_plan_build(plan, in->seq, in->describe, in->arg,
                         MERAK_PLAN_STAGES, &opt, &planned, &err) != MERAK_OK ||
        merak_simulate(planned->program, planned->n_programs, &cost, NULL,
                       &timeline, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    step = timeline->step_s;
    merak_timeline_destroy(timeline);
    merak_planned_destroy(planned);
    return step;
}

/* 8 ranks on 4 nodes with slow links, a table that outweighs the layers, and
 * no room for replicas of it: the planner shares it out as one may by hand. */
static void a_huge_vocabulary_is_cut_over_all_stages(void **state)
{
    static const int degrees[][3] = {
        {1, 8, 1}, {2, 4, 1}, {1, 4, 2}, {2, 2, 2}};
    struct merak_hf_config config = gpt2_config(4, 128, 4, 32768);
    struct merak_device device = {.links.level[0].ranks = 2,
                                  .memory_bytes = 48u << 20,
                                  .flops_per_s = {[MERAK_F32] = 4e9},
                                  .peak_flops_per_s = {[MERAK_F32] = 4e9},
                                  .bytes_per_s = 4e9,
                                  .kernel_s = 4e-4,
                                  .links.level[0].bytes_per_s = 1e9,
                                  .links.level[0].latency_s = 1e-4,
                                  .links.level[1].bytes_per_s = 1.5625e7,
                                  .links.level[1].latency_s = 2e-4};
    struct merak_search_input in = {.describe = merak_hf_describe,
                                    .arg = &config,
                                    .seq = 64,
                                    .dtype = MERAK_F32,
                                    .global_batch = 8,
                                    .nodes = 4,
                                    .ranks_per_node = 2,
                                    .threads = 1,
                                    .device = &device};
    struct merak_search_result *result = NULL;
    struct merak_error err;

    (void)state;
    config.positions = 64;
    if (merak_search(&in, &result, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    print_message("# huge vocabulary: %s, tp %d, pp %d: %g s\n",
                  result->choice[0].plan.schedule, result->choice[0].plan.tp,
                  result->choice[0].plan.pp, result->choice[0].step_s);
    for (size_t i = 0; i < sizeof(degrees) / sizeof(*degrees); i++) {
        struct merak_plan plan = {.tp = degrees[i][0],
                                  .pp = degrees[i][1],
                                  .dp = degrees[i][2],
                                  .microbatches = 8 / degrees[i][2],
                                  .micro_batch = 1,
                                  .schedule = "interlaced",
                                  .chunks = 3,
                                  .zero = 1,
                                  .threads = 1};
        double step = step_of(&plan, &in, &device);

        print_message("# interlaced, tp %d, pp %d: %g s\n", plan.tp, plan.pp,
                      step);
        assert_true(result->choice[0].step_s <= step);
    }
    assert_string_equal(result->choice[0].plan.schedule, "interlaced");
    merak_search_destroy(result);
}

/* A slice is so small that parts of it would take longer to gather than all
 * of it takes to come. */
static void boundaries_are_of_slices(void **state)
{
    static const struct {
        const char *schedule;
        int scatter;
    } rows[] = {{"1f1b", 4}, {"sliced:2", 4}, {"sliced:256", 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_search_result *result = NULL;
        struct merak_search_input in;
        struct merak_device device;
        struct merak_error err;

        input_20b(&in, &device);
        gpt20b.layers = 4;
        device.links.level[0].ranks = in.ranks_per_node = 4;
        device.links.level[0].latency_s = 5e-6;
        in.nodes = 2;
        in.global_batch = 4;
        in.pin =
            (struct merak_choices){.tp = 4,
                                   .pp = 2,
                                   .micro_batch = 1,
                                   .given[MERAK_CHOICE_SP] = true,
                                   .sp = MERAK_SP_OFF,
                                   .schedule = rows[i].schedule,
                                   .sub_pipeline = false,
                                   .given[MERAK_CHOICE_SUB_PIPELINE] = true};
        if (merak_search(&in, &result, &err) != MERAK_OK)
            fail_msg("%s: %s", rows[i].schedule, err.text);
        assert_int_equal(result->choice[0].plan.scatter, rows[i].scatter);
        merak_search_destroy(result);
    }
}

/* The shape of Llama 3 8B. */
static struct merak_hf_config llama3_8b(void)
{
    struct merak_hf_config config = gpt2_config(32, 4096, 32, 128256);

    config.family = MERAK_LLAMA;
    config.kv_heads = 8;
    config.ffn = 14336;
    config.positions = 131072;
    config.rope.theta = 5e5f;
    config.tied = config.attn_bias = config.mlp_bias = false;
    return config;
}

/* With few long sequences for many stages a search tries ever more slices;
 * what it proposes, and what it rates on the way, are names that are read. */
static void plans_of_long_sequences_are_read(void **state)
{
    static const struct {
        const char *device;
        int nodes;
        size_t batch, seq;
    } rows[] = {
        {"h100", 4, 16, 16384}, {"a100", 4, 2, 32768}, {"h100", 4, 16, 131072}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct merak_hf_config config = llama3_8b();
        struct merak_search_result *result = NULL;
        struct merak_device device;
        struct merak_error err;
        struct merak_search_input in = {.describe = merak_hf_describe,
                                        .arg = &config,
                                        .seq = rows[i].seq,
                                        .dtype = MERAK_BF16,
                                        .global_batch = rows[i].batch,
                                        .nodes = rows[i].nodes,
                                        .ranks_per_node = 8,
                                        .memory_bytes = (size_t)1 << 40,
                                        .threads = 1,
                                        .device = &device};
        const struct merak_schedule *schedule;

        assert_int_equal(merak_device_find(rows[i].device, &device, NULL),
                         MERAK_OK);
        if (merak_search(&in, &result, &err) != MERAK_OK)
            fail_msg("%s, %zu tokens: %s", rows[i].device, rows[i].seq,
                     err.text);
        for (int k = 0; k < result->n_choices; k++)
            assert_int_equal(
                merak_schedule_find(result->choice[k].plan.schedule, &schedule,
                                    NULL),
                MERAK_OK);
        merak_search_destroy(result);
        merak_device_fini(&device);
    }
}

/* Long sequences are cut where that is faster, by the degree that is best of
 * all; short ones are not. */
static void the_best_cp_is_found(void **state)
{
    struct merak_hf_config config = gpt2_config(2, 4096, 32, 50257);
    struct merak_search_result *result = NULL;
    struct merak_search_input in;
    struct merak_device device;
    struct merak_error err;
    double best = DBL_MAX;
    int cp = 0;

    (void)state;
    input_20b(&in, &device);
    config.positions = 32768;
    in.arg = &config;
    in.seq = 32768;
    in.global_batch = 1;
    in.nodes = 1;
    in.ranks_per_node = 4;
    in.pin.schedule = "1f1b";
    in.pin.given[MERAK_CHOICE_CP] = true;
    for (in.pin.cp = 1; in.pin.cp <= 4; in.pin.cp *= 2) {
        assert_int_equal(merak_search(&in, &result, &err), MERAK_OK);
        assert_int_equal(result->choice[0].plan.cp, in.pin.cp);
        if (result->choice[0].step_s < best) {
            best = result->choice[0].step_s;
            cp = in.pin.cp;
        }
        merak_search_destroy(result);
    }
    assert_true(cp > 1);
    in.pin.cp = MERAK_OPTION_AUTO;
    in.pin.given[MERAK_CHOICE_CP] = false;
    assert_int_equal(merak_search(&in, &result, &err), MERAK_OK);
    assert_int_equal(result->choice[0].plan.cp, cp);
    assert_near(&result->choice[0].step_s, &best, 1, 0, 0);
    merak_search_destroy(result);

    in.seq = 2048;
    assert_int_equal(merak_search(&in, &result, &err), MERAK_OK);
    assert_int_equal(result->choice[0].plan.cp, 1);
    merak_search_destroy(result);

    in.pin.cp = 3;
    in.pin.given[MERAK_CHOICE_CP] = true;
    assert_int_equal(merak_search(&in, &result, &err), MERAK_ERR_CONFIG);
    assert_string_equal(err.text, "cp 3 does not divide the 4 ranks of a node; "
                                  "nearest: --cp 2 or 4");
}

/* With a tp beside cp 4, which leaves a node of 4, steps are shorter. */
static void a_free_tp_leaves_a_node_beside_cp(void **state)
{
    struct merak_hf_config config = gpt2_config(8, 4096, 32, 50257);
    double step_s[2];

    (void)state;
    for (int tp = 0; tp < 2; tp++) { /* 0: free */
        struct merak_search_result *result = NULL;
        struct merak_search_input in;
        struct merak_device device;

        input_20b(&in, &device);
        config.positions = in.seq = 131072;
        in.arg = &config;
        in.global_batch = 1, in.nodes = 2, in.ranks_per_node = 4;
        in.pin = (struct merak_choices){.tp = tp, .cp = 4, .schedule = "1f1b"};
        assert_int_equal(merak_search(&in, &result, NULL), MERAK_OK);
        step_s[tp] = result->choice[0].step_s;
        merak_search_destroy(result);
    }
    assert_true(step_s[0] < 0.95 * step_s[1]); /* so tp is more than 1 */
}

/* Experts are divided beside cp where neither heads nor layers can be: found as
 * if the degree were given, and faster than without. */
static void experts_are_divided_beside_cp(void **state)
{
    struct merak_hf_config config = mixtral_config(1, 640, 5, 2048, 1000);
    struct merak_search_result *result = NULL;
    struct merak_search_input in;
    struct merak_device device;
    double step_s[3];

    (void)state;
    input_20b(&in, &device);
    config.kv_heads = 5;
    config.positions = 8192;
    config.mixture.experts = 16;
    in.arg = &config;
    in.seq = 8192;
    in.global_batch = 8;
    in.nodes = 1;
    in.ranks_per_node = 8;
    in.pin.cp = 2;
    in.pin.given[MERAK_CHOICE_CP] = true;
    for (int ep = 0; ep < 3; ep++) {
        in.pin.ep = ep;
        in.pin.given[MERAK_CHOICE_EP] = ep > 0;
        assert_int_equal(merak_search(&in, &result, NULL), MERAK_OK);
        assert_int_equal(result->choice[0].plan.cp, 2);
        assert_int_equal(result->choice[0].plan.ep, ep > 0 ? ep : 2);
        step_s[ep] = result->choice[0].step_s;
        merak_search_destroy(result);
    }
    assert_true(step_s[0] <= step_s[2] && step_s[2] < step_s[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first: it watches the peak of resident memory */
        cmocka_unit_test(twenty_billion_on_64_in_seconds),
        cmocka_unit_test(pinned_choices_are_kept),
        cmocka_unit_test(refusals_say_what_binds),
        cmocka_unit_test(cp_that_does_not_divide_is_named),
        cmocka_unit_test(memory_is_the_arena_s),
        cmocka_unit_test(a_huge_vocabulary_is_cut_over_all_stages),
        cmocka_unit_test(boundaries_are_of_slices),
        cmocka_unit_test(plans_of_long_sequences_are_read),
        cmocka_unit_test(the_best_cp_is_found),
        cmocka_unit_test(a_free_tp_leaves_a_node_beside_cp),
        cmocka_unit_test(experts_are_divided_beside_cp),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
