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
/* Numbers of each of them; of a larger sample those in its middle. */
#define PROBED_NUMBERS ((size_t)1 << 20)

struct array_samples {
    struct merak_samples base;
    uint64_t count[2]; /* by split */
    uint64_t order_key;
    int n_sources;
    struct samples_source *source;
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
        merak_array_row_path(&s->array, sample), label, sample, s->classes - 1,
        MERAK_NO_TARGET);
}

/* All numbers of a sample. */
static enum merak_status read_sample(const struct samples_source *s,
                                     size_t sample, merak_numbers_fn take,
                                     void *arg, struct merak_error *err)
{
    size_t lo[MERAK_MAX_DIMS] = {sample}, len[MERAK_MAX_DIMS] = {1};

    for (int d = 1; d < s->array.shape.ndim; d++)
        len[d] = s->array.shape.dim[d];
    return merak_array_read_box(&s->array, lo, len, take, arg, err);
}

/* The labels of a sample that are some. */
struct label_count {
    const struct samples_source *of;
    size_t sample;
    uint32_t counted;
};

static enum merak_status count_numbers(void *arg, const double *x, size_t n,
                                       struct merak_error *err)
{
    struct label_count *count = arg;

    for (size_t i = 0; i < n; i++) {
        if (x[i] == MERAK_NO_TARGET)
            continue;
        if (!(x[i] >= 0 && x[i] < (double)count->of->classes))
            return fail_label(count->of, count->sample, x[i], err);
        ++count->counted;
    }
    return MERAK_OK;
}

static enum merak_status count_labels(struct samples_source *s,
                                      struct merak_error *err)
{
    size_t n = s->array.shape.dim[0];
    enum merak_status rc = MERAK_OK;
    bool all = true;

    s->counted = calloc(n, sizeof(*s->counted));
    if (s->counted == NULL)
        return merak_fail_nomem(err, n * sizeof(*s->counted));
    for (size_t i = 0; i < n && rc == MERAK_OK; i++) {
        struct label_count count = {s, i, 0};

        rc = read_sample(s, i, count_numbers, &count, err);
        s->counted[i] = count.counted;
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

/* Checksums: two of all, one of all but the files' names. */
struct sums {
    XXH3_state_t *of[3];
};

static void hash(struct sums *sums, int n, const void *data, size_t bytes)
{
    for (int k = 0; k < n; k++)
        XXH3_128bits_update(sums->of[k], data, bytes);
}

static void hash_text(struct sums *sums, int n, const char *text)
{
    hash(sums, n, text, strlen(text) + 1);
}

static enum merak_status hash_numbers(void *arg, const double *x, size_t n,
                                      struct merak_error *err)
{
    (void)err;
    hash(arg, 3, x, n * sizeof(*x));
    return MERAK_OK;
}

/* Of a sample, or of the box in its middle that has no more than
 * PROBED_NUMBERS, with the innermost dims whole. */
static enum merak_status hash_sample(const struct merak_array *array,
                                     size_t sample, struct sums *sums,
                                     struct merak_error *err)
{
    size_t lo[MERAK_MAX_DIMS] = {sample}, len[MERAK_MAX_DIMS] = {1};
    size_t room = PROBED_NUMBERS;

    for (int d = array->shape.ndim - 1; d > 0; d--) {
        size_t n = array->shape.dim[d];

        len[d] = n < room ? n : room;
        lo[d] = (n - len[d]) / 2;
        room = len[d] < n ? 1 : room / n;
    }
    return merak_array_read_box(array, lo, len, hash_numbers, sums, err);
}

/* Name of the input, type, dims, factors, and numbers of samples throughout the
 * file; for some sums the file's name as well. */
static enum merak_status hash_source(const struct samples_source *of,
                                     struct sums *sums, struct merak_error *err)
{
    const char *slash = strrchr(of->file, '/');
    size_t n = of->array.shape.dim[0];
    enum merak_status rc = MERAK_OK;

    hash_text(sums, 3, of->name);
    hash_text(sums, 3, merak_element_name(of->array.type));
    hash_text(sums, 2, slash == NULL ? of->file : slash + 1);
    hash(sums, 3, of->array.shape.dim,
         (size_t)of->array.shape.ndim * sizeof(size_t));
    hash(sums, 3, &of->scale, sizeof(of->scale));
    hash(sums, 3, &of->shift, sizeof(of->shift));
    if (of->axes != NULL)
        hash_text(sums, 3, of->axes);
    for (size_t i = 0; i < PROBES && rc == MERAK_OK; i++) {
        size_t at = n <= PROBES ? i : i * (n - 1) / (PROBES - 1);

        if (at >= n)
            break;
        rc = hash_sample(&of->array, at, sums, err);
    }
    return rc;
}

static enum merak_status hash_all(const struct array_samples *s,
                                  XXH128_hash_t sum[3], struct merak_error *err)
{
    static const XXH64_hash_t seed[3] = {0, 1, 0};
    enum merak_status rc = MERAK_OK;
    struct sums sums;

    for (int k = 0; k < 3; k++) {
        sums.of[k] = XXH3_createState();
        if (sums.of[k] == NULL)
            rc = merak_fail(err, MERAK_ERR_NOMEM, "no memory for a checksum");
        else
            XXH3_128bits_reset_withSeed(sums.of[k], seed[k]);
    }
    for (int i = 0; i < s->n_sources && rc == MERAK_OK; i++)
        rc = hash_source(&s->source[i], &sums, err);
    for (int k = 0; k < 3; k++) {
        if (rc == MERAK_OK)
            sum[k] = XXH3_128bits_digest(sums.of[k]);
        XXH3_freeState(sums.of[k]);
    }
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
    XXH128_hash_t sum[3];
    enum merak_status rc = hash_all(s, sum, err);

    for (int half = 0; half < 2 && rc == MERAK_OK; half++)
        snprintf(s->id + 32 * half, 33, "%016llx%016llx",
                 (unsigned long long)sum[half].high64,
                 (unsigned long long)sum[half].low64);
    if (rc == MERAK_OK)
        print_content(s, sum[2].low64);
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
                              merak_array_row_path(&of->array, sample), x,
                              (unsigned long long)sample);
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

/* Where a box's numbers go, which come in the order of the file's dims. */
struct placing {
    const struct samples_source *of;
    void *out;
    uint64_t sample;
    int ndim;                     /* of the file's, with the samples' */
    size_t len[MERAK_MAX_DIMS];   /* of the box, */
    size_t step[MERAK_MAX_DIMS];  /* and what each dim's next is apart in out */
    size_t index[MERAK_MAX_DIMS]; /* of the next number */
    size_t at;                    /* its place */
};

static void advance(struct placing *p)
{
    for (int d = p->ndim - 1; d >= 0; d--) {
        p->at += p->step[d];
        if (++p->index[d] < p->len[d])
            return;
        p->at -= p->len[d] * p->step[d];
        p->index[d] = 0;
    }
}

static enum merak_status place(void *arg, const double *x, size_t n,
                               struct merak_error *err)
{
    struct placing *p = arg;
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0; i < n && rc == MERAK_OK; i++) {
        rc = store(p->of, x[i], p->at, p->out, p->sample, err);
        advance(p);
    }
    return rc;
}

static enum merak_status read_wish(const struct merak_samples *samples,
                                   int wish, enum merak_split split,
                                   uint64_t index, const size_t *lo,
                                   const size_t *len, void *out,
                                   struct merak_error *err)
{
    const struct array_samples *s = arrays(samples);
    const struct samples_source *of = &s->source[wish];
    uint64_t row = locate(s, split, index);
    struct placing p = {.of = of, .out = out, .sample = row, .len = {1}};
    size_t from[MERAK_MAX_DIMS] = {row}, step[MERAK_MAX_DIMS], count = 1;
    enum merak_status rc;

    for (int d = of->shape.ndim - 1; d >= 0; d--) {
        step[d] = count;
        count *= lo == NULL ? of->shape.dim[d] : len[d];
    }
    if (count == 0)
        return MERAK_OK;
    p.ndim = of->array.shape.ndim;
    for (int f = 1; f < p.ndim; f++) {
        int d = of->dim_of[f];

        from[f] = d < 0 || lo == NULL ? 0 : lo[d];
        p.len[f] = d < 0 ? 1 : lo == NULL ? of->shape.dim[d] : len[d];
        p.step[f] = d < 0 ? 0 : step[d];
    }
    rc = merak_array_read_box(&of->array, from, p.len, place, &p, err);
    if (rc == MERAK_OK)
        merak_array_warn_of_chunks(&of->array, from, p.len);
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
    free(s);
}

static const struct merak_samples_ops array_ops = {.count = count,
                                                   .id = get_id,
                                                   .content = get_content,
                                                   .is_masked = is_masked,
                                                   .counted = counted,
                                                   .read = read_wish,
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
    for (int i = 0; i < s->n_sources && rc == MERAK_OK; i++) {
        if (s->source[i].classes > 0)
            rc = count_labels(&s->source[i], err);
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
