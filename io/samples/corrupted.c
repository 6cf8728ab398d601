/* SPDX-License-Identifier: Apache-2.0 */
/* corrupted.c - samples of token files of which tokens are hidden */
#include "config.h"

#include "io/samples/corrupted.h"
#include "io/samples/sample_set_impl.h"

#include "base/error.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* --- inputs by name ---------------------------------------------------------
 */

enum what { IDS, MASKED, TYPES, SOURCE, LABELS, DECODER, LENGTHS };

static const struct role {
    enum merak_corrupt_kind kind;
    enum what what;
    const char *name;
    bool needed;
    int ndim; /* of a sample */
} roles[] = {
    {MERAK_CORRUPT_MASK, IDS, "ids", true, 1},
    {MERAK_CORRUPT_MASK, MASKED, "masked", true, 1},
    {MERAK_CORRUPT_MASK, TYPES, "types", false, 1},
    {MERAK_CORRUPT_MASK, LENGTHS, "lengths", false, 0},
    {MERAK_CORRUPT_SPANS, SOURCE, "source", true, 1},
    {MERAK_CORRUPT_SPANS, DECODER, "decoder", true, 1},
    {MERAK_CORRUPT_SPANS, LABELS, "labels", true, 1},
    {MERAK_CORRUPT_SPANS, LENGTHS, "lengths", false, 0},
};
enum { ROLES = sizeof(roles) / sizeof(*roles) };

static const struct role *role_of(enum merak_corrupt_kind kind,
                                  const char *name)
{
    for (int r = 0; r < ROLES; r++) {
        if (roles[r].kind == kind && strcmp(roles[r].name, name) == 0)
            return &roles[r];
    }
    return NULL;
}

static int find_wish(int n_wishes, const struct merak_wish *wish,
                     const char *name)
{
    int i = 0;

    while (i < n_wishes && strcmp(wish[i].name, name) != 0)
        i++;
    return i < n_wishes ? i : -1;
}

/* The first name that is missing, or the first that is not of this kind; NULL:
 * there is none. */
static const char *unfit(enum merak_corrupt_kind kind, int n_wishes,
                         const struct merak_wish *wish, bool *missing)
{
    *missing = true;
    for (int r = 0; r < ROLES; r++) {
        if (roles[r].kind == kind && roles[r].needed &&
            find_wish(n_wishes, wish, roles[r].name) < 0)
            return roles[r].name;
    }
    *missing = false;
    for (int i = 0; i < n_wishes; i++) {
        if (role_of(kind, wish[i].name) == NULL)
            return wish[i].name;
    }
    return NULL;
}

enum merak_corrupt_kind merak_corrupted_kind(int n_wishes,
                                             const struct merak_wish *wish)
{
    bool missing;

    for (int kind = MERAK_CORRUPT_MASK; kind <= MERAK_CORRUPT_SPANS; kind++) {
        if (unfit((enum merak_corrupt_kind)kind, n_wishes, wish, &missing) ==
            NULL)
            return (enum merak_corrupt_kind)kind;
    }
    return MERAK_CORRUPT_NONE;
}

int merak_corrupted_reader(int n_wishes, const struct merak_wish *wish)
{
    int ids = find_wish(n_wishes, wish, "ids");

    return ids >= 0 ? ids : find_wish(n_wishes, wish, "source");
}

/* --- checks -----------------------------------------------------------------
 */

static enum merak_status check_inputs(const struct merak_corrupted_options *opt,
                                      struct merak_error *err)
{
    char text[MERAK_CORRUPT_TEXT];
    bool missing;
    const char *name =
        unfit(opt->corrupt.kind, opt->n_wishes, opt->wish, &missing);

    merak_corrupt_text(&opt->corrupt, text);
    if (name != NULL && missing)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--corrupt %s makes an input %s, and the model has "
                          "none of that name",
                          text, name);
    if (name != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--corrupt %s makes no input %.60s, which the model "
                          "has: it needs --data FILE.json with a file for each "
                          "input, and --corrupt none",
                          text, name);
    for (int i = 0; i < opt->n_wishes; i++) {
        const struct merak_wish *w = &opt->wish[i];

        if (w->dtype != MERAK_I32 ||
            w->shape.ndim != role_of(opt->corrupt.kind, w->name)->ndim)
            return merak_fail(
                err, MERAK_ERR_CONFIG,
                "--corrupt %s makes input %s of i32 with %d "
                "dim%s a sample, and the model expects %s with "
                "%d",
                text, w->name, role_of(opt->corrupt.kind, w->name)->ndim,
                role_of(opt->corrupt.kind, w->name)->ndim == 1 ? "" : "s",
                merak_dtype_name(w->dtype), w->shape.ndim);
    }
    return MERAK_OK;
}

/* An id that is needed. */
static enum merak_status check_id(const struct merak_corrupted_options *opt,
                                  int32_t id, const char *option,
                                  const char *about, struct merak_error *err)
{
    if (id < 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "the id of %s is not known: the model's folder has "
                          "no tokenizer.json with it; give %s N",
                          about, option);
    if (opt->vocab > 0 && (size_t)id >= opt->vocab)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s: %s has id %d, expected one below %zu, the "
                          "model's vocabulary",
                          option, about, id, opt->vocab);
    return MERAK_OK;
}

static size_t tokens_of(const struct merak_corrupted_options *opt,
                        const char *name)
{
    return opt->wish[find_wish(opt->n_wishes, opt->wish, name)].shape.dim[0];
}

static enum merak_status check_mask(const struct merak_corrupted_options *opt,
                                    size_t *raw_p, struct merak_error *err)
{
    char text[MERAK_CORRUPT_TEXT];
    size_t T = tokens_of(opt, "ids");

    for (int i = 0; i < opt->n_wishes; i++) {
        if (opt->wish[i].shape.ndim == 1 && opt->wish[i].shape.dim[0] != T)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "input %s of the model has %zu tokens a sample "
                              "and ids has %zu: expected as many",
                              opt->wish[i].name, opt->wish[i].shape.dim[0], T);
    }
    if (merak_masking_chosen(&opt->corrupt, T) == 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--corrupt %s hides no token of %zu: give a longer "
                          "--seq, or a larger share",
                          merak_corrupt_text(&opt->corrupt, text), T);
    *raw_p = T;
    return check_id(opt, opt->ids->mask, "--mask-id", "the mask token", err);
}

/* The longest text whose rest the encoder reads, and whose spans the decoder
 * can. */
static enum merak_status fit_spans(const struct merak_corrupted_options *opt,
                                   struct merak_spans *spans,
                                   struct merak_error *err)
{
    size_t S = tokens_of(opt, "source"), T = tokens_of(opt, "labels");
    char text[MERAK_CORRUPT_TEXT];

    merak_corrupt_text(&opt->corrupt, text);
    if (!merak_spans_fit(&opt->corrupt, S, spans))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--corrupt %s leaves no span of a text whose rest "
                          "has %zu tokens: give a longer one to the encoder, "
                          "or a larger share",
                          text, S);
    if (spans->target > T)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--seq %zu: --corrupt %s makes %zu tokens to be "
                          "predicted of a text whose rest has %zu; give --seq "
                          "%zu, or fewer tokens to the encoder",
                          T, text, spans->target, S, spans->target);
    return MERAK_OK;
}

static enum merak_status check_spans(const struct merak_corrupted_options *opt,
                                     size_t *raw_p, struct merak_error *err)
{
    const struct merak_special_ids *ids = opt->ids;
    struct merak_spans spans = {.raw = 0};
    enum merak_status rc = fit_spans(opt, &spans, err);
    size_t many =
        ids->n_sentinels > 0 ? ids->n_sentinels : (size_t)(ids->sentinel + 1);

    if (rc == MERAK_OK && tokens_of(opt, "decoder") != tokens_of(opt, "labels"))
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "input decoder of the model has %zu tokens a sample "
                        "and labels has %zu: expected as many",
                        tokens_of(opt, "decoder"), tokens_of(opt, "labels"));
    if (rc == MERAK_OK)
        rc = check_id(opt, ids->sentinel, "--sentinel-id",
                      "<extra_id_0>, the first sentinel,", err);
    if (rc == MERAK_OK && spans.spans > many)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "a text of %zu tokens has %zu spans, and there are "
                        "%zu sentinels: give a shorter text to the encoder, "
                        "or longer spans to --corrupt",
                        spans.raw, spans.spans, many);
    *raw_p = spans.raw;
    return rc;
}

enum merak_status
merak_corrupted_check(const struct merak_corrupted_options *opt, size_t *raw_p,
                      struct merak_error *err)
{
    enum merak_status rc = check_inputs(opt, err);

    if (rc != MERAK_OK)
        return rc;
    return opt->corrupt.kind == MERAK_CORRUPT_MASK
               ? check_mask(opt, raw_p, err)
               : check_spans(opt, raw_p, err);
}

/* --- samples ----------------------------------------------------------------
 */

struct corrupted {
    struct merak_samples base;
    const struct merak_data *data;
    uint64_t key;
    int n_inputs;
    struct input {
        enum what what;
        size_t n; /* numbers of a sample */
    } * input;
    struct merak_masking masking;
    struct merak_spans spans; /* spans 0: it is masking */
    struct merak_span_ids span_ids;
    size_t raw;                         /* tokens of a sample of files */
    int32_t *text, *next, *other, *row; /* of a sample */
    char id[65], content[MERAK_DATA_CONTENT];
};

static const struct corrupted *of(const struct merak_samples *samples)
{
    return (const struct corrupted *)samples;
}

static uint64_t count(const struct merak_samples *samples,
                      enum merak_split split)
{
    return merak_data_samples(of(samples)->data, split);
}

static const char *get_id(const struct merak_samples *samples)
{
    return of(samples)->id;
}

static void get_content(const struct merak_samples *samples,
                        char text[MERAK_DATA_CONTENT])
{
    memcpy(text, of(samples)->content, MERAK_DATA_CONTENT);
}

/* Targets of a sample, the same in all. */
static size_t targets(const struct corrupted *s)
{
    return s->spans.spans > 0 ? s->spans.target : s->masking.chosen;
}

static bool is_masked(const struct merak_samples *samples, int wish)
{
    const struct corrupted *s = of(samples);

    return wish >= 0 &&
           (s->input[wish].what == MASKED || s->input[wish].what == LABELS) &&
           targets(s) < s->input[wish].n;
}

static uint64_t counted(const struct merak_samples *samples, int wish,
                        enum merak_split split, uint64_t index, uint64_t n)
{
    (void)wish;
    (void)split;
    (void)index;
    return n * targets(of(samples));
}

/* The sample as it is in files, and what is hidden of it: for masks text and
 * other are ids and labels, for spans other and row those of the encoder and
 * the decoder. */
static enum merak_status make(const struct corrupted *s, enum merak_split split,
                              uint64_t index, struct merak_error *err)
{
    uint64_t key = merak_rng_mix(merak_rng_mix(s->key, split), index);
    enum merak_status rc =
        merak_data_sample(s->data, split, index, s->text, s->next, err);

    if (rc != MERAK_OK)
        return rc;
    if (s->spans.spans > 0)
        merak_spans_apply(&s->spans, &s->span_ids, key, s->text, s->other,
                          s->row);
    else
        merak_masking_apply(&s->masking, key, s->text, s->other);
    return MERAK_OK;
}

/* A number of an input, after make() unless it is the same in all samples. */
static int32_t number(const struct corrupted *s, enum what what, size_t i)
{
    const struct merak_spans *spans = &s->spans;

    switch (what) {
    case IDS:
        return s->text[i];
    case MASKED:
        return s->other[i];
    case TYPES:
        return 0;
    case SOURCE:
        return i < spans->source ? s->other[i] : s->span_ids.pad;
    case LABELS:
        return i < spans->target ? s->row[i] : MERAK_NO_TARGET;
    case DECODER:
        return i == 0               ? s->span_ids.start
               : i <= spans->target ? s->row[i - 1]
                                    : s->span_ids.pad;
    case LENGTHS:
        return (int32_t)(spans->spans > 0 ? spans->source : s->raw);
    }
    return 0;
}

static enum merak_status read_sample(const struct merak_samples *samples,
                                     int wish, enum merak_split split,
                                     uint64_t index, const size_t *lo,
                                     const size_t *len, void *out,
                                     struct merak_error *err)
{
    const struct corrupted *s = of(samples);
    const struct input *in = &s->input[wish];
    size_t first = lo != NULL && in->n > 1 ? lo[0] : 0;
    size_t n = lo != NULL && in->n > 1 ? len[0] : in->n;
    enum merak_status rc = MERAK_OK;

    if (in->what != TYPES && in->what != LENGTHS)
        rc = make(s, split, index, err);
    for (size_t i = 0; i < n && rc == MERAK_OK; i++)
        ((int32_t *)out)[i] = number(s, in->what, first + i);
    return rc;
}

/* --- open, close ------------------------------------------------------------
 */

static void close_corrupted(struct merak_samples *samples)
{
    struct corrupted *s = (struct corrupted *)samples;

    free(s->input);
    free(s->text);
    free(s->next);
    free(s->other);
    free(s->row);
    free(s);
}

static const struct merak_samples_ops ops = {.count = count,
                                             .id = get_id,
                                             .content = get_content,
                                             .is_masked = is_masked,
                                             .counted = counted,
                                             .read = read_sample,
                                             .close = close_corrupted};

/* That of the data, and of what is made of them. */
static void set_id(struct corrupted *s,
                   const struct merak_corrupted_options *opt)
{
    char text[MERAK_CORRUPT_TEXT], all[256];
    int n = snprintf(all, sizeof(all), "%s %s %d %d %d %d %d",
                     merak_data_id(s->data),
                     merak_corrupt_text(&opt->corrupt, text), opt->ids->mask,
                     s->span_ids.sentinel, s->span_ids.end, s->span_ids.pad,
                     s->span_ids.start);

    for (int half = 0; half < 2; half++) {
        XXH128_hash_t sum =
            XXH3_128bits_withSeed(all, (size_t)n, (XXH64_hash_t)half);

        snprintf(s->id + 32 * half, 33, "%016llx%016llx",
                 (unsigned long long)sum.high64, (unsigned long long)sum.low64);
    }
    merak_data_content(s->data, s->content);
}

/* What a folder does not say is as in T5's. */
static struct merak_span_ids span_ids(const struct merak_special_ids *ids)
{
    struct merak_span_ids of_spans = {.sentinel = ids->sentinel,
                                      .end = ids->end < 0 ? 1 : ids->end,
                                      .pad = ids->pad < 0 ? 0 : ids->pad};

    of_spans.start = ids->start < 0 ? of_spans.pad : ids->start;
    return of_spans;
}

static enum merak_status fill(struct corrupted *s,
                              const struct merak_corrupted_options *opt,
                              struct merak_error *err)
{
    bool spans = opt->corrupt.kind == MERAK_CORRUPT_SPANS;

    s->n_inputs = opt->n_wishes;
    s->input = calloc((size_t)opt->n_wishes, sizeof(*s->input));
    s->text = calloc(s->raw, sizeof(*s->text));
    s->next = calloc(s->raw, sizeof(*s->next));
    s->other = calloc(s->raw + 1, sizeof(*s->other));
    s->row = calloc(s->raw + 1, sizeof(*s->row));
    if (s->input == NULL || s->text == NULL || s->next == NULL ||
        s->other == NULL || s->row == NULL)
        return merak_fail_nomem(err, 4 * s->raw * sizeof(*s->text));
    for (int i = 0; i < opt->n_wishes; i++) {
        s->input[i].what = role_of(opt->corrupt.kind, opt->wish[i].name)->what;
        s->input[i].n = merak_shape_count(&opt->wish[i].shape);
    }
    s->span_ids = span_ids(opt->ids);
    if (spans)
        return fit_spans(opt, &s->spans, err);
    s->masking = (struct merak_masking){
        .seq = s->raw,
        .chosen = merak_masking_chosen(&opt->corrupt, s->raw),
        .vocab = opt->vocab,
        .mask = opt->ids->mask,
        .special = opt->ids->special,
        .n_special = opt->ids->n_special};
    return MERAK_OK;
}

enum merak_status merak_samples_corrupted(
    const struct merak_corrupted_options *opt, struct merak_data *data,
    struct merak_samples **samples_p, struct merak_error *err)
{
    struct corrupted *s = calloc(1, sizeof(*s));
    enum merak_status rc;

    if (s == NULL)
        return merak_fail_nomem(err, sizeof(*s));
    s->base.ops = &ops;
    s->data = data;
    s->key = merak_rng_key(opt->seed, "data.corrupt");
    rc = merak_corrupted_check(opt, &s->raw, err);
    if (rc == MERAK_OK)
        rc = fill(s, opt, err);
    if (rc != MERAK_OK) {
        close_corrupted(&s->base);
        return rc;
    }
    set_id(s, opt);
    *samples_p = &s->base;
    return MERAK_OK;
}
