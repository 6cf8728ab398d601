/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_eval.c - evaluating expressions of templates
 *
 * Names are looked up in scopes from the inside out.  Each iteration of a loop
 * and each call of a macro has its own scope, an `if` has none: what is set in
 * a loop is lost after it, except fields of a namespace().
 */
#include "config.h"

#include "text/template/jinja_filter.h"

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
                    merak_jinja_text(name, strlen(name)), value);
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
        merak_jinja_set(r->a, space.dict,
                        merak_jinja_text(t->field, strlen(t->field)), value);
}

/* Several targets take a list's items. */
void merak_jinja_assign(struct jinja_run *r, const struct jinja_target *t,
                        struct jinja_value value)
{
    const struct jinja_list *list = NULL;
    size_t i = 0;

    if (t->next != NULL || t->is_tuple)
        list = merak_jinja_items(r->a, value);
    for (; t != NULL && r->a->rc == MERAK_OK; t = t->next, i++) {
        if (list != NULL &&
            (i >= list->n || (t->next == NULL && i + 1 < list->n))) {
            merak_jinja_fail(r->a, "%zu values for another number of names",
                             list->n);
            return;
        }
        if (t->inner != NULL)
            merak_jinja_assign(r, t->inner,
                               list != NULL ? list->item[i] : value);
        else if (t->field != NULL)
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

    if (strcmp(name, "depth") == 0 || strcmp(name, "depth0") == 0)
        return merak_jinja_int(loop->depth + (name[5] == '\0'));
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

static bool has_index(struct jinja_value v)
{
    return v.kind == JINJA_TEXT || merak_jinja_has_form(v, JINJA_ROW) ||
           merak_jinja_has_form(v, JINJA_TUPLE) ||
           merak_jinja_has_form(v, JINJA_RANGE);
}

static struct jinja_value key_of(struct jinja_run *r,
                                 const struct jinja_dict *dict,
                                 struct jinja_value key, const char *name)
{
    const struct jinja_value *found = merak_jinja_find_key(r->a, dict, key);

    return found != NULL ? *found : merak_jinja_undefined(name);
}

struct jinja_value merak_jinja_attribute(struct jinja_run *r,
                                         struct jinja_value v, const char *name)
{
    if (v.kind == JINJA_UNDEFINED)
        merak_jinja_fail(r->a, "%.40s is undefined, and asked for .%.40s",
                         v.name != NULL ? v.name : "this", name);
    if (merak_jinja_is_method(v, name))
        return method(r, v, name);
    if (v.kind == JINJA_DICT)
        return key_of(r, v.dict, merak_jinja_text(name, strlen(name)), name);
    if (v.kind == JINJA_LOOP)
        return loop_field(r, v.loop, name);
    /* groupby's tuples have names */
    if (merak_jinja_has_form(v, JINJA_TUPLE) && v.list->n == 2 &&
        (strcmp(name, "grouper") == 0 || strcmp(name, "list") == 0))
        return v.list->item[name[0] == 'l'];
    return merak_jinja_undefined(name);
}

struct jinja_value merak_jinja_item(struct jinja_run *r, struct jinja_value v,
                                    struct jinja_value key)
{
    const struct jinja_list *list;
    int64_t i;

    if (v.kind == JINJA_UNDEFINED)
        merak_jinja_fail(r->a, "%.40s is undefined, and asked for an item",
                         v.name != NULL ? v.name : "this");
    if (v.kind == JINJA_DICT && !v.dict->is_namespace) {
        const struct jinja_value *found =
            merak_jinja_find_key(r->a, v.dict, key);

        if (found != NULL || key.kind != JINJA_TEXT)
            return found != NULL ? *found : merak_jinja_undefined("an item");
    }
    if (key.kind == JINJA_TEXT)
        return merak_jinja_attribute(r, v, merak_jinja_c_text(r, key.text));
    if (!merak_jinja_is_whole(key, &i) || !has_index(v))
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
    int64_t step, n, begin, end;

    if (r->a->rc != MERAK_OK || !has_index(v)) {
        merak_jinja_fail(r->a, "a slice of a value that is not a list or a "
                               "string");
        return part;
    }
    list = merak_jinja_items(r->a, v);
    n = (int64_t)list->n;
    step = slice_end(r, entry->next->next, 0, -n - 1, n + 1, 1);
    if (step == 0)
        merak_jinja_fail(r->a, "a slice of steps of 0");
    begin = slice_end(r, entry, n, step > 0 ? 0 : -1, step > 0 ? n : n - 1,
                      step > 0 ? 0 : n - 1);
    end = slice_end(r, entry->next, n, step > 0 ? 0 : -1, step > 0 ? n : n - 1,
                    step > 0 ? n : -1);
    part.list->form = v.kind == JINJA_LIST ? v.list->form : JINJA_ROW;
    for (; r->a->rc == MERAK_OK && (step > 0 ? begin < end : begin > end);
         begin += step) {
        if (v.kind == JINJA_TEXT)
            merak_jinja_put(r->a, &out, list->item[begin].text);
        else
            merak_jinja_append(r->a, part.list, list->item[begin]);
    }
    if (v.kind == JINJA_LIST)
        return part;
    part = merak_jinja_out_text(&out);
    part.text.is_safe = v.text.is_safe;
    return part;
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
    struct jinja_value all = merak_jinja_formed(r->a, x->form);

    for (size_t i = 0; i < x->n; i++)
        merak_jinja_append(r->a, all.list, x->item[i]);
    for (size_t i = 0; i < y->n; i++)
        merak_jinja_append(r->a, all.list, y->item[i]);
    return all;
}

/* A text or a list, repeated. */
static struct jinja_value repeat(struct jinja_run *r, struct jinja_value v,
                                 int64_t times)
{
    struct jinja_value all = merak_jinja_list(r->a);
    struct jinja_out out = {.n = 0};

    all.list->form = v.kind == JINJA_LIST ? v.list->form : JINJA_ROW;
    for (; times > 0 && merak_jinja_step(r->a, 1); times--) {
        if (v.kind == JINJA_TEXT)
            merak_jinja_put(r->a, &out, v.text);
        for (size_t i = 0; v.kind == JINJA_LIST && i < v.list->n; i++)
            merak_jinja_append(r->a, all.list, v.list->item[i]);
    }
    return v.kind == JINJA_LIST ? all : merak_jinja_out_text(&out);
}

static bool is_row(struct jinja_value v)
{
    return merak_jinja_has_form(v, JINJA_ROW) ||
           merak_jinja_has_form(v, JINJA_TUPLE);
}

/* "%s" % value, or % (values), or % {names: values} */
static struct jinja_value percent(struct jinja_run *r, struct jinja_text text,
                                  struct jinja_value v)
{
    const struct jinja_dict *dict = v.kind == JINJA_DICT ? v.dict : NULL;
    struct jinja_args args = {&v, &(const char *){NULL}, 1};

    if (merak_jinja_has_form(v, JINJA_TUPLE) || dict != NULL) {
        args.n = dict != NULL ? dict->n : v.list->n;
        args.name = merak_jinja_alloc(r->a, args.n * sizeof(*args.name));
        args.value = merak_jinja_alloc(r->a, args.n * sizeof(*args.value));
    }
    for (size_t i = 0; args.value != &v && i < args.n && r->a->rc == MERAK_OK;
         i++) {
        args.value[i] = dict != NULL ? dict->pair[i].value : v.list->item[i];
        if (dict != NULL)
            args.name[i] =
                merak_jinja_c_text(r, merak_jinja_str(r->a, dict->pair[i].key));
    }
    return r->a->rc == MERAK_OK ? merak_jinja_percent(r, text, &args)
                                : merak_jinja_undefined(NULL);
}

/* One of them is safe: the other is escaped. */
static struct jinja_value join_texts(struct jinja_run *r, struct jinja_value x,
                                     struct jinja_value y)
{
    if (!x.text.is_safe && !y.text.is_safe)
        return join(r, x.text, y.text);
    x = join(r, merak_jinja_escape(r, x), merak_jinja_escape(r, y));
    x.text.is_safe = true;
    return x;
}

static struct jinja_value binary(struct jinja_run *r, const char *sign,
                                 struct jinja_value x, struct jinja_value y)
{
    struct jinja_value z;
    int64_t n;

    if (sign[0] == '~')
        return join(r, merak_jinja_str(r->a, x), merak_jinja_str(r->a, y));
    if (sign[0] == '+' && x.kind == JINJA_TEXT && y.kind == JINJA_TEXT)
        return join_texts(r, x, y);
    if (sign[0] == '+' && is_row(x) && is_row(y) &&
        x.list->form == y.list->form)
        return join_lists(r, x.list, y.list);
    if (merak_jinja_arithmetic(r, sign, x, y, &z))
        return z;
    if (sign[0] == '%' && x.kind == JINJA_TEXT)
        return percent(r, x.text, y);
    if (strcmp(sign, "*") == 0 && (x.kind == JINJA_TEXT || is_row(x)) &&
        merak_jinja_is_whole(y, &n))
        return repeat(r, x, n);
    if (strcmp(sign, "*") == 0 && (y.kind == JINJA_TEXT || is_row(y)) &&
        merak_jinja_is_whole(x, &n))
        return repeat(r, y, n);
    if (x.kind == JINJA_UNDEFINED || y.kind == JINJA_UNDEFINED) {
        const char *name = x.kind == JINJA_UNDEFINED ? x.name : y.name;

        merak_jinja_fail(r->a, "%.40s is undefined, and an operand of %s",
                         name != NULL ? name : "this", sign);
    } else {
        merak_jinja_fail(r->a, "%s of values that it does not apply to", sign);
    }
    return merak_jinja_undefined(NULL);
}

bool merak_jinja_compare(struct jinja_run *r, const char *sign,
                         struct jinja_value x, struct jinja_value y)
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
        return merak_jinja_order(r, x, y) < 0;
    if (strcmp(sign, "<=") == 0)
        return merak_jinja_order(r, x, y) <= 0;
    if (strcmp(sign, ">") == 0)
        return merak_jinja_order(r, x, y) > 0;
    return merak_jinja_order(r, x, y) >= 0;
}

/* --- expressions -----------------------------------------------------------
 */

static struct jinja_value make_list(struct jinja_run *r,
                                    const struct jinja_node *node)
{
    struct jinja_value v = merak_jinja_list(r->a);
    const struct jinja_entry *entry = node->list;

    v.list->form = merak_jinja_truth(node->value) ? JINJA_TUPLE : JINJA_ROW;
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

        if (key.kind == JINJA_DICT || merak_jinja_has_form(key, JINJA_ROW))
            merak_jinja_fail(r->a, "a key that is a list or a dict");
        else
            merak_jinja_set(r->a, v.dict, key,
                            merak_jinja_eval(r, entry->next->node));
    }
    return v;
}

static struct jinja_value minus(struct jinja_run *r, struct jinja_value v)
{
    struct jinja_value z = {.kind = JINJA_UNDEFINED};

    if (v.kind == JINJA_REAL)
        return merak_jinja_real(-v.real);
    if (!merak_jinja_arithmetic(r, "-", merak_jinja_int(0), v, &z))
        merak_jinja_fail(r->a, "- of a value that is not a number");
    return z;
}

static struct jinja_value filtered(struct jinja_run *r,
                                   const struct jinja_node *node)
{
    struct jinja_value v = merak_jinja_eval(r, node->a);
    struct jinja_args args = merak_jinja_eval_args(r, node->list);

    r->a->line = node->line;
    return r->a->rc == MERAK_OK ? merak_jinja_filter(r, node->name, v, &args)
                                : v;
}

static bool tested(struct jinja_run *r, const struct jinja_node *node)
{
    struct jinja_value v = merak_jinja_eval(r, node->a);
    struct jinja_args args = merak_jinja_eval_args(r, node->list);

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
        return merak_jinja_attribute(r, merak_jinja_eval(r, node->a),
                                     node->name);
    case JINJA_ITEM:
        v = merak_jinja_eval(r, node->a);
        return merak_jinja_item(r, v, merak_jinja_eval(r, node->b));
    case JINJA_SLICE:
        return slice(r, node);
    case JINJA_CALL:
        return merak_jinja_eval_call(r, node);
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
        return merak_jinja_bool(merak_jinja_compare(
            r, node->name, v, merak_jinja_eval(r, node->b)));
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
