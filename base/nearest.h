/* SPDX-License-Identifier: Apache-2.0 */
/* base/nearest.h - the known word that a mistyped one was probably meant to be
 */
#ifndef MERAK_BASE_NEAREST_H
#define MERAK_BASE_NEAREST_H

#include <stddef.h>

/* The nearest of the names that were offered, by letters that were left out,
 * put in, changed, or swapped with their neighbour. */
struct merak_nearest {
    const char *word;
    size_t n;         /* letters of the word */
    const char *name; /* NULL: none is near enough to be meant */
    int distance;
};

/* `arg` as it was typed; dashes in front and "=VALUE" are no part of it. */
void merak_nearest_init(struct merak_nearest *nearest, const char *arg);
/* `name` has to live as long as *nearest; of equally near ones the first. */
void merak_nearest_offer(struct merak_nearest *nearest, const char *name);
/* " (did you mean --NAME?)", or "" where nothing is near; `text` itself. */
const char *merak_nearest_text(const struct merak_nearest *nearest, char *text,
                               size_t bytes);
enum { MERAK_NEAREST_TEXT = 64 };

#endif
