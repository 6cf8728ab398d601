/* SPDX-License-Identifier: Apache-2.0 */
/* test_improve.c - a candidate that is cut otherwise
 *
 * A GPT-2 on four stages, cut as badly as can be: what polishing makes of it by
 * the table, climbing by its programs, and cutting it again for less memory.
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "partitioner/search/cut.h"
#include "partitioner/search/improve.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#define LAYERS 14
#define STAGES 4

struct request {
    struct merak_hf_config config;
    struct merak_device device;
    struct merak_search_input in;
    struct merak_search s;
    struct merak_error err;
    struct merak_table *table;
    struct merak_candidate cand;
};

static void request_init(struct request *r)
{
    const struct merak_sharded *sharded = NULL;
    struct merak_plan *p = &r->cand.plan;

    *r = (struct request){.config = gpt2_config(LAYERS, 512, 8, 1024)};
    assert_int_equal(merak_device_find("h100", &r->device, NULL), MERAK_OK);
    r->in = (struct merak_search_input){.describe = merak_hf_describe,
                                        .arg = &r->config,
                                        .seq = 256,
                                        .dtype = MERAK_BF16,
                                        .global_batch = 8,
                                        .nodes = 1,
                                        .ranks_per_node = STAGES,
                                        .threads = 1,
                                        .device = &r->device};
    *p = (struct merak_plan){.tp = 1,
                             .pp = STAGES,
                             .dp = 1,
                             .micro_batch = 1,
                             .microbatches = 8,
                             .chunks = 1,
                             .recompute = MERAK_RECOMPUTE_NONE,
                             .dtype = MERAK_BF16,
                             .threads = 1};
    snprintf(p->schedule, sizeof(p->schedule), "1f1b");
    assert_int_equal(merak_search_init(&r->s, &r->in, &r->err), MERAK_OK);
    if (merak_graphs_shard(r->s.graphs, p, NULL, &sharded, &r->err) != MERAK_OK)
        fail_msg("%s", r->err.text);
    p->passes = sharded->graph->passes;
    assert_int_equal(merak_table_create(&r->in, &r->s.cost, sharded, NULL, 1, 1,
                                        1, &r->table, &r->err),
                     MERAK_OK);
    r->cand.table = r->table;
    assert_int_equal(
        merak_schedule_find(p->schedule, &r->cand.schedule, &r->err), MERAK_OK);
    assert_true(merak_search_room(&r->s, &r->cand));
    merak_search_balance(&r->s, &r->cand);
}

static void request_fini(struct request *r)
{
    assert_int_equal(r->s.rc, MERAK_OK);
    merak_table_destroy(r->table);
    merak_search_fini(&r->s);
}

/* Cut it so that all but the last stage have one segment, and rate that. */
static void cut_badly(struct request *r)
{
    merak_cuts_first(r->cand.bound, STAGES, r->table->n);
    for (int i = 1; i < STAGES; i++)
        assert_int_equal(r->cand.bound[i], i);
    assert_int_equal(merak_search_rate(&r->s.cost, &r->cand, DBL_MAX, &r->err),
                     MERAK_OK);
    r->cand.settled = r->cand.polished = false;
    r->cand.step_s = r->cand.arena = 0;
}

static double rate_of(struct request *r, const int *bound)
{
    struct merak_candidate other = r->cand;

    assert_true(merak_search_room(&r->s, &other));
    memcpy(other.bound, bound, (STAGES + 1) * sizeof(*bound));
    assert_int_equal(merak_search_rate(&r->s.cost, &other, DBL_MAX, &r->err),
                     MERAK_OK);
    return other.rated_s;
}

/* With the boundaries from first to last moved; DBL_MAX: a stage would be
 * empty. */
static double rate_shifted(struct request *r, int first, int last, int by)
{
    int bound[STAGES + 1];

    memcpy(bound, r->cand.bound, sizeof(bound));
    for (int i = first; i <= last; i++)
        bound[i] += by;
    if (bound[first] <= bound[first - 1] || bound[last] >= bound[last + 1])
        return DBL_MAX;
    return rate_of(r, bound);
}

/* No boundary of a polished cut, and no run of them, can be moved by one for a
 * better estimate; and it is far better than it was. */
static void polished_cuts_have_no_better_neighbour(void **state)
{
    struct request r;
    double before;

    (void)state;
    request_init(&r);
    cut_badly(&r);
    before = r.cand.rated_s;
    merak_search_limit_trial(&r.s);
    merak_search_polish(&r.s, &r.cand);
    assert_true(r.cand.polished);
    assert_true(r.cand.rated_s < 0.65 * before);
    for (int first = 1; first < STAGES; first++) {
        for (int last = first; last < STAGES; last++) {
            for (int by = -1; by <= 1; by += 2)
                assert_true(rate_shifted(&r, first, last, by) >=
                            r.cand.rated_s * (1 - 1e-9));
        }
    }
    request_fini(&r);
}

/* .. nor one that was climbed to, for a shorter step as simulated. */
static void climbed_cuts_have_no_faster_neighbour(void **state)
{
    struct request r;
    double before;

    (void)state;
    request_init(&r);
    cut_badly(&r);
    merak_candidate_try(&r.s, &r.cand);
    assert_true(r.cand.settled);
    before = r.cand.step_s;
    merak_candidate_climb(&r.s, &r.cand, 1e9);
    assert_true(r.cand.settled);
    assert_true(r.cand.step_s < 0.5 * before);
    for (int i = 1; i < STAGES; i++) {
        for (int by = -1; by <= 1; by += 2) {
            struct merak_candidate other = r.cand;

            assert_true(merak_search_room(&r.s, &other));
            memcpy(other.bound, r.cand.bound,
                   (STAGES + 1) * sizeof(*other.bound));
            other.bound[i] += by;
            if (other.bound[i] <= other.bound[i - 1] ||
                other.bound[i] >= other.bound[i + 1])
                continue;
            merak_candidate_try(&r.s, &other);
            assert_true(other.step_s >= r.cand.step_s * (1 - 1e-9));
        }
    }
    request_fini(&r);
}

/* The best cut without a limit, with a hundredth less memory than it takes: cut
 * again it fits, a little slower at most. */
static void what_is_a_little_too_big_is_cut_again(void **state)
{
    struct request r;
    struct merak_candidate whole;

    (void)state;
    request_init(&r);
    cut_badly(&r);
    merak_candidate_try_polished(&r.s, &r.cand);
    assert_true(r.cand.settled);
    whole = r.cand;
    r.cand.limit = 0.99 * whole.arena;
    r.cand.settled = false;
    merak_candidate_refit(&r.s, &r.cand);
    assert_true(r.cand.settled);
    assert_true(r.cand.arena <= r.cand.limit);
    assert_true(memcmp(r.cand.bound, whole.bound,
                       (STAGES + 1) * sizeof(*whole.bound)) != 0);
    assert_true(r.cand.step_s < 1.2 * whole.step_s);
    request_fini(&r);
}

/* What no cut fits in is left as it was. */
static void what_is_far_too_big_stays(void **state)
{
    struct request r;
    struct merak_candidate whole;

    (void)state;
    request_init(&r);
    cut_badly(&r);
    merak_candidate_try_polished(&r.s, &r.cand);
    whole = r.cand;
    r.cand.limit = 0.2 * whole.arena;
    r.cand.settled = false;
    merak_candidate_refit(&r.s, &r.cand);
    assert_false(r.cand.settled);
    assert_true(r.cand.arena > r.cand.limit);
    request_fini(&r);
}

/* In less memory a stage recomputes: it is one trial, which is forgotten where
 * it is slower, and the limit of the search stays. */
static void less_memory_is_tried_once(void **state)
{
    struct request r;
    struct merak_candidate before;
    double limit;
    int trials;

    (void)state;
    request_init(&r);
    cut_badly(&r);
    r.cand.plan.recompute = MERAK_RECOMPUTE_AUTO;
    merak_candidate_try_polished(&r.s, &r.cand);
    assert_true(r.cand.settled);
    before = r.cand;
    limit = r.cand.limit;
    trials = r.s.n_simulated;
    merak_candidate_lessen(&r.s, &r.cand);
    assert_int_equal(r.s.n_simulated, trials + 1);
    assert_true(r.cand.limit == limit);
    assert_true(r.cand.settled);
    assert_true(r.cand.step_s == before.step_s ||
                (r.cand.step_s < before.step_s && r.cand.arena < before.arena));
    request_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(polished_cuts_have_no_better_neighbour),
        cmocka_unit_test(climbed_cuts_have_no_faster_neighbour),
        cmocka_unit_test(what_is_a_little_too_big_is_cut_again),
        cmocka_unit_test(what_is_far_too_big_stays),
        cmocka_unit_test(less_memory_is_tried_once),
    };

    return cmocka_run_group_tests_name("improve", tests, NULL, NULL);
}
