/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/added.h - added tokens, which are matched verbatim in a text
 * and not merged from its pieces */
#ifndef MERAK_TEXT_TOKENIZER_ADDED_H
#define MERAK_TEXT_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

struct merak_added_token {
    int32_t id;
    bool normalized;     /* matched in normalized text, after the others */
    bool special;        /* left out when decoding */
    bool single_word;    /* not matched next to a word character */
    bool lstrip, rstrip; /* also takes the blanks before, or after it */
    char *text;          /* the text to match, normalized if needed */
    size_t n;
};

struct merak_added_set; /* of all tokens that are, or are not, `normalized` */

enum merak_status merak_added_set_create(const struct merak_added_token *tokens,
                                         size_t n, bool normalized,
                                         struct merak_added_set **set_p,
                                         struct merak_error *err) MERAK_CHECKED;
void merak_added_set_destroy(struct merak_added_set *set);

/* A part of a text: a token, or text between tokens. */
struct merak_added_part {
    const struct merak_added_token *token; /* NULL: text */
    size_t from, end;
};
typedef enum merak_status (*merak_part_fn)(void *arg,
                                           const struct merak_added_part *part,
                                           struct merak_error *err);
/*
 * Call fn for the parts in order, until it fails.  The leftmost token is
 * taken, and of those that begin there the longest.
 */
enum merak_status merak_added_cut(const struct merak_added_set *set,
                                  const unsigned char *text, size_t n,
                                  merak_part_fn fn, void *arg,
                                  struct merak_error *err) MERAK_CHECKED;

#endif
