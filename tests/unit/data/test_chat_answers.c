/* SPDX-License-Identifier: Apache-2.0 */
/* test_chat_answers.c - which parts of a conversation's text are answers */
#include "config.h"

#include "unit/data/chat_rows.h"

#include <time.h>

/* What of a text is the answer, where a template does more than to put it
 * between two tokens. */
static void answers_are_found(void **state)
{
#define SAID "{{ messages[1].content"
    static const struct {
        const char *template, *said, *answer; /* NULL: refused */
    } row[] = {
        {"u" SAID " }}</s>\n", "a", "a</s>"},
        {"u" SAID " }} \n </s>", "a ", "a  \n </s>"},
        {"u" SAID " }}<|end|>x", "", "<|end|>"},
        {"u" SAID " }}[|endofturn|]", "a", "a[|endofturn|]"},
        {"u" SAID " }}<s>", "a", "a"},
        {"u" SAID " }}< b>", "a", "a"},
        {"u" SAID " }}[INST]", "a", "a"},
        {"u<think>\n{{ messages[1].content.split('|')[0] }}\n</think>" SAID
         ".split('|')[-1] }}</s>",
         "why|a", "<think>\nwhy\n</think>a</s>"},
        {"u<think>\n\n</think>" SAID " }}</s>", "a", "a</s>"},
        {"u{% generation %}x" SAID " }}y{% endgeneration %}</s>", "a", "xay"},
        {"u" SAID " }}{{ messages[0].content }}" SAID " }}", "a", NULL},
        {"u" SAID " | length }}", "a", NULL},
        {"u{{ messages[0].content }}", "a", NULL},
        {"u{{ raise_exception('never') }}", "a", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        const struct merak_chat_turn turn[] = {
            {.role = MERAK_CHAT_USER, .text = "q", .n = 1},
            {.role = MERAK_CHAT_ANSWER,
             .text = row[i].said,
             .n = strlen(row[i].said)}};
        json_t *config =
            json_pack("{s:s, s:s, s:{s:s}}", "chat_template", row[i].template,
                      "eos_token", "</s>", "bos_token", "content", "<s>");
        struct merak_chat_text text = {.n_answers = 0};
        struct merak_chat *chat = NULL;
        struct merak_error err = {.text = ""};
        enum merak_status rc;

        write_config(config);
        json_decref(config);
        assert_int_equal(merak_chat_open(scratch, NULL, &chat, &err), MERAK_OK);
        rc = merak_chat_render(
            chat, &(struct merak_chat_talk){.turn = turn, .n = 2}, &text, &err);
        assert_int_equal(rc,
                         row[i].answer == NULL ? MERAK_ERR_FORMAT : MERAK_OK);
        if (rc == MERAK_OK &&
            (text.n_answers != 1 ||
             text.answer[0].end - text.answer[0].begin !=
                 strlen(row[i].answer) ||
             memcmp(text.text.text + text.answer[0].begin, row[i].answer,
                    strlen(row[i].answer)) != 0))
            fail_msg("%s: %zu to %zu of \"%.*s\", expected \"%s\"",
                     row[i].template, text.answer[0].begin, text.answer[0].end,
                     (int)text.text.n, (char *)text.text.text, row[i].answer);
        merak_chat_close(chat);
        merak_chat_text_fini(&text);
    }
}

/* Calls whose names are put out again with the results, answers that say
 * nothing, content in parts: by what the template makes of fewer messages. */
static void answers_are_found_by_what_is_before(void **state)
{
#define LOOK                                                                 \
    "{% for m in messages %}{% if m.role == 'user' %}U{{ m.content }};"      \
    "{% elif m.role == 'assistant' %}A:{{ m.content }}"                      \
    "{% for c in m.tool_calls or [] %}(call {{ c.function.name }})"          \
    "{% set t = messages[loop.index0 + 2] %}{% if t is defined and t.role "  \
    "== 'tool' %}(result of {{ c.function.name }} {{ t.content }}){% endif " \
    "%}{% endfor %};{% endif %}{% endfor %}"                                 \
    "{% if add_generation_prompt %}A:{% endif %}"
#define QUIET                                                                \
    "{% for m in messages %}{% if m.content %}{{ m.role }}: {{ m.content }}" \
    "{% else %}{{ m.role }}: {% endif %}[x[\n{% endfor %}"                   \
    "{% if add_generation_prompt %}assistant: {% endif %}"
#define PARTED                                                           \
    "{% for m in messages %}{{ m.role }}: {% if m.content is string %}"  \
    "{% else %}{% for p in m.content %}{{ p.text if p.type == 'text' }}" \
    "{% endfor %}{% endif %}</s>{% endfor %}"
#define ASKED "[{\"role\":\"user\",\"content\":\"q\"},"
#define FCALL "\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}"
    static const struct {
        const char *template, *messages, *answers; /* each with a "|" */
    } row[] = {
        {LOOK,
         ASKED "{\"role\":\"assistant\",\"content\":\"\"," FCALL
               ",{\"role\":\"tool\",\"content\":\"r\"},"
               "{\"role\":\"assistant\",\"content\":\"yes\"}]",
         "(call f)|yes|"},
        /* what it says goes on behind the result */
        {"{% for m in messages %}{% if m.role == 'assistant' %}"
         "{{ m.tool_calls[0].function.name }}{% if loop.nextitem %}"
         "{{ loop.nextitem.content }}{% endif %}{{ m.content }};{% endif %}"
         "{% endfor %}",
         ASKED "{\"role\":\"assistant\",\"content\":\"a\"," FCALL
               ",{\"role\":\"tool\",\"content\":\"r\"}]",
         NULL},
        /* history is put out otherwise than the last answer */
        {"{% for m in messages %}{% if m.role == 'assistant' %}"
         "{{ '<think></think>' if loop.last }}<call>"
         "{{ m.tool_calls[0].function | tojson }}</call></s>"
         "{% else %}{{ m.content }};{% endif %}{% endfor %}",
         ASKED "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{"
               "\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]},"
               "{\"role\":\"tool\",\"content\":\"r\"}]",
         "{\"name\": \"f\", \"arguments\": \"{\\\"x\\\":1}\"}</call></s>|"},
        {"{% for m in messages %}{% if m.role == 'assistant' %}"
         "{{ '<think></think>' if loop.last }}<call>{\"name\": \""
         "{{ m.tool_calls[0].function.name }}\"}\n</call></s>"
         "{% else %}{{ m.content }};{% endif %}{% endfor %}",
         ASKED "{\"role\":\"assistant\"," FCALL
               ",{\"role\":\"tool\",\"content\":\"r\"}]",
         "f\"}\n</call></s>|"},
        /* history has only the beginning of the prompt */
        {"{% for m in messages %}<{{ m.role }}>\n{% if m.role == 'assistant' %}"
         "<call>{\"name\": \"{{ m.tool_calls[0].function.name }}\"}</call></s>"
         "{% else %}{{ m.content }};{% endif %}{% endfor %}"
         "{% if add_generation_prompt %}<assistant>\n<think>\n{% endif %}",
         ASKED "{\"role\":\"assistant\"," FCALL
               ",{\"role\":\"tool\",\"content\":\"r\"}]",
         "<call>{\"name\": \"f\"}</call></s>|"},
        {QUIET, ASKED "{\"role\":\"assistant\",\"content\":\"\"}]", "[x[|"},
        {QUIET,
         ASKED "{\"role\":\"assistant\",\"content\":null},"
               "{\"role\":\"user\",\"content\":\"p\"},"
               "{\"role\":\"assistant\",\"content\":\"b\"}]",
         "[x[|b|"},
        {"{% for m in messages if m.content %}{{ m.content }};{% endfor %}",
         ASKED "{\"role\":\"assistant\",\"content\":\"\"}]", ""},
        {PARTED,
         ASKED "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\","
               "\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}]",
         "ab</s>|"},
        {PARTED, ASKED "{\"role\":\"assistant\",\"content\":\"ab\"}]", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        json_t *config = json_pack("{s:s, s:s}", "chat_template",
                                   row[i].template, "eos_token", "</s>");
        json_t *messages = json_loads(row[i].messages, 0, NULL);
        struct merak_chat_turn turn[8];
        struct merak_chat_text text = {.n_answers = 0};
        struct merak_chat *chat = NULL;
        struct merak_error err = {.text = ""};
        char found[64] = "";
        size_t n;
        enum merak_status rc;

        assert_non_null(messages);
        n = read_turns(messages, turn);
        write_config(config);
        assert_int_equal(merak_chat_open(scratch, NULL, &chat, &err), MERAK_OK);
        rc = merak_chat_render(
            chat, &(struct merak_chat_talk){.turn = turn, .n = n}, &text, &err);
        if ((rc == MERAK_OK) != (row[i].answers != NULL))
            fail_msg("row %zu: %s", i, err.text);
        for (size_t k = 0; rc == MERAK_OK && k < text.n_answers; k++)
            sprintf(found + strlen(found), "%.*s|",
                    (int)(text.answer[k].end - text.answer[k].begin),
                    (char *)text.text.text + text.answer[k].begin);
        if (rc == MERAK_OK)
            assert_string_equal(found, row[i].answers);
        merak_chat_close(chat);
        merak_chat_text_fini(&text);
        json_decref(config);
        json_decref(messages);
    }
}

/* The prompt is found by one rendering, not by one for each call: a thousand
 * took a minute. */
static void many_calls_take_few_renderings(void **state)
{
    enum { CALLS = 1000, MOST_S = 5 };
    json_t *config = json_pack(
        "{s:s, s:s}", "chat_template",
        "{% for m in messages %}<{{ m.role }}>\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}(f {{ c.function.name }})"
        "{% endfor %}</s>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>\n<think>{% endif %}",
        "eos_token", "</s>");
    json_t *whole = json_loads("{\"role\":\"assistant\",\"content\":\"\","
                               "\"tool_calls\":[{\"function\":"
                               "{\"name\":\"f\"}}]}",
                               0, NULL);
    struct merak_chat_turn *turn = calloc(2 * CALLS, sizeof(*turn));
    struct merak_chat_text text = {.n_answers = 0};
    struct merak_chat *chat = NULL;
    struct merak_error err = {.text = ""};
    clock_t begin;

    (void)state;
    assert_non_null(turn);
    for (size_t i = 0; i < CALLS; i++) {
        turn[2 * i] = (struct merak_chat_turn){
            .role = MERAK_CHAT_USER, .text = "q", .n = 1};
        turn[2 * i + 1] = (struct merak_chat_turn){
            .role = MERAK_CHAT_ANSWER, .text = "", .whole = whole};
    }
    write_config(config);
    assert_int_equal(merak_chat_open(scratch, NULL, &chat, &err), MERAK_OK);
    begin = clock();
    assert_int_equal(
        merak_chat_render(
            chat, &(struct merak_chat_talk){.turn = turn, .n = 2 * CALLS},
            &text, &err),
        MERAK_OK);
    assert_true((clock() - begin) / CLOCKS_PER_SEC < MOST_S);
    assert_int_equal(text.n_answers, CALLS);
    for (size_t i = 0; i < CALLS; i++)
        assert_memory_equal((char *)text.text.text + text.answer[i].begin,
                            "(f f)</s>", 9);
    merak_chat_close(chat);
    merak_chat_text_fini(&text);
    free(turn);
    json_decref(config);
    json_decref(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_found),
        cmocka_unit_test(answers_are_found_by_what_is_before),
        cmocka_unit_test(many_calls_take_few_renderings),
    };

    return cmocka_run_group_tests_name("chat_answers", tests, make_scratch,
                                       remove_scratch);
}
