/* SPDX-License-Identifier: Apache-2.0 */
/* test_explain.c - what a search says of its plans: what the others lost by,
 * and the bytes of each level of links */
#include "config.h"

#include "unit/search/gpt2_request.h"
#include "unit/near.h"

#include <math.h>
#include <string.h>

/* With sequences of so many tokens. */
static struct merak_search_result *
search_at(const struct request *r, size_t seq, struct merak_hf_config *config,
          struct merak_device *device, struct merak_search_input *in)
{
    struct merak_search_result *result = NULL;
    struct merak_error err = {0};

    request_fill(r, config, device, in);
    config->positions = in->seq = seq;
    if (merak_search(in, &result, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return result;
}

static struct merak_search_result *search(const struct request *r,
                                          struct merak_hf_config *config,
                                          struct merak_device *device,
                                          struct merak_search_input *in)
{
    return search_at(r, 512, config, device, in);
}

/* --- why the others lost -------------------------------------------------- */

/* The part of a step that a text begins with. */
static int named_part(const char *why)
{
    for (int i = 0; i < MERAK_PART_COUNT; i++) {
        const char *name = merak_search_part_name((enum merak_search_part)i);

        if (strncmp(why, name, strlen(name)) == 0)
            return i;
    }
    fail_msg("\"%s\" names no part of a step", why);
    return 0;
}

/* One that takes longer lost by the part that it takes most more of; one that
 * would be faster, by memory. */
static void check_loser(const struct merak_search_choice *best,
                        const struct merak_search_choice *lost, size_t limit)
{
    double sum = 0;
    int part;

    for (int i = 0; i < MERAK_PART_COUNT; i++)
        sum += lost->part_s[i];
    assert_true(fabs(sum - lost->step_s) < 1e-6 * lost->step_s);
    if (strncmp(lost->why, "memory: ", 8) == 0) {
        assert_true(lost->step_s < best->step_s);
        assert_true(lost->memory_bytes > limit && !lost->fits);
        assert_true(lost->memory_bytes <= 2 * limit);
        return;
    }
    assert_true(lost->step_s >= best->step_s);
    part = named_part(lost->why);
    for (int i = 0; i < MERAK_PART_COUNT; i++)
        assert_true(lost->part_s[i] - best->part_s[i] <=
                    lost->part_s[part] - best->part_s[part]);
    assert_non_null(strstr(lost->why, " more"));
}

static void runners_up_lost_by_the_part_that_is_named(void **state)
{
    static const struct request rows[] = {
        {12, 768, 12, 50257, "h100", 1, 0, 64, 0, {0}},
        {24, 2048, 16, 50257, "a100", 4, 0, 256, 20, {0}},
        {24, 2048, 16, 50257, "rtx3090", 2, 0, 96, 0, {0}},
        {44, 6144, 64, 50257, "h200", 4, 0, 128, 60, {0}},
        {16, 4096, 32, 256000, "a100", 2, 0, 64, 40, {0}},
        {13, 640, 10, 50257, "rtx3090", 3, 0, 48, 2, {0}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_hf_config config;
        struct merak_device device;
        struct merak_search_input in;
        struct merak_search_result *r = search(&rows[i], &config, &device, &in);

        assert_true(r->n_choices > 1);
        assert_true(r->least_s > 0 && r->bound_s >= r->least_s &&
                    r->bound_s <= r->choice[0].step_s);
        assert_in_range(r->busiest, 0, r->choice[0].plan.pp - 1);
        for (int k = 1; k < r->n_choices; k++) {
            check_loser(&r->choice[0], &r->choice[k], r->memory_limit);
            if (k > 1)
                assert_true(r->choice[k].step_s >= r->choice[k - 1].step_s);
        }
        merak_search_destroy(r);
    }
}

static int count_fitting(const struct merak_search_result *r)
{
    int n = 0;

    for (int k = 1; k < r->n_choices; k++)
        n += strncmp(r->choice[k].why, "memory: ", 8) != 0;
    return n;
}

/* On nodes of so many GPUs; 0: as many as they have. */
#define GPT2(nodes, ranks) 12, 768, 12, 50257, "h100", nodes, ranks, 64, 0

/* Of plans that want memory no more than two are named where others fit; where
 * there are no others of other degrees, others of the same are. */
static void runners_up_that_fit_are_named(void **state)
{
    static const struct {
        struct request request;
        size_t seq;
        int fit; /* at least */
    } rows[] = {
        {{36,
          4096,
          32,
          50257,
          "rtx3090",
          1,
          0,
          8,
          0,
          {.sub_pipeline = false, .given[MERAK_CHOICE_SUB_PIPELINE] = true}},
         8192,
         2}, /* no more there are */
        {{GPT2(1, 0), {.tp = 1, .pp = 4, .micro_batch = 4}}, 512, 5},
        {{GPT2(2, 4),
          {.tp = 2, .pp = 2, .micro_batch = 4, .schedule = "gpipe"}},
         512,
         3},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_hf_config config;
        struct merak_device device;
        struct merak_search_input in;
        struct merak_search_result *r =
            search_at(&rows[i].request, rows[i].seq, &config, &device, &in);

        if (count_fitting(r) < rows[i].fit)
            fail_msg("row %zu: %d of %d runners-up fit", i, count_fitting(r),
                     r->n_choices - 1);
        for (int k = 0; k < r->n_choices; k++) {
            for (int l = k + 1; l < r->n_choices; l++)
                assert_memory_not_equal(&r->choice[k].plan, &r->choice[l].plan,
                                        sizeof(r->choice[k].plan));
        }
        merak_search_destroy(r);
    }
}

/* What one stage spends is all work: there is no pipeline to wait for. */
static void one_stage_has_no_bubble(void **state)
{
#define TINY 12, 768, 12, 50257
    static const struct request rows[] = {
        {TINY, "cpu", 1, 0, 8, 0, {.pp = 1}},
        {TINY, "h100", 1, 8, 16, 0, {.tp = 1, .pp = 1, .micro_batch = 2}},
        {TINY,
         "h100",
         1,
         8,
         16,
         0,
         {.tp = 1,
          .pp = 1,
          .micro_batch = 1,
          .zero = 0,
          .given[MERAK_CHOICE_ZERO] = true}},
        {TINY, "h100", 1, 4, 16, 0, {.tp = 2, .pp = 1, .micro_batch = 2}},
        {TINY, "h100", 1, 4, 16, 0, {.tp = 4, .pp = 1, .micro_batch = 4}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_hf_config config;
        struct merak_device device;
        struct merak_search_input in;
        struct merak_search_result *r = search(&rows[i], &config, &device, &in);
        const struct merak_search_choice *c = &r->choice[0];

        if (c->part_s[MERAK_PART_BUBBLE] > 1e-6 * c->step_s)
            fail_msg("row %zu: a bubble of %g s in %g s", i,
                     c->part_s[MERAK_PART_BUBBLE], c->step_s);
        merak_search_destroy(r);
    }
}

/* --- bytes by level ------------------------------------------------------- */

/* What a rank sends, counted member by member. */
static void count_rank(const struct merak_program *prog, int ranks_per_node,
                       double *link, double *net)
{
    int home = prog->rank / ranks_per_node;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];
        const struct merak_group *g;
        double bytes = (double)in->bytes;

        if (in->kind == MERAK_INSTR_SEND)
            *(in->peer / ranks_per_node == home ? link : net) += bytes;
        if (in->kind != MERAK_INSTR_EXCHANGE)
            continue;
        g = &prog->group[in->group];
        for (int k = 0; k < g->n; k++) {
            if (g->rank[k] != prog->rank)
                *(g->rank[k] / ranks_per_node == home ? link : net) +=
                    bytes / (g->n - 1);
        }
    }
}

/* A small model of so many layers on nodes of so many ranks. */
#define SMALL(layers, nodes, ranks, batch) \
    layers, 64, 4, 300, "cpu", nodes, ranks, batch, 0

static void link_levels_sum_to_what_all_ranks_send(void **state)
{
    static const struct request rows[] = {
        /* replicas lie differently on nodes: 0 1 2 | 3, 4 5 | 6 7, .. */
        {SMALL(4, 3, 4, 16),
         {.tp = 1,
          .pp = 3,
          .dp = 4,
          .order_tp_pp_dp = true,
          .given[MERAK_CHOICE_ORDER] = true}},
        {SMALL(4, 3, 4, 16),
         {.tp = 1,
          .pp = 3,
          .dp = 4,
          .order_tp_pp_dp = false,
          .given[MERAK_CHOICE_ORDER] = true}},
        {SMALL(5, 3, 4, 24),
         {.tp = 2,
          .pp = 3,
          .dp = 2,
          .order_tp_pp_dp = true,
          .given[MERAK_CHOICE_ORDER] = true}},
        {SMALL(5, 3, 4, 24),
         {.tp = 4,
          .pp = 3,
          .sub_pipeline = true,
          .given[MERAK_CHOICE_SUB_PIPELINE] = true}},
        {SMALL(5, 5, 2, 30),
         {.tp = 1, .pp = 2, .zero = 0, .given[MERAK_CHOICE_ZERO] = true}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_hf_config config;
        struct merak_device device;
        struct merak_search_input in;
        struct merak_search_result *r = search(&rows[i], &config, &device, &in);
        const struct merak_plan *plan = &r->choice[0].plan;
        struct merak_planned *all = NULL;
        double link = 0, net = 0, link_said = 0, net_said = 0;

        assert_int_equal(merak_plan_build(plan, in.seq, in.describe, in.arg,
                                          MERAK_PLAN_ALL, NULL, &all, NULL),
                         MERAK_OK);
        for (int k = 0; k < all->n_programs; k++)
            count_rank(all->program[k], rows[i].ranks_per_node, &link, &net);
        for (int s = 0; s < plan->pp; s++) {
            link_said += r->stage[s].sent_bytes[0] * plan->tp * plan->dp;
            net_said += r->stage[s].sent_bytes[1] * plan->tp * plan->dp;
        }
        assert_near(&link_said, &link, 1, 1e-9, 0);
        assert_near(&net_said, &net, 1, 1e-9, 0);
        merak_planned_destroy(all);
        merak_search_destroy(r);
    }
}

/* --- memory by category --------------------------------------------------- */

static void memory_categories_sum_to_the_arena(void **state)
{
    static const struct request row = {12, 768, 12, 50257, "cpu",
                                       2,  4,   16, 0,     {.pp = 4, .tp = 2}};
    struct merak_hf_config config;
    struct merak_device device;
    struct merak_search_input in;
    struct merak_search_result *r = search(&row, &config, &device, &in);

    (void)state;
    for (int s = 0; s < 4; s++) {
        size_t sum = 0;

        for (int c = 0; c < MERAK_CAT_COUNT; c++)
            sum += r->stage[s].category_bytes[c];
        assert_int_equal(sum, r->stage[s].arena_bytes);
        assert_true(r->stage[s].category_bytes[MERAK_CAT_PARAM] > 0);
    }
    merak_search_destroy(r);
}

/* --- layers --------------------------------------------------------------- */

/* Stages of a pipeline have them in order, and one that is cut is in two; a
 * stage of two chunks has two runs of them. */
static void stages_name_the_layers_they_have(void **state)
{
    static const int half[] = {4, 15, 20}, chunks[] = {5, 9, 13};
    struct request row = {12, 768, 12, 50257, "cpu", 1, 4, 16, 0, {.pp = 4}};
    static const char *const want[2][4] = {{"0-1", "1-6", "7-9", "9-11"},
                                           {"0-1,4-5", "2-3,6-11"}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct merak_hf_config config;
        struct merak_device device;
        struct merak_search_input in;
        struct merak_search_result *r;

        row.pin.list.cut = i == 0 ? half : chunks;
        row.pin.list.n_cut = 3;
        if (i == 1)
            row.pin = (struct merak_choices){
                .pp = 2, .schedule = "interleaved", .list = row.pin.list};
        r = search(&row, &config, &device, &in);
        for (int s = 0; s < r->choice[0].plan.pp; s++)
            assert_string_equal(r->stage[s].layers, want[i][s]);
        merak_search_destroy(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runners_up_lost_by_the_part_that_is_named),
        cmocka_unit_test(runners_up_that_fit_are_named),
        cmocka_unit_test(one_stage_has_no_bubble),
        cmocka_unit_test(link_levels_sum_to_what_all_ranks_send),
        cmocka_unit_test(memory_categories_sum_to_the_arena),
        cmocka_unit_test(stages_name_the_layers_they_have),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
