/* SPDX-License-Identifier: Apache-2.0 */
/* test_jinja.c - templates, against transformers
 *
 * tests/vectors/chat/jinja.jsonl has small templates, and what transformers
 * makes of them.
 */
#include "config.h"

#include "unit/data/json_rows.h"

#include "text/template/jinja.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 8 };

struct setting {
    struct merak_jinja_message message[MOST];
    struct merak_jinja_word word[MOST];
    struct merak_jinja_input in;
};

static void read_setting(const json_t *row, struct setting *s)
{
    const json_t *each, *messages = json_object_get(row, "messages");
    const char *name;
    size_t i, n = 0;

    json_array_foreach(messages, i, each)
    {
        s->message[i].role = json_string_value(json_object_get(each, "role"));
        s->message[i].content =
            json_string_value(json_object_get(each, "content"));
        s->message[i].n = strlen(s->message[i].content);
        s->message[i].whole = NULL;
    }
    json_object_foreach(json_object_get(row, "words"), name, each)
    {
        s->word[n++] = (struct merak_jinja_word){name, json_string_value(each)};
    }
    s->in = (struct merak_jinja_input){.message = s->message,
                                       .n_messages = json_array_size(messages),
                                       .word = s->word,
                                       .n_words = n};
}

static enum merak_status run(const char *template,
                             const struct merak_jinja_input *in,
                             struct merak_jinja_output *out,
                             struct merak_error *err)
{
    struct merak_jinja *jinja = NULL;
    enum merak_status rc =
        merak_jinja_compile(template, strlen(template), &jinja, err);

    if (rc == MERAK_OK)
        rc = merak_jinja_render(jinja, in, out, err);
    merak_jinja_free(jinja);
    return rc;
}

static void check(const json_t *row, const struct merak_jinja_input *in)
{
    const char *template = json_string_value(json_object_get(row, "template"));
    const char *want = json_string_value(json_object_get(row, "text"));
    struct merak_jinja_output out = {.n = 0};
    struct merak_error err = {.text = ""};
    enum merak_status rc = run(template, in, &out, &err);

    if (want == NULL && rc == MERAK_OK)
        fail_msg("%s: \"%s\", expected an error", template, out.text);
    if (want == NULL && err.text[0] == '\0')
        fail_msg("%s: an error without a text", template);
    if (want != NULL && rc != MERAK_OK)
        fail_msg("%s: %s", template, err.text);
    if (want != NULL && strcmp(out.text, want) != 0)
        fail_msg("%s: \"%s\", expected \"%s\"", template, out.text, want);
    merak_jinja_output_fini(&out);
}

static void templates_give_what_transformers_gives(void **state)
{
    struct json_rows rows = open_rows(TEST_SRCDIR "/vectors/chat/jinja.jsonl");
    struct setting setting;
    json_t *first;
    int seen = 0;

    (void)state;
    assert_true(next_row(&rows));
    first = json_incref(rows.row);
    read_setting(first, &setting);
    for (; next_row(&rows); seen++)
        check(rows.row, &setting.in);
    assert_int_equal(seen, 264);
    json_decref(first);
}

/* What a message says is found again, through what templates do to it. */
static void marks_follow_a_text(void **state)
{
    static const struct {
        const char *template, *text;
        size_t begin, end;
    } row[] = {
        {"<{{ messages[0].content }}>", "< a-b >", 1, 6},
        {"<{{ messages[0].content | trim }}>", "<a-b>", 1, 4},
        {"{{ '[' ~ messages[0]['content'].strip() + ']' }}", "[a-b]", 1, 4},
        {"{{ messages[0].content.split('-')[-1] }}.", "b .", 0, 2},
        {"{{ messages[0].content[2:4] }}", "-b", 0, 2},
        {"{{ messages[0].content.replace('-', '++') }}", " a++b ", 0, 6},
        {"{{ messages[0].content | upper }}", " A-B ", 0, 5},
        {"{% macro m(x) %}({{ x }}){% endmacro %}{{ m(messages[0].content) }}",
         "( a-b )", 1, 6},
        {"{% set s %}:{{ messages[0].content }}{% endset %}{{ s | trim }}",
         ": a-b", 1, 5},
        {"{{ ['x', messages[0].content] | join('/') }}", "x/ a-b ", 2, 7},
        {"<{{ messages[0].content.strip('ab -') }}>", "<>", 1, 1},
    };
    const struct merak_jinja_message message = {
        .role = "user", .content = " a-b ", .n = 5};
    const struct merak_jinja_input in = {.message = &message, .n_messages = 1};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        struct merak_jinja_output out = {.n = 0};
        struct merak_error err = {.text = ""};
        size_t begin = SIZE_MAX, end = 0;

        if (run(row[i].template, &in, &out, &err) != MERAK_OK)
            fail_msg("%s: %s", row[i].template, err.text);
        assert_string_equal(out.text, row[i].text);
        for (size_t k = 0; k < out.n_marks; k++) {
            begin = out.mark[k].begin < begin ? out.mark[k].begin : begin;
            end = out.mark[k].end > end ? out.mark[k].end : end;
            assert_int_equal(out.mark[k].message, 0);
        }
        if (begin != row[i].begin || end != row[i].end)
            fail_msg("%s: %zu to %zu, expected %zu to %zu", row[i].template,
                     begin, end, row[i].begin, row[i].end);
        merak_jinja_output_fini(&out);
    }
}

static void what_is_generated_is_marked(void **state)
{
    static const char template[] =
        "a{% generation %}bc{% endgeneration %}d{% generation %}e"
        "{% endgeneration %}";
    const struct merak_jinja_input in = {.n_messages = 0};
    struct merak_jinja_output out = {.n = 0};

    (void)state;
    assert_int_equal(run(template, &in, &out, NULL), MERAK_OK);
    assert_int_equal(out.n_marks, 2);
    assert_int_equal(out.mark[0].message, -1);
    assert_int_equal(out.mark[0].begin, 1);
    assert_int_equal(out.mark[0].end, 3);
    assert_int_equal(out.mark[1].begin, 4);
    merak_jinja_output_fini(&out);
}

static void the_date_is_the_one_given(void **state)
{
    const struct merak_jinja_input in = {.now = 1721952000};
    struct merak_jinja_output out = {.n = 0};

    (void)state;
    setenv("TZ", "UTC", 1);
    tzset();
    assert_int_equal(run("{{ strftime_now('%d %b %Y') }}", &in, &out, NULL),
                     MERAK_OK);
    assert_string_equal(out.text, "26 Jul 2024");
    assert_true(out.has_date);
    assert_int_equal(run("x", &in, &out, NULL), MERAK_OK);
    assert_false(out.has_date);
    merak_jinja_output_fini(&out);
}

/* Without arguments there is no array of them. */
static void a_map_needs_a_name(void **state)
{
    static const char *const template[] = {"{{ 'ab' | map | length }}",
                                           "{{ 'ab' | map() | list }}"};
    const struct merak_jinja_input in = {.n_messages = 0};
    struct merak_jinja_output out = {.n = 0};
    struct merak_error err = {.text = ""};

    (void)state;
    for (size_t i = 0; i < sizeof(template) / sizeof(*template); i++) {
        assert_int_not_equal(run(template[i], &in, &out, &err), MERAK_OK);
        assert_non_null(strstr(err.text, "map"));
        merak_jinja_output_fini(&out);
    }
}

/* n.a and n.b, nested so many times. */
#define NESTED(a, b, times)                                       \
    "{% set n = namespace(a=[], b=[]) %}{% for i in range(" times \
    ") %}{% set n.a = " a " %}{% set n.b = " b " %}{% endfor %}"
/* A text of 2 MiB, n.s. */
#define LONG                                            \
    "{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}"     \
    "{% for i in range(17) %}{% set n.s = n.s + n.s %}" \
    "{% endfor %}"

/* map() of map() of .., of a list as deep as that. */
static void map_of_maps_ends(void)
{
    static const char begin[] =
        NESTED("[n.a]", "n.b", "100000") "{{ n.a | map(";
    const struct merak_jinja_input in = {.n_messages = 0};
    struct merak_jinja_output out = {.n = 0};
    struct merak_error err = {.text = ""};
    enum { MAPS = 100000 };
    char *text = malloc(sizeof(begin) + (size_t)MAPS * 6 + 16), *at = text;

    assert_non_null(text);
    at += sprintf(at, "%s", begin);
    for (int i = 0; i < MAPS; i++)
        at += sprintf(at, "'map',");
    sprintf(at, "'list') }}");
    assert_int_equal(run(text, &in, &out, &err), MERAK_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "arguments"));
    free(text);
    merak_jinja_output_fini(&out);
}

/* What would take for ever, or all memory, or the stack. */
static void hostile_templates_end(void **state)
{
    static const struct {
        const char *template, *text;
    } row[] = {
        {"{% for a in range(9999) %}{% for b in range(9999) %}"
         "{{ a }}{% endfor %}{% endfor %}",
         "line 1: the template "},
        {"{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}"
         "{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
         "MiB"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "levels"},
        {"{% for i in range(99999999999) %}{% endfor %}", "a million"},
        {"{% set n = namespace() %}{% set n.n = n %}{{ n }}", "too deep"},
        {"\n\n{{ 'x' | urlize }}", "line 3: the filter urlize is not known"},
        {"\n{% include 'x' %}", "line 2: \"include\", expected a statement"},
        {"{% raw %}", "not ended"},
        {"{{ '%9999999d' | format(1) }}", "10000 characters"},
        {"{{ '{:9999999}'.format(1) }}", "10000 characters"},
        {"{{ 'x' * 9999999999 }}", "does not end"},
        {"{{ [[1] * 999999] * 99999 }}", "MiB"},
        {"{{ 2 ** 9999999999 }}", "2^63"},
        {"{{ 'a' | indent(999999999) }}", "1000 characters"},
        {"{{ range(99999) | reverse | sort }}", "does not end"},
        {"{{ range(99999) | unique | list }}", "does not end"},
        {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "levels"},
        {"{% macro f() %}{{ caller() }}{% endmacro %}"
         "{% macro g() %}{% call g() %}{{ caller() }}{% endcall %}{% endmacro "
         "%}"
         "{{ g() }}",
         "levels"},
        {"{{ f(*range(1000000)) }}", "f() is not known"},
        /* two lists 100000 deep, and two of 2^60 items that share parts */
        {NESTED("[n.a]", "[n.b]", "100000") "{{ n.a == n.b }}", "levels"},
        {NESTED("[n.a]", "[n.b]", "100000") "{{ n.a in [n.b] }}", "levels"},
        {NESTED("{'k': n.a}", "{'k': n.b}", "9999") "{{ n.a is eq n.b }}",
         "levels"},
        {NESTED("[n.a, n.a]", "[n.b, n.b]", "60") "{{ n.a == n.b }}",
         "does not end"},
        {NESTED("{'k': n.a, 'l': n.a}", "{'k': n.b, 'l': n.b}",
                "60") "{{ n.a != n.b }}",
         "does not end"},
        {LONG "{% set n.t = n.s + 'x' %}{% set n.s = n.s + 'y' %}"
              "{% for i in range(999999) %}{% if n.s == n.t or n.s < n.t %}{% "
              "endif %}"
              "{% endfor %}",
         "does not end"},
        {LONG "{% for i in range(999999) %}{% if 'y' in n.s %}{% endif %}"
              "{% endfor %}",
         "does not end"},
        {LONG "{{ n.s.strip(n.s) }}", "does not end"},
        {LONG "{% for i in range(999999) %}{% if n.s.endswith(n.s) %}{% endif "
              "%}{% endfor %}",
         "does not end"},
    };
    static char deep[4000];
    const struct merak_jinja_input in = {.n_messages = 0};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        struct merak_jinja_output out = {.n = 0};
        struct merak_error err = {.text = ""};

        assert_int_equal(run(row[i].template, &in, &out, &err),
                         MERAK_ERR_UNSUPPORTED);
        if (strstr(err.text, row[i].text) == NULL)
            fail_msg("\"%s\" has no \"%s\"", err.text, row[i].text);
        merak_jinja_output_fini(&out);
    }
    map_of_maps_ends();
    memset(deep, '(', sizeof(deep) - 1);
    memcpy(deep, "{{", 2);
    assert_int_equal(run(deep, &in, NULL, NULL), MERAK_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_give_what_transformers_gives),
        cmocka_unit_test(marks_follow_a_text),
        cmocka_unit_test(what_is_generated_is_marked),
        cmocka_unit_test(the_date_is_the_one_given),
        cmocka_unit_test(a_map_needs_a_name),
        cmocka_unit_test(hostile_templates_end),
    };

    return cmocka_run_group_tests_name("jinja", tests, NULL, NULL);
}
