/* SPDX-License-Identifier: Apache-2.0 */
/* json_lines.c - a line of JSON as a document or a conversation
 *
 * A line is first cut at its keys, and only the values that are read are
 * parsed: whatever else it holds, such as a number above 2^63, is no reason to
 * refuse it.  The same holds for the fields of a message.
 */
#include "config.h"

#include "io/tokens/json_lines.h"

#include "base/error.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* --- cutting ---------------------------------------------------------------
 */

struct span {
    const char *at;
    size_t n;
};

struct member {
    struct span key, value; /* the key without its quotes */
};

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && strchr(" \t\r\n", *at) != NULL && *at != '\0')
        at++;
    return at;
}

/* The end of the string that begins at `at`, or NULL. */
static const char *skip_string(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++) {
        if (*at == '\\')
            at++;
    }
    return at < end ? at + 1 : NULL;
}

/* The end of the value that begins at `at`, or NULL. */
static const char *skip_value(const char *at, const char *end)
{
    size_t depth = 0;

    do {
        at = skip_blanks(at, end);
        if (at >= end)
            return NULL;
        if (*at == '"') {
            at = skip_string(at, end);
            if (at == NULL)
                return NULL;
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            if (depth == 0)
                return NULL;
            depth--;
            at++;
        } else if (*at == ',' || *at == ':') {
            if (depth == 0)
                return NULL;
            at++;
        } else {
            at += strcspn(at, " \t\r\n,:]}[{\"") > 0
                      ? strcspn(at, " \t\r\n,:]}[{\"")
                      : 1;
            at = at < end ? at : end;
        }
    } while (depth > 0);
    return at;
}

/* Behind an opening sign or a comma: the next member of an object, or element
 * of a list (its key is then empty).  1: one more, 0: the end, -1: not JSON. */
static int next_member(const char **at, const char *end, char close, bool first,
                       struct member *m)
{
    const char *p = skip_blanks(*at, end), *q;

    if (p < end && *p == close && first) {
        *at = p + 1;
        return 0;
    }
    if (!first) {
        if (p >= end || (*p != ',' && *p != close))
            return -1;
        *at = p + 1;
        if (*p == close)
            return 0;
        p = skip_blanks(p + 1, end);
    }
    m->key = (struct span){p, 0};
    if (close == '}') {
        q = p < end && *p == '"' ? skip_string(p, end) : NULL;
        if (q == NULL)
            return -1;
        m->key = (struct span){p + 1, (size_t)(q - p) - 2};
        p = skip_blanks(q, end);
        if (p >= end || *p != ':')
            return -1;
        p = skip_blanks(p + 1, end);
    }
    q = skip_value(p, end);
    if (q == NULL)
        return -1;
    m->value = (struct span){p, (size_t)(q - p)};
    *at = q;
    return 1;
}

static json_t *parse(struct span span, json_error_t *bad)
{
    return json_loadb(span.at, span.n, JSON_ALLOW_NUL | JSON_DECODE_ANY, bad);
}

/* A key as a string of JSON, which may have escapes. */
static json_t *parse_key(struct span key)
{
    return parse((struct span){key.at - 1, key.n + 2}, &(json_error_t){0});
}

static bool is_key(struct span key, const char *name)
{
    json_t *text;
    bool same;

    if (memchr(key.at, '\\', key.n) == NULL)
        return key.n == strlen(name) && memcmp(key.at, name, key.n) == 0;
    text = parse_key(key);
    same = json_is_string(text) && strcmp(json_string_value(text), name) == 0;
    json_decref(text);
    return same;
}

static enum merak_status not_json(const char *why, struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_FORMAT, "not JSON: %s", why);
}

/* What a message says or is asked of: of another key a value that cannot be
 * parsed is left out, as if it were not there. */
static bool is_read(struct span key)
{
    static const char *const name[] = {"role",
                                       "content",
                                       "weight",
                                       "train",
                                       "training",
                                       "loss",
                                       "masked",
                                       "name",
                                       "reasoning",
                                       "thinking",
                                       "tool_calls",
                                       "function_call",
                                       "reasoning_content"};

    for (size_t i = 0; i < sizeof(name) / sizeof(*name); i++) {
        if (is_key(key, name[i]))
            return true;
    }
    return false;
}

static enum merak_status parse_message(struct span span, json_t **message_p,
                                       struct merak_error *err)
{
    const char *at = span.at + 1, *end = span.at + span.n;
    json_t *message = json_object();
    struct member m;
    json_error_t bad;
    bool first = true;
    int more;

    if (span.at[0] != '{') {
        json_decref(message);
        *message_p = parse(span, &bad);
        return *message_p != NULL ? MERAK_OK : not_json(bad.text, err);
    }
    for (; (more = next_member(&at, end, '}', first, &m)) > 0; first = false) {
        json_t *value = parse(m.value, &bad), *key = parse_key(m.key);

        if (value == NULL && is_read(m.key)) {
            json_decref(key);
            json_decref(message);
            return not_json(bad.text, err);
        }
        if (value != NULL && json_is_string(key))
            json_object_set_new(message, json_string_value(key), value);
        else
            json_decref(value);
        json_decref(key);
    }
    if (more < 0) {
        json_decref(message);
        return not_json("a message that is cut", err);
    }
    *message_p = message;
    return MERAK_OK;
}

static enum merak_status parse_messages(struct span span, json_t **list_p,
                                        struct merak_error *err)
{
    const char *at = span.at + 1, *end = span.at + span.n;
    enum merak_status rc = MERAK_OK;
    json_error_t bad;
    json_t *list, *one = NULL;
    struct member m;
    bool first = true;
    int more = 0;

    if (span.at[0] != '[') {
        *list_p = parse(span, &bad);
        return *list_p != NULL ? MERAK_OK : not_json(bad.text, err);
    }
    list = json_array();
    for (; rc == MERAK_OK && (more = next_member(&at, end, ']', first, &m)) > 0;
         first = false) {
        rc = parse_message(m.value, &one, err);
        if (rc == MERAK_OK)
            json_array_append_new(list, one);
    }
    if (rc == MERAK_OK && more < 0)
        rc = not_json("messages that are cut", err);
    if (rc == MERAK_OK)
        *list_p = list;
    else
        json_decref(list);
    return rc;
}

/* --- the keys of a line ----------------------------------------------------
 */

static const char *const line_keys[] = {"text",
                                        "messages",
                                        "prompt",
                                        "completion",
                                        "tools",
                                        "documents",
                                        "chat_template_kwargs"};
enum { LINE_KEYS = sizeof(line_keys) / sizeof(*line_keys), MESSAGES = 1 };

/* Cut a line; false: it is not an object, or not JSON. */
static bool cut_line(const char *line, size_t n, const char *key,
                     struct span *found)
{
    const char *end = line + n, *at = skip_blanks(line, end);
    struct member m;
    bool first = true;
    int more;

    if (at >= end || *at++ != '{')
        return false;
    for (; (more = next_member(&at, end, '}', first, &m)) > 0; first = false) {
        if (key != NULL) {
            if (is_key(m.key, key))
                found[0] = m.value;
            continue;
        }
        for (size_t i = 0; i < LINE_KEYS; i++) {
            if (is_key(m.key, line_keys[i]))
                found[i] = m.value;
        }
    }
    return more == 0 && skip_blanks(at, end) == end;
}

bool merak_json_line_is(const char *line, size_t n, bool keyed)
{
    struct span found[LINE_KEYS] = {{NULL, 0}};

    return cut_line(line, n, NULL, found) &&
           (!keyed || found[0].at != NULL || found[MESSAGES].at != NULL ||
            (found[2].at != NULL && found[3].at != NULL));
}

/* The object with what is read of the line. */
static enum merak_status parse_line(struct merak_json_lines *l,
                                    const char *line, size_t n,
                                    json_t **object_p, struct merak_error *err)
{
    struct span found[LINE_KEYS] = {{NULL, 0}};
    enum merak_status rc = MERAK_OK;
    json_t *object, *value;
    json_error_t bad;

    if (!cut_line(line, n, l->key, found)) {
        *object_p = parse((struct span){line, n}, &bad);
        return *object_p != NULL && !json_is_object(*object_p)
                   ? MERAK_OK
                   : not_json(*object_p == NULL ? bad.text
                                                : "more behind the object",
                              err);
    }
    object = json_object();
    for (size_t i = 0; i < LINE_KEYS && rc == MERAK_OK; i++) {
        if (found[i].at == NULL)
            continue;
        value = NULL;
        if (l->key == NULL && i == MESSAGES)
            rc = parse_messages(found[i], &value, err);
        else if ((value = parse(found[i], &bad)) == NULL)
            rc = not_json(bad.text, err);
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
                                   const json_t *object,
                                   struct merak_error *err)
{
    struct merak_chat_turn turn[2] = {{.role = MERAK_CHAT_USER},
                                      {.role = MERAK_CHAT_ANSWER}};
    enum merak_status rc = take_string(object, "prompt", &turn[0], err);

    if (rc == MERAK_OK)
        rc = take_string(object, "completion", &turn[1], err);
    return rc == MERAK_OK
               ? l->reader->turns(l->reader->arg, false,
                                  &(struct merak_chat_talk){turn, 2, NULL}, err)
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

static enum merak_status read_messages(struct merak_json_lines *l,
                                       const json_t *messages,
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
                                       struct merak_error *err)
{
    const json_t *messages = json_object_get(object, "messages");
    enum merak_status rc;
    json_t *names;

    if (!json_is_array(messages))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "\"messages\" is %s, expected a list",
                          type_of(messages));
    rc = read_messages(l, messages, err);
    if (rc != MERAK_OK)
        return rc;
    names = names_of(object);
    rc = l->reader->turns(
        l->reader->arg, true,
        &(struct merak_chat_talk){l->turn, json_array_size(messages), names},
        err);
    json_decref(names);
    return rc;
}

/* --- a line ----------------------------------------------------------------
 */

/* Without --json-key a line is one of three things, and not two of them: what
 * is not taken would be lost without a word. */
static enum merak_status take_object(struct merak_json_lines *l,
                                     const json_t *object,
                                     struct merak_error *err)
{
    bool text = json_object_get(object, "text") != NULL;
    bool messages = json_object_get(object, "messages") != NULL;
    bool pair = json_object_get(object, "prompt") != NULL ||
                json_object_get(object, "completion") != NULL;

    if (l->key != NULL)
        return take_text(l, object, err);
    if (text + messages + pair > 1)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "both %s and %s: remove one of them, or choose a "
                          "text with --json-key",
                          text ? "\"text\"" : "\"messages\"",
                          messages && text ? "\"messages\"" : "\"prompt\"");
    if (messages)
        return take_messages(l, object, err);
    return pair ? take_pair(l, object, err) : take_text(l, object, err);
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
