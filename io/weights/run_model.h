/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/run_model.h - RUN/model: the files that make a checkpoint a model
 * folder
 *
 * The files are described in run_model.c.
 */
#ifndef MERAK_IO_WEIGHTS_RUN_MODEL_H
#define MERAK_IO_WEIGHTS_RUN_MODEL_H

#include <jansson.h>
#include <stdbool.h>

#include "io/weights/hf_weights.h"
#include "merak/status.h"

/* The folder's name in a run's directory. */
#define MERAK_RUN_MODEL "model"

/*
 * Copy config.json and the tokenizer files of a model (a folder or a
 * config.json) to RUN/model, if they are missing there or differ.
 */
enum merak_status merak_run_model_record(const char *run_dir, const char *model,
                                         struct merak_error *err) MERAK_CHECKED;
/* Copy all tokenizer files, but not config.json and weights, from one folder
 * to another. */
enum merak_status
merak_run_model_copy_tokenizer(const char *from, const char *to,
                               struct merak_error *err) MERAK_CHECKED;
/* Copy one file, durably; `missing_ok`: it may be absent. */
enum merak_status merak_run_model_copy(const char *from, const char *to,
                                       const char *name, bool missing_ok,
                                       struct merak_error *err) MERAK_CHECKED;

/* --- how an import's tensors were stored ------------------------------------
 */

enum merak_status
merak_run_model_put_weights(const char *run_dir, const char *from,
                            const struct merak_hf_weights *weights,
                            struct merak_error *err) MERAK_CHECKED;
/* Read what that wrote, and check its form; *root_p is NULL if there is
 * none. */
enum merak_status
merak_run_model_get_weights(const char *run_dir, json_t **root_p,
                            struct merak_error *err) MERAK_CHECKED;

#endif
