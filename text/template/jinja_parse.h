/* SPDX-License-Identifier: Apache-2.0 */
/* text/template/jinja_parse.h - shared by the parsers of templates */
#ifndef MERAK_TEXT_TEMPLATE_JINJA_PARSE_H
#define MERAK_TEXT_TEMPLATE_JINJA_PARSE_H

#include "text/template/jinja_impl.h"

struct jinja_parser {
    struct jinja_arena *a;
    const struct jinja_token *at;
    int depth;
    int64_t names; /* JINJA_HAS_ .. that the current macro's body names */
};

/* The next token; after an error, always the end. */
const struct jinja_token *merak_jinja_here(struct jinja_parser *p);
const struct jinja_token *merak_jinja_take(struct jinja_parser *p);
/* Has it this kind, and this text, if one is given?  Accept then takes it,
 * expect fails otherwise. */
bool merak_jinja_sees(struct jinja_parser *p, enum jinja_token_kind kind,
                      const char *text);
bool merak_jinja_accept(struct jinja_parser *p, enum jinja_token_kind kind,
                        const char *text);
bool merak_jinja_accept_sign(struct jinja_parser *p, const char *text);
bool merak_jinja_accept_word(struct jinja_parser *p, const char *text);
void merak_jinja_expect(struct jinja_parser *p, enum jinja_token_kind kind,
                        const char *text);
const char *merak_jinja_take_name(struct jinja_parser *p);
void merak_jinja_unexpected(struct jinja_parser *p, const char *wanted);
/* Go one level deeper; false if there are too many. */
bool merak_jinja_deeper(struct jinja_parser *p);

struct jinja_node *merak_jinja_node(struct jinja_parser *p, enum jinja_op op);
struct jinja_node *merak_jinja_constant(struct jinja_parser *p,
                                        struct jinja_value value);
/* Append to a list; returns where the next entry goes. */
struct jinja_entry **merak_jinja_entry(struct jinja_parser *p,
                                       struct jinja_entry **to,
                                       const char *name,
                                       struct jinja_node *node);

/* Parse an expression; one without "if"; one or several separated by commas;
 * and a filter with its arguments, after "|". */
struct jinja_node *merak_jinja_parse_choice(struct jinja_parser *p);
struct jinja_node *merak_jinja_parse_or(struct jinja_parser *p);
struct jinja_node *merak_jinja_parse_value(struct jinja_parser *p);
struct jinja_node *merak_jinja_parse_call(struct jinja_parser *p);
struct jinja_node *merak_jinja_parse_filter(struct jinja_parser *p,
                                            struct jinja_node *node);

#endif
