/* SPDX-License-Identifier: Apache-2.0 */
/* test_loss_pieces.c - logits in pieces: what is computed, what they take, what
 * is refused */
#include "config.h"

#include "unit/parity.h"

#include "base/error.h"
#include "partitioner/search/search.h"
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

/* Wherever the last part begins, but behind the head; there alone, it sends the
 * gradient of its input with its backward. */
static void pieces_change_no_bit_by_cuts(void **state)
{
    struct merak_plan plan = planned_plan(1, 2, 1, PARITY_BATCHES, "1f1b", 0);
    struct merak_plan flat = planned_plan(1, 1, 1, PARITY_BATCHES, "gpipe", 0);
    int done = 0, refused = 0;

    (void)state;
    plan.loss_pieces = flat.loss_pieces = 4;
    for (int cut = 0; cut < 8; cut++) {
        struct merak_error err = {.text = ""};

        plan.cut = &cut;
        if (planned_try(&gpt, &plan, &err) == MERAK_OK) {
            parity_plans(&gpt, &flat, &plan, true);
            done++;
        } else if (strstr(err.text, "is cut from its loss") != NULL) {
            refused++;
        }
    }
    assert_true(done >= 5);
    assert_int_equal(refused, 1);
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

/* Does it make logits again? */
static bool makes_again(const struct merak_program *prog)
{
    for (int i = 0; i < prog->n_instrs; i++) {
        if (prog->instr[i].recompute)
            return true;
    }
    return false;
}

/* A loop has its gradients, or begins with logits again where tensor ranks cut
 * sums by rows; an evaluation has neither. */
static void logits_are_made_once_where_that_is_enough(void **state)
{
    static const struct {
        int tp;
        enum merak_seq_parallel sp;
        bool again;
    } plans[] = {{1, MERAK_SP_OFF, false}, {2, MERAK_SP_ON, true}};
    const struct merak_program_options forward = {.forward_only = true};

    (void)state;
    for (size_t i = 0; i < sizeof(plans) / sizeof(*plans); i++) {
        struct merak_plan plan = planned_plan(plans[i].tp, 1, 1, 4, "gpipe", 0);
        struct merak_planned *p;

        plan.sp = plans[i].sp;
        plan.loss_pieces = 4;
        p = planned_build(&gpt, &plan, NULL);
        assert_int_equal(makes_again(p->program[0]), plans[i].again);
        merak_planned_destroy(p);
        p = planned_build(&gpt, &plan, &forward);
        planned_assert_sound(p);
        for (int k = 0; k < p->program[0]->n_instrs; k++)
            assert_int_equal(p->program[0]->instr[k].phase, MERAK_PHASE_F);
        merak_planned_destroy(p);
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

/* --- searches ------------------------------------------------------------- */

enum { LAYERS = 16, WIDTH = 64, VOCAB = 16384 };

static void describe(struct merak_model *m, void *arg)
{
    struct merak_value *x =
        merak_embedding(m, merak_tokens(m),
                        MERAK_PARAM(m, "wte", MERAK_NORMAL(1), VOCAB, WIDTH));

    (void)arg;
    for (int l = 0; l < LAYERS; l++) {
        struct merak_value *w = MERAK_PARAM(m, merak_name(m, "h.%d.up", l),
                                            MERAK_NORMAL(1), 4 * WIDTH, WIDTH);
        struct merak_value *h =
            merak_gelu(m, merak_linear(m, x, w, NULL, 1), true);

        w = MERAK_PARAM(m, merak_name(m, "h.%d.down", l), MERAK_NORMAL(1),
                        WIDTH, 4 * WIDTH);
        x = merak_add(m, x, merak_linear(m, h, w, NULL, 1));
    }
    merak_cross_entropy(
        m,
        merak_linear(m, x,
                     MERAK_PARAM(m, "head", MERAK_NORMAL(1), VOCAB, WIDTH),
                     NULL, 1),
        merak_targets(m));
}

/* The best plan of one rank with so much memory, logits whole or as is found.
 */
static struct merak_search_choice best(size_t memory_bytes, bool may_fold)
{
    struct merak_device device = {
        .memory_bytes = (size_t)1 << 40,
        .bytes_per_s = 1e11,
        .kernel_s = 1e-6,
        .links.level[0] = {.ranks = 1, .bytes_per_s = 1e10, .latency_s = 1e-6}};
    struct merak_search_input in = {.describe = describe,
                                    .seq = 256,
                                    .dtype = MERAK_F32,
                                    .global_batch = 2,
                                    .nodes = 1,
                                    .ranks_per_node = 1,
                                    .threads = 1,
                                    .memory_bytes = memory_bytes,
                                    .device = &device};
    struct merak_search_result *r = NULL;
    struct merak_search_choice choice;
    struct merak_error err = {.text = ""};

    device.flops_per_s[MERAK_F32] = device.peak_flops_per_s[MERAK_F32] = 1e12;
    in.pin.micro_batch = 1;
    in.pin.given[MERAK_CHOICE_MICRO_BATCH] = true;
    in.pin.loss_pieces = may_fold ? MERAK_OPTION_AUTO : 1;
    if (merak_search(&in, &r, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    choice = r->choice[0];
    choice.plan.drop = NULL; /* are gone with the result */
    choice.plan.cut = NULL;
    merak_search_destroy(r);
    return choice;
}

/* Where memory is short, pieces come before recomputation: they take less
 * time. */
static void searches_fold_before_they_recompute(void **state)
{
    struct merak_search_choice whole = best(0, false), few, folded;

    (void)state;
    assert_int_equal(best(0, true).plan.loss_pieces, 1);
    few = best(whole.memory_bytes * 9 / 10, false);
    folded = best(whole.memory_bytes * 9 / 10, true);
    assert_true(few.step_s > 1.01 * whole.step_s); /* it recomputes */
    assert_true(folded.plan.loss_pieces > 1);
    assert_int_equal(folded.plan.recompute, MERAK_RECOMPUTE_NONE);
    assert_true(folded.step_s < few.step_s);
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
        cmocka_unit_test(pieces_change_no_bit_by_cuts),
        cmocka_unit_test(logits_are_made_once_where_that_is_enough),
        cmocka_unit_test(pieces_compute_what_all_at_once_does),
        cmocka_unit_test(slots_of_logits_are_those_of_a_piece),
        cmocka_unit_test(searches_know_of_pieces),
        cmocka_unit_test(searches_fold_before_they_recompute),
        cmocka_unit_test(what_has_no_pieces_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
