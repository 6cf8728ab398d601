/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - what a search says of its plans: what the others lost by, and
 * the bytes of each level of links
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "partitioner/search/search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct request {
    size_t layers, hidden, heads, vocab; /* of a GPT-2 */
    const char *device;
    int nodes, ranks_per_node; /* 0: the device's */
    size_t batch, memory_gib;
    struct merak_search_pins pin;
};

static struct merak_search_result *search(const struct request *r,
                                          struct merak_hf_config *config,
                                          struct merak_device *device,
                                          struct merak_search_input *in)
{
    struct merak_search_result *result = NULL;
    struct merak_error err = {0};

    *config = gpt2_config(r->layers, r->hidden, r->heads, r->vocab);
    config->positions = 512;
    assert_int_equal(merak_device_find(r->device, device, NULL), MERAK_OK);
    *in = (struct merak_search_input){
        .describe = merak_hf_describe,
        .arg = config,
        .seq = 512,
        .dtype = MERAK_BF16,
        .global_batch = r->batch,
        .nodes = r->nodes,
        .ranks_per_node =
            r->ranks_per_node > 0 ? r->ranks_per_node : device->ranks_per_node,
        .memory_bytes = r->memory_gib << 30,
        .threads = 1,
        .device = device,
        .pin = r->pin};
    if (merak_search(in, &result, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return result;
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
        return;
    }
    assert_true(lost->step_s >= best->step_s);
    part = named_part(lost->why);
    for (int i = 0; i < MERAK_PART_COUNT; i++)
        assert_true(lost->part_s[i] - best->part_s[i] <=
                    lost->part_s[part] - best->part_s[part]);
    assert_non_null(strstr(lost->why, " more"));
}

static void losers_lost_by_what_is_said(void **state)
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
        for (int k = 1; k < r->n_choices; k++) {
            check_loser(&r->choice[0], &r->choice[k], r->memory_limit);
            if (k > 1)
                assert_true(r->choice[k].step_s >= r->choice[k - 1].step_s);
        }
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

static void levels_have_what_all_ranks_send(void **state)
{
    static const struct request rows[] = {
        /* replicas lie differently on nodes: 0 1 2 | 3, 4 5 | 6 7, .. */
        {4,
         64,
         4,
         300,
         "cpu",
         3,
         4,
         16,
         0,
         {.tp = 1, .pp = 3, .dp = 4, .order_tp_pp_dp = MERAK_PIN_YES}},
        {4,
         64,
         4,
         300,
         "cpu",
         3,
         4,
         16,
         0,
         {.tp = 1, .pp = 3, .dp = 4, .order_tp_pp_dp = MERAK_PIN_NO}},
        {5,
         64,
         4,
         300,
         "cpu",
         3,
         4,
         24,
         0,
         {.tp = 2, .pp = 3, .dp = 2, .order_tp_pp_dp = MERAK_PIN_YES}},
        {5,
         64,
         4,
         300,
         "cpu",
         3,
         4,
         24,
         0,
         {.tp = 4, .pp = 3, .sub_pipeline = MERAK_PIN_YES}},
        {5,
         64,
         4,
         300,
         "cpu",
         5,
         2,
         30,
         0,
         {.tp = 1, .pp = 2, .zero1 = MERAK_PIN_NO}},
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
            link_said += r->stage[s].link_bytes * plan->tp * plan->dp;
            net_said += r->stage[s].net_bytes * plan->tp * plan->dp;
        }
        assert_near(&link_said, &link, 1, 1e-9, 0);
        assert_near(&net_said, &net, 1, 1e-9, 0);
        merak_planned_destroy(all);
        merak_search_destroy(r);
    }
}

/* --- memory by category --------------------------------------------------- */

static void categories_sum_to_the_arena(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losers_lost_by_what_is_said),
        cmocka_unit_test(levels_have_what_all_ranks_send),
        cmocka_unit_test(categories_sum_to_the_arena),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
