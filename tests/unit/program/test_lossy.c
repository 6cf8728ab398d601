/* SPDX-License-Identifier: Apache-2.0 */
/* test_lossy.c - hops that are sent in part: the options, what is computed,
 * what is moved */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/parity.h"

#include "base/error.h"
#include "io/hf_config.h"
#include "partitioner/graph/pack_parts.h"
#include "partitioner/search/search.h"
#include "partitioner/simulate/simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the option ----------------------------------------------------------- */

static void texts_are_read_and_printed(void **state)
{
    static const struct {
        const char *given, *printed; /* printed NULL: refused with `why` */
        const char *why;
    } rows[] = {
        {"8", "8", NULL},
        {"255", "255", NULL},
        {"none", "none", NULL},
        {"auto:24", "auto:24", NULL},
        {"1:8,2:4", "1:8,2:4", NULL},
        {"3:2-1:8", "1:8,3:2", NULL},
        {"125:2", "125:2", NULL},
        {"", NULL, "expected a ratio for all hops"},
        {"eight", NULL, "expected a ratio for all hops"},
        {"8x", NULL, "got \"8x\""},
        {"1:", NULL, "got \"1:\""},
        {"1:8,", NULL, "got \"1:8,\""},
        {"1:8;2:8", NULL, "got \"1:8;2:8\""},
        {"auto", NULL, "got \"auto\""},
        {"auto:", NULL, "got \"auto:\""},
        {"1", NULL, "ratio 1, expected 2..255; a hop that is not named"},
        {"0:1", NULL, "ratio 1, expected 2..255"},
        {"256", NULL, "ratio 256, expected 2..255"},
        {"2:8,2:4", NULL, "behind stage 2 is named twice"},
        {"126:8", NULL, "behind stage 126, expected 0..125"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_lossy lossy = {.all = 7};
        struct merak_error err = {.text = ""};
        char text[MERAK_LOSSY_TEXT];
        enum merak_status rc = merak_lossy_parse(rows[i].given, &lossy, &err);

        if (rows[i].printed == NULL) {
            assert_int_equal(rc, MERAK_ERR_CONFIG);
            assert_int_equal(lossy.all, 7);
            if (strstr(err.text, rows[i].why) == NULL)
                fail_msg("%s: %s", rows[i].given, err.text);
            continue;
        }
        assert_int_equal(rc, MERAK_OK);
        assert_string_equal(merak_lossy_text(&lossy, ",", text, sizeof(text)),
                            rows[i].printed);
        assert_int_equal(merak_lossy_any(&lossy),
                         strcmp(rows[i].given, "none") != 0);
    }
}

static void people_are_told_of_ratios(void **state)
{
    static const struct {
        const char *given, *said;
        int stages;
    } rows[] = {
        {"none", "", 4},
        {"8", "lossy: all stages ratio 8", 4},
        {"8", "lossy: stage 0 -> 1 ratio 8", 2},
        {"auto:8", "lossy: at most ratio 8", 4},
        {"1:8,3:4", "lossy: stage 1 -> 2 ratio 8, stage 3 -> 0 ratio 4", 4},
        {"0:2,1:2,2:2,3:2", "lossy: stage 0 -> 1 ratio 2, ..", 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        size_t bytes = i == 5 ? 64 : 128;
        struct merak_lossy lossy;
        char text[128];

        assert_int_equal(merak_lossy_parse(rows[i].given, &lossy, NULL),
                         MERAK_OK);
        assert_string_equal(
            merak_lossy_describe(&lossy, rows[i].stages, text, bytes),
            rows[i].said);
    }
}

static void plans_obey_what_was_asked(void **state)
{
    static const struct {
        const char *has, *asked;
        int stages;
        bool obeys;
    } rows[] = {
        {"8", "8", 4, true},
        {"0:8", "8", 2, true},
        {"8", "0:8", 2, true},
        {"0:8,1:8,2:8", "8", 4, true},
        {"0:8,2:8", "8", 4, false},
        {"8", "4", 2, false},
        {"0:8,1:4", "auto:8", 4, true},
        {"none", "auto:8", 4, true},
        {"0:8,1:4", "auto:6", 4, false},
        {"none", "8", 2, false},
        {"0:8", "none", 2, false},
        {"3:8", "3:8", 4, true},
        {"3:8", "none", 4, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_lossy has, asked;

        assert_int_equal(merak_lossy_parse(rows[i].has, &has, NULL), MERAK_OK);
        assert_int_equal(merak_lossy_parse(rows[i].asked, &asked, NULL),
                         MERAK_OK);
        if (merak_lossy_obeys(&has, &asked, rows[i].stages) != rows[i].obeys)
            fail_msg("%s for %s", rows[i].has, rows[i].asked);
    }
}

/* Seconds .8, .08, .4, .01 at most 8: 8, .8, 4, .1. */
static void ratios_follow_seconds(void **state)
{
    static const struct {
        int most;
        double seconds[4];
        int ratio[4];
    } rows[] = {
        {8, {.8, .08, .4, .01}, {8, 0, 4, 0}},
        {24, {.8, .08, .4, .01}, {24, 2, 12, 0}},
        {7, {1, 1, .5, .28}, {6, 6, 3, 0}},
        {255, {1, .9, 0, .1}, {192, 192, 0, 24}},
        {8, {0, 0, 0, 0}, {0, 0, 0, 0}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_lossy lossy = {.most = (uint8_t)rows[i].most};

        merak_lossy_settle(&lossy, rows[i].seconds, 4);
        assert_int_equal(lossy.most, 0);
        for (int h = 0; h < 4; h++)
            assert_int_equal(merak_lossy_ratio(&lossy, h), rows[i].ratio[h]);
    }
}

/* --- numbers -------------------------------------------------------------- */

static const struct small_model gpt = {
    .layers = 4, .vocab = 13, .hidden = 16, .heads = 4};

/* Where layer l begins, of a cut into parts of so many layers each. */
static void cut_layers(int parts, int layers, int *cut)
{
    for (int p = 1; p < parts; p++)
        cut[p - 1] = 2 * layers * p + 1;
}

struct row {
    struct parity_variant v;
    int chunks, layers; /* of a part */
    const char *lossy;
    int pair[4];
    enum merak_recompute recompute;
};

/* As if one rank had packed and unpacked the same values. */
static void pipelines_compute_what_one_rank_does(void **state)
{
    static const struct row rows[] = {
        {{1, 2, 1, "1f1b", 0, MERAK_SP_OFF}, 1, 2, "4", {0, 4}, 0},
        {{1, 2, 1, "gpipe", 0, MERAK_SP_OFF}, 1, 2, "0:3", {0, 3}, 0},
        {{1, 4, 1, "1f1b", 0, MERAK_SP_OFF},
         1,
         1,
         "0:2,2:5",
         {2, 0, 5},
         MERAK_RECOMPUTE_FULL},
        {{1, 4, 1, "zb-h1", 0, MERAK_SP_OFF}, 1, 1, "4", {4, 4, 4}, 0},
        {{1, 2, 2, "1f1b", 1, MERAK_SP_OFF},
         1,
         2,
         "4",
         {0, 4},
         MERAK_RECOMPUTE_SELECTIVE},
        {{1, 2, 1, "interleaved", 0, MERAK_SP_OFF}, 2, 1, "4", {4, 4, 4}, 0},
        {{1, 2, 1, "zb-v", 0, MERAK_SP_OFF}, 2, 1, "4", {4, 0, 4}, 0},
        {{2, 2, 1, "1f1b", 0, MERAK_SP_OFF}, 1, 2, "4", {0, 4}, 0},
        {{2, 2, 1, "1f1b", 0, MERAK_SP_ON}, 1, 2, "4", {0, 4}, 0},
        {{2, 2, 2, "gpipe", 1, MERAK_SP_OFF}, 1, 2, "15", {0, 15}, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = parity_plan(&rows[i].v), one;
        struct small_model model = gpt, paired;
        double want[PARITY_STEPS], got[PARITY_STEPS];
        struct executed *a, *b;
        int cut[3];

        model.dtype = i % 3 == 1 ? MERAK_BF16 : MERAK_F32;
        paired = model;
        one = plan;
        one.pp = 1;
        snprintf(one.schedule, sizeof(one.schedule), "gpipe");
        memcpy(paired.pair, rows[i].pair, sizeof(paired.pair));
        plan.chunks = rows[i].chunks;
        plan.recompute = rows[i].recompute;
        plan.scatter = rows[i].v.tp > 1;
        cut_layers(plan.pp * plan.chunks, rows[i].layers, cut);
        plan.cut = cut;
        assert_int_equal(merak_lossy_parse(rows[i].lossy, &plan.lossy, NULL),
                         MERAK_OK);
        a = parity_trained(&paired, &one, want);
        b = parity_trained(&model, &plan, got);
        planned_assert_sound(b->planned);
        for (int s = 0; s < PARITY_STEPS; s++)
            if (memcmp(&want[s], &got[s], sizeof(*got)) != 0)
                fail_msg("row %zu: loss %.17g, want %.17g", i, got[s], want[s]);
        parity_params(a, b, 0);
        executed_destroy(a);
        executed_destroy(b);
    }
}

/* --- the graph ------------------------------------------------------------ */

enum { SKIP_WIDTH = 8 };

static struct merak_value *mixed(struct merak_model *m, struct merak_value *x,
                                 const char *name)
{
    return merak_gelu(m,
                      merak_linear(m, x,
                                   MERAK_PARAM(m, name, MERAK_NORMAL(1),
                                               SKIP_WIDTH, SKIP_WIDTH),
                                   NULL, 1),
                      false);
}

/* All of them packed, then all unpacked, in the order in which they were made.
 */
static void repack(struct merak_model *m, int ratio, struct merak_value **x,
                   int n)
{
    const struct merak_attrs attrs = {
        .i = {(SKIP_WIDTH + ratio - 1) / ratio, SKIP_WIDTH}};
    struct merak_value *sent[2][2];

    for (int i = 0; i < n; i++)
        assert_int_equal(merak_apply(m, "topk_pack", &attrs, 1, &x[i], sent[i]),
                         MERAK_OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(
            merak_apply(m, "topk_unpack", &attrs, 2, sent[i], &x[i]), MERAK_OK);
}

/* x[0] is read in every part, x[1] only in the next: parts of three, two and
 * the other nodes.  arg: with pairs, or none. */
static void describe_skip(struct merak_model *m, void *arg)
{
    struct merak_value *x[2];
    const int *ratio = arg;

    x[0] =
        merak_embedding(m, merak_tokens(m),
                        MERAK_PARAM(m, "wte", MERAK_NORMAL(1), 13, SKIP_WIDTH));
    x[1] = mixed(m, x[0], "a");
    if (ratio[0] > 0)
        repack(m, ratio[0], x, 2);
    x[1] = mixed(m, x[1], "b");
    if (ratio[1] > 0)
        repack(m, ratio[1], x, 2);
    x[0] = merak_add(m, x[0], x[1]);
    merak_cross_entropy(
        m,
        merak_linear(m, x[0],
                     MERAK_PARAM(m, "head", MERAK_NORMAL(1), 13, SKIP_WIDTH),
                     NULL, 1),
        merak_targets(m));
}

static char *print_skip(const int *described, const struct merak_pack *pack)
{
    const struct merak_model_options options = {.micro_batch = 2, .seq = 16};
    struct merak_graph *graph, *packed = NULL;
    struct merak_model *m;
    struct merak_error err = {.text = ""};
    char *text = NULL;

    assert_int_equal(merak_model_create(&options, &m, &err), MERAK_OK);
    describe_skip(m, (void *)(uintptr_t)described);
    if (merak_model_graph(m, &graph, &err) != MERAK_OK ||
        (pack != NULL &&
         merak_graph_pack(graph, pack, &packed, &err) != MERAK_OK) ||
        merak_graph_print(packed != NULL ? packed : graph, &text, &err) !=
            MERAK_OK)
        fail_msg("%s", err.text);
    merak_graph_destroy(packed);
    merak_model_destroy(m);
    return text;
}

/* The graph with pairs is the one of a model that was described with them:
 * values that skip a part, too, and gradients. */
static void packed_graphs_are_those_described_so(void **state)
{
    static const int ratios[][2] = {{2, 0}, {0, 4}, {2, 4}, {4, 4}, {0, 0}};
    static const int part[] = {0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2};

    (void)state;
    for (size_t i = 0; i < sizeof(ratios) / sizeof(*ratios); i++) {
        const int ratio[] = {ratios[i][0], ratios[i][1], 0}, none[2] = {0, 0};
        const struct merak_pack pack = {.part = part, .ratio = ratio};
        char *want = print_skip(ratios[i], NULL);
        char *got = print_skip(none, &pack);

        assert_string_equal(got, want);
        free(want);
        free(got);
    }
}

/* Rows do not depend on slices; only attention's sums do. */
static void slices_agree_to_rounding(void **state)
{
    const struct parity_variant v = {1, 2, 1, "1f1b", 0, MERAK_SP_OFF};
    struct merak_plan whole = parity_plan(&v), sliced;

    (void)state;
    whole.micro_batch = 1;
    whole.lossy.all = 4;
    sliced = whole;
    snprintf(sliced.schedule, sizeof(sliced.schedule), "sliced:4");
    parity_plans(&gpt, &whole, &sliced, false);
}

/* --- what is moved -------------------------------------------------------- */

static size_t bytes_of(const struct merak_program *prog,
                       enum merak_instr_kind kind, enum merak_phase phase)
{
    size_t bytes = 0;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind == kind && in->phase == phase && in->microbatch == 0)
            bytes += in->bytes;
    }
    return bytes;
}

/* Of 2 x 16 rows of 64 elements a quarter, and two words of places. */
static void messages_are_shorter(void **state)
{
    static const enum merak_dtype dtypes[] = {MERAK_F32, MERAK_BF16};
    const struct parity_variant v = {1, 2, 1, "1f1b", 0, MERAK_SP_OFF};
    struct merak_plan plan = parity_plan(&v);
    struct small_model model = gpt;
    const size_t n = 2 * 16 * 64;

    (void)state;
    model.hidden = 64;
    plan.lossy.ratio[0] = 4;
    for (int i = 0; i < 2; i++) {
        size_t w = merak_dtype_bytes(dtypes[i]);
        struct merak_planned *p;

        model.dtype = dtypes[i];
        p = planned_build(&model, &plan, NULL);
        assert_int_equal(
            bytes_of(p->program[0], MERAK_INSTR_SEND, MERAK_PHASE_F),
            n * w / 4 + n / 8);
        assert_int_equal(
            bytes_of(p->program[1], MERAK_INSTR_SEND, MERAK_PHASE_B),
            n * w / 4);
        merak_planned_destroy(p);
    }
}

/* Stages begin where they do without. */
static void cuts_stay_where_they_are(void **state)
{
    const struct parity_variant v = {1, 4, 1, "1f1b", 0, MERAK_SP_OFF};
    struct merak_plan plan = parity_plan(&v);
    struct merak_planned *whole = planned_build(&gpt, &plan, NULL), *packed;
    int n, n_packed;

    (void)state;
    plan.lossy.all = 2;
    packed = planned_build(&gpt, &plan, NULL);
    assert_int_equal(merak_stages_count_points(whole->sharded, &n, NULL),
                     MERAK_OK);
    assert_int_equal(
        merak_stages_count_points(packed->sharded, &n_packed, NULL), MERAK_OK);
    assert_int_equal(n_packed, n);
    assert_int_equal(packed->graph->n_forward, whole->graph->n_forward + 6);
    for (int p = 0; p < 4; p++) {
        assert_int_equal(packed->stages->n_blocks[p],
                         whole->stages->n_blocks[p]);
        assert_int_equal(packed->stages->params[p], whole->stages->params[p]);
    }
    merak_planned_destroy(whole);
    merak_planned_destroy(packed);
}

/* The model is the same for those who resume it. */
static void models_have_the_same_numbers(void **state)
{
    const struct parity_variant v = {1, 4, 1, "1f1b", 0, MERAK_SP_OFF};
    struct merak_plan plan = parity_plan(&v);
    struct merak_planned *whole = planned_build(&gpt, &plan, NULL), *packed;
    char *a, *b, x[MERAK_FINGERPRINT_TEXT], y[MERAK_FINGERPRINT_TEXT];

    (void)state;
    plan.lossy.all = 2;
    packed = planned_build(&gpt, &plan, NULL);
    assert_int_equal(merak_graph_numbers(whole->graph, &a, NULL), MERAK_OK);
    assert_int_equal(merak_graph_numbers(packed->graph, &b, NULL), MERAK_OK);
    assert_string_equal(a, b);
    merak_graph_fingerprint(whole->graph, x);
    merak_graph_fingerprint(packed->graph, y);
    assert_string_equal(x, y);
    free(a);
    free(b);
    merak_planned_destroy(whole);
    merak_planned_destroy(packed);
}

/* --- the search ----------------------------------------------------------- */

/* What a search predicts is what the programs of its plan take: of two nodes of
 * two ranks only the hop between nodes is slow, and it alone is sent in part.
 */
static void searches_predict_what_is_built(void **state)
{
    struct merak_hf_config config = gpt2_config(4, 128, 4, 512);
    struct merak_device device = {.memory_bytes = 1u << 30,
                                  .links.level[0].ranks = 2,
                                  .flops_per_s = {[MERAK_F32] = 1e11},
                                  .peak_flops_per_s = {[MERAK_F32] = 1e11},
                                  .bytes_per_s = 1e10,
                                  .kernel_s = 1e-6,
                                  .links.level[0].bytes_per_s = 1e10,
                                  .links.level[0].latency_s = 1e-6,
                                  .links.level[1].bytes_per_s = 1e7,
                                  .links.level[1].latency_s = 1e-5};
    struct merak_search_input in = {.describe = merak_hf_describe,
                                    .arg = &config,
                                    .seq = 64,
                                    .dtype = MERAK_F32,
                                    .global_batch = 8,
                                    .nodes = 2,
                                    .ranks_per_node = 2,
                                    .threads = 1,
                                    .device = &device,
                                    .pin = {.tp = 1,
                                            .pp = 4,
                                            .dp = 1,
                                            .micro_batch = 1,
                                            .schedule = "1f1b",
                                            .chunks = 1}};
    double step[2];

    (void)state;
    config.positions = 64;
    for (int i = 0; i < 2; i++) {
        struct merak_program_options opt = {0};
        struct merak_search_result *result = NULL;
        struct merak_planned *planned = NULL;
        struct merak_timeline *timeline = NULL;
        const struct merak_plan *plan;
        struct merak_cost_model cost;
        struct merak_error err = {.text = ""};

        in.pin.lossy.most = i == 0 ? 0 : 8;
        in.pin.given[MERAK_CHOICE_LOSSY_HOPS] = i > 0;
        if (merak_search(&in, &result, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        plan = &result->choice[0].plan;
        for (int h = 0; h < 4; h++)
            assert_int_equal(merak_lossy_ratio(&plan->lossy, h),
                             i == 1 && h == 1 ? 8 : 0);
        assert_int_equal(plan->lossy.most, 0);
        merak_device_cost(&device, in.dtype, in.ranks_per_node, &cost);
        opt.cost = &cost;
        if (merak_plan_build(plan, in.seq, in.describe, in.arg,
                             MERAK_PLAN_STAGES, &opt, &planned,
                             &err) != MERAK_OK ||
            merak_simulate(planned->program, planned->n_programs, &cost, NULL,
                           &timeline, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        step[i] = timeline->step_s;
        assert_near(&step[i], &result->choice[0].step_s, 1, 0, 1e-9);
        for (int s = 0; s < 4; s++)
            assert_int_equal(result->stage[s].arena_bytes,
                             planned->program[s]->arena_bytes);
        merak_timeline_destroy(timeline);
        merak_planned_destroy(planned);
        merak_search_destroy(result);
    }
    /* 8 micro-batches of 32 KiB each way, of which 5/32 are left forward and
     * 1/8 back. */
    print_message("# whole hops %g s, in part %g s\n", step[0], step[1]);
    assert_true(step[1] < 0.4 * step[0]);
}

/* --- what is refused ------------------------------------------------------ */

static void what_cannot_be_is_refused(void **state)
{
    static const struct {
        struct parity_variant v;
        int passes;
        const char *lossy, *text;
    } rows[] = {
        {{1, 1, 1, "1f1b", 0, 0}, 0, "8", "one stage sends nothing"},
        {{1, 2, 1, "1f1b", 0, 0},
         0,
         "1:8",
         "the hop behind stage 1, and of 2 stages those behind 0..0 send"},
        {{1, 2, 1, "interleaved", 0, 0},
         0,
         "1:8",
         "the hop behind stage 1, and of 2 stages those behind 0..0 send"},
        {{1, 4, 1, "1f1b", 0, 0}, 0, "3:8,0:2", "those behind 0..2 send"},
        {{1, 2, 1, "1f1b", 0, 0},
         0,
         "16",
         "ratio 16 for add.19, which part 0 sends in rows of 16; expected a "
         "ratio below 16"},
        {{1, 2, 1, "interlaced", 0, 0}, 0, "8", "under interlaced, where all"},
        {{1, 2, 1, "3f1b", 0, 0}, 3, "8", "the model has 3 passes"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = parity_plan(&rows[i].v);
        struct small_model model = gpt;
        struct merak_error err = {.text = ""};

        model.passes = rows[i].passes;
        model.leaves = 2;
        assert_int_equal(merak_lossy_parse(rows[i].lossy, &plan.lossy, NULL),
                         MERAK_OK);
        assert_int_not_equal(planned_try(&model, &plan, &err), MERAK_OK);
        if (strstr(err.text, rows[i].text) == NULL)
            fail_msg("row %zu: %s", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_read_and_printed),
        cmocka_unit_test(people_are_told_of_ratios),
        cmocka_unit_test(plans_obey_what_was_asked),
        cmocka_unit_test(ratios_follow_seconds),
        cmocka_unit_test(pipelines_compute_what_one_rank_does),
        cmocka_unit_test(packed_graphs_are_those_described_so),
        cmocka_unit_test(slices_agree_to_rounding),
        cmocka_unit_test(messages_are_shorter),
        cmocka_unit_test(cuts_stay_where_they_are),
        cmocka_unit_test(models_have_the_same_numbers),
        cmocka_unit_test(searches_predict_what_is_built),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests_name("lossy", tests, NULL, NULL);
}
