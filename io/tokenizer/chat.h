/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokenizer/chat.h - conversations as the text that a model was taught
 *
 * Models come with a template, a program that makes a text of messages
 * (`chat_template` of tokenizer_config.json, or chat_template.jinja).  It is
 * run (io/template).  For tokenizers without one, the usual formats are rows of
 * a table (chat_formats.c) that can be asked for by name.
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
 * MERAK_ERR_UNSUPPORTED where there is no template, or none that is understood,
 * MERAK_ERR_CONFIG of a word that is none; all name the words there are.  A
 * template that asks for the date gets today's, or that of the environment's
 * SOURCE_DATE_EPOCH.
 */
enum merak_status merak_chat_open(const char *tokenizer, const char *format,
                                  struct merak_chat **chat_p,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_chat_close(struct merak_chat *chat);
/* The format's word, or the name of the file that the template is of. */
const char *merak_chat_name(const struct merak_chat *chat);
/* Is the date in one of the texts so far? */
bool merak_chat_has_date(const struct merak_chat *chat);
/* "chatml, gemma, .." */
const char *merak_chat_names(void);
/*
 * The text of a conversation, as the model's own template makes it without a
 * prompt for what is to follow.  An answer goes from where what was said
 * begins, or the thoughts before it, to the token that ends it; where the
 * template marks what is generated, that.
 *
 * MERAK_ERR_FORMAT says why the template refuses the messages, or names the
 * one, from 1, that it has no place for.
 */
enum merak_status merak_chat_render(struct merak_chat *chat,
                                    const struct merak_chat_turn *turn,
                                    size_t n, struct merak_chat_text *out,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
