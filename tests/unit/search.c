/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - the planner against trying everything, and at full size
 *
 * The oracle builds and simulates every plan there is, every cut included,
 * through the same calls a trainer makes; it knows nothing of the planner's
 * tables.
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "base/rng.h"
#include "io/hf_config.h"
#include "partitioner/search/impl.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define INSTANCES 320
#define SEQ 8

/* --- small instances ------------------------------------------------------ */

struct instance {
    int layers;
    size_t hidden, vocab, wide; /* wide: width of every second layer */
    bool tied, skip;
    struct merak_device device;
    struct merak_search_input in;
};

static struct merak_value *layer(struct merak_model *m, struct merak_value *x,
                                 size_t c, size_t wide, int l)
{
    struct merak_value *w, *h;

    w = MERAK_PARAM(m, merak_name(m, "h.%d.up", l), MERAK_NORMAL(0.02f), wide,
                    c);
    h = merak_gelu(m, merak_linear(m, x, w, NULL, 1), true);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.down", l), MERAK_NORMAL(0.02f), c,
                    wide);
    return merak_add(m, x, merak_linear(m, h, w, NULL, 1));
}

static void describe(struct merak_model *m, void *arg)
{
    const struct instance *it = arg;
    size_t c = it->hidden;
    struct merak_value *wte, *x, *first, *head;

    wte = MERAK_PARAM(m, "wte", MERAK_NORMAL(0.02f), it->vocab, c);
    x = first = merak_embedding(m, merak_tokens(m), wte);
    for (int l = 0; l < it->layers; l++)
        x = layer(m, x, c, l % 2 == 1 ? it->wide : 4 * c, l);
    if (it->skip)
        x = merak_add(m, x, first);
    head = it->tied ? wte
                    : MERAK_PARAM(m, "head", MERAK_NORMAL(0.02f), it->vocab, c);
    merak_cross_entropy(m, merak_linear(m, x, head, NULL, 1), merak_targets(m));
}

static uint64_t draw_key, draw_at;

static size_t draw(size_t n)
{
    return (size_t)(merak_rng_uniform(draw_key, draw_at++) * (float)n);
}

/* 10^low .. 10^high */
static double draw_scale(double low, double high)
{
    return pow(10, low + (high - low) *
                             (double)merak_rng_uniform(draw_key, draw_at++));
}

/* What is searched beside degrees, micro-batch size and cuts. */
enum free_choice {
    FREE_SCHEDULE, /* now and then */
    FREE_RECOMPUTE,
    FREE_CHUNKS, /* and schedule */
    FREE_SUB_PIPELINE,
    FREE_CHOICES
};

static void free_choice(struct instance *it, int what)
{
    static const char *const schedules[] = {"1f1b", "early", "scp", "last"};
    struct merak_search_pins *pin = &it->in.pin;

    pin->chunks = 1;
    pin->sub_pipeline = MERAK_PIN_NO;
    pin->fix_recompute = true;
    pin->recompute = MERAK_RECOMPUTE_NONE;
    if (what == FREE_RECOMPUTE) {
        pin->fix_recompute = false;
        pin->schedule = schedules[draw(4)];
    } else if (what == FREE_CHUNKS) {
        pin->chunks = 0;
        pin->schedule = NULL;
        it->layers = 1; /* there are many ways to cut more */
    } else if (what == FREE_SUB_PIPELINE) {
        pin->sub_pipeline = MERAK_PIN_FREE;
    }
}

static void draw_instance(struct instance *it, int seed)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "eager", NULL};
    static const int ranks[][2] = {{1, 2}, {2, 1}, {1, 4}, {2, 2},
                                   {4, 1}, {1, 2}, {1, 4}, {2, 4}};
    size_t shape;

    draw_key = merak_rng_key((uint64_t)seed, "instance");
    draw_at = 0;
    shape = draw(8);
    *it = (struct instance){.layers = 1 + (int)draw(3),
                            .hidden = 8 << draw(3),
                            .vocab = 32 << draw(4),
                            .wide = 8 << draw(5),
                            .tied = draw(2) == 0,
                            .skip = draw(4) == 0};
    it->device = (struct merak_device){
        .ranks_per_node = ranks[shape][1],
        .memory_bytes = (size_t)1 << 30,
        .bytes_per_s = draw_scale(9, 10),
        .kernel_s = draw_scale(-7, -5),
        .link_bytes_per_s = draw_scale(8, 10),
        .link_latency_s = draw_scale(-7, -5),
    };
    it->device.flops_per_s[MERAK_F32] = draw_scale(9.5, 11);
    it->device.peak_flops_per_s[MERAK_F32] = 1e12;
    it->device.net_bytes_per_s = it->device.link_bytes_per_s / draw_scale(0, 1);
    it->device.net_latency_s = it->device.link_latency_s * draw_scale(0, 1);
    it->in = (struct merak_search_input){.describe = describe,
                                         .arg = it,
                                         .seq = SEQ,
                                         .dtype = MERAK_F32,
                                         .global_batch = 2 << draw(2),
                                         .nodes = ranks[shape][0],
                                         .ranks_per_node = ranks[shape][1],
                                         .threads = 1,
                                         .device = &it->device};
    if (ranks[shape][0] * ranks[shape][1] == 8) { /* keep the oracle short */
        it->layers = 1;
        it->in.global_batch = 4;
    }
    it->in.pin.schedule = schedules[draw(ranks[shape][1] == 4 ? 3 : 4)];
    it->in.pin.zero1 = draw(2) == 0 ? MERAK_PIN_YES : MERAK_PIN_NO;
    free_choice(it, seed % FREE_CHOICES);
}

/* --- the oracle ----------------------------------------------------------- */

struct best {
    double step_s;    /* of all that fit */
    double uniform_s; /* of those with stages of equally many segments */
    size_t least;     /* bytes that the smallest plan takes */
    int n;
};

struct trial {
    const struct instance *it;
    struct merak_cost_model cost;
    struct merak_sharded *sharded;
    struct merak_plan plan;
    int places;
    int place[16];
    struct best *best;
    size_t limit;
};

static void try_programs(struct trial *t, const struct merak_stages *stages,
                         bool uniform)
{
    const struct merak_program_options opt = {.cost = &t->cost};
    struct merak_program *program[8] = {NULL};
    struct merak_timeline *timeline = NULL;
    struct merak_error err = {0};
    size_t most = 0;

    for (int s = 0; s < t->plan.pp; s++) {
        if (merak_program_build(t->sharded, stages, &t->plan,
                                merak_plan_rank(&t->plan, 0, 0, s), &opt,
                                &program[s], &err) != MERAK_OK)
            fail_msg("%s", err.text);
        if (program[s]->arena_bytes > most)
            most = program[s]->arena_bytes;
    }
    if (merak_simulate(program, t->plan.pp, &t->cost, &timeline, &err) !=
        MERAK_OK)
        fail_msg("%s", err.text);
    t->best->n++;
    if (most < t->best->least)
        t->best->least = most;
    if (most <= t->limit && timeline->step_s < t->best->step_s)
        t->best->step_s = timeline->step_s;
    if (uniform && most <= t->limit && timeline->step_s < t->best->uniform_s)
        t->best->uniform_s = timeline->step_s;
    merak_timeline_destroy(timeline);
    for (int s = 0; s < t->plan.pp; s++)
        merak_program_destroy(program[s]);
}

static bool is_uniform(const struct trial *t)
{
    int parts = merak_plan_parts(&t->plan);

    for (int s = 1; s < parts; s++) {
        if (t->place[s - 1] + 1 != (t->places + 1) * s / parts)
            return false;
    }
    return true;
}

/* Whatever may be recomputed. */
static void try_recompute(struct trial *t, struct merak_stages *stages)
{
    const struct merak_search_pins *pin = &t->it->in.pin;
    const struct merak_program_options opt = {.cost = &t->cost};
    int last = pin->fix_recompute ? MERAK_RECOMPUTE_NONE : MERAK_RECOMPUTE_AUTO;

    for (int mode = MERAK_RECOMPUTE_NONE; mode <= last; mode++) {
        t->plan.recompute = (enum merak_recompute)mode;
        t->plan.memory_bytes = t->limit > 0 ? t->limit : 1;
        if (merak_recompute_choose(t->sharded, &t->plan, -1, &opt, stages,
                                   NULL) == MERAK_OK)
            try_programs(t, stages, is_uniform(t));
    }
}

static void try_cuts(struct trial *t, int part, int from)
{
    struct merak_stages *stages = NULL;
    struct merak_error err = {0};
    int parts = merak_plan_parts(&t->plan);

    if (part < parts) {
        for (int p = from; p < t->places; p++) {
            t->place[part - 1] = p;
            try_cuts(t, part + 1, p + 1);
        }
        return;
    }
    if (merak_stages_at(t->sharded, t->place, parts, &stages, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    try_recompute(t, stages);
    merak_stages_destroy(stages);
}

static void try_variants(struct trial *t)
{
    const struct merak_search_pins *pin = &t->it->in.pin;
    const struct merak_schedule *const *all = merak_schedules();

    for (int i = 0; all[i] != NULL; i++) {
        const struct merak_schedule *found;

        snprintf(t->plan.schedule, sizeof(t->plan.schedule), "%s",
                 all[i]->name);
        if ((pin->schedule != NULL &&
             strcmp(pin->schedule, all[i]->name) != 0) ||
            all[i]->forward_only || all[i]->passes > 0 ||
            all[i]->feeds != NULL ||
            merak_plan_schedule(&t->plan, &found, NULL) != MERAK_OK)
            continue;
        for (int order = 0; order < 2; order++) {
            t->plan.order_tp_pp_dp = order == 1;
            if (order == 0 || (t->plan.dp > 1 && t->plan.pp > 1))
                try_cuts(t, 1, 0);
        }
        if (t->plan.pp == 1)
            break;
    }
}

/* With any number of chunks, and with a sub-pipeline. */
static void try_shapes(struct trial *t)
{
    const struct merak_search_pins *pin = &t->it->in.pin;
    int most = pin->chunks == 1 ? 1 : (t->places + 1) / t->plan.pp;

    for (int v = 1; v <= most && (v == 1 || t->plan.pp > 1); v++) {
        t->plan.chunks = v;
        t->plan.sub_pipeline = false;
        try_variants(t);
        t->plan.sub_pipeline = true;
        if (pin->sub_pipeline == MERAK_PIN_FREE && t->plan.tp > 1 &&
            t->plan.microbatches % 2 == 0)
            try_variants(t);
    }
}

static void try_degrees(struct trial *t, struct merak_graph *graph,
                        enum merak_seq_parallel sp, int tp, int batch)
{
    const struct merak_shard_options so = {.tp = tp, .sp = sp, .batch = batch};
    const struct merak_search_input *in = &t->it->in;
    int rest = in->nodes * in->ranks_per_node / tp;

    if (merak_shard(graph, &so, &t->sharded, NULL) != MERAK_OK)
        return;
    assert_int_equal(merak_stages_places(t->sharded, &t->places, NULL),
                     MERAK_OK);
    for (int pp = 1; pp <= rest && pp <= t->places + 1; pp++) {
        size_t pass = (size_t)(rest / pp) * graph->micro_batch;

        if (rest % pp != 0 || in->global_batch % pass != 0)
            continue;
        t->plan =
            (struct merak_plan){.tp = tp,
                                .pp = pp,
                                .dp = rest / pp,
                                .microbatches = (int)(in->global_batch / pass),
                                .micro_batch = graph->micro_batch,
                                .zero1 = in->pin.zero1 == MERAK_PIN_YES,
                                .sp = sp,
                                .batch = batch,
                                .threads = 1};
        try_shapes(t);
        /* Boundaries between nodes in parts, too. */
        t->plan.scatter = in->ranks_per_node;
        if (tp > 1 && pp > 1 && in->nodes > 1)
            try_shapes(t);
    }
    merak_sharded_destroy(t->sharded);
}

static void try_everything(const struct instance *it, size_t limit,
                           struct best *best)
{
    struct trial t = {.it = it, .best = best, .limit = limit};

    *best = (struct best){DBL_MAX, DBL_MAX, SIZE_MAX, 0};
    merak_device_cost(&it->device, MERAK_F32, it->in.ranks_per_node, &t.cost);
    for (size_t b = 1; b <= it->in.global_batch; b++) {
        const struct merak_model_options mo = {b, SEQ, MERAK_F32};
        struct merak_model *model = NULL;
        struct merak_graph *graph = NULL;

        assert_int_equal(merak_model_create(&mo, &model, NULL), MERAK_OK);
        describe(model, (void *)(uintptr_t)it);
        assert_int_equal(merak_model_graph(model, &graph, NULL), MERAK_OK);
        for (int tp = 1; tp <= it->in.ranks_per_node; tp++) {
            if (it->in.global_batch % b != 0 || it->in.ranks_per_node % tp != 0)
                continue;
            try_degrees(&t, graph, MERAK_SP_AUTO, tp, 0);
            if (tp > 1)
                try_degrees(&t, graph, MERAK_SP_ON, tp, 0);
            for (int batch = 50; batch <= 100 && tp > 1 && b % (size_t)tp == 0;
                 batch += 50)
                try_degrees(&t, graph, MERAK_SP_AUTO, tp, batch);
        }
        merak_model_destroy(model);
    }
}

/* --- tests ---------------------------------------------------------------- */

/* Every third instance has a limit near what its smallest plan takes. */
static size_t limit_of(const struct instance *it, int seed)
{
    struct best best;

    if (seed % 3 != 0 && seed % FREE_CHOICES != FREE_RECOMPUTE)
        return it->device.memory_bytes;
    try_everything(it, 0, &best);
    return best.least + best.least * (size_t)(seed % 5) / 16;
}

static void near_the_best_of_everything(void **state)
{
    int optimal = 0, feasible = 0, plans = 0;
    double worst = 1;

    (void)state;
    for (int seed = 0; seed < INSTANCES; seed++) {
        struct merak_search_result *result = NULL;
        struct merak_error err = {0};
        struct instance it;
        struct best best;

        draw_instance(&it, seed);
        it.in.memory_bytes = limit_of(&it, seed);
        try_everything(&it, it.in.memory_bytes, &best);
        plans += best.n;
        if (best.n == 0) {
            assert_int_equal(merak_search(&it.in, &result, &err),
                             MERAK_ERR_CONFIG);
            continue;
        }
        if (merak_search(&it.in, &result, &err) != MERAK_OK)
            fail_msg("instance %d of %d plans: %s", seed, best.n, err.text);
        feasible++;
        assert_true(result->choice[0].memory_bytes <= it.in.memory_bytes);
        optimal += result->choice[0].step_s <= best.step_s * (1 + 1e-9);
        if (result->choice[0].step_s / best.step_s > worst)
            worst = result->choice[0].step_s / best.step_s;
        if (result->choice[0].step_s > best.step_s * 1.05)
            fail_msg("instance %d: %g s, the best of %d plans takes %g s", seed,
                     result->choice[0].step_s, best.n, best.step_s);
        if (result->choice[0].step_s > best.uniform_s * (1 + 1e-9))
            fail_msg("instance %d: %g s, a uniform plan takes %g s", seed,
                     result->choice[0].step_s, best.uniform_s);
        assert_true(result->choice[0].step_s >= best.step_s * (1 - 1e-9));
        merak_search_destroy(result);
    }
    print_message("# %d instances, %d plans: optimal in %d, worst %.4f\n",
                  feasible, plans, optimal, worst);
    assert_true(feasible >= 300);
    assert_true(optimal >= feasible * 9 / 10);
}

static double step_with(const struct instance *it)
{
    struct merak_search_result *result = NULL;
    double step;

    if (merak_search(&it->in, &result, NULL) != MERAK_OK)
        return DBL_MAX;
    step = result->choice[0].step_s;
    merak_search_destroy(result);
    return step;
}

/* Within the 5 % that the planner may be off. */
static void more_of_anything_is_never_slower(void **state)
{
    (void)state;
    for (int seed = 1000; seed < 1040; seed++) {
        struct instance it;
        struct best best;
        double before;

        draw_instance(&it, seed);
        try_everything(&it, 0, &best);
        it.in.memory_bytes = best.least;
        before = step_with(&it);
        for (int more = 0; more < 4; more++) {
            double now;

            it.in.memory_bytes += best.least / 4;
            now = step_with(&it);
            assert_true(now <= before * 1.05);
            before = now;
        }
        it.device.link_bytes_per_s *= 2;
        it.device.net_bytes_per_s *= 2;
        assert_true(step_with(&it) <= before * 1.05);
        it.device.flops_per_s[MERAK_F32] *= 2;
        assert_true(step_with(&it) <= before * 1.05);
    }
}

static void pins_are_kept(void **state)
{
    struct merak_search_result *result = NULL;
    struct instance it;
    double best;

    (void)state;
    draw_instance(&it, 7);
    it.layers = 3;
    it.in.nodes = 2;
    it.in.ranks_per_node = 4;
    it.in.global_batch = 8;
    it.in.pin = (struct merak_search_pins){.chunks = 1};
    best = step_with(&it);
    it.in.pin = (struct merak_search_pins){.tp = 2,
                                           .pp = 2,
                                           .micro_batch = 2,
                                           .schedule = "gpipe",
                                           .sub_pipeline = MERAK_PIN_NO,
                                           .zero1 = MERAK_PIN_NO,
                                           .order_tp_pp_dp = MERAK_PIN_YES,
                                           .fix_sp = true,
                                           .sp = MERAK_SP_OFF};
    assert_int_equal(merak_search(&it.in, &result, NULL), MERAK_OK);
    assert_int_equal(result->n_choices, 1);
    assert_int_equal(result->choice[0].plan.tp, 2);
    assert_int_equal(result->choice[0].plan.pp, 2);
    assert_int_equal(result->choice[0].plan.dp, 2);
    assert_int_equal(result->choice[0].plan.micro_batch, 2);
    assert_int_equal(result->choice[0].plan.microbatches, 2);
    assert_string_equal(result->choice[0].plan.schedule, "gpipe");
    assert_false(result->choice[0].plan.zero1);
    assert_true(result->choice[0].plan.order_tp_pp_dp);
    assert_int_equal(result->choice[0].plan.sp, MERAK_SP_OFF);
    assert_true(result->choice[0].step_s >= best * (1 - 1e-9));
    merak_search_destroy(result);
}

static void refusals_say_what_binds(void **state)
{
    static const struct {
        struct merak_search_pins pin;
        size_t batch, memory;
        const char *says[2];
    } rows[] = {
        {{0}, 8, 1000, {"no plan fits", "nearest: "}},
        {{0}, 2147483647, 0, {"a global batch of 2147483647", "at most"}},
        {{.dp = 4}, 6, 0, {"no multiple of dp 4 x micro-batch 1", "8"}},
        {{.tp = 3},
         8,
         0,
         {"tp 3: tp x pp x dp", "the 4 of a node; nearest: tp 4"}},
        {{.tp = 2, .pp = 2, .dp = 4},
         8,
         0,
         {"must be the 8 ranks", "nearest: tp 1, pp 2, dp 4"}},
        {{.tp = 2, .micro_batch = 1, .fix_batch = true, .batch = 50},
         8,
         0,
         {"cannot share out 1, as --tp-batch 50 asks", "nearest: 2"}},
        {{.pp = 2,
          .dp = 2,
          .micro_batch = 2,
          .fix_batch = true,
          .batch = 9,
          .sub_pipeline = MERAK_PIN_YES},
         8,
         0,
         {"cannot share out 2, as --tp-batch 9 asks", "nearest: 4"}},
        {{.tp = 4, .fix_batch = true, .batch = 100},
         6,
         0,
         {"no multiple of dp 1 x micro-batch 4", "nearest: 8"}},
        {{.tp = 2, .schedule = "sliced:2", .fix_batch = true, .batch = 100},
         8,
         0,
         {"schedule sliced:2 runs micro-batches of 1", "--tp-batch 100"}},
        {{.schedule = "no such"}, 8, 0, {"no schedule 'no such'", "1f1b"}},
        {{.schedule = "interlaced"}, 8, 0, {"not searched for", "degree"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_search_result *result = NULL;
        struct merak_error err = {0};
        struct instance it;

        draw_instance(&it, 11);
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
    assert_true(seconds < 10);
#ifndef __SANITIZE_ADDRESS__ /* it keeps what is freed */
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
        enum merak_pin sub_pipeline;
    } rows[] = {
        {"1f1b", 1, 192, 400, MERAK_PIN_NO},
        {"gpipe", 1, 192, 400, MERAK_PIN_NO},
        {"eager", 1, 192, 400, MERAK_PIN_NO},
        {"interleaved", 2, 128, 400, MERAK_PIN_NO},
        {"zb-v", 2, 96, 45, MERAK_PIN_NO},
        {"scp", 1, 96, 40, MERAK_PIN_NO},
        {"1f1b", 1, 96, 50, MERAK_PIN_YES},
        {"sliced:4", 1, 8, 60, MERAK_PIN_NO},
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
            (struct merak_search_pins){.tp = 2,
                                       .pp = 4,
                                       .micro_batch = sliced ? 1 : 2,
                                       .fix_sp = sliced,
                                       .sp = MERAK_SP_OFF,
                                       .chunks = rows[i].chunks,
                                       .schedule = rows[i].schedule,
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
                      rows[i].schedule, result->stage[0].blocks_again,
                      result->stage[0].n_blocks,
                      result->stage[0].attention ? ", attention" : "");
        merak_planned_destroy(planned);
        merak_search_destroy(result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first: it watches the peak of resident memory */
        cmocka_unit_test(twenty_billion_on_64_in_seconds),
        cmocka_unit_test(near_the_best_of_everything),
        cmocka_unit_test(more_of_anything_is_never_slower),
        cmocka_unit_test(pins_are_kept),
        cmocka_unit_test(refusals_say_what_binds),
        cmocka_unit_test(memory_is_the_arena_s),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
