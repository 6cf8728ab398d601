/* SPDX-License-Identifier: Apache-2.0 */
/* hf_reader.c - fields of a JSON object, each asked for by name and type */
#include "config.h"

#include "io/hf_reader.h"

#include "base/error.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool was_asked(const struct merak_hf_reader *r, const char *name)
{
    for (int i = 0; i < r->n_asked; i++) {
        if (strcmp(r->asked[i], name) == 0)
            return true;
    }
    return false;
}

const json_t *merak_hf_field(struct merak_hf_reader *r, const char *name)
{
    const json_t *value = json_object_get(r->root, name);

    if (value != NULL && r->n_asked < MERAK_HF_ASKED && !was_asked(r, name))
        r->asked[r->n_asked++] = name;
    return json_is_null(value) ? NULL : value;
}

static char *text_of(struct merak_hf_reader *r, const char *name)
{
    return json_dumps(json_object_get(r->root, name),
                      JSON_ENCODE_ANY | JSON_COMPACT);
}

static void fail_type(struct merak_hf_reader *r, const char *name,
                      const char *want)
{
    char *text = text_of(r, name);

    r->rc =
        merak_fail(r->err, MERAK_ERR_CONFIG, "field %s is %.60s, expected %s",
                   name, text == NULL ? "?" : text, want);
    free(text);
}

void merak_hf_missing(struct merak_hf_reader *r, const char *name)
{
    if (r->rc == MERAK_OK)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "field %s is missing; the %s family needs it", name,
                           r->family);
}

size_t merak_hf_size(struct merak_hf_reader *r, const char *name, size_t most,
                     size_t or_else)
{
    const json_t *value = merak_hf_field(r, name);
    json_int_t n = json_integer_value(value);
    char want[64];

    if (r->rc != MERAK_OK)
        return or_else;
    if (value == NULL) {
        if (or_else == 0)
            merak_hf_missing(r, name);
        return or_else;
    }
    if (json_is_integer(value) && n >= 1 && (size_t)n <= most)
        return (size_t)n;
    snprintf(want, sizeof(want), "a whole number from 1 to %zu", most);
    fail_type(r, name, want);
    return or_else;
}

double merak_hf_real(struct merak_hf_reader *r, const char *name,
                     double or_else)
{
    const json_t *value = merak_hf_field(r, name);

    if (r->rc != MERAK_OK || value == NULL)
        return or_else;
    if (json_is_number(value))
        return json_number_value(value);
    fail_type(r, name, "a number");
    return or_else;
}

float merak_hf_positive(struct merak_hf_reader *r, const char *name,
                        double or_else)
{
    float x = (float)merak_hf_real(r, name, or_else);

    if (r->rc == MERAK_OK && !(x > 0 && isfinite(x)))
        fail_type(r, name, "a number above 0");
    return x;
}

float merak_hf_dropout(struct merak_hf_reader *r, const char *name,
                       double or_else)
{
    float p = (float)merak_hf_real(r, name, or_else);

    if (r->rc == MERAK_OK && !(p >= 0 && p < 1))
        fail_type(r, name, "a probability, 0 <= p < 1");
    return p;
}

bool merak_hf_bool(struct merak_hf_reader *r, const char *name, bool or_else)
{
    const json_t *value = merak_hf_field(r, name);

    if (r->rc != MERAK_OK || value == NULL)
        return or_else;
    if (json_is_boolean(value))
        return json_is_true(value);
    fail_type(r, name, "true or false");
    return or_else;
}

const char *merak_hf_word(struct merak_hf_reader *r, const char *name,
                          const char *or_else)
{
    const json_t *value = merak_hf_field(r, name);

    if (r->rc != MERAK_OK || value == NULL)
        return or_else;
    if (json_is_string(value))
        return json_string_value(value);
    fail_type(r, name, "a string");
    return or_else;
}

/* --- refusals ---------------------------------------------------- */

void merak_hf_refuse(struct merak_hf_reader *r, const char *name,
                     const char *want)
{
    char *text;

    if (r->rc != MERAK_OK)
        return;
    text = text_of(r, name);
    r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                       "field %s is %.80s, which is not supported; expected %s",
                       name, text == NULL ? "?" : text, want);
    free(text);
}

void merak_hf_require_bool(struct merak_hf_reader *r, const char *name,
                           bool want)
{
    if (merak_hf_bool(r, name, want) != want)
        merak_hf_refuse(r, name, want ? "true" : "false");
}

void merak_hf_require_absent(struct merak_hf_reader *r, const char *name)
{
    if (merak_hf_field(r, name) != NULL)
        merak_hf_refuse(r, name, "null");
}

static bool is_in(const char *const *list, const char *name)
{
    while (*list != NULL && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

static void add_name(struct merak_hf_names *names, const char *before,
                     const char *name)
{
    size_t at = strlen(names->text);

    names->n++;
    if (at + strlen(before) + strlen(name) + sizeof(", ") > sizeof(names->text))
        names->left_out++;
    else
        snprintf(names->text + at, sizeof(names->text) - at, "%s%s%s",
                 at > 0 ? ", " : "", before, name);
}

void merak_hf_list_unread(const struct merak_hf_reader *r,
                          const char *const *known, const char *const *more,
                          const char *before, struct merak_hf_names *names)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)r->root, name, value)
    {
        if (!json_is_null(value) && name[0] != '_' && !was_asked(r, name) &&
            !is_in(known, name) && (more == NULL || !is_in(more, name)))
            add_name(names, before, name);
    }
}
