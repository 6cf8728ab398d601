/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - one data set of a blend */
#include "config.h"

#include "io/tokens/source.h"

#include "base/error.h"

#include <stdlib.h>

static enum merak_status cut_files(struct merak_source *src, double fraction,
                                   struct merak_error *err)
{
    uint64_t train = 0, valid = 0;

    src->end[MERAK_TRAIN] = calloc(src->n_files, sizeof(uint64_t));
    src->end[MERAK_VALID] = calloc(src->n_files, sizeof(uint64_t));
    if (src->end[MERAK_TRAIN] == NULL || src->end[MERAK_VALID] == NULL)
        return merak_fail_nomem(err, src->n_files * sizeof(uint64_t));
    for (size_t f = 0; f < src->n_files; f++) {
        uint64_t tokens = src->file[f].tokens;
        uint64_t tail = (uint64_t)((double)tokens * fraction);

        train += tokens - tail;
        valid += tail;
        src->end[MERAK_TRAIN][f] = train;
        src->end[MERAK_VALID][f] = valid;
    }
    return MERAK_OK;
}

static uint64_t split_tokens(const struct merak_source *src,
                             enum merak_split split)
{
    return src->end[split][src->n_files - 1];
}

static enum merak_status count_samples(struct merak_source *src,
                                       const char *path, enum merak_split split,
                                       size_t seq, struct merak_error *err)
{
    uint64_t tokens = split_tokens(src, split);

    if (tokens < seq + 1)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "%s: %llu tokens for %s, one sample of %zu needs "
                          "%zu",
                          path, (unsigned long long)tokens,
                          split == MERAK_TRAIN ? "training" : "validation", seq,
                          seq + 1);
    /* Neighbours share one token: the last target of one is the first input
     * of the next. */
    src->samples[split] = (tokens - 1) / seq;
    return MERAK_OK;
}

enum merak_status merak_source_open(const char *path,
                                    const struct merak_data_options *opt,
                                    struct merak_source *src,
                                    struct merak_error *err)
{
    struct merak_source s = {0};
    enum merak_status rc;

    rc = merak_token_files_open(path, &s.file, &s.n_files, err);
    if (rc != MERAK_OK)
        return rc;
    rc = cut_files(&s, opt->valid_fraction, err);
    if (rc == MERAK_OK)
        rc = count_samples(&s, path, MERAK_TRAIN, opt->seq, err);
    if (rc == MERAK_OK && opt->valid_fraction > 0)
        rc = count_samples(&s, path, MERAK_VALID, opt->seq, err);
    if (rc != MERAK_OK) {
        merak_source_close(&s);
        return rc;
    }
    *src = s;
    return MERAK_OK;
}

void merak_source_close(struct merak_source *src)
{
    merak_token_files_close(src->file, src->n_files);
    free(src->end[MERAK_TRAIN]);
    free(src->end[MERAK_VALID]);
    *src = (struct merak_source){0};
}

uint64_t merak_source_tokens(const struct merak_source *src)
{
    return split_tokens(src, MERAK_TRAIN) + split_tokens(src, MERAK_VALID);
}

/* The file that holds token `at` of a split: the first that ends after. */
static size_t find_file(const struct merak_source *src, enum merak_split split,
                        uint64_t at)
{
    size_t lo = 0, hi = src->n_files - 1;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (src->end[split][mid] > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

enum merak_status merak_source_read(const struct merak_source *src,
                                    enum merak_split split, uint64_t at,
                                    size_t n, size_t vocab, int32_t *out,
                                    struct merak_error *err)
{
    const uint64_t *end = src->end[split];
    size_t f = find_file(src, split, at);

    for (; n > 0; f++) {
        uint64_t left = end[f] - at;
        size_t part = left < n ? (size_t)left : n;
        /* A training part begins its file, a validation part ends it. */
        uint64_t from = split == MERAK_TRAIN ? at - (f > 0 ? end[f - 1] : 0)
                                             : src->file[f].tokens - left;
        enum merak_status rc =
            merak_token_file_read(&src->file[f], from, part, vocab, out, err);

        if (rc != MERAK_OK)
            return rc;
        at += part;
        out += part;
        n -= part;
    }
    return MERAK_OK;
}
