/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/data_answers.h - prompts and messages as tokens, and which of them are
 * answers */
#ifndef MERAK_CMD_DATA_ANSWERS_H
#define MERAK_CMD_DATA_ANSWERS_H

#include <stdbool.h>
#include <stdint.h>

#include "text/tokenizer/chat.h"
#include "text/tokenizer/tokenizer.h"
#include "io/tokens/pack.h"

struct merak_answers {
    struct merak_tokenizer *tokenizer;
    struct merak_pack *pack;
    struct merak_chat *chat; /* for messages */
    bool special;    /* put the tokens of the tokenizer's template around a
                        prompt and its completion */
    bool append_eod; /* also after messages */
    uint64_t twice;  /* out: documents that begin with one special token twice,
                        as nothing that was trained on does */
    int32_t twice_id; /* the first one's token */
    /* scratch for the parts; initially zeros */
    struct merak_chat_text text;
    struct merak_answer_ids {
        int32_t *id;
        bool *counted;
        size_t n, room;
    } ids, chosen;
};

/*
 * Add a conversation to the pack as a document; the first of a pair is kept
 * until the second comes.  Answers are predicted,
 * including what ends them: for a completion the tokenizer's end of a
 * document, if it has one.
 *
 * A conversation is tokenized as one text, as Hugging Face's
 * apply_chat_template() does; a token that contains a part of an answer
 * belongs to the answer.  If tokens do not spell the text (it was normalized),
 * its parts are tokenized separately.
 */
enum merak_status merak_answers_take(struct merak_answers *answers,
                                     bool is_chat,
                                     const struct merak_chat_talk *talk,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_answers_fini(struct merak_answers *answers);

#endif
