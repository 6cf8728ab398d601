/* SPDX-License-Identifier: Apache-2.0 */
/* test_unlike.c - the search for stages of unlike ranks
 *
 * What it decides where one answer is known to be right, and that its plans are
 * never worse than those of equal stages.
 */
#include "config.h"

#include "unit/all_rows.h"
#include "unit/instance.h"

#include "base/rng.h"
#include "partitioner/search/unlike.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#define INSTANCES (test_all_rows() ? 200 : 24)

/* --- models ----------------------------------------------------------------
 */

/* A chain of layers, each of its own width. */
struct chain {
    int n;
    size_t c, wide[16], vocab;
};

static void describe_chain(struct merak_model *m, void *arg)
{
    const struct chain *chain = arg;
    size_t c = chain->c;
    struct merak_value *w, *h, *x;

    w = MERAK_PARAM(m, "wte", MERAK_NORMAL(0.02f), chain->vocab, c);
    x = merak_embedding(m, merak_tokens(m), w);
    for (int l = 0; l < chain->n; l++) {
        w = MERAK_PARAM(m, merak_name(m, "h.%d.up", l), MERAK_NORMAL(0.02f),
                        chain->wide[l], c);
        h = merak_gelu(m, merak_linear(m, x, w, NULL, 1), true);
        w = MERAK_PARAM(m, merak_name(m, "h.%d.down", l), MERAK_NORMAL(0.02f),
                        c, chain->wide[l]);
        x = merak_add(m, x, merak_linear(m, h, w, NULL, 1));
    }
    w = MERAK_PARAM(m, "head", MERAK_NORMAL(0.02f), chain->vocab, c);
    merak_cross_entropy(m, merak_linear(m, x, w, NULL, 1), merak_targets(m));
}

static struct merak_device fast_device(double flops_per_s)
{
    struct merak_device device = {.memory_bytes = (size_t)1 << 34,
                                  .bytes_per_s = flops_per_s / 10,
                                  .kernel_s = 1e-7};

    device.flops_per_s[MERAK_F32] = flops_per_s;
    device.peak_flops_per_s[MERAK_F32] = flops_per_s;
    device.links.level[0].bytes_per_s = 1e11;
    device.links.level[0].latency_s = 1e-7;
    device.links.level[1].bytes_per_s = 1e10;
    device.links.level[1].latency_s = 1e-6;
    return device;
}

static struct merak_search_input request(struct chain *chain,
                                         const struct merak_device *device,
                                         int nodes, int ranks, size_t batch)
{
    return (struct merak_search_input){.describe = describe_chain,
                                       .arg = chain,
                                       .seq = 64,
                                       .dtype = MERAK_F32,
                                       .global_batch = batch,
                                       .nodes = nodes,
                                       .ranks_per_node = ranks,
                                       .threads = 1,
                                       .device = device,
                                       .unlike = true};
}

static struct merak_search_result *search(const struct merak_search_input *in)
{
    struct merak_search_result *result = NULL;
    struct merak_error err = {0};

    if (merak_search(in, &result, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return result;
}

static double step_of(const struct merak_search_input *in)
{
    struct merak_search_result *result = search(in);
    double step_s = result->choice[0].step_s;

    merak_search_destroy(result);
    return step_s;
}

/* --- decisions --------------------------------------------------------------
 */

static void assert_stage(const struct merak_search_result *r, int stage, int dp,
                         int tp)
{
    const struct merak_plan *plan = &r->choice[0].plan;
    struct merak_stage_mesh mesh = merak_plan_mesh(plan, stage);
    char text[MERAK_DEGREES_TEXT];

    if (mesh.dp != dp || mesh.tp != tp)
        fail_msg("stage %d is not %d x %d: %s", stage, dp, tp,
                 merak_plan_degrees_text(plan, ", ", text));
}

static void pin_tp_and_pp(struct merak_search_input *in, int tp, int pp)
{
    in->pin.tp = tp;
    in->pin.pp = pp;
    in->pin.given[MERAK_CHOICE_TP] = in->pin.given[MERAK_CHOICE_PP] = true;
}

/* (a) Work that rises along the model, 4 B on 16 by Alpa: of three stages, all
 * data parallel, that of the last layers has more ranks; the head is a third.
 */
static void more_ranks_where_work_rises(void **state)
{
    struct chain chain = {
        .n = 4, .c = 256, .wide = {1024, 1024, 1024, 16384}, .vocab = 64};
    struct merak_device device = fast_device(1e12);
    struct merak_search_input in = request(&chain, &device, 1, 16, 192);
    struct merak_search_result *r;
    int first, heavy;

    (void)state;
    in.pin.schedule = "1f1b";
    pin_tp_and_pp(&in, 1, 3);
    r = search(&in);
    assert_non_null(r->choice[0].plan.stage);
    first = merak_plan_mesh(&r->choice[0].plan, 0).dp;
    heavy = merak_plan_mesh(&r->choice[0].plan, 1).dp;
    assert_true(heavy > first);
    merak_search_destroy(r);
}

/* Sums over replicas and the optimizer are not called a bubble, and all parts
 * are the step. */
static void assert_parts(const struct merak_search_result *r)
{
    const struct merak_search_choice *c = &r->choice[0];
    int dp = merak_plan_mesh(&c->plan, r->busiest).dp;
    double all = 0;

    for (int i = 0; i < MERAK_PART_COUNT; i++)
        all += c->part_s[i];
    assert_near(&all, &c->step_s, 1, 1e-9, 0.0);
    assert_int_equal(c->part_s[MERAK_PART_DP] > 0, dp > 1);
    assert_true(c->part_s[MERAK_PART_OPTIMIZER] > 0);
}

/* (c) Two stages of work 3 : 1 on 4 ranks: 3 replicas and 1. */
static void replicas_where_the_work_is(void **state)
{
    struct chain chain = {.n = 2, .c = 256, .wide = {6144, 2048}, .vocab = 64};
    struct merak_device device = fast_device(1e12);
    struct merak_search_input in = request(&chain, &device, 1, 4, 96);
    struct merak_search_result *r;
    double equal_s;

    (void)state;
    in.pin.schedule = "1f1b";
    pin_tp_and_pp(&in, 1, 2);
    in.unlike = false;
    equal_s = step_of(&in);
    in.unlike = true;
    r = search(&in);
    assert_stage(r, 0, 3, 1);
    assert_stage(r, 1, 1, 1);
    assert_int_equal(merak_plan_samples(&r->choice[0].plan) % 3, 0);
    assert_true(r->choice[0].step_s < 0.75 * equal_s);
    assert_parts(r);
    /* Those of equal stages are its runners-up. */
    assert_true(r->n_choices > 1);
    assert_null(r->choice[1].plan.stage);
    assert_near(&r->choice[1].step_s, &equal_s, 1, 1e-9, 0.0);
    merak_search_destroy(r);
}

/* (b), (d) Layers that are alike, or alternate (GShard's, of which every second
 * has experts): even if the search for unlike stages is entered, it wins no
 * more than 1 %. */
static void equal_layers(void **state)
{
    static const struct {
        int n;
        size_t wide[2];
        int nodes, ranks;
    } row[] = {{8, {1024, 1024}, 1, 4},
               {8, {1024, 1024}, 2, 4},
               {8, {1024, 4096}, 1, 4},
               {8, {1024, 4096}, 2, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        struct chain chain = {.n = row[i].n, .c = 256, .vocab = 64};
        struct merak_device device = fast_device(1e12);
        struct merak_search_input in =
            request(&chain, &device, row[i].nodes, row[i].ranks, 64);
        double equal_s, any_s;

        for (int l = 0; l < chain.n; l++)
            chain.wide[l] = row[i].wide[l % 2];
        in.unlike = false;
        equal_s = step_of(&in);
        in.unlike = true;
        in.kind[0] = in.kind[1] = (struct merak_search_kind){
            .device = &device, .nodes = row[i].nodes / 2};
        in.n_kinds = row[i].nodes > 1 ? 2 : 0;
        any_s = step_of(&in);
        if (any_s < 0.99 * equal_s || any_s > equal_s * (1 + 1e-9))
            fail_msg("row %zu: %g s, not %g s", i, any_s, equal_s);
    }
}

/* (e) Two kinds of nodes, one twice as fast: stages of their own make a step at
 * least a fifth shorter than equal ones, which the slower nodes hold up. */
static void two_kinds(void **state)
{
    struct chain chain = {.n = 12, .c = 256, .vocab = 64};
    struct merak_device fast = fast_device(2e12), slow = fast_device(1e12);
    struct merak_search_input in = request(&chain, &slow, 2, 2, 64);
    struct merak_search_result *r;
    int layers[2] = {0, 0};
    double equal_s;

    (void)state;
    for (int l = 0; l < chain.n; l++)
        chain.wide[l] = 2048;
    in.unlike = false;
    equal_s = step_of(&in);
    in.unlike = true;
    in.kind[0] = (struct merak_search_kind){&fast, 1};
    in.kind[1] = (struct merak_search_kind){&slow, 1};
    in.n_kinds = 2;
    r = search(&in);
    for (int s = 0; s < r->choice[0].plan.pp; s++)
        layers[r->stage[s].kind] += r->stage[s].n_segments;
    assert_true(layers[0] > layers[1]);
    print_message("# %.3f of the step of equal stages\n",
                  r->choice[0].step_s / equal_s);
    assert_true(r->choice[0].step_s < 0.8 * equal_s);
    assert_parts(r);
    merak_search_destroy(r);
}

/* Stages of the same degrees cost what nodes of their kind take. */
static void types_of_kinds(void **state)
{
    static struct merak_unlike u;
    static struct merak_unlike_types types;
    struct chain chain = {.n = 2, .c = 256, .wide = {2048, 2048}, .vocab = 64};
    struct merak_device fast = fast_device(2e12), slow = fast_device(1e12);
    struct merak_search_input in = request(&chain, &slow, 2, 2, 64);
    struct merak_error err = {0};
    int alike = 0;

    (void)state;
    in.kind[0] = (struct merak_search_kind){&fast, 1};
    in.kind[1] = (struct merak_search_kind){&slow, 1};
    in.n_kinds = 2;
    assert_int_equal(merak_unlike_init(&u, &in, &err), MERAK_OK);
    assert_int_equal(merak_unlike_types_init(&types, &u, 8, 1), MERAK_OK);
    assert_true(merak_unlike_set_stages(&types, 2));
    for (int i = 0; i < types.n; i++) {
        const struct merak_unlike_type *a = &types.type[i], *b = a + 1;
        double times;

        if (i + 1 == types.n || a->kind != 0 || b->kind != 1 ||
            memcmp(&a->degrees, &b->degrees, sizeof(a->degrees)) != 0)
            continue;
        alike++;
        times = merak_unlike_seconds(&types, i + 1, 1, 0, u.segments) /
                merak_unlike_seconds(&types, i, 1, 0, u.segments);
        if (!(times > 1.6 && times < 2.01))
            fail_msg("%d x %d: %g times", a->degrees.dp, a->degrees.tp, times);
    }
    assert_true(alike >= 3);
    merak_unlike_types_fini(&types);
    merak_unlike_fini(&u);
}

/* Nodes of either kind may have the first stages: the order in which they were
 * named decides nothing. */
static void order_of_kinds(void **state)
{
    struct merak_device fast = fast_device(2e12), slow = fast_device(1e12);
    struct merak_search_kind kind[] = {{&fast, 1}, {&slow, 1}, {&fast, 1}};
    double step_s[2];

    (void)state;
    slow.memory_bytes = 3 << 20;
    for (int n = 2; n <= 3; n++) {
        for (int turned = 0; turned < 2; turned++) {
            struct chain chain = {.n = 9, .c = 64, .vocab = 64};
            struct merak_search_input in = request(&chain, &slow, n, 1, 16);

            for (int l = 0; l < chain.n; l++)
                chain.wide[l] = 128 + 64 * (size_t)l;
            in.n_kinds = n;
            for (int k = 0; k < n; k++)
                in.kind[k] = kind[turned ? n - 1 - k : k];
            step_s[turned] = step_of(&in);
        }
        if (fabs(step_s[1] / step_s[0] - 1) > 1e-9)
            fail_msg("%d kinds: %g s, and %g s in the other order", n,
                     step_s[0], step_s[1]);
    }
}

/* (f) 3, 5, 6, 7 and 56 ranks have a plan, though the model can only be cut
 * into few parts, and the batch is a power of two. */
static void any_number_of_ranks(void **state)
{
    /* nodes, ranks of each, and the most work that the search may take */
    static const int row[][4] = {{1, 3, 12200, 6940},
                                 {1, 5, 33200, 11870},
                                 {1, 6, 31200, 12280},
                                 {1, 7, 47300, 11870},
                                 {7, 8, 29800, 450}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        struct chain chain = {.n = 1, .c = 64, .wide = {256}, .vocab = 64};
        struct merak_device device = fast_device(1e11);
        struct merak_search_input in =
            request(&chain, &device, row[i][0], row[i][1], 64);
        struct merak_search_result *r;

        if (row[i][0] > 1)
            pin_tp_and_pp(&in, 1, 3);
        r = search(&in);
        assert_int_equal(merak_plan_ranks(&r->choice[0].plan),
                         row[i][0] * row[i][1]);
        assert_true(r->choice[0].step_s > 0 && r->choice[0].step_s < 1);
        /* what was simulated, and considered for layouts: some 5 % more */
        assert_in_range(r->tally.instructions, 1, row[i][2]);
        assert_in_range(r->tally.records, 1, row[i][3]);
        merak_search_destroy(r);
    }
}

/* --- never worse ------------------------------------------------------------
 */

static void check_refusal(const char *text)
{
    assert_null(strstr(text, "inf"));
    assert_null(strstr(text, "nan"));
    assert_true(strlen(text) > 20);
}

/* Small models on small machines; what equal stages cannot do either ends in
 * words. */
static void random_instances(void **state)
{
    int only = 0, won = 0, none = 0;

    (void)state;
    for (int i = 0; i < INSTANCES; i++) {
        uint64_t key = merak_rng_key((uint64_t)i, "unlike");
        struct merak_search_result *equal = NULL, *any = NULL;
        struct merak_error err = {0};
        struct instance it;

        instance_draw(&it, i);
        it.in.nodes = 1;
        it.in.ranks_per_node = 2 + (int)(merak_rng_mix(key, 0) % 6);
        it.device.links.level[0].ranks = it.in.ranks_per_node;
        if (merak_rng_mix(key, 1) % 4 == 0)
            it.in.memory_bytes = 1000 + merak_rng_mix(key, 2) % 200000;
        if (merak_search(&it.in, &equal, NULL) != MERAK_OK)
            equal = NULL;
        it.in.unlike = true;
        if (merak_search(&it.in, &any, &err) != MERAK_OK) {
            assert_null(equal);
            check_refusal(err.text);
            none++;
            continue;
        }
        assert_true(any->choice[0].step_s > 0 && any->choice[0].step_s < 1e9);
        assert_true(any->choice[0].memory_bytes <= any->memory_limit);
        if (equal == NULL) {
            only++;
        } else {
            assert_true(any->choice[0].step_s <=
                        equal->choice[0].step_s * (1 + 1e-9));
            won += any->choice[0].plan.stage != NULL;
        }
        merak_search_destroy(equal);
        merak_search_destroy(any);
    }
    print_message("# of %d requests unlike stages won %d, %d had only such a "
                  "plan, %d had none\n",
                  INSTANCES, won, only, none);
    assert_true(won > 0 && only > 0 && none > 0);
}

/* Stages are chosen by what the given schedule has them hold: eager more than
 * 1f1b, zb-h1 as much on each stage.  By 1f1b's, those that are chosen do not
 * fit, and none, or equal ones that take twice as long, are left. */
static void given_schedules(void **state)
{
    static const struct {
        const char *schedule;
        size_t kib;
        double most_ms;
    } row[] = {{"eager", 3328, 1.4}, {"zb-h1", 3840, 2.0}, {"scp", 2816, 1.6}};
    struct merak_device fast = fast_device(2e12), slow = fast_device(1e12);

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        struct chain chain = {.n = 8, .c = 64, .vocab = 64};
        struct merak_search_input in = request(&chain, &slow, 2, 3, 32);
        double step_s;

        for (int l = 0; l < chain.n; l++)
            chain.wide[l] = 512;
        in.pin.schedule = row[i].schedule;
        in.pin.recompute = MERAK_RECOMPUTE_NONE;
        in.pin.given[MERAK_CHOICE_SCHEDULE] = true;
        in.pin.given[MERAK_CHOICE_RECOMPUTE] = true;
        in.memory_bytes = row[i].kib << 10;
        in.kind[0] = (struct merak_search_kind){&fast, 1};
        in.kind[1] = (struct merak_search_kind){&slow, 1};
        in.n_kinds = 2;
        step_s = step_of(&in);
        if (1e3 * step_s > row[i].most_ms)
            fail_msg("%s: %g ms", row[i].schedule, 1e3 * step_s);
    }
}

/* Of a step that is too long to be simulated in full gpipe holds all the same
 * every micro-batch: what it is said to take is what its programs take. */
static void memory_of_long_steps(void **state)
{
    struct chain chain = {.n = 12, .c = 64, .vocab = 64};
    struct merak_device fast = fast_device(2e12), slow = fast_device(1e12);
    struct merak_search_input in = request(&chain, &slow, 2, 8, 1024);
    struct merak_search_result *r;
    size_t most = 0;

    (void)state;
    for (int l = 0; l < chain.n; l++)
        chain.wide[l] = 512;
    pin_tp_and_pp(&in, 1, 4);
    in.pin.schedule = "gpipe";
    in.pin.recompute = MERAK_RECOMPUTE_NONE;
    in.pin.given[MERAK_CHOICE_SCHEDULE] = true;
    in.pin.given[MERAK_CHOICE_RECOMPUTE] = true;
    in.kind[0] = (struct merak_search_kind){&fast, 1};
    in.kind[1] = (struct merak_search_kind){&slow, 1};
    in.n_kinds = 2;
    r = search(&in);
    for (int s = 0; s < r->choice[0].plan.pp; s++)
        most = r->stage[s].arena_bytes > most ? r->stage[s].arena_bytes : most;
    assert_true(r->stage[0].limit_bytes > 0); /* on kinds of their own */
    assert_int_equal(r->choice[0].memory_bytes, most);
    merak_search_destroy(r);
}

/* Where nothing fits, the refusal also says what unlike stages would take. */
static void says_why(void **state)
{
    struct chain chain = {
        .n = 3, .c = 256, .wide = {2048, 2048, 2048}, .vocab = 64};
    struct merak_device device = fast_device(1e12);
    struct merak_search_input in = request(&chain, &device, 1, 3, 8);
    struct merak_search_result *r = NULL;
    struct merak_error err;

    (void)state;
    in.memory_bytes = (size_t)1 << 20;
    assert_int_equal(merak_search(&in, &r, &err), MERAK_ERR_CONFIG);
    check_refusal(err.text);
    print_message("# %s\n", err.text);
    assert_non_null(strstr(err.text, "unlike stages"));
    assert_non_null(strstr(err.text, "a stage needs about 19."));
}

/* The same in whatever order kinds of nodes were named. */
static void says_why_of_kinds(void **state)
{
    struct merak_device fast = fast_device(2e12), slow = fast_device(1e12);
    const struct merak_search_kind kind[] = {{&fast, 1}, {&slow, 2}};
    char text[2][160];

    (void)state;
    fast.memory_bytes = 5 << 20;
    slow.memory_bytes = 1 << 20;
    for (int turned = 0; turned < 2; turned++) {
        struct chain chain = {
            .n = 3, .c = 256, .wide = {512, 1024, 2048}, .vocab = 64};
        struct merak_search_input in = request(&chain, &slow, 3, 1, 8);
        struct merak_search_result *r = NULL;
        struct merak_error err;
        const char *need;

        for (int k = 0; k < 2; k++)
            in.kind[k] = kind[turned ? 1 - k : k];
        in.n_kinds = 2;
        assert_int_equal(merak_search(&in, &r, &err), MERAK_ERR_CONFIG);
        need = strstr(err.text, "one would with about ");
        assert_non_null(need);
        snprintf(text[turned], sizeof(text[turned]), "%s", need);
    }
    print_message("# %s\n", text[0]);
    assert_string_equal(text[0], text[1]);
}

/* The plan is as given where numbers leave no choice of stages. */
static void given_degrees_stay(void **state)
{
    struct chain chain = {.n = 2, .c = 256, .wide = {6144, 2048}, .vocab = 64};
    struct merak_device device = fast_device(1e12);
    struct merak_search_input in = request(&chain, &device, 1, 4, 96);
    struct merak_search_result *r;

    (void)state;
    pin_tp_and_pp(&in, 1, 2);
    in.pin.dp = 2;
    in.pin.given[MERAK_CHOICE_DP] = true;
    r = search(&in);
    assert_null(r->choice[0].plan.stage);
    merak_search_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_ranks_where_work_rises),
        cmocka_unit_test(replicas_where_the_work_is),
        cmocka_unit_test(equal_layers),
        cmocka_unit_test(two_kinds),
        cmocka_unit_test(types_of_kinds),
        cmocka_unit_test(order_of_kinds),
        cmocka_unit_test(any_number_of_ranks),
        cmocka_unit_test(random_instances),
        cmocka_unit_test(given_schedules),
        cmocka_unit_test(memory_of_long_steps),
        cmocka_unit_test(says_why),
        cmocka_unit_test(says_why_of_kinds),
        cmocka_unit_test(given_degrees_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
