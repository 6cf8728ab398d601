/* SPDX-License-Identifier: Apache-2.0 */
/* test_loss_pieces.c - logits in pieces: what is computed, what they take, what
 * is refused */
#include "config.h"

#include "unit/parity.h"

#include "base/error.h"
#include "partitioner/search/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct small_model gpt = {
    .layers = 2, .vocab = 61, .hidden = 16, .heads = 4};

/* --- numbers -------------------------------------------------------------- */

struct row {
    struct parity_variant v;
    int pieces, chunks;
    enum merak_recompute recompute;
    bool untied;
    int batch; /* tp_batch_percent */
};

static const struct row rows[] = {
    {{1, 1, 1, "gpipe", 0, MERAK_SP_OFF}, 2, 1, MERAK_RECOMPUTE_FULL, 0, 0},
    {{1, 2, 1, "1f1b", 0, MERAK_SP_OFF}, 4, 1, 0, true, 0},
    {{1, 2, 1, "1f1b", 0, MERAK_SP_OFF}, 32, 1, MERAK_RECOMPUTE_FULL, 0, 0},
    {{1, 2, 1, "zb-h1", 0, MERAK_SP_OFF}, 4, 1, 0, false, 0},
    {{1, 2, 1, "zb-h1", 0, MERAK_SP_OFF}, 4, 1, MERAK_RECOMPUTE_FULL, true, 0},
    {{1, 2, 1, "scp", 0, MERAK_SP_OFF}, 8, 1, MERAK_RECOMPUTE_FULL, false, 0},
    {{1, 2, 1, "zb-v", 1, MERAK_SP_OFF}, 2, 2, 0, true, 0},
    {{1, 2, 1, "interleaved", 0, MERAK_SP_OFF}, 2, 2, 0, false, 0},
    {{1, 2, 2, "1f1b", 3, MERAK_SP_OFF}, 4, 1, 0, true, 0},
    {{1, 2, 2, "gpipe", 2, MERAK_SP_OFF},
     4,
     1,
     MERAK_RECOMPUTE_SELECTIVE,
     false,
     0},
    {{2, 2, 1, "1f1b", 0, MERAK_SP_OFF}, 4, 1, 0, true, 0},
    {{2, 2, 1, "gpipe", 0, MERAK_SP_ON}, 8, 1, MERAK_RECOMPUTE_FULL, 0, 0},
    {{2, 2, 2, "zb-h1", 1, MERAK_SP_ON}, 4, 1, 0, false, 0},
    {{2, 2, 1, "1f1b", 0, MERAK_SP_OFF}, 8, 1, 0, true, 100},
};

static struct merak_plan plan_of(const struct row *row)
{
    struct merak_plan plan = parity_plan(&row->v);

    plan.chunks = row->chunks;
    plan.recompute = row->recompute;
    plan.tp_batch_percent = row->batch;
    plan.loss_pieces = row->pieces;
    return plan;
}

/* At a number of pieces: to the bit. */
static void pieces_change_no_bit_by_stages(void **state)
{
    struct small_model model = gpt;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = plan_of(&rows[i]), flat = plan;

        model.untied = rows[i].untied;
        model.dtype = i % 3 == 1 ? MERAK_BF16 : MERAK_F32;
        model.dropout = i % 2 ? 0.1f : 0;
        flat.pp = flat.chunks = 1;
        flat.recompute = MERAK_RECOMPUTE_NONE;
        snprintf(flat.schedule, sizeof(flat.schedule), "gpipe");
        parity_plans(&model, &flat, &plan, true);
    }
}

/* As without pieces: losses to the bit, gradients of the head to rounding. */
static void pieces_compute_what_all_at_once_does(void **state)
{
    struct small_model model = gpt;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = plan_of(&rows[i]), whole = plan;
        double want[PARITY_STEPS], got[PARITY_STEPS];

        model.untied = rows[i].untied;
        whole.loss_pieces = 0;
        parity_plans(&model, &whole, &plan, false);
        executed_destroy(parity_trained(&model, &whole, want));
        executed_destroy(parity_trained(&model, &plan, got));
        if (memcmp(want, got, sizeof(*want)) != 0)
            fail_msg("row %zu: loss %.17g, whole %.17g", i, got[0], want[0]);
    }
}

/* --- memory --------------------------------------------------------------- */

/* The most bytes that a slot has of a value with a vocabulary. */
static size_t most_bytes(const struct merak_program *prog, size_t vocab)
{
    size_t most = 0;

    for (int s = 0; s < prog->n_slots; s++) {
        const struct merak_slot *slot = &prog->slot[s];

        if (slot->value >= 0 && slot->box.ndim == 3 &&
            slot->box.full[2] == vocab && slot->bytes > most)
            most = slot->bytes;
    }
    return most;
}

static void slots_of_logits_are_those_of_a_piece(void **state)
{
    struct small_model model = gpt;

    (void)state;
    model.vocab = 509;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = plan_of(&rows[i]), whole = plan;
        struct merak_planned *a, *b;
        int last = merak_plan_ranks(&plan) - 1;

        if (plan.chunks > 1) /* the last part may be on another stage */
            continue;
        model.untied = rows[i].untied;
        whole.loss_pieces = 0;
        a = planned_build(&model, &whole, NULL);
        b = planned_build(&model, &plan, NULL);
        planned_assert_sound(b);
        assert_int_equal(most_bytes(a->program[last], 509),
                         (size_t)plan.loss_pieces *
                             most_bytes(b->program[last], 509));
        assert_true(b->program[last]->arena_bytes <
                    a->program[last]->arena_bytes);
        merak_planned_destroy(a);
        merak_planned_destroy(b);
    }
}

/* --- time ----------------------------------------------------------------- */

/* Seconds of a micro-batch's kernels, on one rank. */
static double kernels_s(const struct merak_program *prog)
{
    double s = 0;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->microbatch == 0 && in->queue == MERAK_QUEUE_COMPUTE)
            s += in->cost_s;
    }
    return s;
}

/* The search's table has the times of programs, the second forward included,
 * and less memory. */
static void searches_know_of_pieces(void **state)
{
    static const int pieces[] = {1, 2, 8};
    const struct merak_search_input in = {.global_batch = 2};
    struct small_model model = gpt;
    double least = 0, peak = 0;

    (void)state;
    model.vocab = 4093;
    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
        struct merak_plan plan = planned_plan(1, 1, 1, 4, "gpipe", 0);
        struct merak_table *table;
        struct merak_planned *p;
        double most = 0, s;

        plan.loss_pieces = pieces[i];
        p = planned_build(&model, &plan, NULL);
        s = kernels_s(p->program[0]);
        assert_int_equal(merak_table_create(&in, merak_cost_default(),
                                            p->sharded, NULL, 1, 1, pieces[i],
                                            &table, NULL),
                         MERAK_OK);
        if (fabs(table->total_s - s) > 0.01 * s)
            fail_msg("%d pieces: the table has %.9g s, programs %.9g",
                     pieces[i], table->total_s, s);
        for (int k = 0; k < table->n; k++)
            most = fmax(most, table->segment[k].peak);
        assert_true(s > least);
        assert_true(i == 0 || most < 0.6 * peak);
        least = s;
        peak = most;
        merak_table_destroy(table);
        merak_planned_destroy(p);
    }
}

/* --- refusals ------------------------------------------------------------- */

static void what_has_no_pieces_is_refused(void **state)
{
    static const struct {
        int pieces;
        const char *schedule;
        bool sub;
        const char *why;
    } bad[] = {
        {3, "1f1b", false, "--loss-pieces 3: a rank has 2 x 16 rows"},
        {5, "gpipe", false, "expected a divisor"},
        {64, "1f1b", false, "--loss-pieces 64: a rank has 2 x 16 rows"},
        {2, "1f1b", true, "--sub-pipeline"},
        {2, "sliced:2", false, "--schedule sliced:2, which cuts sequences"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct merak_plan plan = planned_plan(1, 2, 1, 4, bad[i].schedule, 0);
        struct merak_error err = {.text = ""};

        plan.loss_pieces = bad[i].pieces;
        plan.sub_pipeline = bad[i].sub;
        if (strncmp(bad[i].schedule, "sliced", 6) == 0)
            plan.micro_batch = 1;
        assert_int_not_equal(planned_try(&gpt, &plan, &err), MERAK_OK);
        if (strstr(err.text, bad[i].why) == NULL)
            fail_msg("row %zu: %s", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_change_no_bit_by_stages),
        cmocka_unit_test(pieces_compute_what_all_at_once_does),
        cmocka_unit_test(slots_of_logits_are_those_of_a_piece),
        cmocka_unit_test(searches_know_of_pieces),
        cmocka_unit_test(what_has_no_pieces_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
