/* SPDX-License-Identifier: Apache-2.0 */
/* hf_layout.c - the tensors of a Hugging Face folder for given parameters */
#include "config.h"

#include "io/weights/hf_weights.h"

#include "base/error.h"
#include "io/ckpt/ckpt_impl.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
    const struct merak_hf_layout_name *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static enum merak_status sort_names(struct merak_hf_layout *layout,
                                    struct merak_error *err)
{
    size_t n = (size_t)layout->n;

    layout->sorted = calloc(n + 1, sizeof(*layout->sorted));
    if (layout->sorted == NULL)
        return merak_fail_nomem(err, n * sizeof(*layout->sorted));
    for (int i = 0; i < layout->n; i++)
        layout->sorted[i] =
            (struct merak_hf_layout_name){layout->tensor[i].name, i};
    qsort(layout->sorted, n, sizeof(*layout->sorted), compare_names);
    return MERAK_OK;
}

int merak_hf_layout_find(const struct merak_hf_layout *layout, const char *name)
{
    const struct merak_hf_layout_name key = {name, 0}, *found;

    found = bsearch(&key, layout->sorted, (size_t)layout->n, sizeof(key),
                    compare_names);
    return found == NULL ? -1 : found->at;
}

/* Search backwards: parts of a tensor are near each other. */
static int find_tensor(const struct merak_hf_layout *layout, const char *name)
{
    for (int i = layout->n - 1; i >= 0; i--) {
        if (strcmp(layout->tensor[i].name, name) == 0)
            return i;
    }
    return -1;
}

/* Add the tensors of a parameter, for which there is room; returns the first.
 */
static int add_tensors(struct merak_hf_layout *layout,
                       const struct merak_hf_tensor *part)
{
    int first = layout->n;

    for (size_t n = 0; n < part->count; n++) {
        struct merak_hf_layout_tensor *t = &layout->tensor[layout->n++];

        merak_hf_tensor_name(part, n, t->name);
        if (part->stacked)
            t->dim[t->ndim++] = part->stack;
        t->dim[t->ndim++] = part->transposed ? part->cols : part->of_rows;
        if (!part->vector)
            t->dim[t->ndim++] = part->transposed ? part->of_rows : part->cols;
    }
    return first;
}

/* Does the length from config.json match the model's? */
static enum merak_status check_part(const struct merak_named *param,
                                    const struct merak_hf_tensor *part,
                                    struct merak_error *err)
{
    char want[160];

    if (part->count * part->stack * part->rows * part->cols ==
            merak_shape_count(&param->shape) &&
        (!part->transposed || part->stacked || part->rows == part->of_rows))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "tensor %.80s is [%zu, %zu] by its config.json, expected "
                      "%.60s",
                      part->name, part->of_rows, part->cols,
                      merak_shape_text(want, &param->shape));
}

/* Find the parts, and count the tensors. */
static enum merak_status find_parts(struct merak_hf_layout *layout,
                                    const struct merak_hf_config *config,
                                    const struct merak_named *param,
                                    bool stacked, size_t *most_p,
                                    struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    *most_p = 1;
    for (int i = 0; i < layout->n_params && rc == MERAK_OK; i++) {
        struct merak_hf_tensor *part = &layout->part[i];

        rc = merak_hf_tensor_find(config, param[i].name, stacked, part, err);
        if (rc == MERAK_OK)
            rc = check_part(&param[i], part, err);
        *most_p += part->count;
    }
    return rc;
}

/* Only experts have tensors of their own, which nothing else is in. */
static void place_parts(struct merak_hf_layout *layout)
{
    for (int i = 0; i < layout->n_params; i++) {
        const struct merak_hf_tensor *part = &layout->part[i];

        layout->tensor_of[i] =
            part->each ? -1 : find_tensor(layout, part->name);
        if (layout->tensor_of[i] < 0)
            layout->tensor_of[i] = add_tensors(layout, part);
    }
}

enum merak_status merak_hf_layout_init(struct merak_hf_layout *layout,
                                       const struct merak_hf_config *config,
                                       const struct merak_named *param,
                                       int n_params, bool stacked,
                                       struct merak_error *err)
{
    size_t params = (size_t)n_params + 1, most = 1;
    enum merak_status rc = MERAK_OK;

    *layout = (struct merak_hf_layout){.n_params = n_params};
    layout->part = calloc(params, sizeof(*layout->part));
    layout->tensor_of = calloc(params, sizeof(*layout->tensor_of));
    if (layout->part == NULL || layout->tensor_of == NULL)
        rc = merak_fail_nomem(err, params * sizeof(*layout->part));
    if (rc == MERAK_OK)
        rc = find_parts(layout, config, param, stacked, &most, err);
    if (rc == MERAK_OK) {
        layout->tensor = calloc(most, sizeof(*layout->tensor));
        if (layout->tensor == NULL)
            rc = merak_fail_nomem(err, most * sizeof(*layout->tensor));
    }
    if (rc == MERAK_OK) {
        place_parts(layout);
        rc = sort_names(layout, err);
    }
    if (rc != MERAK_OK)
        merak_hf_layout_fini(layout);
    return rc;
}

void merak_hf_layout_fini(struct merak_hf_layout *layout)
{
    free(layout->tensor);
    free(layout->part);
    free(layout->tensor_of);
    free(layout->sorted);
    *layout = (struct merak_hf_layout){.n = 0};
}
