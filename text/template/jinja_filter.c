/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_filter.c - filters and tests of templates */
#include "config.h"

#include "text/template/jinja_filter.h"

#include <ctype.h>

/* --- tests -----------------------------------------------------------------
 */

bool merak_jinja_in(struct jinja_run *r, struct jinja_value a,
                    struct jinja_value b)
{
    const struct jinja_list *list;

    if (b.kind == JINJA_TEXT && a.kind == JINJA_TEXT)
        return a.text.n == 0 ||
               merak_jinja_text_find(r->a, b.text, 0, a.text) <= b.text.n;
    if (b.kind == JINJA_DICT && !b.dict->is_namespace)
        return merak_jinja_find_key(r->a, b.dict, a) != NULL;
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

/* The bits of kinds that a test holds for. */
#define BIT(kind) (1U << JINJA_##kind)

static bool has_length(struct jinja_value v)
{
    return v.kind == JINJA_TEXT || v.kind == JINJA_UNDEFINED ||
           (v.kind == JINJA_DICT && !v.dict->is_namespace) ||
           merak_jinja_has_form(v, JINJA_ROW) ||
           merak_jinja_has_form(v, JINJA_TUPLE) ||
           merak_jinja_has_form(v, JINJA_RANGE);
}

/* Tests without an argument. */
static bool is_kind(const char *name, struct jinja_value v, bool *known)
{
    const struct {
        const char *name;
        unsigned kinds;
        bool also; /* where the kind is one of those */
    } row[] = {
        {"defined", ~BIT(UNDEFINED), true},
        {"undefined", BIT(UNDEFINED), true},
        {"none", BIT(NONE), true},
        {"string", BIT(TEXT), true},
        {"mapping", BIT(DICT), !(v.kind == JINJA_DICT && v.dict->is_namespace)},
        {"iterable", BIT(TEXT) | BIT(LIST) | BIT(UNDEFINED) | BIT(DICT),
         v.kind == JINJA_LIST || has_length(v)},
        {"sequence", ~0U, has_length(v)},
        {"number", BIT(INT) | BIT(REAL) | BIT(BOOL), true},
        {"integer", BIT(INT), true},
        {"float", BIT(REAL), true},
        {"boolean", BIT(BOOL), true},
        {"true", BIT(BOOL), v.kind == JINJA_BOOL && v.truth},
        {"false", BIT(BOOL), v.kind == JINJA_BOOL && !v.truth},
        {"callable", BIT(MACRO) | BIT(METHOD) | BIT(FUNCTION) | BIT(LOOP),
         true},
        {"escaped", BIT(TEXT), v.kind == JINJA_TEXT && v.text.is_safe},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        if (strcmp(row[i].name, name) == 0)
            return (row[i].kinds >> v.kind & 1) != 0 && row[i].also;
    }
    *known = false;
    return false;
}

/* Are there letters, and all of this case? */
static bool has_case(struct jinja_run *r, struct jinja_value v,
                     int (*other)(int))
{
    struct jinja_text text = merak_jinja_str(r->a, v);
    bool all = false;

    for (size_t i = 0; i < text.n && merak_jinja_step(r->a, 1); i++) {
        if ((unsigned char)text.at[i] >= 0x80)
            merak_jinja_fail(r->a, "upper or lower case beyond ASCII");
        if (other((unsigned char)text.at[i]))
            return false;
        all = all || isalpha((unsigned char)text.at[i]);
    }
    return all;
}

static bool divides(struct jinja_run *r, struct jinja_value v,
                    struct jinja_value by)
{
    struct jinja_value rest = merak_jinja_int(0);

    if (!merak_jinja_arithmetic(r, "%", v, by, &rest))
        merak_jinja_fail(r->a, "a remainder of values that are not numbers");
    return !merak_jinja_truth(rest);
}

static bool is_same_object(struct jinja_value a, struct jinja_value b)
{
    return a.kind == b.kind && (a.kind == JINJA_NONE ||
                                (a.kind == JINJA_BOOL && a.truth == b.truth) ||
                                (a.kind == JINJA_LIST && a.list == b.list) ||
                                (a.kind == JINJA_DICT && a.dict == b.dict));
}

/* The sign of a test that compares, or NULL. */
static const char *test_sign(const char *name)
{
    static const struct {
        const char *name, *sign;
    } row[] = {{"eq", "=="},         {"equalto", "=="}, {"==", "=="},
               {"ne", "!="},         {"!=", "!="},      {"lt", "<"},
               {"lessthan", "<"},    {"<", "<"},        {"le", "<="},
               {"<=", "<="},         {"gt", ">"},       {">", ">"},
               {"greaterthan", ">"}, {"ge", ">="},      {">=", ">="},
               {"in", "in"}};

    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        if (strcmp(row[i].name, name) == 0)
            return row[i].sign;
    }
    return NULL;
}

bool merak_jinja_test(struct jinja_run *r, const char *name,
                      struct jinja_value v, const struct jinja_args *args)
{
    bool known = true, is = is_kind(name, v, &known);
    struct jinja_value other = merak_jinja_arg(args, 0, "other");

    if (known)
        return is;
    if (test_sign(name) != NULL)
        return merak_jinja_compare(r, test_sign(name), v, other);
    if (strcmp(name, "odd") == 0 || strcmp(name, "even") == 0)
        return divides(r, v, merak_jinja_int(2)) == (name[0] == 'e');
    if (strcmp(name, "divisibleby") == 0)
        return divides(r, v, other);
    if (strcmp(name, "upper") == 0)
        return has_case(r, v, islower);
    if (strcmp(name, "lower") == 0)
        return has_case(r, v, isupper);
    if (strcmp(name, "sameas") == 0)
        return is_same_object(v, other);
    merak_jinja_fail(r->a, "the test \"is %.40s\" is not known here", name);
    return false;
}

/* --- filters ---------------------------------------------------------------
 */

static struct jinja_value or_else(struct jinja_run *r, struct jinja_value v,
                                  const struct jinja_args *args)
{
    struct jinja_value other = merak_jinja_arg(args, 0, "default_value");
    bool falsy = merak_jinja_truth(merak_jinja_arg(args, 1, "boolean"));

    (void)r;
    if (v.kind != JINJA_UNDEFINED && (!falsy || merak_jinja_truth(v)))
        return v;
    return merak_jinja_has_arg(args, 0, "default_value")
               ? other
               : merak_jinja_text("", 0);
}

static struct jinja_value string(struct jinja_run *r, struct jinja_value v,
                                 const struct jinja_args *args)
{
    (void)args;
    return merak_jinja_of_text(merak_jinja_str(r->a, v));
}

static struct jinja_value safe(struct jinja_run *r, struct jinja_value v,
                               const struct jinja_args *args)
{
    v = string(r, v, args);
    v.text.is_safe = true;
    return v;
}

static struct jinja_value escape(struct jinja_run *r, struct jinja_value v,
                                 const struct jinja_args *args)
{
    (void)args;
    return merak_jinja_of_text(merak_jinja_escape(r, v));
}

/* The filter, unlike the method, forgets that a text is safe. */
static struct jinja_value replace(struct jinja_run *r, struct jinja_value v,
                                  const struct jinja_args *args)
{
    v = string(r, v, args);
    v.text.is_safe = false;
    return merak_jinja_replace(r, v, args);
}

static struct jinja_value format(struct jinja_run *r, struct jinja_value v,
                                 const struct jinja_args *args)
{
    return merak_jinja_percent(r, merak_jinja_str(r->a, v), args);
}

static struct jinja_value attr(struct jinja_run *r, struct jinja_value v,
                               const struct jinja_args *args)
{
    const char *name =
        merak_jinja_c_text(r, merak_jinja_text_arg(r, args, 0, "attr"));

    /* Only attributes: a dict's keys are none. */
    if (v.kind == JINJA_DICT && !v.dict->is_namespace &&
        merak_jinja_row(merak_jinja_dict_methods, name) == NULL)
        return merak_jinja_undefined(name);
    return merak_jinja_attribute(r, v, name);
}

/* The indent of tojson, or -1. */
static int read_indent(struct jinja_run *r, struct jinja_value v)
{
    if (v.kind == JINJA_UNDEFINED || v.kind == JINJA_NONE)
        return -1;
    if (v.kind != JINJA_INT || v.integer < 0 || v.integer > 16)
        merak_jinja_fail(r->a, "tojson with an indent of other than 0 to 16 "
                               "blanks");
    return (int)v.integer;
}

/* As transformers' own filter. */
static struct jinja_value to_json(struct jinja_run *r, struct jinja_value v,
                                  const struct jinja_args *args)
{
    struct jinja_value signs = merak_jinja_arg(args, 2, "separators");
    struct jinja_json_style how = {
        .ascii = merak_jinja_truth(merak_jinja_arg(args, 0, "ensure_ascii")),
        .indent = read_indent(r, merak_jinja_arg(args, 1, "indent")),
        .sorted = merak_jinja_truth(merak_jinja_arg(args, 3, "sort_keys")),
        .key = ": "};

    how.item = how.indent < 0 ? ", " : ",";
    if (signs.kind == JINJA_LIST && signs.list->n == 2 &&
        signs.list->item[0].kind == JINJA_TEXT &&
        signs.list->item[1].kind == JINJA_TEXT) {
        how.item = merak_jinja_c_text(r, signs.list->item[0].text);
        how.key = merak_jinja_c_text(r, signs.list->item[1].text);
    } else if (signs.kind != JINJA_UNDEFINED && signs.kind != JINJA_NONE) {
        merak_jinja_fail(r->a, "tojson with separators that are not two "
                               "strings");
    }
    return merak_jinja_of_text(merak_jinja_json(r->a, v, &how));
}

static const struct jinja_row filters[] = {
    {"abs", merak_jinja_abs},
    {"attr", attr},
    {"batch", merak_jinja_batch},
    {"capitalize", merak_jinja_capitalize},
    {"center", merak_jinja_center},
    {"count", merak_jinja_length},
    {"d", or_else},
    {"default", or_else},
    {"dictsort", merak_jinja_dictsort},
    {"e", escape},
    {"escape", escape},
    {"first", merak_jinja_first},
    {"float", merak_jinja_to_float},
    {"format", format},
    {"groupby", merak_jinja_groupby},
    {"indent", merak_jinja_indent},
    {"int", merak_jinja_to_int},
    {"items", merak_jinja_items_of},
    {"join", merak_jinja_join},
    {"last", merak_jinja_last},
    {"length", merak_jinja_length},
    {"list", merak_jinja_as_list},
    {"lower", merak_jinja_lower},
    {"map", merak_jinja_map},
    {"max", merak_jinja_max},
    {"min", merak_jinja_min},
    {"reject", merak_jinja_reject},
    {"rejectattr", merak_jinja_rejectattr},
    {"replace", replace},
    {"reverse", merak_jinja_reverse},
    {"round", merak_jinja_round},
    {"safe", safe},
    {"select", merak_jinja_select},
    {"selectattr", merak_jinja_selectattr},
    {"sort", merak_jinja_sort},
    {"string", string},
    {"sum", merak_jinja_sum},
    {"title", merak_jinja_title},
    {"tojson", to_json},
    {"trim", merak_jinja_strip_both},
    {"truncate", merak_jinja_truncate},
    {"unique", merak_jinja_unique},
    {"upper", merak_jinja_upper},
    {"wordcount", merak_jinja_wordcount},
    {NULL, NULL},
};

/* A level: map() applies filters, and one of them may be map(). */
struct jinja_value merak_jinja_filter(struct jinja_run *r, const char *name,
                                      struct jinja_value v,
                                      const struct jinja_args *args)
{
    jinja_function *call = merak_jinja_row(filters, name);

    if (call == NULL)
        merak_jinja_fail(r->a, "the filter %.40s is not known here", name);
    if (merak_jinja_descend(r->a))
        v = call(r, v, args);
    merak_jinja_ascend(r->a);
    return v;
}
