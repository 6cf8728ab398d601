/* SPDX-License-Identifier: Apache-2.0 */
/* token_samples.c - samples of token files, and what is asked of any samples */
#include "config.h"

#include "io/samples/sample_set_impl.h"

#include "base/error.h"

#include <errno.h>
#include <stdlib.h>

struct token_samples {
    struct merak_samples base;
    const struct merak_data *data;
};

static const struct merak_data *data_of(const struct merak_samples *samples)
{
    return ((const struct token_samples *)samples)->data;
}

static uint64_t count(const struct merak_samples *samples,
                      enum merak_split split)
{
    return merak_data_samples(data_of(samples), split);
}

static const char *id(const struct merak_samples *samples)
{
    return merak_data_id(data_of(samples));
}

static void content(const struct merak_samples *samples,
                    char text[MERAK_DATA_CONTENT])
{
    merak_data_content(data_of(samples), text);
}

static bool is_masked(const struct merak_samples *samples, int wish)
{
    (void)wish; /* there are targets only */
    return merak_data_is_masked(data_of(samples));
}

static uint64_t counted(const struct merak_samples *samples, int wish,
                        enum merak_split split, uint64_t index, uint64_t n)
{
    (void)wish;
    return merak_data_counted(data_of(samples), split, index, n);
}

static void close_tokens(struct merak_samples *samples)
{
    free(samples);
}

static const struct merak_samples_ops token_ops = {.count = count,
                                                   .id = id,
                                                   .content = content,
                                                   .is_masked = is_masked,
                                                   .counted = counted,
                                                   .close = close_tokens};

enum merak_status merak_samples_of_tokens(struct merak_data *data,
                                          struct merak_samples **samples_p,
                                          struct merak_error *err)
{
    struct token_samples *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return merak_fail_nomem(err, sizeof(*s));
    s->base.ops = &token_ops;
    s->data = data;
    *samples_p = &s->base;
    return MERAK_OK;
}

/* --- of any kind -------------------------------------------------------------
 */

void merak_samples_close(struct merak_samples *samples)
{
    int saved = errno;

    if (samples != NULL)
        samples->ops->close(samples);
    errno = saved;
}

uint64_t merak_samples_count(const struct merak_samples *samples,
                             enum merak_split split)
{
    return samples->ops->count(samples, split);
}

const char *merak_samples_id(const struct merak_samples *samples)
{
    return samples->ops->id(samples);
}

void merak_samples_content(const struct merak_samples *samples,
                           char text[MERAK_DATA_CONTENT])
{
    samples->ops->content(samples, text);
}

bool merak_samples_is_masked(const struct merak_samples *samples, int wish)
{
    return samples->ops->is_masked(samples, wish);
}

uint64_t merak_samples_counted(const struct merak_samples *samples, int wish,
                               enum merak_split split, uint64_t index,
                               uint64_t n)
{
    return samples->ops->counted(samples, wish, split, index, n);
}

enum merak_status merak_samples_read(const struct merak_samples *samples,
                                     int wish, enum merak_split split,
                                     uint64_t index, const size_t *lo,
                                     const size_t *len, void *out,
                                     struct merak_error *err)
{
    return samples->ops->read(samples, wish, split, index, lo, len, out, err);
}
