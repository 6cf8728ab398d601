/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.c - find the known word that a misspelled one probably means */
#include "config.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

/* Longer words are not compared: names of options and tensors are shorter. */
enum { LONGEST = 127 };

void merak_nearest_init(struct merak_nearest *nearest, const char *arg)
{
    arg += strspn(arg, "-");
    *nearest = (struct merak_nearest){
        .word = arg, .n = strcspn(arg, "="), .distance = LONGEST};
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The restricted Damerau-Levenshtein distance, row by row over the prefixes of
 * the first word. */
static int distance(const char *a, size_t na, const char *b, size_t nb)
{
    int rows[3][LONGEST + 1];
    int *older = rows[0], *old = rows[1], *row = rows[2], *spare;

    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        spare = older;
        older = old;
        old = row;
        row = spare;
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            row[j] = least(least(old[j], row[j - 1]) + 1,
                           old[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], older[j - 2] + 1);
        }
    }
    return row[nb];
}

void merak_nearest_offer(struct merak_nearest *nearest, const char *name)
{
    size_t n = strlen(name);
    int d;

    if (nearest->n == 0 || nearest->n > LONGEST || n > LONGEST)
        return;
    d = distance(nearest->word, nearest->n, name, n);
    /* One letter in three may be wrong: "otu" means out, "foo" not top. */
    if (d > (int)(nearest->n + 2) / 3 || d >= nearest->distance)
        return;
    nearest->name = name;
    nearest->distance = d;
}

const char *merak_nearest_text(const struct merak_nearest *nearest, char *text,
                               size_t bytes)
{
    text[0] = '\0';
    if (nearest->name != NULL)
        snprintf(text, bytes, " (did you mean --%s?)", nearest->name);
    return text;
}

const char *merak_nearest_word_text(const struct merak_nearest *nearest,
                                    char *text, size_t bytes)
{
    text[0] = '\0';
    if (nearest->name != NULL)
        snprintf(text, bytes, " (did you mean %s?)", nearest->name);
    return text;
}
