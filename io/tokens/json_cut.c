/* SPDX-License-Identifier: Apache-2.0 */
/* json_cut.c - JSON cut at its keys and elements */
#include "config.h"

#include "io/tokens/json_cut.h"

#include "base/error.h"

#include <string.h>

const char *merak_json_skip_blanks(const char *at, const char *end)
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
        at = merak_json_skip_blanks(at, end);
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

int merak_json_next(const char **at, const char *end, char close, bool first,
                    struct merak_json_member *m)
{
    const char *p = merak_json_skip_blanks(*at, end), *q;

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
        p = merak_json_skip_blanks(p + 1, end);
    }
    m->key = (struct merak_json_span){p, 0};
    if (close == '}') {
        q = p < end && *p == '"' ? skip_string(p, end) : NULL;
        if (q == NULL)
            return -1;
        m->key = (struct merak_json_span){p + 1, (size_t)(q - p) - 2};
        p = merak_json_skip_blanks(q, end);
        if (p >= end || *p != ':')
            return -1;
        p = merak_json_skip_blanks(p + 1, end);
    }
    q = skip_value(p, end);
    if (q == NULL)
        return -1;
    m->value = (struct merak_json_span){p, (size_t)(q - p)};
    *at = q;
    return 1;
}

json_t *merak_json_parse(struct merak_json_span span, json_error_t *bad)
{
    return json_loadb(span.at, span.n, JSON_ALLOW_NUL | JSON_DECODE_ANY, bad);
}

/* A key as a string of JSON, which may have escapes. */
static json_t *parse_key(struct merak_json_span key)
{
    return merak_json_parse((struct merak_json_span){key.at - 1, key.n + 2},
                            &(json_error_t){0});
}

bool merak_json_is_key(struct merak_json_span key, const char *name)
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

/* --- messages --------------------------------------------------------------
 */

enum merak_status merak_json_refuse(const char *why, struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_FORMAT, "not JSON: %s", why);
}

/* What a message says or is asked of: of another key a value that cannot be
 * parsed is left out, as if it were not there. */
static bool is_read(struct merak_json_span key)
{
    static const char *const name[] = {
        "role",       "from",          "value",
        "content",    "weight",        "train",
        "training",   "loss",          "masked",
        "name",       "reasoning",     "thinking",
        "tool_calls", "function_call", "reasoning_content"};

    for (size_t i = 0; i < sizeof(name) / sizeof(*name); i++) {
        if (merak_json_is_key(key, name[i]))
            return true;
    }
    return false;
}

static enum merak_status parse_message(struct merak_json_span span,
                                       json_t **message_p,
                                       struct merak_error *err)
{
    const char *at = span.at + 1, *end = span.at + span.n;
    json_t *message = json_object();
    struct merak_json_member m;
    json_error_t bad;
    bool first = true;
    int more;

    if (span.at[0] != '{') {
        json_decref(message);
        *message_p = merak_json_parse(span, &bad);
        return *message_p != NULL ? MERAK_OK : merak_json_refuse(bad.text, err);
    }
    for (; (more = merak_json_next(&at, end, '}', first, &m)) > 0;
         first = false) {
        json_t *value = merak_json_parse(m.value, &bad),
               *key = parse_key(m.key);

        if (value == NULL && is_read(m.key)) {
            json_decref(key);
            json_decref(message);
            return merak_json_refuse(bad.text, err);
        }
        if (value != NULL && json_is_string(key))
            json_object_set_new(message, json_string_value(key), value);
        else
            json_decref(value);
        json_decref(key);
    }
    if (more < 0) {
        json_decref(message);
        return merak_json_refuse("a message that is cut", err);
    }
    *message_p = message;
    return MERAK_OK;
}

enum merak_status merak_json_parse_messages(struct merak_json_span span,
                                            json_t **list_p,
                                            struct merak_error *err)
{
    const char *at = span.at + 1, *end = span.at + span.n;
    enum merak_status rc = MERAK_OK;
    json_error_t bad;
    json_t *list, *one = NULL;
    struct merak_json_member m;
    bool first = true;
    int more = 0;

    if (span.at[0] != '[') {
        *list_p = merak_json_parse(span, &bad);
        return *list_p != NULL ? MERAK_OK : merak_json_refuse(bad.text, err);
    }
    list = json_array();
    for (; rc == MERAK_OK &&
           (more = merak_json_next(&at, end, ']', first, &m)) > 0;
         first = false) {
        rc = parse_message(m.value, &one, err);
        if (rc == MERAK_OK)
            json_array_append_new(list, one);
    }
    if (rc == MERAK_OK && more < 0)
        rc = merak_json_refuse("messages that are cut", err);
    if (rc == MERAK_OK)
        *list_p = list;
    else
        json_decref(list);
    return rc;
}
