/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.c - Megatron-LM's indexed data set, prefix.bin/prefix.idx
 *
 * Little endian, no padding.  prefix.bin: token values back to back, one
 * type for the whole file, no header.  prefix.idx, offset and content:
 *
 *       0        9 bytes  "MMIDIDX\0\0"
 *       9        u64      version, 1
 *      17        u8       type: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64,
 *                         7 f32, 8 u16
 *      18        u64      S, number of sequences
 *      26        u64      D, number of document entries, documents + 1
 *      34        i32[S]   tokens in each sequence
 *      34+4S     i64[S]   byte offset of each sequence in prefix.bin
 *      34+12S    i64[D]   first sequence of each document; 0 .. S
 *      34+12S+8D i8[S]    modes, in multimodal files only
 *
 * Merak reads a file as one stream of tokens unless documents are asked for,
 * so all three arrays are redundant; they are checked entry by entry, since an
 * index that does not match its tokens indicates a broken copy.
 */
#include "config.h"

#include "io/tokens/token_file.h"

#include "base/error.h"
#include "io/file.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 2048 /* array entries checked at a time */

typedef unsigned long long ull;

struct idx {
    const char *path;
    int fd;
    uint64_t bytes;
    uint8_t code;
    uint64_t sequences, entries;
    uint64_t lengths_at, pointers_at, documents_at, modes_at;
};

static uint64_t load_u64(const unsigned char *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return le64toh(v);
}

static int32_t load_i32(const unsigned char *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return (int32_t)le32toh(v);
}

static enum merak_status check_type(const struct idx *idx,
                                    struct merak_error *err)
{
    switch (idx->code) {
    case MERAK_TOKEN_U8:
    case MERAK_TOKEN_I8:
    case MERAK_TOKEN_I16:
    case MERAK_TOKEN_I32:
    case MERAK_TOKEN_I64:
    case MERAK_TOKEN_U16:
        return MERAK_OK;
    case 6:
    case 7:
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: tokens are of type %s, expected an integer "
                          "type",
                          idx->path, idx->code == 6 ? "f64" : "f32");
    default:
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: unknown token type code %u, expected 1-5 or 8",
                          idx->path, (unsigned)idx->code);
    }
}

static enum merak_status read_header(struct idx *idx, struct merak_error *err)
{
    unsigned char head[MERAK_IDX_HEADER_BYTES];
    enum merak_status rc;

    if (idx->bytes < sizeof(head))
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: %llu bytes, expected a header of %zu", idx->path,
                          (ull)idx->bytes, sizeof(head));
    rc = merak_file_read(idx->fd, idx->path, head, sizeof(head), 0, err);
    if (rc != MERAK_OK)
        return rc;
    if (memcmp(head, MERAK_IDX_MAGIC, MERAK_IDX_MAGIC_BYTES) != 0)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: not a Megatron index, it does not start with "
                          "MMIDIDX",
                          idx->path);
    if (load_u64(head + 9) != MERAK_IDX_VERSION)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: version %llu, expected %d", idx->path,
                          (ull)load_u64(head + 9), MERAK_IDX_VERSION);
    idx->code = head[17];
    idx->sequences = load_u64(head + 18);
    idx->entries = load_u64(head + 26);
    return check_type(idx, err);
}

/* Set the arrays' offsets; the counts must match the size of the file. */
static enum merak_status check_size(struct idx *idx, struct merak_error *err)
{
    uint64_t s = idx->sequences, d = idx->entries;

    /* This also keeps the sums below from overflowing. */
    if (s > idx->bytes / 12 || d > idx->bytes / 8)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: %llu bytes cannot hold the %llu sequences and "
                          "%llu document entries of its header",
                          idx->path, (ull)idx->bytes, (ull)s, (ull)d);
    idx->lengths_at = MERAK_IDX_HEADER_BYTES;
    idx->pointers_at = idx->lengths_at + 4 * s;
    idx->documents_at = idx->pointers_at + 8 * s;
    idx->modes_at = idx->documents_at + 8 * d;
    if (idx->bytes == idx->modes_at || idx->bytes == idx->modes_at + s)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "%s: %llu bytes, expected %llu for %llu sequences and "
                      "%llu document entries",
                      idx->path, (ull)idx->bytes, (ull)idx->modes_at, (ull)s,
                      (ull)d);
}

/* Check lengths [first, first + n) against their pointers; advances
 * *tokens_p. */
static enum merak_status check_block(const struct idx *idx, uint64_t first,
                                     size_t n, uint64_t *tokens_p,
                                     struct merak_error *err)
{
    unsigned char lengths[4 * BLOCK], pointers[8 * BLOCK];
    size_t bytes = merak_token_bytes((enum merak_token_type)idx->code);
    enum merak_status rc;

    rc = merak_file_read(idx->fd, idx->path, lengths, 4 * n,
                         idx->lengths_at + 4 * first, err);
    if (rc == MERAK_OK)
        rc = merak_file_read(idx->fd, idx->path, pointers, 8 * n,
                             idx->pointers_at + 8 * first, err);
    if (rc != MERAK_OK)
        return rc;
    for (size_t i = 0; i < n; i++) {
        int32_t length = load_i32(lengths + 4 * i);

        if (length < 0)
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "%s: sequence %llu has length %d", idx->path,
                              (ull)(first + i), (int)length);
        if (load_u64(pointers + 8 * i) != *tokens_p * bytes)
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "%s: sequence %llu has its pointer at byte %lld, "
                              "expected %llu from the lengths before it",
                              idx->path, (ull)(first + i),
                              (long long)load_u64(pointers + 8 * i),
                              (ull)(*tokens_p * bytes));
        *tokens_p += (uint64_t)length;
    }
    return MERAK_OK;
}

static enum merak_status check_sequences(const struct idx *idx,
                                         uint64_t *tokens_p,
                                         struct merak_error *err)
{
    uint64_t tokens = 0;

    for (uint64_t at = 0; at < idx->sequences; at += BLOCK) {
        uint64_t left = idx->sequences - at;
        size_t n = left < BLOCK ? (size_t)left : BLOCK;
        enum merak_status rc = check_block(idx, at, n, &tokens, err);

        if (rc != MERAK_OK)
            return rc;
    }
    *tokens_p = tokens;
    return MERAK_OK;
}

/* Check entry `at` of the document array, given the one before it. */
static enum merak_status check_document(const struct idx *idx, uint64_t at,
                                        uint64_t before, uint64_t value,
                                        struct merak_error *err)
{
    if (at == 0 && value != 0)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: the first document starts at sequence %lld, "
                          "expected 0",
                          idx->path, (long long)value);
    if (value < before || value > idx->sequences)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: document entry %llu is %lld, expected %llu to "
                          "%llu",
                          idx->path, (ull)at, (long long)value, (ull)before,
                          (ull)idx->sequences);
    if (at == idx->entries - 1 && value != idx->sequences)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: the last document entry is %llu, expected the "
                          "%llu sequences",
                          idx->path, (ull)value, (ull)idx->sequences);
    return MERAK_OK;
}

static enum merak_status check_documents(const struct idx *idx,
                                         struct merak_error *err)
{
    unsigned char block[8 * BLOCK];
    uint64_t before = 0;

    if (idx->entries == 0)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: no document entries, expected one more than "
                          "documents",
                          idx->path);
    for (uint64_t at = 0; at < idx->entries; at += BLOCK) {
        uint64_t left = idx->entries - at;
        size_t n = left < BLOCK ? (size_t)left : BLOCK;
        enum merak_status rc = merak_file_read(idx->fd, idx->path, block, 8 * n,
                                               idx->documents_at + 8 * at, err);

        for (size_t i = 0; rc == MERAK_OK && i < n; i++) {
            uint64_t value = load_u64(block + 8 * i);

            rc = check_document(idx, at + i, before, value, err);
            before = value;
        }
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

/* Modes other than 0 mark sequences that are not text. */
static enum merak_status check_modes(const struct idx *idx,
                                     struct merak_error *err)
{
    unsigned char block[BLOCK];

    for (uint64_t at = idx->modes_at; at < idx->bytes; at += BLOCK) {
        uint64_t left = idx->bytes - at;
        size_t n = left < BLOCK ? (size_t)left : BLOCK;
        enum merak_status rc =
            merak_file_read(idx->fd, idx->path, block, n, at, err);

        for (size_t i = 0; rc == MERAK_OK && i < n; i++) {
            if (block[i] != 0)
                rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                                "%s: multimodal, sequence %llu has mode %u; "
                                "only text is read",
                                idx->path, (ull)(at - idx->modes_at + i),
                                (unsigned)block[i]);
        }
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

static enum merak_status read_index(const char *path,
                                    struct merak_token_file *file,
                                    struct merak_error *err)
{
    struct idx idx = {.path = path, .fd = -1};
    uint64_t tokens = 0;
    enum merak_status rc;

    rc = merak_file_open(path, &idx.fd, &idx.bytes, err);
    if (rc != MERAK_OK)
        return rc;
    rc = read_header(&idx, err);
    if (rc == MERAK_OK)
        rc = check_size(&idx, err);
    if (rc == MERAK_OK)
        rc = check_documents(&idx, err);
    if (rc == MERAK_OK)
        rc = check_sequences(&idx, &tokens, err);
    if (rc == MERAK_OK)
        rc = check_modes(&idx, err);
    close(idx.fd);
    if (rc != MERAK_OK)
        return rc;
    file->format = "Megatron .bin/.idx";
    file->type = (enum merak_token_type)idx.code;
    file->tokens = tokens;
    file->documents = idx.entries - 1;
    return MERAK_OK;
}

/* Entry `at` of an array of u64. */
static enum merak_status read_entry(const struct idx *idx, uint64_t array,
                                    uint64_t at, uint64_t *value_p,
                                    struct merak_error *err)
{
    unsigned char raw[8];
    enum merak_status rc = merak_file_read(idx->fd, idx->path, raw, sizeof(raw),
                                           array + 8 * at, err);

    if (rc == MERAK_OK)
        *value_p = load_u64(raw);
    return rc;
}

/* A document begins with its first sequence. */
static enum merak_status read_begins(const struct idx *idx, uint64_t *begin,
                                     uint64_t tokens, struct merak_error *err)
{
    size_t bytes = merak_token_bytes((enum merak_token_type)idx->code);
    enum merak_status rc = MERAK_OK;

    begin[idx->entries - 1] = tokens;
    for (uint64_t d = 0; d + 1 < idx->entries && rc == MERAK_OK; d++) {
        uint64_t sequence, pointer = tokens * bytes;

        rc = read_entry(idx, idx->documents_at, d, &sequence, err);
        if (rc == MERAK_OK && sequence < idx->sequences)
            rc = read_entry(idx, idx->pointers_at, sequence, &pointer, err);
        begin[d] = pointer / bytes;
        if (rc == MERAK_OK &&
            (begin[d] > tokens || (d > 0 && begin[d] < begin[d - 1])))
            rc = merak_fail(err, MERAK_ERR_CORRUPT,
                            "%s: document %llu begins at token %llu, which "
                            "does not fit the others: did it change since it "
                            "was opened?",
                            idx->path, (ull)d, (ull)begin[d]);
    }
    return rc;
}

static char *with_suffix(const char *prefix, const char *suffix)
{
    size_t n = strlen(prefix) + strlen(suffix) + 1;
    char *path = malloc(n);

    if (path != NULL)
        snprintf(path, n, "%s%s", prefix, suffix);
    return path;
}

enum merak_status merak_megatron_documents(struct merak_token_file *file,
                                           struct merak_error *err)
{
    struct idx idx = {.fd = -1};
    char *path = strdup(file->path);
    uint64_t *begin = NULL;
    enum merak_status rc;

    if (path == NULL)
        return merak_fail_nomem(err, strlen(file->path));
    strcpy(path + strlen(path) - 4, ".idx"); /* it was .bin */
    idx.path = path;
    rc = merak_file_open(path, &idx.fd, &idx.bytes, err);
    if (rc == MERAK_OK)
        rc = read_header(&idx, err);
    if (rc == MERAK_OK)
        rc = check_size(&idx, err);
    if (rc == MERAK_OK && idx.entries != file->documents + 1)
        rc = merak_fail(err, MERAK_ERR_CORRUPT,
                        "%s changed while it was in use", path);
    if (rc != MERAK_OK)
        goto out;
    begin = calloc((size_t)idx.entries, sizeof(*begin));
    rc = begin == NULL
             ? merak_fail_nomem(err, (size_t)idx.entries * sizeof(*begin))
             : read_begins(&idx, begin, file->tokens, err);
    if (rc != MERAK_OK)
        goto out;
    file->begin = begin;
    begin = NULL; /* now owned by the file */
out:
    if (idx.fd >= 0)
        close(idx.fd);
    free(begin);
    free(path);
    return rc;
}

enum merak_status merak_megatron_open(const char *prefix,
                                      struct merak_token_file *file,
                                      struct merak_error *err)
{
    struct merak_token_file f = {.fd = -1};
    char *index = with_suffix(prefix, ".idx");
    uint64_t bytes;
    enum merak_status rc;

    f.path = with_suffix(prefix, ".bin");
    if (f.path == NULL || index == NULL) {
        rc = merak_fail_nomem(err, strlen(prefix) + 5);
        goto out;
    }
    rc = read_index(index, &f, err);
    if (rc == MERAK_OK)
        rc = merak_file_open(f.path, &f.fd, &bytes, err);
    if (rc != MERAK_OK)
        goto out;
    rc = merak_token_file_check_size(&f, bytes, ".idx", err);
    if (rc != MERAK_OK)
        goto out;
    rc = merak_mask_open(prefix, f.tokens, f.documents, &f.mask, err);
    if (rc != MERAK_OK)
        goto out;
    *file = f;
    f = (struct merak_token_file){.fd = -1}; /* now owned by the caller */
out:
    merak_token_file_fini(&f);
    free(index);
    return rc;
}
