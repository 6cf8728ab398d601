/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_body.c - parsing statements of templates */
#include "config.h"

#include "text/template/jinja_parse.h"

static struct jinja_node *parse_body(struct jinja_parser *p,
                                     const char *const *ends);

/* --- statements ------------------------------------------------------------
 */

static void close_tag(struct jinja_parser *p)
{
    merak_jinja_expect(p, JINJA_T_CLOSE, NULL);
}

/* A body, and the word that ended it. */
static struct jinja_node *
parse_until(struct jinja_parser *p, const char *const *ends, const char **end_p)
{
    struct jinja_node *body = parse_body(p, ends);

    *end_p = merak_jinja_here(p)->kind == JINJA_T_NAME ? merak_jinja_take(p)->at
                                                       : "";
    return body;
}

static struct jinja_node *parse_if(struct jinja_parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const end[] = {"endif", NULL};
    struct jinja_node *node = merak_jinja_node(p, JINJA_IF);
    const char *word;

    if (!merak_jinja_deeper(p))
        return node;
    node->a = merak_jinja_parse_value(p);
    close_tag(p);
    node->body = parse_until(p, ends, &word);
    if (strcmp(word, "elif") == 0) {
        node->other = parse_if(p);
    } else {
        if (strcmp(word, "else") == 0) {
            close_tag(p);
            node->other = parse_until(p, end, &word);
        }
        close_tag(p);
    }
    p->depth--;
    return node;
}

static struct jinja_target *parse_targets(struct jinja_parser *p)
{
    struct jinja_target *first = NULL, **to = &first;

    do {
        struct jinja_target *t = merak_jinja_alloc(p->a, sizeof(*t));

        if (!merak_jinja_sees(p, JINJA_T_NAME, NULL) && first != NULL &&
            !merak_jinja_sees(p, JINJA_T_SIGN, "(")) {
            first->is_tuple = true; /* "a," */
            break;
        }
        if (merak_jinja_accept_sign(p, "(") && merak_jinja_deeper(p)) {
            t->inner = parse_targets(p);
            merak_jinja_expect(p, JINJA_T_SIGN, ")");
            p->depth--;
        } else {
            t->name = merak_jinja_take_name(p);
            if (merak_jinja_accept_sign(p, "."))
                t->field = merak_jinja_take_name(p);
        }
        if (p->a->rc != MERAK_OK)
            return NULL;
        *to = t;
        to = &t->next;
    } while (merak_jinja_accept_sign(p, ","));
    return first;
}

static struct jinja_node *parse_for(struct jinja_parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    static const char *const end[] = {"endfor", NULL};
    struct jinja_node *node = merak_jinja_node(p, JINJA_FOR);
    const char *word;

    node->target = parse_targets(p);
    merak_jinja_expect(p, JINJA_T_NAME, "in");
    node->a = merak_jinja_parse_or(p);
    if (merak_jinja_accept_word(p, "if"))
        node->b = merak_jinja_parse_choice(p);
    node->value = merak_jinja_bool(merak_jinja_accept_word(p, "recursive"));
    close_tag(p);
    node->body = parse_until(p, ends, &word);
    if (strcmp(word, "else") == 0) {
        close_tag(p);
        node->other = parse_until(p, end, &word);
    }
    close_tag(p);
    return node;
}

/* "| filter | filter" after a captured block. */
static struct jinja_node *parse_filters(struct jinja_parser *p)
{
    struct jinja_node *node = merak_jinja_node(p, JINJA_CAPTURED);

    while (merak_jinja_accept_sign(p, "|"))
        node = merak_jinja_parse_filter(p, node);
    return node;
}

static struct jinja_node *parse_set(struct jinja_parser *p)
{
    static const char *const end[] = {"endset", NULL};
    struct jinja_node *node = merak_jinja_node(p, JINJA_SET);
    const char *word;

    node->target = parse_targets(p);
    if (merak_jinja_accept_sign(p, "=")) {
        node->a = merak_jinja_parse_value(p);
    } else {
        node->op = JINJA_CAPTURE;
        node->b = parse_filters(p);
        close_tag(p);
        node->body = parse_until(p, end, &word);
    }
    close_tag(p);
    return node;
}

/* Parameters after "(". */
static struct jinja_entry *parse_parameters(struct jinja_parser *p)
{
    struct jinja_entry *first = NULL, **to = &first;

    while (merak_jinja_here(p)->kind != JINJA_T_END &&
           !merak_jinja_accept_sign(p, ")")) {
        const char *name = merak_jinja_take_name(p);

        to = merak_jinja_entry(p, to, name,
                               merak_jinja_accept_sign(p, "=")
                                   ? merak_jinja_parse_choice(p)
                                   : NULL);
        if (!merak_jinja_accept_sign(p, ",") &&
            !merak_jinja_sees(p, JINJA_T_SIGN, ")"))
            merak_jinja_unexpected(p, ")");
    }
    return first;
}

/* A macro's body, and what it names. */
static void parse_macro_body(struct jinja_parser *p, struct jinja_node *node,
                             const char *const *end)
{
    const int64_t names = p->names;
    const char *word;

    p->names = 0;
    close_tag(p);
    node->body = parse_until(p, end, &word);
    close_tag(p);
    node->value = merak_jinja_int(p->names);
    p->names |= names; /* of the macro around it, too */
}

static struct jinja_node *parse_macro(struct jinja_parser *p)
{
    static const char *const end[] = {"endmacro", NULL};
    struct jinja_node *node = merak_jinja_node(p, JINJA_DEFINE);

    node->name = merak_jinja_take_name(p);
    merak_jinja_expect(p, JINJA_T_SIGN, "(");
    node->list = parse_parameters(p);
    parse_macro_body(p, node, end);
    return node;
}

static struct jinja_node *parse_call_block(struct jinja_parser *p)
{
    static const char *const end[] = {"endcall", NULL};
    struct jinja_node *node = merak_jinja_node(p, JINJA_CALL_BLOCK);

    node->b = merak_jinja_node(p, JINJA_DEFINE);
    node->b->name = "caller";
    if (merak_jinja_accept_sign(p, "("))
        node->b->list = parse_parameters(p);
    node->a = merak_jinja_parse_call(p);
    parse_macro_body(p, node->b, end);
    return node;
}

static struct jinja_node *parse_with(struct jinja_parser *p)
{
    static const char *const end[] = {"endwith", NULL};
    struct jinja_node *node = merak_jinja_node(p, JINJA_WITH);
    struct jinja_entry **to = &node->list;
    const char *word;

    while (!merak_jinja_sees(p, JINJA_T_CLOSE, NULL) && p->a->rc == MERAK_OK) {
        const char *name = merak_jinja_take_name(p);

        merak_jinja_expect(p, JINJA_T_SIGN, "=");
        to = merak_jinja_entry(p, to, name, merak_jinja_parse_choice(p));
        if (!merak_jinja_accept_sign(p, ","))
            break;
    }
    close_tag(p);
    node->body = parse_until(p, end, &word);
    close_tag(p);
    return node;
}

static struct jinja_node *parse_block(struct jinja_parser *p, enum jinja_op op,
                                      const char *end_word)
{
    const char *const end[] = {end_word, NULL};
    struct jinja_node *node = merak_jinja_node(p, op);
    const char *word;

    if (op == JINJA_FILTERED)
        node->b =
            merak_jinja_parse_filter(p, merak_jinja_node(p, JINJA_CAPTURED));
    close_tag(p);
    node->body = parse_until(p, end, &word);
    close_tag(p);
    return node;
}

static struct jinja_node *parse_statement(struct jinja_parser *p)
{
    struct jinja_node *node;

    if (merak_jinja_accept_word(p, "if"))
        return parse_if(p);
    if (merak_jinja_accept_word(p, "for"))
        return parse_for(p);
    if (merak_jinja_accept_word(p, "set"))
        return parse_set(p);
    if (merak_jinja_accept_word(p, "macro"))
        return parse_macro(p);
    if (merak_jinja_accept_word(p, "call"))
        return parse_call_block(p);
    if (merak_jinja_accept_word(p, "with"))
        return parse_with(p);
    if (merak_jinja_accept_word(p, "generation"))
        return parse_block(p, JINJA_GENERATION, "endgeneration");
    if (merak_jinja_accept_word(p, "filter"))
        return parse_block(p, JINJA_FILTERED, "endfilter");
    node = merak_jinja_node(p, JINJA_BREAK);
    if (merak_jinja_accept_word(p, "continue"))
        node->op = JINJA_CONTINUE;
    else if (!merak_jinja_accept_word(p, "break"))
        merak_jinja_unexpected(p, "a statement that is known");
    close_tag(p);
    return node;
}

static bool ends_with(struct jinja_parser *p, const char *const *ends)
{
    for (; *ends != NULL && p->at[1].kind == JINJA_T_NAME; ends++) {
        if (strcmp(p->at[1].at, *ends) == 0)
            return true;
    }
    return false;
}

/* Parse up to a tag with one of the words, which is then next; or to the
 * program's end if there are no words. */
static struct jinja_node *parse_body(struct jinja_parser *p,
                                     const char *const *ends)
{
    struct jinja_node *first = NULL, **to = &first, *node;

    if (!merak_jinja_deeper(p))
        return NULL;
    while (merak_jinja_here(p)->kind != JINJA_T_END) {
        if (merak_jinja_sees(p, JINJA_T_OPEN, NULL) && ends_with(p, ends)) {
            merak_jinja_take(p);
            break;
        }
        if (merak_jinja_sees(p, JINJA_T_DATA, NULL)) {
            node = merak_jinja_node(p, JINJA_OUTPUT);
            node->a =
                merak_jinja_constant(p, merak_jinja_text(p->at->at, p->at->n));
            merak_jinja_take(p);
        } else if (merak_jinja_accept(p, JINJA_T_PRINT, NULL)) {
            node = merak_jinja_node(p, JINJA_OUTPUT);
            node->a = merak_jinja_parse_value(p);
            close_tag(p);
        } else {
            merak_jinja_expect(p, JINJA_T_OPEN, NULL);
            node = parse_statement(p);
        }
        if (p->a->rc != MERAK_OK)
            break;
        *to = node;
        to = &node->next;
    }
    if (merak_jinja_here(p)->kind == JINJA_T_END && *ends != NULL)
        merak_jinja_fail(p->a, "the end of the template, expected %s", *ends);
    p->depth--;
    return first;
}

struct jinja_node *merak_jinja_parse(struct jinja_arena *a,
                                     const struct jinja_token *token)
{
    static const char *const none[] = {NULL};
    struct jinja_parser p = {.a = a, .at = token};

    return a->rc == MERAK_OK ? parse_body(&p, none) : NULL;
}
