/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c - the order samples are drawn in
 *
 * Training sample `index` is found without computing any other:
 *
 *   1. The blend (blend.h) gives the source k and the sample's number
 *      in k; a single data set is a blend of one.
 *   2. number = epoch * samples(k) + i, so every source goes through
 *      its own epochs at its own pace.
 *   3. A permutation keyed by (seed, k, epoch) maps i to sample s of k.
 *   4. s is tokens [s*T, s*T + T] of k's training stream, or what packing.h
 *      packed.
 *
 * So the position in the data is just `index`, and any rank can read any
 * sample.
 */
#include "config.h"

#include "io/tokens/tokens.h"

#include "base/error.h"
#include "base/rng.h"
#include "io/tokens/blend.h"
#include "io/tokens/source.h"
#include "io/tokens/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define PROBE_TOKENS 1024 /* at each end of a file, for the fingerprint */

struct merak_data {
    size_t seq, vocab;
    bool in_order;
    uint64_t order_key;
    size_t n_sources;
    struct merak_source *source;
    struct merak_blend blend;
    char id[65];
    char content[MERAK_DATA_CONTENT];
};

/* --- fingerprint ------------------------------------------------------- */

static void hash_text(XXH3_state_t *h, const char *text)
{
    XXH3_128bits_update(h, text, strlen(text) + 1);
}

/* Name (without folders: a data set may move), type, size, and the ids at both
 * ends, which distinguish files of the same size. */
static enum merak_status hash_file(XXH3_state_t *h,
                                   const struct merak_token_file *file,
                                   size_t vocab, struct merak_error *err)
{
    const char *slash = strrchr(file->path, '/');
    size_t n =
        file->tokens < PROBE_TOKENS ? (size_t)file->tokens : PROBE_TOKENS;
    int32_t ids[2 * PROBE_TOKENS];
    enum merak_status rc;
    char line[96];

    snprintf(
        line, sizeof(line), "%s %llu %llu", merak_token_type_name(file->type),
        (unsigned long long)file->tokens, (unsigned long long)file->documents);
    rc = merak_token_file_read(file, 0, n, vocab, ids, err);
    if (rc == MERAK_OK)
        rc = merak_token_file_read(file, file->tokens - n, n, vocab, ids + n,
                                   err);
    if (rc != MERAK_OK)
        return rc;
    hash_text(h, slash == NULL ? file->path : slash + 1);
    hash_text(h, line);
    if (file->mask != NULL) {
        snprintf(line, sizeof(line), "mask %016llx",
                 (unsigned long long)merak_mask_checksum(file->mask));
        hash_text(h, line);
    }
    XXH3_128bits_update(h, ids, 2 * n * sizeof(*ids));
    return MERAK_OK;
}

/* Training goes another way with another reference. */
static void hash_reference(XXH3_state_t *h, const struct merak_source *src,
                           size_t f)
{
    uint64_t sum;

    if (src->reference == NULL)
        return;
    sum = merak_reference_checksum(src->reference[f]);
    XXH3_128bits_update(h, &sum, sizeof(sum));
}

static enum merak_status set_content(struct merak_data *data, XXH3_state_t *h,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    uint64_t tokens = 0;
    size_t files = 0;

    XXH3_128bits_reset(h);
    for (size_t k = 0; k < data->n_sources; k++) {
        const struct merak_source *src = &data->source[k];
        uint64_t weight[2] = {data->blend.count[k], data->blend.period};

        XXH3_128bits_update(h, weight, sizeof(weight));
        for (size_t f = 0; rc == MERAK_OK && f < src->n_files; f++) {
            rc = merak_token_file_hash(&src->file[f], h, err);
            hash_reference(h, src, f);
            tokens += src->file[f].tokens;
            files++;
        }
    }
    snprintf(data->content, sizeof(data->content),
             "%llu tokens in %zu file%s, %016llx", (unsigned long long)tokens,
             files, files == 1 ? "" : "s",
             (unsigned long long)XXH3_128bits_digest(h).low64);
    return rc;
}

static enum merak_status hash_sources(const struct merak_data *data,
                                      XXH3_state_t *h, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    char line[64];

    for (size_t k = 0; k < data->n_sources; k++) {
        const struct merak_source *src = &data->source[k];

        snprintf(line, sizeof(line), "%u/%u", data->blend.count[k],
                 data->blend.period);
        hash_text(h, line);
        if (src->packed)
            hash_text(h, "best fit");
        for (size_t f = 0; rc == MERAK_OK && f < src->n_files; f++)
            rc = hash_file(h, &src->file[f], data->vocab, err);
    }
    return rc;
}

static enum merak_status set_id(struct merak_data *data,
                                struct merak_error *err)
{
    XXH3_state_t *h = XXH3_createState();
    enum merak_status rc = MERAK_OK;

    if (h == NULL)
        return merak_fail(err, MERAK_ERR_NOMEM, "no memory for a checksum");
    for (int half = 0; rc == MERAK_OK && half < 2; half++) {
        XXH128_hash_t sum;

        XXH3_128bits_reset_withSeed(h, (XXH64_hash_t)half);
        rc = hash_sources(data, h, err);
        sum = XXH3_128bits_digest(h);
        snprintf(data->id + 32 * half, 33, "%016llx%016llx",
                 (unsigned long long)sum.high64, (unsigned long long)sum.low64);
    }
    if (rc == MERAK_OK)
        rc = set_content(data, h, err);
    XXH3_freeState(h);
    return rc;
}

/* --- opening ----------------------------------------------------------- */

static enum merak_status check_options(const struct merak_data_options *opt,
                                       struct merak_error *err)
{
    if (opt->spec == NULL || opt->seq == 0)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "a data set needs a path and a sequence length");
    if (!(opt->valid_fraction >= 0.0 && opt->valid_fraction < 1.0))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "validation fraction %g, expected 0 <= f < 1",
                          opt->valid_fraction);
    return MERAK_OK;
}

static enum merak_status open_sources(struct merak_data *data,
                                      const struct merak_data_options *opt,
                                      const struct merak_data_spec *spec,
                                      struct merak_error *err)
{
    data->source = calloc(spec->n, sizeof(*data->source));
    if (data->source == NULL)
        return merak_fail_nomem(err, spec->n * sizeof(*data->source));
    for (size_t k = 0; k < spec->n; k++) {
        enum merak_status rc =
            merak_source_open(spec->path[k], opt, &data->source[k], err);

        if (rc != MERAK_OK)
            return rc;
        data->n_sources++;
    }
    return MERAK_OK;
}

enum merak_status merak_data_open(const struct merak_data_options *opt,
                                  struct merak_data **data_p,
                                  struct merak_error *err)
{
    struct merak_data *data = NULL;
    struct merak_data_spec spec = {0};
    enum merak_status rc;

    rc = check_options(opt, err);
    if (rc == MERAK_OK)
        rc = merak_data_spec_parse(opt->spec, &spec, err);
    if (rc != MERAK_OK)
        goto out;
    data = calloc(1, sizeof(*data));
    if (data == NULL) {
        rc = merak_fail_nomem(err, sizeof(*data));
        goto out;
    }
    data->seq = opt->seq;
    data->vocab = opt->vocab;
    data->in_order = opt->in_order;
    data->order_key = merak_rng_key(opt->seed, "data.order");
    rc = merak_blend_init(&data->blend, spec.weight, spec.n, err);
    if (rc == MERAK_OK)
        rc = open_sources(data, opt, &spec, err);
    if (rc == MERAK_OK)
        rc = set_id(data, err);
    if (rc != MERAK_OK)
        goto out;
    *data_p = data;
    data = NULL; /* now owned by the caller */
out:
    merak_data_close(data);
    merak_data_spec_fini(&spec);
    return rc;
}

void merak_data_close(struct merak_data *data)
{
    if (data == NULL)
        return;
    for (size_t k = 0; k < data->n_sources; k++)
        merak_source_close(&data->source[k]);
    free(data->source);
    merak_blend_fini(&data->blend);
    free(data);
}

/* --- reading ----------------------------------------------------------- */

uint64_t merak_data_samples(const struct merak_data *data,
                            enum merak_split split)
{
    uint64_t samples = 0;

    for (size_t k = 0; k < data->n_sources; k++)
        samples += data->source[k].samples[split];
    return samples;
}

uint64_t merak_data_tokens(const struct merak_data *data)
{
    uint64_t tokens = 0;

    for (size_t k = 0; k < data->n_sources; k++)
        tokens += merak_source_tokens(&data->source[k]);
    return tokens;
}

const char *merak_data_id(const struct merak_data *data)
{
    return data->id;
}

void merak_data_content(const struct merak_data *data,
                        char text[MERAK_DATA_CONTENT])
{
    memcpy(text, data->content, MERAK_DATA_CONTENT);
}

/* Training sample `index` is sample *sample_p of the source returned. */
static const struct merak_source *
locate_train(const struct merak_data *data, uint64_t index, uint64_t *sample_p)
{
    uint64_t number;
    size_t k = merak_blend_at(&data->blend, index, &number);
    uint64_t samples = data->source[k].samples[MERAK_TRAIN];
    uint64_t key =
        merak_rng_mix(merak_rng_mix(data->order_key, k), number / samples);

    *sample_p = merak_rng_permute(key, samples, number % samples);
    return &data->source[k];
}

/* The sources one after the other, as the validation split has them. */
static const struct merak_source *locate_in_order(const struct merak_data *data,
                                                  enum merak_split split,
                                                  uint64_t index,
                                                  uint64_t *sample_p)
{
    const struct merak_source *src = data->source;

    index %= merak_data_samples(data, split);
    for (; index >= src->samples[split]; src++)
        index -= src->samples[split];
    *sample_p = index;
    return src;
}

/* Sample `index` of a split is sample *sample_p of *src_p. */
static enum merak_status locate(const struct merak_data *data,
                                enum merak_split split, uint64_t index,
                                const struct merak_source **src_p,
                                uint64_t *sample_p, struct merak_error *err)
{
    if (split == MERAK_VALID && data->source[0].samples[MERAK_VALID] == 0)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "the data set was opened without a validation "
                          "split");
    *src_p = split == MERAK_TRAIN && !data->in_order
                 ? locate_train(data, index, sample_p)
                 : locate_in_order(data, split, index, sample_p);
    return MERAK_OK;
}

enum merak_status merak_data_sample(const struct merak_data *data,
                                    enum merak_split split, uint64_t index,
                                    int32_t *tokens, int32_t *targets,
                                    struct merak_error *err)
{
    const struct merak_source *src;
    uint64_t sample;
    enum merak_status rc = locate(data, split, index, &src, &sample, err);

    return rc == MERAK_OK ? merak_source_sample(src, split, sample, data->vocab,
                                                tokens, targets, err)
                          : rc;
}

enum merak_status merak_data_starts(const struct merak_data *data,
                                    enum merak_split split, uint64_t index,
                                    int32_t *starts, struct merak_error *err)
{
    const struct merak_source *src;
    uint64_t sample;
    enum merak_status rc = locate(data, split, index, &src, &sample, err);

    return rc == MERAK_OK ? merak_source_starts(src, split, sample, starts, err)
                          : rc;
}

enum merak_status merak_data_pairs(const struct merak_data *data,
                                   enum merak_split split, uint64_t index,
                                   int32_t *pairs, float *reference,
                                   struct merak_error *err)
{
    const struct merak_source *src;
    uint64_t sample;
    enum merak_status rc = locate(data, split, index, &src, &sample, err);

    return rc == MERAK_OK
               ? merak_source_pairs(src, split, sample, pairs, reference, err)
               : rc;
}

const struct merak_reference *
merak_data_reference(const struct merak_data *data, size_t i)
{
    for (size_t k = 0; data != NULL && k < data->n_sources; k++) {
        const struct merak_source *src = &data->source[k];

        if (src->reference != NULL && i < src->n_files)
            return src->reference[i];
        i -= src->n_files;
    }
    return NULL;
}

bool merak_data_has_pairs(const struct merak_data *data)
{
    for (size_t k = 0; k < data->n_sources; k++) {
        for (size_t f = 0; f < data->source[k].n_files; f++) {
            if (merak_mask_has_pairs(data->source[k].file[f].mask))
                return true;
        }
    }
    return false;
}

bool merak_data_is_masked(const struct merak_data *data)
{
    for (size_t k = 0; k < data->n_sources; k++) {
        const struct merak_source *src = &data->source[k];

        if (src->masked || src->documents || src->packed)
            return true;
    }
    return false;
}

uint64_t merak_data_counted(const struct merak_data *data,
                            enum merak_split split, uint64_t index, uint64_t n)
{
    uint64_t sum = 0, end = index + n;

    for (; index < end; index++) {
        const struct merak_source *src;
        uint64_t sample;

        if (locate(data, split, index, &src, &sample, NULL) == MERAK_OK)
            sum += merak_source_counted(src, split, sample);
    }
    return sum;
}

static void add_too_long(struct merak_data_packed *packed,
                         const struct merak_packing *p)
{
    packed->too_long += p->too_long;
    if (packed->longest < p->longest)
        packed->longest = p->longest;
}

bool merak_data_is_packed(const struct merak_data *data,
                          struct merak_data_packed *packed)
{
    *packed = (struct merak_data_packed){0};
    for (size_t k = 0; data != NULL && k < data->n_sources; k++) {
        const struct merak_source *src = &data->source[k];
        const struct merak_packing *p = &src->packing[MERAK_TRAIN];

        packed->places += src->packed ? p->n_samples * (uint64_t)src->seq : 0;
        packed->pieces += p->n_pieces;
        add_too_long(packed, p);
        add_too_long(packed, &src->packing[MERAK_VALID]);
        for (size_t i = 0; i < p->n_pieces; i++) {
            packed->filled += p->piece[i].n;
            packed->counted += p->piece[i].counted;
        }
    }
    return packed->places > 0;
}
