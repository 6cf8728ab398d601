/* SPDX-License-Identifier: Apache-2.0 */
/* base/nearest.h - find the known word that a misspelled one probably means
 */
#ifndef MERAK_BASE_NEAREST_H
#define MERAK_BASE_NEAREST_H

#include <stddef.h>

/* The nearest of the names offered, by number of letters left out, inserted,
 * changed, or swapped with their neighbor. */
struct merak_nearest {
    const char *word;
    size_t n;         /* letters of the word */
    const char *name; /* NULL: none is near enough */
    int distance;
};

/* `arg` as typed; leading dashes and "=VALUE" are ignored. */
void merak_nearest_init(struct merak_nearest *nearest, const char *arg);
/* option_words.c: what an option of another trainer, as typed, is called here;
 * NULL: not known.  *after is 0 at first, for a further word the last one's. */
const char *merak_option_word(const char *arg, size_t *after);
/* `name` has to outlive *nearest; the first of equally near ones is kept. */
void merak_nearest_offer(struct merak_nearest *nearest, const char *name);
/* " (did you mean --NAME?)", or "" if nothing is near; returns text. */
const char *merak_nearest_text(const struct merak_nearest *nearest, char *text,
                               size_t bytes);
/* The same of a word that is no option: " (did you mean NAME?)". */
const char *merak_nearest_word_text(const struct merak_nearest *nearest,
                                    char *text, size_t bytes);
enum { MERAK_NEAREST_TEXT = 64 };

#endif
