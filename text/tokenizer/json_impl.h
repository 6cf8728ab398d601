/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/json_impl.h - shared by the readers of a tokenizer.json */
#ifndef MERAK_TEXT_TOKENIZER_JSON_IMPL_H
#define MERAK_TEXT_TOKENIZER_JSON_IMPL_H

#include "text/tokenizer/vocab.h"

#include <jansson.h>

#define MERAK_ALPHABET_END 0x144 /* last character of the alphabet plus one */

struct merak_json_loader {
    json_t *root;
    const char *path;
    struct merak_vocab *vocab;
    json_t *tokens;  /* the model's: token -> id, or a list with scores */
    bool unigram;    /* the latter */
    char nul[4];     /* stands for NUL in the file's texts; "": none has one */
    bool byte_level; /* tokens are written in the byte-level alphabet */
    int16_t byte_of[MERAK_ALPHABET_END]; /* -1: not in the alphabet */
    struct merak_error *err;
};

/* "PATH: WHAT is GIVEN, supported: WANTED". */
enum merak_status merak_json_unsupported(struct merak_json_loader *ld,
                                         const char *what, const json_t *given,
                                         const char *wanted);
enum merak_status merak_json_malformed(struct merak_json_loader *ld,
                                       const char *what);
bool merak_json_is_unset(const json_t *value);
bool merak_json_is_text(const json_t *value, const char *text);

/* A text of the file, of *n_p bytes, to be freed; NULL without memory. */
char *merak_json_text(const struct merak_json_loader *ld, const char *text,
                      size_t *n_p);

/* json_tokens.c: vocab->token, index and added. */
enum merak_status merak_json_tokens(struct merak_json_loader *ld) MERAK_CHECKED;
/* The id of a model's token, as written in the file, or -1. */
int32_t merak_json_token_id(const struct merak_json_loader *ld,
                            const char *text);
/* json_merges.c: vocab->bpe. */
enum merak_status merak_json_merges(struct merak_json_loader *ld,
                                    json_t *model) MERAK_CHECKED;
/* json_unigram.c: vocab->unigram. */
enum merak_status merak_json_unigram(struct merak_json_loader *ld,
                                     json_t *model) MERAK_CHECKED;
/* json_rules.c: normalizer, pre-tokenizer, post-processor and decoder:
 * vocab->rules and byte_level. */
enum merak_status merak_json_rules(struct merak_json_loader *ld) MERAK_CHECKED;

#endif
