/* SPDX-License-Identifier: Apache-2.0 */
/* test_contention.c - what moves between nodes at the same time shares their
 * ways: programs made by hand, simulated, against times worked out by hand
 *
 * A rank moves 8 bytes a second to other nodes, kernels take what they say,
 * and an exchange among the two replicas moves all its bytes.
 */
#include "config.h"

#include "unit/near.h"
#include "unit/small_plans.h"
#include "partitioner/simulate/simulate.h"
#include "partitioner/program/instr_cost.h"

#include <math.h>
#include <string.h>

enum { LINES = 4, RANKS = 8, REPLICAS = 4 };

enum kind { END, KERNEL, DP, TP, SEND, RECV };

struct line {
    enum kind kind;
    double amount; /* seconds of a kernel, bytes of another */
    int waits;     /* for this one, counted from 1; 0: for none */
    int peer;      /* stage */
    int tag;
};

struct made {
    struct merak_program program;
    struct merak_instr instr[LINES];
    int wait[LINES];
    struct merak_group group[2];
    int member[2][REPLICAS];
    struct merak_slot slot;
};

/* Which ranks share a node, and what they have; programs are of the first
 * replica's first tensor rank, one for each stage. */
struct setting {
    int tp, pp, dp;
    bool replicas_last; /* order of ranks: tp, pp, dp */
    int ranks_per_node;
    double node_bytes_per_s, latency_s;
};

static struct merak_exchange reduce = {.kind = MERAK_CONVERT_REDUCE_SCATTER};

static struct merak_plan plan_of(const struct setting *s)
{
    return (struct merak_plan){.tp = s->tp,
                               .pp = s->pp,
                               .dp = s->dp,
                               .order_tp_pp_dp = s->replicas_last};
}

static struct merak_cost_model model_of(const struct setting *s)
{
    return (struct merak_cost_model){.flops_per_s = 1,
                                     .bytes_per_s = 1e30,
                                     .links.level[0].bytes_per_s = 16,
                                     .links.level[0].ranks = s->ranks_per_node,
                                     .links.level[1].bytes_per_s = 8,
                                     .links.level[1].latency_s = s->latency_s,
                                     .links.level[0].way_bytes_per_s =
                                         s->node_bytes_per_s};
}

static void make_instr(struct made *m, int id, const struct line *line)
{
    const struct merak_program *prog = &m->program;
    struct merak_instr *in = &m->instr[id];

    *in = (struct merak_instr){.id = id,
                               .kind = MERAK_INSTR_KERNEL,
                               .queue = MERAK_QUEUE_COMPUTE,
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
    if (line->kind == SEND || line->kind == RECV) {
        in->queue = MERAK_QUEUE_P2P;
        in->kind = line->kind == SEND ? MERAK_INSTR_SEND : MERAK_INSTR_RECV;
        in->peer = merak_plan_rank(&prog->plan, prog->tp_index, prog->dp_index,
                                   line->peer);
        return;
    }
    in->queue =
        line->kind == DP ? MERAK_QUEUE_REPLICAS : MERAK_QUEUE_COLLECTIVE;
    in->kind = MERAK_INSTR_EXCHANGE;
    in->exchange = &reduce;
    in->group = line->kind == DP;
}

static void make(struct made *m, const struct setting *s, int rank,
                 const struct line *line)
{
    struct merak_program *prog = &m->program;
    const struct merak_plan plan = plan_of(s);
    int n = 0;

    memset(m, 0, sizeof(*m));
    *prog = (struct merak_program){.rank = rank,
                                   .ranks = s->tp * s->pp * s->dp,
                                   .plan = plan,
                                   .instr = m->instr,
                                   .wait = m->wait,
                                   .group = m->group,
                                   .n_groups = 2,
                                   .slot = &m->slot};
    merak_plan_coords(&plan, rank, &prog->tp_index, &prog->dp_index,
                      &prog->stage);
    for (int i = 0; i < 2; i++)
        m->member[0][i] =
            merak_plan_rank(&plan, i, prog->dp_index, prog->stage);
    for (int i = 0; i < s->dp; i++)
        m->member[1][i] =
            merak_plan_rank(&plan, prog->tp_index, i, prog->stage);
    m->group[0] = (struct merak_group){.n = 2, .rank = m->member[0]};
    m->group[1] = (struct merak_group){.n = s->dp > 2 ? s->dp : 2,
                                       .rank = m->member[1]};
    for (; n < LINES && line[n].kind != END; n++)
        make_instr(m, n, &line[n]);
    prog->n_instrs = n;
}

static struct merak_timeline *simulate(struct made *made, int n,
                                       const struct merak_cost_model *model)
{
    struct merak_program *programs[RANKS];
    struct merak_timeline *tl = NULL;
    struct merak_error err = {0};

    for (int p = 0; p < n; p++)
        programs[p] = &made[p].program;
    if (merak_simulate(programs, n, model, NULL, &tl, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return tl;
}

/* A deadline that is past ends it, one that is not changes nothing. */
static void a_deadline_is_kept(void **state)
{
    static struct made made;
    const struct setting set = {.tp = 1, .pp = 1, .dp = 1, .ranks_per_node = 1};
    const struct merak_cost_model model = model_of(&set);
    const struct merak_deadline past = {.at_ns = 0}, none = {INT64_MAX, NULL};
    const struct line line[LINES] = {{KERNEL, 2, 0, 0, 0},
                                     {KERNEL, 3, 0, 0, 0}};
    struct merak_program *program = &made.program;
    struct merak_timeline *tl = NULL;
    struct merak_error err;

    (void)state;
    make(&made, &set, 0, line);
    assert_int_equal(merak_simulate(&program, 1, &model, &past, &tl, &err),
                     MERAK_ERR_TIMEOUT);
    assert_null(tl);
    assert_int_equal(merak_simulate(&program, 1, &model, &none, &tl, &err),
                     MERAK_OK);
    assert_true(fabs(tl->step_s - 5) < 1e-9);
    merak_timeline_destroy(tl);
}

/* What programs do, by stage, and when each instruction should end. */
static const struct {
    const char *what;
    struct setting set;
    struct line line[6][LINES];
    double want[6][LINES];
} rows[] = {
    {"one after another they have the node to themselves",
     {1, 2, 2, true, 2, 8, 0},
     {{{DP, 16, 0, 0, 1}}, {{KERNEL, 2, 0, 0, 0}, {DP, 8, 1, 0, 1}}},
     {{2}, {2, 3}}},
    {"two stages that reduce over replicas share it while both do",
     {1, 2, 2, true, 2, 8, 0},
     {{{DP, 16, 0, 0, 1}}, {{KERNEL, 1, 0, 0, 0}, {DP, 16, 1, 0, 1}}},
     {{3}, {1, 4}}},
    /* 24 bytes alone to 1 s, of two to 2 s, of three to 3.5 s, two to 4.5 */
    {"a reduction and two stages' transfers on one way out",
     {1, 4, 2, true, 2, 8, 0},
     {{{DP, 24, 0, 0, 1}, {KERNEL, 2, 0, 0, 0}, {SEND, 8, 2, 3, 2}},
      {{KERNEL, 1, 0, 0, 0}, {SEND, 8, 1, 2, 3}},
      {{RECV, 8, 0, 1, 3}},
      {{RECV, 8, 0, 0, 2}}},
     {{5, 2, 4.5}, {1, 3.5}, {3.5}, {4.5}}},
    {"a node that has room for all slows nothing",
     {1, 4, 2, true, 2, 24, 0},
     {{{DP, 24, 0, 0, 1}},
      {{KERNEL, 1, 0, 0, 0}, {SEND, 8, 1, 2, 3}},
      {{RECV, 8, 0, 1, 3}},
      {{END, 0, 0, 0, 0}}},
     {{3}, {1, 2}, {2}}},
    {"a rank's two share what it has, where the node has more",
     {1, 4, 2, true, 2, 24, 0},
     {{{DP, 16, 0, 0, 1}, {SEND, 8, 0, 2, 3}},
      {{SEND, 8, 0, 3, 4}},
      {{RECV, 8, 0, 0, 3}},
      {{RECV, 8, 0, 1, 4}}},
     {{3, 2}, {1}, {2}, {1}}},
    {"and where nothing is known of the node",
     {1, 4, 2, true, 2, 0, 0},
     {{{DP, 16, 0, 0, 1}, {SEND, 8, 0, 2, 3}},
      {{SEND, 8, 0, 3, 4}},
      {{RECV, 8, 0, 0, 3}},
      {{RECV, 8, 0, 1, 4}}},
     {{3, 2}, {1}, {2}, {1}}},
    {"tensor ranks count, each; what stays inside a node does not",
     {2, 2, 2, true, 4, 16, 0},
     {{{DP, 16, 0, 0, 1}}, {{TP, 16, 0, 0, 1}, {DP, 8, 1, 0, 2}}},
     {{3}, {1, 3}}},
    {"a sum over replicas holds up no exchange of tensor ranks",
     {2, 1, 2, true, 2, 16, 0},
     {{{DP, 16, 0, 0, 1}, {TP, 16, 0, 0, 2}, {DP, 8, 0, 0, 3}}},
     {{2, 1, 3}}},
    {"inside a node they share its links",
     {2, 1, 2, true, 4, 16, 0},
     {{{DP, 8, 0, 0, 1}, {TP, 16, 0, 0, 2}, {TP, 16, 0, 0, 3}}},
     {{1, 1.5, 2.5}}},
    {"and the first is longer by what the second takes",
     {2, 1, 2, true, 4, 16, 0},
     {{{TP, 16, 0, 0, 1}, {DP, 4, 0, 0, 2}, {DP, 4, 2, 0, 3}}},
     {{1.5, 0.5, 1}}},
    {"what comes into a node is shared, too",
     {1, 6, 1, false, 2, 8, 0},
     {{{SEND, 8, 0, 2, 1}},
      {{END, 0, 0, 0, 0}},
      {{RECV, 8, 0, 0, 1}},
      {{RECV, 8, 0, 4, 2}},
      {{SEND, 8, 0, 3, 2}}},
     {{2}, {0}, {2}, {2}, {2}}},
    {"what comes in leaves alone what goes out",
     {1, 4, 1, false, 2, 8, 0},
     {{{SEND, 8, 0, 2, 1}},
      {{RECV, 8, 0, 3, 2}},
      {{RECV, 8, 0, 0, 1}},
      {{SEND, 8, 0, 1, 2}}},
     {{1}, {1}, {1}, {1}}},
    /* three into a node get 8/3 each; beside one of them 16/3 are left */
    {"what one cannot use for another's sake the next one gets",
     {1, 6, 1, false, 2, 8, 0},
     {{{SEND, 8, 0, 2, 1}},
      {{SEND, 16, 0, 4, 2}},
      {{RECV, 8, 0, 0, 1}, {RECV, 8, 0, 5, 3}},
      {{RECV, 8, 0, 5, 4}},
      {{RECV, 16, 0, 1, 2}},
      {{SEND, 8, 0, 2, 3}, {SEND, 8, 0, 3, 4}}},
     {{3}, {3}, {3, 3}, {3}, {3}, {3, 3}}},
    {"no byte moves before the latency is over",
     {1, 4, 1, false, 2, 8, 1},
     {{{SEND, 8, 0, 2, 1}},
      {{KERNEL, 1, 0, 0, 0}, {SEND, 8, 1, 3, 2}},
      {{RECV, 8, 0, 0, 1}},
      {{RECV, 8, 0, 1, 2}}},
     {{2}, {1, 3}, {2}, {3}}},
    {"what waits for a slower transfer starts later",
     {1, 4, 1, false, 2, 8, 0},
     {{{SEND, 8, 0, 2, 1}},
      {{SEND, 8, 0, 3, 2}},
      {{RECV, 8, 0, 0, 1}, {KERNEL, 1, 1, 0, 0}},
      {{RECV, 8, 0, 1, 2}}},
     {{2}, {2}, {2, 3}, {2}}},
};

/* Simulate a program for each stage, and compare ends with those wanted, which
 * they may be off from by so much. */
static void check_times(const char *what, const struct setting *set,
                        const struct merak_cost_model *model,
                        const struct line line[6][LINES],
                        const double want[6][LINES], double off)
{
    const struct merak_plan plan = plan_of(set);
    struct made made[6];
    struct merak_timeline *tl;

    for (int s = 0; s < set->pp; s++)
        make(&made[s], set, merak_plan_rank(&plan, 0, 0, s), line[s]);
    tl = simulate(made, set->pp, model);
    for (int s = 0; s < set->pp; s++) {
        for (int i = 0; i < made[s].program.n_instrs; i++) {
            if (fabs(tl->end[s][i] - want[s][i]) > off)
                fail_msg("%s: stage %d's instruction %d ends at %.9g, not %g",
                         what, s, i, tl->end[s][i], want[s][i]);
        }
    }
    merak_timeline_destroy(tl);
}

/* The same for programs of all ranks, which may be off by so much from those
 * that stand for them. */
static void check_all(const struct setting *set,
                      const struct merak_cost_model *model,
                      const struct line line[6][LINES], double off)
{
    const struct merak_plan plan = plan_of(set);
    int all = set->tp * set->pp * set->dp;
    struct made few[6], made[RANKS];
    struct merak_timeline *tl, *whole;

    for (int s = 0; s < set->pp; s++)
        make(&few[s], set, merak_plan_rank(&plan, 0, 0, s), line[s]);
    for (int k = 0; k < all; k++) {
        int tp_index, dp_index, stage;

        merak_plan_coords(&plan, k, &tp_index, &dp_index, &stage);
        make(&made[k], set, k, line[stage]);
    }
    tl = simulate(few, set->pp, model);
    whole = simulate(made, all, model);
    for (int k = 0; k < all; k++) {
        int s = made[k].program.stage;

        for (int i = 0; i < made[k].program.n_instrs; i++)
            assert_true(fabs(whole->end[k][i] - tl->end[s][i]) <= off);
    }
    merak_timeline_destroy(tl);
    merak_timeline_destroy(whole);
}

static void times_are_as_by_hand(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        const struct merak_cost_model model = model_of(&rows[r].set);

        check_times(rows[r].what, &rows[r].set, &model, rows[r].line,
                    rows[r].want, 1e-9);
    }
}

/* Programs of all ranks take what those take that stand for them, to the
 * bit. */
static void a_program_for_each_rank_takes_the_same_time(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        const struct merak_cost_model model = model_of(&rows[r].set);

        check_all(&rows[r].set, &model, rows[r].line, 0);
    }
}

/* Below leaf switches a rank moves 8 bytes a second, between them what `outer`
 * says; a leaf's ranks together `way`, if it is not 0. */
static const struct {
    const char *what;
    struct setting set;
    int leaf;
    double way, outer;
    struct line line[6][LINES];
    double want[6][LINES];
} leaf_rows[] = {
    {"sums between leaves share their ways, transfers below one do not",
     {1, 4, 2, true, 1, 0, 0},
     4,
     8,
     8,
     {{{DP, 16, 0, 0, 1}},
      {{DP, 16, 0, 0, 1}},
      {{SEND, 8, 0, 3, 2}},
      {{RECV, 8, 0, 2, 2}}},
     {{4}, {4}, {1}, {1}}},
    /* of its time a sum needs twice as much: both move 8/3 bytes a second */
    {"a rank's two share its time",
     {1, 4, 2, true, 1, 0, 0},
     4,
     0,
     4,
     {{{DP, 16, 0, 0, 1}, {SEND, 8, 0, 1, 2}}, {{RECV, 8, 0, 0, 2}}},
     {{5, 3}, {3}}},
    {"one peer below the same leaf, two below another",
     {1, 1, 4, true, 1, 0, 0},
     2,
     0,
     4,
     {{{DP, 24, 0, 0, 1}}},
     {{8.0 / 8 + 16.0 / 4}}},
    {"the same, whose leaf's way is narrower",
     {1, 1, 4, true, 1, 0, 0},
     2,
     6,
     4,
     {{{DP, 24, 0, 0, 1}}},
     {{16.0 / 3}}}, /* while the way is in use, the rank has time for all */
    /* alone 8 / (1/3 + 2/3 x 8/4) = 4.8 a second, as two ranks of a leaf have
     * room for 6; both stages' 3 */
    {"two stages of which two thirds leave",
     {1, 2, 4, true, 1, 0, 0},
     4,
     8,
     4,
     {{{DP, 24, 0, 0, 1}}, {{KERNEL, 4, 0, 0, 0}, {DP, 24, 1, 0, 1}}},
     {{5.6}, {4, 9.6}}},
    /* two thirds of what two ranks of a leaf send leave it: 6 a second each */
    {"a leaf's way is narrower than its nodes'",
     {1, 2, 4, true, 2, 12, 0},
     4,
     8,
     8,
     {{{DP, 24, 0, 0, 1}}, {{END, 0, 0, 0, 0}}},
     {{24 / 6.0}, {0}}},
    {"a node's way is narrower",
     {1, 2, 4, true, 2, 5, 0},
     4,
     8,
     8,
     {{{DP, 24, 0, 0, 1}}, {{END, 0, 0, 0, 0}}},
     {{24 / 5.0}, {0}}},
};

static void levels_share_their_own_ways(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof(leaf_rows) / sizeof(*leaf_rows); r++) {
        struct merak_cost_model model = model_of(&leaf_rows[r].set);
        struct merak_level *level = model.links.level;

        level[2] = level[1];
        level[2].bytes_per_s = leaf_rows[r].outer;
        level[1].ranks = leaf_rows[r].leaf;
        level[1].way_bytes_per_s = leaf_rows[r].way;
        /* what part of a flow leaves is a float */
        check_times(leaf_rows[r].what, &leaf_rows[r].set, &model,
                    leaf_rows[r].line, leaf_rows[r].want, 1e-6);
        check_all(&leaf_rows[r].set, &model, leaf_rows[r].line, 1e-6);
    }
}

/* What shares with nobody takes what the cost model says, to the bit. */
static void alone_is_as_costed(void **state)
{
    const struct setting set = {2, 2, 2, true, 4, 1.1e9, 1.7e-5};
    const struct line line[2][LINES] = {
        {{DP, 1234567, 0, 0, 1}, {SEND, 7654321, 1, 1, 2}},
        {{RECV, 7654321, 0, 0, 2}, {DP, 777, 1, 0, 3}}};
    const struct merak_plan plan = plan_of(&set);
    struct merak_cost_model model = model_of(&set);
    struct merak_timeline *tl;
    struct made made[2];
    double at;

    (void)state;
    model.links.level[1].bytes_per_s = 1.3e9;
    model.links.level[0].latency_s = 3.1e-6;
    for (int s = 0; s < 2; s++)
        make(&made[s], &set, merak_plan_rank(&plan, 0, 0, s), line[s]);
    tl = simulate(made, 2, &model);
    at = merak_cost_instr(&model, &made[0].program, &made[0].instr[0]);
    assert_true(at == 1.7e-5 + 1234567 / (1.1e9 / 2));
    assert_true(tl->end[0][0] == at);
    at += merak_cost_instr(&model, &made[0].program, &made[0].instr[1]);
    assert_true(tl->end[0][1] == at && tl->end[1][0] == at);
    at += merak_cost_instr(&model, &made[1].program, &made[1].instr[1]);
    assert_true(tl->end[1][1] == at && tl->step_s == at);
    merak_timeline_destroy(tl);
}

static double built_step_s(struct merak_cost_model *model, bool given)
{
    static const struct small_model gpt = {
        .layers = 4, .vocab = 512, .hidden = 64, .heads = 4};
    struct merak_plan plan = {.tp = 1,
                              .pp = 2,
                              .dp = 2,
                              .order_tp_pp_dp = true,
                              .microbatches = 4,
                              .micro_batch = 1,
                              .schedule = "1f1b"};
    const struct merak_program_options opt = {.cost = model};
    struct merak_planned *p = planned_build(&gpt, &plan, &opt);
    struct merak_timeline *tl = NULL;
    struct merak_error err = {0};
    double s;

    if (merak_simulate(p->program, p->n_programs, given ? model : NULL, NULL,
                       &tl, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    s = tl->step_s;
    merak_timeline_destroy(tl);
    merak_planned_destroy(p);
    return s;
}

/* Built programs know what they ask of the net: without a model they take the
 * same; and two replicas whose stages are on one node share it at the end. */
static void built_programs_share(void **state)
{
    struct merak_cost_model model = *merak_cost_default();
    double both, wide;

    (void)state;
    model.links.level[0].ranks = 2;
    model.links.level[1].latency_s = 1e-5;
    model.links.level[1].bytes_per_s = model.links.level[0].way_bytes_per_s =
        1e6; /* it is all there is */
    both = built_step_s(&model, true);
    assert_true(built_step_s(&model, false) == both);
    model.links.level[0].way_bytes_per_s = 2e6;
    wide = built_step_s(&model, true);
    assert_true(built_step_s(&model, false) == wide);
    if (both < 1.5 * wide) /* their ends do not meet exactly */
        fail_msg("%g s, and %g s with twice as much room", both, wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_is_kept),
        cmocka_unit_test(times_are_as_by_hand),
        cmocka_unit_test(a_program_for_each_rank_takes_the_same_time),
        cmocka_unit_test(levels_share_their_own_ways),
        cmocka_unit_test(alone_is_as_costed),
        cmocka_unit_test(built_programs_share),
    };

    return cmocka_run_group_tests_name("contention", tests, NULL, NULL);
}
