/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokenizer/chat_formats.h - what the usual templates make of messages */
#ifndef MERAK_IO_TOKENIZER_CHAT_FORMATS_H
#define MERAK_IO_TOKENIZER_CHAT_FORMATS_H

#include <stdbool.h>

#include "io/tokenizer/chat.h"

/* Where what the system says goes. */
enum merak_chat_system {
    MERAK_CHAT_SYSTEM_TURN,
    MERAK_CHAT_SYSTEM_FIRST_USER, /* into what the user says first */
    MERAK_CHAT_SYSTEM_LAST_USER,
    MERAK_CHAT_SYSTEM_REFUSED,
};

/* In texts BOS and EOS stand for the tokenizer's tokens. */
#define BOS "\1"
#define EOS "\2"

struct merak_chat_format {
    const char *name;
    const char *begin, *end;  /* of the whole text */
    const char *turn[3][2];   /* by role: what comes before and behind;
                                 behind an answer what is no part of it */
    const char *answer_end;   /* what is: it tells that the answer is over */
    const char *system_in[2]; /* around it where it is in a user's turn */
    const char *no_system;    /* where none is said; NULL: nothing */
    const char *last_answer;  /* before the last one, besides; NULL: nothing */
    enum merak_chat_system system;
    bool trims;            /* white space around what is said is left out */
    bool alternates;       /* user and assistant must take turns */
    const char *bos, *eos; /* unless the tokenizer says */
};

extern const struct merak_chat_format merak_chat_formats[]; /* name NULL ends */

#endif
