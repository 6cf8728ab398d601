/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_eval.c - evaluating expressions of templates
 *
 * Names are looked up in scopes from the inside out.  Each iteration of a loop
 * and each call of a macro has its own scope, an `if` has none: what is set in
 * a loop is lost after it, except fields of a namespace().
 */
#include "config.h"

#include "io/template/jinja_impl.h"

#include <math.h>
#include <stdlib.h>

/* --- names -----------------------------------------------------------------
 */

static struct jinja_value look_up(struct jinja_run *r, const char *name)
{
    size_t n = strlen(name);
    const struct jinja_value *found = NULL;

    for (const struct jinja_scope *s = r->scope;
         s != NULL && found == NULL && merak_jinja_step(r->a, 1); s = s->outer)
        found = merak_jinja_find(r->a, &s->names, name, n);
    if (found != NULL)
        return *found;
    if (merak_jinja_is_function(name))
        return (struct jinja_value){.kind = JINJA_FUNCTION, .name = name};
    return merak_jinja_undefined(name);
}

void merak_jinja_put_name(struct jinja_run *r, const char *name,
                          struct jinja_value value)
{
    merak_jinja_set(r->a, &r->scope->names,
                    (struct jinja_text){name, strlen(name), NULL, 0}, value);
}

static void assign_field(struct jinja_run *r, const struct jinja_target *t,
                         struct jinja_value value)
{
    struct jinja_value space = look_up(r, t->name);

    if (space.kind != JINJA_DICT || !space.dict->is_namespace)
        merak_jinja_fail(r->a,
                         "%.40s.%.40s is set, and %.40s is not a namespace",
                         t->name, t->field, t->name);
    else
        merak_jinja_set(
            r->a, space.dict,
            (struct jinja_text){t->field, strlen(t->field), NULL, 0}, value);
}

/* Several targets take a list's items. */
void merak_jinja_assign(struct jinja_run *r, const struct jinja_target *t,
                        struct jinja_value value)
{
    const struct jinja_list *list = NULL;
    size_t i = 0;

    if (t->next != NULL)
        list = merak_jinja_items(r->a, value);
    for (; t != NULL && r->a->rc == MERAK_OK; t = t->next, i++) {
        if (list != NULL &&
            (i >= list->n || (t->next == NULL && i + 1 < list->n))) {
            merak_jinja_fail(r->a, "%zu values for another number of names",
                             list->n);
            return;
        }
        if (t->field != NULL)
            assign_field(r, t, list != NULL ? list->item[i] : value);
        else
            merak_jinja_put_name(r, t->name,
                                 list != NULL ? list->item[i] : value);
    }
}

void merak_jinja_enter(struct jinja_run *r, struct jinja_scope *outer)
{
    struct jinja_scope *scope = merak_jinja_alloc(r->a, sizeof(*scope));

    scope->outer = outer;
    if (r->a->rc == MERAK_OK)
        r->scope = scope;
}

/* --- parts of values -------------------------------------------------------
 */

static struct jinja_value
loop_field(struct jinja_run *r, const struct jinja_loop *loop, const char *name)
{
    int64_t i = (int64_t)loop->i, n = (int64_t)loop->items->n;

    if (strcmp(name, "index0") == 0)
        return merak_jinja_int(i);
    if (strcmp(name, "index") == 0)
        return merak_jinja_int(i + 1);
    if (strcmp(name, "first") == 0)
        return merak_jinja_bool(i == 0);
    if (strcmp(name, "last") == 0)
        return merak_jinja_bool(i == n - 1);
    if (strcmp(name, "length") == 0)
        return merak_jinja_int(n);
    if (strcmp(name, "revindex") == 0)
        return merak_jinja_int(n - i);
    if (strcmp(name, "revindex0") == 0)
        return merak_jinja_int(n - i - 1);
    if (strcmp(name, "previtem") == 0)
        return i > 0 ? loop->items->item[i - 1] : merak_jinja_undefined(name);
    if (strcmp(name, "nextitem") == 0)
        return i < n - 1 ? loop->items->item[i + 1]
                         : merak_jinja_undefined(name);
    merak_jinja_fail(r->a, "loop.%.40s is not known here", name);
    return merak_jinja_undefined(name);
}

static struct jinja_value method(struct jinja_run *r, struct jinja_value self,
                                 const char *name)
{
    struct jinja_value *kept = merak_jinja_alloc(r->a, sizeof(*kept));

    *kept = self;
    return (struct jinja_value){
        .kind = JINJA_METHOD, .name = name, .self = kept};
}

static struct jinja_value key_of(struct jinja_run *r,
                                 const struct jinja_dict *dict,
                                 struct jinja_text key, const char *name)
{
    const struct jinja_value *found =
        merak_jinja_find(r->a, dict, key.at, key.n);

    return found != NULL ? *found : merak_jinja_undefined(name);
}

static struct jinja_value attribute(struct jinja_run *r, struct jinja_value v,
                                    const char *name)
{
    if (v.kind == JINJA_UNDEFINED)
        merak_jinja_fail(r->a, "%.40s is undefined, and asked for .%.40s",
                         v.name != NULL ? v.name : "this", name);
    if (merak_jinja_is_method(v, name))
        return method(r, v, name);
    if (v.kind == JINJA_DICT)
        return key_of(r, v.dict,
                      (struct jinja_text){name, strlen(name), NULL, 0}, name);
    if (v.kind == JINJA_LOOP)
        return loop_field(r, v.loop, name);
    return merak_jinja_undefined(name);
}

static struct jinja_value item(struct jinja_run *r, struct jinja_value v,
                               struct jinja_value key)
{
    const struct jinja_list *list;
    int64_t i = key.integer;

    if (v.kind == JINJA_UNDEFINED)
        merak_jinja_fail(r->a, "%.40s is undefined, and asked for an item",
                         v.name != NULL ? v.name : "this");
    if (v.kind == JINJA_DICT && key.kind == JINJA_TEXT)
        return key_of(r, v.dict, key.text, "an item");
    if (key.kind != JINJA_INT || (v.kind != JINJA_LIST && v.kind != JINJA_TEXT))
        return merak_jinja_undefined("an item");
    list = merak_jinja_items(r->a, v);
    i += i < 0 ? (int64_t)list->n : 0;
    return i >= 0 && i < (int64_t)list->n ? list->item[i]
                                          : merak_jinja_undefined("an item");
}

/* An end of a slice: a number, clamped, or `none` if it is absent. */
static int64_t slice_end(struct jinja_run *r, const struct jinja_entry *entry,
                         int64_t n, int64_t low, int64_t high, int64_t none)
{
    struct jinja_value v;

    if (entry->node == NULL)
        return none;
    v = merak_jinja_eval(r, entry->node);
    if (v.kind == JINJA_NONE)
        return none;
    if (v.kind != JINJA_INT)
        merak_jinja_fail(r->a, "a slice by a value that is not a number");
    v.integer += v.integer < 0 ? n : 0;
    return v.integer < low ? low : v.integer > high ? high : v.integer;
}

static struct jinja_value slice(struct jinja_run *r,
                                const struct jinja_node *node)
{
    struct jinja_value v = merak_jinja_eval(r, node->a),
                       part = merak_jinja_list(r->a);
    const struct jinja_entry *entry = node->list;
    struct jinja_out out = {.n = 0};
    const struct jinja_list *list;
    int64_t step = 1, n, begin, end;

    if (r->a->rc != MERAK_OK ||
        (v.kind != JINJA_LIST && v.kind != JINJA_TEXT)) {
        merak_jinja_fail(r->a, "a slice of a value that is not a list or a "
                               "string");
        return part;
    }
    list = merak_jinja_items(r->a, v);
    n = (int64_t)list->n;
    if (entry->next->next->node != NULL)
        step = merak_jinja_eval(r, entry->next->next->node).integer;
    if (step != 1 && step != -1)
        merak_jinja_fail(r->a, "a slice of steps other than 1 and -1");
    begin = slice_end(r, entry, n, step > 0 ? 0 : -1, step > 0 ? n : n - 1,
                      step > 0 ? 0 : n - 1);
    end = slice_end(r, entry->next, n, step > 0 ? 0 : -1, step > 0 ? n : n - 1,
                    step > 0 ? n : -1);
    for (; r->a->rc == MERAK_OK && (step > 0 ? begin < end : begin > end);
         begin += step) {
        if (v.kind == JINJA_TEXT)
            merak_jinja_put(r->a, &out, list->item[begin].text);
        else
            merak_jinja_append(r->a, part.list, list->item[begin]);
    }
    return v.kind == JINJA_TEXT ? merak_jinja_out_text(&out) : part;
}

/* --- operators -------------------------------------------------------------
 */

static struct jinja_value join(struct jinja_run *r, struct jinja_text x,
                               struct jinja_text y)
{
    struct jinja_out out = {.n = 0};

    merak_jinja_put(r->a, &out, x);
    merak_jinja_put(r->a, &out, y);
    return merak_jinja_out_text(&out);
}

static struct jinja_value join_lists(struct jinja_run *r,
                                     const struct jinja_list *x,
                                     const struct jinja_list *y)
{
    struct jinja_value all = merak_jinja_list(r->a);

    for (size_t i = 0; i < x->n; i++)
        merak_jinja_append(r->a, all.list, x->item[i]);
    for (size_t i = 0; i < y->n; i++)
        merak_jinja_append(r->a, all.list, y->item[i]);
    return all;
}

/* Rounded down, as in Python. */
static struct jinja_value integers(struct jinja_run *r, char sign, int64_t x,
                                   int64_t y)
{
    int64_t z = 0;
    bool over = false;

    if ((sign == '%' || sign == '/') && (y == 0 || y == -1)) {
        merak_jinja_fail(r->a, "a division by %d", (int)y);
        return merak_jinja_int(0);
    }
    switch (sign) {
    case '+':
        over = __builtin_add_overflow(x, y, &z);
        break;
    case '-':
        over = __builtin_sub_overflow(x, y, &z);
        break;
    case '*':
        over = __builtin_mul_overflow(x, y, &z);
        break;
    case '/':
        z = x / y - (x % y != 0 && (x < 0) != (y < 0));
        break;
    default:
        z = x % y;
        z += z != 0 && (z < 0) != (y < 0) ? y : 0;
    }
    if (over)
        merak_jinja_fail(r->a, "a number above 2^63");
    return merak_jinja_int(z);
}

static struct jinja_value binary(struct jinja_run *r, const char *sign,
                                 struct jinja_value x, struct jinja_value y)
{
    if (sign[0] == '~')
        return join(r, merak_jinja_str(r->a, x), merak_jinja_str(r->a, y));
    if (sign[0] == '+' && x.kind == JINJA_TEXT && y.kind == JINJA_TEXT)
        return join(r, x.text, y.text);
    if (sign[0] == '+' && x.kind == JINJA_LIST && y.kind == JINJA_LIST)
        return join_lists(r, x.list, y.list);
    if (x.kind == JINJA_INT && y.kind == JINJA_INT && strcmp(sign, "/") != 0)
        return integers(r, sign[0], x.integer, y.integer);
    if (x.kind == JINJA_UNDEFINED || y.kind == JINJA_UNDEFINED) {
        const char *name = x.kind == JINJA_UNDEFINED ? x.name : y.name;

        merak_jinja_fail(r->a, "%.40s is undefined, and an operand of %s",
                         name != NULL ? name : "this", sign);
    } else {
        merak_jinja_fail(r->a, "%s of values that it does not apply to", sign);
    }
    return merak_jinja_undefined(NULL);
}

/* Compare numbers or texts: -1, 0 or 1. */
static int order(struct jinja_run *r, struct jinja_value x,
                 struct jinja_value y)
{
    size_t n;
    int by;

    if (x.kind == JINJA_INT && y.kind == JINJA_INT)
        return (x.integer > y.integer) - (x.integer < y.integer);
    if (x.kind != JINJA_TEXT || y.kind != JINJA_TEXT) {
        merak_jinja_fail(r->a, "a comparison of values without an order");
        return 0;
    }
    n = x.text.n < y.text.n ? x.text.n : y.text.n;
    by = n > 0 && merak_jinja_step_bytes(r->a, n)
             ? memcmp(x.text.at, y.text.at, n)
             : 0;
    return by != 0 ? by : (x.text.n > y.text.n) - (x.text.n < y.text.n);
}

static bool compare(struct jinja_run *r, const char *sign, struct jinja_value x,
                    struct jinja_value y)
{
    if (strcmp(sign, "==") == 0)
        return merak_jinja_same(r->a, x, y);
    if (strcmp(sign, "!=") == 0)
        return !merak_jinja_same(r->a, x, y);
    if (strcmp(sign, "in") == 0)
        return merak_jinja_in(r, x, y);
    if (strcmp(sign, "not in") == 0)
        return !merak_jinja_in(r, x, y);
    if (strcmp(sign, "<") == 0)
        return order(r, x, y) < 0;
    if (strcmp(sign, "<=") == 0)
        return order(r, x, y) <= 0;
    if (strcmp(sign, ">") == 0)
        return order(r, x, y) > 0;
    return order(r, x, y) >= 0;
}

/* --- calls -----------------------------------------------------------------
 */

static struct jinja_args eval_args(struct jinja_run *r,
                                   const struct jinja_entry *entry)
{
    struct jinja_args args = {.n = 0};
    size_t n = 0;

    for (const struct jinja_entry *e = entry; e != NULL; e = e->next)
        n++;
    args.value = merak_jinja_alloc(r->a, n * sizeof(*args.value));
    args.name = merak_jinja_alloc(r->a, n * sizeof(*args.name));
    for (; entry != NULL && r->a->rc == MERAK_OK; entry = entry->next) {
        struct jinja_value value = merak_jinja_eval(r, entry->node);

        if (r->a->rc != MERAK_OK)
            break;
        args.name[args.n] = entry->name;
        args.value[args.n++] = value;
    }
    return args;
}

struct jinja_value merak_jinja_call_macro(struct jinja_run *r,
                                          const struct jinja_macro *macro,
                                          const struct jinja_args *args)
{
    const struct jinja_entry *e = macro->node->list;
    struct jinja_scope *caller = r->scope;
    struct jinja_out out = {.n = 0}, *outer = r->out;
    size_t n = 0;

    merak_jinja_enter(r, macro->scope);
    for (; e != NULL && r->a->rc == MERAK_OK; e = e->next, n++) {
        struct jinja_value value = merak_jinja_arg(args, n, e->name);

        if (value.kind == JINJA_UNDEFINED && e->node != NULL)
            value = merak_jinja_eval(r, e->node);
        merak_jinja_put_name(r, e->name, value);
    }
    if (args->n > n)
        merak_jinja_fail(r->a, "%zu arguments of %.40s, which has %zu", args->n,
                         macro->node->name, n);
    r->out = &out;
    merak_jinja_run(r, macro->node->body);
    r->out = outer;
    r->scope = caller;
    return merak_jinja_out_text(&out);
}

static struct jinja_value call(struct jinja_run *r,
                               const struct jinja_node *node)
{
    struct jinja_value f = merak_jinja_eval(r, node->a);
    struct jinja_args args = eval_args(r, node->list);

    if (r->a->rc != MERAK_OK)
        return merak_jinja_undefined(NULL);
    r->a->line = node->line;
    return f.kind == JINJA_MACRO ? merak_jinja_call_macro(r, f.macro, &args)
                                 : merak_jinja_call(r, f, &args);
}

/* --- expressions -----------------------------------------------------------
 */

static struct jinja_value make_list(struct jinja_run *r,
                                    const struct jinja_node *node)
{
    struct jinja_value v = merak_jinja_list(r->a);
    const struct jinja_entry *entry = node->list;

    v.list->is_tuple = merak_jinja_truth(node->value);
    for (; entry != NULL; entry = entry->next)
        merak_jinja_append(r->a, v.list, merak_jinja_eval(r, entry->node));
    return v;
}

static struct jinja_value make_dict(struct jinja_run *r,
                                    const struct jinja_entry *entry)
{
    struct jinja_value v = merak_jinja_dict(r->a);

    for (; entry != NULL && entry->next != NULL; entry = entry->next->next) {
        struct jinja_value key = merak_jinja_eval(r, entry->node);

        if (key.kind != JINJA_TEXT)
            merak_jinja_fail(r->a, "a key that is not a string");
        else
            merak_jinja_set(r->a, v.dict, key.text,
                            merak_jinja_eval(r, entry->next->node));
    }
    return v;
}

static struct jinja_value minus(struct jinja_run *r, struct jinja_value v)
{
    if (v.kind == JINJA_REAL)
        v.real = -v.real;
    else if (v.kind == JINJA_INT)
        return integers(r, '-', 0, v.integer);
    else
        merak_jinja_fail(r->a, "- of a value that is not a number");
    return v;
}

static struct jinja_value filtered(struct jinja_run *r,
                                   const struct jinja_node *node)
{
    struct jinja_value v = merak_jinja_eval(r, node->a);
    struct jinja_args args = eval_args(r, node->list);

    r->a->line = node->line;
    return r->a->rc == MERAK_OK ? merak_jinja_filter(r, node->name, v, &args)
                                : v;
}

static bool tested(struct jinja_run *r, const struct jinja_node *node)
{
    struct jinja_value v = merak_jinja_eval(r, node->a);
    struct jinja_args args = eval_args(r, node->list);

    r->a->line = node->line;
    return r->a->rc == MERAK_OK && merak_jinja_test(r, node->name, v, &args);
}

static struct jinja_value choose(struct jinja_run *r,
                                 const struct jinja_node *node)
{
    if (merak_jinja_truth(merak_jinja_eval(r, node->b)))
        return merak_jinja_eval(r, node->a);
    return node->other != NULL ? merak_jinja_eval(r, node->other)
                               : merak_jinja_undefined("this");
}

static struct jinja_value eval_op(struct jinja_run *r,
                                  const struct jinja_node *node)
{
    struct jinja_value v;

    switch (node->op) {
    case JINJA_CONST:
        return node->value;
    case JINJA_NAME:
        return look_up(r, node->name);
    case JINJA_CAPTURED:
        return r->captured;
    case JINJA_MAKE_LIST:
        return make_list(r, node);
    case JINJA_MAKE_DICT:
        return make_dict(r, node->list);
    case JINJA_ATTRIBUTE:
        return attribute(r, merak_jinja_eval(r, node->a), node->name);
    case JINJA_ITEM:
        v = merak_jinja_eval(r, node->a);
        return item(r, v, merak_jinja_eval(r, node->b));
    case JINJA_SLICE:
        return slice(r, node);
    case JINJA_CALL:
        return call(r, node);
    case JINJA_FILTER:
        return filtered(r, node);
    case JINJA_TEST:
        return merak_jinja_bool(tested(r, node));
    case JINJA_NOT:
        return merak_jinja_bool(
            !merak_jinja_truth(merak_jinja_eval(r, node->a)));
    case JINJA_MINUS:
        return minus(r, merak_jinja_eval(r, node->a));
    case JINJA_AND:
        v = merak_jinja_eval(r, node->a);
        return merak_jinja_truth(v) ? merak_jinja_eval(r, node->b) : v;
    case JINJA_OR:
        v = merak_jinja_eval(r, node->a);
        return merak_jinja_truth(v) ? v : merak_jinja_eval(r, node->b);
    case JINJA_COMPARE:
        v = merak_jinja_eval(r, node->a);
        return merak_jinja_bool(
            compare(r, node->name, v, merak_jinja_eval(r, node->b)));
    case JINJA_BINARY:
        v = merak_jinja_eval(r, node->a);
        return binary(r, node->name, v, merak_jinja_eval(r, node->b));
    default:
        return choose(r, node);
    }
}

struct jinja_value merak_jinja_eval(struct jinja_run *r,
                                    const struct jinja_node *node)
{
    struct jinja_value v;

    r->a->line = node->line;
    if (!merak_jinja_step(r->a, 1))
        return merak_jinja_undefined(NULL);
    v = merak_jinja_descend(r->a) ? eval_op(r, node)
                                  : merak_jinja_undefined(NULL);
    merak_jinja_ascend(r->a);
    return r->a->rc == MERAK_OK ? v : merak_jinja_undefined(NULL);
}
