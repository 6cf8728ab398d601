/* SPDX-License-Identifier: Apache-2.0 */
/* test_streams.c - programs in a device's queues: what ends there is found to,
 * what hangs is found out
 */
#include "config.h"

#include "unit/instance.h"
#include "unit/small_plans.h"

#include "base/size.h"
#include "partitioner/program/staged.h"
#include "partitioner/program/memplan.h"
#include "partitioner/program/streams.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/simulate/check.h"
#include "partitioner/simulate/check_streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct small_model gpt = {
    .layers = 8, .vocab = 61, .hidden = 32, .heads = 4};

static void assert_ends(struct merak_planned *p)
{
    const struct merak_plan *plan = &p->plan;
    struct merak_error err = {0};

    if (merak_program_check_streams(p->program, p->n_programs, &err) !=
        MERAK_OK)
        fail_msg("tp %d, pp %d, dp %d, %d micro-batches, %s, %d chunks%s: %s",
                 plan->tp, plan->pp, plan->dp, plan->microbatches,
                 plan->schedule, plan->chunks, plan->zero ? ", ZeRO-1" : "",
                 err.text);
}

static void assert_found(struct merak_planned *p, const char *what)
{
    struct merak_error err = {0};

    if (merak_program_check_streams(p->program, p->n_programs, &err) ==
        MERAK_OK)
        fail_msg("not found: expected \"%s\"", what);
    if (strstr(err.text, what) == NULL)
        fail_msg("found as \"%s\", expected \"%s\"", err.text, what);
}

/* The closed form is what its programs need. */
static void assert_comms(const struct merak_planned *p, bool tied)
{
    const struct merak_plan *plan = &p->plan;
    const struct merak_schedule *schedule;
    struct merak_comms most = {0}, all;

    for (int r = 0; r < p->n_programs; r++) {
        struct merak_comms comms = merak_program_comms(p->program[r]);

        if (comms.groups > most.groups)
            most.groups = comms.groups;
        if (comms.pairs > most.pairs)
            most.pairs = comms.pairs;
    }
    assert_int_equal(merak_plan_schedule(plan, &schedule, NULL), MERAK_OK);
    all = merak_plan_comms(plan, schedule, plan->tp > 1, tied);
    if (all.groups != most.groups || all.pairs != most.pairs)
        fail_msg("tp %d, pp %d, dp %d, %s, %d chunks: %d groups and %d pairs, "
                 "expected %d and %d",
                 plan->tp, plan->pp, plan->dp, plan->schedule, plan->chunks,
                 most.groups, most.pairs, all.groups, all.pairs);
}

/* One schedule in several plans; how many it could be built for. */
static int try_schedule(const struct merak_schedule *schedule)
{
    static const struct {
        int tp, pp, dp, microbatches;
        int zero;
        bool recompute;
        int lossy; /* ratio of all hops: two messages each */
    } rows[] = {
        {1, 2, 1, 4, false, false, 0}, {1, 4, 1, 8, false, true, 0},
        {2, 2, 1, 4, false, false, 0}, {1, 2, 2, 4, true, false, 0},
        {2, 2, 2, 4, true, true, 0},   {1, 3, 1, 6, false, false, 4},
    };
    int n = 0;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan =
            planned_plan(rows[i].tp, rows[i].pp, rows[i].dp,
                         rows[i].microbatches, schedule->name, rows[i].zero);
        struct merak_planned *p;
        struct merak_error err;

        plan.chunks =
            i % 2 == 0 ? schedule->min_chunks : schedule->usual_chunks;
        plan.lossy.all = (uint8_t)rows[i].lossy;
        plan.recompute = rows[i].recompute ? MERAK_RECOMPUTE_FULL : 0;
        if (planned_try(&gpt, &plan, &err) != MERAK_OK)
            continue; /* another one's limits */
        p = planned_build(&gpt, &plan, NULL);
        assert_ends(p);
        assert_comms(p, !gpt.untied);
        merak_planned_destroy(p);
        n++;
    }
    return n;
}

static void all_schedules_end(void **state)
{
    const struct merak_schedule *const *all = merak_schedules();
    int tried = 0;

    (void)state;
    for (int s = 0; all[s] != NULL; s++)
        tried += try_schedule(all[s]);
    assert_true(tried > 20);
}

/* With two micro-batches in an action, one and two chunks for each that a
 * schedule needs. */
static void pairs_end(void **state)
{
    const struct merak_schedule *const *all = merak_schedules();
    int tried = 0;

    (void)state;
    for (int i = 0; all[i / 8] != NULL; i++) {
        const struct merak_schedule *schedule = all[i / 8];
        int tp = i % 2 + 1, pp = i / 2 % 2 == 0 ? 2 : 4;
        struct merak_plan plan =
            planned_plan(tp, pp, tp, 16, schedule->name, tp - 1);
        struct merak_error err;
        struct merak_planned *p;

        plan.sub_pipeline = true;
        plan.chunks = (schedule->min_chunks > 1 ? schedule->min_chunks : 1) *
                      (i / 4 % 2 + 1);
        if (planned_try(&gpt, &plan, &err) != MERAK_OK)
            continue; /* its limits */
        p = planned_build(&gpt, &plan, NULL);
        assert_ends(p);
        planned_assert_sound(p);
        merak_planned_destroy(p);
        tried++;
    }
    assert_true(tried > 30);
}

static void other_models_end(void **state)
{
    static const struct {
        struct small_model model;
        int tp, pp, dp;
    } rows[] = {
        {{.layers = 4, .vocab = 61, .hidden = 32, .heads = 4, .untied = true},
         2,
         2,
         2},
        {{.layers = 4,
          .vocab = 61,
          .hidden = 32,
          .heads = 4,
          .shared_proj = true},
         1,
         4,
         1},
        {{.layers = 4, .vocab = 61, .hidden = 32, .heads = 4, .kv_heads = 2},
         4,
         2,
         1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan =
            planned_plan(rows[i].tp, rows[i].pp, rows[i].dp, 4, "1f1b", false);
        struct merak_planned *p = planned_build(&rows[i].model, &plan, NULL);

        assert_ends(p);
        merak_planned_destroy(p);
    }
}

/* --- faults -----------------------------------------------------------------
 */

/* Exchange what two instructions are, but for their places and waits. */
static void swap(struct merak_instr *a, struct merak_instr *b)
{
    struct merak_instr was = *a;

    *a = *b;
    a->id = was.id;
    a->n_wait = was.n_wait;
    a->first_wait = was.first_wait;
    was.id = b->id;
    was.n_wait = b->n_wait;
    was.first_wait = b->first_wait;
    *b = was;
}

/* The last exchange of a tensor group and the first of a data group. */
static void swap_groups(struct merak_program *prog)
{
    struct merak_instr *tp = NULL, *dp = NULL;

    for (int i = 0; i < prog->n_instrs; i++) {
        struct merak_instr *in = &prog->instr[i];

        if (in->kind != MERAK_INSTR_EXCHANGE)
            continue;
        if (strcmp(prog->group[in->group].name, "tp") == 0 && dp == NULL)
            tp = in;
        if (strcmp(prog->group[in->group].name, "dp") == 0 && dp == NULL)
            dp = in;
    }
    assert_non_null(tp);
    assert_non_null(dp);
    swap(tp, dp);
}

/* Ranks 1 and 2 of a square swap two exchanges: in each group all have the same
 * order, and yet everybody waits for somebody. */
static void a_circle_of_groups_is_found(void **state)
{
    struct merak_plan plan = planned_plan(2, 1, 2, 2, "1f1b", false);
    struct merak_planned *p = planned_build(&gpt, &plan, NULL);

    (void)state;
    assert_ends(p);
    swap_groups(p->program[1]);
    swap_groups(p->program[2]);
    assert_found(p, "exchanges have no common order");
    merak_planned_destroy(p);
}

static struct merak_planned *stages(void)
{
    struct merak_plan plan = planned_plan(1, 2, 1, 4, "1f1b", false);
    struct merak_planned *p = planned_build(&gpt, &plan, NULL);

    assert_ends(p);
    return p;
}

/* A transport would match them by tag. */
static void messages_in_another_order_are_found(void **state)
{
    struct merak_planned *p = stages();
    struct merak_instr *a = planned_find(p->program[1], MERAK_INSTR_RECV, 1);
    struct merak_instr *b = planned_find(p->program[1], MERAK_INSTR_RECV, 2);
    uint64_t tag = a->tag;

    (void)state;
    a->tag = b->tag;
    b->tag = tag;
    assert_found(p, "rank 0 sends");
    merak_planned_destroy(p);
}

/* Gradients are sent back before the activations they are of have come. */
static void a_send_that_is_never_reached_is_found(void **state)
{
    struct merak_planned *p = stages();
    struct merak_program *first = p->program[0];
    struct merak_instr *send = planned_find(first, MERAK_INSTR_SEND, 0);
    struct merak_instr *recv = planned_find(first, MERAK_INSTR_RECV, 0);

    (void)state;
    assert_true(send->id < recv->id);
    swap(send, recv);
    send->n_wait = 0; /* it starts, and what stands behind it cannot */
    recv->n_wait = 1;
    first->wait[recv->first_wait] = send->id;
    assert_found(p, "the programs hang: rank 0 never ends instruction");
    merak_planned_destroy(p);
}

/* --- plans ------------------------------------------------------------------
 */

/* Does the plan that is found for an instance end in queues? */
static bool ends(const struct instance *it,
                 const struct merak_search_result *found)
{
    const struct merak_program_options po = {.direct = found->direct};
    struct merak_planned *p = NULL;
    struct merak_error err;
    bool well;

    assert_int_equal(merak_plan_build(&found->choice[0].plan, it->in.seq,
                                      it->in.describe, it->in.arg,
                                      MERAK_PLAN_STAGES, &po, &p, &err),
                     MERAK_OK);
    well = merak_program_check_streams(p->program, p->n_programs, &err) ==
           MERAK_OK;
    merak_planned_destroy(p);
    return well;
}

/* The plan that was found is given: by way of hosts, or not at all. */
static void try_given(struct instance *it, const struct merak_plan *plan)
{
    struct merak_search_result *found = NULL;
    struct merak_error err;

    merak_choices_of(plan, &it->in.pin);
    it->in.pin.list = (struct merak_given_lists){
        .cut = plan->cut, .n_cut = merak_plan_parts(plan) - 1};
    if (merak_search(&it->in, &found, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_false(found->direct);
    merak_search_destroy(found);
    it->in.insists_direct = true;
    assert_int_equal(merak_search(&it->in, &found, &err), MERAK_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "does not go with --transport nccl here"));
}

/* Search for one that ends where the best does not; was there any? */
static bool try_instance(struct instance *it)
{
    struct merak_search_result *any = NULL, *direct = NULL;
    struct merak_error err;
    bool adjusted;

    if (merak_search(&it->in, &any, &err) != MERAK_OK)
        return false;
    assert_false(any->direct);
    adjusted = !ends(it, any);
    it->in.direct = true;
    assert_int_equal(merak_search(&it->in, &direct, &err), MERAK_OK);
    assert_true(direct->direct);
    assert_true(ends(it, direct));
    if (adjusted)
        try_given(it, &any->choice[0].plan);
    merak_search_destroy(any);
    merak_search_destroy(direct);
    return adjusted;
}

static void plans_that_hang_are_left_out(void **state)
{
    struct instance it;
    int adjusted = 0;

    (void)state;
    for (int seed = 0; seed < 60; seed++) {
        instance_draw(&it, seed);
        it.skip = true; /* what skips stages comes in another order */
        adjusted += try_instance(&it);
    }
    assert_true(adjusted > 0);
}

/* --- memory -----------------------------------------------------------------
 */

/* All exchanges of a queue stage in one slot, which is in the arena once: two
 * queues in one slot would take turns. */
static void exchanges_of_a_queue_stage_in_one_slot(void **state)
{
    const struct merak_program_options po = {.direct = true};
    struct merak_plan plan = planned_plan(2, 1, 4, 2, "1f1b", true);
    struct merak_planned *p = planned_build(&gpt, &plan, &po);

    (void)state;
    planned_assert_sound(p);
    assert_ends(p);
    for (int r = 0; r < p->n_programs; r++) {
        const struct merak_program *prog = p->program[r];
        size_t most[MERAK_QUEUE_COUNT] = {0}, all = 0;
        int slot[MERAK_QUEUE_COUNT] = {0};

        for (int i = 0; i < prog->n_instrs; i++) {
            const struct merak_instr *in = &prog->instr[i];
            size_t need;

            if (in->kind != MERAK_INSTR_EXCHANGE)
                continue;
            need = merak_staged_bytes(in->exchange, 0);
            if (need > most[in->queue])
                most[in->queue] = need;
            assert_true(need == 0 || in->scratch >= 0);
            if (in->scratch < 0)
                continue;
            assert_true(slot[in->queue] == 0 ||
                        in->scratch == slot[in->queue]);
            slot[in->queue] = in->scratch;
        }
        for (int q = 0; q < MERAK_QUEUE_COUNT; q++) {
            assert_true(most[q] > 0 ||
                        !merak_queue_exchanges((enum merak_queue)q));
            if (most[q] > 0)
                assert_int_equal(prog->slot[slot[q]].bytes, most[q]);
            all += merak_size_align(most[q], MERAK_ALIGN);
        }
        assert_int_not_equal(slot[MERAK_QUEUE_COLLECTIVE],
                             slot[MERAK_QUEUE_REPLICAS]);
        /* at the peak, one or both are in use */
        assert_in_range(prog->category_bytes[MERAK_CAT_COMM], 1, all);
    }
    /* less than is planned is found */
    for (int i = 0; i < p->program[0]->n_slots; i++) {
        struct merak_slot *s = &p->program[0]->slot[i];

        if (s->category == MERAK_CAT_COMM) {
            s->bytes -= 64;
            s->box.full[0] = s->box.len[0] = s->flat_hi = s->bytes / 4;
        }
    }
    assert_int_not_equal(merak_program_check(p->program, p->n_programs, NULL),
                         MERAK_OK);
    merak_planned_destroy(p);
}

/* Chunks of many members are smaller, so that there is room for all. */
static void chunks_fit_into_a_window(void **state)
{
    (void)state;
    assert_int_equal(merak_staged_fragment(2), (size_t)32 << 20);
    assert_int_equal(merak_staged_fragment(3), (size_t)32 << 20);
    assert_int_equal(merak_staged_fragment(9), (size_t)8 << 20);
    assert_int_equal(merak_staged_fragment(17), (size_t)4 << 20);
    for (int n = 2; n <= 65; n++) {
        assert_true(merak_staged_fragment(n) * (size_t)(n - 1) <= (size_t)64
                                                                      << 20);
        assert_int_equal(merak_staged_fragment(n) % MERAK_STAGED_ALIGN, 0);
    }
    assert_int_equal(merak_staged_fragment(1000), (size_t)1 << 20);
}

/* --- lanes ------------------------------------------------------------------
 */

static void peers_have_lanes_for_each_way(void **state)
{
    enum { N = 40 };
    struct merak_instr instr[N];
    struct merak_program prog = {.instr = instr, .n_instrs = N};
    int stream[N];

    (void)state;
    memset(instr, 0, sizeof(instr));
    for (int i = 0; i < N; i++) {
        instr[i].kind = i % 2 == 0 ? MERAK_INSTR_SEND : MERAK_INSTR_RECV;
        instr[i].queue = MERAK_QUEUE_P2P;
        instr[i].peer = i / 2 % 5;
        instr[i].phase = i / 10 % 2 == 0 ? MERAK_PHASE_F : MERAK_PHASE_B;
    }
    instr[N - 1].kind = MERAK_INSTR_EXCHANGE;
    instr[N - 1].queue = MERAK_QUEUE_COLLECTIVE;
    merak_program_streams(&prog, stream);
    for (int i = 0; i < N - 1; i++) {
        assert_true(stream[i] >= MERAK_QUEUE_COUNT &&
                    stream[i] < MERAK_STREAMS);
        assert_int_equal(stream[i], stream[i % 20]);
        for (int k = 0; k < i && i < MERAK_LANES; k++)
            assert_int_not_equal(stream[i], stream[k]);
    }
    assert_int_equal(stream[N - 1], MERAK_QUEUE_COLLECTIVE);
}

/* Only so many queues are opened. */
static void lanes_in_use_are_counted(void **state)
{
    struct merak_instr instr[MERAK_LANES + 2];
    struct merak_program prog = {.instr = instr};

    (void)state;
    memset(instr, 0, sizeof(instr));
    assert_int_equal(merak_program_stream_count(&prog), MERAK_QUEUE_COUNT);
    for (int i = 0; i < MERAK_LANES + 2; i++) {
        int lanes = i < MERAK_LANES ? i + 1 : MERAK_LANES;

        instr[i].kind = i % 2 == 0 ? MERAK_INSTR_SEND : MERAK_INSTR_RECV;
        instr[i].peer = i / 2;
        prog.n_instrs = i + 1;
        assert_int_equal(merak_program_stream_count(&prog),
                         MERAK_QUEUE_COUNT + lanes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_schedules_end),
        cmocka_unit_test(lanes_in_use_are_counted),
        cmocka_unit_test(pairs_end),
        cmocka_unit_test(other_models_end),
        cmocka_unit_test(a_circle_of_groups_is_found),
        cmocka_unit_test(messages_in_another_order_are_found),
        cmocka_unit_test(a_send_that_is_never_reached_is_found),
        cmocka_unit_test(plans_that_hang_are_left_out),
        cmocka_unit_test(exchanges_of_a_queue_stage_in_one_slot),
        cmocka_unit_test(chunks_fit_into_a_window),
        cmocka_unit_test(peers_have_lanes_for_each_way),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
