/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokenizer/added.h - tokens that are found in a text as they stand, and
 * not merged from its pieces */
#ifndef MERAK_IO_TOKENIZER_ADDED_H
#define MERAK_IO_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

struct merak_added_token {
    int32_t id;
    bool normalized;     /* looked for in normalized text, after the others */
    bool special;        /* not part of the text when it is decoded */
    bool single_word;    /* not found beside what belongs to a word */
    bool lstrip, rstrip; /* takes the blanks before, or behind it, too */
    char *text;          /* what is looked for: normalized if need be */
    size_t n;
};

struct merak_added_set; /* of all that are, or are not, `normalized` */

enum merak_status merak_added_set_create(const struct merak_added_token *tokens,
                                         size_t n, bool normalized,
                                         struct merak_added_set **set_p,
                                         struct merak_error *err) MERAK_CHECKED;
void merak_added_set_destroy(struct merak_added_set *set);

/* A part of a text: a token, or what is between. */
struct merak_added_part {
    const struct merak_added_token *token; /* NULL: text */
    size_t from, end;
};
typedef enum merak_status (*merak_part_fn)(void *arg,
                                           const struct merak_added_part *part,
                                           struct merak_error *err);
/*
 * Calls fn for the parts in order; a failure ends it.  The leftmost token is
 * taken, the longest of those that begin there.
 */
enum merak_status merak_added_cut(const struct merak_added_set *set,
                                  const unsigned char *text, size_t n,
                                  merak_part_fn fn, void *arg,
                                  struct merak_error *err) MERAK_CHECKED;

#endif
