/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_json.c - values of JSON as values of templates */
#include "config.h"

#include "text/template/jinja_impl.h"

#include <jansson.h>

static struct jinja_text marked(struct jinja_arena *a, const char *text,
                                size_t n, int message)
{
    struct merak_jinja_mark *mark = merak_jinja_alloc(a, sizeof(*mark));

    *mark = (struct merak_jinja_mark){0, n, message, text};
    return (struct jinja_text){text, n, mark, 1, false};
}

static struct jinja_value of_list(struct jinja_arena *a, const json_t *json,
                                  int message)
{
    struct jinja_value v = merak_jinja_list(a);
    const json_t *each;
    size_t i;

    json_array_foreach(json, i, each)
        merak_jinja_append(a, v.list, merak_jinja_of_json(a, each, message));
    return v;
}

static struct jinja_value of_object(struct jinja_arena *a, const json_t *json,
                                    int message)
{
    struct jinja_value v = merak_jinja_dict(a);
    const char *key;
    json_t *each;

    json_object_foreach((json_t *)json, key, each)
        merak_jinja_set(a, v.dict, merak_jinja_text(key, strlen(key)),
                        merak_jinja_of_json(a, each, message));
    return v;
}

static struct jinja_value convert(struct jinja_arena *a, const json_t *json,
                                  int message)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return of_object(a, json, message);
    case JSON_ARRAY:
        return of_list(a, json, message);
    case JSON_STRING:
        return merak_jinja_of_text(marked(a, json_string_value(json),
                                          json_string_length(json), message));
    case JSON_INTEGER:
        return merak_jinja_int(json_integer_value(json));
    case JSON_REAL:
        return (struct jinja_value){.kind = JINJA_REAL,
                                    .real = json_real_value(json)};
    case JSON_NULL:
        return (struct jinja_value){.kind = JINJA_NONE};
    default:
        return merak_jinja_bool(json_is_true(json));
    }
}

/* A message of -1 has no marks. */
struct jinja_value merak_jinja_of_json(struct jinja_arena *a,
                                       const struct json_t *json, int message)
{
    struct jinja_value v = merak_jinja_undefined(NULL);

    if (merak_jinja_descend(a) && merak_jinja_step(a, 1))
        v = convert(a, json, message);
    merak_jinja_ascend(a);
    if (v.kind == JINJA_TEXT && message < 0)
        v.text.n_marks = 0;
    return v;
}
