/* SPDX-License-Identifier: Apache-2.0 */
/* test_grids.c - tensor ranks as a grid: words, layouts and refusals
 *
 * A linear of m rows from k to n channels has its weights cut over x by k, over
 * y by n: x ranks sum its output, forward, y ranks its input's gradient,
 * backward.  An all-reduce over c ranks sends 2 (c - 1) / c of its words, so a
 * rank sends 2 (x - 1) / x m n / y and 2 (y - 1) / y m k / x.  The next linear
 * has x and y swapped.  Over z ranks, each with rows of its own, weights are
 * gathered and their gradients summed to parts: 2 (z - 1) / z k n / (x y), if
 * what was gathered is kept.
 * Source: Singh et al. 2023 (arXiv:2305.13525), sec. IV and V.
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"
#include "unit/shard/shard_models.h"

#include "base/factors.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/layout/shard_impl.h"
#include "partitioner/order/shard_order.h"
#include "partitioner/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
#define VOCAB 256

/* --- factors -------------------------------------------------------------- */

static void a_number_has_so_many_factorisations(void **state)
{
    /* of three factors, 1 among them: 10 and 28 */
    static const struct {
        int number, of[MERAK_MAX_FACTORS];
        const char *first, *last;
    } rows[] = {{8, {1, 2, 1}, "2x2x2", "2x2x2"},
                {64, {1, 5, 10}, "2x2x16", "16x2x2"},
                {7, {1, 0, 0}, NULL, NULL}};

    (void)state;
    for (size_t r = 0; r < COUNT(rows); r++) {
        for (int n = 1; n <= MERAK_MAX_FACTORS; n++) {
            int64_t factors = 0, before = 0;
            char text[MERAK_FACTORS_TEXT];
            int found = 0;

            while (merak_factors_next(rows[r].number, n, &factors)) {
                int list[MERAK_MAX_FACTORS];

                assert_int_equal(merak_factors_list(factors, list), n);
                assert_int_equal(merak_factors_product(factors),
                                 rows[r].number);
                if (found++ == 0 && n == MERAK_MAX_FACTORS)
                    assert_string_equal(merak_factors_text(factors, "x", text),
                                        rows[r].first);
                before = factors;
            }
            assert_int_equal(found, rows[r].of[n - 1]);
            if (found > 0 && n == MERAK_MAX_FACTORS)
                assert_string_equal(merak_factors_text(before, "x", text),
                                    rows[r].last);
        }
    }
}

/* --- pairs of linears, h -> 4h -> h -----------------------------------------
 */

struct pairs {
    int n;
    size_t width;
};

static struct merak_value *linear(struct merak_model *m, struct merak_value *x,
                                  const char *name, size_t out, size_t in)
{
    struct merak_value *w = MERAK_PARAM(m, name, MERAK_NORMAL(0.1f), out, in);

    return merak_linear(m, x, w, NULL, 1);
}

static void describe(struct merak_model *m, void *arg)
{
    const struct pairs *pairs = arg;
    size_t h = pairs->width;
    struct merak_value *table =
        MERAK_PARAM(m, "table", MERAK_NORMAL(0.1f), VOCAB, h);
    struct merak_value *x = merak_embedding(m, merak_tokens(m), table);

    for (int i = 0; i < pairs->n; i++) {
        x = linear(m, x, merak_name(m, "up.%d", i), 4 * h, h);
        x = linear(m, merak_gelu(m, x, true), merak_name(m, "down.%d", i), h,
                   4 * h);
    }
    merak_cross_entropy(m, linear(m, x, "head", VOCAB, h), merak_targets(m));
}

static struct merak_model *make(const struct pairs *pairs, size_t tokens,
                                struct merak_graph **graph_p)
{
    const struct merak_model_options opt = {
        .micro_batch = 1, .seq = tokens, .dtype = MERAK_F32};
    struct pairs copy = *pairs;
    struct merak_model *m;
    struct merak_error err;

    if (merak_model_create(&opt, &m, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    describe(m, &copy);
    if (merak_model_graph(m, graph_p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return m;
}

/* --- words of a grid that is given ------------------------------------------
 */

static int8_t index_of(const struct merak_signature *sig, char name)
{
    for (int i = 0; i < sig->n_index; i++)
        if (sig->index[i].name == name)
            return (int8_t)i;
    fail_msg("no index %c", name);
    return 0;
}

/* Linears from up.0 on are cut by both sides, x and y swapped in every second
 * one; all else is on every rank. */
static struct merak_sharded *cut_by_both_sides(const struct merak_graph *graph,
                                               int x, int y)
{
    struct merak_sharded *s = calloc(1, sizeof(*s));
    struct merak_strategy *strategy =
        calloc((size_t)graph->n_forward, sizeof(*strategy));
    struct merak_signature *sig = NULL;
    struct merak_error err;

    s->mesh = (struct merak_mesh){
        .n_axes = 2,
        .axis = {{.name = "x", .size = x}, {.name = "y", .size = y}}};
    assert_int_equal(merak_signatures(graph, &sig, &err), MERAK_OK);
    for (int n = 0; n < graph->n_forward; n++) {
        const struct merak_node *node = graph->node[n];

        strategy[n] = MERAK_STRATEGY_NONE;
        if (strcmp(node->op->name, "gelu") == 0)
            strategy[n].cut[1] = index_of(&sig[n], 'e');
        if (strcmp(node->op->name, "linear") != 0 ||
            strcmp(node->in[1]->name, "head") == 0)
            continue;
        strategy[n].cut[0] = index_of(
            &sig[n], strncmp(node->in[1]->name, "up", 2) == 0 ? 'i' : 'o');
        strategy[n].cut[1] = index_of(
            &sig[n], strncmp(node->in[1]->name, "up", 2) == 0 ? 'o' : 'i');
    }
    if (merak_shard_write(graph, sig, strategy, NULL, s, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    free(sig);
    free(strategy);
    return s;
}

/* Words that a rank sends of what is made with this parameter. */
static double words_with(const struct merak_sharded *s, const char *param)
{
    double words = 0;

    for (int n = 0; n < s->graph->n_nodes; n++) {
        const struct merak_node *node = s->graph->node[n];

        while (s->hop[node->id].kind != MERAK_CONVERT_NONE)
            node = s->graph->node[node->in[0]->producer];
        for (int i = 0; i < node->n_in; i++)
            if (strcmp(node->in[i]->name, param) == 0)
                words += s->hop[n].words;
    }
    return words;
}

/* Of gathering a parameter that z ranks share, and of summing its gradients. */
static double words_of_z(double elements, int z)
{
    const struct merak_mesh mesh = {.n_axes = 1,
                                    .axis = {{.name = "z", .size = z}}};
    const struct merak_shape shape = {1, {(size_t)elements}};
    const struct merak_layout flat = {.at[0] = {.kind = MERAK_FLAT, .dim = -1}},
                              whole = {.at[0] = {.kind = MERAK_REPLICATED,
                                                 .dim = -1}},
                              sum = {.at[0] = {.kind = MERAK_PARTIAL_SUM,
                                               .dim = -1}};
    struct merak_hop hop[MERAK_MAX_HOPS];
    double words;

    assert_int_equal(merak_layout_path(&mesh, &shape, &flat, &whole, hop, NULL),
                     1);
    words = hop[0].words;
    assert_int_equal(merak_layout_path(&mesh, &shape, &sum, &flat, hop, NULL),
                     1);
    return words + hop[0].words;
}

static void a_linear_sends_the_words_of_x_y_and_z(void **state)
{
    static const struct {
        int x, y, z;
        double words;
    } rows[] = {
        {2, 2, 2, 58720256},  {4, 2, 1, 109051904}, {1, 8, 1, 58720256},
        {8, 1, 1, 234881024}, {1, 1, 8, 117440512},
    };
    const double m = 8192, k = 4096, n = 16384;
    const struct pairs pairs = {2, (size_t)k};

    (void)state;
    for (size_t r = 0; r < COUNT(rows); r++) {
        struct merak_graph *graph;
        struct merak_model *model =
            make(&pairs, (size_t)m / (size_t)rows[r].z, &graph);
        struct merak_sharded *s =
            cut_by_both_sides(graph, rows[r].x, rows[r].y);
        double words = words_with(s, "up.1");

        if (rows[r].z > 1)
            words += words_of_z(k * n / rows[r].x / rows[r].y, rows[r].z);
        if (words != rows[r].words)
            fail_msg("%d x %d x %d: %.0f words, not %.0f", rows[r].x, rows[r].y,
                     rows[r].z, words, rows[r].words);
        merak_sharded_destroy(s);
        merak_model_destroy(model);
    }
}

static const struct grid_row {
    int x, y;
    double words; /* of a pair, in rows x h */
} grid_rows[] = {
    {1, 4, 3.0},  {2, 2, 5.0},  {4, 1, 12.0}, {1, 16, 3.75},
    {2, 8, 2.75}, {4, 4, 3.75}, {8, 2, 7.25}, {16, 1, 15.0},
};

static void pairs_send_the_words_of_x_and_y(void **state)
{
    const struct pairs pairs = {2, 256};
    const double tokens = 64;
    struct merak_graph *graph;
    struct merak_model *model = make(&pairs, (size_t)tokens, &graph);

    (void)state;
    for (size_t r = 0; r < COUNT(grid_rows); r++) {
        struct merak_sharded *s =
            cut_by_both_sides(graph, grid_rows[r].x, grid_rows[r].y);
        double words = words_with(s, "up.1") + words_with(s, "down.0");

        assert_true(words == grid_rows[r].words * tokens * (double)pairs.width);
        merak_sharded_destroy(s);
    }
    merak_model_destroy(model);
}

/* --- the search -------------------------------------------------------------
 */

static struct merak_sharded *shard(const struct merak_graph *graph,
                                   int64_t axes)
{
    const struct merak_shard_options opt = {
        .tp = (int)merak_factors_product(axes),
        .tp_axes = axes,
        .sp = MERAK_SP_OFF};

    return spec_shard(graph, &opt);
}

/* What y is where a pair sends least: the root of 4 p, as of 16 x + 4 y, which
 * is what its words come to.  A grid that is not square may be either way
 * round, and one axis is among the choices of every grid. */
static void the_search_takes_the_cheapest_grid(void **state)
{
    static const struct {
        int p;
        double one, best; /* words: over one axis, and over the best grid */
        const char *grid; /* the first of the cheapest ones; NULL: one axis */
    } rows[] = {{4, 3.0, 3.0, NULL},
                {16, 3.75, 2.75, "2x8"},
                {64, 3.9375, 1.6875, "4x16"}};
    const struct pairs pairs = {3, 512};
    const size_t tokens = 1024;
    struct merak_graph *graph;
    struct merak_model *model = make(&pairs, tokens, &graph);

    (void)state;
    for (size_t r = 0; r < COUNT(rows); r++) {
        int64_t best = rows[r].p, axes = 0;
        double least = 0;

        for (int n = 1; n <= 2; n++, axes = 0) {
            while (merak_factors_next(rows[r].p, n, &axes)) {
                struct merak_sharded *s = shard(graph, axes);
                double words =
                    (words_with(s, "up.1") + words_with(s, "down.1")) /
                    (double)(tokens * pairs.width);

                if (n == 1)
                    assert_true(words == rows[r].one);
                if (words > rows[r].one)
                    fail_msg("%d ranks, grid %zu: %g words, one axis %g",
                             rows[r].p, (size_t)axes, words, rows[r].one);
                if (n == 1 || words < least) {
                    least = words;
                    best = axes;
                }
                merak_sharded_destroy(s);
            }
        }
        if (rows[r].grid != NULL) {
            char text[MERAK_FACTORS_TEXT];

            assert_string_equal(merak_factors_text(best, "x", text),
                                rows[r].grid);
        } else {
            assert_int_equal(best, rows[r].p);
        }
        assert_true(least == rows[r].best);
    }
    merak_model_destroy(model);
}

/* --- programs ---------------------------------------------------------------
 */

enum { WIDTH = 64, TOKENS = 64, MICROBATCHES = 2 };

/* Bytes that a rank sends in a step over tensor axes and over replicas. */
static void count_sent(const struct merak_plan *plan, int n, double bytes[2])
{
    struct pairs pairs = {n, WIDTH};
    struct merak_planned *p = NULL;
    struct merak_error err = {0};

    bytes[0] = bytes[1] = 0;
    if (merak_plan_build(plan, TOKENS, describe, &pairs, MERAK_PLAN_ALL, NULL,
                         &p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    for (int r = 0; r < p->n_programs; r++) {
        const struct merak_program *prog = p->program[r];

        for (int i = 0; i < prog->n_instrs; i++) {
            const struct merak_instr *in = &prog->instr[i];

            if (in->kind == MERAK_INSTR_EXCHANGE)
                bytes[strcmp(prog->group[in->group].name, "dp") == 0] +=
                    (double)in->bytes / p->n_programs;
        }
    }
    merak_planned_destroy(p);
}

/* A pair more sends its words in every micro-batch; replicas that share out
 * parameters gather them forward and backward and sum their gradients, three
 * times (z - 1) / z of them.  At the end each axis sums a sum of squares for
 * each parameter. */
static void programs_send_the_words_of_x_y_and_z(void **state)
{
    static const struct {
        const char *axes;
        int dp, zero;
        double words; /* of a pair, in rows x h */
    } rows[] = {
        {"4", 1, MERAK_ZERO_NONE, 3.0},     {"2x2", 1, MERAK_ZERO_NONE, 3.0},
        {"2x8", 1, MERAK_ZERO_NONE, 2.75},  {"8x2", 1, MERAK_ZERO_NONE, 2.75},
        {"2x2", 2, MERAK_ZERO_PARAMS, 3.0}, {"2x8", 2, MERAK_ZERO_PARAMS, 2.75},
    };

    (void)state;
    for (size_t r = 0; r < COUNT(rows); r++) {
        struct merak_plan plan = {.pp = 1,
                                  .dp = rows[r].dp,
                                  .micro_batch = 1,
                                  .microbatches = MICROBATCHES,
                                  .zero = rows[r].zero,
                                  .sp = MERAK_SP_OFF,
                                  .schedule = "1f1b"};
        double few[2], more[2], squares, want[2], z = rows[r].dp;

        assert_true(merak_factors_parse(rows[r].axes, &plan.tp_axes));
        plan.tp = (int)merak_factors_product(plan.tp_axes);
        count_sent(&plan, 2, few);
        count_sent(&plan, 3, more);
        squares =
            2 * 2 * 8; /* of two parameters, sent to be summed, and sums */
        want[0] = MICROBATCHES * rows[r].words * TOKENS * WIDTH * 4 +
                  squares * (plan.tp - 1) / plan.tp;
        want[1] =
            MICROBATCHES * 3 * (z - 1) / z * 8 * WIDTH * WIDTH * 4 / plan.tp +
            squares * (z - 1) / z;
        for (int i = 0; i < 2; i++) {
            if (fabs(more[i] - few[i] - want[i]) > 1e-6)
                fail_msg("%s, dp %d: a rank sends %.17g bytes a pair over %s, "
                         "not %.17g",
                         rows[r].axes, rows[r].dp, more[i] - few[i],
                         i == 0 ? "tensor axes" : "replicas", want[i]);
        }
    }
}

/* --- decisions --------------------------------------------------------------
 */

/* A step of a GPT of 3.2 billion parameters on one node of 64 ranks or of 8,
 * whose links of 6 GB/s are those of the clusters that grids were published
 * for; of all choices that are not given the planner's. */
static double step_of(int ranks, const char *axes, int dp, int64_t *found_p)
{
    struct merak_hf_config config = gpt2_config(4, 8192, 64, 51200);
    struct merak_search_result *result = NULL;
    struct merak_device device;
    struct merak_error err = {0};
    struct merak_search_input in = {
        .describe = merak_hf_describe,
        .arg = &config,
        .seq = 512,
        .dtype = MERAK_BF16,
        .global_batch = (size_t)ranks,
        .nodes = 1,
        .ranks_per_node = ranks,
        .threads = 1,
        .device = &device,
        .pin = {.tp = ranks / dp,
                .pp = 1,
                .dp = dp,
                .micro_batch = (size_t)(ranks / dp),
                .schedule = "1f1b",
                .zero = dp > 1 ? MERAK_ZERO_PARAMS : MERAK_ZERO_STATE,
                .given[MERAK_CHOICE_ZERO] = true,
                .given[MERAK_CHOICE_SUB_PIPELINE] = true,
                .given[MERAK_CHOICE_TP_BATCH] = true}};
    double step_s;

    if (strcmp(axes, "auto") == 0)
        in.pin.tp_axes = MERAK_OPTION_AUTO;
    else
        assert_true(merak_factors_parse(axes, &in.pin.tp_axes));
    assert_int_equal(merak_device_find("a100", &device, &err), MERAK_OK);
    device.links.level[0].bytes_per_s = 6e9;
    if (merak_search(&in, &result, &err) != MERAK_OK)
        fail_msg("%d ranks as %s: %s", ranks, axes, err.text);
    step_s = result->choice[0].step_s;
    *found_p = result->choice[0].plan.tp_axes;
    print_message("# %d ranks as %s, dp %d: %.3f s\n", ranks, axes, dp, step_s);
    merak_search_destroy(result);
    return step_s;
}

/* Bian et al. 2021 (arXiv:2105.14450): on 64 GPUs three dimensions are 2.32
 * times as fast as one.  Singh et al.: a grid makes large models' steps 26 %
 * faster.  On a node of eight there is nothing to gain. */
static void grids_are_faster_than_one_axis_on_64_ranks(void **state)
{
    int64_t found, none;
    double one = step_of(64, "64", 1, &found);
    double grid = step_of(64, "4x16", 1, &found);
    double cube = step_of(64, "4x4", 4, &found);
    double best = step_of(64, "auto", 1, &found);

    (void)state;
    assert_true(one > 1.26 * grid);
    assert_true(one > 2.32 * cube);
    assert_true(best <= grid);
    assert_true(found > 0);
    step_of(8, "auto", 1, &none);
    assert_int_equal(none, 0);
}

/* --- refusals ---------------------------------------------------------------
 */

static const struct {
    size_t heads, kv;
    int tp, cp;
    const char *axes, *text;
} error_rows[] = {
    {8, 8, 8, 1, "3x2", "--tp-axes 3x2 is not tp 8: use --tp 6"},
    {8, 8, 8, 2, "2x2x2",
     "--tp-axes 2x2x2 makes 3 axes beside cp 2, expected at most 2: use fewer "
     "factors, or --cp 1"},
    {4, 2, 4, 1, "4",
     "--tp-axes 4: 4 divides neither 2 kv heads nor 2 queries of each "
     "(nearest: 2x2)"},
    {12, 4, 12, 1, "2x6",
     "--tp-axes 2x6: 6 divides neither 4 kv heads nor 3 queries of each "
     "(nearest: 4x3)"},
    {24, 2, 24, 1, "4x6",
     "--tp-axes 4x6: its factors together divide neither 2 kv heads nor 12 "
     "queries of each (nearest: 2x12)"},
};

static void grids_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    for (size_t r = 0; r < COUNT(error_rows); r++) {
        const struct spec spec = {true,
                                  1,
                                  8,
                                  1,
                                  error_rows[r].heads * 2,
                                  error_rows[r].heads,
                                  error_rows[r].kv,
                                  32,
                                  false,
                                  0,
                                  BLOCK_PRE};
        struct merak_shard_options opt = {.tp = error_rows[r].tp,
                                          .cp = error_rows[r].cp};
        struct merak_sharded *s = NULL;
        struct merak_graph *graph;
        struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);
        struct merak_error err;

        assert_true(merak_factors_parse(error_rows[r].axes, &opt.tp_axes));
        assert_int_equal(merak_shard(graph, &opt, &s, &err), MERAK_ERR_CONFIG);
        assert_string_equal(err.text, error_rows[r].text);
        assert_null(s);
        merak_model_destroy(m);
    }
}

/* Kv heads and queries of each may be on either axis. */
static void heads_are_cut_by_the_factors_that_divide_them(void **state)
{
    static const struct {
        const char *axes, *query, *key;
    } rows[] = {{"2x4", "S2,S3", "S2,R"}, {"4x2", "S3,S2", "R,S2"}};
    const struct spec spec = {true, 2, 8, 1, 32, 8, 2, 64, false, 0, BLOCK_PRE};
    struct merak_graph *graph;
    struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);

    (void)state;
    for (size_t r = 0; r < COUNT(rows); r++) {
        const struct merak_node *node;
        struct merak_sharded *s;
        int64_t axes;
        char text[32];

        assert_true(merak_factors_parse(rows[r].axes, &axes));
        s = shard(graph, axes);
        node = spec_node(s->graph, "attention", 0);
        assert_string_equal(spec_layout(s, node->in[0]->id, text),
                            rows[r].query);
        assert_string_equal(spec_layout(s, node->in[1]->id, text), rows[r].key);
        merak_sharded_destroy(s);
    }
    merak_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_has_so_many_factorisations),
        cmocka_unit_test(a_linear_sends_the_words_of_x_y_and_z),
        cmocka_unit_test(pairs_send_the_words_of_x_and_y),
        cmocka_unit_test(the_search_takes_the_cheapest_grid),
        cmocka_unit_test(programs_send_the_words_of_x_y_and_z),
        cmocka_unit_test(grids_are_faster_than_one_axis_on_64_ranks),
        cmocka_unit_test(grids_that_do_not_fit_are_refused),
        cmocka_unit_test(heads_are_cut_by_the_factors_that_divide_them),
    };

    return cmocka_run_group_tests_name("grids", tests, NULL, NULL);
}
