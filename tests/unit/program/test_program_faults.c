/* SPDX-License-Identifier: Apache-2.0 */
/* test_program_faults.c - every fault of a program is found, and what cannot be
 * planned is refused
 */
#include "config.h"

#include "unit/small_plans.h"
#include "partitioner/simulate/check.h"

#include <stdlib.h>
#include <string.h>

static const struct small_model gpt = {
    .layers = 4, .vocab = 61, .hidden = 32, .heads = 4};

/* As `what`, or as `other`, if that is not NULL. */
static void assert_caught_as(struct merak_planned *p, const char *what,
                             const char *other)
{
    struct merak_error err = {0};

    if (merak_program_check(p->program, p->n_programs, &err) == MERAK_OK)
        fail_msg("not caught: expected \"%s\"", what);
    if (strstr(err.text, what) == NULL &&
        (other == NULL || strstr(err.text, other) == NULL))
        fail_msg("caught as \"%s\", expected \"%s\"", err.text, what);
}

static void assert_caught(struct merak_planned *p, const char *what)
{
    assert_caught_as(p, what, NULL);
}

static struct merak_planned *faulty(void)
{
    struct merak_plan plan = planned_plan(1, 2, 2, 4, "1f1b", true);
    struct merak_planned *p = planned_build(&gpt, &plan, NULL);

    planned_assert_sound(p);
    return p;
}

static void swapped_exchanges_are_caught(void **state)
{
    struct merak_instr *a, *b;
    struct merak_planned *p;
    uint64_t tag;

    (void)state;
    p = faulty();
    a = planned_find(p->program[1], MERAK_INSTR_EXCHANGE, 2);
    b = planned_find(p->program[1], MERAK_INSTR_EXCHANGE, 3);
    tag = a->tag;
    a->tag = b->tag;
    b->tag = tag;
    assert_caught(p, "group dp: rank 0 runs");
    merak_planned_destroy(p);
}

static void a_missing_exchange_is_caught(void **state)
{
    struct merak_planned *p;
    struct merak_instr *in = NULL;

    (void)state;
    p = faulty();
    for (int i = 0; i < p->program[1]->n_instrs; i++) {
        if (p->program[1]->instr[i].kind == MERAK_INSTR_EXCHANGE)
            in = &p->program[1]->instr[i];
    }
    in->kind = MERAK_INSTR_LOAD; /* the last one: its result from nowhere */
    in->n_in = 0;
    in->slot[0] = in->slot[1];
    assert_caught(p, "nothing");
    merak_planned_destroy(p);
}

static void a_missing_send_is_caught(void **state)
{
    struct merak_instr *in;
    struct merak_planned *p;

    (void)state;
    p = faulty();
    in = planned_find(p->program[0], MERAK_INSTR_SEND, 1);
    in->kind = MERAK_INSTR_LOAD; /* of nothing */
    in->n_in = 0;
    assert_caught(p, "has no send of tag");
    merak_planned_destroy(p);
}

static void a_wrong_tag_is_caught(void **state)
{
    struct merak_planned *p;

    (void)state;
    p = faulty();
    planned_find(p->program[2], MERAK_INSTR_SEND, 0)->tag += 1;
    assert_caught(p, "of tag");
    merak_planned_destroy(p);
}

static void a_repeated_tag_is_caught(void **state)
{
    struct merak_planned *p;

    (void)state;
    p = faulty();
    planned_find(p->program[0], MERAK_INSTR_SEND, 1)->tag =
        planned_find(p->program[0], MERAK_INSTR_SEND, 0)->tag;
    assert_caught(p, "used twice");
    merak_planned_destroy(p);
}

static void a_small_slot_is_caught(void **state)
{
    struct merak_planned *p;

    (void)state;
    p = faulty();
    p->program[3]->slot[p->program[3]->param[0].m].bytes -= 4;
    assert_caught(p, "rank 3 slot");
    merak_planned_destroy(p);
}

static void overlapping_slots_are_caught(void **state)
{
    struct merak_instr *in;
    struct merak_planned *p;

    (void)state;
    p = faulty();
    /* an input of a kernel put where its other input is */
    for (int nth = 0;; nth++) {
        in = planned_find(p->program[0], MERAK_INSTR_KERNEL, nth);
        if (strcmp(in->op->name, "attention_packed_dx") == 0)
            break;
    }
    p->program[0]->slot[in->slot[0]].offset =
        p->program[0]->slot[in->slot[1]].offset;
    assert_caught(p, "overwritten by");
    merak_planned_destroy(p);
}

/* Logits, where their gradient was written over them. */
static void a_read_of_what_was_overwritten_is_caught(void **state)
{
    struct merak_program *prog;
    struct merak_planned *p;
    int logits = -1;

    (void)state;
    p = faulty();
    prog = p->program[3]; /* of the last stage */
    for (int i = 0; i < prog->n_instrs; i++) {
        struct merak_instr *in = &prog->instr[i];

        if (in->kind != MERAK_INSTR_KERNEL)
            continue;
        if (strcmp(in->op->name, "xent_dlogits") == 0)
            logits = in->slot[0];
        if (strcmp(in->op->name, "linear_dx") == 0 && logits >= 0) {
            in->slot[0] = logits;
            break;
        }
    }
    assert_caught(p, "was overwritten by xent_dlogits");
    merak_planned_destroy(p);
}

static void a_slot_past_the_end_is_caught(void **state)
{
    struct merak_program *prog;
    struct merak_planned *p;

    (void)state;
    p = faulty();
    prog = p->program[0];
    prog->slot[prog->n_slots - 1].offset = prog->arena_bytes;
    assert_caught(p, "ends at byte");
    merak_planned_destroy(p);
}

/* Activations come back from the host once the gradient that needs them is
 * here: earlier would take memory, and be right. */
static bool is_pace(const struct merak_instr *in,
                    const struct merak_instr *before)
{
    return in->kind == MERAK_INSTR_COPY && before->kind == MERAK_INSTR_RECV;
}

/* Waits are pruned, so every single one matters. */
static void drop_each_wait(struct merak_planned *p)
{
    int dropped = 0;

    for (int r = 0; r < p->n_programs; r++) {
        struct merak_program *prog = p->program[r];

        for (int i = 0; i < prog->n_instrs; i++) {
            struct merak_instr *in = &prog->instr[i];

            for (int w = 0; w < in->n_wait; w++) {
                int *wait = &prog->wait[in->first_wait];
                int kept = wait[w];

                if (is_pace(in, &prog->instr[kept]))
                    continue;
                wait[w] = wait[in->n_wait - 1];
                in->n_wait--;
                assert_caught_as(p, "does not wait for",
                                 "does not start with the exchange before it");
                in->n_wait++;
                wait[w] = kept;
                dropped++;
            }
        }
    }
    assert_true(dropped > 50);
    planned_assert_sound(p);
    merak_planned_destroy(p);
}

static void every_missing_wait_is_caught(void **state)
{
    struct merak_plan sliced = planned_plan(1, 2, 1, 3, "sliced:4/60", false);

    (void)state;
    drop_each_wait(faulty());
    sliced.micro_batch = 1;
    sliced.recompute = MERAK_RECOMPUTE_FULL;
    drop_each_wait(planned_build(&gpt, &sliced, NULL));
}

/* Where parameters are fetched, for all of a step or inside nodes, and where
 * activations and state come back from the host. */
static void every_missing_wait_for_a_copy_is_caught(void **state)
{
    struct merak_plan plan = planned_plan(1, 2, 2, 2, "1f1b", true);

    (void)state;
    plan.zero = MERAK_ZERO_PARAMS;
    drop_each_wait(planned_build(&gpt, &plan, NULL));
    plan.recompute = MERAK_RECOMPUTE_FULL;
    plan.offload = MERAK_OFFLOAD_ALL;
    drop_each_wait(planned_build(&gpt, &plan, NULL));
    plan = planned_plan(1, 1, 4, 2, "1f1b", true);
    plan.zero = MERAK_ZERO_PARAMS;
    plan.dp_in = 2;
    plan.zero_home = MERAK_HOME_IN;
    drop_each_wait(planned_build(&gpt, &plan, NULL));
}

/* A weight of the last block, read by the last kernel of the backward, long
 * after its memory has been given up. */
static void a_parameter_read_late_is_caught(void **state)
{
    struct merak_plan plan = planned_plan(1, 1, 2, 2, "1f1b", true);
    struct merak_instr *last = NULL;
    struct merak_planned *p;
    struct merak_program *prog;
    int fetched = -1;

    (void)state;
    plan.zero = MERAK_ZERO_PARAMS;
    p = planned_build(&gpt, &plan, NULL);
    planned_assert_sound(p);
    prog = p->program[0];
    for (int i = 0; i < prog->n_params; i++) {
        if (strncmp(prog->param[i].name, "h.3.", 4) == 0 &&
            prog->param[i].home != prog->param[i].param)
            fetched = prog->param[i].param;
    }
    for (int i = 0; i < prog->n_instrs; i++) {
        if (prog->instr[i].kind == MERAK_INSTR_KERNEL &&
            strcmp(prog->instr[i].op->name, "linear_dx") == 0)
            last = &prog->instr[i];
    }
    assert_true(fetched >= 0 && last != NULL);
    last->slot[1] = fetched;
    assert_caught(p, "was overwritten by");
    merak_planned_destroy(p);
}

/* Exchanges that start together start so on all ranks, and wait for the same.
 */
static void broken_bundles_are_caught(void **state)
{
    struct merak_plan plan = planned_plan(1, 1, 2, 2, "1f1b", true);
    struct merak_planned *p;
    struct merak_instr *in, *joined = NULL, was;
    struct merak_program *prog;

    (void)state;
    plan.zero = MERAK_ZERO_PARAMS;
    p = planned_build(&gpt, &plan, NULL);
    planned_assert_sound(p);
    prog = p->program[1];
    for (int i = 0; i < prog->n_instrs; i++) {
        if (prog->instr[i].joined && prog->instr[i].n_wait > 0)
            joined = &prog->instr[i];
    }
    assert_non_null(joined);
    was = *joined;
    joined->joined = false;
    assert_caught(p, "do not agree on what is sent");
    *joined = was;
    joined->n_wait--;
    assert_caught(p, "does not start with the exchange before it");
    *joined = was;
    in = planned_find(prog, MERAK_INSTR_KERNEL, 0);
    in->joined = true;
    assert_caught(p, "does not start with the exchange before it");
    in->joined = false;
    planned_assert_sound(p);
    merak_planned_destroy(p);
}

/* What slices do not go with, in one line each. */
static void slices_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *schedule;
        size_t micro_batch;
        int tp;
        bool sub;
        const char *why;
    } rows[] = {
        {"sliced:5", 1, 1, false,
         "a sequence of 16 tokens cannot be cut into 5 slices"},
        {"sliced:17/50", 1, 1, false,
         "a sequence of 16 tokens cannot be cut into 17 slices"},
        {"sliced:4", 2, 1, false, "micro-batches of 1 sequence, not 2"},
        {"sliced:4", 1, 2, false, "use --sp off or a smaller tp"},
        {"sliced:4", 1, 1, true, "does not run with --sub-pipeline yes"},
        {"sliced:0", 1, 1, false, "no schedule 'sliced:0'"},
        {"sliced:2x", 1, 1, false, "no schedule 'sliced:2x'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan =
            planned_plan(rows[i].tp, 2, 1, 4, rows[i].schedule, false);
        struct merak_error err;

        plan.sp = MERAK_SP_ON;
        plan.micro_batch = rows[i].micro_batch;
        plan.sub_pipeline = rows[i].sub;
        assert_true(planned_try(&gpt, &plan, &err) < 0);
        if (strstr(err.text, rows[i].why) == NULL)
            fail_msg("%s: \"%s\"", rows[i].schedule, err.text);
    }
}

static void add_wait(struct merak_program *prog, struct merak_instr *in,
                     int other)
{
    int *wait = calloc((size_t)(prog->n_waits + in->n_wait + 1), sizeof(int));

    assert_non_null(wait);
    memcpy(wait, prog->wait, (size_t)prog->n_waits * sizeof(int));
    memcpy(wait + prog->n_waits, prog->wait + in->first_wait,
           (size_t)in->n_wait * sizeof(int));
    in->first_wait = prog->n_waits;
    wait[in->first_wait + in->n_wait++] = other;
    prog->n_waits += in->n_wait;
    free(prog->wait);
    prog->wait = wait;
}

/* Stage 0 holds F1 back for the gradient of micro-batch 0, stage 1 that
 * gradient for F1. */
static void a_hang_is_caught(void **state)
{
    struct merak_plan plan = planned_plan(1, 2, 1, 4, "1f1b", false);
    struct merak_program *a, *b;
    struct merak_planned *p;

    (void)state;
    p = planned_build(&gpt, &plan, NULL);
    a = p->program[0];
    b = p->program[1];
    add_wait(a, planned_find(a, MERAK_INSTR_SEND, 1),
             planned_find(a, MERAK_INSTR_RECV, 0)->id);
    add_wait(b, planned_find(b, MERAK_INSTR_SEND, 0),
             planned_find(b, MERAK_INSTR_RECV, 1)->id);
    assert_caught(p, "hang");
    merak_planned_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swapped_exchanges_are_caught),
        cmocka_unit_test(a_missing_exchange_is_caught),
        cmocka_unit_test(a_missing_send_is_caught),
        cmocka_unit_test(a_wrong_tag_is_caught),
        cmocka_unit_test(a_repeated_tag_is_caught),
        cmocka_unit_test(a_small_slot_is_caught),
        cmocka_unit_test(overlapping_slots_are_caught),
        cmocka_unit_test(a_read_of_what_was_overwritten_is_caught),
        cmocka_unit_test(a_slot_past_the_end_is_caught),
        cmocka_unit_test(every_missing_wait_is_caught),
        cmocka_unit_test(every_missing_wait_for_a_copy_is_caught),
        cmocka_unit_test(a_parameter_read_late_is_caught),
        cmocka_unit_test(broken_bundles_are_caught),
        cmocka_unit_test(slices_that_do_not_fit_are_refused),
        cmocka_unit_test(a_hang_is_caught),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
