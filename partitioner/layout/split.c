/* SPDX-License-Identifier: Apache-2.0 */
/* split.c - what tensor ranks divide among them, by layer, and as text */
#include "config.h"

#include "partitioner/layout/split.h"

#include "base/digits.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool merak_split_has(const struct merak_layer_split *split, int layer)
{
    return layer >= 0 && layer < MERAK_MAX_SPLIT &&
           ((split->samples[layer / 64] >> (layer % 64)) & 1) != 0;
}

void merak_split_add(struct merak_layer_split *split, int layer)
{
    split->samples[layer / 64] |= (uint64_t)1 << (layer % 64);
}

bool merak_split_equal(const struct merak_layer_split *a,
                       const struct merak_layer_split *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

int merak_split_last(const struct merak_layer_split *split)
{
    int last = MERAK_MAX_SPLIT - 1;

    while (last >= 0 && !merak_split_has(split, last))
        last--;
    return last;
}

bool merak_split_any(const struct merak_layer_split *split)
{
    return merak_split_last(split) >= 0;
}

/* --- text ----------------------------------------------------------------- */

/* "b4-27", and a comma behind it that another follows. */
static bool next_run(const char **text_p, char *kind_p, int *first_p,
                     int *last_p)
{
    *kind_p = *(*text_p)++;
    if ((*kind_p != 'w' && *kind_p != 'b') || !merak_next_number(text_p, first_p))
        return false;
    *last_p = *first_p;
    if (**text_p == '-') {
        ++*text_p;
        if (!merak_next_number(text_p, last_p) || *last_p < *first_p)
            return false;
    }
    if (**text_p != ',')
        return true;
    ++*text_p;
    return **text_p != '\0';
}

/* Add a run to `named`, all layers so far, and to the split if it is of b. */
static enum merak_status add_run(char kind, int first, int last,
                                 struct merak_layer_split *named,
                                 struct merak_layer_split *split,
                                 struct merak_error *err)
{
    if (last >= MERAK_MAX_SPLIT)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--split: layer %d, expected 0..%d", last,
                          MERAK_MAX_SPLIT - 1);
    for (int k = first; k <= last; k++) {
        if (merak_split_has(named, k))
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--split: layer %d is named twice; expected each "
                              "once",
                              k);
        merak_split_add(named, k);
        if (kind == 'b')
            merak_split_add(split, k);
    }
    return MERAK_OK;
}

enum merak_status merak_split_parse(const char *text,
                                    struct merak_layer_split *split,
                                    struct merak_error *err)
{
    struct merak_layer_split named = {{0}}, found = {{0}};
    const char *at = text;
    enum merak_status rc = MERAK_OK;

    do {
        int first, last;
        char kind;

        if (!next_run(&at, &kind, &first, &last))
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--split: expected layers cut by weights (w) and "
                              "by samples (b), as in w0-3,b4-27, got \"%.60s\"",
                              text);
        rc = add_run(kind, first, last, &named, &found, err);
    } while (rc == MERAK_OK && *at != '\0');
    if (rc == MERAK_OK)
        *split = found;
    return rc;
}

const char *merak_split_text(const struct merak_layer_split *split,
                             const char *first, const char *between, char *text,
                             size_t bytes)
{
    size_t at = 0;

    text[0] = '\0';
    for (int k = 0; k < MERAK_MAX_SPLIT && at < bytes; k++) {
        int last = k;

        if (!merak_split_has(split, k))
            continue;
        while (merak_split_has(split, last + 1))
            last++;
        at += (size_t)snprintf(text + at, bytes - at, "%s%s%d",
                               at > 0 ? between : "", first, k);
        if (last > k && at < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "-%d", last);
        k = last;
    }
    return text;
}
