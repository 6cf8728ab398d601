/* SPDX-License-Identifier: Apache-2.0 */
/* unigram.c - the likeliest segmentation of a text, from left to right */
#include "config.h"

#include "text/tokenizer/unigram.h"

#include "base/error.h"
#include "base/size.h"
#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

/* The best segmentation of the text that ends at a byte. */
struct best {
    double score;
    int32_t id;    /* its last piece; -1: no piece ends here */
    uint32_t size; /* bytes of it */
};

struct merak_unigram {
    struct merak_unigram_options opt;
    double *score;
    struct best *best; /* [room + 1] */
    int32_t *id;       /* [room + 1] */
    size_t room;
};

enum merak_status merak_unigram_create(const struct merak_unigram_options *opt,
                                       struct merak_unigram **unigram_p,
                                       struct merak_error *err)
{
    struct merak_unigram *u = calloc(1, sizeof(*u));

    if (u != NULL)
        u->score = malloc((opt->vocab + 1) * sizeof(*u->score));
    if (u == NULL || u->score == NULL) {
        merak_unigram_destroy(u);
        return merak_fail_nomem(err, opt->vocab * sizeof(double));
    }
    u->opt = *opt;
    memcpy(u->score, opt->score, opt->vocab * sizeof(*u->score));
    *unigram_p = u;
    return MERAK_OK;
}

void merak_unigram_destroy(struct merak_unigram *u)
{
    if (u == NULL)
        return;
    free(u->score);
    free(u->best);
    free(u->id);
    free(u);
}

static enum merak_status make_room(struct merak_unigram *u, size_t n,
                                   struct merak_error *err)
{
    size_t bytes;

    if (n <= u->room)
        return MERAK_OK;
    free(u->best);
    free(u->id);
    u->best = NULL;
    u->id = NULL;
    u->room = 0;
    if (!merak_size_mul(2 * n + 1, sizeof(*u->best), &bytes))
        return merak_fail_nomem(err, n);
    u->best = malloc(bytes);
    u->id = malloc((2 * n + 1) * sizeof(*u->id));
    if (u->best == NULL || u->id == NULL)
        return merak_fail_nomem(err, bytes);
    u->room = 2 * n;
    return MERAK_OK;
}

/* Offer a segmentation that continues at `at` with a piece of this size; of
 * equal ones the first is kept. */
static void offer(struct merak_unigram *u, size_t at, double score, int32_t id,
                  size_t size)
{
    struct best *b = &u->best[at + size];
    double sum = u->best[at].score + score;

    if (u->opt.single)
        sum = (double)(float)sum; /* as if summed in floats */
    if (b->id >= 0 && sum <= b->score)
        return;
    *b = (struct best){sum, id, (uint32_t)size};
}

static void reach(struct merak_unigram *u, const unsigned char *text, size_t n,
                  size_t at, size_t bytes)
{
    size_t most = n - at < u->opt.longest ? n - at : u->opt.longest;
    bool single = false;

    for (size_t size = bytes; size <= most; size++) {
        int32_t id;

        if (at + size < n && (text[at + size] & 0xc0) == 0x80)
            continue; /* within a character */
        id = merak_token_index_find(u->opt.index, text + at, size);
        if (id < 0)
            continue;
        offer(u, at, u->score[id], id, size);
        single = single || size == bytes;
    }
    if (!single)
        offer(u, at, u->opt.unknown_score, u->opt.unknown, bytes);
}

static size_t char_bytes(const unsigned char *text, size_t n)
{
    uint32_t cp;
    size_t bytes = merak_utf8_decode(text, n, &cp);

    return bytes > 0 ? bytes : 1;
}

static bool have_tokens(const struct merak_unigram *u,
                        const unsigned char *text, size_t n)
{
    size_t i = 0;

    while (i < n && u->opt.byte_id[text[i]] >= 0)
        i++;
    return i == n;
}

/* Put the ids of adjacent unknown characters before u->id[to]. */
static size_t put_unknown(struct merak_unigram *u, const unsigned char *text,
                          size_t n, size_t to)
{
    int32_t id = -1;

    if (u->opt.runs_are_pieces)
        id = merak_token_index_find(u->opt.index, text, n);
    if (id < 0 && have_tokens(u, text, n)) {
        while (n > 0)
            u->id[--to] = u->opt.byte_id[text[--n]];
        return to;
    }
    u->id[--to] = id < 0 ? u->opt.unknown : id;
    return to;
}

/* Put the ids of the best segmentation, backwards, at the end of u->id. */
static size_t collect(struct merak_unigram *u, const unsigned char *text,
                      size_t n)
{
    size_t to = u->room + 1, end = n;

    for (; n > 0; n -= u->best[n].size) {
        if (u->best[n].id == u->opt.unknown)
            continue;
        if (n < end)
            to = put_unknown(u, text + n, end - n, to);
        u->id[--to] = u->best[n].id;
        end = n - u->best[n].size;
    }
    return end > 0 ? put_unknown(u, text, end, to) : to;
}

enum merak_status merak_unigram_encode(struct merak_unigram *u,
                                       const unsigned char *text, size_t n,
                                       const int32_t **ids_p, size_t *n_p,
                                       struct merak_error *err)
{
    enum merak_status rc = make_room(u, n, err);
    size_t from;

    if (rc != MERAK_OK)
        return rc;
    for (size_t i = 0; i <= n; i++)
        u->best[i].id = -1;
    u->best[0] = (struct best){0, 0, 0};
    for (size_t at = 0; at < n; at += char_bytes(text + at, n - at))
        reach(u, text, n, at, char_bytes(text + at, n - at));
    from = collect(u, text, n);
    *ids_p = u->id + from;
    *n_p = u->room + 1 - from;
    return MERAK_OK;
}
