/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_write.c - values of templates as text */
#include "config.h"

#include "io/template/jinja_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* --- as text ---------------------------------------------------------------
 */

static void add(struct jinja_arena *a, struct jinja_out *out, const char *text)
{
    merak_jinja_put(a, out, (struct jinja_text){text, strlen(text), NULL, 0});
}

/* As Python's str(), or as json.dumps(); indent 0: on one line. */
struct style {
    bool json;
    int indent;
};

/* Before an item, or with `last` the closing sign, at a depth from 1. */
static void add_break(struct jinja_arena *a, struct jinja_out *out,
                      const struct style *how, int depth, bool first, bool last)
{
    if (!first && !last)
        add(a, out, how->indent > 0 ? "," : ", ");
    if (how->indent == 0 || (first && last))
        return;
    add(a, out, "\n");
    for (int i = 0; i < how->indent * (last ? depth - 1 : depth); i++)
        add(a, out, " ");
}

static void add_quoted(struct jinja_arena *a, struct jinja_out *out,
                       struct jinja_text text, const struct style *how)
{
    char one[8];
    const char *quote = !how->json && (memchr(text.at, '\'', text.n) == NULL ||
                                       memchr(text.at, '"', text.n) != NULL)
                            ? "'"
                            : "\"";

    add(a, out, quote);
    for (size_t i = 0; i < text.n && a->rc == MERAK_OK; i++) {
        unsigned char c = (unsigned char)text.at[i];

        if (!how->json && c >= 0x80 &&
            merak_jinja_space(text.at + i, text.n - i) > 0)
            merak_jinja_fail(a, "a list or dict with blanks beyond ASCII, "
                                "as text");
        if (c == '\\' || c == (unsigned char)quote[0])
            snprintf(one, sizeof(one), "\\%c", c);
        else if (c == '\n' || c == '\t' || c == '\r')
            snprintf(one, sizeof(one), "\\%c",
                     c == '\n'   ? 'n'
                     : c == '\t' ? 't'
                                 : 'r');
        else if (c < 0x20)
            snprintf(one, sizeof(one), how->json ? "\\u%04x" : "\\x%02x", c);
        else
            snprintf(one, sizeof(one), "%c", c);
        add(a, out, one);
    }
    add(a, out, quote);
}

static void add_value(struct jinja_arena *a, struct jinja_out *out,
                      struct jinja_value v, const struct style *how, int depth);

static void add_dict(struct jinja_arena *a, struct jinja_out *out,
                     const struct jinja_dict *dict, const struct style *how,
                     int depth)
{
    add(a, out, "{");
    for (size_t i = 0; i < dict->n; i++) {
        dict->pair[i].read = true;
        add_break(a, out, how, depth, i == 0, false);
        add_quoted(a, out, dict->pair[i].key, how);
        add(a, out, ": ");
        add_value(a, out, dict->pair[i].value, how, depth);
    }
    add_break(a, out, how, depth, dict->n == 0, true);
    add(a, out, "}");
}

static void add_list(struct jinja_arena *a, struct jinja_out *out,
                     const struct jinja_list *list, const struct style *how,
                     int depth)
{
    bool round = list->is_tuple && !how->json;

    add(a, out, round ? "(" : "[");
    for (size_t i = 0; i < list->n; i++) {
        add_break(a, out, how, depth, i == 0, false);
        add_value(a, out, list->item[i], how, depth);
    }
    if (round && list->n == 1)
        add(a, out, ",");
    add_break(a, out, how, depth, list->n == 0, true);
    add(a, out, round ? ")" : "]");
}

/* The shortest digits that are read as the same number, as in Python's repr():
 * with an exponent only below 1e-4 and from 1e16 on. */
static void add_real(struct jinja_arena *a, struct jinja_out *out, double x)
{
    char text[40];
    const char *e;
    int decimals = -1, exponent;

    do
        snprintf(text, sizeof(text), "%.*e", ++decimals, x);
    while (strtod(text, NULL) != x && decimals < 16);
    e = strchr(text, 'e');
    exponent = e != NULL ? atoi(e + 1) : 16;
    if (exponent >= -4 && exponent < 16) {
        decimals = decimals > exponent ? decimals - exponent : 0;
        snprintf(text, sizeof(text), "%.*f", decimals, x);
    }
    add(a, out, text);
    if (strpbrk(text, ".einf") == NULL)
        add(a, out, ".0");
}

static void add_value(struct jinja_arena *a, struct jinja_out *out,
                      struct jinja_value v, const struct style *how, int depth)
{
    char text[40];

    if (depth > 50)
        merak_jinja_fail(a, "a value nested too deeply to be written");
    if (a->rc != MERAK_OK)
        return;
    switch (v.kind) {
    case JINJA_UNDEFINED:
        break;
    case JINJA_NONE:
        add(a, out, how->json ? "null" : "None");
        break;
    case JINJA_BOOL:
        add(a, out,
            how->json ? (v.truth ? "true" : "false")
                      : (v.truth ? "True" : "False"));
        break;
    case JINJA_INT:
        snprintf(text, sizeof(text), "%" PRId64, v.integer);
        add(a, out, text);
        break;
    case JINJA_REAL:
        add_real(a, out, v.real);
        break;
    case JINJA_TEXT:
        add_quoted(a, out, v.text, how);
        break;
    case JINJA_LIST:
        add_list(a, out, v.list, how, depth + 1);
        break;
    case JINJA_DICT:
        add_dict(a, out, v.dict, how, depth + 1);
        break;
    default:
        merak_jinja_fail(a, "a function or a loop as text");
    }
}

/* The message that a text comes from, that of its first mark; or -1. */
static int message_of(struct jinja_value v)
{
    int message = -1;

    if (v.kind == JINJA_TEXT)
        return v.text.n_marks > 0 ? v.text.mark[0].message : -1;
    for (size_t i = 0; v.kind == JINJA_LIST && i < v.list->n && message < 0;
         i++)
        message = message_of(v.list->item[i]);
    for (size_t i = 0; v.kind == JINJA_DICT && i < v.dict->n && message < 0;
         i++)
        message = message_of(v.dict->pair[i].value);
    return message;
}

/* All of what is written of a message's value is of the message. */
static struct jinja_text written(struct jinja_arena *a, struct jinja_out *out,
                                 struct jinja_value v)
{
    int message = a->rc == MERAK_OK ? message_of(v) : -1;

    out->n_marks = 0;
    if (message >= 0)
        merak_jinja_mark_put(a, out,
                             (struct merak_jinja_mark){0, out->n, message});
    return merak_jinja_out_text(out).text;
}

struct jinja_text merak_jinja_str(struct jinja_arena *a, struct jinja_value v)
{
    struct jinja_out out = {.n = 0};

    if (v.kind == JINJA_TEXT)
        return v.text;
    add_value(a, &out, v, &(struct style){false, 0}, 0);
    return written(a, &out, v);
}

struct jinja_text merak_jinja_json(struct jinja_arena *a, struct jinja_value v,
                                   int indent)
{
    struct jinja_out out = {.n = 0};

    if (v.kind == JINJA_UNDEFINED)
        merak_jinja_fail(a, "tojson of an undefined value");
    add_value(a, &out, v, &(struct style){true, indent}, 0);
    return written(a, &out, v);
}
