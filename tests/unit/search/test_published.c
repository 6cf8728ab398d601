/* SPDX-License-Identifier: Apache-2.0 */
/* test_published.c - what other planners and schedules have published, held
 * against ours: pipelines
 *
 * doc/published.md lists every claim and where it is tested.  Times are those
 * of the lists of actions (schedule/time.h); the formulas are written out
 * here, from the sources named there.
 */
#include "config.h"

#include "unit/near.h"

#include "base/rng.h"
#include "partitioner/schedule/time.h"

#include <stdlib.h>
#include <string.h>

#define MOST 8 /* stages */

struct pipeline {
    int p, m, w[MOST];
    double f[MOST], g[MOST], r[MOST], hop;
};

static struct merak_timetable *table_of(const char *name,
                                        const struct pipeline *x)
{
    struct merak_schedule_args args = {
        .stages = x->p, .microbatches = x->m, .chunks = 1};
    const struct merak_schedule *sched;
    struct merak_timetable *table = NULL;
    struct merak_error err;

    if (merak_schedule_find(name, &sched, &err) != MERAK_OK ||
        merak_timetable_create(sched, &args, &table, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return table;
}

static double run(struct merak_timetable *table, const struct pipeline *x)
{
    const struct merak_schedule_cost cost = {
        .f = x->f, .b = x->g, .r = x->r, .hop = x->hop};
    struct merak_error err;
    double step;

    if (merak_timetable_run(table, &cost, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    step = table->step;
    merak_timetable_destroy(table);
    return step;
}

/* A schedule of the registry. */
static double step_of(const char *name, const struct pipeline *x)
{
    return run(table_of(name, x), x);
}

/* Stage q holds up to w[q] micro-batches. */
static double step_with_warmups(const struct pipeline *x)
{
    struct merak_timetable *table = table_of("1f1b", x);

    for (int s = 0; s < x->p; s++)
        merak_schedule_warmup_fill(&table->args, x->w[s], table->row[s].action);
    return run(table, x);
}

/* --- the recurrences ------------------------------------------------------ */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double stage_time(const struct pipeline *x, int q)
{
    return x->f[q] + x->g[q];
}

/* Round trip from stage a to b and back. */
static double round_trip(const struct pipeline *x, int a, int b)
{
    double sum = 2 * (b - a) * x->hop;

    for (int q = a; q <= b; q++)
        sum += stage_time(x, q);
    return sum;
}

/* Seconds a micro-batch that these warm-ups let through in the long run. */
static double period(const struct pipeline *x)
{
    double most = 0;

    for (int a = 0; a < x->p; a++) {
        for (int b = a; b < x->p; b++) {
            if (a == b || x->w[a] < x->m)
                most =
                    larger(most, round_trip(x, a, b) / (x->w[a] - x->w[b] + 1));
        }
    }
    return most;
}

/* The fewest micro-batches in flight that let one through every P. */
static void least_warmups(struct pipeline *x, double P)
{
    double z = 0;

    for (int q = x->p - 1; q >= 0; q--) {
        double y = q == x->p - 1 ? 0 : z + (2 * x->hop + stage_time(x, q)) / P;
        double w = q == x->p - 1 ? 1 : larger(ceil(y - 1e-12), 1);

        z = larger(y, w - 1 + stage_time(x, q) / P);
        if (w >= x->m)
            z = w = x->m;
        x->w[q] = (int)w;
    }
}

static double upper_bound(const struct pipeline *x, double P)
{
    return round_trip(x, 0, x->p - 1) + (x->m - 1) * P;
}

static double lower_bound(const struct pipeline *x)
{
    double all = round_trip(x, 0, x->p - 1), most = 0;

    for (int q = 0; q < x->p; q++) { /* its work, and the way there and back */
        double before = 0;

        for (int r = 0; r < q; r++)
            before += stage_time(x, r) + 2 * x->hop;
        most = larger(most, before + x->m * stage_time(x, q));
    }
    for (int a = 0; a < x->p; a++) {
        for (int b = a; b < x->p; b++) {
            int k = x->w[a] - x->w[b] + 1;
            int n = x->m > x->w[a] ? (x->m - x->w[a]) / k : 0;

            if (a == b || x->w[a] < x->m)
                most = larger(most, all + n * round_trip(x, a, b) +
                                        (x->m - 1 - n * k) * x->g[b]);
        }
    }
    return most;
}

static double drawn(uint64_t key, uint64_t *at, double lo, double hi)
{
    return lo + (hi - lo) * (double)merak_rng_uniform(key, (*at)++);
}

static void draw_pipeline(int seed, struct pipeline *x)
{
    uint64_t key = merak_rng_key((uint64_t)seed, "pipeline"), at = 0;
    double spread = drawn(key, &at, 0, 0.5);

    *x = (struct pipeline){.p = 2 + (int)drawn(key, &at, 0, MOST - 1.01)};
    x->m = x->p + (int)drawn(key, &at, 0, 30);
    x->hop = seed % 3 == 0 ? 0 : drawn(key, &at, 0, 0.8);
    for (int q = 0; q < x->p; q++) {
        x->f[q] = drawn(key, &at, 1 - spread, 1 + spread);
        x->g[q] = x->f[q] * drawn(key, &at, 1.5, 2.5);
    }
}

/* Least warm-ups are enough for their period, and no plan beats the bounds
 * from below: also with warm-ups of any sort that do not rise. */
static void steps_lie_between_the_bounds(void **state)
{
    double excess = 0;
    int n = 0;

    (void)state;
    for (int seed = 0; seed < 3000; seed++) {
        struct pipeline x;
        double longest = 0, P, step;

        draw_pipeline(seed, &x);
        for (int q = 0; q < x.p; q++)
            longest = larger(longest, stage_time(&x, q));
        P = longest * (1 + seed % 5 * 0.05);
        least_warmups(&x, P);
        step = step_with_warmups(&x);
        if (step > upper_bound(&x, P) * (1 + 1e-9) ||
            step < lower_bound(&x) * (1 - 1e-9))
            fail_msg("seed %d: %g s, not in %g .. %g", seed, step,
                     lower_bound(&x), upper_bound(&x, P));
        excess += upper_bound(&x, period(&x)) / step - 1;
        n++;
        for (int q = 0; q < x.p; q++) /* 1F1B, eager, and between */
            x.w[q] = x.p - q + (x.p - q - 1) * (seed % 3) / 2;
        for (int q = 0; q < x.p; q++)
            x.w[q] = x.w[q] < x.m ? x.w[q] : x.m;
        assert_true(step_with_warmups(&x) >= lower_bound(&x) * (1 - 1e-9));
    }
    print_message("# the upper bound is %.2f %% above the step\n",
                  100 * excess / n);
    assert_true(excess / n < 0.03);
}

/* Once the pipeline is full, a row of micro-batches takes so many periods:
 * 60 is divided by all w_a - w_b + 1 that there are here.  Where two cycles
 * are nearly as long it takes thousands to tell them apart. */
static void long_pipelines_take_the_period(void **state)
{
    int equal = 0;

    (void)state;
    for (int seed = 0; seed < 200; seed++) {
        struct pipeline x, longer;
        double got, want;

        draw_pipeline(seed, &x);
        x.p = x.p > 4 ? 4 : x.p;
        x.m = 1000;
        for (int q = 0; q < x.p; q++)
            x.w[q] = x.p - q + (seed % 2 == 0 ? 0 : (x.p - q) / 2);
        longer = x;
        longer.m += 60;
        got = step_with_warmups(&longer) - step_with_warmups(&x);
        want = 60 * period(&x);
        if (got > want * (1 + 1e-9) || got < want * 0.99)
            fail_msg("seed %d: 60 micro-batches more take %g, not %g", seed,
                     got, want);
        equal += got > want * (1 - 1e-9);
    }
    print_message("# the period to nine digits in %d of 200\n", equal);
    assert_true(equal >= 190);
}

/* Equal stages, hops of c: 1F1B pays 2c(p-1)/p a micro-batch, eager none up
 * to c = t/2; c = t/5 at p = 4 costs 30 % of a stage. */
static void the_least_warmup_pays_for_hops(void **state)
{
    (void)state;
    for (int p = 2; p <= MOST; p++) {
        struct pipeline x = {.p = p, .m = 64, .hop = 0.6}, eager;

        for (int q = 0; q < p; q++) {
            x.f[q] = 1;
            x.g[q] = 2;
            x.w[q] = p - q;
        }
        eager = x;
        for (int q = 0; q < p; q++)
            eager.w[q] = 2 * (p - q) - 1;
        assert_near(&(double){period(&x)}, &(double){3 + 1.2 * (p - 1) / p}, 1,
                    1e-12, 0);
        assert_near(&(double){period(&eager)}, &(double){3}, 1, 1e-12, 0);
        assert_true(step_of("1f1b", &x) - step_of("eager", &x) >
                    0.8 * (64 - 2 * p) * 1.2 * (p - 1) / p);
    }
}

/* f, g from the drawn ones: to the rounding of sums. */
static void gpipe_takes_the_closed_form(void **state)
{
    (void)state;
    for (int seed = 0; seed < 500; seed++) {
        struct pipeline x;
        double f = 0, g = 0, want;

        draw_pipeline(seed, &x);
        for (int q = 0; q < x.p; q++) {
            f = larger(f, x.f[q]);
            g = larger(g, x.g[q]);
        }
        want = round_trip(&x, 0, x.p - 1) + (x.m - 1) * (f + g);
        assert_near(&(double){step_of("gpipe", &x)}, &want, 1, 1e-9, 0);
    }
}

/* The golden table: period, step, upper bound at that period. */
static const struct {
    int m;
    double f[4], hop;
    int w[4];
    double P, step, upper;
} golden_rows[] = {
    {8, {1, 1, 1, 1}, 0, {4, 3, 2, 1}, 3, 33, 33},
    {8, {1, 1, 1, 1}, 0.15, {4, 3, 2, 1}, 3.225, 35.4, 35.475},
    {8, {1, 1, 1, 1}, 0.15, {7, 5, 3, 1}, 3, 33.9, 33.9},
    {8, {1, 1, 1, 1}, 0.6, {4, 3, 2, 1}, 3.9, 42.6, 42.9},
    {8, {1, 1, 1, 1}, 0.6, {7, 5, 3, 1}, 3, 36.6, 36.6},
    {16, {1, 1, 1, 1}, 0.6, {4, 3, 2, 1}, 3.9, 73.8, 74.1},
    {16, {1, 1, 1, 1}, 0.6, {7, 5, 3, 1}, 3, 60.6, 60.6},
    {8, {1, 1.5, 1, 0.5}, 0, {3, 2, 1, 1}, 4.5, 43.5, 43.5},
    {8, {1, 1.5, 1, 0.5}, 0, {4, 3, 2, 1}, 4.5, 40.5, 43.5},
    {8, {1, 1.5, 1, 0.5}, 0, {7, 5, 3, 1}, 4.5, 39.0, 43.5},
    {8, {1, 1.5, 1, 0.5}, 0, {8, 8, 8, 8}, 4.5, 43.5, 43.5},
    {16, {1.5, 1, 1, 0.5}, 0.3, {4, 3, 2, 1}, 4.5, 78.0, 81.3},
    {16, {1.5, 1, 1, 0.5}, 0.3, {7, 5, 3, 1}, 4.5, 73.2, 81.3},
};

static void golden_pipelines_come_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(golden_rows) / sizeof(*golden_rows); i++) {
        struct pipeline x = {
            .p = 4, .m = golden_rows[i].m, .hop = golden_rows[i].hop};
        double got[3];

        for (int q = 0; q < 4; q++) {
            x.f[q] = golden_rows[i].f[q];
            x.g[q] = 2 * x.f[q];
            x.w[q] = golden_rows[i].w[q];
        }
        got[0] = period(&x);
        got[1] = step_with_warmups(&x);
        got[2] = upper_bound(&x, got[0]);
        assert_near(got, &golden_rows[i].P, 1, 1e-12, 0);
        assert_near(got + 1, &golden_rows[i].step, 1, 1e-12, 0);
        assert_near(got + 2, &golden_rows[i].upper, 1, 1e-12, 0);
    }
}

/* What the table's own warm-ups are the least for; (3 2 1 1) is the least for
 * 4.5, though more pays there. */
static void golden_warmups_come_out(void **state)
{
    static const struct {
        double f[4], hop, P;
        int w[4];
    } rows[] = {
        {{1, 1, 1, 1}, 0, 3, {4, 3, 2, 1}},
        {{1, 1, 1, 1}, 0.15, 3, {7, 5, 3, 1}},
        {{1, 1, 1, 1}, 0.6, 3, {7, 5, 3, 1}},
        {{1, 1, 1, 1}, 0.6, 3.9, {4, 3, 2, 1}},
        {{1, 1.5, 1, 0.5}, 0, 4.5, {3, 2, 1, 1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct pipeline x = {.p = 4, .m = 16, .hop = rows[i].hop};

        for (int q = 0; q < 4; q++) {
            x.f[q] = rows[i].f[q];
            x.g[q] = 2 * x.f[q];
        }
        least_warmups(&x, rows[i].P);
        for (int q = 0; q < 4; q++) {
            if (x.w[q] != rows[i].w[q])
                fail_msg("row %zu: stage %d has %d, not %d", i, q, x.w[q],
                         rows[i].w[q]);
        }
        assert_true(step_with_warmups(&x) <=
                    upper_bound(&x, rows[i].P) * (1 + 1e-12));
    }
}

/* --- Merak ---------------------------------------------------------------- */

static struct pipeline merak_pipeline(int p, int m, double r)
{
    struct pipeline x = {.p = p, .m = m};

    for (int q = 0; q < p; q++) {
        x.f[q] = 1;
        x.g[q] = 2;
        x.r[q] = r;
    }
    return x;
}

/* Stage-aware recomputation: the share rho_s of stage s under shifted
 * critical path, and the step where R costs no more than what it has to
 * compute again; 1F1B with the same shares, last stage's included. */
static void stage_aware_shares_take_the_known_times(void **state)
{
    static const struct {
        int p, m;
        double rho0, scp, plain;
    } rows[] = {
        {4, 8, 1.0, 38, 42},      {4, 8, 0.8, 36.9, 39.2},
        {4, 8, 0.5, 35.25, 36.0}, {8, 16, 0.8, 78.4, 82.1},
        {8, 16, 0.5, 73.8, 75.2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        int p = rows[i].p;
        struct pipeline x = merak_pipeline(p, rows[i].m, 0);
        double got[2];

        for (int s = 0; s < p - 1; s++)
            x.r[s] = larger(0, 1 - (1 - rows[i].rho0) * (p - 1) / (p - 1 - s));
        got[1] = step_of("1f1b", &x);
        x.r[p - 2] = x.r[p - 3]; /* with the third forward it holds three */
        got[0] = step_of("scp", &x);
        /* as printed: to a tenth where there are thirds */
        assert_near(got, &rows[i].scp, 1, 0, 0.051);
        assert_near(got + 1, &rows[i].plain, 1, 0, 0.051);
    }
}

/* A last stage half as long again, the head: nearly all of the gain is in
 * what it does not recompute. */
static void a_heavy_last_stage_gains_most(void **state)
{
    static const struct {
        const char *schedule;
        double step;
    } rows[] = {{"1f1b", 60}, {"early", 57}, {"last", 46}, {"scp", 46}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct pipeline x = merak_pipeline(4, 8, 1);

        x.f[3] = x.r[3] = 1.5;
        x.g[3] = 3;
        assert_near(&(double){step_of(rows[i].schedule, &x)}, &rows[i].step, 1,
                    0.012, 0);
    }
}

/* Merak's exchanges block: transfers of c cost its schedules this much at
 * p = 4, m = 8.  Ours are on their way while stages work. */
static void transfers_cost_less_than_blocking_ones(void **state)
{
    static const struct {
        const char *schedule;
        double hop, blocking;
    } rows[] = {
        {"1f1b", 0.1, 45.9},   {"early", 0.1, 43.0},  {"last", 0.1, 41.1},
        {"scp", 0.1, 40.5},    {"1f1b", 0.25, 48.75}, {"early", 0.25, 46.0},
        {"last", 0.25, 44.25}, {"scp", 0.25, 44.25},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct pipeline x = merak_pipeline(4, 8, 1);
        double still = step_of(rows[i].schedule, &x), got;

        x.hop = rows[i].hop;
        got = step_of(rows[i].schedule, &x);
        print_message("# %s, hops of %g: %g, blocking %g\n", rows[i].schedule,
                      x.hop, got, rows[i].blocking);
        assert_true(got > still);
        assert_true(got <= rows[i].blocking + 1e-9);
    }
}

/* How many micro-batches stand computed again at once, waiting for their
 * gradients; a last stage that drops nothing has one of its own. */
static int materialised(const struct merak_timetable *table, int stage)
{
    const struct merak_timetable_row *row = &table->row[stage];
    int now = 0, most = table->lists->recomputes[stage] ? 0 : 1;

    for (int i = 0; i < row->n; i++) {
        bool early = false;

        for (int k = 0; k < i; k++)
            early = early ||
                    (row->action[k].kind == MERAK_ACT_R &&
                     row->action[k].microbatch == row->action[i].microbatch);
        now += row->action[i].kind == MERAK_ACT_R;
        most = now > most ? now : most;
        now -= row->action[i].kind == MERAK_ACT_B && early;
    }
    return most;
}

static void one_micro_batch_stands_recomputed(void **state)
{
    static const struct {
        const char *schedule;
        int want[4];
    } rows[] = {{"1f1b", {0, 0, 0, 0}},
                {"early", {1, 1, 1, 0}},
                {"last", {1, 1, 1, 1}},
                {"scp", {1, 1, 1, 1}}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct pipeline x = merak_pipeline(4, 8, 1);
        struct merak_timetable *table = table_of(rows[i].schedule, &x);

        for (int s = 0; s < 4; s++)
            assert_int_equal(materialised(table, s), rows[i].want[s]);
        merak_timetable_destroy(table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_lie_between_the_bounds),
        cmocka_unit_test(long_pipelines_take_the_period),
        cmocka_unit_test(the_least_warmup_pays_for_hops),
        cmocka_unit_test(gpipe_takes_the_closed_form),
        cmocka_unit_test(golden_pipelines_come_out),
        cmocka_unit_test(golden_warmups_come_out),
        cmocka_unit_test(stage_aware_shares_take_the_known_times),
        cmocka_unit_test(a_heavy_last_stage_gains_most),
        cmocka_unit_test(transfers_cost_less_than_blocking_ones),
        cmocka_unit_test(one_micro_batch_stands_recomputed),
    };

    return cmocka_run_group_tests_name("published", tests, NULL, NULL);
}
