/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/token_index.h - the id of a token by its text */
#ifndef MERAK_TEXT_TOKENIZER_TOKEN_INDEX_H
#define MERAK_TEXT_TOKENIZER_TOKEN_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

struct merak_token_index;

/* For max_tokens texts. */
enum merak_status
merak_token_index_create(size_t max_tokens, struct merak_token_index **index_p,
                         struct merak_error *err) MERAK_CHECKED;
void merak_token_index_destroy(struct merak_token_index *index);
/* The text is copied; if it is given twice the first id is kept. */
enum merak_status merak_token_index_add(struct merak_token_index *index,
                                        const void *text, size_t n, int32_t id,
                                        struct merak_error *err) MERAK_CHECKED;
/* The id, or -1. */
int32_t merak_token_index_find(const struct merak_token_index *index,
                               const void *text, size_t n);

#endif
