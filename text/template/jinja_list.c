/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_list.c - filters of lists, and methods of lists and dicts */
#include "config.h"

#include "text/template/jinja_filter.h"

#include <ctype.h>
#include <stdlib.h>

/* --- attributes ------------------------------------------------------------
 */

struct jinja_value merak_jinja_path(struct jinja_run *r, struct jinja_value v,
                                    struct jinja_value path)
{
    const char *at, *dot;

    if (path.kind != JINJA_TEXT)
        return merak_jinja_item(r, v, path);
    at = merak_jinja_c_text(r, path.text);
    for (; at != NULL && r->a->rc == MERAK_OK;
         at = dot != NULL ? dot + 1 : NULL) {
        struct jinja_value part;

        dot = strchr(at, '.');
        part =
            merak_jinja_text(at, dot != NULL ? (size_t)(dot - at) : strlen(at));
        if (part.text.n > 0 && strspn(at, "0123456789") == part.text.n)
            part = merak_jinja_int(strtoll(at, NULL, 10));
        /* As environment.getitem(): the item first. */
        v = merak_jinja_item(r, v, part);
    }
    return v;
}

/* --- on each item ----------------------------------------------------------
 */

/* What `map`, `select` etc. apply to each item: a filter or a test by name,
 * with the arguments after it. */
static struct jinja_args behind(const struct jinja_args *args, size_t n)
{
    if (args->n == 0)
        return *args; /* of no array: not even 0 may be added to NULL */
    n = n < args->n ? n : args->n;
    return (struct jinja_args){args->value + n, args->name + n, args->n - n};
}

/* Of a value that is false jinja2's generators do not even ask for items. */
static const struct jinja_list *items_of(struct jinja_run *r,
                                         struct jinja_value v)
{
    return merak_jinja_items(
        r->a, merak_jinja_truth(v) ? v : merak_jinja_undefined(NULL));
}

struct jinja_value merak_jinja_map(struct jinja_run *r, struct jinja_value v,
                                   const struct jinja_args *args)
{
    struct jinja_value list = merak_jinja_formed(r->a, JINJA_STREAM), x;
    struct jinja_value by = merak_jinja_arg(args, SIZE_MAX, "attribute");
    struct jinja_value other = merak_jinja_arg(args, SIZE_MAX, "default");
    const struct jinja_list *items = items_of(r, v);
    const struct jinja_args rest = behind(args, 1);
    const char *name = NULL;

    if (by.kind == JINJA_UNDEFINED)
        name = merak_jinja_c_text(r, merak_jinja_text_arg(r, args, 0, "map"));
    for (size_t i = 0; i < items->n && merak_jinja_step(r->a, 1); i++) {
        x = name != NULL ? merak_jinja_filter(r, name, items->item[i], &rest)
                         : merak_jinja_path(r, items->item[i], by);
        if (name == NULL && x.kind == JINJA_UNDEFINED &&
            other.kind != JINJA_UNDEFINED)
            x = other;
        merak_jinja_append(r->a, list.list, x);
    }
    return list;
}

static struct jinja_value pick(struct jinja_run *r, struct jinja_value v,
                               const struct jinja_args *args, bool wanted,
                               bool by_field)
{
    struct jinja_value list = merak_jinja_formed(r->a, JINJA_STREAM);
    const struct jinja_list *items = items_of(r, v);
    struct jinja_args rest = behind(args, by_field);
    const struct jinja_args test_args = behind(&rest, 1);
    const char *test = NULL;

    if (by_field && args->n == 0)
        merak_jinja_fail(r->a, "selectattr without an attribute");
    if (rest.n > 0)
        test = merak_jinja_c_text(r, merak_jinja_text_arg(r, &rest, 0, "test"));
    for (size_t i = 0; i < items->n && merak_jinja_step(r->a, 1); i++) {
        struct jinja_value x =
            by_field ? merak_jinja_path(r, items->item[i], args->value[0])
                     : items->item[i];
        bool is = test != NULL ? merak_jinja_test(r, test, x, &test_args)
                               : merak_jinja_truth(x);

        if (is == wanted)
            merak_jinja_append(r->a, list.list, items->item[i]);
    }
    return list;
}

struct jinja_value merak_jinja_select(struct jinja_run *r, struct jinja_value v,
                                      const struct jinja_args *args)
{
    return pick(r, v, args, true, false);
}

struct jinja_value merak_jinja_reject(struct jinja_run *r, struct jinja_value v,
                                      const struct jinja_args *args)
{
    return pick(r, v, args, false, false);
}

struct jinja_value merak_jinja_selectattr(struct jinja_run *r,
                                          struct jinja_value v,
                                          const struct jinja_args *args)
{
    return pick(r, v, args, true, true);
}

struct jinja_value merak_jinja_rejectattr(struct jinja_run *r,
                                          struct jinja_value v,
                                          const struct jinja_args *args)
{
    return pick(r, v, args, false, true);
}

/* --- parts -----------------------------------------------------------------
 */

/* One item of a stream leaves the others in it. */
struct jinja_value merak_jinja_first(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    struct jinja_list *list =
        merak_jinja_has_form(v, JINJA_STREAM) ? v.list : NULL;
    const struct jinja_list *items;

    (void)args;
    if (list != NULL && list->n > 0) {
        list->n--;
        list->room = 0;
        return *list->item++;
    }
    items = merak_jinja_items(r->a, v);
    return items->n > 0 ? items->item[0] : merak_jinja_undefined("first");
}

struct jinja_value merak_jinja_last(struct jinja_run *r, struct jinja_value v,
                                    const struct jinja_args *args)
{
    const struct jinja_list *items;

    (void)args;
    if (merak_jinja_has_form(v, JINJA_STREAM))
        merak_jinja_fail(r->a, "the last item of a generator");
    items = merak_jinja_items(r->a, v);
    return items->n > 0 ? items->item[items->n - 1]
                        : merak_jinja_undefined("last");
}

static struct jinja_value copy(struct jinja_run *r, struct jinja_value v,
                               enum jinja_form form, bool reversed)
{
    const struct jinja_list *items = merak_jinja_items(r->a, v);
    struct jinja_value list = merak_jinja_formed(r->a, form);

    for (size_t i = 0; i < items->n; i++)
        merak_jinja_append(r->a, list.list,
                           items->item[reversed ? items->n - 1 - i : i]);
    return list;
}

struct jinja_value merak_jinja_as_list(struct jinja_run *r,
                                       struct jinja_value v,
                                       const struct jinja_args *args)
{
    (void)args;
    return copy(r, v, JINJA_ROW, false);
}

struct jinja_value merak_jinja_reverse(struct jinja_run *r,
                                       struct jinja_value v,
                                       const struct jinja_args *args)
{
    (void)args;
    if (v.kind == JINJA_TEXT)
        return merak_jinja_join_with(r, copy(r, v, JINJA_ROW, true),
                                     merak_jinja_text("", 0).text);
    return copy(r, v, JINJA_STREAM, true);
}

struct jinja_value merak_jinja_length(struct jinja_run *r, struct jinja_value v,
                                      const struct jinja_args *args)
{
    size_t n = 0;

    (void)args;
    if (v.kind == JINJA_DICT && !v.dict->is_namespace)
        n = v.dict->n;
    else if (v.kind == JINJA_TEXT ||
             (v.kind == JINJA_LIST && v.list->form != JINJA_STREAM))
        n = merak_jinja_items(r->a, v)->n;
    else if (v.kind != JINJA_UNDEFINED)
        merak_jinja_fail(r->a, "the length of a value that has none");
    return merak_jinja_int((int64_t)n);
}

/* Lists of n items; the last is filled with a value, if there is one. */
struct jinja_value merak_jinja_batch(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    struct jinja_value all = merak_jinja_formed(r->a, JINJA_STREAM);
    struct jinja_value fill = merak_jinja_arg(args, 1, "fill_with");
    int64_t n = merak_jinja_int_arg(r, args, 0, "linecount", 0);
    const struct jinja_list *items = merak_jinja_items(r->a, v);
    struct jinja_value one = {.kind = JINJA_UNDEFINED};

    if (n < 1 || n > 1000000)
        merak_jinja_fail(r->a, "batches of less than 1, or a million");
    for (size_t i = 0; i < items->n && merak_jinja_step(r->a, 1); i++) {
        if (i % (size_t)n == 0) {
            one = merak_jinja_list(r->a);
            merak_jinja_append(r->a, all.list, one);
        }
        merak_jinja_append(r->a, one.list, items->item[i]);
    }
    while (one.kind == JINJA_LIST && one.list->n < (size_t)n &&
           fill.kind != JINJA_UNDEFINED && fill.kind != JINJA_NONE &&
           merak_jinja_step(r->a, 1))
        merak_jinja_append(r->a, one.list, fill);
    return all;
}

struct jinja_value merak_jinja_join(struct jinja_run *r, struct jinja_value v,
                                    const struct jinja_args *args)
{
    struct jinja_value between = merak_jinja_arg(args, 0, "d");
    struct jinja_value by = merak_jinja_arg(args, 1, "attribute");
    struct jinja_text text = {"", 0, NULL, 0, false};

    if (by.kind != JINJA_UNDEFINED && by.kind != JINJA_NONE)
        v = merak_jinja_map(
            r, v, &(struct jinja_args){&by, &(const char *){"attribute"}, 1});
    if (between.kind != JINJA_UNDEFINED)
        text = merak_jinja_str(r->a, between);
    text.is_safe = false;
    return merak_jinja_join_with(r, v, text);
}

/* --- methods ---------------------------------------------------------------
 */

static struct jinja_value list_index(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    const struct jinja_value what = merak_jinja_arg(args, 0, "");

    for (size_t i = 0; args->n == 1 && i < v.list->n; i++) {
        if (merak_jinja_same(r->a, v.list->item[i], what))
            return merak_jinja_int((int64_t)i);
    }
    merak_jinja_fail(r->a, "index() of a value that is not in the list");
    return merak_jinja_int(0);
}

static struct jinja_value list_count(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    const struct jinja_value what = merak_jinja_arg(args, 0, "");
    int64_t n = 0;

    for (size_t i = 0; args->n == 1 && i < v.list->n; i++)
        n += merak_jinja_same(r->a, v.list->item[i], what);
    return merak_jinja_int(n);
}

const struct jinja_row merak_jinja_list_methods[] = {
    {"index", list_index},
    {"count", list_count},
    {NULL, NULL},
};

struct jinja_value merak_jinja_parts(struct jinja_run *r,
                                     const struct jinja_dict *dict, char what)
{
    struct jinja_value list = merak_jinja_formed(r->a, JINJA_VIEW), pair;

    for (size_t i = 0; i < dict->n && merak_jinja_step(r->a, 1); i++) {
        dict->pair[i].read = true;
        pair = merak_jinja_formed(r->a, JINJA_TUPLE);
        merak_jinja_append(r->a, pair.list, dict->pair[i].key);
        merak_jinja_append(r->a, pair.list, dict->pair[i].value);
        merak_jinja_append(r->a, list.list,
                           what == 'i'   ? pair
                           : what == 'k' ? dict->pair[i].key
                                         : dict->pair[i].value);
    }
    return list;
}

static struct jinja_value items_method(struct jinja_run *r,
                                       struct jinja_value v,
                                       const struct jinja_args *args)
{
    (void)args;
    return merak_jinja_parts(r, v.dict, 'i');
}

static struct jinja_value keys(struct jinja_run *r, struct jinja_value v,
                               const struct jinja_args *args)
{
    (void)args;
    return merak_jinja_parts(r, v.dict, 'k');
}

static struct jinja_value values(struct jinja_run *r, struct jinja_value v,
                                 const struct jinja_args *args)
{
    (void)args;
    return merak_jinja_parts(r, v.dict, 'v');
}

static struct jinja_value get(struct jinja_run *r, struct jinja_value v,
                              const struct jinja_args *args)
{
    const struct jinja_value *found = NULL;

    if (args->n < 1 || args->n > 2 || args->name[0] != NULL)
        merak_jinja_fail(r->a, "get() without a key");
    else
        found = merak_jinja_find_key(r->a, v.dict, args->value[0]);
    if (found != NULL)
        return *found;
    return args->n > 1 ? args->value[1]
                       : (struct jinja_value){.kind = JINJA_NONE};
}

const struct jinja_row merak_jinja_dict_methods[] = {
    {"get", get}, {"items", items_method}, {"keys", keys}, {"values", values},
    {NULL, NULL},
};

/* The filter: a generator, and empty for what is undefined. */
struct jinja_value merak_jinja_items_of(struct jinja_run *r,
                                        struct jinja_value v,
                                        const struct jinja_args *args)
{
    struct jinja_value list = merak_jinja_formed(r->a, JINJA_STREAM);

    (void)args;
    if (v.kind == JINJA_DICT && !v.dict->is_namespace) {
        list = merak_jinja_parts(r, v.dict, 'i');
        list.list->form = JINJA_STREAM;
    } else if (v.kind != JINJA_UNDEFINED) {
        merak_jinja_fail(r->a, "the items of a value that is not a dict");
    }
    return list;
}
