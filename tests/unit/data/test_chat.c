/* SPDX-License-Identifier: Apache-2.0 */
/* test_chat.c - conversations as text, against templates that were run
 *
 * tests/vectors/chat/chat.jsonl has templates of ours, and what transformers
 * makes of messages by them; published.jsonl what it makes by those of
 * published models, which are not kept.  With the name of a file that
 * make_published.py wrote, all of its templates are run instead.
 */
#include "config.h"

#include "unit/data/chat_rows.h"

#include <jansson.h>
#include <time.h>

static void check_text(const struct merak_chat_text *t, const json_t *line)
{
    const char *want = string_of(line, "text"), *got = (char *)t->text.text;
    const json_t *answers = json_object_get(line, "answers");

    if (t->text.n != strlen(want) || memcmp(got, want, t->text.n) != 0)
        fail_msg("%s: \"%.*s\", expected \"%s\"", string_of(line, "name"),
                 (int)t->text.n, got, want);
    assert_int_equal(t->n_answers, json_array_size(answers));
    for (size_t i = 0; i < t->n_answers; i++) {
        const char *answer = json_string_value(json_array_get(answers, i));
        size_t n = t->answer[i].end - t->answer[i].begin;

        if (n != strlen(answer) ||
            memcmp(got + t->answer[i].begin, answer, n) != 0)
            fail_msg("%s: answer \"%.*s\", expected \"%s\"",
                     string_of(line, "name"), (int)n, got + t->answer[i].begin,
                     answer);
    }
}

static void texts_are_what_templates_make(void **state)
{
    struct json_rows rows = open_rows(TEST_SRCDIR "/vectors/chat/chat.jsonl");
    struct merak_chat_text text = {.n_answers = 0};
    int seen = 0;

    (void)state;
    while (next_row(&rows)) {
        const json_t *row = rows.row;
        struct merak_chat_turn turn[8];
        struct merak_chat *chat = NULL;
        struct merak_error err = {.text = ""};
        size_t n = read_turns(json_object_get(row, "messages"), turn);

        write_config(json_object_get(row, "config"));
        if (merak_chat_open(at("tokenizer.json"), NULL, &chat, &err) !=
                MERAK_OK ||
            merak_chat_render(chat,
                              &(struct merak_chat_talk){.turn = turn, .n = n},
                              &text, &err) != MERAK_OK)
            fail_msg("%s: %s", string_of(row, "name"), err.text);
        assert_string_equal(merak_chat_name(chat), "tokenizer_config.json");
        check_text(&text, row);
        merak_chat_close(chat);
        seen++;
    }
    assert_int_equal(seen, 37);
    merak_chat_text_fini(&text);
}

/* The formats that have a name, against the templates of models that were
 * published with them. */
static void formats_are_those_of_published_models(void **state)
{
    struct json_rows rows =
        open_rows(TEST_SRCDIR "/vectors/chat/published.jsonl");
    struct merak_chat_text text = {.n_answers = 0};
    int seen = 0;

    (void)state;
    while (next_row(&rows)) {
        const json_t *row = rows.row;
        const json_t *want = json_object_get(row, "text");
        struct merak_chat_turn turn[8];
        struct merak_chat *chat = NULL;
        struct merak_error err = {.text = ""};
        enum merak_status rc;
        size_t n = read_turns(json_object_get(row, "messages"), turn);

        assert_int_equal(
            merak_chat_open("byte", string_of(row, "name"), &chat, &err),
            MERAK_OK);
        rc = merak_chat_render(
            chat, &(struct merak_chat_talk){.turn = turn, .n = n}, &text, &err);
        if (json_is_null(want)
                ? rc != MERAK_ERR_FORMAT
                : rc != MERAK_OK || text.text.n != json_string_length(want) ||
                      memcmp(text.text.text, json_string_value(want),
                             text.text.n) != 0)
            fail_msg("%s, as of %s: \"%.*s\" (%s), expected \"%s\"",
                     string_of(row, "name"), string_of(row, "of"),
                     (int)text.text.n, (char *)text.text.text, err.text,
                     json_string_value(want));
        merak_chat_close(chat);
        seen++;
    }
    assert_int_equal(seen, 27);
    merak_chat_text_fini(&text);
}

/* A template for more than one purpose, and one in a file of its own, which
 * counts. */
static void templates_are_found(void **state)
{
    json_t *config =
        json_pack("{s:[{s:s, s:s}, {s:s, s:s}]}", "chat_template", "name",
                  "tool_use", "template", "{{ none.that.works }}", "name",
                  "default", "template", "{{ messages[0].content }}</s>");
    static const char jinja[] = "own: {{ messages[0].content }}";
    const struct merak_chat_turn turn = {
        .role = MERAK_CHAT_ANSWER, .text = "yes", .n = 3};
    struct merak_chat_text text = {.n_answers = 0};
    struct merak_chat *chat;
    struct merak_error err;

    (void)state;
    write_config(config);
    json_decref(config);
    assert_int_equal(merak_chat_open(scratch, NULL, &chat, &err), MERAK_OK);
    assert_string_equal(merak_chat_name(chat), "tokenizer_config.json");
    assert_int_equal(merak_chat_render(
                         chat, &(struct merak_chat_talk){.turn = &turn, .n = 1},
                         &text, &err),
                     MERAK_OK);
    assert_int_equal(text.text.n, 7);
    assert_int_equal(text.answer[0].end, 7);
    merak_chat_close(chat);
    write_file(at("chat_template.jinja"), jinja, sizeof(jinja) - 1);
    assert_int_equal(merak_chat_open(scratch, NULL, &chat, &err), MERAK_OK);
    assert_string_equal(merak_chat_name(chat), "chat_template.jinja");
    assert_int_equal(merak_chat_render(
                         chat, &(struct merak_chat_talk){.turn = &turn, .n = 1},
                         &text, &err),
                     MERAK_OK);
    assert_int_equal(text.answer[0].begin, 5);
    assert_int_equal(text.answer[0].end, 8);
    merak_chat_close(chat);
    merak_chat_text_fini(&text);
    unlink(at("chat_template.jinja"));
}

static void what_is_not_known_is_refused(void **state)
{
    static const struct {
        const char *template, *word;
        enum merak_status want;
        const char *text;
    } row[] = {
        {NULL, NULL, MERAK_ERR_UNSUPPORTED, "there is none next to"},
        {"{% include 'x' %}", NULL, MERAK_ERR_UNSUPPORTED, "--chat FORMAT"},
        {"{{ messages }}", "alpaca", MERAK_ERR_CONFIG, "there are chatml"},
        {"\n{{ messages", NULL, MERAK_ERR_UNSUPPORTED,
         "line 2: a tag that is not ended"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        json_t *config = json_object();
        struct merak_chat *chat;
        struct merak_error err = {.text = ""};

        if (row[i].template != NULL)
            json_object_set_new(config, "chat_template",
                                json_string(row[i].template));
        write_config(config);
        json_decref(config);
        assert_int_equal(merak_chat_open(scratch, row[i].word, &chat, &err),
                         row[i].want);
        if (strstr(err.text, row[i].text) == NULL)
            fail_msg("\"%s\" has no \"%s\"", err.text, row[i].text);
    }
    write_file(at("tokenizer_config.json"), "{\"chat_template\": ", 18);
    assert_int_equal(
        merak_chat_open(scratch, NULL, &(struct merak_chat *){NULL}, NULL),
        MERAK_ERR_UNSUPPORTED);
}

static void turns_that_have_no_place_are_refused(void **state)
{
    enum { S = MERAK_CHAT_SYSTEM, U = MERAK_CHAT_USER, A = MERAK_CHAT_ANSWER };
    static const struct {
        const char *format;
        int role[3];
        const char *said, *text;
    } row[] = {
        {"gemma", {S, U, A}, "x", "message 1 has role system"},
        {"gemma", {U, U, A}, "x", "message 2 has role user, expected "},
        {"llama2", {U, A, S}, "x", "message 3 has role system"},
        {"mistral", {A, U, A}, "x", "message 1 has role assistant"},
        {"qwen3", {S, U, A}, "<think>y</think>z", "message 3 has </think>"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        struct merak_chat_text text = {.n_answers = 0};
        struct merak_chat_turn turn[3];
        struct merak_chat *chat;
        struct merak_error err = {.text = ""};

        for (int k = 0; k < 3; k++)
            turn[k] = (struct merak_chat_turn){
                .role = (enum merak_chat_role)row[i].role[k],
                .text = row[i].said,
                .n = strlen(row[i].said)};
        assert_int_equal(merak_chat_open("byte", row[i].format, &chat, &err),
                         MERAK_OK);
        assert_int_equal(
            merak_chat_render(chat,
                              &(struct merak_chat_talk){.turn = turn, .n = 3},
                              &text, &err),
            MERAK_ERR_FORMAT);
        if (strstr(err.text, row[i].text) == NULL)
            fail_msg("\"%s\" has no \"%s\"", err.text, row[i].text);
        merak_chat_close(chat);
        merak_chat_text_fini(&text);
    }
}

/* A template gets all of a message; what it does not look at is named, and
 * refused where an answer would be learned without it. */
static void messages_are_whole(void **state)
{
#define TURNS "{% for m in messages %}<{{ m.role }}>"
#define BEGINS "{% if add_generation_prompt %}<assistant>{% endif %}"
#define END "{{ m.content or '' }}</s>{% endfor %}"
#define CALLS                                                          \
    "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}" \
    "</call>{% endfor %}"
#define SAYS "{\"role\":\"assistant\",\"content\":\"a\""
#define CALL "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"x\":[1,2.5]}}]}"
    static const struct {
        const char *template, *message, *answer, *text;
    } row[] = {
        {TURNS "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}"
               "</think>{% endif %}" END,
         SAYS ",\"reasoning_content\":\"why\"}", "<think>why</think>a</s>", ""},
        {TURNS CALLS END BEGINS,
         "{\"role\":\"assistant\",\"content\":null," CALL,
         "<call>{\"name\": \"f\", \"x\": [1, 2.5]}</call></s>", ""},
        /* numbers as Python's json.dumps() has them */
        {TURNS CALLS END BEGINS,
         "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{"
         "\"function\":{\"f\":\"g\",\"x\":[100.0, 250.0, 1e15, 123456.0, 0.1, "
         "2.5e-4, 1e16, "
         "1.5e300, 1e-5, -0.0, 0.30000000000000004, 9007199254740990.0]}}]}",
         "<call>{\"f\": \"g\", \"x\": [100.0, 250.0, 1000000000000000.0, "
         "123456.0, 0.1, 0.00025, "
         "1e+16, 1.5e+300, 1e-05, -0.0, 0.30000000000000004, "
         "9007199254740990.0]}</call></s>",
         ""},
        {TURNS END, SAYS ",\"name\":\"bob\",\"id\":3}", "a</s>", "name, id"},
        {TURNS END, SAYS ",\"tool_calls\":[],\"reasoning_content\":null}",
         "a</s>", ""},
        {TURNS END, SAYS ",\"reasoning_content\":\"why\"}", NULL,
         "message 2 of the assistant has \"reasoning_content\""},
        {TURNS END, SAYS "," CALL, NULL, "has \"tool_calls\""},
        {"{{ tools[0].name }}{{ documents }}" TURNS END, SAYS "}", "a</s>", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        json_t *config = json_pack("{s:s, s:s}", "chat_template",
                                   row[i].template, "eos_token", "</s>");
        json_t *whole = json_loads(row[i].message, 0, NULL);
        json_t *more = json_loads("{\"tools\":[{\"name\":\"f\"}]}", 0, NULL);
        const json_t *said = json_object_get(whole, "content");
        const struct merak_chat_turn turn[] = {
            {.role = MERAK_CHAT_USER, .text = "q", .n = 1},
            {.role = MERAK_CHAT_ANSWER,
             .text = json_string_value(said),
             .n = json_string_length(said),
             .whole = whole}};
        struct merak_chat_text text = {.n_answers = 0};
        struct merak_chat *chat = NULL;
        struct merak_error err = {.text = ""};
        enum merak_status rc;

        assert_non_null(whole);
        write_config(config);
        assert_int_equal(merak_chat_open(scratch, NULL, &chat, &err), MERAK_OK);
        rc = merak_chat_render(
            chat, &(struct merak_chat_talk){.turn = turn, .n = 2, .more = more},
            &text, &err);
        if (row[i].answer == NULL) {
            assert_int_equal(rc, MERAK_ERR_FORMAT);
            assert_non_null(strstr(err.text, row[i].text));
        } else {
            if (rc != MERAK_OK)
                fail_msg("%s: %s", row[i].template, err.text);
            assert_string_equal(merak_chat_unread(chat), row[i].text);
            assert_int_equal(text.n_answers, 1);
            if (text.answer[0].end - text.answer[0].begin !=
                    strlen(row[i].answer) ||
                memcmp(text.text.text + text.answer[0].begin, row[i].answer,
                       strlen(row[i].answer)) != 0)
                fail_msg("%s: %zu to %zu of \"%.*s\", expected \"%s\"",
                         row[i].template, text.answer[0].begin,
                         text.answer[0].end, (int)text.text.n,
                         (char *)text.text.text, row[i].answer);
        }
        merak_chat_close(chat);
        merak_chat_text_fini(&text);
        json_decref(config);
        json_decref(whole);
        json_decref(more);
    }
}

/* Finding what a template does not look at takes a time that grows as the
 * conversation does; as its square, ten seconds and more here. */
static void long_talks_are_looked_through_once(void **state)
{
    enum { TURNS_OF = 20000, MOST_S = 5 };
    json_t *config = json_pack("{s:s, s:s}", "chat_template", TURNS END,
                               "eos_token", "</s>");
    json_t *whole = json_loads(SAYS ",\"name\":\"bob\",\"id\":3}", 0, NULL);
    struct merak_chat_turn *turn = calloc(TURNS_OF, sizeof(*turn));
    struct merak_chat_text text = {.n_answers = 0};
    struct merak_chat *chat = NULL;
    struct merak_error err = {.text = ""};
    clock_t begin;

    (void)state;
    for (size_t i = 0; i < TURNS_OF; i++)
        turn[i] = (struct merak_chat_turn){
            .role = MERAK_CHAT_ANSWER, .text = "a", .n = 1, .whole = whole};
    write_config(config);
    assert_int_equal(merak_chat_open(scratch, NULL, &chat, &err), MERAK_OK);
    begin = clock();
    assert_int_equal(merak_chat_render(
                         chat,
                         &(struct merak_chat_talk){.turn = turn, .n = TURNS_OF},
                         &text, &err),
                     MERAK_OK);
    assert_true((clock() - begin) / CLOCKS_PER_SEC < MOST_S);
    assert_string_equal(merak_chat_unread(chat), "name, id");
    assert_int_equal(text.n_answers, TURNS_OF);
    merak_chat_close(chat);
    merak_chat_text_fini(&text);
    free(turn);
    json_decref(config);
    json_decref(whole);
}

/* Every template of a file, with what it makes of messages. */
static int compare_all(const char *path)
{
    FILE *f = fopen(path, "r");
    struct merak_chat_text text = {.n_answers = 0};
    char *line = NULL;
    size_t room = 0, same = 0, refused = 0, lost = 0, other = 0, number = 0;

    assert_non_null(f);
    make_scratch(NULL);
    setenv("SOURCE_DATE_EPOCH", "0", 1);
    setenv("TZ", "UTC", 1);
    while (getline(&line, &room, f) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        const char *want = json_string_value(json_object_get(row, "text"));
        struct merak_chat_turn turn[8];
        struct merak_chat *chat = NULL;
        struct merak_error err = {.text = ""};
        size_t n = read_turns(json_object_get(row, "messages"), turn);
        enum merak_status rc;

        number++;
        write_config(json_object_get(row, "config"));
        rc = merak_chat_open(scratch, NULL, &chat, &err);
        if (rc == MERAK_OK)
            rc = merak_chat_render(chat,
                                   &(struct merak_chat_talk){
                                       .turn = turn,
                                       .n = n,
                                       .more = json_object_get(row, "more")},
                                   &text, &err);
        if (rc == MERAK_OK ? want != NULL && text.text.n == strlen(want) &&
                                 memcmp(text.text.text, want, text.text.n) == 0
                           : want == NULL)
            same++;
        else if (rc != MERAK_OK)
            printf("# %zu %s: %s\n", number, string_of(row, "name"), err.text);
        else
            printf("# %zu %s: \"%.*s\", expected \"%s\"\n", number,
                   string_of(row, "name"), (int)text.text.n,
                   (char *)text.text.text, want != NULL ? want : "an error");
        refused += rc != MERAK_OK && want != NULL;
        lost += rc == MERAK_ERR_FORMAT && want != NULL &&
                (strstr(err.text, "does not put out") != NULL ||
                 strstr(err.text, "its content is not") != NULL);
        other +=
            rc == MERAK_OK && (want == NULL || text.text.n != strlen(want) ||
                               memcmp(text.text.text, want, text.text.n) != 0);
        merak_chat_close(chat);
        json_decref(row);
    }
    printf("# %zu the same, %zu refused since an answer would be lost, %zu "
           "otherwise, %zu different\n",
           same, lost, refused - lost, other);
    merak_chat_text_fini(&text);
    free(line);
    fclose(f);
    remove_scratch(NULL);
    return other + refused > lost;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_what_templates_make),
        cmocka_unit_test(formats_are_those_of_published_models),
        cmocka_unit_test(templates_are_found),
        cmocka_unit_test(what_is_not_known_is_refused),
        cmocka_unit_test(turns_that_have_no_place_are_refused),
        cmocka_unit_test(messages_are_whole),
        cmocka_unit_test(long_talks_are_looked_through_once),
    };

    if (argc > 1)
        return compare_all(argv[1]);
    return cmocka_run_group_tests_name("chat", tests, make_scratch,
                                       remove_scratch);
}
