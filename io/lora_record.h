/* SPDX-License-Identifier: Apache-2.0 */
/* io/lora_record.h - the options of adapters, as a checkpoint records them */
#ifndef MERAK_IO_LORA_RECORD_H
#define MERAK_IO_LORA_RECORD_H

#include <stdbool.h>
#include <stddef.h>

#include "io/hf_config.h"
#include "merak/model.h"

enum { MERAK_LORA_TARGETS = 200 };

/* " --lora-rank 16 --lora-alpha 32 .."; "" if the rank is 0.  Truncated to
 * `bytes`; returns the length of all. */
size_t merak_lora_print(const struct merak_lora *lora, char *text,
                        size_t bytes);

struct merak_lora_record {
    struct merak_lora lora; /* targets: the text below */
    char targets[MERAK_LORA_TARGETS];
};
/* What that has printed into a recipe; false, and rank 0, if nothing. */
bool merak_lora_parse(const char *recipe, struct merak_lora_record *record);

/* A merak_describe_fn: a model of the Hugging Face with these adapters. */
struct merak_lora_model {
    struct merak_hf_config *config;
    const struct merak_lora *lora; /* rank 0, or NULL: none */
};
void merak_lora_describe(struct merak_model *m, void *lora_model);

#endif
