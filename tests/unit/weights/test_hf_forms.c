/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_forms.c - config.json files in the forms that people have them
 *
 * vectors/hf/forms.jsonl has published ones, by families and versions, and
 * small copies with the losses that transformers computes.
 */
#include "config.h"

#include "unit/config_files.h"
#include "unit/weights/hf_folder.h"
#include "unit/scratch_dir.h"

#include "partitioner/graph/graph.h"
#include "runtime/infer/decoder.h"

enum { TOKENS = 24, VOCAB = 61 };

/* --- what make_forms.py has, too -------------------------------------------
 */

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static float weight_of(void *arg, const char *name, int ndim, size_t i)
{
    size_t n = strlen(name);
    bool norm = ndim == 1 && n > 6 && strcmp(name + n - 6, "weight") == 0;
    uint64_t key = 0;

    (void)arg;
    for (size_t k = 0; k < n; k++)
        key = mix(key ^ (unsigned char)name[k]);
    return (float)((norm ? 1 : 0) +
                   (ndim > 1 ? 1.0 : 0.5) *
                       ((double)(mix(key + i) >> 40) / 16777216.0 - 0.5));
}

/* --- the forms -------------------------------------------------------------
 */

static void for_each(void (*check)(const char *name, const json_t *line))
{
    FILE *f = fopen(TEST_SRCDIR "/vectors/hf/forms.jsonl", "r");
    char *text = NULL;
    size_t size = 0;
    int n = 0;

    assert_non_null(f);
    while (getline(&text, &size, f) > 0) {
        json_t *line = json_loads(text, 0, NULL);

        assert_non_null(line);
        check(json_string_value(json_object_get(line, "name")), line);
        json_decref(line);
        n++;
    }
    assert_in_range(n, 40, 1000);
    free(text);
    fclose(f);
}

static void check_form(const char *name, const json_t *line)
{
    const char *refused = json_string_value(json_object_get(line, "refused"));
    char *text = json_dumps(json_object_get(line, "config"), 0);
    struct merak_hf_config c;
    struct merak_error err = {.text = ""};
    enum merak_status rc = config_load(text, &c, &err);

    free(text);
    if (refused == NULL && rc != MERAK_OK)
        fail_msg("%s: %s", name, err.text);
    if (refused != NULL &&
        (rc != MERAK_ERR_CONFIG || strstr(err.text, refused) == NULL))
        fail_msg("%s: got \"%s\", expected \"%s\"", name, err.text, refused);
}

static void published_forms_load_or_are_refused_for_a_reason(void **state)
{
    (void)state;
    for_each(check_form);
}

/* How many the model of a published size has is what transformers counts. */
static void check_size(const char *name, const json_t *line)
{
    const struct merak_model_options opt = {
        .micro_batch = 1, .seq = TOKENS, .dtype = MERAK_BF16};
    const json_t *want = json_object_get(line, "parameters");
    char *text = json_dumps(json_object_get(line, "config"), 0);
    struct merak_model *m;
    struct merak_graph *graph;
    struct merak_hf_config c;
    struct merak_error err;
    size_t n;

    if (want != NULL) {
        assert_int_equal(config_load(text, &c, &err), MERAK_OK);
        assert_int_equal(merak_model_create(&opt, &m, &err), MERAK_OK);
        merak_hf_describe(m, &c);
        if (merak_model_graph(m, &graph, &err) != MERAK_OK)
            fail_msg("%s: %s", name, err.text);
        n = merak_graph_param_count(graph);
        if (n != (size_t)json_integer_value(want))
            fail_msg("%s has %zu parameters, expected %lld", name, n,
                     (long long)json_integer_value(want));
        merak_model_destroy(m);
    }
    free(text);
}

static void published_sizes_have_as_many_parameters(void **state)
{
    (void)state;
    for_each(check_size);
}

static double loss_of(const char *dir)
{
    struct merak_hf_config config;
    const struct merak_decoder_options opt = {.describe = merak_hf_describe,
                                              .arg = &config,
                                              .dtype = MERAK_F32,
                                              .positions = TOKENS,
                                              .threads = 1};
    int32_t id[TOKENS + 1];
    float nll[TOKENS];
    struct merak_decoder *d;
    struct merak_error err;
    double sum = 0;

    for (int i = 0; i <= TOKENS; i++)
        id[i] = (int32_t)(mix((uint64_t)i) % VOCAB);
    assert_int_equal(merak_hf_config_load(dir, &config, NULL), MERAK_OK);
    if (merak_decoder_create(&opt, &d, &err) != MERAK_OK ||
        merak_decoder_load(d, dir, &err) != MERAK_OK ||
        merak_decoder_score(d, id, id + 1, TOKENS, nll, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    merak_decoder_destroy(d);
    for (int i = 0; i < TOKENS; i++)
        sum += (double)nll[i];
    return sum / TOKENS;
}

/* float32 against float64: 1e-5 relative, as in test_step.c. */
static void check_small(const char *name, const json_t *line)
{
    const json_t *config = json_object_get(line, "small");
    double want = json_real_value(json_object_get(line, "loss")), got;

    if (config == NULL)
        return;
    hf_folder_make(scratch_path("small"), config, weight_of, NULL);
    got = loss_of(scratch_path("small"));
    if (!(fabs(got - want) <= 1e-5 * want))
        fail_msg("%s: the loss is %.9g, expected %.9g", name, got, want);
    unlink(scratch_path("small/config.json"));
    unlink(scratch_path("small/model.safetensors"));
    rmdir(scratch_path("small"));
}

static void small_copies_have_the_losses_of_transformers(void **state)
{
    (void)state;
    for_each(check_small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_forms_load_or_are_refused_for_a_reason),
        cmocka_unit_test(published_sizes_have_as_many_parameters),
        cmocka_unit_test(small_copies_have_the_losses_of_transformers),
    };

    return cmocka_run_group_tests_name("hf_forms", tests, scratch_make,
                                       scratch_remove);
}
