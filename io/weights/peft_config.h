/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/peft_config.h - adapter_config.json, as PEFT writes and reads it
 */
#ifndef MERAK_IO_WEIGHTS_PEFT_CONFIG_H
#define MERAK_IO_WEIGHTS_PEFT_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"

#define MERAK_PEFT_CONFIG "adapter_config.json"
#define MERAK_PEFT_FILE "adapter_model.safetensors"
/* In front of the names of a model's tensors. */
#define MERAK_PEFT_PREFIX "base_model.model."

struct merak_peft_config {
    json_t *root;
    size_t rank;
    double alpha, dropout;
    bool by_root;     /* use_rslora: alpha is divided by the rank's root */
    const char *base; /* base_model_name_or_path; NULL: none.  Borrowed */
};

/* Is this a folder with adapters of PEFT? */
bool merak_peft_is_one(const char *dir);
/* Read a folder's file.  Whatever makes other adapters than those of LoRA is
 * refused by name: MERAK_ERR_UNSUPPORTED. */
enum merak_status merak_peft_config_read(const char *dir,
                                         struct merak_peft_config *config,
                                         struct merak_error *err) MERAK_CHECKED;
void merak_peft_config_fini(struct merak_peft_config *config);
/* The rank and alpha of a module, by rank_pattern and alpha_pattern. */
enum merak_status merak_peft_config_of(const struct merak_peft_config *config,
                                       const char *module, double *rank_p,
                                       double *alpha_p, struct merak_error *err)
    MERAK_CHECKED;

/* By what alpha is multiplied in a module of n blocks, of n times the rank, so
 * that the factor of B A x stays. */
double merak_peft_blocks_alpha(const struct merak_peft_config *config,
                               size_t n);
/* Alpha of one of n blocks in a module that has `alpha`. */
double merak_peft_block_alpha(const struct merak_peft_config *config, size_t n,
                              double alpha);

/* A new file; json_decref() it.
 *
 *   targets     ends of modules' names, with commas between
 *   in_out      weights are stored as [in, out]
 */
json_t *merak_peft_config_make(const struct merak_peft_config *config,
                               const char *targets, bool in_out);
/* Give the modules whose names end with `end` another rank, and alpha. */
void merak_peft_config_pattern(json_t *root, const char *end, size_t rank,
                               double alpha);

#endif
