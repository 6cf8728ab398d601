/* SPDX-License-Identifier: Apache-2.0 */
/* token_index.c - the id of a token by its text: a hash table with open
 * addressing, at most half full, over concatenated texts */
#include "config.h"

#include "text/tokenizer/token_index.h"

#include "text/tokenizer/buffer.h"

#include <xxhash.h>

struct entry {
    int32_t id; /* -1: free */
    uint32_t n;
    size_t at;
};

struct merak_token_index {
    struct entry *entry;
    size_t mask;
    struct merak_buffer texts;
};

enum merak_status merak_token_index_create(size_t max_tokens,
                                           struct merak_token_index **index_p,
                                           struct merak_error *err)
{
    struct merak_token_index *index = calloc(1, sizeof(*index));
    size_t slots = 16;

    while (slots < 2 * max_tokens)
        slots *= 2;
    if (index == NULL)
        return merak_fail_nomem(err, sizeof(*index));
    index->entry = malloc(slots * sizeof(*index->entry));
    if (index->entry == NULL) {
        merak_token_index_destroy(index);
        return merak_fail_nomem(err, slots * sizeof(*index->entry));
    }
    for (size_t i = 0; i < slots; i++)
        index->entry[i].id = -1;
    index->mask = slots - 1;
    *index_p = index;
    return MERAK_OK;
}

void merak_token_index_destroy(struct merak_token_index *index)
{
    if (index == NULL)
        return;
    free(index->entry);
    free(index->texts.text);
    free(index);
}

/* The entry of a text, or the free one for it. */
static struct entry *find(const struct merak_token_index *index,
                          const void *text, size_t n)
{
    for (size_t i = XXH3_64bits(text, n);; i++) {
        struct entry *e = &index->entry[i & index->mask];

        if (e->id < 0 ||
            (e->n == n && memcmp(index->texts.text + e->at, text, n) == 0))
            return e;
    }
}

enum merak_status merak_token_index_add(struct merak_token_index *index,
                                        const void *text, size_t n, int32_t id,
                                        struct merak_error *err)
{
    struct entry *e;
    enum merak_status rc;

    if (n == 0 || n > UINT32_MAX)
        return MERAK_OK; /* no text has this id */
    e = find(index, text, n);
    if (e->id >= 0)
        return MERAK_OK;
    e->at = index->texts.n;
    rc = merak_buffer_add(&index->texts, text, n, err);
    if (rc != MERAK_OK)
        return rc;
    e->n = (uint32_t)n;
    e->id = id;
    return MERAK_OK;
}

int32_t merak_token_index_find(const struct merak_token_index *index,
                               const void *text, size_t n)
{
    return n == 0 ? -1 : find(index, text, n)->id;
}
