/* SPDX-License-Identifier: Apache-2.0 */
/* test_fixed.c - every choice of a plan can be fixed: cuts, recomputation by
 * part and the order of nodes, too
 *
 * What a free search finds, fixed choice by choice, is that plan again, to its
 * programs; and with a place of its cut moved to a neighbour it is no faster.
 */
#include "config.h"

#include "unit/dag_models.h"
#include "unit/gpt2_config.h"
#include "unit/instance.h"

#include <stdlib.h>
#include <string.h>

/* --- requests ------------------------------------------------------------- */

struct request {
    const char *name;
    int dag; /* one of these, or -1: a GPT-2 */
    size_t layers, hidden, seq, batch;
    int nodes, ranks;
    const char *device;
    size_t memory_mib; /* 0: the device's */
    struct merak_choices pin;
};

/* What a search is asked, with what that points to. */
struct asked {
    struct merak_hf_config config;
    struct merak_device device;
    struct merak_search_input in;
};

static void ask(const struct request *r, struct asked *a)
{
    a->config = gpt2_config(r->layers, r->hidden, 4, 512);
    assert_int_equal(merak_device_find(r->device, &a->device, NULL), MERAK_OK);
    a->in = (struct merak_search_input){
        .describe =
            r->dag >= 0 ? dag_models[r->dag].describe : merak_hf_describe,
        .arg = &a->config,
        .seq = r->seq,
        .dtype = MERAK_F32,
        .global_batch = r->batch,
        .nodes = r->nodes,
        .ranks_per_node = r->ranks,
        .memory_bytes = r->memory_mib << 20,
        .threads = 1,
        .device = &a->device,
        .pin = r->pin};
}

static struct merak_search_result *search(const struct asked *a)
{
    struct merak_search_result *result = NULL;
    struct merak_error err = {0};

    if (merak_search(&a->in, &result, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return result;
}

static uint64_t programs_of(const struct asked *a,
                            const struct merak_plan *plan)
{
    char model[MERAK_FINGERPRINT_TEXT];
    struct merak_sent sent;
    uint64_t id = 0;

    assert_int_equal(merak_plan_identify(plan, a->in.seq, a->in.describe,
                                         a->in.arg, NULL, &id, &sent, model,
                                         NULL),
                     MERAK_OK);
    return id;
}

/* --- a plan, fixed -------------------------------------------------------- */

static void assert_same_lists(const struct merak_plan *a,
                              const struct merak_plan *b)
{
    int parts = merak_plan_own_parts(a);

    assert_int_equal(merak_plan_own_parts(b), parts);
    for (int i = 0; i + 1 < parts; i++)
        assert_int_equal(a->cut[i], b->cut[i]);
    for (int i = 0; i < parts; i++) {
        assert_int_equal(a->drop[i].attention, b->drop[i].attention);
        assert_int_equal(a->drop[i].blocks, b->drop[i].blocks);
    }
}

/* Each place moved by one: no faster, with the recomputation that is given or,
 * of NULL, the least that fits.  Returns how many there are. */
static int try_neighbours(const struct asked *a,
                          const struct merak_search_choice *best,
                          const struct merak_drop *drop)
{
    int n = merak_plan_own_parts(&best->plan) - 1, tried = 0;
    int *cut = calloc((size_t)n + 1, sizeof(*cut));
    struct asked near = *a;

    merak_choices_of(&best->plan, &near.in.pin);
    near.in.pin.recompute = MERAK_RECOMPUTE_AUTO;
    near.in.pin.list = (struct merak_given_lists){
        .cut = cut, .n_cut = n, .drop = drop, .n_drop = n + 1};
    for (int i = 0; i < 2 * n; i++) {
        struct merak_search_result *result = NULL;

        memcpy(cut, best->plan.cut, (size_t)n * sizeof(*cut));
        cut[i / 2] += i % 2 == 0 ? 1 : -1;
        if (merak_search(&near.in, &result, NULL) != MERAK_OK)
            continue; /* there is no such place, or it does not fit */
        assert_memory_equal(result->choice[0].plan.cut, cut,
                            (size_t)n * sizeof(*cut));
        assert_true(result->choice[0].step_s >= best->step_s * (1 - 1e-9));
        merak_search_destroy(result);
        tried++;
    }
    free(cut);
    return tried;
}

/* Every choice of a plan fixed makes that plan. */
static void check_fixed(const struct asked *a,
                        const struct merak_search_choice *best)
{
    struct asked again = *a;
    struct merak_search_result *fixed;
    const struct merak_search_choice *same;

    merak_choices_of(&best->plan, &again.in.pin);
    fixed = search(&again);
    same = &fixed->choice[0];
    assert_int_equal(fixed->n_choices, 1);
    assert_same_lists(&best->plan, &same->plan);
    assert_true(programs_of(a, &best->plan) == programs_of(a, &same->plan));
    assert_near(&same->step_s, &best->step_s, 1, 1e-9, 0);
    assert_int_equal(same->memory_bytes, best->memory_bytes);
    merak_search_destroy(fixed);
}

static void a_plan_pinned_to_itself_is_found_again(void **state)
{
    static const struct request rows[] = {
        {"four stages", -1, 6, 64, 32, 8, 1, 4, "cpu", 0, {.pp = 4}},
        {"recomputed", -1, 8, 256, 128, 16, 1, 4, "cpu", 45, {.pp = 4}},
        {"replicas", -1, 6, 64, 32, 16, 2, 4, "rtx3090", 0, {.pp = 2}},
        {"anything", -1, 4, 128, 32, 8, 2, 2, "cpu", 0, {0}},
        {"chunks",
         -1,
         8,
         64,
         32,
         4,
         1,
         2,
         "cpu",
         0,
         {.pp = 2, .schedule = "interleaved"}},
        {"halves",
         -1,
         4,
         256,
         32,
         8,
         1,
         4,
         "cpu",
         0,
         {.tp = 2,
          .pp = 2,
          .sub_pipeline = true,
          .given[MERAK_CHOICE_SUB_PIPELINE] = true}},
        {"slices",
         -1,
         4,
         256,
         256,
         1,
         1,
         4,
         "cpu",
         0,
         {.pp = 4, .schedule = "sliced:4"}},
        {"a U", DAG_U_NET, 0, 64, 8, 8, 1, 4, "cpu", 0, {.pp = 4}},
        {"towers", DAG_TOWERS, 0, 64, 8, 8, 1, 2, "cpu", 0, {.pp = 2}},
    };
    int cuts = 0, drops = 0, orders = 0, tried = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_search_result *result;
        const struct merak_search_choice *best;
        struct asked a;

        ask(&rows[i], &a);
        result = search(&a);
        best = &result->choice[0];
        print_message("# %s: %s, pp %d, branches %d, %.4g s\n", rows[i].name,
                      best->plan.schedule, best->plan.pp, best->plan.branches,
                      best->step_s);
        check_fixed(&a, best);
        cuts += merak_plan_own_parts(&best->plan) > 1;
        drops +=
            merak_drops_any(best->plan.drop, merak_plan_own_parts(&best->plan));
        orders += best->plan.branches != MERAK_BRANCHES_DESCRIBED;
        tried += try_neighbours(&a, best, NULL);
        merak_search_destroy(result);
    }
    print_message("# %d with cuts, %d with recomputation, %d in other orders, "
                  "%d neighbours\n",
                  cuts, drops, orders, tried);
    assert_true(cuts >= 7 && drops >= 1 && orders >= 1 && tried >= 20);
}

static void random_plans_pinned_to_themselves_are_found_again(void **state)
{
    int found = 0;

    (void)state;
    for (int seed = 0; seed < 40; seed++) {
        struct merak_search_result *result = NULL;
        struct instance it;
        struct asked a;

        instance_draw(&it, seed);
        a.in = it.in;
        if (merak_search(&it.in, &result, NULL) != MERAK_OK)
            continue;
        check_fixed(&a, &result->choice[0]);
        merak_search_destroy(result);
        found++;
    }
    print_message("# %d plans\n", found);
    assert_true(found >= 30);
}

/* --- one list alone ------------------------------------------------------- */

/* The parts of all that are told are those of the cut, which the first has. */
static void a_cut_leaves_the_rest_free(void **state)
{
    static const int cut[] = {1, 6, 8};
    struct request r = {"", -1, 6, 64, 32, 16, 2, 4, "cpu", 0, {0}};
    struct merak_search_result *result;
    struct asked a;

    (void)state;
    r.pin.list = (struct merak_given_lists){.cut = cut, .n_cut = 3};
    ask(&r, &a);
    result = search(&a);
    assert_true(result->n_choices > 1);
    for (int i = 0; i < result->n_choices; i++)
        assert_int_equal(merak_plan_own_parts(&result->choice[i].plan), 4);
    assert_memory_equal(result->choice[0].plan.cut, cut, sizeof(cut));
    for (int i = 1; i < result->n_choices; i++)
        assert_true(result->choice[i].why[0] != '\0');
    merak_search_destroy(result);
}

/* Cuts are found whose parts have as many blocks as are to be dropped, and the
 * best of them. */
static void recomputation_leaves_cuts_free(void **state)
{
    static const struct merak_drop drop[] = {
        {.blocks = 5}, {.attention = true}, {.blocks = 0}, {.blocks = 3}};
    struct request r = {"", -1, 6, 64, 32, 8, 1, 4, "cpu", 0, {.pp = 4}};
    struct merak_search_result *result;
    struct asked a;

    (void)state;
    r.pin.list = (struct merak_given_lists){.drop = drop, .n_drop = 4};
    ask(&r, &a);
    result = search(&a);
    for (int p = 0; p < 4; p++) {
        assert_int_equal(result->choice[0].plan.drop[p].attention,
                         drop[p].attention);
        assert_int_equal(result->choice[0].plan.drop[p].blocks, drop[p].blocks);
        assert_true(result->stage[p].n_blocks >= drop[p].blocks);
        assert_int_equal(result->stage[p].blocks_recomputed, drop[p].blocks);
    }
    assert_true(try_neighbours(&a, &result->choice[0], drop) > 0);
    merak_search_destroy(result);
}

/* --- what cannot be ------------------------------------------------------- */

#define CUT(...)                                                         \
    {                                                                    \
        .cut = (const int[]){__VA_ARGS__},                               \
        .n_cut = (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)) \
    }

static void contradictions_are_named(void **state)
{
    static const struct merak_drop again[4] = {{.blocks = 4}};
    static const struct merak_drop all[4] = {
        {.blocks = 9}, {.blocks = 9}, {.blocks = 9}, {.blocks = 9}};
    static const struct merak_drop last[4] = {[3] = {.attention = true}};
    const struct {
        struct merak_choices pin;
        const char *says;
    } rows[] = {
        {{.pp = 4, .list = CUT(1, 3)},
         "cut 1-3 makes 3 parts, and pp 4 has 4: give 3 cut points"},
        {{.tp = 2, .dp = 2, .list = CUT(3)},
         "cut 3 makes 2 parts, and pp 1 has 1: give no cut, or pp x"},
        {{.pp = 2, .chunks = 2, .list = CUT(3)},
         "cut 3 makes 2 parts, and pp 2 of 2 chunks has 4"},
        {{.list = CUT(1, 3)},
         "--cut makes 3 parts, but no pp that divides 4 ranks gives pp x"},
        {{.pp = 2, .schedule = "gpipe", .list = CUT(1, 3, 5)},
         "schedule gpipe: 2 model chunks per rank given"},
        {{.list = CUT(3, 1, 5)}, "cut 3-1-5: 1 comes after 3"},
        {{.list = CUT(3, 3, 5)}, "cut 3-3-5: 3 comes after 3"},
        {{.pp = 2, .list = CUT(99)},
         "cut 99: there is no cut point 99; expected 0 to 16"},
        {{.pp = 4,
          .list = {.cut = (const int[]){1, 3, 5},
                   .n_cut = 3,
                   .drop = again,
                   .n_drop = 4}},
         "recompute 4-0-0-0: part 0 has "},
        {{.list = {.cut = (const int[]){1, 3, 5},
                   .n_cut = 3,
                   .drop = again,
                   .n_drop = 3}},
         "recompute 4-0-0 lists 3: give recompute a list of 4"},
        {{.pp = 2, .chunks = 1, .list = {.drop = again, .n_drop = 4}},
         "recompute 4-0-0-0 lists 4 parts, and pp 2 has 2: give a list of 2"},
        {{.pp = 4, .list = {.drop = all, .n_drop = 4}},
         "recompute 9-9-9-9: the model's "},
        {{.pp = 4, .schedule = "scp", .list = {.drop = last, .n_drop = 4}},
         "schedule scp recomputes nothing on stage 3"},
    };
    const struct request r = {"", -1, 6, 64, 32, 8, 1, 4, "cpu", 0, {0}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_search_result *result = NULL;
        struct merak_error err = {0};
        struct asked a;

        ask(&r, &a);
        a.in.pin = rows[i].pin;
        assert_int_equal(merak_search(&a.in, &result, &err), MERAK_ERR_CONFIG);
        print_message("# %s\n", err.text);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.text, rows[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_pinned_to_itself_is_found_again),
        cmocka_unit_test(random_plans_pinned_to_themselves_are_found_again),
        cmocka_unit_test(a_cut_leaves_the_rest_free),
        cmocka_unit_test(recomputation_leaves_cuts_free),
        cmocka_unit_test(contradictions_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
