/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - one data set of a blend */
#include "config.h"

#include "io/tokens/source.h"

#include "base/bisect.h"
#include "base/error.h"
#include "merak/types.h"

#include <stdlib.h>
#include <string.h>

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
        return merak_fail(
            err, MERAK_ERR_MISMATCH,
            "%s: %llu tokens for %s, one sample of %zu needs "
            "%zu: give more data%s",
            path, (unsigned long long)tokens,
            split == MERAK_TRAIN ? "training" : "validation", seq, seq + 1,
            split == MERAK_VALID ? ", a smaller --seq or --valid-fraction 0"
            : split_tokens(src, MERAK_VALID) > 0
                ? ", a smaller --seq or --valid-fraction"
                : " or a smaller --seq");
    /* Adjacent samples share a token: the last target of one is the first
     * input of the next. */
    src->samples[split] = (tokens - 1) / seq;
    return MERAK_OK;
}

/* --- documents packed into samples -------------------------------------- */

/* Read which tokens of a document are to be predicted; grows the buffer. */
static enum merak_status read_counted(const struct merak_token_file *file,
                                      struct merak_packed_document *doc,
                                      unsigned char **buffer, size_t *room,
                                      struct merak_error *err)
{
    uint64_t n = doc->n;
    enum merak_status rc;

    doc->counted = NULL;
    if (file->mask == NULL)
        return MERAK_OK;
    if (n > *room) {
        unsigned char *more = realloc(*buffer, (size_t)n);

        if (more == NULL)
            return merak_fail_nomem(err, (size_t)n);
        *buffer = more;
        *room = (size_t)n;
    }
    rc = merak_mask_read(file->mask, doc->at, (size_t)n, *buffer, err);
    doc->counted = *buffer;
    return rc;
}

static enum merak_status pack_file(struct merak_source *src, size_t f,
                                   double fraction, struct merak_error *err)
{
    const struct merak_token_file *file = &src->file[f];
    uint64_t tail = (uint64_t)((double)file->tokens * fraction);
    enum merak_status rc = MERAK_OK;
    unsigned char *buffer = NULL;
    size_t room = 0;

    for (uint64_t d = 0; d < file->documents && rc == MERAK_OK; d++) {
        struct merak_packed_document doc = {.file = f, .at = file->begin[d]};
        bool is_tail = doc.at >= file->tokens - tail;

        doc.n = file->begin[d + 1] - doc.at;
        rc = read_counted(file, &doc, &buffer, &room, err);
        if (rc == MERAK_OK)
            rc = merak_packing_add(
                &src->packing[is_tail ? MERAK_VALID : MERAK_TRAIN], &doc,
                src->seq, err);
    }
    free(buffer);
    return rc;
}

static enum merak_status finish_packing(struct merak_source *src,
                                        const char *path,
                                        enum merak_split split,
                                        struct merak_error *err)
{
    enum merak_status rc =
        merak_packing_finish(&src->packing[split], src->seq, err);

    if (rc == MERAK_OK && src->packing[split].n_samples == 0 &&
        src->packing[split].too_long > 0)
        return merak_fail(
            err, MERAK_ERR_MISMATCH,
            "%s: all %llu pairs for %s are longer than a "
            "sequence of %zu tokens; the longest takes --seq "
            "%llu",
            path, (unsigned long long)src->packing[split].too_long,
            split == MERAK_TRAIN ? "training" : "validation", src->seq,
            (unsigned long long)src->packing[split].longest);
    if (rc == MERAK_OK && src->packing[split].n_samples == 0)
        return merak_fail(
            err, MERAK_ERR_MISMATCH,
            "%s: no document for %s with a token to predict%s", path,
            split == MERAK_TRAIN ? "training" : "validation",
            split == MERAK_TRAIN ? ""
                                 : "; give a larger --valid-fraction, or 0 for "
                                   "none");
    src->samples[split] = src->packing[split].n_samples;
    return rc;
}

static enum merak_status pack_samples(struct merak_source *src,
                                      const char *path, double fraction,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t f = 0; rc == MERAK_OK && f < src->n_files; f++)
        rc = src->pairs ? merak_source_pack_pairs(src, f, fraction, err)
                        : pack_file(src, f, fraction, err);
    if (rc == MERAK_OK)
        rc = finish_packing(src, path, MERAK_TRAIN, err);
    if (rc == MERAK_OK && fraction > 0)
        rc = finish_packing(src, path, MERAK_VALID, err);
    return rc;
}

/* --- reading ------------------------------------------------------------ */

/* The file that holds token `at` of a split: the first that ends after. */
static size_t find_file(const struct merak_source *src, enum merak_split split,
                        uint64_t at)
{
    size_t f;

    MERAK_BISECT(f, 0, src->n_files - 1, src->end[split][f] > at);
    return f;
}

/* Tokens [from, from + n) of a file. */
struct part {
    size_t file, n;
    uint64_t from;
    bool is_first; /* of this file's tokens in the split */
};

/* The part in file f of the n tokens from `at` on of a split's stream. */
static struct part part_of(const struct merak_source *src,
                           enum merak_split split, size_t f, uint64_t at,
                           size_t n)
{
    const uint64_t *end = src->end[split];
    uint64_t before = f > 0 ? end[f - 1] : 0, left = end[f] - at;

    /* A training part begins its file, a validation part ends it. */
    return (struct part){
        .file = f,
        .n = left < n ? (size_t)left : n,
        .from = split == MERAK_TRAIN ? at - before : src->file[f].tokens - left,
        .is_first = at == before};
}

static enum merak_status read_stream(const struct merak_source *src,
                                     enum merak_split split, uint64_t at,
                                     size_t n, size_t vocab, int32_t *out,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t f = find_file(src, split, at); n > 0 && rc == MERAK_OK; f++) {
        struct part p = part_of(src, split, f, at, n);

        rc = merak_token_file_read(&src->file[f], p.from, p.n, vocab, out, err);
        at += p.n;
        out += p.n;
        n -= p.n;
    }
    return rc;
}

/* Marks of a token. */
enum { COUNTED = 1, BEGINS = 2 };

/* The first document that ends after token `at`. */
static size_t find_document(const struct merak_token_file *file, uint64_t at)
{
    size_t d;

    MERAK_BISECT(d, 0, (size_t)file->documents - 1, file->begin[d + 1] > at);
    return d;
}

static void mark_begins(const struct merak_token_file *file,
                        const struct part *p, unsigned char *mark)
{
    size_t d = find_document(file, p->from);

    for (; d < file->documents && file->begin[d] < p->from + p->n; d++) {
        if (file->begin[d] >= p->from)
            mark[file->begin[d] - p->from] |= BEGINS;
    }
    if (p->is_first)
        mark[0] |= BEGINS;
}

static enum merak_status mark_part(const struct merak_source *src,
                                   const struct part *p, unsigned char *mark,
                                   struct merak_error *err)
{
    const struct merak_token_file *file = &src->file[p->file];
    enum merak_status rc = MERAK_OK;

    if (file->mask == NULL)
        memset(mark, COUNTED, p->n);
    else
        rc = merak_mask_read(file->mask, p->from, p->n, mark, err);
    if (rc != MERAK_OK || !src->documents)
        return rc;
    mark_begins(file, p, mark);
    for (size_t i = 0; i < p->n; i++)
        mark[i] &= (unsigned char)(mark[i] & BEGINS ? ~COUNTED : ~0);
    return MERAK_OK;
}

/* Set src->mark[0 .. seq] for a sample of the stream. */
static enum merak_status mark_sample(const struct merak_source *src,
                                     enum merak_split split, uint64_t sample,
                                     struct merak_error *err)
{
    unsigned char *mark = src->mark;
    uint64_t at = sample * src->seq;
    size_t n = src->seq + 1;
    enum merak_status rc = MERAK_OK;

    for (size_t f = find_file(src, split, at); n > 0 && rc == MERAK_OK; f++) {
        struct part p = part_of(src, split, f, at, n);

        rc = mark_part(src, &p, mark, err);
        at += p.n;
        mark += p.n;
        n -= p.n;
    }
    return rc;
}

static bool is_plain(const struct merak_source *src)
{
    return !src->masked && !src->documents;
}

/* Remove targets that are not to be predicted. */
static void drop_targets(const unsigned char *mark, int32_t *targets, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!(mark[i] & COUNTED))
            targets[i] = MERAK_NO_TARGET;
    }
}

static enum merak_status stream_sample(const struct merak_source *src,
                                       enum merak_split split, uint64_t sample,
                                       size_t vocab, int32_t *tokens,
                                       int32_t *targets,
                                       struct merak_error *err)
{
    size_t T = src->seq;
    uint64_t at = sample * T;
    enum merak_status rc = read_stream(src, split, at, T, vocab, tokens, err);

    if (rc != MERAK_OK)
        return rc;
    memcpy(targets, tokens + 1, (T - 1) * sizeof(*targets));
    rc = read_stream(src, split, at + T, 1, vocab, targets + T - 1, err);
    if (rc != MERAK_OK || is_plain(src))
        return rc;
    rc = mark_sample(src, split, sample, err);
    if (rc == MERAK_OK)
        drop_targets(src->mark + 1, targets, T);
    return rc;
}

static enum merak_status read_piece(const struct merak_source *src,
                                    const struct merak_doc_piece *p,
                                    size_t vocab, int32_t *tokens,
                                    int32_t *targets, struct merak_error *err)
{
    const struct merak_token_file *file = &src->file[p->file];
    enum merak_status rc =
        merak_token_file_read(file, p->at, p->n, vocab, tokens, err);

    if (rc == MERAK_OK)
        rc = merak_token_file_read(file, p->at + p->n, 1, vocab,
                                   targets + p->n - 1, err);
    if (rc != MERAK_OK)
        return rc;
    memcpy(targets, tokens + 1, (p->n - 1) * sizeof(*targets));
    if (file->mask == NULL)
        return MERAK_OK;
    rc = merak_mask_read(file->mask, p->at + 1, p->n, src->mark, err);
    if (rc == MERAK_OK && p->second > 0)
        src->mark[p->second - 1] = 0; /* the first token of a document */
    if (rc == MERAK_OK)
        drop_targets(src->mark, targets, p->n);
    return rc;
}

/* The rest of the sequence is filled with token 0, without targets. */
static enum merak_status packed_sample(const struct merak_source *src,
                                       enum merak_split split, uint64_t sample,
                                       size_t vocab, int32_t *tokens,
                                       int32_t *targets,
                                       struct merak_error *err)
{
    const struct merak_packing *packing = &src->packing[split];
    enum merak_status rc = MERAK_OK;
    size_t at = 0;

    for (size_t i = packing->first[sample];
         i < packing->first[sample + 1] && rc == MERAK_OK; i++) {
        rc = read_piece(src, &packing->piece[i], vocab, tokens + at,
                        targets + at, err);
        at += packing->piece[i].n;
    }
    for (; at < src->seq; at++) {
        tokens[at] = 0;
        targets[at] = MERAK_NO_TARGET;
    }
    return rc;
}

enum merak_status merak_source_sample(const struct merak_source *src,
                                      enum merak_split split, uint64_t sample,
                                      size_t vocab, int32_t *tokens,
                                      int32_t *targets, struct merak_error *err)
{
    return src->packed
               ? packed_sample(src, split, sample, vocab, tokens, targets, err)
               : stream_sample(src, split, sample, vocab, tokens, targets, err);
}

/* Each filler token counts as a document. */
static void packed_starts(const struct merak_source *src,
                          enum merak_split split, uint64_t sample,
                          int32_t *starts)
{
    const struct merak_packing *packing = &src->packing[split];
    size_t at = 0;

    for (size_t i = packing->first[sample]; i < packing->first[sample + 1];
         i++) {
        const struct merak_doc_piece *p = &packing->piece[i];
        size_t begin = at, end = at + p->n, second = at + p->second;

        for (; at < end; at++)
            starts[at] =
                (int32_t)(p->second > 0 && at >= second ? second : begin);
    }
    for (; at < src->seq; at++)
        starts[at] = (int32_t)at;
}

enum merak_status merak_source_starts(const struct merak_source *src,
                                      enum merak_split split, uint64_t sample,
                                      int32_t *starts, struct merak_error *err)
{
    enum merak_status rc;
    size_t start = 0;

    if (src->packed) {
        packed_starts(src, split, sample, starts);
        return MERAK_OK;
    }
    rc = mark_sample(src, split, sample, err);
    for (size_t i = 0; i < src->seq && rc == MERAK_OK; i++) {
        if (src->mark[i] & BEGINS)
            start = i;
        starts[i] = (int32_t)start;
    }
    return rc;
}

/* Count the marks of mark_sample(). */
static uint64_t count_marks(const struct merak_source *src)
{
    uint64_t n = 0;

    for (size_t i = 1; i <= src->seq; i++)
        n += src->mark[i] & COUNTED;
    return n;
}

uint64_t merak_source_counted(const struct merak_source *src,
                              enum merak_split split, uint64_t sample)
{
    if (src->packed)
        return src->packing[split].counted[sample];
    if (src->masked)
        return src->counted[split][sample];
    if (!src->documents)
        return src->seq;
    /* Documents are in memory, so this cannot fail. */
    return mark_sample(src, split, sample, NULL) == MERAK_OK ? count_marks(src)
                                                             : 0;
}

/* --- opening ------------------------------------------------------------ */

/* Count now, so that no step has to read masks before it begins. */
static enum merak_status count_stream(struct merak_source *src,
                                      enum merak_split split,
                                      struct merak_error *err)
{
    uint64_t n = src->samples[split];
    enum merak_status rc = MERAK_OK;

    src->counted[split] = calloc((size_t)n + 1, sizeof(uint64_t));
    if (src->counted[split] == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(uint64_t));
    for (uint64_t s = 0; s < n && rc == MERAK_OK; s++) {
        rc = mark_sample(src, split, s, err);
        src->counted[split][s] = count_marks(src);
    }
    return rc;
}

static enum merak_status find_documents(struct merak_source *src,
                                        const struct merak_data_options *opt,
                                        struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t f = 0; f < src->n_files; f++)
        src->masked = src->masked || src->file[f].mask != NULL;
    src->documents = opt->documents;
    src->pairs = opt->pairs;
    src->packed = opt->packing == MERAK_PACKING_BEST_FIT || opt->pairs ||
                  (opt->packing == MERAK_PACKING_AUTO && src->masked);
    if (!src->masked && !src->documents && !src->packed)
        return MERAK_OK;
    src->mark = malloc(src->seq + 1);
    if (src->mark == NULL)
        return merak_fail_nomem(err, src->seq + 1);
    for (size_t f = 0; f < src->n_files && rc == MERAK_OK; f++)
        rc = src->documents || src->packed
                 ? merak_token_file_documents(&src->file[f], err)
                 : MERAK_OK;
    return rc;
}

enum merak_status merak_source_open(const char *path,
                                    const struct merak_data_options *opt,
                                    struct merak_source *src,
                                    struct merak_error *err)
{
    struct merak_source s = {.seq = opt->seq};
    enum merak_status rc;

    rc = merak_token_files_open(path, &s.file, &s.n_files, err);
    if (rc != MERAK_OK)
        return rc;
    rc = cut_files(&s, opt->valid_fraction, err);
    if (rc == MERAK_OK)
        rc = find_documents(&s, opt, err);
    if (rc == MERAK_OK && s.pairs)
        rc = merak_source_open_pairs(&s, err);
    if (rc == MERAK_OK && s.packed)
        rc = pack_samples(&s, path, opt->valid_fraction, err);
    else if (rc == MERAK_OK)
        rc = count_samples(&s, path, MERAK_TRAIN, opt->seq, err);
    if (rc == MERAK_OK && !s.packed && opt->valid_fraction > 0)
        rc = count_samples(&s, path, MERAK_VALID, opt->seq, err);
    for (int k = 0; k < 2 && rc == MERAK_OK && s.masked && !s.packed; k++)
        rc = count_stream(&s, (enum merak_split)k, err);
    if (rc != MERAK_OK) {
        merak_source_close(&s);
        return rc;
    }
    *src = s;
    return MERAK_OK;
}

void merak_source_close(struct merak_source *src)
{
    for (size_t f = 0; src->reference != NULL && f < src->n_files; f++)
        merak_reference_close(src->reference[f]);
    free(src->reference);
    merak_token_files_close(src->file, src->n_files);
    free(src->end[MERAK_TRAIN]);
    free(src->end[MERAK_VALID]);
    merak_packing_fini(&src->packing[MERAK_TRAIN]);
    merak_packing_fini(&src->packing[MERAK_VALID]);
    free(src->counted[MERAK_TRAIN]);
    free(src->counted[MERAK_VALID]);
    free(src->mark);
    *src = (struct merak_source){0};
}

uint64_t merak_source_tokens(const struct merak_source *src)
{
    return split_tokens(src, MERAK_TRAIN) + split_tokens(src, MERAK_VALID);
}
