/* SPDX-License-Identifier: Apache-2.0 */
/* mask.c - which tokens of a token file are to be predicted
 *
 * PREFIX.mask, little endian, offset and content:
 *
 *    0  8 bytes  "MERAKMSK"
 *    8  u32      version, 1
 *   12  u32      1: documents 2 i and 2 i + 1 are the chosen and the rejected
 *                answer of pair i; 0: they are not
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
#include "io/tokens/beside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC "MERAKMSK"
#define MASK_VERSION 1
#define PAIRS (UINT64_C(1) << 32) /* added to the version */
#define BLOCK 16384

typedef unsigned long long ull;

struct merak_mask {
    char *path;
    int fd;
    uint64_t bytes, tokens, counted, idx_sum, sum;
    bool pairs;
};

/* Version and what follows it are written as one number. */
void merak_mask_header(uint64_t tokens, uint64_t documents, bool pairs,
                       uint64_t idx_sum, uint64_t sum,
                       unsigned char head[MERAK_MASK_HEADER_BYTES])
{
    memcpy(head, MAGIC, 8);
    merak_put_u64(head + 8, MASK_VERSION + (pairs ? PAIRS : 0));
    merak_put_u64(head + 16, tokens);
    merak_put_u64(head + 24, documents);
    merak_put_u64(head + 32, idx_sum);
    merak_put_u64(head + 40, sum);
}

static enum merak_status check_header(struct merak_mask *m, uint64_t tokens,
                                      uint64_t documents,
                                      struct merak_error *err)
{
    unsigned char head[MERAK_MASK_HEADER_BYTES];
    uint64_t want = sizeof(head) + tokens / 8 + (tokens % 8 != 0);
    enum merak_status rc;

    rc = merak_beside_header(m->fd, m->path, m->bytes, MAGIC, "not a loss mask",
                             head, sizeof(head), err);
    if (rc != MERAK_OK)
        return rc;
    m->pairs = merak_get_u64(head + 8) == MASK_VERSION + PAIRS;
    if (!m->pairs && merak_get_u64(head + 8) != MASK_VERSION)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: version %llu, expected %d; a newer Merak wrote "
                          "it",
                          m->path, (ull)merak_get_u64(head + 8), MASK_VERSION);
    if (m->pairs && documents % 2 != 0)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: pairs of answers in %llu documents, expected an "
                          "even number",
                          m->path, (ull)documents);
    if (merak_get_u64(head + 16) != tokens ||
        merak_get_u64(head + 24) != documents)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "%s is of %llu tokens in %llu documents, the files "
                          "beside it have %llu in %llu; pack them again",
                          m->path, (ull)merak_get_u64(head + 16),
                          (ull)merak_get_u64(head + 24), (ull)tokens,
                          (ull)documents);
    if (m->bytes != want)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: %llu bytes, expected %llu for %llu tokens",
                          m->path, (ull)m->bytes, (ull)want, (ull)tokens);
    m->tokens = tokens;
    m->idx_sum = merak_get_u64(head + 32);
    m->sum = merak_get_u64(head + 40);
    return MERAK_OK;
}

static enum merak_status check_bits(struct merak_mask *m,
                                    struct merak_error *err)
{
    enum merak_status rc =
        merak_beside_check(m->fd, m->path, MERAK_MASK_HEADER_BYTES, m->bytes,
                           m->sum, &m->counted, err);

    if (rc == MERAK_OK && m->counted == 0)
        rc = merak_fail(err, MERAK_ERR_MISMATCH,
                        "%s: no token is to be predicted", m->path);
    return rc;
}

static enum merak_status check_index(const struct merak_mask *m,
                                     const char *prefix,
                                     struct merak_error *err)
{
    uint64_t sum;
    enum merak_status rc = merak_beside_index(prefix, &sum, err);

    if (rc == MERAK_OK && sum != m->idx_sum)
        rc = merak_fail(err, MERAK_ERR_MISMATCH,
                        "%s was not made with %s.idx; pack them again", m->path,
                        prefix);
    return rc;
}

enum merak_status merak_mask_open(const char *prefix, uint64_t tokens,
                                  uint64_t documents,
                                  struct merak_mask **mask_p,
                                  struct merak_error *err)
{
    struct merak_mask *m = calloc(1, sizeof(*m));
    enum merak_status rc;

    if (m == NULL)
        return merak_fail_nomem(err, sizeof(*m));
    m->fd = -1;
    m->path = merak_beside_path(prefix, ".mask");
    if (m->path == NULL) {
        rc = merak_fail_nomem(err, strlen(prefix));
        goto out;
    }
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

bool merak_mask_has_pairs(const struct merak_mask *mask)
{
    return mask != NULL && mask->pairs;
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
