/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_sort.c - filters of templates that compare items */
#include "config.h"

#include "text/template/jinja_filter.h"

#include <strings.h>

static int order_texts(struct jinja_run *r, struct jinja_text x,
                       struct jinja_text y)
{
    size_t n = x.n < y.n ? x.n : y.n;
    int by =
        n > 0 && merak_jinja_step_bytes(r->a, n) ? memcmp(x.at, y.at, n) : 0;

    return by != 0 ? (by > 0) - (by < 0) : (x.n > y.n) - (x.n < y.n);
}

static int order_lists(struct jinja_run *r, const struct jinja_list *x,
                       const struct jinja_list *y)
{
    size_t i = 0;

    while (i < x->n && i < y->n &&
           merak_jinja_same(r->a, x->item[i], y->item[i]))
        i++;
    if (r->a->rc == MERAK_OK && i < x->n && i < y->n)
        return merak_jinja_order(r, x->item[i], y->item[i]);
    return (x->n > y->n) - (x->n < y->n);
}

int merak_jinja_order(struct jinja_run *r, struct jinja_value x,
                      struct jinja_value y)
{
    int64_t i, k;
    double a, b;
    int by = 0;

    if (merak_jinja_is_whole(x, &i) && merak_jinja_is_whole(y, &k))
        return (i > k) - (i < k);
    if (merak_jinja_is_number(x, &a) && merak_jinja_is_number(y, &b))
        return (a > b) - (a < b);
    if (x.kind == JINJA_TEXT && y.kind == JINJA_TEXT)
        return order_texts(r, x.text, y.text);
    if (x.kind == JINJA_LIST && y.kind == JINJA_LIST &&
        x.list->form == y.list->form && x.list->form <= JINJA_TUPLE &&
        merak_jinja_descend(r->a)) {
        by = order_lists(r, x.list, y.list);
        merak_jinja_ascend(r->a);
        return by;
    }
    merak_jinja_fail(r->a, "a comparison of values without an order");
    return 0;
}

/* What an item is compared by: an attribute, and without regard to case. */
struct by {
    struct jinja_value attribute;
    bool exact;
};

static struct jinja_value key_of(struct jinja_run *r, struct jinja_value v,
                                 const struct by *by)
{
    if (by->attribute.kind != JINJA_UNDEFINED &&
        by->attribute.kind != JINJA_NONE)
        v = merak_jinja_path(r, v, by->attribute);
    return v.kind == JINJA_TEXT && !by->exact
               ? merak_jinja_lower(r, v, &(struct jinja_args){.n = 0})
               : v;
}

static struct by read_by(const struct jinja_args *args, size_t i_case,
                         size_t i_attribute)
{
    return (struct by){
        merak_jinja_arg(args, i_attribute, "attribute"),
        merak_jinja_truth(merak_jinja_arg(args, i_case, "case_sensitive"))};
}

/* Equal ones keep their order. */
static void sort_by(struct jinja_run *r, struct jinja_list *list,
                    const struct jinja_list *key, bool reversed)
{
    for (size_t i = 1; i < list->n && r->a->rc == MERAK_OK; i++) {
        struct jinja_value item = list->item[i], by = key->item[i];
        size_t k = i;

        for (; k > 0 && merak_jinja_step(r->a, 1); k--) {
            int order = merak_jinja_order(r, key->item[k - 1], by);

            if (reversed ? order >= 0 : order <= 0)
                break;
            list->item[k] = list->item[k - 1];
            key->item[k] = key->item[k - 1];
        }
        list->item[k] = item;
        key->item[k] = by;
    }
}

static struct jinja_value sorted(struct jinja_run *r, struct jinja_value v,
                                 const struct by *by, bool reversed)
{
    struct jinja_value list =
        merak_jinja_as_list(r, v, &(struct jinja_args){.n = 0});
    struct jinja_value key = merak_jinja_list(r->a);

    for (size_t i = 0; i < list.list->n && merak_jinja_step(r->a, 1); i++)
        merak_jinja_append(r->a, key.list, key_of(r, list.list->item[i], by));
    if (r->a->rc == MERAK_OK)
        sort_by(r, list.list, key.list, reversed);
    return list;
}

struct jinja_value merak_jinja_sort(struct jinja_run *r, struct jinja_value v,
                                    const struct jinja_args *args)
{
    const struct by by = read_by(args, 1, 2);

    if (by.attribute.kind == JINJA_TEXT &&
        memchr(by.attribute.text.at, ',', by.attribute.text.n) != NULL)
        merak_jinja_fail(r->a, "sort by several attributes");
    return sorted(r, v, &by,
                  merak_jinja_truth(merak_jinja_arg(args, 0, "reverse")));
}

struct jinja_value merak_jinja_dictsort(struct jinja_run *r,
                                        struct jinja_value v,
                                        const struct jinja_args *args)
{
    struct jinja_value of = merak_jinja_arg(args, 1, "by");
    bool by_value = merak_jinja_is(of, "value");
    const struct by by = {
        merak_jinja_int(by_value),
        merak_jinja_truth(merak_jinja_arg(args, 0, "case_sensitive"))};

    if (v.kind != JINJA_DICT || v.dict->is_namespace)
        merak_jinja_fail(r->a, "dictsort of a value that is not a dict");
    if (of.kind != JINJA_UNDEFINED && !by_value && !merak_jinja_is(of, "key"))
        merak_jinja_fail(r->a, "dictsort by other than key and value");
    return r->a->rc == MERAK_OK
               ? sorted(r, merak_jinja_parts(r, v.dict, 'i'), &by,
                        merak_jinja_truth(merak_jinja_arg(args, 2, "reverse")))
               : v;
}

/* The first item that none is before (-1) or behind (1). */
static struct jinja_value extreme(struct jinja_run *r, struct jinja_value v,
                                  const struct jinja_args *args, int sign)
{
    const struct jinja_list *items = merak_jinja_items(r->a, v);
    const struct by by = read_by(args, 0, 1);
    struct jinja_value best, key;
    size_t found = 0;

    if (items->n == 0)
        return merak_jinja_undefined("the extreme of an empty list");
    best = key_of(r, items->item[0], &by);
    for (size_t i = 1; i < items->n && merak_jinja_step(r->a, 1); i++) {
        key = key_of(r, items->item[i], &by);
        if (merak_jinja_order(r, key, best) * sign <= 0)
            continue;
        best = key;
        found = i;
    }
    return items->item[found];
}

struct jinja_value merak_jinja_min(struct jinja_run *r, struct jinja_value v,
                                   const struct jinja_args *args)
{
    return extreme(r, v, args, -1);
}

struct jinja_value merak_jinja_max(struct jinja_run *r, struct jinja_value v,
                                   const struct jinja_args *args)
{
    return extreme(r, v, args, 1);
}

struct jinja_value merak_jinja_sum(struct jinja_run *r, struct jinja_value v,
                                   const struct jinja_args *args)
{
    const struct by by = {merak_jinja_arg(args, 0, "attribute"), true};
    struct jinja_value sum = merak_jinja_arg(args, 1, "start");
    const struct jinja_list *items = merak_jinja_items(r->a, v);

    if (sum.kind == JINJA_UNDEFINED)
        sum = merak_jinja_int(0);
    for (size_t i = 0; i < items->n && merak_jinja_step(r->a, 1); i++) {
        if (!merak_jinja_arithmetic(r, "+", sum, key_of(r, items->item[i], &by),
                                    &sum))
            merak_jinja_fail(r->a, "a sum of values that are not numbers");
    }
    return sum;
}

static bool is_among(struct jinja_run *r, const struct jinja_list *list,
                     struct jinja_value v)
{
    for (size_t i = 0; i < list->n; i++) {
        if (merak_jinja_same(r->a, list->item[i], v))
            return true;
    }
    return false;
}

struct jinja_value merak_jinja_unique(struct jinja_run *r, struct jinja_value v,
                                      const struct jinja_args *args)
{
    struct jinja_value list = merak_jinja_formed(r->a, JINJA_STREAM);
    struct jinja_value keys = merak_jinja_list(r->a), key;
    const struct jinja_list *items = merak_jinja_items(r->a, v);
    const struct by by = read_by(args, 0, 1);

    for (size_t i = 0; i < items->n && merak_jinja_step(r->a, 1); i++) {
        key = key_of(r, items->item[i], &by);
        if (is_among(r, keys.list, key))
            continue;
        merak_jinja_append(r->a, keys.list, key);
        merak_jinja_append(r->a, list.list, items->item[i]);
    }
    return list;
}

/* Tuples of an attribute's value and the items that have it. */
struct jinja_value merak_jinja_groupby(struct jinja_run *r,
                                       struct jinja_value v,
                                       const struct jinja_args *args)
{
    const struct by by = {
        merak_jinja_arg(args, 0, "attribute"),
        merak_jinja_truth(merak_jinja_arg(args, 2, "case_sensitive"))};
    struct jinja_value groups = merak_jinja_list(r->a), items, group, key;
    struct jinja_value last = merak_jinja_undefined(NULL);

    if (args->n == 0 || merak_jinja_has_arg(args, 1, "default"))
        merak_jinja_fail(r->a, "groupby without an attribute, or with a "
                               "default");
    items = sorted(r, v, &by, false);
    for (size_t i = 0; i < items.list->n && merak_jinja_step(r->a, 1); i++) {
        key = key_of(r, items.list->item[i], &by);
        if (i == 0 || !merak_jinja_same(r->a, key, last)) {
            group = merak_jinja_formed(r->a, JINJA_TUPLE);
            merak_jinja_append(
                r->a, group.list,
                merak_jinja_path(r, items.list->item[i], by.attribute));
            merak_jinja_append(r->a, group.list, merak_jinja_list(r->a));
            merak_jinja_append(r->a, groups.list, group);
            last = key;
        }
        if (r->a->rc == MERAK_OK)
            merak_jinja_append(
                r->a, groups.list->item[groups.list->n - 1].list->item[1].list,
                items.list->item[i]);
    }
    return groups;
}
