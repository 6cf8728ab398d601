/* SPDX-License-Identifier: Apache-2.0 */
/* test_beside.c - what kernels lose to exchanges and transfers that run beside
 * them: programs made by hand, simulated, against times worked out by hand
 */
#include "config.h"

#include "unit/near.h"

#include "partitioner/program/program.h"
#include "partitioner/simulate/simulate.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define MOST 6

/* Kernels lose 1/4 s a round, and 1 s to 8 bytes; a link moves 16 in 1 s. */
static const struct merak_cost_model model = {.flops_per_s = 1,
                                              .bytes_per_s = 1e30,
                                              .links.level[0].bytes_per_s = 16,
                                              .interference_latency_s = 0.25,
                                              .interference_bytes_per_s = 8};

enum kind { END, KERNEL, REDUCE, SEND, RECV };

struct line {
    enum kind kind;
    double amount; /* seconds of a kernel, bytes of another */
    int waits;     /* for this one, counted from 1; 0: for none */
    int tag;
};

struct made {
    struct merak_program program;
    struct merak_instr instr[MOST];
    int wait[MOST];
    struct merak_group group;
    struct merak_slot slot;
};

static struct merak_exchange reduce = {.kind = MERAK_CONVERT_REDUCE_SCATTER};
static int members[] = {0, 1};

static void make_instr(struct made *m, int id, const struct line *line)
{
    struct merak_instr *in = &m->instr[id];

    *in = (struct merak_instr){.id = id,
                               .kind = MERAK_INSTR_KERNEL,
                               .queue = MERAK_QUEUE_COMPUTE,
                               .peer = 1 - m->program.rank,
                               .tag = (uint64_t)line->tag,
                               .first_wait = id,
                               .n_wait = line->waits > 0,
                               .name = "x",
                               .op = merak_op_find("add")};
    m->wait[id] = line->waits - 1;
    if (line->kind == KERNEL) {
        in->flops = line->amount;
        return;
    }
    in->bytes = (size_t)line->amount;
    in->queue = MERAK_QUEUE_P2P;
    in->kind = line->kind == SEND ? MERAK_INSTR_SEND : MERAK_INSTR_RECV;
    if (line->kind != REDUCE)
        return;
    in->queue = MERAK_QUEUE_COLLECTIVE;
    in->kind = MERAK_INSTR_EXCHANGE;
    in->exchange = &reduce;
}

static void make(struct made *m, int rank, enum merak_group_axis axis,
                 const struct line *line)
{
    int n = 0;

    memset(m, 0, sizeof(*m));
    m->program = (struct merak_program){.rank = rank,
                                        .ranks = 2,
                                        .plan = {.tp = 1},
                                        .instr = m->instr,
                                        .wait = m->wait,
                                        .group = &m->group,
                                        .n_groups = 1,
                                        .slot = &m->slot};
    m->group = (struct merak_group){
        .axis = axis, .n = 2, .rank = members, .me = rank, .name = "x"};
    for (; n < MOST && line[n].kind != END; n++)
        make_instr(m, n, &line[n]);
    m->program.n_instrs = n;
}

static double step_s(const struct merak_cost_model *cost,
                     enum merak_group_axis axis, const struct line *first,
                     const struct line *second)
{
    struct made made[2];
    struct merak_program *programs[] = {&made[0].program, &made[1].program};
    struct merak_timeline *tl = NULL;
    struct merak_error err = {0};
    double s;

    make(&made[0], 0, axis, first);
    make(&made[1], 1, axis, second);
    if (merak_simulate(programs, second[0].kind == END ? 1 : 2, cost, NULL, &tl,
                       &err) != MERAK_OK)
        fail_msg("%s", err.text);
    s = tl->step_s;
    merak_timeline_destroy(tl);
    return s;
}

static const struct {
    const char *what;
    struct line first[MOST], second[MOST];
    double want;
} rows[] = {
    {"a kernel beside one loses a round and its bytes",
     {{KERNEL, 1, 0, 0}, {REDUCE, 4, 1, 7}, {KERNEL, 2, 1, 0}},
     {{END, 0, 0, 0}},
     1 + 2 + 0.25 + 0.5},
    {"one that waits for it loses nothing",
     {{KERNEL, 1, 0, 0}, {REDUCE, 4, 1, 7}, {KERNEL, 2, 2, 0}},
     {{END, 0, 0, 0}},
     1 + 0.25 + 2},
    {"two that begin while communication is awake are one round",
     {{KERNEL, 1, 0, 0},
      {REDUCE, 2, 1, 7},
      {REDUCE, 2, 1, 8},
      {KERNEL, 2, 1, 0}},
     {{END, 0, 0, 0}},
     1 + 2 + 0.25 + 0.5},
    {"two that begin apart are two rounds",
     {{KERNEL, 1, 0, 0},
      {REDUCE, 4, 1, 7},
      {KERNEL, 2, 1, 0},
      {REDUCE, 4, 3, 8},
      {KERNEL, 2, 3, 0}},
     {{END, 0, 0, 0}},
     1 + 2 + 2 + 2 * 0.75},
    {"it takes nothing before the last member has come, and then from both",
     {{KERNEL, 1, 0, 0},
      {REDUCE, 4, 1, 7},
      {KERNEL, 1, 1, 0},
      {KERNEL, 4, 3, 0}},
     {{KERNEL, 3, 0, 0}, {REDUCE, 4, 1, 7}, {KERNEL, 1, 1, 0}},
     1 + 1 + 4 + 0.75},
    {"none is left to lose when the last member comes",
     {{KERNEL, 1, 0, 0}, {REDUCE, 4, 1, 7}, {KERNEL, 1, 1, 0}},
     {{KERNEL, 3, 0, 0}, {REDUCE, 4, 1, 7}},
     3 + 0.25},
    {"both ends of a transfer lose",
     {{KERNEL, 1, 0, 0}, {SEND, 4, 1, 7}, {KERNEL, 3, 1, 0}},
     {{RECV, 4, 0, 7}, {KERNEL, 4, 0, 0}},
     4 + 0.75},
    {"a slower kernel sends later",
     {{KERNEL, 1, 0, 0},
      {REDUCE, 4, 1, 7},
      {KERNEL, 2, 1, 0},
      {SEND, 16, 3, 9}},
     {{KERNEL, 1, 0, 0},
      {REDUCE, 4, 1, 7},
      {RECV, 16, 0, 9},
      {KERNEL, 1, 3, 0}},
     1 + 2.75 + 1 + 1},
};

static void kernels_lose_time_to_communication_beside_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        double got =
            step_s(&model, MERAK_ALONG_DP, rows[i].first, rows[i].second);

        if (fabs(got - rows[i].want) > 1e-9)
            fail_msg("%s: %.9g, not %g", rows[i].what, got, rows[i].want);
    }
}

static void without_interference_compute_and_exchanges_overlap(void **state)
{
    struct merak_cost_model free_of = model;

    (void)state;
    free_of.interference_latency_s = free_of.interference_bytes_per_s = 0;
    assert_true(
        step_s(&free_of, MERAK_ALONG_DP, rows[0].first, rows[0].second) == 3);
}

/* Kernels that were timed beside tensor ranks' exchanges took what they lost
 * to them. */
static void kernels_timed_beside_tp_exchanges_lose_nothing_more(void **state)
{
    static const struct merak_rates timed = {.n = 0};
    struct merak_cost_model cost = model;

    (void)state;
    assert_true(step_s(&cost, MERAK_ALONG_TP, rows[0].first, rows[0].second) ==
                3.75);
    cost.tp_rates = &timed;
    assert_true(step_s(&cost, MERAK_ALONG_TP, rows[0].first, rows[0].second) ==
                3);
    assert_true(step_s(&cost, MERAK_ALONG_DP, rows[0].first, rows[0].second) ==
                3.75);
}

/* An all-reduce of 4 goes round twice three times. */
static void an_all_reduce_interferes_in_each_of_its_rounds(void **state)
{
    struct merak_interference b =
        merak_cost_interference(&model, MERAK_CONVERT_ALL_REDUCE, 24, 4);

    (void)state;
    assert_true(b.wake_s == 6 * 0.25);
    assert_true(b.copy_s == 3);
    b = merak_cost_interference(&model, MERAK_CONVERT_ALL_GATHER, 24, 4);
    assert_true(b.wake_s == 3 * 0.25);
}

/* A cost that is no number ends the simulation like any other. */
static void a_cost_of_nan_ends_the_simulation(void **state)
{
    static const struct line line[MOST] = {
        {KERNEL, 1, 0, 0}, {KERNEL, NAN, 1, 0}, {KERNEL, 1, 2, 0}};
    static const struct line none[MOST] = {{END, 0, 0, 0}};

    (void)state;
    alarm(600); /* or the test fails */
    (void)step_s(&model, MERAK_ALONG_DP, line, none);
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_lose_time_to_communication_beside_them),
        cmocka_unit_test(without_interference_compute_and_exchanges_overlap),
        cmocka_unit_test(kernels_timed_beside_tp_exchanges_lose_nothing_more),
        cmocka_unit_test(an_all_reduce_interferes_in_each_of_its_rounds),
        cmocka_unit_test(a_cost_of_nan_ends_the_simulation),
    };

    return cmocka_run_group_tests_name("beside", tests, NULL, NULL);
}
