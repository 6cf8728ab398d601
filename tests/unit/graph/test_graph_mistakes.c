/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph_mistakes.c - mistakes in describing a model are told */
#include "config.h"

#include "unit/graph/few_calls.h"

#include <math.h>
#include <string.h>

static void no_loss(struct merak_model *m)
{
    begin(m);
}

static void two_losses(struct merak_model *m)
{
    struct merak_value *x = begin(m);

    end(m, x);
    merak_cross_entropy(m, x, merak_targets(m));
}

static void unused_parameter(struct merak_model *m)
{
    MERAK_PARAM(m, "spare", MERAK_ZEROS, 3);
    end(m, begin(m));
}

static void same_name_twice(struct merak_model *m)
{
    MERAK_PARAM(m, "w", MERAK_ZEROS, 3);
    MERAK_PARAM(m, "w", MERAK_ZEROS, 4);
}

static void name_with_slash(struct merak_model *m)
{
    MERAK_PARAM(m, "a/b", MERAK_ZEROS, 3);
}

static void empty_dim(struct merak_model *m)
{
    MERAK_PARAM(m, "w", MERAK_ZEROS, 3, 0);
}

static void too_many_elements(struct merak_model *m)
{
    MERAK_PARAM(m, "w", MERAK_ZEROS, (size_t)1 << 31, (size_t)1 << 31, 8);
}

static void output_too_large(struct merak_model *m)
{
    size_t n = (size_t)1 << 55;

    merak_linear(m, MERAK_PARAM(m, "x", MERAK_ZEROS, n, 4),
                 MERAK_PARAM(m, "w", MERAK_ZEROS, n, 4), NULL, 1);
}

static void rope(struct merak_model *m, size_t n, const double *by)
{
    const struct merak_rope_scaling scaling = {
        .kind = MERAK_ROPE_PAIRS, .factor = 1, .by = by, .n_by = n};

    merak_rope_scaled(m, MERAK_PARAM(m, "x", MERAK_ZEROS, 1, 4, 8), 1e4f,
                      &scaling);
}

static void three_factors_of_four_pairs(struct merak_model *m)
{
    rope(m, 3, (const double[]){1, 2, 3});
}

static void no_factors_of_pairs(struct merak_model *m)
{
    rope(m, 4, NULL);
}

static void a_factor_of_nothing(struct merak_model *m)
{
    rope(m, 4, (const double[]){1, 2, 0, 4});
}

static void negative_deviation(struct merak_model *m)
{
    MERAK_PARAM(m, "w", MERAK_NORMAL(-1), 3);
}

static void null_input(struct merak_model *m)
{
    merak_gelu(m, NULL, false);
}

static void unknown_op(struct merak_model *m)
{
    struct merak_value *x = begin(m), *y;

    assert_int_equal(merak_apply(m, "softsign", NULL, 1, &x, &y),
                     MERAK_ERR_NOT_FOUND);
}

static void too_many_inputs(struct merak_model *m)
{
    struct merak_value *x = begin(m), *in[] = {x, x, x}, *y;

    assert_int_equal(merak_apply(m, "gelu", NULL, 3, in, &y), MERAK_ERR_PARAM);
}

static void first_mistake_counts(struct merak_model *m)
{
    struct merak_value *x = begin(m);

    x = merak_linear(m, x, MERAK_PARAM(m, "w", MERAK_ZEROS, 8, 31), NULL, 1);
    assert_null(x);
    assert_null(merak_gelu(m, x, true));
    assert_null(MERAK_PARAM(m, "a/b", MERAK_ZEROS, 3));
    end(m, x);
}

static void bias_used_as_matrix(struct merak_model *m)
{
    struct merak_value *x = begin(m);
    struct merak_value *w = MERAK_PARAM(m, "w", MERAK_ZEROS, 2, 16, 32);

    x = merak_add(m, x, w);
    merak_linear(m, x, MERAK_PARAM(m, "v", MERAK_ZEROS, 2, 16, 32, 32), w, 1);
}

static void parameter_in_the_residual(struct merak_model *m)
{
    struct merak_value *w = MERAK_PARAM(m, "w", MERAK_ZEROS, 2, 16, 32);

    end(m, merak_add(m, begin(m), w));
}

static void loss_through_statistics(struct merak_model *m)
{
    struct merak_value *x = begin(m), *out[3], *h;
    struct merak_value *in[] = {x, MERAK_PARAM(m, "g", MERAK_ONES, 32),
                                MERAK_PARAM(m, "b", MERAK_ZEROS, 32)};

    if (merak_apply(m, "layernorm", NULL, 3, in, out) != MERAK_OK)
        return;
    h = merak_add(m, out[1], out[2]);
    end(m, merak_linear(m, h, MERAK_PARAM(m, "w", MERAK_ZEROS, 16, 32, 16),
                        NULL, 1));
}

static void eps_of_zero(struct merak_model *m)
{
    merak_rmsnorm(m, begin(m), MERAK_PARAM(m, "g", MERAK_ONES, 32), 0);
}

/* --- inputs ----------------------------------------------------------------
 */

static struct merak_value *pixels(struct merak_model *m, const char *name,
                                  const char *letters)
{
    return merak_input(m, name, MERAK_BF16, letters,
                       (const size_t[]){2, 28, 28, 1});
}

static void input_named_twice(struct merak_model *m)
{
    pixels(m, "pixels", "byxc");
    pixels(m, "pixels", "byxc");
}

static void input_named_as_tokens(struct merak_model *m)
{
    merak_tokens(m);
    pixels(m, "tokens", "byxc");
}

static void input_never_read(struct merak_model *m)
{
    pixels(m, "pixels", "byxc");
    end(m, begin(m));
}

static void samples_not_first(struct merak_model *m)
{
    pixels(m, "pixels", "ybxc");
}

static void samples_twice(struct merak_model *m)
{
    pixels(m, "pixels", "bybc");
}

static void unknown_letter(struct merak_model *m)
{
    pixels(m, "pixels", "byxq");
}

static void too_many_letters(struct merak_model *m)
{
    pixels(m, "pixels", "bzyxc..");
}

static void input_with_a_space(struct merak_model *m)
{
    pixels(m, "the pixels", "byxc");
}

static void input_of_another_batch(struct merak_model *m)
{
    merak_input(m, "pixels", MERAK_BF16, "byx", (const size_t[]){3, 4, 4});
}

static void input_of_another_length(struct merak_model *m)
{
    merak_input(m, "types", MERAK_I32, "bt", (const size_t[]){2, 15});
}

static void input_of_f64(struct merak_model *m)
{
    merak_input(m, "pixels", MERAK_F64, "b", (const size_t[]){2});
}

static void seventeen_inputs(struct merak_model *m)
{
    for (int i = 0; i <= MERAK_MAX_INPUTS; i++)
        pixels(m, merak_name(m, "pixels.%d", i), "byxc");
}

static void labels_of_space(struct merak_model *m)
{
    merak_labels(m, "label", "byx");
}

/* A loss of a trained vector [B, 3], against an input. */
static struct merak_value *square(struct merak_model *m, const char *name)
{
    struct merak_value *t =
        merak_input(m, name, MERAK_F32, "b.", (const size_t[]){2, 3});

    return merak_mse(
        m, MERAK_PARAM(m, merak_name(m, "w.%s", name), MERAK_NORMAL(1), 2, 3),
        t);
}

static void mean_along_nothing(struct merak_model *m)
{
    merak_mean(m, begin(m), 'y');
}

static void loss_without_weight(struct merak_model *m)
{
    merak_loss(m, "a", square(m, "x"), 0);
}

static void loss_of_no_number(struct merak_model *m)
{
    merak_loss(m, "a", square(m, "x"), NAN);
}

static void loss_named_twice(struct merak_model *m)
{
    struct merak_value *loss = square(m, "x");

    merak_loss(m, "a", loss, 1);
    merak_loss(m, "b", loss, 1);
}

static void losses_of_one_name(struct merak_model *m)
{
    merak_loss(m, "a", square(m, "x"), 1);
    merak_loss(m, "a", square(m, "y"), 1);
}

static void loss_without_a_name(struct merak_model *m)
{
    merak_loss(m, "a", square(m, "x"), 1);
    square(m, "y");
}

static void loss_that_is_none(struct merak_model *m)
{
    merak_loss(m, "a", begin(m), 1);
}

static void loss_of_an_odd_name(struct merak_model *m)
{
    merak_loss(m, "a\"b", square(m, "x"), 1);
}

static void targets_that_are_trained(struct merak_model *m)
{
    struct merak_value *x = begin(m);

    merak_mse(m, x, merak_gelu(m, x, true));
}

static void nine_losses(struct merak_model *m)
{
    for (int i = 0; i <= MERAK_MAX_LOSSES; i++)
        square(m, merak_name(m, "x%d", i));
}

static void labels_of_other_samples(struct merak_model *m)
{
    struct merak_value *x = begin(m);

    x = merak_linear(m, x, MERAK_PARAM(m, "out", MERAK_NORMAL(1), 61, 32), NULL,
                     1);
    merak_cross_entropy(m, x, merak_labels(m, "label", "b"));
}

static const struct {
    void (*describe)(struct merak_model *m);
    enum merak_dtype dtype;
    const char *says;
} mistakes[] = {
    {no_loss, MERAK_BF16, "declares no loss"},
    {two_losses, MERAK_BF16, "has 2 losses, of which none has a name"},
    {unused_parameter, MERAK_BF16, "does not depend on parameter spare"},
    {same_name_twice, MERAK_BF16, "parameter w: the name is taken"},
    {name_with_slash, MERAK_BF16, "\"a/b\": expected 1 to 200 printable"},
    {empty_dim, MERAK_BF16, "w: shape [3,0] has an empty dim"},
    {too_many_elements, MERAK_BF16,
     "[2147483648,2147483648,8] has too many elements"},
    {output_too_large, MERAK_BF16,
     "[36028797018963968,36028797018963968] has too many"},
    {negative_deviation, MERAK_BF16, "standard deviation -1"},
    {three_factors_of_four_pairs, MERAK_F32, "3 factors of pairs, expected 4"},
    {no_factors_of_pairs, MERAK_F32, "0 factors of pairs, expected 4"},
    {a_factor_of_nothing, MERAK_F32, "factor of pair 2 is 0, expected a pos"},
    {null_input, MERAK_BF16, "gelu: input 0 is NULL"},
    {input_named_twice, MERAK_BF16, "input pixels: the name is taken"},
    {input_named_as_tokens, MERAK_BF16, "input tokens: the name is taken"},
    {input_never_read, MERAK_BF16, "nothing reads input pixels"},
    {samples_not_first, MERAK_BF16, "letters \"ybxc\", expected one for each"},
    {samples_twice, MERAK_BF16, "the first 'b', samples, and no other"},
    {unknown_letter, MERAK_BF16, "letter 'q' of dim 3 is not known"},
    {too_many_letters, MERAK_BF16, "one for each of 1 to 6 dims"},
    {input_with_a_space, MERAK_BF16, "\"the pixels\": expected 1 to 200"},
    {input_of_another_batch, MERAK_BF16,
     "dim 0, 'b', is 3, expected the "
     "model's 2 samples"},
    {input_of_another_length, MERAK_BF16,
     "dim 1, 't', is 15, expected the "
     "model's 16 positions"},
    {input_of_f64, MERAK_BF16, "type f64, expected f32, bf16 or i32"},
    {seventeen_inputs, MERAK_BF16, "the model has 16 inputs"},
    {labels_of_space, MERAK_BF16, "labels label: letters \"byx\""},
    {mean_along_nothing, MERAK_F32, "nothing runs along 'y' in embedding.0"},
    {loss_without_weight, MERAK_F32, "loss a: weight 0, expected"},
    {loss_of_no_number, MERAK_F32, "loss a: weight nan, expected"},
    {loss_named_twice, MERAK_F32, "loss b: it already is loss a"},
    {losses_of_one_name, MERAK_F32, "loss a: the name is taken"},
    {loss_without_a_name, MERAK_F32, "has no name, and others have"},
    {loss_that_is_none, MERAK_F32, "loss a: embedding.0 is none, expected"},
    {loss_of_an_odd_name, MERAK_F32, "loss name \"a\"b\": expected 1 to 200"},
    {targets_that_are_trained, MERAK_F32, "its targets gelu.1 depend on"},
    {nine_losses, MERAK_F32, "more than 8 losses"},
    {labels_of_other_samples, MERAK_BF16, "targets is [2], expected dims"},
    {unknown_op, MERAK_BF16, "op softsign is not registered"},
    {too_many_inputs, MERAK_BF16, "gelu: 3 inputs, expected 1 to 1"},
    {first_mistake_counts, MERAK_BF16,
     "linear: w [8,31] does not fit x [2,16,32]"},
    {bias_used_as_matrix, MERAK_BF16,
     "bias [2,16,32] is of type bf16, expected f32"},
    {parameter_in_the_residual, MERAK_BF16, "add: input w is a parameter"},
    {loss_through_statistics, MERAK_F32,
     "layernorm: the loss depends on its output"},
    {eps_of_zero, MERAK_BF16, "rmsnorm: eps is 0"},
};

static void the_first_mistake_is_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(*mistakes); i++) {
        struct merak_model *m = create(mistakes[i].dtype);
        struct merak_error err = {0};
        struct merak_graph *graph;

        mistakes[i].describe(m);
        assert_true(merak_model_graph(m, &graph, &err) < 0);
        if (strstr(err.text, mistakes[i].says) == NULL)
            fail_msg("got \"%s\", expected \"%s\"", err.text, mistakes[i].says);
        assert_int_equal(merak_model_status(m, NULL), err.status);
        merak_model_destroy(m);
    }
}

static void a_model_in_use_takes_no_more(void **state)
{
    struct merak_model *m = create(MERAK_F32);
    struct merak_graph *graph;
    struct merak_error err;

    (void)state;
    end(m, begin(m));
    graph = graph_of(m);
    assert_ptr_equal(graph_of(m), graph);
    assert_null(merak_gelu(m, graph->value[0], true));
    assert_int_equal(merak_model_status(m, &err), MERAK_ERR_PARAM);
    assert_non_null(strstr(err.text, "complete"));
    merak_model_destroy(m);
}

static void values_of_another_model_are_refused(void **state)
{
    struct merak_model *m = create(MERAK_F32), *other = create(MERAK_F32);
    struct merak_error err;

    (void)state;
    assert_null(merak_gelu(m, begin(other), true));
    assert_int_equal(merak_model_status(m, &err), MERAK_ERR_PARAM);
    assert_non_null(strstr(err.text, "of another model"));
    merak_model_destroy(m);
    merak_model_destroy(other);
}

static void bad_options_are_refused(void **state)
{
    static const struct merak_model_options rows[] = {
        {.micro_batch = 0, .seq = 16, .dtype = MERAK_F32},
        {.micro_batch = 2, .seq = 0, .dtype = MERAK_F32},
        {.micro_batch = 2, .seq = 16, .dtype = MERAK_I32},
        {.micro_batch = (size_t)1 << 40,
         .seq = (size_t)1 << 40,
         .dtype = MERAK_F32},
        {.micro_batch = 2, .seq = 16, .dtype = MERAK_F32, .expert_room = -1},
        {.micro_batch = 2, .seq = 16, .dtype = MERAK_F32, .expert_room = NAN},
        {.micro_batch = 2,
         .seq = 16,
         .dtype = MERAK_F32,
         .expert_room = INFINITY},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_model *m = NULL;

        assert_int_equal(merak_model_create(&rows[i], &m, NULL),
                         MERAK_ERR_PARAM);
        assert_null(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_mistake_is_told),
        cmocka_unit_test(a_model_in_use_takes_no_more),
        cmocka_unit_test(values_of_another_model_are_refused),
        cmocka_unit_test(bad_options_are_refused),
    };

    return cmocka_run_group_tests_name("graph_mistakes", tests, NULL, NULL);
}
