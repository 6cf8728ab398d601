/* SPDX-License-Identifier: Apache-2.0 */
/* test_generation.c - a model's folder says how text is generated, and what
 * comes of that is what comes of it in transformers
 *
 * vectors/weights/generation.jsonl has what that generates.
 */
#include "config.h"

#include "unit/scratch_dir.h"

#include "io/generation_config.h"
#include "io/hf_config.h"
#include "runtime/infer/decoder.h"
#include "runtime/infer/logit_rules.h"
#include "runtime/infer/next_token.h"

#include <jansson.h>

enum { MOST = 24, VOCAB = 257 };

/* --- as transformers -------------------------------------------------------
 */

/* A folder of the family's weights, with the line's two files. */
static void make_folder(const char *family, const json_t *line)
{
    const json_t *file = json_object_get(line, "file");
    char command[2048];
    json_t *config;

    snprintf(command, sizeof(command),
             "rm -rf %s/m; mkdir %s/m && cd %s/vectors/weights && for f in "
             "%s.*; do cp $f %s/m/${f#*.}; done",
             scratch_dir, scratch_dir, TEST_SRCDIR, family, scratch_dir);
    assert_int_equal(system(command), 0);
    config = json_load_file(scratch_path("m/config.json"), 0, NULL);
    assert_int_equal(
        json_object_update(config, json_object_get(line, "fields")), 0);
    json_dump_file(config, scratch_path("m/config.json"), 0);
    json_decref(config);
    if (json_is_object(file))
        json_dump_file(file, scratch_path("m/generation_config.json"), 0);
}

/* What follows n ids; returns how many. */
static size_t generate(int32_t *ids, size_t n)
{
    const struct merak_sampling how = {.top_p = 1};
    struct merak_hf_config config;
    struct merak_decoder_options opt = {.describe = merak_hf_describe,
                                        .arg = &config,
                                        .dtype = MERAK_F32,
                                        .positions = n + MOST,
                                        .threads = 1};
    struct merak_generation_config rules;
    const char *dir = scratch_path("m");
    struct merak_decoder *d = NULL;
    struct merak_sampler *s = NULL;
    struct merak_error err = {.text = ""};
    const float *next = NULL;
    size_t made = 0;

    if (merak_hf_config_load(dir, &config, &err) != MERAK_OK ||
        merak_generation_config_read(dir, VOCAB, &rules, &err) != MERAK_OK ||
        merak_decoder_create(&opt, &d, &err) != MERAK_OK ||
        merak_decoder_load(d, dir, &err) != MERAK_OK ||
        merak_sampler_create(&how, VOCAB, &s, &err) != MERAK_OK ||
        merak_decoder_next(d, ids, n, &next, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_string_equal(rules.ignored, "");
    while (made < MOST) {
        int32_t *id = &ids[n + made];
        float logits[VOCAB];

        memcpy(logits, next, sizeof(logits));
        merak_logit_rules_apply(&rules, ids, n + made, n, logits);
        *id = merak_sampler_next(s, logits, 0);
        made++;
        if (merak_token_list_has(&rules.ends, *id) || made == MOST)
            break;
        assert_int_equal(merak_decoder_next(d, id, 1, &next, NULL), MERAK_OK);
    }
    merak_generation_config_fini(&rules);
    merak_sampler_destroy(s);
    merak_decoder_destroy(d);
    return made;
}

static void ids_are_those_of_transformers(void **state)
{
    FILE *f = fopen(TEST_SRCDIR "/vectors/weights/generation.jsonl", "r");
    char *text = NULL;
    size_t size = 0, i;
    int rows = 0;

    (void)state;
    assert_non_null(f);
    while (getline(&text, &size, f) > 0) {
        json_t *line = json_loads(text, 0, NULL);
        const json_t *want = json_object_get(line, "ids"), *id;
        int32_t ids[64];
        size_t n = 0, made;

        json_array_foreach(json_object_get(line, "prompt"), i, id)
        {
            ids[n++] = (int32_t)json_integer_value(id);
        }
        make_folder(json_string_value(json_object_get(line, "family")), line);
        made = generate(ids, n);
        if (made != json_array_size(want))
            fail_msg("%zu ids, expected %zu: %s", made, json_array_size(want),
                     text);
        json_array_foreach(want, i, id)
        {
            if (ids[n + i] != json_integer_value(id))
                fail_msg("id %zu is %d: %s", i, (int)ids[n + i], text);
        }
        json_decref(line);
        rows++;
    }
    assert_int_equal(rows, 48);
    free(text);
    fclose(f);
}

/* --- files -----------------------------------------------------------------
 */

static enum merak_status read_text(const char *text,
                                   struct merak_generation_config *c,
                                   struct merak_error *err)
{
    scratch_write("generation_config.json", text, strlen(text));
    return merak_generation_config_read(scratch_dir, VOCAB, c, err);
}

static void bad_fields_are_named(void **state)
{
    static const char *const rows[][2] = {
        {"{\"suppress_tokens\":\"x\"}", "field suppress_tokens is \"x\""},
        {"{\"eos_token_id\":[1,null]}", "field eos_token_id is [1,null]"},
        {"{\"repetition_penalty\":0}", "repetition_penalty is 0,"},
        {"{\"min_new_tokens\":-1}", "field min_new_tokens is -1"},
        {"{\"do_sample\":1}", "field do_sample is 1"},
        {"{\"top_k\":1.5}", "field top_k is 1.5"},
        {"[]", "expected a JSON object"},
        {"{", "not valid JSON: line 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct merak_generation_config c;
        struct merak_error err = {.text = ""};

        assert_int_equal(read_text(rows[i][0], &c, &err), MERAK_ERR_CONFIG);
        assert_non_null(strstr(err.text, "generation_config.json"));
        if (strstr(err.text, rows[i][1]) == NULL)
            fail_msg("%s: got \"%s\"", rows[i][0], err.text);
    }
}

static void what_is_not_obeyed_is_named(void **state)
{
    struct merak_generation_config c;
    struct merak_error err;

    (void)state;
    if (read_text("{\"num_beams\":4,\"typical_p\":1.0,\"min_p\":0.05,"
                  "\"bad_words_ids\":[[5]],\"stop_strings\":null,"
                  "\"penalty_alpha\":0,\"use_cache\":true,\"top_k\":0,"
                  "\"forced_eos_token_id\":0,\"do_sample\":true,"
                  "\"temperature\":0.6,\"max_new_tokens\":9,"
                  "\"eos_token_id\":[3,-1,257,3,256]}",
                  &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_string_equal(c.ignored,
                        "bad_words_ids, forced_eos_token_id, min_p, num_beams");
    assert_true(c.samples && c.temperature == 0.6 && c.top_k == 0);
    assert_int_equal(c.max_new, 9);
    assert_int_equal(c.ends.n, 2);
    assert_true(merak_token_list_has(&c.ends, 256));
    merak_generation_config_fini(&c);
    assert_int_equal(merak_generation_config_read("", VOCAB, &c, NULL),
                     MERAK_OK);
    assert_true(c.ends.n == 0 && c.repetition_penalty == 1 && !c.samples);
    merak_generation_config_fini(&c);
}

/* Ids many, descending and each twice, are read in order. */
static void a_long_list_is_a_set(void **state)
{
    enum { IDS = 100000 };
    struct merak_generation_config c;
    struct merak_error err;
    char *text = malloc(2 * IDS * 8 + 64);
    size_t n = (size_t)sprintf(text, "{\"eos_token_id\":[");

    (void)state;
    for (int i = 0; i < 2 * IDS; i++)
        n += (size_t)sprintf(text + n, "%s%d", i == 0 ? "" : ",",
                             IDS - 1 - i / 2);
    sprintf(text + n, "]}");
    scratch_write("generation_config.json", text, strlen(text));
    assert_int_equal(
        merak_generation_config_read(scratch_dir, IDS - 1, &c, &err), MERAK_OK);
    assert_int_equal(c.ends.n, IDS - 1);
    assert_int_equal(merak_token_list_add(&c.ends, IDS, &err), MERAK_OK);
    assert_int_equal(merak_token_list_add(&c.ends, 5, &err), MERAK_OK);
    assert_int_equal(c.ends.n, IDS);
    assert_true(merak_token_list_has(&c.ends, 0) &&
                merak_token_list_has(&c.ends, IDS) &&
                !merak_token_list_has(&c.ends, IDS - 1));
    merak_generation_config_fini(&c);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_transformers),
        cmocka_unit_test(bad_fields_are_named),
        cmocka_unit_test(what_is_not_obeyed_is_named),
        cmocka_unit_test(a_long_list_is_a_set),
    };

    return cmocka_run_group_tests_name("generation", tests, scratch_make,
                                       scratch_remove);
}
