/* SPDX-License-Identifier: Apache-2.0 */
/* test_t5.c - examples/t5.c: its numbers against transformers', and the same in
 * every plan, with the encoder and the decoder on stages of their own */
#include "config.h"

#include "unit/parity.h"

/* The example is a program. */
int t5_program(int argc, char **argv);
#define main t5_program
#include "examples/t5.c"
#undef main

#include "partitioner/graph/graph.h"

static struct t5 tiny = {"tiny", 2, 16, 2, 8, 32, 32, 0, 6};
static struct t5 dropping = {"tiny", 2, 16, 2, 8, 32, 32, 0.1f, 16};
static const struct small_model model = {
    .describe = describe, .arg = &tiny, .tokens = 4};
static const struct small_model with_dropout = {
    .describe = describe, .arg = &dropping, .tokens = 4};

/* --- transformers' numbers --------------------------------------------------
 */

static void golden_input(const char *name, uint64_t first, size_t n,
                         int32_t *out)
{
    static const int32_t source[2][6] = {{5, 9, 14, 3, 27, 1},
                                         {8, 2, 30, 1, 0, 0}};
    static const int32_t labels[2][4] = {{7, 21, 4, 1}, {11, 1, -1, -1}};
    static const int32_t decoder[2][4] = {{0, 7, 21, 4}, {0, 11, 1, 0}};
    static const int32_t lengths[2] = {6, 4};

    assert_true(first == 0 && n == 2);
    if (strcmp(name, "source") == 0)
        memcpy(out, source, sizeof(source));
    else if (strcmp(name, "labels") == 0)
        memcpy(out, labels, sizeof(labels));
    else if (strcmp(name, "decoder") == 0)
        memcpy(out, decoder, sizeof(decoder));
    else
        memcpy(out, lengths, sizeof(lengths));
}

static void set_element(void *arg, size_t i, float *element)
{
    const struct merak_param_slots *p = ((void **)arg)[0];
    int k = *(int *)((void **)arg)[1];
    bool is_norm = strstr(p->name, "norm") != NULL;

    *element = (float)(0.1 * sin(0.7 * (double)i + k) + (is_norm ? 1 : 0));
}

/* How many parameters come before it by name. */
static int place_of(const struct merak_program *prog, const char *name)
{
    int before = 0;

    for (int i = 0; i < prog->n_params; i++)
        before += strcmp(prog->param[i].name, name) < 0;
    return before;
}

static void numbers_are_those_of_transformers(void **state)
{
    struct merak_plan plan = planned_plan(1, 1, 1, 1, "1f1b", 0);
    struct executed *ex = executed_create(planned_build(&model, &plan, NULL));
    const struct merak_program *prog = ex->planned->program[0];
    size_t count = 0;
    double loss;
    float norm;

    (void)state;
    for (int i = 0; i < prog->n_params; i++) {
        const struct merak_param_slots *p = &prog->param[i];
        int k = place_of(prog, p->name);
        void *arg[] = {(void *)(uintptr_t)p, &k};

        executed_param(ex, 0, p, set_element, arg);
        count += merak_shape_count(&p->shape);
    }
    ex->named = golden_input;
    executed_step(ex, 1);
    /* 6 of 8 labels count, which a trainer knows, but not these tests */
    loss = executed_loss(ex) * 8 / 6;
    norm = executed_norm(ex, 0) / ex->step.grad_scale * 8 / 6;
    assert_near(&loss, (&(double){3.48187231214}), 1, 1e-6, 0);
    assert_near(&norm, (&(float){0.700916341177f}), 1, 2e-6, 0);
    assert_int_equal(count, 11072);
    executed_destroy(ex);
}

/* --- plans ------------------------------------------------------------------
 */

static void pipelines_change_no_bit(void **state)
{
    static const struct parity_variant rows[] = {
        {1, 2, 1, "1f1b", false, MERAK_SP_OFF},
        {1, 4, 1, "1f1b", false, MERAK_SP_OFF},
        {1, 4, 1, "zb-h1", false, MERAK_SP_OFF},
        {1, 3, 1, "gpipe", false, MERAK_SP_OFF}};
    const struct parity_variant one = {1, 1, 1, "1f1b", false, MERAK_SP_OFF};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        parity_variants(&with_dropout, &one, &rows[i], true);
}

static void recomputation_changes_no_bit(void **state)
{
    const struct parity_variant v = {2, 2, 1, "1f1b", false, MERAK_SP_OFF};
    struct merak_plan kept = parity_plan(&v), again = kept;

    (void)state;
    again.recompute = MERAK_RECOMPUTE_FULL;
    parity_plans(&with_dropout, &kept, &again, true);
}

static void tensor_and_data_parallel_agree_to_rounding(void **state)
{
    static const struct parity_variant rows[] = {
        {2, 1, 1, "1f1b", false, MERAK_SP_OFF},
        {1, 1, 2, "1f1b", false, MERAK_SP_OFF},
        {2, 4, 2, "1f1b", true, MERAK_SP_OFF}};
    const struct parity_variant one = {1, 1, 1, "1f1b", false, MERAK_SP_OFF};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        parity_variants(&with_dropout, &one, &rows[i], false);
}

/* Bytes of activations that a rank sends of a micro-batch. */
static size_t sent(const struct merak_program *prog)
{
    size_t bytes = 0;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind == MERAK_INSTR_SEND && in->phase == MERAK_PHASE_F &&
            in->microbatch == 0)
            bytes += in->bytes;
    }
    return bytes;
}

/* With the encoder on e of p stages, w C B (e S + (p - 1 - e) (S + T)) bytes
 * cross: what the encoder made is sent on as long as a decoder's layer reads
 * it, once for all of a stage. */
static void stages_send_what_the_closed_form_says(void **state)
{
    struct merak_plan plan = planned_plan(1, 4, 1, 4, "1f1b", 0);
    struct merak_planned *p = planned_build(&model, &plan, NULL);
    const size_t row = 4 * 2 * 16, S = 6, T = 4;
    size_t encoder = 0;

    (void)state;
    for (int r = 0; r < 3; r++) {
        size_t bytes = sent(p->program[r]);

        if (bytes == row * S && encoder == (size_t)r)
            encoder++;
        else
            assert_int_equal(bytes, row * (S + T));
    }
    assert_in_range(encoder, 1, 2);
    assert_int_equal(sent(p->program[3]), 0);
    merak_planned_destroy(p);
}

/* Of the sizes that are published, with one table for three uses. */
static void small_has_as_many_parameters_as_published(void **state)
{
    const struct merak_model_options opt = {
        .micro_batch = 1, .seq = 114, .dtype = MERAK_F32};
    struct t5 *small = &sizes[1];
    struct merak_model *m;
    struct merak_graph *graph;
    size_t count = 0;

    (void)state;
    small->source = 512;
    assert_int_equal(merak_model_create(&opt, &m, NULL), MERAK_OK);
    describe(m, small);
    assert_int_equal(merak_model_graph(m, &graph, NULL), MERAK_OK);
    for (int v = 0; v < graph->n_values; v++) {
        if (graph->value[v]->kind == MERAK_VALUE_PARAM)
            count += merak_shape_count(&graph->value[v]->shape);
    }
    assert_int_equal(count, 60506624);
    merak_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_transformers),
        cmocka_unit_test(pipelines_change_no_bit),
        cmocka_unit_test(recomputation_changes_no_bit),
        cmocka_unit_test(tensor_and_data_parallel_agree_to_rounding),
        cmocka_unit_test(stages_send_what_the_closed_form_says),
        cmocka_unit_test(small_has_as_many_parameters_as_published),
    };

    return cmocka_run_group_tests_name("t5", tests, NULL, NULL);
}
