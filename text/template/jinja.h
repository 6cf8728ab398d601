/* SPDX-License-Identifier: Apache-2.0 */
/* text/template/jinja.h - running chat templates
 *
 * Models are published with a program in the Jinja language that turns
 * messages into text.  It is run here as in transformers: with trim_blocks and
 * lstrip_blocks, without one newline at the end of the program, and with
 * raise_exception(), strftime_now() and the `generation` block.
 *
 * Other features of the language, which no published template needs (imports,
 * inheritance, filters for HTML), are an error when reached, with line and
 * name.
 */
#ifndef MERAK_TEXT_TEMPLATE_JINJA_H
#define MERAK_TEXT_TEMPLATE_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "merak/status.h"

struct merak_jinja;

/*
 *   text  n bytes, UTF-8; copied
 *
 * MERAK_ERR_UNSUPPORTED names the line and what is not supported there.
 */
enum merak_status merak_jinja_compile(const char *text, size_t n,
                                      struct merak_jinja **jinja_p,
                                      struct merak_error *err) MERAK_CHECKED;
void merak_jinja_free(struct merak_jinja *jinja); /* NULL is fine */

struct json_t; /* jansson's */

/* {"role": role, "content": content}, or a whole object. */
struct merak_jinja_message {
    const char *role, *content;
    size_t n; /* bytes of content */
    const struct json_t *whole;
};

/* A name with a text, such as bos_token. */
struct merak_jinja_word {
    const char *name, *text;
};

struct merak_jinja_input {
    const struct merak_jinja_message *message;
    size_t n_messages;
    const struct merak_jinja_word *word;
    size_t n_words;
    /* More names: "tools", "documents" and others; NULL: none. */
    const struct json_t *more;
    bool add_generation_prompt;
    time_t now; /* for strftime_now(), in the local time zone */
};

/* The origin of a part of the output: what a message says, from 0, in its
 * content or any other field except its role; or, -1, a `generation` block.
 * What a template removes from the content is not in it. */
struct merak_jinja_mark {
    size_t begin, end;
    int message;
    const char *source; /* the first byte, where the message has it: only to
                           tell what is put out twice; NULL: not known */
};

/* Initialize with zeros; may be reused. */
struct merak_jinja_output {
    char *text;
    size_t n;
    struct merak_jinja_mark *mark; /* ordered by `begin` */
    size_t n_marks;
    bool has_date; /* strftime_now() was called */
    /* Fields of whole messages that the template did not look at, borrowed from
     * their objects. */
    struct merak_jinja_unread {
        int message;
        const char *key;
    } * unread;
    size_t n_unread;
};
void merak_jinja_output_fini(struct merak_jinja_output *out);

/*
 * MERAK_ERR_FORMAT if the template raises an exception, with its text;
 * MERAK_ERR_UNSUPPORTED for what is not supported, or takes too much time or
 * memory.  Thread-safe.
 */
enum merak_status merak_jinja_render(const struct merak_jinja *jinja,
                                     const struct merak_jinja_input *in,
                                     struct merak_jinja_output *out,
                                     struct merak_error *err) MERAK_CHECKED;

#endif
