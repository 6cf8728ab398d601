/* SPDX-License-Identifier: Apache-2.0 */
/* token_file.c - finding, opening and reading token files */
#include "config.h"

#include "io/tokens/token_file.h"

#include "base/error.h"
#include "io/file.h"
#include "io/tokens/reference.h"

#include <endian.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define CHUNK_BYTES 16384 /* converted at a time, on the stack */

size_t merak_token_bytes(enum merak_token_type type)
{
    switch (type) {
    case MERAK_TOKEN_U8:
    case MERAK_TOKEN_I8:
        return 1;
    case MERAK_TOKEN_I16:
    case MERAK_TOKEN_U16:
        return 2;
    case MERAK_TOKEN_I32:
    case MERAK_TOKEN_U32:
        return 4;
    case MERAK_TOKEN_I64:
        return 8;
    }
    return 0;
}

const char *merak_token_type_name(enum merak_token_type type)
{
    switch (type) {
    case MERAK_TOKEN_U8:
        return "u8";
    case MERAK_TOKEN_I8:
        return "i8";
    case MERAK_TOKEN_I16:
        return "i16";
    case MERAK_TOKEN_I32:
        return "i32";
    case MERAK_TOKEN_I64:
        return "i64";
    case MERAK_TOKEN_U16:
        return "u16";
    case MERAK_TOKEN_U32:
        return "u32";
    }
    return "?";
}

/* --- reading ----------------------------------------------------------- */

static int64_t load_token(enum merak_token_type type, const unsigned char *p)
{
    uint16_t v16;
    uint32_t v32;
    uint64_t v64;

    switch (merak_token_bytes(type)) {
    case 1:
        return type == MERAK_TOKEN_I8 ? (int8_t)p[0] : p[0];
    case 2:
        memcpy(&v16, p, sizeof(v16));
        v16 = le16toh(v16);
        return type == MERAK_TOKEN_I16 ? (int16_t)v16 : v16;
    case 4:
        memcpy(&v32, p, sizeof(v32));
        v32 = le32toh(v32);
        return type == MERAK_TOKEN_I32 ? (int32_t)v32 : (int64_t)v32;
    default:
        memcpy(&v64, p, sizeof(v64));
        return (int64_t)le64toh(v64);
    }
}

static enum merak_status bad_token(const struct merak_token_file *file,
                                   uint64_t at, int64_t id, size_t vocab,
                                   struct merak_error *err)
{
    if (vocab == 0)
        return merak_fail(
            err, MERAK_ERR_CORRUPT, "%s: token %llu is %lld, expected 0 to %d",
            file->path, (unsigned long long)at, (long long)id, INT32_MAX);
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "%s: token %llu is %lld, outside the vocabulary of %zu",
                      file->path, (unsigned long long)at, (long long)id, vocab);
}

enum merak_status merak_token_file_read(const struct merak_token_file *file,
                                        uint64_t at, size_t n, size_t vocab,
                                        int32_t *out, struct merak_error *err)
{
    unsigned char raw[CHUNK_BYTES];
    size_t bytes = merak_token_bytes(file->type);
    int64_t limit = (int64_t)INT32_MAX + 1;

    if (vocab != 0 && vocab < (size_t)limit)
        limit = (int64_t)vocab;
    for (size_t done = 0, part; done < n; done += part) {
        enum merak_status rc;

        part = n - done < CHUNK_BYTES / bytes ? n - done : CHUNK_BYTES / bytes;
        rc = merak_file_read(file->fd, file->path, raw, part * bytes,
                             file->first_byte + (at + done) * bytes, err);
        if (rc != MERAK_OK)
            return rc;
        for (size_t i = 0; i < part; i++) {
            int64_t id = load_token(file->type, raw + i * bytes);

            if (id < 0 || id >= limit)
                return bad_token(file, at + done + i, id, vocab, err);
            out[done + i] = (int32_t)id;
        }
    }
    return MERAK_OK;
}

enum merak_status merak_token_file_documents(struct merak_token_file *file,
                                             struct merak_error *err)
{
    if (file->begin != NULL)
        return MERAK_OK;
    if (file->documents == 0)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%s: %s files do not record where documents begin; "
                          "`merak data pack` without --format llmc makes files "
                          "that do",
                          file->path, file->format);
    return merak_megatron_documents(file, err);
}

enum merak_status
merak_token_file_require_pairs(const struct merak_token_file *file,
                               struct merak_error *err)
{
    if (merak_mask_has_pairs(file->mask))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "%s has no pairs of answers: `merak data pack` makes "
                      "them of lines with \"chosen\" and \"rejected\"",
                      file->path);
}

/* --- finding ----------------------------------------------------------- */

static bool ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);

    return n >= m && strcmp(s + n - m, suffix) == 0;
}

/* Does a file of any kind named stem[0 .. n) with suffix exist? */
static bool exists(const char *stem, size_t n, const char *suffix)
{
    char path[4096];
    struct stat st;
    int len = snprintf(path, sizeof(path), "%.*s%s", (int)n, stem, suffix);

    return len > 0 && (size_t)len < sizeof(path) && stat(path, &st) == 0;
}

static enum merak_status open_prefix(const char *path, size_t n,
                                     struct merak_token_file *file,
                                     struct merak_error *err)
{
    char *prefix = strndup(path, n);
    enum merak_status rc;

    if (prefix == NULL)
        return merak_fail_nomem(err, n + 1);
    rc = merak_megatron_open(prefix, file, err);
    free(prefix);
    return rc;
}

static enum merak_status open_one(const char *path,
                                  struct merak_token_file *file,
                                  struct merak_error *err)
{
    static const char *const suffix[] = {".bin", ".mask",
                                         MERAK_REFERENCE_SUFFIX};
    size_t n = strlen(path);

    if (ends_with(path, ".idx"))
        return open_prefix(path, n - 4, file, err);
    for (size_t i = 0; i < sizeof(suffix) / sizeof(*suffix); i++) {
        size_t m = strlen(suffix[i]);

        if (ends_with(path, suffix[i]) && exists(path, n - m, ".idx"))
            return open_prefix(path, n - m, file, err);
    }
    if (exists(path, n, ".idx"))
        return open_prefix(path, n, file, err);
    if (exists(path, n, ""))
        return merak_llmc_open(path, file, err);
    if (exists(path, n, ".bin"))
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "%s.bin has no %s.idx beside it; if it is llm.c's, "
                          "give its full name",
                          path, path);
    return merak_fail(err, MERAK_ERR_NOT_FOUND,
                      "%s: no such data set, neither %s.idx nor a file of "
                      "that name",
                      path, path);
}

/* skip_idx: the .bin represents the pair. */
static enum merak_status open_all(char *const *paths, size_t n_paths,
                                  bool skip_idx,
                                  struct merak_token_file **files_p,
                                  size_t *n_p, struct merak_error *err)
{
    struct merak_token_file *files = calloc(n_paths, sizeof(*files));
    enum merak_status rc = MERAK_OK;
    size_t n = 0;

    if (files == NULL)
        return merak_fail_nomem(err, n_paths * sizeof(*files));
    for (size_t i = 0; i < n_paths; i++) {
        if (skip_idx &&
            (ends_with(paths[i], ".idx") || ends_with(paths[i], ".mask") ||
             ends_with(paths[i], MERAK_REFERENCE_SUFFIX)))
            continue;
        rc = open_one(paths[i], &files[n], err);
        if (rc != MERAK_OK)
            goto out;
        n++;
    }
    if (n == 0) {
        rc = merak_fail(err, MERAK_ERR_NOT_FOUND, "%s: no .bin beside it",
                        paths[0]);
        goto out;
    }
    *files_p = files;
    *n_p = n;
    files = NULL; /* now owned by the caller */
out:
    merak_token_files_close(files, n);
    return rc;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum merak_status open_pattern(const char *pattern,
                                      struct merak_token_file **files_p,
                                      size_t *n_p, struct merak_error *err)
{
    glob_t found = {0};
    enum merak_status rc;
    int code = glob(pattern, GLOB_NOSORT, NULL, &found);

    if (code == GLOB_NOMATCH) {
        rc =
            merak_fail(err, MERAK_ERR_NOT_FOUND, "no file matches %s", pattern);
    } else if (code != 0) {
        rc = merak_fail(err, MERAK_ERR_IO, "cannot list %s", pattern);
    } else {
        /* By bytes: glob's own order depends on the locale. */
        qsort(found.gl_pathv, found.gl_pathc, sizeof(*found.gl_pathv),
              compare_paths);
        rc = open_all(found.gl_pathv, found.gl_pathc,
                      !ends_with(pattern, ".idx"), files_p, n_p, err);
    }
    globfree(&found);
    return rc;
}

enum merak_status merak_token_files_open(const char *path,
                                         struct merak_token_file **files_p,
                                         size_t *n_p, struct merak_error *err)
{
    if (strpbrk(path, "*?[") != NULL && !exists(path, strlen(path), ""))
        return open_pattern(path, files_p, n_p, err);
    return open_all((char *const[]){(char *)path}, 1, false, files_p, n_p, err);
}

enum merak_status
merak_token_file_check_size(const struct merak_token_file *file, uint64_t bytes,
                            const char *where, struct merak_error *err)
{
    uint64_t want =
        file->first_byte + file->tokens * merak_token_bytes(file->type);

    if (bytes == want)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "%s: %llu bytes, expected %llu for the %llu %s tokens of "
                      "its %s",
                      file->path, (unsigned long long)bytes,
                      (unsigned long long)want,
                      (unsigned long long)file->tokens,
                      merak_token_type_name(file->type), where);
}

void merak_token_file_fini(struct merak_token_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file->begin);
    merak_mask_close(file->mask);
}

void merak_token_files_close(struct merak_token_file *files, size_t n)
{
    for (size_t i = 0; files != NULL && i < n; i++)
        merak_token_file_fini(&files[i]);
    free(files);
}

/* Places in a file, ends included, and tokens at each. */
enum { PLACES = 16, PLACE_TOKENS = 64 };

enum merak_status merak_token_file_hash(const struct merak_token_file *file,
                                        struct XXH3_state_s *h,
                                        struct merak_error *err)
{
    size_t n =
        file->tokens < PLACE_TOKENS ? (size_t)file->tokens : PLACE_TOKENS;
    uint64_t numbers[3] = {file->tokens, file->documents, 0};
    int32_t ids[PLACE_TOKENS];
    enum merak_status rc = MERAK_OK;

    if (file->mask != NULL)
        numbers[2] = merak_mask_checksum(file->mask);
    XXH3_128bits_update(h, numbers, sizeof(numbers));
    for (size_t i = 0; i < PLACES && rc == MERAK_OK; i++) {
        uint64_t at = (file->tokens - n) / (PLACES - 1) * i;

        if (i == PLACES - 1)
            at = file->tokens - n;
        /* ids are checked when they are trained on */
        rc = merak_token_file_read(file, at, n, 0, ids, err);
        if (rc == MERAK_OK)
            XXH3_128bits_update(h, ids, n * sizeof(*ids));
    }
    return rc;
}
