/* SPDX-License-Identifier: Apache-2.0 */
/* chat_template.c - conversations as text by the tokenizer's own template */
#include "config.h"

#include "text/tokenizer/chat_impl.h"

#include "base/error.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- fields that made no difference ----------------------------------------
 */

/* Flags say what is learned and are honoured before (json_lines.c). */
static bool is_known(const char *key)
{
    static const char *const known[] = {
        "role", "content", "weight", "train", "training", "loss", "masked"};

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (strcmp(known[i], key) == 0)
            return true;
    }
    return false;
}

bool merak_chat_is_said(const char *key)
{
    static const char *const said[] = {"reasoning_content", "reasoning",
                                       "thinking", "tool_calls",
                                       "function_call"};

    for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++) {
        if (strcmp(said[i], key) == 0)
            return true;
    }
    return false;
}

bool merak_chat_is_empty(const json_t *value)
{
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

enum merak_status merak_chat_note_unread(struct merak_chat *chat,
                                         const struct merak_chat_turn *turn,
                                         size_t i, const char *key,
                                         struct merak_error *err)
{
    size_t n = strlen(chat->unread), bytes = strlen(key);
    const char *at = chat->unread;

    if (is_known(key) || merak_chat_is_empty(json_object_get(turn->whole, key)))
        return MERAK_OK;
    if (turn->role == MERAK_CHAT_ANSWER && !turn->context &&
        merak_chat_is_said(key))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "message %zu of the assistant has \"%.30s\", which "
                          "the chat %s does not put out: the answer would be "
                          "learned without it; remove it, or give \"weight\": "
                          "0",
                          i + 1, key,
                          chat->template != NULL ? "template" : "format");
    while ((at = strstr(at, key)) != NULL) {
        if ((at == chat->unread || at[-1] == ' ') &&
            (at[bytes] == ',' || at[bytes] == '\0'))
            return MERAK_OK;
        at += bytes;
    }
    if (n + bytes + 3 < sizeof(chat->unread))
        snprintf(chat->unread + n, sizeof(chat->unread) - n, "%s%s",
                 n > 0 ? ", " : "", key);
    return MERAK_OK;
}

const char *merak_chat_unread(const struct merak_chat *chat)
{
    return chat->unread;
}

void merak_chat_forget_unread(struct merak_chat *chat)
{
    chat->unread[0] = '\0';
}

static void count(json_t *counts, const char *key)
{
    json_object_set_new(
        counts, key,
        json_integer(json_integer_value(json_object_get(counts, key)) + 1));
}

/* How many messages have a field that the template did not look at in any. */
static json_t *count_unread(const struct merak_jinja_output *made,
                            const struct merak_chat_talk *talk)
{
    json_t *counts = json_object(), *with = json_object(), *each;
    const char *key;
    void *next;

    for (size_t k = 0; k < made->n_unread; k++)
        count(counts, made->unread[k].key);
    for (size_t i = 0; json_object_size(counts) > 0 && i < talk->n; i++) {
        json_object_foreach((json_t *)talk->turn[i].whole, key, each)
            count(with, key);
    }
    json_object_foreach_safe(counts, next, key, each)
    {
        if (json_integer_value(json_object_get(with, key)) >
            json_integer_value(each))
            json_object_del(counts, key);
    }
    json_decref(with);
    return counts;
}

/* A template that looks at a field in any message knows it. */
static enum merak_status note_unread(struct merak_chat *chat,
                                     const struct merak_chat_talk *talk,
                                     struct merak_error *err)
{
    const struct merak_jinja_output *made = &chat->made;
    json_t *counts = count_unread(made, talk);
    enum merak_status rc = MERAK_OK;

    for (size_t k = 0; k < made->n_unread && rc == MERAK_OK; k++) {
        const struct merak_jinja_unread *u = &made->unread[k];

        if (json_object_get(counts, u->key) != NULL)
            rc = merak_chat_note_unread(chat, &talk->turn[u->message],
                                        (size_t)u->message, u->key, err);
    }
    json_decref(counts);
    return rc;
}

/* --- running the tokenizer's template -----------------------------------
 */

enum merak_status merak_chat_run_template(struct merak_chat *chat,
                                          const struct merak_chat_talk *talk,
                                          struct merak_chat_text *out,
                                          struct merak_error *err)
{
    static const char *const role[] = {"system", "user", "assistant", "tool"};
    struct merak_chat_renderer r = {
        .chat = chat, .out = out, .err = err, .rc = MERAK_OK};
    struct merak_jinja_message *message = calloc(talk->n, sizeof(*message));
    const struct merak_jinja_input in = {.message = message,
                                         .n_messages = talk->n,
                                         .word = chat->word,
                                         .n_words = chat->n_words,
                                         .more = talk->more,
                                         .now = chat->now};

    if (message == NULL)
        return merak_fail_nomem(err, talk->n * sizeof(*message));
    for (size_t i = 0; i < talk->n; i++)
        message[i] = (struct merak_jinja_message){
            role[talk->turn[i].role], talk->turn[i].text, talk->turn[i].n,
            talk->turn[i].whole};
    r.rc = merak_jinja_render(chat->template, &in, &chat->made, err);
    if (r.rc == MERAK_ERR_UNSUPPORTED)
        merak_error_wrap(err, "the chat template, which is run");
    if (r.rc == MERAK_OK) {
        chat->has_date |= chat->made.has_date;
        merak_chat_put(&r, chat->made.text, chat->made.n);
    }
    if (r.rc == MERAK_OK)
        r.rc = note_unread(chat, talk, err);
    if (r.rc == MERAK_OK)
        merak_chat_find_answers(&r, &in, talk);
    free(message);
    return r.rc;
}
