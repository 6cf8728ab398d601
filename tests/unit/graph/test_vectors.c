/* SPDX-License-Identifier: Apache-2.0 */
/* test_vectors.c - the stored numbers are whole, and of our models */
#include "config.h"

#include "unit/near.h"
#include "unit/vectors.h"

#include "io/hf_config.h"
#include "partitioner/graph/graph.h"

#include <stdio.h>
#include <string.h>

static struct vectors_family {
    const char *config, *file;
} families[] = {{"gpt2.json", "gpt2.vec"}, {"llama.json", "llama.vec"}};

static struct merak_model *describe(const char *file,
                                    struct merak_graph **graph_p)
{
    struct merak_model_options opt = {
        .micro_batch = 2, .seq = 16, .dtype = MERAK_F32};
    struct merak_model *m;
    struct merak_hf_config config;
    struct merak_error err;
    char path[1024];

    snprintf(path, sizeof(path), "%s/vectors/%s", TEST_SRCDIR, file);
    if (merak_hf_config_load(path, &config, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(merak_model_create(&opt, &m, NULL), MERAK_OK);
    merak_hf_describe(m, &config);
    if (merak_model_graph(m, graph_p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return m;
}

static void assert_same_shape(const struct merak_value *value,
                              const struct vectors_record *r)
{
    assert_int_equal(value->shape.ndim, r->shape.ndim);
    for (int d = 0; d < r->shape.ndim; d++)
        assert_int_equal(value->shape.dim[d], r->shape.dim[d]);
}

static size_t count(const struct vectors *v, const char *prefix)
{
    size_t n = 0;

    for (size_t i = 0; i < v->n; i++)
        n += strncmp(v->record[i].name, prefix, strlen(prefix)) == 0;
    return n;
}

static void every_parameter_has_its_weight_and_gradient(void **state)
{
    const struct vectors_family *family = *state;
    struct vectors *v = vectors_load(family->file);
    struct merak_graph *graph;
    struct merak_model *m = describe(family->config, &graph);
    size_t params = 0;

    for (int i = 0; i < graph->n_values; i++) {
        const struct merak_value *value = graph->value[i];

        if (value->kind != MERAK_VALUE_PARAM)
            continue;
        assert_same_shape(value, vectors_find(v, "param/", value->name, 'w'));
        assert_same_shape(value, vectors_find(v, "grad/", value->name, 'f'));
        params++;
    }
    assert_int_equal(count(v, "param/"), params);
    assert_int_equal(count(v, "grad/"), params);
    merak_model_destroy(m);
    vectors_free(v);
}

static double norm(const struct vectors *v, const char *prefix)
{
    double sum = 0;

    for (size_t i = 0; i < v->n; i++) {
        if (strncmp(v->record[i].name, prefix, strlen(prefix)) != 0)
            continue;
        for (size_t j = 0; j < v->record[i].n; j++)
            sum += (double)v->record[i].f[j] * (double)v->record[i].f[j];
    }
    return sqrt(sum);
}

/* Weights are exact; gradients were rounded to f32 when they were stored. */
static void numbers_are_as_they_were_written(void **state)
{
    const struct vectors_family *family = *state;
    struct vectors *v = vectors_load(family->file);
    double weights = norm(v, "param/"), gradients = norm(v, "grad/");
    const struct vectors_record *losses = vectors_find(v, "losses", "", 'd');

    assert_near(&weights, vectors_find(v, "param_norm", "", 'd')->d, 1, 1e-12,
                0);
    assert_near(&gradients, vectors_find(v, "grad_norm", "", 'd')->d, 1, 1e-7,
                0);
    assert_int_equal(losses->n, 4);
    for (int i = 0; i < 3; i++)
        assert_true(losses->d[i + 1] < losses->d[i]);
    vectors_free(v);
}

static void tokens_are_in_the_vocabulary(void **state)
{
    static const char *const name[] = {"tokens", "targets"};
    const struct vectors_family *family = *state;
    struct vectors *v = vectors_load(family->file);

    for (int t = 0; t < 2; t++) {
        const struct vectors_record *r = vectors_find(v, name[t], "", 'i');

        assert_int_equal(r->n, 2 * 16);
        for (size_t i = 0; i < r->n; i++)
            assert_in_range(r->i[i], 0, 60);
    }
    vectors_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_parameter_has_its_weight_and_gradient,
                                  &families[0]),
        cmocka_unit_test_prestate(every_parameter_has_its_weight_and_gradient,
                                  &families[1]),
        cmocka_unit_test_prestate(numbers_are_as_they_were_written,
                                  &families[0]),
        cmocka_unit_test_prestate(numbers_are_as_they_were_written,
                                  &families[1]),
        cmocka_unit_test_prestate(tokens_are_in_the_vocabulary, &families[0]),
        cmocka_unit_test_prestate(tokens_are_in_the_vocabulary, &families[1]),
    };

    return cmocka_run_group_tests_name("vectors", tests, NULL, NULL);
}
