/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokenizer/json.h - what a tokenizer.json of the GPT-2 kind holds */
#ifndef MERAK_IO_TOKENIZER_JSON_H
#define MERAK_IO_TOKENIZER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/tokenizer/bpe.h"

/* A token's bytes; NULL: no token has this id. */
struct merak_token_text {
    char *bytes;
    size_t n;
};

/* Found in the text as it stands, before it is cut into pieces. */
struct merak_added_token {
    int32_t id;
    bool normalized; /* looked for after those that are not */
};

struct merak_vocab {
    struct merak_token_text *token; /* by id */
    size_t n;                       /* largest id plus one */
    struct merak_added_token *added;
    size_t n_added;
    struct merak_bpe *bpe;
};

enum merak_status merak_vocab_load(const char *path, struct merak_vocab *vocab,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_vocab_fini(struct merak_vocab *vocab);

#endif
