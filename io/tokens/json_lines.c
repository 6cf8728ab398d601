/* SPDX-License-Identifier: Apache-2.0 */
/* json_lines.c - a line of JSON as a document or a conversation
 *
 * A line is first cut at its keys, and only the values that are read are
 * parsed: whatever else it holds, such as a number above 2^63, is no reason to
 * refuse it.  The same holds for the fields of a message.
 */
#include "config.h"

#include "io/tokens/json_lines.h"
#include "io/tokens/json_cut.h"
#include "io/tokens/talk_formats.h"

#include "base/error.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* --- the keys of a line ----------------------------------------------------
 */

enum {
    TEXT,
    MESSAGES,
    PROMPT,
    COMPLETION,
    CONVERSATIONS,
    TOOLS,
    DOCUMENTS,
    KWARGS,
    /* only where a line has both of them, or one and a bare prompt */
    CHOSEN,
    REJECTED,
    /* only where a line has both of the first two, or conversations */
    INSTRUCTION,
    OUTPUT,
    INPUT,
    HISTORY,
    SYSTEM,
    LINE_KEYS
};
static const char *const line_keys[LINE_KEYS] = {
    "text",          "messages", "prompt",      "completion",
    "conversations", "tools",    "documents",   "chat_template_kwargs",
    "chosen",        "rejected", "instruction", "output",
    "input",         "history",  "system"};

const char *const *merak_json_line_keys(size_t *n_p)
{
    *n_p = LINE_KEYS;
    return line_keys;
}

/* One answer alone may be a column about something else, unless there is a
 * prompt that nothing else answers. */
static bool has_preference(const struct merak_json_span *found)
{
    bool bare = found[PROMPT].at != NULL && found[COMPLETION].at == NULL &&
                found[TEXT].at == NULL && found[MESSAGES].at == NULL;
    int n = (found[CHOSEN].at != NULL) + (found[REJECTED].at != NULL);

    return n == 2 || (n == 1 && bare);
}

/* Is this key of a line read, beside the others that it has? */
static bool is_taken(const struct merak_json_span *found, int key)
{
    bool alpaca = found[INSTRUCTION].at != NULL && found[OUTPUT].at != NULL;

    if (found[key].at == NULL)
        return false;
    if (key == CHOSEN || key == REJECTED)
        return has_preference(found);
    return key < INSTRUCTION || alpaca ||
           (key == SYSTEM && found[CONVERSATIONS].at != NULL);
}

/* In tables that were put together every row has the columns of all, null
 * where it has nothing.  Only if it has nothing at all, that is said. */
static void forget_nulls(struct merak_json_span *found)
{
    struct merak_json_span kept[LINE_KEYS] = {{NULL, 0}};
    bool any = false;

    for (size_t i = 0; i < LINE_KEYS; i++) {
        bool is_null = found[i].n == 4 && memcmp(found[i].at, "null", 4) == 0;

        kept[i] = is_null ? kept[i] : found[i];
        any = any || kept[i].at != NULL;
    }
    if (any)
        memcpy(found, kept, sizeof(kept));
}

/* Cut a line; false: it is not an object, or not JSON. */
static bool cut_line(const char *line, size_t n, const char *key,
                     struct merak_json_span *found)
{
    const char *end = line + n, *at = merak_json_skip_blanks(line, end);
    struct merak_json_member m;
    bool first = true;
    int more;

    if (at >= end || *at++ != '{')
        return false;
    for (; (more = merak_json_next(&at, end, '}', first, &m)) > 0;
         first = false) {
        if (key != NULL) {
            if (merak_json_is_key(m.key, key))
                found[0] = m.value;
            continue;
        }
        for (size_t i = 0; i < LINE_KEYS; i++) {
            if (merak_json_is_key(m.key, line_keys[i]))
                found[i] = m.value;
        }
    }
    if (key == NULL)
        forget_nulls(found);
    return more == 0 && merak_json_skip_blanks(at, end) == end;
}

bool merak_json_line_is(const char *line, size_t n, bool keyed)
{
    struct merak_json_span found[LINE_KEYS] = {{NULL, 0}};

    return cut_line(line, n, NULL, found) &&
           (!keyed || found[TEXT].at != NULL || found[MESSAGES].at != NULL ||
            found[CONVERSATIONS].at != NULL || is_taken(found, INSTRUCTION) ||
            has_preference(found) ||
            (found[PROMPT].at != NULL && found[COMPLETION].at != NULL));
}

static bool has_messages(int key, struct merak_json_span value)
{
    return key == MESSAGES || key == CONVERSATIONS ||
           ((key == PROMPT || key == COMPLETION || key == CHOSEN ||
             key == REJECTED) &&
            value.at[0] == '[');
}

/* The object with what is read of the line. */
static enum merak_status parse_line(struct merak_json_lines *l,
                                    const char *line, size_t n,
                                    json_t **object_p, struct merak_error *err)
{
    struct merak_json_span found[LINE_KEYS] = {{NULL, 0}};
    enum merak_status rc = MERAK_OK;
    json_t *object, *value;
    json_error_t bad;

    if (!cut_line(line, n, l->key, found)) {
        *object_p = merak_json_parse((struct merak_json_span){line, n}, &bad);
        return *object_p != NULL && !json_is_object(*object_p)
                   ? MERAK_OK
                   : merak_json_refuse(*object_p == NULL
                                           ? bad.text
                                           : "more behind the object",
                                       err);
    }
    object = json_object();
    for (int i = 0; i < LINE_KEYS && rc == MERAK_OK; i++) {
        if (!is_taken(found, i))
            continue;
        value = NULL;
        if (l->key == NULL && has_messages(i, found[i]))
            rc = merak_json_parse_messages(found[i], &value, err);
        else if ((value = merak_json_parse(found[i], &bad)) == NULL)
            rc = merak_json_refuse(bad.text, err);
        if (rc == MERAK_OK)
            json_object_set_new(object, l->key != NULL ? l->key : line_keys[i],
                                value);
    }
    if (rc == MERAK_OK)
        *object_p = object;
    else
        json_decref(object);
    return rc;
}

/* --- documents and pairs ---------------------------------------------------
 */

static const char *type_of(const json_t *value)
{
    static const char *const name[] = {"an object", "a list",   "a text",
                                       "a number",  "a number", "true",
                                       "false",     "null"};

    return value == NULL ? "nothing" : name[json_typeof(value)];
}

static enum merak_status take_text(const struct merak_json_lines *l,
                                   const json_t *object,
                                   struct merak_error *err)
{
    const char *key = l->key == NULL ? "text" : l->key;
    const json_t *text = json_object_get(object, key);

    if (!json_is_object(object))
        return merak_fail(err, MERAK_ERR_FORMAT, "%s, expected an object",
                          type_of(object));
    if (!json_is_string(text))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s \"%s\"; choose with --json-key",
                          text == NULL ? "no" : "no text under", key);
    return l->reader->document(l->reader->arg, json_string_value(text),
                               json_string_length(text), err);
}

static enum merak_status take_string(const json_t *from, const char *key,
                                     struct merak_chat_turn *turn,
                                     struct merak_error *err)
{
    const json_t *text = json_object_get(from, key);

    if (!json_is_string(text))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "\"%s\" is %s, expected a text", key, type_of(text));
    turn->text = json_string_value(text);
    turn->n = json_string_length(text);
    return MERAK_OK;
}

static enum merak_status take_pair(const struct merak_json_lines *l,
                                   const json_t *object, const char *answer,
                                   enum merak_chat_side side,
                                   struct merak_error *err)
{
    struct merak_chat_turn turn[2] = {{.role = MERAK_CHAT_USER},
                                      {.role = MERAK_CHAT_ANSWER}};
    enum merak_status rc = take_string(object, "prompt", &turn[0], err);

    if (rc == MERAK_OK)
        rc = take_string(object, answer, &turn[1], err);
    return rc == MERAK_OK
               ? l->reader->turns(
                     l->reader->arg, false,
                     &(struct merak_chat_talk){turn, 2, NULL, side}, err)
               : rc;
}

/* --- messages --------------------------------------------------------------
 */

static enum merak_status read_role(const json_t *message,
                                   enum merak_chat_role *role_p,
                                   struct merak_error *err)
{
    static const struct {
        const char *name;
        enum merak_chat_role role;
    } row[] = {
        {"system", MERAK_CHAT_SYSTEM},    {"user", MERAK_CHAT_USER},
        {"assistant", MERAK_CHAT_ANSWER}, {"tool", MERAK_CHAT_OTHER},
        {"developer", MERAK_CHAT_OTHER},  {"function", MERAK_CHAT_OTHER},
        {"ipython", MERAK_CHAT_OTHER},
    };
    const json_t *role = json_object_get(message, "role");
    const char *text = json_string_value(role);

    for (size_t i = 0; text != NULL && i < sizeof(row) / sizeof(*row); i++) {
        if (strcmp(text, row[i].name) == 0) {
            *role_p = row[i].role;
            return MERAK_OK;
        }
    }
    return merak_fail(err, MERAK_ERR_FORMAT,
                      "\"role\" is %s%.40s%s, expected system, user, "
                      "assistant, tool, developer, function or ipython",
                      text == NULL ? type_of(role) : "\"",
                      text == NULL ? "" : text, text == NULL ? "" : "\"");
}

/* What says whether a message is learned, as other programs' data have it:
 * OpenAI's and mistral-finetune's "weight", axolotl's "train" and "training",
 * ms-swift's "loss", torchtune's "masked". */
static enum merak_status read_flags(const json_t *message,
                                    struct merak_chat_turn *turn,
                                    struct merak_error *err)
{
    static const char *const name[] = {"weight", "train", "training", "loss",
                                       "masked"};
    enum { MASKED = 4 };

    for (int i = 0; i <= MASKED; i++) {
        const json_t *flag = json_object_get(message, name[i]);
        double value = json_is_boolean(flag) ? json_is_true(flag)
                                             : json_number_value(flag);

        if (flag == NULL || json_is_null(flag))
            continue;
        if ((!json_is_boolean(flag) && !json_is_number(flag)) ||
            (value != 0 && value != 1))
            return merak_fail(err, MERAK_ERR_FORMAT,
                              "\"%s\" is neither 0 nor 1: a message is "
                              "learned or not",
                              name[i]);
        if (turn->role == MERAK_CHAT_ANSWER)
            turn->context |= (value != 0) == (i == MASKED);
        else if ((value != 0) != (i == MASKED))
            return merak_fail(err, MERAK_ERR_FORMAT,
                              "\"%s\" asks to learn what is not of the "
                              "assistant",
                              name[i]);
    }
    return MERAK_OK;
}

static enum merak_status read_message(const json_t *message,
                                      struct merak_chat_turn *turn,
                                      struct merak_error *err)
{
    const json_t *content = json_object_get(message, "content");
    enum merak_status rc = MERAK_OK;

    if (!json_is_object(message))
        return merak_fail(err, MERAK_ERR_FORMAT, "%s, expected an object",
                          type_of(message));
    *turn = (struct merak_chat_turn){.whole = message};
    rc = read_role(message, &turn->role, err);
    if (rc == MERAK_OK)
        rc = read_flags(message, turn, err);
    if (rc != MERAK_OK)
        return rc;
    /* templates know lists of parts, and answers that only call a tool */
    if (json_is_array(content) ||
        ((content == NULL || json_is_null(content)) &&
         (json_array_size(json_object_get(message, "tool_calls")) > 0 ||
          json_is_object(json_object_get(message, "function_call")))))
        return MERAK_OK;
    return take_string(message, "content", turn, err);
}

/* The first `given` messages are a prompt: none of them is learned. */
static enum merak_status read_messages(struct merak_json_lines *l,
                                       const json_t *messages, size_t given,
                                       struct merak_error *err)
{
    size_t n = json_array_size(messages);
    bool answered = false;

    if (n > l->room) {
        void *more = realloc(l->turn, 2 * n * sizeof(*l->turn));

        if (more == NULL)
            return merak_fail_nomem(err, 2 * n * sizeof(*l->turn));
        l->turn = more;
        l->room = 2 * n;
    }
    for (size_t i = 0; i < n; i++) {
        enum merak_status rc =
            read_message(json_array_get(messages, i), &l->turn[i], err);

        if (rc != MERAK_OK) {
            merak_error_wrap(err, "message %zu", i + 1);
            return rc;
        }
        l->turn[i].context |= i < given && l->turn[i].role == MERAK_CHAT_ANSWER;
        answered |= l->turn[i].role == MERAK_CHAT_ANSWER && !l->turn[i].context;
    }
    return answered ? MERAK_OK
                    : merak_fail(err, MERAK_ERR_FORMAT,
                                 "%zu messages and none of the assistant%s: "
                                 "there is nothing to learn",
                                 n, n > 0 ? " that counts" : "");
}

/* What a line has for the template beside its messages: "tools", "documents",
 * and as in TRL's data the fields of "chat_template_kwargs". */
static json_t *names_of(const json_t *object)
{
    static const char *const name[] = {"tools", "documents"};
    json_t *names = json_object();
    json_t *more = json_object_get(object, "chat_template_kwargs");

    if (json_is_object(more))
        json_object_update(names, more);
    for (size_t i = 0; i < 2; i++) {
        json_t *value = json_object_get(object, name[i]);

        if (value != NULL)
            json_object_set(names, name[i], value);
    }
    return names;
}

static enum merak_status take_messages(struct merak_json_lines *l,
                                       const json_t *object,
                                       const json_t *messages, size_t given,
                                       enum merak_chat_side side,
                                       struct merak_error *err)
{
    enum merak_status rc;
    json_t *names;

    if (!json_is_array(messages))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "\"messages\" is %s, expected a list",
                          type_of(messages));
    rc = read_messages(l, messages, given, err);
    if (rc != MERAK_OK)
        return rc;
    names = names_of(object);
    rc = l->reader->turns(l->reader->arg, true,
                          &(struct merak_chat_talk){
                              l->turn, json_array_size(messages), names, side},
                          err);
    json_decref(names);
    return rc;
}

/* Both answers to the prompt of a line, which merak_talk_from_pair() has made
 * of one kind. */
static enum merak_status take_preference(struct merak_json_lines *l,
                                         json_t *object,
                                         struct merak_error *err)
{
    static const struct {
        const char *key;
        enum merak_chat_side side;
    } answer[] = {{"chosen", MERAK_CHAT_CHOSEN},
                  {"rejected", MERAK_CHAT_REJECTED}};
    size_t given = 0;
    enum merak_status rc = merak_talk_from_pair(object, &given, err);

    for (size_t i = 0; i < 2 && rc == MERAK_OK; i++) {
        const json_t *value = json_object_get(object, answer[i].key);

        rc = json_is_array(value)
                 ? take_messages(l, object, value, given, answer[i].side, err)
                 : take_pair(l, object, answer[i].key, answer[i].side, err);
        if (rc == MERAK_ERR_FORMAT)
            merak_error_wrap(err, "\"%s\"", answer[i].key);
    }
    return rc;
}

/* --- a line ----------------------------------------------------------------
 */

/* Two of the things that a line may be, as its keys. */
static enum merak_status refuse_two(const char *const *what, size_t n,
                                    struct merak_error *err)
{
    const char *two[2] = {"", ""};

    for (size_t i = 0, at = 0; i < n && at < 2; i++) {
        if (what[i] != NULL)
            two[at++] = what[i];
    }
    return merak_fail(err, MERAK_ERR_FORMAT,
                      "both \"%s\" and \"%s\": remove one of them, or choose "
                      "a text with --json-key",
                      two[0], two[1]);
}

/* Without --json-key a line is one of six things, and not two of them: what
 * is not taken would be lost without a word. */
static enum merak_status take_object(struct merak_json_lines *l, json_t *object,
                                     struct merak_error *err)
{
    enum { KINDS = 6 };
    const char *what[KINDS] = {NULL};
    enum merak_status rc = MERAK_OK;
    size_t n = 0, given = 0;

    if (l->key != NULL)
        return take_text(l, object, err);
    for (int i = TEXT; i <= PROMPT; i++)
        what[i] = json_object_get(object, line_keys[i]) != NULL &&
                          !merak_talk_is_of_pair(object, line_keys[i])
                      ? line_keys[i]
                      : NULL;
    if (what[PROMPT] == NULL && json_object_get(object, "completion") != NULL)
        what[PROMPT] = "completion";
    if (json_object_get(object, "conversations") != NULL)
        what[3] = "conversations";
    if (json_object_get(object, "instruction") != NULL)
        what[4] = "instruction";
    if (merak_talk_is_pair(object))
        what[5] = "chosen";
    for (size_t i = 0; i < KINDS; i++)
        n += what[i] != NULL;
    if (n > 1)
        return refuse_two(what, KINDS, err);
    if (what[5] != NULL)
        return take_preference(l, object, err);
    if (what[3] != NULL)
        rc = merak_talk_from_sharegpt(object, err);
    else if (what[4] != NULL)
        rc = merak_talk_from_alpaca(object, err);
    else if (what[PROMPT] != NULL)
        rc = merak_talk_from_prompt(object, &given, err);
    if (rc != MERAK_OK)
        return rc;
    if (json_object_get(object, "messages") != NULL)
        return take_messages(l, object, json_object_get(object, "messages"),
                             given, MERAK_CHAT_ALONE, err);
    return what[PROMPT] != NULL
               ? take_pair(l, object, "completion", MERAK_CHAT_ALONE, err)
               : take_text(l, object, err);
}

enum merak_status merak_json_line_take(struct merak_json_lines *l,
                                       const char *line, size_t n,
                                       struct merak_error *err)
{
    json_t *object = NULL;
    enum merak_status rc = parse_line(l, line, n, &object, err);

    if (rc == MERAK_OK)
        rc = take_object(l, object, err);
    json_decref(object);
    return rc;
}
