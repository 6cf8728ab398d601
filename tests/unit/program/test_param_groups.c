/* SPDX-License-Identifier: Apache-2.0 */
/* test_param_groups.c - parameters that are frozen, do not decay, or learn at
 * another rate, by their names
 *
 * Frozen ones have no gradient, no state and no part in an exchange, on any
 * layout; all else is as if they were trained at a rate of next to nothing.
 */
#include "config.h"

#include "unit/execute.h"
#include "unit/near.h"

#include "base/size.h"
#include "io/hf_config.h"
#include "partitioner/graph/graph.h"
#include "runtime/train/param_rules.h"
#include "runtime/train/train_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 3
#define BATCHES 4 /* micro-batches of a step over all replicas */

/* What is said of a model of tests/vectors/hf. */
static const struct row {
    const char *model, *freeze[3];
} rows[] = {
    {"gpt2-dropout", {"h.0.*"}},
    {"gpt2-dropout", {"wte.weight", "wpe.weight", "h.0.attn.*"}},
    {"gpt2-dropout", {"*.weight"}}, /* norms' biases are trained */
    {"gpt2-dropout", {"h.1.*", "ln_f.*"}},
    {"qwen2", {"model.embed_tokens.weight", "model.layers.0.*", "lm_head*"}},
    {"gemma2", {"*.mlp.*", "*norm*"}},
};

struct layout {
    int tp, pp, dp;
    const char *schedule;
    bool recompute;
};

static void load_model(const char *name, struct merak_hf_config *config)
{
    struct merak_error err;
    char path[1024];

    snprintf(path, sizeof(path), "%s/vectors/hf/%s.json", TEST_SRCDIR, name);
    if (merak_hf_config_load(path, config, &err) != MERAK_OK)
        fail_msg("%s", err.text);
}

/* All of them frozen, or at a rate of next to nothing and without decay. */
static void add_rules(const struct row *row, bool freeze,
                      struct merak_param_rules *rules)
{
    rules->n = 0;
    for (int i = 0; i < 3 && row->freeze[i] != NULL; i++) {
        char scale[64];

        snprintf(scale, sizeof(scale), "%s=1e-30", row->freeze[i]);
        assert_int_equal(
            merak_param_rules_add(rules, freeze ? MERAK_FREEZE : MERAK_LR_SCALE,
                                  freeze ? row->freeze[i] : scale, NULL),
            MERAK_OK);
    }
}

static struct merak_planned *plan_rules(const struct row *row,
                                        struct merak_param_rules *rules,
                                        const struct layout *at)
{
    struct merak_plan plan = planned_plan(
        at->tp, at->pp, at->dp, BATCHES / at->dp, at->schedule, at->dp > 1);
    struct merak_planned *planned = NULL;
    struct merak_hf_config config;
    struct merak_ruled_model ruled = {
        .describe = merak_hf_describe, .arg = &config, .rules = rules};
    struct merak_error err = {.text = ""};

    load_model(row->model, &config);
    plan.micro_batch = 2;
    if (at->recompute)
        plan.recompute = MERAK_RECOMPUTE_FULL;
    if (merak_plan_build(&plan, 16, merak_ruled_describe, &ruled,
                         MERAK_PLAN_ALL, NULL, &planned, &err) != MERAK_OK)
        fail_msg("%s: tp %d, pp %d, dp %d, %s: %s", row->model, at->tp, at->pp,
                 at->dp, at->schedule, err.text);
    planned_assert_sound(planned);
    return planned;
}

/* Does an instruction's name speak of the parameter, or its gradient? */
static bool speaks_of(const struct merak_instr *in, const char *param)
{
    size_t n = strlen(param);
    const char *at = strstr(in->name, param);

    return at != NULL && at != in->name && (at[n] == ' ' || at[n] == '\0');
}

static void assert_left_alone(const struct merak_program *p,
                              const struct merak_param_slots *param)
{
    assert_int_equal(param->m, -1);
    assert_int_equal(param->v, -1);
    assert_int_equal(param->grad, -1);
    for (int i = 0; i < p->n_instrs; i++) {
        if (p->instr[i].microbatch < 0 && speaks_of(&p->instr[i], param->name))
            fail_msg("%s", p->instr[i].name);
    }
    for (int s = 0; s < p->n_slots; s++) {
        if (p->slot[s].value == param->value &&
            (p->slot[s].category == MERAK_CAT_GRAD ||
             p->slot[s].category == MERAK_CAT_OPTIMIZER))
            fail_msg("slot of %s", param->name);
    }
}

static void frozen_parameters_are_left_alone(const struct merak_planned *pl,
                                             int *n_p)
{
    *n_p = 0;
    for (int r = 0; r < pl->n_programs; r++) {
        const struct merak_program *p = pl->program[r];

        for (int i = 0; i < p->n_params; i++) {
            if (!p->param[i].frozen) {
                assert_true(p->param[i].m >= 0 && p->param[i].grad >= 0);
                continue;
            }
            assert_left_alone(p, &p->param[i]);
            ++*n_p;
        }
    }
}

static void add_element(void *arg, size_t global, float *element)
{
    double *sum = arg;

    *sum += (double)*element * (double)(global % 97 + 1);
}

/* A number that changes with any element of a frozen parameter. */
static double frozen_sum(const struct executed *ex)
{
    double sum = 0;

    for (int r = 0; r < ex->planned->n_programs; r++) {
        const struct merak_program *p = ex->planned->program[r];

        for (int i = 0; i < p->n_params; i++) {
            if (p->param[i].frozen)
                executed_param(ex, r, &p->param[i], add_element, &sum);
        }
    }
    return sum;
}

static void run(struct merak_planned *planned, double loss[STEPS])
{
    struct executed *ex = executed_create(planned);
    double before = frozen_sum(ex);

    ex->step.clip = 0; /* norms are of other gradients */
    for (int s = 0; s < STEPS; s++) {
        executed_step(ex, (uint64_t)(planned->n_programs * 10 + s));
        loss[s] = executed_loss(ex);
    }
    assert_true(frozen_sum(ex) == before);
    executed_destroy(ex);
}

static void frozen_parameters_stay_on_any_layout(void **state)
{
    static const struct layout layouts[] = {
        {1, 1, 1, "1f1b", false}, {1, 1, 1, "1f1b", true},
        {2, 1, 1, "1f1b", false}, {1, 2, 1, "zb-h1", false},
        {1, 2, 1, "gpipe", true}, {1, 1, 2, "1f1b", false},
        {2, 2, 2, "1f1b", false}, {1, 2, 1, "interlaced", false}};
    const struct row *row = *state;
    struct merak_param_rules rules;
    double want[STEPS], got[STEPS];
    int n;

    add_rules(row, false, &rules);
    run(plan_rules(row, &rules, &layouts[0]), want);
    add_rules(row, true, &rules);
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        struct merak_planned *planned = plan_rules(row, &rules, &layouts[i]);

        frozen_parameters_are_left_alone(planned, &n);
        assert_true(n > 0);
        run(planned, got);
        /* sums over ranks are rounded in another order */
        assert_near(got, want, STEPS, 1e-5, 0);
    }
}

/* Twelve bytes an element are a gradient and moments; sixteen of bf16 a master,
 * too: those go, and activations that only they were kept for. */
static void frozen_parameters_take_no_memory(void **state)
{
    const struct layout one = {1, 1, 1, "1f1b", false};
    struct merak_param_rules rules = {.n = 0};
    struct merak_planned *all, *some;
    size_t frozen = 0;

    (void)state;
    all = plan_rules(&rows[0], &rules, &one);
    add_rules(&rows[0], true, &rules);
    some = plan_rules(&rows[0], &rules, &one);
    for (int i = 0; i < some->program[0]->n_params; i++) {
        const struct merak_param_slots *p = &some->program[0]->param[i];

        if (p->frozen)
            frozen += merak_size_align(
                merak_shape_count(&p->shape) * sizeof(float), 64);
    }
    assert_int_equal(all->program[0]->persistent_bytes -
                         some->program[0]->persistent_bytes,
                     3 * frozen);
    assert_true(all->program[0]->arena_bytes - some->program[0]->arena_bytes >=
                3 * frozen);
    merak_planned_destroy(all);
    merak_planned_destroy(some);
}

/* --- by name -------------------------------------------------------------- */

static struct merak_value *param_of(const struct merak_graph *graph,
                                    const char *name)
{
    for (int i = 0; i < graph->n_values; i++) {
        if (strcmp(graph->value[i]->name, name) == 0)
            return graph->value[i];
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

/* Describe gpt2 with rules; the status and its text. */
static enum merak_status describe(struct merak_param_rules *rules,
                                  struct merak_model **m_p,
                                  struct merak_graph **graph_p,
                                  struct merak_error *err)
{
    const struct merak_model_options opt = {
        .micro_batch = 1, .seq = 8, .dtype = MERAK_BF16};
    struct merak_hf_config config;
    struct merak_ruled_model ruled = {
        .describe = merak_hf_describe, .arg = &config, .rules = rules};

    load_model("gpt2-dropout", &config);
    assert_int_equal(merak_model_create(&opt, m_p, NULL), MERAK_OK);
    merak_ruled_describe(*m_p, &ruled);
    return merak_model_graph(*m_p, graph_p, err);
}

static void the_last_rule_of_a_name_counts(void **state)
{
    static const struct {
        enum merak_param_rule_kind kind;
        const char *text;
    } said[] = {{MERAK_LR_SCALE, "h.*=0.5"},
                {MERAK_LR_SCALE, "h.1.*=0.25"},
                {MERAK_NO_DECAY, "wte.weight"},
                {MERAK_FREEZE, "h.?.ln_[12].*"}};
    struct merak_param_rules rules = {.n = 0};
    struct merak_graph *graph;
    struct merak_model *m;
    struct merak_error err;
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
        assert_int_equal(
            merak_param_rules_add(&rules, said[i].kind, said[i].text, &err),
            MERAK_OK);
    if (describe(&rules, &m, &graph, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_true(param_of(graph, "h.0.mlp.c_fc.weight")->lr_scale == 0.5f);
    assert_true(param_of(graph, "h.1.mlp.c_fc.weight")->lr_scale == 0.25f);
    assert_true(param_of(graph, "wpe.weight")->lr_scale == 0);
    assert_true(param_of(graph, "wpe.weight")->decay);
    assert_false(param_of(graph, "wte.weight")->decay);
    assert_true(param_of(graph, "h.1.ln_2.bias")->frozen);
    assert_false(param_of(graph, "ln_f.weight")->frozen);
    merak_param_rules_print(&rules, text, sizeof(text));
    assert_string_equal(text, " --lr-scale h.*=0.5 --lr-scale h.1.*=0.25"
                              " --no-decay wte.weight"
                              " --freeze h.?.ln_[12].*");
    merak_model_destroy(m);
}

static void names_that_match_nothing_are_told(void **state)
{
    static const struct {
        enum merak_param_rule_kind kind;
        const char *text, *says;
    } wrong[] = {
        {MERAK_FREEZE, "wte.wieght",
         "freeze wte.wieght: no parameter has such "
         "a name; the nearest is wte.weight"},
        {MERAK_NO_DECAY, "lm_head.*", "no-decay lm_head.*: no parameter"},
        {MERAK_LR_SCALE, "x=2", "lr-scale x: no parameter"},
        {MERAK_FREEZE, "*", "all parameters are frozen"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct merak_param_rules rules = {.n = 0};
        struct merak_graph *graph;
        struct merak_model *m;
        struct merak_error err;

        assert_int_equal(
            merak_param_rules_add(&rules, wrong[i].kind, wrong[i].text, &err),
            MERAK_OK);
        assert_int_equal(describe(&rules, &m, &graph, &err), MERAK_ERR_CONFIG);
        if (strstr(err.text, wrong[i].says) == NULL)
            fail_msg("got \"%s\", expected \"%s\"", err.text, wrong[i].says);
        merak_model_destroy(m);
    }
}

static void options_are_checked_before_a_model_is(void **state)
{
    static const char *const scales[] = {"h.*",  "=2", "h.*=",    "h=0", "h=-1",
                                         "h=1x", "h=", "h=1e999", ""};
    struct merak_param_rules rules = {.n = 0};
    struct merak_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(scales) / sizeof(scales[0]); i++) {
        assert_int_equal(
            merak_param_rules_add(&rules, MERAK_LR_SCALE, scales[i], &err),
            MERAK_ERR_CONFIG);
        assert_non_null(strstr(err.text, "--lr-scale: expected"));
    }
    assert_int_equal(rules.n, 0);
    for (int i = 0; i < MERAK_PARAM_RULES; i++)
        assert_int_equal(merak_param_rules_add(&rules, MERAK_FREEZE, "a", &err),
                         MERAK_OK);
    assert_int_equal(merak_param_rules_add(&rules, MERAK_FREEZE, "b", &err),
                     MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "--freeze b: there are already 64"));
}

/* --- learning rates ------------------------------------------------------- */

static void parse(char **argv, struct merak_train_options *opt)
{
    struct merak_error err;
    int n = 0;

    while (argv[n] != NULL)
        n++;
    if (merak_train_options_parse(n, argv, 0, opt, &err) != MERAK_OK)
        fail_msg("%s", err.text);
}

/* Up in 4 steps, level, and down to a tenth in the last 5 of 20. */
static void wsd_stays_until_its_last_share(void **state)
{
    char *argv[] = {"train", "--data",        "x",     "--steps",
                    "20",    "--warmup",      "4",     "--lr",
                    "1",     "--min-lr",      "0.1",   "--lr-schedule",
                    "wsd",   "--decay-share", "0.25",  "--freeze",
                    "a.*",   "--lr-scale",    "b=0.5", NULL};
    const float want[] = {0.25f, 0.5f,  0.75f, 1,     1,     1,   1,
                          1,     1,     1,     1,     1,     1,   1,
                          1,     0.82f, 0.64f, 0.46f, 0.28f, 0.1f};
    struct merak_train_options opt;
    char text[MERAK_RECIPE_BYTES];

    (void)state;
    parse(argv, &opt);
    for (uint64_t s = 0; s < 20; s++) {
        float got = merak_learning_rate(&opt.optimizer, opt.steps, s);

        assert_near(&got, &want[s], 1, 1e-6, 0);
    }
    merak_train_recipe(&opt, text);
    assert_string_equal(text, "--lr 1 --min-lr 0.1 --warmup 4 --lr-schedule "
                              "wsd --decay-share 0.25 --freeze a.* "
                              "--lr-scale b=0.5");
    opt.reduce_fast = true;
    merak_train_recipe(&opt, text);
    assert_non_null(strstr(text, " --decay-share 0.25 --reduce fast "
                                 "--freeze a.*"));
}

static void long_recipes_end_in_a_digest(void **state)
{
    char a[MERAK_RECIPE_BYTES], b[MERAK_RECIPE_BYTES];
    struct merak_train_options opt = {.optimizer.lr = 1};

    (void)state;
    for (int i = 0; i < MERAK_PARAM_RULES; i++)
        assert_int_equal(
            merak_param_rules_add(&opt.optimizer.rules, MERAK_FREEZE,
                                  "a.pattern.of.some.length.*", NULL),
            MERAK_OK);
    merak_train_recipe(&opt, a);
    opt.optimizer.rules.rule[MERAK_PARAM_RULES - 1].pattern[0] = 'b';
    merak_train_recipe(&opt, b);
    assert_true(strlen(a) < MERAK_RECIPE_BYTES);
    assert_string_not_equal(a, b);
}

int main(void)
{
    enum { N = sizeof(rows) / sizeof(rows[0]), OTHERS = 6 };
    struct CMUnitTest tests[N + OTHERS];
    char names[N][80];
    const struct CMUnitTest others[OTHERS] = {
        cmocka_unit_test(frozen_parameters_take_no_memory),
        cmocka_unit_test(the_last_rule_of_a_name_counts),
        cmocka_unit_test(names_that_match_nothing_are_told),
        cmocka_unit_test(options_are_checked_before_a_model_is),
        cmocka_unit_test(wsd_stays_until_its_last_share),
        cmocka_unit_test(long_recipes_end_in_a_digest),
    };

    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]),
                 "frozen parameters stay on any layout: %s, %s", rows[i].model,
                 rows[i].freeze[0]);
        tests[i] =
            (struct CMUnitTest){names[i], frozen_parameters_stay_on_any_layout,
                                NULL, NULL, (void *)(uintptr_t)&rows[i]};
    }
    memcpy(tests + N, others, sizeof(others));
    return cmocka_run_group_tests_name("param_groups", tests, NULL, NULL);
}
