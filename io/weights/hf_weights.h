/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/hf_weights.h - a model's parameters in a Hugging Face folder */
#ifndef MERAK_IO_WEIGHTS_HF_WEIGHTS_H
#define MERAK_IO_WEIGHTS_HF_WEIGHTS_H

#include "io/ckpt/ckpt.h"
#include "io/hf_config.h"
#include "io/hf_names.h"
#include "io/weights/named.h"
#include "io/weights/safetensors.h"

/* --- what tensors a model has there ----------------------------------------
 */

struct merak_hf_layout_tensor {
    char name[MERAK_HF_NAME_BYTES]; /* without a family's prefix */
    int ndim;
    size_t dim[3];
};

struct merak_hf_layout_name {
    const char *name;
    int at;
};

/* The tensors that contain the parameters, in the parameters' order, and the
 * first tensor of each parameter.  Stacked: see merak_hf_tensor_find(). */
struct merak_hf_layout {
    struct merak_hf_layout_tensor *tensor;
    int n;
    struct merak_hf_tensor *part; /* [n_params] */
    int *tensor_of;               /* [n_params] */
    struct merak_hf_layout_name *sorted; /* [n] tensors by name */
    int n_params;
};

/* Has tensor t of the layout parameter p, or a part of it? */
static inline bool merak_hf_layout_is_in(const struct merak_hf_layout *layout,
                                         int p, int t)
{
    int first = layout->tensor_of[p];

    return first <= t && t < first + (int)layout->part[p].count;
}

enum merak_status merak_hf_layout_init(struct merak_hf_layout *layout,
                                       const struct merak_hf_config *config,
                                       const struct merak_named *param,
                                       int n_params, bool stacked,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_hf_layout_fini(struct merak_hf_layout *layout);
/* The tensor of this name, or -1. */
int merak_hf_layout_find(const struct merak_hf_layout *layout,
                         const char *name);

/* --- the folder ------------------------------------------------------------
 */

struct merak_hf_weights;

/*
 * Open the safetensors files of a folder, whose config.json has the family.
 * They must contain exactly these parameters; MERAK_ERR_MISMATCH names the
 * first difference (named.h).  Tensors that are not weights, or copies of one,
 * are ignored.  Experts are in tensors of each, or stacked.
 *
 *   param  [n_params]  borrowed as long as the folder is open
 */
enum merak_status merak_hf_weights_open(const char *dir,
                                        const struct merak_named *param,
                                        int n_params,
                                        struct merak_hf_weights **weights_p,
                                        struct merak_error *err) MERAK_CHECKED;
void merak_hf_weights_close(struct merak_hf_weights *weights);
/* The files. */
const struct merak_safetensors *
merak_hf_weights_files(const struct merak_hf_weights *weights);
/* Is this tensor of the files one of the model's? */
bool merak_hf_weights_has(const struct merak_hf_weights *weights,
                          const struct merak_safetensor *tensor);
/* Fill piece->data with the piece of the parameter of this name; uses memory
 * for a block of rows. */
enum merak_status merak_hf_weights_read(const struct merak_hf_weights *weights,
                                        const char *param,
                                        const struct merak_ckpt_piece *piece,
                                        struct merak_error *err) MERAK_CHECKED;
/* If a tied output layer is stored, it must equal the embedding table bitwise;
 * else MERAK_ERR_MISMATCH. */
enum merak_status
merak_hf_weights_check_tied(const struct merak_hf_weights *weights,
                            struct merak_error *err) MERAK_CHECKED;

#endif
