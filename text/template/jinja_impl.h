/* SPDX-License-Identifier: Apache-2.0 */
/* text/template/jinja_impl.h - values, nodes and memory of templates
 *
 * All memory of a template, and of each rendering, is from an arena that is
 * freed as a whole.  The first error is kept (rc, err); after it functions do
 * nothing and return undefined values, so that callers need no checks.
 */
#ifndef MERAK_TEXT_TEMPLATE_JINJA_IMPL_H
#define MERAK_TEXT_TEMPLATE_JINJA_IMPL_H

#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "text/template/jinja.h"

/* --- memory ----------------------------------------------------------------
 */

struct jinja_block;

struct jinja_arena {
    struct jinja_block *block;
    size_t bytes;
    enum merak_status rc;
    struct merak_error *err;
    int line; /* the current line, for errors */
    uint64_t steps;
    int depth;
};

/* Zeroed; never NULL: beyond the limit, or without memory, it sets the error
 * and returns memory that is not read. */
void *merak_jinja_alloc(struct jinja_arena *a, size_t bytes);
void merak_jinja_arena_free(struct jinja_arena *a);
/* A template is not trusted: whatever it can make long counts steps, whatever
 * it can nest counts levels.  n steps, false from the error on. */
bool merak_jinja_step(struct jinja_arena *a, size_t n);
/* Steps of a search or a comparison of n bytes. */
bool merak_jinja_step_bytes(struct jinja_arena *a, size_t n);
/* A recursion one level deeper, false from the error on; ascend() follows in
 * either case.  The depth of a chain of operators is its length. */
bool merak_jinja_descend(struct jinja_arena *a);
void merak_jinja_ascend(struct jinja_arena *a);
/* Replace control characters by blanks. */
void merak_jinja_one_line(char *text);
/* Keep the first error, with the line. */
void merak_jinja_fail(struct jinja_arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* --- values ----------------------------------------------------------------
 */

enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_REAL,
    JINJA_TEXT,
    JINJA_LIST,
    JINJA_DICT,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_METHOD,
    JINJA_FUNCTION,
};

/* Marks stay attached to bytes through all operations on a text. */
struct jinja_text {
    const char *at;
    size_t n;
    const struct merak_jinja_mark *mark;
    size_t n_marks;
    bool is_safe; /* by the filter safe: what is added to it is escaped */
};

struct jinja_node;
struct jinja_value;

/* What Python has in a list's place. */
enum jinja_form {
    JINJA_ROW,    /* a list */
    JINJA_TUPLE,  /* written in parentheses */
    JINJA_VIEW,   /* a dict's items: no index, not written */
    JINJA_RANGE,  /* not written */
    JINJA_STREAM, /* a generator: true, no length, empty once read */
};

struct jinja_list {
    struct jinja_value *item;
    size_t n, room;
    enum jinja_form form;
};

struct jinja_dict {
    struct jinja_pair *pair; /* in insertion order */
    size_t n, room;
    bool is_namespace;
};

/* The state of a `for`: the items, and the current one. */
struct jinja_loop {
    const struct jinja_node *node;
    const struct jinja_list *items;
    size_t i;
    int depth;                   /* of a recursive loop, from 0 */
    struct jinja_scope *outer;   /* around it */
    struct jinja_value *changed; /* the arguments of changed(), a list */
};

struct jinja_value {
    enum jinja_kind kind;
    const char *name; /* of an undefined value, a method or a function */
    union {
        bool truth;
        int64_t integer;
        double real;
        struct jinja_text text;
        struct jinja_list *list;
        struct jinja_dict *dict;
        struct jinja_loop *loop;
        struct jinja_macro *macro;
        struct jinja_value *self; /* of a method */
    };
};

struct jinja_pair {
    struct jinja_value key, value;
    bool read; /* the template has looked at it */
};

/* Text, or captured text, with its marks. */
struct jinja_out {
    char *at;
    size_t n, room;
    struct merak_jinja_mark *mark;
    size_t n_marks, mark_room;
};

#define JINJA_IS(v, of_kind) ((v).kind == JINJA_##of_kind)

struct jinja_value merak_jinja_undefined(const char *name);
struct jinja_value merak_jinja_bool(bool truth);
struct jinja_value merak_jinja_int(int64_t integer);
/* Not copied. */
struct jinja_value merak_jinja_text(const char *at, size_t n);
struct jinja_value merak_jinja_of_text(struct jinja_text text);
struct jinja_value merak_jinja_list(struct jinja_arena *a);
struct jinja_value merak_jinja_dict(struct jinja_arena *a);
void merak_jinja_append(struct jinja_arena *a, struct jinja_list *list,
                        struct jinja_value item);
/* A list of another form. */
struct jinja_value merak_jinja_formed(struct jinja_arena *a,
                                      enum jinja_form form);
/* Whoever asks has read it. */
struct jinja_value *merak_jinja_find(struct jinja_arena *a,
                                     const struct jinja_dict *dict,
                                     const char *key, size_t n);
struct jinja_value *merak_jinja_find_key(struct jinja_arena *a,
                                         const struct jinja_dict *dict,
                                         struct jinja_value key);
void merak_jinja_set(struct jinja_arena *a, struct jinja_dict *dict,
                     struct jinja_value key, struct jinja_value value);

bool merak_jinja_truth(struct jinja_value v);
bool merak_jinja_same(struct jinja_arena *arena, struct jinja_value a,
                      struct jinja_value b);
bool merak_jinja_is(struct jinja_value v, const char *text);
/* As Python's str(). */
struct jinja_text merak_jinja_str(struct jinja_arena *a, struct jinja_value v);
/* As json.dumps(). */
struct jinja_json_style {
    bool ascii, sorted;
    int indent;             /* -1: on one line */
    const char *item, *key; /* between items, behind a key */
};
struct jinja_text merak_jinja_json(struct jinja_arena *a, struct jinja_value v,
                                   const struct jinja_json_style *how);
/* Is it a list, and of this form? */
bool merak_jinja_has_form(struct jinja_value v, enum jinja_form form);
/* What a `for` iterates over: items, keys or characters.  A stream is empty
 * after it. */
struct jinja_list *merak_jinja_items(struct jinja_arena *a,
                                     struct jinja_value v);

void merak_jinja_put(struct jinja_arena *a, struct jinja_out *out,
                     struct jinja_text text);
void merak_jinja_mark_put(struct jinja_arena *a, struct jinja_out *out,
                          struct merak_jinja_mark mark);
struct jinja_value merak_jinja_out_text(const struct jinja_out *out);

/* Bytes [begin, end), with the marks that overlap them. */
struct jinja_text merak_jinja_cut(struct jinja_arena *a, struct jinja_text text,
                                  size_t begin, size_t end);
/* Strip characters of `set` at the ends; NULL: white space. */
struct jinja_text merak_jinja_strip(struct jinja_arena *a,
                                    struct jinja_text text, const char *set,
                                    size_t n_set, bool left, bool right);
/* Bytes of the character at text, 1 if it is not UTF-8. */
size_t merak_jinja_char_bytes(const char *text, size_t n);
/* Bytes of white space at the beginning of a text, as in Python. */
size_t merak_jinja_space(const char *text, size_t n);

/* jinja_json.c: a value of JSON, whose texts come from a message. */
struct jinja_value merak_jinja_of_json(struct jinja_arena *a,
                                       const struct json_t *json, int message);

/* --- programs --------------------------------------------------------------
 */

enum jinja_op {
    /* statements */
    JINJA_OUTPUT,     /* a */
    JINJA_IF,         /* a, body, other */
    JINJA_FOR,        /* targets, a, test b, body, other */
    JINJA_SET,        /* targets, a */
    JINJA_CAPTURE,    /* targets, body, filters of b */
    JINJA_DEFINE,     /* name, list of parameters, body */
    JINJA_GENERATION, /* body */
    JINJA_FILTERED,   /* body, filters of b */
    JINJA_WITH,       /* list of names and values, body */
    JINJA_CALL_BLOCK, /* a, the call; b, the macro that is its caller() */
    JINJA_BREAK,
    JINJA_CONTINUE,
    /* expressions */
    JINJA_CONST, /* value */
    JINJA_NAME,
    JINJA_MAKE_LIST, /* list; a tuple if it has a value */
    JINJA_MAKE_DICT, /* list of alternating keys and values */
    JINJA_ATTRIBUTE, /* a, name */
    JINJA_ITEM,      /* a, b */
    JINJA_SLICE,     /* a; list of begin, end, step, each may be NULL */
    JINJA_CALL,      /* a, list of arguments */
    JINJA_FILTER,    /* a, name, list of arguments */
    JINJA_TEST,      /* a, name, list of arguments */
    JINJA_NOT,
    JINJA_MINUS,
    JINJA_AND,
    JINJA_OR,
    JINJA_COMPARE,  /* a, name, b */
    JINJA_BINARY,   /* a, name, b */
    JINJA_CHOOSE,   /* a if b else other */
    JINJA_CAPTURED, /* the input of a block's filter */
};

/* An entry of a list of arguments, parameters (`node` is then a default) or
 * items.  Arguments called "*" and "**" are all of a list, or a dict. */
struct jinja_entry {
    const char *name; /* of a keyword or parameter; else NULL */
    struct jinja_node *node;
    struct jinja_entry *next;
};

/* What `set` and `for` set: a name, or a field of a name. */
struct jinja_target {
    const char *name, *field;
    bool is_tuple;              /* of one, "(a,)" */
    struct jinja_target *inner; /* in parentheses, in place of a name */
    struct jinja_target *next;
};

struct jinja_node {
    enum jinja_op op;
    int line;
    const char *name;
    struct jinja_value value;
    struct jinja_node *a, *b, *body, *other, *next;
    struct jinja_entry *list;
    struct jinja_target *target;
};

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* where it was defined */
};

/* What a macro's body names, in its node's value: then it may be called with
 * more arguments than it has, or by a block. */
enum { JINJA_HAS_VARARGS = 1, JINJA_HAS_KWARGS = 2, JINJA_HAS_CALLER = 4 };

/* jinja_lex.c: the tokens of a program. */
enum jinja_token_kind {
    JINJA_T_END,
    JINJA_T_DATA,
    JINJA_T_OPEN,  /* of a statement */
    JINJA_T_PRINT, /* of an expression that is printed */
    JINJA_T_CLOSE, /* of either */
    JINJA_T_NAME,
    JINJA_T_TEXT,
    JINJA_T_INT,
    JINJA_T_REAL,
    JINJA_T_SIGN,
};

struct jinja_token {
    enum jinja_token_kind kind;
    int line;
    const char *at; /* for text the text; else as written, terminated by 0 */
    size_t n;
    double real;
    int64_t integer;
};

/* All of them; the last is END. */
struct jinja_token *merak_jinja_lex(struct jinja_arena *a, const char *text,
                                    size_t n);
/* jinja_body.c */
struct jinja_node *merak_jinja_parse(struct jinja_arena *a,
                                     const struct jinja_token *token);

/* --- running ---------------------------------------------------------------
 */

struct jinja_scope {
    struct jinja_dict names;
    struct jinja_scope *outer;
};

struct jinja_run {
    struct jinja_arena *a;
    struct jinja_scope *scope;
    struct jinja_out *out;
    enum { JINJA_GO_ON, JINJA_LEAVE, JINJA_NEXT } flow;
    struct jinja_value captured;
    time_t now;
    bool has_date;
};

/* Arguments of a call, in the order of the call, including those with a
 * name. */
struct jinja_args {
    struct jinja_value *value;
    const char **name; /* NULL: by position */
    size_t n;
};

/* jinja_eval.c */
struct jinja_value merak_jinja_eval(struct jinja_run *r,
                                    const struct jinja_node *node);
/* Assign in the innermost scope; several targets take a list's items. */
void merak_jinja_assign(struct jinja_run *r, const struct jinja_target *t,
                        struct jinja_value value);
void merak_jinja_put_name(struct jinja_run *r, const char *name,
                          struct jinja_value value);
/* Enter a new scope inside another. */
void merak_jinja_enter(struct jinja_run *r, struct jinja_scope *outer);
/* jinja_run.c: run a list of statements. */
void merak_jinja_run(struct jinja_run *r, const struct jinja_node *node);
struct jinja_value merak_jinja_call_macro(struct jinja_run *r,
                                          const struct jinja_macro *macro,
                                          const struct jinja_args *args);
/* jinja_macro.c: arguments, a call, and the call of a block. */
struct jinja_args merak_jinja_eval_args(struct jinja_run *r,
                                        const struct jinja_entry *entry);
struct jinja_value merak_jinja_eval_call(struct jinja_run *r,
                                         const struct jinja_node *node);
struct jinja_value merak_jinja_call_block(struct jinja_run *r,
                                          const struct jinja_node *node);
/* Call a function, a method, a macro, or a recursive loop. */
struct jinja_value merak_jinja_call(struct jinja_run *r, struct jinja_value f,
                                    const struct jinja_args *args);
/* jinja_run.c: loop(items) in a recursive loop. */
struct jinja_value merak_jinja_recurse(struct jinja_run *r,
                                       const struct jinja_loop *loop,
                                       const struct jinja_args *args);
struct jinja_value merak_jinja_filter(struct jinja_run *r, const char *name,
                                      struct jinja_value v,
                                      const struct jinja_args *args);
bool merak_jinja_test(struct jinja_run *r, const char *name,
                      struct jinja_value v, const struct jinja_args *args);
/* By a sign: "==", "<", "in", "not in" and others. */
bool merak_jinja_compare(struct jinja_run *r, const char *sign,
                         struct jinja_value x, struct jinja_value y);
bool merak_jinja_is_function(const char *name);
bool merak_jinja_is_method(struct jinja_value v, const char *name);
/* a in b. */
bool merak_jinja_in(struct jinja_run *r, struct jinja_value a,
                    struct jinja_value b);

#endif
