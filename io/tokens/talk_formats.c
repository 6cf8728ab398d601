/* SPDX-License-Identifier: Apache-2.0 */
/* talk_formats.c - ShareGPT's, Alpaca's and TRL's lines as messages */
#include "config.h"

#include "io/tokens/talk_formats.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *message(const char *role, json_t *content)
{
    return json_pack("{s:s, s:O}", "role", role, "content", content);
}

/* In front of the messages, what the line has as "system". */
static enum merak_status put_system(const json_t *object, json_t *list,
                                    struct merak_error *err)
{
    json_t *text = json_object_get(object, "system");
    const char *role =
        json_string_value(json_object_get(json_array_get(list, 0), "role"));

    if (text == NULL || json_is_null(text) ||
        (json_is_string(text) && json_string_length(text) == 0))
        return MERAK_OK;
    if (!json_is_string(text))
        return merak_fail(err, MERAK_ERR_FORMAT, "\"system\" is no text");
    if (role != NULL && strcmp(role, "system") == 0)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "both \"system\" and a message of the system: "
                          "remove one of them");
    json_array_insert_new(list, 0, message("system", text));
    return MERAK_OK;
}

/* --- ShareGPT --------------------------------------------------------------
 */

static const char *role_of(const char *from)
{
    static const char *const row[][2] = {
        {"human", "user"},          {"user", "user"},     {"gpt", "assistant"},
        {"assistant", "assistant"}, {"system", "system"}, {"tool", "tool"},
        {"observation", "tool"},
    };

    for (size_t i = 0; from != NULL && i < sizeof(row) / sizeof(*row); i++) {
        if (strcmp(from, row[i][0]) == 0)
            return row[i][1];
    }
    return NULL;
}

/* Some such lists have messages already. */
static enum merak_status convert(json_t *one, struct merak_error *err)
{
    json_t *from = json_object_get(one, "from");
    json_t *value = json_object_get(one, "value");
    const char *role = role_of(json_string_value(from));

    if (!json_is_object(one) || (from == NULL && value == NULL))
        return MERAK_OK;
    if (json_object_get(one, "role") != NULL ||
        json_object_get(one, "content") != NULL)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "both \"from\", \"value\" and \"role\", "
                          "\"content\": remove one of them");
    if (role == NULL)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "\"from\" is \"%.40s\", expected human, gpt, "
                          "system or tool",
                          json_is_string(from) ? json_string_value(from) : "");
    if (!json_is_string(value))
        return merak_fail(err, MERAK_ERR_FORMAT, "\"value\" is no text");
    json_object_set_new(one, "role", json_string(role));
    json_object_set(one, "content", value);
    json_object_del(one, "from");
    json_object_del(one, "value");
    return MERAK_OK;
}

enum merak_status merak_talk_from_sharegpt(json_t *object,
                                           struct merak_error *err)
{
    json_t *list = json_object_get(object, "conversations");
    enum merak_status rc = MERAK_OK;

    if (!json_is_array(list))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "\"conversations\" is no list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        rc = convert(json_array_get(list, i), err);
        if (rc != MERAK_OK) {
            merak_error_wrap(err, "message %zu", i + 1);
            return rc;
        }
    }
    rc = put_system(object, list, err);
    if (rc == MERAK_OK)
        json_object_set(object, "messages", list);
    return rc;
}

/* --- Alpaca ----------------------------------------------------------------
 */

static enum merak_status join(const json_t *instruction, const json_t *input,
                              json_t **text_p, struct merak_error *err)
{
    size_t n = json_string_length(instruction), m = json_string_length(input);
    char *text = malloc(n + m + 1);

    if (text == NULL)
        return merak_fail_nomem(err, n + m + 1);
    memcpy(text, json_string_value(instruction), n);
    if (m > 0) {
        text[n++] = '\n';
        memcpy(text + n, json_string_value(input), m);
    }
    *text_p = json_stringn(text, n + m);
    free(text);
    return *text_p != NULL ? MERAK_OK : merak_fail_nomem(err, n + m);
}

enum merak_status merak_talk_from_alpaca(json_t *object,
                                         struct merak_error *err)
{
    const json_t *input = json_object_get(object, "input");
    const json_t *instruction = json_object_get(object, "instruction");
    json_t *output = json_object_get(object, "output");
    json_t *question = NULL, *list;
    enum merak_status rc;

    if (!json_is_string(instruction) || !json_is_string(output) ||
        (input != NULL && !json_is_null(input) && !json_is_string(input)))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "\"instruction\", \"input\" and \"output\" are "
                          "expected to be texts");
    if (json_array_size(json_object_get(object, "history")) > 0)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "\"history\" beside \"instruction\" is not read: "
                          "give such a talk as \"messages\"");
    rc = join(instruction, input, &question, err);
    if (rc != MERAK_OK)
        return rc;
    list = json_array();
    json_array_append_new(list, message("user", question));
    json_array_append_new(list, message("assistant", output));
    rc = put_system(object, list, err);
    if (rc == MERAK_OK)
        json_object_set(object, "messages", list);
    json_decref(list);
    json_decref(question);
    return rc;
}

/* --- TRL -------------------------------------------------------------------
 */

enum merak_status merak_talk_from_prompt(json_t *object, size_t *given_p,
                                         struct merak_error *err)
{
    json_t *prompt = json_object_get(object, "prompt");
    json_t *completion = json_object_get(object, "completion");
    json_t *list;

    if (!json_is_array(prompt) && !json_is_array(completion))
        return MERAK_OK;
    if (!json_is_array(prompt) || !json_is_array(completion))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "\"%s\" is a list, \"%s\" is not: expected two "
                          "texts, or two lists of messages",
                          json_is_array(prompt) ? "prompt" : "completion",
                          json_is_array(prompt) ? "completion" : "prompt");
    list = json_copy(prompt);
    if (list == NULL || json_array_extend(list, completion) != 0) {
        json_decref(list);
        return merak_fail_nomem(err, sizeof(*list));
    }
    *given_p = json_array_size(prompt);
    json_object_set_new(object, "messages", list);
    return MERAK_OK;
}

bool merak_talk_is_pair(const json_t *object)
{
    return json_object_get(object, "chosen") != NULL ||
           json_object_get(object, "rejected") != NULL;
}

bool merak_talk_is_of_pair(const json_t *object, const char *key)
{
    json_t *chosen = json_object_get(object, "chosen");

    return merak_talk_is_pair(object) &&
           (strcmp(key, "prompt") == 0 ||
            (strcmp(key, "messages") == 0 &&
             json_equal(json_object_get(object, key), chosen)));
}

/* Put the messages of the prompt in front of an answer's. */
static enum merak_status put_prompt(json_t *object, const char *answer,
                                    struct merak_error *err)
{
    json_t *list = json_copy(json_object_get(object, "prompt"));

    if (list == NULL ||
        json_array_extend(list, json_object_get(object, answer)) != 0) {
        json_decref(list);
        return merak_fail_nomem(err, sizeof(*list));
    }
    json_object_set_new(object, answer, list);
    return MERAK_OK;
}

/* How many messages both begin with; each keeps one to learn. */
static size_t common_messages(const json_t *a, const json_t *b)
{
    size_t n = 0;

    while (n + 1 < json_array_size(a) && n + 1 < json_array_size(b) &&
           json_equal(json_array_get(a, n), json_array_get(b, n)))
        n++;
    return n;
}

/* The bytes that both texts begin with; a blank at their end belongs to the
 * answers, as does a character of which only a part is common. */
static size_t common_bytes(const char *a, const char *b)
{
    size_t n = 0;

    while (a[n] != '\0' && a[n] == b[n])
        n++;
    while (n > 0 && (((unsigned char)a[n] & 0xC0) == 0x80 ||
                     ((unsigned char)b[n] & 0xC0) == 0x80))
        n--;
    return n > 0 && a[n - 1] == ' ' ? n - 1 : n;
}

/* "prompt" of what the texts begin with, which they lose. */
static enum merak_status cut_prompt(json_t *object, struct merak_error *err)
{
    const char *chosen = json_string_value(json_object_get(object, "chosen"));
    const char *rejected =
        json_string_value(json_object_get(object, "rejected"));
    size_t n = common_bytes(chosen, rejected);
    json_t *prompt = json_stringn(chosen, n);
    json_t *left[2] = {json_string(chosen + n), json_string(rejected + n)};

    if (prompt == NULL || left[0] == NULL || left[1] == NULL) {
        json_decref(prompt);
        json_decref(left[0]);
        json_decref(left[1]);
        return merak_fail_nomem(err, strlen(chosen) + strlen(rejected));
    }
    json_object_set_new(object, "prompt", prompt);
    json_object_set_new(object, "chosen", left[0]);
    json_object_set_new(object, "rejected", left[1]);
    return MERAK_OK;
}

enum merak_status merak_talk_from_pair(json_t *object, size_t *given_p,
                                       struct merak_error *err)
{
    const json_t *given = json_object_get(object, "prompt");
    const json_t *prompt = json_is_null(given) ? NULL : given;
    const json_t *chosen = json_object_get(object, "chosen");
    const json_t *rejected = json_object_get(object, "rejected");
    enum merak_status rc;

    if (json_is_array(chosen) && json_is_array(rejected) &&
        json_is_array(prompt)) {
        *given_p = json_array_size(prompt);
        rc = put_prompt(object, "chosen", err);
        return rc == MERAK_OK ? put_prompt(object, "rejected", err) : rc;
    }
    if (json_is_array(chosen) && json_is_array(rejected) &&
        (prompt == NULL || json_is_string(prompt))) {
        *given_p = common_messages(chosen, rejected);
        return MERAK_OK;
    }
    if (!json_is_string(chosen) || !json_is_string(rejected) ||
        (prompt != NULL && !json_is_string(prompt)))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "\"prompt\", \"chosen\" and \"rejected\": "
                          "expected three texts, three lists of messages, or "
                          "two without \"prompt\"");
    return prompt == NULL ? cut_prompt(object, err) : MERAK_OK;
}
