/* SPDX-License-Identifier: Apache-2.0 */
/* test_parity_experts.c - experts cut over ranks: every plan computes what one
 * rank computes, whatever the router does
 */
#include "config.h"

#include "unit/parity.h"

#include "base/rng.h"

#include <stdio.h>
#include <string.h>

static const struct small_model mixture = {
    .layers = 2, .vocab = 13, .hidden = 8, .heads = 4, .experts = 8, .chosen = 2,
    .balance = {.aux = 0.5f, .z = 0.02f, .bias_rate = 1e-3f}, .untied = true};

/* All experts on one rank. */
static struct merak_plan uncut(const struct merak_plan *plan)
{
    struct merak_plan one = *plan;

    one.tp = one.ep = 1;
    return one;
}

#define N_ROWS(rows) (sizeof(rows) / sizeof(*(rows)))

struct divided {
    struct parity_variant v;
    int ep, room;
};

/* Every other row with biases of experts. */
static void check_divided(const struct small_model *model,
                          const struct divided *rows, size_t n,
                          enum merak_ep_form form)
{
    for (size_t i = 0; i < n; i++) {
        struct merak_plan plan = parity_plan(&rows[i].v), one;
        struct small_model with = *model;

        with.biased = i % 2 == 1;
        plan.micro_batch = 4;
        plan.ep = rows[i].ep;
        plan.ep_form = form;
        plan.expert_room = rows[i].room;
        one = uncut(&plan);
        parity_plans(&with, &one, &plan, false);
    }
}

static void experts_over_ranks_compute_the_same(void **state)
{
    static const struct divided rows[] = {
        {{1, 1, 1, "1f1b", 0, MERAK_SP_OFF}, 2, 0},
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 0},
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 100},
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 400}, /* the bound */
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 1},   /* all again */
        {{1, 1, 2, "1f1b", 1, MERAK_SP_OFF}, 2, 0},
        {{1, 2, 1, "1f1b", 1, MERAK_SP_OFF}, 2, 0},
        {{1, 2, 2, "zb-h1", 2, MERAK_SP_OFF}, 2, 50},
        {{1, 2, 2, "1f1b", 3, MERAK_SP_OFF}, 4, 0},
        {{2, 1, 1, "1f1b", 0, MERAK_SP_OFF}, 2, 0},
        {{2, 1, 1, "1f1b", 1, MERAK_SP_ON}, 2, 0},
        {{4, 1, 1, "1f1b", 1, MERAK_SP_AUTO}, 2, 1},
        {{2, 2, 2, "zb-h1", 1, MERAK_SP_ON}, 2, 400},
        {{2, 2, 2, "1f1b", 3, MERAK_SP_OFF}, 2, 0},
    };

    (void)state;
    check_divided(&mixture, rows, N_ROWS(rows), MERAK_EP_GATHER);
}

/* The same where rows travel, with and without places for all of them. */
static void experts_exchange_rows(void **state)
{
    static const struct divided rows[] = {
        {{1, 1, 1, "1f1b", 0, MERAK_SP_OFF}, 2, 0},
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 0},
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 400}, /* the bound */
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 1},   /* all are left */
        {{1, 1, 2, "1f1b", 1, MERAK_SP_OFF}, 2, 100},
        {{1, 2, 1, "1f1b", 1, MERAK_SP_OFF}, 2, 0},
        {{1, 2, 2, "zb-h1", 2, MERAK_SP_OFF}, 2, 50},
        {{1, 2, 2, "1f1b", 3, MERAK_SP_OFF}, 4, 0},
        {{2, 1, 1, "1f1b", 0, MERAK_SP_OFF}, 2, 0},
        {{2, 1, 1, "1f1b", 1, MERAK_SP_ON}, 2, 50},
        {{4, 1, 1, "1f1b", 1, MERAK_SP_AUTO}, 2, 1},
        {{2, 2, 2, "zb-h1", 1, MERAK_SP_ON}, 2, 400},
    };

    (void)state;
    check_divided(&mixture, rows, N_ROWS(rows), MERAK_EP_EXCHANGE);
}

/* Sequences over cp beside experts over ep: each rank has the rows that its
 * positions send to its experts. */
static void sequences_are_cut_beside_experts(void **state)
{
    static const struct {
        struct parity_variant v;
        int ep, cp, room, kv_heads;
        enum merak_cp_order order;
        enum merak_cp_form form;
    } rows[] = {
        {{1, 1, 1, "1f1b", 0, MERAK_SP_OFF}, 2, 2, 0, 0, 0, 0},
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 2, 100, 0, 0, MERAK_CP_HEADS},
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF},
         2,
         2,
         50,
         2,
         MERAK_CP_HEAD_TAIL,
         MERAK_CP_GATHER},
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF},
         2,
         4,
         200,
         2,
         MERAK_CP_CONTIGUOUS,
         MERAK_CP_GATHER},
        {{2, 1, 1, "1f1b", 1, MERAK_SP_ON}, 2, 2, 0, 0, 0, 0},
        {{1, 2, 2, "zb-h1", 2, MERAK_SP_OFF},
         2,
         2,
         50,
         2,
         MERAK_CP_HEAD_TAIL,
         MERAK_CP_GATHER},
    };

    (void)state;
    for (size_t i = 0; i < N_ROWS(rows); i++) {
        struct merak_plan plan = parity_plan(&rows[i].v), one;
        struct small_model model = mixture;

        model.kv_heads = (size_t)rows[i].kv_heads;
        plan.micro_batch = 4;
        plan.ep = rows[i].ep;
        plan.cp = rows[i].cp;
        plan.cp_order = rows[i].order;
        plan.cp_form = rows[i].form;
        plan.expert_room = rows[i].room;
        one = uncut(&plan);
        one.cp = 1;
        one.cp_order = 0;
        one.cp_form = 0;
        parity_plans(&model, &one, &plan, false);
    }
}

/* An expert that all tokens have is on every rank, with all rows. */
static void what_all_tokens_have_is_not_divided(void **state)
{
    static const struct divided rows[] = {
        {{1, 1, 1, "1f1b", 0, MERAK_SP_OFF}, 4, 0},
        {{2, 1, 1, "1f1b", 1, MERAK_SP_ON}, 2, 0},
        {{1, 2, 2, "zb-h1", 2, MERAK_SP_OFF}, 2, 0},
        {{1, 1, 2, "1f1b", 3, MERAK_SP_OFF}, 2, 0},
    };
    struct small_model model = mixture;

    (void)state;
    model.common = true;
    model.capacity = 0.5;
    check_divided(&model, rows, 4, MERAK_EP_GATHER);
    check_divided(&model, rows, 4, MERAK_EP_EXCHANGE);
}

/* What experts take no more of is the same under every layout, in both forms:
 * of 4 x 32 rows to two of eight experts each of these takes 2 x 4. */
static void no_layout_changes_what_is_dropped(void **state)
{
    static const struct divided rows[] = {
        {{1, 1, 1, "1f1b", 0, MERAK_SP_OFF}, 1, 0},
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 400},
        {{2, 1, 1, "1f1b", 1, MERAK_SP_ON}, 2, 400},
        {{1, 2, 2, "zb-h1", 2, MERAK_SP_OFF}, 2, 400},
        {{2, 2, 2, "1f1b", 3, MERAK_SP_OFF}, 1, 0},
    };
    struct small_model model = mixture;

    (void)state;
    model.skewed = true;
    model.capacity = 1;
    for (int i = 0; i < 2 * (int)N_ROWS(rows); i++) {
        const struct divided *row = &rows[i / 2];
        struct merak_plan plan = parity_plan(&row->v), one;
        struct executed *ex;
        double dropped;

        plan.micro_batch = 4;
        plan.ep = row->ep;
        plan.expert_room = row->room;
        plan.ep_form = (enum merak_ep_form)(i % 2);
        one = uncut(&plan);
        parity_plans(&model, &one, &plan, false);
        ex = executed_create(planned_build(&model, &plan, NULL));
        executed_step(ex, 3);
        dropped = executed_overflow(ex); /* all rows have room */
        assert_near(&dropped,
                    &(double){4. * (32 - 8) * mixture.layers * PARITY_BATCHES},
                    1, 0, 0);
        executed_destroy(ex);
    }
}

/* A draw from 0 .. n - 1. */
static int draw(uint64_t *at, int n)
{
    return (int)(merak_rng_mix(2026, (*at)++) % (uint64_t)n);
}

/* Each rank's share of the norm counts an expert once, wherever it is: norms
 * of all ranks are those of one, and so is what clipping leaves. */
static void random_layouts_have_the_norm_of_one(void **state)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "zb-h1"};
    uint64_t at = 0;

    (void)state;
    for (int i = 0; i < 24; i++) {
        struct small_model model = mixture;
        struct merak_plan plan = {.ep = 2 << draw(&at, 2),
                                  .tp = 1 + draw(&at, 2),
                                  .pp = 1 + draw(&at, 2),
                                  .dp = 1 + draw(&at, 2),
                                  .expert_room = 1 + draw(&at, 250),
                                  .ep_form = (enum merak_ep_form)(i % 2),
                                  .zero = draw(&at, 2),
                                  .sp = (enum merak_seq_parallel)draw(&at, 3),
                                  .tp_batch_percent = 100 * draw(&at, 2)},
                          one;

        model.chosen = 1 + (size_t)draw(&at, 3);
        plan.micro_batch = 4 * (size_t)plan.tp;
        plan.microbatches = PARITY_BATCHES / plan.dp;
        if (plan.dp > 1)
            plan.zero = draw(&at, MERAK_MAX_ZERO + 1);
        snprintf(plan.schedule, sizeof(plan.schedule), "%s",
                 schedules[draw(&at, 3)]);
        one = uncut(&plan);
        one.pp = one.dp = 1;
        one.zero = 0;
        one.microbatches = PARITY_BATCHES;
        snprintf(one.schedule, sizeof(one.schedule), "gpipe");
        parity_plans(&model, &one, &plan, false);
    }
}

/* A router that sends all tokens to the same experts, which are on one rank:
 * its rows are four times an even share, and none is dropped. */
static void one_rank_may_get_every_row(void **state)
{
    struct merak_plan plan = {.tp = 1,
                              .ep = 4,
                              .pp = 1,
                              .dp = 1,
                              .expert_room = 100,
                              .micro_batch = 4,
                              .microbatches = PARITY_BATCHES,
                              .schedule = "gpipe"},
                      one = uncut(&plan);
    struct small_model model = mixture;

    (void)state;
    model.skewed = true;
    model.balance = (struct merak_balance_options){0};
    parity_plans(&model, &one, &plan, false);
    plan.expert_room = 400;
    parity_plans(&model, &one, &plan, false);
    plan.tp = plan.ep = 2;
    plan.expert_room = 100;
    parity_plans(&model, &one, &plan, false);
    plan.ep_form = MERAK_EP_EXCHANGE;
    parity_plans(&model, &one, &plan, false);
    plan.tp = 1;
    plan.ep = 4;
    parity_plans(&model, &one, &plan, false);
}

/* What an axis of this name cuts of a value: a dim, or -1. */
static int cut_over(const struct merak_sharded *s, int value, const char *name)
{
    for (int a = 0; a < s->mesh.n_axes; a++) {
        if (strcmp(s->mesh.axis[a].name, name) == 0)
            return s->layout[value].at[a].kind == MERAK_SPLIT
                       ? s->layout[value].at[a].dim
                       : -1;
    }
    return -1;
}

/* Experts over ep, each one's inner width over tp, whatever the sizes are:
 * ranks of an expert then have as many rows.  Over cp rows are. */
static void each_degree_cuts_its_own_dim(void **state)
{
    static const struct {
        int node_in, dim;
    } matrices[] = {{3, 1}, {4, 1}, {5, 2}}; /* gate, up, down */
    struct merak_plan plan = {.tp = 2,
                              .cp = 2,
                              .ep = 2,
                              .pp = 1,
                              .dp = 1,
                              .micro_batch = 2,
                              .microbatches = 1,
                              .schedule = "gpipe"};
    struct merak_planned *p = planned_build(&mixture, &plan, NULL);
    const struct merak_sharded *s = p->sharded;
    int found = 0;

    (void)state;
    for (int n = 0; n < s->graph->n_forward; n++) {
        const struct merak_node *node = s->graph->node[n];

        if (strcmp(node->op->name, "experts") != 0)
            continue;
        for (size_t i = 0; i < sizeof(matrices) / sizeof(*matrices); i++) {
            int v = node->in[matrices[i].node_in]->id;

            assert_int_equal(cut_over(s, v, "ep"), 0);
            assert_int_equal(cut_over(s, v, "tp"), matrices[i].dim);
            assert_int_equal(cut_over(s, v, "cp"), -1);
        }
        /* tokens, and the rows that are kept for each expert */
        assert_int_equal(cut_over(s, node->in[0]->id, "cp"), 1);
        assert_int_equal(cut_over(s, node->out[1]->id, "cp"), 1);
        found++;
    }
    assert_int_equal(found, mixture.layers);
    merak_planned_destroy(p);
}

/* As the plugin tells tasks. */
static void tp_counts_faster_than_ep(void **state)
{
    struct merak_plan plan = {.tp = 2,
                              .ep = 4,
                              .pp = 1,
                              .dp = 1,
                              .micro_batch = 4,
                              .microbatches = 1,
                              .schedule = "gpipe"};
    struct merak_planned *p = planned_build(&mixture, &plan, NULL);

    (void)state;
    for (int i = 0; i < 8; i++) {
        int coord[MERAK_MAX_AXES];

        merak_plan_coord(p->sharded, i, 0, coord);
        assert_int_equal(coord[0], i / 2);
        assert_int_equal(coord[1], i % 2);
    }
    assert_string_equal(p->sharded->mesh.axis[0].name, "ep");
    merak_planned_destroy(p);
}

/* All 32 rows of a sequence are of two experts, which have places for
 * ceil(room 32 / 8) of their 16 each. */
static void rows_without_places_are_counted(void **state)
{
    static const struct {
        int tp, pp, room;
        double left;
    } rows[] = {
        {1, 1, 100, 96}, {2, 1, 125, 88}, {1, 2, 200, 64}, {1, 1, 400, 0}};
    struct small_model model = mixture;

    (void)state;
    model.skewed = true;
    model.balance = (struct merak_balance_options){0};
    for (size_t i = 0; i < N_ROWS(rows); i++) {
        struct merak_plan plan = {.tp = rows[i].tp,
                                  .ep = 4,
                                  .pp = rows[i].pp,
                                  .dp = 1,
                                  .expert_room = rows[i].room,
                                  .ep_form = MERAK_EP_EXCHANGE,
                                  .micro_batch = 4,
                                  .microbatches = PARITY_BATCHES,
                                  .schedule = "gpipe"};
        struct executed *ex =
            executed_create(planned_build(&model, &plan, NULL));
        double left;

        executed_step(ex, 3);
        left = executed_overflow(ex);
        assert_near(&left,
                    &(double){rows[i].left * mixture.layers * PARITY_BATCHES},
                    1, 0, 0);
        executed_destroy(ex);
    }
}

/* Of 128 rows of each micro-batch and layer the fullest rank has all and keeps
 * what its two experts have room for; those that overflow are counted once,
 * also where tensor ranks have a part of each. */
static void rows_without_room_are_counted(void **state)
{
    static const struct {
        int tp, cp, pp, room;
        double over;
    } rows[] = {{1, 1, 1, 100, 96}, {1, 1, 1, 125, 88}, {2, 1, 1, 100, 96},
                {1, 2, 1, 100, 96}, {1, 2, 1, 125, 88}, {1, 1, 2, 50, 112},
                {1, 1, 1, 400, 0},  {1, 2, 1, 400, 0}};
    struct small_model model = mixture;

    (void)state;
    model.skewed = true;
    model.balance = (struct merak_balance_options){0};
    for (size_t i = 0; i < N_ROWS(rows); i++) {
        struct merak_plan plan = {.tp = rows[i].tp,
                                  .cp = rows[i].cp,
                                  .ep = 4,
                                  .pp = rows[i].pp,
                                  .dp = 1,
                                  .expert_room = rows[i].room,
                                  .micro_batch = 4,
                                  .microbatches = PARITY_BATCHES,
                                  .schedule = "gpipe"};
        struct executed *ex =
            executed_create(planned_build(&model, &plan, NULL));
        double over;

        executed_step(ex, 3);
        over = executed_overflow(ex);
        assert_near(&over,
                    &(double){rows[i].over * mixture.layers * PARITY_BATCHES},
                    1, 0, 0);
        executed_destroy(ex);
    }
}

/* A layer of experts gathers x, for the forward and once more for both
 * gradients, and the gradient of y, and sums y and the gradient of x: each n C
 * words from every other rank. */
static void a_layer_sends_as_many_words_as_the_closed_form(void **state)
{
    (void)state;
    for (int ep = 2; ep <= 8; ep *= 2) {
        struct merak_plan plan = {.tp = 1,
                                  .ep = ep,
                                  .pp = 1,
                                  .dp = 1,
                                  .micro_batch = 8,
                                  .microbatches = 1,
                                  .schedule = "gpipe"};
        struct merak_planned *p = planned_build(&mixture, &plan, NULL);
        const struct merak_sharded *s = p->sharded;
        double words = 0, n = 8 * 16 / (double)ep;

        for (int i = 0; i < s->graph->n_nodes; i++) {
            const struct merak_shape *shape = &s->graph->node[i]->in[0]->shape;

            if (merak_sharded_exchanges(s, i) && shape->ndim == 3 &&
                shape->dim[2] == mixture.hidden)
                words += s->hop[i].words;
        }
        assert_near(&words,
                    &(double){mixture.layers * 5 * (ep - 1) * n *
                              (double)mixture.hidden},
                    1, 0, 1e-12);
        merak_planned_destroy(p);
    }
}

/* Rows go to their experts and come back, and so do their gradients: each
 * (e - 1)/e k room n C words, n tokens of a rank with k rows.  What is left
 * over needs the words of gathered tokens, but only where rows are left. */
static void rows_travel_as_many_words_as_the_closed_form(void **state)
{
    static const int room[] = {100, 125, 400};

    (void)state;
    for (int i = 0; i < 9; i++) {
        int ep = 2 << i % 3;
        struct merak_plan plan = {.tp = 1,
                                  .ep = ep,
                                  .pp = 1,
                                  .dp = 1,
                                  .expert_room = room[i / 3],
                                  .ep_form = MERAK_EP_EXCHANGE,
                                  .micro_batch = 8,
                                  .microbatches = 1,
                                  .schedule = "gpipe"};
        struct merak_planned *p = planned_build(&mixture, &plan, NULL);
        const struct merak_sharded *s = p->sharded;
        double words[2] = {0, 0}, n = 8 * 16 / (double)ep, e = ep;
        double C = (double)mixture.hidden, layers = mixture.layers;

        for (int k = 0; k < s->graph->n_nodes; k++) {
            const struct merak_node *node = s->graph->node[k];
            const struct merak_shape *shape = &node->in[0]->shape;

            if (merak_sharded_exchanges(s, k) &&
                shape->dim[shape->ndim - 1] == mixture.hidden &&
                shape->ndim >= 3)
                words[node->n_in - 1] += s->hop[k].words;
        }
        assert_near(&words[0],
                    &(double){layers * 4 * (e - 1) / e *
                              (double)mixture.chosen * room[i / 3] / 100 * n *
                              C},
                    1, 0, 1e-12);
        assert_near(&words[1], &(double){layers * 5 * (e - 1) * n * C}, 1, 0,
                    1e-12);
        merak_planned_destroy(p);
    }
}

/* What a rank's experts take of the time of all, with all tokens there. */
static void a_rank_has_the_cost_of_its_experts(void **state)
{
    const struct merak_attrs attrs = {.i = {40, 8}};
    struct merak_infer inf = {.attrs = &attrs,
                              .n_in = 6,
                              .n_out = 2,
                              .shape = {{3, {4, 16, 8}},
                                        {3, {4, 16, 2}},
                                        {3, {4, 16, 2}},
                                        {3, {2, 16, 8}},
                                        {3, {2, 16, 8}},
                                        {3, {2, 8, 16}}},
                              .dtype = {MERAK_F32, MERAK_F32, MERAK_I32,
                                        MERAK_F32, MERAK_F32, MERAK_F32}};
    const struct merak_op *op = merak_op_find("experts");
    struct merak_cost cost;

    (void)state;
    assert_int_equal(op->infer(&inf, NULL), MERAK_OK);
    op->cost(&inf, &cost);
    assert_near(&cost.flops, &(double){6.0 * 4 * 16 * 2 * (16 * 8) * 2 / 8}, 1,
                0, 1e-12);
}

/* Rows 60, 32 a rank on average: without places for 28 rows, in forward and
 * both gradients together 2.361111 times what an even share takes, with places
 * for all 1.875 times.  No rank has more than all rows of its experts. */
static void a_full_rank_takes_as_long_as_its_rows(void **state)
{
    static const struct {
        int64_t kept;
        double load, times;
    } rows[] = {{16, 60 / 32., 2.361111}, /* of each expert */
                {32, 60 / 32., 1.875},
                {16, 1, 1},
                {32, 9, 4 + 2 * 5 / 9.}};
    const struct merak_shape x = {3, {4, 16, 8}}, w = {3, {4, 16, 2}},
                             up = {3, {2, 16, 8}}, down = {3, {2, 8, 16}};
    const struct merak_op *op[] = {merak_op_find("experts"),
                                   merak_op_find("experts_dx"),
                                   merak_op_find("experts_dw")};

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        const struct merak_attrs attrs = {.i = {rows[r].kept, 8}};
        const struct merak_attrs turned = {.i = {8, rows[r].kept}};
        const struct merak_shape pool = {4, {2, (size_t)rows[r].kept, 2, 8}};
        struct merak_infer inf = {.shape = {x, w, w, up, up, down}};
        double times = 0;

        for (int i = 0; i < 3; i++) {
            inf.attrs = i < 2 ? &attrs : &turned;
            inf.shape[7] = pool; /* each op's */
            inf.shape[6] = i < 2 ? pool : up;
            inf.shape[4] = i < 2 ? up : pool;
            times += op[i]->loaded(&inf, rows[r].load) / 3;
        }
        assert_near(&times, &rows[r].times, 1, 1e-6, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_over_ranks_compute_the_same),
        cmocka_unit_test(experts_exchange_rows),
        cmocka_unit_test(sequences_are_cut_beside_experts),
        cmocka_unit_test(what_all_tokens_have_is_not_divided),
        cmocka_unit_test(no_layout_changes_what_is_dropped),
        cmocka_unit_test(random_layouts_have_the_norm_of_one),
        cmocka_unit_test(one_rank_may_get_every_row),
        cmocka_unit_test(rows_without_room_are_counted),
        cmocka_unit_test(rows_without_places_are_counted),
        cmocka_unit_test(each_degree_cuts_its_own_dim),
        cmocka_unit_test(tp_counts_faster_than_ep),
        cmocka_unit_test(a_rank_has_the_cost_of_its_experts),
        cmocka_unit_test(a_full_rank_takes_as_long_as_its_rows),
        cmocka_unit_test(a_layer_sends_as_many_words_as_the_closed_form),
        cmocka_unit_test(rows_travel_as_many_words_as_the_closed_form),
    };

    return cmocka_run_group_tests_name("parity_experts", tests, NULL, NULL);
}
