/* SPDX-License-Identifier: Apache-2.0 */
/* test_overlap.c - exchanges of sub-pipelined programs are behind compute, as
 * far as the programs decide that: no kernel waits for one that it does not
 * need
 */
#include "config.h"

#include "unit/small_plans.h"
#include "partitioner/simulate/simulate.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const struct small_model gpt = {
    .layers = 4, .vocab = 4096, .hidden = 512, .heads = 8};

static struct merak_planned *build(int pp, bool sub, enum merak_seq_parallel sp)
{
    struct merak_plan plan = {.tp = 2,
                              .pp = pp,
                              .dp = 1,
                              .microbatches = 8,
                              .micro_batch = 16,
                              .sub_pipeline = sub,
                              .schedule = "1f1b",
                              .sp = sp};

    return planned_build(&gpt, &plan, NULL);
}

static double step_s(struct merak_planned *p, double kernels,
                     double link_bytes_per_s)
{
    struct merak_cost_model cost = *merak_cost_default();
    struct merak_timeline *tl = NULL;
    struct merak_error err;
    double s;

    cost.flops_per_s *= kernels;
    cost.bytes_per_s *= kernels;
    cost.kernel_s /= kernels;
    cost.links.level[0].bytes_per_s = link_bytes_per_s;
    cost.links.level[0].latency_s = 0;
    if (merak_simulate(p->program, p->n_programs, &cost, NULL, &tl, &err) !=
        MERAK_OK)
        fail_msg("%s", err.text);
    s = tl->step_s;
    merak_timeline_destroy(tl);
    return s;
}

/* A link at which the exchanges of a program, alone, take half as long as its
 * kernels. */
static double half_speed(struct merak_planned *plain)
{
    return step_s(plain, 1e30, 1) / (0.5 * step_s(plain, 1, 1e30));
}

static void assert_hidden(int pp, enum merak_seq_parallel sp)
{
    struct merak_planned *plain = build(pp, false, sp);
    struct merak_planned *sub = build(pp, true, sp);
    double link = half_speed(plain);
    double kernels = step_s(sub, 1, 1e30), all = 0.5 * kernels;
    double left = step_s(sub, 1, link) - kernels;
    double before = step_s(plain, 1, link) - kernels;

    print_message("# pp %d, sp %s: %.1f %% exposed, without halves %.1f %%\n",
                  pp, sp == MERAK_SP_ON ? "on" : "off", 100 * left / all,
                  100 * before / all);
    if (left > 0.1 * all)
        fail_msg("%.1f %% of the exchanges are exposed", 100 * left / all);
    merak_planned_destroy(plain);
    merak_planned_destroy(sub);
}

static void exchanges_of_half_the_compute_are_hidden(void **state)
{
    (void)state;
    assert_hidden(1, MERAK_SP_OFF);
    assert_hidden(1, MERAK_SP_ON);
}

/* The first instruction from `at` on that reads the slot; n_instrs if it is
 * written before, for then no one needs what it held. */
static int next_read(const struct merak_program *p, int slot, int at)
{
    for (; at < p->n_instrs; at++) {
        const struct merak_instr *in = &p->instr[at];
        unsigned reads, writes;

        merak_instr_access(in, &reads, &writes);
        for (int k = 0; k < in->n_in + in->n_out; k++) {
            if (p->slot[in->slot[k]].whole == p->slot[slot].whole)
                return reads & 1u << k ? at : p->n_instrs;
        }
    }
    return at;
}

static void assert_not_waited_for(const struct merak_program *p, int exchange)
{
    const struct merak_instr *ex = &p->instr[exchange];
    int until = next_read(p, ex->slot[1], exchange + 1);

    for (int i = exchange + 1; i < until && until < p->n_instrs; i++) {
        const struct merak_instr *in = &p->instr[i];

        for (int w = 0; w < in->n_wait; w++) {
            if (in->queue == MERAK_QUEUE_COMPUTE &&
                p->wait[in->first_wait + w] == exchange)
                fail_msg("rank %d: %s of micro-batch %d waits for %s of %d, "
                         "whose result is first used by %s",
                         p->rank, in->name, in->microbatch, ex->name,
                         ex->microbatch, p->instr[until].name);
        }
    }
}

/* Memory that an exchange reads or stages in is given to no one before that:
 * whoever got it would have to wait. */
static void only_users_wait_for_an_exchange(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        struct merak_planned *p = build(kind & 1 ? 2 : 1, kind & 2,
                                        kind & 4 ? MERAK_SP_ON : MERAK_SP_OFF);

        for (int r = 0; r < p->n_programs; r++) {
            const struct merak_program *prog = p->program[r];

            for (int i = 0; i < prog->n_instrs; i++) {
                if (prog->instr[i].kind == MERAK_INSTR_EXCHANGE)
                    assert_not_waited_for(prog, i);
            }
        }
        merak_planned_destroy(p);
    }
}

/* Exchanges inside a forward between two instructions. */
static int exchanges_between(const struct merak_program *p, int from, int to)
{
    int n = 0;

    for (int i = from + 1; i < to; i++)
        n += p->instr[i].kind == MERAK_INSTR_EXCHANGE && p->instr[i].node >= 0;
    return n;
}

/* Nothing reads what replicas hold in parts before it is gathered. */
static void assert_unread(const struct merak_program *p, int gather)
{
    int whole = p->slot[p->instr[gather].slot[1]].whole;

    for (int i = 0; i < gather; i++) {
        const struct merak_instr *in = &p->instr[i];

        for (int s = 0; s < in->n_in && in->kind == MERAK_INSTR_KERNEL; s++) {
            if (p->slot[in->slot[s]].whole == whole)
                fail_msg("%s of pass %d stands before %s", in->name, in->pass,
                         p->instr[gather].name);
        }
    }
}

/* By how many exchanges the gathers of a program come before they have to;
 * at most so many is any ahead. */
static int gathers_ahead(const struct merak_program *p, int most)
{
    int n = 0, sum = 0;

    for (int i = 0; i < p->n_instrs; i++) {
        const struct merak_instr *in = &p->instr[i];
        int user, ahead;

        if (strncmp(in->name, "gather ", 7) != 0)
            continue;
        assert_unread(p, i);
        user = next_read(p, in->slot[1], i + 1);
        ahead = exchanges_between(p, i, user);
        if (ahead > most)
            fail_msg("%s stands %d exchanges before %s", in->name, ahead,
                     p->instr[user].name);
        sum += ahead;
        n++;
    }
    assert_int_equal(n, p->n_params);
    return sum;
}

/* Gathers of ZeRO-1 that end with tensor ranks stand in one queue with the
 * exchanges of the first forward: on the first stage, those of the last layers
 * do not keep the first from going on.  Other stages begin with all of them. */
static void parameter_gathers_do_not_delay_the_first_forward(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct merak_plan plan = {.tp = 2,
                                  .pp = 1 + kind % 2,
                                  .dp = 2,
                                  .microbatches = 2,
                                  .zero = 1,
                                  .schedule = "1f1b",
                                  .sp = kind / 2 ? MERAK_SP_ON : MERAK_SP_OFF};
        struct merak_planned *p = planned_build(&gpt, &plan, NULL);

        for (int r = 0; r < p->n_programs; r++) {
            const struct merak_program *prog = p->program[r];

            if (prog->stage == 0)
                assert_true(gathers_ahead(prog, 1) > 0);
            else
                assert_true(gathers_ahead(prog, INT_MAX) > prog->n_params);
        }
        merak_planned_destroy(p);
    }
}

/* The next exchange of a node from `at` on, by steps of `by`; NULL: none. */
static const struct merak_instr *node_exchange(const struct merak_program *p,
                                               int at, int by)
{
    for (int i = at; i >= 0 && i < p->n_instrs; i += by) {
        if (p->instr[i].kind == MERAK_INSTR_EXCHANGE && p->instr[i].node >= 0)
            return &p->instr[i];
    }
    return NULL;
}

/* How many sums of gradients in a queue stand between exchanges of one
 * backward, of parts that a part before waits for, or of the first part. */
static int sums_inside(const struct merak_program *p, enum merak_queue queue,
                       bool first_part)
{
    int n = 0;

    for (int i = 0; i < p->n_instrs; i++) {
        const struct merak_instr *before, *after;

        if (strncmp(p->instr[i].name, "reduce d/", 9) != 0 ||
            p->instr[i].queue != queue)
            continue;
        before = node_exchange(p, i, -1);
        after = node_exchange(p, i, 1);
        if (before == NULL || after == NULL || before->chunk != after->chunk ||
            before->microbatch != after->microbatch)
            continue;
        n += first_part == (p->stage == 0 && before->chunk == 0);
    }
    return n;
}

/* Sums over replicas have a queue of their own and begin when gradients are
 * made.  Those over tensor ranks stand in one queue with the exchanges of the
 * last backward: where a part before waits for that, they come behind it. */
static void gradient_sums_do_not_delay_the_last_backward(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct merak_plan plan = {.tp = 2,
                                  .pp = 2,
                                  .dp = 2,
                                  .microbatches = 4,
                                  .zero = kind % 2 == 0,
                                  .chunks = 1 + kind / 2};
        struct merak_planned *p;

        snprintf(plan.schedule, sizeof(plan.schedule), "%s",
                 kind / 2 ? "interleaved" : "1f1b");
        p = planned_build(&gpt, &plan, NULL);
        for (int r = 0; r < p->n_programs; r++) {
            const struct merak_program *prog = p->program[r];

            enum merak_queue tensor = MERAK_QUEUE_COLLECTIVE;
            enum merak_queue over = MERAK_QUEUE_REPLICAS;

            assert_int_equal(sums_inside(prog, tensor, false), 0);
            if (prog->stage > 0 || plan.chunks > 1)
                assert_true(sums_inside(prog, over, false) > 2);
            if (prog->stage == 0)
                assert_true(sums_inside(prog, over, true) > 2);
        }
        planned_assert_sound(p);
        merak_planned_destroy(p);
    }
}

static struct merak_value *two_linears(struct merak_model *m,
                                       struct merak_value *x, const char *name)
{
    size_t C = 64;
    struct merak_value *up = MERAK_PARAM(m, merak_name(m, "%s.up", name),
                                         MERAK_NORMAL(0.02f), 4 * C, C);
    struct merak_value *down = MERAK_PARAM(m, merak_name(m, "%s.down", name),
                                           MERAK_NORMAL(0.02f), C, 4 * C);

    x = merak_gelu(m, merak_linear(m, x, up, NULL, 1), false);
    return merak_linear(m, x, down, NULL, 1);
}

/* A branch for the loss alone, described before the trunk that recycles. */
static void side_branch(struct merak_model *m, void *arg)
{
    size_t C = 64;
    struct merak_value *table = MERAK_PARAM(m, "table", MERAK_NORMAL(1), 64, C);
    struct merak_value *x, *side, *before;

    (void)arg;
    merak_passes(m, 2);
    before =
        MERAK_RECYCLED(m, merak_model_micro_batch(m), merak_model_seq(m), C);
    x = merak_add(m, merak_embedding(m, merak_tokens(m), table), before);
    side = merak_gelu(m, two_linears(m, x, "side"), false);
    side = merak_gelu(m, two_linears(m, side, "side2"), false);
    x = merak_add(m, x, two_linears(m, x, "trunk"));
    merak_recycle(m, before, x);
    merak_cross_entropy(m,
                        merak_linear(m, merak_add(m, x, side), table, NULL, 1),
                        merak_targets(m));
}

/* Exchanges that a pass leaves out do not keep back what it reads. */
static void gathers_come_before_a_pass_that_leaves_nodes_out(void **state)
{
    (void)state;
    for (int forward_only = 0; forward_only < 2; forward_only++) {
        struct merak_plan plan = {.tp = 2,
                                  .pp = 1,
                                  .dp = 2,
                                  .microbatches = 2,
                                  .micro_batch = 2,
                                  .zero = 1,
                                  .schedule = "1f1b",
                                  .sp = MERAK_SP_OFF};
        struct merak_program_options opt = {.forward_only = forward_only};
        struct merak_planned *p = NULL;
        struct merak_error err;

        if (merak_plan_build(&plan, 16, side_branch, NULL, MERAK_PLAN_ALL, &opt,
                             &p, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        for (int r = 0; r < p->n_programs; r++)
            (void)gathers_ahead(p->program[r], INT_MAX);
        merak_planned_destroy(p);
    }
}

/* Two towers, described one after the other: both embeddings are in one
 * block. */
static void two_tables(struct merak_model *m, void *arg)
{
    size_t C = 64;
    struct merak_value *x, *y, *tokens = merak_tokens(m);
    struct merak_value *a = MERAK_PARAM(m, "a", MERAK_NORMAL(1), 64, C);
    struct merak_value *b = MERAK_PARAM(m, "b", MERAK_NORMAL(1), 64, C);
    struct merak_value *head = MERAK_PARAM(m, "head", MERAK_NORMAL(1), 64, C);

    (void)arg;
    x = merak_embedding(m, tokens, a);
    for (int i = 0; i < 3; i++)
        x = merak_add(m, x, two_linears(m, x, merak_name(m, "a.%d", i)));
    y = merak_embedding(m, tokens, b);
    for (int i = 0; i < 3; i++)
        y = merak_add(m, y, two_linears(m, y, merak_name(m, "b.%d", i)));
    x = merak_add(m, x, y);
    merak_cross_entropy(m, merak_linear(m, x, head, NULL, 1), merak_targets(m));
}

/* Blocks of all stages run before what the graph has before them. */
static void gathers_come_before_shared_blocks(void **state)
{
    (void)state;
    for (int pp = 2; pp < 5; pp++) {
        struct merak_plan plan = {.tp = 2,
                                  .pp = pp,
                                  .dp = 2,
                                  .microbatches = 4,
                                  .micro_batch = 2,
                                  .chunks = 3,
                                  .zero = 1,
                                  .schedule = "interlaced",
                                  .sp = MERAK_SP_OFF};
        struct merak_program_options opt = {0};
        struct merak_planned *p = NULL;
        struct merak_error err;

        if (merak_plan_build(&plan, 16, two_tables, NULL, MERAK_PLAN_ALL, &opt,
                             &p, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        for (int r = 0; r < p->n_programs; r++)
            (void)gathers_ahead(p->program[r], INT_MAX);
        merak_planned_destroy(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanges_of_half_the_compute_are_hidden),
        cmocka_unit_test(only_users_wait_for_an_exchange),
        cmocka_unit_test(parameter_gathers_do_not_delay_the_first_forward),
        cmocka_unit_test(gradient_sums_do_not_delay_the_last_backward),
        cmocka_unit_test(gathers_come_before_a_pass_that_leaves_nodes_out),
        cmocka_unit_test(gathers_come_before_shared_blocks),
    };

    return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}
