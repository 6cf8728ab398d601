/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/vocab.h - the contents of a tokenizer's file */
#ifndef MERAK_TEXT_TOKENIZER_VOCAB_H
#define MERAK_TEXT_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/tokenizer/added.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/rules.h"
#include "text/tokenizer/unigram.h"

/* A token's bytes, as in a text; NULL: no token has this id. */
struct merak_token_text {
    char *bytes;
    size_t n;
};

struct merak_vocab {
    struct merak_token_text *token; /* by id */
    size_t n;                       /* largest id plus one */
    struct merak_added_token *added;
    size_t n_added;
    struct merak_rules rules;
    struct merak_token_index *index; /* of the model's tokens, as written */
    struct merak_bpe *bpe;
    struct merak_unigram *unigram; /* instead of bpe */
    int32_t eod; /* ends a text, according to the file; -1: none */
};

/* Load a tokenizer.json. */
enum merak_status merak_vocab_load(const char *path, struct merak_vocab *vocab,
                                   struct merak_error *err) MERAK_CHECKED;
/* Load a SentencePiece model, tokenizer.model. */
enum merak_status merak_vocab_load_spm(const char *path,
                                       struct merak_vocab *vocab,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_vocab_fini(struct merak_vocab *vocab);

#endif
