/* SPDX-License-Identifier: Apache-2.0 */
/* llmc.c - llm.c's token files
 *
 * Little endian.  A header of 256 i32 (magic, version, number of tokens,
 * zeros), then the tokens: u16 under magic 20240520 version 1, u32 under magic
 * 20240801 version 7.  The file's size must match the number of tokens.
 */
#include "config.h"

#include "io/tokens/token_file.h"

#include "base/error.h"
#include "io/file.h"

#include <endian.h>
#include <string.h>

static const struct {
    int32_t magic, version;
    enum merak_token_type type;
} kinds[] = {
    {MERAK_LLMC_MAGIC_U16, MERAK_LLMC_VERSION_U16, MERAK_TOKEN_U16},
    {MERAK_LLMC_MAGIC_U32, MERAK_LLMC_VERSION_U32, MERAK_TOKEN_U32},
};

/* Other files of llm.c that also end in .bin. */
static const struct {
    int32_t magic;
    const char *what;
} others[] = {
    {20240326, "an llm.c model"},
    {20240803, "an llm.c model"},
    {20240327, "an llm.c debug state"},
    {20240328, "an llm.c vocabulary"},
    {20240522, "an llm.c evaluation set"},
    {20240527, "an llm.c optimizer state"},
};

static enum merak_status unknown_magic(const char *path, int32_t magic,
                                       struct merak_error *err)
{
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        if (others[i].magic == magic)
            return merak_fail(err, MERAK_ERR_FORMAT,
                              "%s is %s, expected tokens", path,
                              others[i].what);
    }
    return merak_fail(err, MERAK_ERR_FORMAT,
                      "%s: not a token file, it starts with %d, expected %d "
                      "or %d (llm.c) or an .idx beside it (Megatron)",
                      path, (int)magic, MERAK_LLMC_MAGIC_U16,
                      MERAK_LLMC_MAGIC_U32);
}

static enum merak_status parse_header(const int32_t head[3], uint64_t bytes,
                                      struct merak_token_file *file,
                                      struct merak_error *err)
{
    size_t k = 0, n_kinds = sizeof(kinds) / sizeof(*kinds);

    while (k < n_kinds && kinds[k].magic != head[0])
        k++;
    if (k == n_kinds)
        return unknown_magic(file->path, head[0], err);
    if (head[1] != kinds[k].version)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: llm.c version %d, expected %d", file->path,
                          (int)head[1], (int)kinds[k].version);
    if (head[2] < 0)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: its header gives %d tokens", file->path,
                          (int)head[2]);
    file->type = kinds[k].type;
    file->tokens = (uint64_t)head[2];
    return merak_token_file_check_size(file, bytes, "header", err);
}

enum merak_status merak_llmc_open(const char *path,
                                  struct merak_token_file *file,
                                  struct merak_error *err)
{
    struct merak_token_file f = {
        .fd = -1, .format = "llm.c", .first_byte = MERAK_LLMC_HEADER_BYTES};
    int32_t head[3];
    uint64_t bytes;
    enum merak_status rc;

    f.path = strdup(path);
    if (f.path == NULL)
        return merak_fail_nomem(err, strlen(path) + 1);
    rc = merak_file_open(path, &f.fd, &bytes, err);
    if (rc != MERAK_OK)
        goto out;
    if (bytes < MERAK_LLMC_HEADER_BYTES) {
        rc = merak_fail(err, MERAK_ERR_CORRUPT,
                        "%s: %llu bytes, too few for llm.c's header of %d, "
                        "and no Megatron .idx is beside it",
                        path, (unsigned long long)bytes,
                        MERAK_LLMC_HEADER_BYTES);
        goto out;
    }
    rc = merak_file_read(f.fd, path, head, sizeof(head), 0, err);
    if (rc != MERAK_OK)
        goto out;
    for (size_t i = 0; i < 3; i++)
        head[i] = (int32_t)le32toh((uint32_t)head[i]);
    rc = parse_header(head, bytes, &f, err);
    if (rc != MERAK_OK)
        goto out;
    *file = f;
    f = (struct merak_token_file){.fd = -1}; /* now owned by the caller */
out:
    merak_token_file_fini(&f);
    return rc;
}
