/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/chat_formats.h - the usual chat formats */
#ifndef MERAK_TEXT_TOKENIZER_CHAT_FORMATS_H
#define MERAK_TEXT_TOKENIZER_CHAT_FORMATS_H

#include <stdbool.h>

#include "text/tokenizer/chat.h"

/* Where the system's message goes. */
enum merak_chat_system {
    MERAK_CHAT_SYSTEM_TURN,
    MERAK_CHAT_SYSTEM_FIRST_USER, /* into the user's first message */
    MERAK_CHAT_SYSTEM_LAST_USER,
    MERAK_CHAT_SYSTEM_REFUSED,
};

/* In texts, BOS and EOS are placeholders for the tokenizer's tokens. */
#define BOS "\1"
#define EOS "\2"

struct merak_chat_format {
    const char *name;
    const char *begin, *end;  /* of the whole text */
    const char *turn[3][2];   /* by role: text before and after; after an
                                 answer, what is not part of it */
    const char *answer_end;   /* what is part of it: the end of the answer */
    const char *system_in[2]; /* around a system message in a user turn */
    const char *no_system;    /* if there is none; NULL: nothing */
    const char *last_answer;  /* also before the last answer; NULL: nothing */
    enum merak_chat_system system;
    bool trims;            /* white space around messages is removed */
    bool alternates;       /* user and assistant must take turns */
    const char *bos, *eos; /* defaults, if the tokenizer has none */
};

extern const struct merak_chat_format merak_chat_formats[]; /* name NULL ends */

#endif
