/* SPDX-License-Identifier: Apache-2.0 */
/* hf_family.h - the model families of config.json files */
#ifndef MERAK_IO_HF_FAMILY_H
#define MERAK_IO_HF_FAMILY_H

#include "io/hf_config.h"
#include "io/hf_reader.h"

struct merak_hf_family {
    const char *type; /* model_type */
    enum merak_family family;
    void (*read)(struct merak_hf_reader *r, const struct merak_hf_family *f,
                 struct merak_hf_config *c);
    const char *const *known; /* fields without effect on results */
    /* For fields that llama also has: */
    double norm_eps;                     /* default */
    bool needs_kv_heads, needs_head_dim; /* transformers has a fixed default
                                            for it */
    bool pads;                           /* and one for padding */
    json_int_t pad;
    size_t window; /* and one for windows; 0: none */
    /* Which layers have windows, unless layer_types is given. */
    enum { NO_WINDOWS, ALL_LAYERS, IF_ASKED, EVERY_OTHER } windows;
    bool tied; /* default of tie_word_embeddings */
};

/* The family of a model_type; NULL if there is none. */
const struct merak_hf_family *merak_hf_family_find(const char *type);
/* The families' model_types, "a, b or c". */
void merak_hf_family_list(char *text, size_t bytes);

#endif
