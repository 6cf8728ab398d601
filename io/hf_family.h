/* SPDX-License-Identifier: Apache-2.0 */
/* hf_family.h - the model families of config.json files */
#ifndef MERAK_IO_HF_FAMILY_H
#define MERAK_IO_HF_FAMILY_H

#include "io/hf_config.h"
#include "io/hf_reader.h"

struct merak_hf_family {
    const char *type;  /* model_type */
    const char *class; /* of transformers: what its names begin with */
    const char *model; /* and that of a language model */
    enum merak_family family;
    void (*read)(struct merak_hf_reader *r, const struct merak_hf_family *f,
                 struct merak_hf_config *c);
    const char *const *known; /* fields without effect on results */
    /* The defaults of transformers. */
    size_t vocab, hidden, ffn, layers, heads, positions;
    size_t kv_heads; /* 0: as heads */
    size_t head_dim; /* 0: hidden / heads */
    double norm_eps;
    bool pads; /* has padding .. */
    json_int_t pad;
    size_t window; /* 0: none */
    /* Which layers have windows, unless layer_types is given. */
    enum { NO_WINDOWS, ALL_LAYERS, IF_ASKED, EVERY_OTHER } windows;
    bool tied; /* default of tie_word_embeddings */
};

/* The family of a model_type; NULL if there is none. */
const struct merak_hf_family *merak_hf_family_find(const char *type);
/* The fields that transformers reads for any family, where only a cache of keys
 * and values depends on them: they must agree with what the family computes. */
void merak_hf_family_check(struct merak_hf_reader *r,
                           const struct merak_hf_family *f,
                           const struct merak_hf_config *c);
/* The families' model_types, "a, b or c". */
void merak_hf_family_list(char *text, size_t bytes);

#endif
