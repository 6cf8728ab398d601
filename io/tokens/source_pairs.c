/* SPDX-License-Identifier: Apache-2.0 */
/* source_pairs.c - pairs of answers of a data set, for a loss of pairs */
#include "config.h"

#include "io/tokens/source.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* No document that a sequence could hold is longer than the reference's. */
static enum merak_status check_longest(const struct merak_source *src, size_t f,
                                       struct merak_error *err)
{
    const struct merak_token_file *file = &src->file[f];
    uint64_t longest = merak_reference_longest(src->reference[f]);

    for (uint64_t d = 0; d < file->documents; d++) {
        uint64_t n = file->begin[d + 1] - file->begin[d];

        if (n > longest && n <= src->seq)
            return merak_fail(err, MERAK_ERR_MISMATCH,
                              "%s: its losses under the reference model are "
                              "of documents of up to %llu tokens, this has "
                              "one of %llu: make them again with `merak eval "
                              "--reference --seq %zu`",
                              file->path, (unsigned long long)longest,
                              (unsigned long long)n, src->seq);
    }
    return MERAK_OK;
}

enum merak_status merak_source_open_pairs(struct merak_source *src,
                                          struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    src->reference = calloc(src->n_files, sizeof(*src->reference));
    if (src->reference == NULL)
        return merak_fail_nomem(err, src->n_files * sizeof(*src->reference));
    for (size_t f = 0; f < src->n_files && rc == MERAK_OK; f++) {
        const struct merak_token_file *file = &src->file[f];

        rc = merak_token_file_require_pairs(file, err);
        if (rc == MERAK_OK)
            rc = merak_reference_open(file, &src->reference[f], err);
        if (rc == MERAK_OK &&
            merak_reference_longest(src->reference[f]) < src->seq)
            rc = check_longest(src, f, err);
    }
    return rc;
}

enum merak_status merak_source_pack_pairs(struct merak_source *src, size_t f,
                                          double fraction,
                                          struct merak_error *err)
{
    const struct merak_token_file *file = &src->file[f];
    uint64_t tail = (uint64_t)((double)file->tokens * fraction);
    enum merak_status rc = MERAK_OK;

    for (uint64_t d = 0; d + 1 < file->documents && rc == MERAK_OK; d += 2) {
        const struct merak_packed_document pair = {.file = f,
                                                   .at = file->begin[d],
                                                   .n = file->begin[d + 2] -
                                                        file->begin[d]};
        bool is_tail = pair.at >= file->tokens - tail;

        if (file->begin[d] == file->begin[d + 1] ||
            file->begin[d + 1] == file->begin[d + 2])
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "%s: pair %llu has a document without tokens; "
                              "pack it again",
                              file->path, (unsigned long long)d / 2);
        rc = merak_packing_add_pair(
            &src->packing[is_tail ? MERAK_VALID : MERAK_TRAIN], &pair,
            (size_t)(file->begin[d + 1] - pair.at), src->seq, err);
    }
    return rc;
}

enum merak_status merak_source_pairs(const struct merak_source *src,
                                     enum merak_split split, uint64_t sample,
                                     int32_t *pairs, float *reference,
                                     struct merak_error *err)
{
    const struct merak_packing *packing = &src->packing[split];
    enum merak_status rc = MERAK_OK;
    size_t at = 0;

    memset(pairs, 0, src->seq * sizeof(*pairs));
    memset(reference, 0, src->seq * sizeof(*reference));
    for (size_t i = packing->first[sample];
         i < packing->first[sample + 1] && rc == MERAK_OK; i++) {
        const struct merak_doc_piece *p = &packing->piece[i];

        for (size_t k = 0; k < p->n; k++)
            pairs[at + k] = (int32_t)(at + p->second);
        rc = merak_reference_read(src->reference[p->file], p->at + 1, p->n,
                                  reference + at, err);
        at += p->n;
    }
    return rc;
}
