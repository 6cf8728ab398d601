/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.c - byte-pair merges
 *
 * The symbols of a piece are a doubly linked list in arrays; candidate merges
 * wait in a heap ordered by (rank, position).  A candidate whose symbols have
 * changed since is skipped when it comes up.  n bytes take O(n log n), so a
 * megabyte of one letter is no problem.
 */
#include "config.h"

#include "text/tokenizer/bpe.h"

#include "base/error.h"
#include "base/rng.h"
#include "text/tokenizer/unicode.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define NONE (-1)
#define MAX_PIECE_BYTES                                              \
    (1u << 28)            /* keeps positions and the heap in 32 bits \
                           */
#define CACHE_SLOTS 32768 /* of 64 bytes */
#define CACHE_KEY 22
#define CACHE_IDS 10

struct pair {
    int32_t left, right; /* left NONE: the slot is free */
    uint32_t rank;
    int32_t id;
};

struct candidate {
    uint32_t rank;
    int32_t at; /* the left symbol */
    int32_t left, right, id;
};

/* Most pieces are repeated words: short ones are cached, one per hash slot,
 * where the newest replaces the older. */
struct cached {
    uint8_t bytes, n; /* bytes 0: free */
    unsigned char key[CACHE_KEY];
    int32_t id[CACHE_IDS];
};

struct merak_bpe {
    struct merak_bpe_options opt;
    struct pair *pair; /* open addressing, at most half full */
    size_t pair_mask;
    uint32_t n_merges;
    struct cached *cache;
    uint64_t left_out; /* bytes */
    /* scratch for pieces up to `room` bytes */
    size_t room;
    int32_t *id, *prev, *next;
    struct candidate *heap;
    size_t n_heap;
};

/* --- merges ------------------------------------------------------------ */

static struct pair *find_pair(const struct merak_bpe *bpe, int32_t left,
                              int32_t right)
{
    size_t at = (size_t)merak_rng_mix((uint64_t)left, (uint64_t)right);

    for (;; at++) {
        struct pair *p = &bpe->pair[at & bpe->pair_mask];

        if (p->left == NONE || (p->left == left && p->right == right))
            return p;
    }
}

enum merak_status merak_bpe_create(const struct merak_bpe_options *opt,
                                   size_t max_merges, struct merak_bpe **bpe_p,
                                   struct merak_error *err)
{
    struct merak_bpe *bpe = calloc(1, sizeof(*bpe));
    size_t slots = 16;

    while (slots < 2 * max_merges)
        slots *= 2;
    if (bpe == NULL)
        return merak_fail_nomem(err, sizeof(*bpe));
    bpe->opt = *opt;
    bpe->pair = malloc(slots * sizeof(*bpe->pair));
    bpe->cache = calloc(CACHE_SLOTS, sizeof(*bpe->cache));
    if (bpe->pair == NULL || bpe->cache == NULL) {
        merak_bpe_destroy(bpe);
        return merak_fail_nomem(err, slots * sizeof(*bpe->pair));
    }
    for (size_t i = 0; i < slots; i++)
        bpe->pair[i].left = NONE;
    bpe->pair_mask = slots - 1;
    *bpe_p = bpe;
    return MERAK_OK;
}

static void free_scratch(struct merak_bpe *bpe)
{
    free(bpe->id);
    free(bpe->prev);
    free(bpe->next);
    free(bpe->heap);
    bpe->id = bpe->prev = bpe->next = NULL;
    bpe->heap = NULL;
    bpe->room = 0;
}

void merak_bpe_destroy(struct merak_bpe *bpe)
{
    if (bpe == NULL)
        return;
    free_scratch(bpe);
    free(bpe->pair);
    free(bpe->cache);
    free(bpe);
}

uint64_t merak_bpe_left_out(const struct merak_bpe *bpe)
{
    return bpe->left_out;
}

void merak_bpe_merge(struct merak_bpe *bpe, int32_t left, int32_t right,
                     int32_t id)
{
    merak_bpe_merge_ranked(bpe, left, right, id, bpe->n_merges++);
}

void merak_bpe_merge_ranked(struct merak_bpe *bpe, int32_t left, int32_t right,
                            int32_t id, uint32_t rank)
{
    *find_pair(bpe, left, right) = (struct pair){left, right, rank, id};
}

/* --- the heap ---------------------------------------------------------- */

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct merak_bpe *bpe, struct candidate c)
{
    size_t i = bpe->n_heap++;

    while (i > 0 && before(&c, &bpe->heap[(i - 1) / 2])) {
        bpe->heap[i] = bpe->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    bpe->heap[i] = c;
}

static struct candidate heap_pop(struct merak_bpe *bpe)
{
    struct candidate top = bpe->heap[0], c = bpe->heap[--bpe->n_heap];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child + 1 < bpe->n_heap &&
            before(&bpe->heap[child + 1], &bpe->heap[child]))
            child++;
        if (child >= bpe->n_heap || !before(&bpe->heap[child], &c))
            break;
        bpe->heap[i] = bpe->heap[child];
        i = child;
    }
    bpe->heap[i] = c;
    return top;
}

/* --- one piece --------------------------------------------------------- */

static enum merak_status make_room(struct merak_bpe *bpe, size_t n,
                                   struct merak_error *err)
{
    size_t room = bpe->room > 0 ? bpe->room : 64;

    if (n <= bpe->room)
        return MERAK_OK;
    if (n > MAX_PIECE_BYTES)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "a run of %zu bytes without a word boundary, at "
                          "most %u can be encoded",
                          n, MAX_PIECE_BYTES);
    while (room < n)
        room *= 2;
    free_scratch(bpe);
    bpe->id = malloc(room * sizeof(*bpe->id));
    bpe->prev = malloc(room * sizeof(*bpe->prev));
    bpe->next = malloc(room * sizeof(*bpe->next));
    /* n - 1 pairs initially, two more after each of n - 1 merges */
    bpe->heap = malloc(3 * room * sizeof(*bpe->heap));
    if (bpe->id == NULL || bpe->prev == NULL || bpe->next == NULL ||
        bpe->heap == NULL) {
        free_scratch(bpe);
        return merak_fail_nomem(err, 3 * room * sizeof(*bpe->heap));
    }
    bpe->room = room;
    return MERAK_OK;
}

/* Add the pair that begins with symbol `at` as a candidate. */
static void offer(struct merak_bpe *bpe, int32_t at)
{
    int32_t next = at == NONE ? NONE : bpe->next[at];
    const struct pair *p;

    if (next == NONE)
        return;
    p = find_pair(bpe, bpe->id[at], bpe->id[next]);
    if (p->left != NONE)
        heap_push(bpe,
                  (struct candidate){p->rank, at, p->left, p->right, p->id});
}

static void apply(struct merak_bpe *bpe, const struct candidate *c)
{
    int32_t next = bpe->next[c->at];

    if (bpe->id[c->at] != c->left || next == NONE || bpe->id[next] != c->right)
        return;
    bpe->id[c->at] = c->id;
    bpe->id[next] = NONE; /* removed: candidates that begin there are stale */
    bpe->next[c->at] = bpe->next[next];
    if (bpe->next[next] != NONE)
        bpe->prev[bpe->next[next]] = c->at;
    offer(bpe, bpe->prev[c->at]);
    offer(bpe, c->at);
}

/* Spell a character that is not a token, or a byte: by its bytes' tokens, or as
 * the unknown token, or not at all. */
static size_t spell(struct merak_bpe *bpe, const unsigned char *text,
                    size_t bytes, size_t n, bool *unknown)
{
    bool fused = *unknown && bpe->opt.fuse_unknown;
    size_t k = 0;

    while (k < bytes && bpe->opt.byte_id[text[k]] != NONE)
        k++;
    *unknown = k < bytes;
    for (k = 0; !*unknown && k < bytes; k++)
        bpe->id[n++] = bpe->opt.byte_id[text[k]];
    if (*unknown && bpe->opt.unknown == NONE)
        bpe->left_out += bytes;
    else if (*unknown && !fused)
        bpe->id[n++] = bpe->opt.unknown;
    return n;
}

static size_t first_chars(struct merak_bpe *bpe, const unsigned char *piece,
                          size_t n)
{
    bool unknown = false;
    size_t symbols = 0;

    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t bytes = merak_utf8_decode(piece + i, n - i, &cp);
        int32_t id;

        bytes = bytes > 0 ? bytes : 1;
        id = merak_token_index_find(bpe->opt.index, piece + i, bytes);
        if (id != NONE) {
            bpe->id[symbols++] = id;
            unknown = false;
        } else {
            symbols = spell(bpe, piece + i, bytes, symbols, &unknown);
        }
        i += bytes;
    }
    return symbols;
}

static size_t first_bytes(struct merak_bpe *bpe, const unsigned char *piece,
                          size_t n)
{
    bool unknown = false;
    size_t symbols = 0;

    for (size_t i = 0; i < n; i++)
        symbols = spell(bpe, piece + i, 1, symbols, &unknown);
    return symbols;
}

/* Leaves the tokens at the front of bpe->id; returns how many. */
static size_t merge_piece(struct merak_bpe *bpe, const unsigned char *piece,
                          size_t n)
{
    size_t n_ids = 0;

    n = bpe->opt.chars ? first_chars(bpe, piece, n)
                       : first_bytes(bpe, piece, n);
    if (n == 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        bpe->prev[i] = (int32_t)i - 1;
        bpe->next[i] = i + 1 < n ? (int32_t)i + 1 : NONE;
    }
    bpe->n_heap = 0;
    for (size_t i = 0; i < n; i++)
        offer(bpe, (int32_t)i);
    while (bpe->n_heap > 0) {
        struct candidate c = heap_pop(bpe);

        apply(bpe, &c);
    }
    for (int32_t i = 0; i != NONE; i = bpe->next[i])
        bpe->id[n_ids++] = bpe->id[i];
    return n_ids;
}

/* Is the whole piece a token, and are merges ignored then? */
static bool whole_piece(struct merak_bpe *bpe, const unsigned char *piece,
                        size_t n)
{
    int32_t id = bpe->opt.ignore_merges
                     ? merak_token_index_find(bpe->opt.index, piece, n)
                     : NONE;

    if (id != NONE)
        bpe->id[0] = id;
    return id != NONE;
}

enum merak_status merak_bpe_encode(struct merak_bpe *bpe,
                                   const unsigned char *piece, size_t n,
                                   const int32_t **ids_p, size_t *n_p,
                                   struct merak_error *err)
{
    struct cached *slot = NULL;
    uint64_t left_out = bpe->left_out;
    enum merak_status rc;

    if (n <= CACHE_KEY) {
        slot = &bpe->cache[XXH3_64bits(piece, n) % CACHE_SLOTS];
        if (slot->bytes == n && memcmp(slot->key, piece, n) == 0) {
            *ids_p = slot->id;
            *n_p = slot->n;
            return MERAK_OK;
        }
    }
    rc = make_room(bpe, n, err);
    if (rc != MERAK_OK)
        return rc;
    *n_p = whole_piece(bpe, piece, n) ? 1 : merge_piece(bpe, piece, n);
    *ids_p = bpe->id;
    if (slot != NULL && *n_p <= CACHE_IDS && bpe->left_out == left_out) {
        slot->bytes = (uint8_t)n;
        slot->n = (uint8_t)*n_p;
        memcpy(slot->key, piece, n);
        memcpy(slot->id, bpe->id, *n_p * sizeof(*slot->id));
    }
    return MERAK_OK;
}
