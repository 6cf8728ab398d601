/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_parse.c - parsing expressions of templates
 *
 * By precedence, the lowest first: a if b else c; or; and; not; comparisons
 * and in; + and -; ~; * / // %; signs; then postfix operators: .name, [item],
 * (arguments), |filter, is test.
 */
#include "config.h"

#include "text/template/jinja_parse.h"

#include <stdio.h>

/* An argument is looked up among all. */
enum { MOST_DEPTH = 200, MOST_ARGUMENTS = 255 };

static struct jinja_node *parse_unary(struct jinja_parser *p, bool filters);

struct jinja_node *merak_jinja_node(struct jinja_parser *p, enum jinja_op op)
{
    struct jinja_node *node = merak_jinja_alloc(p->a, sizeof(*node));

    node->op = op;
    node->line = p->at->line;
    return node;
}

static struct jinja_node *make_of(struct jinja_parser *p, enum jinja_op op,
                                  struct jinja_node *a, const char *name,
                                  struct jinja_node *b)
{
    struct jinja_node *node = merak_jinja_node(p, op);

    node->a = a;
    node->b = b;
    node->name = name;
    return node;
}

/* After an error this is always the end. */
const struct jinja_token *merak_jinja_here(struct jinja_parser *p)
{
    static const struct jinja_token end = {.kind = JINJA_T_END};

    p->a->line = p->at->line > 0 ? p->at->line : p->a->line;
    if (p->a->rc != MERAK_OK)
        p->at = &end;
    return p->at;
}

void merak_jinja_unexpected(struct jinja_parser *p, const char *wanted)
{
    const struct jinja_token *t = merak_jinja_here(p);

    if (t->at != NULL && t->kind != JINJA_T_DATA)
        merak_jinja_fail(p->a, "\"%.40s\", expected %s", t->at, wanted);
    else
        merak_jinja_fail(p->a, "%s is missing", wanted);
}

const struct jinja_token *merak_jinja_take(struct jinja_parser *p)
{
    const struct jinja_token *t = merak_jinja_here(p);

    if (t->kind != JINJA_T_END)
        p->at++;
    return t;
}

bool merak_jinja_sees(struct jinja_parser *p, enum jinja_token_kind kind,
                      const char *text)
{
    const struct jinja_token *t = merak_jinja_here(p);

    return t->kind == kind && (text == NULL || strcmp(t->at, text) == 0);
}

bool merak_jinja_accept(struct jinja_parser *p, enum jinja_token_kind kind,
                        const char *text)
{
    bool found = merak_jinja_sees(p, kind, text);

    if (found)
        merak_jinja_take(p);
    return found;
}

bool merak_jinja_accept_sign(struct jinja_parser *p, const char *text)
{
    return merak_jinja_accept(p, JINJA_T_SIGN, text);
}

bool merak_jinja_accept_word(struct jinja_parser *p, const char *text)
{
    return merak_jinja_accept(p, JINJA_T_NAME, text);
}

void merak_jinja_expect(struct jinja_parser *p, enum jinja_token_kind kind,
                        const char *text)
{
    if (!merak_jinja_accept(p, kind, text))
        merak_jinja_unexpected(p, text != NULL ? text : "the end of the tag");
}

const char *merak_jinja_take_name(struct jinja_parser *p)
{
    if (!merak_jinja_sees(p, JINJA_T_NAME, NULL)) {
        merak_jinja_unexpected(p, "a name");
        return "";
    }
    return merak_jinja_take(p)->at;
}

bool merak_jinja_deeper(struct jinja_parser *p)
{
    if (++p->depth > MOST_DEPTH)
        merak_jinja_fail(p->a, "more than %d levels of nesting", MOST_DEPTH);
    return p->a->rc == MERAK_OK;
}

/* --- expressions -----------------------------------------------------------
 */

struct jinja_entry **merak_jinja_entry(struct jinja_parser *p,
                                       struct jinja_entry **to,
                                       const char *name,
                                       struct jinja_node *node)
{
    struct jinja_entry *entry = merak_jinja_alloc(p->a, sizeof(*entry));

    if (p->a->rc != MERAK_OK)
        return to;
    entry->name = name;
    entry->node = node;
    *to = entry;
    return &entry->next;
}

/* Parse up to the closing sign; with "name=" if names are allowed. */
static struct jinja_entry *parse_list(struct jinja_parser *p, const char *end,
                                      bool names)
{
    struct jinja_entry *first = NULL, **to = &first;
    int n = 0;

    while (merak_jinja_here(p)->kind != JINJA_T_END &&
           !merak_jinja_accept_sign(p, end)) {
        const char *name = NULL;

        if (names && ++n > MOST_ARGUMENTS)
            merak_jinja_fail(p->a, "more than %d arguments", MOST_ARGUMENTS);
        if (names && merak_jinja_sees(p, JINJA_T_NAME, NULL) &&
            p->at[1].kind == JINJA_T_SIGN && strcmp(p->at[1].at, "=") == 0) {
            name = merak_jinja_take(p)->at;
            merak_jinja_take(p);
        }
        if (names && (merak_jinja_sees(p, JINJA_T_SIGN, "*") ||
                      merak_jinja_sees(p, JINJA_T_SIGN, "**")))
            name = merak_jinja_take(p)->at;
        to = merak_jinja_entry(p, to, name, merak_jinja_parse_choice(p));
        if (!merak_jinja_accept_sign(p, ",") &&
            !merak_jinja_sees(p, JINJA_T_SIGN, end))
            merak_jinja_unexpected(p, end);
    }
    return first;
}

static struct jinja_node *parse_dict(struct jinja_parser *p)
{
    struct jinja_node *node = merak_jinja_node(p, JINJA_MAKE_DICT);
    struct jinja_entry **to = &node->list;

    while (merak_jinja_here(p)->kind != JINJA_T_END &&
           !merak_jinja_accept_sign(p, "}")) {
        to = merak_jinja_entry(p, to, NULL, merak_jinja_parse_choice(p));
        merak_jinja_expect(p, JINJA_T_SIGN, ":");
        to = merak_jinja_entry(p, to, NULL, merak_jinja_parse_choice(p));
        if (!merak_jinja_accept_sign(p, ",") &&
            !merak_jinja_sees(p, JINJA_T_SIGN, "}"))
            merak_jinja_unexpected(p, "}");
    }
    return node;
}

/* After "(": an expression in parentheses, or with a comma a tuple. */
static struct jinja_node *parse_round(struct jinja_parser *p)
{
    struct jinja_node *node = merak_jinja_node(p, JINJA_MAKE_LIST), *first;
    struct jinja_entry **to = &node->list;

    node->value = merak_jinja_bool(true);
    if (merak_jinja_accept_sign(p, ")"))
        return node;
    first = merak_jinja_parse_choice(p);
    if (merak_jinja_accept_sign(p, ")"))
        return first;
    to = merak_jinja_entry(p, to, NULL, first);
    merak_jinja_expect(p, JINJA_T_SIGN, ",");
    *to = parse_list(p, ")", false);
    return node;
}

struct jinja_node *merak_jinja_constant(struct jinja_parser *p,
                                        struct jinja_value value)
{
    struct jinja_node *node = merak_jinja_node(p, JINJA_CONST);

    node->value = value;
    return node;
}

static struct jinja_node *parse_word(struct jinja_parser *p)
{
    static const struct {
        const char *word;
        struct jinja_value value;
    } row[] = {
        {"true", {.kind = JINJA_BOOL, .truth = true}},
        {"True", {.kind = JINJA_BOOL, .truth = true}},
        {"false", {.kind = JINJA_BOOL, .truth = false}},
        {"False", {.kind = JINJA_BOOL, .truth = false}},
        {"none", {.kind = JINJA_NONE}},
        {"None", {.kind = JINJA_NONE}},
    };
    const char *word = merak_jinja_take(p)->at;

    p->names |= strcmp(word, "varargs") == 0  ? JINJA_HAS_VARARGS
                : strcmp(word, "kwargs") == 0 ? JINJA_HAS_KWARGS
                : strcmp(word, "caller") == 0 ? JINJA_HAS_CALLER
                                              : 0;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        if (strcmp(row[i].word, word) == 0)
            return merak_jinja_constant(p, row[i].value);
    }
    return make_of(p, JINJA_NAME, NULL, word, NULL);
}

/* Adjacent texts are concatenated. */
static struct jinja_node *parse_texts(struct jinja_parser *p)
{
    struct jinja_out out = {.n = 0};

    while (merak_jinja_sees(p, JINJA_T_TEXT, NULL)) {
        const struct jinja_token *t = merak_jinja_take(p);

        merak_jinja_put(p->a, &out, merak_jinja_text(t->at, t->n).text);
    }
    return merak_jinja_constant(p, merak_jinja_out_text(&out));
}

static struct jinja_node *parse_primary(struct jinja_parser *p)
{
    struct jinja_node *node;

    switch (merak_jinja_here(p)->kind) {
    case JINJA_T_NAME:
        return parse_word(p);
    case JINJA_T_TEXT:
        return parse_texts(p);
    case JINJA_T_INT:
        return merak_jinja_constant(
            p, merak_jinja_int(merak_jinja_take(p)->integer));
    case JINJA_T_REAL:
        return merak_jinja_constant(
            p, (struct jinja_value){.kind = JINJA_REAL,
                                    .real = merak_jinja_take(p)->real});
    default:
        break;
    }
    if (merak_jinja_accept_sign(p, "("))
        return parse_round(p);
    if (merak_jinja_accept_sign(p, "{"))
        return parse_dict(p);
    node = merak_jinja_node(p, JINJA_MAKE_LIST);
    if (merak_jinja_accept_sign(p, "["))
        node->list = parse_list(p, "]", false);
    else
        merak_jinja_unexpected(p, "a value");
    return node;
}

/* After "[": an item, or begin:end:step. */
static struct jinja_node *parse_subscript(struct jinja_parser *p,
                                          struct jinja_node *of)
{
    struct jinja_node *part[3] = {NULL}, *node;
    struct jinja_entry **to;
    int n = 0;

    if (!merak_jinja_sees(p, JINJA_T_SIGN, ":"))
        part[0] = merak_jinja_parse_choice(p);
    if (merak_jinja_accept_sign(p, "]"))
        return make_of(p, JINJA_ITEM, of, NULL, part[0]);
    while (n < 2 && merak_jinja_accept_sign(p, ":")) {
        n++;
        if (!merak_jinja_sees(p, JINJA_T_SIGN, ":") &&
            !merak_jinja_sees(p, JINJA_T_SIGN, "]"))
            part[n] = merak_jinja_parse_choice(p);
    }
    merak_jinja_expect(p, JINJA_T_SIGN, "]");
    node = make_of(p, JINJA_SLICE, of, NULL, NULL);
    to = &node->list;
    for (int i = 0; i < 3; i++)
        to = merak_jinja_entry(p, to, NULL, part[i]);
    return node;
}

/* Postfix operators, without filters. */
static struct jinja_node *parse_postfix(struct jinja_parser *p,
                                        struct jinja_node *node)
{
    while (p->a->rc == MERAK_OK) {
        if (merak_jinja_accept_sign(p, ".")) {
            if (merak_jinja_sees(p, JINJA_T_INT, NULL))
                node = make_of(p, JINJA_ITEM, node, NULL, parse_primary(p));
            else
                node = make_of(p, JINJA_ATTRIBUTE, node,
                               merak_jinja_take_name(p), NULL);
        } else if (merak_jinja_accept_sign(p, "[")) {
            node = parse_subscript(p, node);
        } else if (merak_jinja_accept_sign(p, "(")) {
            node = make_of(p, JINJA_CALL, node, NULL, NULL);
            node->list = parse_list(p, ")", true);
        } else {
            break;
        }
    }
    return node;
}

struct jinja_node *merak_jinja_parse_call(struct jinja_parser *p)
{
    struct jinja_node *node = parse_postfix(p, parse_primary(p));

    if (node->op != JINJA_CALL)
        merak_jinja_unexpected(p, "a call");
    return node;
}

struct jinja_node *merak_jinja_parse_filter(struct jinja_parser *p,
                                            struct jinja_node *node)
{
    node = make_of(p, JINJA_FILTER, node, merak_jinja_take_name(p), NULL);
    if (merak_jinja_accept_sign(p, "("))
        node->list = parse_list(p, ")", true);
    return node;
}

/* Does a value begin here, as argument of a test without parentheses? */
static bool is_value(struct jinja_parser *p)
{
    if (merak_jinja_sees(p, JINJA_T_NAME, NULL))
        return !merak_jinja_sees(p, JINJA_T_NAME, "else") &&
               !merak_jinja_sees(p, JINJA_T_NAME, "or") &&
               !merak_jinja_sees(p, JINJA_T_NAME, "and") &&
               !merak_jinja_sees(p, JINJA_T_NAME, "is");
    return merak_jinja_sees(p, JINJA_T_TEXT, NULL) ||
           merak_jinja_sees(p, JINJA_T_INT, NULL) ||
           merak_jinja_sees(p, JINJA_T_REAL, NULL) ||
           merak_jinja_sees(p, JINJA_T_SIGN, "[") ||
           merak_jinja_sees(p, JINJA_T_SIGN, "{");
}

static struct jinja_node *parse_test(struct jinja_parser *p,
                                     struct jinja_node *node)
{
    bool negated = merak_jinja_accept_word(p, "not");

    node = make_of(p, JINJA_TEST, node, merak_jinja_take_name(p), NULL);
    if (merak_jinja_accept_sign(p, "("))
        node->list = parse_list(p, ")", true);
    else if (is_value(p))
        merak_jinja_entry(p, &node->list, NULL,
                          parse_postfix(p, parse_primary(p)));
    return negated ? make_of(p, JINJA_NOT, node, NULL, NULL) : node;
}

static struct jinja_node *parse_unary(struct jinja_parser *p, bool filters)
{
    struct jinja_node *node;

    if (!merak_jinja_deeper(p))
        return merak_jinja_node(p, JINJA_CONST);
    if (merak_jinja_accept_sign(p, "-"))
        node = make_of(p, JINJA_MINUS, parse_unary(p, false), NULL, NULL);
    else if (merak_jinja_accept_sign(p, "+"))
        node = parse_unary(p, false);
    else
        node = parse_primary(p);
    node = parse_postfix(p, node);
    while (filters && p->a->rc == MERAK_OK) {
        if (merak_jinja_accept_sign(p, "|"))
            node = merak_jinja_parse_filter(p, node);
        else if (merak_jinja_accept_word(p, "is"))
            node = parse_test(p, node);
        else if (merak_jinja_accept_sign(p, "("))
            merak_jinja_unexpected(p, "no call of a filter's value");
        else
            break;
    }
    p->depth--;
    return node;
}

/* Operators of equal precedence, left-associative. */
static struct jinja_node *
parse_chain(struct jinja_parser *p,
            struct jinja_node *(*inner)(struct jinja_parser *),
            const char *const *signs)
{
    struct jinja_node *node = inner(p);

    for (size_t i = 0; signs[i] != NULL; i++) {
        if (!merak_jinja_accept_sign(p, signs[i]))
            continue;
        node = make_of(p, JINJA_BINARY, node, signs[i], inner(p));
        i = (size_t)-1;
    }
    return node;
}

static struct jinja_node *parse_signed(struct jinja_parser *p)
{
    return parse_unary(p, true);
}

static struct jinja_node *parse_power(struct jinja_parser *p)
{
    static const char *const signs[] = {"**", NULL};

    return parse_chain(p, parse_signed, signs);
}

static struct jinja_node *parse_product(struct jinja_parser *p)
{
    static const char *const signs[] = {"*", "//", "/", "%", NULL};

    return parse_chain(p, parse_power, signs);
}

static struct jinja_node *parse_concat(struct jinja_parser *p)
{
    static const char *const signs[] = {"~", NULL};

    return parse_chain(p, parse_product, signs);
}

static struct jinja_node *parse_sum(struct jinja_parser *p)
{
    static const char *const signs[] = {"+", "-", NULL};

    return parse_chain(p, parse_concat, signs);
}

static const char *take_comparison(struct jinja_parser *p)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};

    for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++) {
        if (merak_jinja_accept_sign(p, signs[i]))
            return signs[i];
    }
    if (merak_jinja_accept_word(p, "in"))
        return "in";
    if (merak_jinja_sees(p, JINJA_T_NAME, "not") &&
        p->at[1].kind == JINJA_T_NAME && strcmp(p->at[1].at, "in") == 0) {
        merak_jinja_take(p);
        merak_jinja_take(p);
        return "not in";
    }
    return NULL;
}

/* a < b < c is a < b and b < c. */
static struct jinja_node *parse_comparison(struct jinja_parser *p)
{
    struct jinja_node *left = parse_sum(p), *all = NULL, *one;
    const char *sign = take_comparison(p);

    if (sign == NULL)
        return left;
    for (; sign != NULL; sign = take_comparison(p)) {
        one = make_of(p, JINJA_COMPARE, left, sign, parse_sum(p));
        all = all == NULL ? one : make_of(p, JINJA_AND, all, NULL, one);
        left = one->b;
    }
    return all;
}

static struct jinja_node *parse_not(struct jinja_parser *p)
{
    struct jinja_node *node;

    if (!merak_jinja_accept_word(p, "not"))
        return parse_comparison(p);
    if (!merak_jinja_deeper(p))
        return merak_jinja_node(p, JINJA_CONST);
    node = make_of(p, JINJA_NOT, parse_not(p), NULL, NULL);
    p->depth--;
    return node;
}

static struct jinja_node *parse_and(struct jinja_parser *p)
{
    struct jinja_node *node = parse_not(p);

    while (merak_jinja_accept_word(p, "and"))
        node = make_of(p, JINJA_AND, node, NULL, parse_not(p));
    return node;
}

struct jinja_node *merak_jinja_parse_or(struct jinja_parser *p)
{
    struct jinja_node *node = parse_and(p);

    while (merak_jinja_accept_word(p, "or"))
        node = make_of(p, JINJA_OR, node, NULL, parse_and(p));
    return node;
}

struct jinja_node *merak_jinja_parse_choice(struct jinja_parser *p)
{
    struct jinja_node *node;

    if (!merak_jinja_deeper(p))
        return merak_jinja_node(p, JINJA_CONST);
    node = merak_jinja_parse_or(p);
    while (merak_jinja_accept_word(p, "if")) {
        node = make_of(p, JINJA_CHOOSE, node, NULL, merak_jinja_parse_or(p));
        if (merak_jinja_accept_word(p, "else"))
            node->other = merak_jinja_parse_choice(p);
    }
    p->depth--;
    return node;
}

/* For `set` and tags that print: with commas a tuple. */
struct jinja_node *merak_jinja_parse_value(struct jinja_parser *p)
{
    struct jinja_node *first = merak_jinja_parse_choice(p), *node;
    struct jinja_entry **to;

    if (!merak_jinja_sees(p, JINJA_T_SIGN, ","))
        return first;
    node = merak_jinja_node(p, JINJA_MAKE_LIST);
    node->value = merak_jinja_bool(true);
    to = merak_jinja_entry(p, &node->list, NULL, first);
    while (merak_jinja_accept_sign(p, ",") &&
           !merak_jinja_sees(p, JINJA_T_CLOSE, NULL))
        to = merak_jinja_entry(p, to, NULL, merak_jinja_parse_choice(p));
    return node;
}
