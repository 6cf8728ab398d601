/* SPDX-License-Identifier: Apache-2.0 */
/* array_samples.c - samples of arrays: their order, their labels, their numbers
 */
#include "config.h"

#include "io/samples/sample_set_impl.h"

#include "base/error.h"
#include "base/half.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define PROBES 64 /* samples of a file that its checksum is of */

struct array_samples {
    struct merak_samples base;
    uint64_t count[2]; /* by split */
    uint64_t order_key;
    int n_sources;
    struct samples_source *source;
    double *row; /* numbers of a sample of any of them */
    char id[65], content[MERAK_DATA_CONTENT];
};

static const struct array_samples *arrays(const struct merak_samples *samples)
{
    return (const struct array_samples *)samples;
}

/* --- order ----------------------------------------------------------------
 */

/* The row of a split's sample; an epoch of training has an order of its own,
 * the one that tokens.c would give a single data set. */
static uint64_t locate(const struct array_samples *s, enum merak_split split,
                       uint64_t index)
{
    uint64_t n = s->count[MERAK_TRAIN], key;

    if (split == MERAK_VALID)
        return n + index % s->count[MERAK_VALID];
    key = merak_rng_mix(merak_rng_mix(s->order_key, 0), index / n);
    return merak_rng_permute(key, n, index % n);
}

/* --- labels -----------------------------------------------------------------
 */

static enum merak_status fail_label(const struct samples_source *s,
                                    size_t sample, double label,
                                    struct merak_error *err)
{
    return merak_fail(
        err, MERAK_ERR_MISMATCH,
        "%s: label %g of sample %zu, expected 0 to %zu, or %d for "
        "none",
        s->array.path, label, sample, s->classes - 1, MERAK_NO_TARGET);
}

/* Count the labels of a sample that are some. */
static enum merak_status count_sample(struct samples_source *s, size_t sample,
                                      const double *row, uint32_t *counted,
                                      struct merak_error *err)
{
    *counted = 0;
    for (size_t i = 0; i < s->array.row; i++) {
        if (row[i] == MERAK_NO_TARGET)
            continue;
        if (!(row[i] >= 0 && row[i] < (double)s->classes))
            return fail_label(s, sample, row[i], err);
        ++*counted;
    }
    return MERAK_OK;
}

static enum merak_status count_labels(struct samples_source *s, double *row,
                                      struct merak_error *err)
{
    size_t n = s->array.shape.dim[0];
    enum merak_status rc = MERAK_OK;
    bool all = true;

    s->counted = calloc(n, sizeof(*s->counted));
    if (s->counted == NULL)
        return merak_fail_nomem(err, n * sizeof(*s->counted));
    for (size_t i = 0; i < n && rc == MERAK_OK; i++) {
        rc = merak_array_read(&s->array, i, 1, row, err);
        if (rc == MERAK_OK)
            rc = count_sample(s, i, row, &s->counted[i], err);
        all = all && s->counted[i] == s->array.row;
    }
    if (all) {
        free(s->counted);
        s->counted = NULL;
    }
    return rc;
}

static bool is_masked(const struct merak_samples *samples, int wish)
{
    return wish >= 0 && arrays(samples)->source[wish].counted != NULL;
}

static uint64_t counted(const struct merak_samples *samples, int wish,
                        enum merak_split split, uint64_t index, uint64_t n)
{
    const struct array_samples *s = arrays(samples);
    const struct samples_source *of = &s->source[wish];
    uint64_t sum = 0;

    for (uint64_t i = index; i < index + n; i++)
        sum += of->counted == NULL ? of->array.row
                                   : of->counted[locate(s, split, i)];
    return sum;
}

/* --- fingerprint ------------------------------------------------------------
 */

static void hash_text(XXH3_state_t *h, const char *text)
{
    XXH3_128bits_update(h, text, strlen(text) + 1);
}

/* Name of the input, type, dims, factors, and numbers of samples throughout the
 * file; with `names` the file's name as well. */
static enum merak_status hash_source(const struct array_samples *s,
                                     const struct samples_source *of,
                                     bool names, XXH3_state_t *h,
                                     struct merak_error *err)
{
    const char *slash = strrchr(of->file, '/');
    size_t n = of->array.shape.dim[0];
    enum merak_status rc = MERAK_OK;

    hash_text(h, of->name);
    hash_text(h, merak_element_name(of->array.type));
    if (names)
        hash_text(h, slash == NULL ? of->file : slash + 1);
    XXH3_128bits_update(h, of->array.shape.dim,
                        (size_t)of->array.shape.ndim * sizeof(size_t));
    XXH3_128bits_update(h, &of->scale, sizeof(of->scale));
    XXH3_128bits_update(h, &of->shift, sizeof(of->shift));
    for (size_t i = 0; i < PROBES && rc == MERAK_OK; i++) {
        size_t at = n <= PROBES ? i : i * (n - 1) / (PROBES - 1);

        if (at >= n)
            break;
        rc = merak_array_read(&of->array, at, 1, s->row, err);
        if (rc == MERAK_OK)
            XXH3_128bits_update(h, s->row, of->array.row * sizeof(*s->row));
    }
    return rc;
}

static enum merak_status hash_all(const struct array_samples *s, bool names,
                                  int seed, XXH128_hash_t *sum,
                                  struct merak_error *err)
{
    XXH3_state_t *h = XXH3_createState();
    enum merak_status rc = MERAK_OK;

    if (h == NULL)
        return merak_fail(err, MERAK_ERR_NOMEM, "no memory for a checksum");
    XXH3_128bits_reset_withSeed(h, (XXH64_hash_t)seed);
    for (int i = 0; i < s->n_sources && rc == MERAK_OK; i++)
        rc = hash_source(s, &s->source[i], names, h, err);
    *sum = XXH3_128bits_digest(h);
    XXH3_freeState(h);
    return rc;
}

/* "60000 samples of pixels, label, 0123456789abcdef" */
static void print_content(struct array_samples *s, uint64_t sum)
{
    size_t room = sizeof(s->content) - sizeof(", 0123456789abcdef");
    size_t at = (size_t)snprintf(s->content, room, "%zu samples of ",
                                 s->source[0].array.shape.dim[0]);

    for (int i = 0; i < s->n_sources && at < room; i++)
        at += (size_t)snprintf(s->content + at, room - at, "%s%s",
                               i > 0 ? ", " : "", s->source[i].name);
    if (at >= room)
        at = room - 1;
    snprintf(s->content + at, sizeof(s->content) - at, ", %016llx",
             (unsigned long long)sum);
}

static enum merak_status set_id(struct array_samples *s,
                                struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    XXH128_hash_t sum;

    for (int half = 0; half < 2 && rc == MERAK_OK; half++) {
        rc = hash_all(s, true, half, &sum, err);
        snprintf(s->id + 32 * half, 33, "%016llx%016llx",
                 (unsigned long long)sum.high64, (unsigned long long)sum.low64);
    }
    if (rc == MERAK_OK)
        rc = hash_all(s, false, 0, &sum, err);
    if (rc == MERAK_OK)
        print_content(s, sum.low64);
    return rc;
}

/* --- reading ----------------------------------------------------------------
 */

static enum merak_status store(const struct samples_source *of, double x,
                               size_t at, void *out, uint64_t sample,
                               struct merak_error *err)
{
    switch (of->dtype) {
    case MERAK_I32:
        if (!(x >= INT32_MIN && x <= INT32_MAX))
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "%s: %.17g in sample %llu does not fit an i32",
                              of->array.path, x, (unsigned long long)sample);
        ((int32_t *)out)[at] = (int32_t)x;
        return MERAK_OK;
    case MERAK_BF16:
        ((uint16_t *)out)[at] =
            merak_f32_to_bf16((float)(x * of->scale + of->shift));
        return MERAK_OK;
    default:
        ((float *)out)[at] = (float)(x * of->scale + of->shift);
        return MERAK_OK;
    }
}

enum merak_status merak_samples_read(const struct merak_samples *samples,
                                     int wish, enum merak_split split,
                                     uint64_t index, const size_t *lo,
                                     const size_t *len, void *out,
                                     struct merak_error *err)
{
    const struct array_samples *s = arrays(samples);
    const struct samples_source *of = &s->source[wish];
    uint64_t row = locate(s, split, index);
    enum merak_status rc = merak_array_read(&of->array, row, 1, s->row, err);
    size_t done = 0;

    for (size_t i = 0; i < of->array.row && rc == MERAK_OK; i++) {
        size_t rest = i;
        bool in = true;

        for (int d = of->shape.ndim - 1; lo != NULL && d >= 0; d--) {
            size_t x = rest % of->shape.dim[d];

            in = in && x >= lo[d] && x < lo[d] + len[d];
            rest /= of->shape.dim[d];
        }
        if (in)
            rc = store(of, s->row[i], done++, out, row, err);
    }
    return rc;
}

/* --- open, close -------------------------------------------------------------
 */

static uint64_t count(const struct merak_samples *samples,
                      enum merak_split split)
{
    return arrays(samples)->count[split];
}

static const char *get_id(const struct merak_samples *samples)
{
    return arrays(samples)->id;
}

static void get_content(const struct merak_samples *samples,
                        char text[MERAK_DATA_CONTENT])
{
    memcpy(text, arrays(samples)->content, MERAK_DATA_CONTENT);
}

static void close_arrays(struct merak_samples *samples)
{
    struct array_samples *s = (struct array_samples *)samples;

    for (int i = 0; i < s->n_sources && s->source != NULL; i++)
        samples_source_close(&s->source[i]);
    free(s->source);
    free(s->row);
    free(s);
}

static const struct merak_samples_ops array_ops = {.count = count,
                                                   .id = get_id,
                                                   .content = get_content,
                                                   .is_masked = is_masked,
                                                   .counted = counted,
                                                   .close = close_arrays};

static enum merak_status split_samples(struct array_samples *s,
                                       const struct merak_samples_options *opt,
                                       struct merak_error *err)
{
    uint64_t n = s->source[0].array.shape.dim[0];
    uint64_t tail = (uint64_t)((double)n * opt->valid_fraction);

    if (!(opt->valid_fraction >= 0 && opt->valid_fraction < 1))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "validation fraction %g, expected 0 <= f < 1",
                          opt->valid_fraction);
    s->count[MERAK_TRAIN] = n - tail;
    s->count[MERAK_VALID] = tail;
    if (opt->valid_fraction > 0 && tail == 0)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "%s: %llu samples for validation %g of them: that is "
                          "none; give --valid-fraction 0 or a larger one",
                          opt->path, (unsigned long long)n,
                          opt->valid_fraction);
    return MERAK_OK;
}

static enum merak_status open_arrays(struct array_samples *s,
                                     const struct merak_samples_options *opt,
                                     struct merak_error *err)
{
    size_t most = 0;
    enum merak_status rc;

    s->source = calloc((size_t)opt->n_wishes, sizeof(*s->source));
    if (s->source == NULL)
        return merak_fail_nomem(err, sizeof(*s->source));
    for (int i = 0; i < opt->n_wishes; i++)
        s->source[i].array.fd = -1;
    s->n_sources = opt->n_wishes;
    rc = samples_sources_open(opt, s->source, err);
    if (rc == MERAK_OK)
        rc = split_samples(s, opt, err);
    for (int i = 0; i < s->n_sources; i++)
        most = s->source[i].array.row > most ? s->source[i].array.row : most;
    s->row = calloc(most + 1, sizeof(*s->row));
    if (rc == MERAK_OK && s->row == NULL)
        rc = merak_fail_nomem(err, most * sizeof(*s->row));
    for (int i = 0; i < s->n_sources && rc == MERAK_OK; i++) {
        if (s->source[i].classes > 0)
            rc = count_labels(&s->source[i], s->row, err);
    }
    return rc == MERAK_OK ? set_id(s, err) : rc;
}

enum merak_status merak_samples_open(const struct merak_samples_options *opt,
                                     struct merak_samples **samples_p,
                                     struct merak_error *err)
{
    struct array_samples *s = calloc(1, sizeof(*s));
    enum merak_status rc;

    if (s == NULL)
        return merak_fail_nomem(err, sizeof(*s));
    s->base.ops = &array_ops;
    s->order_key = merak_rng_key(opt->seed, "data.order");
    rc = open_arrays(s, opt, err);
    if (rc != MERAK_OK) {
        close_arrays(&s->base);
        return rc;
    }
    *samples_p = &s->base;
    return MERAK_OK;
}
