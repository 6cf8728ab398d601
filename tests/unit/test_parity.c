/* SPDX-License-Identifier: Apache-2.0 */
/* test_parity.c - every plan computes what one rank computes
 *
 * Bit by bit where only the pipeline differs, to rounding where tp or dp do.
 */
#include "config.h"

#include "unit/execute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 2
#define BATCHES 4 /* micro-batches of a step over all replicas */

static const struct small_model gpt = {
    .layers = 3, .vocab = 13, .hidden = 8, .heads = 4};

struct variant {
    int tp, pp, dp;
    const char *schedule;
    bool zero1;
    enum merak_seq_parallel sp;
};

static struct merak_plan plan_of(const struct variant *v)
{
    struct merak_plan plan = {.tp = v->tp,
                              .pp = v->pp,
                              .dp = v->dp,
                              .microbatches = BATCHES / v->dp,
                              .zero1 = v->zero1,
                              .sp = v->sp};

    snprintf(plan.schedule, sizeof(plan.schedule), "%s", v->schedule);
    return plan;
}

static struct executed *trained(const struct small_model *model,
                                const struct merak_plan *plan, double *loss)
{
    struct executed *ex = executed_create(planned_build(model, plan, NULL));

    for (int s = 0; s < STEPS; s++) {
        executed_step(
            ex, (uint64_t)(plan->tp * 100 + plan->pp * 10 + plan->dp + s));
        loss[s] = executed_loss(ex);
    }
    return ex;
}

struct compare {
    const float *want; /* whole tensor */
    const char *name;
    double abs; /* 0: the same bits */
};

static void store_element(void *arg, size_t global, float *element)
{
    ((float *)arg)[global] = *element;
}

static void compare_element(void *arg, size_t global, float *element)
{
    struct compare *c = arg;
    double diff = fabs((double)*element - (double)c->want[global]);

    if (c->abs == 0.0 ? memcmp(element, &c->want[global], sizeof(float)) != 0
                      : !(diff <= c->abs))
        fail_msg("%s element %zu: got %.9g, want %.9g", c->name, global,
                 (double)*element, (double)c->want[global]);
}

/* All ranks' parameters of `got` against one replica's of `want`, whose first
 * ranks hold all of every tensor between them. */
static void compare_params(const struct executed *want,
                           const struct executed *got, double abs)
{
    const struct merak_planned *w = want->planned, *g = got->planned;

    for (int r = 0; r < g->n_programs; r++) {
        for (int i = 0; i < g->program[r]->n_params; i++) {
            const struct merak_param_slots *p = &g->program[r]->param[i];
            float *whole = calloc(merak_shape_count(&p->shape), sizeof(*whole));
            struct compare c = {.want = whole, .name = p->name, .abs = abs};

            assert_non_null(whole);
            for (int q = 0; q < w->n_programs; q++) {
                for (int j = 0; j < w->program[q]->n_params; j++) {
                    if (strcmp(w->program[q]->param[j].name, p->name) == 0)
                        executed_param(want, q, &w->program[q]->param[j],
                                       store_element, whole);
                }
            }
            executed_param(got, r, p, compare_element, &c);
            free(whole);
        }
    }
}

/* got as want: exactly, or to rounding. */
static void assert_plans(const struct small_model *model,
                         const struct merak_plan *a, const struct merak_plan *b,
                         bool exact)
{
    double want_loss[STEPS], got_loss[STEPS];
    struct executed *want = trained(model, a, want_loss);
    struct executed *got = trained(model, b, got_loss);
    float norm = executed_norm(want, 0);

    assert_true(norm > want->step.clip); /* clipping is active */
    assert_near(got_loss, want_loss, STEPS, exact ? 0 : 1e-5, 0);
    for (int r = 0; r < got->planned->n_programs; r++) {
        float n = executed_norm(got, r);

        assert_near(&n, &norm, 1, exact ? 0 : 1e-5, 0);
    }
    /* AdamW moves an element by about lr whatever its gradient's size, so a
     * gradient of next to nothing may go either way. */
    compare_params(want, got, exact ? 0.0 : 2e-3);
    executed_destroy(want);
    executed_destroy(got);
}

static void assert_parity(const struct small_model *model,
                          const struct variant *a, const struct variant *b,
                          bool exact)
{
    struct merak_plan want = plan_of(a), got = plan_of(b);

    assert_plans(model, &want, &got, exact);
}

static void pipelines_change_no_bit(void **state)
{
    (void)state;
    for (int tp = 1; tp <= 2; tp++) {
        for (int dp = 1; dp <= 2; dp++) {
            const struct variant one = {tp,      1,       dp,
                                        "gpipe", dp == 2, MERAK_SP_OFF};

            for (int pp = 2; pp <= 4; pp++) {
                struct variant v = {tp, pp, dp, "1f1b", dp == 2, MERAK_SP_OFF};

                assert_parity(&gpt, &one, &v, true);
                v.schedule = "gpipe";
                if (pp == 3)
                    assert_parity(&gpt, &one, &v, true);
            }
        }
    }
}

static void ties_and_untied_heads_change_no_bit(void **state)
{
    const struct variant one = {1, 1, 1, "1f1b", false, MERAK_SP_OFF};
    const struct variant four = {1, 4, 1, "1f1b", false, MERAK_SP_OFF};
    const struct variant both = {2, 3, 1, "1f1b", false, MERAK_SP_ON};
    const struct variant both_one = {2, 1, 1, "1f1b", false, MERAK_SP_ON};
    struct small_model model = gpt;

    (void)state;
    model.shared_proj = true;
    assert_parity(&model, &one, &four, true);
    assert_parity(&model, &both_one, &both, true);
    model.shared_proj = false;
    model.untied = true;
    assert_parity(&model, &one, &four, true);
}

static void zero1_agrees_with_whole_state(void **state)
{
    const struct variant whole = {1, 2, 2, "1f1b", false, MERAK_SP_OFF};
    const struct variant flat = {1, 2, 2, "1f1b", true, MERAK_SP_OFF};
    double a[STEPS], b[STEPS];
    struct merak_plan plan_a = plan_of(&whole), plan_b = plan_of(&flat);
    struct executed *x = trained(&gpt, &plan_a, a);
    struct executed *y = trained(&gpt, &plan_b, b);

    (void)state;
    /* The norm is summed over other blocks: only the first loss and the
     * sums of gradients are the same to the bit. */
    assert_near(&a[0], &b[0], 1, 0, 0);
    assert_near(&a[1], &b[1], 1, 1e-6, 0);
    compare_params(x, y, 1e-6);
    executed_destroy(x);
    executed_destroy(y);
}

static void tensor_and_data_parallel_agree_to_rounding(void **state)
{
    static const struct variant rows[] = {
        {2, 1, 1, "1f1b", false, MERAK_SP_OFF},
        {2, 1, 1, "1f1b", false, MERAK_SP_ON},
        {4, 1, 1, "1f1b", false, MERAK_SP_AUTO},
        {4, 2, 1, "1f1b", false, MERAK_SP_ON},
        {1, 1, 2, "1f1b", false, MERAK_SP_OFF},
        {1, 1, 4, "1f1b", true, MERAK_SP_OFF},
        {2, 2, 2, "1f1b", true, MERAK_SP_OFF},
        {2, 2, 2, "gpipe", true, MERAK_SP_ON},
    };
    const struct variant one = {1, 1, 1, "1f1b", false, MERAK_SP_OFF};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        assert_parity(&gpt, &one, &rows[i], false);
}

static void grouped_heads_agree_to_rounding(void **state)
{
    const struct variant one = {1, 1, 1, "1f1b", false, MERAK_SP_OFF};
    const struct variant four = {4, 2, 1, "1f1b", false, MERAK_SP_OFF};
    const struct variant seq = {4, 1, 2, "1f1b", true, MERAK_SP_ON};
    struct small_model model = gpt;

    (void)state;
    model.kv_heads = 2;
    assert_parity(&model, &one, &four, false);
    assert_parity(&model, &one, &seq, false);
}

/* Also dropout's masks come back. */
static void recomputation_changes_no_bit(void **state)
{
    static const struct variant rows[] = {
        {1, 1, 1, "gpipe", false, MERAK_SP_OFF},
        {1, 3, 1, "1f1b", false, MERAK_SP_OFF},
        {2, 1, 2, "1f1b", true, MERAK_SP_ON},
        {2, 2, 1, "1f1b", false, MERAK_SP_OFF},
    };
    struct small_model model = gpt;

    (void)state;
    model.dropout = 0.1f;
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan kept = plan_of(&rows[i / 2]), again = kept;

        again.recompute =
            i % 2 ? MERAK_RECOMPUTE_SELECTIVE : MERAK_RECOMPUTE_FULL;
        assert_plans(&model, &kept, &again, true);
    }
    model.kv_heads = 2;
    model.untied = true;
    for (size_t i = 2; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan kept = plan_of(&rows[i]), again = kept;

        again.recompute = MERAK_RECOMPUTE_FULL;
        assert_plans(&model, &kept, &again, true);
    }
}

/* The halves of a sub-pipeline are micro-batches of their own. */
static void sub_pipelines_change_no_bit(void **state)
{
    static const struct variant rows[] = {
        {1, 2, 1, "1f1b", false, MERAK_SP_OFF},
        {2, 1, 2, "1f1b", true, MERAK_SP_ON},
        {2, 2, 1, "scp", false, MERAK_SP_OFF},
        {4, 1, 1, "gpipe", false, MERAK_SP_ON},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan whole = plan_of(&rows[i]), zipped;

        whole.microbatches = 8;
        zipped = whole;
        zipped.sub_pipeline = true;
        zipped.recompute = i % 2 ? MERAK_RECOMPUTE_FULL : MERAK_RECOMPUTE_NONE;
        assert_plans(&gpt, &whole, &zipped, true);
    }
}

/* With parts as the schedule wants them, and recomputing. */
static int assert_schedule(const struct merak_schedule *schedule, int pp,
                           const struct merak_plan *one)
{
    struct merak_plan plan = *one;

    plan.pp = pp;
    plan.chunks = schedule->min_chunks;
    snprintf(plan.schedule, sizeof(plan.schedule), "%s", schedule->name);
    if (schedule->forward_only || merak_plan_shared(&plan) > 0 ||
        merak_plan_schedule(&plan, &schedule, NULL) != MERAK_OK)
        return 0;
    assert_plans(&gpt, one, &plan, true);
    plan.recompute = MERAK_RECOMPUTE_FULL;
    assert_plans(&gpt, one, &plan, true);
    return 1;
}

static void schedules_change_no_bit(void **state)
{
    const struct variant one = {1, 1, 1, "gpipe", false, MERAK_SP_OFF};
    const struct merak_schedule *const *all = merak_schedules();
    struct merak_plan plan = plan_of(&one);
    int n = 0;

    (void)state;
    for (int s = 0; all[s] != NULL; s++) {
        n += assert_schedule(all[s], 2, &plan);
        n += assert_schedule(all[s], 4, &plan);
    }
    assert_true(n >= 2 * 9);
}

/* The ends of a model on one rank, over tensor ranks and replicas, split
 * backwards, recomputation and halves, all at once. */
static void everything_together_changes_no_bit(void **state)
{
    static const struct {
        struct variant v;
        int chunks;
        bool sub;
    } rows[] = {
        {{2, 2, 2, "zb-v", true, MERAK_SP_ON}, 2, true},
        {{2, 2, 1, "interleaved", false, MERAK_SP_ON}, 2, false},
        {{1, 2, 2, "interleaved", true, MERAK_SP_OFF}, 3, false},
        {{2, 2, 1, "zb-h1", false, MERAK_SP_OFF}, 1, true},
    };
    struct small_model model = gpt;

    (void)state;
    model.dropout = 0.1f;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = plan_of(&rows[i].v), one;

        model.shared_proj = i % 2;
        plan.microbatches = rows[i].sub ? 8 : 4;
        one = plan;
        one.pp = 1;
        snprintf(one.schedule, sizeof(one.schedule), "gpipe");
        plan.chunks = rows[i].chunks;
        plan.sub_pipeline = rows[i].sub;
        assert_plans(&model, &one, &plan, true);
        plan.recompute = MERAK_RECOMPUTE_FULL;
        assert_plans(&model, &one, &plan, true);
    }
}

/* Do tensor ranks of this plan share out samples somewhere, and do two
 * neighbouring stages hold weights in different ways? */
static bool stages_differ(const struct small_model *model,
                          const struct merak_plan *plan)
{
    struct merak_planned *p = planned_build(model, plan, NULL);
    bool whole[8] = {false}, differ = false;

    assert_true(p->sharded->samples);
    for (int n = 0; n < p->sharded->graph->n_forward; n++) {
        const struct merak_node *node = p->sharded->graph->node[n];

        if (strcmp(node->op->name, "gelu") == 0)
            whole[p->stages->of_node[n]] =
                p->sharded->layout[node->out[0]->id].at[0].dim == 0;
    }
    for (int k = 1; k < p->stages->n; k++)
        differ = differ || whole[k] != whole[k - 1];
    merak_planned_destroy(p);
    return differ;
}

/* Layers whose tensor ranks share out samples, beside a vocabulary that is
 * cut, or after layers that are: the same to rounding as on one rank, and to
 * the bit on any number of stages. */
static void shared_out_samples_change_no_bit_by_stages(void **state)
{
    static const struct {
        struct variant v;
        int batch, chunks, kv_heads;
        bool sub, untied;
    } rows[] = {
        {{2, 1, 1, "1f1b", false, MERAK_SP_OFF}, 100, 1, 0, false, false},
        {{2, 2, 1, "1f1b", false, MERAK_SP_OFF}, 100, 1, 0, false, false},
        {{2, 2, 1, "1f1b", false, MERAK_SP_OFF}, 50, 1, 0, false, true},
        {{2, 2, 2, "1f1b", true, MERAK_SP_ON}, 50, 1, 0, false, true},
        {{4, 2, 1, "gpipe", false, MERAK_SP_AUTO}, 50, 1, 2, false, true},
        {{2, 2, 2, "zb-v", true, MERAK_SP_OFF}, 60, 2, 0, true, false},
        {{2, 2, 1, "interleaved", false, MERAK_SP_AUTO}, 40, 2, 2, false, true},
        {{2, 4, 1, "scp", false, MERAK_SP_OFF}, 50, 1, 0, true, true},
    };
    struct small_model model = gpt;
    int differ = 0;

    (void)state;
    model.dropout = 0.1f;
    model.vocab = 509;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct variant *v = &rows[i].v;
        struct merak_plan plan = plan_of(v), flat, one;

        model.kv_heads = rows[i].kv_heads;
        model.untied = rows[i].untied;
        plan.micro_batch = 4;
        plan.tp_batch_percent = rows[i].batch;
        plan.chunks = rows[i].chunks;
        plan.sub_pipeline = rows[i].sub;
        plan.microbatches = rows[i].sub ? 8 / v->dp : 4 / v->dp;
        flat = plan;
        flat.pp = flat.chunks = 1;
        flat.sub_pipeline = false;
        snprintf(flat.schedule, sizeof(flat.schedule), "gpipe");
        one = flat;
        one.tp = one.dp = 1;
        one.tp_batch_percent = 0;
        one.microbatches *= v->dp;
        differ += stages_differ(&model, &plan);
        assert_plans(&model, &one, &flat, false);
        assert_plans(&model, &flat, &plan, true);
        plan.recompute = MERAK_RECOMPUTE_FULL;
        plan.scatter = 1;
        assert_plans(&model, &flat, &plan, true);
    }
    assert_true(differ >= 4);
}

/* Of weights of 4 * 64^2 elements and more, which tensor ranks hold alike, they
 * share out the state: later steps read what was gathered of it. */
static void shared_out_state_changes_no_bit_by_stages(void **state)
{
    static const struct {
        struct variant v;
        int batch;
        bool untied;
    } rows[] = {
        {{2, 2, 1, "1f1b", true, MERAK_SP_OFF}, 100, false},
        {{2, 2, 2, "zb-h1", true, MERAK_SP_ON}, 60, true},
    };
    struct small_model model = gpt;

    (void)state;
    model.hidden = 64;
    model.layers = 2;
    model.vocab = 509;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = plan_of(&rows[i].v), flat, one;

        model.untied = rows[i].untied;
        plan.micro_batch = 4;
        plan.tp_batch_percent = rows[i].batch;
        flat = plan;
        flat.pp = 1;
        snprintf(flat.schedule, sizeof(flat.schedule), "gpipe");
        one = flat;
        one.tp = one.dp = 1;
        one.tp_batch_percent = 0;
        one.microbatches *= plan.dp;
        assert_plans(&model, &one, &flat, false);
        assert_plans(&model, &flat, &plan, true);
    }
}

/* What crosses in parts and is gathered is what crosses whole: tensor ranks
 * in one group or two, halves, slices, chunks, recomputation. */
static void scattered_boundaries_change_no_bit(void **state)
{
    static const struct {
        struct variant v;
        int chunks, kv_heads;
        bool sub;
    } rows[] = {
        {{2, 2, 1, "1f1b", false, MERAK_SP_OFF}, 1, 0, false},
        {{4, 2, 1, "gpipe", false, MERAK_SP_OFF}, 1, 2, false},
        {{4, 4, 1, "scp", false, MERAK_SP_OFF}, 1, 0, true},
        {{2, 2, 2, "zb-v", true, MERAK_SP_OFF}, 2, 0, true},
        {{2, 2, 1, "interleaved", false, MERAK_SP_ON}, 2, 0, false},
        {{2, 2, 1, "sliced:4", false, MERAK_SP_OFF}, 1, 2, false},
    };
    struct small_model model = gpt;

    (void)state;
    model.dropout = 0.1f;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan whole = plan_of(&rows[i].v), parts;

        model.kv_heads = rows[i].kv_heads;
        whole.chunks = rows[i].chunks;
        whole.sub_pipeline = rows[i].sub;
        whole.microbatches = rows[i].sub ? 8 : 4;
        whole.micro_batch = 1;
        parts = whole;
        parts.scatter = 1;
        assert_plans(&model, &whole, &parts, true);
        parts.recompute = MERAK_RECOMPUTE_FULL;
        assert_plans(&model, &whole, &parts, true);
    }
}

/* Gradients of keys and values are summed in other orders; recomputation
 * changes no bit of that. */
static void slices_agree_to_rounding(void **state)
{
    static const struct {
        struct variant v;
        int kv_heads;
        bool untied;
    } rows[] = {
        {{1, 1, 1, "sliced:2", false, MERAK_SP_OFF}, 0, false},
        {{1, 2, 1, "sliced:4", false, MERAK_SP_OFF}, 0, true},
        {{1, 4, 1, "sliced:16", false, MERAK_SP_OFF}, 2, false},
        {{2, 2, 2, "sliced:2", true, MERAK_SP_OFF}, 0, false},
        {{2, 2, 1, "sliced:4", false, MERAK_SP_OFF}, 2, true},
    };
    struct small_model model = gpt;

    (void)state;
    model.dropout = 0.1f;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan sliced = plan_of(&rows[i].v), one;

        sliced.micro_batch = 1;
        one = sliced;
        one.pp = 1;
        snprintf(one.schedule, sizeof(one.schedule), "gpipe");
        model.kv_heads = rows[i].kv_heads;
        model.untied = rows[i].untied;
        assert_plans(&model, &one, &sliced, false);
        one = sliced;
        sliced.recompute =
            i % 2 ? MERAK_RECOMPUTE_SELECTIVE : MERAK_RECOMPUTE_FULL;
        assert_plans(&model, &one, &sliced, true);
    }
}

/* Of a model that recycles: read and left on one stage, up and down the
 * pipeline, read on two stages; on one stage and on several. */
static void recycling_changes_no_bit(void **state)
{
    static const struct {
        struct variant v;
        int passes, reads, leaves, also;
    } rows[] = {
        {{1, 2, 1, "3f1b", false, MERAK_SP_OFF}, 3, 0, 2, 0},
        {{1, 4, 1, "3f1b", false, MERAK_SP_OFF}, 3, 0, 2, 1},
        {{1, 4, 1, "3f1b", false, MERAK_SP_OFF}, 2, 0, 1, 2},
        {{1, 4, 1, "3f1b", false, MERAK_SP_OFF}, 4, 1, 1, 0},
        {{1, 4, 1, "3f1b", false, MERAK_SP_OFF}, 3, 2, 0, 2},
        {{1, 1, 1, "3f1b", false, MERAK_SP_OFF}, 5, 0, 2, 1},
        {{1, 1, 1, "1f1b", false, MERAK_SP_OFF}, 2, 1, 2, 0},
        {{1, 1, 1, "zb-h1", false, MERAK_SP_OFF}, 3, 0, 2, 2},
        {{2, 4, 1, "3f1b", false, MERAK_SP_ON}, 2, 0, 2, 1},
        {{2, 2, 2, "3f1b", true, MERAK_SP_OFF}, 3, 1, 2, 0},
        {{1, 2, 2, "3f1b", true, MERAK_SP_OFF}, 2, 0, 1, 2},
        {{2, 4, 1, "3f1b", false, MERAK_SP_OFF}, 3, 0, 2, 1},
    };
    struct small_model model = gpt;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = plan_of(&rows[i].v), one;

        plan.microbatches = 5;
        plan.scatter = i % 2; /* boundaries in parts */
        one = plan;
        one.pp = 1;
        snprintf(one.schedule, sizeof(one.schedule), "gpipe");
        model.dropout = i % 2 ? 0.1f : 0;
        model.passes = rows[i].passes;
        model.reads = rows[i].reads;
        model.leaves = rows[i].leaves;
        model.also = rows[i].also;
        assert_plans(&model, &one, &plan, true);
        plan.recompute = MERAK_RECOMPUTE_FULL;
        assert_plans(&model, &one, &plan, true);
    }
}

static void assert_sound(const struct small_model *model,
                         const struct merak_plan *plan)
{
    struct merak_planned *p = planned_build(model, plan, NULL);

    planned_assert_sound(p);
    merak_planned_destroy(p);
}

/* The head's input gradient is summed over stages, in another order than one
 * product sums it.  Recomputation changes no bit of that. */
static void shared_blocks_agree_to_rounding(void **state)
{
    static const struct {
        struct variant v;
        int chunks, kv_heads;
        bool untied;
    } rows[] = {
        {{1, 2, 1, "interlaced", false, MERAK_SP_OFF}, 0, 0, false},
        {{1, 2, 1, "interlaced", false, MERAK_SP_OFF}, 2, 0, true},
        {{1, 3, 1, "interlaced", false, MERAK_SP_OFF}, 3, 2, true},
        {{1, 4, 1, "interlaced", false, MERAK_SP_OFF}, 3, 0, false},
        {{1, 4, 1, "interlaced", false, MERAK_SP_OFF}, 2, 0, true},
        {{1, 5, 1, "interlaced", false, MERAK_SP_OFF}, 0, 0, false},
        {{2, 2, 1, "interlaced", false, MERAK_SP_OFF}, 0, 0, false},
        {{2, 2, 1, "interlaced", false, MERAK_SP_ON}, 0, 0, true},
        {{2, 3, 1, "interlaced", false, MERAK_SP_ON}, 2, 0, true},
        {{4, 2, 1, "interlaced", false, MERAK_SP_OFF}, 0, 2, false},
        {{1, 2, 2, "interlaced", false, MERAK_SP_OFF}, 0, 0, true},
        {{1, 2, 2, "interlaced", true, MERAK_SP_OFF}, 0, 0, false},
        {{2, 2, 2, "interlaced", true, MERAK_SP_ON}, 0, 0, false},
        {{2, 4, 1, "interlaced", false, MERAK_SP_OFF}, 3, 0, false},
    };
    const struct variant serial = {1, 1, 1, "gpipe", false, MERAK_SP_OFF};
    struct merak_plan one = plan_of(&serial);
    struct small_model model = gpt;

    (void)state;
    model.dropout = 0.1f;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = plan_of(&rows[i].v), again;

        plan.chunks = rows[i].chunks;
        model.kv_heads = rows[i].kv_heads;
        model.untied = rows[i].untied;
        assert_sound(&model, &plan);
        assert_plans(&model, &one, &plan, false);
        again = plan;
        again.recompute =
            i % 2 ? MERAK_RECOMPUTE_SELECTIVE : MERAK_RECOMPUTE_FULL;
        for (int node = plan.tp; node > 0; node /= 2) { /* ranks of one */
            again.scatter = 2 * node;
            assert_sound(&model, &again);
        }
        again.scatter = 1;
        assert_sound(&model, &again);
        assert_plans(&model, &plan, &again, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_change_no_bit),
        cmocka_unit_test(ties_and_untied_heads_change_no_bit),
        cmocka_unit_test(zero1_agrees_with_whole_state),
        cmocka_unit_test(tensor_and_data_parallel_agree_to_rounding),
        cmocka_unit_test(grouped_heads_agree_to_rounding),
        cmocka_unit_test(recomputation_changes_no_bit),
        cmocka_unit_test(sub_pipelines_change_no_bit),
        cmocka_unit_test(schedules_change_no_bit),
        cmocka_unit_test(shared_out_samples_change_no_bit_by_stages),
        cmocka_unit_test(shared_out_state_changes_no_bit_by_stages),
        cmocka_unit_test(scattered_boundaries_change_no_bit),
        cmocka_unit_test(slices_agree_to_rounding),
        cmocka_unit_test(everything_together_changes_no_bit),
        cmocka_unit_test(recycling_changes_no_bit),
        cmocka_unit_test(shared_blocks_agree_to_rounding),
    };

    return cmocka_run_group_tests_name("parity", tests, NULL, NULL);
}
