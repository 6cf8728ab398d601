/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_time.c - how long schedules take, and that they end */
#include "config.h"

#include "unit/near.h"
#include "unit/program/schedule_rows.h"

#include "partitioner/schedule/time.h"

#include <string.h>

#define MAX_PARTS 64

/* All parts alike. */
struct times {
    double f, b, w, r, hop;
    int send_lag;
};

struct flat_cost {
    double f[MAX_PARTS], b[MAX_PARTS], w[MAX_PARTS], r[MAX_PARTS];
    struct merak_schedule_cost cost;
};

static void flat_cost_init(struct flat_cost *flat, const struct times *t)
{
    for (int i = 0; i < MAX_PARTS; i++) {
        flat->f[i] = t->f;
        flat->b[i] = t->b;
        flat->w[i] = t->w;
        flat->r[i] = t->r;
    }
    flat->cost = (struct merak_schedule_cost){.f = flat->f,
                                              .b = flat->b,
                                              .w = flat->w,
                                              .r = flat->r,
                                              .hop = t->hop,
                                              .send_lag = t->send_lag};
}

static struct merak_timetable *create(const char *name,
                                      const struct merak_schedule_args *args)
{
    const struct merak_schedule *sched;
    struct merak_timetable *table = NULL;
    struct merak_error err;

    if (merak_schedule_find(name, &sched, &err) != MERAK_OK ||
        merak_timetable_create(sched, args, &table, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return table;
}

static void run(struct merak_timetable *table, const struct times *times)
{
    struct merak_error err;
    struct flat_cost flat;

    flat_cost_init(&flat, times);
    if (merak_timetable_run(table, &flat.cost, &err) != MERAK_OK)
        fail_msg("%s, p %d, m %d: %s", table->sched->name, table->args.stages,
                 table->args.microbatches, err.text);
}

static double step_time(const char *name,
                        const struct merak_schedule_args *args,
                        const struct times *times)
{
    struct merak_timetable *table = create(name, args);
    double step;

    run(table, times);
    step = table->step;
    merak_timetable_destroy(table);
    return step;
}

static void expect_step(const char *name,
                        const struct merak_schedule_args *args,
                        const struct times *t, double want)
{
    double got = step_time(name, args, t);

    /* Sums of a few thousand durations in another order. */
    if (fabs(got - want) > 1e-9 * want)
        fail_msg("%s p %d m %d v %d f %g b %g w %g r %g: step %.12g, not %.12g",
                 name, args->stages, args->microbatches, args->chunks, t->f,
                 t->b, t->w, t->r, got, want);
}

/* --- Merak's own ---------------------------------------------------------- */

/* A stage's time line in units: digits are forwards, letters backwards, r
 * recomputation. */
static void draw(const struct merak_timetable *table, int stage, double r,
                 char *buf, size_t size)
{
    const struct merak_timetable_row *row = &table->row[stage];

    memset(buf, '.', size);
    buf[(size_t)table->step] = '\0';
    for (int i = 0; i < row->n; i++) {
        const struct merak_action *a = &row->action[i];
        size_t begin = (size_t)row->start[i], end = (size_t)row->end[i];

        if (a->kind == MERAK_ACT_F)
            memset(buf + begin, '0' + a->microbatch, end - begin);
        if (a->kind == MERAK_ACT_B) {
            memset(buf + begin, 'a' + a->microbatch, end - begin);
            if (end - begin > 2) /* with its recomputation in front */
                memset(buf + begin, 'r', (size_t)r);
        }
        if (a->kind == MERAK_ACT_R)
            memset(buf + begin, 'r', end - begin);
    }
}

struct line_row {
    const char *name;
    const char *stage[4];
};

/* f 1, b 2, r 1. */
static const struct line_row line_rows[] = {
    {"1f1b",
     {"0123.........raa4rbb5rcc6rdd7ree.rff.rgg.rhh",
      ".012......raa3rbb4rcc5rdd6ree7rff.rgg.rhh...",
      "..01...raa2rbb3rcc4rdd5ree6rff7rgg.rhh......",
      "...0raa1rbb2rcc3rdd4ree5rff6rgg7rhh........."}},
    {"early",
     {"0123.........raa4rbb5rcc6rdd7reerffrggrhh",
      ".012......raa3rbb4rcc5rdd6ree7rffrggrhh..",
      "..01...raa2rbb3rcc4rdd5ree6rff7rggrhh....",
      "...0raa1rbb2rcc3rdd4ree5rff6rgg7rhh......"}},
    {"last",
     {"0123.......raa4rbb5rcc6rdd7reerffrggrhh",
      ".012....raa3rbb4rcc5rdd6ree7rffrggrhh..",
      "..01r.aa2rbb3rcc4rdd5ree6rff7rggrhh....",
      "...0aa1bb2cc.3dd.4ee.5ff.6gg.7hh......."}},
    {"scp",
     {"0123......raa4rbb5rcc6rdd7reerffrggrhh",
      ".012r...aa3rbb4rcc5rdd6ree7rffrggrhh..",
      "..012raarbb3rcc4rdd5ree6rff7rggrhh....",
      "...0aa1bb2cc3dd.4ee.5ff.6gg.7hh......."}},
};

static void time_lines_are_the_known_ones(void **state)
{
    static const struct times unit = {.f = 1, .b = 2, .r = 1};
    struct merak_schedule_args args = {
        .stages = 4, .microbatches = 8, .chunks = 1};
    char line[64];

    (void)state;
    for (size_t i = 0; i < sizeof(line_rows) / sizeof(line_rows[0]); i++) {
        struct merak_timetable *table = create(line_rows[i].name, &args);

        run(table, &unit);
        for (int s = 0; s < 4; s++) {
            draw(table, s, unit.r, line, sizeof(line));
            assert_string_equal(line, line_rows[i].stage[s]);
        }
        merak_timetable_destroy(table);
    }
}

static double min(double a, double b)
{
    return a < b ? a : b;
}

static void expect_closed_forms(const struct merak_schedule_args *args,
                                const struct times *t)
{
    double m = args->microbatches, p = args->stages;
    double all = t->f + t->b + t->r, early = m * all + (p - 1) * (t->f + t->b);

    expect_step("1f1b", args, t, (m + p - 1) * all);
    expect_step("gpipe", args, t, (m + p - 1) * all);
    expect_step("early", args, t, early);
    expect_step("last", args, t, early - 2 * t->r);
    if (m >= p)
        expect_step(
            "scp", args, t,
            early - t->r -
                (p > 2 ? t->r + min(t->r, t->b - t->f) : min(2 * t->r, t->b)));
}

static void steps_take_the_closed_forms(void **state)
{
    static const struct times rows[] = {
        {.f = 1, .b = 2, .r = 1},       {.f = 1, .b = 2, .r = 0},
        {.f = 1, .b = 1, .r = 1},       {.f = 1, .b = 1.5, .r = 0.25},
        {.f = 0.7, .b = 2.1, .r = 0.7}, {.f = 1.3, .b = 2.9, .r = 0.41},
        {.f = 3.25, .b = 4.5, .r = 2},  {.f = 2, .b = 2.3, .r = 1.9},
    };

    (void)state;
    for (int p = 2; p <= 16; p++) {
        for (int m = 4; m <= 64; m += m < 20 ? 1 : 4) {
            struct merak_schedule_args args = {
                .stages = p, .microbatches = m, .chunks = 1};

            for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                expect_closed_forms(&args, &rows[i]);
        }
    }
}

/* Moves by themselves at p = 4, m = 8, f 1, b 2: what an ablation shows. */
static void each_move_has_its_gain(void **state)
{
    static const struct times unit = {.f = 1, .b = 2, .r = 1};
    static const struct times keep = {.f = 1, .b = 2};
    struct merak_schedule_args args = {
        .stages = 4, .microbatches = 8, .chunks = 1};

    (void)state;
    expect_step("1f1b", &args, &unit, 44);
    expect_step("early", &args, &unit, 41);
    expect_step("last", &args, &unit, 39);
    expect_step("scp", &args, &unit, 38);
    expect_step("1f1b", &args, &keep, 33);
    expect_step("scp:drop-last", &args, &unit, 42);
    expect_step("scp:third", &args, &unit, 44);
    expect_step("scp:drop-last,third", &args, &unit, 42);
    expect_step("scp:early,third", &args, &unit, 41);
}

/* --- chunks, slices, passes ----------------------------------------------- */

static void interleaving_divides_the_bubble(void **state)
{
    (void)state;
    for (int v = 2; v <= 4; v++) {
        static const struct times whole = {.f = 1.3, .b = 2.9};
        const struct times times = {.f = whole.f / v, .b = whole.b / v};

        for (int p = 2; p <= 16; p++) {
            for (int m = p; m <= 64; m += p) {
                struct merak_schedule_args args = {
                    .stages = p, .microbatches = m, .chunks = v};
                double idle = (p - 1) * (whole.f + whole.b) / v;

                expect_step("interleaved", &args, &times,
                            m * (whole.f + whole.b) + idle);
            }
        }
    }
}

static void zb_h1_fills_gaps_with_weight_gradients(void **state)
{
    static const struct times rows[] = {
        {.f = 1, .b = 1, .w = 1},       {.f = 2, .b = 2, .w = 1},
        {.f = 1.1, .b = 1.7, .w = 0.9}, {.f = 3, .b = 1.2, .w = 1.2},
        {.f = 0.5, .b = 2, .w = 0.25},
    };

    (void)state;
    for (int p = 2; p <= 16; p++) {
        for (int m = p; m <= 64; m += m < 18 ? 1 : 23) {
            struct merak_schedule_args args = {
                .stages = p, .microbatches = m, .chunks = 1};

            for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                const struct times *t = &rows[i];

                expect_step("zb-h1", &args, t,
                            m * (t->f + t->b + t->w) +
                                (p - 1) * (t->f + t->b - t->w));
            }
        }
    }
}

/* Rank r starts after r forwards and then never waits. */
static void zb_v_has_no_gap(void **state)
{
    static const struct times times = {.f = 0.75, .b = 0.75, .w = 0.75};

    (void)state;
    for (int p = 2; p <= 16; p++) {
        for (int m = 2 * p - 1; m <= 64; m += 3) {
            struct merak_schedule_args args = {
                .stages = p, .microbatches = m, .chunks = 2};
            struct merak_timetable *table = create("zb-v", &args);

            run(table, &times);
            for (int r = 0; r < p; r++) {
                const struct merak_timetable_row *row = &table->row[r];
                double span = row->end[row->n - 1] - row->start[0];

                assert_near(&span, &row->busy, 1, 1e-12, 0);
            }
            merak_timetable_destroy(table);
        }
    }
}

static void slices_and_passes_take_the_closed_forms(void **state)
{
    static const struct times t = {.f = 1, .b = 2};
    struct merak_schedule_args args = {.chunks = 1};

    (void)state;
    for (args.stages = 2; args.stages <= 16; args.stages++) {
        int p = args.stages;

        for (int m = p; m <= 64; m += 5) {
            args.microbatches = m;
            for (args.slices = 1; args.slices <= 8; args.slices++)
                expect_step("sliced", &args, &t,
                            3 * (m + (p - 1) / (double)args.slices));
            args.slices = 0;
            for (args.passes = 2; args.passes <= 4; args.passes++)
                expect_step("3f1b", &args, &t,
                            m * (args.passes + 2) + 3 * (p - 1));
            args.passes = 0;
        }
    }
    args = (struct merak_schedule_args){
        .stages = 16, .microbatches = 2, .chunks = 1, .slices = 8};
    expect_step("sliced", &args, &t, 11.625);
}

static void interlaced_blocks_cost_themselves(void **state)
{
    double f[18], b[18];
    struct merak_schedule_cost cost = {.f = f, .b = b};
    struct merak_error err;

    (void)state;
    for (int i = 0; i < 2 * 15 * 9; i++) {
        int p = 2 + i / 2 % 15, m = p + 7 * (i / 30), blocks = 1 + i % 2;
        struct merak_schedule_args args = {
            .stages = p, .microbatches = m, .chunks = 1 + blocks};
        struct merak_timetable *table = create("interlaced", &args);
        double want = 2.0 * (m + p - 1) + m * blocks * (0.5 + 0.75);

        for (int k = 0; k < p + blocks; k++) {
            f[k] = k < p ? 1 : 0.5;
            b[k] = k < p ? 1 : 0.75;
        }
        assert_int_equal(merak_timetable_run(table, &cost, &err), MERAK_OK);
        assert_near(&table->step, &want, 1, 1e-12, 0);
        merak_timetable_destroy(table);
    }
}

/* --- hop costs and warm-ups ----------------------------------------------- */

struct warmup_row {
    int m;
    double f[4], hop;
    int warmup[4];
    double step;
};

/* Backward twice the forward; by exact simulation, elsewhere. */
static const struct warmup_row warmup_rows[] = {
    {8, {1, 1, 1, 1}, 0, {4, 3, 2, 1}, 33},
    {8, {1, 1, 1, 1}, 0.15, {4, 3, 2, 1}, 35.4},
    {8, {1, 1, 1, 1}, 0.15, {7, 5, 3, 1}, 33.9},
    {8, {1, 1, 1, 1}, 0.6, {4, 3, 2, 1}, 42.6},
    {8, {1, 1, 1, 1}, 0.6, {7, 5, 3, 1}, 36.6},
    {16, {1, 1, 1, 1}, 0.6, {4, 3, 2, 1}, 73.8},
    {16, {1, 1, 1, 1}, 0.6, {7, 5, 3, 1}, 60.6},
    {8, {1, 1.5, 1, 0.5}, 0, {3, 2, 1, 1}, 43.5},
    {8, {1, 1.5, 1, 0.5}, 0, {4, 3, 2, 1}, 40.5},
    {8, {1, 1.5, 1, 0.5}, 0, {7, 5, 3, 1}, 39.0},
    {8, {1, 1.5, 1, 0.5}, 0, {8, 8, 8, 8}, 43.5},
    {16, {1.5, 1, 1, 0.5}, 0.3, {4, 3, 2, 1}, 78.0},
    {16, {1.5, 1, 1, 0.5}, 0.3, {7, 5, 3, 1}, 73.2},
};

static void warmups_take_the_known_times(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(warmup_rows) / sizeof(warmup_rows[0]); i++) {
        const struct warmup_row *row = &warmup_rows[i];
        struct merak_schedule_args args = {
            .stages = 4, .microbatches = row->m, .chunks = 1};
        struct merak_timetable *table = create("1f1b", &args);
        double b[4];
        struct merak_schedule_cost cost = {
            .f = row->f, .b = b, .hop = row->hop};
        struct merak_error err;

        for (int s = 0; s < 4; s++) {
            b[s] = 2 * row->f[s];
            merak_schedule_warmup_fill(&args, row->warmup[s],
                                       table->row[s].action);
        }
        assert_int_equal(merak_timetable_run(table, &cost, &err), MERAK_OK);
        assert_near(&table->step, &row->step, 1, 1e-12, 0);
        merak_timetable_destroy(table);
    }
}

/* 1F1B pays 2 hops per round trip and round; eager's period is the work. */
static void eager_1f1b_hides_transfers(void **state)
{
    static const struct times times = {.f = 1, .b = 2, .hop = 0.6};
    struct merak_schedule_args args = {.stages = 4, .chunks = 1};

    (void)state;
    for (int m = 16; m <= 64; m += 8) {
        args.microbatches = m;
        expect_step("eager", &args, &times, 3.0 * (m + 3) + 2 * 3 * times.hop);
    }
}

/* What a micro-batch takes in the steady state. */
static double period_of(const char *name, double hop)
{
    const struct times times = {.f = 1, .b = 2, .hop = hop};
    struct merak_schedule_args args = {
        .stages = 4, .chunks = 1, .warmups = merak_schedule_warmups(name)};
    double step[2];

    for (int i = 0; i < 2; i++) {
        args.microbatches = 64 * (i + 1);
        step[i] = step_time(name, &args, &times);
    }
    return (step[1] - step[0]) / 64;
}

/* With a hop of 0.8 of a stage's time 1F1B takes 2.2 of it, at a quarter of
 * that 1.3, and the least warm-up 1 either way. */
static void the_least_warmups_hide_hops(void **state)
{
    static const struct {
        const char *name;
        double hop, period; /* of a stage's time */
    } rows[] = {
        {"1f1b", 0.8, 2.2},   {"eager:4", 0.8, 2.2},
        {"eager:10", 0.8, 1}, {"eager:10-7-4-1", 0.8, 1},
        {"1f1b", 0.2, 1.3},   {"eager:7", 0.2, 1},
        {"eager", 0.2, 1},    {"eager:7-5-3-1", 0.2, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        double got = period_of(rows[i].name, 3 * rows[i].hop);

        if (fabs(got - 3 * rows[i].period) > 1e-9)
            fail_msg("%s, hop %g: %g, not %g", rows[i].name, rows[i].hop,
                     got / 3, rows[i].period);
    }
}

/* --- every schedule ends -------------------------------------------------- */

static const struct times any = {
    .f = 1, .b = 1.25, .w = 0.75, .r = 0.5, .hop = 0.125};

static enum merak_status try_run(struct merak_timetable *table, int send_lag,
                                 struct merak_error *err)
{
    struct times times = any;
    struct flat_cost flat;

    times.send_lag = send_lag;
    flat_cost_init(&flat, &times);
    return merak_timetable_run(table, &flat.cost, err);
}

/* With sends that are kept as long as need be, and not with less. */
static void ends_with_lag(const struct schedule_row *row,
                          struct merak_timetable *table)
{
    struct merak_error err;
    double eager = table->step;
    int lag = 0;

    assert_int_equal(merak_timetable_send_lag(table, &lag, &err), MERAK_OK);
    assert_in_range(lag, 1, row->send_lag);
    assert_int_equal(try_run(table, lag, &err), MERAK_OK);
    assert_true(table->step >= eager - 1e-9);
    if (lag > 1)
        assert_int_equal(try_run(table, lag - 1, &err), MERAK_ERR_CONFIG);
}

static void ends(const struct schedule_row *row,
                 const struct merak_schedule_args *args)
{
    struct merak_timetable *table = create(row->name, args);
    double eager;

    run(table, &any);
    eager = table->step;
    if (args->microbatches % 8 == 7 || args->microbatches % 16 == 0)
        ends_with_lag(row, table);
    merak_timetable_forward(table);
    run(table, &any);
    assert_true(table->step < eager || table->sched->forward_only);
    merak_timetable_destroy(table);
}

static void all_sizes_end(const struct schedule_row *row)
{
    const struct merak_schedule *sched = NULL;
    struct merak_error err;
    int n = 0;

    if (merak_schedule_find(row->name, &sched, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    for (int p = 2; p <= 16; p++) {
        for (int m = 4; m <= 64; m++) {
            struct merak_schedule_args args = schedule_row_args(row, p, m);

            if (merak_schedule_check(sched, &args, &err) == MERAK_OK) {
                ends(row, &args);
                n++;
            }
        }
    }
    assert_true(n >= 120);
}

static void no_schedule_deadlocks(void **state)
{
    (void)state;
    for_each_schedule(all_sizes_end);
}

static void sends_kept_too_short_deadlock(void **state)
{
    struct merak_schedule_args args = {
        .stages = 2, .microbatches = 4, .chunks = 2};
    struct merak_timetable *table = create("zb-v", &args);
    struct merak_error err;

    (void)state;
    assert_int_equal(try_run(table, 3, &err), MERAK_OK);
    assert_int_equal(try_run(table, 2, &err), MERAK_ERR_CONFIG);
    assert_string_equal(
        err.text, "deadlock: stage 0 before B0 chunk 1 waits for stage 1 to "
                  "take F2 chunk 0; stage 1 before B0 chunk 1 waits for B0 "
                  "chunk 1 of stage 0");
    merak_timetable_destroy(table);
}

static void rising_warmups_deadlock(void **state)
{
    struct merak_schedule_args args = {
        .stages = 3, .microbatches = 8, .chunks = 1};
    static const int warmup[3] = {2, 3, 1};
    struct merak_timetable *table = create("1f1b", &args);
    struct merak_error err;

    (void)state;
    for (int s = 0; s < 3; s++)
        merak_schedule_warmup_fill(&args, warmup[s], table->row[s].action);
    assert_int_equal(try_run(table, 0, &err), MERAK_ERR_CONFIG);
    assert_string_equal(
        err.text, "deadlock: stage 0 before B0 waits for B0 of "
                  "stage 1; stage 1 before F2 waits for F2 of stage 0; stage "
                  "2 before F2 waits for F2 of stage 1");
    merak_timetable_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_lines_are_the_known_ones),
        cmocka_unit_test(steps_take_the_closed_forms),
        cmocka_unit_test(each_move_has_its_gain),
        cmocka_unit_test(interleaving_divides_the_bubble),
        cmocka_unit_test(zb_h1_fills_gaps_with_weight_gradients),
        cmocka_unit_test(zb_v_has_no_gap),
        cmocka_unit_test(slices_and_passes_take_the_closed_forms),
        cmocka_unit_test(interlaced_blocks_cost_themselves),
        cmocka_unit_test(warmups_take_the_known_times),
        cmocka_unit_test(eager_1f1b_hides_transfers),
        cmocka_unit_test(the_least_warmups_hide_hops),
        cmocka_unit_test(no_schedule_deadlocks),
        cmocka_unit_test(sends_kept_too_short_deadlock),
        cmocka_unit_test(rising_warmups_deadlock),
    };

    return cmocka_run_group_tests_name("schedule_time", tests, NULL, NULL);
}
