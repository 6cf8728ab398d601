/* SPDX-License-Identifier: Apache-2.0 */
/* io/template/jinja.h - running chat templates
 *
 * Models are published with a program in the Jinja language that turns
 * messages into text.  It is run here as in transformers: with trim_blocks and
 * lstrip_blocks, without one newline at the end of the program, and with
 * raise_exception(), strftime_now() and the `generation` block.
 *
 * Other features of the language, which no published template needs for
 * messages of text (imports, inheritance, most filters), are an error when
 * reached, with line and name.
 */
#ifndef MERAK_IO_TEMPLATE_JINJA_H
#define MERAK_IO_TEMPLATE_JINJA_H

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

/* {"role": role, "content": content}. */
struct merak_jinja_message {
    const char *role, *content;
    size_t n; /* bytes of content */
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
    bool add_generation_prompt;
    time_t now; /* for strftime_now(), in the local time zone */
};

/* The origin of a part of the output: the content of a message, from 0, or,
 * -1, a `generation` block.  What a template removes from the content is not
 * in it. */
struct merak_jinja_mark {
    size_t begin, end;
    int message;
};

/* Initialize with zeros; may be reused. */
struct merak_jinja_output {
    char *text;
    size_t n;
    struct merak_jinja_mark *mark; /* ordered by `begin` */
    size_t n_marks;
    bool has_date; /* strftime_now() was called */
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
