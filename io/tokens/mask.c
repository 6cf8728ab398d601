/* SPDX-License-Identifier: Apache-2.0 */
/* mask.c - which tokens of a token file are to be predicted
 *
 * PREFIX.mask, little endian, offset and content:
 *
 *    0  8 bytes  "MERAKMSK"
 *    8  u32      version, 1
 *   12  u32      0
 *   16  u64      tokens in PREFIX.bin
 *   24  u64      documents in PREFIX.idx
 *   32  u64      XXH3 (64 bits) of all of PREFIX.idx
 *   40  u64      the same of the bits
 *   48  bits     token i has bit i % 8 of byte i / 8, from the lowest; 1: a
 *                model is trained to predict it; unused bits are 0
 *
 * The checksum of the index ties the mask to its pair of files: one that
 * belongs to another run of `merak data pack` is refused.  A writer renames in
 * the order .bin, .mask, .idx, so that no index exists without its mask.
 */
#include "config.h"

#include "io/tokens/mask.h"

#include "base/error.h"
#include "io/file.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "MERAKMSK"
#define MASK_VERSION 1
#define BLOCK 16384

typedef unsigned long long ull;

struct merak_mask {
    char *path;
    int fd;
    uint64_t bytes, tokens, counted, idx_sum, sum;
};

static void put_u64(unsigned char *to, uint64_t value)
{
    value = htole64(value);
    memcpy(to, &value, sizeof(value));
}

static uint64_t get_u64(const unsigned char *from)
{
    uint64_t value;

    memcpy(&value, from, sizeof(value));
    return le64toh(value);
}

/* Version and the zeros after it are written as one number. */
void merak_mask_header(uint64_t tokens, uint64_t documents, uint64_t idx_sum,
                       uint64_t sum,
                       unsigned char head[MERAK_MASK_HEADER_BYTES])
{
    memcpy(head, MAGIC, 8);
    put_u64(head + 8, MASK_VERSION);
    put_u64(head + 16, tokens);
    put_u64(head + 24, documents);
    put_u64(head + 32, idx_sum);
    put_u64(head + 40, sum);
}

static enum merak_status check_header(struct merak_mask *m, uint64_t tokens,
                                      uint64_t documents,
                                      struct merak_error *err)
{
    unsigned char head[MERAK_MASK_HEADER_BYTES];
    uint64_t want = sizeof(head) + tokens / 8 + (tokens % 8 != 0);
    enum merak_status rc;

    if (m->bytes < sizeof(head))
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: %llu bytes, expected a header of %zu", m->path,
                          (ull)m->bytes, sizeof(head));
    rc = merak_file_read(m->fd, m->path, head, sizeof(head), 0, err);
    if (rc != MERAK_OK)
        return rc;
    if (memcmp(head, MAGIC, 8) != 0)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: not a loss mask, it does not start with " MAGIC,
                          m->path);
    if (get_u64(head + 8) != MASK_VERSION)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: version %llu, expected %d; a newer Merak wrote "
                          "it",
                          m->path, (ull)get_u64(head + 8), MASK_VERSION);
    if (get_u64(head + 16) != tokens || get_u64(head + 24) != documents)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "%s is of %llu tokens in %llu documents, the files "
                          "beside it have %llu in %llu; pack them again",
                          m->path, (ull)get_u64(head + 16),
                          (ull)get_u64(head + 24), (ull)tokens, (ull)documents);
    if (m->bytes != want)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: %llu bytes, expected %llu for %llu tokens",
                          m->path, (ull)m->bytes, (ull)want, (ull)tokens);
    m->tokens = tokens;
    m->idx_sum = get_u64(head + 32);
    m->sum = get_u64(head + 40);
    return MERAK_OK;
}

/* XXH3 of a file from `at` to its end, and how many bits of it are 1. */
static enum merak_status sum_file(int fd, const char *path, uint64_t at,
                                  uint64_t bytes, uint64_t *sum_p,
                                  uint64_t *ones_p, struct merak_error *err)
{
    XXH3_state_t *h = XXH3_createState();
    enum merak_status rc = MERAK_OK;
    unsigned char block[BLOCK];
    uint64_t ones = 0;

    if (h == NULL)
        return merak_fail(err, MERAK_ERR_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(h);
    while (rc == MERAK_OK && at < bytes) {
        size_t n = bytes - at < BLOCK ? (size_t)(bytes - at) : BLOCK;

        rc = merak_file_read(fd, path, block, n, at, err);
        for (size_t i = 0; rc == MERAK_OK && i < n; i++)
            ones += (uint64_t)__builtin_popcount(block[i]);
        if (rc == MERAK_OK)
            XXH3_64bits_update(h, block, n);
        at += n;
    }
    *sum_p = XXH3_64bits_digest(h);
    *ones_p = ones;
    XXH3_freeState(h);
    return rc;
}

static enum merak_status check_bits(struct merak_mask *m,
                                    struct merak_error *err)
{
    uint64_t sum = 0;
    enum merak_status rc = sum_file(m->fd, m->path, MERAK_MASK_HEADER_BYTES,
                                    m->bytes, &sum, &m->counted, err);

    if (rc == MERAK_OK && sum != m->sum)
        rc = merak_fail(err, MERAK_ERR_CORRUPT,
                        "%s is damaged: its checksum is %016llx, expected "
                        "%016llx",
                        m->path, (ull)sum, (ull)m->sum);
    if (rc == MERAK_OK && m->counted == 0)
        rc = merak_fail(err, MERAK_ERR_MISMATCH,
                        "%s: no token is to be predicted", m->path);
    return rc;
}

static enum merak_status check_index(const struct merak_mask *m,
                                     const char *prefix,
                                     struct merak_error *err)
{
    size_t n = strlen(prefix) + 5;
    char *path = malloc(n);
    uint64_t bytes, sum = 0, ones;
    enum merak_status rc;
    int fd;

    if (path == NULL)
        return merak_fail_nomem(err, n);
    snprintf(path, n, "%s.idx", prefix);
    rc = merak_file_open(path, &fd, &bytes, err);
    if (rc == MERAK_OK) {
        rc = sum_file(fd, path, 0, bytes, &sum, &ones, err);
        close(fd);
    }
    if (rc == MERAK_OK && sum != m->idx_sum)
        rc = merak_fail(err, MERAK_ERR_MISMATCH,
                        "%s was not made with %s; pack them again", m->path,
                        path);
    free(path);
    return rc;
}

enum merak_status merak_mask_open(const char *prefix, uint64_t tokens,
                                  uint64_t documents,
                                  struct merak_mask **mask_p,
                                  struct merak_error *err)
{
    struct merak_mask *m = calloc(1, sizeof(*m));
    size_t n = strlen(prefix) + 6;
    enum merak_status rc;

    if (m == NULL)
        return merak_fail_nomem(err, sizeof(*m));
    m->fd = -1;
    m->path = malloc(n);
    if (m->path == NULL) {
        rc = merak_fail_nomem(err, n);
        goto out;
    }
    snprintf(m->path, n, "%s.mask", prefix);
    if (access(m->path, F_OK) != 0 && errno == ENOENT) {
        *mask_p = NULL;
        rc = MERAK_OK;
        goto out;
    }
    rc = merak_file_open(m->path, &m->fd, &m->bytes, err);
    if (rc == MERAK_OK)
        rc = check_header(m, tokens, documents, err);
    if (rc == MERAK_OK)
        rc = check_bits(m, err);
    if (rc == MERAK_OK)
        rc = check_index(m, prefix, err);
    if (rc != MERAK_OK)
        goto out;
    *mask_p = m;
    m = NULL; /* now owned by the caller */
out:
    merak_mask_close(m);
    return rc;
}

void merak_mask_close(struct merak_mask *mask)
{
    if (mask == NULL)
        return;
    if (mask->fd >= 0)
        close(mask->fd);
    free(mask->path);
    free(mask);
}

uint64_t merak_mask_counted(const struct merak_mask *mask)
{
    return mask->counted;
}

uint64_t merak_mask_checksum(const struct merak_mask *mask)
{
    return mask->sum;
}

enum merak_status merak_mask_read(const struct merak_mask *mask, uint64_t at,
                                  size_t n, unsigned char *out,
                                  struct merak_error *err)
{
    unsigned char block[BLOCK];

    while (n > 0) {
        uint64_t first = at / 8;
        size_t skip = (size_t)(at % 8), room = 8 * BLOCK - skip;
        size_t part = n < room ? n : room;
        enum merak_status rc =
            merak_file_read(mask->fd, mask->path, block, (skip + part + 7) / 8,
                            MERAK_MASK_HEADER_BYTES + first, err);

        if (rc != MERAK_OK)
            return rc;
        for (size_t i = 0; i < part; i++)
            out[i] = block[(skip + i) / 8] >> ((skip + i) % 8) & 1;
        at += part;
        out += part;
        n -= part;
    }
    return MERAK_OK;
}
