/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/chat.h - conversations as text in a model's chat format
 *
 * Models come with a template, a program that turns messages into text
 * (`chat_template` of tokenizer_config.json, or chat_template.jinja), which is
 * run (text/template).  For tokenizers without one, a table has the usual
 * formats (chat_formats.c), to be selected by name.
 */
#ifndef MERAK_TEXT_TOKENIZER_CHAT_H
#define MERAK_TEXT_TOKENIZER_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "text/tokenizer/buffer.h"
#include "merak/status.h"

enum merak_chat_role {
    MERAK_CHAT_SYSTEM,
    MERAK_CHAT_USER,
    MERAK_CHAT_ANSWER,
    MERAK_CHAT_OTHER, /* a tool's result and the like: for templates only */
};

struct json_t; /* jansson's */

struct merak_chat_turn {
    enum merak_chat_role role;
    const char *text; /* the content; NULL: it is not a text */
    size_t n;
    const struct json_t *whole; /* all of the message; NULL: only the above */
    bool context;               /* an answer that is not to be learned */
};

/* Of a pair of answers to the same prompt, the second comes right after the
 * first. */
enum merak_chat_side {
    MERAK_CHAT_ALONE,
    MERAK_CHAT_CHOSEN,
    MERAK_CHAT_REJECTED
};

struct merak_chat_talk {
    const struct merak_chat_turn *turn;
    size_t n;
    /* For a template, {"tools": .., "documents": .., ..}; NULL: nothing */
    const struct json_t *more;
    enum merak_chat_side side;
};

/* A conversation's text, and which parts of it are answers, each with the
 * token that ends it.  Initialize with zeros; may be reused. */
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
 *   tokenizer  as for merak_tokenizer_open(): the template is searched next to
 *              it
 *   format     a name in merak_chat_names(), or NULL: use the template
 *
 * MERAK_ERR_UNSUPPORTED if there is no template, or it cannot be run,
 * MERAK_ERR_CONFIG for an unknown name; all list the names.  A template that
 * asks for the date gets today's, or that of the environment variable
 * SOURCE_DATE_EPOCH.
 */
enum merak_status merak_chat_open(const char *tokenizer, const char *format,
                                  struct merak_chat **chat_p,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_chat_close(struct merak_chat *chat);
/* The format's name, or the name of the template's file. */
const char *merak_chat_name(const struct merak_chat *chat);
/* Has one of the texts so far asked for the date? */
bool merak_chat_has_date(const struct merak_chat *chat);
/* Fields of messages that made no difference so far, "name, id"; "" if there
 * are none.  Borrowed. */
const char *merak_chat_unread(const struct merak_chat *chat);
void merak_chat_forget_unread(struct merak_chat *chat);
/* "chatml, gemma, .." */
const char *merak_chat_names(void);
/*
 * The text of a conversation, as made by the model's own template without a
 * generation prompt.  An answer extends from the beginning of its content, of
 * the thoughts before it, or of the calls of tools in its place, to the token
 * that ends it; if the template marks what is generated, those parts are used.
 *
 * MERAK_ERR_FORMAT gives the template's reason for refusing the messages, or
 * the number, from 1, of the message that is not allowed: also an answer with
 * thoughts or calls that the text would not have.
 */
enum merak_status merak_chat_render(struct merak_chat *chat,
                                    const struct merak_chat_talk *talk,
                                    struct merak_chat_text *out,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
