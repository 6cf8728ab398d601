/* SPDX-License-Identifier: Apache-2.0 */
/* parts_join.c - appending the documents of a part to a token file */
#include "config.h"

#include "io/tokens/parts.h"

#include "base/error.h"
#include "io/tokens/mask.h"
#include "io/tokens/token_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 65536 };

struct batch {
    int32_t id[BATCH];
    unsigned char counted[BATCH];
};

/* Tokens [at, at + n) in runs that are counted or not. */
static enum merak_status put_runs(const struct batch *b, size_t n,
                                  struct merak_pack *pack,
                                  struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t from = 0, to; rc == MERAK_OK && from < n; from = to) {
        for (to = from + 1; to < n && b->counted[to] == b->counted[from];)
            to++;
        merak_pack_set_counted(pack, b->counted[from] != 0);
        rc = merak_pack_tokens(pack, b->id + from, to - from, err);
    }
    return rc;
}

static enum merak_status put_document(const struct merak_token_file *file,
                                      uint64_t at, uint64_t end, size_t vocab,
                                      struct batch *b, struct merak_pack *pack,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    while (rc == MERAK_OK && at < end) {
        size_t n = end - at < BATCH ? (size_t)(end - at) : BATCH;

        rc = merak_token_file_read(file, at, n, vocab, b->id, err);
        for (size_t i = 0; file->mask == NULL && i < n; i++)
            b->counted[i] = 1;
        if (rc == MERAK_OK && file->mask != NULL)
            rc = merak_mask_read(file->mask, at, n, b->counted, err);
        if (rc == MERAK_OK)
            rc = put_runs(b, n, pack, err);
        at += n;
    }
    return rc == MERAK_OK ? merak_pack_end_document(pack, err) : rc;
}

static enum merak_status put_file(struct merak_token_file *file, size_t vocab,
                                  struct merak_pack *pack,
                                  struct merak_error *err)
{
    struct batch *b = malloc(sizeof(*b));
    enum merak_status rc;

    if (b == NULL)
        return merak_fail_nomem(err, sizeof(*b));
    if (merak_mask_has_pairs(file->mask))
        merak_pack_set_pairs(pack);
    rc = merak_token_file_documents(file, err);
    for (uint64_t i = 0; rc == MERAK_OK && i < file->documents; i++)
        rc = put_document(file, file->begin[i], file->begin[i + 1], vocab, b,
                          pack, err);
    free(b);
    return rc;
}

enum merak_status merak_parts_join(const struct merak_parts *parts,
                                   const json_t *counts, size_t vocab,
                                   struct merak_pack *pack,
                                   struct merak_error *err)
{
    const char *name = json_string_value(json_object_get(counts, "files"));
    struct merak_token_file *file = NULL;
    char prefix[PATH_MAX];
    size_t n = 0;
    enum merak_status rc;

    snprintf(prefix, sizeof(prefix), "%s/%s", parts->folder,
             name != NULL ? name : "");
    rc = merak_token_files_open(prefix, &file, &n, err);
    for (size_t k = 0; rc == MERAK_OK && k < n; k++)
        rc = put_file(&file[k], vocab, pack, err);
    merak_token_files_close(file, n);
    return rc;
}
