/* SPDX-License-Identifier: Apache-2.0 */
/* test_tp_plan.c - parameters that a user has named, and how they are cut */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "partitioner/assembly/assembly.h"
#include "partitioner/search/search.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static const struct {
    const char *told, *text; /* text: as it is kept, or of the error */
    bool is_good;
} text_rows[] = {
    {"*.up.weight:colwise,*.down.*:rowwise",
     "*.up.weight:colwise+*.down.*:rowwise", true},
    {"a:replicate+b:colwise", "a:replicate+b:colwise", true},
    {"a:replicate,", "a:replicate", true},
    {"a:0,b.*:3", "a:0+b.*:3", true},
    {"a:row", "styles colwise, rowwise, replicate or a dim", false},
    {"a=rowwise", "got \"a=rowwise\"", false},
    {":rowwise", "got \":rowwise\"", false},
    {"a", "got \"a\"", false},
    {"", "got \"\"", false},
    {"a:rowwise,,b:rowwise", "got \"a:rowwise,,b:rowwise\"", false},
};

static void parameters_are_named_by_patterns(void **state)
{
    char most[MERAK_TP_PLAN_TEXT + 8];
    struct merak_tp_plan plan = {""};
    struct merak_error err = {.text = ""};

    (void)state;
    for (size_t r = 0; r < COUNT(text_rows); r++) {
        if (merak_tp_plan_parse(text_rows[r].told, &plan, &err) !=
            (text_rows[r].is_good ? MERAK_OK : MERAK_ERR_CONFIG))
            fail_msg("%s: %s", text_rows[r].told, err.text);
        if (text_rows[r].is_good)
            assert_string_equal(plan.text, text_rows[r].text);
        else if (strstr(err.text, text_rows[r].text) == NULL)
            fail_msg("%s: %s", text_rows[r].told, err.text);
    }
    memset(most, 'x', sizeof(most));
    snprintf(most + MERAK_TP_PLAN_TEXT - 1 - 8, 9, ":rowwise");
    assert_int_equal(merak_tp_plan_parse(most, &plan, &err), MERAK_OK);
    memset(most, 'x', sizeof(most));
    snprintf(most + MERAK_TP_PLAN_TEXT - 8, 9, ":rowwise");
    assert_int_equal(merak_tp_plan_parse(most, &plan, &err), MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "256 characters, expected at most 255"));
}

/* --- layouts -------------------------------------------------------------- */

static enum merak_status build(const char *told, int tp,
                               struct merak_planned **p_p,
                               struct merak_error *err)
{
    struct merak_hf_config config = gpt2_config(2, 1024, 16, 1024);
    struct merak_plan plan = {.tp = tp,
                              .pp = 1,
                              .dp = 1,
                              .micro_batch = 4,
                              .microbatches = 2,
                              .schedule = "1f1b"};

    assert_int_equal(merak_tp_plan_parse(told, &plan.tp_plan, err), MERAK_OK);
    return merak_plan_build(&plan, 512, merak_hf_describe, &config,
                            MERAK_PLAN_ALL, NULL, p_p, err);
}

/* Where a parameter is cut: its dim, or -1. */
static int dim_of(const struct merak_planned *p, const char *name)
{
    for (int v = 0; v < p->sharded->graph->n_values; v++) {
        const struct merak_value *value = p->sharded->graph->value[v];
        const struct merak_place *place = &p->sharded->layout[v].at[0];

        if (value->kind == MERAK_VALUE_PARAM && strcmp(value->name, name) == 0)
            return place->kind == MERAK_SPLIT ? place->dim : -1;
    }
    fail_msg("no %s", name);
    return -2;
}

/* By themselves c_fc is cut by outputs, dim 0, and c_proj by inputs, the table,
 * which the head reads, too, by its vocabulary. */
static const struct {
    const char *told;
    int tp, fc, proj, table;
} layout_rows[] = {
    {"*.mlp.c_fc.weight:colwise", 4, 0, 1, 0},
    {"*.mlp.c_fc.*:replicate", 4, -1, 1, 0},
    {"*.mlp.c_fc.weight:rowwise,*.mlp.c_proj.weight:colwise", 4, 1, 0, 0},
    {"*.mlp.c_fc.weight:1,wte.weight:1", 4, 1, 1, 1},
    /* the first pattern that a name matches */
    {"h.0.mlp.c_proj.weight:replicate,h.?.mlp.*.weight:0", 2, 0, -1, 0},
};

static void layouts_are_those_that_were_named(void **state)
{
    (void)state;
    for (size_t r = 0; r < COUNT(layout_rows); r++) {
        struct merak_planned *p = NULL;
        struct merak_error err = {.text = ""};

        if (build(layout_rows[r].told, layout_rows[r].tp, &p, &err) != MERAK_OK)
            fail_msg("%s: %s", layout_rows[r].told, err.text);
        assert_int_equal(dim_of(p, "h.0.mlp.c_fc.weight"), layout_rows[r].fc);
        assert_int_equal(dim_of(p, "h.0.mlp.c_proj.weight"),
                         layout_rows[r].proj);
        assert_int_equal(dim_of(p, "wte.weight"), layout_rows[r].table);
        merak_planned_destroy(p);
    }
}

static const struct {
    const char *told, *text;
    int tp;
} refused_rows[] = {
    {"wtf.weight:rowwise",
     "--tp-plan wtf.weight: no parameter has such a name; the nearest is "
     "wte.weight",
     2},
    {"h.0.ln_1.weight:colwise",
     "--tp-plan h.0.ln_1.weight:colwise: h.0.ln_1.weight, which layernorm.2 "
     "reads, has no dim to be cut so",
     2},
    {"*.c_fc.weight:2", "has no dim to be cut so", 2},
    {"*.c_fc.weight:rowwise,*.c_fc.bias:replicate",
     "reads h.0.mlp.c_fc.weight, to be cut rowwise, and h.0.mlp.c_fc.bias, "
     "replicate: give one style for both",
     2},
    {"h.1.attn.c_attn.weight:0",
     "--tp-plan h.1.attn.c_attn.weight:0: 2 tensor ranks do not divide the 3 "
     "of h.1.attn.c_attn.weight",
     2},
};

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    for (size_t r = 0; r < COUNT(refused_rows); r++) {
        struct merak_planned *p = NULL;
        struct merak_error err = {.text = ""};

        assert_int_equal(build(refused_rows[r].told, refused_rows[r].tp, &p,
                               &err),
                         MERAK_ERR_CONFIG);
        if (strstr(err.text, refused_rows[r].text) == NULL)
            fail_msg("%s: %s", refused_rows[r].told, err.text);
    }
}

/* Every plan that is found has what was named, whatever its kind. */
static void searches_keep_it(void **state)
{
    static const char told[] = "*.mlp.c_fc.*:replicate";
    struct merak_hf_config config = gpt2_config(4, 256, 4, 64);
    struct merak_error err = {.text = ""};
    struct merak_device device;
    struct merak_search_result *result = NULL;
    struct merak_search_input in = {.describe = merak_hf_describe,
                                    .arg = &config,
                                    .seq = 64,
                                    .dtype = MERAK_BF16,
                                    .global_batch = 8,
                                    .nodes = 1,
                                    .ranks_per_node = 4,
                                    .threads = 1,
                                    .unlike = true,
                                    .device = &device};

    (void)state;
    assert_int_equal(merak_device_find("a100", &device, &err), MERAK_OK);
    assert_int_equal(merak_tp_plan_parse(told, &in.pin.tp_plan, &err),
                     MERAK_OK);
    in.pin.given[MERAK_CHOICE_TP_PLAN] = true;
    assert_int_equal(merak_search(&in, &result, &err), MERAK_OK);
    for (int i = 0; i < result->n_choices; i++)
        assert_string_equal(result->choice[i].plan.tp_plan.text, told);
    merak_search_destroy(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_named_by_patterns),
        cmocka_unit_test(layouts_are_those_that_were_named),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(searches_keep_it),
    };

    return cmocka_run_group_tests_name("tp_plan", tests, NULL, NULL);
}
