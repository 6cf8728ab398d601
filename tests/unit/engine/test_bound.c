/* SPDX-License-Identifier: Apache-2.0 */
/* test_bound.c - what bounds a step, from the times of its ranks */
#include "config.h"

#include "io/trace/bound.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 4 };

/* Seconds of a step of 2 s. */
struct row {
    const char *name;
    int stages, tp;
    bool split, collectives;
    struct merak_bound_rank rank[MOST];
    const char *want; /* how the text begins */
    const char *fix;  /* and what else it has */
};

static const struct row rows[] = {
    {"the last stage has most of the work",
     4,
     1,
     true,
     false,
     {{0, 0, 0.36, 0, 0, 0, 1.64},
      {1, 1, 0.36, 0, 0, 0, 1.64},
      {2, 2, 0.36, 0, 0, 0, 1.64},
      {3, 3, 1.7, 0, 0, 0, 0.3}},
     "bound by unbalanced stages: stage 3 computes for 85 % of the step, the "
     "others for 18 %; ",
     "--schedule interlaced"},
    {"a stage in the middle has",
     4,
     1,
     false,
     false,
     {{0, 0, 0.4, 0, 0, 0, 0},
      {1, 1, 1.9, 0, 0, 0, 0},
      {2, 2, 0.4, 0, 0, 0, 0},
      {3, 3, 0.4, 0, 0, 0, 0}},
     "bound by unbalanced stages: stage 1 computes for 95 % of the step, the "
     "others for 20 %; another --pp",
     "auto"},
    {"waits for it show as waits, not as idle time",
     2,
     1,
     true,
     false,
     {{0, 0, 0.6, 0, 0, 1.4, 0}, {1, 1, 1.9, 0, 0, 0.1, 0}},
     "bound by unbalanced stages: stage 1 computes for 95 % of the step, the "
     "other for 30 %; ",
     "--pp"},
    {"a bubble",
     4,
     1,
     true,
     false,
     {{0, 0, 1.2, 0, 0, 0, 0.8},
      {1, 1, 1.2, 0, 0, 0, 0.8},
      {2, 2, 1.2, 0, 0, 0, 0.8},
      {3, 3, 1.3, 0, 0, 0, 0.7}},
     "bound by the pipeline's bubble: 35 % of the step of the mean rank, with "
     "4 stages and 8 micro-batches; ",
     "--micro-batch"},
    {"a slow rank",
     1,
     1,
     true,
     true,
     {{0, 0, 1.0, 0, 0, 0.9, 0.1},
      {1, 0, 1.0, 0, 0, 0.9, 0.1},
      {2, 0, 1.9, 0, 0, 0, 0.1},
      {3, 0, 1.0, 0, 0, 0.9, 0.1}},
     "bound by rank 2: it computes for 95 % of the step and its peers, which "
     "have the same work and wait for it, for 50 %; ",
     "merak doctor"},
    {"a slow rank, of which only computing is known",
     1,
     1,
     false,
     false,
     {{0, 0, 1.9, 0, 0, 0, 0}, {1, 0, 1.2, 0, 0, 0, 0}},
     "bound by rank 0: it computes for 95 % ",
     "--straggler-percent"},
    {"ranks that are late in turn",
     1,
     2,
     true,
     true,
     {{0, 0, 1.4, 0, 0, 0.5, 0.1}, {1, 0, 1.4, 0, 0, 0.5, 0.1}},
     "bound by waits: for 25 % of the step ",
     "a smaller --tp"},
    {"collectives of tensor ranks",
     1,
     2,
     true,
     true,
     {{0, 0, 1.0, 0, 0.8, 0.1, 0.1}, {1, 0, 1.0, 0, 0.8, 0.1, 0.1}},
     "bound by communication: for 40 % of the step nothing is computed "
     "meanwhile, mostly in collectives; ",
     "a smaller --tp"},
    {"sums over replicas",
     1,
     1,
     true,
     true,
     {{0, 0, 1.0, 0, 0.8, 0.1, 0.1}, {1, 0, 1.0, 0, 0.8, 0.1, 0.1}},
     "bound by communication: for 40 % of the step ",
     "--global-batch"},
    {"sends between stages",
     2,
     1,
     true,
     false,
     {{0, 0, 1.0, 0, 0.8, 0.1, 0.1}, {1, 1, 1.0, 0, 0.8, 0.1, 0.1}},
     "bound by communication: for 40 % of the step nothing is computed "
     "meanwhile, mostly in sends between stages; ",
     "a smaller --pp"},
    {"samples",
     1,
     1,
     true,
     false,
     {{0, 0, 1.9, 0.9, 0, 0, 0.1}},
     "bound by input: for 45 % of the step samples are read; ",
     "--data"},
    {"stalls of one rank",
     1,
     1,
     true,
     false,
     {{0, 0, 1.5, 0, 0, 0, 0.5}},
     "bound by stalls: for 25 % of the step ",
     "--threads"},
    {"kernels of one rank",
     1,
     1,
     true,
     false,
     {{0, 0, 1.9, 0.1, 0, 0, 0.1}},
     "bound by kernels: the rank computes for 95 % of the step; ",
     "bf16"},
    {"kernels of several",
     2,
     1,
     true,
     false,
     {{0, 0, 1.8, 0, 0, 0.1, 0.1}, {1, 1, 1.9, 0, 0, 0, 0.1}},
     "bound by kernels: the mean rank computes for 92 % of the step; ",
     "bf16"},
    {"equal ranks, of which only computing is known",
     2,
     1,
     false,
     false,
     {{0, 0, 1.0, 0, 0, 0, 0}, {1, 1, 1.0, 0, 0, 0, 0}},
     "bound by what is not computing: 50 % of the step ",
     "--trace DIR"},
};

static void it_is_named_with_what_changes_it(void **state)
{
    const struct row *row = *state;
    struct merak_bound_step s = {.rank = row->rank,
                                 .step_s = 2,
                                 .stages = row->stages,
                                 .tp = row->tp,
                                 .microbatches = 8,
                                 .split = row->split,
                                 .collectives = row->collectives};
    char text[MERAK_BOUND_BYTES];

    while (s.n < MOST && row->rank[s.n].compute_s > 0)
        s.n++;
    merak_bound_text(&s, text);
    if (strncmp(text, row->want, strlen(row->want)) != 0 ||
        strstr(text, row->fix) == NULL)
        fail_msg("%s", text);
    assert_true(strlen(text) + 1 < sizeof(text)); /* nothing is cut off */
}

/* What is typed for stages of unlike ranks is their list. */
static void of_unlike_stages_the_list_is_named(void **state)
{
    static const struct merak_bound_rank busy[] = {{0, 0, 0.6, 0, 0, 1.4, 0},
                                                   {1, 1, 1.9, 0, 0, 0.1, 0}},
                                         sends[] = {
                                             {0, 0, 1.0, 0, 0.8, 0.1, 0.1},
                                             {1, 1, 1.0, 0, 0.8, 0.1, 0.1}};
    struct merak_bound_step s = {.rank = busy,
                                 .n = 2,
                                 .step_s = 2,
                                 .stages = 2,
                                 .tp = 2,
                                 .unlike = true,
                                 .microbatches = 8,
                                 .split = true};
    char text[MERAK_BOUND_BYTES];

    (void)state;
    merak_bound_text(&s, text);
    assert_string_equal(text, "bound by unbalanced stages: stage 1 computes "
                              "for 95 % of the step, the other for 30 %; "
                              "--stages auto compares lists that give it more "
                              "ranks");
    s.rank = sends;
    merak_bound_text(&s, text);
    assert_non_null(strstr(text, "; a shorter list of --stages sends less"));
    s.collectives = true;
    merak_bound_text(&s, text);
    assert_non_null(strstr(text, "; a list of --stages with a smaller tp has"));
}

static void of_nothing_nothing_is_said(void **state)
{
    struct merak_bound_step s = {.n = 0, .step_s = 2, .stages = 1};
    struct merak_bound_rank rank = {.compute_s = 1};
    char text[MERAK_BOUND_BYTES];

    (void)state;
    merak_bound_text(&s, text);
    assert_string_equal(text, "");
    s = (struct merak_bound_step){.rank = &rank, .n = 1, .stages = 1};
    merak_bound_text(&s, text);
    assert_string_equal(text, "");
}

int main(void)
{
    struct CMUnitTest tests[sizeof(rows) / sizeof(rows[0]) + 2] = {
        cmocka_unit_test(of_nothing_nothing_is_said),
        cmocka_unit_test(of_unlike_stages_the_list_is_named)};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        tests[i + 2] =
            (struct CMUnitTest){rows[i].name, it_is_named_with_what_changes_it,
                                NULL, NULL, (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests_name("bound", tests, NULL, NULL);
}
