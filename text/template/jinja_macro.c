/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_macro.c - arguments of calls, and macros */
#include "config.h"

#include "text/template/jinja_filter.h"

static void add_arg(struct jinja_run *r, struct jinja_args *args, size_t *room,
                    const char *name, struct jinja_value value)
{
    const size_t n = 2 * args->n + 8;
    struct jinja_args wide;

    if (args->n == *room) {
        wide.value = merak_jinja_alloc(r->a, n * sizeof(*wide.value));
        wide.name = merak_jinja_alloc(r->a, n * sizeof(*wide.name));
        if (r->a->rc != MERAK_OK)
            return;
        for (size_t i = 0; i < args->n; i++) {
            wide.value[i] = args->value[i];
            wide.name[i] = args->name[i];
        }
        args->value = wide.value;
        args->name = wide.name;
        *room = n;
    }
    args->name[args->n] = name;
    args->value[args->n++] = value;
}

/* "*list" and "**dict" among the arguments of a call. */
static void add_all(struct jinja_run *r, struct jinja_args *args, size_t *room,
                    const char *sign, struct jinja_value value)
{
    const struct jinja_dict *dict =
        value.kind == JINJA_DICT ? value.dict : NULL;
    const struct jinja_list *list =
        sign[1] == '\0' ? merak_jinja_items(r->a, value) : NULL;

    if (sign[1] != '\0' && dict == NULL)
        merak_jinja_fail(r->a, "**arguments that are not a dict");
    for (size_t i = 0;
         r->a->rc == MERAK_OK && i < (list != NULL ? list->n : dict->n); i++)
        add_arg(r, args, room,
                list != NULL ? NULL
                             : merak_jinja_c_text(
                                   r, merak_jinja_str(r->a, dict->pair[i].key)),
                list != NULL ? list->item[i] : dict->pair[i].value);
}

struct jinja_args merak_jinja_eval_args(struct jinja_run *r,
                                        const struct jinja_entry *entry)
{
    struct jinja_args args = {.n = 0};
    size_t room = 0;

    for (; entry != NULL && r->a->rc == MERAK_OK; entry = entry->next) {
        struct jinja_value value = merak_jinja_eval(r, entry->node);

        if (r->a->rc != MERAK_OK)
            break;
        if (entry->name != NULL && entry->name[0] == '*')
            add_all(r, &args, &room, entry->name, value);
        else
            add_arg(r, &args, &room, entry->name, value);
    }
    return args;
}

static bool has_parameter(const struct jinja_macro *macro, const char *name)
{
    const struct jinja_entry *e = macro->node->list;

    while (e != NULL && strcmp(e->name, name) != 0)
        e = e->next;
    return e != NULL;
}

/* Arguments beyond the parameters: varargs, kwargs and caller, where the body
 * names them. */
static void put_rest(struct jinja_run *r, const struct jinja_macro *macro,
                     const struct jinja_args *args, size_t n)
{
    const int64_t has = macro->node->value.integer;
    struct jinja_value rest = merak_jinja_formed(r->a, JINJA_TUPLE);
    struct jinja_value named = merak_jinja_dict(r->a);

    for (size_t i = 0; i < args->n && r->a->rc == MERAK_OK; i++) {
        const char *name = args->name[i];

        if (name == NULL && i >= n)
            merak_jinja_append(r->a, rest.list, args->value[i]);
        else if (name != NULL && strcmp(name, "caller") == 0 &&
                 (has & JINJA_HAS_CALLER) != 0)
            merak_jinja_put_name(r, name, args->value[i]);
        else if (name != NULL && !has_parameter(macro, name))
            merak_jinja_set(r->a, named.dict,
                            merak_jinja_text(name, strlen(name)),
                            args->value[i]);
    }
    if ((has & JINJA_HAS_VARARGS) != 0)
        merak_jinja_put_name(r, "varargs", rest);
    else if (rest.list->n > 0)
        merak_jinja_fail(r->a, "%zu arguments of %.40s, which has %zu",
                         n + rest.list->n, macro->node->name, n);
    if ((has & JINJA_HAS_KWARGS) != 0)
        merak_jinja_put_name(r, "kwargs", named);
    else if (named.dict->n > 0)
        merak_jinja_fail(r->a, "%.40s has no parameter %.40s",
                         macro->node->name,
                         merak_jinja_c_text(r, named.dict->pair[0].key.text));
}

struct jinja_value merak_jinja_call_macro(struct jinja_run *r,
                                          const struct jinja_macro *macro,
                                          const struct jinja_args *args)
{
    struct jinja_scope *caller = r->scope;
    struct jinja_out out = {.n = 0}, *outer = r->out;
    size_t n = 0;

    merak_jinja_enter(r, macro->scope);
    for (const struct jinja_entry *e = macro->node->list;
         e != NULL && r->a->rc == MERAK_OK; e = e->next, n++) {
        struct jinja_value value = merak_jinja_arg(args, n, e->name);

        if (!merak_jinja_has_arg(args, n, e->name) && e->node != NULL)
            value = merak_jinja_eval(r, e->node);
        merak_jinja_put_name(r, e->name, value);
    }
    if (r->a->rc == MERAK_OK)
        put_rest(r, macro, args, n);
    r->out = &out;
    merak_jinja_run(r, macro->node->body);
    r->out = outer;
    r->scope = caller;
    return merak_jinja_out_text(&out);
}

struct jinja_value merak_jinja_eval_call(struct jinja_run *r,
                                         const struct jinja_node *node)
{
    struct jinja_value f = merak_jinja_eval(r, node->a);
    struct jinja_args args = merak_jinja_eval_args(r, node->list);

    if (r->a->rc != MERAK_OK)
        return merak_jinja_undefined(NULL);
    r->a->line = node->line;
    return merak_jinja_call(r, f, &args);
}

/* {% call f(..) %}: the block is f's caller(). */
struct jinja_value merak_jinja_call_block(struct jinja_run *r,
                                          const struct jinja_node *node)
{
    struct jinja_value f = merak_jinja_eval(r, node->a->a);
    struct jinja_args args = merak_jinja_eval_args(r, node->a->list);
    struct jinja_macro *macro = merak_jinja_alloc(r->a, sizeof(*macro));
    size_t room = args.n;

    *macro = (struct jinja_macro){node->b, r->scope};
    add_arg(r, &args, &room, "caller",
            (struct jinja_value){.kind = JINJA_MACRO, .macro = macro});
    if (r->a->rc != MERAK_OK)
        return merak_jinja_undefined(NULL);
    r->a->line = node->line;
    return merak_jinja_call(r, f, &args);
}
