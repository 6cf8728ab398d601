/* SPDX-License-Identifier: Apache-2.0 */
/* test_interlaced.c - embedding and head cut over all stages */
#include "config.h"

#include "unit/small_plans.h"
#include "partitioner/simulate/check.h"
#include "partitioner/simulate/simulate.h"

#include <stdio.h>
#include <string.h>

/* A table that outweighs the layers. */
static const struct small_model wide = {
    .layers = 8, .vocab = 50003, .hidden = 128, .heads = 4};

static struct merak_plan plan_of(int tp, int pp, int m, int chunks)
{
    struct merak_plan plan = {
        .tp = tp, .pp = pp, .dp = 1, .microbatches = m, .chunks = chunks};

    snprintf(plan.schedule, sizeof(plan.schedule), "interlaced");
    return plan;
}

/* Few and many micro-batches, odd and even numbers of stages. */
static void every_size_is_sound(void **state)
{
    static const int count[] = {1, 2, 5, 16};
    struct small_model model = {
        .layers = 5, .vocab = 61, .hidden = 16, .heads = 4};

    (void)state;
    for (int pp = 2; pp <= 9; pp++) {
        for (int i = 0; i < 16; i++) {
            struct merak_plan plan =
                plan_of(1 + i / 4 % 2, pp, count[i % 4], 3 - i / 8);
            struct merak_planned *p;

            model.untied = plan.chunks == 2;
            p = planned_build(&model, &plan, NULL);
            planned_assert_sound(p);
            merak_planned_destroy(p);
        }
    }
}

/* Tensor ranks that share out samples look up slices of the tokens: still an
 * embedding, not part of a head. */
static void samples_are_looked_up_in_slices(void **state)
{
    const struct small_model model = {
        .layers = 5, .vocab = 61, .hidden = 16, .heads = 4, .untied = true};

    (void)state;
    for (int chunks = 2; chunks <= 3; chunks++) {
        struct merak_plan plan = plan_of(2, 3, 6, chunks);
        struct merak_planned *p;

        plan.tp_batch_percent = 100;
        plan.micro_batch = 4;
        p = planned_build(&model, &plan, NULL);
        assert_true(p->sharded->saved > 0);
        planned_assert_sound(p);
        for (int n = 0; n < p->sharded->graph->n_nodes; n++) {
            if (strcmp(p->sharded->graph->node[n]->op->name, "embedding") ==
                    0 &&
                strcmp(p->sharded->graph->node[n]->in[1]->name, "wte") == 0)
                assert_int_equal(p->stages->of_node[n], 3);
        }
        merak_planned_destroy(p);
    }
}

static const struct merak_param_slots *
param_of(const struct merak_program *program, const char *name)
{
    for (int i = 0; i < program->n_params; i++) {
        if (strcmp(program->param[i].name, name) == 0)
            return &program->param[i];
    }
    fail_msg("rank %d has no %s", program->rank, name);
    return NULL;
}

/* Elements kept for a parameter: itself, moments and gradients. */
static size_t kept_for(const struct merak_program *program, const char *name)
{
    int value = param_of(program, name)->value;
    size_t n = 0;

    for (int s = 0; s < program->n_slots; s++) {
        const struct merak_slot *slot = &program->slot[s];
        const struct merak_value *v =
            slot->value < 0 ? NULL
                            : program->sharded->graph->value[slot->value];

        if (v != NULL && slot->whole == s &&
            slot->offset + slot->bytes <= program->persistent_bytes &&
            (v->id == value ||
             (v->kind == MERAK_VALUE_PARAM_GRAD && v->of == value)))
            n += slot->flat_hi - slot->flat_lo;
    }
    return n;
}

/* Rows of the table lie in order on tp x pp ranks, each once; a rank keeps
 * weights, two moments and the gradients of two uses for its own only. */
static void each_rank_holds_its_share(void **state)
{
    (void)state;
    for (int tp = 1; tp <= 2; tp++) {
        struct merak_plan plan = plan_of(tp, 4, 8, 3);
        struct merak_planned *p = planned_build(&wide, &plan, NULL);
        size_t rows = 0, ranks = (size_t)(tp * 4);

        for (int t = 0; t < tp; t++) {
            for (int s = 0; s < 4; s++) {
                const struct merak_program *program =
                    p->program[merak_plan_rank(&plan, t, 0, s)];
                const struct merak_param_slots *wte = param_of(program, "wte");
                const struct merak_slot *slot = &program->slot[wte->param];

                assert_int_equal(slot->box.lo[0], rows);
                assert_int_equal(slot->box.len[1], wide.hidden);
                assert_true(slot->box.len[0] <= wide.vocab / ranks + 1);
                assert_true(wte->primary);
                assert_int_equal(kept_for(program, "wte"),
                                 5 * slot->box.len[0] * wide.hidden);
                rows += slot->box.len[0];
            }
        }
        assert_int_equal(rows, wide.vocab);
        merak_planned_destroy(p);
    }
}

static struct merak_planned *planned(const char *schedule, int m)
{
    struct merak_plan plan = plan_of(1, 4, m, 0);

    snprintf(plan.schedule, sizeof(plan.schedule), "%s", schedule);
    return planned_build(&wide, &plan, NULL);
}

/* Bytes of the largest slot that is not kept from step to step. */
static size_t largest(const struct merak_program *program)
{
    size_t most = 0;

    for (int s = 0; s < program->n_slots; s++) {
        if (program->slot[s].offset >= program->persistent_bytes &&
            program->slot[s].bytes > most)
            most = program->slot[s].bytes;
    }
    return most;
}

/* Against 1f1b, whose first and last stages hold all of the tied table. */
static void the_ends_need_less_memory(void **state)
{
    struct merak_planned *shared = planned("interlaced", 8);
    struct merak_planned *whole = planned("1f1b", 8);
    size_t table = wide.vocab * wide.hidden * sizeof(float);

    (void)state;
    for (int s = 0; s < 4; s += 3) {
        const struct merak_program *a = shared->program[s];
        const struct merak_program *b = whole->program[s];
        /* Weights, moments and a gradient for each use: 1f1b has one use on
         * each of the ends, and here both uses have a quarter. */
        size_t less = table * 4 - table * 5 / 4;

        assert_true(b->persistent_bytes >= 4 * table);
        assert_true(a->persistent_bytes < b->persistent_bytes - less / 2);
        assert_true(a->arena_bytes < b->arena_bytes / 2);
    }
    /* The logits of a micro-batch, too. */
    assert_int_equal(largest(shared->program[3]),
                     (wide.vocab + 3) / 4 * 32 * sizeof(float));
    assert_true(largest(whole->program[3]) >= wide.vocab * 32 * sizeof(float));
    merak_planned_destroy(shared);
    merak_planned_destroy(whole);
}

static double step_of(const struct merak_planned *p)
{
    struct merak_timeline *timeline = NULL;
    struct merak_error err;
    double step;

    assert_int_equal(
        merak_simulate(p->program, p->n_programs, NULL, NULL, &timeline, &err),
        MERAK_OK);
    step = timeline->step_s;
    merak_timeline_destroy(timeline);
    return step;
}

/* The head is most of the work: on the last stage alone, all wait for it. */
static void a_large_head_is_no_bottleneck(void **state)
{
    struct merak_planned *shared = planned("interlaced", 16);
    struct merak_planned *whole = planned("1f1b", 16);

    (void)state;
    assert_true(step_of(shared) < 0.6 * step_of(whole));
    merak_planned_destroy(shared);
    merak_planned_destroy(whole);
}

/* Every parameter and every operation is counted once. */
static void work_is_counted_once(void **state)
{
    struct merak_planned *p = planned("interlaced", 4);
    double flops = 0, all = merak_graph_flops(p->sharded->graph);
    size_t params = 0;

    (void)state;
    assert_int_equal(p->stages->n, 6);
    for (int s = 0; s < p->stages->n; s++) {
        flops += p->stages->flops[s];
        params += p->stages->params[s];
    }
    assert_near(&flops, &all, 1, 1e-9, 0);
    assert_int_equal(params, merak_graph_param_count(p->graph));
    assert_int_equal(p->stages->params[4], wide.vocab * wide.hidden);
    assert_int_equal(p->stages->params[5], 0); /* tied */
    merak_planned_destroy(p);
}

/* Nothing but what crosses goes from stage to stage: of a micro-batch the
 * stream up and its gradient down, the head's input and the embedding's
 * gradient from one end to the other. */
static void interlaced_stages_send_boundaries_alone(void **state)
{
    struct merak_planned *p = planned("interlaced", 4);

    (void)state;
    for (int s = 0; s < 4; s++) {
        int sends = 0;

        for (int i = 0; i < p->program[s]->n_instrs; i++) {
            const struct merak_instr *in = &p->program[s]->instr[i];

            sends += in->kind == MERAK_INSTR_SEND && in->microbatch == 0;
        }
        assert_int_equal(sends, (s < 3) + (s > 0) + (s > 0) + (s < 3));
    }
    merak_planned_destroy(p);
}

/* The maximum and a sum of one micro-batch's loss, the other way round on one
 * stage: a deadlock, or worse. */
static void swapped_exchanges_are_caught(void **state)
{
    struct merak_planned *p = planned("interlaced", 2);
    struct merak_instr *at[3];
    struct merak_error err;
    uint64_t tag;
    int n = 0;

    (void)state;
    planned_assert_sound(p);
    for (int i = 0; n < 3; i++) {
        if (p->program[2]->instr[i].kind == MERAK_INSTR_EXCHANGE)
            at[n++] = &p->program[2]->instr[i];
    }
    tag = at[1]->tag;
    at[1]->tag = at[2]->tag;
    at[2]->tag = tag;
    assert_int_equal(merak_program_check(p->program, p->n_programs, &err),
                     MERAK_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "group pp: rank 0 runs"));
    merak_planned_destroy(p);
}

static void what_does_not_fit_is_refused(void **state)
{
    static const struct {
        int pp, chunks;
        size_t vocab;
        bool sub_pipeline;
        const char *text;
    } rows[] = {
        {1, 3, 61, false, "1 stage given, it needs 2 or more: set pp = 2"},
        {2, 1, 61, false, "it runs 2 or more model chunks per rank"},
        {2, 5, 61, false, "5 model chunks per rank given, it runs at most 4"},
        {2, 4, 61, false, "set chunks = 3 (embedding and head"},
        {2, 2, 61, false, "wte is tied: cut over all stages"},
        {4, 3, 3, false, "a vocabulary of 3 cannot be cut over 4 ranks"},
        {2, 3, 61, true, "does not run with --sub-pipeline yes"},
        {16, 3, 61, false, "cut points, 16 stages need 15"},
    };
    struct small_model model = {
        .layers = 4, .vocab = 61, .hidden = 16, .heads = 4};
    struct merak_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = plan_of(1, rows[i].pp, 4, rows[i].chunks);

        plan.sub_pipeline = rows[i].sub_pipeline;
        model.vocab = rows[i].vocab;
        if (planned_try(&model, &plan, &err) == MERAK_OK)
            fail_msg("row %zu: not refused", i);
        if (strstr(err.text, rows[i].text) == NULL)
            fail_msg("row %zu: refused as \"%s\"", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_sound),
        cmocka_unit_test(samples_are_looked_up_in_slices),
        cmocka_unit_test(each_rank_holds_its_share),
        cmocka_unit_test(the_ends_need_less_memory),
        cmocka_unit_test(a_large_head_is_no_bottleneck),
        cmocka_unit_test(work_is_counted_once),
        cmocka_unit_test(interlaced_stages_send_boundaries_alone),
        cmocka_unit_test(swapped_exchanges_are_caught),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests_name("interlaced", tests, NULL, NULL);
}
