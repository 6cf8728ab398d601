/* SPDX-License-Identifier: Apache-2.0 */
/* io/template/jinja.h - chat templates, run
 *
 * Models are published with a program in the Jinja language that makes a text
 * of messages.  This runs it as transformers does: blocks are trimmed and
 * stripped on the left, one newline at the end of the program is left out, and
 * there are raise_exception(), strftime_now() and the `generation` block.
 *
 * What the language has beside, and no published template needs for messages
 * of text (imports, inheritance, most filters), is an error where it is come
 * to, with its line and name.
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
 * MERAK_ERR_UNSUPPORTED names the line and what is not understood there.
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

/* A name with a text, as bos_token. */
struct merak_jinja_word {
    const char *name, *text;
};

struct merak_jinja_input {
    const struct merak_jinja_message *message;
    size_t n_messages;
    const struct merak_jinja_word *word;
    size_t n_words;
    bool add_generation_prompt;
    time_t now; /* of strftime_now(), in the local time zone */
};

/* Where a part of the output is from: a message's content, from 0, or, -1, a
 * `generation` block.  What a template cuts off the content is not in it. */
struct merak_jinja_mark {
    size_t begin, end;
    int message;
};

/* Zeros at first; may be used again. */
struct merak_jinja_output {
    char *text;
    size_t n;
    struct merak_jinja_mark *mark; /* in the order of their begins */
    size_t n_marks;
    bool has_date; /* strftime_now() was called */
};
void merak_jinja_output_fini(struct merak_jinja_output *out);

/*
 * MERAK_ERR_FORMAT where the template raises an exception, with its text;
 * MERAK_ERR_UNSUPPORTED for what is not understood or takes too long or too
 * much memory.  Safe from any thread.
 */
enum merak_status merak_jinja_render(const struct merak_jinja *jinja,
                                     const struct merak_jinja_input *in,
                                     struct merak_jinja_output *out,
                                     struct merak_error *err) MERAK_CHECKED;

#endif
