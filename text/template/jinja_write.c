/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_write.c - values of templates as text */
#include "config.h"

#include "text/template/jinja_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* --- as text ---------------------------------------------------------------
 */

static void add(struct jinja_arena *a, struct jinja_out *out, const char *text)
{
    merak_jinja_put(a, out, merak_jinja_text(text, strlen(text)).text);
}

/* Before an item, or with `last` the closing sign, at a depth from 1.  Without
 * a style as Python's repr(). */
static void add_break(struct jinja_arena *a, struct jinja_out *out,
                      const struct jinja_json_style *how, int depth, bool first,
                      bool last)
{
    if (!first && !last)
        add(a, out, how != NULL ? how->item : ", ");
    if (how == NULL || how->indent < 0 || (first && last))
        return;
    add(a, out, "\n");
    for (int i = 0; i < how->indent * (last ? depth - 1 : depth); i++)
        add(a, out, " ");
}

static void put_bytes(struct jinja_arena *a, struct jinja_out *out,
                      const char *text, size_t n)
{
    merak_jinja_put(a, out, merak_jinja_text(text, n).text);
}

/* A character as \uHHHH; beyond 16 bits as two. */
static void add_code(struct jinja_arena *a, struct jinja_out *out,
                     const char *text, size_t n)
{
    static const unsigned char first[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    unsigned long c = (unsigned char)text[0] & first[n];
    char one[40];

    for (size_t i = 1; i < n; i++)
        c = c << 6 | ((unsigned char)text[i] & 0x3f);
    if (c < 0x10000)
        snprintf(one, sizeof(one), "\\u%04lx", c);
    else
        snprintf(one, sizeof(one), "\\u%04lx\\u%04lx",
                 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + (c & 0x3ff));
    add(a, out, one);
}

/* What stands for a control character. */
static void add_control(struct jinja_arena *a, struct jinja_out *out,
                        unsigned char c, bool json)
{
    static const char codes[] = "\n\t\r\b\f", letters[] = "ntrbf";
    const char *found = memchr(codes, c, json ? 5 : 3);
    char one[8];

    if (found != NULL)
        snprintf(one, sizeof(one), "\\%c", letters[found - codes]);
    else
        snprintf(one, sizeof(one), json ? "\\u%04x" : "\\x%02x", c);
    add(a, out, one);
}

static void add_quoted(struct jinja_arena *a, struct jinja_out *out,
                       struct jinja_text text,
                       const struct jinja_json_style *how)
{
    const char *quote = how == NULL && text.n > 0 &&
                                (memchr(text.at, '\'', text.n) == NULL ||
                                 memchr(text.at, '"', text.n) != NULL)
                            ? "'"
                        : how == NULL && text.n == 0 ? "'"
                                                     : "\"";

    add(a, out, quote);
    for (size_t i = 0, n; i < text.n && a->rc == MERAK_OK; i += n) {
        unsigned char c = (unsigned char)text.at[i];

        n = merak_jinja_char_bytes(text.at + i, text.n - i);
        if (how == NULL && c >= 0x80 &&
            merak_jinja_space(text.at + i, text.n - i) > 0)
            merak_jinja_fail(a, "a list or dict with blanks beyond ASCII, "
                                "as text");
        if (c == '\\' || c == (unsigned char)quote[0])
            put_bytes(a, out, "\\", 1);
        if (c < 0x20 || (c == 0x7f && (how == NULL || how->ascii)))
            add_control(a, out, c, how != NULL);
        else if (c >= 0x80 && how != NULL && how->ascii)
            add_code(a, out, text.at + i, n);
        else
            put_bytes(a, out, text.at + i, n);
    }
    add(a, out, quote);
}

static void add_value(struct jinja_arena *a, struct jinja_out *out,
                      struct jinja_value v, const struct jinja_json_style *how,
                      int depth);

/* In JSON all keys are strings. */
static void add_key(struct jinja_arena *a, struct jinja_out *out,
                    struct jinja_value key, const struct jinja_json_style *how,
                    int depth)
{
    bool quotes = how != NULL && key.kind != JINJA_TEXT;

    if (quotes && key.kind == JINJA_LIST)
        merak_jinja_fail(a, "tojson of a dict with a tuple as key");
    if (quotes)
        add(a, out, "\"");
    add_value(a, out, key, how, depth);
    if (quotes)
        add(a, out, "\"");
}

static void add_dict(struct jinja_arena *a, struct jinja_out *out,
                     const struct jinja_dict *dict,
                     const struct jinja_json_style *how, int depth)
{
    if (how != NULL && how->sorted && dict->n > 1)
        merak_jinja_fail(a, "tojson with sort_keys");
    add(a, out, "{");
    for (size_t i = 0; i < dict->n; i++) {
        dict->pair[i].read = true;
        add_break(a, out, how, depth, i == 0, false);
        add_key(a, out, dict->pair[i].key, how, depth);
        add(a, out, how != NULL ? how->key : ": ");
        add_value(a, out, dict->pair[i].value, how, depth);
    }
    add_break(a, out, how, depth, dict->n == 0, true);
    add(a, out, "}");
}

static void add_list(struct jinja_arena *a, struct jinja_out *out,
                     const struct jinja_list *list,
                     const struct jinja_json_style *how, int depth)
{
    bool round = list->form == JINJA_TUPLE && how == NULL;

    if (list->form > JINJA_TUPLE)
        merak_jinja_fail(a, "a generator or a range as text");
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
                      struct jinja_value v, const struct jinja_json_style *how,
                      int depth)
{
    char text[40];

    if (depth > 50)
        merak_jinja_fail(a, "a value nested too deeply to be written");
    if (a->rc != MERAK_OK)
        return;
    switch (v.kind) {
    case JINJA_UNDEFINED:
        if (how != NULL)
            merak_jinja_fail(a, "tojson of an undefined value");
        else if (depth > 0)
            add(a, out, "Undefined");
        break;
    case JINJA_NONE:
        add(a, out, how != NULL ? "null" : "None");
        break;
    case JINJA_BOOL:
        add(a, out,
            how != NULL ? (v.truth ? "true" : "false")
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
        merak_jinja_mark_put(
            a, out, (struct merak_jinja_mark){0, out->n, message, NULL});
    return merak_jinja_out_text(out).text;
}

struct jinja_text merak_jinja_str(struct jinja_arena *a, struct jinja_value v)
{
    struct jinja_out out = {.n = 0};

    if (v.kind == JINJA_TEXT)
        return v.text;
    add_value(a, &out, v, NULL, 0);
    return written(a, &out, v);
}

struct jinja_text merak_jinja_json(struct jinja_arena *a, struct jinja_value v,
                                   const struct jinja_json_style *how)
{
    struct jinja_out out = {.n = 0};

    add_value(a, &out, v, how, 0);
    return written(a, &out, v);
}
