/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_filter.c - filters and tests of templates */
#include "config.h"

#include "io/template/jinja_impl.h"

#include <strings.h>

/* --- tests -----------------------------------------------------------------
 */

bool merak_jinja_in(struct jinja_run *r, struct jinja_value a,
                    struct jinja_value b)
{
    const struct jinja_list *list;

    if (b.kind == JINJA_TEXT && a.kind == JINJA_TEXT)
        return a.text.n == 0 ||
               merak_jinja_text_find(r->a, b.text, 0, a.text) <= b.text.n;
    if (b.kind == JINJA_DICT)
        return a.kind == JINJA_TEXT &&
               merak_jinja_find(r->a, b.dict, a.text.at, a.text.n) != NULL;
    if (b.kind == JINJA_TEXT) {
        merak_jinja_fail(r->a, "a value that is not a string, in a string");
        return false;
    }
    list = merak_jinja_items(r->a, b);
    for (size_t i = 0; i < list->n; i++) {
        if (merak_jinja_same(r->a, a, list->item[i]))
            return true;
    }
    return false;
}

static bool is_kind(const char *name, struct jinja_value v, bool *known)
{
    enum jinja_kind k = v.kind;
    const struct {
        const char *name;
        bool is;
    } row[] = {
        {"defined", k != JINJA_UNDEFINED},
        {"undefined", k == JINJA_UNDEFINED},
        {"none", k == JINJA_NONE},
        {"string", k == JINJA_TEXT},
        {"mapping", k == JINJA_DICT && !v.dict->is_namespace},
        {"iterable", k == JINJA_TEXT || k == JINJA_LIST ||
                         k == JINJA_UNDEFINED ||
                         (k == JINJA_DICT && !v.dict->is_namespace)},
        {"sequence", k == JINJA_TEXT || k == JINJA_LIST ||
                         k == JINJA_UNDEFINED ||
                         (k == JINJA_DICT && !v.dict->is_namespace)},
        {"number", k == JINJA_INT || k == JINJA_REAL || k == JINJA_BOOL},
        {"integer", k == JINJA_INT},
        {"float", k == JINJA_REAL},
        {"boolean", k == JINJA_BOOL},
        {"true", k == JINJA_BOOL && v.truth},
        {"false", k == JINJA_BOOL && !v.truth},
        {"odd", k == JINJA_INT && v.integer % 2 != 0},
        {"even", k == JINJA_INT && v.integer % 2 == 0},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        if (strcmp(row[i].name, name) == 0)
            return row[i].is;
    }
    *known = false;
    return false;
}

bool merak_jinja_test(struct jinja_run *r, const char *name,
                      struct jinja_value v, const struct jinja_args *args)
{
    bool known = true, is = is_kind(name, v, &known);
    struct jinja_value other = merak_jinja_arg(args, 0, "other");

    if (known)
        return is;
    if (strcmp(name, "equalto") == 0 || strcmp(name, "eq") == 0)
        return merak_jinja_same(r->a, v, other);
    if (strcmp(name, "ne") == 0)
        return !merak_jinja_same(r->a, v, other);
    if (strcmp(name, "in") == 0)
        return merak_jinja_in(r, v, other);
    merak_jinja_fail(r->a, "the test \"is %.40s\" is not known here", name);
    return false;
}

/* --- filters ---------------------------------------------------------------
 */

/* What `map`, `select` etc. apply to each item: a field, a filter or a test by
 * name, with the arguments after it. */
static struct jinja_args behind(const struct jinja_args *args, size_t n)
{
    n = n < args->n ? n : args->n;
    return (struct jinja_args){args->value + n, args->name + n, args->n - n};
}

/* An argument that is a name, terminated by 0. */
static const char *name_arg(struct jinja_run *r, const struct jinja_args *args,
                            size_t i, const char *of)
{
    struct jinja_text text = merak_jinja_text_arg(r, args, i, of);
    char *name = merak_jinja_alloc(r->a, text.n + 1);

    if (r->a->rc == MERAK_OK)
        memcpy(name, text.at, text.n);
    return name;
}

static struct jinja_value field(struct jinja_run *r, struct jinja_value v,
                                const char *name)
{
    const struct jinja_value *found = NULL;

    if (v.kind == JINJA_DICT)
        found = merak_jinja_find(r->a, v.dict, name, strlen(name));
    return found != NULL ? *found : merak_jinja_undefined(name);
}

static struct jinja_value map(struct jinja_run *r, struct jinja_value v,
                              const struct jinja_args *args)
{
    struct jinja_value list = merak_jinja_list(r->a);
    struct jinja_value by = merak_jinja_arg(args, SIZE_MAX, "attribute");
    const struct jinja_list *items = merak_jinja_items(r->a, v);
    const struct jinja_args rest = behind(args, 1);
    const char *name;

    if (by.kind == JINJA_TEXT)
        name = name_arg(r, &(struct jinja_args){&by, &(const char *){NULL}, 1},
                        0, "map");
    else
        name = name_arg(r, args, 0, "map");
    for (size_t i = 0; i < items->n && merak_jinja_step(r->a, 1); i++)
        merak_jinja_append(
            r->a, list.list,
            by.kind == JINJA_TEXT
                ? field(r, items->item[i], name)
                : merak_jinja_filter(r, name, items->item[i], &rest));
    return list;
}

/* select, reject, selectattr and rejectattr. */
static struct jinja_value pick(struct jinja_run *r, const char *filter,
                               struct jinja_value v,
                               const struct jinja_args *args)
{
    struct jinja_value list = merak_jinja_list(r->a);
    const struct jinja_list *items = merak_jinja_items(r->a, v);
    bool by_field = strlen(filter) > 6, wanted = filter[0] == 's';
    struct jinja_args rest = behind(args, by_field);
    const char *of = by_field ? name_arg(r, args, 0, filter) : NULL;
    const char *test = rest.n > 0 ? name_arg(r, &rest, 0, filter) : NULL;
    const struct jinja_args test_args = behind(&rest, 1);

    for (size_t i = 0; i < items->n && merak_jinja_step(r->a, 1); i++) {
        struct jinja_value x =
            by_field ? field(r, items->item[i], of) : items->item[i];
        bool is = test != NULL ? merak_jinja_test(r, test, x, &test_args)
                               : merak_jinja_truth(x);

        if (is == wanted)
            merak_jinja_append(r->a, list.list, items->item[i]);
    }
    return list;
}

static struct jinja_value length(struct jinja_run *r, struct jinja_value v)
{
    size_t n = 0;

    if (v.kind == JINJA_DICT)
        n = v.dict->n;
    else if (v.kind == JINJA_LIST || v.kind == JINJA_TEXT)
        n = merak_jinja_items(r->a, v)->n;
    else if (v.kind != JINJA_UNDEFINED)
        merak_jinja_fail(r->a, "the length of a value that has none");
    return merak_jinja_int((int64_t)n);
}

static struct jinja_value or_else(struct jinja_value v,
                                  const struct jinja_args *args)
{
    struct jinja_value other = merak_jinja_arg(args, 0, "default_value");
    bool falsy = merak_jinja_truth(merak_jinja_arg(args, 1, "boolean"));

    if (v.kind != JINJA_UNDEFINED && (!falsy || merak_jinja_truth(v)))
        return v;
    return other.kind != JINJA_UNDEFINED ? other : merak_jinja_text("", 0);
}

static struct jinja_value end_of(struct jinja_run *r, struct jinja_value v,
                                 bool last)
{
    const struct jinja_list *items = merak_jinja_items(r->a, v);

    if (items->n == 0)
        return merak_jinja_undefined(last ? "last" : "first");
    return items->item[last ? items->n - 1 : 0];
}

static struct jinja_value as_list(struct jinja_run *r, struct jinja_value v,
                                  bool reversed)
{
    const struct jinja_list *items = merak_jinja_items(r->a, v);
    struct jinja_value list = merak_jinja_list(r->a);

    for (size_t i = 0; i < items->n; i++)
        merak_jinja_append(r->a, list.list,
                           items->item[reversed ? items->n - 1 - i : i]);
    return list;
}

static struct jinja_value text_filter(struct jinja_run *r, const char *name,
                                      struct jinja_value v,
                                      const struct jinja_args *args)
{
    struct jinja_text text = merak_jinja_str(r->a, v);

    if (strcmp(name, "trim") == 0)
        return merak_jinja_strip_args(r, text, args, true, true);
    if (strcmp(name, "replace") == 0)
        return merak_jinja_replace(r, text, args);
    if (strcmp(name, "string") == 0 || strcmp(name, "safe") == 0)
        return merak_jinja_of_text(text);
    if (strcmp(name, "upper") == 0 || strcmp(name, "lower") == 0 ||
        strcmp(name, "capitalize") == 0 || strcmp(name, "title") == 0)
        return merak_jinja_change_case(r, text, name[0]);
    merak_jinja_fail(r->a, "the filter %.40s is not known here", name);
    return v;
}

/* With an indent, and characters beyond ASCII as they are. */
static struct jinja_value to_json(struct jinja_run *r, struct jinja_value v,
                                  const struct jinja_args *args)
{
    struct jinja_value indent = merak_jinja_arg(args, SIZE_MAX, "indent");
    struct jinja_value ascii = merak_jinja_arg(args, SIZE_MAX, "ensure_ascii");
    size_t known =
        (indent.kind != JINJA_UNDEFINED) + (ascii.kind != JINJA_UNDEFINED);

    if (args->n != known || merak_jinja_truth(ascii) ||
        (indent.kind == JINJA_INT &&
         (indent.integer < 1 || indent.integer > 16)))
        merak_jinja_fail(r->a, "tojson with other arguments than indent and "
                               "ensure_ascii=False");
    return merak_jinja_of_text(merak_jinja_json(
        r->a, v, indent.kind == JINJA_INT ? (int)indent.integer : 0));
}

/* By keys, without regard to case; equal ones keep their order. */
static bool is_behind(struct jinja_text x, struct jinja_text y)
{
    size_t n = x.n < y.n ? x.n : y.n;
    int by = n > 0 ? strncasecmp(x.at, y.at, n) : 0;

    return by != 0 ? by > 0 : x.n > y.n;
}

static struct jinja_value sorted(struct jinja_run *r, struct jinja_value v)
{
    struct jinja_value pairs = merak_jinja_list(r->a);
    struct jinja_list *list;

    if (v.kind != JINJA_DICT) {
        merak_jinja_fail(r->a, "dictsort of a value that is not a dict");
        return pairs;
    }
    pairs = merak_jinja_parts(r, v.dict, 'i');
    list = pairs.list;
    for (size_t i = 1; i < list->n; i++) {
        struct jinja_value one = list->item[i];
        size_t k = i;

        while (k > 0 &&
               merak_jinja_step_bytes(r->a, one.list->item[0].text.n) &&
               is_behind(list->item[k - 1].list->item[0].text,
                         one.list->item[0].text)) {
            list->item[k] = list->item[k - 1];
            k--;
        }
        list->item[k] = one;
    }
    return pairs;
}

static struct jinja_value apply(struct jinja_run *r, const char *name,
                                struct jinja_value v,
                                const struct jinja_args *args)
{
    struct jinja_value by;

    if (strcmp(name, "length") == 0 || strcmp(name, "count") == 0)
        return length(r, v);
    if (strcmp(name, "default") == 0 || strcmp(name, "d") == 0)
        return or_else(v, args);
    if (strcmp(name, "list") == 0 || strcmp(name, "reverse") == 0)
        return as_list(r, v, name[0] == 'r');
    if (strcmp(name, "first") == 0 || strcmp(name, "last") == 0)
        return end_of(r, v, name[0] == 'l');
    if (strcmp(name, "items") == 0 && v.kind == JINJA_DICT)
        return merak_jinja_parts(r, v.dict, 'i');
    if (strcmp(name, "map") == 0)
        return map(r, v, args);
    if (strcmp(name, "select") == 0 || strcmp(name, "reject") == 0 ||
        strcmp(name, "selectattr") == 0 || strcmp(name, "rejectattr") == 0)
        return pick(r, name, v, args);
    if (strcmp(name, "tojson") == 0)
        return to_json(r, v, args);
    if (strcmp(name, "dictsort") == 0 && args->n == 0)
        return sorted(r, v);
    if (strcmp(name, "join") == 0) {
        by = merak_jinja_arg(args, 0, "d");
        return merak_jinja_join(r, v,
                                by.kind == JINJA_TEXT
                                    ? by.text
                                    : (struct jinja_text){"", 0, NULL, 0});
    }
    return text_filter(r, name, v, args);
}

/* A level: map() applies filters, and one of them may be map(). */
struct jinja_value merak_jinja_filter(struct jinja_run *r, const char *name,
                                      struct jinja_value v,
                                      const struct jinja_args *args)
{
    if (merak_jinja_descend(r->a))
        v = apply(r, name, v, args);
    merak_jinja_ascend(r->a);
    return v;
}
