/* SPDX-License-Identifier: Apache-2.0 */
/* test_uniform.c - large models: the planner against the best uniform plan
 *
 * A uniform plan has equally many segments in all stages, 1F1B, one
 * micro-batch size, and recomputes nothing or everything: what is chosen by
 * hand.  All of them are rated, in both orders of ranks; the best of those that
 * fit are simulated.
 */
#include "config.h"

#include "unit/all_rows.h"
#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "partitioner/search/cut.h"
#include "partitioner/search/tried.h"
#include "partitioner/search/search_impl.h"

#include <float.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define TRIED 6
#define MOST_STAGES 64
#define MOST_SAMPLES 8

struct rivals {
    struct merak_search s;
    struct merak_candidate best[TRIED]; /* by rating, the best first */
    int n;
};

static void keep_best(struct rivals *r, const struct merak_candidate *cand)
{
    int at = r->n < TRIED ? r->n++ : TRIED;

    while (at > 0 && r->best[at - 1].rated_s > cand->rated_s) {
        if (at < TRIED)
            r->best[at] = r->best[at - 1];
        at--;
    }
    if (at < TRIED)
        r->best[at] = *cand;
}

static void rate_uniform(struct rivals *r, const struct merak_table *table,
                         int pp, enum merak_recompute recompute,
                         bool order_tp_pp_dp)
{
    const struct merak_search_input *in = r->s.in;
    int dp = r->s.tasks / table->plan.tp / pp;
    struct merak_candidate cand = {.table = table};

    cand.plan = (struct merak_plan){
        .tp = table->plan.tp,
        .pp = pp,
        .dp = dp,
        .order_tp_pp_dp = order_tp_pp_dp,
        .chunks = 1,
        .microbatches =
            (int)(in->global_batch / ((size_t)dp * table->plan.micro_batch)),
        .micro_batch = table->plan.micro_batch,
        .schedule = "1f1b",
        .recompute = recompute,
        .zero = 1,
        .sp = table->plan.sp,
        .dtype = in->dtype,
        .threads = 1};
    assert_int_equal(merak_schedule_find("1f1b", &cand.schedule, NULL),
                     MERAK_OK);
    assert_true(merak_search_room(&r->s, &cand));
    for (int p = 0; p <= pp; p++)
        cand.bound[p] = table->n * p / pp;
    assert_int_equal(merak_search_rate(&r->s.cost, &cand, r->s.most, NULL),
                     MERAK_OK);
    if (cand.bytes <= r->s.most)
        keep_best(r, &cand);
}

static void rate_table(struct rivals *r, int tp, size_t b)
{
    const struct merak_sharded *sharded = NULL;
    struct merak_table *table = NULL;
    struct merak_search *s = &r->s;

    if (merak_graphs_shard(s->graphs,
                           &(struct merak_plan){.tp = tp, .micro_batch = b},
                           NULL, &sharded, NULL) != MERAK_OK)
        return; /* heads that tp does not divide */
    assert_int_equal(merak_table_create(s->in, &s->cost, sharded, NULL, 1, 1, 1,
                                        &table, NULL),
                     MERAK_OK);
    table->plan =
        (struct merak_plan){.tp = tp, .sp = MERAK_SP_AUTO, .micro_batch = b};
    s->table = realloc(s->table, (size_t)(s->n_tables + 1) * sizeof(table));
    assert_non_null(s->table);
    s->table[s->n_tables++] = table;
    for (int pp = 1; pp <= s->tasks / tp && pp <= table->n; pp *= 2) {
        if (pp > MOST_STAGES ||
            s->in->global_batch % ((size_t)(s->tasks / tp / pp) * b) != 0)
            continue;
        for (int i = 0; i < 4; i++)
            rate_uniform(r, table, pp,
                         i % 2 == 0 ? MERAK_RECOMPUTE_NONE
                                    : MERAK_RECOMPUTE_FULL,
                         i / 2 == 1);
    }
}

/* An equal candidate comes out the same without being built again; one that
 * drops something else is built. */
static void build_once(struct merak_search *s, struct merak_candidate *c)
{
    size_t parts = (size_t)merak_plan_parts(&c->plan);
    struct merak_search_tally tally = {.rated = 0};
    struct merak_candidate again = *c;
    struct merak_error err;
    int64_t built;

    assert_true(merak_search_room(s, &again));
    memcpy(again.bound, c->bound, (parts + 1) * sizeof(*c->bound));
    memcpy(again.drop, c->drop, parts * sizeof(*c->drop));
    c->tally = again.tally = &tally;
    assert_int_equal(merak_search_try_once(s, c, &err), MERAK_OK);
    built = (int64_t)tally.instructions;
    assert_true(built > 0);
    assert_int_equal(merak_search_try_once(s, &again, &err), MERAK_OK);
    assert_int_equal((int64_t)tally.instructions, built);
    assert_true(again.step_s == c->step_s && again.arena == c->arena &&
                again.rated_s == c->rated_s && again.stage == c->stage);
    assert_memory_equal(again.drop, c->drop, parts * sizeof(*c->drop));
    again.drop[0].attention = !again.drop[0].attention;
    assert_int_equal(merak_search_try_once(s, &again, &err), MERAK_OK);
    assert_true((int64_t)tally.instructions > built);
    c->tally = NULL;
}

/* Seconds of the best, DBL_MAX if none fits. */
static double best_uniform(const struct merak_search_input *in)
{
    struct rivals r = {.n = 0};
    double best = DBL_MAX;

    assert_int_equal(merak_search_init(&r.s, in, NULL), MERAK_OK);
    for (int tp = 1; tp <= in->ranks_per_node; tp *= 2) {
        for (size_t b = 1; b <= MOST_SAMPLES; b *= 2)
            rate_table(&r, tp, b);
    }
    for (int i = 0; i < r.n; i++) {
        struct merak_candidate *c = &r.best[i];

        build_once(&r.s, c);
        if (c->arena <= r.s.most && c->step_s < best)
            best = c->step_s;
    }
    merak_search_fini(&r.s);
    return best;
}

struct row {
    size_t layers, hidden, batch;
    const char *device;
    int nodes, gib; /* 0: the device's */
    double net_gbs; /* of a rank, between nodes; 0: the device's */
};

static void is_not_worse(const struct row *row)
{
    struct merak_hf_config config =
        gpt2_config(row->layers, row->hidden, row->hidden / 128, 50304);
    struct merak_search_result *result = NULL;
    struct merak_device device;
    struct merak_error err = {0};
    struct merak_search_input in = {.describe = merak_hf_describe,
                                    .arg = &config,
                                    .seq = 2048,
                                    .dtype = MERAK_BF16,
                                    .global_batch = row->batch,
                                    .nodes = row->nodes,
                                    .ranks_per_node = 8,
                                    .memory_bytes = (size_t)row->gib << 30,
                                    .threads = 1,
                                    .device = &device};
    double uniform, step;

    assert_int_equal(merak_device_find(row->device, &device, &err), MERAK_OK);
    if (row->net_gbs > 0)
        device.links.level[1].bytes_per_s = row->net_gbs * 1e9;
    uniform = best_uniform(&in);
    if (merak_search(&in, &result, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    step = result->choice[0].step_s;
    print_message("# %zu x %zu on %d x 8 %s, %.3g GB/s: %.4g s, uniform %.4g "
                  "s, %.1f %% faster\n",
                  row->layers, row->hidden, row->nodes, row->device,
                  1e-9 * device.links.level[1].bytes_per_s, step, uniform,
                  100 * (uniform / step - 1));
    assert_true(step <= uniform * (1 + 1e-9));
    merak_search_destroy(result);
}

static void plans_are_never_worse_than_uniform_ones(void **state)
{
    static const struct row rows[] = {
        {16, 6144, 512, "a100", 4, 0, 0},    {16, 6144, 512, "a100", 4, 14, 0},
        {24, 1536, 64, "rtx3090", 2, 0, 0},  {48, 1024, 128, "h100", 1, 4, 0},
        {44, 6144, 1024, "h200", 8, 0, 0},   {26, 2048, 512, "a100", 8, 0, 3},
        {34, 4096, 256, "a100", 8, 0, 12.5}, {50, 5120, 512, "a100", 16, 0, 3},
        {66, 8192, 256, "a100", 32, 0, 3},   {98, 12288, 512, "a100", 32, 0, 6},
    };
    const int most = test_all_rows() ? INT_MAX : 16; /* nodes */

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (rows[i].nodes <= most)
            is_not_worse(&rows[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_never_worse_than_uniform_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
