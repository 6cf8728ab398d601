/* SPDX-License-Identifier: Apache-2.0 */
/* test_program.c - programs of whole plans: sound, small and as predicted */
#include "config.h"

#include "unit/small_plans.h"

#include "partitioner/graph/graph.h"
#include "partitioner/simulate/simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct small_model gpt = {
    .layers = 4, .vocab = 61, .hidden = 32, .heads = 4};

/* --- sound plans ---------------------------------------------------------- */

/* The variants of a plan that differ in more than degrees: bit 0 ZeRO-1,
 * 1 gpipe, 2 sequence parallel, 3 untied, 4 bf16, 5 the other rank order. */
static void check_variant(int tp, int pp, int dp, unsigned kind)
{
    struct small_model model = gpt;
    struct merak_plan plan =
        planned_plan(tp, pp, dp, 5, kind & 2 ? "gpipe" : "1f1b", kind & 1);
    struct merak_planned *p;

    plan.sp = kind & 4 ? MERAK_SP_ON : MERAK_SP_OFF;
    plan.order_tp_pp_dp = kind & 32;
    model.untied = kind & 8;
    model.dtype = kind & 16 ? MERAK_BF16 : MERAK_F32;
    p = planned_build(&model, &plan, NULL);
    planned_assert_sound(p);
    merak_planned_destroy(p);
}

static void every_small_plan_is_sound(void **state)
{
    /* Every two of the six switches meet in all four combinations. */
    static const unsigned kinds[] = {7, 18, 29, 34, 36, 46, 57};

    (void)state;
    for (int tp = 1; tp <= 4; tp *= 2) {
        for (int pp = 1; pp <= 4; pp *= 2) {
            for (int dp = 1; dp <= 4; dp *= 2) {
                for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
                    check_variant(tp, pp, dp, kinds[k]);
            }
        }
    }
}

/* Fewer kv heads than tensor ranks: tp has two axes. */
static void grouped_heads_are_sound(void **state)
{
    struct small_model model = gpt;

    (void)state;
    model.kv_heads = 2;
    for (int tp = 2; tp <= 4; tp *= 2) {
        for (int pp = 1; pp <= 3; pp++) {
            struct merak_plan plan = planned_plan(tp, pp, 2, 3, "1f1b", pp % 2);
            struct merak_planned *p;

            plan.sp = pp == 2 ? MERAK_SP_ON : MERAK_SP_OFF;
            p = planned_build(&model, &plan, NULL);
            assert_int_equal(p->sharded->mesh.n_axes, tp / 2);
            planned_assert_sound(p);
            merak_planned_destroy(p);
        }
    }
}

static void odd_pipelines_are_sound(void **state)
{
    (void)state;
    for (int pp = 1; pp <= 9; pp += 2) {
        for (int m = 1; m <= 12; m += 3) {
            struct merak_plan plan = planned_plan(1, pp, 1, m, "1f1b", false);
            struct merak_planned *p;

            p = planned_build(&gpt, &plan, NULL);
            planned_assert_sound(p);
            merak_planned_destroy(p);
        }
    }
}

/* Training, and evaluation in the order of the schedule's forwards.  Returns
 * whether a program can be made for these numbers. */
static bool check_schedule(const char *name, int chunks, int p, int m)
{
    struct merak_program_options eval = {.forward_only = true};
    struct merak_plan plan = planned_plan(1, p, 1, m, name, false);
    struct small_model model = gpt;
    const struct merak_schedule *schedule;
    struct merak_planned *planned;

    model.layers = chunks * p / 2 + 1;
    plan.chunks = chunks;
    plan.micro_batch = 1;
    if (merak_plan_schedule(&plan, &schedule, NULL) != MERAK_OK)
        return false;
    for (int full = 0; !schedule->forward_only && full < 2; full++) {
        plan.recompute = full ? MERAK_RECOMPUTE_FULL : MERAK_RECOMPUTE_NONE;
        planned = planned_build(&model, &plan, NULL);
        planned_assert_sound(planned);
        merak_planned_destroy(planned);
    }
    planned = planned_build(&model, &plan, &eval);
    planned_assert_sound(planned);
    merak_planned_destroy(planned);
    return true;
}

static int chunks_of(const struct merak_schedule *schedule)
{
    if (schedule->usual_chunks > 0)
        return schedule->usual_chunks;
    return schedule->min_chunks > 1 ? schedule->min_chunks : 1;
}

static void every_schedule_is_sound(void **state)
{
    static const struct {
        int p, m;
    } at[] = {{2, 4}, {2, 64}, {3, 7}, {4, 16}, {8, 8}, {16, 4}, {16, 16}};
    static const char *const named[] = {"sliced:2", "sliced:4", "sliced:16",
                                        "eager:3",  "eager:12", "eager:1"};
    const struct merak_schedule *const *all = merak_schedules();
    int n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
        for (int s = 0; all[s] != NULL; s++)
            n += check_schedule(all[s]->name, chunks_of(all[s]), at[i].p,
                                at[i].m);
        for (int s = 0; s < 6; s++)
            n += check_schedule(named[s], 1, at[i].p, at[i].m);
    }
    assert_true(n >= 7 * 11);
}

static void evaluation_keeps_the_persistent_slots(void **state)
{
    struct merak_program_options eval = {.forward_only = true};
    struct merak_plan plan = planned_plan(1, 2, 2, 4, "1f1b", true);
    struct merak_plan longer = planned_plan(1, 2, 2, 7, "1f1b", true);
    struct merak_planned *a, *b;

    (void)state;
    a = planned_build(&gpt, &plan, NULL);
    b = planned_build(&gpt, &longer, &eval);
    planned_assert_sound(b);
    for (int r = 0; r < a->n_programs; r++) {
        const struct merak_program *x = a->program[r], *y = b->program[r];

        assert_int_equal(x->persistent_bytes, y->persistent_bytes);
        assert_true(y->arena_bytes < x->arena_bytes);
        assert_int_equal(x->n_params, y->n_params);
        for (int i = 0; i < x->n_params; i++) {
            assert_int_equal(x->slot[x->param[i].param].offset,
                             y->slot[y->param[i].param].offset);
            assert_int_equal(x->slot[x->param[i].m].offset,
                             y->slot[y->param[i].m].offset);
        }
        /* behind the gathers of what the last step updated */
        for (int i = 0; i < y->n_instrs; i++) {
            if (i < y->n_params)
                assert_int_equal(y->instr[i].kind, MERAK_INSTR_EXCHANGE);
            else
                assert_int_equal(y->instr[i].phase, MERAK_PHASE_F);
        }
    }
    merak_planned_destroy(a);
    merak_planned_destroy(b);
}

/* --- memory --------------------------------------------------------------- */

static size_t arena_of(int pp, int m, const char *schedule, int stage,
                       size_t *activation_p)
{
    struct merak_plan plan = planned_plan(1, pp, 1, m, schedule, false);
    struct merak_planned *p;
    size_t bytes;

    p = planned_build(&gpt, &plan, NULL);
    bytes = p->program[stage]->arena_bytes;
    *activation_p = p->program[stage]->category_bytes[MERAK_CAT_ACTIVATION];
    merak_planned_destroy(p);
    return bytes;
}

static void memory_follows_what_is_in_flight(void **state)
{
    size_t few, many, a, b;

    (void)state;
    /* 1f1b: p - s, whatever m is */
    few = arena_of(4, 8, "1f1b", 0, &a);
    many = arena_of(4, 16, "1f1b", 0, &b);
    assert_int_equal(a, b);
    assert_in_range(many, few, few + 256); /* nothing but m losses */
    /* gpipe: m */
    arena_of(4, 8, "gpipe", 0, &a);
    arena_of(4, 16, "gpipe", 0, &b);
    assert_true(b > a + a * 8 / 10);
    /* a later stage holds less */
    arena_of(4, 8, "1f1b", 1, &a);
    arena_of(4, 8, "1f1b", 2, &b);
    assert_true(b < a);
}

static void packing_wastes_little(void **state)
{
    struct merak_plan plan = planned_plan(1, 1, 1, 2, "1f1b", false);
    struct merak_planned *p;
    const struct merak_program *prog;
    size_t transient = 0;

    (void)state;
    p = planned_build(&gpt, &plan, NULL);
    prog = p->program[0];
    for (int c = 0; c < MERAK_CAT_COUNT; c++)
        transient += prog->category_bytes[c];
    assert_int_equal(transient, prog->arena_bytes);
    transient = prog->arena_bytes - prog->persistent_bytes;
    /* What is idle at the peak counts as transient, beside the few gradients
     * that live then: together below a third of the planned part. */
    assert_true(prog->category_bytes[MERAK_CAT_TRANSIENT] < transient / 3);
    merak_planned_destroy(p);
}

static const struct merak_instr *find_op(const struct merak_program *prog,
                                         const char *op)
{
    for (int i = 0; i < prog->n_instrs; i++) {
        if (prog->instr[i].kind == MERAK_INSTR_KERNEL &&
            strcmp(prog->instr[i].op->name, op) == 0)
            return &prog->instr[i];
    }
    fail_msg("no %s", op);
    return NULL;
}

/* A vocabulary that makes logits most of what is planned: their gradient takes
 * no memory of its own, whatever the schedule, and however they came about. */
static void gradients_are_written_over_logits(void **state)
{
    static const char *const schedule[] = {"1f1b", "zb-h1", "gpipe"};
    struct small_model model = {
        .layers = 2, .vocab = 4096, .hidden = 8, .heads = 2};
    const size_t logits = 2 * 16 * 4096 * sizeof(float);

    (void)state;
    for (int kind = 0; kind < 12; kind++) {
        int pp = kind / 6 + 1;
        struct merak_plan plan =
            planned_plan(1, pp, 1, 2, schedule[kind % 3], false);
        const struct merak_program *prog;
        const struct merak_instr *in;
        struct merak_planned *p;

        plan.recompute =
            kind / 3 % 2 ? MERAK_RECOMPUTE_FULL : MERAK_RECOMPUTE_NONE;
        p = planned_build(&model, &plan, NULL);
        planned_assert_sound(p);
        prog = p->program[pp - 1];
        in = find_op(prog, "xent_dlogits");
        assert_int_equal(prog->slot[in->slot[0]].offset,
                         prog->slot[in->slot[4]].offset);
        assert_string_equal(prog->slot[in->slot[4]].name, in->name);
        /* gpipe holds both micro-batches' */
        if (kind % 3 != 2 && pp == 1)
            assert_true(prog->arena_bytes - prog->persistent_bytes <
                        logits * 5 / 4);
        merak_planned_destroy(p);
    }
}

/* --- ties ----------------------------------------------------------------- */

struct message {
    uint64_t tag;
    int from, to;
    float value;
};

/* Run the summing of one parameter's uses, element 0 only; true if all of
 * the rank's instructions up to `until` ran. */
static void run_ties(struct merak_planned *p, int value, float **arena)
{
    struct message box[64];
    int n_box = 0, at[16] = {0};

    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p->n_programs; r++) {
            const struct merak_program *prog = p->program[r];
            const struct merak_instr *in = &prog->instr[at[r]];
            float *x, *y;

            if (at[r] == prog->n_instrs)
                continue;
            moved = true;
            at[r]++;
            if (in->microbatch >= 0 ||
                strstr(in->name, p->sharded->graph->value[value]->name) == NULL)
                continue;
            x = arena[r] + prog->slot[in->slot[0]].offset / sizeof(float);
            y = arena[r] + prog->slot[in->slot[1]].offset / sizeof(float);
            if (in->kind == MERAK_INSTR_KERNEL &&
                strcmp(in->op->name, "grad_add") == 0)
                *y += *x;
            if (in->kind == MERAK_INSTR_SEND)
                box[n_box++] = (struct message){in->tag, r, in->peer, *x};
            if (in->kind == MERAK_INSTR_RECV) {
                int m = 0;

                while (m < n_box && (box[m].tag != in->tag || box[m].to != r ||
                                     box[m].from != in->peer))
                    m++;
                if (m == n_box)
                    at[r]--; /* not there yet */
                else
                    *x = box[m].value;
            }
        }
    }
}

static int find_value(const struct merak_graph *graph, const char *name)
{
    for (int v = 0; v < graph->n_values; v++) {
        if (strcmp(graph->value[v]->name, name) == 0)
            return v;
    }
    fail_msg("no value %s", name);
    return -1;
}

/* Values whose sum depends on the order of adding. */
static const float contribution[] = {1e8f, 3.0f, -1e8f, 0.7f};

static int fill_uses(const struct merak_program *prog, int value, float *arena)
{
    const struct merak_graph *graph = prog->sharded->graph;
    int uses = 0;

    for (int s = 0; s < prog->n_slots; s++) {
        const struct merak_value *v;

        if (prog->slot[s].value < 0)
            continue;
        v = graph->value[prog->slot[s].value];
        if (v->kind != MERAK_VALUE_PARAM_GRAD || v->of != value)
            continue;
        arena[prog->slot[s].offset / sizeof(float)] = contribution[v->use];
        uses++;
    }
    return uses;
}

static void a_tied_sum_is_the_same_under_every_cut(void **state)
{
    struct small_model model = gpt;
    const float want = ((contribution[0] + contribution[1]) + contribution[2]) +
                       contribution[3];

    (void)state;
    model.shared_proj = true;
    for (int pp = 1; pp <= 4; pp++) {
        struct merak_plan plan = planned_plan(1, pp, 1, 2, "1f1b", false);
        float *arena[4];
        struct merak_planned *p;
        int value, uses = 0, holders = 0, primaries = 0;

        p = planned_build(&model, &plan, NULL);
        planned_assert_sound(p);
        value = find_value(p->sharded->graph, "proj.w");
        for (int r = 0; r < pp; r++) {
            arena[r] = calloc(1, p->program[r]->arena_bytes);
            assert_non_null(arena[r]);
            uses += fill_uses(p->program[r], value, arena[r]);
        }
        assert_int_equal(uses, 4);
        run_ties(p, value, arena);
        for (int r = 0; r < pp; r++) {
            const struct merak_program *prog = p->program[r];

            for (int i = 0; i < prog->n_params; i++) {
                size_t at = prog->slot[prog->param[i].grad].offset;

                if (prog->param[i].value != value)
                    continue;
                assert_memory_equal(&arena[r][at / sizeof(float)], &want,
                                    sizeof(want));
                holders++;
                primaries += prog->param[i].primary;
            }
            free(arena[r]);
        }
        assert_int_equal(holders, pp); /* every stage has a layer */
        assert_int_equal(primaries, 1);
        merak_planned_destroy(p);
    }
}

/* Every parameter's every element is counted by exactly one rank. */
static size_t count_primaries(const struct merak_planned *p)
{
    size_t counted = 0;

    for (int r = 0; r < p->n_programs; r++) {
        const struct merak_program *prog = p->program[r];

        for (int i = 0; i < prog->n_params; i++) {
            const struct merak_slot *g = &prog->slot[prog->param[i].grad];

            if (prog->param[i].primary)
                counted += g->flat_hi - g->flat_lo;
        }
    }
    return counted;
}

static void norms_count_everything_once(void **state)
{
    (void)state;
    for (int tp = 1; tp <= 4; tp *= 2) {
        for (int kind = 0; kind < 4; kind++) {
            struct merak_plan plan =
                planned_plan(tp, 2, 4, 2, "1f1b", kind & 1);
            struct small_model model = gpt;
            struct merak_planned *p;

            plan.sp = kind & 2 ? MERAK_SP_ON : MERAK_SP_OFF;
            model.kv_heads = kind & 2;
            p = planned_build(&model, &plan, NULL);
            assert_int_equal(count_primaries(p),
                             merak_graph_param_count(p->graph));
            merak_planned_destroy(p);
        }
    }
}

/* --- prediction ----------------------------------------------------------- */

/* One kernel of each action takes 1 (forward) or 2 (backward), all else
 * nothing. */
static void make_uniform(struct merak_program *prog)
{
    int last = -1, last_phase = -1;

    for (int i = 0; i < prog->n_instrs; i++) {
        struct merak_instr *in = &prog->instr[i];
        int phase = in->phase == MERAK_PHASE_F ? 0 : 1;

        in->bytes = 0;
        in->flops = 0;
        if (in->kind != MERAK_INSTR_KERNEL || in->microbatch < 0 ||
            (in->microbatch == last && phase == last_phase))
            continue;
        in->flops = phase + 1;
        last = in->microbatch;
        last_phase = phase;
    }
}

static void idle_time_is_the_closed_form(void **state)
{
    const struct merak_cost_model unit = {
        .flops_per_s = 1, .bytes_per_s = 1, .links.level[0].bytes_per_s = 1};

    (void)state;
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 12; m += 2) {
            struct merak_plan plan =
                planned_plan(1, p, 1, m, m % 4 == 1 ? "1f1b" : "gpipe", false);
            struct merak_timeline *tl = NULL;
            struct merak_error err;
            struct merak_planned *all;

            all = planned_build(&gpt, &plan, NULL);
            for (int r = 0; r < p; r++)
                make_uniform(all->program[r]);
            assert_int_equal(merak_simulate(all->program, all->n_programs,
                                            &unit, NULL, &tl, &err),
                             MERAK_OK);
            assert_near(&tl->step_s, &(double){3.0 * (m + p - 1)}, 1, 0, 0);
            for (int r = 0; r < p; r++) {
                double bubble = 1 - tl->busy_s[r] / tl->step_s;
                double want = (p - 1.0) / (m + p - 1.0);

                assert_near(&bubble, &want, 1, 0, 1e-12);
            }
            merak_timeline_destroy(tl);
            merak_planned_destroy(all);
        }
    }
}

/* --- stages --------------------------------------------------------------- */

static void too_many_stages_are_refused(void **state)
{
    struct merak_plan plan = planned_plan(1, 1, 1, 1, "1f1b", false);
    struct merak_stages *stages = NULL;
    struct merak_error err;
    struct merak_planned *p;

    (void)state;
    p = planned_build(&gpt, &plan, NULL);
    assert_int_equal(
        merak_stages_cut(p->sharded, 200, NULL, NULL, &stages, &err),
        MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "200 stages"));
    assert_null(stages);
    merak_planned_destroy(p);
}

/* Only the residual stream crosses: a stage boundary is one value wide. */
static void cuts_are_one_value_wide_and_balanced(void **state)
{
    struct small_model model = gpt;
    struct merak_plan plan = planned_plan(1, 4, 1, 4, "1f1b", false);
    struct merak_planned *p;
    double sum = 0, most = 0;

    (void)state;
    model.layers = 16;
    p = planned_build(&model, &plan, NULL);
    for (int r = 0; r < 3; r++) {
        int sends = 0;

        for (int i = 0; i < p->program[r]->n_instrs; i++) {
            const struct merak_instr *in = &p->program[r]->instr[i];

            sends += in->kind == MERAK_INSTR_SEND && in->microbatch == 0 &&
                     in->phase == MERAK_PHASE_F;
        }
        assert_int_equal(sends, 1);
    }
    for (int s = 0; s < 4; s++) {
        sum += p->stages->flops[s];
        most = p->stages->flops[s] > most ? p->stages->flops[s] : most;
    }
    assert_near(&sum, &(double){merak_graph_flops(p->sharded->graph)}, 1, 1e-9,
                0);
    /* 32 blocks and a head over 4 stages: within one block of even. */
    assert_true(most < sum / 4 + sum / 32);
    merak_planned_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_plan_is_sound),
        cmocka_unit_test(grouped_heads_are_sound),
        cmocka_unit_test(odd_pipelines_are_sound),
        cmocka_unit_test(every_schedule_is_sound),
        cmocka_unit_test(evaluation_keeps_the_persistent_slots),
        cmocka_unit_test(memory_follows_what_is_in_flight),
        cmocka_unit_test(packing_wastes_little),
        cmocka_unit_test(gradients_are_written_over_logits),
        cmocka_unit_test(a_tied_sum_is_the_same_under_every_cut),
        cmocka_unit_test(norms_count_everything_once),
        cmocka_unit_test(idle_time_is_the_closed_form),
        cmocka_unit_test(too_many_stages_are_refused),
        cmocka_unit_test(cuts_are_one_value_wide_and_balanced),
    };

    return cmocka_run_group_tests_name("program", tests, NULL, NULL);
}
