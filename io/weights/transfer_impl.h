/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/transfer_impl.h - shared by imports and exports */
#ifndef MERAK_IO_WEIGHTS_TRANSFER_IMPL_H
#define MERAK_IO_WEIGHTS_TRANSFER_IMPL_H

#include <limits.h>

#include "io/ckpt/ckpt.h"
#include "io/lora_record.h"
#include "io/weights/hf_weights.h"
#include "io/weights/transfer.h"

/* A family's described model, for its parameters' names and shapes. */
struct merak_hf_params {
    struct merak_model *model;
    struct merak_named *param; /* without adapters */
    int n;
    struct merak_named *whole; /* with them, in the model's order */
    int n_whole;
    char model_id[17];
    char *numbers; /* merak_graph_numbers() */
};

/*
 *   lora  in  adapters of the model; rank 0, or NULL: it has none.  `targets`
 *             is borrowed as long as the parameters
 */
enum merak_status merak_hf_params_init(struct merak_hf_params *params,
                                       struct merak_hf_config *config,
                                       const struct merak_lora *lora,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_hf_params_fini(struct merak_hf_params *params);

/* A whole parameter as a piece of a checkpoint; `name` is that of the piece,
 * "param/..". */
struct merak_ckpt_piece merak_whole_piece(const char *name,
                                          const struct merak_shape *shape,
                                          float *data);
/* Does a checkpoint have exactly these parameters?  As
 * merak_named_compare(). */
enum merak_status merak_ckpt_has_params(const struct merak_ckpt *ckpt,
                                        const struct merak_named *param, int n,
                                        struct merak_error *err) MERAK_CHECKED;
/* Read a whole parameter of a checkpoint. */
enum merak_status merak_ckpt_read_param(struct merak_ckpt *ckpt,
                                        const struct merak_named *param,
                                        float *data,
                                        struct merak_error *err) MERAK_CHECKED;

/* Read elements [at, at + n) of its first dim. */
enum merak_status merak_ckpt_read_first(struct merak_ckpt *ckpt,
                                        const struct merak_named *param,
                                        size_t at, size_t n, float *data,
                                        struct merak_error *err) MERAK_CHECKED;

/* An export under way. */
struct merak_exporting {
    const struct merak_export *export;
    struct merak_ckpt *ckpt;
    char run_dir[PATH_MAX];
    char model[PATH_MAX]; /* with the config.json */
    struct merak_hf_config config;
    struct merak_lora_record lora;
    struct merak_hf_params params;
    struct merak_hf_layout layout; /* of parameters without adapters */
    float *buf;                    /* room for the largest tensor */
    uint64_t done, all;
};

/* Report `bytes` more. */
enum merak_status merak_exporting_tell(struct merak_exporting *e,
                                       uint64_t bytes,
                                       struct merak_error *err) MERAK_CHECKED;
/* Read parameter p, merged with its adapter where that is asked for. */
enum merak_status merak_exporting_read(struct merak_exporting *e, int p,
                                       float *data,
                                       struct merak_error *err) MERAK_CHECKED;
/* Read all of tensor t of the layout, or of its matrix `at` where it is stacked,
 * into buf, [of_rows, cols]. */
enum merak_status merak_exporting_tensor(struct merak_exporting *e, int t,
                                         size_t at,
                                         struct merak_error *err) MERAK_CHECKED;
/* Write a file of JSON, as json_dumps() with these flags. */
enum merak_status merak_exporting_json(const struct merak_exporting *e,
                                       const char *name, const json_t *root,
                                       size_t flags,
                                       struct merak_error *err) MERAK_CHECKED;
/* export_hf.c and its like: export into an existing, empty folder. */
enum merak_status merak_export_hf(struct merak_exporting *e,
                                  struct merak_transfer_summary *summary,
                                  struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_export_llmc(struct merak_exporting *e,
                                    struct merak_transfer_summary *summary,
                                    struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_export_peft(struct merak_exporting *e,
                                    struct merak_transfer_summary *summary,
                                    struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_export_gguf(struct merak_exporting *e,
                                    struct merak_transfer_summary *summary,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
