/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_call.c - functions and methods of templates
 *
 * Only those that templates use on messages of text; others, mostly for tools
 * and pictures, are reported when a template reaches them.
 */
#include "config.h"

#include "io/template/jinja_impl.h"

#include <ctype.h>

struct jinja_value merak_jinja_arg(const struct jinja_args *args, size_t i,
                                   const char *name)
{
    for (size_t k = 0; k < args->n; k++) {
        if (args->name[k] == NULL ? k == i : strcmp(args->name[k], name) == 0)
            return args->value[k];
    }
    return merak_jinja_undefined(name);
}

struct jinja_text merak_jinja_text_arg(struct jinja_run *r,
                                       const struct jinja_args *args, size_t i,
                                       const char *of)
{
    struct jinja_value v = merak_jinja_arg(args, i, "");

    if (v.kind == JINJA_TEXT)
        return v.text;
    merak_jinja_fail(r->a, "%.40s without a string", of);
    return (struct jinja_text){"", 0, NULL, 0};
}

/* --- on texts --------------------------------------------------------------
 */

struct jinja_value merak_jinja_strip_args(struct jinja_run *r,
                                          struct jinja_text text,
                                          const struct jinja_args *args,
                                          bool left, bool right)
{
    struct jinja_value set = merak_jinja_arg(args, 0, "chars");

    return merak_jinja_of_text(merak_jinja_strip(
        r->a, text, set.kind == JINJA_TEXT ? set.text.at : NULL,
        set.kind == JINJA_TEXT ? set.text.n : 0, left, right));
}

size_t merak_jinja_text_find(struct jinja_arena *a, struct jinja_text text,
                             size_t from, struct jinja_text part)
{
    const char *at = memmem(text.at + from, text.n - from, part.at, part.n);
    size_t found =
        at != NULL && part.n > 0 ? (size_t)(at - text.at) : text.n + 1;

    /* A search reads what it passes over, and first what it looks for. */
    return merak_jinja_step_bytes(a, found - from + part.n) ? found
                                                            : text.n + 1;
}

static struct jinja_value split(struct jinja_run *r, struct jinja_text text,
                                const struct jinja_args *args)
{
    struct jinja_value list = merak_jinja_list(r->a);
    struct jinja_value most = merak_jinja_arg(args, 1, "maxsplit");
    struct jinja_text by = {NULL, 0, NULL, 0};
    size_t from = 0, at;
    int64_t left = most.kind == JINJA_INT ? most.integer : -1;

    if (args->n == 0) {
        merak_jinja_fail(r->a, "split at white space");
        return list;
    }
    by = merak_jinja_text_arg(r, args, 0, "split");
    while (left-- != 0 && r->a->rc == MERAK_OK) {
        at = merak_jinja_text_find(r->a, text, from, by);
        if (at > text.n)
            break;
        merak_jinja_append(
            r->a, list.list,
            merak_jinja_of_text(merak_jinja_cut(r->a, text, from, at)));
        from = at + by.n;
    }
    merak_jinja_append(
        r->a, list.list,
        merak_jinja_of_text(merak_jinja_cut(r->a, text, from, text.n)));
    return list;
}

struct jinja_value merak_jinja_replace(struct jinja_run *r,
                                       struct jinja_text text,
                                       const struct jinja_args *args)
{
    struct jinja_text old = merak_jinja_text_arg(r, args, 0, "replace");
    struct jinja_text by = merak_jinja_text_arg(r, args, 1, "replace");
    struct jinja_out out = {.n = 0};
    size_t from = 0, at;

    if (args->n > 2 || (old.n == 0 && r->a->rc == MERAK_OK))
        merak_jinja_fail(r->a, "replace with a count, or of an empty string");
    for (at = merak_jinja_text_find(r->a, text, 0, old);
         at <= text.n && r->a->rc == MERAK_OK;
         at = merak_jinja_text_find(r->a, text, from, old)) {
        merak_jinja_put(r->a, &out, merak_jinja_cut(r->a, text, from, at));
        merak_jinja_put(r->a, &out, by);
        from = at + old.n;
    }
    merak_jinja_put(r->a, &out, merak_jinja_cut(r->a, text, from, text.n));
    return merak_jinja_out_text(&out);
}

/* One of upper, lower, title and capitalize. */
struct jinja_value merak_jinja_change_case(struct jinja_run *r,
                                           struct jinja_text text, char how)
{
    char *to = merak_jinja_alloc(r->a, text.n + 1);
    bool in_word = false;

    for (size_t i = 0; i < text.n && r->a->rc == MERAK_OK; i++) {
        unsigned char c = (unsigned char)text.at[i];

        if (c >= 0x80)
            merak_jinja_fail(r->a, "upper or lower case beyond ASCII");
        else
            to[i] = (char)(how == 'u' || (how != 'l' && !in_word) ? toupper(c)
                                                                  : tolower(c));
        in_word = how == 'c' || isalpha(c);
    }
    text.at = to;
    return merak_jinja_of_text(text);
}

/* Does a text begin, or end, with another, or with one of a list? */
static bool has_end(struct jinja_run *r, struct jinja_text text,
                    struct jinja_value with, bool at_begin)
{
    const struct jinja_text *w = &with.text;

    if (with.kind == JINJA_TEXT)
        return w->n <= text.n && merak_jinja_step_bytes(r->a, w->n) &&
               (w->n == 0 ||
                memcmp(at_begin ? text.at : text.at + text.n - w->n, w->at,
                       w->n) == 0);
    if (with.kind != JINJA_LIST)
        merak_jinja_fail(r->a, "%s without a string",
                         at_begin ? "startswith" : "endswith");
    for (size_t i = 0; with.kind == JINJA_LIST && i < with.list->n &&
                       merak_jinja_step(r->a, 1);
         i++) {
        if (with.list->item[i].kind == JINJA_TEXT &&
            has_end(r, text, with.list->item[i], at_begin))
            return true;
    }
    return false;
}

struct jinja_value merak_jinja_join(struct jinja_run *r,
                                    struct jinja_value list,
                                    struct jinja_text between)
{
    const struct jinja_list *items = merak_jinja_items(r->a, list);
    struct jinja_out out = {.n = 0};

    for (size_t i = 0; i < items->n && r->a->rc == MERAK_OK; i++) {
        if (i > 0)
            merak_jinja_put(r->a, &out, between);
        merak_jinja_put(r->a, &out, merak_jinja_str(r->a, items->item[i]));
    }
    return merak_jinja_out_text(&out);
}

static struct jinja_value text_method(struct jinja_run *r, const char *name,
                                      struct jinja_text text,
                                      const struct jinja_args *args)
{
    struct jinja_value first = merak_jinja_arg(args, 0, "");

    if (strcmp(name, "strip") == 0)
        return merak_jinja_strip_args(r, text, args, true, true);
    if (strcmp(name, "lstrip") == 0)
        return merak_jinja_strip_args(r, text, args, true, false);
    if (strcmp(name, "rstrip") == 0)
        return merak_jinja_strip_args(r, text, args, false, true);
    if (strcmp(name, "split") == 0)
        return split(r, text, args);
    if (strcmp(name, "replace") == 0)
        return merak_jinja_replace(r, text, args);
    if (strcmp(name, "startswith") == 0)
        return merak_jinja_bool(has_end(r, text, first, true));
    if (strcmp(name, "endswith") == 0)
        return merak_jinja_bool(has_end(r, text, first, false));
    if (strcmp(name, "join") == 0)
        return merak_jinja_join(r, first, text);
    return merak_jinja_change_case(r, text, name[0]);
}

/* --- on dicts --------------------------------------------------------------
 */

/* Pairs, keys or values. */
struct jinja_value merak_jinja_parts(struct jinja_run *r,
                                     const struct jinja_dict *dict, char what)
{
    struct jinja_value list = merak_jinja_list(r->a), pair;

    for (size_t i = 0; i < dict->n && merak_jinja_step(r->a, 1); i++) {
        dict->pair[i].read = true;
        pair = merak_jinja_list(r->a);
        pair.list->is_tuple = true;
        merak_jinja_append(r->a, pair.list,
                           merak_jinja_of_text(dict->pair[i].key));
        merak_jinja_append(r->a, pair.list, dict->pair[i].value);
        merak_jinja_append(r->a, list.list,
                           what == 'i' ? pair
                           : what == 'k'
                               ? merak_jinja_of_text(dict->pair[i].key)
                               : dict->pair[i].value);
    }
    return list;
}

static struct jinja_value get(struct jinja_run *r,
                              const struct jinja_dict *dict,
                              const struct jinja_args *args)
{
    struct jinja_text key = merak_jinja_text_arg(r, args, 0, "get");
    const struct jinja_value *found =
        merak_jinja_find(r->a, dict, key.at, key.n);
    struct jinja_value other = merak_jinja_arg(args, 1, "default");

    if (found != NULL)
        return *found;
    return other.kind != JINJA_UNDEFINED
               ? other
               : (struct jinja_value){.kind = JINJA_NONE};
}

bool merak_jinja_is_method(struct jinja_value v, const char *name)
{
    static const char *const of_text[] = {
        "strip",    "lstrip", "rstrip", "split", "replace",    "startswith",
        "endswith", "join",   "upper",  "lower", "capitalize", "title"};
    static const char *const of_dict[] = {"get", "items", "keys", "values"};
    const char *const *names = v.kind == JINJA_TEXT ? of_text : of_dict;
    size_t n = v.kind == JINJA_TEXT   ? sizeof(of_text) / sizeof(*of_text)
               : v.kind == JINJA_DICT ? sizeof(of_dict) / sizeof(*of_dict)
                                      : 0;

    if (v.kind == JINJA_DICT && v.dict->is_namespace)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

/* --- functions -------------------------------------------------------------
 */

static struct jinja_value make_namespace(struct jinja_run *r,
                                         const struct jinja_args *args)
{
    struct jinja_value v = merak_jinja_dict(r->a);
    const struct jinja_dict *from;

    v.dict->is_namespace = true;
    for (size_t i = 0; i < args->n; i++) {
        if (args->name[i] != NULL) {
            merak_jinja_set(r->a, v.dict,
                            (struct jinja_text){args->name[i],
                                                strlen(args->name[i]), NULL, 0},
                            args->value[i]);
            continue;
        }
        from = args->value[i].kind == JINJA_DICT ? args->value[i].dict : NULL;
        if (from == NULL)
            merak_jinja_fail(r->a, "a namespace of a value that is not a dict");
        for (size_t k = 0; from != NULL && k < from->n; k++)
            merak_jinja_set(r->a, v.dict, from->pair[k].key,
                            from->pair[k].value);
    }
    return v;
}

static struct jinja_value range(struct jinja_run *r,
                                const struct jinja_args *args)
{
    struct jinja_value list = merak_jinja_list(r->a);
    int64_t from = 0, to = 0, step = 1;

    for (size_t i = 0; i < args->n; i++) {
        if (args->value[i].kind != JINJA_INT)
            merak_jinja_fail(r->a, "a range of a value that is not a number");
    }
    if (r->a->rc != MERAK_OK || args->n == 0 || args->n > 3)
        return list;
    from = args->n > 1 ? args->value[0].integer : 0;
    to = args->value[args->n > 1].integer;
    step = args->n > 2 ? args->value[2].integer : 1;
    if (step == 0 || from > 1000000 || from < -1000000 || to > 1000000 ||
        to < -1000000 || step > 1000000 || step < -1000000)
        merak_jinja_fail(r->a, "a range of more than a million, or by 0");
    for (; r->a->rc == MERAK_OK && (step > 0 ? from < to : from > to);
         from += step)
        merak_jinja_append(r->a, list.list, merak_jinja_int(from));
    return list;
}

static struct jinja_value date(struct jinja_run *r,
                               const struct jinja_args *args)
{
    struct jinja_text format = merak_jinja_text_arg(r, args, 0, "strftime_now");
    char *end = merak_jinja_alloc(r->a, format.n + 1);
    char *text = merak_jinja_alloc(r->a, 256);
    struct tm now;
    size_t n = 0;

    if (r->a->rc != MERAK_OK)
        return merak_jinja_undefined(NULL);
    memcpy(end, format.at, format.n);
    r->has_date = true;
    if (localtime_r(&r->now, &now) != NULL)
        n = strftime(text, 256, end, &now);
    if (n == 0 && format.n > 0)
        merak_jinja_fail(r->a, "the date format %.40s", end);
    return merak_jinja_text(text, n);
}

static struct jinja_value raise(struct jinja_run *r,
                                const struct jinja_args *args)
{
    struct jinja_text text =
        merak_jinja_str(r->a, merak_jinja_arg(args, 0, "message"));
    char said[160] = "";

    if (r->a->rc != MERAK_OK)
        return merak_jinja_undefined(NULL);
    memcpy(said, text.at, text.n < sizeof(said) ? text.n : sizeof(said) - 1);
    merak_jinja_one_line(said);
    r->a->rc = merak_fail(r->a->err, MERAK_ERR_FORMAT,
                          "the chat template refuses the messages: %s", said);
    return merak_jinja_undefined(NULL);
}

bool merak_jinja_is_function(const char *name)
{
    return strcmp(name, "namespace") == 0 || strcmp(name, "range") == 0 ||
           strcmp(name, "strftime_now") == 0 || strcmp(name, "dict") == 0 ||
           strcmp(name, "raise_exception") == 0;
}

static struct jinja_value function(struct jinja_run *r, const char *name,
                                   const struct jinja_args *args)
{
    struct jinja_value v;

    if (strcmp(name, "raise_exception") == 0)
        return raise(r, args);
    if (strcmp(name, "range") == 0)
        return range(r, args);
    if (strcmp(name, "strftime_now") == 0)
        return date(r, args);
    v = make_namespace(r, args);
    v.dict->is_namespace = strcmp(name, "namespace") == 0;
    return v;
}

struct jinja_value merak_jinja_call(struct jinja_run *r, struct jinja_value f,
                                    const struct jinja_args *args)
{
    if (f.kind == JINJA_FUNCTION)
        return function(r, f.name, args);
    if (f.kind == JINJA_METHOD && f.self->kind == JINJA_TEXT)
        return text_method(r, f.name, f.self->text, args);
    if (f.kind == JINJA_METHOD && strcmp(f.name, "get") == 0)
        return get(r, f.self->dict, args);
    if (f.kind == JINJA_METHOD)
        return merak_jinja_parts(r, f.self->dict, f.name[0]);
    merak_jinja_fail(r->a, "%.40s() is not known here",
                     f.name != NULL ? f.name : "a value");
    return merak_jinja_undefined(NULL);
}
