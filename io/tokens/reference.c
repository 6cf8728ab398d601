/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c - losses of a token file's answers under a reference model
 *
 * PREFIX.ref, little endian, offset and content:
 *
 *    0  8 bytes  "MERAKREF"
 *    8  u64      version, 1
 *   16  u64      tokens in PREFIX.bin
 *   24  u64      XXH3 (64 bits) of all of PREFIX.idx
 *   32  u64      the checksum of the bits in PREFIX.mask
 *   40  u64      XXH3 of the numbers
 *   48  u64      tokens of the longest document that has them
 *   56  f32[]    of each token: -log of its probability after those before it
 *                in its document; 0 where the mask is 0, in a document's first
 *                token, and in documents that are longer
 *
 * The two checksums tie it to the files that it was made with.
 */
#include "config.h"

#include "io/tokens/reference.h"

#include "base/error.h"
#include "io/file.h"
#include "io/tokens/beside.h"
#include "io/tokens/out_file.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "MERAKREF"
#define REFERENCE_VERSION 1
enum { HEADER_BYTES = 56 };

typedef unsigned long long ull;

struct merak_reference {
    char *path;
    int fd;
    uint64_t longest, sum;
};

/* "PREFIX" of PREFIX.bin; NULL: no memory. */
static char *prefix_of(const struct merak_token_file *file)
{
    size_t n = strlen(file->path), m = strlen(".bin");

    return strndup(file->path, n > m && strcmp(file->path + n - m, ".bin") == 0
                                   ? n - m
                                   : n);
}

/* --- reading ---------------------------------------------------------------
 */

static enum merak_status check_header(struct merak_reference *r,
                                      const struct merak_token_file *file,
                                      const char *prefix, uint64_t bytes,
                                      struct merak_error *err)
{
    uint64_t want = HEADER_BYTES + file->tokens * sizeof(float), index;
    unsigned char head[HEADER_BYTES];
    enum merak_status rc;

    rc = merak_beside_header(r->fd, r->path, bytes, MAGIC,
                             "no losses of a reference model", head,
                             sizeof(head), err);
    if (rc == MERAK_OK)
        rc = merak_beside_index(prefix, &index, err);
    if (rc != MERAK_OK)
        return rc;
    if (merak_get_u64(head + 8) != REFERENCE_VERSION)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: version %llu, expected %d; a newer Merak wrote "
                          "it",
                          r->path, (ull)merak_get_u64(head + 8),
                          REFERENCE_VERSION);
    if (merak_get_u64(head + 16) != file->tokens ||
        merak_get_u64(head + 24) != index ||
        merak_get_u64(head + 32) != merak_mask_checksum(file->mask))
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "%s was not made with %s: make it again with `merak "
                          "eval --reference`",
                          r->path, file->path);
    if (bytes != want)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: %llu bytes, expected %llu for %llu tokens",
                          r->path, (ull)bytes, (ull)want, (ull)file->tokens);
    r->sum = merak_get_u64(head + 40);
    r->longest = merak_get_u64(head + 48);
    return MERAK_OK;
}

enum merak_status merak_reference_open(const struct merak_token_file *file,
                                       struct merak_reference **reference_p,
                                       struct merak_error *err)
{
    struct merak_reference *r = calloc(1, sizeof(*r));
    char *prefix = prefix_of(file);
    uint64_t bytes = 0, ones;
    enum merak_status rc;

    if (r != NULL)
        r->fd = -1;
    if (r != NULL && prefix != NULL)
        r->path = merak_beside_path(prefix, MERAK_REFERENCE_SUFFIX);
    if (r == NULL || r->path == NULL) {
        rc = merak_fail_nomem(err, sizeof(*r));
        goto out;
    }
    if (access(r->path, F_OK) != 0 && errno == ENOENT) {
        rc = merak_fail(err, MERAK_ERR_NOT_FOUND,
                        "%s does not exist: `merak eval --ckpt BASE --data %s "
                        "--reference` makes it, BASE being the model that "
                        "training starts from",
                        r->path, prefix);
        goto out;
    }
    rc = merak_file_open(r->path, &r->fd, &bytes, err);
    if (rc == MERAK_OK)
        rc = check_header(r, file, prefix, bytes, err);
    if (rc == MERAK_OK)
        rc = merak_beside_check(r->fd, r->path, HEADER_BYTES, bytes, r->sum,
                                &ones, err);
    if (rc != MERAK_OK)
        goto out;
    *reference_p = r;
    r = NULL; /* now owned by the caller */
out:
    free(prefix);
    merak_reference_close(r);
    return rc;
}

void merak_reference_close(struct merak_reference *reference)
{
    if (reference == NULL)
        return;
    if (reference->fd >= 0)
        close(reference->fd);
    free(reference->path);
    free(reference);
}

uint64_t merak_reference_longest(const struct merak_reference *reference)
{
    return reference->longest;
}

uint64_t merak_reference_checksum(const struct merak_reference *reference)
{
    return reference->sum;
}

enum merak_status merak_reference_read(const struct merak_reference *reference,
                                       uint64_t at, size_t n, float *out,
                                       struct merak_error *err)
{
    enum merak_status rc =
        merak_file_read(reference->fd, reference->path, out, n * sizeof(*out),
                        HEADER_BYTES + at * sizeof(*out), err);

    for (size_t i = 0; rc == MERAK_OK && i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &out[i], sizeof(bits));
        bits = le32toh(bits);
        memcpy(&out[i], &bits, sizeof(bits));
        if (!isfinite(out[i]))
            rc = merak_fail(err, MERAK_ERR_CORRUPT,
                            "%s: the loss of token %llu is %g, expected a "
                            "finite number",
                            reference->path, (ull)(at + i), (double)out[i]);
    }
    return rc;
}

/* --- writing ---------------------------------------------------------------
 */

struct merak_reference_writer {
    struct merak_out out;
    uint64_t tokens, mask, index; /* of the files that it belongs to */
    uint64_t at;                  /* tokens so far */
};

enum merak_status
merak_reference_create(const struct merak_token_file *file,
                       struct merak_reference_writer **writer_p,
                       struct merak_error *err)
{
    struct merak_reference_writer *w = calloc(1, sizeof(*w));
    char *prefix = prefix_of(file);
    enum merak_status rc = MERAK_OK;

    if (w != NULL)
        w->out.fd = -1;
    if (w == NULL || prefix == NULL)
        rc = merak_fail_nomem(err, sizeof(*w));
    if (rc == MERAK_OK)
        rc = merak_beside_index(prefix, &w->index, err);
    if (rc != MERAK_OK)
        goto out;
    w->tokens = file->tokens;
    w->mask = merak_mask_checksum(file->mask);
    merak_out_remove_leftovers(prefix);
    rc = merak_out_open_headed(&w->out, prefix, MERAK_REFERENCE_SUFFIX,
                               HEADER_BYTES, err);
    if (rc != MERAK_OK)
        goto out;
    *writer_p = w;
    w = NULL; /* now owned by the caller */
out:
    free(prefix);
    merak_reference_destroy(w);
    return rc;
}

enum merak_status merak_reference_put(struct merak_reference_writer *writer,
                                      const float *loss, size_t n,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    writer->at += n;
    for (size_t i = 0; rc == MERAK_OK && i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &loss[i], sizeof(bits));
        bits = htole32(bits);
        rc = merak_out_put(&writer->out, &bits, sizeof(bits), err);
    }
    return rc;
}

enum merak_status merak_reference_commit(struct merak_reference_writer *writer,
                                         uint64_t longest,
                                         struct merak_error *err)
{
    struct merak_out *out = &writer->out;
    unsigned char head[HEADER_BYTES];
    enum merak_status rc;

    if (writer->at != writer->tokens)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: losses of %llu tokens, expected %llu", out->path,
                          (ull)writer->at, (ull)writer->tokens);
    rc = merak_out_flush(out, err);
    if (rc != MERAK_OK)
        return rc;
    memcpy(head, MAGIC, 8);
    merak_put_u64(head + 8, REFERENCE_VERSION);
    merak_put_u64(head + 16, writer->tokens);
    merak_put_u64(head + 24, writer->index);
    merak_put_u64(head + 32, writer->mask);
    merak_put_u64(head + 40, XXH3_64bits_digest(out->sum));
    merak_put_u64(head + 48, longest);
    rc = merak_out_finish(out, head, sizeof(head), err);
    if (rc == MERAK_OK)
        rc = merak_out_publish(out, err);
    return rc == MERAK_OK ? merak_file_sync_dir(out->path, err) : rc;
}

void merak_reference_destroy(struct merak_reference_writer *writer)
{
    int saved = errno;

    if (writer == NULL)
        return;
    merak_out_close(&writer->out);
    free(writer);
    errno = saved;
}
