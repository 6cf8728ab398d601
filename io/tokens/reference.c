/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c - losses of a token file's answers under a reference model
 *
 * PREFIX.ref, little endian, offset and content:
 *
 *    0  8 bytes  "MERAKREF"
 *    8  u64      version, 2
 *   16  u64      tokens in PREFIX.bin
 *   24  u64      XXH3 (64 bits) of all of PREFIX.idx
 *   32  u64      the checksum of the bits in PREFIX.mask
 *   40  u64      XXH3 of the numbers
 *   48  u64      tokens of the longest document that has them
 *   56  u64      64 bits of merak_token_file_hash()
 *   64  u64      the model's weights (weights_id.h)
 *   72  u8[256]  where they were, ended by 0
 *  328  f32[]    of each token: -log of its probability after those before it
 *                in its document; 0 where the mask is 0, in a document's first
 *                token, and in documents that are longer
 *
 * The checksums tie it to the files and the model that it was made with.
 * Version 1 has no fields at 56 to 327: the numbers are at 56.
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
#define REFERENCE_VERSION 2
enum { HEADER_BYTES_1 = 56, HEADER_BYTES = 328 };

typedef unsigned long long ull;

struct merak_reference {
    char *path;
    int fd;
    uint64_t begin; /* the first byte of the numbers */
    uint64_t longest, sum;
    bool has_model;
    struct merak_reference_model model;
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

/* 64 bits of merak_token_file_hash(). */
static enum merak_status hash_ids(const struct merak_token_file *file,
                                  uint64_t *sum_p, struct merak_error *err)
{
    XXH3_state_t *h = XXH3_createState();
    enum merak_status rc;

    if (h == NULL)
        return merak_fail(err, MERAK_ERR_NOMEM, "no memory for a checksum");
    XXH3_128bits_reset(h);
    rc = merak_token_file_hash(file, h, err);
    *sum_p = XXH3_128bits_digest(h).low64;
    XXH3_freeState(h);
    return rc;
}

/* The first bytes, which both versions have; then those of this one. */
static enum merak_status read_header(struct merak_reference *r, uint64_t bytes,
                                     unsigned char head[HEADER_BYTES],
                                     struct merak_error *err)
{
    static const char not_one[] = "no losses of a reference model";
    enum merak_status rc = merak_beside_header(
        r->fd, r->path, bytes, MAGIC, not_one, head, HEADER_BYTES_1, err);
    uint64_t version;

    if (rc != MERAK_OK)
        return rc;
    version = merak_get_u64(head + 8);
    if (version < 1 || version > REFERENCE_VERSION)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: version %llu, expected at most %d; a newer "
                          "Merak wrote it",
                          r->path, (ull)version, REFERENCE_VERSION);
    r->has_model = version > 1;
    r->begin = r->has_model ? HEADER_BYTES : HEADER_BYTES_1;
    if (!r->has_model)
        return MERAK_OK;
    rc = merak_beside_header(r->fd, r->path, bytes, MAGIC, not_one, head,
                             HEADER_BYTES, err);
    if (rc == MERAK_OK && head[HEADER_BYTES - 1] != '\0')
        rc = merak_fail(err, MERAK_ERR_CORRUPT,
                        "%s: the name of its model has no end", r->path);
    return rc;
}

static enum merak_status check_header(struct merak_reference *r,
                                      const struct merak_token_file *file,
                                      const char *prefix, uint64_t bytes,
                                      struct merak_error *err)
{
    uint64_t want, index, ids;
    unsigned char head[HEADER_BYTES];
    enum merak_status rc = read_header(r, bytes, head, err);

    if (rc == MERAK_OK)
        rc = merak_beside_index(prefix, &index, err);
    if (rc == MERAK_OK)
        rc = hash_ids(file, &ids, err);
    if (rc != MERAK_OK)
        return rc;
    want = r->begin + file->tokens * sizeof(float);
    if (merak_get_u64(head + 16) != file->tokens ||
        merak_get_u64(head + 24) != index ||
        merak_get_u64(head + 32) != merak_mask_checksum(file->mask) ||
        (r->has_model && merak_get_u64(head + 56) != ids))
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
    if (r->has_model) {
        r->model.weights = merak_get_u64(head + 64);
        memcpy(r->model.from, head + 72, sizeof(r->model.from));
    }
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
        rc = merak_beside_check(r->fd, r->path, r->begin, bytes, r->sum, &ones,
                                err);
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

const struct merak_reference_model *
merak_reference_model(const struct merak_reference *reference)
{
    return reference->has_model ? &reference->model : NULL;
}

const char *merak_reference_path(const struct merak_reference *reference)
{
    return reference->path;
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
                        reference->begin + at * sizeof(*out), err);

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
    uint64_t tokens, mask, index, ids; /* of the files that it belongs to */
    struct merak_reference_model model;
    uint64_t at; /* tokens so far */
};

enum merak_status
merak_reference_create(const struct merak_token_file *file,
                       const struct merak_reference_model *model,
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
    if (rc == MERAK_OK)
        rc = hash_ids(file, &w->ids, err);
    if (rc != MERAK_OK)
        goto out;
    w->model = *model;
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
    merak_put_u64(head + 56, writer->ids);
    merak_put_u64(head + 64, writer->model.weights);
    memcpy(head + 72, writer->model.from, sizeof(writer->model.from));
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
