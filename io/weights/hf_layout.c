/* SPDX-License-Identifier: Apache-2.0 */
/* hf_layout.c - the tensors of a Hugging Face folder for given parameters */
#include "config.h"

#include "io/weights/hf_weights.h"

#include "base/error.h"
#include "io/ckpt/ckpt_impl.h"

#include <stdlib.h>
#include <string.h>

/* Search backwards: parts of a tensor are near each other. */
static int find_tensor(const struct merak_hf_layout *layout, const char *name)
{
    for (int i = layout->n - 1; i >= 0; i--) {
        if (strcmp(layout->tensor[i].name, name) == 0)
            return i;
    }
    return -1;
}

static int add_tensor(struct merak_hf_layout *layout,
                      const struct merak_hf_tensor *part)
{
    struct merak_hf_layout_tensor *t = &layout->tensor[layout->n];

    memcpy(t->name, part->name, sizeof(t->name));
    t->ndim = part->vector ? 1 : 2;
    t->dim[0] = part->transposed ? part->cols : part->of_rows;
    t->dim[1] = part->transposed ? part->of_rows : part->cols;
    return layout->n++;
}

/* Does the length from config.json match the model's? */
static enum merak_status check_part(const struct merak_named *param,
                                    const struct merak_hf_tensor *part,
                                    struct merak_error *err)
{
    char want[160];

    if (part->rows * part->cols == merak_shape_count(&param->shape) &&
        (!part->transposed || part->rows == part->of_rows))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "tensor %.80s is [%zu, %zu] by its config.json, expected "
                      "%.60s",
                      part->name, part->of_rows, part->cols,
                      merak_shape_text(want, &param->shape));
}

enum merak_status merak_hf_layout_init(struct merak_hf_layout *layout,
                                       const struct merak_hf_config *config,
                                       const struct merak_named *param,
                                       int n_params, struct merak_error *err)
{
    size_t most = (size_t)n_params + 1;
    enum merak_status rc = MERAK_OK;

    *layout = (struct merak_hf_layout){.n_params = n_params};
    layout->tensor = calloc(most, sizeof(*layout->tensor));
    layout->part = calloc(most, sizeof(*layout->part));
    layout->tensor_of = calloc(most, sizeof(*layout->tensor_of));
    if (layout->tensor == NULL || layout->part == NULL ||
        layout->tensor_of == NULL)
        rc = merak_fail_nomem(err, most * sizeof(*layout->part));
    for (int i = 0; i < n_params && rc == MERAK_OK; i++) {
        struct merak_hf_tensor *part = &layout->part[i];

        rc = merak_hf_tensor_find(config, param[i].name, part, err);
        if (rc == MERAK_OK)
            rc = check_part(&param[i], part, err);
        if (rc != MERAK_OK)
            break;
        layout->tensor_of[i] = find_tensor(layout, part->name);
        if (layout->tensor_of[i] < 0)
            layout->tensor_of[i] = add_tensor(layout, part);
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
    *layout = (struct merak_hf_layout){.n = 0};
}
