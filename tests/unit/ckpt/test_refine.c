/* SPDX-License-Identifier: Apache-2.0 */
/* test_refine.c - a device is corrected by the trace of a run whose costs are
 * known
 *
 * Two ranks run, one after another: a product, an exchange, a larger product,
 * a larger exchange, an elementwise kernel, a copy, a transfer and a product
 * again.  Rank 1 is 5 ms late at the first exchange.
 */
#include "config.h"

#include "unit/ckpt/own_dir.h"

#include "io/trace/samples.h"
#include "io/trace/sharers.h"
#include "partitioner/program/program.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 2
#define INSTRS 8
#define US 1000ll
#define MS 1000000ll
#define REUSE 3e8
#define LATENCY_US 30
#define BYTES_PER_US 2000 /* 2 GB/s */
#define WAKE (10 * US)    /* before a record of an exchange begins */
#define NOTICE (4 * US)   /* before what waits for it goes on */

static const struct instr {
    const char *op;
    enum merak_instr_kind kind;
    double flops, bytes;
    int64_t ns; /* of what has no peers */
} instrs[INSTRS] = {
    {"linear", MERAK_INSTR_KERNEL, 1e8, 1e6, 2 * MS},
    {"all-gather", MERAK_INSTR_EXCHANGE, 0, 1000, 0},
    {"linear", MERAK_INSTR_KERNEL, 8e8, 4e6, 12 * MS},
    {"all-reduce", MERAK_INSTR_EXCHANGE, 0, 1e6, 0},
    {"gelu", MERAK_INSTR_KERNEL, 1e5, 4e6, 1 * MS},
    {"slice", MERAK_INSTR_SLICE, 0, 1e5, 20 * US},
    {"send", MERAK_INSTR_SEND, 0, 5e5, 0},
    {"linear", MERAK_INSTR_KERNEL, 1e8, 1e6, 2 * MS},
};

static bool meets(int i)
{
    return instrs[i].kind == MERAK_INSTR_EXCHANGE ||
           instrs[i].kind == MERAK_INSTR_SEND;
}

/* From when all have come to when they go on. */
static int64_t cost_ns(int i)
{
    int rounds = strcmp(instrs[i].op, "all-reduce") == 0 ? 2 : 1;

    return rounds * LATENCY_US * US +
           (int64_t)(instrs[i].bytes / BYTES_PER_US * US);
}

/* One step of both ranks from `at`; a hiccup is in the last product. */
static void run_step(int step, int64_t at, int64_t hiccup,
                     struct merak_trace_record records[RANKS][INSTRS])
{
    int64_t now[RANKS] = {at, at + 5 * MS}, latest;

    for (int i = 0; i < INSTRS; i++) {
        latest = now[0] > now[1] ? now[0] : now[1];
        for (int r = 0; r < RANKS; r++) {
            struct merak_trace_record *rec = &records[r][i];

            *rec = (struct merak_trace_record){.instr = i,
                                               .step = step,
                                               .microbatch = 0,
                                               .peer = -1,
                                               .kind = (uint8_t)instrs[i].kind};
            rec->start_ns = now[r];
            if (!meets(i)) {
                rec->end_ns = now[r] + instrs[i].ns;
                rec->end_ns += i == INSTRS - 1 ? hiccup : 0;
                now[r] = rec->end_ns;
                continue;
            }
            rec->queue = MERAK_QUEUE_COLLECTIVE;
            rec->start_ns += WAKE;
            if (rec->kind == MERAK_INSTR_SEND) {
                rec->queue = MERAK_QUEUE_P2P;
                rec->kind = r == 0 ? MERAK_INSTR_SEND : MERAK_INSTR_RECV;
                rec->peer = (int16_t)(1 - r);
            }
            rec->end_ns = latest + cost_ns(i) - NOTICE;
            now[r] = rec->end_ns + NOTICE;
        }
    }
}

static void fill_plan(int rank, struct merak_trace_planned *planned,
                      struct merak_trace_cost *cost)
{
    for (int i = 0; i < INSTRS; i++) {
        bool sends = instrs[i].kind == MERAK_INSTR_SEND;

        planned[i] = (struct merak_trace_planned){
            .first = -1, .second = -1, .start_ns = -1, .end_ns = -1};
        snprintf(planned[i].op, sizeof(planned[i].op), "%s",
                 sends && rank == 1 ? "recv" : instrs[i].op);
        cost[i] = (struct merak_trace_cost){.flops = instrs[i].flops,
                                            .bytes = instrs[i].bytes,
                                            .inside = meets(i) ? RANKS : 0,
                                            .tp = 1};
        if (instrs[i].kind == MERAK_INSTR_KERNEL)
            cost[i].reuse = REUSE;
        if (!meets(i))
            continue;
        planned[i].tag = (uint64_t)i + 7;
        planned[i].first = 0;
        planned[i].second = sends ? 1 : -RANKS;
    }
}

/* What is wrong with a trace. */
struct wrong {
    const char *backend, *dtype;
    int ranks, steps; /* written; 0: as it should be */
    bool no_cost;
    double flops;       /* of instruction 2 */
    int second, inside; /* of instruction 1 */
};

static void write_trace(const struct wrong *w)
{
    static const char *const names[INSTRS] = {"a", "b", "c", "d",
                                              "e", "f", "g", "h"};
    int ranks = w->ranks > 0 ? w->ranks : RANKS;

    for (int r = ranks - 1; r >= 0; r--) {
        struct merak_trace_planned planned[INSTRS];
        struct merak_trace_cost cost[INSTRS];
        struct merak_trace_info info = {.rank = r,
                                        .ranks = RANKS,
                                        .stages = 1,
                                        .tp = 1,
                                        .dp = RANKS,
                                        .dp_index = r,
                                        .n_instrs = INSTRS,
                                        .instr_name = names,
                                        .planned = planned,
                                        .cost = w->no_cost ? NULL : cost,
                                        .threads = 1,
                                        .plan = r == 0 ? "{}" : NULL};
        struct merak_trace *trace;
        struct merak_error err = {.status = MERAK_OK};

        fill_plan(r, planned, cost);
        cost[2].flops = w->flops != 0 ? w->flops : cost[2].flops;
        planned[1].second = w->second != 0 ? w->second : planned[1].second;
        cost[1].inside = w->inside != 0 ? w->inside : cost[1].inside;
        snprintf(info.backend, sizeof(info.backend), "%s",
                 w->backend != NULL ? w->backend : "cpu");
        snprintf(info.dtype, sizeof(info.dtype), "%s",
                 w->dtype != NULL ? w->dtype : "fp32");
        if (merak_trace_create(dir, &info, 1, &trace, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        for (int s = 0; s < (w->steps > 0 ? w->steps : 10); s++) {
            struct merak_trace_record records[RANKS][INSTRS];

            run_step(s, s * 1000 * MS, s % 4 == 0 ? 300 * MS : 0, records);
            assert_int_equal(merak_trace_step(trace, records[r], INSTRS, &err),
                             MERAK_OK);
        }
        if (r > 0 || ranks < RANKS)
            (void)!merak_trace_close(trace, NULL);
        else
            assert_int_equal(merak_trace_close(trace, &err), MERAK_OK);
    }
}

static enum merak_status sample(struct merak_trace_samples *samples, int *n_p,
                                struct merak_error *err)
{
    struct merak_trace_rank *ranks;
    enum merak_status rc;

    assert_int_equal(merak_trace_load(dir, &ranks, n_p, err), MERAK_OK);
    rc = merak_trace_samples(ranks, *n_p, "run", "cpu",
                             strcmp(ranks[0].info.backend, "emu") == 0, samples,
                             err);
    merak_trace_unload(ranks, *n_p);
    return rc;
}

static void assert_near_one(const char *what, double got, double want)
{
    if (fabs(got - want) > 0.01 * want)
        fail_msg("%s: %g, not %g", what, got, want);
}

/* Refine a device by the trace; the rows changed. */
static struct merak_change *refine(struct merak_device *device, int *n_p)
{
    struct merak_trace_samples samples;
    struct merak_change *changes;
    struct merak_error err = {.status = MERAK_OK};
    int n;

    if (sample(&samples, &n, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(samples.dtype, MERAK_F32);
    assert_int_equal(samples.steps, 3); /* of 9 that count */
    if (merak_refine_device(samples.refine, MERAK_F32, n, true, device,
                            &changes, n_p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    merak_refine_destroy(samples.refine);
    return changes;
}

static double kernel_s(const struct merak_cost_model *cost, const char *op,
                       double flops, double bytes)
{
    const struct merak_kernel_size size = {
        .flops = flops, .bytes = bytes, .reuse = REUSE};
    const struct merak_op named = {.name = op};

    return merak_cost_kernel(cost, &named, 1, &size);
}

static const struct merak_change *find(const struct merak_change *changes,
                                       int n, const char *what)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(changes[i].what, what) == 0)
            return &changes[i];
    }
    fail_msg("nothing is said of %s", what);
    return NULL;
}

static void known_costs_are_found(void **state)
{
    const struct merak_change *row;
    struct merak_change *changes;
    struct merak_device d = {.n_tuned = 0};
    struct merak_cost_model cost;
    struct merak_error err = {.status = MERAK_OK};
    int n;

    (void)state;
    write_trace(&(struct wrong){0});
    assert_int_equal(merak_device_find("cpu", &d, &err), MERAK_OK);
    d.attention_flops_per_s[MERAK_F32] = d.flops_per_s[MERAK_F32] / 2;
    changes = refine(&d, &n);
    assert_near_one("attention's rate", d.attention_flops_per_s[MERAK_F32],
                    d.flops_per_s[MERAK_F32] / 2);
    merak_device_cost(&d, MERAK_F32, 0, &cost);
    assert_near_one("small product", kernel_s(&cost, "linear", 1e8, 1e6), 2e-3);
    assert_near_one("product", kernel_s(&cost, "linear", 8e8, 4e6), 12e-3);
    assert_near_one("gelu", kernel_s(&cost, "gelu", 1e5, 4e6), 1e-3);
    assert_near_one("copy", merak_cost_copy(&cost, 1e5), 20e-6);
    /* an op that was not run: by rates, which were 2.25 to 3 times too good */
    assert_near_one("other", kernel_s(&cost, "relu", 0, 8e6),
                    d.kernel_s + 8e6 / 4e9);
    /* what the exchanges were, and one of another size */
    assert_near_one("all-gather",
                    merak_links_exchange_s(&cost.links,
                                           MERAK_CONVERT_ALL_GATHER, 1000,
                                           &(struct merak_spread){.n = {2}}),
                    30.5e-6);
    assert_near_one("all-reduce",
                    merak_links_exchange_s(&cost.links,
                                           MERAK_CONVERT_ALL_REDUCE, 1e5,
                                           &(struct merak_spread){.n = {2}}),
                    110e-6);
    assert_near_one("transfer", merak_links_message_s(&cost.links, 0, 5e5),
                    280e-6);
    row = find(changes, n, "linear");
    assert_near_one("step's products", row->after, 16e-3);
    assert_int_equal(row->classes, 2);
    assert_int_equal(row->samples, 3 * RANKS * 3);
    row = find(changes, n, "link among 2, latency");
    assert_near_one("latency", row->after, LATENCY_US * 1e-6);
    assert_near_one("before", row->before, 5e-6);
    free(changes);
    merak_device_fini(&d);
}

/* The built-in device, on which `linear` was timed twice. */
static void find_timed(struct merak_device *d,
                       const struct merak_rate_point point[2])
{
    struct merak_error err = {.status = MERAK_OK};

    assert_int_equal(merak_device_find("cpu", d, &err), MERAK_OK);
    d->rates[MERAK_F32] = calloc(1, sizeof(struct merak_rates));
    for (int i = 0; i < 2; i++)
        assert_true(merak_rates_add(d->rates[MERAK_F32], "linear", &point[i]));
}

/* What was timed before keeps its shape, and gets the run's speed. */
static void other_sizes_are_scaled(void **state)
{
    const struct merak_rate_point points[2] = {
        {{.flops = 1e10, .bytes = 1e8}, 0.05},
        {{.flops = 1e8, .bytes = 1e6}, 0.0005}};
    struct merak_change *changes;
    struct merak_device d = {.n_tuned = 0};
    struct merak_cost_model cost;
    double flops;
    int n;

    (void)state;
    write_trace(&(struct wrong){0});
    find_timed(&d, points);
    flops = d.flops_per_s[MERAK_F32];
    d.interference_latency_s = 1e-4;
    d.interference_bytes_per_s = 1e9;
    changes = refine(&d, &n);
    merak_device_cost(&d, MERAK_F32, 0, &cost);
    assert_near_one("small product", kernel_s(&cost, "linear", 1e8, 1e6), 2e-3);
    /* 4 times, as the sizes that were run were (one exactly, one nearly) */
    assert_true(kernel_s(&cost, "linear", 1e10, 1e8) > 0.05 * 2.9);
    assert_true(kernel_s(&cost, "linear", 1e10, 1e8) < 0.05 * 4.1);
    assert_true(d.flops_per_s[MERAK_F32] == flops);
    /* what kernels lost to exchanges is in their times */
    assert_true(d.interference_latency_s == 0 &&
                d.interference_bytes_per_s == 0);
    assert_near_one("lost",
                    find(changes, n, "lost during exchanges, a round")->before,
                    1e-4);
    free(changes);
    merak_device_fini(&d);
}

/* Of two reuse distances of a size the run's gets what it took there, the
 * other its own, at the run's speed. */
static void distances_are_told_apart(void **state)
{
    const struct merak_kernel_size near = {
        .flops = 1e8, .bytes = 1e6, .reuse = REUSE / 100};
    const struct merak_rate_point points[2] = {
        {{.flops = 1e8, .bytes = 1e6, .reuse = REUSE}, 0.0010}, {near, 0.0005}};
    struct merak_change *changes;
    struct merak_device d = {.n_tuned = 0};
    struct merak_cost_model cost;
    const struct merak_op *op;
    int n;

    (void)state;
    write_trace(&(struct wrong){0});
    find_timed(&d, points);
    changes = refine(&d, &n);
    merak_device_cost(&d, MERAK_F32, 0, &cost);
    assert_near_one("as it ran", kernel_s(&cost, "linear", 1e8, 1e6), 2e-3);
    op = merak_op_find("linear");
    assert_true(merak_cost_kernel(&cost, op, 1, &near) > 0.7e-3);
    assert_true(merak_cost_kernel(&cost, op, 1, &near) < 1.1e-3);
    free(changes);
    merak_device_fini(&d);
}

/* Ways by number: 0 has three users that come and go, 1 has two at different
 * times. */
static void sharers_are_counted_by_time(void **state)
{
    struct merak_trace_event events[] = {
        {.from = 0, .to = 120},  {.from = 40, .to = 120},
        {.from = 80, .to = 200}, {.from = 0, .to = 50},
        {.from = 50, .to = 60},  {.from = 70, .to = 70}};
    static const int way[] = {0, 0, 0, 1, 1, 0};
    /* 40 alone, 40 of two, 40 of three; 40 of two, 40 of three; and so on */
    const double want[] = {120 / (40 + 20 + 40 / 3.0),
                           80 / (20 + 40 / 3.0),
                           120 / (40 / 3.0 + 80),
                           1,
                           1,
                           1};
    struct merak_trace_uses uses = {.n = 0};
    struct merak_error err = {.status = MERAK_OK};

    (void)state;
    for (int i = 5; i >= 0; i--)
        assert_int_equal(merak_trace_use(&uses, way[i], i, &err), MERAK_OK);
    assert_int_equal(merak_trace_use(&uses, 2, 0, &err), MERAK_OK);
    assert_int_equal(merak_trace_share(&uses, events, 6, &err), MERAK_OK);
    for (int i = 0; i < 6; i++)
        assert_true(fabs(events[i].sharers - want[i]) < 1e-12);
    free(uses.use);
}

/* Thousands of classes are told apart, and found again. */
static void classes_are_found_again(void **state)
{
    enum { MANY = 5000 };
    struct merak_refine *refine;
    struct merak_error err = {.status = MERAK_OK};
    int id;

    (void)state;
    assert_int_equal(merak_refine_create(1, &refine, &err), MERAK_OK);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            struct merak_sample_class class = {
                .kind =
                    i % 3 == 0 ? MERAK_SAMPLE_KERNEL : MERAK_SAMPLE_EXCHANGE,
                .size = {.bytes = i / 4, .flops = i % 3 == 0 ? i % 7 : 0},
                .n = 2 + i % 4 / 2,
                .inside = 1 + i % 2};

            if (i % 3 == 0)
                snprintf(class.op, sizeof(class.op), "op%d", i);
            assert_int_equal(merak_refine_class(refine, &class, &id, &err),
                             MERAK_OK);
            assert_int_equal(id, i);
        }
    }
    merak_refine_destroy(refine);
}

/* Links of groups come back from a file, and others take the nearest. */
static void groups_are_kept(void **state)
{
    struct merak_device d = {.n_tuned = 0}, back;
    struct merak_cost_model cost;
    struct merak_error err = {.status = MERAK_OK};
    char path[160];

    (void)state;
    snprintf(path, sizeof(path), "%s/device.json", dir);
    assert_int_equal(merak_device_find("cpu", &d, &err), MERAK_OK);
    d.links.group[0] = (struct merak_link_group){8, 4e-5, 1e9};
    d.links.n_groups = 1;
    assert_int_equal(merak_device_save(&d, path, &err), MERAK_OK);
    if (merak_device_find(path, &back, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    merak_device_cost(&back, MERAK_F32, 0, &cost);
    assert_near_one("8",
                    merak_links_exchange_s(&cost.links,
                                           MERAK_CONVERT_ALL_GATHER, 1e6,
                                           &(struct merak_spread){.n = {8}}),
                    7 * 4e-5 + 1e-3);
    assert_near_one("6",
                    merak_links_exchange_s(&cost.links,
                                           MERAK_CONVERT_ALL_GATHER, 1e6,
                                           &(struct merak_spread){.n = {6}}),
                    5 * 4e-5 + 1e-3);
    assert_near_one("3",
                    merak_links_exchange_s(&cost.links,
                                           MERAK_CONVERT_ALL_GATHER, 1e6,
                                           &(struct merak_spread){.n = {3}}),
                    2 * 5e-6 + 1e6 / 5e9);
    merak_device_fini(&back);
}

static void what_does_not_tell_is_refused(void **state)
{
    static const struct {
        struct wrong wrong;
        enum merak_status rc;
        const char *text;
    } row[] = {
        {{.backend = "emu"},
         MERAK_ERR_CONFIG,
         "run is of a run on backend emu, not cpu: its kernels take"},
        {{.dtype = "int8"}, MERAK_ERR_CONFIG, "a run in int8; device files"},
        {{.no_cost = true}, MERAK_ERR_CONFIG, "the run used an older merak"},
        {{.steps = 3},
         MERAK_ERR_CONFIG,
         "run has 3 steps, of which the first does not count; expected 3"},
        {{.ranks = 1}, MERAK_ERR_CONFIG, "traces of 1 of the run's 2 ranks"},
        {{.flops = -1},
         MERAK_ERR_CORRUPT,
         "rank 0's trace of instruction 2 makes no sense"},
        {{.flops = NAN},
         MERAK_ERR_CORRUPT,
         "rank 0's trace of instruction 2 makes no sense"},
        {{.flops = 1e300},
         MERAK_ERR_CORRUPT,
         "rank 0's trace of instruction 2 makes no sense"},
        {{.second = INT_MIN},
         MERAK_ERR_CORRUPT,
         "rank 0's trace of instruction 1 makes no sense"},
        {{.inside = 3},
         MERAK_ERR_CORRUPT,
         "rank 0's trace of instruction 1 makes no sense"},
        {{.inside = -1},
         MERAK_ERR_CORRUPT,
         "rank 0's trace of instruction 1 makes no sense"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct merak_trace_samples samples;
        struct merak_error err = {.status = MERAK_OK};
        int n;

        remove_dir(NULL);
        make_dir(NULL);
        write_trace(&row[i].wrong);
        assert_int_equal(sample(&samples, &n, &err), row[i].rc);
        if (strstr(err.text, row[i].text) == NULL)
            fail_msg("row %zu says \"%s\"", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OWN_DIR_TEST(known_costs_are_found),
        OWN_DIR_TEST(other_sizes_are_scaled),
        OWN_DIR_TEST(distances_are_told_apart),
        OWN_DIR_TEST(groups_are_kept),
        cmocka_unit_test(sharers_are_counted_by_time),
        cmocka_unit_test(classes_are_found_again),
        OWN_DIR_TEST(what_does_not_tell_is_refused),
    };

    return cmocka_run_group_tests_name("refine", tests, NULL, NULL);
}
