/* SPDX-License-Identifier: Apache-2.0 */
/* text/template/jinja_filter.h - what the tables of filters, tests, methods and
 * functions of templates name */
#ifndef MERAK_TEXT_TEMPLATE_JINJA_FILTER_H
#define MERAK_TEXT_TEMPLATE_JINJA_FILTER_H

#include "text/template/jinja_impl.h"

/* A filter, or a method of v. */
typedef struct jinja_value jinja_function(struct jinja_run *r,
                                          struct jinja_value v,
                                          const struct jinja_args *args);

/* A row of a table. */
struct jinja_row {
    const char *name;
    jinja_function *call;
};
/* NULL if it is not in the table, which ends with a row of zeros. */
jinja_function *merak_jinja_row(const struct jinja_row *table,
                                const char *name);

/* jinja_call.c: argument i, or the one called `name`; undefined if there is
 * none. */
struct jinja_value merak_jinja_arg(const struct jinja_args *args, size_t i,
                                   const char *name);
bool merak_jinja_has_arg(const struct jinja_args *args, size_t i,
                         const char *name);
/* An argument that must be a text, and one that is a number or absent. */
struct jinja_text merak_jinja_text_arg(struct jinja_run *r,
                                       const struct jinja_args *args, size_t i,
                                       const char *of);
int64_t merak_jinja_int_arg(struct jinja_run *r, const struct jinja_args *args,
                            size_t i, const char *name, int64_t or_else);
/* A text as a name, terminated by 0. */
const char *merak_jinja_c_text(struct jinja_run *r, struct jinja_text text);

/* jinja_number.c */
bool merak_jinja_is_whole(struct jinja_value v, int64_t *x);
bool merak_jinja_is_number(struct jinja_value v, double *x);
struct jinja_value merak_jinja_real(double real);
/* x sign y; false if one of them is not a number. */
bool merak_jinja_arithmetic(struct jinja_run *r, const char *sign,
                            struct jinja_value x, struct jinja_value y,
                            struct jinja_value *z);
jinja_function merak_jinja_to_int, merak_jinja_to_float, merak_jinja_abs,
    merak_jinja_round;

/* jinja_text.c: methods of texts, and functions that are filters, too. */
extern const struct jinja_row merak_jinja_text_methods[];
jinja_function merak_jinja_strip_both, merak_jinja_replace, merak_jinja_upper,
    merak_jinja_lower, merak_jinja_capitalize;
/* Where the next `part` begins, or beyond the text's end. */
size_t merak_jinja_text_find(struct jinja_arena *a, struct jinja_text text,
                             size_t from, struct jinja_text part);
struct jinja_value merak_jinja_join_with(struct jinja_run *r,
                                         struct jinja_value list,
                                         struct jinja_text between);
/* &, <, >, ' and " as HTML has them; a text that is safe stays. */
struct jinja_text merak_jinja_escape(struct jinja_run *r, struct jinja_value v);

/* jinja_format.c: "%s" % values, and "{}".format(values). */
struct jinja_value merak_jinja_percent(struct jinja_run *r,
                                       struct jinja_text format,
                                       const struct jinja_args *args);
jinja_function merak_jinja_braces;

/* jinja_layout.c: filters that lay out texts. */
jinja_function merak_jinja_title, merak_jinja_indent, merak_jinja_truncate,
    merak_jinja_center, merak_jinja_wordcount;

/* jinja_list.c: filters of lists, and methods of lists and dicts. */
extern const struct jinja_row merak_jinja_list_methods[],
    merak_jinja_dict_methods[];
jinja_function merak_jinja_map, merak_jinja_select, merak_jinja_reject,
    merak_jinja_selectattr, merak_jinja_rejectattr, merak_jinja_first,
    merak_jinja_last, merak_jinja_as_list, merak_jinja_reverse,
    merak_jinja_length, merak_jinja_items_of, merak_jinja_batch,
    merak_jinja_join;
/* An attribute by its path, "a.b"; an item, if it is a number. */
struct jinja_value merak_jinja_path(struct jinja_run *r, struct jinja_value v,
                                    struct jinja_value path);
/* Pairs, keys or values ('i', 'k', 'v'). */
struct jinja_value merak_jinja_parts(struct jinja_run *r,
                                     const struct jinja_dict *dict, char what);

/* jinja_sort.c: -1, 0 or 1, or an error for values without an order. */
int merak_jinja_order(struct jinja_run *r, struct jinja_value x,
                      struct jinja_value y);
jinja_function merak_jinja_sort, merak_jinja_dictsort, merak_jinja_min,
    merak_jinja_max, merak_jinja_sum, merak_jinja_unique, merak_jinja_groupby;

/* jinja_run.c: methods of `loop`. */
extern const struct jinja_row merak_jinja_loop_methods[];

/* jinja_eval.c: v.name, and v[key]. */
struct jinja_value merak_jinja_attribute(struct jinja_run *r,
                                         struct jinja_value v,
                                         const char *name);
struct jinja_value merak_jinja_item(struct jinja_run *r, struct jinja_value v,
                                    struct jinja_value key);

#endif
