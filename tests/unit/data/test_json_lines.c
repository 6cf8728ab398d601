/* SPDX-License-Identifier: Apache-2.0 */
/* test_json_lines.c - what a file holds, and its lines of JSON */
#include "config.h"

#include "unit/data_files.h"

#include "io/tokens/documents.h"

static enum merak_status take_text(void *arg, const char *text, size_t n,
                                   struct merak_error *err)
{
    (void)err;
    sprintf((char *)arg + strlen(arg), "text %.*s;", (int)n, text);
    return MERAK_OK;
}

static enum merak_status take_turns(void *arg, bool is_chat,
                                    const struct merak_chat_talk *talk,
                                    struct merak_error *err)
{
    const struct merak_chat_turn *turn = talk->turn;
    size_t n = talk->n;
    char *to = arg;

    if (strcmp(turn[0].text, "no") == 0)
        return merak_fail(err, MERAK_ERR_FORMAT, "I was told so");
    sprintf(to + strlen(to), "%s%s",
            talk->side == MERAK_CHAT_CHOSEN     ? "+"
            : talk->side == MERAK_CHAT_REJECTED ? "-"
                                                : "",
            is_chat ? "chat" : "pair");
    for (size_t i = 0; i < n; i++)
        sprintf(to + strlen(to), " %c%.*s",
                turn[i].context ? '-' : '0' + (int)turn[i].role, (int)turn[i].n,
                turn[i].text);
    strcat(to, ";");
    return MERAK_OK;
}

#define USER "{\"role\":\"user\",\"content\":\"q\"}"
#define FLAG(name, value) \
    "{\"role\":\"assistant\",\"content\":\"x\",\"" name "\":" value "}"
#define ANSWER "{\"role\":\"assistant\",\"content\":\"a\"}"

#define SHARED(list) "{\"conversations\":[" list "]"

static void lines_are_read_or_named(void **state)
{
    static const struct {
        const char *line, *key;
        enum merak_status want;
        const char *text; /* of it, or of the error */
    } row[] = {
        {"{\"text\":\"t\"}", NULL, MERAK_OK, "text t;"},
        {"{\"prompt\":\"p\",\"completion\":\"\"}", NULL, MERAK_OK,
         "pair 1p 2;"},
        {"{\"messages\":[" USER "," ANSWER "],\"id\":7}", NULL, MERAK_OK,
         "chat 1q 2a;"},
        {"{\"prompt\":\"p\",\"completion\":\"c\"}", "prompt", MERAK_OK,
         "text p;"},
        {"[1]", NULL, MERAK_ERR_FORMAT, "line 2: a list, expected an object"},
        {"\"x\"", NULL, MERAK_ERR_FORMAT, "line 2: a text, expected an object"},
        {"{\"prompt\":", NULL, MERAK_ERR_FORMAT, "line 2: not JSON"},
        {"{\"prompt\":\"\xff\"}", NULL, MERAK_ERR_FORMAT, "line 2: not JSON"},
        {"{\"prompt\":\"p\"}", NULL, MERAK_ERR_FORMAT,
         "line 2: \"completion\" is nothing, expected a text"},
        {"{\"completion\":\"c\"}", NULL, MERAK_ERR_FORMAT,
         "line 2: \"prompt\" is nothing"},
        {"{\"prompt\":[" USER "],\"completion\":\"c\"}", NULL, MERAK_ERR_FORMAT,
         "line 2: \"prompt\" is a list, \"completion\" is not"},
        /* the forms of others: TRL */
        {"{\"prompt\":[" USER "," ANSWER "," USER "],\"completion\":[" ANSWER
         "]}",
         NULL, MERAK_OK, "chat 1q -a 1q 2a;"},
        {"{\"prompt\":[" ANSWER "],\"completion\":[" USER "]}", NULL,
         MERAK_ERR_FORMAT, "none of the assistant that counts"},
        {"{\"prompt\":[" USER "],\"completion\":[7]}", NULL, MERAK_ERR_FORMAT,
         "line 2: message 2: a number"},
        /* TRL's pairs of answers */
        {"{\"prompt\":\"p\",\"chosen\":\"c\",\"rejected\":\"r\"}", NULL,
         MERAK_OK, "+pair 1p 2c;-pair 1p 2r;"},
        {"{\"chosen\":\"a b c\",\"rejected\":\"a b d\"}", NULL, MERAK_OK,
         "+pair 1a b 2 c;-pair 1a b 2 d;"},
        {"{\"chosen\":\"x\u00e4\",\"rejected\":\"x\u00e5\"}", NULL, MERAK_OK,
         "+pair 1x 2\xc3\xa4;-pair 1x 2\xc3\xa5;"},
        {"{\"prompt\":[" USER "],\"chosen\":[" ANSWER "],\"rejected\":[" ANSWER
         "," USER "," ANSWER "]}",
         NULL, MERAK_OK, "+chat 1q 2a;-chat 1q 2a 1q 2a;"},
        {"{\"chosen\":[" USER "," ANSWER "," USER "," ANSWER
         "],\"rejected\":[" USER "," ANSWER "," USER "," FLAG("id", "1") "]}",
         NULL, MERAK_OK, "+chat 1q -a 1q 2a;-chat 1q -a 1q 2x;"},
        {"{\"prompt\":\"q\",\"chosen\":[" USER "," ANSWER
         "],\"rejected\":[" USER "," FLAG("id", "1") "],\"messages\":[" USER
                                                     "," ANSWER "]}",
         NULL, MERAK_OK, "+chat 1q 2a;-chat 1q 2x;"},
        {"{\"chosen\":[" USER "," ANSWER "],\"rejected\":[" USER "," ANSWER
         "],\"messages\":[" USER "]}",
         NULL, MERAK_ERR_FORMAT, "both \"messages\" and \"chosen\""},
        {"{\"chosen\":[" USER "," ANSWER "],\"rejected\":[" USER "]}", NULL,
         MERAK_ERR_FORMAT, "line 2: \"rejected\": 1 messages and none"},
        {"{\"prompt\":\"p\",\"chosen\":\"c\",\"rejected\":[" ANSWER "]}", NULL,
         MERAK_ERR_FORMAT, "expected three texts, three lists"},
        {"{\"prompt\":\"p\",\"chosen\":\"c\",\"rejected\":\"r\","
         "\"completion\":\"c\"}",
         NULL, MERAK_ERR_FORMAT, "both \"completion\" and \"chosen\""},
        {"{\"text\":\"t\",\"chosen\":1e999}", NULL, MERAK_OK, "text t;"},
        {"{\"prompt\":null,\"chosen\":\"a b\",\"rejected\":\"a c\"}", NULL,
         MERAK_OK, "+pair 1a 2 b;-pair 1a 2 c;"},
        /* columns of a table that was put together */
        {"{\"prompt\":\"p\",\"chosen\":\"c\",\"rejected\":\"r\",\"text\":null,"
         "\"messages\":null,\"completion\":null,\"instruction\":null}",
         NULL, MERAK_OK, "+pair 1p 2c;-pair 1p 2r;"},
        {"{\"text\":\"t\",\"messages\":null,\"conversations\":null,"
         "\"tools\":null,\"chosen\":null,\"rejected\":null}",
         NULL, MERAK_OK, "text t;"},
        {"{\"prompt\":\"p\",\"chosen\":\"c\",\"rejected\":null}", NULL,
         MERAK_ERR_FORMAT, "\"rejected\": expected three texts"},
        {"{\"messages\":null}", NULL, MERAK_ERR_FORMAT, "\"messages\" is null"},
        {"{\"prompt\":\"p\",\"chosen\":\"c\"}", NULL, MERAK_ERR_FORMAT,
         "\"rejected\": expected three texts"},
        {"{\"prompt\":\"p\",\"rejected\":\"r\"}", NULL, MERAK_ERR_FORMAT,
         "\"rejected\": expected three texts"},
        {"{\"prompt\":\"p\",\"completion\":\"c\",\"chosen\":1}", NULL, MERAK_OK,
         "pair 1p 2c;"},
        /* ShareGPT */
        {SHARED(
             "{\"from\":\"human\",\"value\":\"q\"},"
             "{\"from\":\"gpt\",\"value\":\"a\",\"weight\":0},"
             "{\"from\":\"tool\",\"value\":\"r\"},"
             "{\"from\":\"gpt\",\"value\":\"b\"}") ",\"system\":\"s\",\"id\":"
                                                   "18446744073709551615}",
         NULL, MERAK_OK, "chat 0s 1q -a 3r 2b;"},
        {SHARED(USER "," ANSWER) "}", NULL, MERAK_OK, "chat 1q 2a;"},
        {SHARED("{\"from\":\"bot\",\"value\":\"q\"}") "}", NULL,
         MERAK_ERR_FORMAT, "line 2: message 1: \"from\" is \"bot\", expected"},
        {SHARED("{\"from\":\"gpt\",\"value\":[]}") "}", NULL, MERAK_ERR_FORMAT,
         "line 2: message 1: \"value\" is no text"},
        {SHARED("{\"from\":\"gpt\",\"value\":\"a\",\"role\":\"user\"}") "}",
         NULL, MERAK_ERR_FORMAT, "message 1: both \"from\""},
        {SHARED("{\"from\":\"system\",\"value\":\"s\"}") ",\"system\":\"s\"}",
         NULL, MERAK_ERR_FORMAT, "both \"system\" and a message"},
        {SHARED(ANSWER) ",\"messages\":[" ANSWER "]}", NULL, MERAK_ERR_FORMAT,
         "line 2: both \"messages\" and \"conversations\""},
        {"{\"conversations\":3}", NULL, MERAK_ERR_FORMAT,
         "line 2: \"conversations\" is no list"},
        /* Alpaca */
        {"{\"instruction\":\"i\",\"input\":\"x\",\"output\":\"o\"}", NULL,
         MERAK_OK, "chat 1i\nx 2o;"},
        {"{\"instruction\":\"i\",\"input\":\"\",\"output\":\"o\"}", NULL,
         MERAK_OK, "chat 1i 2o;"},
        {"{\"instruction\":\"i\",\"output\":\"o\",\"system\":\"s\","
         "\"history\":[]}",
         NULL, MERAK_OK, "chat 0s 1i 2o;"},
        {"{\"instruction\":\"i\",\"output\":\"o\","
         "\"history\":[[\"a\",\"b\"]]}",
         NULL, MERAK_ERR_FORMAT, "line 2: \"history\" beside"},
        {"{\"instruction\":\"i\",\"input\":2,\"output\":\"o\"}", NULL,
         MERAK_ERR_FORMAT, "expected to be texts"},
        {"{\"instruction\":\"i\",\"output\":\"o\",\"text\":\"t\"}", NULL,
         MERAK_ERR_FORMAT, "line 2: both \"text\" and \"instruction\""},
        {"{\"instruction\":\"i\",\"output\":\"o\",\"text\":\"t\"}", "text",
         MERAK_OK, "text t;"},
        {"{\"text\":\"t\",\"output\":1e999,\"system\":1e999}", NULL, MERAK_OK,
         "text t;"},
        {"{\"messages\":{}}", NULL, MERAK_ERR_FORMAT,
         "line 2: \"messages\" is an object, expected a list"},
        {"{\"messages\":[]}", NULL, MERAK_ERR_FORMAT,
         "line 2: 0 messages and none of the assistant"},
        {"{\"messages\":[" USER "]}", NULL, MERAK_ERR_FORMAT,
         "line 2: 1 messages and none of the assistant"},
        {"{\"messages\":[" USER ",3]}", NULL, MERAK_ERR_FORMAT,
         "line 2: message 2: a number, expected an object"},
        {"{\"messages\":[{\"role\":\"bot\",\"content\":\"x\"}]}", NULL,
         MERAK_ERR_FORMAT, "line 2: message 1: \"role\" is \"bot\", expected"},
        {"{\"messages\":[{\"content\":\"x\"}]}", NULL, MERAK_ERR_FORMAT,
         "line 2: message 1: \"role\" is nothing"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":null}]}", NULL,
         MERAK_ERR_FORMAT, "line 2: message 1: \"content\" is null"},
        {"{\"prompt\":\"no\",\"completion\":\"\"}", NULL, MERAK_ERR_FORMAT,
         "line 2: I was told so"},
        {"{}", NULL, MERAK_ERR_FORMAT, "line 2: no \"text\""},
        /* keys that nobody reads are not judged, nor fields of a message */
        {"{\"id\":18446744073709551615,\"text\":\"t\",\"s\":\"\\ud800\"}", NULL,
         MERAK_OK, "text t;"},
        {"{\"id\":[1e999,{\"a\":\"}]\\\"\"}],\"\\u0074ext\":\"t\"}", NULL,
         MERAK_OK, "text t;"},
        {"{\"messages\":[" USER
         ",{\"id\":18446744073709551615,\"role\":\"assistant\",\"content\":"
         "\"a\"}]}",
         NULL, MERAK_OK, "chat 1q 2a;"},
        {"{\"text\":\"\\ud800\"}", NULL, MERAK_ERR_FORMAT,
         "line 2: not JSON: invalid"},
        {"{\"text\":18446744073709551615}", NULL, MERAK_ERR_FORMAT,
         "line 2: not JSON: too big integer"},
        {"{\"text\":\"t\"}{", NULL, MERAK_ERR_FORMAT, "line 2: not JSON"},
        {"{\"text\":\"t\",\"a\":[1}", NULL, MERAK_ERR_FORMAT,
         "line 2: not JSON"},
        /* what would be lost */
        {"{\"text\":\"t\",\"messages\":[" ANSWER "]}", NULL, MERAK_ERR_FORMAT,
         "line 2: both \"text\" and \"messages\""},
        {"{\"prompt\":\"t\",\"messages\":[" ANSWER "]}", NULL, MERAK_ERR_FORMAT,
         "line 2: both \"messages\" and \"prompt\""},
        {"{\"text\":\"t\",\"messages\":[" ANSWER "]}", "text", MERAK_OK,
         "text t;"},
        /* what is learned */
        {"{\"messages\":[" FLAG("weight", "0") "," ANSWER "]}", NULL, MERAK_OK,
         "chat -x 2a;"},
        {"{\"messages\":[" FLAG("train", "false") "," ANSWER "]}", NULL,
         MERAK_OK, "chat -x 2a;"},
        {"{\"messages\":[" FLAG("loss", "true") "," ANSWER "]}", NULL, MERAK_OK,
         "chat 2x 2a;"},
        {"{\"messages\":[" FLAG("masked", "true") "," ANSWER "]}", NULL,
         MERAK_OK, "chat -x 2a;"},
        {"{\"messages\":[" FLAG("weight", "0.5") "]}", NULL, MERAK_ERR_FORMAT,
         "line 2: message 1: \"weight\" is neither 0 nor 1"},
        {"{\"messages\":[" FLAG("weight", "0") "]}", NULL, MERAK_ERR_FORMAT,
         "none of the assistant that counts"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"q\",\"train\":true}"
         "," ANSWER "]}",
         NULL, MERAK_ERR_FORMAT, "\"train\" asks to learn what is not"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        char got[256] = "", file[512];
        const struct merak_document_reader reader = {take_text, take_turns, got,
                                                     NULL};
        struct merak_error err = {.text = ""};
        enum merak_status rc;
        const char *text;

        snprintf(file, sizeof(file), "  \n%s\n", row[i].line);
        write_file(at("x.jsonl"), file, strlen(file));
        rc = merak_documents_read(at("x.jsonl"), row[i].key, &reader, &err);
        text = rc == MERAK_OK ? got : err.text;
        if (rc != row[i].want || strstr(text, row[i].text) == NULL)
            fail_msg("%s: status %d, \"%s\", expected \"%s\"", row[i].line,
                     (int)rc, text, row[i].text);
    }
}

/* Lines that are skipped are counted, and the first is named. */
static void bad_lines_are_counted(void **state)
{
    static const char file[] = "{\"text\":\"a\"}\n{\"text\":1}\n{\"text\"\n"
                               "{\"text\":\"b\"}\n";
    char got[256] = "";
    struct merak_bad_lines bad = {.n = 0};
    const struct merak_document_reader reader = {take_text, take_turns, got,
                                                 &bad};

    (void)state;
    write_file(at("x.jsonl"), file, sizeof(file) - 1);
    assert_int_equal(merak_documents_read(at("x.jsonl"), NULL, &reader, NULL),
                     MERAK_OK);
    assert_string_equal(got, "text a;text b;");
    assert_int_equal(bad.n, 2);
    assert_non_null(strstr(bad.first, "x.jsonl line 2: no text under"));
}

/* What a file is, its content says. */
static void content_says_what_a_file_is(void **state)
{
#define LINE "{\"text\":\"a\"}\n"
    static const struct {
        const char *name, *key, *bytes;
        size_t n; /* 0: its length */
        enum merak_status want;
        const char *text;
    } row[] = {
        {"a.json", "text", LINE LINE, 0, MERAK_OK, "text a;text a;"},
        {"a.JSONL", NULL, LINE, 0, MERAK_OK, "text a;"},
        {"a.txt", NULL, "\n" LINE, 0, MERAK_OK, "text a;"},
        {"a.jsonl", NULL, "\xef\xbb\xbf" LINE, 0, MERAK_OK, "text a;"},
        {"a.txt", NULL, "{\"x\":1}\n", 0, MERAK_OK, "text {\"x\":1}\n;"},
        {"a.json", NULL, "{\"x\":1}\n", 0, MERAK_OK, "text {\"x\":1}\n;"},
        {"a.json", NULL, "{\"x\":\"a\"}\n\n{\"x\":\"b\"}\n", 0,
         MERAK_ERR_FORMAT, "line 1: no \"text\"; choose with --json-key"},
        {"a.json", NULL, "{\n \"text\": \"a\"\n}\n", 0, MERAK_ERR_FORMAT,
         "a.json makes them"},
        {"a.json", NULL, "{\n \"x\": \"a\"\n}\n", 0, MERAK_OK, "text {\n"},
        {"a.txt", NULL, "{ text }", 0, MERAK_OK, "text { text };"},
        {"a.txt", "text", "hello", 0, MERAK_ERR_FORMAT, "line 1: not JSON"},
        {"a.json", NULL, "[\n {\"text\":\n\"a\"},{\"text\":\"],\\\"\"}\n]\n", 0,
         MERAK_OK, "text a;text ],\";"},
        {"-x", NULL, "[{\"text\":\"a\"}]", 0, MERAK_OK, "text a;"},
        {"a.json", "k", "[{\"k\":\"a\"}]", 0, MERAK_OK, "text a;"},
        {"a.json", NULL, "[{\"text\":\"a\"},\n{\"text\":1}]", 0,
         MERAK_ERR_FORMAT, "a.json object 2: no text under"},
        {"a.json", NULL, "[{\"text\":\"a\"},]", 0, MERAK_ERR_FORMAT,
         "object 2: not JSON"},
        {"a.json", NULL, "[{\"text\":\"a\"},{\"te", 0, MERAK_ERR_FORMAT,
         "behind object 1: the list of JSON is not closed"},
        {"a.json", NULL, "[{\"text\":\"a\"}] {", 0, MERAK_ERR_FORMAT,
         "behind object 1: more behind the list"},
        {"a.txt", NULL, "[{\"x\":\"a\"}]", 0, MERAK_OK,
         "text [{\"x\":\"a\"}];"},
        {"a.arrow", "text", "ARROW1\0", 7, MERAK_ERR_FORMAT, "Arrow"},
        {"a.txt", NULL, "\xff\xfeh\0", 4, MERAK_ERR_FORMAT, "iconv"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        char got[256] = "";
        const struct merak_document_reader reader = {take_text, take_turns, got,
                                                     NULL};
        struct merak_error err = {.text = ""};
        enum merak_status rc;

        write_file(at(row[i].name), row[i].bytes,
                   row[i].n > 0 ? row[i].n : strlen(row[i].bytes));
        rc = merak_documents_read(at(row[i].name), row[i].key, &reader, &err);
        if (rc != row[i].want ||
            strstr(rc == MERAK_OK ? got : err.text, row[i].text) == NULL)
            fail_msg("row %zu, %s: status %d, \"%s\"", i, row[i].name, (int)rc,
                     rc == MERAK_OK ? got : err.text);
    }
    assert_int_equal(
        merak_documents_read(
            "/dev/zero", NULL,
            &(struct merak_document_reader){take_text, take_turns, NULL, NULL},
            NULL),
        MERAK_ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_read_or_named),
        cmocka_unit_test(bad_lines_are_counted),
        cmocka_unit_test(content_says_what_a_file_is),
    };

    return cmocka_run_group_tests_name("json_lines", tests, make_scratch,
                                       remove_scratch);
}
