/* SPDX-License-Identifier: Apache-2.0 */
/* test_means.c - with --offload auto each part's activations by the cheaper
 * means
 */
#include "config.h"

#include "unit/search/gpt2_request.h"

#include "io/plan_file.h"
#include "partitioner/plan/list_text.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A GPT-2 on four stages of an A100 each, with a host at the end of a link of
 * so many times the usual rate. */
struct asked {
    struct merak_hf_config config;
    struct merak_device device;
    struct merak_search_input in;
};

static void ask(struct asked *a, double gib, double link)
{
    const struct request request = {
        8, 2048, 16, 32000, "a100",
        1, 4,    16, 0,     {.tp = 1, .dp = 1, .schedule = "1f1b"}};

    request_fill(&request, &a->config, &a->device, &a->in);
    a->config.positions = 4096;
    a->in.seq = 4096;
    a->in.memory_bytes = (size_t)(gib * 0x1p30);
    a->device.host.bytes_per_s *= link;
}

static struct merak_search_result *search(struct asked *a,
                                          enum merak_offload offload)
{
    struct merak_search_result *result = NULL;
    struct merak_error err = {.text = ""};

    a->in.pin.offload = offload;
    a->in.pin.given[MERAK_CHOICE_OFFLOAD] = offload != MERAK_OFFLOAD_AUTO;
    if (merak_search(&a->in, &result, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return result;
}

static double step_with(struct asked *a, enum merak_offload offload)
{
    struct merak_search_result *r = search(a, offload);
    double step_s = r->choice[0].step_s;

    merak_search_destroy(r);
    return step_s;
}

/* Of all stages, the blocks that are recomputed and those that are copied. */
static void count(const struct merak_search_result *r, int *again, int *away)
{
    *again = *away = 0;
    for (int s = 0; s < r->choice[0].plan.pp; s++) {
        *again += r->stage[s].blocks_recomputed;
        *away += r->stage[s].blocks_away;
    }
}

static const struct {
    double gib;
    double link;
    bool recomputes, copies;
} rows[] = {
    {5, 100, false, true}, /* a link as fast as the device's memory, nearly */
    {4.6, 1, true, true},
    {5, 0.01, true, false}, /* what is copied is waited for */
    {8, 1, false, false},   /* nothing is dropped */
};

static void parts_take_the_cheaper_means(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct asked a;
        struct merak_search_result *r;
        int again, away;
        double none, acts;

        ask(&a, rows[i].gib, rows[i].link);
        r = search(&a, MERAK_OFFLOAD_AUTO);
        count(r, &again, &away);
        print_message("# row %zu: %d blocks recomputed, %d copied\n", i, again,
                      away);
        assert_int_equal(again > 0, rows[i].recomputes);
        assert_int_equal(away > 0, rows[i].copies);
        assert_int_equal(r->choice[0].plan.offload,
                         away > 0 ? MERAK_OFFLOAD_ACTS : MERAK_OFFLOAD_NONE);
        none = step_with(&a, MERAK_OFFLOAD_NONE);
        acts = step_with(&a, MERAK_OFFLOAD_ACTS);
        if (r->choice[0].step_s > (none < acts ? none : acts))
            fail_msg("row %zu: %g s, with none %g s, with acts %g s", i,
                     r->choice[0].step_s, none, acts);
        merak_search_destroy(r);
    }
}

/* A plan that does both is saved, read, and, as given, takes the same step. */
static void what_parts_do_is_saved_and_given(void **state)
{
    struct asked a;
    struct merak_search_result *r, *given;
    struct merak_plan_file file = {.model = "0123456789abcdef",
                                   .seq = 4096,
                                   .global_batch = 16,
                                   .device = "a100"};
    struct merak_plan_file *back = NULL;
    struct merak_error err = {.text = ""};
    char text[512], list[512], *json;
    struct merak_given_lists lists = {.n_drop = 0};
    enum merak_recompute recompute;
    int parts;

    (void)state;
    ask(&a, 4.6, 1);
    r = search(&a, MERAK_OFFLOAD_AUTO);
    parts = merak_plan_own_parts(&r->choice[0].plan);
    merak_drop_text(r->choice[0].plan.drop, parts, text, sizeof(text));
    assert_non_null(strchr(text, '/'));

    file.plan = r->choice[0].plan;
    json = json_dumps(merak_plan_file_object(&file), 0);
    if (merak_plan_file_decode(json, strlen(json), "x", &back, &err) !=
        MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(back->plan.offload, MERAK_OFFLOAD_ACTS);
    merak_drop_text(back->plan.drop, parts, list, sizeof(list));
    assert_string_equal(list, text);
    merak_plan_file_destroy(back);
    free(json);

    assert_int_equal(merak_given_set_recompute(text, &lists, &recompute, &err),
                     MERAK_OK);
    merak_choices_of(&r->choice[0].plan, &a.in.pin);
    a.in.pin.list.drop = lists.drop;
    given = search(&a, MERAK_OFFLOAD_ACTS);
    assert_true(fabs(given->choice[0].step_s / r->choice[0].step_s - 1) < 1e-9);
    merak_given_fini(&lists);
    merak_search_destroy(given);
    merak_search_destroy(r);
}

static const struct {
    const char *text;
    struct merak_drop drop;
    bool ok;
} texts[] = {
    {"8/3", {.blocks = 8, .again = 3}, true},
    {"8/8", {.blocks = 8, .again = 8}, true},
    {"8/0", {.blocks = 8}, true},
    {"a/a", {.attention = true, .again = 1}, true},
    {"8/9", {0}, false},
    {"8/", {0}, false},
    {"a/1", {0}, false},
    {"a/", {0}, false},
    {"/3", {0}, false},
};

static void shares_are_parsed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct merak_given_lists lists = {.n_drop = 0};
        enum merak_recompute recompute;
        struct merak_error err = {.text = ""};
        enum merak_status rc =
            merak_given_set_recompute(texts[i].text, &lists, &recompute, &err);

        if ((rc == MERAK_OK) != texts[i].ok)
            fail_msg("%s: \"%s\"", texts[i].text, err.text);
        if (rc == MERAK_OK)
            assert_memory_equal(lists.drop, &texts[i].drop,
                                sizeof(*lists.drop));
        merak_given_fini(&lists);
    }
}

/* Of any number of blocks as many as asked for, the last one among them. */
static void shares_are_spread(void **state)
{
    (void)state;
    for (int n = 1; n < 20; n++) {
        for (int again = 0; again <= n; again++) {
            const struct merak_drop drop = {.blocks = n, .again = again};
            int found = 0, gap = 0;

            for (int b = 0; b < n + 2; b++) {
                bool is = merak_drop_is_again(&drop, b);

                found += is;
                gap = is ? 0 : gap + 1;
                assert_true(again == 0 || b >= n ||
                            gap <= (n + again - 1) / again);
            }
            assert_int_equal(found, again);
            assert_true(again == 0 || merak_drop_is_again(&drop, n - 1));
        }
    }
}

/* A Llama of two layers, and its limit of memory in bytes. */
static void ask_small(struct asked *a, size_t memory_bytes)
{
    const struct request request = {
        2, 768, 6, 1000, "a100", 4, 2, 128, 0, {.tp = 2, .schedule = "eager"}};

    request_fill(&request, &a->config, &a->device, &a->in);
    a->config.family = MERAK_LLAMA;
    a->config.ffn = a->config.hidden * 7 / 2;
    a->config.rope.theta = 1e4f;
    a->config.attn_bias = a->config.mlp_bias = false;
    a->config.positions = a->in.seq = 2048;
    a->in.memory_bytes = memory_bytes;
}

/* Plans fit in this memory that keep all state on their ranks; one that takes a
 * little more is faster than they are with its state in the host's memory, and
 * is found though something fits.  With --offload none it is not. */
static void what_hardly_fits_may_move_its_state_away(void **state)
{
    struct merak_search_result *free_to = NULL, *kept;
    struct asked a;

    (void)state;
    ask_small(&a, 118000000);
    if (merak_search(&a.in, &free_to, NULL) != MERAK_OK)
        fail_msg("nothing fits");
    kept = search(&a, MERAK_OFFLOAD_NONE);
    print_message("# %g s, and %g with state in the host's memory\n",
                  kept->choice[0].step_s, free_to->choice[0].step_s);
    assert_int_equal(kept->choice[0].plan.offload, MERAK_OFFLOAD_NONE);
    assert_int_equal(free_to->choice[0].plan.offload, MERAK_OFFLOAD_STATE);
    assert_true(free_to->choice[0].step_s < 0.95 * kept->choice[0].step_s);
    assert_true(free_to->choice[0].memory_bytes <= a.in.memory_bytes);
    assert_true(free_to->bound_s <= free_to->choice[0].step_s);
    merak_search_destroy(kept);
    merak_search_destroy(free_to);
}

/* .. nor is it slower in more memory, where others are named as too big, or
 * what was too big fits if it recomputes. */
static void more_memory_moves_state_away_as_well(void **state)
{
    const double mb[] = {121, 122.5, 126, 140};
    double before = DBL_MAX;

    (void)state;
    for (size_t i = 0; i < sizeof(mb) / sizeof(*mb); i++) {
        struct merak_search_result *r = NULL;
        struct asked a;

        ask_small(&a, (size_t)(mb[i] * 1e6));
        if (merak_search(&a.in, &r, NULL) != MERAK_OK)
            fail_msg("nothing fits");
        if (r->choice[0].step_s > before)
            fail_msg("%g s in %g MB, %g in less", r->choice[0].step_s, mb[i],
                     before);
        before = r->choice[0].step_s;
        merak_search_destroy(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_take_the_cheaper_means),
        cmocka_unit_test(what_parts_do_is_saved_and_given),
        cmocka_unit_test(shares_are_parsed),
        cmocka_unit_test(shares_are_spread),
        cmocka_unit_test(what_hardly_fits_may_move_its_state_away),
        cmocka_unit_test(more_memory_moves_state_away_as_well),
    };

    return cmocka_run_group_tests_name("means", tests, NULL, NULL);
}
