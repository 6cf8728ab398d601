/* SPDX-License-Identifier: Apache-2.0 */
/* parity.c - plans trained side by side, for tests */
#include "config.h"

#include "unit/parity.h"
#include "unit/test_box.h"

#include "base/half.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct small_model parity_gpt = {
    .layers = 3, .vocab = 13, .hidden = 8, .heads = 4};

struct merak_plan parity_plan(const struct parity_variant *v)
{
    struct merak_plan plan = {.tp = v->tp,
                              .pp = v->pp,
                              .dp = v->dp,
                              .microbatches = PARITY_BATCHES / v->dp,
                              .zero = v->zero,
                              .sp = v->sp};

    snprintf(plan.schedule, sizeof(plan.schedule), "%s", v->schedule);
    return plan;
}

/* What bf16 parameters begin as: their master copies, rounded. */
static void round_params(const struct executed *ex, int rank)
{
    const struct merak_program *prog = ex->planned->program[rank];

    for (int i = 0; i < prog->n_params; i++) {
        const struct merak_param_slots *p = &prog->param[i];
        const struct merak_slot *slot = &prog->slot[p->home];
        uint16_t *data = (uint16_t *)(ex->arena[rank] + slot->offset);

        for (size_t k = slot->flat_lo;
             slot->dtype == MERAK_BF16 && k < slot->flat_hi; k++) {
            float x;

            executed_init_element((void *)(uintptr_t)p,
                                  box_place(&slot->box, k), &x);
            data[k - slot->flat_lo] = merak_f32_to_bf16(x);
        }
    }
}

struct executed *parity_trained(const struct small_model *model,
                                const struct merak_plan *plan, double *loss)
{
    struct executed *ex = executed_create(planned_build(model, plan, NULL));

    for (int r = 0; r < ex->planned->n_programs; r++)
        round_params(ex, r);
    for (int s = 0; s < PARITY_STEPS; s++) {
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

void parity_params(const struct executed *want, const struct executed *got,
                   double abs)
{
    const struct merak_planned *w = want->planned, *g = got->planned;

    for (int r = 0; r < g->n_programs; r++) {
        for (int i = 0; i < g->program[r]->n_params; i++) {
            const struct merak_param_slots *p = &g->program[r]->param[i];
            float *whole = calloc(merak_shape_count(&p->shape), sizeof(*whole));
            struct compare c = {.want = whole, .name = p->name, .abs = abs};
            const struct merak_graph *graph = g->program[r]->sharded->graph;

            if (graph->value[p->value]->sign_rate > 0)
                c.abs = 0; /* counts are whole numbers */

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

/* Losses to rounding, counts exactly. */
static void compare_reports(const struct executed *want,
                            const struct executed *got)
{
    double a[EXECUTED_REPORTS], b[EXECUTED_REPORTS];
    size_t n = executed_reports(want, a), batches = PARITY_BATCHES;

    assert_int_equal(executed_reports(got, b), n);
    for (size_t i = 0; i < n; i++) {
        if (fabs(a[i] - floor(a[i])) < 1e-12)
            assert_near(&b[i], &a[i], 1, 0, 0);
        else
            assert_near(&b[i], &a[i], 1, 1e-5 * (double)batches, 0);
    }
}

/* The latest runs: one plan is compared with several. */
#define RUNS 8

static struct run {
    struct small_model model;
    struct merak_plan plan;
    double loss[PARITY_STEPS];
    struct executed *ex;
    unsigned used;
} runs[RUNS];

/* A plan that borrows lists may be another one by now. */
static bool is_of(const struct run *run, const struct small_model *model,
                  const struct merak_plan *plan)
{
    return run->ex != NULL && plan->stage == NULL && plan->cut == NULL &&
           plan->drop == NULL &&
           memcmp(&run->model, model, sizeof(*model)) == 0 &&
           memcmp(&run->plan, plan, sizeof(*plan)) == 0;
}

static const struct run *trained(const struct small_model *model,
                                 const struct merak_plan *plan)
{
    static unsigned now;
    struct run *run = &runs[0];

    for (int i = 0; i < RUNS; i++) {
        if (is_of(&runs[i], model, plan)) {
            runs[i].used = ++now;
            return &runs[i];
        }
        if (runs[i].used < run->used)
            run = &runs[i];
    }
    if (run->ex != NULL)
        executed_destroy(run->ex);
    *run = (struct run){.used = ++now};
    memcpy(&run->model, model,
           sizeof(*model)); /* with what is between fields */
    memcpy(&run->plan, plan, sizeof(*plan));
    run->ex = parity_trained(model, plan, run->loss);
    return run;
}

void parity_plans(const struct small_model *model, const struct merak_plan *a,
                  const struct merak_plan *b, bool exact)
{
    const struct run *x = trained(model, a), *y = trained(model, b);
    const struct executed *want = x->ex, *got = y->ex;
    float norm = executed_norm(want, 0);

    assert_true(norm > want->step.clip); /* clipping is active */
    assert_near(y->loss, x->loss, PARITY_STEPS, exact ? 0 : 1e-5, 0);
    for (int r = 0; r < got->planned->n_programs; r++) {
        float n = executed_norm(got, r);

        assert_near(&n, &norm, 1, exact ? 0 : 1e-5, 0);
    }
    /* AdamW moves an element by about lr whatever its gradient's size, so a
     * gradient of next to nothing may go either way. */
    parity_params(want, got, exact ? 0.0 : 2e-3);
    compare_reports(want, got);
}

void parity_variants(const struct small_model *model,
                     const struct parity_variant *a,
                     const struct parity_variant *b, bool exact)
{
    struct merak_plan want = parity_plan(a), got = parity_plan(b);

    parity_plans(model, &want, &got, exact);
}
