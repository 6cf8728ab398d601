/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_call.c - arguments, functions and calls of methods of templates */
#include "config.h"

#include "text/template/jinja_filter.h"

/* --- arguments -------------------------------------------------------------
 */

static const struct jinja_value *find_arg(const struct jinja_args *args,
                                          size_t i, const char *name)
{
    for (size_t k = 0; k < args->n; k++) {
        if (args->name[k] == NULL ? k == i : strcmp(args->name[k], name) == 0)
            return &args->value[k];
    }
    return NULL;
}

struct jinja_value merak_jinja_arg(const struct jinja_args *args, size_t i,
                                   const char *name)
{
    const struct jinja_value *found = find_arg(args, i, name);

    return found != NULL ? *found : merak_jinja_undefined(name);
}

bool merak_jinja_has_arg(const struct jinja_args *args, size_t i,
                         const char *name)
{
    return find_arg(args, i, name) != NULL;
}

struct jinja_text merak_jinja_text_arg(struct jinja_run *r,
                                       const struct jinja_args *args, size_t i,
                                       const char *of)
{
    struct jinja_value v = merak_jinja_arg(args, i, "");

    if (v.kind == JINJA_TEXT)
        return v.text;
    merak_jinja_fail(r->a, "%.40s without a string", of);
    return merak_jinja_text("", 0).text;
}

int64_t merak_jinja_int_arg(struct jinja_run *r, const struct jinja_args *args,
                            size_t i, const char *name, int64_t or_else)
{
    struct jinja_value v = merak_jinja_arg(args, i, name);
    int64_t x;

    if (v.kind == JINJA_UNDEFINED || v.kind == JINJA_NONE)
        return or_else;
    if (!merak_jinja_is_whole(v, &x))
        merak_jinja_fail(r->a, "the argument %s is not a number", name);
    return x;
}

const char *merak_jinja_c_text(struct jinja_run *r, struct jinja_text text)
{
    char *name = merak_jinja_alloc(r->a, text.n + 1);

    if (r->a->rc != MERAK_OK)
        return "";
    memcpy(name, text.at, text.n);
    return name;
}

jinja_function *merak_jinja_row(const struct jinja_row *table, const char *name)
{
    for (; table->name != NULL; table++) {
        if (strcmp(table->name, name) == 0)
            return table->call;
    }
    return NULL;
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
            merak_jinja_set(
                r->a, v.dict,
                merak_jinja_text(args->name[i], strlen(args->name[i])),
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

static struct jinja_value make_dict(struct jinja_run *r,
                                    const struct jinja_args *args)
{
    struct jinja_value v = make_namespace(r, args);

    v.dict->is_namespace = false;
    return v;
}

static struct jinja_value range(struct jinja_run *r,
                                const struct jinja_args *args)
{
    struct jinja_value list = merak_jinja_formed(r->a, JINJA_RANGE);
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

/* Functions by the value that they are called on, which is none. */
static const struct {
    const char *name;
    struct jinja_value (*call)(struct jinja_run *r,
                               const struct jinja_args *args);
} functions[] = {{"namespace", make_namespace},
                 {"dict", make_dict},
                 {"range", range},
                 {"strftime_now", date},
                 {"raise_exception", raise}};

bool merak_jinja_is_function(const char *name)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
        if (strcmp(functions[i].name, name) == 0)
            return true;
    }
    return false;
}

static struct jinja_value function(struct jinja_run *r, const char *name,
                                   const struct jinja_args *args)
{
    size_t i = 0;

    while (strcmp(functions[i].name, name) != 0)
        i++;
    return functions[i].call(r, args);
}

static const struct jinja_row *methods_of(struct jinja_value v)
{
    static const struct jinja_row none[] = {{NULL, NULL}};

    return v.kind == JINJA_TEXT   ? merak_jinja_text_methods
           : v.kind == JINJA_LIST ? merak_jinja_list_methods
           : v.kind == JINJA_DICT && !v.dict->is_namespace
               ? merak_jinja_dict_methods
           : v.kind == JINJA_LOOP ? merak_jinja_loop_methods
                                  : none;
}

bool merak_jinja_is_method(struct jinja_value v, const char *name)
{
    return merak_jinja_row(methods_of(v), name) != NULL;
}

struct jinja_value merak_jinja_call(struct jinja_run *r, struct jinja_value f,
                                    const struct jinja_args *args)
{
    if (f.kind == JINJA_FUNCTION)
        return function(r, f.name, args);
    if (f.kind == JINJA_MACRO)
        return merak_jinja_call_macro(r, f.macro, args);
    if (f.kind == JINJA_METHOD)
        return merak_jinja_row(methods_of(*f.self), f.name)(r, *f.self, args);
    if (f.kind == JINJA_LOOP)
        return merak_jinja_recurse(r, f.loop, args);
    merak_jinja_fail(r->a, "%.40s() is not known here",
                     f.name != NULL ? f.name : "a value");
    return merak_jinja_undefined(NULL);
}
