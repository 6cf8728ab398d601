/* SPDX-License-Identifier: Apache-2.0 */
/* hf_folder.h - write a Hugging Face folder with chosen numbers */
#ifndef MERAK_UNIT_HF_FOLDER_H
#define MERAK_UNIT_HF_FOLDER_H

#include "unit/near.h"

#include "io/weights/transfer_impl.h"

#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>

enum { HF_FOLDER_TENSORS = 1024 };

/* Element i of a tensor, named without its family's prefix. */
typedef float (*hf_folder_fn)(void *arg, const char *name, int ndim, size_t i);

static inline void hf_folder_weights(const char *path,
                                     const struct merak_hf_layout *l,
                                     hf_folder_fn number, void *arg)
{
    struct merak_safetensors_entry entry[HF_FOLDER_TENSORS];
    struct merak_safetensors_writer *w;

    assert_in_range(l->n, 1, HF_FOLDER_TENSORS);
    for (int i = 0; i < l->n; i++)
        entry[i] = (struct merak_safetensors_entry){
            .name = l->tensor[i].name,
            .ndim = l->tensor[i].ndim,
            .dim = {l->tensor[i].dim[0], l->tensor[i].dim[1],
                    l->tensor[i].dim[2]}};
    assert_int_equal(
        merak_safetensors_create(path, entry, l->n, NULL, &w, NULL), MERAK_OK);
    for (int i = 0; i < l->n; i++) {
        size_t n = merak_safetensors_bytes(&entry[i]) / sizeof(float);

        for (size_t k = 0; k < n; k++) {
            float x = number(arg, entry[i].name, entry[i].ndim, k);

            assert_int_equal(merak_safetensors_put(w, &x, 1, NULL), MERAK_OK);
        }
    }
    assert_int_equal(merak_safetensors_commit(w, NULL), MERAK_OK);
    merak_safetensors_destroy(w);
}

/* Make the folder `dir`, which must not exist, of this config.json. */
static inline void hf_folder_make(const char *dir, const json_t *config,
                                  hf_folder_fn number, void *arg)
{
    struct merak_hf_config *c = calloc(1, sizeof(*c));
    struct merak_hf_params params;
    struct merak_hf_layout l;
    struct merak_error err;
    char path[1024];

    assert_non_null(c);
    assert_int_equal(mkdir(dir, 0700), 0);
    snprintf(path, sizeof(path), "%s/config.json", dir);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    if (merak_hf_config_load(dir, c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(merak_hf_params_init(&params, c, NULL, NULL), MERAK_OK);
    assert_int_equal(
        merak_hf_layout_init(&l, c, params.param, params.n, false, NULL),
        MERAK_OK);
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    hf_folder_weights(path, &l, number, arg);
    merak_hf_layout_fini(&l);
    merak_hf_params_fini(&params);
    free(c);
}

#endif
