/* SPDX-License-Identifier: Apache-2.0 */
/* test_refuse.c - models that are far too large: what every plan keeps from
 * step to step tells so before any is rated
 *
 * That the changes which a refusal names do help is test_nearest.c's.  And what
 * is no reason to refuse.
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "base/error.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/search/search_impl.h"

#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

enum { SEQ = 32 };

static struct merak_search_input input(struct merak_hf_config *config,
                                       const struct merak_device *device,
                                       int ranks, enum merak_dtype dtype)
{
    return (struct merak_search_input){.describe = merak_hf_describe,
                                       .arg = config,
                                       .seq = SEQ,
                                       .dtype = dtype,
                                       .global_batch = 64,
                                       .nodes = 1,
                                       .ranks_per_node = ranks,
                                       .threads = 1,
                                       .device = device};
}

/* --- the bound -------------------------------------------------------------
 */

struct row {
    int tp, pp, dp;
    int zero;
    bool tied;
    enum merak_dtype dtype;
    bool exact; /* no rank holds what another one does */
};

/* Bytes that ranks keep from step to step, as a mean. */
static double mean_state(const struct row *row, struct merak_hf_config *config)
{
    const struct merak_plan plan = {.tp = row->tp,
                                    .pp = row->pp,
                                    .dp = row->dp,
                                    .micro_batch = 1,
                                    .microbatches = 4,
                                    .zero = row->zero,
                                    .dtype = row->dtype,
                                    .schedule = "1f1b"};
    struct merak_planned *p = NULL;
    struct merak_error err = {0};
    double bytes = 0;

    if (merak_plan_build(&plan, SEQ, merak_hf_describe, config, MERAK_PLAN_ALL,
                         NULL, &p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    for (int r = 0; r < p->n_programs; r++)
        bytes += (double)p->program[r]->persistent_bytes;
    bytes /= p->n_programs;
    merak_planned_destroy(p);
    return bytes;
}

static double bound(const struct row *row, struct merak_hf_config *config,
                    const struct merak_device *device)
{
    struct merak_search_input in =
        input(config, device, row->tp * row->pp * row->dp, row->dtype);
    struct merak_search s;
    double state;

    in.pin.tp = row->tp;
    in.pin.pp = row->pp;
    in.pin.zero = row->zero;
    in.pin.given[MERAK_CHOICE_ZERO] = true;
    assert_int_equal(merak_search_init(&s, &in, NULL), MERAK_OK);
    assert_false(merak_search_is_hopeless(&s));
    state = s.state;
    s.most = state / MERAK_SEARCH_SLACK; /* by how much it must be above */
    assert_false(merak_search_is_hopeless(&s));
    s.most *= 1 - 1e-9;
    assert_true(merak_search_is_hopeless(&s));
    merak_search_fini(&s);
    return state;
}

/* Of sizes that need no padding it is what programs have, but where ranks hold
 * things alike: norms of tensor ranks, both ends' table. */
static void no_rank_can_have_less_than_the_mean(void **state)
{
    static const struct row rows[] = {
        {1, 1, 1, false, true, MERAK_F32, true},
        {1, 1, 1, false, true, MERAK_BF16, true},
        {1, 1, 4, false, true, MERAK_BF16, true},
        {1, 1, 4, true, true, MERAK_BF16, true},
        {1, 4, 1, true, false, MERAK_BF16, true},
        {1, 2, 2, true, false, MERAK_F32, true},
        {1, 2, 2, true, true, MERAK_F32, false},
        {2, 1, 2, true, true, MERAK_BF16, false},
        {4, 2, 1, false, false, MERAK_BF16, false},
    };
    struct merak_device device;

    (void)state;
    assert_int_equal(merak_device_find("h100", &device, NULL), MERAK_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct merak_hf_config config = gpt2_config(4, 256, 8, 512);
        double least, mean;

        config.positions = SEQ;
        config.tied = rows[i].tied;
        least = bound(&rows[i], &config, &device);
        mean = mean_state(&rows[i], &config);
        if (rows[i].exact ? mean != least : mean <= least || mean > 1.2 * least)
            fail_msg("row %zu: ranks keep %.0f bytes, the bound is %.0f", i,
                     mean, least);
    }
}

/* --- refusals --------------------------------------------------------------
 */

/* What the least of the rated plans takes. */
static double smallest(const struct merak_search *s)
{
    double least = s->big[0].bytes;

    assert_int_equal(s->n_cands, 0);
    for (int i = 1; i < s->n_bigs; i++)
        least = s->big[i].bytes < least ? s->big[i].bytes : least;
    return least;
}

/* The plainest plans are few, and all others hardly take less. */
static void plain_plans_tell_what_is_needed(void **state)
{
    struct merak_hf_config config = gpt2_config(16, 2048, 16, 50257);
    struct merak_device device;
    struct merak_search_input in;
    struct merak_search all, plain;

    (void)state;
    assert_int_equal(merak_device_find("a100", &device, NULL), MERAK_OK);
    in = input(&config, &device, 4, MERAK_BF16);
    in.memory_bytes = (size_t)3 << 30;
    assert_int_equal(merak_search_init(&all, &in, NULL), MERAK_OK);
    assert_int_equal(merak_search_init(&plain, &in, NULL), MERAK_OK);
    assert_true(merak_search_is_hopeless(&plain));
    merak_search_rate_all(&all);
    merak_search_rate_plain(&plain);
    assert_int_equal(all.rc, MERAK_OK);
    assert_int_equal(plain.rc, MERAK_OK);
    assert_ptr_equal(plain.in, &in);
    print_message("# %d plans rated, of all %d; %.4g GiB, of all %.4g\n",
                  plain.n_rated, all.n_rated, smallest(&plain) / 0x1p30,
                  smallest(&all) / 0x1p30);
    assert_true(plain.n_rated * 20 < all.n_rated);
    assert_true(smallest(&plain) <= 1.01 * smallest(&all));
    merak_search_fini(&plain);
    merak_search_fini(&all);
}

/* The text says what binds, and requests that have no plan whatever the memory
 * are refused as before. */
static void hopeless_requests_say_what_binds(void **state)
{
    static const struct {
        struct merak_choices pin;
        const char *says[3];
    } rows[] = {
        {{0},
         {"no plan fits in 1 GiB per rank: weights, gradients and optimizer "
          "alone need 3.921 GiB",
          "the smallest plan (tp ", "; nearest: "}},
        {{.tp = 1, .pp = 1, .zero = 0, .given[MERAK_CHOICE_ZERO] = true},
         {"alone need 15.69 GiB", "smallest plan (tp 1, pp 1, dp 4,"}},
        {{.dp = 3}, {"must be the 4 ranks"}},
        {{.pp = 4, .chunks = 99, .schedule = "interleaved"}, {"of 99 chunks"}},
    };
    struct merak_hf_config config = gpt2_config(16, 2048, 16, 50257);
    struct merak_device device;

    (void)state;
    assert_int_equal(merak_device_find("a100", &device, NULL), MERAK_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct merak_search_input in = input(&config, &device, 4, MERAK_BF16);
        struct merak_search_result *result = NULL;
        struct merak_error err = {0};

        in.memory_bytes = (size_t)1 << 30;
        in.pin = rows[i].pin;
        in.pin.given[MERAK_CHOICE_OFFLOAD] = true; /* none */
        assert_int_equal(merak_search(&in, &result, &err), MERAK_ERR_CONFIG);
        print_message("# %s\n", err.text);
        for (int k = 0; k < 3 && rows[i].says[k] != NULL; k++) {
            if (strstr(err.text, rows[i].says[k]) == NULL)
                fail_msg("\"%s\" does not say \"%s\"", err.text,
                         rows[i].says[k]);
        }
    }
}

/* What binds, by how much, and what would do is there without the text. */
static void refusals_have_constraint_stage_have_and_need(void **state)
{
    static const int places[] = {1, 3};
    static const struct {
        enum merak_constraint constraint;
        double have, need; /* -1: some */
        struct merak_choices pin;
        const char *fix; /* the first, or NULL */
    } rows[] = {
        {MERAK_BINDS_DEGREES, 4, 0, {.dp = 3}, "--dp 4"},
        {MERAK_BINDS_TENSOR, 0, 0, {.tp = 4}, "--tp 2"},
        {MERAK_BINDS_LISTS,
         0,
         0,
         {.pp = 2, .list = {.cut = places, .n_cut = 2}},
         "--cut auto"},
        {MERAK_BINDS_HALVES,
         3,
         0,
         {.micro_batch = 3,
          .sub_pipeline = true,
          .given[MERAK_CHOICE_SUB_PIPELINE] = true},
         "--micro-batch 4"},
        {MERAK_BINDS_SAMPLES,
         3,
         2,
         {.tp = 2,
          .micro_batch = 3,
          .tp_batch_percent = 100,
          .given[MERAK_CHOICE_TP_BATCH] = true},
         "--micro-batch 4"},
        {MERAK_BINDS_BATCH, 64, 48, {.micro_batch = 48}, "--micro-batch 64"},
        {MERAK_BINDS_PARTS,
         -1,
         36,
         {.pp = 4, .chunks = 9, .schedule = "interleaved"},
         NULL},
        {MERAK_BINDS_SCHEDULE,
         0,
         0,
         {.chunks = 2, .schedule = "gpipe"},
         "--schedule interleaved"},
    };
    struct merak_hf_config config = gpt2_config(4, 96, 6, 512);
    struct merak_device device;

    (void)state;
    assert_int_equal(merak_device_find("a100", &device, NULL), MERAK_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct merak_search_input in = input(&config, &device, 4, MERAK_F32);
        struct merak_search_result *result = NULL;
        struct merak_refusal r = {.n_fixes = -1};
        struct merak_error err = {0};

        in.pin = rows[i].pin;
        in.refusal = &r;
        assert_int_equal(merak_search(&in, &result, &err), MERAK_ERR_CONFIG);
        print_message("# %s\n", err.text);
        assert_int_equal(r.constraint, rows[i].constraint);
        assert_int_equal(r.stage, -1);
        assert_true(rows[i].have >= 0 ? r.have == rows[i].have : r.have > 0);
        assert_true(r.need == rows[i].need);
        assert_int_equal(strstr(err.text, "; nearest: ") != NULL,
                         r.n_fixes > 0);
        if (rows[i].fix != NULL)
            assert_string_equal(r.fix[0], rows[i].fix);
        for (int k = 0; k < r.n_fixes; k++)
            assert_non_null(strstr(err.text + err.fix, r.fix[k]));
        merak_error_drop_fix(&err);
        assert_null(strstr(err.text, "nearest"));
    }
}

static void a_lack_of_memory_is_a_number_of_bytes(void **state)
{
    struct merak_hf_config config = gpt2_config(16, 2048, 16, 50257);
    struct merak_device device;
    struct merak_search_input in = input(&config, &device, 4, MERAK_BF16);
    struct merak_search_result *result = NULL;
    struct merak_refusal r = {.n_fixes = -1};

    (void)state;
    assert_int_equal(merak_device_find("a100", &device, NULL), MERAK_OK);
    in.memory_bytes = (size_t)4 << 30;
    in.pin = (struct merak_choices){.pp = 4, .schedule = "1f1b"};
    in.pin.given[MERAK_CHOICE_OFFLOAD] = true; /* none */
    in.refusal = &r;
    assert_int_equal(merak_search(&in, &result, NULL), MERAK_ERR_CONFIG);
    assert_int_equal(r.constraint, MERAK_BINDS_MEMORY);
    assert_in_range(r.stage, 0, 3);
    assert_int_equal(r.plan.pp, 4);
    assert_true(r.have == 0x1p32);
    assert_true(r.need > r.have);
    assert_in_range(r.n_fixes, 1, MERAK_MAX_FIXES);
    in.memory_bytes = (size_t)r.need;
    assert_int_equal(merak_search(&in, &result, NULL), MERAK_OK);
    merak_search_destroy(result);
}

/* --- what fits ---------------------------------------------------------------
 */

/* Under GPipe all micro-batches are in flight: stages drop for all of them,
 * though programs are built of a few, and no more than they have to. */
static void stages_drop_for_all_micro_batches(void **state)
{
    static const struct {
        int tp, pp;
        double gib;
    } rows[] = {{4, 1, 6}, {4, 1, 8}, {2, 2, 6}, {2, 2, 8}};
    struct merak_hf_config config = gpt2_config(16, 2048, 16, 50257);
    struct merak_device device;

    (void)state;
    assert_int_equal(merak_device_find("a100", &device, NULL), MERAK_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct merak_search_input in = input(&config, &device, 4, MERAK_BF16);
        struct merak_search_result *result = NULL;
        struct merak_error err = {0};
        size_t most = 0;

        in.seq = 512;
        in.memory_bytes = (size_t)(rows[i].gib * 0x1p30);
        in.pin = (struct merak_choices){.tp = rows[i].tp,
                                        .pp = rows[i].pp,
                                        .micro_batch = 1,
                                        .schedule = "gpipe"};
        if (merak_search(&in, &result, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        for (int s = 0; s < rows[i].pp; s++) {
            const struct merak_search_stage *stage = &result->stage[s];

            assert_int_equal(stage->in_flight, 64);
            assert_true(stage->blocks_recomputed > 0);
            most = stage->arena_bytes > most ? stage->arena_bytes : most;
        }
        assert_in_range(most, in.memory_bytes / 10 * 9, in.memory_bytes);
        merak_search_destroy(result);
    }
}

/* Bytes for what is kept from step to step, and too few for activations. */
#define LITTLE ((size_t)200 << 20)

/* Bytes that a request of long sequences with this cp needs at least; 0: it has
 * a plan.  *text: why not. */
static double need_of(struct merak_search_input in, int cp, size_t bytes,
                      struct merak_error *why)
{
    struct merak_search_result *result = NULL;
    struct merak_refusal refusal = {.need = 0};

    in.pin.cp = cp;
    in.memory_bytes = bytes;
    in.refusal = &refusal;
    if (merak_search(&in, &result, why) == MERAK_OK) {
        merak_search_destroy(result);
        return 0;
    }
    assert_int_equal(refusal.constraint, MERAK_BINDS_MEMORY);
    return refusal.need;
}

/* Where sequences cut over more ranks fit, that is named; and a search of all
 * degrees says what the one that needs least needs. */
static void long_sequences_are_refused_by_what_cp_needs(void **state)
{
    struct merak_hf_config config = gpt2_config(2, 256, 4, 1000);
    struct merak_device device;
    struct merak_search_input in;
    struct merak_error why = {0};
    double whole, cut;

    (void)state;
    assert_int_equal(merak_device_find("h100", &device, NULL), MERAK_OK);
    in = input(&config, &device, 4, MERAK_BF16);
    in.seq = config.positions = 8 * MERAK_SEARCH_LONG;
    in.global_batch = 2;
    in.pin.tp = in.pin.pp = 1;
    whole = need_of(in, 2, LITTLE, &why);
    cut = need_of(in, 4, LITTLE, &why);
    assert_true(cut > 0 && cut < 0.8 * whole);
    assert_true(need_of(in, 2, (size_t)(1.2 * cut), &why) > 0);
    assert_non_null(strstr(why.text, "--cp 4"));
    assert_true(need_of(in, MERAK_OPTION_AUTO, LITTLE, &why) == cut);
    assert_null(strstr(why.text, "--cp "));
    assert_true(need_of(in, MERAK_OPTION_AUTO, (size_t)(1.2 * cut), &why) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_rank_can_have_less_than_the_mean),
        cmocka_unit_test(plain_plans_tell_what_is_needed),
        cmocka_unit_test(hopeless_requests_say_what_binds),
        cmocka_unit_test(refusals_have_constraint_stage_have_and_need),
        cmocka_unit_test(a_lack_of_memory_is_a_number_of_bytes),
        cmocka_unit_test(stages_drop_for_all_micro_batches),
        cmocka_unit_test(long_sequences_are_refused_by_what_cp_needs),
    };

    return cmocka_run_group_tests_name("refuse", tests, NULL, NULL);
}
