/* SPDX-License-Identifier: Apache-2.0 */
/* io/generation_config.h - how a model's folder has text generated */
#ifndef MERAK_IO_GENERATION_CONFIG_H
#define MERAK_IO_GENERATION_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

struct merak_token_list {
    int32_t *id; /* ascending, each once */
    size_t n, room;
};

struct merak_generation_config {
    struct merak_token_list ends;           /* eos_token_id */
    struct merak_token_list suppress;       /* never generated */
    struct merak_token_list begin_suppress; /* not as the first */
    /* The logit of a token that has occurred is divided by it, or multiplied
     * if it is negative (Keskar et al. 2019, arXiv:1909.05858, sec. 4.1). */
    double repetition_penalty;
    size_t no_repeat;           /* no sequence of so many tokens occurs twice;
                                   0: any may */
    size_t min_tokens, min_new; /* before one that ends a text; min_tokens
                                   with the prompt */
    size_t max_tokens, max_new; /* at most; 0: not given */
    bool samples;               /* do_sample, with the next three */
    double temperature, top_p;  /* 1: as the model predicts */
    size_t top_k;               /* 0: of all */
    char ignored[160]; /* fields that ask for something else, "a, b"; "" */
};

/*
 * Read generation_config.json of a folder; if there is none, config.json, which
 * older models have these fields in.  As in transformers, the fields of the
 * other file then do not count.  Without either file all is as by default.
 *
 *   folder  "": none
 *   vocab   ids outside of it, which cannot be generated, are left out
 *
 * MERAK_ERR_CONFIG names a field of the wrong type.
 */
enum merak_status
merak_generation_config_read(const char *folder, size_t vocab,
                             struct merak_generation_config *config,
                             struct merak_error *err) MERAK_CHECKED;
void merak_generation_config_fini(struct merak_generation_config *config);

bool merak_token_list_has(const struct merak_token_list *list, int32_t id);
enum merak_status merak_token_list_add(struct merak_token_list *list,
                                       int32_t id,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
