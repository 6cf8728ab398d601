/* SPDX-License-Identifier: Apache-2.0 */
/* part.c - read a tensor's part from a shard file, with its checksum
 *
 * A part's bytes are contiguous in its file, and the manifest has their
 * checksum: they are read by offset, block by block, without HDF5, whose
 * parser is not robust against damaged files.  Each block is copied to its
 * destination and added to the checksum while it is in cache; a damaged part
 * has then been copied already, and the caller gets an error and must not use
 * it.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"
#include "io/file.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK ((size_t)256 << 10)

size_t merak_ckpt_part_bytes(const struct merak_ckpt_part *part)
{
    return merak_box_count(&part->box) * sizeof(float);
}

/* The elements of a box as runs that are contiguous both in the part and at
 * their destination, in the order of either. */
struct runs {
    const struct merak_box *part, *to, *both;
    int outer;                 /* dims outside a run */
    size_t at[MERAK_MAX_DIMS]; /* of the run, in `both` */
    size_t n;                  /* elements of a run */
    bool over;
};

static void runs_begin(struct runs *r, const struct merak_box *part,
                       const struct merak_box *to, const struct merak_box *both)
{
    int d = both->ndim - 1;

    *r = (struct runs){.part = part, .to = to, .both = both, .n = 1};
    for (; d >= 0; d--) {
        r->n *= both->len[d];
        if (both->len[d] != part->len[d] || both->len[d] != to->len[d])
            break;
    }
    r->outer = d < 0 ? 0 : d;
    r->over = merak_box_count(both) == 0;
}

static void runs_next(struct runs *r)
{
    int d = r->outer - 1;

    for (; d >= 0; d--) {
        if (++r->at[d] < r->both->len[d])
            return;
        r->at[d] = 0;
    }
    r->over = true;
}

/* The offset of the run in a box, in elements. */
static size_t run_index(const struct runs *r, const struct merak_box *box)
{
    size_t index = 0;

    for (int d = 0; d < box->ndim; d++) {
        size_t at = r->both->lo[d] - box->lo[d] + (d < r->outer ? r->at[d] : 0);

        index = index * box->len[d] + at;
    }
    return index;
}

/* Bytes [at, at + n) of the part are in `block`, or if that is NULL at their
 * destination already: copy those that are needed, and advance to the run that
 * needs later ones. */
static void take_block(struct runs *r, const char *block, size_t at, size_t n,
                       char *data)
{
    while (!r->over) {
        size_t lo = run_index(r, r->part) * sizeof(float);
        size_t hi = lo + r->n * sizeof(float);
        size_t to = run_index(r, r->to) * sizeof(float);
        size_t from = lo > at ? lo : at, end = hi < at + n ? hi : at + n;

        if (block != NULL && from < end)
            memcpy(data + to + (from - lo), block + (from - at), end - from);
        if (hi > at + n)
            return;
        runs_next(r);
    }
}

/* The least that is read directly to its destination. */
#define STRAIGHT ((size_t)64 << 10)

/* Where to read the next bytes directly to: the destination, if one run has
 * enough of them, with *n limited to the run; else NULL. */
static char *straight(const struct runs *r, size_t at, size_t *n, char *data)
{
    size_t lo, left;

    if (r->over)
        return NULL;
    lo = run_index(r, r->part) * sizeof(float);
    left = at < lo ? 0 : lo + r->n * sizeof(float) - at;
    if (left < *n && left < STRAIGHT)
        return NULL;
    *n = left < *n ? left : *n;
    return data + run_index(r, r->to) * sizeof(float) + (at - lo);
}

/* The offset of the next needed byte, at `at` or after it. */
static size_t next_wanted(const struct runs *r, size_t at)
{
    size_t lo = r->over ? at : run_index(r, r->part) * sizeof(float);

    return lo > at ? lo : at;
}

static enum merak_status read_blocks(int fd, const char *path,
                                     const struct merak_ckpt_part *part,
                                     struct runs *r, char *data,
                                     struct merak_hasher *hasher, char *block,
                                     struct merak_error *err)
{
    size_t end = merak_ckpt_part_bytes(part);
    size_t at = hasher != NULL ? 0 : next_wanted(r, 0);

    while (at < end && (hasher != NULL || !r->over)) {
        size_t n = end - at < BLOCK ? end - at : BLOCK;
        char *to = straight(r, at, &n, data);
        enum merak_status rc = merak_file_read(
            fd, path, to == NULL ? block : to, n, part->offset + at, err);

        if (rc != MERAK_OK)
            return rc;
        if (hasher != NULL)
            merak_hasher_add(hasher, to == NULL ? block : to, n);
        take_block(r, to == NULL ? block : NULL, at, n, data);
        at = hasher != NULL ? at + n : next_wanted(r, at + n);
    }
    return MERAK_OK;
}

enum merak_status merak_ckpt_part_read(int fd, const char *path,
                                       const struct merak_ckpt_part *part,
                                       const struct merak_box *both,
                                       const struct merak_box *to, float *data,
                                       bool check, struct merak_error *err)
{
    struct merak_hasher *hasher = check ? merak_hasher_create() : NULL;
    char *block = malloc(BLOCK), hash[MERAK_HASH_TEXT];
    struct runs r;
    enum merak_status rc = MERAK_OK;

    if (block == NULL || (check && hasher == NULL))
        rc = merak_fail_nomem(err, BLOCK);
    runs_begin(&r, &part->box, to, both);
    if (rc == MERAK_OK)
        rc = read_blocks(fd, path, part, &r, (char *)data, hasher, block, err);
    if (rc == MERAK_OK && check) {
        merak_hasher_take(hasher, hash);
        if (strcmp(hash, part->hash) != 0)
            rc = merak_fail(err, MERAK_ERR_CORRUPT,
                            "%s is damaged: the checksum of its part of %.100s "
                            "is not the one in the manifest",
                            path, part->tensor);
    }
    free(block);
    merak_hasher_destroy(hasher);
    return rc;
}

/* Add bytes from .. to of a file to a hash. */
static enum merak_status add_range(int fd, const char *path, uint64_t from,
                                   uint64_t to, struct merak_hasher *hasher,
                                   char *block, struct merak_error *err)
{
    while (from < to) {
        size_t n = to - from < BLOCK ? (size_t)(to - from) : BLOCK;
        enum merak_status rc = merak_file_read(fd, path, block, n, from, err);

        if (rc != MERAK_OK)
            return rc;
        merak_hasher_add(hasher, block, n);
        from += n;
    }
    return MERAK_OK;
}

enum merak_status merak_ckpt_rest_hash(const struct merak_ckpt_manifest *mf,
                                       int shard, int fd, const char *path,
                                       char hash[MERAK_HASH_TEXT],
                                       struct merak_error *err)
{
    struct merak_hasher *hasher = merak_hasher_create();
    char *block = malloc(BLOCK);
    enum merak_status rc = MERAK_OK;
    uint64_t at = 0;

    if (hasher == NULL || block == NULL)
        rc = merak_fail_nomem(err, BLOCK);
    for (int i = mf->first_placed[shard];
         i < mf->first_placed[shard + 1] && rc == MERAK_OK; i++) {
        const struct merak_ckpt_part *part = mf->placed[i];

        if (merak_ckpt_part_bytes(part) == 0)
            continue;
        rc = add_range(fd, path, at, part->offset, hasher, block, err);
        at = part->offset + merak_ckpt_part_bytes(part);
    }
    if (rc == MERAK_OK)
        rc =
            add_range(fd, path, at, mf->shard[shard].bytes, hasher, block, err);
    if (rc == MERAK_OK)
        merak_hasher_take(hasher, hash);
    free(block);
    merak_hasher_destroy(hasher);
    return rc;
}
