/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c - writing token files
 *
 * The formats are described where they are read: in megatron.c, llmc.c and
 * mask.c.  The .idx of a Megatron pair is renamed last, and an old one is
 * removed before the .bin is renamed: so an index never exists with the tokens,
 * the mask or the reference of another.
 */
#include "config.h"

#include "io/tokens/pack.h"

#include "base/error.h"
#include "io/file.h"
#include "io/tokens/beside.h"
#include "io/tokens/mask.h"
#include "io/tokens/out_file.h"
#include "io/tokens/reference.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define U16_VOCAB 65500 /* Megatron's limit for u16 */

struct merak_pack {
    enum merak_pack_format format;
    enum merak_token_type type;
    size_t vocab;
    struct merak_out bin, idx; /* idx: Megatron only */
    struct merak_out mask;     /* path NULL: none */
    char *stale[2];      /* of an old data set, to be removed */
    unsigned char bits;  /* of the mask, an incomplete byte */
    bool counted, pairs;
    uint64_t n_counted;
    int32_t *length;     /* of each document */
    size_t n_documents, room;
    uint64_t tokens;  /* of ended documents */
    uint64_t pending; /* of the current one */
};

static enum merak_status put_u64(struct merak_out *out, uint64_t value,
                                 struct merak_error *err)
{
    value = htole64(value);
    return merak_out_put(out, &value, sizeof(value), err);
}

/* --- a pack ------------------------------------------------------------ */

static enum merak_token_type choose_type(enum merak_pack_format format,
                                         size_t vocab)
{
    if (vocab < U16_VOCAB)
        return MERAK_TOKEN_U16;
    return format == MERAK_PACK_LLMC ? MERAK_TOKEN_U32 : MERAK_TOKEN_I32;
}

/* With an .idx, an llm.c file would look like a Megatron pair. */
static enum merak_status check_no_index(const char *prefix,
                                        struct merak_error *err)
{
    size_t n = strlen(prefix) + 5;
    char *path = malloc(n);
    enum merak_status rc = MERAK_OK;

    if (path == NULL)
        return merak_fail_nomem(err, n);
    snprintf(path, n, "%s.idx", prefix);
    if (access(path, F_OK) == 0)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "%s exists and would be taken for the index of "
                        "llm.c's %s.bin; remove it or choose another name",
                        path, prefix);
    free(path);
    return rc;
}

static enum merak_status note_stale(struct merak_pack *pack, const char *prefix,
                                    struct merak_error *err)
{
    static const char *const suffix[] = {".mask", MERAK_REFERENCE_SUFFIX};

    for (size_t i = 0; i < 2; i++) {
        pack->stale[i] = merak_beside_path(prefix, suffix[i]);
        if (pack->stale[i] == NULL)
            return merak_fail_nomem(err, strlen(prefix));
    }
    return MERAK_OK;
}

static enum merak_status open_outputs(struct merak_pack *pack,
                                      const char *prefix,
                                      struct merak_error *err)
{
    static const unsigned char header[MERAK_LLMC_HEADER_BYTES];
    enum merak_status rc;

    if (pack->format == MERAK_PACK_MEGATRON) {
        rc = merak_out_open(&pack->idx, prefix, ".idx", err);
        if (rc == MERAK_OK)
            rc = note_stale(pack, prefix, err);
        if (rc != MERAK_OK)
            return rc;
        return merak_out_open(&pack->bin, prefix, ".bin", err);
    }
    rc = check_no_index(prefix, err);
    if (rc == MERAK_OK)
        rc = merak_out_open(&pack->bin, prefix, ".bin", err);
    if (rc == MERAK_OK) /* filled in by merak_pack_commit */
        rc = merak_out_put(&pack->bin, header, sizeof(header), err);
    return rc;
}

enum merak_status merak_pack_create(const char *prefix,
                                    enum merak_pack_format format, size_t vocab,
                                    struct merak_pack **pack_p,
                                    struct merak_error *err)
{
    struct merak_pack *pack = calloc(1, sizeof(*pack));
    enum merak_status rc;

    if (pack == NULL)
        return merak_fail_nomem(err, sizeof(*pack));
    pack->format = format;
    pack->vocab = vocab;
    pack->type = choose_type(format, vocab);
    pack->bin.fd = pack->idx.fd = pack->mask.fd = -1;
    pack->counted = true;
    merak_out_remove_leftovers(prefix);
    rc = open_outputs(pack, prefix, err);
    if (rc != MERAK_OK) {
        merak_pack_destroy(pack);
        return rc;
    }
    *pack_p = pack;
    return MERAK_OK;
}

void merak_pack_destroy(struct merak_pack *pack)
{
    int saved = errno;

    if (pack == NULL)
        return;
    merak_out_close(&pack->bin);
    merak_out_close(&pack->idx);
    merak_out_close(&pack->mask);
    free(pack->stale[0]);
    free(pack->stale[1]);
    free(pack->length);
    free(pack);
    errno = saved;
}

enum merak_status merak_pack_add_mask(struct merak_pack *pack,
                                      const char *prefix,
                                      struct merak_error *err)
{
    enum merak_status rc;

    if (pack->format != MERAK_PACK_MEGATRON)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "llm.c's format cannot mark tokens of answers; use "
                          "--format megatron");
    rc = merak_out_start_sum(&pack->idx, err);
    return rc == MERAK_OK ? merak_out_open_headed(&pack->mask, prefix, ".mask",
                                                  MERAK_MASK_HEADER_BYTES, err)
                          : rc;
}

void merak_pack_set_pairs(struct merak_pack *pack)
{
    pack->pairs = true;
}

void merak_pack_set_counted(struct merak_pack *pack, bool counted)
{
    pack->counted = counted;
}

/* Write the bit of token `at` of the file. */
static enum merak_status put_bit(struct merak_pack *pack, uint64_t at,
                                 struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (pack->mask.path == NULL)
        return MERAK_OK;
    pack->bits |= (unsigned char)(pack->counted << at % 8);
    pack->n_counted += pack->counted;
    if (at % 8 == 7) {
        rc = merak_out_put(&pack->mask, &pack->bits, 1, err);
        pack->bits = 0;
    }
    return rc;
}

enum merak_status merak_pack_tokens(struct merak_pack *pack, const int32_t *ids,
                                    size_t n, struct merak_error *err)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t narrow = htole16((uint16_t)ids[i]);
        uint32_t wide = htole32((uint32_t)ids[i]);
        enum merak_status rc;

        if (ids[i] < 0 || (size_t)ids[i] >= pack->vocab)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "id %d is outside the vocabulary of %zu",
                              (int)ids[i], pack->vocab);
        rc = pack->type == MERAK_TOKEN_U16
                 ? merak_out_put(&pack->bin, &narrow, sizeof(narrow), err)
                 : merak_out_put(&pack->bin, &wide, sizeof(wide), err);
        if (rc == MERAK_OK)
            rc = put_bit(pack, pack->tokens + pack->pending + i, err);
        if (rc != MERAK_OK)
            return rc;
    }
    pack->pending += n;
    return MERAK_OK;
}

/* Both formats count in 31 bits: Megatron in a document, llm.c in a file. */
static enum merak_status check_counts(const struct merak_pack *pack,
                                      struct merak_error *err)
{
    uint64_t file = pack->tokens + pack->pending;

    if (pack->format == MERAK_PACK_MEGATRON && pack->pending > INT32_MAX)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "a document of %llu tokens, at most %d fit in "
                          "%s; split it",
                          (unsigned long long)pack->pending, INT32_MAX,
                          pack->idx.path);
    if (pack->format == MERAK_PACK_LLMC && file > INT32_MAX)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%llu tokens, at most %d fit in one llm.c file; "
                          "pack the documents into several",
                          (unsigned long long)file, INT32_MAX);
    return MERAK_OK;
}

enum merak_status merak_pack_end_document(struct merak_pack *pack,
                                          struct merak_error *err)
{
    enum merak_status rc = check_counts(pack, err);

    if (rc != MERAK_OK || pack->pending == 0)
        return rc;
    if (pack->n_documents == pack->room) {
        size_t room = pack->room > 0 ? 2 * pack->room : 1024;
        int32_t *grown = realloc(pack->length, room * sizeof(*grown));

        if (grown == NULL)
            return merak_fail_nomem(err, room * sizeof(*grown));
        pack->length = grown;
        pack->room = room;
    }
    /* llm.c has no documents, so lengths are not needed and the cast may
     * truncate. */
    pack->length[pack->n_documents++] = (int32_t)pack->pending;
    pack->tokens += pack->pending;
    pack->pending = 0;
    return MERAK_OK;
}

struct merak_pack_totals merak_pack_totals(const struct merak_pack *pack)
{
    return (struct merak_pack_totals){
        .tokens = pack->tokens,
        .documents = pack->n_documents,
        .counted = pack->n_counted,
        .type = pack->type,
    };
}

/* --- the end ----------------------------------------------------------- */

static enum merak_status put_lengths(struct merak_pack *pack,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0; rc == MERAK_OK && i < pack->n_documents; i++) {
        uint32_t length = htole32((uint32_t)pack->length[i]);

        rc = merak_out_put(&pack->idx, &length, sizeof(length), err);
    }
    return rc;
}

/* Write pointers, then documents of one sequence each. */
static enum merak_status put_places(struct merak_pack *pack,
                                    struct merak_error *err)
{
    size_t bytes = merak_token_bytes(pack->type);
    enum merak_status rc = MERAK_OK;
    uint64_t at = 0;

    for (size_t i = 0; rc == MERAK_OK && i < pack->n_documents; i++) {
        rc = put_u64(&pack->idx, at, err);
        at += (uint64_t)pack->length[i] * bytes;
    }
    for (size_t i = 0; rc == MERAK_OK && i <= pack->n_documents; i++)
        rc = put_u64(&pack->idx, i, err);
    return rc;
}

static enum merak_status write_index(struct merak_pack *pack,
                                     struct merak_error *err)
{
    unsigned char code = (unsigned char)pack->type;
    enum merak_status rc;

    rc = merak_out_put(&pack->idx, MERAK_IDX_MAGIC, MERAK_IDX_MAGIC_BYTES, err);
    if (rc == MERAK_OK)
        rc = put_u64(&pack->idx, MERAK_IDX_VERSION, err);
    if (rc == MERAK_OK)
        rc = merak_out_put(&pack->idx, &code, 1, err);
    if (rc == MERAK_OK)
        rc = put_u64(&pack->idx, pack->n_documents, err);
    if (rc == MERAK_OK)
        rc = put_u64(&pack->idx, pack->n_documents + 1, err);
    if (rc == MERAK_OK)
        rc = put_lengths(pack, err);
    if (rc == MERAK_OK)
        rc = put_places(pack, err);
    return rc;
}

static enum merak_status write_header(struct merak_pack *pack,
                                      struct merak_error *err)
{
    bool narrow = pack->type == MERAK_TOKEN_U16;
    uint32_t head[3] = {
        htole32(narrow ? MERAK_LLMC_MAGIC_U16 : MERAK_LLMC_MAGIC_U32),
        htole32(narrow ? MERAK_LLMC_VERSION_U16 : MERAK_LLMC_VERSION_U32),
        htole32((uint32_t)pack->tokens),
    };
    enum merak_status rc = merak_out_flush(&pack->bin, err);

    if (rc != MERAK_OK)
        return rc;
    if (lseek(pack->bin.fd, 0, SEEK_SET) < 0)
        return merak_file_fail(err, "write", pack->bin.path);
    return merak_file_write(pack->bin.fd, pack->bin.path, head, sizeof(head),
                            err);
}

/* After the index is written, since its checksum is part of the header. */
static enum merak_status finish_mask(struct merak_pack *pack,
                                     struct merak_error *err)
{
    unsigned char head[MERAK_MASK_HEADER_BYTES];
    struct merak_out *mask = &pack->mask;
    enum merak_status rc = MERAK_OK;

    if (mask->path == NULL)
        return MERAK_OK;
    if (pack->tokens % 8 != 0)
        rc = merak_out_put(mask, &pack->bits, 1, err);
    if (rc == MERAK_OK)
        rc = merak_out_flush(mask, err);
    if (rc != MERAK_OK)
        return rc;
    merak_mask_header(pack->tokens, pack->n_documents, pack->pairs,
                      XXH3_64bits_digest(pack->idx.sum),
                      XXH3_64bits_digest(mask->sum), head);
    return merak_out_finish(mask, head, sizeof(head), err);
}

static enum merak_status publish(struct merak_pack *pack,
                                 struct merak_error *err)
{
    bool pair = pack->format == MERAK_PACK_MEGATRON;
    enum merak_status rc;

    if (pair && unlink(pack->idx.path) != 0 && errno != ENOENT)
        return merak_file_fail(err, "replace", pack->idx.path);
    for (int i = 0; pair && i < 2; i++) {
        if (unlink(pack->stale[i]) != 0 && errno != ENOENT)
            return merak_file_fail(err, "replace", pack->stale[i]);
    }
    rc = merak_out_publish(&pack->bin, err);
    if (rc == MERAK_OK && pack->mask.path != NULL)
        rc = merak_out_publish(&pack->mask, err);
    if (rc == MERAK_OK && pair)
        rc = merak_out_publish(&pack->idx, err);
    if (rc == MERAK_OK)
        rc = merak_file_sync_dir(pack->bin.path, err);
    return rc;
}

enum merak_status merak_pack_commit(struct merak_pack *pack,
                                    struct merak_error *err)
{
    enum merak_status rc = merak_pack_end_document(pack, err);

    if (rc != MERAK_OK)
        return rc;
    if (pack->format == MERAK_PACK_LLMC) {
        rc = write_header(pack, err);
    } else {
        rc = write_index(pack, err);
        if (rc == MERAK_OK)
            rc = merak_out_sync(&pack->idx, err);
        if (rc == MERAK_OK)
            rc = finish_mask(pack, err);
    }
    if (rc == MERAK_OK)
        rc = merak_out_sync(&pack->bin, err);
    if (rc == MERAK_OK)
        rc = publish(pack, err);
    return rc;
}
