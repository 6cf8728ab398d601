/* SPDX-License-Identifier: Apache-2.0 */
/* test_nearest.c - where a search finds no plan, the changes that it names do
 * give one */
#include "config.h"

#include "unit/search/changes.h"
#include "unit/all_rows.h"
#include "unit/search/gpt2_request.h"
#include "unit/near.h"

#include <string.h>

/* Every change that a refusal names is one with which there is a plan. */
static void check_changes(const char *refusal,
                          const struct merak_search_input *in)
{
    const char *change = changes_first(refusal);
    struct merak_search_input changed;

    if (change == NULL)
        fail_msg("\"%s\" names no change", refusal);
    while (change != NULL) {
        struct merak_search_result *result = NULL;
        struct merak_error err = {0};

        change = changes_make(change, in, &changed);
        changed.most_s = 1e9;
        if (merak_search(&changed, &result, &err) != MERAK_OK)
            fail_msg("\"%s\", and then: \"%s\"", refusal, err.text);
        merak_search_destroy(result);
    }
}

static void the_nearest_change_gives_a_plan(void **state)
{
#define SMALL 12, 768, 12, 50257, "h100" /* GPT-2 */
#define LARGE 16, 2048, 16, 50257, "a100"
    static const int late[] = {7, 14, 21}, later[] = {5, 10, 15};
    static const struct merak_drop nothing[4];
    static const struct {
        struct request request;
        const char *binds;
    } rows[] = {
        {{LARGE, 1, 4, 32, 2, {0}}, "no plan fits in 2 GiB"},
        {{LARGE,
          1,
          4,
          32,
          8,
          {.pp = 1, .dp = 4, .zero = 1, .given[MERAK_CHOICE_ZERO] = true}},
         "no plan fits in 8 GiB"},
        {{LARGE,
          1,
          4,
          32,
          6,
          {.tp = 1, .pp = 2, .zero = 0, .given[MERAK_CHOICE_ZERO] = true}},
         "no plan fits"},
        {{LARGE,
          1,
          4,
          32,
          8,
          {.tp = 4, .micro_batch = 32, .given[MERAK_CHOICE_RECOMPUTE] = true}},
         "no plan fits"},
        {{LARGE, 1, 4, 32, 7, {.pp = 4, .list = {.cut = late, .n_cut = 3}}},
         "or --cut 7-14-22"},
        {{LARGE, 1, 4, 32, 6, {.pp = 4, .list = {.cut = later, .n_cut = 3}}},
         "or --cut auto"},
        {{LARGE, 1, 4, 32, 4, {.list = {.drop = nothing, .n_drop = 4}}},
         "or --recompute auto"},
        {{SMALL, 1, 0, 7, 0, {.dp = 4}}, "7 sequences are not a multiple"},
        {{SMALL, 2, 0, 64, 0, {.tp = 16}}, "tp must divide the 8 of a node"},
        {{SMALL, 2, 0, 64, 0, {.tp = 4, .pp = 3}}, "must be the 16 ranks"},
        {{SMALL, 2, 0, 64, 0, {.tp = 4, .pp = 4, .dp = 4}},
         "must be the 16 ranks"},
        {{SMALL, 8, 0, 64, 0, {.tp = 8}}, "12 heads cannot be cut over tp=8"},
        {{SMALL, 64, 0, 3, 0, {0}}, "512 ranks suits this model"},
        {{SMALL, 8, 0, 64, 0, {.pp = 64}}, "cannot be cut for pp 64, only"},
        {{SMALL,
          1,
          0,
          64,
          0,
          {.pp = 4, .chunks = 9, .schedule = "interleaved"}},
         "pp 4 of 9 chunks"},
        {{SMALL, 1, 0, 64, 0, {.chunks = 1, .schedule = "interleaved"}},
         "it runs 2 or more"},
        {{SMALL, 1, 0, 64, 0, {.chunks = 2, .schedule = "gpipe"}}, "it runs 1"},
        {{SMALL, 1, 0, 64, 0, {.chunks = 3, .schedule = "zb-v"}}, "zb-v"},
        {{SMALL, 1, 0, 64, 0, {.schedule = "sliced:3"}}, "3 slices"},
        {{SMALL, 1, 0, 64, 0, {.micro_batch = 2, .schedule = "sliced:4"}},
         "sliced:4 runs micro-batches of 1"},
        {{SMALL, 1, 0, 64, 0, {.micro_batch = 48}},
         "not a multiple of dp 1 x micro-batch 48"},
        {{SMALL,
          1,
          0,
          64,
          0,
          {.micro_batch = 3,
           .sub_pipeline = true,
           .given[MERAK_CHOICE_SUB_PIPELINE] = true}},
         "3 is odd"},
        {{SMALL,
          1,
          0,
          64,
          0,
          {.tp = 4,
           .micro_batch = 3,
           .given[MERAK_CHOICE_TP_BATCH] = true,
           .tp_batch_percent = 100}},
         "micro-batch 3 cannot be split"},
        {{SMALL, 1, 0, 64, 0, {.micro_batch = 128}},
         "not a multiple of dp 1 x micro-batch 128"},
        /* Others stand for this one, which is for the night. */
        {{LARGE, 1, 4, 64, 2, {.schedule = "gpipe"}}, "no plan fits in 2 GiB"},
    };
    const size_t all = sizeof(rows) / sizeof(*rows);
    const size_t n = test_all_rows() ? all : all - 1;

    (void)state;
    for (size_t i = 0; i < n; i++) {
        struct merak_search_result *result = NULL;
        struct merak_error err = {0};
        struct merak_hf_config config;
        struct merak_device device;
        struct merak_search_input in;

        request_fill(&rows[i].request, &config, &device, &in);
        in.pin.given[MERAK_CHOICE_OFFLOAD] = true; /* none */
        assert_int_equal(merak_search(&in, &result, &err), MERAK_ERR_CONFIG);
        print_message("# %s\n", err.text);
        if (strstr(err.text, rows[i].binds) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.text, rows[i].binds);
        check_changes(err.text, &in);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearest_change_gives_a_plan),
    };

    return cmocka_run_group_tests_name("nearest", tests, NULL, NULL);
}
