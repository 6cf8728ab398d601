/* SPDX-License-Identifier: Apache-2.0 */
/* test_least.c - parts of a model that the planner gives up on for memory
 *
 * merak_part_least() says what a part takes at least, whatever it drops: held
 * against all that there is to drop, on random tables, and against the arenas
 * of programs.
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "base/rng.h"
#include "partitioner/search/cut.h"
#include "partitioner/search/finalist.h"
#include "partitioner/search/need.h"
#include "partitioner/search/search_impl.h"
#include "runtime/train/param_rules.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENTS 8
#define TABLES 2000
#define PLANS 120

static uint64_t draw_key, draw_at;

static int draw(int n)
{
    return (int)(merak_rng_mix(draw_key, draw_at++) % (uint64_t)n);
}

/* --- tables --------------------------------------------------------------- */

/* Any numbers: what runs again may need more than a backward keeps. */
static void draw_table(struct merak_table *t, struct merak_segment *segment,
                       struct merak_share *share)
{
    *t = (struct merak_table){
        .n = SEGMENTS, .width = 1, .segment = segment, .share = share};
    for (int i = 0; i < t->n; i++) {
        struct merak_segment *s = &segment[i];

        *s = (struct merak_segment){.f_s = 1,
                                    .b_s = 2,
                                    .begins_block = draw(2) == 0,
                                    .peak = draw(40),
                                    .first_share = t->n_shares,
                                    .hold = {.param_bytes = draw(5)}};
        for (int k = 0; k < MERAK_KEEPS; k++)
            s->kept[k] = draw(20);
        if (i == 0 || draw(3) > 0)
            continue;
        s->n_shares = 1;
        share[t->n_shares] =
            (struct merak_share){.segment = i, .prev = draw(i)};
        for (int k = 0; k < MERAK_KEEPS; k++)
            share[t->n_shares].kept[k] = draw(10);
        t->n_shares++;
    }
}

struct rated {
    struct merak_segment segment[SEGMENTS];
    struct merak_share share[SEGMENTS];
    struct merak_table table;
    struct merak_candidate cand;
    struct merak_rater rater;
};

static void rated_init(struct rated *r, int seed)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "eager", "early"};
    static const struct merak_cost_model cost = {
        .flops_per_s = 1, .bytes_per_s = 1, .links.level[0].bytes_per_s = 1};

    draw_key = merak_rng_key((uint64_t)seed, "least");
    draw_at = 0;
    draw_table(&r->table, r->segment, r->share);
    r->cand =
        (struct merak_candidate){.table = &r->table,
                                 .plan = {.tp = 1,
                                          .pp = 3,
                                          .dp = 1,
                                          .micro_batch = 1,
                                          .microbatches = 1 + draw(9),
                                          .recompute = MERAK_RECOMPUTE_AUTO}};
    snprintf(r->cand.plan.schedule, sizeof(r->cand.plan.schedule), "%s",
             schedules[draw(4)]);
    assert_int_equal(
        merak_schedule_find(r->cand.plan.schedule, &r->cand.schedule, NULL),
        MERAK_OK);
    assert_int_equal(merak_rater_init(&r->rater, &cost, &r->cand, 0, NULL),
                     MERAK_OK);
}

/* What a part takes that drops this, with all the rest of its stage's. */
static double bytes_with(struct rated *r, const int *bound, int part,
                         struct merak_drop drop)
{
    double bytes = 0;
    int stage;

    r->rater.fixed = true;
    for (int p = 0; p < 3; p++)
        r->rater.drop[p] = (struct merak_drop){.blocks = 0};
    r->rater.drop[part] = drop;
    for (int p = 0; p < 3; p++) {
        struct merak_range *range = &r->rater.range[p];

        merak_range_start(range, bound[p], &r->rater.marks);
        while (range->to < bound[p + 1])
            merak_range_add(&r->table, range);
        if (p != part) /* takes nothing: the stage asked for takes most */
            *range = (struct merak_range){.from = bound[p],
                                          .to = bound[p + 1],
                                          .mark = range->mark,
                                          .top = range->top};
    }
    bytes = merak_stages_need(&r->rater, &stage);
    return bytes;
}

static void check_part(struct rated *r, const int *bound, int part)
{
    struct merak_range range;
    double least;

    merak_range_start(&range, bound[part], &r->rater.marks);
    while (range.to < bound[part + 1])
        merak_range_add(&r->table, &range);
    least = merak_part_least(&r->rater, &range, part);
    for (int blocks = -1; blocks <= range.n_blocks; blocks++) {
        struct merak_drop drop = {
            .attention = blocks<0, .blocks = blocks> 0 ? blocks : 0};
        double bytes = bytes_with(r, bound, part, drop);

        if (least > bytes * (1 + 1e-12))
            fail_msg("%s: segments %d to %d take %g at least, and %g with %d "
                     "blocks again",
                     r->cand.plan.schedule, bound[part], bound[part + 1], least,
                     bytes, blocks);
    }
}

static void recomputation_never_needs_less_memory_than_the_bound(void **state)
{
    (void)state;
    for (int seed = 0; seed < TABLES; seed++) {
        struct rated r = {.table = {.n = 0}};
        int bound[4] = {0, 1 + draw(3), 0, SEGMENTS};

        rated_init(&r, seed);
        bound[2] = bound[1] + 1 + draw(4);
        for (int part = 0; part < 3; part++)
            check_part(&r, bound, part);
        merak_rater_fini(&r.rater);
    }
}

/* However it is cut, and with the least that stages can drop to: what lets a
 * search leave out candidates without cutting them. */
static void no_cut_needs_less_memory_than_the_mean(void **state)
{
    double worst = 0;

    (void)state;
    for (int seed = 0; seed < TABLES; seed++) {
        struct rated r = {.table = {.n = 0}};
        struct merak_follow follow;
        double least;
        int bound[4], stage;

        rated_init(&r, seed);
        assert_true(merak_follow_init(&follow, r.cand.schedule, &r.cand.plan));
        r.cand.follow = &follow;
        least = merak_stages_least(r.rater.cost, &r.cand);
        merak_cuts_first(bound, 3, SEGMENTS);
        do {
            double bytes = 0;

            merak_rate(&r.rater, bound, NULL, &bytes, &stage);
            worst = least / bytes > worst ? least / bytes : worst;
        } while (merak_cuts_next(bound, 3, SEGMENTS));
        merak_follow_fini(&follow);
        merak_rater_fini(&r.rater);
    }
    print_message("# %d tables: bounds of %.4f of a cut at most\n", TABLES,
                  worst);
    assert_true(worst > 0.5 && worst <= 1 + 1e-12);
}

/* A longer part never takes less: what may_fit() counts on. */
static void memory_bounds_grow_with_the_part(void **state)
{
    (void)state;
    for (int seed = 0; seed < TABLES; seed++) {
        struct rated r = {.table = {.n = 0}};

        rated_init(&r, seed);
        for (int from = SEGMENTS - 1; from > 0; from--) {
            struct merak_range longer, shorter;
            double before = 0;

            merak_range_start(&longer, from - 1, &r.rater.marks);
            merak_range_add(&r.table, &longer);
            for (int to = from + 1; to <= SEGMENTS; to++) {
                double least;

                merak_range_add(&r.table, &longer);
                least = merak_part_least(&r.rater, &longer, 1);
                assert_true(least >= before);
                before = least;
                merak_range_start(&shorter, from, &r.rater.marks);
                while (shorter.to < to)
                    merak_range_add(&r.table, &shorter);
                assert_true(merak_part_least(&r.rater, &shorter, 1) <= least);
                /* the marks were the shorter one's */
                merak_range_start(&longer, from - 1, &r.rater.marks);
                while (longer.to < to)
                    merak_range_add(&r.table, &longer);
            }
        }
        merak_rater_fini(&r.rater);
    }
}

/* --- programs ------------------------------------------------------------- */

struct instance {
    struct merak_hf_config config;
    struct merak_param_rules rules;
    struct merak_ruled_model ruled;
    struct merak_device device;
    struct merak_search_input in;
    struct merak_plan plan;
};

static void draw_instance(struct instance *it, int seed)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "eager", "early"};
    struct merak_plan *p = &it->plan;

    draw_key = merak_rng_key((uint64_t)seed, "least plans");
    draw_at = 0;
    *p = (struct merak_plan){.tp = 1 << draw(2),
                             .pp = 2 + draw(3),
                             .dp = 1 << draw(2),
                             .micro_batch = 1 + (size_t)draw(2),
                             .microbatches = 1 + draw(8),
                             .chunks = 1,
                             .zero = draw(2) == 0,
                             .recompute = MERAK_RECOMPUTE_AUTO,
                             .dtype = draw(2) == 0 ? MERAK_F32 : MERAK_BF16,
                             .threads = 1};
    snprintf(p->schedule, sizeof(p->schedule), "%s", schedules[draw(4)]);
    assert_int_equal(merak_device_find("h200", &it->device, NULL), MERAK_OK);
    it->config = gpt2_config((size_t)p->pp + (size_t)draw(5),
                             (size_t)64 << draw(4), 4, (size_t)64 << draw(7));
    it->config.tied = draw(2) == 0;
    it->rules.n = 0;
    if (draw(3) == 0)
        assert_int_equal(
            merak_param_rules_add(&it->rules, MERAK_FREEZE,
                                  draw(2) == 0 ? "h.0.*" : "*.weight", NULL),
            MERAK_OK);
    it->ruled = (struct merak_ruled_model){
        .describe = merak_hf_describe, .arg = &it->config, .rules = &it->rules};
    it->in = (struct merak_search_input){
        .describe = merak_ruled_describe,
        .arg = &it->ruled,
        .seq = (size_t)16 << draw(5),
        .dtype = p->dtype,
        .global_batch = (size_t)(p->microbatches * p->dp) * p->micro_batch,
        .nodes = 1,
        .ranks_per_node = p->tp * p->pp * p->dp,
        .threads = 1,
        .device = &it->device};
}

/* The most by which a stage's bound is above its arena, with any drop. */
static double above_arenas(struct merak_search *s, struct merak_candidate *cand)
{
    struct merak_rater rater;
    struct merak_built b;
    double worst = 0;

    assert_int_equal(merak_rater_init(&rater, &s->cost, cand, 0, NULL),
                     MERAK_OK);
    assert_int_equal(merak_built_init(&b, s, cand, NULL, NULL), MERAK_OK);
    for (int p = 0; p < cand->plan.pp; p++) {
        struct merak_range range;
        double least;

        merak_range_start(&range, cand->bound[p], &rater.marks);
        while (range.to < cand->bound[p + 1])
            merak_range_add(cand->table, &range);
        least = merak_part_least(&rater, &range, p);
        for (int blocks = -1; blocks <= b.stages->n_blocks[p]; blocks++) {
            b.stages->drop[p] = (struct merak_drop){
                .attention = blocks<0, .blocks = blocks> 0 ? blocks : 0};
            assert_int_equal(merak_built_stage(&b, p, NULL), MERAK_OK);
            worst = least / (double)b.program[p]->arena_bytes > worst
                        ? least / (double)b.program[p]->arena_bytes
                        : worst;
        }
    }
    merak_built_fini(&b);
    merak_rater_fini(&rater);
    return worst;
}

static void no_arena_is_smaller_than_the_bound(void **state)
{
    double worst = 0;

    (void)state;
    for (int seed = 0; seed < PLANS; seed++) {
        const struct merak_sharded *sharded = NULL;
        struct merak_table *table = NULL;
        struct merak_candidate cand = {.table = NULL};
        struct merak_search s;
        struct instance it;
        double above;

        draw_instance(&it, seed);
        cand.plan = it.plan;
        assert_int_equal(merak_search_init(&s, &it.in, NULL), MERAK_OK);
        assert_int_equal(
            merak_graphs_shard(s.graphs, &it.plan, NULL, &sharded, NULL),
            MERAK_OK);
        assert_int_equal(merak_table_create(&it.in, &s.cost, sharded, NULL, 1,
                                            1, 1, &table, NULL),
                         MERAK_OK);
        cand.table = table;
        assert_int_equal(
            merak_schedule_find(it.plan.schedule, &cand.schedule, NULL),
            MERAK_OK);
        assert_true(merak_search_room(&s, &cand));
        merak_cuts_first(cand.bound, cand.plan.pp, table->n);
        for (int p = cand.plan.pp - 1; p > 0; p--)
            cand.bound[p] = p + draw(cand.bound[p + 1] - p);
        above = above_arenas(&s, &cand);
        worst = above > worst ? above : worst;
        merak_table_destroy(table);
        merak_search_fini(&s);
    }
    print_message("# %d plans: bounds of %.4f of an arena at most\n", PLANS,
                  worst);
    assert_true(worst <= 1);
}

/* --- weight gradients that are put off ------------------------------------ */

/* All is recomputed, but what weight gradients read is then held until they
 * run: the table knows that zero-bubble schedules save next to nothing. */
static void deferred_weight_gradients_hold_what_they_read(void **state)
{
    static const struct {
        const char *schedule;
        int chunks;
    } rows[] = {{"zb-h1", 1}, {"zb-v", 2}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct merak_sharded *sharded = NULL;
        struct merak_table *table = NULL;
        struct merak_candidate cand = {.table = NULL};
        struct merak_search s;
        struct instance it;
        double least;

        draw_instance(&it, 0);
        it.rules.n = 0;
        it.config = gpt2_config(16, 256, 4, 64);
        it.in.seq = 512;
        it.in.dtype = MERAK_BF16;
        it.in.global_batch = 32;
        it.in.ranks_per_node = 4;
        it.plan = (struct merak_plan){.tp = 1,
                                      .pp = 4,
                                      .dp = 1,
                                      .micro_batch = 2,
                                      .microbatches = 16,
                                      .chunks = rows[i].chunks,
                                      .recompute = MERAK_RECOMPUTE_FULL,
                                      .dtype = MERAK_BF16,
                                      .threads = 1};
        snprintf(it.plan.schedule, sizeof(it.plan.schedule), "%s",
                 rows[i].schedule);
        cand.plan = it.plan;
        assert_int_equal(merak_search_init(&s, &it.in, NULL), MERAK_OK);
        assert_int_equal(
            merak_graphs_shard(s.graphs, &it.plan, NULL, &sharded, NULL),
            MERAK_OK);
        assert_int_equal(merak_table_create(&it.in, &s.cost, sharded, NULL, 1,
                                            1, 1, &table, NULL),
                         MERAK_OK);
        cand.table = table;
        assert_int_equal(
            merak_schedule_find(it.plan.schedule, &cand.schedule, NULL),
            MERAK_OK);
        assert_true(merak_search_room(&s, &cand));
        for (int p = 0; p <= merak_plan_parts(&cand.plan); p++)
            cand.bound[p] = p * table->n / merak_plan_parts(&cand.plan);
        assert_int_equal(merak_search_rate(&s.cost, &cand, s.most, NULL),
                         MERAK_OK);
        least = cand.bytes;
        assert_int_equal(merak_search_try(&s, &cand, NULL), MERAK_OK);
        print_message("# %s: by the table %.3f of the arena\n",
                      rows[i].schedule, least / cand.arena);
        assert_true(least > 0.85 * cand.arena && least < 1.25 * cand.arena);
        merak_table_destroy(table);
        merak_search_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputation_never_needs_less_memory_than_the_bound),
        cmocka_unit_test(memory_bounds_grow_with_the_part),
        cmocka_unit_test(no_cut_needs_less_memory_than_the_mean),
        cmocka_unit_test(no_arena_is_smaller_than_the_bound),
        cmocka_unit_test(deferred_weight_gradients_hold_what_they_read),
    };

    return cmocka_run_group_tests_name("least", tests, NULL, NULL);
}
