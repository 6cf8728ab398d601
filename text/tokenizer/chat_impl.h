/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/chat_impl.h - shared by what renders conversations */
#ifndef MERAK_TEXT_TOKENIZER_CHAT_IMPL_H
#define MERAK_TEXT_TOKENIZER_CHAT_IMPL_H

#include "text/tokenizer/chat.h"
#include "text/tokenizer/chat_formats.h"

#include "text/template/jinja.h"

#include <jansson.h>

enum { MERAK_MOST_WORDS = 32 };

struct merak_chat {
    struct merak_jinja *template; /* NULL: one of our rows .. */
    struct merak_chat_format format;
    const char *name;
    /* from the tokenizer's files */
    json_t *config, *map;
    struct merak_jinja_word word[MERAK_MOST_WORDS];
    size_t n_words;
    const char *bos, *eos;
    time_t now;
    bool has_date;
    struct merak_jinja_output made; /* output of the template */
    char unread[256];               /* names, "a, b" */
};

struct merak_chat_renderer {
    struct merak_chat *chat;
    struct merak_chat_text *out;
    struct merak_error *err;
    enum merak_status rc;
};

/* chat.c */
void merak_chat_put(struct merak_chat_renderer *r, const char *text, size_t n);
void merak_chat_add_answer(struct merak_chat_renderer *r, size_t begin,
                           size_t end);
/* chat_template.c: run the tokenizer's template. */
enum merak_status merak_chat_run_template(
    struct merak_chat *chat, const struct merak_chat_talk *talk,
    struct merak_chat_text *out, struct merak_error *err) MERAK_CHECKED;
/* chat_answers.c: add the answers of the text that was made. */
void merak_chat_find_answers(struct merak_chat_renderer *r,
                             const struct merak_jinja_input *in,
                             const struct merak_chat_talk *talk);
/* Is this a field of what the assistant says beside the content?  Has it
 * something in it? */
bool merak_chat_is_said(const char *key);
bool merak_chat_is_empty(const json_t *value);
/* A field of message i, from 0, that made no difference: it is remembered, or
 * refused if an answer is learned without it. */
enum merak_status merak_chat_note_unread(struct merak_chat *chat,
                                         const struct merak_chat_turn *turn,
                                         size_t i, const char *key,
                                         struct merak_error *err) MERAK_CHECKED;

#endif
