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

struct merak_value *merak_groupnorm(struct merak_model *m,
                                    struct merak_value *x,
                                    struct merak_value *gamma,
                                    struct merak_value *beta, int groups,
                                    float eps)
{
    struct merak_attrs attrs = {.i = {0, 1}, .f = {(double)eps}};
    struct merak_value *sums;
    char text[MERAK_SHAPE_TEXT];
    size_t channels;

    if (merak_model_open_for(m, "groupnorm") == NULL || x == NULL)
        return NULL;
    channels = x->shape.ndim > 0 ? x->shape.dim[x->shape.ndim - 1] : 0;
    if (!(eps > 0 && isfinite(eps)))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "groupnorm: eps is %g, expected a positive number",
                         (double)eps);
    else if (x->shape.ndim < 2 || has_sequence(x))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "groupnorm: x, %s, is %s%s: expected samples, points "
                         "of space and channels",
                         x->name, merak_shape_print(&x->shape, text),
                         has_sequence(x) ? " with positions of a sequence"
                                         : "");
    else if (groups < 1 || channels % (size_t)groups != 0)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "groupnorm: %d groups of the %zu channels of %s: "
                         "expected a number that divides them",
                         groups, channels, x->name);
    if (m->status != MERAK_OK)
        return NULL;
    attrs.i[0] = (int64_t)(channels / (size_t)groups);
    sums = merak_model_apply(m, "channel_sums", NULL, 1, &x);
    return merak_model_apply(m, "channel_norm", &attrs, 4,
                             (struct merak_value *[]){x, sums, gamma, beta});
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
