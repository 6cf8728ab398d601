/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokenizer/chat.h - conversations as the text that a model was taught
 *
 * Models come with a template, a program that makes a text of messages
 * (`chat_template` of tokenizer_config.json, or chat_template.jinja).  It is
 * not run: the usual ones are recognised by marks in them, and what they make
 * is a row of a table (chat_formats.c).
 */
#ifndef MERAK_IO_TOKENIZER_CHAT_H
#define MERAK_IO_TOKENIZER_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "io/tokenizer/buffer.h"
#include "merak/status.h"

enum merak_chat_role { MERAK_CHAT_SYSTEM, MERAK_CHAT_USER, MERAK_CHAT_ANSWER };

struct merak_chat_turn {
    enum merak_chat_role role;
    const char *text;
    size_t n;
};

/* A conversation's text, and which of it are answers, what ends each of them
 * included.  Zeros at first; may be used again. */
struct merak_chat_text {
    struct merak_buffer text;
    struct merak_chat_span {
        size_t begin, end;
    } * answer;
    size_t n_answers, room;
};
void merak_chat_text_fini(struct merak_chat_text *text);

struct merak_chat;

/*
 *   tokenizer  as of merak_tokenizer_open(): the template is looked for beside
 *              it
 *   format     a word of merak_chat_names(), or NULL: the template says
 *
 * MERAK_ERR_UNSUPPORTED where there is no template, or none that is known,
 * MERAK_ERR_CONFIG of a word that is none; both name the words there are.
 */
enum merak_status merak_chat_open(const char *tokenizer, const char *format,
                                  struct merak_chat **chat_p,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_chat_close(struct merak_chat *chat);
const char *merak_chat_name(const struct merak_chat *chat);
/* "chatml, gemma, .." */
const char *merak_chat_names(void);
/*
 * The text of a conversation, as the model's own template makes it without a
 * prompt for what is to follow.  MERAK_ERR_FORMAT names the message, from 1,
 * that the template has no place for.
 */
enum merak_status merak_chat_render(const struct merak_chat *chat,
                                    const struct merak_chat_turn *turn,
                                    size_t n, struct merak_chat_text *out,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
