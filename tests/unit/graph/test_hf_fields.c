/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_fields.c - config.json files against what transformers reads of them
 *
 * vectors/hf/fields.json has its fields and its defaults, by family.
 */
#include "config.h"

#include "unit/config_files.h"

#include <jansson.h>
#include <stdio.h>

static json_t *root;

static int open_fields(void **state)
{
    (void)state;
    root = json_load_file(TEST_SRCDIR "/vectors/hf/fields.json", 0, NULL);
    return root == NULL;
}

static int close_fields(void **state)
{
    (void)state;
    json_decref(root);
    return 0;
}

/* Load a file of these fields. */
static enum merak_status load(const json_t *file, struct merak_hf_config *c,
                              struct merak_error *err)
{
    char *text = json_dumps(file, 0);
    enum merak_status rc;

    memset(c, 0, sizeof(*c)); /* all of it can be compared */
    rc = config_load(text, c, err);
    free(text);
    return rc;
}

static bool names(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    size_t n = strlen(name);

    while (at != NULL && ((at > text && at[-1] != ' ' && at[-1] != '.') ||
                          (at[n] != '\0' && strchr(" ,;.", at[n]) == NULL)))
        at = strstr(at + 1, name);
    return at != NULL;
}

/* With a value that no field of that name has, a field that transformers reads
 * is refused by name, or is one that changes no number: it is never named as
 * one that nobody reads. */
static void assert_is_known(const char *family, const char *name, json_t *file)
{
    struct merak_hf_config c;
    struct merak_error err = {.text = ""};

    if (load(file, &c, &err) != MERAK_OK) {
        if (!names(err.text, name))
            fail_msg("%s, %s: %s", family, name, err.text);
    } else if (names(c.note, name)) {
        fail_msg("%s, %s: %s", family, name, c.note);
    }
    json_decref(file);
}

static void what_transformers_reads_is_read_or_known(void **state)
{
    const char *family;
    json_t *one, *name;
    size_t i;

    (void)state;
    json_object_foreach(json_object_get(root, "families"), family, one)
    {
        json_array_foreach(json_object_get(one, "reads"), i, name)
        {
            assert_is_known(family, json_string_value(name),
                            json_pack("{s:s, s:[{s:i}]}", "model_type", family,
                                      json_string_value(name), "of", 1));
        }
        json_array_foreach(json_object_get(root, "common"), i, name)
        {
            assert_is_known(family, json_string_value(name),
                            json_pack("{s:s, s:[{s:i}]}", "model_type", family,
                                      json_string_value(name), "of", 1));
        }
        json_array_foreach(json_object_get(root, "rope"), i, name)
        {
            if (strcmp(family, "gpt2") != 0)
                assert_is_known(family, json_string_value(name),
                                json_pack("{s:s, s:{s:[{s:i}]}}", "model_type",
                                          family, "rope_parameters",
                                          json_string_value(name), "of", 1));
        }
    }
}

/* And a field that it does not read is named. */
static void what_transformers_does_not_read_is_named(void **state)
{
    const char *family;
    json_t *one;

    (void)state;
    json_object_foreach(json_object_get(root, "families"), family, one)
    {
        json_t *file = json_pack("{s:s, s:i}", "model_type", family,
                                 "mup_output_alpha", 2);
        struct merak_hf_config c;

        assert_int_equal(load(file, &c, NULL), MERAK_OK);
        assert_true(names(c.note, "mup_output_alpha"));
        json_decref(file);
    }
}

/* Files with less say the same as the file that transformers writes for a
 * family's defaults: any of its fields may be absent, or all but the type. */
static void absent_fields_are_the_defaults_of_transformers(void **state)
{
    const char *family, *name;
    json_t *one, *value;

    (void)state;
    json_object_foreach(json_object_get(root, "families"), family, one)
    {
        json_t *whole = json_object_get(one, "defaults");
        json_t *least = json_pack("{s:s}", "model_type", family);
        struct merak_hf_config c, d;
        struct merak_error err;

        if (load(whole, &c, &err) != MERAK_OK)
            fail_msg("%s: %s", family, err.text);
        assert_string_equal(c.note, "");
        if (load(least, &d, &err) != MERAK_OK)
            fail_msg("%s: %s", family, err.text);
        assert_memory_equal(&c, &d, sizeof(c));
        json_object_foreach(whole, name, value)
        {
            json_t *part = json_copy(whole);

            json_object_del(part, name);
            if (strcmp(name, "model_type") != 0) {
                if (load(part, &d, &err) != MERAK_OK)
                    fail_msg("%s without %s: %s", family, name, err.text);
                assert_memory_equal(&c, &d, sizeof(c));
            }
            json_decref(part);
        }
        json_decref(least);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_transformers_reads_is_read_or_known),
        cmocka_unit_test(what_transformers_does_not_read_is_named),
        cmocka_unit_test(absent_fields_are_the_defaults_of_transformers),
    };

    return cmocka_run_group_tests_name("hf_fields", tests, open_fields,
                                       close_fields);
}
