/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_run.c - running statements of templates, and whole templates */
#include "config.h"

#include "text/template/jinja_filter.h"

#include <stdlib.h>

/* --- statements ------------------------------------------------------------
 */

/* The items that pass the loop's test. */
static struct jinja_list *pass_test(struct jinja_run *r,
                                    const struct jinja_node *node,
                                    struct jinja_list *all)
{
    struct jinja_scope *outer = r->scope;
    struct jinja_value some = merak_jinja_list(r->a);

    if (node->b == NULL)
        return all;
    for (size_t i = 0; i < all->n && merak_jinja_step(r->a, 1); i++) {
        merak_jinja_enter(r, outer);
        merak_jinja_assign(r, node->target, all->item[i]);
        if (merak_jinja_truth(merak_jinja_eval(r, node->b)))
            merak_jinja_append(r->a, some.list, all->item[i]);
        r->scope = outer;
    }
    return some.list;
}

static void run_loop(struct jinja_run *r, const struct jinja_node *node,
                     const struct jinja_list *items, int depth)
{
    struct jinja_scope *outer = r->scope;
    struct jinja_loop *loop = merak_jinja_alloc(r->a, sizeof(*loop));

    *loop = (struct jinja_loop){
        .node = node, .items = items, .depth = depth, .outer = outer};
    for (size_t i = 0; i < items->n && merak_jinja_step(r->a, 1); i++) {
        loop->i = i;
        merak_jinja_enter(r, outer);
        merak_jinja_put_name(
            r, "loop", (struct jinja_value){.kind = JINJA_LOOP, .loop = loop});
        merak_jinja_assign(r, node->target, items->item[i]);
        merak_jinja_run(r, node->body);
        r->scope = outer;
        if (r->flow == JINJA_LEAVE)
            break;
        r->flow = JINJA_GO_ON;
    }
    r->flow = JINJA_GO_ON;
    if (items->n == 0)
        merak_jinja_run(r, node->other);
}

struct jinja_value merak_jinja_recurse(struct jinja_run *r,
                                       const struct jinja_loop *loop,
                                       const struct jinja_args *args)
{
    struct jinja_scope *scope = r->scope;
    struct jinja_out out = {.n = 0}, *outer = r->out;

    if (!merak_jinja_truth(loop->node->value))
        merak_jinja_fail(r->a, "loop() in a loop that is not recursive");
    if (merak_jinja_descend(r->a)) {
        r->scope = loop->outer;
        r->out = &out;
        run_loop(
            r, loop->node,
            pass_test(r, loop->node,
                      merak_jinja_items(r->a, merak_jinja_arg(args, 0, ""))),
            loop->depth + 1);
        r->scope = scope;
        r->out = outer;
    }
    merak_jinja_ascend(r->a);
    return merak_jinja_out_text(&out);
}

static struct jinja_value cycle(struct jinja_run *r, struct jinja_value v,
                                const struct jinja_args *args)
{
    if (args->n == 0)
        merak_jinja_fail(r->a, "cycle() without values");
    return args->n > 0 ? args->value[v.loop->i % args->n]
                       : merak_jinja_undefined(NULL);
}

static struct jinja_value changed(struct jinja_run *r, struct jinja_value v,
                                  const struct jinja_args *args)
{
    struct jinja_value now = merak_jinja_list(r->a), *kept;
    bool same;

    for (size_t i = 0; i < args->n; i++)
        merak_jinja_append(r->a, now.list, args->value[i]);
    same = v.loop->changed != NULL &&
           merak_jinja_same(r->a, *v.loop->changed, now);
    kept = merak_jinja_alloc(r->a, sizeof(*kept));
    *kept = now;
    v.loop->changed = kept;
    return merak_jinja_bool(!same);
}

const struct jinja_row merak_jinja_loop_methods[] = {
    {"cycle", cycle},
    {"changed", changed},
    {NULL, NULL},
};

/* {% with a = .., b = .. %} */
static void run_with(struct jinja_run *r, const struct jinja_node *node)
{
    struct jinja_scope *outer = r->scope;

    merak_jinja_enter(r, outer);
    for (const struct jinja_entry *e = node->list;
         e != NULL && r->a->rc == MERAK_OK; e = e->next) {
        struct jinja_scope *inner = r->scope;
        struct jinja_value value;

        r->scope = outer; /* none sees another */
        value = merak_jinja_eval(r, e->node);
        r->scope = inner;
        merak_jinja_put_name(r, e->name, value);
    }
    merak_jinja_run(r, node->body);
    r->scope = outer;
}

/* The output of a body, after filters. */
static struct jinja_value capture(struct jinja_run *r,
                                  const struct jinja_node *node)
{
    struct jinja_out out = {.n = 0}, *outer = r->out;
    struct jinja_scope *scope = r->scope;

    merak_jinja_enter(r, scope);
    r->out = &out;
    merak_jinja_run(r, node->body);
    r->out = outer;
    r->scope = scope;
    r->captured = merak_jinja_out_text(&out);
    return merak_jinja_eval(r, node->b);
}

static void define(struct jinja_run *r, const struct jinja_node *node)
{
    struct jinja_macro *macro = merak_jinja_alloc(r->a, sizeof(*macro));

    macro->node = node;
    macro->scope = r->scope;
    merak_jinja_put_name(
        r, node->name,
        (struct jinja_value){.kind = JINJA_MACRO, .macro = macro});
}

static void run_generation(struct jinja_run *r, const struct jinja_node *node)
{
    size_t begin = r->out->n;

    merak_jinja_run(r, node->body);
    merak_jinja_mark_put(r->a, r->out,
                         (struct merak_jinja_mark){begin, r->out->n, -1, NULL});
}

static void run_one(struct jinja_run *r, const struct jinja_node *node)
{
    switch (node->op) {
    case JINJA_OUTPUT:
        merak_jinja_put(r->a, r->out,
                        merak_jinja_str(r->a, merak_jinja_eval(r, node->a)));
        break;
    case JINJA_IF:
        merak_jinja_run(r, merak_jinja_truth(merak_jinja_eval(r, node->a))
                               ? node->body
                               : node->other);
        break;
    case JINJA_FOR:
        run_loop(
            r, node,
            pass_test(r, node,
                      merak_jinja_items(r->a, merak_jinja_eval(r, node->a))),
            0);
        break;
    case JINJA_WITH:
        run_with(r, node);
        break;
    case JINJA_CALL_BLOCK:
        merak_jinja_put(r->a, r->out,
                        merak_jinja_str(r->a, merak_jinja_call_block(r, node)));
        break;
    case JINJA_SET:
        merak_jinja_assign(r, node->target, merak_jinja_eval(r, node->a));
        break;
    case JINJA_CAPTURE:
        merak_jinja_assign(r, node->target, capture(r, node));
        break;
    case JINJA_FILTERED:
        merak_jinja_put(r->a, r->out, merak_jinja_str(r->a, capture(r, node)));
        break;
    case JINJA_DEFINE:
        define(r, node);
        break;
    case JINJA_GENERATION:
        run_generation(r, node);
        break;
    default:
        r->flow = node->op == JINJA_BREAK ? JINJA_LEAVE : JINJA_NEXT;
    }
}

void merak_jinja_run(struct jinja_run *r, const struct jinja_node *node)
{
    (void)merak_jinja_descend(r->a); /* the loop sees the error */
    for (; node != NULL && r->flow == JINJA_GO_ON && merak_jinja_step(r->a, 1);
         node = node->next) {
        r->a->line = node->line;
        run_one(r, node);
    }
    merak_jinja_ascend(r->a);
}

/* --- a template ------------------------------------------------------------
 */

struct merak_jinja {
    struct jinja_arena arena;
    struct jinja_node *program;
};

enum merak_status merak_jinja_compile(const char *text, size_t n,
                                      struct merak_jinja **jinja_p,
                                      struct merak_error *err)
{
    struct merak_jinja *j = calloc(1, sizeof(*j));
    enum merak_status rc;

    if (j == NULL)
        return merak_fail_nomem(err, sizeof(*j));
    j->arena.err = err;
    j->program =
        merak_jinja_parse(&j->arena, merak_jinja_lex(&j->arena, text, n));
    rc = j->arena.rc;
    if (rc != MERAK_OK)
        merak_jinja_free(j);
    else
        *jinja_p = j;
    return rc;
}

void merak_jinja_free(struct merak_jinja *jinja)
{
    if (jinja != NULL)
        merak_jinja_arena_free(&jinja->arena);
    free(jinja);
}

static struct jinja_value plain(const char *text)
{
    return merak_jinja_text(text, strlen(text));
}

static struct jinja_value message(struct jinja_run *r,
                                  const struct merak_jinja_message *m, int i)
{
    struct jinja_value v = merak_jinja_dict(r->a);
    struct jinja_value content = merak_jinja_text(m->content, m->n), *role;
    struct merak_jinja_mark *mark;

    if (m->whole != NULL) {
        v = merak_jinja_of_json(r->a, m->whole, i);
        role = v.kind == JINJA_DICT ? merak_jinja_find(r->a, v.dict, "role", 4)
                                    : NULL;
        if (role != NULL && role->kind == JINJA_TEXT)
            role->text.n_marks = 0; /* nobody said it */
        return v;
    }
    mark = merak_jinja_alloc(r->a, sizeof(*mark));
    *mark = (struct merak_jinja_mark){0, m->n, i, m->content};
    content.text.mark = mark;
    content.text.n_marks = 1;
    merak_jinja_set(r->a, v.dict, plain("role"), plain(m->role));
    merak_jinja_set(r->a, v.dict, plain("content"), content);
    return v;
}

/* Sets names for the template and returns the messages, a list. */
static struct jinja_value set_input(struct jinja_run *r,
                                    const struct merak_jinja_input *in)
{
    struct jinja_value messages = merak_jinja_list(r->a), more;

    for (size_t i = 0; i < in->n_messages; i++)
        merak_jinja_append(r->a, messages.list,
                           message(r, &in->message[i], (int)i));
    merak_jinja_put_name(r, "messages", messages);
    merak_jinja_put_name(r, "tools", (struct jinja_value){.kind = JINJA_NONE});
    merak_jinja_put_name(r, "documents",
                         (struct jinja_value){.kind = JINJA_NONE});
    merak_jinja_put_name(r, "add_generation_prompt",
                         merak_jinja_bool(in->add_generation_prompt));
    for (size_t i = 0; i < in->n_words; i++)
        merak_jinja_put_name(r, in->word[i].name, plain(in->word[i].text));
    if (in->more == NULL)
        return messages;
    more = merak_jinja_of_json(r->a, in->more, -1);
    for (size_t i = 0; more.kind == JINJA_DICT && i < more.dict->n; i++)
        merak_jinja_put_name(r, more.dict->pair[i].key.text.at,
                             more.dict->pair[i].value);
    return messages;
}

/* List what the template has not looked at. */
static enum merak_status tell_unread(const struct jinja_list *messages,
                                     struct merak_jinja_output *to,
                                     struct merak_error *err)
{
    size_t room = 0;

    to->n_unread = 0;
    for (size_t i = 0; i < messages->n; i++)
        room += messages->item[i].dict->n;
    if (room > 0) {
        void *more = realloc(to->unread, room * sizeof(*to->unread));

        if (more == NULL)
            return merak_fail_nomem(err, room * sizeof(*to->unread));
        to->unread = more;
    }
    for (size_t i = 0; i < messages->n; i++) {
        const struct jinja_dict *m = messages->item[i].dict;

        for (size_t k = 0; k < m->n; k++) {
            if (!m->pair[k].read)
                to->unread[to->n_unread++] =
                    (struct merak_jinja_unread){(int)i, m->pair[k].key.text.at};
        }
    }
    return MERAK_OK;
}

static int by_begin(const void *a, const void *b)
{
    const struct merak_jinja_mark *x = a, *y = b;

    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Move the output from the arena to the caller. */
static enum merak_status hand_over(const struct jinja_out *from,
                                   struct merak_jinja_output *to,
                                   struct merak_error *err)
{
    char *text = realloc(to->text, from->n + 1);
    struct merak_jinja_mark *mark;

    if (text == NULL)
        return merak_fail_nomem(err, from->n + 1);
    to->text = text;
    mark = realloc(to->mark, (from->n_marks + 1) * sizeof(*mark));
    if (mark == NULL)
        return merak_fail_nomem(err, (from->n_marks + 1) * sizeof(*mark));
    to->mark = mark;
    if (from->n > 0)
        memcpy(text, from->at, from->n);
    text[from->n] = '\0';
    to->n = from->n;
    if (from->n_marks > 0)
        memcpy(mark, from->mark, from->n_marks * sizeof(*mark));
    to->n_marks = from->n_marks;
    qsort(mark, to->n_marks, sizeof(*mark), by_begin);
    return MERAK_OK;
}

enum merak_status merak_jinja_render(const struct merak_jinja *jinja,
                                     const struct merak_jinja_input *in,
                                     struct merak_jinja_output *out,
                                     struct merak_error *err)
{
    struct jinja_arena arena = {.rc = MERAK_OK, .err = err};
    struct jinja_out text = {.n = 0};
    struct jinja_run r = {.a = &arena, .out = &text, .now = in->now};
    struct jinja_value messages = {.kind = JINJA_UNDEFINED};
    enum merak_status rc;

    merak_jinja_enter(&r, NULL);
    if (r.scope != NULL) {
        messages = set_input(&r, in);
        merak_jinja_run(&r, jinja->program);
    }
    rc = arena.rc;
    if (rc == MERAK_OK)
        rc = hand_over(&text, out, err);
    if (rc == MERAK_OK)
        rc = tell_unread(messages.list, out, err);
    out->has_date = r.has_date;
    merak_jinja_arena_free(&arena);
    return rc;
}

void merak_jinja_output_fini(struct merak_jinja_output *out)
{
    free(out->text);
    free(out->mark);
    free(out->unread);
    memset(out, 0, sizeof(*out));
}
