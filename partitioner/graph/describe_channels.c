/* SPDX-License-Identifier: Apache-2.0 */
/* describe_channels.c - layers over groups of channels at points of space */
#include "config.h"

#include "merak/model.h"

#include "partitioner/graph/describe.h"
#include "partitioner/graph/dims.h"
#include "partitioner/graph/letters.h"

#include "base/error.h"

#include <math.h>

/* Statistics over positions would show a sequence its own future. */
static bool has_sequence(const struct merak_value *x)
{
    for (int d = 0; d < x->shape.ndim; d++) {
        if (merak_letter_is_sequence(x->letter[d]))
            return true;
    }
    return false;
}

/* Is x something that a norm can have statistics of? */
static bool check_normed(struct merak_model *m, const char *op,
                         const struct merak_value *x, float eps)
{
    char text[MERAK_SHAPE_TEXT];

    if (!(eps > 0 && isfinite(eps)))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "%s: eps is %g, expected a positive number", op,
                         (double)eps);
    else if (x->shape.ndim < 2 || has_sequence(x))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "%s: x, %s, is %s%s: expected samples, points of "
                         "space and channels",
                         op, x->name, merak_shape_print(&x->shape, text),
                         has_sequence(x) ? " with positions of a sequence"
                                         : "");
    return m->status == MERAK_OK;
}

struct merak_value *merak_groupnorm(struct merak_model *m,
                                    struct merak_value *x,
                                    struct merak_value *gamma,
                                    struct merak_value *beta, int groups,
                                    float eps)
{
    struct merak_attrs attrs = {.i = {0, 1}, .f = {(double)eps}};
    struct merak_value *sums;
    size_t channels;

    if (merak_model_open_for(m, "groupnorm") == NULL || x == NULL ||
        !check_normed(m, "groupnorm", x, eps))
        return NULL;
    channels = x->shape.dim[x->shape.ndim - 1];
    if (groups < 1 || channels % (size_t)groups != 0) {
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "groupnorm: %d groups of the %zu channels of %s: "
                         "expected a number that divides them",
                         groups, channels, x->name);
        return NULL;
    }
    attrs.i[0] = (int64_t)(channels / (size_t)groups);
    sums = merak_model_apply(m, "channel_sums", NULL, 1, &x);
    return merak_model_apply(m, "channel_norm", &attrs, 4,
                             (struct merak_value *[]){x, sums, gamma, beta});
}

/* A parameter that is an average of what norms see, and nothing else. */
static bool is_average(struct merak_model *m, struct merak_value *v,
                       float momentum)
{
    if (v == NULL)
        return false;
    if (v->kind != MERAK_VALUE_PARAM || v->mean_rate != 0) {
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "batchnorm: %s is %s, expected a parameter that no "
                         "other norm has as its mean or variance",
                         v->name,
                         v->kind != MERAK_VALUE_PARAM ? "not a parameter"
                                                      : "another norm's");
        return false;
    }
    v->mean_rate = momentum;
    v->decay = false;
    return true;
}

struct merak_value *merak_batchnorm(struct merak_model *m,
                                    struct merak_value *x,
                                    struct merak_value *gamma,
                                    struct merak_value *beta, float eps,
                                    const struct merak_batch_statistics *of)
{
    float momentum = of->momentum != 0 ? of->momentum : 0.1f;
    struct merak_attrs attrs = {.i = {1}, .f = {(double)eps}};
    struct merak_value *sums;
    size_t B, n, points = 1;

    if (merak_model_open_for(m, "batchnorm") == NULL || x == NULL ||
        !check_normed(m, "batchnorm", x, eps))
        return NULL;
    B = x->shape.dim[0];
    n = of->samples != 0 ? (size_t)of->samples : B;
    for (int d = 1; d < x->shape.ndim - 1; d++)
        points *= x->shape.dim[d];
    if (of->samples < 0 || B % n != 0)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "batchnorm: statistics of %d samples each of a "
                         "micro-batch of %zu: expected a number that divides "
                         "it, or 0 for all",
                         of->samples, B);
    else if (n * points < 2)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "batchnorm: one element has no variance: expected "
                         "several points, or a micro-batch of several samples "
                         "(--micro-batch)");
    else if (!(momentum > 0 && momentum <= 1))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "batchnorm: momentum is %g, expected 0 to 1",
                         (double)momentum);
    if (m->status != MERAK_OK || !is_average(m, of->mean, momentum) ||
        !is_average(m, of->variance, momentum))
        return NULL;
    attrs.i[1] = (int64_t)n;
    sums = merak_model_apply(m, "channel_sums", NULL, 1, &x);
    return merak_model_apply(
        m, "batch_norm", &attrs, 6,
        (struct merak_value *[]){x, sums, gamma, beta, of->mean, of->variance});
}

struct merak_value *merak_concat(struct merak_model *m, int n,
                                 struct merak_value *const *x)
{
    if (merak_model_open_for(m, "concat") == NULL)
        return NULL;
    for (int i = 0; i < n && x[i] != NULL; i++) {
        int last = x[i]->shape.ndim - 1;

        if (last < 0 || x[i]->letter[last] == 0)
            continue;
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "concat: '%c' runs along the last dim of %s: expected "
                         "channels",
                         x[i]->letter[last], x[i]->name);
        return NULL;
    }
    return merak_model_apply(m, "concat", NULL, n, x);
}

struct merak_value *merak_concat_shared(struct merak_model *m,
                                        struct merak_value *shared,
                                        struct merak_value *x)
{
    return merak_model_apply(m, "concat_shared", NULL, 2,
                             (struct merak_value *[]){shared, x});
}
